/* SPDX-License-Identifier: Apache-2.0 */
/* The endpoint's own types: the front and a request in it. */
#ifndef FRONT_FRONT_PRIV_H
#define FRONT_FRONT_PRIV_H

#include <stdatomic.h>

#include "api/error.h"
#include "api/parse.h"
#include "api/render.h"
#include "base/list.h"
#include "front/answer.h"
#include "front/auth.h"
#include "front/front.h"
#include "front/guesses.h"
#include "front/ids.h"
#include "front/limits.h"
#include "front/pool.h"
#include "front/prompt.h"
#include "http/response.h"

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

struct model_metrics { /* of one model's series, looked up once per request */
    struct metric *ttft, *itl, *tpot, *e2e, *queue, *prefill, *transfer, *decode;
    struct metric *prompt_tokens, *generation_tokens, *cached_tokens, *computed_tokens, *transferred_tokens;
    struct metric *v_ttft, *v_itl, *v_e2e, *v_prompt, *v_generation, *v_queries, *v_hits;
};

struct front_metrics {
    struct metric *stages[REQUEST_N_STAGES];
    struct metric *auth_failures;
    struct metric *aborts;
    struct metric_family *limit_refusals; /* tenant reason */
    struct metric_family *requests;
    struct metric_family *running, *waiting; /* by model */
    struct metric_family *v_running, *v_waiting, *v_success;
    struct metric_family *ttft, *itl, *tpot, *e2e, *queue, *prefill, *transfer, *decode;
    struct metric_family *prompt_tokens, *generation_tokens, *cached_tokens, *computed_tokens,
        *transferred_tokens;
    struct metric_family *v_ttft, *v_itl, *v_e2e, *v_prompt, *v_generation, *v_queries, *v_hits;
};

struct front {
    struct front_opts opts;
    struct http_server *server;
    struct auth_keys *keys; /* NULL: nobody is asked for one */
    struct limits *limits;
    struct guesses *guesses;
    struct pool *pool; /* NULL: all work is done at once */
    struct list requests;
    uint32_t n_running;
    bool is_draining;
    struct front_metrics metrics;
    struct buf busy_answer;
    uint64_t refusals_s; /* the second in which n_refusals were logged */
    unsigned n_refusals;
};

struct collected { /* a block of an answer that is sent as a whole */
    enum gen_block_kind kind;
    char id[IDS_BYTES];
    struct buf name;
    struct buf text; /* or a call's arguments */
};

struct request {
    struct list node; /* front.requests */
    struct front *front;
    struct http_exchange *exchange; /* NULL: answered, or the client is gone */
    enum request_state state;
    enum api_call call;
    char id[IDS_BYTES];
    char message_id[IDS_BYTES];
    char trace_id[33];
    char peer[64];
    struct auth_key who;
    struct limit_lease lease;
    bool wants_proof; /* in the stream */

    /* While a job of it is in the pool, only the job touches body, gen, error and prompt. */
    bool is_in_pool; /* or waits for it */
    struct pool_job job;
    atomic_bool is_working;   /* the pool's thread has not finished with it */
    atomic_bool is_abandoned; /* do not begin */
    int work_rc;
    struct buf body;
    bool is_gzip; /* the body */
    struct gen_request gen;
    struct api_error error;
    struct prompt prompt;

    const struct gen_model *model; /* kept */
    struct gen_handle *handle;     /* NULL: the backend does not have it */
    struct answer *answer;
    struct api_usage usage;
    struct gen_proof proof;
    bool is_clamped; /* max_tokens was cut to what the context leaves */
    bool is_stream;  /* and the 200 is out */
    bool is_mute;    /* the connection is broken: on_abort follows */

    struct buf out; /* events to be sent */
    unsigned n_blocks;
    struct collected *blocks;
    struct ev_timer *ping;
    uint64_t event_ns; /* when the last event was sent */

    int status; /* of the answer; 499: none */
    const char *reason;
    uint64_t received_ns, tokenised_ns, submitted_ns, first_ns, last_ns;
    uint32_t n_output;
    struct metric *gauge, *v_gauge; /* running or waiting, as counted now */
    struct model_metrics series;
};

/* request.c */
/* From the head; E_OVERLOADED, E_NOMEM. */
int request_new(struct front *front, struct http_exchange *exchange, enum api_call call,
                const struct auth_key *who, struct request **out);
void request_begin(struct request *request);                                  /* the body is in */
void request_refused(struct request *request, const struct api_error *error); /* by the server */
void request_abort(struct request *request, enum http_abort why);
void request_pause(struct request *request, bool is_paused);
void request_abandon(struct request *request); /* the server is going away */
void request_free(struct request *request);    /* waits for a job of it in the pool */

/* output.c: what goes to the client */
extern const struct answer_sink output_stream_sink;
extern const struct answer_sink output_whole_sink;
void output_begin_stream(struct request *request);
void output_ping(struct request *request);
void output_flush(struct request *request); /* sends the events gathered */
/* The last events, or the whole answer. */
void output_end(struct request *request, enum gen_stop why, struct bytes stop_sequence);
void output_error(struct request *request, const struct api_error *error); /* as an answer or as an event */
void output_count(struct request *request);
void output_fini(struct request *request);

/* reply.c: answers without a request's life */
/* Adds request-id (a new one when id is NULL) and retry-after. */
void reply_error(struct http_exchange *exchange, const struct api_error *error, const char *id,
                 const char *allow);
void reply_body(struct http_exchange *exchange, int status, const char *type, struct bytes body);
void reply_json(struct http_exchange *exchange, const char *id, struct http_fields *fields,
                struct bytes body);
int reply_make_busy(struct buf *out); /* a whole raw answer */

/* report.c: metrics, access log, proof headers */
void report_init(struct front *front);
void report_state(struct request *request, enum request_state from); /* state has changed */
void report_model(struct request *request);                          /* model is known */
void report_tokens(struct request *request, uint64_t now_ns, size_t n);
void report_end(struct request *request);
void report_proof_fields(const struct request *request, struct http_fields *fields);

#endif
