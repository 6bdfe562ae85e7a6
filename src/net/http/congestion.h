/* SPDX-License-Identifier: Apache-2.0 */
/* Which of the kernel's TCP congestion controls a socket uses.  Any thread. */
#ifndef NET_HTTP_CONGESTION_H
#define NET_HTTP_CONGESTION_H

#include "base/fault.h"

/* Sets it for a socket, before listen() for all that the socket accepts.  NULL and "": the system's is left.
 * Returns 0, or -1 with errno. */
int http_congestion_set(int fd, const char *name);
/* Whether this process may set it: E_UNSUPPORTED with what could be had instead. */
int http_congestion_check(const char *name, struct fault *fault);

#endif
