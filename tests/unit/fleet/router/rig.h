/* SPDX-License-Identifier: Apache-2.0 */
/* A router without sockets.  The link layer is scripted here, and the front is a few recorded clients. */
#ifndef TESTS_UNIT_ROUTER_RIG_H
#define TESTS_UNIT_ROUTER_RIG_H

#include "fleet/router/router_priv.h"

#define RIG_MAX_SENT    8192
#define RIG_MAX_CLIENTS 512
#define RIG_MAX_TOKENS  256

struct rig_submit { /* a request that a worker received */
    uint64_t request, seed;
    Baton__SubmitMode mode;
    uint32_t n_tokens, n_prompt, max_new_tokens;
    uint32_t token_bytes;
    uint32_t n_pieces;         /* after the SUBMIT */
    uint64_t tokens_digest;    /* digest of the ids, however they were packed */
    struct sample_opts sample; /* without the bias */
    uint64_t digest;           /* digest of bias and grammar */
    uint32_t pin_tokens[WORK_N_PINS];
    uint32_t score_from;
    char owner[64]; /* owner for a prefix fetch; empty: none */
    uint32_t owner_tokens;
    bool is_over, may_proceed;
};

struct rig_client { /* one request, from the front's view */
    struct rig *rig;
    struct gen_handle *handle;
    uint32_t n_accepted, cached_tokens, n_tokens;
    token_id tokens[RIG_MAX_TOKENS];
    struct sample_result draws[RIG_MAX_TOKENS];
    uint32_t n_scores; /* prompt tokens with logprobs */
    struct sample_result scores[RIG_MAX_TOKENS];
    bool wants_logprob;
    bool has_ended, has_failed;
    enum work_end end;
    int status;
    uint32_t retry_after_s;
    char message[200];
    struct gen_serving serving;
    bool cancels_on_accepted, cancels_on_tokens, pauses_on_tokens;
    struct rig_client *cancels_on_failure; /* another client */
    struct rig_client *cancels_other_on_tokens;
};

struct rig {
    struct router router;
    struct router_conf conf;
    struct gen_model sim;
    struct rig_client *clients;
    uint32_t n_clients;
    struct sample_opts sample; /* sampling options of the next clients */
    const char *constraint;    /* NULL: none */
    bool scores_prompt;
    uint64_t capabilities;   /* capabilities of the next workers; 0: none stated */
    uint32_t block_tokens;   /* of the next workers; 0: 32 */
    const char *fingerprint; /* of the next workers' model; NULL: the first model's */
    uint32_t tokens_from;    /* the least id in the next prompts; the others are less than 100 above it */
    uint32_t pin_tokens[WORK_N_PINS];
    uint32_t n_soon[GEN_SOON_STEPS]; /* calls of on_soon */
    bool has_same_prompts;           /* otherwise each client has its own prompt */
    const char *tenant;              /* tenant of the next clients; NULL: none */
    uint32_t weight;
    const char *class_allowed, *class_wanted; /* classes of the next clients; NULL: none */
};

int rig_open(struct rig *rig);
void rig_close(struct rig *rig);

/* Called for each message that the router sends; NULL: none.  The message is borrowed for the call. */
extern void (*rig_on_send)(struct link *link, enum frame_type type, const ProtobufCMessage *message);
/* Adds a worker that registered, is up and has reported; blocks of 32 tokens. */
struct link *rig_worker(struct rig *rig, const char *node, enum picker_role role, uint64_t epoch,
                        uint32_t n_blocks);
int rig_hello(struct rig *rig, struct link *link, Baton__Hello *hello);
void rig_beat(struct rig *rig, struct link *link, Baton__LoadReport *load);
void rig_events(struct rig *rig, struct link *link, Baton__BlockEvents *events);
void rig_store(struct rig *rig, struct link *link, Baton__StoreBlocks *blocks);
void rig_lose(struct rig *rig, struct link *link);
void rig_fail_sends(struct link *link, bool fails);
void rig_queue_bytes(struct link *link, size_t queued_bytes);   /* bytes that the worker has not read yet */
struct rig_submit *rig_sent(struct link *link, uint32_t index); /* NULL beyond */
struct rig_submit *rig_last(struct link *link);
uint32_t rig_n_wanted(const struct link *link);        /* snapshots that the router asked for */
uint32_t rig_max_on_disk(const struct link *link);     /* max_on_disk of the last of these */
uint32_t rig_n_last_replicas(const struct link *link); /* blocks that the router called last replicas */

struct rig_client *rig_submit_model(struct rig *rig, uint32_t model, uint32_t n_tokens,
                                    uint32_t max_new_tokens);
struct rig_client *rig_submit(struct rig *rig, uint32_t n_tokens, uint32_t max_new_tokens);
void rig_cancel(struct rig_client *client);
void rig_pause(struct rig_client *client, bool is_paused);
/* Runs the loop's next turn: the front's events.  The functions above call it. */
void rig_flush(struct rig *rig);

void rig_answer(struct rig *rig, struct link *link, Baton__Answer *answer);
void rig_accept(struct rig *rig, struct link *link, uint32_t cached_tokens);
/* Returns the sampling result for this index. */
struct sample_result rig_draw(uint32_t index);
/* Sets log probabilities of an answer's tokens; their lists stay valid until the next call. */
void rig_put_draws(Baton__Answer *answer);
/* Sends n tokens from index on, each 'a' + its index % 16, for the link's latest request. */
void rig_tokens(struct rig *rig, struct link *link, uint32_t index, uint32_t n);
/* The client has the first n tokens of rig_tokens(), and no others. */
void rig_assert_answer(const struct rig_client *client, uint32_t n);
/* Sends prompt logprobs of n tokens from index on, as in rig_draw(), for the link's latest request. */
void rig_scores(struct rig *rig, struct link *link, uint32_t index, uint32_t n);
void rig_finish(struct rig *rig, struct link *link, Baton__Finish finish, int error);
bool rig_ledgers_are_empty(const struct rig *rig);

#endif
