/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the vocabulary: the tokens, their types, and the tables for look-ups.
 *
 *     tokenizer.ggml.tokens       spellings, the id is the position
 *     tokenizer.ggml.token_type   the type of each; absent: all normal
 *     tokenizer.ggml.*_token_id   the tokens with a role (roles.c)
 *
 * The spellings give three tables: the pieces (the bytes of each token, ready for output), an index from
 * spelling to id, and the sorted list of specials that encoding searches for. In the spellings of normal
 * tokens, bytes may be encoded (GPT-2's alphabet, or "▁" for a blank). Other spellings are literal.
 *
 * The texts are copied, so the file can be closed. All values from the file are checked here, once.
 * Afterwards each id that encoding or decoding can meet is below n_tokens. */
#include "text/token/tokenizer_priv.h"

#include "base/check.h"
#include "base/err.h"
#include "base/rng.h"
#include "base/str.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define KEY_TOKENS "tokenizer.ggml.tokens"
#define KEY_TYPES  "tokenizer.ggml.token_type"

struct bytes pool_get(const struct text_pool *pool, uint32_t i)
{
    return bytes_of(pool->text.data + pool->at[i], pool->at[i + 1] - pool->at[i]);
}

static int vocab_pool_init(struct text_pool *pool, uint32_t n)
{
    pool->at = calloc((size_t)n + 1, sizeof(*pool->at));
    return pool->at == NULL ? E_NOMEM : buf_reserve(&pool->text, (size_t)n * 8);
}

static void pool_fini(struct text_pool *pool)
{
    free(pool->at);
    buf_fini(&pool->text);
}

/* ---- spellings and types ---- */

static int read_spellings(struct tokenizer *tokenizer, const struct gguf *gguf, struct fault *fault)
{
    enum gguf_kind kind;
    uint64_t n;

    if (gguf_array_len(gguf, KEY_TOKENS, &kind, &n) != 0 || kind != GGUF_STRING)
        return fault_set(fault, E_FORMAT, "key '" KEY_TOKENS "' is missing or not a list of strings");
    if (n == 0 || n > TOKEN_MAX_TOKENS)
        return fault_set(fault, E_LIMIT, "key '" KEY_TOKENS "': %llu tokens; allowed are 1 to %u",
                         (unsigned long long)n, TOKEN_MAX_TOKENS);
    tokenizer->n_tokens = (uint32_t)n;
    if (vocab_pool_init(&tokenizer->spellings, tokenizer->n_tokens) != 0)
        return fault_set(fault, E_NOMEM, "out of memory");

    struct text_pool *pool = &tokenizer->spellings;
    for (uint32_t i = 0; i < tokenizer->n_tokens; i++) {
        struct bytes spelling;

        gguf_array_str(gguf, KEY_TOKENS, i, &spelling);
        if (spelling.len_bytes > TOKEN_MAX_SPELL_BYTES)
            return fault_set(fault, E_LIMIT, "key '" KEY_TOKENS "': token %u has %zu bytes, the limit is %d",
                             i, spelling.len_bytes, TOKEN_MAX_SPELL_BYTES);
        if (pool->text.len_bytes > TOKEN_MAX_POOL_BYTES - spelling.len_bytes)
            return fault_set(fault, E_LIMIT, "key '" KEY_TOKENS "': more than %u bytes of tokens",
                             TOKEN_MAX_POOL_BYTES);
        if (buf_append(&pool->text, spelling.data, spelling.len_bytes) != 0)
            return fault_set(fault, E_NOMEM, "out of memory");
        pool->at[i + 1] = (uint32_t)pool->text.len_bytes;
    }
    return 0;
}

static int read_types(struct tokenizer *tokenizer, const struct gguf *gguf, struct fault *fault)
{
    enum gguf_kind kind;
    uint64_t n;

    tokenizer->types = malloc(tokenizer->n_tokens);
    if (tokenizer->types == NULL)
        return fault_set(fault, E_NOMEM, "out of memory");
    memset(tokenizer->types, TOKEN_NORMAL, tokenizer->n_tokens);

    int rc = gguf_array_len(gguf, KEY_TYPES, &kind, &n);
    if (rc == E_NOT_FOUND)
        return 0;
    if (rc != 0 || n != tokenizer->n_tokens)
        return fault_set(fault, E_FORMAT,
                         "key '" KEY_TYPES "' does not list one number for each of %u tokens",
                         tokenizer->n_tokens);
    for (uint32_t i = 0; i < tokenizer->n_tokens; i++) {
        int64_t type;

        if (gguf_array_i64(gguf, KEY_TYPES, i, &type) != 0 || type < 0 || type > TOKEN_BYTE)
            return fault_set(fault, E_FORMAT, "key '" KEY_TYPES "': token %u is of an unknown type", i);
        if (type != 0)
            tokenizer->types[i] = (uint8_t)type;
    }
    return 0;
}

/* ---- pieces ---- */

static int vocab_hex_digit(uint8_t c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* "<0x0A>" -> 10; -1: another form. */
static int byte_of_spelling(struct bytes spelling)
{
    if (spelling.len_bytes != 6 || !bytes_starts_with(spelling, "<0x") || spelling.data[5] != '>')
        return -1;
    int high = vocab_hex_digit(spelling.data[3]), low = vocab_hex_digit(spelling.data[4]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}

/* Decodes GPT-2's alphabet; a spelling with any other character is literal. */
static void append_alphabet(struct buf *out, struct bytes spelling)
{
    size_t before_bytes = out->len_bytes, len_bytes;

    for (size_t at = 0; at < spelling.len_bytes; at += len_bytes) {
        int byte = alphabet_byte(utf8_next(spelling, at, &len_bytes));

        if (byte < 0) {
            out->len_bytes = before_bytes;
            buf_append(out, spelling.data, spelling.len_bytes);
            return;
        }
        buf_append_byte(out, (uint8_t)byte);
    }
}

static void append_blanks(struct buf *out, struct bytes spelling)
{
    static const uint8_t blank[] = {0xe2, 0x96, 0x81};
    const struct bytes needle = bytes_of(blank, sizeof(blank));

    for (size_t at = 0;;) {
        size_t hit = bytes_find(spelling, needle, at);
        size_t end = hit == SIZE_MAX ? spelling.len_bytes : hit;

        buf_append(out, spelling.data + at, end - at);
        if (hit == SIZE_MAX)
            return;
        buf_append_byte(out, ' ');
        at = hit + sizeof(blank);
    }
}

static int make_pieces(struct tokenizer *tokenizer, struct fault *fault)
{
    struct text_pool *pool = &tokenizer->pieces;

    if (vocab_pool_init(pool, tokenizer->n_tokens) != 0)
        return fault_set(fault, E_NOMEM, "out of memory");
    for (uint32_t i = 0; i < tokenizer->n_tokens; i++) {
        struct bytes spelling = pool_get(&tokenizer->spellings, i);
        uint8_t type = tokenizer->types[i];

        if (type == TOKEN_BYTE) {
            int byte = byte_of_spelling(spelling);
            if (byte < 0)
                return fault_set(fault, E_FORMAT, "token %u is a byte token but is spelled '%.*s'", i,
                                 (int)spelling.len_bytes, (const char *)spelling.data);
            buf_append_byte(&pool->text, (uint8_t)byte);
        } else if (type != TOKEN_NORMAL && type != TOKEN_UNUSED) {
            buf_append(&pool->text, spelling.data, spelling.len_bytes);
        } else if (tokenizer->family == TOKEN_FAMILY_BPE) {
            append_alphabet(&pool->text, spelling);
        } else {
            append_blanks(&pool->text, spelling);
        }
        pool->at[i + 1] = (uint32_t)pool->text.len_bytes;
    }
    return pool->text.is_bad ? fault_set(fault, E_NOMEM, "out of memory") : 0;
}

/* ---- the index ---- */

/* The slot that holds the spelling, or the free slot where it belongs. */
static struct spell_slot *vocab_slot_of(const struct tokenizer *tokenizer, struct bytes spelling,
                                        uint64_t *hash_out)
{
    const struct spell_index *index = &tokenizer->index;
    uint64_t hash = XXH3_64bits_withSeed(spelling.data, spelling.len_bytes, index->seed);
    uint32_t at = (uint32_t)hash & index->mask;

    for (; index->slots[at].id != TOKEN_NONE; at = (at + 1) & index->mask) {
        struct spell_slot *slot = &index->slots[at];
        if (slot->tag == hash >> 32 && bytes_equal(pool_get(&tokenizer->spellings, slot->id), spelling))
            break;
    }
    *hash_out = hash;
    return &index->slots[at];
}

static int make_index(struct tokenizer *tokenizer)
{
    struct spell_index *index = &tokenizer->index;
    uint32_t n_slots = 16;

    while (n_slots < tokenizer->n_tokens * 2)
        n_slots *= 2;
    index->mask = n_slots - 1;
    index->slots = malloc((size_t)n_slots * sizeof(*index->slots));
    if (index->slots == NULL)
        return E_NOMEM;
    for (uint32_t i = 0; i < n_slots; i++)
        index->slots[i] = (struct spell_slot){.id = TOKEN_NONE};
    rng_system(&index->seed, sizeof(index->seed));

    for (uint32_t i = 0; i < tokenizer->n_tokens; i++) {
        uint64_t hash;
        struct spell_slot *slot = vocab_slot_of(tokenizer, pool_get(&tokenizer->spellings, i), &hash);
        if (slot->id == TOKEN_NONE)
            *slot = (struct spell_slot){.tag = (uint32_t)(hash >> 32), .id = i};
    }
    return 0;
}

/* ---- specials ---- */

static bool is_special(uint8_t type)
{
    return type == TOKEN_CONTROL || type == TOKEN_UNKNOWN || type == TOKEN_USER;
}

static int compare_spellings(const void *a, const void *b, void *arg)
{
    const struct tokenizer *tokenizer = arg;
    token_id left_id = ((const struct special *)a)->id, right_id = ((const struct special *)b)->id;
    struct bytes left = pool_get(&tokenizer->spellings, left_id);
    struct bytes right = pool_get(&tokenizer->spellings, right_id);
    size_t common = left.len_bytes < right.len_bytes ? left.len_bytes : right.len_bytes;
    int order = memcmp(left.data, right.data, common);

    if (order != 0)
        return order;
    if (left.len_bytes != right.len_bytes)
        return left.len_bytes < right.len_bytes ? -1 : 1;
    return left_id < right_id ? -1 : 1;
}

static int make_specials(struct tokenizer *tokenizer)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < tokenizer->n_tokens; i++)
        n += is_special(tokenizer->types[i]) && pool_get(&tokenizer->spellings, i).len_bytes > 0;
    tokenizer->specials = calloc((size_t)n + 1, sizeof(*tokenizer->specials));
    if (tokenizer->specials == NULL)
        return E_NOMEM;
    for (uint32_t i = 0; i < tokenizer->n_tokens; i++) {
        struct bytes spelling = pool_get(&tokenizer->spellings, i);
        bool is_user = tokenizer->types[i] == TOKEN_USER;

        if (!is_special(tokenizer->types[i]) || spelling.len_bytes == 0)
            continue;
        tokenizer->specials[tokenizer->n_specials++] = (struct special){
            .id = i,
            .is_user = is_user,
            .is_marker =
                !is_user || (spelling.data[0] == '<' && spelling.data[spelling.len_bytes - 1] == '>'),
        };
    }
    qsort_r(tokenizer->specials, n, sizeof(*tokenizer->specials), compare_spellings, tokenizer);

    uint32_t at = 0;
    for (uint32_t byte = 0; byte < 256; byte++) {
        tokenizer->special_from[byte] = at;
        while (at < n && pool_get(&tokenizer->spellings, tokenizer->specials[at].id).data[0] == byte)
            at++;
        tokenizer->begins_special[byte] = at > tokenizer->special_from[byte];
    }
    tokenizer->special_from[256] = at;
    return 0;
}

/* ---- tokens of bytes ---- */

static struct bytes spelling_of_byte(const struct tokenizer *tokenizer, uint8_t byte, char room[8])
{
    if (tokenizer->family == TOKEN_FAMILY_BPE)
        return bytes_of(room, utf8_put(alphabet_code(byte), (uint8_t *)room));
    snprintf(room, 8, "<0x%02X>", byte);
    return bytes_str(room);
}

/* Bytes that text never needs. UTF-8 contains neither the last eleven bytes nor C0 and C1. F1 and F2 begin
 * planes without assigned characters. Of the control characters only tab and line ends are text. */
static bool is_dispensable(unsigned byte)
{
    return byte == 0xc0 || byte == 0xc1 || byte == 0xf1 || byte == 0xf2 || byte >= 0xf5 || byte == 0x7f ||
           (byte < 0x20 && byte != '\t' && byte != '\n' && byte != '\r');
}

/* The token for a byte that has none. A byte-level vocabulary leaves the byte out, as the reference does,
 * when the unknown token is missing or a control token: no text may become a control token. */
static token_id stand_in(const struct tokenizer *tokenizer)
{
    token_id unknown = tokenizer->unknown;
    bool is_control = unknown != TOKEN_NONE && tokenizer->types[unknown] == TOKEN_CONTROL;

    return tokenizer->family == TOKEN_FAMILY_BPE && is_control ? TOKEN_NONE : unknown;
}

/* Finds a token for each byte, so that any text can be encoded. A letter of the byte alphabet may also be
 * user-defined text ("À"): that token is the letter and not the byte. */
static int find_byte_tokens(struct tokenizer *tokenizer, struct fault *fault)
{
    bool is_bpe = tokenizer->family == TOKEN_FAMILY_BPE;
    uint8_t type = is_bpe ? TOKEN_NORMAL : TOKEN_BYTE;

    for (unsigned byte = 0; byte < 256; byte++) {
        char room[8];
        token_id id = tokenizer_find(tokenizer, spelling_of_byte(tokenizer, (uint8_t)byte, room));

        if (id == TOKEN_NONE || tokenizer->types[id] != type)
            id = stand_in(tokenizer);
        if (id == TOKEN_NONE && tokenizer->unknown == TOKEN_NONE && !(is_bpe && is_dispensable(byte)))
            return fault_set(fault, E_FORMAT,
                             "the vocabulary has no token for byte 0x%02x and no unknown token", byte);
        tokenizer->byte_ids[byte] = id;
    }
    return 0;
}

int vocab_read(struct tokenizer *tokenizer, const struct gguf *gguf, struct fault *fault)
{
    int rc = read_spellings(tokenizer, gguf, fault);

    if (rc == 0)
        rc = read_types(tokenizer, gguf, fault);
    if (rc == 0)
        rc = make_pieces(tokenizer, fault);
    if (rc == 0 && (make_index(tokenizer) != 0 || make_specials(tokenizer) != 0))
        rc = fault_set(fault, E_NOMEM, "out of memory");
    if (rc == 0)
        rc = roles_read(tokenizer, gguf, fault);
    if (rc == 0)
        rc = find_byte_tokens(tokenizer, fault);
    return rc;
}

void vocab_fini(struct tokenizer *tokenizer)
{
    pool_fini(&tokenizer->spellings);
    pool_fini(&tokenizer->pieces);
    free(tokenizer->types);
    free(tokenizer->index.slots);
    free(tokenizer->specials);
    free(tokenizer->stop_ids);
}

token_id tokenizer_find(const struct tokenizer *tokenizer, struct bytes spelling)
{
    uint64_t hash;

    return vocab_slot_of(tokenizer, spelling, &hash)->id;
}
