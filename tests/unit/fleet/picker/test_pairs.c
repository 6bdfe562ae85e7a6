/* SPDX-License-Identifier: Apache-2.0 */
/* The picker scans workers, not pairs.  A plain search tries every worker and every pair of random clusters,
 * with and without reading from disk.  Both must choose the same, with the same estimates to the bit.  Few
 * different figures make ties common; extreme ones bring sums to their limits. */
#include "tests/unit/check.h"

#include <math.h>
#include <string.h>

#include "base/err.h"
#include "base/rng.h"
#include "fleet/picker/fleet.h"
#include "fleet/picker/owner.h"

#define MAX_N    150 /* several groups of rows in a pool */
#define N_WORLDS 100000
#define N_ORDERS 5
#define MAX_NS   INT64_C(100000000000000)

static const uint32_t orders[] = {0, 1, 77, 12345, UINT32_MAX};

struct world {
    uint32_t n;
    uint32_t order;                   /* of equal workers, in orders[] */
    struct picker_worker rows[MAX_N]; /* at slot_of[i]; cached_tokens of the request */
    uint32_t slot_of[MAX_N];
    struct picker_goals goals;
    struct picker_request request;
    struct picker_slots excluded;
    uint32_t cached_blocks[PICKER_MAX_WORKERS];
    struct picker_run runs[MAX_N];
};

struct option {
    struct picker_choice choice;
    int64_t cost_ns;
    uint64_t n_running;
    enum level { KEEPS, CONSERVES, LEAST_BAD, ANY } level; /* the first pass that accepts it */
    bool is_there;
};

/* ---- the plain search ---- */

static int64_t whole_ns(double ns)
{
    return ns < (double)MAX_NS ? (int64_t)ns : MAX_NS;
}

static uint32_t missing(const struct world *world, const struct picker_worker *row)
{
    return row->cached_tokens < world->request.n_tokens ? world->request.n_tokens - row->cached_tokens : 1;
}

/* Returns the tokens that it would read: its disk has them, there is room for them, and reading is faster. */
static uint32_t read_tokens(const struct world *world, const struct picker_worker *row)
{
    uint32_t n = world->request.n_tokens, to = row->stored_tokens < n ? row->stored_tokens : n - 1;
    uint64_t most = row->blocks_total ? (uint64_t)row->blocks_total * row->block_tokens / 2 : UINT64_MAX;
    uint32_t from = n - missing(world, row), n_read;

    if (to <= from)
        return 0;
    n_read = to - from < most ? to - from : (uint32_t)most;
    return whole_ns(picker_read_s(row, n_read) * 1e9) < whole_ns(n_read * (picker_prefill_s(row, 1) * 1e9))
               ? n_read
               : 0;
}

static uint32_t answer(const struct world *world)
{
    uint32_t n = world->request.answer_tokens > 0 ? world->request.answer_tokens : 64;

    n = n < 8192 ? n : 8192;
    return n < world->request.max_new_tokens ? n : world->request.max_new_tokens;
}

static int64_t prefill_ns(const struct picker_worker *row, uint32_t n)
{
    return whole_ns(n * (picker_prefill_s(row, 1) * 1e9));
}

/* Computed, or pushed as far as another worker has the prompt, with an eighth of the time saved. */
static int64_t first_ns(const struct world *world, const struct picker_worker *row, uint32_t n)
{
    uint64_t pushable = (uint64_t)world->request.pushable_blocks * row->block_tokens;
    uint32_t left = pushable < world->request.n_tokens ? world->request.n_tokens - (uint32_t)pushable : 1;
    float push_ns = (float)(picker_push_token_s(row) * 1e9);
    int64_t own_ns = prefill_ns(row, n), pushed_ns;

    if (push_ns <= 0 || pushable <= world->request.n_tokens - n)
        return own_ns;
    pushed_ns = 2000000 + whole_ns((n - left) * (double)push_ns) + prefill_ns(row, left);
    pushed_ns += own_ns > pushed_ns ? (own_ns - pushed_ns) / 8 : 0;
    return pushed_ns < own_ns ? pushed_ns : own_ns;
}

static int64_t itl_ns(const struct picker_worker *row)
{
    return whole_ns(picker_itl_s(row) * 1e9);
}

static bool has_room(const struct world *world, const struct picker_worker *row)
{
    return row->blocks_free >= ((uint64_t)missing(world, row) + answer(world)) / row->block_tokens + 1;
}

/* True if blocks suffice, as far as this pass trusts the report. */
static bool has_room_at(const struct world *world, const struct picker_worker *row, enum level level)
{
    return has_room(world, row) || (level != KEEPS && row->n_running == 0);
}

static bool has_seat(const struct picker_worker *row)
{
    return row->max_seqs == 0 || row->n_running < row->max_seqs;
}

static bool is_allowed(const struct world *world, uint32_t i)
{
    const struct picker_worker *row = &world->rows[i];

    return row->is_usable && row->group == world->request.group &&
           !picker_slots_has(&world->excluded, world->slot_of[i]) &&
           (!world->request.keeps_layout || row->layout == world->request.layout);
}

static bool is_open(const struct world *world, uint32_t i)
{
    const struct picker_worker *row = &world->rows[i];

    return is_allowed(world, i) &&
           (row->blocks_total == 0 ||
            (uint64_t)row->blocks_total * row->block_tokens > world->request.n_tokens);
}

static bool keeps_ttft(const struct world *world, int64_t ttft_ns, int64_t alone_ns)
{
    int64_t slo_ns = whole_ns(world->goals.ttft_slo_s * 1e9);

    int64_t limit_ns = 2 * alone_ns > slo_ns ? 2 * alone_ns : slo_ns;
    double share = world->goals.begin_share > 0 ? world->goals.begin_share : 1;

    limit_ns = limit_ns * (int64_t)(share * 1024) / 1024;
    alone_ns += alone_ns / 4;
    return ttft_ns <= (limit_ns > alone_ns ? limit_ns : alone_ns);
}

static bool is_short(const struct world *world, const struct picker_worker *row, uint32_t n)
{
    uint32_t running = row->n_running < 10000 ? row->n_running : 10000;
    int64_t own_ns = prefill_ns(row, n);

    return n <= world->goals.local_prefill_tokens ||
           own_ns + own_ns * running <= whole_ns(world->goals.local_prefill_s * 1e9);
}

static bool is_itl_fine(const struct world *world, const struct picker_worker *row, enum level level)
{
    int64_t slo_ns = whole_ns(world->goals.itl_slo_s * (1 - world->goals.itl_margin) * 1e9),
            itl = itl_ns(row);

    if (itl <= slo_ns || level == LEAST_BAD)
        return true;
    return level == CONSERVES && (row->n_running == 0 || whole_ns(picker_itl_at_s(row, 0) * 1e9) > slo_ns);
}

/* Returns the first pass, from `least` on,
 * in which the decode worker and the prefill worker, if any, are good enough. */
static enum level level_of(const struct world *world, const struct picker_worker *prefill,
                           const struct picker_worker *decode, bool is_in_time, enum level least)
{
    for (enum level level = least; level <= (enum level)world->goals.yield && is_in_time; level++)
        if (is_itl_fine(world, decode, level) && has_seat(decode) && has_room_at(world, decode, level) &&
            (prefill == NULL || has_room_at(world, prefill, level)))
            return level;
    return ANY;
}

static bool is_whole(const struct world *world)
{
    return world->goals.begin_share <= 0 || world->goals.begin_share >= 1;
}

/* Time between tokens without other sequences. */
static int64_t itl_none_ns(const struct picker_worker *row)
{
    return whole_ns(picker_itl_at_s(row, 0) * 1e9);
}

/* Decoding sequences leave a part of each step for prompts. */
static int64_t beside(const struct world *world, const struct picker_worker *row, int64_t ns)
{
    int64_t slo_ns = whole_ns(world->goals.itl_slo_s * 1e9);
    int64_t left_ns = slo_ns - itl_ns(row);

    if (row->n_running == 0 || is_whole(world))
        return ns;
    if (left_ns < slo_ns / 20 && itl_none_ns(row) > slo_ns)
        return ns;
    if (left_ns < slo_ns / 20)
        return whole_ns((double)ns * 20);
    return whole_ns((double)ns * (double)slo_ns / (double)left_ns);
}

/* A quarter of its seats are free, or no prefill worker could compute the prompt for it. */
static bool leaves_seats(const struct world *world, const struct picker_worker *row)
{
    bool has_prefill = false;

    for (uint32_t i = 0; i < world->n; i++)
        has_prefill |= world->rows[i].role == PICKER_PREFILL && world->rows[i].layout == row->layout &&
                       world->rows[i].group == row->group && is_open(world, i);
    return row->role != PICKER_DECODE || row->max_seqs == 0 ||
           row->n_running <= (uint64_t)row->max_seqs * 3 / 4 || world->request.is_alone || !has_prefill;
}

/* With a share of the limit, slow prompts need half of each step and a quarter of the seats. */
static bool may_overflow(const struct world *world, const struct picker_worker *row, uint32_t n)
{
    return is_whole(world) || is_short(world, row, n) || row->n_running == 0 ||
           (itl_ns(row) <= whole_ns(world->goals.itl_slo_s * 1e9) / 2 && leaves_seats(world, row)) ||
           itl_none_ns(row) > whole_ns(world->goals.itl_slo_s * 1e9);
}

static struct option make_alone(const struct world *world, uint32_t i, uint32_t n_read, enum level least)
{
    const struct picker_worker *row = &world->rows[i];
    uint32_t n = missing(world, row) - n_read, running = row->n_running < 10000 ? row->n_running : 10000;
    int64_t own_ns = prefill_ns(row, n), itl = itl_ns(row);
    int64_t alone_ns = own_ns + itl + (n_read ? whole_ns(picker_read_s(row, n_read) * 1e9) : 0);
    int64_t ttft_ns = alone_ns - own_ns + whole_ns(picker_queue_s(row) * 1e9) + beside(world, row, own_ns);
    struct option it = {.is_there = true, .n_running = row->n_running};

    it.choice = (struct picker_choice){
        .prefill = PICKER_NONE, .decode = world->slot_of[i], .uncached_tokens = n, .read_tokens = n_read};
    it.cost_ns = ttft_ns + answer(world) * itl;
    it.cost_ns += own_ns * (is_short(world, row, n) ? running > 0 : running);
    if (!is_short(world, row, n) && row->role != PICKER_BOTH)
        it.cost_ns += whole_ns(world->goals.ttft_slo_s * 1e9) / 2 + own_ns / 2;
    it.level = level_of(world, NULL, row, keeps_ttft(world, ttft_ns, alone_ns) && may_overflow(world, row, n),
                        least);
    return it;
}

static struct option make_pair(const struct world *world, uint32_t p, uint32_t d, uint32_t n_read)
{
    const struct picker_worker *prefill = &world->rows[p], *decode = &world->rows[d];
    uint32_t n = missing(world, prefill) - n_read;
    int64_t own_ns = n_read ? prefill_ns(prefill, n) + whole_ns(picker_read_s(prefill, n_read) * 1e9)
                            : first_ns(world, prefill, n);
    int64_t ttft_ns = whole_ns(picker_queue_s(prefill) * 1e9) + own_ns, itl = itl_ns(decode);
    struct option it = {.is_there = true, .n_running = (uint64_t)prefill->n_running + decode->n_running};

    it.choice = (struct picker_choice){.prefill = world->slot_of[p],
                                       .decode = world->slot_of[d],
                                       .uncached_tokens = n,
                                       .read_tokens = n_read};
    it.cost_ns = ttft_ns + whole_ns(missing(world, decode) * (picker_transfer_s(decode, 1) * 1e9)) +
                 answer(world) * itl;
    if (is_short(world, decode, missing(world, decode))) /* the messages of the hand-off */
        it.cost_ns += 2000000 + 2 * itl;
    it.level = level_of(world, prefill, decode, keeps_ttft(world, ttft_ns, own_ns), KEEPS);
    return it;
}

static uint32_t rank(const struct world *world, uint32_t slot)
{
    uint64_t order = orders[world->order];

    return (uint32_t)((slot + order) * (2 * order + 1) % PICKER_MAX_WORKERS);
}

static bool is_better(const struct world *world, const struct option *a, const struct option *b)
{
    bool a_is_pair = a->choice.prefill != PICKER_NONE, b_is_pair = b->choice.prefill != PICKER_NONE;

    if (!b->is_there || a->level != b->level)
        return !b->is_there || a->level < b->level;
    if (a->cost_ns != b->cost_ns)
        return a->cost_ns < b->cost_ns;
    if (a->n_running != b->n_running)
        return a->n_running < b->n_running;
    if (a_is_pair != b_is_pair)
        return b_is_pair;
    if (a_is_pair && a->choice.prefill != b->choice.prefill)
        return rank(world, a->choice.prefill) < rank(world, b->choice.prefill);
    return rank(world, a->choice.decode) < rank(world, b->choice.decode);
}

static void consider(const struct world *world, struct option it, struct option *best)
{
    if (is_better(world, &it, best))
        *best = it;
}

/* One worker does everything: at once, or only if no decode worker could begin. */
static void consider_alone(const struct world *world, uint32_t i, bool has_decode, struct option *best)
{
    bool is_last = world->rows[i].role == PICKER_PREFILL && has_decode;
    uint32_t reads[2] = {0, read_tokens(world, &world->rows[i])};

    for (int k = 0; k < (reads[1] > 0 ? 2 : 1); k++) {
        struct option it = make_alone(world, i, reads[k], is_last ? LEAST_BAD : KEEPS);

        if (!is_last || it.level == LEAST_BAD)
            consider(world, it, best);
    }
}

/* The best option.  Workers for which the prompt is short are no half of a pair. */
static struct option best_option(const struct world *world, bool *has_any_out)
{
    struct option best = {.is_there = false};
    bool has_any = false, has_decode = false;

    for (uint32_t i = 0; i < world->n; i++) {
        has_any |= is_allowed(world, i);
        has_decode |= is_open(world, i) && world->rows[i].role != PICKER_PREFILL;
    }
    for (uint32_t p = 0; p < world->n; p++) {
        uint32_t n_read = read_tokens(world, &world->rows[p]);

        if (!is_open(world, p))
            continue;
        consider_alone(world, p, has_decode, &best);
        for (uint32_t d = 0; d < world->n && world->rows[p].role == PICKER_PREFILL; d++) {
            const struct picker_worker *decode = &world->rows[d];

            if (!is_open(world, d) || decode->role == PICKER_PREFILL ||
                decode->layout != world->rows[p].layout ||
                (is_short(world, decode, missing(world, decode)) &&
                 whole_ns(picker_queue_s(decode) * 1e9) == 0))
                continue;
            consider(world, make_pair(world, p, d, 0), &best);
            if (n_read > 0)
                consider(world, make_pair(world, p, d, n_read), &best);
        }
    }
    *has_any_out = has_any;
    return best;
}

/* If no option keeps the objectives, no prompt counts as short; then only options that keep them count. */
static int try_everything(const struct world *world, struct picker_choice *out)
{
    struct world *pairs = test_malloc(sizeof(*pairs));
    bool has_any;
    struct option best = best_option(world, &has_any), other;

    *pairs = *world;
    pairs->goals.local_prefill_tokens = 0;
    pairs->goals.local_prefill_s = 0;
    if (!best.is_there || best.level != KEEPS) {
        bool is_ignored;

        other = best_option(pairs, &is_ignored);
        best = other.is_there && other.level == KEEPS ? other : best;
    }
    test_free(pairs);
    if (!best.is_there)
        return has_any ? E_LIMIT : E_NOT_FOUND;
    *out = best.choice;
    out->cost_s = (double)best.cost_ns / 1e9;
    return best.level != ANY ? 0 : E_OVERLOADED;
}

/* ---- random clusters ---- */

static uint64_t one_of(struct rng *rng, const uint64_t *values, size_t n)
{
    return values[rng_below(rng, n)];
}

#define ONE_OF(rng, ...)                                                                                     \
    one_of(rng, (const uint64_t[]){__VA_ARGS__}, sizeof((const uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t))

static struct picker_worker random_row(struct rng *rng, uint32_t n_layouts)
{
    struct picker_worker row = {
        .is_usable = rng_below(rng, 10) > 0,
        .role = (enum picker_role[]){PICKER_PREFILL, PICKER_DECODE, PICKER_BOTH}[rng_below(rng, 3)],
        .group = rng_below(rng, 12) == 0,
        .layout = rng_below(rng, n_layouts),
        .block_tokens = (uint32_t)ONE_OF(rng, 16, 32, 32, 512),
        .blocks_free = (uint32_t)ONE_OF(rng, 0, 1, 20, 100, 1000, UINT32_MAX),
        .blocks_total = (uint32_t)ONE_OF(rng, 0, 0, 30, 2000),
        .max_seqs = (uint32_t)ONE_OF(rng, 0, 4, 64),
        .queued_prefill_tokens = ONE_OF(rng, 0, 0, 0, 100, 5000, UINT64_MAX),
        .n_running = (uint32_t)ONE_OF(rng, 0, 0, 1, 3, 4, 70, UINT32_MAX),
        .prefill_tokens_per_s = (double)ONE_OF(rng, 0, 1000, 1000, 1250),
        .decode_row_s = (double)ONE_OF(rng, 0, 0, 1, 30) / 1000,
        .step_seqs = (uint32_t)ONE_OF(rng, 0, 0, 3, 60),
        .decode_step_s = (double)ONE_OF(rng, 0, 20, 20, 21, 60) / 1000,
        .transfer_bytes_per_s = (double)ONE_OF(rng, 0, 1000000000, 12000000000),
        .kv_bytes_per_token = ONE_OF(rng, 0, 1000, 65536),
        .read_bytes_per_s = (double)ONE_OF(rng, 0, 50000000, 1000000000),
        .can_push = rng_below(rng, 3) > 0,
        .push_bytes_per_s = (double)ONE_OF(rng, 0, 100000000, 5000000000),
    };

    if (rng_below(rng, 40) == 0)
        row.prefill_tokens_per_s = 1e-300;
    if (rng_below(rng, 40) == 0)
        row.decode_step_s = 1e300;
    return row;
}

/* The worker has measured its speed: no two have the same, and few costs are equal. */
static void measure(struct rng *rng, struct picker_worker *row)
{
    double *const rates[] = {&row->prefill_tokens_per_s, &row->decode_row_s,     &row->decode_step_s,
                             &row->transfer_bytes_per_s, &row->read_bytes_per_s, &row->push_bytes_per_s};

    for (size_t i = 0; i < sizeof(rates) / sizeof(rates[0]); i++)
        *rates[i] *= 0.95 + 0.1 * rng_unit(rng);
}

static void make_world(struct rng *rng, struct world *world)
{
    uint32_t slot = (uint32_t)rng_below(rng, 30), n_layouts = 1 + (uint32_t)rng_below(rng, 3);
    bool has_excluded, is_measured = rng_below(rng, 3) == 0;

    memset(world, 0, sizeof(*world));
    world->n = (uint32_t)rng_below(rng, rng_below(rng, 4) ? 9 : rng_below(rng, 40) ? 40 : MAX_N);
    has_excluded = world->n < 40 || rng_below(rng, 8) == 0;
    world->goals = (struct picker_goals){.ttft_slo_s = (double)ONE_OF(rng, 0, 500, 5000) / 1000,
                                         .itl_slo_s = (double)ONE_OF(rng, 0, 50, 50, 1000) / 1000,
                                         .itl_margin = 1 - (double)ONE_OF(rng, 2, 2, 1, 4) / 2,
                                         .begin_share = (double)ONE_OF(rng, 0, 0, 256, 700, 1024) / 1024,
                                         .local_prefill_tokens = (uint32_t)ONE_OF(rng, 0, 64, 128),
                                         .local_prefill_s = (double)ONE_OF(rng, 0, 0, 50, 400) / 1000,
                                         .yield = (enum picker_yield)rng_below(rng, 3)};
    world->order = (uint32_t)rng_below(rng, N_ORDERS);
    world->request = (struct picker_request){.n_tokens = (uint32_t)ONE_OF(rng, 1, 40, 400, 4000, UINT32_MAX),
                                             .max_new_tokens = (uint32_t)ONE_OF(rng, 0, 1, 10, 1000),
                                             .answer_tokens = (uint32_t)ONE_OF(rng, 0, 0, 5, 500, UINT32_MAX),
                                             .keeps_layout = rng_below(rng, 6) == 0,
                                             .layout = rng_below(rng, n_layouts),
                                             .cached_blocks = world->cached_blocks,
                                             .runs = world->runs,
                                             .pushable_blocks = (uint32_t)ONE_OF(rng, 0, 0, 12, 100, 200),
                                             .excluded = &world->excluded};
    for (uint32_t i = 0; i < world->n; i++) {
        struct picker_worker *row = &world->rows[i];

        *row = random_row(rng, n_layouts);
        if (is_measured)
            measure(rng, row);
        slot += 1 + (uint32_t)rng_below(rng, world->n < 40 ? 20 : 6);
        world->slot_of[i] = slot;
        world->cached_blocks[slot] = (uint32_t)ONE_OF(rng, 0, 0, 0, 1, 12, 100, 200);
        row->cached_tokens = world->cached_blocks[slot] * row->block_tokens;
        row->stored_tokens = row->cached_tokens;
        if (rng_below(rng, 2) == 0) {
            uint32_t n_blocks = world->cached_blocks[slot] + (uint32_t)ONE_OF(rng, 1, 12, 100);

            world->runs[world->request.n_runs++] = (struct picker_run){.slot = slot, .n_blocks = n_blocks};
            row->stored_tokens = n_blocks * row->block_tokens;
        }
        if (has_excluded && rng_below(rng, 15) == 0)
            picker_slots_add(&world->excluded, slot);
    }
}

/* Puts rows in random order, some of them first with other values. */
static void put_rows(struct rng *rng, const struct world *world, struct picker_fleet *fleet)
{
    uint32_t start = (uint32_t)rng_below(rng, MAX_N);

    for (uint32_t i = 0; i < world->n; i++)
        if (rng_below(rng, 4) == 0) {
            struct picker_worker other = random_row(rng, 3);

            assert_int_equal(picker_fleet_set(fleet, world->slot_of[i], &other), 0);
        }
    for (uint32_t k = 0; k < world->n; k++) {
        uint32_t i = (k + start) % world->n;

        assert_int_equal(picker_fleet_set(fleet, world->slot_of[i], &world->rows[i]), 0);
    }
}

static void take_rows(const struct world *world, struct picker_fleet *fleet)
{
    for (uint32_t i = 0; i < world->n; i++)
        assert_int_equal(picker_fleet_set(fleet, world->slot_of[i], &(struct picker_worker){0}), 0);
}

/* `batonctl why` shows picker_cost_s(): the chosen workers' parts make up what was compared. */
static void assert_shown_costs(const struct world *world, const struct picker_fleet *fleet,
                               const struct picker_choice *choice)
{
    double shown = picker_cost_s(fleet, &world->goals, &world->request, choice, choice->decode);

    if (choice->prefill != PICKER_NONE)
        shown += picker_cost_s(fleet, &world->goals, &world->request, choice, choice->prefill);
    assert_true(fabs(shown - choice->cost_s) <= 1e-12 * choice->cost_s);
}

static void chooses_what_trying_everything_chooses(void **state)
{
    static struct world world;
    uint32_t n_with[4] = {0}, n_pairs = 0, n_alone = 0, n_reading = 0;
    struct picker_fleet *fleets[N_ORDERS];
    struct rng rng;

    rng_init(&rng, 3);
    for (uint32_t i = 0; i < N_ORDERS; i++)
        assert_int_equal(picker_fleet_new(orders[i], &fleets[i]), 0);
    for (uint32_t i = 0; i < N_WORLDS; i++) {
        struct picker_choice wanted = {0}, got = {0};
        struct picker_fleet *fleet;
        int rc;

        make_world(&rng, &world);
        fleet = fleets[world.order];
        put_rows(&rng, &world, fleet);
        rc = try_everything(&world, &wanted);
        assert_int_equal(picker_pick(fleet, &world.goals, &world.request, &got), rc);
        assert_int_equal(got.prefill, wanted.prefill);
        assert_int_equal(got.decode, wanted.decode);
        assert_int_equal(got.uncached_tokens, wanted.uncached_tokens);
        assert_int_equal(got.read_tokens, wanted.read_tokens);
        assert_true(got.cost_s == wanted.cost_s);
        if (rc == 0 || rc == E_OVERLOADED)
            assert_shown_costs(&world, fleet, &got);
        n_reading += rc == 0 && got.read_tokens > 0;
        n_with[rc == 0 ? 0 : rc == E_OVERLOADED ? 1 : rc == E_LIMIT ? 2 : 3]++;
        if (rc == 0)
            (*(got.prefill == PICKER_NONE ? &n_alone : &n_pairs))++;
        take_rows(&world, fleet);
        assert_int_equal(picker_fleet_n_usable(fleet, 0), 0);
    }
    for (size_t i = 0; i < sizeof(n_with) / sizeof(n_with[0]); i++)
        assert_true(n_with[i] > N_WORLDS / 200); /* every kind occurred */
    print_message("%u pairs, %u alone, %u reading\n", n_pairs, n_alone, n_reading);
    assert_true(n_pairs > N_WORLDS / 50 && n_alone > N_WORLDS / 50 && n_reading > N_WORLDS / 50);
    for (uint32_t i = 0; i < N_ORDERS; i++)
        picker_fleet_free(fleets[i]);
}

/* Slot 0 has another layout now, slot 1 has not: no trace of their partnership is left. */
static void assert_no_pair(const struct picker_fleet *fleet, const struct picker_goals *goals)
{
    struct picker_slots others = {{0}};
    struct picker_request request = {.n_tokens = 1000, .max_new_tokens = 10, .excluded = &others};
    struct picker_choice choice;

    for (uint32_t slot = 2; slot < PICKER_MAX_WORKERS; slot++)
        picker_slots_add(&others, slot);
    assert_int_equal(picker_pick(fleet, goals, &request, &choice), 0);
    assert_int_equal(choice.prefill, PICKER_NONE);
    assert_int_equal(choice.decode, 1);
}

/* There are as many kinds of workers as workers, then others: entries of kinds are reused. */
static void every_worker_may_be_of_its_own_kind(void **state)
{
    struct picker_request request = {.n_tokens = 1000, .max_new_tokens = 10, .keeps_layout = true};
    struct picker_goals goals = {.ttft_slo_s = 10, .itl_slo_s = 1};
    struct picker_choice choice;
    struct picker_fleet *fleet;

    assert_int_equal(picker_fleet_new(0, &fleet), 0);
    for (uint32_t round = 0; round < 2; round++) {
        for (uint32_t slot = 0; slot < PICKER_MAX_WORKERS; slot++) {
            struct picker_worker row = {.is_usable = true,
                                        .role = slot % 2 ? PICKER_DECODE : PICKER_PREFILL,
                                        .layout = 10000 * round + slot / 2,
                                        .block_tokens = 32,
                                        .blocks_free = 1000,
                                        .prefill_tokens_per_s = 1000};

            assert_int_equal(picker_fleet_set(fleet, slot, &row), 0);
            if (round == 1 && slot == 0)
                assert_no_pair(fleet, &goals);
        }
        assert_int_equal(picker_fleet_n_usable(fleet, 0), PICKER_MAX_WORKERS);
        for (uint32_t i = 0; i < PICKER_MAX_WORKERS / 2; i++) {
            request.layout = 10000 * round + i;
            assert_int_equal(picker_pick(fleet, &goals, &request, &choice), 0);
            assert_int_equal(choice.prefill, 2 * i);
            assert_int_equal(choice.decode, 2 * i + 1);
            request.layout += 10000;
            assert_int_equal(picker_pick(fleet, &goals, &request, &choice), E_NOT_FOUND);
        }
    }
    picker_fleet_free(fleet);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chooses_what_trying_everything_chooses),
        cmocka_unit_test(every_worker_may_be_of_its_own_kind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
