/* SPDX-License-Identifier: Apache-2.0 */
/* Chat formats: prepares a model's template, and renders with it.
 *
 *     messages, tools --template--> text with authors --encode--> ids
 *
 * The template is parsed and probed once per model. Rendering is a pure function of format and prompt.
 *
 * The rendering writes markers as text, and encoding finds them again as tokens. This costs little and gives
 * people, tests and models one code path. It is safe because each byte has an author: encoding searches for
 * markers only in the template's own parts. A client can write text that looks like the end of its turn, and
 * it stays plain characters.
 *
 * A template may delimit turns with <|im_start|> and <|im_end|>. Then the two must be tokens that text cannot
 * spell. If the vocabulary lacks them, the model would see turns as plain characters that any client can
 * write. Such a model is refused. */
#include "text/token/chat_priv.h"

#include "base/check.h"
#include "base/err.h"

#include <stdlib.h>
#include <string.h>

static int check_markers(const struct tokenizer *tokenizer, struct fault *fault)
{
    static const char *const markers[] = {"<|im_start|>", "<|im_end|>"};

    for (size_t i = 0; i < ARRAY_LEN(markers); i++) {
        token_id id = tokenizer_find(tokenizer, bytes_str(markers[i]));

        if (bytes_find(tokenizer_chat_template(tokenizer), bytes_str(markers[i]), 0) == SIZE_MAX)
            continue;
        if (id == TOKEN_NONE || (tokenizer->types[id] != TOKEN_CONTROL && tokenizer->types[id] != TOKEN_USER))
            return fault_set(fault, E_UNSUPPORTED,
                             "the chat template uses %s, which is not a control token of the vocabulary",
                             markers[i]);
    }
    return 0;
}

/* Rewords the fault, so that it names the chat template as its source. */
static int chat_retell(struct fault *fault, const struct fault *inner)
{
    const char *text = inner->text, *colon = strstr(text, ": ");

    if (inner->code == E_INVAL && colon != NULL) /* the message that the template itself raised */
        return fault_set(fault, inner->code, "the model's chat template refuses this conversation: %s",
                         colon + 2);
    return fault_set(fault, inner->code, "%s%s", strncmp(text, "line ", 5) == 0 ? "chat template " : "",
                     text);
}

static int open_template(struct chat_format *format, struct fault *fault)
{
    struct bytes source = tokenizer_chat_template(format->tokenizer);
    struct fault inner = {0};

    if (source.len_bytes == 0)
        return fault_set(fault, E_UNSUPPORTED, "the model has no chat template (tokenizer.chat_template)");
    int rc = template_new(source, &inner, &format->parsed);
    if (rc == 0)
        rc = check_markers(format->tokenizer, &inner);
    if (rc == 0) {
        format->detected = calls_format_detect(source);
        rc = chat_probe(format, &inner);
        format->info.calls =
            format->lists_tools && format->detected != CALLS_PLAIN ? format->detected : CALLS_HERMES;
        if (format->detected == CALLS_HARMONY)
            format->info.calls = CALLS_HARMONY;
        else
            chat_family_thinking(format->tokenizer, &format->info);
        chat_family_answers(format->tokenizer, format->detected, &format->info);
        if (calls_row_of(format->info.answers)->answer[0] == NULL) {
            enum calls_format marks = chat_probe_marks(format);

            format->info.answers = marks != CALLS_PLAIN ? marks : format->info.answers;
        }
        format->asks_thinking = format->info.calls == CALLS_HARMONY || format->info.calls == CALLS_COHERE ||
                                bytes_find(source, bytes_str("reasoning_content"), 0) != SIZE_MAX;
    }
    return rc == 0 ? 0 : chat_retell(fault, &inner);
}

int chat_format_new(const struct tokenizer *tokenizer, struct fault *fault, struct chat_format **out)
{
    struct chat_format *format = calloc(1, sizeof(*format));

    if (format == NULL)
        return fault_set(fault, E_NOMEM, "out of memory");
    /* The reference count is the only part of a tokenizer that changes, so the owner of a const one may take
     * another reference. */
    format->tokenizer = tokenizer_ref((struct tokenizer *)tokenizer);
    int rc = open_template(format, fault);
    if (rc != 0) {
        chat_format_free(format);
        return rc;
    }
    *out = format;
    return 0;
}

void chat_format_free(struct chat_format *format)
{
    if (format == NULL)
        return;
    template_free(format->parsed);
    tokenizer_unref(format->tokenizer);
    free(format);
}

const char *chat_format_name(const struct chat_format *format)
{
    return calls_row_of(format->detected)->name;
}

bool chat_format_has_tools(const struct chat_format *format)
{
    return format->has_tools;
}

const char *chat_format_warning(const struct chat_format *format)
{
    return format->warning[0] != '\0' ? format->warning : NULL;
}

const struct chat_format_info *chat_format_info(const struct chat_format *format)
{
    return &format->info;
}

/* ---- rendering ---- */

static int token_chat_render(const struct chat_format *format, const struct chat_prompt *prompt,
                             const struct chat_extras *extras, struct fault *fault, struct chat_run *run)
{
    struct fault inner = {0};
    int rc = chat_run(format, prompt, extras, &inner, run);

    return rc == 0 ? 0 : chat_retell(fault, &inner);
}

int chat_render_extras(const struct chat_format *format, const struct chat_prompt *prompt,
                       struct chat_extras *extras, struct fault *fault, struct token_ids *out)
{
    struct chat_run run;
    int rc = token_chat_render(format, prompt, extras, fault, &run);

    if (rc == 0) {
        rc = chat_splice(format, prompt, run.text, extras, out);
        if (rc != 0)
            fault_set(fault, rc, "%s", rc == E_LIMIT ? "the prompt is too long" : err_text(rc));
    }
    chat_run_fini(&run);
    return rc;
}

int chat_render(const struct chat_format *format, const struct chat_prompt *prompt, size_t max_ids,
                struct fault *fault, struct token_ids *out)
{
    struct chat_extras none = {.max_ids = max_ids};

    return chat_render_extras(format, prompt, &none, fault, out);
}

int chat_render_text(const struct chat_format *format, const struct chat_prompt *prompt, struct fault *fault,
                     struct buf *out)
{
    struct chat_run run;
    int rc = token_chat_render(format, prompt, NULL, fault, &run);

    if (rc == 0 && buf_append(out, run.text.data, run.text.len_bytes) != 0)
        rc = fault_set(fault, E_NOMEM, "out of memory");
    chat_run_fini(&run);
    return rc;
}
