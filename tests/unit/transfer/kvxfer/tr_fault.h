/* SPDX-License-Identifier: Apache-2.0 */
/* A transport and a link that lose, delay, double and reorder, on a seed, in virtual time.
 *
 *     tr_push --> frame --(drop, double, delay)--> place it if its ticket is open, else REJECT -->
 * TR_PUSH_FAILED tr_fault_post --> message --(drop, double, delay)--> on_message tr_close_ticket,
 * tr_stop_push --(delay)--> TR_TICKET_CLOSED, TR_PUSH_STOPPED   (never lost: that is the contract)
 *
 * It takes the place of libtransport in a test of the hand-off's two state machines: it defines the tr_*
 * calls that they make. What is under way is an agenda of events ordered by the time they are due; a delay is
 * drawn for each, so two things sent one after the other may arrive the other way round.  Nothing sleeps and
 * nothing is read but the seed: a run can be repeated.
 *
 * One of these exists at a time. One thread. */
#ifndef TR_FAULT_H
#define TR_FAULT_H

#include "transfer/kvxfer/kvxfer.h"
#include "transfer/transport/transport.h"

struct tr_fault_opts {
    uint64_t seed;
    uint64_t delay_ns;                /* of a frame or message: below this, evenly */
    uint32_t drop, twice, break_push; /* chances of a frame or message, in 1000; break_push: of a frame, that
                                         its connection dies */
    uint32_t n_layers;
    /* The sender's bytes are read and the receiver's written here; both check leases. */
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
    const struct tr_fault_opts *opts); /* ids of nodes are not looked at: one sender, one receiver */
void tr_fault_fini(void);
uint64_t tr_fault_now_ns(void);
bool tr_fault_step(void);               /* lets the next thing happen; false: nothing is under way */
void tr_fault_alarm(uint64_t delay_ns); /* on_alarm after so long, for sure */
void tr_fault_post(bool to_sender, const struct kvxfer_message *message);
void tr_fault_cut(void); /* the link: what is under way on it is gone */
void tr_fault_crash(bool is_sender,
                    uint64_t id); /* forgets a push or a ticket as a process that dies does; frames go on */
void tr_fault_counts(struct tr_fault_counts *out);
uint64_t tr_fault_random(uint64_t below);

#endif
