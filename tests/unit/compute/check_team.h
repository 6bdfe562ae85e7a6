/* SPDX-License-Identifier: Apache-2.0 */
/* Teams of threads for tests of what runs on them. */
#ifndef TESTS_UNIT_COMPUTE_CHECK_TEAM_H
#define TESTS_UNIT_COMPUTE_CHECK_TEAM_H

#include "base/team.h"
#include "tests/unit/check.h"

static inline struct team *check_team(unsigned n_threads)
{
    struct team *team;

    assert_int_equal(team_new(&(struct team_opts){.n_threads = n_threads}, &team), 0);
    return team;
}

/* A team on two memory nodes, which this machine need not have: the first has one rank more if n_threads is odd. */
static inline struct team *check_nodes(unsigned n_threads, bool is_mirrored)
{
    const struct team_node nodes[2] = {{.id = 0, .n_ranks = n_threads - n_threads / 2},
                                       {.id = 1, .n_ranks = n_threads / 2}};
    struct team *team;

    assert_int_equal(team_new(&(struct team_opts){.n_threads = n_threads,
                                                  .nodes = nodes,
                                                  .n_nodes = 2,
                                                  .is_mirrored = is_mirrored},
                              &team),
                     0);
    return team;
}

/* The set-up and the tear-down of tests whose state is a team of two. */
static inline int check_team_open(void **state)
{
    *state = check_team(2);
    return 0;
}

static inline int check_team_close(void **state)
{
    team_free(*state);
    return 0;
}

#endif
