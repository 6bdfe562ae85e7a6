/* SPDX-License-Identifier: Apache-2.0 */
/* A worker's view of its peers' blocks: worker/loop/follow.c reads their events, worker/runner/peer_map.c
 * finds the peer with the most.  The test simulates links and engine. */
#include "tests/unit/check.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/rng.h"
#include "proto/capabilities.h"
#include "tests/unit/worker/runner/map_rig.h"
#include "worker/runner/block_map_priv.h"
#include "worker/loop/worker_priv.h"

enum { N_HASHES = 4096, TOKENS = 32, MOST_BLOCKS = 1000 };

static struct worker_engine *engine;
static struct worker *worker;
static struct worker_conf conf;
static struct block_hash hashes[N_HASHES];
static uint32_t n_wanted[WORKER_MAX_PEERS], max_on_disk[WORKER_MAX_PEERS];
static size_t queued_bytes; /* on every link */
static bool is_full;        /* the engine thread accepts no events */

/* ---- the rest of the worker, simulated ---- */

static uint32_t peer_of(const struct link *link)
{
    return (uint32_t)((const char *)link - (const char *)0x1000);
}

int link_send(struct link *link, enum frame_type type, const ProtobufCMessage *message)
{
    assert_int_equal(type, FRAME_BLOCKS_WANTED);
    n_wanted[peer_of(link)]++;
    max_on_disk[peer_of(link)] = ((const Baton__BlocksWanted *)message)->max_on_disk;
    return 0;
}

size_t link_queued_bytes(const struct link *link)
{
    return queued_bytes;
}

int worker_engine_send_peer_blocks(struct worker_engine *to, struct block_list *blocks)
{
    if (is_full && blocks->n > 0) {
        free(blocks);
        return E_FULL;
    }
    atomic_fetch_add(&to->n_pending_events, blocks->n + 1);
    worker_map_add(to, blocks);
    return 0;
}

/* ---- helpers ---- */

static void apply_all(void)
{
    while (worker_map_turn(engine))
        ;
    assert_int_equal(atomic_load(&engine->n_pending_events), 0);
}

static struct worker_peer *link_up(uint32_t slot, const char *node)
{
    struct worker_peer *peer = &worker->peers[slot];

    worker->n_peers = slot >= worker->n_peers ? slot + 1 : worker->n_peers;
    *peer = (struct worker_peer){.worker = worker,
                                 .link = (struct link *)((char *)0x1000 + slot),
                                 .is_up = true,
                                 .has_block_events = true};
    snprintf(peer->node, sizeof(peer->node), "%s", node);
    engine->peer_is_up[slot] = true;
    engine->peers[slot].capabilities = capabilities_own();
    worker_follow_up(worker, peer);
    return peer;
}

static void link_down(struct worker_peer *peer)
{
    peer->is_up = false;
    engine->peer_is_up[peer - worker->peers] = false;
    worker_follow_down(worker, peer);
}

struct sent_events { /* hashes[from, to) */
    uint64_t number;
    uint32_t from, to;
    enum block_tier tier;
    bool is_snapshot, is_middle;
    uint32_t part;
};

static void receive_events(struct worker_peer *peer, struct sent_events sent)
{
    uint8_t tiers[N_HASHES];
    Baton__BlockEvents events = BATON__BLOCK_EVENTS__INIT;

    memset(tiers, sent.tier, sizeof(tiers));
    events.first_number = sent.number;
    events.hashes.data = hashes[sent.from].bytes;
    events.hashes.len = (sent.to - sent.from) * sizeof(hashes[0]);
    events.tiers.data = tiers;
    events.tiers.len = sent.to - sent.from;
    events.is_snapshot = sent.is_snapshot;
    events.is_last = sent.is_snapshot && !sent.is_middle;
    events.part = sent.part;
    worker_follow_events(peer, &events);
    apply_all();
}

/* Receives a snapshot: hashes[0, n) in memory, and the number of the next event. */
static void receive_all(struct worker_peer *peer, uint32_t n, uint64_t number)
{
    receive_events(
        peer, (struct sent_events){.number = number, .to = n, .tier = BLOCK_IN_MEMORY, .is_snapshot = true});
}

static struct map_choice choose(uint32_t n_here)
{
    struct map_question question = {
        .hashes = hashes, .n_hashes = 20, .n_here = n_here, .n_tokens = 20 * TOKENS + 1};
    struct map_choice choice = {.peer = PEER_NONE};

    worker_map_choose(engine, &question, &choice);
    return choice;
}

static void assert_known(uint64_t in_memory, uint64_t on_disk)
{
    struct load_report report = {0};

    worker_map_report(engine, &report);
    assert_int_equal(report.peers_in_memory, in_memory);
    assert_int_equal(report.peers_on_disk, on_disk);
}

static int setup_with(enum picker_fetch prefix_fetch)
{
    struct rng rng;

    rng_init(&rng, 7);
    for (uint32_t i = 0; i < N_HASHES; i++)
        for (uint32_t j = 0; j < sizeof(hashes[i].bytes); j++)
            hashes[i].bytes[j] = (uint8_t)rng_below(&rng, 256);
    engine = calloc(1, sizeof(*engine));
    worker = calloc(1, sizeof(*worker));
    memset(n_wanted, 0, sizeof(n_wanted));
    map_rig_snapshots = 0;
    map_rig_hope = (struct remote_hope){0};
    queued_bytes = 0;
    is_full = false;
    log_set_level(LOG_LEVEL_ERROR);
    assert_int_equal(metrics_new(&engine->opts.metrics), 0);
    engine->opts.prefix_fetch = prefix_fetch;
    engine->opts.peer_blocks = MOST_BLOCKS;
    engine->push_bytes_per_s = 1e9;
    engine->opts.engine.info.layout = (struct kv_layout){.n_layers = 16,
                                                         .n_kv_heads = 8,
                                                         .k_dim = 128,
                                                         .v_dim = 128,
                                                         .block_tokens = TOKENS,
                                                         .type = KV_F16}; /* 64 KiB a token */
    assert_int_equal(worker_map_open(engine), 0);
    conf = (struct worker_conf){.prefix_fetch = prefix_fetch, .peer_blocks = MOST_BLOCKS};
    worker->conf = &conf;
    worker->conf_prefix_fetch = prefix_fetch;
    worker->engine = engine;
    worker->m_peer_resyncs =
        metric_single(engine->opts.metrics, METRIC_COUNTER, "baton_peer_block_resyncs_total", "");
    return 0;
}

static int setup(void **state)
{
    return setup_with(PICKER_FETCH_AUTO);
}

static int setup_off(void **state)
{
    return setup_with(PICKER_FETCH_OFF);
}

static int teardown(void **state)
{
    worker_map_close(engine);
    metrics_free(engine->opts.metrics);
    free(engine);
    free(worker);
    return 0;
}

/* ---- tests ---- */

static void a_peer_is_followed_from_its_snapshot_on(void **state)
{
    struct worker_peer *peer = link_up(3, "a");
    struct map_choice choice;

    assert_int_equal(n_wanted[3], 1);
    assert_int_equal(max_on_disk[3], MOST_BLOCKS / 2);
    /* Before the snapshot: dropped. */
    receive_events(peer, (struct sent_events){.number = 1, .to = 20, .tier = BLOCK_IN_MEMORY});
    assert_true(worker_map_is_empty(engine));
    receive_all(peer, 10, 41);
    assert_known(10, 0);
    receive_events(peer, (struct sent_events){.number = 41, .from = 10, .to = 15, .tier = BLOCK_IN_MEMORY});
    choice = choose(0);
    assert_int_equal(choice.peer, 3);
    assert_int_equal(choice.tokens, 15 * TOKENS);
    assert_true(choice.is_own && !choice.has_to_read);
    assert_in_range(choice.limit_ns, 479 * NS_PER_MS, 481 * NS_PER_MS); /* time to compute these */
    assert_int_equal(choose(15).peer, PEER_NONE);
    receive_events(peer, (struct sent_events){.number = 46, .from = 4, .to = 5, .tier = BLOCK_GONE});
    assert_int_equal(choose(0).tokens, 4 * TOKENS);
    receive_events(peer, (struct sent_events){
                             .number = 46, .from = 4, .to = 5, .tier = BLOCK_GONE}); /* repeated: dropped */
    assert_int_equal(n_wanted[3], 1);
}

static void a_gap_is_answered_by_everything(void **state)
{
    struct worker_peer *peer = link_up(0, "a");

    receive_all(peer, 10, 5);
    /* 5 and 6 are missing. */
    receive_events(peer, (struct sent_events){.number = 7, .from = 10, .to = 12, .tier = BLOCK_IN_MEMORY});
    assert_int_equal(n_wanted[0], 2);
    assert_known(10, 0); /* blocks known before may still exist */
    receive_events(peer, (struct sent_events){.number = 9, .from = 12, .to = 14, .tier = BLOCK_IN_MEMORY});
    assert_int_equal(n_wanted[0], 2);
    receive_events(
        peer, (struct sent_events){
                  .number = 11, .to = 6, .tier = BLOCK_IN_MEMORY, .is_snapshot = true, .is_middle = true});
    receive_events(
        peer, (struct sent_events){
                  .number = 11, .from = 6, .to = 8, .tier = BLOCK_ON_DISK, .is_snapshot = true, .part = 1});
    assert_known(6, 2); /* its earlier blocks are forgotten */
    receive_events(peer, (struct sent_events){.number = 11, .from = 8, .to = 9, .tier = BLOCK_IN_MEMORY});
    assert_known(7, 2);
    assert_int_equal(n_wanted[0], 2);
    assert_true(metric_value(worker->m_peer_resyncs) == 1);
}

/* A part of a snapshot out of order: asks for the whole snapshot again. */
static void a_broken_snapshot_is_begun_anew(void **state)
{
    struct worker_peer *peer = link_up(0, "a");

    receive_events(
        peer, (struct sent_events){
                  .number = 11, .to = 6, .tier = BLOCK_IN_MEMORY, .is_snapshot = true, .is_middle = true});
    receive_events(peer, (struct sent_events){
                             .number = 11, .to = 6, .tier = BLOCK_IN_MEMORY, .is_snapshot = true, .part = 9});
    assert_int_equal(n_wanted[0], 2);
    receive_events(peer, (struct sent_events){
                             .number = 11, .to = 6, .tier = BLOCK_IN_MEMORY, .is_snapshot = true, .part = 1});
    assert_int_equal(n_wanted[0], 2);
    receive_all(peer, 8, 11);
    assert_known(8, 0);
}

static void a_snapshot_without_room_is_requested_later(void **state)
{
    struct worker_peer *peer = link_up(0, "a");
    struct block_follower *follower = &peer->follower;

    receive_all(peer, 10, 5);
    is_full = true;
    receive_events(peer, (struct sent_events){.number = 5, .from = 10, .to = 12, .tier = BLOCK_IN_MEMORY});
    assert_int_equal(n_wanted[0], 1); /* not at once, because that would not help */
    is_full = false;
    receive_events(peer, (struct sent_events){.number = 7, .from = 12, .to = 14, .tier = BLOCK_IN_MEMORY});
    assert_known(10, 0);
    assert_false(block_follower_is_due(follower, NS_PER_S, clock_now_ns()));
    assert_true(block_follower_is_due(follower, NS_PER_S, clock_now_ns() + 3 * NS_PER_S));
    assert_true(metric_value(worker->m_peer_resyncs) == 1);
}

static void a_lost_peer_is_forgotten_and_returns_as_new(void **state)
{
    struct worker_peer *peer = link_up(0, "a"), *other = link_up(1, "b");

    receive_all(peer, 12, 5);
    receive_all(other, 8, 5);
    assert_int_equal(choose(0).peer, 0);
    link_down(peer);
    apply_all();
    assert_known(8, 0);
    assert_int_equal(choose(0).peer, 1);
    peer = link_up(0, "a"); /* another life: its events and its known blocks begin anew */
    assert_int_equal(n_wanted[0], 2);
    receive_events(peer, (struct sent_events){.number = 17, .from = 0, .to = 20, .tier = BLOCK_IN_MEMORY});
    assert_known(8, 0);
    receive_events(peer,
                   (struct sent_events){.number = 1, .to = 14, .tier = BLOCK_ON_DISK, .is_snapshot = true});
    assert_known(8, 6); /* the other one has 8 of these 14 in memory */
    link_down(other);
    apply_all();
    assert_known(0, 14);
}

/* A pending snapshot is older than the loss of its link, so it is dropped. */
static void pending_events_are_dropped_too(void **state)
{
    struct worker_peer *peer = link_up(0, "a");
    uint8_t tiers[N_HASHES];
    Baton__BlockEvents events = BATON__BLOCK_EVENTS__INIT;

    memset(tiers, BLOCK_IN_MEMORY, sizeof(tiers));
    events.first_number = 1;
    events.hashes = (ProtobufCBinaryData){.data = hashes[0].bytes, .len = sizeof(hashes)};
    events.tiers = (ProtobufCBinaryData){.data = tiers, .len = N_HASHES};
    events.is_snapshot = events.is_last = true;
    worker_follow_events(peer, &events);
    assert_int_equal(atomic_load(&engine->n_pending_events), N_HASHES + 1);
    assert_true(worker_map_turn(engine)); /* one slice at a time */
    assert_true(atomic_load(&engine->n_pending_events) > 0);
    link_down(peer);
    apply_all();
    assert_known(0, 0);
}

static void the_map_is_bounded(void **state)
{
    struct worker_peer *peer = link_up(0, "a");
    struct load_report report = {0};

    receive_all(peer, N_HASHES, 1);
    worker_map_report(engine, &report);
    assert_int_equal(report.peers_in_memory, MOST_BLOCKS);
    receive_events(peer, (struct sent_events){.number = 1, .to = N_HASHES, .tier = BLOCK_ON_DISK});
    worker_map_report(engine, &report);
    assert_true(report.peers_in_memory + report.peers_on_disk <= MOST_BLOCKS);
}

static void one_worker_is_followed_over_one_link(void **state)
{
    struct worker_peer *first = link_up(0, "a"), *second = link_up(1, "a");

    assert_int_equal(n_wanted[0], 1);
    assert_int_equal(n_wanted[1], 0);
    assert_int_equal(worker_follow_count(worker), 1);
    receive_all(first, 10, 1);
    receive_all(second, 12, 1); /* a snapshot that was not requested */
    assert_known(10, 0);
    link_down(first);
    assert_int_equal(n_wanted[1], 1);
    receive_all(second, 12, 1);
    assert_int_equal(choose(0).peer, 1);
}

static void a_peer_without_block_events_is_left_alone(void **state)
{
    struct worker_peer *peer = link_up(0, "a");

    link_down(peer);
    peer->is_up = true;
    peer->has_block_events = false; /* an older one, or this worker itself */
    worker_follow_up(worker, peer);
    assert_int_equal(n_wanted[0], 1);
    assert_int_equal(worker_follow_count(worker), 0);
}

static void memory_comes_before_disk(void **state)
{
    struct worker_peer *near = link_up(0, "a"), *disk = link_up(1, "b");
    Baton__LoadReport load = BATON__LOAD_REPORT__INIT;

    receive_all(near, 10, 1);
    receive_events(disk,
                   (struct sent_events){.number = 1, .to = 10, .tier = BLOCK_ON_DISK, .is_snapshot = true});
    load.read_bytes_per_s = 1e9;
    worker_follow_load(disk, &load);
    assert_int_equal(choose(0).peer, 0);
    assert_false(choose(0).has_to_read);
    receive_events(disk, (struct sent_events){.number = 1, .from = 10, .to = 18, .tier = BLOCK_ON_DISK});
    assert_int_equal(choose(0).peer, 1);
    assert_true(choose(0).has_to_read);
    assert_int_equal(choose(0).tokens, 18 * TOKENS);
    load.read_bytes_per_s = 1e6; /* longer than any request waits */
    worker_follow_load(disk, &load);
    assert_int_equal(choose(0).peer, 0);
    engine->peer_is_up[0] = false; /* the engine thread knows of its loss first */
    assert_int_equal(choose(0).peer, PEER_NONE);
}

static void a_router_that_knows_more_is_believed(void **state)
{
    struct map_question question = {.hashes = hashes, .n_hashes = 20, .n_tokens = 20 * TOKENS + 1};
    struct map_choice named = {.peer = 5, .tokens = 12 * TOKENS};

    receive_all(link_up(0, "a"), 12, 1);
    worker_map_choose(engine, &question, &named);
    assert_int_equal(named.peer, 5);
    named.tokens = 11 * TOKENS;
    worker_map_choose(engine, &question, &named);
    assert_int_equal(named.peer, 0);
}

static void a_slow_push_is_not_asked_for(void **state)
{
    receive_all(link_up(0, "a"), 12, 1);
    engine->push_bytes_per_s = 1e6;
    assert_int_equal(choose(0).peer, PEER_NONE);
}

/* 24 MiB: pushed in 27 ms, and as fast from the store if it has a rate of 1 GB/s. */
static void blocks_that_the_store_has_faster_are_not_fetched(void **state)
{
    receive_all(link_up(0, "a"), 12, 1);
    assert_int_equal(choose(0).peer, 0);
    map_rig_hope = (struct remote_hope){.n_blocks = 12, .bytes_per_s = 1e9, .ask_s = 1e-5};
    assert_int_equal(choose(0).peer, PEER_NONE);
    map_rig_hope.bytes_per_s = 1e8;
    assert_int_equal(choose(0).peer, 0);
    map_rig_hope = (struct remote_hope){.n_blocks = 2, .bytes_per_s = 1e9, .ask_s = 1e-5};
    assert_int_equal(choose(0).peer, 0);
    map_rig_hope = (struct remote_hope){.n_blocks = 4, .bytes_per_s = 1e9, .ask_s = 1e-5};
    assert_int_equal(choose(8).peer, PEER_NONE); /* the rest of it */
}

/* How often a peer receives a snapshot, and with how much queued. */
static void snapshots_for_a_peer_are_bounded(void **state)
{
    Baton__BlocksWanted wanted = BATON__BLOCKS_WANTED__INIT;
    struct worker_peer *peer = link_up(0, "a");

    assert_false(peer->wants_block_events);
    queued_bytes = 2 << 20; /* it reads slowly */
    worker_follow_wanted(peer, &wanted);
    assert_int_equal(map_rig_snapshots, 0);
    queued_bytes = 0;
    for (int i = 0; i < 1000; i++)
        worker_follow_wanted(peer, &wanted);
    assert_int_equal(map_rig_snapshots, 1);
    assert_true(peer->wants_block_events);
    peer->snapshot_ns -= 2 * NS_PER_S;
    worker_follow_wanted(peer, &wanted);
    assert_int_equal(map_rig_snapshots, 2);
    queued_bytes = 2 << 20;
    assert_false(worker_follow_has_room(peer));
    link_down(peer);
    assert_false(peer->wants_block_events);
}

static void switched_off_it_knows_and_tells_nothing(void **state)
{
    Baton__BlocksWanted wanted = BATON__BLOCKS_WANTED__INIT;
    struct worker_peer *peer = link_up(0, "a");

    assert_null(engine->map);
    assert_int_equal(n_wanted[0], 0);
    worker_follow_wanted(peer, &wanted);
    assert_int_equal(map_rig_snapshots, 0);
    receive_all(peer, 10, 1);
    assert_true(worker_map_is_empty(engine));
    assert_int_equal(choose(0).peer, PEER_NONE);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(a_peer_is_followed_from_its_snapshot_on),
        T(a_gap_is_answered_by_everything),
        T(a_broken_snapshot_is_begun_anew),
        T(a_snapshot_without_room_is_requested_later),
        T(a_lost_peer_is_forgotten_and_returns_as_new),
        T(pending_events_are_dropped_too),
        T(the_map_is_bounded),
        T(one_worker_is_followed_over_one_link),
        T(a_peer_without_block_events_is_left_alone),
        T(memory_comes_before_disk),
        T(blocks_that_the_store_has_faster_are_not_fetched),
        T(a_router_that_knows_more_is_believed),
        T(a_slow_push_is_not_asked_for),
        T(snapshots_for_a_peer_are_bounded),
        cmocka_unit_test_setup_teardown(switched_off_it_knows_and_tells_nothing, setup_off, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
