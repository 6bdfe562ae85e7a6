/* SPDX-License-Identifier: Apache-2.0 */
/* Bodies of OpenAI's routes: the fields of accepted ones, and the text of every refusal, which
 * begins with the field.  Bodies are written with ' for ". */
#include "serve/api/parse.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/check.h"
#include "base/err.h"

#define HI          "'messages':[{'role':'user','content':'hi'}]"
#define WITH(field) "{'model':'m'," HI "," field "}"
#define MSG(list)   "{'model':'m','messages':[" list "]}"
#define TOOL(name)  "{'type':'function','function':{'name':'" name "','parameters':{'type':'object'}}}"
#define ASKED(id)                                                                                            \
    "{'role':'assistant','content':null,'tool_calls':[{'id':'" id                                            \
    "','type':'function','function':{'name':'f','arguments':'{}'}}]}"
#define TEXT(field) "{'model':'m','prompt':'p'," field "}"

static const struct {
    enum api_call call;
    const char *body;
    const char *message; /* the exact error text; NULL: accepted */
} bodies[] = {
    /* structure */
    {API_EMBEDDINGS, "{'model':'m'}", "input: Field required"},
    {API_EMBEDDINGS, "{'input':'x'}", "model: Field required"},
    {API_EMBEDDINGS, "{'model':'m','input':[]}", "input: List should have at least 1 item"},
    {API_EMBEDDINGS, "{'model':'m','input':5}",
     "input: Input should be a valid string or a list of token ids"},
    {API_EMBEDDINGS, "{'model':'m','input':['a',5]}",
     "input.1: Input should be a valid string or a list of token ids"},
    {API_EMBEDDINGS, "{'model':'m','input':[[1,-1]]}", "input.0.1: Input should be a token id"},
    {API_EMBEDDINGS, "{'model':'m','input':'x','dimensions':0}",
     "dimensions: Input should be between 1 and 65536"},
    {API_EMBEDDINGS, "{'model':'m','input':'x','encoding_format':'int8'}",
     "encoding_format: Input should be 'float' or 'base64'"},
    {API_EMBEDDINGS, "{'model':'m','input':'x','user':'u','dimensions':null,'encoding_format':'float'}",
     NULL},
    {API_CHAT, "[]", "body: Input should be an object"},
    {API_CHAT, "{" HI "}", "model: Field required"},
    {API_CHAT, "{'model':''," HI "}", "model: String should have at least 1 character"},
    {API_CHAT, "{'model':'m'}", "messages: Field required"},
    {API_CHAT, MSG(""), "messages: at least one message is required"},
    {API_CHAT, MSG("5"), "messages.0: Input should be an object"},
    {API_CHAT, MSG("{'content':'x'}"), "messages.0.role: Field required"},
    {API_CHAT, MSG("{'role':'function','name':'f','content':'x'}"),
     "messages.0.role: Input should be 'system', 'developer', 'user', 'assistant' or 'tool'"},
    {API_CHAT, MSG("{'role':'user'}"), "messages.0.content: Field required"},
    {API_CHAT, MSG("{'role':'user','content':null}"), "messages.0.content: Field required"},
    {API_CHAT, MSG("{'role':'assistant'}"), "messages.0.content: Field required"},
    {API_CHAT, MSG("{'role':'assistant','refusal':'no','content':null}"), NULL},
    {API_CHAT, MSG("{'role':'user','content':5}"),
     "messages.0.content: Input should be a valid string or list"},
    {API_CHAT, MSG("{'role':'user','content':[{'text':'x'}]}"), "messages.0.content.0.type: Field required"},
    {API_CHAT, MSG("{'role':'user','content':[{'type':'text'}]}"),
     "messages.0.content.0.text: Field required"},
    {API_CHAT, MSG("{'role':'user','content':[{'type':'input_audio'}]}"),
     "messages.0.content.0.type: 'input_audio' parts are not supported: the model reads text only"},
    /* calls and results */
    {API_CHAT, MSG(ASKED("a") ",{'role':'tool','tool_call_id':'a','content':'r'}"), NULL},
    {API_CHAT, MSG(ASKED("a")),
     "messages.0: An assistant message with 'tool_calls' must be followed by tool messages responding to "
     "each "
     "'tool_call_id'. The following tool_call_ids did not have response messages: a"},
    {API_CHAT, MSG(ASKED("a") ",{'role':'tool','tool_call_id':'b','content':'r'}"),
     "messages.1: Messages with role 'tool' must be a response to a preceding message with 'tool_calls', and "
     "'b' is not one of its ids"},
    {API_CHAT, MSG("{'role':'tool','content':'r'}"), "messages.0.tool_call_id: Field required"},
    {API_CHAT, MSG("{'role':'assistant','tool_calls':[{'id':'a','type':'custom'}]}"),
     "messages.0.tool_calls.0.type: Input should be 'function'"},
    {API_CHAT, MSG("{'role':'assistant','tool_calls':[{'id':'a'}]}"),
     "messages.0.tool_calls.0.function: Field required"},
    {API_CHAT, MSG("{'role':'assistant','tool_calls':[{'id':'a','function':{'arguments':'{}'}}]}"),
     "messages.0.tool_calls.0.function.name: Field required"},
    {API_CHAT, MSG("{'role':'assistant','content':'x','function_call':{}}"),
     "messages.0.function_call: not supported by this server; use tool_calls"},
    /* tools */
    {API_CHAT, WITH("'tools':[" TOOL("f") "]"), NULL},
    {API_CHAT, WITH("'tools':[{'type':'function','function':{'name':'f'}}]"), NULL},
    {API_CHAT, WITH("'tools':[" TOOL("f") "," TOOL("f") "]"),
     "tools: Tool names must be unique: 'f' is used twice"},
    {API_CHAT, WITH("'tools':[{'type':'web_search'}]"),
     "tools.0.type: tools of type 'web_search' are not supported by this server"},
    {API_CHAT, WITH("'tools':[{'type':'function'}]"), "tools.0.function: Field required"},
    {API_CHAT, WITH("'tools':[" TOOL("f g") "]"),
     "tools.0.function.name: String should match pattern '^[a-zA-Z0-9_-]{1,128}$'"},
    {API_CHAT, WITH("'tools':[{'type':'function','function':{'name':'f','parameters':{'type':'array'}}}]"),
     "tools.0.function.parameters.type: Input should be 'object'"},
    {API_CHAT, WITH("'tools':[" TOOL("f") "],'tool_choice':'required'"), NULL},
    {API_CHAT, WITH("'tool_choice':'required'"),
     "tool_choice: tool_choice may only be specified while providing tools"},
    {API_CHAT, WITH("'tools':[" TOOL("f") "],'tool_choice':'some'"),
     "tool_choice: Input should be 'none', 'auto', 'required' or an object"},
    {API_CHAT, WITH("'tools':[" TOOL("f") "],'tool_choice':{'type':'function','function':{'name':'g'}}"),
     "tool_choice.function.name: Tool 'g' not found in provided tools"},
    {API_CHAT, WITH("'tools':[" TOOL("f") "],'tool_choice':{'type':'allowed_tools'}"),
     "tool_choice.type: Input should be 'function'"},
    {API_CHAT, WITH("'functions':[{'name':'f'}]"), "functions: not supported by this server; use tools"},
    {API_CHAT, WITH("'functions':[]"), NULL},
    {API_CHAT, WITH("'function_call':'auto'"),
     "function_call: not supported by this server; use tool_choice"},
    /* numbers */
    {API_CHAT, WITH("'temperature':2.01"), "temperature: Input should be between 0 and 2"},
    {API_CHAT, WITH("'top_p':-1"), "top_p: Input should be between 0 and 1"},
    {API_CHAT, WITH("'ignore_eos':1"), "ignore_eos: Input should be a valid boolean"},
    {API_CHAT, WITH("'min_p':2"), "min_p: Input should be between 0 and 1"},
    {API_CHAT, WITH("'top_k':-2"), "top_k: Input should be greater than or equal to -1"},
    {API_CHAT, WITH("'frequency_penalty':2.5"), "frequency_penalty: Input should be between -2 and 2"},
    {API_CHAT, WITH("'presence_penalty':'x'"), "presence_penalty: Input should be a valid number"},
    {API_CHAT, WITH("'repetition_penalty':0"), "repetition_penalty: Input should be between 0.01 and 100"},
    {API_CHAT, WITH("'min_tokens':-1"), "min_tokens: Input should be greater than or equal to 0"},
    {API_CHAT, WITH("'min_tokens':'x'"), "min_tokens: Input should be a valid integer"},
    {API_CHAT, WITH("'max_tokens':5,'min_tokens':6"),
     "min_tokens: Input should be less than or equal to the limit of tokens, 5"},
    {API_CHAT, WITH("'max_tokens':5,'min_tokens':5"), NULL},
    {API_CHAT, WITH("'min_tokens':4294967296"),
     "min_tokens: Input should be less than or equal to the limit of tokens, 4294967295"},
    {API_CHAT, WITH("'seed':1.5"), "seed: Input should be a valid integer"},
    {API_CHAT, WITH("'max_tokens':0"), "max_tokens: Input should be greater than or equal to 1"},
    {API_CHAT, WITH("'max_tokens':5,'max_completion_tokens':0"),
     "max_completion_tokens: Input should be greater than or equal to 1"},
    {API_CHAT, WITH("'n':0"), "n: Input should be between 1 and 128"},
    {API_CHAT, WITH("'n':129"), "n: Input should be between 1 and 128"},
    {API_CHAT, WITH("'logprobs':1"), "logprobs: Input should be a valid boolean"},
    {API_CHAT, WITH("'top_logprobs':21,'logprobs':true"), "top_logprobs: Input should be between 0 and 20"},
    {API_CHAT, WITH("'top_logprobs':1"), "top_logprobs: may only be used together with logprobs: true"},
    {API_CHAT, WITH("'top_logprobs':0"), NULL},
    {API_CHAT, WITH("'logit_bias':[]"), "logit_bias: Input should be an object"},
    {API_CHAT, WITH("'logit_bias':{'x':1}"), "logit_bias: keys should be token ids"},
    {API_CHAT, WITH("'logit_bias':{'1':101}"), "logit_bias: values should be between -100 and 100"},
    {API_CHAT, WITH("'logit_bias':{'1':1,'01':2}"), "logit_bias: token 1 is named twice"},
    /* stops */
    {API_CHAT, WITH("'stop':''"), "stop: String should have at least 1 character"},
    {API_CHAT, WITH("'stop':['a',5]"), "stop.1: Input should be a valid string"},
    {API_CHAT, WITH("'stop':['a','b','c','d','e']"), "stop: List should have at most 4 items"},
    {API_CHAT, WITH("'stop':'\\n'"), NULL},
    {API_CHAT, WITH("'stop':5"), "stop: Input should be a valid string or list"},
    /* constraint */
    {API_CHAT, WITH("'response_format':{'type':'xml'}"),
     "response_format.type: Input should be 'text', 'json_object' or 'json_schema'"},
    {API_CHAT, WITH("'response_format':{'type':'json_schema'}"),
     "response_format.json_schema: Field required"},
    {API_CHAT, WITH("'response_format':{'type':'json_schema','json_schema':{'name':'n'}}"),
     "response_format.json_schema.schema: Field required"},
    {API_CHAT, WITH("'response_format':{'type':'json_schema','json_schema':{'schema':{}}}"),
     "response_format.json_schema.name: Field required"},
    {API_CHAT, WITH("'modalities':['text','audio']"), "modalities: only 'text' is answered by this server"},
    {API_CHAT, WITH("'audio':{}"), "audio: audio is not answered by this server"},
    {API_CHAT, WITH("'stream':'yes'"), "stream: Input should be a valid boolean"},
    {API_CHAT, WITH("'stream_options':1"), "stream_options: Input should be an object"},
    /* accepted and ignored */
    {API_CHAT,
     WITH(
         "'user':'u','store':true,'metadata':{},'service_tier':'auto','prediction':{},'prompt_cache_key':'k',"
         "'safety_identifier':'s','verbosity':'low','foo':[1],'reasoning_effort':'high','modalities':['text'"
         "]"),
     NULL},
    {API_CHAT,
     WITH(
         "'temperature':null,'tools':null,'tool_choice':null,'stop':null,'n':null,'stream':null,'seed':null,"
         "'stream_options':null,'response_format':null,'logprobs':null,'top_logprobs':null,'logit_bias':null,"
         "'max_tokens':null,'max_completion_tokens':null,'functions':null,'function_call':null,'audio':null"),
     NULL},
    /* completions */
    {API_COMPLETIONS, "{'model':'m'}", "prompt: Field required"},
    {API_COMPLETIONS, "{'model':'m','prompt':[]}", "prompt: List should have at least 1 item"},
    {API_COMPLETIONS, "{'model':'m','prompt':5}",
     "prompt: Input should be a valid string or a list of token ids"},
    {API_COMPLETIONS, "{'model':'m','prompt':['a',5]}",
     "prompt.1: Input should be a valid string or a list of token ids"},
    {API_COMPLETIONS, "{'model':'m','prompt':[1,-2]}", "prompt.1: Input should be a token id"},
    {API_COMPLETIONS, "{'model':'m','prompt':[[1],['a']]}", "prompt.1.0: Input should be a token id"},
    {API_COMPLETIONS, TEXT("'suffix':'s'"), "suffix: text is not filled in by this server, only continued"},
    {API_COMPLETIONS, TEXT("'suffix':''"), NULL},
    {API_COMPLETIONS, TEXT("'logprobs':6"), "logprobs: Input should be between 0 and 5"},
    {API_COMPLETIONS, TEXT("'logprobs':0"), NULL},
    {API_COMPLETIONS, TEXT("'logprobs':1,'echo':true"), NULL},
    {API_COMPLETIONS, TEXT("'logprobs':0,'echo':true,'max_tokens':0"), NULL},
    {API_COMPLETIONS, TEXT("'best_of':2"), "best_of: only the value of n is supported by this server"},
    {API_COMPLETIONS, TEXT("'best_of':2,'n':2"), NULL},
    {API_COMPLETIONS, TEXT("'max_tokens':0"), NULL},
    {API_COMPLETIONS, TEXT("'max_tokens':-1"), "max_tokens: Input should be greater than or equal to 0"},
    {API_COMPLETIONS, "{'model':'m','prompt':['a','b','c'],'n':50}",
     "n: prompts times n should be at most 128"},
    /* tokens */
    {API_TOKENIZE, "{}", "prompt: Field required (or content, or messages)"},
    {API_TOKENIZE, "{'prompt':5}", "prompt: Input should be a valid string"},
    {API_TOKENIZE, "{'content':''}", NULL},
    {API_TOKENIZE, "{'messages':[]}", "messages: at least one message is required"},
    {API_DETOKENIZE, "{}", "tokens: Field required"},
    {API_DETOKENIZE, "{'tokens':'x'}", "tokens: Input should be a valid list"},
    {API_DETOKENIZE, "{'tokens':[1.5]}", "tokens.0: Input should be a token id"},
    {API_DETOKENIZE, "{'tokens':[]}", NULL},
};

/* Makes a copy of exact size, for sanitizers. */
static struct bytes unquote(const char *body)
{
    size_t len = strlen(body);
    char *text = malloc(len + 1);

    assert_non_null(text);
    for (size_t i = 0; i < len; i++)
        text[i] = (char)(body[i] == '\'' ? '"' : body[i]);
    return bytes_of(text, len);
}

static int try(enum api_call call, const char *body, struct gen_request *out, struct api_error *error)
{
    struct bytes text = unquote(body);
    int rc = api_parse_request(text, call, out, error);

    free((void *)(uintptr_t)text.data);
    return rc;
}

static void bodies_are_accepted_or_refused(void **state)
{
    for (size_t i = 0; i < ARRAY_LEN(bodies); i++) {
        struct gen_request request;
        struct api_error error = {0};
        int rc = try(bodies[i].call, bodies[i].body, &request, &error);

        if (bodies[i].message == NULL) {
            if (rc != 0)
                fail_msg("body %zu refused: %s: %s", i, error.message, bodies[i].body);
            gen_request_fini(&request);
            continue;
        }
        if (rc == 0)
            fail_msg("body %zu accepted: %s", i, bodies[i].body);
        assert_int_equal(error.status, 400);
        assert_string_equal(error.message, bodies[i].message);
    }
}

static void parse(enum api_call call, const char *body, struct gen_request *out)
{
    struct api_error error = {0};

    if (try(call, body, out, &error) < 0)
        fail_msg("%s", error.message);
}

static void a_conversation_arrives(void **state)
{
    struct gen_request r;

    parse(API_CHAT,
          MSG("{'role':'system','content':'S1'},{'role':'developer','content':[{'type':'text','text':'S2'}]},"
              "{'role':'user','content':[{'type':'text','text':'one "
              "'},{'type':'text','text':'two'}],'name':'n'},"
              "{'role':'assistant','reasoning_content':'hm','content':'ok','tool_calls':["
              "{'id':'a','type':'function','function':{'name':'f','arguments':'{\\\"z\\\":1,\\\"a\\\":[1.50]}"
              "'}},"
              "{'id':'b','type':'function','function':{'name':'g','arguments':'{oops'}},"
              "{'id':'c','type':'function','function':{'name':'h','arguments':''}}]},"
              "{'role':'tool','tool_call_id':'b','content':'rb'},"
              "{'role':'tool','tool_call_id':'c','content':'rc'},"
              "{'role':'tool','tool_call_id':'a','content':[{'type':'text','text':'r'},{'type':'text','text':"
              "'a'}]},"
              "{'role':'system','content':'late'},{'role':'user','content':'go'},"
              "{'role':'assistant','content':'The'}"),
          &r);
    assert_true(bytes_is(r.system, "S1\n\nS2"));
    assert_int_equal(r.n_messages, 6);
    assert_int_equal(r.messages[0].n_blocks, 1);
    assert_true(bytes_is(r.messages[0].blocks[0].text, "one two"));
    assert_int_equal(r.messages[1].n_blocks, 5);
    assert_int_equal(r.messages[1].blocks[0].kind, GEN_THINKING);
    assert_true(bytes_is(r.messages[1].blocks[0].text, "hm"));
    assert_true(bytes_is(r.messages[1].blocks[1].text, "ok"));
    assert_int_equal(r.messages[1].blocks[2].kind, GEN_TOOL_USE);
    assert_true(bytes_is(r.messages[1].blocks[2].input, "{\"z\": 1, \"a\": [1.5]}"));
    assert_true(bytes_is(r.messages[1].blocks[3].input, "\"{oops\""));
    assert_true(bytes_is(r.messages[1].blocks[4].input, "{}"));
    assert_int_equal(r.messages[2].role, GEN_USER);
    assert_int_equal(r.messages[2].n_blocks, 3);
    assert_true(bytes_is(r.messages[2].blocks[0].id, "b"));
    assert_true(bytes_is(r.messages[2].blocks[2].text, "ra"));
    assert_int_equal(r.messages[3].role, GEN_SYSTEM);
    assert_int_equal(r.messages[5].role, GEN_ASSISTANT); /* a turn, not the beginning of the answer */
    assert_int_equal(r.prefill.len_bytes, 0);
    assert_string_equal(r.call_prefix, "call_");
    gen_request_fini(&r);
}

static void a_last_message_is_continued_when_asked(void **state)
{
    struct gen_request r;

    parse(API_CHAT,
          "{'model':'m','continue_final_message':true,'messages':[{'role':'user','content':'a'},"
          "{'role':'assistant','content':'The answer'}]}",
          &r);
    assert_int_equal(r.n_messages, 1);
    assert_true(bytes_is(r.prefill, "The answer"));
    gen_request_fini(&r);
}

static void fields_arrive(void **state)
{
    struct gen_request r;

    parse(
        API_CHAT,
        WITH(
            "'tools':[{'type':'function','function':{'name':'f','description':'d','strict':true,'parameters':"
            "{'type':'object','properties':{'z':{},'a':{}}}}},{'type':'function','function':{'name':'g'}}],"
            "'tool_choice':{'type':'function','function':{'name':'g'}},'parallel_tool_calls':false,"
            "'response_format':{'type':'json_schema','json_schema':{'name':'n','strict':true,'schema':{'type'"
            ":"
            "'string'}}},'stream':true,'stream_options':{'include_usage':true},'logprobs':true,"
            "'top_logprobs':20,'n':3,'seed':-1,'stop':['a','b'],'frequency_penalty':1.5,'presence_penalty':-"
            "2,"
            "'repetition_penalty':1.25,'logit_bias':{'9':-100,'3':0.5},'top_k':-1,'min_p':0.25,'top_p':0.5,"
            "'temperature':0.5,'max_tokens':5,'max_completion_tokens':7,'min_tokens':6,'ignore_eos':true,'"
            "reasoning_effort':"
            "'high'"),
        &r);
    assert_int_equal(r.n_tools, 2);
    assert_true(r.tools[0].is_strict && !r.tools[1].is_strict);
    assert_true(
        bytes_is(r.tools[0].input_schema, "{\"type\": \"object\", \"properties\": {\"z\": {}, \"a\": {}}}"));
    assert_true(bytes_is(r.tools[1].input_schema, "{\"type\": \"object\", \"properties\": {}}"));
    assert_int_equal(r.tool_choice, GEN_TOOLS_ONE);
    assert_true(bytes_is(r.tool_choice_name, "g"));
    assert_true(r.is_single_call);
    assert_int_equal(r.format, GEN_FORMAT_JSON_SCHEMA);
    assert_true(bytes_is(r.schema, "{\"type\": \"string\"}"));
    assert_true(r.is_stream && r.wants_usage && r.work.sample.wants_logprob);
    assert_int_equal(r.work.sample.n_top, 20);
    assert_int_equal(r.n_choices, 3);
    assert_true(r.has_seed && r.work.sample.seed == UINT64_MAX);
    assert_int_equal(r.n_stop_sequences, 2);
    assert_true(r.work.sample.frequency_penalty == 1.5f && r.work.sample.presence_penalty == -2 &&
                r.work.sample.repetition_penalty == 1.25f);
    assert_int_equal(r.work.sample.n_bias, 2);
    assert_true(r.work.sample.bias[0].id == 3 && r.work.sample.bias[0].bias == 0.5f &&
                r.work.sample.bias[1].id == 9);
    assert_true(r.work.sample.top_k == 0 && r.work.sample.min_p == 0.25 && r.work.sample.top_p == 0.5 &&
                r.work.sample.temperature == 0.5);
    assert_int_equal(r.work.max_new_tokens, 7);
    assert_int_equal(r.work.sample.min_tokens, 6);
    assert_true(r.work.ignores_end);
    assert_true(bytes_is(r.effort, "high"));
    assert_int_equal(r.thinking, GEN_THINKING_UNSAID);
    gen_request_fini(&r);

    parse(API_CHAT, WITH("'response_format':{'type':'json_object'},'reasoning_effort':'none'"), &r);
    assert_int_equal(r.format, GEN_FORMAT_JSON);
    assert_int_equal(r.thinking, GEN_THINKING_OFF);
    gen_request_fini(&r);
}

static void defaults_are_set(void **state)
{
    struct gen_request r;

    parse(API_CHAT, "{'model':'m'," HI "}", &r);
    assert_int_equal(r.work.max_new_tokens, UINT32_MAX);
    assert_true(isnan(r.work.sample.temperature) && r.work.sample.top_p == 1 && !r.has_seed && !r.is_stream &&
                !r.is_single_call);
    assert_int_equal(r.n_choices, 1);
    assert_int_equal(r.n_prompts, 0);
    gen_request_fini(&r);

    parse(API_COMPLETIONS, "{'model':'m','prompt':'p'}", &r);
    assert_int_equal(r.work.max_new_tokens, 16);
    assert_true(r.adds_special && !r.echoes && !r.work.sample.wants_logprob);
    gen_request_fini(&r);
}

static void inputs_arrive(void **state)
{
    struct gen_request request;

    parse(API_EMBEDDINGS, "{'model':'m','input':['a',[1,2]],'dimensions':9,'encoding_format':'base64'}",
          &request);
    assert_int_equal(request.n_prompts, 2);
    assert_true(bytes_is(request.prompts[0].text, "a"));
    assert_int_equal(request.prompts[1].tokens[1], 2);
    assert_int_equal(request.embedding_dims, 9);
    assert_true(request.embedding_is_base64 && request.adds_special);
    assert_true(request.work.wants_embedding && request.work.ignores_end);
    assert_int_equal(request.work.max_new_tokens, 1);
    gen_request_fini(&request);
}

static void prompts_arrive(void **state)
{
    struct gen_request r;

    parse(API_COMPLETIONS, "{'model':'m','prompt':[7,8],'logprobs':0,'echo':false}", &r);
    assert_int_equal(r.n_prompts, 1);
    assert_int_equal(r.prompts[0].n_tokens, 2);
    assert_int_equal(r.prompts[0].tokens[1], 8);
    assert_true(r.work.sample.wants_logprob && r.work.sample.n_top == 0);
    gen_request_fini(&r);

    parse(API_COMPLETIONS, "{'model':'m','prompt':['a',[1,2,3]],'n':2,'echo':true}", &r);
    assert_int_equal(r.n_prompts, 2);
    assert_true(bytes_is(r.prompts[0].text, "a"));
    assert_null(r.prompts[0].tokens);
    assert_int_equal(r.prompts[1].n_tokens, 3);
    assert_true(r.echoes);
    gen_request_fini(&r);

    parse(API_TOKENIZE, "{'prompt':'p'}", &r);
    assert_true(r.adds_special && bytes_is(r.prompts[0].text, "p") && r.model.len_bytes == 0);
    gen_request_fini(&r);
    parse(API_TOKENIZE, "{'content':'p','model':'m'}", &r);
    assert_true(!r.adds_special && bytes_is(r.model, "m"));
    gen_request_fini(&r);
    parse(API_TOKENIZE, "{" HI "}", &r);
    assert_true(r.n_messages == 1 && r.n_prompts == 0);
    gen_request_fini(&r);
    parse(API_DETOKENIZE, "{'tokens':[3,1]}", &r);
    assert_true(r.prompts[0].n_tokens == 2 && r.prompts[0].tokens[0] == 3);
    gen_request_fini(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bodies_are_accepted_or_refused),
        cmocka_unit_test(a_conversation_arrives),
        cmocka_unit_test(a_last_message_is_continued_when_asked),
        cmocka_unit_test(fields_arrive),
        cmocka_unit_test(defaults_are_set),
        cmocka_unit_test(prompts_arrive),
        cmocka_unit_test(inputs_arrive),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
