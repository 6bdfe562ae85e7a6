/* SPDX-License-Identifier: Apache-2.0 */
/* Draft tokens of an MTP head that is right: positions, rows and random numbers of its steps are those of the text.
 *
 * The writers of all layers are zero, so the logits depend on the latest token alone. The head passes on the embedding of
 * the token that it reads. So it gives the model's own logits, but for rounding, if it reads the right token; and it samples
 * the model's own token at any temperature, if it uses the random number of the right position.  The row with each token
 * is the normed embedding of the token before it, whether the model or the head computed it. The head also reads the
 * prompt's rows, without gaps, where this scheduler computes them. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/check.h"
#include "base/err.h"
#include "base/rng.h"
#include "compute/engine/engine_cpu.h"
#include "compute/sched/sched.h"
#include "tests/unit/compute/model/tiny.h"

enum { N_SEQS = 4, ANSWER = 60, PROMPT = 20, BLOCK = 16, BLOCKS = 64, VOCAB = 200, MOST_DRAFTS = 5 };

struct answer {
    token_id tokens[ANSWER];
    uint32_t n;
};

static const struct family {
    const char *name;
    const char *keys[12];
} FAMILIES[] = {
    {"glm4moe", {"nextn_predict_layers=1", NULL}},
    {"llama", {"nextn_predict_layers=1", NULL}},
    /* The last layer is recurrent: its state is rolled back, and accepted tokens are fed again. */
    {"qwen35",
     {"nextn_predict_layers=1", "ssm.conv_kernel=4", "ssm.inner_size=32", "ssm.state_size=8",
      "ssm.time_step_rank=2", "ssm.group_count=1", "full_attention_interval=2", NULL}},
    {"deepseek2", {"nextn_predict_layers=1", NULL}},
};

struct head_world {
    const struct family *family;
    struct team *team;
    struct model *model, *head;
    float *normed; /* [VOCAB][hidden] embeddings */
    uint32_t hidden;
    struct engine inner;    /* the head's engine, whose steps are checked */
    uint32_t n_rows;        /* that it read ... */
    uint32_t n_prompt;      /* ... of them of prompts */
    uint64_t now_ns;        /* a clock that engines move */
    uint64_t head_ns;       /* time of a step of the head on it */
    uint32_t n_answer;      /* tokens of an answer */
    uint32_t first[N_SEQS]; /* of each sequence: the token at the head's position 0 ... */
    uint32_t next[N_SEQS];  /* ... and its next position */
    struct answer answers[N_SEQS];
    token_id prompts[N_SEQS][PROMPT];
};

static struct head_world head_world;

/* Makes a tensor zero; with ones on its diagonal, or everywhere if n_cols is 1. */
static void set_tensor(struct gguf *gguf, const char *name, bool has_ones, uint32_t n_cols)
{
    const struct gguf_tensor *tensor = gguf_tensor_find(gguf, name);
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    float *data;
    uint8_t *from;

    if (tensor == NULL)
        return;
    assert_int_equal(tensor->type, DTYPE_F32);
    data = (float *)(uintptr_t)tensor->data;
    from = (uint8_t *)data - (uintptr_t)data % page;
    assert_int_equal(
        mprotect(from, (size_t)((uint8_t *)data + tensor->len_bytes - from), PROT_READ | PROT_WRITE), 0);
    memset(data, 0, tensor->len_bytes);
    for (size_t row = 0; has_ones && row < tensor->dims[0] * tensor->dims[1] / n_cols; row++)
        data[row * n_cols + (n_cols > 1 ? row : 0)] = 1;
}

static void make_head_right(struct gguf *gguf, const struct tiny_shape *shape)
{
    static const char *const WRITERS[] = {"attn_output.weight", "ffn_down.weight", "ffn_down_exps.weight",
                                          "ffn_down_shexp.weight", "ssm_out.weight"};
    static const char *const NORMS[] = {"enorm", "hnorm", "shared_head_norm"};
    char name[64];

    for (uint32_t layer = 0; layer < shape->n_layers; layer++)
        for (size_t i = 0; i < ARRAY_LEN(WRITERS); i++) {
            snprintf(name, sizeof(name), "blk.%u.%s", layer, WRITERS[i]);
            set_tensor(gguf, name, false, 1);
        }
    set_tensor(gguf, "output_norm.weight", true, 1);
    for (size_t i = 0; i < ARRAY_LEN(NORMS); i++) {
        snprintf(name, sizeof(name), "blk.%u.nextn.%s.weight", shape->n_layers - 1, NORMS[i]);
        set_tensor(gguf, name, true, 1);
    }
    snprintf(name, sizeof(name), "blk.%u.nextn.eh_proj.weight", shape->n_layers - 1);
    set_tensor(gguf, name, true, 2 * shape->hidden);
}

static void on_token(void *arg, struct seq *seq, const struct sample_result *token)
{
    struct answer *answer = seq_spec(seq)->user;

    (void)arg;
    assert_true(answer->n < ANSWER);
    answer->tokens[answer->n++] = token->id;
}

static void open_engine(struct model *model, uint32_t max_items, struct engine *out, void **arena_out)
{
    *arena_out = calloc(BLOCKS, kv_layout_block_bytes(model_kv_layout(model)));
    assert_non_null(*arena_out);
    assert_int_equal(engine_cpu_new(&(struct engine_cpu_opts){.model = model,
                                                              .team = head_world.team,
                                                              .kv_arena = *arena_out,
                                                              .n_blocks = BLOCKS,
                                                              .max_batch_tokens = 128,
                                                              .max_items = max_items,
                                                              .max_draws = 32},
                                    out),
                     0);
}

/* The rows of a sequence follow one another; some may be read again. */
static void check_place(const struct engine_item *item)
{
    uint32_t first = item->sampled_after, *next = &head_world.next[item->tag];

    assert_true(first > 0); /* the text begins with a token without a row */
    assert_true(item->position == 0 || (first == head_world.first[item->tag] && item->position <= *next));
    head_world.first[item->tag] = first;
    *next = item->position + item->n_tokens;
    if (item->wants_token)
        return;
    head_world.n_prompt += item->n_tokens;
    assert_memory_equal(item->tokens, head_world.prompts[item->tag] + first + item->position,
                        item->n_tokens * sizeof(token_id));
}

static int checked_step(void *self, const struct engine_batch *batch, struct sample_result *results_out)
{
    uint32_t hidden = head_world.hidden;

    for (uint32_t i = 0; i < batch->n_items; i++) {
        const struct engine_item *item = &batch->items[i];

        check_place(item);
        for (uint32_t k = 0; k < item->n_tokens; k++, head_world.n_rows++)
            for (uint32_t at = 0; at < hidden; at++)
                assert_true(fabsf(item->hidden[(size_t)k * hidden + at] -
                                  head_world.normed[(size_t)item->tokens[(int)k - 1] * hidden + at]) < 1e-2f);
    }
    head_world.now_ns += head_world.head_ns;
    return head_world.inner.ops->step(self, batch, results_out);
}

static struct engine model_inner;

/* A step of the model takes 10 ms, whatever it computes. */
static int slow_step(void *self, const struct engine_batch *batch, struct sample_result *results_out)
{
    head_world.now_ns += 10000000;
    return model_inner.ops->step(self, batch, results_out);
}

static uint64_t world_now(void)
{
    return ++head_world.now_ns;
}

static void check_steps(struct engine *head)
{
    static struct engine_ops ops;

    head_world.inner = *head;
    ops = *head->ops;
    ops.step = checked_step;
    head->ops = &ops;
}

static void submit_all(struct sched *sched, float temperature)
{
    memset(head_world.answers, 0, sizeof(head_world.answers));
    for (uint32_t i = 0; i < N_SEQS; i++) {
        struct seq_spec spec = {.id = i,
                                .tokens = head_world.prompts[i],
                                .n_tokens = PROMPT - i,
                                .n_prompt = PROMPT - i,
                                .user = &head_world.answers[i],
                                .work = {.max_new_tokens = ANSWER,
                                         .sample = {.top_p = 1, .temperature = temperature, .seed = 7 + i}}};
        struct seq *seq;

        assert_int_equal(sched_submit(sched, &spec, &seq), 0);
    }
}

/* Makes a pool for the scheduler; the caller frees it. */
static struct sched_opts sched_opts_of(struct engine *engine, struct engine *head,
                                       enum sched_speculate speculate)
{
    struct sched_opts opts = {.engine = engine,
                              .max_seqs = N_SEQS,
                              .max_queue = N_SEQS,
                              .chunk_tokens = 7,
                              .speculate = speculate,
                              .max_drafts = MOST_DRAFTS,
                              .draft_engine = head,
                              .draft_blocks = BLOCKS,
                              .events = {.on_token = on_token}};

    assert_int_equal(
        kv_pool_new(&(struct kv_pool_opts){.n_blocks = BLOCKS, .block_tokens = BLOCK}, &opts.pool), 0);
    return opts;
}

/* Answers all prompts together. Returns the steps that it took. */
static uint32_t answer_all(float temperature, enum sched_speculate speculate, struct sched_load *load_out)
{
    struct engine engine, head;
    void *arena, *head_arena;
    struct sched_opts opts;
    struct sched *sched;
    uint32_t n_steps = 0;

    open_engine(head_world.model, N_SEQS, &engine, &arena);
    open_engine(head_world.head, SCHED_DRAFT_SEQS, &head, &head_arena);
    check_steps(&head);
    opts = sched_opts_of(&engine, &head, speculate);
    assert_int_equal(sched_new(&opts, &sched), 0);
    submit_all(sched, temperature);
    for (; sched_has_work(sched); n_steps++)
        assert_true(sched_run_step(sched) > 0);
    sched_load(sched, load_out);
    sched_free(sched);
    kv_pool_free(opts.pool);
    engine_free(&engine);
    engine_free(&head);
    free(arena);
    free(head_arena);
    return n_steps;
}

static void drafts_of_a_right_head_are_accepted(void **state)
{
    static const float TEMPERATURES[] = {0, 0.4f, 1.2f};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(TEMPERATURES); i++) {
        struct answer expected[N_SEQS];
        struct sched_load load;
        uint32_t n_plain = answer_all(TEMPERATURES[i], SPECULATE_OFF, &load), n_steps;

        assert_int_equal(load.n_drafted[SCHED_DRAFT_MTP], 0);
        memcpy(expected, head_world.answers, sizeof(expected));
        head_world.n_prompt = 0;
        n_steps = answer_all(TEMPERATURES[i], SPECULATE_ALWAYS, &load);
        assert_int_equal(head_world.n_prompt, N_SEQS * (PROMPT - 1) - (1 + 2 + 3));
        assert_memory_equal(head_world.answers, expected, sizeof(expected));
        print_message("temperature %.1f: %u steps, not %u; %u of the head's %u drafts were right\n",
                      (double)TEMPERATURES[i], n_steps, n_plain, (unsigned)load.n_accepted[SCHED_DRAFT_MTP],
                      (unsigned)load.n_drafted[SCHED_DRAFT_MTP]);
        assert_true(load.n_drafted[SCHED_DRAFT_MTP] > 20 && n_steps < n_plain / 2);
        assert_true(10 * load.n_accepted[SCHED_DRAFT_MTP] >= 9 * load.n_drafted[SCHED_DRAFT_MTP]);
        assert_int_equal(load.n_drafted[SCHED_DRAFT_MODEL], 0);
    }
    assert_true(head_world.n_rows > 400);
}

/* One sequence after another, with one scheduler: a text of n tokens, which is handed over or answered. Returns how
 * many tokens of the prompt the head read. */
static uint32_t read_of_prompt(struct sched *sched, uint32_t which, uint32_t n, bool departs)
{
    struct seq_spec spec = {.id = which,
                            .tokens = head_world.prompts[which],
                            .n_tokens = n,
                            .n_prompt = n,
                            .departs = departs,
                            .user = &head_world.answers[0],
                            .work = {.max_new_tokens = head_world.n_answer, .sample = {.top_p = 1}}};
    struct seq *seq;

    head_world.answers[0].n = head_world.n_prompt = 0;
    assert_int_equal(sched_submit(sched, &spec, &seq), 0);
    for (uint32_t n_steps = 0; sched_has_work(sched) && !(departs && head_world.answers[0].n > 0); n_steps++)
        assert_true(n_steps < 100 && sched_run_step(sched) > 0);
    if (departs)
        sched_cancel(sched, seq);
    return head_world.n_prompt;
}

/* Without cached tokens, and not before a hand-off. */
static void the_head_reads_the_prompt_that_is_computed(void **state)
{
    struct engine engine, head;
    void *arena, *head_arena;
    struct sched_opts opts;
    struct sched *sched;

    (void)state;
    open_engine(head_world.model, N_SEQS, &engine, &arena);
    open_engine(head_world.head, SCHED_DRAFT_SEQS, &head, &head_arena);
    check_steps(&head);
    opts = sched_opts_of(&engine, &head, SPECULATE_ALWAYS);
    assert_int_equal(sched_new(&opts, &sched), 0);
    assert_int_equal(read_of_prompt(sched, 0, PROMPT, true), 0);
    assert_int_equal(read_of_prompt(sched, 0, BLOCK - 1, false),
                     BLOCK - 2); /* the cache has whole blocks only */
    assert_int_equal(read_of_prompt(sched, 0, PROMPT, false), PROMPT - 1 - BLOCK);
    assert_int_equal(head_world.answers[0].n, ANSWER);
    sched_free(sched);
    kv_pool_free(opts.pool);
    opts = sched_opts_of(&engine, &head, SPECULATE_AUTO);
    assert_int_equal(sched_new(&opts, &sched), 0);
    assert_int_equal(read_of_prompt(sched, 0, PROMPT, false), 0); /* nothing says yet that it pays */
    sched_free(sched);
    kv_pool_free(opts.pool);
    engine_free(&engine);
    engine_free(&head);
    free(arena);
    free(head_arena);
}

/* What the head reads of the fourth prompt, after three answers that showed its acceptance and cost. */
static uint32_t read_when_known(uint64_t head_ns, uint32_t n_last)
{
    struct engine engine, head;
    struct engine_ops slow;
    void *arena, *head_arena;
    struct sched_opts opts;
    struct sched *sched;
    uint32_t n_read = 0;

    head_world.head_ns = head_ns;
    open_engine(head_world.model, N_SEQS, &engine, &arena);
    open_engine(head_world.head, SCHED_DRAFT_SEQS, &head, &head_arena);
    check_steps(&head);
    model_inner = engine;
    slow = *engine.ops;
    slow.step = slow_step;
    engine.ops = &slow;
    opts = sched_opts_of(&engine, &head, SPECULATE_AUTO);
    opts.now_ns = world_now;
    assert_int_equal(sched_new(&opts, &sched), 0);
    for (uint32_t i = 0; i < N_SEQS; i++) {
        head_world.n_answer = i + 1 < N_SEQS ? ANSWER : n_last;
        n_read = read_of_prompt(sched, i, PROMPT, false);
    }
    sched_free(sched);
    kv_pool_free(opts.pool);
    engine_free(&engine);
    engine_free(&head);
    free(arena);
    free(head_arena);
    head_world.head_ns = 0;
    head_world.n_answer = ANSWER;
    return n_read;
}

static void prompts_are_read_where_that_pays(void **state)
{
    (void)state;
    assert_int_equal(read_when_known(2000000, ANSWER), PROMPT - 1);
    assert_int_equal(read_when_known(2000000, 2),
                     0); /* few tokens save too little for two steps of the head */
    assert_int_equal(read_when_known(20000000, ANSWER), 0); /* no draft token pays */
}

/* The rows of the model would not be those that the head reads. */
static void a_head_of_another_model_is_refused(void **state)
{
    struct engine engine, head;
    void *arena, *head_arena;
    struct sched_opts opts;
    struct sched *sched;

    (void)state;
    open_engine(head_world.model, SCHED_DRAFT_SEQS, &engine, &arena);
    open_engine(head_world.head, SCHED_DRAFT_SEQS, &head, &head_arena);
    head.info.hidden++;
    opts = sched_opts_of(&engine, &head, SPECULATE_AUTO);
    assert_int_equal(sched_new(&opts, &sched), E_MISMATCH);
    kv_pool_free(opts.pool);
    engine_free(&engine);
    engine_free(&head);
    free(arena);
    free(head_arena);
}

static void norm_embeddings(struct gguf *gguf, uint32_t hidden)
{
    const float *rows = gguf_tensor_find(gguf, "token_embd.weight")->data;

    head_world.hidden = hidden;
    head_world.normed = calloc(VOCAB, hidden * sizeof(float));
    assert_non_null(head_world.normed);
    for (size_t id = 0; id < VOCAB; id++) {
        double squares = 0;

        for (size_t at = 0; at < hidden; at++)
            squares += (double)rows[id * hidden + at] * rows[id * hidden + at];
        for (size_t at = 0; at < hidden; at++)
            head_world.normed[id * hidden + at] =
                rows[id * hidden + at] / (float)sqrt(squares / hidden + 1e-5);
    }
}

static int open_world(void **state)
{
    const struct family *family = head_world.family;
    struct tiny_shape shape =
        strcmp(family->name, "qwen35") == 0 ? tiny_shape(family->name) : tiny_experts(family->name);
    struct model_opts opts = {.block_tokens = BLOCK};
    struct fault fault = {0};
    struct gguf *gguf;
    struct rng rng;

    (void)state;
    rng_init(&rng, 3);
    shape.n_layers = 4;
    shape.set = family->keys;
    shape.vocab = VOCAB;
    for (size_t i = 0; i < 3; i++)
        shape.types[i] = DTYPE_F32;
    assert_int_equal(team_new(&(struct team_opts){.n_threads = 2}, &head_world.team), 0);
    gguf = tiny_gguf(&shape, NULL);
    make_head_right(gguf, &shape);
    if (model_new(gguf, head_world.team, &opts, &fault, &head_world.model) < 0)
        fail_msg("%s", fault.text);
    opts.mtp_of = head_world.model;
    if (model_new(gguf, head_world.team, &opts, &fault, &head_world.head) < 0)
        fail_msg("%s", fault.text);
    norm_embeddings(gguf, shape.hidden);
    gguf_close(gguf);
    for (uint32_t i = 0; i < N_SEQS; i++)
        for (uint32_t j = 0; j < PROMPT; j++)
            head_world.prompts[i][j] = (token_id)rng_below(&rng, VOCAB);
    return 0;
}

static int close_world(void **state)
{
    (void)state;
    model_free(head_world.head);
    model_free(head_world.model);
    team_free(head_world.team);
    free(head_world.normed);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(drafts_of_a_right_head_are_accepted),
        cmocka_unit_test(the_head_reads_the_prompt_that_is_computed),
        cmocka_unit_test(prompts_are_read_where_that_pays),
        cmocka_unit_test(a_head_of_another_model_is_refused),
    };

    int n_failed = 0;

    for (size_t i = 0; i < ARRAY_LEN(FAMILIES); i++) {
        head_world = (struct head_world){.family = &FAMILIES[i], .n_answer = ANSWER};
        print_message("%s\n", FAMILIES[i].name);
        n_failed += cmocka_run_group_tests(tests, open_world, close_world);
    }
    return n_failed;
}
