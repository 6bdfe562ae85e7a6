/* SPDX-License-Identifier: Apache-2.0 */
/* The router's use of block events: the owners that it names, the snapshots that it asks for, the last
 * replicas that it reports, and the placement of prompts that are on a disk. */
#include "tests/unit/check.h"

#include <string.h>

#include "base/clock.h"
#include "rig.h"

#define N_TOKENS 500
#define N_BLOCKS 15 /* full blocks before the last token */

static struct rig rig;
static struct link *p0, *p1, *d0, *d1;
static struct block_hash hashes[N_BLOCKS];

static int open_rig(void **state)
{
    int rc = rig_open(&rig);

    picker_index_free(rig.router.index); /* an index with a longer lifetime than a busy machine needs */
    return rc < 0 ? rc : picker_index_new(1000, 3600 * NS_PER_S, &rig.router.index);
}

static int close_rig(void **state)
{
    rig_close(&rig);
    return 0;
}

static void drain(struct link *link, bool is_draining)
{
    Baton__LoadReport load = BATON__LOAD_REPORT__INIT;

    load.blocks_free = load.blocks_total = 1000;
    load.is_draining = is_draining;
    rig_beat(&rig, link, &load);
}

/* Sends one request through p0 and d0; the other workers have none of it. */
static void open_world(void)
{
    struct rig_client *client;

    rig.conf.prefix_fetch = PICKER_FETCH_ALWAYS;
    rig.has_same_prompts = true;
    p0 = rig_worker(&rig, "p0", PICKER_PREFILL, 1, 1000);
    d0 = rig_worker(&rig, "d0", PICKER_DECODE, 2, 1000);
    client = rig_submit(&rig, N_TOKENS, 20);
    assert_true(job_of(client->handle)->n_hashes >= N_BLOCKS);
    memcpy(hashes, job_of(client->handle)->hashes, sizeof(hashes));
    assert_string_equal(rig_last(p0)->owner, "");
    rig_finish(&rig, p0, BATON__FINISH__FINISH_HANDED_OFF, 0);
    rig_finish(&rig, d0, BATON__FINISH__FINISH_STOP, 0);
    p1 = rig_worker(&rig, "p1", PICKER_PREFILL, 3, 1000);
    d1 = rig_worker(&rig, "d1", PICKER_DECODE, 4, 1000);
    drain(p0, true);
    drain(d0, true);
}

static void send_numbered(struct link *link, Baton__BlockEvents *events, uint64_t first, uint32_t n,
                          uint8_t tier)
{
    uint8_t tiers[N_BLOCKS];

    memset(tiers, tier, sizeof(tiers));
    events->first_number = first;
    events->hashes.data = (uint8_t *)hashes;
    events->hashes.len = n * sizeof(hashes[0]);
    events->tiers.data = tiers;
    events->tiers.len = n;
    rig_events(&rig, link, events);
}

static void send_events(struct link *link, uint64_t first, uint32_t n, uint8_t tier)
{
    Baton__BlockEvents events = BATON__BLOCK_EVENTS__INIT;

    send_numbered(link, &events, first, n, tier);
}

static void send_all_in(struct link *link, uint64_t next, uint32_t n, enum block_tier tier)
{
    Baton__BlockEvents events = BATON__BLOCK_EVENTS__INIT;

    events.is_snapshot = events.is_last = true;
    send_numbered(link, &events, next, n, (uint8_t)tier);
}

static void send_all(struct link *link, uint64_t next, uint32_t n)
{
    send_all_in(link, next, n, BLOCK_IN_MEMORY);
}

/* Sends the same prompt again, through p1 and d1. */
static const struct rig_submit *again(void)
{
    struct rig_client *client = rig_submit(&rig, N_TOKENS, 20);

    assert_string_equal(rig_last(d1)->owner, ""); /* it gets everything from p1 */
    rig_cancel(client);
    return rig_last(p1);
}

static void forget_the_others(void)
{
    send_all(p1, 1, 0);
    send_all(d1, 1, 0);
}

static void a_dispatched_prompt_makes_its_worker_an_owner(void **state)
{
    open_world();
    assert_true(strcmp(again()->owner, "p0") == 0 || strcmp(rig_last(p1)->owner, "d0") == 0);
    assert_int_equal(rig_last(p1)->owner_tokens, N_BLOCKS * 32);
}

static void events_say_who_is_asked(void **state)
{
    open_world();
    send_all(p0, 1, 0); /* it has none of it after all */
    send_all(d0, 1, 0);
    assert_string_equal(again()->owner, "");
    forget_the_others();
    send_events(d0, 1, 10, BLOCK_IN_MEMORY);
    assert_string_equal(again()->owner, "d0");
    assert_int_equal(rig_last(p1)->owner_tokens, 320);
    forget_the_others();
    send_events(p0, 1, 12, BLOCK_IN_MEMORY);
    assert_string_equal(again()->owner, "p0");
    forget_the_others();
    send_events(p0, 13, 12, BLOCK_ON_DISK); /* it cannot push blocks on disk */
    assert_string_equal(again()->owner, "d0");
    forget_the_others();
    send_events(p0, 25, 12, BLOCK_GONE);
    assert_string_equal(again()->owner, "d0");
    rig.conf.prefix_fetch = PICKER_FETCH_OFF;
    forget_the_others();
    assert_string_equal(again()->owner, "");
}

static void a_gap_is_followed_by_a_snapshot(void **state)
{
    open_world();
    assert_int_equal(rig_n_wanted(d0), 1); /* its link came up */
    send_events(d0, 1, 5, BLOCK_IN_MEMORY);
    assert_int_equal(rig_n_wanted(d0), 1); /* the snapshot is on its way */
    send_all(d0, 6, 5);
    send_all(p0, 1, 0);
    assert_int_equal(again()->owner_tokens, 160);
    forget_the_others();
    send_events(d0, 7, 15, BLOCK_IN_MEMORY); /* number 6 is missing */
    assert_int_equal(rig_n_wanted(d0), 2);
    assert_int_equal(again()->owner_tokens, 160);
    forget_the_others();
    send_all(d0, 22, 15);
    assert_int_equal(again()->owner_tokens, 480);
    assert_int_equal(rig_n_wanted(d0), 2);
}

static void a_lost_worker_has_nothing(void **state)
{
    open_world();
    send_all(p0, 1, 0);
    send_all(d0, 1, 15);
    assert_string_equal(again()->owner, "d0");
    forget_the_others();
    rig_lose(&rig, d0);
    assert_string_equal(again()->owner, "");
}

static void the_owner_of_the_last_replica_is_informed(void **state)
{
    open_world();
    send_all(p0, 1, 8);
    send_all(d0, 1, 8);
    forget_the_others();
    send_events(p0, 1, 3, BLOCK_GONE);
    assert_int_equal(rig_n_last_replicas(d0), 3);
    assert_int_equal(rig_n_last_replicas(p0), 0);
    send_all(d1, 1, 8);
    send_events(p0, 4, 8, BLOCK_GONE); /* d0 and d1 have them */
    assert_int_equal(rig_n_last_replicas(d0), 3);
    send_events(d0, 1, 8, BLOCK_GONE);
    assert_int_equal(rig_n_last_replicas(d1), 8);
}

/* Blocks on disk cannot be fetched here. */
static void the_owner_of_the_last_replica_in_memory_is_informed(void **state)
{
    open_world();
    send_all(p0, 1, 8);
    send_all(d0, 1, 8);
    forget_the_others();
    send_events(p0, 1, 3, BLOCK_ON_DISK);
    assert_int_equal(rig_n_last_replicas(d0), 3);
    send_all_in(p0, 4, 8, BLOCK_ON_DISK); /* no other worker has them any more */
    assert_int_equal(rig_n_last_replicas(d0), 3);
    send_events(p0, 4, 1, BLOCK_IN_MEMORY);
    send_events(d0, 1, 8, BLOCK_ON_DISK);
    assert_int_equal(rig_n_last_replicas(p0), 1);
}

/* ---- disks ---- */

static void beat_with_disk(struct link *link, double read_bytes_per_s)
{
    Baton__LoadReport load = BATON__LOAD_REPORT__INIT;

    load.blocks_free = load.blocks_total = 1000;
    load.read_bytes_per_s = read_bytes_per_s;
    rig_beat(&rig, link, &load);
}

/* Returns where the prompt goes, and how many of its tokens will be read there. */
static const char *placed(uint32_t *read_out)
{
    struct rig_client *client;
    const char *node;

    send_all(d1, 1, 0); /* otherwise it has the whole prompt, as far as the router knows, and needs no
                         * owner */
    client = rig_submit(&rig, N_TOKENS, 20);
    assert_int_not_equal(job_of(client->handle)->prefill.slot, PICKER_NONE);
    node = rig.router.workers[job_of(client->handle)->prefill.slot].node;
    *read_out = job_of(client->handle)->estimate.read_tokens;
    rig_cancel(client);
    return node;
}

static void a_prompt_goes_where_a_disk_has_it(void **state)
{
    uint32_t n_read;

    open_world();
    for (uint32_t i = 0; i < 2; i++) { /* for either of the two */
        struct link *at = i == 0 ? p0 : p1, *other = i == 0 ? p1 : p0;
        const char *node = i == 0 ? "p0" : "p1";

        beat_with_disk(at, 1e9);
        drain(other, false);
        send_all(d0, 1, 0);
        forget_the_others();
        send_all(other, 1, 0);
        send_all_in(at, 1, N_BLOCKS, BLOCK_ON_DISK); /* it was restarted, and reports its disk */
        assert_int_equal(picker_index_on_disk(rig.router.index), N_BLOCKS);
        assert_string_equal(placed(&n_read), node);
        assert_int_equal(n_read, N_BLOCKS * 32);
        assert_string_equal(rig_last(at)->owner, "");

        send_all_in(at, 1, N_BLOCKS, BLOCK_ON_DISK); /* the router assumed that it was computed there */
        send_all(other, 1, N_BLOCKS / 3 * 2);        /* in memory, and more than half */
        drain(at, false);                            /* without a known disk */
        assert_string_not_equal(placed(&n_read), node);
        assert_int_equal(n_read, 0);
    }
}

static void of_what_is_dropped_nothing_is_hoped_for(void **state)
{
    uint32_t n_read;

    open_world();
    beat_with_disk(p0, 1e9);
    drain(p1, true);
    send_all(d0, 1, 0);
    forget_the_others();
    send_all_in(p0, 1, N_BLOCKS, BLOCK_ON_DISK);
    send_events(p0, 1, 5, BLOCK_IN_MEMORY); /* read back */
    assert_string_equal(placed(&n_read), "p0");
    assert_int_equal(n_read, (N_BLOCKS - 5) * 32);
    send_all_in(p0, 6, N_BLOCKS, BLOCK_ON_DISK);
    send_events(p0, 6, 1, BLOCK_GONE); /* blocks without their prefix cannot be used */
    assert_string_equal(placed(&n_read), "p0");
    assert_int_equal(n_read, 0);
}

static void a_gap_in_what_disks_have_is_followed_by_a_snapshot(void **state)
{
    uint32_t n_read, n_wanted;

    open_world();
    beat_with_disk(p0, 1e9);
    drain(p1, true);
    send_all(d0, 1, 0);
    forget_the_others();
    send_all_in(p0, 1, 5, BLOCK_ON_DISK);
    n_wanted = rig_n_wanted(p0);
    send_events(p0, 3, N_BLOCKS, BLOCK_ON_DISK); /* numbers 1 and 2 are missing */
    assert_int_equal(rig_n_wanted(p0), n_wanted + 1);
    placed(&n_read);
    assert_int_equal(n_read, 5 * 32);
    send_all_in(p0, 18, N_BLOCKS, BLOCK_ON_DISK);
    placed(&n_read);
    assert_int_equal(n_read, N_BLOCKS * 32);
    rig_lose(&rig, p0); /* killed: its blocks are unknown until it reports them again */
    assert_int_equal(picker_index_on_disk(rig.router.index), 0);
    p0 = rig_worker(&rig, "p0", PICKER_PREFILL, 99, 1000);
    beat_with_disk(p0, 1e9);
    placed(&n_read);
    assert_int_equal(n_read, 0);
    send_all_in(p0, 1, N_BLOCKS, BLOCK_ON_DISK);
    assert_string_equal(placed(&n_read), "p0");
    assert_int_equal(n_read, N_BLOCKS * 32);
}

/* Half of the index, for all workers together. */
static void many_disks_share_half_of_the_index(void **state)
{
    struct link *first = rig_worker(&rig, "a", PICKER_DECODE, 1, 1000), *others[9];

    assert_int_equal(rig_max_on_disk(first), 500);
    for (uint32_t i = 0; i < 9; i++)
        others[i] = rig_worker(&rig, (const char[]){(char)('b' + i), 0}, PICKER_DECODE, 2 + i, 1000);
    send_events(first, 7, 1, BLOCK_ON_DISK); /* before its snapshot: dropped */
    send_all(first, 1, 0);
    for (uint32_t i = 0; i < 9; i++)
        send_all(others[i], 1, 0);
    assert_int_equal(rig_max_on_disk(others[8]), 50);
    send_events(first, 9, 1, BLOCK_ON_DISK); /* a gap: asks it again, for its share */
    assert_int_equal(rig_max_on_disk(first), 50);
}

/* ---- long messages ---- */

#define MANY 300 /* blocks: two slices and some more */

static struct block_hash many[MANY];
static uint8_t tiers_of_many[MANY];

static void send_many(struct link *link, uint64_t first, uint8_t tier)
{
    Baton__BlockEvents events = BATON__BLOCK_EVENTS__INIT;

    for (size_t i = 0; i < MANY; i++)
        memcpy(many[i].bytes, &(uint64_t){i + 1}, sizeof(uint64_t));
    memset(tiers_of_many, tier, sizeof(tiers_of_many));
    events.first_number = first;
    events.hashes.data = (uint8_t *)many;
    events.hashes.len = sizeof(many);
    events.tiers.data = tiers_of_many;
    events.tiers.len = MANY;
    rig_events(&rig, link, &events);
}

/* Returns how many of these blocks only this worker has, as far as the router knows. */
static unsigned n_at(const char *node)
{
    unsigned n = 0;

    for (size_t i = 0; i < MANY; i++) {
        uint32_t slot = picker_index_last_replica(rig.router.index, &many[i], clock_now_ns());

        n += slot != PICKER_NONE && strcmp(rig.router.workers[slot].node, node) == 0;
    }
    return n;
}

static void a_long_message_is_applied_in_slices(void **state)
{
    open_world();
    send_all(p0, 1, 0);
    send_all(d0, 1, 0);
    send_many(p0, 1, BLOCK_IN_MEMORY);
    assert_int_equal(n_at("p0"), 0);
    send_events(d0, 1, 10, BLOCK_IN_MEMORY); /* in the order in which they came */
    assert_string_equal(again()->owner, "");
    forget_the_others();
    assert_true(router_blocks_work(&rig.router));
    assert_int_equal(n_at("p0"), BLOCK_SLICE);
    assert_true(router_blocks_work(&rig.router));
    assert_true(router_blocks_work(&rig.router));
    assert_int_equal(n_at("p0"), MANY);
    assert_string_equal(again()->owner, "");
    forget_the_others();
    assert_false(router_blocks_work(&rig.router));
    assert_string_equal(again()->owner, "d0");
    assert_int_equal(rig.router.pending.n_blocks, 0);
}

/* Part of a snapshot; block i of all has the number i. */
static void send_part(struct link *link, uint32_t part, bool is_last)
{
    static struct block_hash blocks[BLOCK_PART_EVENTS];
    static uint8_t tiers[BLOCK_PART_EVENTS];
    Baton__BlockEvents events = BATON__BLOCK_EVENTS__INIT;

    for (uint32_t i = 0; i < BLOCK_PART_EVENTS; i++) {
        uint64_t number = (uint64_t)part * BLOCK_PART_EVENTS + i + 1;

        memcpy(blocks[i].bytes, &number, sizeof(number));
    }
    memset(tiers, BLOCK_IN_MEMORY, sizeof(tiers));
    events.first_number = 1;
    events.hashes.data = blocks[0].bytes;
    events.hashes.len = sizeof(blocks);
    events.tiers.data = tiers;
    events.tiers.len = sizeof(tiers);
    events.is_snapshot = true;
    events.part = part;
    events.is_last = is_last;
    rig_events(&rig, link, &events);
}

/* Workers report many blocks to a cold router.  Each message is copied, or costs the loop its own number of
 * blocks when the queue is full.  One slice of a turn costs BLOCK_SLICE.  In the end the router knows all
 * blocks. */
static void a_cold_router_learns_a_million_blocks_bit_by_bit(void **state)
{
    enum { PARTS = 600, QUEUED = 512 }; /* 1.2 million; a million are queued */
    struct link *link = rig_worker(&rig, "p", PICKER_PREFILL, 1, 1000);
    size_t known = 0;

    picker_index_free(rig.router.index);
    assert_int_equal(picker_index_new(PARTS * BLOCK_PART_EVENTS, 3600 * NS_PER_S, &rig.router.index), 0);
    for (uint32_t part = 0; part < PARTS; part++) {
        send_part(link, part, part == PARTS - 1);
        assert_true(picker_index_count(rig.router.index) - known <=
                    (part < QUEUED ? 0 : BLOCK_PART_EVENTS + BLOCK_SLICE));
        known = picker_index_count(rig.router.index);
    }
    for (bool has_more = true; has_more;) {
        has_more = router_blocks_work(&rig.router);
        assert_true(picker_index_count(rig.router.index) - known <= BLOCK_SLICE);
        known = picker_index_count(rig.router.index);
    }
    assert_int_equal(known, PARTS * BLOCK_PART_EVENTS);
}

/* Ends a worker's snapshot of no blocks. */
static void send_nothing(struct link *link)
{
    Baton__BlockEvents events = BATON__BLOCK_EVENTS__INIT;

    events.first_number = 1;
    events.is_snapshot = events.is_last = true;
    rig_events(&rig, link, &events);
}

static uint32_t n_asked(struct link *const *links, uint32_t n)
{
    uint32_t n_wanted = 0;

    for (uint32_t i = 0; i < n; i++)
        n_wanted += links[i] != NULL ? rig_n_wanted(links[i]) : 0;
    return n_wanted;
}

/* Forty workers come up.  The router asks 32 of them for their blocks.  It asks the next one when a worker has
 * reported its blocks or left.  A silent worker is asked again after the others. */
static void a_few_snapshots_come_at_a_time(void **state)
{
    enum { N = 40, AT_ONCE = 32 };
    struct link *links[N];

    for (uint32_t i = 0; i < N; i++) {
        char name[8] = {(char)('a' + i / 10), (char)('0' + i % 10)};

        links[i] = rig_worker(&rig, name, PICKER_DECODE, 1 + i, 1000);
    }
    assert_int_equal(n_asked(links, N), AT_ONCE);
    send_nothing(links[1]);
    assert_int_equal(n_asked(links, N), AT_ONCE + 1);
    send_nothing(links[1]); /* once more, unasked: it frees no place */
    assert_int_equal(n_asked(links, N), AT_ONCE + 1);
    rig_lose(&rig, links[2]);
    links[2] = NULL; /* was asked before */
    assert_int_equal(n_asked(links, N), AT_ONCE + 1);
    for (uint32_t i = 0; i < N; i++) /* two seconds pass for those that were asked */
        rig.router.workers[i].follower.asked_ns -= 3 * NS_PER_S;
    router_blocks_tick(&rig.router);
    assert_int_equal(n_asked(links, N), 2 * AT_ONCE + 1);
    assert_int_equal(rig_n_wanted(links[39]), 1); /* a worker that was not asked yet comes first */
    assert_int_equal(rig_n_wanted(links[33]), 1); /* the worker that was asked last comes last */
    for (uint32_t i = 0; i < 4 * N; i++)
        if (links[i % N] != NULL)
            send_nothing(links[i % N]);
    assert_int_equal(rig.router.snapshots.n_wanting, 0);
    assert_int_equal(rig.router.snapshots.n_asked, 0);
}

/* Many blocks wait to be applied: more are not asked for. */
static void snapshots_wait_for_those_before(void **state)
{
    enum { PARTS = 130 };
    struct link *first = rig_worker(&rig, "a", PICKER_DECODE, 1, 1000), *second;

    for (uint32_t part = 0; part < PARTS; part++)
        send_part(first, part, part == PARTS - 1);
    second = rig_worker(&rig, "b", PICKER_DECODE, 2, 1000);
    assert_int_equal(rig_n_wanted(second), 0);
    while (router_blocks_work(&rig.router))
        ;
    assert_int_equal(rig_n_wanted(second), 1);
}

static void events_of_a_lost_worker_are_dropped(void **state)
{
    open_world();
    send_all(p0, 1, 0);
    send_all(d0, 1, 0);
    send_many(p0, 1, BLOCK_IN_MEMORY);
    send_many(d0, 1, BLOCK_IN_MEMORY);
    assert_true(router_blocks_work(&rig.router));
    assert_int_equal(n_at("p0"), BLOCK_SLICE);
    rig_lose(&rig, p0);
    assert_int_equal(rig.router.pending.n_blocks, MANY);
    while (router_blocks_work(&rig.router))
        ;
    assert_int_equal(n_at("d0"), MANY);
    send_many(d0, MANY + 1, BLOCK_GONE);
    assert_int_equal(rig.router.pending.n_blocks, MANY);
    send_all(d0, 1, 3); /* a snapshot: pending events are dropped */
    assert_int_equal(rig.router.pending.n_blocks, 0);
    assert_int_equal(n_at("d0"), 0);
}

#define RIG_TEST(name) cmocka_unit_test_setup_teardown(name, open_rig, close_rig)

int main(void)
{
    const struct CMUnitTest tests[] = {
        RIG_TEST(a_dispatched_prompt_makes_its_worker_an_owner),
        RIG_TEST(events_say_who_is_asked),
        RIG_TEST(a_gap_is_followed_by_a_snapshot),
        RIG_TEST(a_lost_worker_has_nothing),
        RIG_TEST(the_owner_of_the_last_replica_is_informed),
        RIG_TEST(the_owner_of_the_last_replica_in_memory_is_informed),
        RIG_TEST(a_prompt_goes_where_a_disk_has_it),
        RIG_TEST(of_what_is_dropped_nothing_is_hoped_for),
        RIG_TEST(a_gap_in_what_disks_have_is_followed_by_a_snapshot),
        RIG_TEST(many_disks_share_half_of_the_index),
        RIG_TEST(a_long_message_is_applied_in_slices),
        RIG_TEST(a_cold_router_learns_a_million_blocks_bit_by_bit),
        RIG_TEST(a_few_snapshots_come_at_a_time),
        RIG_TEST(snapshots_wait_for_those_before),
        RIG_TEST(events_of_a_lost_worker_are_dropped),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
