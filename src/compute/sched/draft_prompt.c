/* SPDX-License-Identifier: Apache-2.0 */
/* An MTP head reads the prompt, so that its first draft tokens know the text. Hot path: no allocation, no system call.
 *
 *     step of the model    t0 t1 t2 t3 | t4 t5 t6 -> t7       two chunks of a prompt
 *     rows                 h0 h1 h2 h3 | h4 h5    h6          h6: kept for t7, as for all sampled tokens
 *     step of the head     t1 t2 t3 t4 | t5 t6                right after it, with the same rows
 *     its positions        0  1  2  3  | 4  5
 *
 * The model's step computes its last layer for all rows of the chunk then, not only for the last one, and the head
 * computes one layer more. Both are measured as a part of the step, so the budget of prompt tokens knows them.
 *
 * Only rows that this worker computes are there. After tokens from the prefix cache, or blocks of another worker, the
 * head begins with the first computed token. A prompt that will be handed off is read for the other worker's head
 * (draft_handoff.c).
 *
 * With SPECULATE_AUTO, reading has to pay: CONTEXT_SHARE of the time that the head's draft tokens are expected to save must
 * exceed the time of reading. While the head is unknown, it reads no prompt. */
#include <math.h>
#include <stdlib.h>

#include "base/err.h"
#include "compute/sched/sched_priv.h"

#define CONTEXT_SHARE 0.1   /* of the saved time: what the prompt is assumed to add */
#define READ_LAYERS   2     /* the head's, and the rest of the model's last one, which costs about as much */
#define ANSWER_MOST   128.0 /* tokens that an answer is expected to go on for, at most */

int draft_prompt_open(struct sched *sched)
{
    const struct engine_info *info = &sched->opts.engine->info;

    if (!sched->opts.draft_engine->info.is_mtp)
        return 0;
    sched->draft_model.prompt_rows = malloc((size_t)info->max_batch_tokens * info->hidden * sizeof(float));
    return sched->draft_model.prompt_rows != NULL ? 0 : E_NOMEM;
}

double draft_worth_s(const struct sched *sched, const struct seq *seq)
{
    struct cost_step decode = {.n_rows = 1, .n_pairs = seq->spec.n_tokens};
    double plain, faster;

    if (!sched->draft_model.is_known)
        return 0;
    plain = draft_rate(sched, &decode, 0, 0, false);
    faster = draft_rate(sched, &decode, draft_chance(sched, seq, KIND_MODEL), sched->opts.max_drafts, true);
    if (plain <= 0 || faster <= DRAFT_GAIN_MIN * plain)
        return 0;
    return CONTEXT_SHARE * fmin(seq->n_left, ANSWER_MOST) * (1 / plain - 1 / faster);
}

double draft_read_s(const struct sched *sched, const struct seq *seq)
{
    uint32_t n_left = seq->spec.n_tokens - seq->n_computed;
    struct cost_step read = {.n_prompt = n_left, .n_pairs = cost_pairs(seq->n_computed, n_left)};

    if (!cost_knows_prompts(&sched->draft_model.cost))
        return 0; /* the cost is learned by reading */
    return READ_LAYERS * cost_predict(&sched->draft_model.cost, &read);
}

static bool prompt_reading_pays(const struct sched *sched, const struct seq *seq)
{
    if (seq->draft.kv.departs || sched->opts.speculate == SPECULATE_ALWAYS)
        return true;
    return draft_worth_s(sched, seq) > draft_read_s(sched, seq);
}

bool draft_has_room(const struct sched *sched, const struct seq *seq)
{
    uint32_t n_blocks = draft_blocks_for(sched, seq->spec.n_tokens);

    return seq->spec.n_tokens <= sched->draft_model.engine->info.context_length &&
           seq->draft.kv.n_blocks + sched->draft_model.n_free >= n_blocks + sched->n_running;
}

/* Tokens of the item whose rows the head reads. */
static uint32_t prompt_rows_of(const struct engine_item *item)
{
    return item->n_tokens - (item->wants_token ? 1 + item->n_drafts : 0);
}

void draft_ask_rows(struct sched *sched, uint32_t index)
{
    const struct seq *seq = sched->plan.items[index].seq;
    struct draft_model *model = &sched->draft_model;
    struct engine_item *item = &sched->items[index];
    size_t n_before = 0;

    if (model->engine == NULL || model->prompt_rows == NULL || seq->draft.kv.blocks == NULL ||
        seq->state != SEQ_PREFILL || seq->spec.departs != seq->draft.kv.departs || seq->n_left <= 1 ||
        prompt_rows_of(item) == 0 || !draft_has_room(sched, seq) || !prompt_reading_pays(sched, seq))
        return;
    for (uint32_t i = 0; i < index; i++)
        n_before += sched->items[i].n_tokens;
    item->rows = model->prompt_rows + n_before * sched->opts.engine->info.hidden;
}

static void read_prompt_rows(struct sched *sched, struct seq *seq, const struct engine_item *fed)
{
    struct draft_kv *kv = &seq->draft.kv;
    uint32_t first = fed->position + 1, n_rows = prompt_rows_of(fed);
    uint32_t n_most = sched->opts.draft_engine->info.max_batch_tokens;
    struct sample_result result;

    if (kv->n_computed == 0 || kv->first + kv->n_computed != first) {
        kv->first = first;
        kv->n_computed = 0;
    }
    for (uint32_t done = 0, n; done < n_rows; done += n) {
        struct engine_item item = {.tokens = seq->tokens + first + done,
                                   .hidden = fed->rows + (size_t)done * sched->opts.engine->info.hidden,
                                   .position = kv->n_computed,
                                   .sampled_after = kv->first,
                                   .blocks = kv->blocks,
                                   .tag = seq->spec.id};

        item.n_tokens = n = n_rows - done < n_most ? n_rows - done : n_most;
        if (!draft_kv_take(sched, seq, kv->n_computed + n))
            return;
        item.n_blocks = kv->n_blocks;
        if (!draft_model_step(sched, &item, 1, &result))
            return;
        kv->n_computed += n;
    }
}

void draft_read_prompts(struct sched *sched)
{
    double before_s = sched->draft_model.step_s;

    for (uint32_t i = 0; i < sched->plan.n_items && sched->draft_model.engine != NULL; i++)
        if (sched->items[i].rows != NULL)
            read_prompt_rows(sched, sched->plan.items[i].seq, &sched->items[i]);
    for (uint32_t i = 0; i < sched->plan.n_items; i++) /* before on_prefilled, which packs the row too */
        if (sched->plan.items[i].seq->draft.kv.departs && sched->items[i].wants_token)
            draft_keep_rows(sched, i, 1);
    sched->draft_model.step_s = before_s; /* the clock of the model's step has counted it */
}
