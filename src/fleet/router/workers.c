/* SPDX-License-Identifier: Apache-2.0 */
/* Links to workers: registration, load reports, loss.
 *
 * A worker dials, both sides authenticate, and its HELLO names the worker and what it serves. A slot
 * belongs to a node name for the router's life, so a restarted worker gets its slot back. A new epoch
 * means a new process: its old cache and running tasks are gone. While a name's link is up, only the same
 * worker in a new life takes its place (names.c); another worker with that name is refused. */
#include "fleet/router/check_priv.h"
#include "fleet/router/kept_priv.h"
#include "fleet/router/relay_priv.h"
#include "fleet/router/spending_priv.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/name.h"
#include "base/str.h"
#include "proto/role.h"

#define MAX_AGE_US                                                                                           \
    UINT64_C(                                                                                                \
        5000000) /* largest age of a report's figures; with older ones the worker's steps are too long to
                       * judge */

static const struct link_events link_calls;

static uint32_t worker_slot(const struct router *router, const struct router_worker *worker)
{
    return (uint32_t)(worker - router->workers);
}

bool router_worker_usable(const struct router_worker *worker)
{
    return worker->is_taken && worker->link != NULL && link_is_up(worker->link) && !worker->is_draining &&
           !worker->is_unfit && worker->model != NULL && worker->model->is_ready && worker->reported_ns != 0;
}

void router_worker_failed(struct router *router, uint32_t slot, int error)
{
    router->workers[slot].n_failed++;
    router->workers[slot].last_error = error;
}

int router_send(struct router *router, uint32_t slot, enum frame_type type, const ProtobufCMessage *message)
{
    struct router_worker *worker = &router->workers[slot];

    if (worker->link == NULL)
        return E_CLOSED;
    return link_send(worker->link, type, message);
}

static struct router_worker *slot_for(struct router *router, const char *node)
{
    struct router_worker *spare = NULL;

    for (uint32_t i = 0; i < PICKER_MAX_WORKERS; i++) {
        struct router_worker *worker = &router->workers[i];

        if (worker->is_taken && strcmp(worker->node, node) == 0)
            return worker;
        if (spare == NULL && !worker->is_taken)
            spare = worker;
    }
    for (uint32_t i = 0; spare == NULL && i < PICKER_MAX_WORKERS; i++)
        if (router->workers[i].link == NULL)
            spare = &router->workers[i]; /* reuse the slot of a node that is gone */
    return spare;
}

static void worker_note_lost(const struct router *router, const struct router_worker *worker)
{
    uint64_t now_ns = clock_now_ns(), n_tokens = (uint64_t)worker->n_blocks * worker->block_tokens;
    struct router_model *model = worker->model;

    if (now_ns - model->lost_ns >= router->conf->link_return_ns || n_tokens > model->lost_tokens)
        model->lost_tokens = n_tokens;
    model->lost_ns = now_ns;
    model->is_losing = true;
}

/* has_ended: its process has, too. */
static void worker_lose(struct router *router, struct router_worker *worker, bool has_ended)
{
    uint32_t slot = worker_slot(router, worker);

    for (uint32_t i = 0; i < router->n_models; i++)
        if (router->models[i].source == worker->link)
            router->models[i].source = NULL;
    worker->link = NULL;
    worker->reported_ns = 0;
    worker->n_lost++;
    if (worker->model != NULL)
        worker_note_lost(router, worker);
    router_worker_refresh(router, worker);
    router_model_limit(router, worker->model);
    router_blocks_down(router, slot);
    router_spending_worker_down(router, slot, has_ended);
    router_relay_changed(router);
    router_kept_worker_down(router, slot);
    router_stream_worker_lost(router);
}

/* Replaces one entry; false: `from` is not in the list. */
static bool set_greeting(struct router *router, const struct link *from, struct link *to)
{
    for (uint32_t i = 0; i < ROUTER_MAX_LINKS; i++) {
        if (router->greeting[i] != from)
            continue;
        router->greeting[i] = to;
        return true;
    }
    return false;
}

static void note_capabilities(struct router *router, struct router_worker *worker, uint64_t capabilities)
{
    worker->capabilities = capabilities;
    for (unsigned i = 0; i < CAPABILITY_N; i++) {
        if (capabilities >> i & 1)
            picker_slots_remove(&router->lacking[i], worker_slot(router, worker));
        else
            picker_slots_add(&router->lacking[i], worker_slot(router, worker));
    }
}

/* Begins the slot anew with what the worker says of itself.  The counts of its jobs and failures go on. */
static void worker_introduce(struct router_worker *worker, const Baton__Hello *hello)
{
    *worker = (struct router_worker){.is_taken = true,
                                     .n_dispatched = worker->n_dispatched,
                                     .n_lost = worker->n_lost,
                                     .n_failed = worker->n_failed,
                                     .last_error = worker->last_error};
    worker->role = hello->role == BATON__ROLE__ROLE_PREFILL ? PICKER_PREFILL : PICKER_DECODE;
    worker->epoch = hello->epoch;
    str_copy(worker->node, sizeof(worker->node), hello->node);
    str_copy(worker->version, sizeof(worker->version), hello->build);
    str_copy(worker->link_address, sizeof(worker->link_address), hello->kv->link_address);
    str_copy(worker->kv_address, sizeof(worker->kv_address), hello->kv->tcp_address);
    worker->layout = hello->kv->layout;
    worker->host = str_digest(hello->host_id);
    worker->instance = hello->instance;
    worker->block_tokens = hello->kv->block_tokens;
    worker->n_blocks = hello->kv->n_blocks;
    worker->kv_bytes_per_token = hello->kv->block_bytes / hello->kv->block_tokens;
    worker->max_seqs = hello->kv->max_seqs;
    worker->is_draining = hello->is_draining;
    worker->context_length = hello->model->context_length;
}

static int worker_on_hello(void *arg, struct link *link, const ProtobufCMessage *message, struct fault *fault)
{
    struct router *router = arg;
    const Baton__Hello *hello = (const Baton__Hello *)message;
    struct router_model *model;
    struct router_worker *worker;
    struct link *old;
    int rc;

    if (hello->role != BATON__ROLE__ROLE_PREFILL && hello->role != BATON__ROLE__ROLE_DECODE)
        return fault_set(fault, E_PROTO, "a router takes prefill and decode workers only");
    if (hello->model == NULL || hello->kv == NULL || hello->kv->block_tokens == 0 ||
        hello->kv->n_blocks == 0 || hello->model->context_length == 0)
        return fault_set(fault, E_PROTO, "HELLO of a worker wants model and kv");
    if (strlen(hello->model->fingerprint) != 32)
        return fault_set(fault, E_PROTO, "a model's fingerprint has 32 digits");
    if (!name_fits(hello->node)) /* answers, headers and logs contain it */
        return fault_set(fault, E_PROTO, "a node's name is 1 to 63 letters, digits, '.', '_' and '-'");
    worker = slot_for(router, hello->node);
    if (worker == NULL)
        return fault_set(fault, E_LIMIT, "this router takes %d workers", PICKER_MAX_WORKERS);
    old = worker->link;
    rc = old != NULL ? router_names_check(router, worker, link, hello, fault) : 0;
    if (rc == 0)
        rc = router_model_meet(router, hello, worker, &model, fault);
    if (rc < 0)
        return rc;
    if (old != NULL) {
        worker_lose(router, worker, false);
        link_close(old);
        listener_release(router->links);
    }
    worker_introduce(worker, hello);
    note_capabilities(router, worker, capabilities_read(hello->capabilities));
    worker->model = model;
    model->was_served = true;
    router->is_restarted |= hello->was_registered;
    worker->link = link;
    set_greeting(router, link, NULL);
    router_model_limit(router, model);
    link_set_user(link, worker);
    return 0;
}

static void worker_on_up(void *arg, struct link *link)
{
    struct router *router = arg;
    struct router_worker *worker = link_user(link);

    router_worker_refresh(router, worker);
    log_info("worker_up", LOG_STR("node", worker->node), LOG_STR("role", router_role_text(worker->role)),
             LOG_STR("model", worker->model->gen.name), LOG_STR("address", link_peer_address(link)),
             LOG_U64("blocks", worker->n_blocks));
    router_stream_worker_up(router, worker_slot(router, worker));
    router_model_fetch(router, worker->model);
    router_blocks_up(router, worker_slot(router, worker));
    router_spending_worker_up(router, worker_slot(router, worker));
    router_relay_changed(router);
    router_kept_worker_up(router, worker_slot(router, worker));
}

/* Rates come from outside: an invalid one counts as unknown. */
static double router_workers_rate(double reported)
{
    return isfinite(reported) && reported > 0 ? reported : 0;
}

static enum picker_role role_of(Baton__Role role)
{
    return role == BATON__ROLE__ROLE_PREFILL  ? PICKER_PREFILL
           : role == BATON__ROLE__ROLE_DECODE ? PICKER_DECODE
                                              : PICKER_BOTH;
}

/* Notes a new role.
 * Requests at the worker continue as they were placed; the next placement uses the new role. */
static void router_workers_note_role(struct router_worker *worker, const Baton__LoadReport *load)
{
    enum picker_role role = role_is_worker(load->role) ? role_of(load->role) : worker->role;

    if (role != worker->role)
        log_info("worker_role", LOG_STR("node", worker->node),
                 LOG_STR("from", router_role_text(worker->role)), LOG_STR("to", router_role_text(role)));
    router_roles_receive(worker, role != worker->role, load->role_age_ms);
    worker->role = role;
}

/* When the engine took the report's figures, by this router's clock. Several reports may repeat the same figures. */
static uint64_t router_workers_taken_ns(const Baton__LoadReport *load)
{
    uint64_t now_ns = clock_now_ns(), age_us = load->age_us < MAX_AGE_US ? load->age_us : MAX_AGE_US;

    return now_ns > age_us * NS_PER_US ? now_ns - age_us * NS_PER_US : 1;
}

static void on_heartbeat(struct router *router, struct router_worker *worker, const Baton__Heartbeat *beat)
{
    const Baton__LoadReport *load = beat->load;
    bool was_usable = router_worker_usable(worker);

    if (load == NULL)
        return;
    if (load->n_routers != worker->report.n_routers)
        router_relay_changed(router);
    worker->report = *load;
#define X(name) worker->report.name = router_workers_rate(load->name);
    LOAD_RATES(X)
#undef X
    worker->report.store_bytes_per_s = router_workers_rate(load->store_bytes_per_s);
    if (load->store != 0)
        worker->store = router_stores_number(router, load->store);
    if (worker->model != NULL)
        picker_pair_share_learn(&worker->model->pair_share, worker->report.prompt_token_s,
                                worker->report.prompt_pair_s, clock_now_ns());
    if (load->decode_seqs > 0 && worker->report.decode_now_s > 0) {
        worker->step_seqs = load->decode_seqs;
        worker->step_s = worker->report.decode_now_s;
        worker->row_s = worker->report.decode_row_s;
    }
    worker->report.base.unknown_fields = NULL;
    worker->report.base.n_unknown_fields = 0;
    if (load->is_draining && !worker->is_draining)
        router_kept_worker_drains(router, worker_slot(router, worker));
    worker->is_draining = load->is_draining;
    if (worker->is_unfit != load->is_unfit)
        log_warn(load->is_unfit ? "worker_unfit" : "worker_fit", LOG_STR("node", worker->node),
                 LOG_STR("reason", load->is_unfit ? "its answers are not finite numbers" : ""));
    worker->is_unfit = load->is_unfit;
    router_workers_note_role(worker, load);
    worker->reported_ns =
        clock_now_ns(); /* the worker corrects its figures up to now (worker/loop/notices.c) */
    worker->figures_ns = router_workers_taken_ns(load);
    router_worker_refresh(router, worker);
    if (!was_usable || !list_is_empty(&router->queue))
        router_place_queued(router);
}

static int worker_on_message(void *arg, struct link *link, enum frame_type type,
                             const ProtobufCMessage *message)
{
    struct router *router = arg;
    struct router_worker *worker = link_user(link);

    switch (type) {
    case FRAME_HEARTBEAT:
        on_heartbeat(router, worker, (const Baton__Heartbeat *)message);
        return 0;
    case FRAME_TOKENS:
        return router_stream_tokens(router, worker_slot(router, worker), (const Baton__Tokens *)message);
    case FRAME_RESUMED:
        router_resume_answer(router, worker_slot(router, worker), (const Baton__Resumed *)message);
        return 0;
    case FRAME_VOCABULARY_PART:
        return router_model_part(router, link, (const Baton__VocabularyPart *)message);
    case FRAME_BLOCK_EVENTS:
        router_blocks_events(router, worker_slot(router, worker), (const Baton__BlockEvents *)message);
        return 0;
    case FRAME_STORE_BLOCKS:
        router_stores_receive(router, worker, (const Baton__StoreBlocks *)message);
        return 0;
    case FRAME_SPENDING:
        router_spending_receive(router, worker_slot(router, worker), (const Baton__Spending *)message);
        return 0;
    case FRAME_FETCHED:
        router_kept_receive(router, worker_slot(router, worker), (const Baton__Fetched *)message);
        return 0;
    case FRAME_ROUTER_MESSAGE:
        router_relay_receive(router, (const Baton__RouterMessage *)message);
        return 0;
    case FRAME_PROBED:
        router_check_receive(router, worker_slot(router, worker), (const Baton__Probed *)message);
        return 0;
    case FRAME_LISTED:
        router_kept_listed(router, worker_slot(router, worker), (const Baton__Listed *)message);
        return 0;
    case FRAME_GOODBYE:
        if (!worker->is_draining)
            router_kept_worker_drains(router, worker_slot(router, worker));
        worker->is_draining = true;
        router_worker_refresh(router, worker);
        return 0;
        FRAMES_LINK(FRAME_CASE)
        FRAMES_WORKER(FRAME_CASE)
        FRAMES_PEER(FRAME_CASE)
        FRAMES_WORKER_PEER(FRAME_CASE) /* not to routers */
        break;
    }
    /* Ignores an unknown message, because a newer worker may send some.
     * Closing the link would fail all its requests. */
    log_debug("worker_message_ignored", LOG_STR("node", worker->node),
              LOG_STR("type", frame_type_name(type)));
    return 0;
}

static void worker_on_down(void *arg, struct link *link, const struct fault *why)
{
    struct router *router = arg;
    struct router_worker *worker = link_user(link);

    listener_release(router->links);
    set_greeting(router, link, NULL);
    if (worker == NULL || worker->link != link) {
        if (why->code != E_AGAIN) /* a second link of a worker */
            log_warn("link_refused", LOG_STR("address", link_peer_address(link)),
                     LOG_STR("reason", why->text));
        return;
    }
    log_warn("worker_down", LOG_STR("node", worker->node), LOG_STR("reason", why->text));
    metric_add(router->m_lost, 1);
    worker_lose(router, worker, link_peer_has_ended(link));
}

const char *router_role_text(enum picker_role role)
{
    static const char *const names[] = {
        [PICKER_PREFILL] = "prefill", [PICKER_DECODE] = "decode", [PICKER_BOTH] = "both"};

    return names[role];
}

int router_worker_set_role(struct router *router, uint32_t slot, Baton__Role role, struct fault *fault)
{
    const struct router_worker *worker = &router->workers[slot];
    Baton__SetRole wanted = BATON__SET_ROLE__INIT;
    int rc;

    if (worker->link == NULL || !link_is_up(worker->link))
        return fault_set(fault, E_CLOSED, "worker %s is not connected", worker->node);
    if ((worker->capabilities & CAPABILITY_ROLES) == 0)
        return fault_set(fault, E_UNSUPPORTED, "worker %s is of an older version and keeps its role",
                         worker->node);
    wanted.role = role;
    rc = router_send(router, slot, FRAME_SET_ROLE, &wanted.base);
    return rc < 0 ? fault_set(fault, rc, "worker %s: %s", worker->node, err_text(rc)) : 0;
}

int router_role_order(struct router *router, const struct admin_role *wanted, struct fault *fault)
{
    Baton__Role role;

    if (!role_read(wanted->role, &role))
        return fault_set(fault, E_INVAL, "a worker's role is prefill, decode or both");
    for (uint32_t slot = 0; slot < PICKER_MAX_WORKERS; slot++)
        if (router->workers[slot].is_taken && bytes_is(wanted->worker, router->workers[slot].node))
            return router_worker_set_role(router, slot, role, fault);
    return fault_set(fault, E_NOT_FOUND, "no worker of this name has registered here");
}

static const struct link_events link_calls = {.on_hello = worker_on_hello,
                                              .on_up = worker_on_up,
                                              .on_message = worker_on_message,
                                              .on_down = worker_on_down};

int router_workers_accept(struct router *router, int fd, struct stranger *stranger)
{
    struct link_opts opts;
    struct link *link;

    router->link_opts.events = &link_calls;
    router->link_opts.events_arg = router;
    opts = router->link_opts;
    opts.stranger = stranger;

    int rc = link_accept(&opts, fd, &link);

    if (rc == 0 && !set_greeting(router, NULL, link)) { /* the listener admits no more links than fit */
        link_close(link);
        rc = E_LIMIT;
    }
    if (rc < 0)
        listener_release(router->links);
    return rc;
}

void router_workers_close(struct router *router)
{
    for (uint32_t i = 0; i < ROUTER_MAX_LINKS; i++) {
        link_close(router->greeting[i]);
        router->greeting[i] = NULL;
    }
    for (uint32_t i = 0; i < PICKER_MAX_WORKERS; i++) {
        link_close(router->workers[i].link);
        router->workers[i].link = NULL;
    }
}
