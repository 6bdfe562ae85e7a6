/* SPDX-License-Identifier: Apache-2.0 */
/* The merges of a byte-level vocabulary: "left right" in the order in which they were learnt. The position is
 * the rank.
 *
 *     tokenizer.ggml.merges   "Ġ t", "Ġ a", "h e", ...
 *
 * Left, right and their concatenation must all be tokens. They are looked up once here, so encoding works
 * with ids only. None of them may be a control token: otherwise text could merge into one. */
#include "text/token/tokenizer_priv.h"

#include "base/err.h"

#include <string.h>

#define KEY_MERGES "tokenizer.ggml.merges"

static token_id find_mergeable(const struct tokenizer *tokenizer, struct bytes spelling)
{
    token_id id = tokenizer_find(tokenizer, spelling);

    if (id == TOKEN_NONE)
        return TOKEN_NONE;
    return tokenizer->types[id] == TOKEN_NORMAL || tokenizer->types[id] == TOKEN_USER ||
                   tokenizer->types[id] == TOKEN_UNUSED
               ? id
               : TOKEN_NONE;
}

static int read_merge(struct tokenizer *tokenizer, uint32_t rank, struct bytes text, struct fault *fault)
{
    uint8_t joined[2 * TOKEN_MAX_SPELL_BYTES];
    size_t blank = bytes_find(text, bytes_str(" "), 1);

    if (blank == SIZE_MAX || text.len_bytes > sizeof(joined))
        return fault_set(fault, E_FORMAT, "key '" KEY_MERGES "': merge %u '%.*s' is not two tokens", rank,
                         text.len_bytes > 64 ? 64 : (int)text.len_bytes, (const char *)text.data);
    struct bytes left = bytes_of(text.data, blank);
    struct bytes right = bytes_of(text.data + blank + 1, text.len_bytes - blank - 1);
    memcpy(joined, left.data, left.len_bytes);
    memcpy(joined + left.len_bytes, right.data, right.len_bytes);

    token_id left_id = find_mergeable(tokenizer, left);
    token_id right_id = find_mergeable(tokenizer, right);
    token_id merged_id = find_mergeable(tokenizer, bytes_of(joined, text.len_bytes - 1));
    if (left_id == TOKEN_NONE || right_id == TOKEN_NONE || merged_id == TOKEN_NONE)
        return fault_set(fault, E_FORMAT,
                         "key '" KEY_MERGES "': merge %u '%.*s' names a text that is no token", rank,
                         text.len_bytes > 64 ? 64 : (int)text.len_bytes, (const char *)text.data);
    if (pairs_add(&tokenizer->pairs, left_id, right_id, (struct pair){.rank = rank, .merged = merged_id}) !=
        0)
        return fault_set(fault, E_NOMEM, "out of memory");
    return 0;
}

int merges_read(struct tokenizer *tokenizer, const struct gguf *gguf, struct fault *fault)
{
    enum gguf_kind kind;
    uint64_t n;
    int rc = 0;

    if (gguf_array_len(gguf, KEY_MERGES, &kind, &n) != 0 || kind != GGUF_STRING)
        return fault_set(fault, E_FORMAT, "key '" KEY_MERGES "' is missing or not a list of strings");
    if (n > TOKEN_MAX_TOKENS)
        return fault_set(fault, E_LIMIT, "key '" KEY_MERGES "': %llu merges, the limit is %u",
                         (unsigned long long)n, TOKEN_MAX_TOKENS);
    if (pairs_init(&tokenizer->pairs) != 0)
        return fault_set(fault, E_NOMEM, "out of memory");
    for (uint32_t i = 0; i < n && rc == 0; i++) {
        struct bytes text;

        gguf_array_str(gguf, KEY_MERGES, i, &text);
        rc = read_merge(tokenizer, i, text, fault);
    }
    return rc;
}
