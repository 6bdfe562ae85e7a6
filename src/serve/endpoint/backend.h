/* SPDX-License-Identifier: Apache-2.0 */
/* The interface between the front and its backend.  The router's backend places requests on workers.  A
 * worker's own backend runs them on its scheduler.  All calls are made on one loop thread. */
#ifndef SERVE_ENDPOINT_BACKEND_H
#define SERVE_ENDPOINT_BACKEND_H

#include "serve/api/gen.h"
#include "cache/prefix/block_hash.h"
#include "compute/order/work.h"
#include "serve/prompt/served_model.h"

struct gen_tokens {      /* sampled tokens, borrowed for the call */
    const token_id *ids; /* [n] */
    size_t n;
    const float *embedding; /* [n_dims], with the only token; NULL unless work.wants_embedding */
    uint32_t n_dims;
    const struct sample_result *draws; /* [n]; NULL unless the order's sample.wants_logprob */
    /* The call carries prompt logprobs: no token was sampled, and ids is NULL.  draws belong to the prompt's
     * next tokens, from its second token on, before any sampled token.  The very last draws may belong to the
     * stop id that ends the answer.  Only if the order has score_from. */
    bool is_prompt_logprobs;
};

struct gen_failure {  /* becomes an HTTP status or an error event */
    int status;       /* 400, 503, 529, ... */
    const char *type; /* "overloaded_error" */
    const char *message;
    uint32_t retry_after_s; /* 0: not given */
};

#define GEN_SOON_STEPS 3

struct gen_events { /* all on the front's loop thread; no event follows on_end or on_failure */
    /* The backend placed the job and knows its cached prefix, so the front may send 200.  Called at most
     * once: not again when a worker is replaced. */
    void (*on_accepted)(void *arg, uint32_t cached_tokens);
    void (*on_tokens)(void *arg, const struct gen_tokens *tokens);
    /* Hint: tokens come soon.  The backend calls it for steps 0 to GEN_SOON_STEPS - 1, with other work in
     * between. Each step prefetches memory that the tokens need into the CPU cache.  Optional; it changes no
     * state. */
    void (*on_soon)(const void *arg, unsigned step);
    void (*on_end)(void *arg, enum work_end end, const struct gen_serving *serving);
    void (*on_failure)(void *arg, const struct gen_failure *failure, const struct gen_serving *serving);
    /* A worker still had the job to resume, or (is_anew) only its order was kept, so its answer is computed
     * again once the front calls backend_ops.restart.  order is the kept one, with the prompt and the notes of the first
     * router; it is borrowed for the call.  Comes before all other events, and only for jobs of backend_ops.resume. */
    void (*on_resumed)(void *arg, const struct work_order *order, bool is_anew);
};

struct gen_start { /* a job to begin; all borrowed for the call */
    const struct gen_model *model;
    struct work_order *order;
    const struct gen_events *events; /* valid as long as the job */
    void *arg;                       /* of the events */
    struct gen_serving *serving_out; /* serving stats of a job that is refused at once; may be NULL */
};

struct gen_handle; /* a job that the backend holds: handle.h */

struct backend_ops {
    /* Finds a model by name; name NULL: the only model.  NULL: not found.  The result is borrowed until the
     * next call on this loop.  Jobs in flight keep their model valid. */
    const struct gen_model *(*model)(void *backend, const char *name);
    const struct gen_model *(*model_at)(void *backend, size_t index); /* for listings; NULL past the last */
    /* Hold and release a model that the front uses past this call, to tokenise on another thread or to
     * detokenise later.  Both NULL: models outlive the front. */
    void (*model_keep)(void *backend, const struct gen_model *model);
    void (*model_drop)(void *backend, const struct gen_model *model);
    /* Begins a job.  0, or E_OVERLOADED / E_LIMIT / E_NOMEM with failure_out filled in.  Takes the order's
     * heap members, also on failure, and leaves the order empty. */
    int (*submit)(void *backend, const struct gen_start *start, struct gen_handle **out,
                  struct gen_failure *failure_out);
    /* Resumes a stream that another router began.  The order names it (request_id, tenant).  The events
     * repeat all tokens of its answer.  on_failure has status 404 if no worker keeps the stream.  The call
     * may be NULL: the backend keeps no streams. */
    int (*resume)(void *backend, const struct gen_start *start, struct gen_handle **out,
                  struct gen_failure *failure_out);
    /* Begins the job of an order that was kept: the front may call it inside on_resumed(is_anew) or later.  NULL: the
     * backend never reports is_anew. */
    void (*restart)(void *backend, struct gen_handle *handle);
    /* Ends the job at once, because the client disconnected or a stop string matched.  No event follows.
     * serving_out (may be NULL) receives the serving stats so far. */
    void (*cancel)(void *backend, struct gen_handle *handle, struct gen_serving *serving_out);
    /* Holds tokens and the end back while the client reads too slowly.  When it catches up, a later turn of
     * the loop delivers them.  The call itself calls no event. */
    void (*pause)(void *backend, struct gen_handle *handle, bool is_paused);
    /* True if ready to serve.  Appends "name: ok|why not" lines to detail (may be NULL). */
    bool (*is_ready)(void *backend, struct buf *detail);
    /* Returns why a model is not served yet, as a static text, if model() may find it later (name NULL: any
     * model).  NULL: the backend does not serve that model.  The call may be NULL: the set of models never
     * changes. */
    const char *(*why_not_yet)(void *backend, const char *name);
};

struct backend { /* copied by value */
    const struct backend_ops *ops;
    void *self;
};

#endif
