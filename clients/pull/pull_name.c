/* SPDX-License-Identifier: Apache-2.0 */
/* Names of things to fetch. Pure.
 *
 *     hf:owner/name                 the only model of a repository
 *     hf:owner/name:Q4_K_M          by quantisation, or by the name of a file
 *     https://host/folder/m.gguf    one file, or any part of a split model
 *     https://huggingface.co/owner/name/blob/main/m.gguf    the hub's page of a file, or of a repository, as browsers
 *                                                           show it: the same as hf:owner/name:m.gguf
 *
 * Browsers escape bytes of a page's address (%20) and name a file of a list in the query (show_file_info). */
#include "clients/pull/pull.h"

#include "base/err.h"
#include "net/http/parse.h"

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

/* The file of the repository that a page's address names, without escapes. */
static int take_pick(struct pull_name *out, int len_bytes, struct fault *fault)
{
    if (len_bytes < 0 || !pull_path_is_safe(bytes_of(out->pick, (size_t)len_bytes)))
        return fault_set(fault, E_FORMAT, "the page's address names no file that a repository can have");
    out->pick[len_bytes] = '\0';
    return 0;
}

/* The list of files shows one of them above the list: ?show_file_info=m.gguf. In a query a plus is a blank. */
static int read_page_query(struct bytes query, struct pull_name *out, struct fault *fault)
{
    static const char key[] = "show_file_info";
    char plain[PULL_URL_BYTES];

    if (query.len_bytes > sizeof(plain))
        return fault_set(fault, E_FORMAT, "the address is longer than %zu bytes", sizeof(plain));
    for (size_t i = 0; i < query.len_bytes; i++)
        plain[i] = query.data[i] == '+' ? ' ' : (char)query.data[i];
    if (http_query_get(bytes_of(plain, query.len_bytes), key, out->pick, sizeof(out->pick)))
        return take_pick(out, (int)strlen(out->pick), fault);
    out->pick[0] = '\0';
    return bytes_find(query, bytes_str(key), 0) == SIZE_MAX ? 0 : take_pick(out, E_FORMAT, fault);
}

/* The hub's page of a repository or of one of its files. Its bytes are no model, so the hub's list is asked. 1: it is
 * such a page; 0: it is none; or the fault. */
static int read_page(const char *text, struct pull_name *out, struct fault *fault)
{
    static const char *const hosts[] = {"https://huggingface.co/", "https://hf.co/"};
    const char *at = NULL;

    for (size_t i = 0; i < sizeof(hosts) / sizeof(hosts[0]) && at == NULL; i++)
        if (strncmp(text, hosts[i], strlen(hosts[i])) == 0)
            at = text + strlen(hosts[i]);
    if (at == NULL)
        return 0;
    const char *end = at + strcspn(at, "?#"), *slash = memchr(at, '/', (size_t)(end - at));
    if (slash == NULL)
        return 0;
    const char *name_end = slash + 1 + strcspn(slash + 1, "/?#");
    struct bytes tail = bytes_of(name_end, (size_t)(end - name_end));
    struct bytes query = bytes_of(end + 1, *end == '?' ? strcspn(end + 1, "#") : 0);
    bool is_file = bytes_starts_with(tail, "/blob/main/");
    int rc;

    if (!is_file && !bytes_is(tail, "") && !bytes_is(tail, "/") && !bytes_is(tail, "/tree/main"))
        return 0;
    if (!take_word(bytes_of(at, (size_t)(slash - at)), out->owner) ||
        !take_word(bytes_of(slash + 1, (size_t)(name_end - slash - 1)), out->repo))
        return 0;
    out->is_hub = true;
    if (!is_file)
        rc = read_page_query(query, out, fault);
    else
        rc = take_pick(out,
                       http_percent_decode(bytes_of(tail.data + 11, tail.len_bytes - 11), out->pick,
                                           sizeof(out->pick) - 1),
                       fault);
    return rc == 0 ? 1 : rc;
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

static int pull_name_read_address(const char *text, struct pull_name *out, struct fault *fault)
{
    int rc = read_page(text, out, fault);

    if (rc != 0)
        return rc < 0 ? rc : 0;
    *out = (struct pull_name){0};
    return read_url(text, out, fault);
}

int pull_name_read(const char *text, struct pull_name *out, struct fault *fault)
{
    struct pull_name name = {0};
    int rc;

    if (!pull_is_name(text))
        return fault_set(fault, E_FORMAT, "neither hf:owner/name nor an https address");
    rc = strncmp(text, "hf:", 3) == 0 ? read_hub(text + 3, &name, fault)
                                      : pull_name_read_address(text, &name, fault);
    if (rc == 0)
        *out = name;
    return rc;
}
