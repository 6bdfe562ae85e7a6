/* SPDX-License-Identifier: Apache-2.0 */
/* Cutting text into words before byte pair encoding.
 *
 * Vocabularies are trained on text cut by a regular expression, and must be used on text cut the same way.
 * The expressions are few and simple enough to be written out as code that looks at each character once or
 * twice, without backtracking: hostile text takes as long as any other.  In order of preference at each
 * place:
 *
 *     gpt-2        's 't 're 've 'm 'll 'd
 *                  letters, numbers, or others; each with one blank (U+0020) before them
 *     llama-bpe    the same contractions in any case
 *                  letters, with one character before them that is no letter, number, CR or LF
 *                  one to three numbers
 *                  others, with one blank before them and CRs and LFs after them
 *     qwen2        as llama-bpe, but each number alone
 *
 * and then whitespace: in the last two, up to and with the last CR or LF of the run if there is one; else the
 * run without its last character if something follows (that one then goes with the next word, or stands
 * alone); else the run.
 *
 * "Letter" and "number" are the Unicode categories L* and N*, "whitespace" is the property White_Space,
 * "other" is everything else.  A byte that is no UTF-8 counts as one other character.
 */
#include "token/tokenizer_priv.h"

#include "base/str.h"

#include <utf8proc.h>

enum class { CLASS_LETTER, CLASS_NUMBER, CLASS_SPACE, CLASS_OTHER, CLASS_END };

struct peek { /* the character at a place */
    uint32_t code;
    size_t end; /* where the next one begins */
    enum class class;
};

static bool is_wide_space(uint32_t code)
{
    return code == 0x85 || code == 0xa0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200a) ||
           code == 0x2028 || code == 0x2029 || code == 0x202f || code == 0x205f || code == 0x3000;
}

static enum class class_of(uint32_t code) {
    if (code < 0x80){if ((code | 0x20) >= 'a' && (code | 0x20) <= 'z') return CLASS_LETTER;
                     if (code >= '0' && code <= '9') return CLASS_NUMBER;
                     return code == ' ' || (code >= '\t' && code <= '\r') ? CLASS_SPACE : CLASS_OTHER;}
if (is_wide_space(code)) return CLASS_SPACE;

utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)code);
if (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO)
    return CLASS_LETTER;
if (category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO)
    return CLASS_NUMBER;
return CLASS_OTHER;
}

static struct peek look(struct bytes text, size_t at)
{
    size_t len_bytes;

    if (at >= text.len_bytes)
        return (struct peek){.end = at, .class = CLASS_END};
    if (text.data[at] < 0x80)
        return (struct peek){.code = text.data[at], .end = at + 1, .class = class_of(text.data[at])};
    uint32_t code = utf8_next(text, at, &len_bytes);
    return (struct peek){.code = code, .end = at + len_bytes, .class = class_of(code)};
}

/* The end of the run of class that begins at at, of at most max characters. */
static size_t run_end(struct bytes text, size_t at, enum class class, size_t max)
{
    struct peek here;

    for (; max > 0 && (here = look(text, at)).class == class; max--)
        at = here.end;
    return at;
}

static bool is_newline(uint32_t code)
{
    return code == '\r' || code == '\n';
}

/* 's 't 'm 'd 're 've 'll: where it ends, or at when there is none.  U+017F is an s to those who ignore case.
 */
static size_t contraction_end(struct bytes text, size_t at, bool ignores_case)
{
    uint8_t letters[2] = {0, 0};
    size_t ends[2] = {at, at};

    for (size_t i = 0, from = at + 1; i < 2; i++, from = ends[i - 1]) {
        struct peek here = look(text, from);

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

/* keeps_newlines: a CR or LF in the run ends the word. */
static size_t whitespace_end(struct bytes text, size_t at, bool keeps_newlines)
{
    size_t last = at, newline_end = at, end = at;
    struct peek here;

    while ((here = look(text, end)).class == CLASS_SPACE) {
        last = end;
        end = here.end;
        if (is_newline(here.code))
            newline_end = end;
    }
    if (keeps_newlines && newline_end > at)
        return newline_end;
    if (here.class == CLASS_END || last == at)
        return end;
    return last;
}

static size_t gpt2_end(struct bytes text, size_t at)
{
    struct peek here = look(text, at);

    if (here.code == '\'') {
        size_t end = contraction_end(text, at, false);
        if (end > at)
            return end;
    }

    struct peek word = here.code == ' ' ? look(text, here.end) : here;
    if (word.class == CLASS_SPACE || word.class == CLASS_END)
        return whitespace_end(text, at, false);
    return run_end(text, word.end, word.class, SIZE_MAX);
}

static size_t llama3_end(struct bytes text, size_t at, size_t max_numbers)
{
    struct peek here = look(text, at);

    if (here.code == '\'') {
        size_t end = contraction_end(text, at, true);
        if (end > at)
            return end;
    }
    if (here.class == CLASS_LETTER)
        return run_end(text, here.end, CLASS_LETTER, SIZE_MAX);
    if (here.class == CLASS_NUMBER)
        return run_end(text, here.end, CLASS_NUMBER, max_numbers - 1);

    struct peek next = look(text, here.end);
    if (!is_newline(here.code) && next.class == CLASS_LETTER)
        return run_end(text, next.end, CLASS_LETTER, SIZE_MAX);

    struct peek other = here.code == ' ' ? next : here;
    if (other.class != CLASS_OTHER)
        return whitespace_end(text, at, true);
    size_t end = run_end(text, other.end, CLASS_OTHER, SIZE_MAX);
    while (end < text.len_bytes && is_newline(text.data[end]))
        end++;
    return end;
}

size_t pretok_word_end(enum pretok rule, struct bytes text, size_t at)
{
    switch (rule) {
    case PRETOK_GPT2:
        return gpt2_end(text, at);
    case PRETOK_LLAMA3:
        return llama3_end(text, at, 3);
    case PRETOK_QWEN2:
        return llama3_end(text, at, 1);
    }
    return text.len_bytes;
}
