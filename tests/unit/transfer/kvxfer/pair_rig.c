/* SPDX-License-Identifier: Apache-2.0 */
/* See pair_rig.h. */
#include "tests/unit/transfer/kvxfer/pair_rig.h"

#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "tests/unit/check.h"

struct pair pair;

/* ---- the fake transport ---- */

int tr_open_ticket(struct tr_node *node, uint64_t ticket, const uint32_t *blocks, uint32_t n_blocks)
{
    assert_false(pair.ticket_open);
    pair.ticket_open = true;
    pair.n_ticket = n_blocks;
    memcpy(pair.ticket_blocks, blocks, n_blocks * sizeof(*blocks));
    return 0;
}

int tr_close_ticket(struct tr_node *node, uint64_t ticket)
{
    pair.ticket_closing = true;
    return 0;
}

int tr_start_push(struct tr_node *node, uint64_t push, const struct tr_target *target, uint32_t n_pieces)
{
    pair.push_open = true;
    return 0;
}

int tr_push(struct tr_node *node, uint64_t push, const struct tr_pieces *pieces)
{
    if (rng_below(&pair.rng, 5) == 0)
        return E_FULL;
    for (uint32_t i = 0; i < pieces->n; i++) {
        assert_true(pair.n_pieces < PAIR_MAX_PIECES);
        pair.pieces[pair.n_pieces++] = (struct piece){
            .layer = pieces->layer, .index = pieces->first_index + i, .source = pieces->blocks[i]};
    }
    return 0;
}

int tr_stop_push(struct tr_node *node, uint64_t push)
{
    pair.push_stopping = true;
    return 0;
}

static bool is_leased(struct kv_pool *pool, kv_block_id id)
{
    /* A leased block that was given up is a ZOMBIE or stays SEALED.  A FREE or CACHED block has no lease. */
    enum kv_state state = kv_state_of(pool, id);

    return state != KV_FREE && state != KV_CACHED;
}

static void copy_one_piece(void)
{
    struct piece *piece;

    if (pair.n_pieces == 0 || !pair.push_open || pair.push_broken)
        return;
    piece = &pair.pieces[rng_below(&pair.rng, pair.n_pieces)];
    if (piece->is_done || !pair.ticket_open)
        return;
    assert_true(piece->index < pair.n_ticket);
    assert_true(is_leased(pair.from, piece->source));
    assert_true(is_leased(pair.to, pair.ticket_blocks[piece->index]));
    pair.to_arena[piece->layer][pair.ticket_blocks[piece->index]] =
        pair.from_arena[piece->layer][piece->source];
    piece->is_done = true;
    pair.n_copied++;
}

static uint32_t n_leading_blocks(void)
{
    for (uint32_t i = 0; i < pair.n_ticket; i++) {
        uint32_t layers = 0;
        for (uint32_t k = 0; k < pair.n_pieces; k++)
            layers += pair.pieces[k].is_done && pair.pieces[k].index == i;
        if (layers < PAIR_LAYERS)
            return i;
    }
    return pair.n_ticket;
}

static void raise_recv_event(enum tr_event_kind kind)
{
    struct tr_event event = {
        .kind = kind, .n_pieces = pair.n_copied, .n_leading = n_leading_blocks(), .fault = {.code = E_IO}};

    if (pair.recv != NULL && !pair.recv_closed)
        kvxfer_recv_event(pair.recv, &event, pair.now_ns);
}

void pair_raise_send_event(enum tr_event_kind kind)
{
    struct tr_event event = {.kind = kind, .fault = {.code = E_IO}};

    if (pair.send != NULL && !pair.send_closed)
        kvxfer_send_event(pair.send, &event, pair.now_ns);
}

void pair_transport_turn(void)
{
    copy_one_piece();
    if (pair.ticket_open && !pair.complete_reported && pair.n_copied == pair.n_ticket * PAIR_LAYERS &&
        rng_below(&pair.rng, 3) == 0) {
        pair.complete_reported = true;
        raise_recv_event(TR_TICKET_COMPLETE);
    } else if (pair.ticket_open && !pair.complete_reported && rng_below(&pair.rng, 4) == 0) {
        raise_recv_event(TR_PIECES_ARRIVED);
    }
    if (pair.push_open && !pair.push_broken && rng_below(&pair.rng, 4) == 0)
        pair_raise_send_event(TR_PUSH_SENT);
    if (pair.push_open && !pair.push_broken && rng_below(&pair.rng, 150) == 0) { /* the connection breaks */
        pair.push_broken = true;
        pair_raise_send_event(TR_PUSH_FAILED);
        if (pair.ticket_open && !pair.complete_reported)
            raise_recv_event(TR_TICKET_FAILED);
    }
    if (pair.ticket_closing && rng_below(&pair.rng, 3) == 0) {
        pair.ticket_open = pair.ticket_closing = false;
        raise_recv_event(TR_TICKET_CLOSED);
    }
    if (pair.push_stopping && rng_below(&pair.rng, 3) == 0) {
        pair.push_open = pair.push_stopping = false;
        pair_raise_send_event(TR_PUSH_STOPPED);
    }
}

/* ---- the link ---- */

static void mail_post(bool to_sender, const struct kvxfer_message *message)
{
    struct mail *mail = &pair.mail[pair.n_mail];

    if (pair.link_down)
        return;
    assert_true(pair.n_mail < PAIR_MAX_MAIL);
    mail->to_sender = to_sender;
    mail->message = *message;
    if (message->blocks != NULL) {
        memcpy(mail->blocks, message->blocks, message->n_blocks * sizeof(*message->blocks));
        mail->message.blocks = mail->blocks;
    }
    pair.n_mail++;
}

static void on_send_message(void *arg, const struct kvxfer_message *message)
{
    mail_post(false, message);
}

static void on_recv_message(void *arg, const struct kvxfer_message *message)
{
    mail_post(true, message);
}

static void on_over(void *arg, int result)
{
    assert_false(pair.send_over);
    pair.send_over = true;
    pair.send_result = result;
}

static void on_send_closed(void *arg)
{
    assert_true(pair.send_over);
    assert_false(pair.push_open);
    pair.send_closed = true;
}

static void on_arrived(void *arg, const struct kvxfer_arrival *arrival)
{
    assert_false(pair.arrived);
    assert_false(pair.ticket_open);
    pair.arrived = true;
    pair.arrival = *arrival;
}

static void on_recv_closed(void *arg)
{
    pair.recv_closed = true;
}

static const struct kvxfer_send_calls send_calls = {
    .message = on_send_message, .on_over = on_over, .on_closed = on_send_closed};
static const struct kvxfer_recv_calls recv_calls = {
    .message = on_recv_message, .on_arrived = on_arrived, .on_closed = on_recv_closed};

/* The first block of each group that is sent. */
static uint32_t windowed_from(void)
{
    return pair.first_windowed > pair.skip ? pair.first_windowed : pair.skip;
}

static void grant(uint64_t transfer)
{
    kv_block_id blocks[PAIR_BLOCKS];
    uint32_t n = PAIR_PROMPT;
    struct kvxfer_recv_opts opts = {.pool = pair.to,
                                    .calls = &recv_calls,
                                    .transfer = transfer,
                                    .ticket = 77,
                                    .blocks = blocks,
                                    .skip_blocks = pair.skip,
                                    .n_tokens = PAIR_PROMPT * 32,
                                    .timeout_ns = PAIR_TIMEOUT_NS};

    memcpy(blocks, pair.to_table, PAIR_PROMPT * sizeof(blocks[0]));
    for (uint32_t g = 1; g <= pair.n_windows; g++)
        for (uint32_t b = windowed_from(); b < PAIR_PROMPT; b++)
            blocks[n++] = pair.to_table[g * PAIR_PROMPT + b];
    pair.n_head_granted = rng_below(&pair.rng, 3) == 0 ? 0 : pair.n_head;
    for (uint32_t b = 0; b < pair.n_head_granted; b++)
        blocks[n++] = pair.to_table[PAIR_HEAD_AT + b];
    opts.n_blocks = n;
    assert_int_equal(kvxfer_recv_new(&opts, pair.now_ns, &pair.recv), 0);
}

static void refuse(uint64_t transfer, uint32_t retry_ms)
{
    struct kvxfer_message refused = {
        .kind = KVXFER_REFUSED, .transfer = transfer, .code = E_FULL, .retry_after_ms = retry_ms};

    mail_post(true, &refused);
}

void pair_deliver_one(void)
{
    struct mail mail;

    if (pair.n_mail == 0)
        return;
    mail = pair.mail[0];
    if (mail.message.blocks != NULL)
        mail.message.blocks = mail.blocks;
    memmove(pair.mail, pair.mail + 1, --pair.n_mail * sizeof(pair.mail[0]));
    for (uint32_t i = 0; i < pair.n_mail; i++)
        if (pair.mail[i].message.blocks != NULL)
            pair.mail[i].message.blocks = pair.mail[i].blocks;
    if (mail.to_sender) {
        if (pair.send != NULL && !pair.send_closed)
            kvxfer_send_message(pair.send, &mail.message, pair.now_ns);
    } else if (mail.message.kind == KVXFER_OFFER) {
        if (pair.receiver_gone)
            refuse(mail.message.transfer, 0);
        else if (rng_below(&pair.rng, 4) == 0)
            refuse(mail.message.transfer, 3);
        else
            grant(mail.message.transfer);
    } else if (pair.recv != NULL && !pair.recv_closed) {
        kvxfer_recv_message(pair.recv, &mail.message, pair.now_ns);
    }
}

void pair_deliver_all(void)
{
    while (pair.n_mail > 0)
        pair_deliver_one();
}

/* ---- the pair ---- */

void pair_begin(uint64_t seed, bool has_windows)
{
    struct kv_pool_opts pool = {.n_blocks = PAIR_POOL, .block_tokens = 32};
    struct kvxfer_send_opts send = {.calls = &send_calls,
                                    .transfer = 5,
                                    .n_layers = PAIR_LAYERS,
                                    .n_tokens = PAIR_PROMPT * 32,
                                    .n_blocks = PAIR_PROMPT,
                                    .tcp_address = "x",
                                    .unix_path = "y",
                                    .timeout_ns = PAIR_TIMEOUT_NS};

    memset(&pair, 0, sizeof(pair));
    rng_init(&pair.rng, seed);
    pair.now_ns = NS_PER_S;
    assert_int_equal(kv_pool_new(&pool, &pair.from), 0);
    assert_int_equal(kv_pool_new(&pool, &pair.to), 0);
    assert_int_equal(kv_take(pair.from, PAIR_BLOCKS, pair.from_table), 0);
    assert_int_equal(kv_take(pair.to, PAIR_BLOCKS, pair.to_table), 0);
    send.n_windows = pair.n_windows = has_windows ? (uint32_t)rng_below(&pair.rng, PAIR_WINDOWS + 1) : 0;
    send.first_windowed = pair.first_windowed = (uint32_t)rng_below(&pair.rng, PAIR_PROMPT + 1);
    pair.skip = (uint32_t)rng_below(&pair.rng, 3);
    send.n_head_blocks = pair.n_head = has_windows ? (uint32_t)rng_below(&pair.rng, PAIR_HEAD + 1) : 0;
    send.head_tokens = 40 * pair.n_head;
    for (uint32_t l = 0; l < PAIR_LAYERS; l++)
        for (uint32_t b = 0; b < PAIR_BLOCKS; b++)
            pair.from_arena[l][pair.from_table[b]] = 1000 + l * 100 + b;
    send.pool = pair.from;
    assert_int_equal(kvxfer_send_new(&send, pair.now_ns, &pair.send), 0);
}

void pair_give_back(struct kv_pool *pool, const kv_block_id *table)
{
    for (int i = PAIR_BLOCKS - 1; i >= 0; i--)
        kv_unref(pool, table[i]);
}

void pair_sender_turn(void)
{
    struct kvxfer_first first = {.id = 42};

    if (pair.sender_gone || pair.send_closed)
        return;
    if (pair.from_ready < PAIR_PROMPT) {
        for (uint32_t l = 0; l < PAIR_LAYERS; l++) {
            kvxfer_send_ready(pair.send, l, pair.from_ready + 1, pair.from_table);
            for (uint32_t g = 0; g < pair.n_windows; g++)
                kvxfer_send_window_ready(pair.send, (struct kvxfer_window){.group = g, .layer = l},
                                         pair.from_ready + 1, pair.from_table + (g + 1) * PAIR_PROMPT);
        }
        pair.from_ready++;
        if (pair.n_head > 0 &&
            pair.from_ready + PAIR_HEAD > PAIR_PROMPT) /* the last chunks complete its blocks */
            kvxfer_send_head_ready(pair.send, pair.from_ready == PAIR_PROMPT ? pair.n_head : 1,
                                   pair.from_table + PAIR_HEAD_AT);
    } else if (!pair.first_given) {
        pair.first_given = true;
        kvxfer_send_first(pair.send, &first, false);
    }
    if (rng_below(&pair.rng, 200) == 0) {
        pair.sender_gone = true;
        kvxfer_send_cancel(pair.send, E_CANCELLED);
        pair_give_back(pair.from, pair.from_table);
    }
}

void pair_receiver_turn(void)
{
    if (pair.receiver_gone || rng_below(&pair.rng, 200) != 0)
        return;
    pair.receiver_gone = true;
    if (pair.recv != NULL && !pair.recv_closed)
        kvxfer_recv_cancel(pair.recv, E_CANCELLED, true);
    pair_give_back(pair.to, pair.to_table);
}

void pair_tick(void)
{
    if (!pair.send_closed)
        kvxfer_send_tick(pair.send, pair.now_ns);
    if (pair.recv != NULL && !pair.recv_closed)
        kvxfer_recv_tick(pair.recv, pair.now_ns);
}

void pair_break_link(void)
{
    pair.link_down = true;
    pair.n_mail = 0;
    if (!pair.send_closed)
        kvxfer_send_peer_lost(pair.send);
    if (pair.recv != NULL && !pair.recv_closed)
        kvxfer_recv_peer_lost(pair.recv);
}

bool pair_has_ended(void)
{
    return pair.send_closed && (pair.recv == NULL || pair.recv_closed);
}

void pair_check_end(void)
{
    struct kv_pool_counts counts;

    assert_true(pair_has_ended());
    if (pair.arrived && pair.arrival.is_whole) {
        assert_int_equal(pair.arrival.first.id, 42);
        for (uint32_t l = 0; l < PAIR_LAYERS; l++)
            for (uint32_t b = pair.skip; b < PAIR_PROMPT; b++)
                assert_int_equal(pair.to_arena[l][pair.to_table[b]], 1000 + l * 100 + b);
        for (uint32_t l = 0; l < PAIR_LAYERS; l++)
            for (uint32_t g = 1; g <= pair.n_windows; g++)
                for (uint32_t at = g * PAIR_PROMPT + windowed_from(); at < (g + 1) * PAIR_PROMPT; at++)
                    assert_int_equal(pair.to_arena[l][pair.to_table[at]], 1000 + l * 100 + at);
        for (uint32_t l = 0; l < PAIR_LAYERS; l++)
            for (uint32_t at = PAIR_HEAD_AT; at < PAIR_HEAD_AT + pair.n_head_granted; at++)
                assert_int_equal(pair.to_arena[l][pair.to_table[at]], 1000 + l * 100 + at);
    }
    if (pair.arrived)
        for (uint32_t l = 0; l < PAIR_LAYERS; l++)
            for (uint32_t b = pair.skip; b < pair.arrival.n_blocks && b < PAIR_PROMPT; b++)
                assert_int_equal(pair.to_arena[l][pair.to_table[b]], 1000 + l * 100 + b);
    if (pair.send_over && pair.send_result == 0)
        assert_true(pair.recv_closed && (pair.arrived ? pair.arrival.is_whole : pair.receiver_gone));
    if (!pair.sender_gone)
        pair_give_back(pair.from, pair.from_table);
    if (!pair.receiver_gone)
        pair_give_back(pair.to, pair.to_table);
    kv_pool_counts(pair.from, &counts);
    assert_int_equal(counts.n_leased, 0);
    assert_int_equal(counts.n_free, PAIR_POOL);
    kv_pool_counts(pair.to, &counts);
    assert_int_equal(counts.n_leased, 0);
    assert_int_equal(counts.n_free, PAIR_POOL);
}

void pair_end(void)
{
    kvxfer_send_free(pair.send);
    kvxfer_recv_free(pair.recv);
    kv_pool_free(pair.from);
    kv_pool_free(pair.to);
}

void pair_drop(void)
{
    pair_give_back(pair.from, pair.from_table);
    pair_give_back(pair.to, pair.to_table);
    pair_end();
}
