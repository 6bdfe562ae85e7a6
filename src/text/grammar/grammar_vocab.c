/* SPDX-License-Identifier: Apache-2.0 */
/* A tokeniser's pieces as trees, which find all tokens that fit a state in one walk.
 *
 *     t --- h --- e            0 t   1 th   2 the   3 to ...
 *      \--- o                  skip(1) = 3: if no text with "th" fits, continue at "to"
 *
 * Nodes are stored in the order of the walk.  So a walk reads memory forwards and jumps over subtrees that
 * cannot fit.  The tokens that end at or below a node are one run of ids.
 *
 * Half of every JSON answer is inside strings, where nearly all tokens fit.  So tokens are sorted out once.
 * *Plain* tokens are whole characters that need no escape in a string, and fit wherever enough characters are
 * left.  The others (quotes, escapes, control characters, parts of characters) have a second, small tree.
 * For free text each token has a signature of its bytes, which tells cheaply that it contains no beginning of
 * a mark. */
#include "text/grammar/grammar_run_priv.h"

#include "base/err.h"
#include "base/str.h"

#include <stdlib.h>
#include <string.h>

#define DEPTH_MAX 1024u

struct word { /* a token to sort */
    struct bytes piece;
    token_id id;
};

static int by_piece(const void *left, const void *right)
{
    const struct word *a = left, *b = right;
    size_t n = a->piece.len_bytes < b->piece.len_bytes ? a->piece.len_bytes : b->piece.len_bytes;
    int order = memcmp(a->piece.data, b->piece.data, n);

    if (order != 0)
        return order;
    if (a->piece.len_bytes != b->piece.len_bytes)
        return a->piece.len_bytes < b->piece.len_bytes ? -1 : 1;
    return (a->id > b->id) - (a->id < b->id);
}

static size_t shared_bytes(struct bytes a, struct bytes b)
{
    size_t n = 0;

    while (n < a.len_bytes && n < b.len_bytes && a.data[n] == b.data[n])
        n++;
    return n;
}

/* Builds the tree; words are sorted. */
static int trie_build(struct trie *trie, const struct word *words, uint32_t n_words)
{
    struct bytes before = {0};
    size_t n_nodes = 1;

    for (uint32_t i = 0; i < n_words; i++) {
        n_nodes += words[i].piece.len_bytes - shared_bytes(before, words[i].piece);
        before = words[i].piece;
    }
    trie->nodes = calloc(n_nodes + 1, sizeof(*trie->nodes));
    trie->ids = calloc(n_words + 1, sizeof(*trie->ids));
    uint32_t *way =
        calloc(DEPTH_MAX + 1, sizeof(*way)); /* the last word's nodes; their ends are still unknown */
    if (trie->nodes == NULL || trie->ids == NULL || way == NULL || n_nodes > UINT32_MAX) {
        free(way);
        return E_NOMEM;
    }
    before = (struct bytes){0};
    trie->n = 1;
    for (uint32_t i = 0; i < n_words; i++) {
        struct bytes piece = words[i].piece;
        size_t shared = shared_bytes(before, piece);

        for (size_t d = shared + 1; d <= before.len_bytes; d++)
            trie->nodes[way[d]].skip = trie->n;
        for (size_t d = shared + 1; d <= piece.len_bytes; d++) {
            way[d] = trie->n++;
            trie->nodes[way[d]] =
                (struct trie_node){.ids = i, .depth = (uint16_t)d, .byte = piece.data[d - 1]};
        }
        trie->ids[i] = words[i].id;
        trie->max_depth = piece.len_bytes > trie->max_depth ? (uint16_t)piece.len_bytes : trie->max_depth;
        before = piece;
    }
    for (size_t d = 0; d <= before.len_bytes; d++)
        trie->nodes[way[d]].skip = trie->n;
    trie->nodes[trie->n].ids = n_words;
    free(way);
    return 0;
}

static void trie_fini(struct trie *trie)
{
    free(trie->nodes);
    free(trie->ids);
}

static bool grammar_vocab_is_stop(const struct tokenizer *tokenizer, token_id id)
{
    size_t n;
    const token_id *stops = tokenizer_stop_ids(tokenizer, &n);

    for (size_t i = 0; i < n; i++)
        if (stops[i] == id)
            return true;
    return false;
}

/* The number of characters of a plain piece; 0: it is not plain. */
static uint32_t plain_chars(struct bytes piece)
{
    uint32_t n = 0;

    if (utf8_valid_prefix(piece) != piece.len_bytes)
        return 0;
    for (size_t i = 0; i < piece.len_bytes; i++) {
        if (piece.data[i] < 0x20 || piece.data[i] == '"' || piece.data[i] == '\\')
            return 0;
        n += (piece.data[i] & 0xc0) != 0x80;
    }
    return n;
}

static void sort_out(struct grammar_vocab *vocab, token_id id, struct bytes piece)
{
    uint32_t n_chars = plain_chars(piece);
    uint64_t bit = UINT64_C(1) << (id % 64);

    vocab->text[id / 64] |= bit;
    vocab->first_bytes[id] = piece.data[0];
    for (size_t i = 0; i < piece.len_bytes; i++)
        vocab->signatures[id] |= UINT64_C(1) << (piece.data[i] & 63);
    if (n_chars == 0)
        return;
    vocab->plain[id / 64] |= bit;
    vocab->n_chars[id] = (uint16_t)n_chars;
    vocab->max_chars = n_chars > vocab->max_chars ? n_chars : vocab->max_chars;
}

static int read_pieces(struct grammar_vocab *vocab)
{
    struct word *words = calloc((size_t)vocab->n_tokens + 1, sizeof(*words));
    uint32_t n = 0, n_special = 0;

    if (words == NULL)
        return E_NOMEM;
    for (token_id id = 0; id < vocab->n_tokens; id++) {
        struct bytes piece = tokenizer_piece(vocab->tokenizer, id);

        if (!tokenizer_is_text(vocab->tokenizer, id) || piece.len_bytes == 0 || piece.len_bytes > DEPTH_MAX ||
            grammar_vocab_is_stop(vocab->tokenizer, id))
            continue;
        sort_out(vocab, id, piece);
        words[n++] = (struct word){piece, id};
    }
    qsort(words, n, sizeof(*words), by_piece);
    int rc = trie_build(&vocab->all, words, n);
    for (uint32_t i = 0; i < n; i++)
        if (vocab->n_chars[words[i].id] == 0)
            words[n_special++] = words[i];
    if (rc == 0)
        rc = trie_build(&vocab->special, words, n_special);
    free(words);
    return rc;
}

int grammar_vocab_new(struct tokenizer *tokenizer, struct grammar_vocab **out)
{
    struct grammar_vocab *vocab = calloc(1, sizeof(*vocab));

    if (vocab == NULL)
        return E_NOMEM;
    atomic_init(&vocab->refs, 1);
    vocab->tokenizer = tokenizer_ref(tokenizer);
    vocab->n_tokens = tokenizer_vocab_size(tokenizer);
    vocab->n_words = (vocab->n_tokens + 63) / 64;
    vocab->plain = calloc(vocab->n_words + 1, sizeof(*vocab->plain));
    vocab->text = calloc(vocab->n_words + 1, sizeof(*vocab->text));
    vocab->n_chars = calloc((size_t)vocab->n_tokens + 1, sizeof(*vocab->n_chars));
    vocab->signatures = calloc((size_t)vocab->n_tokens + 1, sizeof(*vocab->signatures));
    vocab->first_bytes = calloc((size_t)vocab->n_tokens + 1, sizeof(*vocab->first_bytes));
    if (vocab->plain == NULL || vocab->text == NULL || vocab->n_chars == NULL || vocab->signatures == NULL ||
        vocab->first_bytes == NULL || read_pieces(vocab) != 0) {
        grammar_vocab_unref(vocab);
        return E_NOMEM;
    }
    *out = vocab;
    return 0;
}

struct grammar_vocab *grammar_vocab_hold(struct grammar_vocab *vocab)
{
    atomic_fetch_add_explicit(&vocab->refs, 1, memory_order_relaxed);
    return vocab;
}

void grammar_vocab_unref(struct grammar_vocab *vocab)
{
    if (vocab == NULL || atomic_fetch_sub_explicit(&vocab->refs, 1, memory_order_acq_rel) != 1)
        return;
    trie_fini(&vocab->all);
    trie_fini(&vocab->special);
    free(vocab->first_bytes);
    free(vocab->signatures);
    free(vocab->n_chars);
    free(vocab->text);
    free(vocab->plain);
    tokenizer_unref(vocab->tokenizer);
    free(vocab);
}
