/* SPDX-License-Identifier: Apache-2.0 */
/* Strict parser of HTTP/1.x heads (RFC 9110, RFC 9112). Pure functions turn contiguous bytes into offsets,
 * or into the status that refuses them. No allocation, no state. */
#ifndef NET_HTTP_PARSE_H
#define NET_HTTP_PARSE_H

#include "base/bytes.h"

#define HTTP_MAX_FIELDS 100

enum http_method { HTTP_GET, HTTP_HEAD, HTTP_POST, HTTP_PUT, HTTP_DELETE, HTTP_OPTIONS, HTTP_OTHER };
enum http_framing {
    HTTP_BODY_NONE,
    HTTP_BODY_LENGTH,
    HTTP_BODY_CHUNKED,
    HTTP_BODY_TO_CLOSE /* answers only */
};

struct http_span { /* a part of the parsed text */
    uint32_t at;
    uint32_t len;
};

struct http_field {
    struct http_span name;
    struct http_span value; /* without surrounding blanks */
};

struct http_head {      /* offsets into the text that was parsed; the caller keeps that text alive */
    uint32_t len_bytes; /* length of the head with its empty line */
    uint8_t minor;      /* HTTP/1.minor: 0 or 1 */
    enum http_method method;
    struct http_span method_text;
    struct http_span path;  /* without scheme, authority and query; "*" for OPTIONS * */
    struct http_span query; /* without '?'; may be empty */
    uint16_t status;        /* answers only */
    enum http_framing framing;
    uint64_t content_length; /* for HTTP_BODY_LENGTH */
    bool keeps_alive;        /* decided by version and Connection */
    bool expects_continue;
    uint16_t n_fields;
    struct http_field fields[HTTP_MAX_FIELDS];
};

struct http_head_limits {
    uint32_t max_line_bytes; /* limit of the request line */
    uint32_t max_head_bytes;
    uint32_t max_fields; /* at most HTTP_MAX_FIELDS */
};

struct http_refusal { /* why a head is refused; the connection must close after it */
    int status;       /* 400, 414, 417, 431, 501, 505 */
    const char *why;  /* static text */
};

/* Parses a request's head at the start of text. 1: out is filled. 0: incomplete. E_FORMAT: the refusal is
 * filled. Repeated calls with more bytes of the same head give the same result as one call with all bytes. */
int http_parse_request(struct bytes text, const struct http_head_limits *limits, struct http_head *out,
                       struct http_refusal *refusal_out);

/* Parses an answer's head. is_for_head: the request was HEAD, so the answer has no body. Returns as above,
 * without a refusal. */
int http_parse_response(struct bytes text, bool is_for_head, struct http_head *out);

/* Returns the value of the first field called name (lower case), or an empty view. *found_out (may be
 * NULL) tells an absent field from an empty one. */
struct bytes http_head_get(const struct http_head *head, struct bytes text, const char *name,
                           bool *found_out);
struct bytes http_span_of(struct http_span span, struct bytes text);
/* True if a field called name has token among its comma-separated elements; case-insensitive. */
bool http_head_lists(const struct http_head *head, struct bytes text, const char *name, const char *token);

/* Finds name in a query string and percent-decodes its value into out (cap bytes, with the NUL). False:
 * absent, malformed or too long. */
bool http_query_get(struct bytes query, const char *name, char *out, size_t cap);
/* Decodes percent escapes. Returns the length written (no NUL), or E_FORMAT or E_LIMIT. */
int http_percent_decode(struct bytes text, char *out, size_t cap);

#endif
