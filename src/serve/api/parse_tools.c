/* SPDX-License-Identifier: Apache-2.0 */
/* `tools` and `tool_choice`.
 *
 * Definitions become part of the prompt, so their schemas are written in the canonical serialisation with the
 * client's order of keys.  Tools that the server would have to run are refused by name, because no code here
 * runs them. parse_typed.c has tools that the client runs and names only by type.  A tool with deferred
 * loading is loaded at once. */
#include <stdlib.h>
#include <string.h>

#include "serve/api/parse_priv.h"
#include "base/err.h"

#define MAX_NAME_BYTES 128

bool parse_is_tool_name(struct bytes name)
{
    if (name.len_bytes == 0 || name.len_bytes > MAX_NAME_BYTES)
        return false;
    for (size_t i = 0; i < name.len_bytes; i++) {
        uint8_t c = name.data[i];

        if (!(c >= 'a' && c <= 'z') && !(c >= 'A' && c <= 'Z') && !(c >= '0' && c <= '9') && c != '_' &&
            c != '-')
            return false;
    }
    return true;
}

/* Reads description and schema from the client. */
static int parse_described(struct parse *parse, const json_t *item, struct gen_tool *tool)
{
    const json_t *schema = parse_member(item, "input_schema");
    int rc = parse_string(parse, item, "description", false, &tool->description);

    if (rc < 0)
        return rc;
    if (schema == NULL)
        return parse_fail(parse, "input_schema", "Field required");
    if (!json_is_object(schema))
        return parse_fail(parse, "input_schema", "Input should be an object");
    if (!bytes_is(api_json_str(parse_member(schema, "type")), "object"))
        return parse_fail(parse, "input_schema.type", "Input should be 'object'");
    return parse_serialise(parse, schema, &tool->input_schema);
}

static int parse_tool(struct parse *parse, const json_t *item, struct gen_tool *tool)
{
    struct bytes type = bytes_str("custom");
    int rc;

    if (!json_is_object(item))
        return parse_fail(parse, NULL, "Input should be an object");
    if ((rc = parse_string(parse, item, "type", false, &type)) < 0 ||
        (rc = parse_string(parse, item, "name", bytes_is(type, "custom"), &tool->name)) < 0 ||
        (rc = parse_bool(parse, item, "strict", &tool->is_strict)) < 0)
        return rc;
    if (bytes_is(type, "custom"))
        rc = parse_described(parse, item, tool);
    else if (!parse_typed_tool(type, tool))
        rc = parse_fail(parse, "type", "tools of type '%.*s' are not supported by this server",
                        (int)type.len_bytes, (const char *)type.data);
    if (rc == 0 && !parse_is_tool_name(tool->name))
        rc = parse_fail(parse, "name", "String should match pattern '^[a-zA-Z0-9_-]{1,128}$'");
    return rc < 0 ? rc : parse_cache_control(parse, item);
}

static int compare_names(const void *a, const void *b)
{
    const struct bytes *x = a;
    const struct bytes *y = b;
    size_t n = x->len_bytes < y->len_bytes ? x->len_bytes : y->len_bytes;
    int order = memcmp(x->data, y->data, n);

    return order != 0 ? order : (x->len_bytes > y->len_bytes) - (x->len_bytes < y->len_bytes);
}

int parse_check_unique(struct parse *parse)
{
    size_t n = parse->out->n_tools;
    struct bytes *names = calloc(n + 1, sizeof(*names));
    int rc = 0;

    if (names == NULL)
        return parse_no_memory(parse);
    for (size_t i = 0; i < n; i++)
        names[i] = parse->out->tools[i].name;
    qsort(names, n, sizeof(*names), compare_names);
    for (size_t i = 1; i < n && rc == 0; i++)
        if (bytes_equal(names[i - 1], names[i]))
            rc = parse_fail(parse, "tools", "Tool names must be unique: '%.*s' is used twice",
                            (int)names[i].len_bytes, (const char *)names[i].data);
    free(names);
    return rc;
}

int parse_tool_list(struct parse *parse, const json_t *root, parse_tool_fn parse_one)
{
    const json_t *list = parse_member(root, "tools");
    size_t n = json_array_size(list);

    if (list == NULL)
        return 0;
    if (!json_is_array(list))
        return parse_fail(parse, "tools", "Input should be a valid list");
    parse->out->tools = arena_take(&parse->out->arena, (n + 1) * sizeof(struct gen_tool));
    if (parse->out->tools == NULL)
        return parse_no_memory(parse);
    parse_push(parse, "tools");
    for (size_t i = 0; i < n; i++) {
        size_t was = parse_push_index(parse, i);
        int rc = parse_one(parse, json_array_get(list, i), &parse->out->tools[i]);

        if (rc < 0)
            return rc;
        parse_pop(parse, was);
    }
    parse_pop(parse, 0);
    parse->out->n_tools = n;
    return parse_check_unique(parse);
}

int parse_tools(struct parse *parse, const json_t *root)
{
    return parse_tool_list(parse, root, parse_tool);
}

bool parse_has_tool(const struct gen_request *request, struct bytes name)
{
    for (size_t i = 0; i < request->n_tools; i++)
        if (bytes_equal(request->tools[i].name, name))
            return true;
    return false;
}

/* Checks a forced call.  Errors that would exist without forcing are reported first. */
static int parse_forced_choice(struct parse *parse, const json_t *choice, bool is_one)
{
    struct gen_request *out = parse->out;
    int rc;

    if (out->n_tools == 0)
        return parse_fail(parse, NULL, "tool_choice may only be specified while providing tools");
    if (is_one) {
        if ((rc = parse_string(parse, choice, "name", true, &out->tool_choice_name)) < 0)
            return rc;
        if (!parse_has_tool(out, out->tool_choice_name))
            return parse_fail(parse, "name", "Tool '%.*s' not found in provided tools",
                              (int)out->tool_choice_name.len_bytes, (const char *)out->tool_choice_name.data);
    }
    if (parse->thinks)
        return parse_fail(parse, "type", "Thinking may not be enabled when tool_choice forces tool use");
    if (parse->call == API_MESSAGES && out->work.max_new_tokens == 0)
        return parse_fail(parse, NULL, "a forced call cannot be used with `max_tokens` 0");
    out->tool_choice = is_one ? GEN_TOOLS_ONE : GEN_TOOLS_ANY;
    return 0;
}

int parse_tool_choice(struct parse *parse, const json_t *root)
{
    const json_t *choice = parse_member(root, "tool_choice");
    struct bytes type = {0};
    int rc;

    if (choice == NULL)
        return 0;
    parse_push(parse, "tool_choice");
    if (!json_is_object(choice))
        return parse_fail(parse, NULL, "Input should be an object");
    if ((rc = parse_string(parse, choice, "type", true, &type)) < 0 ||
        (rc = parse_bool(parse, choice, "disable_parallel_tool_use", &parse->out->is_single_call)) < 0)
        return rc;
    if (bytes_is(type, "auto"))
        parse->out->tool_choice = GEN_TOOLS_AUTO;
    else if (bytes_is(type, "none"))
        parse->out->tool_choice = GEN_TOOLS_NONE;
    else if (bytes_is(type, "any") || bytes_is(type, "tool"))
        rc = parse_forced_choice(parse, choice, bytes_is(type, "tool"));
    else
        return parse_fail(parse, "type", "Input should be 'auto', 'any', 'tool' or 'none'");
    if (rc == 0)
        parse_pop(parse, 0);
    return rc;
}
