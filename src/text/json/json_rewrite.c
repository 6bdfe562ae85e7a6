/* SPDX-License-Identifier: Apache-2.0 */
/* Writes JSON again while json_walk checks it.
 *
 *     [1.50,"\u0041\/" ]      text
 *     [1.5, "A/"]             out
 *
 * Plain runs of strings are copied.  Escapes and numbers are held until they are complete; a high surrogate waits
 * for the low one.  Blanks between tokens are dropped. */
#include "text/json/json_rewrite.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "text/json/json.h"

void json_rewrite_fini(struct json_rewrite *rewrite)
{
    buf_fini(&rewrite->held);
    *rewrite = (struct json_rewrite){0};
}

/* ---- escapes ---- */

#define ESCAPE_BYTES 6 /* of \u and four digits; a pair of surrogates has twice as many */

/* The code of the escape at held[at]; the walk has checked its digits. */
static uint32_t rewrite_code_at(const struct json_rewrite *rewrite, size_t at)
{
    uint8_t raw[2] = {0};

    (void)hex_decode(bytes_of(rewrite->held.data + at + 2, 4), raw, sizeof(raw));
    return (uint32_t)raw[0] << 8 | raw[1];
}

static void rewrite_put_code(struct json_rewrite *rewrite, uint32_t code, struct buf *out)
{
    uint8_t raw[4];

    rewrite->is_odd |= code == 0 && rewrite->walk.is_key;
    json_put_chars(out, bytes_of(raw, utf8_put(code, raw)));
    buf_clear(&rewrite->held);
}

/* Half a pair stays as it is spelled. */
static void rewrite_put_half(struct json_rewrite *rewrite, struct buf *out)
{
    rewrite->is_odd = true;
    buf_append(out, rewrite->held.data, ESCAPE_BYTES);
    buf_consume(&rewrite->held, ESCAPE_BYTES);
}

static bool is_high_half(uint32_t code)
{
    return code >= 0xd800 && code <= 0xdbff;
}

static void rewrite_end_unicode(struct json_rewrite *rewrite, struct buf *out)
{
    uint32_t code = rewrite_code_at(rewrite, 0);

    if (rewrite->held.len_bytes == 2 * ESCAPE_BYTES) {
        uint32_t low = rewrite_code_at(rewrite, ESCAPE_BYTES);

        if (low >= 0xdc00 && low <= 0xdfff) {
            rewrite_put_code(rewrite, 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00), out);
            return;
        }
        rewrite_put_half(rewrite, out);
        code = low;
    }
    if (is_high_half(code))
        return; /* the other half may follow */
    if (code >= 0xdc00 && code <= 0xdfff)
        rewrite_put_half(rewrite, out);
    else
        rewrite_put_code(rewrite, code, out);
}

/* Takes a byte of an escape. */
static void rewrite_escape(struct json_rewrite *rewrite, uint8_t c, struct buf *out)
{
    static const uint8_t meant[256] = {['b'] = '\b', ['f'] = '\f', ['n'] = '\n', ['r'] = '\r',
                                       ['t'] = '\t', ['"'] = '"',  ['/'] = '/',  ['\\'] = '\\'};

    if (rewrite->held.len_bytes == ESCAPE_BYTES + 1 && c != 'u')
        rewrite_put_half(rewrite, out);
    buf_append_byte(&rewrite->held, c);
    if (rewrite->held.len_bytes == 2 && c != 'u')
        rewrite_put_code(rewrite, meant[c], out);
    else if (rewrite->held.len_bytes % ESCAPE_BYTES == 0)
        rewrite_end_unicode(rewrite, out);
}

/* ---- numbers ---- */

static bool is_number_byte(uint8_t c)
{
    return (c >= '0' && c <= '9') || c == '-' || c == '+' || c == '.' || c == 'e' || c == 'E';
}

/* Writes a number that fits as api_json_put() does.  False: it does not fit. */
static bool rewrite_put_value(const char *text, struct buf *out)
{
    bool is_integer = strpbrk(text, ".eE") == NULL;
    json_t *value;
    double real;

    errno = 0;
    if (is_integer) {
        long long integer = strtoll(text, NULL, 10);

        return errno == 0 && buf_printf(out, "%lld", integer) == 0;
    }
    real = strtod(text, NULL);
    value = isinf(real) ? NULL : json_real(real);
    if (value == NULL)
        return false;
    (void)api_json_put(out, value); /* no memory sets is_bad */
    json_decref(value);
    return true;
}

static void rewrite_put_number(struct json_rewrite *rewrite, struct buf *out)
{
    const char *text = (const char *)rewrite->held.data;
    bool is_long = rewrite->held.len_bytes > JSON_REWRITE_NUMBER_BYTES;

    if (is_long || !rewrite_put_value(text, out)) {
        rewrite->is_odd |= is_long || strpbrk(text, ".eE") != NULL;
        buf_append(out, rewrite->held.data, rewrite->held.len_bytes);
    }
    buf_clear(&rewrite->held);
}

/* ---- tokens ---- */

static void rewrite_outside(struct json_rewrite *rewrite, uint8_t c, struct buf *out)
{
    bool is_in_number = rewrite->held.len_bytes > 0;

    if (is_in_number ? is_number_byte(c) : c == '-' || (c >= '0' && c <= '9')) {
        buf_append_byte(&rewrite->held, c);
        return;
    }
    if (is_in_number)
        rewrite_put_number(rewrite, out);
    if (c == ' ' || c == '\t' || c == '\n' || c == '\r')
        return;
    buf_append_byte(out, c);
    if (c == ',' || c == ':')
        buf_append_byte(out, ' ');
}

/* The bytes of a string that need no look at their escapes. */
static size_t rewrite_plain(struct json_rewrite *rewrite, struct bytes text, struct buf *out)
{
    size_t n;

    if (!json_walk_is_in_string(&rewrite->walk))
        return 0;
    if (rewrite->held.len_bytes == ESCAPE_BYTES && text.data[0] != '\\')
        rewrite_put_half(rewrite, out);
    if (rewrite->held.len_bytes > 0)
        return 0;
    n = json_walk_string(&rewrite->walk, text);
    json_put_chars(out, bytes_of(text.data, n));
    return n;
}

enum json_walk_result json_rewrite_feed(struct json_rewrite *rewrite, struct bytes text, struct buf *out)
{
    enum json_walk_result result = JSON_WALK_MORE;

    for (size_t i = 0; i < text.len_bytes; i++) {
        bool was_in_string;
        uint8_t c;

        i += rewrite_plain(rewrite, bytes_of(text.data + i, text.len_bytes - i), out);
        if (i == text.len_bytes)
            return JSON_WALK_MORE;
        c = text.data[i];
        was_in_string = json_walk_is_in_string(&rewrite->walk);
        result = json_walk_byte(&rewrite->walk, c);
        if (result == JSON_WALK_BAD || result == JSON_WALK_DEEP)
            return result;
        if (!was_in_string)
            rewrite_outside(rewrite, c, out);
        else if (c == '"' && rewrite->held.len_bytes == 0)
            buf_append_byte(out, c);
        else
            rewrite_escape(rewrite, c, out);
        out->is_bad |= rewrite->held.is_bad;
    }
    return result;
}

bool json_rewrite_end(struct json_rewrite *rewrite, struct buf *out)
{
    return json_rewrite_feed(rewrite, bytes_str(" "), out) == JSON_WALK_DONE; /* a blank ends a number */
}
