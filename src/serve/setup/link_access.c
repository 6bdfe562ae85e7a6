/* SPDX-License-Identifier: Apache-2.0 */
/* Reading builds a whole new context, so a file that is refused changes nothing. */
#include "serve/setup/link_access.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "net/link/tls_files.h"

#define WATCH_NS    (60 * NS_PER_S)
#define NO_KEY_HINT "make one with 'batonctl new-cluster-key FILE'"

static struct tls_conf tls_conf_of(const struct link_conf *conf)
{
    return (struct tls_conf){conf->ca, conf->certificate, conf->key, (const char *const *)conf->names.items,
                             conf->names.n};
}

int link_access_read(const struct link_conf *conf, struct fault *fault, struct link_access **out)
{
    const struct tls_conf tls = tls_conf_of(conf);
    struct link_access *access = calloc(1, sizeof(*access));
    int rc;

    if (access == NULL)
        return fault_set(fault, E_NOMEM, "out of memory");
    rc = cluster_keys_load(conf->cluster_key, fault, &access->keys);
    if (rc == 0)
        rc = tls_context_open(&access->keys, &tls, fault, &access->tls);
    if (rc < 0)
        link_access_free(access);
    else
        *out = access;
    return rc;
}

int link_access_read_again(const struct link_conf *conf, bool has_certificate, struct fault *fault,
                           struct link_access **out)
{
    if ((conf->certificate[0] != '\0') != has_certificate)
        return fault_set(fault, E_UNSUPPORTED,
                         "a reload turns links neither to certificates nor back to the cluster key; restart");
    return link_access_read(conf, fault, out);
}

static void link_access_on_watch(void *arg)
{
    struct link_access *access = arg;

    metric_set(access->expiry, (double)tls_expiry_unix_s(access->tls) - (double)(clock_unix_ns() / NS_PER_S));
    tls_warn_expiry(access->tls);
}

void link_access_take(struct link_access *access, struct link_access *fresh)
{
    char current[9], second[9] = "-";

    if (memcmp(&access->keys, &fresh->keys, sizeof(access->keys)) != 0) {
        snprintf(current, sizeof(current), "%08x", cluster_key_id(fresh->keys.current));
        if (fresh->keys.step != CLUSTER_STEP_NONE)
            snprintf(second, sizeof(second), "%08x", cluster_key_id(fresh->keys.second));
        log_info("cluster_keys_loaded", LOG_STR("current", current), LOG_STR("second", second));
    }
    memcpy(access->keys.current, fresh->keys.current, sizeof(access->keys.current));
    memcpy(access->keys.second, fresh->keys.second, sizeof(access->keys.second));
    access->keys.step = fresh->keys.step; /* the data key stays until a restart */
    tls_context_take(access->tls, fresh->tls);
    fresh->tls = NULL;
    link_access_free(fresh);
    if (access->watch != NULL)
        link_access_on_watch(access);
}

void link_access_free(struct link_access *access)
{
    if (access == NULL)
        return;
    ev_timer_free(access->watch);
    tls_context_free(access->tls);
    cluster_keys_wipe(&access->keys);
    free(access);
}

int link_access_derive(const struct link_access *access, const char *purpose,
                       uint8_t out[TLS_MAX_KEYS][CLUSTER_KEY_BYTES])
{
    const struct cluster_keys *keys = &access->keys;

    if (cluster_key_derive(keys->current, purpose, out[0]) < 0)
        return E_INTERNAL;
    if (keys->step == CLUSTER_STEP_NONE)
        return 1;
    return cluster_key_derive(keys->second, purpose, out[1]) < 0 ? E_INTERNAL : 2;
}

int link_access_watch(struct link_access *access, struct ev_loop *loop, struct metrics *metrics)
{
    if (!tls_has_certificate(access->tls))
        return 0;
    access->expiry = metric_single(metrics, METRIC_GAUGE, "baton_link_certificate_expiry_seconds",
                                   "Seconds until the certificate of links expires; negative: since.");
    if (access->expiry == NULL || ev_timer_new(loop, link_access_on_watch, access, &access->watch) < 0)
        return E_NOMEM;
    link_access_on_watch(access);
    ev_timer_repeat(access->watch, WATCH_NS);
    return 0;
}

/* ---- status ---- */

void link_access_put(const struct link_access *access, struct buf *out)
{
    const struct cluster_keys *keys = &access->keys;

    buf_printf(out, "\"link_keys\": {\"current\": \"%08x\"", cluster_key_id(keys->current));
    if (keys->step != CLUSTER_STEP_NONE)
        buf_printf(out, ", \"%s\": \"%08x\"", keys->step == CLUSTER_STEP_NEXT ? "next" : "former",
                   cluster_key_id(keys->second));
    buf_printf(out, ", \"data\": \"%08x\"", cluster_key_id(keys->data));
    if (tls_has_certificate(access->tls))
        buf_printf(out, ", \"certificate_expires_unix_s\": %llu",
                   (unsigned long long)tls_expiry_unix_s(access->tls));
    buf_append_str(out, "}, ");
}

void link_access_put_peer(uint32_t used, uint32_t current, uint32_t second, struct buf *out)
{
    if (used == 0)
        return;
    buf_printf(out, ", \"keys\": {\"used\": \"%08x\"", used);
    if (current != 0)
        buf_printf(out, ", \"current\": \"%08x\"", current);
    if (second != 0)
        buf_printf(out, ", \"second\": \"%08x\"", second);
    buf_append_str(out, "}");
}

/* ---- --check-config ---- */

static void link_access_check_key(struct config_check *check, const char *path)
{
    struct fault fault = {0};
    struct cluster_keys keys;

    if (path[0] == '\0')
        config_refuse(check, "link.cluster_key", "not set; " NO_KEY_HINT);
    else if (cluster_keys_load(path, &fault, &keys) < 0)
        config_refuse(
            check, "link.cluster_key", "%s%s", fault.text,
            access(path, F_OK) == 0 || errno != ENOENT ? "" : "; " NO_KEY_HINT ", the same for every daemon");
    else
        cluster_keys_wipe(&keys);
}

static void link_access_check_certificate(struct config_check *check, const struct link_conf *conf)
{
    const struct tls_conf tls = tls_conf_of(conf);
    const struct cluster_keys none = {.step = CLUSTER_STEP_NONE};
    const char *const paths[] = {conf->certificate, conf->key, conf->ca};
    const char *const names[] = {"link.certificate", "link.key", "link.ca"};
    struct tls_context *context = NULL;
    struct fault fault = {0};
    unsigned i = 0;
    uint64_t left_s;

    if (tls_context_open(&none, &tls, &fault, &context) < 0) {
        while (i < 2 && (paths[i][0] == '\0' || strncmp(fault.text, paths[i], strlen(paths[i])) != 0))
            i++; /* the fault begins with the path of its file */
        config_refuse(check, paths[i][0] != '\0' ? names[i] : "link.certificate", "%s", fault.text);
        return;
    }
    left_s = tls_expiry_unix_s(context) - clock_unix_ns() / NS_PER_S;
    if (left_s < TLS_ENDS_SOON_S)
        config_warn(check, "link.certificate", "%s expires in %llu days", conf->certificate,
                    (unsigned long long)(left_s / 86400));
    tls_context_free(context);
}

void link_access_check(struct config_check *check, const struct link_conf *conf)
{
    link_access_check_key(check, conf->cluster_key);
    if (conf->ca[0] != '\0' || conf->certificate[0] != '\0' || conf->key[0] != '\0')
        link_access_check_certificate(check, conf);
    else if (conf->names.n > 0)
        config_refuse(check, "link.names", "names of certificates, and link.certificate is not set");
}
