/* SPDX-License-Identifier: Apache-2.0 */
/* The workers' keys. Both roles have the same keys. One macro is the list; its arguments are the defaults
 * that differ (names, ports, step sizes).
 * How to change it: docs/changes-fleet.md, "A configuration key of a worker". */
#include "worker/loop/worker_conf.h"

#include "cache/kv/layout.h"
#include "compute/engine/engine_load.h"
#include "transfer/transport/transport.h"

#define KEY(field)                         offsetof(struct worker_conf, field)
#define S(seconds)                         ((seconds)*1e9)
#define KERNEL_WORD(word)                  "|" word
#define KERNEL_WORDS                       (&(ENGINE_KERNELS(KERNEL_WORD))[1])
#define TRANSPORT_WORD(name, text, socket) "|" #text
#define TRANSPORT_WORDS                    "auto" TR_KINDS(TRANSPORT_WORD)

/* One key has one paragraph. */
/* clang-format off */
#define WORKER_KEYS(role, seqs, chunk, link_port, http_port, admin_port)                                     \
    {"node", "name", CONFIG_STR, KEY(node), "", 0, 0, NULL, false,                                           \
     "This worker's name in the cluster; unique: letters, digits, '.', '_' and '-'. Empty: " "HOST-" role    \
     "-PORT, of this host's name and the port of http.admin, which two workers of a "                        \
     "host cannot share. A router refuses a second worker of a name."},                                      \
    {"node", "role", CONFIG_ENUM, KEY(start_role), role, 0, 0, "prefill|decode|both", false,                 \
     "The worker's role at start. prefill: computes prompts and hands over. decode: writes answers. "        \
     "both: also computes prompts, in chunks beside the answers that it writes. 'batonctl role' and a "      \
     "router with placement.roles = auto change the role until the worker restarts."},                       \
    {"model", "path", CONFIG_PATH, KEY(model_path), "", 0, 0, NULL, false,                                   \
     "The GGUF file to serve. Every worker of a model needs the same file; workers compare "                 \
     "fingerprints of its content."},                                                                        \
    {"model", "name", CONFIG_STR, KEY(model_name), "", 0, 0, NULL, false,                                    \
     "The model's name for clients. Empty: the file's name without '.gguf'."},                               \
    {"model", "context", CONFIG_U64, KEY(context), "0", 0, 4194304.0, NULL, false,                           \
     "Most tokens of prompt and answer together; 0: the model's own context length."},                       \
    {"engine", "kind", CONFIG_ENUM, KEY(engine_kind), "cpu", 0, 0, "cpu|sim", false,                         \
     "cpu computes the model. sim produces deterministic tokens with the timing below, for load tests "      \
     "of everything around the engine; it reads only the vocabulary."},                                      \
    {"engine", "kernels", CONFIG_ENUM, KEY(kernels), "auto", 0, 0, KERNEL_WORDS, false,                      \
     "Instruction set of the kernels; auto takes the best one of this CPU. All give the same bits."},        \
    {"engine", "bf16", CONFIG_ENUM, KEY(bf16), "auto", 0, 0, "auto|tiles|dots|exact", false,                 \
     "How BF16 weights are multiplied. tiles, dots: activations are rounded to BF16 too, and sums are "      \
     "those of AMX tiles or AVX512_BF16; fast on CPUs that have these, with the same bits on others. "       \
     "exact: activations stay F32. auto: tiles if the CPU has AMX, else dots. Workers of a model that "      \
     "differ here do not hand over to each other, so set it where CPUs differ."},                            \
    {"engine", "convert_f16", CONFIG_ENUM, KEY(convert_f16), "no", 0, 0, "no|bf16", false,                   \
     "bf16 rounds F16 weights to BF16 when they are loaded: three bits less precision, and the speed "       \
     "of BF16."},                                                                                            \
    {"engine", "tune", CONFIG_ENUM, KEY(tune), "auto", 0, 0, "auto|off|redo", false,                         \
     "auto: at start the worker measures which variants of kernels and copies are fastest on this "          \
     "machine, in less than 300 ms, and keeps the result in a cache file. No variant changes results. "      \
     "off: use the defaults. redo: measure at each start."},                                                 \
    {"engine", "share_weights", CONFIG_ENUM, KEY(share_weights), "auto", 0, 0, "auto|yes|no", false,         \
     "Whether workers of a host that serve the same file keep one copy of its weights, beside "              \
     "kv.unix_path. auto: if the system gives huge pages to shared memory; yes: always."},                   \
    {"engine", "threads", CONFIG_U64, KEY(threads), "0", 0, 1024, NULL, false,                               \
     "Compute threads; 0: one for each usable CPU."},                                                        \
    {"engine", "cpus", CONFIG_CPUS, KEY(cpus), "", 0, 0, NULL, false,                                        \
     "CPUs to pin the compute threads to, one each: 0-3,8. Empty: not pinned."},                             \
    {"engine", "numa", CONFIG_STR, KEY(numa), "off", 0, 0, NULL, false,                                      \
     "How a worker uses several memory nodes (NUMA): off, split, mirror or node:N. node:N keeps threads, "   \
     "weights and KV on node N, for one worker on each node. split divides threads, rows of weights and "    \
     "KV heads among the nodes. mirror keeps a copy of the weights on each node. All give the same bits."},  \
    {"engine", "sim_step", CONFIG_DURATION, KEY(sim_step_ns), "1ms", 0, S(10), NULL, false,                  \
     "sim: fixed time of a step."},                                                                          \
    {"engine", "sim_prefill_token", CONFIG_DURATION, KEY(sim_prefill_token_ns), "20us", 0, S(1), NULL,       \
     false,                                                                                                  \
     "sim: time for each prompt token of a step."},                                                          \
    {"engine", "sim_decode_seq", CONFIG_DURATION, KEY(sim_decode_seq_ns), "50us", 0, S(1), NULL, false,      \
     "sim: time for each decoding sequence of a step."},                                                     \
    {"engine", "sim_answer_tokens", CONFIG_U64, KEY(sim_answer_tokens), "200", 1, 1000000.0, NULL, false,    \
     "sim: mean length of an answer."},                                                                      \
    {"cache", "replay_memory", CONFIG_SIZE, KEY(replay_bytes), "64MiB", 0, 1e12, NULL, false,                \
     "As the router's, for this worker's own endpoint: memory for the tokens of recent answers, which "      \
     "a prompt uses when a client sends the answer back. 0: answers are tokenised anew from the "            \
     "client's text."},                                                                                      \
    {"cache", "thread_memory", CONFIG_SIZE, KEY(conversation_bytes), "64MiB", 0, 1e12, NULL, false,          \
     "Memory for conversations (threads) of this worker's own endpoint, and as much again for kept "         \
     "responses of /v1/responses. Needs replay_memory. 0: threads are refused, and no responses are "        \
     "kept."},                                                                                               \
    {"cache", "public_prefix", CONFIG_PATH, KEY(public_prefix), "", 0, 0, NULL, false,                       \
     "JSON file with beginnings of prompts (system, tools) whose cached KV all tenants of this "             \
     "worker's own " "endpoint share. Empty: they share nothing."},                                          \
    {"cache", "prefix_fetch", CONFIG_ENUM, KEY(prefix_fetch), "auto", 0, 0, "off|auto|always", false,        \
     "Whether this worker exchanges block events with its peers and fetches prefixes by its own "            \
     "knowledge, in addition to the owners that routers name: for its own endpoint, and for routers "        \
     "that do not know the owners yet. auto: if a push is expected to be faster than computing; "            \
     "always: whenever a peer has a block (for tests and measurements)."},                                   \
    {"cache", "peer_blocks", CONFIG_U64, KEY(peer_blocks), "131072", 1000, 1e8, NULL, false,                 \
     "Most blocks of peers that the worker remembers (up to 112 bytes each, used as they arrive)."},         \
    {"kv", "memory", CONFIG_SIZE, KEY(kv_memory), "1GiB", 1048576, 1e15, NULL, false,                        \
     "Memory for KV blocks: running sequences and the prefix cache."},                                       \
    {"kv", "block_tokens", CONFIG_U64, KEY(kv_block_tokens), "32", WORKER_SIM_BLOCK_STEP, ENGINE_BLOCK_MAX,  \
     NULL, false,                                                                                            \
     "Tokens in a block, a multiple of 16 (sim: of 8); the same on every worker of a model."},               \
    {"kv", "lifetime", CONFIG_DURATION, KEY(kv_lifetime_ns), "5min", S(1), S(604800), NULL, false,           \
     "How long an unused cached block stays."},                                                              \
    {"kv", "type", CONFIG_ENUM, KEY(kv_type), "f16", 0, 0, KV_TYPE_WORDS, false,                             \
     "Type of stored keys and values, the same on every worker of a model. A type of fewer bits (the "       \
     "number in its name) holds more tokens in kv.memory, at some loss of precision."},                      \
    {"kv", "populate", CONFIG_BOOL, KEY(kv_populate), "no", 0, 0, NULL, false,                               \
     "Touch all KV memory at start instead of at its first use."},                                           \
    {"kv", "disk_path", CONFIG_PATH, KEY(disk_path), "", 0, 0, NULL, false,                                  \
     "This worker's own folder for cached KV that leaves memory, also over restarts, encrypted under "       \
     "the cluster's key. It is created if missing; an existing one must belong to the daemon's user "        \
     "and be closed to others (0700). Empty: none, so no prompt content is stored."},                        \
    {"kv", "disk_size", CONFIG_SIZE, KEY(disk_size), "16GiB", 1048576, 1e15, NULL, false,                    \
     "Most bytes of all files in kv.disk_path together."},                                                   \
    {"kv", "disk_threads", CONFIG_U64, KEY(disk_threads), "2", 1, 32, NULL, false,                           \
     "Threads that read from kv.disk_path; one more thread writes."},                                        \
    {"kv", "disk_lifetime", CONFIG_DURATION, KEY(disk_lifetime_ns), "1d", S(1), S(31536000), NULL, false,    \
     "Files in kv.disk_path are deleted when they were neither written nor read for this long."},            \
    {"kv", "remote", CONFIG_STR, KEY(remote), "", 0, 0, NULL, false,                                         \
     "A store in which all workers of the model keep cached KV that was used twice, encrypted under "        \
     "the cluster's key. A worker reads from it if that is faster than computing. "                          \
     "redis://[user:password@]host[:port][/db] (Redis, Valkey), rediss:// over TLS, "                        \
     "redis+cluster://host:port,host:port (also rediss+cluster://); "                                        \
     "s3://bucket[/prefix][?endpoint=http[s]://host:port&region=name]. Empty: none."},                       \
    {"kv", "remote_login", CONFIG_PATH, KEY(remote_login), "", 0, 0, NULL, false,                            \
     "File with the login of kv.remote in its first line, user:password or password (s3: "                   \
     "access-key:secret-key), not accessible to other users (0600). Empty: the login is in the URL, or "     \
     "there is none."},                                                                                      \
    {"kv", "remote_ca", CONFIG_PATH, KEY(remote_ca), "", 0, 0, NULL, false,                                  \
     "PEM file with the certificates that sign the certificate of kv.remote. Empty: the system's."},         \
    {"kv", "remote_threads", CONFIG_U64, KEY(remote_threads), "2", 1, 32, NULL, false,                       \
     "Threads that read from kv.remote, each with its own connection; two more threads write and look "      \
     "blocks up."},                                                                                          \
    {"kv", "remote_lifetime", CONFIG_DURATION, KEY(remote_lifetime_ns), "1d", 0, S(31536000), NULL, false,   \
     "How long a block stays in kv.remote after its last use. 0: until the store evicts it."},               \
    {"kv", "remote_flush", CONFIG_DURATION, KEY(remote_flush_ns), "10s", 0, S(600), NULL, false,             \
     "How long a stopping worker continues to write its cached KV to kv.remote. 0: not at all."},            \
    {"kv", "transport", CONFIG_ENUM, KEY(transport), "auto", 0, 0, TRANSPORT_WORDS, false,                 \
     "How KV reaches this worker: shm (workers of one host), rdma, tcp or auto. auto: shm if the peer "      \
     "is on the same host and both have a unix_path, rdma if both have a rail, else tcp. When RDMA "         \
     "fails, tcp takes over. RDMA is not encrypted, so its fabric must be trusted."},                        \
    {"kv", "rdma_devices", CONFIG_STR, KEY(rdma_devices), "auto", 0, 0, NULL, false,                         \
     "RDMA rails: auto (every port with the address of kv.tcp_listen), or a list of device, "                \
     "device:port or device:port@address, such as mlx5_0, mlx5_1:1@10.0.1.5. Used if kv.transport is "       \
     "auto or rdma. Empty: none."},                                                                          \
    {"kv", "rdma_rest", CONFIG_DURATION, KEY(rdma_rest_ns), "30s", S(1), S(300), NULL, false,                \
     "How long a rail is not used towards a peer after a failure; doubled after each further failure, "      \
     "up to five minutes."},                                                                                 \
    {"kv", "tcp_listen", CONFIG_ADDRESS, KEY(tcp_listen), "127.0.0.1:0", 0, 0, NULL, false,                  \
     "Address where peers connect for KV over TCP; port 0: any free one, which is announced."},              \
    {"kv", "unix_path", CONFIG_PATH, KEY(unix_path), "", 0, 0, NULL, false,                                  \
     "Socket for shared memory, in a directory that all workers of the host can reach (the units use "       \
     "/run/baton-kv). Both ends prove the cluster key. Empty: no shared memory."},                           \
    {"kv", "tcp_encrypt", CONFIG_BOOL, KEY(tcp_encrypt), "yes", 0, 0, NULL, false,                           \
     "TLS 1.3 on KV connections. KV reveals prompts: switch it off only on a network that is private "       \
     "to the cluster."},                                                                                     \
    {"kv", "tcp_connections", CONFIG_U64, KEY(tcp_connections), "2", 1, TR_MAX_CONNECTIONS, NULL, false,     \
     "KV connections to each peer."},                                                                        \
    {"kv", "grant_timeout", CONFIG_DURATION, KEY(grant_timeout_ns), "10s", S(0.1), S(600), NULL, false,      \
     "A transfer without progress for this long is ended; blocks that arrived are kept, and the rest "       \
     "is computed. A decode worker waits 30 times as long while the prefill worker computes, because other " \
     "prompts may come first."},                                                                             \
    {"sched", "max_seqs", CONFIG_U64, KEY(max_seqs), seqs, 1, 4096, NULL, false,                             \
     "Most running sequences."},                                                                             \
    {"sched", "max_queue", CONFIG_U64, KEY(max_queue), "1024", 0, 1000000.0, NULL, false,                    \
     "Most waiting sequences. When the queue is full, a tenant with fewer waiting sequences than "           \
     "another replaces the newest one of that tenant."},                                                     \
    {"sched", "chunk_tokens", CONFIG_U64, KEY(chunk_tokens), chunk, 16, 65536, NULL, false,                  \
     "Prompt tokens computed in one step beside running answers: larger is faster for prompts, "             \
     "smaller is smoother for answers."},                                                                    \
    {"sched", "batch_tokens", CONFIG_U64, KEY(batch_tokens), "0", 0, 65536, NULL, false,                     \
     "Most tokens of one step; it sizes the engine's scratch memory. 0: chunk_tokens + max_seqs."},          \
    {"sched", "itl", CONFIG_DURATION, KEY(itl_ns), "50ms", 0, S(60), NULL, false,                            \
     "Objective for the time between two tokens of an answer while prompts are computed beside it. A "       \
     "step takes fewer prompt tokens than chunk_tokens if it would take longer. 0: always "                  \
     "chunk_tokens."},                                                                                       \
    {"sched", "speculate", CONFIG_ENUM, KEY(speculate), "auto", 0, 0, "off|auto|always", false,              \
     "Speculation: several draft tokens are verified in one step, which gives the same tokens sooner. "      \
     "They come from text that the answer repeats, from sched.draft_model or from the model's MTP "          \
     "head. auto: if measurements show a gain; always: whenever possible."},                                 \
    {"sched", "draft_tokens", CONFIG_U64, KEY(draft_tokens), "24", 1, 64, NULL, false,                       \
     "Most draft tokens of one answer in a step."},                                                          \
    {"sched", "draft_model", CONFIG_PATH, KEY(draft_model), "", 0, 0, NULL, false,                           \
     "GGUF file of a smaller model with the same vocabulary, which samples draft tokens when the "           \
     "answer repeats no text (sched.speculate). It may be model.path itself, quantised to fewer bits. "      \
     "Empty: none."},                                                                                        \
    {"sched", "mtp", CONFIG_BOOL, KEY(mtp), "yes", 0, 0, NULL, false,                                        \
     "Draft tokens with the MTP head of model.path (nextn tensors) where text does not repeat, if the file "  \
     "has one and sched.draft_model is empty."},                \
    {"sched", "draft_memory", CONFIG_SIZE, KEY(draft_memory), "256MiB", 1048576, 1e15, NULL, false,          \
     "Memory for the KV of the draft model or the MTP head. Answers that find none free are written "        \
     "without their draft tokens."},                                                                         \
    {"link", "routers", CONFIG_LIST, KEY(routers), "127.0.0.1:8090", 0, 0, NULL, false,                      \
     "Routers to register with, host:port; repeat the key for more. Or a source of their addresses: "        \
     "file:///path, dns://name:port, dns+srv://name, etcd://host:2379/prefix (etcds:// with TLS)."},         \
    {"link", "peers", CONFIG_LIST, KEY(peers), "", 0, 0, NULL, false,                                        \
     "link.listen of workers of the same model to link to at start, host:port; repeat the key for more "     \
     "(64), or name a source as for link.routers. Links to other workers follow when routers name "          \
     "them. Two linked workers may ask each other for cached blocks (cache.prefix_fetch); only one of "      \
     "them needs to name the other."},                                                                       \
    {"link", "listen", CONFIG_ADDRESS, KEY(link_listen), "127.0.0.1:" link_port, 0, 0, NULL, false,          \
     "Address where peers connect for the control of hand-offs."},                                           \
    {"link", "advertise", CONFIG_STR, KEY(link_advertise), "", 0, 0, NULL, false,                            \
     "Address that peers dial, if it differs from listen; without it, listen must be a reachable "           \
     "address."},                                                                                            \
    {"link", "register", CONFIG_STR, KEY(link_register), "", 0, 0, NULL, false,                              \
     "etcd://host:2379/prefix: the worker keeps a key with its role, model and address there, and "          \
     "link.peers of other workers can name the same source. Empty: none."},                                  \
    {"link", "discovery_ca", CONFIG_PATH, KEY(discovery_ca), "", 0, 0, NULL, false,                          \
     "PEM file with the authorities of etcds:// sources; empty: the system's."},                             \
    {"link", "discovery_certificate", CONFIG_PATH, KEY(discovery_certificate), "", 0, 0, NULL, false,        \
     "PEM file with a client certificate for etcd; empty: none."},                                           \
    {"link", "discovery_key", CONFIG_PATH, KEY(discovery_key), "", 0, 0, NULL, false,                        \
     "PEM file with the private key of discovery_certificate, not encrypted, not readable by other "         \
     "users."},                                                                                              \
    LINK_CONF_KEYS(KEY)                                                                                      \
    {"link", "heartbeat", CONFIG_DURATION, KEY(link_heartbeat_ns), "1s", S(0.05), S(60), NULL, false,        \
     "Heartbeat period; after three missed heartbeats the other side counts as lost."},                      \
    HTTP_CONF_KEYS(KEY, "127.0.0.1:" http_port, "127.0.0.1:" admin_port, "Addresses of the worker's own endpoint")    \
    {"stream", "grace", CONFIG_DURATION, KEY(tails_grace_ns), "30s", 0, S(3600), NULL, false,                \
     "How long the worker keeps an answer whose router is lost, or that has ended, for a client that "       \
     "returns for its stream at any router. After that the work ends. 0: answers end with their "            \
     "router."},                                                                                             \
    {"stream", "tail_memory", CONFIG_SIZE, KEY(tails_bytes), "64MiB", 65536, 1e12, NULL, false,              \
     "Memory for the kept answers of stream.grace. At the limit the tenant that uses the most loses "        \
     "its oldest answer."},                                                                                  \
    {"stream", "kept_memory", CONFIG_SIZE, KEY(kept_bytes), "64MiB", 0, 1e12, NULL, false,                   \
     "Memory for conversations, responses and remembered answers that this worker keeps for its routers, "   \
     "sealed. Beyond it the least recently used goes. 0: none is kept."},                                    \
    {"stop", "lame_duck", CONFIG_DURATION, KEY(lame_duck_ns), "5s", 0, S(3600), NULL, true,                  \
     "First phase after SIGTERM, with http.listen: how long the worker still accepts and answers "           \
     "requests, with /readyz at 503 and each answer the last of its connection."},                           \
    {"stop", "drain_timeout", CONFIG_DURATION, KEY(drain_timeout_ns), "5min", 0, S(86400), NULL, true,       \
     "Second phase after SIGTERM: how long running answers may continue."},                                  \
    {"log", "level", CONFIG_ENUM, KEY(log_level), "info", 0, 0, "debug|info|warn|error", true,               \
     "The least level that is logged."},                                                                     \
    {"log", "format", CONFIG_ENUM, KEY(log_format), "auto", 0, 0, "auto|json|text|journal", false,           \
     "auto: journal fields under systemd, text on a terminal, JSON lines elsewhere."},                       \
    {"metrics", "names", CONFIG_ENUM, KEY(metrics_names), "both", 0, 0, "baton|vllm|both", true,             \
     "Names in /metrics: Baton's own (baton_*), those that dashboards and gateways for vLLM use "            \
     "(vllm:*), or both."},                                                                                  \
    {"trace", "url", CONFIG_STR, KEY(trace_url), "", 0, 0, NULL, false,                                      \
     "OpenTelemetry collector for this worker's spans of sampled requests, as the router's."},               \
    {"trace", "sample", CONFIG_RATIO, KEY(trace_sample), "100%", 0, 0, NULL, false,                          \
     "Share of the requests at its own endpoint without a traceparent header whose spans are recorded. "     \
     "For a router's requests the router decides."}
/* clang-format on */

static const struct config_key prefill_keys[] = {WORKER_KEYS("prefill", "64", "512", "8092", "8082", "8083")};
static const struct config_key decode_keys[] = {WORKER_KEYS("decode", "128", "256", "8094", "8084", "8085")};

const struct config_table prefill_conf_table = {
    .daemon = "baton-prefill",
    .file_name = "prefill.conf",
    .intro = "A prefill worker: reads prompts, hands the KV cache to decode workers.",
    .keys = prefill_keys,
    .n_keys = sizeof(prefill_keys) / sizeof(prefill_keys[0]),
    .struct_bytes = sizeof(struct worker_conf),
};

const struct config_table decode_conf_table = {
    .daemon = "baton-decode",
    .file_name = "decode.conf",
    .intro = "A decode worker: receives the KV cache, writes answers token by token.",
    .keys = decode_keys,
    .n_keys = sizeof(decode_keys) / sizeof(decode_keys[0]),
    .struct_bytes = sizeof(struct worker_conf),
};
