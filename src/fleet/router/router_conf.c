/* SPDX-License-Identifier: Apache-2.0 */
/* The router's keys: this table checks the file, gives the defaults, and generates the sample and the
 * manual.
 * How to change it: docs/changes-fleet.md, "A configuration key of the router". */
#include "fleet/router/router_conf.h"

#include "fleet/picker/defaults.h"

#define KEY(field) offsetof(struct router_conf, field)
#define S(seconds) ((seconds)*1e9)

/* One key, one paragraph. */
/* clang-format off */
static const struct config_key keys[] = {
    {"node", "name", CONFIG_STR, KEY(node), "router", 0, 0, NULL, false,
     "This daemon's name in the cluster, in logs and metrics: letters, digits, '.', '_' and '-'."},
    HTTP_CONF_KEYS(KEY, "127.0.0.1:8080", "127.0.0.1:8081", "Addresses for clients")
    {"http", "console", CONFIG_BOOL, KEY(console), "no", 0, 0, NULL, false,
     "Serve a page for browsers at /console: a chat on http.listen, whose requests carry an API key, and the fleet "
     "on http.admin, whose requests carry the admin token."},
    {"http", "max_body", CONFIG_SIZE, KEY(http_max_body), "32MiB", 1024, 1e10, NULL, false,
     "Largest request body; beyond it a client gets 413."},
    {"http", "max_connections", CONFIG_U64, KEY(http_max_connections), "10000", 1, 1e6, NULL, false,
     "Most client connections at the same time."},
    {"http", "max_per_address", CONFIG_U64, KEY(http_max_per_address), "256", 1, 1e6, NULL, false,
     "Most client connections from one address (an IPv6 /64 counts as one). A proxy, or a load generator on "
     "this host, needs more."},
    {"http", "max_requests", CONFIG_U64, KEY(http_max_requests), "16384", 1, 1e6, NULL, false,
     "Most requests in flight; beyond it a client gets 529."},
    {"http", "wrong_keys", CONFIG_U64, KEY(http_wrong_keys), "30", 0, 1e6, NULL, false,
     "Different wrong API keys that one address may present in a minute; beyond it the address gets 429 for a "
     "while. 0: no limit, for routers behind a proxy that hides addresses."},
    {"http", "head_timeout", CONFIG_DURATION, KEY(http_head_timeout_ns), "10s", S(0.1), S(3600), NULL, false,
     "Deadline for a complete request head."},
    {"http", "body_timeout", CONFIG_DURATION, KEY(http_body_timeout_ns), "30s", S(0.1), S(3600), NULL, false,
     "Deadline for a body, plus one second for each MiB declared."},
    {"http", "idle_timeout", CONFIG_DURATION, KEY(http_idle_timeout_ns), "60s", S(0.1), S(86400), NULL, false,
     "How long an idle connection is kept."},
    {"http", "write_timeout", CONFIG_DURATION, KEY(http_write_timeout_ns), "30s", S(0.1), S(3600), NULL,
     false,
     "How long a client may stop reading before its connection is closed."},
    {"http", "job_threads", CONFIG_U64, KEY(http_job_threads), "2", 1, 64, NULL, false,
     "Threads that parse and tokenise long prompts."},
    {"http", "default_max_tokens", CONFIG_U64, KEY(default_max_tokens), "0", 0, 1e9, NULL, true,
     "Most tokens of an answer: the default of chats and responses that name no limit, and an upper bound even if the "
     "client asks for more. 0: only the context limits answers."},
    {"cache", "replay_memory", CONFIG_SIZE, KEY(replay_bytes), "64MiB", 0, 1e12, NULL, false,
     "Memory for the tokens of recent answers. When a client sends such an answer back, the prompt uses "
     "exactly these tokens, so that its cached KV is found even if the client's text differs. 0: answers are "
     "tokenised anew from the client's text."},
    {"cache", "thread_memory", CONFIG_SIZE, KEY(conversation_bytes), "64MiB", 0, 1e12, NULL, false,
     "Memory for conversations that requests continue by id, so that clients send only new messages; as much "
     "again for kept responses of /v1/responses. Needs replay_memory. 0: such requests are refused, and "
     "clients send whole conversations."},
    {"cache", "public_prefix", CONFIG_PATH, KEY(public_prefix), "", 0, 0, NULL, false,
     "JSON file with beginnings of prompts (system, tools) whose cached KV all tenants share. Empty: tenants "
     "share nothing."},
    {"link", "listen", CONFIG_ADDRESS, KEY(link_listen), "127.0.0.1:8090", 0, 0, NULL, false,
     "Address where workers register."},
    {"link", "advertise", CONFIG_STR, KEY(link_advertise), "", 0, 0, NULL, false,
     "Address that link.register gives to workers, if it differs from listen."},
    {"link", "register", CONFIG_STR, KEY(link_register), "", 0, 0, NULL, false,
     "etcd://host:2379/prefix (etcds:// with TLS): the router keeps a key with its address there, and "
     "link.routers of workers can name the same source. Empty: none."},
    {"link", "discovery_ca", CONFIG_PATH, KEY(discovery_ca), "", 0, 0, NULL, false,
     "PEM file with the authorities of etcds:// sources; empty: the system's."},
    {"link", "discovery_certificate", CONFIG_PATH, KEY(discovery_certificate), "", 0, 0, NULL, false,
     "PEM file with a client certificate for etcd; empty: none."},
    {"link", "discovery_key", CONFIG_PATH, KEY(discovery_key), "", 0, 0, NULL, false,
     "PEM file with the private key of discovery_certificate, not encrypted, not readable by other users."},
    LINK_CONF_KEYS(KEY)
    {"link", "heartbeat", CONFIG_DURATION, KEY(link_heartbeat_ns), "1s", S(0.05), S(60), NULL, false,
     "Heartbeat period; after three missed heartbeats a worker counts as lost."},
    {"link", "return_grace", CONFIG_DURATION, KEY(link_return_ns), "10s", 0, S(3600), NULL, true,
     "For a router that replaces an earlier one: how long requests for a model that no worker serves yet get "
     "503 with retry-after, because more workers may return. After that they get 404."},
    {"state", "url", CONFIG_STR, KEY(state_url), "", 0, 0, NULL, false,
     "A Redis or Valkey server with the shared state of several routers, encrypted under the cluster's key: "
     "rate and token limits, bans for wrong keys, conversations, responses and remembered answers. "
     "redis://[user:password@]host[:port][/db], rediss:// over TLS, redis+cluster://host:port,host:port (also "
     "rediss+cluster://). While it is away, each router works alone. Empty: none."},
    {"state", "login", CONFIG_PATH, KEY(state_login), "", 0, 0, NULL, false,
     "File with the login of state.url in its first line, user:password or password, not accessible to other "
     "users (0600). Empty: the login is in the URL, or there is none."},
    {"state", "ca", CONFIG_PATH, KEY(state_ca), "", 0, 0, NULL, false,
     "PEM file with the certificates that sign the certificate of state.url. Empty: the system's."},
    {"state", "wait", CONFIG_DURATION, KEY(state_wait_ns), "200ms", S(0.01), S(5), NULL, false,
     "How long a request waits for state.url to return its conversation; after that it continues without."},
    {"slo", "ttft", CONFIG_DURATION, KEY(ttft_slo_ns), DEFAULT_TEXT(DEFAULT_ROUTER_TTFT_MS) "ms", S(0.001), S(3600), NULL, true,
     "Objective for the time to first token. For a prompt that alone takes longer, the objective is twice that "
     "time."},
    {"slo", "itl", CONFIG_DURATION, KEY(itl_slo_ns), DEFAULT_TEXT(DEFAULT_ROUTER_ITL_MS) "ms", S(0.0001), S(60), NULL, true,
     "Objective for the time between tokens."},
    {"classes", "class", CONFIG_LIST, KEY(classes), "", 0, 0, NULL, false,
     "A class of requests: its name, then its differences from [slo] and from the class default. ttft=TIME "
     "itl=TIME: objectives. priority=0..100: a higher one is placed first. weight=1..100: multiplies the "
     "tenants' weights. share=N%: of queue.max; beyond it 429. may-be-paused=TIME: its running streams may be "
     "paused for requests of a higher priority, for this long in total; 0: never. Repeat for more, at most 7; "
     "the name default changes the default. A request names its class by the header field baton-class or by "
     "service_tier; the class of its API key is the highest that it gets. Example: interactive ttft=300ms "
     "priority=10 weight=4"},
    {"queue", "refuse", CONFIG_ENUM, KEY(refuse), DEFAULT_ROUTER_REFUSE, 0, 0, "timeout|predicted", false,
     "When the router refuses a request for load. predicted: at once, if its first token is expected later "
     "than slo.ttft or its class allows, with a time to retry; never while a worker is idle. timeout: after "
     "queue.timeout, even if its answer would begin late."},
    {"queue", "max", CONFIG_U64, KEY(queue_max), DEFAULT_TEXT(DEFAULT_ROUTER_QUEUE_MAX), 0, 1e6, NULL, true,
     "Most requests that may wait for a worker; beyond it 529 overloaded_error. A tenant with fewer waiting "
     "requests than another replaces the newest request of that tenant."},
    {"queue", "timeout", CONFIG_DURATION, KEY(queue_timeout_ns), DEFAULT_TEXT(DEFAULT_ROUTER_QUEUE_TIMEOUT_S) "s", 0, S(3600), NULL, true,
     "How long a request may wait before it is refused with 529, or with 503 while its model is not known or "
     "no worker of it is ready. With queue.refuse = predicted and a ready worker it waits as long as its first "
     "token may take. Answers that have begun are exempt."},
    {"queue", "resume_timeout", CONFIG_DURATION, KEY(queue_resume_ns), "30s", 0, S(86400), NULL, true,
     "If the worker of an answer is lost and no other worker could continue it: how long the answer waits for "
     "one. 0: as long as its client waits."},
    {"placement", "local_prefill_tokens", CONFIG_U64, KEY(local_prefill_tokens), DEFAULT_TEXT(DEFAULT_ROUTER_LOCAL_PREFILL_TOKENS), 0, 1e7, NULL, true,
     "The decode worker itself computes prompts with at most this many uncached tokens."},
    {"placement", "local_prefill_time", CONFIG_DURATION, KEY(local_prefill_ns), DEFAULT_TEXT(DEFAULT_ROUTER_LOCAL_PREFILL_MS) "ms", 0, S(60), NULL, true,
     "The decode worker also computes longer prompts that it is expected to finish within this time, because a "
     "hand-off would add a good part of it. Each answer that it is writing counts the prompt's time once more. "
     "0: none."},
    {"placement", "prefix_fetch", CONFIG_ENUM, KEY(prefix_fetch), DEFAULT_ROUTER_PREFIX_FETCH, 0, 0, "off|auto|always", true,
     "Whether a worker that lacks a prefix asks another worker to push its cached KV. auto: if that is "
     "expected to be faster than computing it. always: whenever a worker has a block (for tests and "
     "measurements)."},
    {"placement", "roles", CONFIG_ENUM, KEY(roles), DEFAULT_ROUTER_ROLES, 0, 0, "fixed|auto", true,
     "auto: the router changes workers' roles when the load of the two phases changes. fixed: only the "
     "operator changes roles, and the router shows the roles that it would choose (baton_wanted_workers, "
     "batonctl status)."},
    {"placement", "roles_min", CONFIG_U64, KEY(roles_min), DEFAULT_TEXT(DEFAULT_ROUTER_ROLES_MIN), 1, 1024, NULL, true,
     "With roles = auto: the least number of workers of each role, for each model."},
    {"placement", "roles_period", CONFIG_DURATION, KEY(roles_period_ns), DEFAULT_TEXT(DEFAULT_ROUTER_ROLES_PERIOD_MIN) "min", S(1), S(86400), NULL, true,
     "With roles = auto: the least time between two changes of a role among a model's workers."},
    {"placement", "index_entries", CONFIG_U64, KEY(index_entries), DEFAULT_TEXT(DEFAULT_ROUTER_INDEX_ENTRIES), 1000, 1e8, NULL, false,
     "Most blocks in the router's prefix index. Each takes up to 112 bytes, for any number of owners; the "
     "address space is reserved at start, memory is used as blocks arrive."},
    {"placement", "index_lifetime", CONFIG_DURATION, KEY(index_lifetime_ns), "5min", S(1), S(86400), NULL,
     false,
     "How long an entry of the index stays valid; set it to the workers' cache lifetime."},
    {"stream", "resume", CONFIG_BOOL, KEY(keeps_streams), "yes", 0, 0, NULL, false,
     "Give the events of streams ids. With them a client whose router is lost continues its stream at any "
     "router of the cluster. Workers keep an answer for it as long as their stream.grace says."},
    {"stop", "lame_duck", CONFIG_DURATION, KEY(lame_duck_ns), "5s", 0, S(3600), NULL, true,
     "First phase after SIGTERM: how long the router still accepts and answers requests, with /readyz at 503 "
     "and each answer the last of its connection, so that load balancers switch to other routers before any "
     "request is refused."},
    {"stop", "drain_timeout", CONFIG_DURATION, KEY(drain_timeout_ns), "5min", 0, S(86400), NULL, true,
     "Second phase after SIGTERM: how long running answers may continue."},
    {"log", "level", CONFIG_ENUM, KEY(log_level), "info", 0, 0, "debug|info|warn|error", true,
     "The least level that is logged."},
    {"log", "format", CONFIG_ENUM, KEY(log_format), "auto", 0, 0, "auto|json|text|journal", false,
     "auto: journal fields under systemd, text on a terminal, JSON lines elsewhere."},
    {"log", "prefixes", CONFIG_BOOL, KEY(log_prefixes), "no", 0, 0, NULL, false,
     "Log keyed hashes of each prompt's beginnings, one for every 512 tokens, for baton-trace. They show which "
     "prompts begin with the same tokens, but none of their text."},
    {"metrics", "names", CONFIG_ENUM, KEY(metrics_names), "both", 0, 0, "baton|vllm|both", true,
     "Names in /metrics: Baton's own (baton_*), those that dashboards and gateways for vLLM use (vllm:*), or "
     "both."},
    {"trace", "url", CONFIG_STR, KEY(trace_url), "", 0, 0, NULL, false,
     "OpenTelemetry collector for the spans of sampled requests, by OTLP over HTTP: http://HOST[:PORT][/PATH]; "
     "the default port is 4318, the default path /v1/traces. While the collector is away, spans are lost but "
     "requests are not delayed. Empty: no spans."},
    {"trace", "sample", CONFIG_RATIO, KEY(trace_sample), "100%", 0, 0, NULL, false,
     "Share of the requests without a traceparent header whose spans are recorded. With the header, its "
     "sampled flag decides."},
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
