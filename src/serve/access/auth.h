/* SPDX-License-Identifier: Apache-2.0 */
/* API keys and their rules: what each key may do.  The server knows only the hashes of keys.
 *
 * The file has one key per line: the SHA-256 of the key as 64 hex digits, the tenant's name, an optional
 * name of the key, and rules.  Logs show the key's name.  A line that begins with the word "tenant"
 * instead of a hash gives rules that all keys of that tenant share.  Blank lines and lines that begin
 * with '#' are skipped. Names are [A-Za-z0-9._-]{1,63}.
 *
 *     5994471abb01112afcc18159f6cc74b4f511b99806da59b3caf5a9c173cacfc5  team-a  laptop  rpm=60
 *     tenant team-a  expires=2027-01-31 tpm_in=2000000 tpm_out=400k concurrent=64 models=qwen3-8b,llama-*
 *
 *     rpm=N        requests per minute            tpm=N        tokens per minute, input plus output
 *     tpm_in=N     input tokens per minute        tpm_out=N    output tokens per minute
 *     concurrent=N requests at once               models=A,B*  only these models; '*' ends a prefix
 *     expires=T    the key is invalid from T on: YYYY-MM-DD, or YYYY-MM-DDTHH:MM:SSZ
 *     weight=N     weight among competing tenants, 1 (the default) to 1000; a key's own weight
 *                  overrides its tenant's
 *     class=NAME class of its requests (docs/routing.md), and the highest class that they may name
 *
 * Numbers are whole, from 1, and may end in k or m (thousands, millions).
 * How to change it: docs/changes-api.md, "A limit of each API key or tenant in a minute". */
#ifndef SERVE_ACCESS_AUTH_H
#define SERVE_ACCESS_AUTH_H

#include "base/bytes.h"
#include "base/fault.h"

#define AUTH_HASH_BYTES   32
#define AUTH_MODELS_BYTES 512
#define AUTH_CLASS_BYTES  32

struct auth_keys;     /* immutable */
struct limit_account; /* serve/access/limits.h */

struct auth_key { /* the authenticated caller */
    char tenant[64];
    char name[64];                 /* the key's name; may be empty */
    size_t index;                  /* the key's index in its struct auth_keys */
    struct limit_account *account; /* its usage counters; filled in by limits_find */
};

/* The limits of a minute: X(KIND, word of the rule, name in headers and metrics, noun in refusals).  limits_count()
 * in limits.c says what each counts.  A new row comes last, since routers exchange limits by their place. */
#define AUTH_LIMITS(X)                                                                                       \
    X(REQUESTS, "rpm", "requests", "requests")                                                               \
    X(TOKENS, "tpm", "tokens", "tokens")                                                                     \
    X(INPUT, "tpm_in", "input-tokens", "input tokens")                                                       \
    X(OUTPUT, "tpm_out", "output-tokens", "output tokens")

#define AUTH_LIMIT_NUMBER(kind, word, name, noun) LIMIT_##kind,
enum limit_kind { AUTH_LIMITS(AUTH_LIMIT_NUMBER) LIMIT_N_BUCKETS, LIMIT_CONCURRENT = LIMIT_N_BUCKETS };
#undef AUTH_LIMIT_NUMBER

struct auth_rule { /* 0 in any field: no limit */
    uint64_t per_min[LIMIT_N_BUCKETS];
    uint64_t concurrent;
    uint64_t weight; /* 1 to FAIR_MAX_WEIGHT; 0: not set */
    uint64_t expires_unix_s;
    char class_name[AUTH_CLASS_BYTES]; /* empty: not set */
    char models[AUTH_MODELS_BYTES];    /* "a,b*"; empty: any */
};

struct auth_entry {      /* borrowed from its struct auth_keys */
    const uint8_t *hash; /* [AUTH_HASH_BYTES]; NULL for a tenant's own line */
    const char *tenant;
    const char *name;
    const struct auth_rule *rule; /* NULL: the line has no rule */
};

/* Loads the key file.  E_IO; E_FORMAT (the fault names file and line); E_AUTH when other users can read
 * the file; E_NOMEM. */
int auth_keys_load(const char *path, struct fault *fault, struct auth_keys **out);
/* Parses the same format from text.  Messages use name in place of the file's path. */
int auth_keys_parse(const char *name, struct bytes text, struct fault *fault, struct auth_keys **out);
void auth_keys_free(struct auth_keys *keys);
const char *auth_limit_word(enum limit_kind kind); /* "rpm", "tpm", ... or "concurrent" */
size_t auth_keys_count(const struct auth_keys *keys);

/* Return the key, or the tenant's line, with this index.  False: the index is past the end. */
bool auth_key_at(const struct auth_keys *keys, size_t index, struct auth_entry *out);
bool auth_tenant_at(const struct auth_keys *keys, size_t index, struct auth_entry *out);

/* Parses one word "name=value" into the rule, which must not have it yet.  E_FORMAT with the fault. */
int auth_rule_parse(struct auth_rule *rule, const char *word, struct fault *fault);
bool auth_rule_allows(const struct auth_rule *rule, const char *model);

/* Finds the key's entry, in a time that does not depend on the number of keys. 0 or E_AUTH. */
int auth_check(const struct auth_keys *keys, struct bytes key, struct auth_key *out);
/* Writes the hash that begins a key's line: 64 hex digits and NUL. */
void auth_key_hash(struct bytes key, char out[65]);

#endif
