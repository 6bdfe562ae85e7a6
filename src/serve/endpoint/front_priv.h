/* SPDX-License-Identifier: Apache-2.0 */
/* The endpoint's own types: the front and a request in it. */
#ifndef SERVE_ENDPOINT_FRONT_PRIV_H
#define SERVE_ENDPOINT_FRONT_PRIV_H

#include <stdatomic.h>

#include "serve/api/error.h"
#include "serve/api/parse.h"
#include "serve/api/render.h"
#include "base/list.h"
#include "serve/answer/answer.h"
#include "serve/access/auth.h"
#include "serve/endpoint/front.h"
#include "serve/access/guesses.h"
#include "serve/api/ids.h"
#include "serve/access/limits.h"
#include "serve/access/pool.h"
#include "serve/prompt/prompt.h"
#include "serve/prompt/public_prefix.h"
#include "serve/endpoint/remains_priv.h"
#include "serve/conversation/replay.h"
#include "serve/endpoint/stall_priv.h"
#include "serve/conversation/threads.h"
#include "net/http/response.h"
#include "net/http/sse.h"

enum request_state {
    REQUEST_RECEIVED,   /* its body is being read, parsed, or turned into tokens */
    REQUEST_TOKENISED,  /* the prompt is known and about to be handed on */
    REQUEST_PLACED,     /* the backend has it and has not yet said what of its prefix is cached */
    REQUEST_PREFILLING, /* accepted: a stream has begun; no token has come */
    REQUEST_STREAMING,  /* tokens come */
    REQUEST_DONE,       /* answered in full */
    REQUEST_FAILED,     /* answered with an error, before or in the stream */
    REQUEST_CANCELLED   /* the client went away */
};
#define REQUEST_N_STAGES 5 /* the states before the end */

struct model_metrics { /* of one model's series, looked up once per request; for every token the first ones */
    struct metric *generation_tokens, *itl;
    struct metric *ttft, *tpot, *e2e, *queue, *prefill, *transfer, *exposed, *decode;
    struct metric *prompt_tokens, *cached_tokens, *computed_tokens, *transferred_tokens;
};

struct front_metrics {
    struct metric *stages[REQUEST_N_STAGES];
    struct metric *auth_failures;
    struct metric *aborts;
    struct metric *answer_bytes, *thread_bytes; /* that memory and threads hold */
    struct metric *answers_found, *answers_missed;
    struct metric_family *threads;        /* result */
    struct metric_family *limit_refusals; /* tenant reason */
    struct metric_family *requests;
    struct metric_family *running, *waiting; /* by model */
    struct metric_family *v_success;         /* model_name finished_reason */
    struct metric_family *ttft, *itl, *tpot, *e2e, *queue, *prefill, *transfer, *exposed, *decode;
    struct metric_family *prompt_tokens, *generation_tokens, *cached_tokens, *computed_tokens,
        *transferred_tokens;
};

enum front_state {
    FRONT_SERVING,
    FRONT_LAME_DUCK, /* answers all requests, says that it is not ready, ends connections after their answers
                      */
    FRONT_DRAINING
};

struct front {
    struct front_opts opts;
    struct http_server *server;
    struct auth_keys *keys; /* NULL: nobody is asked for one */
    struct limits *limits;
    struct guesses *guesses;
    struct pool *pool;       /* NULL: all work is done at once */
    struct memory *memory;   /* of answers; NULL: none */
    struct threads *threads; /* NULL: they are refused */
    struct stall *stall;
    struct public_prefix *public_prefix; /* NULL: tenants share nothing */
    struct list requests;
    uint32_t n_running;
    enum front_state state;
    struct front_metrics metrics;
    struct buf busy_answer;
    struct buf out;         /* events of a stream, on their way from being written to being sent (output.c) */
    struct sse_event event; /* the one being written */
    const struct request *writer; /* whose they are; NULL: out is empty */
    struct answer_scratch scratch;
    uint64_t refusals_s; /* the second in which n_refusals were logged */
    unsigned n_refusals;
};

struct choice; /* choice_priv.h */

struct request { /* what every token needs comes first: ten thousand streams do not fit a cache */
    struct front *front;
    struct http_exchange *exchange; /* NULL: answered, or the client is gone */
    const struct output_dialect *dialect;
    enum request_state state;
    uint32_t n_choices, n_waiting, n_over;
    uint32_t n_output;
    bool is_stream;    /* and the 200 is out */
    bool is_mute;      /* the connection is broken: on_abort follows */
    bool is_paused;    /* the client reads too slowly */
    bool is_held;      /* its end must leave it to whoever holds it */
    uint64_t event_ns; /* when the last event was sent */
    uint64_t last_ns;  /* when tokens came last */
    struct model_metrics series;

    struct list node; /* front.requests */
    enum api_call call;
    char id[IDS_BYTES];
    char message_id[IDS_BYTES];
    uint64_t created_unix_s;
    char trace_id[33];
    char peer[64];
    struct auth_key who;
    char owner[64]; /* of cached KV and remembered answers: see replay_owner() */
    struct limit_lease lease;
    bool wants_proof; /* in the stream */

    /* While a job of it is in the pool, only the job touches body, gen, error and prompts. */
    bool is_in_pool; /* or waits for it */
    struct pool_job job;
    atomic_bool is_working;   /* the pool's thread has not finished with it */
    atomic_bool is_abandoned; /* do not begin */
    int work_rc;
    struct buf body;
    bool is_gzip; /* the body */
    struct gen_request gen;
    struct api_error error;
    struct thread *thread; /* that it continues, held */
    struct replay replay;  /* answers of ours that are in it */
    struct prompt prompt;
    struct prompt *more_prompts; /* [gen.n_prompts - 1] */

    const struct gen_model *model; /* kept */
    struct choice *choices;        /* [n_choices]; NULL before they are handed on */
    struct sample_bias *bias;      /* [gen.n_bias], in gen's arena */
    struct ev_timer *later;        /* hands on those that wait; NULL with one choice */
    struct api_usage usage;
    struct gen_proof proof; /* of all choices together */
    struct ev_timer *ping;

    int status; /* of the answer; 499: none */
    const char *reason;
    uint64_t received_ns, tokenised_ns, submitted_ns, first_ns;
    uint64_t n_logprobs;  /* that came */
    struct metric *gauge; /* running or waiting, as counted now */
};

/* request.c: the life */
/* From the head; E_OVERLOADED, E_NOMEM. */
int request_new(struct front *front, struct http_exchange *exchange, enum api_call call,
                const struct auth_key *who, struct request **out);
void request_begin(struct request *request);                                  /* the body is in */
void request_refused(struct request *request, const struct api_error *error); /* by the server */
void request_abort(struct request *request, enum http_abort why);
void request_pause(struct request *request, bool is_paused);
void request_abandon(struct request *request); /* the server is going away */
void request_free(struct request *request);    /* waits for a job of it in the pool */
/* For choice*.c.  After the last three the request is gone. */
void request_enter(struct request *request, enum request_state state);
void request_finish(struct request *request); /* every choice is over */
void request_fail(struct request *request, const struct api_error *error);
void request_fail_no_memory(struct request *request);
const struct backend *request_backend(const struct request *request);
size_t request_n_prompts(const struct request *request); /* 1 for a conversation */
struct prompt *request_prompt(struct request *request, size_t index);

/* reply.c: answers without a request's life */
void reply_add_id(struct http_fields *fields, const struct http_exchange *exchange, const char *id);
/* Adds request-id (a new one when id is NULL) and retry-after. */
void reply_error(struct http_exchange *exchange, const struct api_error *error, const char *id,
                 const char *allow);
void reply_body(struct http_exchange *exchange, int status, const char *type, struct bytes body);
void reply_json(struct http_exchange *exchange, const char *id, struct http_fields *fields,
                struct bytes body);
/* Whether a model that the backend does not find (NULL: any) may be found later; then error says so, 503: a
 * client that hears 404, or sees an empty list, gives up. */
bool reply_not_yet(const struct front *front, const char *model, struct api_error *error);
int reply_make_busy(struct buf *out); /* a whole raw answer */

/* report.c: metrics, access log, proof headers */
void report_init(struct front *front);
void report_state(struct request *request, enum request_state from); /* state has changed */
void report_model(struct request *request);                          /* model is known */
void report_tokens(struct choice *choice, uint64_t now_ns, size_t n);
void report_thread(struct front *front, enum threads_take result); /* one was to be continued */
void report_end(struct request *request);
void report_proof_fields(const struct request *request, struct http_fields *fields);

#endif
