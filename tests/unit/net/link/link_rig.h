/* SPDX-License-Identifier: Apache-2.0 */
/* Two ends of a link on one loop: what each received, and how each behaves. */
#ifndef TESTS_NET_LINK_RIG_H
#define TESTS_NET_LINK_RIG_H

#include "base/clock.h"
#include "net/link/link.h"
#include "net/link/listener.h"

#define BEAT_NS (20 * NS_PER_MS)

struct world;

struct end { /* of a link */
    struct world *world;
    struct link *link;
    Baton__Hello hello;
    Baton__LoadReport load;
    unsigned n_up, n_down, n_hello, n_messages, n_heartbeats;
    uint64_t peer_epoch;
    uint32_t last_request;
    int refuses; /* error for on_hello */
    int breaks;  /* error for on_message */
    bool closes_in_up, closes_in_message, closes_in_hello;
    struct fault why;
    bool peer_has_ended; /* at the last end */
};

struct world {
    struct ev_loop *loop;
    struct ev_timer *limit;
    struct tls_context *tls;
    struct listener *listener;
    char address[64];
    struct end dialler, acceptor;
    bool is_plaintext;
    bool (*until)(struct world *world);
    size_t max_queue_bytes;
    bool timed_out;
    bool is_mute; /* accepted sockets are kept and never answered */
    int mute_fds[8];
    unsigned n_mute;
};

enum { SOON_MS = 20000 }; /* limit for events that happen at once on a calm machine */

/* For cmocka: a world with its listener and no link yet. */
int world_set_up(void **state);
int world_tear_down(void **state);
void end_init(struct world *world, struct end *end, Baton__Role role, char *node);
struct link_opts world_opts(struct world *world, struct end *end);
void world_on_accept(void *arg, int fd, const char *peer, struct stranger *stranger);
void world_dial(struct world *world);

/* Runs until the condition holds (checked after every event of a link) or the time is over.
 * Returns whether it held. */
bool world_run(struct world *world, bool (*until)(struct world *world), unsigned limit_ms);
/* The same for conditions that no event reports. */
bool world_run_polling(struct world *world, bool (*until)(struct world *world), unsigned limit_ms);
bool both_up(struct world *world);
bool acceptor_down(struct world *world);
bool dialler_down(struct world *world);

/* Sends CANCEL frames numbered from `from`; each end asserts their order. */
void send_cancels(struct link *link, unsigned from, unsigned n);

#endif
