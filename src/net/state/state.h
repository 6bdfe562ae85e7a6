/* SPDX-License-Identifier: Apache-2.0 */
/* What several routers keep in one Redis or Valkey server, without a leader.
 *
 *     loop ──state_put, state_remove──> writer thread ──> SET EX, UNLINK
 *       │ ───state_ask────────────────> reader thread ──> GET, SET NX EX            values by name
 *       │ ───state_tell, state_tick───> reader thread ──> XADD, XRANGE              news for all routers
 *       '<── on_news, the asks' done ──────────'
 *
 * Values and news are sealed under the cluster's key (state_record.h) and have a lifetime.  No call waits.  Every
 * question ends, with what the store answered or without, at the latest wait_ns later.  What waits for the store is
 * bounded in number and bytes; beyond, calls return E_AGAIN.
 *
 * A store that fails, is full, or answers late three times in a row is left alone (base/breaker.h): calls return
 * E_CLOSED at once, and only state_tick()'s own test asks whether it is back.  Each change is one line in the log.
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
    STATE_MAX_NEWS = 64 * 1024,         /* of one message */
    STATE_MAX_OWED = 128,               /* removals that wait until the store is back */
    STATE_NEWS_S = 120                  /* lifetime of news: older than any limit remembers */
};

struct state_opts { /* borrowed for the call, but for loop and arg */
    struct ev_loop *loop;
    const char *url, *login, *ca_path; /* login: "user:password" or "password"; "" in both: none */
    uint8_t key[STATE_KEY_BYTES];
    uint64_t self;    /* this router's epoch: its own news do not return */
    uint64_t wait_ns; /* of a question */
    /* A message of another router, authenticated.  age_ms: since it reached the store.  is_old: from before this
     * router began to read, or read again after the store was away.  The last old one is followed by a call with
     * empty bytes. */
    void (*on_news)(void *arg, struct bytes news, uint64_t age_ms, bool is_old);
    void (*on_change)(void *arg, bool is_up);
    void *arg;
};

struct state_counts {
    uint64_t n_asks, n_found, n_missed, n_late; /* names asked, and how it ended */
    uint64_t n_puts, n_put_failed, n_dropped;   /* dropped: beyond the bounds */
    uint64_t n_news_out, n_news_in, n_damaged;  /* damaged: did not open */
    uint64_t n_trips;                           /* times that the store was given up */
    uint32_t n_asking, n_putting;               /* now */
    size_t putting_bytes;
};

/* Starts two threads and waits for nothing: the store may be away.  E_FORMAT (URL, login), E_IO (certificates),
 * E_NOMEM. */
int state_open(const struct state_opts *opts, struct fault *fault, struct state **out);
/* Sends what was told and put last, for 200 ms at most, and waits for the threads: for a tenth of a second, or for the look-up
 * of a host's name.  No question's done is called any more.  NULL is fine. */
void state_close(struct state *state);
/* Checks address and login without a connection.  E_FORMAT. */
int state_url_check(const char *url, const char *login, struct fault *fault);

bool state_is_up(const struct state *state);      /* NULL: false */
const char *state_url(const struct state *state); /* without the password */
void state_counts(const struct state *state, struct state_counts *out);
/* Every 100 ms: sends what was told, fetches news, tests a store that was away. */
void state_tick(struct state *state);

/* As state_record.h has it.  E_INTERNAL, E_NOMEM. */
int state_name(const struct state *state, const char *kind, struct bytes owner, struct bytes id,
               struct state_name *out);
/* Keeps a value for life_s; takes the bytes also on failure.  E_CLOSED, E_AGAIN, E_LIMIT (too long), E_NOMEM. */
int state_put(struct state *state, const struct state_name *name, uint64_t life_s, struct buf *value);
int state_remove(struct state *state, const struct state_name *name);
/* Likewise, for a name that nobody uses again: while the store is away it is kept, and it is tried again when it
 * failed.  E_FULL (STATE_MAX_OWED wait), E_NOMEM. */
int state_forget(struct state *state, const struct state_name *name);
int state_expire(struct state *state, const struct state_name *name,
                 uint64_t life_s); /* ends it sooner, or later */
/* Sends a message to all routers with the next tick.  E_CLOSED, E_AGAIN (64 wait), E_LIMIT, E_NOMEM. */
int state_tell(struct state *state, struct bytes news);

/* Whether the question claimed its name. */
enum state_claim {
    STATE_CLAIM_UNTOLD, /* the store did not say in time, or nothing was to be claimed */
    STATE_CLAIM_SET,    /* it was free, and is this question's now */
    STATE_CLAIM_TAKEN   /* an earlier question has it */
};

struct state_question {
    const struct state_name *names; /* [n] */
    uint32_t n;
    /* Another name, which at most one question can claim in life_s.  NULL: none. */
    const struct state_name *claim;
    uint64_t claim_life_s;
    /* Called once, unless state_ask_cancel() came before: values[i] is empty where there is none; the callee may take
     * them.  A claim that is set when nobody waits any more is removed again. */
    void (*done)(void *arg, struct buf *values, enum state_claim claim);
    void *arg;
};

/* E_CLOSED, E_AGAIN, E_LIMIT, E_NOMEM; then done is not called. */
int state_ask(struct state *state, const struct state_question *question, struct state_ask **out);
void state_ask_cancel(struct state_ask *ask); /* NULL is fine */

#endif
