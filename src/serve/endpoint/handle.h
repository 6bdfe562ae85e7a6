/* SPDX-License-Identifier: Apache-2.0 */
/* The front's handle of a job: the answer's tokens, and the events that the front has not received yet.  Each
 * backend embeds one in its job.
 *
 *    backend: accept, token, end, fail --> gen_handle, due in the outbox --gen_outbox_flush()--> the front's events
 *    front:   pause -------------------------^ the acceptance, tokens and the end wait
 *
 * Events are deferred: functions that add an event never call the front.  gen_outbox_flush() calls the front,
 * one event after another, and no code below it uses the job.  So the front may cancel any job inside an
 * event, and callers need not check whether a job still exists.
 *
 * Order: on_accepted, prompt logprobs, tokens, the stop id's logprob, then on_end.  A failure is delivered
 * even while the front is paused, and drops undelivered tokens.
 *
 * A job may hold a long answer (a resumed stream, logprobs of a long prompt), and one message may hold tokens of many
 * jobs.  So events carry a bounded number of tokens, and once a piece of the loop's work is GEN_PIECE_NS old, the
 * other events wait for the loop's next turn.
 *
 * More than 15 functions: each kind of event has one, and the outbox needs its own.
 *
 * For backends; one loop thread. */
#ifndef SERVE_ENDPOINT_HANDLE_H
#define SERVE_ENDPOINT_HANDLE_H

#include "base/list.h"
#include "base/event/loop.h"
#include "serve/endpoint/backend.h"
#include "serve/prompt/scores.h"

/* Frees the job that embeds the handle.  It first writes the serving stats to serving_out. */
typedef void (*gen_close)(struct gen_handle *handle, struct gen_serving *serving_out);

#define GEN_PIECE_NS UINT64_C(500000)

struct gen_outbox {        /* one for each backend */
    struct list due;       /* handles with events, by gen_handle.due */
    struct ev_timer *turn; /* flushes in the loop's next turn; NULL: the owner calls gen_outbox_flush() */
    bool is_open;          /* between gen_outbox_begin() and gen_outbox_flush(): no timer is needed */
    bool is_spent;         /* this piece of work has taken its time: the timer delivers the rest */
    uint32_t n_unmeasured; /* units of work since the clock was last read */
    gen_close close;
};

enum gen_outcome {
    GEN_RUNNING,
    GEN_ENDED, /* on_end is due once the tokens are delivered */
    GEN_FAILED /* on_failure is due */
};

struct gen_handle { /* fields used for every token come first */
    struct gen_outbox *outbox;
    struct list due;          /* in outbox.due while it may have an event */
    struct work_order *order; /* the job's; its tokens from n_prompt on are the answer, and grow with it */
    const struct gen_events *events;
    void *arg;
    uint32_t n_delivered; /* answer tokens passed to the front */
    uint32_t cap_tokens;  /* of order.tokens */
    enum gen_outcome outcome;
    bool is_paused;              /* the client reads no tokens now */
    bool is_held;                /* the backend holds tokens and end back */
    bool has_resumption;         /* on_resumed is due ... */
    bool is_anew;                /* ... with this argument */
    bool is_complete;            /* the front set it before cancelling: the answer's own text ended it ... */
    bool is_left;                /* ... or another router continues the stream, so workers keep the work */
    bool keeps_order;            /* ... or a limit refused the stream, so its order is kept */
    bool has_acceptance;         /* on_accepted is due */
    uint32_t cached_tokens;      /* argument of on_accepted */
    uint32_t cap_draws;          /* capacity of draws, the sampling results of undelivered tokens ... */
    uint32_t first_draw;         /* ... from this one on */
    struct sample_result *draws; /* NULL unless wanted */
    uint64_t submitted_ns, first_token_ns;
    uint64_t ended_unix_s; /* when the answer ended, as its tail has it; 0: not yet, or there is no tail */
    enum work_end end;     /* ENDED */
    struct gen_failure failure; /* FAILED */
    char *failure_text;         /* heap: failure.message */
    struct scores scores;       /* prompt logprobs, not delivered yet */
    float *embedding;           /* heap, [n_dims]: for the first token */
    uint32_t n_dims;
};

int gen_outbox_open(struct gen_outbox *outbox, struct ev_loop *loop,
                    gen_close close);             /* loop NULL: the outbox has no timer */
void gen_outbox_close(struct gen_outbox *outbox); /* accepts a zeroed outbox */
/* Between these two calls events need no timer, because gen_outbox_flush() delivers them, or starts it.  Without a
 * timer it delivers all of them. */
void gen_outbox_begin(struct gen_outbox *outbox);
void gen_outbox_flush(struct gen_outbox *outbox);

/* order: the job's order, with n_prompt and n_tokens set.  events must stay valid as long as the job. */
void gen_handle_init(struct gen_handle *handle, struct gen_outbox *outbox, struct work_order *order,
                     const struct gen_events *events, void *arg);
void gen_handle_fini(struct gen_handle *handle); /* drops all events; the order remains */

/* The order now belongs to another router.  is_anew: its answer is computed again. */
void gen_handle_resume(struct gen_handle *handle, bool is_anew);
void gen_handle_accept(struct gen_handle *handle, uint32_t cached_tokens);
/* Appends an answer token.  E_NOMEM. */
int gen_handle_token(struct gen_handle *handle, token_id id);
/* Makes room for the sampling result of the token that gen_handle_token() appends next.  NULL: no memory. */
struct sample_result *gen_handle_draw(struct gen_handle *handle);
/* The prompt's embedding, copied: it belongs to the token that gen_handle_token() appends next.  E_NOMEM (also:
 * n_dims is 0). */
int gen_handle_embedding(struct gen_handle *handle, const float *embedding, uint32_t n_dims);
/* Prompt logprobs.  E_NOMEM. */
int gen_handle_scores(struct gen_handle *handle, const struct sample_result *scores, uint32_t n);
void gen_handle_stop_score(struct gen_handle *handle, const struct sample_result *score);
void gen_handle_end(struct gen_handle *handle, enum work_end end);
void gen_handle_fail(struct gen_handle *handle, const struct gen_failure *failure); /* copies the text */
void gen_handle_pause(struct gen_handle *handle, bool is_paused);
void gen_handle_hold(struct gen_handle *handle, bool is_held);

/* Sets the serving stats that a handle knows: sampled tokens, time to the first token, total time. */
void gen_handle_serving(const struct gen_handle *handle, struct gen_serving *serving);

static inline uint32_t gen_handle_answered(const struct gen_handle *handle)
{
    return handle->order->n_tokens - handle->order->n_prompt;
}

#endif
