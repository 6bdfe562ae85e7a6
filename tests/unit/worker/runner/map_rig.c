/* SPDX-License-Identifier: Apache-2.0 */
/* The caller acts as the engine thread, which receives everything at once.  It has no disk, and reads a token
 * in a millisecond. */
#include "tests/unit/worker/runner/map_rig.h"

#include "worker/runner/disk_priv.h"
#include "worker/runner/block_map_priv.h"
#include "worker/loop/worker_priv.h"

uint32_t map_rig_snapshots;

int worker_engine_send(struct worker_engine *to, struct command *command)
{
    if (command->kind == COMMAND_PEER_LOAD)
        worker_map_load(to, command->number, &command->as.peer_load);
    else
        map_rig_snapshots += command->kind == COMMAND_BLOCKS_WANTED;
    command_free(command);
    return 0;
}

const struct peer_facts *worker_engine_peer(const struct worker_engine *of, uint32_t peer)
{
    return of->peer_is_up[peer] ? &of->peers[peer] : NULL;
}

void sched_load(const struct sched *sched, struct sched_load *out)
{
    *out = (struct sched_load){.prefill_tokens_per_s = 1000};
}

uint32_t worker_disk_peek(const struct worker_engine *of, const struct block_hash *list, uint32_t n)
{
    return 0;
}

double worker_disk_rate(const struct worker_engine *of)
{
    return 0;
}

struct remote_hope map_rig_hope;

struct remote_hope worker_remote_hope(const struct worker_engine *of, const struct block_hash *list,
                                      uint32_t n)
{
    struct remote_hope hope = map_rig_hope;

    hope.n_blocks = hope.n_blocks < n ? hope.n_blocks : n;
    return hope;
}
