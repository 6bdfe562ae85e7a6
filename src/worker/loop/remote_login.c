/* SPDX-License-Identifier: Apache-2.0 */
/* Settings of the remote tier: the file with the store's login, and checks before a start. */
#include <string.h>

#include "base/err.h"
#include "base/file.h"
#include "cache/remote/store.h"
#include "worker/loop/worker_priv.h"

int worker_remote_login(const struct worker_conf *conf, struct fault *fault, char out[WORKER_LOGIN_BYTES])
{
    out[0] = '\0';
    if (conf->remote_login[0] == '\0' || conf->remote[0] == '\0')
        return 0;
    return file_read_login(conf->remote_login, out, WORKER_LOGIN_BYTES, fault);
}

/* Refuses only settings that can never work: the store may be away now, and the worker runs without it. */
void worker_check_remote(struct config_check *check, const struct worker_conf *conf)
{
    struct fault fault = {0};
    char login[WORKER_LOGIN_BYTES];

    if (conf->remote[0] == '\0')
        return;
    if (store_url_check(conf->remote, &fault) < 0)
        config_refuse(check, "kv.remote", "%s", fault.text);
    if (worker_remote_login(conf, &fault, login) < 0)
        config_refuse(check, "kv.remote_login", "%s", fault.text);
    explicit_bzero(login, sizeof(login));
}
