/* SPDX-License-Identifier: Apache-2.0 */
/* The items of /v1/responses.
 *
 *     message                system and developer at the front: after the instructions; later: in their place
 *     reasoning              thinking of the assistant's turn
 *     function_call          a call of the assistant's turn
 *     function_call_output   its result, in the user's turn after it
 *
 * Adjacent items of one side are one turn.  Other items are refused by name, because leaving one out would
 * change the conversation. */
#include <stdlib.h>
#include <string.h>

#include "serve/api/parse_priv.h"
#include "base/check.h"
#include "base/err.h"

#define MAX_KEPT_ITEMS 20000

/* ---- text ---- */

static bool parse_items_is_text_type(struct bytes type)
{
    return bytes_is(type, "input_text") || bytes_is(type, "output_text") || bytes_is(type, "text") ||
           bytes_is(type, "refusal") || bytes_is(type, "summary_text") || bytes_is(type, "reasoning_text");
}

static int parse_items_put_part(struct parse *parse, const json_t *part, struct buf *out)
{
    struct bytes type = api_json_str(parse_member(part, "type"));
    const char *name = bytes_is(type, "refusal") ? "refusal" : "text";
    struct bytes text = api_json_str(parse_member(part, name));

    if (!json_is_object(part))
        return parse_fail(parse, NULL, "Input should be an object");
    if (parse_member(part, "type") == NULL)
        return parse_fail(parse, "type", "Field required");
    if (!parse_items_is_text_type(type))
        return parse_fail(parse, "type", "'%.*s' parts are not supported: the model reads text only",
                          (int)(type.len_bytes > 100 ? 100 : type.len_bytes),
                          type.data == NULL ? "" : (const char *)type.data);
    if (!json_is_string(parse_member(part, name)))
        return parse_fail(parse, name, "Input should be a valid string");
    buf_append(out, text.data, text.len_bytes);
    return 0;
}

/* Appends a string, or the texts of a list of parts. */
static int parse_items_put_parts(struct parse *parse, const json_t *item, const char *name, struct buf *out)
{
    const json_t *content = parse_member(item, name);

    if (content == NULL)
        return parse_fail(parse, name, "Field required");
    return parse_put_texts(parse, content, name, parse_items_put_part, out);
}

static int parse_items_add_parts(struct parse *parse, const json_t *item, const char *name,
                                 enum gen_block_kind kind, struct parse_origin origin)
{
    struct buf text = {0};
    int rc = parse_items_put_parts(parse, item, name, &text);

    if (rc == 0)
        rc = text.is_bad ? parse_no_memory(parse) : parse_add_text(parse, kind, origin, buf_view(&text));
    buf_fini(&text);
    return rc;
}

/* ---- items ---- */

typedef int (*item_parser)(struct parse *parse, const json_t *item, struct parse_origin origin,
                           struct buf *system);

static int parse_items_message(struct parse *parse, const json_t *item, struct parse_origin origin,
                               struct buf *system)
{
    struct bytes role = api_json_str(parse_member(item, "role"));
    bool is_system = bytes_is(role, "system") || bytes_is(role, "developer");

    if (parse_member(item, "role") == NULL)
        return parse_fail(parse, "role", "Field required");
    if (!is_system && !bytes_is(role, "user") && !bytes_is(role, "assistant"))
        return parse_fail(parse, "role", "Input should be 'system', 'developer', 'user' or 'assistant'");
    if (is_system && parse->out->n_messages == 0) {
        if (system->len_bytes > 0)
            buf_append_str(system, "\n\n");
        return parse_items_put_parts(parse, item, "content", system);
    }
    parse_enter_turn(parse, is_system ? GEN_SYSTEM : bytes_is(role, "assistant") ? GEN_ASSISTANT : GEN_USER);
    return parse_items_add_parts(parse, item, "content", GEN_TEXT, origin);
}

/* The text is in `content`, or in `summary` where the client asked for summaries. */
static int parse_items_reasoning(struct parse *parse, const json_t *item, struct parse_origin origin,
                                 struct buf *system)
{
    const char *name = json_array_size(parse_member(item, "content")) > 0 ? "content" : "summary";
    struct bytes signature = {0};
    size_t n_before = parse->n_blocks;
    int rc = parse_string(parse, item, "encrypted_content", false, &signature);

    if (rc < 0)
        return rc;
    parse_enter_turn(parse, GEN_ASSISTANT);
    if (parse_member(item, name) != NULL &&
        (rc = parse_items_add_parts(parse, item, name, GEN_THINKING, origin)) < 0)
        return rc;
    if (parse->n_blocks == n_before && signature.len_bytes > 0 &&
        parse_add_block(parse, GEN_THINKING, origin) == NULL)
        return parse_no_memory(parse);
    if (parse->n_blocks > n_before)
        parse->blocks[n_before].signature = signature;
    return 0;
}

static int parse_items_call(struct parse *parse, const json_t *item, struct parse_origin origin,
                            struct buf *system)
{
    struct gen_block call = {.kind = GEN_TOOL_USE};
    struct gen_block *added;
    int rc;

    if ((rc = parse_string(parse, item, "call_id", true, &call.id)) < 0 ||
        (rc = parse_string(parse, item, "name", true, &call.name)) < 0 ||
        (rc = parse_string(parse, item, "arguments", false, &call.input)) < 0)
        return rc;
    if (call.id.len_bytes == 0)
        return parse_fail(parse, "call_id", "String should have at least 1 character");
    if (call.name.len_bytes == 0)
        return parse_fail(parse, "name", "String should have at least 1 character");
    if ((rc = parse_arguments(parse, call.input, &call.input)) < 0)
        return rc;
    parse_enter_turn(parse, GEN_ASSISTANT);
    added = parse_add_block(parse, GEN_TOOL_USE, origin);
    if (added == NULL)
        return parse_no_memory(parse);
    *added = call;
    return 0;
}

static int parse_items_output(struct parse *parse, const json_t *item, struct parse_origin origin,
                              struct buf *system)
{
    struct gen_block *block;
    struct buf text = {0};
    int rc;

    if ((rc = parse_begin_result(parse, item, "call_id", origin, &block)) < 0)
        return rc;
    rc = parse_items_put_parts(parse, item, "output", &text);
    if (rc == 0)
        rc = text.is_bad ? parse_no_memory(parse) : parse_copy(parse, buf_view(&text), &block->text);
    buf_fini(&text);
    return rc;
}

static const struct {
    const char *type;
    item_parser parser;
} kinds[] = {{"message", parse_items_message},
             {"reasoning", parse_items_reasoning},
             {"function_call", parse_items_call},
             {"function_call_output", parse_items_output}};

static int parse_items_item(struct parse *parse, const json_t *item, size_t index, struct buf *system)
{
    const struct parse_origin origin = {(uint32_t)index, 0};
    struct bytes type = bytes_str("message");
    int rc;

    if (!json_is_object(item))
        return parse_fail(parse, NULL, "Input should be an object");
    if ((rc = parse_string(parse, item, "type", false, &type)) < 0)
        return rc;
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
        if (bytes_is(type, kinds[i].type))
            return kinds[i].parser(parse, item, origin, system);
    return parse_fail(parse, "type", "items of type '%.*s' are not supported by this server",
                      (int)(type.len_bytes > 100 ? 100 : type.len_bytes), (const char *)type.data);
}

static int parse_items_list(struct parse *parse, json_t *list, struct buf *system)
{
    buf_append(system, parse->out->system.data, parse->out->system.len_bytes);
    parse_push(parse, "input");
    for (size_t i = 0; i < json_array_size(list); i++) {
        size_t index = i < parse->n_earlier ? i : i - parse->n_earlier; /* the index as the client counts */
        size_t was = parse_push_index(parse, index);
        int rc = parse_items_item(parse, json_array_get(list, i), i, system);

        if (rc < 0)
            return rc;
        parse_pop(parse, was);
    }
    parse_pop(parse, 0);
    if (parse->out->n_messages == 0) /* clients send an empty input to check whether a server answers */
        parse_enter_turn(parse, GEN_USER);
    return system->is_bad ? parse_no_memory(parse) : parse_copy(parse, buf_view(system), &parse->out->system);
}

int parse_response_items(struct parse *parse, json_t *list)
{
    size_t n = json_array_size(list) + 1;
    struct buf system = {0};
    int rc;

    parse->out->messages = arena_take(&parse->out->arena, n * sizeof(struct gen_message));
    parse->first_block = calloc(n, sizeof(*parse->first_block));
    if (parse->out->messages == NULL || parse->first_block == NULL)
        return parse_no_memory(parse);
    rc = parse_items_list(parse, list, &system);
    buf_fini(&system);
    return rc;
}

/* ---- keeping ---- */

/* Appends an item with its id first, and with its type. */
static void parse_items_put_item(struct buf *out, json_t *item)
{
    json_t *id = json_incref(json_object_get(item, "id"));
    struct buf text = {0};

    json_object_del(item, "id");
    api_json_put(&text, item);
    buf_append_byte(out, '{');
    if (json_string_length(id) > 0) {
        buf_append_str(out, "\"id\": ");
        api_json_put(out, id);
        buf_append_str(out, json_object_size(item) > 0 ? ", " : "");
    }
    if (json_object_get(item, "type") == NULL)
        buf_append_str(out, json_object_size(item) > 0 ? "\"type\": \"message\", " : "\"type\": \"message\"");
    if (text.len_bytes > 1)
        buf_append(out, text.data + 1, text.len_bytes - 1);
    out->is_bad |= text.is_bad;
    buf_fini(&text);
    json_decref(id);
}

int parse_response_keep(struct parse *parse, json_t *list)
{
    struct gen_response *response = parse->out->response;
    struct buf text = {0};
    int rc = 0;

    for (size_t i = 0; response->is_stored && i < json_array_size(list) && !text.is_bad; i++) {
        if (i > 0)
            buf_append_str(&text, ",\n");
        parse_items_put_item(&text, json_array_get(list, i));
        if (text.len_bytes <= API_MAX_KEPT_BYTES && json_array_size(list) <= MAX_KEPT_ITEMS)
            continue;
        response->is_stored = false;
        buf_clear(&text);
        parse_push(parse, "store");
        rc = parse_response_warn(parse, "response_not_kept", "the conversation is too long to be kept");
        parse_pop(parse, 0);
    }
    if (rc == 0)
        rc = text.is_bad ? parse_no_memory(parse) : parse_copy(parse, buf_view(&text), &response->items);
    buf_fini(&text);
    return rc;
}
