/* SPDX-License-Identifier: Apache-2.0 */
/* Leaking buckets.
 *
 *     used ^      /|           take n: used grows by n, if the sum is at most the limit
 *    limit |-----/ |\-------   time: used falls by limit / minute, never below 0
 *          |   _/  | \__       settle: gives back what was reserved and not used
 *          +--------------->
 *
 * A bucket stores the usage, not the remainder, so a load that changes a limit leaves the count as it is.  The
 * accounts of the old and of the new limits share one usage, so both count during a load.  A request larger than
 * its limit passes when the bucket is empty and leaves the bucket in debt; such a request is slow but possible.  A
 * request reserves its whole output (max_tokens) before it is submitted.  So requests that start at the same time
 * cannot exceed the limit together.
 *
 * A request holds its account, which is part of the limits, so old limits live until their last request ends.
 * Usages live in slabs: each load makes one, with room for its new keys and tenants.  A slab is one large piece of
 * memory, because many small ones that another thread frees would slow down allocations on the loop. */
#include "serve/access/limits_priv.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/err.h"

#define MAX_RETRY_AFTER_S 60u /* clients obey this value, however long it is */
#define TENANT_BYTES      64
#define MAX_EXCESS        0.1 /* part of a limit by which several routers may exceed it */

/* ---- buckets ---- */

uint64_t limits_limit_of(const struct auth_rule *rule, enum limit_kind kind)
{
    if (rule == NULL)
        return 0;
    return kind == LIMIT_CONCURRENT ? rule->concurrent : rule->per_min[kind];
}

double limits_used_at(const struct bucket *bucket, uint64_t limit, uint64_t now_ns)
{
    double sunk = (double)(now_ns - bucket->at_ns) * (double)limit / (double)MINUTE_NS;

    return now_ns > bucket->at_ns && sunk < bucket->used ? bucket->used - sunk
           : now_ns > bucket->at_ns                      ? 0
                                                         : bucket->used;
}

/* Returns how far n more would exceed the limit. */
static double limits_excess(const struct bucket *bucket, uint64_t limit, uint64_t n, uint64_t now_ns)
{
    return limits_used_at(bucket, limit, now_ns) + (double)(n < limit ? n : limit) - (double)limit;
}

/* Returns the level as a part of the limit; 0 without a limit. */
static double bucket_add(const struct limit_account *account, enum limit_kind kind, double by,
                         uint64_t now_ns)
{
    struct bucket *bucket = &account->usage->buckets[kind];
    uint64_t limit = limits_limit_of(account->rule, kind);

    if (limit == 0)
        return 0;
    bucket->used = limits_used_at(bucket, limit, now_ns) + by;
    if (bucket->used < 0)
        bucket->used = 0;
    if (bucket->at_ns < now_ns)
        bucket->at_ns = now_ns;
    return bucket->used / (double)limit;
}

/* ---- limits shared by several routers (serve/access/common_limits.h) ---- */

static bool limits_has_bucket(const struct auth_rule *rule)
{
    uint64_t any = 0;

    for (int kind = 0; kind < LIMIT_N_BUCKETS; kind++)
        any |= rule->per_min[kind];
    return any > 0;
}

/* The account's name on the wire; NULL: routers share none of its limits. */
static const struct common_id *account_id(const struct limit_account *account)
{
    const struct common_limits *common = account->limits->common;
    struct limit_usage *usage = account->usage;

    if (common == NULL || account->rule == NULL ||
        (account->rule->concurrent == 0 && !limits_has_bucket(account->rule)))
        return NULL;
    if (!usage->has_common_id)
        common_limits_id(common, account->hash == NULL,
                         account->hash == NULL ? bytes_str(account->name)
                                               : bytes_of(account->hash, AUTH_HASH_BYTES),
                         &usage->common_id);
    usage->has_common_id = true;
    return &usage->common_id;
}

void limits_catch_up(const struct limit_account *account, uint64_t now_ns)
{
    double parts[COMMON_KINDS];

    for (; account != NULL; account = account->tenant) {
        const struct common_id *id = account_id(account);

        if (id == NULL)
            continue;
        common_limits_take(account->limits->common, id, now_ns, parts);
        for (int kind = 0; kind < LIMIT_N_BUCKETS; kind++)
            if (parts[kind] != 0)
                (void)bucket_add(account, (enum limit_kind)kind,
                                 parts[kind] * (double)limits_limit_of(account->rule, (enum limit_kind)kind),
                                 now_ns);
    }
}

static double limits_part_of(uint64_t n, uint64_t limit)
{
    return limit == 0 ? 0 : (double)n / (double)limit;
}

static bool is_shared(const struct limit_account *account)
{
    return account_id(account) != NULL && common_limits_is_shared(account->limits->common);
}

static void add_used(const struct limit_account *account, enum limit_kind kind, double by, uint64_t now_ns)
{
    uint64_t limit = limits_limit_of(account->rule, kind);
    double level = bucket_add(account, kind, by, now_ns);

    if (limit > 0 && account_id(account) != NULL)
        common_limits_spend(account->limits->common, account_id(account),
                            &(struct common_use){kind, by / (double)limit, level}, now_ns);
}

/* Counts one more request in flight, or one less (by -1). */
static void add_running(const struct limit_account *account, int by, uint64_t now_ns)
{
    uint64_t limit = limits_limit_of(account->rule, LIMIT_CONCURRENT);

    account->usage->n_running = by > 0 ? account->usage->n_running + 1 : account->usage->n_running - 1;
    if (limit > 0 && account_id(account) != NULL)
        common_limits_spend(account->limits->common, account_id(account),
                            &(struct common_use){COMMON_CONCURRENT, (double)by / (double)limit, 0}, now_ns);
}

static bool too_many_running(const struct limit_account *account, uint64_t now_ns)
{
    uint64_t limit = limits_limit_of(account->rule, LIMIT_CONCURRENT), n = account->usage->n_running;

    if (limit == 0 || !is_shared(account))
        return limit > 0 && n >= limit;
    n += common_limits_elsewhere(account->limits->common, account_id(account));
    return !common_limits_may(
        account->limits->common, account_id(account),
        &(struct common_use){COMMON_CONCURRENT, limits_part_of(1, limit), limits_part_of(n, limit)}, now_ns);
}

static uint32_t wait_s(double tokens, uint64_t limit)
{
    double s = ceil(tokens * 60 / (double)limit);

    return s >= MAX_RETRY_AFTER_S ? MAX_RETRY_AFTER_S : s < 1 ? 1 : (uint32_t)s;
}

/* Keeps the refusal if it lasts longer than the one kept so far. */
static int limits_refuse(const struct limit_account *account, enum limit_kind kind, uint32_t retry_after_s,
                         struct limit_refusal *refusal)
{
    if (retry_after_s > refusal->retry_after_s)
        *refusal = (struct limit_refusal){.kind = kind,
                                          .tenant = account->tenant == NULL ? account->name : NULL,
                                          .limit = limits_limit_of(account->rule, kind),
                                          .retry_after_s = retry_after_s};
    return E_LIMIT;
}

static int check_bucket(const struct limit_account *account, enum limit_kind kind, uint64_t n,
                        uint64_t now_ns, struct limit_refusal *refusal)
{
    uint64_t limit = limits_limit_of(account->rule, kind);
    const struct bucket *bucket = &account->usage->buckets[kind];
    double over = limit == 0 || n == 0 ? 0 : limits_excess(bucket, limit, n, now_ns);

    if (limit > 0 && n > 0 && is_shared(account)) {
        double level = limits_used_at(bucket, limit, now_ns) / (double)limit;

        return common_limits_may(account->limits->common, account_id(account),
                                 &(struct common_use){kind, limits_part_of(n, limit), level}, now_ns)
                   ? 0
                   : limits_refuse(account, kind, over > 0 ? wait_s(over, limit) : 1, refusal);
    }
    return over > 0 ? limits_refuse(account, kind, wait_s(over, limit), refusal) : 0;
}

/* ---- accounts ---- */

bool limits_expired(const struct limit_account *account, uint64_t unix_s)
{
    for (; account != NULL; account = account->tenant)
        if (account->rule != NULL && account->rule->expires_unix_s > 0 &&
            unix_s >= account->rule->expires_unix_s)
            return true;
    return false;
}

bool limits_allow_model(const struct limit_account *account, const char *model)
{
    for (; account != NULL; account = account->tenant)
        if (account->rule != NULL && !auth_rule_allows(account->rule, model))
            return false;
    return true;
}

const void *limits_tenant(const struct limit_account *account)
{
    return account == NULL ? NULL
                           : account->tenant->usage; /* the usage outlives a load, the account does not */
}

uint32_t limits_weight(const struct limit_account *account)
{
    for (; account != NULL; account = account->tenant)
        if (account->rule != NULL && account->rule->weight > 0)
            return (uint32_t)account->rule->weight;
    return 1;
}

const char *limits_class(const struct limit_account *account)
{
    for (; account != NULL; account = account->tenant)
        if (account->rule != NULL && account->rule->class_name[0] != '\0')
            return account->rule->class_name;
    return "";
}

/* ---- loading ---- */

static void slab_unref(struct usage_slab *slab)
{
    if (slab != NULL && atomic_fetch_sub(&slab->n_refs, 1) == 1)
        free(slab);
}

bool limits_are_idle(const struct limits *limits)
{
    return limits->n_leases == 0;
}

void limits_free(struct limits *limits)
{
    if (limits == NULL)
        return;
    for (size_t i = 0; i < limits->n_accounts; i++) {
        struct limit_usage *usage = limits->accounts[i].usage;

        if (atomic_fetch_sub(&usage->n_refs, 1) == 1)
            slab_unref(usage->slab);
    }
    hashmap_free(limits->keys);
    hashmap_free(limits->tenants);
    free(limits->by_index);
    free(limits->accounts);
    free(limits);
}

struct loading {
    struct limits *fresh;
    const struct limits *old; /* NULL: none */
    struct usage_slab *slab;
    size_t n_usages; /* taken from the slab */
};

/* A key that moved to another tenant starts without usage. */
static struct limit_usage *old_usage(const struct hashmap *map, const void *key, const char *tenant)
{
    struct limit_account *old = hashmap_get(map, key);

    return old != NULL && strcmp(old->name, tenant) == 0 ? old->usage : NULL;
}

static struct limit_usage *limits_take_usage(struct loading *loading, struct limit_usage *old)
{
    struct limit_usage *usage = old;

    if (old == NULL) {
        usage = &loading->slab->items[loading->n_usages++];
        usage->slab = loading->slab;
        atomic_fetch_add(&loading->slab->n_refs, 1);
    }
    atomic_fetch_add(&usage->n_refs, 1);
    return usage;
}

/* Takes the account of this name, or makes it. */
static struct limit_account *list_account(struct loading *loading, const void *key,
                                          struct limit_account *tenant, const struct auth_entry *entry)
{
    struct limits *fresh = loading->fresh;
    struct hashmap *map = tenant == NULL ? fresh->tenants : fresh->keys;
    const struct hashmap *old = loading->old == NULL ? NULL
                                : tenant == NULL     ? loading->old->tenants
                                                     : loading->old->keys;
    struct limit_account *account = hashmap_get(map, key);

    if (account == NULL) {
        account = &fresh->accounts[fresh->n_accounts];
        if (hashmap_put(map, key, account, NULL) < 0)
            return NULL;
        fresh->n_accounts++;
        *account = (struct limit_account){
            .limits = fresh,
            .usage = limits_take_usage(loading, old == NULL ? NULL : old_usage(old, key, entry->tenant)),
            .tenant = tenant,
            .name = entry->tenant,
            .hash = tenant == NULL ? NULL : entry->hash};
    }
    if (entry->rule != NULL)
        account->rule = entry->rule;
    return account;
}

static struct limit_account *list_tenant(struct loading *loading, struct auth_entry entry, bool has_rule)
{
    char name[TENANT_BYTES] = "";

    memcpy(name, entry.tenant, strlen(entry.tenant));
    if (!has_rule)
        entry.rule = NULL;
    return list_account(loading, name, NULL, &entry);
}

static int list_all(struct loading *loading, const struct auth_keys *keys)
{
    struct limits *fresh = loading->fresh;
    struct auth_entry entry;

    for (size_t i = 0; auth_tenant_at(keys, i, &entry); i++)
        if (list_tenant(loading, entry, true) == NULL)
            return E_NOMEM;
    for (; auth_key_at(keys, fresh->n, &entry); fresh->n++) {
        struct limit_account *tenant = list_tenant(loading, entry, false);
        struct limit_account *key = tenant == NULL ? NULL : list_account(loading, entry.hash, tenant, &entry);

        if (key == NULL)
            return E_NOMEM;
        fresh->by_index[fresh->n] = key;
    }
    return 0;
}

/* An upper bound of the usages that the load needs; *most_out: of its accounts. */
static size_t count_new(const struct limits *old, const struct auth_keys *keys, size_t *most_out)
{
    struct auth_entry entry;
    size_t n_new = 0, n = 0;

    for (size_t i = 0; auth_tenant_at(keys, i, &entry); i++, n++) {
        char name[TENANT_BYTES] = "";

        memcpy(name, entry.tenant, strlen(entry.tenant));
        n_new += old == NULL || hashmap_get(old->tenants, name) == NULL;
    }
    for (size_t i = 0; auth_key_at(keys, i, &entry); i++, n += 2) {
        char name[TENANT_BYTES] = "";

        memcpy(name, entry.tenant, strlen(entry.tenant));
        n_new += old == NULL || hashmap_get(old->tenants, name) == NULL;
        n_new += old == NULL || old_usage(old->keys, entry.hash, entry.tenant) == NULL;
    }
    *most_out = n;
    return n_new;
}

int limits_make(const struct auth_keys *keys, const struct limits *old, struct limits **out)
{
    struct loading loading = {.fresh = calloc(1, sizeof(struct limits)), .old = old};
    struct limits *fresh = loading.fresh;
    size_t n_accounts;
    size_t n_new = count_new(old, keys, &n_accounts);
    int rc = E_NOMEM;

    if (fresh == NULL)
        return E_NOMEM;
    fresh->common = old == NULL ? NULL : old->common;
    loading.slab = calloc(1, sizeof(*loading.slab) + n_new * sizeof(loading.slab->items[0]));
    fresh->accounts = calloc(n_accounts + 1, sizeof(*fresh->accounts));
    fresh->by_index = calloc(auth_keys_count(keys) + 1, sizeof(*fresh->by_index));
    if (loading.slab != NULL)
        atomic_init(&loading.slab->n_refs, 1);
    if (loading.slab != NULL && fresh->accounts != NULL && fresh->by_index != NULL &&
        hashmap_new(AUTH_HASH_BYTES, &fresh->keys) == 0 && hashmap_new(TENANT_BYTES, &fresh->tenants) == 0)
        rc = list_all(&loading, keys);
    if (rc < 0)
        limits_free(fresh);
    else
        *out = fresh;
    slab_unref(loading.slab);
    return rc;
}

void limits_find(const struct limits *limits, struct auth_key *who)
{
    who->account = who->index < limits->n ? limits->by_index[who->index] : NULL;
}

void limits_set_common(struct limits *limits, struct common_limits *common)
{
    limits->common = common;
}

/* ---- a request ---- */

/* Notes the demand for the other routers: the largest part that the request takes of any limit of a minute.  If there is
 * none, its part of the requests at once. */
static void account_want(const struct limit_account *account, const uint64_t wanted[LIMIT_N_BUCKETS],
                         uint64_t now_ns)
{
    limits_catch_up(account, now_ns);
    for (; account != NULL; account = account->tenant) {
        double most = 0;

        if (account_id(account) == NULL)
            continue;
        for (int kind = 0; kind < LIMIT_N_BUCKETS; kind++)
            most = fmax(most,
                        limits_part_of(wanted[kind], limits_limit_of(account->rule, (enum limit_kind)kind)));
        if (!limits_has_bucket(account->rule))
            most = limits_part_of(wanted[LIMIT_REQUESTS], account->rule->concurrent);
        if (most > 0)
            common_limits_want(account->limits->common, account_id(account), fmin(most, 1), now_ns);
    }
}

static int check_begin(const struct limit_account *account, uint64_t now_ns, struct limit_refusal *refusal)
{
    int rc = check_bucket(account, LIMIT_REQUESTS, 1, now_ns, refusal);

    return too_many_running(account, now_ns) ? limits_refuse(account, LIMIT_CONCURRENT, 1, refusal) : rc;
}

/* False: the request has no account, so nothing limits it. */
static bool lease_open(struct limit_lease *lease, struct limit_account *account,
                       struct limit_refusal *refusal)
{
    memset(lease, 0, sizeof(*lease));
    memset(refusal, 0, sizeof(*refusal));
    lease->account = account;
    if (account != NULL)
        account->limits->n_leases++;
    return account != NULL;
}

/* Counts the admitted request for its key and its tenant. */
static void lease_begin(struct limit_lease *lease, uint64_t now_ns)
{
    lease->is_running = true;
    for (const struct limit_account *a = lease->account; a != NULL; a = a->tenant) {
        add_running(a, 1, now_ns);
        add_used(a, LIMIT_REQUESTS, 1, now_ns);
    }
}

void limits_hold(struct limit_lease *lease, struct limit_account *account)
{
    struct limit_refusal refusal;

    (void)lease_open(lease, account, &refusal);
}

bool limits_await_others(const struct limit_account *account)
{
    for (const struct limit_account *a = account; a != NULL; a = a->tenant)
        if (account_id(a) != NULL && !common_limits_is_synced(a->limits->common))
            return true;
    return false;
}

int limits_begin(struct limit_lease *lease, struct limit_account *account, uint64_t now_ns,
                 struct limit_refusal *refusal)
{
    const uint64_t one[LIMIT_N_BUCKETS] = {[LIMIT_REQUESTS] = 1};
    int rc = 0;

    if (!lease_open(lease, account, refusal))
        return 0;
    account_want(account, one, now_ns);
    for (struct limit_account *a = account; a != NULL; a = a->tenant)
        rc |= check_begin(a, now_ns, refusal);
    if (rc < 0)
        return E_LIMIT;
    lease_begin(lease, now_ns);
    return 0;
}

/* Of the requests at once, only this router's count: a killed router's places are taken for a while.  Each of N streams may
 * have its first connection and the one that continues it. */
static int check_resume(const struct limit_account *account, uint64_t now_ns, struct limit_refusal *refusal)
{
    uint64_t limit = limits_limit_of(account->rule, LIMIT_REQUESTS);
    uint64_t at_once = limits_limit_of(account->rule, LIMIT_CONCURRENT);
    double most = (1 + MAX_EXCESS) * (double)limit + 1;
    double over = limits_used_at(&account->usage->buckets[LIMIT_REQUESTS], limit, now_ns) - most;
    int rc = limit > 0 && over > 0 ? limits_refuse(account, LIMIT_REQUESTS, wait_s(over, limit), refusal) : 0;

    return at_once > 0 && account->usage->n_running / 2 >= at_once
               ? limits_refuse(account, LIMIT_CONCURRENT, 1, refusal)
               : rc;
}

int limits_resume(struct limit_lease *lease, struct limit_account *account, uint64_t now_ns,
                  struct limit_refusal *refusal)
{
    int rc = 0;

    if (!lease_open(lease, account, refusal))
        return 0;
    limits_catch_up(account, now_ns);
    for (const struct limit_account *a = account; a != NULL; a = a->tenant)
        rc |= check_resume(a, now_ns, refusal);
    if (rc < 0)
        return E_LIMIT;
    lease_begin(lease, now_ns);
    lease->is_unknown = true;
    return 0;
}

void limits_take_back(struct limit_lease *lease, uint64_t now_ns)
{
    if (!lease->is_unknown)
        return;
    lease->is_unknown = false;
    limits_catch_up(lease->account, now_ns);
    for (const struct limit_account *a = lease->account; a != NULL; a = a->tenant)
        add_used(a, LIMIT_REQUESTS, -1, now_ns);
}

/* What a request with these tokens counts for each limit, beside LIMIT_REQUESTS. */
static void limits_count(uint64_t input_tokens, uint64_t output_tokens, uint64_t out[LIMIT_N_BUCKETS])
{
    memset(out, 0, LIMIT_N_BUCKETS * sizeof(out[0]));
    out[LIMIT_TOKENS] = input_tokens + output_tokens;
    out[LIMIT_INPUT] = input_tokens;
    out[LIMIT_OUTPUT] = output_tokens;
}

int limits_reserve(struct limit_lease *lease, uint64_t input_tokens, uint64_t output_tokens, uint64_t now_ns,
                   struct limit_refusal *refusal)
{
    uint64_t wanted[LIMIT_N_BUCKETS];
    int rc = 0;

    limits_count(input_tokens, output_tokens, wanted);
    memset(refusal, 0, sizeof(*refusal));
    account_want(lease->account, wanted, now_ns);
    for (struct limit_account *a = lease->account; a != NULL; a = a->tenant)
        for (int kind = LIMIT_REQUESTS + 1; kind < LIMIT_N_BUCKETS; kind++)
            rc |= check_bucket(a, (enum limit_kind)kind, wanted[kind], now_ns, refusal);
    if (rc < 0)
        return E_LIMIT;
    for (struct limit_account *a = lease->account; a != NULL; a = a->tenant)
        for (int kind = LIMIT_REQUESTS + 1; kind < LIMIT_N_BUCKETS; kind++)
            add_used(a, (enum limit_kind)kind, (double)wanted[kind], now_ns);
    lease->input_tokens = input_tokens;
    lease->output_tokens = output_tokens;
    return 0;
}

void limits_settle(struct limit_lease *lease, uint64_t input_tokens, uint64_t output_tokens, uint64_t now_ns)
{
    struct limit_account *account = lease->account;
    bool was_reserved = lease->input_tokens + lease->output_tokens > 0;
    uint64_t used[LIMIT_N_BUCKETS], reserved[LIMIT_N_BUCKETS];

    limits_count(input_tokens, output_tokens, used);
    limits_count(lease->input_tokens, lease->output_tokens, reserved);
    limits_catch_up(account, now_ns);
    for (struct limit_account *a = account; a != NULL; a = a->tenant) {
        if (lease->is_running)
            add_running(a, -1, now_ns);
        for (int kind = LIMIT_REQUESTS + 1; was_reserved && kind < LIMIT_N_BUCKETS; kind++)
            add_used(a, (enum limit_kind)kind, (double)used[kind] - (double)reserved[kind], now_ns);
    }
    if (account != NULL)
        account->limits->n_leases--;
    memset(lease, 0, sizeof(*lease));
}
