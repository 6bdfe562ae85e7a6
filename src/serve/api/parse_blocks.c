/* SPDX-License-Identifier: Apache-2.0 */
/* Content blocks.
 *
 * A block is rendered (text, thinking, calls, results; documents and search results as text), accepted
 * and dropped (hidden thinking, markers of other servers), or refused by name and place.  A block is
 * refused if leaving it out would change the conversation's meaning. */
#include <string.h>

#include "serve/api/parse_priv.h"
#include "base/err.h"

enum where { IN_USER = 1, IN_ASSISTANT = 2, IN_SYSTEM = 4 };

typedef int (*block_parser)(struct parse *parse, const json_t *block, struct parse_origin origin);

static void put_piece(struct buf *out, struct bytes piece, const char *separator)
{
    if (piece.len_bytes == 0)
        return;
    if (out->len_bytes > 0)
        buf_append_str(out, separator);
    buf_append(out, piece.data, piece.len_bytes);
}

/* Appends a string member if it is present. */
static int put_member(struct parse *parse, const json_t *object, const char *name, bool is_required,
                      struct buf *out)
{
    const json_t *value = parse_member(object, name);

    if (value == NULL)
        return is_required ? parse_fail(parse, name, "Field required") : 0;
    if (!json_is_string(value))
        return parse_fail(parse, name, "Input should be a valid string");
    put_piece(out, api_json_str(value), "\n");
    return 0;
}

static int put_text_item(struct parse *parse, const json_t *item, struct buf *out)
{
    if (!bytes_is(api_json_str(parse_member(item, "type")), "text"))
        return parse_fail(parse, "type", "Input should be 'text'");
    return put_member(parse, item, "text", true, out);
}

/* Appends a string or a list of text blocks, the content of documents and search results. */
static int put_texts(struct parse *parse, const json_t *object, const char *name, struct buf *out)
{
    const json_t *content = parse_member(object, name);

    if (content == NULL)
        return parse_fail(parse, name, "Field required");
    if (json_is_string(content)) {
        put_piece(out, api_json_str(content), "\n");
        return 0;
    }
    return parse_put_texts(parse, content, name, put_text_item, out);
}

static int parse_blocks_put_document(struct parse *parse, const json_t *block, struct buf *out)
{
    const json_t *source = parse_member(block, "source");
    struct bytes type = api_json_str(parse_member(source, "type"));
    size_t was;
    int rc;

    if (source == NULL)
        return parse_fail(parse, "source", "Field required");
    if ((rc = put_member(parse, block, "title", false, out)) < 0 ||
        (rc = put_member(parse, block, "context", false, out)) < 0)
        return rc;
    was = parse_push(parse, "source");
    if (bytes_is(type, "text"))
        rc = put_member(parse, source, "data", true, out);
    else if (bytes_is(type, "content"))
        rc = put_texts(parse, source, "content", out);
    else
        rc = parse_fail(parse, "type",
                        "Input should be 'text' or 'content': other documents are not read by this server");
    if (rc == 0)
        parse_pop(parse, was);
    return rc;
}

static int put_search_result(struct parse *parse, const json_t *block, struct buf *out)
{
    int rc = put_member(parse, block, "title", false, out);

    if (rc == 0)
        rc = put_member(parse, block, "source", false, out);
    return rc < 0 ? rc : put_texts(parse, block, "content", out);
}

static int refuse_type(struct parse *parse, struct bytes type)
{
    if (bytes_is(type, "image"))
        return parse_fail(parse, "type", "image blocks are not supported: the model reads text only");
    return parse_fail(parse, "type", "'%.*s' blocks are not supported by this server",
                      (int)(type.len_bytes > 100 ? 100 : type.len_bytes), (const char *)type.data);
}

/* ---- top-level blocks ---- */

static int parse_blocks_add_text(struct parse *parse, struct parse_origin origin, struct bytes text)
{
    struct gen_block *block;

    if (text.len_bytes == 0)
        return 0;
    block = parse_add_block(parse, GEN_TEXT, origin);
    return block == NULL ? parse_no_memory(parse) : parse_copy(parse, text, &block->text);
}

static int parse_text(struct parse *parse, const json_t *block, struct parse_origin origin)
{
    const json_t *text = parse_member(block, "text");

    if (text == NULL)
        return parse_fail(parse, "text", "Field required");
    if (!json_is_string(text))
        return parse_fail(parse, "text", "Input should be a valid string");
    return parse_blocks_add_text(parse, origin, api_json_str(text));
}

/* Accepts any signature, and no signature. */
static int parse_thinking_block(struct parse *parse, const json_t *block, struct parse_origin origin)
{
    struct gen_block thinking = {.kind = GEN_THINKING};
    struct gen_block *added;
    int rc;

    if ((rc = parse_string(parse, block, "thinking", false, &thinking.text)) < 0)
        return rc;
    if (json_is_string(parse_member(block, "signature")) &&
        (rc = parse_string(parse, block, "signature", false, &thinking.signature)) < 0)
        return rc;
    if (thinking.text.len_bytes == 0 && thinking.signature.len_bytes == 0)
        return 0;
    added = parse_add_block(parse, GEN_THINKING, origin);
    if (added == NULL)
        return parse_no_memory(parse);
    *added = thinking;
    return 0;
}

static int parse_dropped(struct parse *parse, const json_t *block, struct parse_origin origin)
{
    return 0;
}

static int parse_as_text(struct parse *parse, const json_t *block, struct parse_origin origin,
                         int (*put)(struct parse *, const json_t *, struct buf *))
{
    struct buf text = {0};
    int rc = put(parse, block, &text);

    if (rc == 0)
        rc = text.is_bad ? parse_no_memory(parse) : parse_blocks_add_text(parse, origin, buf_view(&text));
    buf_fini(&text);
    return rc;
}

static int parse_document(struct parse *parse, const json_t *block, struct parse_origin origin)
{
    return parse_as_text(parse, block, origin, parse_blocks_put_document);
}

static int parse_search_result(struct parse *parse, const json_t *block, struct parse_origin origin)
{
    return parse_as_text(parse, block, origin, put_search_result);
}

static int parse_tool_use(struct parse *parse, const json_t *block, struct parse_origin origin)
{
    const json_t *input = parse_member(block, "input");
    struct gen_block call = {0};
    struct gen_block *added;
    int rc;

    if ((rc = parse_string(parse, block, "id", true, &call.id)) < 0 ||
        (rc = parse_string(parse, block, "name", true, &call.name)) < 0)
        return rc;
    if (call.id.len_bytes == 0)
        return parse_fail(parse, "id", "String should have at least 1 character");
    if (call.name.len_bytes == 0)
        return parse_fail(parse, "name", "String should have at least 1 character");
    if (input == NULL)
        return parse_fail(parse, "input", "Field required");
    if (!json_is_object(input))
        return parse_fail(parse, "input", "Input should be an object");
    if ((rc = parse_serialise(parse, input, &call.input)) < 0)
        return rc;
    added = parse_add_block(parse, GEN_TOOL_USE, origin);
    if (added == NULL)
        return parse_no_memory(parse);
    call.kind = GEN_TOOL_USE;
    *added = call;
    return 0;
}

/* Appends one item of a result's content. */
static int put_result_item(struct parse *parse, const json_t *item, struct buf *out)
{
    struct bytes type = api_json_str(parse_member(item, "type"));
    int rc;

    if (!json_is_object(item))
        return parse_fail(parse, NULL, "Input should be an object");
    if (parse_member(item, "type") == NULL)
        return parse_fail(parse, "type", "Field required");
    if (bytes_is(type, "text"))
        rc = put_member(parse, item, "text", true, out);
    else if (bytes_is(type, "document"))
        rc = parse_blocks_put_document(parse, item, out);
    else if (bytes_is(type, "search_result"))
        rc = put_search_result(parse, item, out);
    else if (bytes_is(type, "tool_reference"))
        rc = put_member(parse, item, "tool_name", true, out);
    else
        return refuse_type(parse, type);
    return rc < 0 ? rc : parse_cache_control(parse, item);
}

static int put_result_content(struct parse *parse, const json_t *content, struct buf *out)
{
    if (content == NULL)
        return 0;
    if (json_is_string(content)) {
        put_piece(out, api_json_str(content), "\n");
        return 0;
    }
    return parse_put_texts(parse, content, "content", put_result_item, out);
}

static int parse_tool_result(struct parse *parse, const json_t *block, struct parse_origin origin)
{
    struct gen_block *added = parse_add_block(parse, GEN_TOOL_RESULT, origin);
    struct buf text = {0};
    int rc;

    if (added == NULL)
        return parse_no_memory(parse);
    if ((rc = parse_string(parse, block, "tool_use_id", true, &added->id)) < 0 ||
        (rc = parse_bool(parse, block, "is_error", &added->is_error)) < 0)
        return rc;
    rc = put_result_content(parse, parse_member(block, "content"), &text);
    if (rc == 0)
        rc = text.is_bad ? parse_no_memory(parse) : parse_copy(parse, buf_view(&text), &added->text);
    buf_fini(&text);
    return rc;
}

static const struct {
    const char *type;
    unsigned where;
    bool has_mark; /* its cache_control takes effect */
    block_parser parser;
} kinds[] = {
    {"text", IN_USER | IN_ASSISTANT | IN_SYSTEM, true, parse_text},
    {"tool_use", IN_ASSISTANT, true, parse_tool_use},
    {"tool_result", IN_USER, true, parse_tool_result},
    {"document", IN_USER, true, parse_document},
    {"search_result", IN_USER, true, parse_search_result},
    {"thinking", IN_ASSISTANT, false, parse_thinking_block},
    {"redacted_thinking", IN_ASSISTANT, false, parse_dropped},
    {"fallback", IN_ASSISTANT, false, parse_dropped},
};

int parse_block(struct parse *parse, const json_t *block, enum gen_role role, struct parse_origin origin)
{
    static const char *const names[] = {"user", "assistant", "system"};
    const unsigned here = role == GEN_USER ? IN_USER : role == GEN_ASSISTANT ? IN_ASSISTANT : IN_SYSTEM;
    struct bytes type = api_json_str(parse_member(block, "type"));

    if (!json_is_object(block))
        return parse_fail(parse, NULL, "Input should be an object");
    if (parse_member(block, "type") == NULL)
        return parse_fail(parse, "type", "Field required");
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        int rc;

        if (!bytes_is(type, kinds[i].type))
            continue;
        if ((kinds[i].where & here) == 0)
            return parse_fail(parse, "type", "'%s' blocks cannot be in %s messages", kinds[i].type,
                              names[role]);
        rc = kinds[i].parser(parse, block, origin);
        return rc < 0 || !kinds[i].has_mark ? rc : parse_cache_control(parse, block);
    }
    return refuse_type(parse, type);
}
