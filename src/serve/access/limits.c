/* SPDX-License-Identifier: Apache-2.0 */
/* Leaking buckets.
 *
 *     used ^      /|           take n: used grows by n, if the sum is at most the limit
 *    limit |-----/ |\-------   time: used falls by limit / minute, never below 0
 *          |   _/  | \__       settle: gives back what was reserved and not used
 *          +--------------->
 *
 * A bucket stores the usage, not the remainder, so a reload that changes a limit leaves the count as it
 * is.  A request larger than its limit passes when the bucket is empty and leaves the bucket in debt;
 * such a request is slow but possible.  A request reserves its whole output (max_tokens) before it is
 * submitted.  However many requests start at once, together they cannot exceed the limit.
 *
 * Accounts are reference-counted.  The list of keys, the accounts of keys (for their tenant) and running
 * requests hold references.  A running request's account therefore survives a reload that removes its
 * key. */
#include "serve/access/limits.h"

#include <math.h>
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

struct limit_account {
    unsigned n_refs;
    struct auth_rule *rule;  /* NULL: none */
    struct auth_rule *fresh; /* the new rule during a load */
    struct bucket buckets[LIMIT_N_BUCKETS];
    uint64_t n_running;
    struct limit_account *tenant; /* of a key; NULL: this account is a tenant */
    char name[TENANT_BYTES];      /* the tenant's name */
};

struct limits {
    struct hashmap *keys;    /* by hash */
    struct hashmap *tenants; /* by name */
    struct limit_account **by_index;
    size_t n;
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
    struct bucket *bucket = &account->buckets[kind];
    uint64_t limit = limits_limit_of(account->rule, kind);

    bucket->used = limit == 0 ? 0 : limits_used_at(bucket, limit, now_ns) + by;
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
    double over = limit == 0 || n == 0 ? 0 : limits_excess(&account->buckets[kind], limit, n, now_ns);

    return over > 0 ? limits_refuse(account, kind, wait_s(over, limit), refusal) : 0;
}

/* ---- accounts ---- */

static struct limit_account *account_new(struct limit_account *tenant, const char *name)
{
    struct limit_account *account = calloc(1, sizeof(*account));

    if (account == NULL)
        return NULL;
    account->n_refs = 1;
    account->tenant = tenant;
    memcpy(account->name, name, strlen(name) + 1);
    if (tenant != NULL)
        tenant->n_refs++;
    return account;
}

static void account_unref(struct limit_account *account)
{
    if (account == NULL || --account->n_refs > 0)
        return;
    account_unref(account->tenant);
    free(account->rule);
    free(account->fresh);
    free(account);
}

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
    return account == NULL ? NULL : account->tenant;
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

int limits_new(struct limits **out)
{
    struct limits *limits = calloc(1, sizeof(*limits));

    if (limits == NULL)
        return E_NOMEM;
    if (hashmap_new(AUTH_HASH_BYTES, &limits->keys) < 0 || hashmap_new(TENANT_BYTES, &limits->tenants) < 0) {
        limits_free(limits);
        return E_NOMEM;
    }
    *out = limits;
    return 0;
}

static void drop_all(struct hashmap *map)
{
    const void *key;
    void *value;
    size_t cursor = 0;

    while (map != NULL && hashmap_next(map, &cursor, &key, &value))
        account_unref(value);
    hashmap_free(map);
}

void limits_free(struct limits *limits)
{
    if (limits == NULL)
        return;
    drop_all(limits->keys);
    drop_all(limits->tenants);
    free(limits->by_index);
    free(limits);
}

/* Ends a load: each account of the new lists takes its new rule (is_good) or drops it. */
static void change_rules(struct hashmap *map, bool is_good)
{
    const void *key;
    void *value;
    size_t cursor = 0;

    while (hashmap_next(map, &cursor, &key, &value)) {
        struct limit_account *account = value;
        struct auth_rule *old = is_good ? account->rule : account->fresh;

        if (is_good)
            account->rule = account->fresh;
        account->fresh = NULL;
        free(old);
    }
}

/* Takes the account from the new list or the old one, or makes it.  A key that moved to another tenant
 * starts with no usage. */
static struct limit_account *list_account(const struct hashmap *old, struct hashmap *fresh, const void *key,
                                          struct limit_account *tenant, const struct auth_entry *entry)
{
    struct limit_account *account = hashmap_get(fresh, key);

    if (account == NULL) {
        account = hashmap_get(old, key);
        if (account != NULL && account->tenant == tenant)
            account->n_refs++;
        else
            account = account_new(tenant, entry->tenant);
        if (account == NULL || hashmap_put(fresh, key, account, NULL) < 0) {
            account_unref(account);
            return NULL;
        }
    }
    if (entry->rule != NULL) {
        struct auth_rule *rule = malloc(sizeof(*rule));

        if (rule == NULL)
            return NULL;
        *rule = *entry->rule;
        free(account->fresh); /* from an earlier line for the same name */
        account->fresh = rule;
    }
    return account;
}

static struct limit_account *list_tenant(const struct limits *old, struct limits *fresh,
                                         struct auth_entry entry, bool has_rule)
{
    char name[TENANT_BYTES] = "";

    memcpy(name, entry.tenant, strlen(entry.tenant));
    if (!has_rule)
        entry.rule = NULL;
    return list_account(old->tenants, fresh->tenants, name, NULL, &entry);
}

static int list_all(const struct limits *old, struct limits *fresh, const struct auth_keys *keys)
{
    struct auth_entry entry;

    fresh->by_index = calloc(auth_keys_count(keys) + 1, sizeof(struct limit_account *));
    if (fresh->by_index == NULL)
        return E_NOMEM;
    for (size_t i = 0; auth_tenant_at(keys, i, &entry); i++)
        if (list_tenant(old, fresh, entry, true) == NULL)
            return E_NOMEM;
    for (; auth_key_at(keys, fresh->n, &entry); fresh->n++) {
        struct limit_account *tenant = list_tenant(old, fresh, entry, false);
        struct limit_account *key =
            tenant == NULL ? NULL : list_account(old->keys, fresh->keys, entry.hash, tenant, &entry);

        if (key == NULL)
            return E_NOMEM;
        fresh->by_index[fresh->n] = key;
    }
    return 0;
}

int limits_load(struct limits *limits, const struct auth_keys *keys)
{
    struct limits *fresh;
    struct limits old;
    int rc = limits_new(&fresh);

    if (rc < 0)
        return rc;
    rc = list_all(limits, fresh, keys);
    change_rules(fresh->keys, rc == 0);
    change_rules(fresh->tenants, rc == 0);
    if (rc == 0) {
        old = *limits;
        *limits = *fresh;
        *fresh = old;
    }
    limits_free(fresh);
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

    return limit > 0 && account->n_running >= limit ? limits_refuse(account, LIMIT_CONCURRENT, 1, refusal)
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
    account->n_refs++;
    for (struct limit_account *a = account; a != NULL; a = a->tenant)
        rc |= check_begin(a, now_ns, refusal);
    if (rc < 0)
        return E_LIMIT;
    lease->is_running = true;
    for (struct limit_account *a = account; a != NULL; a = a->tenant) {
        a->n_running++;
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
            a->n_running--;
        if (!was_reserved)
            continue;
        add_used(a, LIMIT_TOKENS, input + output, now_ns);
        add_used(a, LIMIT_INPUT, input, now_ns);
        add_used(a, LIMIT_OUTPUT, output, now_ns);
    }
    account_unref(account);
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
        double used = limit == 0 ? 0 : limits_used_at(&account->buckets[kind], limit, now_ns);
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
