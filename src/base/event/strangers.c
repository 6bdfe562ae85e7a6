/* SPDX-License-Identifier: Apache-2.0 */
/* A stranger's states:
 *
 *    accept ──> SILENT ──first bytes──> READY ──enough──> BEGUN ──proved──> (gone: only its owner has it)
 *                 │                       │                 │  evicted, or ended by its owner
 *                 v                       v                 v
 *               closed: not enough in time, evicted        gone
 *
 * READY and BEGUN are one class in the table: both have sent bytes.  On a busy loop a peer's first bytes may
 * lie in the kernel while a burst is accepted.  So an eviction looks for bytes before it takes a silent one.
 *
 * "Enough" is one byte, or a whole ClientHello on a port with TLS: a TLS object costs a hundred times as much as a
 * stranger.  Until then the bytes stay in the kernel, which reports the socket again when all are there
 * (SO_RCVLOWAT).
 *
 * A silent stranger that its peer closes leaves no log line, because no owner exists yet.  Every eviction is
 * counted, but logged at most once in LOG_PAUSE_NS.  So a flood of sockets does not become a flood of log
 * lines. */
#include "base/event/strangers.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/event/stranger_hello_priv.h"
#include "base/event/stranger_table_priv.h"

#define MAX_KNOWN       1024
#define LOG_PAUSE_NS    (10 * NS_PER_S)
#define PEEKS           64 /* bounds one eviction; each finds another stranger that has sent bytes */
#define CLOSED_PER_TURN 64 /* bounds one round: a flood that ends at once must not block the loop */

const char *const stranger_end_names[STRANGER_N_ENDS] = {"address", "full", "silent"};

enum stranger_state {
    STRANGER_SILENT, /* ours: no byte has been seen */
    STRANGER_READY,  /* ours: some bytes are here; the watch will report them, or that enough are here */
    STRANGER_BEGUN   /* handed over: its owner uses the socket */
};

struct stranger {
    struct stranger_entry entry;
    struct list silent; /* in strangers->silent, oldest first; unlinked once it is BEGUN */
    struct strangers *port;
    enum stranger_state state;
    int fd;              /* ours */
    size_t wanted_bytes; /* READY: the watch waits for so many; 0: for any */
    struct ev_fd *watch; /* ours */
    uint64_t since_ns;
    void (*evict)(void *owner); /* BEGUN */
    void *owner;
    union {
        struct sockaddr sa;
        struct sockaddr_in in;
        struct sockaddr_in6 in6;
    } from;
};

struct strangers {
    struct strangers_opts opts;
    struct stranger_table *table;
    struct list silent;     /* oldest first */
    struct ev_timer *timer; /* fires when the oldest silent stranger's time is up */
    uint64_t logged_ns;
    uint64_t n_unlogged;
};

int strangers_new(const struct strangers_opts *opts, struct strangers **out)
{
    const struct stranger_bounds bounds = {opts->max, opts->max_per_address, MAX_KNOWN};
    struct strangers *strangers = calloc(1, sizeof(*strangers));
    int rc;

    if (strangers == NULL)
        return E_NOMEM;
    strangers->opts = *opts;
    list_init(&strangers->silent);
    rc = stranger_table_new(&bounds, &strangers->table);
    if (rc == 0)
        *out = strangers;
    else
        free(strangers);
    return rc;
}

/* Frees the stranger but not its socket: the socket has another owner or is closed. */
static void stranger_free(struct stranger *stranger)
{
    stranger_table_remove(stranger->port->table, &stranger->entry);
    list_remove(&stranger->silent);
    ev_fd_free(stranger->watch);
    free(stranger);
}

static void stranger_close(struct stranger *stranger)
{
    int fd = stranger->fd;

    stranger_free(stranger);
    close(fd);
}

void strangers_close_silent(struct strangers *strangers)
{
    list_for_each_safe (node, spare, &strangers->silent)
        stranger_close(container_of(node, struct stranger, silent));
}

void strangers_free(struct strangers *strangers)
{
    if (strangers == NULL)
        return;
    strangers_close_silent(strangers);
    ev_timer_free(strangers->timer);
    stranger_table_free(strangers->table);
    free(strangers);
}

/* ---- ends ---- */

static void strangers_note(struct strangers *strangers, enum stranger_end why)
{
    uint64_t now_ns = clock_now_ns();

    if (strangers->opts.on_end != NULL)
        strangers->opts.on_end(strangers->opts.arg, why);
    strangers->n_unlogged++;
    if (strangers->logged_ns != 0 && now_ns - strangers->logged_ns < LOG_PAUSE_NS)
        return;
    log_warn("strangers_evicted", LOG_STR("port", strangers->opts.port),
             LOG_STR("reason", stranger_end_names[why]), LOG_U64("evicted", strangers->n_unlogged),
             LOG_U64("left", stranger_table_count(strangers->table)));
    strangers->logged_ns = now_ns;
    strangers->n_unlogged = 0;
}

static void stranger_send_away(struct stranger *stranger, enum stranger_end why)
{
    void (*evict)(void *owner) = stranger->evict;
    void *owner = stranger->owner;

    strangers_note(stranger->port, why);
    if (stranger->state != STRANGER_BEGUN) {
        stranger_close(stranger);
        return;
    }
    stranger_free(stranger);
    if (evict != NULL)
        evict(owner);
}

static void strangers_on_time(void *arg)
{
    struct strangers *strangers = arg;
    uint64_t now_ns = clock_now_ns();
    unsigned n = 0;

    while (!list_is_empty(&strangers->silent)) {
        struct stranger *stranger = container_of(strangers->silent.next, struct stranger, silent);
        uint64_t at_ns = stranger->since_ns + strangers->opts.begin_ns;

        if (at_ns > now_ns || ++n > CLOSED_PER_TURN) {
            ev_timer_start(strangers->timer, at_ns > now_ns ? at_ns - now_ns : 0);
            return;
        }
        stranger_send_away(stranger, STRANGER_END_SILENT);
    }
}

/* ---- coming ---- */

static void stranger_begin(struct stranger *stranger)
{
    struct strangers *strangers = stranger->port;

    ev_fd_free(stranger->watch);
    stranger->watch = NULL;
    list_remove(&stranger->silent);
    stranger->state = STRANGER_BEGUN;
    stranger_table_begin(strangers->table, &stranger->entry);
    strangers->opts.on_begun(strangers->opts.arg, stranger->fd, &stranger->from.sa, stranger);
}

/* Its peer has sent bytes, but not enough. */
static void stranger_make_ready(struct stranger *stranger)
{
    stranger->state = STRANGER_READY;
    stranger_table_begin(stranger->port->table, &stranger->entry);
}

/* Lets the kernel report the socket when so many bytes have come. False: its peer sends no more, or the kernel
 * cannot. */
static bool stranger_want(struct stranger *stranger, size_t bytes)
{
    int low = (int)bytes;

    if (stranger->wanted_bytes == bytes)
        return false; /* reported without them: the peer has closed */
    stranger->wanted_bytes = bytes;
    stranger_make_ready(stranger);
    return setsockopt(stranger->fd, SOL_SOCKET, SO_RCVLOWAT, &low, sizeof(low)) == 0;
}

static void stranger_on_readable(void *arg, int fd, unsigned ready)
{
    struct stranger *stranger = arg;
    uint8_t first[HELLO_MAX_BYTES];
    bool awaits_hello = stranger->port->opts.awaits_hello;
    ssize_t n = recv(fd, first, awaits_hello ? sizeof(first) : 1, MSG_PEEK | MSG_DONTWAIT);
    size_t wanted = awaits_hello && n > 0 ? hello_bytes(first, (size_t)n) : 0;
    int one = 1;

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        stranger_close(stranger);
    } else if (wanted > (size_t)n) {
        if (!stranger_want(stranger, wanted))
            stranger_close(stranger);
    } else {
        if (stranger->wanted_bytes > 0)
            (void)setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &one, sizeof(one));
        stranger_begin(stranger);
    }
}

static int stranger_wait(struct stranger *stranger)
{
    struct strangers *strangers = stranger->port;
    int rc = 0;

    if (strangers->timer == NULL)
        rc = ev_timer_new(strangers->opts.loop, strangers_on_time, strangers, &strangers->timer);
    if (rc == 0)
        rc = ev_fd_new(strangers->opts.loop, stranger->fd, stranger_on_readable, stranger, &stranger->watch);
    if (rc < 0)
        return rc;
    if (list_is_empty(&strangers->silent))
        ev_timer_start(strangers->timer, strangers->opts.begin_ns);
    list_push_back(&strangers->silent, &stranger->silent);
    return 0;
}

static struct stranger_key read_key(int fd, const struct sockaddr *from)
{
    struct ucred peer;
    socklen_t len = sizeof(peer);

    if (from->sa_family == AF_UNIX && getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) == 0)
        return stranger_key_of_user(peer.uid);
    return stranger_key_of(from);
}

/* True if a silent stranger that was about to be evicted has sent bytes meanwhile.  It then changes its class. */
static bool stranger_is_ready(struct stranger *stranger)
{
    char byte;

    if (stranger->state != STRANGER_SILENT || recv(stranger->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) <= 0)
        return false;
    stranger_make_ready(stranger);
    return true;
}

/* Returns false when there is none. */
static bool make_way(struct strangers *strangers, const struct stranger_key *key)
{
    struct stranger_entry *leaving = NULL;
    enum stranger_verdict verdict = stranger_table_ask(strangers->table, key, &leaving);

    for (unsigned n = 0; leaving != NULL && n < PEEKS; n++) {
        if (!stranger_is_ready(container_of(leaving, struct stranger, entry)))
            break;
        verdict = stranger_table_ask(strangers->table, key, &leaving);
    }

    switch (verdict) {
    case STRANGER_HAS_ROOM:
        return true;
    case STRANGER_OVER_PER_ADDRESS:
    case STRANGER_OVER_MAX:
        stranger_send_away(container_of(leaving, struct stranger, entry),
                           verdict == STRANGER_OVER_MAX ? STRANGER_END_FULL : STRANGER_END_ADDRESS);
        return true;
    case STRANGER_NO_ROOM:
        break;
    }
    strangers_note(strangers, STRANGER_END_FULL);
    return false;
}

void strangers_take(struct strangers *strangers, int fd, const struct sockaddr *from)
{
    struct stranger_key key = read_key(fd, from);
    struct stranger *stranger = make_way(strangers, &key) ? calloc(1, sizeof(*stranger)) : NULL;

    if (stranger == NULL || stranger_table_add(strangers->table, &key, &stranger->entry) < 0) {
        free(stranger);
        close(fd);
        return;
    }
    list_init(&stranger->silent);
    stranger->port = strangers;
    stranger->fd = fd;
    stranger->since_ns = clock_now_ns();
    stranger->from.sa.sa_family = from->sa_family;
    if (from->sa_family == AF_INET)
        memcpy(&stranger->from.in, from, sizeof(stranger->from.in));
    else if (from->sa_family == AF_INET6)
        memcpy(&stranger->from.in6, from, sizeof(stranger->from.in6));
    if (strangers->opts.begin_ns == 0)
        stranger_begin(stranger);
    else if (stranger_wait(stranger) < 0)
        stranger_close(stranger);
}

void strangers_know(struct strangers *strangers, const struct sockaddr *from)
{
    struct stranger_key key = stranger_key_of(from);

    stranger_table_know(strangers->table, &key);
}

bool strangers_make_room(struct strangers *strangers, const struct sockaddr *from)
{
    struct stranger_key key = from != NULL ? stranger_key_of(from) : (struct stranger_key){{0}};
    struct stranger_entry *oldest =
        stranger_table_oldest(strangers->table, STRANGER_CLASS_BEGUN, from != NULL ? &key : NULL);

    /* Skip strangers that are not bound: READY ones, and the one that needs the room. */
    while (oldest != NULL && container_of(oldest, struct stranger, entry)->evict == NULL)
        oldest = stranger_table_next(strangers->table, oldest, from != NULL);
    if (oldest == NULL)
        return false;
    stranger_send_away(container_of(oldest, struct stranger, entry),
                       from != NULL ? STRANGER_END_ADDRESS : STRANGER_END_FULL);
    return true;
}

uint32_t strangers_count(const struct strangers *strangers)
{
    return stranger_table_count(strangers->table);
}

/* ---- calls by its owner ---- */

void stranger_bind(struct stranger *stranger, void (*evict)(void *owner), void *owner)
{
    if (stranger == NULL)
        return;
    stranger->evict = evict;
    stranger->owner = owner;
}

void stranger_prove(struct stranger *stranger)
{
    struct stranger_key key;

    if (stranger == NULL)
        return;
    key = stranger_entry_key(&stranger->entry);
    stranger_table_know(stranger->port->table, &key);
    stranger_free(stranger);
}

void stranger_leave(struct stranger *stranger)
{
    if (stranger != NULL)
        stranger_free(stranger);
}
