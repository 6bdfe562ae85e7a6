/* SPDX-License-Identifier: Apache-2.0 */
/* `system` and `messages`: roles, merging of adjacent messages, and the walk over content.
 *
 * Adjacent messages of one role are merged.  A system message among the others stays in its place: moving
 * it to the front would change the prompt's prefix and lose the cache.  The blocks of all messages are in
 * one array. Each block remembers its place in the client's list, because later errors must name that
 * place. */
#include <stdlib.h>
#include <string.h>

#include "serve/api/parse_priv.h"
#include "base/err.h"

#define MAX_MESSAGES 100000

/* Older agents put a value here that changes with every request; rendering it would defeat the prefix
 * cache. */
static const char billing_prefix[] = "x-anthropic-billing-header:";

static int add_system_text(struct parse *parse, const json_t *item, bool is_first, struct buf *text)
{
    struct bytes piece;

    if (!json_is_object(item))
        return parse_fail(parse, NULL, "Input should be an object");
    if (!bytes_is(api_json_str(parse_member(item, "type")), "text"))
        return parse_fail(parse, "type", "Input should be 'text'");
    if (!json_is_string(parse_member(item, "text")))
        return parse_fail(parse, "text", "Input should be a valid string");
    piece = api_json_str(parse_member(item, "text"));
    if (piece.len_bytes > 0 && !(is_first && bytes_starts_with(piece, billing_prefix))) {
        if (text->len_bytes > 0)
            buf_append_str(text, "\n\n");
        buf_append(text, piece.data, piece.len_bytes);
    }
    parse->system_bytes = text->len_bytes;
    return parse_cache_control(parse, item);
}

/* Moves a breakpoint at the end of the system text behind the whole system message. */
static void end_system_mark(const struct parse *parse, struct gen_mark *mark)
{
    if (mark->system_bytes == parse->out->system.len_bytes)
        mark->system_bytes = 0;
}

int parse_system(struct parse *parse, const json_t *root)
{
    const json_t *system = parse_member(root, "system");
    struct buf text = {0};
    int rc = 0;

    if (system == NULL)
        return 0;
    if (json_is_string(system))
        return parse_copy(parse, api_json_str(system), &parse->out->system);
    if (!json_is_array(system))
        return parse_fail(parse, "system", "Input should be a valid string or list");
    parse_push(parse, "system");
    for (size_t i = 0; i < json_array_size(system) && rc == 0; i++) {
        size_t was = parse_push_index(parse, i);

        rc = add_system_text(parse, json_array_get(system, i), i == 0, &text);
        if (rc == 0)
            parse_pop(parse, was);
    }
    if (rc == 0) {
        parse_pop(parse, 0);
        rc = text.is_bad ? parse_no_memory(parse) : parse_copy(parse, buf_view(&text), &parse->out->system);
        for (unsigned pin = 0; pin < WORK_N_PINS; pin++)
            end_system_mark(parse, &parse->out->marks[pin]);
    }
    parse->system_bytes = 0;
    buf_fini(&text);
    return rc;
}

struct gen_block *parse_add_block(struct parse *parse, enum gen_block_kind kind, struct parse_origin origin)
{
    struct gen_message *message = &parse->out->messages[parse->out->n_messages - 1];

    if (parse->n_blocks == parse->cap_blocks) {
        size_t cap = parse->cap_blocks == 0 ? 64 : parse->cap_blocks * 2;
        struct gen_block *blocks = realloc(parse->blocks, cap * sizeof(*blocks));
        struct parse_origin *origins;

        if (blocks == NULL)
            return NULL;
        parse->blocks = blocks;
        origins = realloc(parse->origins, cap * sizeof(*origins));
        if (origins == NULL)
            return NULL;
        parse->origins = origins;
        parse->cap_blocks = cap;
    }
    memset(&parse->blocks[parse->n_blocks], 0, sizeof(struct gen_block));
    parse->blocks[parse->n_blocks].kind = kind;
    parse->origins[parse->n_blocks] = origin;
    message->n_blocks++;
    return &parse->blocks[parse->n_blocks++];
}

static int parse_role(struct parse *parse, const json_t *message, enum gen_role *out)
{
    const json_t *role = parse_member(message, "role");

    if (role == NULL)
        return parse_fail(parse, "role", "Field required");
    if (bytes_is(api_json_str(role), "user"))
        *out = GEN_USER;
    else if (bytes_is(api_json_str(role), "assistant"))
        *out = GEN_ASSISTANT;
    else if (bytes_is(api_json_str(role), "system"))
        *out = GEN_SYSTEM;
    else
        return parse_fail(parse, "role", "Input should be 'user', 'assistant' or 'system'");
    return 0;
}

static int parse_content(struct parse *parse, const json_t *content, enum gen_role role, size_t message)
{
    size_t was;

    if (content == NULL)
        return parse_fail(parse, "content", "Field required");
    if (json_is_string(content)) {
        struct gen_block *block;

        if (json_string_length(content) == 0)
            return 0;
        block = parse_add_block(parse, GEN_TEXT, (struct parse_origin){(uint32_t)message, 0});
        return block == NULL ? parse_no_memory(parse)
                             : parse_copy(parse, api_json_str(content), &block->text);
    }
    if (!json_is_array(content))
        return parse_fail(parse, "content", "Input should be a valid string or list");
    was = parse_push(parse, "content");
    for (size_t i = 0; i < json_array_size(content); i++) {
        size_t outer = parse_push_index(parse, i);
        int rc = parse_block(parse, json_array_get(content, i), role,
                             (struct parse_origin){(uint32_t)message, (uint32_t)i});

        if (rc < 0)
            return rc;
        parse_pop(parse, outer);
    }
    parse_pop(parse, was);
    return 0;
}

static int parse_content_parse_message(struct parse *parse, const json_t *item, size_t index)
{
    struct gen_request *out = parse->out;
    enum gen_role role = GEN_USER;
    int rc;

    if (!json_is_object(item))
        return parse_fail(parse, NULL, "Input should be an object");
    if ((rc = parse_role(parse, item, &role)) < 0)
        return rc;
    if (out->n_messages == 0 || out->messages[out->n_messages - 1].role != role) {
        out->messages[out->n_messages].role = role;
        parse->first_block[out->n_messages++] = parse->n_blocks;
    }
    return parse_content(parse, parse_member(item, "content"), role, index);
}

int parse_message_list(struct parse *parse, const json_t *root, const json_t **list_out)
{
    const json_t *list = parse_member(root, "messages");
    size_t n = json_array_size(list);

    if (list == NULL)
        return parse_fail(parse, "messages", "Field required");
    if (!json_is_array(list))
        return parse_fail(parse, "messages", "Input should be a valid list");
    if (n == 0)
        return parse_fail(parse, "messages", "at least one message is required");
    if (n > MAX_MESSAGES)
        return parse_fail(parse, "messages", "at most %d messages are allowed", MAX_MESSAGES);
    parse->out->messages = arena_take(&parse->out->arena, n * sizeof(struct gen_message));
    parse->first_block = calloc(n, sizeof(*parse->first_block));
    if (parse->out->messages == NULL || parse->first_block == NULL)
        return parse_no_memory(parse);
    *list_out = list;
    return 0;
}

int parse_messages(struct parse *parse, const json_t *root)
{
    const json_t *list;
    int rc = parse_message_list(parse, root, &list);

    if (rc < 0)
        return rc;
    parse_push(parse, "messages");
    for (size_t i = 0; i < json_array_size(list); i++) {
        size_t index = i < parse->n_earlier ? i : i - parse->n_earlier; /* in the client's numbering */
        size_t was = parse_push_index(parse, index);

        rc = parse_content_parse_message(parse, json_array_get(list, i), i);
        if (rc < 0)
            return rc;
        parse_pop(parse, was);
    }
    parse_pop(parse, 0);
    return 0;
}
