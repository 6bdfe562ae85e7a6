/* SPDX-License-Identifier: Apache-2.0 */
/* Block events between peers, on the loop thread.
 *
 *    this worker                                         peer
 *    link up, peer has events - BLOCKS_WANTED --------->  sends a snapshot, then events (publish.c)
 *        engine thread's map <-- follower <-- BLOCK_EVENTS
 *
 * Numbers, gaps and snapshots work as for routers (cache/prefix/block_events.h): the follower answers a gap
 * with another BLOCKS_WANTED.  If the engine thread has no room for events, that counts as a gap too, but the
 * follower waits until its next request is due.  Two workers may have two links, one dialled from either
 * side; the follower uses only one of them.
 *
 * The map forgets a peer's blocks when its link goes down, because a restarted worker has none of them.
 *
 * Events never queue up for a peer that reads slowly. While LINK_BUSY_BYTES wait in its link, its events are
 * dropped, and the peer detects the gap in the numbers.  It receives at most one snapshot per SNAPSHOT_NS. */
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "proto/capabilities.h"
#include "worker/loop/worker_priv.h"

#define LOOK_NS         NS_PER_S
#define SNAPSHOT_NS     NS_PER_S
#define LINK_BUSY_BYTES (1u << 20)

static bool is_on(const struct worker *worker)
{
    return worker->conf_prefix_fetch != PICKER_FETCH_OFF;
}

static uint32_t worker_follow_number_of(const struct worker_peer *peer)
{
    return (uint32_t)(peer - peer->worker->peers);
}

/* ---- requests to peers ---- */

uint32_t worker_follow_count(const struct worker *worker)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < worker->n_peers; i++)
        n += worker->peers[i].follower.state != FOLLOWER_IDLE;
    return n;
}

/* Asks a peer for its blocks.
 * All peers' disks together may fill half of the map; more would evict other peers' blocks. */
static void worker_follow_ask(struct worker_peer *peer)
{
    uint32_t n = worker_follow_count(peer->worker), most = (uint32_t)(peer->worker->conf->peer_blocks / 2);
    Baton__BlocksWanted wanted = BATON__BLOCKS_WANTED__INIT;

    wanted.max_on_disk = n > 1 ? most / n : most;
    (void)link_send(peer->link, FRAME_BLOCKS_WANTED, &wanted.base);
}

/* True if another link to the same worker is followed. */
static bool is_followed(const struct worker_peer *peer)
{
    const struct worker *worker = peer->worker;

    for (uint32_t i = 0; i < worker->n_peers; i++)
        if (worker->peers[i].follower.state != FOLLOWER_IDLE &&
            strcmp(worker->peers[i].node, peer->node) == 0)
            return true;
    return false;
}

static void worker_follow_begin(struct worker_peer *peer)
{
    if (!peer->is_up || !peer->has_block_events || is_followed(peer))
        return;
    block_follower_begin(&peer->follower, clock_now_ns());
    worker_follow_ask(peer);
}

void worker_follow_up(struct worker *worker, struct worker_peer *peer)
{
    if (is_on(worker))
        worker_follow_begin(peer);
}

static bool worker_follow_pass(struct worker_peer *peer, const Baton__BlockEvents *events, bool is_anew)
{
    struct block_list *blocks = events != NULL
                                    ? block_list_new(worker_follow_number_of(peer), events->hashes.data,
                                                     events->tiers.data, (uint32_t)events->tiers.len)
                                    : block_list_new(worker_follow_number_of(peer), NULL, NULL, 0);

    if (blocks == NULL)
        return false;
    blocks->is_anew = is_anew;
    return worker_engine_send_peer_blocks(peer->worker->engine, blocks) == 0;
}

void worker_follow_down(struct worker *worker, struct worker_peer *peer)
{
    peer->wants_block_events = false;
    if (peer->follower.state == FOLLOWER_IDLE)
        return;
    block_follower_end(&peer->follower);
    /* If this message is lost, the slot's next peer begins anew.  A peer without a link is never asked. */
    if (!worker_follow_pass(peer, NULL, true))
        log_warn("peer_blocks_stay", LOG_STR("node", peer->node), LOG_STR("reason", "no room to say so"));
    for (uint32_t i = 0; i < worker->n_peers; i++)
        if (&worker->peers[i] != peer && worker->peers[i].link != NULL &&
            strcmp(worker->peers[i].node, peer->node) == 0)
            worker_follow_begin(&worker->peers[i]);
}

static void worker_follow_look(void *arg)
{
    struct worker *worker = arg;
    uint64_t now_ns = clock_now_ns();

    for (uint32_t i = 0; i < worker->n_peers; i++)
        if (block_follower_is_due(&worker->peers[i].follower, WORKER_MAP_LIFETIME_NS / 2, now_ns))
            worker_follow_ask(&worker->peers[i]);
}

/* ---- events from peers ---- */

static void worker_follow_missed(struct worker_peer *peer, const char *why)
{
    log_info("peer_block_events_missed", LOG_STR("node", peer->node), LOG_STR("reason", why));
    metric_add(peer->worker->m_peer_resyncs, 1);
}

void worker_follow_events(struct worker_peer *peer, const Baton__BlockEvents *events)
{
    struct block_part part = {.first_number = events->first_number,
                              .n_events = (uint32_t)events->tiers.len,
                              .is_snapshot = events->is_snapshot,
                              .is_last = events->is_last,
                              .part = events->part};
    uint64_t now_ns = clock_now_ns();
    enum block_follow what = block_follower_feed(&peer->follower, &part, now_ns);

    switch (what) {
    case FOLLOW_DROP:
        return;
    case FOLLOW_ASK:
        worker_follow_missed(peer, "a gap");
        worker_follow_ask(peer);
        return;
    case FOLLOW_REPLACE:
    case FOLLOW_APPLY:
        break;
    }
    if (worker_follow_pass(peer, events, what == FOLLOW_REPLACE))
        return;
    worker_follow_missed(peer, "too many at once");
    block_follower_begin(&peer->follower, now_ns);
}

void worker_follow_load(struct worker_peer *peer, const Baton__LoadReport *load)
{
    struct command *command;

    if (load == NULL || peer->follower.state == FOLLOWER_IDLE)
        return;
    command = command_new(COMMAND_PEER_LOAD, worker_follow_number_of(peer));
    if (command == NULL)
        return;
    command->as.peer_load = (struct peer_load){.n_running = load->running,
                                               .decode_step_s = load->decode_step_s,
                                               .read_bytes_per_s = load->read_bytes_per_s};
    (void)worker_engine_send(peer->worker->engine, command); /* safe to lose, because another report
                                                              * follows */
}

/* ---- events to peers ---- */

void worker_follow_wanted(struct worker_peer *peer, const Baton__BlocksWanted *wanted)
{
    uint64_t now_ns = clock_now_ns();
    struct command *command;

    if (!is_on(peer->worker) || (peer->wants_block_events && now_ns - peer->snapshot_ns < SNAPSHOT_NS) ||
        !worker_follow_has_room(peer))
        return; /* safe to lose, because the peer asks again */
    command = command_new(COMMAND_BLOCKS_WANTED, READER_PEER + worker_follow_number_of(peer));
    if (command == NULL)
        return;
    command->as.max_on_disk = wanted->max_on_disk;
    peer->wants_block_events = true;
    peer->snapshot_ns = now_ns;
    (void)worker_engine_send(peer->worker->engine, command);
}

bool worker_follow_has_room(const struct worker_peer *peer)
{
    return peer->is_up && link_queued_bytes(peer->link) < LINK_BUSY_BYTES;
}

/* ---- open and close ---- */

int worker_follow_open(struct worker *worker)
{
    int rc;

    worker->conf_prefix_fetch = worker->conf->prefix_fetch;
    if (!is_on(worker))
        return 0;
    worker->m_peer_resyncs =
        metric_single(worker->metrics, METRIC_COUNTER, "baton_peer_block_resyncs_total",
                      "Times that block events of a peer were missed, and everything was asked for.");
    rc = ev_timer_new(worker->loop, worker_follow_look, worker, &worker->follow_timer);
    if (rc == 0)
        ev_timer_repeat(worker->follow_timer, LOOK_NS);
    return rc;
}

void worker_follow_close(struct worker *worker)
{
    ev_timer_free(worker->follow_timer);
    worker->follow_timer = NULL;
}
