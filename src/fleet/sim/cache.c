/* SPDX-License-Identifier: Apache-2.0 */
/* The blocks that a simulated worker has cached, and where a prompt's tokens come from: memory, disk, another
 * worker's push, or computation.  Evictions are told to the router's index at once, as block events are. */
#include <string.h>

#include "base/err.h"
#include "fleet/sim/sim_priv.h"

#define PUSH_ALPHA 0.3
#define READ_ALPHA 0.1

static uint64_t sim_cache_mix(uint64_t x)
{
    x = (x ^ x >> 32) * UINT64_C(0xd6e8feb86659fd93);
    x = (x ^ x >> 32) * UINT64_C(0xd6e8feb86659fd93);
    return x ^ x >> 32;
}

uint64_t sim_block_id(const struct sim_request *request, uint32_t i)
{
    if (request->ids != NULL)
        return sim_cache_mix(request->ids[i] ^ request->salt);
    return sim_cache_mix((i < request->n_public ? request->public_salt : request->salt) +
                         (uint64_t)i * UINT64_C(0x9e3779b97f4a7c15));
}

struct block_hash sim_block_hash(uint64_t id)
{
    uint64_t half[2] = {id, id * UINT64_C(0x9fb21c651e98df25) ^ id >> 29};
    struct block_hash hash;

    memcpy(hash.bytes, half, sizeof(hash.bytes));
    return hash;
}

uint32_t sim_cache_held(const struct sim_worker *worker, const struct sim_request *request)
{
    uint32_t n = 0;

    while (n < request->n_blocks && sim_lru_has(&worker->memory, sim_block_id(request, n)))
        n++;
    return n;
}

static void cache_evict(struct sim *sim, struct sim_worker *worker)
{
    uint64_t id = sim_lru_evict(&worker->memory, sim->now_ns);
    struct block_hash hash = sim_block_hash(id);
    uint32_t last;

    if (sim->opts->disk_tokens == 0) {
        sim_routers_evicted(sim, worker->slot, &hash);
    } else {
        if (sim_lru_touch(&worker->disk, id, sim->now_ns) < 0)
            sim->rc = E_NOMEM;
        sim_routers_moved(sim, worker->slot, &hash);
    }
    last = picker_index_last_replica(sim->routers[0].index, &hash, sim->now_ns);
    if (last != PICKER_NONE) /* the router tells the worker with the last replica */
        sim_lru_set_replicated(&sim->workers[last].memory, id, false);
    if ((uint64_t)worker->disk.n * sim->opts->block_tokens <= sim->opts->disk_tokens)
        return;
    hash = sim_block_hash(sim_lru_evict(&worker->disk, sim->now_ns));
    sim_routers_evicted(sim, worker->slot, &hash);
}

void sim_cache_trim(struct sim *sim, struct sim_worker *worker)
{
    uint64_t kv_tokens = sim->opts->kv_tokens, used = worker->used_tokens;
    uint64_t most = used < kv_tokens ? (kv_tokens - used) / sim->opts->block_tokens : 0;

    while (worker->memory.n > most)
        cache_evict(sim, worker);
}

/* The beginning of a chain is the newest: without it the rest is useless. */
void sim_cache_store(struct sim *sim, struct sim_worker *worker, const struct sim_request *request)
{
    for (uint32_t i = request->n_blocks; i > 0; i--) {
        uint64_t id = sim_block_id(request, i - 1);

        if (sim_lru_touch(&worker->memory, id, sim->now_ns) < 0)
            sim->rc = E_NOMEM;
        if (worker->disk.n > 0)
            sim_lru_remove(&worker->disk, id);
    }
    sim_routers_stored(sim, worker->slot, request);
    sim_cache_trim(sim, worker);
}

void sim_cache_share(struct sim_worker *worker, const struct sim_request *request, uint32_t n_blocks)
{
    for (uint32_t i = 0; i < n_blocks; i++)
        sim_lru_set_replicated(&worker->memory, sim_block_id(request, i), true);
}

/* ---- where a prompt's tokens come from ---- */

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

        if (!sim_lru_has(&worker->memory, id) && !sim_lru_has(&worker->disk, id))
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
    for (uint32_t i = sim_cache_held(from, &job->request); i > 0; i--) /* sending is a use */
        (void)sim_lru_touch(&from->memory, sim_block_id(&job->request, i - 1), sim->now_ns);
    bytes = (n - has) * sim->opts->kv_bytes_per_token;
    asked_ns = job->ready_ns + 2 * sim->opts->latency_ns;
    end_ns = sim_net_send(sim, from, worker, bytes, asked_ns);
    if (end_ns > asked_ns)
        rate_learn(&worker->push_rate, bytes * 1e9 / (double)(end_ns - asked_ns), PUSH_ALPHA, 1, sim->now_ns);
    job->ready_ns = end_ns;
    job->n_pushed = n / sim->opts->block_tokens;
    sim->result->pushed_tokens += n - has;
    sim->result->pushed_bytes += bytes;
    sim->result->n_pushes++;
    return n;
}

static uint32_t cache_read(struct sim *sim, struct sim_job *job, struct sim_worker *worker, uint32_t has,
                           uint32_t n_blocks)
{
    uint32_t n = cache_tokens(sim, job, cache_stored(worker, &job->request, n_blocks));
    uint64_t begin_ns = worker->disk_free_ns > job->ready_ns ? worker->disk_free_ns : job->ready_ns;
    double bytes, seconds;

    if (n <= has || sim->opts->disk_bytes_per_s <= 0)
        return has;
    bytes = (n - has) * sim->opts->kv_bytes_per_token;
    seconds = bytes / sim->opts->disk_bytes_per_s;
    worker->disk_free_ns = job->ready_ns = begin_ns + (uint64_t)(seconds * 1e9);
    rate_learn(&worker->read_rate, sim->opts->disk_bytes_per_s, READ_ALPHA, 1, sim->now_ns);
    sim->result->read_tokens += n - has;
    sim->result->read_bytes += bytes;
    sim->result->disk_busy_s += seconds;
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

/* What was stored while the prompt waited counts too: the scheduler looks at its cache when it begins. */
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
