/* SPDX-License-Identifier: Apache-2.0 */
/* Future events in order of time. Events of equal times keep the order in which they were added. */
#ifndef FLEET_SIM_AGENDA_PRIV_H
#define FLEET_SIM_AGENDA_PRIV_H

#include <stdbool.h>
#include <stdint.h>

enum sim_kind {
    SIM_STEPS,  /* a worker's run of steps ends; stamp: of the run */
    SIM_WAKE,   /* a worker's prompt becomes ready */
    SIM_JOIN,   /* a sequence's KV has arrived at its decode worker; stamp: of the job */
    SIM_CANCEL, /* a client leaves; stamp: of the job */
    SIM_REPORT, /* the workers' next reports */
    SIM_CRASH,  /* a worker dies */
    SIM_START,  /* a worker is ready */
    SIM_EXPIRE, /* requests may have waited too long */
    SIM_TURN,   /* a router hears that a worker began a request that went ahead */
    SIM_HOST,   /* the next run of a host's workers ends; stamp: the host's */
    SIM_CORE,   /* a request no longer takes a core of a host outside of its workers */
    SIM_SHARE   /* a router tells the others what it has learned */
};

struct sim_event {
    uint64_t at_ns, order;
    uint32_t what, stamp;
    enum sim_kind kind;
};

struct sim_agenda { /* zeroed: empty */
    struct sim_event *heap;
    uint32_t n, cap;
    uint64_t n_added;
};

/* E_NOMEM. */
int sim_agenda_add(struct sim_agenda *agenda, struct sim_event event);
bool sim_agenda_next(const struct sim_agenda *agenda, uint64_t *at_ns_out);
struct sim_event sim_agenda_take(struct sim_agenda *agenda); /* it is not empty */
void sim_agenda_fini(struct sim_agenda *agenda);

#endif
