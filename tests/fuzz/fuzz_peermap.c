/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: peers' block events, from the frames that links read to look-ups in the map.
 *
 *   0 PEER FRAME   a frame of one of four peers, checked as any, then as worker/loop/peers.c hands it on
 *   1 PEER         its link goes down, or comes up
 *   2              the engine thread takes in a turn's worth
 *   3 N            a prompt of N blocks is looked up
 *
 * For any input the map and its pending events stay within their limits, no peer is asked for more blocks
 * than it may have, and one frame causes one message at most. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/err.h"
#include "base/log.h"
#include "proto/capabilities.h"
#include "tests/unit/worker/runner/map_rig.h"
#include "worker/runner/block_map_priv.h"
#include "worker/loop/worker_priv.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { N_PEERS = 4, TOKENS = 32, MOST_BLOCKS = 1000, MOST_TOLD = 4096, MAX_PROMPT = 64 };

static struct worker_engine engine;
static struct worker worker;
static struct worker_conf conf = {.prefix_fetch = PICKER_FETCH_ALWAYS, .peer_blocks = MOST_BLOCKS};
static uint32_t n_sent;

/* ---- the rest of the worker, played ---- */

int link_send(struct link *link, enum frame_type type, const ProtobufCMessage *message)
{
    ASSERT(type == FRAME_BLOCKS_WANTED);
    n_sent++;
    return 0;
}

size_t link_queued_bytes(const struct link *link)
{
    return 0;
}

int worker_engine_send_peer_blocks(struct worker_engine *to, struct block_list *blocks)
{
    if (blocks->n > 0 && atomic_load(&to->n_pending_events) + blocks->n > MOST_TOLD) {
        free(blocks);
        return E_FULL;
    }
    atomic_fetch_add(&to->n_pending_events, blocks->n + 1);
    worker_map_add(to, blocks);
    return 0;
}

/* ---- one input ---- */

static void begin(void)
{
    memset(&engine, 0, sizeof(engine));
    memset(&worker, 0, sizeof(worker));
    engine.opts.prefix_fetch = PICKER_FETCH_ALWAYS;
    engine.opts.peer_blocks = MOST_BLOCKS;
    engine.opts.engine.info.layout = (struct kv_layout){
        .n_layers = 1, .n_kv_heads = 1, .k_dim = 64, .v_dim = 64, .block_tokens = TOKENS, .type = KV_F16};
    ASSERT(metrics_new(&engine.opts.metrics) == 0 && worker_map_open(&engine) == 0);
    worker.conf = &conf;
    worker.conf_prefix_fetch = conf.prefix_fetch;
    worker.engine = &engine;
    worker.m_peer_resyncs = metric_single(engine.opts.metrics, METRIC_COUNTER, "resyncs", "");
    log_set_level(LOG_LEVEL_ERROR);
}

static void switch_link(struct worker_peer *peer)
{
    uint32_t slot = (uint32_t)(peer - worker.peers);

    peer->worker = &worker;
    peer->link = (struct link *)peer;
    peer->has_block_events = true;
    peer->node[0] = (char)('a' + slot / 2); /* two links of each of two workers */
    peer->is_up = engine.peer_is_up[slot] = !peer->is_up;
    engine.peers[slot].capabilities = capabilities_own();
    if (peer->is_up)
        worker_follow_up(&worker, peer);
    else
        worker_follow_down(&worker, peer);
}

static void hear(struct worker_peer *peer, enum frame_type type, const ProtobufCMessage *message)
{
    uint32_t n_before = n_sent + map_rig_snapshots;

    if (!peer->is_up)
        return;
    if (type == FRAME_HEARTBEAT)
        worker_follow_load(peer, ((const Baton__Heartbeat *)message)->load);
    if (type == FRAME_BLOCK_EVENTS)
        worker_follow_events(peer, (const Baton__BlockEvents *)message);
    if (type == FRAME_BLOCKS_WANTED)
        worker_follow_wanted(peer, (const Baton__BlocksWanted *)message);
    ASSERT(n_sent + map_rig_snapshots - n_before <= 1);
}

static void look_up(uint32_t n)
{
    struct block_hash hashes[MAX_PROMPT];
    struct map_question question = {.hashes = hashes, .n_hashes = n % MAX_PROMPT + 1};
    struct map_choice choice = {.peer = PEER_NONE};

    for (uint32_t i = 0; i < question.n_hashes; i++) /* as the corpus has them */
        memset(hashes[i].bytes, (int)i + 1, sizeof(hashes[i].bytes));
    question.n_tokens = question.n_hashes * TOKENS + 1;
    worker_map_choose(&engine, &question, &choice);
    ASSERT(choice.peer == PEER_NONE || (choice.peer < N_PEERS && engine.peer_is_up[choice.peer] &&
                                        choice.tokens > 0 && choice.tokens <= question.n_hashes * TOKENS));
}

static void assert_bounds(void)
{
    struct load_report report = {0};

    worker_map_report(&engine, &report);
    ASSERT(report.peers_in_memory + report.peers_on_disk <= MOST_BLOCKS);
    ASSERT(worker_follow_count(&worker) <= 2);
}

/* Returns how much of the input it took. */
static size_t receive_frame(struct worker_peer *peer, const uint8_t *data, size_t size)
{
    struct frame_header header;
    ProtobufCMessage *message;
    struct fault fault;

    if (size < FRAME_HEADER_BYTES || frame_header_unpack(data, &fault, &header) != 0)
        return size;
    size -= FRAME_HEADER_BYTES;
    if (header.len_bytes > size)
        header.len_bytes = (uint32_t)size;
    if (frame_unpack(header.type, bytes_of(data + FRAME_HEADER_BYTES, header.len_bytes), &fault, &message) ==
        0) {
        hear(peer, header.type, message);
        frame_message_free(message);
    }
    return FRAME_HEADER_BYTES + header.len_bytes;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t at = 0;

    begin();
    while (at + 2 <= size) {
        uint8_t what = data[at] % 4, number = data[at + 1];

        at += 2;
        if (what == 0)
            at += receive_frame(&worker.peers[number % N_PEERS], data + at, size - at);
        else if (what == 1)
            switch_link(&worker.peers[number % N_PEERS]);
        else if (what == 2)
            (void)worker_map_turn(&engine);
        else
            look_up(number);
        assert_bounds();
    }
    while (worker_map_turn(&engine))
        ;
    ASSERT(atomic_load(&engine.n_pending_events) == 0);
    assert_bounds();
    worker_map_close(&engine);
    metrics_free(engine.opts.metrics);
    return 0;
}
