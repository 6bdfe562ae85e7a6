/* SPDX-License-Identifier: Apache-2.0 */
/* Heads of answers for our own clients, and the few URI functions that they need.
 *
 * The grammar is as strict as for requests. Body framing follows RFC 9112 section 6.3: no body after HEAD,
 * 1xx, 204 and 304; chunked; a length; else all bytes up to the end of the connection. */
#include "net/http/parse.h"

#include <string.h>

#include "base/err.h"
#include "net/http/parse_priv.h"

#define MAX_RESPONSE_HEAD_BYTES 65536u

static int parse_status_line(struct bytes line, struct http_head *head)
{
    const uint8_t *d = line.data;

    if (line.len_bytes < 12 || memcmp(d, "HTTP/1.", 7) != 0 || d[7] < '0' || d[7] > '9' || d[8] != ' ')
        return E_FORMAT;
    for (int i = 9; i < 12; i++)
        if (d[i] < '0' || d[i] > '9')
            return E_FORMAT;
    if (line.len_bytes > 12 && d[12] != ' ')
        return E_FORMAT;
    head->minor = d[7] == '0' ? 0 : 1;
    head->status = (uint16_t)((d[9] - '0') * 100 + (d[10] - '0') * 10 + (d[11] - '0'));
    return head->status >= 100 ? 0 : E_FORMAT;
}

static int http_parse_response_find_framing(struct http_head *head, struct bytes text, bool is_for_head)
{
    unsigned n_codings = http_count_fields(head, text, "transfer-encoding");
    unsigned n_lengths = http_count_fields(head, text, "content-length");

    if (is_for_head || head->status < 200 || head->status == 204 || head->status == 304) {
        head->framing = HTTP_BODY_NONE;
        return 0;
    }
    if (n_codings > 1 || n_lengths > 1)
        return E_FORMAT;
    if (n_codings > 0) {
        if (n_lengths > 0 || !http_is_word(http_head_get(head, text, "transfer-encoding", NULL), "chunked"))
            return E_FORMAT;
        head->framing = HTTP_BODY_CHUNKED;
        return 0;
    }
    if (n_lengths > 0) {
        if (http_parse_length(http_head_get(head, text, "content-length", NULL), &head->content_length) < 0)
            return E_FORMAT;
        head->framing = head->content_length > 0 ? HTTP_BODY_LENGTH : HTTP_BODY_NONE;
        return 0;
    }
    head->framing = HTTP_BODY_TO_CLOSE;
    head->keeps_alive = false;
    return 0;
}

int http_parse_response(struct bytes text, bool is_for_head, struct http_head *out)
{
    struct http_span line;
    size_t at = 0;
    int rc = http_next_line(text, &at, &line);

    if (rc <= 0)
        return rc < 0 || text.len_bytes > MAX_RESPONSE_HEAD_BYTES ? E_FORMAT : 0;
    memset(out, 0, sizeof(*out));
    out->method = HTTP_OTHER;
    if (parse_status_line(http_span_of(line, text), out) < 0)
        return E_FORMAT;
    for (;;) {
        rc = http_next_line(text, &at, &line);
        if (rc <= 0)
            return rc < 0 || text.len_bytes > MAX_RESPONSE_HEAD_BYTES ? E_FORMAT : 0;
        if (at > MAX_RESPONSE_HEAD_BYTES)
            return E_FORMAT;
        if (line.len == 0)
            break;
        if (out->n_fields == HTTP_MAX_FIELDS ||
            http_parse_field(text, line, &out->fields[out->n_fields]) != NULL)
            return E_FORMAT;
        out->n_fields++;
    }
    out->len_bytes = (uint32_t)at;
    http_find_keep_alive(out, text);
    return http_parse_response_find_framing(out, text, is_for_head) < 0 ? E_FORMAT : 1;
}

static int http_parse_response_hex_digit(uint8_t c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

int http_percent_decode(struct bytes text, char *out, size_t cap)
{
    size_t n = 0;

    for (size_t i = 0; i < text.len_bytes; i++) {
        uint8_t c = text.data[i];

        if (c == '%') {
            int high = i + 2 < text.len_bytes ? http_parse_response_hex_digit(text.data[i + 1]) : -1;
            int low = high >= 0 ? http_parse_response_hex_digit(text.data[i + 2]) : -1;

            if (low < 0)
                return E_FORMAT;
            c = (uint8_t)(high * 16 + low);
            i += 2;
        }
        if (n == cap)
            return E_LIMIT;
        out[n++] = (char)c;
    }
    return (int)n;
}

bool http_query_get(struct bytes query, const char *name, char *out, size_t cap)
{
    size_t name_len = strlen(name);
    size_t at = 0;

    while (at < query.len_bytes) {
        const uint8_t *amp = memchr(query.data + at, '&', query.len_bytes - at);
        size_t end = amp == NULL ? query.len_bytes : (size_t)(amp - query.data);
        size_t len = end - at;

        if (len >= name_len && memcmp(query.data + at, name, name_len) == 0 &&
            (len == name_len || query.data[at + name_len] == '=')) {
            size_t from = len == name_len ? end : at + name_len + 1;
            int n = cap == 0 ? E_LIMIT
                             : http_percent_decode(bytes_of(query.data + from, end - from), out, cap - 1);

            if (n < 0 || memchr(out, 0, (size_t)n) != NULL)
                return false;
            out[n] = '\0';
            return true;
        }
        at = end + 1;
    }
    return false;
}
