/* SPDX-License-Identifier: Apache-2.0 */
/* Requests: the fields of accepted ones, and the text of every refusal. */
#include "serve/api/parse_priv.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "text/json/json.h"
#include "base/check.h"
#include "base/err.h"

#define HI            "\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]"
#define BASE          "\"model\":\"m\",\"max_tokens\":10,"
#define MSG(messages) "{" BASE "\"messages\":[" messages "]}"
#define USER(content) "{\"role\":\"user\",\"content\":" content "}"
#define BOT(content)  "{\"role\":\"assistant\",\"content\":" content "}"
#define USE(id)       "{\"type\":\"tool_use\",\"id\":\"" id "\",\"name\":\"f\",\"input\":{}}"
#define RESULT(id)    "{\"type\":\"tool_result\",\"tool_use_id\":\"" id "\",\"content\":\"r\"}"
#define TOOL(name)    "{\"name\":\"" name "\",\"description\":\"d\",\"input_schema\":{\"type\":\"object\"}}"
#define WITH(field)   "{" BASE HI "," field "}"

static const struct {
    const char *body;
    const char *message; /* the exact error text; NULL: accepted */
} bodies[] = {
    /* structure */
    {"", "The request body is not valid JSON: it ends too early"},
    {"[]", "body: Input should be an object"},
    {"{\"model\":\"m\",}", "The request body is not valid JSON at byte 13"},
    {"{" HI "}", "model: Field required"},
    {"{\"model\":null," HI "}", "model: Field required"},
    {"{\"model\":5," HI "}", "model: Input should be a valid string"},
    {"{\"model\":\"\"," HI "}", "model: String should have at least 1 character"},
    {"{\"model\":\"m\"," HI "}", "max_tokens: Field required"},
    {"{\"model\":\"m\",\"max_tokens\":\"5\"," HI "}", "max_tokens: Input should be a valid integer"},
    {"{\"model\":\"m\",\"max_tokens\":5.5," HI "}", "max_tokens: Input should be a valid integer"},
    {"{\"model\":\"m\",\"max_tokens\":-1," HI "}", "max_tokens: Input should be greater than or equal to 0"},
    {"{\"model\":\"m\",\"max_tokens\":1e30," HI "}", NULL},
    {"{\"model\":\"m\",\"max_tokens\":0," HI "}", NULL},
    {"{\"model\":\"m\",\"max_tokens\":0,\"stream\":true," HI "}",
     "max_tokens: 0 cannot be used with `stream`"},
    {"{" BASE "\"x\":1}", "messages: Field required"},
    {"{" BASE "\"messages\":{}}", "messages: Input should be a valid list"},
    {MSG(""), "messages: at least one message is required"},
    {MSG("5"), "messages.0: Input should be an object"},
    {MSG("{\"content\":\"x\"}"), "messages.0.role: Field required"},
    {MSG("{\"role\":\"tool\",\"content\":\"x\"}"),
     "messages.0.role: Input should be 'user', 'assistant' or 'system'"},
    {MSG("{\"role\":\"user\"}"), "messages.0.content: Field required"},
    {MSG(USER("5")), "messages.0.content: Input should be a valid string or list"},
    {MSG(USER("[5]")), "messages.0.content.0: Input should be an object"},
    {MSG(USER("[{}]")), "messages.0.content.0.type: Field required"},
    {MSG(USER("[{\"type\":\"text\"}]")), "messages.0.content.0.text: Field required"},
    {MSG(USER("\"a\"") "," BOT("\"b\"") "," USER(
         "[{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"text\",\"text\":7}]")),
     "messages.2.content.1.text: Input should be a valid string"},
    /* unsupported blocks */
    {MSG(USER("[{\"type\":\"image\",\"source\":{}}]")),
     "messages.0.content.0.type: image blocks are not supported: the model reads text only"},
    {MSG(USER("[{\"type\":\"hologram\"}]")),
     "messages.0.content.0.type: 'hologram' blocks are not supported by this server"},
    {MSG(USER("[{\"type\":\"container_upload\"}]")),
     "messages.0.content.0.type: 'container_upload' blocks are not supported by this server"},
    {MSG(USER("[{\"type\":\"tool_use\"}]")),
     "messages.0.content.0.type: 'tool_use' blocks cannot be in user messages"},
    {MSG(BOT("[{\"type\":\"tool_result\"}]")),
     "messages.0.content.0.type: 'tool_result' blocks cannot be in assistant messages"},
    {MSG(USER("[{\"type\":\"document\",\"source\":{\"type\":\"base64\",\"data\":\"x\"}}]")),
     "messages.0.content.0.source.type: Input should be 'text' or 'content': other documents are not read by "
     "this server"},
    {MSG(BOT("[" USE("a") "]") "," USER(
         "[{\"type\":\"tool_result\",\"tool_use_id\":\"a\",\"content\":[{\"type\":\"image\"}]}]")),
     "messages.1.content.0.content.0.type: image blocks are not supported: the model reads text only"},
    /* accepted and dropped or rendered */
    {MSG(USER("\"\"")), NULL},
    {MSG(USER("[]")), NULL},
    {MSG(BOT("[{\"type\":\"thinking\",\"thinking\":\"x\"},{\"type\":\"redacted_thinking\"},{\"type\":"
             "\"fallback\"},{\"type\":\"text\",\"text\":\"\"}]") "," USER("\"x\"")),
     NULL},
    {MSG(USER("\"a\"") ",{\"role\":\"system\",\"content\":\"s\"}," USER("\"b\"")), NULL},
    {MSG("{\"content\":[{\"text\":\"x\",\"citations\":null,\"type\":\"text\"}],\"role\":\"user\"}"), NULL},
    /* unknown fields */
    {WITH("\"foo\":{\"bar\":[1]},\"container\":\"c\",\"context_management\":{\"edits\":[]},\"diagnostics\":{}"
          ",\"speed\":\"fast\",\"betas\":[],\"mcp_servers\":[],\"n\":3,\"logprobs\":true,\"service_tier\":"
          "\"auto\",\"metadata\":{\"user_id\":\"u\"}"),
     NULL},
    {WITH("\"system\":null,\"tools\":null,\"temperature\":null,\"stop_sequences\":null,\"thinking\":null,"
          "\"thread\":null,\"output_config\":null,\"metadata\":null,\"tool_choice\":null,\"stream\":null"),
     NULL},
    {WITH("\"mcp_servers\":[{}]"), "mcp_servers: MCP servers are not called by this server"},
    {WITH("\"compaction\":{}"), "compaction: summaries are not made by this server"},
    {WITH("\"output_config\":{\"effort\":\"turbo\"}"), NULL},
    {WITH("\"output_config\":{\"effort\":7}"), NULL},
    {WITH("\"output_config\":[]"), "output_config: Input should be an object"},
    {WITH("\"output_config\":{\"format\":null}"), NULL},
    {WITH("\"output_config\":{\"format\":{\"type\":\"json_schema\",\"schema\":{}}}"), NULL},
    {WITH("\"output_config\":{\"format\":\"json\"}"), "output_config.format: Input should be an object"},
    {WITH("\"output_config\":{\"format\":{\"type\":\"yaml\",\"schema\":{}}}"),
     "output_config.format.type: Input should be 'json_schema'"},
    {WITH("\"output_config\":{\"format\":{\"type\":\"json_schema\"}}"),
     "output_config.format.schema: Field required"},
    {WITH("\"output_config\":{\"format\":{\"type\":\"json_schema\",\"schema\":\"{}\"}}"),
     "output_config.format.schema: Input should be an object"},
    {WITH("\"output_format\":{}"), "output_format.type: Input should be 'json_schema'"},
    {WITH("\"output_format\":{\"type\":\"json_schema\",\"schema\":{}}"), NULL},
    {"{\"model\":\"m\",\"max_tokens\":0,\"output_format\":{\"type\":\"json_schema\",\"schema\":{}}," HI "}",
     "output_format: cannot be used with `max_tokens` 0"},
    {"{" BASE "\"output_format\":{\"type\":\"json_schema\",\"schema\":{}},\"messages\":[" USER(
         "\"a\"") "," BOT("\"b\"") "]}",
     "output_format: cannot be used with a last message of the assistant"},
    {WITH("\"thread\":{\"type\":\"create\"}"), NULL},
    {WITH("\"thread\":5"), "thread: Input should be an object"},
    {WITH("\"thread\":{}"), "thread.type: Input should be 'create' or 'continue'"},
    {"{\"thread\":{\"type\":\"continue\"},\"messages\":5}", "thread.previous_message_id: Field required"},
    {"{\"thread\":{\"type\":\"continue\",\"previous_message_id\":5}}",
     "thread.previous_message_id: Input should be a valid string"},
    /* the rest is checked once the conversation is known */
    {"{\"thread\":{\"type\":\"continue\",\"previous_message_id\":\"x\"},\"messages\":5}", NULL},
    /* numbers */
    {WITH("\"stream\":\"yes\""), "stream: Input should be a valid boolean"},
    {WITH("\"temperature\":2.5"), "temperature: Input should be between 0 and 2"},
    {WITH("\"temperature\":-0.1"), "temperature: Input should be between 0 and 2"},
    {WITH("\"temperature\":\"hot\""), "temperature: Input should be a valid number"},
    {WITH("\"temperature\":2"), NULL},
    {WITH("\"top_p\":1.1"), "top_p: Input should be between 0 and 1"},
    {WITH("\"top_k\":-1"), "top_k: Input should be greater than or equal to 0"},
    {WITH("\"top_k\":1.5"), "top_k: Input should be a valid integer"},
    {WITH("\"metadata\":\"x\""), "metadata: Input should be an object"},
    /* stop sequences */
    {WITH("\"stop_sequences\":\"x\""), "stop_sequences: Input should be a valid list"},
    {WITH("\"stop_sequences\":[\"a\",7]"), "stop_sequences.1: Input should be a valid string"},
    {WITH("\"stop_sequences\":[\"\"]"), "stop_sequences.0: each stop sequence must contain non-whitespace"},
    {WITH("\"stop_sequences\":[\"a\",\" \\n\"]"),
     "stop_sequences.1: each stop sequence must contain non-whitespace"},
    /* thinking */
    {WITH("\"thinking\":{\"type\":\"adaptive\",\"display\":\"omitted\"}"), NULL},
    {WITH("\"thinking\":{\"type\":\"disabled\"}"), NULL},
    {WITH("\"thinking\":{\"type\":\"between_tools\",\"display\":null}"), NULL},
    {WITH("\"thinking\":5"), "thinking: Input should be an object"},
    {WITH("\"thinking\":{\"type\":\"adaptive\",\"display\":\"loud\"}"),
     "thinking.display: Input should be 'summarized' or 'omitted'"},
    {WITH("\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":2000.5}"),
     "thinking.budget_tokens: Input should be a valid integer"},
    {"{\"model\":\"m\",\"max_tokens\":0,\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":1024}," HI "}",
     "max_tokens: `max_tokens` must be greater than `thinking.budget_tokens`"},
    {"{\"model\":\"m\",\"max_tokens\":2000,\"tools\":[" TOOL(
         "f") "],\"tool_choice\":{\"type\":\"any\"},"
              "\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":1024}," HI "}",
     "tool_choice.type: Thinking may not be enabled when tool_choice forces tool use"},
    {WITH(
         "\"tools\":[" TOOL("f") "],\"tool_choice\":{\"type\":\"any\"},\"thinking\":{\"type\":\"adaptive\"}"),
     NULL},
    {MSG(BOT("[{\"type\":\"thinking\",\"thinking\":7}]") "," USER("\"x\"")),
     "messages.0.content.0.thinking: Input should be a valid string"},
    {MSG(BOT(
         "[{\"type\":\"thinking\"},{\"type\":\"thinking\",\"thinking\":\"\",\"signature\":null},{\"type\":"
         "\"thinking\",\"thinking\":\"x\",\"signature\":\"anybody's\"},{\"type\":\"redacted_thinking\","
         "\"data\":"
         "\"x\"}]") "," USER("\"x\"")),
     NULL},
    {MSG(USER("[{\"type\":\"thinking\",\"thinking\":\"x\"}]")),
     "messages.0.content.0.type: 'thinking' blocks cannot be in user messages"},
    {WITH("\"thinking\":{\"type\":\"deep\"}"),
     "thinking.type: Input should be 'enabled', 'disabled', 'adaptive' or 'between_tools'"},
    {WITH("\"thinking\":{\"type\":\"enabled\"}"), "thinking.budget_tokens: Field required"},
    {WITH("\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":1000}"),
     "thinking.budget_tokens: Input should be greater than or equal to 1024"},
    {WITH("\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":1024}"),
     "max_tokens: `max_tokens` must be greater than `thinking.budget_tokens`"},
    {"{\"model\":\"m\",\"max_tokens\":2000,\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":1024}," HI
     "}",
     NULL},
    /* tools */
    {WITH("\"tools\":[" TOOL("f") "," TOOL("g") "]"), NULL},
    {WITH("\"tools\":{}"), "tools: Input should be a valid list"},
    {WITH("\"tools\":[{\"name\":\"f\"}]"), "tools.0.input_schema: Field required"},
    {WITH("\"tools\":[{\"name\":\"f\",\"input_schema\":{\"type\":\"array\"}}]"),
     "tools.0.input_schema.type: Input should be 'object'"},
    {WITH("\"tools\":[{\"name\":\"a b\",\"input_schema\":{\"type\":\"object\"}}]"),
     "tools.0.name: String should match pattern '^[a-zA-Z0-9_-]{1,128}$'"},
    {WITH("\"tools\":[" TOOL("f") "," TOOL("g") "," TOOL("f") "]"),
     "tools: Tool names must be unique: 'f' is used twice"},
    {WITH("\"tools\":[{\"type\":\"web_search_20250305\",\"name\":\"web_search\"}]"),
     "tools.0.type: tools of type 'web_search_20250305' are not supported by this server"},
    {WITH("\"tools\":[{\"type\":\"custom\",\"name\":\"f\",\"input_schema\":{\"type\":\"object\"},\"strict\":"
          "true,\"input_examples\":[],\"defer_loading\":true}]"),
     NULL},
    {WITH("\"tool_choice\":{\"type\":\"auto\"}"), NULL},
    {WITH("\"tool_choice\":{\"type\":\"none\"}"), NULL},
    {WITH("\"tool_choice\":\"auto\""), "tool_choice: Input should be an object"},
    {WITH("\"tool_choice\":{\"type\":\"maybe\"}"),
     "tool_choice.type: Input should be 'auto', 'any', 'tool' or 'none'"},
    {WITH("\"tool_choice\":{\"type\":\"any\"}"),
     "tool_choice: tool_choice may only be specified while providing tools"},
    {WITH("\"tools\":[" TOOL("f") "],\"tool_choice\":{\"type\":\"tool\",\"name\":\"g\"}"),
     "tool_choice.name: Tool 'g' not found in provided tools"},
    {WITH("\"tools\":[" TOOL("f") "],\"tool_choice\":{\"type\":\"any\"}"), NULL},
    {WITH("\"tools\":[" TOOL("f") "],\"tool_choice\":{\"type\":\"tool\",\"name\":\"f\","
                                  "\"disable_parallel_tool_use\":true}"),
     NULL},
    {WITH("\"tools\":[" TOOL("f") "],\"tool_choice\":{\"type\":\"tool\"}"),
     "tool_choice.name: Field required"},
    {WITH("\"tools\":[],\"tool_choice\":{\"type\":\"any\"}"),
     "tool_choice: tool_choice may only be specified while providing tools"},
    {WITH("\"tools\":[" TOOL("f") "],\"tool_choice\":{\"type\":\"auto\",\"disable_parallel_tool_use\":1}"),
     "tool_choice.disable_parallel_tool_use: Input should be a valid boolean"},
    {"{\"model\":\"m\",\"max_tokens\":0,\"tools\":[" TOOL("f") "],\"tool_choice\":{\"type\":\"any\"}," HI "}",
     "tool_choice: a forced call cannot be used with `max_tokens` 0"},
    {WITH("\"tools\":[{\"type\":null,\"name\":\"f\",\"input_schema\":{\"type\":\"object\",\"$schema\":\"x\","
          "\"zork\":1}}]"),
     NULL},
    {WITH("\"tools\":[{\"name\":\"f\",\"strict\":1,\"input_schema\":{\"type\":\"object\"}}]"),
     "tools.0.strict: Input should be a valid boolean"},
    {WITH("\"tools\":[{\"type\":\"bash_20250124\",\"name\":\"bash\"},{\"type\":\"text_editor_20250728\","
          "\"name\":"
          "\"str_replace_based_edit_tool\"},{\"type\":\"memory_20250818\",\"name\":\"memory\"}]"),
     NULL},
    {WITH("\"tools\":[{\"type\":\"computer_20250124\",\"name\":\"computer\"}]"),
     "tools.0.type: tools of type 'computer_20250124' are not supported by this server"},
    /* pairs */
    {MSG(USER("\"a\"") "," BOT("[" USE("t1") "," USE("t2") "]") "," USER(
         "[" RESULT("t2") "," RESULT("t1") ",{\"type\":\"text\",\"text\":\"go\"}]")),
     NULL},
    {MSG(USER("\"a\"") "," BOT("[" USE("t1") "," USE("t2") "]") "," USER("[" RESULT("t2") "]")),
     "messages.1: `tool_use` ids were found without `tool_result` blocks immediately after: t1. Each "
     "`tool_use` block must have a corresponding `tool_result` block in the next message."},
    {MSG(USER("\"a\"") "," BOT("[" USE("t2") "," USE("t1") "]") "," USER("\"b\"")),
     "messages.1: `tool_use` ids were found without `tool_result` blocks immediately after: t2, t1. Each "
     "`tool_use` block must have a corresponding `tool_result` block in the next message."},
    {MSG(BOT("[" USE("t1") "]")),
     "messages.0: `tool_use` ids were found without `tool_result` blocks immediately after: t1. Each "
     "`tool_use` block must have a corresponding `tool_result` block in the next message."},
    {MSG(USER("\"a\"") "," BOT("[" USE("t1") "]") ",{\"role\":\"system\",\"content\":\"s\"}," USER(
         "[" RESULT("t1") "]")),
     "messages.1: `tool_use` ids were found without `tool_result` blocks immediately after: t1. Each "
     "`tool_use` block must have a corresponding `tool_result` block in the next message."},
    {MSG(USER("[{\"type\":\"text\",\"text\":\"x\"}," RESULT("zz") "]")),
     "messages.0.content.1: unexpected `tool_use_id` found in `tool_result` blocks: zz. Each `tool_result` "
     "block must have a corresponding `tool_use` block in the previous message."},
    {MSG(BOT("[" USE("a") "," USE("a") "]") "," USER("[" RESULT("a") "]")),
     "messages.0.content.1.id: `tool_use` ids must be unique"},
    {MSG(BOT("[" USE("a") "]") "," BOT("[" USE("b") "]") "," USER("[" RESULT("b") "]") "," USER(
         "[" RESULT("a") "]")),
     NULL},
    {MSG(BOT("[{\"type\":\"tool_use\",\"id\":\"a\",\"name\":\"f\",\"input\":\"{}\"}]")),
     "messages.0.content.0.input: Input should be an object"},
    /* cache_control */
    {WITH("\"cache_control\":{\"type\":\"ephemeral\"}"), NULL},
    {WITH("\"cache_control\":{\"type\":\"ephemeral\",\"ttl\":\"1h\",\"scope\":\"x\"}"), NULL},
    {WITH("\"cache_control\":{\"type\":\"persistent\"}"), "cache_control.type: Input should be 'ephemeral'"},
    {WITH("\"cache_control\":{\"type\":\"ephemeral\",\"ttl\":\"2h\"}"),
     "cache_control.ttl: Input should be '5m' or '1h'"},
};

static void bodies_get_the_wanted_verdict(void **state)
{
    for (size_t i = 0; i < ARRAY_LEN(bodies); i++) {
        struct gen_request request;
        struct api_error error = {0};
        size_t len = strlen(bodies[i].body);
        uint8_t *copy = malloc(len + 1); /* exact size, for sanitizers */
        int rc;

        assert_non_null(copy);
        memcpy(copy, bodies[i].body, len);
        rc = api_parse_request(bytes_of(copy, len), API_MESSAGES, &request, &error);
        free(copy);
        if (bodies[i].message == NULL) {
            if (rc != 0)
                fail_msg("body %zu refused: %s: %s", i, error.message, bodies[i].body);
            gen_request_fini(&request);
            continue;
        }
        assert_int_equal(rc, E_FORMAT);
        assert_int_equal(error.status, 400);
        assert_string_equal(error.type, "invalid_request_error");
        assert_string_equal(error.message, bodies[i].message);
        assert_false(error.names_thread);
    }
}

static void parse(const char *body, struct gen_request *out)
{
    struct api_error error = {0};

    if (api_parse_request(bytes_str(body), API_MESSAGES, out, &error) < 0)
        fail_msg("%s", error.message);
}

static void everything_arrives(void **state)
{
    struct gen_request r;

    parse("{\"model\":\"m\",\"max_tokens\":4294967296000,\"system\":[{\"type\":\"text\",\"text\":\"x-"
          "anthropic-billing-header: a=1\"},"
          "{\"type\":\"text\",\"text\":\"S1\"},{\"type\":\"text\",\"text\":\"\"},{\"type\":\"text\",\"text\":"
          "\"S2\"}],"
          "\"temperature\":0.5,\"top_p\":0.9,\"top_k\":40,\"seed\":7,\"stream\":true,\"stop_sequences\":["
          "\"a\",\"b\\u0000c\"],"
          "\"metadata\":{\"user_id\":\"u\"},\"tools\":[{\"name\":\"f\",\"description\":\"does\",\"input_"
          "schema\":{\"type\":\"object\","
          "\"properties\":{\"z\":{\"type\":\"string\"},\"a\":{}}}}],\"tool_choice\":{\"type\":\"none\","
          "\"disable_parallel_tool_use\":true},"
          "\"messages\":[{\"role\":\"user\",\"content\":\"one\"},{\"role\":\"user\",\"content\":[{\"type\":"
          "\"text\",\"text\":\"two\"},"
          "{\"type\":\"document\",\"title\":\"T\",\"source\":{\"type\":\"text\",\"data\":\"D\"}},"
          "{\"type\":\"search_result\",\"title\":\"ST\",\"source\":\"http://"
          "s\",\"content\":[{\"type\":\"text\",\"text\":\"found\"}]}]},"
          "{\"role\":\"assistant\",\"content\":[{\"type\":\"thinking\",\"thinking\":\"hm\",\"signature\":"
          "\"\"},{\"type\":\"text\",\"text\":\"ok\"},"
          "{\"type\":\"tool_use\",\"id\":\"t\",\"name\":\"f\",\"input\":{\"z\":1,\"a\":[1.50]}}]},"
          "{\"role\":\"user\",\"content\":[{\"type\":\"tool_result\",\"tool_use_id\":\"t\",\"is_error\":true,"
          "\"content\":[{\"type\":\"text\",\"text\":\"r1\"},"
          "{\"type\":\"tool_reference\",\"tool_name\":\"g\"}]}]}]}",
          &r);
    assert_int_equal(r.work.max_new_tokens, UINT32_MAX);
    assert_true(bytes_is(r.system, "S1\n\nS2"));
    assert_true(r.work.sample.temperature == 0.5f && r.work.sample.top_p == 0.9f &&
                r.work.sample.top_k == 40 && r.has_seed && r.work.sample.seed == 7 && r.is_stream);
    assert_int_equal(r.n_stop_sequences, 2);
    assert_int_equal(r.stop_sequences[1].len_bytes, 3);
    assert_true(bytes_is(r.user_id, "u"));
    assert_int_equal(r.n_tools, 1);
    assert_true(
        bytes_is(r.tools[0].input_schema,
                 "{\"type\": \"object\", \"properties\": {\"z\": {\"type\": \"string\"}, \"a\": {}}}"));
    assert_int_equal(r.tool_choice, GEN_TOOLS_NONE);
    assert_true(r.is_single_call);
    assert_int_equal(r.n_messages, 3);
    assert_int_equal(r.messages[0].n_blocks, 4);
    assert_true(bytes_is(r.messages[0].blocks[0].text, "one"));
    assert_true(bytes_is(r.messages[0].blocks[2].text, "T\nD"));
    assert_true(bytes_is(r.messages[0].blocks[3].text, "ST\nhttp://s\nfound"));
    assert_int_equal(r.messages[1].role, GEN_ASSISTANT);
    assert_int_equal(r.messages[1].n_blocks, 3);
    assert_int_equal(r.messages[1].blocks[0].kind, GEN_THINKING);
    assert_true(bytes_is(r.messages[1].blocks[0].text, "hm"));
    assert_true(bytes_is(r.messages[1].blocks[2].input, "{\"z\": 1, \"a\": [1.5]}"));
    assert_true(bytes_is(r.messages[2].blocks[0].text, "r1\ng"));
    assert_true(r.messages[2].blocks[0].is_error);
    assert_int_equal(r.prefill.len_bytes, 0);
    gen_request_fini(&r);
}

static void thinking_and_shapes_arrive(void **state)
{
    struct gen_request r;

    parse(
        "{\"model\":\"m\",\"max_tokens\":3000,\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":2048,"
        "\"display\":\"omitted\"},\"output_config\":{\"effort\":\"low\",\"format\":{\"type\":\"json_schema\","
        "\"schema\":{\"z\":1,\"a\":2}}},\"tools\":[{\"name\":\"f\",\"strict\":true,\"input_schema\":{"
        "\"type\":"
        "\"object\"}},{\"type\":\"bash_20250124\",\"name\":\"sh\"}]," HI "}",
        &r);
    assert_int_equal(r.thinking, GEN_THINKING_ON);
    assert_int_equal(r.thinking_budget, 2048);
    assert_true(r.hides_thinking && r.tools[0].is_strict && !r.tools[1].is_strict);
    assert_true(bytes_is(r.effort, "low"));
    assert_int_equal(r.format, GEN_FORMAT_JSON_SCHEMA);
    assert_true(bytes_is(r.schema, "{\"z\": 1, \"a\": 2}"));
    assert_true(bytes_is(r.tools[1].name, "sh"));
    assert_true(bytes_find(r.tools[1].input_schema, bytes_str("\"restart\""), 0) != SIZE_MAX);
    gen_request_fini(&r);

    parse("{" BASE "\"tools\":[" TOOL("f") "],\"tool_choice\":{\"type\":\"tool\",\"name\":\"f\"},"
                                           "\"thinking\":{\"type\":\"between_tools\"}," HI "}",
          &r);
    assert_int_equal(r.tool_choice, GEN_TOOLS_ONE);
    assert_true(bytes_is(r.tool_choice_name, "f"));
    assert_int_equal(r.thinking, GEN_THINKING_ON);
    assert_int_equal(r.thinking_budget, 0);
    gen_request_fini(&r);
}

static void schemas_of_typed_tools_are_json(void **state)
{
    static const char *const types[] = {"bash_20250124", "text_editor_20250728", "memory_20250818"};

    for (size_t i = 0; i < ARRAY_LEN(types); i++) {
        struct buf body = {0};
        struct gen_request r;
        json_t *schema;

        buf_printf(&body, "{" BASE "\"tools\":[{\"type\":\"%s\"}]," HI "}", types[i]);
        parse((char *)body.data, &r);
        assert_true(r.tools[0].name.len_bytes > 0 && r.tools[0].description.len_bytes > 0);
        assert_int_equal(api_json_load(r.tools[0].input_schema, NULL, &schema), 0);
        assert_true(json_object_size(json_object_get(schema, "properties")) >= 2);
        json_decref(schema);
        gen_request_fini(&r);
        buf_fini(&body);
    }
}

static void defaults_are_set(void **state)
{
    struct gen_request r;

    parse("{" BASE HI "}", &r);
    assert_true(isnan(r.work.sample.temperature) && r.work.sample.top_p == 1 && r.work.sample.min_p == 0 &&
                r.work.sample.top_k == 0 && !r.has_seed && !r.is_stream);
    assert_int_equal(r.tool_choice, GEN_TOOLS_AUTO);
    assert_false(r.marks[WORK_PIN_5M].is_set);
    gen_request_fini(&r);
}

static void a_last_assistant_message_is_continued(void **state)
{
    struct gen_request r;

    parse(MSG(USER("\"a\"") "," BOT("\"The answer\"") "," BOT("[{\"type\":\"text\",\"text\":\"is \"}]")), &r);
    assert_int_equal(r.n_messages, 1);
    assert_true(bytes_is(r.prefill, "The answer\n\nis "));
    gen_request_fini(&r);
}

#define MARK    "\"cache_control\":{\"type\":\"ephemeral\"}"
#define MARK_1H "\"cache_control\":{\"type\":\"ephemeral\",\"ttl\":\"1h\"}"

static void breakpoints_are_found(void **state)
{
    struct gen_request r;
    struct api_error error;

    parse("{" BASE "\"system\":[{\"type\":\"text\",\"text\":\"s\"," MARK_1H
          "}],\"messages\":[" USER("\"a\"") "," USER("[{\"type\":\"text\",\"text\":\"b\"," MARK
                                                     "},{\"type\":\"text\",\"text\":\"c\"}]") "]}",
          &r);
    assert_true(r.marks[WORK_PIN_5M].is_set && r.marks[WORK_PIN_5M].n_messages == 1 &&
                r.marks[WORK_PIN_5M].n_blocks == 2);
    assert_true(r.marks[WORK_PIN_1H].is_set && r.marks[WORK_PIN_1H].n_messages == 0);
    gen_request_fini(&r);

    parse("{" BASE "\"system\":[{\"type\":\"text\",\"text\":\"one\"," MARK_1H
          "},{\"type\":\"text\",\"text\":\"two\"," MARK "}]," HI "}",
          &r);
    assert_true(r.marks[WORK_PIN_1H].is_set && r.marks[WORK_PIN_1H].n_messages == 0 &&
                r.marks[WORK_PIN_1H].system_bytes == 3);
    assert_true(r.marks[WORK_PIN_5M].is_set && r.marks[WORK_PIN_5M].n_messages == 0 &&
                r.marks[WORK_PIN_5M].system_bytes == 0);
    gen_request_fini(&r);

    parse("{" BASE MARK "," HI "}", &r);
    assert_true(r.marks[WORK_PIN_5M].system_bytes == 0);
    assert_true(r.marks[WORK_PIN_5M].is_set && r.marks[WORK_PIN_5M].n_messages == 1 &&
                r.marks[WORK_PIN_5M].n_blocks == 1 && !r.marks[WORK_PIN_1H].is_set);
    gen_request_fini(&r);

    assert_int_equal(
        api_parse_request(
            bytes_str("{" BASE MARK_1H ",\"system\":[{\"type\":\"text\",\"text\":\"s\"," MARK "}]," HI "}"),
            API_MESSAGES, &r, &error),
        E_FORMAT);
    assert_non_null(strstr(error.message, "must not come after"));
    assert_int_equal(
        api_parse_request(bytes_str("{" BASE MARK ",\"system\":[{\"type\":\"text\",\"text\":\"s\"," MARK
                                    "},{\"type\":\"text\",\"text\":\"s\"," MARK "}],\"messages\":[" USER(
                                        "[{\"type\":\"text\",\"text\":\"b\"," MARK
                                        "},{\"type\":\"text\",\"text\":\"b\"," MARK "}]") "]}"),
                          API_MESSAGES, &r, &error),
        E_FORMAT);
    assert_string_equal(error.message, "cache_control: at most 4 blocks may have cache_control");
}

static void counting_needs_no_max_tokens(void **state)
{
    struct gen_request r;
    struct api_error error;

    assert_int_equal(api_parse_request(bytes_str("{\"model\":\"m\"," HI "}"), API_COUNT_TOKENS, &r, &error),
                     0);
    gen_request_fini(&r);
    assert_int_equal(api_parse_request(bytes_str("{\"model\":\"m\",\"temperature\":9," HI "}"),
                                       API_COUNT_TOKENS, &r, &error),
                     E_FORMAT);
}

static void long_histories_are_checked_quickly(void **state)
{
    struct buf body = {0};
    struct gen_request r;
    struct api_error error;

    buf_append_str(&body, "{" BASE "\"messages\":[{\"role\":\"assistant\",\"content\":[");
    for (int i = 0; i < 50000; i++)
        buf_printf(&body, "%s{\"type\":\"tool_use\",\"id\":\"t%d\",\"name\":\"f\",\"input\":{}}",
                   i == 0 ? "" : ",", i);
    buf_append_str(&body, "]},{\"role\":\"user\",\"content\":[");
    for (int i = 49999; i >= 0; i--)
        buf_printf(&body, "{\"type\":\"tool_result\",\"tool_use_id\":\"t%d\"}%s", i, i == 0 ? "" : ",");
    buf_append_str(&body, "]}]}");
    assert_int_equal(api_parse_request(buf_view(&body), API_MESSAGES, &r, &error), 0);
    assert_int_equal(r.messages[1].n_blocks, 50000);
    gen_request_fini(&r);
    buf_fini(&body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bodies_get_the_wanted_verdict),
        cmocka_unit_test(everything_arrives),
        cmocka_unit_test(thinking_and_shapes_arrive),
        cmocka_unit_test(schemas_of_typed_tools_are_json),
        cmocka_unit_test(defaults_are_set),
        cmocka_unit_test(a_last_assistant_message_is_continued),
        cmocka_unit_test(breakpoints_are_found),
        cmocka_unit_test(counting_needs_no_max_tokens),
        cmocka_unit_test(long_histories_are_checked_quickly),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
