/* SPDX-License-Identifier: Apache-2.0 */
/* Reads server-sent events as the WHATWG event stream interpretation says. Lines end in CR LF, LF or CR. A
 * line without a colon is a field name alone. One blank after the colon is dropped. Data lines are joined
 * by LF. An empty line dispatches an event if there was data. Comments and unknown fields are skipped; so
 * are id and retry, which no caller needs. A byte order mark at the very start is skipped.
 *
 *     bytes ──> line buffer ──end of line──> field ──> data, name ──empty line──> call */
#include "net/http/sse_parse.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"

#define SSE_ID_BYTES 256 /* a longer id is ignored */

struct sse_parser {
    size_t max_event_bytes;
    sse_event_call call;
    void *arg;
    struct buf line;
    struct buf name;
    struct buf data;
    bool has_data;
    bool is_after_cr;                             /* a following LF belongs to the line end already seen */
    bool is_begun;                                /* the first line was checked for a byte order mark */
    char id[SSE_ID_BYTES], last_id[SSE_ID_BYTES]; /* of the open event; of the last complete one */
    int failure;
};

int sse_parser_new(size_t max_event_bytes, sse_event_call call, void *arg, struct sse_parser **out)
{
    struct sse_parser *parser = calloc(1, sizeof(*parser));

    if (parser == NULL)
        return E_NOMEM;
    parser->max_event_bytes = max_event_bytes;
    parser->call = call;
    parser->arg = arg;
    *out = parser;
    return 0;
}

void sse_parser_free(struct sse_parser *parser)
{
    if (parser == NULL)
        return;
    buf_fini(&parser->line);
    buf_fini(&parser->name);
    buf_fini(&parser->data);
    free(parser);
}

static int sse_parse_dispatch(struct sse_parser *parser)
{
    struct bytes name = parser->name.len_bytes > 0 ? buf_view(&parser->name) : bytes_str("message");
    int rc = 0;

    if (parser->has_data)
        rc = parser->call(parser->arg, name, buf_view(&parser->data));
    memcpy(parser->last_id, parser->id, sizeof(parser->last_id));
    buf_clear(&parser->name);
    buf_clear(&parser->data);
    parser->has_data = false;
    return rc;
}

static int take_field(struct sse_parser *parser, struct bytes name, struct bytes value)
{
    if (bytes_is(name, "event")) {
        buf_clear(&parser->name);
        return buf_append(&parser->name, value.data, value.len_bytes);
    }
    if (bytes_is(name, "id") && (value.len_bytes == 0 || memchr(value.data, '\0', value.len_bytes) == NULL)) {
        size_t n = value.len_bytes < sizeof(parser->id) ? value.len_bytes : 0;

        memcpy(parser->id, n > 0 ? (const char *)value.data : "", n);
        parser->id[n] = '\0';
        return 0;
    }
    if (!bytes_is(name, "data"))
        return 0;
    if (parser->data.len_bytes + value.len_bytes + 1 > parser->max_event_bytes)
        return E_LIMIT;
    if (parser->has_data && buf_append_byte(&parser->data, '\n') < 0)
        return E_NOMEM;
    parser->has_data = true;
    return buf_append(&parser->data, value.data, value.len_bytes);
}

static int end_line(struct sse_parser *parser)
{
    struct bytes line = buf_view(&parser->line);
    const uint8_t *colon;
    int rc;

    if (!parser->is_begun && bytes_starts_with(line, "\xef\xbb\xbf"))
        line = bytes_of(line.data + 3, line.len_bytes - 3);
    parser->is_begun = true;
    if (line.len_bytes == 0) {
        rc = sse_parse_dispatch(parser);
    } else {
        colon = memchr(line.data, ':', line.len_bytes);
        if (colon == NULL) {
            rc = take_field(parser, line, bytes_of(NULL, 0));
        } else {
            size_t name_len = (size_t)(colon - line.data);
            size_t from = name_len + 1;

            if (from < line.len_bytes && line.data[from] == ' ')
                from++;
            rc = take_field(parser, bytes_of(line.data, name_len),
                            bytes_of(line.data + from, line.len_bytes - from));
        }
    }
    buf_clear(&parser->line);
    return rc;
}

const char *sse_parser_last_id(const struct sse_parser *parser)
{
    return parser->last_id;
}

void sse_parser_restart(struct sse_parser *parser)
{
    buf_clear(&parser->line);
    buf_clear(&parser->name);
    buf_clear(&parser->data);
    memcpy(parser->id, parser->last_id, sizeof(parser->id));
    parser->has_data = parser->is_after_cr = parser->is_begun = false;
}

int sse_parser_feed(struct sse_parser *parser, struct bytes text)
{
    size_t at = 0;

    while (parser->failure == 0 && at < text.len_bytes) {
        size_t end = at;

        if (parser->is_after_cr) {
            parser->is_after_cr = false;
            if (text.data[at] == '\n') {
                at++;
                continue;
            }
        }
        while (end < text.len_bytes && text.data[end] != '\n' && text.data[end] != '\r')
            end++;
        if (parser->line.len_bytes + (end - at) > parser->max_event_bytes + 16)
            parser->failure = E_LIMIT;
        else if (end > at)
            parser->failure = buf_append(&parser->line, text.data + at, end - at);
        if (parser->failure < 0 || end == text.len_bytes)
            break;
        parser->is_after_cr = text.data[end] == '\r';
        parser->failure = end_line(parser);
        at = end + 1;
    }
    return parser->failure;
}
