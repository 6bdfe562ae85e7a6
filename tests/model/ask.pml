/* SPDX-License-Identifier: Apache-2.0 */
/* Prefix fetch and serve, for Spin: askers A fetch blocks from one owner H.  docs/handoff.md describes it; check-ask runs it.
 *
 *     Router ---- submit with a hint, cancel ---> A              engine threads
 *     A  == to_h: ASK GRANT REFUSED DONE CANCEL ==========>  H   control link: in order; a cut loses the messages in flight
 *     A  <= to_a: OFFER ASK_REFUSED CANCEL ===============  H
 *     Atr <------ wire: pieces with their ticket -------- Ltr    data connection, transport threads
 *
 * TASKS requests have the same prompt of B blocks.  With ASKERS=1 one worker gets them all, with 2 each asker gets its own.  All get
 * a hint to the same owner, which may have lost the blocks: the hint may be old.  Either side evicts unpinned blocks at any moment.
 * So a look into a cache finds any beginning of the prompt, and a block without a pin may have any content.
 * Clients cancel at any moment.  FAULTS times one of these happens at any moment: the owner or an asker crashes and comes back
 * empty (its tasks are placed on it again, LIVES - 1 times), a link is cut (it comes up again, or never), one message is lost without
 * a notice, a data connection breaks, a piece is damaged.  An armed timer may fire at any moment.
 *
 * Names follow src/worker and src/kvxfer: a_state is enum ask_state and, from GRANTED on, enum recv_state; l_state is enum send_state of a
 * serve; an inline is the function of prefix_fetch.c, prefix_serve.c, send.c or recv.c of that name.  A fetch, its transfer and its ticket are three numbers in
 * the code and here.  No two lives of a worker use the same numbers, so each number is the slot of its task and life.
 *
 * Checked:
 *   - Atr writes only into blocks that are leased: no write into a freed block;
 *   - Ltr reads only blocks that are pinned: no read of an evicted block;
 *   - a sealed block is complete and verified, and has the content of its hash: no other block is ever served;
 *   - one worker has one fetch for a block, not two; each task continues or is cancelled, once;
 *   - when no process can move (Monitor), every fetch and every task has ended, no serve is left, and no block is pinned or leased.
 *     An armed timer can move, so this is "every fetch ends";
 *   - no execution is endless (pan -l), and no state is marked as progress;
 *   - with CALM=1 (no cancel, no fault, no timer fires, there is room, the owner has all blocks): every requested block
 *     arrives.  So the end does not depend on timers and limits.
 *
 * Not in the model: the length of the fetch's time limit, STOPPED, the number of serves and fetches at once (refused like a fetch of
 * missing blocks), and the parts of handoff.pml: zombies, placements, the first token.
 *
 * A window is LAYERS pieces, so two serves take turns.  Finished objects are set back to zero, as in handoff.pml.
 * WRONG builds one mistake into the model; check-ask checks that Spin finds each of them. */

#ifndef TASKS
#define TASKS 1
#endif
#ifndef ASKERS
#define ASKERS 1
#endif
#ifndef LIVES
#define LIVES 1
#endif
#ifndef FAULTS
#define FAULTS 1
#endif
#ifndef CALM
#define CALM 0
#endif
#ifndef PATIENT /* 1: no client cancels */
#define PATIENT CALM
#endif
#define B      2 /* blocks of the prompt */
#ifndef LAYERS
#define LAYERS 2
#endif
#define S      (TASKS * LIVES + 1) /* slots 1 ..; 0 is none */

#define task_of(s) (((s) - 1) % TASKS)
#define asker_of(s) (task_of(s) % ASKERS)
#define home_of(k) ((k) % ASKERS)
#define slot_of(k) ((k) + 1 + t_life[k] * TASKS)

byte WRONG = 0; /* from the environment, so that one pan does for all; the first step sets it */
#define UNLEASE_EARLY     1  /* an asker gives its blocks back before the transport has closed the ticket */
#define RELEASE_EARLY     2  /* the owner gives its blocks back before the transport has stopped the push */
#define LATE_PIECE        3  /* the asker's transport writes without looking whether the ticket is open */
#define DAMAGE_TAKEN      4  /* pieces are not verified */
#define COUNTED           5  /* the number of pieces counts, not their places */
#define ANY_OFFER         6  /* an asker accepts an offer for any of its fetches; needs TASKS=2 */
#define SAME_TICKETS      7  /* a restarted worker gives the same tickets again; needs LIVES=2 */
#define NO_LIMIT          8  /* a fetch waits for ever for the link, and for an answer */
#define NO_OFFER_TIMER    9  /* the owner waits for ever for an answer to its offer */
#define NO_DONE_TIMER     10 /* the owner waits for ever for TRANSFER_DONE */
#define REFUSED_PINNED    11 /* a refused offer keeps its references */
#define CANCEL_UNHEARD    12 /* a fetch without a waiting task continues, and wakes its task; needs a client that cancels */
#define NOT_JOINED        13 /* a second task fetches the same blocks again; needs TASKS=2, ASKERS=1 */
#define OWNER_ONLY        14 /* the end of a fetch wakes only the first task; needs TASKS=2, ASKERS=1 */
#define TURN_KEPT         15 /* a loan that is over keeps its turn; wants ASKERS=2, CALM=1 */

mtype = { ASK, OFFER, ASK_REFUSED, GRANT, REFUSED, DONE, CANCEL };
mtype = { NONE, LINKING, ASKED, GRANTED, CLOSING, OFFERED, PUSHING, PUSHED, STOPPING };
mtype = { NEW, WAITS, OVER };

chan to_h[S] = [2] of { mtype, byte }; /* ASK: the first block it lacks; GRANT: the ticket */
chan to_a[S] = [2] of { mtype, byte }; /* OFFER: so many blocks */
chan wire[S] = [2] of { byte, byte, byte }; /* ticket; piece (block in the transfer * LAYERS + layer); the block it is of, B: damaged */

mtype kind = 0; /* these are used within one step only, and 0 between steps */
byte arg = 0, piece = 0, what = 0, i = 0, j = 0, to = 0;

byte faults = FAULTS;
bool is_patient = PATIENT; /* no client cancels any more */
bool link_up[ASKERS], link_gone[ASKERS]; /* gone: it does not come up again */

/* tasks */
mtype t_state[TASKS];
byte t_life[TASKS], t_ask[TASKS];
bool t_cancel[TASKS];

/* askers, engine threads; by worker, and by ask */
bool a_up[ASKERS], a_down[ASKERS];
mtype a_state[S];
byte a_from[S], a_n[S], a_transfer[S];
bool a_lease[S], a_whole[S];
/* askers, transport threads; by ask */
bool atr_open[S], atr_close[S], atr_dead[S], ev_complete[S], ev_ticket_failed[S];
byte atr_bits[S], atr_wrong[S];

/* the owner, engine thread; by transfer */
byte h_sending = 0; /* the transfer whose window the transport has */
bool h_down[ASKERS];
mtype l_state[S];
byte l_from[S], l_n[S], l_ticket[S], l_given[S];
bool l_pins[S];
/* the owner, transport thread */
bool ltr_open[S], ltr_stop[S], ltr_connected[S], ev_push_failed[S];
byte ltr_sent[S];

#define all_bits(n) ((1 << ((n) * LAYERS)) - 1)
#define of_block(bits, b) (((bits) >> ((b) * LAYERS)) & all_bits(1))

inline say_h(s, what_kind, what_arg) {
    if :: link_up[asker_of(s)] && len(to_h[s]) < 2 -> to_h[s]!what_kind, what_arg :: else -> skip fi
}
inline say_a(s, what_kind, what_arg) {
    if :: link_up[asker_of(s)] && len(to_a[s]) < 2 -> to_a[s]!what_kind, what_arg :: else -> skip fi
}
inline drain_h(s) { do :: nempty(to_h[s]) -> to_h[s]?_, _ :: empty(to_h[s]) -> break od }
inline drain_a(s) { do :: nempty(to_a[s]) -> to_a[s]?_, _ :: empty(to_a[s]) -> break od }
inline drain_wire(s) { do :: nempty(wire[s]) -> wire[s]?_, _, _ :: empty(wire[s]) -> break od }

/* ---- worker/runner/prefix_fetch.c ---- */

inline go_on(k) { /* the task begins: it takes the cached blocks and computes the rest, which is not in the model */
    assert(t_state[k] == WAITS || t_state[k] == NEW);
    t_state[k] = OVER; t_ask[k] = 0
}

inline finish(s) {
    a_state[s] = NONE; a_from[s] = 0; a_n[s] = 0; a_transfer[s] = 0; a_whole[s] = false;
    i = 0;
    do
    :: i < TASKS ->
        if :: t_ask[i] == s && (WRONG != OWNER_ONLY || i == task_of(s)) -> go_on(i) :: else -> skip fi;
        i++
    :: else -> break
    od;
    i = 0
}

inline begin_closing(s, is_whole) {
    a_state[s] = CLOSING; a_whole[s] = is_whole; atr_close[s] = true;
    if :: WRONG == UNLEASE_EARLY -> a_lease[s] = false :: else -> skip fi
}

inline give_up(s) {
    if
    :: a_state[s] == GRANTED -> say_h(a_transfer[s], CANCEL, 0); begin_closing(s, false)
    :: a_state[s] == LINKING || a_state[s] == ASKED -> finish(s)
    :: else -> skip
    fi
}

inline say_ask(s) { a_state[s] = ASKED; say_h(s, ASK, a_from[s]) }

inline asks_begin(k) {
    if :: arg = 0 :: arg = 1 :: !CALM -> arg = B fi; /* the number of cached blocks */
    j = 1; to = 0; /* a running fetch of the same blocks */
    do
    :: j < S -> if :: a_state[j] != NONE && asker_of(j) == home_of(k) -> to = j :: else -> skip fi; j++
    :: else -> break
    od;
    if
    :: arg == B -> go_on(k)
    :: arg < B && to != 0 && WRONG != NOT_JOINED -> t_state[k] = WAITS; t_ask[k] = to
    :: else ->
        assert(to == 0);
        j = slot_of(k);
        t_state[k] = WAITS; t_ask[k] = j; a_from[j] = arg;
        if :: a_up[home_of(k)] -> say_ask(j) :: else -> a_state[j] = LINKING fi
    fi;
    arg = 0; j = 0; to = 0
}

inline asks_leave(k) {
    if
    :: t_state[k] == WAITS && WRONG == CANCEL_UNHEARD -> t_state[k] = OVER
    :: t_state[k] == WAITS && WRONG != CANCEL_UNHEARD ->
        t_state[k] = OVER; to = t_ask[k]; t_ask[k] = 0;
        j = 0;
        do
        :: j < TASKS && t_ask[j] != to -> j++
        :: else -> break
        od;
        if :: j == TASKS -> give_up(to) :: else -> skip fi
    :: else -> t_state[k] = OVER
    fi;
    j = 0; to = 0
}

/* Seals the leading blocks that are complete. */
inline on_arrived(s) {
    j = 0;
    do
    :: WRONG != COUNTED && j < a_n[s] && of_block(atr_bits[s], j) == all_bits(1) -> j++
    :: WRONG == COUNTED && (j + 1) * LAYERS <= (atr_bits[s] & 1) + ((atr_bits[s] >> 1) & 1) + ((atr_bits[s] >> 2) & 1) +
           ((atr_bits[s] >> 3) & 1) -> j++
    :: else -> break
    od;
    i = 0;
    do
    :: i < j ->
        assert(of_block(atr_bits[s], i) == all_bits(1));
        assert(of_block(atr_wrong[s], i) == 0);
        i++
    :: else -> break
    od;
    if :: CALM -> assert(j == B - a_from[s]) :: else -> skip fi;
    i = 0; j = 0
}

inline finish_closing(s) {
    on_arrived(s);
    if :: a_whole[s] -> assert(atr_bits[s] == all_bits(a_n[s]) || WRONG == COUNTED); say_h(a_transfer[s], DONE, 0) :: else -> skip fi;
    a_lease[s] = false; atr_bits[s] = 0; atr_wrong[s] = 0;
    finish(s)
}

inline on_offer(s, n) { /* transfer s; its fetch has the same number */
    to = s;
    if
    :: WRONG == ANY_OFFER ->
        j = 1;
        do
        :: j < S -> if :: a_state[j] == ASKED && asker_of(j) == asker_of(s) -> to = j :: else -> skip fi; j++
        :: else -> break
        od
    :: else -> skip
    fi;
    if
    :: a_state[to] == ASKED && n <= B - a_from[to] ->
        a_state[to] = GRANTED; a_n[to] = n; a_transfer[to] = s; a_lease[to] = true; atr_open[to] = true;
        if
        :: WRONG == SAME_TICKETS -> say_h(s, GRANT, task_of(to) + 1)
        :: else -> say_h(s, GRANT, to)
        fi
    :: a_state[to] == ASKED && (n > B - a_from[to] || !CALM) -> say_h(s, REFUSED, 0); finish(to) /* no room */
    :: a_state[to] != ASKED -> say_h(s, REFUSED, 0)
    fi;
    to = 0; j = 0
}

inline asks_message(s) {
    if
    :: kind == OFFER -> on_offer(s, arg)
    :: kind == ASK_REFUSED && a_state[s] == ASKED -> finish(s)
    :: kind == CANCEL ->
        j = 1;
        do
        :: j < S -> if :: a_state[j] == GRANTED && a_transfer[j] == s -> begin_closing(j, false) :: else -> skip fi; j++
        :: else -> break
        od
    :: else -> skip
    fi;
    kind = 0; arg = 0; j = 0
}

proctype Task(byte k)
{
end:
    do
    :: atomic { t_state[k] == NEW && !t_cancel[k] -> asks_begin(k) }
    :: atomic { t_cancel[k] -> t_cancel[k] = false; asks_leave(k) }
    od
}

proctype A(byte w)
{
end:
    do
    :: atomic { a_down[w] -> a_down[w] = false; a_up[w] = false;
        to = 1;
        do
        :: to < S ->
            if
            :: asker_of(to) == w && a_state[to] == GRANTED -> begin_closing(to, false)
            :: asker_of(to) == w && (a_state[to] == LINKING || a_state[to] == ASKED) -> finish(to)
            :: else -> skip
            fi;
            to++
        :: else -> break
        od;
        to = 0 }
    :: atomic { link_up[w] && !a_down[w] && !a_up[w] -> a_up[w] = true;
        to = 1;
        do
        :: to < S -> if :: asker_of(to) == w && a_state[to] == LINKING -> say_ask(to) :: else -> skip fi; to++
        :: else -> break
        od;
        to = 0 }
    od
}

/* ---- a fetch's timers, its ticket's events, and its messages ---- */

proctype Ask(byte s)
{
end:
    do
    :: atomic { nempty(to_a[s]) && !a_down[asker_of(s)] -> to_a[s]?kind, arg; asks_message(s) }
#if !CALM
    :: atomic { (a_state[s] == LINKING || a_state[s] == ASKED) && WRONG != NO_LIMIT -> give_up(s) } /* the limit */
    :: atomic { a_state[s] == GRANTED -> give_up(s) } /* the limit, and the timer of transfer/kvxfer/recv.c */
#endif
    :: atomic { ev_complete[s] -> ev_complete[s] = false;
        if :: a_state[s] == GRANTED -> begin_closing(s, true) :: else -> skip fi }
    :: atomic { ev_ticket_failed[s] -> ev_ticket_failed[s] = false; if :: a_state[s] == GRANTED -> give_up(s) :: else -> skip fi }
    od
}

/* The fetch that a ticket opens. */
inline find_ticket(s, ticket) {
    to = ticket;
    if
    :: WRONG == SAME_TICKETS ->
        i = 1;
        do
        :: i < S -> if :: task_of(i) + 1 == ticket && atr_open[i] -> to = i :: else -> skip fi; i++
        :: else -> break
        od;
        i = 0
    :: else -> skip
    fi
}

/* Writes a piece to the place that the ticket names, and notes a wrong piece. */
inline write_piece(s) {
    assert(a_lease[s]);
    atr_bits[s] = atr_bits[s] | (1 << piece);
    if :: what != a_from[s] + piece / LAYERS -> atr_wrong[s] = atr_wrong[s] | (1 << piece) :: else -> skip fi;
    if :: atr_open[s] && atr_bits[s] == all_bits(a_n[s]) -> atr_open[s] = false; ev_complete[s] = true :: else -> skip fi
}

proctype Atr(byte s) /* reads transfer s, and closes the ticket of fetch s */
{
end:
    do
    :: atomic { nempty(wire[s]) -> wire[s]?arg, piece, what;
        find_ticket(s, arg);
        if
        :: atr_open[to] && what == B && WRONG != DAMAGE_TAKEN ->
            atr_open[to] = false; ev_ticket_failed[to] = true; ev_push_failed[s] = ltr_open[s]
        :: atr_open[to] && (what != B || WRONG == DAMAGE_TAKEN) -> write_piece(to)
        :: !atr_open[to] && WRONG == LATE_PIECE -> write_piece(to)
        :: else -> ev_push_failed[s] = ltr_open[s] /* rejected; the sender gets a notice */
        fi;
        arg = 0; piece = 0; what = 0; to = 0 }
    :: atomic { atr_dead[s] && empty(wire[s]) -> atr_dead[s] = false;
        if :: atr_open[s] -> atr_open[s] = false; ev_ticket_failed[s] = true :: else -> skip fi }
    :: atomic { atr_close[s] -> atr_close[s] = false; atr_open[s] = false;
        ev_complete[s] = false; ev_ticket_failed[s] = false; finish_closing(s) } /* TR_TICKET_CLOSED, and the events before it */
    od
}

/* ---- worker/runner/prefix_serve.c, transfer/kvxfer/send.c ---- */

inline end_turn(s) {
    if :: h_sending == s && WRONG != TURN_KEPT -> h_sending = 0 :: else -> skip fi
}

inline l_free(s) {
    l_state[s] = NONE; l_from[s] = 0; l_n[s] = 0; l_ticket[s] = 0; l_given[s] = 0;
    ltr_open[s] = false; ltr_connected[s] = false; ltr_sent[s] = 0; ev_push_failed[s] = false
}

inline l_over(s) {
    if
    :: l_state[s] == PUSHING || l_state[s] == PUSHED ->
        l_state[s] = STOPPING; ltr_stop[s] = true; end_turn(s);
        if :: WRONG == RELEASE_EARLY -> l_pins[s] = false :: else -> skip fi
    :: l_state[s] == OFFERED -> l_free(s);
        if :: WRONG != REFUSED_PINNED -> l_pins[s] = false :: else -> skip fi
    :: else -> skip
    fi
}

inline l_give_up(s) {
    if :: l_state[s] != NONE && l_state[s] != STOPPING -> say_a(s, CANCEL, 0); l_over(s) :: else -> skip fi
}

inline lend(s, from) {
    if :: i = B - from :: !CALM && from == 0 -> i = 1 :: !CALM -> i = 0 fi;
    if
    :: i == 0 -> say_a(s, ASK_REFUSED, 0)
    :: else -> l_state[s] = OFFERED; l_from[s] = from; l_n[s] = i; l_pins[s] = true; say_a(s, OFFER, i)
    fi;
    i = 0
}

inline loans_message(s) {
    if
    :: kind == ASK && l_state[s] == NONE -> lend(s, arg)
    :: kind == GRANT && l_state[s] == OFFERED -> l_state[s] = PUSHING; l_ticket[s] = arg; ltr_open[s] = true
    :: kind == REFUSED && l_state[s] == OFFERED -> l_over(s)
    :: kind == DONE && (l_state[s] == PUSHING || l_state[s] == PUSHED) -> l_over(s)
    :: kind == CANCEL -> l_over(s)
    :: else -> skip
    fi;
    kind = 0; arg = 0
}

proctype Loan(byte s)
{
end:
    do
    :: atomic { nempty(to_h[s]) && !h_down[asker_of(s)] -> to_h[s]?kind, arg; loans_message(s) }
    :: atomic { l_state[s] == PUSHING && h_sending == 0 -> /* its turn: one window */
        h_sending = s; l_given[s] = l_given[s] + LAYERS;
        if :: l_given[s] == l_n[s] * LAYERS -> l_state[s] = PUSHED :: else -> skip fi }
    :: atomic { h_sending == s && ltr_open[s] && ltr_sent[s] == l_given[s] -> h_sending = 0 } /* TR_PUSH_SENT */
#if !CALM
    :: atomic { l_state[s] == OFFERED && WRONG != NO_OFFER_TIMER -> l_give_up(s) }
    :: atomic { l_state[s] == PUSHED && WRONG != NO_DONE_TIMER -> l_give_up(s) }
    :: atomic { l_state[s] == PUSHING && h_sending == s -> l_give_up(s) } /* its window does not leave */
#endif
    :: atomic { ev_push_failed[s] -> ev_push_failed[s] = false; l_give_up(s) }
    od
}

proctype Ltr(byte s)
{
end:
    do
    :: atomic { ltr_open[s] && !ltr_stop[s] && ltr_sent[s] < l_given[s] && nfull(wire[s]) ->
        assert(l_pins[s]); /* it reads the block now */
        ltr_connected[s] = true;
        wire[s]!l_ticket[s], (ltr_sent[s] % l_n[s]) * LAYERS + ltr_sent[s] / l_n[s], l_from[s] + ltr_sent[s] % l_n[s];
        ltr_sent[s]++ }
    :: atomic { ltr_open[s] && ltr_stop[s] && WRONG == RELEASE_EARLY && ltr_sent[s] < l_given[s] -> assert(l_pins[s]) }
    :: atomic { ltr_stop[s] -> ltr_stop[s] = false; l_pins[s] = false; l_free(s) } /* TR_PUSH_STOPPED */
    od
}

inline peer_lost(w) {
    to = 1;
    do
    :: to < S -> if :: asker_of(to) == w -> l_over(to) :: else -> skip fi; to++
    :: else -> break
    od;
    to = 0
}

active proctype H()
{
end:
    do
    :: atomic { h_down[0] -> h_down[0] = false; peer_lost(0) }
#if ASKERS == 2
    :: atomic { h_down[1] -> h_down[1] = false; peer_lost(1) }
#endif
    od
}

/* ---- clients that go away ---- */

active proctype Clients()
{
end:
    do
    :: !is_patient -> is_patient = true
    :: atomic { !is_patient && t_state[0] != OVER && !t_cancel[0] -> t_cancel[0] = true }
#if TASKS == 2
    :: atomic { !is_patient && t_state[1] != OVER && !t_cancel[1] -> t_cancel[1] = true }
#endif
    od
}

/* ---- faults ---- */

inline cut_link(w) { /* messages in flight are lost, and both ends get a notice if they knew the link */
    link_up[w] = false;
    a_down[w] = a_down[w] || a_up[w];
    h_down[w] = true;
    i = 1;
    do
    :: i < S -> if :: asker_of(i) == w -> drain_h(i); drain_a(i) :: else -> skip fi; i++
    :: else -> break
    od;
    i = 0
}

inline crash_holder() {
    h_sending = 0;
    j = 0;
    do
    :: j < ASKERS -> cut_link(j); h_down[j] = false; j++
    :: else -> break
    od;
    j = 1;
    do
    :: j < S ->
        atr_dead[j] = atr_dead[j] || ltr_connected[j]; /* pieces on the wire may still arrive */
        l_free(j); l_pins[j] = false; ltr_stop[j] = false; j++
    :: else -> break
    od;
    j = 0
}

/* A push that has not connected yet will do so to the worker's next life. */
inline crash_asker(w) {
    cut_link(w);
    a_up[w] = false; a_down[w] = false;
    j = 1;
    do
    :: j < S && asker_of(j) == w ->
        a_state[j] = NONE; a_from[j] = 0; a_n[j] = 0; a_transfer[j] = 0; a_lease[j] = false; a_whole[j] = false;
        atr_open[j] = false; atr_close[j] = false; atr_dead[j] = false; atr_bits[j] = 0; atr_wrong[j] = 0;
        ev_complete[j] = false; ev_ticket_failed[j] = false;
        drain_wire(j);
        ev_push_failed[j] = ltr_connected[j]; j++
    :: j < S && asker_of(j) != w -> j++
    :: else -> break
    od;
    j = 0;
    do
    :: j < TASKS && home_of(j) == w && t_state[j] != OVER ->
        t_ask[j] = 0; t_cancel[j] = false;
        if :: t_life[j] + 1 < LIVES -> t_life[j]++; t_state[j] = NEW :: else -> t_state[j] = OVER fi;
        j++
    :: j < TASKS && (home_of(j) != w || t_state[j] == OVER) -> j++
    :: else -> break
    od;
    j = 0
}

inline lose_message(s) {
    if
    :: len(to_h[s]) > 0 -> to_h[s]?_, _
    :: len(to_a[s]) > 0 -> to_a[s]?_, _
    :: else -> skip
    fi
}

inline break_data(s) { drain_wire(s); ev_push_failed[s] = true; atr_dead[s] = true; ltr_connected[s] = false }

active proctype Faults()
{
end:
    do
#if !CALM
    :: d_step { faults > 0 && link_up[0] -> faults--; cut_link(0) }
    :: d_step { faults > 0 -> faults--; crash_holder() }
    :: d_step { faults > 0 -> faults--; crash_asker(0) }
    :: atomic { faults > 0 -> faults--; lose_message(1) }
    :: atomic { faults > 0 && ltr_connected[1] -> faults--; break_data(1) }
    :: atomic { faults > 0 && nempty(wire[1]) -> faults--; wire[1]?arg, piece, _; wire[1]!arg, piece, B; arg = 0; piece = 0 }
#if TASKS == 2
    :: atomic { faults > 0 -> faults--; lose_message(2) }
    :: atomic { faults > 0 && ltr_connected[2] -> faults--; break_data(2) }
#endif
    :: faults > 0 -> faults-- /* the fault does not happen */
    :: atomic { !link_up[0] && !link_gone[0] -> link_up[0] = true }
    :: atomic { !link_up[0] && !link_gone[0] -> link_gone[0] = true } /* it stays down */
#if ASKERS == 2
    :: atomic { !link_up[1] && !link_gone[1] -> link_up[1] = true }
    :: atomic { !link_up[1] && !link_gone[1] -> link_gone[1] = true }
#endif
#else
    :: false -> skip
#endif
    od
}

/* ---- the end ---- */

active proctype Monitor()
{
    a_state[1] != 0; /* init has set everything */
    timeout -> /* no process can move */
    d_step {
        assert(h_sending == 0);
        i = 0;
        do
        :: i < TASKS -> assert(t_state[i] == OVER && t_ask[i] == 0); i++
        :: else -> break
        od;
        i = 1;
        do
        :: i < S ->
            assert(a_state[i] == NONE && !a_lease[i] && !atr_open[i]);
            assert(l_state[i] == NONE && !l_pins[i] && !ltr_open[i]);
            assert(empty(wire[i]));
            i++
        :: else -> break
        od;
        i = 0
    }
}

init {
    atomic {
        c_code { now.WRONG = getenv("WRONG") != NULL ? (uchar)atoi(getenv("WRONG")) : 0; };
        i = 0;
        do
        :: i < TASKS -> t_state[i] = NEW; run Task(i); i++
        :: else -> break
        od;
        i = 0;
        do
        :: i < ASKERS -> link_up[i] = true; a_up[i] = true; run A(i); i++
        :: else -> break
        od;
        i = 1;
        do
        :: i < S -> a_state[i] = NONE; l_state[i] = NONE; run Ask(i); run Atr(i); run Loan(i); run Ltr(i); i++
        :: else -> break
        od;
        i = 0
    }
}
