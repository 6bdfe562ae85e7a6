/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of a link, shared by link.c (states), link_dial.c (connecting) and link_frame.c (frames). */
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
    LINK_WAITING,    /* dialled links: waits for the back-off */
    LINK_RESOLVING,  /* dialled links: looks the name up */
    LINK_CONNECTING, /* TCP connect, then the TLS handshake */
    LINK_GREETING,   /* our HELLO is sent; waits for the peer's HELLO */
    /* Accepted the peer's HELLO; the peer's first HEARTBEAT will show that it accepted ours. */
    LINK_GREETED,
    LINK_UP,      /* messages flow */
    LINK_LEAVING, /* the last frame (REFUSED, GOODBYE) leaves; then the connection closes */
    LINK_ENDED    /* an accepted link after its end */
};

struct link {
    struct link_opts opts;
    enum link_state state;
    bool is_dialled;
    char address[300]; /* the peer's address, as dialled or as accepted */
    struct addr addr;  /* parsed from address when dialled */
    void *user;

    struct bufferevent *bev; /* set from CONNECTING to LEAVING */
    struct ev_timer *timer;  /* timer of the state: back-off or deadline */
    struct ev_timer *beat;   /* runs in GREETED and UP */
    struct resolve *lookup;  /* set in RESOLVING */
    struct buf scratch;      /* buffer to pack frames */

    struct rng rng;      /* for the jitter */
    unsigned n_attempts; /* failed attempts in a row */
    uint64_t up_since_ns;
    uint64_t beat_number;
    uint64_t peer_sent_ns; /* sent_ns of the last heartbeat received, and its arrival time; 0: none */
    uint64_t peer_received_ns;
    struct rate rtt_s;
    unsigned n_missed; /* heartbeat periods in a row without a byte from the peer */
    bool has_received; /* a byte arrived in this period */
    struct fault why;
    bool peer_has_ended;       /* see link_peer_has_ended() */
    struct stranger *stranger; /* accepted, and the peer has not authenticated yet; NULL: no stranger */

    struct link_keys keys;    /* known of this connection */
    uint32_t proven[4];       /* ids of cluster keys that the peer proved on it; 0: none */
    unsigned n_proven;        /* since the connection began; the next goes to proven[n_proven % 4] */
    unsigned n_keyless_beats; /* beats in a row without a proven key that this side still accepts */

    unsigned depth; /* nesting depth of calls into the owner and of callbacks that may destroy the link */
    bool is_closed; /* link_close was called inside such a call: the outermost call destroys the link */
    bool is_silent; /* link_goodbye was called: no more events */
};

struct link_end { /* of a connection, as libevent reports it */
    short what;
    int socket_error; /* errno */
    bool is_tls;
    bool has_tls_end; /* OpenSSL saw the end of the stream, with or without a close_notify */
};

/* link.c */
/* True if the peer's system closed the connection.  False: it failed on the way.  Under TLS libevent calls a read that failed
 * (ETIMEDOUT of a partition) an end of stream, too. */
bool link_end_is_peers(const struct link_end *end);
void link_set_state(struct link *link, enum link_state state);
void link_enter(struct link *link); /* around each callback; after link_leave the link may be freed */
void link_leave(struct link *link);
/* Ends the connection with this reason. A dialled link returns to WAITING; an accepted link ends. */
void link_fail(struct link *link, const struct fault *why);
/* Sends one last frame, then ends the connection like link_fail. */
void link_part(struct link *link, enum frame_type type, const ProtobufCMessage *last,
               const struct fault *why);
void link_connected(struct link *link); /* TLS is done: sends HELLO */
void link_went_up(struct link *link);
void link_set_callbacks(struct link *link);

/* link_dial.c */
void link_start_dialling(struct link *link);
void link_stop_resolving(struct link *link);
void link_tune_socket(const struct link *link, int fd);
/* Makes a TLS or plain bufferevent; fd -1: for a socket still to connect. On failure the caller keeps fd. */
int link_make_bufferevent(struct link *link, int fd, bool is_server);

/* link_keys.c */
void link_keys_begin(struct link *link); /* the handshake is over */
unsigned link_keys_prove(struct link *link, struct tls_proof out[TLS_MAX_KEYS]);
void link_keys_receive(struct link *link, const Baton__Heartbeat *beat);
/* Call it once per beat. True: the link must end, because the peer has had none of this side's keys for too long. */
bool link_keys_are_gone(struct link *link);

/* link_frame.c */
void link_read_frames(struct link *link); /* call it inside link_enter */
int link_put(struct link *link, enum frame_type type, const ProtobufCMessage *message);
void link_send_heartbeat(struct link *link);

#endif
