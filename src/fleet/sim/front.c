/* SPDX-License-Identifier: Apache-2.0 */
/* The router of the simulated fleet. It treats a request as fleet/router does, but without clients and links.
 *
 *    submit --> placed --> first token --> end
 *        |        ^ |
 *        v        | +-- worker lost: placed again with the tokens answered so far
 *      queued ----+--> refused (full, timeout)
 *
 * Placement, booking and the order of the queue are the daemons' objects (fleet/picker, base/fair).  A request
 * waits only while the picker finds no placement that its yield allows, as in fleet/router/dispatch.c. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/load_rates.h"
#include "fleet/picker/turn.h"
#include "fleet/sim/queue_priv.h"

/* ---- jobs ---- */

static struct sim_job *front_new_job(struct sim *sim, const struct sim_request *request)
{
    uint32_t i = sim->free_job, stamp;
    struct sim_job *job;

    if (i == SIM_NONE) {
        i = sim->n_jobs;
        if (i / SIM_PAGE_JOBS == SIM_MAX_PAGES) {
            sim->rc = E_LIMIT;
            return NULL;
        }
        if (sim->pages[i / SIM_PAGE_JOBS] == NULL)
            sim->pages[i / SIM_PAGE_JOBS] = calloc(SIM_PAGE_JOBS, sizeof(struct sim_job));
        if (sim->pages[i / SIM_PAGE_JOBS] == NULL) {
            sim->rc = E_NOMEM;
            return NULL;
        }
        sim->n_jobs++;
        sim_job_at(sim, i)->next = SIM_NONE;
    }
    job = sim_job_at(sim, i);
    sim->free_job = job->next;
    stamp = job->stamp + 1;
    *job = (struct sim_job){.request = *request,
                            .router = sim_routers_next(sim, request),
                            .number = i,
                            .stamp = stamp,
                            .next = SIM_NONE,
                            .prefill = SIM_NONE,
                            .decode = SIM_NONE,
                            .deadline_at = SIM_NONE};
    fair_item_init(&job->turn);
    fair_item_init(&job->line_turn);
    list_init(&job->stream);
    sim->n_under_way++;
    return job;
}

static void front_free_job(struct sim *sim, struct sim_job *job)
{
    sim_ahead_leave(sim, job);
    if (job->flow != NULL)
        fair_drop(sim_queue_turns(job), job->flow);
    job->flow = NULL;
    if (sim->load->on_end != NULL)
        sim->load->on_end(sim->load->self, &job->request, sim->now_ns);
    job->state = SIM_FREE;
    job->stamp++;
    job->next = sim->free_job;
    sim->free_job = job->number;
    sim->n_under_way--;
}

static struct sim_class *front_class(struct sim *sim, const struct sim_job *job)
{
    return &sim->result->classes[job->request.kind];
}

/* ---- refusals ---- */

static void front_count_refusal(struct sim *sim, uint32_t kind)
{
    uint64_t n = 0;

    if (sim->opts->most_refused == 0 || kind != sim->opts->most_refused_kind)
        return;
    for (uint32_t i = 0; i < REFUSAL_REASONS; i++)
        n += sim->result->classes[kind].n_refused[i];
    sim->is_closed |= n >= sim->opts->most_refused;
}

void sim_front_refuse(struct sim *sim, struct sim_job *job, enum refusal_reason why)
{
    sim_queue_leave(job);
    if (why == REFUSED_PREDICTED || why == REFUSED_LATE)
        sim_admit_note_refusal(sim, job);
    front_class(sim, job)->n_refused[why]++;
    front_count_refusal(sim, job->request.kind);
    sim_column(sim)->n_refused++;
    picker_demand_missed(&job->router->roles.demand, sim->now_ns);
    front_free_job(sim, job);
}

/* Whether requests of several tenants or routers have come. Without them turns need no accounts. */
static bool front_competes(struct sim *sim, struct sim_job *job)
{
    return (sim->has_tenants || sim->n_routers > 1) && sim_queue_hold_flow(sim, job);
}

static enum refusal_reason front_why(const struct sim *sim, const struct sim_job *job, int rc)
{
    return rc == E_LIMIT                                       ? REFUSED_SIZE
           : sim_queue_share_is_used(sim, job)                 ? REFUSED_SHARE
           : picker_fleet_n_usable(job->router->fleet, 0) == 0 ? REFUSED_DESERTED
                                                               : REFUSED_FULL;
}

/* ---- placement ---- */

static enum picker_yield front_yield(const struct sim *sim, const struct sim_job *job)
{
    struct picker_patience patience = {.ttft_slo_ns = sim_job_class(sim, job)->ttft_slo_ns,
                                       .queue_timeout_ns = sim->opts->queue_timeout_ns,
                                       .is_waiting = job->state == SIM_QUEUED,
                                       .is_full = job->router->n_queued >= sim->opts->queue_max,
                                       .is_refused_early = sim->opts->refuses_early};

    patience.waited_ns = patience.is_waiting ? sim->now_ns - job->queued_ns : 0;
    return picker_yield_for(&patience);
}

static bool front_hashes(struct sim *sim, const struct sim_job *job)
{
    uint32_t n = job->request.n_blocks;

    if (n > sim->cap_hashes) {
        struct block_hash *hashes = realloc(sim->hashes, 2ul * n * sizeof(*hashes));

        if (hashes == NULL) {
            sim->rc = E_NOMEM;
            return false;
        }
        sim->hashes = hashes;
        sim->cap_hashes = 2 * n;
    }
    for (uint32_t i = 0; i < n; i++)
        sim->hashes[i] = sim_block_hash(sim_block_id(&job->request, i));
    sim->place.hashes = sim->hashes;
    sim->place.n_hashes = n;
    return true;
}

bool sim_front_choose_prepare(struct sim *sim, struct sim_job *job, struct picker_goals *goals)
{
    const struct sim_opts *opts = sim->opts;

    *goals = (struct picker_goals){.ttft_slo_s = (double)sim_job_class(sim, job)->ttft_slo_ns / 1e9,
                                   .itl_slo_s = (double)sim_pause_itl_ns(sim, job) / 1e9,
                                   .local_prefill_tokens = opts->local_prefill_tokens,
                                   .local_prefill_s = (double)opts->local_prefill_ns / 1e9,
                                   .yield = front_yield(sim, job)};
    if (!front_hashes(sim, job))
        return false;
    sim->place.fleet = job->router->fleet;
    sim->place.index = job->router->index;
    sim->place.now_ns = sim->now_ns;
    sim->place.may_push = opts->prefix_fetch != PICKER_FETCH_OFF;
    sim->place.request =
        (struct picker_request){.n_tokens = job->n_given,
                                .max_new_tokens = job->request.answer_tokens - job->n_answered,
                                .answer_tokens = opts->refuses_early ? sim_admit_answer(job) : 0};
    sim_admit_goals(sim, job, goals);
    return true;
}

static int front_choose(struct sim *sim, struct sim_job *job, struct picker_owner *owner_out)
{
    const struct sim_opts *opts = sim->opts;
    struct picker_goals goals;
    int rc;

    if (!sim_front_choose_prepare(sim, job, &goals))
        return E_NOMEM;
    *owner_out = (struct picker_owner){.slot = PICKER_NONE};
    if (opts->policy != SIM_OURS)
        return sim_baseline_choose(sim, job, &sim->place.choice, owner_out);
    rc = picker_place_choose(&sim->place, &goals);
    /* a stream that has begun does not wait, unless it is paused */
    return rc == E_OVERLOADED && job->is_again && job->state != SIM_PAUSED ? 0 : rc;
}

/* Sends the chosen placement to its workers. */
static void front_place(struct sim *sim, uint32_t i, struct picker_owner *owner, bool is_owed)
{
    struct sim_job *job = sim_job_at(sim, i);
    const struct picker_choice *choice = &sim->place.choice;
    struct sim_worker *worker =
        &sim->workers[choice->prefill != PICKER_NONE ? choice->prefill : choice->decode];

    sim_cache_ask(worker, &job->request);
    if (sim->opts->policy == SIM_OURS)
        sim_owner_find(sim, owner);
    sim_cache_ask_more(worker, &job->request);
    picker_demand_placed(&job->router->roles.demand, job->n_given, choice->uncached_tokens);
    picker_place_book(&sim->place, &job->booked[0], &job->booked[1]);
    sim_admit_placed(sim, job, choice, is_owed);
    sim_queue_leave(job);
    sim_pause_placed(sim, job);
    job->prefill = choice->prefill;
    job->decode = choice->decode;
    if (!job->is_again && front_competes(sim, job)) {
        sim_admit_charge(sim, job, choice->uncached_tokens);
        sim_ahead_enter(sim, job);
    }
    job->state = SIM_PROMPT;
    job->placed_ns = sim->now_ns;
    job->began_ns = 0;
    job->n_pushed = job->n_packed = 0;
    sim->workers[job->decode].n_running++;
    sim->workers[job->decode].is_dirty = true;
    if (job->prefill != SIM_NONE)
        sim->workers[job->prefill].n_running++;
    *(job->prefill != SIM_NONE ? &sim->result->n_pairs : &sim->result->n_alone) += 1;
    sim_cache_begin(sim, job, owner);
    sim_worker_prompt(sim, worker, i);
    sim_routers_placed(sim, job);
}

/* Tries to place the job now: 0, or the picker's code. */
int sim_front_try(struct sim *sim, struct sim_job *job)
{
    struct picker_owner owner;
    int rc = front_choose(sim, job, &owner);
    bool is_owed = rc == E_OVERLOADED && job->state != SIM_PAUSED && front_competes(sim, job) &&
                   sim_ahead_goes(sim, job, false);

    rc = is_owed ? 0 : rc;
    if (rc == 0)
        front_place(sim, job->number, &owner, is_owed);
    return rc;
}

static void front_wait_or_refuse(struct sim *sim, struct sim_job *job, int rc)
{
    if (rc == E_NOMEM || sim->rc < 0 || !sim_queue_hold_flow(sim, job))
        return;
    if (!job->awaits_pause && !sim_admit_takes(sim, job, rc)) {
        sim_front_refuse(sim, job, REFUSED_PREDICTED);
        return;
    }
    if (!job->is_again && (rc == E_LIMIT || !sim_queue_has_room(sim, job))) {
        sim_front_refuse(sim, job, front_why(sim, job, rc));
        return;
    }
    sim_queue_add(sim, job);
}

void sim_front_submit(struct sim *sim, const struct sim_request *request)
{
    struct sim_job *job = front_new_job(sim, request);
    struct picker_owner owner;
    bool must_wait;
    uint32_t n_most = (request->prompt_tokens + sim->opts->block_tokens - 1) / sim->opts->block_tokens;
    int rc;

    if (job == NULL)
        return;
    job->class_at = sim_job_class_at(sim, job);
    must_wait = job->router->n_queued > 0 || sim_pause_is_first(sim, job);
    job->arrival = ++sim->n_arrivals;
    sim_hosts_request(sim);
    sim->has_tenants |= request->tenant != sim->tenant && sim->n_arrivals > 1;
    sim->tenant = request->tenant;
    sim->has_turns = (sim->has_tenants || sim->n_routers > 1) && !sim->opts->in_order;
    job->is_spared = job->arrival == sim->opts->spared;
    job->request.n_blocks = request->n_blocks < n_most ? request->n_blocks : n_most;
    job->n_given = request->prompt_tokens;
    front_class(sim, job)->n_arrived++;
    front_class(sim, job)->prompt_tokens += request->prompt_tokens;
    sim_column(sim)->n_arrived++;
    picker_demand_arrived(&job->router->roles.demand, sim->now_ns, request->prompt_tokens);
    sim_report_begin(sim);
    sim_routers_share_begin(sim);
    if (sim->opts->cancel_share > 0 && rng_unit(&sim->rng) < sim->opts->cancel_share) {
        double most_ns = (double)sim_job_class(sim, job)->ttft_slo_ns +
                         (double)sim_job_class(sim, job)->itl_slo_ns * request->answer_tokens;

        sim_add(sim, SIM_CANCEL, sim->now_ns + (uint64_t)(most_ns * rng_unit(&sim->rng)), job->number,
                job->stamp);
    }
    if (must_wait && sim->opts->refuses_early)
        rc = front_choose(sim, job, &owner);
    else
        rc = must_wait ? E_OVERLOADED : sim_front_try(sim, job);
    if ((rc == E_OVERLOADED || must_wait) && sim_pause_for(sim, job))
        rc = 0;
    else if (rc < 0 || must_wait)
        front_wait_or_refuse(sim, job, rc);
    if (must_wait)
        sim_queue_turn(sim);
}

/* ---- progress ---- */

void sim_front_leave_worker(struct sim *sim, struct sim_job *job, unsigned which)
{
    uint32_t slot = which == 0 ? job->prefill : job->decode;

    if (slot == SIM_NONE)
        return;
    picker_booking_over(job->router->fleet, &job->booked[which], sim->now_ns);
    if (which == 1)
        sim_pause_unseat(job);
    if (sim->workers[slot].is_up) {
        sim->workers[slot].n_running--;
        sim->workers[slot].is_dirty = true;
        sim_worker_release(sim, &sim->workers[slot], job);
    }
    *(which == 0 ? &job->prefill : &job->decode) = SIM_NONE;
}

/* The prefill worker sends the blocks that the decode worker lacks. The first layers left before the last
 * layer was done. */
static void front_hand_off(struct sim *sim, struct sim_job *job)
{
    struct sim_worker *from = &sim->workers[job->prefill], *to = &sim->workers[job->decode];
    uint64_t has = (uint64_t)sim_cache_held(to, &job->request) * sim->opts->block_tokens;
    double bytes = has < job->n_given ? (double)(job->n_given - has) * sim->opts->kv_bytes_per_token : 0;
    const struct sim_transfer transfer = {.from = from,
                                          .to = to,
                                          .bytes = bytes,
                                          .sum_bytes = &sim->result->handed_bytes,
                                          .from_ns = job->began_ns};
    uint64_t end_ns = sim_net_send(sim, job, &transfer), tail_ns = sim->now_ns;

    if (sim->opts->nic_bytes_per_s > 0) {
        tail_ns += (uint64_t)(bytes * 1e9 / sim->opts->nic_bytes_per_s /
                              (sim->opts->n_layers > 1 ? sim->opts->n_layers : 1));
        if (bytes > 0 && end_ns > job->began_ns)
            rate_learn(&to->transfer_rate, bytes * 1e9 / (double)(end_ns - job->began_ns),
                       LOAD_RATE_TRANSFER_ALPHA, 1, sim->now_ns);
    }
    end_ns = end_ns > tail_ns ? end_ns : tail_ns;
    job->state = SIM_MOVING;
    sim_add(sim, SIM_JOIN, end_ns + sim->opts->latency_ns, job->number, job->stamp);
}

void sim_front_prefilled(struct sim *sim, uint32_t i)
{
    struct sim_job *job = sim_job_at(sim, i);
    uint64_t received_ns = sim->now_ns + sim->opts->latency_ns;
    struct sim_class *kind = front_class(sim, job);
    struct sim_column *column = sim_column(sim);

    job->n_answered++;
    if (job->first_ns == 0) {
        job->first_ns = received_ns;
        sim_admit_first_token(job, received_ns);
        sim_hist_add(&kind->ttft, received_ns - job->request.at_ns, 1);
        column->ttft_s += (double)(received_ns - job->request.at_ns) / 1e9;
        column->n_first++;
    } else {
        sim_hist_add(&kind->itl, received_ns - job->latest_ns, 1);
    }
    job->latest_ns = sim->now_ns;
    picker_booking_started(job->router->fleet, &job->booked[job->prefill == SIM_NONE], sim->now_ns);
    if (job->n_answered >= job->request.answer_tokens)
        sim_front_ended(sim, i);
    else if (job->prefill != SIM_NONE)
        front_hand_off(sim, job);
}

void sim_front_joined(struct sim *sim, uint32_t i)
{
    struct sim_job *job = sim_job_at(sim, i);
    struct sim_worker *to = &sim->workers[job->decode];

    sim_cache_ask(to, &job->request);
    if (job->prefill != SIM_NONE) {
        sim_cache_ask(&sim->workers[job->prefill], &job->request);
        sim_cache_ask_more(&sim->workers[job->prefill], &job->request);
    }
    sim_cache_ask_more(to, &job->request);
    if (job->prefill != SIM_NONE)
        sim_cache_share(sim, &sim->workers[job->prefill], &job->request, job->request.n_blocks);
    sim_front_leave_worker(sim, job, 0);
    picker_booking_started(job->router->fleet, &job->booked[1], sim->now_ns);
    sim_cache_store(sim, to, &job->request);
    sim_worker_join(sim, to, i);
    sim_queue_turn(sim);
}

void sim_front_ended(struct sim *sim, uint32_t i)
{
    struct sim_job *job = sim_job_at(sim, i);
    struct sim_class *kind = front_class(sim, job);
    uint64_t end_ns = sim->now_ns + sim->opts->latency_ns, ttft_ns = job->first_ns - job->request.at_ns;
    uint32_t n = job->request.answer_tokens;
    double itl_ns = n > 1 ? (double)(end_ns - job->first_ns) / (n - 1) : 0;
    double held_s = (double)(sim->now_ns - job->placed_ns) / 1e9;

    kind->held_s += held_s;
    kind->held_token_s += held_s * ((double)job->request.prompt_tokens + n);
    sim_admit_ended(sim, job, itl_ns / 1e9);
    if (front_competes(sim, job))
        sim_admit_charge(sim, job, n);
    sim_front_leave_worker(sim, job, 0);
    sim_front_leave_worker(sim, job, 1);
    sim_hist_add(&kind->e2e, end_ns - job->request.at_ns, 1);
    kind->n_done++;
    kind->answer_tokens += n;
    kind->served_tokens += job->request.prompt_tokens + n;
    picker_demand_ended(&job->router->roles.demand, sim->now_ns, n);
    sim_column(sim)->n_done++;
    if (ttft_ns <= sim_job_class(sim, job)->ttft_slo_ns &&
        itl_ns <= (double)sim_job_class(sim, job)->itl_slo_ns) {
        kind->n_good++;
        sim->result->is_spared_good |= job->is_spared;
        kind->good_tokens += n;
        sim_column(sim)->n_good++;
    } else if ((double)ttft_ns / 1e9 > job->limit_s || itl_ns > (double)sim_job_class(sim, job)->itl_slo_ns) {
        picker_demand_missed(&job->router->roles.demand, sim->now_ns);
    }
    front_free_job(sim, job);
}

void sim_front_cancel(struct sim *sim, uint32_t i)
{
    struct sim_job *job = sim_job_at(sim, i);

    sim_queue_leave(job);
    sim_pause_over(sim, job);
    sim_net_stop(sim, job);
    if (job->prefill != SIM_NONE && sim->workers[job->prefill].is_up)
        sim_worker_drop(sim, &sim->workers[job->prefill], i);
    if (job->decode != SIM_NONE && sim->workers[job->decode].is_up)
        sim_worker_drop(sim, &sim->workers[job->decode], i);
    sim_front_leave_worker(sim, job, 0);
    sim_front_leave_worker(sim, job, 1);
    front_class(sim, job)->n_cancelled++;
    front_free_job(sim, job);
    sim_queue_turn(sim);
}

/* ---- a lost worker ---- */

static void front_replace(struct sim *sim, struct sim_job *job)
{
    int rc;

    if (job->state == SIM_DECODING && job->decode != SIM_NONE) {
        job->n_answered = sim_worker_answered(&sim->workers[job->decode], job);
        job->latest_ns = sim->now_ns; /* the gaps before were counted or are lost */
    }
    if (job->prefill != SIM_NONE && sim->workers[job->prefill].is_up)
        sim_worker_drop(sim, &sim->workers[job->prefill], job->number);
    if (job->decode != SIM_NONE && sim->workers[job->decode].is_up)
        sim_worker_drop(sim, &sim->workers[job->decode], job->number);
    sim_front_leave_worker(sim, job, 0);
    sim_front_leave_worker(sim, job, 1);
    job->held[0] = job->held[1] = 0;
    job->stamp++;
    sim->result->n_replaced++;
    sim->result->again_tokens += job->n_answered > 0 ? job->n_given : 0;
    job->is_again = job->n_answered > 0;
    job->n_given = job->request.prompt_tokens + job->n_answered;
    job->state = SIM_PROMPT;
    rc = sim_front_try(sim, job);
    if (rc < 0)
        front_wait_or_refuse(sim, job, rc);
}

static bool front_is_lost(const struct sim_job *job, uint32_t slot)
{
    return job->state != SIM_FREE && job->state != SIM_QUEUED && job->state != SIM_PAUSED &&
           (job->prefill == slot || job->decode == slot);
}

void sim_front_lost(struct sim *sim, uint32_t slot)
{
    for (uint32_t i = 0; i < sim->n_jobs; i++)
        if (front_is_lost(sim_job_at(sim, i), slot))
            sim_net_stop(sim, sim_job_at(sim, i));
    for (uint32_t i = 0; i < sim->n_jobs && sim->rc == 0; i++)
        if (front_is_lost(sim_job_at(sim, i), slot))
            front_replace(sim, sim_job_at(sim, i));
}

/* ---- reports ---- */

void sim_front_report(struct sim *sim, uint32_t slot)
{
    struct sim_worker *worker = &sim->workers[slot];
    struct picker_worker *row = &worker->row;
    const struct sim_opts *opts = sim->opts;
    uint64_t free_tokens = opts->kv_tokens > worker->used_tokens ? opts->kv_tokens - worker->used_tokens : 0;

    row->is_usable = row->can_push = worker->is_up;
    row->blocks_free = (uint32_t)(free_tokens / opts->block_tokens);
    row->queued_prefill_tokens = worker->queued_tokens;
    row->n_running = worker->n_running;
    sim_learn_report(sim, worker);
    row->transfer_bytes_per_s = rate_level(&worker->transfer_rate);
    row->push_bytes_per_s = rate_level(&worker->push_rate);
    row->read_bytes_per_s = opts->disk_tokens > 0 ? opts->disk_bytes_per_s : 0;
    worker->is_dirty = false;
    if (sim_routers_report(sim, slot) < 0)
        sim->rc = E_NOMEM;
}
