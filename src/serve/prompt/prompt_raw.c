/* SPDX-License-Identifier: Apache-2.0 */
/* Prompts without a conversation, and the answers of /tokenize and /detokenize: a model's text and tokens
 * without a chat format.  Pure; any thread. */
#include "serve/api/render_openai.h"
#include "base/err.h"
#include "serve/prompt/constraint.h"
#include "serve/prompt/prompt.h"

static int no_memory(struct api_error *error)
{
    api_fail(error, 503, "out of memory");
    return E_NOMEM;
}

static int prompt_raw_check_tokens(const struct gen_model *model, const struct gen_prompt *from,
                                   struct api_error *error)
{
    uint32_t vocab_size = tokenizer_vocab_size(model->tokenizer);

    for (size_t i = 0; i < from->n_tokens; i++)
        if (from->tokens[i] >= vocab_size)
            return api_fail(error, 400, "token %u is not in the model's vocabulary of %u", from->tokens[i],
                            vocab_size);
    return 0;
}

static int prompt_raw_put_text(const struct gen_model *model, const struct gen_prompt *from, struct buf *out)
{
    struct detok detok;
    int rc = 0;

    if (from->tokens == NULL)
        return buf_append(out, from->text.data, from->text.len_bytes);
    detok_init(&detok, model->tokenizer, true);
    for (size_t i = 0; i < from->n_tokens && rc == 0; i++)
        rc = detok_push(&detok, from->tokens[i], out);
    detok_finish(&detok);
    return rc;
}

int prompt_make_raw(const struct gen_model *model, const struct gen_request *request, size_t index,
                    struct prompt *out, struct api_error *error)
{
    const struct gen_prompt *from = &request->prompts[index];
    unsigned flags = !request->adds_special          ? 0
                     : request->work.wants_embedding ? TOKEN_ADD_BOS | TOKEN_ADD_EOS
                                                     : TOKEN_ADD_BOS;
    struct prompt prompt = {0};
    int rc = prompt_raw_check_tokens(model, from, error);

    if (rc < 0)
        return rc;
    if (from->tokens != NULL)
        rc = token_ids_append(&prompt.ids, from->tokens, from->n_tokens);
    else
        rc = tokenizer_encode(model->tokenizer, from->text, flags, PROMPT_MAX_TOKENS, &prompt.ids);
    if (rc == 0 && request->echoes)
        rc = prompt_raw_put_text(model, from, &prompt.text);
    if (rc < 0) {
        prompt_fini(&prompt);
        return rc == E_NOMEM ? no_memory(error) : api_fail(error, 400, "prompt: too many tokens");
    }
    rc = index == 0 ? constraint_make(model, request, false, &prompt.constraint, error) : 0;
    if (rc < 0) {
        prompt_fini(&prompt);
        return rc;
    }
    *out = prompt;
    return 0;
}

int prompt_put_tokens(const struct gen_model *model, const struct prompt *prompt, struct buf *out,
                      struct api_error *error)
{
    return api_put_tokens(out, prompt->ids.ids, prompt->ids.n, model->context_length) < 0 ? no_memory(error)
                                                                                          : 0;
}

int prompt_put_detokenized(const struct gen_model *model, const struct gen_request *request, struct buf *out,
                           struct api_error *error)
{
    struct buf text = {0};
    int rc = prompt_raw_check_tokens(model, &request->prompts[0], error);

    if (rc < 0)
        return rc;
    rc = prompt_raw_put_text(model, &request->prompts[0], &text);
    if (rc == 0)
        rc = api_put_detokenized(out, buf_view(&text));
    buf_fini(&text);
    return rc < 0 ? no_memory(error) : 0;
}
