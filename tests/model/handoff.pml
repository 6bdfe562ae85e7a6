/* SPDX-License-Identifier: Apache-2.0 */
/* The hand-off of KV from a prefill worker P to a decode worker D, for Spin.  docs/handoff.md describes it; check-handoff runs it.
 *
 *     Router ---- submit, cancel, proceed ----------------> P, D     engine threads
 *     P  == to_d: OFFER FIRST CANCEL ====================>  D        control link: in order; a cut loses the messages in flight
 *     P  <= to_p: GRANT REFUSED DONE CANCEL ==============  D
 *     Ptr ------- wire: pieces with their ticket --------> Dtr       data connection, transport threads
 *     Router <--- tokens, by position -------------------- D
 *
 * One request is placed up to TRIES times on the pair.  The client may cancel at any moment.  FAULTS times one of these
 * happens, at any moment: P or D crashes and comes back empty, the control link is cut (it comes up again), one message
 * on it is lost without a notice, the data connection breaks, the router gives a placement up (its link to D is gone) while D lives.
 * An armed timer may fire at any moment, so the checks do not depend on its length.
 *
 * Names follow src/kvxfer and src/transport: p_state is enum send_state, d_state is enum recv_state, and an inline is the function of
 * send.c or recv.c of that name.  A transfer, its ticket and its push have one number t, the number of the attempt.  In the code
 * no two of these numbers are the same.  Two pieces, each a block of its own, stand for the prompt, two tokens for the answer.
 *
 * Checked:
 *   - Dtr writes only into blocks that are leased for that ticket: no write into a freed block, also not by a late piece;
 *   - Ptr reads only blocks that are leased;
 *   - D decodes from "whole" only with every piece and the first token;
 *   - each position of the answer is taken once, in order: exactly one owner;
 *   - when no process can move (Monitor), every transfer is closed, no lease is left and no block is pinned, and the request was
 *     answered, unless it was cancelled or D was lost on the last try.  An armed timer can move, so this is "every transfer ends"; a possible
 *     cancel or fault cannot hide a request that hangs, because both may also not happen;
 *   - no execution is endless: no cycle without progress (pan -l), and no state is marked as progress.
 *
 * Not in the model, because it changes no result: STOPPED (both ends ignore it), "refused for now" (no end sends it; send.c has a timer
 * for it), the first token on its way from P to the router, D's two minutes without an offer (PROCEED must work without them).
 *
 * Links are in order, so a worker learns the end of a placement before it learns of the next one.  Some events of a transport have only
 * one possible answer (TR_PUSH_STOPPED, TR_TICKET_CLOSED); each of these is one step with its cause, and so is each message to the router.
 * The router's own messages, and all other events, may take any time.  Finished objects are set back to zero, and messages to them are
 * removed.  So states that differ only in dead values are one state, and Spin can visit two placements exhaustively.
 *
 * WRONG builds one mistake into the model; check-handoff checks that Spin finds each of them. */

#ifndef TRIES
#define TRIES 2
#endif
#ifndef FAULTS
#define FAULTS 1
#endif
#ifndef ONLY_MOVES /* 1: the only fault is that the router gives a placement up; the client stays; no timer of a transfer */
#define ONLY_MOVES 0
#endif
#define T      (TRIES + 1) /* transfers 1 ..; 0 is none */
#define ALL    3           /* both pieces */
#define ANSWER 2           /* tokens */

byte WRONG = 0; /* from the environment, so that one pan does for all; the first step sets it */
#define UNLEASE_EARLY      1  /* D gives its blocks back before the transport has closed the ticket */
#define RELEASE_EARLY      2  /* P gives its blocks back before the transport has stopped the push */
#define LATE_PIECE         3  /* D's transport writes without looking whether the ticket is open */
#define SENT_IS_ARRIVED    4  /* D takes the first token as proof of all pieces */
#define WITHOUT_FIRST      5  /* D decodes from the pieces alone */
#define NO_OFFER_TIMER     6  /* P waits for ever for an answer to its offer */
#define NO_PROGRESS_TIMERS 7  /* P waits for ever for TRANSFER_DONE, and D for pieces and the first token; one of the two would be enough */
#define PROCEED_IGNORED    8  /* D waits for an offer although PROCEED came */
#define PARKED_FOR_EVER    9  /* an offer that overtook its SUBMIT is never refused */
#define OFFERS_FOR_EVER    10 /* P answers each refusal with the next offer */
#define OLD_TOKENS         11 /* the router takes tokens of a placement that it gave up; needs TRIES=2 */
#define ZOMBIES_TAKEN      12 /* blocks that are given up but leased count as free; needs TRIES=2 */

mtype = { OFFER, GRANT, REFUSED, FIRST, DONE, CANCEL };
mtype = { NONE, OFFERED, PUSHING, PUSHED, STOPPING, CLOSED, GRANTED, COMPLETE, CLOSING };

chan to_d[T] = [3] of { mtype };
chan to_p[T] = [3] of { mtype };
chan wire[T] = [2] of { byte };

mtype kind = 0; /* these three are used within one step only, and 0 between steps */
byte piece = 0, i = 0;

byte faults = FAULTS;
bool link_up = true;

/* the router: its messages, and the tokens that it took */
byte attempt = 0, n_taken = 0;
bool is_patient = ONLY_MOVES; /* the client does not cancel any more */
bool is_over = false, was_cancelled = false, was_failed = false;
bool submit_p[T], submit_d[T], cancel_p[T], cancel_d[T], proceed_d[T];

/* P, engine thread */
mtype p_state[T];
bool p_task[T], p_bad[T], p_lease[T], p_peer_lost[T];
byte p_computed[T]; /* 2: the first token is sampled too */
/* P, transport thread; p_computed pieces were handed to it */
bool ptr_open[T], ptr_stop[T], ev_push_failed[T];
byte ptr_sent[T];

/* D, engine thread */
mtype d_state[T];
bool d_task[T], d_parked[T], d_running[T], d_has_first[T], d_gone[T], d_good[T], d_peer_lost[T];
byte d_next[T];   /* position of the next token */
byte d_lease = 0; /* the transfer that the destination blocks are leased for */
byte d_owner = 0; /* the attempt whose sequence holds them */
/* D, transport thread */
bool dtr_open[T], dtr_close[T], dtr_dead[T], ev_complete[T], ev_ticket_failed[T];
byte dtr_bits[T];

inline say_d(what) { if :: link_up && len(to_d[t]) < 3 -> to_d[t]!what :: else -> skip fi }
inline say_p(what) {
    if
    :: link_up && len(to_p[t]) < 3 && (p_task[t] || p_state[t] != NONE || submit_p[t]) -> to_p[t]!what
    :: else -> skip /* P does not know the transfer any more: it drops the message */
    fi
}
inline drain(c) { do :: nempty(c) -> c?_ :: empty(c) -> break od }

/* ---- the router: fleet/router/dispatch.c, fleet/router/stream.c; it acts on messages at once, and its own messages may take any time ---- */

inline place() {
    attempt++;
    submit_d[attempt] = true;
    submit_p[attempt] = true;
    d_next[attempt] = n_taken
}

inline placement_lost() { /* D is gone for the router */
    if
    :: !is_over ->
        cancel_p[attempt] = p_task[attempt] || submit_p[attempt];
        if :: attempt < TRIES -> place() :: else -> is_over = true; was_failed = true fi
    :: else -> skip
    fi
}

inline heard_p_failed(a) { if :: !is_over && a == attempt -> proceed_d[a] = true :: else -> skip fi }

inline router_takes() { /* a token of placement t */
    if
    :: !is_over && (t == attempt || WRONG == OLD_TOKENS) ->
        assert(d_next[t] == n_taken);
        n_taken++;
        if
        :: n_taken == ANSWER -> is_over = true; cancel_p[attempt] = p_task[attempt] || submit_p[attempt]
        :: else -> skip
        fi
    :: else -> skip
    fi
}

/* ---- transfer/kvxfer/send.c ---- */

inline p_forget() { /* nothing of it is left: as if it had never been */
    if
    :: !p_task[t] && p_state[t] == CLOSED ->
        p_state[t] = NONE; p_computed[t] = 0; p_bad[t] = false;
        ev_push_failed[t] = false; drain(to_p[t])
    :: else -> skip
    fi
}

inline p_over_with(is_good) {
    if
    :: p_state[t] == OFFERED || p_state[t] == PUSHING || p_state[t] == PUSHED ->
        if
        :: is_good -> p_task[t] = false /* sched_release(): HANDED_OFF */
        :: else -> p_bad[t] = p_task[t] /* the task goes on to its first token, then fails */
        fi;
        if
        :: p_state[t] == OFFERED -> p_state[t] = CLOSED; p_lease[t] = false
        :: else -> p_state[t] = STOPPING; ptr_stop[t] = true;
            if :: WRONG == RELEASE_EARLY -> p_lease[t] = false :: else -> skip fi
        fi;
        p_forget()
    :: else -> skip
    fi
}

inline p_give_up() {
    if :: p_state[t] == OFFERED || p_state[t] == PUSHING || p_state[t] == PUSHED -> say_d(CANCEL) :: else -> skip fi;
    p_over_with(false)
}

inline p_offer() {
    p_state[t] = OFFERED;
    p_lease[t] = p_computed[t] > 0;
    say_d(OFFER)
}

inline p_pump() { if :: p_state[t] == PUSHING && p_computed[t] == 2 -> p_state[t] = PUSHED :: else -> skip fi }

inline p_say_first() {
    if :: p_computed[t] == 2 && (p_state[t] == PUSHING || p_state[t] == PUSHED) -> say_d(FIRST) :: else -> skip fi
}

inline p_message() {
    if
    :: kind == GRANT && p_state[t] == OFFERED -> p_state[t] = PUSHING; ptr_open[t] = true; p_pump(); p_say_first()
    :: kind == REFUSED && p_state[t] == OFFERED && WRONG == OFFERS_FOR_EVER -> p_offer()
    :: kind == REFUSED && p_state[t] == OFFERED && WRONG != OFFERS_FOR_EVER -> p_over_with(false)
    :: kind == DONE && p_state[t] == PUSHED -> p_over_with(true)
    :: kind == DONE && p_state[t] == PUSHING -> p_over_with(false)
    :: kind == CANCEL -> p_over_with(false)
    :: else -> skip
    fi
}

/* ---- P: worker/runner/kv_send.c, the scheduler, and P's transport thread ---- */

proctype P(byte t)
{
end:
    do
    :: atomic { submit_p[t] && !cancel_p[t - 1] -> submit_p[t] = false; p_task[t] = true; if :: link_up -> p_offer() :: else -> skip fi }
    :: atomic { p_task[t] && p_state[t] == NONE && !p_bad[t] && link_up -> p_offer() }        /* the link came up */
    :: atomic { p_task[t] && p_state[t] == NONE && !p_bad[t] && !link_up -> p_bad[t] = true } /* it did not in time */
    :: atomic { p_task[t] && p_computed[t] < 2 -> /* a step */
        p_computed[t]++;
        if :: p_state[t] == OFFERED || p_state[t] == PUSHING -> p_lease[t] = true; p_pump(); p_say_first() :: else -> skip fi }
    :: atomic { p_task[t] && p_computed[t] == 2 && p_bad[t] ->
        p_task[t] = false; p_bad[t] = false;
        if :: p_state[t] == NONE -> p_state[t] = CLOSED :: else -> skip fi;
        p_forget(); heard_p_failed(t) }
    :: atomic { p_state[t] == OFFERED && WRONG != NO_OFFER_TIMER && !ONLY_MOVES -> p_give_up() } /* tick */
    :: atomic { p_state[t] == PUSHED && WRONG != NO_PROGRESS_TIMERS && !ONLY_MOVES -> p_give_up() }   /* tick */
    :: atomic { nempty(to_p[t]) && !p_peer_lost[t] -> to_p[t]?kind; p_message(); kind = 0 }
    :: atomic { p_peer_lost[t] -> p_peer_lost[t] = false; p_over_with(false) }
    :: atomic { cancel_p[t] && !submit_p[t] -> cancel_p[t] = false;
        p_task[t] = false; p_bad[t] = false;
        if :: p_state[t] == NONE -> p_state[t] = CLOSED :: else -> skip fi;
        p_give_up(); p_forget() }
    :: atomic { ev_push_failed[t] -> ev_push_failed[t] = false; p_give_up() }
    od
}

proctype Ptr(byte t)
{
end:
    do
    :: atomic { ptr_open[t] && !ptr_stop[t] && ptr_sent[t] < p_computed[t] && nfull(wire[t]) ->
        assert(p_lease[t]); /* it reads the block now */
        wire[t]!ptr_sent[t]; ptr_sent[t]++ }
    :: atomic { ptr_open[t] && ptr_stop[t] && WRONG == RELEASE_EARLY && ptr_sent[t] < p_computed[t] -> assert(p_lease[t]) }
    :: atomic { ptr_stop[t] -> ptr_stop[t] = false; ptr_open[t] = false; ptr_sent[t] = 0;
        p_state[t] = CLOSED; p_lease[t] = false; p_forget() } /* TR_PUSH_STOPPED */
    od
}

/* ---- transfer/kvxfer/recv.c ---- */

inline d_begin_closing(is_good) {
    if
    :: d_state[t] == GRANTED || d_state[t] == COMPLETE ->
        d_state[t] = CLOSING; d_good[t] = is_good; dtr_close[t] = true;
        if :: WRONG == UNLEASE_EARLY -> d_lease = 0 :: else -> skip fi
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
    if
    :: d_state[t] == COMPLETE && (d_has_first[t] || WRONG == WITHOUT_FIRST) -> d_begin_closing(true)
    :: d_state[t] == GRANTED && d_has_first[t] && WRONG == SENT_IS_ARRIVED -> d_begin_closing(true)
    :: else -> skip
    fi
}

inline d_grant() {
    d_state[t] = GRANTED;
    assert(d_owner == t && d_lease == 0);
    d_lease = t;
    dtr_open[t] = true;
    say_p(GRANT)
}

inline d_finish_closing() {
    if
    :: d_good[t] -> assert(dtr_bits[t] == ALL && d_has_first[t]); say_p(DONE)
    :: else -> skip
    fi;
    d_state[t] = NONE;
    d_lease = 0;
    if :: !d_gone[t] -> assert(d_task[t]); d_task[t] = false; d_running[t] = true :: else -> skip fi;
    dtr_bits[t] = 0; d_good[t] = false; d_has_first[t] = false; d_gone[t] = false
}

inline d_message() {
    if
    :: kind == OFFER && d_task[t] && d_state[t] == NONE -> d_grant()
    :: kind == OFFER && !d_task[t] && d_state[t] == NONE && !d_running[t] -> d_parked[t] = true
    :: kind == OFFER && (d_state[t] != NONE || d_running[t]) -> say_p(REFUSED)
    :: kind == FIRST && (d_state[t] == GRANTED || d_state[t] == COMPLETE) -> d_has_first[t] = true; d_look_whether_whole()
    :: kind == CANCEL -> d_begin_closing(false)
    :: else -> skip
    fi
}

/* ---- D: worker/runner/kv_receive.c, the scheduler, and D's transport thread ---- */

inline d_end_task() { /* its blocks go back to the pool, or become zombies while leased */
    d_task[t] = false;
    d_running[t] = false;
    d_next[t] = 0;
    proceed_d[t] = false;
    if :: d_owner == t -> d_owner = 0 :: else -> skip fi
}

proctype D(byte t)
{
end:
    do
    :: atomic { submit_d[t] && !cancel_d[t - 1] -> submit_d[t] = false;
        if
        :: d_owner == 0 && (d_lease == 0 || WRONG == ZOMBIES_TAKEN) -> d_owner = t; d_task[t] = true;
            if :: d_parked[t] -> d_parked[t] = false; d_grant() :: else -> skip fi
        :: else -> d_running[t] = true /* no room for an arrival: computed when there is */
        fi }
    :: atomic { d_parked[t] && !submit_d[t] && WRONG != PARKED_FOR_EVER -> d_parked[t] = false; say_p(REFUSED) } /* PARK_NS */
    :: atomic { proceed_d[t] && !submit_d[t] -> proceed_d[t] = false;
        if
        :: d_task[t] && d_state[t] == NONE && WRONG != PROCEED_IGNORED -> d_task[t] = false; d_running[t] = true
        :: d_task[t] && d_state[t] != NONE -> d_give_up()
        :: else -> skip
        fi }
    :: atomic { d_running[t] -> router_takes(); d_next[t]++; if :: d_next[t] == ANSWER -> d_end_task() :: else -> skip fi }
    :: atomic { cancel_d[t] && !submit_d[t] -> cancel_d[t] = false;
        if :: d_task[t] && d_state[t] != NONE -> d_gone[t] = true; d_give_up() :: else -> skip fi;
        d_end_task() }
    :: atomic { (d_state[t] == GRANTED || d_state[t] == COMPLETE) && WRONG != NO_PROGRESS_TIMERS && !ONLY_MOVES -> d_give_up() } /* tick */
    :: atomic { nempty(to_d[t]) && !d_peer_lost[t] -> to_d[t]?kind; d_message(); kind = 0 }
    :: atomic { d_peer_lost[t] -> d_peer_lost[t] = false; d_parked[t] = false; d_begin_closing(false) }
    :: atomic { ev_complete[t] -> ev_complete[t] = false;
        if :: d_state[t] == GRANTED -> d_state[t] = COMPLETE :: else -> skip fi; d_look_whether_whole() }
    :: atomic { ev_ticket_failed[t] -> ev_ticket_failed[t] = false; d_give_up() }
    od
}

proctype Dtr(byte t)
{
end:
    do
    :: atomic { nempty(wire[t]) -> wire[t]?piece;
        if
        :: dtr_open[t] || WRONG == LATE_PIECE ->
            assert(d_lease == t); /* it writes into the block now */
            dtr_bits[t] = dtr_bits[t] | (1 << piece);
            if :: dtr_bits[t] == ALL -> dtr_open[t] = false; ev_complete[t] = true :: else -> skip fi
        :: else -> ev_push_failed[t] = ptr_open[t] /* rejected; the sender hears of it */
        fi;
        piece = 0 }
    :: atomic { dtr_dead[t] && empty(wire[t]) -> dtr_dead[t] = false;
        if :: dtr_open[t] -> dtr_open[t] = false; ev_ticket_failed[t] = true :: else -> skip fi }
    :: atomic { dtr_close[t] -> dtr_close[t] = false; dtr_open[t] = false;
        ev_complete[t] = false; ev_ticket_failed[t] = false; d_finish_closing() } /* TR_TICKET_CLOSED, and what came before it */
    od
}

/* ---- the client that goes away ---- */

active proctype Client()
{
    attempt > 0; /* init has placed it */
end:
    do
    :: !is_over && !is_patient -> is_patient = true
    :: atomic { !is_over && !is_patient -> is_over = true; was_cancelled = true;
        cancel_p[attempt] = p_task[attempt] || submit_p[attempt];
        cancel_d[attempt] = d_task[attempt] || d_running[attempt] || submit_d[attempt] }
    od
}

/* ---- faults ---- */

inline cut_link() { /* messages in flight are lost, both ends get a notice, and the link comes up again */
    link_up = false;
    i = 1;
    do
    :: i < T ->
        drain(to_d[i]); drain(to_p[i]);
        p_peer_lost[i] = p_state[i] != NONE;
        d_peer_lost[i] = d_parked[i] || d_state[i] != NONE; i++
    :: else -> break
    od
}

inline crash_p() {
    cut_link();
    i = 1;
    do
    :: i < T ->
        if :: p_task[i] || submit_p[i] -> heard_p_failed(i) :: else -> skip fi;
        submit_p[i] = false; cancel_p[i] = false;
        p_state[i] = NONE; p_task[i] = false; p_bad[i] = false;
        p_lease[i] = false; p_computed[i] = 0; p_peer_lost[i] = false;
        dtr_dead[i] = dtr_dead[i] || ptr_open[i]; /* pieces on the wire may still arrive */
        ptr_open[i] = false; ptr_stop[i] = false; ptr_sent[i] = 0;
        ev_push_failed[i] = false; i++
    :: else -> break
    od
}

inline crash_d() {
    bool was_here = d_task[attempt] || d_running[attempt] || submit_d[attempt];
    cut_link();
    i = 1;
    do
    :: i < T ->
        submit_d[i] = false; cancel_d[i] = false; proceed_d[i] = false;
        d_state[i] = NONE; d_task[i] = false; d_parked[i] = false; d_running[i] = false; d_has_first[i] = false;
        d_gone[i] = false; d_good[i] = false; d_peer_lost[i] = false; d_next[i] = 0;
        dtr_open[i] = false; dtr_close[i] = false; dtr_dead[i] = false; dtr_bits[i] = 0;
        ev_complete[i] = false; ev_ticket_failed[i] = false;
        drain(wire[i]);
        ev_push_failed[i] = ptr_open[i]; i++
    :: else -> break
    od;
    d_lease = 0; d_owner = 0;
    if :: was_here -> placement_lost() :: else -> skip fi;
    was_here = false
}

active proctype Faults()
{
    attempt > 0;
end:
    do
#if !ONLY_MOVES
    :: d_step { faults > 0 && link_up -> faults--; cut_link(); i = 0 }
    :: d_step { faults > 0 -> faults--; crash_p(); i = 0 }
    :: d_step { faults > 0 -> faults--; crash_d(); i = 0 }
    :: atomic { faults > 0 -> faults--; /* a message is lost; a full queue does so too */
        if
        :: len(to_d[1]) > 0 -> to_d[1]?_
        :: len(to_p[1]) > 0 -> to_p[1]?_
#if TRIES > 1
        :: len(to_d[2]) > 0 -> to_d[2]?_
        :: len(to_p[2]) > 0 -> to_p[2]?_
#endif
        :: else -> skip
        fi }
    :: atomic { faults > 0 && ptr_open[1] -> faults--; drain(wire[1]); ev_push_failed[1] = true; dtr_dead[1] = true }
#if TRIES > 1
    :: atomic { faults > 0 && ptr_open[2] -> faults--; drain(wire[2]); ev_push_failed[2] = true; dtr_dead[2] = true }
#endif
#endif
    :: d_step { faults > 0 && !is_over -> faults--;
        cancel_d[attempt] = d_task[attempt] || d_running[attempt] || submit_d[attempt]; placement_lost() }
    :: faults > 0 -> faults-- /* it does not happen */
    :: atomic { !link_up -> link_up = true }
    od
}

/* ---- the end ---- */

active proctype Monitor()
{
    attempt > 0;
    timeout -> /* nothing else can move */
    d_step {
        assert(is_over);
        assert(was_cancelled || was_failed || n_taken == ANSWER);
        assert(d_lease == 0 && d_owner == 0);
        i = 1;
        do
        :: i < T ->
            assert(p_state[i] == NONE && d_state[i] == NONE);
            assert(!p_lease[i] && !p_task[i] && !d_task[i] && !d_running[i] && !d_parked[i]);
            assert(!ptr_open[i] && !dtr_open[i] && empty(wire[i]));
            i++
        :: else -> break
        od;
        i = 0
    }
}

init {
    atomic {
        c_code { now.WRONG = getenv("WRONG") != NULL ? (uchar)atoi(getenv("WRONG")) : 0; };
        i = 1;
        do
        :: i < T -> p_state[i] = NONE; d_state[i] = NONE; run P(i); run Ptr(i); run D(i); run Dtr(i); i++
        :: else -> break
        od;
        i = 0;
        place()
    }
}
