/* SPDX-License-Identifier: Apache-2.0 */
/* State that several routers share in one Redis or Valkey server, without a leader.
 *
 *     loop ──state_put, state_remove──> writer thread ──> SET EX, UNLINK
 *       │ ───state_ask────────────────> reader thread ──> GET, SET NX EX            values by name
 *       │ ───state_send, state_tick───> reader thread ──> XADD, XRANGE              messages to all routers
 *       '<── on_message, the asks' done ──────────'
 *
 * Values and messages are sealed under the cluster's key (state_record.h) and have a lifetime.  No call blocks.  Every
 * question ends within wait_ns, with or without an answer of the store.  Jobs that wait for the store are bounded
 * in number and bytes; at the bound calls return E_AGAIN.
 *
 * When the store fails, is full, or answers late three times in a row, a breaker opens (base/breaker.h).  Calls
 * then return E_CLOSED at once, and only the test of state_tick() uses the store.  Each change is one line in the
 * log.
 *
 * All functions: loop thread. */
#ifndef NET_STATE_STATE_H
#define NET_STATE_STATE_H

#include "base/event/loop.h"
#include "base/fault.h"
#include "net/state/state_record.h"

struct state;
struct state_ask;

enum {
    STATE_MAX_NAMES = 64,               /* of one question */
    STATE_MAX_ASKS = 256,               /* questions under way */
    STATE_MAX_PUTS = 4096,              /* values that wait to be written */
    STATE_MAX_BYTES = 64 * 1024 * 1024, /* of these, and again of answers */
    STATE_MAX_VALUE = 4 * 1024 * 1024,  /* of one value */
    STATE_MAX_MESSAGE = 64 * 1024,      /* of one message */
    STATE_MAX_OWED = 128,               /* removals that wait until the store is back */
    STATE_MESSAGE_S = 120               /* lifetime of messages: no limit looks back further */
};

struct state_opts { /* borrowed during the call; loop and arg for longer */
    struct ev_loop *loop;
    const char *url, *login, *ca_path; /* login: "user:password" or "password"; "" in both: none */
    uint8_t key[STATE_KEY_BYTES];
    uint64_t self;    /* this router's epoch: it does not get its own messages */
    uint64_t wait_ns; /* of a question */
    /* An authenticated message of another router. age_ms: its time in the store. is_old: it is from before this
     * router began to read, or is read again after the store was away.  A call with empty bytes follows the last
     * old message. */
    void (*on_message)(void *arg, struct bytes message, uint64_t age_ms, bool is_old);
    void (*on_change)(void *arg, bool is_up);
    void *arg;
};

struct state_counts {
    uint64_t n_asks, n_found, n_missed, n_late; /* names asked for, and the results */
    uint64_t n_puts, n_put_failed, n_dropped;   /* dropped: beyond the bounds */
    uint64_t n_sent, n_received, n_damaged;     /* damaged: could not be decrypted */
    uint64_t n_trips;                           /* times that the breaker opened */
    uint32_t n_asking, n_putting;               /* now */
    size_t putting_bytes;
};

/* Starts two threads, and does not wait for the store.  E_FORMAT (URL, login), E_IO (certificates), E_NOMEM. */
int state_open(const struct state_opts *opts, struct fault *fault, struct state **out);
/* Sends the last messages and values for 200 ms at most, then waits for the threads: for a tenth of a second, or longer
 * for the look-up of a host name.  Calls no question's done.  Accepts NULL. */
void state_close(struct state *state);
/* Checks address and login without a connection.  E_FORMAT. */
int state_url_check(const char *url, const char *login, struct fault *fault);

bool state_is_up(const struct state *state);      /* NULL: false */
const char *state_url(const struct state *state); /* without the password */
void state_counts(const struct state *state, struct state_counts *out);
/* Call it every 100 ms: sends and fetches messages, and tests a store that was away. */
void state_tick(struct state *state);

/* As state_record.h has it.  E_INTERNAL, E_NOMEM. */
int state_name(const struct state *state, const char *kind, struct bytes owner, struct bytes id,
               struct state_name *out);
/* Keeps a value for life_s; takes the bytes also on failure.  E_CLOSED, E_AGAIN, E_LIMIT (too long), E_NOMEM. */
int state_put(struct state *state, const struct state_name *name, uint64_t life_s, struct buf *value);
int state_remove(struct state *state, const struct state_name *name);
/* The same for a name that must go: while the store is away, or after a failure, the removal waits and is tried
 * again.  E_FULL (STATE_MAX_OWED wait), E_NOMEM. */
int state_forget(struct state *state, const struct state_name *name);
int state_expire(struct state *state, const struct state_name *name,
                 uint64_t life_s); /* the value's new lifetime */
/* Sends a message to all routers with the next tick.  E_CLOSED, E_AGAIN (64 wait), E_LIMIT, E_NOMEM. */
int state_send(struct state *state, struct bytes message);

/* The result of a claim. */
enum state_claim {
    STATE_CLAIM_UNKNOWN, /* no answer in time */
    STATE_CLAIM_NONE,    /* the question was answered, and has no claim */
    STATE_CLAIM_SET,     /* the name was free, and this question has it now */
    STATE_CLAIM_TAKEN    /* an earlier question has it */
};

struct state_question {
    const struct state_name *names; /* [n] */
    uint32_t n;
    /* A further name, which at most one question can claim within life_s.  NULL: none. */
    const struct state_name *claim;
    uint64_t claim_life_s;
    /* Called once, unless state_ask_cancel() came before. values[i] is empty if the store has no value; the callee
     * may take the values.  A claim that is set after the question has ended is removed again. */
    void (*done)(void *arg, struct buf *values, enum state_claim claim);
    void *arg;
};

/* E_CLOSED, E_AGAIN, E_LIMIT, E_NOMEM; then done is not called. */
int state_ask(struct state *state, const struct state_question *question, struct state_ask **out);
void state_ask_cancel(struct state_ask *ask); /* accepts NULL */

#endif
