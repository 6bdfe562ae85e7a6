/* SPDX-License-Identifier: Apache-2.0 */
/* Constraints for calls, exactly as the format's template writes them: the row of the format
 * (text/toolcall/formats.h) becomes a grammar.
 *
 *     {"seq": [{"mark": "<tool_call>"},
 *              {"any": [{"seq": [{"text": "\n{\"name\": \"f\", \"arguments\": "}, {"json": SCHEMA}]}, ...]},
 *              {"text": "}\n"}, {"mark": "</tool_call>"}]}
 *
 * constraint_tags.c writes arguments that are tags. */
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "serve/prompt/constraint_priv.h"

#define MAX_ANY_ELEMENTS 4 /* elements of any names nest so deep */
#define MAX_STRICT_BYTES                                                                                     \
    3000u /* of the names of strict tools: the automaton of longer patterns may be too large */

static const struct calls_grammar *constraint_grammar(const struct constraint *constraint)
{
    return &calls_row_of(constraint->format->calls)->grammar;
}

const char *constraint_call_mark(const struct constraint *constraint)
{
    return constraint_grammar(constraint)->mark;
}

bool constraint_is_bare(const struct constraint *constraint)
{
    return constraint_grammar(constraint)->is_bare || constraint_grammar(constraint)->is_words;
}

bool constraint_may_call(const struct constraint *constraint, const struct gen_tool *tool)
{
    return constraint->request->tool_choice != GEN_TOOLS_ONE ||
           bytes_equal(tool->name, constraint->request->tool_choice_name);
}

/* ---- fixed text ---- */

/* Mistral's models may give their calls ids, which no client needs. */
static void constraint_put_mistral_id(struct constraint *constraint)
{
    constraint_open_rep(constraint);
    constraint_open_seq(constraint);
    constraint_text(constraint, ", \"id\": ");
    constraint_json(constraint, bytes_str("{\"type\":\"string\",\"minLength\":9,\"maxLength\":9}"));
    constraint_close(constraint);
    constraint_close_rep(constraint, 0, 1);
}

static void put_solar_id(struct constraint *constraint)
{
    constraint_tagged(constraint, &(const struct calls_tags){.value_close = "<|"},
                      bytes_str("{\"pattern\":\"^[a-z0-9]{10}$\"}"), NULL);
}

static void put_pieces(struct constraint *constraint, const struct calls_piece *pieces)
{
    for (unsigned i = 0; i < CALLS_MAX_PIECES && pieces[i].kind != CALLS_PIECE_END; i++) {
        switch (pieces[i].kind) {
        case CALLS_PIECE_END:
            break;
        case CALLS_PIECE_TEXT:
            constraint_written(constraint, pieces[i].text);
            break;
        case CALLS_PIECE_MARK:
            constraint_mark(constraint, pieces[i].text);
            break;
        case CALLS_PIECE_INDEX:
            constraint_json(constraint, bytes_str("{\"type\":\"integer\",\"minimum\":0,\"maximum\":99999}"));
            break;
        case CALLS_PIECE_NUMBER:
            constraint_json(constraint, bytes_str("{\"type\":\"integer\",\"minimum\":1,\"maximum\":99999}"));
            break;
        case CALLS_PIECE_SOLAR_ID:
            put_solar_id(constraint);
            break;
        case CALLS_PIECE_MISTRAL_ID:
            constraint_put_mistral_id(constraint);
            break;
        }
    }
}

/* ---- one call ---- */

/* Keyword arguments that need not match a schema: names, each with any JSON value. */
static void put_any_keyword(struct constraint *constraint)
{
    constraint_keyword(constraint);
    constraint_text(constraint, "=");
    constraint_json(constraint, bytes_str("{}"));
}

static void put_any_keywords(struct constraint *constraint)
{
    constraint_open_rep(constraint);
    constraint_open_seq(constraint);
    put_any_keyword(constraint);
    constraint_open_rep(constraint);
    constraint_open_seq(constraint);
    constraint_text(constraint, ", ");
    put_any_keyword(constraint);
    constraint_close(constraint);
    constraint_close_rep(constraint, 0, -1);
    constraint_close(constraint);
    constraint_close_rep(constraint, 0, 1);
}

/* Any value and its closing tag.  A value that begins with quoted_open ends at quoted_close alone. */
static void put_any_value(struct constraint *constraint, const struct calls_tags *tags)
{
    const char *const until[] = {tags->value_close, tags->quoted_open, NULL};
    const char *const until_quote[] = {tags->quoted_close, NULL};

    constraint_open_any(constraint);
    constraint_open_seq(constraint);
    constraint_free(constraint, until, 0);
    constraint_written(constraint, tags->value_written);
    constraint_close(constraint);
    if (tags->quoted_open != NULL) {
        constraint_open_seq(constraint);
        constraint_text(constraint, tags->quoted_open);
        constraint_free(constraint, until_quote, 0);
        constraint_text(constraint, tags->quoted_close);
        constraint_close(constraint);
    }
    constraint_close(constraint);
}

/* Any values between tags.  The tags may be control tokens, which no free text has. */
static void put_any_values(struct constraint *constraint, const struct calls_tags *tags)
{
    const char *const until_key[] = {tags->key_close, NULL};

    constraint_open_rep(constraint);
    constraint_open_seq(constraint);
    constraint_written(constraint, tags->key_open);
    constraint_free(constraint, until_key, MAX_KEY_TOKENS);
    constraint_written(constraint, tags->key_written);
    if (tags->json_open != NULL)
        constraint_kinds(constraint, tags);
    put_any_value(constraint, tags);
    constraint_close(constraint);
    constraint_close_rep(constraint, 0, -1);
}

static void put_held_arguments(struct constraint *constraint, const struct gen_tool *tool)
{
    const struct calls_grammar *grammar = constraint_grammar(constraint);

    if (grammar->tags != NULL || grammar->has_keywords)
        constraint_tags(constraint, grammar->tags, tool);
    else
        constraint_arguments(constraint, tool->input_schema);
}

static void put_any_arguments(struct constraint *constraint)
{
    const struct calls_tags *tags = constraint_grammar(constraint)->tags;

    if (constraint_grammar(constraint)->has_keywords) {
        put_any_keywords(constraint);
    } else if (tags == NULL) {
        constraint_json(constraint, bytes_str("{\"type\":\"object\"}"));
    } else if (tags->has_braces) {
        constraint_any_braces(constraint, tags);
    } else if (tags->has_elements) {
        constraint_open_rep(constraint);
        constraint_any_element(constraint, tags, MAX_ANY_ELEMENTS);
        constraint_close_rep(constraint, 0, -1);
    } else {
        put_any_values(constraint, tags);
    }
}

/* ---- the tools ---- */

static void put_held_tool(struct constraint *constraint, const struct gen_tool *tool)
{
    const struct calls_grammar *grammar = constraint_grammar(constraint);

    constraint_open_seq(constraint);
    constraint_written(constraint, grammar->name_before);
    constraint_bytes(constraint, (struct bytes){0}, tool->name, bytes_str(grammar->name_after));
    put_pieces(constraint, grammar->name_end);
    put_held_arguments(constraint, tool);
    constraint_close(constraint);
}

/* Any name but those of strict tools.  The request is refused if these are too many. */
static void put_any_name(struct constraint *constraint)
{
    static const char any[] = "{\"pattern\":\"^[A-Za-z0-9_-]{1,128}$\"}";
    const struct calls_tags tags = {.value_close = ">("}; /* the pattern has none of it */
    const struct gen_request *request = constraint->request;
    struct buf banned = {0};

    for (size_t i = 0; i < request->n_tools; i++)
        if (request->tools[i].is_strict)
            buf_printf(&banned, "%s%.*s", banned.len_bytes == 0 ? "^(" : "|",
                       (int)request->tools[i].name.len_bytes, (const char *)request->tools[i].name.data);
    if (banned.len_bytes > 0)
        buf_append(&banned, (const uint8_t *)")$", sizeof(")$"));
    if (banned.len_bytes > MAX_STRICT_BYTES && constraint->refusal[0] == '\0')
        snprintf(constraint->refusal, sizeof(constraint->refusal),
                 "tools: too many for a grammar: the names of strict tools are more than %u bytes",
                 MAX_STRICT_BYTES);
    constraint_tagged(constraint, &tags, bytes_str(any), (const char *)banned.data);
    constraint->out->is_bad |= banned.is_bad;
    buf_fini(&banned);
}

/* The other tools, with any arguments: these are written once, since the tools may be thousands. */
static void put_plain_tools(struct constraint *constraint)
{
    const struct calls_grammar *grammar = constraint_grammar(constraint);
    const struct gen_request *request = constraint->request;

    constraint_open_seq(constraint);
    constraint_written(constraint, grammar->name_before);
    if (constraint->plain == PLAIN_ANY) {
        put_any_name(constraint);
    } else {
        constraint->plain = PLAIN_LISTED;
        constraint_open_any(constraint);
        for (size_t i = 0; i < request->n_tools; i++)
            if (!request->tools[i].is_strict && constraint_may_call(constraint, &request->tools[i]))
                constraint_bytes(constraint, (struct bytes){0}, request->tools[i].name, (struct bytes){0});
        constraint_close(constraint);
    }
    constraint_written(constraint, grammar->name_after);
    put_pieces(constraint, grammar->name_end);
    put_any_arguments(constraint);
    constraint_close(constraint);
}

/* A choice among the tools. */
static void constraint_calls_put_tools(struct constraint *constraint, bool is_held)
{
    const struct gen_request *request = constraint->request;
    size_t n_plain = 0;

    constraint_open_any(constraint);
    for (size_t i = 0; i < request->n_tools; i++) {
        const struct gen_tool *tool = &request->tools[i];

        if (!constraint_may_call(constraint, tool))
            continue;
        if (is_held || tool->is_strict)
            put_held_tool(constraint, tool);
        else
            n_plain++;
    }
    if (n_plain > 0)
        put_plain_tools(constraint);
    constraint_close(constraint);
}

/* is_begun: what opens the call is there already. */
static void put_call(struct constraint *constraint, bool is_held, bool is_begun)
{
    const struct calls_grammar *grammar = constraint_grammar(constraint);

    constraint_open_seq(constraint);
    if (!is_begun)
        put_pieces(constraint, grammar->call_open);
    constraint_calls_put_tools(constraint, is_held);
    put_pieces(constraint, grammar->call_close);
    constraint_close(constraint);
}

/* ---- all calls ---- */

/* Opens a repetition of calls that the caller closes.  before precedes each call; line_end may follow
 * each. */
static void put_call_again(struct constraint *constraint, const char *before, const char *line_end,
                           bool is_held)
{
    constraint_open_rep(constraint);
    constraint_open_seq(constraint);
    if (before != NULL)
        constraint_text(constraint, before);
    put_call(constraint, is_held, false);
    if (line_end != NULL && line_end[0] != '\0') {
        constraint_open_rep(constraint);
        constraint_text(constraint, line_end);
        constraint_close_rep(constraint, 0, 1);
    }
    constraint_close(constraint);
}

void constraint_calls(struct constraint *constraint, bool is_held, bool is_many)
{
    const struct calls_grammar *grammar = constraint_grammar(constraint);

    constraint_open_seq(constraint);
    put_pieces(constraint, grammar->open);
    is_many = !grammar->is_one && !constraint->request->is_single_call && (is_many || grammar->has_list);
    if (is_many && !grammar->has_commas) {
        put_call_again(constraint, NULL, grammar->between, is_held);
        constraint_close_rep(constraint, 1, -1);
    } else {
        put_call(constraint, is_held, false);
    }
    if (is_many && grammar->has_commas) {
        put_call_again(constraint, grammar->between, NULL, is_held);
        constraint_close_rep(constraint, 0, -1);
    }
    put_pieces(constraint, grammar->close);
    constraint_close(constraint);
}

void constraint_begun_calls(struct constraint *constraint, bool is_held, bool is_many)
{
    constraint_open_seq(constraint);
    put_call(constraint, is_held, true);
    if (is_many && !constraint->request->is_single_call) {
        put_call_again(constraint, NULL, NULL, is_held);
        constraint_close_rep(constraint, 0, -1);
    }
    constraint_close(constraint);
}
