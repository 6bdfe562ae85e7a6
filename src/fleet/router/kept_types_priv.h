/* SPDX-License-Identifier: Apache-2.0 */
/* Types and functions that the files of kept values share.
 *
 *     kept.c        values: who keeps them, and questions for them
 *     kept_copy.c   copies of values when workers leave or come */
#ifndef FLEET_ROUTER_KEPT_TYPES_PRIV_H
#define FLEET_ROUTER_KEPT_TYPES_PRIV_H

#include "fleet/router/kept_priv.h"
#include "fleet/router/ranking_priv.h"

#define KEPT_UNKNOWN_NS (10 * NS_PER_S) /* after the start: other routers are not known yet */

enum {
    KEPT_COPIES = 2,
    KEPT_FORGOTTEN = 128 /* forgotten names that are sent again to workers that come back */
};
#define KEPT_MAX_QUEUED ((size_t)8 << 20) /* bytes on a link: beyond, its worker gets no values */

struct kept_worker {
    bool is_up;
    uint64_t digest;        /* of its name */
    uint64_t late_until_ns; /* it answered too late, and is left alone until then */
};

struct router_kept {
    struct router *router;
    uint8_t key[STATE_KEY_BYTES];
    struct kept_worker workers[PICKER_MAX_WORKERS];
    uint32_t n_up;
    struct list asks;
    uint32_t n_asks;
    struct hashmap *by_number;
    uint64_t next_number; /* of questions, also of those of kept_copy.c */
    struct ev_timer *deadline;
    struct state_name forgotten[KEPT_FORGOTTEN]; /* a ring */
    uint64_t n_forgotten;
    struct kept_copy *copy;   /* kept_copy.c */
    size_t stream_bytes;      /* of the orders of running streams (streams.c) */
    uint64_t others_until_ns; /* it assumes that there are some */
    struct metric *m_found, *m_missed, *m_late, *m_put, *m_dropped, *m_damaged;
};

/* ---- kept.c ---- */

/* A worker's score for a name; the highest ranks first. */
uint64_t kept_score(uint64_t name_digest, uint64_t worker_digest);
/* The workers that rank first for a name.  is_new: for a value that they are to keep. */
struct router_ranking kept_rank(const struct router_kept *kept, const char *name, bool is_new);

/* ---- kept_copy.c ---- */

int kept_copy_open(struct router_kept *kept); /* E_NOMEM */
void kept_copy_close(struct router_kept *kept);
/* The worker in this slot came, or leaves: values are copied some seconds later. */
void kept_copy_note(struct router_kept *kept, uint32_t slot, bool is_up);
/* Takes an answer to a question of its own.  False: it is another's. */
bool kept_copy_receive(struct router_kept *kept, uint32_t slot, const Baton__Fetched *fetched);

#endif
