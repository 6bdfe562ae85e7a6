/* SPDX-License-Identifier: Apache-2.0 */
/* Node names that more than one worker wants (names.c). */
#ifndef FLEET_ROUTER_NAMES_PRIV_H
#define FLEET_ROUTER_NAMES_PRIV_H

#include "net/link/link.h"

#define ROUTER_MAX_RIVALS 16

struct router;
struct router_worker;

struct router_rival { /* a worker that was refused since its name is taken */
    char node[64];
    char address[64], holder[64]; /* of its link, and of the link that has the name */
    uint64_t n_refused, first_ns, last_ns;
};

/* A HELLO by the name of a worker whose link is up.  0: it is that worker, started again.  E_EXISTS: another
 * one, or the same process twice; refused with both addresses, and remembered for the status. */
int router_names_check(struct router *router, const struct router_worker *holder, const struct link *link,
                       const Baton__Hello *hello, struct fault *fault);
void router_names_put(const struct router *router, struct buf *out); /* "refused": [...] */

#endif
