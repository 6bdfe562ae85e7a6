/* SPDX-License-Identifier: Apache-2.0 */
/* Characters and patterns of the pre-tokenisers (pretok.c, pretok_match.c). */
#ifndef TEXT_TOKEN_PRETOK_PRIV_H
#define TEXT_TOKEN_PRETOK_PRIV_H

#include "text/token/tokenizer_priv.h"

/* Returns where the match that begins at text[at] ends; at: no match. param belongs to the pattern. */
typedef size_t (*pretok_match)(struct bytes text, size_t at, unsigned param);

/* 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+ */
size_t match_gpt2(struct bytes text, size_t at, unsigned param);
/* (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,param}| ?[^\s\p{L}\p{N}]+[\r\n]*|
 * \s*[\r\n]+|\s+(?!\S)|\s+ */
size_t match_llama3(struct bytes text, size_t at, unsigned param);
/* The same, without [\r\n]* behind [^\s\p{L}\p{N}]+ */
size_t match_seed(struct bytes text, size_t at, unsigned param);
/* As match_llama3(), with \p{M} added to every \p{L} except in the first character set. */
size_t match_qwen35(struct bytes text, size_t at, unsigned param);
/* (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}{1,param}|
 *  ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+ */
size_t match_phrases(struct bytes text, size_t at, unsigned param);
/* With U = \p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}, W = \p{Ll}\p{Lm}\p{Lo}\p{M}, C = (?i:'s|'t|'re|'ve|'m|'ll|'d):
 * [^\r\n\p{L}\p{N}]?[U]*[W]+C?|[^\r\n\p{L}\p{N}]?[U]+[W]*C?|\p{N}{1,param}| ?[^\s\p{L}\p{N}]+[\r\n/]*|
 * \s*[\r\n]+|\s+(?!\S)|\s+ */
size_t match_cased(struct bytes text, size_t at, unsigned param);
/* The same, without C */
size_t match_tekken(struct bytes text, size_t at, unsigned param);
/* [\p{Han}]+, then the same as match_cased(), with U and W without \p{Han}, and [\r\n]* for [\r\n/]* */
size_t match_kimi(struct bytes text, size_t at, unsigned param);
/* [ASCII punctuation][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|
 * \s+(?!\S)|\s+ */
size_t match_deepseek3(struct bytes text, size_t at, unsigned param);

size_t match_newline(struct bytes text, size_t at, unsigned param);      /* [\r\n] */
size_t match_numbers(struct bytes text, size_t at, unsigned param);      /* \p{N}{1,param}; 0: no limit */
size_t match_three_digits(struct bytes text, size_t at, unsigned param); /* [0-9][0-9][0-9] */
size_t match_digit_run(struct bytes text, size_t at, unsigned param);    /* \d+\b */
/* \d{1,3}(?=(?:\d{3})*$), of pieces that match_digit_run() cut; param 1: \p{N} for \d, and match_numbers() */
size_t match_digit_group(struct bytes text, size_t at, unsigned param);
/* What lies between two places with (?=(?:\d{3})+(?!\d)), in pieces that match_numbers() cut */
size_t match_thousands(struct bytes text, size_t at, unsigned param);
size_t match_letters(struct bytes text, size_t at, unsigned param);          /* \s?\p{L}+ */
size_t match_punctuation(struct bytes text, size_t at, unsigned param);      /* \s?\p{P}+ */
size_t match_falcon_punct(struct bytes text, size_t at, unsigned param);     /* [\p{P}$+<=>^~|`]+ */
size_t match_deepseek_letters(struct bytes text, size_t at, unsigned param); /* \s?[cased letters]+ */
size_t match_deepseek_punct(struct bytes text, size_t at, unsigned param);   /* \s?[!-/:-~ and similar]+ */
size_t match_deepseek_cjk(struct bytes text, size_t at, unsigned param); /* [U+0800-U+9FA5 U+AC00-U+D7FF]+ */
size_t match_kana_han(struct bytes text, size_t at, unsigned param);     /* [U+4E00-U+9FA5 U+3040-U+30FF]+ */
/* Runs of Hangul, of CJK punctuation, of Bopomofo, or what match_kana_han() matches */
size_t match_youtu_cjk(struct bytes text, size_t at, unsigned param);
/* Runs of Han, kana, Thai, Lao, Khmer, Burmese and Hangul */
size_t match_afmoe_scripts(struct bytes text, size_t at, unsigned param);

bool pretok_is_letter(uint32_t code); /* \p{L} */
bool pretok_is_mark(uint32_t code);   /* \p{M} */
bool pretok_is_han(uint32_t code);    /* \p{Han} */
bool pretok_is_cased(uint32_t code);  /* a cased letter, as DeepSeek's vocabulary defines it */

/* [set]* and \s?[set]*: the end of the match at this offset. */
size_t pretok_set_end(struct bytes text, size_t at, bool (*is_in)(uint32_t code));
size_t pretok_spaced_set_end(struct bytes text, size_t at, bool (*is_in)(uint32_t code));

/* Returns where the whitespace at the end of text begins; text.len_bytes: none. Searches back as far as
 * from. */
size_t trailing_space(struct bytes text, size_t from);

#endif
