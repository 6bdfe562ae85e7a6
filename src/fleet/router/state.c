/* SPDX-License-Identifier: Apache-2.0 */
/* What this router shares with others through a store (net/state), and what it hears there.  Without a store workers
 * relay the messages (relay.c), except for spending, which has a message of its own (spending.c).
 *
 *     spending.c ──SPENDING──┐                                    ┌──> spending.c, as one more view
 *     wrong API keys ────────┼──> one message, each tick ──> store ──> failed logins of the endpoint
 *     deleted responses ─────┤                                    ├──> kept responses of the endpoint
 *     cancelled responses ───┤                                    ├──> streams of the endpoint (cancels.c)
 *     service of tenants ────┤                                    ├──> turns (served.c)
 *     margins ───────────────┘                                    └──> margins of predictions (margins.c)
 *
 * The messages of the last two minutes are read at the start, and after the store was away.  Of these, the last row
 * of each router and account is kept until the reading is over, and handled then, as a worker's snapshot would be.
 *
 * A router that sent nothing for three seconds is silent: unless workers report that it ended, it may live where the
 * store is away, and keeps its share of the limits (serve/access/common_reports.c). */
#include "fleet/router/state_priv.h"

#include <inttypes.h>
#include <openssl/crypto.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/file.h"
#include "base/log.h"
#include "base/str.h"
#include "fleet/router/cancels_priv.h"
#include "fleet/router/margins_priv.h"
#include "fleet/router/router_message_priv.h"
#include "fleet/router/relay_priv.h"
#include "fleet/router/served_priv.h"
#include "fleet/router/spending_priv.h"
#include "fleet/router/state_history_priv.h"
#include "net/link/tls.h"
#include "serve/access/common_limits.h"
#include "serve/access/failed_logins.h"
#include "serve/endpoint/front.h"
#include "serve/endpoint/front_shared.h"

#define STATE_SILENT_NS   (3 * NS_PER_S)
#define STATE_MAX_ROUTERS (2 * COMMON_MAX_ROUTERS)
#define STATE_LOGIN_BYTES 512

struct state_router { /* another router, as the store shows it */
    uint64_t epoch;   /* 0: free */
    char node[ROUTER_MESSAGE_NODE_BYTES];
    uint64_t received_ns;
    bool is_silent;
};

struct router_state {
    struct state *store; /* NULL: workers relay */
    struct front *front; /* NULL: not yet, or no more */
    uint8_t login_salt[32];
    struct state_router routers[STATE_MAX_ROUTERS];
    struct state_history *history; /* while old messages are read */
    struct buf message;
    struct buf forgets; /* sections that wait until the store is back */
    bool has_message;   /* of this tick */
    struct picker_served served;
    struct picker_service service; /* of tenants at all routers, lately */
    struct state_counts counted;   /* counts at the last update of the metrics */
    struct metric *m_up, *m_trips, *m_damaged, *m_putting, *m_out, *m_in;
    struct metric *m_found, *m_missed, *m_late, *m_put, *m_put_failed, *m_dropped;
};

/* ---- received messages ---- */

/* A router with the name of an earlier one replaces it. */
static void state_router_over(struct router *router, struct state_router *other)
{
    router_spending_silent(router, other->epoch, true);
    *other = (struct state_router){0};
}

static struct state_router *state_router_of(struct router *router, uint64_t epoch, const char *node)
{
    struct router_state *shared = router->shared;
    struct state_router *oldest = &shared->routers[0];

    for (unsigned i = 0; i < STATE_MAX_ROUTERS; i++) {
        struct state_router *other = &shared->routers[i];

        if (other->epoch == epoch)
            return other;
        if (other->epoch != 0 && strcmp(other->node, node) == 0)
            state_router_over(router, other);
        if (other->received_ns < oldest->received_ns)
            oldest = other;
    }
    if (oldest->epoch != 0)
        state_router_over(router, oldest);
    *oldest = (struct state_router){.epoch = epoch};
    str_copy(oldest->node, sizeof(oldest->node), node);
    return oldest;
}

void router_state_note(struct router *router, uint64_t epoch, const char *node, uint64_t received_ns)
{
    struct state_router *other;

    if (router->shared == NULL)
        return;
    other = state_router_of(router, epoch, node);
    other->received_ns = received_ns;
    other->is_silent = false;
}

static void state_receive_spending(struct router *router, const struct router_message *received,
                                   struct bytes section, const uint64_t *old_age_ms)
{
    ProtobufCMessage *message;
    Baton__Spending *spending;
    char *node;

    if (frame_unpack(FRAME_SPENDING, section, NULL, &message) < 0)
        return;
    spending = (Baton__Spending *)message;
    spending->router = received->epoch;
    spending->is_gone = spending->is_snapshot = false;
    node = spending->node;
    spending->node = (char *)(uintptr_t)received->node;
    if (old_age_ms != NULL)
        state_history_keep(router->shared->history, spending, *old_age_ms);
    else
        router_spending_receive_store(router, spending);
    spending->node = node;
    frame_message_free(message);
}

static void state_receive_logins(struct router *router, struct bytes section, uint64_t age_ms)
{
    struct failed_logins *logins =
        router->shared->front != NULL ? front_failed_logins(router->shared->front) : NULL;
    struct failed_login login;

    for (size_t i = 0; logins != NULL && i + ROUTER_MESSAGE_LOGIN_BYTES <= section.len_bytes &&
                       i < FAILED_LOGINS_UNSENT * ROUTER_MESSAGE_LOGIN_BYTES;
         i += ROUTER_MESSAGE_LOGIN_BYTES) {
        memcpy(login.address, section.data + i, sizeof(login.address));
        login.key_hash = get_u64(section.data + i + sizeof(login.address));
        failed_logins_receive(logins, &login, age_ms * NS_PER_MS, clock_now_ns());
    }
}

static void state_receive_forget(struct router *router, struct bytes section)
{
    const uint8_t *end = section.len_bytes > 0 ? memchr(section.data, '\0', section.len_bytes) : NULL;
    size_t n = end == NULL ? 0 : (size_t)(end - section.data);

    if (end != NULL && router->shared->front != NULL)
        front_forget_response(router->shared->front, (const char *)section.data,
                              bytes_of(end + 1, section.len_bytes - n - 1));
}

void router_state_receive(struct router *router, const struct router_message *received)
{
    struct bytes sections = received->sections, section;
    unsigned kind;

    while (router->shared != NULL && router_message_next(&sections, &kind, &section)) {
        if (kind == ROUTER_MESSAGE_LOGINS)
            state_receive_logins(router, section, 0);
        else if (kind == ROUTER_MESSAGE_SERVED)
            served_receive(router, &router->shared->service, section);
        else if (kind == ROUTER_MESSAGE_MARGINS)
            margins_receive(router, section);
        else if (kind == ROUTER_MESSAGE_MOVES)
            margins_receive_moves(router, section);
        else if (kind == ROUTER_MESSAGE_FORGET)
            state_receive_forget(router, section);
        else if (kind == ROUTER_MESSAGE_CANCEL)
            router_cancels_receive(router, received->epoch, section);
        else if (kind == ROUTER_MESSAGE_CANCELLED)
            router_cancels_receive_end(router, section);
    }
}

static void state_receive_end_of_old(struct router *router)
{
    state_history_replay(router->shared->history, router);
    state_history_free(router->shared->history);
    router->shared->history = NULL;
}

static void router_state_on_message(void *arg, struct bytes message, uint64_t age_ms, bool is_old)
{
    struct router *router = arg;
    struct bytes sections, section;
    struct router_message received;
    unsigned kind;

    if (message.len_bytes == 0) {
        state_receive_end_of_old(router);
        return;
    }
    if (router_message_parse(message, &received) < 0 || received.epoch == router->epoch)
        return;
    if (!is_old)
        router_state_note(router, received.epoch, received.node, clock_now_ns());
    sections = received.sections;
    while (router_message_next(&sections, &kind, &section)) {
        if (kind == ROUTER_MESSAGE_SPENDING)
            state_receive_spending(router, &received, section, is_old ? &age_ms : NULL);
        else if (kind == ROUTER_MESSAGE_LOGINS)
            state_receive_logins(router, section, age_ms);
        else if (kind == ROUTER_MESSAGE_SERVED && !is_old)
            served_receive(router, &router->shared->service, section);
        else if (kind == ROUTER_MESSAGE_MARGINS && !is_old)
            margins_receive(router, section);
        else if (kind == ROUTER_MESSAGE_MOVES && !is_old)
            margins_receive_moves(router, section);
        else if (kind == ROUTER_MESSAGE_FORGET)
            state_receive_forget(router, section);
        else if (kind == ROUTER_MESSAGE_CANCEL && !is_old)
            router_cancels_receive(router, received.epoch, section);
        else if (kind == ROUTER_MESSAGE_CANCELLED && !is_old)
            router_cancels_receive_end(router, section);
        else if (kind == ROUTER_MESSAGE_GOODBYE && is_old)
            state_history_goodbye(router->shared->history, received.epoch);
        else if (kind == ROUTER_MESSAGE_GOODBYE)
            state_router_over(router, state_router_of(router, received.epoch, received.node));
    }
}

static void router_state_on_change(void *arg, bool is_up)
{
    struct router *router = arg;
    struct router_state *shared = router->shared;

    router_spending_store_up(router, is_up);
    state_history_free(shared->history);
    shared->history = NULL;
    memset(shared->routers, 0, sizeof(shared->routers));
    if (is_up && state_history_new(&shared->history) < 0)
        log_error("out_of_memory", LOG_STR("lost", "what other routers spent before"));
}

static void router_state_watch(struct router *router)
{
    uint64_t now_ns = clock_now_ns();

    for (unsigned i = 0; i < STATE_MAX_ROUTERS; i++) {
        struct state_router *other = &router->shared->routers[i];

        if (other->epoch == 0 || other->is_silent || now_ns < other->received_ns + STATE_SILENT_NS)
            continue;
        other->is_silent = true;
        router_spending_silent(router, other->epoch, false);
    }
}

/* ---- sent messages ---- */

/* True if there is a way to other routers now. */
static bool state_may_send(const struct router *router)
{
    const struct router_state *shared = router->shared;

    return shared != NULL &&
           (shared->store != NULL ? state_is_up(shared->store) : router_relay_has_others(router));
}

/* Sends the message of this tick, if there is one. */
static void state_message_send(struct router *router)
{
    struct router_state *shared = router->shared;

    if (shared->has_message && !shared->message.is_bad) {
        if (shared->store != NULL)
            (void)state_send(shared->store, buf_view(&shared->message));
        else
            router_relay_send(router, buf_view(&shared->message));
    }
    shared->has_message = false;
}

/* Begins a message, or goes on with the one of this tick while it has room. */
static void state_message_open(struct router *router)
{
    struct router_state *shared = router->shared;

    if (shared->has_message && shared->message.len_bytes > STATE_MAX_MESSAGE / 2)
        state_message_send(router);
    if (!shared->has_message)
        router_message_begin(&shared->message, router->epoch, router->conf->node);
    shared->has_message = true;
}

void router_state_send_spending(struct router *router, const Baton__Spending *spending)
{
    struct router_state *shared = router->shared;
    struct buf packed = {0};

    if (shared == NULL || !state_is_up(shared->store) ||
        buf_reserve(&packed, baton__spending__get_packed_size(spending) + 1) < 0)
        return;
    packed.len_bytes = baton__spending__pack(spending, packed.data);
    state_message_open(router);
    router_message_put(&shared->message, ROUTER_MESSAGE_SPENDING, buf_view(&packed));
    buf_fini(&packed);
}

static void state_send_forgets(struct router *router)
{
    struct router_state *shared = router->shared;

    if (shared->forgets.len_bytes == 0)
        return;
    state_message_open(router);
    if (!shared->forgets.is_bad)
        buf_append(&shared->message, shared->forgets.data, shared->forgets.len_bytes);
    buf_clear(&shared->forgets);
}

void router_state_send_forget(void *arg, const char *tenant, struct bytes id)
{
    struct router *router = arg;
    struct router_state *shared = router->shared;
    struct buf section = {0};

    if (shared == NULL)
        return;
    buf_append(&section, tenant, strlen(tenant) + 1);
    buf_append(&section, id.data, id.len_bytes);
    if (!section.is_bad && shared->forgets.len_bytes + section.len_bytes < STATE_MAX_MESSAGE / 4)
        router_message_put(&shared->forgets, ROUTER_MESSAGE_FORGET, buf_view(&section));
    if (state_may_send(router))
        state_send_forgets(router);
    else if (shared->store == NULL)
        buf_clear(&shared->forgets); /* no router is there that could have it */
    buf_fini(&section);
}

bool router_state_send(struct router *router, unsigned kind, struct bytes section)
{
    if (!state_may_send(router) || section.len_bytes > STATE_MAX_MESSAGE / 2 - ROUTER_MESSAGE_NODE_BYTES)
        return false;
    state_message_open(router);
    router_message_put(&router->shared->message, (enum router_message_kind)kind, section);
    state_message_send(router);
    return true;
}

static void state_send_logins(struct router *router)
{
    struct router_state *shared = router->shared;
    struct failed_login logins[FAILED_LOGINS_UNSENT];
    uint8_t section[FAILED_LOGINS_UNSENT * ROUTER_MESSAGE_LOGIN_BYTES];
    uint32_t n = shared->front == NULL
                     ? 0
                     : failed_logins_take(front_failed_logins(shared->front), logins, FAILED_LOGINS_UNSENT);

    if (n == 0)
        return;
    for (uint32_t i = 0; i < n; i++) {
        memcpy(section + i * ROUTER_MESSAGE_LOGIN_BYTES, logins[i].address, FAILED_LOGINS_ADDRESS);
        put_u64(section + i * ROUTER_MESSAGE_LOGIN_BYTES + FAILED_LOGINS_ADDRESS, logins[i].key_hash);
    }
    state_message_open(router);
    router_message_put(&shared->message, ROUTER_MESSAGE_LOGINS,
                       bytes_of(section, n * ROUTER_MESSAGE_LOGIN_BYTES));
}

void router_state_served(struct job *job, uint64_t n_tokens)
{
    struct router_state *shared = job->router->shared;

    if (!state_may_send(job->router))
        return;
    served_note(&shared->served, &shared->service, job, n_tokens);
}

struct picker_service_view router_state_service(const struct job *job)
{
    struct router_state *shared = job->router->shared;

    return shared != NULL ? served_view(&shared->service, job) : (struct picker_service_view){0};
}

static void state_send_served(struct router *router)
{
    struct buf section = {0};

    if (router->shared->served.n == 0)
        return;
    served_pack(&router->shared->served, &section);
    state_message_open(router);
    if (!section.is_bad)
        router_message_put(&router->shared->message, ROUTER_MESSAGE_SERVED, buf_view(&section));
    buf_fini(&section);
}

static void state_send_margins(struct router *router)
{
    struct buf margins = {0}, moves = {0};

    margins_pack(router, &margins, &moves);
    if (margins.len_bytes > 0 && !margins.is_bad && !moves.is_bad) {
        state_message_open(router);
        router_message_put(&router->shared->message, ROUTER_MESSAGE_MOVES, buf_view(&moves));
        router_message_put(&router->shared->message, ROUTER_MESSAGE_MARGINS, buf_view(&margins));
    }
    buf_fini(&margins);
    buf_fini(&moves);
}

static void state_put_counter(struct metric *metric, uint64_t now, uint64_t *counted)
{
    metric_add(metric, (double)(now - *counted));
    *counted = now;
}

static void router_state_report(struct router_state *shared)
{
    struct state_counts now, *counted = &shared->counted;

    state_counts(shared->store, &now);
    metric_set(shared->m_up, state_is_up(shared->store));
    metric_set(shared->m_putting, (double)now.putting_bytes);
    state_put_counter(shared->m_trips, now.n_trips, &counted->n_trips);
    state_put_counter(shared->m_damaged, now.n_damaged, &counted->n_damaged);
    state_put_counter(shared->m_out, now.n_sent, &counted->n_sent);
    state_put_counter(shared->m_in, now.n_received, &counted->n_received);
    state_put_counter(shared->m_found, now.n_found, &counted->n_found);
    state_put_counter(shared->m_missed, now.n_missed, &counted->n_missed);
    state_put_counter(shared->m_late, now.n_late, &counted->n_late);
    state_put_counter(shared->m_put, now.n_puts, &counted->n_puts);
    state_put_counter(shared->m_put_failed, now.n_put_failed, &counted->n_put_failed);
    state_put_counter(shared->m_dropped, now.n_dropped, &counted->n_dropped);
}

void router_state_tick(struct router *router)
{
    struct router_state *shared = router->shared;

    if (shared == NULL)
        return;
    if (state_may_send(router)) {
        state_send_logins(router);
        state_send_served(router);
        state_send_margins(router);
        state_send_forgets(router);
        state_message_send(router);
    } else {
        margins_skip(router);
    }
    shared->has_message = false;
    if (shared->store == NULL)
        return;
    if (state_is_up(shared->store))
        router_state_watch(router);
    state_tick(shared->store);
    router_state_report(shared);
}

/* ---- start and end ---- */

static void router_state_declare(struct router_state *shared, struct metrics *m)
{
    struct metric_family *asks =
        metric_family(m, METRIC_COUNTER, "baton_state_asks_total",
                      "Names that the shared store was asked for, by what became of it.", "result");
    struct metric_family *puts =
        metric_family(m, METRIC_COUNTER, "baton_state_puts_total",
                      "Values for the shared store, by what became of them.", "result");
    struct metric_family *messages =
        metric_family(m, METRIC_COUNTER, "baton_state_messages_total",
                      "Messages of routers through the shared store.", "direction");

    shared->m_up = metric_single(m, METRIC_GAUGE, "baton_state_up", "Whether the shared store is used now.");
    shared->m_trips = metric_single(m, METRIC_COUNTER, "baton_state_trips_total",
                                    "Times that the shared store was given up for a while.");
    shared->m_damaged = metric_single(m, METRIC_COUNTER, "baton_state_damaged_total",
                                      "Values and messages of the shared store that did not open.");
    shared->m_putting = metric_single(m, METRIC_GAUGE, "baton_state_writing_bytes",
                                      "Values that wait to be written to the shared store.");
    shared->m_found = metric_series(asks, (const char *const[]){"found"});
    shared->m_missed = metric_series(asks, (const char *const[]){"missed"});
    shared->m_late = metric_series(asks, (const char *const[]){"late"});
    shared->m_put = metric_series(puts, (const char *const[]){"sent"});
    shared->m_put_failed = metric_series(puts, (const char *const[]){"failed"});
    shared->m_dropped = metric_series(puts, (const char *const[]){"dropped"});
    shared->m_out = metric_series(messages, (const char *const[]){"out"});
    shared->m_in = metric_series(messages, (const char *const[]){"in"});
}

static int router_state_login(const struct router_conf *conf, struct fault *fault,
                              char out[STATE_LOGIN_BYTES])
{
    out[0] = '\0';
    return conf->state_login[0] == '\0' ? 0
                                        : file_read_login(conf->state_login, out, STATE_LOGIN_BYTES, fault);
}

void router_state_check(struct config_check *check, const struct router_conf *conf)
{
    char login[STATE_LOGIN_BYTES];
    struct fault fault = {0};

    if (conf->state_url[0] == '\0')
        return;
    if (router_state_login(conf, &fault, login) < 0)
        config_refuse(check, "state.login", "%s", fault.text);
    else if (state_url_check(conf->state_url, login, &fault) < 0)
        config_refuse(check, "state.url", "%s", fault.text);
    explicit_bzero(login, sizeof(login));
}

int router_state_open(struct router *router, const uint8_t cluster_key[32], struct fault *fault)
{
    const struct router_conf *conf = router->conf;
    char login[STATE_LOGIN_BYTES];
    struct state_opts opts = {.loop = router->loop,
                              .url = conf->state_url,
                              .login = login,
                              .ca_path = conf->state_ca,
                              .self = router->epoch,
                              .wait_ns = conf->state_wait_ns,
                              .on_message = router_state_on_message,
                              .on_change = router_state_on_change,
                              .arg = router};
    struct router_state *shared;
    int rc;

    shared = router->shared = calloc(1, sizeof(*shared));
    if (shared == NULL)
        return fault_set(fault, E_NOMEM, "out of memory");
    if (cluster_key_derive(cluster_key, "state", opts.key) < 0 ||
        cluster_key_derive(cluster_key, "state logins", shared->login_salt) < 0)
        return fault_set(fault, E_INTERNAL, "key derivation failed");
    if (conf->state_url[0] == '\0')
        return 0;
    router_state_declare(shared, router->metrics);
    rc = router_state_login(conf, fault, login);
    if (rc == 0)
        rc = state_open(&opts, fault, &shared->store);
    OPENSSL_cleanse(opts.key, sizeof(opts.key));
    explicit_bzero(login, sizeof(login));
    return rc < 0 ? fault_set(fault, rc, "state.url: %s", fault->text) : 0;
}

void router_state_close(struct router *router)
{
    struct router_state *shared = router->shared;

    if (shared == NULL)
        return;
    if (state_is_up(shared->store)) {
        router_message_begin(&shared->message, router->epoch, router->conf->node);
        router_message_put(&shared->message, ROUTER_MESSAGE_GOODBYE, bytes_str(""));
        if (!shared->message.is_bad)
            (void)state_send(shared->store, buf_view(&shared->message));
    }
    state_close(shared->store);
    state_history_free(shared->history);
    buf_fini(&shared->message);
    buf_fini(&shared->forgets);
    OPENSSL_cleanse(shared, sizeof(*shared));
    free(shared);
    router->shared = NULL;
}

struct state *router_state_store(const struct router *router)
{
    return router->shared == NULL ? NULL : router->shared->store;
}

const uint8_t *router_state_login_salt(const struct router *router)
{
    return router->shared == NULL ? NULL : router->shared->login_salt;
}

void router_state_serve(struct router *router, struct front *front)
{
    if (router->shared != NULL)
        router->shared->front = front;
}

struct front *router_state_front(const struct router *router)
{
    return router->shared == NULL ? NULL : router->shared->front;
}

void router_state_put(const struct router *router, struct buf *out)
{
    if (router_state_store(router) == NULL)
        return;
    buf_append_str(out, ", \"state_store\": ");
    json_put_str(out, bytes_str(state_url(router->shared->store)));
    buf_printf(out, ", \"state_store_up\": %s", state_is_up(router->shared->store) ? "true" : "false");
}
