/* SPDX-License-Identifier: Apache-2.0 */
/* Detects NaN and infinite logits, and keeps requests away from a worker that computes them.
 *
 * The sampler reads each logit that it draws from, so detection costs almost nothing. The answer ends with
 * E_NUMERICS. The cause may be the weights, the memory, KV from a peer, or a prompt that drives a healthy
 * model out of range. So only several spoilt answers in a row make the worker unfit: routers place nothing
 * here, and /readyz reports the reason. The worker then computes probes. A good probe makes the worker fit
 * again: at first at once, later after a rest.  The rest doubles each time unless a good answer came in
 * between.  So one client's prompts do not keep a healthy worker away, and a broken worker returns only
 * rarely. */
#include "worker/runner/engine_thread_priv.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"

#define IN_ROW         3u
#define PROBE_TOKENS   16u
#define PROBE_EVERY_NS NS_PER_S
#define REST_MIN_NS    (2 * NS_PER_S)
#define REST_MAX_NS    (60 * NS_PER_S)

void worker_health_open(struct worker_engine *engine)
{
    engine->health.m_spoilt =
        metric_single(engine->opts.metrics, METRIC_COUNTER, "baton_worker_spoilt_answers_total",
                      "Answers ended because logits were NaN or infinite.");
    engine->health.m_unfit =
        metric_single(engine->opts.metrics, METRIC_GAUGE, "baton_worker_unfit",
                      "1 while the worker takes no requests because its logits are not finite.");
}

static void worker_health_enter(struct worker_engine *engine, enum health_state state)
{
    struct health *health = &engine->health;

    if (health->state == state)
        return;
    health->state = state;
    metric_set(health->m_unfit, state == HEALTH_UNFIT);
    if (state == HEALTH_UNFIT) {
        health->unfit_ns = clock_now_ns();
        log_error("worker_unfit", LOG_U64("answers_in_a_row", health->n_spoilt_in_row),
                  LOG_STR("reason", err_text(E_NUMERICS)));
        return;
    }
    log_warn("worker_fit", LOG_U64("after_ms", (clock_now_ns() - health->unfit_ns) / NS_PER_MS));
}

void worker_health_probed(struct worker_engine *engine, enum seq_finish finish)
{
    struct health *health = &engine->health;
    bool is_good = finish == SEQ_FINISH_STOP || finish == SEQ_FINISH_LENGTH || finish == SEQ_FINISH_CONTEXT;

    health->is_probing = false;
    if (finish == SEQ_FINISH_SPOILT && health->state == HEALTH_FIT)
        log_error("warm_up_spoilt", LOG_STR("reason", err_text(E_NUMERICS)));
    if (!is_good || health->state == HEALTH_FIT || clock_now_ns() - health->unfit_ns < health->rest_ns)
        return;
    health->rest_ns = health->rest_ns == 0                ? REST_MIN_NS
                      : health->rest_ns < REST_MAX_NS / 2 ? 2 * health->rest_ns
                                                          : REST_MAX_NS;
    health->n_spoilt_in_row = IN_ROW - 1; /* so one more spoilt answer makes it unfit again */
    worker_health_enter(engine, HEALTH_FIT);
}

void worker_health_note(struct worker_engine *engine, const char *request, bool is_spoilt)
{
    struct health *health = &engine->health;

    if (!is_spoilt) {
        health->n_spoilt_in_row = 0;
        health->rest_ns = 0;
        worker_health_enter(engine, HEALTH_FIT);
        return;
    }
    metric_add(health->m_spoilt, 1);
    health->n_spoilt_in_row++;
    log_error("answer_spoilt", LOG_STR("request_id", request), LOG_STR("reason", err_text(E_NUMERICS)),
              LOG_U64("in_a_row", health->n_spoilt_in_row));
    if (health->n_spoilt_in_row >= IN_ROW)
        worker_health_enter(engine, HEALTH_UNFIT);
}

void worker_health_tick(struct worker_engine *engine, uint64_t now_ns)
{
    struct health *health = &engine->health;

    if (health->state != HEALTH_UNFIT || health->is_probing || now_ns - health->probed_ns < PROBE_EVERY_NS)
        return;
    health->probed_ns = now_ns;
    health->is_probing = worker_measure_probe(engine, PROBE_TOKENS, 1) == 0;
}
