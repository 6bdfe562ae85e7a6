/* SPDX-License-Identifier: Apache-2.0 */
/* Texts whose bytes remember their authors, and text builders.
 *
 *     data    <|im_start|>user\nhello<|im_end|>
 *     marks   0000000000000000001111100000000000     or, usually, one mark for all bytes
 *
 * A part of a text shares its bytes and marks; only joining copies. Python counts characters, so lengths and
 * indices are in code points. A byte that is not valid UTF-8 counts as one character. */
#include "text/jinja/jinja_priv.h"

#include "base/err.h"
#include "base/str.h"

#include <string.h>

#define KEPT_BYTES ((size_t)32 << 10) /* a text this long keeps its buffer instead of being copied */

struct text text_in(struct value value)
{
    return value.kind == VALUE_TEXT ? *value.text : (struct text){0};
}

struct text text_str(const char *text)
{
    return (struct text){.data = (const uint8_t *)text, .len_bytes = strlen(text)};
}

struct text text_part(struct text text, size_t from, size_t to)
{
    if (to > text.len_bytes)
        to = text.len_bytes;
    if (from >= to)
        return (struct text){.mark = text.mark};
    text.data += from;
    if (text.marks != NULL)
        text.marks += from;
    text.len_bytes = to - from;
    return text;
}

uint32_t text_mark_at(struct text text, size_t at)
{
    return text.marks == NULL ? text.mark : text.marks[at];
}

uint32_t mark_join(uint32_t a, uint32_t b)
{
    const uint32_t bits = MARK_CLIENT | MARK_LAST;

    return ((a | b) & bits) | ((a & ~bits) != 0 ? a & ~bits : b & ~bits);
}

uint32_t text_marks(struct text text)
{
    uint32_t all = text.marks == NULL ? text.mark : 0;

    for (size_t i = 0; text.marks != NULL && i < text.len_bytes; i++)
        all = mark_join(all, text.marks[i]);
    return all;
}

struct bytes text_bytes(struct text text)
{
    return bytes_of(text.data, text.len_bytes);
}

bool text_is(struct text text, const char *other)
{
    return bytes_is(text_bytes(text), other);
}

/* ---- characters ---- */

uint32_t text_code(struct text text, size_t at, size_t *len_out)
{
    return utf8_next(text_bytes(text), at, len_out);
}

size_t text_length(struct text text)
{
    size_t n = 0, len;

    for (size_t at = 0; at < text.len_bytes; at += len, n++) {
        len = 1;
        if (text.data[at] >= 0x80)
            utf8_next(text_bytes(text), at, &len);
    }
    return n;
}

size_t text_offset(struct text text, size_t index)
{
    size_t at = 0, len;

    for (; index > 0 && at < text.len_bytes; index--, at += len) {
        len = 1;
        if (text.data[at] >= 0x80)
            utf8_next(text_bytes(text), at, &len);
    }
    return at;
}

size_t text_before(struct text text, size_t at)
{
    size_t len;

    for (size_t back = 2; back <= 4 && back <= at; back++) {
        if (text.data[at - 1] < 0x80)
            break;
        utf8_next(text_bytes(text), at - back, &len);
        if (len == back)
            return at - back;
    }
    return at - 1;
}

bool char_is_space(uint32_t code)
{
    if (code < 0x80)
        return code == ' ' || (code >= '\t' && code <= '\r') || (code >= 0x1c && code <= 0x1f);
    return code == 0x85 || code == 0xa0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200a) ||
           code == 0x2028 || code == 0x2029 || code == 0x202f || code == 0x205f || code == 0x3000;
}

/* chars NULL: strips white space. */
static bool is_stripped(uint32_t code, const struct text *chars)
{
    size_t len;

    if (chars == NULL)
        return char_is_space(code);
    for (size_t at = 0; at < chars->len_bytes; at += len) {
        if (text_code(*chars, at, &len) == code)
            return true;
    }
    return false;
}

struct text text_strip(struct text text, const struct text *chars, bool left, bool right)
{
    size_t from = 0, to = text.len_bytes, len;

    while (left && from < to && is_stripped(text_code(text, from, &len), chars))
        from += len;
    while (right && to > from) {
        size_t before = text_before(text, to);

        if (!is_stripped(text_code(text, before, &len), chars))
            break;
        to = before;
    }
    return text_part(text, from, to);
}

/* ---- text builders ---- */

struct build build_begin(struct jinja *jinja)
{
    return (struct build){.jinja = jinja};
}

/* Checks that there is room for len_bytes more; false after a failure. */
static bool text_has_room(struct build *build, size_t len_bytes)
{
    struct jinja *jinja = build->jinja;

    if (!jinja_charge(jinja, len_bytes / 64))
        return false;
    /* All builders count together: macros nest, and each one holds its text so far. */
    if (len_bytes > jinja->max_text_bytes - jinja->made_bytes) {
        jinja_fail(jinja, E_LIMIT, "a text of more than %zu bytes", jinja->max_text_bytes);
        return false;
    }
    return true;
}

static void put_marks(struct build *build, const uint32_t *marks, uint32_t mark, size_t n)
{
    struct buf *buf = &build->marks;

    if (buf_reserve(buf, n * sizeof(mark)) != 0)
        return;
    uint32_t *to = (uint32_t *)(void *)(buf->data + buf->len_bytes); /* aligned: whole marks only */
    if (marks != NULL)
        memcpy(to, marks, n * sizeof(mark));
    for (size_t i = 0; marks == NULL && i < n && i < 16; i++)
        to[i] = mark;
    for (size_t i = 16; marks == NULL && i < n; i *= 2) /* doubles the marks written so far */
        memcpy(to + i, to, (i < n - i ? i : n - i) * sizeof(mark));
    buf->len_bytes += n * sizeof(mark);
}

static void text_put(struct build *build, struct text text)
{
    if (text.len_bytes == 0 || !text_has_room(build, text.len_bytes))
        return;
    if (build->data.len_bytes == 0 && !build->is_mixed)
        build->mark = text.mark;
    if (!build->is_mixed && (text.marks != NULL || text.mark != build->mark)) {
        put_marks(build, NULL, build->mark, build->data.len_bytes);
        build->is_mixed = true;
    }
    buf_append(&build->data, text.data, text.len_bytes);
    build->jinja->made_bytes += text.len_bytes;
    if (build->is_mixed)
        put_marks(build, text.marks, text.mark, text.len_bytes);
    if (build->data.is_bad || build->marks.is_bad)
        jinja_fail(build->jinja, E_NOMEM, "out of memory");
}

void build_text(struct build *build, struct text text)
{
    text_put(build, text);
}

void build_raw(struct build *build, const void *data, size_t len_bytes, uint32_t mark)
{
    text_put(build, (struct text){.data = data, .len_bytes = len_bytes, .mark = mark});
}

void build_str(struct build *build, const char *text)
{
    text_put(build, text_str(text));
}

void build_char(struct build *build, uint32_t code, uint32_t mark)
{
    uint8_t raw[4];

    build_raw(build, raw, utf8_put(code, raw), mark);
}

void build_drop(struct build *build)
{
    build->jinja->made_bytes -= build->data.len_bytes;
    buf_fini(&build->data);
    buf_fini(&build->marks);
    *build = (struct build){.jinja = build->jinja};
}

struct value build_end(struct build *build)
{
    struct jinja *jinja = build->jinja;
    struct text text = {.len_bytes = build->data.len_bytes, .mark = build->mark};
    size_t marks_bytes = build->is_mixed ? text.len_bytes * sizeof(*text.marks) : 0;
    uint8_t *copy = NULL;

    if (text.len_bytes >= KEPT_BYTES) {
        text.marks = build->is_mixed ? jinja_keep(jinja, &build->marks) : NULL;
        text.data = jinja_keep(jinja, &build->data);
        jinja->made_bytes -= text.len_bytes - build->data.len_bytes;
    }
    /* The marks come first because they need alignment. */
    if (jinja->rc == 0 && text.len_bytes > 0 && text.data == NULL)
        copy = jinja_take(jinja, marks_bytes + text.len_bytes);
    if (copy != NULL) {
        if (build->is_mixed) {
            memcpy(copy, build->marks.data, marks_bytes);
            text.marks = (const uint32_t *)(const void *)copy;
        }
        memcpy(copy + marks_bytes, build->data.data, text.len_bytes);
        text.data = copy + marks_bytes;
    }
    build_drop(build);
    return jinja->rc == 0 ? value_text(jinja, text) : value_undefined(NULL);
}

struct value value_copy(struct jinja *jinja, struct bytes text, uint32_t mark)
{
    struct build build = build_begin(jinja);

    build_raw(&build, text.data, text.len_bytes, mark);
    return build_end(&build);
}

struct value value_joined(struct jinja *jinja, const struct text *pieces, size_t n)
{
    struct build build = build_begin(jinja);

    for (size_t i = 0; i < n; i++)
        build_text(&build, pieces[i]);
    return build_end(&build);
}
