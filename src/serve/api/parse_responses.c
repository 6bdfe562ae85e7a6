/* SPDX-License-Identifier: Apache-2.0 */
/* The body of POST /v1/responses: its input list, and the fields that differ from those of a chat.
 *
 *     body ──input, previous_response_id──> needs kept responses? ──yes──> only their ids; parsed again later
 *                                              │ no, or here they are
 *                                              v
 *        [items of the previous response] + [input, references replaced] ──> turns, fields, echo
 *
 * The input becomes one list of items, so that all items are parsed, paired and kept in the same way.
 * parse_response_items.c turns items into turns, and parse_response_tools.c reads tools and their choice.
 * parse_response_echo.c writes the part that the answer repeats. */
#include <string.h>

#include "serve/api/parse_priv.h"
#include "base/check.h"
#include "base/err.h"
#include "serve/api/ids.h"

#define MAX_ITEMS       100000
#define MAX_METADATA    16
#define MAX_KEY_BYTES   64
#define MAX_VALUE_BYTES 512 /* the API counts characters; no client sends more bytes than this */

/* ---- the input ---- */

/* Makes the input a list: text is one message of the user. */
static int parse_responses_list_input(struct parse *parse, json_t *root)
{
    json_t *input = parse_member(root, "input");
    json_t *list;

    if (json_is_string(input)) {
        list = json_pack("[{s:s, s:s, s:[{s:s, s:O}]}]", "type", "message", "role", "user", "content", "type",
                         "input_text", "text", input);
        return list == NULL || json_object_set_new(root, "input", list) < 0 ? parse_no_memory(parse) : 0;
    }
    if (input == NULL && parse_member(root, "previous_response_id") == NULL)
        return parse_fail(parse, "input", "Field required");
    if (input != NULL && !json_is_array(input))
        return parse_fail(parse, "input", "Input should be a valid string or list");
    if (json_array_size(input) > MAX_ITEMS)
        return parse_fail(parse, "input", "at most %d items are allowed", MAX_ITEMS);
    if (input == NULL && json_object_set_new(root, "input", json_array()) < 0)
        return parse_no_memory(parse);
    return 0;
}

static bool parse_responses_is_reference(const json_t *item)
{
    return bytes_is(api_json_str(parse_member(item, "type")), "item_reference");
}

static int parse_responses_want(struct parse *parse, struct bytes id)
{
    struct gen_response *response = parse->out->response;
    size_t n = response->n_wanted;

    /* The first reference is the previous response, which has a purpose of its own. */
    if (n > (response->previous.len_bytes > 0 ? 1 : 0) && bytes_equal(response->wanted[n - 1], id))
        return 0;
    return parse_copy(parse, id, &response->wanted[response->n_wanted++]);
}

/* Notes the response that holds the item of a reference. */
static int parse_responses_want_item(struct parse *parse, const json_t *item)
{
    struct bytes id = {0};
    char response_id[IDS_BYTES];
    int rc = parse_string(parse, item, "id", true, &id);

    if (rc < 0)
        return rc;
    if (!ids_response_of(id, response_id))
        return parse_fail(parse, "id", "no item is kept under '%.*s'",
                          (int)(id.len_bytes > 100 ? 100 : id.len_bytes), (const char *)id.data);
    return parse_responses_want(parse, bytes_str(response_id));
}

/* Notes the kept responses that the request needs. */
static int parse_responses_want_all(struct parse *parse, const json_t *root)
{
    struct gen_response *response = parse->out->response;
    const json_t *input = parse_member(root, "input");
    size_t i;
    json_t *item;
    int rc;

    response->wanted =
        arena_take(&parse->out->arena, (json_array_size(input) + 1) * sizeof(*response->wanted));
    if (response->wanted == NULL)
        return parse_no_memory(parse);
    if ((rc = parse_string(parse, root, "previous_response_id", false, &response->previous)) < 0)
        return rc;
    if (response->previous.len_bytes > 0 && (rc = parse_responses_want(parse, response->previous)) < 0)
        return rc;
    parse_push(parse, "input");
    json_array_foreach(input, i, item)
    {
        size_t was = parse_push_index(parse, i);

        if (parse_responses_is_reference(item) && (rc = parse_responses_want_item(parse, item)) < 0)
            return rc;
        parse_pop(parse, was);
    }
    parse_pop(parse, 0);
    return 0;
}

/* Maps the ids of kept items to the items.  NULL: no memory. */
static json_t *parse_responses_map_items(json_t *items)
{
    json_t *map = json_object();
    size_t i;
    json_t *item;

    json_array_foreach(items, i, item)
    {
        const char *id = json_string_value(json_object_get(item, "id"));

        if (map != NULL && id != NULL && json_object_set(map, id, item) < 0) {
            json_decref(map);
            return NULL;
        }
    }
    return map;
}

/* Puts kept items in the places of references. */
static int parse_responses_replace_references(struct parse *parse, json_t *input, json_t *kept)
{
    json_t *map = parse_responses_map_items(json_object_get(kept, "items"));
    size_t i;
    json_t *item;
    int rc = map == NULL ? parse_no_memory(parse) : 0;

    parse_push(parse, "input");
    for (i = 0; i < json_array_size(input) && rc == 0; i++) {
        size_t was = parse_push_index(parse, i);
        const char *id;

        item = json_array_get(input, i);
        id = parse_responses_is_reference(item) ? json_string_value(json_object_get(item, "id")) : NULL;
        if (id != NULL && json_object_get(map, id) == NULL)
            rc = parse_fail(parse, "id", "no item is kept under '%.100s'", id);
        else if (id != NULL && json_array_set(input, i, json_object_get(map, id)) < 0)
            rc = parse_no_memory(parse);
        if (rc == 0)
            parse_pop(parse, was);
    }
    if (rc == 0)
        parse_pop(parse, 0);
    json_decref(map);
    return rc;
}

/* Puts the previous conversation before the input. */
static int parse_responses_join_previous(struct parse *parse, json_t *root, json_t *kept)
{
    json_t *previous = json_object_get(kept, "previous");

    if (json_array_size(previous) == 0)
        return 0;
    parse->n_earlier = json_array_size(previous);
    if (json_array_extend(previous, parse_member(root, "input")) < 0 ||
        json_object_set(root, "input", previous) < 0)
        return parse_no_memory(parse);
    return 0;
}

int parse_responses_join(struct parse *parse, json_t *root, struct bytes history)
{
    json_t *kept;
    int rc;

    parse->out->response = arena_take(&parse->out->arena, sizeof(*parse->out->response));
    if (parse->out->response == NULL)
        return parse_no_memory(parse);
    if ((rc = parse_responses_list_input(parse, root)) < 0 ||
        (rc = parse_responses_want_all(parse, root)) < 0)
        return rc;
    if (parse->out->response->n_wanted == 0)
        return 0;
    if (history.len_bytes == 0)
        return 1;
    parse->out->response->n_wanted = 0;
    if (api_json_load(history, NULL, &kept) < 0)
        return parse_no_memory(parse);
    rc = parse_responses_replace_references(parse, parse_member(root, "input"), kept);
    if (rc == 0)
        rc = parse_responses_join_previous(parse, root, kept);
    json_decref(kept);
    return rc;
}

/* ---- fields ---- */

static int parse_responses_limit(struct parse *parse, const json_t *root)
{
    int64_t limit = UINT32_MAX;
    int rc = parse_integer(parse, root, "max_output_tokens", &limit, NULL);

    if (rc < 0)
        return rc;
    if (limit < 1)
        return parse_fail(parse, "max_output_tokens", "Input should be greater than or equal to 1");
    parse->out->work.max_new_tokens = limit > UINT32_MAX ? UINT32_MAX : (uint32_t)limit;
    return 0;
}

static int parse_responses_text(struct parse *parse, const json_t *root)
{
    const json_t *text = parse_member(root, "text");
    const json_t *format = parse_member(text, "format");

    if (text != NULL && !json_is_object(text))
        return parse_fail(parse, "text", "Input should be an object");
    if (format == NULL)
        return 0;
    parse_push(parse, "text");
    parse_push(parse, "format");
    return parse_answer_format(parse, format, parse_json_schema);
}

static int parse_responses_reasoning(struct parse *parse, const json_t *root)
{
    const json_t *reasoning = parse_member(root, "reasoning");
    const json_t *switches = parse_member(root, "chat_template_kwargs");
    const json_t *is_on = parse_member(switches, "enable_thinking");
    struct gen_request *out = parse->out;
    struct bytes summary = {0};
    int rc;

    if (reasoning != NULL && !json_is_object(reasoning))
        return parse_fail(parse, "reasoning", "Input should be an object");
    if (switches != NULL && !json_is_object(switches))
        return parse_fail(parse, "chat_template_kwargs", "Input should be an object");
    parse_push(parse, "reasoning");
    if ((rc = parse_string(parse, reasoning, "effort", false, &out->effort)) < 0 ||
        (rc = parse_string(parse, reasoning, "summary", false, &summary)) < 0 ||
        (summary.len_bytes == 0 &&
         (rc = parse_string(parse, reasoning, "generate_summary", false, &summary)) < 0))
        return rc;
    if (summary.len_bytes > 0 && !bytes_is(summary, "auto") && !bytes_is(summary, "concise") &&
        !bytes_is(summary, "detailed"))
        return parse_fail(parse, "summary", "Input should be 'auto', 'concise' or 'detailed'");
    parse_pop(parse, 0);
    out->response->wants_summary = summary.len_bytes > 0;
    if (json_is_boolean(is_on))
        out->thinking = json_is_true(is_on) ? GEN_THINKING_ON : GEN_THINKING_OFF;
    if (bytes_is(out->effort, "none")) {
        out->thinking = GEN_THINKING_OFF;
        out->effort = bytes_of(NULL, 0);
    }
    return 0;
}

/* Values of `include` that name parts of other tools' items have no effect: there are no such items. */
static int parse_responses_include(struct parse *parse, const json_t *root)
{
    static const char *const known[] = {"reasoning.encrypted_content",
                                        "message.output_text.logprobs",
                                        "file_search_call.results",
                                        "web_search_call.results",
                                        "web_search_call.action.sources",
                                        "message.input_image.image_url",
                                        "computer_call_output.output.image_url",
                                        "code_interpreter_call.outputs"};
    const json_t *list = parse_member(root, "include");

    if (list != NULL && !json_is_array(list))
        return parse_fail(parse, "include", "Input should be a valid list");
    parse_push(parse, "include");
    for (size_t i = 0; i < json_array_size(list); i++) {
        struct bytes value = api_json_str(json_array_get(list, i));
        size_t was = parse_push_index(parse, i), k = 0;

        while (k < ARRAY_LEN(known) && !bytes_is(value, known[k]))
            k++;
        if (k == ARRAY_LEN(known))
            return parse_fail(parse, NULL, "'%.*s' is not included by this server",
                              (int)(value.len_bytes > 100 ? 100 : value.len_bytes),
                              value.data == NULL ? "" : (const char *)value.data);
        parse->out->response->wants_signature |= k == 0;
        parse->out->work.sample.wants_logprob |= k == 1;
        parse_pop(parse, was);
    }
    parse_pop(parse, 0);
    return 0;
}

static int parse_responses_top_logprobs(struct parse *parse, const json_t *root)
{
    struct sample_opts *sample = &parse->out->work.sample;
    int64_t n = 0;
    int rc = parse_integer(parse, root, "top_logprobs", &n, NULL);

    if (rc < 0)
        return rc;
    if (n < 0 || n > SAMPLE_MAX_TOP)
        return parse_fail(parse, "top_logprobs", "Input should be between 0 and %d", SAMPLE_MAX_TOP);
    sample->wants_logprob |= n > 0;
    sample->n_top = (uint32_t)n;
    return 0;
}

static int parse_responses_truncation(struct parse *parse, const json_t *root)
{
    struct bytes value = {0};
    int rc = parse_string(parse, root, "truncation", false, &value);

    if (rc < 0)
        return rc;
    if (value.len_bytes > 0 && !bytes_is(value, "auto") && !bytes_is(value, "disabled"))
        return parse_fail(parse, "truncation", "Input should be 'auto' or 'disabled'");
    parse->out->response->truncates = bytes_is(value, "auto");
    return 0;
}

static int parse_responses_check_metadata(struct parse *parse, const json_t *root)
{
    json_t *metadata = parse_member(root, "metadata");
    const char *key;
    json_t *value;

    if (metadata != NULL && !json_is_object(metadata))
        return parse_fail(parse, "metadata", "Input should be an object");
    if (json_object_size(metadata) > MAX_METADATA)
        return parse_fail(parse, "metadata", "at most %d pairs are allowed", MAX_METADATA);
    json_object_foreach(metadata, key, value)
    {
        if (strlen(key) > MAX_KEY_BYTES || !json_is_string(value) ||
            json_string_length(value) > 4 * MAX_VALUE_BYTES)
            return parse_fail(parse, "metadata", "keys of at most %d and strings of at most %d characters",
                              MAX_KEY_BYTES, MAX_VALUE_BYTES);
    }
    return 0;
}

/* Refuses fields that would promise another kind of answer. */
static int parse_responses_check_refused(struct parse *parse, const json_t *root)
{
    static const struct {
        const char *name, *why;
    } refused[] = {
        {"conversation", "conversations are continued by previous_response_id on this server"},
        {"prompt", "prompt templates are not kept by this server"},
        {"context_management", "conversations are not compacted by this server; use truncation"},
        {"moderation", "answers are not moderated by this server"},
    };
    bool is_background = false;
    int rc = parse_bool(parse, root, "background", &is_background);

    if (rc < 0)
        return rc;
    if (is_background)
        return parse_fail(parse, "background", "responses are not made in the background by this server");
    for (size_t i = 0; i < ARRAY_LEN(refused); i++)
        if (parse_member(root, refused[i].name) != NULL)
            return parse_fail(parse, refused[i].name, "%s", refused[i].why);
    return 0;
}

static int parse_responses_fields(struct parse *parse, const json_t *root)
{
    struct gen_response *response = parse->out->response;
    int rc;

    response->is_stored = true;
    if ((rc = parse_bool(parse, root, "stream", &parse->out->is_stream)) < 0 ||
        (rc = parse_bool(parse, root, "store", &response->is_stored)) < 0 ||
        (rc = parse_responses_limit(parse, root)) < 0 || (rc = parse_openai_sampling(parse, root)) < 0 ||
        (rc = parse_responses_text(parse, root)) < 0 || (rc = parse_responses_reasoning(parse, root)) < 0 ||
        (rc = parse_responses_include(parse, root)) < 0 ||
        (rc = parse_responses_top_logprobs(parse, root)) < 0 ||
        (rc = parse_responses_truncation(parse, root)) < 0 ||
        (rc = parse_responses_check_metadata(parse, root)) < 0)
        return rc;
    return parse_responses_check_refused(parse, root);
}

int parse_responses(struct parse *parse, json_t *root)
{
    json_t *input = parse_member(root, "input");
    int rc = parse_model(parse, root);

    if (rc < 0)
        return rc;
    parse->keeps_last = true;
    if ((rc = parse_response_tools(parse, root)) < 0 ||
        (rc = parse_string(parse, root, "instructions", false, &parse->out->system)) < 0 ||
        (rc = parse_response_items(parse, input)) < 0 || (rc = parse_response_choice(parse, root)) < 0 ||
        (rc = parse_check_pairs(parse)) < 0 || (rc = parse_responses_fields(parse, root)) < 0 ||
        (rc = parse_response_keep(parse, input)) < 0)
        return rc;
    return parse_response_echo(parse, root);
}
