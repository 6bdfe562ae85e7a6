/* SPDX-License-Identifier: Apache-2.0 */
/* The tails of answers:
 * everything a router needs to continue a stream that another router began.  Loop thread only. */
#ifndef WORKER_LOOP_TAILS_PRIV_H
#define WORKER_LOOP_TAILS_PRIV_H

#include "base/hashmap.h"
#include "base/list.h"
#include "worker/loop/worker_priv.h"

/* States of a tail; tails.c has the drawing. */
enum tail_state {
    TAIL_STREAMING, /* the answer grows, and goes to a router */
    TAIL_REPLAYING, /* a router resumed it, and receives the tokens so far, then new ones */
    TAIL_ORPHANED,  /* the answer grows without a router, until until_ns */
    TAIL_BARE,      /* the answer goes to a router, but its tail was dropped for lack of memory */
    TAIL_ENDED      /* the answer is complete, and was sent unless its router is lost; kept until until_ns */
};

#define TAIL_ID_BYTES 40

struct tail {
    struct list node; /* in tails.all, oldest first */
    struct worker *worker;
    enum tail_state state;
    struct task_key task; /* key of the task at the engine thread: the job of its first router */
    struct task_key job;  /* key of the job at the router that receives it now */
    uint32_t router;      /* number of that router */
    char id[TAIL_ID_BYTES];
    char tenant[FRAME_TENANT + 1];
    uint8_t body_digest[32];
    uint64_t until_ns;
    uint64_t resumed_ns;         /* last RESUMED; 0: none */
    struct buf submit;           /* the SUBMIT without peer and owner, packed; empty in BARE */
    bool is_partial;             /* it is the first piece of a long prompt ... */
    uint64_t prompt_hash;        /* ... with this hash, which the router that resumes must have whole */
    token_id *ids;               /* heap, [n_ids]: answer tokens from first_index on */
    struct sample_result *draws; /* heap, [n_ids]; NULL unless wanted */
    uint32_t first_index, n_ids, cap_ids;
    uint32_t n_replayed;    /* REPLAYING: tokens sent to the router */
    bool is_accepted;       /* the engine thread reported acceptance ... */
    uint32_t cached_tokens; /* ... with this prefix */
    bool wants_draws;
    bool has_end;           /* the engine thread reported the end ... */
    struct task_answer end; /* ... as this answer, without tokens; its error_text is heap */
};

struct tails {                        /* all tails of a worker */
    struct hashmap *by_task, *by_job; /* struct task_key -> tail */
    struct hashmap *by_id;            /* char[TAIL_ID_BYTES] -> tail */
    struct list all;
    struct ev_timer *tick, *replay;
    size_t n_bytes;
    struct metric *m_count, *m_bytes, *m_resumed, *m_expired, *m_dropped;
};

size_t tail_bytes(const struct tail *tail);
void tail_enter(struct tail *tail, enum tail_state state); /* the only function that changes the state */
void tail_free(struct tail *tail);
void tail_cancel_task(struct tail *tail); /* cancels its task at the engine thread */
/* tail_resume.c: sends the next slice of each tail in REPLAYING. */
void tails_replay(void *arg);

#endif
