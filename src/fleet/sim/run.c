/* SPDX-License-Identifier: Apache-2.0 */
/* The loop over events and arrivals, the workers' lives, and their reports. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "fleet/sim/queue_priv.h"

#define MIN_CRASH_EVERY_S 1e-3
#define MAX_VAIN_CRASHES  10000 /* in a row, while requests are under way and none is done */
#define REPORT_PARTS      16    /* workers report spread over the heartbeat, in so many groups */
#define MAX_IDLE_REPORTS  (1000 * REPORT_PARTS)

void sim_add(struct sim *sim, enum sim_kind kind, uint64_t at_ns, uint32_t what, uint32_t stamp)
{
    struct sim_event event = {.at_ns = at_ns, .kind = kind, .what = what, .stamp = stamp};

    if (sim_agenda_add(&sim->agenda, event) < 0)
        sim->rc = E_NOMEM;
}

static void column_merge(struct sim_column *to, const struct sim_column *from)
{
    to->n_arrived += from->n_arrived;
    to->n_done += from->n_done;
    to->n_good += from->n_good;
    to->n_refused += from->n_refused;
    to->ttft_s += from->ttft_s;
    to->n_first += from->n_first;
    to->prefill_busy_s += from->prefill_busy_s;
    to->decode_busy_s += from->decode_busy_s;
    to->prefill_worker_s += from->prefill_worker_s;
    to->decode_worker_s += from->decode_worker_s;
    to->n_flips += from->n_flips;
    to->n_decisions += from->n_decisions;
    to->n_prefill += from->n_prefill;
    to->n_wanted += from->n_wanted;
    to->wanted_prefill += from->wanted_prefill;
    to->wanted_decode += from->wanted_decode;
}

/* When the load lasts longer than expected, two columns become one. */
static void columns_widen(struct sim_result *result)
{
    for (uint32_t i = 0; i < result->n_columns; i++) {
        struct sim_column from = result->columns[i];

        result->columns[i] = (struct sim_column){0};
        column_merge(&result->columns[i / 2], &from);
    }
    result->column_ns *= 2;
}

struct sim_column *sim_column(struct sim *sim)
{
    struct sim_result *result = sim->result;

    while (sim->now_ns / result->column_ns >= result->n_columns && result->n_columns > 1)
        columns_widen(result);
    return &result->columns[result->n_columns > 1 ? sim->now_ns / result->column_ns : 0];
}

static void column_add(struct sim_column *column, size_t field, uint64_t ns)
{
    *(double *)((char *)column + field) += (double)ns / 1e9;
}

void sim_column_add_time(struct sim *sim, uint64_t since_ns, size_t field)
{
    struct sim_column *columns = sim->result->columns;
    size_t at = sim->now_ns > since_ns ? (size_t)(sim_column(sim) - columns) : 0;
    uint64_t end_ns = sim->now_ns, begin_ns;

    for (; end_ns > since_ns; end_ns = begin_ns, at--) {
        begin_ns = at * sim->result->column_ns;
        begin_ns = begin_ns > since_ns ? begin_ns : since_ns;
        column_add(&columns[at], field, end_ns - begin_ns);
    }
}

/* ---- options ---- */

static int run_check(const struct sim_opts *opts, struct fault *fault)
{
    if (sim_n_workers(opts) > PICKER_MAX_WORKERS)
        return fault_set(fault, E_INVAL, "more than %d workers", PICKER_MAX_WORKERS);
    if (opts->n_routers > SIM_MAX_ROUTERS)
        return fault_set(fault, E_INVAL, "more than %d routers", SIM_MAX_ROUTERS);
    if (opts->n_kinds > SIM_MAX_CLASSES)
        return fault_set(fault, E_INVAL, "more than %d kinds of requests", SIM_MAX_CLASSES);
    if (opts->n_decode + opts->n_both == 0)
        return fault_set(fault, E_INVAL, "a fleet needs a worker that decodes");
    if (opts->policy != SIM_OURS && (opts->n_prefill == 0 || opts->n_decode == 0 || opts->n_both > 0))
        return fault_set(fault, E_INVAL, "this policy needs prefill and decode workers, and knows no others");
    if (opts->block_tokens == 0 || opts->max_seqs == 0)
        return fault_set(fault, E_INVAL, "block tokens and seats must not be 0");
    if (opts->kv_tokens < opts->block_tokens)
        return fault_set(fault, E_INVAL,
                         "the KV memory of a worker has room for %" PRIu64 " tokens, and a block has %u",
                         opts->kv_tokens, opts->block_tokens);
    if (opts->crash_every_s > 0 && opts->crash_every_s < MIN_CRASH_EVERY_S)
        return fault_set(fault, E_INVAL, "crashes come once a millisecond at most");
    if (opts->heartbeat_ns < NS_PER_MS || opts->report_delay_ns > opts->heartbeat_ns)
        return fault_set(fault, E_INVAL,
                         "a heartbeat of 1 ms or more, and reports no later than one, are needed");
    if (opts->prefill_times.token_s <= 0 || opts->decode_times.step_s + opts->decode_times.row_s <= 0)
        return fault_set(fault, E_INVAL, "a prompt token and a decode step must take time");
    return 0;
}

/* ---- workers ---- */

static void worker_init(struct sim *sim, struct sim_worker *worker, uint32_t slot)
{
    const struct sim_opts *opts = sim->opts;
    bool is_prefill = slot < opts->n_prefill;
    const struct sim_times *times = is_prefill ? &opts->prefill_times : &opts->decode_times;

    if (opts->slow_factor > 0 &&
        (slot == 0 || slot == opts->n_prefill || slot == opts->n_prefill + opts->n_decode)) {
        sim->slow_times[is_prefill] = sim_times_scaled(times, opts->slow_factor);
        times = &sim->slow_times[is_prefill];
    }
    *worker = (struct sim_worker){.slot = slot,
                                  .role = is_prefill                                ? PICKER_PREFILL
                                          : slot < opts->n_prefill + opts->n_decode ? PICKER_DECODE
                                                                                    : PICKER_BOTH,
                                  .times = times,
                                  .run_prompt = SIM_NONE,
                                  .is_up = opts->start_ns == 0};
    worker->row = (struct picker_worker){
        .layout = 1,
        .host = sim_hosts_of(sim, slot),
        .block_tokens = opts->block_tokens,
        .blocks_total = (uint32_t)(opts->kv_tokens / opts->block_tokens),
        .kv_bytes_per_token = (uint64_t)opts->kv_bytes_per_token,
    };
    sim_roles_row(sim, worker);
    sim_learn_start(sim, worker);
}

static void worker_end(struct sim *sim, struct sim_worker *worker)
{
    sim_roles_end(sim, worker);
    sim_turns_clear(worker);
    fair_free(worker->turns);
    free(worker->seats);
    free(worker->fresh);
    sim_lru_fini(&worker->memory);
    sim_lru_fini(&worker->disk);
}

/* ---- crashes ---- */

static uint64_t crash_next_ns(struct sim *sim)
{
    return sim->now_ns + (uint64_t)(-log(1 - rng_unit(&sim->rng)) * sim->opts->crash_every_s * 1e9);
}

/* When workers die faster than any of them ends a request, the run has no end. */
static void crash_count(struct sim *sim)
{
    uint64_t n_done = 0;

    for (uint32_t i = 0; i < SIM_MAX_CLASSES; i++)
        n_done += sim->result->classes[i].n_done;
    if (n_done != sim->n_done_before)
        sim->n_vain_crashes = 0;
    sim->n_done_before = n_done;
    sim->n_vain_crashes += sim->n_under_way > 0;
    if (sim->n_vain_crashes > MAX_VAIN_CRASHES) {
        sim->end = SIM_END_CRASHES;
        sim->rc = E_LIMIT;
    }
}

static void crash_happen(struct sim *sim)
{
    uint32_t slot = (uint32_t)rng_below(&sim->rng, sim->n_workers);
    struct sim_worker *worker = &sim->workers[slot];

    crash_count(sim);
    sim_add(sim, SIM_CRASH, crash_next_ns(sim), 0, 0);
    if (!worker->is_up)
        return;
    sim->result->n_crashes++;
    sim_worker_crash(sim, worker);
    sim_routers_forget(sim, slot);
    sim_front_report(sim, slot);
    sim_front_lost(sim, slot);
    sim_queue_turn(sim);
    sim_add(sim, SIM_START, sim->now_ns + sim->opts->start_ns, slot, 0);
}

static void worker_start(struct sim *sim, uint32_t slot)
{
    sim->workers[slot].is_up = true;
    sim_learn_start(sim, &sim->workers[slot]);
    sim_front_report(sim, slot);
    sim_queue_turn(sim);
}

/* ---- reports ---- */

/* True if nothing is to come but reports, and what routers tell each other. */
static bool run_is_idle(const struct sim *sim)
{
    uint64_t at_ns;

    for (uint32_t i = 0; i < sim->agenda.n; i++) {
        enum sim_kind kind = sim->agenda.heap[i].kind;

        if (kind != SIM_REPORT && kind != SIM_SHARE && kind != SIM_EXPIRE)
            return false;
    }
    for (uint32_t i = 0; i < sim->n_routers; i++) /* time limits are to come */
        if (sim->routers[i].deadlines.n + sim->routers[i].pauses.n_paused > 0)
            return false;
    return sim->is_closed || !sim->load->when(sim->load->self, &at_ns);
}

/* Requests under way of which no event is to come would keep the run going for ever. */
static void run_watch_idle(struct sim *sim)
{
    sim->n_idle_reports = sim->n_under_way > 0 && run_is_idle(sim) ? sim->n_idle_reports + 1 : 0;
    if (sim->n_idle_reports > MAX_IDLE_REPORTS) {
        sim->end = SIM_END_IDLE;
        sim->rc = E_INTERNAL;
    }
}

static void run_report_part(struct sim *sim)
{
    uint32_t part = sim->next_report++ % REPORT_PARTS;

    sim->is_reporting = false;
    run_watch_idle(sim);
    for (uint32_t slot = part; slot < sim->n_workers; slot += REPORT_PARTS) {
        if (!sim->workers[slot].is_dirty && !sim_learn_is_stale(sim, &sim->workers[slot]))
            continue;
        if (sim->opts->report_delay_ns > 0)
            sim_add(sim, SIM_REPORT, sim->now_ns + sim->opts->report_delay_ns, slot, 1);
        else
            sim_front_report(sim, slot);
    }
    sim_roles_tick(sim);
    if (sim->n_under_way > 0)
        sim_report_begin(sim);
    sim_queue_turn(sim);
}

/* Skips the reports of a fleet without requests: they change nothing. */
void sim_report_begin(struct sim *sim)
{
    if (!sim->is_reporting)
        sim_add(sim, SIM_REPORT, sim->now_ns + sim->opts->heartbeat_ns / REPORT_PARTS, 0, 0);
    sim->is_reporting = true;
}

/* ---- the loop ---- */

static bool run_job_is(const struct sim *sim, const struct sim_event *event)
{
    return sim_job_at(sim, event->what)->stamp == event->stamp;
}

static void run_handle(struct sim *sim, const struct sim_event *event)
{
    switch (event->kind) {
    case SIM_STEPS:
        if (sim->workers[event->what].stamp == event->stamp)
            sim_worker_steps_end(sim, &sim->workers[event->what]);
        break;
    case SIM_HOST:
        sim_hosts_due(sim, event->what, event->stamp);
        break;
    case SIM_CORE:
        sim_hosts_request_done(sim, event->what);
        break;
    case SIM_WAKE:
        sim_worker_wake(sim, &sim->workers[event->what]);
        break;
    case SIM_JOIN:
        if (run_job_is(sim, event))
            sim_front_joined(sim, event->what);
        break;
    case SIM_CANCEL:
        if (run_job_is(sim, event))
            sim_front_cancel(sim, event->what);
        break;
    case SIM_REPORT:
        if (event->stamp == 1)
            sim_front_report(sim, event->what);
        else
            run_report_part(sim);
        break;
    case SIM_CRASH:
        crash_happen(sim);
        break;
    case SIM_START:
        worker_start(sim, event->what);
        break;
    case SIM_EXPIRE:
        sim_queue_expire(sim);
        break;
    case SIM_TURN:
        sim_queue_turn(sim);
        break;
    case SIM_SHARE:
        sim_routers_share(sim, event->what);
        break;
    }
}

/* Prefetches the worker or job of the event after the one that is handled now. */
static void run_ask_next(const struct sim *sim)
{
    const struct sim_event *next = &sim->agenda.heap[0];
    const char *at = NULL;
    size_t len_bytes = 0;

    if (sim->agenda.n == 0)
        return;
    if (next->kind == SIM_STEPS || next->kind == SIM_WAKE) {
        at = (const char *)&sim->workers[next->what];
        len_bytes = sizeof(struct sim_worker);
    } else if (next->kind == SIM_JOIN) {
        at = (const char *)sim_job_at(sim, next->what);
        len_bytes = sizeof(struct sim_job);
    }
    for (size_t i = 0; i < len_bytes; i += MEM_CACHE_LINE)
        __builtin_prefetch(at + i);
}

static void run_loop(struct sim *sim)
{
    struct sim_load *load = sim->load;
    struct sim_request request;
    uint64_t at_ns = 0, request_ns = 0;

    while (sim->rc == 0) {
        bool is_stopped =
            load->is_stopped != NULL && atomic_load_explicit(load->is_stopped, memory_order_relaxed);
        bool has_request = !sim->is_closed && load->when(load->self, &request_ns), has_event;

        if (!has_request && sim->n_under_way == 0)
            break;
        if (is_stopped) {
            sim->result->is_partial = true;
            break;
        }
        has_event = sim_agenda_next(&sim->agenda, &at_ns);
        sim->result->n_events++;
        if (has_request && (!has_event || request_ns <= at_ns)) {
            load->take(load->self, &request);
            if (load->progress != NULL)
                progress_show(load->progress, request_ns);
            sim->now_ns = request_ns > sim->now_ns ? request_ns : sim->now_ns;
            sim->result->last_arrival_ns = sim->now_ns;
            sim_front_submit(sim, &request);
        } else {
            struct sim_event event = sim_agenda_take(&sim->agenda);

            run_ask_next(sim);
            sim->now_ns = event.at_ns;
            run_handle(sim, &event);
        }
    }
    for (uint32_t i = 0; i < sim->n_jobs; i++)
        sim_net_stop(sim, sim_job_at(sim, i));
    sim->result->nic_busy_s = (double)sim->nic_busy_ns / 1e9;
    sim->result->disk_busy_s = (double)sim->disk_busy_ns / 1e9;
    sim->result->end_ns = sim->now_ns;
    sim->result->n_under_way = sim->n_under_way;
    if (sim->now_ns / sim->result->column_ns + 1 < sim->result->n_columns)
        sim->result->n_columns = (uint32_t)(sim->now_ns / sim->result->column_ns) + 1;
}

static int run_open(struct sim *sim)
{
    const struct sim_opts *opts = sim->opts;
    struct sim_result *result = sim->result;
    int rc;

    sim->n_workers = sim_n_workers(opts);
    sim->free_job = SIM_NONE;
    rng_init(&sim->rng, opts->seed);
    sim->classes = opts->classes;
    if (sim->classes.n == 0)
        picker_classes_init(&sim->classes, opts->ttft_slo_ns, opts->itl_slo_ns);
    picker_classes_order(&sim->classes, sim->class_order);
    result->n_classes = opts->n_kinds > sim->classes.n ? opts->n_kinds : sim->classes.n;
    result->n_columns = opts->n_columns > 0 ? opts->n_columns : 1;
    result->column_ns = sim->load->span_ns / result->n_columns + 1;
    result->refused = opts->max_refused > 0 ? calloc(opts->max_refused, sizeof(*result->refused)) : NULL;
    result->columns = calloc(result->n_columns, sizeof(*result->columns));
    sim->workers = calloc(sim->n_workers, sizeof(*sim->workers));
    if (result->columns == NULL || (opts->max_refused > 0 && result->refused == NULL) || sim->workers == NULL)
        return E_NOMEM;
    rc = sim_hosts_open(sim);
    if (rc == 0)
        rc = sim_routers_open(sim);
    for (uint32_t i = 0; rc == 0 && i < sim->n_workers; i++) {
        worker_init(sim, &sim->workers[i], i);
        sim_front_report(sim, i);
        if (opts->start_ns > 0)
            sim_add(sim, SIM_START, opts->start_ns, i, 0);
    }
    if (rc == 0 && opts->crash_every_s > 0)
        sim_add(sim, SIM_CRASH, crash_next_ns(sim), 0, 0);
    return rc == 0 ? sim->rc : rc;
}

static void run_close(struct sim *sim)
{
    for (uint32_t i = 0; i < sim->n_jobs; i++) /* after a failure some may still hold their flows */
        if (sim_job_at(sim, i)->flow != NULL) {
            fair_leave(sim_queue_turns(sim_job_at(sim, i)), &sim_job_at(sim, i)->turn);
            fair_drop(sim_queue_turns(sim_job_at(sim, i)), sim_job_at(sim, i)->flow);
        }
    for (uint32_t i = 0; sim->workers != NULL && i < sim->n_workers; i++)
        worker_end(sim, &sim->workers[i]);
    for (uint32_t i = 0; i < SIM_MAX_PAGES; i++)
        free(sim->pages[i]);
    sim_routers_close(sim);
    sim_hosts_close(sim);
    sim_agenda_fini(&sim->agenda);
    free(sim->hashes);
    free(sim->workers);
    free(sim);
}

static int run_fail(const struct sim *sim, int rc, struct fault *fault)
{
    switch (sim->end) {
    case SIM_END_CRASHES:
        return fault_set(fault, rc,
                         "%d crashes in a row without the end of a request: crashes come too often",
                         MAX_VAIN_CRASHES);
    case SIM_END_IDLE:
        return fault_set(fault, rc, "%u requests wait for ever (a defect of the simulator)",
                         sim->n_under_way);
    case SIM_END_DONE:
        break;
    }
    return fault_set(fault, rc, "%s", err_text(rc));
}

int sim_run(const struct sim_opts *opts, struct sim_load *load, struct fault *fault, struct sim_result *out)
{
    struct sim *sim;
    int rc = run_check(opts, fault);

    *out = (struct sim_result){0};
    if (rc < 0)
        return rc;
    sim = calloc(1, sizeof(*sim));
    if (sim == NULL)
        return fault_set(fault, E_NOMEM, "%s", err_text(E_NOMEM));
    sim->opts = opts;
    sim->load = load;
    sim->result = out;
    rc = run_open(sim);
    if (rc == 0) {
        run_loop(sim);
        rc = sim->rc;
    }
    if (rc < 0)
        rc = run_fail(sim, rc, fault);
    run_close(sim);
    return rc;
}

double sim_result_jain(const struct sim_result *result)
{
    double sum = 0, squares = 0;

    for (uint32_t i = 0; i < result->n_classes; i++) {
        double tokens = (double)result->classes[i].served_tokens;

        sum += tokens;
        squares += tokens * tokens;
    }
    return squares > 0 ? sum * sum / (result->n_classes * squares) : 1;
}

void sim_result_fini(struct sim_result *result)
{
    free(result->columns);
    free(result->refused);
    *result = (struct sim_result){0};
}
