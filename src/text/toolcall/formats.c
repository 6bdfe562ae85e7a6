/* SPDX-License-Identifier: Apache-2.0 */
/* The rows.  Each shows a call as the format's template writes it.
 *
 * formats_tags.c has the rows and tags of formats whose arguments stand between tags.  calls_json.c, calls_tags.c,
 * calls_braces.c, calls_keywords.c and calls_harmony.c have the functions that parse, and spell.c writes calls back
 * into prompts.  A new format whose calls look like an existing one needs a number in formats.h and a row here. */
#include "text/toolcall/formats.h"

#include "text/toolcall/calls_priv.h"
#include "text/toolcall/formats_priv.h"

/* clang-format off */
#define DEEPSEEK(a, b) "<" CALLS_BAR "tool" CALLS_BLOCK a CALLS_BLOCK b CALLS_BAR ">"
/* clang-format on */

#define DEEPSEEK_PARSER                                                                                      \
    PARSER(.opens = {DEEPSEEK("call", "begin")},                                                             \
           .drops = {DEEPSEEK("calls", "begin"), DEEPSEEK("calls", "end")},                                  \
           .close = DEEPSEEK("call", "end"), .header = calls_deepseek_header, .tail = calls_mark_tail,       \
           .marks = MARKS(DEEPSEEK("call", "begin"), DEEPSEEK("call", "end"), DEEPSEEK("calls", "begin"),    \
                          DEEPSEEK("calls", "end"), CALLS_DEEPSEEK_SEP))
#define MISTRAL_PARSER                                                                                       \
    PARSER(.opens = {"[TOOL_CALLS]"}, .header = calls_mistral_header, .tail = calls_list_tail,               \
           .marks = MARKS("[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"))
#define HERMES_PARSER                                                                                        \
    PARSER(.opens = {"<tool_call>"}, .close = "</tool_call>", .header = calls_list_header,                   \
           .tail = calls_marked_list_tail, .marks = MARKS("<tool_call>", "</tool_call>"))
#define HERMES_GRAMMAR                                                                                       \
    {                                                                                                        \
        .mark = "<tool_call>", .call_open = {MARK("<tool_call>")}, .name_before = "\n{\"name\": \"",         \
        .name_after = "\", \"arguments\": ", .call_close = {TEXT("}\n"), MARK("</tool_call>")},              \
        .between = "\n"                                                                                      \
    }
#define LLAMA4_PARSER                                                                                        \
    PARSER(.opens = {"<|python_start|>"}, .drops = {"<|python_end|>"}, .close = "<|python_end|>",            \
           .bare = "{[", .header = calls_llama4_header, .arguments = calls_keywords_arguments,               \
           .tail = calls_llama4_tail, .marks = MARKS("<|python_start|>", "<|python_end|>"))
#define PHI_PARSER                                                                                           \
    PARSER(.opens = {"<|tool_call|>"}, .close = "<|/tool_call|>", .header = calls_list_header,               \
           .tail = calls_marked_list_tail, .marks = MARKS("<|tool_call|>", "<|/tool_call|>"))
/* [{"name": "N", "arguments": {...}}, ...] between two marks */
#define LIST_PARSER(open_mark, close_mark)                                                                   \
    PARSER(.opens = {open_mark}, .close = close_mark, .header = calls_list_header,                           \
           .tail = calls_marked_list_tail, .marks = MARKS(open_mark, close_mark))
#define LIST_GRAMMAR(open_mark, close_mark)                                                                  \
    {                                                                                                        \
        .mark = open_mark, .open = {MARK(open_mark), TEXT("[")}, .name_before = "{\"name\": \"",             \
        .name_after = "\", \"arguments\": ", .call_close = {TEXT("}")}, .between = ", ",                     \
        .close = {TEXT("]"), MARK(close_mark)}, .has_list = true, .has_commas = true                         \
    }
#define HUNYUAN_ANSWER .answer = {"<answer>", "\n</answer>", "</answer>"}, .has_text_marks = true

static const struct calls_row rows[CALLS_FORMAT_COUNT] = {
    [CALLS_PLAIN] = {.name = "plain",
                     .parser = PARSER(.marks = (const char *const[]){NULL}),
                     .grammar = {.mark = "", .name_before = "", .name_after = "", .between = ""}},

    /* <tool_call>\n{"name": "N", "arguments": {...}}\n</tool_call>      Qwen, Hermes, many more */
    [CALLS_HERMES] = {.name = "hermes",
                      .detect = {{"<tool_call>"}},
                      .parser = HERMES_PARSER,
                      .grammar = HERMES_GRAMMAR},

    /* [TOOL_CALLS]N[ARGS]{...}      Mistral since Large 2411 */
    [CALLS_MISTRAL_NAMED] = {.name = "mistral",
                             .detect = {{"[TOOL_CALLS]", "[ARGS]"}},
                             .ids = CALLS_IDS_MISTRAL,
                             .parser = MISTRAL_PARSER,
                             .grammar = {.mark = "[TOOL_CALLS]",
                                         .call_open = {MARK("[TOOL_CALLS]")},
                                         .name_before = "",
                                         .name_after = "",
                                         .name_end = {MARK("[ARGS]")},
                                         .between = ""}},

    /* [TOOL_CALLS][{"name": "N", "arguments": {...}, "id": "9 letters"}] */
    [CALLS_MISTRAL] = {.name = "mistral",
                       .detect = {{"[TOOL_CALLS]"}},
                       .ids = CALLS_IDS_MISTRAL_DRAWN,
                       .parser = MISTRAL_PARSER,
                       .grammar = {.mark = "[TOOL_CALLS]",
                                   .open = {MARK("[TOOL_CALLS]"), TEXT("[")},
                                   .name_before = "{\"name\": \"",
                                   .name_after = "\", \"arguments\": ",
                                   .call_close = {MISTRAL_ID, TEXT("}")},
                                   .between = ", ",
                                   .close = {TEXT("]")},
                                   .has_list = true,
                                   .has_commas = true}},

    /* <calls-begin><call-begin>function<sep>N\n```json\n{...}\n```<call-end><calls-end>      V2.5, V3, R1 */
    [CALLS_DEEPSEEK] = {.name = "deepseek",
                        .detect = {{DEEPSEEK("calls", "begin"), "```json"}},
                        .parser = DEEPSEEK_PARSER,
                        .grammar = {.mark = DEEPSEEK("calls", "begin"),
                                    .open = {MARK(DEEPSEEK("calls", "begin"))},
                                    .call_open = {MARK(DEEPSEEK("call", "begin")), TEXT("function"),
                                                  MARK(CALLS_DEEPSEEK_SEP)},
                                    .name_before = "",
                                    .name_after = "\n```json\n",
                                    .call_close = {TEXT("\n```"), MARK(DEEPSEEK("call", "end"))},
                                    .between = "\n",
                                    .close = {MARK(DEEPSEEK("calls", "end"))},
                                    .has_list = true}},

    /* <calls-begin><call-begin>N<sep>{...}<call-end><calls-end> */
    [CALLS_DEEPSEEK_V31] = {.name = "deepseek",
                            .detect = {{DEEPSEEK("calls", "begin")}},
                            .parser = DEEPSEEK_PARSER,
                            .grammar = {.mark = DEEPSEEK("calls", "begin"),
                                        .open = {MARK(DEEPSEEK("calls", "begin"))},
                                        .call_open = {MARK(DEEPSEEK("call", "begin"))},
                                        .name_before = "",
                                        .name_after = "",
                                        .name_end = {MARK(CALLS_DEEPSEEK_SEP)},
                                        .call_close = {MARK(DEEPSEEK("call", "end"))},
                                        .between = "",
                                        .close = {MARK(DEEPSEEK("calls", "end"))},
                                        .has_list = true}},

    /* <|channel|>commentary to=functions.N <|constrain|>json<|message|>{...}      gpt-oss */
    [CALLS_HARMONY] = {.name = "harmony",
                       .detect = {{"<|channel|>"}},
                       .parser = PARSER(.opens = {"<|start|>", "<|channel|>"},
                                        .drops = {"<|end|>", "<|call|>", "<|return|>"}, .close = "<|call|>",
                                        .header = calls_harmony_header, .tail = calls_harmony_tail,
                                        .marks = MARKS("<|start|>", "<|channel|>", "<|message|>", "<|end|>",
                                                       "<|call|>", "<|return|>", "<|constrain|>")),
                       .grammar = {.mark = "",
                                   .call_open = {MARK("<|channel|>")},
                                   .name_before = "commentary to=functions.",
                                   .name_after = " ",
                                   .name_end = {MARK("<|constrain|>"), TEXT("json"), MARK("<|message|>")},
                                   .between = "",
                                   .is_one = true}},

    /* {"name": "N", "parameters": {...}} as the whole answer, after <|python_tag|> or not */
    [CALLS_LLAMA] = {.name = "llama",
                     .detect = {{"<|eot_id|>", "\"parameters\": "}, {"<|python_tag|>"}},
                     .parser = PARSER(.opens = {"<|python_tag|>"}, .bare = "{", .header = calls_object_header,
                                      .tail = calls_llama_tail, .marks = MARKS("<|python_tag|>")),
                     .grammar = {.mark = "{\"name\": \"",
                                 .name_before = "{\"name\": \"",
                                 .name_after = "\", \"parameters\": ",
                                 .call_close = {TEXT("}")},
                                 .between = "",
                                 .is_one = true,
                                 .is_bare = true}},

    /* <|tool_call|>[{"name": "N", "arguments": {...}}, ...]      Granite 3 */
    [CALLS_GRANITE] = {.name = "granite",
                       .detect = {{"<|tool_call|>"}},
                       .parser = PARSER(.opens = {"<|tool_call|>"}, .header = calls_mistral_header,
                                        .tail = calls_list_tail, .marks = MARKS("<|tool_call|>")),
                       .grammar = {.mark = "<|tool_call|>",
                                   .open = {MARK("<|tool_call|>"), TEXT("[")},
                                   .name_before = "{\"name\": \"",
                                   .name_after = "\", \"arguments\": ",
                                   .call_close = {TEXT("}")},
                                   .between = ", ",
                                   .close = {TEXT("]")},
                                   .has_list = true,
                                   .has_commas = true}},

    /* <|tool_call_start|>[N(K=V, ...), ...]<|tool_call_end|>, in LFM2.5 also without marks as the whole answer */
    [CALLS_LFM2] = {.name = "lfm2",
                    .detect = {{"<|tool_call_start|>"},
                               {"<|tool_list_start|>"},
                               {"List of tools: [", "<|im_start|>"}},
                    .parser = PARSER(.opens = {"<|tool_call_start|>"}, .close = "<|tool_call_end|>",
                                     .bare = "[", .header = calls_keywords_header,
                                     .arguments = calls_keywords_arguments, .tail = calls_marked_list_tail,
                                     .marks = MARKS("<|tool_call_start|>", "<|tool_call_end|>")),
                    .grammar = {.mark = "<|tool_call_start|>",
                                .open = {MARK("<|tool_call_start|>"), TEXT("[")},
                                .name_before = "",
                                .name_after = "(",
                                .has_keywords = true,
                                .call_close = {TEXT(")")},
                                .between = ", ",
                                .close = {TEXT("]"), MARK("<|tool_call_end|>")},
                                .has_list = true,
                                .has_commas = true}},

    /* <|START_ACTION|>[\n    {"tool_call_id": "0", "tool_name": "N", "parameters": {...}}, ...\n]<|END_ACTION|>
     * Command R7B, Command A */
    [CALLS_COHERE] = {.name = "cohere",
                      .detect = {{"<|START_ACTION|>"}},
                      .answer = {"<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>"},
                      .parser = PARSER(.opens = {"<|START_ACTION|>"}, .close = "<|END_ACTION|>",
                                       .header = calls_list_header, .tail = calls_marked_list_tail,
                                       .marks = MARKS("<|START_ACTION|>", "<|END_ACTION|>")),
                      .grammar = {.mark = "<|START_ACTION|>",
                                  .open = {MARK("<|START_ACTION|>"), TEXT("[\n    ")},
                                  .call_open = {TEXT("{\"tool_call_id\": \""), INDEX},
                                  .name_before = "\", \"tool_name\": \"",
                                  .name_after = "\", \"parameters\": ",
                                  .call_close = {TEXT("}")},
                                  .between = ",\n    ",
                                  .close = {TEXT("\n]"), MARK("<|END_ACTION|>")},
                                  .has_list = true,
                                  .has_commas = true}},

    /* <TOOLCALL>[{"name": "N", "arguments": {...}}, ...]</TOOLCALL>      Nemotron Nano 2, Nemotron Super */
    [CALLS_NEMOTRON] = {.name = "nemotron",
                        .detect = {{"<TOOLCALL>"}},
                        .is_tried_first = true,
                        .parser = LIST_PARSER("<TOOLCALL>", "</TOOLCALL>"),
                        .grammar = LIST_GRAMMAR("<TOOLCALL>", "</TOOLCALL>")},

    /* <tool_calls>[{"name": "N", "arguments": {...}}, ...]</tool_calls>      Hunyuan A13B as vLLM asks for it */
    [CALLS_HUNYUAN_LIST] = {.name = "hunyuan",
                            .detect = {{"<tool_calls>[", "<answer>"}},
                            .is_tried_first = true,
                            HUNYUAN_ANSWER,
                            .parser = LIST_PARSER("<tool_calls>", "</tool_calls>"),
                            .grammar = LIST_GRAMMAR("<tool_calls>", "</tool_calls>")},

    /* The same, with other marks around answers      Apriel */
    [CALLS_TOOL_CALLS] = {.name = "tool-calls",
                          .detect = {{"<tool_calls>["}},
                          .is_tried_first = true,
                          .answer = {"[BEGIN FINAL RESPONSE]", "\n[END FINAL RESPONSE]",
                                     "[END FINAL RESPONSE]"},
                          .has_text_marks = true,
                          .parser = LIST_PARSER("<tool_calls>", "</tool_calls>"),
                          .grammar = LIST_GRAMMAR("<tool_calls>", "</tool_calls>")},

    /* <tool_calls><tool_call>N\n```json\n{...}\n```</tool_call>\n<tool_call>...</tool_calls>      Hunyuan */
    [CALLS_HUNYUAN] = {.name = "hunyuan",
                       .detect = {{"<tool_calls>", "```json"}},
                       .is_tried_first = true,
                       HUNYUAN_ANSWER,
                       .parser = PARSER(.opens = {"<tool_call>"}, .drops = {"<tool_calls>", "</tool_calls>"},
                                        .close = "</tool_call>", .header = calls_fenced_header,
                                        .tail = calls_mark_tail,
                                        .marks = MARKS("<tool_calls>", "</tool_calls>", "<tool_call>",
                                                       "</tool_call>")),
                       .grammar = {.mark = "<tool_calls>",
                                   .open = {MARK("<tool_calls>")},
                                   .call_open = {MARK("<tool_call>")},
                                   .name_before = "",
                                   .name_after = "\n```json\n",
                                   .call_close = {TEXT("\n```"), MARK("</tool_call>")},
                                   .between = "\n",
                                   .close = {MARK("</tool_calls>")},
                                   .has_list = true}},

    /* <|tool_call|>{"name": "N", "arguments": {...}}<|/tool_call|>      Phi 4 mini as llama.cpp asks for it */
    [CALLS_PHI] = {.name = "phi",
                   .detect = {{"<|/tool_call|>"}},
                   .is_tried_first = true,
                   .parser = PHI_PARSER,
                   .grammar = {.mark = "<|tool_call|>",
                               .call_open = {MARK("<|tool_call|>")},
                               .name_before = "{\"name\": \"",
                               .name_after = "\", \"arguments\": ",
                               .call_close = {TEXT("}"), MARK("<|/tool_call|>")},
                               .between = ""}},

    /* <|tool_call|>[{"name": "N", "arguments": {...}}, ...]<|/tool_call|>      Phi 4 mini */
    [CALLS_PHI_LIST] = {.name = "phi",
                        .detect = {{"<|/tool|>"}},
                        .is_tried_first = true,
                        .parser = PHI_PARSER,
                        .grammar = {.mark = "<|tool_call|>",
                                    .open = {MARK("<|tool_call|>"), TEXT("[")},
                                    .name_before = "{\"name\": \"",
                                    .name_after = "\", \"arguments\": ",
                                    .call_close = {TEXT("}")},
                                    .between = ", ",
                                    .close = {TEXT("]"), MARK("<|/tool_call|>")},
                                    .has_list = true,
                                    .has_commas = true}},

    /* [N(K=V, ...), ...] as the whole answer, between <|python_start|> and <|python_end|> or not      Llama 4 */
    [CALLS_LLAMA4_PYTHON] = {.name = "llama4",
                             .detect = {{"<|header_start|>", "[func_name1(param1=value1"}},
                             .is_tried_first = true,
                             .parser = LLAMA4_PARSER,
                             .grammar = {.mark = "[",
                                         .open = {TEXT("[")},
                                         .name_before = "",
                                         .name_after = "(",
                                         .has_keywords = true,
                                         .call_close = {TEXT(")")},
                                         .between = ", ",
                                         .close = {TEXT("]")},
                                         .is_bare = true,
                                         .has_list = true,
                                         .has_commas = true}},

    /* {"name": "N", "parameters": {...}} as the whole answer      Llama 4, the first templates */
    [CALLS_LLAMA4] = {.name = "llama4",
                      .detect = {{"<|header_start|>", "\"parameters\": "}},
                      .is_tried_first = true,
                      .parser = LLAMA4_PARSER,
                      .grammar = {.mark = "{\"name\": \"",
                                  .name_before = "{\"name\": \"",
                                  .name_after = "\", \"parameters\": ",
                                  .call_close = {TEXT("}")},
                                  .between = "",
                                  .is_one = true,
                                  .is_bare = true}},

    /* <function_calls>N(K=V, ...)\nN(K=V, ...)</function_calls>      OLMo 3 */
    [CALLS_OLMO] = {.name = "olmo",
                    .detect = {{"<function_calls>"}},
                    .is_tried_first = true,
                    .parser = PARSER(.opens = {"<function_calls>"}, .close = "</function_calls>",
                                     .header = calls_lines_header, .arguments = calls_keywords_arguments,
                                     .tail = calls_lines_tail,
                                     .marks = MARKS("<function_calls>", "</function_calls>")),
                    .grammar = {.mark = "<function_calls>",
                                .open = {MARK("<function_calls>")},
                                .name_before = "",
                                .name_after = "(",
                                .has_keywords = true,
                                .call_close = {TEXT(")")},
                                .between = "\n",
                                .close = {MARK("</function_calls>")},
                                .has_list = true,
                                .has_commas = true}},

    /* The same as Hermes, with the text of an answer between <response> and </response>      ERNIE 4.5 Thinking */
    [CALLS_ERNIE] = {.name = "ernie",
                     .detect = {{"<tool_call>", "<response>"}},
                     .is_tried_first = true,
                     .answer = {"<response>", "\n</response>", "</response>"},
                     .has_text_marks = true,
                     .parser = HERMES_PARSER,
                     .grammar = HERMES_GRAMMAR},

    /* <|tool_calls_section_begin|><|tool_call_begin|>functions.N:0<|tool_call_argument_begin|>{...}
     * <|tool_call_end|><|tool_calls_section_end|>      Kimi K2 */
    [CALLS_KIMI] = {.name = "kimi",
                    .detect = {{"<|tool_calls_section_begin|>"}},
                    .ids = CALLS_IDS_KIMI,
                    .parser = PARSER(.opens = {"<|tool_call_begin|>"},
                                     .drops = {"<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"},
                                     .close = "<|tool_call_end|>", .header = calls_kimi_header,
                                     .tail = calls_mark_tail,
                                     .marks = MARKS("<|tool_calls_section_begin|>",
                                                    "<|tool_calls_section_end|>", "<|tool_call_begin|>",
                                                    "<|tool_call_end|>", CALLS_KIMI_ARGUMENTS)),
                    .grammar = {.mark = "<|tool_calls_section_begin|>",
                                .open = {MARK("<|tool_calls_section_begin|>")},
                                .call_open = {MARK("<|tool_call_begin|>")},
                                .name_before = "functions.",
                                .name_after = ":",
                                .name_end = {INDEX, MARK(CALLS_KIMI_ARGUMENTS)},
                                .call_close = {MARK("<|tool_call_end|>")},
                                .between = "",
                                .close = {MARK("<|tool_calls_section_end|>")},
                                .has_list = true}},

    /* <|function_call|>{"name": "N", "arguments": {...}}      GigaChat 3.1 */
    [CALLS_GIGACHAT] = {.name = "gigachat",
                        .detect = {{"<|function_call|>"}},
                        .parser = PARSER(.opens = {"<|function_call|>"}, .header = calls_object_header,
                                         .tail = calls_llama_tail, .marks = MARKS("<|function_call|>")),
                        .grammar = {.mark = "<|function_call|>",
                                    .call_open = {MARK("<|function_call|>")},
                                    .name_before = "{\"name\": \"",
                                    .name_after = "\", \"arguments\": ",
                                    .call_close = {TEXT("}")},
                                    .between = "",
                                    .is_one = true}},

    /* <|tools_prefix|>[{"N": {...}}, ...]<|tools_suffix|>      Apertus */
    [CALLS_APERTUS] = {.name = "apertus",
                       .detect = {{"<|tools_prefix|>"}},
                       .calls_end_thinking = true,
                       .parser = PARSER(.opens = {"<|tools_prefix|>"}, .close = "<|tools_suffix|>",
                                        .header = calls_keyed_list_header, .tail = calls_marked_list_tail,
                                        .marks = MARKS("<|tools_prefix|>", "<|tools_suffix|>")),
                       .grammar = {.mark = "<|tools_prefix|>",
                                   .open = {MARK("<|tools_prefix|>"), TEXT("[")},
                                   .name_before = "{\"",
                                   .name_after = "\": ",
                                   .call_close = {TEXT("}")},
                                   .between = ", ",
                                   .close = {TEXT("]"), MARK("<|tools_suffix|>")},
                                   .has_list = true,
                                   .has_commas = true}},

    /* <|message_sep|>\n\nfunction call<|role_sep|>\n{"name": "N", "arguments": {...}}      GigaChat 3.0, whose marks contain
     * their line ends */
    [CALLS_GIGACHAT_ROLE] = {.name = "gigachat",
                             .detect = {{"function call", "<|role_sep|>"}},
                             .parser = PARSER(.opens = {"function call<|role_sep|>\n"},
                                              .drops = {"<|message_sep|>\n\n"}, .header = calls_object_header,
                                              .tail = calls_llama_tail,
                                              .marks = MARKS("<|message_sep|>\n\n", "<|role_sep|>\n")),
                             .answer_end = "<|message_sep|>\n\n",
                             .grammar = {.mark = "<|message_sep|>\n\n",
                                         .call_open = {MARK("<|message_sep|>\n\n"), TEXT("function call"),
                                                       MARK("<|role_sep|>\n")},
                                         .name_before = "{\"name\": \"",
                                         .name_after = "\", \"arguments\": ",
                                         .call_close = {TEXT("}")},
                                         .between = "",
                                         .is_one = true}},

    /* <function=N>{...}</function>      Functionary 3.1, and Llama 3.1 as its model card shows it */
    [CALLS_FUNCTIONARY] = {.name = "functionary",
                           .detect = {{"<function=example_function_name>{", "</function>"}},
                           .is_tried_first = true,
                           .parser = PARSER(.opens = {"<function="}, .close = "</function>",
                                            .header = calls_name_header, .tail = calls_mark_tail,
                                            .marks = (const char *const[]){NULL}),
                           .grammar = {.mark = "<function=",
                                       .name_before = "<function=",
                                       .name_after = ">",
                                       .call_close = {TEXT("</function>")},
                                       .between = ""}},

    /* <tool_calls>\n{"name": "N", "arguments": {...}}\n{...}\n</tool_calls>      MiniMax M1 */
    [CALLS_MINIMAX_M1] = {.name = "minimax-m1",
                          .detect = {{"<tool_calls>", "<beginning_of_sentence>"}},
                          .is_tried_first = true,
                          .parser = PARSER(.opens = {"<tool_calls>"}, .close = "</tool_calls>",
                                           .header = calls_object_header, .tail = calls_objects_tail,
                                           .marks = MARKS("<tool_calls>", "</tool_calls>")),
                          .grammar = {.mark = "<tool_calls>",
                                      .open = {MARK("<tool_calls>"), TEXT("\n")},
                                      .name_before = "{\"name\": \"",
                                      .name_after = "\", \"arguments\": ",
                                      .call_close = {TEXT("}\n")},
                                      .between = "",
                                      .close = {MARK("</tool_calls>")},
                                      .has_list = true}},

    /* Action:\n```json\n[\n    {\n        "tool_name": "N",\n        "parameters": {...}\n    }, ...\n]```      Command R
     * and R+, whose models also write the fence on the line of "Action:".  These are words of any answer, too, so text is
     * held only for strict tools: otherwise a model that wants its own tool "directly-answer" would be led to another. */
    [CALLS_COMMAND] = {.name = "command",
                       .detect = {{"Action:\\n```json", "\"tool_name\""},
                                  {"Action:\n```json", "\"tool_name\""},
                                  {"Action: ```json", "\"tool_name\""}},
                       .is_tried_first = true,
                       .parser = PARSER(.opens = {"Action:\n```json", "Action: ```json", "Action:```json"},
                                        .close = "```", .header = calls_list_header,
                                        .tail = calls_marked_list_tail, .marks = (const char *const[]){NULL}),
                       .grammar = {.mark = "Action:",
                                   .open = {TEXT("Action:\n```json\n[\n")},
                                   .name_before = "    {\n        \"tool_name\": \"",
                                   .name_after = "\",\n        \"parameters\": ",
                                   .call_close = {TEXT("\n    }")},
                                   .between = ",\n",
                                   .close = {TEXT("\n]```")},
                                   .is_words = true,
                                   .has_list = true,
                                   .has_commas = true}},

    /* <|tool_calls|><|tool_call:begin|>ID<|tool_call:name|>N<|tool_call:args|>{...}<|tool_call:end|>...      Solar Open,
     * whose answers are messages: <|think|>...<|end|><|begin|>assistant<|content|>... */
    [CALLS_SOLAR] = {.name = "solar",
                     .detect = {{"<|tool_call:begin|>"}},
                     .is_tried_first = true,
                     .ids = CALLS_IDS_SOLAR,
                     .answer = {"<|content|>", "<|begin|>assistant", "<|end|>"},
                     .answer_mark = CALLS_ANSWER_MUST,
                     .parser = PARSER(.opens = {CALLS_SOLAR_BEGIN}, .drops = {"<|tool_calls|>", "<|calls|>"},
                                      .close = CALLS_SOLAR_END, .header = calls_solar_header,
                                      .tail = calls_mark_tail,
                                      .marks = MARKS("<|tool_calls|>", "<|calls|>", CALLS_SOLAR_BEGIN,
                                                     CALLS_SOLAR_NAME, CALLS_SOLAR_ARGUMENTS, CALLS_SOLAR_END,
                                                     "<|begin|>", "<|end|>")),
                     .grammar = {.mark = "<|tool_calls|>",
                                 .open = {MARK("<|tool_calls|>")},
                                 .call_open = {MARK(CALLS_SOLAR_BEGIN), SOLAR_ID, MARK(CALLS_SOLAR_NAME)},
                                 .name_before = "",
                                 .name_after = "",
                                 .name_end = {MARK(CALLS_SOLAR_ARGUMENTS)},
                                 .call_close = {MARK(CALLS_SOLAR_END)},
                                 .between = "",
                                 .has_list = true}},

    /* N\n{...}>>>N\n{...}      Functionary 3.2.  Its prompts end with ">>>", and text is addressed to "all". */
    [CALLS_FUNCTIONARY_ALL] = {.name = "functionary",
                               .detect = {{">>>all\\n"}, {">>>all\n"}},
                               .is_tried_first = true,
                               .answer = {CALLS_FUNCTIONARY_TEXT},
                               .has_text_marks = true,
                               .answer_mark = CALLS_ANSWER_MUST,
                               .parser =
                                   PARSER(.opens = {CALLS_FUNCTIONARY_MARK}, .bare = CALLS_NAME_BYTES,
                                          .header = calls_recipient_header, .tail = calls_recipient_tail,
                                          .marks = (const char *const[]){NULL}),
                               .grammar = {.mark = CALLS_FUNCTIONARY_MARK,
                                           .call_open = {TEXT(CALLS_FUNCTIONARY_MARK)},
                                           .name_before = "",
                                           .name_after = "\n",
                                           .between = "",
                                           .is_begun = true}},
};

const struct calls_row *calls_row_of(enum calls_format format)
{
    if ((unsigned)format >= CALLS_FORMAT_COUNT)
        format = CALLS_PLAIN;
    return rows[format].parser != NULL ? &rows[format] : &calls_tagged_rows[format];
}

/* True if all texts of one of the row's lists occur in the template. */
static bool row_is_detected(const struct calls_row *row, struct bytes text)
{
    for (unsigned i = 0; i < CALLS_MAX_DETECT && row->detect[i][0] != NULL; i++) {
        bool has_all = true;

        for (unsigned k = 0; k < 2 && row->detect[i][k] != NULL; k++)
            has_all = has_all && bytes_find(text, bytes_str(row->detect[i][k]), 0) != SIZE_MAX;
        if (has_all)
            return true;
    }
    return false;
}

enum calls_format calls_format_detect(struct bytes chat_template)
{
    for (unsigned pass = 0; pass < 3; pass++)
        for (unsigned i = CALLS_PLAIN + 1; i < CALLS_FORMAT_COUNT; i++) {
            const struct calls_row *row = calls_row_of((enum calls_format)i);
            unsigned its_pass = row->is_certain ? 0 : row->is_tried_first ? 1 : 2;

            if (its_pass == pass && row_is_detected(row, chat_template))
                return (enum calls_format)i;
        }
    return CALLS_PLAIN;
}
