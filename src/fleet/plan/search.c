/* SPDX-License-Identifier: Apache-2.0 */
/* Sizing and ranking.
 *
 * Prefill is a queue.  Prompts differ, so the search takes a prompt's time at five points of a log-normal length
 * with the mean and the 90 % point of the work.  The router sends a prompt to the worker that is free first, so
 * c workers are one queue (M/G/c).  A prompt waits with probability rho^(sqrt(2 (c + 1)) - 1) (Sakasegawa).  The
 * wait is then exponential with mean E[t^2] / 2 E[t] c (1 - rho).  With one worker that is M/G/1.  The wait and
 * the prompt's own excess are independent and add as squares.  The highest load is the one at which the
 * percentile still meets the first token's objective.
 *
 * Decode is a number of slots.  The search takes the largest batch whose step keeps the objective and whose caches
 * fit the memory, and loads it to max_load.  A request holds a slot from its placement on, because a decode worker
 * then takes the blocks.  So it holds the slot while the prompt waits, is computed and is sent, and for OSL steps
 * after that.  So fewer sequences decode than hold slots.  Long answers hold slots longer: the answer of a random
 * slot is longer than the mean.  The number of used slots is Poisson distributed, which gives the percentile of the
 * time between tokens.
 *
 * The link must carry the KV that a prefill worker computes. Without a measurement, bulk copies reach 70 % of
 * its rate. */
#include "fleet/plan/search.h"

#include "base/err.h"

#include <math.h>
#include <stdlib.h>

#define LINK_PART   0.7
#define MAX_BATCH   4096
#define P90_NORMAL  1.2815515655446004
#define HOLD_ROUNDS 3
#define EVEN_LOAD   0.95 /* largest share of decode slots in use, for any objective */

static const char *const BOUNDS[] = {"load", "TTFT", "ITL", "memory", "link", "-"};

const char *plan_bound_name(enum plan_bound bound)
{
    return BOUNDS[bound];
}

static int work_wrong(struct fault *fault, const char *field)
{
    return fault_set(fault, E_INVAL, "%s is missing or out of range", field);
}

int plan_work_check(struct plan_work *work, struct fault *fault)
{
    if (work->isl_p90 == 0)
        work->isl_p90 = work->isl;
    if (work->osl_p90 == 0)
        work->osl_p90 = work->osl;
    if (work->ttft_percentile == 0)
        work->ttft_percentile = 0.9;
    if (work->itl_percentile == 0)
        work->itl_percentile = work->ttft_percentile;
    if (work->max_load == 0)
        work->max_load = 0.85;
    if (work->link.id[0] == '\0')
        work->link.rate = work->link.measured_part = work->link.startup_s = NAN;
    if (!(work->isl >= 1 && work->isl <= 1e8))
        return work_wrong(fault, "isl");
    if (!(work->osl >= 1 && work->osl <= 1e8))
        return work_wrong(fault, "osl");
    if (!(work->isl_p90 >= work->isl && work->isl_p90 <= 5 * work->isl) ||
        !(work->osl_p90 >= work->osl && work->osl_p90 <= 5 * work->osl))
        return fault_set(fault, E_INVAL, "a 90 %% point lies between the mean and 5 times the mean");
    if (!(work->hit >= 0 && work->hit < 1))
        return work_wrong(fault, "hit (0 to below 1)");
    if (!(work->rate_per_s > 0))
        return work_wrong(fault, "rate");
    if (!(work->ttft_s > 0) || !(work->itl_s > 0))
        return work_wrong(fault, "ttft or itl");
    if (!(work->ttft_percentile >= 0.5 && work->ttft_percentile < 1) ||
        !(work->itl_percentile >= 0.5 && work->itl_percentile < 1) ||
        !(work->max_load > 0 && work->max_load < 1) || !(work->reserve >= 0 && work->reserve < 1))
        return work_wrong(fault, "percentile, max_load or reserve");
    return 0;
}

/* ln(p90 / mean) = z s - s^2 / 2. */
double plan_work_sigma(double mean, double p90)
{
    double ratio = log(p90 / mean), root = P90_NORMAL * P90_NORMAL - 2 * ratio;

    return ratio <= 0 ? 0 : P90_NORMAL - sqrt(fmax(root, 0));
}

double plan_work_held_answer(const struct plan_work *work)
{
    double sigma = plan_work_sigma(work->osl, work->osl_p90);

    return work->osl * exp(sigma * sigma);
}

/* Normal quantile, by bisection of erfc: called a few times per plan. */
static double normal_point(double q)
{
    double low = -8, high = 8;

    for (int i = 0; i < 60; i++) {
        double mid = (low + high) / 2;
        if (0.5 * erfc(-mid / sqrt(2)) < q)
            low = mid;
        else
            high = mid;
    }
    return low;
}

static double prompt_time(const struct plan_pool *pool, const struct plan_work *work, double isl)
{
    double new_tokens = fmax(1, isl * (1 - work->hit));

    return plan_cost_prefill(&pool->cost, new_tokens, isl - new_tokens);
}

static void prefill_moments(const struct plan_pool *pool, const struct plan_work *work, struct plan_side *out)
{
    static const double POINTS[] = {-1.6448536, -0.6744898, 0, 0.6744898,
                                    1.6448536}; /* 5, 25, 50, 75, 95 % */
    static const double WEIGHTS[] = {0.1, 0.25, 0.3, 0.25, 0.1};
    double sigma = plan_work_sigma(work->isl, work->isl_p90), mean = 0, second = 0;

    for (size_t i = 0; i < 5; i++) {
        double t = prompt_time(pool, work, work->isl * exp(sigma * POINTS[i] - sigma * sigma / 2));
        mean += WEIGHTS[i] * t;
        second += WEIGHTS[i] * t * t;
        if (sigma == 0) {
            mean = t;
            second = t * t;
            break;
        }
    }
    out->time_s = mean;
    out->second = second;
    if (sigma > 0) {
        double long_prompt = work->isl * exp(sigma * normal_point(work->ttft_percentile) - sigma * sigma / 2);
        out->spread_s = fmax(0, prompt_time(pool, work, long_prompt) - mean);
    }
}

/* The percentile of the wait at that load, with the number of servers that the rate then needs. */
static double plan_search_queue_wait(const struct plan_side *side, double load, const struct plan_work *work)
{
    double servers = fmax(1, work->rate_per_s * side->time_s / load);
    double waits = pow(load, sqrt(2 * (servers + 1)) - 1), missed = 1 - work->ttft_percentile;
    double mean = side->second / (2 * side->time_s) / (servers * (1 - load)); /* of those that wait */

    return waits <= missed ? 0 : mean * log(waits / missed);
}

/* The mean wait. */
static double queue_mean_wait(const struct plan_side *side, const struct plan_work *work)
{
    double servers = fmax(1, work->rate_per_s * side->time_s / side->load);

    return pow(side->load, sqrt(2 * (servers + 1)) - 1) * side->second / (2 * side->time_s) /
           (servers * (1 - side->load));
}

bool plan_prefill_side(const struct plan_pool *pool, const struct plan_work *work, double budget_s,
                       struct plan_side *out)
{
    *out = (struct plan_side){.bound = BOUND_LOAD};
    if (plan_cost_room(&pool->cost, work->isl_p90, work->reserve) < 1) {
        out->bound = BOUND_MEMORY;
        return false;
    }
    prefill_moments(pool, work, out);
    if (out->time_s + out->spread_s > budget_s) {
        out->bound = BOUND_TTFT;
        return false;
    }
    double low = 0, high = work->max_load;
    for (int i = 0; i < 30; i++) {
        double load = i == 0 ? high : (low + high) / 2, wait = plan_search_queue_wait(out, load, work);
        bool is_met = out->time_s + hypot(wait, out->spread_s) <= budget_s;

        if (is_met)
            low = load;
        else
            high = load;
        if (i == 0 && is_met)
            break;
        out->bound = BOUND_TTFT;
    }
    if (low <= 0)
        return false;
    out->load = low;
    out->wait_s = plan_search_queue_wait(out, low, work);
    out->rate =
        low / out->time_s * pool->lanes * pool->cost.setup.pp; /* stages work on prompts one behind another */
    out->workers = work->rate_per_s / out->rate;
    return true;
}

/* The largest batch up to limit that keeps a step within the objective; 0: not even one. */
static double decode_batch(const struct plan_pool *pool, double context, double itl_s, double limit)
{
    double low = 0, high = limit;

    if (plan_cost_decode(&pool->cost, limit, context) <= itl_s)
        return limit;
    if (plan_cost_decode(&pool->cost, 1, context) > itl_s)
        return 0;
    for (int i = 0; i < 24 && high - low > 0.25; i++) {
        double mid = (low + high) / 2;
        if (plan_cost_decode(&pool->cost, mid, context) <= itl_s)
            low = mid;
        else
            high = mid;
    }
    return low;
}

bool plan_decode_side(const struct plan_pool *pool, const struct plan_work *work, struct plan_side *out)
{
    double context = work->isl + plan_work_held_answer(work) / 2, stages = pool->cost.setup.pp;
    double room =
        plan_cost_room(&pool->cost, work->isl + plan_work_held_answer(work), work->reserve) / stages;

    *out = (struct plan_side){.bound = BOUND_MEMORY};
    /* With pipeline stages, each stage works on its own part of the sequences. */
    if (room * stages < 1)
        return false;
    double limit = fmin(fmax(room, 1 / stages), MAX_BATCH),
           most = decode_batch(pool, context, work->itl_s, limit);
    if (most <= 0) {
        out->bound = BOUND_ITL;
        return false;
    }
    out->bound = most < limit * 0.999 ? BOUND_ITL : room < MAX_BATCH ? BOUND_MEMORY : BOUND_LOAD;
    out->load = fmin(EVEN_LOAD, work->max_load + 0.05);
    out->batch = fmax(fmin(1, most), most * out->load);
    out->time_s = plan_cost_decode(&pool->cost, out->batch, context);
    out->batch *= stages * pool->lanes;
    out->slots = out->batch;
    out->rate = out->batch / (work->osl * out->time_s);
    out->workers = work->rate_per_s / out->rate;
    return true;
}

/* A sequence takes its slot held_s before its first step. So fewer sequences decode, and steps are a little
 * shorter. */
static void decode_hold(const struct plan_pool *pool, const struct plan_work *work, double held_s,
                        struct plan_side *side)
{
    double context = work->isl + plan_work_held_answer(work) / 2, parts = pool->cost.setup.pp * pool->lanes;

    side->held_s = held_s;
    for (int i = 0; i < HOLD_ROUNDS; i++) {
        double decode_s = work->osl * side->time_s;

        side->batch = fmax(fmin(parts, side->slots), side->slots * decode_s / (decode_s + held_s));
        side->time_s = plan_cost_decode(&pool->cost, side->batch / parts, context);
    }
    side->rate = side->slots / (work->osl * side->time_s + held_s);
    side->workers = work->rate_per_s / side->rate;
}

/* The time of a step with as many sequences as the percentile of the used slots. */
static double decode_itl(const struct plan_pool *pool, const struct plan_work *work,
                         const struct plan_side *side)
{
    double parts = pool->cost.setup.pp * pool->lanes, batch = side->batch / parts;
    double most = side->slots / parts / side->load;

    batch += normal_point(work->itl_percentile) * sqrt(batch);
    return plan_cost_decode(&pool->cost, fmax(fmin(batch, most), side->batch / parts),
                            work->isl + plan_work_held_answer(work) / 2);
}

double plan_link_rate(const struct plan_pool *pool, const struct plan_work *work)
{
    if (!isnan(work->link.rate))
        return work->link.rate * (isnan(work->link.measured_part) ? LINK_PART : work->link.measured_part);
    return pool->cost.nic_rate * pool->devices * LINK_PART;
}

double plan_transfer(const struct plan_pool *from, const struct plan_work *work, double time_s)
{
    double bytes = plan_cost_kv_bytes(&from->cost, work->isl), layers = from->cost.setup.model->layers;
    double rate = plan_link_rate(from, work) / from->lanes;
    double startup = isnan(work->link.startup_s) ? 4e-4 : work->link.startup_s;
    double all = bytes / rate;

    if (!work->is_layerwise)
        return startup + all;
    return startup + fmax(all / layers, all - time_s * (layers - 1) / layers);
}

bool plan_aggregated_side(const struct plan_pool *pool, const struct plan_work *work,
                          struct plan_candidate *out)
{
    const double *k = pool->cost.setup.constants->at;
    double context = work->isl + plan_work_held_answer(work) / 2,
           new_tokens = fmax(1, work->isl * (1 - work->hit));
    double room = plan_cost_room(&pool->cost, work->isl + plan_work_held_answer(work), work->reserve);
    double low = 0, high = fmin(room, MAX_BATCH), tpot = 0, ttft = 0;
    struct plan_side side = {.bound = BOUND_MEMORY};
    struct plan_terms terms;

    if (room < 1 || pool->cost.setup.pp > 1)
        return false;
    prefill_moments(pool, work, &side);
    for (int i = 0; i < 24; i++) {
        double b = i == 0 ? high : i == 1 ? 1 : (low + high) / 2;
        double decode = plan_cost_decode(&pool->cost, b, context);
        double mixed =
            plan_cost_step(&pool->cost,
                           &(struct plan_load){.new_tokens = new_tokens,
                                               .attention = new_tokens * (work->isl - new_tokens / 2),
                                               .n_finished = 1,
                                               .batch = b,
                                               .context = context},
                           &terms);
        tpot = decode + (b - 1) / work->osl * k[PC_MIX] * (mixed - decode);
        ttft = k[PC_T0] + k[PC_TTFT_X] * (side.time_s + side.spread_s) * (1 + k[PC_TTFT_Y] * (b - 1) / 2);
        bool is_met = tpot <= work->itl_s && ttft <= work->ttft_s;
        if (is_met && i == 0) {
            low = b;
            break;
        }
        if (!is_met && i == 1)
            return false;
        side.bound = tpot > work->itl_s ? BOUND_ITL : ttft > work->ttft_s ? BOUND_TTFT : side.bound;
        *(is_met ? &low : &high) = b;
    }
    side.load = fmin(EVEN_LOAD, work->max_load + 0.05);
    side.batch = side.slots = fmax(1, low * side.load) * pool->lanes;
    side.rate = side.batch / (work->osl * tpot + ttft);
    side.workers = work->rate_per_s / side.rate;
    out->p = out->d = side;
    out->bound = side.bound;
    out->ttft_s = ttft;
    out->itl_s = tpot;
    return true;
}

/* Counts, money and rates, once the sides are known. */
static void candidate_sum(const struct plan_pool *p, const struct plan_pool *d, const struct plan_work *work,
                          struct plan_candidate *c)
{
    double in = work->rate_per_s * work->isl, out = work->rate_per_s * work->osl;

    c->n_prefill = ceil(c->p.workers - 1e-9) + work->spare;
    c->n_decode = d == NULL ? 0 : ceil(c->d.workers - 1e-9) + work->spare;
    double prefill_devices = c->n_prefill * p->devices,
           decode_devices = d == NULL ? 0 : c->n_decode * d->devices;
    double decode_dollars = d == NULL ? 0 : decode_devices * d->price;
    double prefill_dollars = prefill_devices * p->price;
    c->devices = prefill_devices + decode_devices;
    c->dollars_hour = prefill_dollars + decode_dollars;
    c->dollars_in = prefill_dollars / (in * 3600) * 1e6;
    c->dollars_out = decode_dollars / (out * 3600) * 1e6;
    if (d == NULL) { /* one pool: all of it for each way of counting */
        c->dollars_in = c->dollars_hour / (in * 3600) * 1e6;
        c->dollars_out = c->dollars_hour / (out * 3600) * 1e6;
    }
    c->watts = prefill_devices * p->watts + (d == NULL ? 0 : decode_devices * d->watts);
    c->tps_device = out / c->devices;
    c->tps_user = 1 / (d == NULL ? c->itl_s : c->d.time_s);
    c->joules_token = c->watts / out;
}

bool plan_candidate_size(const struct plan_pool *pools, size_t prefill, size_t decode,
                         const struct plan_work *work, struct plan_candidate *out)
{
    const struct plan_pool *p = &pools[prefill];
    struct plan_candidate c = {.prefill = prefill, .decode = decode, .bound = BOUND_NONE};

    if (decode == SIZE_MAX) {
        if (!plan_aggregated_side(p, work, &c))
            return false;
        candidate_sum(p, NULL, work, &c);
        *out = c;
        return true;
    }
    const struct plan_pool *d = &pools[decode];
    if (!plan_decode_side(d, work, &c.d))
        return false;
    prefill_moments(p, work, &c.p);
    c.transfer_s = plan_transfer(p, work, c.p.time_s);
    if (isnan(c.transfer_s) || !plan_prefill_side(p, work, work->ttft_s - c.transfer_s - c.d.time_s, &c.p))
        return false;
    decode_hold(d, work, c.p.time_s + queue_mean_wait(&c.p, work) + c.transfer_s, &c.d);

    /* The path out of a prefill worker and into a decode worker. */
    double bytes = plan_cost_kv_bytes(&p->cost, work->isl) * (1 - work->hit);
    double most_out = plan_link_rate(p, work) / bytes, most_in = plan_link_rate(d, work) / bytes;
    if (isnan(most_in))
        return false;
    c.bound = c.p.workers * p->devices > c.d.workers * d->devices ? c.p.bound : c.d.bound;
    if (c.p.rate > most_out || c.d.rate > most_in) {
        c.bound = BOUND_LINK;
        c.p.rate = fmin(c.p.rate, most_out);
        c.d.rate = fmin(c.d.rate, most_in);
        c.p.workers = work->rate_per_s / c.p.rate;
        c.d.workers = work->rate_per_s / c.d.rate;
    }
    c.link_load = fmax(c.p.rate / most_out, c.d.rate / most_in);
    c.ttft_s = c.p.time_s + hypot(c.p.wait_s, c.p.spread_s) + c.transfer_s + c.d.time_s;
    c.itl_s = decode_itl(d, work, &c.d);
    candidate_sum(p, d, work, &c);
    *out = c;
    return true;
}

static int candidate_compare(const void *a, const void *b)
{
    const struct plan_candidate *x = a, *y = b;

    if (isnan(x->dollars_hour) != isnan(y->dollars_hour))
        return isnan(x->dollars_hour) ? 1 : -1;
    if (!isnan(x->dollars_hour) && x->dollars_hour != y->dollars_hour)
        return x->dollars_hour < y->dollars_hour ? -1 : 1;
    if (x->devices != y->devices)
        return x->devices < y->devices ? -1 : 1;
    return (x->ttft_s > y->ttft_s) - (x->ttft_s < y->ttft_s);
}

/* Sizes the candidate again with times at the ends of the interval. */
static void candidate_band(const struct plan_pool *pools, const struct plan_work *work,
                           struct plan_candidate *c)
{
    bool is_aggregated = c->decode == SIZE_MAX;

    for (int end = 0; end < 2; end++) {
        struct plan_pool pair[2] = {pools[c->prefill], pools[is_aggregated ? c->prefill : c->decode]};
        struct plan_candidate again;
        double *out = end == 0 ? c->low : c->high, factor = 1;

        for (int i = 0; i < 2; i++) {
            const struct plan_constants *k = pair[i].cost.setup.constants;
            enum plan_known known;
            plan_constants_factor(k, &pair[i].kind, PLAN_TPOT, &known);
            factor = exp(k->band[PLAN_TPOT][known][end]);
            pair[i].cost.setup.factor *= factor;
        }
        bool is_met = plan_candidate_size(pair, 0, is_aggregated ? SIZE_MAX : 1, work, &again);
        out[0] = is_met ? again.devices : INFINITY;
        out[1] = c->ttft_s * factor;
        out[2] = c->itl_s * factor;
    }
}

int plan_search(const struct plan_pool *pools, size_t n, const struct plan_work *work, size_t n_banded,
                struct plan_answer *out)
{
    struct plan_answer answer = {0};
    size_t cap = n * (n + 1);

    answer.list = malloc((cap + 1) * sizeof(*answer.list));
    if (answer.list == NULL)
        return E_NOMEM;
    for (size_t p = 0; p < n; p++)
        for (size_t d = 0; d <= n; d++) {
            bool is_asked = pools[p].can_prefill && pools[d == n ? p : d].can_decode;

            answer.n_tried += is_asked;
            if (is_asked &&
                plan_candidate_size(pools, p, d == n ? SIZE_MAX : d, work, &answer.list[answer.n]))
                answer.n++;
        }
    if (answer.n == 0) {
        free(answer.list);
        return E_NOT_FOUND;
    }
    qsort(answer.list, answer.n, sizeof(*answer.list), candidate_compare);
    bool has_kind[2] = {false, false};
    for (size_t i = 0; i < answer.n; i++) {
        bool is_aggregated = answer.list[i].decode == SIZE_MAX, is_first = !has_kind[is_aggregated];

        has_kind[is_aggregated] = true;
        if (i < n_banded || is_first)
            candidate_band(pools, work, &answer.list[i]);
    }
    *out = answer;
    return 0;
}

void plan_answer_fini(struct plan_answer *answer)
{
    free(answer->list);
    *answer = (struct plan_answer){0};
}

struct plan_ratio plan_ratio_of(double tokens_in_s, double tokens_out_s, double prefill_rate,
                                double decode_rate)
{
    struct plan_ratio ratio = {tokens_in_s / prefill_rate, tokens_out_s / decode_rate, 0, 0};

    ratio.total = ratio.prefill + ratio.decode;
    ratio.decode_per_prefill = ratio.decode / ratio.prefill;
    return ratio;
}
