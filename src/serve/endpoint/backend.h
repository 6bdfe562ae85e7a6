/* SPDX-License-Identifier: Apache-2.0 */
/* What the front needs of whoever computes: the router's implementation places requests on workers, a
 * worker's own runs them on its scheduler.  One loop thread; events never come from inside submit(). */
#ifndef SERVE_ENDPOINT_BACKEND_H
#define SERVE_ENDPOINT_BACKEND_H

#include "serve/api/gen.h"
#include "cache/prefix/block_hash.h"
#include "compute/sample/sampler.h"
#include "serve/prompt/served_model.h"

struct gen_job {      /* a tokenised request; the backend takes what is heap and copies the rest */
    token_id *tokens; /* heap, [n_tokens] */
    uint32_t n_tokens;
    uint32_t max_new_tokens;   /* already clamped to the context */
    struct sample_opts sample; /* its bias is borrowed for the call */
    char request_id[40];       /* "req_..." */
    char tenant[64];           /* "" : the anonymous tenant */
    uint32_t weight;           /* its share where tenants compete; 0: as 1 */
    struct buf constraint;     /* the answer's shape, as text/grammar/grammar.h reads it; heap, empty: any */
    uint32_t keep_tokens;      /* KV of the prompt up to there is wanted for 5 minutes more ... */
    uint32_t keep_1h_tokens;   /* ... and up to there for an hour, counted from now */
    uint32_t public_tokens;    /* so many at the beginning are public: tenants share their KV */
    bool scores_prompt;        /* how likely each token of the prompt but the first was is wanted */
};

struct gen_tokens {      /* what was drawn, borrowed for the call */
    const token_id *ids; /* [n] */
    size_t n;
    const struct sample_result *draws; /* [n]; NULL unless the job's sample.wants_logprob */
    /* Nothing was drawn, ids is NULL: draws are of the prompt's next tokens (from the second on, before any
     * that was drawn) or, after all, of the stop id that ends the answer.  Where the job has scores_prompt.
     */
    bool is_scored;
};

struct gen_failure {  /* becomes an HTTP status or an error event */
    int status;       /* 400, 503, 529, ... */
    const char *type; /* "overloaded_error" */
    const char *message;
    uint32_t retry_after_s; /* 0: none */
};

#define GEN_SOON_STEPS 3

enum gen_end { GEN_END_STOP_TOKEN, GEN_END_LENGTH, GEN_END_CONTEXT };

struct gen_events { /* all on the front's loop thread; after on_end or on_failure nothing more comes */
    /* Placed and its cached prefix known: 200 may be sent.  At most once (a replaced worker does not repeat
     * it). */
    void (*on_accepted)(void *arg, uint32_t cached_tokens);
    void (*on_tokens)(void *arg, const struct gen_tokens *tokens);
    /* Tokens will come soon: step by step, 0 to GEN_SOON_STEPS - 1, with work for others in between, what
     * they need is fetched into the cache.  Changes nothing, and need not be called. */
    void (*on_soon)(const void *arg, unsigned step);
    void (*on_end)(void *arg, enum gen_end end, const struct gen_proof *proof);
    void (*on_failure)(void *arg, const struct gen_failure *failure);
};

struct gen_handle; /* a job in the backend's hands */

struct backend_ops {
    /* The model called name, or the only one when name is NULL; NULL: none such. Borrowed until the next call
     * on this loop; jobs in flight keep theirs valid. */
    const struct gen_model *(*model)(void *backend, const char *name);
    const struct gen_model *(*model_at)(void *backend, size_t index); /* for listings; NULL beyond */
    /* The front uses the model past this call (tokenising elsewhere, detokenising later) until it drops it
     * again.  Both NULL: models outlive the front. */
    void (*model_keep)(void *backend, const struct gen_model *model);
    void (*model_drop)(void *backend, const struct gen_model *model);
    /* 0, or E_OVERLOADED / E_LIMIT / E_NOMEM with the failure filled in.  tokens are taken also on failure.
     */
    int (*submit)(void *backend, const struct gen_model *model, struct gen_job *job,
                  const struct gen_events *events, void *arg, struct gen_handle **out,
                  struct gen_failure *failure_out);
    /* The client went away or a stop string matched: ends the work at once.  No event follows.
     * proof_out (may be NULL) gets what is known so far. */
    void (*cancel)(void *backend, struct gen_handle *handle, struct gen_proof *proof_out);
    /* The client reads too slowly (or again fast enough): hold tokens back. */
    void (*pause)(void *backend, struct gen_handle *handle, bool is_paused);
    /* Ready to serve?  Appends "name: ok|why not" lines to detail (may be NULL). */
    bool (*is_ready)(void *backend, struct buf *detail);
    /* A model that model() does not find (name NULL: any), but may find later: why it cannot be served yet, a
     * static text.  NULL: no model of that name is served.  The call itself may be NULL: what is served never
     * changes. */
    const char *(*why_not_yet)(void *backend, const char *name);
};

struct backend { /* by value: a handle */
    const struct backend_ops *ops;
    void *self;
};

#endif
