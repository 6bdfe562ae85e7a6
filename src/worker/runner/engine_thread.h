/* SPDX-License-Identifier: Apache-2.0 */
/* The engine thread: owns the scheduler, the sequences, the KV pool and both ends of hand-offs. It never
 * waits for I/O: commands come through its mailbox, reports leave through the loop's.
 *
 *    commands -> tasks -> sched_run_step -> engine     (a task is one submitted job on this worker)
 *                   |            |
 *                   |            +-- on_layer, on_prefilled -> sending side -> transport
 *                   +-- peer messages, transport events -> sending | receiving side
 *
 * A handoff_side is one end of a hand-off (depart.c, arrive.c). The rest of the worker knows only that a
 * task may be sent or received. */
#ifndef WORKER_RUNNER_ENGINE_THREAD_H
#define WORKER_RUNNER_ENGINE_THREAD_H

#include "base/fair.h"
#include "base/mailbox.h"
#include "base/mem.h"
#include "base/team.h"
#include "base/metrics/metrics.h"
#include "fleet/picker/holder.h"
#include "worker/runner/messages.h"

#define WORKER_MAP_LIFETIME_NS (10 * 60 * NS_PER_S) /* of peer map entries; peers resend twice in it */

struct worker_engine;

struct task { /* one submitted job on this worker; engine thread */
    struct list all;
    struct task_spec spec;   /* its tokens move to the sequence */
    struct seq *seq;         /* NULL: not, or no longer, in the scheduler */
    uint64_t grammar_number; /* of the grammar that is being compiled for it; 0: it does not wait for one */
    struct fair_item grammar_wait; /* in engine.grammar_waits while it waits for one */
    struct fair_flow *grammar_flow;
    uint64_t disk_read; /* number of the read that it waits for; 0: none */
    uint32_t n_disk_looks;
    struct grammar *grammar;          /* while it waits for a read: its grammar, a reference */
    bool may_proceed;                 /* PROCEED came while it waited */
    uint32_t n_begun;                 /* answer tokens that came with the request (a resumed stream) */
    uint32_t n_answered;              /* answer indices used, those included */
    void *handoff;                    /* the side's own state */
    bool has_first;                   /* the first token has been reported */
    uint64_t transfer_ns, exposed_ns; /* of the transfer of its KV; see serve/api/gen.h */
    char transport[16];
    struct list in_ask; /* while it waits for a prefix fetch (ask.c) ... */
    struct ask *ask;    /* ... NULL: it does not wait */
    uint64_t asked_ns;
    uint32_t fetched_from, fetched_to; /* range of tokens whose KV came by the prefix fetch */
};

struct handoff_side {
    int (*open)(struct worker_engine *engine, void **self_out);
    void (*close)(void *self);
    /* Receiving: the task's sequence was submitted and waits for an offer. Sending: the sequence was
     * admitted and is about to be computed (again, after a preemption): offer its blocks. */
    void (*begin)(void *self, struct task *task);
    /* The task is over, for any reason; its sequence is gone or going. */
    void (*end)(void *self, struct task *task);
    void (*on_layer)(void *self, uint32_t layer);
    void (*on_prefilled)(void *self, struct task *task, uint32_t to);
    void (*on_first_token)(void *self, struct task *task, const struct sample_result *first,
                           bool is_finished);
    /* True: the message was for this side. */
    bool (*on_peer_message)(void *self, uint32_t peer, const struct kvxfer_message *message);
    void (*on_peer)(void *self, uint32_t peer, bool is_up);
    bool (*on_transport)(void *self, const struct tr_event *event);
    void (*on_tick)(void *self, uint64_t now_ns);
    void (*proceed)(void *self, struct task *task); /* receiving: stop waiting, compute here */
    uint32_t (*n_active)(const void *self);
};

struct worker_disk_opts {
    const char *path; /* empty: no disk tier */
    uint64_t size_bytes, lifetime_ns;
    unsigned n_threads;
    uint8_t key[32];
};

struct worker_engine_opts {
    struct engine engine;    /* taken */
    struct team *team;       /* taken; NULL for sim */
    struct mem_region arena; /* taken */
    uint32_t n_blocks;
    uint64_t kv_lifetime_ns;
    struct worker_disk_opts disk;
    enum picker_share share; /* when this worker fetches prefixes by its own peer map */
    uint32_t peer_blocks;    /* bound on the blocks in the peer map */
    uint32_t max_seqs, max_queue, chunk_tokens, draft_tokens;
    uint64_t itl_ns;
    enum sched_speculate speculate;
    uint8_t prefix_key[32];
    char model_fingerprint[33];
    const token_id *stop_ids; /* borrowed */
    size_t n_stop_ids;
    struct tr_opts transport; /* worker_engine_new() fills in arena, geometry and event call */
    enum tr_kind preferred;   /* the transport that a grant asks for */
    bool is_auto;
    uint64_t grant_timeout_ns;
    struct metrics *metrics;
    const struct handoff_side *departing, *arriving;
};

void worker_engine_opts_free(struct worker_engine_opts *opts); /* frees what worker_engine_new() takes */
/* Warms the engine up, which measures its first rates, and starts the thread. On failure it frees what it
 * has taken. */
int worker_engine_new(const struct worker_engine_opts *opts, struct fault *fault, struct worker_engine **out);
void worker_engine_free(struct worker_engine *engine); /* stops and joins */

/* ---- loop thread ---- */
int worker_engine_send(struct worker_engine *engine, struct command *command); /* takes; E_FULL frees it */
/* Adds a peer's block events to the peer map, in order. Takes them, also on failure. E_FULL: too many wait
 * already, and these are lost (never an empty message, which only says to forget the peer). E_NOMEM. */
int worker_engine_tell(struct worker_engine *engine, struct peer_blocks *blocks);
struct mailbox *worker_engine_reports(struct worker_engine *engine);
uint64_t worker_engine_beats(const struct worker_engine *engine); /* advances while the thread lives */
bool worker_engine_is_busy(const struct worker_engine *engine);
const struct engine_info *worker_engine_info(const struct worker_engine *engine);
uint32_t worker_engine_n_blocks(const struct worker_engine *engine);
const char *worker_engine_tcp_address(const struct worker_engine *engine);
const char *worker_engine_unix_path(const struct worker_engine *engine);
const char *worker_engine_rdma_text(const struct worker_engine *engine); /* devices, or why there are none */
unsigned worker_engine_rdma_rails(const struct worker_engine *engine);   /* up now */
unsigned worker_engine_rdma_opened(const struct worker_engine *engine);  /* up or not */

/* The transport for KV from a peer. Any thread. */
struct transport_offer {
    bool is_auto;
    enum tr_kind preferred;
    bool has_unix;
    unsigned rdma_rails;
};
struct transport_offer worker_engine_offer(const struct worker_engine *engine);
enum tr_kind worker_choose_transport(const struct transport_offer *own, const struct peer_facts *peer,
                                     const char **why_out);

/* ---- engine thread: for the hand-off sides ---- */
struct sched *worker_engine_sched(struct worker_engine *engine);
struct kv_pool *worker_engine_pool(struct worker_engine *engine);
struct tr_node *worker_engine_transport(struct worker_engine *engine);
const struct worker_engine_opts *worker_engine_opts(const struct worker_engine *engine);
struct task *worker_engine_task(struct worker_engine *engine, const struct task_key *key);
struct task *worker_engine_task_of(struct seq *seq);
const struct peer_facts *worker_engine_peer(const struct worker_engine *engine,
                                            uint32_t peer); /* NULL: down */
/* Copies the message, its blocks included. */
void worker_engine_to_peer(struct worker_engine *engine, uint32_t peer, const struct kvxfer_message *message);
/* The task failed here: reports FAILED and cancels its sequence. */
void worker_engine_fail_task(struct worker_engine *engine, struct task *task, int error);
/* The transport that a grant to this peer asks for. */
enum tr_kind worker_engine_kind_for(const struct worker_engine *engine, uint32_t peer);
void worker_engine_observe_transfer(struct worker_engine *engine, uint64_t bytes, uint64_t elapsed_ns);

#endif
