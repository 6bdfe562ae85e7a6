/* SPDX-License-Identifier: Apache-2.0 */
/* API keys, known by their hashes only, and what they may.
 *
 * The file has one key per line: SHA-256 of the key as 64 hex digits, the tenant's name, (optional) a name
 * for the key, which appears in logs, and rules; or, with the word "tenant" instead of a hash, rules that all
 * keys of a tenant share.  Blank lines and lines that begin with '#' are skipped.  Names are
 * [A-Za-z0-9._-]{1,63}.
 *
 *     5994471abb01112afcc18159f6cc74b4f511b99806da59b3caf5a9c173cacfc5  team-a  laptop  rpm=60
 * expires=2027-01-31 tenant team-a  tpm_in=2000000 tpm_out=400k concurrent=64 models=qwen3-8b,llama-*
 *
 *     rpm=N        requests a minute              tpm=N        tokens a minute, read and written
 *     tpm_in=N     tokens read a minute           tpm_out=N    tokens written a minute
 *     concurrent=N requests at once               models=A,B*  these models only; '*' at an end: any rest
 *     expires=T    no longer from then on: YYYY-MM-DD, or YYYY-MM-DDTHH:MM:SSZ
 *     weight=N     share of the machine where tenants compete for it, 1 (the default) to 1000; a key's own
 * goes before its tenant's
 *
 * Numbers are whole, from 1, and may end in k or m (thousands, millions). */
#ifndef SERVE_ACCESS_AUTH_H
#define SERVE_ACCESS_AUTH_H

#include "base/bytes.h"
#include "base/fault.h"

#define AUTH_HASH_BYTES   32
#define AUTH_MODELS_BYTES 512

struct auth_keys;     /* immutable */
struct limit_account; /* serve/access/limits.h */

struct auth_key { /* who is asking */
    char tenant[64];
    char name[64];                 /* of the key; may be empty */
    size_t index;                  /* of the key among its keys */
    struct limit_account *account; /* where it is counted; filled in by limits_find */
};

struct auth_rule { /* 0 anywhere: no bound */
    uint64_t requests_per_min;
    uint64_t tokens_per_min;
    uint64_t input_tokens_per_min;
    uint64_t output_tokens_per_min;
    uint64_t concurrent;
    uint64_t weight; /* 1 to FAIR_MAX_WEIGHT; 0: not said */
    uint64_t expires_unix_s;
    char models[AUTH_MODELS_BYTES]; /* "a,b*"; empty: any */
};

struct auth_entry {      /* borrowed from its keys */
    const uint8_t *hash; /* [AUTH_HASH_BYTES]; NULL for a tenant's own line */
    const char *tenant;
    const char *name;
    const struct auth_rule *rule; /* NULL: none */
};

/* E_IO, E_FORMAT (the fault names file and line), E_AUTH when the file can be read by others, E_NOMEM. */
int auth_keys_load(const char *path, struct fault *fault, struct auth_keys **out);
/* The same from text; name stands for the file in messages. */
int auth_keys_parse(const char *name, struct bytes text, struct fault *fault, struct auth_keys **out);
void auth_keys_free(struct auth_keys *keys);
size_t auth_keys_count(const struct auth_keys *keys);

/* Key number index, or for the lines of tenants auth_tenant_at.  False beyond. */
bool auth_key_at(const struct auth_keys *keys, size_t index, struct auth_entry *out);
bool auth_tenant_at(const struct auth_keys *keys, size_t index, struct auth_entry *out);

/* One word "name=value" into the rule.  E_FORMAT with the fault. */
int auth_rule_parse(struct auth_rule *rule, const char *word, struct fault *fault);
bool auth_rule_allows(const struct auth_rule *rule, const char *model);

/* Whose key is it?  Takes the same time for every key, known or not.  0 or E_AUTH. */
int auth_check(const struct auth_keys *keys, struct bytes key, struct auth_key *out);
/* The line's first word for a key: 64 hex digits and NUL. */
void auth_key_hash(struct bytes key, char out[65]);

#endif
