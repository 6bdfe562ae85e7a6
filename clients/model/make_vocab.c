/* SPDX-License-Identifier: Apache-2.0 */
/* A vocabulary for a model that was never trained, good enough to serve and measure it.
 *
 * It is a byte-level BPE as GPT-2's: the 256 bytes, each spelled as one printable character; then merges; then
 * ChatML's control tokens.  The merges are made up from the letters by their frequency in English, in three
 * rounds.  So a text has about as many tokens as with a real vocabulary of a small size:
 *
 *     round 1   symbol + letter   27 x 26           "t h", " t"   (a symbol is a letter or a word's blank)
 *     round 2   pair + letter     702 x 26          "th e"
 *     round 3   pair + pair       702 x 676         "th is"       (the second pair has no blank)
 *
 * Both halves of every merge are entries themselves, as a tokeniser demands. */
#include "clients/model/make_priv.h"

#include "base/arena.h"
#include "base/err.h"
#include "base/str.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char LETTERS[] = "etaoinshrdlucmfwypvbgkjqxz";
static const char BLANK[] = "\xc4\xa0"; /* how the byte 0x20 is spelled */

enum {
    N_LETTERS = 26,
    N_PAIRS = (N_LETTERS + 1) * N_LETTERS, /* those that begin with the blank come last */
    N_PLAIN_PAIRS = N_LETTERS * N_LETTERS,
    N_TRIPLES = N_PAIRS * N_LETTERS,
    N_QUADS = N_PAIRS * N_PLAIN_PAIRS
};

static const char TEMPLATE[] = "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
                               "{{ message['content'] }}<|im_end|>\n"
                               "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n"
                               "{% endif %}";

uint32_t make_max_vocab(void)
{
    return MAKE_MIN_VOCAB + N_PAIRS + N_TRIPLES + N_QUADS;
}

/* GPT-2's alphabet: visible bytes map to themselves, the others to code points from 256 on. */
static uint32_t byte_spelling(uint8_t byte)
{
    uint32_t hidden = 0;

    for (unsigned b = 0; b <= byte; b++) {
        bool is_visible = (b >= 33 && b <= 126) || (b >= 161 && b != 173);

        if (b == byte)
            return is_visible ? b : 256 + hidden;
        hidden += !is_visible;
    }
    return byte;
}

static void spell_symbol(unsigned symbol, char out[8])
{
    if (symbol == N_LETTERS)
        strcpy(out, BLANK);
    else
        snprintf(out, 8, "%c", LETTERS[symbol]);
}

static void spell_pair(unsigned pair, char out[8])
{
    spell_symbol(pair / N_LETTERS, out);
    strncat(out, &LETTERS[pair % N_LETTERS], 1);
}

static void make_vocab_merge_at(uint32_t index, char left[8], char right[8])
{
    if (index < N_PAIRS) {
        spell_symbol(index / N_LETTERS, left);
        spell_symbol(index % N_LETTERS, right);
    } else if (index - N_PAIRS < N_TRIPLES) {
        spell_pair((index - N_PAIRS) / N_LETTERS, left);
        spell_symbol((index - N_PAIRS) % N_LETTERS, right);
    } else {
        spell_pair((index - N_PAIRS - N_TRIPLES) / N_PLAIN_PAIRS, left);
        spell_pair((index - N_PAIRS - N_TRIPLES) % N_PLAIN_PAIRS, right);
    }
}

struct lists {
    struct arena text;
    struct bytes *tokens; /* [vocab] */
    struct bytes *merges; /* [vocab - MAKE_MIN_VOCAB] */
    int32_t *types;       /* [vocab] */
};

static struct bytes make_vocab_keep(struct lists *lists, const char *text)
{
    struct bytes view = bytes_str(text);

    view.data = (const uint8_t *)arena_str(&lists->text, view);
    if (view.data == NULL)
        view.len_bytes = 0;
    return view;
}

static void fill_lists(struct lists *lists, uint32_t vocab)
{
    static const char *const CONTROL[] = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
    uint32_t n_merges = vocab - MAKE_MIN_VOCAB, n = 0;
    char left[8], right[8], whole[24];

    for (unsigned byte = 0; byte < 256; byte++) {
        uint8_t spelled[8] = {0};

        utf8_put(byte_spelling((uint8_t)byte), spelled);
        lists->types[n] = 1; /* a normal token */
        lists->tokens[n++] = make_vocab_keep(lists, (const char *)spelled);
    }
    for (uint32_t i = 0; i < n_merges; i++) {
        make_vocab_merge_at(i, left, right);
        snprintf(whole, sizeof(whole), "%s %s", left, right);
        lists->merges[i] = make_vocab_keep(lists, whole);
        snprintf(whole, sizeof(whole), "%s%s", left, right);
        lists->types[n] = 1;
        lists->tokens[n++] = make_vocab_keep(lists, whole);
    }
    for (size_t i = 0; i < 3; i++) {
        lists->types[n] = 3; /* a control token */
        lists->tokens[n++] = make_vocab_keep(lists, CONTROL[i]);
    }
}

static int put_lists(struct gguf_writer *writer, const struct lists *lists, uint32_t vocab)
{
    int rc = gguf_put_str(writer, "tokenizer.ggml.model", bytes_str("gpt2"));

    if (rc == 0)
        rc = gguf_put_str(writer, "tokenizer.ggml.pre", bytes_str("gpt-2"));
    if (rc == 0)
        rc = gguf_put_str_array(writer, "tokenizer.ggml.tokens", lists->tokens, vocab);
    if (rc == 0)
        rc = gguf_put_i32_array(writer, "tokenizer.ggml.token_type", lists->types, vocab);
    if (rc == 0)
        rc = gguf_put_str_array(writer, "tokenizer.ggml.merges", lists->merges, vocab - MAKE_MIN_VOCAB);
    if (rc == 0)
        rc = gguf_put_u32(writer, "tokenizer.ggml.bos_token_id", vocab - 3);
    if (rc == 0)
        rc = gguf_put_u32(writer, "tokenizer.ggml.eos_token_id", vocab - 1);
    if (rc == 0)
        rc = gguf_put_bool(writer, "tokenizer.ggml.add_bos_token", false);
    if (rc == 0)
        rc = gguf_put_str(writer, "tokenizer.chat_template", bytes_str(TEMPLATE));
    return rc;
}

int make_vocabulary(struct gguf_writer *writer, uint32_t vocab)
{
    struct lists lists = {.tokens = calloc(vocab, sizeof(struct bytes)),
                          .merges = calloc(vocab, sizeof(struct bytes)),
                          .types = calloc(vocab, sizeof(int32_t))};
    int rc = E_NOMEM;

    arena_init(&lists.text, 0);
    if (lists.tokens && lists.merges && lists.types) {
        fill_lists(&lists, vocab);
        if (lists.tokens[vocab - 1].len_bytes > 0) /* memory ran out nowhere before */
            rc = put_lists(writer, &lists, vocab);
    }
    arena_fini(&lists.text);
    free(lists.tokens);
    free(lists.merges);
    free(lists.types);
    return rc;
}
