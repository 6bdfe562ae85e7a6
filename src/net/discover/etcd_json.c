/* SPDX-License-Identifier: Apache-2.0 */
/* Bodies and answers of etcd's JSON gateway (etcd v3 API, "gRPC gateway"): protobuf in JSON, so bytes are base64 and 64-bit
 * numbers are strings. */
#include <jansson.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/str.h"
#include "net/discover/discover_priv.h"

enum { ETCD_VALUE_MAX = 4096, ETCD_BASE64_MAX = ETCD_VALUE_MAX / 3 * 4 + 4 };

static void etcd_put_base64(struct buf *out, const char *name, struct bytes value)
{
    unsigned char text[ETCD_BASE64_MAX + 1];
    int n = 0;

    if (value.len_bytes > ETCD_VALUE_MAX)
        out->is_bad = true;
    else
        n = EVP_EncodeBlock(text, value.data, (int)value.len_bytes);
    buf_printf(out, "\"%s\":\"%.*s\"", name, n, (const char *)text);
}

void etcd_put_range(struct buf *out, const char *prefix, uint64_t from_revision)
{
    char end[DISCOVER_PATH_BYTES + 16];
    size_t n = strlen(prefix);

    memcpy(end, prefix, n + 1);
    end[n - 1]++; /* the first key after all that begin with prefix, which ends in '/' */
    if (from_revision > 0)
        buf_append_str(out, "{\"create_request\":");
    buf_append_str(out, "{");
    etcd_put_base64(out, "key", bytes_str(prefix));
    buf_append_str(out, ",");
    etcd_put_base64(out, "range_end", bytes_str(end));
    if (from_revision > 0)
        buf_printf(out, ",\"start_revision\":\"%llu\"}}", (unsigned long long)from_revision);
    else
        buf_printf(out, ",\"limit\":\"%d\"}", 4 * ENDPOINTS_MAX);
}

void etcd_put_put(struct buf *out, const char *key, struct bytes value, int64_t lease)
{
    buf_append_str(out, "{");
    etcd_put_base64(out, "key", bytes_str(key));
    buf_append_str(out, ",");
    etcd_put_base64(out, "value", value);
    buf_printf(out, ",\"lease\":\"%lld\"}", (long long)lease);
}

void etcd_put_login(struct buf *out, const char *user, const char *password)
{
    buf_append_str(out, "{\"name\":");
    json_put_str(out, bytes_str(user));
    buf_append_str(out, ",\"password\":");
    json_put_str(out, bytes_str(password));
    buf_append_str(out, "}");
}

void etcd_put_entry(struct buf *out, const struct discover_entry *entry)
{
    char host[65];
    const char *fields[][2] = {{"node", entry->node},
                               {"link", entry->link},
                               {"role", entry->phase},
                               {"model", entry->model},
                               {"fingerprint", entry->fingerprint},
                               {"admin", entry->admin},
                               {"host", host}};
    const char *separator = "{";

    discover_host(host);
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
        if (fields[i][1] == NULL)
            continue;
        buf_printf(out, "%s\"%s\":", separator, fields[i][0]);
        json_put_str(out, bytes_str(fields[i][1]));
        separator = ",";
    }
    buf_append_str(out, "}");
}

/* ---- answers ---- */

static json_t *etcd_parse(struct bytes text)
{
    return json_loadb((const char *)text.data, text.len_bytes, 0, NULL);
}

/* A 64-bit number of the gateway: a string of digits. */
static int etcd_int(const json_t *value, int64_t *out)
{
    if (json_is_integer(value)) {
        *out = json_integer_value(value);
        return 0;
    }
    return json_is_string(value) ? str_to_i64(bytes_str(json_string_value(value)), out) : E_FORMAT;
}

/* The value of a key, which is JSON in base64. NULL: it is none. */
static json_t *etcd_decode_value(const char *base64)
{
    unsigned char text[ETCD_VALUE_MAX + 4];
    size_t n = strlen(base64), n_pad = 0;
    int n_bytes = -1;

    while (n_pad < 2 && n_pad < n && base64[n - 1 - n_pad] == '=')
        n_pad++;
    if (n <= ETCD_VALUE_MAX && n % 4 == 0)
        n_bytes = EVP_DecodeBlock(text, (const unsigned char *)base64, (int)n);
    return n_bytes >= (int)n_pad ? etcd_parse(bytes_of(text, (size_t)n_bytes - n_pad)) : NULL;
}

static void etcd_read_value(const char *base64, const struct discover_names *names, struct endpoints *list)
{
    json_t *value = etcd_decode_value(base64);
    const char *link, *fingerprint;

    link = json_string_value(json_object_get(value, "link"));
    fingerprint = json_string_value(json_object_get(value, "fingerprint"));
    if (link == NULL)
        list->n_refused++;
    else if (names->fingerprint[0] == '\0' ||
             (fingerprint != NULL && strcmp(fingerprint, names->fingerprint) == 0))
        endpoints_add(list, bytes_str(link));
    json_decref(value);
}

int etcd_read_range(struct bytes text, const struct discover_names *names, struct endpoints *list,
                    uint64_t *revision_out)
{
    json_t *root = etcd_parse(text), *pairs = json_object_get(root, "kvs"), *pair;
    int64_t revision = 0;
    size_t i;
    int rc = etcd_int(json_object_get(json_object_get(root, "header"), "revision"), &revision);

    if (rc == 0 && (revision <= 0 || (pairs != NULL && !json_is_array(pairs))))
        rc = E_FORMAT;
    if (rc == 0)
        json_array_foreach(pairs, i, pair)
        {
            const char *value = json_string_value(json_object_get(pair, "value"));

            if (value != NULL)
                etcd_read_value(value, names, list);
        }
    json_decref(root);
    *revision_out = (uint64_t)revision;
    return rc < 0 ? E_FORMAT : 0;
}

enum etcd_watch etcd_read_watch(struct bytes line)
{
    json_t *root = etcd_parse(line), *result = json_object_get(root, "result");
    enum etcd_watch what = ETCD_WATCH_QUIET;

    if (!json_is_object(result) || json_is_true(json_object_get(result, "canceled")) ||
        json_object_get(result, "compact_revision") != NULL)
        what = ETCD_WATCH_LOST; /* an error, a compaction: read the whole range again */
    else if (json_array_size(json_object_get(result, "events")) > 0)
        what = ETCD_WATCH_CHANGED;
    json_decref(root);
    return what;
}

int etcd_read_number(struct bytes text, const char *name, int64_t *out)
{
    json_t *root = etcd_parse(text), *inner = json_object_get(root, "result");
    int rc = etcd_int(json_object_get(inner != NULL ? inner : root, name), out);

    json_decref(root);
    return rc < 0 ? E_FORMAT : 0;
}

int etcd_read_token(struct bytes text, char *out, size_t cap)
{
    json_t *root = etcd_parse(text);
    const char *token = json_string_value(json_object_get(root, "token"));
    int rc = token != NULL && token[0] != '\0' && str_copy(out, cap, token) ? 0 : E_FORMAT;

    json_decref(root);
    return rc;
}

void etcd_read_error(struct bytes text, char *out, size_t cap)
{
    json_t *root = etcd_parse(text), *error = json_object_get(root, "error");
    const char *message = json_string_value(json_object_get(json_is_object(error) ? error : root, "message"));

    if (message == NULL)
        message = json_string_value(error);
    snprintf(out, cap, "%s", message != NULL && message[0] != '\0' ? message : "refused");
    json_decref(root);
}

/* Copies a text of an entry, with '?' for what is not visible. False: it is longer than cap. */
static bool etcd_copy_visible(const json_t *value, const char *name, char *out, size_t cap)
{
    const char *text = json_string_value(json_object_get(value, name));

    if (text != NULL && !str_copy(out, cap, text))
        return false;
    for (char *at = out; *at != '\0'; at++)
        if (*at <= ' ' || *at >= 0x7f)
            *at = '?';
    return true;
}

static bool etcd_read_member(const json_t *value, struct discover_member *out)
{
    return etcd_copy_visible(value, "node", out->node, sizeof(out->node)) &&
           etcd_copy_visible(value, "role", out->phase, sizeof(out->phase)) &&
           etcd_copy_visible(value, "link", out->link, sizeof(out->link)) &&
           etcd_copy_visible(value, "admin", out->admin, sizeof(out->admin)) &&
           etcd_copy_visible(value, "host", out->host, sizeof(out->host)) &&
           etcd_copy_visible(value, "model", out->model, sizeof(out->model)) &&
           etcd_copy_visible(value, "fingerprint", out->fingerprint, sizeof(out->fingerprint)) &&
           out->node[0] != '\0' && out->link[0] != '\0';
}

int etcd_read_members(struct bytes text, struct discover_members *out)
{
    json_t *root = etcd_parse(text), *pairs = json_object_get(root, "kvs"), *pair;
    bool is_right =
        json_is_object(json_object_get(root, "header")) && (pairs == NULL || json_is_array(pairs));
    size_t i;

    json_array_foreach(pairs, i, pair)
    {
        const char *base64 = json_string_value(json_object_get(pair, "value"));
        json_t *value = base64 != NULL ? etcd_decode_value(base64) : NULL;
        struct discover_member member = {.node = ""};

        if (out->n < DISCOVER_MAX_MEMBERS && etcd_read_member(value, &member))
            out->all[out->n++] = member;
        else
            out->n_refused++;
        json_decref(value);
    }
    json_decref(root);
    return is_right ? 0 : E_FORMAT;
}
