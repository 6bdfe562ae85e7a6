/* SPDX-License-Identifier: Apache-2.0 */
/* Which process listens on an address, for the message of a daemon that cannot.  Reads /proc; call it at a start that
 * fails, because it looks at every process.  Any thread. */
#ifndef BASE_SOCKET_OWNER_H
#define BASE_SOCKET_OWNER_H

#include <sys/socket.h>

#include "base/fault.h"

#define SOCKET_OWNER_BYTES 200

/* Writes ": baton-router is there already (process 4711, unit baton-router.service)", or ": a process of another user
 * is there already" if its owner may not be seen, or "" if no process listens there.  sa: an internet address, of which
 * the port counts, or the path of a UNIX socket. */
void socket_owner_text(const struct sockaddr *sa, char out[SOCKET_OWNER_BYTES]);
/* After bind() or listen() failed, from errno: "cannot listen on ADDRESS: ...", with the owner if the address is in use.
 * Returns E_IO. */
int socket_owner_fault(struct fault *fault, const char *address, const struct sockaddr *sa);

#endif
