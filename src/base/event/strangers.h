/* SPDX-License-Identifier: Apache-2.0 */
/* The strangers of one listening port: accepted sockets whose peers have not authenticated yet.
 *
 * Every port of a daemon has one such object.  A silent socket costs only a descriptor and about 300 bytes
 * here.  Its owner (a link, a KV connection, an HTTP connection) is made when its first bytes arrive.  A
 * socket that sends no byte in time is closed.  When there are too many strangers in total or from one
 * address, one is evicted; stranger_table.c gives the order.  Loop thread only. */
#ifndef BASE_EVENT_STRANGERS_H
#define BASE_EVENT_STRANGERS_H

#include <sys/socket.h>

#include "base/event/loop.h"

#define STRANGERS_BEGIN_NS                                                                                   \
    (2 * UINT64_C(1000000000)) /* how long a socket may stay silent on a port with TLS */

/* How every listening port accepts. */
#define ACCEPT_BACKLOG        1024
#define ACCEPT_BATCH          64                        /* sockets in one turn of the loop */
#define ACCEPT_REST_NS        (100 * UINT64_C(1000000)) /* when no descriptor is left */
#define ACCEPT_FAILURES_PER_S 10 /* lines of one log event that any stranger can cause */

struct strangers;
struct stranger;

enum stranger_end {                       /* why a stranger was closed early */
                    STRANGER_END_ADDRESS, /* too many from its address */
                    STRANGER_END_FULL,    /* too many in total */
                    STRANGER_END_SILENT,  /* sent no byte in time */
                    STRANGER_N_ENDS
};

extern const char *const stranger_end_names[STRANGER_N_ENDS]; /* "address", "full", "silent" */

struct strangers_opts {
    struct ev_loop *loop; /* borrowed */
    const char *port;     /* borrowed; for the log */
    uint32_t max;         /* strangers at the same time */
    uint32_t max_per_address;
    uint64_t begin_ns; /* how long a socket may stay silent; 0: on_begun is called at once */
    /* For TLS over TCP: waits for a whole ClientHello, also at most begin_ns.  Other first bytes are handed over as
     * they are, and TLS refuses them. */
    bool awaits_hello;
    /* The stranger's first bytes have arrived.  Takes fd.  The callee holds the stranger until it calls
     * stranger_prove() or stranger_leave(), and must call stranger_bind() before it returns. */
    void (*on_begun)(void *arg, int fd, const struct sockaddr *from, struct stranger *stranger);
    void (*on_end)(void *arg, enum stranger_end why); /* for metrics; may be NULL */
    void *arg;
};

int strangers_new(const struct strangers_opts *opts, struct strangers **out);
/* Closes all silent strangers; the others must have left before.  Accepts NULL. */
void strangers_free(struct strangers *strangers);
/* Takes an accepted socket. */
void strangers_take(struct strangers *strangers, int fd, const struct sockaddr *from);
/* Marks an address as known: strangers from there stay longer than those from other addresses.  An address
 * where a stranger has proved itself is known too. */
void strangers_know(struct strangers *strangers, const struct sockaddr *from);
/* Makes room in the owner's own limit: evicts the oldest stranger that has begun, of that address or (NULL)
 * of all.  False: there is none. */
bool strangers_make_room(struct strangers *strangers, const struct sockaddr *from);
/* Closes all silent strangers. */
void strangers_close_silent(struct strangers *strangers);
uint32_t strangers_count(const struct strangers *strangers);

/* Sets the eviction callback. evict(owner) runs after the stranger was removed from here; the owner must
 * close its connection at once. */
void stranger_bind(struct stranger *stranger, void (*evict)(void *owner), void *owner);
void stranger_prove(struct stranger *stranger); /* its peer is authenticated; accepts NULL */
void stranger_leave(struct stranger *stranger); /* the owner closed its socket; accepts NULL */

#endif
