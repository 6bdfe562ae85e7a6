/* SPDX-License-Identifier: Apache-2.0 */
/* Types that the files of the shared state share.
 *
 *     state.c        the loop's side: jobs in flight, the breaker, deadlines, counts
 *     state_io.c     the two threads: connections, and batches of jobs
 *     state_jobs.c   each kind of job: its commands, and their replies
 *
 * A job is a heap object that goes to a thread and returns through the mailbox `done`.  Threads read only the
 * fields of struct state above the line; these do not change after open. */
#ifndef NET_STATE_STATE_PRIV_H
#define NET_STATE_STATE_PRIV_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/breaker.h"
#include "base/list.h"
#include "base/mailbox.h"
#include "net/redis/redis_conn.h"
#include "net/state/state.h"

enum { STATE_READER, STATE_WRITER, STATE_N_THREADS };
enum {
    STATE_BATCH = 32,        /* jobs in one send */
    STATE_PAGE = 128,        /* messages of one fetch */
    STATE_MAX_OUTGOING = 64, /* messages that wait for a tick */
    STATE_JOBS = 8192,       /* capacity of a mailbox: more than can be in flight */
    STATE_STREAM_MAX = 8192  /* messages that the stream keeps, about */
};

enum state_job_kind { STATE_JOB_PUT, STATE_JOB_REMOVE, STATE_JOB_EXPIRE, STATE_JOB_ASK, STATE_JOB_EXCHANGE };

struct state_cursor { /* the last message read: the id that the server gave it */
    uint64_t ms, seq;
};

struct state_message {
    struct list node;
    uint64_t age_ms, id_ms;
    bool is_old;
    struct buf text; /* the sender's epoch, 8 bytes, then the message; empty: marks the end of the old ones */
};

struct state_job {
    enum state_job_kind kind;
    int result;
    bool is_store_down; /* the store did not answer, or is full; for the reason in fault */
    struct fault fault;
    unsigned n_replies; /* replies that its commands still wait for */
    /* PUT, REMOVE */
    struct state_name name;
    uint64_t life_s;
    struct buf value;
    bool is_owed; /* state_forget() */
    /* ASK */
    struct state_ask *ask;    /* NULL: its deadline passed, or it was cancelled */
    uint32_t n, at;           /* at: the reply that comes next */
    struct state_name *names; /* [n] */
    struct buf *values;       /* [n] */
    bool has_claim;
    enum state_claim claimed;
    struct state_name claim;
    uint64_t claim_life_s;
    uint32_t n_damaged;
    /* EXCHANGE */
    struct buf outgoing[STATE_MAX_OUTGOING];
    uint32_t n_outgoing;
    bool is_first;              /* first gets the server's time, then messages from two minutes before it */
    struct state_cursor cursor; /* in: of the last message; out: of the last one read */
    struct list messages;       /* struct state_message */
    bool has_more;
    uint64_t server_ms;
};

struct state_thread {
    struct state *state;
    struct mailbox *jobs;
    pthread_t thread;
    bool is_started;
    struct redis_conn *conn;
    unsigned trip; /* trips before conn was opened */
    struct buf out;
    struct state_job *batch[STATE_BATCH];
    unsigned n_batch;
};

struct state {
    struct redis_url url;
    struct redis_conn_opts conn_opts;
    uint8_t key[STATE_KEY_BYTES];
    uint64_t self;
    struct state_name stream, probe;
    struct mailbox *done;
    atomic_bool is_ending;
    atomic_uint trip;           /* times that the breaker opened: older connections may be dead */
    atomic_size_t answer_bytes; /* of fetched values that the loop has not delivered */
    /* ---- */
    struct state_opts opts;
    char url_text[256];
    struct state_thread threads[STATE_N_THREADS];
    struct ev_fd *watch;
    struct ev_timer *deadline, *turn;
    struct breaker breaker;
    bool was_reported;    /* the store's state was logged once */
    struct list asks;     /* by deadline */
    struct list messages; /* struct state_message, to give on */
    uint32_t n_waiting;   /* of these */
    bool messages_are_old, is_exchanging, wants_first;
    uint64_t fresh_ms; /* the server's time when the first fetch began: earlier messages are old */
    struct state_cursor cursor;
    struct buf outgoing[STATE_MAX_OUTGOING];
    uint32_t n_outgoing;
    struct state_name owed[STATE_MAX_OWED]; /* to be removed when the store is back */
    uint32_t n_owed;
    struct state_counts counts;
};

/* ---- state_io.c ---- */
int state_threads_start(struct state *state, struct fault *fault);
void state_threads_stop(struct state *state);
/* NULL: out of memory. */
struct state_job *state_job_new(enum state_job_kind kind);
struct state_job *state_job_named(enum state_job_kind kind, const struct state_name *name, uint64_t life_s);
void state_job_free(struct state_job *job);                        /* accepts NULL */
void state_url_show(const char *url, char *out, size_t out_bytes); /* without the password */

/* ---- state_jobs.c: on the threads ---- */
/* Appends the job's commands and sets n_replies.  E_NOMEM, E_INTERNAL. */
int state_job_append(struct state *state, struct state_job *job, struct buf *out);
/* Reads the next reply.  E_FULL: the store takes no more; E_AGAIN: another server has the key now. */
int state_job_reply(struct state *state, struct state_job *job, const struct resp_item *item,
                    struct bytes all);

#endif
