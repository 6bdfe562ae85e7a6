/* SPDX-License-Identifier: Apache-2.0 */
/* The request parser: top level and fields.  parse_members.c has the helpers of its parts.
 *
 *     bytes ──json──> root ──> thread? ──> tools ──> system ──> messages ──> fields ──> pairs
 *
 * The parser follows the prompt's order, so it meets cache breakpoints in that order.  A failed check
 * names its place as a path (as in "messages.3.content.0.text"), in the wording that clients know,
 * because some clients act on it.
 *
 * Rules for everything not listed: ignore an unknown field, refuse an unknown enum value or block type,
 * treat null as absent. */
#include "serve/api/parse.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "serve/api/parse_priv.h"
#include "base/check.h"
#include "base/err.h"

#define MAX_STOP_SEQUENCES  256
#define MIN_THINKING_BUDGET 1024

/* ---- fields ---- */

/* Refuses fields that would promise features which the server lacks. */
static int check_refused(struct parse *parse, const json_t *root)
{
    const json_t *servers = parse_member(root, "mcp_servers");

    if (parse_member(root, "compaction") != NULL)
        return parse_fail(parse, "compaction", "summaries are not made by this server");
    if (servers != NULL && !json_is_array(servers))
        return parse_fail(parse, "mcp_servers", "Input should be a valid list");
    if (json_array_size(servers) > 0)
        return parse_fail(parse, "mcp_servers", "MCP servers are not called by this server");
    return 0;
}

/* Parses {"type": "json_schema", "schema": {...}}; the path is already at it. */
static int parse_format(struct parse *parse, const json_t *format)
{
    const json_t *schema = parse_member(format, "schema");

    if (!json_is_object(format))
        return parse_fail(parse, NULL, "Input should be an object");
    if (!bytes_is(api_json_str(parse_member(format, "type")), "json_schema"))
        return parse_fail(parse, "type", "Input should be 'json_schema'");
    if (schema == NULL)
        return parse_fail(parse, "schema", "Field required");
    if (!json_is_object(schema))
        return parse_fail(parse, "schema", "Input should be an object");
    if (parse->call == API_MESSAGES && parse->out->work.max_new_tokens == 0)
        return parse_fail(parse, NULL, "cannot be used with `max_tokens` 0");
    if (parse->out->n_messages > 0 && parse->out->messages[parse->out->n_messages - 1].role == GEN_ASSISTANT)
        return parse_fail(parse, NULL, "cannot be used with a last message of the assistant");
    parse->out->format = GEN_FORMAT_JSON_SCHEMA;
    return parse_serialise(parse, schema, &parse->out->schema);
}

/* Parses output_config, and output_format, an older spelling of a part of it. */
static int parse_output(struct parse *parse, const json_t *root)
{
    const json_t *output = parse_member(root, "output_config");
    const json_t *format = parse_member(output, "format");
    const json_t *effort = parse_member(output, "effort");
    int rc = 0;

    if (output != NULL && !json_is_object(output))
        return parse_fail(parse, "output_config", "Input should be an object");
    if (json_is_string(effort))
        rc = parse_copy(parse, api_json_str(effort), &parse->out->effort);
    if (rc < 0)
        return rc;
    if (format != NULL) {
        parse_push(parse, "output_config");
        parse_push(parse, "format");
    } else {
        format = parse_member(root, "output_format");
        parse_push(parse, "output_format");
    }
    if (format != NULL)
        rc = parse_format(parse, format);
    if (rc == 0)
        parse_pop(parse, 0);
    return rc;
}

/* Parses thinking.budget_tokens and checks its constraints. */
static int parse_budget(struct parse *parse, const json_t *thinking)
{
    bool is_given;
    int rc = parse_integer(parse, thinking, "budget_tokens", &parse->thinking_budget, &is_given);

    if (rc == 0 && !is_given)
        rc = parse_fail(parse, "budget_tokens", "Field required");
    if (rc == 0 && parse->thinking_budget < MIN_THINKING_BUDGET)
        rc = parse_fail(parse, "budget_tokens", "Input should be greater than or equal to %d",
                        MIN_THINKING_BUDGET);
    parse->thinks = true;
    parse->out->thinking_budget =
        parse->thinking_budget > UINT32_MAX ? UINT32_MAX : (uint32_t)parse->thinking_budget;
    return rc;
}

static int parse_thinking(struct parse *parse, const json_t *root)
{
    const json_t *thinking = parse_member(root, "thinking");
    const json_t *display = parse_member(thinking, "display");
    struct bytes type;
    int rc = 0;

    if (thinking == NULL)
        return 0;
    if (!json_is_object(thinking))
        return parse_fail(parse, "thinking", "Input should be an object");
    type = api_json_str(parse_member(thinking, "type"));
    parse_push(parse, "thinking");
    if (bytes_is(type, "enabled"))
        rc = parse_budget(parse, thinking);
    else if (!bytes_is(type, "disabled") && !bytes_is(type, "adaptive") && !bytes_is(type, "between_tools"))
        rc =
            parse_fail(parse, "type", "Input should be 'enabled', 'disabled', 'adaptive' or 'between_tools'");
    if (rc == 0 && display != NULL && !bytes_is(api_json_str(display), "summarized") &&
        !bytes_is(api_json_str(display), "omitted"))
        rc = parse_fail(parse, "display", "Input should be 'summarized' or 'omitted'");
    if (rc < 0)
        return rc;
    parse_pop(parse, 0);
    parse->out->thinking = bytes_is(type, "disabled") ? GEN_THINKING_OFF : GEN_THINKING_ON;
    parse->out->hides_thinking = bytes_is(api_json_str(display), "omitted");
    return 0;
}

static int parse_sampling(struct parse *parse, const json_t *root)
{
    struct sample_opts *sample = &parse->out->work.sample;
    double temperature = (double)NAN, top_p = 1, min_p = 0;
    int64_t top_k = 0;
    int64_t seed = 0;
    int rc;

    if ((rc = parse_number(parse, root, "temperature", &temperature)) < 0 ||
        (rc = parse_number(parse, root, "top_p", &top_p)) < 0 ||
        (rc = parse_number(parse, root, "min_p", &min_p)) < 0 ||
        (rc = parse_integer(parse, root, "top_k", &top_k, NULL)) < 0)
        return rc;
    if (temperature < 0 || temperature > 2)
        return parse_fail(parse, "temperature", "Input should be between 0 and 2");
    if (!(top_p >= 0 && top_p <= 1))
        return parse_fail(parse, "top_p", "Input should be between 0 and 1");
    if (!(min_p >= 0 && min_p <= 1))
        return parse_fail(parse, "min_p", "Input should be between 0 and 1");
    if (top_k < 0)
        return parse_fail(parse, "top_k", "Input should be greater than or equal to 0");
    sample->temperature = (float)temperature;
    sample->top_p = (float)top_p;
    sample->min_p = (float)min_p;
    sample->top_k = top_k > UINT32_MAX ? UINT32_MAX : (uint32_t)top_k;
    /* Not a field of this API: used when valid, never an error. */
    if (api_json_integer(parse_member(root, "seed"), &seed)) {
        parse->out->has_seed = true;
        sample->seed = (uint64_t)seed;
    }
    return 0;
}

/* Not a field of this API; other servers have it. */
int parse_cache_salt(struct parse *parse, const json_t *root)
{
    return parse_string(parse, root, "cache_salt", false, &parse->out->cache_salt);
}

/* Names a class.  A value of another kind is ignored. */
static int parse_service_tier(struct parse *parse, const json_t *root)
{
    const json_t *tier = parse_member(root, "service_tier");

    return json_is_string(tier) ? parse_copy(parse, api_json_str(tier), &parse->out->service_tier) : 0;
}

int parse_common_fields(struct parse *parse, const json_t *root)
{
    int rc = parse_cache_salt(parse, root);

    return rc < 0 ? rc : parse_service_tier(parse, root);
}

static bool parse_is_blank(struct bytes text)
{
    for (size_t i = 0; i < text.len_bytes; i++)
        if (text.data[i] != ' ' && (text.data[i] < '\t' || text.data[i] > '\r'))
            return false;
    return true;
}

static int parse_stops(struct parse *parse, const json_t *root)
{
    const json_t *list = parse_member(root, "stop_sequences");
    size_t n = json_array_size(list);
    size_t n_bytes = 0;

    if (list == NULL)
        return 0;
    if (!json_is_array(list))
        return parse_fail(parse, "stop_sequences", "Input should be a valid list");
    if (n > MAX_STOP_SEQUENCES)
        return parse_fail(parse, "stop_sequences", "List should have at most %d items", MAX_STOP_SEQUENCES);
    parse->out->stop_sequences = arena_take(&parse->out->arena, (n + 1) * sizeof(struct bytes));
    if (parse->out->stop_sequences == NULL)
        return parse_no_memory(parse);
    parse_push(parse, "stop_sequences");
    for (size_t i = 0; i < n; i++) {
        const json_t *item = json_array_get(list, i);
        size_t was = parse_push_index(parse, i);

        if (!json_is_string(item))
            return parse_fail(parse, NULL, "Input should be a valid string");
        if (parse_is_blank(api_json_str(item)))
            return parse_fail(parse, NULL, "each stop sequence must contain non-whitespace");
        n_bytes += json_string_length(item);
        if (n_bytes > SAMPLE_MAX_STOP_BYTES)
            return parse_fail(parse, NULL, "stop sequences should have at most %d bytes together",
                              SAMPLE_MAX_STOP_BYTES);
        if (parse_copy(parse, api_json_str(item), &parse->out->stop_sequences[i]) < 0)
            return E_NOMEM;
        parse_pop(parse, was);
    }
    parse_pop(parse, 0);
    parse->out->n_stop_sequences = n;
    return 0;
}

static int parse_max_tokens(struct parse *parse, const json_t *root)
{
    int64_t max_tokens = 0;
    bool is_given;
    int rc = parse_integer(parse, root, "max_tokens", &max_tokens, &is_given);

    if (rc < 0)
        return rc;
    if (!is_given && parse->call == API_MESSAGES)
        return parse_fail(parse, "max_tokens", "Field required");
    if (max_tokens < 0)
        return parse_fail(parse, "max_tokens", "Input should be greater than or equal to 0");
    parse->out->work.max_new_tokens = max_tokens > UINT32_MAX ? UINT32_MAX : (uint32_t)max_tokens;
    if (parse->call == API_COUNT_TOKENS)
        return 0;
    if (parse->thinks && parse->thinking_budget >= max_tokens)
        return parse_fail(parse, "max_tokens", "`max_tokens` must be greater than `thinking.budget_tokens`");
    if (max_tokens == 0 && parse->out->is_stream)
        return parse_fail(parse, "max_tokens", "0 cannot be used with `stream`");
    return 0;
}

static int parse_fields(struct parse *parse, const json_t *root)
{
    const json_t *metadata = parse_member(root, "metadata");
    int rc;

    if ((rc = parse_bool(parse, root, "stream", &parse->out->is_stream)) < 0 ||
        (rc = parse_thinking(parse, root)) < 0 || (rc = parse_max_tokens(parse, root)) < 0 ||
        (rc = parse_sampling(parse, root)) < 0 || (rc = parse_stops(parse, root)) < 0 ||
        (rc = parse_common_fields(parse, root)) < 0)
        return rc;
    if (metadata != NULL && !json_is_object(metadata))
        return parse_fail(parse, "metadata", "Input should be an object");
    if (json_is_string(parse_member(metadata, "user_id")))
        return parse_copy(parse, api_json_str(parse_member(metadata, "user_id")), &parse->out->user_id);
    return 0;
}

/* ---- the whole ---- */

/* An SDK that uses conversation ids by default resends without one only when it reads this code. */
int api_refuse_thread(struct api_error *error)
{
    api_fail(error, 400, "thread: message threads are not supported by this server");
    error->code = "thread_unsupported_request";
    error->names_thread = true;
    return E_FORMAT;
}

static int parse_message_request(struct parse *parse, const json_t *root)
{
    int rc;

    if ((rc = parse_model(parse, root)) < 0 || (rc = parse_tools(parse, root)) < 0 ||
        (rc = parse_system(parse, root)) < 0 || (rc = parse_messages(parse, root)) < 0 ||
        (rc = parse_cache_control(parse, root)) < 0 || (rc = parse_fields(parse, root)) < 0 ||
        (rc = parse_tool_choice(parse, root)) < 0 || (rc = parse_output(parse, root)) < 0 ||
        (rc = check_refused(parse, root)) < 0)
        return rc;
    return parse_check_pairs(parse);
}

static int parse_root(struct parse *parse, json_t *root)
{
    if (!json_is_object(root))
        return parse_fail(parse, "body", "Input should be an object");
    switch (parse->call) {
    case API_MESSAGES:
    case API_COUNT_TOKENS:
        return parse_message_request(parse, root);
    case API_CHAT:
        return parse_chat(parse, root);
    case API_COMPLETIONS:
        return parse_completions(parse, root);
    case API_TOKENIZE:
        return parse_tokenize(parse, root);
    case API_DETOKENIZE:
        return parse_detokenize(parse, root);
    case API_RESPONSES:
    case API_INPUT_TOKENS:
        return parse_responses(parse, root);
    case API_EMBEDDINGS:
        return parse_embeddings(parse, root);
    }
    return E_INVAL;
}

/* Takes a last assistant message as text that the answer continues, not as a turn. */
static int split_prefill(struct parse *parse)
{
    struct gen_request *out = parse->out;
    const struct gen_message *last;
    struct buf text = {0};
    int rc;

    if (out->n_messages == 0 || parse->keeps_last)
        return 0;
    last = &out->messages[out->n_messages - 1];
    if (last->role != GEN_ASSISTANT)
        return 0;
    for (size_t i = 0; i < last->n_blocks; i++) {
        if (last->blocks[i].kind != GEN_TEXT)
            continue;
        if (text.len_bytes > 0)
            buf_append_str(&text, "\n\n");
        buf_append(&text, last->blocks[i].text.data, last->blocks[i].text.len_bytes);
    }
    rc = text.is_bad ? parse_no_memory(parse) : parse_copy(parse, buf_view(&text), &out->prefill);
    buf_fini(&text);
    out->n_messages--;
    return rc;
}

static void clamp_mark(const struct gen_request *request, struct gen_mark *mark)
{
    if (mark->n_messages <= request->n_messages)
        return;
    mark->n_messages = request->n_messages;
    mark->n_blocks = request->n_messages == 0 ? 0 : request->messages[request->n_messages - 1].n_blocks;
}

/* Moves blocks into the arena and points the messages at them. */
static int parse_finish(struct parse *parse)
{
    struct gen_request *out = parse->out;
    struct gen_block *blocks = arena_take(&out->arena, (parse->n_blocks + 1) * sizeof(*blocks));
    int rc;

    if (blocks == NULL)
        return parse_no_memory(parse);
    if (parse->n_blocks > 0)
        memcpy(blocks, parse->blocks, parse->n_blocks * sizeof(*blocks));
    for (size_t i = 0; i < out->n_messages; i++)
        out->messages[i].blocks = blocks + parse->first_block[i];
    rc = split_prefill(parse);
    for (unsigned pin = 0; pin < WORK_N_PINS; pin++)
        clamp_mark(out, &out->marks[pin]);
    return rc;
}

static const struct api_call_info call_infos[] = {
#define X(name, route, log_name, operation, dialect, work)                                                   \
    [API_##name] = {route, log_name, operation, API_DIALECT_##dialect, API_WORK_##work},
    API_CALL_TABLE(X)
#undef X
};

const struct api_call_info *api_call_info(enum api_call call)
{
    return &call_infos[call];
}

bool api_call_is_openai(enum api_call call)
{
    return call_infos[call].dialect == API_DIALECT_OPENAI;
}

bool api_call_generates(enum api_call call)
{
    return call_infos[call].work != API_WORK_NOTHING;
}

bool api_call_embeds(enum api_call call)
{
    return call_infos[call].work == API_WORK_EMBEDDING;
}

bool api_path_is_openai(struct bytes path)
{
    static const char *const not_served[] = {"/v1/chat/",         "/v1/audio/",       "/v1/images/",
                                             "/v1/moderations",   "/v1/files",        "/v1/fine_tuning",
                                             "/v1/batches",       "/v1/assistants",   "/v1/threads",
                                             "/v1/vector_stores", "/v1/conversations"};

    for (size_t i = 0; i < ARRAY_LEN(call_infos); i++)
        if (call_infos[i].dialect == API_DIALECT_OPENAI && bytes_starts_with(path, call_infos[i].route))
            return true;
    for (size_t i = 0; i < ARRAY_LEN(not_served); i++)
        if (bytes_starts_with(path, not_served[i]))
            return true;
    return false;
}

bool api_call_is_response(enum api_call call)
{
    return call == API_RESPONSES || call == API_INPUT_TOKENS;
}

/* Parses the whole body.  If its conversation's history is missing, parses only the fields that find it. */
static int parse_body(struct parse *parse, json_t *root, struct bytes history)
{
    int rc = 0;

    if (!api_call_is_openai(parse->call) && json_is_object(root))
        rc = parse_thread(parse, root);
    if (rc == 0 && parse->out->thread == GEN_THREAD_CONTINUE) {
        if (history.len_bytes == 0)
            return parse_cache_salt(parse, root);
        rc = parse_thread_join(parse, root, history);
    }
    if (rc == 0 && api_call_is_response(parse->call) && json_is_object(root))
        rc = parse_responses_join(parse, root, history);
    if (rc > 0)
        return 0;
    if (rc == 0)
        rc = parse_root(parse, root);
    if (rc == 0)
        rc = parse_finish(parse);
    if (rc == 0 && parse->out->thread != GEN_THREAD_NONE && parse->call == API_MESSAGES)
        rc = parse_thread_history(parse, root);
    return rc;
}

int api_parse_continued(struct bytes body, struct bytes history, enum api_call call, struct gen_request *out,
                        struct api_error *error)
{
    struct parse parse = {.out = out, .error = error, .call = call};
    struct fault fault;
    json_t *root;
    int rc = api_json_load(body, &fault, &root);

    memset(out, 0, sizeof(*out));
    if (rc == E_NOMEM)
        return parse_no_memory(&parse);
    if (rc < 0)
        return api_fail(error, 400, "The request body is %s", fault.text);
    arena_init(&out->arena, 0);
    rc = parse_body(&parse, root, history);
    json_decref(root);
    free(parse.blocks);
    free(parse.origins);
    free(parse.first_block);
    buf_fini(&parse.warnings);
    buf_fini(&parse.left_out);
    if (rc < 0)
        gen_request_fini(out);
    return rc;
}

int api_parse_request(struct bytes body, enum api_call call, struct gen_request *out, struct api_error *error)
{
    return api_parse_continued(body, bytes_of(NULL, 0), call, out, error);
}

void gen_request_fini(struct gen_request *request)
{
    arena_fini(&request->arena);
    buf_fini(&request->history);
    memset(request, 0, sizeof(*request));
}
