/* SPDX-License-Identifier: Apache-2.0 */
/* See s3_url.h. */
#include "net/s3/s3_url.h"

#include <stdio.h>

#include "base/err.h"
#include "net/s3/sigv4.h"

bool s3_url_is(const char *text)
{
    return bytes_starts_with(bytes_str(text), "s3://");
}

static bool s3_text_is(struct bytes text, const char *also)
{
    for (size_t i = 0; i < text.len_bytes; i++) {
        uint8_t c = text.data[i];

        if (c == '\0' ||
            !((c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') || strchr(also, c)))
            return false;
    }
    return text.len_bytes > 0;
}

static int s3_endpoint_parse(struct bytes value, struct s3_url *out)
{
    size_t at = bytes_starts_with(value, "https://") ? 8 : bytes_starts_with(value, "http://") ? 7 : 0;
    struct bytes host = bytes_of(value.data + at, value.len_bytes - at);

    if (host.len_bytes > 0 && host.data[host.len_bytes - 1] == '/')
        host.len_bytes--;
    if (at == 0 || !s3_text_is(host, "-.:[]") || host.len_bytes >= sizeof(out->host))
        return E_FORMAT;
    snprintf(out->host, sizeof(out->host), "%.*s", (int)host.len_bytes, (const char *)host.data);
    snprintf(out->base, sizeof(out->base), "%.*s%s", (int)at, (const char *)value.data, out->host);
    return 0;
}

static int s3_option_parse(struct bytes option, struct s3_url *out)
{
    size_t equals = bytes_find(option, bytes_str("="), 0);
    struct bytes name, value;

    if (equals == SIZE_MAX)
        return E_FORMAT;
    name = bytes_of(option.data, equals);
    value = bytes_of(option.data + equals + 1, option.len_bytes - equals - 1);
    if (bytes_is(name, "endpoint"))
        return s3_endpoint_parse(value, out);
    if (!bytes_is(name, "region") || !s3_text_is(value, "-") || value.len_bytes >= sizeof(out->region))
        return E_FORMAT;
    snprintf(out->region, sizeof(out->region), "%.*s", (int)value.len_bytes, (const char *)value.data);
    return 0;
}

static int s3_options_parse(struct bytes text, struct s3_url *out)
{
    for (size_t at = 0; at < text.len_bytes;) {
        size_t end = bytes_find(text, bytes_str("&"), at);

        end = end == SIZE_MAX ? text.len_bytes : end;
        if (s3_option_parse(bytes_of(text.data + at, end - at), out) < 0)
            return E_FORMAT;
        at = end + 1;
    }
    return 0;
}

/* Makes the path before the key.  Amazon has the bucket in the host name, other stores have it in the path. */
static int s3_place(struct bytes bucket, struct bytes prefix, struct s3_url *out)
{
    struct buf path = {0};
    bool is_amazon = out->base[0] == '\0';
    int rc = E_FORMAT;

    if (is_amazon) {
        snprintf(out->host, sizeof(out->host), "%.*s.s3.%s.amazonaws.com", (int)bucket.len_bytes,
                 (const char *)bucket.data, out->region);
        snprintf(out->base, sizeof(out->base), "https://%s", out->host);
    }
    buf_append_str(&path, "/");
    if (!is_amazon) {
        buf_append(&path, bucket.data, bucket.len_bytes);
        buf_append_str(&path, "/");
    }
    if (prefix.len_bytes > 0 && sigv4_encode_path(prefix, &path) == 0)
        buf_append_str(&path, prefix.data[prefix.len_bytes - 1] == '/' ? "" : "/");
    if (!path.is_bad && path.len_bytes < sizeof(out->prefix)) {
        memcpy(out->prefix, path.data, path.len_bytes + 1);
        rc = 0;
    }
    buf_fini(&path);
    return rc;
}

int s3_url_parse(const char *text, struct fault *fault, struct s3_url *out)
{
    struct s3_url url = {.region = "us-east-1"};
    struct bytes rest, options = {0}, bucket, prefix = {0};
    size_t at;

    if (!s3_url_is(text))
        return fault_set(fault, E_FORMAT, "not s3://");
    rest = bytes_str(text + 5);
    at = bytes_find(rest, bytes_str("?"), 0);
    if (at != SIZE_MAX) {
        options = bytes_of(rest.data + at + 1, rest.len_bytes - at - 1);
        rest.len_bytes = at;
    }
    bucket = rest;
    at = bytes_find(rest, bytes_str("/"), 0);
    if (at != SIZE_MAX) {
        bucket.len_bytes = at;
        prefix = bytes_of(rest.data + at + 1, rest.len_bytes - at - 1);
    }
    if (!s3_text_is(bucket, "-.") || bucket.len_bytes > 63)
        return fault_set(fault, E_FORMAT, "not the name of a bucket after s3://");
    if (s3_options_parse(options, &url) < 0)
        return fault_set(fault, E_FORMAT,
                         "options are endpoint=http[s]://host[:port] and region=name, with '&'");
    if (s3_place(bucket, prefix, &url) < 0)
        return fault_set(fault, E_FORMAT, "the prefix is too long");
    *out = url;
    return 0;
}
