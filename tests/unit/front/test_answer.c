/* SPDX-License-Identifier: Apache-2.0 */
/* Tokens to blocks: characters stay whole, stop strings end text and nothing else, calls become blocks. */
#include "front/answer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "base/check.h"
#include "base/err.h"
#include "base/str.h"
#include "sim_model.h"

/* Blocks as "text(...)" and "name{...}" each closed by ';' ('!' when cut, '?' when broken). */
struct sink {
    struct buf out;
    bool is_text;
};

static int open_text(void *arg)
{
    ((struct sink *)arg)->is_text = true;
    return buf_append_str(&((struct sink *)arg)->out, "(");
}

static int put(void *arg, struct bytes text)
{
    assert_true(text.len_bytes > 0);
    assert_int_equal(utf8_valid_prefix(text), text.len_bytes);
    return buf_append(&((struct sink *)arg)->out, text.data, text.len_bytes);
}

static int open_call(void *arg, const char *id, struct bytes name)
{
    assert_int_equal(strncmp(id, "toolu_", 6), 0);
    ((struct sink *)arg)->is_text = false;
    return buf_append(&((struct sink *)arg)->out, name.data, name.len_bytes);
}

static int shut(void *arg, enum calls_end how)
{
    struct sink *sink = arg;

    return buf_append_str(&sink->out, how == CALLS_WHOLE ? (sink->is_text ? ");" : ";")
                                      : how == CALLS_CUT ? "!;"
                                                         : "?;");
}

static int sign(void *arg, struct bytes signature)
{
    assert_true(signature.len_bytes > 0);
    return buf_append_str(&((struct sink *)arg)->out, "#");
}

static int open_thinking(void *arg)
{
    ((struct sink *)arg)->is_text = true;
    return buf_append_str(&((struct sink *)arg)->out, "~(");
}

static const struct answer_sink sink_calls = {.open_text = open_text,
                                              .text = put,
                                              .open_thinking = open_thinking,
                                              .thinking = put,
                                              .signature = sign,
                                              .open_call = open_call,
                                              .arguments = put,
                                              .close = shut};

#define CALL(name, args) "<tool_call>\n{\"name\": \"" name "\", \"arguments\": " args "}\n</tool_call>"

static const struct {
    const char *text; /* what the model says */
    const char *stops[3];
    bool has_tools, is_single, is_none;
    enum gen_stop limit;
    const char *blocks;
    enum gen_stop why;
    size_t index;
} answers[] = {
    {"hello", {0}, false, false, false, GEN_STOP_END_TURN, "(hello);", GEN_STOP_END_TURN, 0},
    {"", {0}, false, false, false, GEN_STOP_END_TURN, "", GEN_STOP_END_TURN, 0},
    {"h\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80",
     {0},
     false,
     false,
     false,
     GEN_STOP_MAX_TOKENS,
     "(h\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80);",
     GEN_STOP_MAX_TOKENS,
     0},
    {"half \xe2\x82", {0}, false, false, false, GEN_STOP_MAX_TOKENS, "(half );", GEN_STOP_MAX_TOKENS, 0},
    {"one END two", {"END"}, false, false, false, GEN_STOP_END_TURN, "(one );", GEN_STOP_SEQUENCE, 0},
    {"one EN", {"END"}, false, false, false, GEN_STOP_END_TURN, "(one EN);", GEN_STOP_END_TURN, 0},
    {"ENDx", {"x", "END"}, false, false, false, GEN_STOP_END_TURN, "", GEN_STOP_SEQUENCE, 1},
    {"abcd", {"bcd", "abc"}, false, false, false, GEN_STOP_END_TURN, "", GEN_STOP_SEQUENCE, 1},
    {CALL("f", "{}"),
     {0},
     false,
     false,
     false,
     GEN_STOP_END_TURN,
     "(" CALL("f", "{}") ");",
     GEN_STOP_END_TURN,
     0},
    {CALL("f", "{}"),
     {0},
     true,
     false,
     true,
     GEN_STOP_END_TURN,
     "(" CALL("f", "{}") ");",
     GEN_STOP_END_TURN,
     0},
    {"Look.\n" CALL("f", "{\"a\": \"\xc3\xa9\"}"),
     {0},
     true,
     false,
     false,
     GEN_STOP_END_TURN,
     "(Look.\n);f{\"a\": \"\xc3\xa9\"};",
     GEN_STOP_TOOL_USE,
     0},
    {CALL("f", "{}") "\n" CALL("g", "{}"),
     {0},
     true,
     false,
     false,
     GEN_STOP_END_TURN,
     "f{};g{};",
     GEN_STOP_TOOL_USE,
     0},
    {CALL("f", "{}") "\n" CALL("g", "{}"),
     {0},
     true,
     true,
     false,
     GEN_STOP_END_TURN,
     "f{};",
     GEN_STOP_TOOL_USE,
     0},
    {CALL("f", "{\"a\": \"END\"}") "END",
     {"END"},
     true,
     false,
     false,
     GEN_STOP_END_TURN,
     "f{\"a\": \"END\"};",
     GEN_STOP_SEQUENCE,
     0},
    {"EN" CALL("f", "{}"), {"END"}, true, false, false, GEN_STOP_END_TURN, "(EN);f{};", GEN_STOP_TOOL_USE, 0},
    {"<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": \"b",
     {0},
     true,
     false,
     false,
     GEN_STOP_MAX_TOKENS,
     "f{\"a\": \"b!;",
     GEN_STOP_MAX_TOKENS,
     0},
    {"<tool_call>garbage</tool_call>",
     {0},
     true,
     false,
     false,
     GEN_STOP_END_TURN,
     "(<tool_call>garbage</tool_call>);",
     GEN_STOP_END_TURN,
     0},
    {CALL("f", "{\"a\": oops}"),
     {0},
     true,
     false,
     false,
     GEN_STOP_END_TURN,
     "f{\"a\": ?;(" CALL("f", "{\"a\": oops}") ");",
     GEN_STOP_END_TURN,
     0},
    {CALL("f", "{}"), {0}, true, false, false, GEN_STOP_CONTEXT, "f{};", GEN_STOP_CONTEXT, 0},
};

static void run(const struct gen_model *model, size_t i, size_t group)
{
    struct bytes stops[3];
    struct gen_tool tool = {0};
    struct gen_request request = {.tools = &tool, .n_tools = answers[i].has_tools, .stop_sequences = stops};
    const struct answer_opts opts = {.model = model, .request = &request};
    struct token_ids ids = {0};
    struct sink sink = {0};
    struct answer *answer;
    int rc = 0;

    for (; request.n_stop_sequences < 3 && answers[i].stops[request.n_stop_sequences] != NULL;
         request.n_stop_sequences++)
        stops[request.n_stop_sequences] = bytes_str(answers[i].stops[request.n_stop_sequences]);
    request.is_single_call = answers[i].is_single;
    request.tool_choice = answers[i].is_none ? GEN_TOOLS_NONE : GEN_TOOLS_AUTO;
    assert_int_equal(
        tokenizer_encode(model->tokenizer, bytes_str(answers[i].text), TOKEN_PARSE_SPECIAL, 10000, &ids), 0);
    assert_int_equal(answer_new(&opts, &sink_calls, &sink, &answer), 0);
    for (size_t at = 0; at < ids.n && rc == 0; at += group)
        rc = answer_push(answer, ids.ids + at, at + group > ids.n ? ids.n - at : group);
    assert_true(rc >= 0);
    if (rc == 0)
        assert_int_equal(answer_finish(answer, answers[i].limit), 0);
    if (!bytes_is(buf_view(&sink.out), answers[i].blocks))
        fail_msg("answer %zu by %zu: %s", i, group, (const char *)sink.out.data);
    assert_int_equal(answer_stop(answer), answers[i].why);
    if (answers[i].why == GEN_STOP_SEQUENCE)
        assert_int_equal(answer_stop_index(answer), answers[i].index);
    answer_free(answer);
    token_ids_fini(&ids);
    buf_fini(&sink.out);
}

static void answers_become_blocks(void **state)
{
    for (size_t i = 0; i < ARRAY_LEN(answers); i++)
        for (size_t group = 1; group < 8; group++)
            run(*state, i, group);
}

static int set_up(void **state)
{
    static struct gen_model model;

    *state = &model;
    return sim_model_open(4096, &model);
}

static int tear_down(void **state)
{
    sim_model_close(*state);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(answers_become_blocks)};

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
