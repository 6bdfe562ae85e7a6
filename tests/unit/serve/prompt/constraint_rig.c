/* SPDX-License-Identifier: Apache-2.0 */
/* Sends requests for constrained answers, and reads the answers back. */
#include "constraint_rig.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "text/json/json.h"
#include "serve/api/parse.h"
#include "base/check.h"
#include "base/err.h"

static struct answer_scratch scratch;

#define BAR      "\xef\xbd\x9c"
#define LOW      "\xe2\x96\x81"
#define DS(a, b) "<" BAR "tool" LOW a LOW b BAR ">"
#define M        "]<]minimax[>["
#define SEP      "<" BAR "tool" LOW "sep" BAR ">"

const struct constraint_family families[] = {
    {"hermes", FAMILY("<tool_call>"),
     "<tool_call>\n{\"name\": \"set\", \"arguments\": " ARGS "}\n</tool_call>", false},
    {"generic", "{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}",
     "<tool_call>\n{\"name\": \"set\", \"arguments\": " ARGS "}\n</tool_call>", false},
    {"xml", FAMILY("<tool_call> <function="),
     "<tool_call>\n<function=set>\n<parameter=mode>\non\n</parameter>\n<parameter=n>\n5\n</parameter>\n</"
     "function>\n"
     "</tool_call>",
     false},
    {"glm", FAMILY("<tool_call> <arg_key>"),
     "<tool_call>set\n<arg_key>mode</arg_key>\n<arg_value>on</arg_value>\n<arg_key>n</arg_key>\n<arg_value>5"
     "</arg_value>\n</tool_call>",
     false},
    {"mistral", FAMILY("[TOOL_CALLS]"), "[TOOL_CALLS][{\"name\": \"set\", \"arguments\": " ARGS "}]", false},
    {"mistral, named", FAMILY("[TOOL_CALLS] [ARGS]"), "[TOOL_CALLS]set[ARGS]" ARGS, false},
    {"deepseek", FAMILY(DS("calls", "begin") " ```json"),
     DS("calls", "begin") DS("call", "begin") "function" SEP "set\n```json\n" ARGS "\n```" DS("call", "end")
         DS("calls", "end"),
     false},
    {"deepseek v3.1", FAMILY(DS("calls", "begin")),
     DS("calls", "begin") DS("call", "begin") "set" SEP ARGS DS("call", "end") DS("calls", "end"), false},
    {"harmony", FAMILY("<|start|><|channel|><|message|><|constrain|><|end|><|call|>"),
     "<|channel|>commentary to=functions.set <|constrain|>json<|message|>" ARGS, true},
    {"llama", FAMILY("<|python_tag|>"), "{\"name\": \"set\", \"parameters\": " ARGS "}", true},
    {"granite", FAMILY("<|tool_call|>"), "<|tool_call|>[{\"name\": \"set\", \"arguments\": " ARGS "}]",
     false},
    {"lfm2", FAMILY("<|tool_call_start|>"), "<|tool_call_start|>[set(mode=\"on\", n=5)]<|tool_call_end|>",
     false},
    {"cohere", FAMILY("<|START_ACTION|>"),
     "<|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": \"set\", \"parameters\": " ARGS
     "}\n]<|END_ACTION|>",
     false},
    {"nemotron", FAMILY("<TOOLCALL>"), "<TOOLCALL>[{\"name\": \"set\", \"arguments\": " ARGS "}]</TOOLCALL>",
     false},
    {"hunyuan, a list", FAMILY("<tool_calls>["),
     "<tool_calls>[{\"name\": \"set\", \"arguments\": " ARGS "}]</tool_calls>", false},
    {"hunyuan", FAMILY("<tool_calls><tool_call> ```json"),
     "<tool_calls><tool_call>set\n```json\n" ARGS "\n```</tool_call></tool_calls>", false},
    {"phi", FAMILY("<|tool_call|> <|/tool_call|>"),
     "<|tool_call|>{\"name\": \"set\", \"arguments\": " ARGS "}<|/tool_call|>", false},
    {"phi, a list", FAMILY("<|/tool|>"),
     "<|tool_call|>[{\"name\": \"set\", \"arguments\": " ARGS "}]<|/tool_call|>", false},
    {"llama 4, as in Python", FAMILY("<|header_start|> [func_name1(param1=value1"), "[set(mode=\"on\", n=5)]",
     false},
    {"llama 4", FAMILY("<|header_start|> \"parameters\": "), "{\"name\": \"set\", \"parameters\": " ARGS "}",
     true},
    {"olmo", FAMILY("<function_calls>"), "<function_calls>set(mode=\"on\", n=5)</function_calls>", false},
    {"ernie", FAMILY("<tool_call> <response>"),
     "<tool_call>\n{\"name\": \"set\", \"arguments\": " ARGS "}\n</tool_call>", false},
    {"kimi",
     FAMILY("<|tool_calls_section_begin|><|tool_calls_section_end|><|tool_call_begin|><|tool_call_end|>"
            "<|tool_call_argument_begin|>"),
     "<|tool_calls_section_begin|><|tool_call_begin|>functions.set:12<|tool_call_argument_begin|>" ARGS
     "<|tool_call_end|><|tool_calls_section_end|>",
     false},
    {"minimax", FAMILY("<minimax:tool_call></minimax:tool_call>"),
     "<minimax:tool_call>\n<invoke name=\"set\">\n<parameter name=\"mode\">on</parameter>\n"
     "<parameter name=\"n\">5</parameter>\n</invoke>\n</minimax:tool_call>",
     false},
    {"seed", FAMILY("<seed:tool_call></seed:tool_call>"),
     "<seed:tool_call>\n<function=set>\n<parameter=mode>on</parameter>\n<parameter=n>5</parameter>\n"
     "</function>\n</seed:tool_call>",
     false},
    {"gemma", FAMILY("<|tool_call><tool_call|><|\"|>"),
     "<|tool_call>call:set{mode:<|\"|>on<|\"|>,n:5}<tool_call|>", false},
    {"function-gemma", FAMILY("<start_function_call>"),
     "<start_function_call>call:set{mode:<escape>on<escape>,n:5}<end_function_call>", false},
    {"dsml", FAMILY(BAR "DSML" BAR "function_calls>"),
     "<" BAR "DSML" BAR "function_calls>\n<" BAR "DSML" BAR "invoke name=\"set\">\n<" BAR "DSML" BAR
     "parameter name=\"mode\" string=\"true\">on</" BAR "DSML" BAR "parameter>\n<" BAR "DSML" BAR
     "parameter name=\"n\" string=\"false\">5</" BAR "DSML" BAR "parameter>\n</" BAR "DSML" BAR
     "invoke>\n</" BAR "DSML" BAR "function_calls>",
     false},
    {"glm, tight", FAMILY("<tool_call> <arg_key></arg_key><arg_value></arg_value>"),
     "<tool_call>set<arg_key>mode</arg_key><arg_value>on</arg_value><arg_key>n</arg_key><arg_value>5</"
     "arg_value></tool_call>",
     false},
    {"gigachat, role", FAMILY("function call<|role_sep|>"),
     "<|message_sep|>\n\nfunction call<|role_sep|>\n{\"name\": \"set\", \"arguments\": " ARGS "}", true},
    {"functionary", FAMILY("<function=example_function_name>{}</function>"),
     "<function=set>" ARGS "</function>", false},
    {"dsml v4", FAMILY(BAR "DSML" BAR "tool_calls>"),
     "<" BAR "DSML" BAR "tool_calls>\n<" BAR "DSML" BAR "invoke name=\"set\">\n<" BAR "DSML" BAR
     "parameter name=\"mode\" string=\"true\">on</" BAR "DSML" BAR "parameter>\n<" BAR "DSML" BAR
     "parameter name=\"n\" string=\"false\">5</" BAR "DSML" BAR "parameter>\n</" BAR "DSML" BAR
     "invoke>\n</" BAR "DSML" BAR "tool_calls>",
     false},
    {"minicpm", FAMILY("<function name=\" <param name=\""),
     "<function name=\"set\"><param name=\"mode\">on</param><param name=\"n\">5</param></function>", false},
    {"gigachat", FAMILY("<|function_call|>"), "<|function_call|>{\"name\": \"set\", \"arguments\": " ARGS "}",
     true},
    {"hunyuan 3", FAMILY("<tool_calls><tool_call><tool_sep><arg_key></arg_key> <arg_value></arg_value>"),
     "<tool_calls>\n<tool_call>set<tool_sep>\n<arg_key>mode</arg_key>\n<arg_value>on</"
     "arg_value>\n<arg_key>n</arg_key>\n"
     "<arg_value>5</arg_value>\n</tool_call>\n</tool_calls>",
     false},
    {"hunyuan 3, published",
     FAMILY("<tool_calls:opensource></tool_calls:opensource> <tool_call:opensource></tool_call:opensource> "
            "<tool_sep:opensource> <arg_key:opensource></arg_key:opensource> "
            "<arg_value:opensource></arg_value:opensource>"),
     "<tool_calls:opensource>\n<tool_call:opensource>set<tool_sep:opensource>\n"
     "<arg_key:opensource>mode</arg_key:opensource>\n<arg_value:opensource>on</arg_value:opensource>\n"
     "<arg_key:opensource>n</arg_key:opensource>\n<arg_value:opensource>5</arg_value:opensource>\n"
     "</tool_call:opensource>\n</tool_calls:opensource>",
     false},
    {"apertus", FAMILY("<|tools_prefix|>"), "<|tools_prefix|>[{\"set\": " ARGS "}]<|tools_suffix|>", false},
    {"minimax m1", FAMILY("<beginning_of_sentence><tool_calls>"),
     "<tool_calls>\n{\"name\": \"set\", \"arguments\": " ARGS "}\n</tool_calls>", false},
    {"minimax m3", FAMILY("]<]minimax[>["),
     M "<tool_call>\n" M "<invoke name=\"set\">" M "<mode>on" M "</mode>" M "<n>5" M "</n>" M "</invoke>\n" M
       "</tool_call>",
     false},
    {"command r+", FAMILY("Action:\n```json \"tool_name\""),
     "Action:\n```json\n[\n    {\n        \"tool_name\": \"set\",\n        \"parameters\": " ARGS
     "\n    }\n]```",
     false},
    {"solar",
     FAMILY("<|tool_calls|><|tool_call:begin|><|tool_call:name|><|tool_call:args|><|tool_call:end|>"
            "<|begin|><|content|>"),
     "<|tool_calls|><|tool_call:begin|>a1b2c3d4e5<|tool_call:name|>set<|tool_call:args|>" ARGS
     "<|tool_call:end|>",
     false},
    {"solar 2",
     FAMILY("<|tool_call:start|><|tool_call:end|><|tool_arg:start|><|tool_arg:value|><|tool_arg:end|>"),
     "<|tool_call:start|>set\n<|tool_arg:start|>mode<|tool_arg:value|>on<|tool_arg:end|>\n<|tool_arg:start|>n"
     "<|tool_arg:value|>5<|tool_arg:end|>\n<|tool_call:end|>",
     false},
    {"functionary 3.2", FAMILY(">>>all\n"), "set\n" ARGS, false},
    {"kimi k3", FAMILY("<|open|><|close|><|sep|>"),
     "<|close|>response<|sep|><|open|>tools<|sep|><|open|>call tool=\"set\" index=\"1\"<|sep|>"
     "<|open|>argument key=\"mode\" type=\"string\"<|sep|>on<|close|>argument<|sep|>"
     "<|open|>argument key=\"n\" type=\"number\"<|sep|>5<|close|>argument<|sep|>"
     "<|close|>call<|sep|><|close|>tools<|sep|>",
     false},
};
const size_t n_families = ARRAY_LEN(families);

/* ---- requests ---- */

/* begun: the beginning of the answer, from the client.  Tools that are functions are of chat completions. */
static void ask_for(const struct gen_model *model, const char *fields, const char *begun,
                    bool begins_thinking, struct ask *out)
{
    struct api_error error = {0};
    struct fault fault = {0};
    struct buf body = {0};

    memset(out, 0, sizeof(*out));
    buf_printf(&body,
               "{%s\"model\":\"m\",\"max_tokens\":4000,\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}",
               fields);
    enum api_call call = strstr(fields, "\"function\":{") != NULL ? API_CHAT : API_MESSAGES;
    if (api_parse_request(buf_view(&body), call, &out->request, &error) < 0)
        fail_msg("%s", error.message);
    out->request.prefill = bytes_str(begun);
    if (constraint_make(model, &out->request, begins_thinking, &out->constraint, &error) < 0)
        fail_msg("%s", error.message);
    out->tokenizer = model->tokenizer;
    assert_int_equal(grammar_vocab_new(model->tokenizer, &out->vocab), 0);
    if (out->constraint.len_bytes > 0 &&
        grammar_new(out->vocab, buf_view(&out->constraint), &fault, &out->grammar) < 0)
        fail_msg("%s: %s", fault.text, (const char *)out->constraint.data);
    buf_fini(&body);
}

void ask(const struct gen_model *model, const char *fields, bool begins_thinking, struct ask *out)
{
    ask_for(model, fields, "", begins_thinking, out);
}

void ask_begun(const struct gen_model *model, const char *fields, const char *begun, struct ask *out)
{
    ask_for(model, fields, begun, false, out);
}

void ask_fini(struct ask *ask)
{
    grammar_unref(ask->grammar);
    grammar_vocab_unref(ask->vocab);
    buf_fini(&ask->constraint);
    gen_request_fini(&ask->request);
}

bool takes(const struct ask *ask, const char *text)
{
    struct token_ids ids = {0};
    struct grammar_run *run;
    bool is_taken = true;

    assert_int_equal(tokenizer_encode(ask->tokenizer, bytes_str(text), TOKEN_PARSE_SPECIAL, 10000, &ids), 0);
    assert_int_equal(grammar_run_new(ask->grammar, &run), 0);
    for (size_t i = 0; i < ids.n && is_taken; i++)
        is_taken = grammar_accept(run, ids.ids[i]) == 0;
    is_taken = is_taken && grammar_is_complete(run);
    grammar_run_free(run);
    token_ids_fini(&ids);
    return is_taken;
}

bool takes_text(const struct ask *ask, const struct constraint_family *family, const char *text)
{
    static const char *const marks[][2] = {{"solar", "<|content|>"}, {"functionary 3.2", "all\n"}};
    const char *mark = "";
    struct buf all = {0};
    bool is_taken;

    for (size_t i = 0; i < ARRAY_LEN(marks); i++)
        mark = strcmp(family->name, marks[i][0]) == 0 ? marks[i][1] : mark;
    buf_printf(&all, "%s%s", mark, text);
    is_taken = takes(ask, (const char *)all.data);
    buf_fini(&all);
    return is_taken;
}

/* ---- reading back ---- */

static int ignore(void *arg)
{
    return 0;
}

static int put_text(void *arg, struct bytes text)
{
    return buf_append(&((struct sink *)arg)->text, text.data, text.len_bytes);
}

static int put_thinking(void *arg, struct bytes text)
{
    return buf_append(&((struct sink *)arg)->thinking, text.data, text.len_bytes);
}

static int put_signature(void *arg, struct bytes signature)
{
    return 0;
}

static int open_call(void *arg, const char *id, struct bytes name)
{
    struct sink *sink = arg;

    sink->n_calls++;
    buf_clear(&sink->arguments);
    return buf_printf(&sink->names, "%.*s;", (int)name.len_bytes, (const char *)name.data);
}

static int put_arguments(void *arg, struct bytes json)
{
    return buf_append(&((struct sink *)arg)->arguments, json.data, json.len_bytes);
}

/* Checks every call against the schemas above. */
static int shut(void *arg, enum calls_end how)
{
    struct sink *sink = arg;
    json_t *root = NULL;
    bool is_set, is_good;

    if (sink->arguments.len_bytes == 0)
        return 0;
    is_good = how == CALLS_WHOLE && api_json_load(buf_view(&sink->arguments), NULL, &root) == 0;
    is_set =
        sink->names.len_bytes >= 4 && memcmp(sink->names.data + sink->names.len_bytes - 4, "set;", 4) == 0;
    if (is_set)
        is_good = is_good && json_object_size(root) == 2 && json_is_integer(json_object_get(root, "n")) &&
                  (bytes_is(api_json_str(json_object_get(root, "mode")), "on") ||
                   bytes_is(api_json_str(json_object_get(root, "mode")), "off"));
    else
        is_good = is_good && json_object_size(root) == 1 && json_is_integer(json_object_get(root, "id"));
    if (!is_good)
        print_message("arguments: %.*s\n", (int)sink->arguments.len_bytes,
                      (const char *)sink->arguments.data);
    sink->n_bad += !is_good;
    buf_clear(&sink->arguments);
    json_decref(root);
    return 0;
}

static int keep_arguments(void *arg, enum calls_end how)
{
    return 0;
}

const struct answer_sink sink_all = {.open_text = ignore,
                                     .text = put_text,
                                     .open_thinking = ignore,
                                     .thinking = put_thinking,
                                     .signature = put_signature,
                                     .open_call = open_call,
                                     .arguments = put_arguments,
                                     .close = keep_arguments};

const struct answer_sink sink_calls = {.open_text = ignore,
                                       .text = put_text,
                                       .open_thinking = ignore,
                                       .thinking = put_thinking,
                                       .signature = put_signature,
                                       .open_call = open_call,
                                       .arguments = put_arguments,
                                       .close = shut};

void sink_fini(struct sink *sink)
{
    buf_fini(&sink->text);
    buf_fini(&sink->thinking);
    buf_fini(&sink->arguments);
    buf_fini(&sink->names);
}

token_id draw_one(const uint64_t *mask, uint32_t n_tokens, struct rng *rng)
{
    uint32_t n = 0, nth;

    for (uint32_t id = 0; id < n_tokens; id++)
        n += mask == NULL || (mask[id / 64] >> (id % 64) & 1) != 0;
    assert_true(n > 0);
    nth = (uint32_t)rng_below(rng, n);
    for (uint32_t id = 0; id < n_tokens; id++)
        if ((mask == NULL || (mask[id / 64] >> (id % 64) & 1) != 0) && nth-- == 0)
            return id;
    return TOKEN_NONE;
}

bool is_stop(const struct tokenizer *tokenizer, token_id id)
{
    size_t n;
    const token_id *ids = tokenizer_stop_ids(tokenizer, &n);

    for (size_t i = 0; i < n; i++)
        if (ids[i] == id)
            return true;
    return false;
}

/* begin: the first tokens of the answer. */
static enum gen_stop draw_into(const struct gen_model *model, const struct ask *ask, struct rng *rng,
                               uint32_t n, const char *begin, struct sink *sink,
                               const struct answer_sink *into)
{
    const struct answer_opts opts = {.scratch = &scratch, .model = model, .request = &ask->request};
    struct token_ids first = {0};
    struct grammar_run *run;
    struct answer *answer;
    enum gen_stop why = GEN_STOP_MAX_TOKENS;
    int rc = 0;

    memset(sink, 0, sizeof(*sink));
    assert_int_equal(tokenizer_encode(ask->tokenizer, bytes_str(begin), TOKEN_PARSE_SPECIAL, n, &first), 0);
    assert_int_equal(grammar_run_new(ask->grammar, &run), 0);
    assert_int_equal(answer_new(&opts, into, sink, &answer), 0);
    for (uint32_t i = 0; n > 0 && rc == 0; n--, i++) {
        const uint64_t *mask = grammar_mask(run, n);
        token_id id =
            i < first.n ? first.ids[i] : draw_one(mask, tokenizer_vocab_size(model->tokenizer), rng);

        if (is_stop(model->tokenizer, id)) {
            why = GEN_STOP_END_TURN;
            break;
        }
        assert_int_equal(grammar_accept(run, id), 0);
        rc = answer_push(answer, &id, 1);
    }
    assert_true(rc >= 0);
    if (n == 0 && grammar_is_complete(run))
        why = GEN_STOP_END_TURN; /* the tokens sufficed for the whole answer */
    if (rc == 0)
        assert_int_equal(answer_finish(answer, why), 0);
    why = answer_stop(answer);
    answer_free(answer);
    grammar_run_free(run);
    token_ids_fini(&first);
    return why;
}

enum gen_stop draw(const struct gen_model *model, const struct ask *ask, struct rng *rng, uint32_t n,
                   struct sink *sink)
{
    return draw_into(model, ask, rng, n, "", sink, &sink_calls);
}

void draw_call(const struct gen_model *model, const struct ask *forced, struct rng *rng, uint32_t n,
               struct sink *sink)
{
    draw_into(model, forced, rng, n, "", sink, &sink_all);
    assert_true(sink->n_calls == 1 && sink->text.len_bytes == 0);
}

enum gen_stop draw_behind(const struct gen_model *model, const struct ask *ask, const char *begin,
                          struct rng *rng, uint32_t n, struct sink *sink)
{
    return draw_into(model, ask, rng, n, begin, sink, &sink_all);
}

void check_begun_cases(const char *template, const struct begun_case *cases, size_t n_cases)
{
    struct gen_model model;

    assert_int_equal(sim_model_open_with(template, 8192, &model), 0);
    for (size_t i = 0; i < n_cases; i++) {
        struct ask asked;

        ask(&model, cases[i].fields, cases[i].begins, &asked);
        if (takes(&asked, cases[i].text) != cases[i].is_taken)
            fail_msg("case %zu: %s: %s", i, cases[i].text, (const char *)asked.constraint.data);
        ask_fini(&asked);
    }
    sim_model_close(&model);
}
