/* SPDX-License-Identifier: Apache-2.0 */
/* Names of things to fetch. Pure.
 *
 *     hf:owner/name                 the only model of a repository
 *     hf:owner/name:Q4_K_M          by quantisation, or by the name of a file
 *     https://host/folder/m.gguf    one file, or any part of a split model
 *     https://huggingface.co/owner/name/blob/main/m.gguf    the hub's page of a file, or of a repository, as browsers
 *                                                           show it: the same as hf:owner/name:m.gguf */
#include "clients/pull/pull.h"

#include "base/err.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

bool pull_is_name(const char *text)
{
    return strncmp(text, "hf:", 3) == 0 || strncmp(text, "https://", 8) == 0 ||
           strncmp(text, "http://", 7) == 0;
}

bool pull_path_is_safe(struct bytes path)
{
    if (path.len_bytes == 0 || path.len_bytes >= PULL_PATH_BYTES)
        return false;
    for (size_t i = 0; i < path.len_bytes; i++) {
        uint8_t byte = path.data[i];
        bool is_start = i == 0 || path.data[i - 1] == '/';

        if (byte < 0x20 || byte == 0x7f || byte == '\\' || (is_start && (byte == '/' || byte == '.')))
            return false;
    }
    return path.data[path.len_bytes - 1] != '/';
}

/* One component of a repository's name. */
static bool take_word(struct bytes word, char out[PULL_NAME_BYTES])
{
    if (word.len_bytes == 0 || word.len_bytes >= PULL_NAME_BYTES || word.data[0] == '.' ||
        word.data[0] == '-')
        return false;
    for (size_t i = 0; i < word.len_bytes; i++) {
        if (!isalnum(word.data[i]) && strchr("-_.", word.data[i]) == NULL)
            return false;
    }
    memcpy(out, word.data, word.len_bytes);
    out[word.len_bytes] = '\0';
    return true;
}

static int read_hub(const char *text, struct pull_name *out, struct fault *fault)
{
    const char *slash = strchr(text, '/');
    const char *colon = slash != NULL ? strchr(slash, ':') : NULL;
    const char *end = colon != NULL ? colon : text + strlen(text);

    out->is_hub = true;
    if (slash == NULL || !take_word(bytes_of(text, (size_t)(slash - text)), out->owner) ||
        !take_word(bytes_of(slash + 1, (size_t)(end - slash - 1)), out->repo))
        return fault_set(fault, E_FORMAT, "a hub name is hf:owner/name or hf:owner/name:quantisation");
    if (colon == NULL)
        return 0;
    if (!pull_path_is_safe(bytes_str(colon + 1)))
        return fault_set(fault, E_FORMAT,
                         "after the last colon stands a quantisation or a file of the repository");
    snprintf(out->pick, sizeof(out->pick), "%s", colon + 1);
    return 0;
}

/* True for the hub's page of a repository or of one of its files. Its bytes are no model, so the hub's list is asked. */
static bool read_page(const char *text, struct pull_name *out)
{
    static const char *const hosts[] = {"https://huggingface.co/", "https://hf.co/"};
    const char *at = NULL;

    for (size_t i = 0; i < sizeof(hosts) / sizeof(hosts[0]) && at == NULL; i++)
        if (strncmp(text, hosts[i], strlen(hosts[i])) == 0)
            at = text + strlen(hosts[i]);
    if (at == NULL)
        return false;
    const char *end = at + strcspn(at, "?#"), *slash = memchr(at, '/', (size_t)(end - at));
    if (slash == NULL)
        return false;
    const char *name_end = slash + 1 + strcspn(slash + 1, "/?#");
    struct bytes tail = bytes_of(name_end, (size_t)(end - name_end));
    bool is_file = bytes_starts_with(tail, "/blob/main/");

    if (is_file)
        tail = bytes_of(tail.data + 11, tail.len_bytes - 11);
    if (is_file ? !pull_path_is_safe(tail)
                : !bytes_is(tail, "") && !bytes_is(tail, "/") && !bytes_is(tail, "/tree/main"))
        return false;
    if (!take_word(bytes_of(at, (size_t)(slash - at)), out->owner) ||
        !take_word(bytes_of(slash + 1, (size_t)(name_end - slash - 1)), out->repo))
        return false;
    out->is_hub = true;
    snprintf(out->pick, sizeof(out->pick), "%.*s", is_file ? (int)tail.len_bytes : 0,
             (const char *)tail.data);
    return true;
}

/* The place of a web address in the folder of models: host and path, without query. */
static int read_url(const char *text, struct pull_name *out, struct fault *fault)
{
    const char *host = strstr(text, "://") + 3;
    size_t len_bytes = strcspn(host, "?#");
    size_t host_bytes = strcspn(host, "/?#");

    if (strlen(text) >= sizeof(out->url))
        return fault_set(fault, E_FORMAT, "the address is longer than %zu bytes", sizeof(out->url) - 1);
    for (const char *at = text; *at != '\0'; at++) {
        if ((unsigned char)*at <= ' ' || *at == 0x7f)
            return fault_set(fault, E_FORMAT, "the address has a blank or control character");
    }
    if (memchr(host, '@', host_bytes) != NULL)
        return fault_set(fault, E_FORMAT, "the address must not hold a password");
    if (host_bytes == 0 || host_bytes == len_bytes || !pull_path_is_safe(bytes_of(host, len_bytes)))
        return fault_set(fault, E_FORMAT, "the address does not end in the name of a file");
    snprintf(out->url, sizeof(out->url), "%s", text);
    snprintf(out->path, sizeof(out->path), "%.*s", (int)len_bytes, host);
    return 0;
}

int pull_name_read(const char *text, struct pull_name *out, struct fault *fault)
{
    struct pull_name name = {0};
    int rc;

    if (!pull_is_name(text))
        return fault_set(fault, E_FORMAT, "neither hf:owner/name nor an https address");
    if (strncmp(text, "hf:", 3) == 0)
        rc = read_hub(text + 3, &name, fault);
    else
        rc = read_page(text, &name) ? 0 : read_url(text, &name, fault);
    if (rc == 0)
        *out = name;
    return rc;
}
