/* SPDX-License-Identifier: Apache-2.0 */
/* Messages between the worker's threads. Commands go to the engine thread; reports come back to the loop
 * thread. Both are heap objects that change owner when sent. Protobuf stays on the loop thread: only plain
 * structs cross. */
#ifndef WORKER_RUNNER_MESSAGES_H
#define WORKER_RUNNER_MESSAGES_H

#include "base/list.h"
#include "base/load_rates.h"
#include "cache/kv/tier.h"
#include "cache/remote/remote.h"
#include "transfer/kvxfer/kvxfer.h"
#include "cache/prefix/block_queue.h"
#include "proto/frame.h"
#include "compute/sched/sched.h"
#include "compute/order/work.h"
#include "transfer/transport/transport.h"

#define WORKER_MAX_ROUTERS    8
#define WORKER_MAX_STRANGERS  64                     /* accepted, TLS handshake not finished */
#define WORKER_MAX_PEERS      1024                   /* 512 workers, a link each way */
#define WORKER_MAX_CONFIGURED (WORKER_MAX_PEERS / 2) /* limit on link.peers */
#define ORIGIN_LOCAL          UINT32_MAX             /* the worker's own endpoint; routers have 0, 1, ... */
#define PEER_NONE             UINT32_MAX
#define READER_PEER           WORKER_MAX_ROUTERS /* lower readers are routers, the others peers */

struct task_key {          /* names a job on both workers of a pair */
    uint64_t router_epoch; /* 0: local */
    uint64_t request;
};

enum task_mode { TASK_LOCAL, TASK_PREFILL, TASK_DECODE };

struct task_spec {
    struct task_key key;
    uint32_t origin; /* router number or ORIGIN_LOCAL */
    enum task_mode mode;
    uint32_t peer;  /* PREFILL: the link to the decode worker */
    uint32_t owner; /* LOCAL, PREFILL: the link to the owner for a prefix fetch; PEER_NONE: none */
    uint32_t owner_tokens;
    bool has_tail;         /* its stream may outlive its router, so it is not cancelled with the router */
    uint64_t notice;       /* the loop's number of it; load reports name the latest (worker/loop/notices.c) */
    uint64_t ask_limit_ns; /* blocks that have not arrived by then are computed */
    struct work_order order; /* owned */
};

const char *worker_transport_name(enum tr_kind kind); /* "shm", "tcp", "rdma" */

struct peer_facts { /* the facts about a peer that the engine thread needs */
    char node[64];
    bool is_same_host;
    char tcp_address[128];
    char unix_path[108];
    uint32_t rdma_rails;
    uint64_t capabilities; /* proto/capabilities.h */
};

enum command_kind {
    COMMAND_SUBMIT,
    COMMAND_CANCEL,
    COMMAND_PROCEED,
    COMMAND_ROUTER_DOWN,
    COMMAND_PEER_UP,
    COMMAND_PEER_DOWN,
    COMMAND_PEER_MESSAGE,
    COMMAND_PEER_BLOCKS,
    COMMAND_PEER_LOAD,
    COMMAND_TRANSPORT,
    COMMAND_GRAMMAR,
    COMMAND_BLOCKS_WANTED,
    COMMAND_BLOCKS_LAST,
    COMMAND_DRAIN,
    COMMAND_MOVE, /* fails all jobs, so that routers place them on other workers */
    COMMAND_STOP
};

struct grammar_command { /* a grammar that the engine thread ordered, compiled */
    uint64_t number;
    struct grammar *grammar; /* owned; NULL: see code and reason */
    int code;
    char reason[400];
};

struct peer_load { /* from the peer's latest heartbeat */
    uint32_t n_running;
    double decode_step_s, read_bytes_per_s;
};

struct hash_list {
    struct block_hash *hashes; /* heap, owned */
    uint32_t n;
};

struct command {
    enum command_kind kind;
    uint32_t number; /* router or peer */
    struct task_key key;
    bool flag; /* DRAIN: on or off */
    uint32_t
        max_in_store; /* BLOCKS_WANTED: limit of the shared store's blocks, for a router that wants them */
    union {
        struct task_spec submit;
        struct kvxfer_message peer; /* its blocks are heap and owned by the command */
        struct peer_facts facts;
        struct tr_event transport;
        struct grammar_command compiled;
        struct hash_list last;     /* BLOCKS_LAST */
        uint32_t max_on_disk;      /* BLOCKS_WANTED, whose number is a reader's */
        struct block_list *blocks; /* PEER_BLOCKS: a peer's events; owned */
        struct peer_load peer_load;
    } as;
};

/* Times of a task's steps on a worker, by CLOCK_MONOTONIC; 0: the step was not reached. */
struct task_times {
    enum task_mode mode; /* as submitted */
    bool is_sender, is_transfer_failed, is_failed;
    uint32_t transfer_peer;
    uint64_t submitted_ns, fetched_ns, admitted_ns, first_ns;
    uint64_t transfer_began_ns, transfer_ended_ns, transfer_bytes;
    uint64_t ended_ns, wall_ns; /* in answers only; wall_ns: to add for wall time */
};

/* Figures of a task that its worker counts outside the scheduler, for the serving stats (serve/api/gen.h). */
struct task_figures {
    uint64_t transfer_ns, exposed_ns;                                  /* of the transfer of its KV */
    uint64_t attention_bytes, recurrent_bytes, index_bytes, mtp_bytes; /* of a hand-off, by kind of state */
    char transport[16];
};

#define ANSWER_TO_NONE UINT32_MAX

struct task_answer {       /* an update on one request */
    uint32_t to;           /* loop thread: the router that receives it; ANSWER_TO_NONE: none */
    uint64_t router_epoch; /* epoch of the router that submitted it; the same router number with another epoch
                            * has other requests */
    uint64_t request;
    bool is_accepted, has_serving;
    bool is_prompt_logprobs; /* ids are prompt tokens, or a stop id; first_index counts in the prompt */
    uint32_t cached_tokens;
    uint32_t first_index;
    uint32_t ids_at, n_ids;     /* offset in the report's ids */
    uint32_t draws_at, n_draws; /* offset in the report's draws; n_draws is n_ids if logprobs are wanted, else
                                 * 0 */
    uint32_t embedding_at, n_embedding; /* offset in the report's embeddings; 0: none */
    Baton__Finish finish;
    int32_t error;
    bool is_handoff_refused;  /* FAILED: the peer refused the hand-off */
    char *error_text;         /* FAILED: for people; heap, owned by the report; NULL: none */
    struct task_times *times; /* with a finish; heap, owned by the report; NULL: none */
    uint64_t ended_unix_s;    /* loop thread, with a finish: when it ended, if a tail is kept of it */
    struct seq_stats stats;
    struct task_figures figures;
};

enum report_kind {
    REPORT_ANSWERS,
    REPORT_PEER_MESSAGE,
    REPORT_LOAD,
    REPORT_GRAMMAR,
    REPORT_BLOCKS,
    REPORT_STORE
};

#define WORKER_SPOILT_TEXT                                                                                   \
    "numerics: the model's logits are not finite numbers (NaN or infinity); its weights, or the memory "     \
    "that "                                                                                                  \
    "holds them, are damaged"

struct load_report {
    uint64_t taken_ns;
    struct sched_load sched;
    struct kv_pool_counts blocks;
    uint32_t blocks_available, blocks_total, n_tasks;
    bool has_disk;
    struct kv_tier_counts disk;
    bool has_remote;
    struct kv_remote_counts remote;
    uint64_t store; /* identifies the store: workers with the same value can read each other's blocks */
    LOAD_RATES_WORKER(LOAD_RATE_MEMBER)
    bool is_draining;
    uint64_t notice;                         /* the latest task_spec.notice that the figures include */
    uint64_t peers_in_memory, peers_on_disk; /* blocks in the peer map; on disk only */
    uint64_t n_own_fetches;                  /* prefix fetches so far whose owner the peer map found */
    bool is_unfit;                           /* health.c */
    uint32_t n_spoilt_in_row;
};

struct report {
    enum report_kind kind;
    uint32_t number; /* router (or ORIGIN_LOCAL), or peer */
    struct task_answer *answers;
    uint32_t n_answers, cap_answers;
    token_id *ids;
    uint32_t n_ids, cap_ids;
    struct sample_result *draws;
    uint32_t n_draws, cap_draws;
    float *embeddings;
    uint32_t n_embeddings, cap_embeddings; /* numbers, of all embeddings together */
    struct kvxfer_message peer;            /* its blocks are heap and owned by the report */
    struct load_report load;
    uint64_t grammar_number; /* GRAMMAR: the grammar to compile; see worker/runner/grammars.c */
    uint64_t grammar_tenant; /* tenant of the request: cache/prefix/tenant.h */
    struct buf constraint;
    struct block_event
        *events; /* BLOCKS, STORE (its tiers: 1, the store has it; 0): heap, owned by the report */
    uint32_t n_events;
    uint64_t first_event; /* number of the first event; snapshot: of the next event */
    bool is_snapshot;     /* for the reader `number`; other events are for all readers */
};

struct command *command_new(enum command_kind kind, uint32_t number); /* NULL: no memory */
void command_free(struct command *command);
struct report *report_new(enum report_kind kind, uint32_t number);
void report_free(struct report *report);
/* Adds an answer with n_ids tokens. NULL: no memory. */
struct task_answer *report_answer(struct report *report, const token_id *ids, uint32_t n_ids);
/* Adds the sampling results of the latest answer's n_ids tokens.  An impossible token gets the lowest log
 * probability that the wire format can carry.  E_NOMEM: nothing was changed. */
int report_draws(struct report *report, const struct sample_result *draws);
/* Adds the embedding of the latest answer.  E_NOMEM: nothing was changed. */
int report_embedding(struct report *report, const float *embedding, uint32_t n_dims);

/* Convert between wire message and struct.  This one allocates blocks (E_NOMEM), and returns E_PROTO for an
 * invalid run list. */
int peer_message_from_wire(enum frame_type type, const ProtobufCMessage *message, struct kvxfer_message *out);
/* Packs and calls send; returns what send returned. */
int peer_message_send(const struct kvxfer_message *message,
                      int (*send)(void *arg, enum frame_type type, const ProtobufCMessage *wire), void *arg);
void peer_message_fini(struct kvxfer_message *message);

#endif
