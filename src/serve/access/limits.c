/* SPDX-License-Identifier: Apache-2.0 */
/* Leaking buckets.
 *
 *     used ^      /|           take n: used grows by n, if the sum is at most the limit
 *    limit |-----/ |\-------   time: used falls by limit / minute, never below 0
 *          |   _/  | \__       settle: gives back what was reserved and not used
 *          +--------------->
 *
 * A bucket stores the usage, not the remainder, so a load that changes a limit leaves the count as it is.
 * The accounts of the old and of the new limits share one usage, so both count during a load.  A request larger than its limit passes when the bucket is empty and leaves the bucket in debt;
 * such a request is slow but possible.  A request reserves its whole output (max_tokens) before it is
 * submitted.  However many requests start at once, together they cannot exceed the limit.
 *
 * Accounts are part of their limits, which therefore live as long as the last request that began under them.
 * Usages live in slabs, one for each load, with room for the keys and tenants that were new.  Few large pieces of
 * memory instead of many small ones: a loop that allocates sorts what another thread has freed.  */
#include "serve/access/limits.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/hashmap.h"

#define MINUTE_NS         (60 * NS_PER_S)
#define MAX_RETRY_AFTER_S 60u /* clients obey this value, however long it is */
#define TENANT_BYTES      64

struct bucket {
    double used; /* the level at at_ns */
    uint64_t at_ns;
};

struct limit_usage {
    struct usage_slab *slab;
    atomic_uint n_refs; /* accounts; a job thread drops those of old limits */
    uint64_t n_running;
    struct bucket buckets[LIMIT_N_BUCKETS];
};

struct usage_slab {
    atomic_size_t n_refs; /* usages with accounts, and the load itself while it runs */
    struct limit_usage items[];
};

struct limit_account {
    struct limits *limits;
    const struct auth_rule *rule; /* NULL: none */
    struct limit_usage *usage;
    struct limit_account *tenant; /* of a key; NULL: this account is a tenant */
    const char *name;             /* the tenant's */
};

struct limits {
    struct hashmap *keys;    /* by hash */
    struct hashmap *tenants; /* by name */
    struct limit_account **by_index;
    size_t n;
    struct limit_account *accounts; /* [n_accounts] */
    size_t n_accounts;
    uint64_t n_leases;
};

/* ---- buckets ---- */

static uint64_t limits_limit_of(const struct auth_rule *rule, enum limit_kind kind)
{
    if (rule == NULL)
        return 0;
    switch (kind) {
    case LIMIT_REQUESTS:
        return rule->requests_per_min;
    case LIMIT_TOKENS:
        return rule->tokens_per_min;
    case LIMIT_INPUT:
        return rule->input_tokens_per_min;
    case LIMIT_OUTPUT:
        return rule->output_tokens_per_min;
    case LIMIT_CONCURRENT:
        break;
    }
    return rule->concurrent;
}

static double limits_used_at(const struct bucket *bucket, uint64_t limit, uint64_t now_ns)
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

static void add_used(struct limit_account *account, enum limit_kind kind, double by, uint64_t now_ns)
{
    struct bucket *bucket = &account->usage->buckets[kind];
    uint64_t limit = limits_limit_of(account->rule, kind);

    if (limit == 0)
        return;
    bucket->used = limits_used_at(bucket, limit, now_ns) + by;
    if (bucket->used < 0)
        bucket->used = 0;
    if (bucket->at_ns < now_ns)
        bucket->at_ns = now_ns;
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
    double over = limit == 0 || n == 0 ? 0 : limits_excess(&account->usage->buckets[kind], limit, n, now_ns);

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
    return account == NULL ? NULL : account->tenant->usage; /* it outlives a load, the account does not */
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
            .name = entry->tenant};
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

/* How many usages the load may need, and accounts (most_out). */
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

/* ---- a request ---- */

static int check_begin(const struct limit_account *account, uint64_t now_ns, struct limit_refusal *refusal)
{
    uint64_t limit = limits_limit_of(account->rule, LIMIT_CONCURRENT);
    int rc = check_bucket(account, LIMIT_REQUESTS, 1, now_ns, refusal);

    return limit > 0 && account->usage->n_running >= limit
               ? limits_refuse(account, LIMIT_CONCURRENT, 1, refusal)
               : rc;
}

int limits_begin(struct limit_lease *lease, struct limit_account *account, uint64_t now_ns,
                 struct limit_refusal *refusal)
{
    int rc = 0;

    memset(lease, 0, sizeof(*lease));
    memset(refusal, 0, sizeof(*refusal));
    lease->account = account;
    if (account == NULL)
        return 0;
    account->limits->n_leases++;
    for (struct limit_account *a = account; a != NULL; a = a->tenant)
        rc |= check_begin(a, now_ns, refusal);
    if (rc < 0)
        return E_LIMIT;
    lease->is_running = true;
    for (struct limit_account *a = account; a != NULL; a = a->tenant) {
        a->usage->n_running++;
        add_used(a, LIMIT_REQUESTS, 1, now_ns);
    }
    return 0;
}

int limits_reserve(struct limit_lease *lease, uint64_t input_tokens, uint64_t output_tokens, uint64_t now_ns,
                   struct limit_refusal *refusal)
{
    const uint64_t wanted[LIMIT_N_BUCKETS] = {
        [LIMIT_TOKENS] = input_tokens + output_tokens,
        [LIMIT_INPUT] = input_tokens,
        [LIMIT_OUTPUT] = output_tokens,
    };
    int rc = 0;

    memset(refusal, 0, sizeof(*refusal));
    for (struct limit_account *a = lease->account; a != NULL; a = a->tenant)
        for (int kind = LIMIT_TOKENS; kind < LIMIT_N_BUCKETS; kind++)
            rc |= check_bucket(a, (enum limit_kind)kind, wanted[kind], now_ns, refusal);
    if (rc < 0)
        return E_LIMIT;
    for (struct limit_account *a = lease->account; a != NULL; a = a->tenant)
        for (int kind = LIMIT_TOKENS; kind < LIMIT_N_BUCKETS; kind++)
            add_used(a, (enum limit_kind)kind, (double)wanted[kind], now_ns);
    lease->input_tokens = input_tokens;
    lease->output_tokens = output_tokens;
    return 0;
}

void limits_settle(struct limit_lease *lease, uint64_t input_tokens, uint64_t output_tokens, uint64_t now_ns)
{
    struct limit_account *account = lease->account;
    bool was_reserved = lease->input_tokens + lease->output_tokens > 0;
    double input = (double)input_tokens - (double)lease->input_tokens;
    double output = (double)output_tokens - (double)lease->output_tokens;

    for (struct limit_account *a = account; a != NULL; a = a->tenant) {
        if (lease->is_running)
            a->usage->n_running--;
        if (!was_reserved)
            continue;
        add_used(a, LIMIT_TOKENS, input + output, now_ns);
        add_used(a, LIMIT_INPUT, input, now_ns);
        add_used(a, LIMIT_OUTPUT, output, now_ns);
    }
    if (account != NULL)
        account->limits->n_leases--;
    memset(lease, 0, sizeof(*lease));
}

/* ---- rate-limit fields ---- */

const char *limits_kind_name(enum limit_kind kind)
{
    switch (kind) {
    case LIMIT_REQUESTS:
        return "requests";
    case LIMIT_TOKENS:
        return "tokens";
    case LIMIT_INPUT:
        return "input-tokens";
    case LIMIT_OUTPUT:
        return "output-tokens";
    case LIMIT_CONCURRENT:
        break;
    }
    return "concurrent";
}

struct told { /* the state of one limit */
    uint64_t limit;
    uint64_t remaining;
    uint64_t reset_ns; /* from now until the whole limit is available again */
    double share;      /* remaining / limit */
};

/* Keeps the tighter of told and the account's own limits. */
static void limits_tell(const struct limit_account *account, enum limit_kind kind, uint64_t now_ns,
                        struct told *told)
{
    for (; account != NULL; account = account->tenant) {
        uint64_t limit = limits_limit_of(account->rule, kind);
        double used = limit == 0 ? 0 : limits_used_at(&account->usage->buckets[kind], limit, now_ns);
        double share = 1 - used / (double)(limit == 0 ? 1 : limit);

        if (limit == 0 || (told->limit > 0 && told->share <= share))
            continue;
        told->limit = limit;
        told->remaining = used < (double)limit ? (uint64_t)((double)limit - used) : 0;
        told->reset_ns = (uint64_t)(used * (double)MINUTE_NS / (double)limit);
        told->share = share;
    }
}

static void put_messages(const char *name, const struct told *told, uint64_t unix_ns,
                         struct http_fields *fields)
{
    char field[64];
    char text[24];

    snprintf(field, sizeof(field), "anthropic-ratelimit-%s-limit", name);
    http_fields_addf(fields, field, "%llu", (unsigned long long)told->limit);
    snprintf(field, sizeof(field), "anthropic-ratelimit-%s-remaining", name);
    http_fields_addf(fields, field, "%llu", (unsigned long long)told->remaining);
    snprintf(field, sizeof(field), "anthropic-ratelimit-%s-reset", name);
    clock_rfc3339((unix_ns + told->reset_ns + NS_PER_S - 1) / NS_PER_S, text);
    http_fields_add_str(fields, field, text);
}

static void put_openai(const char *name, const struct told *told, struct http_fields *fields)
{
    uint64_t ms = (told->reset_ns + NS_PER_MS - 1) / NS_PER_MS;
    char field[64];

    snprintf(field, sizeof(field), "x-ratelimit-limit-%s", name);
    http_fields_addf(fields, field, "%llu", (unsigned long long)told->limit);
    snprintf(field, sizeof(field), "x-ratelimit-remaining-%s", name);
    http_fields_addf(fields, field, "%llu", (unsigned long long)told->remaining);
    snprintf(field, sizeof(field), "x-ratelimit-reset-%s", name);
    if (ms >= 60000)
        http_fields_addf(fields, field, "%llum%llu.%03llus", (unsigned long long)(ms / 60000),
                         (unsigned long long)(ms / 1000 % 60), (unsigned long long)(ms % 1000));
    else
        http_fields_addf(fields, field, "%llu.%03llus", (unsigned long long)(ms / 1000),
                         (unsigned long long)(ms % 1000));
}

void limits_put_fields(const struct limit_account *account, enum limit_dialect dialect, uint64_t now_ns,
                       uint64_t unix_ns, struct http_fields *fields)
{
    struct told told[LIMIT_N_BUCKETS] = {0};
    struct told *all = &told[LIMIT_TOKENS];

    for (int kind = 0; kind < LIMIT_N_BUCKETS; kind++)
        limits_tell(account, (enum limit_kind)kind, now_ns, &told[kind]);
    /* "tokens" reports the token limit with the smallest remaining share. */
    for (int kind = LIMIT_INPUT; kind <= LIMIT_OUTPUT; kind++)
        if (told[kind].limit > 0 && (all->limit == 0 || told[kind].share < all->share))
            *all = told[kind];
    for (int kind = 0; kind < LIMIT_N_BUCKETS; kind++) {
        if (told[kind].limit == 0)
            continue;
        if (dialect == LIMIT_MESSAGES)
            put_messages(limits_kind_name((enum limit_kind)kind), &told[kind], unix_ns, fields);
        else if (kind == LIMIT_REQUESTS || kind == LIMIT_TOKENS)
            put_openai(limits_kind_name((enum limit_kind)kind), &told[kind], fields);
    }
}
