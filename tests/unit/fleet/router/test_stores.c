/* SPDX-License-Identifier: Apache-2.0 */
/* The router's use of STORE_BLOCKS: one worker's report of blocks in a shared store counts for every worker that reports this
 * store. */
#include "tests/unit/check.h"

#include <string.h>

#include "base/clock.h"
#include "rig.h"

#define N_TOKENS 500
#define N_BLOCKS 15 /* full blocks before the last token */
#define STORE    UINT64_C(0x1234567890abcdef)

static struct rig rig;
static struct link *d0, *d1;
static struct block_hash hashes[N_BLOCKS];

static void beat(struct link *link, uint64_t store, bool is_draining)
{
    Baton__LoadReport load = BATON__LOAD_REPORT__INIT;

    load.blocks_free = load.blocks_total = 1000;
    load.is_draining = is_draining;
    load.store = store;
    load.store_bytes_per_s = store != 0 ? 1e9 : 0;
    load.store_ask_ns = 1000;
    rig_beat(&rig, link, &load);
}

/* One request gives the router the prompt's hashes.  d0 had the prompt and drains; d1 has none of it. */
static int open_rig(void **state)
{
    struct rig_client *client;
    int rc = rig_open(&rig);

    (void)state;
    rig.conf.prefix_fetch = PICKER_FETCH_OFF;
    rig.has_same_prompts = true;
    rig.conf.index_lifetime_ns = 3600 * NS_PER_S;
    if (rc < 0)
        return rc;
    d0 = rig_worker(&rig, "d0", PICKER_DECODE, 1, 1000);
    client = rig_submit(&rig, N_TOKENS, 20);
    memcpy(hashes, job_of(client->handle)->hashes, sizeof(hashes));
    rig_finish(&rig, d0, BATON__FINISH__FINISH_STOP, 0);
    d1 = rig_worker(&rig, "d1", PICKER_DECODE, 2, 1000);
    beat(d0, STORE, true);
    beat(d1, STORE, false);
    return 0;
}

static int close_rig(void **state)
{
    (void)state;
    rig_close(&rig);
    return 0;
}

static void worker_send_store_blocks(struct link *link, uint64_t store, uint32_t n, const uint8_t *there)
{
    Baton__StoreBlocks blocks = BATON__STORE_BLOCKS__INIT;
    uint8_t all[N_BLOCKS];

    memset(all, 1, sizeof(all));
    blocks.store = store;
    blocks.hashes.data = (uint8_t *)hashes;
    blocks.hashes.len = n * sizeof(hashes[0]);
    blocks.there.data = there != NULL ? (uint8_t *)(uintptr_t)there : all;
    blocks.there.len = n;
    rig_store(&rig, link, &blocks);
}

/* How many tokens of the prompt d1 is expected to read from the store. */
static uint32_t expect_read(void)
{
    struct rig_client *client = rig_submit(&rig, N_TOKENS, 20);
    const struct picker_choice *estimate = &job_of(client->handle)->estimate;
    uint32_t n_read = estimate->reads_store ? estimate->read_tokens : 0,
             slot = job_of(client->handle)->decode.slot;

    assert_true((estimate->read_s > 0) == (n_read > 0));
    assert_int_equal(estimate->uncached_tokens + n_read, N_TOKENS);
    rig_cancel(client);
    picker_index_forget(rig.router.index, slot); /* it computed nothing */
    return n_read;
}

static void one_worker_tells_for_all(void **state)
{
    (void)state;
    assert_int_equal(expect_read(), 0);
    worker_send_store_blocks(d0, STORE, N_BLOCKS, NULL);
    assert_int_equal(router_stores_count(&rig.router), N_BLOCKS);
    assert_int_equal(expect_read(), N_BLOCKS * 32);
    beat(d1, 0, false); /* its store is away */
    assert_int_equal(expect_read(), 0);
    beat(d1, STORE, false);
    assert_int_equal(expect_read(), N_BLOCKS * 32);
    beat(d1, STORE + 1, false); /* another store */
    assert_int_equal(expect_read(), 0);
}

static void a_gap_ends_the_prefix(void **state)
{
    uint8_t there[N_BLOCKS];

    (void)state;
    memset(there, 1, sizeof(there));
    there[5] = 0;
    worker_send_store_blocks(d0, STORE, N_BLOCKS, NULL);
    worker_send_store_blocks(d1, STORE, N_BLOCKS, there);
    assert_int_equal(router_stores_count(&rig.router), N_BLOCKS - 1);
    assert_int_equal(expect_read(), 5 * 32);
    worker_send_store_blocks(d0, STORE, 6, NULL); /* written again */
    assert_int_equal(expect_read(), N_BLOCKS * 32);
    memset(there, 0, sizeof(there));
    worker_send_store_blocks(d0, STORE, 1, there); /* a prompt's first block was not found */
    assert_int_equal(expect_read(), 0);
}

static void a_store_without_a_name_is_none(void **state)
{
    (void)state;
    worker_send_store_blocks(d0, 0, N_BLOCKS, NULL);
    assert_int_equal(router_stores_count(&rig.router), 0);
    assert_int_equal(expect_read(), 0);
}

/* More stores than there is room for: the first ones stay while a worker uses them. */
static void too_many_stores_are_left_out(void **state)
{
    (void)state;
    worker_send_store_blocks(d0, STORE, N_BLOCKS, NULL);
    for (uint64_t i = 1; i < 100; i++)
        worker_send_store_blocks(d0, STORE + i, N_BLOCKS, NULL);
    assert_int_equal(expect_read(), N_BLOCKS * 32);
    worker_send_store_blocks(d0, STORE, N_BLOCKS, NULL);
    assert_int_equal(expect_read(), N_BLOCKS * 32);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(one_worker_tells_for_all, open_rig, close_rig),
        cmocka_unit_test_setup_teardown(a_gap_ends_the_prefix, open_rig, close_rig),
        cmocka_unit_test_setup_teardown(a_store_without_a_name_is_none, open_rig, close_rig),
        cmocka_unit_test_setup_teardown(too_many_stores_are_left_out, open_rig, close_rig),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
