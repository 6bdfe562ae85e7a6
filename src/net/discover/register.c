/* SPDX-License-Identifier: Apache-2.0 */
/* Registers this daemon in etcd: one key under a lease that the thread keeps alive. If this daemon ends, etcd removes
 * the key with the lease. If etcd has lost the lease, the thread asks for a new one. */
#include <curl/curl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/str.h"
#include "net/discover/discover_priv.h"

enum { REGISTER_TTL_S = 15 };
#define REGISTER_CALL_NS (5 * NS_PER_S)
#define REGISTER_END_NS  (1 * NS_PER_S)

struct discover_registration {
    struct discover_thread thread;
    struct discover_url url;
    struct discover_names names;
    char key[DISCOVER_PATH_BYTES + 128];
    char shown[DISCOVER_PATH_BYTES + 16];
    struct buf value;
    struct etcd *etcd;
    int64_t lease;      /* 0: none */
    bool is_up, is_new; /* for the log: the state, and whether no line reported it yet */
};

static int register_grant(struct discover_registration *reg, struct fault *fault)
{
    struct bytes answer = {0};
    struct buf body = {0};
    int rc;

    buf_printf(&body, "{\"TTL\":\"%d\"}", REGISTER_TTL_S);
    rc = etcd_call(reg->etcd, &(struct etcd_post){"/v3/lease/grant", buf_view(&body), REGISTER_CALL_NS},
                   &answer, fault);
    if (rc == 0 && etcd_read_number(answer, "ID", &reg->lease) < 0)
        rc = fault_set(fault, E_FORMAT, "no lease in the answer");
    buf_clear(&body);
    if (rc == 0) {
        etcd_put_put(&body, reg->key, buf_view(&reg->value), reg->lease);
        rc = body.is_bad
                 ? fault_set(fault, E_LIMIT, "the key or its value is too long")
                 : etcd_call(reg->etcd, &(struct etcd_post){"/v3/kv/put", buf_view(&body), REGISTER_CALL_NS},
                             &answer, fault);
    }
    if (rc < 0)
        reg->lease = 0;
    buf_fini(&body);
    return rc;
}

static int register_keep(struct discover_registration *reg, struct fault *fault)
{
    struct bytes answer = {0};
    struct buf body = {0};
    int64_t ttl = 0;
    int rc;

    buf_printf(&body, "{\"ID\":\"%lld\"}", (long long)reg->lease);
    rc = etcd_call(reg->etcd, &(struct etcd_post){"/v3/lease/keepalive", buf_view(&body), REGISTER_CALL_NS},
                   &answer, fault);
    buf_fini(&body);
    if (rc == 0 && (etcd_read_number(answer, "TTL", &ttl) < 0 || ttl <= 0))
        return register_grant(reg, fault); /* the lease ended while this daemon or etcd was away */
    return rc;
}

static void register_log(struct discover_registration *reg, bool is_up, const struct fault *why)
{
    if (is_up == reg->is_up && !reg->is_new)
        return;
    reg->is_up = is_up;
    reg->is_new = false;
    if (is_up)
        log_info("registered", LOG_STR("at", reg->shown), LOG_STR("key", reg->key));
    else
        log_warn("registration_lost", LOG_STR("at", reg->shown), LOG_STR("key", reg->key),
                 LOG_STR("reason", why->text));
}

/* Revokes with a call that cannot be cancelled: the thread is stopping, which cancels the calls of `etcd`. */
static void register_revoke(struct discover_registration *reg)
{
    struct bytes answer = {0};
    struct buf body = {0};

    if (reg->lease == 0)
        return;
    buf_printf(&body, "{\"ID\":\"%lld\"}", (long long)reg->lease);
    atomic_store(&reg->thread.is_stopping, false);
    (void)etcd_call(reg->etcd, &(struct etcd_post){"/v3/lease/revoke", buf_view(&body), REGISTER_END_NS},
                    &answer, NULL);
    atomic_store(&reg->thread.is_stopping, true);
    buf_fini(&body);
}

static void *register_run(void *arg)
{
    struct discover_registration *reg = arg;
    unsigned n_failures = 0;
    uint64_t pause_ns;

    do {
        struct fault fault = {0};
        int rc = reg->etcd != NULL ? 0 : etcd_open(&reg->url, &reg->names, &reg->thread, &reg->etcd);

        if (rc == 0)
            rc = reg->lease == 0 ? register_grant(reg, &fault) : register_keep(reg, &fault);
        if (rc != E_CANCELLED)
            register_log(reg, rc == 0, &fault);
        n_failures = rc == 0 ? 0 : n_failures + 1;
        pause_ns =
            rc == 0 ? REGISTER_TTL_S * NS_PER_S / 3 : discover_pause_ns(n_failures < 3 ? n_failures : 3);
    } while (discover_thread_wait(&reg->thread, pause_ns));
    if (reg->etcd != NULL)
        register_revoke(reg);
    etcd_close(reg->etcd);
    return NULL;
}

static void register_free(struct discover_registration *reg)
{
    discover_names_fini(&reg->names);
    buf_fini(&reg->value);
    free(reg);
    curl_global_cleanup();
}

int discover_register(const char *url, const struct discover_tls *tls, const struct discover_entry *entry,
                      struct fault *fault, struct discover_registration **out)
{
    struct discover_registration *reg = calloc(1, sizeof(*reg));
    int rc;

    *out = NULL;
    if (reg == NULL || curl_global_init(CURL_GLOBAL_DEFAULT) != 0) {
        free(reg);
        return fault_set(fault, E_NOMEM, "out of memory");
    }
    reg->thread.stop_fd = -1;
    reg->is_new = true;
    discover_url_show(url, reg->shown, sizeof(reg->shown));
    rc = discover_url_parse(url, fault, &reg->url);
    if (rc == 0 && reg->url.kind != DISCOVER_ETCD)
        rc = fault_set(fault, E_FORMAT, "'%.100s': a daemon registers in etcd:// or etcds:// only",
                       reg->shown);
    if (rc == 0) {
        snprintf(reg->key, sizeof(reg->key), "%s/%s/%.100s", reg->url.path,
                 entry->role == DISCOVER_ROUTERS ? "routers" : "workers", entry->node);
        etcd_put_entry(&reg->value, entry);
        rc = discover_names_open(&reg->names, tls);
        if (rc == 0)
            rc = discover_thread_start(&reg->thread, register_run, reg);
        if (rc < 0)
            fault_set(fault, rc, "cannot start the thread that registers this daemon");
    }
    if (rc < 0)
        register_free(reg);
    else
        *out = reg;
    return rc;
}

void discover_unregister(struct discover_registration *registration)
{
    if (registration == NULL)
        return;
    discover_thread_stop(&registration->thread);
    register_free(registration);
}
