/* SPDX-License-Identifier: Apache-2.0 */
/* Windowed blocks in the scheduler, with real forward passes of tiny models.  Checks which blocks a sequence holds,
 * which prefixes hit, and that no hit, chunk, preemption or hand-off changes a bit of the answer.
 *
 * The expected answer comes from the same weights with the keys of all layers in every block. There the sequence is
 * alone in an empty pool, and no block is released before the end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "cpu_rig.h"

#include "base/check.h"
#include "base/err.h"
#include "base/rng.h"
#include "cache/kv/pool_cache.h"
#include "cache/kv/window.h"
#include "compute/engine/engine_cpu.h"
#include "compute/sched/sched.h"
#include "tests/unit/compute/check_team.h"
#include "tests/unit/compute/model/tiny.h"

enum { N_BLOCKS = 400 };

/* ---- the cases, each for every model ---- */

/* Prompts with a common first half without a breakpoint: its windowed blocks were released, but are still cached. */
static void check_fork(void)
{
    enum { SHARED = 7 * BLOCK_TOKENS };
    token_id tokens[3][200];
    struct answer answer;
    struct cpu_rig rig;

    cpu_rig_open(&rig, N_BLOCKS, 512);
    for (uint32_t i = 0; i < 3; i++) {
        cpu_rig_draw(tokens[i], 0, 200);
        memcpy(tokens[i], tokens[0], (SHARED + 5) * sizeof(token_id));
        cpu_rig_complete(&rig, tokens[i], 200, 12, &answer);
        cpu_rig_expect_same(&answer, tokens[i], 200, 12);
        assert_int_equal(answer.stats.n_reused, i > 0 ? SHARED : 0);
    }
    cpu_rig_close(&rig);
}

/* While a long prompt is read and answered, no step holds more than the full blocks, one window and the chunk. */
static void check_memory(void)
{
    enum { CHUNK = 32, N = 300 };
    const struct kv_layout *layout = model_kv_layout(cpu_world.model);
    uint32_t n_groups = kv_window_groups(layout), n_held, n_most;
    token_id tokens[N];
    struct answer answer;
    struct kv_pool_counts counts;
    struct seq_spec spec;
    struct cpu_rig rig;
    struct seq *seq;

    cpu_rig_open(&rig, N_BLOCKS, CHUNK);
    cpu_rig_draw(tokens, 0, N);
    spec = cpu_rig_spec(tokens, N, 60, &answer);
    assert_int_equal(sched_submit(rig.sched, &spec, &seq), 0);
    assert_true(sched_run_step(rig.sched) > 0); /* all of the prompt, because nothing else runs */
    for (uint32_t fed = N; sched_has_work(rig.sched); fed++) {
        n_most = kv_window_blocks(layout) + 3;
        kv_pool_counts(rig.pool, &counts);
        n_held = counts.n_filling + counts.n_sealed;
        assert_true(n_held <= fed / BLOCK_TOKENS + 2 + n_groups * n_most);
        assert_true(sched_run_step(rig.sched) > 0);
    }
    cpu_rig_expect_same(&answer, tokens, N, 60);
    cpu_rig_close(&rig);
}

/* A pool for little more than one sequence: preemptions and evictions. */
static void check_crowd(void)
{
    const struct kv_layout *layout = model_kv_layout(cpu_world.model);
    uint32_t n_beside = kv_window_groups(layout) * (2 * kv_window_blocks(layout) + 2);
    token_id tokens[4][100];
    struct answer answers[4];
    uint32_t n_preempted = 0;
    struct cpu_rig rig;

    cpu_rig_open(&rig, n_beside + 12, 23);
    for (uint32_t i = 0; i < 4; i++) {
        struct seq_spec spec;
        struct seq *seq;

        cpu_rig_draw(tokens[i], 0, 50 + i);
        spec = cpu_rig_spec(tokens[i], 50 + i, MOST_ANSWER, &answers[i]);
        assert_int_equal(sched_submit(rig.sched, &spec, &seq), 0);
    }
    while (sched_has_work(rig.sched))
        assert_true(sched_run_step(rig.sched) > 0);
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(answers[i].finish, SEQ_FINISH_LENGTH);
        n_preempted += answers[i].stats.n_preempted;
        cpu_rig_expect_same(&answers[i], tokens[i], 50 + i, MOST_ANSWER);
    }
    assert_true(n_preempted > 0);
    cpu_rig_close(&rig);
}

/* ---- hand-off ---- */

static void copy_block(struct cpu_rig *from, kv_block_id source, struct cpu_rig *to, kv_block_id target)
{
    const struct kv_layout *layout = model_kv_layout(cpu_world.model);

    for (uint32_t layer = 0; layer < layout->n_layers; layer++)
        memcpy(to->arena + kv_layout_offset(layout, to->n_blocks, layer, target),
               from->arena + kv_layout_offset(layout, from->n_blocks, layer, source),
               kv_layout_layer_block_bytes(layout));
}

/* Copies the windowed blocks that a hand-off sends. */
static void copy_windowed(struct cpu_rig *p, struct seq *sent, struct cpu_rig *d, struct seq *got, uint32_t n)
{
    const struct kv_layout *layout = model_kv_layout(cpu_world.model);
    uint32_t to = (n + BLOCK_TOKENS - 1) / BLOCK_TOKENS, n_reused;

    seq_blocks(got, NULL, &n_reused);
    for (uint32_t group = 0; group < kv_window_groups(layout); group++)
        for (uint32_t i = kv_window_kept(layout, n); i < to; i++)
            if (i >= n_reused)
                copy_block(p, seq_window_blocks(p->sched, sent, group)[i], d,
                           seq_window_blocks(d->sched, got, group)[i]);
}

static void copy_full(struct cpu_rig *p, struct seq *sent, struct cpu_rig *d, struct seq *got, uint32_t n)
{
    const kv_block_id *from = seq_blocks(sent, NULL, NULL), *to = seq_blocks(got, NULL, NULL);

    for (uint32_t i = 0; i < (n + BLOCK_TOKENS - 1) / BLOCK_TOKENS; i++)
        copy_block(p, from[i], d, to[i]);
}

/* is_whole false: some keys and values arrive, without the windows, so none of them may be used. */
static void check_handoff(bool is_whole)
{
    token_id tokens[MOST_TOKENS];
    struct answer first, answer;
    struct cpu_rig p, d;
    struct seq *sent, *got;
    uint32_t n = 180 + (uint32_t)rng_below(&cpu_world.rng, 2 * BLOCK_TOKENS);

    cpu_rig_draw(tokens, 0, n);
    cpu_rig_open(&p, N_BLOCKS, 33);
    cpu_rig_open(&d, N_BLOCKS, 33);
    struct seq_spec departs = cpu_rig_spec(tokens, n, 40, &first),
                    arrives = cpu_rig_spec(tokens, n, 40, &answer);
    departs.departs = true;
    arrives.arrives = true;
    assert_int_equal(sched_submit(d.sched, &arrives, &got), 0);
    assert_int_equal(sched_submit(p.sched, &departs, &sent), 0);
    while (p.held == NULL)
        assert_true(sched_run_step(p.sched) > 0);
    copy_full(&p, sent, &d, got, n);
    if (is_whole)
        copy_windowed(&p, sent, &d, got, n);
    assert_int_equal(sched_arrived(d.sched, got, is_whole ? n : n - n % BLOCK_TOKENS,
                                   is_whole ? &first.tokens[0] : NULL, true),
                     0);
    assert_int_equal(sched_release(p.sched, p.held), 0);
    while (sched_has_work(d.sched))
        assert_true(sched_run_step(d.sched) > 0);
    cpu_rig_expect_same(&answer, tokens, n, 40);
    assert_int_equal(answer.stats.n_transferred, is_whole ? n : 0);

    /* The same prompt again reuses all of its whole blocks. */
    if (is_whole) {
        cpu_rig_complete(&d, tokens, n, 5, &answer);
        cpu_rig_expect_same(&answer, tokens, n, 5);
        assert_int_equal(answer.stats.n_reused, (n - 1) / BLOCK_TOKENS * BLOCK_TOKENS);
        cpu_rig_complete(&d, tokens, n, 40, &answer);
    }

    /* The next turn begins where this one ended, because the last window was kept. */
    for (uint32_t i = 0; i < answer.n; i++)
        tokens[n + i] = answer.tokens[i].id;
    cpu_rig_draw(tokens, n + answer.n, n + answer.n + 9);
    n += answer.n + 9;
    cpu_rig_complete(&d, tokens, n, 10, &answer);
    cpu_rig_expect_same(&answer, tokens, n, 10);
    assert_int_equal(answer.stats.n_reused, (n - 10) / BLOCK_TOKENS * BLOCK_TOKENS);
    cpu_rig_close(&p);
    cpu_rig_close(&d);
}

enum { N_OLD = 3, OLD_PROMPT = 20 };

/* Opens a rig where old sequences run and another one arrives, with the smallest pool that has room for them. */
static void open_crowded(struct cpu_rig *rig, const struct seq_spec *old, const struct seq_spec *arrives,
                         struct seq **got)
{
    struct seq *seqs[N_OLD];
    int rc = E_KV_FULL;

    for (uint32_t n_blocks = 20; rc != 0; n_blocks++) {
        assert_true(n_blocks < N_BLOCKS);
        cpu_rig_open(rig, n_blocks, 33);
        for (uint32_t i = 0; i < N_OLD; i++) {
            memset(old[i].user, 0, sizeof(struct answer));
            assert_int_equal(sched_submit(rig->sched, &old[i], &seqs[i]), 0);
        }
        (void)sched_run_step(rig->sched);
        rc = sched_submit(rig->sched, arrives, got);
        for (uint32_t i = 0; rc < 0 && i < N_OLD; i++)
            sched_cancel(rig->sched, seqs[i]);
        if (rc < 0)
            cpu_rig_close(rig);
    }
}

/* A sequence that arrived loses its blocks to older ones, and computes them again. */
static void check_handoff_preempted(void)
{
    token_id tokens[MOST_TOKENS], old_tokens[N_OLD][OLD_PROMPT];
    struct answer first, answer, others[N_OLD];
    struct cpu_rig p, d;
    struct seq *sent, *got;
    uint32_t n = 180 + (uint32_t)rng_below(&cpu_world.rng, 2 * BLOCK_TOKENS);

    cpu_rig_draw(tokens, 0, n);
    struct seq_spec departs = cpu_rig_spec(tokens, n, 40, &first),
                    arrives = cpu_rig_spec(tokens, n, 40, &answer), old[N_OLD];
    for (uint32_t i = 0; i < N_OLD; i++) {
        cpu_rig_draw(old_tokens[i], 0, OLD_PROMPT);
        old[i] = cpu_rig_spec(old_tokens[i], OLD_PROMPT, MOST_ANSWER, &others[i]);
    }
    departs.departs = true;
    arrives.arrives = true;
    cpu_rig_open(&p, N_BLOCKS, 33);
    open_crowded(&d, old, &arrives, &got);
    assert_int_equal(sched_submit(p.sched, &departs, &sent), 0);
    while (p.held == NULL)
        assert_true(sched_run_step(p.sched) > 0);
    copy_full(&p, sent, &d, got, n);
    copy_windowed(&p, sent, &d, got, n);
    assert_int_equal(sched_arrived(d.sched, got, n, &first.tokens[0], true), 0);
    assert_int_equal(sched_release(p.sched, p.held), 0);
    while (sched_has_work(d.sched))
        assert_true(sched_run_step(d.sched) > 0);
    assert_true(answer.stats.n_preempted > 0);
    cpu_rig_expect_same(&answer, tokens, n, 40);
    for (uint32_t i = 0; i < N_OLD; i++)
        cpu_rig_expect_same(&others[i], old_tokens[i], OLD_PROMPT, MOST_ANSWER);
    cpu_rig_close(&p);
    cpu_rig_close(&d);
}

/* ---- random everything ---- */

struct guest { /* a request of the crowd */
    token_id tokens[160];
    uint32_t n, n_new;
    struct answer answer;
    struct seq *seq; /* NULL: not begun, or over */
};

/* Requests with shared beginnings come, go and are cancelled, in a pool that is too small for them. */
static void check_random(void)
{
    enum { N_GUESTS = 12, LONGEST = 160 };
    static struct guest guests[N_GUESTS];
    const struct kv_layout *layout = model_kv_layout(cpu_world.model);
    uint32_t n_groups = kv_window_groups(layout), begun = 0;
    uint32_t n_least = 14 + n_groups * (2 * kv_window_blocks(layout) + 2);
    struct cpu_rig rig;

    cpu_rig_open(&rig, n_least + (uint32_t)rng_below(&cpu_world.rng, 40),
                 1 + (uint32_t)rng_below(&cpu_world.rng, 60));
    for (uint32_t i = 0; i < N_GUESTS; i++) {
        uint32_t parent = (uint32_t)rng_below(&cpu_world.rng, i + 1),
                 shared = (uint32_t)rng_below(&cpu_world.rng, LONGEST);

        guests[i].n = 1 + (uint32_t)rng_below(&cpu_world.rng, LONGEST);
        guests[i].n_new = 1 + (uint32_t)rng_below(&cpu_world.rng, 30);
        cpu_rig_draw(guests[i].tokens, 0, LONGEST);
        memcpy(guests[i].tokens, guests[parent].tokens, shared * sizeof(token_id));
    }
    while (begun < N_GUESTS || sched_has_work(rig.sched)) {
        if (begun < N_GUESTS && (rng_below(&cpu_world.rng, 8) == 0 || !sched_has_work(rig.sched))) {
            struct guest *guest = &guests[begun++];
            struct seq_spec spec = cpu_rig_spec(guest->tokens, guest->n, guest->n_new, &guest->answer);

            spec.work.pin_tokens[WORK_PIN_5M] = (uint32_t)rng_below(&cpu_world.rng, guest->n);
            assert_int_equal(sched_submit(rig.sched, &spec, &guest->seq), 0);
        }
        if (rng_below(&cpu_world.rng, 60) == 0 && sched_next(rig.sched, NULL) != NULL)
            sched_cancel(rig.sched, sched_next(rig.sched, NULL));
        if (sched_has_work(rig.sched))
            assert_true(sched_run_step(rig.sched) > 0);
    }
    for (uint32_t i = 0; i < N_GUESTS; i++)
        if (guests[i].answer.finish != SEQ_FINISH_CANCELLED)
            cpu_rig_expect_same(&guests[i].answer, guests[i].tokens, guests[i].n, guests[i].n_new);
    cpu_rig_close(&rig);
}

/* ---- the models ---- */

struct family {
    const char *arch;
    uint32_t n_layers, n_groups;
    enum kv_type kv_type;
    const char *set[8];
};

/* One full layer or more; groups that are not full; layers that read another's keys; every KV type. */
static const struct family FAMILIES[] = {
    {"gemma3", 6, 2, KV_F16, {"attention.sliding_window=40", "attention.sliding_window_pattern=3", NULL}},
    {"gemma2", 5, 2, KV_Q8_0, {"attention.sliding_window=33", NULL}},
    {"gpt-oss", 4, 1, KV_F32, {"attention.sliding_window=16", NULL}},
    {"gemma4",
     6,
     2,
     KV_Q4_0,
     {"attention.sliding_window=70", "attention.sliding_window_pattern=3", "attention.shared_kv_layers=3",
      NULL}},
    {"gemma3n",
     8,
     2,
     KV_F16,
     {"attention.sliding_window=50", "attention.sliding_window_pattern=2", "attention.shared_kv_layers=3",
      "laurel_rank=32", "altup.num_inputs=3", "embedding_length_per_layer_input=32", NULL}},
    {"exaone4", 8, 3, KV_F16, {"attention.sliding_window=90", NULL}},
    {"cohere2", 4, 3, KV_BF16, {"attention.sliding_window=1", "logit_scale=2", NULL}},
};

static struct tiny_shape shape_of(const struct family *family)
{
    struct tiny_shape shape =
        strcmp(family->arch, "gpt-oss") == 0 ? tiny_experts("gpt-oss") : tiny_shape(family->arch);

    shape.set = family->set;
    shape.n_layers = family->n_layers;
    shape.vocab = VOCAB;
    shape.context = CONTEXT;
    return shape;
}

static void for_each_model(void (*check)(void))
{
    for (size_t i = 0; i < sizeof(FAMILIES) / sizeof(FAMILIES[0]); i++) {
        const struct family *family = &FAMILIES[i];
        struct tiny_shape shape = shape_of(family);
        struct model_opts opts = {.kv_type = family->kv_type, .block_tokens = BLOCK_TOKENS};
        const struct kv_layout *layout, *whole;

        shape.seed = i + 3;
        rng_init(&cpu_world.rng, i + 1);
        cpu_world.team = check_team(2);
        cpu_world.n_blocks = N_BLOCKS;
        cpu_world.whole = tiny_model(&shape, cpu_world.team, &opts);
        opts.splits_windows = true;
        cpu_world.model = tiny_model(&shape, cpu_world.team, &opts);
        layout = model_kv_layout(cpu_world.model);
        whole = model_kv_layout(cpu_world.whole);
        assert_int_equal(kv_window_groups(whole), 0);
        assert_int_equal(kv_window_groups(layout), family->n_groups);
        assert_int_equal(layout->n_layers + layout->n_window_layers, whole->n_layers);
        check();
        model_free(cpu_world.model);
        model_free(cpu_world.whole);
        team_free(cpu_world.team);
    }
}

static void every_turn_reuses_all_full_blocks(void **state)
{
    (void)state;
    for_each_model(cpu_rig_check_turns);
}

static void a_prompt_again_computes_one_block(void **state)
{
    (void)state;
    for_each_model(cpu_rig_check_again);
}

static void a_fork_finds_released_windows(void **state)
{
    (void)state;
    for_each_model(check_fork);
}

static void blocks_behind_the_window_are_released(void **state)
{
    (void)state;
    for_each_model(check_memory);
}

static void preemption_changes_no_token(void **state)
{
    (void)state;
    for_each_model(check_crowd);
}

static void nothing_random_changes_a_token(void **state)
{
    (void)state;
    for_each_model(check_random);
}

static void handoff_whole(void)
{
    check_handoff(true);
}

static void handoff_in_part(void)
{
    check_handoff(false);
}

static void a_handoff_takes_the_last_window_along(void **state)
{
    (void)state;
    for_each_model(handoff_whole);
}

static void an_arrival_is_preempted_and_goes_on(void **state)
{
    (void)state;
    for_each_model(check_handoff_preempted);
}

static void keys_without_their_window_are_not_used(void **state)
{
    (void)state;
    for_each_model(handoff_in_part);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_turn_reuses_all_full_blocks),
        cmocka_unit_test(a_prompt_again_computes_one_block),
        cmocka_unit_test(a_fork_finds_released_windows),
        cmocka_unit_test(blocks_behind_the_window_are_released),
        cmocka_unit_test(preemption_changes_no_token),
        cmocka_unit_test(nothing_random_changes_a_token),
        cmocka_unit_test(a_handoff_takes_the_last_window_along),
        cmocka_unit_test(an_arrival_is_preempted_and_goes_on),
        cmocka_unit_test(keys_without_their_window_are_not_used),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
