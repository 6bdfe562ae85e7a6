/* SPDX-License-Identifier: Apache-2.0 */
/* Speculation: draft tokens, verified by the next step.
 *
 *     text        ... def f ( x ) : ...... def f (          the text after an earlier occurrence of the
 *     drafts                                     x ) :      text's ending becomes the draft
 *     step feeds                               ( x ) :      one row each; the weights are read once
 *     sampled                                  x ) return   each token from its own row
 *
 * Here the third draft token was wrong, and two were accepted.
 *
 * Speculation is exact by construction. At each position the engine samples from the logits of exactly the
 * tokens that plain decoding would have fed, with the generator state of that position. A sampled token is
 * used only if all draft tokens before it were right. The bits of a row do not depend on the other rows. So
 * draft tokens change when tokens are sampled, never which.
 *
 * Sources. The grammar's forced tokens come first. Otherwise there are two: text after an earlier occurrence of the
 * ending, and tokens of the draft model or the MTP head (draft_model.c). Each sequence uses the source with the
 * higher expected tokens per second; draft_choose.c chooses the number. The acceptance rate is learned from the
 * sequence's own history. If that is short, the history of all draft tokens of the same kind counts (kind: the
 * draft model, or the length of the matched ending).
 *
 * With a grammar, draft tokens that it forbids are dropped. Where the grammar leaves one choice (names and
 * punctuation of an object), the forced token is the draft and is right.
 *
 * Speculation budget. The extra rows of a step reduce the budget by the time that the cost model predicts for
 * them, and the draft model's steps by the time that they took.  Each accepted draft token adds the mean time of a token.  The budget also grows by BUDGET_INCOME of
 * the time of decoding. With an empty budget the scheduler drafts no tokens.  So speculation loses little
 * more than this income, even if the model and the rates are wrong.
 *
 * Hot path: no allocation, no log, no system call. */
#include <math.h>
#include <stdlib.h>

#include "base/err.h"
#include "cache/kv/pool_quota.h"
#include "compute/sched/sched_priv.h"

#define PRIOR_SEEN     2.0  /* number of the sequence's own draft tokens that outweighs the kind's rate */
#define SEQ_FADE       0.93 /* per verified draft token */
#define KIND_FADE      0.99
#define IDLE_FADE      0.98  /* per step without draft tokens, so that a bad source is tried again later */
#define RETRY_FADE     0.999 /* per step: the statistics of the draft model fade */
#define KNOWN_SEEN     5.0   /* the draft model is known with this many verified draft tokens ... */
#define FORGOTTEN_SEEN 1.0   /* ... and unknown again at this many, about 1,600 steps after the last one */
#define BUDGET_INCOME  0.01
#define BUDGET_START   2.0 /* decode steps */
#define BUDGET_MAX     4.0
#define BUDGET_DEBT    1.0   /* most debt in decode steps; a hundred steps pay it off */
#define CHANCE_FORCED  0.999 /* forced tokens are always accepted, unless the answer is cut */
#define RESUME_MAX     4     /* tokens without a find after which copying is not resumed */

static const double PRIOR[DRAFT_KINDS] = {0.3, 0.3, 0.5, 0.6, 0.7, 0.8, 1, 0.6}; /* initial rates */

static enum draft_kind draft_kind_of(uint32_t length)
{
    return length >= 12  ? KIND_12
           : length >= 6 ? KIND_6
           : length >= 4 ? KIND_4
           : length >= 3 ? KIND_3
                         : KIND_2;
}

int draft_init(const struct sched *sched, struct seq *seq)
{
    bool is_wanted = sched->opts.speculate != SPECULATE_OFF && sched->opts.max_drafts > 0 &&
                     seq->spec.work.max_new_tokens > 1 && !seq->spec.leaves_nothing;

    if (!is_wanted)
        return 0;
    return ngram_init(&seq->draft.index, seq->cap_tokens) < 0 ? E_NOMEM : draft_kv_init(sched, seq);
}

void draft_fini(struct seq *seq)
{
    ngram_fini(&seq->draft.index);
    free(seq->draft.kv.blocks);
    free(seq->draft.kv.rows);
}

/* ---- acceptance rates ---- */

static double chance_of_kind(const struct sched *sched, enum draft_kind kind)
{
    const struct draft_acceptance *acceptance = &sched->acceptance[kind];

    return (acceptance->n_right + PRIOR_SEEN * PRIOR[kind]) / (acceptance->n_seen + PRIOR_SEEN);
}

double draft_chance(const struct sched *sched, const struct seq *seq, enum draft_kind kind)
{
    const struct draft *draft = &seq->draft;
    const struct draft_acceptance *own = kind == KIND_MODEL ? &draft->model_acceptance : &draft->acceptance;

    if (kind == KIND_FORCED)
        return CHANCE_FORCED;
    return (own->n_right + PRIOR_SEEN * chance_of_kind(sched, kind)) / (own->n_seen + PRIOR_SEEN);
}

static void acceptance_add(struct draft_acceptance *acceptance, bool is_right, double fade)
{
    acceptance->n_right = fade * acceptance->n_right + is_right;
    acceptance->n_seen = fade * acceptance->n_seen + 1;
}

static void acceptance_fade(struct draft_acceptance *acceptance)
{
    acceptance->n_right *= IDLE_FADE;
    acceptance->n_seen *= IDLE_FADE;
}

uint32_t draft_accepted(const struct plan_item *item, const struct sample_result *results)
{
    const token_id *drafts = item->seq->tokens + item->seq->spec.n_tokens;
    uint32_t n = 0;

    while (n < item->n_drafts && results[n].id == drafts[n])
        n++;
    return n;
}

const char *sched_draft_name(enum sched_draft source)
{
    static const char *const names[SCHED_DRAFTS] = {SCHED_DRAFT_TABLE(SCHED_DRAFT_NAME)};

    return names[source];
}

void draft_count(struct sched *sched, const struct plan_item *item, uint32_t n_accepted)
{
    enum draft_kind kind = item->seq->draft.kind;
    enum sched_draft model = item->seq->draft.kv.rows != NULL ? SCHED_DRAFT_MTP : SCHED_DRAFT_MODEL;
    enum sched_draft source = kind == KIND_MODEL    ? model
                              : kind == KIND_FORCED ? SCHED_DRAFT_GRAMMAR
                                                    : SCHED_DRAFT_TEXT;

    sched->n_drafted[source] += item->n_drafts;
    sched->n_accepted[source] += n_accepted;
}

/* Moves the sources behind the tokens that were sampled. */
static void draft_follow(struct draft *draft, uint32_t n_accepted)
{
    if (draft->kind == KIND_MODEL) {
        if (draft->kv.rows == NULL) /* an MTP head reads accepted tokens again, with the model's own rows */
            draft->kv.n_computed += n_accepted < draft->kv.n_ahead ? n_accepted : draft->kv.n_ahead;
        draft->kv.n_ahead = 0;
        draft->resume += draft->resume > 0 ? n_accepted : 0;
    } else {
        /* Continue copying after the rejected draft token (its place has another token), or after the token
         * that follows the last one. */
        draft->resume = draft->source + n_accepted + 1;
    }
}

void draft_learn(struct sched *sched, struct seq *seq, uint32_t n_drafts, uint32_t n_accepted)
{
    struct draft *draft = &seq->draft;
    struct draft_acceptance *own = draft->kind == KIND_MODEL ? &draft->model_acceptance : &draft->acceptance;

    seq->stats.n_drafted += n_drafts;
    if (draft->kind == KIND_FORCED)
        return;
    for (uint32_t i = 0; i <= n_accepted && i < n_drafts; i++) {
        acceptance_add(own, i < n_accepted, SEQ_FADE);
        acceptance_add(&sched->acceptance[draft->kind], i < n_accepted, KIND_FADE);
    }
    draft_follow(draft, n_accepted);
}

/* ---- the speculation budget ---- */

void draft_book(struct sched *sched, const struct plan *plan, uint32_t n_accepted)
{
    struct cost_step plain = {0}, step = {.n_rows = plan->n_decode_rows};

    if (plan->n_decode == 0 || sched->opts.speculate != SPECULATE_AUTO)
        return;
    for (uint32_t i = 0; i < plan->n_decode; i++) {
        const struct plan_item *item = &plan->items[i];

        plain.n_rows++;
        plain.n_pairs += cost_pairs(item->seq->n_computed, 1);
        step.n_pairs += cost_pairs(item->seq->n_computed, item->n_tokens);
    }

    double plain_s = cost_predict(&sched->speed.cost, &plain);
    double extra_s = cost_predict(&sched->speed.cost, &step) - plain_s;

    if (!sched->has_speculation_budget)
        sched->speculation_budget_s = BUDGET_START * plain_s;
    sched->has_speculation_budget = true;
    sched->speculation_budget_s += BUDGET_INCOME * plain_s + n_accepted * plain_s / plan->n_decode;
    sched->speculation_budget_s -= extra_s > 0 && plan->n_decode_rows > plan->n_decode ? extra_s : 0;
    sched->speculation_budget_s -= sched->draft_model.drafting_s;
    sched->speculation_budget_s =
        fmin(fmax(sched->speculation_budget_s, -BUDGET_DEBT * plain_s), BUDGET_MAX * plain_s);
}

/* ---- finding ---- */

/* Position from which the next token would be copied; 0: none. */
static uint32_t draft_find(struct seq *seq)
{
    struct draft *draft = &seq->draft;
    uint32_t length, at = 0;

    if (ngram_extend(&draft->index, seq->tokens, seq->spec.n_tokens))
        at = ngram_find(&draft->index, seq->tokens, seq->spec.n_tokens, &length);
    if (at > 0) {
        draft->n_lost = 0;
        draft->kind = draft_kind_of(length);
    } else if (draft->resume > 0 && draft->resume < seq->spec.n_tokens && draft->n_lost++ < RESUME_MAX) {
        draft->kind = KIND_RESUMED;
        at = draft->resume;
    }
    draft->resume = at > 0 ? at + 1 : 0; /* verified draft tokens overwrite this */
    return at;
}

/* Returns the tokens that fit into the sequence's blocks and the free ones,
 * less one block for each active sequence. */
static uint32_t room_of(const struct sched *sched, const struct seq *seq)
{
    uint32_t n_active = queue_n_active(sched);
    uint32_t n_available = kv_available(sched->opts.pool) / (1 + sched->windows.n_groups);
    uint32_t n_spare = n_available > n_active ? n_available - n_active : 0;
    uint64_t room = ((uint64_t)seq->n_blocks + n_spare) * sched->block_tokens - seq->spec.n_tokens;

    return room < DRAFT_MAX ? (uint32_t)room : DRAFT_MAX;
}

/* Most draft tokens such that all of them and one more sampled token still fit. */
static uint32_t draft_limit(const struct sched *sched, const struct seq *seq)
{
    uint32_t n_most = sched->opts.max_drafts, room = room_of(sched, seq);

    if (n_most > seq->cap_tokens - seq->spec.n_tokens - 1)
        n_most = seq->cap_tokens - seq->spec.n_tokens - 1;
    if (n_most > seq->n_left - 1)
        n_most = seq->n_left - 1;
    return n_most < room ? n_most : room;
}

/* Returns how many of the leading n draft tokens the grammar allows. */
static uint32_t cut_to_grammar(struct seq *seq, const token_id *drafts, uint32_t n)
{
    uint32_t n_allowed = 0;

    if (!sample_state_has_grammar(seq->past))
        return n;
    while (n_allowed < n && sample_state_push(seq->past, drafts[n_allowed]) == 0)
        n_allowed++;
    sample_state_pop(seq->past, drafts, n_allowed);
    return n_allowed;
}

/* The tokens that the grammar forces, up to a stop id. */
static uint32_t draft_forced(struct seq *seq, token_id *drafts, uint32_t n_most)
{
    uint32_t n = 0, n_forced = sample_state_forced(seq->past, drafts, n_most);

    while (n < n_forced && !seq_is_stop(seq, drafts[n]))
        n++;
    return n;
}

/* Writes draft tokens behind the tokens, as many as the answer,
 * the room and the options allow. Returns their number. */
static uint32_t draft_for_seq(const struct sched *sched, struct seq *seq)
{
    uint32_t n_most = draft_limit(sched, seq), source = draft_find(seq), n;
    token_id *drafts = seq->tokens + seq->spec.n_tokens;

    n = n_most > 0 ? draft_forced(seq, drafts, n_most) : 0;
    if (n > 0) {
        seq->draft.kind = KIND_FORCED;
        seq->draft.resume = 0; /* the text no longer follows the position copied from */
        return n;
    }
    /* A source that reaches the text's end continues with the draft tokens themselves: a loop. */
    for (; source > 0 && n < n_most && !seq_is_stop(seq, seq->tokens[source + n]); n++)
        drafts[n] = seq->tokens[source + n];
    seq->draft.source = source;
    return cut_to_grammar(seq, drafts, n);
}

/* ---- choosing ---- */

/* Takes blocks for n draft tokens. If another sequence took the room first, there are fewer. */
static void draft_take_blocks(struct sched *sched, struct seq *seq, uint32_t n)
{
    while (seq->n_blocks * sched->block_tokens < seq->spec.n_tokens + n) {
        uint32_t n_each = 1 + sched->windows.n_groups;

        if (kv_available(sched->opts.pool) / n_each <= queue_n_active(sched) ||
            queue_room(sched, seq) < n_each || seq_grow(sched, seq) < 0) {
            n = seq->n_blocks * sched->block_tokens - seq->spec.n_tokens;
            break;
        }
    }
    seq->draft.n = n;
}

/* Returns the rows for draft tokens in the step.
 * Waiting prompts keep half of the room that decoding leaves. */
static uint32_t room_for_drafts(const struct sched *sched, uint32_t n_decode)
{
    uint32_t room = sched->opts.engine->info.max_batch_tokens - plan_decode_cost(sched).n_rows;
    bool has_prompts = sched->n_waiting > 0 || queue_n_active(sched) > n_decode;

    if (has_prompts)
        room /= 2;
    return room < sched->max_drafts ? room : sched->max_drafts;
}

/* Chooses the draft model for a sequence if it is expected to save more time than the draft tokens found so far. */
static void draft_weigh_model(const struct sched *sched, const struct cost_step *decode,
                              struct draft_choice *choice)
{
    struct seq *seq = choice->seq;
    uint32_t n_model = draft_model_limit(sched, seq, draft_limit(sched, seq));
    double chance = draft_chance(sched, seq, KIND_MODEL);

    if (n_model == 0 || (choice->n_most > 0 && seq->draft.kind == KIND_FORCED))
        return;
    if (choice->n_most > 0 && (sched->opts.speculate == SPECULATE_ALWAYS ||
                               draft_rate(sched, decode, choice->chance, choice->n_most, false) >=
                                   draft_rate(sched, decode, chance, n_model, true)))
        return;
    seq->draft.kind = KIND_MODEL;
    *choice = (struct draft_choice){
        .seq = seq, .is_model = true, .chance = chance, .next = chance, .n_most = n_model};
}

/* Collects sequences that have draft tokens;
 * with more than DRAFT_CHOICES of them, drafting hardly ever pays. */
static uint32_t draft_gather(const struct sched *sched, struct draft_choice *choices, uint32_t *n_decode_out)
{
    struct cost_step decode = plan_decode_cost(sched);
    uint32_t n = 0, n_model = 0;

    *n_decode_out = 0;
    list_for_each (at, &sched->running) {
        struct seq *seq = seq_of(at);
        struct draft_choice choice = {.seq = seq};

        if (seq->state != SEQ_DECODE)
            continue;
        ++*n_decode_out;
        acceptance_fade(&seq->draft.acceptance);
        acceptance_fade(&seq->draft.model_acceptance);
        choice.n_most = n < DRAFT_CHOICES ? draft_for_seq(sched, seq) : 0;
        choice.chance = choice.next = draft_chance(sched, seq, seq->draft.kind);
        if (n < DRAFT_CHOICES && n_model < SCHED_DRAFT_SEQS)
            draft_weigh_model(sched, &decode, &choice);
        if (choice.n_most == 0)
            continue;
        n_model += choice.is_model;
        choices[n++] = choice;
    }
    return n;
}

/* Lets an unknown draft model sample although that is not expected to pay. Its statistics fade while it is not
 * used, so it becomes unknown and is tried again later. */
static void draft_try_model(struct sched *sched, struct draft_choice *choices, uint32_t n_choices,
                            uint32_t room)
{
    struct draft_acceptance *acceptance = &sched->acceptance[KIND_MODEL];
    bool is_new = draft_model_is_new(sched);

    acceptance->n_right *= RETRY_FADE;
    acceptance->n_seen *= RETRY_FADE;
    if (acceptance->n_seen >= KNOWN_SEEN || acceptance->n_seen < FORGOTTEN_SEEN)
        sched->draft_model.is_known = acceptance->n_seen >= KNOWN_SEEN;
    for (uint32_t i = 0; i < n_choices; i++)
        room -= choices[i].n_best < room ? choices[i].n_best : room;
    for (uint32_t i = 0; i < n_choices && is_new; i++) {
        if (!choices[i].is_model || choices[i].n_best > 0 || choices[i].n_most > room)
            continue;
        choices[i].n_best = choices[i].n_most;
        room -= choices[i].n_most;
    }
}

void draft_propose(struct sched *sched)
{
    struct draft_choice choices[DRAFT_CHOICES];
    bool is_auto = sched->opts.speculate == SPECULATE_AUTO;
    uint32_t n_decode, n, room;

    sched->draft_model.step_s = sched->draft_model.drafting_s = 0;
    if (sched->max_drafts == 0 || sched->opts.max_drafts == 0 || (is_auto && !sched->has_speculation_budget))
        return;
    draft_model_catch_up(sched);
    n = draft_gather(sched, choices, &n_decode);
    room = room_for_drafts(sched, n_decode);
    if (is_auto)
        draft_choose(sched, choices, n, room);
    if (is_auto)
        draft_try_model(sched, choices, n, room);
    for (uint32_t i = 0, left = room; i < n && !is_auto; i++) {
        choices[i].n_best = choices[i].n_most < left ? choices[i].n_most : left;
        left -= choices[i].n_best;
    }
    draft_model_sample(sched, choices, n);
    for (uint32_t i = 0; i < n; i++) {
        draft_take_blocks(sched, choices[i].seq, choices[i].n_best < room ? choices[i].n_best : room);
        room -= choices[i].seq->draft.n;
    }
}
