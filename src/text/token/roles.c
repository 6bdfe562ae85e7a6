/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the tokens with a role: BOS, EOS, the unknown token, and those that end an answer.
 *
 * Files name few ends, and many models have several: one for a turn, one for a turn with calls, one for a document. An
 * answer that misses its end runs on into the next turn. So known spellings count as ends too, wherever they are control
 * tokens or user-defined ones. A model that fills in the middle of a text begins the next file or repository with a
 * token of its own, which ends the answer as well. */
#include "text/token/tokenizer_priv.h"

#include "base/check.h"
#include "base/err.h"

#include <stdlib.h>

/* Keys of ends besides EOS. */
static const char *const end_keys[] = {
    "tokenizer.ggml.eot_token_id", /* of a turn */
    "tokenizer.ggml.eom_token_id", /* of a message that calls tools */
    "tokenizer.ggml.fim_pad_token_id", /* of a text that fills in the middle; the next repository, the next file */
    "tokenizer.ggml.fim_rep_token_id", "tokenizer.ggml.fim_sep_token_id",
};

#define DEEPSEEK_END                                                                                         \
    "<\xef\xbd\x9c"                                                                                          \
    "end\xe2\x96\x81of\xe2\x96\x81sentence\xef\xbd\x9c>"

static const char *const ends[] = {
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end|>",
    "</s>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<end_of_turn>",
    "<end_of_utterance>",
    "<eos>",
    "<EOT>",
    "_<EOT>",
    "\xe2\x96\x81<EOT>",
    "[EOT]",
    "[EOS]",
    DEEPSEEK_END,
    "<|eot|>", /* Llama 4 */
    "<|eom|>",
    "<|call|>", /* harmony */
    "<|return|>",
    "<|calls|>", /* Solar Open */
    "<|flush|>",
    "<turn|>", /* Gemma 4 */
    "<|tool_response>",
    "<|observation|>",   /* GLM */
    "<|role_end|>",      /* Ling 2 */
    "[e~[",              /* MiniMax M2 */
    "<end_of_sentence>", /* MiniMax M1 */
    "<|im:end|>",        /* Solar Open 2 */
    "<|end_of_msg|>",    /* Kimi K3 */
    "<|assistant_end|>", /* Apertus */
    "<|tools_suffix|>",
    "<|fim_pad|>", /* fill in the middle */
    "<fim-pad>",
    "<fim_pad>",
    "<|fim_repo|>",
    "<|repo_name|>",
    "<fim-repo>",
    "<reponame>",
    "<|file_sep|>",
};

/* 2^32 - 1 is a converter's word for "none". */
static int roles_read_one(const struct tokenizer *tokenizer, const struct gguf *gguf, const char *key,
                          struct fault *fault, token_id *out)
{
    uint64_t id;
    int rc = gguf_get_u64(gguf, key, fault, &id);

    if (rc == E_NOT_FOUND || (rc == 0 && id == TOKEN_NONE))
        return 0;
    if (rc != 0)
        return rc;
    if (id >= tokenizer->n_tokens)
        return fault_set(fault, E_FORMAT, "key '%s': there is no token %llu, only %u tokens", key,
                         (unsigned long long)id, tokenizer->n_tokens);
    *out = (token_id)id;
    return 0;
}

static void roles_add_stop(struct tokenizer *tokenizer, token_id id)
{
    for (size_t i = 0; i < tokenizer->n_stop_ids; i++) {
        if (tokenizer->stop_ids[i] == id)
            return;
    }
    if (id != TOKEN_NONE)
        tokenizer->stop_ids[tokenizer->n_stop_ids++] = id;
}

static bool roles_has(const struct tokenizer *tokenizer, const char *spelling)
{
    return tokenizer_find(tokenizer, bytes_str(spelling)) != TOKEN_NONE;
}

/* Returns <|end|> if it ends a message and the answer continues with the next message: in harmony, and in Solar Open. */
static token_id message_end(const struct tokenizer *tokenizer)
{
    bool has_messages = roles_has(tokenizer, "<|channel|>") ||
                        (roles_has(tokenizer, "<|calls|>") && roles_has(tokenizer, "<|flush|>"));

    return has_messages ? tokenizer_find(tokenizer, bytes_str("<|end|>")) : TOKEN_NONE;
}

/* Some vocabularies have tags of HTML as user-defined tokens, so </s> must be a control token. */
static bool is_end(const struct tokenizer *tokenizer, token_id id)
{
    return tokenizer->types[id] == TOKEN_CONTROL ||
           (tokenizer->types[id] == TOKEN_USER && !bytes_is(pool_get(&tokenizer->spellings, id), "</s>"));
}

static int read_ends(struct tokenizer *tokenizer, const struct gguf *gguf, struct fault *fault)
{
    token_id no_end = message_end(tokenizer);

    tokenizer->stop_ids = calloc(1 + ARRAY_LEN(end_keys) + ARRAY_LEN(ends), sizeof(*tokenizer->stop_ids));
    if (tokenizer->stop_ids == NULL)
        return fault_set(fault, E_NOMEM, "out of memory");
    roles_add_stop(tokenizer, tokenizer->eos);
    for (size_t i = 0; i < ARRAY_LEN(end_keys); i++) {
        token_id id = TOKEN_NONE;
        struct fault inner = {0};
        int rc = roles_read_one(tokenizer, gguf, end_keys[i], i == 0 ? fault : &inner, &id);

        if (rc != 0 && i == 0) /* the other keys may be left over from a longer vocabulary */
            return rc;
        if (id != no_end)
            roles_add_stop(tokenizer, id);
    }
    for (size_t i = 0; i < ARRAY_LEN(ends); i++) {
        token_id id = tokenizer_find(tokenizer, bytes_str(ends[i]));

        if (id != TOKEN_NONE && id != no_end && is_end(tokenizer, id))
            roles_add_stop(tokenizer, id);
    }
    return 0;
}

int roles_read(struct tokenizer *tokenizer, const struct gguf *gguf, struct fault *fault)
{
    tokenizer->bos = tokenizer->eos = tokenizer->unknown = TOKEN_NONE;
    int rc = roles_read_one(tokenizer, gguf, "tokenizer.ggml.bos_token_id", fault, &tokenizer->bos);

    if (rc == 0)
        rc = roles_read_one(tokenizer, gguf, "tokenizer.ggml.eos_token_id", fault, &tokenizer->eos);
    if (rc == 0)
        rc = roles_read_one(tokenizer, gguf, "tokenizer.ggml.unknown_token_id", fault, &tokenizer->unknown);
    return rc == 0 ? read_ends(tokenizer, gguf, fault) : rc;
}
