/* SPDX-License-Identifier: Apache-2.0 */
/* The cached blocks of a simulated worker, and the source of a prompt's tokens: memory, disk, another
 * worker's push, or computation.  Evictions reach the router's index at once, like block events. */
#include <string.h>

#include "base/err.h"
#include "base/load_rates.h"
#include "cache/prefix/block_queue.h"
#include "fleet/sim/sim_priv.h"

static uint64_t sim_cache_mix(uint64_t x)
{
    x = (x ^ x >> 32) * UINT64_C(0xd6e8feb86659fd93);
    x = (x ^ x >> 32) * UINT64_C(0xd6e8feb86659fd93);
    return x ^ x >> 32;
}

uint64_t sim_block_id(const struct sim_request *request, uint32_t i)
{
    /* Consecutive ids stay consecutive: sim_lru works best when a chain's blocks have consecutive ids. */
    if (request->ids != NULL)
        return sim_cache_mix(request->salt) + request->ids[i];
    return sim_cache_mix(i < request->n_public ? request->public_salt : request->salt) + i;
}

struct block_hash sim_block_hash(uint64_t id)
{
    uint64_t half[2] = {id, id * UINT64_C(0x9fb21c651e98df25) ^ id >> 29};
    struct block_hash hash;

    memcpy(hash.bytes, half, sizeof(hash.bytes));
    return hash;
}

/* ---- parts of a chain ---- */

struct cache_part { /* blocks with ids in a row, in one group of the table */
    uint64_t first;
    uint32_t n;
};

/* The part that begins with block i. */
static inline struct cache_part cache_part_at(const struct sim_request *request, uint32_t i)
{
    struct cache_part part = {sim_block_id(request, i), 1};

    while (i + part.n < request->n_blocks && (part.first + part.n) % SIM_LRU_GROUP != 0 &&
           sim_block_id(request, i + part.n) == part.first + part.n)
        part.n++;
    return part;
}

/* The part that ends before block `end`. */
static inline struct cache_part cache_part_before(const struct sim_request *request, uint32_t end)
{
    struct cache_part part = {sim_block_id(request, end - 1), 1};

    while (part.n < end && part.first % SIM_LRU_GROUP != 0 &&
           sim_block_id(request, end - part.n - 1) == part.first - 1) {
        part.first--;
        part.n++;
    }
    return part;
}

void sim_cache_ask(const struct sim_worker *worker, const struct sim_request *request)
{
    for (uint32_t i = 0; i < request->n_blocks; i += SIM_LRU_GROUP)
        sim_lru_ask_place(&worker->memory, sim_block_id(request, i));
    if (request->n_blocks > 0)
        sim_lru_ask_place(&worker->memory, sim_block_id(request, request->n_blocks - 1));
}

void sim_cache_ask_more(const struct sim_worker *worker, const struct sim_request *request)
{
    for (uint32_t i = 0; i < request->n_blocks; i += SIM_LRU_GROUP)
        sim_lru_ask_run(&worker->memory, sim_block_id(request, i));
    if (request->n_blocks > 0)
        sim_lru_ask_run(&worker->memory, sim_block_id(request, request->n_blocks - 1));
}

uint32_t sim_cache_held(const struct sim_worker *worker, const struct sim_request *request)
{
    struct cache_part part;
    uint32_t n = 0, held;

    while (n < request->n_blocks) {
        part = cache_part_at(request, n);
        held = sim_lru_leading(&worker->memory, part.first, part.n);
        n += held;
        if (held < part.n)
            break;
    }
    return n;
}

/* Marks the first n blocks as used. The beginning of a chain becomes the newest, because without it the rest is
 * useless. */
static void cache_touch(struct sim *sim, struct sim_lru *lru, const struct sim_request *request, uint32_t n)
{
    while (n > 0) {
        struct cache_part part = cache_part_before(request, n);

        if (sim_lru_touch(lru, part.first, part.n, sim->now_ns) < 0)
            sim->rc = E_NOMEM;
        n -= part.n;
    }
}

/* ---- evictions ---- */

/* The router reports to a worker that it has a block's last replica.  Goes over the blocks in several rounds: the
 * memory of one block's worker is prefetched while that of another one is requested. */
static void cache_report_last_replicas(struct sim *sim, const struct block_hash *hashes, const uint64_t *ids,
                                       uint32_t n)
{
    uint32_t last[BLOCK_SLICE];

    for (uint32_t i = 0; i < n; i++) {
        last[i] = picker_index_last_replica(sim->routers[0].index, &hashes[i], sim->now_ns);
        if (last[i] != PICKER_NONE)
            __builtin_prefetch(&sim->workers[last[i]].memory);
    }
    for (uint32_t i = 0; i < n; i++)
        if (last[i] != PICKER_NONE)
            sim_lru_ask_place(&sim->workers[last[i]].memory, ids[i]);
    for (uint32_t i = 0; i < n; i++)
        if (last[i] != PICKER_NONE)
            sim_lru_ask_run(&sim->workers[last[i]].memory, ids[i]);
    for (uint32_t i = 0; i < n; i++)
        if (last[i] != PICKER_NONE &&
            sim_lru_set_replicated(&sim->workers[last[i]].memory, ids[i], 1, false) < 0)
            sim->rc = E_NOMEM;
}

/* One slice of a worker's block events: n blocks are gone, or on its disk now. */
static void cache_evict(struct sim *sim, struct sim_worker *worker, uint32_t n)
{
    struct block_hash hashes[BLOCK_SLICE], hash;
    uint64_t ids[BLOCK_SLICE];
    bool has_disk = sim->opts->disk_tokens > 0;

    n = sim_lru_evict(&worker->memory, sim->now_ns, ids, has_disk ? 1 : n);
    for (uint32_t i = 0; i < n; i++) {
        hashes[i] = sim_block_hash(ids[i]);
        if (has_disk && sim_lru_touch(&worker->disk, ids[i], 1, sim->now_ns) < 0)
            sim->rc = E_NOMEM;
    }
    (has_disk ? sim_routers_moved : sim_routers_evicted)(sim, worker->slot, hashes, n);
    cache_report_last_replicas(sim, hashes, ids, n);
    if ((uint64_t)worker->disk.n * sim->opts->block_tokens <= sim->opts->disk_tokens)
        return;
    (void)sim_lru_evict(&worker->disk, sim->now_ns, ids, 1);
    hash = sim_block_hash(ids[0]);
    sim_routers_evicted(sim, worker->slot, &hash, 1);
}

void sim_cache_trim(struct sim *sim, struct sim_worker *worker)
{
    uint64_t kv_tokens = sim->opts->kv_tokens, used = worker->used_tokens;
    uint64_t most = used < kv_tokens ? (kv_tokens - used) / sim->opts->block_tokens : 0;

    while (worker->memory.n > most) {
        uint64_t n = worker->memory.n - most;

        cache_evict(sim, worker, n < BLOCK_SLICE ? (uint32_t)n : BLOCK_SLICE);
    }
}

void sim_cache_store(struct sim *sim, struct sim_worker *worker, const struct sim_request *request)
{
    cache_touch(sim, &worker->memory, request, request->n_blocks);
    for (uint32_t i = 0; worker->disk.n > 0 && i < request->n_blocks; i++)
        if (sim_lru_remove(&worker->disk, sim_block_id(request, i), 1) < 0)
            sim->rc = E_NOMEM;
    sim_routers_stored(sim, worker->slot, request);
    sim_cache_trim(sim, worker);
}

void sim_cache_share(struct sim *sim, struct sim_worker *worker, const struct sim_request *request,
                     uint32_t n_blocks)
{
    struct cache_part part;

    for (uint32_t i = 0; i < n_blocks; i += part.n) {
        part = cache_part_at(request, i);
        part.n = part.n < n_blocks - i ? part.n : n_blocks - i;
        if (sim_lru_set_replicated(&worker->memory, part.first, part.n, true) < 0)
            sim->rc = E_NOMEM;
    }
}

/* ---- sources of a prompt's tokens ---- */

static uint32_t cache_tokens(const struct sim *sim, const struct sim_job *job, uint32_t n_blocks)
{
    uint64_t n = (uint64_t)n_blocks * sim->opts->block_tokens;

    return n < job->n_given ? (uint32_t)n : job->n_given - 1;
}

/* Leading blocks in memory or on disk. */
static uint32_t cache_stored(const struct sim_worker *worker, const struct sim_request *request, uint32_t n)
{
    for (; n < request->n_blocks; n++) {
        uint64_t id = sim_block_id(request, n);

        if (sim_lru_leading(&worker->memory, id, 1) + sim_lru_leading(&worker->disk, id, 1) == 0)
            break;
    }
    return n;
}

static uint32_t cache_push(struct sim *sim, struct sim_job *job, struct sim_worker *worker, uint32_t owner,
                           uint32_t has)
{
    struct sim_worker *from = &sim->workers[owner];
    uint32_t n = cache_tokens(sim, job, sim_cache_held(from, &job->request));
    double bytes;
    uint64_t asked_ns, end_ns;

    if (n <= has || !from->is_up)
        return has;
    cache_touch(sim, &from->memory, &job->request,
                sim_cache_held(from, &job->request)); /* sending is a use */
    bytes = (n - has) * sim->opts->kv_bytes_per_token;
    asked_ns = job->ready_ns + 2 * sim->opts->latency_ns;
    end_ns = sim_net_send(sim, job,
                          &(struct sim_transfer){.from = from,
                                                 .to = worker,
                                                 .bytes = bytes,
                                                 .sum_bytes = &sim->result->pushed_bytes,
                                                 .from_ns = asked_ns});
    if (end_ns > asked_ns)
        rate_learn(&worker->push_rate, bytes * 1e9 / (double)(end_ns - asked_ns), LOAD_RATE_PUSH_ALPHA, 1,
                   sim->now_ns);
    job->ready_ns = end_ns;
    job->n_pushed = n / sim->opts->block_tokens;
    sim->result->pushed_tokens += n - has;
    sim->result->n_pushes++;
    return n;
}

static uint32_t cache_read(struct sim *sim, struct sim_job *job, struct sim_worker *worker, uint32_t has,
                           uint32_t n_blocks)
{
    uint32_t n = cache_tokens(sim, job, cache_stored(worker, &job->request, n_blocks));

    if (n <= has || sim->opts->disk_bytes_per_s <= 0)
        return has;
    job->ready_ns = sim_net_read(sim, job, worker, (n - has) * sim->opts->kv_bytes_per_token);
    rate_learn(&worker->read_rate, sim->opts->disk_bytes_per_s, LOAD_RATE_READ_ALPHA, 1, sim->now_ns);
    sim->result->read_tokens += n - has;
    return n;
}

void sim_cache_begin(struct sim *sim, struct sim_job *job, const struct picker_owner *owner)
{
    struct sim_worker *worker = &sim->workers[job->prefill != SIM_NONE ? job->prefill : job->decode];
    uint32_t n_blocks = sim_cache_held(worker, &job->request);
    uint32_t held = cache_tokens(sim, job, n_blocks), has = held;

    job->ready_ns = sim->now_ns + sim->opts->latency_ns;
    if (owner->slot != PICKER_NONE)
        has = cache_push(sim, job, worker, owner->slot, has);
    else if (worker->disk.n > 0 && sim->place.choice.read_tokens > 0)
        has = cache_read(sim, job, worker, has, n_blocks);
    job->n_left = job->n_given - has;
    sim->result->cached_tokens += held;
    sim->result->computed_tokens += job->n_left;
}

/* Counts blocks that were stored while the prompt waited too: the scheduler looks at its cache when the
 * prompt begins. */
void sim_cache_again(struct sim *sim, struct sim_worker *worker, struct sim_job *job)
{
    uint32_t has = job->n_given - job->n_left;
    uint32_t held = cache_tokens(sim, job, sim_cache_held(worker, &job->request));

    if (held <= has)
        return;
    job->n_left -= held - has;
    worker->queued_tokens -= held - has;
    sim->result->cached_tokens += held - has;
    sim->result->computed_tokens -= held - has;
}
