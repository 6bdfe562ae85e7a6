/* SPDX-License-Identifier: Apache-2.0 */
/* A control link between two daemons: framed protobuf messages over mutually authenticated TLS 1.3.
 *
 * One side dials (and dials again with back-off), the other accepts; after TLS both send HELLO, and the link
 * is up when each accepted the other's.  Heartbeats flow every second; three missed ones, or a closed socket,
 * bring it down.  Sending never blocks: messages queue up to a bound, beyond which the link is declared dead
 * (a peer that does not read is a dead peer). Messages arrive in the order sent, each once, or the link goes
 * down.  Loop thread only. */
#ifndef NET_LINK_LINK_H
#define NET_LINK_LINK_H

#include <protobuf-c/protobuf-c.h>

#include "base/fault.h"
#include "base/event/loop.h"
#include "net/link/tls.h"
#include "proto/frame.h"

#define LINK_PROTOCOL 2 /* Hello.protocol that this side speaks; another one is refused before on_hello */

struct link;

struct link_events {
    /* The peer's HELLO arrived (unpacked baton HELLO); return 0 to accept, or an error: a REFUSED frame with
     * the fault's text is sent and the connection closed.  NULL: accept. */
    int (*on_hello)(void *arg, struct link *link, const ProtobufCMessage *hello, struct fault *fault);
    void (*on_up)(void *arg, struct link *link);
    /* One message, HEARTBEAT among them (it carries the load); valid during the call.  Unknown types are
     * skipped before this.  A non-zero return closes the link. */
    int (*on_message)(void *arg, struct link *link, enum frame_type type, const ProtobufCMessage *message);
    /* A dialled link that was up is down and goes on dialling; an accepted one is down (up before or not,
     * exactly once) and is freed when this returns.  Never after link_close or link_goodbye. */
    void (*on_down)(void *arg, struct link *link, const struct fault *why);
};

struct link_opts {
    struct ev_loop *loop;             /* borrowed */
    struct tls_context *tls;          /* borrowed; NULL only with is_plaintext */
    bool is_plaintext;                /* no TLS: for tests */
    const struct link_events *events; /* borrowed */
    void *events_arg;
    /* Our HELLO: called each time one is to be sent; the message is borrowed until the next call. */
    const ProtobufCMessage *(*make_hello)(void *arg);
    /* Our LoadReport for each heartbeat (may be NULL, may return NULL). */
    const ProtobufCMessage *(*make_heartbeat)(void *arg);
    uint64_t heartbeat_ns;               /* 0: 1 s; dead after three missed */
    uint64_t handshake_ns;               /* connect, TLS and HELLO together; 0: 5 s */
    uint64_t retry_min_ns, retry_max_ns; /* between attempts to dial, doubling, with jitter; 0: 100 ms, 5 s */
    size_t max_queue_bytes;              /* 0: 64 MiB */
    struct stranger *stranger; /* link_accept: who it is until its TLS is through; taken; NULL: none */
};

/* Dials address ("host:port", names are looked up without blocking) until link_close; the first attempt is
 * made from the loop, not from here.  E_FORMAT, E_INVAL, E_NOMEM. */
int link_dial(const struct link_opts *opts, const char *address, struct fault *fault, struct link **out);
/* Takes an accepted socket, and opts->stranger (also on failure). */
int link_accept(const struct link_opts *opts, int fd, struct link **out);
void link_close(
    struct link *link); /* at once, no event; frees; NULL is fine; also safe inside its own events */
/* Says GOODBYE, lets what is queued flow out for a moment, and frees itself; no more events.  Any state. */
void link_goodbye(struct link *link, const char *text);

bool link_is_up(const struct link *link);
/* E_CLOSED when not up, E_LIMIT (message too long), E_NOMEM, E_FULL when over the bound (the link then goes
 * down from the loop).  Never calls an event. */
int link_send(struct link *link, enum frame_type type, const ProtobufCMessage *message);
size_t link_queued_bytes(const struct link *link); /* not yet with the kernel */
const char *link_peer_address(const struct link *link);
uint64_t link_rtt_ns(const struct link *link); /* smoothed, from heartbeats; 0: unknown */
/* Why the last attempt or connection ended; code 0: nothing went wrong yet. */
const struct fault *link_why_down(const struct link *link);
void link_set_user(struct link *link, void *user);
void *link_user(const struct link *link);

#endif
