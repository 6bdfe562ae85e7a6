/* SPDX-License-Identifier: Apache-2.0 */
/* The strict head parser.
 *
 * If a server and a proxy in front of it disagree about the end of a request, an attacker can make one
 * request look like two (request smuggling). So this parser refuses everything in which RFC 9112 allows a
 * recipient to be lenient: bare LF, folded lines, a blank before the colon, two lengths, a length beside a
 * transfer coding, signs and lists in lengths, a missing or second Host.
 *
 *     text ──> line ──> request line ──> method, target, version
 *                └────> field line   ──> name, value        ... up to the empty line ──> framing
 *
 * Lines are checked in order, and each check depends only on the bytes up to the end of that line. So a
 * head that arrives in pieces is refused for the same reason as a head that arrives whole, and as early as
 * possible. */
#include "net/http/parse.h"

#include <string.h>

#include "base/err.h"
#include "net/http/parse_priv.h"

/* Empty lines allowed before a request line: some clients end a body with one too many. */
#define MAX_EMPTY_LINES 4

static int http_parse_refuse(struct http_refusal *refusal, int status, const char *why)
{
    refusal->status = status;
    refusal->why = why;
    return E_FORMAT;
}

bool http_is_token_char(uint8_t c)
{
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'))
        return true;
    return c != 0 && strchr("!#$%&'*+-.^_`|~", c) != NULL;
}

int http_next_line(struct bytes text, size_t *at, struct http_span *line_out)
{
    const uint8_t *begin = text.data + *at;
    const uint8_t *lf;
    size_t len;

    if (*at >= text.len_bytes)
        return 0;
    lf = memchr(begin, '\n', text.len_bytes - *at);
    if (lf == NULL)
        return 0;
    len = (size_t)(lf - begin);
    line_out->at = (uint32_t)*at;
    *at += len + 1;
    if (len == 0 || begin[len - 1] != '\r' || memchr(begin, '\r', len - 1) != NULL)
        return E_FORMAT;
    line_out->len = (uint32_t)(len - 1);
    return 1;
}

struct bytes http_span_of(struct http_span span, struct bytes text)
{
    return bytes_of(text.data + span.at, span.len);
}

bool http_is_word(struct bytes text, const char *lower)
{
    size_t i;

    for (i = 0; i < text.len_bytes; i++) {
        uint8_t c = text.data[i];

        if (c >= 'A' && c <= 'Z')
            c = (uint8_t)(c + 32);
        if (lower[i] == '\0' || c != (uint8_t)lower[i])
            return false;
    }
    return lower[i] == '\0';
}

static enum http_method method_of(struct bytes text)
{
    static const struct {
        const char *name;
        enum http_method method;
    } known[] = {{"GET", HTTP_GET}, {"HEAD", HTTP_HEAD},     {"POST", HTTP_POST},
                 {"PUT", HTTP_PUT}, {"DELETE", HTTP_DELETE}, {"OPTIONS", HTTP_OPTIONS}};

    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (bytes_is(text, known[i].name))
            return known[i].method;
    return HTTP_OTHER;
}

/* Parses "HTTP/1.1". Returns 0 with the minor version, or a refusal. */
static int parse_version(struct bytes text, uint8_t *minor_out, struct http_refusal *refusal)
{
    const uint8_t *d = text.data;

    if (text.len_bytes != 8 || memcmp(d, "HTTP/", 5) != 0 || d[6] != '.' || d[5] < '0' || d[5] > '9' ||
        d[7] < '0' || d[7] > '9')
        return http_parse_refuse(refusal, 400, "malformed HTTP version");
    if (d[5] != '1')
        return http_parse_refuse(refusal, 505, "only HTTP/1.0 and HTTP/1.1 are spoken here");
    *minor_out = d[7] == '0' ? 0 : 1;
    return 0;
}

static void split_query(struct bytes text, struct http_span target, struct http_head *head)
{
    const uint8_t *mark = memchr(text.data + target.at, '?', target.len);

    head->path = target;
    head->query = (struct http_span){target.at + target.len, 0};
    if (mark == NULL)
        return;
    head->path.len = (uint32_t)(mark - (text.data + target.at));
    head->query.at = target.at + head->path.len + 1;
    head->query.len = target.len - head->path.len - 1;
}

/* Parses "http://authority/path?query". An empty path becomes "/", which points at the scheme's slash. */
static int parse_absolute(struct bytes text, struct http_span target, struct http_head *head,
                          struct http_refusal *refusal)
{
    static const char *const schemes[] = {"http://", "https://"};

    for (size_t s = 0; s < 2; s++) {
        uint32_t skip = (uint32_t)strlen(schemes[s]);
        uint32_t i;

        if (target.len <= skip || !http_is_word(bytes_of(text.data + target.at, skip), schemes[s]))
            continue;
        for (i = skip; i < target.len; i++)
            if (text.data[target.at + i] == '/' || text.data[target.at + i] == '?')
                break;
        if (i == skip)
            break;
        split_query(text, (struct http_span){target.at + i, target.len - i}, head);
        if (head->path.len == 0)
            head->path = (struct http_span){target.at + skip - 1, 1};
        return 0;
    }
    return http_parse_refuse(refusal, 400, "malformed request target");
}

static int parse_target(struct bytes text, struct http_span target, struct http_head *head,
                        struct http_refusal *refusal)
{
    const uint8_t *d = text.data + target.at;

    for (uint32_t i = 0; i < target.len; i++)
        if (d[i] <= ' ' || d[i] >= 0x7f || d[i] == '#')
            return http_parse_refuse(refusal, 400, "malformed request target");
    if (d[0] == '/') {
        split_query(text, target, head);
        return 0;
    }
    if ((head->method == HTTP_OPTIONS && target.len == 1 && d[0] == '*') ||
        bytes_is(http_span_of(head->method_text, text), "CONNECT")) {
        head->path = target;
        head->query = (struct http_span){target.at + target.len, 0};
        return 0;
    }
    return parse_absolute(text, target, head, refusal);
}

static int parse_request_line(struct bytes text, struct http_span line, struct http_head *head,
                              struct http_refusal *refusal)
{
    const uint8_t *d = text.data + line.at;
    uint32_t method_len = 0;
    uint32_t target_end;
    struct http_span target;
    int rc;

    while (method_len < line.len && http_is_token_char(d[method_len]))
        method_len++;
    if (method_len == 0 || method_len == line.len || d[method_len] != ' ')
        return http_parse_refuse(refusal, 400, "malformed request line");
    for (target_end = line.len; target_end > method_len + 1 && d[target_end - 1] != ' ';)
        target_end--;
    if (target_end <= method_len + 2)
        return http_parse_refuse(refusal, 400, "malformed request line");
    head->method_text = (struct http_span){line.at, method_len};
    head->method = method_of(http_span_of(head->method_text, text));
    target = (struct http_span){line.at + method_len + 1, target_end - 1 - (method_len + 1)};

    rc = parse_version(bytes_of(d + target_end, line.len - target_end), &head->minor, refusal);
    return rc < 0 ? rc : parse_target(text, target, head, refusal);
}

/* Parses one "name: value" line. Returns NULL, or the error as text. */
const char *http_parse_field(struct bytes text, struct http_span line, struct http_field *out)
{
    const uint8_t *d = text.data + line.at;
    uint32_t name_len = 0;
    uint32_t from;
    uint32_t to = line.len;

    if (d[0] == ' ' || d[0] == '\t')
        return "folded header line";
    while (name_len < line.len && http_is_token_char(d[name_len]))
        name_len++;
    if (name_len == 0 || name_len == line.len || d[name_len] != ':')
        return "malformed header name";
    for (from = name_len + 1; from < to && (d[from] == ' ' || d[from] == '\t');)
        from++;
    while (to > from && (d[to - 1] == ' ' || d[to - 1] == '\t'))
        to--;
    for (uint32_t i = from; i < to; i++)
        if ((d[i] < ' ' && d[i] != '\t') || d[i] == 0x7f)
            return "control character in a header value";
    out->name = (struct http_span){line.at, name_len};
    out->value = (struct http_span){line.at + from, to - from};
    return NULL;
}

int http_parse_length(struct bytes text, uint64_t *out)
{
    uint64_t value = 0;

    if (text.len_bytes == 0 || text.len_bytes > 18)
        return E_FORMAT;
    for (size_t i = 0; i < text.len_bytes; i++) {
        if (text.data[i] < '0' || text.data[i] > '9')
            return E_FORMAT;
        value = value * 10 + (uint64_t)(text.data[i] - '0');
    }
    *out = value;
    return 0;
}

unsigned http_count_fields(const struct http_head *head, struct bytes text, const char *name)
{
    unsigned n = 0;

    for (unsigned i = 0; i < head->n_fields; i++)
        n += http_is_word(http_span_of(head->fields[i].name, text), name);
    return n;
}

static int check_host(const struct http_head *head, struct bytes text, struct http_refusal *refusal)
{
    unsigned n = http_count_fields(head, text, "host");
    struct bytes host = http_head_get(head, text, "host", NULL);

    if (n > 1)
        return http_parse_refuse(refusal, 400, "more than one Host header");
    if (n == 0 && head->minor >= 1)
        return http_parse_refuse(refusal, 400, "no Host header");
    for (size_t i = 0; i < host.len_bytes; i++)
        if (host.data[i] <= ' ' || host.data[i] >= 0x7f || strchr("/?#@\\\"<>{}|^`,", host.data[i]) != NULL)
            return http_parse_refuse(refusal, 400, "malformed Host header");
    return 0;
}

/* Finds the body's framing: RFC 9112 section 6.3, with every ambiguity refused. */
static int http_parse_find_framing(struct http_head *head, struct bytes text, struct http_refusal *refusal)
{
    unsigned n_lengths = http_count_fields(head, text, "content-length");
    unsigned n_codings = http_count_fields(head, text, "transfer-encoding");

    head->framing = HTTP_BODY_NONE;
    if (n_codings > 0) {
        struct bytes coding = http_head_get(head, text, "transfer-encoding", NULL);

        if (n_lengths > 0)
            return http_parse_refuse(refusal, 400, "both Content-Length and Transfer-Encoding");
        if (head->minor == 0)
            return http_parse_refuse(refusal, 400, "Transfer-Encoding in HTTP/1.0");
        if (n_codings > 1 || coding.len_bytes == 0)
            return http_parse_refuse(refusal, 400, "malformed Transfer-Encoding");
        if (!http_is_word(coding, "chunked"))
            return http_parse_refuse(refusal, 501, "the only transfer coding known here is chunked");
        head->framing = HTTP_BODY_CHUNKED;
    } else if (n_lengths > 0) {
        if (n_lengths > 1)
            return http_parse_refuse(refusal, 400, "more than one Content-Length");
        if (http_parse_length(http_head_get(head, text, "content-length", NULL), &head->content_length) < 0)
            return http_parse_refuse(refusal, 400, "malformed Content-Length");
        if (head->content_length > 0)
            head->framing = HTTP_BODY_LENGTH;
    }
    return 0;
}

static int finish_request(struct http_head *head, struct bytes text, struct http_refusal *refusal)
{
    bool is_given;
    struct bytes expect = http_head_get(head, text, "expect", &is_given);

    if (check_host(head, text, refusal) < 0 || http_parse_find_framing(head, text, refusal) < 0)
        return E_FORMAT;
    http_find_keep_alive(head, text);
    if (is_given && head->minor >= 1) {
        if (http_count_fields(head, text, "expect") > 1 || !http_is_word(expect, "100-continue"))
            return http_parse_refuse(refusal, 417, "the only expectation known here is 100-continue");
        head->expects_continue = true;
    }
    return 1;
}

void http_find_keep_alive(struct http_head *head, struct bytes text)
{
    if (http_head_lists(head, text, "connection", "close"))
        head->keeps_alive = false;
    else
        head->keeps_alive = head->minor >= 1 || http_head_lists(head, text, "connection", "keep-alive");
}

/* Skips the empty lines before the request line. 1: *at is moved; 0: incomplete; E_FORMAT. */
static int skip_empty_lines(struct bytes text, size_t *at)
{
    for (unsigned n = 0; *at < text.len_bytes && text.data[*at] == '\r'; n++) {
        if (*at + 1 == text.len_bytes)
            return 0;
        if (text.data[*at + 1] != '\n' || n == MAX_EMPTY_LINES)
            return E_FORMAT;
        *at += 2;
    }
    return *at < text.len_bytes;
}

int http_parse_request(struct bytes text, const struct http_head_limits *limits, struct http_head *out,
                       struct http_refusal *refusal_out)
{
    struct http_span line;
    bool has_request_line = false;
    size_t at = 0;
    int rc = skip_empty_lines(text, &at);

    if (rc < 0)
        return http_parse_refuse(refusal_out, 400, "malformed request line");
    if (rc == 0)
        return 0;
    memset(out, 0, sizeof(*out));
    for (;;) {
        size_t from = at;
        const char *why;

        rc = http_next_line(text, &at, &line);
        if (!has_request_line && (rc != 0 ? at : text.len_bytes) - from > limits->max_line_bytes)
            return http_parse_refuse(refusal_out, 414, "request line too long");
        if ((rc != 0 ? at : text.len_bytes) > limits->max_head_bytes)
            return http_parse_refuse(refusal_out, 431, "request head too large");
        if (rc < 0)
            return http_parse_refuse(refusal_out, 400, "line not ended by CR LF");
        if (rc == 0)
            return 0;
        if (!has_request_line) {
            if (parse_request_line(text, line, out, refusal_out) < 0)
                return E_FORMAT;
            has_request_line = true;
            continue;
        }
        if (line.len == 0)
            break;
        if (out->n_fields >= limits->max_fields || out->n_fields >= HTTP_MAX_FIELDS)
            return http_parse_refuse(refusal_out, 431, "too many header fields");
        why = http_parse_field(text, line, &out->fields[out->n_fields]);
        if (why != NULL)
            return http_parse_refuse(refusal_out, 400, why);
        out->n_fields++;
    }
    out->len_bytes = (uint32_t)at;
    return finish_request(out, text, refusal_out);
}

struct bytes http_head_get(const struct http_head *head, struct bytes text, const char *name, bool *found_out)
{
    if (found_out != NULL)
        *found_out = false;
    for (unsigned i = 0; i < head->n_fields; i++) {
        if (!http_is_word(http_span_of(head->fields[i].name, text), name))
            continue;
        if (found_out != NULL)
            *found_out = true;
        return http_span_of(head->fields[i].value, text);
    }
    return bytes_of(NULL, 0);
}

/* True if the comma-separated list contains token. */
static bool list_holds(struct bytes list, const char *token)
{
    size_t at = 0;

    while (at <= list.len_bytes) {
        size_t end = at;
        size_t from = at;
        size_t to;

        while (end < list.len_bytes && list.data[end] != ',')
            end++;
        for (to = end; from < to && (list.data[from] == ' ' || list.data[from] == '\t');)
            from++;
        while (to > from && (list.data[to - 1] == ' ' || list.data[to - 1] == '\t'))
            to--;
        if (to > from && http_is_word(bytes_of(list.data + from, to - from), token))
            return true;
        at = end + 1;
    }
    return false;
}

bool http_head_lists(const struct http_head *head, struct bytes text, const char *name, const char *token)
{
    for (unsigned i = 0; i < head->n_fields; i++)
        if (http_is_word(http_span_of(head->fields[i].name, text), name) &&
            list_holds(http_span_of(head->fields[i].value, text), token))
            return true;
    return false;
}
