/* SPDX-License-Identifier: Apache-2.0 */
/* See redis_url.h. */
#include "net/redis/redis_url.h"

#include "base/err.h"

static const struct redis_scheme {
    const char *text;
    bool is_tls, is_cluster;
} redis_schemes[] = {{"redis://", false, false},
                     {"rediss://", true, false},
                     {"redis+cluster://", false, true},
                     {"rediss+cluster://", true, true}};

static const struct redis_scheme *redis_scheme_of(const char *text)
{
    for (size_t i = 0; i < sizeof(redis_schemes) / sizeof(redis_schemes[0]); i++)
        if (bytes_starts_with(bytes_str(text), redis_schemes[i].text))
            return &redis_schemes[i];
    return NULL;
}

bool redis_url_is(const char *text)
{
    return redis_scheme_of(text) != NULL;
}

/* Parses a decimal number up to most.  False: it is not one. */
static bool redis_number_parse(struct bytes text, uint32_t most, uint32_t *out)
{
    uint64_t value = 0;

    if (text.len_bytes == 0 || text.len_bytes > 9)
        return false;
    for (size_t i = 0; i < text.len_bytes; i++) {
        if (text.data[i] < '0' || text.data[i] > '9')
            return false;
        value = value * 10 + (uint64_t)(text.data[i] - '0');
    }
    *out = (uint32_t)value;
    return value <= most;
}

int redis_node_parse(struct bytes text, struct redis_node *out)
{
    struct bytes host = text, rest = {0};
    uint32_t port = REDIS_PORT;
    size_t end;

    if (text.len_bytes > 0 && text.data[0] == '[') {
        end = bytes_find(text, bytes_str("]"), 1);
        if (end == SIZE_MAX)
            return E_FORMAT;
        host = bytes_of(text.data + 1, end - 1);
        rest = bytes_of(text.data + end + 1, text.len_bytes - end - 1);
    } else {
        end = bytes_find(text, bytes_str(":"), 0);
        if (end != SIZE_MAX) {
            host.len_bytes = end;
            rest = bytes_of(text.data + end, text.len_bytes - end);
        }
    }
    if (rest.len_bytes > 0 &&
        (rest.data[0] != ':' ||
         !redis_number_parse(bytes_of(rest.data + 1, rest.len_bytes - 1), UINT16_MAX, &port) || port == 0))
        return E_FORMAT;
    if (host.len_bytes == 0 || host.len_bytes >= sizeof(out->host))
        return E_FORMAT;
    for (size_t i = 0; i < host.len_bytes; i++)
        if (host.data[i] <= ' ' || host.data[i] >= 0x7f || strchr("/@,?#", host.data[i]) != NULL)
            return E_FORMAT;
    memcpy(out->host, host.data, host.len_bytes);
    out->host[host.len_bytes] = '\0';
    out->port = (uint16_t)port;
    return 0;
}

static int redis_hex_digit(uint8_t c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Copies text without its %XX escapes. */
static int redis_secret_parse(struct bytes text, char out[REDIS_SECRET_BYTES])
{
    size_t n = 0;

    for (size_t i = 0; i < text.len_bytes; i++) {
        int c = text.data[i];

        if (c == '%') {
            int high = i + 2 < text.len_bytes ? redis_hex_digit(text.data[i + 1]) : -1;
            int low = high >= 0 ? redis_hex_digit(text.data[i + 2]) : -1;

            if (low < 0)
                return E_FORMAT;
            c = high * 16 + low;
            i += 2;
        }
        if (c == '\0' || n + 1 >= REDIS_SECRET_BYTES)
            return E_FORMAT;
        out[n++] = (char)c;
    }
    out[n] = '\0';
    return 0;
}

static int redis_login_parse(struct bytes text, struct redis_url *out)
{
    size_t colon = bytes_find(text, bytes_str(":"), 0);

    if (colon == SIZE_MAX)
        return E_FORMAT;
    if (redis_secret_parse(bytes_of(text.data, colon), out->user) < 0)
        return E_FORMAT;
    return redis_secret_parse(bytes_of(text.data + colon + 1, text.len_bytes - colon - 1), out->password);
}

static int redis_seeds_parse(struct bytes text, struct redis_url *out)
{
    for (size_t at = 0; at <= text.len_bytes;) {
        size_t end = bytes_find(text, bytes_str(","), at);

        end = end == SIZE_MAX ? text.len_bytes : end;
        if (out->n_seeds >= (out->is_cluster ? REDIS_MAX_SEEDS : 1u) ||
            redis_node_parse(bytes_of(text.data + at, end - at), &out->seeds[out->n_seeds]) < 0)
            return E_FORMAT;
        out->n_seeds++;
        at = end + 1;
    }
    return 0;
}

/* Takes "?replicas=yes" or "?replicas=no" from the end of the text. */
static int redis_query_parse(struct bytes *text, struct redis_url *out)
{
    size_t at = bytes_find(*text, bytes_str("?"), 0);
    struct bytes query;

    if (at == SIZE_MAX)
        return 0;
    query = bytes_of(text->data + at, text->len_bytes - at);
    text->len_bytes = at;
    out->reads_replicas = bytes_is(query, "?replicas=yes");
    return out->is_cluster && (out->reads_replicas || bytes_is(query, "?replicas=no")) ? 0 : E_FORMAT;
}

int redis_url_parse(const char *text, struct fault *fault, struct redis_url *out)
{
    const struct redis_scheme *scheme = redis_scheme_of(text);
    struct redis_url url = {0};
    struct bytes rest;
    size_t at = 0, next, slash;
    uint32_t db = 0;

    if (scheme == NULL)
        return fault_set(fault, E_FORMAT, "not redis://, rediss:// or redis+cluster://");
    url.is_tls = scheme->is_tls;
    url.is_cluster = scheme->is_cluster;
    rest = bytes_str(text + strlen(scheme->text));
    while ((next = bytes_find(rest, bytes_str("@"), at)) != SIZE_MAX)
        at = next + 1; /* the last one: a password may have others */
    if (at > 0 && redis_login_parse(bytes_of(rest.data, at - 1), &url) < 0)
        return fault_set(fault, E_FORMAT, "what stands before '@' is not user:password");
    rest = bytes_of(rest.data + at, rest.len_bytes - at);
    if (redis_query_parse(&rest, &url) < 0)
        return fault_set(fault, E_FORMAT,
                         "what follows '?' is not replicas=yes or replicas=no, of a cluster");
    slash = bytes_find(rest, bytes_str("/"), 0);
    if (slash != SIZE_MAX) {
        struct bytes db_text = bytes_of(rest.data + slash + 1, rest.len_bytes - slash - 1);

        rest.len_bytes = slash;
        if (db_text.len_bytes > 0 && !redis_number_parse(db_text, 65535, &db))
            return fault_set(fault, E_FORMAT, "what follows the last '/' is not the number of a database");
    }
    if (url.is_cluster && db != 0)
        return fault_set(fault, E_FORMAT, "a cluster has database 0 only");
    if (redis_seeds_parse(rest, &url) < 0)
        return fault_set(fault, E_FORMAT, "not host or host:port%s", url.is_cluster ? ", with commas" : "");
    url.db = db;
    *out = url;
    return 0;
}

int redis_url_login(struct redis_url *url, const char *login, struct fault *fault)
{
    const char *colon = strchr(login, ':'), *password = colon != NULL ? colon + 1 : login;
    size_t user_bytes = colon != NULL ? (size_t)(colon - login) : 0;

    if (user_bytes >= sizeof(url->user) || strlen(password) >= sizeof(url->password))
        return fault_set(fault, E_FORMAT, "the login is too long");
    memcpy(url->user, login, user_bytes);
    url->user[user_bytes] = '\0';
    strcpy(url->password, password);
    return 0;
}
