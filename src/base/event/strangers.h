/* SPDX-License-Identifier: Apache-2.0 */
/* The strangers of one listening port: sockets between accept() and the proof of who is behind them.
 *
 * Every port of a daemon has one.  While a socket says nothing it costs a descriptor and some 300 bytes here:
 * its owner (a link, a KV connection, an HTTP connection) is made when its first bytes are there.  One that
 * says nothing in time is closed.  When there are too many, in all or of one address, the oldest is evicted
 * (base/event/stranger_table_priv.h says which).  Loop thread only. */
#ifndef BASE_EVENT_STRANGERS_H
#define BASE_EVENT_STRANGERS_H

#include <sys/socket.h>

#include "base/event/loop.h"

#define STRANGERS_BEGIN_NS                                                                                   \
    (2 * UINT64_C(1000000000)) /* how long a socket may say nothing where TLS is spoken */

struct strangers;
struct stranger;

enum stranger_end {                       /* why a stranger was closed before its time */
                    STRANGER_END_ADDRESS, /* too many of its address */
                    STRANGER_END_FULL,    /* too many in all */
                    STRANGER_END_SILENT,  /* no byte in time */
                    STRANGER_N_ENDS
};

extern const char *const stranger_end_names[STRANGER_N_ENDS]; /* "address", "full", "silent" */

struct strangers_opts {
    struct ev_loop *loop; /* borrowed */
    const char *port;     /* borrowed; for the log */
    uint32_t max;         /* at once */
    uint32_t max_per_address;
    uint64_t begin_ns; /* how long one may say nothing; 0: on_begun comes at once */
    /* Its first bytes are there.  Takes fd.  The stranger is the callee's until it calls stranger_prove or
     * stranger_leave, and it is to be bound before it returns. */
    void (*on_begun)(void *arg, int fd, const struct sockaddr *from, struct stranger *stranger);
    void (*on_end)(void *arg, enum stranger_end why); /* for counting; may be NULL */
    void *arg;
};

int strangers_new(const struct strangers_opts *opts, struct strangers **out);
/* Closes those that said nothing; the others have left before.  NULL is fine. */
void strangers_free(struct strangers *strangers);
/* Takes an accepted socket. */
void strangers_take(struct strangers *strangers, int fd, const struct sockaddr *from);
/* Sockets from there come before those of other addresses.  So do those from where one has proved itself. */
void strangers_know(struct strangers *strangers, const struct sockaddr *from);
/* Room for one of a bound of the owner's: evicts the oldest that has begun, of that address or (NULL) of all.
 * False: there is none. */
bool strangers_make_room(struct strangers *strangers, const struct sockaddr *from);
/* Closes those that said nothing. */
void strangers_close_silent(struct strangers *strangers);
uint32_t strangers_count(const struct strangers *strangers);

/* evict(owner) is called when it has to go: it is gone from here by then, and the owner ends at once. */
void stranger_bind(struct stranger *stranger, void (*evict)(void *owner), void *owner);
void stranger_prove(struct stranger *stranger); /* it is none any more; NULL is fine */
void stranger_leave(struct stranger *stranger); /* its socket is closed; NULL is fine */

#endif
