/* SPDX-License-Identifier: Apache-2.0 */
/* Prompt logprobs, with real forward passes of tiny random models.
 *
 * The expected values come from feeding one token a step and reading the logits.  Then sequences with prompt
 * logprobs run beside neighbours, in random chunks, on one to three threads, with few rows of logits.  Pools
 * are so small that sequences are preempted; prefixes are cached, and some resume in the middle.  Every score
 * must come once, in order, and with the same bits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/check.h"
#include "base/err.h"
#include "base/log.h"
#include "base/rng.h"
#include "compute/engine/engine_cpu.h"
#include "compute/sched/sched.h"
#include "tests/unit/compute/check_team.h"
#include "tests/unit/compute/model/tiny.h"

enum {
    N_SEQS = 5,
    PROMPT_TOKENS = 60,
    ANSWER_TOKENS = 20,
    BLOCK_TOKENS = 16,
    MAX_BLOCKS = 32,
    CONTEXT = 112,
    VOCAB = 90
};

struct request {
    token_id prompt[PROMPT_TOKENS], stop_id;
    struct seq_spec spec;
    struct sample_result expected[PROMPT_TOKENS];
    uint32_t next; /* the next expected score */
    uint32_t n_drawn, n_stops;
    struct sample_result stop;
    enum seq_finish finish;
    struct seq_stats stats;
};

static struct {
    struct model *model;
    struct team *teams[3];
    void *arena;
    struct request requests[N_SEQS];
    uint32_t n_preempted, n_stops, n_pieces;
    struct rng rng;
} world;

static uint32_t below(uint32_t n)
{
    return (uint32_t)rng_below(&world.rng, n);
}

static void on_token(void *arg, struct seq *seq, const struct sample_result *token)
{
    struct request *request = seq_spec(seq)->user;

    assert_int_equal(request->next, request->spec.work.score_from ? request->spec.n_prompt : 0);
    request->n_drawn++;
}

static void on_prompt_logprobs(void *arg, struct seq *seq, uint32_t from, const struct sample_result *scores,
                               uint32_t n)
{
    struct request *request = seq_spec(seq)->user;

    assert_true(request->spec.work.score_from > 0 && n > 0);
    world.n_pieces++;
    if (from >= request->spec.n_prompt) {
        assert_int_equal(from, request->spec.n_tokens + request->n_drawn);
        assert_int_equal(n, 1);
        assert_int_equal(scores->id, request->stop_id);
        request->stop = *scores;
        request->n_stops++;
        return;
    }
    assert_int_equal(from, request->next);
    assert_true(n <= request->spec.n_prompt - from);
    assert_memory_equal(scores, &request->expected[from], n * sizeof(*scores));
    request->next += n;
}

static void on_done(void *arg, struct seq *seq, enum seq_finish finish)
{
    struct request *request = seq_spec(seq)->user;

    request->finish = finish;
    request->stats = *seq_stats(seq);
    world.n_preempted += request->stats.n_preempted;
}

static void open_engine(unsigned n_threads, uint32_t n_blocks, uint32_t max_batch_tokens, struct engine *out)
{
    memset(world.arena, 0xff, MAX_BLOCKS * kv_layout_block_bytes(model_kv_layout(world.model))); /* NaN */
    assert_int_equal(engine_cpu_new(&(struct engine_cpu_opts){.model = world.model,
                                                              .team = world.teams[n_threads - 1],
                                                              .kv_arena = world.arena,
                                                              .n_blocks = n_blocks,
                                                              .max_batch_tokens = max_batch_tokens,
                                                              .max_items = N_SEQS,
                                                              .team_from_bytes = 1},
                                    out),
                     0);
}

/* Computes the expected values, one token a step. */
static void expect(struct request *request)
{
    kv_block_id blocks[MAX_BLOCKS];
    struct sample_result drawn;
    struct sampler *sampler;
    struct engine engine;

    assert_int_equal(sampler_new(VOCAB, &sampler), 0);
    open_engine(1, MAX_BLOCKS, 1, &engine);
    for (uint32_t i = 0; i < MAX_BLOCKS; i++)
        blocks[i] = i;
    for (uint32_t i = 0; i + 1 < request->spec.n_prompt; i++) {
        struct engine_item item = {.tokens = request->prompt + i,
                                   .n_tokens = 1,
                                   .position = i,
                                   .blocks = blocks,
                                   .n_blocks = MAX_BLOCKS,
                                   .wants_token = true};

        assert_int_equal(engine_step(&engine, &(struct engine_batch){.items = &item, .n_items = 1}, &drawn),
                         0);
        assert_int_equal(sampler_score(sampler, engine.ops->logits(engine.self, 0), request->prompt[i + 1],
                                       request->spec.work.sample.n_top, &request->expected[i + 1]),
                         0);
    }
    engine_free(&engine);
    sampler_free(sampler);
}

static void make_request(struct request *request, uint32_t number)
{
    uint32_t n = 1 + below(PROMPT_TOKENS);

    memset(request, 0, sizeof(*request));
    for (uint32_t i = 0; i < PROMPT_TOKENS; i++) /* some share a prefix */
        request->prompt[i] = i < 20 ? 3 * i % VOCAB : below(VOCAB);
    request->stop_id = below(VOCAB);
    request->spec = (struct seq_spec){.id = number,
                                      .tokens = request->prompt,
                                      .n_tokens = n,
                                      .n_prompt = n,
                                      .work.max_new_tokens = 1 + below(ANSWER_TOKENS),
                                      .stop_ids = &request->stop_id,
                                      .n_stop_ids = 1,
                                      .work.sample = {.temperature = below(2) ? 0 : 3,
                                                      .top_p = 1,
                                                      .wants_logprob = true,
                                                      .n_top = below(6),
                                                      .seed = rng_u64(&world.rng)},
                                      .work.score_from = number == 0 ? 0 : 1 + (below(3) == 0 ? below(n) : 0),
                                      .user = request};
    if (number > 0 && below(4) == 0) /* resumed: the tokens after the prompt were answered before */
        request->spec.n_prompt = request->spec.work.score_from + below(n - request->spec.work.score_from + 1);
    expect(request);
}

static void run_all(void)
{
    uint32_t n_blocks = 7 + below(3);
    struct kv_pool *pool;
    struct sched *sched;
    struct engine engine;
    struct seq *seq;

    open_engine(1 + below(3), n_blocks, N_SEQS + below(60), &engine);
    assert_int_equal(
        kv_pool_new(&(struct kv_pool_opts){.n_blocks = n_blocks, .block_tokens = BLOCK_TOKENS}, &pool), 0);
    assert_int_equal(sched_new(&(struct sched_opts){.engine = &engine,
                                                    .pool = pool,
                                                    .max_seqs = N_SEQS,
                                                    .max_queue = N_SEQS,
                                                    .chunk_tokens = 1 + below(40),
                                                    .events = {.on_token = on_token,
                                                               .on_prompt_logprobs = on_prompt_logprobs,
                                                               .on_done = on_done}},
                               &sched),
                     0);
    for (uint32_t i = 0; i < N_SEQS; i++) {
        struct request *request = &world.requests[i];

        request->next = request->spec.work.score_from;
        request->n_drawn = request->n_stops = 0;
        assert_int_equal(sched_submit(sched, &request->spec, &seq), 0);
        for (uint32_t steps = below(9); steps > 0; steps--)
            assert_true(sched_run_step(sched) >= 0);
    }
    while (sched_has_work(sched))
        assert_true(sched_run_step(sched) > 0);
    sched_free(sched);
    kv_pool_free(pool);
    engine_free(&engine);
}

static void check_all(void)
{
    for (uint32_t i = 0; i < N_SEQS; i++) {
        const struct request *request = &world.requests[i];
        const struct seq_spec *spec = &request->spec;

        assert_int_equal(request->next, spec->work.score_from > 0 ? spec->n_prompt : 0);
        assert_int_equal(request->n_stops, spec->work.score_from > 0 && request->finish == SEQ_FINISH_STOP);
        assert_int_equal(request->stats.n_computed + request->stats.n_reused, spec->n_tokens);
        if (spec->work.score_from > 0 && spec->work.score_from < spec->n_prompt &&
            request->stats.n_preempted == 0)
            assert_true(request->stats.n_reused < spec->work.score_from);
        if (request->n_stops > 0)
            assert_true(request->stop.logprob < 0 && request->stop.n_top == spec->work.sample.n_top);
        world.n_stops += request->n_stops;
    }
}

static void scores_are_those_of_single_steps(void **state)
{
    for (unsigned i = 0; i < 3; i++)
        world.teams[i] = check_team(i + 1);
    for (uint32_t seed = 1; seed <= 6; seed++) {
        struct tiny_shape shape =
            seed % 3 == 2 ? tiny_experts("deepseek2") : tiny_shape(seed % 3 ? "llama" : "qwen2");

        shape.vocab = VOCAB;
        shape.context = CONTEXT;
        shape.seed = seed;
        rng_init(&world.rng, seed);
        world.model = tiny_model(
            &shape, world.teams[1],
            &(struct model_opts){.kernels = "auto", .kv_type = KV_F32, .block_tokens = BLOCK_TOKENS});
        world.arena = calloc(MAX_BLOCKS, kv_layout_block_bytes(model_kv_layout(world.model)));
        assert_non_null(world.arena);
        for (uint32_t round = 0; round < 8; round++) {
            for (uint32_t i = 0; i < N_SEQS; i++)
                make_request(&world.requests[i], i);
            run_all();
            check_all();
        }
        free(world.arena);
        model_free(world.model);
    }
    print_message("%u preemptions, %u stops, %u pieces\n", world.n_preempted, world.n_stops, world.n_pieces);
    assert_true(world.n_preempted > 0 && world.n_stops > 0 && world.n_pieces > 60);
    for (unsigned i = 0; i < 3; i++)
        team_free(world.teams[i]);
}

static void a_prompt_that_is_not_computed_here_cannot_be_scored(void **state)
{
    token_id tokens[2] = {1, 2};
    struct seq_spec spec = {
        .tokens = tokens, .n_tokens = 2, .n_prompt = 2, .work.max_new_tokens = 1, .work.score_from = 1};
    struct engine engine;
    struct kv_pool *pool;
    struct sched *sched;
    struct seq *seq;

    world.teams[0] = check_team(1);
    struct tiny_shape shape = tiny_shape("llama");
    world.model = tiny_model(&shape, world.teams[0],
                             &(struct model_opts){.kernels = "auto", .block_tokens = BLOCK_TOKENS});
    world.arena = calloc(MAX_BLOCKS, kv_layout_block_bytes(model_kv_layout(world.model)));
    open_engine(1, MAX_BLOCKS, 8, &engine);
    assert_int_equal(
        kv_pool_new(&(struct kv_pool_opts){.n_blocks = MAX_BLOCKS, .block_tokens = BLOCK_TOKENS}, &pool), 0);
    assert_int_equal(
        sched_new(
            &(struct sched_opts){
                .engine = &engine, .pool = pool, .max_seqs = 1, .max_queue = 2, .chunk_tokens = 8},
            &sched),
        0);
    spec.departs = true;
    assert_int_equal(sched_submit(sched, &spec, &seq), E_INVAL);
    spec.departs = false;
    spec.arrives = true;
    assert_int_equal(sched_submit(sched, &spec, &seq), E_INVAL);
    spec.arrives = false;
    spec.work.score_from = 3;
    assert_int_equal(sched_submit(sched, &spec, &seq), E_INVAL);
    spec.work.score_from = 2;
    assert_int_equal(sched_submit(sched, &spec, &seq), 0);
    sched_free(sched);
    kv_pool_free(pool);
    engine_free(&engine);
    free(world.arena);
    model_free(world.model);
    team_free(world.teams[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scores_are_those_of_single_steps),
        cmocka_unit_test(a_prompt_that_is_not_computed_here_cannot_be_scored),
    };

    log_setup("test", LOG_LEVEL_ERROR, LOG_FORMAT_TEXT);
    return cmocka_run_group_tests_name("scores of prompts", tests, NULL, NULL);
}
