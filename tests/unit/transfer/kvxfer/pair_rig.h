/* SPDX-License-Identifier: Apache-2.0 */
/* The two ends of one transfer, with a transport and a link that fail at random.
 *
 *     pair.send ---- mail: the link, in order, or down ----------> pair.recv
 *     from_arena --- pieces: the transport, in any order --------> to_arena
 *
 * The rig defines the functions of transfer/transport that the ends call, so that the linker takes these.  Pieces
 * are copied one at a time, at random.  The rig checks on the way that each copy reads and writes leased blocks. */
#ifndef TESTS_UNIT_TRANSFER_KVXFER_PAIR_RIG_H
#define TESTS_UNIT_TRANSFER_KVXFER_PAIR_RIG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/rng.h"
#include "transfer/kvxfer/recv.h"
#include "transfer/kvxfer/send.h"

#define PAIR_LAYERS     3
#define PAIR_POOL       20
#define PAIR_PROMPT     5 /* blocks of the prompt, and of each group of windowed layers */
#define PAIR_WINDOWS    2 /* groups, at most */
#define PAIR_HEAD       2 /* blocks of an MTP head, at most */
#define PAIR_HEAD_AT    ((1 + PAIR_WINDOWS) * PAIR_PROMPT) /* in the tables */
#define PAIR_BLOCKS     (PAIR_HEAD_AT + PAIR_HEAD)
#define PAIR_TIMEOUT_NS (100 * NS_PER_MS)
#define PAIR_MAX_PIECES 64
#define PAIR_MAX_MAIL   64

struct piece {
    uint32_t layer, index;
    kv_block_id source;
    bool is_done;
};

struct mail {
    bool to_sender;
    struct kvxfer_message message;
    kv_block_id blocks[PAIR_BLOCKS];
};

struct pair {
    struct rng rng;
    uint64_t now_ns;
    /* both workers: pools, arenas, and the block tables: the prompt's, that of each group, the head's */
    struct kv_pool *from, *to;
    uint32_t from_arena[PAIR_LAYERS][PAIR_POOL], to_arena[PAIR_LAYERS][PAIR_POOL];
    kv_block_id from_table[PAIR_BLOCKS], to_table[PAIR_BLOCKS];
    uint32_t from_ready; /* computed blocks of the prompt */
    uint32_t skip;       /* leading blocks that the receiver has */
    uint32_t n_windows, first_windowed;
    uint32_t n_head, n_head_granted; /* offered blocks of an MTP head, and those that the receiver took */
    bool first_given;                /* the sender has the first token */
    bool sender_gone, receiver_gone;
    /* the ends, and their reports */
    struct kvxfer_send *send;
    struct kvxfer_recv *recv; /* NULL: not granted yet */
    bool send_over, send_closed, recv_closed, arrived;
    int send_result;
    struct kvxfer_arrival arrival;
    /* the transport */
    bool ticket_open, ticket_closing, push_open, push_stopping, push_broken, complete_reported;
    kv_block_id ticket_blocks[PAIR_BLOCKS];
    uint32_t n_ticket;
    struct piece pieces[PAIR_MAX_PIECES];
    uint32_t n_pieces, n_copied;
    /* the link */
    struct mail mail[PAIR_MAX_MAIL];
    uint32_t n_mail;
    bool link_down;
};

extern struct pair pair;

/* Makes both pools and the sending end, which sends an OFFER.  has_windows: with a random number of groups, and of
 * blocks of an MTP head. */
void pair_begin(uint64_t seed, bool has_windows);
void pair_check_end(void); /* checks what both ends reported, and gives their blocks back */
void pair_end(void);       /* frees the ends and the pools */
void pair_drop(void);      /* gives the blocks of both workers back, and frees the rest */
bool pair_has_ended(void);

/* One event each.  A turn may do nothing. */
void pair_sender_turn(void);   /* a block is computed, or the first token; seldom the sender cancels */
void pair_receiver_turn(void); /* seldom the receiver cancels */
void pair_transport_turn(void);
void pair_tick(void); /* of both ends */
void pair_break_link(void);

void pair_deliver_one(void); /* the oldest mail; the receiver answers an OFFER with GRANT or REFUSED */
void pair_deliver_all(void);
void pair_raise_send_event(enum tr_event_kind kind); /* at the sending end */
void pair_give_back(struct kv_pool *pool, const kv_block_id *table);

#endif
