/* SPDX-License-Identifier: Apache-2.0 */
/* Links to routers: the worker dials, registers, takes jobs and reports tokens.
 *
 * When a router's link goes down, the worker cancels its requests, because their clients are disconnected
 * too.  Streams that another router may resume continue for a while (tails.c). */
#include "worker/loop/kept_priv.h"
#include "worker/loop/probe_priv.h"
#include "worker/loop/worker_priv.h"
#include "worker/loop/spending_priv.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/str.h"
#include "compute/order/submit.h"

#define VOCABULARY_PART_BYTES (256u << 10)
#define WORKER_ROUTER_TRY_NS  (5 * NS_PER_S)  /* how long discovery's addresses are tried while others wait */
#define WORKER_ROUTER_KEEP_NS (15 * NS_PER_S) /* a router that was up may come back */

static uint32_t worker_routers_number_of(const struct worker_router *router)
{
    return (uint32_t)(router - router->worker->routers);
}

static struct worker_router *worker_routers_find(struct worker *worker, const struct link *link)
{
    for (uint32_t i = 0; i < worker->n_routers; i++)
        if (worker->routers[i].link == link)
            return &worker->routers[i];
    return NULL;
}

static int worker_routers_on_hello(void *arg, struct link *link, const ProtobufCMessage *message,
                                   struct fault *fault)
{
    struct worker_router *router = worker_routers_find(arg, link);
    const Baton__Hello *hello = (const Baton__Hello *)message;

    if (hello->role != BATON__ROLE__ROLE_ROUTER)
        return fault_set(fault, E_PROTO, "%s is not a router: link.routers names the routers' link.listen",
                         link_peer_address(link));
    if (hello->epoch == 0)
        return fault_set(fault, E_PROTO, "%s has no epoch", link_peer_address(link));
    str_copy(router->node, sizeof(router->node), hello->node);
    router->epoch = hello->epoch;
    return 0;
}

bool worker_lost_router(const struct worker *worker)
{
    for (uint32_t i = 0; i < worker->n_routers; i++)
        if (worker->routers[i].was_up && worker->routers[i].epoch == 0)
            return true;
    return false;
}

/* Cancels the tasks of the router's earlier lives (except_epoch 0: of all lives). */
static void worker_routers_forget(struct worker_router *router, uint64_t except_epoch)
{
    struct command *command = command_new(COMMAND_ROUTER_DOWN, worker_routers_number_of(router));

    if (command == NULL)
        return;
    command->key.router_epoch = except_epoch;
    (void)worker_engine_send(router->worker->engine, command);
}

static void worker_routers_on_up(void *arg, struct link *link)
{
    struct worker_router *router = worker_routers_find(arg, link);

    router->was_up = true;
    log_info("router_up", LOG_STR("node", router->node), LOG_STR("address", router->address));
    worker_routers_forget(router, router->epoch);
    worker_tails_router_up(router->worker, worker_routers_number_of(router), router->epoch);
}

static void worker_routers_on_down(void *arg, struct link *link, const struct fault *why)
{
    struct worker_router *router = worker_routers_find(arg, link);

    if (router == NULL || router->epoch == 0) {
        log_debug("router_unreachable", LOG_STR("address", link_peer_address(link)),
                  LOG_STR("reason", why->text));
        return;
    }
    log_warn("router_down", LOG_STR("node", router->node), LOG_STR("reason", why->text));
    worker_parts_drop(router);
    ev_timer_stop(router->vocabulary_turn);
    worker_spending_router_down(router);
    router->epoch = 0;
    router->wants_store = false;
    router->down_ns = clock_now_ns();
    worker_tails_router_down(router->worker, worker_routers_number_of(router));
    worker_routers_forget(router, 0);
}

/* ---- messages from routers ---- */

void worker_routers_refuse(struct worker_router *router, uint64_t request, int error)
{
    Baton__Tokens tokens = BATON__TOKENS__INIT;
    Baton__Answer answer = BATON__ANSWER__INIT, *list = &answer;

    answer.request = request;
    answer.finish = BATON__FINISH__FINISH_FAILED;
    answer.error = error;
    tokens.n_answers = 1;
    tokens.answers = &list;
    (void)link_send(router->link, FRAME_TOKENS, &tokens.base);
}

/* Reads the owner.  If there is no slot for its link, the worker computes the prompt instead. */
static void read_owner(struct worker_router *router, const Baton__Submit *submit, struct task_spec *spec)
{
    spec->owner = PEER_NONE;
    if (submit->owner == NULL || submit->owner_tokens == 0 || spec->mode == TASK_DECODE ||
        spec->order.work.score_from > 0 || !worker_peers_have_room(router->worker))
        return;
    spec->owner = worker_peer_for(router->worker, submit->owner);
    spec->owner_tokens = submit->owner_tokens;
    spec->ask_limit_ns = submit->ask_limit_ms * NS_PER_MS;
}

static int read_submit(struct worker_router *router, const Baton__Submit *submit, struct task_spec *spec)
{
    int rc;

    spec->key = (struct task_key){.router_epoch = router->epoch, .request = submit->request};
    spec->origin = worker_routers_number_of(router);
    spec->mode = submit->mode == BATON__SUBMIT_MODE__SUBMIT_PREFILL  ? TASK_PREFILL
                 : submit->mode == BATON__SUBMIT_MODE__SUBMIT_DECODE ? TASK_DECODE
                                                                     : TASK_LOCAL;
    rc = work_submit_unpack(submit, &spec->order);
    if (rc < 0)
        return rc;
    spec->peer = PEER_NONE;
    if (spec->mode == TASK_PREFILL) {
        spec->peer = submit->peer ? worker_peer_for(router->worker, submit->peer) : PEER_NONE;
        if (spec->peer == PEER_NONE)
            return E_OVERLOADED; /* the worker's failure, not the request's: others may have room */
    }
    read_owner(router, submit, spec);
    return 0;
}

static int on_submit(struct worker_router *router, const Baton__Submit *submit)
{
    const struct task_key key = {.router_epoch = router->epoch, .request = submit->request};
    struct command *command = command_new(COMMAND_SUBMIT, worker_routers_number_of(router));
    struct buf packed = {0};
    int rc;

    if (command == NULL || (rc = read_submit(router, submit, &command->as.submit)) < 0) {
        worker_routers_refuse(router, submit->request, command == NULL ? E_NOMEM : rc);
        command_free(command);
        return 0;
    }
    worker_tails_pack(router, &command->as.submit, submit, &packed);
    if (submit->n_tokens_later > 0) {
        rc = worker_parts_add(router, command, &packed, submit->n_tokens_later);
    } else {
        command->as.submit.has_tail = worker_tails_add(router, &command->as.submit, &packed, 0);
        worker_notices_add(router, &command->as.submit, submit->compute_tokens);
        rc = worker_engine_send(router->worker->engine, command) < 0 ? E_OVERLOADED : 0;
        if (rc < 0)
            worker_tails_cancelled(router->worker, &key, &(Baton__Cancel)BATON__CANCEL__INIT);
    }
    buf_fini(&packed);
    if (rc < 0)
        worker_routers_refuse(router, submit->request, rc);
    return 0;
}

static int on_request_word(struct worker_router *router, enum command_kind kind, uint64_t request)
{
    const struct task_key job = {.router_epoch = router->epoch, .request = request};
    struct command *command = command_new(kind, worker_routers_number_of(router));

    if (command == NULL)
        return E_NOMEM;
    command->key = worker_tails_task(router->worker, &job);
    return worker_engine_send(router->worker->engine, command);
}

static int on_submit_tokens(struct worker_router *router, const Baton__SubmitTokens *more)
{
    const struct task_key key = {.router_epoch = router->epoch, .request = more->request};
    struct command *command;
    bool is_proceeding;
    int rc = worker_parts_tokens(router, more, &command, &is_proceeding);

    if (rc == 1)
        worker_notices_add(router, &command->as.submit, 0);
    if (rc == 1)
        rc = worker_engine_send(router->worker->engine, command) < 0 ? E_OVERLOADED : 1;
    if (rc == E_OVERLOADED)
        worker_tails_cancelled(router->worker, &key, &(Baton__Cancel)BATON__CANCEL__INIT);
    if (rc < 0)
        worker_routers_refuse(router, more->request, rc);
    return rc == 1 && is_proceeding ? on_request_word(router, COMMAND_PROCEED, more->request) : 0;
}

static int on_cancel(struct worker_router *router, const Baton__Cancel *cancel)
{
    const struct task_key job = {.router_epoch = router->epoch, .request = cancel->request};
    int rc;

    if (worker_parts_cancel(router, cancel->request) ||
        (cancel->keeps_tail && worker_tails_release(router->worker, &job)))
        return 0;
    rc = on_request_word(router, COMMAND_CANCEL, cancel->request);
    worker_tails_cancelled(router->worker, &job, cancel);
    return rc;
}

static int on_proceed(struct worker_router *router, uint64_t request)
{
    return worker_parts_proceed(router, request) ? 0 : on_request_word(router, COMMAND_PROCEED, request);
}

static int on_blocks_wanted(struct worker_router *router, const Baton__BlocksWanted *wanted)
{
    struct command *command = command_new(COMMAND_BLOCKS_WANTED, worker_routers_number_of(router));

    if (command == NULL)
        return E_NOMEM;
    command->as.max_on_disk = wanted->max_on_disk;
    command->max_in_store = wanted->max_in_store;
    router->wants_store = wanted->max_in_store > 0;
    return worker_engine_send(router->worker->engine, command);
}

static int routers_on_blocks_last(struct worker_router *router, const Baton__BlocksLast *last)
{
    struct command *command = command_new(COMMAND_BLOCKS_LAST, worker_routers_number_of(router));

    if (command != NULL)
        command->as.last.hashes = malloc(last->hashes.len);
    if (command == NULL || command->as.last.hashes == NULL) {
        command_free(command);
        return 0; /* only a hint */
    }
    memcpy(command->as.last.hashes, last->hashes.data, last->hashes.len);
    command->as.last.n = (uint32_t)(last->hashes.len / sizeof(struct block_hash));
    (void)worker_engine_send(router->worker->engine, command);
    return 0;
}

/* Sends one part in a turn of the loop.  The router asks again if it does not receive all parts. */
static void send_vocabulary(void *arg)
{
    struct worker_router *router = arg;
    struct worker *worker = router->worker;
    Baton__VocabularyPart part = BATON__VOCABULARY_PART__INIT;
    size_t total = worker->vocabulary.len_bytes, at = router->vocabulary_at;

    part.fingerprint = worker->model.fingerprint;
    part.total_bytes = total;
    part.offset = at;
    part.data.data = worker->vocabulary.data + at;
    part.data.len = total - at < VOCABULARY_PART_BYTES ? total - at : VOCABULARY_PART_BYTES;
    router->vocabulary_at += part.data.len;
    if (link_send(router->link, FRAME_VOCABULARY_PART, &part.base) == 0 && router->vocabulary_at < total)
        ev_timer_start(router->vocabulary_turn, 0);
}

/* Passes a router's message on to the other routers.  One that does not know the message skips it. */
static void worker_routers_relay(const struct worker_router *from, const ProtobufCMessage *message)
{
    struct worker *worker = from->worker;

    for (uint32_t i = 0; i < worker->n_routers; i++)
        if (&worker->routers[i] != from && worker_router_is_up(&worker->routers[i]))
            (void)link_send(worker->routers[i].link, FRAME_ROUTER_MESSAGE, message);
}

static int worker_routers_on_message(void *arg, struct link *link, enum frame_type type,
                                     const ProtobufCMessage *message)
{
    struct worker_router *router = worker_routers_find(arg, link);

    thread_owner_check(&router->worker->loop_thread);
    switch (type) {
    case FRAME_SUBMIT:
        return on_submit(router, (const Baton__Submit *)message);
    case FRAME_SUBMIT_TOKENS:
        return on_submit_tokens(router, (const Baton__SubmitTokens *)message);
    case FRAME_CANCEL:
        return on_cancel(router, (const Baton__Cancel *)message);
    case FRAME_PROCEED:
        return on_proceed(router, ((const Baton__Proceed *)message)->request);
    case FRAME_RESUME:
        worker_tails_resume(router, (const Baton__Resume *)message);
        return 0;
    case FRAME_VOCABULARY_WANTED:
        router->vocabulary_at = 0;
        ev_timer_start(router->vocabulary_turn, 0);
        return 0;
    case FRAME_BLOCKS_WANTED:
        return on_blocks_wanted(router, (const Baton__BlocksWanted *)message);
    case FRAME_BLOCKS_LAST:
        return routers_on_blocks_last(router, (const Baton__BlocksLast *)message);
    case FRAME_SET_ROLE:
        worker_role_set(router->worker, ((const Baton__SetRole *)message)->role, router->node);
        return 0;
    case FRAME_PROBE:
        worker_probe_run(router->worker, router, (const Baton__Probe *)message);
        return 0;
    case FRAME_SPENDING:
        worker_spending_receive(router, (const Baton__Spending *)message);
        return 0;
    case FRAME_ROUTER_MESSAGE:
        worker_routers_relay(router, message);
        return 0;
    case FRAME_KEEP:
        worker_kept_keep(router->worker, (const Baton__Keep *)message);
        return 0;
    case FRAME_FETCH:
        worker_kept_fetch(router, (const Baton__Fetch *)message);
        return 0;
    case FRAME_LIST_KEPT:
        worker_kept_list(router, (const Baton__ListKept *)message);
        return 0;
    case FRAME_HEARTBEAT:
    case FRAME_GOODBYE:
        return 0;
        FRAMES_LINK(FRAME_CASE)
        FRAMES_ROUTER(FRAME_CASE)
        FRAMES_PEER(FRAME_CASE)
        FRAMES_ROUTER_PEER(FRAME_CASE) /* not from routers */
        break;
    }
    /* Ignores an unknown message, because a newer router may send some.
     * Closing the link would cancel all of its requests. */
    log_debug("router_message_ignored", LOG_STR("node", router->node),
              LOG_STR("type", frame_type_name(type)));
    return 0;
}

static const struct link_events router_calls = {.on_hello = worker_routers_on_hello,
                                                .on_up = worker_routers_on_up,
                                                .on_message = worker_routers_on_message,
                                                .on_down = worker_routers_on_down};

static int worker_routers_dial(struct worker *worker, struct worker_router *router, const char *address,
                               struct fault *fault)
{
    int rc;

    *router = (struct worker_router){.worker = worker, .down_ns = clock_now_ns(), .is_listed = true};
    list_init(&router->parts);
    str_copy(router->address, sizeof(router->address), address);
    if (ev_timer_new(worker->loop, send_vocabulary, router, &router->vocabulary_turn) < 0)
        return fault_set(fault, E_NOMEM, "out of memory");
    rc = link_dial(&worker->router_link_opts, router->address, fault, &router->link);
    if (rc < 0)
        ev_timer_free(router->vocabulary_turn);
    return rc;
}

int worker_routers_open(struct worker *worker, struct fault *fault)
{
    const struct config_list *addresses = &worker->conf->routers;

    worker->router_link_opts.events = &router_calls;
    for (size_t i = 0; i < addresses->n && worker->n_routers < WORKER_MAX_ROUTERS; i++) {
        int rc;

        if (discover_is_url(addresses->items[i]))
            continue;
        rc = worker_routers_dial(worker, &worker->routers[worker->n_routers], addresses->items[i], fault);
        if (rc < 0)
            return rc;
        worker->n_routers++;
    }
    return 0;
}

static void worker_routers_close_one(struct worker_router *router)
{
    link_close(router->link);
    router->link = NULL;
    router->was_up = false;
    worker_parts_drop(router);
    ev_timer_free(router->vocabulary_turn);
    router->vocabulary_turn = NULL;
}

/* ---- routers that discovery names (discovery.c) ---- */

/* A link that is down gives its slot to another router. If it was up before, its slot waits for the grace of its
 * streams, because answers still refer to it. */
static bool worker_routers_may_go(const struct worker_router *router)
{
    uint64_t wait_ns = WORKER_ROUTER_TRY_NS;

    if (router->epoch != 0 || link_is_up(router->link))
        return false;
    if (router->was_up)
        wait_ns = router->worker->conf->tails_grace_ns + WORKER_ROUTER_KEEP_NS;
    else if (!router->is_listed)
        wait_ns = 0;
    return clock_now_ns() - router->down_ns >= wait_ns;
}

static struct worker_router *worker_routers_slot(struct worker *worker)
{
    struct worker_router *best = NULL;

    for (uint32_t i = 0; i < worker->n_routers; i++) {
        struct worker_router *router = &worker->routers[i];

        if (router->link == NULL)
            return router;
        if (worker_routers_may_go(router) &&
            (best == NULL || router->is_listed < best->is_listed ||
             (router->is_listed == best->is_listed && router->down_ns < best->down_ns)))
            best = router;
    }
    if (worker->n_routers < WORKER_MAX_ROUTERS)
        return &worker->routers[worker->n_routers++];
    if (best != NULL)
        worker_routers_close_one(best);
    return best;
}

static bool worker_routers_have(const struct worker *worker, const char *address)
{
    for (uint32_t i = 0; i < worker->n_routers; i++)
        if (worker->routers[i].link != NULL && strcmp(worker->routers[i].address, address) == 0)
            return true;
    return false;
}

void worker_routers_list(struct worker *worker, const struct endpoints *list)
{
    uint32_t last = 0;

    for (uint32_t i = 0; i < worker->n_routers; i++) {
        struct worker_router *router = &worker->routers[i];

        router->is_listed = endpoints_have(list, router->address);
        if (router->link != NULL && !router->is_listed && worker_routers_may_go(router)) {
            log_info("router_forgotten", LOG_STR("address", router->address));
            worker_routers_close_one(router);
        }
    }
    for (uint32_t i = 0; i < list->n;
         i++) { /* start where the slots ran out last time, so that each address gets a turn */
        const char *address = list->address[(worker->router_list_at + i) % list->n];
        struct worker_router *slot =
            worker_routers_have(worker, address) ? NULL : worker_routers_slot(worker);
        struct fault fault = {0};

        if (slot == NULL)
            continue;
        last = i + 1;
        if (worker_routers_dial(worker, slot, address, &fault) < 0)
            log_warn("router_not_dialled", LOG_STR("address", address), LOG_STR("reason", fault.text));
    }
    if (list->n > 0)
        worker->router_list_at = (worker->router_list_at + last) % list->n;
}

/* A router that has sent its HELLO may still refuse this worker. */
bool worker_router_is_up(const struct worker_router *router)
{
    return router->link != NULL && link_is_up(router->link);
}

uint32_t worker_routers_n_up(const struct worker *worker)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < worker->n_routers; i++)
        n += worker_router_is_up(&worker->routers[i]);
    return n;
}

const char *worker_router_why(const struct worker_router *router)
{
    const struct fault *why;

    if (worker_router_is_up(router))
        return "ok";
    why = router->link != NULL ? link_why_down(router->link) : NULL;
    return why != NULL && why->code != 0 ? why->text : "not yet";
}

size_t worker_routers_queued_bytes(const struct worker *worker)
{
    size_t n = 0;

    for (uint32_t i = 0; i < worker->n_routers; i++)
        if (worker->routers[i].link != NULL)
            n += link_queued_bytes(worker->routers[i].link);
    return n;
}

void worker_routers_close(struct worker *worker)
{
    for (uint32_t i = 0; i < worker->n_routers; i++)
        if (worker->routers[i].link != NULL)
            worker_routers_close_one(&worker->routers[i]);
    worker->n_routers = 0;
}
