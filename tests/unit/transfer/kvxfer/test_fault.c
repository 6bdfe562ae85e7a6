/* SPDX-License-Identifier: Apache-2.0 */
/* Thousands of hand-offs over a link and a transport that drop, repeat, delay and reorder (tr_fault), several
 * at once in the same two pools.
 *
 * A transfer begins, is computed layer by layer, and meets a random fault: none, a cancel at either end, a
 * cut link, a sender or a receiver that dies and returns without state.  Checked in virtual time:
 *
 *   - a byte is written only into a block leased for the transfer of its ticket, and read only from a leased block
 *   - blocks that count as arrived have the sender's bytes
 *   - every transfer ends at both ends within its time-outs, and then no lease is left
 *   - after all rounds both pools are whole, and neither memory nor descriptors have grown */
#include <dirent.h>
#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "transfer/kvxfer/recv.h"
#include "transfer/kvxfer/send.h"
#include "tr_fault.h"

#define N_LAYERS   3
#define N_POOL     24
#define N_PROMPT   5
#define N_AT_ONCE  3
#define N_ROUNDS   1000
#define TIMEOUT_NS (100 * NS_PER_MS)
#define TICK_NS    (5 * NS_PER_MS)

struct xfer {
    uint64_t id; /* id of transfer, push and ticket; never used twice */
    struct kvxfer_send *send;
    struct kvxfer_recv *recv;
    kv_block_id from[N_PROMPT], to[N_PROMPT];
    uint32_t skip, n_ready;
    bool has_from, has_to; /* the sequences hold their blocks */
    bool has_first, send_over, send_closed, recv_closed, was_granted, arrived, send_dead, recv_dead;
    int send_result;
    uint64_t began_ns, strikes_ns;
    uint32_t fate;
};

enum fate { F_NONE, F_SENDER_CANCELS, F_RECEIVER_CANCELS, F_CUT, F_SENDER_DIES, F_RECEIVER_DIES, N_FATES };

static struct {
    struct kv_pool *from, *to;
    uint32_t from_arena[N_LAYERS][N_POOL], to_arena[N_LAYERS][N_POOL];
    struct xfer xfers[N_AT_ONCE];
    uint64_t next_id;
    bool is_full; /* the receiver never has room, and replies "later" */
    uint32_t n_whole, n_part, n_fates[N_FATES];
} w;

static struct xfer *find(uint64_t id)
{
    for (uint32_t i = 0; i < N_AT_ONCE; i++)
        if (w.xfers[i].id == id && id != 0)
            return &w.xfers[i];
    return NULL;
}

static uint32_t value_of(const struct xfer *x, uint32_t layer, uint32_t index)
{
    return (uint32_t)x->id * 1000 + layer * 100 + index;
}

static bool is_lent(struct kv_pool *pool, kv_block_id id)
{
    enum kv_state state = kv_state_of(pool, id);

    return state != KV_FREE && state != KV_CACHED;
}

/* ---- writes of the transport ---- */

static uint32_t read_block(uint64_t push, uint32_t layer, uint32_t block)
{
    assert_non_null(find(push));
    assert_true(is_lent(w.from, block));
    return w.from_arena[layer][block];
}

static void write_block(uint64_t ticket, uint32_t layer, uint32_t block, uint32_t value)
{
    struct xfer *x = find(ticket);

    assert_non_null(x);
    assert_false(x->recv_closed || x->arrived);
    assert_true(is_lent(w.to, block));
    assert_int_equal(value / 1000, (uint32_t)x->id);
    w.to_arena[layer][block] = value;
}

/* ---- messages of the ends ---- */

static void send_says(void *arg, const struct kvxfer_message *message)
{
    (void)arg;
    tr_fault_post(false, message);
}

static void recv_says(void *arg, const struct kvxfer_message *message)
{
    (void)arg;
    tr_fault_post(true, message);
}

static void give_back(struct kv_pool *pool, const kv_block_id *table, bool *has)
{
    for (int i = N_PROMPT - 1; *has && i >= 0; i--)
        kv_unref(pool, table[i]);
    *has = false;
}

static void on_over(void *arg, int result)
{
    struct xfer *x = arg;

    assert_false(x->send_over);
    x->send_over = true;
    x->send_result = result;
    if (result == 0)
        assert_true(x->recv_closed ||
                    x->recv_dead); /* dead: only its last report counts, from when its ticket closed */
}

static void on_send_closed(void *arg)
{
    ((struct xfer *)arg)->send_closed = true;
}

static void on_arrived(void *arg, const struct kvxfer_arrival *arrival)
{
    struct xfer *x = arg;

    assert_false(x->arrived);
    x->arrived = true;
    for (uint32_t b = x->skip; b < arrival->n_blocks; b++)
        for (uint32_t l = 0; l < N_LAYERS; l++)
            assert_int_equal(w.to_arena[l][x->to[b]], value_of(x, l, b));
    if (arrival->is_whole) {
        assert_int_equal(arrival->n_blocks, N_PROMPT);
        assert_int_equal(arrival->first.id, (uint32_t)x->id);
    }
    w.n_whole += arrival->is_whole;
    w.n_part += !arrival->is_whole && arrival->n_blocks > x->skip;
}

static void on_recv_closed(void *arg)
{
    struct xfer *x = arg;

    x->recv_closed = true;
    give_back(w.to, x->to, &x->has_to); /* at once, so that a late byte would meet a free block */
}

static const struct kvxfer_send_calls send_calls = {
    .message = send_says, .on_over = on_over, .on_closed = on_send_closed};
static const struct kvxfer_recv_calls recv_calls = {
    .message = recv_says, .on_arrived = on_arrived, .on_closed = on_recv_closed};

/* ---- received messages ---- */

static void refuse(uint64_t transfer)
{
    struct kvxfer_message refused = {.kind = KVXFER_REFUSED,
                                     .transfer = transfer,
                                     .code = E_FULL,
                                     .retry_after_ms = w.is_full || tr_fault_random(2) ? 7 : 0};

    tr_fault_post(true, &refused);
}

static void on_offer(struct xfer *x)
{
    struct kvxfer_recv_opts opts = {.pool = w.to,
                                    .calls = &recv_calls,
                                    .arg = x,
                                    .transfer = x->id,
                                    .ticket = x->id,
                                    .blocks = x->to,
                                    .n_blocks = N_PROMPT,
                                    .skip_blocks = x->skip,
                                    .n_tokens = N_PROMPT * 32,
                                    .timeout_ns = TIMEOUT_NS};

    if (x->recv != NULL || x->recv_dead || !x->has_to || w.is_full || tr_fault_random(5) == 0) {
        refuse(x->id);
        return;
    }
    x->was_granted = true;
    assert_int_equal(kvxfer_recv_new(&opts, tr_fault_now_ns(), &x->recv), 0);
}

static void on_message(bool to_sender, const struct kvxfer_message *message)
{
    struct xfer *x = find(message->transfer);

    if (x == NULL)
        return;
    if (to_sender && !x->send_dead && !x->send_closed)
        kvxfer_send_message(x->send, message, tr_fault_now_ns());
    else if (!to_sender && message->kind == KVXFER_OFFER)
        on_offer(x);
    else if (!to_sender && x->recv != NULL && !x->recv_closed)
        kvxfer_recv_message(x->recv, message, tr_fault_now_ns());
}

static void on_event(bool to_sender, const struct tr_event *event)
{
    struct xfer *x = find(event->id);

    assert_non_null(x);
    if (to_sender && !x->send_dead && !x->send_closed)
        kvxfer_send_event(x->send, event, tr_fault_now_ns());
    else if (!to_sender && x->recv != NULL && !x->recv_closed)
        kvxfer_recv_event(x->recv, event, tr_fault_now_ns());
}

/* ---- fates ---- */

static void lose_peer_at_receiver(struct xfer *x)
{
    if (x->recv != NULL && !x->recv_closed)
        kvxfer_recv_peer_lost(x->recv);
}

static void lose_peer_at_sender(struct xfer *x)
{
    if (!x->send_dead && !x->send_closed)
        kvxfer_send_peer_lost(x->send);
}

static void sender_dies(struct xfer *x)
{
    tr_fault_crash(true, x->id);
    kvxfer_send_free(x->send);
    x->send = NULL;
    x->send_dead = x->send_closed = true;
    give_back(w.from, x->from, &x->has_from);
    lose_peer_at_receiver(x);
}

static void receiver_dies(struct xfer *x)
{
    tr_fault_crash(false, x->id);
    kvxfer_recv_free(x->recv);
    x->recv = NULL;
    x->recv_dead = x->recv_closed = true;
    give_back(w.to, x->to, &x->has_to);
    lose_peer_at_sender(x);
}

static void strike(struct xfer *x)
{
    w.n_fates[x->fate]++;
    switch ((enum fate)x->fate) {
    case F_SENDER_CANCELS: /* the sequence ends at once, the leases later */
        give_back(w.from, x->from, &x->has_from);
        if (!x->send_closed)
            kvxfer_send_cancel(x->send, E_CANCELLED);
        break;
    case F_RECEIVER_CANCELS:
        give_back(w.to, x->to, &x->has_to);
        if (x->recv != NULL && !x->recv_closed)
            kvxfer_recv_cancel(x->recv, E_CANCELLED, true);
        break;
    case F_CUT:
        tr_fault_cut();
        for (uint32_t i = 0; i < N_AT_ONCE; i++) {
            lose_peer_at_sender(&w.xfers[i]);
            lose_peer_at_receiver(&w.xfers[i]);
        }
        break;
    case F_SENDER_DIES:
        if (!x->send_closed)
            sender_dies(x);
        break;
    case F_RECEIVER_DIES:
        if (!x->recv_closed)
            receiver_dies(x);
        break;
    case F_NONE:
    case N_FATES:
        break;
    }
    x->fate = F_NONE;
}

/* ---- a round ---- */

static void compute(struct xfer *x)
{
    struct kvxfer_first first = {.id = (uint32_t)x->id};

    if (x->send_closed || !x->has_from)
        return;
    if (x->n_ready < N_PROMPT) {
        x->n_ready++;
        for (uint32_t l = 0; l < N_LAYERS; l++)
            kvxfer_send_ready(x->send, l, x->n_ready, x->from);
    } else if (!x->has_first) {
        x->has_first = true;
        kvxfer_send_first(x->send, &first, false);
    }
}

static bool has_ended(const struct xfer *x)
{
    return x->send_closed && (x->recv == NULL || x->recv_closed);
}

static void on_alarm(void)
{
    bool is_going = false;

    for (uint32_t i = 0; i < N_AT_ONCE; i++) {
        struct xfer *x = &w.xfers[i];

        compute(x);
        if (!x->send_closed)
            kvxfer_send_tick(x->send, tr_fault_now_ns());
        if (x->recv != NULL && !x->recv_closed)
            kvxfer_recv_tick(x->recv, tr_fault_now_ns());
        if (x->fate != F_NONE && tr_fault_now_ns() >= x->strikes_ns)
            strike(x);
        is_going |= !has_ended(x);
        if (!has_ended(x))
            /* A receiver whose PREFILL_DONE is lost waits 30 timeouts. */
            assert_true(tr_fault_now_ns() - x->began_ns < 50 * TIMEOUT_NS);
    }
    if (is_going)
        tr_fault_alarm(TICK_NS);
}

static void begin(struct xfer *x)
{
    struct kvxfer_send_opts opts = {.pool = w.from,
                                    .calls = &send_calls,
                                    .arg = x,
                                    .n_layers = N_LAYERS,
                                    .n_tokens = N_PROMPT * 32,
                                    .n_blocks = N_PROMPT,
                                    .tcp_address = "x",
                                    .unix_path = "y",
                                    .timeout_ns = TIMEOUT_NS};

    memset(x, 0, sizeof(*x));
    x->id = ++w.next_id;
    opts.transfer = x->id;
    x->skip = (uint32_t)tr_fault_random(3);
    x->fate = tr_fault_random(2) ? F_NONE : (uint32_t)tr_fault_random(N_FATES);
    x->began_ns = tr_fault_now_ns();
    x->strikes_ns = x->began_ns + tr_fault_random(12) * TICK_NS;
    assert_int_equal(kv_take(w.from, N_PROMPT, x->from), 0);
    assert_int_equal(kv_take(w.to, N_PROMPT, x->to), 0);
    x->has_from = x->has_to = true;
    for (uint32_t l = 0; l < N_LAYERS; l++)
        for (uint32_t b = 0; b < N_PROMPT; b++)
            w.from_arena[l][x->from[b]] = value_of(x, l, b);
    assert_int_equal(kvxfer_send_new(&opts, x->began_ns, &x->send), 0);
}

static void end(struct xfer *x)
{
    assert_true(has_ended(x));
    assert_true(x->send_over || x->send_dead);
    give_back(w.from, x->from, &x->has_from);
    give_back(w.to, x->to, &x->has_to);
    kvxfer_send_free(x->send);
    kvxfer_recv_free(x->recv);
    memset(x, 0, sizeof(*x));
}

static void assert_whole(struct kv_pool *pool)
{
    struct kv_pool_counts counts;

    kv_pool_counts(pool, &counts);
    assert_int_equal(counts.n_leased, 0);
    assert_int_equal(counts.n_free, N_POOL);
}

static void play(uint64_t seed)
{
    struct tr_fault_opts opts = {.seed = seed,
                                 .delay_ns = 12 * NS_PER_MS,
                                 .drop = seed % 3 == 0 ? 0 : 15,
                                 .twice = seed % 2 == 0 ? 0 : 100,
                                 .break_push = seed % 5 == 0 ? 20 : 0,
                                 .n_layers = N_LAYERS,
                                 .read = read_block,
                                 .write = write_block,
                                 .on_message = on_message,
                                 .on_event = on_event,
                                 .on_alarm = on_alarm};

    tr_fault_init(&opts);
    for (uint32_t i = 0; i < N_AT_ONCE; i++)
        begin(&w.xfers[i]);
    tr_fault_alarm(TICK_NS);
    while (tr_fault_step())
        ;
    for (uint32_t i = 0; i < N_AT_ONCE; i++)
        end(&w.xfers[i]);
    assert_whole(w.from);
    assert_whole(w.to);
    tr_fault_fini();
}

static uint32_t n_descriptors(void)
{
    DIR *dir = opendir("/proc/self/fd");
    uint32_t n = 0;

    assert_non_null(dir);
    while (readdir(dir) != NULL)
        n++;
    closedir(dir);
    return n;
}

static int open_pools(void **state)
{
    struct kv_pool_opts pool = {.n_blocks = N_POOL, .block_tokens = 32};

    (void)state;
    memset(&w, 0, sizeof(w));
    return kv_pool_new(&pool, &w.from) < 0 || kv_pool_new(&pool, &w.to) < 0 ? -1 : 0;
}

static int close_pools(void **state)
{
    (void)state;
    kv_pool_free(w.from);
    kv_pool_free(w.to);
    return 0;
}

/* "Later" must not be the answer for ever. */
static void a_receiver_that_never_has_room_is_given_up(void **state)
{
    (void)state;
    w.is_full = true;
    for (uint64_t seed = 1; seed <= 50; seed++)
        play(seed);
    assert_int_equal(w.n_whole, 0);
}

static void every_transfer_ends_and_nothing_grows(void **state)
{
    size_t used_bytes;
    uint32_t n_open;

    (void)state;
    for (uint64_t seed = 1; seed <= 50; seed++)
        play(seed);
    n_open = n_descriptors();
    used_bytes = mallinfo2().uordblks;
    for (uint64_t seed = 51; seed <= 50 + N_ROUNDS; seed++)
        play(seed);
    assert_int_equal(mallinfo2().uordblks, used_bytes);
    assert_int_equal(n_descriptors(), n_open);
    print_message("%u transfers: %u arrived whole, %u in part\n", (unsigned)w.next_id, w.n_whole, w.n_part);
    assert_in_range(w.n_whole, w.next_id / 5, w.next_id * 9 / 10); /* faults had effects, but not always */
    assert_true(w.n_part > 50);
    for (uint32_t i = F_SENDER_CANCELS; i < N_FATES; i++)
        assert_true(w.n_fates[i] > 50);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_transfer_ends_and_nothing_grows, open_pools, close_pools),
        cmocka_unit_test_setup_teardown(a_receiver_that_never_has_room_is_given_up, open_pools, close_pools),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
