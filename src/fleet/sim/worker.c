/* SPDX-License-Identifier: Apache-2.0 */
/* A worker's steps, joined into runs.
 *
 * Between two changes (a sequence ends or joins, a prompt begins or ends) every step holds the same rows and
 * the same number of prompt tokens c.  With B rows over C tokens of context, and a prompt at position p, the
 * first k steps take
 *
 *    k (step + row B + token c) + context (k C + B k (k - 1) / 2) + pair (k c p + (k c)^2 / 2)
 *
 * which is linear x k + square x k^2.  So a run is one event, however many steps it has.  When a sequence or
 * prompt joins in the middle of a run, the quadratic gives the current step, and the run ends with that
 * step.  The daemons have the same rule: a step is never interrupted.
 *
 * Mixed steps take the prompt tokens that the scheduler's own rule gives by what the worker has learned (learn.c),
 * asked once for a run; the run splits a prompt evenly, without regard to block boundaries.  Prompts
 * are computed one at a time, in the order of turns.c.  tests/bench/bench_truth.py compares with real daemons. */
#include <math.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/err.h"
#include "fleet/sim/queue_priv.h"

#define MOST_MIXED 32 /* steps of a run with a prompt and rows: the chunk shrinks as attention grows */

/* ---- lines ---- */

void sim_line_push(struct sim *sim, struct sim_worker *worker, struct sim_line *line, uint32_t job)
{
    sim_turns_enter(sim, worker, sim_job_at(sim, job));
    sim_job_at(sim, job)->next = SIM_NONE;
    if (line->n++ == 0)
        line->head = job;
    else
        sim_job_at(sim, line->tail)->next = job;
    line->tail = job;
}

bool sim_line_remove(struct sim *sim, struct sim_worker *worker, struct sim_line *line, uint32_t job)
{
    uint32_t before = SIM_NONE, at = line->head;

    for (uint32_t i = 0; i < line->n; i++, before = at, at = sim_job_at(sim, at)->next) {
        if (at != job)
            continue;
        sim_turns_leave(worker, sim_job_at(sim, at));
        if (before == SIM_NONE)
            line->head = sim_job_at(sim, at)->next;
        else
            sim_job_at(sim, before)->next = sim_job_at(sim, at)->next;
        line->tail = line->tail == job ? before : line->tail;
        line->n--;
        return true;
    }
    return false;
}

/* ---- seats ---- */

static void seat_up(struct sim_worker *worker, uint32_t at, struct sim_seat seat)
{
    for (; at > 0 && worker->seats[(at - 1) / 2].end_step > seat.end_step; at = (at - 1) / 2)
        worker->seats[at] = worker->seats[(at - 1) / 2];
    worker->seats[at] = seat;
}

static void seat_down(struct sim_worker *worker, uint32_t at, struct sim_seat seat)
{
    for (;;) {
        uint32_t child = 2 * at + 1;

        if (child >= worker->n_seats)
            break;
        child +=
            child + 1 < worker->n_seats && worker->seats[child + 1].end_step < worker->seats[child].end_step;
        if (worker->seats[child].end_step >= seat.end_step)
            break;
        worker->seats[at] = worker->seats[child];
        at = child;
    }
    worker->seats[at] = seat;
}

static void seat_remove(struct sim *sim, struct sim_worker *worker, uint32_t at)
{
    struct sim_seat last = worker->seats[--worker->n_seats];
    const struct sim_job *job;

    if (at < worker->n_seats) {
        job = sim_job_at(sim, worker->seats[at].job);
        seat_down(worker, at, last);
        if (worker->seats[at].job == last.job)
            seat_up(worker, at, last);
    } else {
        job = sim_job_at(sim, last.job);
    }
    worker->n_by_kind[job->request.kind]--;
}

static bool seat_grow(struct sim_worker *worker)
{
    uint32_t cap = worker->cap_seats ? 2 * worker->cap_seats : 16;
    struct sim_seat *seats = realloc(worker->seats, cap * sizeof(*seats));
    uint32_t *fresh = seats != NULL ? realloc(worker->fresh, cap * sizeof(*fresh)) : NULL;

    worker->seats = seats != NULL ? seats : worker->seats;
    worker->fresh = fresh != NULL ? fresh : worker->fresh;
    if (fresh != NULL)
        worker->cap_seats = cap;
    return fresh != NULL;
}

static uint64_t job_room(const struct sim_job *job) /* KV that the sequence takes in the end */
{
    return (uint64_t)job->request.prompt_tokens + job->request.answer_tokens;
}

static bool worker_has_room(const struct sim *sim, const struct sim_worker *worker, uint64_t n_tokens)
{
    return worker->used_tokens == 0 || worker->used_tokens + n_tokens <= sim->opts->kv_tokens;
}

static void worker_seat(struct sim *sim, struct sim_worker *worker, uint32_t i)
{
    struct sim_job *job = sim_job_at(sim, i);

    if (worker->n_seats == worker->cap_seats && !seat_grow(worker)) {
        sim->rc = E_NOMEM;
        return;
    }
    job->state = SIM_DECODING;
    job->end_step = worker->n_steps + (job->request.answer_tokens - job->n_answered);
    worker->context += job->request.prompt_tokens + job->n_answered;
    worker->n_by_kind[job->request.kind]++;
    worker->n_seats++;
    seat_up(worker, worker->n_seats - 1, (struct sim_seat){job->end_step, i});
    worker->fresh[worker->n_fresh++] = i;
    sim_pause_seat(sim, job);
}

static void worker_seat_joins(struct sim *sim, struct sim_worker *worker)
{
    while (worker->joins.n > 0 && worker->n_seats < sim->opts->max_seqs) {
        uint32_t i = sim_turns_first(worker, &worker->joins);

        if (!worker_has_room(sim, worker, job_room(sim_job_at(sim, i))))
            return;
        sim_line_remove(sim, worker, &worker->joins, i);
        sim_worker_reserve(sim, worker, sim_job_at(sim, i), job_room(sim_job_at(sim, i)));
        worker_seat(sim, worker, i);
    }
}

/* ---- KV of sequences ---- */

void sim_worker_reserve(struct sim *sim, struct sim_worker *worker, struct sim_job *job, uint64_t n_tokens)
{
    job->held[worker->slot == job->decode] += n_tokens;
    worker->used_tokens += n_tokens;
    sim_cache_trim(sim, worker);
}

void sim_worker_release(struct sim *sim, struct sim_worker *worker, struct sim_job *job)
{
    uint64_t *held = &job->held[worker->slot == job->decode];
    bool was_full = worker->used_tokens + *held > sim->opts->kv_tokens || worker->joins.n > 0;

    worker->used_tokens -= *held;
    *held = 0;
    if (was_full && !worker->is_busy && worker->is_up && worker->prompts.n + worker->joins.n > 0)
        sim_add(sim, SIM_WAKE, sim->now_ns, worker->slot, 0);
}

uint32_t sim_worker_answered(const struct sim_worker *worker, const struct sim_job *job)
{
    uint64_t left = job->end_step > worker->n_steps ? job->end_step - worker->n_steps : 0;

    return left < job->request.answer_tokens ? job->request.answer_tokens - (uint32_t)left : 0;
}

/* ---- runs ---- */

struct prompt_walk {  /* along the line of prompts */
    uint32_t at;      /* the latest one; SIM_NONE: none yet */
    uint32_t n_begun; /* behind it */
    bool is_short;    /* one found no room or no seat: no other one begins */
};

/* Begins the prompt if it has room.  False: neither it nor a later one may begin now. */
static bool prompt_begin(struct sim *sim, struct sim_worker *worker, struct sim_job *job)
{
    uint64_t n_tokens = job->prefill == SIM_NONE ? job_room(job) : job->n_given;

    if (!worker_has_room(sim, worker, n_tokens) ||
        (job->prefill == SIM_NONE && worker->n_seats >= sim->opts->max_seqs))
        return false;
    job->began_ns = sim->now_ns > 0 ? sim->now_ns : 1;
    worker->n_begun++;
    sim_ahead_leave(sim, job);
    sim_cache_again(sim, worker, job);
    sim_worker_reserve(sim, worker, job, n_tokens);
    return true;
}

/* The next prompt in line that may be computed now; SIM_NONE: none.  Those that have begun never wait for one that finds no
 * room: they hold the room. */
static uint32_t worker_next_prompt(struct sim *sim, struct sim_worker *worker, struct prompt_walk *walk)
{
    const struct sim_line *line = &worker->prompts;

    while (!walk->is_short || walk->n_begun > 0) {
        struct sim_job *job;

        walk->at = walk->at == SIM_NONE ? sim_turns_first(worker, line)
                                        : sim_turns_next(sim, worker, line, walk->at);
        if (walk->at == SIM_NONE)
            return SIM_NONE;
        job = sim_job_at(sim, walk->at);
        if (job->began_ns > 0) {
            walk->n_begun--;
            return walk->at;
        }
        if (walk->is_short)
            continue;
        if (job->ready_ns <= sim->now_ns) {
            if (prompt_begin(sim, worker, job))
                return walk->at;
            walk->is_short = true;
        } else if (sim->opts->in_order) {
            return SIM_NONE;
        }
    }
    return SIM_NONE;
}

/* The prompt's last step has room for so many tokens of the prompts behind it. */
static void worker_pack(struct sim *sim, struct sim_worker *worker, struct prompt_walk *walk, double room)
{
    while (room >= 1) {
        uint32_t at = worker_next_prompt(sim, worker, walk);
        struct sim_job *job;
        double n, from;

        if (at == SIM_NONE)
            return;
        job = sim_job_at(sim, at);
        n = job->n_left < room ? job->n_left : floor(room);
        from = job->n_given - job->n_left;
        job->n_packed = (uint32_t)n;
        worker->run_pack_s += n * worker->times->token_s + worker->times->pair_s * n * (from + n / 2);
        room -= n;
    }
}

double sim_worker_run_s(const struct sim_worker *worker, double n_steps)
{
    return n_steps * (worker->run_linear_s + n_steps * worker->run_square_s);
}

static void worker_schedule(struct sim *sim, struct sim_worker *worker)
{
    double ns = (sim_worker_run_s(worker, worker->run_steps) + worker->run_pack_s) * 1e9;

    worker->stamp++;
    sim_hosts_set_end(sim, worker, worker->run_began_ns + (ns < 1 ? 1 : (uint64_t)ns));
}

/* Begins the next run, if there is anything to do. */
static void worker_plan(struct sim *sim, struct sim_worker *worker)
{
    const struct sim_times *times = worker->times;
    struct prompt_walk walk = {.at = SIM_NONE, .n_begun = worker->n_begun};
    double rows, noise, steps = 1e9;

    if (!worker->is_up || worker->is_busy)
        return;
    worker_seat_joins(sim, worker);
    rows = worker->n_seats;
    worker->run_pack_s = 0;
    worker->run_prompt = worker_next_prompt(sim, worker, &walk);
    if (worker->run_prompt == SIM_NONE && worker->n_seats == 0)
        return;
    worker->run_chunk = 0;
    worker->run_rows = worker->n_seats;
    worker->run_context = worker->context;
    worker->run_position = 0;
    worker->run_linear_s =
        times->step_s + rows * times->row_s + times->context_s * (worker->context - rows / 2);
    worker->run_square_s = times->context_s * rows / 2;
    if (worker->n_seats > 0)
        steps = (double)(worker->seats[0].end_step - worker->n_steps);
    if (worker->run_prompt != SIM_NONE) {
        const struct sim_job *job = sim_job_at(sim, worker->run_prompt);
        uint32_t at = job->n_given - job->n_left;
        double most = sim->opts->batch_tokens > 0 ? sim->opts->batch_tokens : job->n_left, n, c;

        if (worker->n_seats > 0)
            most = worker->chunk_tokens = sim_learn_chunk(sim, worker, at);
        n = ceil(job->n_left / most);
        c = job->n_left / n;
        worker->run_chunk = c;
        worker->run_position = at;
        worker->run_linear_s += c * times->token_s + times->pair_s * (c * at + c / 2);
        worker->run_square_s += times->pair_s * c * c / 2;
        steps = n < steps ? n : steps;
        steps = worker->n_seats > 0 && steps > MOST_MIXED ? MOST_MIXED : steps;
        if (steps == n)
            worker_pack(sim, worker, &walk, most * n - job->n_left);
    }
    noise = sim_hosts_noise(sim, steps);
    worker->run_linear_s *= noise;
    worker->run_square_s *= noise;
    worker->run_pack_s *= noise;
    worker->run_steps = (uint32_t)steps;
    worker->run_began_ns = sim_hosts_now(sim, worker);
    sim_hosts_begin(sim, worker);
    worker->booked_ns = sim->now_ns;
    worker->is_busy = true;
    worker_schedule(sim, worker);
}

/* Steps of the run that have ended by now. */
static double worker_steps_now(const struct sim *sim, const struct sim_worker *worker)
{
    double passed_s = (double)(sim_hosts_now(sim, worker) - worker->run_began_ns) / 1e9,
           linear = worker->run_linear_s;

    return floor(2 * passed_s / (linear + sqrt(linear * linear + 4 * worker->run_square_s * passed_s)));
}

uint64_t sim_worker_steps_now(const struct sim *sim, const struct sim_worker *worker)
{
    if (!worker->is_busy)
        return worker->n_steps;
    return worker->n_steps + (uint64_t)fmin(worker_steps_now(sim, worker), worker->run_steps);
}

uint32_t sim_worker_answered_now(const struct sim *sim, const struct sim_worker *worker,
                                 const struct sim_job *job)
{
    uint64_t n_steps = sim_worker_steps_now(sim, worker), left;

    left = job->end_step > n_steps ? job->end_step - n_steps : 0;
    return left < job->request.answer_tokens ? job->request.answer_tokens - (uint32_t)left : 0;
}

/* The run ends before the step that they were to share. */
static void worker_unpack(struct sim *sim, struct sim_worker *worker)
{
    uint32_t at = worker->prompts.head;

    for (uint32_t i = 0; worker->run_pack_s > 0 && i < worker->prompts.n; i++, at = sim_job_at(sim, at)->next)
        sim_job_at(sim, at)->n_packed = 0;
    worker->run_pack_s = 0;
}

/* Something joins: the run ends with the step under way. */
static void worker_poke(struct sim *sim, struct sim_worker *worker)
{
    double n;

    if (!worker->is_busy) {
        worker_plan(sim, worker);
        return;
    }
    if (worker->run_steps <= 1)
        return;
    n = worker_steps_now(sim, worker) + 1;
    if (n >= worker->run_steps)
        return;
    worker->run_steps = (uint32_t)n;
    worker_unpack(sim, worker);
    worker_schedule(sim, worker);
}

/* ---- the end of a run ---- */

static void worker_prompt_steps(struct sim *sim, struct sim_worker *worker, uint32_t i, uint32_t done)
{
    struct sim_job *job = sim_job_at(sim, i);

    done = done < job->n_left ? done : job->n_left;
    job->n_left -= done;
    worker->queued_tokens -= done;
    sim_turns_charge(sim, worker, job, done);
    if (job->n_left > 0)
        return;
    sim_cache_ask(worker, &job->request);
    sim_line_remove(sim, worker, &worker->prompts, i);
    worker->n_begun--;
    sim_cache_ask_more(worker, &job->request);
    if (job->prefill != SIM_NONE)
        sim_worker_release(sim, worker, job); /* its blocks count as cached from now on */
    sim_cache_store(sim, worker, &job->request);
    sim_cache_share(sim, worker, &job->request, job->n_pushed);
    if (job->prefill != SIM_NONE || job->n_answered + 1 >= job->request.answer_tokens) {
        sim_front_prefilled(sim, i);
        return;
    }
    sim_front_prefilled(sim, i);
    worker_seat(sim, worker, i);
}

static void worker_packed_steps(struct sim *sim, struct sim_worker *worker)
{
    uint32_t at = worker->prompts.head, next;

    for (uint32_t n = worker->prompts.n; n > 0; n--, at = next) {
        struct sim_job *job = sim_job_at(sim, at);
        uint32_t n_packed = job->n_packed;

        next = job->next;
        job->n_packed = 0;
        if (n_packed > 0)
            worker_prompt_steps(sim, worker, at, n_packed);
    }
}

void sim_worker_book(struct sim *sim, struct sim_worker *worker)
{
    if (!worker->is_busy)
        return;
    sim_column_add_time(sim, worker->booked_ns,
                        worker->role == PICKER_PREFILL ? offsetof(struct sim_column, prefill_busy_s)
                                                       : offsetof(struct sim_column, decode_busy_s));
    worker->busy_ns += sim->now_ns - worker->booked_ns;
    worker->booked_ns = sim->now_ns;
}

void sim_worker_steps_end(struct sim *sim, struct sim_worker *worker)
{
    double run_s = (double)(sim->now_ns - worker->host.began_ns) / 1e9;
    uint32_t prompt = worker->run_prompt, n_seats = worker->n_seats;

    sim_hosts_end(sim, worker);
    sim_learn_run(sim, worker);
    if (n_seats > 0 && sim->hosts == NULL)
        sim_hosts_count_run(sim, worker, run_s / worker->run_steps * 1e9);
    sim_worker_book(sim, worker);
    worker->n_steps += worker->run_steps;
    worker->context += (double)n_seats * worker->run_steps;
    sim->result->n_steps += worker->run_steps;
    worker->is_dirty = true;
    if (prompt != SIM_NONE)
        worker_prompt_steps(sim, worker, prompt, (uint32_t)(worker->run_chunk * worker->run_steps + 0.5));
    if (worker->run_pack_s > 0)
        worker_packed_steps(sim, worker);
    worker->run_pack_s = 0;
    while (worker->n_seats > 0 && worker->seats[0].end_step <= worker->n_steps) {
        uint32_t i = worker->seats[0].job;

        seat_remove(sim, worker, 0);
        worker->context -= (double)job_room(sim_job_at(sim, i));
        sim_turns_charge(sim, worker, sim_job_at(sim, i), sim_job_at(sim, i)->request.answer_tokens);
        sim_front_ended(sim, i);
    }
    worker->context = worker->n_seats == 0 ? 0 : worker->context;
    sim_queue_turn(sim);
    worker->is_busy = false; /* jobs that were placed here in the meantime join the next run */
    worker_plan(sim, worker);
}

/* ---- arrivals and departures ---- */

void sim_worker_prompt(struct sim *sim, struct sim_worker *worker, uint32_t i)
{
    struct sim_job *job = sim_job_at(sim, i);

    sim_line_push(sim, worker, &worker->prompts, i);
    worker->queued_tokens += job->n_left;
    worker->is_dirty = true;
    if (job->ready_ns > sim->now_ns)
        sim_add(sim, SIM_WAKE, job->ready_ns, worker->slot, 0);
    else if (worker->run_prompt == SIM_NONE || !worker->is_busy)
        worker_poke(sim, worker);
}

void sim_worker_wake(struct sim *sim, struct sim_worker *worker)
{
    if (worker->is_up && (worker->run_prompt == SIM_NONE || !worker->is_busy))
        worker_poke(sim, worker);
}

void sim_worker_join(struct sim *sim, struct sim_worker *worker, uint32_t job)
{
    sim_job_at(sim, job)->state = SIM_WAITING;
    sim_line_push(sim, worker, &worker->joins, job);
    worker->is_dirty = true;
    worker_poke(sim, worker);
}

void sim_worker_drop(struct sim *sim, struct sim_worker *worker, uint32_t i)
{
    const struct sim_job *job = sim_job_at(sim, i);

    worker->is_dirty = true;
    if (sim_line_remove(sim, worker, &worker->prompts, i)) {
        worker->queued_tokens -= job->n_left;
        worker->n_begun -= job->began_ns > 0;
        worker->run_prompt = worker->run_prompt == i ? SIM_NONE : worker->run_prompt;
        return;
    }
    if (sim_line_remove(sim, worker, &worker->joins, i))
        return;
    for (uint32_t at = 0; at < worker->n_fresh; at++)
        if (worker->fresh[at] == i)
            worker->fresh[at--] = worker->fresh[--worker->n_fresh];
    for (uint32_t at = 0; at < worker->n_seats; at++) {
        if (worker->seats[at].job != i)
            continue;
        worker->context -= (double)job_room(job) - (double)(job->end_step - worker->n_steps);
        seat_remove(sim, worker, at);
        return;
    }
}

void sim_worker_crash(struct sim *sim, struct sim_worker *worker)
{
    sim_worker_book(sim, worker);
    if (worker->is_busy) /* so that jobs can be asked how far they were */
        worker->n_steps += (uint64_t)fmin(worker_steps_now(sim, worker), worker->run_steps);
    worker->stamp++;
    sim_hosts_lose(sim, worker);
    worker->is_up = worker->is_busy = false;
    sim_turns_clear(worker);
    worker->prompts = worker->joins = (struct sim_line){0};
    worker->queued_tokens = worker->queued_reads = worker->used_tokens = 0;
    worker->n_running = worker->n_begun = worker->n_seats = worker->n_fresh = 0;
    worker->context = 0;
    worker->run_prompt = SIM_NONE;
    for (unsigned i = 0; i < SIM_MAX_CLASSES; i++)
        worker->n_by_kind[i] = 0;
    sim_lru_fini(&worker->memory);
    worker->is_dirty = true;
}
