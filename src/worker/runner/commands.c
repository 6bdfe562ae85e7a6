/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the engine thread's commands: all kinds in order between steps, grants also within a step.
 *
 *    mailbox --> [ kept ] --> run            between steps: all commands
 *       |           ^
 *       +-- layer --+--> GRANT               within a step: only senders get it at once
 *
 * A hand-off's OFFER is sent when its prompt is admitted, so the GRANT arrives during the prompt's first
 * step. Reading it within the step lets the push overlap with the computation, even if the prompt takes one
 * step only. A grant may overtake other commands: it only begins a push, and a later cancel or lost link
 * still ends the push. Peers' block events are also taken within a step.  They go to the peer map's own queue
 * in order (peer_map.c), so they use no room here.
 * How to change it: docs/changes-worker.md, "An order to the engine thread". */
#include "worker/runner/engine_thread_priv.h"

#include <stdlib.h>

#include "cache/kv/pool_cache.h"
#include "worker/runner/block_map_priv.h"
#include "worker/runner/disk_priv.h"
#include "worker/runner/remote_priv.h"
#include "worker/runner/transfers_priv.h"

static void command_peer(struct worker_engine *engine, struct command *command, bool is_up)
{
    if (command->number >= WORKER_MAX_PEERS)
        return;
    engine->peer_is_up[command->number] = is_up;
    if (is_up)
        engine->peers[command->number] = command->as.facts;
    worker_transfers_peer(engine, command->number, is_up);
}

static void command_run(struct worker_engine *engine, struct command *command)
{
    thread_owner_check(&engine->engine_thread);
    switch (command->kind) {
    case COMMAND_SUBMIT:
        if (command->as.submit.notice > engine->notice)
            engine->notice = command->as.submit.notice;
        worker_tasks_submit(engine, &command->as.submit);
        break;
    case COMMAND_CANCEL:
        worker_tasks_cancel(engine, &command->key);
        break;
    case COMMAND_PROCEED:
        worker_tasks_proceed(engine, command->number, &command->key);
        break;
    case COMMAND_ROUTER_DOWN:
        worker_tasks_router_down(engine, command->number, command->key.router_epoch);
        break;
    case COMMAND_PEER_UP:
        command_peer(engine, command, true);
        break;
    case COMMAND_PEER_DOWN:
        command_peer(engine, command, false);
        break;
    case COMMAND_PEER_MESSAGE:
        worker_transfers_message(engine, command->number, &command->as.peer);
        break;
    case COMMAND_PEER_BLOCKS:
        worker_map_add(engine, command->as.blocks);
        command->as.blocks = NULL;
        break;
    case COMMAND_PEER_LOAD:
        worker_map_load(engine, command->number, &command->as.peer_load);
        break;
    case COMMAND_TRANSPORT:
        worker_transfers_event(engine, &command->as.transport);
        break;
    case COMMAND_GRAMMAR:
        worker_grammars_compiled(engine, &command->as.compiled);
        break;
    case COMMAND_BLOCKS_WANTED:
        worker_publish_all(engine, command->number, command->as.max_on_disk);
        worker_remote_publish_all(engine, command->number, command->max_in_store);
        break;
    case COMMAND_BLOCKS_LAST:
        for (uint32_t i = 0; i < command->as.last.n; i++)
            kv_clear_replicated(engine->pool, &command->as.last.hashes[i]);
        break;
    case COMMAND_DRAIN:
        engine->is_draining = command->flag;
        worker_remote_drain(engine, command->flag);
        break;
    case COMMAND_MOVE:
        worker_tasks_move(engine);
        break;
    case COMMAND_STOP:
        engine->is_stopping = true;
        break;
    }
    command_free(command);
}

struct command *worker_commands_take(struct worker_engine *engine)
{
    if (engine->kept_from < engine->n_kept)
        return engine->kept[engine->kept_from++];
    engine->kept_from = engine->n_kept = 0;
    return mailbox_receive(engine->commands);
}

bool worker_commands_wait(const struct worker_engine *engine)
{
    return engine->kept_from < engine->n_kept;
}

void worker_commands_run(struct worker_engine *engine)
{
    struct command *command;

    mailbox_drain_fd(engine->commands);
    while ((command = worker_commands_take(engine)) != NULL)
        command_run(engine, command);
}

void worker_commands_in_step(struct worker_engine *engine)
{
    struct command *command;

    while (engine->n_kept < WORKER_MAX_KEPT && (command = mailbox_receive(engine->commands)) != NULL) {
        if ((command->kind == COMMAND_PEER_MESSAGE && command->as.peer.kind == KVXFER_GRANT) ||
            command->kind == COMMAND_PEER_BLOCKS || command->kind == COMMAND_PEER_LOAD)
            command_run(engine, command);
        else
            engine->kept[engine->n_kept++] = command;
    }
}
