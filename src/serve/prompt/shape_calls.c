/* SPDX-License-Identifier: Apache-2.0 */
/* Constraints for calls, in each family's format, exactly as its template writes them.
 *
 *     {"seq": [{"mark": "<tool_call>"}, {"text": "\n{\"name\": \""},
 *              {"any": [{"seq": [{"text": "f\", \"arguments\": "}, {"json": SCHEMA}]}, ...]},
 *              {"text": "}\n"}, {"mark": "</tool_call>"}]}
 *
 * shape_tags.c writes arguments that are tags. */
#include <string.h>

#include "base/err.h"
#include "serve/prompt/shape_priv.h"

#define BAR   "\xef\xbd\x9c"
#define BLOCK "\xe2\x96\x81"
/* clang-format off */
#define DEEPSEEK(a, b) "<" BAR "tool" BLOCK a BLOCK b BAR ">"
#define DEEPSEEK_SEP   "<" BAR "tool" BLOCK "sep" BAR ">"
/* clang-format on */

const char *shape_call_mark(const struct shape *shape)
{
    switch (shape->manner->calls) {
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

bool shape_may_call(const struct shape *shape, const struct gen_tool *tool)
{
    return shape->request->tool_choice != GEN_TOOLS_ONE ||
           bytes_equal(tool->name, shape->request->tool_choice_name);
}

/* ---- a choice among the tools ---- */

struct words { /* the text around a tool's name and its arguments */
    const char *before, *after;
    const char *mark, *mark_text;  /* NULL, or a mark that follows these two; text that follows the mark */
    const struct shape_tags *tags; /* NULL: the arguments are JSON */
    const char *tags_end;
};

static void put_arguments(struct shape *shape, const struct words *words, const struct gen_tool *tool,
                          bool is_held)
{
    const char *const until[] = {words->tags_end, NULL};

    if (words->tags != NULL && is_held)
        shape_tags(shape, words->tags, tool);
    else if (words->tags != NULL)
        shape_free(shape, until, 0);
    else if (is_held)
        shape_arguments(shape, tool->input_schema);
    else
        shape_json(shape, bytes_str("{\"type\":\"object\"}"));
}

static void put_tools(struct shape *shape, const struct words *words, bool is_held)
{
    const struct gen_request *request = shape->request;

    shape_open_any(shape);
    for (size_t i = 0; i < request->n_tools; i++) {
        const struct gen_tool *tool = &request->tools[i];

        if (!shape_may_call(shape, tool))
            continue;
        shape_open_seq(shape);
        shape_bytes(shape, bytes_str(words->before), tool->name, bytes_str(words->after));
        if (words->mark != NULL)
            shape_mark(shape, words->mark);
        if (words->mark_text != NULL)
            shape_text(shape, words->mark_text);
        if (words->mark_text != NULL && shape->manner->calls == CHAT_CALLS_HARMONY)
            shape_mark(shape, "<|message|>");
        put_arguments(shape, words, tool, is_held || tool->is_strict);
        shape_close(shape);
    }
    shape_close(shape);
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
    .before = "\n<function=", .after = ">\n", .tags = &shape_xml_tags, .tags_end = "</function>"};
static const struct words glm_words = {
    .before = "", .after = "\n", .tags = &shape_glm_tags, .tags_end = "</tool_call>"};

static void put_tagged_call(struct shape *shape, const struct words *words, const char *end, bool is_held)
{
    shape_open_seq(shape);
    shape_mark(shape, "<tool_call>");
    put_tools(shape, words, is_held);
    if (end != NULL)
        shape_text(shape, end);
    shape_mark(shape, "</tool_call>");
    shape_close(shape);
}

static void put_deepseek_call(struct shape *shape, bool is_old, bool is_held)
{
    shape_open_seq(shape);
    shape_mark(shape, DEEPSEEK("call", "begin"));
    if (is_old) {
        shape_text(shape, "function");
        shape_mark(shape, DEEPSEEK_SEP);
    }
    put_tools(shape, is_old ? &fence_words : &v31_words, is_held);
    if (is_old)
        shape_text(shape, "\n```");
    shape_mark(shape, DEEPSEEK("call", "end"));
    shape_close(shape);
}

/* Mistral's models give their calls ids, which no client needs. */
static void put_id(struct shape *shape)
{
    shape_open_rep(shape);
    shape_open_seq(shape);
    shape_text(shape, ", \"id\": ");
    shape_json(shape, bytes_str("{\"type\":\"string\",\"minLength\":9,\"maxLength\":9}"));
    shape_close(shape);
    shape_close_rep(shape, 0, 1);
}

static void put_call(struct shape *shape, bool is_held)
{
    switch (shape->manner->calls) {
    case CHAT_CALLS_HERMES:
        put_tagged_call(shape, &json_words, "}\n", is_held);
        break;
    case CHAT_CALLS_XML:
        put_tagged_call(shape, &xml_words, "</function>\n", is_held);
        break;
    case CHAT_CALLS_GLM:
        put_tagged_call(shape, &glm_words, NULL, is_held);
        break;
    case CHAT_CALLS_MISTRAL:
    case CHAT_CALLS_LLAMA:
        shape_open_seq(shape);
        put_tools(shape, shape->manner->calls == CHAT_CALLS_LLAMA ? &llama_words : &list_words, is_held);
        if (shape->manner->calls == CHAT_CALLS_MISTRAL)
            put_id(shape);
        shape_text(shape, "}");
        shape_close(shape);
        break;
    case CHAT_CALLS_MISTRAL_NAMED:
        shape_open_seq(shape);
        shape_mark(shape, "[TOOL_CALLS]");
        put_tools(shape, &named_words, is_held);
        shape_close(shape);
        break;
    case CHAT_CALLS_DEEPSEEK:
    case CHAT_CALLS_DEEPSEEK_V31:
        put_deepseek_call(shape, shape->manner->calls == CHAT_CALLS_DEEPSEEK, is_held);
        break;
    case CHAT_CALLS_HARMONY:
        shape_open_seq(shape);
        shape_mark(shape, "<|channel|>");
        put_tools(shape, &harmony_words, is_held);
        shape_close(shape);
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
static void put_call_again(struct shape *shape, const char *before, const char *line_end, bool is_held)
{
    shape_open_rep(shape);
    shape_open_seq(shape);
    if (before != NULL)
        shape_text(shape, before);
    put_call(shape, is_held);
    if (line_end != NULL && line_end[0] != '\0') {
        shape_open_rep(shape);
        shape_text(shape, line_end);
        shape_close_rep(shape, 0, 1);
    }
    shape_close(shape);
}

void shape_calls(struct shape *shape, bool is_held, bool is_many)
{
    const struct around around = around_of(shape->manner->calls);

    shape_open_seq(shape);
    if (around.open_mark != NULL)
        shape_mark(shape, around.open_mark);
    if (around.open_text != NULL)
        shape_text(shape, around.open_text);
    is_many = !around.is_one && !shape->request->is_single_call && (is_many || around.has_list);
    if (is_many && !around.has_commas) {
        put_call_again(shape, NULL, around.between, is_held);
        shape_close_rep(shape, 1, -1);
    } else {
        put_call(shape, is_held);
    }
    if (is_many && around.has_commas) {
        put_call_again(shape, around.between, NULL, is_held);
        shape_close_rep(shape, 0, -1);
    }
    if (around.close_text != NULL)
        shape_text(shape, around.close_text);
    if (around.close_mark != NULL)
        shape_mark(shape, around.close_mark);
    shape_close(shape);
}
