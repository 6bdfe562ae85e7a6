/* SPDX-License-Identifier: Apache-2.0 */
/* The endpoint: the Messages API and OpenAI's API over a backend.  It owns the routes, API keys, the life of
 * each request, metrics and the access log.
 *
 *   POST /v1/messages, /v1/messages/count_tokens, /v1/chat/completions, /v1/completions, /v1/embeddings,
 *        /tokenize, /detokenize
 *   POST /v1/responses, /v1/responses/input_tokens  GET, DELETE /v1/responses/ID, GET .../input_items, POST .../cancel
 *   GET /v1/models, /v1/models/ID
 *   GET /livez, /readyz[?verbose], /health, /metrics (has_metrics), /console (has_console)  HEAD /, GET /, HEAD /api/hello
 *
 * Every answer has `request-id`.  An answer that is not streamed has its serving stats in two headers:
 *
 *     server-timing: tokenise;dur=MS, queue;dur=MS, prefill;dur=MS, transfer;dur=MS, exposed;dur=MS,
 *                    decode;dur=MS, ttft;dur=MS, total;dur=MS
 *     baton-proof: prompt=N; computed=N; reused=N; transferred=N; drawn=N; redispatched=N; preempted=N;
 *                  drafted=N; accepted=N; prefill=NAME; decode=NAME; transport=NAME
 *
 * A stream carries the same stats if its request had the header `baton-proof: stream`: as usage.baton of its
 * message_delta event, or as "baton" of its last chunk.  Errors on OpenAI's paths use OpenAI's format.
 *
 * One front per loop.  The loop's thread does all work, except that job threads parse and tokenise long bodies. */
#ifndef SERVE_ENDPOINT_FRONT_H
#define SERVE_ENDPOINT_FRONT_H

#include "base/fault.h"
#include "base/span.h"
#include "base/event/jobs.h"
#include "net/state/state_values.h"
#include "serve/endpoint/backend.h"
#include "net/http/server.h"
#include "base/metrics/metrics.h"

struct access_keys;   /* serve/access/access_keys.h */
struct failed_logins; /* serve/access/failed_logins.h */
struct front;

enum front_metrics_for { FRONT_METRICS_ADMIN, FRONT_METRICS_CLIENTS }; /* values of http.metrics */

struct front_bounds { /* options that may change while the front runs */
    /* Of an answer, also if its request names more tokens or none.  0: only the context bounds it. */
    uint32_t max_tokens;
    uint32_t max_model_waits; /* how many requests may wait for a model; more are refused at once */
    uint64_t model_wait_ns;   /* how long a request waits for a model that the backend does not know yet */
};

struct front_opts {
    struct ev_loop *loop;         /* borrowed */
    struct ev_jobs *jobs;         /* borrowed; NULL: all work runs inline */
    struct backend backend;       /* by value; its pointers are borrowed */
    struct metrics *metrics;      /* borrowed, required */
    const char *keys_path;        /* API keys (format: serve/access/auth.h); NULL: no key is required */
    struct common_limits *common; /* limits kept together with other routers; NULL: by itself */
    struct state_values values;   /* what several routers keep together; zeroed: nothing */
    void (*on_forget)(void *arg, const char *tenant,
                      struct bytes id); /* a response was deleted; NULL: no other router */
    /* A client cancels a response that this front does not run: asks the other routers.  front_cancelled() (front_shared.h) brings
     * their answer, with the number.  False: there are none.  NULL: the same. */
    bool (*on_cancel)(void *arg, const char *tenant, struct bytes id, uint64_t number);
    void *on_shared_arg;       /* of both */
    const uint8_t *login_salt; /* borrowed, 16 bytes: routers count wrong keys together; NULL: by itself */
    bool has_metrics;      /* clients may read /metrics, which names tenants; false: there is no such path */
    bool has_console;      /* browsers may load /console (console_priv.h) */
    bool has_open_metrics; /* /metrics needs no key even if keys are configured */
    uint32_t failed_logins_per_min; /* different wrong keys from one address; beyond: 429; 0: no limit */
    uint32_t max_waiting;           /* large requests that wait for a job thread; one tenant may use half */
    uint64_t max_waiting_bytes;     /* bound on their bodies; one tenant may use half */
    struct http_limits limits;
    struct http_tls *tls;       /* borrowed; NULL: cleartext */
    bool has_h2c;               /* HTTP/2 without TLS, with prior knowledge */
    const char *congestion;     /* TCP congestion control, borrowed; NULL or "": the system's default */
    const char *const *origins; /* borrowed: origins allowed by CORS; see net/http/server.h */
    size_t n_origins;
    const uint8_t
        *sign_key; /* borrowed, 32 bytes: the signing key of all routers (serve/access/sign.h); NULL: a random
                    * key */
    bool keeps_streams;         /* events have ids, so that clients can resume streams (resume.c) */
    bool shares_port;           /* several fronts listen on the same address */
    uint64_t ping_ns;           /* idle time of a stream before a ping event */
    struct front_bounds bounds; /* of the first requests */
    uint32_t max_requests;      /* requests in flight, of all kinds; more get 529 */
    uint32_t inline_bytes;      /* larger bodies are parsed and tokenised on a job thread */
    const char *public_prefix;  /* file (serve/prompt/public_prefix.h); NULL: tenants share nothing */
    size_t replay_bytes;        /* size of the answer cache; 0: none */
    size_t conversation_bytes;  /* size of the conversation store, which needs the answer cache; 0: none */
    double default_temperature; /* used when the request gives none */
    struct span_queue *spans;   /* borrowed: spans of sampled traces go there; NULL: there is no exporter */
    double trace_ratio;         /* of the traces that begin here, 0 to 1 */
    uint64_t created_unix_s;    /* for listed models without their own date */
};

/* Sets every option that is not a pointer to its default: metrics for clients with a key, ping 9 s, 4096
 * requests, 8 KiB inline, temperature 1.  30 wrong keys; 4096 waiting requests with 1 GiB of bodies. */
void front_opts_init(struct front_opts *opts);

int front_new(const struct front_opts *opts, struct fault *fault, struct front **out);
/* Cancels running requests.  Accepts NULL.  It waits for their jobs in the pool, so free the pool after
 * the front. The loop must not run any more. */
void front_free(struct front *front);

/* Requests that are parsed later, or wait for their model now, get these bounds. */
void front_set_bounds(struct front *front, const struct front_bounds *bounds);

/* As http_server_listen; may be called several times. */
int front_listen(struct front *front, const char *address, struct fault *fault);
uint16_t front_port(const struct front *front); /* of the first listener */

/* Loads the key file.  Keys keep their usage counts.  On failure the old keys stay.  The call reads the whole
 * file; a loop that serves requests uses the next two functions instead (serve/endpoint/reload.h). */
int front_load_keys(struct front *front, const char *keys_path, struct fault *fault);
const struct access_keys *front_keys(const struct front *front); /* the current keys, valid until a swap;
                                                                  * NULL: no keys */
/* Puts fresh keys in place.  Returns the old ones, which the caller now owns. */
struct access_keys *front_swap_keys(struct front *front, struct access_keys *fresh);

/* Makes /readyz return 503, or ends that.
 * The front still answers requests and closes each connection after its answer. */
void front_set_lame_duck(struct front *front, bool is_on);
/* The same, but it cannot be undone.  Running answers continue. */
void front_set_draining(struct front *front);
/* Begins the drain: accepts no new connections,
 * finishes running requests, then calls done(arg) from the loop. */
void front_drain(struct front *front, ev_call done, void *arg);
struct failed_logins *front_failed_logins(const struct front *front);
uint32_t front_n_running(const struct front *front);
/* Ends running requests with an error event "server is shutting down" (drain limit reached). */
void front_abandon(struct front *front);

#endif
