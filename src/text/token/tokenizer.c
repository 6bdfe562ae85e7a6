/* SPDX-License-Identifier: Apache-2.0 */
/* The tokenizer as an object: its family, its construction and its queries.
 *
 * Two families cover the supported models: SentencePiece's byte pair encoding ("llama") and GPT-2's
 * byte-level one ("gpt2"). The second needs a rule for cutting words, which the file names in
 * tokenizer.ggml.pre. "gemma4" is SentencePiece's with a list of merges, like GPT-2's, instead of scores. An unknown name is refused, and the fault lists the known ones: a guessed rule would
 * make answers slightly worse, with no visible cause.
 *
 * The object is immutable after construction. Server loops and their jobs share it by reference count. */
#include "text/token/tokenizer_priv.h"

#include "base/check.h"
#include "base/err.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Models that take a whole word as one token, without merging, if it is one. The prompts of most begin with BOS
 * unless the file says otherwise. */
static void choose_word_rule(struct tokenizer *tokenizer, struct bytes name)
{
    static const struct {
        const char *name;
        bool adds_bos;
    } rows[] = {{"llama-bpe", true}, {"llama3", true}, {"llama-v3", true}, {"falcon3", true},
                {"falcon-h1", true}, {"lfm2", true},   {"tekken", true},   {"pixtral", true},
                {"midm-2.0", true},  {"youtu", false}, {"minicpm5", false}};

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        if (!bytes_is(name, rows[i].name))
            continue;
        tokenizer->ignores_merges = true;
        tokenizer->adds_bos = rows[i].adds_bos;
    }
}

static int choose_rule(struct tokenizer *tokenizer, const struct gguf *gguf, struct fault *fault)
{
    struct bytes name = bytes_str("default");
    struct buf known = {0};

    int rc = gguf_get_str(gguf, "tokenizer.ggml.pre", fault, &name);
    if (rc != 0 && rc != E_NOT_FOUND)
        return rc;
    const char *known_name;
    for (uint32_t i = 0; (known_name = pretok_rule_name(i, &tokenizer->pretok)) != NULL; i++) {
        if (bytes_is(name, known_name)) {
            choose_word_rule(tokenizer, name);
            buf_fini(&known);
            return 0;
        }
        buf_printf(&known, "%s%s", i == 0 ? "" : ", ", known_name);
    }
    rc = fault_set(fault, E_UNSUPPORTED,
                   "pre-tokenizer '%.*s' (tokenizer.ggml.pre) is not known; known are: %s",
                   name.len_bytes > 64 ? 64 : (int)name.len_bytes, (const char *)name.data,
                   known.is_bad ? "?" : (const char *)known.data);
    buf_fini(&known);
    return rc;
}

static int choose_family(struct tokenizer *tokenizer, const struct gguf *gguf, struct fault *fault)
{
    struct bytes name;
    int rc = gguf_check_model(gguf, fault);

    if (rc == 0)
        rc = gguf_get_str(gguf, "tokenizer.ggml.model", fault, &name);
    if (rc != 0)
        return rc;
    if (bytes_is(name, "llama")) {
        tokenizer->family = TOKEN_FAMILY_SPM;
        tokenizer->adds_bos = tokenizer->adds_space_prefix = true;
        return 0;
    }
    if (bytes_is(name, "gemma4")) {
        tokenizer->family = TOKEN_FAMILY_SPM;
        tokenizer->has_merges = tokenizer->adds_bos = true;
        return 0;
    }
    if (bytes_is(name, "gpt2")) {
        tokenizer->family = TOKEN_FAMILY_BPE;
        return choose_rule(tokenizer, gguf, fault);
    }
    return fault_set(
        fault, E_UNSUPPORTED,
        "tokenizer '%.*s' (tokenizer.ggml.model) is not known; known are: llama (SentencePiece), "
        "gemma4 (the same with merges), gpt2 (byte-level BPE)",
        name.len_bytes > 64 ? 64 : (int)name.len_bytes, (const char *)name.data);
}

static int read_switch(const struct gguf *gguf, const char *key, struct fault *fault, bool *out)
{
    int rc = gguf_get_bool(gguf, key, fault, out);

    return rc == E_NOT_FOUND ? 0 : rc;
}

static int tokenizer_read_text(const struct gguf *gguf, const char *key, struct fault *fault, struct buf *out)
{
    struct bytes text;
    int rc = gguf_get_str(gguf, key, fault, &text);

    if (rc == E_NOT_FOUND)
        return 0;
    if (rc != 0)
        return rc;
    return buf_append(out, text.data, text.len_bytes) == 0 ? 0 : fault_set(fault, E_NOMEM, "out of memory");
}

/* Reads a whole number whose key begins with the architecture's name. An absent key leaves *out alone. */
static int read_arch_number(const struct gguf *gguf, const char *suffix, struct fault *fault, uint64_t *out)
{
    struct bytes arch;
    char key[128];

    if (gguf_get_str(gguf, "general.architecture", NULL, &arch) != 0 || arch.len_bytes > 64)
        return 0;
    snprintf(key, sizeof(key), "%.*s.%s", (int)arch.len_bytes, (const char *)arch.data, suffix);
    int rc = gguf_get_u64(gguf, key, fault, out);
    return rc == E_NOT_FOUND ? 0 : rc;
}

static int tokenizer_read_all(struct tokenizer *tokenizer, const struct gguf *gguf, struct fault *fault)
{
    int rc = choose_family(tokenizer, gguf, fault);

    if (rc == 0)
        rc = read_switch(gguf, "tokenizer.ggml.add_bos_token", fault, &tokenizer->adds_bos);
    if (rc == 0)
        rc = read_switch(gguf, "tokenizer.ggml.add_eos_token", fault, &tokenizer->adds_eos);
    if (rc == 0 && tokenizer->family == TOKEN_FAMILY_SPM)
        rc = read_switch(gguf, "tokenizer.ggml.add_space_prefix", fault, &tokenizer->adds_space_prefix);
    if (rc == 0)
        rc = vocab_read(tokenizer, gguf, fault);
    if (rc == 0 && tokenizer->family == TOKEN_FAMILY_SPM)
        rc = pieces_read(tokenizer, gguf, fault);
    if (rc == 0 && (tokenizer->family == TOKEN_FAMILY_BPE || tokenizer->has_merges))
        rc = merges_read(tokenizer, gguf, fault);
    if (rc == 0)
        rc = tokenizer_read_text(gguf, "tokenizer.chat_template", fault, &tokenizer->chat_template);
    if (rc == 0)
        rc = tokenizer_read_text(gguf, "tokenizer.chat_template.tool_use", fault, &tokenizer->tool_template);
    if (rc == 0)
        rc = read_arch_number(gguf, "context_length", fault, &tokenizer->context_length);
    if (rc == 0)
        rc = read_arch_number(gguf, "pooling_type", fault, &tokenizer->pooling);
    return rc;
}

int tokenizer_new(const struct gguf *gguf, struct fault *fault, struct tokenizer **out)
{
    struct tokenizer *tokenizer = calloc(1, sizeof(*tokenizer));

    if (tokenizer == NULL)
        return fault_set(fault, E_NOMEM, "out of memory");
    atomic_init(&tokenizer->refs, 1);
    int rc = tokenizer_read_all(tokenizer, gguf, fault);
    if (rc != 0) {
        tokenizer_unref(tokenizer);
        return rc;
    }
    *out = tokenizer;
    return 0;
}

int tokenizer_new_from_image(struct bytes image, struct fault *fault, struct tokenizer **out)
{
    struct gguf *gguf;
    int rc = gguf_open_memory(image, fault, &gguf);

    if (rc != 0)
        return rc;
    rc = tokenizer_new(gguf, fault, out);
    gguf_close(gguf);
    return rc;
}

struct tokenizer *tokenizer_ref(struct tokenizer *tokenizer)
{
    atomic_fetch_add_explicit(&tokenizer->refs, 1, memory_order_relaxed);
    return tokenizer;
}

void tokenizer_unref(struct tokenizer *tokenizer)
{
    if (tokenizer == NULL || atomic_fetch_sub_explicit(&tokenizer->refs, 1, memory_order_acq_rel) != 1)
        return;
    vocab_fini(tokenizer);
    pieces_fini(tokenizer);
    pairs_fini(&tokenizer->pairs);
    buf_fini(&tokenizer->chat_template);
    buf_fini(&tokenizer->tool_template);
    free(tokenizer);
}

uint32_t tokenizer_vocab_size(const struct tokenizer *tokenizer)
{
    return tokenizer->n_tokens;
}

struct bytes tokenizer_piece(const struct tokenizer *tokenizer, token_id id)
{
    return id < tokenizer->n_tokens ? pool_get(&tokenizer->pieces, id) : (struct bytes){0};
}

bool tokenizer_is_control(const struct tokenizer *tokenizer, token_id id)
{
    return id < tokenizer->n_tokens && tokenizer->types[id] == TOKEN_CONTROL;
}

bool tokenizer_is_text(const struct tokenizer *tokenizer, token_id id)
{
    uint8_t type = id < tokenizer->n_tokens ? tokenizer->types[id] : (uint8_t)TOKEN_UNUSED;

    return type != TOKEN_CONTROL && type != TOKEN_UNKNOWN && type != TOKEN_UNUSED;
}

token_id tokenizer_bos(const struct tokenizer *tokenizer)
{
    return tokenizer->bos;
}

token_id tokenizer_eos(const struct tokenizer *tokenizer)
{
    return tokenizer->eos;
}

bool tokenizer_adds_bos(const struct tokenizer *tokenizer)
{
    return tokenizer->adds_bos && tokenizer->bos != TOKEN_NONE;
}

const token_id *tokenizer_stop_ids(const struct tokenizer *tokenizer, size_t *n_out)
{
    *n_out = tokenizer->n_stop_ids;
    return tokenizer->stop_ids;
}

struct bytes tokenizer_chat_template(const struct tokenizer *tokenizer)
{
    return buf_view(&tokenizer->chat_template);
}

struct bytes tokenizer_tool_template(const struct tokenizer *tokenizer)
{
    return buf_view(&tokenizer->tool_template);
}

bool tokenizer_is_embedding_model(const struct tokenizer *tokenizer)
{
    return tokenizer->pooling == GGUF_POOLING_LAST;
}

uint64_t tokenizer_context_length(const struct tokenizer *tokenizer)
{
    return tokenizer->context_length;
}
