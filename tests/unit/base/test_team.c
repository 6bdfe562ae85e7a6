/* SPDX-License-Identifier: Apache-2.0 */
/* Every rank runs, barriers hold all ranks, and shares cover the work without overlap. */
#include "tests/unit/check.h"

#include "base/clock.h"
#include "base/cpu.h"
#include "base/err.h"
#include "base/team.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { N_ROUNDS = 200, MAX_RANKS = 8 };

struct work {
    struct team *team;
    unsigned runs[MAX_RANKS];
    unsigned stage[MAX_RANKS]; /* deliberately not atomic: the barrier must order it */
    atomic_uint n_wrong;
};

static void count_runs(void *arg, unsigned rank, unsigned n_ranks)
{
    struct work *work = arg;

    work->runs[rank]++;
}

static void step_together(void *arg, unsigned rank, unsigned n_ranks)
{
    struct work *work = arg;

    for (unsigned stage = 1; stage <= N_ROUNDS; stage++) {
        work->stage[rank] = stage;
        team_barrier(work->team, rank);
        for (unsigned other = 0; other < n_ranks; other++)
            if (work->stage[other] != stage)
                atomic_fetch_add(&work->n_wrong, 1);
        team_barrier(work->team, rank);
    }
}

static void all_ranks_run_and_meet(void **state)
{
    for (unsigned n_ranks = 1; n_ranks <= MAX_RANKS; n_ranks++) {
        struct work work = {0};

        assert_int_equal(team_new(&(struct team_opts){.n_threads = n_ranks}, &work.team), 0);
        assert_int_equal(team_size(work.team), n_ranks);
        for (int i = 0; i < N_ROUNDS; i++)
            team_run(work.team, count_runs, &work);
        for (unsigned rank = 0; rank < n_ranks; rank++)
            assert_int_equal(work.runs[rank], N_ROUNDS);
        team_run(work.team, step_together, &work);
        assert_int_equal(work.n_wrong, 0);
        team_free(work.team);
    }
    team_free(NULL);
}

enum { AHEAD_BYTES = 100 * 1000 + 7 };

struct waiting {
    struct team *team;
    const char *memory;
    size_t left, left_of_nothing;
};

/* The last rank announces the memory that it will read, and waits for rank 0. */
static void wait_with_something_ahead(void *arg, unsigned rank, unsigned n_ranks)
{
    struct waiting *waiting = arg;

    if (rank + 1 == n_ranks)
        team_ahead(waiting->team, rank, waiting->memory, AHEAD_BYTES);
    if (rank == 0)
        for (uint64_t until_ns = clock_now_ns() + NS_PER_MS; clock_now_ns() < until_ns;)
            cpu_relax();
    team_barrier(waiting->team, rank);
    if (rank + 1 < n_ranks)
        return;
    waiting->left = team_ahead_left(waiting->team, rank);
    team_ahead(waiting->team, rank, NULL, 0);
    waiting->left_of_nothing = team_ahead_left(waiting->team, rank);
}

/* The last rank, and a rank that the system did not schedule, have no time to prefetch. */
static void waiting_ranks_fetch(void **state)
{
    char *memory = calloc(1, AHEAD_BYTES);
    struct waiting waiting = {.memory = memory, .left = AHEAD_BYTES, .left_of_nothing = 1};

    if (cpu_count_usable() < 2)
        skip();
    assert_non_null(memory);
    assert_int_equal(team_new(&(struct team_opts){.n_threads = 2, .spin_ns = 100 * NS_PER_MS}, &waiting.team),
                     0);
    for (int i = 0; i < N_ROUNDS && waiting.left > 0; i++)
        team_run(waiting.team, wait_with_something_ahead, &waiting);
    assert_int_equal(waiting.left, 0);
    assert_int_equal(waiting.left_of_nothing, 0);
    free(memory);
    /* An address that is no longer mapped causes no fault. */
    waiting.memory = (const char *)64;
    for (int i = 0; i < 3; i++)
        team_run(waiting.team, wait_with_something_ahead, &waiting);
    team_free(waiting.team);
}

static void sizes_and_cpus_are_checked(void **state)
{
    struct team *team = NULL;
    int no_cpu[2] = {0, 8191};

    assert_int_equal(team_new(&(struct team_opts){.n_threads = 100000}, &team), E_RANGE);
    assert_int_equal(team_new(&(struct team_opts){.n_threads = 2, .cpus = no_cpu}, &team), E_INVAL);
    assert_null(team);
    assert_int_equal(team_new(&(struct team_opts){.n_threads = 0}, &team), 0);
    assert_int_equal(team_size(team), cpu_count_usable());
    team_free(team);
}

static void pinned_team_runs(void **state)
{
    struct work work = {0};
    int cpus[2], n = 0;

    for (int cpu = 0; cpu < 8192 && n < 2; cpu++)
        if (cpu_is_usable(cpu))
            cpus[n++] = cpu;
    assert_int_equal(team_new(&(struct team_opts){.n_threads = (unsigned)n, .cpus = cpus}, &work.team), 0);
    team_run(work.team, count_runs, &work);
    assert_int_equal(work.runs[n - 1], 1);
    team_free(work.team);
}

static void shares_cover_everything_once(void **state)
{
    const uint64_t sizes[] = {0, 1, 7, 8, 63, 64, 1000, UINT64_MAX - 5};

    for (size_t s = 0; s < 8; s++)
        for (uint64_t grain = 1; grain <= 32; grain *= 2)
            for (unsigned n_ranks = 1; n_ranks <= 9; n_ranks++) {
                uint64_t at = 0;

                for (unsigned rank = 0; rank < n_ranks; rank++) {

                    const struct team_range range = team_split(sizes[s], grain, rank, n_ranks);
                    assert_true(range.from == at && range.to >= range.from);
                    assert_true(range.from % grain == 0 || range.from == sizes[s]);
                    assert_true((range.to - range.from) / grain <= (sizes[s] / grain + 1) / n_ranks + 1);
                    at = range.to;
                }
                assert_true(at == sizes[s]);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_ranks_run_and_meet),
        cmocka_unit_test(sizes_and_cpus_are_checked),
        cmocka_unit_test(shares_cover_everything_once),
        cmocka_unit_test(waiting_ranks_fetch),
        cmocka_unit_test(pinned_team_runs), /* last, because it pins this thread */
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
