/* SPDX-License-Identifier: Apache-2.0 */
/* The endpoint, Messages API and OpenAI's, over a backend: routes, API keys, the life of each request,
 * metrics and the access log.
 *
 *   POST /v1/messages, /v1/messages/count_tokens, /v1/chat/completions, /v1/completions, /tokenize,
 *        /detokenize
 *   GET /v1/models, /v1/models/ID
 *   GET /livez, /readyz[?verbose], /health, /metrics (has_metrics)  HEAD /, GET /, HEAD /api/hello
 *
 * Every answer has `request-id`.  A whole answer carries its proof in two headers (one line each),
 *
 *     server-timing: tokenise;dur=MS, queue;dur=MS, prefill;dur=MS, transfer;dur=MS, exposed;dur=MS,
 *                    decode;dur=MS, ttft;dur=MS, total;dur=MS
 *     baton-proof: prompt=N; computed=N; reused=N; transferred=N; drawn=N; redispatched=N; preempted=N;
 *                  drafted=N; accepted=N; prefill=NAME; decode=NAME; transport=NAME
 *
 * and a stream whose request had the header `baton-proof: stream` the same as usage.baton of its
 * message_delta event, or as "baton" of its last chunk.  Errors under OpenAI's paths have OpenAI's shape.
 *
 * One front per loop; everything but parsing and tokenising of long bodies (job pool) happens on the loop's
 * thread. */
#ifndef SERVE_ENDPOINT_FRONT_H
#define SERVE_ENDPOINT_FRONT_H

#include "base/fault.h"
#include "base/event/jobs.h"
#include "serve/endpoint/backend.h"
#include "net/http/server.h"
#include "base/metrics/metrics.h"

struct front;

enum front_metrics_for { FRONT_METRICS_ADMIN, FRONT_METRICS_CLIENTS }; /* values of http.metrics */

struct front_opts {
    struct ev_loop *loop;     /* borrowed */
    struct ev_jobs *jobs;     /* borrowed; NULL: all work inline */
    struct backend backend;   /* by value; what it points to is borrowed */
    struct metrics *metrics;  /* borrowed, wanted */
    const char *keys_path;    /* API keys (serve/access/auth.h says the format); NULL: no key is asked for */
    bool has_metrics;         /* clients may read /metrics, which names tenants; else there is no such path */
    bool has_open_metrics;    /* and it needs no key although keys are configured */
    uint32_t guesses_per_min; /* different wrong keys from one address; beyond: 429; 0: no bound */
    uint32_t max_waiting;     /* large requests that wait for a job thread, of one tenant half of them */
    uint64_t max_waiting_bytes; /* and their bodies */
    struct http_limits limits;
    struct http_tls *tls;       /* borrowed; NULL: cleartext */
    bool has_h2c;               /* HTTP/2 without TLS, with prior knowledge */
    const char *congestion;     /* of TCP, borrowed; NULL or "": the system's */
    const char *const *origins; /* borrowed: whose pages may ask (CORS); see net/http/server.h */
    size_t n_origins;
    bool shares_port;      /* several fronts listen on the same address */
    uint64_t ping_ns;      /* silence on a stream before a ping event */
    uint32_t max_requests; /* in flight at once, of all kinds; beyond: 529 */
    uint32_t inline_bytes; /* bodies up to this are parsed and tokenised on the loop */
    const char
        *public_prefix;  /* file of what tenants share; see serve/prompt/public_prefix.h; NULL: nothing */
    size_t replay_bytes; /* of answers remembered for when they come back; 0: none */
    size_t thread_bytes; /* of message threads, which need answers remembered; 0: none */
    double default_temperature; /* when the client names none */
    uint64_t created_unix_s;    /* for model listings without a date of their own */
};

/* Sets what is not a pointer to its default: metrics for clients with a key, ping 9 s, 4096 requests, 8 KiB
 * inline, temperature 1, 30 guesses, 4096 waiting with 1 GiB. */
void front_opts_init(struct front_opts *opts);

int front_new(const struct front_opts *opts, struct fault *fault, struct front **out);
/* Cancels what runs.  NULL is fine.  Waits for jobs of its requests in the pool, so free the pool after the
 * front; the loop must not run any more. */
void front_free(struct front *front);

/* As http_server_listen; several calls are fine. */
int front_listen(struct front *front, const char *address, struct fault *fault);
uint16_t front_port(const struct front *front); /* of the first listener */

/* Reads the key file again; what keys have used of their limits is kept.  On failure the old keys stay. */
int front_reload_keys(struct front *front, const char *keys_path, struct fault *fault);

/* /readyz turns 503; requests are answered, each as the last of its connection.  May be taken back. */
void front_set_lame_duck(struct front *front, bool is_on);
/* The same for good; running answers go on. */
void front_set_draining(struct front *front);
/* Lame duck over: no new connections, finish what runs, then done(arg) from the loop. */
void front_drain(struct front *front, ev_call done, void *arg);
uint32_t front_n_running(const struct front *front);
/* Ends what still runs with an error event "server is shutting down" (drain limit reached). */
void front_abandon(struct front *front);

#endif
