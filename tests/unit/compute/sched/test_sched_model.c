/* SPDX-License-Identifier: Apache-2.0 */
/* Properties of the scheduler over random histories.
 *
 * Crowd: one worker, with a pool too small for its requests.  Prompts share prefixes.  Sequences are
 * submitted, cancelled (between steps and inside events), leased, held, kept and released at random.  Time
 * jumps past lifetimes.  Relay: two workers and hand-offs layer by layer.  Either side may give up at any
 * moment, and transfers end in any order or in the middle.
 *
 * Texts repeat themselves in most histories, and workers may speculate.  Sequences use penalties, biases, log
 * probabilities and grammars (of a vocabulary smaller than the engine's).  Some begin in the middle of an
 * answer that another worker began.  Alone means: from the prompt, without draft tokens.
 *
 * Each sequence that was not cancelled gives the answer that it gives alone; each cancelled one gives a
 * prefix of it.  Serving stats add up.  In the end every block is free or cached.  The rig checks more on the
 * way: no sealed block is written, and all KV is right byte for byte at each event. */
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
#include "tests/unit/text/grammar/grammar_help.h"
#include "tests/unit/compute/sched/rig.h"

#define N_SEQS    24
#define GIVEN_MAX 60

static const char *const shapes[] = {
    "{\"json\": {\"type\": \"object\", \"properties\": {\"abc\": {\"type\": \"integer\"}, "
    "\"xy\": {\"enum\": [\"true\", \"a\"]}}, \"required\": [\"abc\", \"xy\"], "
    "\"additionalProperties\": false}}",
    "{\"json\": {\"type\": \"array\", \"items\": {\"type\": \"string\", \"maxLength\": 4}}}",
    "{\"seq\": [{\"mark\": \"<tool>\"}, {\"text\": \"abcxyabc\"}, {\"rep\": {\"any\": [{\"text\": \"123\"}, "
    "{\"text\": \"1\"}]}, \"min\": 2}]}",
    "{\"json\": {}}",
};
#define N_GRAMMARS ARRAY_LEN(shapes)

struct member { /* a sequence of the crowd */
    struct track track;
    token_id tokens[GIVEN_MAX];
    struct seq_spec spec;
    struct sample_bias bias[2];
    struct track alone; /* answer to the prompt alone */
    uint32_t n_begun;   /* tokens of it that another worker answered: part of the spec's tokens */
    bool is_submitted, is_cancelled;
    uint32_t hook_odds; /* one in so many events cancels it; 0: none */
    kv_block_id leased[GIVEN_MAX];
    uint32_t n_leased;
};

static struct rng rng;
static uint64_t n_seeds = 60; /* BATON_TEST_SEEDS: more histories, for a long run */
static struct member members[N_SEQS];
static struct grammar *grammars[N_GRAMMARS];
static const token_id *shape_stop_ids;
static size_t n_shape_stop_ids;
static uint32_t n_shaped, n_shaped_ends; /* answers with a grammar, and the complete ones among them */
static uint32_t answer_mean;

static uint32_t below(uint32_t n)
{
    return (uint32_t)rng_below(&rng, n);
}

static void hook(struct track *track, const char *event)
{
    struct member *member = track->arg;

    if (member->hook_odds && track->seq && below(member->hook_odds) == 0) {
        member->is_cancelled = true;
        sched_cancel(track->rig->sched, track->seq);
    }
}

/* A third of the sequences has a grammar.  At times it leaves no choice, and long ones get few tokens. */
static void ask_for_shape(struct seq_spec *spec)
{
    if (below(3))
        return;
    spec->grammar = grammars[below(N_GRAMMARS)];
    spec->stop_ids = shape_stop_ids;
    spec->n_stop_ids = (uint32_t)n_shape_stop_ids;
    spec->work.sample.min_tokens = below(3) ? 0 : below(30);
}

/* Half of the sequences use options that depend on earlier tokens. */
static void ask_of_sampler(struct seq_spec *spec, struct sample_bias bias[2])
{
    ask_for_shape(spec);
    spec->work.sample.wants_logprob = below(2);
    spec->work.sample.n_top = below(4);
    if (below(2))
        return;
    spec->work.sample.frequency_penalty = (float)below(3);
    spec->work.sample.presence_penalty = (float)below(3) / 2;
    spec->work.sample.repetition_penalty = below(2) ? 0 : 1.5f;
    for (uint32_t i = 0; i < 2; i++)
        bias[i] = (struct sample_bias){.id = 10 + 64 * i + below(64), .bias = (float)below(9) / 4 - 1};
    spec->work.sample.bias = bias;
    spec->work.sample.n_bias = below(3);
}

/* Makes a sequence that another worker began to answer, and continues the answer. */
static void begin_elsewhere(struct member *member, uint32_t context_tokens)
{
    struct seq_spec *spec = &member->spec;
    uint32_t n_most = member->alone.n_answer;

    if (n_most > GIVEN_MAX - spec->n_tokens)
        n_most = GIVEN_MAX - spec->n_tokens;
    if (n_most + spec->n_tokens >= context_tokens)
        n_most = context_tokens - 1 - spec->n_tokens;
    if (n_most >= spec->work.max_new_tokens) /* some tokens are left to sample */
        n_most = spec->work.max_new_tokens > 0 ? spec->work.max_new_tokens - 1 : 0;
    member->n_begun = n_most > 0 && below(3) == 0 ? below(n_most + 1) : 0;
    memcpy(member->tokens + spec->n_tokens, member->alone.answer, member->n_begun * sizeof(token_id));
    spec->n_tokens += member->n_begun;
    spec->work.max_new_tokens -= member->n_begun;
}

static void member_init(struct member *member, uint32_t context_tokens)
{
    uint32_t n_tokens = 1 + below(below(4) ? 16 : GIVEN_MAX);
    uint32_t max_new = below(8) ? 1 + below(60) : 0;

    memset(member, 0, sizeof(*member));
    if (n_tokens >= context_tokens)
        n_tokens = context_tokens - 1;
    rig_prompt(member->tokens, n_tokens, below(3));
    if (below(2)) /* leaves the shared prefix at a random place */
        member->tokens[below(n_tokens)] = 10 + below(RIG_VOCAB - 10);
    member->spec = rig_spec(member->tokens, n_tokens, max_new, rng_u64(&rng));
    member->spec.prefix_key.bytes[3] = (uint8_t)below(2);
    ask_of_sampler(&member->spec, member->bias);
    rig_alone(&member->spec, context_tokens, answer_mean, &member->alone);
    begin_elsewhere(member, context_tokens);
    member->spec.departs = below(4) == 0;
    member->hook_odds = below(3) ? 0 : 1 + below(20);
    member->track.hook = hook;
    member->track.arg = member;
}

static void lease_some(struct rig *rig, struct member *member)
{
    uint32_t n;
    const kv_block_id *ids = seq_blocks(member->track.seq, &n, NULL);

    if (member->n_leased || n == 0)
        return;
    member->n_leased = 1 + below(n);
    for (uint32_t i = 0; i < member->n_leased; i++)
        kv_lease(rig->pool, member->leased[i] = ids[i]);
}

static void unlease(struct rig *rig, struct member *member)
{
    while (member->n_leased > 0) {
        kv_block_id id = member->leased[--member->n_leased];

        assert_true(kv_state_of(rig->pool, id) != KV_FREE && kv_state_of(rig->pool, id) != KV_CACHED);
        kv_unlease(rig->pool, id);
    }
}

static void leave_hold(struct rig *rig, struct member *member)
{
    struct seq *seq = member->track.seq;

    if (seq && seq_state(seq) == SEQ_HELD) {
        if (below(2))
            assert_int_equal(sched_keep(rig->sched, seq), 0);
        else
            assert_int_equal(sched_release(rig->sched, seq), 0);
    }
}

static void do_something(struct rig *rig)
{
    struct member *member = &members[below(N_SEQS)];
    struct track *track = &member->track;

    switch (below(12)) {
    case 0:
    case 1:
    case 2:
        if (!member->is_submitted)
            member->is_submitted = rig_submit(rig, member->spec, track) == 0;
        break;
    case 3:
        if (track->seq && below(4) == 0) {
            member->is_cancelled = true;
            sched_cancel(rig->sched, track->seq);
        }
        break;
    case 4:
        if (track->seq)
            lease_some(rig, member);
        break;
    case 5:
        unlease(rig, member);
        break;
    case 6:
        leave_hold(rig, member);
        break;
    case 7:
        rig_now_ns += below(3000000);
        break;
    default:
        assert_true(sched_run_step(rig->sched) >= 0);
    }
}

/* A released sequence ends after its first token. */
static void check_member(const struct member *member)
{
    const struct track *track = &member->track;
    const struct track *alone = &member->alone;
    uint32_t n_due = alone->n_answer - member->n_begun;
    uint32_t n_proved = track->stats.n_computed + track->stats.n_reused + track->stats.n_transferred;

    assert_true(track->is_done);
    assert_int_not_equal(track->finish, SEQ_FINISH_CONSTRAINT);
    assert_true(track->n_answer <= n_due);
    assert_memory_equal(track->answer, alone->answer + member->n_begun, track->n_answer * sizeof(token_id));
    assert_memory_equal(track->draws, alone->draws + member->n_begun,
                        track->n_answer * sizeof(track->draws[0]));
    if (track->finish == SEQ_FINISH_CANCELLED) {
        assert_true(member->is_cancelled);
        assert_true(n_proved <= member->spec.n_tokens);
        return;
    }
    assert_int_equal(n_proved, member->spec.n_tokens);
    if (track->finish == SEQ_FINISH_DEPARTED)
        assert_int_equal(track->n_answer, member->spec.work.max_new_tokens > 0);
    else
        assert_true(track->n_answer == n_due && track->finish == alone->finish);
    n_shaped += member->spec.grammar != NULL;
    n_shaped_ends += member->spec.grammar != NULL && track->finish == SEQ_FINISH_STOP;
    assert_int_equal(track->stats.n_drawn, track->n_answer + (track->finish == SEQ_FINISH_STOP));
    assert_true(track->stats.n_accepted <= track->stats.n_drafted);
}

struct crowd_sums { /* sums over all histories */
    uint32_t n_preempted, n_drafted, n_accepted;
};

static void run_crowd(uint64_t seed, struct crowd_sums *sums)
{
    struct rig rig;
    struct rig_opts opts;

    rng_init(&rng, seed);
    answer_mean = below(2) ? 0 : 8 + below(12);
    rig_echo = below(4) ? 100 - below(20) : 0;
    opts = (struct rig_opts){.n_blocks = 6 + below(26),
                             .max_seqs = 1 + below(6),
                             .max_queue = 1 + below(N_SEQS),
                             .chunk_tokens = 1 + below(12),
                             .max_batch_tokens = 1 + below(24),
                             .context_length = 24 + below(100),
                             .mean_answer_tokens = answer_mean,
                             .speculate = (enum sched_speculate)below(3),
                             .max_drafts = 1 + below(12),
                             .itl_ns = below(2) ? 0 : 1000000 + below(3000000),
                             .max_step_ns = below(2) ? 0 : 1000000 + below(3000000),
                             .lifetime_ns = below(2) ? 0 : 10000000};
    uint32_t context_tokens =
        opts.context_length < opts.n_blocks * 4 ? opts.context_length : opts.n_blocks * 4;
    opts.max_seqs = opts.max_seqs < opts.max_batch_tokens ? opts.max_seqs : opts.max_batch_tokens;
    rig_open(&rig, &opts);
    for (uint32_t i = 0; i < N_SEQS; i++)
        member_init(&members[i], context_tokens);

    for (uint32_t i = 0; i < 500; i++)
        do_something(&rig);
    for (uint32_t i = 0; i < N_SEQS; i++)
        unlease(&rig, &members[i]);
    for (bool is_idle = false; !is_idle;) { /* finish: nothing may hang once all holds are released */
        int code = sched_run_step(rig.sched);

        assert_true(code >= 0);
        is_idle = code == 0;
        for (uint32_t i = 0; i < N_SEQS; i++) {
            if (members[i].track.seq && seq_state(members[i].track.seq) == SEQ_HELD) {
                leave_hold(&rig, &members[i]);
                is_idle = false;
            }
        }
    }
    for (uint32_t i = 0; i < N_SEQS; i++) {
        if (members[i].is_submitted) {
            check_member(&members[i]);
            sums->n_preempted += members[i].track.stats.n_preempted;
            sums->n_drafted += members[i].track.stats.n_drafted;
            sums->n_accepted += members[i].track.stats.n_accepted;
        }
    }
    rig_close(&rig);
}

static void a_crowd_gets_what_each_gets_alone(void **state)
{
    struct crowd_sums sums = {0};

    for (uint64_t seed = 1; seed <= n_seeds; seed++)
        run_crowd(seed, &sums);
    print_message("%u preemptions, %u drafts, %u right\n", sums.n_preempted, sums.n_drafted, sums.n_accepted);
    assert_true(sums.n_preempted > n_seeds); /* the pools were small enough to matter */
    print_message("%u of %u shaped answers came to their end\n", n_shaped_ends, n_shaped);
    assert_true(n_shaped_ends > n_seeds / 2);
    assert_true(sums.n_accepted > n_seeds && sums.n_drafted - sums.n_accepted > n_seeds);
}

/* ---- relay ---- */

#define N_RELAYS 10

struct relay { /* one request on two workers */
    struct track at_p, at_d;
    struct sample_bias bias[2];
    token_id tokens[GIVEN_MAX];
    struct seq_spec spec;
    kv_block_id granted[GIVEN_MAX]; /* blocks granted at D */
    uint32_t n_granted, n_reused;
    uint32_t n_pushed;        /* leading blocks, all layers */
    bool is_granted, is_over; /* state of the transfer */
    bool is_cancelled;
};

static struct rig p, d;
static struct relay relays[N_RELAYS];

static uint8_t *piece(const struct rig *rig, uint32_t layer, kv_block_id block)
{
    return rig->arena + kv_layout_offset(&rig->engine.info.layout, rig->opts.n_blocks, layer, block);
}

static void push_piece(const struct relay *relay, uint32_t layer, uint32_t block)
{
    if (block >= relay->n_reused)
        memcpy(piece(&d, layer, relay->granted[block]),
               piece(&p, layer, seq_blocks(relay->at_p.seq, NULL, NULL)[block]),
               kv_layout_layer_block_bytes(&p.engine.info.layout));
}

/* Pushes blocks completed before the step with its first layer,
 * and those that it completes layer by layer. */
static void push_layer(struct rig *rig, uint32_t layer)
{
    uint32_t n_layers = rig->engine.info.layout.n_layers, from, to;
    struct seq *seq;

    for (uint32_t i = 0; sched_step_item(rig->sched, i, &seq, &from, &to); i++) {
        struct relay *relay = container_of(seq_spec(seq)->user, struct relay, at_p);
        uint32_t n_whole = to == relay->spec.n_tokens ? relay->n_granted : to / 4;

        if (!relay->is_granted || relay->is_over || seq_spec(seq)->n_tokens != relay->spec.n_tokens)
            continue;
        for (uint32_t b = relay->n_pushed; b < n_whole; b++) {
            if (b >= from / 4) {
                push_piece(relay, layer, b);
            } else if (layer == 0) {
                for (uint32_t l = 0; l < n_layers; l++)
                    push_piece(relay, l, b);
            }
        }
        if (layer == n_layers - 1 && n_whole > relay->n_pushed)
            relay->n_pushed = n_whole;
    }
}

static void ask_for_grant(struct relay *relay)
{
    struct seq_spec spec = relay->spec;

    spec.arrives = true;
    if (rig_submit(&d, spec, &relay->at_d) < 0)
        return; /* later, or never: P has the KV */
    const kv_block_id *ids = seq_blocks(relay->at_d.seq, &relay->n_granted, &relay->n_reused);
    memcpy(relay->granted, ids, relay->n_granted * sizeof(*ids));
    for (uint32_t i = relay->n_reused; i < relay->n_granted; i++)
        kv_lease(d.pool, relay->granted[i]);
    relay->n_pushed = 0;
    relay->is_granted = true;
}

/* Ends a transfer at D, with any result. */
static void close_grant(struct relay *relay)
{
    for (uint32_t i = relay->n_reused; i < relay->n_granted; i++)
        kv_unlease(d.pool, relay->granted[i]);
    relay->is_over = true;
}

static void start(struct relay *relay)
{
    struct seq_spec spec = relay->spec;

    if (!relay->is_granted && below(4))
        ask_for_grant(relay);
    spec.departs = true;
    if (rig_submit(&p, spec, &relay->at_p) < 0)
        relay->at_p.rig = NULL; /* tries again later */
}

static void finish_transfer(struct relay *relay)
{
    const struct sample_result *first = &relay->at_p.draws[0];

    assert_int_equal(relay->n_pushed, relay->n_granted);
    close_grant(relay);
    assert_int_equal(sched_release(p.sched, relay->at_p.seq), 0);
    if (relay->at_d.seq)
        assert_int_equal(sched_arrived(d.sched, relay->at_d.seq, relay->spec.n_tokens, first, false), 0);
}

static void lose_p(struct relay *relay)
{
    struct seq *seq = relay->at_p.seq;

    close_grant(relay);
    if (seq)
        sched_cancel(p.sched, seq);
    if (relay->at_d.seq) { /* D continues with its blocks from the start of the answer, first token
                            * included */
        relay->at_p.n_answer = 0;
        sched_arrived(d.sched, relay->at_d.seq, relay->n_pushed * 4, NULL, false);
    }
}

static void lose_d(struct relay *relay)
{
    if (relay->at_d.seq)
        sched_cancel(d.sched, relay->at_d.seq);
    close_grant(relay);
    relay->at_d.n_answer = 0;
}

static void step_relay(struct relay *relay)
{
    struct seq *at_p = relay->at_p.seq;
    bool is_held = at_p && seq_state(at_p) == SEQ_HELD;
    bool is_open = relay->is_granted && !relay->is_over;

    if (relay->at_p.rig == NULL) {
        start(relay);
    } else if (is_open && relay->at_p.is_done) { /* the first token ended the answer, or P was cancelled */
        lose_d(relay);
    } else if (is_open && below(12) == 0) {
        if (below(2))
            lose_p(relay);
        else
            lose_d(relay);
    } else if (is_held && is_open) {
        finish_transfer(relay);
    } else if (is_held) { /* no grant, or D was lost */
        assert_int_equal(sched_keep(p.sched, at_p), 0);
    } else if (below(40) == 0) {
        relay->is_cancelled = true;
        if (at_p)
            sched_cancel(p.sched, at_p);
        if (relay->at_d.seq)
            sched_cancel(d.sched, relay->at_d.seq);
        if (is_open)
            close_grant(relay);
    }
}

static void check_relay(const struct relay *relay)
{
    struct track alone = {0};
    token_id answer[2 * RIG_ANSWER_MAX];
    uint32_t n_p = relay->at_p.n_answer, n_d = relay->at_d.n_answer;

    if (relay->is_cancelled)
        return;
    rig_alone(&relay->spec, 200, answer_mean, &alone);
    memcpy(answer, relay->at_p.answer, n_p * sizeof(token_id));
    memcpy(answer + n_p, relay->at_d.answer, n_d * sizeof(token_id));
    assert_int_equal(n_p + n_d, alone.n_answer);
    assert_memory_equal(answer, alone.answer, alone.n_answer * sizeof(token_id));
    assert_memory_equal(relay->at_p.draws, alone.draws, n_p * sizeof(alone.draws[0]));
    assert_memory_equal(relay->at_d.draws, alone.draws + n_p, n_d * sizeof(alone.draws[0]));
    assert_int_equal(n_d || relay->at_p.finish == SEQ_FINISH_DEPARTED ? relay->at_d.finish : alone.finish,
                     alone.finish);
}

static bool is_settled(const struct relay *relay)
{
    return relay->at_p.rig && relay->at_p.is_done && (!relay->is_granted || relay->is_over) &&
           (!relay->at_d.rig || !relay->is_granted || relay->at_d.is_done);
}

static void run_relay(uint64_t seed, uint32_t *n_handed)
{
    uint32_t n_settled = 0;

    rng_init(&rng, seed);
    answer_mean = below(2) ? 0 : 8 + below(12);
    rig_echo = below(4) ? 100 - below(20) : 0;
    struct rig_opts opts = {.n_blocks = 26 + below(10),
                            .max_seqs = 2 + below(4),
                            .chunk_tokens = 2 + below(12),
                            .max_batch_tokens = 6 + below(18),
                            .context_length = 100,
                            .mean_answer_tokens = answer_mean,
                            .speculate = (enum sched_speculate)below(3),
                            .max_drafts = 1 + below(12)};
    rig_open(&p, &opts);
    opts.n_blocks = 26 + below(10);
    opts.chunk_tokens = 2 + below(12);
    opts.speculate = (enum sched_speculate)below(3);
    rig_open(&d, &opts);
    p.on_layer = push_layer;
    for (uint32_t i = 0; i < N_RELAYS; i++) {
        struct relay *relay = &relays[i];
        uint32_t n_tokens = 1 + below(GIVEN_MAX - 1);

        memset(relay, 0, sizeof(*relay));
        rig_prompt(relay->tokens, n_tokens, below(3));
        relay->spec = rig_spec(relay->tokens, n_tokens, 1 + below(25), rng_u64(&rng));
        ask_of_sampler(&relay->spec, relay->bias);
    }
    for (uint32_t round = 0; n_settled < N_RELAYS; round++) {
        assert_true(round < 20000); /* otherwise a sequence hangs */
        switch (below(3)) {
        case 0:
            assert_true(sched_run_step(p.sched) >= 0);
            break;
        case 1:
            assert_true(sched_run_step(d.sched) >= 0);
            break;
        default:
            step_relay(&relays[below(N_RELAYS)]);
        }
        n_settled = 0;
        for (uint32_t i = 0; i < N_RELAYS; i++)
            n_settled += is_settled(&relays[i]);
    }
    for (uint32_t i = 0; i < N_RELAYS; i++) {
        check_relay(&relays[i]);
        *n_handed += relays[i].at_p.finish == SEQ_FINISH_DEPARTED;
    }
    rig_close(&p);
    rig_close(&d);
}

static void a_relay_gives_the_answer_of_one_worker(void **state)
{
    uint32_t n_handed = 0;

    for (uint64_t seed = 1; seed <= n_seeds; seed++)
        run_relay(seed, &n_handed);
    assert_true(n_handed > n_seeds);
}

static struct tokenizer *tokenizer;

static int make_grammars(void **state)
{
    struct grammar_vocab *vocab = small_vocab(&tokenizer);

    for (uint32_t i = 0; i < N_GRAMMARS; i++)
        grammars[i] = grammar_must(vocab, shapes[i]);
    grammar_vocab_unref(vocab);
    shape_stop_ids = tokenizer_stop_ids(tokenizer, &n_shape_stop_ids);
    return n_shape_stop_ids > 0 ? 0 : -1;
}

static int free_grammars(void **state)
{
    for (uint32_t i = 0; i < N_GRAMMARS; i++)
        grammar_unref(grammars[i]);
    tokenizer_unref(tokenizer);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_crowd_gets_what_each_gets_alone),
        cmocka_unit_test(a_relay_gives_the_answer_of_one_worker),
    };

    if (getenv("BATON_TEST_SEEDS"))
        n_seeds = strtoull(getenv("BATON_TEST_SEEDS"), NULL, 10);
    log_setup("test", LOG_LEVEL_ERROR, LOG_FORMAT_TEXT);
    return cmocka_run_group_tests_name("sched properties", tests, make_grammars, free_grammars);
}
