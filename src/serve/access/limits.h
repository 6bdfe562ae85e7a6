/* SPDX-License-Identifier: Apache-2.0 */
/* What each key and tenant has used of its rule, and whether there is room for one request more.
 *
 *     limits_begin ──> limits_reserve ──> limits_settle
 *     one request,      its tokens, as      its tokens, as
 *     one at once       they may become     they became
 *
 * A key's own rule and its tenant's both hold.  Counts are of this process: several routers each allow the
 * whole.  Time is given by the caller (ns of any one clock).  Loop thread only. */
#ifndef SERVE_ACCESS_LIMITS_H
#define SERVE_ACCESS_LIMITS_H

#include "serve/access/auth.h"
#include "net/http/response.h"

enum limit_kind {
    LIMIT_REQUESTS,
    LIMIT_TOKENS, /* read and written */
    LIMIT_INPUT,
    LIMIT_OUTPUT,
    LIMIT_N_BUCKETS,
    LIMIT_CONCURRENT = LIMIT_N_BUCKETS
};

struct limits;
struct limit_account; /* of a key, or of a tenant; counted */

struct limit_refusal {
    enum limit_kind kind;
    const char *tenant; /* borrowed from the account, when it is the tenant's limit; NULL: the key's own */
    uint64_t limit;
    uint32_t retry_after_s; /* 1..60 */
};

struct limit_lease { /* what one request holds; zeroed: nothing */
    struct limit_account *account;
    bool is_running;
    uint64_t input_tokens, output_tokens; /* reserved */
};

enum limit_dialect { LIMIT_MESSAGES, LIMIT_OPENAI };

int limits_new(struct limits **out);
/* Leases may outlive it.  NULL is fine. */
void limits_free(struct limits *limits);
/* The rules of these keys from now on; what keys and tenants that stay have used is kept.  On failure
 * (E_NOMEM) the old ones stay. */
int limits_load(struct limits *limits, const struct auth_keys *keys);
/* Fills in who->account (borrowed until the next load); NULL when it is none of the keys loaded. */
void limits_find(const struct limits *limits, struct auth_key *who);

/* NULL for account, here and below: somebody without a key, whom nothing bounds. */
bool limits_expired(const struct limit_account *account, uint64_t unix_s);
bool limits_allow_model(const struct limit_account *account, const char *model);
/* Something that stands for the tenant while any request of it is under way; NULL: no tenant. */
const void *limits_tenant(const struct limit_account *account);

/* Its share where tenants compete: the key's own, else its tenant's, else 1. */
uint32_t limits_weight(const struct limit_account *account);

/* 0, or E_LIMIT with the refusal; then only the account is held.  Give the lease to limits_settle in any
 * case. */
int limits_begin(struct limit_lease *lease, struct limit_account *account, uint64_t now_ns,
                 struct limit_refusal *refusal);
/* All of it or nothing, E_LIMIT.  What is larger than a limit waits for the whole of it and goes into debt.
 */
int limits_reserve(struct limit_lease *lease, uint64_t input_tokens, uint64_t output_tokens, uint64_t now_ns,
                   struct limit_refusal *refusal);
/* The end: what was really used replaces what was reserved, if anything was.  The lease is empty after. */
void limits_settle(struct limit_lease *lease, uint64_t input_tokens, uint64_t output_tokens, uint64_t now_ns);

/* Adds the rate-limit fields for whatever bounds the account, the tighter of key and tenant. */
void limits_put_fields(const struct limit_account *account, enum limit_dialect dialect, uint64_t now_ns,
                       uint64_t unix_ns, struct http_fields *fields);
/* "requests", "tokens", ... */
const char *limits_kind_name(enum limit_kind kind);

#endif
