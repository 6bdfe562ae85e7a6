/* SPDX-License-Identifier: Apache-2.0 */
/* Detects the API of a request body for baton-model render.
 *
 *     content blocks with calls, results or thinking, or "system" beside the messages   /v1/messages
 *     anything else                                                                   /v1/chat/completions
 *
 * People also write conversations as templates see them, which resembles the second: arguments are objects,
 * calls have no ids, tools are bare functions.  This file changes these in place to the API's form.  Then the
 * server's parser reads the whole. */
#include "clients/model/render_body.h"

#include "text/json/json.h"
#include "base/err.h"

#include <stdio.h>

/* ---- as templates' examples have it ---- */

static bool is_block_of_messages(const json_t *item)
{
    struct bytes type = api_json_str(json_object_get(item, "type"));

    return bytes_is(type, "tool_use") || bytes_is(type, "tool_result") || bytes_is(type, "thinking") ||
           bytes_is(type, "redacted_thinking");
}

static enum api_call api_of(const json_t *root)
{
    const json_t *messages = json_object_get(root, "messages");
    size_t i, k;
    json_t *message, *item;

    if (json_object_get(root, "system") != NULL)
        return API_COUNT_TOKENS;
    json_array_foreach(messages, i, message)
    {
        json_array_foreach(json_object_get(message, "content"), k, item)
        {
            if (is_block_of_messages(item))
                return API_COUNT_TOKENS;
        }
    }
    return API_CHAT;
}

/* "arguments" as text. */
static int render_body_spell_arguments(json_t *function)
{
    json_t *arguments = json_object_get(function, "arguments");
    struct buf text = {0};
    int rc = 0;

    if (arguments == NULL || json_is_string(arguments))
        return 0;
    if (api_json_put(&text, arguments) < 0 ||
        json_object_set_new(function, "arguments", json_stringn((char *)text.data, text.len_bytes)) != 0)
        rc = E_NOMEM;
    buf_fini(&text);
    return rc;
}

/* {"name": ...} -> {"function": {"name": ...}} with a type. */
static int wrap_function(json_t *list, size_t i)
{
    json_t *item = json_array_get(list, i), *outer;

    if (!json_is_object(item))
        return 0;
    if (!json_is_object(json_object_get(item, "function")) && json_object_get(item, "name") != NULL) {
        outer = json_object();
        if (outer == NULL || json_object_set(outer, "function", item) != 0 ||
            (json_object_get(item, "id") != NULL &&
             json_object_set(outer, "id", json_object_get(item, "id")) != 0) ||
            json_array_set_new(list, i, outer) != 0)
            return E_NOMEM;
        item = json_array_get(list, i);
    }
    if (json_object_get(item, "type") == NULL &&
        json_object_set_new(item, "type", json_string("function")) != 0)
        return E_NOMEM;
    return 0;
}

static int set_id(json_t *object, const char *name, size_t number)
{
    char id[32];

    if (json_string_length(json_object_get(object, name)) > 0)
        return 0;
    snprintf(id, sizeof(id), "call_%zu", number);
    return json_object_set_new(object, name, json_string(id)) == 0 ? 0 : E_NOMEM;
}

static int order_calls(json_t *calls, size_t *n_calls)
{
    int rc = 0;

    for (size_t i = 0; i < json_array_size(calls) && rc == 0; i++) {
        rc = wrap_function(calls, i);
        if (rc == 0)
            rc = render_body_spell_arguments(json_object_get(json_array_get(calls, i), "function"));
        if (rc == 0 && json_is_object(json_array_get(calls, i)))
            rc = set_id(json_array_get(calls, i), "id", (*n_calls)++);
    }
    return rc;
}

/* Results without an id are those of the turn's calls, in order. */
static int order_messages(json_t *messages)
{
    const json_t *calls = NULL;
    size_t n_calls = 0, n_results = 0, i;
    json_t *message;
    int rc = 0;

    json_array_foreach(messages, i, message)
    {
        json_t *list = json_object_get(message, "tool_calls");
        json_t *id = json_object_get(json_array_get(calls, n_results), "id");

        if (json_array_size(list) > 0) {
            rc = order_calls(list, &n_calls);
            calls = list;
            n_results = 0;
        } else if (bytes_is(api_json_str(json_object_get(message, "role")), "tool")) {
            if (json_object_get(message, "tool_call_id") == NULL && id != NULL &&
                json_object_set(message, "tool_call_id", id) != 0)
                rc = E_NOMEM;
            n_results++;
        }
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int order_tools(json_t *tools)
{
    int rc = 0;

    for (size_t i = 0; i < json_array_size(tools) && rc == 0; i++) {
        rc = wrap_function(tools, i);
        json_t *function = json_object_get(json_array_get(tools, i), "function");
        json_t *schema = json_object_get(function, "input_schema");

        if (rc == 0 && schema != NULL && json_object_get(function, "parameters") == NULL &&
            json_object_set(function, "parameters", schema) != 0)
            rc = E_NOMEM;
    }
    return rc;
}

/* ---- the request ---- */

static json_t *render_body_question(const struct render_body *body)
{
    if (body->system == NULL)
        return json_pack("{s:[{s:s, s:s}]}", "messages", "role", "user", "content", body->user);
    return json_pack("{s:[{s:s, s:s}, {s:s, s:s}]}", "messages", "role", "system", "content", body->system,
                     "role", "user", "content", body->user);
}

static int render_body_load(const struct render_body *body, struct fault *fault, json_t **out)
{
    if (body->user == NULL)
        return api_json_load(body->text, fault, out);
    *out = render_body_question(body);
    return *out != NULL ? 0 : fault_set(fault, E_FORMAT, "the question is not UTF-8");
}

/* Everything that the parser wants and a file may lack. */
static int render_body_order(json_t *root, enum api_call call, bool continues_last)
{
    int rc = 0;

    if (json_object_get(root, "model") == NULL &&
        json_object_set_new(root, "model", json_string("model")) != 0)
        return E_NOMEM;
    if (call != API_CHAT)
        return 0;
    if (continues_last && json_object_set_new(root, "continue_final_message", json_true()) != 0)
        return E_NOMEM;
    rc = order_messages(json_object_get(root, "messages"));
    return rc < 0 ? rc : order_tools(json_object_get(root, "tools"));
}

int render_body_read(const struct render_body *body, struct gen_request *out, struct fault *fault)
{
    struct api_error error = {0};
    struct buf text = {0};
    json_t *root = NULL;
    enum api_call call;
    int rc = render_body_load(body, fault, &root);

    if (rc < 0)
        return rc;
    call = api_of(root);
    rc = json_is_object(root) ? render_body_order(root, call, body->continues_last) : 0;
    if (rc == 0)
        rc = api_json_put(&text, root);
    json_decref(root);
    if (rc < 0)
        fault_set(fault, rc, "%s", err_text(rc));
    else if ((rc = api_parse_request(buf_view(&text), call, out, &error)) < 0)
        fault_set(fault, rc, "%s", error.message);
    buf_fini(&text);
    return rc;
}
