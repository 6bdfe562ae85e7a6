/* SPDX-License-Identifier: Apache-2.0 */
/* Constraints for calls, in each family's format, exactly as its template writes them.
 *
 *     {"seq": [{"mark": "<tool_call>"}, {"text": "\n{\"name\": \""},
 *              {"any": [{"seq": [{"text": "f\", \"arguments\": "}, {"json": SCHEMA}]}, ...]},
 *              {"text": "}\n"}, {"mark": "</tool_call>"}]}
 *
 * constraint_tags.c writes arguments that are tags. */
#include <string.h>

#include "base/err.h"
#include "serve/prompt/constraint_priv.h"

#define BAR   "\xef\xbd\x9c"
#define BLOCK "\xe2\x96\x81"
/* clang-format off */
#define DEEPSEEK(a, b) "<" BAR "tool" BLOCK a BLOCK b BAR ">"
#define DEEPSEEK_SEP   "<" BAR "tool" BLOCK "sep" BAR ">"
/* clang-format on */

const char *constraint_call_mark(const struct constraint *constraint)
{
    switch (constraint->format->calls) {
    case CHAT_CALLS_HERMES:
    case CHAT_CALLS_XML:
    case CHAT_CALLS_GLM:
        return "<tool_call>";
    case CHAT_CALLS_MISTRAL:
    case CHAT_CALLS_MISTRAL_NAMED:
        return "[TOOL_CALLS]";
    case CHAT_CALLS_DEEPSEEK:
    case CHAT_CALLS_DEEPSEEK_V31:
        return DEEPSEEK("calls", "begin");
    case CHAT_CALLS_LLAMA:
        return "{\"name\": \"";
    case CHAT_CALLS_HARMONY:
        return "";
    }
    return "";
}

bool constraint_may_call(const struct constraint *constraint, const struct gen_tool *tool)
{
    return constraint->request->tool_choice != GEN_TOOLS_ONE ||
           bytes_equal(tool->name, constraint->request->tool_choice_name);
}

/* ---- a choice among the tools ---- */

struct words { /* the text around a tool's name and its arguments */
    const char *before, *after;
    const char *mark, *mark_text; /* NULL, or a mark that follows these two; text that follows the mark */
    const struct constraint_tags *tags; /* NULL: the arguments are JSON */
    const char *tags_end;
};

static void put_arguments(struct constraint *constraint, const struct words *words,
                          const struct gen_tool *tool, bool is_held)
{
    const char *const until[] = {words->tags_end, NULL};

    if (words->tags != NULL && is_held)
        constraint_tags(constraint, words->tags, tool);
    else if (words->tags != NULL)
        constraint_free(constraint, until, 0);
    else if (is_held)
        constraint_arguments(constraint, tool->input_schema);
    else
        constraint_json(constraint, bytes_str("{\"type\":\"object\"}"));
}

static void put_tools(struct constraint *constraint, const struct words *words, bool is_held)
{
    const struct gen_request *request = constraint->request;

    constraint_open_any(constraint);
    for (size_t i = 0; i < request->n_tools; i++) {
        const struct gen_tool *tool = &request->tools[i];

        if (!constraint_may_call(constraint, tool))
            continue;
        constraint_open_seq(constraint);
        constraint_bytes(constraint, bytes_str(words->before), tool->name, bytes_str(words->after));
        if (words->mark != NULL)
            constraint_mark(constraint, words->mark);
        if (words->mark_text != NULL)
            constraint_text(constraint, words->mark_text);
        if (words->mark_text != NULL && constraint->format->calls == CHAT_CALLS_HARMONY)
            constraint_mark(constraint, "<|message|>");
        put_arguments(constraint, words, tool, is_held || tool->is_strict);
        constraint_close(constraint);
    }
    constraint_close(constraint);
}

/* ---- one call ---- */

static const struct words json_words = {.before = "\n{\"name\": \"", .after = "\", \"arguments\": "};
static const struct words list_words = {.before = "{\"name\": \"", .after = "\", \"arguments\": "};
static const struct words llama_words = {.before = "{\"name\": \"", .after = "\", \"parameters\": "};
static const struct words named_words = {.before = "", .after = "", .mark = "[ARGS]"};
static const struct words fence_words = {.before = "", .after = "\n```json\n"};
static const struct words v31_words = {.before = "", .after = "", .mark = DEEPSEEK_SEP};
static const struct words harmony_words = {
    .before = "commentary to=functions.", .after = " ", .mark = "<|constrain|>", .mark_text = "json"};
static const struct words xml_words = {
    .before = "\n<function=", .after = ">\n", .tags = &constraint_xml_tags, .tags_end = "</function>"};
static const struct words glm_words = {
    .before = "", .after = "\n", .tags = &constraint_glm_tags, .tags_end = "</tool_call>"};

static void put_tagged_call(struct constraint *constraint, const struct words *words, const char *end,
                            bool is_held)
{
    constraint_open_seq(constraint);
    constraint_mark(constraint, "<tool_call>");
    put_tools(constraint, words, is_held);
    if (end != NULL)
        constraint_text(constraint, end);
    constraint_mark(constraint, "</tool_call>");
    constraint_close(constraint);
}

static void put_deepseek_call(struct constraint *constraint, bool is_old, bool is_held)
{
    constraint_open_seq(constraint);
    constraint_mark(constraint, DEEPSEEK("call", "begin"));
    if (is_old) {
        constraint_text(constraint, "function");
        constraint_mark(constraint, DEEPSEEK_SEP);
    }
    put_tools(constraint, is_old ? &fence_words : &v31_words, is_held);
    if (is_old)
        constraint_text(constraint, "\n```");
    constraint_mark(constraint, DEEPSEEK("call", "end"));
    constraint_close(constraint);
}

/* Mistral's models give their calls ids, which no client needs. */
static void put_id(struct constraint *constraint)
{
    constraint_open_rep(constraint);
    constraint_open_seq(constraint);
    constraint_text(constraint, ", \"id\": ");
    constraint_json(constraint, bytes_str("{\"type\":\"string\",\"minLength\":9,\"maxLength\":9}"));
    constraint_close(constraint);
    constraint_close_rep(constraint, 0, 1);
}

static void put_call(struct constraint *constraint, bool is_held)
{
    switch (constraint->format->calls) {
    case CHAT_CALLS_HERMES:
        put_tagged_call(constraint, &json_words, "}\n", is_held);
        break;
    case CHAT_CALLS_XML:
        put_tagged_call(constraint, &xml_words, "</function>\n", is_held);
        break;
    case CHAT_CALLS_GLM:
        put_tagged_call(constraint, &glm_words, NULL, is_held);
        break;
    case CHAT_CALLS_MISTRAL:
    case CHAT_CALLS_LLAMA:
        constraint_open_seq(constraint);
        put_tools(constraint, constraint->format->calls == CHAT_CALLS_LLAMA ? &llama_words : &list_words,
                  is_held);
        if (constraint->format->calls == CHAT_CALLS_MISTRAL)
            put_id(constraint);
        constraint_text(constraint, "}");
        constraint_close(constraint);
        break;
    case CHAT_CALLS_MISTRAL_NAMED:
        constraint_open_seq(constraint);
        constraint_mark(constraint, "[TOOL_CALLS]");
        put_tools(constraint, &named_words, is_held);
        constraint_close(constraint);
        break;
    case CHAT_CALLS_DEEPSEEK:
    case CHAT_CALLS_DEEPSEEK_V31:
        put_deepseek_call(constraint, constraint->format->calls == CHAT_CALLS_DEEPSEEK, is_held);
        break;
    case CHAT_CALLS_HARMONY:
        constraint_open_seq(constraint);
        constraint_mark(constraint, "<|channel|>");
        put_tools(constraint, &harmony_words, is_held);
        constraint_close(constraint);
        break;
    }
}

/* ---- calls and the text around them ---- */

struct around {
    const char *open_mark, *open_text; /* NULL: nothing */
    const char *between;
    const char *close_mark, *close_text;
    bool is_one;     /* the format allows one call per answer */
    bool has_list;   /* all calls of an answer stand in one pair of marks */
    bool has_commas; /* between stands between two calls, and nowhere else */
};

static struct around around_of(enum chat_calls calls)
{
    switch (calls) {
    case CHAT_CALLS_MISTRAL:
        return (struct around){.open_mark = "[TOOL_CALLS]",
                               .open_text = "[",
                               .between = ", ",
                               .close_text = "]",
                               .has_list = true,
                               .has_commas = true};
    case CHAT_CALLS_DEEPSEEK:
        return (struct around){.open_mark = DEEPSEEK("calls", "begin"),
                               .between = "\n",
                               .close_mark = DEEPSEEK("calls", "end"),
                               .has_list = true};
    case CHAT_CALLS_DEEPSEEK_V31:
        return (struct around){.open_mark = DEEPSEEK("calls", "begin"),
                               .between = "",
                               .close_mark = DEEPSEEK("calls", "end"),
                               .has_list = true};
    case CHAT_CALLS_MISTRAL_NAMED:
        return (struct around){.between = ""};
    case CHAT_CALLS_LLAMA:
    case CHAT_CALLS_HARMONY:
        return (struct around){.between = "", .is_one = true};
    case CHAT_CALLS_HERMES:
    case CHAT_CALLS_XML:
    case CHAT_CALLS_GLM:
        return (struct around){.between = "\n"};
    }
    return (struct around){0};
}

/* Opens a repetition of calls that the caller closes.  before precedes each call; line_end may follow
 * each. */
static void put_call_again(struct constraint *constraint, const char *before, const char *line_end,
                           bool is_held)
{
    constraint_open_rep(constraint);
    constraint_open_seq(constraint);
    if (before != NULL)
        constraint_text(constraint, before);
    put_call(constraint, is_held);
    if (line_end != NULL && line_end[0] != '\0') {
        constraint_open_rep(constraint);
        constraint_text(constraint, line_end);
        constraint_close_rep(constraint, 0, 1);
    }
    constraint_close(constraint);
}

void constraint_calls(struct constraint *constraint, bool is_held, bool is_many)
{
    const struct around around = around_of(constraint->format->calls);

    constraint_open_seq(constraint);
    if (around.open_mark != NULL)
        constraint_mark(constraint, around.open_mark);
    if (around.open_text != NULL)
        constraint_text(constraint, around.open_text);
    is_many = !around.is_one && !constraint->request->is_single_call && (is_many || around.has_list);
    if (is_many && !around.has_commas) {
        put_call_again(constraint, NULL, around.between, is_held);
        constraint_close_rep(constraint, 1, -1);
    } else {
        put_call(constraint, is_held);
    }
    if (is_many && around.has_commas) {
        put_call_again(constraint, around.between, NULL, is_held);
        constraint_close_rep(constraint, 0, -1);
    }
    if (around.close_text != NULL)
        constraint_text(constraint, around.close_text);
    if (around.close_mark != NULL)
        constraint_mark(constraint, around.close_mark);
    constraint_close(constraint);
}
