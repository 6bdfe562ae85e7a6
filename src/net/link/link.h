/* SPDX-License-Identifier: Apache-2.0 */
/* A control link between two daemons: framed protobuf messages over mutually authenticated TLS 1.3.
 *
 * One side dials, and redials with back-off; the other side accepts. After TLS both send HELLO. The link
 * is up when each side has accepted the other's HELLO. Each side sends a heartbeat every second. Three
 * missed heartbeats, or a closed socket, bring the link down.
 *
 * Sending never blocks: messages queue up to a bound. Beyond the bound the link goes down, because a peer
 * that does not read counts as dead. Messages arrive in order and exactly once, or the link goes down.
 * Loop thread only. */
#ifndef NET_LINK_LINK_H
#define NET_LINK_LINK_H

#include <protobuf-c/protobuf-c.h>

#include "base/fault.h"
#include "base/event/loop.h"
#include "net/link/tls.h"
#include "proto/frame.h"

#define LINK_PROTOCOL 2 /* Hello.protocol of this side; other versions are refused before on_hello */

struct link;

struct link_events {
    /* The peer's HELLO arrived (an unpacked baton HELLO). Return 0 to accept. Return an error to refuse:
     * the link sends a REFUSED frame with the fault's text and closes. NULL: accept. */
    int (*on_hello)(void *arg, struct link *link, const ProtobufCMessage *hello, struct fault *fault);
    void (*on_up)(void *arg, struct link *link);
    /* One message arrived. A HEARTBEAT comes here too, because it carries the load. The message is valid
     * during the call. The link skips unknown types. A non-zero return closes the link. */
    int (*on_message)(void *arg, struct link *link, enum frame_type type, const ProtobufCMessage *message);
    /* The link is down. A dialled link that was up goes on dialling. An accepted link gets this call
     * exactly once, whether it was up or not, and is freed when the call returns. Never called after
     * link_close or link_goodbye. */
    void (*on_down)(void *arg, struct link *link, const struct fault *why);
};

struct link_opts {
    struct ev_loop *loop;             /* borrowed */
    struct tls_context *tls;          /* borrowed; NULL only with is_plaintext */
    bool is_plaintext;                /* no TLS; for tests */
    const struct link_events *events; /* borrowed */
    void *events_arg;
    /* Makes our HELLO; called each time before one is sent. The message is borrowed until the next call. */
    const ProtobufCMessage *(*make_hello)(void *arg);
    /* Makes our LoadReport for each heartbeat. May be NULL, and may return NULL. */
    const ProtobufCMessage *(*make_heartbeat)(void *arg);
    uint64_t heartbeat_ns; /* 0 means 1 s; the link is dead after three missed heartbeats */
    uint64_t handshake_ns; /* limit for connect, TLS and HELLO together; 0 means 5 s */
    /* Back-off between dials: doubles, with jitter; 0 means 100 ms and 5 s. */
    uint64_t retry_min_ns, retry_max_ns;
    size_t max_queue_bytes; /* 0 means 64 MiB */
    /* link_accept: the stranger that holds the socket until TLS is done; taken; NULL: none. */
    struct stranger *stranger;
};

/* Dials address ("host:port"; name lookup does not block) until link_close. The loop makes the first
 * attempt, not this call. E_FORMAT, E_INVAL, E_NOMEM. */
int link_dial(const struct link_opts *opts, const char *address, struct fault *fault, struct link **out);
/* Takes an accepted socket and opts->stranger, also on failure. */
int link_accept(const struct link_opts *opts, int fd, struct link **out);
void link_close(
    struct link *link); /* frees at once, no event; accepts NULL; safe inside the link's own events */
/* Sends GOODBYE, gives queued output a moment to leave, then frees the link. No more events. Allowed in
 * every state. */
void link_goodbye(struct link *link, const char *text);

bool link_is_up(const struct link *link);
/* E_CLOSED: the link is not up. E_LIMIT: the message is too long. E_NOMEM. E_FULL: the queue is over its
 * bound, and the link then goes down from the loop. Never calls an event. */
int link_send(struct link *link, enum frame_type type, const ProtobufCMessage *message);
/* Sends an extra heartbeat now, so that the peer learns of a change at once. Does nothing while the link is not up. */
void link_beat(struct link *link);
size_t link_queued_bytes(const struct link *link); /* bytes that the kernel has not taken yet */
const char *link_peer_address(const struct link *link);
uint64_t link_rtt_ns(const struct link *link); /* smoothed round-trip time from heartbeats; 0: unknown */
struct link_keys {    /* ids of cluster keys; 0: unknown, or the link uses certificates */
    uint32_t used;    /* the key of the handshake */
    uint32_t current; /* the peer's current key */
    uint32_t second;  /* the peer's next or former key, if this side accepts it too */
};
struct link_keys link_peer_keys(const struct link *link);
/* Why the last attempt or connection ended; code 0: no failure yet. */
const struct fault *link_why_down(const struct link *link);
/* True if the last connection was up and the peer's system closed it without a word of the peer.  So its process ended, or
 * gave this link up by itself.  For on_down. */
bool link_peer_has_ended(const struct link *link);
void link_set_user(struct link *link, void *user);
void *link_user(const struct link *link);

#endif
