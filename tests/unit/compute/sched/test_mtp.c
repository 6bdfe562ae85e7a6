/* SPDX-License-Identifier: Apache-2.0 */
/* Draft tokens of an MTP head that is right: positions, rows and random numbers of its steps are those of the text.
 *
 * The writers of all layers are zero, so the logits depend on the latest token alone. The head passes on the embedding of
 * the token that it reads. So it gives the model's own logits, but for rounding, if it reads the right token; and it samples
 * the model's own token at any temperature, if it uses the random number of the right position.  The row with each token
 * is the normed embedding of the token before it, whether the model or the head computed it. The head also reads the
 * prompt's rows, without gaps, where this scheduler computes them. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/check.h"
#include "base/err.h"
#include "base/rng.h"
#include "compute/engine/engine_cpu.h"
#include "compute/sched/head.h"
#include "tests/unit/compute/check_team.h"
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
    struct sched *sched;    /* of departing sequences ... */
    double worth_s;         /* ... and what their head's KV is worth */
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

/* The peer of a departing sequence would spend worth_s. */
static void on_admitted(void *arg, struct seq *seq)
{
    bool departs = seq_spec(seq)->departs;

    (void)arg;
    assert_int_equal(sched_head_depart(head_world.sched, seq, head_world.worth_s),
                     departs && head_world.worth_s > 0);
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

/* Every step of the model takes 10 ms. */
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

struct side { /* a scheduler with all that it borrows */
    struct engine engine, head;
    void *arena, *head_arena;
    struct sched_opts opts;
    struct sched *sched;
};

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

static void open_engines(struct side *side)
{
    open_engine(head_world.model, N_SEQS, &side->engine, &side->arena);
    open_engine(head_world.head, SCHED_DRAFT_SEQS, &side->head, &side->head_arena);
    check_steps(&side->head);
}

static void open_sched(struct side *side, enum sched_speculate speculate)
{
    side->opts = sched_opts_of(&side->engine, &side->head, speculate);
    assert_int_equal(sched_new(&side->opts, &side->sched), 0);
}

static void close_sched(struct side *side)
{
    sched_free(side->sched);
    kv_pool_free(side->opts.pool);
}

static void close_engines(struct side *side)
{
    engine_free(&side->engine);
    engine_free(&side->head);
    free(side->arena);
    free(side->head_arena);
}

/* Answers all prompts together. Returns the steps that it took. */
static uint32_t answer_all(float temperature, enum sched_speculate speculate, struct sched_load *load_out)
{
    struct side side;
    uint32_t n_steps = 0;

    open_engines(&side);
    open_sched(&side, speculate);
    submit_all(side.sched, temperature);
    for (; sched_has_work(side.sched); n_steps++)
        assert_true(sched_run_step(side.sched) > 0);
    sched_load(side.sched, load_out);
    close_sched(&side);
    close_engines(&side);
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

/* Without cached tokens, and not before a hand-off that does not ask for it. */
static void the_head_reads_the_prompt_that_is_computed(void **state)
{
    struct side side;

    (void)state;
    open_engines(&side);
    open_sched(&side, SPECULATE_ALWAYS);
    assert_int_equal(read_of_prompt(side.sched, 0, PROMPT, true), 0);
    assert_int_equal(read_of_prompt(side.sched, 0, BLOCK - 1, false),
                     BLOCK - 2); /* the cache has whole blocks only */
    assert_int_equal(read_of_prompt(side.sched, 0, PROMPT, false), PROMPT - 1 - BLOCK);
    assert_int_equal(head_world.answers[0].n, ANSWER);
    close_sched(&side);
    open_sched(&side, SPECULATE_AUTO);
    assert_int_equal(read_of_prompt(side.sched, 0, PROMPT, false), 0); /* no speed is measured yet */
    close_sched(&side);
    close_engines(&side);
}

/* What the head reads of the fourth prompt, after three answers that showed its acceptance and cost. */
static uint32_t read_when_known(uint64_t head_ns, uint32_t n_last)
{
    struct side side;
    struct engine_ops slow;
    uint32_t n_read = 0;

    head_world.head_ns = head_ns;
    open_engines(&side);
    model_inner = side.engine;
    slow = *side.engine.ops;
    slow.step = slow_step;
    side.engine.ops = &slow;
    side.opts = sched_opts_of(&side.engine, &side.head, SPECULATE_AUTO);
    side.opts.now_ns = world_now;
    assert_int_equal(sched_new(&side.opts, &side.sched), 0);
    for (uint32_t i = 0; i < N_SEQS; i++) {
        head_world.n_answer = i + 1 < N_SEQS ? ANSWER : n_last;
        n_read = read_of_prompt(side.sched, i, PROMPT, false);
    }
    close_sched(&side);
    close_engines(&side);
    head_world.head_ns = 0;
    head_world.n_answer = ANSWER;
    return n_read;
}

static void prompts_are_read_where_that_pays(void **state)
{
    (void)state;
    assert_int_equal(read_when_known(2000000, ANSWER), PROMPT - 1);
    assert_int_equal(read_when_known(2000000, 2),
                     0); /* with few tokens, drafting saves less than two steps of the head take */
    assert_int_equal(read_when_known(20000000, ANSWER), 0); /* no draft token pays */
}

/* The rows of the model would not be those that the head reads. */
static void a_head_of_another_model_is_refused(void **state)
{
    struct side side;

    (void)state;
    open_engines(&side);
    side.head.info.hidden++;
    side.opts = sched_opts_of(&side.engine, &side.head, SPECULATE_AUTO);
    assert_int_equal(sched_new(&side.opts, &side.sched), E_MISMATCH);
    kv_pool_free(side.opts.pool);
    close_engines(&side);
}

/* ---- hand-off ---- */

static void copy_blocks(const struct kv_layout *layout, const void *from, const kv_block_id *from_ids,
                        void *to, const kv_block_id *to_ids, uint32_t n)
{
    size_t bytes = kv_layout_layer_block_bytes(layout);

    for (uint32_t i = 0; i < n; i++)
        for (uint32_t layer = 0; layer < layout->n_layers; layer++)
            memcpy((uint8_t *)to + kv_layout_offset(layout, BLOCKS, layer, to_ids[i]),
                   (const uint8_t *)from + kv_layout_offset(layout, BLOCKS, layer, from_ids[i]), bytes);
}

static struct seq *submit_one(struct side *side, bool departs)
{
    struct seq_spec spec = {
        .tokens = head_world.prompts[0],
        .n_tokens = PROMPT,
        .n_prompt = PROMPT,
        .departs = departs,
        .arrives = !departs,
        .user = &head_world.answers[departs],
        .work = {.max_new_tokens = ANSWER, .sample = {.top_p = 1, .temperature = 0.4f, .seed = 7}}};
    struct seq *seq;

    assert_int_equal(sched_submit(side->sched, &spec, &seq), 0);
    return seq;
}

/* Moves the KV of the model, and that of the head if it has read the prompt. */
static void move_kv(struct side *from, struct seq *leaving, struct side *to, struct seq *coming)
{
    const struct kv_layout *layout = model_kv_layout(head_world.model);
    uint32_t n_blocks, n_state, n_cached;
    const kv_block_id *blocks = seq_blocks(leaving, &n_blocks, NULL);
    const kv_block_id *state = seq_state_blocks(from->sched, leaving, &n_state);
    uint32_t n_prompt = (PROMPT + BLOCK - 1) / BLOCK;
    struct sched_head head, place;

    copy_blocks(layout, from->arena, blocks, to->arena, seq_blocks(coming, &n_blocks, &n_cached), n_prompt);
    assert_int_equal(n_cached, 0);
    copy_blocks(layout, from->arena, state, to->arena, seq_state_blocks(to->sched, coming, &n_state),
                n_state);
    if (!sched_head(from->sched, leaving, &head))
        return;
    assert_int_equal(head.first, 1);
    assert_int_equal(head.n_tokens, PROMPT - 1);
    assert_int_equal(sched_head_arrive(to->sched, coming, 0, &place), E_INVAL);
    assert_int_equal(sched_head_arrive(to->sched, coming, PROMPT, &place), E_INVAL);
    assert_int_equal(sched_head_arrive(to->sched, coming, head.first, &place), 0);
    assert_int_equal(place.n_tokens, head.n_tokens);
    copy_blocks(model_kv_layout(head_world.head), from->head_arena, head.blocks, to->head_arena, place.blocks,
                (head.n_tokens + BLOCK - 1) / BLOCK);
    memcpy(place.row, head.row, head_world.hidden * sizeof(float));
    sched_head_departed(from->sched, leaving);
}

/* Answers the first prompt with two schedulers. Returns the head's position with the answer's first token. */
static uint32_t answer_with_a_hand_off(double worth_s, struct sched_load *load_out)
{
    struct side p, d;
    struct seq *leaving, *coming;
    struct sample_result first;
    uint32_t at;

    memset(head_world.answers, 0, sizeof(head_world.answers));
    head_world.next[0] = 0;
    open_engines(&p);
    open_engines(&d);
    p.opts = sched_opts_of(&p.engine, &p.head, SPECULATE_AUTO);
    p.opts.events.on_admitted = on_admitted;
    assert_int_equal(sched_new(&p.opts, &p.sched), 0);
    open_sched(&d, SPECULATE_ALWAYS);
    leaving = submit_one(&p, true);
    coming = submit_one(&d, false);
    assert_int_equal(sched_head_depart(d.sched, coming, HUGE_VAL), 0); /* it does not depart */
    head_world.sched = p.sched;
    head_world.worth_s = worth_s;
    while (seq_state(leaving) != SEQ_HELD)
        assert_true(sched_run_step(p.sched) > 0);
    move_kv(&p, leaving, &d, coming);
    at = head_world.next[0];
    first = (struct sample_result){.id = head_world.answers[1].tokens[0]};
    assert_int_equal(sched_release(p.sched, leaving), 0);
    assert_int_equal(sched_arrived(d.sched, coming, PROMPT, &first, true), 0);
    while (sched_has_work(d.sched))
        assert_true(sched_run_step(d.sched) > 0);
    sched_load(d.sched, load_out);
    close_sched(&p);
    close_sched(&d);
    close_engines(&p);
    close_engines(&d);
    return at;
}

/* With the KV of its prompt, or from the first token on; the tokens are the same. */
static void a_head_drafts_after_a_hand_off(void **state)
{
    struct sched_load load;
    struct answer plain;

    (void)state;
    (void)answer_all(0.4f, SPECULATE_OFF, &load);
    plain = head_world.answers[0];
    for (uint32_t has_kv = 0; has_kv < 2; has_kv++) {
        assert_int_equal(answer_with_a_hand_off(has_kv ? HUGE_VAL : 0, &load), has_kv ? PROMPT - 1 : 0);
        assert_memory_equal(&head_world.answers[0], &plain, sizeof(plain));
        assert_int_equal(head_world.first[0],
                         has_kv ? 1 : PROMPT + 1); /* the token that its KV begins with */
        assert_true(load.n_drafted[SCHED_DRAFT_MTP] > 20);
        assert_true(10 * load.n_accepted[SCHED_DRAFT_MTP] >= 9 * load.n_drafted[SCHED_DRAFT_MTP]);
    }
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
    head_world.team = check_team(2);
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
        cmocka_unit_test(a_head_drafts_after_a_hand_off),
    };

    int n_failed = 0;

    for (size_t i = 0; i < ARRAY_LEN(FAMILIES); i++) {
        head_world = (struct head_world){.family = &FAMILIES[i], .n_answer = ANSWER};
        print_message("%s\n", FAMILIES[i].name);
        n_failed += cmocka_run_group_tests(tests, open_world, close_world);
    }
    return n_failed;
}
