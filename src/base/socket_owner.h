/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the process that listens on an address, for the error message of a daemon that cannot listen there.  It
 * reads /proc of every process, so call it only when a start fails.  Any thread. */
#ifndef BASE_SOCKET_OWNER_H
#define BASE_SOCKET_OWNER_H

#include <sys/socket.h>

#include "base/fault.h"

#define SOCKET_OWNER_BYTES 200

/* Writes ": baton-router is there already (process 4711, unit baton-router.service)".  If /proc hides the process:
 * ": a process of another user is there already".  If no process listens: "". sa: an internet address (only its
 * port counts), or the path of a UNIX socket. */
void socket_owner_text(const struct sockaddr *sa, char out[SOCKET_OWNER_BYTES]);
/* Call it after bind() or listen() failed: makes the fault "cannot listen on ADDRESS: ..." from errno, and names
 * the owner if the address is in use.  Returns E_IO. */
int socket_owner_fault(struct fault *fault, const char *address, const struct sockaddr *sa);

#endif
