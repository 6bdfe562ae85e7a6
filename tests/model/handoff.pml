/* SPDX-License-Identifier: Apache-2.0 */
/* The hand-off of KV from a prefill worker P to a decode worker D, for Spin.  docs/handoff.md is its prose.
 *
 *     Router ---- submit, cancel, proceed ----------------> P, D     engine threads
 *     P  == to_d: OFFER FIRST CANCEL STOPPED ============>  D        control link: in order; a cut loses what is under way
 *     P  <= to_p: GRANT REFUSED DONE CANCEL STOPPED ======  D
 *     Ptr ------- wire: pieces with their ticket --------> Dtr       data connection, transport threads
 *
 * One request is placed up to TRIES times on the pair.  The client may cancel at any moment, and FAULTS times one of these
 * happens, at any moment: P or D crashes and comes back with nothing, the control link is cut (it comes up again), the
 * data connection breaks.  A timer may fire whenever it is armed: what is checked must not depend on how long it is.
 *
 * Names follow src/kvxfer and src/transport: p_state is enum send_state, d_state is enum recv_state, and an inline is the function of
 * send.c or recv.c of that name.  A transfer, its ticket and its push have one number t, the attempt's: in the code they
 * are drawn so that no two are the same.  Two pieces, each a block of its own, stand for the prompt.
 *
 * Checked:
 *   - Dtr writes only into blocks that are leased for that ticket: no write into a freed block, also not by a late piece;
 *   - Ptr reads only blocks that are leased;
 *   - D decodes from "whole" only with every piece and the first token, and else counts only leading pieces that are there;
 *   - at most one answer is accepted: exactly one owner;
 *   - when nothing can move any more (Monitor), every transfer is closed, no lease is left and no block is pinned, and the request was
 *     answered, unless it was cancelled or D was lost on the last try;
 *   - no cycle without progress: pan -l. */

#ifndef TRIES
#define TRIES 2
#endif
#ifndef FAULTS
#define FAULTS 2
#endif
#define T   3 /* transfers 1 and 2; 0 is none */
#define ALL 3 /* both pieces */

mtype = { OFFER, GRANT, REFUSED, FIRST, DONE, CANCEL, STOPPED };
mtype = { NONE, OFFERED, PUSHING, PUSHED, STOPPING, CLOSED, GRANTED, COMPLETE, CLOSING };

chan to_d[T] = [3] of { mtype };
chan to_p[T] = [3] of { mtype };
chan wire[T] = [2] of { byte };

byte faults = FAULTS;
bool link_up = true;

/* what the router says, and what it hears */
byte attempt = 0;
byte answers = 0;
bool is_over = false, was_cancelled = false, was_failed = false;
bool submit_p[T], submit_d[T], cancel_p[T], cancel_d[T], proceed_d[T];
bool heard_p_failed[T], heard_d_answer[T], heard_d_lost[T];

/* P, engine thread */
mtype p_state[T];
bool p_task[T], p_has_first[T], p_bad[T], p_over[T], p_must_confirm[T], p_lease[T], p_peer_lost[T];
byte p_computed[T];
/* P, transport thread */
bool ptr_open[T], ptr_stop[T], ev_push_failed[T], ev_push_stopped[T];
byte ptr_limit[T], ptr_sent[T];

/* D, engine thread */
mtype d_state[T];
bool d_task[T], d_parked[T], d_running[T], d_has_first[T], d_has_all[T], d_gone[T], d_must_confirm[T], d_good[T], d_peer_lost[T];
byte d_lease = 0; /* the transfer that the destination blocks are leased for */
byte d_owner = 0; /* the attempt whose sequence holds them */
/* D, transport thread */
bool dtr_open[T], dtr_close[T], dtr_dead[T], ev_complete[T], ev_ticket_failed[T], ev_closed[T];
byte dtr_bits[T];

inline say_d(what) { if :: link_up && len(to_d[t]) < 3 -> to_d[t]!what :: !link_up || len(to_d[t]) == 3 -> skip fi }
inline say_p(what) { if :: link_up && len(to_p[t]) < 3 -> to_p[t]!what :: !link_up || len(to_p[t]) == 3 -> skip fi }

/* ---- kvxfer/send.c ---- */

inline p_close_now() {
    p_state[t] = CLOSED;
    p_lease[t] = false;
    if :: p_must_confirm[t] -> say_d(STOPPED) :: else -> skip fi
}

inline p_over_with(is_good) {
    if
    :: !p_over[t] ->
        p_over[t] = true;
        if
        :: is_good -> p_task[t] = false /* sched_release(): HANDED_OFF */
        :: else -> p_bad[t] = true      /* the task goes on to its first token, then fails */
        fi;
        if
        :: p_state[t] == PUSHING || p_state[t] == PUSHED -> p_state[t] = STOPPING; ptr_stop[t] = true
        :: else -> p_close_now()
        fi
    :: else -> skip
    fi
}

inline p_give_up() {
    if :: !p_over[t] -> say_d(CANCEL); p_over_with(false) :: else -> skip fi
}

inline p_offer() {
    p_state[t] = OFFERED;
    if :: p_computed[t] > 0 -> p_lease[t] = true :: else -> skip fi;
    say_d(OFFER)
}

inline p_pump() {
    if
    :: p_state[t] == PUSHING ->
        ptr_limit[t] = p_computed[t];
        if :: p_computed[t] == 2 -> p_state[t] = PUSHED :: else -> skip fi
    :: else -> skip
    fi
}

inline p_say_first() {
    if :: p_has_first[t] && (p_state[t] == PUSHING || p_state[t] == PUSHED) -> say_d(FIRST) :: else -> skip fi
}

inline p_message() {
    if
    :: kind == GRANT && p_state[t] == OFFERED -> p_state[t] = PUSHING; ptr_open[t] = true; p_pump(); p_say_first()
    :: kind == REFUSED && p_state[t] == OFFERED -> p_over_with(false)
    :: kind == DONE && p_state[t] == PUSHED -> p_over_with(true)
    :: kind == DONE && p_state[t] == PUSHING -> p_over_with(false)
    :: kind == CANCEL && p_state[t] != NONE ->
        p_must_confirm[t] = (p_state[t] == PUSHING || p_state[t] == PUSHED || p_state[t] == STOPPING);
        p_over_with(false)
    :: else -> skip
    fi
}

/* ---- P: prefill/depart.c, the scheduler, and P's transport thread ---- */

proctype P(byte t)
{
    mtype kind;
end:
    do
    :: atomic { submit_p[t] -> submit_p[t] = false; p_task[t] = true; if :: link_up -> p_offer() :: else -> skip fi }
    :: atomic { p_task[t] && p_state[t] == NONE && !p_bad[t] && link_up && !submit_p[t] -> p_offer() } /* the link came up */
    :: atomic { p_task[t] && p_state[t] == NONE && !p_bad[t] && !link_up -> p_bad[t] = true }           /* it did not in time */
    :: atomic { p_task[t] && p_computed[t] < 2 -> /* a step */
        p_computed[t]++;
        if :: p_state[t] != NONE && !p_over[t] -> p_lease[t] = true; p_pump() :: else -> skip fi }
    :: atomic { p_task[t] && p_computed[t] == 2 && !p_has_first[t] -> p_has_first[t] = true; p_say_first() }
    :: atomic { p_task[t] && p_has_first[t] && p_bad[t] -> p_task[t] = false; heard_p_failed[t] = true }
    :: atomic { p_state[t] == OFFERED -> p_give_up() } /* tick */
    :: atomic { p_state[t] == PUSHED -> p_give_up() }  /* tick */
    :: atomic { nempty(to_p[t]) && !p_peer_lost[t] -> to_p[t]?kind; p_message() }
    :: atomic { p_peer_lost[t] -> p_peer_lost[t] = false; if :: p_state[t] != NONE -> p_over_with(false) :: else -> skip fi }
    :: atomic { cancel_p[t] && !submit_p[t] -> cancel_p[t] = false; p_task[t] = false;
        if :: p_state[t] != NONE -> p_give_up() :: else -> skip fi }
    :: atomic { ev_push_failed[t] -> ev_push_failed[t] = false; if :: p_state[t] != NONE -> p_give_up() :: else -> skip fi }
    :: atomic { ev_push_stopped[t] -> ev_push_stopped[t] = false; if :: p_state[t] == STOPPING -> p_close_now() :: else -> skip fi }
    od
}

proctype Ptr(byte t)
{
end:
    do
    :: atomic { ptr_open[t] && !ptr_stop[t] && ptr_sent[t] < ptr_limit[t] && nfull(wire[t]) ->
        assert(p_lease[t]); /* it reads the block now */
        wire[t]!ptr_sent[t]; ptr_sent[t]++ }
    :: atomic { ptr_stop[t] -> ptr_stop[t] = false; ptr_open[t] = false; ev_push_stopped[t] = true }
    od
}

/* ---- kvxfer/recv.c ---- */

inline d_begin_closing(is_good) {
    if
    :: d_state[t] == GRANTED || d_state[t] == COMPLETE -> d_state[t] = CLOSING; d_good[t] = is_good; dtr_close[t] = true
    :: else -> skip
    fi
}

inline d_give_up() {
    if
    :: d_state[t] == GRANTED || d_state[t] == COMPLETE -> say_p(CANCEL); d_begin_closing(false)
    :: else -> skip
    fi
}

inline d_look_whether_whole() {
    if :: d_state[t] == COMPLETE && d_has_first[t] -> d_begin_closing(true) :: else -> skip fi
}

inline d_grant() {
    d_state[t] = GRANTED;
    assert(d_owner == t && d_lease == 0);
    d_lease = t;
    dtr_open[t] = true;
    say_p(GRANT)
}

inline d_finish_closing() {
    d_state[t] = CLOSED;
    d_lease = 0;
    if :: d_must_confirm[t] -> say_p(STOPPED) :: else -> skip fi;
    if
    :: d_has_all[t] && d_has_first[t] && d_good[t] -> assert(dtr_bits[t] == ALL); say_p(DONE)
    :: else -> skip
    fi;
    if :: !d_gone[t] -> assert(d_task[t]); d_task[t] = false; d_running[t] = true :: else -> skip fi
}

inline d_message() {
    if
    :: kind == OFFER && d_task[t] && d_state[t] == NONE -> d_grant()
    :: kind == OFFER && !d_task[t] && d_state[t] == NONE && !d_running[t] -> d_parked[t] = true
    :: kind == OFFER && (d_state[t] != NONE || d_running[t]) -> say_p(REFUSED)
    :: kind == FIRST && d_state[t] != NONE -> d_has_first[t] = true; d_look_whether_whole()
    :: kind == CANCEL && d_state[t] != NONE -> d_must_confirm[t] = true; d_begin_closing(false)
    :: else -> skip
    fi
}

/* ---- D: decode/arrive.c, the scheduler, and D's transport thread ---- */

inline d_end_task() { /* its blocks go back to the pool, or become zombies while leased */
    d_task[t] = false;
    d_running[t] = false;
    if :: d_owner == t -> d_owner = 0 :: else -> skip fi
}

proctype D(byte t)
{
    mtype kind;
end:
    do
    :: atomic { submit_d[t] -> submit_d[t] = false;
        if
        :: d_owner == 0 && d_lease == 0 -> d_owner = t; d_task[t] = true;
            if :: d_parked[t] -> d_parked[t] = false; d_grant() :: else -> skip fi
        :: else -> d_running[t] = true /* no room for an arrival: computed when there is */
        fi }
    :: atomic { d_parked[t] && !submit_d[t] -> d_parked[t] = false; say_p(REFUSED) } /* PARK_NS */
    :: atomic { d_task[t] && d_state[t] == NONE -> d_task[t] = false; d_running[t] = true } /* OFFER_WAIT_NS */
    :: atomic { proceed_d[t] && !submit_d[t] -> proceed_d[t] = false;
        if
        :: d_task[t] && d_state[t] == NONE -> d_task[t] = false; d_running[t] = true
        :: d_task[t] && d_state[t] != NONE -> d_give_up()
        :: else -> skip
        fi }
    :: atomic { d_running[t] -> d_end_task(); heard_d_answer[t] = true } /* decoded to the end */
    :: atomic { cancel_d[t] && !submit_d[t] -> cancel_d[t] = false;
        if :: d_task[t] && d_state[t] != NONE -> d_gone[t] = true; d_give_up() :: else -> skip fi;
        d_end_task() }
    :: atomic { d_state[t] == GRANTED || d_state[t] == COMPLETE -> d_give_up() } /* tick */
    :: atomic { nempty(to_d[t]) && !d_peer_lost[t] -> to_d[t]?kind; d_message() }
    :: atomic { d_peer_lost[t] -> d_peer_lost[t] = false; d_parked[t] = false; d_begin_closing(false) }
    :: atomic { ev_complete[t] -> ev_complete[t] = false; d_has_all[t] = true;
        if :: d_state[t] == GRANTED -> d_state[t] = COMPLETE :: else -> skip fi; d_look_whether_whole() }
    :: atomic { ev_ticket_failed[t] -> ev_ticket_failed[t] = false; d_give_up() }
    :: atomic { ev_closed[t] && !ev_complete[t] && !ev_ticket_failed[t] -> ev_closed[t] = false;
        if :: d_state[t] == CLOSING -> d_finish_closing() :: else -> skip fi }
    od
}

proctype Dtr(byte t)
{
    byte piece;
end:
    do
    :: atomic { nempty(wire[t]) -> wire[t]?piece;
        if
        :: dtr_open[t] ->
            assert(d_lease == t); /* it writes into the block now */
            dtr_bits[t] = dtr_bits[t] | (1 << piece);
            if :: dtr_bits[t] == ALL -> dtr_open[t] = false; ev_complete[t] = true :: else -> skip fi
        :: else -> if :: ptr_open[t] -> ev_push_failed[t] = true :: else -> skip fi /* rejected; the sender hears of it */
        fi }
    :: atomic { dtr_dead[t] && empty(wire[t]) -> dtr_dead[t] = false;
        if :: dtr_open[t] -> dtr_open[t] = false; ev_ticket_failed[t] = true :: else -> skip fi }
    :: atomic { dtr_close[t] -> dtr_close[t] = false; dtr_open[t] = false; ev_closed[t] = true }
    od
}

/* ---- the router: router/dispatch.c, router/stream.c ---- */

inline place() { attempt++; submit_d[attempt] = true; submit_p[attempt] = true }

active proctype Router()
{
    byte a;
    atomic { place() }
end:
    do
    :: atomic { heard_p_failed[attempt] -> heard_p_failed[attempt] = false;
        if :: !is_over -> proceed_d[attempt] = true :: else -> skip fi }
    :: atomic { heard_d_answer[attempt] -> heard_d_answer[attempt] = false;
        if :: !is_over -> answers++; is_over = true; cancel_p[attempt] = p_task[attempt] || submit_p[attempt] :: else -> skip fi }
    :: atomic { heard_d_lost[attempt] -> heard_d_lost[attempt] = false;
        if
        :: !is_over ->
            cancel_p[attempt] = true;
            if :: attempt < TRIES -> place() :: else -> is_over = true; was_failed = true fi
        :: else -> skip
        fi }
    :: atomic { !is_over -> is_over = true; was_cancelled = true; cancel_p[attempt] = true; cancel_d[attempt] = true }
    od
}

/* ---- what goes wrong ---- */

inline cut_link() { /* what was under way is gone, both ends are told, and it comes up again */
    link_up = false;
    i = 1;
    do
    :: i < T ->
        do :: nempty(to_d[i]) -> to_d[i]?_ :: empty(to_d[i]) -> break od;
        do :: nempty(to_p[i]) -> to_p[i]?_ :: empty(to_p[i]) -> break od;
        p_peer_lost[i] = true; d_peer_lost[i] = true; i++
    :: else -> break
    od
}

inline crash_p() {
    cut_link();
    i = 1;
    do
    :: i < T ->
        if :: p_task[i] || submit_p[i] -> heard_p_failed[i] = true :: else -> skip fi;
        submit_p[i] = false; cancel_p[i] = false;
        p_state[i] = NONE; p_task[i] = false; p_has_first[i] = false; p_bad[i] = false; p_over[i] = false;
        p_must_confirm[i] = false; p_lease[i] = false; p_computed[i] = 0; p_peer_lost[i] = false;
        if :: ptr_open[i] -> dtr_dead[i] = true :: else -> skip fi; /* what is on the wire may still arrive */
        ptr_open[i] = false; ptr_stop[i] = false; ptr_limit[i] = 0; ptr_sent[i] = 0;
        ev_push_failed[i] = false; ev_push_stopped[i] = false; i++
    :: else -> break
    od
}

inline crash_d() {
    cut_link();
    i = 1;
    do
    :: i < T ->
        if :: i == attempt && (d_task[i] || d_running[i] || submit_d[i]) -> heard_d_lost[i] = true :: else -> skip fi;
        submit_d[i] = false; cancel_d[i] = false; proceed_d[i] = false;
        d_state[i] = NONE; d_task[i] = false; d_parked[i] = false; d_running[i] = false; d_has_first[i] = false;
        d_has_all[i] = false; d_gone[i] = false; d_must_confirm[i] = false; d_good[i] = false; d_peer_lost[i] = false;
        dtr_open[i] = false; dtr_close[i] = false; dtr_dead[i] = false; dtr_bits[i] = 0;
        ev_complete[i] = false; ev_ticket_failed[i] = false; ev_closed[i] = false;
        do :: nempty(wire[i]) -> wire[i]?_ :: empty(wire[i]) -> break od;
        if :: ptr_open[i] -> ev_push_failed[i] = true :: else -> skip fi; i++
    :: else -> break
    od;
    d_lease = 0; d_owner = 0
}

active proctype Faults()
{
    byte i;
end:
    do
    :: d_step { faults > 0 && link_up -> faults--; cut_link(); i = 0 }
    :: d_step { faults > 0 -> faults--; crash_p(); i = 0 }
    :: d_step { faults > 0 -> faults--; crash_d(); i = 0 }
    :: atomic { faults > 0 && (ptr_open[1] || ptr_open[2]) -> faults--;
        if :: ptr_open[1] -> i = 1 :: ptr_open[2] -> i = 2 fi;
        do :: nempty(wire[i]) -> wire[i]?_ :: empty(wire[i]) -> break od;
        ev_push_failed[i] = true; dtr_dead[i] = true; i = 0 }
    :: atomic { !link_up -> link_up = true }
    od
}

/* ---- the end ---- */

active proctype Monitor()
{
    byte i;
    timeout -> /* nothing else can move */
    assert(is_over);
    assert(answers == (was_cancelled || was_failed -> 0 : 1));
    assert(d_lease == 0 && d_owner == 0);
    i = 1;
    do
    :: i < T ->
        assert(p_state[i] == NONE || p_state[i] == CLOSED);
        assert(d_state[i] == NONE || d_state[i] == CLOSED);
        assert(!p_lease[i] && !p_task[i] && !d_task[i] && !d_running[i] && !d_parked[i]);
        assert(!ptr_open[i] && !dtr_open[i] && empty(wire[i]));
        i++
    :: else -> break
    od
}

init {
    byte i = 1;
    atomic {
        do
        :: i < T -> p_state[i] = NONE; d_state[i] = NONE; run P(i); run Ptr(i); run D(i); run Dtr(i); i++
        :: else -> break
        od
    }
}
