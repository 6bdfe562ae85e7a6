/* SPDX-License-Identifier: Apache-2.0 */
/* Content addresses of KV blocks: SHA-256 truncated to 128 bits, keyed with the cluster's prefix key, chained
 * over (model fingerprint, tenant salt, parent, tokens).  Equal hashes mean equal prefixes, and only a daemon
 * with the key can make or test one.  Only a full block has a hash; the unfinished tail has none.
 *
 * Pure functions; any thread.  block_hash.c gives the byte strings that are hashed. */
#ifndef CACHE_PREFIX_BLOCK_HASH_H
#define CACHE_PREFIX_BLOCK_HASH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct block_hash {
    uint8_t bytes[16];
};

struct prefix_key { /* the cluster's key with model and tenant mixed in: the root of one chain family */
    uint8_t bytes[32];
};

/* Derives the root from the cluster key, the model fingerprint (hex text) and the tenant's salt (any text).
 * Returns 0. */
int prefix_key_derive(const uint8_t cluster_key[32], const char *model_fingerprint, const char *tenant,
                      struct prefix_key *out);

/* Hashes the full blocks of tokens.  hashes_out has room for n_tokens / block_tokens.  Returns the number of
 * hashes. */
size_t prefix_hash_chain(const struct prefix_key *key, const uint32_t *tokens, size_t n_tokens,
                         uint32_t block_tokens, struct block_hash *hashes_out);
/* One step: the hash of a block after its parent's (NULL for the first).  parent may be out.  Returns 0. */
int prefix_hash_block(const struct prefix_key *key, const struct block_hash *parent, const uint32_t *tokens,
                      uint32_t n_tokens, struct block_hash *out);

/* The roots of a prompt with a public beginning.  Blocks that lie wholly in its first n_public tokens are
 * hashed under the public root, which all tenants share.  The rest is hashed under the tenant's root.
 * n_public 0: no block is public. */
struct prefix_roots {
    struct prefix_key own, open;
    uint32_t n_public;
};

/* Returns 0. */
int prefix_roots_derive(const uint8_t cluster_key[32], const char *model_fingerprint, const char *tenant,
                        uint32_t n_public, struct prefix_roots *out);
/* A chain in progress: hashes[0, n) of the first n blocks of tokens are done.  The caller owns both. */
struct prefix_chain {
    const uint32_t *tokens;
    uint32_t block_tokens;
    struct block_hash *hashes;
    size_t n;
};

/* Extends the chain to n_blocks; hashes has room for them.  Every call has the same roots.  Hashes that are
 * done stay. */
void prefix_roots_extend(const struct prefix_roots *roots, struct prefix_chain *chain, size_t n_blocks);
/* As prefix_hash_chain(). */
size_t prefix_roots_chain(const struct prefix_roots *roots, const uint32_t *tokens, size_t n_tokens,
                          uint32_t block_tokens, struct block_hash *hashes_out);

bool block_hash_equal(const struct block_hash *a, const struct block_hash *b);

#endif
