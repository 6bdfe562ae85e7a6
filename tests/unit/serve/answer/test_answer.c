/* SPDX-License-Identifier: Apache-2.0 */
/* From tokens to blocks: characters stay whole, stop strings end only text, calls become blocks. */
#include "serve/answer/answer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "base/check.h"
#include "base/err.h"
#include "base/str.h"
#include "serve/access/sign.h"
#include "tests/unit/serve/endpoint/sim_model.h"

static struct answer_scratch scratch;

/* Collects blocks as "text(...)" and "name{...}", each closed by ';' ('!' when cut, '?' when broken). */
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
    const char *text; /* the model's output */
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

/* The stop sequences of a request, for answer_new(); NULL: none. */
static struct stop_set *set_of(const struct gen_request *request)
{
    struct stop_set *set = NULL;

    if (request->n_stop_sequences > 0)
        assert_int_equal(stop_set_new(request->stop_sequences, request->n_stop_sequences, &set), 0);
    return set;
}

/* ---- thinking ---- */

static const struct {
    const char *text;
    const char *stop; /* NULL: none */
    bool is_begun, is_hidden;
    enum gen_stop limit;
    const char *blocks;
    enum gen_stop why;
    uint32_t n_thinking;
} thoughts[] = {
    {"<think>\nabc\n</think>\n\nYes.", NULL, false, false, GEN_STOP_END_TURN, "~(abc#);(Yes.);",
     GEN_STOP_END_TURN, 14},
    {"abc</think>Yes.", NULL, true, false, GEN_STOP_END_TURN, "~(abc#);(Yes.);", GEN_STOP_END_TURN, 11},
    {"<think>abc</think>Yes.", NULL, false, true, GEN_STOP_END_TURN, "~(#);(Yes.);", GEN_STOP_END_TURN, 12},
    {"<think>END</think>a END b", "END", false, false, GEN_STOP_END_TURN, "~(END#);(a );", GEN_STOP_SEQUENCE,
     12},
    {"EN<think>D</think>b", "END", false, false, GEN_STOP_END_TURN, "(EN);~(D#);(b);", GEN_STOP_END_TURN, 10},
    {"<think>ab", NULL, false, false, GEN_STOP_MAX_TOKENS, "~(ab#);", GEN_STOP_MAX_TOKENS, 3},
    {"<think>\n\n</think>\n\nNo.", NULL, false, false, GEN_STOP_END_TURN, "(No.);", GEN_STOP_END_TURN, 11},
    {"<think>a</think>" CALL("f", "{}") "<think>b</think>" CALL("g", "{}"), NULL, false, false,
     GEN_STOP_END_TURN, "~(a#);f{};~(b#);g{};", GEN_STOP_TOOL_USE, 20},
};

static void run_thought(const struct gen_model *model, size_t i, size_t group)
{
    struct bytes stop = bytes_str(thoughts[i].stop);
    struct gen_tool tool = {0};
    const struct gen_request request = {.tools = &tool,
                                        .n_tools = 1,
                                        .stop_sequences = &stop,
                                        .n_stop_sequences = thoughts[i].stop != NULL,
                                        .hides_thinking = thoughts[i].is_hidden};
    struct stop_set *set = set_of(&request);
    const struct answer_opts opts = {.scratch = &scratch,
                                     .model = model,
                                     .request = &request,
                                     .stops = set,
                                     .begins_thinking = thoughts[i].is_begun};
    struct token_ids ids = {0};
    struct sink sink = {0};
    struct answer *answer;
    int rc = 0;

    assert_int_equal(
        tokenizer_encode(model->tokenizer, bytes_str(thoughts[i].text), TOKEN_PARSE_SPECIAL, 10000, &ids), 0);
    assert_int_equal(answer_new(&opts, &sink_calls, &sink, &answer), 0);
    for (size_t at = 0; at < ids.n && rc == 0; at += group)
        rc = answer_push(answer, ids.ids + at, at + group > ids.n ? ids.n - at : group);
    assert_true(rc >= 0);
    if (rc == 0)
        assert_int_equal(answer_finish(answer, thoughts[i].limit), 0);
    if (!bytes_is(buf_view(&sink.out), thoughts[i].blocks))
        fail_msg("thought %zu by %zu: %s", i, group, (const char *)sink.out.data);
    assert_int_equal(answer_stop(answer), thoughts[i].why);
    if (group == 1)
        assert_int_equal(answer_thinking_tokens(answer), thoughts[i].n_thinking);
    answer_free(answer);
    stop_set_free(set);
    token_ids_fini(&ids);
    buf_fini(&sink.out);
}

static void thinking_becomes_blocks(void **state)
{
    for (size_t i = 0; i < ARRAY_LEN(thoughts); i++)
        for (size_t group = 1; group < 8; group++)
            run_thought(*state, i, group);
}

static void signatures_know_their_text(void **state)
{
    char signature[SIGN_CHARS + 1], other[SIGN_CHARS + 1];

    assert_int_equal(sign_thinking(bytes_str("Hm."), signature), 0);
    assert_int_equal(sign_thinking(bytes_str("hm."), other), 0);
    assert_int_equal(strlen(signature), SIGN_CHARS);
    assert_string_not_equal(signature, other);
    assert_true(sign_is_ours(bytes_str("Hm."), bytes_str(signature)));
    assert_false(sign_is_ours(bytes_str("Hm."), bytes_str(other)));
    assert_false(sign_is_ours(bytes_str("Hm."), bytes_str("short")));
    assert_false(sign_is_ours(bytes_str("Hm."), bytes_of(NULL, 0)));
}

/* Forced calls use all tokens that are left: an answer that ends in a whole call was not cut. */
static void forced_calls_are_whole_at_the_limit(void **state)
{
    static const struct {
        const char *text;
        enum gen_tool_choice choice;
        enum gen_stop why;
    } table[] = {
        {CALL("f", "{}"), GEN_TOOLS_ANY, GEN_STOP_TOOL_USE},
        {"<tool_call>\n{\"name\": \"f\", \"arguments\": {}", GEN_TOOLS_ONE, GEN_STOP_TOOL_USE},
        {CALL("f", "{}") "<tool_call>\n{\"name\"", GEN_TOOLS_ANY, GEN_STOP_MAX_TOKENS},
        {"<tool_call>\n{\"name\": \"f\", \"arguments\": {", GEN_TOOLS_ANY, GEN_STOP_MAX_TOKENS},
        {CALL("f", "{}"), GEN_TOOLS_AUTO, GEN_STOP_MAX_TOKENS},
    };

    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        const struct gen_model *model = *state;
        struct gen_tool tool = {.name = bytes_str("f")};
        const struct gen_request request = {.tools = &tool, .n_tools = 1, .tool_choice = table[i].choice};
        const struct answer_opts opts = {.scratch = &scratch, .model = model, .request = &request};
        struct token_ids ids = {0};
        struct sink sink = {0};
        struct answer *answer;

        assert_int_equal(
            tokenizer_encode(model->tokenizer, bytes_str(table[i].text), TOKEN_PARSE_SPECIAL, 10000, &ids),
            0);
        assert_int_equal(answer_new(&opts, &sink_calls, &sink, &answer), 0);
        assert_int_equal(answer_push(answer, ids.ids, ids.n), 0);
        assert_int_equal(answer_finish(answer, GEN_STOP_MAX_TOKENS), 0);
        assert_int_equal(answer_stop(answer), table[i].why);
        answer_free(answer);
        token_ids_fini(&ids);
        buf_fini(&sink.out);
    }
}

/* Returns the number of tokens of the answer. */
static uint32_t run(const struct gen_model *model, size_t i, size_t group)
{
    struct bytes stops[3];
    struct gen_tool tool = {0};
    struct gen_request request = {.tools = &tool, .n_tools = answers[i].has_tools, .stop_sequences = stops};
    struct answer_opts opts = {.scratch = &scratch, .model = model, .request = &request};
    struct stop_set *set;
    struct token_ids ids = {0};
    struct sink sink = {0};
    struct answer *answer;
    uint32_t n_tokens;
    int rc = 0;

    for (; request.n_stop_sequences < 3 && answers[i].stops[request.n_stop_sequences] != NULL;
         request.n_stop_sequences++)
        stops[request.n_stop_sequences] = bytes_str(answers[i].stops[request.n_stop_sequences]);
    opts.stops = set = set_of(&request);
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
    n_tokens = answer_tokens(answer);
    assert_true(n_tokens <= ids.n && (rc == 1 || n_tokens == ids.n));
    answer_free(answer);
    stop_set_free(set);
    token_ids_fini(&ids);
    buf_fini(&sink.out);
    return n_tokens;
}

/* A stop string counts if it ends behind the last of min_tokens, wherever it begins. */
static void a_stop_string_ends_behind_min_tokens(void **state)
{
    static const char text[] = "one END two END";
    static const char *const ends[] = {"(one );", "(one END two );", "(one END two END);"};
    const struct gen_model *model = *state;
    struct bytes stop = bytes_str("END");
    struct gen_request request = {.stop_sequences = &stop, .n_stop_sequences = 1};
    struct stop_set *set = set_of(&request);
    const struct answer_opts opts = {.scratch = &scratch, .model = model, .request = &request, .stops = set};
    struct token_ids ids = {0};
    size_t n_seen = 0;

    assert_int_equal(tokenizer_encode(model->tokenizer, bytes_str(text), TOKEN_PARSE_SPECIAL, 100, &ids), 0);
    for (size_t min = 0; min <= ids.n; min++) {
        struct sink sink = {0};
        struct answer *answer;
        int rc = 0;

        request.work.sample.min_tokens = (uint32_t)min;
        assert_int_equal(answer_new(&opts, &sink_calls, &sink, &answer), 0);
        for (size_t at = 0; at < ids.n && rc == 0; at++)
            rc = answer_push(answer, ids.ids + at, 1);
        if (rc == 0)
            assert_int_equal(answer_finish(answer, GEN_STOP_END_TURN), 0);
        while (n_seen < 3 && !bytes_is(buf_view(&sink.out), ends[n_seen]))
            n_seen++; /* never an earlier end again */
        assert_true(n_seen < 3);
        assert_int_equal(answer_stop(answer), n_seen < 2 ? GEN_STOP_SEQUENCE : GEN_STOP_END_TURN);
        answer_free(answer);
        buf_fini(&sink.out);
    }
    assert_int_equal(n_seen, 2);
    stop_set_free(set);
    token_ids_fini(&ids);
}

/* The splitter holds back what may begin a mark, and blanks before the text. */
static void held_text_counts_for_its_token(void **state)
{
    static const char *const pieces[][3] = {{"a ", "<", "b"}, {"a", "\n", "<b"}, {"\n\n", "b", "c"}};
    static const char *const stops[] = {"<", "\n", "\n\n"}, *const texts[] = {"(a <b);", "(a\n<b);",
                                                                              "(\n\nbc);"};
    const struct gen_model *model = *state;

    for (size_t i = 0; i < ARRAY_LEN(pieces); i++) {
        struct bytes stop = bytes_str(stops[i]);
        struct gen_request request = {.stop_sequences = &stop, .n_stop_sequences = 1};
        struct stop_set *set = set_of(&request);
        const struct answer_opts opts = {
            .scratch = &scratch, .model = model, .request = &request, .stops = set};
        struct token_ids ids = {0};
        struct sink sink = {0};
        struct answer *answer;

        for (size_t j = 0; j < 3; j++) {
            if (j == 2)
                request.work.sample.min_tokens = (uint32_t)ids.n;
            assert_int_equal(
                tokenizer_encode(model->tokenizer, bytes_str(pieces[i][j]), TOKEN_PARSE_SPECIAL, 100, &ids),
                0);
        }
        assert_int_equal(answer_new(&opts, &sink_calls, &sink, &answer), 0);
        for (size_t at = 0; at < ids.n; at++)
            assert_int_equal(answer_push(answer, ids.ids + at, 1), 0);
        assert_int_equal(answer_finish(answer, GEN_STOP_END_TURN), 0);
        assert_int_equal(answer_stop(answer), GEN_STOP_END_TURN);
        assert_true(bytes_is(buf_view(&sink.out), texts[i]));
        answer_free(answer);
        stop_set_free(set);
        buf_fini(&sink.out);
        token_ids_fini(&ids);
    }
}

/* Bytes of a character that the model does not finish end before a mark that is a control token. */
static void a_mark_ends_an_unfinished_character(void **state)
{
    struct gen_model model;
    struct gen_tool tool = {0};
    const struct gen_request request = {.tools = &tool, .n_tools = 1};
    const struct answer_opts opts = {.scratch = &scratch, .model = &model, .request = &request};
    struct token_ids ids = {0};
    struct sink sink = {0};
    struct answer *answer;

    (void)state;
    assert_int_equal(
        sim_model_open_with("{# [TOOL_CALLS] [ARGS] #}{% for m in messages %}{{ m.role }}:{{ m.content }}{{ "
                            "m.tool_calls|string if m.tool_calls }};{% endfor %}{{ tools|string if tools }}",
                            4096, &model),
        0);
    assert_int_equal(tokenizer_encode(model.tokenizer, bytes_str("a\xe2\x82[TOOL_CALLS]f[ARGS]{}"),
                                      TOKEN_PARSE_SPECIAL, 100, &ids),
                     0);
    assert_int_equal(answer_new(&opts, &sink_calls, &sink, &answer), 0);
    assert_int_equal(answer_push(answer, ids.ids, ids.n), 0);
    assert_int_equal(answer_finish(answer, GEN_STOP_END_TURN), 0);
    if (!bytes_is(buf_view(&sink.out), "(a\xef\xbf\xbd);f{};"))
        fail_msg("%.*s", (int)sink.out.len_bytes, (const char *)sink.out.data);
    answer_free(answer);
    buf_fini(&sink.out);
    token_ids_fini(&ids);
    sim_model_close(&model);
}

static void answers_become_blocks(void **state)
{
    for (size_t i = 0; i < ARRAY_LEN(answers); i++) {
        uint32_t n_tokens = run(*state, i, 1);

        for (size_t group = 2; group < 8; group++)
            assert_int_equal(run(*state, i, group), n_tokens);
    }
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
    const struct CMUnitTest tests[] = {cmocka_unit_test(answers_become_blocks),
                                       cmocka_unit_test(thinking_becomes_blocks),
                                       cmocka_unit_test(a_stop_string_ends_behind_min_tokens),
                                       cmocka_unit_test(held_text_counts_for_its_token),
                                       cmocka_unit_test(a_mark_ends_an_unfinished_character),
                                       cmocka_unit_test(signatures_know_their_text),
                                       cmocka_unit_test(forced_calls_are_whole_at_the_limit)};

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
