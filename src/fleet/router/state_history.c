/* SPDX-License-Identifier: Apache-2.0 */
/* See state_history_priv.h. */
#include "fleet/router/state_history_priv.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/str.h"
#include "fleet/router/spending_priv.h"
#include "fleet/router/state_priv.h"
#include "serve/access/common_limits.h"

#define HISTORY_MAX_ROWS 2048
#define HISTORY_GONE_MS  3000 /* a router that was silent for this long has ended */

struct history_key {
    uint64_t router;
    uint8_t account[FRAME_SPENDING_ID];
};

struct history_row {
    struct list node; /* history.rows */
    struct history_key key;
    uint64_t received_ns;
    struct common_row row;
};

struct history_router {
    uint64_t epoch, number, received_ns;
    uint32_t window;
    char node[ROUTER_MESSAGE_NODE_BYTES];
    bool is_over; /* it sent a goodbye, or a later router has its name */
};

struct state_history {
    struct hashmap *by_key;
    struct list rows; /* the least recently reported first */
    struct history_router routers[COMMON_MAX_ROUTERS];
    unsigned n_routers;
};

int state_history_new(struct state_history **out)
{
    struct state_history *history = calloc(1, sizeof(*history));

    if (history == NULL || hashmap_new(sizeof(struct history_key), &history->by_key) < 0) {
        free(history);
        return E_NOMEM;
    }
    list_init(&history->rows);
    *out = history;
    return 0;
}

static void history_row_free(struct state_history *history, struct history_row *row)
{
    hashmap_remove(history->by_key, &row->key);
    list_remove(&row->node);
    free(row);
}

void state_history_free(struct state_history *history)
{
    if (history == NULL)
        return;
    while (!list_is_empty(&history->rows))
        history_row_free(history, container_of(history->rows.next, struct history_row, node));
    hashmap_free(history->by_key);
    free(history);
}

/* NULL: too many. */
static struct history_router *history_router_of(struct state_history *history, uint64_t epoch,
                                                const char *node)
{
    for (unsigned i = 0; i < history->n_routers; i++)
        if (history->routers[i].epoch == epoch)
            return &history->routers[i];
    if (history->n_routers == COMMON_MAX_ROUTERS)
        return NULL;
    for (unsigned i = 0; i < history->n_routers; i++)
        history->routers[i].is_over |= strcmp(history->routers[i].node, node) == 0;
    history->routers[history->n_routers] = (struct history_router){.epoch = epoch};
    str_copy(history->routers[history->n_routers].node, ROUTER_MESSAGE_NODE_BYTES, node);
    return &history->routers[history->n_routers++];
}

static struct history_row *history_row_of(struct state_history *history, const struct history_key *key)
{
    struct history_row *row = hashmap_get(history->by_key, key);

    if (row != NULL) {
        list_remove(&row->node);
        list_push_back(&history->rows, &row->node);
        return row;
    }
    if (hashmap_count(history->by_key) >= HISTORY_MAX_ROWS)
        history_row_free(history, container_of(history->rows.next, struct history_row, node));
    row = calloc(1, sizeof(*row));
    if (row == NULL || hashmap_put(history->by_key, key, row, NULL) < 0) {
        free(row);
        return NULL;
    }
    row->key = *key;
    list_push_back(&history->rows, &row->node);
    return row;
}

void state_history_keep(struct state_history *history, const Baton__Spending *received, uint64_t age_ms)
{
    uint64_t now_ns = clock_now_ns(), age_ns = age_ms * NS_PER_MS;
    uint64_t received_ns = age_ns < now_ns ? now_ns - age_ns : 0; /* the clock starts at boot */
    struct history_router *router =
        history != NULL ? history_router_of(history, received->router, received->node) : NULL;

    if (router == NULL)
        return;
    router->number = received->number;
    router->window = received->window;
    router->received_ns = received_ns;
    for (size_t i = 0; i < received->n_rows; i++) {
        struct history_key key = {.router = received->router};
        struct history_row *row;

        memcpy(key.account, received->rows[i]->account.data, sizeof(key.account));
        row = history_row_of(history, &key);
        if (row == NULL)
            return;
        row->received_ns = received_ns;
        router_spending_read_row(received->rows[i], &row->row);
    }
}

void state_history_goodbye(struct state_history *history, uint64_t epoch)
{
    for (unsigned i = 0; history != NULL && i < history->n_routers; i++)
        history->routers[i].is_over |= history->routers[i].epoch == epoch;
}

/* A router with this router's name is this router before its restart. */
static bool history_is_gone(const struct history_router *router, const struct router *by, uint64_t now_ns)
{
    return router->is_over || strncmp(router->node, by->conf->node, ROUTER_MESSAGE_NODE_BYTES - 1) == 0 ||
           now_ns > router->received_ns + HISTORY_GONE_MS * NS_PER_MS;
}

static void history_replay_router(struct state_history *history, struct router *to,
                                  const struct history_router *router)
{
    uint64_t now_ns = clock_now_ns();
    struct common_row rows[COMMON_MAX_ROWS];
    struct common_message message = {.router = router->epoch,
                                     .number = router->number,
                                     .window = router->window,
                                     .is_gone = history_is_gone(router, to, now_ns),
                                     .is_snapshot = true,
                                     .rows = rows};

    list_for_each (node, &history->rows) {
        struct history_row *row = container_of(node, struct history_row, node);

        if (row->key.router != router->epoch)
            continue;
        rows[message.n_rows] = row->row;
        rows[message.n_rows++].age_ms = (uint32_t)((now_ns - row->received_ns) / NS_PER_MS);
        if (message.n_rows < COMMON_MAX_ROWS)
            continue;
        router_spending_receive_history(to, &message);
        message.n_rows = 0;
    }
    router_spending_receive_history(to, &message);
    if (!message.is_gone)
        router_state_note(to, router->epoch, router->node, router->received_ns);
}

void state_history_replay(struct state_history *history, struct router *router)
{
    const struct common_message end = {0};

    for (unsigned i = 0; history != NULL && i < history->n_routers; i++)
        history_replay_router(history, router, &history->routers[i]);
    router_spending_receive_history(router, &end);
}
