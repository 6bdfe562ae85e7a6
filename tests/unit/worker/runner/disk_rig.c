/* SPDX-License-Identifier: Apache-2.0 */
/* See disk_rig.h. */
#include "tests/unit/worker/runner/disk_rig.h"

#include <string.h>

#include "base/err.h"
#include "cache/kv/pool_cache.h"
#include "worker/loop/worker_priv.h"
#include "worker/runner/block_map_priv.h"
#include "worker/runner/disk_priv.h"
#include "worker/runner/transfers_priv.h"

struct kv_tier tier;

int kv_tier_open(const struct kv_tier_opts *opts, struct fault *fault, struct kv_tier **out)
{
    if (strcmp(opts->path, "broken") == 0)
        return fault_set(fault, E_IO, "no such disk");
    assert_int_equal(opts->n_blocks, N_BLOCKS);
    tier.opts = *opts;
    *out = &tier;
    return 0;
}

void kv_tier_close(struct kv_tier *self)
{
}

bool kv_tier_has(const struct kv_tier *self, const struct block_hash *hash)
{
    for (uint32_t i = 0; i < self->n_there; i++)
        if (block_hash_equal(&self->there[i], hash))
            return true;
    return false;
}

uint32_t kv_tier_peek(const struct kv_tier *self, const struct block_hash *list, uint32_t n)
{
    uint32_t found = 0;

    while (found < n && kv_tier_has(self, &list[found]))
        found++;
    return found;
}

static void begin(struct kv_tier_event event)
{
    assert_true(tier.n_begun < 64);
    tier.begun[tier.n_begun++] = event;
}

void kv_tier_each(const struct kv_tier *self, uint32_t most,
                  void (*visit)(void *arg, const struct block_hash *hash), void *arg)
{
    for (uint32_t i = 0; i < self->n_there && i < most; i++)
        visit(arg, &self->there[i]);
}

int kv_tier_write(struct kv_tier *self, kv_tenant tenant, kv_block_id id, const struct block_hash *hash,
                  uint64_t pin_end_unix_ns)
{
    self->written_for = tenant;
    self->n_writes++;
    if (self->write_with == 0)
        begin((struct kv_tier_event){.kind = KV_TIER_WRITTEN, .id = id, .hash = *hash});
    return self->write_with;
}

bool kv_tier_rests(const struct kv_tier *self, uint64_t now_ns)
{
    return self->rests;
}

int kv_tier_read(struct kv_tier *self, kv_block_id id, const struct block_hash *hash, void *user)
{
    assert_true(kv_tier_has(self, hash));
    begin((struct kv_tier_event){.kind = KV_TIER_READ, .id = id, .hash = *hash, .user = user});
    return 0;
}

bool kv_tier_poll(struct kv_tier *self, struct kv_tier_event *out)
{
    if (self->n_polled == self->n_done)
        return false;
    *out = self->begun[self->n_polled++];
    return true;
}

void kv_tier_expire(struct kv_tier *self)
{
}

void kv_tier_counts(const struct kv_tier *self, struct kv_tier_counts *out)
{
    *out = (struct kv_tier_counts){.n_blocks = self->n_there};
}

uint64_t kv_tier_read_ns(const struct kv_tier *self, uint32_t n_blocks)
{
    return n_blocks * self->read_ns;
}

/* ---- the rest of the worker, simulated ---- */

double prefill_tokens_per_s;
uint32_t n_running;

void sched_load(const struct sched *sched, struct sched_load *out)
{
    *out = (struct sched_load){.prefill_tokens_per_s = prefill_tokens_per_s, .n_running = n_running};
}

struct worker_engine engine;
struct task tasks[N_TASKS];
struct prefix_roots roots;
static token_id prompt[PROMPT_BLOCKS * TOKENS];
struct block_hash hashes[PROMPT_BLOCKS];
uint32_t n_went_on;

void worker_tasks_read(struct worker_engine *of, uint64_t number)
{
    for (uint32_t i = 0; i < N_TASKS; i++)
        if (tasks[i].disk_read == number && number != 0) {
            worker_disk_stop_waiting(of, &tasks[i]);
            n_went_on++;
        }
}

bool worker_follow_has_room(const struct worker_peer *peer)
{
    return false;
}

uint64_t serve_read;

void worker_prefix_serve_read(struct worker_engine *of, uint64_t read)
{
    serve_read = read;
}

int disk_rig_open(void **state)
{
    struct kv_pool_opts pool = {.n_blocks = N_BLOCKS,
                                .block_tokens = TOKENS,
                                .has_tier = true,
                                .on_block = worker_publish_block,
                                .on_block_arg = &engine};
    uint8_t key[32] = {1};

    tier = (struct kv_tier){.read_ns = NS_PER_US};
    prefill_tokens_per_s = 1000; /* 8 ms for each block */
    n_went_on = n_running = 0;
    serve_read = 0;
    memset(&engine, 0, sizeof(engine));
    memset(tasks, 0, sizeof(tasks));
    assert_int_equal(kv_pool_new(&pool, &engine.pool), 0);
    assert_int_equal(metrics_new(&engine.opts.metrics), 0);
    assert_int_equal(mailbox_new(8, &engine.reports), 0);
    engine.opts.n_blocks = N_BLOCKS;
    engine.opts.max_queue = 3;
    engine.opts.disk.path = "played";
    memcpy(engine.opts.prefix_key, key, sizeof(key));
    strcpy(engine.opts.model_fingerprint, "00");
    engine.opts.engine.info.layout =
        (struct kv_layout){.n_layers = 1, .n_kv_heads = 1, .k_dim = 32, .v_dim = 32, .block_tokens = TOKENS};
    worker_disk_open(&engine);
    assert_non_null(engine.disk);
    assert_int_equal(prefix_roots_derive(key, "00", "team", 0, &roots), 0);
    for (uint32_t i = 0; i < PROMPT_BLOCKS * TOKENS; i++)
        prompt[i] = i;
    assert_int_equal(prefix_roots_chain(&roots, prompt, PROMPT_BLOCKS * (size_t)TOKENS, TOKENS, hashes),
                     PROMPT_BLOCKS);
    for (uint32_t i = 0; i < N_TASKS; i++)
        tasks[i].spec = (struct task_spec){
            .order = {.tokens = prompt, .n_tokens = PROMPT_BLOCKS * TOKENS, .work.tenant = "team"}};
    return 0;
}

int disk_rig_close(void **state)
{
    struct kv_pool_counts counts;

    tier.n_done = tier.n_begun; /* ends all operations under way */
    tier.write_with = E_EXISTS;
    worker_disk_turn(&engine);
    for (uint32_t i = 0; i < N_TASKS; i++)
        worker_chain_free(&tasks[i]);
    kv_pool_counts(engine.pool, &counts);
    assert_int_equal(counts.n_leased + counts.n_filling + counts.n_sealed + counts.n_zombie, 0);
    worker_disk_close(&engine);
    kv_pool_free(engine.pool);
    block_log_fini(&engine.block_log);
    mailbox_free(engine.reports);
    metrics_free(engine.opts.metrics);
    return 0;
}

void put_on_disk(uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        tier.there[tier.n_there++] = hashes[i];
}

bool waits(uint32_t task)
{
    return worker_disk_wait(&engine, &tasks[task]);
}

void cache(uint32_t n)
{
    kv_block_id id;

    for (uint32_t i = 0; i < n; i++) {
        assert_int_equal(kv_take(engine.pool, 1, &id), 0);
        kv_seal(engine.pool, id, &hashes[i]);
        kv_unref(engine.pool, id);
    }
}
