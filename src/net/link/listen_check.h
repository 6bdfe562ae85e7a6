/* SPDX-License-Identifier: Apache-2.0 */
/* Whether an address of a configuration can be listened on, found out without listening.  Any thread. */
#ifndef NET_LINK_LISTEN_CHECK_H
#define NET_LINK_LISTEN_CHECK_H

#include "net/link/addr.h"

/* The address parses, is numeric and this host's, and this process may bind the port.  That another process
 * has the port at the moment is no fault.  Fills *out when it parses.  E_FORMAT, E_IO. */
int listen_check(const char *text, struct fault *fault, struct addr *out);
/* Whether both cannot be listened on at the same time: one port of one address, or of all addresses. */
bool listen_same(const struct addr *a, const struct addr *b);

#endif
