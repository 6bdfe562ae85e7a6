/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel's TCP congestion control of a socket. Any thread. */
#ifndef NET_HTTP_CONGESTION_H
#define NET_HTTP_CONGESTION_H

#include "base/fault.h"

/* Sets the congestion control of a socket. Sockets accepted later inherit it if it is set before listen().
 * NULL or "": keep the system's default. Returns 0, or -1 with errno. */
int http_congestion_set(int fd, const char *name);
/* Checks whether this process may set it. E_UNSUPPORTED; the fault lists the available ones. */
int http_congestion_check(const char *name, struct fault *fault);

#endif
