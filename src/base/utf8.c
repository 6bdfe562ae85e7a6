/* SPDX-License-Identifier: Apache-2.0 */
/* UTF-8 as in RFC 3629, and JSON strings on top of it.
 *
 * One table of lead bytes gives the length of a character and the allowed second bytes.  The narrow ranges
 * of second bytes exclude overlong forms, surrogates and values above U+10FFFF:
 *
 *     lead       length  second byte
 *     00..7F     1
 *     C2..DF     2       80..BF
 *     E0         3       A0..BF
 *     ED         3       80..9F        (other E1..EF: 80..BF)
 *     F0         4       90..BF
 *     F4         4       80..8F        (F1..F3: 80..BF)
 *
 * JSON strings also escape DEL and the C1 controls: JSON does not need that, but terminals obey these
 * characters. */
#include "base/str.h"

#include <string.h>

#include "base/err.h"

/* The length of the character that a lead byte starts (0: none), and the range of its second byte. */
static size_t lead_of(uint8_t byte, uint8_t *low_out, uint8_t *high_out)
{
    *low_out = byte == 0xe0 ? 0xa0 : byte == 0xf0 ? 0x90 : 0x80;
    *high_out = byte == 0xed ? 0x9f : byte == 0xf4 ? 0x8f : 0xbf;
    if (byte < 0x80)
        return 1;
    if (byte < 0xc2)
        return 0;
    return byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : byte < 0xf5 ? 4 : 0;
}

/* The length of the whole character at text[at]. 0 when no character can start like this. 0 too when the
 * text ends inside the character; then *missing_out is the number of missing bytes. */
static size_t char_at(struct bytes text, size_t at, size_t *missing_out)
{
    uint8_t low, high;
    size_t len_bytes = lead_of(text.data[at], &low, &high);

    *missing_out = 0;
    for (size_t i = 1; i < len_bytes; i++) {
        if (at + i == text.len_bytes) {
            *missing_out = len_bytes - i;
            return 0;
        }
        uint8_t byte = text.data[at + i];
        if (byte < (i == 1 ? low : 0x80) || byte > (i == 1 ? high : 0xbf))
            return 0;
    }
    return len_bytes;
}

/* Number of ASCII bytes in a row from at on. */
static size_t ascii_run(struct bytes text, size_t at)
{
    size_t from = at;

    for (; text.len_bytes - at >= 8; at += 8)
        if ((bytes_load8(text.data + at) & bytes_each(0x80)) != 0)
            break;
    while (at < text.len_bytes && text.data[at] < 0x80)
        at++;
    return at - from;
}

size_t utf8_valid_prefix(struct bytes text)
{
    size_t at = 0, missing, len_bytes;

    while (at < text.len_bytes) {
        at += ascii_run(text, at);
        if (at == text.len_bytes || (len_bytes = char_at(text, at, &missing)) == 0)
            break;
        at += len_bytes;
    }
    return at;
}

uint32_t utf8_next(struct bytes text, size_t at, size_t *len_out)
{
    size_t missing;
    size_t len_bytes = char_at(text, at, &missing);
    const uint8_t *from = text.data + at;

    *len_out = len_bytes == 0 ? 1 : len_bytes;
    if (len_bytes == 0)
        return 0xfffd;
    if (len_bytes == 1)
        return from[0];

    uint32_t code_point = from[0] & (0x7fu >> len_bytes);
    for (size_t i = 1; i < len_bytes; i++)
        code_point = code_point << 6 | (from[i] & 0x3f);
    return code_point;
}

size_t utf8_put(uint32_t code_point, uint8_t out[4])
{
    if (code_point > 0x10ffff || (code_point >= 0xd800 && code_point <= 0xdfff))
        code_point = 0xfffd;
    if (code_point < 0x80) {
        out[0] = (uint8_t)code_point;
        return 1;
    }

    size_t len_bytes = code_point < 0x800 ? 2 : code_point < 0x10000 ? 3 : 4;
    for (size_t i = len_bytes - 1; i > 0; i--, code_point >>= 6)
        out[i] = (uint8_t)(0x80 | (code_point & 0x3f));
    out[0] = (uint8_t)(0xf00 >> len_bytes | code_point);
    return len_bytes;
}

size_t utf8_missing(struct bytes text)
{
    size_t missing = 0;

    for (size_t back = 1; back <= 3 && back <= text.len_bytes; back++) {
        size_t at = text.len_bytes - back;

        if ((text.data[at] & 0xc0) == 0x80)
            continue; /* inside a character: its lead byte is further left */
        char_at(text, at, &missing);
        break;
    }
    return missing;
}

/* True if the byte goes into a JSON string unescaped. */
static bool utf8_is_plain(uint8_t byte)
{
    return byte >= 0x20 && byte < 0x7f && byte != '"' && byte != '\\';
}

/* Appends the escape of a quote, a backslash or a control character. */
static void utf8_put_escaped(struct buf *buf, uint32_t code_point)
{
    static const char digits[] = "0123456789abcdef";
    static const uint8_t names[0xa0] = {['"'] = '"', ['\\'] = '\\', ['\n'] = 'n', ['\r'] = 'r', ['\t'] = 't'};
    uint8_t escape[6] = {
        '\\', 'u', '0', '0', (uint8_t)digits[code_point >> 4], (uint8_t)digits[code_point & 15]};

    if (names[code_point] != 0)
        escape[1] = names[code_point];
    if (buf_reserve(buf, sizeof(escape)) != 0)
        return;
    memcpy(buf->data + buf->len_bytes, escape, sizeof(escape));
    buf->len_bytes += names[code_point] != 0 ? 2 : 6;
    buf->data[buf->len_bytes] = '\0';
}

int json_put_chars(struct buf *buf, struct bytes text)
{
    size_t at = 0, plain_from = 0, len_bytes;

    for (; at < text.len_bytes; at += len_bytes) {
        bool is_ascii = text.data[at] < 0x80;

        len_bytes = 1;
        if (utf8_is_plain(text.data[at]))
            continue;
        uint32_t code_point = is_ascii ? text.data[at] : utf8_next(text, at, &len_bytes);
        bool is_invalid = code_point == 0xfffd && len_bytes == 1;

        if (!is_ascii && !is_invalid && code_point >= 0xa0)
            continue;
        if (at > plain_from)
            buf_append(buf, text.data + plain_from, at - plain_from);
        if (is_invalid)
            buf_append(buf, "\xef\xbf\xbd", 3);
        else
            utf8_put_escaped(buf, code_point);
        plain_from = at + len_bytes;
    }
    if (at > plain_from)
        buf_append(buf, text.data + plain_from, at - plain_from);
    return buf->is_bad ? E_NOMEM : 0;
}

int json_put_str(struct buf *buf, struct bytes text)
{
    buf_append_byte(buf, '"');
    json_put_chars(buf, text);
    buf_append_byte(buf, '"');
    return buf->is_bad ? E_NOMEM : 0;
}
