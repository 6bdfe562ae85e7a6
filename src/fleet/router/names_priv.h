/* SPDX-License-Identifier: Apache-2.0 */
/* Node names that more than one worker claims (names.c). */
#ifndef FLEET_ROUTER_NAMES_PRIV_H
#define FLEET_ROUTER_NAMES_PRIV_H

#include "net/link/link.h"

#define ROUTER_MAX_RIVALS 16

struct router;
struct router_worker;

struct router_rival { /* a worker that was refused because its name is taken */
    char node[64];
    char address[64], current[64]; /* of its link, and of the link that has the name */
    uint64_t n_refused, first_ns, last_ns;
};

/* Checks a HELLO whose node name belongs to a worker with a link that is up. Returns 0 if the HELLO comes
 * from the same worker, restarted. E_EXISTS: it is another worker, or the same process twice; the fault
 * names both addresses. Another worker is also recorded for the status. */
int router_names_check(struct router *router, const struct router_worker *current, const struct link *link,
                       const Baton__Hello *hello, struct fault *fault);
void router_names_put(const struct router *router, struct buf *out); /* appends "refused": [...] */

#endif
