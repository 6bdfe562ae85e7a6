/* SPDX-License-Identifier: Apache-2.0 */
/* Calls and their results.
 *
 * After an assistant turn with calls, the next turn must be the user's and must answer each call, in any
 * order. Agents match the texts of these two errors to repair their history, so the wording is fixed.
 * Both sides are first sorted by id, because a history may hold a hundred thousand calls. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "serve/api/parse_priv.h"
#include "base/err.h"

struct call { /* one tool_use of the turn being checked */
    struct bytes id;
    struct parse_origin origin;
    bool is_answered;
};

static int compare_ids(struct bytes a, struct bytes b)
{
    size_t n = a.len_bytes < b.len_bytes ? a.len_bytes : b.len_bytes;
    int order = n == 0 ? 0 : memcmp(a.data, b.data, n);

    return order != 0 ? order : (a.len_bytes > b.len_bytes) - (a.len_bytes < b.len_bytes);
}

static int compare_calls(const void *a, const void *b)
{
    return compare_ids(((const struct call *)a)->id, ((const struct call *)b)->id);
}

static int compare_origins(const void *a, const void *b)
{
    const struct parse_origin *x = &((const struct call *)a)->origin;
    const struct parse_origin *y = &((const struct call *)b)->origin;

    if (x->message != y->message)
        return x->message < y->message ? -1 : 1;
    return (x->block > y->block) - (x->block < y->block);
}

/* Writes where a message or item is: "messages.3" in the client's numbering, or, if the server kept it, the member that
 * names the conversation. */
static const char *pairs_put_place(const struct parse *parse, struct parse_origin origin, char out[64])
{
    bool is_response = api_call_is_response(parse->call);

    if (origin.message < parse->n_earlier)
        return is_response ? "previous_response_id" : "thread.previous_message_id";
    snprintf(out, 64, "%s.%zu", is_response ? "input" : "messages", origin.message - parse->n_earlier);
    return out;
}

static int pairs_fail_ids(struct parse *parse, const char *ids, struct parse_origin origin)
{
    char text[64];
    const char *place = pairs_put_place(parse, origin, text);

    if (api_call_is_response(parse->call))
        return api_fail(parse->error, 400, "%s: No tool output found for function call %s.%s", place, ids,
                        origin.message < parse->n_earlier
                            ? " The previous response made this call; send its function_call_output."
                            : "");
    if (api_call_is_openai(parse->call))
        return api_fail(
            parse->error, 400,
            "%s: An assistant message with 'tool_calls' must be followed by tool messages "
            "responding to each 'tool_call_id'. The following tool_call_ids did not have response "
            "messages: %s",
            place, ids);
    return api_fail(parse->error, 400,
                    "%s: `tool_use` ids were found without `tool_result` blocks immediately "
                    "after: %s. Each `tool_use` block must have a corresponding `tool_result` block in "
                    "the next message.",
                    place, ids);
}

static int fail_missing(struct parse *parse, struct call *calls, size_t n)
{
    const struct call *first = NULL;
    struct buf ids = {0};
    int rc;

    qsort(calls, n, sizeof(*calls), compare_origins);
    for (size_t i = 0; i < n && ids.len_bytes < 500; i++) {
        if (calls[i].is_answered)
            continue;
        if (first == NULL)
            first = &calls[i];
        if (ids.len_bytes > 0)
            buf_append_str(&ids, ", ");
        buf_append(&ids, calls[i].id.data, calls[i].id.len_bytes < 200 ? calls[i].id.len_bytes : 200);
    }
    buf_append_byte(&ids, '\0');
    rc = ids.is_bad || first == NULL ? parse_no_memory(parse)
                                     : pairs_fail_ids(parse, (const char *)ids.data, first->origin);
    buf_fini(&ids);
    return rc;
}

static int fail_orphan(struct parse *parse, struct bytes id, struct parse_origin origin)
{
    int n = (int)(id.len_bytes < 200 ? id.len_bytes : 200);
    char text[64];
    const char *place = pairs_put_place(parse, origin, text);

    if (api_call_is_response(parse->call))
        return api_fail(parse->error, 400,
                        "%s: No tool call found for function call output with call_id %.*s.", place, n,
                        (const char *)id.data);
    if (api_call_is_openai(parse->call))
        return api_fail(parse->error, 400,
                        "%s: Messages with role 'tool' must be a response to a preceding message "
                        "with 'tool_calls', and '%.*s' is not one of its ids",
                        place, n, (const char *)id.data);
    return api_fail(parse->error, 400,
                    "%s.content.%u: unexpected `tool_use_id` found in `tool_result` blocks: %.*s. Each "
                    "`tool_result` block must have a corresponding `tool_use` block in the previous message.",
                    place, origin.block, n, (const char *)id.data);
}

static int pairs_fail_repeated(struct parse *parse, struct parse_origin origin)
{
    char text[64];
    const char *place = pairs_put_place(parse, origin, text);

    return api_call_is_response(parse->call)
               ? api_fail(parse->error, 400, "%s.call_id: the ids of calls must be unique", place)
               : api_fail(parse->error, 400, "%s.content.%u.id: `tool_use` ids must be unique", place,
                          origin.block);
}

/* Collects the calls of message i, sorted by id, and their number.  Duplicate ids are an error. */
static int collect_calls(struct parse *parse, size_t i, struct call *calls, size_t *n_out)
{
    size_t first = parse->first_block[i];
    size_t n = 0;

    for (size_t b = first; b < first + parse->out->messages[i].n_blocks; b++)
        if (parse->blocks[b].kind == GEN_TOOL_USE)
            calls[n++] = (struct call){parse->blocks[b].id, parse->origins[b], false};
    qsort(calls, n, sizeof(*calls), compare_calls);
    for (size_t c = 1; c < n; c++)
        if (compare_calls(&calls[c - 1], &calls[c]) == 0)
            return pairs_fail_repeated(
                parse, compare_origins(&calls[c - 1], &calls[c]) < 0 ? calls[c].origin : calls[c - 1].origin);
    *n_out = n;
    return 0;
}

/* Checks the results in message i against the calls of the message before. */
static int match_results(struct parse *parse, size_t i, struct call *calls, size_t n)
{
    size_t first = parse->first_block[i];

    for (size_t b = first; b < first + parse->out->messages[i].n_blocks; b++) {
        const struct call wanted = {.id = parse->blocks[b].id};
        struct call *call;

        if (parse->blocks[b].kind != GEN_TOOL_RESULT)
            continue;
        call = bsearch(&wanted, calls, n, sizeof(*calls), compare_calls);
        if (call == NULL)
            return fail_orphan(parse, parse->blocks[b].id, parse->origins[b]);
        call->is_answered = true;
    }
    for (size_t c = 0; c < n; c++)
        if (!calls[c].is_answered)
            return fail_missing(parse, calls, n);
    return 0;
}

int parse_check_pairs(struct parse *parse)
{
    struct call *calls = calloc(parse->n_blocks + 1, sizeof(*calls));
    size_t n = 0;
    int rc = 0;

    if (calls == NULL)
        return parse_no_memory(parse);
    for (size_t i = 0; i < parse->out->n_messages && rc == 0; i++) {
        rc = match_results(parse, i, calls, n);
        if (rc == 0)
            rc = collect_calls(parse, i, calls, &n);
    }
    if (rc == 0 && n > 0)
        rc = fail_missing(parse, calls, n);
    free(calls);
    return rc;
}
