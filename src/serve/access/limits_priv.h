/* SPDX-License-Identifier: Apache-2.0 */
/* Accounts and their usage, shared by limits.c and limits_fields.c. */
#ifndef SERVE_ACCESS_LIMITS_PRIV_H
#define SERVE_ACCESS_LIMITS_PRIV_H

#include <stdatomic.h>

#include "base/clock.h"
#include "base/hashmap.h"
#include "serve/access/common_limits.h"
#include "serve/access/limits.h"

#define MINUTE_NS (60 * NS_PER_S)

struct bucket {
    double used; /* the level at at_ns */
    uint64_t at_ns;
};

struct limit_usage {
    struct common_id common_id; /* on the wire, once has_common_id */
    bool has_common_id;
    struct usage_slab *slab;
    atomic_uint n_refs; /* number of accounts; a job thread drops the references of old limits */
    uint64_t n_running;
    struct bucket buckets[LIMIT_N_BUCKETS];
};

struct usage_slab {
    atomic_size_t n_refs; /* number of usages with accounts, and one for a running load */
    struct limit_usage items[];
};

struct limit_account {
    struct limits *limits;
    const struct auth_rule *rule; /* NULL: none */
    struct limit_usage *usage;
    struct limit_account *tenant; /* of a key; NULL: this account is a tenant */
    const char *name;             /* the tenant's */
    const uint8_t *hash;          /* the key's; NULL: a tenant */
};

struct limits {
    struct common_limits *common; /* NULL: the counts belong to this process */
    struct hashmap *keys;         /* by hash */
    struct hashmap *tenants;      /* by name */
    struct limit_account **by_index;
    size_t n;
    struct limit_account *accounts; /* [n_accounts] */
    size_t n_accounts;
    uint64_t n_leases;
};

uint64_t limits_limit_of(const struct auth_rule *rule, enum limit_kind kind);
double limits_used_at(const struct bucket *bucket, uint64_t limit, uint64_t now_ns);
/* Adds the spending of other routers to the account and its tenant. */
void limits_catch_up(const struct limit_account *account, uint64_t now_ns);

#endif
