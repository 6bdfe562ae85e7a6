/* SPDX-License-Identifier: Apache-2.0 */
/* The work description: everything that one answer asks of an engine. One struct travels all the way.
 *
 *    serve/api      gen_request.work   parsed from the client's JSON
 *    serve/endpoint work_order         one for each choice, with its prompt and its constraint
 *    fleet/router   job.order  ------ SUBMIT: work_submit_pack(), work_submit_unpack() ------+
 *    worker         task_spec.order  <------------------------------------------------------+
 *    compute/sched  seq_spec.work
 *
 * Each stage embeds the struct and copies it whole. So a new field needs no hand copy: add it here, parse it in
 * serve/api, give it a number in proto/control.proto and a line in order/submit.c, and use it.
 * How to change it: docs/changes-api.md, "A request field that a worker reads". */
#ifndef COMPUTE_ORDER_WORK_H
#define COMPUTE_ORDER_WORK_H

#include "base/bytes.h"
#include "base/trace_context.h"
#include "compute/order/pins.h"
#include "compute/sample/sampler.h"
#include "proto/frame.h"

/* How the model ends an answer: X(end, its name among the values of Finish in control.proto). */
#define WORK_END_TABLE(X)                                                                                    \
    X(STOP_TOKEN, STOP)                                                                                      \
    X(LENGTH, LENGTH)                                                                                        \
    X(CONTEXT, CONTEXT)

enum work_end {
#define X(end, finish) WORK_END_##end,
    WORK_END_TABLE(X)
#undef X
};

/* Beside the order, the data with which another router continues the answer's stream (docs/http.md). */
struct work_resume {
    bool is_kept; /* workers keep the answer's tail, even after the loss of the router */
    char message_id[FRAME_REQUEST_ID + 1]; /* the answer's id in its events ... */
    uint64_t created_unix_s;               /* ... and its time */
    uint8_t body_digest[32];               /* SHA-256 of the client's body */
};

struct work { /* plain values: a struct copy is a full copy, except for sample.bias */
    char request_id[FRAME_REQUEST_ID + 1]; /* "req_...", for logs */
    char tenant[FRAME_TENANT + 1];         /* pays for blocks and tokens; "": the anonymous tenant */
    char class_allowed[32]; /* the class of the API key; "": none.  Read by the router, not sent */
    uint64_t
        received_ns; /* when the request's first byte came; 0: not known.  Read by the router, not sent */
    char class_wanted[32];   /* the class that the client asks for; "": none.  Read by the router, not sent */
    uint32_t weight;         /* the tenant's weight among competing tenants; 0 counts as 1 */
    uint32_t max_new_tokens; /* tokens still to be sampled; 0: prefill only */
    struct sample_opts sample;        /* its bias belongs to the arena or the work_order around it */
    uint32_t pin_tokens[WORK_N_PINS]; /* pin the KV of this many leading tokens for the time of each pin */
    uint32_t public_tokens;           /* this many leading tokens are public: tenants share their KV */
    bool ignores_end;                 /* stop tokens do not end the answer: for load tests */
    uint32_t score_from;              /* not 0: report prompt logprobs from this prompt token on */
    bool wants_embedding;             /* the answer is the prompt's embedding; its one token is dropped */
    struct work_resume resume;        /* an answer without a stream has none */
    struct trace_context trace;       /* the distributed trace that the work belongs to */
};

struct work_order {        /* a work description with its tokens; its owner owns the heap members */
    token_id *tokens;      /* heap, [n_tokens]: the prompt, then the answer so far */
    uint32_t n_tokens;     /* grows with the answer in the router */
    uint32_t n_prompt;     /* <= n_tokens: where the answer begins */
    uint32_t cap_tokens;   /* room in tokens; 0: as many as there are */
    struct buf constraint; /* the answer's constraint as text (text/grammar/grammar.h), heap; empty: none */
    struct work work;      /* its sample.bias is heap */
};

/* Replaces the order's bias with a heap copy of [n] entries. E_NOMEM: the order has no bias. */
int work_order_copy_bias(struct work_order *order, const struct sample_bias *bias, uint32_t n);
/* Moves the order out of *from, which is empty afterwards. */
struct work_order work_order_move(struct work_order *from);
void work_order_free_tokens(
    struct work_order *order); /* only tokens and constraint: a sequence has its own */
/* Hashes the prompt's tokens, to compare two copies; not against forgery.  1 ms for 4 million tokens in cache. */
uint64_t work_order_hash_prompt(const struct work_order *order);
void work_order_fini(struct work_order *order); /* frees all heap members; the plain values stay */

#endif
