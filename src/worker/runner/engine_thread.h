/* SPDX-License-Identifier: Apache-2.0 */
/* The engine thread: owns the scheduler, the sequences, the KV pool and both ends of hand-offs. It never
 * waits for I/O: commands come through its mailbox, reports leave through the loop's.
 *
 *    commands -> tasks -> sched_run_step -> engine     (a task is one submitted job on this worker)
 *                   |            |
 *                   |            +-- on_layer, on_prefilled -> KV send -> transport
 *                   +-- peer messages, transport events -> transfer table -> KV send, KV receive,
 *                                                          prefix fetch, prefix serve (transfers_priv.h)
 *
 * More than 15 functions: half of them control the thread for worker/loop, the others serve this folder's
 * transfers. */
#ifndef WORKER_RUNNER_ENGINE_THREAD_H
#define WORKER_RUNNER_ENGINE_THREAD_H

#include "base/fair.h"
#include "base/mailbox.h"
#include "base/mem.h"
#include "base/span.h"
#include "base/team.h"
#include "base/metrics/metrics.h"
#include "fleet/picker/owner.h"
#include "worker/runner/messages.h"

#define WORKER_MAP_LIFETIME_NS (10 * 60 * NS_PER_S) /* of map entries; peers resend twice in it */

struct worker_engine;

enum task_state {
    TASK_NEW,       /* it waits for nothing: just submitted, or a wait is over */
    TASK_HASHING,   /* the blocks of its long prompt are being hashed */
    TASK_FETCHING,  /* a prefix fetch pulls the cached part of its prompt from a peer */
    TASK_COMPILING, /* its grammar is being compiled */
    TASK_READING,   /* blocks of its prompt are being read from disk, or from the remote tier */
    TASK_SCHEDULED, /* the scheduler has its sequence; no token has been reported */
    TASK_ANSWERING, /* the first token has been reported */
    TASK_OVER       /* its last answer is written; it is being freed */
};

struct task { /* one submitted job on this worker; engine thread; the drawing is in tasks.c */
    struct list all;
    enum task_state state;         /* changed by worker_tasks_set_state() only */
    struct task_spec spec;         /* its tokens move to the sequence when that begins */
    struct prefix_roots roots;     /* of its tokens, once chain.tokens is set (chain.c) ... */
    struct prefix_chain chain;     /* ... and their block hashes; freed with the tokens */
    struct list in_hashing;        /* HASHING: in engine.hashing */
    struct seq *seq;               /* from SCHEDULED on */
    uint64_t grammar_number;       /* COMPILING: number of the grammar */
    struct fair_item grammar_wait; /* COMPILING: in engine.grammar_waits */
    struct fair_flow *grammar_flow;
    uint64_t disk_read; /* READING: number of the read */
    uint32_t n_disk_looks;
    uint64_t remote_read;          /* READING: the same for the remote tier */
    uint32_t remote_asked_to;      /* the remote tier was asked for blocks before this one */
    struct grammar *grammar;       /* READING: its grammar, a reference; NULL: none */
    bool may_proceed;              /* PROCEED came before SCHEDULED */
    uint32_t n_begun;              /* answer tokens that came with the request (a resumed stream) */
    uint32_t n_answered;           /* answer indices used, those included */
    struct kv_send *kv_send;       /* mode PREFILL: its KV send; NULL: none yet, or over */
    bool is_handoff_refused;       /* mode PREFILL: its decode worker refused the OFFER */
    struct kv_receive *kv_receive; /* mode DECODE: its KV receive; NULL: none yet, or over */
    struct task_times times;
    struct task_figures figures;
    struct seq_stats stats;     /* once its sequence is over */
    struct list in_fetch;       /* FETCHING: in the waiters of ... */
    struct prefix_fetch *fetch; /* ... this prefix fetch */
    uint64_t fetch_began_ns;
    uint32_t fetched_from, fetched_to; /* range of tokens whose KV came by the prefix fetch */
};

struct worker_disk_opts {
    const char *path; /* empty: no disk tier */
    uint64_t size_bytes, lifetime_ns;
    unsigned n_threads;
    uint8_t key[32];
};

struct worker_remote_opts {
    const char *url;     /* empty: no remote tier */
    const char *ca_path; /* certificates that sign the store's; empty: the system's */
    char login[512];     /* "user:password" or "password"; empty: as the URL says */
    uint64_t lifetime_ns, flush_ns;
    unsigned n_threads;
    uint8_t key[32];
};

struct worker_engine_opts {
    struct engine engine;    /* taken */
    struct team *team;       /* taken; NULL for sim */
    struct mem_region arena; /* taken */
    uint32_t n_blocks;
    struct engine draft;           /* taken: the draft model's; without ops: none */
    struct mem_region draft_arena; /* taken */
    uint32_t draft_blocks;
    uint64_t kv_lifetime_ns;
    struct worker_disk_opts disk;
    struct worker_remote_opts remote;
    enum picker_fetch prefix_fetch; /* when this worker fetches prefixes by its own peer map */
    uint32_t peer_blocks;           /* bound on the blocks in the peer map */
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
    struct span_queue *spans; /* borrowed; NULL: there is no exporter */
};

void worker_engine_opts_free(struct worker_engine_opts *opts); /* frees what worker_engine_new() takes */
/* Warms the engine up, which measures its first rates, and starts the thread. On failure it frees the members
 * that it takes. */
int worker_engine_new(const struct worker_engine_opts *opts, struct fault *fault, struct worker_engine **out);
void worker_engine_free(struct worker_engine *engine); /* stops and joins */

/* ---- loop thread ---- */
int worker_engine_send(struct worker_engine *engine, struct command *command); /* takes; E_FULL frees it */
/* Adds a peer's block events to the peer map, in order.  Takes them, also on failure.  E_FULL: too many are
 * pending, so these are lost; but an empty message, which makes the map forget the peer, is never refused.
 * E_NOMEM. */
int worker_engine_send_peer_blocks(struct worker_engine *engine, struct block_list *blocks);
struct mailbox *worker_engine_reports(struct worker_engine *engine);
uint64_t worker_engine_beats(const struct worker_engine *engine); /* advances while the thread lives */
bool worker_engine_is_busy(const struct worker_engine *engine);
const struct engine_info *worker_engine_info(const struct worker_engine *engine);
uint32_t worker_engine_n_blocks(const struct worker_engine *engine);
const char *worker_engine_tcp_address(const struct worker_engine *engine);
const char *worker_engine_unix_path(const struct worker_engine *engine);
/* The devices, or the reason why there are none. */
const char *worker_engine_rdma_text(const struct worker_engine *engine);
unsigned worker_engine_rdma_rails(const struct worker_engine *engine);  /* rails that are up */
unsigned worker_engine_rdma_opened(const struct worker_engine *engine); /* all rails, up or down */
struct tr_node *worker_engine_transport(struct worker_engine *engine);

/* The transport choice for KV from a peer.  Any thread. */
struct transport_offer {
    bool is_auto;
    enum tr_kind preferred;
    bool has_unix;
    unsigned rdma_rails;
};
struct transport_offer worker_engine_offer(const struct worker_engine *engine);
enum tr_kind worker_choose_transport(const struct transport_offer *own, const struct peer_facts *peer,
                                     const char **why_out);

/* True while a task or a transfer needs the link to this peer.  Any thread. */
bool worker_engine_uses_peer(const struct worker_engine *engine, uint32_t peer);

/* ---- engine thread ---- */
struct task *worker_engine_task(struct worker_engine *engine, const struct task_key *key);
struct task *worker_engine_task_of(struct seq *seq);
const struct peer_facts *worker_engine_peer(const struct worker_engine *engine,
                                            uint32_t peer); /* NULL: down */
/* Copies the message with its blocks, and sends it. */
void worker_engine_to_peer(struct worker_engine *engine, uint32_t peer, const struct kvxfer_message *message);
/* The task failed here: reports FAILED and cancels its sequence. */
void worker_engine_fail_task(struct worker_engine *engine, struct task *task, int error);
/* The transport that a grant to this peer asks for. */
enum tr_kind worker_engine_kind_for(const struct worker_engine *engine, uint32_t peer);
void worker_engine_observe_transfer(struct worker_engine *engine, uint64_t bytes, uint64_t elapsed_ns);

#endif
