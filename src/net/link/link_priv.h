/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of a link, shared by link.c (its life), link_dial.c (connecting) and link_frame.c (what is
 * said). */
#ifndef NET_LINK_LINK_PRIV_H
#define NET_LINK_LINK_PRIV_H

#include <event2/bufferevent.h>

#include "base/rate.h"
#include "base/rng.h"
#include "base/event/strangers.h"
#include "net/link/addr.h"
#include "net/link/link.h"
#include "net/link/resolve_priv.h"

enum link_state {
    LINK_WAITING,    /* dialled links: until the back-off ends */
    LINK_RESOLVING,  /* dialled links: the name is being looked up */
    LINK_CONNECTING, /* TCP, then TLS */
    LINK_GREETING,   /* our HELLO is out, theirs is awaited */
    LINK_GREETED,    /* theirs was accepted; their first HEARTBEAT will say that ours was too */
    LINK_UP,         /* messages flow */
    LINK_LEAVING,    /* our last words (REFUSED, GOODBYE) flow out; then the connection closes */
    LINK_ENDED       /* an accepted link after its end */
};

struct link {
    struct link_opts opts;
    enum link_state state;
    bool is_dialled;
    char address[300]; /* the peer's, as dialled or as accepted from */
    struct addr addr;  /* parsed from address when dialled */
    void *user;

    struct bufferevent *bev; /* CONNECTING .. LEAVING */
    struct ev_timer *timer;  /* of the state: back-off, deadline */
    struct ev_timer *beat;   /* GREETED, UP */
    struct resolve *lookup;  /* RESOLVING */
    struct buf scratch;      /* frames are packed here */

    struct rng rng;      /* jitter */
    unsigned n_attempts; /* that failed in a row */
    uint64_t up_since_ns;
    uint64_t beat_number;
    uint64_t peer_sent_ns; /* sent_ns of the last heartbeat received, and when that was; 0: none */
    uint64_t peer_heard_ns;
    struct rate rtt_s;
    unsigned n_missed; /* heartbeat periods in a row without a byte from the peer */
    bool has_heard;    /* a byte came in this period */
    struct fault why;
    struct stranger *stranger; /* accepted, and its peer has not proved itself yet; NULL: no stranger */

    unsigned depth; /* of calls into the owner and of callbacks that may end in destroying */
    bool is_closed; /* link_close inside such a call: destroyed when the outermost returns */
    bool is_silent; /* said goodbye: no more events */
};

/* link.c */
void link_set_state(struct link *link, enum link_state state);
void link_enter(struct link *link); /* brackets a callback; link may be gone after link_leave */
void link_leave(struct link *link);
/* Ends the connection for a reason: dialled links go back to WAITING, accepted ones end. */
void link_fail(struct link *link, const struct fault *why);
/* Sends one last frame and then ends it, as link_fail would. */
void link_part(struct link *link, enum frame_type type, const ProtobufCMessage *last,
               const struct fault *why);
void link_connected(struct link *link); /* TLS is through: HELLO */
void link_went_up(struct link *link);
void link_set_callbacks(struct link *link);

/* link_dial.c */
void link_start_dialling(struct link *link);
void link_stop_resolving(struct link *link);
void link_tune_socket(const struct link *link, int fd);
/* A TLS or plain bufferevent; fd -1 for one to connect.  On failure fd stays the caller's. */
int link_make_bufferevent(struct link *link, int fd, bool is_server);

/* link_frame.c */
void link_read_frames(struct link *link); /* inside link_enter */
int link_put(struct link *link, enum frame_type type, const ProtobufCMessage *message);
void link_send_heartbeat(struct link *link);

#endif
