/* SPDX-License-Identifier: Apache-2.0 */
/* Which worker should push the part of a prompt that another worker lacks? Chooses the owner of a prefix
 * fetch. Pure functions, as in all of the picker. */
#ifndef FLEET_PICKER_OWNER_H
#define FLEET_PICKER_OWNER_H

#include "fleet/picker/picker.h"

enum picker_fetch {
    PICKER_FETCH_OFF,
    PICKER_FETCH_AUTO,  /* if the push is expected to beat computing */
    PICKER_FETCH_ALWAYS /* whenever a peer has a block: for tests and measurements */
};

struct picker_world { /* the worker that lacks blocks, and the workers that may have them */
    const struct picker_worker *workers;
    uint32_t n;
};

struct picker_owner {
    uint32_t slot;     /* PICKER_NONE: compute */
    uint32_t tokens;   /* leading tokens of the prompt that it has; more than the asker has */
    bool has_to_read;  /* some of them are on its disk only */
    double push_s;     /* estimate: seconds to push the tokens that the asker lacks, disk reads included */
    double computed_s; /* estimate: seconds to compute these tokens instead, or to read a part from the
                        * asker's own disk or its shared store, and compute the rest */
};

/* Seconds to move n_tokens of cached KV from one worker to another. */
double picker_push_s(const struct picker_worker *from, const struct picker_worker *to, uint32_t n_tokens);

/* Seconds for each pushed token, or 0 if computing a token is expected to be as fast. */
double picker_push_token_s(const struct picker_worker *to);

/* The worker from which `asker` (a slot) should fetch the beginning of this prompt. Candidates are all
 * workers of the same layout with cached_tokens, of any role, draining ones included. A row with more
 * stored_tokens is a candidate too, if the read from disk pays. (In a router, only the asker's own row has
 * stored_tokens.) */
struct picker_owner picker_find_owner(const struct picker_world *world, const struct picker_request *request,
                                      uint32_t asker, enum picker_fetch prefix_fetch);

/* How long the asker may wait for the fetch, in seconds: the estimate for computing, at least 20 ms and at
 * most 10 s. With PICKER_FETCH_ALWAYS it is 10 s. */
double picker_ask_limit_s(const struct picker_owner *owner, enum picker_fetch prefix_fetch);

#endif
