/* SPDX-License-Identifier: Apache-2.0 */
/* The load that a number of workers carries within the objectives.
 *
 * Prefill: prompts are served one at a time by the worker that is free first, so c workers are the queue
 * M/G/c.  A prompt waits longer than t with probability  C(c, a) exp(-(c - a) t / s  2 / (1 + cv2)),  with a =
 * rate x s and C of Erlang.  At most LATE of the prompts may wait longer than the objective leaves them.
 *
 * Decode: the number of running sequences is Poisson distributed. Each worker has as many seats as its step
 * time allows. With probability 1 - LATE the next sequence finds a free seat. */
#include <math.h>

#include "fleet/picker/roles.h"

#define LATE        0.05
#define LATE_SIGMA  1.645 /* of a normal distribution */
#define BISECTIONS  24    /* an even number */
#define POINTS      3
#define MOST_ROOM   1000.0
#define MOST_WANTED 100000

/* How long a prompt may wait, in times of a mean prompt.  The limit of a prompt that takes longer than half the
 * objective is twice its own time. */
static double room_waits(const struct picker_load *load, double ttft_slo_s)
{
    double wait_s = ttft_slo_s > 2 * load->prompt_s ? ttft_slo_s - load->prompt_s : load->prompt_s;

    return wait_s / load->prompt_s;
}

/* One step of Erlang's B. */
static double room_blocked(double busy, double blocked, uint32_t n_workers)
{
    return busy * blocked / (n_workers + busy * blocked);
}

/* The share of prompts that wait longer than they may, at a utilisation below 1. */
static double room_late(double busy, double blocked, double decay, uint32_t n_workers)
{
    double all_busy = blocked / (1 - busy / n_workers * (1 - blocked));

    return all_busy * exp(-(n_workers - busy) * decay);
}

/* Erlang's B of n_workers at each of these loads, in workers.  The recursion of 1 / B needs no division.  Its steps
 * wait for each other, so several loads take the time of one. */
static void room_blocked_at(const double busy[POINTS], uint32_t n_workers, double blocked_out[POINTS])
{
    double unblocked[POINTS] = {1, 1, 1}, each[POINTS];

    for (unsigned i = 0; i < POINTS; i++)
        each[i] = 1 / busy[i];
    for (uint32_t n = 1; n <= n_workers; n++)
        for (unsigned i = 0; i < POINTS; i++)
            unblocked[i] = 1 + unblocked[i] * (n * each[i]); /* infinite: none is blocked */
    for (unsigned i = 0; i < POINTS; i++)
        blocked_out[i] = 1 / unblocked[i];
}

/* Two bisections in a round: the middle, and the middle of either half. */
double picker_prefill_room(const struct picker_load *load, double ttft_slo_s, uint32_t n_workers)
{
    double busy = load->rate_per_s * load->prompt_s, decay, least = 0, most;

    if (busy <= 0)
        return MOST_ROOM;
    if (n_workers == 0)
        return 0;
    decay = room_waits(load, ttft_slo_s) * 2 / (1 + load->cv2);
    most = n_workers / busy;
    for (unsigned i = 0; i < BISECTIONS; i += 2) {
        double middle = (least + most) / 2, blocked[POINTS];
        double at[POINTS] = {(least + middle) / 2, middle, (middle + most) / 2};
        const double loads[POINTS] = {at[0] * busy, at[1] * busy, at[2] * busy};
        bool is_kept[POINTS];

        room_blocked_at(loads, n_workers, blocked);
        for (unsigned k = 0; k < POINTS; k++)
            is_kept[k] = room_late(loads[k], blocked[k], decay, n_workers) <= LATE;
        most = is_kept[1] ? most : middle;
        least = is_kept[1] ? middle : least;
        *(is_kept[is_kept[1] ? 2 : 0] ? &least : &most) = at[is_kept[1] ? 2 : 0];
    }
    return least < MOST_ROOM ? least : MOST_ROOM;
}

uint32_t picker_prefill_wanted(const struct picker_load *load, double ttft_slo_s, double overflow)
{
    double busy = load->rate_per_s * load->prompt_s, blocked = 1, decay;
    uint32_t n_others = overflow < MOST_WANTED ? (uint32_t)overflow : MOST_WANTED;

    if (busy <= 0)
        return 0;
    decay = room_waits(load, ttft_slo_s) * 2 / (1 + load->cv2);
    for (uint32_t n = 1; n < MOST_WANTED; n++) {
        blocked = room_blocked(busy, blocked, n);
        if (n > busy && room_late(busy, blocked, decay, n) <= LATE)
            return n > n_others ? n - n_others : 1;
    }
    return MOST_WANTED;
}

uint32_t picker_decode_wanted(double n_seqs, double busy_share, double seats)
{
    double n = ceil((n_seqs + LATE_SIGMA * sqrt(n_seqs)) / seats + busy_share);

    return n < MOST_WANTED ? (uint32_t)n : MOST_WANTED;
}

double picker_decode_room(double n_seqs, double busy_share, double seats, uint32_t n_workers)
{
    /* x of: x n + LATE_SIGMA sqrt(x n) + x busy_share seats = n_workers seats */
    double all = n_workers * seats, load = n_seqs + busy_share * seats, root;

    if (load <= 0)
        return MOST_ROOM;
    root = LATE_SIGMA * sqrt(n_seqs);
    root = (sqrt(root * root + 4 * load * all) - root) / (2 * load);
    return root * root < MOST_ROOM ? root * root : MOST_ROOM;
}
