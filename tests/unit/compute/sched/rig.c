/* SPDX-License-Identifier: Apache-2.0 */
/* The test rig; see rig.h. */
#include "tests/unit/compute/sched/rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/err.h"

uint64_t rig_now_ns = 1;
uint32_t rig_echo, rig_jitter;

static const token_id stop_ids[] = {RIG_STOP_ID};

static uint64_t now(void)
{
    return rig_now_ns;
}

void rig_sleep(void *arg, uint64_t ns)
{
    static uint64_t n_sleeps;
    uint32_t words[4];

    rng_counter(77, 0, n_sleeps++, words);
    rig_now_ns += ns - ns * rig_jitter / 100 + (ns * rig_jitter / 50 * words[0] >> 32);
}

/* ---- the wrapped engine ---- */

static void check_item(const struct rig *rig, const struct engine_item *item, uint8_t *written)
{
    uint32_t first = item->position / RIG_BLOCK_TOKENS;
    uint32_t last = (item->position + item->n_tokens - 1) / RIG_BLOCK_TOKENS;

    assert_true(last < item->n_blocks);
    for (uint32_t b = 0; b <= last; b++) {
        enum kv_state state = kv_state_of(rig->pool, item->blocks[b]);

        if (b < first) {
            assert_true(state == KV_FILLING || state == KV_SEALED);
        } else {
            assert_int_equal(state, KV_FILLING);
            assert_int_equal(written[item->blocks[b]]++, 0);
        }
    }
}

/* Replaces sampled results, as an engine with non-finite logits does. */
static void spoil(const struct rig *rig, const struct engine_batch *batch, struct sample_result *results)
{
    for (uint32_t i = 0; i < batch->n_items && rig->spoil_after > 0; i++) {
        const struct engine_item *item = &batch->items[i];

        if (item->n_drafts >= rig->spoil_after && results[rig->spoil_after].id != TOKEN_NONE)
            results[rig->spoil_after] = (struct sample_result){.id = TOKEN_NONE, .is_spoilt = true};
        results += 1 + item->n_drafts;
    }
}

static int step(void *self, const struct engine_batch *batch, struct sample_result *results_out)
{
    struct rig *rig = self;
    struct rig_batch seen = {0};
    uint8_t *written = calloc(rig->opts.n_blocks, 1);
    uint32_t n_tokens = 0, n_draws = 0;

    assert_non_null(written);
    assert_in_range(batch->n_items, 1, rig->opts.max_seqs);
    for (uint32_t i = 0; i < batch->n_items; i++) {
        const struct engine_item *item = &batch->items[i];
        bool is_decode = item->n_tokens == 1 + item->n_drafts && item->wants_token;

        check_item(rig, item, written);
        n_tokens += item->n_tokens;
        n_draws += item->wants_token ? 1 + item->n_drafts : 0;
        seen.n_drafts += item->n_drafts;
        assert_true(item->n_drafts <= rig->opts.max_drafts);
        assert_true(item->position + item->n_tokens < rig->opts.context_length || item->n_drafts == 0);
        seen.n_decode += is_decode;
        seen.n_prefill += !is_decode;
        seen.n_prefill_tokens += is_decode ? 0 : item->n_tokens;
    }
    assert_in_range(n_tokens, 1, rig->opts.max_batch_tokens);
    assert_true(n_draws <= rig->engine.info.max_draws);
    free(written);
    rig->batches[rig->n_steps++ % RIG_STEPS_MAX] = seen;

    int code = rig->fail_with;
    rig->fail_with = 0;
    if (code == 0)
        code = engine_step(&rig->sim, batch, results_out);
    if (code == 0)
        spoil(rig, batch, results_out);
    return code;
}

static const struct engine_ops wrapped_ops = {.step = step};

/* ---- events ---- */

static void verify(struct rig *rig, struct seq *seq)
{
    const struct seq_spec *spec = seq_spec(seq);

    assert_int_equal(
        engine_sim_verify(&rig->sim, spec->tokens, seq_n_computed(seq), seq_blocks(seq, NULL, NULL)), 0);
}

static void call_hook(struct track *track, const char *event)
{
    if (track->hook)
        track->hook(track, event);
}

static void on_admitted(void *arg, struct seq *seq)
{
    struct track *track = seq_spec(seq)->user;

    assert_int_equal(seq_state(seq), SEQ_PREFILL);
    assert_int_equal(track->n_admitted++, 0);
    verify(arg, seq);
    call_hook(track, "admitted");
}

static void on_layer(void *arg, uint32_t layer)
{
    struct rig *rig = arg;

    rig->n_layers_seen++;
    if (rig->on_layer)
        rig->on_layer(rig, layer);
}

static void on_prefilled(void *arg, struct seq *seq, uint32_t from, uint32_t to)
{
    struct track *track = seq_spec(seq)->user;

    assert_true(from < to);
    assert_int_equal(seq_n_computed(seq), to);
    assert_true(from <= track->n_prefilled_to || seq_stats(seq)->n_preempted > 0 ||
                from == seq_stats(seq)->n_reused + seq_stats(seq)->n_transferred);
    if (to > track->n_prefilled_to)
        track->n_prefilled_to = to;
    verify(arg, seq);
    call_hook(track, "prefilled");
}

static void on_token(void *arg, struct seq *seq, const struct sample_result *token)
{
    const struct seq_spec *spec = seq_spec(seq);
    struct track *track = spec->user;

    assert_true(track->n_answer < RIG_ANSWER_MAX);
    assert_int_equal(spec->tokens[spec->n_tokens - 1], token->id);
    assert_true(token->id != RIG_STOP_ID);
    track->draws[track->n_answer] = *token;
    track->answer[track->n_answer++] = token->id;
    verify(arg, seq);
    call_hook(track, "token");
}

static void on_held(void *arg, struct seq *seq)
{
    struct track *track = seq_spec(seq)->user;

    assert_int_equal(seq_state(seq), SEQ_HELD);
    track->n_held++;
    verify(arg, seq);
    call_hook(track, "held");
}

static void on_done(void *arg, struct seq *seq, enum seq_finish finish)
{
    struct track *track = seq_spec(seq)->user;

    assert_int_equal(seq_state(seq), SEQ_DONE);
    assert_false(track->is_done);
    track->is_done = true;
    track->finish = finish;
    track->stats = *seq_stats(seq);
    track->seq = NULL;
    call_hook(track, "done");
}

/* ---- the rig ---- */

static void set_default(uint32_t *value, uint32_t if_zero)
{
    if (*value == 0)
        *value = if_zero;
}

/* Opens the engine that takes no time, with its arena; the options are set before. */
static void open_sim(struct rig *rig)
{
    const struct rig_opts *opts = &rig->opts;
    struct engine_sim_opts sim = {
        .vocab_size = RIG_VOCAB,
        .first_text_id = 10,
        .stop_id = opts->mean_answer_tokens ? RIG_STOP_ID : TOKEN_NONE,
        .mean_answer_tokens = opts->mean_answer_tokens,
        .context_length = rig->opts.context_length,
        .max_batch_tokens = rig->opts.max_batch_tokens,
        .layout = {.n_layers = 2,
                   .n_kv_heads = 1,
                   .k_dim = 8,
                   .v_dim = 8,
                   .block_tokens = RIG_BLOCK_TOKENS,
                   .type = KV_F16},
        .n_blocks = rig->opts.n_blocks,
        .step_ns = opts->step_ns ? opts->step_ns : 1000000,
        .prefill_token_ns = opts->prefill_token_ns ? opts->prefill_token_ns : 100000,
        .decode_seq_ns = opts->decode_seq_ns ? opts->decode_seq_ns : 200000,
        .echo = rig_echo,
        .sleep_ns = rig_sleep,
    };
    rig->arena = calloc(rig->opts.n_blocks, kv_layout_block_bytes(&sim.layout));
    assert_non_null(rig->arena);
    sim.kv_arena = rig->arena;
    assert_int_equal(engine_sim_new(&sim, &rig->sim), 0);
    rig->engine = (struct engine){.ops = &wrapped_ops, .self = rig, .info = rig->sim.info};
}

void rig_open(struct rig *rig, const struct rig_opts *opts)
{
    memset(rig, 0, sizeof(*rig));
    rig->opts = *opts;
    set_default(&rig->opts.n_blocks, 64);
    set_default(&rig->opts.max_seqs, 4);
    set_default(&rig->opts.max_queue, 16);
    set_default(&rig->opts.chunk_tokens, 8);
    set_default(&rig->opts.max_batch_tokens, 16);
    set_default(&rig->opts.context_length, 200);
    set_default(&rig->opts.max_drafts, 8);

    open_sim(rig);

    struct kv_pool_opts pool = {.n_blocks = rig->opts.n_blocks,
                                .block_tokens = RIG_BLOCK_TOKENS,
                                .lifetime_ns = opts->lifetime_ns,
                                .now_ns = now};
    assert_int_equal(kv_pool_new(&pool, &rig->pool), 0);

    struct sched_opts sched = {.engine = &rig->engine,
                               .pool = rig->pool,
                               .max_seqs = rig->opts.max_seqs,
                               .max_queue = rig->opts.max_queue,
                               .chunk_tokens = rig->opts.chunk_tokens,
                               .itl_ns = opts->itl_ns,
                               .max_step_ns = opts->max_step_ns,
                               .is_given_up = opts->is_given_up,
                               .speculate = opts->speculate,
                               .max_drafts = rig->opts.max_drafts,
                               .draft_engine = opts->draft_engine,
                               .draft_blocks = opts->draft_blocks,
                               .events = {.on_admitted = on_admitted,
                                          .on_layer = on_layer,
                                          .on_prefilled = on_prefilled,
                                          .on_token = on_token,
                                          .on_held = on_held,
                                          .on_done = on_done},
                               .events_arg = rig,
                               .now_ns = now};
    assert_int_equal(sched_new(&sched, &rig->sched), 0);
}

void rig_close(struct rig *rig)
{
    struct kv_pool_counts counts;

    sched_free(rig->sched);
    kv_pool_counts(rig->pool, &counts);
    assert_int_equal(counts.n_leased, 0);
    assert_int_equal(counts.n_free + counts.n_cached, rig->opts.n_blocks);
    kv_pool_free(rig->pool);
    engine_free(&rig->sim);
    free(rig->arena);
}

struct seq_spec rig_spec(const token_id *tokens, uint32_t n_tokens, uint32_t max_new_tokens, uint64_t seed)
{
    return (struct seq_spec){.id = seed,
                             .tokens = tokens,
                             .n_tokens = n_tokens,
                             .n_prompt = n_tokens,
                             .work.max_new_tokens = max_new_tokens,
                             .stop_ids = stop_ids,
                             .n_stop_ids = 1,
                             .work.sample = {.seed = seed}};
}

int rig_submit(struct rig *rig, struct seq_spec spec, struct track *track)
{
    void (*hook)(struct track *, const char *) = track->hook;
    void *arg = track->arg;

    *track = (struct track){.rig = rig, .hook = hook, .arg = arg};
    spec.user = track;
    return sched_submit(rig->sched, &spec, &track->seq);
}

void rig_step(struct rig *rig)
{
    assert_true(sched_run_step(rig->sched) > 0);
}

void rig_run(struct rig *rig)
{
    int code;

    do
        code = sched_run_step(rig->sched);
    while (code > 0);
    assert_int_equal(code, 0);
}

void rig_prompt(token_id *out, uint32_t n_tokens, uint32_t text)
{
    for (uint32_t i = 0; i < n_tokens; i++)
        out[i] = 10 + (text * 7919 + i * 31 + i / 7) % (RIG_VOCAB - 10);
}

void rig_alone(const struct seq_spec *spec, uint32_t context_length, uint32_t mean_answer_tokens,
               struct track *out)
{
    struct rig_opts opts = {.context_length = context_length, .mean_answer_tokens = mean_answer_tokens};
    struct seq_spec copy = *spec;
    struct rig rig;

    rig_open(&rig, &opts);
    copy.arrives = copy.departs = false;
    out->hook = NULL;
    assert_int_equal(rig_submit(&rig, copy, out), 0);
    rig_run(&rig);
    assert_true(out->is_done);
    rig_close(&rig);
}

void rig_assert_same(const struct track *a, const struct track *b)
{
    assert_int_equal(a->n_answer, b->n_answer);
    assert_memory_equal(a->answer, b->answer, a->n_answer * sizeof(a->answer[0]));
    assert_memory_equal(a->draws, b->draws, a->n_answer * sizeof(a->draws[0]));
    assert_int_equal(a->finish, b->finish);
}
