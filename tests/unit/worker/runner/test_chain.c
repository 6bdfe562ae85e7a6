/* SPDX-License-Identifier: Apache-2.0 */
/* The hashes of a prompt are computed once: a task first fetches from a peer, then reads from disk (the test
 * simulates the tier), then becomes a sequence.  The linker counts the hashed blocks (-Wl,--wrap). */
#include "tests/unit/check.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "cache/kv/pool_cache.h"
#include "cache/kv/tier.h"
#include "compute/engine/engine_sim.h"
#include "proto/capabilities.h"
#include "worker/runner/disk_priv.h"
#include "worker/runner/transfers_priv.h"

enum { N_POOL = 64, TOKENS = 16, N_TOKENS = 400, N_HASHES = N_TOKENS / TOKENS, N_STORED = 5 };

/* ---- counted calls ---- */

static size_t n_hashed;

void __real_prefix_roots_extend(const struct prefix_roots *roots, struct prefix_chain *chain,
                                size_t n_blocks);
void __wrap_prefix_roots_extend(const struct prefix_roots *roots, struct prefix_chain *chain,
                                size_t n_blocks);
size_t __real_prefix_roots_chain(const struct prefix_roots *roots, const uint32_t *tokens, size_t n_tokens,
                                 uint32_t block_tokens, struct block_hash *hashes_out);
size_t __wrap_prefix_roots_chain(const struct prefix_roots *roots, const uint32_t *tokens, size_t n_tokens,
                                 uint32_t block_tokens, struct block_hash *hashes_out);

void __wrap_prefix_roots_extend(const struct prefix_roots *roots, struct prefix_chain *chain, size_t n_blocks)
{
    n_hashed += n_blocks > chain->n ? n_blocks - chain->n : 0;
    __real_prefix_roots_extend(roots, chain, n_blocks);
}

size_t __wrap_prefix_roots_chain(const struct prefix_roots *roots, const uint32_t *tokens, size_t n_tokens,
                                 uint32_t block_tokens, struct block_hash *hashes_out)
{
    n_hashed += n_tokens / block_tokens;
    return __real_prefix_roots_chain(roots, tokens, n_tokens, block_tokens, hashes_out);
}

/* ---- the simulated tier: it has N_STORED blocks, and reads at once ---- */

struct kv_tier {
    struct kv_tier_event done[N_POOL];
    uint32_t n_done, n_polled;
};
static struct kv_tier tier;
static struct block_hash stored[N_HASHES];

int kv_tier_open(const struct kv_tier_opts *opts, struct fault *fault, struct kv_tier **out)
{
    tier = (struct kv_tier){0};
    *out = &tier;
    return 0;
}

void kv_tier_close(struct kv_tier *self)
{
}

bool kv_tier_has(const struct kv_tier *self, const struct block_hash *hash)
{
    for (uint32_t i = 0; i < N_STORED; i++)
        if (block_hash_equal(&stored[i], hash))
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

void kv_tier_each(const struct kv_tier *self, uint32_t most,
                  void (*visit)(void *arg, const struct block_hash *hash), void *arg)
{
}

int kv_tier_write(struct kv_tier *self, kv_tenant tenant, kv_block_id id, const struct block_hash *hash,
                  uint64_t wanted_unix_ns)
{
    return E_EXISTS;
}

bool kv_tier_rests(const struct kv_tier *self, uint64_t now_ns)
{
    return false;
}

int kv_tier_read(struct kv_tier *self, kv_block_id id, const struct block_hash *hash, void *user)
{
    self->done[self->n_done++] =
        (struct kv_tier_event){.kind = KV_TIER_READ, .id = id, .hash = *hash, .user = user};
    return 0;
}

bool kv_tier_poll(struct kv_tier *self, struct kv_tier_event *out)
{
    if (self->n_polled == self->n_done)
        return false;
    *out = self->done[self->n_polled++];
    return true;
}

void kv_tier_expire(struct kv_tier *self)
{
}

void kv_tier_counts(const struct kv_tier *self, struct kv_tier_counts *out)
{
    *out = (struct kv_tier_counts){0};
}

uint64_t kv_tier_read_ns(const struct kv_tier *self, uint32_t n_blocks)
{
    return n_blocks;
}

/* ---- one worker ---- */

static struct worker_engine engine;
static struct metrics *metrics;
static uint32_t n_pool = N_POOL, context = 1024;

static void open_sched(const struct kv_layout *layout)
{
    struct engine_sim_opts sim = {.vocab_size = 300,
                                  .stop_id = TOKEN_NONE,
                                  .context_length = context,
                                  .max_batch_tokens = 128,
                                  .layout = *layout,
                                  .n_blocks = n_pool};
    struct kv_pool_opts pool = {.n_blocks = n_pool, .block_tokens = TOKENS};
    struct sched_opts sched = {.engine = &engine.opts.engine,
                               .max_seqs = 8,
                               .max_queue = 8,
                               .chunk_tokens = 32,
                               .events = worker_task_events(),
                               .events_arg = &engine};

    assert_int_equal(engine_sim_new(&sim, &engine.opts.engine), 0);
    assert_int_equal(kv_pool_new(&pool, &engine.pool), 0);
    sched.pool = engine.pool;
    assert_int_equal(sched_new(&sched, &engine.sched), 0);
}

static int open_worker(void **state)
{
    struct kv_layout layout = {
        .n_layers = 2, .n_kv_heads = 1, .k_dim = 32, .v_dim = 32, .type = KV_F16, .block_tokens = TOKENS};

    log_set_level(LOG_LEVEL_ERROR);
    memset(&engine, 0, sizeof(engine));
    assert_int_equal(metrics_new(&metrics), 0);
    engine.opts.metrics = metrics;
    engine.opts.n_blocks = n_pool;
    engine.opts.max_queue = 8;
    engine.opts.max_seqs = 8;
    engine.opts.disk.path = "played";
    engine.peer_is_up[0] = true;
    engine.peers[0].capabilities = capabilities_own();
    engine.m_computed = engine.m_reused = engine.m_transferred = engine.m_drawn = engine.m_preempted =
        metric_single(metrics, METRIC_COUNTER, "test_total", "Test.");
    assert_int_equal(mailbox_new(1024, &engine.reports), 0);
    assert_int_equal(mailbox_new(1024, &engine.commands), 0);
    assert_int_equal(worker_tasks_open(&engine), 0);
    assert_int_equal(worker_transfers_open(&engine), 0);
    open_sched(&layout);
    worker_disk_open(&engine);
    assert_non_null(engine.disk);
    return 0;
}

static int close_worker(void **state)
{
    struct report *report;

    worker_disk_turn(&engine);
    worker_transfers_close(&engine);
    sched_free(engine.sched);
    worker_tasks_close(&engine);
    worker_disk_close(&engine);
    kv_pool_free(engine.pool);
    while ((report = mailbox_receive(engine.reports)) != NULL)
        report_free(report);
    report_free(engine.pending[0]);
    mailbox_free(engine.reports);
    mailbox_free(engine.commands);
    engine_free(&engine.opts.engine);
    metrics_free(metrics);
    return 0;
}

static const struct task_key key = {.router_epoch = 9, .request = 1};

static void submit(uint32_t owner, uint32_t score_from)
{
    struct task_spec spec = {.key = key,
                             .mode = TASK_LOCAL,
                             .order = {.n_tokens = N_TOKENS,
                                       .n_prompt = N_TOKENS,
                                       .work = {.max_new_tokens = 4,
                                                .score_from = score_from,
                                                .public_tokens = 3 * TOKENS,
                                                .sample = {.temperature = 1, .top_p = 1, .seed = 5}}},
                             .owner = owner,
                             .owner_tokens = N_TOKENS,
                             .ask_limit_ns = NS_PER_S};
    struct prefix_roots roots;

    spec.order.tokens = calloc(N_TOKENS, sizeof(*spec.order.tokens));
    for (uint32_t i = 0; i < N_TOKENS; i++)
        spec.order.tokens[i] = i * 7 % 300;
    assert_int_equal(prefix_roots_derive(engine.opts.prefix_key, "", "", 3 * TOKENS, &roots), 0);
    __real_prefix_roots_chain(&roots, spec.order.tokens, N_TOKENS, TOKENS, stored);
    n_hashed = 0;
    worker_tasks_submit(&engine, &spec);
}

static enum task_state state_now(void)
{
    const struct task *task = worker_engine_task(&engine, &key);

    return task != NULL ? task->state : TASK_OVER;
}

static void refuse_fetch(void)
{
    struct report *report = mailbox_receive(engine.reports);

    assert_non_null(report);
    assert_int_equal(report->peer.n_hashes, N_HASHES - 1);
    assert_memory_equal(report->peer.hashes, stored, (N_HASHES - 1) * sizeof(stored[0]));
    worker_prefix_fetch_refused(&engine, 0, report->peer.fetch);
    report_free(report);
}

static void run_to_the_end(void)
{
    for (int i = 0; i < 100 && state_now() != TASK_OVER; i++)
        assert_true(sched_run_step(engine.sched) >= 0);
    assert_int_equal(state_now(), TASK_OVER);
    assert_int_equal(kv_peek(engine.pool, stored, N_HASHES), N_HASHES); /* sealed under the same hashes */
}

/* ---- long prompts ---- */

enum { SLICE = 65536, LONG = 3 * SLICE + 1000, LESS_LONG = SLICE + 16, MAX_LONG = 8 };

static int open_large_worker(void **state)
{
    n_pool = 2 * LONG / TOKENS;
    context = LONG + 1000;
    return open_worker(state);
}

static int close_large_worker(void **state)
{
    int rc = close_worker(state);

    n_pool = N_POOL;
    context = 1024;
    return rc;
}

static void submit_long(uint64_t request, uint32_t n_tokens, enum task_mode mode)
{
    struct task_spec spec = {
        .key = {.router_epoch = 9, .request = request},
        .mode = mode,
        .order = {.n_tokens = n_tokens,
                  .n_prompt = n_tokens,
                  .work = {.max_new_tokens = 4, .sample = {.top_p = 1, .seed = request}}},
        .owner = PEER_NONE};

    spec.order.tokens = calloc(n_tokens, sizeof(*spec.order.tokens));
    for (uint32_t i = 0; i < n_tokens; i++)
        spec.order.tokens[i] = (i * 7 + (uint32_t)request) % 300;
    worker_tasks_submit(&engine, &spec);
}

static enum task_state state_of(uint64_t request)
{
    const struct task_key long_key = {.router_epoch = 9, .request = request};
    const struct task *task = worker_engine_task(&engine, &long_key);

    return task != NULL ? task->state : TASK_OVER;
}

/* ---- tests ---- */

static void fetch_disk_and_sequence_share_one_chain(void **state)
{
    submit(0, 0);
    assert_int_equal(state_now(), TASK_FETCHING);
    refuse_fetch();
    assert_int_equal(state_now(), TASK_READING);
    worker_disk_turn(&engine);
    assert_int_equal(state_now(), TASK_SCHEDULED);
    assert_int_equal(kv_peek(engine.pool, stored, N_HASHES), N_STORED);
    assert_int_equal(n_hashed, N_HASHES);
    run_to_the_end();
    assert_int_equal(n_hashed, N_HASHES);
}

static void a_sequence_alone_hashes_once(void **state)
{
    submit(PEER_NONE, 1); /* prompt logprobs: no fetch and no read */
    assert_int_equal(state_now(), TASK_SCHEDULED);
    assert_int_equal(n_hashed, N_HASHES);
    run_to_the_end();
}

static void a_cancelled_wait_frees_the_chain(void **state)
{
    submit(0, 0);
    assert_int_equal(state_now(), TASK_FETCHING);
    worker_tasks_cancel(&engine, &key);
    assert_int_equal(state_now(), TASK_OVER);
    assert_int_equal(n_hashed, N_HASHES);
    worker_transfers_tick(&engine, clock_now_ns());
}

static void a_long_prompt_is_hashed_in_slices_and_shorter_ones_pass(void **state)
{
    n_hashed = 0;
    submit_long(1, LONG, TASK_LOCAL);
    assert_int_equal(state_of(1), TASK_HASHING);
    assert_int_equal(n_hashed, 0); /* submitting hashes nothing */
    submit_long(2, LESS_LONG, TASK_LOCAL);
    submit_long(3, 100, TASK_LOCAL);
    assert_int_equal(state_of(3), TASK_SCHEDULED);
    n_hashed = 0;
    for (uint32_t i = 1; i <= 6; i++) {
        size_t before = n_hashed;

        assert_true(worker_hashing_turn(&engine) == (i < 6));
        assert_true(n_hashed - before <= SLICE / TOKENS);
        assert_int_equal(state_of(2), i < 4 ? TASK_HASHING : TASK_SCHEDULED);
        assert_int_equal(state_of(1), i < 6 ? TASK_HASHING : TASK_SCHEDULED);
    }
    assert_int_equal(n_hashed,
                     LONG / TOKENS + LESS_LONG / TOKENS); /* none twice, none left to the sequence */
    assert_false(worker_hashing_turn(&engine));
    for (int i = 0; i < 20000 && state_of(1) != TASK_OVER; i++)
        assert_true(sched_run_step(engine.sched) >= 0);
    assert_int_equal(state_of(1), TASK_OVER);
}

static void a_decode_task_that_hashes_may_be_told_to_proceed(void **state)
{
    const struct task_key long_key = {.router_epoch = 9, .request = 1};

    submit_long(1, LESS_LONG, TASK_DECODE);
    assert_int_equal(state_of(1), TASK_HASHING);
    worker_tasks_proceed(&engine, 0, &long_key);
    while (worker_hashing_turn(&engine))
        ;
    assert_int_equal(state_of(1), TASK_SCHEDULED);
    for (int i = 0; i < 20000 && state_of(1) != TASK_OVER; i++)
        assert_true(sched_run_step(engine.sched) >= 0);
    assert_int_equal(state_of(1), TASK_OVER);
}

static void waiting_for_hashes_is_bounded_and_can_be_cancelled(void **state)
{
    const struct task_key first = {.router_epoch = 9, .request = 1};

    for (uint64_t request = 1; request <= MAX_LONG + 1; request++)
        submit_long(request, LONG, TASK_LOCAL);
    assert_int_equal(engine.n_hashing, MAX_LONG);
    assert_int_equal(state_of(MAX_LONG + 1), TASK_OVER);
    assert_true(worker_hashing_turn(&engine));
    worker_tasks_cancel(&engine, &first);
    assert_int_equal(state_of(1), TASK_OVER);
    assert_int_equal(engine.n_hashing, MAX_LONG - 1);
    submit_long(20, 100, TASK_LOCAL);
    assert_int_equal(state_of(20), TASK_SCHEDULED); /* a short prompt needs no place in that line */
    worker_tasks_router_down(&engine, 0, 0);
    assert_int_equal(engine.n_hashing, 0);
    assert_false(worker_hashing_turn(&engine));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_long_prompt_is_hashed_in_slices_and_shorter_ones_pass,
                                        open_large_worker, close_large_worker),
        cmocka_unit_test_setup_teardown(a_decode_task_that_hashes_may_be_told_to_proceed, open_large_worker,
                                        close_large_worker),
        cmocka_unit_test_setup_teardown(waiting_for_hashes_is_bounded_and_can_be_cancelled, open_large_worker,
                                        close_large_worker),
        cmocka_unit_test_setup_teardown(fetch_disk_and_sequence_share_one_chain, open_worker, close_worker),
        cmocka_unit_test_setup_teardown(a_sequence_alone_hashes_once, open_worker, close_worker),
        cmocka_unit_test_setup_teardown(a_cancelled_wait_frees_the_chain, open_worker, close_worker),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
