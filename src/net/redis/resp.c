/* SPDX-License-Identifier: Apache-2.0 */
/* See resp.h.  Each item begins with a byte for its kind, and a line that ends in CR LF:
 *
 *     +OK   -ERR text   :7   $3 CRLF abc CRLF   *2 items   _   #t   ,1.5   (123   =7 CRLF txt:abc CRLF
 *     !5 CRLF ERR x CRLF   %1 two items   ~2 items   >2 items   |1 two items, then the item itself
 *
 * Strings and aggregates of unknown length (`$?`, `*?`) are refused: no command of this project gets one. */
#include "net/redis/resp.h"

#include "base/err.h"

static const struct bytes resp_line_end = {(const uint8_t *)"\r\n", 2};

/* The line after the kind byte.  E_AGAIN, E_PROTO. */
static int resp_line_parse(struct bytes image, struct bytes *line_out, size_t *used_out)
{
    struct bytes head =
        bytes_of(image.data, image.len_bytes < RESP_MAX_LINE ? image.len_bytes : RESP_MAX_LINE);
    size_t end = head.len_bytes > 0 ? bytes_find(head, resp_line_end, 1) : SIZE_MAX;

    if (end == SIZE_MAX)
        return image.len_bytes >= RESP_MAX_LINE ? E_PROTO : E_AGAIN;
    *line_out = bytes_of(image.data + 1, end - 1);
    *used_out = end + 2;
    return 0;
}

/* A decimal number of at most 18 digits. */
static int resp_number_parse(struct bytes text, int64_t *out)
{
    bool is_negative = text.len_bytes > 0 && text.data[0] == '-';
    size_t at = text.len_bytes > 0 && (is_negative || text.data[0] == '+') ? 1 : 0;
    int64_t value = 0;

    if (at == text.len_bytes || text.len_bytes - at > 18)
        return E_PROTO;
    for (; at < text.len_bytes; at++) {
        if (text.data[at] < '0' || text.data[at] > '9')
            return E_PROTO;
        value = value * 10 + (text.data[at] - '0');
    }
    *out = is_negative ? -value : value;
    return 0;
}

/* A string whose length is on its line: "$", "=" and "!". */
static int resp_bulk_parse(struct bytes image, uint8_t kind, struct resp_item *item, size_t *used)
{
    size_t at = *used, len_bytes;

    if (item->number == -1 && kind == '$') {
        item->kind = RESP_NULL;
        return 0;
    }
    if (item->number < 0 || item->number > RESP_MAX_BULK)
        return E_PROTO;
    len_bytes = (size_t)item->number;
    *used = at + len_bytes + 2;
    if (image.len_bytes < *used)
        return E_AGAIN;
    if (memcmp(image.data + at + len_bytes, resp_line_end.data, 2) != 0 || (kind == '=' && len_bytes < 4))
        return E_PROTO;
    item->kind = kind == '!' ? RESP_ERROR : RESP_TEXT;
    item->text = bytes_of(image.data + at, len_bytes);
    if (kind == '=') /* "txt:" */
        item->text = bytes_of(item->text.data + 4, len_bytes - 4);
    return 0;
}

static int resp_aggregate_parse(uint8_t kind, struct resp_item *item)
{
    if (item->number == -1 && kind == '*') {
        item->kind = RESP_NULL;
        return 0;
    }
    if (item->number < 0 || item->number > RESP_MAX_ITEMS)
        return E_PROTO;
    item->kind = kind == '%' ? RESP_MAP : kind == '>' ? RESP_PUSH : kind == '|' ? RESP_NOTE : RESP_LIST;
    if (kind == '%' || kind == '|')
        item->number *= 2;
    return 0;
}

/* An item that is its line alone. */
static int resp_line_item_parse(uint8_t kind, struct bytes line, struct resp_item *item)
{
    item->text = line;
    switch (kind) {
    case '+':
    case ',':
    case '(':
        item->kind = RESP_TEXT;
        return 0;
    case '-':
        item->kind = RESP_ERROR;
        return 0;
    case ':':
        item->kind = RESP_INTEGER;
        return resp_number_parse(line, &item->number);
    case '#':
        item->kind = RESP_INTEGER;
        item->number = bytes_is(line, "t");
        return item->number == 1 || bytes_is(line, "f") ? 0 : E_PROTO;
    case '_':
        item->kind = RESP_NULL;
        return line.len_bytes == 0 ? 0 : E_PROTO;
    default:
        return E_PROTO;
    }
}

int resp_item_parse(struct bytes image, struct resp_item *out, size_t *used_out)
{
    struct resp_item item = {0};
    struct bytes line = {0};
    size_t used = 0;
    int rc;

    *used_out = 0;
    if (image.len_bytes == 0)
        return E_AGAIN;
    if (memchr("+-:$*_#,(=!%~>|", image.data[0], 15) == NULL)
        return E_PROTO;
    rc = resp_line_parse(image, &line, &used);
    if (rc < 0)
        return rc;
    if (memchr("$=!*%~>|", image.data[0], 8) == NULL) {
        rc = resp_line_item_parse(image.data[0], line, &item);
    } else {
        rc = resp_number_parse(line, &item.number);
        if (rc == 0 && memchr("$=!", image.data[0], 3) != NULL)
            rc = resp_bulk_parse(image, image.data[0], &item, &used);
        else if (rc == 0)
            rc = resp_aggregate_parse(image.data[0], &item);
    }
    if (rc == 0 || rc == E_AGAIN)
        *used_out = used;
    if (rc == 0)
        *out = item;
    return rc;
}

int resp_reply_bytes(struct bytes image, size_t *used_out)
{
    uint64_t n_left = 1, n_seen = 0;
    size_t at = 0;

    *used_out = 0;
    while (n_left > 0) {
        struct resp_item item;
        size_t used;
        int rc = resp_item_parse(bytes_of(image.data + at, image.len_bytes - at), &item, &used);

        if (rc == E_AGAIN && used > 0)
            *used_out = at + used;
        if (rc < 0)
            return rc;
        at += used;
        n_left -= item.kind != RESP_NOTE;
        if (item.kind == RESP_LIST || item.kind == RESP_MAP || item.kind == RESP_PUSH ||
            item.kind == RESP_NOTE)
            n_left += (uint64_t)item.number;
        if (n_left + ++n_seen > RESP_MAX_ITEMS)
            return E_PROTO;
    }
    *used_out = at;
    return 0;
}

int resp_command(struct buf *out, const struct bytes *args, unsigned n)
{
    buf_printf(out, "*%u\r\n", n);
    return resp_args(out, args, n);
}

int resp_args(struct buf *out, const struct bytes *args, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        buf_printf(out, "$%zu\r\n", args[i].len_bytes);
        buf_append(out, args[i].data, args[i].len_bytes);
        buf_append_str(out, "\r\n");
    }
    return out->is_bad ? E_NOMEM : 0;
}
