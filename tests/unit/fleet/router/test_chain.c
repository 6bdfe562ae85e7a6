/* SPDX-License-Identifier: Apache-2.0 */
/* How much of a prompt's chain is hashed before its placement: enough to place it as with all of it.  The
 * rest is hashed before the next placement.  A long prompt takes many turns of the loop. */
#include "tests/unit/check.h"

#include <string.h>

#include "base/clock.h"
#include "base/rng.h"
#include "rig.h"

#define N_BLOCKS 100
#define N_TOKENS (32 * N_BLOCKS + 5)

static struct rig rig;
static struct link *workers[2];
static struct block_hash whole[N_BLOCKS];

static struct prefix_roots roots_of(const struct job *job)
{
    struct prefix_roots roots;

    assert_int_equal(prefix_roots_derive(rig.router.prefix_key, job->model->gen.fingerprint,
                                         job->order.work.tenant, job->order.work.public_tokens, &roots),
                     0);
    return roots;
}

static int open_rig(void **state)
{
    int rc = rig_open(&rig);
    struct rig_client *client;
    struct prefix_roots roots;

    picker_index_free(rig.router.index); /* an index with a longer lifetime than a busy machine needs */
    if (rc < 0 || picker_index_new(1000, 3600 * NS_PER_S, &rig.router.index) < 0)
        return -1;
    rig.has_same_prompts = true;
    rig.conf.local_prefill_tokens = 1000000;
    workers[0] = rig_worker(&rig, "d0", PICKER_DECODE, 1, 10000);
    client = rig_submit(&rig, N_TOKENS, 20);
    roots = roots_of(job_of(client->handle));
    prefix_roots_chain(&roots, job_of(client->handle)->order.tokens, N_TOKENS, 32, whole);
    return 0;
}

static int close_rig(void **state)
{
    rig_close(&rig);
    return 0;
}

/* Sends the first prompt; the others of these tests have its prefix. */
static struct job *first(void)
{
    return job_of(rig.clients[0].handle);
}

static void forget_all(void)
{
    for (uint32_t slot = 0; slot < PICKER_MAX_WORKERS; slot++)
        picker_index_forget(rig.router.index, slot);
    picker_index_sweep(rig.router.index, 10000);
    assert_int_equal(picker_index_count(rig.router.index), 0);
}

static void hashes_without_an_owner_are_computed_later(void **state)
{
    assert_int_equal(first()->n_blocks, N_BLOCKS);
    assert_int_equal(first()->n_hashes, 16);
    assert_int_equal(picker_index_count(rig.router.index), 16);
    (void)router_chains_work(&rig.router);
    assert_int_equal(first()->n_hashes, N_BLOCKS);
    assert_memory_equal(first()->hashes, whole, sizeof(whole));
    assert_int_equal(picker_index_count(rig.router.index), N_BLOCKS);
    (void)router_chains_work(&rig.router); /* there is no more to do */
    assert_int_equal(picker_index_count(rig.router.index), N_BLOCKS);
}

static void the_next_one_finds_all_of_it(void **state)
{
    struct rig_client *second;

    second = rig_submit(&rig, N_TOKENS, 20);
    assert_int_equal(first()->n_hashes, N_BLOCKS);
    assert_int_equal(job_of(second->handle)->n_hashes, N_BLOCKS); /* all of it is known */
    assert_true(list_is_empty(&rig.router.unhashed));
}

/* Compares the prefix matches of each worker, by the job's hashes and by all hashes. */
static void assert_found_alike(const struct job *job, uint32_t n_slots)
{
    static struct picker_found part, all;
    uint64_t now_ns = clock_now_ns();

    memset(&part, 0, sizeof(part));
    memset(&all, 0, sizeof(all));
    picker_index_match(rig.router.index,
                       &(struct picker_query){
                           .hashes = job->hashes, .n = job->n_hashes, .n_slots = n_slots, .now_ns = now_ns},
                       &part);
    picker_index_match(
        rig.router.index,
        &(struct picker_query){.hashes = whole, .n = N_BLOCKS, .n_slots = n_slots, .now_ns = now_ns}, &all);
    assert_memory_equal(part.in_memory, all.in_memory, n_slots * sizeof(part.in_memory[0]));
    assert_int_equal(part.n_runs, all.n_runs);
    for (uint32_t i = 0; i < part.n_runs; i++)
        assert_memory_equal(&part.runs[i], &all.runs[i], sizeof(part.runs[i]));
}

/* For any content of the index, also with gaps, the omitted hashes would not change the choice. */
static void nothing_that_counts_is_left_out(void **state)
{
    struct rng rng;

    rng_init(&rng, 5);
    workers[1] = rig_worker(&rig, "d1", PICKER_DECODE, 2, 10000);
    for (int round = 0; round < 300; round++) {
        struct job job = {.router = &rig.router, .model = first()->model, .order = first()->order};

        (void)router_chains_work(&rig.router);
        forget_all();
        for (int k = 0; k < 3; k++) {
            size_t from = rng_below(&rng, 3) == 0 ? rng_below(&rng, N_BLOCKS) : 0;
            size_t n = rng_below(&rng, N_BLOCKS - from) + 1;
            uint32_t slot = (uint32_t)rng_below(&rng, 2);

            if (rng_below(&rng, 4) == 0)
                picker_index_learn_on_disk(rig.router.index, slot, whole + from, n, clock_now_ns());
            else
                picker_index_learn(rig.router.index, slot, whole + from, n, clock_now_ns());
        }
        job.order.n_prompt = N_TOKENS;
        job.prefill.slot = job.decode.slot = PICKER_NONE;
        list_init(&job.unhashed);
        assert_int_equal(router_chain_begin(&job), 0);
        assert_memory_equal(job.hashes, whole, job.n_hashes * sizeof(whole[0]));
        assert_found_alike(&job, 2);
        list_remove(&job.unhashed);
        free(job.hashes);
    }
}

static void a_job_that_went_is_not_learned(void **state)
{
    rig_cancel(&rig.clients[0]);
    assert_true(list_is_empty(&rig.router.unhashed));
    (void)router_chains_work(&rig.router);
    assert_int_equal(picker_index_count(rig.router.index), 16);
}

/* When sent again, the whole chain is charged and learned; the lost worker learns nothing more. */
static void a_job_that_is_sent_again_is_hashed_whole(void **state)
{
    workers[1] = rig_worker(&rig, "d1", PICKER_DECODE, 2, 10000);
    rig_lose(&rig, workers[0]);
    assert_int_equal(rig_last(workers[1])->n_tokens, N_TOKENS);
    assert_int_equal(first()->n_hashes, N_BLOCKS);
    assert_true(list_is_empty(&rig.router.unhashed));
    for (uint32_t i = 0; i < N_BLOCKS; i++)
        assert_int_equal(picker_index_last_replica(rig.router.index, &whole[i], clock_now_ns()),
                         first()->decode.slot);
}

#define LONG_BLOCKS 5000
#define LONG_TOKENS (32 * LONG_BLOCKS + 5)
#define SLICE       1024

static struct rig_client *submit_long(struct block_hash *hashes_out)
{
    struct rig_client *client;
    struct prefix_roots roots;

    picker_index_free(rig.router.index);
    assert_int_equal(picker_index_new(3 * LONG_BLOCKS, 3600 * NS_PER_S, &rig.router.index), 0);
    client = rig_submit(&rig, LONG_TOKENS, 20);
    roots = roots_of(job_of(client->handle));
    prefix_roots_chain(&roots, job_of(client->handle)->order.tokens, LONG_TOKENS, 32, hashes_out);
    return client;
}

/* Blocks hashed and blocks in the index grow by one slice a call. */
static void a_long_prompt_is_hashed_in_slices(void **state)
{
    static struct block_hash hashes[LONG_BLOCKS];
    const struct job *job = job_of(submit_long(hashes)->handle);
    unsigned n_calls = 0;
    bool has_more = true;

    assert_int_equal(job->n_hashes, 16);
    while (has_more) {
        size_t n_hashed = job->n_hashes, n_known = picker_index_count(rig.router.index);

        has_more = router_chains_work(&rig.router);
        assert_true(job->n_hashes - n_hashed + picker_index_count(rig.router.index) - n_known <=
                    SLICE + N_BLOCKS); /* the first job's are in the first */
        n_calls++;
    }
    assert_in_range(n_calls, 2 * LONG_BLOCKS / SLICE, 2 * LONG_BLOCKS / SLICE + 2);
    assert_int_equal(job->chain, CHAIN_DONE);
    assert_memory_equal(job->hashes, hashes, sizeof(hashes));
    for (size_t i = 0; i < LONG_BLOCKS; i++)
        assert_int_equal(picker_index_last_replica(rig.router.index, &hashes[i], clock_now_ns()),
                         job->decode.slot);
}

/* A prefix longer than a slice is known: the job waits until it is hashed, and short jobs pass it. */
static void a_long_known_prompt_waits_for_its_chain(void **state)
{
    static struct block_hash hashes[LONG_BLOCKS];
    struct rig_client *known = submit_long(hashes), *again, *other;
    uint32_t slot = job_of(known->handle)->decode.slot;
    const struct job *job;

    while (router_chains_work(&rig.router))
        ;
    rig_cancel(known);
    again = rig_submit(&rig, LONG_TOKENS, 20);
    job = job_of(again->handle);
    assert_int_equal(job->state, JOB_QUEUED);
    assert_in_range(job->n_hashes, SLICE, 2 * SLICE + 256); /* one slice at arrival, one in the queue */
    rig.tenant = "another";
    other = rig_submit(&rig, 40, 20);
    assert_int_equal(job_of(other->handle)->state, JOB_PLACED);
    assert_int_equal(job->state, JOB_QUEUED);
    rig.router.places_soon = false;
    for (unsigned i = 0; i < LONG_BLOCKS / SLICE + 1 && !rig.router.places_soon; i++)
        assert_true(router_chains_work(&rig.router) || rig.router.places_soon);
    assert_true(rig.router.places_soon);
    router_place_queued(&rig.router);
    assert_int_equal(job->state, JOB_PLACED);
    assert_int_equal(job->n_hashes, LONG_BLOCKS);
    assert_memory_equal(job->hashes, hashes, sizeof(hashes));
    assert_int_equal(job->decode.slot, slot);
    assert_in_range(job->estimate.uncached_tokens, 1, 64);
    while (router_chains_work(&rig.router))
        ;
    assert_int_equal(job->chain, CHAIN_DONE);
}

/* The queue has no room for it: it is placed with the hashes so far, and the index learns the others. */
static void without_room_to_wait_a_long_known_prompt_is_placed(void **state)
{
    static struct block_hash hashes[LONG_BLOCKS];
    struct rig_client *known = submit_long(hashes), *again;
    uint32_t slot = job_of(known->handle)->decode.slot;
    const struct job *job;

    while (router_chains_work(&rig.router))
        ;
    rig_cancel(known);
    rig.conf.queue_max = 0;
    again = rig_submit(&rig, LONG_TOKENS, 20);
    assert_false(again->has_failed);
    job = job_of(again->handle);
    assert_int_equal(job->state, JOB_PLACED);
    assert_int_equal(job->decode.slot, slot);
    while (router_chains_work(&rig.router))
        ;
    assert_int_equal(job->chain, CHAIN_DONE);
    assert_memory_equal(job->hashes, hashes, sizeof(hashes));
}

static void one_that_goes_while_it_waits_leaves_nothing(void **state)
{
    static struct block_hash hashes[LONG_BLOCKS];
    struct rig_client *again;

    (void)submit_long(hashes);
    while (router_chains_work(&rig.router))
        ;
    again = rig_submit(&rig, LONG_TOKENS, 20);
    assert_false(list_is_empty(&rig.router.unhashed));
    rig_cancel(again);
    assert_true(list_is_empty(&rig.router.unhashed));
    assert_int_equal(rig.router.n_queued, 0);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, open_rig, close_rig)
    static const struct CMUnitTest tests[] = {
        T(hashes_without_an_owner_are_computed_later),
        T(the_next_one_finds_all_of_it),
        T(nothing_that_counts_is_left_out),
        T(a_job_that_went_is_not_learned),
        T(a_job_that_is_sent_again_is_hashed_whole),
        T(a_long_prompt_is_hashed_in_slices),
        T(a_long_known_prompt_waits_for_its_chain),
        T(without_room_to_wait_a_long_known_prompt_is_placed),
        T(one_that_goes_while_it_waits_leaves_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
