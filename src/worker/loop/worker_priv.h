/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of the worker's loop side.  Only the loop thread uses these objects.  It reaches the
 * engine thread through that thread's mailbox (worker/runner/engine_thread.h). */
#ifndef WORKER_LOOP_WORKER_PRIV_H
#define WORKER_LOOP_WORKER_PRIV_H

#include "base/mem.h"
#include "base/owner.h"
#include "compute/engine/engine_load.h"
#include "base/event/jobs.h"
#include "base/event/service.h"
#include "serve/endpoint/admin.h"
#include "serve/endpoint/front.h"
#include "serve/endpoint/handle.h"
#include "serve/endpoint/reload.h"
#include "gguf/gguf.h"
#include "net/link/link.h"
#include "net/link/listener.h"
#include "net/discover/discover.h"
#include "net/otlp/otlp_export.h"
#include "worker/runner/engine_thread.h"
#include "worker/runner/messages.h"
#include "worker/loop/numa_priv.h"
#include "worker/loop/worker.h"
#include "worker/loop/worker_conf.h"

struct worker_router { /* a router that this worker registers with */
    struct worker *worker;
    struct link *link;
    char address[288]; /* a copy, because a reload frees the configuration */
    char node[64];
    uint64_t epoch;    /* of the router's current life; 0: no HELLO yet, or the link is down */
    bool was_up;       /* an earlier link to it was up */
    bool is_listed;    /* the configuration or discovery names it now */
    uint64_t down_ns;  /* when its link went down, or was first dialled */
    struct list parts; /* requests whose prompts come in pieces (parts.c) */
    uint32_t n_parts;
    struct ev_timer *vocabulary_turn; /* runs while the vocabulary is sent ... */
    size_t vocabulary_at;             /* ... ... from this offset */
    bool shares_limits;               /* it sent a SPENDING on this link (spending.c) */
    bool wants_store;                 /* it asked for STORE_BLOCKS on this link */
};

struct worker_peer { /* a link to another worker, dialled by either side */
    struct worker *worker;
    struct link *link; /* NULL: slot free */
    bool is_dialled;
    bool is_up;
    char node[64];
    Baton__Role role; /* by its latest report, or its HELLO */
    uint64_t used_ns;
    enum tr_kind transport;         /* the transport for KV from this peer, chosen when the link came up */
    const char *transport_why;      /* reason for the choice; static text */
    bool is_configured;             /* named in link.peers, so it keeps its slot */
    bool has_block_events;          /* sends block events; false for older workers and this one itself */
    bool wants_block_events;        /* wants our block events ... */
    uint64_t snapshot_ns;           /* ... and received the last snapshot at this time */
    struct block_follower follower; /* follows the peer's events */
};

struct worker { /* the whole daemon */
    const char *daemon;
    Baton__Role role;
    uint64_t role_since_ns; /* when the role changed; 0: never */
    const struct worker_conf *conf;
    struct ev_loop *loop;
    struct thread_owner loop_thread; /* claimed before it runs */
    struct service *service;
    struct metrics *metrics;
    struct otlp_exporter *exporter; /* of spans; NULL: none */
    struct ev_jobs *jobs;
    struct worker_probe *probe;       /* probe_priv.h; NULL: none has run */
    struct fair_queue *compile_queue; /* in front of jobs: grammars to compile, in turns by tenant */
    struct front *front;
    struct admin *admin;
    struct link_access *access; /* keys and TLS of links */
    struct http_tls *https;     /* NULL: cleartext */
    struct listener *peer_listener;
    struct ev_timer *drain_timer, *drain_limit;
    uint64_t beats_seen;
    struct ev_fd *reports_fd;
    /* model */
    struct gguf *gguf, *draft_gguf; /* draft_gguf NULL: no draft model */
    struct gen_model model;
    struct buf vocabulary;
    struct grammar_vocab *grammar_vocab;
    struct list compiles; /* compile.c */
    uint64_t epoch;
    char host_id[64];
    uint64_t instance; /* digest of the network namespace and http.admin */
    uint8_t prefix_key[32];
    struct worker_engine *engine;
    /* links */
    struct link_opts router_link_opts, peer_link_opts;
    struct worker_router routers[WORKER_MAX_ROUTERS];
    uint32_t n_routers, n_peers;        /* n_peers: slots ever used in peers[] */
    uint32_t router_list_at;            /* where the next turn through discovery's list begins */
    struct worker_numa numa;            /* numa.c */
    struct worker_weights *weights;     /* weights.c; NULL: the simulated engine has none */
    struct worker_discovery *discovery; /* discovery.c; NULL: the configuration names addresses only */
    struct tails *tails;                /* tails_priv.h */
    struct spendings *spendings;
    struct worker_kept *kept; /* kept.c */
    struct notices *notices;
    struct worker_peer peers[WORKER_MAX_PEERS];
    struct load_report load;
    int conf_prefix_fetch; /* enum picker_fetch, value at the start */
    struct ev_timer *follow_timer;
    struct metric *m_peer_resyncs;
    uint64_t rdma_failures_counted, peers_full_ns; /* already in the metrics; latest log line */
    bool has_load;
    enum daemon_life life;
    uint32_t n_quiet_looks; /* checks of the drain timer in a row that found no work */
    /* own endpoint */
    struct hashmap *local_jobs; /* request number -> struct local_job */
    struct gen_outbox local_outbox;
    uint64_t next_local;
    const struct worker_conf *(*reload)(void *arg);
    int (*diff)(void *arg, struct buf *out, struct fault *fault);
    void *reload_arg;
    struct reload *reloads;
    Baton__Hello hello;
    Baton__ModelInfo hello_model;
    Baton__KvInfo hello_kv;
    Baton__LoadReport beat_load;
};

/* model.c: file -> tokeniser, chat format, engine with its KV arena */
int worker_model_open(struct worker *worker, struct fault *fault);
void worker_model_close(struct worker *worker);
int worker_engine_build(struct worker *worker, struct fault *fault);
struct engine_load_opts worker_load_opts(const struct worker_conf *conf, struct gguf *gguf); /* no team */
struct kv_layout worker_sim_layout(const struct worker_conf *conf);
/* Computes how many blocks fit kv.memory; E_INVAL if too few. */
int worker_arena_blocks(const struct worker_conf *conf, const struct kv_layout *layout, struct fault *fault,
                        uint32_t *out);

/* remote_login.c: the first line of kv.remote_login, empty without one.  E_FORMAT, or as file_open_secret(). */
enum { WORKER_LOGIN_BYTES = 512 };
int worker_remote_login(const struct worker_conf *conf, struct fault *fault, char out[WORKER_LOGIN_BYTES]);
void worker_check_remote(struct config_check *check, const struct worker_conf *conf);

/* model_check.c: checks of the model file without loading it, for worker_check.c */
void worker_check_model(struct config_check *check, const struct worker_conf *conf);

/* hello.c */
const char *worker_link_address(const struct worker *worker); /* the address that others dial */
const ProtobufCMessage *worker_make_hello(void *arg);
const ProtobufCMessage *worker_make_heartbeat(void *arg); /* contains the load report */

/* routers.c */
/* True if a router that accepted this worker is away.
 * The next HELLO then says that the worker was registered. */
bool worker_lost_router(const struct worker *worker);
int worker_routers_open(struct worker *worker, struct fault *fault);
/* True if both sides have accepted the other's HELLO. */
bool worker_router_is_up(const struct worker_router *router);
uint32_t worker_routers_n_up(const struct worker *worker);
const char *worker_router_why(const struct worker_router *router); /* "ok", or the reason why it is not up */
/* Dials the addresses of the list and drops other ones. Never drops a link that is up. */
void worker_routers_list(struct worker *worker, const struct endpoints *list);
size_t worker_routers_queued_bytes(const struct worker *worker);
void worker_routers_close(struct worker *worker);
void worker_routers_refuse(struct worker_router *router, uint64_t request, int error); /* fails the job */

/* parts.c: prompts in pieces */
/* Takes a SUBMIT, and its packed form for the tail; n_missing tokens will follow. E_OVERLOADED, E_NOMEM. */
int worker_parts_add(struct worker_router *router, struct command *command, struct buf *submit,
                     uint32_t n_missing);
/* Adds tokens.  1: the command is complete and changes owner; a PROCEED follows it if is_proceeding.  0: more
 * tokens will come, or the request is unknown.  E_PROTO: too many tokens; the request is dropped. */
int worker_parts_tokens(struct worker_router *router, const Baton__SubmitTokens *more,
                        struct command **command_out, bool *is_proceeding_out);
/* Drops a request's part.  True: there was one. */
bool worker_parts_cancel(struct worker_router *router, uint64_t request);
bool worker_parts_proceed(struct worker_router *router, uint64_t request);
void worker_parts_drop(struct worker_router *router); /* drops all parts of this router */

/* compile.c: grammars for the engine thread */
int worker_compiles_open(struct worker *worker);
void worker_compile(struct worker *worker, struct report *report); /* takes the report's text */
void worker_compiles_close(struct worker *worker);                 /* call after the job pool is freed */

/* role.c */
void worker_role_open(struct worker *worker); /* the configured role */
/* Changes the worker's role at once, and tells routers and peers.  Running work is not affected. */
void worker_role_set(struct worker *worker, Baton__Role role, const char *by);
int worker_role_order(struct worker *worker, const struct admin_role *wanted, struct fault *fault);
void worker_role_send(struct worker *worker); /* sends a heartbeat to routers and peers now */
uint64_t worker_role_age_ms(const struct worker *worker);

/* answers.c */
void worker_answer_serving(const struct task_answer *from, Baton__Serving *out); /* points into from */
void worker_routers_answers(struct worker *worker, struct report *report);
void worker_routers_send(struct worker *worker, const struct report *report); /* by each answer's `to` */

/* tails.c, tail_resume.c: the tails of answers whose streams may outlive their router */
int worker_tails_open(struct worker *worker); /* E_NOMEM; closed also after a failure */
void worker_tails_close(struct worker *worker);
/* Packs what a tail keeps of a SUBMIT; nothing if the job gets no tail. */
void worker_tails_pack(const struct worker_router *router, const struct task_spec *spec,
                       const Baton__Submit *submit, struct buf *out);
/* Adds a job's tail and takes its packed SUBMIT without the last n_later tokens.  True: the task outlives its router. */
bool worker_tails_add(struct worker_router *router, const struct task_spec *spec, struct buf *submit,
                      uint32_t n_later);
struct task_key worker_tails_task(const struct worker *worker, const struct task_key *job); /* engine's */
void worker_tails_cancelled(struct worker *worker, const struct task_key *job, const Baton__Cancel *cancel);
/* Keeps the job's tail for a client that comes back.  False: it has none. */
bool worker_tails_release(struct worker *worker, const struct task_key *job);
void worker_tails_router_down(struct worker *worker, uint32_t router);
void worker_tails_router_up(struct worker *worker, uint32_t router, uint64_t epoch);
/* Adds the answers to their tails, and sets the router and the job that each answer goes to. */
void worker_tails_report(struct worker *worker, struct report *report);
void worker_tails_resume(struct worker_router *router, const Baton__Resume *resume);

/* send_blocks.c */
void worker_send_blocks(struct worker *worker, const struct report *report); /* to all readers, or to one */

/* follow.c: block events from peers and to peers */
int worker_follow_open(struct worker *worker); /* E_NOMEM */
void worker_follow_close(struct worker *worker);
void worker_follow_up(struct worker *worker, struct worker_peer *peer);
void worker_follow_down(struct worker *worker, struct worker_peer *peer);
void worker_follow_events(struct worker_peer *peer, const Baton__BlockEvents *events);
void worker_follow_load(struct worker_peer *peer, const Baton__LoadReport *load);
void worker_follow_wanted(struct worker_peer *peer, const Baton__BlocksWanted *wanted);
bool worker_follow_has_room(const struct worker_peer *peer); /* room for more events on its link */
uint32_t worker_follow_count(const struct worker *worker);   /* workers that it follows */

/* peers.c */
int worker_peers_open(struct worker *worker, struct fault *fault);           /* dials the configured peers */
void worker_peers_list(struct worker *worker, const struct endpoints *list); /* dials all; drops no link */
int worker_peers_accept(struct worker *worker, int fd, struct stranger *stranger);
void worker_peers_close(struct worker *worker);
/* Returns the slot of the link to this peer, and dials if there is none.  PEER_NONE: all slots are busy. */
uint32_t worker_peer_for(struct worker *worker, const Baton__Peer *peer);
bool worker_peers_have_room(const struct worker *worker); /* one more link leaves slots for hand-offs */
void worker_peers_send(struct worker *worker, const struct report *report);

/* local.c */
int worker_local_open(struct worker *worker); /* E_NOMEM */
void worker_local_close(struct worker *worker);
struct backend worker_backend(struct worker *worker);
void worker_local_answers(struct worker *worker, const struct report *report);

/* status.c */
int worker_status_json(struct worker *worker, struct buf *out);
void worker_metrics_load(struct worker *worker, const struct load_report *load);

#endif
