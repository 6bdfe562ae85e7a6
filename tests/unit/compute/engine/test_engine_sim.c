/* SPDX-License-Identifier: Apache-2.0 */
/* The simulated engine: the inputs of its tokens, the damage that it detects, and its timing. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/check.h"
#include "base/err.h"
#include "base/log.h"
#include "base/rng.h"
#include "compute/engine/engine_sim.h"

#define N_BLOCKS 6
#define STOP_ID  5

#define LONG_BLOCKS 256 /* a power of two */
#define LONG_TOKENS 480

struct fixture {
    struct engine engine;
    uint8_t *arena;
    size_t arena_bytes;
    uint64_t slept_ns;
    uint32_t n_sleeps;
};

static void fake_sleep(void *arg, uint64_t ns)
{
    struct fixture *f = arg;

    f->slept_ns += ns;
    f->n_sleeps++;
}

static struct engine_sim_opts opts_of(struct fixture *f)
{
    return (struct engine_sim_opts){
        .vocab_size = 1000,
        .first_text_id = 10,
        .stop_id = STOP_ID,
        .mean_answer_tokens = 20,
        .context_length = 24,
        .max_batch_tokens = 24,
        .layout = {.n_layers = 3, .n_kv_heads = 2, .k_dim = 9, .v_dim = 9, .block_tokens = 4, .type = KV_F16},
        .kv_arena = f->arena,
        .n_blocks = N_BLOCKS,
        .step_ns = 1000,
        .prefill_token_ns = 10,
        .decode_seq_ns = 100,
        .sleep_ns = fake_sleep,
        .sleep_arg = f,
    };
}

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));
    struct engine_sim_opts opts = opts_of(f);

    f->arena_bytes = N_BLOCKS * kv_layout_block_bytes(&opts.layout);
    opts.kv_arena = f->arena = calloc(1, f->arena_bytes);
    *state = f;
    return engine_sim_new(&opts, &f->engine);
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    engine_free(&f->engine);
    free(f->arena);
    free(f);
    return 0;
}

static const kv_block_id table[] = {4, 0, 5, 2, 1, 3};
static const token_id prompt[] = {11, 12, 13, 14, 15, 16, 17, 18, 19, 20};

/* Feeds one item: tokens [from, to) of the prompt. */
static int feed(struct fixture *f, uint32_t from, uint32_t to, struct sample_result *result)
{
    struct engine_item item = {.tokens = prompt + from,
                               .n_tokens = to - from,
                               .position = from,
                               .blocks = table,
                               .n_blocks = N_BLOCKS,
                               .wants_token = true,
                               .sample = {.seed = 3}};
    struct engine_batch batch = {.items = &item, .n_items = 1};

    return engine_step(&f->engine, &batch, result);
}

static void tokens_do_not_depend_on_chunks(void **state)
{
    struct fixture *f = *state;
    struct sample_result whole, parts;

    assert_int_equal(feed(f, 0, 10, &whole), 0);
    memset(f->arena, 0xee, f->arena_bytes);
    assert_int_equal(feed(f, 0, 3, &parts), 0);
    assert_int_equal(feed(f, 3, 4, &parts), 0);
    assert_int_equal(feed(f, 4, 10, &parts), 0);
    assert_int_equal(parts.id, whole.id);
    assert_int_equal(engine_sim_verify(&f->engine, prompt, 10, table), 0);
    assert_null(f->engine.ops->logits(f->engine.self, 0));
}

static void tokens_depend_on_seed_position_and_the_last_token(void **state)
{
    struct fixture *f = *state;
    struct engine_item items[4];
    struct sample_result results[4];
    token_id other[] = {99, 98, 97, 96};

    for (int i = 0; i < 4; i++)
        items[i] = (struct engine_item){.tokens = prompt,
                                        .n_tokens = 4,
                                        .blocks = &table[i],
                                        .n_blocks = 1,
                                        .wants_token = i != 3,
                                        .sample = {.seed = 1},
                                        .tag = (uint64_t)i};
    items[1].sample.seed = 2;
    items[2].tokens = other;
    other[3] = prompt[3]; /* the same last token gives the same sample */
    struct engine_batch batch = {.items = items, .n_items = 4};
    assert_int_equal(engine_step(&f->engine, &batch, results), 0);
    assert_true(results[0].id != results[1].id);
    assert_int_equal(results[0].id, results[2].id);
    assert_int_equal(results[3].id, TOKEN_NONE);
}

static void ids_are_text_or_stop_and_answers_end(void **state)
{
    struct fixture *f = *state;
    struct engine_sim_opts opts = opts_of(f);
    struct engine engine;
    const token_id others[] = {14, 11}; /* models have several stop ids: the others are never sampled */
    uint32_t n_stops = 0;

    opts.kv_arena = NULL;
    opts.stop_id = 13; /* inside the text range: sampled only as a stop */
    opts.other_stop_ids = others;
    opts.n_other_stop_ids = 2;
    opts.first_text_id = 11;
    opts.vocab_size = 16;
    opts.mean_answer_tokens = 9;
    assert_int_equal(engine_sim_new(&opts, &engine), 0);
    for (uint32_t i = 0; i < 4000; i++) {
        token_id token = i % 16;
        struct engine_item item = {.tokens = &token,
                                   .n_tokens = 1,
                                   .position = i % 24,
                                   .blocks = table,
                                   .n_blocks = N_BLOCKS,
                                   .wants_token = true,
                                   .sample = {.seed = i}};
        struct engine_batch batch = {.items = &item, .n_items = 1};
        struct sample_result result;

        assert_int_equal(engine_step(&engine, &batch, &result), 0);
        assert_in_range(result.id, 12, 15);
        assert_int_not_equal(result.id, 14);
        n_stops += result.id == 13;
    }
    assert_in_range(n_stops, 320, 480); /* one in ten */
    assert_int_equal(engine_sim_verify(&engine, prompt, 1, table), E_UNSUPPORTED);
    engine_free(&engine);
}

/* Silences the engine, because it logs each damage, and thousands of lines say no more than the first. */
static int silence(void)
{
    int saved = dup(STDERR_FILENO), null = open("/dev/null", O_WRONLY);

    dup2(null, STDERR_FILENO);
    close(null);
    return saved;
}

static void speak(int saved)
{
    dup2(saved, STDERR_FILENO);
    close(saved);
}

/* If any byte of the sequence's KV is damaged, the next step over it detects it. */
static void every_lost_byte_is_found(void **state)
{
    struct fixture *f = *state;
    struct engine_sim_opts opts = opts_of(f);
    const struct kv_layout *layout = &opts.layout;
    struct sample_result result;
    uint32_t n_damaged = 0, n_wrong = 0;
    int saved = silence();

    assert_int_equal(feed(f, 0, 8, &result), 0);
    for (size_t at = 0; at < f->arena_bytes; at++) {
        size_t block = at / kv_layout_layer_block_bytes(layout) % N_BLOCKS;
        bool is_ours = block == table[0] || block == table[1];

        f->arena[at] ^= 0x10;
        n_wrong += feed(f, 8, 9, &result) != (is_ours ? E_INTERNAL : 0);
        f->arena[at] ^= 0x10;
        n_damaged += is_ours;
    }
    speak(saved);
    assert_int_equal(n_wrong, 0);
    assert_int_equal(n_damaged, 2 * kv_layout_block_bytes(layout));
    assert_int_equal(feed(f, 8, 9, &result), 0);
}

/* Steps of a long answer, each of one token, with a tag or without. */
static int feed_one(struct engine *engine, uint32_t position, uint64_t tag, const kv_block_id *blocks)
{
    token_id token = 11 + position % 7;
    struct engine_item item = {.tokens = &token,
                               .n_tokens = 1,
                               .position = position,
                               .blocks = blocks,
                               .n_blocks = LONG_BLOCKS,
                               .wants_token = true,
                               .tag = tag};
    struct engine_batch batch = {.items = &item, .n_items = 1};
    struct sample_result result;

    return engine_step(engine, &batch, &result);
}

struct long_answer {
    struct engine engine;
    uint8_t *arena;
    size_t arena_bytes;
    kv_block_id blocks[LONG_BLOCKS];
};

static void long_answer_begin(struct fixture *f, struct long_answer *it)
{
    struct engine_sim_opts opts = opts_of(f);

    it->arena_bytes = LONG_BLOCKS * kv_layout_block_bytes(&opts.layout);
    opts.kv_arena = it->arena = calloc(1, it->arena_bytes);
    assert_non_null(it->arena);
    opts.n_blocks = LONG_BLOCKS;
    opts.context_length = LONG_BLOCKS * opts.layout.block_tokens;
    assert_int_equal(engine_sim_new(&opts, &it->engine), 0);
    for (uint32_t i = 0; i < LONG_BLOCKS; i++)
        it->blocks[i] = (i * 7 + 3) % LONG_BLOCKS; /* odd to the number of blocks: all different */
    for (uint32_t i = 0; i < LONG_TOKENS; i++)
        assert_int_equal(feed_one(&it->engine, i, 1, it->blocks), 0);
}

static void long_answer_end(struct long_answer *it)
{
    engine_free(&it->engine);
    free(it->arena);
}

/* The first byte of the block in the layer. */
static size_t byte_of(const struct engine_sim_opts *opts, uint32_t layer, kv_block_id block)
{
    return kv_layout_offset(&opts->layout, LONG_BLOCKS, layer, block);
}

static void damage_is_found_at_arrival_and_in_turn(void **state)
{
    struct fixture *f = *state;
    struct engine_sim_opts opts = opts_of(f);
    struct long_answer it;
    kv_block_id moved[LONG_BLOCKS];
    uint32_t at = LONG_TOKENS, most = LONG_TOKENS / 16 + 2;
    size_t byte;
    int saved = silence(), found = 0;

    long_answer_begin(f, &it);
    byte = byte_of(&opts, 2, it.blocks[LONG_TOKENS / opts.layout.block_tokens / 2]);

    /* a sequence that begins here, one without a tag, and one whose blocks have moved: the first step finds it */
    it.arena[byte] ^= 1;
    assert_int_equal(feed_one(&it.engine, at, 2, it.blocks), E_INTERNAL);
    assert_int_equal(feed_one(&it.engine, at, 0, it.blocks), E_INTERNAL);
    memcpy(moved, it.blocks, sizeof(moved));
    moved[1] = it.blocks[LONG_BLOCKS - 1];
    for (uint32_t layer = 0; layer < opts.layout.n_layers; layer++)
        memcpy(it.arena + byte_of(&opts, layer, moved[1]), it.arena + byte_of(&opts, layer, it.blocks[1]),
               kv_layout_layer_block_bytes(&opts.layout));
    assert_int_equal(feed_one(&it.engine, at, 1, moved), E_INTERNAL);
    it.arena[byte] ^= 1;
    assert_int_equal(feed_one(&it.engine, at, 1, moved), 0);

    /* the last block of a sequence that goes on: the next step; any other: each position has its turn */
    at++;
    byte = byte_of(&opts, 1, it.blocks[(at - 1) / opts.layout.block_tokens]);
    it.arena[byte] ^= 1;
    assert_int_equal(feed_one(&it.engine, at, 1, moved), E_INTERNAL);
    it.arena[byte] ^= 1;
    assert_int_equal(feed_one(&it.engine, at++, 1, moved), 0);
    it.arena[byte_of(&opts, 0, moved[LONG_TOKENS / 3 / opts.layout.block_tokens])] ^= 1;
    for (uint32_t i = 0; i < most && found == 0; i++)
        found = feed_one(&it.engine, at++, 1, moved);
    assert_int_equal(found, E_INTERNAL);
    speak(saved);
    long_answer_end(&it);
}

/* Most of the context is not read again by a step: bytes that change between two of its checks stay unseen. */
static void a_step_does_not_read_the_whole_context(void **state)
{
    struct fixture *f = *state;
    struct engine_sim_opts opts = opts_of(f);
    struct long_answer it;
    uint32_t n_found = 0;
    int saved = silence();

    long_answer_begin(f, &it);
    for (uint32_t i = 0; i < LONG_TOKENS / opts.layout.block_tokens - 1; i++) {
        size_t byte = byte_of(&opts, 2, it.blocks[i]);
        int rc;

        it.arena[byte] ^= 1;
        rc = feed_one(&it.engine, LONG_TOKENS + i, 1, it.blocks);
        it.arena[byte] ^= 1;
        n_found += rc != 0;
        if (rc != 0)
            assert_int_equal(feed_one(&it.engine, LONG_TOKENS + i, 1, it.blocks), 0);
    }
    speak(saved);
    assert_in_range(n_found, 0, LONG_TOKENS / opts.layout.block_tokens / 4);
    assert_int_equal(feed_one(&it.engine, LONG_TOKENS + 1, 2, it.blocks), 0);
    long_answer_end(&it);
}

static void foreign_blocks_are_found(void **state)
{
    struct fixture *f = *state;
    static const token_id other[] = {11, 12, 13, 99};
    struct sample_result result;

    assert_int_equal(feed(f, 0, 8, &result), 0);
    assert_int_equal(engine_sim_verify(&f->engine, prompt, 4, table), 0);
    assert_int_equal(engine_sim_verify(&f->engine, other, 4, table), E_INTERNAL);

    /* The second block replaces the first: valid in itself, but in the wrong place. */
    const kv_block_id swapped[] = {table[1], table[1], table[2]};
    struct engine_item item = {
        .tokens = prompt + 8, .n_tokens = 1, .position = 8, .blocks = swapped, .n_blocks = 3};
    struct engine_batch batch = {.items = &item, .n_items = 1};
    assert_int_equal(engine_step(&f->engine, &batch, &result), E_INTERNAL);
}

struct layers {
    struct fixture *f;
    uint32_t n;
};

static void on_layer(void *arg, uint32_t layer)
{
    struct layers *layers = arg;

    assert_int_equal(layer, layers->n++);
    assert_int_equal(layers->f->n_sleeps, layers->n); /* the layer's share of the time has passed */
}

static void time_follows_the_model(void **state)
{
    struct fixture *f = *state;
    struct sample_result results[2];
    struct layers layers = {.f = f};
    struct engine_item items[2] = {
        {.tokens = prompt, .n_tokens = 7, .blocks = table, .n_blocks = 2},
        {.tokens = prompt, .n_tokens = 1, .blocks = &table[3], .n_blocks = 1, .wants_token = true},
    };
    struct engine_batch batch = {.items = items, .n_items = 2};

    assert_int_equal(engine_step(&f->engine, &batch, results), 0);
    assert_int_equal(f->slept_ns, 1000 + 7 * 10 + 100);
    assert_int_equal(f->n_sleeps, 1);

    f->n_sleeps = 0;
    f->slept_ns = 0;
    batch.on_layer = on_layer;
    batch.on_layer_arg = &layers;
    assert_int_equal(engine_step(&f->engine, &batch, results), 0);
    assert_int_equal(f->slept_ns, 1000 + 7 * 10 + 100);
    assert_int_equal(layers.n, 3);
}

static void senseless_options_are_refused(void **state)
{
    struct fixture *f = *state;
    struct engine engine;

    for (int i = 0; i < 6; i++) {
        struct engine_sim_opts opts = opts_of(f);

        if (i == 0)
            opts.first_text_id = opts.vocab_size;
        if (i == 1)
            opts.layout.k_dim = opts.layout.v_dim = 7; /* 14 bytes a row */
        if (i == 2)
            opts.layout.block_tokens = 0;
        if (i == 3)
            opts.max_batch_tokens = 0;
        if (i == 4)
            opts.n_blocks = 0;
        if (i == 5)
            opts.layout.n_layers = 0;
        assert_int_equal(engine_sim_new(&opts, &engine), E_INVAL);
    }
}

#define SIM_TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        SIM_TEST(tokens_do_not_depend_on_chunks),
        SIM_TEST(tokens_depend_on_seed_position_and_the_last_token),
        SIM_TEST(ids_are_text_or_stop_and_answers_end),
        SIM_TEST(every_lost_byte_is_found),
        SIM_TEST(damage_is_found_at_arrival_and_in_turn),
        SIM_TEST(a_step_does_not_read_the_whole_context),
        SIM_TEST(foreign_blocks_are_found),
        SIM_TEST(time_follows_the_model),
        SIM_TEST(senseless_options_are_refused),
    };

    log_setup("test", LOG_LEVEL_ERROR, LOG_FORMAT_TEXT);
    return cmocka_run_group_tests_name("engine/sim", tests, NULL, NULL);
}
