/* SPDX-License-Identifier: Apache-2.0 */
/* The endpoint's own types: the front and its requests. */
#ifndef SERVE_ENDPOINT_FRONT_PRIV_H
#define SERVE_ENDPOINT_FRONT_PRIV_H

#include <stdatomic.h>

#include "serve/api/error.h"
#include "serve/api/parse.h"
#include "serve/api/render.h"
#include "serve/api/render_responses.h"
#include "base/list.h"
#include "serve/answer/answer.h"
#include "serve/access/auth.h"
#include "serve/endpoint/front.h"
#include "serve/access/failed_logins.h"
#include "serve/api/ids.h"
#include "serve/access/access_keys.h"
#include "serve/access/fair_queue.h"
#include "serve/prompt/prompt.h"
#include "serve/prompt/public_prefix.h"
#include "serve/endpoint/remains_priv.h"
#include "serve/endpoint/resume_priv.h"
#include "serve/endpoint/shared_priv.h"
#include "serve/conversation/replay.h"
#include "serve/endpoint/stall_priv.h"
#include "serve/conversation/conversations.h"
#include "net/http/response.h"
#include "net/http/sse.h"

enum request_state {
    REQUEST_RECEIVED,   /* reading, parsing or tokenising the body */
    REQUEST_TOKENISED,  /* the prompt is known and about to be submitted */
    REQUEST_PLACED,     /* the backend has it; its cached prefix is not known yet */
    REQUEST_PREFILLING, /* accepted: a stream has started, no token has come */
    REQUEST_STREAMING,  /* tokens are coming */
    REQUEST_DONE,       /* fully answered */
    REQUEST_FAILED,     /* answered with an error, before the stream or in it */
    REQUEST_CANCELLED   /* the client went away */
};
#define CONVERSATION_LIFE_NS (300 * NS_PER_S)       /* time to live after the last use, as clients expect */
#define RESPONSE_LIFE_NS     (24 * 3600 * NS_PER_S) /* the same; the memory limit usually ends it earlier */
#define REQUEST_N_STAGES     REQUEST_DONE           /* the states before the end */

struct model_metrics { /* metrics of one model, looked up once per request; those used for every token come
                        * first */
    struct metric *generation_tokens, *itl;
    struct metric *ttft, *tpot, *e2e, *queue, *prefill, *transfer, *exposed, *decode;
    struct metric *request_prompt_tokens, *request_generation_tokens;
    struct metric *prompt_tokens, *cached_tokens, *computed_tokens, *transferred_tokens;
};

struct front_metrics {
    struct metric *stages[REQUEST_N_STAGES];
    struct metric *auth_failures;
    struct metric *aborts;
    struct metric *answer_bytes,
        *conversation_bytes; /* bytes held by the answer cache and the conversations */
    struct metric *answers_found, *answers_missed;
    struct metric_family *conversations;  /* result */
    struct metric_family *limit_refusals; /* tenant reason */
    struct metric_family *requests;
    struct metric_family *running, *waiting; /* by model */
    struct metric_family *v_success;         /* model_name finished_reason */
    struct metric_family *ttft, *itl, *tpot, *e2e, *queue, *prefill, *transfer, *exposed, *decode;
    struct metric_family *request_prompt_tokens, *request_generation_tokens;
    struct metric_family *prompt_tokens, *generation_tokens, *cached_tokens, *computed_tokens,
        *transferred_tokens;
};

enum front_state {
    FRONT_SERVING,
    FRONT_LAME_DUCK, /* answers all requests, reports not ready, closes each connection after its answer */
    FRONT_DRAINING
};

struct front {
    struct front_opts opts;
    struct http_server *server;
    struct access_keys *keys; /* NULL: no key is required */
    struct failed_logins *failed_logins;
    struct fair_queue *fair_queue;       /* NULL: all work runs inline */
    struct answer_cache *answer_cache;   /* NULL: none */
    struct conversations *conversations; /* NULL: requests that name a conversation are refused */
    struct conversations *responses;     /* kept responses; NULL: none are kept */
    struct stall *stall;
    struct public_prefix *public_prefix; /* NULL: tenants share nothing */
    struct list requests;
    struct list visits; /* exchanges of /v1/responses/ID that wait for the shared store (shared.c) */
    uint32_t n_visits;
    struct shared_later later;
    struct list pages;   /* of kept items that are being rendered or sent (responses_items.c) */
    struct list cancels; /* of responses that another router may run (cancels.c) */
    uint32_t n_cancels;
    uint64_t last_cancel;
    uint32_t n_running;
    uint32_t n_awaiting; /* requests that wait for their model */
    enum front_state state;
    struct front_metrics metrics;
    struct buf busy_answer;
    struct buf out;               /* events of one stream, gathered before they are sent (output.c) */
    struct sse_event event;       /* the event being written */
    const struct request *writer; /* the request that owns out's events; NULL: out is empty */
    struct answer_scratch scratch;
    uint64_t refusals_s; /* the second in which n_refusals were logged */
    unsigned n_refusals;
};

struct recalled {             /* kept responses that a request continues or refers to */
    struct kept_text **texts; /* heap, [n], references; NULL: none */
    size_t n, n_bytes;
    bool has_previous; /* texts[0] is the response that it continues */
};

struct choice; /* choice_priv.h */

struct request { /* fields used for every token come first, because ten thousand streams do not fit a CPU
                  * cache */
    struct front *front;
    struct http_exchange *exchange; /* NULL: answered, or the client is gone */
    const struct output_dialect *dialect;
    enum request_state state;
    uint32_t n_choices, n_waiting, n_over;
    uint32_t n_output;
    bool is_stream;    /* the answer is a stream, and its status 200 was sent */
    bool is_mute;      /* the connection is broken; on_abort follows */
    bool is_paused;    /* the client reads too slowly */
    uint64_t event_ns; /* time of the last event sent */
    uint64_t last_ns;  /* time of the last tokens */
    struct model_metrics series;

    struct list node; /* front.requests */
    enum api_call call;
    char id[IDS_BYTES];
    char message_id[IDS_BYTES];
    uint64_t created_unix_s, completed_unix_s; /* completed: set when the last choice is over */
    struct trace_context trace;                /* the client's, or begun here */
    uint8_t span_id[SPAN_ID_BYTES]; /* of the request's own span, if its trace is sampled and exported */
    char trace_id[33];
    char peer[64];
    struct auth_key who;
    char owner[64]; /* tenant that owns cached KV and cached answers: see replay_owner() */
    struct limit_lease lease;
    char class_wanted[32]; /* class named in the header baton-class; empty: none */
    bool wants_serving;    /* serving stats in the stream */
    struct resume resume;

    /* While a job thread works for the request, only that job may touch body, gen, error and prompts, and, while it
     * renders the answer, the choices. */
    bool is_in_fair_queue; /* running in the pool or waiting for it */
    struct fair_queue_job job;
    atomic_bool is_working;   /* a job thread works on it */
    atomic_bool is_abandoned; /* the job must not start */
    int work_rc;
    struct buf body;
    struct buf rendered; /* the whole answer, if is_rendered and no stream */
    struct buf kept;     /* the response as it is kept, if is_rendered */
    bool is_rendered;
    bool is_gzip; /* the body's encoding */
    struct gen_request gen;
    struct api_error error;
    struct conversation *conversation; /* the conversation that the request continues, held; NULL: none */
    struct kept_text *history;         /* its text, also for a stream that is resumed */
    struct recalled recalled;          /* by a Responses request, for the parser */
    struct shared_part shared;
    struct replay replay; /* cached answers found in the request's messages */
    struct prompt prompt;
    struct prompt *more_prompts; /* [gen.n_prompts - 1] */
    struct stop_set *stops;      /* for all choices; NULL: no stop sequences */

    const struct gen_model *model; /* held with model_keep */
    bool awaits_model;             /* it waits for its model, and counts in front.n_awaiting */
    bool is_unadmitted;            /* admit_begin() waits until what others have spent is known */
    struct choice *choices;        /* [n_choices]; NULL before they are submitted */
    struct ev_timer *later;        /* submits the waiting choices; NULL with one choice */
    struct api_usage usage;
    struct gen_serving serving; /* serving stats of all choices together */
    struct ev_timer *ping;

    int status; /* HTTP status of the answer; 499: the client disconnected first */
    const char *reason;
    uint64_t received_ns, tokenised_ns, submitted_ns, first_ns;
    uint64_t n_logprobs;  /* received */
    uint32_t n_rendered;  /* embeddings in body */
    struct metric *gauge; /* running or waiting, as counted now */
};

/* request.c: the life of a request */
/* Copies the name of a class.  Leaves out empty if the name is too long. */
void request_take_class(struct bytes name, char out[32]);
/* Makes a request from its head.  E_OVERLOADED, E_NOMEM. */
int request_new(struct front *front, struct http_exchange *exchange, enum api_call call,
                const struct auth_key *who, struct request **out);
void request_begin(struct request *request);                                  /* the body is complete */
void request_refused(struct request *request, const struct api_error *error); /* called by the server */
void request_abort(struct request *request, enum http_abort why);
void request_pause(struct request *request, bool is_paused);
void request_abandon(struct request *request); /* the server is shutting down */
void request_free(struct request *request);    /* waits for its job in the pool */
/* For choice*.c.  The last three end the request; do not use it afterwards. */
void request_enter(struct request *request, enum request_state state);
void request_finish(struct request *request); /* every choice is over */
void request_fail(struct request *request, const struct api_error *error);
void request_fail_no_memory(struct request *request);
const struct backend *request_backend(const struct request *request);
size_t request_n_prompts(const struct request *request); /* 1 for a conversation */
struct prompt *request_prompt(struct request *request, size_t index);

/* request_work.c: work on a job thread, or on the loop */
void request_parse_work(void *arg);
void request_tokenise_work(void *arg);
/* True if the request names a conversation or kept responses by id.  The loop looks them up, then a job
 * parses the body again. */
bool request_awaits_conversation(const struct request *request);

/* request_thread.c: the conversation that it continues */
/* Finds the conversation's text for the parser, and takes the conversation, which a stream that is resumed needs not.
 * E_NOT_FOUND, with the error. */
int request_take_thread(struct request *request, struct api_error *error);
void request_leave_thread(struct request *request); /* the request ends */

/* request_spans.c: its spans in a distributed trace */
void request_trace_begin(struct request *request, struct bytes traceparent);
void request_trace_children(const struct request *request, struct trace_context *out); /* for the backend */
void request_trace_end(const struct request *request);

/* reply.c: answers outside the life of a request */
void reply_add_id(struct http_fields *fields, const struct http_exchange *exchange, const char *id);
/* Sends an error with request-id (a new one when id is NULL) and retry-after. */
void reply_error(struct http_exchange *exchange, const struct api_error *error, const char *id,
                 const char *allow);
void reply_body(struct http_exchange *exchange, int status, const char *type, struct bytes body);
void reply_json(struct http_exchange *exchange, const char *id, struct http_fields *fields,
                struct bytes body);
/* True if the backend may find the model later (NULL: any model).  error then gets status 503, because
 * clients treat 404 or an empty list as final. */
bool reply_not_yet(const struct front *front, const char *model, struct api_error *error);
int reply_make_busy(struct buf *out); /* a complete raw HTTP answer */

/* report.c: metrics, access log, headers of serving stats */
void report_init(struct front *front);
void report_state(struct request *request, enum request_state from); /* the state has changed */
void report_model(struct request *request);                          /* the model is known */
void report_tokens(struct choice *choice, uint64_t now_ns, size_t n);
void report_conversation(struct front *front,
                         enum conversations_take result); /* result of continuing a conversation */
void report_end(struct request *request);
void report_serving_fields(const struct request *request, struct http_fields *fields);

#endif
