/* SPDX-License-Identifier: Apache-2.0 */
/* The CPU engine's interface: its errors, its callbacks, its results. */
#include "base/err.h"
#include "compute/engine/engine_cpu.h"
#include "tests/unit/compute/model/tiny.h"

#include <stdlib.h>
#include <string.h>

#include "tests/unit/compute/check_team.h"

enum { N_BLOCKS = 8, BLOCK_TOKENS = 16 };

struct stage {
    struct team *team;
    struct model *model;
    uint8_t *arena;
    struct engine engine;
};

static int set_up(void **state)
{
    struct stage *stage = calloc(1, sizeof(*stage));
    struct tiny_shape shape = tiny_shape("llama");

    stage->team = check_team(2);
    stage->model = tiny_model(&shape, stage->team,
                              &(struct model_opts){.kv_type = KV_F32, .block_tokens = BLOCK_TOKENS});
    stage->arena = calloc(N_BLOCKS, kv_layout_block_bytes(model_kv_layout(stage->model)));
    assert_int_equal(engine_cpu_new(&(struct engine_cpu_opts){.model = stage->model,
                                                              .team = stage->team,
                                                              .kv_arena = stage->arena,
                                                              .n_blocks = N_BLOCKS,
                                                              .max_batch_tokens = 16,
                                                              .max_items = 3},
                                    &stage->engine),
                     0);
    *state = stage;
    return 0;
}

static int tear_down(void **state)
{
    struct stage *stage = *state;

    engine_free(&stage->engine);
    model_free(stage->model);
    team_free(stage->team);
    free(stage->arena);
    free(stage);
    return 0;
}

static const token_id TOKENS[20] = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2, 3, 8, 4};
static const kv_block_id BLOCKS[3] = {5, 0, 7};

static struct engine_item item(uint32_t n_tokens, uint32_t position)
{
    return (struct engine_item){.tokens = TOKENS,
                                .n_tokens = n_tokens,
                                .position = position,
                                .blocks = BLOCKS,
                                .n_blocks = 3,
                                .wants_token = true,
                                .sample = {.top_p = 1}};
}

static int step(struct stage *stage, const struct engine_item *items, uint32_t n, struct sample_result *out)
{
    return engine_step(&stage->engine, &(struct engine_batch){.items = items, .n_items = n}, out);
}

static void tells_what_it_is(void **state)
{
    const struct engine_info *info = &((struct stage *)*state)->engine.info;

    assert_non_null(strstr(info->name, "cpu "));
    assert_int_equal(info->vocab_size, 50);
    assert_int_equal(info->context_length, 256);
    assert_int_equal(info->max_batch_tokens, 16);
    assert_int_equal(info->layout.block_tokens, BLOCK_TOKENS);
    assert_true(info->numerics_id != 0);
}

static void bad_batches_change_nothing(void **state)
{
    struct stage *stage = *state;
    size_t arena_bytes = N_BLOCKS * kv_layout_block_bytes(model_kv_layout(stage->model));
    uint8_t *before = malloc(arena_bytes);
    struct sample_result out[4] = {{.id = 77}};
    const token_id beyond[1] = {50};
    const kv_block_id far[3] = {5, N_BLOCKS, 7};
    struct engine_item bad[] = {item(0, 0),  item(1, 256), item(1, UINT32_MAX),
                                item(17, 0), item(1, 48),  item(2, 47),
                                item(1, 0),  item(16, 8),  item(1, N_BLOCKS * BLOCK_TOKENS),
                                item(4, 0),  item(4, 0),   item(5, 0)};
    struct engine_item many[4] = {item(1, 0), item(1, 0), item(1, 0), item(1, 0)};
    struct engine_item together[2] = {item(9, 0), item(8, 0)};

    bad[6].tokens = beyond;
    bad[7].blocks = far;
    bad[8].n_blocks = 100;
    bad[9].n_drafts = 4;  /* only draft tokens */
    bad[10].n_drafts = 1; /* draft tokens without wants_token */
    bad[10].wants_token = false;
    bad[11].n_drafts = 3; /* one sample more than there is room for */
    memcpy(before, stage->arena, arena_bytes);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        if (step(stage, &bad[i], 1, out) != E_INVAL)
            fail_msg("bad item %zu was taken", i);
    assert_int_equal(step(stage, many, 4, out), E_INVAL);
    assert_int_equal(step(stage, together, 2, out), E_INVAL);
    assert_memory_equal(before, stage->arena, arena_bytes);
    assert_int_equal(out[0].id, 77);
    free(before);
}

/* Samples one step at a time, then again with draft tokens; the first few are right. */
static void drafts_are_verified_one_by_one(void **state)
{
    struct stage *stage = *state;
    token_id text[12];
    struct sample_result plain[4], out[4] = {0};

    memcpy(text, TOKENS, 6 * sizeof(text[0]));
    for (uint32_t i = 0; i < 4; i++) {
        struct engine_item one = item(i ? 1 : 6, i ? 5 + i : 0);

        one.tokens = text + one.position;
        one.sample = (struct sample_opts){.temperature = 1, .top_p = 1, .wants_logprob = true, .seed = 9};
        assert_int_equal(step(stage, &one, 1, &plain[i]), 0);
        text[6 + i] = plain[i].id;
    }
    for (uint32_t n_right = 0; n_right <= 2; n_right++) {
        struct engine_item all = item(3, 5);
        token_id drafts[3] = {text[5], text[6], text[7]};

        if (n_right < 2)
            drafts[1 + n_right] = (drafts[1 + n_right] + 1) % 50;
        all.tokens = drafts;
        all.n_drafts = 2;
        all.sample = (struct sample_opts){.temperature = 1, .top_p = 1, .wants_logprob = true, .seed = 9};
        assert_int_equal(step(stage, &all, 1, out), 0);
        for (uint32_t i = 0; i <= n_right; i++) {
            assert_int_equal(out[i].id, plain[i].id);
            assert_memory_equal(&out[i].logprob, &plain[i].logprob, sizeof(float));
        }
        for (uint32_t i = n_right + 1; i < 3; i++)
            assert_int_equal(out[i].id, TOKEN_NONE);
    }
}

static void only_who_asks_gets_a_token(void **state)
{
    struct stage *stage = *state;
    const kv_block_id second[1] = {1}, third[1] = {2};
    struct engine_item items[3] = {item(4, 0), item(3, 0), item(2, 0)};
    struct sample_result out[3];

    items[1].blocks = second;
    items[1].n_blocks = 1;
    items[1].wants_token = false;
    items[2].blocks = third;
    items[2].n_blocks = 1;
    assert_int_equal(step(stage, items, 3, out), 0);
    assert_true(out[0].id < 50);
    assert_int_equal(out[1].id, TOKEN_NONE);
    assert_true(out[2].id < 50);
    assert_non_null(stage->engine.ops->logits(stage->engine.self, 0));
    assert_null(stage->engine.ops->logits(stage->engine.self, 1));
    assert_non_null(stage->engine.ops->logits(stage->engine.self, 2));
    assert_null(stage->engine.ops->logits(stage->engine.self, 3));
    assert_int_equal(step(stage, NULL, 0, out), 0);
    assert_null(stage->engine.ops->logits(stage->engine.self, 0));
}

struct watch {
    struct stage *stage;
    uint32_t n_calls;
    atomic_bool gives_up;
};

/* When the call comes, this layer's KV is written for every item, and no later layer's. */
static void on_layer(void *arg, uint32_t layer)
{
    struct watch *watch = arg;
    const struct kv_layout *layout = model_kv_layout(watch->stage->model);
    const float *mine, *next;

    assert_int_equal(layer, watch->n_calls++);
    for (uint32_t i = 0; i < 2; i++) {
        mine = (const float *)(void *)(watch->stage->arena +
                                       kv_layout_offset(layout, N_BLOCKS, layer, BLOCKS[i]));
        assert_true(mine[0] != 0);
        if (layer + 1 < layout->n_layers) {
            next = (const float *)(void *)(watch->stage->arena +
                                           kv_layout_offset(layout, N_BLOCKS, layer + 1, BLOCKS[i]));
            assert_true(next[0] == 0);
        }
    }
}

static void give_up(void *arg, uint32_t layer)
{
    struct watch *watch = arg;

    on_layer(arg, layer);
    atomic_store(&watch->gives_up, true);
}

static void a_step_is_given_up_between_layers(void **state)
{
    struct watch watch = {.stage = *state};
    struct engine_item items[2] = {item(3, 0), item(4, 0)};
    struct engine_batch batch = {.items = items,
                                 .n_items = 2,
                                 .on_layer = give_up,
                                 .on_layer_arg = &watch,
                                 .is_given_up = &watch.gives_up};
    struct sample_result out[2], plain[2];

    items[1].blocks = BLOCKS + 1;
    items[1].n_blocks = 1;
    assert_int_equal(engine_step(&watch.stage->engine, &batch, out), E_CANCELLED);
    assert_int_equal(watch.n_calls, 1);
    assert_null(watch.stage->engine.ops->logits(watch.stage->engine.self, 0));
    atomic_store(&watch.gives_up, false);
    batch.on_layer = NULL;
    assert_int_equal(engine_step(&watch.stage->engine, &batch, out), 0); /* the same step again succeeds */
    batch.is_given_up = NULL;
    assert_int_equal(engine_step(&watch.stage->engine, &batch, plain), 0);
    assert_int_equal(out[0].id, plain[0].id);
    assert_int_equal(out[1].id, plain[1].id);
}

static void layers_are_reported_in_order(void **state)
{
    struct watch watch = {.stage = *state};
    struct engine_item items[2] = {item(3, 0), item(4, 0)};
    struct sample_result out[2];

    items[1].blocks = BLOCKS + 1;
    items[1].n_blocks = 1;
    assert_int_equal(
        engine_step(&watch.stage->engine,
                    &(struct engine_batch){
                        .items = items, .n_items = 2, .on_layer = on_layer, .on_layer_arg = &watch},
                    out),
        0);
    assert_int_equal(watch.n_calls, 2);
}

static void greedy_is_the_highest_logit(void **state)
{
    struct stage *stage = *state;
    struct engine_item one = item(16, 0);
    struct sample_result out;
    const float *logits;

    assert_int_equal(step(stage, &one, 1, &out), 0);
    logits = stage->engine.ops->logits(stage->engine.self, 0);
    for (uint32_t i = 0; i < 50; i++)
        assert_true(logits[i] <= logits[out.id]);
    assert_true(out.logprob <= 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(tells_what_it_is, set_up, tear_down),
        cmocka_unit_test_setup_teardown(bad_batches_change_nothing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(drafts_are_verified_one_by_one, set_up, tear_down),
        cmocka_unit_test_setup_teardown(only_who_asks_gets_a_token, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_step_is_given_up_between_layers, set_up, tear_down),
        cmocka_unit_test_setup_teardown(layers_are_reported_in_order, set_up, tear_down),
        cmocka_unit_test_setup_teardown(greedy_is_the_highest_logit, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
