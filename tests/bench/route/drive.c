/* SPDX-License-Identifier: Apache-2.0 */
/* One router, and a thousand workers that exist only in arithmetic.
 *
 *   trace, squeezed --> hash chain --> choose --> book         timed: the request
 *                                                  |
 *          first token, blocks stored and evicted, end         timed: other work
 *          reports once a second, losses, resyncs              timed: other work
 *
 * Timed work runs on one core, one piece after another.  So a request has a waiting time besides its own:
 * requests and other work that came before it must be done first.  Arrival times are virtual, durations are
 * measured.  The router is free again at max(arrival, free) + duration.
 *
 * A worker loses its link after every so many requests.  Every second time it restarts without blocks.
 * Otherwise its events had a gap, and it lists all its blocks in one message.  The router applies that in
 * slices, with other arrivals in between.
 *
 * With disks, a block evicted from memory is on the worker's disk from then on.  The simulated disks are
 * unlimited, and hits count blocks in memory.
 *
 * The trace has no tokens but an id for each 512 of them.  So a block's hash is that of its id, chained and
 * keyed like those of tokens.  Each round has its own key, and so new blocks. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/rng.h"
#include "cache/prefix/block_queue.h"
#include "tests/bench/route/route.h"

#define RESYNC_GAP_NS (200 * NS_PER_US)
#define P_SHARE       3 /* of ten workers */
#define BUSY          0.6
#define RUNNING       24

enum kind { FIRST_TOKEN_P, FIRST_TOKEN_D, END_D, RESYNC };

struct event {
    uint64_t at_ns;
    enum kind kind;
    uint32_t what; /* job, or slot */
    uint32_t n;    /* RESYNC: blocks left */
};

struct job {
    struct picker_booking prefill, decode;
    const struct block_hash *hashes;
    uint32_t n_hashes;
};

struct drive {
    const struct route_opts *opts;
    const struct trace *trace;
    struct crew *crew;
    struct picker_fleet *fleet;
    struct picker_index *index;
    struct picker_goals goals;
    struct picker_worker *rows; /* [n_workers] as they report themselves */
    uint64_t *prefill_free_ns;  /* [n_workers] when it has finished its work */
    uint32_t *n_running;        /* [n_workers] */
    struct job *jobs;           /* [n_entries] */
    struct block_hash *chains;  /* [n_block_ids] */
    uint32_t *ids;              /* [longest chain] */
    struct event *heap;
    uint32_t n_heap, cap_heap, round, next_report, n_lost;
    double squeeze; /* virtual time per time of the trace */
    struct rng rng;
    uint64_t look_ns; /* at the clock */
    uint64_t now_ns, begin_ns, free_ns, reported_ns;
    uint64_t *service_ns, *wait_ns; /* [n_entries] */
    uint64_t hash_ns, choose_ns, other_ns, longest_other_ns, n_events, n_losses;
    uint64_t n_blocks, n_held, n_hoped, n_alone, n_overloaded, n_reading, n_runs;
};

uint64_t route_stamp_ns(bool is_wall)
{
    struct timespec now;

    if (is_wall)
        return clock_now_ns();
    ASSERT(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now) == 0);
    return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

void *route_grab(size_t n, size_t size)
{
    void *memory = calloc(n ? n : 1, size);

    ASSERT(memory);
    return memory;
}

/* ---- a heap of future events ---- */

static void push(struct drive *drive, struct event event)
{
    uint32_t at = drive->n_heap++;

    ASSERT(at < drive->cap_heap);
    for (; at > 0 && drive->heap[(at - 1) / 2].at_ns > event.at_ns; at = (at - 1) / 2)
        drive->heap[at] = drive->heap[(at - 1) / 2];
    drive->heap[at] = event;
}

static struct event pop(struct drive *drive)
{
    struct event first = drive->heap[0], last = drive->heap[--drive->n_heap];
    uint32_t at = 0;

    for (;;) {
        uint32_t child = 2 * at + 1;

        if (child >= drive->n_heap)
            break;
        if (child + 1 < drive->n_heap && drive->heap[child + 1].at_ns < drive->heap[child].at_ns)
            child++;
        if (last.at_ns <= drive->heap[child].at_ns)
            break;
        drive->heap[at] = drive->heap[child];
        at = child;
    }
    drive->heap[at] = last;
    return first;
}

/* ---- the router's time ---- */

static uint64_t stamp_ns(const struct drive *drive)
{
    return route_stamp_ns(drive->opts->is_wall);
}

/* Returns the time between two clock readings, less the cost of a reading. */
static uint64_t between_ns(const struct drive *drive, uint64_t began_ns, uint64_t ended_ns)
{
    uint64_t took_ns = ended_ns - began_ns;

    return took_ns > drive->look_ns ? took_ns - drive->look_ns : 0;
}

static uint64_t occupy(struct drive *drive, uint64_t at_ns, uint64_t took_ns)
{
    drive->free_ns = (drive->free_ns > at_ns ? drive->free_ns : at_ns) + took_ns;
    return drive->free_ns;
}

static void other_work(struct drive *drive, uint64_t at_ns, uint64_t began_ns)
{
    uint64_t took_ns = between_ns(drive, began_ns, stamp_ns(drive));

    occupy(drive, at_ns, took_ns);
    drive->other_ns += took_ns;
    drive->n_events++;
    if (took_ns > drive->longest_other_ns)
        drive->longest_other_ns = took_ns;
}

/* ---- workers ---- */

static void stored(struct drive *drive, uint64_t at_ns, uint32_t slot, const struct job *job)
{
    const struct block_hash *evicted;
    uint32_t n = crew_store(drive->crew, slot, job->hashes, job->n_hashes, &evicted);
    uint64_t began_ns = stamp_ns(drive);

    picker_index_learn(drive->index, slot, job->hashes, job->n_hashes, at_ns);
    if (drive->opts->has_disks)
        picker_index_learn_on_disk(drive->index, slot, evicted, n, at_ns);
    else
        picker_index_unlearn(drive->index, slot, evicted, 0, n);
    other_work(drive, at_ns, began_ns);
}

static void resync(struct drive *drive, const struct event *event)
{
    struct block_hash made[BLOCK_SLICE];
    const struct block_hash *hashes = made;
    uint32_t n = event->n < BLOCK_SLICE ? event->n : BLOCK_SLICE, n_told, n_listed;
    uint64_t began_ns;

    n_told = drive->opts->resync_blocks - event->n;
    n_listed = crew_list(drive->crew, event->what, &hashes);
    if (n_told < n_listed) { /* its only copies come first; other workers have the others */
        n = n < n_listed - n_told ? n : n_listed - n_told;
        hashes += n_told;
    } else {
        hashes = made;
        for (uint32_t i = 0; i < n; i++) {
            uint64_t half[2] = {rng_u64(&drive->rng), rng_u64(&drive->rng)};

            memcpy(made[i].bytes, half, sizeof(half));
        }
    }
    began_ns = stamp_ns(drive);
    picker_index_learn(drive->index, event->what, hashes, n, event->at_ns);
    other_work(drive, event->at_ns, began_ns);
    if (event->n > n)
        push(drive, (struct event){drive->free_ns, RESYNC, event->what, event->n - n});
}

static void lose_worker(struct drive *drive, uint64_t at_ns)
{
    uint32_t slot = (uint32_t)rng_below(&drive->rng, drive->opts->n_workers);
    bool is_restart = drive->n_lost++ % 2 == 0;
    struct picker_worker gone = {.is_usable = false};
    uint64_t began_ns = stamp_ns(drive);

    picker_fleet_set(drive->fleet, slot, &gone);
    picker_index_forget(drive->index, slot);
    picker_fleet_set(drive->fleet, slot, &drive->rows[slot]);
    other_work(drive, at_ns, began_ns);
    drive->n_losses++;
    if (is_restart)
        crew_restart(drive->crew, slot);
    else
        push(drive, (struct event){at_ns + RESYNC_GAP_NS, RESYNC, slot, drive->opts->resync_blocks});
}

/* Each worker once a second, spread evenly. */
static void report_until(struct drive *drive, uint64_t at_ns)
{
    uint32_t n = drive->opts->n_workers;

    for (; drive->reported_ns + NS_PER_S / n <= at_ns; drive->next_report = (drive->next_report + 1) % n) {
        uint32_t slot = drive->next_report;
        struct picker_worker *row = &drive->rows[slot];
        uint64_t left_ns, began_ns;

        drive->reported_ns += NS_PER_S / n;
        left_ns = drive->prefill_free_ns[slot] > drive->reported_ns
                      ? drive->prefill_free_ns[slot] - drive->reported_ns
                      : 0;
        row->queued_prefill_tokens = (uint64_t)((double)left_ns / 1e9 * row->prefill_tokens_per_s);
        row->n_running = drive->n_running[slot];
        began_ns = stamp_ns(drive);
        picker_fleet_set(drive->fleet, slot, row);
        other_work(drive, drive->reported_ns, began_ns);
    }
}

static void handle(struct drive *drive, const struct event *event)
{
    struct job *job = &drive->jobs[event->what];
    uint64_t began_ns = 0;

    switch (event->kind) {
    case RESYNC:
        resync(drive, event);
        return;
    case FIRST_TOKEN_P:
        stored(drive, event->at_ns, job->prefill.slot, job);
        drive->n_running[job->prefill.slot]--;
        began_ns = stamp_ns(drive);
        picker_booking_over(drive->fleet, &job->prefill, drive->now_ns);
        break;
    case FIRST_TOKEN_D:
        stored(drive, event->at_ns, job->decode.slot, job);
        began_ns = stamp_ns(drive);
        picker_booking_started(drive->fleet, &job->decode, drive->now_ns);
        break;
    case END_D:
        drive->n_running[job->decode.slot]--;
        began_ns = stamp_ns(drive);
        picker_booking_over(drive->fleet, &job->decode, drive->now_ns);
        break;
    }
    other_work(drive, event->at_ns, began_ns);
}

static void run_until(struct drive *drive, uint64_t at_ns)
{
    while (drive->n_heap > 0 && drive->heap[0].at_ns <= at_ns) {
        struct event event = pop(drive);

        report_until(drive, event.at_ns);
        handle(drive, &event);
    }
    if (at_ns != UINT64_MAX)
        report_until(drive, at_ns);
}

/* Schedules the job's events; none of this is the router's work. */
static void dispatch(struct drive *drive, uint32_t at, const struct picker_choice *choice)
{
    const struct trace_entry *entry = &drive->trace->entries[at];
    struct job *job = &drive->jobs[at];
    uint32_t first = choice->prefill != PICKER_NONE ? choice->prefill : choice->decode;
    uint32_t n_held = crew_held(drive->crew, first, job->hashes, job->n_hashes);
    uint64_t cached = (uint64_t)n_held * ROUTE_BLOCK_TOKENS, begin_ns = drive->prefill_free_ns[first];
    uint64_t n_left = cached < entry->prompt_tokens ? entry->prompt_tokens - cached : 1;
    const struct picker_worker *row = &drive->rows[first];

    if (choice->read_tokens > 0) { /* the router's view of disks is always right */
        n_left = choice->uncached_tokens;
        begin_ns += (uint64_t)(picker_read_s(row, choice->read_tokens) * 1e9);
        drive->n_reading++;
    }
    begin_ns = begin_ns > drive->now_ns ? begin_ns : drive->now_ns;
    begin_ns += (uint64_t)((double)n_left / row->prefill_tokens_per_s * 1e9);
    drive->prefill_free_ns[first] = begin_ns;
    drive->n_running[choice->decode]++;
    if (choice->prefill != PICKER_NONE) {
        drive->n_running[choice->prefill]++;
        push(drive, (struct event){begin_ns, FIRST_TOKEN_P, at, 0});
    }
    push(drive, (struct event){begin_ns, FIRST_TOKEN_D, at, 0});
    push(drive, (struct event){begin_ns + (uint64_t)(entry->answer_tokens * row->decode_step_s * 1e9), END_D,
                               at, 0});
    drive->n_blocks += job->n_hashes;
    drive->n_held += n_held;
    drive->n_hoped += (entry->prompt_tokens - choice->uncached_tokens) / ROUTE_BLOCK_TOKENS;
    drive->n_alone += choice->prefill == PICKER_NONE;
}

/* ---- requests ---- */

static void request(struct drive *drive, uint32_t at, const struct prefix_key *key, struct block_hash *chain)
{
    const struct trace_entry *entry = &drive->trace->entries[at];
    struct job *job = &drive->jobs[at];
    struct picker_place place = {
        .fleet = drive->fleet, .index = drive->index, .hashes = chain, .now_ns = drive->now_ns};
    uint64_t began_ns, hashed_ns, done_ns;
    int rc;

    for (uint32_t i = 0; i < entry->n_blocks; i++)
        drive->ids[i] = (uint32_t)drive->trace->block_ids[entry->first_block + i];
    began_ns = stamp_ns(drive);
    place.n_hashes = prefix_hash_chain(key, drive->ids, entry->n_blocks, 1, chain);
    hashed_ns = stamp_ns(drive);
    place.request.n_tokens = entry->prompt_tokens;
    place.request.max_new_tokens = entry->answer_tokens;
    rc = picker_place_choose(&place, &drive->goals);
    if (rc == 0 || rc == E_OVERLOADED)
        picker_place_book(&place, &job->prefill, &job->decode);
    done_ns = stamp_ns(drive);
    ASSERT(rc == 0 || rc == E_OVERLOADED);
    drive->hash_ns += between_ns(drive, began_ns, hashed_ns);
    drive->choose_ns += between_ns(drive, hashed_ns, done_ns);
    drive->n_overloaded += rc != 0;
    drive->n_runs += place.found.n_runs;
    drive->service_ns[at] = between_ns(drive, began_ns, hashed_ns) + between_ns(drive, hashed_ns, done_ns);
    drive->wait_ns[at] = occupy(drive, drive->now_ns, drive->service_ns[at]) - drive->now_ns;
    job->hashes = chain;
    job->n_hashes = (uint32_t)place.n_hashes;
    dispatch(drive, at, &place.choice);
}

static int by_size(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

static uint64_t measure_look(const struct drive *drive)
{
    enum { N = 1001 };
    uint64_t looks_ns[N];

    for (int i = 0; i < N; i++) {
        uint64_t began_ns = stamp_ns(drive);

        looks_ns[i] = stamp_ns(drive) - began_ns;
    }
    qsort(looks_ns, N, sizeof(*looks_ns), by_size);
    return looks_ns[N / 2];
}

static void percentiles(uint64_t *values, size_t n, double out[4])
{
    qsort(values, n, sizeof(*values), by_size);
    out[0] = (double)values[n / 2] / 1e3;
    out[1] = (double)values[n * 99 / 100] / 1e3;
    out[2] = (double)values[n * 999 / 1000] / 1e3;
    out[3] = (double)values[n - 1] / 1e3;
}

static void report_round(struct drive *drive, struct route_result *out)
{
    double n = (double)drive->trace->n_entries;

    *out = (struct route_result){
        .routed_per_s = n * 1e9 / (double)(drive->hash_ns + drive->choose_ns + drive->other_ns),
        .hash_us = (double)drive->hash_ns / n / 1e3,
        .choose_us = (double)drive->choose_ns / n / 1e3,
        .other_us = (double)drive->other_ns / n / 1e3,
        .longest_other_us = (double)drive->longest_other_ns / 1e3,
        .hit = (double)drive->n_held / (double)drive->n_blocks,
        .hoped = (double)drive->n_hoped / (double)drive->n_blocks,
        .alone = (double)drive->n_alone / n,
        .overloaded = (double)drive->n_overloaded / n,
        .reading = (double)drive->n_reading / n,
        .n_runs = (double)drive->n_runs / n,
        .n_events = drive->n_events,
        .n_losses = drive->n_losses,
        .n_indexed = picker_index_count(drive->index),
    };
    percentiles(drive->service_ns, drive->trace->n_entries, out->service_us);
    percentiles(drive->wait_ns, drive->trace->n_entries, out->wait_us);
}

void drive_round(struct drive *drive, struct route_result *out)
{
    struct prefix_key key = {{0}};
    size_t n_hashed = 0;

    memcpy(key.bytes, &drive->round, sizeof(drive->round));
    drive->round++;
    drive->hash_ns = drive->choose_ns = drive->other_ns = drive->longest_other_ns = 0;
    drive->n_events = drive->n_losses = 0;
    drive->n_blocks = drive->n_held = drive->n_hoped = drive->n_alone = drive->n_overloaded = 0;
    drive->n_reading = drive->n_runs = 0;
    drive->begin_ns = drive->now_ns;
    for (uint32_t at = 0; at < drive->trace->n_entries; at++) {
        const struct trace_entry *entry = &drive->trace->entries[at];

        drive->now_ns = drive->begin_ns + (uint64_t)((double)entry->at_ns * drive->squeeze);
        run_until(drive, drive->now_ns);
        if (drive->opts->loss_every > 0 && at % drive->opts->loss_every == drive->opts->loss_every - 1)
            lose_worker(drive, drive->now_ns);
        request(drive, at, &key, drive->chains + n_hashed);
        n_hashed += entry->n_blocks;
    }
    while (drive->n_heap > 0) { /* the last answers come to their ends */
        drive->now_ns = drive->heap[0].at_ns;
        run_until(drive, drive->now_ns);
    }
    drive->now_ns = drive->now_ns > drive->free_ns ? drive->now_ns : drive->free_ns;
    report_round(drive, out);
}

/* ---- look-ups alone ---- */

static double since_s(const struct drive *drive, uint64_t began_ns)
{
    return (double)(stamp_ns(drive) - began_ns) / 1e9;
}

void drive_lookups(struct drive *drive, double *chains_out, double *singly_out)
{
    enum { N = 200000 };
    static struct picker_found found;
    uint32_t n = drive->opts->n_workers;
    uint64_t began_ns = stamp_ns(drive), n_done = 0;

    while (n_done < N) {
        const struct job *job = &drive->jobs[rng_below(&drive->rng, drive->trace->n_entries)];

        picker_index_match(
            drive->index,
            &(struct picker_query){
                .hashes = job->hashes, .n = job->n_hashes, .n_slots = n, .now_ns = drive->now_ns},
            &found);
        n_done += job->n_hashes;
    }
    *chains_out = (double)n_done / since_s(drive, began_ns);
    began_ns = stamp_ns(drive);
    for (uint32_t i = 0; i < N; i++) {
        const struct job *job = &drive->jobs[rng_below(&drive->rng, drive->trace->n_entries)];

        picker_index_match(
            drive->index,
            &(struct picker_query){.hashes = job->hashes + rng_below(&drive->rng, job->n_hashes),
                                   .n = 1,
                                   .n_slots = n,
                                   .now_ns = drive->now_ns},
            &found);
    }
    *singly_out = N / since_s(drive, began_ns);
}

/* ---- life ---- */

static void make_rows(struct drive *drive, double mean_prompt, double mean_answer)
{
    uint32_t n = drive->opts->n_workers, n_prefill = n * P_SHARE / 10;

    for (uint32_t slot = 0; slot < n; slot++) {
        /* roles mixed, as workers happen to register */
        bool is_prefill = slot % 10 < P_SHARE;

        drive->rows[slot] = (struct picker_worker){
            .is_usable = true,
            .role = is_prefill ? PICKER_PREFILL : PICKER_DECODE,
            .block_tokens = ROUTE_BLOCK_TOKENS,
            .blocks_free = drive->opts->cache_blocks,
            .blocks_total = drive->opts->cache_blocks,
            .max_seqs = 4 * RUNNING,
            .prefill_tokens_per_s =
                drive->opts->rate_per_s * mean_prompt / n_prefill / BUSY * (1 + 0.1 * rng_unit(&drive->rng)),
            .decode_step_s = RUNNING * (n - n_prefill) / (drive->opts->rate_per_s * mean_answer),
            .transfer_bytes_per_s = 25e9,
            .kv_bytes_per_token = 65536,
            .read_bytes_per_s = drive->opts->has_disks ? 4e9 : 0,
        };
        ASSERT(picker_fleet_set(drive->fleet, slot, &drive->rows[slot]) == 0);
    }
}

static void measure_trace(const struct trace *trace, double *prompt_out, double *answer_out,
                          uint32_t *longest_out)
{
    double prompt = 0, answer = 0;
    uint32_t longest = 0;

    for (size_t i = 0; i < trace->n_entries; i++) {
        prompt += trace->entries[i].prompt_tokens;
        answer += trace->entries[i].answer_tokens;
        longest = trace->entries[i].n_blocks > longest ? trace->entries[i].n_blocks : longest;
    }
    *prompt_out = prompt / (double)trace->n_entries;
    *answer_out = answer / (double)trace->n_entries;
    *longest_out = longest;
}

struct drive *drive_new(const struct route_opts *opts, const struct trace *trace)
{
    struct drive *drive = route_grab(1, sizeof(*drive));
    double mean_prompt, mean_answer;
    uint32_t longest;

    drive->opts = opts;
    drive->trace = trace;
    rng_init(&drive->rng, 1);
    drive->look_ns = measure_look(drive);
    measure_trace(trace, &mean_prompt, &mean_answer, &longest);
    drive->squeeze = (double)trace->n_entries * 1e9 / opts->rate_per_s /
                     (double)(trace->entries[trace->n_entries - 1].at_ns + NS_PER_S);
    drive->goals = (struct picker_goals){
        .ttft_slo_s = 0.5, .itl_slo_s = 0.05, .local_prefill_tokens = 128, .local_prefill_s = 0};
    drive->crew = crew_new(opts->n_workers, opts->cache_blocks);
    drive->rows = route_grab(opts->n_workers, sizeof(*drive->rows));
    drive->prefill_free_ns = route_grab(opts->n_workers, sizeof(uint64_t));
    drive->n_running = route_grab(opts->n_workers, sizeof(uint32_t));
    drive->jobs = route_grab(trace->n_entries, sizeof(*drive->jobs));
    drive->chains = route_grab(trace->n_block_ids, sizeof(*drive->chains));
    drive->ids = route_grab(longest, sizeof(*drive->ids));
    drive->service_ns = route_grab(trace->n_entries, sizeof(uint64_t));
    drive->wait_ns = route_grab(trace->n_entries, sizeof(uint64_t));
    drive->cap_heap = (uint32_t)trace->n_entries * 4 + opts->n_workers;
    drive->heap = route_grab(drive->cap_heap, sizeof(*drive->heap));
    ASSERT(picker_fleet_new(0, &drive->fleet) == 0);
    ASSERT(picker_index_new(opts->index_entries, 300 * NS_PER_S, &drive->index) == 0);
    make_rows(drive, mean_prompt, mean_answer);
    return drive;
}

void drive_free(struct drive *drive)
{
    crew_free(drive->crew);
    picker_fleet_free(drive->fleet);
    picker_index_free(drive->index);
    free(drive->rows);
    free(drive->prefill_free_ns);
    free(drive->n_running);
    free(drive->jobs);
    free(drive->chains);
    free(drive->ids);
    free(drive->heap);
    free(drive->service_ns);
    free(drive->wait_ns);
    free(drive);
}
