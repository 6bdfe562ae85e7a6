/* SPDX-License-Identifier: Apache-2.0 */
/* A transport and a link that lose, delay, repeat and reorder at random, in virtual time.
 *
 *     tr_push        --> frame --(drop, repeat, delay)--> placed if its ticket is open, else REJECT --> TR_PUSH_FAILED
 *     tr_fault_post  --> message --(drop, repeat, delay)--> on_message
 *     tr_close_ticket, tr_stop_push --(delay)--> TR_TICKET_CLOSED, TR_PUSH_STOPPED   (never lost: that is the contract)
 *
 * It replaces libtransport in tests of the hand-off's two state machines: it defines the tr_* calls that they
 * make. The agenda has all events under way, ordered by their due time.  Each event has a random delay, so
 * two things sent one after another may arrive in reverse order.  Nothing sleeps, and the seed is the only
 * input: a run can be repeated.
 *
 * There is one of these at a time.  One thread. */
#ifndef TR_FAULT_H
#define TR_FAULT_H

#include "transfer/kvxfer/kvxfer.h"
#include "transfer/transport/transport.h"

struct tr_fault_opts {
    uint64_t seed;
    uint64_t delay_ns;                /* limit of the uniform delay of a frame or message */
    uint32_t drop, twice, break_push; /* chances of a frame or message, in 1000; break_push: its connection
                                       * dies with this frame */
    uint32_t n_layers;
    /* Read the sender's bytes and write the receiver's; both check leases. */
    uint32_t (*read)(uint64_t push, uint32_t layer, uint32_t block);
    void (*write)(uint64_t ticket, uint32_t layer, uint32_t block, uint32_t value);
    void (*on_message)(bool to_sender, const struct kvxfer_message *message);
    void (*on_event)(bool to_sender, const struct tr_event *event);
    void (*on_alarm)(void); /* see tr_fault_alarm */
};

struct tr_fault_counts {
    uint64_t dropped, doubled, delayed, rejected, broken;
};

void tr_fault_init(
    const struct tr_fault_opts *opts); /* ignores ids of nodes: there are one sender and one receiver */
void tr_fault_fini(void);
uint64_t tr_fault_now_ns(void);
bool tr_fault_step(void);               /* delivers the next event; false: none is under way */
void tr_fault_alarm(uint64_t delay_ns); /* calls on_alarm after so long, in any case */
void tr_fault_post(bool to_sender, const struct kvxfer_message *message);
void tr_fault_cut(void); /* cuts the link: all messages under way are lost */
void tr_fault_crash(bool is_sender,
                    uint64_t id); /* forgets a push or a ticket, as the death of a process does; frames
                                   * continue */
void tr_fault_counts(struct tr_fault_counts *out);
uint64_t tr_fault_random(uint64_t below);

#endif
