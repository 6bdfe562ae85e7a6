/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks that left the pool after one use.  If such a block is computed again, that is its second use: where memory is
 * short, a prompt's blocks are evicted before the prompt comes back, and they are the ones that the remote tier is for.
 *
 * A table of the hashes' first words, each at one place: a new entry replaces the former one there. */
#include "cache/kv/pool_priv.h"

#include <stdlib.h>

#include "base/bytes.h"
#include "base/err.h"

enum { PAST_USES_PER_BLOCK = 16, PAST_USES_LEAST = 4096, PAST_USES_MOST = 1 << 20 };

int past_uses_init(struct past_uses *past, uint32_t n_blocks)
{
    size_t n = PAST_USES_LEAST;

    while (n < PAST_USES_MOST && n / PAST_USES_PER_BLOCK < n_blocks)
        n *= 2;
    past->words = calloc(n, sizeof(*past->words));
    past->mask = n - 1;
    return past->words != NULL ? 0 : E_NOMEM;
}

void past_uses_fini(struct past_uses *past)
{
    free(past->words);
}

void past_uses_add(struct past_uses *past, const struct block_hash *hash)
{
    uint64_t word = get_u64(hash->bytes);

    if (past->words != NULL)
        past->words[word & past->mask] = word;
}

bool past_uses_take(struct past_uses *past, const struct block_hash *hash)
{
    uint64_t word = get_u64(hash->bytes), *at;

    if (past->words == NULL || word == 0) /* 0: an empty place */
        return false;
    at = &past->words[word & past->mask];
    if (*at != word)
        return false;
    *at = 0;
    return true;
}
