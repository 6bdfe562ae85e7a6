/* SPDX-License-Identifier: Apache-2.0 */
/* Looking a name up without blocking the loop, by the system's own rules (hosts file, DNS, whatever
 * nsswitch.conf says). Loop thread only. */
#ifndef NET_LINK_RESOLVE_PRIV_H
#define NET_LINK_RESOLVE_PRIV_H

#include "base/event/loop.h"
#include "net/link/addr.h"

struct resolve;

/* list: the addresses, in the order of preference, n > 0; or n == 0 and the fault says why.  Valid during the
 * call, in which resolve_free() is allowed. */
typedef void (*resolve_call)(void *arg, const struct addr *list, unsigned n, const struct fault *fault);

/* Never calls back from inside; numeric addresses work too.  E_NOMEM, E_IO (no descriptor or thread to be
 * had). */
int resolve_new(struct ev_loop *loop, const struct addr *name, resolve_call call, void *arg,
                struct resolve **out);
void resolve_free(struct resolve *resolve); /* before the answer: there will be none.  NULL is fine */

#endif
