/* SPDX-License-Identifier: Apache-2.0 */
/* The scheduler's events of tasks become answers, and a task ends with its sequence.  Each step sends one list of
 * answers per router to the loop.  A sequence without a task is a warm-up or a probe. */
#include "worker/runner/transfers_priv.h"

#include <string.h>

#include "base/err.h"

#define SCORES_PER_ANSWER 512u

static void task_put_serving(const struct task *task, struct task_answer *answer)
{
    answer->has_serving = true;
    if (answer->finish != BATON__FINISH__FINISH_NONE)
        worker_task_put_times(task, answer);
    answer->stats = *seq_stats(task->seq);
    answer->figures = task->figures;
}

static void task_on_admitted(void *arg, struct seq *seq)
{
    struct worker_engine *engine = arg;
    struct task *task = worker_engine_task_of(seq);
    struct task_answer *answer;

    if (task == NULL)
        return;
    worker_task_note(&task->times.admitted_ns);
    answer = worker_tasks_answer(engine, &task->spec, NULL, 0);
    if (answer != NULL) {
        answer->is_accepted = true;
        answer->cached_tokens = seq_stats(seq)->n_reused + seq_stats(seq)->n_transferred;
    }
    if (task->spec.mode == TASK_PREFILL)
        worker_kv_send_begin(engine, task);
}

static void task_on_token(void *arg, struct seq *seq, const struct sample_result *token)
{
    struct worker_engine *engine = arg;
    struct task *task = worker_engine_task_of(seq);
    struct task_answer *answer;

    if (task == NULL)
        return;
    answer = worker_tasks_answer(engine, &task->spec, &token->id, 1);
    if (answer != NULL) {
        if (task->spec.order.work.sample.wants_logprob)
            worker_engine_draws(engine, task->spec.origin, token);
        if (seq_embedding(seq) != NULL)
            worker_engine_embedding(engine, task->spec.origin, seq_embedding(seq));
        answer->first_index = task->n_answered;
        if (task->state == TASK_SCHEDULED) {
            task->seq = seq;
            task_put_serving(task, answer);
        }
    }
    task->n_answered++;
    if (task->state == TASK_ANSWERING)
        return;
    worker_task_note(&task->times.first_ns);
    worker_tasks_set_state(engine, task, TASK_ANSWERING);
    if (task->spec.mode == TASK_PREFILL)
        worker_kv_send_first(task, token, false);
}

/* Reports logprobs in pieces that fit a frame, for chunks of any size. */
static void task_on_prompt_logprobs(void *arg, struct seq *seq, uint32_t from,
                                    const struct sample_result *scores, uint32_t n)
{
    struct worker_engine *engine = arg;
    struct task *task = worker_engine_task_of(seq);
    token_id ids[SCORES_PER_ANSWER];

    if (task == NULL)
        return;
    for (uint32_t at = 0, n_part; at < n; at += n_part) {
        struct task_answer *answer;

        n_part = n - at < SCORES_PER_ANSWER ? n - at : SCORES_PER_ANSWER;
        for (uint32_t i = 0; i < n_part; i++)
            ids[i] = scores[at + i].id;
        answer = worker_tasks_answer(engine, &task->spec, ids, n_part);
        if (answer == NULL)
            return;
        answer->is_prompt_logprobs = true;
        answer->first_index = from + at;
        worker_engine_draws(engine, task->spec.origin, scores + at);
    }
}

static void task_on_prefilled(void *arg, struct seq *seq, uint32_t from, uint32_t to)
{
    struct task *task = worker_engine_task_of(seq);

    if (task != NULL && task->spec.mode == TASK_PREFILL)
        worker_kv_send_prefilled(task, to);
}

static void task_on_layer(void *arg, uint32_t layer)
{
    struct worker_engine *engine = arg;

    atomic_fetch_add_explicit(&engine->beats, 1, memory_order_relaxed);
    worker_commands_in_step(engine);
    worker_kv_send_layer(engine, layer);
}

static Baton__Finish task_finish_of(enum seq_finish finish)
{
    switch (finish) {
    case SEQ_FINISH_STOP:
        return BATON__FINISH__FINISH_STOP;
    case SEQ_FINISH_LENGTH:
        return BATON__FINISH__FINISH_LENGTH;
    case SEQ_FINISH_CONTEXT:
        return BATON__FINISH__FINISH_CONTEXT;
    case SEQ_FINISH_DEPARTED:
        return BATON__FINISH__FINISH_HANDED_OFF;
    case SEQ_FINISH_FAILED:
    case SEQ_FINISH_CONSTRAINT:
    case SEQ_FINISH_SPOILT:
    case SEQ_FINISH_CROWDED:
        return BATON__FINISH__FINISH_FAILED;
    case SEQ_FINISH_NONE:
    case SEQ_FINISH_CANCELLED:
        break;
    }
    return BATON__FINISH__FINISH_NONE;
}

static void task_count(struct worker_engine *engine, const struct seq_stats *stats)
{
    metric_add(engine->m_computed, stats->n_computed);
    metric_add(engine->m_reused, stats->n_reused);
    metric_add(engine->m_transferred, stats->n_transferred);
    metric_add(engine->m_drawn, stats->n_drawn);
    metric_add(engine->m_preempted, stats->n_preempted);
}

static void task_on_done(void *arg, struct seq *seq, enum seq_finish finish)
{
    struct worker_engine *engine = arg;
    struct task *task = worker_engine_task_of(seq);
    struct task_answer *answer;

    if (task == NULL) { /* a warm-up or a probe */
        worker_health_probed(engine, finish);
        return;
    }
    if (finish == SEQ_FINISH_SPOILT || seq_stats(seq)->n_drawn > 0)
        worker_health_note(engine, task->spec.order.work.request_id, finish == SEQ_FINISH_SPOILT);
    task->seq = seq;
    task->stats = *seq_stats(seq);
    task->times.is_failed |= task_finish_of(finish) == BATON__FINISH__FINISH_FAILED;
    task_count(engine, &task->stats);
    if (task_finish_of(finish) != BATON__FINISH__FINISH_NONE) {
        answer = worker_tasks_answer(engine, &task->spec, NULL, 0);
        if (answer != NULL) {
            answer->finish = task_finish_of(finish);
            answer->error = finish == SEQ_FINISH_FAILED    ? E_INTERNAL
                            : finish == SEQ_FINISH_CROWDED ? E_OVERLOADED
                                                           : 0;
            if (finish == SEQ_FINISH_CONSTRAINT) {
                answer->error = E_CONSTRAINT;
                answer->error_text = strdup("no token is left that the answer's constraint allows");
            } else if (finish == SEQ_FINISH_SPOILT) {
                answer->error = E_NUMERICS;
                answer->error_text = strdup(WORKER_SPOILT_TEXT);
            }
            task_put_serving(task, answer);
        }
    }
    worker_kv_send_end(task);
    worker_kv_receive_end(task);
    worker_tasks_free(engine, task);
}

struct sched_events worker_task_events(void)
{
    return (struct sched_events){.on_admitted = task_on_admitted,
                                 .on_token = task_on_token,
                                 .on_prefilled = task_on_prefilled,
                                 .on_prompt_logprobs = task_on_prompt_logprobs,
                                 .on_layer = task_on_layer,
                                 .on_done = task_on_done};
}
