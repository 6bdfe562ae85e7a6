/* SPDX-License-Identifier: Apache-2.0 */
/* The life of a link.
 *
 *     dialled                                            accepted
 *     WAITING --back-off--> (RESOLVING) --> CONNECTING <--------- socket
 *        ^                                      | TLS through, HELLO sent
 *        |                                   GREETING
 *        |                                      | their HELLO accepted, HEARTBEAT sent
 *        |                                   GREETED
 *        |                                      | their HEARTBEAT: ours was accepted too
 *        |                                     UP ----- three heartbeats missed,
 *        |         we refuse, goodbye           |       closed, queue full, owner's wish
 *        |  LEAVING <---------------------------+                 |
 *        |     | refusal sent, or 1 s           |<----------------+
 *        +-----+--------------------------------+---> ENDED (accepted: on_down, freed)
 *
 * Only link_set_state() changes the state. One timer serves the states: the back-off in WAITING, the
 * deadline of the whole handshake from RESOLVING to GREETED, one second for the last frame in LEAVING. In
 * UP it brings the link down after an overflow, so that this happens from the loop and not inside
 * link_send().
 *
 * The owner may close a link inside any of its events. Callbacks run between link_enter() and
 * link_leave(). A close in between ends the connection at once; the outermost link_leave() frees the
 * memory. */
#include "net/link/link_priv.h"

#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent_ssl.h>
#include <openssl/err.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/str.h"
#include "base/event/work.h"

#define MISSED_IS_DEAD 3
#define LAST_WORDS_NS  NS_PER_S
#define STEADY_NS      NS_PER_S /* after this time in UP, the next failure starts the back-off afresh */

static const char *const state_names[] = {"waiting", "resolving", "connecting", "greeting",
                                          "greeted", "up",        "leaving",    "ended"};
CHECK_ROWS(state_names, LINK_ENDED + 1);

void link_set_state(struct link *link, enum link_state state)
{
    log_debug("link_state", LOG_STR("peer", link->address), LOG_STR("from", state_names[link->state]),
              LOG_STR("to", state_names[state]));
    link->state = state;
}

/* ---- memory ---- */

static void drop_connection(struct link *link)
{
    stranger_leave(link->stranger);
    link->stranger = NULL;
    ev_timer_stop(link->timer);
    ev_timer_stop(link->beat);
    link_stop_resolving(link);
    if (link->bev != NULL)
        bufferevent_free(link->bev);
    link->bev = NULL;
    link->peer_sent_ns = 0;
    link->n_missed = 0;
    link->has_received = false;
}

static void link_destroy(struct link *link)
{
    ev_timer_free(link->timer);
    ev_timer_free(link->beat);
    buf_fini(&link->scratch);
    free(link);
}

void link_enter(struct link *link)
{
    link->depth++;
}

void link_leave(struct link *link)
{
    ASSERT(link->depth > 0);
    if (--link->depth == 0 && link->is_closed)
        link_destroy(link);
}

void link_close(struct link *link)
{
    if (link == NULL || link->is_closed)
        return;
    link_enter(link);
    drop_connection(link);
    link->is_closed = true;
    link_leave(link);
}

/* ---- ends ---- */

static uint64_t back_off_ns(struct link *link)
{
    unsigned doublings = link->n_attempts < 16 ? link->n_attempts : 16;
    uint64_t delay_ns = link->opts.retry_min_ns << doublings;

    if (delay_ns > link->opts.retry_max_ns)
        delay_ns = link->opts.retry_max_ns;
    return delay_ns / 2 + rng_below(&link->rng, delay_ns / 2 + 1);
}

static void log_end(const struct link *link, const struct fault *why, bool was_up)
{
    /* Log a peer that is away for hours once, not every five seconds. */
    if (was_up || strcmp(link->why.text, why->text) != 0)
        log_warn(was_up ? "link_down" : "link_failed", LOG_STR("peer", link->address),
                 LOG_STR("error", err_name(why->code)), LOG_STR("reason", why->text));
}

void link_fail(struct link *link, const struct fault *why)
{
    bool was_up = link->state == LINK_UP;
    bool reports = !link->is_silent && (!link->is_dialled || link->up_since_ns != 0);

    if (link->state == LINK_ENDED || link->is_closed)
        return;
    link_enter(link);
    log_end(link, why, was_up);
    link->why = *why;
    drop_connection(link);
    if (!link->is_dialled || link->is_silent) {
        link_set_state(link, LINK_ENDED);
    } else {
        link_set_state(link, LINK_WAITING);
        if (link->up_since_ns != 0 && clock_now_ns() - link->up_since_ns > STEADY_NS)
            link->n_attempts = 0;
        ev_timer_start(link->timer, back_off_ns(link));
        link->n_attempts++;
    }
    link->up_since_ns = 0;
    if (reports && link->opts.events->on_down != NULL)
        link->opts.events->on_down(link->opts.events_arg, link, &link->why);
    if (link->state == LINK_ENDED)
        link->is_closed = true;
    link_leave(link);
}

void link_part(struct link *link, enum frame_type type, const ProtobufCMessage *last, const struct fault *why)
{
    link->why = *why;
    if (why->code != E_AGAIN) /* no fault: the peer has another link */
        log_warn("link_refused", LOG_STR("peer", link->address), LOG_STR("reason", why->text));
    ev_timer_stop(link->beat);
    if (link_put(link, type, last) != 0) {
        link_fail(link, why);
        return;
    }
    link_set_state(link, LINK_LEAVING);
    ev_timer_start(link->timer, LAST_WORDS_NS);
}

void link_goodbye(struct link *link, const char *text)
{
    Baton__Goodbye goodbye = BATON__GOODBYE__INIT;

    if (link == NULL || link->is_closed)
        return;
    link->is_silent = true;
    if (link->state == LINK_LEAVING)
        return;
    goodbye.text = (char *)(uintptr_t)text;
    if ((link->state != LINK_UP && link->state != LINK_GREETED) ||
        link_put(link, FRAME_GOODBYE, &goodbye.base) != 0) {
        link_close(link);
        return;
    }
    ev_timer_stop(link->beat);
    fault_set(&link->why, E_CLOSED, "%s", text);
    link_set_state(link, LINK_LEAVING);
    ev_timer_start(link->timer, LAST_WORDS_NS);
}

/* ---- timers ---- */

static void link_on_timer(void *arg)
{
    struct link *link = arg;
    struct fault fault;

    link_enter(link);
    switch (link->state) {
    case LINK_WAITING:
        ev_timer_start(link->timer, link->opts.handshake_ns);
        link_start_dialling(link);
        break;
    case LINK_RESOLVING:
    case LINK_CONNECTING:
    case LINK_GREETING:
    case LINK_GREETED:
        fault_set(&fault, E_TIMEOUT, "%s: no link within %llu ms (%s)", link->address,
                  (unsigned long long)(link->opts.handshake_ns / NS_PER_MS), state_names[link->state]);
        link_fail(link, &fault);
        break;
    case LINK_UP:
        fault_set(&fault, E_FULL, "%s: does not read; over %zu bytes are queued", link->address,
                  link->opts.max_queue_bytes);
        link_fail(link, &fault);
        break;
    case LINK_LEAVING:
        fault = link->why;
        link_fail(link, &fault);
        break;
    case LINK_ENDED:
        break;
    }
    link_leave(link);
}

/* Runs once per heartbeat period. It counts silent periods instead of reading the clock, so a pause of
 * this process does no harm: after a pause the timer runs once, and the peer's bytes are read before it
 * runs again. */
static void on_beat(void *arg)
{
    struct link *link = arg;
    struct fault fault;

    link_enter(link);
    if (link_keys_are_gone(link)) {
        fault_set(&fault, E_AUTH, "%s: has none of the cluster keys that are accepted now", link->address);
        link_fail(link, &fault);
        link_leave(link);
        return;
    }
    link->n_missed = link->has_received ? 0 : link->n_missed + 1;
    link->has_received = false;
    if (link->n_missed >= MISSED_IS_DEAD) {
        fault_set(&fault, E_TIMEOUT, "%s: %u heartbeats missed", link->address, link->n_missed);
        link_fail(link, &fault);
    } else {
        link_send_heartbeat(link);
    }
    link_leave(link);
}

void link_beat(struct link *link)
{
    if (link_is_up(link))
        link_send_heartbeat(link);
}

/* ---- the connection ---- */

/* TLS is done. The handshake succeeds only if the peer has the cluster key. */
void link_connected(struct link *link)
{
    stranger_prove(link->stranger);
    link->stranger = NULL;
    link_keys_begin(link);
    link_set_state(link, LINK_GREETING);
    if (link_put(link, FRAME_HELLO, link->opts.make_hello(link->opts.events_arg)) != 0) {
        struct fault fault;

        fault_set(&fault, E_INTERNAL, "%s: cannot send HELLO", link->address);
        link_fail(link, &fault);
    }
}

void link_went_up(struct link *link)
{
    ev_timer_stop(link->timer);
    link_set_state(link, LINK_UP);
    link->up_since_ns = clock_now_ns();
    link->why = (struct fault){0};
    link->peer_has_ended = false;
    log_info("link_up", LOG_STR("peer", link->address));
    if (link->opts.events->on_up != NULL)
        link->opts.events->on_up(link->opts.events_arg, link);
}

static void link_on_readable(struct bufferevent *bev, void *arg)
{
    struct link *link = arg;

    ev_work_begin("link read");
    link_enter(link);
    link_read_frames(link);
    link_leave(link);
    ev_work_end();
}

/* The kernel has all queued output. The peer reads our last frame up to the end of stream and closes; only
 * then does this side close. An earlier close with unread input would reset the connection and lose the
 * frame. */
static void on_flushed(struct bufferevent *bev, void *arg)
{
    struct link *link = arg;

    if (link->state == LINK_LEAVING && evbuffer_get_length(bufferevent_get_output(bev)) == 0)
        shutdown(bufferevent_getfd(bev), SHUT_WR);
}

static void link_explain(struct link *link, short what, struct fault *out)
{
    unsigned long tls_error = link->opts.is_plaintext ? 0 : bufferevent_get_openssl_error(link->bev);
    /* If a connection fails below TLS, libevent reports SSL_ERROR_SYSCALL here, which is not an error of
     * the library. It reports a refused connection as an end of stream. */
    bool is_tls = ERR_GET_LIB(tls_error) != 0 && !ERR_SYSTEM_ERROR(tls_error);
    /* With TLS 1.3 a server's refusal of a certificate reaches the client after its own handshake. */
    bool is_shaking = link->state == LINK_CONNECTING || link->state == LINK_GREETING;
    int socket_error = EVUTIL_SOCKET_ERROR();

    if (is_tls)
        fault_set(out, is_shaking ? E_AUTH : E_IO, "%s: TLS: %s%s%s%s", link->address,
                  ERR_reason_error_string(tls_error) != NULL ? ERR_reason_error_string(tls_error) : "failed",
                  is_shaking ? " (" : "",
                  is_shaking ? tls_hint(link->opts.tls, bufferevent_openssl_get_ssl(link->bev)) : "",
                  is_shaking ? ")" : "");
    else if (socket_error != 0 && socket_error != EAGAIN &&
             ((what & BEV_EVENT_ERROR) != 0 || link->state == LINK_CONNECTING))
        fault_set(out, E_IO, "%s: %s", link->address, strerror(socket_error));
    else if (link->state == LINK_UP)
        fault_set(out, E_CLOSED, "%s: closed by the peer", link->address);
    else
        fault_set(out, E_CLOSED, "%s: closed by the peer (%s)", link->address, state_names[link->state]);
    ERR_clear_error();
}

bool link_end_is_peers(const struct link_end *end)
{
    bool is_end = (end->what & BEV_EVENT_EOF) != 0 && (!end->is_tls || end->has_tls_end);

    return is_end || end->socket_error == ECONNRESET || end->socket_error == EPIPE;
}

/* The peer's system closed a connection that was up. */
static bool link_sees_end(const struct link *link, short what, int socket_error)
{
    struct link_end end = {.what = what, .socket_error = socket_error, .is_tls = !link->opts.is_plaintext};

    if (link->state != LINK_UP)
        return false;
    if (end.is_tls)
        end.has_tls_end =
            (SSL_get_shutdown(bufferevent_openssl_get_ssl(link->bev)) & SSL_RECEIVED_SHUTDOWN) != 0;
    return link_end_is_peers(&end);
}

static void link_on_event(struct bufferevent *bev, short what, void *arg)
{
    struct link *link = arg;
    struct fault fault;
    int socket_error = EVUTIL_SOCKET_ERROR();

    ev_work_begin("link event");
    link_enter(link);
    if ((what & BEV_EVENT_CONNECTED) != 0) {
        link_connected(link);
    } else if ((what & (BEV_EVENT_EOF | BEV_EVENT_ERROR)) != 0) {
        link->peer_has_ended = link_sees_end(link, what, socket_error);
        if (link->state == LINK_LEAVING)
            fault = link->why;
        else
            link_explain(link, what, &fault);
        link_fail(link, &fault);
    }
    link_leave(link);
    ev_work_end();
}

void link_set_callbacks(struct link *link)
{
    bufferevent_setcb(link->bev, link_on_readable, on_flushed, link_on_event, link);
    bufferevent_enable(link->bev, EV_READ | EV_WRITE);
}

/* ---- construction ---- */

static int new_link(const struct link_opts *opts, struct link **out)
{
    struct link *link;
    uint64_t seed;
    int err;

    if ((opts->tls == NULL) != opts->is_plaintext || opts->make_hello == NULL || opts->events == NULL)
        return E_INVAL;
    link = calloc(1, sizeof(*link));
    if (link == NULL)
        return E_NOMEM;
    link->opts = *opts;
    if (opts->heartbeat_ns == 0)
        link->opts.heartbeat_ns = NS_PER_S;
    if (opts->handshake_ns == 0)
        link->opts.handshake_ns = 5 * NS_PER_S;
    if (opts->retry_min_ns == 0)
        link->opts.retry_min_ns = 100 * NS_PER_MS;
    if (opts->retry_max_ns == 0)
        link->opts.retry_max_ns = 5 * NS_PER_S;
    if (opts->max_queue_bytes == 0)
        link->opts.max_queue_bytes = (size_t)64 << 20;
    rng_system(&seed, sizeof(seed)); /* daemons that restart together must not dial in step */
    rng_init(&link->rng, seed);
    err = ev_timer_new(opts->loop, link_on_timer, link, &link->timer);
    if (err == 0)
        err = ev_timer_new(opts->loop, on_beat, link, &link->beat);
    if (err != 0) {
        link_destroy(link);
        return err;
    }
    *out = link;
    return 0;
}

int link_dial(const struct link_opts *opts, const char *address, struct fault *fault, struct link **out)
{
    struct addr addr;
    struct link *link;
    int err = addr_parse(address, fault, &addr);

    if (err != 0)
        return err;
    if (addr.port == 0 || strcmp(addr.host, "*") == 0)
        return fault_set(fault, E_FORMAT, "'%s': cannot be dialled", address);
    err = new_link(opts, &link);
    if (err != 0)
        return fault_set(fault, err, "%s: %s", address, err_text(err));
    link->is_dialled = true;
    link->addr = addr;
    str_copy(link->address, sizeof(link->address), address);
    link->state = LINK_WAITING;
    ev_timer_start(link->timer, 0);
    *out = link;
    return 0;
}

static void on_evicted(void *owner)
{
    struct link *link = owner;
    struct fault fault;

    link->stranger = NULL;
    fault_set(&fault, E_LIMIT, "%s: evicted: too many connections that have not authenticated",
              link->address);
    link_fail(link, &fault);
}

int link_accept(const struct link_opts *opts, int fd, struct link **out)
{
    struct sockaddr_storage sa = {0};
    socklen_t sa_bytes = sizeof(sa);
    struct link *link = NULL;
    int err = new_link(opts, &link);

    if (err == 0) {
        link->state = LINK_CONNECTING;
        if (getpeername(fd, (struct sockaddr *)&sa, &sa_bytes) == 0)
            addr_format((struct sockaddr *)&sa, link->address);
        evutil_make_socket_nonblocking(fd);
        link_tune_socket(link, fd);
        err = link_make_bufferevent(link, fd, true);
    }
    if (err != 0) {
        close(fd);
        stranger_leave(opts->stranger);
        if (link != NULL)
            link_destroy(link);
        return err;
    }
    link->stranger = opts->stranger;
    stranger_bind(link->stranger, on_evicted, link);
    link_set_callbacks(link);
    ev_timer_start(link->timer, link->opts.handshake_ns);
    if (link->opts.is_plaintext) /* libevent sends no "connected" event for an accepted socket */
        bufferevent_trigger_event(link->bev, BEV_EVENT_CONNECTED, BEV_OPT_DEFER_CALLBACKS);
    *out = link;
    return 0;
}

/* ---- state and sending ---- */

bool link_is_up(const struct link *link)
{
    return link->state == LINK_UP;
}

int link_send(struct link *link, enum frame_type type, const ProtobufCMessage *message)
{
    int err;

    if (link->state != LINK_UP || link->is_closed)
        return E_CLOSED;
    err = link_put(link, type, message);
    if (err == E_FULL)
        ev_timer_start(link->timer, 0);
    return err;
}

size_t link_queued_bytes(const struct link *link)
{
    return link->bev != NULL ? evbuffer_get_length(bufferevent_get_output(link->bev)) : 0;
}

const char *link_peer_address(const struct link *link)
{
    return link->address;
}

uint64_t link_rtt_ns(const struct link *link)
{
    return (uint64_t)(rate_level(&link->rtt_s) * (double)NS_PER_S);
}

const struct fault *link_why_down(const struct link *link)
{
    return &link->why;
}

bool link_peer_has_ended(const struct link *link)
{
    return link->peer_has_ended;
}

void link_set_user(struct link *link, void *user)
{
    link->user = user;
}

void *link_user(const struct link *link)
{
    return link->user;
}
