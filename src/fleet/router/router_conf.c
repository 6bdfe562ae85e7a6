/* SPDX-License-Identifier: Apache-2.0 */
/* The router's keys: this table checks the file, gives the defaults, and generates the sample and the
 * manual. */
#include "fleet/router/router_conf.h"

#define KEY(field) offsetof(struct router_conf, field)
#define S(seconds) ((seconds)*1e9)

/* One key, one paragraph. */
/* clang-format off */
static const struct config_key keys[] = {
    {"node", "name", CONFIG_STR, KEY(node), "router", 0, 0, NULL, false,
     "This daemon's name in the cluster, in logs and metrics: letters, digits, '.', '_' and '-'."},
    {"http", "listen", CONFIG_LIST, KEY(http_listen), "127.0.0.1:8080", 0, 0, NULL, false,
     "Where clients connect, host:port; repeat the key for more. Nothing but loopback is opened unless an "
     "API key "
     "file is given."},
    {"http", "api_keys", CONFIG_PATH, KEY(api_keys), "", 0, 0, NULL, true,
     "File of API key hashes, one 'sha256-hex tenant [name] [limit=value ...]' per line (make one with "
     "'batonctl new-key'). "
     "Empty: "
     "no key is "
     "asked for, which is allowed on loopback only."},
    {"http", "tls_certificate", CONFIG_PATH, KEY(tls_certificate), "", 0, 0, NULL, true,
     "PEM file: this daemon's certificate, then its chain. With tls_key it makes every http.listen speak "
     "TLS. "
     "Read again on SIGHUP and when either file changes; a pair that does not fit leaves the old one in "
     "use."},
    {"http", "tls_key", CONFIG_PATH, KEY(tls_key), "", 0, 0, NULL, true,
     "PEM file: its private key, not encrypted, closed to other users."},
    {"http", "tls_min", CONFIG_ENUM, KEY(tls_min), "1.2", 0, 0, "1.2|1.3", true,
     "Oldest TLS a client may speak."},
    {"http", "http2", CONFIG_BOOL, KEY(http2), "yes", 0, 0, NULL, false,
     "Offer HTTP/2 to clients that speak TLS."},
    {"http", "h2c", CONFIG_BOOL, KEY(h2c), "no", 0, 0, NULL, false,
     "Take HTTP/2 without TLS too, from clients (proxies) that begin with it unasked."},
    {"http", "congestion_control", CONFIG_STR, KEY(congestion_control), "", 0, 0, NULL, false,
     "TCP congestion control of client connections, like cubic; the kernel names what it has in "
     "/proc/sys/net/ipv4/tcp_available_congestion_control. Empty: the system's. A small packet for every "
     "token "
     "costs more under bbr than under cubic."},
    {"http", "cors_origin", CONFIG_LIST, KEY(cors_origin), "", 0, 0, NULL, false,
     "Origin whose pages may ask from a browser, like https://app.example; repeat for more; * for any. None: "
     "no CORS header is sent."},
    {"http", "admin", CONFIG_ADDRESS, KEY(admin_listen), "127.0.0.1:8081", 0, 0, NULL, false,
     "Where batonctl connects (status, metrics, drain, reload). Loopback only."},
    {"http", "metrics", CONFIG_ENUM, KEY(metrics_for), "admin", 0, 0, "admin|clients", false,
     "Who may read /metrics, whose labels name tenants, models and workers. admin: who has the admin token, "
     "on "
     "http.admin. clients: also every client with an API key, on http.listen."},
    {"http", "console", CONFIG_BOOL, KEY(console), "no", 0, 0, NULL, false,
     "Serve a page for browsers at /console: a chat on http.listen, whose requests carry an API key, and the fleet "
     "on http.admin, whose requests carry the admin token."},
    {"http", "max_body", CONFIG_SIZE, KEY(http_max_body), "32MiB", 1024, 1e10, NULL, false,
     "Largest request body; beyond it a client gets 413."},
    {"http", "max_connections", CONFIG_U64, KEY(http_max_connections), "10000", 1, 1e6, NULL, false,
     "Client connections in all."},
    {"http", "max_per_address", CONFIG_U64, KEY(http_max_per_address), "256", 1, 1e6, NULL, false,
     "Client connections from one address (an IPv6 /64 counts as one). A proxy, or a load generator on this "
     "host, wants more."},
    {"http", "max_requests", CONFIG_U64, KEY(http_max_requests), "16384", 1, 1e6, NULL, false,
     "Requests under way at once; beyond it a client gets 529."},
    {"http", "wrong_keys", CONFIG_U64, KEY(http_wrong_keys), "30", 0, 1e6, NULL, false,
     "Different wrong API keys that one address may present in a minute before it is refused with 429 for a "
     "while; 0: as many as it likes, for routers behind a proxy that hides addresses."},
    {"http", "head_timeout", CONFIG_DURATION, KEY(http_head_timeout_ns), "10s", S(0.1), S(3600), NULL, false,
     "Deadline for a complete request head."},
    {"http", "body_timeout", CONFIG_DURATION, KEY(http_body_timeout_ns), "30s", S(0.1), S(3600), NULL, false,
     "Deadline for a body, plus one second for each MiB declared."},
    {"http", "idle_timeout", CONFIG_DURATION, KEY(http_idle_timeout_ns), "60s", S(0.1), S(86400), NULL, false,
     "How long an idle connection is kept."},
    {"http", "write_timeout", CONFIG_DURATION, KEY(http_write_timeout_ns), "30s", S(0.1), S(3600), NULL,
     false, "How long a client may not read before it is given up."},
    {"http", "job_threads", CONFIG_U64, KEY(http_job_threads), "2", 1, 64, NULL, false,
     "Threads that parse and tokenise long prompts."},
    {"http", "default_max_tokens", CONFIG_U64, KEY(default_max_tokens), "0", 0, 1e9, NULL, true,
     "Upper bound on the answer's tokens whatever the client asks; 0: only the context bounds it."},
    {"cache", "replay_memory", CONFIG_SIZE, KEY(replay_bytes), "64MiB", 0, 1e12, NULL, false,
     "Memory for the tokens of recent answers: a conversation that comes back continues with exactly these, "
     "so that its KV is found however the client spells it. 0: answers are rendered as they are sent."},
    {"cache", "thread_memory", CONFIG_SIZE, KEY(conversation_bytes), "64MiB", 0, 1e12, NULL, false,
     "Memory for conversations that requests continue by id, so that the client sends only what is "
     "new, and the same for kept responses of /v1/responses. Needs replay_memory. 0: such requests are "
     "refused, and clients send whole conversations."},
    {"cache", "public_prefix", CONFIG_PATH, KEY(public_prefix), "", 0, 0, NULL, false,
     "JSON file with beginnings of prompts (system, tools) whose cached KV all tenants share. Empty: tenants "
     "share nothing."},
    {"link", "listen", CONFIG_ADDRESS, KEY(link_listen), "127.0.0.1:8090", 0, 0, NULL, false,
     "Where workers register."},
    {"link", "advertise", CONFIG_STR, KEY(link_advertise), "", 0, 0, NULL, false,
     "What workers are told to dial by link.register, when it differs from listen."},
    {"link", "register", CONFIG_STR, KEY(link_register), "", 0, 0, NULL, false,
     "etcd://host:2379/prefix (etcds:// with TLS): where this router keeps a key with its address, so that "
     "link.routers of workers can name the same source. Empty: nowhere."},
    {"link", "discovery_ca", CONFIG_PATH, KEY(discovery_ca), "", 0, 0, NULL, false,
     "PEM file with the authorities of etcds:// sources; empty: the system's."},
    {"link", "discovery_certificate", CONFIG_PATH, KEY(discovery_certificate), "", 0, 0, NULL, false,
     "PEM file with a certificate that etcd asks for; empty: none."},
    {"link", "discovery_key", CONFIG_PATH, KEY(discovery_key), "", 0, 0, NULL, false,
     "PEM file with its private key, not encrypted, closed to other users."},
    {"link", "cluster_key", CONFIG_PATH, KEY(cluster_key), "", 0, 0, NULL, false,
     "File with the cluster's key (64 hex digits, readable by nobody else; 'batonctl new-cluster-key FILE'). "
     "Every daemon of a cluster has the same. Empty: "
     "the credential 'cluster.key' of the systemd unit."},
    {"link", "heartbeat", CONFIG_DURATION, KEY(link_heartbeat_ns), "1s", S(0.05), S(60), NULL, false,
     "Heartbeat period; three missed ones and a worker is gone."},
    {"link", "return_grace", CONFIG_DURATION, KEY(link_return_ns), "10s", 0, S(3600), NULL, true,
     "After the start of a router whose workers were registered with an earlier one: how long a model that "
     "none of them serves is answered with 503 and retry-after, because other workers may still come back. "
     "Then with 404."},
    {"slo", "ttft", CONFIG_DURATION, KEY(ttft_slo_ns), "500ms", S(0.001), S(3600), NULL, true,
     "Objective for the time to first token. A prompt that would take longer alone is judged by twice that "
     "time."},
    {"slo", "itl", CONFIG_DURATION, KEY(itl_slo_ns), "50ms", S(0.0001), S(60), NULL, true,
     "Objective for the time between tokens."},
    {"classes", "class", CONFIG_LIST, KEY(classes), "", 0, 0, NULL, false,
     "A class of requests: its name, and what differs from slo and from the class default: ttft=TIME itl=TIME "
     "priority=0..100 (a higher one is placed first) weight=1..100 (multiplies the tenants' weights) share=N% (of "
     "queue.max; beyond it 429) may-be-paused=TIME (its running streams may be paused for a request of a higher "
     "priority, for so long in all; 0: never). Repeat for more, 7 in all; the name default changes the default. A "
     "request names its class by the header field baton-class or by service_tier. The class of its API key is "
     "the bound. Like: interactive ttft=300ms priority=10 weight=4"},
    {"queue", "refuse", CONFIG_ENUM, KEY(refuse), "predicted", 0, 0, "timeout|predicted", false,
     "When a request is refused for load. predicted: at once, when its first token is expected later than "
     "slo.ttft allows, with the time to come back; an idle worker is never refused work. timeout: after "
     "queue.timeout, however late its answer would begin."},
    {"queue", "max", CONFIG_U64, KEY(queue_max), "256", 0, 1e6, NULL, true,
     "Requests that may wait while no worker could begin them; beyond: 529 overloaded_error. A tenant with "
     "fewer of them than another takes the place of that one's newest."},
    {"queue", "timeout", CONFIG_DURATION, KEY(queue_timeout_ns), "10s", 0, S(3600), NULL, true,
     "How long a request may wait before it is refused with 529, or with 503 while its model is not known yet. "
     "An answer that has begun is not bound by "
     "it."},
    {"queue", "resume_timeout", CONFIG_DURATION, KEY(queue_resume_ns), "30s", 0, S(86400), NULL, true,
     "How long an answer that has begun waits, its worker lost, while there is no worker at all that could "
     "go "
     "on with it. 0: as long as its client does."},
    {"placement", "local_prefill_tokens", CONFIG_U64, KEY(local_prefill_tokens), "128", 0, 1e7, NULL, true,
     "Prompts with at most so many uncached tokens are computed on the decode worker itself."},
    {"placement", "local_prefill_time", CONFIG_DURATION, KEY(local_prefill_ns), "500ms", 0, S(60), NULL, true,
     "So are longer ones that it is expected to compute within so long, where a hand-off would add a good "
     "part to so short a time; each answer it is writing counts as much again. 0: none."},
    {"placement", "prefix_fetch", CONFIG_ENUM, KEY(prefix_fetch), "auto", 0, 0, "off|auto|always", true,
     "Whether a worker that lacks a prefix asks another one to push its cached KV. auto: where that is "
     "expected to beat computing it; always: wherever a block is to be had (for tests and measurements)."},
    {"placement", "roles", CONFIG_ENUM, KEY(roles), "fixed", 0, 0, "fixed|auto", true,
     "Whether the router changes workers' roles as the load of the two phases changes. fixed: roles are the "
     "operator's, and the router only shows what it would want (baton_wanted_workers, batonctl status)."},
    {"placement", "roles_min", CONFIG_U64, KEY(roles_min), "1", 1, 1024, NULL, true,
     "With roles = auto: the least number of workers of each role, for each model."},
    {"placement", "roles_period", CONFIG_DURATION, KEY(roles_period_ns), "1min", S(1), S(86400), NULL, true,
     "With roles = auto: the least time between two changes of a role among a model's workers."},
    {"placement", "index_entries", CONFIG_U64, KEY(index_entries), "1000000", 1000, 1e8, NULL, false,
     "Prefix blocks the router remembers the owners of (up to 112 bytes each, whatever the number of "
     "owners; reserved at the start, used as they come)."},
    {"placement", "index_lifetime", CONFIG_DURATION, KEY(index_lifetime_ns), "5min", S(1), S(86400), NULL,
     false, "How long it believes them; the workers' cache lifetime."},
    {"stream", "resume", CONFIG_BOOL, KEY(keeps_streams), "yes", 0, 0, NULL, false,
     "Give the events of streams ids, with which a client whose router is gone goes on at any router of the "
     "cluster. How long workers keep an answer for it: their stream.grace."},
    {"stop", "lame_duck", CONFIG_DURATION, KEY(lame_duck_ns), "5s", 0, S(3600), NULL, true,
     "On SIGTERM, first: how long it still accepts and answers, with /readyz at 503 and each answer its "
     "connection's "
     "last, so that load balancers send elsewhere before anything is refused."},
    {"stop", "drain_timeout", CONFIG_DURATION, KEY(drain_timeout_ns), "5min", 0, S(86400), NULL, true,
     "On SIGTERM, after that: how long running answers may go on."},
    {"log", "level", CONFIG_ENUM, KEY(log_level), "info", 0, 0, "debug|info|warn|error", true,
     "How much is logged."},
    {"log", "format", CONFIG_ENUM, KEY(log_format), "auto", 0, 0, "auto|json|text|journal", false,
     "auto: journal fields under systemd, text on a terminal, JSON lines elsewhere."},
    {"log", "prefixes", CONFIG_BOOL, KEY(log_prefixes), "no", 0, 0, NULL, false,
     "Log keyed hashes of each prompt's beginnings, one for every 512 tokens, for baton-trace. They show which "
     "prompts begin alike, and nothing of what they say."},
    {"metrics", "names", CONFIG_ENUM, KEY(metrics_names), "both", 0, 0, "baton|vllm|both", true,
     "Names in /metrics: Baton's own (baton_*), those that dashboards and gateways for vLLM look for (vllm:*), or both."},
    {"trace", "url", CONFIG_STR, KEY(trace_url), "", 0, 0, NULL, false,
     "OpenTelemetry collector that gets the spans of sampled requests, by OTLP over HTTP: "
     "http://HOST[:PORT][/PATH]; without a port 4318, without a path /v1/traces. A collector that is away costs "
     "spans, never requests. Empty: no spans."},
    {"trace", "sample", CONFIG_RATIO, KEY(trace_sample), "100%", 0, 0, NULL, false,
     "Share of the requests without a traceparent header of which spans are recorded. With the header its sampled "
     "flag decides."},
};
/* clang-format on */

const struct config_table router_conf_table = {
    .daemon = "baton-router",
    .file_name = "router.conf",
    .intro = "The router: terminates HTTP, places requests on workers, streams the answers.",
    .keys = keys,
    .n_keys = sizeof(keys) / sizeof(keys[0]),
    .struct_bytes = sizeof(struct router_conf),
};
