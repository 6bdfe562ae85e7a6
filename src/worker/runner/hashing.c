/* SPDX-License-Identifier: Apache-2.0 */
/* Long prompts are hashed in slices, so that running sequences do not wait for a whole prompt.
 *
 *     SUBMIT --> [ first | ... | last ] --hashed--> worker_tasks_hashed()
 *                   ^             ^
 *                   |             +-- back to the end after a slice
 *                   +-- one slice between two steps
 *
 * Tasks take turns, so a shorter prompt passes a longer one. The number of waiting tasks is limited to that of the
 * scheduler's queue. A prompt of one slice or less is not hashed here. Without memory for the hashes the task
 * continues at once, and its sequence tries again. */
#include "base/err.h"
#include "worker/runner/engine_thread_priv.h"

#define HASHING_SLICE_TOKENS 65536u /* 0.3 ms with SHA instructions, 1.1 ms without */

int worker_hashing_begin(struct worker_engine *engine, struct task *task)
{
    if (task->spec.order.n_tokens <= HASHING_SLICE_TOKENS)
        return 0;
    if (engine->n_hashing >= engine->opts.max_queue)
        return E_OVERLOADED;
    list_push_back(&engine->hashing, &task->in_hashing);
    engine->n_hashing++;
    worker_tasks_set_state(engine, task, TASK_HASHING);
    return E_AGAIN;
}

void worker_hashing_leave(struct worker_engine *engine, struct task *task)
{
    if (list_is_empty(&task->in_hashing))
        return;
    list_remove(&task->in_hashing);
    engine->n_hashing--;
}

bool worker_hashing_turn(struct worker_engine *engine)
{
    struct task *task;

    if (list_is_empty(&engine->hashing))
        return false;
    task = container_of(list_pop_front(&engine->hashing), struct task, in_hashing);
    if (worker_chain_extend(engine, task, HASHING_SLICE_TOKENS)) {
        list_push_back(&engine->hashing, &task->in_hashing);
        return true;
    }
    engine->n_hashing--;
    worker_tasks_hashed(engine, task);
    return !list_is_empty(&engine->hashing);
}

void worker_hashing_load(const struct worker_engine *engine, struct sched_load *load)
{
    uint64_t n_tokens = 0;

    list_for_each (node, &engine->hashing) {
        const struct task *task = container_of(node, struct task, in_hashing);

        load->n_waiting++;
        if (task->spec.mode != TASK_DECODE)
            n_tokens += task->spec.order.n_tokens;
    }
    load->queued_prefill_tokens += n_tokens;
    if (load->prefill_tokens_per_s > 0)
        load->queued_prefill_s += (double)n_tokens / load->prefill_tokens_per_s;
}
