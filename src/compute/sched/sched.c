/* SPDX-License-Identifier: Apache-2.0 */
/* The scheduler's public functions: create it, submit sequences, run steps.
 *
 *     sched_run_step:   push out -> admit -> make room -> draft -> plan -> engine -> charge -> apply
 *                       queue       queue    preempt      draft    plan              queue     apply
 *
 * Admission comes before making room because its events may move sequences to DECODE (an arrival, a kept
 * sequence), and these need room too. From making room to the engine's return, the only callback is
 * on_layer. on_layer cannot end a sequence of the running step: those are busy. */
#include "compute/sched/sched.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/err.h"
#include "cache/kv/pool_cache.h"
#include "compute/sched/sched_priv.h"

#define MAX_DEBTORS 1024 /* remembered tenants without sequences, served more than waiting ones */

static int sched_opts_check(const struct sched_opts *opts)
{
    const struct engine_info *info = &opts->engine->info;
    uint32_t pool_block_tokens = kv_pool_block_tokens(opts->pool);

    if (opts->max_seqs == 0 || opts->chunk_tokens == 0 || info->max_batch_tokens == 0 ||
        info->layout.block_tokens == 0)
        return E_INVAL;
    if (pool_block_tokens && pool_block_tokens != info->layout.block_tokens)
        return E_MISMATCH;
    return 0;
}

int sched_new(const struct sched_opts *opts, struct sched **out)
{
    const struct engine_info *info = &opts->engine->info;
    int code = sched_opts_check(opts);

    if (code < 0)
        return code;

    struct sched *sched = calloc(1, sizeof(*sched));
    if (sched == NULL)
        return E_NOMEM;
    sched->opts = *opts;
    if (sched->opts.now_ns == NULL && sched->opts.cpu_ns == NULL)
        sched->opts.cpu_ns = clock_thread_cpu_ns;
    if (sched->opts.now_ns == NULL)
        sched->opts.now_ns = clock_now_ns;
    if (sched->opts.max_seqs > info->max_batch_tokens)
        sched->opts.max_seqs = info->max_batch_tokens;
    sched->block_tokens = info->layout.block_tokens;
    sched->windows.n_groups = kv_window_groups(&info->layout);
    uint64_t pool_tokens =
        (uint64_t)kv_window_capacity(&info->layout, kv_pool_size(opts->pool)) * sched->block_tokens;
    sched->n_state_blocks = kv_layout_state_blocks(&info->layout);
    uint64_t state_tokens = (uint64_t)sched->n_state_blocks * sched->block_tokens;
    pool_tokens = pool_tokens > state_tokens ? pool_tokens - state_tokens : 0;
    sched->context_tokens = pool_tokens < info->context_length ? (uint32_t)pool_tokens : info->context_length;
    list_init(&sched->all);
    list_init(&sched->running);

    sched->plan.items = calloc(sched->opts.max_seqs, sizeof(*sched->plan.items));
    sched->items = calloc(sched->opts.max_seqs, sizeof(*sched->items));
    sched->line = calloc(sched->opts.max_seqs, sizeof(struct seq *));
    sched->max_drafts = info->max_draws > sched->opts.max_seqs ? info->max_draws - sched->opts.max_seqs : 0;
    if (sched->n_state_blocks > 0 && sched->max_drafts > info->max_batch_tokens - sched->opts.max_seqs)
        sched->max_drafts = info->max_batch_tokens - sched->opts.max_seqs; /* accepted ones are fed again */
    if (sched->opts.speculate == SPECULATE_OFF)
        sched->max_drafts = 0;
    if (sched->opts.max_drafts > DRAFT_MAX)
        sched->opts.max_drafts = DRAFT_MAX;
    sched->results = calloc((size_t)sched->opts.max_seqs + sched->max_drafts, sizeof(*sched->results));
    sched->state_hashes = calloc(sched->n_state_blocks + 1, sizeof(*sched->state_hashes));
    sched->windows.hashes = calloc(sched->windows.n_groups + 1, sizeof(*sched->windows.hashes));
    sched->windows.ids = calloc(sched->windows.n_groups + 1, sizeof(*sched->windows.ids));
    sched->scores = calloc(info->max_batch_tokens, sizeof(*sched->scores)); /* pages touched when used */
    if (sched->plan.items == NULL || sched->items == NULL || sched->line == NULL || sched->results == NULL ||
        sched->scores == NULL || sched->state_hashes == NULL || sched->windows.hashes == NULL ||
        sched->windows.ids == NULL || fair_new(MAX_DEBTORS, &sched->fair) < 0)
        code = E_NOMEM;
    if (code == 0)
        code = draft_model_open(sched);
    if (code < 0) {
        sched_free(sched);
        return code;
    }
    *out = sched;
    return 0;
}

void sched_free(struct sched *sched)
{
    if (sched == NULL)
        return;
    ASSERT(!sched->is_stepping);
    list_for_each_safe (at, next, &sched->all) {
        struct seq *seq = container_of(at, struct seq, in_all);

        seq_give_back(sched, seq);
        seq_free(sched, seq);
    }
    draft_model_close(sched);
    fair_free(sched->fair);
    free(sched->line);
    free(sched->state_hashes);
    free(sched->windows.hashes);
    free(sched->windows.ids);
    free(sched->scores);
    free(sched->results);
    free(sched->items);
    free(sched->plan.items);
    free(sched);
}

int sched_submit(struct sched *sched, const struct seq_spec *spec, struct seq **out)
{
    struct seq *seq;
    int code;

    if (!spec->arrives && !queue_takes(sched, spec))
        return E_OVERLOADED;
    code = seq_new(sched, spec, &seq);
    if (code < 0)
        return code;
    seq->order = sched->n_submitted++;
    seq->submitted_ns = sched_now_ns(sched);

    if (spec->arrives) {
        code = handoff_admit(sched, seq);
        if (code < 0) {
            seq_free(sched, seq);
            return code;
        }
    } else {
        uint32_t n_most = seq->score_next > 0 ? seq_n_matchable(sched, seq) : seq->n_hashes;

        seq->n_cached_estimate = recurrent_peek(sched, seq, n_most) * sched->block_tokens;
        queue_wait(sched, seq);
    }
    list_push_back(&sched->all, &seq->in_all);
    *out = seq;
    return 0;
}

void sched_cancel(struct sched *sched, struct seq *seq)
{
    if (seq->state == SEQ_DONE)
        return;
    if (seq->is_busy)
        seq->is_cancelled = true;
    else
        seq_end(sched, seq, SEQ_FINISH_CANCELLED);
}

static void relay_layer(void *arg, uint32_t layer)
{
    struct sched *sched = arg;

    EVENT(sched, on_layer, layer);
}

/* Selects the item's tokens to score: prompt tokens not scored yet whose preceding token is fed. */
static void ask_scores(const struct seq *seq, struct engine_item *item, struct sample_result *scores)
{
    uint32_t end = item->position + item->n_tokens + 1 - item->wants_token;
    uint32_t to = end < seq->spec.n_prompt ? end : seq->spec.n_prompt;

    if (seq->score_next == 0 || seq->score_next <= item->position || seq->score_next >= to)
        return;
    item->scores = scores;
    item->score_at = seq->score_next - 1 - item->position;
    item->n_scores = to - seq->score_next;
}

/* Hands the plan to the engine. */
static int run_plan(struct sched *sched)
{
    const struct plan *plan = &sched->plan;
    uint32_t n_scores = 0;
    bool is_watched = sched->opts.events.on_layer != NULL;
    struct engine_batch batch = {.items = sched->items,
                                 .n_items = plan->n_items,
                                 .on_layer = is_watched ? relay_layer : NULL,
                                 .on_layer_arg = sched,
                                 .is_given_up = sched->opts.is_given_up};

    for (uint32_t i = 0; i < plan->n_items; i++) {
        struct seq *seq = plan->items[i].seq;
        uint32_t n_tokens = plan->items[i].n_tokens, n_drafts = plan->items[i].n_drafts;

        seq->is_busy = true;
        sched->items[i] = (struct engine_item){
            .tokens = seq->tokens + seq->n_computed,
            .n_tokens = n_tokens,
            .position = seq->n_computed,
            .blocks = seq->blocks,
            .n_blocks = seq->n_blocks,
            .wants_token = seq->n_computed + n_tokens - n_drafts == seq->spec.n_tokens && seq->n_left > 0,
            .n_drafts = n_drafts,
            .sample = seq->spec.work.sample,
            .state = seq->past,
            .tokens_left = seq->n_left,
            .embedding = seq->embedding,
            .tag = seq->spec.id,
        };
        recurrent_plan(sched, seq, &sched->items[i]);
        windows_plan(seq, &sched->items[i]);
        ask_scores(seq, &sched->items[i], sched->scores + n_scores);
        n_scores += sched->items[i].n_scores;
        draft_ask_rows(sched, i);
    }
    return engine_step(sched->opts.engine, &batch, sched->results);
}

/* Charges, counts and learns from the step, before its results change the sequences. */
static void book_step(struct sched *sched, const struct load_clock *began)
{
    const struct plan *plan = &sched->plan;
    const struct sample_result *results = sched->results;
    uint32_t n_accepted = 0;

    for (uint32_t i = 0; i < plan->n_items; i++) {
        uint32_t n_right = draft_accepted(&plan->items[i], results);

        queue_charge(sched, &plan->items[i], n_right);
        draft_count(sched, &plan->items[i], n_right);
        n_accepted += n_right;
        results += 1 + plan->items[i].n_drafts;
    }
    sched->n_steps++;
    sched->n_draft_steps += plan->n_drafts > 0;
    load_observe(sched, plan, n_accepted, began);
    draft_book(sched, plan, n_accepted);
}

int sched_run_step(struct sched *sched)
{
    int code = 0;

    ASSERT(!sched->is_stepping);
    sched->is_stepping = true;
    kv_expire(sched->opts.pool);
    queue_push_out(sched);
    queue_admit(sched);
    preempt_make_room(sched);
    windows_ahead(sched);
    draft_propose(sched);
    plan_make(sched, &sched->plan);
    if (sched->plan.n_items > 0) {
        struct load_clock began = load_clock(sched);

        code = run_plan(sched);
        if (code < 0) {
            apply_failure(sched);
        } else {
            code = (int)(sched->plan.n_decode + sched->plan.n_prefill_tokens);
            draft_read_prompts(sched);
            book_step(sched, &began);
            apply_results(sched, sched->results);
        }
        sched->plan.n_items = 0;
    }
    sched->is_stepping = false;
    return code;
}

bool sched_has_work(const struct sched *sched)
{
    return sched->n_waiting > 0 || queue_n_active(sched) > 0;
}

bool sched_step_item(const struct sched *sched, uint32_t index, struct seq **seq_out, uint32_t *from_out,
                     uint32_t *to_out)
{
    if (index >= sched->plan.n_items)
        return false;

    const struct plan_item *item = &sched->plan.items[index];
    *seq_out = item->seq;
    *from_out = item->seq->n_computed;
    *to_out = item->seq->n_computed + item->n_tokens - item->n_drafts;
    return true;
}

struct seq *sched_next(const struct sched *sched, const struct seq *after)
{
    struct list *at = after ? after->in_all.next : sched->all.next;

    return at == &sched->all ? NULL : container_of(at, struct seq, in_all);
}
