/* SPDX-License-Identifier: Apache-2.0 */
/* Content addresses of KV blocks: SHA-256 cut to 128 bits, keyed with the cluster's prefix key, chained over
 * (model fingerprint, tenant salt, parent, tokens), so that equal hashes mean equal prefixes and nobody
 * without the key can make or test one.  A full block only; the unfinished tail has no hash.
 *
 * Pure functions; any thread.  The byte strings that are hashed are given in block_hash.c. */
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

/* Hashes the full blocks of tokens; hashes_out has room for n_tokens / block_tokens.  Returns how many. */
size_t prefix_hash_chain(const struct prefix_key *key, const uint32_t *tokens, size_t n_tokens,
                         uint32_t block_tokens, struct block_hash *hashes_out);
/* One step: the hash of a block given its parent's (NULL for the first), whose place may be out.  Returns 0.
 */
int prefix_hash_block(const struct prefix_key *key, const struct block_hash *parent, const uint32_t *tokens,
                      uint32_t n_tokens, struct block_hash *out);

/* A prompt that begins publicly: the blocks that lie wholly in its first n_public tokens are hashed under the
 * public root, which all tenants share, and the rest under the tenant's.  n_public 0: nothing is shared. */
struct prefix_roots {
    struct prefix_key own, open;
    uint32_t n_public;
};

/* Returns 0. */
int prefix_roots_derive(const uint8_t cluster_key[32], const char *model_fingerprint, const char *tenant,
                        uint32_t n_public, struct prefix_roots *out);
/* A chain under way: hashes[0, n) are there, of the blocks that tokens begin with.  Both are the caller's. */
struct prefix_chain {
    const uint32_t *tokens;
    uint32_t block_tokens;
    struct block_hash *hashes;
    size_t n;
};

/* Goes on to n_blocks, for which hashes has room; the same roots all along.  Blocks that are there stay. */
void prefix_roots_extend(const struct prefix_roots *roots, struct prefix_chain *chain, size_t n_blocks);
/* As prefix_hash_chain(). */
size_t prefix_roots_chain(const struct prefix_roots *roots, const uint32_t *tokens, size_t n_tokens,
                          uint32_t block_tokens, struct block_hash *hashes_out);

bool block_hash_equal(const struct block_hash *a, const struct block_hash *b);

#endif
