/* SPDX-License-Identifier: Apache-2.0 */
/* Recognising a model's chat template.
 *
 * Templates are programs in Jinja.  We do not run them: an interpreter for text that comes with a model file
 * is a way in, and the programs in use come to a handful of formats.  So the template is looked at for the
 * phrases its format cannot do without, and the format is then rendered by our own code:
 *
 *     <|im_start|>, <|im_end|>                                    ChatML turns, at least
 *     "You are a function calling AI model." json_to_python_type  Hermes 3
 *     # Tools, <tool_response>, <args-json-object>                Qwen; "\n\n# Tools": 2.5, "# Tools": 3
 *     no word of tools, and turns made of message and role        ChatML
 *
 * Anything else is refused, and so is what has the phrases but also some that mean another format.  Two texts
 * are taken from the template as they stand there: the system text of a conversation without one (Qwen 2.5
 * has one), and what opens the assistant's turn.  Both stand in string literals, or as plain text between
 * tags.
 */
#include "token/chat_priv.h"

#include "base/check.h"
#include "base/err.h"

#include <string.h>

#define SUPPORTED "supported are ChatML, and ChatML with the tool formats of Qwen 2.5, Qwen 3 and Hermes 3"

static bool has(struct bytes text, const char *words)
{
    return bytes_find(text, bytes_str(words), 0) != SIZE_MAX;
}

/* ---- literals ---- */

static uint8_t unescaped(uint8_t c)
{
    return c == 'n' ? '\n' : c == 't' ? '\t' : c == 'r' ? '\r' : c;
}

/* The text that begins at at: to the closing quote with escapes undone when a quote stands before it, else
 * plain to the next tag. */
static void take_text(struct bytes text, size_t at, struct buf *out)
{
    uint8_t before = at > 0 ? text.data[at - 1] : 0;
    uint8_t quote = before == '\'' || before == '"' ? before : 0;

    for (; at < text.len_bytes; at++) {
        uint8_t c = text.data[at];

        if (quote != 0 && c == quote)
            return;
        if (quote == 0 && c == '{' && at + 1 < text.len_bytes &&
            (text.data[at + 1] == '%' || text.data[at + 1] == '{'))
            return;
        if (quote != 0 && c == '\\' && at + 1 < text.len_bytes)
            c = unescaped(text.data[++at]);
        buf_append_byte(out, c);
    }
}

/* A literal that is a whole system turn gives the default text. */
static int read_default_system(struct bytes text, struct chat_format *format)
{
    static const char begin[] = "<|im_start|>system\n", end[] = "<|im_end|>";
    struct buf literal = {0};
    size_t at = 0;
    int rc = 0;

    while (rc == 0 && !format->has_default_system &&
           (at = bytes_find(text, bytes_str("<|im_start|>system"), at)) != SIZE_MAX) {
        buf_clear(&literal);
        take_text(text, at++, &literal);
        size_t to = bytes_find(buf_view(&literal), bytes_str(end), 0);
        if (to == SIZE_MAX || to < strlen(begin) || !bytes_starts_with(buf_view(&literal), begin))
            continue;
        format->has_default_system = true;
        rc = buf_append(&format->default_system, literal.data + strlen(begin), to - strlen(begin));
    }
    rc = literal.is_bad ? E_NOMEM : rc;
    buf_fini(&literal);
    return rc;
}

static int read_generation(struct bytes text, struct chat_format *format)
{
    static const char begin[] = "<|im_start|>assistant\n";
    size_t at = 0, last = SIZE_MAX;

    while ((at = bytes_find(text, bytes_str("add_generation_prompt"), at)) != SIZE_MAX)
        last = at++;
    if (last != SIZE_MAX)
        last = bytes_find(text, bytes_str("<|im_start|>assistant"), last);
    if (last != SIZE_MAX)
        take_text(text, last, &format->generation);
    if (!bytes_starts_with(buf_view(&format->generation), begin)) {
        buf_clear(&format->generation);
        buf_append_str(&format->generation, begin);
    }
    return format->generation.is_bad ? E_NOMEM : 0;
}

/* ---- which format ---- */

/* "<|im_start|>" and then, past the syntax of a concatenation, message or role. */
static bool has_generic_turn(struct bytes text)
{
    size_t at = 0;

    while ((at = bytes_find(text, bytes_str("<|im_start|>"), at)) != SIZE_MAX) {
        at += strlen("<|im_start|>");
        while (at < text.len_bytes && strchr("'\" \t\r\n+~{}-", text.data[at]) != NULL &&
               text.data[at] != '\0')
            at++;
        struct bytes rest = bytes_of(text.data + at, text.len_bytes - at);
        if (bytes_starts_with(rest, "message") || bytes_starts_with(rest, "role"))
            return true;
    }
    return false;
}

static bool is_hermes3(struct bytes text)
{
    return has(text, "You are a function calling AI model.") && has(text, "json_to_python_type") &&
           has(text, "<|im_start|>tool") && has(text, "<args-dict>");
}

static bool is_qwen(struct bytes text)
{
    return has(text, "# Tools") && has(text, "<args-json-object>") && has(text, "<tool_response>") &&
           has_generic_turn(text);
}

/* Words of formats that are ChatML only at first sight. */
static bool has_foreign_words(struct bytes text)
{
    static const char *const words[] = {"<|im_sep|>", "<function=", "<|channel|>", "<|start_header_id|>",
                                        "[INST]"};

    for (size_t i = 0; i < ARRAY_LEN(words); i++) {
        if (has(text, words[i]))
            return true;
    }
    return false;
}

static int choose_dialect(struct bytes text, struct fault *fault, struct chat_format *format)
{
    if (text.len_bytes == 0)
        return fault_set(fault, E_UNSUPPORTED,
                         "the model has no chat template (tokenizer.chat_template); " SUPPORTED);
    if (!has(text, "<|im_start|>") || !has(text, "<|im_end|>") || has_foreign_words(text))
        return fault_set(fault, E_UNSUPPORTED, "the model's chat template is not known; " SUPPORTED);
    if (is_hermes3(text)) {
        format->dialect = CHAT_HERMES3;
    } else if (is_qwen(text)) {
        bool is_apart = has(text, "\\n\\n# Tools") || has(text, "\n\n# Tools");
        format->dialect = is_apart ? CHAT_QWEN2_5 : CHAT_QWEN3;
    } else if (has_generic_turn(text) && !has(text, "tool") && !has(text, "<think>")) {
        format->dialect = CHAT_CHATML;
    } else {
        return fault_set(fault, E_UNSUPPORTED,
                         "the model's chat template has ChatML turns but is not known; " SUPPORTED);
    }
    return 0;
}

int template_read(struct bytes text, struct fault *fault, struct chat_format *format)
{
    int rc = choose_dialect(text, fault, format);

    if (rc != 0)
        return rc;
    format->drops_thoughts = format->dialect == CHAT_QWEN3 && has(text, "last_query_index");
    if (format->dialect == CHAT_CHATML || format->dialect == CHAT_QWEN2_5)
        rc = read_default_system(text, format);
    if (rc == 0)
        rc = read_generation(text, format);
    return rc == 0 ? 0 : fault_set(fault, rc, "out of memory");
}
