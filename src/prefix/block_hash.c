/* SPDX-License-Identifier: Apache-2.0 */
/* Keyed, chained hashes of token blocks.
 *
 *   root     = BLAKE2s-256(key = cluster key,  "baton prefix 1" | len fingerprint | len tenant)
 *   hash[0]  = BLAKE2s-128(key = root,         16 zero bytes    | tokens of block 0)
 *   hash[i]  = BLAKE2s-128(key = root,         hash[i-1]        | tokens of block i)
 *
 * len is the text's length as u32 before its bytes, so that no pair of texts runs into another; tokens are
 * u32; all little endian.  Both lengths of BLAKE2s enter its parameter block, so a root can never be mistaken
 * for a block hash.  tests/unit/prefix/vectors.py writes the same down in ten lines of Python.
 *
 * Why keyed: a block hash answers the question "has this tenant sent this text here before?" to whoever can
 * compute it and watch a cache.  Without the cluster key nobody can, and hashes may travel and be logged. Why
 * BLAKE2s: a 32-token block costs three compressions, under a microsecond, with no GPU nor AES needed.
 *
 * The public root is that of a tenant whose name no tenant can have.  Where a public beginning ends, the
 * tenant's chain goes on from the public hash: its own key keeps it apart from everybody else's.
 *
 * One MAC context serves a whole chain: it is set up again with the key it already has for each block.
 */
#include "prefix/block_hash.h"

#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/params.h>
#include <string.h>

#include "base/bytes.h"
#include "base/err.h"

#define ROOT_LABEL  "baton prefix 1"
#define PUBLIC_NAME "\npublic"
#define HASH_BYTES  sizeof(((struct block_hash *)0)->bytes)
#define KEY_BYTES   sizeof(((struct prefix_key *)0)->bytes)

/* A keyed BLAKE2s with the given output size, or NULL. */
static EVP_MAC_CTX *mac_new(const uint8_t key[KEY_BYTES], size_t out_bytes)
{
    OSSL_PARAM params[] = {OSSL_PARAM_construct_size_t(OSSL_MAC_PARAM_SIZE, &out_bytes),
                           OSSL_PARAM_construct_end()};
    EVP_MAC *mac = EVP_MAC_fetch(NULL, OSSL_MAC_NAME_BLAKE2SMAC, NULL);
    EVP_MAC_CTX *ctx = mac ? EVP_MAC_CTX_new(mac) : NULL;

    EVP_MAC_free(mac); /* the context holds its own reference */
    if (ctx && !EVP_MAC_init(ctx, key, KEY_BYTES, params)) {
        EVP_MAC_CTX_free(ctx);
        return NULL;
    }
    return ctx;
}

static bool mac_text(EVP_MAC_CTX *ctx, const char *text)
{
    uint8_t len[4];

    put_u32(len, (uint32_t)strlen(text));
    return EVP_MAC_update(ctx, len, sizeof(len)) && EVP_MAC_update(ctx, (const uint8_t *)text, strlen(text));
}

int prefix_key_derive(const uint8_t cluster_key[32], const char *model_fingerprint, const char *tenant,
                      struct prefix_key *out)
{
    struct prefix_key root;
    EVP_MAC_CTX *ctx = mac_new(cluster_key, KEY_BYTES);

    if (ctx == NULL)
        return E_NOMEM;

    bool is_done = EVP_MAC_update(ctx, (const uint8_t *)ROOT_LABEL, strlen(ROOT_LABEL)) &&
                   mac_text(ctx, model_fingerprint) && mac_text(ctx, tenant) &&
                   EVP_MAC_final(ctx, root.bytes, NULL, KEY_BYTES);

    EVP_MAC_CTX_free(ctx);
    if (!is_done)
        return E_NOMEM;
    *out = root;
    return 0;
}

/* Tokens pass through a small buffer that fixes their byte order. */
static bool mac_tokens(EVP_MAC_CTX *ctx, const uint32_t *tokens, uint32_t n_tokens)
{
    uint8_t image[64 * 4];

    for (uint32_t from = 0; from < n_tokens;) {
        uint32_t n = n_tokens - from < 64 ? n_tokens - from : 64;

        for (uint32_t i = 0; i < n; i++)
            put_u32(image + 4 * (size_t)i, tokens[from + i]);
        if (!EVP_MAC_update(ctx, image, 4 * (size_t)n))
            return false;
        from += n;
    }
    return true;
}

/* ctx is set up with the root key and fresh. */
static bool mac_block(EVP_MAC_CTX *ctx, const struct block_hash *parent, const uint32_t *tokens,
                      uint32_t n_tokens, struct block_hash *out)
{
    static const struct block_hash none;
    struct block_hash hash;

    if (!EVP_MAC_update(ctx, (parent ? parent : &none)->bytes, HASH_BYTES) ||
        !mac_tokens(ctx, tokens, n_tokens) || !EVP_MAC_final(ctx, hash.bytes, NULL, HASH_BYTES))
        return false;
    *out = hash;
    return true;
}

/* Goes on with a chain of which n_done blocks are there already; returns how many are there then. */
static size_t chain_on(const struct prefix_key *key, const uint32_t *tokens, size_t n_blocks,
                       uint32_t block_tokens, struct block_hash *hashes, size_t n_done)
{
    EVP_MAC_CTX *ctx = n_blocks > n_done ? mac_new(key->bytes, HASH_BYTES) : NULL;
    size_t n_before = n_done;

    while (ctx && n_done < n_blocks) {
        const struct block_hash *parent = n_done ? &hashes[n_done - 1] : NULL;

        if (n_done > n_before && !EVP_MAC_init(ctx, NULL, 0, NULL))
            break;
        if (!mac_block(ctx, parent, tokens + n_done * block_tokens, block_tokens, &hashes[n_done]))
            break;
        n_done++;
    }
    EVP_MAC_CTX_free(ctx);
    return n_done;
}

size_t prefix_hash_chain(const struct prefix_key *key, const uint32_t *tokens, size_t n_tokens,
                         uint32_t block_tokens, struct block_hash *hashes_out)
{
    return chain_on(key, tokens, block_tokens ? n_tokens / block_tokens : 0, block_tokens, hashes_out, 0);
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

size_t prefix_roots_chain(const struct prefix_roots *roots, const uint32_t *tokens, size_t n_tokens,
                          uint32_t block_tokens, struct block_hash *hashes_out)
{
    size_t n_blocks = block_tokens ? n_tokens / block_tokens : 0;
    size_t n_open = block_tokens ? roots->n_public / block_tokens : 0, n_done;

    if (n_open > n_blocks)
        n_open = n_blocks;
    n_done = chain_on(&roots->open, tokens, n_open, block_tokens, hashes_out, 0);
    return n_done < n_open ? n_done
                           : chain_on(&roots->own, tokens, n_blocks, block_tokens, hashes_out, n_done);
}

int prefix_hash_block(const struct prefix_key *key, const struct block_hash *parent, const uint32_t *tokens,
                      uint32_t n_tokens, struct block_hash *out)
{
    EVP_MAC_CTX *ctx = mac_new(key->bytes, HASH_BYTES);
    bool is_done = ctx && mac_block(ctx, parent, tokens, n_tokens, out);

    EVP_MAC_CTX_free(ctx);
    return is_done ? 0 : E_NOMEM;
}

bool block_hash_equal(const struct block_hash *a, const struct block_hash *b)
{
    return memcmp(a->bytes, b->bytes, HASH_BYTES) == 0;
}
