/* SPDX-License-Identifier: Apache-2.0 */
/* HTTP/1.x heads (RFC 9110, RFC 9112), strictly: pure functions from contiguous bytes to offsets, or to the
 * status that refuses them.  No allocation, no state. */
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

struct http_span { /* a piece of the text that was parsed */
    uint32_t at;
    uint32_t len;
};

struct http_field {
    struct http_span name;
    struct http_span value; /* without surrounding blanks */
};

struct http_head {      /* offsets are into the text given to the parser, which must live as long */
    uint32_t len_bytes; /* of the whole head with its empty line */
    uint8_t minor;      /* HTTP/1.minor: 0 or 1 */
    enum http_method method;
    struct http_span method_text;
    struct http_span path;  /* without scheme, authority and query; "*" for OPTIONS * */
    struct http_span query; /* without '?'; may be empty */
    uint16_t status;        /* answers */
    enum http_framing framing;
    uint64_t content_length; /* HTTP_BODY_LENGTH */
    bool keeps_alive;        /* by version and Connection */
    bool expects_continue;
    uint16_t n_fields;
    struct http_field fields[HTTP_MAX_FIELDS];
};

struct http_head_limits {
    uint32_t max_line_bytes; /* of the request line */
    uint32_t max_head_bytes;
    uint32_t max_fields; /* at most HTTP_MAX_FIELDS */
};

struct http_refusal { /* why a head cannot be accepted; the connection cannot go on after it */
    int status;       /* 400, 414, 417, 431, 501, 505 */
    const char *why;  /* static text */
};

/* A request's head at the start of text.  1 and out filled; 0: not whole yet; E_FORMAT with the refusal
 * filled. Calling again with more bytes of the same head gives the same answer as calling once with all of
 * them. */
int http_parse_request(struct bytes text, const struct http_head_limits *limits, struct http_head *out,
                       struct http_refusal *refusal_out);

/* An answer's head.  is_for_head: the request was HEAD, so there is no body.  As above, without a refusal. */
int http_parse_response(struct bytes text, bool is_for_head, struct http_head *out);

/* The value of the first field called name (lower case), or an empty view; *found_out (may be NULL) tells
 * them apart. */
struct bytes http_head_get(const struct http_head *head, struct bytes text, const char *name,
                           bool *found_out);
struct bytes http_span_of(struct http_span span, struct bytes text);
/* Is token one of the comma separated elements of any field called name?  Without regard to case. */
bool http_head_lists(const struct http_head *head, struct bytes text, const char *name, const char *token);

/* The value of name in a query string, percent-decoded into out (cap bytes with the NUL).  False: absent,
 * malformed or too long. */
bool http_query_get(struct bytes query, const char *name, char *out, size_t cap);
/* Undoes percent escapes.  Length written (no NUL), or E_FORMAT / E_LIMIT. */
int http_percent_decode(struct bytes text, char *out, size_t cap);

#endif
