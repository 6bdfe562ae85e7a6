/* SPDX-License-Identifier: Apache-2.0 */
/* The body of POST /v1/chat/completions: messages and tools.  parse_openai.c has its other fields.
 *
 *     system, developer   at the front: the system prompt; later: a system turn in its place
 *     user                text
 *     assistant           reasoning, text, calls; the last one is also a turn, unless continue_final_message
 *                         says that the answer continues it
 *     tool                the result of one call, in the user's turn after the calls
 *
 * A call's arguments come as text that should be JSON.  An object is written again in its canonical
 * serialisation.  Other text, which some model must once have written, becomes a JSON string. */
#include <stdlib.h>
#include <string.h>

#include "serve/api/parse_priv.h"
#include "base/err.h"
#include "base/str.h"

/* ---- content ---- */

static int parse_chat_put_part(struct parse *parse, const json_t *part, struct buf *out)
{
    struct bytes type = api_json_str(parse_member(part, "type"));
    const char *name = bytes_is(type, "refusal") ? "refusal" : "text";
    const json_t *text;

    if (!json_is_object(part))
        return parse_fail(parse, NULL, "Input should be an object");
    if (parse_member(part, "type") == NULL)
        return parse_fail(parse, "type", "Field required");
    if (!bytes_is(type, "text") && !bytes_is(type, "refusal"))
        return parse_fail(parse, "type", "'%.*s' parts are not supported: the model reads text only",
                          (int)(type.len_bytes > 100 ? 100 : type.len_bytes), (const char *)type.data);
    text = parse_member(part, name);
    if (text == NULL)
        return parse_fail(parse, name, "Field required");
    if (!json_is_string(text))
        return parse_fail(parse, name, "Input should be a valid string");
    buf_append(out, api_json_str(text).data, api_json_str(text).len_bytes);
    return 0;
}

/* Appends a string, or the concatenated texts of a list of parts. */
static int put_content(struct parse *parse, const json_t *message, bool is_required, struct buf *out)
{
    const json_t *content = parse_member(message, "content");

    if (content == NULL)
        return is_required ? parse_fail(parse, "content", "Field required") : 0;
    return parse_put_texts(parse, content, "content", parse_chat_put_part, out);
}

int parse_add_text(struct parse *parse, enum gen_block_kind kind, struct parse_origin origin,
                   struct bytes text)
{
    struct gen_block *block;

    if (text.len_bytes == 0)
        return 0;
    block = parse_add_block(parse, kind, origin);
    return block == NULL ? parse_no_memory(parse) : parse_copy(parse, text, &block->text);
}

static int add_content(struct parse *parse, const json_t *message, bool is_required,
                       struct parse_origin origin)
{
    struct buf text = {0};
    int rc = put_content(parse, message, is_required, &text);

    if (rc == 0)
        rc = text.is_bad ? parse_no_memory(parse) : parse_add_text(parse, GEN_TEXT, origin, buf_view(&text));
    buf_fini(&text);
    return rc;
}

/* ---- calls ---- */

int parse_arguments(struct parse *parse, struct bytes text, struct bytes *out)
{
    struct buf quoted = {0};
    struct fault fault;
    json_t *root = NULL;
    int rc = api_json_load(text, &fault, &root);

    if (rc == E_NOMEM)
        return parse_no_memory(parse);
    if (rc == 0 && json_is_object(root))
        rc = parse_serialise(parse, root, out);
    else if (text.len_bytes == 0)
        rc = parse_copy(parse, bytes_str("{}"), out);
    else
        rc = json_put_str(&quoted, text) < 0 ? parse_no_memory(parse)
                                             : parse_copy(parse, buf_view(&quoted), out);
    json_decref(root);
    buf_fini(&quoted);
    return rc;
}

static int parse_call(struct parse *parse, const json_t *item, struct parse_origin origin)
{
    const json_t *function = parse_member(item, "function");
    struct gen_block call = {.kind = GEN_TOOL_USE};
    struct bytes type = bytes_str("function");
    struct gen_block *added;
    size_t was;
    int rc;

    if (!json_is_object(item))
        return parse_fail(parse, NULL, "Input should be an object");
    if ((rc = parse_string(parse, item, "type", false, &type)) < 0 ||
        (rc = parse_string(parse, item, "id", true, &call.id)) < 0)
        return rc;
    if (!bytes_is(type, "function"))
        return parse_fail(parse, "type", "Input should be 'function'");
    if (call.id.len_bytes == 0)
        return parse_fail(parse, "id", "String should have at least 1 character");
    if (!json_is_object(function))
        return parse_fail(parse, "function",
                          function == NULL ? "Field required" : "Input should be an object");
    was = parse_push(parse, "function");
    if ((rc = parse_string(parse, function, "name", true, &call.name)) < 0 ||
        (rc = parse_string(parse, function, "arguments", false, &call.input)) < 0)
        return rc;
    if (call.name.len_bytes == 0)
        return parse_fail(parse, "name", "String should have at least 1 character");
    parse_pop(parse, was);
    if ((rc = parse_arguments(parse, call.input, &call.input)) < 0)
        return rc;
    added = parse_add_block(parse, GEN_TOOL_USE, origin);
    if (added == NULL)
        return parse_no_memory(parse);
    *added = call;
    return 0;
}

static int parse_calls(struct parse *parse, const json_t *message, struct parse_origin origin)
{
    const json_t *list = parse_member(message, "tool_calls");
    size_t was;

    if (list == NULL)
        return 0;
    if (!json_is_array(list))
        return parse_fail(parse, "tool_calls", "Input should be a valid list");
    was = parse_push(parse, "tool_calls");
    for (size_t i = 0; i < json_array_size(list); i++) {
        size_t outer = parse_push_index(parse, i);
        int rc;

        origin.block = (uint32_t)i;
        if ((rc = parse_call(parse, json_array_get(list, i), origin)) < 0)
            return rc;
        parse_pop(parse, outer);
    }
    parse_pop(parse, was);
    return 0;
}

/* ---- messages ---- */

void parse_enter_turn(struct parse *parse, enum gen_role role)
{
    struct gen_request *out = parse->out;

    if (out->n_messages > 0 && out->messages[out->n_messages - 1].role == role)
        return;
    out->messages[out->n_messages].role = role;
    parse->first_block[out->n_messages++] = parse->n_blocks;
}

static int parse_assistant(struct parse *parse, const json_t *message, struct parse_origin origin)
{
    bool has_calls = json_array_size(parse_member(message, "tool_calls")) > 0;
    struct bytes reasoning = api_json_str(parse_member(message, "reasoning_content"));
    int rc;

    if (parse_member(message, "function_call") != NULL)
        return parse_fail(parse, "function_call", "not supported by this server; use tool_calls");
    parse_enter_turn(parse, GEN_ASSISTANT);
    if ((rc = parse_add_text(parse, GEN_THINKING, origin, reasoning)) < 0 ||
        (rc = add_content(parse, message, !has_calls && parse_member(message, "refusal") == NULL, origin)) <
            0)
        return rc;
    return parse_calls(parse, message, origin);
}

int parse_begin_result(struct parse *parse, const json_t *object, const char *id_name,
                       struct parse_origin origin, struct gen_block **out)
{
    parse_enter_turn(parse, GEN_USER);
    *out = parse_add_block(parse, GEN_TOOL_RESULT, origin);
    if (*out == NULL)
        return parse_no_memory(parse);
    return parse_string(parse, object, id_name, true, &(*out)->id);
}

static int parse_tool_message(struct parse *parse, const json_t *message, struct parse_origin origin)
{
    struct gen_block *block;
    struct buf text = {0};
    int rc;

    if ((rc = parse_begin_result(parse, message, "tool_call_id", origin, &block)) < 0)
        return rc;
    rc = put_content(parse, message, true, &text);
    if (rc == 0)
        rc = text.is_bad ? parse_no_memory(parse) : parse_copy(parse, buf_view(&text), &block->text);
    buf_fini(&text);
    return rc;
}

/* Instructions before the first turn form the system prompt. */
static int parse_instructions(struct parse *parse, const json_t *message, struct parse_origin origin,
                              struct buf *system)
{
    if (parse->out->n_messages > 0) {
        parse_enter_turn(parse, GEN_SYSTEM);
        return add_content(parse, message, true, origin);
    }
    if (system->len_bytes > 0)
        buf_append_str(system, "\n\n");
    return put_content(parse, message, true, system);
}

static int parse_chat_parse_message(struct parse *parse, const json_t *item, size_t index, struct buf *system)
{
    const struct parse_origin origin = {(uint32_t)index, 0};
    struct bytes role = api_json_str(parse_member(item, "role"));

    if (!json_is_object(item))
        return parse_fail(parse, NULL, "Input should be an object");
    if (parse_member(item, "role") == NULL)
        return parse_fail(parse, "role", "Field required");
    if (bytes_is(role, "system") || bytes_is(role, "developer"))
        return parse_instructions(parse, item, origin, system);
    if (bytes_is(role, "assistant"))
        return parse_assistant(parse, item, origin);
    if (bytes_is(role, "tool"))
        return parse_tool_message(parse, item, origin);
    if (!bytes_is(role, "user"))
        return parse_fail(parse, "role",
                          "Input should be 'system', 'developer', 'user', 'assistant' or 'tool'");
    parse_enter_turn(parse, GEN_USER);
    return add_content(parse, item, true, origin);
}

static int parse_chat_parse_list(struct parse *parse, const json_t *list, struct buf *system)
{
    parse_push(parse, "messages");
    for (size_t i = 0; i < json_array_size(list); i++) {
        size_t was = parse_push_index(parse, i);
        int rc = parse_chat_parse_message(parse, json_array_get(list, i), i, system);

        if (rc < 0)
            return rc;
        parse_pop(parse, was);
    }
    parse_pop(parse, 0);
    return system->is_bad ? parse_no_memory(parse) : parse_copy(parse, buf_view(system), &parse->out->system);
}

static int parse_chat_messages(struct parse *parse, const json_t *root)
{
    const json_t *list;
    struct buf system = {0};
    bool continues = false;
    int rc;

    if ((rc = parse_message_list(parse, root, &list)) < 0 ||
        (rc = parse_bool(parse, root, "continue_final_message", &continues)) < 0)
        return rc;
    parse->keeps_last = !continues;
    rc = parse_chat_parse_list(parse, list, &system);
    buf_fini(&system);
    return rc;
}

/* ---- tools ---- */

int parse_function(struct parse *parse, const json_t *function, struct gen_tool *tool)
{
    const json_t *parameters = parse_member(function, "parameters");
    const json_t *type = parse_member(parameters, "type");
    int rc;

    if (!json_is_object(function))
        return parse_fail(parse, NULL, function == NULL ? "Field required" : "Input should be an object");
    if ((rc = parse_string(parse, function, "name", true, &tool->name)) < 0 ||
        (rc = parse_string(parse, function, "description", false, &tool->description)) < 0 ||
        (rc = parse_bool(parse, function, "strict", &tool->is_strict)) < 0)
        return rc;
    if (!parse_is_tool_name(tool->name))
        return parse_fail(parse, "name", "String should match pattern '^[a-zA-Z0-9_-]{1,128}$'");
    if (parameters != NULL && !json_is_object(parameters))
        return parse_fail(parse, "parameters", "Input should be an object");
    if (type != NULL && !bytes_is(api_json_str(type), "object"))
        return parse_fail(parse, "parameters.type", "Input should be 'object'");
    /* A function without arguments may leave its parameters out. */
    if (json_object_size(parameters) == 0)
        return parse_copy(parse, bytes_str("{\"type\": \"object\", \"properties\": {}}"),
                          &tool->input_schema);
    return parse_serialise(parse, parameters, &tool->input_schema);
}

static int parse_chat_tool(struct parse *parse, const json_t *item, struct gen_tool *tool)
{
    struct bytes type = {0};
    size_t was;
    int rc;

    if (!json_is_object(item))
        return parse_fail(parse, NULL, "Input should be an object");
    if ((rc = parse_string(parse, item, "type", true, &type)) < 0)
        return rc;
    if (!bytes_is(type, "function"))
        return parse_fail(parse, "type", "tools of type '%.*s' are not supported by this server",
                          (int)(type.len_bytes > 100 ? 100 : type.len_bytes), (const char *)type.data);
    was = parse_push(parse, "function");
    rc = parse_function(parse, parse_member(item, "function"), tool);
    if (rc == 0)
        parse_pop(parse, was);
    return rc;
}

static int parse_chat_choose(struct parse *parse, const json_t *choice)
{
    struct gen_request *out = parse->out;
    struct bytes type = {0};
    int rc = parse_string(parse, choice, "type", true, &type);

    if (rc < 0)
        return rc;
    if (!bytes_is(type, "function"))
        return parse_fail(parse, "type", "Input should be 'function'");
    if (!json_is_object(parse_member(choice, "function")))
        return parse_fail(parse, "function", "Input should be an object");
    parse_push(parse, "function");
    rc = parse_string(parse, parse_member(choice, "function"), "name", true, &out->tool_choice_name);
    if (rc == 0 && !parse_has_tool(out, out->tool_choice_name))
        rc = parse_fail(parse, "name", "Tool '%.*s' not found in provided tools",
                        (int)(out->tool_choice_name.len_bytes > 128 ? 128 : out->tool_choice_name.len_bytes),
                        (const char *)out->tool_choice_name.data);
    out->tool_choice = GEN_TOOLS_ONE;
    return rc;
}

int parse_openai_choice(struct parse *parse, const json_t *root, parse_value_fn *choose)
{
    const json_t *choice = parse_member(root, "tool_choice");
    struct bytes mode = api_json_str(choice);
    struct gen_request *out = parse->out;
    bool is_parallel = true;
    int rc = parse_bool(parse, root, "parallel_tool_calls", &is_parallel);

    if (rc < 0)
        return rc;
    out->is_single_call = !is_parallel;
    out->call_prefix = "call_";
    if (choice == NULL || bytes_is(mode, "auto"))
        return 0;
    if (bytes_is(mode, "none")) {
        out->tool_choice = GEN_TOOLS_NONE;
        return 0;
    }
    parse_push(parse, "tool_choice");
    if (bytes_is(mode, "required"))
        out->tool_choice = GEN_TOOLS_ANY;
    else if (!json_is_object(choice))
        return parse_fail(parse, NULL, "Input should be 'none', 'auto', 'required' or an object");
    if (out->n_tools == 0)
        return parse_fail(parse, NULL, "tool_choice may only be specified while providing tools");
    if (json_is_object(choice) && (rc = choose(parse, choice)) < 0)
        return rc;
    parse_pop(parse, 0);
    return 0;
}

/* ---- the whole ---- */

int parse_chat_prompt(struct parse *parse, const json_t *root)
{
    int rc;

    if (json_array_size(parse_member(root, "functions")) > 0)
        return parse_fail(parse, "functions", "not supported by this server; use tools");
    if (parse_member(root, "function_call") != NULL)
        return parse_fail(parse, "function_call", "not supported by this server; use tool_choice");
    if ((rc = parse_tool_list(parse, root, parse_chat_tool)) < 0 ||
        (rc = parse_chat_messages(parse, root)) < 0 ||
        (rc = parse_openai_choice(parse, root, parse_chat_choose)) < 0)
        return rc;
    return parse_check_pairs(parse);
}

int parse_chat(struct parse *parse, const json_t *root)
{
    int rc = parse_model(parse, root);

    if (rc < 0)
        return rc;
    rc = parse_chat_prompt(parse, root);
    return rc < 0 ? rc : parse_openai_fields(parse, root);
}
