/* SPDX-License-Identifier: Apache-2.0 */
/* Chat formats: choosing one for a model, and rendering with it.
 *
 *     messages, tools --format--> text with authors --encode--> ids
 *
 * The format is chosen once per model (template.c); rendering is a pure function of format and prompt.
 * Spelling out the markers as text first and finding them again as tokens costs little and keeps one code
 * path for people, tests and models; the authors of the bytes keep it safe (chat_text.c).
 *
 * That safety stands on <|im_start|> and <|im_end|> being tokens that text cannot spell.  A model whose
 * vocabulary lacks them would see turns as ordinary characters that anybody can write, so it is refused.
 */
#include "token/chat_priv.h"

#include "base/check.h"
#include "base/err.h"

#include <stdlib.h>

static int check_markers(const struct tokenizer *tokenizer, struct fault *fault)
{
    static const char *const needed[] = {"<|im_start|>", "<|im_end|>"};

    for (size_t i = 0; i < ARRAY_LEN(needed); i++) {
        token_id id = tokenizer_find(tokenizer, bytes_str(needed[i]));

        if (id == TOKEN_NONE || (tokenizer->types[id] != TOKEN_CONTROL && tokenizer->types[id] != TOKEN_USER))
            return fault_set(fault, E_UNSUPPORTED,
                             "the chat template uses %s, which is not a control token of the vocabulary",
                             needed[i]);
    }
    return 0;
}

int chat_format_new(const struct tokenizer *tokenizer, struct fault *fault, struct chat_format **out)
{
    struct chat_format *format = calloc(1, sizeof(*format));

    if (format == NULL)
        return fault_set(fault, E_NOMEM, "out of memory");
    int rc = template_read(tokenizer_chat_template(tokenizer), fault, format);
    if (rc == 0)
        rc = check_markers(tokenizer, fault);
    if (rc != 0) {
        chat_format_free(format);
        return rc;
    }
    /* Counting is the one thing that changes in a tokenizer; who holds one may hold it for longer. */
    format->tokenizer = tokenizer_ref((struct tokenizer *)tokenizer);
    *out = format;
    return 0;
}

void chat_format_free(struct chat_format *format)
{
    if (format == NULL)
        return;
    tokenizer_unref(format->tokenizer);
    buf_fini(&format->default_system);
    buf_fini(&format->generation);
    free(format);
}

const char *chat_format_name(const struct chat_format *format)
{
    switch (format->dialect) {
    case CHAT_CHATML:
        return "chatml";
    case CHAT_QWEN2_5:
        return "hermes (qwen2.5)";
    case CHAT_QWEN3:
        return "hermes (qwen3)";
    case CHAT_HERMES3:
        return "hermes (hermes-3)";
    }
    return "unknown";
}

bool chat_format_has_tools(const struct chat_format *format)
{
    return format->dialect != CHAT_CHATML;
}

const char *chat_role_name(enum chat_role role)
{
    switch (role) {
    case CHAT_SYSTEM:
        return "system";
    case CHAT_USER:
        return "user";
    case CHAT_ASSISTANT:
        return "assistant";
    case CHAT_TOOL:
        return "tool";
    }
    return "user";
}

bool chat_is_role(const struct chat_prompt *prompt, size_t i, enum chat_role role)
{
    return i < prompt->n_messages && prompt->messages[i].role == role;
}

bool chat_stays_open(const struct chat_prompt *prompt, size_t i)
{
    return prompt->continues_last && i + 1 == prompt->n_messages && chat_is_role(prompt, i, CHAT_ASSISTANT);
}

static bool wants_tools(const struct chat_prompt *prompt)
{
    bool wants = prompt->n_tools > 0;

    for (size_t i = 0; i < prompt->n_messages; i++)
        wants |= prompt->messages[i].role == CHAT_TOOL || prompt->messages[i].n_calls > 0;
    return wants;
}

static int render(const struct chat_format *format, const struct chat_prompt *prompt, struct chat_text *out)
{
    if (!chat_format_has_tools(format) && wants_tools(prompt))
        return E_UNSUPPORTED;
    if (format->dialect == CHAT_HERMES3)
        hermes_render(format, prompt, out);
    else
        chatml_render(format, prompt, out);
    if (prompt->adds_generation &&
        !(prompt->n_messages > 0 && chat_stays_open(prompt, prompt->n_messages - 1)))
        chat_put_own(out, buf_view(&format->generation));
    return out->rc;
}

int chat_render(const struct chat_format *format, const struct chat_prompt *prompt, size_t max_ids,
                struct token_ids *out)
{
    struct chat_text text = {0};
    int rc = render(format, prompt, &text);

    if (rc == 0)
        rc = token_encode_spans(format->tokenizer, buf_view(&text.text), text.spans, text.n_spans, max_ids,
                                out);
    chat_text_fini(&text);
    return rc;
}

int chat_render_text(const struct chat_format *format, const struct chat_prompt *prompt, struct buf *out)
{
    struct chat_text text = {0};
    int rc = render(format, prompt, &text);

    if (rc == 0)
        rc = buf_append(out, text.text.data, text.text.len_bytes);
    chat_text_fini(&text);
    return rc;
}
