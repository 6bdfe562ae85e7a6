/* SPDX-License-Identifier: Apache-2.0 */
/* Name lookup without blocking the loop. It follows the system's rules (hosts file, DNS, nsswitch.conf).
 * Loop thread only. */
#ifndef NET_LINK_RESOLVE_PRIV_H
#define NET_LINK_RESOLVE_PRIV_H

#include "base/event/loop.h"
#include "net/link/addr.h"

struct resolve;

/* list: the addresses in order of preference, n > 0. If n == 0, the fault gives the reason. list is valid
 * during the call. The call may use resolve_free(). */
typedef void (*resolve_call)(void *arg, const struct addr *list, unsigned n, const struct fault *fault);

/* Never calls back before it returns. Numeric addresses work too. E_NOMEM; E_IO: no descriptor or thread
 * available. */
int resolve_new(struct ev_loop *loop, const struct addr *name, resolve_call call, void *arg,
                struct resolve **out);
void resolve_free(struct resolve *resolve); /* before the answer: cancels it; accepts NULL */

#endif
