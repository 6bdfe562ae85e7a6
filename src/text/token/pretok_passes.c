/* SPDX-License-Identifier: Apache-2.0 */
/* Patterns that are one of several passes, as code (see pretok_match.c).
 *
 * Two passes cut a number into groups of three digits that are counted from its end, as in 1 234 567. The first
 * pass matches a number as a whole, the second cuts it:
 *
 *     text                     a 1234567 12b
 *     numbers                  a |1234567| 12b     pass 1: \d+\b
 *     groups of each           a |1|234|567| 12b   pass 2
 *
 * A match in pass 2 must not look at the whole number each time. The number's first group is the one that no digit
 * precedes, and only for this group pass 2 counts the digits. */
#include "text/token/pretok_priv.h"

#include "base/check.h"
#include "base/str.h"

#include <utf8proc.h>

size_t match_newline(struct bytes text, size_t at, unsigned param)
{
    (void)param;
    return at < text.len_bytes && (text.data[at] == '\r' || text.data[at] == '\n') ? at + 1 : at;
}

size_t match_three_digits(struct bytes text, size_t at, unsigned param)
{
    (void)param;
    for (size_t i = at; i < at + 3; i++) {
        if (i >= text.len_bytes || text.data[i] < '0' || text.data[i] > '9')
            return at;
    }
    return at + 3;
}

/* ---- groups of three digits ---- */

static unsigned pretok_passes_category(uint32_t code)
{
    return (unsigned)utf8proc_category((utf8proc_int32_t)code);
}

/* \d, the category Nd */
static bool is_digit(uint32_t code)
{
    return code < 0x80 ? code >= '0' && code <= '9' : pretok_passes_category(code) == UTF8PROC_CATEGORY_ND;
}

/* \w as Oniguruma, the engine of the published tokenizers, defines it: letters, marks, digits, numbers that are
 * letters, connectors, letters in circles and squares, and of other numbers only those of Latin-1. */
static bool is_word(uint32_t code)
{
    unsigned category = pretok_passes_category(code);

    return pretok_is_letter(code) || pretok_is_mark(code) || category == UTF8PROC_CATEGORY_ND ||
           category == UTF8PROC_CATEGORY_NL || category == UTF8PROC_CATEGORY_PC ||
           (category == UTF8PROC_CATEGORY_NO && code < 0x100) || (code >= 0x24b6 && code <= 0x24e9) ||
           (code >= 0x1f130 && code <= 0x1f149) || (code >= 0x1f150 && code <= 0x1f169) ||
           (code >= 0x1f170 && code <= 0x1f189);
}

/* The character that ends at this offset; 0: there is none. */
static uint32_t code_before(struct bytes text, size_t at)
{
    size_t begin = at, len_bytes = 0;

    do {
        if (begin == 0 || at - begin == 4)
            return 0;
        begin--;
    } while ((text.data[begin] & 0xc0) == 0x80);
    uint32_t code = utf8_next(text, begin, &len_bytes);
    return len_bytes == at - begin ? code : 0;
}

static uint32_t code_at(struct bytes text, size_t at)
{
    size_t len_bytes;

    return at < text.len_bytes ? utf8_next(text, at, &len_bytes) : 0;
}

size_t match_digit_run(struct bytes text, size_t at, unsigned param)
{
    (void)param;
    if (is_digit(code_before(text, at)))
        return at;
    size_t end = pretok_set_end(text, at, is_digit);
    return is_word(code_at(text, end)) ? at : end;
}

/* The first n digits from this offset, which are there. */
static size_t digits_end(struct bytes text, size_t at, size_t n)
{
    for (size_t len_bytes; n > 0; n--, at += len_bytes)
        utf8_next(text, at, &len_bytes);
    return at;
}

/* \p{N} */
static bool is_numeral(uint32_t code)
{
    unsigned category = pretok_passes_category(code);

    return category == UTF8PROC_CATEGORY_ND || category == UTF8PROC_CATEGORY_NL ||
           category == UTF8PROC_CATEGORY_NO;
}

/* A piece of the pass before ends with a digit only if all of it is a number. */
size_t match_digit_group(struct bytes text, size_t at, unsigned param)
{
    bool (*const is_in)(uint32_t) = param ? is_numeral : is_digit;
    size_t n = 0;

    if (!is_in(code_before(text, text.len_bytes)))
        return at;
    if (!is_in(code_before(text, at)))
        for (size_t i = at; i < text.len_bytes; i = digits_end(text, i, 1))
            n++;
    return digits_end(text, at, n % 3 == 0 ? 3 : n % 3);
}

/* A number may hold numerals that are no digits. Then it has several runs of digits, each with groups of its own. A
 * piece that begins behind a digit begins with a group. */
size_t match_thousands(struct bytes text, size_t at, unsigned param)
{
    bool is_within = is_digit(code_before(text, at));
    size_t end = at;

    (void)param;
    if (!is_numeral(code_before(text, text.len_bytes)))
        return at;
    for (;;) {
        size_t n = 0, first;

        while (end < text.len_bytes && !is_digit(code_at(text, end)))
            end = digits_end(text, end, 1);
        if (end == text.len_bytes)
            return end;
        for (size_t i = end; is_digit(code_at(text, i)) && !(is_within && n > 3); i = digits_end(text, i, 1))
            n++;
        if (!is_within && n % 3 == 0 && end > at)
            return end;
        first = is_within ? 3 : n < 3 ? n : n % 3 == 0 ? 3 : n % 3;
        end = digits_end(text, end, first);
        if (n > first)
            return end;
        is_within = false;
    }
}

/* ---- sets ---- */

size_t match_deepseek_letters(struct bytes text, size_t at, unsigned param)
{
    (void)param;
    return pretok_spaced_set_end(text, at, pretok_is_cased);
}

static bool is_deepseek_punct(uint32_t code)
{
    return (code >= '!' && code <= '/') || (code >= ':' && code <= '~') ||
           (code >= 0xff01 && code <= 0xff0f) || (code >= 0xff1a && code <= 0xff5e) ||
           (code >= 0x2018 && code <= 0x201f) || (code >= 0x3000 && code <= 0x3002);
}

size_t match_deepseek_punct(struct bytes text, size_t at, unsigned param)
{
    (void)param;
    return pretok_spaced_set_end(text, at, is_deepseek_punct);
}

static bool is_deepseek_cjk(uint32_t code)
{
    return (code >= 0x800 && code <= 0x9fa5) || (code >= 0xac00 && code <= 0xd7ff);
}

size_t match_deepseek_cjk(struct bytes text, size_t at, unsigned param)
{
    (void)param;
    return pretok_set_end(text, at, is_deepseek_cjk);
}

static bool is_afmoe_script(uint32_t code)
{
    static const struct {
        uint32_t first, last;
    } RANGES[] = {{0x4e00, 0x9fff}, {0x3400, 0x4dbf}, {0xf900, 0xfaff}, {0x3040, 0x30ff}, {0xff65, 0xff9f},
                  {0x2f00, 0x2fdf}, {0x0e40, 0x0eff}, {0x1780, 0x17ff}, {0x1000, 0x109f}, {0xaa60, 0xaa7f},
                  {0xa9e0, 0xa9ff}, {0xac00, 0xd7af}, {0x1100, 0x11ff}};

    for (size_t i = 0; i < ARRAY_LEN(RANGES); i++)
        if (code >= RANGES[i].first && code <= RANGES[i].last)
            return true;
    return false;
}

size_t match_afmoe_scripts(struct bytes text, size_t at, unsigned param)
{
    (void)param;
    return pretok_set_end(text, at, is_afmoe_script);
}

static bool is_hangul(uint32_t code)
{
    return (code >= 0xac00 && code <= 0xd7a3) || (code >= 0x3131 && code <= 0x318e);
}

/* ! ... quotation marks, a dash, : ; , and the blocks of CJK symbols and compatibility forms */
static bool is_youtu_punct(uint32_t code)
{
    static const uint32_t single[] = {0xff01, 0x2026, 0x201c, 0x201d, 0x2018,
                                      0x2019, 0x2014, 0xff1a, 0xff1b, 0xff0c};

    for (size_t i = 0; i < ARRAY_LEN(single); i++)
        if (code == single[i])
            return true;
    return (code >= 0x3001 && code <= 0x303f) || (code >= 0xfe30 && code <= 0xfe4f);
}

static bool is_bopomofo(uint32_t code)
{
    return code >= 0x3105 && code <= 0x312f;
}

size_t match_youtu_cjk(struct bytes text, size_t at, unsigned param)
{
    static bool (*const sets[])(uint32_t) = {is_hangul, is_youtu_punct, is_bopomofo};

    if (at >= text.len_bytes || text.data[at] < 0x80)
        return at;
    for (size_t i = 0; i < ARRAY_LEN(sets); i++) {
        size_t end = pretok_set_end(text, at, sets[i]);

        if (end > at)
            return end;
    }
    return match_kana_han(text, at, param);
}
