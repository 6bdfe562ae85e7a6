/* SPDX-License-Identifier: Apache-2.0 */
/* The chain of block hashes of a task's tokens, computed once and lent to all readers.
 *
 *    prefix_fetch.c   which blocks do the pool and the peers have?  --+
 *    disk.c           which of them are on disk?                    --+--> task.chain, at the first call
 *    compute/sched    the sequence copies it (seq_spec.hashes)      --+
 *
 * If neither prefix fetch nor disk tier needs it, the chain stays empty, and the sequence computes the hashes
 * itself. The task frees the chain with its tokens. */
#include <stdlib.h>
#include <string.h>

#include "worker/runner/engine_thread_priv.h"

int worker_chain_begin(const struct worker_engine *engine, struct task *task)
{
    const struct work_order *order = &task->spec.order;
    int rc;

    if (task->chain.tokens != NULL)
        return 0;
    rc = prefix_roots_derive(engine->opts.prefix_key, engine->opts.model_fingerprint, order->work.tenant,
                             order->work.public_tokens, &task->roots);
    if (rc == 0)
        task->chain = (struct prefix_chain){.tokens = order->tokens,
                                            .block_tokens = engine->opts.engine.info.layout.block_tokens};
    return rc;
}

uint32_t worker_chain_hash(const struct worker_engine *engine, struct task *task)
{
    uint32_t n_tokens = task->spec.order.n_tokens, n;

    if (n_tokens == 0 || worker_chain_begin(engine, task) < 0)
        return 0;
    n = n_tokens / task->chain.block_tokens;
    if (task->chain.hashes == NULL)
        task->chain.hashes = calloc(n + (size_t)1, sizeof(*task->chain.hashes));
    if (task->chain.hashes == NULL)
        return 0;
    prefix_roots_extend(&task->roots, &task->chain, n);
    return (n_tokens - 1) / task->chain.block_tokens;
}

void worker_chain_free(struct task *task)
{
    free(task->chain.hashes);
    task->chain = (struct prefix_chain){0};
    explicit_bzero(&task->roots, sizeof(task->roots));
}
