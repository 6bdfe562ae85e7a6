/* SPDX-License-Identifier: Apache-2.0 */
/* A worker's configuration: one struct, and one table for each of the two roles. The tables differ in
 * defaults only. */
#ifndef WORKER_LOOP_WORKER_CONF_H
#define WORKER_LOOP_WORKER_CONF_H

#include "base/config/config.h"
#include "serve/setup/http_conf.h"
#include "serve/setup/link_access.h"
#include "transfer/transport/transport.h"

enum worker_role { WORKER_PREFILL, WORKER_DECODE, WORKER_BOTH };
enum worker_engine_kind { WORKER_ENGINE_CPU, WORKER_ENGINE_SIM };
enum { WORKER_SIM_BLOCK_STEP = 8 }; /* tokens; ENGINE_BLOCK_STEP with engine.kind = cpu */
enum worker_bf16 { WORKER_BF16_AUTO, WORKER_BF16_TILES, WORKER_BF16_DOTS, WORKER_BF16_EXACT };
enum worker_convert { WORKER_CONVERT_NO, WORKER_CONVERT_BF16 };
enum worker_tune { WORKER_TUNE_AUTO, WORKER_TUNE_OFF, WORKER_TUNE_REDO };
enum worker_share { WORKER_SHARE_AUTO, WORKER_SHARE_YES, WORKER_SHARE_NO };
/* The words of kv.transport: auto, and a kind of transport by its name (TR_KINDS). */
enum worker_transport {
    WORKER_TRANSPORT_AUTO,
#define X(name, text, socket) WORKER_TRANSPORT_##name,
    TR_KINDS(X)
#undef X
};

struct worker_conf {
    char *node;
    int start_role; /* enum worker_role */
    char *model_path, *model_name;
    uint64_t context;
    int engine_kind;
    int kernels, bf16, convert_f16, tune, share_weights;
    uint64_t threads;
    char *cpus, *numa;
    uint64_t sim_step_ns, sim_prefill_token_ns, sim_decode_seq_ns, sim_answer_tokens;
    uint64_t kv_memory, kv_block_tokens, kv_lifetime_ns;
    int kv_type;
    bool kv_populate;
    char *disk_path;
    uint64_t disk_size, disk_threads, disk_lifetime_ns;
    char *remote, *remote_login, *remote_ca;
    uint64_t remote_threads, remote_lifetime_ns, remote_flush_ns;
    int transport;
    char *tcp_listen, *unix_path, *rdma_devices;
    uint64_t rdma_rest_ns;
    bool tcp_encrypt;
    uint64_t tcp_connections, grant_timeout_ns;
    uint64_t max_seqs, max_queue, chunk_tokens, batch_tokens;
    uint64_t itl_ns, draft_tokens, draft_memory;
    char *draft_model;
    bool mtp;
    int speculate;
    struct config_list routers, peers;
    int prefix_fetch; /* enum picker_fetch */
    uint64_t peer_blocks;
    char *link_listen, *link_advertise;
    struct link_conf link;
    char *link_register, *discovery_ca, *discovery_certificate, *discovery_key;
    uint64_t link_heartbeat_ns;
    struct http_conf http;
    char *public_prefix;
    uint64_t replay_bytes;
    uint64_t conversation_bytes;
    uint64_t tails_grace_ns, tails_bytes, kept_bytes;
    uint64_t lame_duck_ns;
    uint64_t drain_timeout_ns;
    int log_level, log_format;
    int metrics_names; /* enum metrics_names */
    char *trace_url;
    double trace_sample;
};

extern const struct config_table prefill_conf_table;
extern const struct config_table decode_conf_table;

#endif
