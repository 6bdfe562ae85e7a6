/* SPDX-License-Identifier: Apache-2.0 */
/* Downloads one file in ranges, several at a time, and continues where an earlier run ended.
 *
 *     FIND ---> FETCH ---> CHECK ---> named
 *      ^          |
 *      +-- wait --+   a connection broke, the address expired, the server is busy
 *
 * Each connection fills one segment of PATH.part, from the last byte on. Once a second PATH.part.state records
 * which bytes are complete. It is written after the bytes, so a killed process loses at most a second. A server
 * that ignores ranges is read in one piece from the start. The download gives up after MAX_FAILURES failures
 * without PROGRESS_BYTES between them. */
#include "clients/pull/pull_http_priv.h"

#include "base/clock.h"
#include "base/err.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum { MAX_CONNECTIONS = 16, MAX_FAILURES = 6, PROGRESS_BYTES = 64 << 10, STATE_BYTES = 1 << 20 };
#define FIRST_WAIT_NS (200 * NS_PER_MS)
#define MAX_WAIT_NS   (30 * NS_PER_S)

struct get;

struct piece { /* one connection */
    struct get *get;
    CURL *easy; /* NULL: idle */
    uint32_t segment;
    uint64_t at, end; /* offsets in the file; end: behind the last byte asked for */
    struct pull_heads heads;
    bool is_checked; /* the answer's status and range fit */
};

struct get {
    const struct pull_opts *opts;
    const char *url;
    const struct pull_file *expected;
    struct buf part_path, state_path;
    struct pull_source source;
    struct pull_state *state;
    struct pull_progress progress;
    CURLM *multi;
    struct piece pieces[MAX_CONNECTIONS];
    int fd;
    bool is_found;       /* source is known and has not expired */
    unsigned n_failures; /* since bytes came last */
    uint64_t done_at_failure, wait_until_ns, saved_ns;
    struct fault *fault;
    int rc; /* a failure that ends the download */
};

/* ---- state on disk ---- */

static int save_state(struct get *get)
{
    struct buf text = {0}, fresh = {0};
    FILE *file;
    int rc = pull_state_put(get->state, &text);

    buf_printf(&fresh, "%s.new", (const char *)get->state_path.data);
    file = rc == 0 && !fresh.is_bad ? fopen((const char *)fresh.data, "wbe") : NULL;
    if (file != NULL) {
        bool is_good = fwrite(text.data, 1, text.len_bytes, file) == text.len_bytes;
        is_good = fclose(file) == 0 && is_good;
        rc = is_good && rename((const char *)fresh.data, (const char *)get->state_path.data) == 0 ? 0 : E_IO;
    }
    buf_fini(&fresh);
    buf_fini(&text);
    get->saved_ns = clock_now_ns();
    return file == NULL ? E_IO : rc; /* the bytes stay useful, so nothing depends on it */
}

/* True if PATH.part and its state continue this very file. */
static bool load_state(struct get *get, const char *id)
{
    struct buf text = {0};
    struct pull_state *state = malloc(sizeof(*state));
    struct stat status;
    FILE *file = fopen((const char *)get->state_path.data, "rbe");
    bool is_good = false;

    if (file != NULL && state != NULL && buf_reserve(&text, STATE_BYTES) == 0) {
        text.len_bytes = fread(text.data, 1, STATE_BYTES, file);
        is_good = id[0] != '\0' && pull_state_read(buf_view(&text), state) == 0 &&
                  strcmp(state->id, id) == 0 && state->size_bytes == get->source.size_bytes &&
                  fstat(get->fd, &status) == 0 && (uint64_t)status.st_size == state->size_bytes;
    }
    if (is_good)
        *get->state = *state;
    if (file != NULL)
        fclose(file);
    buf_fini(&text);
    free(state);
    return is_good;
}

static int fail_io(struct get *get, const char *what)
{
    return fault_set(get->fault, errno == ENOSPC || errno == EDQUOT || errno == EFBIG ? E_FULL : E_IO,
                     "%s %.300s: %s", what, (const char *)get->part_path.data, strerror(errno));
}

/* Gives PATH.part its size. Refuses at once if the disk has no room for the rest. Blocks that PATH.part has are
 * written again, whether their bytes are complete or not. */
static int pull_get_make_room(struct get *get)
{
    struct statvfs disk;
    struct stat status;
    uint64_t held, missing;

    if (fstat(get->fd, &status) != 0)
        return fail_io(get, "cannot look at");
    held = (uint64_t)status.st_blocks * 512;
    if (held < pull_state_done(get->state)) /* a file system compresses, or counts its blocks later */
        held = pull_state_done(get->state);
    missing = get->source.size_bytes - (held < get->source.size_bytes ? held : get->source.size_bytes);
    if (fstatvfs(get->fd, &disk) == 0 && missing > (uint64_t)disk.f_bavail * disk.f_frsize)
        return fault_set(get->fault, E_FULL, "%.200s: %.2f GB are needed, the disk has %.2f GB free",
                         (const char *)get->part_path.data, (double)missing / 1e9,
                         (double)disk.f_bavail * (double)disk.f_frsize / 1e9);
    if (ftruncate(get->fd, (off_t)get->source.size_bytes) != 0)
        return fail_io(get, "cannot make room in");
    return 0;
}

/* ---- one connection ---- */

static size_t pull_get_on_head(char *data, size_t size, size_t n, void *arg)
{
    struct piece *piece = arg;

    pull_heads_read(&piece->heads, bytes_of(data, n));
    return n;
}

/* Checks before the first byte that the answer has the requested range.  False for an error page. */
static bool pull_get_check_answer(struct piece *piece)
{
    struct get *get = piece->get;
    struct pull_range range;
    long status = 0;

    curl_easy_getinfo(piece->easy, CURLINFO_RESPONSE_CODE, &status);
    piece->is_checked = true;
    if (status == 200 && piece->at == 0 && piece->end == get->source.size_bytes)
        return true;
    if (status == 200) { /* ranges are ignored after all: begin again, in one piece */
        get->source.has_ranges = false;
        return false;
    }
    if (status != 206)
        return false;
    if (pull_range_read(piece->heads.range, &range) == 0 && range.first == piece->at &&
        range.last == piece->end - 1 && range.total == get->source.size_bytes)
        return true;
    get->rc = fault_set(get->fault, E_PROTO, "the server answers with another range (%.60s): %.200s",
                        piece->heads.range, get->source.url);
    return false;
}

static size_t pull_get_on_body(char *data, size_t size, size_t n, void *arg)
{
    struct piece *piece = arg;
    struct get *get = piece->get;
    size_t written = 0;

    if (!piece->is_checked && !pull_get_check_answer(piece))
        return 0;
    if (n > piece->end - piece->at) {
        get->rc = fault_set(get->fault, E_PROTO, "the server sends more bytes than it announced: %.300s",
                            get->source.url);
        return 0;
    }
    while (written < n) {
        ssize_t done = pwrite(get->fd, data + written, n - written, (off_t)(piece->at + written));

        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0) {
            get->rc = fail_io(get, "cannot write");
            return 0;
        }
        written += (size_t)done;
    }
    piece->at += n;
    if (get->source.has_ranges)
        get->state->done_bytes[piece->segment] += n;
    return n;
}

static int open_piece(struct piece *piece)
{
    struct get *get = piece->get;
    char range[64];

    piece->easy = pull_http_easy(get->opts, get->source.url, get->fault);
    if (piece->easy == NULL)
        return get->fault->code;
    piece->is_checked = false;
    snprintf(range, sizeof(range), "%llu-%llu", (unsigned long long)piece->at,
             (unsigned long long)piece->end - 1);
    if (get->source.has_ranges)
        curl_easy_setopt(piece->easy, CURLOPT_RANGE, range);
    curl_easy_setopt(piece->easy, CURLOPT_HEADERFUNCTION, pull_get_on_head);
    curl_easy_setopt(piece->easy, CURLOPT_HEADERDATA, piece);
    curl_easy_setopt(piece->easy, CURLOPT_WRITEFUNCTION, pull_get_on_body);
    curl_easy_setopt(piece->easy, CURLOPT_WRITEDATA, piece);
    curl_easy_setopt(piece->easy, CURLOPT_PRIVATE, piece);
    if (curl_multi_add_handle(get->multi, piece->easy) != CURLM_OK)
        return fault_set(get->fault, E_NOMEM, "out of memory");
    return 0;
}

static void close_piece(struct piece *piece)
{
    if (piece->easy == NULL)
        return;
    curl_multi_remove_handle(piece->get->multi, piece->easy);
    curl_easy_cleanup(piece->easy);
    piece->easy = NULL;
}

/* ---- failures ---- */

/* Counts a failure and sets the pause before the next request; ends the download after too many. */
static void count_failure(struct get *get, uint64_t asked_wait_ns)
{
    uint64_t done = pull_state_done(get->state), wait_ns = FIRST_WAIT_NS;

    if (get->rc != 0)
        return;
    if (done >= get->done_at_failure + PROGRESS_BYTES)
        get->n_failures = 0;
    get->done_at_failure = done;
    if (++get->n_failures >= MAX_FAILURES) {
        struct fault last = *get->fault;
        get->rc = fault_set(get->fault, last.code, "given up after %d failures, the last: %.400s",
                            MAX_FAILURES, last.text);
        return;
    }
    for (unsigned i = 1; i < get->n_failures && wait_ns < MAX_WAIT_NS; i++)
        wait_ns *= 2;
    wait_ns = asked_wait_ns > wait_ns ? asked_wait_ns : wait_ns;
    get->wait_until_ns = clock_now_ns() + (wait_ns < MAX_WAIT_NS ? wait_ns : MAX_WAIT_NS);
}

/* Handles a connection that ended before its last byte. */
static void take_failure(struct get *get, struct piece *piece, CURLcode code)
{
    curl_off_t wait_s = 0;
    long status = 0;
    bool may_retry = true;

    curl_easy_getinfo(piece->easy, CURLINFO_RESPONSE_CODE, &status);
    curl_easy_getinfo(piece->easy, CURLINFO_RETRY_AFTER, &wait_s);
    if (get->rc != 0)
        return;
    if (status >= 300) {
        int rc = pull_http_status(get->opts, get->source.url, status, &may_retry, get->fault);

        /* The address of a redirect expires; the first address gives a new one. */
        if (!may_retry && strcmp(get->source.url, get->url) == 0)
            get->rc = rc;
        get->is_found = get->is_found && may_retry;
    } else {
        pull_http_failed(get->opts, get->source.url, code == CURLE_OK ? CURLE_PARTIAL_FILE : code,
                         get->fault);
    }
    count_failure(get, wait_s > 0 && wait_s < 3600 ? (uint64_t)wait_s * NS_PER_S : 0);
}

static void take_ends(struct get *get)
{
    CURLMsg *message;
    int n_left;

    while ((message = curl_multi_info_read(get->multi, &n_left)) != NULL) {
        CURLcode code = message->data.result;
        struct piece *piece = NULL;

        if (message->msg != CURLMSG_DONE)
            continue;
        curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &piece);
        if (code != CURLE_OK || piece->at != piece->end)
            take_failure(get, piece, code);
        else if (!get->source.has_ranges)
            for (uint32_t i = 0; i < pull_state_segments(get->state); i++)
                get->state->done_bytes[i] =
                    pull_state_segment_end(get->state, i) - i * get->state->segment_bytes;
        close_piece(piece);
    }
}

/* ---- the loop ---- */

static const char *id_of(const struct get *get)
{
    return get->source.sha256[0] != '\0' ? get->source.sha256 : get->source.etag;
}

/* Finds the file's address, at the start and after the last one expired. */
static int pull_get_find(struct get *get)
{
    bool is_first = get->source.size_bytes == 0;
    char before[sizeof(get->state->id)];
    int rc;

    snprintf(before, sizeof(before), "%s", id_of(get));
    rc = pull_http_find(get->opts, get->url, &get->source, get->fault);
    if (rc == E_AGAIN || rc == E_PEER || rc == E_TIMEOUT) {
        count_failure(get, 0);
        return get->rc;
    }
    if (rc == 0 && get->expected->size_bytes != 0 && get->expected->size_bytes != get->source.size_bytes)
        rc = fault_set(get->fault, E_MISMATCH,
                       "the hub lists %llu bytes, the server of the file says %llu: %.200s",
                       (unsigned long long)get->expected->size_bytes,
                       (unsigned long long)get->source.size_bytes, get->source.url);
    if (rc != 0)
        return rc;
    if (get->expected->sha256[0] != '\0')
        memcpy(get->source.sha256, get->expected->sha256, sizeof(get->source.sha256));
    get->is_found = true;
    if (!is_first)
        return strcmp(before, id_of(get)) == 0
                   ? 0
                   : fault_set(get->fault, E_MISMATCH, "the file changed: %.300s", get->url);
    if (!load_state(get, id_of(get)))
        pull_state_start(get->state, get->source.size_bytes, id_of(get));
    if (!get->source.has_ranges)
        memset(get->state->done_bytes, 0, sizeof(get->state->done_bytes));
    get->done_at_failure = pull_state_done(get->state);
    pull_progress_start(&get->progress, get->expected->path, get->done_at_failure, get->source.size_bytes,
                        get->opts->is_quiet);
    return pull_get_make_room(get);
}

static bool is_taken(const struct get *get, uint32_t segment)
{
    for (uint32_t i = 0; i < MAX_CONNECTIONS; i++) {
        if (get->pieces[i].easy != NULL && get->pieces[i].segment == segment)
            return true;
    }
    return false;
}

/* Opens idle connections for segments that are not complete. */
static int open_pieces(struct get *get)
{
    uint32_t n = get->source.has_ranges ? get->opts->n_connections : 1, segment = 0;
    int rc = 0;

    for (uint32_t i = 0; i < n && i < MAX_CONNECTIONS && rc == 0; i++) {
        struct piece *piece = &get->pieces[i];

        if (piece->easy != NULL)
            continue;
        if (!get->source.has_ranges) {
            memset(get->state->done_bytes, 0, sizeof(get->state->done_bytes));
            *piece = (struct piece){.get = get, .end = get->source.size_bytes};
            return open_piece(piece);
        }
        for (; segment < pull_state_segments(get->state); segment++) {
            uint64_t at = segment * get->state->segment_bytes + get->state->done_bytes[segment];
            uint64_t end = pull_state_segment_end(get->state, segment);

            if (at < end && !is_taken(get, segment)) {
                *piece = (struct piece){.get = get, .segment = segment, .at = at, .end = end};
                rc = open_piece(piece);
                break;
            }
        }
    }
    return rc;
}

static int pull_get_step(struct get *get)
{
    uint64_t now_ns = clock_now_ns();
    int n_running = 0, rc = 0;

    if (get->opts->is_cancelled())
        return fault_set(get->fault, E_CANCELLED, "cancelled");
    if (now_ns >= get->wait_until_ns) {
        rc = get->is_found ? 0 : pull_get_find(get);
        if (rc == 0 && get->is_found)
            rc = open_pieces(get);
    }
    if (rc != 0)
        return rc;
    bool had_ranges = get->source.has_ranges;
    curl_multi_perform(get->multi, &n_running);
    take_ends(get);
    if (had_ranges && !get->source.has_ranges) {
        for (uint32_t i = 0; i < MAX_CONNECTIONS; i++)
            close_piece(&get->pieces[i]);
    }
    if (!get->is_found)
        usleep(20000);
    else
        curl_multi_poll(get->multi, NULL, 0, now_ns < get->wait_until_ns ? 20 : 200, NULL);
    if (get->is_found && clock_now_ns() - get->saved_ns > NS_PER_S)
        save_state(get);
    pull_progress_show(&get->progress,
                       get->source.has_ranges ? pull_state_done(get->state) : get->pieces[0].at);
    return get->rc;
}

static int pull_get_fetch(struct get *get)
{
    int rc = 0;

    while (rc == 0 && (!get->is_found || pull_state_done(get->state) < get->source.size_bytes))
        rc = pull_get_step(get);
    for (uint32_t i = 0; i < MAX_CONNECTIONS; i++)
        close_piece(&get->pieces[i]);
    if (get->source.size_bytes != 0) {
        pull_progress_show(&get->progress, pull_state_done(get->state));
        pull_progress_end(&get->progress);
        if (rc != 0)
            save_state(get);
    }
    return rc;
}

static int pull_get_open_part(struct get *get, const char *path)
{
    struct stat held, named;

    buf_printf(&get->part_path, "%s.part", path);
    buf_printf(&get->state_path, "%s.part.state", path);
    get->state = calloc(1, sizeof(*get->state));
    get->multi = curl_multi_init();
    if (get->part_path.is_bad || get->state_path.is_bad || get->state == NULL || get->multi == NULL)
        return fault_set(get->fault, E_NOMEM, "out of memory");
    get->state->segment_bytes = 1;
    get->fd = open((const char *)get->part_path.data, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (get->fd < 0)
        return fail_io(get, "cannot open");
    /* A process that ended in between has given the file its name, or has removed it. */
    if (flock(get->fd, LOCK_EX | LOCK_NB) != 0 || fstat(get->fd, &held) != 0 ||
        stat((const char *)get->part_path.data, &named) != 0 || held.st_ino != named.st_ino)
        return fault_set(get->fault, E_AGAIN, "another process downloads %.300s",
                         (const char *)get->part_path.data);
    return 0;
}

/* Removes PATH.part, which this process holds, if it has no byte that a later run could use. */
static void drop_empty_part(struct get *get)
{
    struct stat status;

    if (get->source.size_bytes == 0 ? fstat(get->fd, &status) != 0 || status.st_size != 0
                                    : pull_state_done(get->state) != 0)
        return;
    unlink((const char *)get->part_path.data);
    unlink((const char *)get->state_path.data);
}

int pull_get(const struct pull_opts *opts, const char *url, const char *path,
             const struct pull_file *expected, struct fault *fault)
{
    struct get get = {.opts = opts, .url = url, .expected = expected, .fd = -1, .fault = fault};
    int rc = pull_store_make_folders(path, fault);

    if (rc == 0)
        rc = pull_get_open_part(&get, path);
    if (rc == 0) {
        rc = pull_get_fetch(&get);
        if (rc != 0)
            drop_empty_part(&get);
    }
    if (rc == 0)
        rc = fsync(get.fd) == 0 ? 0 : fail_io(&get, "cannot write");
    if (rc == 0)
        rc = pull_store_finish(opts, path, get.source.sha256, fault);
    if (rc == 0 || rc == E_MISMATCH)
        unlink((const char *)get.state_path.data);
    if (get.multi != NULL)
        curl_multi_cleanup(get.multi);
    if (get.fd >= 0)
        close(get.fd);
    free(get.state);
    buf_fini(&get.part_path);
    buf_fini(&get.state_path);
    return rc;
}
