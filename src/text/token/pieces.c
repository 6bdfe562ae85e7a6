/* SPDX-License-Identifier: Apache-2.0 */
/* The merges of a SentencePiece vocabulary. The file has no list of them: any two neighbours may merge if
 * their texts together are a token. The token's score gives the order.
 *
 * This file converts the rule, once, into the same pair table that a byte-level vocabulary has. It cuts every
 * token at every character boundary: "the" gives (t, he) and (th, e), if both halves are symbols. A symbol is
 * a token, or a character that occurs inside a token without being one: merging begins with single
 * characters. Equal scores give equal ranks, so the leftmost of those pairs merges first, as it must.
 *
 * SentencePiece merges over a whole text, without words. To keep the heap small, encoding still cuts the text
 * between two characters that are side by side in no token, because no merge can cross that place. The bitmap
 * of neighbours answers this question. Two pairs may share a bit; then a piece is only longer.
 *
 * If the file lists the merges (Gemma 4), merges.c reads them, and this file provides only the characters and the
 * neighbours. */
#include "text/token/tokenizer_priv.h"

#include "base/err.h"
#include "base/str.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define KEY_SCORES     "tokenizer.ggml.scores"
#define NEIGHBOUR_BITS 20
#define MAX_CUT_BYTES  512 /* limit of a mergeable token: the work of cutting it grows with the square */

/* ---- characters ---- */

uint32_t spm_code_at(struct bytes text, size_t at, size_t *len_out)
{
    uint32_t code = utf8_next(text, at, len_out);

    return code == 0xfffd && *len_out == 1 ? SPM_RAW + text.data[at] : code;
}

static struct char_slot *char_slot(const struct char_table *table, uint32_t code)
{
    uint32_t at = (code * UINT32_C(0x9e3779b1)) >> 7 & table->mask;

    while (table->slots[at].code != code && table->slots[at].code != UINT32_MAX)
        at = (at + 1) & table->mask;
    return &table->slots[at];
}

static int chars_grow(struct char_table *table)
{
    uint32_t n_old = table->slots == NULL ? 0 : table->mask + 1;
    struct char_slot *old = table->slots;
    uint32_t n_slots = n_old == 0 ? 1024 : n_old * 2;
    struct char_slot *slots = malloc((size_t)n_slots * sizeof(*slots));

    if (slots == NULL)
        return E_NOMEM;
    memset(slots, 0xff, (size_t)n_slots * sizeof(*slots));
    table->slots = slots;
    table->mask = n_slots - 1;
    for (uint32_t i = 0; i < n_old; i++) {
        if (old[i].code != UINT32_MAX)
            *char_slot(table, old[i].code) = old[i];
    }
    free(old);
    return 0;
}

static int chars_put(struct char_table *table, uint32_t code, uint32_t symbol)
{
    if ((table->slots == NULL || table->n >= table->mask / 2) && chars_grow(table) != 0)
        return E_NOMEM;

    struct char_slot *slot = char_slot(table, code);
    if (slot->code != UINT32_MAX)
        return 0;
    *slot = (struct char_slot){.code = code, .symbol = symbol};
    table->n++;
    if (code < 128)
        table->ascii[code] = symbol;
    return 0;
}

uint32_t pieces_symbol(const struct tokenizer *tokenizer, uint32_t code)
{
    const struct char_slot *slot;

    if (code < 128)
        return tokenizer->chars.ascii[code];
    slot = char_slot(&tokenizer->chars, code);
    return slot->code == code ? slot->symbol : TOKEN_NONE;
}

static bool is_mergeable(const struct tokenizer *tokenizer, token_id id)
{
    return tokenizer->types[id] == TOKEN_NORMAL || tokenizer->types[id] == TOKEN_UNUSED ||
           (tokenizer->has_merges && tokenizer->types[id] == TOKEN_USER);
}

/* Tokens of one character are the symbols of their characters. Other characters inside tokens become extra
 * symbols. */
static int collect_chars(struct tokenizer *tokenizer)
{
    size_t len_bytes;
    uint32_t cap = 0;

    if (chars_grow(&tokenizer->chars) != 0)
        return E_NOMEM;
    memset(tokenizer->chars.ascii, 0xff, sizeof(tokenizer->chars.ascii));
    for (uint32_t i = 0; i < tokenizer->n_tokens; i++) {
        struct bytes text = pool_get(&tokenizer->spellings, i);

        if (!is_mergeable(tokenizer, i) || text.len_bytes == 0)
            continue;
        uint32_t code = spm_code_at(text, 0, &len_bytes);
        if (len_bytes == text.len_bytes && chars_put(&tokenizer->chars, code, i) != 0)
            return E_NOMEM;
    }
    for (uint32_t i = 0; i < tokenizer->n_tokens; i++) {
        struct bytes text = pool_get(&tokenizer->spellings, i);

        for (size_t at = 0; is_mergeable(tokenizer, i) && at < text.len_bytes; at += len_bytes) {
            uint32_t code = spm_code_at(text, at, &len_bytes);

            if (pieces_symbol(tokenizer, code) != TOKEN_NONE)
                continue;
            if (tokenizer->n_extra == cap) {
                cap = cap == 0 ? 64 : cap * 2;
                uint32_t *grown = realloc(tokenizer->extra_codes, cap * sizeof(*grown));
                if (grown == NULL)
                    return E_NOMEM;
                tokenizer->extra_codes = grown;
            }
            tokenizer->extra_codes[tokenizer->n_extra] = code;
            if (chars_put(&tokenizer->chars, code, tokenizer->n_tokens + tokenizer->n_extra) != 0)
                return E_NOMEM;
            tokenizer->n_extra++;
        }
    }
    return 0;
}

/* ---- ranks ---- */

struct scored {
    float score;
    token_id id;
};

static int compare_scores(const void *a, const void *b)
{
    float left = ((const struct scored *)a)->score, right = ((const struct scored *)b)->score;

    return left > right ? -1 : left < right;
}

/* ranks: [n_tokens]; the highest score gets 0, equal scores get equal ranks. */
static int rank_scores(const struct tokenizer *tokenizer, const struct gguf *gguf, uint32_t *ranks,
                       struct fault *fault)
{
    struct scored *scored = malloc((size_t)tokenizer->n_tokens * sizeof(*scored));
    int rc = 0;

    if (scored == NULL)
        return fault_set(fault, E_NOMEM, "out of memory");
    for (uint32_t i = 0; i < tokenizer->n_tokens && rc == 0; i++) {
        double score;

        if (gguf_array_f64(gguf, KEY_SCORES, i, &score) != 0 || isnan(score))
            rc = fault_set(fault, E_FORMAT, "key '" KEY_SCORES "': token %u has no score", i);
        else
            scored[i] = (struct scored){.score = (float)score, .id = i};
    }
    if (rc == 0) {
        uint32_t rank = 0;

        qsort(scored, tokenizer->n_tokens, sizeof(*scored), compare_scores);
        for (uint32_t i = 0; i < tokenizer->n_tokens; i++) {
            rank += i > 0 && scored[i].score < scored[i - 1].score;
            ranks[scored[i].id] = rank;
        }
    }
    free(scored);
    return rc;
}

/* ---- pairs ---- */

static uint32_t neighbour_bit(uint32_t left, uint32_t right)
{
    return (uint32_t)((((uint64_t)left << 32 | right) * UINT64_C(0x9e3779b97f4a7c15)) >>
                      (64 - NEIGHBOUR_BITS));
}

bool pieces_may_join(const struct tokenizer *tokenizer, uint32_t left, uint32_t right)
{
    uint32_t bit = neighbour_bit(left, right);

    return tokenizer->neighbours[bit / 64] >> (bit % 64) & 1;
}

/* The symbol with this text, or TOKEN_NONE. */
static uint32_t symbol_of(const struct tokenizer *tokenizer, struct bytes text)
{
    size_t len_bytes;
    uint32_t code = spm_code_at(text, 0, &len_bytes);

    if (len_bytes == text.len_bytes)
        return pieces_symbol(tokenizer, code);
    token_id id = tokenizer_find(tokenizer, text);
    return id != TOKEN_NONE && is_mergeable(tokenizer, id) ? id : TOKEN_NONE;
}

static int cut_token(struct tokenizer *tokenizer, token_id id, uint32_t rank)
{
    struct bytes text = pool_get(&tokenizer->spellings, id);
    uint32_t before = TOKEN_NONE;
    size_t len_bytes;

    for (size_t at = 0; at < text.len_bytes; at += len_bytes) {
        uint32_t here = pieces_symbol(tokenizer, spm_code_at(text, at, &len_bytes));

        if (at > 0) {
            uint32_t left = symbol_of(tokenizer, bytes_of(text.data, at));
            uint32_t right = symbol_of(tokenizer, bytes_of(text.data + at, text.len_bytes - at));
            uint32_t bit = neighbour_bit(before, here);

            tokenizer->neighbours[bit / 64] |= UINT64_C(1) << (bit % 64);
            if (rank != PAIR_NONE && left != TOKEN_NONE && right != TOKEN_NONE &&
                pairs_add(&tokenizer->pairs, left, right, (struct pair){.rank = rank, .merged = id}) != 0)
                return E_NOMEM;
        }
        before = here;
    }
    return 0;
}

/* ranks: NULL if the file lists the merges; then only the neighbours are needed. */
static int cut_tokens(struct tokenizer *tokenizer, const uint32_t *ranks, struct fault *fault)
{
    if (ranks && pairs_init(&tokenizer->pairs) != 0)
        return fault_set(fault, E_NOMEM, "out of memory");
    for (uint32_t i = 0; i < tokenizer->n_tokens; i++) {
        struct bytes text = pool_get(&tokenizer->spellings, i);

        /* Of several tokens with one spelling, only the indexed one can result from a merge. */
        if (!is_mergeable(tokenizer, i) || tokenizer_find(tokenizer, text) != i)
            continue;
        if (text.len_bytes > MAX_CUT_BYTES)
            return fault_set(fault, E_LIMIT, "token %u has %zu bytes, the limit for SentencePiece is %d", i,
                             text.len_bytes, MAX_CUT_BYTES);
        if (cut_token(tokenizer, i, ranks ? ranks[i] : PAIR_NONE) != 0)
            return fault_set(fault, E_NOMEM, "out of memory");
    }
    return 0;
}

/* The pairs of a vocabulary with scores. */
static int read_scored(struct tokenizer *tokenizer, const struct gguf *gguf, struct fault *fault)
{
    enum gguf_kind kind;
    uint64_t n;

    if (gguf_array_len(gguf, KEY_SCORES, &kind, &n) != 0 || n != tokenizer->n_tokens)
        return fault_set(fault, E_FORMAT,
                         "key '" KEY_SCORES "' does not list one number for each of %u tokens",
                         tokenizer->n_tokens);

    uint32_t *ranks = calloc(tokenizer->n_tokens, sizeof(*ranks));
    int rc = ranks == NULL ? fault_set(fault, E_NOMEM, "out of memory")
                           : rank_scores(tokenizer, gguf, ranks, fault);
    if (rc == 0)
        rc = cut_tokens(tokenizer, ranks, fault);
    free(ranks);
    return rc;
}

int pieces_read(struct tokenizer *tokenizer, const struct gguf *gguf, struct fault *fault)
{
    tokenizer->neighbours = calloc((1u << NEIGHBOUR_BITS) / 64, sizeof(*tokenizer->neighbours));
    if (tokenizer->neighbours == NULL || collect_chars(tokenizer) != 0)
        return fault_set(fault, E_NOMEM, "out of memory");
    return tokenizer->has_merges ? cut_tokens(tokenizer, NULL, fault) : read_scored(tokenizer, gguf, fault);
}

void pieces_fini(struct tokenizer *tokenizer)
{
    free(tokenizer->chars.slots);
    free(tokenizer->extra_codes);
    free(tokenizer->neighbours);
}
