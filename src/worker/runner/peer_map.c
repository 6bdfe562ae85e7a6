/* SPDX-License-Identifier: Apache-2.0 */
/* The peer map: this worker's own index of peers' cached blocks, on the engine thread.
 *
 *    loop thread (follow.c):  a peer's events, in order and without gaps --> engine mailbox
 *    engine thread:           [ event list | event list ] --a slice or more a turn--> fleet/picker/index
 *                             a task lacks blocks --> which peer has most of them? --> prefix_fetch.c fetches
 *
 * A router names an owner in each request that it places, if it knows one.  Requests to this worker's own
 * endpoint, or from a router that has just started, name none, so this map looks for one.  It uses the
 * router's index and estimate (fleet/picker/index.h, fleet/picker/owner.h).  The slots of the index are the
 * peers' link slots.
 *
 * A fetch has to be faster than computing, than reading from the own disk, and than reading from the shared store,
 * as far as the store was seen to have the blocks.
 *
 * A peer may send events of a hundred thousand blocks at once.  So events wait in a queue
 * (cache/prefix/block_queue.h).  The thread applies a few between two steps, or all while the worker is idle.
 * worker_engine_send_peer_blocks() bounds the queue.  The index has its own bound.
 *
 * Tenants stay apart here too: lookups use the hashes of the task's own tokens under its own tenant's
 * root. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/err.h"
#include "fleet/picker/owner.h"
#include "fleet/picker/index.h"
#include "proto/capabilities.h"
#include "worker/runner/disk_priv.h"
#include "worker/runner/remote_priv.h"
#include "worker/runner/block_map_priv.h"

#define TURN_BLOCKS   (8 * BLOCK_SLICE)
#define SWEEP_ENTRIES 4096 /* entries that one sweep visits; each report triggers one, even if idle */

struct peer_map {
    struct picker_index *index; /* its slots: peers */
    struct block_queue pending; /* its sources: peers */
    struct peer_load loads[WORKER_MAX_PEERS];
    uint32_t n_peers; /* lower ones have sent blocks, higher ones have not */
    uint64_t n_fetches;
    struct metric *m_fetches;
    /* result of one prefix match; too large for a stack */
    struct picker_found found;
    struct picker_worker rows[WORKER_MAX_PEERS + 1]; /* this worker is the first */
    uint32_t peers[WORKER_MAX_PEERS + 1];
};

_Static_assert(WORKER_MAX_PEERS <= PICKER_MAX_WORKERS, "a slot for each peer");

/* ---- received events ---- */

/* Counts pending events as worker_engine_send_peer_blocks() does. */
static uint32_t peer_map_n_pending(const struct peer_map *map)
{
    return (uint32_t)(map->pending.n_blocks + map->pending.n_lists);
}

static void peer_map_count_off(struct worker_engine *engine, uint32_t n)
{
    atomic_fetch_sub_explicit(&engine->n_pending_events, n, memory_order_relaxed);
}

static void peer_map_apply(void *arg, const struct block_slice *slice)
{
    struct peer_map *map = arg;

    (void)picker_index_apply(map->index, slice, clock_now_ns());
}

static void peer_map_forget(void *arg, uint32_t peer)
{
    struct peer_map *map = arg;

    picker_index_forget(map->index, peer);
}

void worker_map_add(struct worker_engine *engine, struct block_list *blocks)
{
    struct peer_map *map = engine->map;
    uint32_t n = blocks->n + 1;

    if (map == NULL || blocks->source >= WORKER_MAX_PEERS) {
        free(blocks);
        peer_map_count_off(engine, n);
        return;
    }
    if (blocks->source >= map->n_peers)
        map->n_peers = blocks->source + 1;
    n += peer_map_n_pending(map);
    block_queue_add(&map->pending, blocks);
    peer_map_count_off(engine, n - peer_map_n_pending(map));
}

void worker_map_load(struct worker_engine *engine, uint32_t peer, const struct peer_load *load)
{
    if (engine->map != NULL && peer < WORKER_MAX_PEERS)
        engine->map->loads[peer] = *load;
}

bool worker_map_turn(struct worker_engine *engine)
{
    struct peer_map *map = engine->map;
    uint32_t n;
    bool has_more;

    if (map == NULL)
        return false;
    n = peer_map_n_pending(map);
    has_more = block_queue_work(&map->pending, TURN_BLOCKS);
    peer_map_count_off(engine, n - peer_map_n_pending(map));
    return has_more;
}

/* ---- choice of an owner ---- */

bool worker_map_is_empty(const struct worker_engine *engine)
{
    return engine->map == NULL || picker_index_count(engine->map->index) == 0;
}

static void peer_map_describe_self(struct worker_engine *engine, const struct map_question *question,
                                   struct picker_worker *row)
{
    const struct kv_layout *layout = &engine->opts.engine.info.layout;
    uint32_t n_more = question->n_hashes - question->n_here;
    struct sched_load load;
    struct remote_hope hope;

    sched_load(engine->sched, &load);
    *row = (struct picker_worker){
        .host = 1,
        .block_tokens = layout->block_tokens,
        .n_running = load.n_running,
        .prefill_tokens_per_s = load.prefill_tokens_per_s,
        .decode_step_s = load.decode_step_s,
        .transfer_bytes_per_s = engine->transfer_bytes_per_s,
        .push_bytes_per_s = engine->push_bytes_per_s,
        .read_bytes_per_s = worker_disk_rate(engine),
        .kv_bytes_per_token = kv_layout_block_bytes(layout) / layout->block_tokens,
        .cached_tokens = question->n_here * layout->block_tokens,
    };
    row->stored_tokens =
        row->cached_tokens +
        worker_disk_peek(engine, question->hashes + question->n_here, n_more) * layout->block_tokens;
    hope = worker_remote_hope(engine, question->hashes + question->n_here, n_more);
    row->store = hope.n_blocks > 0;
    row->store_bytes_per_s = hope.bytes_per_s;
    row->store_ask_s = hope.ask_s;
    row->in_store_tokens = row->cached_tokens + hope.n_blocks * layout->block_tokens;
}

/* False: the peer has no block of the prompt, or serves none. */
static bool peer_map_describe_peer(const struct worker_engine *engine, uint32_t peer, uint32_t n_stored,
                                   struct picker_worker *row)
{
    const struct peer_facts *facts = worker_engine_peer(engine, peer);
    const struct peer_load *load = &engine->map->loads[peer];
    const struct picker_worker *own = &engine->map->rows[0];

    if (facts == NULL || (facts->capabilities & CAPABILITY_ASKED) == 0)
        return false;
    *row = (struct picker_worker){
        .can_push = true,
        .host = facts->is_same_host ? 1 : 2,
        .block_tokens = own->block_tokens, /* peers with a link have the same block size */
        .n_running = load->n_running,
        .decode_step_s = load->decode_step_s,
        .read_bytes_per_s = load->read_bytes_per_s,
        .kv_bytes_per_token = own->kv_bytes_per_token,
        .cached_tokens = engine->map->found.in_memory[peer] * own->block_tokens,
        .stored_tokens = n_stored * own->block_tokens,
    };
    return row->cached_tokens > 0 || row->stored_tokens > 0;
}

/* Makes rows for this worker and all peers that have the prompt's beginning.  Returns their number. */
static uint32_t peer_map_gather(struct worker_engine *engine)
{
    struct peer_map *map = engine->map;
    uint32_t n = 1, n_stored[WORKER_MAX_PEERS] = {0};

    for (uint32_t i = 0; i < map->found.n_runs; i++)
        n_stored[map->found.runs[i].slot] = map->found.runs[i].n_blocks;
    for (uint32_t peer = 0; peer < map->n_peers; peer++)
        if (peer_map_describe_peer(engine, peer, n_stored[peer], &map->rows[n]))
            map->peers[n++] = peer;
    return n;
}

void worker_map_choose(struct worker_engine *engine, const struct map_question *question,
                       struct map_choice *choice)
{
    struct peer_map *map = engine->map;
    struct picker_request request = {.n_tokens = question->n_tokens};
    enum picker_fetch prefix_fetch = engine->opts.prefix_fetch;
    struct picker_world world;
    struct picker_owner found;

    if (worker_map_is_empty(engine))
        return;
    peer_map_describe_self(engine, question, &map->rows[0]);
    picker_index_match(map->index,
                       &(struct picker_query){.hashes = question->hashes,
                                              .n = question->n_hashes,
                                              .n_slots = map->n_peers,
                                              .now_ns = clock_now_ns()},
                       &map->found);
    world = (struct picker_world){map->rows, peer_map_gather(engine)};
    found = picker_find_owner(&world, &request, 0, prefix_fetch);
    if (found.slot == PICKER_NONE || (choice->peer != PEER_NONE && found.tokens <= choice->tokens))
        return;
    *choice = (struct map_choice){
        .peer = map->peers[found.slot],
        .tokens = found.tokens,
        .is_own = true,
        .has_to_read = found.has_to_read,
        .limit_ns = (uint64_t)(picker_ask_limit_s(&found, prefix_fetch) * (double)NS_PER_S)};
}

void worker_map_used(struct worker_engine *engine)
{
    engine->map->n_fetches++;
    metric_add(engine->map->m_fetches, 1);
}

/* ---- open and close ---- */

void worker_map_report(struct worker_engine *engine, struct load_report *out)
{
    struct peer_map *map = engine->map;

    if (map == NULL)
        return;
    (void)picker_index_sweep(map->index, SWEEP_ENTRIES);
    out->peers_on_disk = picker_index_on_disk(map->index);
    out->peers_in_memory = picker_index_count(map->index) - out->peers_on_disk;
    out->n_own_fetches = map->n_fetches;
}

int worker_map_open(struct worker_engine *engine)
{
    struct peer_map *map;
    int rc;

    if (engine->opts.prefix_fetch == PICKER_FETCH_OFF)
        return 0;
    map = calloc(1, sizeof(*map));
    if (map == NULL)
        return E_NOMEM;
    block_queue_init(&map->pending, &(struct block_queue_calls){peer_map_apply, peer_map_forget, map});
    rc = picker_index_new(engine->opts.peer_blocks, WORKER_MAP_LIFETIME_NS, &map->index);
    if (rc < 0) {
        free(map);
        return rc;
    }
    map->m_fetches = metric_single(engine->opts.metrics, METRIC_COUNTER, "baton_prefix_fetches_own_total",
                                   "Prefix fetches whose owner this worker chose by its own peer map.");
    engine->map = map;
    return 0;
}

void worker_map_close(struct worker_engine *engine)
{
    struct peer_map *map = engine->map;

    if (map == NULL)
        return;
    peer_map_count_off(engine, peer_map_n_pending(map));
    block_queue_fini(&map->pending);
    picker_index_free(map->index);
    free(map);
    engine->map = NULL;
}
