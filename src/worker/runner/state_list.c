/* SPDX-License-Identifier: Apache-2.0 */
/* Prefix lists for models with recurrent state, used outside of the scheduler.  Such a prefix is useful only
 * with the state after its last block.  So a disk read and a prefix fetch both use one list:
 *
 *     the blocks of the longest run that has a state at its end, then the blocks of that state
 *
 * Both ends of a prefix fetch follow this rule, so an offer need not mention it.  Without recurrent state the
 * list is the run alone. */
#include <stdlib.h>
#include <string.h>

#include "cache/kv/pool_cache.h"
#include "cache/kv/state.h"
#include "worker/runner/state_list_priv.h"

uint32_t worker_state_blocks(const struct worker_engine *engine)
{
    return kv_layout_state_blocks(&engine->opts.engine.info.layout);
}

/* True if all blocks of the state after this block exist. */
static bool state_list_has(const struct state_source *source, const struct block_hash *block,
                           uint32_t n_state, struct block_hash *scratch)
{
    uint32_t n = 0;

    kv_state_hashes(block, n_state, scratch);
    while (n < n_state && source->has(source->arg, &scratch[n]))
        n++;
    return n == n_state;
}

struct block_hash *worker_state_list(const struct worker_engine *engine, const struct state_source *source,
                                     const struct block_hash *hashes, uint32_t n, uint32_t *n_out)
{
    uint32_t n_state = worker_state_blocks(engine), n_run = 0;
    struct block_hash *list = calloc((size_t)n + n_state, sizeof(*list));

    if (list == NULL)
        return NULL;
    while (n_run < n && source->has(source->arg, &hashes[n_run]))
        n_run++;
    while (n_run > 0 && !state_list_has(source, &hashes[n_run - 1], n_state, list))
        n_run--;
    if (n_run == 0) {
        free(list);
        return NULL;
    }
    memcpy(list, hashes, n_run * sizeof(*list));
    kv_state_hashes(&hashes[n_run - 1], n_state, list + n_run);
    *n_out = n_run + n_state;
    return list;
}

static bool state_list_in_pool(void *arg, const struct block_hash *hash)
{
    return kv_peek(arg, hash, 1) == 1;
}

uint32_t worker_state_hit(const struct worker_engine *engine, const struct block_hash *hashes, uint32_t n)
{
    struct state_source source = {.has = state_list_in_pool, .arg = engine->pool};
    uint32_t n_state = worker_state_blocks(engine), n_list = 0;
    struct block_hash *list;

    if (n_state == 0)
        return kv_peek(engine->pool, hashes, n);
    list = worker_state_list(engine, &source, hashes, n, &n_list);
    if (list == NULL)
        return 0;
    free(list);
    return n_list - n_state;
}

uint32_t worker_state_match(const struct worker_engine *engine, const struct block_hash *hashes, uint32_t n,
                            kv_block_id *ids_out)
{
    struct state_source source = {.has = state_list_in_pool, .arg = engine->pool};
    struct block_hash *list;
    uint32_t n_list = 0, got;

    if (worker_state_blocks(engine) == 0)
        return kv_match(engine->pool, hashes, n, ids_out);
    list = worker_state_list(engine, &source, hashes, n, &n_list);
    if (list == NULL)
        return 0;
    got = kv_match(engine->pool, list, n_list, ids_out);
    while (got < n_list && got > 0) /* a pin has just expired */
        kv_unref(engine->pool, ids_out[--got]);
    free(list);
    return got;
}
