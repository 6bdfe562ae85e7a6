/* SPDX-License-Identifier: Apache-2.0 */
/* Both ends of a hand-off over a transport and a link with random faults.
 *
 * The transport is a fake: pieces travel at random times in random order, connections break, events come
 * late. The link delivers in order, or dies.  Each end may be cancelled at any moment.  Over thousands of
 * runs:
 *
 *   - no byte lands in a destination block that is not leased, and none is read from such a source block
 *   - every transfer ends at both ends, and no lease is left
 *   - "whole" is reported only if every piece was really copied, and then the bytes are the sender's
 *
 * Some transfers send blocks of windowed layers behind the prompt's, from a block on that the receiver may have. Some
 * offer blocks of an MTP head, which the receiver may leave out. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/rng.h"
#include "transfer/kvxfer/recv.h"
#include "transfer/kvxfer/send.h"

#define N_LAYERS   3
#define N_POOL     20
#define N_PROMPT   5
#define N_WINDOWS  2
#define N_HEAD     2
#define HEAD_AT    ((1 + N_WINDOWS) * N_PROMPT) /* in the tables */
#define N_ALL      (HEAD_AT + N_HEAD)
#define TIMEOUT_NS (100 * NS_PER_MS)
#define MAX_PIECES 64
#define MAX_MAIL   64

struct piece {
    uint32_t layer, index;
    kv_block_id source;
    bool is_done;
};

struct mail {
    bool to_sender;
    struct kvxfer_message message;
    kv_block_id blocks[N_ALL];
};

static struct world {
    struct rng rng;
    struct kv_pool *from, *to;
    uint32_t from_arena[N_LAYERS][N_POOL], to_arena[N_LAYERS][N_POOL];
    kv_block_id from_table[N_ALL], to_table[N_ALL]; /* the prompt's, that of each group, the head's */
    uint32_t from_ready, skip, n_windows, first_windowed, n_head, n_head_granted;
    struct kvxfer_send *send;
    struct kvxfer_recv *recv;
    /* transport */
    bool ticket_open, ticket_closing, push_open, push_stopping, push_broken;
    kv_block_id ticket_blocks[N_ALL];
    uint32_t n_ticket;
    struct piece pieces[MAX_PIECES];
    uint32_t n_pieces, n_copied;
    bool complete_reported;
    /* link */
    struct mail mail[MAX_MAIL];
    uint32_t n_mail;
    bool link_down;
    /* reports of the ends */
    bool send_over, send_closed, recv_closed, arrived;
    int send_result;
    struct kvxfer_arrival arrival;
    bool is_offered, first_given, sender_gone, receiver_gone;
    uint64_t now_ns;
} w;
static uint32_t n_whole_heads; /* transfers that brought a head's blocks */

/* ---- the fake transport ---- */

int tr_open_ticket(struct tr_node *node, uint64_t ticket, const uint32_t *blocks, uint32_t n_blocks)
{
    assert_false(w.ticket_open);
    w.ticket_open = true;
    w.n_ticket = n_blocks;
    memcpy(w.ticket_blocks, blocks, n_blocks * sizeof(*blocks));
    return 0;
}

int tr_close_ticket(struct tr_node *node, uint64_t ticket)
{
    w.ticket_closing = true;
    return 0;
}

int tr_start_push(struct tr_node *node, uint64_t push, const struct tr_target *target, uint32_t n_pieces)
{
    w.push_open = true;
    return 0;
}

int tr_push(struct tr_node *node, uint64_t push, const struct tr_pieces *pieces)
{
    if (rng_below(&w.rng, 5) == 0)
        return E_FULL;
    for (uint32_t i = 0; i < pieces->n; i++) {
        assert_true(w.n_pieces < MAX_PIECES);
        w.pieces[w.n_pieces++] = (struct piece){
            .layer = pieces->layer, .index = pieces->first_index + i, .source = pieces->blocks[i]};
    }
    return 0;
}

int tr_stop_push(struct tr_node *node, uint64_t push)
{
    w.push_stopping = true;
    return 0;
}

static bool is_leased(struct kv_pool *pool, kv_block_id id)
{
    /* a leased block that was given up is a ZOMBIE or stays SEALED; FREE, or CACHED, means that it has no reference */
    enum kv_state state = kv_state_of(pool, id);

    return state != KV_FREE && state != KV_CACHED;
}

static void copy_one(void)
{
    struct piece *piece;

    if (w.n_pieces == 0 || !w.push_open || w.push_broken)
        return;
    piece = &w.pieces[rng_below(&w.rng, w.n_pieces)];
    if (piece->is_done || !w.ticket_open)
        return;
    assert_true(piece->index < w.n_ticket);
    assert_true(is_leased(w.from, piece->source));
    assert_true(is_leased(w.to, w.ticket_blocks[piece->index]));
    w.to_arena[piece->layer][w.ticket_blocks[piece->index]] = w.from_arena[piece->layer][piece->source];
    piece->is_done = true;
    w.n_copied++;
}

static uint32_t leading(void)
{
    for (uint32_t i = 0; i < w.n_ticket; i++) {
        uint32_t layers = 0;
        for (uint32_t k = 0; k < w.n_pieces; k++)
            layers += w.pieces[k].is_done && w.pieces[k].index == i;
        if (layers < N_LAYERS)
            return i;
    }
    return w.n_ticket;
}

static void raise_recv_event(enum tr_event_kind kind)
{
    struct tr_event event = {
        .kind = kind, .n_pieces = w.n_copied, .n_leading = leading(), .fault = {.code = E_IO}};

    if (w.recv != NULL && !w.recv_closed)
        kvxfer_recv_event(w.recv, &event, w.now_ns);
}

static void raise_send_event(enum tr_event_kind kind)
{
    struct tr_event event = {.kind = kind, .fault = {.code = E_IO}};

    if (w.send != NULL && !w.send_closed)
        kvxfer_send_event(w.send, &event, w.now_ns);
}

static void transport_turn(void)
{
    copy_one();
    if (w.ticket_open && !w.complete_reported && w.n_copied == w.n_ticket * N_LAYERS &&
        rng_below(&w.rng, 3) == 0) {
        w.complete_reported = true;
        raise_recv_event(TR_TICKET_COMPLETE);
    } else if (w.ticket_open && !w.complete_reported && rng_below(&w.rng, 4) == 0) {
        raise_recv_event(TR_PIECES_ARRIVED);
    }
    if (w.push_open && !w.push_broken && rng_below(&w.rng, 4) == 0)
        raise_send_event(TR_PUSH_SENT);
    if (w.push_open && !w.push_broken && rng_below(&w.rng, 150) == 0) { /* the data connection breaks */
        w.push_broken = true;
        raise_send_event(TR_PUSH_FAILED);
        if (w.ticket_open && !w.complete_reported)
            raise_recv_event(TR_TICKET_FAILED);
    }
    if (w.ticket_closing && rng_below(&w.rng, 3) == 0) {
        w.ticket_open = w.ticket_closing = false;
        raise_recv_event(TR_TICKET_CLOSED);
    }
    if (w.push_stopping && rng_below(&w.rng, 3) == 0) {
        w.push_open = w.push_stopping = false;
        raise_send_event(TR_PUSH_STOPPED);
    }
}

/* ---- the link ---- */

static void post(bool to_sender, const struct kvxfer_message *message)
{
    struct mail *mail = &w.mail[w.n_mail];

    if (w.link_down)
        return;
    assert_true(w.n_mail < MAX_MAIL);
    mail->to_sender = to_sender;
    mail->message = *message;
    if (message->blocks != NULL) {
        memcpy(mail->blocks, message->blocks, message->n_blocks * sizeof(*message->blocks));
        mail->message.blocks = mail->blocks;
    }
    w.n_mail++;
}

static void send_says(void *arg, const struct kvxfer_message *message)
{
    post(false, message);
}

static void recv_says(void *arg, const struct kvxfer_message *message)
{
    post(true, message);
}

static void on_over(void *arg, int result)
{
    assert_false(w.send_over);
    w.send_over = true;
    w.send_result = result;
}

static void on_send_closed(void *arg)
{
    assert_true(w.send_over);
    assert_false(w.push_open);
    w.send_closed = true;
}

static void on_arrived(void *arg, const struct kvxfer_arrival *arrival)
{
    assert_false(w.arrived);
    assert_false(w.ticket_open);
    w.arrived = true;
    w.arrival = *arrival;
}

static void on_recv_closed(void *arg)
{
    w.recv_closed = true;
}

static const struct kvxfer_send_calls send_calls = {
    .message = send_says, .on_over = on_over, .on_closed = on_send_closed};
static const struct kvxfer_recv_calls recv_calls = {
    .message = recv_says, .on_arrived = on_arrived, .on_closed = on_recv_closed};

/* First block of a group that is sent. */
static uint32_t windowed_from(void)
{
    return w.first_windowed > w.skip ? w.first_windowed : w.skip;
}

static void grant(uint64_t transfer)
{
    kv_block_id blocks[N_ALL];
    uint32_t n = N_PROMPT;
    struct kvxfer_recv_opts opts = {.pool = w.to,
                                    .calls = &recv_calls,
                                    .transfer = transfer,
                                    .ticket = 77,
                                    .blocks = blocks,
                                    .skip_blocks = w.skip,
                                    .n_tokens = N_PROMPT * 32,
                                    .timeout_ns = TIMEOUT_NS};

    memcpy(blocks, w.to_table, N_PROMPT * sizeof(blocks[0]));
    for (uint32_t g = 1; g <= w.n_windows; g++)
        for (uint32_t b = windowed_from(); b < N_PROMPT; b++)
            blocks[n++] = w.to_table[g * N_PROMPT + b];
    w.n_head_granted = rng_below(&w.rng, 3) == 0 ? 0 : w.n_head;
    for (uint32_t b = 0; b < w.n_head_granted; b++)
        blocks[n++] = w.to_table[HEAD_AT + b];
    opts.n_blocks = n;
    assert_int_equal(kvxfer_recv_new(&opts, w.now_ns, &w.recv), 0);
}

static void refuse(uint64_t transfer, uint32_t retry_ms)
{
    struct kvxfer_message refused = {
        .kind = KVXFER_REFUSED, .transfer = transfer, .code = E_FULL, .retry_after_ms = retry_ms};

    post(true, &refused);
}

static void deliver_one(void)
{
    struct mail mail;

    if (w.n_mail == 0)
        return;
    mail = w.mail[0];
    if (mail.message.blocks != NULL)
        mail.message.blocks = mail.blocks;
    memmove(w.mail, w.mail + 1, --w.n_mail * sizeof(w.mail[0]));
    for (uint32_t i = 0; i < w.n_mail; i++)
        if (w.mail[i].message.blocks != NULL)
            w.mail[i].message.blocks = w.mail[i].blocks;
    if (mail.to_sender) {
        if (w.send != NULL && !w.send_closed)
            kvxfer_send_message(w.send, &mail.message, w.now_ns);
    } else if (mail.message.kind == KVXFER_OFFER) {
        if (w.receiver_gone)
            refuse(mail.message.transfer, 0);
        else if (rng_below(&w.rng, 4) == 0)
            refuse(mail.message.transfer, 3);
        else
            grant(mail.message.transfer);
    } else if (w.recv != NULL && !w.recv_closed) {
        kvxfer_recv_message(w.recv, &mail.message, w.now_ns);
    }
}

/* ---- one run ---- */

static void begin(uint64_t seed, bool has_windows)
{
    struct kv_pool_opts pool = {.n_blocks = N_POOL, .block_tokens = 32};
    struct kvxfer_send_opts send = {.calls = &send_calls,
                                    .transfer = 5,
                                    .n_layers = N_LAYERS,
                                    .n_tokens = N_PROMPT * 32,
                                    .n_blocks = N_PROMPT,
                                    .tcp_address = "x",
                                    .unix_path = "y",
                                    .timeout_ns = TIMEOUT_NS};

    memset(&w, 0, sizeof(w));
    rng_init(&w.rng, seed);
    w.now_ns = NS_PER_S;
    assert_int_equal(kv_pool_new(&pool, &w.from), 0);
    assert_int_equal(kv_pool_new(&pool, &w.to), 0);
    assert_int_equal(kv_take(w.from, N_ALL, w.from_table), 0);
    assert_int_equal(kv_take(w.to, N_ALL, w.to_table), 0);
    send.n_windows = w.n_windows = has_windows ? (uint32_t)rng_below(&w.rng, N_WINDOWS + 1) : 0;
    send.first_windowed = w.first_windowed = (uint32_t)rng_below(&w.rng, N_PROMPT + 1);
    w.skip = (uint32_t)rng_below(&w.rng, 3);
    send.n_head_blocks = w.n_head = has_windows ? (uint32_t)rng_below(&w.rng, N_HEAD + 1) : 0;
    send.head_tokens = 40 * w.n_head;
    for (uint32_t l = 0; l < N_LAYERS; l++)
        for (uint32_t b = 0; b < N_ALL; b++)
            w.from_arena[l][w.from_table[b]] = 1000 + l * 100 + b;
    send.pool = w.from;
    assert_int_equal(kvxfer_send_new(&send, w.now_ns, &w.send), 0);
}

static void give_back(struct kv_pool *pool, const kv_block_id *table)
{
    for (int i = N_ALL - 1; i >= 0; i--)
        kv_unref(pool, table[i]);
}

static void sender_turn(void)
{
    struct kvxfer_first first = {.id = 42};

    if (w.sender_gone || w.send_closed)
        return;
    if (w.from_ready < N_PROMPT) {
        for (uint32_t l = 0; l < N_LAYERS; l++) {
            kvxfer_send_ready(w.send, l, w.from_ready + 1, w.from_table);
            for (uint32_t g = 0; g < w.n_windows; g++)
                kvxfer_send_window_ready(w.send, (struct kvxfer_window){.group = g, .layer = l},
                                         w.from_ready + 1, w.from_table + (g + 1) * N_PROMPT);
        }
        w.from_ready++;
        if (w.n_head > 0 && w.from_ready + N_HEAD > N_PROMPT) /* the last chunks complete its blocks */
            kvxfer_send_head_ready(w.send, w.from_ready == N_PROMPT ? w.n_head : 1, w.from_table + HEAD_AT);
    } else if (!w.first_given) {
        w.first_given = true;
        kvxfer_send_first(w.send, &first, false);
    }
    if (rng_below(&w.rng, 200) == 0) {
        w.sender_gone = true;
        kvxfer_send_cancel(w.send, E_CANCELLED);
        give_back(w.from, w.from_table);
    }
}

static void receiver_turn(void)
{
    if (w.receiver_gone || rng_below(&w.rng, 200) != 0)
        return;
    w.receiver_gone = true;
    if (w.recv != NULL && !w.recv_closed)
        kvxfer_recv_cancel(w.recv, E_CANCELLED, true);
    give_back(w.to, w.to_table);
}

static void break_link(void)
{
    w.link_down = true;
    w.n_mail = 0;
    if (!w.send_closed)
        kvxfer_send_peer_lost(w.send);
    if (w.recv != NULL && !w.recv_closed)
        kvxfer_recv_peer_lost(w.recv);
}

static bool has_ended(void)
{
    return w.send_closed && (w.recv == NULL || w.recv_closed);
}

static void check_end(void)
{
    struct kv_pool_counts counts;

    assert_true(has_ended());
    if (w.arrived && w.arrival.is_whole) {
        assert_int_equal(w.arrival.first.id, 42);
        for (uint32_t l = 0; l < N_LAYERS; l++)
            for (uint32_t b = w.skip; b < N_PROMPT; b++)
                assert_int_equal(w.to_arena[l][w.to_table[b]], 1000 + l * 100 + b);
        for (uint32_t l = 0; l < N_LAYERS; l++)
            for (uint32_t g = 1; g <= w.n_windows; g++)
                for (uint32_t at = g * N_PROMPT + windowed_from(); at < (g + 1) * N_PROMPT; at++)
                    assert_int_equal(w.to_arena[l][w.to_table[at]], 1000 + l * 100 + at);
        for (uint32_t l = 0; l < N_LAYERS; l++)
            for (uint32_t at = HEAD_AT; at < HEAD_AT + w.n_head_granted; at++)
                assert_int_equal(w.to_arena[l][w.to_table[at]], 1000 + l * 100 + at);
        n_whole_heads += w.n_head_granted > 0;
    }
    if (w.arrived)
        for (uint32_t l = 0; l < N_LAYERS; l++)
            for (uint32_t b = w.skip; b < w.arrival.n_blocks && b < N_PROMPT; b++)
                assert_int_equal(w.to_arena[l][w.to_table[b]], 1000 + l * 100 + b);
    if (w.send_over && w.send_result == 0)
        assert_true(w.recv_closed && (w.arrived ? w.arrival.is_whole : w.receiver_gone));
    if (!w.sender_gone)
        give_back(w.from, w.from_table);
    if (!w.receiver_gone)
        give_back(w.to, w.to_table);
    kv_pool_counts(w.from, &counts);
    assert_int_equal(counts.n_leased, 0);
    assert_int_equal(counts.n_free, N_POOL);
    kv_pool_counts(w.to, &counts);
    assert_int_equal(counts.n_leased, 0);
    assert_int_equal(counts.n_free, N_POOL);
}

static void finish(void)
{
    kvxfer_send_free(w.send);
    kvxfer_recv_free(w.recv);
    kv_pool_free(w.from);
    kv_pool_free(w.to);
}

static void run(uint64_t seed, bool is_calm, uint32_t *n_whole)
{
    begin(seed, true);
    for (int turn = 0; turn < 4000 && !has_ended(); turn++) {
        w.now_ns += NS_PER_MS / 4;
        switch (rng_below(&w.rng, 6)) {
        case 0:
            sender_turn();
            break;
        case 1:
            if (!is_calm)
                receiver_turn();
            break;
        case 2:
            deliver_one();
            break;
        case 3:
            if (!w.send_closed)
                kvxfer_send_tick(w.send, w.now_ns);
            if (w.recv != NULL && !w.recv_closed)
                kvxfer_recv_tick(w.recv, w.now_ns);
            break;
        default:
            transport_turn();
        }
        if (!is_calm && !w.link_down && rng_below(&w.rng, 800) == 0)
            break_link();
    }
    check_end();
    *n_whole += w.arrived && w.arrival.is_whole;
    finish();
}

static void every_transfer_ends_and_nothing_lands_late(void **state)
{
    uint32_t n_whole = 0;

    for (uint64_t seed = 1; seed <= 5000; seed++)
        run(seed, false, &n_whole);
    assert_in_range(n_whole, 500, 4900); /* faults had effects, but not always */
    assert_in_range(n_whole_heads, n_whole / 4, 3 * n_whole / 4);
}

static void deliver_all(void)
{
    while (w.n_mail > 0)
        deliver_one();
}

static void a_grant_that_comes_late_catches_up(void **state)
{
    uint32_t n_whole = 0;

    begin(3, false);
    w.skip = 0;
    while (w.from_ready < N_PROMPT)
        sender_turn();
    sender_turn();
    for (int turn = 0; turn < 4000 && !has_ended(); turn++) {
        deliver_all();
        if (!w.send_closed)
            kvxfer_send_tick(w.send, w.now_ns += NS_PER_MS / 10);
        w.push_broken = false;
        transport_turn();
    }
    n_whole += w.arrived && w.arrival.is_whole;
    check_end();
    finish();
    (void)n_whole;
}

/* Ticks both ends for so long, without a piece or a message. */
static void pass_time(uint64_t ns)
{
    for (uint64_t end_ns = w.now_ns + ns; w.now_ns < end_ns;) {
        w.now_ns += TIMEOUT_NS / 4;
        kvxfer_send_tick(w.send, w.now_ns);
        if (!w.recv_closed)
            kvxfer_recv_tick(w.recv, w.now_ns);
    }
}

/* Prompts that are computed before this one are no fault.  Missing pieces after the first token are one. */
static void a_receiver_is_patient_until_the_first_token(void **state)
{
    for (int is_done = 0; is_done < 2; is_done++) {
        begin(4, false);
        while (w.recv == NULL) {
            deliver_all();
            kvxfer_send_tick(w.send, w.now_ns += NS_PER_MS);
        }
        pass_time(20 * TIMEOUT_NS);
        assert_int_equal(w.n_mail, 0);
        assert_false(w.arrived || w.recv_closed);
        if (is_done)
            kvxfer_recv_message(w.recv, &(struct kvxfer_message){.kind = KVXFER_PREFILL_DONE, .transfer = 5},
                                w.now_ns);
        pass_time((is_done ? 2 : 11) * TIMEOUT_NS);
        assert_true(w.n_mail > 0 && w.mail[0].to_sender && w.mail[0].message.kind == KVXFER_CANCEL);
        assert_int_equal(w.mail[0].message.code, E_TIMEOUT);
        deliver_all();
        for (int turn = 0; turn < 4000 && !has_ended(); turn++) {
            deliver_all();
            transport_turn();
        }
        assert_true(w.arrived && !w.arrival.is_whole);
        check_end();
        finish();
    }
}

static void done_before_everything_was_pushed_is_not_believed(void **state)
{
    struct kvxfer_message lie = {.kind = KVXFER_DONE, .transfer = 5};
    kv_block_id blocks[N_PROMPT] = {0};
    struct kvxfer_message granted = {
        .kind = KVXFER_GRANT, .transfer = 5, .blocks = blocks, .n_blocks = N_PROMPT};

    begin(9, false);
    kvxfer_send_message(w.send, &granted, w.now_ns);
    kvxfer_send_ready(w.send, 0, 1, w.from_table);
    kvxfer_send_message(w.send, &lie, w.now_ns);
    assert_true(w.send_over);
    assert_int_equal(w.send_result, E_PROTO);
    assert_false(w.send_closed); /* leases stay until the transport reads no more */
    w.push_open = false;
    raise_send_event(TR_PUSH_STOPPED);
    assert_true(w.send_closed);
    give_back(w.from, w.from_table);
    give_back(w.to, w.to_table);
    finish();
}

static void a_grant_of_the_wrong_size_is_refused(void **state)
{
    kv_block_id blocks[N_PROMPT + 1] = {0};
    struct kvxfer_message granted = {
        .kind = KVXFER_GRANT, .transfer = 5, .blocks = blocks, .n_blocks = N_PROMPT + 1};

    begin(9, false);
    kvxfer_send_message(w.send, &granted, w.now_ns);
    assert_true(w.send_over);
    assert_int_equal(w.send_result, E_PROTO);
    assert_true(w.send_closed);
    give_back(w.from, w.from_table);
    give_back(w.to, w.to_table);
    finish();
}

/* The grant of a windowed transfer counts the blocks of each group, less those that the receiver has. */
static void a_grant_without_the_windows_is_refused(void **state)
{
    kv_block_id blocks[N_PROMPT] = {0};
    struct kvxfer_message granted = {
        .kind = KVXFER_GRANT, .transfer = 5, .blocks = blocks, .n_blocks = N_PROMPT};
    uint64_t seed = 1;

    for (begin(seed, true); w.n_windows == 0 || w.first_windowed == N_PROMPT; begin(++seed, true)) {
        kvxfer_send_cancel(w.send, E_CANCELLED);
        give_back(w.from, w.from_table);
        give_back(w.to, w.to_table);
        finish();
    }
    assert_int_equal(w.mail[0].message.n_blocks, N_PROMPT + w.n_windows * (N_PROMPT - w.first_windowed));
    kvxfer_send_message(w.send, &granted, w.now_ns);
    assert_true(w.send_over);
    assert_int_equal(w.send_result, E_PROTO);
    give_back(w.from, w.from_table);
    give_back(w.to, w.to_table);
    finish();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_transfer_ends_and_nothing_lands_late),
        cmocka_unit_test(a_grant_that_comes_late_catches_up),
        cmocka_unit_test(a_receiver_is_patient_until_the_first_token),
        cmocka_unit_test(done_before_everything_was_pushed_is_not_believed),
        cmocka_unit_test(a_grant_of_the_wrong_size_is_refused),
        cmocka_unit_test(a_grant_without_the_windows_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
