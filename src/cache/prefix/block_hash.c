/* SPDX-License-Identifier: Apache-2.0 */
/* Keyed, chained hashes of token blocks.
 *
 *    root     = HMAC-SHA-256(cluster key,  "baton prefix 2" | len fingerprint | len tenant)
 *    hash[0]  = first half of SHA-256(root | 32 zero bytes | tokens of block 0 | 16 zero bytes)
 *    hash[i]  = first half of SHA-256(root | 32 zero bytes | tokens of block i | hash[i-1])
 *
 * len is the text's length as u32 before its bytes, so no two pairs of texts give equal bytes.  Tokens are
 * u32, little endian.  tests/unit/cache/prefix/vectors.py has the same in ten lines of Python.
 *
 * Why keyed: a block hash answers the question "has this tenant sent this text here before?" to anyone who
 * can compute it and watch a cache.  Only daemons with the cluster key can compute it, so hashes may travel and
 * be logged.  The root fills SHA-256's first block, so all later input goes through a function that only the
 * root's owner knows.  Half of the state is withheld, so without the root no chain can be continued from a
 * hash.
 *
 * Why SHA-256: processors have instructions for it.  Its compressions depend on each other, so latency
 * counts.  The parent comes last in a block to keep the dependent part short.  A block of 32 tokens is three
 * compressions.  The first two need only the tokens, and the processor begins them while it still finishes
 * the block before.
 *
 * The public root is the root of a tenant name that no tenant can have.  Where a public beginning ends, the
 * tenant's chain continues from the public hash; the tenant's own key keeps it apart from other tenants'
 * chains.
 *
 * The state after the root's block is computed once for a chain. */
#include "cache/prefix/block_hash.h"

#include <endian.h>
#include <string.h>

#include "base/bytes.h"
#include "cache/prefix/sha256_priv.h"

#define ROOT_LABEL  "baton prefix 2"
#define PUBLIC_NAME "\npublic"
#define HASH_BYTES  sizeof(((struct block_hash *)0)->bytes)
#define KEY_BYTES   sizeof(((struct prefix_key *)0)->bytes)
#define BLOCK_WORDS ((uint32_t)(SHA256_BLOCK_BYTES / sizeof(uint32_t)))
#define END_WORDS   ((uint32_t)(HASH_BYTES / 4 + 1 + 2)) /* the parent, SHA-256's end mark, the length */
#define INNER       0x36                                 /* HMAC's masks */
#define OUTER       0x5c

_Static_assert(KEY_BYTES == SHA256_BYTES, "a root is a key");

/* ---- roots ---- */

/* Begins a hash with the key under HMAC's mask; mask 0: with the plain key. */
static void block_hash_begin_keyed(struct sha256 *hash, const uint8_t key[SHA256_BYTES], uint8_t mask)
{
    uint8_t block[SHA256_BLOCK_BYTES];

    memset(block, mask, sizeof(block));
    for (size_t i = 0; i < SHA256_BYTES; i++)
        block[i] ^= key[i];
    sha256_init(hash);
    sha256_update(hash, block, sizeof(block));
    explicit_bzero(block, sizeof(block));
}

static void block_hash_add_text(struct sha256 *hash, const char *text)
{
    uint8_t len[4];

    put_u32(len, (uint32_t)strlen(text));
    sha256_update(hash, len, sizeof(len));
    sha256_update(hash, text, strlen(text));
}

int prefix_key_derive(const uint8_t cluster_key[32], const char *model_fingerprint, const char *tenant,
                      struct prefix_key *out)
{
    uint8_t inner[SHA256_BYTES];
    struct sha256 hash;

    block_hash_begin_keyed(&hash, cluster_key, INNER);
    sha256_update(&hash, ROOT_LABEL, strlen(ROOT_LABEL));
    block_hash_add_text(&hash, model_fingerprint);
    block_hash_add_text(&hash, tenant);
    sha256_final(&hash, inner);
    block_hash_begin_keyed(&hash, cluster_key, OUTER);
    sha256_update(&hash, inner, sizeof(inner));
    sha256_final(&hash, out->bytes);
    explicit_bzero(inner, sizeof(inner));
    explicit_bzero(&hash, sizeof(hash));
    return 0;
}

/* ---- blocks ---- */

struct keyed { /* the state after the root's block */
    sha256_compress compress;
    uint32_t state[8];
};

static void block_hash_keyed_init(struct keyed *keyed, const struct prefix_key *key)
{
    struct sha256 hash;

    block_hash_begin_keyed(&hash, key->bytes, 0);
    keyed->compress = hash.compress;
    memcpy(keyed->state, hash.state, sizeof(keyed->state));
    explicit_bzero(&hash, sizeof(hash));
}

static void block_hash_put_tokens(uint32_t *image, const uint32_t *tokens, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        image[i] = htole32(tokens[i]);
}

/* Hashes the last tokens, the parent and SHA-256's padding, as words, since all of them are whole words. */
static void block_hash_block(const struct keyed *keyed, const struct block_hash *parent,
                             const uint32_t *tokens, uint32_t n_tokens, struct block_hash *out)
{
    uint64_t n_bits = 8 * (SHA256_BLOCK_BYTES + 4 * (uint64_t)n_tokens + HASH_BYTES);
    uint32_t state[8], image[BLOCK_WORDS], end[2 * BLOCK_WORDS] = {0}, n_words;

    memcpy(state, keyed->state, sizeof(state));
    for (; n_tokens >= BLOCK_WORDS; n_tokens -= BLOCK_WORDS, tokens += BLOCK_WORDS) {
        block_hash_put_tokens(image, tokens, BLOCK_WORDS);
        keyed->compress(state, (const uint8_t *)image, 1);
    }
    block_hash_put_tokens(end, tokens, n_tokens);
    if (parent != NULL)
        memcpy(end + n_tokens, parent->bytes, HASH_BYTES);
    end[n_tokens + HASH_BYTES / 4] = htobe32(UINT32_C(1) << 31);
    n_words = n_tokens + END_WORDS > BLOCK_WORDS ? 2 * BLOCK_WORDS : BLOCK_WORDS;
    end[n_words - 2] = htobe32((uint32_t)(n_bits >> 32));
    end[n_words - 1] = htobe32((uint32_t)n_bits);
    keyed->compress(state, (const uint8_t *)end, n_words / BLOCK_WORDS);
    for (size_t i = 0; i < HASH_BYTES / 4; i++)
        state[i] = htobe32(state[i]);
    memcpy(out->bytes, state, HASH_BYTES);
}

/* Extends a chain to n_blocks under one key. */
static void block_hash_chain_on(const struct prefix_key *key, struct prefix_chain *chain, size_t n_blocks)
{
    struct keyed keyed;

    if (chain->n >= n_blocks)
        return;
    block_hash_keyed_init(&keyed, key);
    for (; chain->n < n_blocks; chain->n++)
        block_hash_block(&keyed, chain->n > 0 ? &chain->hashes[chain->n - 1] : NULL,
                         chain->tokens + chain->n * chain->block_tokens, chain->block_tokens,
                         &chain->hashes[chain->n]);
    explicit_bzero(&keyed, sizeof(keyed));
}

size_t prefix_hash_chain(const struct prefix_key *key, const uint32_t *tokens, size_t n_tokens,
                         uint32_t block_tokens, struct block_hash *hashes_out)
{
    size_t n_blocks = block_tokens ? n_tokens / block_tokens : 0;
    struct prefix_chain chain = {.tokens = tokens, .block_tokens = block_tokens, .hashes = hashes_out};

    block_hash_chain_on(key, &chain, n_blocks);
    return n_blocks;
}

int prefix_roots_derive(const uint8_t cluster_key[32], const char *model_fingerprint, const char *tenant,
                        uint32_t n_public, struct prefix_roots *out)
{
    struct prefix_roots roots = {.n_public = n_public};
    int rc = prefix_key_derive(cluster_key, model_fingerprint, tenant, &roots.own);

    if (rc == 0 && n_public > 0)
        rc = prefix_key_derive(cluster_key, model_fingerprint, PUBLIC_NAME, &roots.open);
    if (rc == 0)
        *out = roots;
    return rc;
}

void prefix_roots_extend(const struct prefix_roots *roots, struct prefix_chain *chain, size_t n_blocks)
{
    size_t n_open = roots->n_public / chain->block_tokens;

    if (n_open > n_blocks)
        n_open = n_blocks;
    block_hash_chain_on(&roots->open, chain, n_open);
    block_hash_chain_on(&roots->own, chain, n_blocks);
}

size_t prefix_roots_chain(const struct prefix_roots *roots, const uint32_t *tokens, size_t n_tokens,
                          uint32_t block_tokens, struct block_hash *hashes_out)
{
    struct prefix_chain chain = {.tokens = tokens, .block_tokens = block_tokens, .hashes = hashes_out};

    if (block_tokens > 0)
        prefix_roots_extend(roots, &chain, n_tokens / block_tokens);
    return chain.n;
}

int prefix_hash_block(const struct prefix_key *key, const struct block_hash *parent, const uint32_t *tokens,
                      uint32_t n_tokens, struct block_hash *out)
{
    struct keyed keyed;

    block_hash_keyed_init(&keyed, key);
    block_hash_block(&keyed, parent, tokens, n_tokens, out);
    explicit_bzero(&keyed, sizeof(keyed));
    return 0;
}

bool block_hash_equal(const struct block_hash *a, const struct block_hash *b)
{
    return memcmp(a->bytes, b->bytes, HASH_BYTES) == 0;
}
