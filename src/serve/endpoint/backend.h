/* SPDX-License-Identifier: Apache-2.0 */
/* The interface between the front and its backend.  The router's backend places requests on workers; a
 * worker's own backend runs them on its scheduler.  One loop thread. */
#ifndef SERVE_ENDPOINT_BACKEND_H
#define SERVE_ENDPOINT_BACKEND_H

#include "serve/api/gen.h"
#include "cache/prefix/block_hash.h"
#include "compute/order/work.h"
#include "serve/prompt/served_model.h"

struct gen_tokens {      /* sampled tokens, borrowed for the call */
    const token_id *ids; /* [n] */
    size_t n;
    const struct sample_result *draws; /* [n]; NULL unless the order's sample.wants_logprob */
    /* No token was sampled, and ids is NULL.  draws are prompt logprobs: of the prompt's next tokens, from
     * the second on, before any sampled token.  At the very end, draws may be of the stop id that ends the
     * answer.  Only with the order's score_from. */
    bool is_prompt_logprobs;
};

struct gen_failure {  /* becomes an HTTP status or an error event */
    int status;       /* 400, 503, 529, ... */
    const char *type; /* "overloaded_error" */
    const char *message;
    uint32_t retry_after_s; /* 0: not given */
};

#define GEN_SOON_STEPS 3

enum gen_end { GEN_END_STOP_TOKEN, GEN_END_LENGTH, GEN_END_CONTEXT };

struct gen_events { /* all on the front's loop thread; no event follows on_end or on_failure */
    /* The job is placed and its cached prefix is known: the front may send 200.  At most once; a replaced
     * worker does not repeat it. */
    void (*on_accepted)(void *arg, uint32_t cached_tokens);
    void (*on_tokens)(void *arg, const struct gen_tokens *tokens);
    /* Hint: tokens come soon.  The backend calls it for steps 0 to GEN_SOON_STEPS - 1, with other work in
     * between. Each step prefetches into the CPU cache what the tokens need.  Optional; it changes no state.
     */
    void (*on_soon)(const void *arg, unsigned step);
    void (*on_end)(void *arg, enum gen_end end, const struct gen_serving *serving);
    void (*on_failure)(void *arg, const struct gen_failure *failure);
    /* A resumed job was found: its order, with the prompt and the notes of the first router, borrowed for the
     * call.  Before all other events.  Only for jobs of backend_ops.resume. */
    void (*on_resumed)(void *arg, const struct work_order *order);
};

struct gen_handle; /* a job that the backend holds: handle.h */

struct backend_ops {
    /* Finds the model called name, or with a NULL name the only model; NULL: not found.  Borrowed until the
     * next call on this loop; jobs in flight keep their model valid. */
    const struct gen_model *(*model)(void *backend, const char *name);
    const struct gen_model *(*model_at)(void *backend, size_t index); /* for listings; NULL past the last */
    /* Hold and release a model that the front uses past this call, to tokenise on another thread or to
     * detokenise later.  Both NULL: models outlive the front. */
    void (*model_keep)(void *backend, const struct gen_model *model);
    void (*model_drop)(void *backend, const struct gen_model *model);
    /* 0, or E_OVERLOADED / E_LIMIT / E_NOMEM with the failure filled in.  Takes the order's heap members, also
     * on failure, and leaves the order empty.  events: valid as long as the job. */
    int (*submit)(void *backend, const struct gen_model *model, struct work_order *order,
                  const struct gen_events *events, void *arg, struct gen_handle **out,
                  struct gen_failure *failure_out);
    /* The same for a stream that another router began: the order names it (request_id, tenant).  All tokens of
     * its answer come again.  on_failure with 404 if no worker keeps it.  The call may be NULL: none are kept. */
    int (*resume)(void *backend, const struct gen_model *model, struct work_order *order,
                  const struct gen_events *events, void *arg, struct gen_handle **out,
                  struct gen_failure *failure_out);
    /* Ends the work at once, because the client went away or a stop string matched.  No event follows.
     * serving_out (may be NULL) receives the serving stats so far. */
    void (*cancel)(void *backend, struct gen_handle *handle, struct gen_serving *serving_out);
    /* Holds tokens and end back while the client reads too slowly, and releases them when it catches up: in a
     * later turn of the loop.  No call here calls an event. */
    void (*pause)(void *backend, struct gen_handle *handle, bool is_paused);
    /* True if ready to serve.  Appends "name: ok|why not" lines to detail (may be NULL). */
    bool (*is_ready)(void *backend, struct buf *detail);
    /* For a model that model() does not find now but may find later (name NULL: any): the reason, a static
     * text. NULL: no model of that name is served.  The call itself may be NULL: the set of models never
     * changes. */
    const char *(*why_not_yet)(void *backend, const char *name);
};

struct backend { /* by value: a handle */
    const struct backend_ops *ops;
    void *self;
};

#endif
