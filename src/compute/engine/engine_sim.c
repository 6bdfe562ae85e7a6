/* SPDX-License-Identifier: Apache-2.0 */
/* The simulated engine.
 *
 * KV. A chain value runs along a sequence: chain[p] = mix(chain[p-1], p, token[p]). Every row (layer, K or
 * V, head, token) holds a stream of words. The stream is keyed by the token's chain value and the row's
 * own place. The first row of a token, layer 0 K head 0, begins with a header:
 *
 *     | chain, 8 bytes | token, 4 bytes | words ...                  words ...   (all other rows)
 *
 * So checking a position needs nothing but the arena. The header gives chain and token; the chain must
 * follow from the position before; each byte of each layer must follow from the chain. A lost, stale or
 * shifted byte breaks a row. A block of another sequence breaks the chain.
 *
 * A step checks all positions before the fed ones, as attention would read them, unless the engine itself fed the
 * sequence up to there in the same blocks. Then it checks the last of these blocks, and a few positions of the
 * others, which the next step continues. So KV that arrives or moves is checked whole before its first use, and the
 * time of a step does not grow with the context.
 *
 * Tokens come from engine_sim_draw.c.
 *
 * Time. The engine sleeps once per layer, before on_layer, so that senders see the layers come one after
 * another. What the checks take is part of the step's time. */
#include "compute/engine/engine_sim.h"

#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "compute/engine/engine_sim_priv.h"

#define HEADER_BYTES   12
#define ROW_BYTES_MIN  16
#define EMBEDDING_DIMS 64
#define CHECKED_AGAIN  16 /* positions in each step of a sequence that goes on */
#define CHAIN_BEGIN    UINT64_C(0x6261746f6e2d6b76)

/* Who fed the end of a block: the sequence with this tag and these blocks may go on at positions [from, to]. */
struct sim_fed {
    uint64_t tag, blocks_hash;
    uint32_t from, to;
    uint32_t checked_to; /* the next step checks again from here */
};

struct sim {
    struct engine_sim_opts opts;
    size_t row_bytes;
    size_t half_bytes;
    uint64_t *chains; /* [max_batch_tokens] chain of each fed token, in item order; NULL without an arena */
    struct sim_fed *fed; /* [n_blocks]; NULL without an arena */
};

static int sim_step(void *self, const struct engine_batch *batch, struct sample_result *results_out);
static const float *sim_logits(void *self, uint32_t index);
static void sim_free(void *self);

static const struct engine_ops sim_ops = {.step = sim_step, .logits = sim_logits, .free = sim_free};

static int engine_sim_opts_check(const struct engine_sim_opts *opts)
{
    const struct kv_layout *layout = &opts->layout;

    if (opts->context_length == 0 || opts->max_batch_tokens == 0 || layout->n_layers == 0 ||
        layout->block_tokens == 0)
        return E_INVAL;
    if (opts->first_text_id >= opts->vocab_size || opts->vocab_size == TOKEN_NONE)
        return E_INVAL;
    if (opts->vocab_size - opts->first_text_id < 2) /* one may be the stop id */
        return E_INVAL;
    if (opts->kv_arena && (layout->n_kv_heads == 0 || opts->n_blocks == 0 || layout->v_dim != layout->k_dim ||
                           kv_layout_row_bytes(layout->type, layout->k_dim) < ROW_BYTES_MIN))
        return E_INVAL;
    return 0;
}

int engine_sim_new(const struct engine_sim_opts *opts, struct engine *out)
{
    if (engine_sim_opts_check(opts) < 0)
        return E_INVAL;

    struct sim *sim = calloc(1, sizeof(*sim));
    if (sim == NULL)
        return E_NOMEM;
    sim->opts = *opts;
    if (opts->kv_arena) {
        sim->row_bytes = kv_layout_row_bytes(opts->layout.type, opts->layout.k_dim);
        sim->half_bytes = kv_layout_k_bytes(&opts->layout);
        sim->chains = calloc(opts->max_batch_tokens, sizeof(*sim->chains));
        sim->fed = calloc(opts->n_blocks, sizeof(*sim->fed));
        if (sim->chains == NULL || sim->fed == NULL) {
            sim_free(sim);
            return E_NOMEM;
        }
    }

    *out = (struct engine){
        .ops = &sim_ops,
        .self = sim,
        .info = {.name = "sim",
                 .vocab_size = opts->vocab_size,
                 .context_length = opts->context_length,
                 .max_batch_tokens = opts->max_batch_tokens,
                 .max_draws = opts->max_batch_tokens,
                 .hidden = EMBEDDING_DIMS,
                 .layout = opts->layout,
                 .numerics_id = CHAIN_BEGIN},
    };
    return 0;
}

static void sim_free(void *self)
{
    struct sim *sim = self;

    free(sim->chains);
    free(sim->fed);
    free(sim);
}

static const float *sim_logits(void *self, uint32_t index)
{
    return NULL;
}

/* ---- KV ---- */

static uint64_t engine_sim_mix(uint64_t x)
{
    x = (x ^ x >> 32) * UINT64_C(0xd6e8feb86659fd93);
    x = (x ^ x >> 32) * UINT64_C(0xd6e8feb86659fd93);
    return x ^ x >> 32;
}

static uint64_t chain_next(uint64_t chain, uint32_t position, token_id token)
{
    return engine_sim_mix(chain ^ engine_sim_mix((uint64_t)position << 32 | token));
}

/* Row number: half x heads + head; half 0 is K, 1 is V. */
static uint8_t *row_at(const struct sim *sim, uint32_t layer, uint32_t row, kv_block_id block, uint32_t slot)
{
    const struct kv_layout *layout = &sim->opts.layout;
    size_t half = row / layout->n_kv_heads, head = row % layout->n_kv_heads;

    return (uint8_t *)sim->opts.kv_arena + kv_layout_offset(layout, sim->opts.n_blocks, layer, block) +
           half * sim->half_bytes + (head * layout->block_tokens + slot) * sim->row_bytes;
}

static uint64_t row_word(uint64_t chain, uint32_t layer, uint32_t row, size_t word)
{
    return engine_sim_mix(chain + ((uint64_t)layer << 44 | (uint64_t)row << 24 | word));
}

static size_t row_begin(uint32_t layer, uint32_t row)
{
    return layer == 0 && row == 0 ? HEADER_BYTES : 0;
}

static void row_write(const struct sim *sim, uint8_t *at, uint64_t chain, uint32_t layer, uint32_t row)
{
    size_t i = row_begin(layer, row);
    uint8_t word[8];

    for (size_t n = 0; i < sim->row_bytes; n++, i += 8) {
        put_u64(word, row_word(chain, layer, row, n));
        memcpy(at + i, word, sim->row_bytes - i < 8 ? sim->row_bytes - i : 8);
    }
}

static bool row_is_right(const struct sim *sim, const uint8_t *at, uint64_t chain, uint32_t layer,
                         uint32_t row)
{
    size_t i = row_begin(layer, row);
    uint8_t word[8];

    for (size_t n = 0; i < sim->row_bytes; n++, i += 8) {
        put_u64(word, row_word(chain, layer, row, n));
        if (memcmp(at + i, word, sim->row_bytes - i < 8 ? sim->row_bytes - i : 8) != 0)
            return false;
    }
    return true;
}

/* Writes one layer of one token. */
static void kv_write(const struct sim *sim, uint32_t layer, const struct engine_item *item, uint32_t i,
                     uint64_t chain)
{
    uint32_t position = item->position + i, block_tokens = sim->opts.layout.block_tokens;
    kv_block_id block = item->blocks[position / block_tokens];
    uint32_t slot = position % block_tokens;

    for (uint32_t row = 0; row < 2 * sim->opts.layout.n_kv_heads; row++) {
        uint8_t *at = row_at(sim, layer, row, block, slot);

        if (layer == 0 && row == 0) {
            put_u64(at, chain);
            put_u32(at + 8, item->tokens[i]);
        }
        row_write(sim, at, chain, layer, row);
    }
}

/* The chain value that the position continues, as it is stored. */
static uint64_t chain_before(const struct sim *sim, const kv_block_id *blocks, uint32_t position)
{
    uint32_t block_tokens = sim->opts.layout.block_tokens;

    if (position == 0)
        return CHAIN_BEGIN;
    return get_u64(row_at(sim, 0, 0, blocks[(position - 1) / block_tokens], (position - 1) % block_tokens));
}

static int kv_damaged(uint32_t position, uint32_t layer, kv_block_id block)
{
    log_error("sim_kv_damaged", LOG_U64("position", position), LOG_U64("layer", layer),
              LOG_U64("block", block));
    return E_INTERNAL;
}

/* Checks positions [from, to) against each other and the position before, and against the tokens when tokens is not
 * NULL. */
static int kv_check_part(const struct sim *sim, const kv_block_id *blocks, uint32_t from, uint32_t to,
                         const token_id *tokens)
{
    const struct kv_layout *layout = &sim->opts.layout;
    uint64_t chain = chain_before(sim, blocks, from);

    for (uint32_t position = from; position < to; position++) {
        kv_block_id block = blocks[position / layout->block_tokens];
        uint32_t slot = position % layout->block_tokens;
        const uint8_t *header = row_at(sim, 0, 0, block, slot);
        token_id token = tokens ? tokens[position] : get_u32(header + 8);

        chain = chain_next(chain, position, token);
        if (get_u64(header) != chain || get_u32(header + 8) != token)
            return kv_damaged(position, 0, block);
        for (uint32_t layer = 0; layer < layout->n_layers; layer++) {
            for (uint32_t row = 0; row < 2 * layout->n_kv_heads; row++) {
                if (!row_is_right(sim, row_at(sim, layer, row, block, slot), chain, layer, row))
                    return kv_damaged(position, layer, block);
            }
        }
    }
    return 0;
}

int engine_sim_verify(const struct engine *engine, const token_id *tokens, uint32_t n_tokens,
                      const kv_block_id *blocks)
{
    const struct sim *sim = engine->self;

    ASSERT(engine->ops == &sim_ops);
    return sim->opts.kv_arena ? kv_check_part(sim, blocks, 0, n_tokens, tokens) : E_UNSUPPORTED;
}

/* ---- steps ---- */

static uint64_t step_cost_ns(const struct sim *sim, const struct engine_batch *batch)
{
    uint64_t cost_ns = sim->opts.step_ns;

    for (uint32_t i = 0; i < batch->n_items; i++) {
        const struct engine_item *item = &batch->items[i];
        bool is_decode = item->n_tokens == 1 + item->n_drafts && item->wants_token;

        cost_ns += is_decode ? item->n_tokens * sim->opts.decode_seq_ns
                             : item->n_tokens * sim->opts.prefill_token_ns;
    }
    return cost_ns;
}

/* Sleeps until the step has taken to_ns; it had taken from_ns by the model before. */
static void pass_time(const struct sim *sim, uint64_t began_ns, uint64_t from_ns, uint64_t to_ns)
{
    uint64_t took_ns;

    if (to_ns == from_ns)
        return;
    if (sim->opts.sleep_ns) {
        sim->opts.sleep_ns(sim->opts.sleep_arg, to_ns - from_ns);
        return;
    }
    took_ns = clock_now_ns() - began_ns;
    if (took_ns < to_ns)
        clock_sleep_ns(to_ns - took_ns);
}

static uint64_t blocks_add(uint64_t hash, kv_block_id block)
{
    return engine_sim_mix(hash ^ engine_sim_mix(block));
}

/* Notes that the item's sequence may go on after any of the tokens that it feeds: a step may reject draft tokens. */
static void fed_note(const struct sim *sim, const struct engine_item *item, uint32_t checked_to)
{
    uint32_t block_tokens = sim->opts.layout.block_tokens, end = item->position + item->n_tokens;
    uint64_t hash = 0;

    for (uint32_t i = 0; i * block_tokens < end; i++) {
        hash = blocks_add(hash, item->blocks[i]);
        if (i >= item->position / block_tokens)
            sim->fed[item->blocks[i]] = (struct sim_fed){.tag = item->tag,
                                                         .blocks_hash = hash,
                                                         .from = item->position + 1,
                                                         .to = end,
                                                         .checked_to = checked_to};
    }
}

/* True if this engine fed the item's sequence up to its position, in these blocks. */
static bool fed_goes_on(const struct sim *sim, const struct engine_item *item)
{
    uint32_t last = (item->position - 1) / sim->opts.layout.block_tokens;
    const struct sim_fed *fed = &sim->fed[item->blocks[last]];
    uint64_t hash = 0;

    if (item->tag == 0 || fed->tag != item->tag || item->position < fed->from || item->position > fed->to)
        return false;
    for (uint32_t i = 0; i <= last; i++)
        hash = blocks_add(hash, item->blocks[i]);
    return hash == fed->blocks_hash;
}

/* Checks the KV before the item's position. */
static int item_check(const struct sim *sim, const struct engine_item *item)
{
    uint32_t n = item->position, last_begin = 0, again = 0, again_end = 0;
    int rc = 0;

    if (n > 0 && fed_goes_on(sim, item)) {
        uint32_t last = (n - 1) / sim->opts.layout.block_tokens;

        last_begin = last * sim->opts.layout.block_tokens;
        again = sim->fed[item->blocks[last]].checked_to;
        again = again < last_begin ? again : 0;
        again_end = again + CHECKED_AGAIN < last_begin ? again + CHECKED_AGAIN : last_begin;
        rc = kv_check_part(sim, item->blocks, again, again_end, NULL);
    }
    if (rc == 0)
        rc = kv_check_part(sim, item->blocks, last_begin, n, NULL);
    if (rc == 0)
        fed_note(sim, item, again_end);
    return rc;
}

/* Checks the KV before the items' positions and computes the chain values of the tokens that they feed. */
static int step_begin(const struct sim *sim, const struct engine_batch *batch)
{
    uint32_t n_fed = 0;

    for (uint32_t i = 0; i < batch->n_items; i++) {
        const struct engine_item *item = &batch->items[i];
        uint64_t end = (uint64_t)item->position + item->n_tokens;

        ASSERT(item->n_tokens > 0 && item->n_tokens <= sim->opts.max_batch_tokens - n_fed);
        ASSERT(end <= sim->opts.context_length);
        ASSERT(item->n_drafts < item->n_tokens && (item->n_drafts == 0 || item->wants_token));
        ASSERT(end <= (uint64_t)item->n_blocks * sim->opts.layout.block_tokens);
        if (sim->chains) {
            uint64_t chain = chain_before(sim, item->blocks, item->position);
            int code = item_check(sim, item);

            if (code < 0)
                return code;
            for (uint32_t t = 0; t < item->n_tokens; t++)
                sim->chains[n_fed + t] = chain = chain_next(chain, item->position + t, item->tokens[t]);
        }
        n_fed += item->n_tokens;
    }
    return 0;
}

static void layer_write(const struct sim *sim, const struct engine_batch *batch, uint32_t layer)
{
    const uint64_t *chain = sim->chains;

    for (uint32_t i = 0; chain && i < batch->n_items; i++) {
        for (uint32_t t = 0; t < batch->items[i].n_tokens; t++)
            kv_write(sim, layer, &batch->items[i], t, *chain++);
    }
}

static void engine_sim_draw_token(const struct sim *sim, const struct engine_item *item,
                                  struct sample_result *results_out)
{
    const token_id *drafts = item->tokens + item->n_tokens - item->n_drafts;
    uint32_t n_sure = item->n_tokens - item->n_drafts, n_pushed = 0;
    bool goes_on = item->wants_token;

    for (uint32_t i = 0; i <= item->n_drafts; i++) {
        results_out[i] = (struct sample_result){.id = TOKEN_NONE};
        if (goes_on)
            sim_draw(&sim->opts, item, n_sure + i, &results_out[i]);
        goes_on = goes_on && i < item->n_drafts && results_out[i].id == drafts[i] &&
                  sample_state_push(item->state, drafts[i]) == 0;
        n_pushed += goes_on;
    }
    sample_state_pop(item->state, drafts, n_pushed);
    for (uint32_t i = 0; i < item->n_scores; i++)
        sim_score(&sim->opts, item, item->score_at + i + 1, &item->scores[i]);
}

/* Writes numbers from -1 to 1, derived from the last token and its position. */
static void engine_sim_embed(const struct engine_item *item)
{
    uint64_t seed =
        chain_next(CHAIN_BEGIN, item->position + item->n_tokens, item->tokens[item->n_tokens - 1]);

    for (uint32_t i = 0; i < EMBEDDING_DIMS; i++)
        item->embedding[i] = (float)(int32_t)(engine_sim_mix(seed + i) >> 32) * 0x1p-31f;
}

static int sim_step(void *self, const struct engine_batch *batch, struct sample_result *results_out)
{
    const struct sim *sim = self;
    uint32_t n_layers = sim->opts.layout.n_layers;
    uint64_t cost_ns = step_cost_ns(sim, batch), began_ns = sim->opts.sleep_ns ? 0 : clock_now_ns();
    int code = step_begin(sim, batch);

    if (code < 0)
        return code;
    if (batch->on_layer == NULL)
        pass_time(sim, began_ns, 0, cost_ns);
    for (uint32_t layer = 0; layer < n_layers; layer++) {
        if (batch->is_given_up && atomic_load_explicit(batch->is_given_up, memory_order_relaxed))
            return E_CANCELLED;
        layer_write(sim, batch, layer);
        if (batch->on_layer) {
            pass_time(sim, began_ns, cost_ns * layer / n_layers, cost_ns * (layer + 1) / n_layers);
            batch->on_layer(batch->on_layer_arg, layer);
        }
    }
    for (uint32_t i = 0; i < batch->n_items; i++) {
        if (batch->items[i].embedding != NULL)
            engine_sim_embed(&batch->items[i]);
        engine_sim_draw_token(sim, &batch->items[i], results_out);
        results_out += 1 + batch->items[i].n_drafts;
    }
    return 0;
}
