/* SPDX-License-Identifier: Apache-2.0 */
/* A pushdown automaton for RFC 8259, one byte at a time.
 *
 * It has three users. The first limits depth and number of values before the JSON library gets a body;
 * without this limit the library's memory could grow to eighty times the body. The second streams tool
 * arguments, of which only valid JSON may leave. The third closes arguments that max_tokens cut off.
 *
 * For the third the automaton remembers the latest *safe* point: after an opening bracket or after a complete
 * member or element. Containers open at that point are still open now: closing one would itself be a later
 * safe point. So their kinds are still on the stack.
 *
 * Strings are treated as bytes: other code checks UTF-8. */
#include "text/json/json_walk.h"

#include "base/err.h"

enum walk_state {
    WALK_VALUE,      /* a value must begin */
    WALK_FIRST_ITEM, /* after '[': a value or ']' */
    WALK_FIRST_KEY,  /* after '{': a key or '}' */
    WALK_KEY,        /* after ',' in an object */
    WALK_COLON,      /* after a key */
    WALK_AFTER,      /* after a value */
    WALK_STRING,     /* inside a string */
    WALK_ESCAPE,     /* after a backslash */
    WALK_UNICODE,    /* in the four digits of \u */
    WALK_LITERAL,    /* in true, false, null */
    WALK_MINUS,      /* number: after '-' */
    WALK_ZERO,       /* after a leading 0 */
    WALK_INTEGER,    /* in the digits before the point */
    WALK_POINT,      /* after '.' */
    WALK_FRACTION,   /* in the digits after it */
    WALK_E,          /* after e */
    WALK_E_SIGN,     /* after its sign */
    WALK_EXPONENT,   /* in its digits */
    WALK_END         /* complete */
};

static const char *const literals[] = {"true", "false", "null"};

static bool json_walk_is_digit(uint8_t c)
{
    return c >= '0' && c <= '9';
}

static bool json_walk_is_blank(uint8_t c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static void mark_safe(struct json_walk *walk)
{
    walk->safe_bytes = walk->n_bytes;
    walk->safe_depth = walk->depth;
}

/* The byte just counted completes a value. */
static enum json_walk_result end_value(struct json_walk *walk)
{
    walk->state = walk->depth == 0 ? WALK_END : WALK_AFTER;
    mark_safe(walk);
    return walk->depth == 0 ? JSON_WALK_DONE : JSON_WALK_MORE;
}

static enum json_walk_result json_walk_open(struct json_walk *walk, bool is_object)
{
    if (walk->depth == JSON_WALK_MAX_DEPTH)
        return JSON_WALK_DEEP;
    walk->is_object[walk->depth++] = is_object;
    walk->state = is_object ? WALK_FIRST_KEY : WALK_FIRST_ITEM;
    mark_safe(walk);
    return JSON_WALK_MORE;
}

static enum json_walk_result json_json_walk_close(struct json_walk *walk, bool is_object)
{
    if (walk->depth == 0 || walk->is_object[walk->depth - 1] != is_object)
        return JSON_WALK_BAD;
    walk->depth--;
    return end_value(walk);
}

static enum json_walk_result begin_string(struct json_walk *walk, bool is_key)
{
    walk->is_key = is_key;
    walk->state = WALK_STRING;
    return JSON_WALK_MORE;
}

static enum json_walk_result begin_value(struct json_walk *walk, uint8_t c)
{
    walk->n_values++;
    switch (c) {
    case '{':
        return json_walk_open(walk, true);
    case '[':
        return json_walk_open(walk, false);
    case '"':
        return begin_string(walk, false);
    case '-':
        walk->state = WALK_MINUS;
        return JSON_WALK_MORE;
    case '0':
        walk->state = WALK_ZERO;
        return JSON_WALK_MORE;
    default:
        break;
    }
    if (json_walk_is_digit(c)) {
        walk->state = WALK_INTEGER;
        return JSON_WALK_MORE;
    }
    for (uint8_t i = 0; i < 3; i++) {
        if (c == (uint8_t)literals[i][0]) {
            walk->literal = i;
            walk->digits = 1;
            walk->state = WALK_LITERAL;
            return JSON_WALK_MORE;
        }
    }
    return JSON_WALK_BAD;
}

static enum json_walk_result after_value(struct json_walk *walk, uint8_t c)
{
    if (json_walk_is_blank(c))
        return JSON_WALK_MORE;
    if (c == '}' || c == ']')
        return json_json_walk_close(walk, c == '}');
    if (c != ',' || walk->depth == 0)
        return JSON_WALK_BAD;
    walk->state = walk->is_object[walk->depth - 1] ? WALK_KEY : WALK_VALUE;
    return JSON_WALK_MORE;
}

static enum json_walk_result in_string(struct json_walk *walk, uint8_t c)
{
    switch ((enum walk_state)walk->state) {
    case WALK_ESCAPE:
        if (c == 'u') {
            walk->digits = 4;
            walk->state = WALK_UNICODE;
            return JSON_WALK_MORE;
        }
        walk->state = WALK_STRING;
        return c == '"' || c == '\\' || c == '/' || c == 'b' || c == 'f' || c == 'n' || c == 'r' || c == 't'
                   ? JSON_WALK_MORE
                   : JSON_WALK_BAD;
    case WALK_UNICODE:
        if (!json_walk_is_digit(c) && !(c >= 'a' && c <= 'f') && !(c >= 'A' && c <= 'F'))
            return JSON_WALK_BAD;
        if (--walk->digits == 0)
            walk->state = WALK_STRING;
        return JSON_WALK_MORE;
    default:
        break;
    }
    if (c < ' ')
        return JSON_WALK_BAD;
    if (c == '\\') {
        walk->state = WALK_ESCAPE;
    } else if (c == '"') {
        if (!walk->is_key)
            return end_value(walk);
        walk->state = WALK_COLON;
    }
    return JSON_WALK_MORE;
}

/* A byte that does not continue the number ends it. The number was complete before this byte. */
static enum json_walk_result end_number(struct json_walk *walk, uint8_t c)
{
    if (walk->depth == 0) {
        walk->state = WALK_END;
        return json_walk_is_blank(c) ? JSON_WALK_DONE : JSON_WALK_BAD;
    }
    walk->state = WALK_AFTER;
    walk->safe_bytes = walk->n_bytes - 1;
    walk->safe_depth = walk->depth;
    return after_value(walk, c);
}

static enum json_walk_result in_number(struct json_walk *walk, uint8_t c)
{
    enum walk_state state = (enum walk_state)walk->state;
    bool may_point = state == WALK_ZERO || state == WALK_INTEGER;
    bool may_e = may_point || state == WALK_FRACTION;

    if (json_walk_is_digit(c)) {
        if (state == WALK_ZERO)
            return JSON_WALK_BAD;
        if (state == WALK_MINUS)
            walk->state = c == '0' ? WALK_ZERO : WALK_INTEGER;
        else if (state == WALK_POINT)
            walk->state = WALK_FRACTION;
        else if (state == WALK_E || state == WALK_E_SIGN)
            walk->state = WALK_EXPONENT;
        return JSON_WALK_MORE;
    }
    if (may_point && c == '.')
        walk->state = WALK_POINT;
    else if (may_e && (c == 'e' || c == 'E'))
        walk->state = WALK_E;
    else if (state == WALK_E && (c == '+' || c == '-'))
        walk->state = WALK_E_SIGN;
    else
        return may_e || state == WALK_EXPONENT ? end_number(walk, c) : JSON_WALK_BAD;
    return JSON_WALK_MORE;
}

static enum json_walk_result in_literal(struct json_walk *walk, uint8_t c)
{
    const char *text = literals[walk->literal];

    if (c != (uint8_t)text[walk->digits])
        return JSON_WALK_BAD;
    walk->digits++;
    return text[walk->digits] == '\0' ? end_value(walk) : JSON_WALK_MORE;
}

static enum json_walk_result between_values(struct json_walk *walk, uint8_t c)
{
    if (json_walk_is_blank(c))
        return JSON_WALK_MORE;
    switch ((enum walk_state)walk->state) {
    case WALK_FIRST_ITEM:
        return c == ']' ? json_json_walk_close(walk, false) : begin_value(walk, c);
    case WALK_FIRST_KEY:
        if (c == '}')
            return json_json_walk_close(walk, true);
        return c == '"' ? begin_string(walk, true) : JSON_WALK_BAD;
    case WALK_KEY:
        return c == '"' ? begin_string(walk, true) : JSON_WALK_BAD;
    case WALK_COLON:
        walk->state = WALK_VALUE;
        return c == ':' ? JSON_WALK_MORE : JSON_WALK_BAD;
    default:
        return begin_value(walk, c);
    }
}

enum json_walk_result json_walk_byte(struct json_walk *walk, uint8_t c)
{
    walk->n_bytes++;
    switch ((enum walk_state)walk->state) {
    case WALK_VALUE:
    case WALK_FIRST_ITEM:
    case WALK_FIRST_KEY:
    case WALK_KEY:
    case WALK_COLON:
        return between_values(walk, c);
    case WALK_AFTER:
        return after_value(walk, c);
    case WALK_STRING:
    case WALK_ESCAPE:
    case WALK_UNICODE:
        return in_string(walk, c);
    case WALK_LITERAL:
        return in_literal(walk, c);
    case WALK_MINUS:
    case WALK_ZERO:
    case WALK_INTEGER:
    case WALK_POINT:
    case WALK_FRACTION:
    case WALK_E:
    case WALK_E_SIGN:
    case WALK_EXPONENT:
        return in_number(walk, c);
    case WALK_END:
        break;
    }
    return json_walk_is_blank(c) ? JSON_WALK_DONE : JSON_WALK_BAD;
}

/* The index of the first of eight bytes that is a control byte, a quote or a backslash; 8: none. */
static size_t first_special(const uint8_t *at)
{
    uint64_t eight = bytes_load8(at);

    return bytes_first_mark(bytes_mark_below(eight, ' ') | bytes_mark_below(eight ^ bytes_each('"'), 1) |
                            bytes_mark_below(eight ^ bytes_each('\\'), 1));
}

size_t json_walk_string(struct json_walk *walk, struct bytes text)
{
    size_t n = 0, more = 8;

    if (walk->state != WALK_STRING)
        return 0;
    for (; text.len_bytes - n >= 8 && more == 8; n += more)
        more = first_special(text.data + n);
    while (more == 8 && n < text.len_bytes && text.data[n] >= ' ' && text.data[n] != '"' &&
           text.data[n] != '\\')
        n++;
    walk->n_bytes += n;
    return n;
}

bool json_walk_is_in_string(const struct json_walk *walk)
{
    return walk->state == WALK_STRING || walk->state == WALK_ESCAPE || walk->state == WALK_UNICODE;
}

int json_walk_close(const struct json_walk *walk, struct bytes text, struct buf *out)
{
    if (walk->safe_bytes == 0)
        return E_FORMAT;
    buf_append(out, text.data, walk->safe_bytes);
    for (unsigned i = walk->safe_depth; i > 0; i--)
        buf_append_byte(out, walk->is_object[i - 1] ? '}' : ']');
    return out->is_bad ? E_NOMEM : 0;
}
