/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: a constraint and any tokens under it.
 *
 *     constraint | NUL | one byte a token
 *
 * A mask agrees with accept.  A token accepted within tokens_left can be completed within them.  After undoing
 * tokens the masks are the same.  A forced token is the only allowed one. */
#include "text/grammar/grammar_run_priv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/err.h"
#include "gguf/write.h"

#define N_TOKENS 272u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct grammar_vocab *vocab;

/* <unk> <s> </s>, the bytes, and some longer tokens. */
static void open_vocab(void)
{
    static const char *const more[N_TOKENS - 259] = {"\",", "\":", "{\"", "\"}",    "true", "null", "abc",
                                                     "12",  "]]",  "\\u", "\", \"", "\n  ", "é"};
    static char spellings[N_TOKENS][16];
    struct bytes texts[N_TOKENS];
    int32_t types[N_TOKENS];
    float scores[N_TOKENS] = {0};
    struct gguf_writer *writer;
    struct tokenizer *tokenizer;
    struct fault fault = {0};
    struct buf image = {0};

    for (uint32_t i = 0; i < N_TOKENS; i++) {
        types[i] = i == 0 ? 2 : i < 3 ? 3 : i < 259 ? 6 : 1;
        if (i < 3)
            snprintf(spellings[i], sizeof(spellings[i]), "%s", i == 0 ? "<unk>" : i == 1 ? "<s>" : "</s>");
        else if (i < 259)
            snprintf(spellings[i], sizeof(spellings[i]), "<0x%02X>", i - 3);
        else
            snprintf(spellings[i], sizeof(spellings[i]), "%s", more[i - 259]);
        texts[i] = bytes_str(spellings[i]);
    }
    ASSERT(gguf_writer_new(&writer) == 0);
    ASSERT(gguf_put_str(writer, "tokenizer.ggml.model", bytes_str("llama")) == 0);
    ASSERT(gguf_put_f32_array(writer, "tokenizer.ggml.scores", scores, N_TOKENS) == 0);
    ASSERT(gguf_put_u32(writer, "tokenizer.ggml.unknown_token_id", 0) == 0);
    ASSERT(gguf_put_u32(writer, "tokenizer.ggml.bos_token_id", 1) == 0);
    ASSERT(gguf_put_u32(writer, "tokenizer.ggml.eos_token_id", 2) == 0);
    ASSERT(gguf_put_str_array(writer, "tokenizer.ggml.tokens", texts, N_TOKENS) == 0);
    ASSERT(gguf_put_i32_array(writer, "tokenizer.ggml.token_type", types, N_TOKENS) == 0);
    ASSERT(gguf_writer_header(writer, &image) == 0);
    gguf_writer_free(writer);
    ASSERT(tokenizer_new_from_image(buf_view(&image), &fault, &tokenizer) == 0);
    ASSERT(grammar_vocab_new(tokenizer, &vocab) == 0);
    tokenizer_unref(tokenizer);
    buf_fini(&image);
}

static bool is_set(const uint64_t *mask, token_id id)
{
    return mask[id / 64] >> (id % 64) & 1;
}

static uint32_t needed(const struct grammar_run *run)
{
    return mask_tokens_to_end(run->grammar, run->steps[run->n_steps - 1].state);
}

static void go(struct grammar_run *run, const uint8_t *data, size_t size)
{
    const uint32_t n_words = (N_TOKENS + 63) / 64;
    uint32_t left = (uint32_t)(size < 200 ? size : 200), n_accepted = 0;
    uint64_t kept[(N_TOKENS + 63) / 64];
    token_id forced[4];

    for (size_t i = 0; i < size && left > 0; i++, left--) {
        bool is_possible = needed(run) <= left;
        memcpy(kept, grammar_mask(run, left), n_words * sizeof(*kept));
        uint32_t n_forced = grammar_forced(run, forced, 4);
        token_id id = (token_id)(data[i] * 7u + i) % N_TOKENS, tries = 0;

        while (!is_set(kept, id) && ++tries < N_TOKENS)
            id = (id + 1) % N_TOKENS;
        if (tries == N_TOKENS)
            break;
        ASSERT(n_forced == 0 || id == forced[0]);
        ASSERT(grammar_accept(run, id) == 0);
        n_accepted++;
        ASSERT(!is_possible || needed(run) <= left - 1);
        if (data[i] % 16 == 3) { /* take it back and do it again */
            grammar_rewind(run, 1);
            ASSERT(memcmp(kept, grammar_mask(run, left), n_words * sizeof(*kept)) == 0);
            ASSERT(grammar_accept(run, id) == 0);
        } else if (data[i] % 16 == 5) {
            grammar_rewind(run, n_accepted);
            n_accepted = 0;
            left = left < 3 ? left : 3; /* a state at the start may need more than is left */
        } else if (data[i] % 16 == 6) {
            grammar_commit(run);
            n_accepted = 0;
        } else if (data[i] % 16 == 7) { /* any token: as the widest mask says */
            token_id other = (token_id)(data[i] + i * 3) % N_TOKENS;
            bool is_allowed = is_set(grammar_mask(run, UINT32_MAX), other);
            bool is_accepted = grammar_accept(run, other) == 0;
            const struct grammar_step *now = &run->steps[run->n_steps - 1 - is_accepted];
            const struct mask *mask = mask_of(run->grammar, now->state);
            ASSERT(is_allowed == is_accepted || (mask != NULL && mask->is_cut));
            if (is_accepted)
                grammar_rewind(run, 1);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *end = size == 0 ? NULL : memchr(data, 0, size);
    size_t len_bytes = end == NULL ? size : (size_t)(end - data);
    struct grammar *grammar;
    struct grammar_run *run;
    struct fault fault = {0};

    if (vocab == NULL)
        open_vocab();
    if (grammar_new(vocab, bytes_of(data, len_bytes), &fault, &grammar) != 0) {
        ASSERT(fault.code == E_FORMAT || fault.code == E_UNSUPPORTED || fault.code == E_LIMIT);
        return 0;
    }
    ASSERT(grammar_run_new(grammar, &run) == 0);
    if (end != NULL)
        go(run, end + 1, size - len_bytes - 1);
    grammar_run_free(run);
    grammar_unref(grammar);
    return 0;
}
