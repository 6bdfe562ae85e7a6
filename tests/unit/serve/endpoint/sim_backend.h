/* SPDX-License-Identifier: Apache-2.0 */
/* A backend that answers by script, with delays, on the loop.  The last user message decides:
 *
 *     say TEXT      answers TEXT                    count N       answers "1 2 3 ... N"
 *     call TEXT     the same as say                 overload      is refused with 529 twice; the third time as hello
 *     hang          accepted, then silence          wait          never accepted
 *     break N       fails after N tokens            flood         answers without end, as fast as it is read
 *     anything else answers "You said: ..."
 *
 * A call may also begin a later paragraph, after an agent's own text, which begins with "<".
 *
 * A prompt that is not a conversation gives the script by its whole text.  Log probabilities, if wanted, are
 * -n/8 for token number n.  The backend finds cached prefixes as a worker would: whole blocks of earlier
 * prompts. */
#ifndef TESTS_FRONT_SIM_BACKEND_H
#define TESTS_FRONT_SIM_BACKEND_H

#include <stdatomic.h>

#include "base/event/loop.h"
#include "serve/endpoint/backend.h"

struct sim;

struct sim_opts {
    struct ev_loop *loop;
    const struct gen_model *model;
    uint64_t accept_ns;    /* from submit to acceptance */
    uint64_t token_ns;     /* between tokens */
    unsigned max_running;  /* limit on jobs; more are refused with 529.  0: no limit */
    size_t tokens_at_once; /* in one event, up to 16; 0: one */
};

struct sim_counts { /* may be read from any thread */
    atomic_uint n_submitted;
    atomic_uint n_cancelled;
    atomic_uint n_ended;
    atomic_uint n_running;
    atomic_uint n_pauses;
    atomic_uint n_resumes;
    atomic_uint n_kept; /* models */
    atomic_ullong n_tokens;
    atomic_bool is_unready;
    atomic_bool knows_nothing; /* finds no model, but may find any model later */
};

int sim_new(const struct sim_opts *opts, struct sim **out);
void sim_free(struct sim *sim);
struct backend sim_backend(struct sim *sim);
struct sim_counts *sim_counts(struct sim *sim);

#endif
