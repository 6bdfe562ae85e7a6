/* SPDX-License-Identifier: Apache-2.0 */
/* The router's configuration: one struct, one table. */
#ifndef FLEET_ROUTER_ROUTER_CONF_H
#define FLEET_ROUTER_ROUTER_CONF_H

#include "base/config/config.h"
#include "serve/setup/http_conf.h"
#include "serve/setup/link_access.h"

enum router_refuse { ROUTER_REFUSE_TIMEOUT, ROUTER_REFUSE_PREDICTED };
enum router_roles_mode { ROUTER_ROLES_FIXED, ROUTER_ROLES_AUTO };

struct router_conf {
    char *node;
    struct http_conf http;
    uint64_t replay_bytes;
    uint64_t conversation_bytes;
    char *public_prefix;
    bool console;
    uint64_t http_max_body, http_max_connections, http_max_per_address;
    uint64_t http_head_timeout_ns, http_body_timeout_ns, http_idle_timeout_ns, http_write_timeout_ns;
    uint64_t http_job_threads, http_max_requests, http_wrong_keys;
    char *link_listen, *link_advertise, *link_register;
    char *discovery_ca, *discovery_certificate, *discovery_key;
    struct link_conf link;
    char *state_url, *state_login, *state_ca;
    uint64_t state_wait_ns;
    uint64_t link_heartbeat_ns, link_return_ns;
    uint64_t ttft_slo_ns, itl_slo_ns;
    bool keeps_streams;
    struct config_list classes;
    int refuse; /* enum router_refuse */
    uint64_t queue_max, queue_timeout_ns, queue_resume_ns;
    uint64_t local_prefill_tokens, local_prefill_ns;
    int prefix_fetch; /* enum picker_fetch */
    int roles;        /* enum router_roles_mode */
    uint64_t roles_min, roles_period_ns;
    uint64_t index_entries, index_lifetime_ns;
    uint64_t default_max_tokens;
    uint64_t lame_duck_ns;
    uint64_t drain_timeout_ns;
    int log_level, log_format;
    bool log_prefixes;
    int metrics_names; /* enum metrics_names */
    char *trace_url;
    double trace_sample;
};

extern const struct config_table router_conf_table;

#endif
