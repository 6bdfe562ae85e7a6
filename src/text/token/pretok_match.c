/* SPDX-License-Identifier: Apache-2.0 */
/* The patterns of the pre-tokenisers, as code.
 *
 * Each function implements the pattern at its prototype (pretok_priv.h); pretok_passes.c has more of them. It returns the match of a regular
 * expression engine at one place: alternatives in their order, repetitions as long as possible. Where an
 * engine would backtrack, the code computes the result in advance.
 *
 * \p{..} are Unicode's general categories (libutf8proc), \s is the property White_Space. A byte that is not
 * valid UTF-8 counts as U+FFFD, which is a symbol. */
#include "text/token/pretok_priv.h"

#include "base/check.h"
#include "base/str.h"

#include <utf8proc.h>

enum char_class { CLASS_LETTER, CLASS_NUMBER, CLASS_SPACE, CLASS_OTHER, CLASS_END };

struct peek { /* the character at an offset */
    uint32_t code;
    size_t end; /* where the next character begins */
    enum char_class class;
};

/* ---- characters ---- */

static bool is_wide_space(uint32_t code)
{
    return code == 0x85 || code == 0xa0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200a) ||
           code == 0x2028 || code == 0x2029 || code == 0x202f || code == 0x205f || code == 0x3000;
}

static unsigned category_of(uint32_t code)
{
    return (unsigned)utf8proc_category((utf8proc_int32_t)code);
}

static inline bool is_ascii_letter(uint32_t code)
{
    return (code | 0x20) >= 'a' && (code | 0x20) <= 'z';
}

#define L CLASS_LETTER
#define N CLASS_NUMBER
#define S CLASS_SPACE
#define O CLASS_OTHER
static const uint8_t ascii_classes[128] = {
    O, O, O, O, O, O, O, O, O, S, S, S, S, S, O, O,
    O, O, O, O, O, O, O, O, O, O, O, O, O, O, O, O, /* controls */
    S, O, O, O, O, O, O, O, O, O, O, O, O, O, O, O,
    N, N, N, N, N, N, N, N, N, N, O, O, O, O, O, O, /* up to ? */
    O, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L,
    L, L, L, L, L, L, L, L, L, L, L, O, O, O, O, O, /* @ to _ */
    O, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L,
    L, L, L, L, L, L, L, L, L, L, L, O, O, O, O, O, /* from ` on */
};
#undef L
#undef N
#undef S
#undef O

static inline enum char_class ascii_class(uint32_t code)
{
    return (enum char_class)ascii_classes[code];
}

static enum char_class class_of(uint32_t code)
{
    if (code < 0x80)
        return ascii_class(code);
    if (is_wide_space(code))
        return CLASS_SPACE;

    unsigned category = category_of(code);
    if (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO)
        return CLASS_LETTER;
    if (category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO)
        return CLASS_NUMBER;
    return CLASS_OTHER;
}

static struct peek look_wide(struct bytes text, size_t at)
{
    size_t len_bytes;
    uint32_t code = utf8_next(text, at, &len_bytes);

    return (struct peek){.code = code, .end = at + len_bytes, .class = class_of(code)};
}

/* Nearly all characters are ASCII, so this part is inlined at each call. */
static inline __attribute__((always_inline)) struct peek pretok_match_look(struct bytes text, size_t at)
{
    if (at >= text.len_bytes)
        return (struct peek){.end = at, .class = CLASS_END};
    if (text.data[at] < 0x80)
        return (struct peek){.code = text.data[at], .end = at + 1, .class = ascii_class(text.data[at])};
    return look_wide(text, at);
}

static bool is_newline(uint32_t code)
{
    return code == '\r' || code == '\n';
}

bool pretok_is_letter(uint32_t code)
{
    return class_of(code) == CLASS_LETTER;
}

bool pretok_is_mark(uint32_t code)
{
    unsigned category = code < 0x300 ? 0 : category_of(code);

    return category >= UTF8PROC_CATEGORY_MN && category <= UTF8PROC_CATEGORY_ME;
}

static bool is_letter_or_mark(uint32_t code)
{
    return pretok_is_letter(code) || pretok_is_mark(code);
}

static bool is_punctuation(uint32_t code)
{
    unsigned category = category_of(code);

    return category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO;
}

static bool is_punctuation_or_symbol(uint32_t code)
{
    unsigned category = category_of(code);

    return category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_SO;
}

static bool is_small(uint32_t code)
{
    return code < 0x80 ? code >= 'a' && code <= 'z' : category_of(code) == UTF8PROC_CATEGORY_LL;
}

static bool is_capital(uint32_t code)
{
    unsigned category;

    if (code < 0x80)
        return code >= 'A' && code <= 'Z';
    category = category_of(code);
    return category == UTF8PROC_CATEGORY_LU || category == UTF8PROC_CATEGORY_LT;
}

/* ---- runs ---- */

/* The index of the first of eight bytes whose highest bit is clear; 8: all are set. */
static inline size_t first_without(uint64_t marks)
{
    return bytes_first_mark(~marks & bytes_each(0x80));
}

/* A CPU cannot predict where a word ends, and a mispredicted branch costs more than testing eight bytes
 * together. The sums carry into no other byte, because the highest bit of each byte is cleared before the
 * addition. */
static size_t ascii_letters_end(struct bytes text, size_t at)
{
    while (text.len_bytes - at >= 8) {
        uint64_t eight = bytes_load8(text.data + at);
        uint64_t small = (eight & bytes_each(0x7f)) | bytes_each(0x20);
        size_t n =
            first_without((small + bytes_each(0x80 - 'a')) & ~(small + bytes_each(0x7f - 'z')) & ~eight);

        at += n;
        if (n < 8)
            return at;
    }
    while (at < text.len_bytes && is_ascii_letter(text.data[at]))
        at++;
    return at;
}

static size_t blanks_end(struct bytes text, size_t at)
{
    while (text.len_bytes - at >= 8) {
        size_t n = first_without(bytes_mark_zero(bytes_load8(text.data + at) ^ bytes_each(' ')));

        at += n;
        if (n < 8)
            return at;
    }
    while (at < text.len_bytes && text.data[at] == ' ')
        at++;
    return at;
}

/* The end of the run of letters that continues at this offset. */
static size_t letters_end(struct bytes text, size_t at)
{
    for (;;) {
        at = ascii_letters_end(text, at);
        if (at >= text.len_bytes || text.data[at] < 0x80)
            return at;
        struct peek here = look_wide(text, at);
        if (here.class != CLASS_LETTER)
            return at;
        at = here.end;
    }
}

/* The end of the run of this class that begins at this offset, at most max characters. */
static size_t pretok_match_run_end(struct bytes text, size_t at, enum char_class class, size_t max)
{
    struct peek here;

    for (; max > 0 && (here = pretok_match_look(text, at)).class == class; max--)
        at = here.end;
    return at;
}

size_t pretok_set_end(struct bytes text, size_t at, bool (*is_in)(uint32_t code))
{
    for (struct peek here; (here = pretok_match_look(text, at)).class != CLASS_END && is_in(here.code);)
        at = here.end;
    return at;
}

size_t pretok_spaced_set_end(struct bytes text, size_t at, bool (*is_in)(uint32_t code))
{
    struct peek here = pretok_match_look(text, at);

    if (here.class == CLASS_SPACE) {
        size_t end = pretok_set_end(text, here.end, is_in);
        if (end > here.end)
            return end;
    }
    return pretok_set_end(text, at, is_in);
}

static size_t newlines_end(struct bytes text, size_t at, bool takes_slash)
{
    while (at < text.len_bytes && (is_newline(text.data[at]) || (takes_slash && text.data[at] == '/')))
        at++;
    return at;
}

/* 's 't 'm 'd 're 've 'll: returns its end, or at when there is none. U+017F is an s when case is ignored. */
static size_t contraction_end(struct bytes text, size_t at, bool ignores_case)
{
    uint8_t letters[2] = {0, 0};
    size_t ends[2] = {at, at};

    if (at >= text.len_bytes || text.data[at] != '\'')
        return at;
    for (size_t i = 0, from = at + 1; i < 2; i++, from = ends[i - 1]) {
        struct peek here = pretok_match_look(text, from);

        if (here.class != CLASS_LETTER)
            break;
        if (ignores_case && here.code == 0x17f)
            here.code = 's';
        else if (ignores_case && here.code < 0x80)
            here.code |= 0x20;
        letters[i] = here.code < 0x80 ? (uint8_t)here.code : 0;
        ends[i] = here.end;
    }
    if (letters[0] == 's' || letters[0] == 't' || letters[0] == 'm' || letters[0] == 'd')
        return ends[0];
    if (((letters[0] == 'r' || letters[0] == 'v') && letters[1] == 'e') ||
        (letters[0] == 'l' && letters[1] == 'l'))
        return ends[1];
    return at;
}

/* keeps_newlines: \s*[\r\n]+ is tried first. Then \s+(?!\S)|\s+. */
static size_t whitespace_end(struct bytes text, size_t at, bool keeps_newlines)
{
    size_t last = at, newline_end = at, end = at;
    struct peek here;

    while ((here = pretok_match_look(text, end)).class == CLASS_SPACE) {
        last = end;
        end = here.end;
        if (is_newline(here.code)) {
            newline_end = end;
        } else if (here.code == ' ' && text.len_bytes - end > 1 && text.data[end] == ' ') {
            end = blanks_end(text, end);
            last = end - 1;
        }
    }
    if (keeps_newlines && newline_end > at)
        return newline_end;
    if (here.class == CLASS_END || last == at)
        return end;
    return last;
}

size_t trailing_space(struct bytes text, size_t from)
{
    size_t begin = text.len_bytes;

    while (begin > from) {
        size_t at = begin - 1;

        while (at > from && (text.data[at] & 0xc0) == 0x80)
            at--;
        struct peek here = pretok_match_look(text, at);
        if (here.class != CLASS_SPACE || here.end != begin)
            break;
        begin = at;
    }
    return begin;
}

/* ---- patterns that cut a whole text ---- */

size_t match_gpt2(struct bytes text, size_t at, unsigned param)
{
    struct peek here = pretok_match_look(text, at);

    (void)param;
    if (here.code == '\'') {
        size_t end = contraction_end(text, at, false);
        if (end > at)
            return end;
    }

    struct peek word = here.code == ' ' ? pretok_match_look(text, here.end) : here;
    if (word.class == CLASS_SPACE || word.class == CLASS_END)
        return whitespace_end(text, at, false);
    return word.class == CLASS_LETTER ? letters_end(text, word.end)
                                      : pretok_match_run_end(text, word.end, word.class, SIZE_MAX);
}

/* takes_newlines: line ends continue a run of other characters. */
static inline size_t llama3_match(struct bytes text, size_t at, unsigned n_digits, bool takes_newlines)
{
    struct peek here = pretok_match_look(text, at);

    if (here.code == '\'') {
        size_t end = contraction_end(text, at, true);
        if (end > at)
            return end;
    }
    if (here.class == CLASS_LETTER)
        return letters_end(text, here.end);
    if (here.class == CLASS_NUMBER)
        return pretok_match_run_end(text, here.end, CLASS_NUMBER, n_digits - 1);

    struct peek next = pretok_match_look(text, here.end);
    if (!is_newline(here.code) && next.class == CLASS_LETTER)
        return letters_end(text, next.end);

    struct peek other = here.code == ' ' ? next : here;
    if (other.class != CLASS_OTHER)
        return whitespace_end(text, at, true);
    size_t end = pretok_match_run_end(text, other.end, CLASS_OTHER, SIZE_MAX);
    return takes_newlines ? newlines_end(text, end, false) : end;
}

size_t match_llama3(struct bytes text, size_t at, unsigned param)
{
    return llama3_match(text, at, param, true);
}

size_t match_seed(struct bytes text, size_t at, unsigned param)
{
    return llama3_match(text, at, param, false);
}

/* \p{L}\p{M}*(?: ?\p{L}\p{M}*)*, behind its first letter: words with single blanks between them. */
static size_t phrase_end(struct bytes text, size_t end)
{
    for (;;) {
        end = pretok_set_end(text, end, is_letter_or_mark);
        struct peek blank = pretok_match_look(text, end), next = pretok_match_look(text, blank.end);

        if (blank.code != ' ' || next.class != CLASS_LETTER)
            return end;
        end = next.end;
    }
}

size_t match_phrases(struct bytes text, size_t at, unsigned param)
{
    struct peek here = pretok_match_look(text, at);

    if (here.code == '\'') {
        size_t end = contraction_end(text, at, true);
        if (end > at)
            return end;
    }
    if (here.class == CLASS_LETTER)
        return phrase_end(text, here.end);
    if (here.class == CLASS_NUMBER)
        return pretok_match_run_end(text, here.end, CLASS_NUMBER, param - 1);

    struct peek next = pretok_match_look(text, here.end);
    if (!is_newline(here.code) && next.class == CLASS_LETTER)
        return phrase_end(text, next.end);

    struct peek other = here.code == ' ' ? next : here;
    if (other.class != CLASS_OTHER)
        return whitespace_end(text, at, true);
    size_t end = pretok_match_run_end(text, other.end, CLASS_OTHER, SIZE_MAX);
    return end < text.len_bytes && is_newline(text.data[end]) ? end + 1 : end;
}

/* True for a character that is no letter, number, mark or whitespace. */
static bool is_plain_other(uint32_t code)
{
    return class_of(code) == CLASS_OTHER && !pretok_is_mark(code);
}

size_t match_qwen35(struct bytes text, size_t at, unsigned param)
{
    struct peek here = pretok_match_look(text, at);

    if (here.code == '\'') {
        size_t end = contraction_end(text, at, true);
        if (end > at)
            return end;
    }
    if (here.class == CLASS_NUMBER)
        return pretok_match_run_end(text, here.end, CLASS_NUMBER, param - 1);
    if (is_letter_or_mark(here.code))
        return pretok_set_end(text, here.end, is_letter_or_mark);

    if (!is_newline(here.code)) {
        size_t end = pretok_set_end(text, here.end, is_letter_or_mark);
        if (end > here.end)
            return end;
    }
    size_t from = here.code == ' ' ? here.end : at, end = pretok_set_end(text, from, is_plain_other);
    return end > from ? newlines_end(text, end, false) : whitespace_end(text, at, true);
}

/* [U]*[W]+, else [U]+[W]*: returns its end, or at.
 *
 * Capitals are in U only, small letters in W only, other letters in both. U takes as many characters as it
 * can. If a small letter follows, W continues from there. If not, U must give back its last character that is
 * no capital, and all behind it; W can take only the first of these. If there is no such character, the
 * second alternative takes the capitals.  has_han false: U and W are without Han. */
static size_t cased_end(struct bytes text, size_t at, bool has_han)
{
    size_t end = at, last_both_end = at;
    struct peek here;

    for (; (here = pretok_match_look(text, end)).class != CLASS_END; end = here.end) {
        if (is_capital(here.code))
            continue;
        if (is_small(here.code) || !is_letter_or_mark(here.code) || (!has_han && pretok_is_han(here.code)))
            break;
        last_both_end = here.end;
    }
    if (here.class != CLASS_END && is_small(here.code)) {
        while ((here = pretok_match_look(text, end)).class != CLASS_END && is_letter_or_mark(here.code) &&
               !is_capital(here.code) && (has_han || !pretok_is_han(here.code)))
            end = here.end;
        return end;
    }
    return last_both_end > at ? last_both_end : end;
}

/* Returns where [^\r\n\p{L}\p{N}]?([U]*[W]+|[U]+[W]*) ends. An engine tries the first alternative with the
 * character before and without it, then the second alternative in the same way. */
static size_t cased_word_end(struct bytes text, size_t at, bool has_han)
{
    struct peek here = pretok_match_look(text, at);

    if (here.class == CLASS_NUMBER || here.class == CLASS_END || is_newline(here.code))
        return at;
    if (here.class == CLASS_LETTER)
        return cased_end(text, at, has_han);

    size_t end = cased_end(text, here.end, has_han);
    if (!pretok_is_mark(here.code))
        return end > here.end ? end : at;
    /* A mark can be the character before the word or the word's first character. As the character before it
     * wins, unless only capitals follow: then the first alternative matches the mark alone. */
    struct peek last = {.code = 0};
    for (size_t k = here.end; k < end; k = last.end) {
        last = pretok_match_look(text, k);
        if (!is_capital(last.code))
            return end;
    }
    return here.end;
}

/* What follows the alternatives for words. */
static size_t cased_rest_end(struct bytes text, size_t at, unsigned n_digits, bool takes_slash)
{
    struct peek here = pretok_match_look(text, at);

    if (here.class == CLASS_NUMBER)
        return pretok_match_run_end(text, here.end, CLASS_NUMBER, n_digits - 1);

    struct peek other = here.code == ' ' ? pretok_match_look(text, here.end) : here;
    if (other.class != CLASS_OTHER)
        return whitespace_end(text, at, true);
    return newlines_end(text, pretok_match_run_end(text, other.end, CLASS_OTHER, SIZE_MAX), takes_slash);
}

size_t match_cased(struct bytes text, size_t at, unsigned param)
{
    size_t end = cased_word_end(text, at, true);

    return end > at ? contraction_end(text, end, true) : cased_rest_end(text, at, param, true);
}

size_t match_tekken(struct bytes text, size_t at, unsigned param)
{
    size_t end = cased_word_end(text, at, true);

    return end > at ? end : cased_rest_end(text, at, param, true);
}

size_t match_kimi(struct bytes text, size_t at, unsigned param)
{
    size_t end = pretok_set_end(text, at, pretok_is_han);

    if (end > at)
        return end;
    end = cased_word_end(text, at, false);
    return end > at ? contraction_end(text, end, true) : cased_rest_end(text, at, param, false);
}

size_t match_deepseek3(struct bytes text, size_t at, unsigned param)
{
    struct peek here = pretok_match_look(text, at), next = pretok_match_look(text, here.end);

    (void)param;
    if (here.code < 0x80 && next.code < 0x80 && here.class == CLASS_OTHER && here.code > ' ' &&
        here.code != 0x7f && next.class == CLASS_LETTER) {
        size_t end = here.end;
        while (end < text.len_bytes && text.data[end] < 0x80 && is_ascii_letter(text.data[end]))
            end++;
        return end;
    }
    if (is_letter_or_mark(here.code))
        return pretok_set_end(text, here.end, is_letter_or_mark);
    bool is_graphic = is_punctuation_or_symbol(here.code);
    if (!is_graphic && !is_newline(here.code) && next.class != CLASS_END && is_letter_or_mark(next.code))
        return pretok_set_end(text, next.end, is_letter_or_mark);

    size_t from = here.code == ' ' ? here.end : at,
           end = pretok_set_end(text, from, is_punctuation_or_symbol);
    if (end > from)
        return newlines_end(text, end, false);
    return here.class == CLASS_SPACE ? whitespace_end(text, at, true) : at;
}

/* ---- patterns that are one of several passes ---- */

size_t match_numbers(struct bytes text, size_t at, unsigned param)
{
    return pretok_match_run_end(text, at, CLASS_NUMBER, param == 0 ? SIZE_MAX : param);
}

size_t match_letters(struct bytes text, size_t at, unsigned param)
{
    (void)param;
    return pretok_spaced_set_end(text, at, pretok_is_letter);
}

size_t match_punctuation(struct bytes text, size_t at, unsigned param)
{
    (void)param;
    return pretok_spaced_set_end(text, at, is_punctuation);
}

static bool is_falcon_punct(uint32_t code)
{
    return code < 0x80 ? code > ' ' && code < 0x7f && ascii_class(code) == CLASS_OTHER : is_punctuation(code);
}

size_t match_falcon_punct(struct bytes text, size_t at, unsigned param)
{
    (void)param;
    return pretok_set_end(text, at, is_falcon_punct);
}

static bool is_kana_han(uint32_t code)
{
    return (code >= 0x4e00 && code <= 0x9fa5) || (code >= 0x3040 && code <= 0x30ff);
}

size_t match_kana_han(struct bytes text, size_t at, unsigned param)
{
    (void)param;
    return pretok_set_end(text, at, is_kana_han);
}
