/* SPDX-License-Identifier: Apache-2.0 */
/* Draft tokens by a second, smaller model with the same vocabulary.
 *
 *     text         t0 t1 ... t7 | t8 t9           t8, t9: sampled since its last turn
 *     its KV       t0 t1 ... t7 |
 *     its steps                 | t8 t9 -> d0     one row per sequence and step, all sequences together
 *                                       d0 -> d1
 *     verified step               t9 d0 d1        by the model itself, as all draft tokens
 *
 * The draft model samples with the sequence's own options, seed, position, penalties and grammar. Both models
 * then turn the same random number into a token. So draft tokens are right wherever the two distributions
 * nearly agree, also at high temperatures.
 *
 * KV. The draft model has its own arena and its own blocks, not shared and not cached. Tokens of a sequence
 * never change, so its KV stays valid until it is given back: at the sequence's end, or when it is preempted.
 * When blocks run short, the youngest sequence loses its blocks to the older ones. A sequence begins only with
 * blocks for its text and one more for each sequence, so that it does not lose them at once.
 *
 * Catching up. After a prompt, a hand-off or a cache hit the draft model has not read the text. It reads it in
 * slices, each of at most a part of a decode step's time, so that no other answer stalls. It reads only where
 * the expected gain of the tokens left pays for the reading.
 *
 * Trying. Acceptance and cost of a draft model are unknown at first. One sequence tries it then, and the
 * speculation budget pays for that. What is known fades while it is not used, so that it is tried again.
 *
 * MTP head. The model's own head (compute/model/mtp.c) takes the draft model's place. It reads, with each token, the
 * row from which the model sampled it. So its position 0 is the first token with a row: the prompt's second, if the
 * steps of the prompt gave their rows (draft_prompt.c), here or before a hand-off (draft_handoff.c); else the first
 * token that is sampled here. A sequence keeps a few rows that the head has not read. When it has not drafted for
 * longer, the head begins again at the oldest row. After a step the head reads the accepted tokens again: the model's
 * rows replace its own.
 *
 *     text          t0 ... t5 | t6 t7 t8 t9       t6: the first sampled token
 *     rows                      h5 h6 h7 h8       of the step that sampled the token
 *     its positions             0  1  2  3        or 5 6 7 8, after it read the prompt
 *
 * Hot path: no allocation, no system call; no log except for the one failure that ends it. */
#include "compute/sched/draft_priv.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "compute/sched/sched_priv.h"

#define SLICE_SHARE   0.25  /* of a decode step: longest slice */
#define SLICE_LEAST   16    /* tokens */
#define SLICE_UNKNOWN 64    /* tokens, while the cost of a slice is not known */
#define EXPECTED_LEFT 128.0 /* tokens that an answer is expected to go on for, at most */
#define DRAFTS_FIRST  2     /* draft tokens while the draft model is new */

int draft_model_open(struct sched *sched)
{
    struct draft_model *model = &sched->draft_model;
    const struct sched_opts *opts = &sched->opts;
    const struct engine_info *info;

    if (opts->draft_engine == NULL || opts->speculate == SPECULATE_OFF)
        return 0;
    info = &opts->draft_engine->info;
    if (info->vocab_size != opts->engine->info.vocab_size)
        return E_MISMATCH;
    if (info->is_mtp && (opts->engine->ops->hidden == NULL || info->hidden != opts->engine->info.hidden))
        return E_MISMATCH;
    if (info->layout.state_bytes > 0 || info->layout.n_window_layers > 0)
        return E_UNSUPPORTED; /* a draft model has blocks of one kind */
    if (info->layout.block_tokens == 0 || info->max_batch_tokens < 2 * SCHED_DRAFT_SEQS ||
        info->max_draws < SCHED_DRAFT_SEQS)
        return E_INVAL;
    model->free_ids = malloc((opts->draft_blocks + 1) * sizeof(*model->free_ids));
    if (model->free_ids == NULL)
        return E_NOMEM;
    for (uint32_t i = 0; i < opts->draft_blocks; i++)
        model->free_ids[i] = opts->draft_blocks - 1 - i;
    model->n_free = opts->draft_blocks;
    model->engine = opts->draft_engine;
    return draft_prompt_open(sched);
}

void draft_model_close(struct sched *sched)
{
    free(sched->draft_model.free_ids);
    free(sched->draft_model.prompt_rows);
}

/* ---- blocks ---- */

static uint32_t draft_pending_most(const struct sched *sched)
{
    return sched->opts.draft_engine->info.max_batch_tokens / SCHED_DRAFT_SEQS;
}

static size_t draft_row_bytes(const struct sched *sched)
{
    return sched->opts.draft_engine->info.hidden * sizeof(float);
}

/* Tokens of the text from the draft model's position 0 on. */
static uint32_t draft_text(const struct seq *seq)
{
    return seq->spec.n_tokens - seq->draft.kv.first;
}

uint32_t draft_blocks_for(const struct sched *sched, uint32_t n_tokens)
{
    uint32_t block_tokens = sched->opts.draft_engine->info.layout.block_tokens;

    return n_tokens / block_tokens + (n_tokens % block_tokens != 0);
}

int draft_kv_init(const struct sched *sched, struct seq *seq)
{
    if (sched->draft_model.engine == NULL)
        return 0;
    seq->draft.kv.blocks = malloc(draft_blocks_for(sched, seq->cap_tokens) * sizeof(kv_block_id));
    if (sched->opts.draft_engine->info.is_mtp)
        seq->draft.kv.rows = malloc((draft_pending_most(sched) + 1) * draft_row_bytes(sched));
    return seq->draft.kv.blocks != NULL &&
                   (seq->draft.kv.rows != NULL || !sched->opts.draft_engine->info.is_mtp)
               ? 0
               : E_NOMEM;
}

void draft_kv_give_back(struct sched *sched, struct seq *seq)
{
    struct draft_kv *kv = &seq->draft.kv;

    while (kv->n_blocks > 0)
        sched->draft_model.free_ids[sched->draft_model.n_free++] = kv->blocks[--kv->n_blocks];
    kv->n_computed = kv->n_ahead = 0;
}

bool draft_kv_take(struct sched *sched, struct seq *seq, uint32_t n_tokens)
{
    uint32_t n_blocks = draft_blocks_for(sched, n_tokens);
    struct draft_model *model = &sched->draft_model;
    struct draft_kv *kv = &seq->draft.kv;

    while (kv->n_blocks < n_blocks && model->n_free > 0)
        kv->blocks[kv->n_blocks++] = model->free_ids[--model->n_free];
    return kv->n_blocks >= n_blocks;
}

/* The youngest sequence that has blocks, if it is younger than seq; else NULL. */
static struct seq *youngest_drafted(const struct sched *sched, const struct seq *seq)
{
    for (struct list *at = sched->running.prev; at != &seq->in_running && at != &sched->running;
         at = at->prev)
        if (seq_of(at)->draft.kv.n_blocks > 0)
            return seq_of(at);
    return NULL;
}

/* The same, also with blocks of younger sequences. */
static bool draft_kv_grow(struct sched *sched, struct seq *seq, uint32_t n_tokens)
{
    struct seq *victim;

    while (!draft_kv_take(sched, seq, n_tokens)) {
        victim = youngest_drafted(sched, seq);
        if (victim == NULL)
            return false;
        draft_kv_give_back(sched, victim);
    }
    return true;
}

static bool draft_may_begin(const struct sched *sched, const struct seq *seq)
{
    return seq->draft.kv.n_blocks > 0 ||
           sched->draft_model.n_free >= draft_blocks_for(sched, draft_text(seq)) + sched->n_running;
}

/* Tokens that fit into the sequence's blocks, the free ones and those of younger sequences, and into the draft
 * model's context. */
static uint64_t draft_kv_room(const struct sched *sched, const struct seq *seq)
{
    const struct engine_info *info = &sched->opts.draft_engine->info;
    uint64_t n_blocks = (uint64_t)seq->draft.kv.n_blocks + sched->draft_model.n_free, n_tokens;

    for (struct list *at = seq->in_running.next; at != &sched->running; at = at->next)
        n_blocks += seq_of(at)->draft.kv.n_blocks;
    n_tokens = n_blocks * info->layout.block_tokens;

    return n_tokens < info->context_length ? n_tokens : info->context_length;
}

/* ---- steps ---- */

static uint32_t draft_pending(const struct seq *seq)
{
    return draft_text(seq) - seq->draft.kv.n_computed;
}

bool draft_model_is_new(const struct sched *sched)
{
    return sched->draft_model.engine != NULL && !sched->draft_model.is_known &&
           sched->speculation_budget_s > DRAFTS_FIRST * draft_model_row_s(sched, 1, 0);
}

double draft_model_row_s(const struct sched *sched, uint32_t n_rows, uint32_t n_tokens)
{
    struct cost_step step = {.n_rows = n_rows, .n_pairs = (double)n_rows * n_tokens};

    return cost_predict(&sched->draft_model.cost, &step);
}

bool draft_model_step(struct sched *sched, const struct engine_item *items, uint32_t n_items,
                      struct sample_result *results)
{
    struct engine_batch batch = {.items = items, .n_items = n_items, .is_given_up = sched->opts.is_given_up};
    struct draft_model *model = &sched->draft_model;
    uint64_t began_ns = sched_now_ns(sched), ended_ns;
    struct cost_step step = {0};
    double took_s;
    int rc = engine_step(model->engine, &batch, results);

    ended_ns = sched_now_ns(sched);
    took_s = (double)(ended_ns > began_ns ? ended_ns - began_ns : 1) / (double)NS_PER_S;
    model->step_s += model->is_warm ? took_s : 0;
    if (rc < 0) {
        if (rc != E_CANCELLED) {
            log_error("draft_model_failed", LOG_ERR(rc));
            model->engine = NULL;
        }
        return false;
    }
    for (uint32_t i = 0; i < n_items; i++) {
        if (items[i].wants_token)
            step.n_rows += items[i].n_tokens;
        else
            step.n_prompt += items[i].n_tokens;
        step.n_pairs += cost_pairs(items[i].position, items[i].n_tokens);
    }
    if (model->is_warm)
        cost_observe(&model->cost, &step, took_s);
    model->is_warm |= step.n_rows > 0;
    return true;
}

/* ---- rows for an MTP head ---- */

static bool draft_lacks_rows(const struct seq *seq)
{
    return seq->draft.kv.rows != NULL && seq->draft.kv.n_rows == 0;
}

/* The place of the head's own row, which it reads with its own draft token. */
static float *draft_own_row(const struct sched *sched, const struct draft_kv *kv)
{
    return kv->rows + (size_t)draft_pending_most(sched) * sched->opts.draft_engine->info.hidden;
}

void draft_keep_rows(const struct sched *sched, uint32_t index, uint32_t n_new)
{
    const struct plan_item *item = &sched->plan.items[index];
    const struct engine *engine = sched->opts.engine;
    struct draft_kv *kv = &item->seq->draft.kv;
    uint32_t n_most, n_kept, skip = 0;
    size_t width;

    if (kv->rows == NULL)
        return;
    width = engine->info.hidden;
    n_most = draft_pending_most(sched);
    if (n_new > n_most)
        skip = n_new - n_most;
    n_new -= skip;
    if (kv->n_rows + n_new > n_most) { /* makes room for several steps */
        n_kept = n_most - n_new < n_most / 2 ? n_most - n_new : n_most / 2;
        n_kept = n_kept < kv->n_rows ? n_kept : kv->n_rows;
        memmove(kv->rows, kv->rows + (kv->n_rows - n_kept) * width, n_kept * width * sizeof(float));
        kv->n_rows = n_kept;
    }
    for (uint32_t i = 0; i < n_new; i++)
        memcpy(kv->rows + kv->n_rows++ * width,
               engine->ops->hidden(engine->self, index, item->n_drafts - skip - i), width * sizeof(float));
}

/* Where the head cannot continue, because it has no KV or did not read rows that are gone, it begins again at the
 * oldest row. */
static void draft_place(struct seq *seq)
{
    struct draft_kv *kv = &seq->draft.kv;
    uint32_t oldest = seq->spec.n_tokens - kv->n_rows;

    if (kv->rows == NULL || (kv->n_computed > 0 && kv->first + kv->n_computed >= oldest))
        return;
    kv->first = oldest;
    kv->n_computed = 0;
}

/* ---- catching up ---- */

/* True if the gain that is expected of the draft model for the rest of the answer exceeds the cost of reading
 * the text. decode: the step without draft tokens. */
static bool catching_up_pays(const struct sched *sched, const struct cost_step *decode, const struct seq *seq)
{
    const struct cost_model *cost = &sched->draft_model.cost;
    uint32_t n_tokens = draft_pending(seq);
    struct cost_step read = {.n_prompt = n_tokens, .n_pairs = cost_pairs(seq->draft.kv.n_computed, n_tokens)};
    double chance = draft_chance(sched, seq, KIND_MODEL), plain, faster;

    if (sched->opts.speculate == SPECULATE_ALWAYS)
        return true;
    if (draft_model_is_new(sched)) /* one sequence shows what it is worth */
        return seq->draft.kv.n_blocks > 0 || sched->draft_model.n_free == sched->opts.draft_blocks;
    if (sched->speculation_budget_s <= draft_model_row_s(sched, decode->n_rows, seq->spec.n_tokens))
        return false; /* nothing could be sampled after it */
    plain = draft_rate(sched, decode, 0, 0, false);
    faster = draft_rate(sched, decode, chance, sched->opts.max_drafts, true);
    return faster > DRAFT_GAIN_MIN * plain && plain > 0 &&
           fmin(seq->n_left, EXPECTED_LEFT) * decode->n_rows * (1 / plain - 1 / faster) >
               cost_predict(cost, &read);
}

/* Tokens that all sequences together may catch up on in this step. */
static uint32_t slice_budget(const struct sched *sched, const struct cost_step *decode)
{
    const struct cost_model *cost = &sched->draft_model.cost;
    uint32_t n_most = sched->opts.draft_engine->info.max_batch_tokens;
    double slice_s = SLICE_SHARE * cost_predict(&sched->speed.cost, decode), per_token_s;
    double n = SLICE_UNKNOWN;

    per_token_s = cost_per_prompt_token(cost);
    if (cost_knows_prompts(cost) && per_token_s > 0)
        n = fmax(slice_s / per_token_s, SLICE_LEAST);
    return n < n_most ? (uint32_t)n : n_most;
}

void draft_model_catch_up(struct sched *sched)
{
    struct engine_item items[SCHED_DRAFT_SEQS];
    struct sample_result results[SCHED_DRAFT_SEQS];
    struct seq *seqs[SCHED_DRAFT_SEQS];
    struct cost_step decode;
    uint32_t n_items = 0, budget;
    bool is_new;

    if (sched->draft_model.engine == NULL)
        return;
    decode = plan_decode_cost(sched);
    budget = slice_budget(sched, &decode);
    list_for_each (at, &sched->running) {
        struct seq *seq = seq_of(at);
        struct draft_kv *kv = &seq->draft.kv;
        uint32_t n;

        kv->n_ahead = 0;
        if (seq->state != SEQ_DECODE)
            continue; /* draft_prompt.c */
        draft_place(seq);
        if (draft_pending(seq) == 0)
            continue; /* an MTP head that has no row yet, after a hand-off */
        n = draft_pending(seq) - 1;
        if (kv->blocks == NULL || n < draft_pending_most(sched) || budget == 0 ||
            n_items == SCHED_DRAFT_SEQS || !draft_may_begin(sched, seq) ||
            draft_kv_room(sched, seq) <= draft_text(seq) || !catching_up_pays(sched, &decode, seq))
            continue;
        n = n < budget ? n : budget;
        if (!draft_kv_take(sched, seq, kv->n_computed + n))
            continue;
        items[n_items] = (struct engine_item){.tokens = seq->tokens + kv->n_computed,
                                              .n_tokens = n,
                                              .position = kv->n_computed,
                                              .blocks = kv->blocks,
                                              .n_blocks = kv->n_blocks,
                                              .tag = seq->spec.id};
        seqs[n_items++] = seq;
        budget -= n;
    }
    is_new = draft_model_is_new(sched);
    if (n_items > 0 && draft_model_step(sched, items, n_items, results))
        for (uint32_t i = 0; i < n_items; i++)
            seqs[i]->draft.kv.n_computed += items[i].n_tokens;
    if (is_new) /* nothing says yet that reading pays, so the speculation budget pays for it */
        sched->draft_model.drafting_s += sched->draft_model.step_s;
}

/* ---- sampling ---- */

uint32_t draft_model_limit(const struct sched *sched, const struct seq *seq, uint32_t n)
{
    uint64_t room;

    if (sched->draft_model.engine == NULL || seq->draft.kv.blocks == NULL || draft_lacks_rows(seq) ||
        draft_pending(seq) > draft_pending_most(sched) || !draft_may_begin(sched, seq))
        return 0;
    room = draft_kv_room(sched, seq);
    if (room < (uint64_t)draft_text(seq) + n)
        n = room > draft_text(seq) ? (uint32_t)room - draft_text(seq) : 0;
    if (sched->opts.speculate == SPECULATE_AUTO && draft_model_is_new(sched) && n > DRAFTS_FIRST)
        n = DRAFTS_FIRST;
    return n;
}

/* The sequence's part of the step that samples its draft token n. */
static struct engine_item draft_item(const struct sched *sched, const struct seq *seq, uint32_t n)
{
    const struct draft_kv *kv = &seq->draft.kv;
    uint32_t from = kv->n_computed + kv->n_ahead;
    struct engine_item item = {.tokens = seq->tokens + kv->first + from,
                               .n_tokens = draft_text(seq) + n - from,
                               .sampled_after = kv->first,
                               .position = from,
                               .blocks = kv->blocks,
                               .n_blocks = kv->n_blocks,
                               .wants_token = true,
                               .sample = seq->spec.work.sample,
                               .state = seq->past,
                               .tokens_left = seq->n_left - n,
                               .tag = seq->spec.id};

    if (kv->rows != NULL)
        item.hidden =
            n > 0 ? draft_own_row(sched, kv)
                  : kv->rows + (size_t)(kv->n_rows - item.n_tokens) * sched->opts.draft_engine->info.hidden;
    item.sample.wants_logprob = false;
    item.sample.n_top = 0;
    return item;
}

/* Takes the draft token n that was sampled for the sequence.  False: the last one was before it. */
static bool draft_take_sample(const struct sched *sched, struct seq *seq, uint32_t n, token_id id)
{
    if (id >= sched->opts.engine->info.vocab_size || seq_is_stop(seq, id) ||
        sample_state_push(seq->past, id) < 0) /* TOKEN_NONE is beyond every vocabulary */
        return false;
    seq->tokens[seq->spec.n_tokens + n] = id;
    return true;
}

/* Samples draft token n of all choices that get more than n.  Returns how many go on. */
static uint32_t draft_sample_all(struct sched *sched, struct draft_choice **active, uint32_t n_active,
                                 uint32_t n)
{
    struct engine_item items[SCHED_DRAFT_SEQS] = {0};
    struct sample_result results[SCHED_DRAFT_SEQS];
    uint32_t n_left = 0;

    for (uint32_t i = 0; i < n_active; i++)
        items[i] = draft_item(sched, active[i]->seq, n);
    if (!draft_model_step(sched, items, n_active, results))
        return 0;
    for (uint32_t i = 0; i < n_active; i++) {
        struct draft_choice *choice = active[i];
        struct draft_kv *kv = &choice->seq->draft.kv;

        kv->n_computed = draft_text(choice->seq);
        kv->n_ahead = n;
        if (kv->rows != NULL)
            memcpy(draft_own_row(sched, kv),
                   sched->draft_model.engine->ops->hidden(sched->draft_model.engine->self, i, 0),
                   draft_row_bytes(sched));
        if (!draft_take_sample(sched, choice->seq, n, results[i].id))
            continue;
        choice->n = n + 1;
        if (choice->n < choice->n_best)
            active[n_left++] = choice;
    }
    return n_left;
}

void draft_model_sample(struct sched *sched, struct draft_choice *choices, uint32_t n_choices)
{
    struct draft_choice *active[SCHED_DRAFT_SEQS];
    uint32_t n_active = 0;
    double before_s = sched->draft_model.step_s;

    for (uint32_t i = 0; i < n_choices; i++) {
        struct draft_choice *choice = &choices[i];

        if (!choice->is_model)
            continue;
        choice->n = 0;
        draft_place(choice->seq); /* it may have lost its blocks to an older one just now */
        if (choice->n_best > 0 && n_active < SCHED_DRAFT_SEQS &&
            draft_pending(choice->seq) <= draft_pending_most(sched) &&
            draft_kv_grow(sched, choice->seq, draft_text(choice->seq) + choice->n_best - 1))
            active[n_active++] = choice;
    }
    for (uint32_t n = 0; n_active > 0; n++)
        n_active = draft_sample_all(sched, active, n_active, n);
    for (uint32_t i = 0; i < n_choices; i++) {
        struct seq *seq = choices[i].seq;

        if (!choices[i].is_model)
            continue;
        sample_state_pop(seq->past, seq->tokens + seq->spec.n_tokens, choices[i].n);
        choices[i].n_best = choices[i].n;
    }
    sched->draft_model.drafting_s += sched->draft_model.step_s - before_s;
}
