/* SPDX-License-Identifier: Apache-2.0 */
/* The KV of an MTP head at a hand-off. Hot path: no allocation, no system call.
 *
 *     prefill worker   text   t0 t1 ... t8         -> t9           t9: the first token
 *                      rows   h0 h1 ... h7            h8
 *                      head   t1 ... t8, read with h0 ... h7
 *     sent             the KV of t1 ... t8, and h8
 *     decode worker    head   its next token is t9, with h8: the same as on one worker
 *
 * The prefill worker reads the prompt, because it has the rows and is bound by arithmetic anyway. The KV of one layer
 * is smaller than the rows, and the decode worker computes nothing for it.
 *
 * Only the decode worker knows what its head saves. It states the time that reading a prompt is worth to it
 * (sched_head_worth_s), and the prefill worker compares that with its own cost (sched_head_depart).
 *
 * KV of the head changes no token, only the number of draft tokens that are right. So everything here may fail: the
 * head then begins at the answer's first token. */
#include "compute/sched/head.h"

#include <math.h>

#include "base/err.h"
#include "compute/sched/sched_priv.h"

static bool head_is_here(const struct sched *sched, const struct seq *seq)
{
    return sched->draft_model.engine != NULL && seq->draft.kv.blocks != NULL && seq->draft.kv.rows != NULL;
}

double sched_head_worth_s(const struct sched *sched, const struct seq *seq)
{
    if (!head_is_here(sched, seq))
        return 0;
    return sched->opts.speculate == SPECULATE_ALWAYS ? HUGE_VAL : draft_worth_s(sched, seq);
}

uint32_t sched_head_depart(struct sched *sched, struct seq *seq, double worth_s)
{
    uint32_t first = seq->n_computed + 1;

    if (!head_is_here(sched, seq) || sched->draft_model.prompt_rows == NULL || !seq->spec.departs ||
        seq->state != SEQ_PREFILL || seq->n_left <= 1 || first >= seq->spec.n_tokens ||
        !draft_has_room(sched, seq))
        return 0;
    if (sched->opts.speculate != SPECULATE_ALWAYS && (worth_s <= 0 || draft_read_s(sched, seq) > worth_s))
        return 0;
    seq->draft.kv.departs = true;
    return first;
}

bool sched_head(const struct sched *sched, const struct seq *seq, struct sched_head *out)
{
    const struct draft_kv *kv = &seq->draft.kv;

    if (!head_is_here(sched, seq) || kv->n_computed == 0)
        return false;
    *out = (struct sched_head){.first = kv->first, .n_tokens = kv->n_computed, .blocks = kv->blocks};
    if (kv->n_rows > 0)
        out->row = kv->rows + (size_t)(kv->n_rows - 1) * sched->opts.draft_engine->info.hidden;
    return true;
}

void sched_head_departed(struct sched *sched, struct seq *seq)
{
    draft_kv_give_back(sched, seq);
    seq->draft.kv.departs = false;
    seq->draft.kv.n_rows = 0;
}

int sched_head_arrive(struct sched *sched, struct seq *seq, uint32_t first, struct sched_head *out)
{
    struct draft_kv *kv = &seq->draft.kv;

    if (seq->state != SEQ_ARRIVING || first == 0 || first >= seq->spec.n_tokens)
        return E_INVAL;
    if (!head_is_here(sched, seq))
        return E_UNSUPPORTED;
    if (!draft_has_room(sched, seq) || !draft_kv_take(sched, seq, seq->spec.n_tokens - first))
        return E_KV_FULL;
    kv->first = first;
    kv->n_computed = seq->spec.n_tokens - first;
    kv->n_rows = 1;
    *out = (struct sched_head){
        .first = first, .n_tokens = kv->n_computed, .blocks = kv->blocks, .row = kv->rows};
    return 0;
}
