/* SPDX-License-Identifier: Apache-2.0 */
/* Compute threads that start a job within a microsecond and sleep when there is none.
 *
 *     caller (rank 0)   job, arg, n_running = n - 1; epoch++ ; run own share ; wait until n_running == 0
 *     rank 1..n-1       wait until epoch changed ; run share ; n_running--
 *
 * One helper does all waiting, on one 32-bit word: it spins on the word for a while, then sleeps in the
 * kernel on it (futex).  A thread that changes the word then checks n_asleep and calls the kernel only when
 * a thread sleeps.  A sleeper counts itself before the kernel compares the word.  Both sides are
 * sequentially consistent, so one of them sees a change in between.
 *
 * A barrier is a counter and a phase (sense reversal, with the phase as the sense).  The last rank to arrive
 * resets the counter and advances the phase.  The other ranks wait for that change.
 *
 * A spinning rank has nothing else to do, so it prefetches the memory of its hint (team_ahead).  It
 * prefetches a little between two looks at the word.
 *
 * Spinning helps only when every rank has its own CPU.  With more ranks than CPUs a spinning rank would take
 * the CPU from the rank that it waits for, so then no rank spins. */
#include "base/team.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/cpu.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/thread.h"

enum { DEFAULT_SPIN_US = 50, MAX_THREADS = 1024, LOOKS_PER_CLOCK = 64, FETCH_BYTES = 512 };

/* A word that threads wait on. */
struct gate {
    _Alignas(MEM_CACHE_LINE) _Atomic uint32_t word;
    _Atomic uint32_t n_asleep;
};

struct rank {
    _Alignas(MEM_CACHE_LINE) const char *ahead; /* only the rank itself reads these two */
    size_t ahead_bytes;
    struct team *team;
    unsigned number;
    unsigned node; /* index */
    int cpu;       /* -1: not pinned */
    pthread_t thread;
};

struct team {
    struct gate epoch;     /* incremented for each job */
    struct gate n_running; /* ranks that still run the job */
    struct gate phase;     /* incremented at each barrier */
    _Alignas(MEM_CACHE_LINE) _Atomic uint32_t n_arrived;
    team_job job; /* written before epoch changes, read after */
    void *arg;
    atomic_bool is_ending;
    uint64_t spin_ns;
    unsigned n_ranks;
    unsigned n_started; /* threads to join */
    struct rank *ranks;
    unsigned n_nodes;
    struct team_ranks node_ranks[TEAM_MAX_NODES];
    int node_ids[TEAM_MAX_NODES];
    bool is_mirrored;
};

static void gate_sleep(struct gate *gate, uint32_t seen)
{
    atomic_fetch_add(&gate->n_asleep, 1);
    /* Returns at once (EAGAIN) when the word has changed already; a signal or a stray wake is harmless. */
    syscall(SYS_futex, &gate->word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
    atomic_fetch_sub(&gate->n_asleep, 1);
}

static void gate_wake(struct gate *gate)
{
    if (atomic_load(&gate->n_asleep) > 0)
        syscall(SYS_futex, &gate->word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

/* Does a little prefetching while the rank waits. */
static void rank_relax(struct rank *rank)
{
    if (rank->ahead_bytes == 0) {
        cpu_relax();
        return;
    }
    size_t n = rank->ahead_bytes < FETCH_BYTES ? rank->ahead_bytes : FETCH_BYTES;
    for (size_t at = 0; at < n; at += MEM_CACHE_LINE)
        __builtin_prefetch(rank->ahead + at, 0, 2);
    rank->ahead += n;
    rank->ahead_bytes -= n;
}

/* Waits until the word differs from seen; returns its new value. */
static uint32_t gate_wait(struct gate *gate, uint32_t seen, struct rank *rank)
{
    uint64_t spin_ns = rank->team->spin_ns;
    uint32_t now = atomic_load(&gate->word);

    if (now != seen)
        return now;
    uint64_t until_ns = spin_ns > 0 ? clock_now_ns() + spin_ns : 0;
    while (spin_ns > 0 && clock_now_ns() < until_ns) {
        for (int i = 0; i < LOOKS_PER_CLOCK; i++) {
            now = atomic_load_explicit(&gate->word, memory_order_acquire);
            if (now != seen)
                return now;
            rank_relax(rank);
        }
    }
    while ((now = atomic_load(&gate->word)) == seen)
        gate_sleep(gate, seen);
    return now;
}

static void *rank_main(void *arg)
{
    struct rank *rank = arg;
    struct team *team = rank->team;
    uint32_t epoch = 0;

    if (rank->cpu >= 0)
        cpu_pin_self(
            rank->cpu); /* valid when the team was made; a CPU that was taken away since does not matter */
    for (;;) {
        epoch = gate_wait(&team->epoch, epoch, rank);
        if (atomic_load(&team->is_ending))
            return NULL;
        team->job(team->arg, rank->number, team->n_ranks);
        if (atomic_fetch_sub(&team->n_running.word, 1) == 1)
            gate_wake(&team->n_running);
    }
}

static bool nodes_are_valid(const struct team_opts *opts, unsigned n_ranks)
{
    unsigned n = 0;

    if (opts->nodes == NULL)
        return true;
    if (opts->n_nodes == 0 || opts->n_nodes > TEAM_MAX_NODES)
        return false;
    for (unsigned i = 0; i < opts->n_nodes; i++) {
        if (opts->nodes[i].n_ranks == 0 || opts->nodes[i].n_ranks > n_ranks - n)
            return false;
        n += opts->nodes[i].n_ranks;
    }
    return n == n_ranks;
}

/* Gives each rank its node. */
static void assign_nodes(struct team *team, const struct team_opts *opts)
{
    unsigned first = 0;

    team->n_nodes = opts->nodes == NULL ? 1 : opts->n_nodes;
    team->is_mirrored = opts->is_mirrored && team->n_nodes > 1;
    for (unsigned node = 0; node < team->n_nodes; node++) {
        unsigned n = opts->nodes == NULL ? team->n_ranks : opts->nodes[node].n_ranks;

        team->node_ranks[node] = (struct team_ranks){.first = first, .n = n};
        team->node_ids[node] = opts->nodes == NULL ? -1 : opts->nodes[node].id;
        for (unsigned i = 0; i < n; i++)
            team->ranks[first + i].node = node;
        first += n;
    }
}

/* Confines the threads to the CPUs of their nodes, before the first job touches memory. */
static int confine_ranks(const struct team *team, const struct team_opts *opts)
{
    for (unsigned i = 0; opts->nodes != NULL && i < team->n_ranks; i++) {
        const struct team_node *node = &opts->nodes[team->ranks[i].node];
        int rc = node->cpus == NULL
                     ? 0
                     : cpu_confine(i == 0 ? pthread_self() : team->ranks[i].thread, node->cpus, node->n_cpus);

        if (rc < 0)
            return rc;
    }
    return 0;
}

/* Starts the threads of ranks 1 and up. */
static int start_ranks(struct team *team)
{
    int rc = 0;

    for (unsigned i = 1; i < team->n_ranks && rc == 0; i++) {
        rc = thread_start(&team->ranks[i].thread, rank_main, &team->ranks[i]);
        team->n_started += rc == 0;
    }
    return rc;
}

int team_new(const struct team_opts *opts, struct team **out)
{
    unsigned n_ranks = opts->n_threads == 0 ? cpu_count_usable() : opts->n_threads;
    bool may_spin = n_ranks <= cpu_count_usable();
    int rc = E_NOMEM;

    if (n_ranks > MAX_THREADS)
        return E_RANGE;
    for (unsigned i = 0; opts->cpus != NULL && i < n_ranks; i++)
        if (!cpu_is_usable(opts->cpus[i]))
            return E_INVAL;
    if (!nodes_are_valid(opts, n_ranks))
        return E_INVAL;

    struct team *team = mem_aligned(MEM_CACHE_LINE, sizeof(*team));
    if (team == NULL)
        return E_NOMEM;
    team->n_ranks = n_ranks;
    team->spin_ns = !may_spin ? 0 : opts->spin_ns > 0 ? opts->spin_ns : DEFAULT_SPIN_US * NS_PER_US;
    team->ranks = mem_aligned(MEM_CACHE_LINE, n_ranks * sizeof(*team->ranks));
    if (team->ranks == NULL)
        goto fail;
    for (unsigned i = 0; i < n_ranks; i++)
        team->ranks[i] =
            (struct rank){.team = team, .number = i, .cpu = opts->cpus == NULL ? -1 : opts->cpus[i]};
    assign_nodes(team, opts);
    rc = start_ranks(team);
    if (rc == 0 && opts->cpus == NULL)
        rc = confine_ranks(team, opts);
    if (rc != 0)
        goto fail;
    if (opts->cpus != NULL)
        cpu_pin_self(opts->cpus[0]);
    *out = team;
    return 0;

fail:
    team_free(team);
    return rc;
}

void team_free(struct team *team)
{
    if (team == NULL)
        return;
    atomic_store(&team->is_ending, true);
    atomic_fetch_add(&team->epoch.word, 1);
    gate_wake(&team->epoch);
    for (unsigned i = 1; i <= team->n_started; i++)
        pthread_join(team->ranks[i].thread, NULL);
    free(team->ranks);
    free(team);
}

unsigned team_size(const struct team *team)
{
    return team->n_ranks;
}

void team_run(struct team *team, team_job job, void *arg)
{
    if (team->n_ranks > 1) {
        team->job = job;
        team->arg = arg;
        atomic_store(&team->n_running.word, team->n_ranks - 1);
        atomic_fetch_add(&team->epoch.word, 1);
        gate_wake(&team->epoch);
    }
    job(arg, 0, team->n_ranks);
    for (uint32_t left; (left = atomic_load(&team->n_running.word)) != 0;)
        gate_wait(&team->n_running, left, &team->ranks[0]);
}

void team_barrier(struct team *team, unsigned rank)
{
    uint32_t phase = atomic_load(&team->phase.word);

    ASSERT(rank < team->n_ranks);
    if (atomic_fetch_add(&team->n_arrived, 1) + 1 < team->n_ranks) {
        gate_wait(&team->phase, phase, &team->ranks[rank]);
        return;
    }
    atomic_store(&team->n_arrived, 0);
    atomic_fetch_add(&team->phase.word, 1);
    gate_wake(&team->phase);
}

void team_ahead(struct team *team, unsigned rank, const void *from, size_t len_bytes)
{
    team->ranks[rank].ahead = from;
    team->ranks[rank].ahead_bytes = len_bytes;
}

size_t team_ahead_left(const struct team *team, unsigned rank)
{
    return team->ranks[rank].ahead_bytes;
}

struct team_range team_split(uint64_t n, uint64_t grain, unsigned rank, unsigned n_ranks)
{
    ASSERT(grain > 0 && rank < n_ranks);

    /* The first `extra` ranks get one more unit, so parts differ by at most one unit. */
    uint64_t n_units = n / grain + (n % grain != 0);
    uint64_t each = n_units / n_ranks, extra = n_units % n_ranks;
    uint64_t first = each * rank + (rank < extra ? rank : extra);
    uint64_t last = first + each + (rank < extra);

    return (struct team_range){.from = first == n_units ? n : first * grain,
                               .to = last == n_units ? n : last * grain};
}

unsigned team_n_nodes(const struct team *team)
{
    return team->n_nodes;
}

unsigned team_node_of(const struct team *team, unsigned rank)
{
    return team->ranks[rank].node;
}

bool team_is_mirrored(const struct team *team)
{
    return team->is_mirrored;
}

int team_node_id(const struct team *team, unsigned node)
{
    return team->node_ids[node];
}

struct team_ranks team_node_ranks(const struct team *team, unsigned node)
{
    return team->node_ranks[node];
}

struct team_range team_node_split(const struct team *team, uint64_t n, uint64_t grain, unsigned node)
{
    const struct team_ranks ranks = team->node_ranks[node];
    uint64_t n_units = n / grain + (n % grain != 0);
    uint64_t first = n_units * ranks.first / team->n_ranks;
    uint64_t last = n_units * (ranks.first + ranks.n) / team->n_ranks;

    return (struct team_range){.from = first == n_units ? n : first * grain,
                               .to = last == n_units ? n : last * grain};
}
