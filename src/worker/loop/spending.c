/* SPDX-License-Identifier: Apache-2.0 */
/* Relays each router's spending of its accounts' limits to the other routers (serve/access/common_limits.h).
 *
 *    router A --SPENDING--> rows kept by (router, account) --SPENDING--> routers B, C
 *                               '--a router's first SPENDING on its link--> a snapshot of them
 *
 * The worker does not interpret the amounts.  It keeps the latest row of each router and account, so a restarted
 * router learns how full the limits are.  When there are too many, it drops the least recently changed.  It keeps
 * the rows of a router that is away for two minutes; by then its limits have drained. */
#include "worker/loop/worker_priv.h"
#include "worker/loop/spending_priv.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/hashmap.h"
#include "base/str.h"

#define MAX_KEPT_ROUTERS (2 * WORKER_MAX_ROUTERS)
#define MAX_KEPT_ROWS    2048
#define KEPT_NS          (120 * NS_PER_S)

struct spending_key {
    uint64_t router;
    uint8_t account[FRAME_SPENDING_ID];
};

struct kept_row {
    struct list age; /* spendings.rows */
    struct list of_router;
    struct spending_key key;
    uint64_t received_ns;
    size_t n_level, n_spent, n_before;
    float level[FRAME_SPENDING_KINDS], spent[FRAME_SPENDING_KINDS], before[FRAME_SPENDING_KINDS];
    float demand;
    uint32_t running;
};

struct kept_router {
    uint64_t epoch; /* 0: free */
    char node[64];
    uint64_t number, gone_ns; /* gone_ns 0: its link is up */
    uint32_t window;
    struct list rows;
};

struct spendings {
    struct hashmap *by_key;
    struct list rows; /* the least recently changed first */
    struct kept_router routers[MAX_KEPT_ROUTERS];
};

int worker_spending_open(struct worker *worker)
{
    worker->spendings = calloc(1, sizeof(*worker->spendings));
    if (worker->spendings == NULL || hashmap_new(sizeof(struct spending_key), &worker->spendings->by_key) < 0)
        return E_NOMEM;
    list_init(&worker->spendings->rows);
    return 0;
}

static void kept_row_free(struct spendings *spendings, struct kept_row *row)
{
    hashmap_remove(spendings->by_key, &row->key);
    list_remove(&row->age);
    list_remove(&row->of_router);
    free(row);
}

void worker_spending_close(struct worker *worker)
{
    struct spendings *spendings = worker->spendings;

    while (spendings != NULL && spendings->by_key != NULL && !list_is_empty(&spendings->rows))
        kept_row_free(spendings, container_of(spendings->rows.next, struct kept_row, age));
    if (spendings != NULL)
        hashmap_free(spendings->by_key);
    free(spendings);
    worker->spendings = NULL;
}

/* ---- kept rows ---- */

static void kept_router_free(struct spendings *spendings, struct kept_router *router)
{
    while (!list_is_empty(&router->rows))
        kept_row_free(spendings, container_of(router->rows.next, struct kept_row, of_router));
    router->epoch = 0;
}

/* The entry of a router.  If the table is full, replaces the router that has been away for longest. */
static struct kept_router *kept_router_for(struct spendings *spendings, const struct worker_router *router)
{
    struct kept_router *found = NULL;

    for (unsigned i = 0; i < MAX_KEPT_ROUTERS; i++)
        if (spendings->routers[i].epoch == router->epoch)
            return &spendings->routers[i];
    for (unsigned i = 0; i < MAX_KEPT_ROUTERS; i++) {
        struct kept_router *entry = &spendings->routers[i];

        if (found != NULL && (found->epoch == 0 || (entry->epoch != 0 && entry->gone_ns == 0) ||
                              (entry->epoch != 0 && found->gone_ns != 0 && entry->gone_ns >= found->gone_ns)))
            continue;
        found = entry;
    }
    if (found->epoch != 0)
        kept_router_free(spendings, found);
    *found = (struct kept_router){.epoch = router->epoch};
    str_copy(found->node, sizeof(found->node), router->node);
    list_init(&found->rows);
    return found;
}

static void keep_row(struct spendings *spendings, struct kept_router *router,
                     const Baton__SpendingRow *received)
{
    struct spending_key key = {.router = router->epoch};
    struct kept_row *row;

    memcpy(key.account, received->account.data, sizeof(key.account));
    row = hashmap_get(spendings->by_key, &key);
    if (row == NULL) {
        if (hashmap_count(spendings->by_key) >= MAX_KEPT_ROWS)
            kept_row_free(spendings, container_of(spendings->rows.next, struct kept_row, age));
        row = calloc(1, sizeof(*row));
        if (row == NULL || hashmap_put(spendings->by_key, &key, row, NULL) < 0) {
            free(row);
            return;
        }
        row->key = key;
        list_push_back(&router->rows, &row->of_router);
    } else {
        list_remove(&row->age);
    }
    list_push_back(&spendings->rows, &row->age);
    row->received_ns = clock_now_ns();
    row->n_level = received->n_level;
    row->n_spent = received->n_spent;
    row->n_before = received->n_before;
    memcpy(row->level, received->level, received->n_level * sizeof(*received->level));
    memcpy(row->spent, received->spent, received->n_spent * sizeof(*received->spent));
    memcpy(row->before, received->before, received->n_before * sizeof(*received->before));
    row->demand = received->demand;
    row->running = received->running;
}

static void drop_old_routers(struct spendings *spendings)
{
    uint64_t now_ns = clock_now_ns();

    for (unsigned i = 0; i < MAX_KEPT_ROUTERS; i++)
        if (spendings->routers[i].epoch != 0 && spendings->routers[i].gone_ns != 0 &&
            now_ns > spendings->routers[i].gone_ns + KEPT_NS)
            kept_router_free(spendings, &spendings->routers[i]);
}

/* ---- messages ---- */

static void kept_row_put(struct kept_row *row, uint64_t now_ns, Baton__SpendingRow *out)
{
    uint64_t age_ms = (now_ns - row->received_ns) / NS_PER_MS;

    baton__spending_row__init(out);
    out->account = (ProtobufCBinaryData){.data = row->key.account, .len = sizeof(row->key.account)};
    out->level = row->level;
    out->spent = row->spent;
    out->before = row->before;
    out->n_level = row->n_level;
    out->n_spent = row->n_spent;
    out->n_before = row->n_before;
    out->demand = row->demand;
    out->running = row->running;
    out->age_ms = age_ms < UINT32_MAX ? (uint32_t)age_ms : UINT32_MAX;
}

static Baton__Spending spending_of(struct kept_router *router)
{
    Baton__Spending out = BATON__SPENDING__INIT;

    out.router = router->epoch;
    out.node = router->node;
    out.number = router->number;
    out.window = router->window;
    out.is_gone = router->gone_ns != 0;
    return out;
}

static void send_kept(struct worker_router *to, struct kept_router *from)
{
    Baton__SpendingRow rows[FRAME_SPENDING_ROWS], *list[FRAME_SPENDING_ROWS];
    Baton__Spending out = spending_of(from);
    uint64_t now_ns = clock_now_ns();

    out.is_snapshot = true;
    out.rows = list;
    list_for_each (node, &from->rows) {
        kept_row_put(container_of(node, struct kept_row, of_router), now_ns, &rows[out.n_rows]);
        list[out.n_rows] = &rows[out.n_rows];
        if (++out.n_rows < FRAME_SPENDING_ROWS)
            continue;
        (void)link_send(to->link, FRAME_SPENDING, &out.base);
        out.n_rows = 0;
    }
    (void)link_send(to->link, FRAME_SPENDING, &out.base); /* send it even without rows, because it shows that
                                                           * the router exists */
}

static void send_snapshot(struct worker_router *to)
{
    Baton__Spending end = BATON__SPENDING__INIT;
    struct spendings *spendings = to->worker->spendings;

    for (unsigned i = 0; i < MAX_KEPT_ROUTERS; i++)
        if (spendings->routers[i].epoch != 0 && spendings->routers[i].epoch != to->epoch)
            send_kept(to, &spendings->routers[i]);
    (void)link_send(to->link, FRAME_SPENDING, &end.base);
}

static void send_to_others(const struct worker_router *from, const Baton__Spending *out)
{
    struct worker *worker = from->worker;

    for (uint32_t i = 0; i < worker->n_routers; i++)
        if (&worker->routers[i] != from && worker->routers[i].shares_limits &&
            worker_router_is_up(&worker->routers[i]))
            (void)link_send(worker->routers[i].link, FRAME_SPENDING, &out->base);
}

void worker_spending_receive(struct worker_router *router, const Baton__Spending *spending)
{
    struct spendings *spendings = router->worker->spendings;
    struct kept_router *kept;
    Baton__Spending out;

    drop_old_routers(spendings);
    kept = kept_router_for(spendings, router);
    kept->number = spending->number;
    kept->window = spending->window;
    kept->gone_ns = 0;
    for (size_t i = 0; i < spending->n_rows; i++)
        keep_row(spendings, kept, spending->rows[i]);
    if (!router->shares_limits)
        send_snapshot(router);
    router->shares_limits = true;
    out = spending_of(kept);
    out.n_acks = spending->n_acks;
    out.acks = spending->acks;
    out.n_rows = spending->n_rows;
    out.rows = spending->rows;
    send_to_others(router, &out);
}

void worker_spending_router_down(struct worker_router *router)
{
    struct spendings *spendings = router->worker->spendings;
    struct kept_router *kept;
    Baton__Spending out;

    if (!router->shares_limits)
        return;
    router->shares_limits = false;
    kept = kept_router_for(spendings, router);
    kept->gone_ns = clock_now_ns();
    out = spending_of(kept);
    send_to_others(router, &out);
}
