/* SPDX-License-Identifier: Apache-2.0 */
/* The 16,384 slots by which a cluster of Redis or Valkey servers divides its keys. Each slot has one server.
 *
 * Pure functions; any thread. */
#ifndef NET_REDIS_REDIS_SLOTS_H
#define NET_REDIS_REDIS_SLOTS_H

#include "net/redis/redis_url.h"

enum { REDIS_N_SLOTS = 16384, REDIS_MAX_RANGES = 4096, REDIS_MAX_COPIES = 8 };

/* The slot of a key: CRC-16 of it, or of the part between '{' and '}'. */
unsigned redis_slot(struct bytes key);

struct redis_redirect {
    bool is_ask; /* valid for the next command only; else the slot has moved permanently */
    unsigned slot;
    struct redis_node node; /* an empty host means the host of the server that answered */
};
/* Reads the error "MOVED slot host:port" or "ASK slot host:port".  E_FORMAT: it is another error. */
int redis_redirect_parse(struct bytes error, struct redis_redirect *out);

/* Reads the reply to CLUSTER SLOTS. Calls on_range for each range of slots, with its servers: the primary, then its
 * replicas, REDIS_MAX_COPIES in all at most; the rest is left out.  E_FORMAT. */
int redis_slots_parse(struct bytes reply,
                      void (*on_range)(void *arg, unsigned first, unsigned last,
                                       const struct redis_node *nodes, unsigned n),
                      void *arg);

#endif
