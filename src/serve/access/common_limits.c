/* SPDX-License-Identifier: Apache-2.0 */
/* This router's part of the common limits: accounts, leases, and its own messages.
 *
 *   spend ──> fresh ──message n──> sent ──every router acknowledged n──> the lease is renewed
 *
 * Amounts in `fresh` and `sent` may be unknown to other routers.  Without any acknowledgement the lease is a bucket
 * with this router's share of the limit.
 *
 * During a flood at other routers, a router with little demand would always find the bucket full.  So each router
 * also has a credit, which it may spend at any level and which refills at the rate of its share.  With n routers
 * the credit is 5 % of the limit divided by n, or one larger request.  All routers together exceed a limit by at
 * most the sum of their credits. */
#include "serve/access/common_limits_priv.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "base/err.h"

#define EQUAL_PART     0.25 /* part of the limit that is split equally */
#define CREDIT_PART    0.05 /* part of a limit that all credits have together */
#define DEMAND_FADE_NS (10 * NS_PER_S)
#define REPEAT_NS      (1 * NS_PER_S) /* without a change */
#define LEAST_DEMAND   0.01
#define ROUNDING       1e-6 /* rounding error of floats on the wire */

int common_limits_new(uint64_t self, const uint8_t key[32], uint64_t now_ns, struct common_limits **out)
{
    struct common_limits *common = calloc(1, sizeof(*common));

    if (common == NULL || hashmap_new(COMMON_ID_BYTES, &common->by_id) < 0) {
        free(common);
        return E_NOMEM;
    }
    common->self = self;
    common->started_ns = now_ns;
    memcpy(common->key, key, sizeof(common->key));
    list_init(&common->accounts);
    list_init(&common->busy);
    list_init(&common->stale);
    for (unsigned i = 0; i < COMMON_MAX_ROUTERS; i++)
        list_init(&common->reports[i]);
    *out = common;
    return 0;
}

static void common_account_free(struct common_limits *common, struct common_account *account)
{
    for (unsigned i = 0; i < COMMON_MAX_ROUTERS; i++)
        common_report_drop(common, account, i);
    hashmap_remove(common->by_id, &account->id);
    list_remove(&account->node);
    if (account->is_busy)
        list_remove(&account->busy);
    free(account);
}

void common_limits_free(struct common_limits *common)
{
    if (common == NULL)
        return;
    while (!list_is_empty(&common->accounts))
        common_account_free(common, container_of(common->accounts.next, struct common_account, node));
    hashmap_free(common->by_id);
    OPENSSL_cleanse(common->key, sizeof(common->key));
    free(common);
}

void common_limits_id(const struct common_limits *common, bool is_tenant, struct bytes name,
                      struct common_id *out)
{
    uint8_t text[1 + 64] = {is_tenant ? 't' : 'k'}, mac[32] = {0};
    unsigned len_bytes = sizeof(mac);
    size_t n = name.len_bytes < sizeof(text) - 1 ? name.len_bytes : sizeof(text) - 1;

    memcpy(text + 1, name.data, n);
    (void)HMAC(EVP_sha256(), common->key, sizeof(common->key), text, 1 + n, mac, &len_bytes);
    memcpy(out->bytes, mac, sizeof(out->bytes));
}

/* ---- accounts ---- */

void common_account_touch(struct common_limits *common, struct common_account *account, uint64_t now_ns)
{
    account->used_ns = now_ns;
    list_remove(&account->node);
    list_push_back(&common->accounts, &account->node);
}

struct common_account *common_account_of(struct common_limits *common, const struct common_id *id,
                                         uint64_t now_ns)
{
    struct common_account *account = hashmap_get(common->by_id, id);

    if (account != NULL) {
        common_account_touch(common, account, now_ns);
        return account;
    }
    if (hashmap_count(common->by_id) >= COMMON_MAX_ACCOUNTS)
        common_account_free(common, container_of(common->accounts.next, struct common_account, node));
    account = calloc(1, sizeof(*account));
    if (account == NULL)
        return NULL;
    account->id = *id;
    account->used_ns = account->level_ns = account->lease_ns = account->demand_ns = now_ns;
    if (hashmap_put(common->by_id, id, account, NULL) < 0) {
        free(account);
        return NULL;
    }
    list_push_back(&common->accounts, &account->node);
    return account;
}

void common_account_busy(struct common_limits *common, struct common_account *account, bool is_dirty)
{
    account->is_dirty |= is_dirty;
    if (!account->is_busy)
        list_push_back(&common->busy, &account->busy);
    account->is_busy = true;
}

static double account_demand_at(const struct common_account *account, uint64_t now_ns)
{
    double passed = now_ns > account->demand_ns ? (double)(now_ns - account->demand_ns) : 0;

    return account->demand * exp(-passed / (double)DEMAND_FADE_NS);
}

/* The shares of all routers add up to 1 at most, because each counts only that demand of its own which the others
 * know. */
static double common_share_by(struct common_limits *common, struct common_account *account, double own_demand,
                              double demand)
{
    double n = common_n_sharing(common), all = own_demand;

    for (unsigned i = 0; i < COMMON_MAX_ROUTERS; i++)
        if (common->routers[i].state != COMMON_ROUTER_FREE)
            all += common_report_demand(common, account, i);
    return EQUAL_PART / n + (1 - EQUAL_PART) * (all > 0 ? demand / all : 1 / n);
}

static double common_share_of(struct common_limits *common, struct common_account *account, uint64_t now_ns)
{
    double own = fmin(account->demand_settled, account_demand_at(account, now_ns));

    return common_share_by(common, account, own, own);
}

/* The sum of the shares of lost routers. */
static double common_share_lost(struct common_limits *common, struct common_account *account)
{
    double sum = 0;

    for (unsigned i = 0; i < COMMON_MAX_ROUTERS; i++)
        if (common->routers[i].state == COMMON_ROUTER_LOST)
            sum += common_share_by(common, account, account->demand_settled,
                                   common_report_demand(common, account, i));
    return sum;
}

/* Replica and `others` form one bucket; the replica drains first.  Lost routers count as if they spent their whole
 * shares. */
void common_account_drain(struct common_limits *common, struct common_account *account, uint64_t now_ns)
{
    double sunk =
        now_ns > account->level_ns ? (double)(now_ns - account->level_ns) / (double)COMMON_MINUTE_NS : 0;
    double lost = sunk > 0 ? common_share_lost(common, account) : 0;

    for (int kind = 0; kind < COMMON_KINDS; kind++) {
        double of_level = fmin(account->level[kind], sunk);

        account->level[kind] -= of_level;
        if (account->others[kind] > 0)
            account->others[kind] = fmax(0, account->others[kind] - (sunk - of_level));
        if (account->others[kind] < lost)
            account->others[kind] = fmin(account->others[kind] + lost * sunk, lost);
    }
    account->level_ns = now_ns;
}

/* Drops the amounts that every router has acknowledged. */
static void common_account_settle(struct common_limits *common, struct common_account *account,
                                  uint64_t now_ns)
{
    uint64_t acked = common_acked(common, now_ns);

    if (account->demand_number != 0 && account->demand_number <= acked) {
        account->demand_settled = account->demand_sent;
        account->demand_number = 0;
    }
    if (account->sent_number == 0 || account->sent_number > acked)
        return;
    memset(account->sent, 0, sizeof(account->sent));
    account->sent_number = 0;
    for (int kind = 0; kind <= COMMON_KINDS; kind++)
        if (account->fresh[kind] > 0)
            common_account_busy(common, account, true);
    account->is_acked = true;
}

/* A lease is this router's share of the remaining budget.  Until all routers have acknowledged its spending, the
 * lease grows by the share of the amount that drains. */
static void lease_renew(struct common_limits *common, struct common_account *account, uint64_t now_ns)
{
    double share = common_share_of(common, account, now_ns);
    double sunk = now_ns > account->lease_ns
                      ? share * (double)(now_ns - account->lease_ns) / (double)COMMON_MINUTE_NS
                      : 0;

    common_account_settle(common, account, now_ns);
    common_account_drain(common, account, now_ns);
    for (int kind = 0; kind < COMMON_KINDS; kind++) {
        double remains = 1 - account->level[kind] - fmax(0, account->others[kind]);

        account->lease[kind] = fmin(share, account->lease[kind] + sunk);
        if (account->is_acked || (account->sent_number == 0 && account->fresh[kind] <= 0))
            account->lease[kind] = share * (remains + account->fresh[kind]) - account->fresh[kind];
        account->credit[kind] = fmax(0, account->credit[kind] - sunk);
    }
    account->lease_ns = now_ns;
    account->is_acked = false;
}

/* ---- this router's requests ---- */

uint32_t common_n_sharing(const struct common_limits *common)
{
    return common->n_others == 0 && !common->is_synced ? 2 : 1 + common->n_others;
}

bool common_limits_is_shared(const struct common_limits *common)
{
    return common_n_sharing(common) > 1;
}

bool common_limits_is_synced(const struct common_limits *common)
{
    return common->is_synced;
}

void common_limits_take(struct common_limits *common, const struct common_id *id, uint64_t now_ns,
                        double parts_out[COMMON_KINDS])
{
    struct common_account *account = hashmap_get(common->by_id, id);

    memset(parts_out, 0, COMMON_KINDS * sizeof(*parts_out));
    if (account == NULL)
        return;
    common_account_drain(common, account, now_ns);
    memcpy(parts_out, account->others, COMMON_KINDS * sizeof(*parts_out));
    for (int kind = 0; kind < COMMON_KINDS; kind++)
        account->level[kind] = fmax(0, account->level[kind] + account->others[kind]);
    memset(account->others, 0, sizeof(account->others));
}

void common_limits_want(struct common_limits *common, const struct common_id *id, double part,
                        uint64_t now_ns)
{
    struct common_account *account = common_account_of(common, id, now_ns);

    if (account == NULL)
        return;
    account->demand = fmin(account_demand_at(account, now_ns) + part, COMMON_MAX_DEMAND);
    account->demand_ns = now_ns;
    common_account_busy(common, account, false);
}

static bool credit_allows(const struct common_limits *common, const struct common_account *account, int kind,
                          double part, bool has_level)
{
    double most = CREDIT_PART / common_n_sharing(common);

    if (part > most)
        return has_level && account->credit[kind] <= 0;
    return account->credit[kind] + part <= most;
}

bool common_limits_may(struct common_limits *common, const struct common_id *id, const struct common_use *use,
                       uint64_t now_ns)
{
    const int kind = use->kind;
    struct common_account *account = common_account_of(common, id, now_ns);
    double wanted = fmin(use->part, 1);
    bool has_level = use->level + wanted <= 1 + ROUNDING, is_leased;

    if (account == NULL || !common_limits_is_shared(common))
        return has_level;
    lease_renew(common, account, now_ns);
    if (kind == COMMON_CONCURRENT) { /* rounded up, because no router could use a part of a place */
        double open = account->fresh[kind] + account->sent[kind];
        double lease = common_share_of(common, account, now_ns) * (1 - use->level + open) - open;

        return has_level && (lease > ROUNDING || account->n_running == 0);
    }
    is_leased = has_level && wanted <= account->lease[kind] + ROUNDING;
    account->is_by_credit[kind] = !is_leased && credit_allows(common, account, kind, wanted, has_level);
    return is_leased || account->is_by_credit[kind];
}

static void account_roll(const struct common_limits *common, struct common_account *account, uint64_t now_ns)
{
    uint32_t window = (uint32_t)((now_ns - common->started_ns) / COMMON_WINDOW_NS);

    if (window == account->window)
        return;
    memcpy(account->spent[1], account->spent[0], sizeof(account->spent[1]));
    if (window != account->window + 1)
        memset(account->spent[1], 0, sizeof(account->spent[1]));
    memset(account->spent[0], 0, sizeof(account->spent[0]));
    account->window = window;
}

void common_limits_spend(struct common_limits *common, const struct common_id *id,
                         const struct common_use *use, uint64_t now_ns)
{
    const int kind = use->kind;
    const double part = use->part;
    struct common_account *account = part == 0 ? NULL : common_account_of(common, id, now_ns);

    if (account == NULL)
        return;
    account_roll(common, account, now_ns);
    account->fresh[kind] = fmax(0, account->fresh[kind] + part);
    common_account_busy(common, account, true);
    if (kind == COMMON_CONCURRENT) {
        account->n_running = part > 0                 ? account->n_running + 1
                             : account->n_running > 0 ? account->n_running - 1
                                                      : 0;
        return;
    }
    common_account_drain(common, account, now_ns);
    account->level[kind] = use->level;
    account->lease[kind] -= fmax(part, 0);
    account->spent[0][kind] += part;
    if (part < 0 || account->is_by_credit[kind])
        account->credit[kind] = fmax(0, account->credit[kind] + part);
    account->is_by_credit[kind] = false;
}

/* ---- messages ---- */

/* True if the account has something to report, or waits for an acknowledgement. */
static bool common_account_has_changes(struct common_limits *common, struct common_account *account,
                                       uint64_t now_ns)
{
    double demand = account_demand_at(account, now_ns);

    common_account_settle(common, account, now_ns);
    if (fabs(demand - account->demand_reported) > 0.1 * account->demand_reported + LEAST_DEMAND ||
        (demand < LEAST_DEMAND && account->demand_reported > 0))
        account->is_dirty = true;
    return account->is_dirty || account->sent_number != 0 || account->demand_number != 0 ||
           account->demand_reported > 0;
}

static void account_fill_row(struct common_limits *common, struct common_account *account, uint64_t now_ns,
                             struct common_row *out)
{
    double demand = account_demand_at(account, now_ns);

    account_roll(common, account, now_ns);
    common_account_drain(common, account, now_ns);
    *out = (struct common_row){.id = account->id, .n_running = account->n_running};
    for (int kind = 0; kind < COMMON_KINDS; kind++) {
        out->level[kind] = (float)fmin(account->level[kind], COMMON_MAX_PART);
        out->spent[kind] = (float)account->spent[0][kind];
        out->before[kind] = (float)account->spent[1][kind];
    }
    account->demand_reported = demand < LEAST_DEMAND ? 0 : demand;
    out->demand = (float)account->demand_reported;
    if (account->demand_number == 0) {
        account->demand_sent = account->demand_reported;
        account->demand_number = common->number;
    }
    if (account->sent_number == 0) {
        memcpy(account->sent, account->fresh, sizeof(account->sent));
        memset(account->fresh, 0, sizeof(account->fresh));
        account->sent_number = common->number;
    }
    account->is_dirty = false;
}

static size_t message_fill_rows(struct common_limits *common, uint64_t now_ns, struct common_row *rows)
{
    struct list *node = common->busy.next, *next, *end = common->busy.prev;
    size_t n = 0;
    bool is_end = list_is_empty(&common->busy);

    for (; !is_end && n < COMMON_MAX_ROWS; node = next) {
        struct common_account *account = container_of(node, struct common_account, busy);

        next = node->next;
        is_end = node == end;
        if (!common_account_has_changes(common, account, now_ns)) {
            list_remove(&account->busy);
            account->is_busy = false;
            continue;
        }
        if (!account->is_dirty)
            continue;
        account_fill_row(common, account, now_ns, &rows[n++]);
        list_remove(&account->busy); /* the next message begins with the other accounts */
        list_push_back(&common->busy, &account->busy);
    }
    return n;
}

static bool has_view(const struct common_limits *common)
{
    for (unsigned view = 0; view < COMMON_VIEWS; view++)
        if (common->is_view_up[view])
            return true;
    return false;
}

bool common_limits_next_message(struct common_limits *common, uint64_t now_ns, struct common_row *rows,
                                struct common_message *out)
{
    bool owes_ack = false;

    if (!has_view(common))
        return false;
    for (unsigned i = 0; i < COMMON_MAX_ROUTERS; i++)
        owes_ack |= common->routers[i].state != COMMON_ROUTER_FREE && common->routers[i].owes_ack;
    *out = (struct common_message){.router = common->self, .number = ++common->number, .rows = rows};
    out->window = (uint32_t)((now_ns - common->started_ns) / COMMON_WINDOW_NS);
    out->n_rows = message_fill_rows(common, now_ns, rows);
    if (out->n_rows == 0 && !owes_ack && now_ns - common->sent_ns < REPEAT_NS) {
        common->number--;
        return false;
    }
    for (unsigned i = 0; i < COMMON_MAX_ROUTERS; i++) {
        struct common_router *router = &common->routers[i];

        if (router->state == COMMON_ROUTER_FREE)
            continue;
        out->acks[out->n_acks++] =
            (struct common_ack){router->epoch, common_router_number(common, router, now_ns)};
        router->owes_ack = false;
    }
    common->sent_ns = now_ns;
    return true;
}

uint32_t common_limits_n_routers(const struct common_limits *common)
{
    return 1 + common->n_others;
}

uint32_t common_limits_n_accounts(const struct common_limits *common)
{
    return (uint32_t)hashmap_count(common->by_id);
}
