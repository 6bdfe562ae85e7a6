/* SPDX-License-Identifier: Apache-2.0 */
/* Reads files with the functions that the start uses, then releases them. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "base/mem_machine.h"
#include "base/str.h"
#include "serve/access/auth.h"
#include "serve/prompt/public_prefix.h"
#include "net/http/tls.h"
#include "serve/setup/setup.h"

static void setup_files_check_keys(struct config_check *check, const char *path)
{
    struct auth_keys *keys = NULL;
    struct fault fault = {0};

    if (path[0] == '\0')
        return;
    if (auth_keys_load(path, &fault, &keys) < 0)
        config_refuse(check, "http.api_keys", "%s", fault.text);
    else if (auth_keys_count(keys) == 0)
        config_warn(check, "http.api_keys",
                    "%s holds no key, so every client is refused; make one with "
                    "'batonctl new-key'",
                    path);
    auth_keys_free(keys);
}

static void check_tls(struct config_check *check, const struct setup_common *common)
{
    const char *certificate = common->http->tls_certificate, *key = common->http->tls_key;
    struct http_tls_files files = {certificate, key, (enum http_tls_min)common->http->tls_min};
    struct fault fault = {0};

    if ((certificate[0] == '\0') != (key[0] == '\0')) {
        config_refuse(check, key[0] ? "http.tls_key" : "http.tls_certificate",
                      "http.%s is set and http.%s is not: TLS needs both",
                      key[0] ? "tls_key" : "tls_certificate", key[0] ? "tls_certificate" : "tls_key");
        return;
    }
    if (certificate[0] == '\0' || http_tls_check(&files, &fault) == 0)
        return;
    /* The fault begins with the path of its file. */
    bool is_key = strncmp(fault.text, key, strlen(key)) == 0 && strcmp(certificate, key) != 0;

    config_refuse(check, is_key ? "http.tls_key" : "http.tls_certificate", "%s", fault.text);
}

void setup_check_files(struct config_check *check, const struct setup_common *common)
{
    struct public_prefix *prefix = NULL;
    struct fault fault = {0};

    setup_files_check_keys(check, common->http->api_keys);
    check_tls(check, common);
    link_access_check(check, &common->link);
    if (common->public_prefix[0] != '\0' && public_prefix_load(common->public_prefix, &fault, &prefix) < 0)
        config_refuse(check, "cache.public_prefix", "%s", fault.text);
    public_prefix_free(prefix);
}

int setup_folder(const char *path, bool is_parent, struct fault *fault)
{
    const char *slash = strrchr(path, '/');
    char folder[4096] = ".";
    struct stat info;

    if (strlen(path) >= sizeof(folder))
        return fault_set(fault, E_LIMIT, "%.100s...: the path is too long", path);
    if (!is_parent)
        str_copy(folder, sizeof(folder), path);
    else if (slash != NULL)
        snprintf(folder, sizeof(folder), "%.*s", slash == path ? 1 : (int)(slash - path), path);
    if (stat(folder, &info) != 0)
        return fault_set(fault, E_IO, "%s: %s; make the folder", folder, strerror(errno));
    if (!S_ISDIR(info.st_mode))
        return fault_set(fault, E_IO, "%s is not a folder", folder);
    if (access(folder, W_OK | X_OK) != 0)
        return fault_set(fault, E_IO, "this user may not make files in %s: %s", folder, strerror(errno));
    return 0;
}

void setup_check_memory(struct config_check *check, const char *key, uint64_t n_bytes)
{
    struct mem_machine machine = mem_machine_get();
    char wanted[24], has[24];

    if (n_bytes <= machine.bytes)
        return;
    str_from_size(n_bytes, wanted);
    str_from_size(machine.bytes >> 20 << 20, has);
    config_refuse(check, key, "%s is more than %s, %s%s", wanted, machine.name, has, machine.remedy);
}
