/* SPDX-License-Identifier: Apache-2.0 */
/* Loads long strings without the JSON library. Most of a large body is a few long strings. The library copies
 * them byte by byte into one buffer, then into another, and checks the UTF-8 of each byte separately: 20 ns
 * per byte. The walk before the load already knows where strings begin and end. So the library gets the
 * document without them:
 *
 *     {"role":"user","content":"Once upon a time ... "}        text
 *     {"role":"user","content":""}                             the library's input
 *
 * The strings are filled in afterwards from the text, one run between two backslashes at a time.
 *
 * A string is identified by its number among all strings that are values. A walk over the loaded tree meets
 * them in the same order: objects keep their members in the document's order, and duplicate keys are refused.
 *
 * If the document has any error, it is loaded as a whole. So the library alone decides what is refused,
 * and with which message. */
#include "text/json/json_long_priv.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/str.h"

#define LONG_BYTES 256
#define PAYS_BYTES 4096

void json_longs_see(struct json_longs *longs, const struct json_walk *walk, size_t at)
{
    bool is_in = json_walk_is_in_string(walk) && !walk->is_key;

    if (is_in == longs->is_in)
        return;
    longs->is_in = is_in;
    if (is_in) {
        longs->from = at + 1;
        return;
    }
    longs->n_strings++;
    if (at - longs->from < LONG_BYTES || longs->is_bad)
        return;
    if (longs->n == longs->cap) {
        size_t cap = longs->cap == 0 ? 16 : 2 * longs->cap;
        struct json_long *list = realloc(longs->list, cap * sizeof(*list));

        if (list == NULL) {
            longs->is_bad = true;
            return;
        }
        longs->list = list;
        longs->cap = cap;
    }
    longs->list[longs->n++] =
        (struct json_long){.from = longs->from, .to = at, .number = longs->n_strings - 1};
    longs->n_bytes += at - longs->from;
}

void json_longs_fini(struct json_longs *longs)
{
    free(longs->list);
    *longs = (struct json_longs){0};
}

bool json_longs_pay(const struct json_longs *longs)
{
    return !longs->is_bad && longs->n_bytes >= PAYS_BYTES;
}

int json_longs_cut(const struct json_longs *longs, struct bytes text, struct buf *out)
{
    size_t at = 0;

    buf_reserve(out, text.len_bytes - longs->n_bytes);
    for (size_t i = 0; i < longs->n; i++) {
        buf_append(out, text.data + at, longs->list[i].from - at);
        at = longs->list[i].to;
    }
    buf_append(out, text.data + at, text.len_bytes - at);
    return out->is_bad ? E_NOMEM : 0;
}

/* ---- decoding a string ---- */

/* The walk has checked the four digits. */
static uint32_t json_long_hex4(const uint8_t *digits)
{
    uint32_t code = 0;

    for (int i = 0; i < 4; i++) {
        uint8_t c = digits[i];

        code = code << 4 | (uint32_t)(c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
    }
    return code;
}

/* Decodes the escape at raw[at], which is a backslash. Returns where the text continues; 0: the escape stands
 * for no character. */
static size_t json_long_unescape(struct bytes raw, size_t at, uint8_t **to)
{
    static const uint8_t meant[256] = {['b'] = '\b', ['f'] = '\f', ['n'] = '\n', ['r'] = '\r',
                                       ['t'] = '\t', ['"'] = '"',  ['/'] = '/',  ['\\'] = '\\'};
    uint8_t c = raw.data[at + 1];
    uint32_t code, low;

    if (c != 'u') { /* the walk has checked that it is one of the others */
        *(*to)++ = meant[c];
        return at + 2;
    }
    code = json_long_hex4(raw.data + at + 2);
    at += 6;
    if (code >= 0xdc00 && code <= 0xdfff)
        return 0;
    if (code >= 0xd800 && code <= 0xdbff) {
        if (raw.len_bytes - at < 6 || raw.data[at] != '\\' || raw.data[at + 1] != 'u')
            return 0;
        low = json_long_hex4(raw.data + at + 2);
        if (low < 0xdc00 || low > 0xdfff)
            return 0;
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
        at += 6;
    }
    *to += utf8_put(code, *to);
    return at;
}

/* Copies up to the next backslash or the end. Source code has a backslash about every thirty bytes, so a
 * search and a separate copy would be two calls for each. The output is never longer than the input so far.
 * So wherever eight bytes can be read, eight can be written. */
static size_t copy_plain(struct bytes raw, size_t at, uint8_t **to)
{
    size_t n = 8;

    for (; n == 8 && raw.len_bytes - at >= 8; at += n, *to += n) {
        uint64_t eight = bytes_load8(raw.data + at);

        memcpy(*to, raw.data + at, sizeof(eight));
        n = bytes_first_mark(bytes_mark_below(eight ^ bytes_each('\\'), 1));
    }
    for (; n == 8 && at < raw.len_bytes && raw.data[at] != '\\'; at++)
        *(*to)++ = raw.data[at];
    return at;
}

/* out has room for raw, so it never grows. E_FORMAT. */
static int json_long_decode(struct bytes raw, uint8_t *out, size_t *len_out)
{
    uint8_t *to = out;
    size_t at = 0;

    if (utf8_valid_prefix(raw) != raw.len_bytes)
        return E_FORMAT;
    while ((at = copy_plain(raw, at, &to)) < raw.len_bytes)
        if ((at = json_long_unescape(raw, at, &to)) == 0)
            return E_FORMAT;
    *len_out = (size_t)(to - out);
    return 0;
}

/* ---- filling ---- */

struct filling {
    const struct json_longs *longs;
    struct bytes text;
    uint8_t *room;
    size_t next, n_strings;
};

static int json_long_fill_string(struct filling *filling, json_t *value)
{
    const struct json_long *string = &filling->longs->list[filling->next];
    size_t len_bytes;
    int rc;

    if (filling->n_strings++ != string->number)
        return 0;
    filling->next++;
    rc = json_long_decode(bytes_of(filling->text.data + string->from, string->to - string->from),
                          filling->room, &len_bytes);
    if (rc == 0 && json_string_setn_nocheck(value, (const char *)filling->room, len_bytes) < 0)
        rc = E_NOMEM;
    return rc;
}

/* Recursion is bounded: the walk allows at most JSON_WALK_MAX_DEPTH levels. */
static int json_long_fill(struct filling *filling, json_t *value)
{
    int rc = 0;

    if (json_is_string(value))
        return json_long_fill_string(filling, value);
    if (json_is_object(value)) {
        for (void *at = json_object_iter(value); at != NULL && rc == 0; at = json_object_iter_next(value, at))
            if (filling->next < filling->longs->n)
                rc = json_long_fill(filling, json_object_iter_value(at));
    } else if (json_is_array(value)) {
        for (size_t i = 0; i < json_array_size(value) && filling->next < filling->longs->n && rc == 0; i++)
            rc = json_long_fill(filling, json_array_get(value, i));
    }
    return rc;
}

int json_longs_fill(const struct json_longs *longs, struct bytes text, json_t *root)
{
    struct filling filling = {.longs = longs, .text = text};
    size_t longest = 0;
    int rc;

    for (size_t i = 0; i < longs->n; i++)
        if (longs->list[i].to - longs->list[i].from > longest)
            longest = longs->list[i].to - longs->list[i].from;
    filling.room = malloc(longest + 1);
    if (filling.room == NULL)
        return E_NOMEM;
    rc = longs->n > 0 ? json_long_fill(&filling, root) : 0;
    free(filling.room);
    return rc;
}
