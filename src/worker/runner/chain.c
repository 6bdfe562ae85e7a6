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

bool worker_chain_extend(const struct worker_engine *engine, struct task *task, uint32_t n_tokens)
{
    uint32_t n_blocks, n_most;

    if (task->spec.order.n_tokens == 0 || worker_chain_begin(engine, task) < 0)
        return false;
    n_blocks = task->spec.order.n_tokens / task->chain.block_tokens;
    n_most = n_tokens / task->chain.block_tokens;
    if (task->chain.hashes == NULL)
        task->chain.hashes = calloc(n_blocks + (size_t)1, sizeof(*task->chain.hashes));
    if (task->chain.hashes == NULL)
        return false;
    if (n_most > n_blocks - task->chain.n)
        n_most = n_blocks - (uint32_t)task->chain.n;
    prefix_roots_extend(&task->roots, &task->chain, task->chain.n + n_most);
    return task->chain.n < n_blocks;
}

uint32_t worker_chain_hash(const struct worker_engine *engine, struct task *task)
{
    uint32_t n_tokens = task->spec.order.n_tokens;

    (void)worker_chain_extend(engine, task, n_tokens);
    return task->chain.hashes != NULL ? (n_tokens - 1) / task->chain.block_tokens : 0;
}

void worker_chain_free(struct task *task)
{
    free(task->chain.hashes);
    task->chain = (struct prefix_chain){0};
    explicit_bzero(&task->roots, sizeof(task->roots));
}
