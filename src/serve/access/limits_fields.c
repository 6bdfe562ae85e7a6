/* SPDX-License-Identifier: Apache-2.0 */
/* The header fields that report limits to a client: limit, remainder and reset of each, under both APIs'
 * names. */
#include "serve/access/limits_priv.h"

#include <stdio.h>

const struct limit_names *limits_kind_names(enum limit_kind kind)
{
#define NAMES(kind, word, name, noun) {name, noun},
    static const struct limit_names names[] = {AUTH_LIMITS(NAMES){"concurrent", "requests at once"}};
#undef NAMES

    return &names[kind];
}

struct limit_headers { /* the state of one limit */
    uint64_t limit;
    uint64_t remaining;
    uint64_t reset_ns; /* from now until the whole limit is available again */
    double share;      /* remaining / limit */
};

/* Replaces `headers` by the account's limit if that is tighter. */
static void limits_read_headers(const struct limit_account *account, enum limit_kind kind, uint64_t now_ns,
                                struct limit_headers *headers)
{
    for (; account != NULL; account = account->tenant) {
        uint64_t limit = limits_limit_of(account->rule, kind);
        double used = limit == 0 ? 0 : limits_used_at(&account->usage->buckets[kind], limit, now_ns);
        double share = 1 - used / (double)(limit == 0 ? 1 : limit);

        if (limit == 0 || (headers->limit > 0 && headers->share <= share))
            continue;
        headers->limit = limit;
        headers->remaining = used < (double)limit ? (uint64_t)((double)limit - used) : 0;
        headers->reset_ns = (uint64_t)(used * (double)MINUTE_NS / (double)limit);
        headers->share = share;
    }
}

static void put_messages(const char *name, const struct limit_headers *headers, uint64_t unix_ns,
                         struct http_fields *fields)
{
    char field[64];
    char text[24];

    snprintf(field, sizeof(field), "anthropic-ratelimit-%s-limit", name);
    http_fields_addf(fields, field, "%llu", (unsigned long long)headers->limit);
    snprintf(field, sizeof(field), "anthropic-ratelimit-%s-remaining", name);
    http_fields_addf(fields, field, "%llu", (unsigned long long)headers->remaining);
    snprintf(field, sizeof(field), "anthropic-ratelimit-%s-reset", name);
    clock_rfc3339((unix_ns + headers->reset_ns + NS_PER_S - 1) / NS_PER_S, text);
    http_fields_add_str(fields, field, text);
}

static void put_openai(const char *name, const struct limit_headers *headers, struct http_fields *fields)
{
    uint64_t ms = (headers->reset_ns + NS_PER_MS - 1) / NS_PER_MS;
    char field[64];

    snprintf(field, sizeof(field), "x-ratelimit-limit-%s", name);
    http_fields_addf(fields, field, "%llu", (unsigned long long)headers->limit);
    snprintf(field, sizeof(field), "x-ratelimit-remaining-%s", name);
    http_fields_addf(fields, field, "%llu", (unsigned long long)headers->remaining);
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
    struct limit_headers headers[LIMIT_N_BUCKETS] = {0};
    struct limit_headers *all = &headers[LIMIT_TOKENS];

    limits_catch_up(account, now_ns);
    for (int kind = 0; kind < LIMIT_N_BUCKETS; kind++)
        limits_read_headers(account, (enum limit_kind)kind, now_ns, &headers[kind]);
    /* "tokens" reports the token limit with the smallest remaining share. */
    for (int kind = LIMIT_INPUT; kind <= LIMIT_OUTPUT; kind++)
        if (headers[kind].limit > 0 && (all->limit == 0 || headers[kind].share < all->share))
            *all = headers[kind];
    for (int kind = 0; kind < LIMIT_N_BUCKETS; kind++) {
        if (headers[kind].limit == 0)
            continue;
        if (dialect == LIMIT_MESSAGES)
            put_messages(limits_kind_names((enum limit_kind)kind)->name, &headers[kind], unix_ns, fields);
        else if (kind == LIMIT_REQUESTS || kind == LIMIT_TOKENS)
            put_openai(limits_kind_names((enum limit_kind)kind)->name, &headers[kind], fields);
    }
}
