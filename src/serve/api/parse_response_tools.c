/* SPDX-License-Identifier: Apache-2.0 */
/* `tools`, `tool_choice` and `parallel_tool_calls` of /v1/responses.
 *
 * A text model can only use functions.  Agents also send tools of other types, but work well without them.
 * So the parser leaves these out; the answer names them in `warnings`, and the log too.  A request without
 * any function among its tools is refused. */
#include <stdio.h>

#include "serve/api/parse_priv.h"
#include "base/err.h"

#define MAX_LEFT_OUT_BYTES 200

static int response_tools_clip(struct bytes text, int most)
{
    return text.len_bytes > (size_t)most ? most : (int)text.len_bytes;
}

static int response_tools_leave_out(struct parse *parse, struct bytes type)
{
    char text[200];

    if (parse->left_out.len_bytes < MAX_LEFT_OUT_BYTES) {
        if (parse->left_out.len_bytes > 0)
            buf_append_str(&parse->left_out, ",");
        buf_append(&parse->left_out, type.data, (size_t)response_tools_clip(type, 40));
    }
    snprintf(text, sizeof(text), "tools of type '%.*s' are not run by this server and were left out",
             response_tools_clip(type, 100), (const char *)type.data);
    return parse_response_warn(parse, "tool_left_out", text);
}

static int response_tools_tool(struct parse *parse, const json_t *item)
{
    struct gen_request *out = parse->out;
    struct bytes type = {0};
    int rc;

    if (!json_is_object(item))
        return parse_fail(parse, NULL, "Input should be an object");
    if ((rc = parse_string(parse, item, "type", true, &type)) < 0)
        return rc;
    if (!bytes_is(type, "function"))
        return response_tools_leave_out(parse, type);
    return parse_function(parse, item, &out->tools[out->n_tools++]);
}

int parse_response_tools(struct parse *parse, const json_t *root)
{
    const json_t *list = parse_member(root, "tools");
    struct gen_request *out = parse->out;
    size_t n = json_array_size(list);
    int rc;

    if (list == NULL)
        return 0;
    if (!json_is_array(list))
        return parse_fail(parse, "tools", "Input should be a valid list");
    out->tools = arena_take(&out->arena, (n + 1) * sizeof(struct gen_tool));
    if (out->tools == NULL)
        return parse_no_memory(parse);
    parse_push(parse, "tools");
    for (size_t i = 0; i < n; i++) {
        size_t was = parse_push_index(parse, i);

        out->tools[out->n_tools] = (struct gen_tool){0};
        if ((rc = response_tools_tool(parse, json_array_get(list, i))) < 0)
            return rc;
        parse_pop(parse, was);
    }
    parse_pop(parse, 0);
    if (n > 0 && out->n_tools == 0)
        return parse_fail(parse, "tools",
                          "tools of type '%.*s' are not run by this server; only functions are",
                          (int)parse->left_out.len_bytes,
                          parse->left_out.data == NULL ? "" : (const char *)parse->left_out.data);
    if (parse->left_out.is_bad)
        return parse_no_memory(parse);
    rc = parse_copy(parse, buf_view(&parse->left_out), &out->response->left_out);
    return rc < 0 ? rc : parse_check_unique(parse);
}

/* A choice that names one function. */
static int response_tools_choose_function(struct parse *parse, const json_t *choice)
{
    struct gen_request *out = parse->out;
    struct bytes type = {0}, *name = &out->tool_choice_name;
    int rc = parse_string(parse, choice, "type", true, &type);

    if (rc < 0)
        return rc;
    if (!bytes_is(type, "function"))
        return parse_fail(parse, "type", "a choice of type '%.*s' is not supported by this server",
                          response_tools_clip(type, 100), (const char *)type.data);
    if ((rc = parse_string(parse, choice, "name", true, name)) < 0)
        return rc;
    if (!parse_has_tool(out, *name))
        return parse_fail(parse, "name", "Tool '%.*s' not found in provided tools",
                          response_tools_clip(*name, 128), (const char *)name->data);
    out->tool_choice = GEN_TOOLS_ONE;
    return 0;
}

int parse_response_choice(struct parse *parse, const json_t *root)
{
    return parse_openai_choice(parse, root, response_tools_choose_function);
}
