/* SPDX-License-Identifier: Apache-2.0 */
/* Speculation with real forward passes: tiny models of random weights, whose answers soon repeat themselves.
 *
 * Each sequence is first decoded alone, one token a step, on one thread.  Then all of them run together with
 * draft tokens, in pools so small that sequences are preempted.  In some runs a second model drafts too: the
 * same weights, whose draft tokens are mostly right, or others, whose are mostly wrong; its own blocks may not
 * suffice for all sequences.  Chunks and threads are random, temperatures
 * go from greedy to hot, and some sequences have penalties, biases and grammars.  Tokens and log
 * probabilities must be the same, to the bit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/check.h"
#include "base/log.h"
#include "base/rng.h"
#include "compute/engine/engine_cpu.h"
#include "compute/sched/sched.h"
#include "tests/unit/compute/check_team.h"
#include "tests/unit/compute/model/tiny.h"
#include "tests/unit/text/grammar/grammar_help.h"
#include "tests/unit/trials.h"

enum {
    N_SEQS = 5,
    ANSWER_TOKENS = 70,
    PROMPT_TOKENS = 40,
    BLOCK_TOKENS = 16,
    CONTEXT = 128,
    MAX_BLOCKS = 64,
    MAX_DRAFTS = 12,
    VOCAB = 300 /* a few more than the grammars' vocabulary has */
};

struct answer {
    struct sample_result tokens[ANSWER_TOKENS];
    struct sample_result
        scores[PROMPT_TOKENS + ANSWER_TOKENS + 1]; /* of the prompt's tokens, and of a stop id */
    uint32_t n, n_scores;
    enum seq_finish finish;
};

struct request {
    token_id prompt[PROMPT_TOKENS];
    struct sample_bias bias[1];
    token_id stop_ids[1];
    struct seq_spec spec;
    struct answer expected, got;
};

static const char *const shapes[] = {
    "{\"json\": {\"type\": \"object\", \"properties\": {\"abc\": {\"type\": \"array\", \"items\": {\"type\": "
    "\"integer\"}}, \"xy\": {\"type\": \"boolean\"}}, \"required\": [\"abc\", \"xy\"]}}",
    "{\"json\": {}}",
    "{\"seq\": [{\"free\": {\"until\": [\"<tool>\"], \"max_tokens\": 9}}, {\"mark\": \"<tool>\"}, {\"rep\": "
    "{\"text\": "
    "\"abcxy\"}}]}",
};
#define N_SHAPES ARRAY_LEN(shapes)

struct world { /* a model, and the answers of its sequences */
    struct tokenizer *tokenizer;
    struct grammar *grammars[N_SHAPES];
    uint32_t n_shaped;
    struct model *model, *drafter; /* drafter NULL: no draft model */
    struct team *teams[3];
    void *arena, *draft_arena;
    uint64_t n_model_drafts, n_model_right, n_mtp_drafts, n_mtp_right;
    struct request requests[N_SEQS];
    uint32_t n_preempted, n_drafted, n_accepted, n_scores;
    struct rng rng;
};

static struct world world;

static uint32_t below(uint32_t n)
{
    return (uint32_t)rng_below(&world.rng, n);
}

static void on_token(void *arg, struct seq *seq, const struct sample_result *token)
{
    struct answer *answer = seq_spec(seq)->user;

    (void)arg;
    assert_true(answer->n < ANSWER_TOKENS);
    answer->tokens[answer->n++] = *token;
}

static void on_prompt_logprobs(void *arg, struct seq *seq, uint32_t from, const struct sample_result *scores,
                               uint32_t n)
{
    struct answer *answer = seq_spec(seq)->user;

    (void)arg;
    assert_true(n > 0 && from + n <= ARRAY_LEN(answer->scores));
    memcpy(answer->scores + from, scores, n * sizeof(*scores));
    answer->n_scores += n;
    world.n_scores += n;
}

static void on_done(void *arg, struct seq *seq, enum seq_finish finish)
{
    struct answer *answer = seq_spec(seq)->user;
    const struct seq_stats *stats = seq_stats(seq);

    (void)arg;
    answer->finish = finish;
    world.n_preempted += stats->n_preempted;
    world.n_drafted += stats->n_drafted;
    world.n_accepted += stats->n_accepted;
    assert_int_equal(stats->n_computed + stats->n_reused, seq_spec(seq)->n_prompt);
}

struct setting {
    unsigned n_threads;
    uint32_t n_blocks, max_batch_tokens;
    enum sched_speculate speculate;
    uint32_t draft_blocks; /* 0: no draft model */
};

static void open_drafter(const struct setting *setting, struct engine *out)
{
    memset(world.draft_arena, 0xff, MAX_BLOCKS * kv_layout_block_bytes(model_kv_layout(world.drafter)));
    assert_int_equal(
        engine_cpu_new(&(struct engine_cpu_opts){.model = world.drafter,
                                                 .team = world.teams[setting->n_threads - 1],
                                                 .kv_arena = world.draft_arena,
                                                 .n_blocks = setting->draft_blocks,
                                                 .max_batch_tokens = 2 * SCHED_DRAFT_SEQS + below(200),
                                                 .max_items = SCHED_DRAFT_SEQS,
                                                 .team_from_bytes = 1},
                       out),
        0);
}

static void note_drafts(const struct sched *sched)
{
    struct sched_load load;

    sched_load(sched, &load);
    world.n_model_drafts += load.n_drafted[SCHED_DRAFT_MODEL];
    world.n_model_right += load.n_accepted[SCHED_DRAFT_MODEL];
    world.n_mtp_drafts += load.n_drafted[SCHED_DRAFT_MTP];
    world.n_mtp_right += load.n_accepted[SCHED_DRAFT_MTP];
}

/* Runs requests [first, first + n) together. */
static void run(const struct setting *setting, uint32_t first, uint32_t n, bool is_expected)
{
    struct engine engine, drafter = {0};
    struct kv_pool *pool;
    struct sched *sched;
    struct seq *seq;

    if (setting->draft_blocks > 0)
        open_drafter(setting, &drafter);
    memset(world.arena, 0xff, MAX_BLOCKS * kv_layout_block_bytes(model_kv_layout(world.model))); /* NaN */
    assert_int_equal(engine_cpu_new(&(struct engine_cpu_opts){.model = world.model,
                                                              .team = world.teams[setting->n_threads - 1],
                                                              .kv_arena = world.arena,
                                                              .n_blocks = setting->n_blocks,
                                                              .max_batch_tokens = setting->max_batch_tokens,
                                                              .max_items = N_SEQS,
                                                              .max_draws = N_SEQS + 20,
                                                              .team_from_bytes = 1},
                                    &engine),
                     0);
    assert_int_equal(
        kv_pool_new(&(struct kv_pool_opts){.n_blocks = setting->n_blocks, .block_tokens = BLOCK_TOKENS},
                    &pool),
        0);
    assert_int_equal(sched_new(&(struct sched_opts){.engine = &engine,
                                                    .pool = pool,
                                                    .max_seqs = N_SEQS,
                                                    .max_queue = N_SEQS,
                                                    .chunk_tokens = 1 + below(40),
                                                    .speculate = setting->speculate,
                                                    .max_drafts = MAX_DRAFTS,
                                                    .draft_engine = drafter.ops != NULL ? &drafter : NULL,
                                                    .draft_blocks = setting->draft_blocks,
                                                    .events = {.on_token = on_token,
                                                               .on_prompt_logprobs = on_prompt_logprobs,
                                                               .on_done = on_done}},
                               &sched),
                     0);
    for (uint32_t i = first; i < first + n; i++) {
        struct request *request = &world.requests[i];

        request->spec.user = is_expected ? &request->expected : &request->got;
        memset(request->spec.user, 0, sizeof(struct answer));
        assert_int_equal(sched_submit(sched, &request->spec, &seq), 0);
        for (uint32_t steps = below(20); steps > 0; steps--)
            assert_true(sched_run_step(sched) >= 0);
    }
    while (sched_has_work(sched))
        assert_true(sched_run_step(sched) > 0);
    note_drafts(sched);
    sched_free(sched);
    kv_pool_free(pool);
    engine_free(&engine);
    engine_free(&drafter);
}

/* Sets options that depend on earlier tokens. */
static void ask(struct request *request)
{
    struct seq_spec *spec = &request->spec;
    size_t n_stop_ids;

    spec->work.sample.n_top = below(6);
    spec->work.sample.min_tokens = below(3) ? 0 : below(ANSWER_TOKENS);
    if (below(3) == 0)
        spec->work.score_from = 1 + below(spec->n_tokens);
    if (below(3) == 0) {
        request->bias[0] = (struct sample_bias){.id = below(VOCAB), .bias = 2};
        spec->work.sample.frequency_penalty = 0.1f * (float)below(4);
        spec->work.sample.presence_penalty = 0.2f;
        spec->work.sample.repetition_penalty = 1.1f;
        spec->work.sample.bias = request->bias;
        spec->work.sample.n_bias = 1;
    }
    if (below(3) == 0) {
        spec->grammar = world.grammars[below(N_SHAPES)];
        spec->stop_ids = tokenizer_stop_ids(world.tokenizer, &n_stop_ids);
        spec->n_stop_ids = (uint32_t)n_stop_ids;
        world.n_shaped++;
    }
}

static void make_requests(void)
{
    static const float temperatures[] = {0, 0, 0.3f, 0.7f, 1.5f};

    for (uint32_t i = 0; i < N_SEQS; i++) {
        struct request *request = &world.requests[i];

        for (uint32_t j = 0; j < PROMPT_TOKENS; j++)
            request->prompt[j] = j >= 12 && below(8) ? request->prompt[j - 12] : below(VOCAB);
        request->stop_ids[0] = below(VOCAB);
        request->spec = (struct seq_spec){.id = i,
                                          .tokens = request->prompt,
                                          .n_tokens = 1 + below(PROMPT_TOKENS),
                                          .work.max_new_tokens = 1 + below(ANSWER_TOKENS),
                                          .stop_ids = request->stop_ids,
                                          .n_stop_ids = below(4) == 0,
                                          .work.sample = {.temperature = temperatures[i],
                                                          .top_p = below(2) ? 1 : 0.5f,
                                                          .top_k = below(2) ? 0 : 1 + below(4),
                                                          .min_p = below(2) ? 0 : 0.2f,
                                                          .wants_logprob = true,
                                                          .seed = rng_u64(&world.rng)}};
        request->spec.n_prompt = request->spec.n_tokens;
        ask(request);
    }
}

/* The MTP head of the model, if it has one. */
static void make_mtp(const struct tiny_shape *shape, const struct model_opts *opts)
{
    struct model_opts own = *opts;

    own.mtp_of = world.model;
    world.drafter = tiny_model(shape, world.teams[0], &own);
}

/* A model of this vocabulary with attention only: of other weights if the shape's seed is odd. */
static void make_drafter(const struct tiny_shape *shape, const struct model_opts *opts)
{
    struct tiny_shape own = shape->set == NULL ? *shape : tiny_shape("llama");

    own.vocab = VOCAB;
    own.context = CONTEXT;
    own.seed = shape->seed + shape->seed % 2;
    if (model_config(world.model)->n_nextn_layers > 0)
        make_mtp(shape, opts);
    else
        world.drafter = tiny_model(&own, world.teams[0], opts);
    world.draft_arena = calloc(MAX_BLOCKS, kv_layout_block_bytes(model_kv_layout(world.drafter)));
    assert_non_null(world.draft_arena);
}

static void check_model(const struct tiny_shape *shape, const struct model_opts *opts)
{
    rng_init(&world.rng, shape->seed);
    world.model = tiny_model(shape, world.teams[1], opts);
    world.arena = calloc(MAX_BLOCKS, kv_layout_block_bytes(model_kv_layout(world.model)));
    assert_non_null(world.arena);
    make_drafter(shape, opts);
    uint64_t n_drafts = world.n_model_drafts, n_right = world.n_model_right;
    for (uint32_t round = 0; round < trials(2, 1); round++) {
        struct setting alone = {1, MAX_BLOCKS, PROMPT_TOKENS, SPECULATE_OFF, 0};

        make_requests();
        for (uint32_t i = 0; i < N_SEQS; i++)
            run(&alone, i, 1, true);
        for (uint32_t trial = 0; trial < 6; trial++) {
            uint32_t n_state = kv_layout_state_blocks(model_kv_layout(world.model));
            struct setting crowd = {1 + below(3), 8 + 2 * n_state + below(4), N_SEQS + below(60),
                                    trial % 3 ? SPECULATE_ALWAYS : SPECULATE_AUTO,
                                    trial < 3   ? 0
                                    : trial < 5 ? MAX_BLOCKS
                                                : 1 + below(12)};

            run(&crowd, 0, N_SEQS, false);
            for (uint32_t i = 0; i < N_SEQS; i++) {
                const struct answer *expected = &world.requests[i].expected, *got = &world.requests[i].got;

                assert_int_equal(got->n, expected->n);
                assert_memory_equal(got->tokens, expected->tokens, got->n * sizeof(got->tokens[0]));
                assert_int_equal(got->finish, expected->finish);
                assert_int_equal(got->n_scores, expected->n_scores);
                assert_memory_equal(got->scores, expected->scores, sizeof(got->scores));
            }
        }
    }
    n_drafts = world.n_model_drafts - n_drafts;
    n_right = world.n_model_right - n_right;
    if (shape->set == NULL && shape->seed % 2 == 0) /* the same weights */
        assert_true(n_drafts > trials(50, 10) && n_right == n_drafts);
    free(world.draft_arena);
    model_free(world.drafter);
    free(world.arena);
    model_free(world.model);
}

static void make_grammars(void)
{
    struct grammar_vocab *vocab = small_vocab(&world.tokenizer);

    for (uint32_t i = 0; i < N_SHAPES; i++)
        world.grammars[i] = grammar_must(vocab, shapes[i]);
    grammar_vocab_unref(vocab);
}

static void free_grammars(void)
{
    for (uint32_t i = 0; i < N_SHAPES; i++)
        grammar_unref(world.grammars[i]);
    tokenizer_unref(world.tokenizer);
}

#define GLM_KEYS                                                                                             \
    {                                                                                                        \
        "nextn_predict_layers=1", "expert_count=4", "expert_used_count=2", "expert_feed_forward_length=32",  \
            "leading_dense_block_count=1", "expert_shared_count=1", NULL                                     \
    }
#define DELTA_KEYS                                                                                           \
    "ssm.conv_kernel=4", "ssm.inner_size=32", "ssm.state_size=8", "ssm.time_step_rank=2",                    \
        "ssm.group_count=1", "full_attention_interval=2"

/* Families with recurrent layers, and with MTP heads. The last layer of some is recurrent, the head's never is. */
static const struct drafting {
    const char *family;
    uint32_t n_layers;
    const char *keys[14];
} DRAFTING[] = {
    {"lfm2", 3, {"attention.head_count_kv=0,2,0", "shortconv.l_cache=3", NULL}},
    {"qwen35", 3, {DELTA_KEYS, NULL}},
    {"lfm2", 3, {"attention.head_count_kv=2,0,2", "shortconv.l_cache=5", NULL}},
    {"glm4moe", 3, GLM_KEYS},
    {"glm4moe", 3, GLM_KEYS},
    {"glm4moe", 3, GLM_KEYS},
    {"qwen35", 3, {DELTA_KEYS, "nextn_predict_layers=1", NULL}},
    {"qwen35", 4, {DELTA_KEYS, "nextn_predict_layers=1", NULL}},
    {"qwen3next",
     3,
     {DELTA_KEYS, "nextn_predict_layers=1", "expert_count=4", "expert_used_count=2",
      "expert_feed_forward_length=32", "expert_shared_feed_forward_length=32", NULL}},
    {"deepseek2", 3, {"nextn_predict_layers=1", NULL}},
    {"deepseek2", 3, {"nextn_predict_layers=1", "attention.q_lora_rank=32", NULL}},
    {"glm-dsa",
     4,
     {"nextn_predict_layers=1", "attention.q_lora_rank=32", "attention.indexer.head_count=4",
      "attention.indexer.key_length=16", "attention.indexer.top_k=9", "attention.indexer.types=1,0,0", NULL}},
};

static struct tiny_shape shape_of_drafting(const struct drafting *drafting)
{
    struct tiny_shape shape = tiny_shape(drafting->family);

    if (strcmp(drafting->family, "deepseek2") == 0 || strcmp(drafting->family, "glm-dsa") == 0) {
        bool has_bias = shape.has_bias;

        shape = tiny_experts("deepseek2");
        shape.arch = drafting->family;
        shape.has_bias = has_bias;
    }
    shape.set = drafting->keys;
    shape.n_layers = drafting->n_layers;
    return shape;
}

static void drafts_change_no_token(void **state)
{
    static const enum dtype types[][3] = {{DTYPE_F32, DTYPE_F32, DTYPE_F32},
                                          {DTYPE_Q8_0, DTYPE_F16, DTYPE_Q8_0},
                                          {DTYPE_BF16, DTYPE_Q8_0, DTYPE_F32}};

    (void)state;
    make_grammars();
    for (unsigned i = 0; i < 3; i++)
        /* Tests run side by side: a rank that waits leaves the processor to them. */
        assert_int_equal(team_new(&(struct team_opts){.n_threads = i + 1, .spin_ns = 1}, &world.teams[i]), 0);
    for (uint32_t i = 0; i < 6 + ARRAY_LEN(DRAFTING); i++) {
        struct tiny_shape shape =
            i >= 6 ? shape_of_drafting(&DRAFTING[i - 6]) : tiny_shape(i % 2 ? "qwen2" : "llama");
        uint64_t n_before = world.n_mtp_drafts;

        memcpy(shape.types, types[i % 3], sizeof(shape.types));
        shape.vocab = VOCAB;
        shape.context = CONTEXT;
        shape.seed = i + 1;
        check_model(&shape, &(struct model_opts){.kernels = i % 6 ? "auto" : "scalar",
                                                 .kv_type = i % 2 ? KV_F16 : KV_F32,
                                                 .block_tokens = BLOCK_TOKENS});
        if (i >= 9) /* each head drafts */
            assert_true(world.n_mtp_drafts - n_before > 100);
    }
    print_message("%u preemptions, %u drafts, %u right\n", world.n_preempted, world.n_drafted,
                  world.n_accepted);
    print_message("of a draft model: %u drafts, %u right\n", (unsigned)world.n_model_drafts,
                  (unsigned)world.n_model_right);
    assert_true(world.n_preempted > 0 && world.n_accepted > 300);
    print_message("of MTP heads: %u drafts, %u right\n", (unsigned)world.n_mtp_drafts,
                  (unsigned)world.n_mtp_right);
    assert_true(world.n_mtp_drafts > 300 && world.n_mtp_right > 0);
    assert_true(world.n_model_right > 300 && world.n_model_drafts - world.n_model_right > 300);
    assert_true(world.n_drafted - world.n_accepted > 300);
    assert_true(world.n_shaped > 10 && world.n_scores > 1000);
    for (unsigned i = 0; i < 3; i++)
        team_free(world.teams[i]);
    free_grammars();
}

/* A model in which the input row of one token is NaN, so all logits after that token are. */
static struct model *model_spoilt_at(const struct tiny_shape *shape, token_id id,
                                     const struct model_opts *opts)
{
    struct gguf *gguf = tiny_gguf(shape, NULL);
    const struct gguf_tensor *rows = gguf_tensor_find(gguf, "token_embd.weight");
    size_t row_bytes = rows->len_bytes / shape->vocab, page = (size_t)sysconf(_SC_PAGESIZE);
    uint8_t *row = (uint8_t *)(uintptr_t)rows->data + id * row_bytes;
    uint8_t *from = row - (uintptr_t)row % page;
    struct fault fault = {0};
    struct model *model = NULL;

    assert_int_equal(mprotect(from, (size_t)(row + row_bytes - from), PROT_READ | PROT_WRITE), 0);
    memset(row, 0xff, row_bytes);
    if (model_new(gguf, world.teams[0], opts, &fault, &model) < 0)
        fail_msg("%s", fault.text);
    gguf_close(gguf);
    return model;
}

static bool is_first(const struct answer *answer, uint32_t at)
{
    for (uint32_t i = 0; i < at; i++)
        if (answer->tokens[i].id == answer->tokens[at].id)
            return false;
    return true;
}

/* The first request's answer ends with the error after token `at`. */
static void run_spoilt(const struct setting *setting, uint32_t at)
{
    const struct request *request = &world.requests[0];

    run(setting, 0, 1, false);
    assert_int_equal(request->got.finish, SEQ_FINISH_SPOILT);
    assert_int_equal(request->got.n, at + 1);
    assert_memory_equal(request->got.tokens, request->expected.tokens,
                        (at + 1) * sizeof(request->got.tokens[0]));
}

/* The grammar forces much of the text, which is fed as draft tokens.  After each token in turn all logits are
 * NaN, whether it is fed as a draft token or not.  The answer ends with the error after it. */
static void a_draft_of_nan_logits_is_an_error(void **state)
{
    const struct setting alone = {1, MAX_BLOCKS, PROMPT_TOKENS, SPECULATE_OFF, 0},
                         drafts = {1, MAX_BLOCKS, PROMPT_TOKENS, SPECULATE_ALWAYS, 0};
    struct model_opts opts = {.kernels = "auto", .kv_type = KV_F32, .block_tokens = BLOCK_TOKENS};
    struct request *request = &world.requests[0];
    struct tiny_shape shape = tiny_shape("llama");

    (void)state;
    shape.vocab = VOCAB;
    shape.context = CONTEXT;
    make_grammars();
    world.teams[0] = check_team(1);
    world.teams[1] = world.teams[0];
    world.model = tiny_model(&shape, world.teams[0], &opts);
    world.arena = calloc(MAX_BLOCKS, kv_layout_block_bytes(model_kv_layout(world.model)));
    assert_non_null(world.arena);
    memset(request, 0, sizeof(*request));
    request->prompt[0] = 7;
    request->spec = (struct seq_spec){.tokens = request->prompt,
                                      .n_tokens = 1,
                                      .n_prompt = 1,
                                      .work.max_new_tokens = 20,
                                      .work.sample = {.top_p = 1},
                                      .grammar = world.grammars[0]};
    run(&alone, 0, 1, true);
    assert_true(request->expected.n > 2);
    model_free(world.model);
    for (uint32_t at = 0; at + 1 < request->expected.n; at++) {
        if (!is_first(&request->expected, at))
            continue;
        world.model = model_spoilt_at(&shape, request->expected.tokens[at].id, &opts);
        run_spoilt(&alone, at);
        run_spoilt(&drafts, at);
        model_free(world.model);
    }
    assert_true(world.n_drafted > 0);
    free(world.arena);
    team_free(world.teams[0]);
    free_grammars();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(drafts_change_no_token),
        cmocka_unit_test(a_draft_of_nan_logits_is_an_error),
    };

    log_setup("test", LOG_LEVEL_ERROR, LOG_FORMAT_TEXT);
    return cmocka_run_group_tests_name("speculation, real", tests, NULL, NULL);
}
