/* SPDX-License-Identifier: Apache-2.0 */
/* A listening TCP socket on a loop.
 *
 * Accepted descriptors are non-blocking, close-on-exec, with TCP_NODELAY, and belong to the callee.  Each
 * counts against max_connections until listener_release(); at the bound no more are accepted (they wait in
 * the kernel's backlog), so a flood costs a queue and not memory.  When the process is out of descriptors,
 * accepting pauses for a moment.  With max_strangers, sockets that say nothing are kept apart and do not
 * count. Loop thread only. */
#ifndef NET_LINK_LISTENER_H
#define NET_LINK_LISTENER_H

#include "base/event/loop.h"
#include "base/event/strangers.h"
#include "base/metrics/metrics.h"
#include "net/link/addr.h"

struct listener;

struct listener_opts {
    struct ev_loop *loop; /* borrowed */
    const char *address;  /* numeric "127.0.0.1:8080", "[::]:0", "*:80" (dual stack); unused when fd > 0 */
    int fd;               /* > 0: a listening socket made elsewhere (systemd); taken */
    bool is_shared;       /* SO_REUSEPORT: several loops listen on the same address */
    uint32_t max_connections; /* at once; 0: 1024 */
    /* More than 0: a socket is handed over when its first bytes are there (base/event/strangers.h). */
    uint32_t max_strangers, max_strangers_per_address;
    const char *name;        /* borrowed: which port it is, in metrics and log; only with max_strangers */
    struct metrics *metrics; /* borrowed; NULL: evictions are not counted */
    /* Takes fd; peer is borrowed.  stranger is the callee's too; NULL without max_strangers. */
    void (*on_accept)(void *arg, int fd, const char *peer, struct stranger *stranger);
    void *arg;
};

/* E_INVAL, E_FORMAT (address), E_IO (cannot bind; the fault says why). */
int listener_open(const struct listener_opts *opts, struct fault *fault, struct listener **out);
void listener_close(struct listener *listener); /* NULL is fine; also inside on_accept */
void listener_release(
    struct listener *listener); /* one accepted connection has ended; not after listener_close */
uint32_t listener_connections(const struct listener *listener);
/* Evicts the oldest stranger that was handed over; false: there is none. */
bool listener_make_room(struct listener *listener);
/* Sockets from there come before those of unknown addresses, when strangers are too many. */
void listener_know(struct listener *listener, const struct addr *address);
const char *listener_address(const struct listener *listener); /* as bound, with the real port */
/* Stops accepting for good but keeps counting (drain). */
void listener_pause(struct listener *listener);

#endif
