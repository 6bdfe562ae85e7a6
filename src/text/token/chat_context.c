/* SPDX-License-Identifier: Apache-2.0 */
/* Renders a conversation: sets the variables that templates expect, then runs the template.
 *
 *     messages               [{"role", "content", "reasoning_content", "tool_calls": [{"id", "type",
 *                              "function": {"name", "arguments"}}], "tool_call_id", "name"}]
 *     messages[0].tools      only if the template reads tools there: the tools as JSON text
 *     tools                  [{"type": "function", "function": {"name", "description",
 *                              "parameters"}}], or none
 *     documents              none
 *     add_generation_prompt  true, or false
 *     bos_token, eos_token   as spelled
 *     enable_thinking        only when the request sets it; "thinking" has the same value
 *     thinking_mode          likewise: "enabled" or "disabled" (MiniMax M3)
 *     reasoning_effort       likewise: "low", "medium" or "high"; "thinking_effort" has the same value
 *
 * The mark of each byte tells whether the client wrote it and which message it belongs to.
 *
 * If the answer continues the last message, the bytes of that message have a mark of their own (MARK_LAST).
 * The prompt ends after the last byte with this mark, so the text that closes the turn is left off. */
#include "text/token/chat_priv.h"

#include "base/clock.h"
#include "base/err.h"
#include "text/toolcall/spell.h"

#include <string.h>

struct context {
    const struct chat_format *format;
    const struct chat_prompt *prompt;
    const struct chat_extras *extras; /* may be NULL */
    bool is_reshaped;                 /* chat_message.number is set */
    struct jinja *jinja;
    struct text *pieces; /* room for the pieces of the message that has the most */
    size_t n_calls;      /* number of calls in the messages before the one that is being built */
    bool *is_bad;        /* memory ran out while a value was made */
};

/* The caller's number of message i; SIZE_MAX: chat_reshape() made the message. */
static size_t chat_context_number_of(const struct context *context, size_t i)
{
    return context->is_reshaped ? context->prompt->messages[i].number : i;
}

static uint32_t chat_context_mark_of(const struct context *context, size_t i, size_t part, uint32_t bits)
{
    size_t number = chat_context_number_of(context, i);

    return (number == SIZE_MAX ? 0 : PART_OF(number, part) << MARK_PART_SHIFT) | bits;
}

static struct value text_value(const struct context *context, struct bytes text, uint32_t mark)
{
    return value_bytes(context->jinja, text, mark);
}

static struct value chat_context_own(const struct context *context, const char *text)
{
    return value_str(context->jinja, text);
}

static struct value function_value(const struct context *context, struct value function)
{
    struct value tool = value_dict(context->jinja);

    dict_set_str(context->jinja, tool, "type", chat_context_own(context, "function"));
    dict_set_str(context->jinja, tool, "function", function);
    return tool;
}

/* ---- tools ---- */

/* Gives an empty description to each parameter that has none. */
static void describe_fields(const struct context *context, struct value parameters)
{
    struct jinja *jinja = context->jinja;
    const struct value *fields = dict_get_str(jinja, parameters, "properties");

    for (size_t i = 0; fields != NULL && fields->kind == VALUE_DICT && i < fields->dict->n; i++) {
        struct value field = fields->dict->entries[i].value;

        if (field.kind == VALUE_DICT && dict_get_str(jinja, field, "description") == NULL)
            dict_set_str(jinja, field, "description", chat_context_own(context, ""));
    }
}

static struct value parameters_value(const struct context *context, const struct chat_tool *tool)
{
    static const char none[] = "{\"type\": \"object\", \"properties\": {}}";
    struct value parameters =
        tool->parameters.data != NULL
            ? value_of_json(context->jinja, tool->parameters, MARK_CLIENT, "a tool's parameters")
            : value_of_json(context->jinja, bytes_str(none), MARK_OWN, "");

    if (context->format->describes >= CHAT_DESCRIBE_FIELDS)
        describe_fields(context, parameters);
    return parameters;
}

static struct value tool_value(const struct context *context, const struct chat_tool *tool)
{
    bool wants_all = context->format->describes >= CHAT_DESCRIBE_TOOL;
    struct jinja *jinja = context->jinja;
    struct value function = value_dict(jinja);

    dict_set_str(jinja, function, "name", text_value(context, tool->name, MARK_CLIENT));
    if (tool->description.data != NULL || wants_all)
        dict_set_str(jinja, function, "description", text_value(context, tool->description, MARK_CLIENT));
    if (tool->parameters.data != NULL || wants_all)
        dict_set_str(jinja, function, "parameters", parameters_value(context, tool));
    return function_value(context, function);
}

static struct value tools_value(const struct context *context)
{
    struct value tools = value_list(context->jinja, context->prompt->n_tools);

    for (size_t i = 0; i < context->prompt->n_tools; i++)
        list_push(context->jinja, tools, tool_value(context, &context->prompt->tools[i]));
    return tools;
}

/* All tools as JSON text, for the system message. */
static struct value tools_text(const struct context *context)
{
    struct buf text = {0};

    for (size_t i = 0; i < context->prompt->n_tools; i++) {
        buf_append_str(&text, i == 0 ? "[" : ", ");
        chat_put_tool(&context->prompt->tools[i], &text);
    }
    buf_append_byte(&text, ']');
    *context->is_bad |= text.is_bad;
    struct value value = value_copy(context->jinja, buf_view(&text), MARK_CLIENT);
    buf_fini(&text);
    return value;
}

/* ---- messages ---- */

static struct value id_value(const struct context *context, const struct chat_family_call *call,
                             uint32_t mark)
{
    char room[CHAT_FAMILY_ID_BYTES];
    struct bytes shaped = chat_family_id(context->format->detected, call, room);

    return value_copy(context->jinja, shaped, mark);
}

/* index: number of calls before this one. */
static struct value call_value(const struct context *context, const struct chat_call *call, size_t index,
                               uint32_t mark)
{
    const struct chat_family_call shown = {.id = call->id, .name = call->name, .index = index};
    struct jinja *jinja = context->jinja;
    struct value function = value_dict(jinja);
    struct value arguments = value_of_json(jinja, call->arguments, mark, "the arguments of a call");

    if (context->format->wants_text_calls)
        arguments = text_value(context, call->arguments, mark);
    dict_set_str(jinja, function, "name", text_value(context, call->name, mark));
    dict_set_str(jinja, function, "arguments", arguments);
    struct value whole = function_value(context, function);
    dict_set_str(jinja, whole, "id", id_value(context, &shown, mark));
    return whole;
}

static const char *role_name(enum chat_role role)
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

/* Finds the call with this id in the messages before. */
static struct chat_family_call call_of_result(const struct context *context, size_t before, struct bytes id)
{
    size_t n_calls = context->n_calls;

    while (before-- > 0) {
        const struct chat_message *message = &context->prompt->messages[before];

        n_calls -= message->n_calls;
        for (size_t i = 0; i < message->n_calls && id.len_bytes > 0; i++) {
            if (bytes_equal(message->calls[i].id, id))
                return (struct chat_family_call){
                    .id = id, .name = message->calls[i].name, .index = n_calls + i};
        }
        if (message->role == CHAT_USER)
            break;
    }
    return (struct chat_family_call){.id = id};
}

static bool stays_open(const struct chat_prompt *prompt)
{
    return prompt->continues_last && prompt->n_messages > 0 &&
           prompt->messages[prompt->n_messages - 1].role == CHAT_ASSISTANT;
}

/* The system text followed by the question, for a template without system messages. */
static struct value joined_text(const struct context *context, struct bytes system, struct bytes text,
                                uint32_t mark)
{
    struct buf both = {0};

    buf_append(&both, system.data, system.len_bytes);
    buf_append_str(&both, "\n\n");
    buf_append(&both, text.data, text.len_bytes);
    *context->is_bad |= both.is_bad;
    struct value value = value_copy(context->jinja, buf_view(&both), mark);
    buf_fini(&both);
    return value;
}

struct content { /* a message's text in pieces, each with its mark */
    const struct chat_message *message;
    struct text *pieces;
    size_t n, next_own;
};

/* Adds the text between from and to. Bytes that the format wrote are not marked as the client's. */
static void content_add(struct content *content, size_t from, size_t to, uint32_t mark)
{
    const struct chat_message *message = content->message;
    bool is_empty = from == to;

    while (from < to || is_empty) {
        const struct calls_span *own =
            content->next_own < message->n_own ? &message->own[content->next_own] : NULL;
        bool is_own = own != NULL && own->from <= from;
        size_t end = own == NULL ? to : is_own ? own->to : own->from;

        end = end < to ? end : to;
        content->pieces[content->n++] = (struct text){.data = message->text.data + from,
                                                      .len_bytes = end - from,
                                                      .mark = is_own ? mark & ~(uint32_t)MARK_CLIENT : mark};
        if (is_own && end == own->to)
            content->next_own++;
        from = end;
        is_empty = false;
    }
}

/* The message's text, cut into pieces at the places within it and around the format's own bytes. */
static struct value content_value(const struct context *context, size_t i, uint32_t bits)
{
    struct content content = {.message = &context->prompt->messages[i]};
    struct bytes text = content.message->text;
    size_t from = 0, n = 0;

    content.pieces = context->pieces;
    for (size_t k = 0; context->extras != NULL && k < context->extras->n_places; k++) {
        const struct chat_place *place = &context->extras->places[k];

        if (place->n_messages != chat_context_number_of(context, i) || place->text_bytes == 0)
            continue;
        size_t to = place->text_bytes < from             ? from
                    : place->text_bytes > text.len_bytes ? text.len_bytes
                                                         : place->text_bytes;
        content_add(&content, from, to, chat_context_mark_of(context, i, PART_TEXT + n, bits));
        n++;
        from = to;
    }
    if (content.n == 0 && content.message->n_own == 0)
        return text_value(context, text, chat_context_mark_of(context, i, PART_TEXT, bits));
    content_add(&content, from, text.len_bytes, chat_context_mark_of(context, i, PART_TEXT + n, bits));
    return value_joined(context->jinja, content.pieces, content.n);
}

static struct value calls_value(const struct context *context, const struct chat_message *message,
                                uint32_t mark)
{
    struct value calls = value_list(context->jinja, message->n_calls);

    for (size_t k = 0; k < message->n_calls; k++)
        list_push(context->jinja, calls, call_value(context, &message->calls[k], context->n_calls + k, mark));
    return calls;
}

/* The templates of Harmony, Cohere and Solar Open read thinking from keys of their own. Harmony's refuse it beside the text of a
 * turn with calls. */
static void set_thinking(const struct context *context, size_t i, struct value one)
{
    const struct chat_message *message = &context->prompt->messages[i];
    struct value thinking =
        text_value(context, message->thinking, chat_context_mark_of(context, i, PART_THINKING, MARK_CLIENT));

    if (context->format->info.calls == CALLS_COHERE)
        dict_set_str(context->jinja, one, "tool_plan", thinking);
    if (context->format->info.calls == CALLS_SOLAR)
        dict_set_str(context->jinja, one, "reasoning", thinking);
    if (context->format->info.calls != CALLS_HARMONY)
        dict_set_str(context->jinja, one, "reasoning_content", thinking);
    else if (message->n_calls == 0 || message->text.len_bytes == 0)
        dict_set_str(context->jinja, one, "thinking", thinking);
}

static struct value message_value(const struct context *context, size_t i, struct bytes system)
{
    const struct chat_message *message = &context->prompt->messages[i];
    bool is_last = i + 1 == context->prompt->n_messages && stays_open(context->prompt);
    uint32_t other = chat_context_mark_of(context, i, PART_OTHER, MARK_CLIENT);
    struct value content = content_value(context, i, MARK_CLIENT | (is_last ? MARK_LAST : 0));
    struct jinja *jinja = context->jinja;
    struct value one = value_dict(jinja);

    if (system.len_bytes > 0)
        content = joined_text(context, system, message->text,
                              chat_context_mark_of(context, i, PART_TEXT, MARK_CLIENT));
    if (message->n_calls > 0 && message->text.len_bytes == 0 && context->format->wants_no_content)
        content = value_none();
    dict_set_str(jinja, one, "role",
                 text_value(context, bytes_str(role_name(message->role)),
                            chat_context_mark_of(context, i, PART_OTHER, MARK_OWN)));
    dict_set_str(jinja, one, "content", content);
    if (message->role == CHAT_SYSTEM && i == 0 && context->format->wants_system_tools &&
        context->prompt->n_tools > 0)
        dict_set_str(jinja, one, "tools", tools_text(context));
    if (message->thinking.len_bytes > 0 && context->format->asks_thinking)
        set_thinking(context, i, one);
    if (message->n_calls > 0)
        dict_set_str(jinja, one, "tool_calls", calls_value(context, message, other));
    if (message->role == CHAT_TOOL) {
        const struct chat_family_call call = call_of_result(context, i, message->call_id);

        dict_set_str(jinja, one, "tool_call_id", id_value(context, &call, other));
        if (call.name.len_bytes > 0)
            dict_set_str(jinja, one, "name", text_value(context, call.name, other));
    }
    return one;
}

static struct value messages_value(struct context *context)
{
    const struct chat_prompt *prompt = context->prompt;
    struct value messages = value_list(context->jinja, prompt->n_messages);
    struct bytes system = {0};
    size_t from = 0;

    if (context->format->has_no_system && prompt->n_messages > 1 && prompt->messages[0].role == CHAT_SYSTEM &&
        prompt->messages[1].role == CHAT_USER) {
        system = prompt->messages[0].text;
        from = 1;
    }
    for (size_t i = from; i < prompt->n_messages; i++) {
        list_push(context->jinja, messages, message_value(context, i, system));
        context->n_calls += prompt->messages[i].n_calls;
        system = (struct bytes){0};
    }
    return messages;
}

/* ---- the rendering ---- */

static struct value token_value(const struct context *context, token_id id)
{
    struct bytes piece = {0};

    if (id != TOKEN_NONE)
        piece = tokenizer_piece(context->format->tokenizer, id);
    return text_value(context, piece, MARK_OWN);
}

static void chat_context_set_effort(const struct context *context, const char *effort)
{
    jinja_set(context->jinja, "reasoning_effort", chat_context_own(context, effort));
    jinja_set(context->jinja, "thinking_effort", chat_context_own(context, effort)); /* Kimi K3 */
}

static void set_effort(const struct context *context, const char *effort)
{
    size_t i = 0;

    while (i < CHAT_N_EFFORTS && strcmp(effort, chat_efforts[i]) != 0)
        i++;
    effort = i < CHAT_N_EFFORTS ? context->format->efforts[i] : NULL;
    if (effort != NULL)
        chat_context_set_effort(context, effort);
}

static void set_variables(struct context *context)
{
    const struct chat_prompt *prompt = context->prompt;
    const struct chat_format *format = context->format;
    struct jinja *jinja = context->jinja;

    jinja_set(jinja, "messages", messages_value(context));
    if (prompt->n_tools > 0)
        jinja_set(jinja, "tools", tools_value(context));
    else if (!format->leaves_tools_out)
        jinja_set(jinja, "tools", value_none());
    jinja_set(jinja, "documents", value_none());
    jinja_set(jinja, "add_generation_prompt", value_bool(prompt->adds_generation && !stays_open(prompt)));
    jinja_set(jinja, "bos_token", token_value(context, tokenizer_bos(format->tokenizer)));
    jinja_set(jinja, "eos_token", token_value(context, tokenizer_eos(format->tokenizer)));
    if (prompt->thinking != CHAT_THINKING_DEFAULT) {
        jinja_set(jinja, "enable_thinking", value_bool(prompt->thinking == CHAT_THINKING_ON));
        jinja_set(jinja, "thinking", value_bool(prompt->thinking == CHAT_THINKING_ON));
        jinja_set(jinja, "thinking_mode",
                  chat_context_own(context, prompt->thinking == CHAT_THINKING_ON ? "enabled" : "disabled"));
    }
    if (format->effort_that_thinks != NULL && prompt->thinking == CHAT_THINKING_OFF)
        return;
    if (prompt->effort != NULL)
        set_effort(context, prompt->effort);
    else if (format->effort_that_thinks != NULL && prompt->thinking == CHAT_THINKING_ON)
        chat_context_set_effort(context, format->effort_that_thinks);
}

/* Cuts the text after the last byte of the last message. */
static int cut_open_turn(struct text *text, struct fault *fault)
{
    size_t n = text->len_bytes;

    if (text->marks == NULL && (text->mark & MARK_LAST) == 0)
        n = 0;
    while (text->marks != NULL && n > 0 && (text->marks[n - 1] & MARK_LAST) == 0)
        n--;
    if (n == 0)
        return fault_set(
            fault, E_UNSUPPORTED,
            "the chat template does not show the beginning of an answer, so it cannot be continued");
    text->len_bytes = n;
    return 0;
}

static size_t input_bytes(const struct chat_prompt *prompt)
{
    size_t n = 0;

    for (size_t i = 0; i < prompt->n_messages; i++) {
        n += prompt->messages[i].text.len_bytes + prompt->messages[i].thinking.len_bytes + 64;
        for (size_t k = 0; k < prompt->messages[i].n_calls; k++)
            n += prompt->messages[i].calls[k].name.len_bytes +
                 prompt->messages[i].calls[k].arguments.len_bytes;
    }
    for (size_t i = 0; i < prompt->n_tools; i++)
        n += prompt->tools[i].name.len_bytes + prompt->tools[i].description.len_bytes +
             prompt->tools[i].parameters.len_bytes;
    return n;
}

static bool chat_context_is_empty(const struct chat_message *message)
{
    return message->text.len_bytes == 0 && message->n_calls == 0;
}

static struct text *pieces_room(const struct chat_prompt *prompt, struct arena *arena)
{
    size_t max_own = 0;

    for (size_t i = 0; i < prompt->n_messages; i++)
        max_own = prompt->messages[i].n_own > max_own ? prompt->messages[i].n_own : max_own;
    return arena_take(arena, (CHAT_MAX_PLACES + 1 + 2 * max_own) * sizeof(struct text));
}

int chat_run(const struct chat_format *format, const struct chat_prompt *prompt,
             const struct chat_extras *extras, struct fault *fault, struct chat_run *run)
{
    struct template_limits limits = template_limits_for(input_bytes(prompt));
    int64_t now = prompt->now_unix_s != 0 ? prompt->now_unix_s : (int64_t)(clock_unix_ns() / NS_PER_S);
    bool is_bad = false;
    struct context context = {.format = format, .extras = extras, .is_bad = &is_bad};
    struct chat_prompt shaped;

    run->jinja = NULL;
    arena_init(&run->arena, 0);
    if (chat_reshape(format, prompt, &run->arena, &shaped) < 0 ||
        (context.pieces = pieces_room(&shaped, &run->arena)) == NULL)
        return fault_set(fault, E_NOMEM, "out of memory");
    /* An answer that continues an empty message is a new answer. */
    if (stays_open(&shaped) && chat_context_is_empty(&shaped.messages[shaped.n_messages - 1])) {
        shaped.n_messages--;
        shaped.adds_generation = true;
        shaped.continues_last = false;
    }
    context.prompt = &shaped;
    context.is_reshaped = shaped.messages != prompt->messages;
    int rc = jinja_new(format->parsed, &limits, now, fault, &context.jinja);
    if (rc != 0)
        return rc;
    run->jinja = context.jinja;
    set_variables(&context);
    if (is_bad)
        return fault_set(fault, E_NOMEM, "out of memory");
    rc = jinja_run(context.jinja, &run->text);
    if (rc == 0 && stays_open(&shaped))
        rc = cut_open_turn(&run->text, fault);
    return rc;
}

void chat_run_fini(struct chat_run *run)
{
    jinja_free(run->jinja);
    arena_fini(&run->arena);
}
