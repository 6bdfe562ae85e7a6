/* SPDX-License-Identifier: Apache-2.0 */
/* JSON as text: checks it, writes it again with one spacing and the fewest escapes, and walks it.
 *
 *     { "a":[1.50,2e3 ],"b" : "\u00e9" }   ->   {"a": [1.50, 2e3], "b": "(that character)"}
 *
 * Client JSON passes here before any other code reads it. Afterwards it is well formed, nests no deeper than
 * MAX_DEPTH, and can be walked by a search for commas and brackets (jinja/json.c makes values of it). Keys
 * keep the client's order, and numbers keep the client's spelling.
 *
 * Grammar: RFC 8259. Nesting is limited because values are read by recursion. A lone surrogate, which JSON
 * can spell and UTF-8 cannot, becomes U+FFFD. So does a byte that is not valid UTF-8. */
#include "text/json/json_text.h"

#include "base/err.h"
#include "base/str.h"

#include <string.h>

#define MAX_DEPTH 128

struct json { /* the reader's state */
    struct bytes text;
    size_t at;
    struct buf *out;
    unsigned depth;
};

static int json_text_read_value(struct json *json);

static int json_text_peek(const struct json *json)
{
    return json->at < json->text.len_bytes ? json->text.data[json->at] : -1;
}

static void json_text_skip_blanks(struct json *json)
{
    int c;

    while ((c = json_text_peek(json)) == ' ' || c == '\t' || c == '\n' || c == '\r')
        json->at++;
}

/* ---- strings ---- */

static void put_plain_char(struct buf *out, uint32_t code)
{
    static const char names[] = "btn\0fr"; /* names of 8..13 */
    uint8_t raw[4];

    if (code == '"' || code == '\\') {
        buf_append_byte(out, '\\');
        buf_append_byte(out, (uint8_t)code);
    } else if (code >= 8 && code <= 13 && code != 11) {
        buf_append_byte(out, '\\');
        buf_append_byte(out, (uint8_t)names[code - 8]);
    } else if (code < 0x20) {
        buf_printf(out, "\\u%04x", code);
    } else {
        buf_append(out, raw, utf8_put(code, raw));
    }
}

static int read_hex4(struct json *json, uint32_t *out)
{
    uint8_t raw[2];

    if (json->text.len_bytes - json->at < 4 ||
        hex_decode(bytes_of(json->text.data + json->at, 4), raw, 2) != 0)
        return E_FORMAT;
    json->at += 4;
    *out = (uint32_t)raw[0] << 8 | raw[1];
    return 0;
}

/* Reads after "\u". A high surrogate takes the low one that follows it. */
static int read_unicode_escape(struct json *json, uint32_t *out)
{
    uint32_t low;
    int rc = read_hex4(json, out);

    if (rc != 0 || *out < 0xd800 || *out > 0xdfff)
        return rc;
    size_t before = json->at;
    if (*out < 0xdc00 && json->text.len_bytes - json->at >= 2 && json->text.data[json->at] == '\\' &&
        json->text.data[json->at + 1] == 'u') {
        json->at += 2;
        rc = read_hex4(json, &low);
        if (rc != 0)
            return rc;
        if (low >= 0xdc00 && low <= 0xdfff) {
            *out = 0x10000 + ((*out - 0xd800) << 10) + (low - 0xdc00);
            return 0;
        }
        json->at = before;
    }
    *out = 0xfffd;
    return 0;
}

/* Reads after the backslash. */
static int json_text_read_escape(struct json *json, uint32_t *out)
{
    static const char from[] = "\"\\/bfnrt";
    static const char to[] = "\"\\/\b\f\n\r\t";
    int c = json_text_peek(json);

    json->at++;
    if (c == 'u')
        return read_unicode_escape(json, out);
    const char *hit = c <= 0 ? NULL : strchr(from, c);
    if (hit == NULL)
        return E_FORMAT;
    *out = (uint32_t)to[hit - from];
    return 0;
}

/* Reads one character of a string and decodes escapes; *is_end_out at the closing quote. */
static int json_text_read_char(struct json *json, uint32_t *out, bool *is_end_out)
{
    size_t len_bytes;
    int c = json_text_peek(json);

    if (c < 0x20) /* true at the end of the text too */
        return E_FORMAT;
    *is_end_out = c == '"';
    if (c == '"' || c == '\\') {
        json->at++;
        return c == '"' ? 0 : json_text_read_escape(json, out);
    }
    *out = utf8_next(json->text, json->at, &len_bytes);
    json->at += len_bytes;
    return 0;
}

static int read_string(struct json *json)
{
    bool is_end = false;
    uint32_t code;

    if (json_text_peek(json) != '"')
        return E_FORMAT;
    json->at++;
    buf_append_byte(json->out, '"');
    while (!is_end) {
        int rc = json_text_read_char(json, &code, &is_end);
        if (rc != 0)
            return rc;
        if (!is_end)
            put_plain_char(json->out, code);
    }
    buf_append_byte(json->out, '"');
    return 0;
}

int json_unquote(struct bytes quoted, struct buf *out)
{
    struct json json = {.text = quoted, .at = 1};
    bool is_end = false;
    uint32_t code;
    uint8_t raw[4];

    for (;;) {
        int rc = json_text_read_char(&json, &code, &is_end);
        if (rc != 0)
            return rc;
        if (is_end)
            return out->is_bad ? E_NOMEM : 0;
        buf_append(out, raw, utf8_put(code, raw));
    }
}

/* ---- the other values ---- */

static bool skip_digits(struct json *json)
{
    size_t from = json->at;

    while (json_text_peek(json) >= '0' && json_text_peek(json) <= '9')
        json->at++;
    return json->at > from;
}

static int json_text_read_number(struct json *json)
{
    size_t from = json->at;

    if (json_text_peek(json) == '-')
        json->at++;
    if (json_text_peek(json) == '0')
        json->at++;
    else if (!skip_digits(json))
        return E_FORMAT;
    if (json_text_peek(json) == '.') {
        json->at++;
        if (!skip_digits(json))
            return E_FORMAT;
    }
    if (json_text_peek(json) == 'e' || json_text_peek(json) == 'E') {
        json->at++;
        if (json_text_peek(json) == '+' || json_text_peek(json) == '-')
            json->at++;
        if (!skip_digits(json))
            return E_FORMAT;
    }
    buf_append(json->out, json->text.data + from, json->at - from);
    return 0;
}

static int read_word(struct json *json, const char *word)
{
    struct bytes rest = bytes_of(json->text.data + json->at, json->text.len_bytes - json->at);

    if (!bytes_starts_with(rest, word))
        return E_FORMAT;
    json->at += strlen(word);
    buf_append_str(json->out, word);
    return 0;
}

static int read_member_name(struct json *json)
{
    int rc = read_string(json);

    if (rc != 0)
        return rc;
    json_text_skip_blanks(json);
    if (json_text_peek(json) != ':')
        return E_FORMAT;
    json->at++;
    buf_append_str(json->out, ": ");
    json_text_skip_blanks(json);
    return 0;
}

/* Reads an object or an array, from its opening bracket. */
static int json_text_read_items(struct json *json, bool is_object)
{
    int close = is_object ? '}' : ']', rc = 0;

    if (++json->depth > MAX_DEPTH)
        return E_LIMIT;
    buf_append_byte(json->out, json->text.data[json->at++]);
    json_text_skip_blanks(json);
    if (json_text_peek(json) != close) {
        for (;;) {
            rc = is_object ? read_member_name(json) : 0;
            if (rc == 0)
                rc = json_text_read_value(json);
            if (rc != 0)
                return rc;
            json_text_skip_blanks(json);
            if (json_text_peek(json) != ',')
                break;
            json->at++;
            buf_append_str(json->out, ", ");
            json_text_skip_blanks(json);
        }
    }
    if (json_text_peek(json) != close)
        return E_FORMAT;
    json->at++;
    buf_append_byte(json->out, (uint8_t)close);
    json->depth--;
    return 0;
}

static int json_text_read_value(struct json *json)
{
    switch (json_text_peek(json)) {
    case '{':
        return json_text_read_items(json, true);
    case '[':
        return json_text_read_items(json, false);
    case '"':
        return read_string(json);
    case 't':
        return read_word(json, "true");
    case 'f':
        return read_word(json, "false");
    case 'n':
        return read_word(json, "null");
    default:
        return json_text_read_number(json);
    }
}

int json_respace(struct bytes json, struct buf *out)
{
    struct json reading = {.text = json, .out = out};
    size_t before = out->len_bytes;

    json_text_skip_blanks(&reading);
    int rc = json_text_read_value(&reading);
    if (rc == 0) {
        json_text_skip_blanks(&reading);
        rc = reading.at == json.len_bytes ? 0 : E_FORMAT;
    }
    if (rc == 0 && out->is_bad)
        rc = E_NOMEM;
    if (rc != 0)
        out->len_bytes = before;
    return rc;
}

/* ---- walking the text written above ---- */

static bool begins_with(struct bytes json, uint8_t byte)
{
    return json.len_bytes > 0 && json.data[0] == byte;
}

bool json_is_object(struct bytes json)
{
    return begins_with(json, '{');
}

/* Returns the end of the value at this offset: the comma or bracket on its own level. */
static size_t value_end(struct bytes json, size_t at)
{
    size_t depth = 0;
    bool is_inside = false; /* inside a string */

    for (; at < json.len_bytes; at++) {
        uint8_t c = json.data[at];

        if (is_inside) {
            at += c == '\\';
            is_inside = c != '"';
        } else if (c == '"') {
            is_inside = true;
        } else if (c == '{' || c == '[') {
            depth++;
        } else if (c == ',' || c == '}' || c == ']' || c == ':') {
            if (depth == 0)
                return at;
            depth -= c == '}' || c == ']';
        }
    }
    return json.len_bytes;
}

bool json_next(struct bytes json, size_t *at, struct bytes *key_out, struct bytes *value_out)
{
    size_t from = *at == 0 ? 1 : *at + 2; /* after the bracket, or after ", " */

    if (from >= json.len_bytes || (*at == 0 && json.len_bytes == 2))
        return false;
    *key_out = (struct bytes){0};
    if (json_is_object(json)) {
        size_t colon = value_end(json, from);
        *key_out = bytes_of(json.data + from, colon - from);
        from = colon + 2;
    }
    *at = value_end(json, from);
    *value_out = bytes_of(json.data + from, *at - from);
    return true;
}
