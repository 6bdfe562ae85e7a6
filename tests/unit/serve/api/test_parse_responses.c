/* SPDX-License-Identifier: Apache-2.0 */
/* The parser of /v1/responses: refusals and their texts, the result of items, tools and fields, and the
 * fields that a response repeats from its request. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/check.h"
#include "base/err.h"
#include "serve/api/ids.h"
#include "serve/api/parse.h"
#include "text/json/json.h"

#define WITH(more)  "{'model':'m','input':'hi'," more "}"
#define ITEMS(list) "{'model':'m','input':[" list "]}"
#define USER        "{'role':'user','content':'hi'}"
#define CALL(id)    "{'type':'function_call','call_id':'" id "','name':'f','arguments':'{}'}"
#define OUTPUT(id)  "{'type':'function_call_output','call_id':'" id "','output':'r'}"
#define FUNCTION    "{'type':'function','name':'f','parameters':{'type':'object'}}"
#define RESPONSE    "resp_abcdefghijklmnopqrstuvwx"
#define ITEM        "msg_abcdefghijklmnopqrstuvwx_0"

static int parse_with(const char *body, const char *history, struct gen_request *out, struct api_error *error)
{
    struct buf texts[2] = {0};
    int rc;

    buf_append_str(&texts[0], body);
    buf_append_str(&texts[1], history);
    for (int t = 0; t < 2; t++)
        for (size_t i = 0; i < texts[t].len_bytes; i++)
            if (texts[t].data[i] == '\'')
                texts[t].data[i] = '"';
    rc = api_parse_continued(buf_view(&texts[0]), buf_view(&texts[1]), API_RESPONSES, out, error);
    buf_fini(&texts[0]);
    buf_fini(&texts[1]);
    return rc;
}

static void parse(const char *body, struct gen_request *out)
{
    struct api_error error;

    if (parse_with(body, "", out, &error) < 0)
        fail_msg("%s", error.message);
}

static const struct {
    const char *body;
    const char *error; /* NULL: none */
} cases[] = {
    {"[]", "body: Input should be an object"},
    {"{'input':'x'}", "model: Field required"},
    {"{'model':'','input':'x'}", "model: String should have at least 1 character"},
    {"{'model':'m'}", "input: Field required"},
    {"{'model':'m','input':5}", "input: Input should be a valid string or list"},
    {"{'model':'m','input':''}", NULL},
    {"{'model':'m','input':[]}", NULL},
    {ITEMS("5"), "input.0: Input should be an object"},
    {ITEMS("{'content':'x'}"), "input.0.role: Field required"},
    {ITEMS("{'role':'tool','content':'x'}"),
     "input.0.role: Input should be 'system', 'developer', 'user' or 'assistant'"},
    {ITEMS("{'role':'user'}"), "input.0.content: Field required"},
    {ITEMS("{'role':'user','content':5}"), "input.0.content: Input should be a valid string or list"},
    {ITEMS("{'role':'user','content':[5]}"), "input.0.content.0: Input should be an object"},
    {ITEMS("{'role':'user','content':[{'text':'x'}]}"), "input.0.content.0.type: Field required"},
    {ITEMS("{'role':'user','content':[{'type':'input_text'}]}"),
     "input.0.content.0.text: Input should be a valid string"},
    {ITEMS("{'role':'user','content':[{'type':'input_image','image_url':'x'}]}"),
     "input.0.content.0.type: 'input_image' parts are not supported: the model reads text only"},
    {ITEMS("{'type':'web_search_call','id':'x'}"),
     "input.0.type: items of type 'web_search_call' are not supported by this server"},
    {ITEMS("{'type':'item_reference','id':'x'}"), "input.0.id: no item is kept under 'x'"},
    {ITEMS("{'type':'item_reference'}"), "input.0.id: Field required"},
    {ITEMS(CALL("a") "," OUTPUT("a")), NULL},
    {ITEMS(USER "," CALL("a")), "input.1: No tool output found for function call a."},
    {ITEMS(USER "," OUTPUT("b")), "input.1: No tool call found for function call output with call_id b."},
    {ITEMS(CALL("a") "," CALL("a")), "input.1.call_id: the ids of calls must be unique"},
    {ITEMS("{'type':'function_call','name':'f'}"), "input.0.call_id: Field required"},
    {ITEMS("{'type':'function_call','call_id':'a'}"), "input.0.name: Field required"},
    {ITEMS("{'type':'function_call_output','call_id':'a'}"), "input.0.output: Field required"},
    {ITEMS(CALL("a") ",{'type':'function_call_output','call_id':'a','output':[{'type':'input_file'}]}"),
     "input.1.output.0.type: 'input_file' parts are not supported: the model reads text only"},
    {WITH("'tools':5"), "tools: Input should be a valid list"},
    {WITH("'tools':[5]"), "tools.0: Input should be an object"},
    {WITH("'tools':[{}]"), "tools.0.type: Field required"},
    {WITH("'tools':[{'type':'function'}]"), "tools.0.name: Field required"},
    {WITH("'tools':[" FUNCTION "," FUNCTION "]"), "tools: Tool names must be unique: 'f' is used twice"},
    {WITH("'tools':[{'type':'web_search'},{'type':'mcp'}]"),
     "tools: tools of type 'web_search,mcp' are not run by this server; only functions are"},
    {WITH("'tools':[]"), NULL},
    {WITH("'tool_choice':'none'"), NULL},
    {WITH("'tool_choice':'required'"),
     "tool_choice: tool_choice may only be specified while providing tools"},
    {WITH("'tools':[" FUNCTION "],'tool_choice':'some'"),
     "tool_choice: Input should be 'none', 'auto', 'required' or an object"},
    {WITH("'tools':[" FUNCTION "],'tool_choice':{'type':'function','name':'g'}"),
     "tool_choice.name: Tool 'g' not found in provided tools"},
    {WITH("'tools':[" FUNCTION "],'tool_choice':{'type':'web_search'}"),
     "tool_choice.type: a choice of type 'web_search' is not supported by this server"},
    {WITH("'instructions':5"), "instructions: Input should be a valid string"},
    {WITH("'max_output_tokens':0"), "max_output_tokens: Input should be greater than or equal to 1"},
    {WITH("'temperature':3"), "temperature: Input should be between 0 and 2"},
    {WITH("'top_logprobs':21"), "top_logprobs: Input should be between 0 and 20"},
    {WITH("'stream':1"), "stream: Input should be a valid boolean"},
    {WITH("'text':5"), "text: Input should be an object"},
    {WITH("'text':{'format':{'type':'xml'}}"),
     "text.format.type: Input should be 'text', 'json_object' or 'json_schema'"},
    {WITH("'text':{'format':{'type':'json_schema','schema':{}}}"), "text.format.name: Field required"},
    {WITH("'text':{'format':{'type':'json_schema','name':'n'}}"), "text.format.schema: Field required"},
    {WITH("'reasoning':5"), "reasoning: Input should be an object"},
    {WITH("'reasoning':{'summary':'long'}"),
     "reasoning.summary: Input should be 'auto', 'concise' or 'detailed'"},
    {WITH("'include':['everything']"), "include.0: 'everything' is not included by this server"},
    {WITH("'include':['web_search_call.results']"), NULL},
    {WITH("'truncation':'some'"), "truncation: Input should be 'auto' or 'disabled'"},
    {WITH("'metadata':{'a':5}"), "metadata: keys of at most 64 and strings of at most 512 characters"},
    {WITH("'background':true"), "background: responses are not made in the background by this server"},
    {WITH("'background':false"), NULL},
    {WITH("'conversation':'c'"),
     "conversation: conversations are continued by previous_response_id on this server"},
    {WITH("'prompt':{'id':'p'}"), "prompt: prompt templates are not kept by this server"},
    {WITH("'service_tier':'flex','prompt_cache_key':'k','safety_identifier':'s','stream_options':{}"), NULL},
};

static void refusals_name_the_place(void **state)
{
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct gen_request r;
        struct api_error error = {0};

        if (parse_with(cases[i].body, "", &r, &error) == 0)
            gen_request_fini(&r);
        if (strcmp(error.message, cases[i].error == NULL ? "" : cases[i].error) != 0)
            fail_msg("%s: \"%s\"", cases[i].body, error.message);
    }
}

static void items_become_turns(void **state)
{
    struct gen_request r;

    parse("{'model':'m','instructions':'I','input':[{'role':'developer','content':'D'},"
          "{'type':'message','role':'user','content':[{'type':'input_text','text':'q'}]},"
          "{'type':'reasoning','summary':[],'content':[{'type':'reasoning_text','text':'t'}]}," CALL(
              "a") "," CALL("b") "," OUTPUT("b") "," OUTPUT("a") ",{'type':'message','role':'assistant',"
                                                                 "'content':[{'type':'output_text','text':'x'"
                                                                 "},{'type':'output_text','text':'y'}]}]}",
          &r);
    assert_true(bytes_is(r.system, "I\n\nD"));
    assert_int_equal(r.n_messages, 4);
    assert_int_equal(r.messages[0].role, GEN_USER);
    assert_int_equal(r.messages[1].role, GEN_ASSISTANT);
    assert_int_equal(r.messages[1].n_blocks, 3);
    assert_int_equal(r.messages[1].blocks[0].kind, GEN_THINKING);
    assert_true(bytes_is(r.messages[1].blocks[0].text, "t"));
    assert_true(bytes_is(r.messages[1].blocks[2].id, "b"));
    assert_int_equal(r.messages[2].role, GEN_USER);
    assert_int_equal(r.messages[2].n_blocks, 2);
    assert_true(bytes_is(r.messages[3].blocks[0].text, "xy"));
    assert_int_equal(r.prefill.len_bytes, 0); /* a last message of the assistant is a turn, not a prefill */
    assert_true(r.response->is_stored);
    assert_int_equal(r.work.max_new_tokens, UINT32_MAX);
    assert_string_equal(r.call_prefix, "call_");
    gen_request_fini(&r);
    parse("{'model':'m','input':'','max_output_tokens':1,'store':false}", &r);
    assert_int_equal(r.n_messages, 1);
    assert_int_equal(r.work.max_new_tokens, 1);
    assert_int_equal(r.response->items.len_bytes, 0);
    gen_request_fini(&r);
}

static void other_tools_are_left_out_and_named(void **state)
{
    struct gen_request r;
    json_t *warnings, *echo;
    struct buf text = {0};

    parse(WITH("'tools':[{'type':'web_search'}," FUNCTION ",{'type':'namespace','name':'n','tools':[]}],"
               "'tool_choice':{'type':'function','name':'f'},'parallel_tool_calls':false"),
          &r);
    assert_int_equal(r.n_tools, 1);
    assert_true(bytes_is(r.tools[0].name, "f"));
    assert_int_equal(r.tool_choice, GEN_TOOLS_ONE);
    assert_true(r.is_single_call);
    assert_true(bytes_is(r.response->left_out, "web_search,namespace"));
    assert_int_equal(api_json_load(r.response->warnings, NULL, &warnings), 0);
    assert_int_equal(json_array_size(warnings), 2);
    assert_string_equal(json_string_value(json_object_get(json_array_get(warnings, 1), "param")), "tools[2]");
    assert_string_equal(json_string_value(json_object_get(json_array_get(warnings, 0), "message")),
                        "tools of type 'web_search' are not run by this server and were left out");
    json_decref(warnings);
    buf_printf(&text, "{\"x\":0%.*s}", (int)r.response->echo.len_bytes, (const char *)r.response->echo.data);
    assert_int_equal(api_json_load(buf_view(&text), NULL, &echo), 0);
    assert_int_equal(json_array_size(json_object_get(echo, "tools")), 1);
    assert_true(json_is_null(json_object_get(echo, "instructions")));
    assert_true(json_is_true(json_object_get(echo, "store")));
    assert_string_equal(json_string_value(json_object_get(echo, "truncation")), "disabled");
    json_decref(echo);
    buf_fini(&text);
    gen_request_fini(&r);
}

static void fields_take_effect(void **state)
{
    struct gen_request r;

    parse(WITH("'text':{'format':{'type':'json_schema','name':'n','schema':{'type':'object'}}},"
               "'reasoning':{'effort':'low','summary':'auto'},'include':['reasoning.encrypted_content'],"
               "'top_logprobs':2,'truncation':'auto','seed':7,'top_k':3,'stop':'x','service_tier':'flex'"),
          &r);
    assert_true(bytes_is(r.service_tier, "flex"));
    assert_int_equal(r.format, GEN_FORMAT_JSON_SCHEMA);
    assert_true(bytes_is(r.schema, "{\"type\": \"object\"}"));
    assert_true(bytes_is(r.effort, "low"));
    assert_true(r.response->wants_summary && r.response->wants_signature && r.response->truncates);
    assert_true(r.work.sample.wants_logprob);
    assert_int_equal(r.work.sample.n_top, 2);
    assert_int_equal(r.work.sample.seed, 7);
    assert_int_equal(r.n_stop_sequences, 1);
    gen_request_fini(&r);
    parse(WITH("'reasoning':{'effort':'none'},'text':{'format':{'type':'json_object'}}"), &r);
    assert_int_equal(r.thinking, GEN_THINKING_OFF);
    assert_int_equal(r.format, GEN_FORMAT_JSON);
    gen_request_fini(&r);
}

static void kept_responses_are_asked_for_first(void **state)
{
    static const char body[] = "{'model':'m','previous_response_id':'" RESPONSE "','input':[" USER
                               ",{'type':'item_reference','id':'" ITEM "'},{'type':'item_reference','id':'rs_"
                               "abcdefghijklmnopqrstuvwx_1'}]}";
    static const char history[] =
        "{'previous':[{'role':'user','content':'p'},{'type':'message','role':'assistant','content':'q'}],"
        "'items':[{'id':'" ITEM "','type':'message','role':'assistant','content':'i'},"
        "{'id':'rs_abcdefghijklmnopqrstuvwx_1','type':'reasoning','summary':[]}]}";
    struct gen_request r;
    struct api_error error;

    parse(body, &r);
    assert_int_equal(r.response->n_wanted, 2); /* the previous response, and once the response of the items */
    assert_true(bytes_is(r.response->wanted[0], RESPONSE));
    assert_true(bytes_is(r.response->wanted[1], RESPONSE));
    assert_int_equal(r.n_messages, 0);
    gen_request_fini(&r);
    assert_int_equal(parse_with(body, history, &r, &error), 0);
    assert_int_equal(r.response->n_wanted, 0);
    assert_int_equal(r.n_messages, 4);
    assert_true(bytes_is(r.messages[1].blocks[0].text, "q"));
    assert_true(bytes_is(r.messages[3].blocks[0].text, "i"));
    assert_true(bytes_starts_with(r.response->items, "{\"type\": \"message\", \"role\": \"user\""));
    assert_true(bytes_find(r.response->items, bytes_str(",\n{\"id\": \"" ITEM "\", \"type\""), 0) !=
                SIZE_MAX);
    gen_request_fini(&r);
    assert_int_equal(parse_with(body, "{'previous':[],'items':[]}", &r, &error), E_FORMAT);
    assert_string_equal(error.message, "input.1.id: no item is kept under '" ITEM "'");
}

/* The client counts only the items that it sends. */
static void a_kept_call_without_an_output_is_no_item_of_the_client(void **state)
{
    static const char history[] = "{'previous':[" USER "," CALL("a") "],'items':[]}";
    static const struct {
        const char *items, *error;
    } wants[] = {
        {USER,
         "previous_response_id: No tool output found for function call a. The previous response made this "
         "call; send its function_call_output."},
        {CALL("a"), "input.0.call_id: the ids of calls must be unique"},
        {OUTPUT("a") "," CALL("b"), "input.1: No tool output found for function call b."},
        {OUTPUT("a") "," OUTPUT("b"),
         "input.1: No tool call found for function call output with call_id b."}};
    struct gen_request r;
    struct api_error error;
    struct buf body = {0};

    for (size_t i = 0; i < ARRAY_LEN(wants); i++) {
        buf_clear(&body);
        buf_printf(&body, "{'model':'m','previous_response_id':'" RESPONSE "','input':[%s]}", wants[i].items);
        assert_int_equal(parse_with((const char *)body.data, history, &r, &error), E_FORMAT);
        assert_string_equal(error.message, wants[i].error);
    }
    buf_fini(&body);
}

static void an_items_id_names_its_response(void **state)
{
    char item[IDS_BYTES], response[IDS_BYTES];

    ids_make_item("fc", RESPONSE, 12, item);
    assert_string_equal(item, "fc_abcdefghijklmnopqrstuvwx_12");
    assert_true(ids_response_of(bytes_str(item), response));
    assert_string_equal(response, RESPONSE);
    assert_false(ids_response_of(bytes_str("msg_abc_0"), response));
    assert_false(ids_response_of(bytes_str("msg_abcdefghijklmnopqrstuvwx"), response));
    assert_false(ids_response_of(bytes_str("message_abcdefghijklmnopqrstuvwx_0"), response));
    assert_false(ids_response_of(bytes_of("msg_abcdefghijklmnopqrst\0wx_0", 29), response));
    assert_false(ids_response_of(bytes_of(NULL, 0), response));
}

static void a_long_conversation_is_not_kept(void **state)
{
    struct buf body = {0};
    struct gen_request r;
    struct api_error error;

    buf_append_str(&body, "{\"model\":\"m\",\"input\":\"");
    for (size_t i = 0; i < (5u << 20); i++)
        buf_append_byte(&body, 'x');
    buf_append_str(&body, "\"}");
    assert_int_equal(api_parse_request(buf_view(&body), API_RESPONSES, &r, &error), 0);
    assert_false(r.response->is_stored);
    assert_int_equal(r.response->items.len_bytes, 0);
    assert_true(bytes_find(r.response->warnings, bytes_str("response_not_kept"), 0) != SIZE_MAX);
    assert_true(bytes_find(r.response->echo, bytes_str("\"store\":false"), 0) != SIZE_MAX);
    gen_request_fini(&r);
    buf_fini(&body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refusals_name_the_place),
        cmocka_unit_test(items_become_turns),
        cmocka_unit_test(other_tools_are_left_out_and_named),
        cmocka_unit_test(fields_take_effect),
        cmocka_unit_test(kept_responses_are_asked_for_first),
        cmocka_unit_test(a_kept_call_without_an_output_is_no_item_of_the_client),
        cmocka_unit_test(an_items_id_names_its_response),
        cmocka_unit_test(a_long_conversation_is_not_kept),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
