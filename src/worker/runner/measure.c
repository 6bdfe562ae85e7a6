/* SPDX-License-Identifier: Apache-2.0 */
/* Measures the speed of this worker and of the links to it: at the start, from its work, and while it is
 * idle.
 *
 *      start    32 prompt tokens, 8 sampled; then 128 prompt tokens, 1 sampled
 *      work     every step (compute/sched/load.c), every hand-off and prefix fetch that arrives
 *      idle     |-- 10 s --|m|-- 35 s --|m|-- 35 s --|m|-- 10 min --|m|-- 10 min --|m|
 *
 * A router places requests by the reported rates. Without idle measurements a worker that was slow for a
 * while (another process used the machine, its last steps were large) would look slow for ever, because it
 * would get no request to correct its rate.  A measurement is a normal sequence, and shares its steps with
 * requests that arrive meanwhile. None of its blocks is sealed, so it caches nothing and causes no block
 * event. It has as many prompt tokens as are expected to end within PROMPT_S. */
#include "worker/runner/engine_thread_priv.h"

#include <math.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/load_rates.h"

#define MOST_TOKENS       128
#define LEAST_TOKENS      32
#define N_DRAWN           8
#define PROMPT_S          0.05
#define FIRST_IDLE_NS     (10 * NS_PER_S)
#define N_SOON            3 /* measurements in a row; two refresh a rate without newer values (base/rate.c) */
#define SOON_NS           (35 * NS_PER_S) /* interval between them */
#define IDLE_NS           (600 * NS_PER_S)
#define PUSH_FORGOTTEN_NS (60 * NS_PER_S) /* an older push rate no longer prevents a new attempt */

/* ---- steps ---- */

int worker_measure_probe(struct worker_engine *engine, uint32_t n_tokens, uint32_t n_drawn)
{
    const struct engine_info *info = &engine->opts.engine.info;
    uint64_t pool = (uint64_t)engine->opts.n_blocks * info->layout.block_tokens / 2;
    token_id tokens[MOST_TOKENS];
    struct seq_spec spec = {.tokens = tokens,
                            .work = {.max_new_tokens = n_drawn, .sample = {.top_p = 1}},
                            .leaves_nothing = true};
    struct seq *seq;

    if (engine->is_draining)
        return E_CLOSED;
    if (n_tokens > MOST_TOKENS)
        n_tokens = MOST_TOKENS;
    if (n_tokens > info->context_length / 2)
        n_tokens = info->context_length / 2;
    if (n_tokens > pool)
        n_tokens = (uint32_t)pool;
    if (n_tokens == 0)
        return E_LIMIT;
    spec.n_tokens = spec.n_prompt = n_tokens;
    for (uint32_t i = 0; i < n_tokens; i++)
        tokens[i] = i % info->vocab_size;
    return sched_submit(engine->sched, &spec, &seq);
}

static void measure_now(struct worker_engine *engine, uint32_t n_tokens, uint32_t n_drawn)
{
    if (worker_measure_probe(engine, n_tokens, n_drawn) < 0)
        return;
    while (sched_has_work(engine->sched) && sched_run_step(engine->sched) > 0)
        ;
}

/* Two prompts, so that the fixed cost of a step is known when the cost of a prompt token is learned. */
void worker_measure_start(struct worker_engine *engine)
{
    measure_now(engine, LEAST_TOKENS, N_DRAWN);
    measure_now(engine, MOST_TOKENS, 1);
}

/* Returns the time of the next measurement. */
static uint64_t measure_due_ns(const struct worker_engine *engine)
{
    const struct measure *measure = &engine->measure;

    if (measure->n == 0)
        return measure->since_ns + FIRST_IDLE_NS;
    return measure->since_ns + (measure->n < N_SOON ? SOON_NS : IDLE_NS);
}

/* Returns the number of prompt tokens: few enough to end in time, and to evict at most one cached block. */
static uint32_t measure_tokens(const struct worker_engine *engine, double prefill_tokens_per_s)
{
    uint32_t block_tokens = engine->opts.engine.info.layout.block_tokens;
    double n_tokens = prefill_tokens_per_s * PROMPT_S;
    struct kv_pool_counts counts;
    uint64_t room;

    kv_pool_counts(engine->pool, &counts);
    room = (uint64_t)(counts.n_free > 0 ? counts.n_free : 1) * block_tokens;
    room = room > N_DRAWN + 1 ? room - N_DRAWN - 1 : 1;
    n_tokens = fmin(fmax(n_tokens, LEAST_TOKENS), MOST_TOKENS);
    return room < n_tokens ? (uint32_t)room : (uint32_t)n_tokens;
}

void worker_measure_idle(struct worker_engine *engine, uint64_t now_ns)
{
    struct measure *measure = &engine->measure;
    struct sched_load load;

    sched_load(engine->sched, &load);
    if (engine->n_tasks > 0 || load.n_waiting > 0 || load.n_running > 0)
        return;
    if (measure->n_steps != load.n_steps) { /* it has worked or measured since then */
        measure->n = measure->is_under_way ? measure->n + 1 : 0;
        measure->is_under_way = false;
        measure->since_ns = now_ns;
        measure->n_steps = load.n_steps;
    }
    if (now_ns < measure_due_ns(engine))
        return;
    measure->since_ns = now_ns;
    measure->is_under_way =
        worker_measure_probe(engine, measure_tokens(engine, load.prefill_tokens_per_s), N_DRAWN) == 0;
}

/* ---- links ---- */

static void link_learn(struct rate *rate, double alpha, uint64_t bytes, uint64_t elapsed_ns)
{
    if (bytes > 0 && elapsed_ns > 0)
        rate_learn(rate, (double)bytes * 1e9 / (double)elapsed_ns, alpha, 1, clock_now_ns());
}

void worker_engine_observe_transfer(struct worker_engine *engine, uint64_t bytes, uint64_t elapsed_ns)
{
    link_learn(&engine->transfer_rate, LOAD_RATE_TRANSFER_ALPHA, bytes, elapsed_ns);
    engine->transfer_bytes_per_s = rate_level(&engine->transfer_rate);
}

void worker_engine_observe_push(struct worker_engine *engine, uint64_t bytes, uint64_t elapsed_ns)
{
    link_learn(&engine->push_rate, LOAD_RATE_PUSH_ALPHA, bytes, elapsed_ns);
    engine->push_bytes_per_s = rate_level(&engine->push_rate);
}

void worker_measure_age(struct worker_engine *engine, uint64_t now_ns)
{
    if (rate_level(&engine->transfer_rate) > 0)
        engine->transfer_bytes_per_s = rate_hope(&engine->transfer_rate, LOAD_RATE_LINK_PRIOR, now_ns);
    if (now_ns > engine->push_rate.at_ns + PUSH_FORGOTTEN_NS)
        engine->push_bytes_per_s = 0;
}
