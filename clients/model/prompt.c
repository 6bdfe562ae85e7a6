/* SPDX-License-Identifier: Apache-2.0 */
/* Prompts from the command line.  One function turns them into ids, so that logits, generate and their tests
 * agree. */
#include "clients/model/prompt.h"

#include "base/err.h"
#include "base/str.h"

enum { MAX_PROMPT = 1 << 24 };

static int prompt_read_ids(const char *text, struct fault *fault, struct token_ids *out)
{
    for (const char *at = text; *at != '\0';) {
        const char *end = at;
        uint64_t id;

        while (*end != '\0' && *end != ',' && *end != ' ')
            end++;
        if (end > at) {
            if (str_to_u64(bytes_of(at, (size_t)(end - at)), &id) < 0 || id >= TOKEN_NONE)
                return fault_set(fault, E_FORMAT, "\"%.*s\" is not a token id", (int)(end - at), at);
            if (token_ids_push(out, (token_id)id) < 0)
                return fault_set(fault, E_NOMEM, "no memory for the prompt");
        }
        at = *end == '\0' ? end : end + 1;
    }
    return 0;
}

static int read_chat(const struct prompt_source *source, const struct tokenizer *tokenizer,
                     struct fault *fault, struct token_ids *out)
{
    struct chat_message messages[2];
    struct chat_prompt prompt = {.messages = messages, .adds_generation = true};
    struct chat_format *format;
    int rc = chat_format_new(tokenizer, fault, &format);

    if (rc < 0)
        return rc;
    if (source->system)
        messages[prompt.n_messages++] =
            (struct chat_message){.role = CHAT_SYSTEM, .text = bytes_str(source->system)};
    messages[prompt.n_messages++] = (struct chat_message){.role = CHAT_USER, .text = bytes_str(source->chat)};
    struct fault inner = {0};
    rc = chat_render(format, &prompt, MAX_PROMPT, &inner, out);
    chat_format_free(format);
    return rc < 0 ? fault_set(fault, rc, "the prompt cannot be rendered: %s", inner.text) : 0;
}

static int prompt_read_text(const struct prompt_source *source, const struct tokenizer *tokenizer,
                            struct fault *fault, struct token_ids *out)
{
    unsigned flags = TOKEN_ADD_BOS | (source->parses_special ? TOKEN_PARSE_SPECIAL : 0u);
    int rc = tokenizer_encode(tokenizer, bytes_str(source->text), flags, MAX_PROMPT, out);

    return rc < 0 ? fault_set(fault, rc, "the prompt cannot be tokenised: %s", err_text(rc)) : 0;
}

int prompt_read(const struct prompt_source *source, const struct tokenizer *tokenizer, struct fault *fault,
                struct token_ids *out)
{
    int rc;

    if ((source->ids != NULL) + (source->text != NULL) + (source->chat != NULL) != 1)
        return fault_set(fault, E_INVAL, "give one prompt, not none or several");
    if (source->system && !source->chat)
        return fault_set(fault, E_INVAL, "--system goes with --chat");
    if (!source->ids && tokenizer == NULL)
        return fault_set(fault, E_UNSUPPORTED, "this file's tokeniser cannot be used (%s); give token ids",
                         source->refusal.text);
    if (source->ids)
        rc = prompt_read_ids(source->ids, fault, out);
    else if (source->chat)
        rc = read_chat(source, tokenizer, fault, out);
    else
        rc = prompt_read_text(source, tokenizer, fault, out);
    if (rc == 0 && out->n == 0)
        rc = fault_set(fault, E_INVAL, "the prompt has no tokens");
    return rc;
}
