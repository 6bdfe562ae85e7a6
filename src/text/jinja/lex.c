/* SPDX-License-Identifier: Apache-2.0 */
/* Splits the source of a template into lexemes.
 *
 *     text {%- if x -%} text {{ y }} text {# aside #} {% raw %} {{ text }} {% endraw %}
 *     DATA BLOCK_BEGIN WORD WORD BLOCK_END DATA VARIABLE_BEGIN WORD VARIABLE_END DATA ...
 *
 * White space is removed here, as the reference does with trim_blocks and lstrip_blocks set. Before a block
 * tag or a comment, the blanks of its line are removed; after it, one line end. "-" removes all blanks on its
 * side, "+" keeps them. Every line end becomes "\n", and one line end at the very end is removed.
 *
 * There is one pass and no recursion. Brackets are counted, so the "}}" of a dict in a dict does not end the
 * tag. */
#include "text/jinja/ast_priv.h"

#include "base/err.h"
#include "base/str.h"

#include <string.h>

#define MAX_BRACKETS 256

struct lexer {
    struct arena *arena;
    struct fault *fault;
    const char *source; /* NUL-terminated */
    size_t len, at;
    uint32_t line;
    size_t counted; /* lines are counted up to here */
    struct lexeme *list;
    size_t n, cap;
    char brackets[MAX_BRACKETS]; /* open brackets */
    size_t n_brackets;
    int rc;
};

static void lex_fail(struct lexer *lexer, const char *what)
{
    if (lexer->rc == 0)
        lexer->rc = fault_set(lexer->fault, E_FORMAT, "line %u: %s", lexer->line, what);
    lexer->at = lexer->len;
}

static void count_lines(struct lexer *lexer, size_t upto)
{
    for (; lexer->counted < upto; lexer->counted++)
        lexer->line += lexer->source[lexer->counted] == '\n';
}

static void lex_emit(struct lexer *lexer, enum lexeme_kind kind, const char *text, size_t len)
{
    if (lexer->rc != 0)
        return;
    if (lexer->n == lexer->cap) {
        size_t cap = lexer->cap == 0 ? 256 : lexer->cap * 2;
        struct lexeme *list = arena_take(lexer->arena, cap * sizeof(*list));

        if (list == NULL) {
            lexer->rc = fault_set(lexer->fault, E_NOMEM, "out of memory");
            return;
        }
        if (lexer->n > 0)
            memcpy(list, lexer->list, lexer->n * sizeof(*list));
        lexer->list = list;
        lexer->cap = cap;
    }
    lexer->list[lexer->n++] = (struct lexeme){.kind = kind, .line = lexer->line, .text = bytes_of(text, len)};
}

static bool lex_is_blank(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r') || (c >= 0x1c && c <= 0x1f);
}

static bool lex_is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool lex_is_word(char c)
{
    return lex_is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
           (uint8_t)c >= 0x80;
}

static void lex_skip_blanks(struct lexer *lexer)
{
    while (lexer->at < lexer->len && lex_is_blank(lexer->source[lexer->at]))
        lexer->at++;
}

/* ---- tags and the white space around them ---- */

/* Skips the two closing characters of a tag or comment, which had this sign before them, and the white space
 * that the rules remove. */
static void end_tag(struct lexer *lexer, char sign, bool trims_line)
{
    lexer->at += 2;
    if (sign == '-')
        lex_skip_blanks(lexer);
    else if (sign != '+' && trims_line && lexer->source[lexer->at] == '\n')
        lexer->at++;
}

/* Matches the word ("raw" or "endraw") after "{%". Returns the offset behind it and its blanks, or 0. */
static size_t raw_begin(const struct lexer *lexer, size_t at, const char *word)
{
    while (lex_is_blank(lexer->source[at]))
        at++;
    if (strncmp(lexer->source + at, word, strlen(word)) != 0)
        return 0;
    at += strlen(word);
    while (lex_is_blank(lexer->source[at]))
        at++;
    return at;
}

/* Emits data [from, to), which stands before a tag with this sign. */
static void emit_data(struct lexer *lexer, size_t from, size_t to, char sign, bool strips_line)
{
    if (sign == '-') {
        while (to > from && lex_is_blank(lexer->source[to - 1]))
            to--;
    } else if (sign != '+' && strips_line) {
        size_t at = to;

        while (at > from && lex_is_blank(lexer->source[at - 1]) && lexer->source[at - 1] != '\n')
            at--;
        if (at == 0 || lexer->source[at - 1] == '\n')
            to = at;
    }
    if (to > from)
        lex_emit(lexer, LEX_DATA, lexer->source + from, to - from);
}

static char sign_at(const struct lexer *lexer, size_t at)
{
    char c = lexer->source[at];

    return c == '-' || c == '+' ? c : 0;
}

static void skip_comment(struct lexer *lexer, size_t from)
{
    const char *end = strstr(lexer->source + from, "#}");

    if (end == NULL) {
        lex_fail(lexer, "a comment has no end");
        return;
    }
    size_t at = (size_t)(end - lexer->source);
    lexer->at = at;
    end_tag(lexer, at > from ? sign_at(lexer, at - 1) : 0, true);
}

/* After {% raw %}: everything up to {% endraw %} is data. */
static void lex_raw(struct lexer *lexer)
{
    size_t from = lexer->at;

    for (const char *tag = lexer->source + from; (tag = strstr(tag, "{%")) != NULL; tag += 2) {
        size_t at = (size_t)(tag - lexer->source);
        char sign = sign_at(lexer, at + 2);
        size_t end = raw_begin(lexer, at + 2 + (sign != 0), "endraw");
        char end_sign = end == 0 ? 0 : sign_at(lexer, end);

        if (end == 0 || strncmp(lexer->source + end + (end_sign != 0), "%}", 2) != 0)
            continue;
        emit_data(lexer, from, at, sign, true);
        lexer->at = end + (end_sign != 0);
        end_tag(lexer, end_sign, true);
        return;
    }
    lex_fail(lexer, "{% raw %} has no {% endraw %}");
}

/* Reads a raw block if the tag begins one. */
static bool take_raw(struct lexer *lexer, size_t at)
{
    size_t end = raw_begin(lexer, at, "raw");
    bool is_stripping = end != 0 && lexer->source[end] == '-';

    if (end == 0 || strncmp(lexer->source + end + is_stripping, "%}", 2) != 0)
        return false;
    lexer->at = end + is_stripping;
    end_tag(lexer, is_stripping ? '-' : '+', false);
    lex_raw(lexer);
    return true;
}

static void lex_inside(struct lexer *lexer, bool is_variable);

static void lex_data(struct lexer *lexer)
{
    size_t from = lexer->at, at = from;

    while (at < lexer->len &&
           !(lexer->source[at] == '{' && at + 1 < lexer->len && strchr("%{#", lexer->source[at + 1]) != NULL))
        at++;
    if (at >= lexer->len) {
        emit_data(lexer, from, lexer->len, '+', false);
        lexer->at = lexer->len;
        return;
    }
    char kind = lexer->source[at + 1], sign = sign_at(lexer, at + 2);

    emit_data(lexer, from, at, sign, kind != '{');
    count_lines(lexer, at);
    lexer->at = at + 2 + (sign != 0);
    if (kind == '#') {
        skip_comment(lexer, lexer->at);
    } else if (kind == '{' || !take_raw(lexer, lexer->at)) {
        lex_emit(lexer, kind == '{' ? LEX_VARIABLE_BEGIN : LEX_BLOCK_BEGIN, lexer->source + at, 2);
        lex_inside(lexer, kind == '{');
    }
}

/* ---- inside a tag ---- */

static void take_octal(struct lexer *lexer, uint32_t *code)
{
    for (int i = 0; i < 2 && lexer->source[lexer->at] >= '0' && lexer->source[lexer->at] <= '7'; i++)
        *code = *code * 8 + (uint32_t)(lexer->source[lexer->at++] - '0');
}

static bool take_hex(struct lexer *lexer, unsigned digits, uint32_t *code)
{
    *code = 0;
    for (unsigned i = 0; i < digits; i++) {
        const char *hex = "0123456789abcdef";
        char c = lexer->source[lexer->at];
        const char *hit = c == 0 ? NULL : strchr(hex, c | 0x20);

        if (hit == NULL || c < '0')
            return false;
        *code = *code << 4 | (uint32_t)(hit - hex);
        lexer->at++;
    }
    return *code <= 0x10ffff;
}

/* Decodes after a backslash. Returns the number of bytes written to out. */
static size_t take_escape(struct lexer *lexer, uint8_t *out)
{
    static const char from[] = "\\'\"abfnrtv", to[] = "\\'\"\a\b\f\n\r\t\v";
    char c = lexer->source[lexer->at++];
    const char *hit = c == 0 ? NULL : strchr(from, c);
    uint32_t code;

    if (c == '\n')
        return 0;
    if (hit != NULL) {
        out[0] = (uint8_t)to[hit - from];
        return 1;
    }
    if (c >= '0' && c <= '7') {
        code = (uint32_t)(c - '0');
        take_octal(lexer, &code);
        return utf8_put(code, out);
    }
    if (c == 'x' || c == 'u' || c == 'U') {
        if (take_hex(lexer, c == 'x' ? 2 : c == 'u' ? 4 : 8, &code))
            return utf8_put(code >= 0xd800 && code <= 0xdfff ? 0xfffd : code, out);
        lex_fail(lexer, "an escape in a string is cut short");
        return 0;
    }
    out[0] = '\\'; /* unknown escape: backslash and character both stay */
    out[1] = (uint8_t)c;
    return 2;
}

static void lex_string(struct lexer *lexer)
{
    char quote = lexer->source[lexer->at++];
    size_t end = lexer->at, n = 0;

    while (end < lexer->len && lexer->source[end] != quote)
        end += lexer->source[end] == '\\' ? 2 : 1;
    if (end >= lexer->len) {
        lex_fail(lexer, "a string has no end");
        return;
    }
    uint8_t *text = arena_take(lexer->arena, end - lexer->at + 8);
    if (text == NULL) {
        lexer->rc = fault_set(lexer->fault, E_NOMEM, "out of memory");
        return;
    }
    while (lexer->at < end && lexer->rc == 0) {
        char c = lexer->source[lexer->at++];

        if (c == '\\')
            n += take_escape(lexer, text + n);
        else
            text[n++] = (uint8_t)c;
    }
    lex_emit(lexer, LEX_STRING, (const char *)text, n);
    lexer->at = end + 1;
}

/* The length of a number at at; *is_real_out: it has a fraction or an exponent. */
static size_t number_len(const char *text, bool *is_real_out)
{
    size_t n = 0;

    *is_real_out = false;
    if (text[0] == '0' && (text[1] == 'x' || text[1] == 'X' || text[1] == 'b' || text[1] == 'B' ||
                           text[1] == 'o' || text[1] == 'O')) {
        for (n = 2; lex_is_word(text[n]) && (uint8_t)text[n] < 0x80; n++)
            ;
        return n;
    }
    while (lex_is_digit(text[n]) || (text[n] == '_' && lex_is_digit(text[n + 1])))
        n++;
    if (text[n] == '.' && lex_is_digit(text[n + 1])) {
        *is_real_out = true;
        for (n++; lex_is_digit(text[n]) || (text[n] == '_' && lex_is_digit(text[n + 1])); n++)
            ;
    }
    if ((text[n] | 0x20) == 'e') {
        size_t at = n + 1 + (text[n + 1] == '-' || text[n + 1] == '+');

        if (lex_is_digit(text[at])) {
            *is_real_out = true;
            for (n = at; lex_is_digit(text[n]); n++)
                ;
        }
    }
    return n;
}

static void lex_number(struct lexer *lexer)
{
    const char *text = lexer->source + lexer->at;
    bool is_real;
    size_t len = number_len(text, &is_real);

    /* After a dot comes an index, never a fraction: a.0.1 */
    if (lexer->n > 0 && lexer->at > 0 && text[-1] == '.' && is_real) {
        for (len = 0; lex_is_digit(text[len]); len++)
            ;
        is_real = false;
    }
    lex_emit(lexer, is_real ? LEX_REAL : LEX_INTEGER, text, len);
    lexer->at += len;
}

static void track_bracket(struct lexer *lexer, char c)
{
    const char *close = strchr(")]}", c), *open = strchr("([{", c);

    if (c != 0 && open != NULL) {
        if (lexer->n_brackets == MAX_BRACKETS)
            lex_fail(lexer, "brackets nest too deep");
        else
            lexer->brackets[lexer->n_brackets++] = ")]}"[open - "([{"];
    } else if (c != 0 && close != NULL) {
        if (lexer->n_brackets == 0 || lexer->brackets[lexer->n_brackets - 1] != c)
            lex_fail(lexer, "a bracket closes that was not opened");
        else
            lexer->n_brackets--;
    }
}

static void lex_operator(struct lexer *lexer)
{
    static const char *const pairs[] = {"//", "**", "==", "!=", ">=", "<="};
    const char *text = lexer->source + lexer->at;

    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
        if (strncmp(text, pairs[i], 2) == 0) {
            lex_emit(lexer, LEX_OPERATOR, text, 2);
            lexer->at += 2;
            return;
        }
    }
    if (text[0] == 0 || strchr("+-/*%~[](){}><=.:|,;", text[0]) == NULL) {
        lex_fail(lexer, "a character that means nothing here");
        return;
    }
    track_bracket(lexer, text[0]);
    lex_emit(lexer, LEX_OPERATOR, text, 1);
    lexer->at++;
}

/* Reads the end of the tag, if it is here. */
static bool take_end(struct lexer *lexer, bool is_variable)
{
    char sign = sign_at(lexer, lexer->at);

    if (lexer->n_brackets > 0 || (is_variable && sign == '+'))
        return false;
    if (strncmp(lexer->source + lexer->at + (sign != 0), is_variable ? "}}" : "%}", 2) != 0)
        return false;
    lexer->at += sign != 0;
    lex_emit(lexer, is_variable ? LEX_VARIABLE_END : LEX_BLOCK_END, lexer->source + lexer->at, 2);
    end_tag(lexer, sign, !is_variable);
    return true;
}

static void lex_inside(struct lexer *lexer, bool is_variable)
{
    lexer->n_brackets = 0;
    while (lexer->rc == 0) {
        lex_skip_blanks(lexer);
        count_lines(lexer, lexer->at);
        if (lexer->at >= lexer->len) {
            lex_fail(lexer, "a tag has no end");
            return;
        }
        char c = lexer->source[lexer->at];
        if (take_end(lexer, is_variable))
            return;
        if (c == '\'' || c == '"') {
            lex_string(lexer);
        } else if (lex_is_digit(c)) {
            lex_number(lexer);
        } else if (lex_is_word(c)) {
            size_t from = lexer->at;

            while (lex_is_word(lexer->source[lexer->at]))
                lexer->at++;
            lex_emit(lexer, LEX_WORD, lexer->source + from, lexer->at - from);
        } else {
            lex_operator(lexer);
        }
    }
}

/* ---- the whole template ---- */

/* Copies the source with "\n" for every line end, without the last one. */
static int lex_normalise(struct lexer *lexer, struct bytes source)
{
    char *text = arena_take(lexer->arena, source.len_bytes + 4); /* room for look-ahead behind the end */
    size_t n = 0;

    if (text == NULL)
        return fault_set(lexer->fault, E_NOMEM, "out of memory");
    for (size_t i = 0; i < source.len_bytes; i++) {
        char c = (char)source.data[i];

        if (c == 0)
            return fault_set(lexer->fault, E_FORMAT, "the template holds a NUL byte");
        if (c == '\r' && i + 1 < source.len_bytes && source.data[i + 1] == '\n')
            continue;
        text[n++] = c == '\r' ? '\n' : c;
    }
    if (n > 0 && text[n - 1] == '\n')
        n--;
    text[n] = '\0';
    lexer->source = text;
    lexer->len = n;
    return 0;
}

int template_lex(struct arena *arena, struct bytes source, struct fault *fault, struct lexeme **out)
{
    struct lexer lexer = {.arena = arena, .fault = fault, .line = 1};
    int rc = lex_normalise(&lexer, source);

    if (rc != 0)
        return rc;
    while (lexer.at < lexer.len && lexer.rc == 0) {
        lex_data(&lexer);
        count_lines(&lexer, lexer.at);
    }
    lex_emit(&lexer, LEX_END, "", 0);
    *out = lexer.list;
    return lexer.rc;
}
