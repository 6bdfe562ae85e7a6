/* SPDX-License-Identifier: Apache-2.0 */
/* The KV of an MTP head in blocks of the pool.  The scheduler is a fake with one sequence at each end. */
#include "tests/unit/check.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "worker/runner/head_kv_priv.h"

enum { BLOCK = 4, LAYERS = 3, OWN = 16, POOL = 40, HIDDEN = 10, PROMPT = 15 };

static const struct kv_layout layout = {
    .n_layers = LAYERS, .n_kv_heads = 1, .k_dim = 6, .v_dim = 6, .block_tokens = BLOCK, .type = KV_F32};

static struct end {
    struct worker_engine engine;
    struct sched_head head; /* of the fake's sequence */
    bool has_head;
    kv_block_id own[OWN]; /* its blocks in the head's arena */
    float row[HIDDEN];
} sender, receiver;

static struct seq_spec spec = {.n_tokens = PROMPT};
static uint32_t n_departed;

/* ---- the scheduler ---- */

const struct seq_spec *seq_spec(const struct seq *seq)
{
    return &spec;
}

bool sched_head(const struct sched *sched, const struct seq *seq, struct sched_head *out)
{
    *out = sender.head;
    return sender.has_head;
}

void sched_head_departed(struct sched *sched, struct seq *seq)
{
    n_departed++;
}

int sched_head_arrive(struct sched *sched, struct seq *seq, uint32_t first, struct sched_head *out)
{
    if (first == 0 || first >= PROMPT)
        return E_INVAL;
    if (!receiver.has_head)
        return E_KV_FULL;
    *out = receiver.head = (struct sched_head){
        .first = first, .n_tokens = PROMPT - first, .blocks = receiver.own, .row = receiver.row};
    return 0;
}

/* ---- two workers ---- */

static void open_end(struct end *end, uint32_t first_own)
{
    struct worker_engine_opts *opts = &end->engine.opts;
    struct kv_pool_opts pool = {.n_blocks = POOL, .block_tokens = BLOCK};
    static const struct engine_ops ops;

    memset(end, 0, sizeof(*end));
    opts->engine.info.layout = opts->draft.info.layout = layout;
    opts->draft.info.layout.n_layers = 1;
    opts->draft.info.hidden = HIDDEN;
    opts->draft.info.is_mtp = true;
    opts->draft.ops = &ops;
    opts->n_blocks = POOL;
    opts->draft_blocks = OWN;
    opts->max_seqs = 4;
    opts->arena.base = calloc(POOL, kv_layout_block_bytes(&layout));
    opts->draft_arena.base = calloc(OWN, kv_layout_layer_block_bytes(&layout));
    assert_int_equal(kv_pool_new(&pool, &end->engine.pool), 0);
    for (uint32_t i = 0; i < OWN; i++)
        end->own[i] = (first_own + 5 * i) % OWN; /* not adjacent */
    end->has_head = true;
}

static int open_ends(void **state)
{
    open_end(&sender, 3);
    open_end(&receiver, 8);
    n_departed = 0;
    for (uint32_t i = 0; i < HIDDEN; i++)
        sender.row[i] = 100 + (float)i;
    return 0;
}

static int close_ends(void **state)
{
    struct end *ends[] = {&sender, &receiver};

    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(kv_available(ends[i]->engine.pool), POOL);
        kv_pool_free(ends[i]->engine.pool);
        free(ends[i]->engine.opts.arena.base);
        free(ends[i]->engine.opts.draft_arena.base);
    }
    return 0;
}

static uint8_t *own_block(struct end *end, uint32_t at)
{
    return (uint8_t *)end->engine.opts.draft_arena.base + end->own[at] * kv_layout_layer_block_bytes(&layout);
}

/* The sender's head has read n tokens from `first` on. */
static void read_to(uint32_t first, uint32_t n, bool has_row)
{
    sender.head = (struct sched_head){
        .first = first, .n_tokens = n, .blocks = sender.own, .row = has_row ? sender.row : NULL};
    for (uint32_t at = 0; at < (n + BLOCK - 1) / BLOCK; at++)
        memset(own_block(&sender, at), 1 + (int)at, kv_layout_layer_block_bytes(&layout));
}

static void transfer(const struct head_kv *from, const struct head_kv *to)
{
    size_t bytes = kv_layout_layer_block_bytes(&layout);

    assert_int_equal(from->n_blocks, to->n_blocks);
    for (uint32_t i = 0; i < from->n_blocks; i++)
        for (uint32_t layer = 0; layer < LAYERS; layer++)
            memcpy((uint8_t *)receiver.engine.opts.arena.base +
                       kv_layout_offset(&layout, POOL, layer, to->blocks[i]),
                   (uint8_t *)sender.engine.opts.arena.base +
                       kv_layout_offset(&layout, POOL, layer, from->blocks[i]),
                   bytes);
}

static void open_both(uint32_t first, struct head_kv *from, struct head_kv *to)
{
    assert_int_equal(worker_head_open(&sender.engine, 0, PROMPT - first, from), 0);
    assert_int_equal(worker_head_open(&receiver.engine, 0, PROMPT - first, to), 0);
    from->first = first;
}

static void close_both(struct head_kv *from, struct head_kv *to)
{
    worker_head_close(&sender.engine, from);
    worker_head_close(&receiver.engine, to);
    worker_head_close(&receiver.engine, to); /* nothing is left */
}

/* ---- tests ---- */

static void kv_and_row_arrive(void **state)
{
    struct head_kv from, to;

    assert_true(worker_head_layout(&sender.engine) != 0);
    assert_true(worker_head_layout(&sender.engine) == worker_head_layout(&receiver.engine));
    open_both(1, &from, &to);
    read_to(1, 3, false);
    assert_int_equal(worker_head_pack(&sender.engine, NULL, &from, false), 0);
    read_to(1, 13, false); /* three full blocks of the head are one block of the pool */
    assert_int_equal(worker_head_pack(&sender.engine, NULL, &from, false), 1);
    assert_int_equal(n_departed, 0);
    read_to(1, 14, true);
    assert_int_equal(worker_head_pack(&sender.engine, NULL, &from, true), from.n_blocks);
    assert_int_equal(worker_head_pack(&sender.engine, NULL, &from, true), from.n_blocks);
    assert_int_equal(n_departed, 1);
    transfer(&from, &to);
    assert_true(worker_head_unpack(&receiver.engine, NULL, &to));
    assert_int_equal(receiver.head.first, 1);
    for (uint32_t at = 0; at < 4; at++)
        assert_memory_equal(own_block(&receiver, at), own_block(&sender, at),
                            kv_layout_layer_block_bytes(&layout));
    assert_memory_equal(receiver.row, sender.row, sizeof(sender.row));
    close_both(&from, &to);
}

/* The sequence was preempted and read from another token on; it was cut short; the head failed. */
static void kv_that_is_not_whole_is_not_used(void **state)
{
    static const struct {
        uint32_t first, n;
        bool has_row, has_head;
    } CASES[] = {{9, 6, true, true}, {1, 13, true, true}, {1, 14, false, true}, {1, 14, true, false}};

    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        struct head_kv from, to;

        open_both(1, &from, &to);
        sender.has_head = CASES[i].has_head;
        read_to(CASES[i].first, CASES[i].n, CASES[i].has_row);
        assert_int_equal(worker_head_pack(&sender.engine, NULL, &from, true), from.n_blocks);
        transfer(&from, &to);
        assert_false(worker_head_unpack(&receiver.engine, NULL, &to));
        close_both(&from, &to);
    }
    assert_int_equal(receiver.head.n_tokens, 0);
}

/* Any bytes may come. */
static void a_wrong_string_is_refused(void **state)
{
    struct head_kv from, to;

    open_both(5, &from, &to);
    for (uint32_t byte = 0; byte < 256; byte++) {
        memset(receiver.engine.opts.arena.base, (int)byte, POOL * kv_layout_block_bytes(&layout));
        assert_false(worker_head_unpack(&receiver.engine, NULL, &to));
    }
    receiver.has_head = false;
    read_to(5, 10, true);
    assert_int_equal(worker_head_pack(&sender.engine, NULL, &from, true), from.n_blocks);
    transfer(&from, &to);
    assert_false(worker_head_unpack(&receiver.engine, NULL, &to)); /* no room */
    close_both(&from, &to);
}

static void blocks_that_sequences_need_are_not_taken(void **state)
{
    struct head_kv head = {0};
    kv_block_id ids[POOL];

    assert_int_equal(kv_take(sender.engine.pool, POOL - 9, ids), 0);
    assert_int_equal(worker_head_open(&sender.engine, 0, PROMPT, &head), E_KV_FULL);
    assert_null(head.blocks);
    for (uint32_t i = POOL - 9; i > 0; i--)
        kv_unref(sender.engine.pool, ids[i - 1]);
    sender.engine.opts.draft.info.is_mtp = false; /* a draft model */
    assert_int_equal(worker_head_layout(&sender.engine), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(kv_and_row_arrive, open_ends, close_ends),
        cmocka_unit_test_setup_teardown(kv_that_is_not_whole_is_not_used, open_ends, close_ends),
        cmocka_unit_test_setup_teardown(a_wrong_string_is_refused, open_ends, close_ends),
        cmocka_unit_test_setup_teardown(blocks_that_sequences_need_are_not_taken, open_ends, close_ends),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
