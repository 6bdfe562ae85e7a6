/* SPDX-License-Identifier: Apache-2.0 */
/* What a worker's ports accept: keys and certificates of links, KV connections and the admin endpoint.  A reload
 * replaces them while links, transfers and answers go on. */
#include <openssl/crypto.h>
#include <string.h>

#include "base/err.h"
#include "base/log.h"
#include "serve/setup/admin_access.h"
#include "worker/loop/access_priv.h"
#include "worker/loop/worker_priv.h"

int worker_kv_keys(const struct worker *worker, struct tr_keys *out)
{
    uint8_t keys[TLS_MAX_KEYS][CLUSTER_KEY_BYTES];
    int n = link_access_derive(worker->access, "kv", keys);

    if (n < 0)
        return n;
    *out = (struct tr_keys){.has_second = n > 1};
    memcpy(out->current, keys[0], sizeof(out->current));
    if (n > 1)
        memcpy(out->second, keys[1], sizeof(out->second));
    OPENSSL_cleanse(keys, sizeof(keys));
    return 0;
}

int worker_read_access(void *arg, const void *conf, struct fault *fault, void **out)
{
    struct worker *worker = arg;
    const struct worker_conf *fresh = conf;

    return link_access_read_again(&fresh->link, tls_has_certificate(worker->access->tls), fault,
                                  (struct link_access **)out);
}

static int access_set_transport(struct worker *worker)
{
    struct tls_context *tls = worker->conf->tcp_encrypt ? worker->access->tls : NULL;
    struct tr_keys keys;
    int rc = worker_kv_keys(worker, &keys);

    if (rc == 0)
        rc = tr_node_set_access(worker_engine_transport(worker->engine), tls != NULL ? tls_server(tls) : NULL,
                                tls != NULL ? tls_client(tls) : NULL, &keys);
    OPENSSL_cleanse(&keys, sizeof(keys));
    return rc;
}

void worker_take_access(void *arg, void *fresh)
{
    struct worker *worker = arg;

    link_access_take(worker->access, fresh);
    admin_access_renew(worker->access, worker->admin);
    if (access_set_transport(worker) < 0)
        log_error("kv_keys_not_taken", LOG_STR("hint", "reload again"));
}

void worker_drop_access(void *fresh)
{
    link_access_free(fresh);
}
