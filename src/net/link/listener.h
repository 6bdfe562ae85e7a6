/* SPDX-License-Identifier: Apache-2.0 */
/* A listening TCP socket on a loop.
 *
 * Accepted descriptors are non-blocking and close-on-exec, have TCP_NODELAY, and belong to the callee.
 * Each counts against max_connections until listener_release(). At the bound the listener stops accepting
 * and connections wait in the kernel's backlog, so a flood costs a queue and no memory. When the process
 * is out of descriptors, accepting pauses briefly. With max_strangers, sockets that have sent no byte are
 * tracked separately and do not count. Loop thread only. */
#ifndef NET_LINK_LISTENER_H
#define NET_LINK_LISTENER_H

#include "base/event/loop.h"
#include "base/event/strangers.h"
#include "base/metrics/metrics.h"
#include "net/link/addr.h"

struct listener;

struct listener_opts {
    struct ev_loop *loop;     /* borrowed */
    const char *address;      /* numeric: "127.0.0.1:8080", "[::]:0", "*:80" (dual stack); unused if fd > 0 */
    int fd;                   /* > 0: a listening socket made elsewhere (by systemd); taken */
    bool is_shared;           /* SO_REUSEPORT: several loops listen on this address */
    uint32_t max_connections; /* open at the same time; 0 means 1024 */
    /* If > 0: hand a socket over only after its first bytes arrive (base/event/strangers.h). */
    uint32_t max_strangers, max_strangers_per_address;
    const char *name;        /* borrowed: name of the port in metrics and log; only with max_strangers */
    struct metrics *metrics; /* borrowed; NULL: do not count evictions */
    /* Takes fd; borrows peer. Takes stranger too; it is NULL without max_strangers. */
    void (*on_accept)(void *arg, int fd, const char *peer, struct stranger *stranger);
    void *arg;
};

/* E_INVAL; E_FORMAT: bad address; E_IO: cannot bind, the fault gives the reason. */
int listener_open(const struct listener_opts *opts, struct fault *fault, struct listener **out);
void listener_close(struct listener *listener); /* accepts NULL; allowed inside on_accept */
void listener_release(
    struct listener *listener); /* one accepted connection has ended; not allowed after listener_close */
uint32_t listener_connections(const struct listener *listener);
/* Evicts the oldest stranger that was handed over. False: there is none. */
bool listener_make_room(struct listener *listener);
/* Marks an address as known: if there are too many strangers, its sockets have priority over unknown
 * addresses. */
void listener_know(struct listener *listener, const struct addr *address);
const char *listener_address(const struct listener *listener); /* the bound address, with the real port */
/* Stops accepting for good, but still counts connections (for a drain). */
void listener_pause(struct listener *listener);

#endif
