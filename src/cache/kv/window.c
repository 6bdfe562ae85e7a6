/* SPDX-License-Identifier: Apache-2.0 */
/* See window.h.
 *
 * The hash of a windowed block is the full block's hash XOR the group's number and a mark, as in state.c. */
#include "cache/kv/window.h"

#include "base/bytes.h"
#include "cache/prefix/block_hash.h"

enum { WINDOW_MARK = 0x77696e64 };

uint32_t kv_window_groups(const struct kv_layout *layout)
{
    return layout->n_window_layers == 0 ? 0 : (layout->n_window_layers - 1) / layout->n_layers + 1;
}

uint32_t kv_window_first(const struct kv_layout *layout, uint32_t n_tokens)
{
    return n_tokens < layout->window ? 0 : (n_tokens - layout->window + 1) / layout->block_tokens;
}

uint32_t kv_window_kept(const struct kv_layout *layout, uint32_t n_tokens)
{
    return n_tokens == 0 ? 0 : kv_window_first(layout, n_tokens - 1 - (n_tokens - 1) % layout->block_tokens);
}

uint32_t kv_window_blocks(const struct kv_layout *layout)
{
    return layout->window <= 1 ? 0 : (layout->window - 2) / layout->block_tokens + 1;
}

uint32_t kv_window_needed(const struct kv_layout *layout, uint32_t n)
{
    uint32_t n_blocks = kv_window_blocks(layout);

    return kv_window_groups(layout) * (n < n_blocks ? n : n_blocks);
}

uint32_t kv_window_needed_run(const struct kv_layout *layout, uint32_t n_list)
{
    uint32_t n_groups = kv_window_groups(layout), n_blocks = kv_window_blocks(layout);
    uint32_t n = n_list / (1 + n_groups);

    if (n >= n_blocks)
        n = n_list - n_groups * n_blocks;
    return n + kv_window_needed(layout, n) == n_list ? n : 0;
}

/* A sequence holds at most the windowed blocks of two windows and of two more blocks.  The windows: at the end of
 * its cached prefix, and at its own end.  The blocks: the last whole one, and the one being filled. */
uint32_t kv_window_capacity(const struct kv_layout *layout, uint32_t n_pool_blocks)
{
    uint64_t n_groups = kv_window_groups(layout), n_held = 2 * (uint64_t)kv_window_blocks(layout) + 2;

    if (n_groups == 0)
        return n_pool_blocks;
    if (n_pool_blocks / (1 + n_groups) < n_held)
        return (uint32_t)(n_pool_blocks / (1 + n_groups));
    return (uint32_t)(n_pool_blocks - n_groups * n_held);
}

void kv_window_hashes(const struct block_hash *block, uint32_t n_groups, struct block_hash *hashes_out)
{
    for (uint32_t i = 0; i < n_groups; i++) {
        hashes_out[i] = *block;
        put_u32(hashes_out[i].bytes, get_u32(block->bytes) ^ WINDOW_MARK);
        put_u32(hashes_out[i].bytes + 4, get_u32(block->bytes + 4) ^ (i + 1));
    }
}

void kv_window_needed_hashes(const struct kv_layout *layout, const struct block_hash *hashes, uint32_t n,
                             struct block_hash *hashes_out)
{
    uint32_t n_groups = kv_window_groups(layout), n_blocks = kv_window_blocks(layout);

    for (uint32_t at = n < n_blocks ? 0 : n - n_blocks; n_groups > 0 && at < n; at++, hashes_out += n_groups)
        kv_window_hashes(&hashes[at], n_groups, hashes_out);
}

static bool window_has(const struct kv_layout *layout, const struct kv_window_source *source,
                       const struct block_hash *block)
{
    uint32_t n_groups = kv_window_groups(layout);

    for (uint32_t i = 0; i < n_groups; i++) {
        struct block_hash hash = *block;

        put_u32(hash.bytes, get_u32(block->bytes) ^ WINDOW_MARK);
        put_u32(hash.bytes + 4, get_u32(block->bytes + 4) ^ (i + 1));
        if (!source->has(source->arg, &hash))
            return false;
    }
    return true;
}

/* When a block is missing, continue with the prefix that ends before it, because all prefixes in between need it
 * too. */
uint32_t kv_window_run(const struct kv_layout *layout, const struct kv_window_source *source,
                       const struct block_hash *hashes, uint32_t n)
{
    uint32_t n_blocks = kv_window_blocks(layout), at = n;

    if (kv_window_groups(layout) == 0)
        return n;
    while (at > 0 && n - at < n_blocks) {
        at--;
        if (!window_has(layout, source, &hashes[at]))
            n = at;
    }
    return n;
}
