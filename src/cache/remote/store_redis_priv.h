/* SPDX-License-Identifier: Apache-2.0 */
/* Types and functions that the files of the Redis store share.
 *
 *     store_redis.c   the operations of struct store_ops, the test and the advice
 *     redis_batch.c   servers and their connections, and a call's items on their way to them */
#ifndef CACHE_REMOTE_STORE_REDIS_PRIV_H
#define CACHE_REMOTE_STORE_REDIS_PRIV_H

#include "cache/remote/store.h"
#include "net/redis/redis_conn.h"
#include "net/redis/redis_slots.h"

enum { REDIS_MAX_PEERS = 64, REDIS_NO_PEER = REDIS_MAX_PEERS, REDIS_MAX_TOUCHED = 256 };

struct redis_peer {
    struct redis_node node;
    struct redis_conn *conn;
    uint64_t rests_until_ns;
    bool is_used;   /* in this round */
    bool is_reused; /* its connection is from an earlier call, so the server may have left since */
    int result;     /* of this round */
};

struct redis_store {
    struct redis_url url;
    struct redis_conn_opts conn_opts;
    char lifetime_s[24]; /* empty: values live for ever */
    struct redis_peer peers[REDIS_MAX_PEERS];
    unsigned n_peers;
    uint8_t slots[REDIS_N_SLOTS]; /* the peer that has it; REDIS_NO_PEER: unknown */
    bool reads_replicas;
    unsigned number;                 /* of the object: which replica it prefers */
    uint8_t replicas[REDIS_N_SLOTS]; /* the peer that answers reads; REDIS_NO_PEER: the one in slots */
    struct buf touched; /* keys that replicas gave, each with a NUL: their lifetime is to be renewed */
    unsigned n_touched;
    uint64_t untouched_until_ns; /* lifetimes are not renewed before */
    unsigned answered_by;        /* the peer whose reply is being read */
    bool wants_map;
    uint64_t map_ns;
    struct buf out;         /* commands, without the values of a put */
    struct redis_gap *gaps; /* [n_gaps] where values belong in `out`, in order */
    unsigned n_gaps, max_gaps;
};

struct redis_gap {
    size_t at_bytes; /* in redis_store.out */
    unsigned item;
};

struct redis_batch { /* one call */
    struct redis_store *store;
    struct store_item *items;
    unsigned n;
    /* Appends the item's command.  The reply goes to on_reply, which sets the item's result. */
    void (*append)(struct redis_batch *batch, unsigned i);
    void (*on_reply)(struct redis_batch *batch, unsigned i, const struct resp_item *reply);
    bool is_read;   /* a replica may answer */
    bool refreshes; /* EXPIRE follows each command that goes to a primary */
    const struct store_values *values;
    const struct store_reader *reader;
    struct fault *fault;
    struct redis_place {  /* of each item */
        uint8_t peer;     /* that it goes to: a redirection changes it */
        uint8_t waits_on; /* whose reply it waits for; REDIS_NO_PEER: none */
        bool is_pending, is_asking;
        bool is_at_replica; /* in this round */
        bool wants_primary; /* the replica did not do */
    } * places;
};

/* ---- redis_batch.c ---- */

/* The peer with this address, which is added when it is new.  REDIS_NO_PEER: there are too many. */
unsigned redis_store_peer(struct redis_store *store, const struct redis_node *node);
void redis_store_fail_peer(struct redis_store *store, struct redis_peer *peer, int result); /* disconnects */
/* A connection to the peer.  E_CLOSED: it rests. */
int redis_store_connect(struct redis_store *store, struct redis_peer *peer, struct fault *fault);
/* Asks the first server that answers who has which slots. */
int redis_store_map(struct redis_store *store, struct fault *fault);
int redis_error_code(struct bytes error); /* of an error reply */
/* Appends the item's value to the commands, which are copied without it.  E_NOMEM. */
int redis_batch_add_value(struct redis_batch *batch, unsigned i);
/* Sends the items' commands and reads the replies.  < 0: no server answered, or every item was refused. */
int redis_batch_run(struct redis_batch *batch);

#endif
