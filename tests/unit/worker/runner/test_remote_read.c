/* SPDX-License-Identifier: Apache-2.0 */
/* Prompts that wait for blocks from the shared store: remote.c, around a simulated tier. */
#include "tests/unit/worker/runner/disk_rig.h"

#include "base/err.h"
#include "cache/kv/pool_cache.h"
#include "worker/runner/remote_state_priv.h"

enum { LIFETIME_NS = 100, RUN_BLOCKS = 3 };

struct kv_remote {
    struct kv_remote_event events[64];
    uint32_t n_events, n_polled;
    void *asker; /* of the latest question */
};

static struct kv_remote store;

int kv_remote_open(const struct kv_remote_opts *opts, struct fault *fault, struct kv_remote **out)
{
    store = (struct kv_remote){0};
    *out = &store;
    return 0;
}

void kv_remote_close(struct kv_remote *self)
{
}

bool kv_remote_is_up(const struct kv_remote *self)
{
    return true;
}

bool kv_remote_takes_writes(const struct kv_remote *self)
{
    return false;
}

uint32_t kv_remote_run_blocks(const struct kv_remote *self)
{
    return RUN_BLOCKS;
}

static void tell(struct kv_remote_event event)
{
    assert_true(store.n_events < 64);
    store.events[store.n_events++] = event;
}

int kv_remote_ask(struct kv_remote *self, const struct block_hash *list, uint32_t n, void *user)
{
    self->asker = user;
    return 0;
}

/* The blocks arrive at the next turn. */
int kv_remote_read(struct kv_remote *self, const struct kv_remote_part *part, uint64_t until_ns, void *user)
{
    for (uint32_t i = part->n; i-- > 0;)
        tell((struct kv_remote_event){
            .kind = KV_REMOTE_READ, .id = part->ids[i], .hash = part->hashes[i], .at = i, .user = user});
    return 0;
}

int kv_remote_write(struct kv_remote *self, const struct kv_remote_part *part)
{
    return E_FULL;
}

bool kv_remote_poll(struct kv_remote *self, struct kv_remote_event *out)
{
    if (self->n_polled == self->n_events)
        return false;
    *out = self->events[self->n_polled++];
    return true;
}

void kv_remote_late(struct kv_remote *self)
{
}

void kv_remote_tick(struct kv_remote *self, uint64_t now_ns)
{
}

void kv_remote_counts(const struct kv_remote *self, struct kv_remote_counts *out)
{
    *out = (struct kv_remote_counts){.is_up = true};
}

uint64_t kv_remote_ask_ns(const struct kv_remote *self, uint32_t n_keys)
{
    return NS_PER_US;
}

uint64_t kv_remote_read_ns(const struct kv_remote *self, uint32_t n)
{
    return NS_PER_US;
}

const char *kv_remote_url(const struct kv_remote *self)
{
    return "played";
}

/* ---- the pool's clock, which moves at each look ---- */

static uint64_t pool_ns, step_ns;

static uint64_t pool_now(void)
{
    uint64_t now_ns = pool_ns;

    pool_ns += step_ns;
    return now_ns;
}

static int setup(void **state)
{
    struct kv_pool_opts pool = {
        .n_blocks = N_BLOCKS, .block_tokens = TOKENS, .lifetime_ns = LIFETIME_NS, .now_ns = pool_now};

    disk_rig_open(state);
    pool_ns = step_ns = 0;
    kv_pool_free(engine.pool);
    assert_int_equal(kv_pool_new(&pool, &engine.pool), 0);
    engine.opts.remote.url = "played";
    worker_remote_open(&engine);
    assert_non_null(engine.remote);
    return 0;
}

static int teardown(void **state)
{
    assert_true(list_is_empty(&engine.remote->reads));
    worker_remote_close(&engine);
    return disk_rig_close(state);
}

static void answer(const uint32_t *ends, uint32_t n)
{
    tell((struct kv_remote_event){.kind = KV_REMOTE_ASKED, .ends = ends, .n = n, .user = store.asker});
    worker_remote_turn(&engine);
}

static void cache_block(const struct block_hash *hash)
{
    kv_block_id id;

    assert_int_equal(kv_take(engine.pool, 1, &id), 0);
    kv_seal(engine.pool, id, hash);
    kv_unref(engine.pool, id);
}

static const uint32_t nothing[PROMPT_BLOCKS] = {[0 ... PROMPT_BLOCKS - 1] = REMOTE_NOT_THERE};

static void a_run_may_have_blocks_of_the_pool(void **state)
{
    const uint32_t ends[PROMPT_BLOCKS] = {0, REMOTE_NOT_THERE, 2,
                                          [3 ... PROMPT_BLOCKS - 1] = REMOTE_NOT_THERE};

    cache_block(&hashes[1]);
    assert_true(worker_remote_wait(&engine, &tasks[0]));
    answer(ends, PROMPT_BLOCKS);
    worker_remote_turn(&engine);
    assert_int_equal(kv_peek(engine.pool, hashes, PROMPT_BLOCKS), 3);
}

/* The second look at the pool does not find what the first one found. */
static void a_run_ends_before_a_block_whose_lifetime_ends(void **state)
{
    const uint32_t ends[PROMPT_BLOCKS] = {0, REMOTE_NOT_THERE, 2,
                                          [3 ... PROMPT_BLOCKS - 1] = REMOTE_NOT_THERE};

    cache_block(&hashes[1]);
    assert_true(worker_remote_wait(&engine, &tasks[0]));
    pool_ns = LIFETIME_NS - 1;
    step_ns = 1;
    answer(ends, PROMPT_BLOCKS);
    worker_remote_turn(&engine);
    assert_int_equal(kv_peek(engine.pool, hashes, PROMPT_BLOCKS), 1);
    assert_int_equal(kv_peek(engine.pool, hashes + 1, 2), 0);
}

static void a_question_holds_the_beginning_if_there_is_room(void **state)
{
    cache(5);
    n_running = N_BLOCKS - 4;
    assert_true(worker_remote_wait(&engine, &tasks[0]));
    assert_int_equal(kv_available(engine.pool), N_BLOCKS);
    answer(nothing, PROMPT_BLOCKS);
    n_running = N_BLOCKS - 5;
    assert_true(worker_remote_wait(&engine, &tasks[1]));
    assert_int_equal(kv_available(engine.pool), N_BLOCKS - 5);
    worker_remote_tick(&engine, clock_now_ns());
    assert_int_equal(kv_available(engine.pool), N_BLOCKS - 5);
    answer(nothing, PROMPT_BLOCKS);
    assert_int_equal(kv_available(engine.pool), N_BLOCKS);
}

static void running_sequences_get_the_blocks_that_questions_hold(void **state)
{
    cache(5);
    assert_true(worker_remote_wait(&engine, &tasks[0]));
    assert_int_equal(kv_available(engine.pool), N_BLOCKS - 5);
    n_running = N_BLOCKS - 4;
    worker_remote_tick(&engine, clock_now_ns());
    assert_int_equal(kv_available(engine.pool), N_BLOCKS);
    answer(nothing, PROMPT_BLOCKS);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {T(a_run_may_have_blocks_of_the_pool),
                                       T(a_run_ends_before_a_block_whose_lifetime_ends),
                                       T(a_question_holds_the_beginning_if_there_is_room),
                                       T(running_sequences_get_the_blocks_that_questions_hold)};
#undef T
    return cmocka_run_group_tests(tests, NULL, NULL);
}
