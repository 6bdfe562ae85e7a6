/* SPDX-License-Identifier: Apache-2.0 */
/* Applies a step's results to the sequences.  Only this file advances a sequence.
 *
 * For each item of the step, in plan order: count the fed tokens, seal full blocks, then call events and set
 * the next state.
 *
 *     fed some          on_prefilled, on_prompt_logprobs                            still PREFILL
 *     fed all           on_prefilled, on_prompt_logprobs, then the sampled token:
 *       a stop id, or no token and the grammar is complete                 on_done(STOP)
 *       no token, and the grammar is incomplete                            on_done(CONSTRAINT)
 *       no token, because the logits are not finite                        on_done(SPOILT)
 *       a token         on_token, then   no tokens left to sample          on_done(LENGTH)
 *                                        no room for another               on_done(CONTEXT)
 *                                        departs                           HELD, on_held
 *                                        else                              DECODE
 *
 * Accepted draft tokens are applied one after another, each like the step that it saved. Rejected draft
 * tokens are not counted: their KV lies beyond n_computed, where the next step overwrites it.
 *
 * An event may do anything to its sequence while the code below still uses that sequence. So the sequence is
 * busy until its last event. A cancel then only sets a flag, which is checked after each event. on_held and
 * on_done come last; no code after them touches the sequence. */
#include "base/check.h"
#include "cache/kv/pool_cache.h"
#include "compute/sched/sched_priv.h"

void seq_end(struct sched *sched, struct seq *seq, enum seq_finish finish)
{
    uint64_t now_ns = sched_now_ns(sched);

    ASSERT(!seq->is_busy && seq->state != SEQ_DONE);
    if (seq->state == SEQ_WAITING)
        sched->n_waiting--;
    else
        sched->n_running--;
    if (seq->state == SEQ_HELD)
        seq_unhold(sched, seq);
    if (seq->spec.n_tokens > seq->n_submitted_tokens)
        seq->stats.decode_ns = now_ns - seq->first_token_ns - seq->held_ns;
    seq->state = SEQ_DONE;
    list_remove(&seq->in_running);
    queue_got(sched, seq);
    list_remove(&seq->in_all);
    seq_give_back(sched, seq);
    EVENT(sched, on_done, seq, finish);
    seq_free(sched, seq);
}

static void apply_hold(struct sched *sched, struct seq *seq)
{
    seq->state = SEQ_HELD;
    queue_got(sched, seq);
    seq->held_since_ns = sched_now_ns(sched);
    seq->is_busy = false;
    EVENT(sched, on_held, seq);
}

/* Removes a sequence's blocks from the prefix cache, because their KV may be damaged. */
static void forget_blocks(struct sched *sched, struct seq *seq)
{
    for (uint32_t block = 0; block < seq->n_sealed; block++)
        kv_forget(sched->opts.pool, seq->blocks[block]);
    recurrent_give_back(sched, seq);
    recurrent_forget(sched, seq);
    windows_forget(sched, seq);
}

static void end_spoilt(struct sched *sched, struct seq *seq)
{
    forget_blocks(sched, seq);
    seq->is_busy = false;
    seq_end(sched, seq, seq->is_cancelled ? SEQ_FINISH_CANCELLED : SEQ_FINISH_SPOILT);
}

/* Appends a sampled token.  SEQ_FINISH_NONE: the answer continues. */
static enum seq_finish take_token(struct seq *seq, token_id id)
{
    if (seq_is_stop(seq, id) || (id == TOKEN_NONE && sample_state_is_complete(seq->past)))
        return SEQ_FINISH_STOP;
    if (id == TOKEN_NONE || sample_state_push(seq->past, id) < 0)
        return SEQ_FINISH_CONSTRAINT;
    sample_state_commit(seq->past);
    return SEQ_FINISH_NONE;
}

bool apply_token(struct sched *sched, struct seq *seq, const struct sample_result *token, bool is_reported)
{
    enum seq_finish finish = take_token(seq, token->id);

    if (finish != SEQ_FINISH_NONE) {
        if (seq->score_next > 0 && finish == SEQ_FINISH_STOP && token->id != TOKEN_NONE)
            EVENT(sched, on_prompt_logprobs, seq, seq->spec.n_tokens, token, 1);
        seq->is_busy = false;
        seq_end(sched, seq, seq->is_cancelled ? SEQ_FINISH_CANCELLED : finish);
        return false;
    }

    ASSERT(seq->spec.n_tokens < seq->cap_tokens && seq->n_left > 0);
    if (seq->spec.n_tokens == seq->n_submitted_tokens)
        seq->first_token_ns = sched_now_ns(sched);
    seq->state = SEQ_DECODE;
    queue_got(sched, seq);
    seq->tokens[seq->spec.n_tokens++] = token->id;
    seq->n_left--;
    if (is_reported)
        EVENT(sched, on_token, seq, token);

    if (!seq->is_cancelled && seq->n_left > 0 && seq->spec.n_tokens < sched->context_tokens &&
        seq->spec.departs) {
        apply_hold(sched, seq);
        return false;
    }
    seq->is_busy = false;
    if (seq->is_cancelled)
        seq_end(sched, seq, SEQ_FINISH_CANCELLED);
    else if (seq->n_left == 0)
        seq_end(sched, seq, SEQ_FINISH_LENGTH);
    else if (seq->spec.n_tokens == sched->context_tokens)
        seq_end(sched, seq, SEQ_FINISH_CONTEXT);
    else
        return true;
    return false;
}

/* Ends a sequence whose tokens all have KV and that wants no token: the caller wanted only the KV. */
static void end_prefill_only(struct sched *sched, struct seq *seq)
{
    if (seq->spec.departs) {
        apply_hold(sched, seq);
        return;
    }
    seq->is_busy = false;
    seq_end(sched, seq, SEQ_FINISH_LENGTH);
}

/* Applies the sampled token, and one more for each accepted draft token, as if each had had its own step. */
static void apply_drawn(struct sched *sched, uint32_t index, const struct sample_result *results)
{
    const struct plan_item *item = &sched->plan.items[index];
    struct seq *seq = item->seq;
    uint32_t n_accepted = draft_accepted(item, results);

    if (!seq->draft.kv.departs) /* else it is kept already */
        draft_keep_rows(sched, index, 1 + n_accepted);
    if (item->n_drafts > 0)
        draft_learn(sched, seq, item->n_drafts, n_accepted);
    for (uint32_t i = 0; i <= n_accepted; i++) {
        if (i > 0) {
            seq->is_busy = true;
            if (sched->n_state_blocks == 0) { /* else the state stays before the draft tokens */
                seq_advance(seq, seq->n_computed + 1);
                seq_seal(sched, seq);
            }
            seq->stats.n_accepted++;
        }
        seq->stats.n_drawn += results[i].id != TOKEN_NONE;
        if (results[i].is_spoilt) {
            end_spoilt(sched, seq);
            return;
        }
        if (!apply_token(sched, seq, &results[i], true))
            return;
    }
}

static bool is_spoilt(const struct engine_item *item)
{
    for (uint32_t i = 0; i < item->n_scores; i++)
        if (item->scores[i].is_spoilt)
            return true;
    return false;
}

/* Reports the prompt logprobs of the step. */
static void seq_report_scores(struct sched *sched, struct seq *seq, const struct engine_item *item)
{
    uint32_t from = seq->score_next;

    if (item->n_scores == 0 || seq->is_cancelled)
        return;
    seq->score_next += item->n_scores;
    EVENT(sched, on_prompt_logprobs, seq, from, item->scores, item->n_scores);
}

static void apply_item(struct sched *sched, uint32_t index, const struct sample_result *results)
{
    const struct plan_item *item = &sched->plan.items[index];
    struct seq *seq = item->seq;
    uint32_t from = seq->n_computed, to = from + item->n_tokens - item->n_drafts;

    seq->draft.n = 0;
    seq_advance(seq, to);
    seq_seal(sched, seq);
    recurrent_seal(sched, seq);
    if (seq->state == SEQ_PREFILL && !seq->is_cancelled) {
        if (to == seq->n_submitted_tokens && to == seq->spec.n_tokens)
            seq->stats.prefill_ns = sched_now_ns(sched) - seq->admitted_ns - seq->stats.transfer_ns;
        EVENT(sched, on_prefilled, seq, from, to);
    }
    if (is_spoilt(&sched->items[index])) {
        end_spoilt(sched, seq);
        return;
    }
    seq_report_scores(sched, seq, &sched->items[index]);

    if (seq->is_cancelled) {
        seq->is_busy = false;
        seq_end(sched, seq, SEQ_FINISH_CANCELLED);
    } else if (to < seq->spec.n_tokens) {
        seq->is_busy = false;
    } else if (seq->n_left == 0) {
        end_prefill_only(sched, seq);
    } else {
        apply_drawn(sched, index, results);
    }
}

void apply_results(struct sched *sched, const struct sample_result *results)
{
    for (uint32_t i = 0; i < sched->plan.n_items; i++) {
        uint32_t n_results = 1 + sched->plan.items[i].n_drafts;

        apply_item(sched, i, results);
        results += n_results;
    }
}

/* Ends the sequences of a step that failed. */
void apply_failure(struct sched *sched)
{
    for (uint32_t i = 0; i < sched->plan.n_items; i++) {
        struct seq *seq = sched->plan.items[i].seq;

        forget_blocks(sched, seq);
        seq->is_busy = false;
        seq_end(sched, seq, seq->is_cancelled ? SEQ_FINISH_CANCELLED : SEQ_FINISH_FAILED);
    }
}
