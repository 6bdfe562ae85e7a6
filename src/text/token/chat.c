/* SPDX-License-Identifier: Apache-2.0 */
/* Chat formats: prepares a model's template, and renders with it.
 *
 *     messages, tools --template--> text with authors --encode--> ids
 *
 * The template is parsed and probed once per model. A file may have a second template, for prompts with tools. Rendering is a pure function of format and prompt.
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
#include "base/str.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int check_markers(const struct tokenizer *tokenizer, struct bytes source, struct fault *fault)
{
    static const char *const markers[] = {"<|im_start|>", "<|im_end|>"};

    for (size_t i = 0; i < ARRAY_LEN(markers); i++) {
        token_id id = tokenizer_find(tokenizer, bytes_str(markers[i]));

        if (bytes_find(source, bytes_str(markers[i]), 0) == SIZE_MAX)
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

static int open_template(struct chat_format *format, struct bytes source, struct fault *fault)
{
    struct fault inner = {0};

    if (source.len_bytes == 0) {
        str_copy(format->warning, sizeof(format->warning),
                 "the file has no chat template (tokenizer.chat_template): only texts can be continued");
        return 0;
    }
    int rc = template_new(source, &inner, &format->parsed);
    if (rc == 0)
        rc = check_markers(format->tokenizer, source, &inner);
    if (rc == 0) {
        format->detected = calls_format_detect(source);
        rc = chat_probe(format, &inner);
        format->info.calls =
            format->lists_tools && format->detected != CALLS_PLAIN ? format->detected : CALLS_HERMES;
        if (format->detected == CALLS_HARMONY)
            format->info.calls = CALLS_HARMONY;
        else
            chat_family_thinking(format->tokenizer, source, &format->info);
        chat_probe_effort_switch(format);
        chat_family_answers(format->tokenizer, source, format->detected, &format->info);
        if (calls_row_of(format->info.answers)->answer[0] == NULL) {
            enum calls_format marks = chat_probe_marks(format, source);

            format->info.answers = marks != CALLS_PLAIN ? marks : format->info.answers;
        }
        format->asks_thinking = format->info.calls == CALLS_HARMONY || format->info.calls == CALLS_COHERE ||
                                format->info.calls == CALLS_SOLAR ||
                                bytes_find(source, bytes_str("reasoning_content"), 0) != SIZE_MAX;
    }
    return rc == 0 ? 0 : chat_retell(fault, &inner);
}

static int format_of_template(const struct tokenizer *tokenizer, struct bytes source, struct fault *fault,
                              struct chat_format **out)
{
    struct chat_format *format = calloc(1, sizeof(*format));

    if (format == NULL)
        return fault_set(fault, E_NOMEM, "out of memory");
    /* The reference count is the only part of a tokenizer that changes, so the owner of a const one may take
     * another reference. */
    format->tokenizer = tokenizer_ref((struct tokenizer *)tokenizer);
    int rc = open_template(format, source, fault);
    if (rc != 0) {
        chat_format_free(format);
        return rc;
    }
    *out = format;
    return 0;
}

/* Calls are those of the template for tools. A switch of thinking must be in both templates. */
static void join_infos(struct chat_format *format)
{
    const struct chat_format_info *with_tools = &format->tool_format->info;

    format->answers.calls = with_tools->calls;
    if (calls_row_of(with_tools->answers)->answer[0] != NULL ||
        calls_row_of(format->info.answers)->answer[0] == NULL)
        format->answers.answers = with_tools->answers;
    format->answers.has_think_switch = format->info.has_think_switch && with_tools->has_think_switch;
    if (format->answers.think_open == NULL) {
        format->answers.think_open = with_tools->think_open;
        format->answers.think_close = with_tools->think_close;
        format->answers.think_name = with_tools->think_name;
        format->answers.think_is_words = with_tools->think_is_words;
        format->answers.think_open_also = with_tools->think_open_also;
        format->answers.think_close_also = with_tools->think_close_also;
    }
}

/* A second template that does not work, or shows no tools, is left out. */
static int open_tool_template(struct chat_format *format, struct fault *fault)
{
    struct bytes source = tokenizer_tool_template(format->tokenizer);
    struct fault inner = {0};

    if (source.len_bytes == 0)
        return 0;
    int rc = format_of_template(format->tokenizer, source, &inner, &format->tool_format);
    if (rc == E_NOMEM)
        return fault_set(fault, rc, "out of memory");
    if (rc == 0 && format->tool_format->lists_tools) {
        join_infos(format);
        return 0;
    }
    if (format->warning[0] == '\0')
        snprintf(format->warning, sizeof(format->warning),
                 "the one for tools (tokenizer.chat_template.tool_use) is not used: %.160s",
                 rc == 0 ? "it does not list tools" : inner.text);
    chat_format_free(format->tool_format);
    format->tool_format = NULL;
    return 0;
}

int chat_format_new(const struct tokenizer *tokenizer, struct fault *fault, struct chat_format **out)
{
    struct chat_format *format = NULL;
    int rc = format_of_template(tokenizer, tokenizer_chat_template(tokenizer), fault, &format);

    if (rc != 0)
        return rc;
    format->answers = format->info;
    rc = chat_format_has_template(format) ? open_tool_template(format, fault) : 0;
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
    chat_format_free(format->tool_format);
    template_free(format->parsed);
    tokenizer_unref(format->tokenizer);
    free(format);
}

static const struct chat_format *format_for_tools(const struct chat_format *format)
{
    return format->tool_format != NULL ? format->tool_format : format;
}

bool chat_format_has_template(const struct chat_format *format)
{
    return format->parsed != NULL;
}

const char *chat_format_name(const struct chat_format *format)
{
    if (!chat_format_has_template(format))
        return "none";
    return calls_row_of(format_for_tools(format)->detected)->name;
}

bool chat_format_has_tools(const struct chat_format *format)
{
    return format_for_tools(format)->has_tools;
}

const char *chat_format_warning(const struct chat_format *format)
{
    return format->warning[0] != '\0' ? format->warning : NULL;
}

const struct chat_format_info *chat_format_info(const struct chat_format *format)
{
    return &format->answers;
}

/* ---- rendering ---- */

static const struct chat_format *format_for_prompt(const struct chat_format *format,
                                                   const struct chat_prompt *prompt)
{
    return prompt->n_tools > 0 ? format_for_tools(format) : format;
}

static int token_chat_render(const struct chat_format *format, const struct chat_prompt *prompt,
                             const struct chat_extras *extras, struct fault *fault, struct chat_run *run)
{
    struct fault inner = {0};

    *run = (struct chat_run){0};
    if (!chat_format_has_template(format))
        return fault_set(fault, E_UNSUPPORTED, "the model has no chat template (tokenizer.chat_template)");
    int rc = chat_run(format_for_prompt(format, prompt), prompt, extras, &inner, run);

    return rc == 0 ? 0 : chat_retell(fault, &inner);
}

int chat_render_extras(const struct chat_format *format, const struct chat_prompt *prompt,
                       struct chat_extras *extras, struct fault *fault, struct token_ids *out)
{
    struct chat_run run;
    int rc = token_chat_render(format, prompt, extras, fault, &run);

    if (rc == 0) {
        rc = chat_splice(format_for_prompt(format, prompt), prompt, run.text, extras, out);
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
