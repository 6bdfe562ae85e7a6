/* SPDX-License-Identifier: Apache-2.0 */
/* Two workers that ask each other for cached blocks, against a transport and a link that misbehave on a seed.
 *
 * Each has its pool, its asks and its loans; tasks come, are cancelled, wait and go on; the pools are small,
 * so blocks are evicted all the time; links break and come back, messages get lost, data connections break,
 * pieces travel in any order, and calls of the transport are refused now and then.  Over all runs:
 *
 *   - every task goes on, or is cancelled, once; nothing waits for ever
 *   - no byte lands in a block that is not being filled, none is read from one that is free
 *   - what can be found under a hash is what that hash stands for
 *   - loans have at most one window with the transport
 *   - at the end no lease and no reference is left */
#include "tests/unit/check.h"

#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/rng.h"
#include "proto/abilities.h"
#include "worker/share_priv.h"

#define N_LAYERS     2
#define BLOCK_TOKENS 4
#define N_POOL       24
#define MAX_PROMPT   9 /* blocks */
#define MAX_TASKS    12
#define MAX_MAIL     256
#define MAX_ENDS     64
#define MAX_PIECES   64
#define WINDOW       3 /* pieces: of 2 MiB each, see the layout */
#define TIMEOUT_NS   (40 * NS_PER_MS)

struct tr_node {
    uint32_t number;
};

struct mail {
    struct kvxfer_message message;
    kv_block_id blocks[MAX_PROMPT];
    struct block_hash hashes[MAX_PROMPT];
};

struct client {
    struct task task;
    bool is_used, is_waiting;
};

static struct node {
    struct tr_node transport;
    struct worker_engine engine;
    uint64_t arena[N_LAYERS][N_POOL];
    struct client clients[MAX_TASKS];
    struct mail mail[MAX_MAIL]; /* to this node */
    uint32_t n_mail;
} nodes[2];

struct ticket {
    bool is_open, is_closing, is_said, is_failed;
    uint64_t id;
    uint32_t node, n_blocks, n_done;
    kv_block_id blocks[MAX_PROMPT];
    bool is_done[N_LAYERS][MAX_PROMPT];
};

struct piece {
    uint32_t layer, index;
    kv_block_id source;
    bool is_done;
};

struct push {
    bool is_open, is_stopping, is_broken, owes_sent;
    uint64_t id, ticket;
    uint32_t node;
    struct piece pieces[MAX_PIECES];
    uint32_t n_pieces, n_done;
};

static struct ticket tickets[MAX_ENDS];
static struct push pushes[MAX_ENDS];
static struct rng rng;
static bool link_is_up, is_calm;
static uint64_t n_went_on, n_cancelled, n_fetched, n_begun, n_waited;

static struct node *node_of(const struct worker_engine *engine)
{
    return container_of((struct worker_engine *)engine, struct node, engine);
}

static bool happens(uint32_t one_in)
{
    return !is_calm && rng_below(&rng, one_in) == 0;
}

/* ---- what a hash stands for ---- */

static uint64_t content_of(const struct block_hash *hash, uint32_t layer)
{
    return get_u64(hash->bytes) + layer;
}

static uint32_t hash_prompt(const struct task_spec *spec, struct block_hash *out)
{
    struct prefix_roots roots;
    uint8_t key[32] = {0};

    assert_int_equal(prefix_roots_derive(key, "", spec->tenant, 0, &roots), 0);
    return (uint32_t)prefix_roots_chain(&roots, spec->tokens, spec->n_tokens, BLOCK_TOKENS, out);
}

static void assert_right(struct node *node, const struct block_hash *hashes, uint32_t n)
{
    kv_block_id ids[MAX_PROMPT];

    n = kv_match(node->engine.pool, hashes, n, ids);
    for (uint32_t i = n; i-- > 0;) {
        for (uint32_t layer = 0; layer < N_LAYERS; layer++)
            assert_int_equal(node->arena[layer][ids[i]], content_of(&hashes[i], layer));
        kv_unref(node->engine.pool, ids[i]);
    }
}

/* ---- the fake transport ---- */

static struct ticket *find_ticket(uint64_t id)
{
    for (int i = 0; i < MAX_ENDS; i++)
        if (tickets[i].is_open && tickets[i].id == id)
            return &tickets[i];
    return NULL;
}

static struct push *find_push(uint64_t id)
{
    for (int i = 0; i < MAX_ENDS; i++)
        if (pushes[i].is_open && pushes[i].id == id)
            return &pushes[i];
    return NULL;
}

int tr_open_ticket(struct tr_node *node, uint64_t id, const uint32_t *blocks, uint32_t n_blocks)
{
    struct ticket *ticket = tickets;

    if (happens(50))
        return E_FULL;
    while (ticket->is_open)
        ticket++;
    assert_true(ticket < tickets + MAX_ENDS && n_blocks <= MAX_PROMPT);
    *ticket = (struct ticket){.is_open = true, .id = id, .node = node->number, .n_blocks = n_blocks};
    memcpy(ticket->blocks, blocks, n_blocks * sizeof(*blocks));
    return 0;
}

int tr_close_ticket(struct tr_node *node, uint64_t id)
{
    find_ticket(id)->is_closing = true;
    return 0;
}

int tr_start_push(struct tr_node *node, uint64_t id, const struct tr_target *target, uint32_t n_pieces)
{
    struct push *push = pushes;

    if (happens(50))
        return E_FULL;
    while (push->is_open)
        push++;
    assert_true(push < pushes + MAX_ENDS);
    *push = (struct push){.is_open = true, .id = id, .node = node->number, .ticket = target->ticket};
    return 0;
}

static uint32_t n_under_way(uint32_t node)
{
    uint32_t n = 0;

    for (int i = 0; i < MAX_ENDS; i++)
        if (pushes[i].is_open && pushes[i].node == node && !pushes[i].is_stopping && !pushes[i].is_broken)
            n += pushes[i].n_pieces - pushes[i].n_done;
    return n;
}

int tr_push(struct tr_node *node, uint64_t id, uint32_t layer, uint32_t first_index, const uint32_t *blocks,
            uint32_t n)
{
    struct push *push = find_push(id);

    if (happens(5))
        return E_FULL;
    for (uint32_t i = 0; i < n; i++) {
        assert_true(push->n_pieces < MAX_PIECES);
        push->pieces[push->n_pieces++] =
            (struct piece){.layer = layer, .index = first_index + i, .source = blocks[i]};
    }
    push->owes_sent = true;
    assert_true(n_under_way(node->number) <= WINDOW);
    return 0;
}

int tr_stop_push(struct tr_node *node, uint64_t id)
{
    find_push(id)->is_stopping = true;
    return 0;
}

static void tell_receiver(struct ticket *ticket, enum tr_event_kind kind)
{
    struct tr_event event = {.kind = kind,
                             .id = ticket->id,
                             .n_pieces = ticket->n_done,
                             .n_bytes = ticket->n_done * UINT64_C(100),
                             .elapsed_ns = 1000,
                             .fault = {.code = E_IO}};

    for (bool is_whole = true; event.n_leading < ticket->n_blocks; event.n_leading++) {
        for (uint32_t layer = 0; layer < N_LAYERS; layer++)
            is_whole &= ticket->is_done[layer][event.n_leading];
        if (!is_whole)
            break;
    }
    (void)worker_asks_transport(&nodes[ticket->node].engine, &event);
}

static void tell_sender(struct push *push, enum tr_event_kind kind)
{
    struct tr_event event = {.kind = kind, .id = push->id, .n_pieces = push->n_done, .fault = {.code = E_IO}};

    (void)worker_loans_transport(&nodes[push->node].engine, &event);
}

static void copy_one(struct push *push)
{
    struct ticket *ticket = find_ticket(push->ticket);
    struct piece *piece;
    kv_block_id to;

    if (push->n_pieces == 0 || push->is_broken)
        return;           /* one that was told to stop may still be at it until it says so */
    if (ticket == NULL) { /* rejected */
        push->is_broken = true;
        tell_sender(push, TR_PUSH_FAILED);
        return;
    }
    piece = &push->pieces[rng_below(&rng, push->n_pieces)];
    if (piece->is_done || ticket->is_failed)
        return;
    assert_true(piece->index < ticket->n_blocks);
    to = ticket->blocks[piece->index];
    assert_int_equal(kv_state_of(nodes[push->node].engine.pool, piece->source), KV_SEALED);
    assert_true(kv_state_of(nodes[ticket->node].engine.pool, to) == KV_FILLING ||
                kv_state_of(nodes[ticket->node].engine.pool, to) == KV_ZOMBIE);
    nodes[ticket->node].arena[piece->layer][to] = nodes[push->node].arena[piece->layer][piece->source];
    ticket->n_done += !ticket->is_done[piece->layer][piece->index];
    ticket->is_done[piece->layer][piece->index] = true;
    piece->is_done = true;
    push->n_done++;
}

static void push_turn(struct push *push)
{
    copy_one(push);
    if (!push->is_broken && !push->is_stopping && push->owes_sent && push->n_done == push->n_pieces) {
        push->owes_sent = false;
        tell_sender(push, TR_PUSH_SENT);
    }
    if (!push->is_broken && happens(300)) {
        struct ticket *ticket = find_ticket(push->ticket);

        push->is_broken = true;
        tell_sender(push, TR_PUSH_FAILED);
        if (ticket != NULL && !ticket->is_said) {
            ticket->is_failed = true;
            tell_receiver(ticket, TR_TICKET_FAILED);
        }
    }
    if (push->is_stopping && rng_below(&rng, 3) == 0) {
        push->is_open = false;
        tell_sender(push, TR_PUSH_STOPPED);
    }
}

static void ticket_turn(struct ticket *ticket)
{
    if (!ticket->is_said && !ticket->is_failed && ticket->n_done == N_LAYERS * ticket->n_blocks) {
        ticket->is_said = true;
        tell_receiver(ticket, TR_TICKET_COMPLETE);
    } else if (happens(4)) {
        tell_receiver(ticket, TR_PIECES_ARRIVED);
    }
    if (ticket->is_closing && rng_below(&rng, 3) == 0) {
        tell_receiver(ticket, TR_TICKET_CLOSED);
        ticket->is_open = false;
    }
}

static void transport_turn(void)
{
    for (int i = 0; i < MAX_ENDS; i++)
        if (pushes[i].is_open && rng_below(&rng, 2) == 0)
            push_turn(&pushes[i]);
    for (int i = 0; i < MAX_ENDS; i++)
        if (tickets[i].is_open && rng_below(&rng, 2) == 0)
            ticket_turn(&tickets[i]);
}

/* ---- the worker around asks and loans ---- */

const struct peer_facts *worker_engine_peer(const struct worker_engine *engine, uint32_t peer)
{
    return link_is_up ? &engine->peers[peer] : NULL;
}

enum tr_kind worker_engine_kind_for(const struct worker_engine *engine, uint32_t peer)
{
    return TR_TCP;
}

void worker_engine_observe_push(struct worker_engine *engine, uint64_t bytes, uint64_t elapsed_ns)
{
}

void worker_engine_to_peer(struct worker_engine *engine, uint32_t peer, const struct kvxfer_message *message)
{
    struct node *to = &nodes[peer];
    struct mail *mail = &to->mail[to->n_mail];

    assert_ptr_not_equal(to, node_of(engine));
    if (!link_is_up || happens(200))
        return; /* no memory for it, say */
    assert_true(to->n_mail < MAX_MAIL && message->n_blocks <= MAX_PROMPT && message->n_hashes <= MAX_PROMPT);
    mail->message = *message;
    if (message->blocks != NULL)
        memcpy(mail->blocks, message->blocks, message->n_blocks * sizeof(*message->blocks));
    if (message->hashes != NULL)
        memcpy(mail->hashes, message->hashes, message->n_hashes * sizeof(*message->hashes));
    to->n_mail++;
}

static void deliver(struct node *to)
{
    struct mail mail;
    uint32_t from = 1 - to->transport.number;

    if (to->n_mail == 0)
        return;
    mail = to->mail[0];
    memmove(to->mail, to->mail + 1, --to->n_mail * sizeof(mail));
    mail.message.blocks = mail.message.blocks ? mail.blocks : NULL;
    mail.message.hashes = mail.message.hashes ? mail.hashes : NULL;
    if (!worker_loans_message(&to->engine, from, &mail.message))
        (void)worker_asks_message(&to->engine, from, &mail.message);
}

static void switch_link(void)
{
    link_is_up = !link_is_up;
    for (uint32_t i = 0; i < 2; i++) {
        nodes[i].n_mail = link_is_up ? nodes[i].n_mail : 0;
        worker_loans_peer(&nodes[i].engine, 1 - i, link_is_up);
        worker_asks_peer(&nodes[i].engine, 1 - i, link_is_up);
    }
}

/* ---- tasks ---- */

/* The sequence that a task becomes: computes what is missing, and leaves it in the cache. */
static void compute(struct node *node, const struct block_hash *hashes, uint32_t n)
{
    kv_block_id ids[MAX_PROMPT];
    uint32_t n_here = kv_match(node->engine.pool, hashes, n, ids), at = n_here;

    if (kv_take(node->engine.pool, n - n_here, ids + n_here) == 0)
        for (; at < n; at++) {
            for (uint32_t layer = 0; layer < N_LAYERS; layer++)
                node->arena[layer][ids[at]] = content_of(&hashes[at], layer);
            kv_seal(node->engine.pool, ids[at], &hashes[at]);
        }
    while (at > 0)
        kv_unref(node->engine.pool, ids[--at]);
}

void worker_tasks_go_on(struct worker_engine *engine, struct task *task)
{
    struct node *node = node_of(engine);
    struct client *client = container_of(task, struct client, task);
    struct block_hash hashes[MAX_PROMPT];
    uint32_t n = hash_prompt(&task->spec, hashes);

    assert_true(client->is_used && client->is_waiting);
    assert_null(task->ask);
    client->is_used = client->is_waiting = false;
    n_went_on++;
    assert_true(task->fetched_to <= task->spec.n_tokens);
    if (task->fetched_to > 0)
        assert_true(kv_peek(engine->pool, hashes, n) * BLOCK_TOKENS >= task->fetched_to);
    n_fetched += task->fetched_to - task->fetched_from;
    assert_right(node, hashes, n);
    compute(node, hashes, n);
    free(task->spec.tokens);
}

static void begin_task(struct node *node)
{
    struct client *client = &node->clients[rng_below(&rng, MAX_TASKS)];
    struct task_spec *spec = &client->task.spec;
    uint32_t conversation = (uint32_t)rng_below(&rng, 4);

    if (client->is_used)
        return;
    *client = (struct client){.is_used = true, .is_waiting = true};
    list_init(&client->task.in_ask);
    spec->n_tokens = (uint32_t)(1 + rng_below(&rng, MAX_PROMPT * BLOCK_TOKENS));
    spec->tokens = calloc(spec->n_tokens, sizeof(*spec->tokens));
    for (uint32_t i = 0; i < spec->n_tokens; i++) /* two by two they begin alike */
        spec->tokens[i] = i + 100 * (i < 3 * BLOCK_TOKENS ? conversation / 2 : conversation);
    spec->tenant[0] = (char)('a' + rng_below(&rng, 2));
    spec->holder = rng_below(&rng, 10) == 0 ? PEER_NONE : 1 - node->transport.number;
    spec->holder_tokens = (uint32_t)rng_below(&rng, MAX_PROMPT * BLOCK_TOKENS + 1);
    spec->ask_limit_ns = (1 + rng_below(&rng, 60)) * NS_PER_MS;
    n_begun++;
    if (worker_asks_begin(&node->engine, &client->task))
        n_waited++;
    else
        worker_tasks_go_on(&node->engine, &client->task);
}

static void cancel_task(struct node *node)
{
    struct client *client = &node->clients[rng_below(&rng, MAX_TASKS)];

    if (!client->is_waiting)
        return;
    worker_asks_leave(&node->engine, &client->task);
    assert_null(client->task.ask);
    client->is_used = client->is_waiting = false;
    free(client->task.spec.tokens);
    n_cancelled++;
}

/* ---- one run ---- */

static void open_node(uint32_t number, struct metrics *metrics)
{
    struct node *node = &nodes[number];
    struct worker_engine *engine = &node->engine;
    struct kv_pool_opts pool = {.n_blocks = N_POOL, .block_tokens = BLOCK_TOKENS};

    memset(node, 0, sizeof(*node));
    node->transport.number = number;
    engine->transport = &node->transport;
    engine->opts.engine.info.layout = (struct kv_layout){.n_layers = N_LAYERS,
                                                         .n_kv_heads = 1,
                                                         .k_dim = 1 << 17,
                                                         .v_dim = 1 << 17,
                                                         .block_tokens = BLOCK_TOKENS,
                                                         .type = KV_F16};
    engine->opts.metrics = metrics;
    engine->opts.max_queue = 8;
    engine->opts.max_seqs = 1;
    engine->opts.n_blocks = N_POOL;
    engine->opts.grant_timeout_ns = TIMEOUT_NS;
    assert_int_equal(kv_pool_new(&pool, &engine->pool), 0);
    assert_int_equal(worker_loans_open(engine), 0);
    engine->peers[0].abilities = engine->peers[1].abilities = abilities_own();
    assert_int_equal(worker_asks_open(engine), 0);
}

static void close_node(struct node *node)
{
    struct kv_pool_counts counts;

    kv_pool_counts(node->engine.pool, &counts);
    assert_int_equal(counts.n_leased, 0);
    assert_int_equal(counts.n_free + counts.n_cached, N_POOL);
    for (int i = 0; i < MAX_TASKS; i++)
        assert_false(node->clients[i].is_used);
    assert_int_equal(node->engine.n_asking, 0);
    worker_loans_close(&node->engine);
    worker_asks_close(&node->engine);
    kv_pool_free(node->engine.pool);
}

/* ---- time: all of base/clock.h, or the linker brings the real one along ---- */

static uint64_t fake_now_ns;

uint64_t clock_now_ns(void)
{
    return fake_now_ns;
}

uint64_t clock_unix_ns(void)
{
    return 0;
}

void clock_sleep_ns(uint64_t ns)
{
}

void clock_rfc3339(uint64_t unix_s, char out[21])
{
    out[0] = '\0';
}

static void turn(void)
{
    struct node *node = &nodes[rng_below(&rng, 2)];

    fake_now_ns += NS_PER_MS / 4;
    switch (rng_below(&rng, 6)) {
    case 0:
        if (!is_calm)
            begin_task(node);
        break;
    case 1:
        if (happens(12))
            cancel_task(node);
        break;
    case 2:
        deliver(node);
        break;
    case 3:
        worker_asks_tick(&node->engine, fake_now_ns);
        worker_loans_tick(&node->engine, fake_now_ns);
        break;
    default:
        transport_turn();
    }
    if (happens(link_is_up ? 500 : 40) || (is_calm && !link_is_up))
        switch_link();
}

static bool is_quiet(void)
{
    for (int i = 0; i < 2; i++)
        if (worker_asks_count(&nodes[i].engine) + worker_loans_count(&nodes[i].engine) > 0)
            return false;
    return true;
}

static void everything_ends_and_what_is_found_is_right(void **state)
{
    struct metrics *metrics;
    struct metric_family *asks;

    fake_now_ns = NS_PER_S;
    log_set_level(LOG_LEVEL_ERROR);
    assert_int_equal(metrics_new(&metrics), 0);
    for (uint64_t seed = 1; seed <= 400; seed++) {
        rng_init(&rng, seed);
        memset(tickets, 0, sizeof(tickets));
        memset(pushes, 0, sizeof(pushes));
        link_is_up = true;
        open_node(0, metrics);
        open_node(1, metrics);
        is_calm = false;
        for (int i = 0; i < 1500; i++)
            turn();
        is_calm = true;
        for (int i = 0; i < 4000 && !is_quiet(); i++)
            turn();
        assert_true(is_quiet());
        close_node(&nodes[0]);
        close_node(&nodes[1]);
    }
    assert_int_equal(n_begun, n_went_on + n_cancelled);
    asks = metric_family(metrics, METRIC_COUNTER, "baton_asks_total", "", "result");
    print_message("%u tasks, %u waited, %u cancelled, %u tokens came\n", (unsigned)n_begun,
                  (unsigned)n_waited, (unsigned)n_cancelled, (unsigned)n_fetched);
    assert_true(n_fetched > 10000); /* the faults bite, and not always */
    assert_true(metric_value(metric_series(asks, (const char *const[]){"in_vain"})) > 500);
    assert_true(metric_value(metric_series(asks, (const char *const[]){"done"})) > 500);
    metrics_free(metrics);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(everything_ends_and_what_is_found_is_right)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
