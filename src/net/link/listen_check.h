/* SPDX-License-Identifier: Apache-2.0 */
/* Checks whether a configured address can be listened on, without listening. Any thread. */
#ifndef NET_LINK_LISTEN_CHECK_H
#define NET_LINK_LISTEN_CHECK_H

#include "net/link/addr.h"

/* Succeeds if the address parses, is numeric, belongs to this host, and this process may bind the port. A
 * port that another process uses at the moment is no fault. Fills *out if the address parses. E_FORMAT,
 * E_IO. */
int listen_check(const char *text, struct fault *fault, struct addr *out);
/* True if both cannot be listened on at the same time: same port, and same address or one of them all
 * addresses. */
bool listen_same(const struct addr *a, const struct addr *b);

#endif
