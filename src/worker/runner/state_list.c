/* SPDX-License-Identifier: Apache-2.0 */
/* Prefix lists for models with recurrent state or windowed blocks, used outside of the scheduler.  Such a prefix is
 * useful only with an end state: the state after its last block, or the windowed blocks of its last window.  So a disk
 * read and a prefix fetch both use one list:
 *
 *     the blocks of the longest run that has its end state, then the blocks of that end state
 *
 * Both ends of a prefix fetch follow this rule, so an offer need not mention it.  A fetch may begin after blocks
 * that its worker has.  Then the run counts from there, because the worker has the windowed blocks before it.
 * Models of other kinds have no end state, and the list is the run alone. */
#include <stdlib.h>
#include <string.h>

#include "cache/kv/pool_cache.h"
#include "cache/kv/state.h"
#include "cache/kv/window.h"
#include "worker/runner/state_list_priv.h"

static const struct kv_layout *state_list_layout(const struct worker_engine *engine)
{
    return &engine->opts.engine.info.layout;
}

bool worker_has_end_states(const struct worker_engine *engine)
{
    return kv_layout_state_blocks(state_list_layout(engine)) > 0 ||
           kv_window_groups(state_list_layout(engine)) > 0;
}

uint32_t worker_end_state_blocks(const struct worker_engine *engine, uint32_t n_run)
{
    return kv_layout_state_blocks(state_list_layout(engine)) +
           kv_window_needed(state_list_layout(engine), n_run);
}

uint32_t worker_end_state_run(const struct worker_engine *engine, uint32_t n_list)
{
    uint32_t n_state = kv_layout_state_blocks(state_list_layout(engine));

    return n_list <= n_state ? 0 : kv_window_needed_run(state_list_layout(engine), n_list - n_state);
}

void worker_end_state_hashes(const struct worker_engine *engine, const struct block_hash *hashes,
                             uint32_t n_run, struct block_hash *hashes_out)
{
    const struct kv_layout *layout = state_list_layout(engine);
    uint32_t n_state = kv_layout_state_blocks(layout);

    kv_state_hashes(&hashes[n_run - 1], n_state, hashes_out);
    kv_window_needed_hashes(layout, hashes, n_run, hashes_out + n_state);
}

bool worker_end_state_seal(struct worker_engine *engine, kv_block_id id, const struct block_hash *hash)
{
    bool is_reported = kv_window_groups(state_list_layout(engine)) == 0;

    if (is_reported)
        kv_seal(engine->pool, id, hash);
    else
        kv_seal_quiet(engine->pool, id, hash);
    return is_reported;
}

uint32_t worker_end_state_span(const struct worker_engine *engine)
{
    const struct kv_layout *layout = state_list_layout(engine);

    return kv_window_groups(layout) > 0 ? kv_window_blocks(layout) : kv_layout_state_blocks(layout) > 0;
}

void worker_end_state_key(const struct worker_engine *engine, const struct block_hash *block,
                          struct block_hash *key_out)
{
    if (kv_window_groups(state_list_layout(engine)) > 0)
        kv_window_hashes(block, 1, key_out);
    else
        kv_state_hashes(block, 1, key_out);
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
    const struct kv_layout *layout = state_list_layout(engine);
    const struct kv_window_source windowed = {.has = source->has, .arg = source->arg};
    uint32_t n_state = kv_layout_state_blocks(layout), n_run = 0;
    struct block_hash *list = calloc((size_t)n + worker_end_state_blocks(engine, n), sizeof(*list));

    if (list == NULL)
        return NULL;
    while (n_run < n && source->has(source->arg, &hashes[n_run]))
        n_run++;
    while (n_run > 0 && !state_list_has(source, &hashes[n_run - 1], n_state, list))
        n_run--;
    n_run = kv_window_run(layout, &windowed, hashes, n_run);
    if (n_run == 0) {
        free(list);
        return NULL;
    }
    memcpy(list, hashes, n_run * sizeof(*list));
    worker_end_state_hashes(engine, hashes, n_run, list + n_run);
    *n_out = n_run + worker_end_state_blocks(engine, n_run);
    return list;
}

static bool state_list_in_pool(void *arg, const struct block_hash *hash)
{
    return kv_peek(arg, hash, 1) == 1;
}

uint32_t worker_state_hit(const struct worker_engine *engine, const struct block_hash *hashes, uint32_t n)
{
    struct state_source source = {.has = state_list_in_pool, .arg = engine->pool};
    uint32_t n_list = 0;
    struct block_hash *list;

    if (!worker_has_end_states(engine))
        return kv_peek(engine->pool, hashes, n);
    list = worker_state_list(engine, &source, hashes, n, &n_list);
    if (list == NULL)
        return 0;
    free(list);
    return worker_end_state_run(engine, n_list);
}

uint32_t worker_state_match(const struct worker_engine *engine, const struct block_hash *hashes, uint32_t n,
                            kv_block_id *ids_out)
{
    struct state_source source = {.has = state_list_in_pool, .arg = engine->pool};
    struct block_hash *list;
    uint32_t n_list = 0, got;

    if (!worker_has_end_states(engine))
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
