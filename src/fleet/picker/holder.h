/* SPDX-License-Identifier: Apache-2.0 */
/* Who should be asked for the part of a prompt that a worker lacks?  Pure functions, as all of the picker. */
#ifndef FLEET_PICKER_HOLDER_H
#define FLEET_PICKER_HOLDER_H

#include "fleet/picker/picker.h"

enum picker_share {
    PICKER_SHARE_OFF,
    PICKER_SHARE_AUTO,  /* where the push is expected to beat computing */
    PICKER_SHARE_ALWAYS /* wherever there is a block to be had: for tests and measurements */
};

struct picker_world { /* the asker and who may be asked */
    const struct picker_worker *workers;
    uint32_t n;
};

struct picker_holder {
    uint32_t slot;    /* PICKER_NONE: compute */
    uint32_t tokens;  /* at the prompt's beginning that it has: more than the asker */
    bool has_to_read; /* some of them are on its disk only */
    double push_s; /* estimates: to push what the asker lacks of them, read before where they must be ... */
    double computed_s; /* ... and to compute that instead, or to read it from its own disk first */
};

/* Seconds until n_tokens of cached KV have come from one worker to another. */
double picker_push_s(const struct picker_worker *from, const struct picker_worker *to, uint32_t n_tokens);

/* The worker that `asker` (a slot) should ask for the beginning of this prompt.  Any worker of the same
 * layout whose row has cached_tokens may be it, whatever its role, draining ones included; and one whose row
 * has more stored_tokens, if reading those first pays too.  (A router's rows of others have none: what is on
 * disk counts for the asker only there.) */
struct picker_holder picker_find_holder(const struct picker_world *world,
                                        const struct picker_request *request, uint32_t asker,
                                        enum picker_share share);

/* For how long the asker may wait for it, in seconds: what computing would take, 20 ms at least; 10 s at
 * most, and where everybody is asked. */
double picker_ask_limit_s(const struct picker_holder *holder, enum picker_share share);

#endif
