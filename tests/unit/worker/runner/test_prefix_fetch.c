/* SPDX-License-Identifier: Apache-2.0 */
/* Two workers fetch cached blocks from each other, over a transport and a link with random faults.
 *
 * Each has its pool, its prefix fetches and its serves.  Tasks come, are cancelled, wait and continue.  The
 * pools are small, so blocks are evicted all the time.  Each worker's view of the other may be wrong.  Reads
 * from disk for the other come late, in part or not at all.  Links break and return, messages get lost, data
 * connections break, pieces travel in any order, and the transport sometimes refuses calls.  Over all runs:
 *
 *   - every task continues or is cancelled, once; none waits for ever
 *   - no byte lands in a block that is not being filled, and none is read from a free block
 *   - the block found under a hash has that hash's content
 *   - serves have at most one window at the transport
 *   - at the end no lease and no reference is left */
#include "tests/unit/check.h"

#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "cache/kv/pool_cache.h"
#include "cache/kv/pool_quota.h"
#include "cache/prefix/tenant.h"
#include "proto/capabilities.h"
#include "tests/unit/worker/runner/prefix_fetch_rig.h"
#include "worker/runner/block_map_priv.h"
#include "worker/runner/disk_priv.h"

struct node nodes[2];
struct rng rng;
bool link_is_up, is_calm;
static uint64_t n_went_on, n_cancelled, n_fetched, n_begun, n_waited, n_own, n_read_for_peers;

static struct node *node_of(const struct worker_engine *engine)
{
    return container_of((struct worker_engine *)engine, struct node, engine);
}

bool happens(uint32_t one_in)
{
    return !is_calm && rng_below(&rng, one_in) == 0;
}

/* ---- the content behind a hash ---- */

static uint64_t content_of(const struct block_hash *hash, uint32_t layer)
{
    return get_u64(hash->bytes) + layer;
}

static uint32_t hash_prompt(const struct task_spec *spec, struct block_hash *out)
{
    struct prefix_roots roots;
    uint8_t key[32] = {0};

    assert_int_equal(prefix_roots_derive(key, "", spec->order.work.tenant, 0, &roots), 0);
    return (uint32_t)prefix_roots_chain(&roots, spec->order.tokens, spec->order.n_tokens, BLOCK_TOKENS, out);
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

/* ---- the worker around the transfers ---- */

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
        return; /* as if memory for it were lacking */
    assert_true(to->n_mail < MAX_MAIL && message->n_blocks <= MAX_PROMPT && message->n_hashes <= MAX_PROMPT);
    mail->message = *message;
    if (message->blocks != NULL)
        memcpy(mail->blocks, message->blocks, message->n_blocks * sizeof(*message->blocks));
    if (message->hashes != NULL)
        memcpy(mail->hashes, message->hashes, message->n_hashes * sizeof(*message->hashes));
    to->n_mail++;
}

/* No task here sends or receives the KV of a hand-off. */

static struct task *known_task;

struct task *worker_engine_task(struct worker_engine *engine, const struct task_key *key)
{
    return known_task;
}

struct task *worker_engine_task_of(struct seq *seq)
{
    abort();
}

void worker_engine_fail_task(struct worker_engine *engine, struct task *task, int error)
{
    abort();
}

void worker_engine_observe_transfer(struct worker_engine *engine, uint64_t bytes, uint64_t elapsed_ns)
{
    abort();
}

/* ---- the simulated map and disk ---- */

static void compute(struct node *node, const struct block_hash *hashes, uint32_t n);

bool worker_map_is_empty(const struct worker_engine *engine)
{
    return node_of(engine)->knows_nothing;
}

/* The choice may be wrong, because a map may be outdated. */
void worker_map_choose(struct worker_engine *engine, const struct map_question *question,
                       struct map_choice *choice)
{
    assert_true(question->n_here < question->n_hashes);
    if (worker_map_is_empty(engine) || rng_below(&rng, 2) == 0)
        return;
    *choice = (struct map_choice){.peer = 1 - node_of(engine)->transport.number,
                                  .tokens = (uint32_t)rng_below(&rng, MAX_PROMPT * BLOCK_TOKENS + 1),
                                  .is_own = true,
                                  .has_to_read = rng_below(&rng, 2) == 0,
                                  .limit_ns = (1 + rng_below(&rng, 60)) * NS_PER_MS};
}

void worker_map_used(struct worker_engine *engine)
{
    n_own++;
}

uint64_t worker_disk_fetch(struct worker_engine *engine, uint64_t tenant, const struct block_hash *hashes,
                           uint32_t n)
{
    struct node *node = node_of(engine);
    uint32_t n_here = kv_peek(engine->pool, hashes, n);
    struct fake_read *read = &node->reads[node->n_reads % MAX_READS];

    assert_true(tenant != 0 && n <= MAX_PROMPT);
    if (n_here == n || read->number != 0 || rng_below(&rng, 4) == 0)
        return 0;
    *read = (struct fake_read){.number = ++node->n_reads, .n = n};
    memcpy(read->hashes, hashes, n * sizeof(*hashes));
    return read->number;
}

/* Some of the read blocks arrive, or all, or none. */
static void end_read(struct node *node)
{
    struct fake_read *read = &node->reads[rng_below(&rng, MAX_READS)];
    uint64_t number = read->number;

    if (number == 0)
        return;
    compute(node, read->hashes, (uint32_t)rng_below(&rng, read->n + 1));
    read->number = 0;
    n_read_for_peers++;
    worker_prefix_serve_read(&node->engine, number);
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
    worker_transfers_message(&to->engine, from, &mail.message);
}

static void switch_link(void)
{
    link_is_up = !link_is_up;
    for (uint32_t i = 0; i < 2; i++) {
        nodes[i].n_mail = link_is_up ? nodes[i].n_mail : 0;
        worker_transfers_peer(&nodes[i].engine, 1 - i, link_is_up);
    }
}

/* ---- tasks ---- */

/* Acts as the task's sequence: computes the missing blocks, and leaves them in the cache. */
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
    assert_null(task->fetch);
    client->is_used = client->is_waiting = false;
    n_went_on++;
    assert_true(task->fetched_to <= task->spec.order.n_tokens);
    if (task->fetched_to > 0)
        assert_true(kv_peek(engine->pool, hashes, n) * BLOCK_TOKENS >= task->fetched_to);
    n_fetched += task->fetched_to - task->fetched_from;
    assert_right(node, hashes, n);
    compute(node, hashes, n);
    worker_chain_free(task);
    free(task->spec.order.tokens);
}

static void begin_task(struct node *node)
{
    struct client *client = &node->clients[rng_below(&rng, MAX_TASKS)];
    struct task_spec *spec = &client->task.spec;
    uint32_t conversation = (uint32_t)rng_below(&rng, 4);

    if (client->is_used)
        return;
    *client = (struct client){.is_used = true, .is_waiting = true};
    list_init(&client->task.in_fetch);
    spec->order.n_tokens = (uint32_t)(1 + rng_below(&rng, MAX_PROMPT * BLOCK_TOKENS));
    spec->order.tokens = calloc(spec->order.n_tokens, sizeof(*spec->order.tokens));
    for (uint32_t i = 0; i < spec->order.n_tokens; i++) /* pairs of prompts have a common prefix */
        spec->order.tokens[i] = i + 100 * (i < 3 * BLOCK_TOKENS ? conversation / 2 : conversation);
    spec->order.work.tenant[0] = (char)('a' + rng_below(&rng, 2));
    spec->owner = rng_below(&rng, 10) == 0 ? PEER_NONE : 1 - node->transport.number;
    spec->owner_tokens = (uint32_t)rng_below(&rng, MAX_PROMPT * BLOCK_TOKENS + 1);
    spec->ask_limit_ns = (1 + rng_below(&rng, 60)) * NS_PER_MS;
    n_begun++;
    if (worker_prefix_fetch_begin(&node->engine, &client->task))
        n_waited++;
    else
        worker_tasks_go_on(&node->engine, &client->task);
}

static void cancel_task(struct node *node)
{
    struct client *client = &node->clients[rng_below(&rng, MAX_TASKS)];

    if (!client->is_waiting)
        return;
    worker_prefix_fetch_leave(&node->engine, &client->task);
    assert_null(client->task.fetch);
    client->is_used = client->is_waiting = false;
    worker_chain_free(&client->task);
    free(client->task.spec.order.tokens);
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
    node->knows_nothing = rng_below(&rng, 3) == 0;
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
    assert_int_equal(worker_transfers_open(engine), 0);
    engine->peers[0].capabilities = engine->peers[1].capabilities = capabilities_own();
}

static void close_node(struct node *node)
{
    struct kv_pool_counts counts;

    kv_pool_counts(node->engine.pool, &counts);
    assert_int_equal(counts.n_leased, 0);
    assert_int_equal(counts.n_free + counts.n_cached, N_POOL);
    for (int i = 0; i < MAX_TASKS; i++)
        assert_false(node->clients[i].is_used);
    assert_int_equal(node->engine.n_fetching, 0);
    worker_transfers_close(&node->engine);
    kv_pool_free(node->engine.pool);
}

/* ---- time: all of base/clock.h, or the linker brings the real one along ---- */

static uint64_t fake_now_ns;

uint64_t clock_now_ns(void)
{
    return fake_now_ns;
}

uint64_t clock_thread_cpu_ns(void)
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
        if (rng_below(&rng, 4) == 0)
            end_read(node);
        break;
    case 3:
        worker_transfers_tick(&node->engine, fake_now_ns);
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
        if (worker_transfers_count(&nodes[i].engine) > 0)
            return false;
    return true;
}

static void everything_ends_and_what_is_found_is_right(void **state)
{
    struct metrics *metrics;
    struct metric_family *fetches;

    fake_now_ns = NS_PER_S;
    log_set_level(LOG_LEVEL_ERROR);
    assert_int_equal(metrics_new(&metrics), 0);
    for (uint64_t seed = 1; seed <= 400; seed++) {
        rng_init(&rng, seed);
        transport_reset();
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
    fetches = metric_family(metrics, METRIC_COUNTER, "baton_prefix_fetches_total", "", "result");
    print_message("%u tasks, %u waited, %u cancelled, %u tokens came\n", (unsigned)n_begun,
                  (unsigned)n_waited, (unsigned)n_cancelled, (unsigned)n_fetched);
    assert_true(n_own > 1000 && n_read_for_peers > 500);
    assert_true(n_fetched > 10000); /* faults had effects, but not always */
    assert_true(metric_value(metric_series(fetches, (const char *const[]){"empty"})) > 500);
    assert_true(metric_value(metric_series(fetches, (const char *const[]){"done"})) > 500);
    metrics_free(metrics);
}

static void hold_blocks(struct node *node, const char *tenant, uint32_t n, bool is_cached, kv_block_id *ids)
{
    struct block_hash hash = {{0}};

    assert_int_equal(kv_take_for(node->engine.pool, tenant_number(tenant), n, ids), 0);
    for (uint32_t i = 0; is_cached && i < n; i++) {
        hash.bytes[0] = (uint8_t)(i + 1);
        kv_seal(node->engine.pool, ids[i], &hash);
        kv_unref(node->engine.pool, ids[i]);
    }
}

/* A task of this tenant whose prompt of n blocks, and one token, is fetched. */
static void fetch_prompt(struct node *node, struct client *client, const char *tenant, uint32_t n)
{
    struct task_spec *spec = &client->task.spec;

    *client = (struct client){.is_used = true, .is_waiting = true};
    list_init(&client->task.in_fetch);
    spec->order.n_tokens = n * BLOCK_TOKENS + 1;
    spec->order.tokens = calloc(spec->order.n_tokens, sizeof(*spec->order.tokens));
    for (uint32_t i = 0; i < spec->order.n_tokens; i++)
        spec->order.tokens[i] = i;
    spec->order.work.tenant[0] = tenant[0];
    spec->owner = 1 - node->transport.number;
    spec->owner_tokens = spec->order.n_tokens;
    spec->ask_limit_ns = NS_PER_S;
    assert_true(worker_prefix_fetch_begin(&node->engine, &client->task));
}

static void offer_blocks(struct node *node, uint32_t n, uint64_t transfer)
{
    struct node *owner = &nodes[1 - node->transport.number];
    struct kvxfer_message offer = {.kind = KVXFER_OFFER, .transfer = transfer, .n_blocks = n};

    assert_int_equal(owner->mail[owner->n_mail - 1].message.kind, KVXFER_FETCH);
    offer.fetch = owner->mail[owner->n_mail - 1].message.fetch;
    worker_prefix_fetch_offer(&node->engine, owner->transport.number, &offer);
}

static void leave(struct node *node, struct client *client)
{
    worker_prefix_fetch_leave(&node->engine, &client->task);
    worker_chain_free(&client->task);
    free(client->task.spec.order.tokens);
    client->is_used = false;
}

static void open_calm(struct metrics **metrics_out)
{
    fake_now_ns = NS_PER_S;
    assert_int_equal(metrics_new(metrics_out), 0);
    rng_init(&rng, 1);
    transport_reset();
    link_is_up = is_calm = true;
    open_node(0, *metrics_out);
    open_node(1, *metrics_out);
    nodes[0].knows_nothing = true;
}

static void close_calm(struct metrics *metrics)
{
    for (int i = 0; i < 4000 && !is_quiet(); i++)
        turn();
    close_node(&nodes[0]);
    close_node(&nodes[1]);
    metrics_free(metrics);
}

static void a_fetch_leaves_other_tenants_their_shares(void **state)
{
    struct node *node = &nodes[0];
    kv_block_id calm[N_POOL / 2], loud[N_POOL / 3];
    struct kv_pool_counts counts;
    struct metrics *metrics;

    open_calm(&metrics);
    hold_blocks(node, "b", N_POOL / 3, false, loud);
    hold_blocks(node, "a", N_POOL / 2, true, calm);
    fetch_prompt(node, &node->clients[0], "b", 8);
    offer_blocks(node, 8, 1);
    kv_pool_counts(node->engine.pool, &counts);
    assert_int_equal(counts.n_filling, N_POOL / 3);
    assert_int_equal(n_went_on, 1); /* the scheduler lets it wait for its share */
    for (uint32_t i = 0; i < N_POOL / 3; i++)
        kv_unref(node->engine.pool, loud[i]);
    close_calm(metrics);
    n_went_on = 0;
}

static void fetches_together_fill_a_part_of_the_pool(void **state)
{
    struct node *node = &nodes[0];
    struct kv_pool_counts counts;
    struct metrics *metrics;

    open_calm(&metrics);
    for (uint32_t i = 0; i < 3; i++) {
        fetch_prompt(node, &node->clients[i], i == 0 ? "a" : i == 1 ? "b" : "c", i == 0 ? 4 : 2);
        offer_blocks(node, i == 0 ? 4 : 2, 1 + i);
    }
    kv_pool_counts(node->engine.pool, &counts);
    assert_int_equal(counts.n_filling, N_POOL / 4);
    assert_int_equal(n_went_on, 1);
    leave(node, &node->clients[0]);
    leave(node, &node->clients[1]);
    close_calm(metrics);
    n_went_on = 0;
}

/* The code with which a hand-off's OFFER is refused whose task does not begin in time. */
static int code_of_late_offer(struct task *task)
{
    const struct kvxfer_message offer = {.kind = KVXFER_OFFER, .transfer = 7, .n_tokens = 8, .n_blocks = 2};
    struct node *from = &nodes[1];

    known_task = task;
    worker_kv_receive_offer(&nodes[0].engine, 1, &offer);
    worker_kv_receive_tick(&nodes[0].engine, fake_now_ns);
    assert_int_equal(from->n_mail, 0);
    fake_now_ns += 3 * NS_PER_S;
    worker_kv_receive_tick(&nodes[0].engine, fake_now_ns);
    known_task = NULL;
    assert_int_equal(from->n_mail, 1);
    assert_int_equal(from->mail[--from->n_mail].message.kind, KVXFER_REFUSED);
    return from->mail[0].message.code;
}

/* The sender counts only a request that is gone as ended. */
static void a_late_offer_of_a_living_request_is_refused_as_late(void **state)
{
    struct task compiling = {.state = TASK_COMPILING};
    struct metrics *metrics;

    open_calm(&metrics);
    assert_int_equal(code_of_late_offer(&compiling), E_TIMEOUT);
    assert_int_equal(code_of_late_offer(NULL), E_NOT_FOUND);
    close_calm(metrics);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_late_offer_of_a_living_request_is_refused_as_late),
                                       cmocka_unit_test(a_fetch_leaves_other_tenants_their_shares),
                                       cmocka_unit_test(fetches_together_fill_a_part_of_the_pool),
                                       cmocka_unit_test(everything_ends_and_what_is_found_is_right)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
