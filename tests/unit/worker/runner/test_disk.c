/* SPDX-License-Identifier: Apache-2.0 */
/* Prompts that wait for blocks from disk, saved blocks, and the events of both tiers for routers: disk.c and
 * publish.c over a simulated tier, which ends reads and writes at the test's command. */
#include "tests/unit/check.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "cache/kv/pool_cache.h"
#include "cache/kv/pool_quota.h"
#include "cache/kv/tier.h"
#include "cache/prefix/tenant.h"
#include "worker/runner/disk_priv.h"
#include "worker/runner/block_map_priv.h"
#include "worker/runner/transfers_priv.h"
#include "worker/loop/worker_priv.h"

enum { N_BLOCKS = 64, TOKENS = 8, PROMPT_BLOCKS = 12, N_TASKS = 4 };

struct kv_tier {
    struct kv_tier_opts opts;
    struct block_hash there[64];
    uint32_t n_there;
    struct kv_tier_event begun[64]; /* in order */
    uint32_t n_begun, n_done, n_polled;
    uint64_t read_ns; /* time to read a block */
    int write_with;   /* result of kv_tier_write() */
    bool rests;
    uint32_t n_writes;
    kv_tenant written_for; /* tenant of the last one */
};
static struct kv_tier tier;

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

uint32_t kv_tier_peek(const struct kv_tier *self, const struct block_hash *hashes, uint32_t n)
{
    uint32_t found = 0;

    while (found < n && kv_tier_has(self, &hashes[found]))
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

static double prefill_tokens_per_s;

void sched_load(const struct sched *sched, struct sched_load *out)
{
    *out = (struct sched_load){.prefill_tokens_per_s = prefill_tokens_per_s};
}

static struct worker_engine engine;
static struct task tasks[N_TASKS];
static struct prefix_roots roots;
static token_id prompt[PROMPT_BLOCKS * TOKENS];
static struct block_hash hashes[PROMPT_BLOCKS];
static uint32_t n_went_on;

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

static uint64_t serve_read; /* the latest read that ended for a serve */
void worker_prefix_serve_read(struct worker_engine *of, uint64_t read)
{
    serve_read = read;
}

static int setup(void **state)
{
    struct kv_pool_opts pool = {.n_blocks = N_BLOCKS,
                                .block_tokens = TOKENS,
                                .has_tier = true,
                                .on_block = worker_publish_block,
                                .on_block_arg = &engine};
    uint8_t key[32] = {1};

    tier = (struct kv_tier){.read_ns = NS_PER_US};
    prefill_tokens_per_s = 1000; /* 8 ms for each block */
    n_went_on = 0;
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

static int teardown(void **state)
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

static void put_on_disk(uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        tier.there[tier.n_there++] = hashes[i];
}

static bool waits(uint32_t task)
{
    return worker_disk_wait(&engine, &tasks[task]);
}

static void cache(uint32_t n)
{
    kv_block_id id;

    for (uint32_t i = 0; i < n; i++) {
        assert_int_equal(kv_take(engine.pool, 1, &id), 0);
        kv_seal(engine.pool, id, &hashes[i]);
        kv_unref(engine.pool, id);
    }
}

/* ---- tests ---- */

static void a_prompt_waits_for_what_is_on_disk(void **state)
{
    put_on_disk(9);
    assert_true(waits(0));
    assert_true(worker_disk_is_waited_for(&engine));
    assert_int_equal(tier.n_begun, 9);
    for (uint32_t i = 0; i < 9; i++) { /* no other sequence gets the blocks of the read */
        assert_int_equal(kv_state_of(engine.pool, tier.begun[i].id), KV_FILLING);
        assert_true(block_hash_equal(&tier.begun[i].hash, &hashes[i]));
    }
    tier.n_done = 8;
    worker_disk_turn(&engine);
    assert_int_equal(n_went_on, 0);
    tier.n_done = 9;
    worker_disk_turn(&engine);
    assert_int_equal(n_went_on, 1);
    assert_false(worker_disk_is_waited_for(&engine));
    assert_int_equal(kv_peek(engine.pool, hashes, PROMPT_BLOCKS), 9);
    assert_int_equal(kv_tenant_blocks(engine.pool, tenant_number("team")), 9);
    assert_int_equal(tier.n_writes, 0); /* what came from the disk is not saved again */
}

static void the_last_token_is_fed_in_any_case(void **state)
{
    put_on_disk(PROMPT_BLOCKS);
    assert_true(waits(0));
    assert_int_equal(tier.n_begun, PROMPT_BLOCKS - 1);
}

static void computing_is_quicker_sometimes(void **state)
{
    put_on_disk(9);
    tier.read_ns = 9 * NS_PER_MS; /* 8 ms to compute */
    for (unsigned i = 0; i < 15; i++)
        assert_false(waits(0));
    assert_int_equal(tier.n_begun, 0);
    assert_true(waits(0)); /* a few are read nevertheless, to measure the speed */
    tier.n_done = tier.n_begun;
    worker_disk_turn(&engine);
    kv_clear(engine.pool);
    tasks[0].n_disk_looks = 0;
    assert_false(waits(0));
    tier.read_ns = 7 * NS_PER_MS;
    assert_true(waits(0));
}

static void tasks_without_blocks_to_read_do_not_wait(void **state)
{
    assert_false(waits(0));
    put_on_disk(9);
    tasks[1].spec.mode = TASK_DECODE; /* a peer sends it */
    assert_false(waits(1));
    tasks[2].spec.order.n_tokens = TOKENS;
    assert_false(waits(2));
    assert_int_equal(tier.n_begun, 0);
}

static void equal_prompts_wait_for_the_same_reads(void **state)
{
    put_on_disk(9);
    assert_true(waits(0) && waits(1) && waits(2));
    assert_int_equal(tier.n_begun, 9);
    assert_false(waits(3));                       /* the limit of waiting tasks is reached */
    worker_disk_stop_waiting(&engine, &tasks[1]); /* it was cancelled */
    tier.n_done = 9;
    worker_disk_turn(&engine);
    assert_int_equal(n_went_on, 2);
}

static void reads_that_fail_or_break_cost_only_themselves(void **state)
{
    put_on_disk(9);
    assert_true(waits(0));
    tier.begun[0].result = E_IO;
    tier.begun[5].result = E_AUTH;
    tier.n_there = 0;
    tier.n_done = 9;
    worker_disk_turn(&engine);
    assert_int_equal(n_went_on, 1);
    assert_int_equal(kv_peek(engine.pool, hashes, 9), 0);
    assert_int_equal(kv_peek(engine.pool, hashes + 1, 8), 4); /* blocks two to five */
    assert_false(waits(0));
}

static void a_slow_disk_is_not_waited_for(void **state)
{
    put_on_disk(9);
    assert_true(waits(0));
    worker_disk_tick(&engine, clock_now_ns()); /* not yet */
    assert_int_equal(n_went_on, 0);
    worker_disk_tick(&engine, clock_now_ns() + 10 * NS_PER_S);
    assert_int_equal(n_went_on, 1);
    assert_false(waits(1)); /* no other task waits for these either */
    /* It still owns its blocks, and late blocks are cached nevertheless. */
    assert_int_equal(kv_state_of(engine.pool, tier.begun[0].id), KV_FILLING);
    tier.n_done = 9;
    worker_disk_turn(&engine);
    assert_int_equal(n_went_on, 1);
    assert_int_equal(kv_peek(engine.pool, hashes, 9), 9);
}

static void reads_leave_most_of_the_pool(void **state)
{
    static token_id other[PROMPT_BLOCKS * TOKENS];
    struct block_hash more[PROMPT_BLOCKS];

    put_on_disk(11);
    for (uint32_t i = 0; i < PROMPT_BLOCKS * TOKENS; i++)
        other[i] = 1000 + i;
    prefix_roots_chain(&roots, other, PROMPT_BLOCKS * (size_t)TOKENS, TOKENS, more);
    for (uint32_t i = 0; i < 11; i++)
        tier.there[tier.n_there++] = more[i];
    assert_true(waits(0));
    tasks[1].spec.order.tokens = other;
    assert_true(waits(1));
    assert_int_equal(tier.n_begun, N_BLOCKS / 4); /* 11 and 5: the second read is limited by the room */
}

/* A peer fetches: there is no task, and the fetching worker decides whether it pays. */
static void blocks_that_a_peer_fetches_are_read(void **state)
{
    put_on_disk(9);
    tier.read_ns = 9 * NS_PER_MS; /* computing would be faster here */
    assert_int_equal(worker_disk_fetch(&engine, 5, hashes + 9, 3), 0);
    uint64_t read =
        worker_disk_fetch(&engine, 5, hashes + 2, 10); /* from the middle: the peer has the beginning */
    assert_true(read != 0);
    assert_int_equal(tier.n_begun, 7);
    assert_int_equal(worker_disk_fetch(&engine, 6, hashes + 2, 7), read); /* the next block also */
    assert_int_equal(tier.n_begun, 7);
    assert_int_equal(kv_tenant_blocks(engine.pool, 5), 7);
    tier.n_done = 7;
    worker_disk_turn(&engine);
    assert_int_equal(serve_read, read);
    assert_int_equal(kv_peek(engine.pool, hashes + 2, 10), 7);
    assert_int_equal(worker_disk_fetch(&engine, 5, hashes + 2, 7), 0); /* all of it is in the pool */
}

static void a_loan_waits_no_longer_than_it_should(void **state)
{
    put_on_disk(9);
    uint64_t read = worker_disk_fetch(&engine, 5, hashes, 9);
    worker_disk_tick(&engine, clock_now_ns() + NS_PER_S);
    assert_int_not_equal(serve_read, read);
    worker_disk_tick(&engine, clock_now_ns() + 10 * NS_PER_S);
    assert_int_equal(serve_read, read);
    assert_int_equal(worker_disk_fetch(&engine, 5, hashes, 9), 0); /* and no fetch waits for it again */
}

/* A pool full of other blocks, of which this prompt's beginning is the least recently used. */
static void fill_pool(uint32_t n_of_prompt)
{
    kv_block_id ids[N_BLOCKS];
    struct block_hash hash = {{0}};

    cache(n_of_prompt);
    assert_int_equal(kv_take(engine.pool, N_BLOCKS - n_of_prompt, ids), 0);
    for (uint32_t i = 0; i < N_BLOCKS - n_of_prompt; i++) {
        hash.bytes[0] = (uint8_t)(i + 1);
        kv_seal(engine.pool, ids[i], &hash);
        kv_unref(engine.pool, ids[i]);
    }
}

static void a_read_does_not_evict_the_beginning_that_it_completes(void **state)
{
    tier.write_with = E_EXISTS;
    fill_pool(5);
    put_on_disk(11);
    assert_true(waits(0));
    assert_int_equal(tier.n_begun, 6);
    assert_int_equal(kv_peek(engine.pool, hashes, PROMPT_BLOCKS), 5);
    worker_disk_stop_waiting(&engine, &tasks[0]); /* cancelled: the read goes on */
    assert_int_equal(kv_available(engine.pool), N_BLOCKS - 11);
    tier.n_done = 6;
    worker_disk_turn(&engine);
    assert_int_equal(kv_peek(engine.pool, hashes, PROMPT_BLOCKS), 11);
    assert_int_equal(kv_available(engine.pool), N_BLOCKS);
}

static void a_late_read_holds_the_beginning_no_longer(void **state)
{
    tier.write_with = E_EXISTS;
    fill_pool(5);
    put_on_disk(11);
    assert_true(waits(0));
    worker_disk_tick(&engine, clock_now_ns() + 10 * NS_PER_S);
    assert_int_equal(n_went_on, 1);
    assert_int_equal(kv_available(engine.pool), N_BLOCKS - 6);
}

/* Blocks of one prompt in the pool, on disk, and in both. */
static void a_read_leaves_out_what_the_pool_has(void **state)
{
    kv_block_id ids[2];

    tier.write_with = E_EXISTS;
    put_on_disk(6);
    tier.there[tier.n_there++] = hashes[8];
    cache(2);
    for (uint32_t i = 6; i < 8; i++) {
        assert_int_equal(kv_take(engine.pool, 1, ids), 0);
        kv_seal(engine.pool, ids[0], &hashes[i]);
        kv_unref(engine.pool, ids[0]);
    }
    assert_true(waits(0));
    assert_int_equal(tier.n_begun, 5);
    assert_true(block_hash_equal(&tier.begun[0].hash, &hashes[2]));
    assert_true(block_hash_equal(&tier.begun[4].hash, &hashes[8]));
    assert_int_equal(kv_available(engine.pool), N_BLOCKS - 9);
    tier.n_done = 5;
    worker_disk_turn(&engine);
    assert_int_equal(kv_peek(engine.pool, hashes, PROMPT_BLOCKS), 9);
}

/* ---- saving ---- */

static void cached_blocks_are_saved_a_few_at_a_time(void **state)
{
    struct kv_pool_counts counts;

    cache(PROMPT_BLOCKS);
    worker_disk_turn(&engine);
    assert_int_equal(tier.n_begun, N_BLOCKS / 8);
    assert_int_equal(kv_available(engine.pool), N_BLOCKS - N_BLOCKS / 8); /* leased during the write */
    tier.n_done = tier.n_begun;
    worker_disk_turn(&engine);
    tier.n_done = tier.n_begun;
    worker_disk_turn(&engine);
    assert_int_equal(tier.n_writes, PROMPT_BLOCKS); /* each once */
    kv_pool_counts(engine.pool, &counts);
    assert_int_equal(counts.n_writeback, 0);
    assert_int_equal(counts.n_cached, PROMPT_BLOCKS);
}

static void blocks_that_cannot_be_saved_stay_cached(void **state)
{
    struct kv_pool_counts counts;

    cache(4);
    tier.write_with = E_CLOSED; /* the tier is resting */
    worker_disk_turn(&engine);
    worker_disk_turn(&engine);
    assert_int_equal(tier.n_writes, 1); /* tried once, then paused */
    kv_pool_counts(engine.pool, &counts);
    assert_int_equal(counts.n_cached, 4);
    assert_int_equal(counts.n_writeback, 4);
}

static void blocks_that_failed_are_tried_again(void **state)
{
    cache(1);
    worker_disk_turn(&engine);
    tier.begun[0].result = E_FULL;
    tier.n_done = 1;
    worker_disk_turn(&engine);
    assert_int_equal(tier.n_writes, 2);
}

static void a_tier_that_rests_is_offered_nothing(void **state)
{
    tier.rests = true;
    cache(4);
    worker_disk_turn(&engine);
    assert_int_equal(tier.n_writes, 0);
    tier.rests = false;
    worker_disk_turn(&engine);
    assert_int_equal(tier.n_writes, 4);
}

static void blocks_are_saved_for_whom_they_count(void **state)
{
    kv_block_id id;

    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(kv_take_for(engine.pool, i < 2 ? tenant_number("team") : KV_TENANT_NONE, 1, &id), 0);
        kv_seal(engine.pool, id, &hashes[i]);
        kv_unref(engine.pool, id);
        worker_disk_turn(&engine);
        assert_int_equal(tier.n_writes, i + 1);
        assert_true(tier.written_for == (i < 2 ? tenant_number("team") : KV_TENANT_NONE));
    }
}

static void blocks_without_room_on_disk_are_not_offered_again(void **state)
{
    struct kv_pool_counts counts;

    tier.write_with = E_FULL;
    cache(3);
    worker_disk_turn(&engine);
    worker_disk_turn(&engine);
    assert_int_equal(tier.n_writes, 3);
    kv_pool_counts(engine.pool, &counts);
    assert_int_equal(counts.n_cached, 3);
    assert_int_equal(counts.n_writeback, 0);
}

static void use(uint32_t n)
{
    kv_block_id ids[PROMPT_BLOCKS];

    assert_int_equal(kv_match(engine.pool, hashes, n, ids), n);
    while (n > 0)
        kv_unref(engine.pool, ids[--n]);
}

static void dropped_blocks_are_saved_at_their_next_use(void **state)
{
    cache(2);
    worker_disk_turn(&engine);
    put_on_disk(2);
    tier.n_done = tier.n_begun;
    worker_disk_turn(&engine);
    use(2);
    worker_disk_turn(&engine);
    assert_int_equal(tier.n_writes, 2);
    tier.n_there = 1;
    tier.opts.on_block(tier.opts.on_block_arg, &hashes[1], false);
    worker_disk_turn(&engine);
    assert_int_equal(tier.n_writes, 2); /* not before */
    use(2);
    worker_disk_turn(&engine);
    assert_int_equal(tier.n_writes, 3);
    assert_true(block_hash_equal(&tier.begun[2].hash, &hashes[1]));
}

/* The disk was full of other tenants' blocks, or the segment left while the block was written. */
static void blocks_that_found_no_room_are_offered_at_their_next_use(void **state)
{
    tier.write_with = E_FULL;
    cache(1);
    worker_disk_turn(&engine);
    tier.write_with = 0;
    worker_disk_turn(&engine);
    assert_int_equal(tier.n_writes, 1);
    use(1);
    worker_disk_turn(&engine);
    assert_int_equal(tier.n_writes, 2);
    tier.n_done = tier.n_begun; /* written, and not on disk */
    worker_disk_turn(&engine);
    use(1);
    worker_disk_turn(&engine);
    assert_int_equal(tier.n_writes, 3);
}

/* ---- events for routers ---- */

/* Checks the next message to routers: these events,
 * or a snapshot of these blocks; tiers of hashes[from..) as letters. */
static void assert_reported(bool is_snapshot, uint32_t from, const char *tiers)
{
    struct report *report;
    size_t n = strlen(tiers);

    if (is_snapshot)
        worker_publish_all(&engine, 0, 100);
    else
        worker_publish_flush(&engine);
    report = mailbox_receive(engine.reports);
    if (n == 0 && !is_snapshot) {
        assert_null(report);
        return;
    }
    assert_non_null(report);
    assert_int_equal(report->is_snapshot, is_snapshot);
    assert_int_equal(report->n_events, n);
    for (uint32_t i = 0; i < n; i++) {
        enum block_tier wanted = tiers[i] == 'm'   ? BLOCK_IN_MEMORY
                                 : tiers[i] == 'd' ? BLOCK_ON_DISK
                                                   : BLOCK_GONE;

        assert_int_equal(report->events[i].tier, wanted);
        assert_true(block_hash_equal(&report->events[i].hash, &hashes[from + i]));
    }
    report_free(report);
}

static void tier_reports(uint32_t at, bool is_here)
{
    tier.opts.on_block(tier.opts.on_block_arg, &hashes[at], is_here);
}

static void evicted_blocks_are_on_disk_if_they_were_saved(void **state)
{
    tier.write_with = E_EXISTS;
    cache(4);
    assert_reported(false, 0, "mmmm");
    put_on_disk(3);
    for (uint32_t i = 0; i < 4; i++)
        tier_reports(i, true); /* saved while in memory: no event */
    assert_reported(false, 0, "");
    kv_clear(engine.pool);
    assert_reported(false, 0, "dddg");
}

static void blocks_dropped_by_the_disk_are_gone_unless_memory_has_them(void **state)
{
    tier.write_with = E_EXISTS;
    put_on_disk(2);
    cache(1);
    assert_reported(false, 0, "m");
    tier.n_there = 0; /* its file was evicted */
    tier_reports(0, false);
    tier_reports(1, false);
    assert_reported(false, 1, "g");
    kv_clear(engine.pool);
    assert_reported(false, 0, "g");
    tier_reports(0, true); /* written, but memory lost it meanwhile */
    assert_reported(false, 0, "d");
}

static void blocks_read_back_are_in_memory(void **state)
{
    put_on_disk(1);
    assert_true(waits(0));
    tier.n_done = 1;
    worker_disk_turn(&engine);
    assert_reported(false, 0, "m");
    kv_clear(engine.pool);
    assert_reported(false, 0, "d");
}

/* The disk's blocks first, then the pool's, which override them. */
static void a_snapshot_has_both_tiers(void **state)
{
    struct report *report;

    tier.write_with = E_EXISTS;
    put_on_disk(3);
    assert_reported(true, 0, "ddd"); /* a restart: no block is in memory */
    cache(2);
    worker_publish_all(&engine, 1, 100);
    report = mailbox_receive(engine.reports); /* the events before it */
    assert_int_equal(report->n_events, 2);
    assert_int_equal(report->first_event, 1);
    report_free(report);
    report = mailbox_receive(engine.reports);
    assert_int_equal(report->number, 1);
    assert_int_equal(report->first_event, 3);
    assert_int_equal(report->n_events, 5);
    for (uint32_t i = 0; i < 5; i++)
        assert_int_equal(report->events[i].tier, i < 3 ? BLOCK_ON_DISK : BLOCK_IN_MEMORY);
    report_free(report);
    worker_publish_all(&engine, 1, 2); /* a router with many workers */
    report = mailbox_receive(engine.reports);
    assert_int_equal(report->n_events, 4);
    report_free(report);
}

static void tasks_may_outlive_the_tier(void **state)
{
    put_on_disk(9);
    assert_true(waits(0));
    tier.n_done = tier.n_begun;
    worker_disk_close(&engine);
    worker_disk_stop_waiting(&engine, &tasks[0]);
    assert_int_equal(tasks[0].disk_read, 0);
    for (uint32_t i = 0; i < tier.n_begun; i++) {
        kv_unlease(engine.pool, tier.begun[i].id);
        kv_unref(engine.pool, tier.begun[i].id);
    }
    tier = (struct kv_tier){.read_ns = NS_PER_US};
    worker_disk_open(&engine);
}

static void a_broken_store_is_done_without(void **state)
{
    worker_disk_close(&engine);
    engine.opts.disk.path = "broken";
    worker_disk_open(&engine);
    assert_null(engine.disk);
    put_on_disk(9);
    assert_false(waits(0));
    worker_disk_turn(&engine);
    worker_disk_tick(&engine, clock_now_ns());
    engine.opts.disk.path = "played";
    worker_disk_open(&engine);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {T(a_prompt_waits_for_what_is_on_disk),
                                       T(the_last_token_is_fed_in_any_case),
                                       T(computing_is_quicker_sometimes),
                                       T(tasks_without_blocks_to_read_do_not_wait),
                                       T(equal_prompts_wait_for_the_same_reads),
                                       T(reads_that_fail_or_break_cost_only_themselves),
                                       T(a_slow_disk_is_not_waited_for),
                                       T(reads_leave_most_of_the_pool),
                                       T(blocks_that_a_peer_fetches_are_read),
                                       T(a_loan_waits_no_longer_than_it_should),
                                       T(a_read_does_not_evict_the_beginning_that_it_completes),
                                       T(a_late_read_holds_the_beginning_no_longer),
                                       T(a_read_leaves_out_what_the_pool_has),
                                       T(cached_blocks_are_saved_a_few_at_a_time),
                                       T(blocks_that_cannot_be_saved_stay_cached),
                                       T(blocks_that_failed_are_tried_again),
                                       T(a_tier_that_rests_is_offered_nothing),
                                       T(blocks_are_saved_for_whom_they_count),
                                       T(blocks_without_room_on_disk_are_not_offered_again),
                                       T(dropped_blocks_are_saved_at_their_next_use),
                                       T(blocks_that_found_no_room_are_offered_at_their_next_use),
                                       T(evicted_blocks_are_on_disk_if_they_were_saved),
                                       T(blocks_dropped_by_the_disk_are_gone_unless_memory_has_them),
                                       T(blocks_read_back_are_in_memory),
                                       T(a_snapshot_has_both_tiers),
                                       T(tasks_may_outlive_the_tier),
                                       T(a_broken_store_is_done_without)};
#undef T
    return cmocka_run_group_tests(tests, NULL, NULL);
}
