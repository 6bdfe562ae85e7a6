/* SPDX-License-Identifier: Apache-2.0 */
/* Passes messages between routers through workers that they share.
 *
 *     state.c ──message──> the 4 workers with the lowest digests of their names ──> their other routers ──> state.c
 *
 * Routers of the same workers choose the same four.  A message has a number, so that a router counts it once however
 * many workers bring it: of each router it remembers the highest number and the 64 before. */
#include "fleet/router/relay_priv.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/str.h"
#include "fleet/router/ranking_priv.h"
#include "fleet/router/router_message_priv.h"
#include "fleet/router/state_priv.h"

enum {
    RELAY_ROUTERS = 32,     /* that are remembered; the one that was silent for longest gives its place */
    RELAY_MOST_PER_S = 1024 /* new messages; beyond, they are ignored */
};

#define RELAY_LOOK_NS (100 * NS_PER_MS)

struct relay_router {
    uint64_t epoch; /* 0: free */
    uint64_t top;   /* the highest number received */
    uint64_t seen;  /* bit i: top - i was received */
    uint64_t received_ns;
};

struct router_relay {
    bool has_others;    /* workers that relay had other routers ... */
    uint64_t looked_ns; /* ... at this time; 0: not known */
    uint64_t n_sent;
    struct relay_router routers[RELAY_ROUTERS];
    uint64_t second_ns; /* when the present second of n_received began */
    uint32_t n_received;
    struct metric *m_sent, *m_received, *m_ignored;
};

static bool relay_is_worker(const struct router *router, uint32_t slot)
{
    const struct router_worker *worker = &router->workers[slot];

    return worker->link != NULL && (worker->capabilities & CAPABILITY_ROUTER_MESSAGE) != 0 &&
           link_is_up(worker->link);
}

static bool relay_sees_others(const struct router *router)
{
    for (uint32_t slot = 0; slot < PICKER_MAX_WORKERS; slot++)
        if (router->workers[slot].report.n_routers > 1 && relay_is_worker(router, slot))
            return true;
    return false;
}

void router_relay_changed(struct router *router)
{
    if (router->relay != NULL)
        router->relay->looked_ns = 0;
}

/* It is asked for each charge, so it looks at all workers ten times a second, and after a change. */
bool router_relay_has_others(const struct router *router)
{
    struct router_relay *relay = router->relay;
    uint64_t now_ns = relay != NULL ? clock_now_ns() : 0;

    if (relay == NULL)
        return false;
    if (relay->looked_ns == 0 || now_ns - relay->looked_ns >= RELAY_LOOK_NS) {
        relay->looked_ns = now_ns;
        relay->has_others = relay_sees_others(router);
    }
    return relay->has_others;
}

/* The workers that relay. */
static struct router_ranking relay_choose(const struct router *router)
{
    struct router_ranking ranking = {.n = 0};

    for (uint32_t slot = 0; slot < PICKER_MAX_WORKERS; slot++)
        if (relay_is_worker(router, slot)) /* the lowest digest ranks first */
            router_ranking_add(&ranking, slot, ~str_digest(router->workers[slot].node));
    return ranking;
}

void router_relay_send(struct router *router, struct bytes received)
{
    Baton__RouterMessage message = BATON__ROUTER_MESSAGE__INIT;
    struct router_ranking ranking;

    if (router->relay == NULL)
        return;
    message.text =
        (ProtobufCBinaryData){.data = (uint8_t *)(uintptr_t)received.data, .len = received.len_bytes};
    message.number = ++router->relay->n_sent;
    ranking = relay_choose(router);
    for (uint32_t i = 0; i < ranking.n; i++)
        (void)router_send(router, ranking.slots[i], FRAME_ROUTER_MESSAGE, &message.base);
    metric_add(router->relay->m_sent, 1);
}

static struct relay_router *relay_router_of(struct router_relay *relay, uint64_t epoch)
{
    struct relay_router *oldest = &relay->routers[0];

    for (unsigned i = 0; i < RELAY_ROUTERS; i++) {
        if (relay->routers[i].epoch == epoch)
            return &relay->routers[i];
        if (relay->routers[i].received_ns < oldest->received_ns)
            oldest = &relay->routers[i];
    }
    *oldest = (struct relay_router){.epoch = epoch};
    return oldest;
}

/* Notes the number; false: it was received before, or is too old to know. */
static bool relay_is_new(struct relay_router *from, uint64_t number)
{
    uint64_t behind;

    if (number > from->top) {
        behind = number - from->top;
        from->seen = behind < 64 ? from->seen << behind | 1 : 1;
        from->top = number;
        return true;
    }
    behind = from->top - number;
    if (behind >= 64 || (from->seen >> behind & 1) != 0)
        return false;
    from->seen |= UINT64_C(1) << behind;
    return true;
}

void router_relay_receive(struct router *router, const Baton__RouterMessage *message)
{
    struct router_relay *relay = router->relay;
    uint64_t now_ns = clock_now_ns();
    struct relay_router *from;
    struct router_message received;

    if (relay == NULL ||
        router_message_parse(bytes_of(message->text.data, message->text.len), &received) < 0 ||
        received.epoch == router->epoch)
        return;
    from = relay_router_of(relay, received.epoch);
    from->received_ns = now_ns;
    if (!relay_is_new(from, message->number))
        return;
    if (now_ns - relay->second_ns >= NS_PER_S) {
        relay->second_ns = now_ns;
        relay->n_received = 0;
    }
    if (relay->n_received++ >= RELAY_MOST_PER_S) {
        metric_add(relay->m_ignored, 1);
        return;
    }
    metric_add(relay->m_received, 1);
    router_state_receive(router, &received);
}

int router_relay_open(struct router *router, struct fault *fault)
{
    struct metric_family *messages =
        metric_family(router->metrics, METRIC_COUNTER, "baton_relay_messages_total",
                      "Messages of routers through workers.", "direction");

    router->relay = calloc(1, sizeof(*router->relay));
    if (router->relay == NULL)
        return fault_set(fault, E_NOMEM, "out of memory");
    router->relay->m_sent = metric_series(messages, (const char *const[]){"out"});
    router->relay->m_received = metric_series(messages, (const char *const[]){"in"});
    router->relay->m_ignored = metric_single(router->metrics, METRIC_COUNTER, "baton_relay_ignored_total",
                                             "Messages of routers that were ignored: too many a second.");
    return 0;
}

void router_relay_close(struct router *router)
{
    free(router->relay);
    router->relay = NULL;
}
