/* SPDX-License-Identifier: Apache-2.0 */
/* Builds the answer's constraint.
 *
 *     tool_choice any, tool    [close what the prompt opened] calls
 *     format                   thinking? JSON, or calls if there are tools
 *     tools, auto              text (thinking text | call text)*
 *     tools, none              text (thinking text)*
 *     a thinking budget        the same
 *     otherwise                nothing: any answer is allowed
 *
 * Under auto, a call that has begun must have a tool's name and an object of arguments; a strict tool's
 * arguments must match its schema.  This applies where a mark of its own begins a call.  Llama's brace
 * may begin other things, so there the constraint covers only strict tools.
 *
 * In harmony, everything is a message: thinking and comments, then a call or the final message. */
#include "serve/prompt/shape.h"

#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/str.h"
#include "serve/prompt/shape_priv.h"

/* ---- the writer ---- */

static void begin_item(struct shape *shape)
{
    uint8_t last = shape->out->len_bytes == 0 ? '[' : shape->out->data[shape->out->len_bytes - 1];

    if (last != '[' && last != ':')
        buf_append_byte(shape->out, ',');
}

static void put_one(struct shape *shape, const char *kind, struct bytes text)
{
    begin_item(shape);
    buf_printf(shape->out, "{\"%s\":", kind);
    json_put_str(shape->out, text);
    buf_append_byte(shape->out, '}');
}

void shape_text(struct shape *shape, const char *text)
{
    put_one(shape, "text", bytes_str(text));
}

void shape_bytes(struct shape *shape, struct bytes before, struct bytes text, struct bytes after)
{
    struct buf all = {0};

    buf_append(&all, before.data, before.len_bytes);
    buf_append(&all, text.data, text.len_bytes);
    buf_append(&all, after.data, after.len_bytes);
    put_one(shape, "text", buf_view(&all));
    shape->out->is_bad |= all.is_bad;
    buf_fini(&all);
}

void shape_mark(struct shape *shape, const char *mark)
{
    put_one(shape, "mark", bytes_str(mark));
}

/* Ends an item whose errors may need a path. */
static void end_named(struct shape *shape)
{
    if (shape->path[0] != '\0') {
        buf_append_str(shape->out, ",\"path\":");
        json_put_str(shape->out, bytes_str(shape->path));
    }
    buf_append_byte(shape->out, '}');
}

void shape_json(struct shape *shape, struct bytes schema)
{
    begin_item(shape);
    buf_append_str(shape->out, "{\"json\":");
    buf_append(shape->out, schema.data, schema.len_bytes);
    end_named(shape);
}

void shape_arguments(struct shape *shape, struct bytes schema)
{
    begin_item(shape);
    buf_append_str(shape->out, "{\"json\":");
    buf_append(shape->out, schema.data, schema.len_bytes);
    buf_append_str(shape->out, ",\"closed\":true}");
}

void shape_tagged(struct shape *shape, const struct shape_tags *tags, struct bytes schema, const char *banned)
{
    begin_item(shape);
    buf_append_str(shape->out, "{\"tagged\":");
    buf_append(shape->out, schema.data, schema.len_bytes);
    buf_append_str(shape->out, ",\"until\":");
    json_put_str(shape->out, bytes_str(tags->value_end));
    if (tags->is_tight)
        buf_append_str(shape->out, ",\"inner\":true");
    if (banned != NULL) {
        buf_append_str(shape->out, ",\"not\":");
        json_put_str(shape->out, bytes_str(banned));
    }
    end_named(shape);
}

void shape_free(struct shape *shape, const char *const *until, uint32_t max_tokens)
{
    begin_item(shape);
    buf_append_str(shape->out, "{\"free\":{");
    if (until[0] != NULL) {
        buf_append_str(shape->out, "\"until\":[");
        for (size_t i = 0; until[i] != NULL; i++) {
            begin_item(shape);
            json_put_str(shape->out, bytes_str(until[i]));
        }
        buf_append_byte(shape->out, ']');
    }
    if (max_tokens > 0)
        buf_printf(shape->out, "%s\"max_tokens\":%u", until[0] != NULL ? "," : "", max_tokens);
    buf_append_str(shape->out, "}}");
}

void shape_open_seq(struct shape *shape)
{
    begin_item(shape);
    buf_append_str(shape->out, "{\"seq\":[");
}

void shape_open_any(struct shape *shape)
{
    begin_item(shape);
    buf_append_str(shape->out, "{\"any\":[");
}

void shape_close(struct shape *shape)
{
    buf_append_str(shape->out, "]}");
}

void shape_open_rep(struct shape *shape)
{
    begin_item(shape);
    buf_append_str(shape->out, "{\"rep\":");
}

void shape_close_rep(struct shape *shape, int min, int max)
{
    buf_printf(shape->out, ",\"min\":%d", min);
    if (max >= 0)
        buf_printf(shape->out, ",\"max\":%d", max);
    buf_append_byte(shape->out, '}');
}

/* ---- the request's wishes ---- */

/* True if calls are allowed and there is a reason to constrain them. */
static bool holds_calls(const struct shape *shape)
{
    const struct gen_request *request = shape->request;
    bool has_strict = false;

    for (size_t i = 0; i < request->n_tools; i++)
        has_strict |= request->tools[i].is_strict;
    return request->n_tools > 0 && request->tool_choice != GEN_TOOLS_NONE &&
           (has_strict || shape->manner->calls != CHAT_CALLS_LLAMA);
}

/* True if thinking is off but the template has no switch for it, or opens the thinking anyway. */
static bool forbids_thinking(const struct shape *shape, bool begins_thinking)
{
    return shape->request->thinking == GEN_THINKING_OFF &&
           (begins_thinking ||
            (!shape->manner->has_think_switch &&
             (shape->manner->think_open != NULL || shape->manner->calls == CHAT_CALLS_HARMONY)));
}

static bool is_wanted(const struct shape *shape, bool begins_thinking)
{
    const struct gen_request *request = shape->request;

    return shape_is_forced(request) || request->format != GEN_FORMAT_TEXT || holds_calls(shape) ||
           (request->n_tools > 0 && request->tool_choice == GEN_TOOLS_NONE) ||
           forbids_thinking(shape, begins_thinking) ||
           (request->thinking_budget > 0 &&
            (shape->manner->think_open != NULL || shape->manner->calls == CHAT_CALLS_HARMONY));
}

static void put_document(struct shape *shape)
{
    shape_json(shape, shape->request->format == GEN_FORMAT_JSON_SCHEMA ? shape->request->schema
                                                                       : bytes_str("{\"type\":\"object\"}"));
}

/* ---- thinking between marks ---- */

static void put_rest_of_thinking(struct shape *shape)
{
    const char *const until[] = {shape->manner->think_close, NULL};

    shape_free(shape, until, shape->request->thinking_budget);
    shape_mark(shape, shape->manner->think_close);
}

static void put_thinking(struct shape *shape)
{
    shape_open_seq(shape);
    shape_mark(shape, shape->manner->think_open);
    put_rest_of_thinking(shape);
    shape_close(shape);
}

static void put_line_ends(struct shape *shape)
{
    shape_open_rep(shape);
    shape_text(shape, "\n");
    shape_close_rep(shape, 0, 2);
}

/* Continues the thinking that the prompt has opened, or closes it at once. */
static void put_begun(struct shape *shape, bool is_closed)
{
    if (is_closed)
        shape_mark(shape, shape->manner->think_close);
    else
        put_rest_of_thinking(shape);
    put_line_ends(shape);
}

/* ---- most families ---- */

/* Text, with calls and thinking between as far as they are allowed. */
static void put_open_answer(struct shape *shape, bool thinks)
{
    const struct chat_manner *manner = shape->manner;
    bool calls = holds_calls(shape);
    const char *until[4] = {0};
    size_t n = 0;

    if (manner->think_open != NULL)
        until[n++] = manner->think_open;
    if (shape->request->n_tools > 0 && shape_call_mark(shape)[0] != '\0' &&
        (calls || manner->calls != CHAT_CALLS_LLAMA))
        until[n++] = shape_call_mark(shape);
    shape_free(shape, until, 0);
    if (!calls && !(thinks && manner->think_open != NULL))
        return;
    shape_open_rep(shape);
    shape_open_seq(shape);
    shape_open_any(shape);
    if (calls)
        shape_calls(shape, false, false);
    if (thinks && manner->think_open != NULL)
        put_thinking(shape);
    shape_close(shape);
    shape_free(shape, until, 0);
    shape_close(shape);
    shape_close_rep(shape, 0, -1);
}

static void put_plain(struct shape *shape, bool begins_thinking)
{
    const struct gen_request *request = shape->request;
    bool forces = shape_is_forced(request);
    bool thinks = !forces && request->thinking != GEN_THINKING_OFF;

    shape_open_seq(shape);
    if (begins_thinking)
        put_begun(shape, !thinks);
    if (forces) {
        shape_calls(shape, true, !request->is_single_call);
    } else if (request->format != GEN_FORMAT_TEXT) {
        if (thinks && !begins_thinking && shape->manner->think_open != NULL) {
            shape_open_rep(shape);
            shape_open_seq(shape);
            put_thinking(shape);
            put_line_ends(shape);
            shape_close(shape);
            shape_close_rep(shape, 0, 1);
        }
        shape_open_any(shape);
        if (request->n_tools > 0 && request->tool_choice != GEN_TOOLS_NONE)
            shape_calls(shape, false, !request->is_single_call);
        put_document(shape);
        shape_close(shape);
    } else {
        put_open_answer(shape, thinks);
    }
    shape_close(shape);
}

/* ---- harmony ---- */

static void put_channel(struct shape *shape, const char *channel)
{
    shape_mark(shape, "<|channel|>");
    shape_text(shape, channel);
    shape_mark(shape, "<|message|>");
}

static void put_aside(struct shape *shape, const char *channel, uint32_t max_tokens)
{
    static const char *const until[] = {"<|end|>", NULL};

    shape_open_seq(shape);
    put_channel(shape, channel);
    shape_free(shape, until, max_tokens);
    shape_mark(shape, "<|end|>");
    shape_mark(shape, "<|start|>");
    shape_text(shape, "assistant");
    shape_close(shape);
}

static void put_harmony(struct shape *shape)
{
    static const char *const until[] = {"<|end|>", NULL};
    const struct gen_request *request = shape->request;
    bool forces = shape_is_forced(request);
    bool calls = request->n_tools > 0 && request->tool_choice != GEN_TOOLS_NONE;

    shape_open_seq(shape);
    if (!forces && (request->thinking != GEN_THINKING_OFF || calls)) {
        shape_open_rep(shape);
        shape_open_any(shape);
        if (request->thinking != GEN_THINKING_OFF)
            put_aside(shape, "analysis", request->thinking_budget);
        if (calls)
            put_aside(shape, "commentary", 0);
        shape_close(shape);
        shape_close_rep(shape, 0, -1);
    }
    shape_open_any(shape);
    if (calls)
        shape_calls(shape, forces, false);
    if (!forces) {
        shape_open_seq(shape);
        put_channel(shape, "final");
        if (request->format != GEN_FORMAT_TEXT)
            put_document(shape);
        else
            shape_free(shape, until, 0);
        shape_close(shape);
    }
    shape_close(shape);
    shape_close(shape);
}

int shape_make(const struct gen_model *model, const struct gen_request *request, bool begins_thinking,
               struct buf *out, struct api_error *error)
{
    struct shape shape = {.request = request, .manner = chat_format_manner(model->chat), .out = out};
    int rc = shape_check_schemas(&shape, model->verdicts, error);

    if (rc < 0 || request->n_prompts > 0 || request->work.max_new_tokens == 0 ||
        !is_wanted(&shape, begins_thinking))
        return rc;
    if (shape.manner->calls != CHAT_CALLS_HARMONY)
        put_plain(&shape, begins_thinking);
    else if (request->prefill.len_bytes == 0)
        put_harmony(&shape);
    if (out->is_bad) {
        api_fail(error, 503, "out of memory");
        return E_NOMEM;
    }
    if (out->len_bytes > SHAPE_MAX_BYTES)
        return api_fail(error, 400, "the schemas of tools and answer come to more than 1 MiB");
    return shape_has_schemas(request) ? shape_check_whole(&shape, model, error) : 0;
}
