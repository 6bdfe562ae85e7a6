/* SPDX-License-Identifier: Apache-2.0 */
/* Usage of each key and tenant against its rule, and the check whether one more request fits.
 *
 *     limits_begin ──> limits_reserve ──> limits_settle
 *     one request,      its tokens at       its tokens as
 *     one at once       their maximum       really used
 *
 * The rest of a stream (limits_resume) was counted by the request that began it.  It counts as a request until the
 * stream is found, because a client can invent the stream's name.
 *
 * A request must fit both the key's own rule and its tenant's.  The counts belong to this process, or several
 * routers share them (limits_set_common()).  The caller passes the time (ns of any one clock).  A load of keys
 * makes new limits, swaps them in and frees the old ones.  Loop thread only, except limits_make and limits_free.
 *
 * More than 15 functions: loads and look-ups of keys use one half, requests the other. */
#ifndef SERVE_ACCESS_LIMITS_H
#define SERVE_ACCESS_LIMITS_H

#include "serve/access/auth.h"
#include "net/http/response.h"

struct limits;
struct common_limits; /* serve/access/common_limits.h */
struct limit_account; /* of a key or of a tenant; part of its limits */

struct limit_refusal {
    enum limit_kind kind;
    const char *tenant; /* whose limit refused, borrowed from the account; NULL: the key's own limit */
    uint64_t limit;
    uint32_t retry_after_s; /* 1..60 */
};

struct limit_lease { /* what one request holds; zeroed: nothing */
    struct limit_account *account;
    bool is_running;
    bool is_unknown; /* the rest of a stream that is not found yet: it counts as a request */
    uint64_t input_tokens, output_tokens; /* reserved */
};

enum limit_dialect { LIMIT_MESSAGES, LIMIT_OPENAI };

/* Makes the limits of these keys, which must outlive them.  Keys and tenants that are also in `old` (may be NULL)
 * share its usage. `old` stays in use meanwhile.  Any thread.  E_NOMEM. */
int limits_make(const struct auth_keys *keys, const struct limits *old, struct limits **out);
/* Shares the counts with other routers from now on, also after a load.  common outlives the limits. */
void limits_set_common(struct limits *limits, struct common_limits *common);
/* False: a running request uses them, so they cannot be freed yet. */
bool limits_are_idle(const struct limits *limits);
/* Only when idle.  Any thread.  Accepts NULL. */
void limits_free(struct limits *limits);
/* Fills in who->account (borrowed until the next load).  NULL: the key is not among the loaded keys. */
void limits_find(const struct limits *limits, struct auth_key *who);

/* A NULL account, here and below, is an anonymous request: no limit applies. */
/* True if a limit applies whose use at other routers is not known yet, because this router has just started. */
bool limits_await_others(const struct limit_account *account);
/* Opens a lease that counts nothing, and keeps the account valid, until limits_settle(). */
void limits_hold(struct limit_lease *lease, struct limit_account *account);
bool limits_expired(const struct limit_account *account, uint64_t unix_s);
bool limits_allow_model(const struct limit_account *account, const char *model);
/* Returns an identity for the tenant, valid while any of its requests runs.  NULL: no tenant. */
const void *limits_tenant(const struct limit_account *account);

/* Weight among competing tenants: the key's own, else its tenant's, else 1. */
uint32_t limits_weight(const struct limit_account *account);

/* The class of its requests: the key's own, else its tenant's, else "". */
const char *limits_class(const struct limit_account *account);

/* 0, or E_LIMIT with the refusal; then the lease holds only the account.  Give the lease to limits_settle
 * in either case. */
int limits_begin(struct limit_lease *lease, struct limit_account *account, uint64_t now_ns,
                 struct limit_refusal *refusal);
/* The same for the rest of a stream.  It counts as a request of the minute until limits_take_back().  E_LIMIT only far beyond
 * a limit: a tenth and one more than the requests of a minute, or twice the requests at once. */
int limits_resume(struct limit_lease *lease, struct limit_account *account, uint64_t now_ns,
                  struct limit_refusal *refusal);
/* The stream is found, or its search failed by no fault of the client: takes back the request that limits_resume() counted.
 * No effect on other leases. */
void limits_take_back(struct limit_lease *lease, uint64_t now_ns);
/* Reserves all of it or nothing.  E_LIMIT.  A request larger than a limit waits for the whole limit and
 * goes into debt. */
int limits_reserve(struct limit_lease *lease, uint64_t input_tokens, uint64_t output_tokens, uint64_t now_ns,
                   struct limit_refusal *refusal);
/* Ends the request: replaces the reservation, if there is one, by the real usage.  The lease is empty
 * afterwards. */
void limits_settle(struct limit_lease *lease, uint64_t input_tokens, uint64_t output_tokens, uint64_t now_ns);

/* Adds the rate-limit header fields for each limit of the account.  Of key and tenant, the tighter limit
 * is reported. */
void limits_put_fields(const struct limit_account *account, enum limit_dialect dialect, uint64_t now_ns,
                       uint64_t unix_ns, struct http_fields *fields);
/* "requests", "tokens", ... */
struct limit_names {
    const char *name; /* in metrics and headers: "input-tokens" */
    const char *noun; /* in refusals: "input tokens" */
};
const struct limit_names *limits_kind_names(enum limit_kind kind);

#endif
