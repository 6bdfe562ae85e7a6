/* SPDX-License-Identifier: Apache-2.0 */
/* One line at a time to stderr or the journal, with a limit for each event.
 *
 *     log_write -> level? -> lock -> new second? report what was suppressed -> limit? -> format -> write
 *
 * The level is read without the lock, so a filtered line costs one load.  Everything else runs under one
 * mutex, so lines do not mix and one scratch buffer is reused.
 *
 * The limit keeps a flapping peer from filling the disk.  A small table counts events for each second.
 * Beyond an event's limit the log only counts its lines.  The first line of a later second, of any event, is
 * preceded by one "log_suppressed" line for each silenced event.  Events that find no room in the table
 * share its last entry.
 *
 * The log uses the journal when stderr is the journal's stream: $JOURNAL_STREAM then names the device and
 * inode of descriptor 2.  Lines go to journald's own socket, so that fields arrive as fields.  If that
 * fails, lines go to stderr as JSON with syslog's "<6>" prefix, which journald understands too.
 *
 * A log that cannot be written is not an error of the program: no function here reports failure. */
#include "base/log.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/log_priv.h"
#include "base/str.h"

enum { DEFAULT_LINES_PER_S = 200, MAX_LIMITED = 64, MAX_EVENTS = 256, EVENT_BYTES = 48 };

struct event_count {
    char event[EVENT_BYTES]; /* "" ends the table */
    unsigned limit;          /* 0: no limit */
    unsigned n_lines;        /* lines in this second */
    uint64_t n_suppressed;
};

static struct {
    _Atomic int level;
    pthread_mutex_t lock; /* guards all members below */
    const char *program;
    enum log_format format; /* AUTO until resolve_format() sets it */
    bool has_colour;
    int journal_fd;
    uint64_t second;
    unsigned n_limited;
    struct event_count events[MAX_EVENTS];
    struct buf scratch;
} state = {
    .level = LOG_LEVEL_INFO,
    .lock = PTHREAD_MUTEX_INITIALIZER,
    .program = "baton",
    .journal_fd = -1,
};

static bool stderr_is_journal(void)
{
    const char *stream = getenv("JOURNAL_STREAM");
    uintmax_t device, inode;
    struct stat file;

    if (stream == NULL || sscanf(stream, "%" SCNuMAX ":%" SCNuMAX, &device, &inode) != 2)
        return false;
    return fstat(STDERR_FILENO, &file) == 0 && file.st_dev == device && file.st_ino == inode;
}

static int open_journal(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = "/run/systemd/journal/socket"};
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof(address)) != 0) {
        close(fd);
        fd = -1;
    }
    return fd;
}

static void resolve_format(void)
{
    bool is_terminal = isatty(STDERR_FILENO) == 1;

    if (state.format == LOG_FORMAT_AUTO)
        state.format = stderr_is_journal() ? LOG_FORMAT_JOURNAL
                       : is_terminal       ? LOG_FORMAT_TEXT
                                           : LOG_FORMAT_JSON;
    if (state.format == LOG_FORMAT_JOURNAL && state.journal_fd < 0)
        state.journal_fd = open_journal();
    state.has_colour = is_terminal && getenv("NO_COLOR") == NULL;
}

void log_setup(const char *program, enum log_level level, enum log_format format)
{
    pthread_mutex_lock(&state.lock);
    state.program = program;
    state.format = format;
    resolve_format();
    pthread_mutex_unlock(&state.lock);
    log_set_level(level);
}

void log_set_level(enum log_level level)
{
    atomic_store_explicit(&state.level, (int)level, memory_order_relaxed);
}

bool log_enabled(enum log_level level)
{
    return (int)level >= atomic_load_explicit(&state.level, memory_order_relaxed);
}

/* Finds or adds the event's entry.  Events without room get the last entry. */
static struct event_count *find_event(const char *event)
{
    size_t i = 0;

    while (i < MAX_EVENTS - 1 && state.events[i].event[0] != '\0' &&
           strncmp(state.events[i].event, event, EVENT_BYTES - 1) != 0)
        i++;
    struct event_count *entry = &state.events[i];
    if (entry->event[0] == '\0') {
        str_copy(entry->event, EVENT_BYTES, i < MAX_EVENTS - 1 ? event : "(others)");
        entry->limit = DEFAULT_LINES_PER_S;
    }
    return entry;
}

int log_set_limit(const char *event, unsigned lines_per_s)
{
    int rc = E_FULL;

    ASSERT(event[0] != '\0');
    pthread_mutex_lock(&state.lock);
    if (state.n_limited < MAX_LIMITED) {
        find_event(event)->limit = lines_per_s;
        state.n_limited++;
        rc = 0;
    }
    pthread_mutex_unlock(&state.lock);
    return rc;
}

static void log_write_all(const uint8_t *data, size_t len_bytes)
{
    while (len_bytes > 0) {
        ssize_t n = write(STDERR_FILENO, data, len_bytes);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return;
        data += n;
        len_bytes -= (size_t)n;
    }
}

static bool send_to_journal(const struct log_line *line)
{
    if (state.journal_fd < 0)
        return false;
    buf_clear(&state.scratch);
    log_format_journal(line, &state.scratch);
    if (state.scratch.is_bad)
        return false;

    ssize_t n;
    do
        n = send(state.journal_fd, state.scratch.data, state.scratch.len_bytes, MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR);
    return n >= 0;
}

static void log_emit(enum log_level level, const char *event, const struct log_field *fields)
{
    struct log_line line = {
        .program = state.program,
        .level = level,
        .event = event,
        .fields = fields,
        .unix_ns = clock_unix_ns(),
        .has_colour = state.has_colour,
    };

    if (state.format == LOG_FORMAT_JOURNAL && send_to_journal(&line))
        return;
    buf_clear(&state.scratch);
    if (state.format == LOG_FORMAT_TEXT) {
        log_format_text(&line, &state.scratch);
    } else {
        if (state.format == LOG_FORMAT_JOURNAL)
            buf_printf(&state.scratch, "<%d>", log_priority(level));
        log_format_json(&line, &state.scratch);
    }
    if (!state.scratch.is_bad)
        log_write_all(state.scratch.data, state.scratch.len_bytes);
}

/* At the first line of a new second: resets the counts and reports the suppressed lines. */
static void turn_second(void)
{
    uint64_t second = clock_now_ns() / NS_PER_S;

    if (second == state.second)
        return;
    state.second = second;
    for (size_t i = 0; i < MAX_EVENTS && state.events[i].event[0] != '\0'; i++) {
        struct event_count *entry = &state.events[i];

        entry->n_lines = 0;
        if (entry->n_suppressed == 0)
            continue;
        log_emit(LOG_LEVEL_WARN, "log_suppressed",
                 LOG_FIELDS(LOG_STR("of_event", entry->event), LOG_U64("lines", entry->n_suppressed)));
        entry->n_suppressed = 0;
    }
}

void log_write(enum log_level level, const char *event, const struct log_field *fields)
{
    if (!log_enabled(level))
        return;

    int errno_before = errno; /* callers may read errno after logging */
    pthread_mutex_lock(&state.lock);
    if (state.format == LOG_FORMAT_AUTO)
        resolve_format();
    turn_second();
    struct event_count *entry = find_event(event);
    if (entry->limit != 0 && entry->n_lines >= entry->limit) {
        entry->n_suppressed++;
    } else {
        entry->n_lines++;
        log_emit(level, event, fields);
    }
    pthread_mutex_unlock(&state.lock);
    errno = errno_before;
}
