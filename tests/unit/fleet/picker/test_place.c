/* SPDX-License-Identifier: Apache-2.0 */
/* A thousand workers, bursts, and routers that do not know of each other.  No worker is overrun: dispatched
 * work counts at once, and routers order equal workers differently.  The ledgers balance. */
#include "tests/unit/check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/rng.h"
#include "fleet/picker/place.h"

#define N_PREFILL    300
#define N_WORKERS    1000
#define BLOCK_TOKENS 32
#define N_BLOCKS     62
#define N_TOKENS     2000

struct site { /* one router */
    struct picker_fleet *fleet;
    struct picker_index *index;
    struct picker_goals goals;
};

static uint32_t taken[PICKER_MAX_WORKERS];

static void open_site(struct site *site, uint32_t order)
{
    assert_int_equal(picker_fleet_new(order, &site->fleet), 0);
    assert_int_equal(picker_index_new(100000, 1000, &site->index), 0);
    site->goals = (struct picker_goals){.ttft_slo_s = 10, .itl_slo_s = 1, .local_prefill_tokens = 128};
    for (uint32_t slot = 0; slot < N_WORKERS; slot++) {
        struct picker_worker row = {.is_usable = true,
                                    .role = slot < N_PREFILL ? PICKER_PREFILL : PICKER_DECODE,
                                    .block_tokens = BLOCK_TOKENS,
                                    .blocks_free = 100000,
                                    .blocks_total = 100000,
                                    .max_seqs = 64,
                                    .prefill_tokens_per_s = 10000,
                                    .decode_step_s = 0.02,
                                    .transfer_bytes_per_s = 1e10,
                                    .kv_bytes_per_token = 65536};

        assert_int_equal(picker_fleet_set(site->fleet, slot, &row), 0);
    }
}

static void close_site(struct site *site)
{
    picker_fleet_free(site->fleet);
    picker_index_free(site->index);
}

/* Prompts of equal families are equal. */
static void send(struct site *site, uint32_t family, struct picker_booking *prefill,
                 struct picker_booking *decode)
{
    struct block_hash chain[N_BLOCKS];
    struct picker_place place = {.fleet = site->fleet,
                                 .index = site->index,
                                 .hashes = chain,
                                 .n_hashes = N_BLOCKS,
                                 .request = {.n_tokens = N_TOKENS, .max_new_tokens = 200}};

    for (uint32_t i = 0; i < N_BLOCKS; i++) {
        chain[i] = (struct block_hash){{0}};
        memcpy(chain[i].bytes, &family, sizeof(family));
        memcpy(chain[i].bytes + sizeof(family), &i, sizeof(i));
    }
    assert_int_equal(picker_place_choose(&place, &site->goals), 0);
    picker_place_book(&place, prefill, decode);
    if (prefill->slot != PICKER_NONE)
        taken[prefill->slot]++;
    taken[decode->slot]++;
}

static uint32_t most(uint32_t from, uint32_t to)
{
    uint32_t n = 0;

    for (uint32_t slot = from; slot < to; slot++)
        n = taken[slot] > n ? taken[slot] : n;
    return n;
}

static uint32_t n_idle(uint32_t from, uint32_t to)
{
    uint32_t n = 0;

    for (uint32_t slot = from; slot < to; slot++)
        n += taken[slot] == 0;
    return n;
}

static void a_burst_of_different_prompts_spreads_evenly(void **state)
{
    struct picker_booking prefill, decode;
    struct site site;

    open_site(&site, 0);
    memset(taken, 0, sizeof(taken));
    for (uint32_t i = 0; i < 3 * 700; i++) /* 7 for each prefill worker, 3 for each decode worker */
        send(&site, i, &prefill, &decode);
    assert_int_equal(most(0, N_PREFILL), 7);
    assert_int_equal(most(N_PREFILL, N_WORKERS), 3);
    close_site(&site);
}

/* All requests have one prefix, which attracts them to its
 * owner until waiting there costs more than computing it. */
static void a_burst_of_equal_prompts_spreads_too(void **state)
{
    enum { N = 14000, FAIR = N / (N_WORKERS - N_PREFILL) };
    struct picker_booking prefill, decode;
    struct site site;

    open_site(&site, 0);
    memset(taken, 0, sizeof(taken));
    for (uint32_t i = 0; i < N; i++)
        send(&site, 1, &prefill, &decode);
    assert_int_equal(n_idle(N_PREFILL, N_WORKERS), 0);
    assert_true(most(N_PREFILL, N_WORKERS) <= FAIR + 4);
    close_site(&site);
}

/* Neither router sees the other's work: no report comes in between, and all workers are equal to both. */
static void two_routers_do_not_run_to_the_same_workers(void **state)
{
    enum { N = 100 };
    struct picker_booking prefill, decode;
    struct site a, b;

    open_site(&a, 3141);
    open_site(&b, 27182);
    memset(taken, 0, sizeof(taken));
    for (uint32_t i = 0; i < N; i++) {
        send(&a, 2 * i, &prefill, &decode);
        send(&b, 2 * i + 1, &prefill, &decode);
    }
    /* in one order they would leave 200 prefill workers idle; by chance 300 x (2/3)^2 = 133 and 514 are idle
     */
    assert_true(n_idle(0, N_PREFILL) <= 140);
    assert_true(n_idle(N_PREFILL, N_WORKERS) <= 530);
    for (uint32_t i = N; i < 2100; i++) {
        send(&a, 2 * i, &prefill, &decode);
        send(&b, 2 * i + 1, &prefill, &decode);
    }
    assert_int_equal(most(0, N_PREFILL), 2 * 7); /* what each router gives it, and no more */
    assert_int_equal(most(N_PREFILL, N_WORKERS), 2 * 3);
    close_site(&a);
    close_site(&b);
}

/* ---- the ledgers ---- */

static uint64_t total(const struct site *site)
{
    uint64_t n = 0;

    for (uint32_t slot = 0; slot < PICKER_MAX_WORKERS; slot++) {
        const struct picker_ledger *ledger = picker_fleet_ledger(site->fleet, slot);

        n += ledger->prefill_tokens + ledger->read_tokens + ledger->context_tokens + ledger->n_seqs;
    }
    return n;
}

static void the_books_balance(void **state)
{
    enum { N = 64 };
    struct picker_booking parts[2 * N];
    struct site site;
    struct rng rng;

    rng_init(&rng, 7);
    open_site(&site, 0);
    for (uint32_t i = 0; i < 2 * N; i++)
        parts[i].slot = PICKER_NONE;
    for (uint32_t step = 0; step < 3000; step++) {
        uint32_t i = (uint32_t)rng_below(&rng, N);

        if (parts[2 * i].slot == PICKER_NONE && parts[2 * i + 1].slot == PICKER_NONE)
            send(&site, (uint32_t)rng_below(&rng, 10), &parts[2 * i], &parts[2 * i + 1]);
        else if (rng_below(&rng, 2))
            picker_booking_started(site.fleet, &parts[2 * i + rng_below(&rng, 2)], 0);
        else
            picker_booking_over(site.fleet, &parts[2 * i + rng_below(&rng, 2)], 0);
    }
    assert_true(total(&site) > 0);
    for (uint32_t i = 0; i < 2 * N; i++)
        picker_booking_over(site.fleet, &parts[i], 0);
    assert_int_equal(total(&site), 0);
    close_site(&site);
}

static void rows_are_reports_with_the_ledger(void **state)
{
    struct picker_worker reported = {.is_usable = true,
                                     .role = PICKER_DECODE,
                                     .block_tokens = 32,
                                     .blocks_free = 10,
                                     .queued_prefill_tokens = 500,
                                     .n_running = 1},
                         row;
    struct picker_fleet *fleet;

    assert_int_equal(picker_fleet_new(0, &fleet), 0);
    assert_int_equal(picker_fleet_set(fleet, 5, &reported), 0);
    picker_fleet_charge(fleet, 5, &(struct picker_charge){.prefill_tokens = 400, .context_tokens = 100}, 0);
    picker_fleet_charge(
        fleet, 5, &(struct picker_charge){.prefill_tokens = 200, .read_tokens = 70, .context_tokens = 150},
        0);
    picker_fleet_row(fleet, 5, &row);
    assert_int_equal(row.queued_prefill_tokens, 600); /* the larger of the report and the ledger */
    assert_int_equal(row.n_running, 2);
    assert_int_equal(row.blocks_free, 3); /* less seven for 250 tokens */
    assert_int_equal(row.queued_read_tokens, 70);
    reported.queued_prefill_tokens = 1000;
    reported.n_running = 9;
    assert_int_equal(picker_fleet_set(fleet, 5, &reported), 0);
    picker_fleet_charge(fleet, 5, &(struct picker_charge){.read_tokens = 5, .context_tokens = 10000}, 0);
    picker_fleet_row(fleet, 5, &row);
    assert_int_equal(row.queued_prefill_tokens, 1000);
    assert_int_equal(row.n_running, 9);
    assert_int_equal(row.blocks_free, 0);
    picker_fleet_set(fleet, 5, &(struct picker_worker){.is_usable = false}); /* the ledger survives it */
    assert_int_equal(picker_fleet_ledger(fleet, 5)->n_seqs, 3);
    assert_int_equal(picker_fleet_n_usable(fleet, 0), 0);
    picker_fleet_free(fleet);
}

/* A decode worker whose sequences take 10 of 20 ms computes prompts half as fast.  Then half of the prompt is fetched from
 * another worker, after the choice. */
static void a_prompt_books_its_time_beside_sequences(void **state)
{
    struct picker_worker reported = {.is_usable = true,
                                     .role = PICKER_DECODE,
                                     .block_tokens = BLOCK_TOKENS,
                                     .blocks_free = 1000,
                                     .max_seqs = 64,
                                     .prefill_tokens_per_s = 1000,
                                     .decode_step_s = 0.01,
                                     .step_seqs = 4,
                                     .n_running = 4,
                                     .reported_ns = UINT64_C(1000000000)};
    struct picker_goals goals = {.ttft_slo_s = 10, .itl_slo_s = 0.02, .begin_share = 0.9};
    struct picker_booking prefill, decode;
    struct picker_place place = {.now_ns = UINT64_C(1000000000),
                                 .request = {.n_tokens = 1000, .max_new_tokens = 100}};

    assert_int_equal(picker_fleet_new(0, &place.fleet), 0);
    assert_int_equal(picker_index_new(1000, 1000, &place.index), 0);
    assert_int_equal(picker_fleet_set(place.fleet, 0, &reported), 0);
    assert_int_equal(picker_place_choose(&place, &goals), 0);
    assert_float_equal(place.choice.ttft_s, 2 + 0.01, 1e-3);
    place.choice.uncached_tokens = 500;
    picker_place_book(&place, &prefill, &decode);
    assert_int_equal(picker_fleet_ledger(place.fleet, 0)->busy_ns / 1000000, 1000);
    picker_booking_started(place.fleet, &decode, place.now_ns);
    assert_int_equal(picker_fleet_ledger(place.fleet, 0)->busy_ns, 0);
    picker_booking_over(place.fleet, &decode, place.now_ns);
    picker_fleet_free(place.fleet);
    picker_index_free(place.index);
}

/* Worker 0 has the prompt on disk, and reads slowly.  All others but the last have the store that has it. */
struct store_site { /* a fleet of three workers, of which one reads a store */
    struct picker_worker row;
    struct block_hash chain[N_BLOCKS];
    struct picker_place place;
    struct picker_goals goals;
};

static void open_store_site(struct store_site *site)
{
    *site = (struct store_site){.row = {.is_usable = true,
                                        .role = PICKER_DECODE,
                                        .block_tokens = BLOCK_TOKENS,
                                        .blocks_free = 100000,
                                        .max_seqs = 64,
                                        .prefill_tokens_per_s = 1000,
                                        .decode_step_s = 0.02,
                                        .store_bytes_per_s = 1e9,
                                        .store_ask_s = 0.0001,
                                        .kv_bytes_per_token = 65536},
                                .goals = {.ttft_slo_s = 10, .itl_slo_s = 1}};
    site->place = (struct picker_place){
        .hashes = site->chain, .n_hashes = N_BLOCKS, .request = {.n_tokens = N_TOKENS, .max_new_tokens = 1}};
    for (uint32_t i = 0; i < N_BLOCKS; i++)
        site->chain[i] = (struct block_hash){{(uint8_t)i, 1}};
    assert_int_equal(picker_fleet_new(0, &site->place.fleet), 0);
    assert_int_equal(picker_index_new(1000, 1000, &site->place.index), 0);
    assert_int_equal(picker_index_new(1000, 1000, &site->place.stored), 0);
    assert_int_equal(picker_fleet_set(site->place.fleet, 2, &site->row), 0);
}

static void close_store_site(struct store_site *site)
{
    picker_fleet_free(site->place.fleet);
    picker_index_free(site->place.index);
    picker_index_free(site->place.stored);
}

/* Sets the worker of this slot, which reads the store of this number (0: none). */
static void set_store_worker(struct store_site *site, uint32_t slot, uint32_t store)
{
    site->row.store = store;
    assert_int_equal(picker_fleet_set(site->place.fleet, slot, &site->row), 0);
}

/* A copy of a placement explains its cost although the original is gone. */
static void copy_outlives_the_original(const struct picker_place *place)
{
    struct picker_place *original = malloc(sizeof(*original)), copy;
    double cost_s;

    assert_non_null(original);
    picker_place_copy(original, place);
    picker_place_copy(&copy, original);
    memset(original, 0xa5, sizeof(*original));
    free(original);
    cost_s = picker_cost_s(copy.fleet, &copy.goals, &copy.request, &copy.choice, copy.choice.decode);
    assert_true(fabs(cost_s - copy.choice.cost_s) < 1e-9 && cost_s > 0);
    copy.choice.read_tokens = 0; /* a peer sends them: the cost that was compared remains */
    cost_s = picker_cost_s(copy.fleet, &copy.goals, &copy.request, &copy.choice, copy.choice.decode);
    assert_true(fabs(cost_s - copy.choice.cost_s) < 1e-9);
}

static void who_has_the_store_reads_what_it_has(void **state)
{
    struct store_site site;
    struct picker_worker *row = &site.row;
    struct picker_place *place = &site.place;
    struct picker_booking prefill, decode;
    double computed_s;

    (void)state;
    open_store_site(&site);
    assert_int_equal(picker_place_choose(place, &site.goals), 0);
    assert_int_equal(place->choice.uncached_tokens, N_TOKENS);
    computed_s = place->choice.ttft_s;

    picker_index_learn(place->stored, 3, site.chain, N_BLOCKS - 1, 0);
    assert_int_equal(picker_place_choose(place, &site.goals), 0); /* it does not read that store */
    assert_false(place->choice.reads_store);
    set_store_worker(&site, 1, 4);
    row->read_bytes_per_s = 1e8;
    set_store_worker(&site, 0, 3);
    picker_index_learn_on_disk(place->index, 0, site.chain, N_BLOCKS - 1, 0);
    assert_int_equal(picker_place_choose(place, &site.goals), 0);
    assert_int_equal(place->choice.decode, 1);
    assert_true(place->choice.reads_store);
    assert_int_equal(place->choice.read_tokens, (N_BLOCKS - 1) * BLOCK_TOKENS);
    assert_int_equal(place->choice.uncached_tokens, N_TOKENS - (N_BLOCKS - 1) * BLOCK_TOKENS);
    copy_outlives_the_original(place);
    /* 128 ms of reading, 6 of questions, 48 of computing, a step; not 2 s */
    assert_true(place->choice.read_s > 0.12 && place->choice.read_s < 0.14);
    assert_true(place->choice.ttft_s > 0.18 && place->choice.ttft_s < 0.25 && computed_s > 2);

    picker_place_book(place, &prefill, &decode); /* its memory will have it, and it has to read */
    picker_fleet_row(place->fleet, 1, row);
    assert_int_equal(row->queued_store_tokens, (N_BLOCKS - 1) * BLOCK_TOKENS);
    assert_int_equal(row->queued_read_tokens, 0);
    picker_booking_over(place->fleet, &decode, 0);
    assert_int_equal(picker_fleet_ledger(place->fleet, 1)->store_tokens, 0);

    /* A store that is away is in no report. */
    picker_index_forget(place->index, 0);
    picker_index_forget(place->index, 1);
    set_store_worker(&site, 1, 0);
    assert_int_equal(picker_place_choose(place, &site.goals), 0);
    assert_true(!place->choice.reads_store && place->choice.read_s == 0);
    assert_int_equal(place->choice.uncached_tokens, N_TOKENS);
    close_store_site(&site);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_burst_of_different_prompts_spreads_evenly),
        cmocka_unit_test(a_burst_of_equal_prompts_spreads_too),
        cmocka_unit_test(two_routers_do_not_run_to_the_same_workers),
        cmocka_unit_test(the_books_balance),
        cmocka_unit_test(rows_are_reports_with_the_ledger),
        cmocka_unit_test(a_prompt_books_its_time_beside_sequences),
        cmocka_unit_test(who_has_the_store_reads_what_it_has),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
