/* SPDX-License-Identifier: Apache-2.0 */
/* The formats whose arguments stand between tags: their tags, and their rows of the table.  calls_tags.c and
 * calls_braces.c read the tags, spell.c and serve/prompt write them. */
#include "text/toolcall/formats_priv.h"

#define MINIMAX_3_MARK      "]<]minimax[>["
#define KIMI_3_OPEN         "<|open|>"
#define KIMI_3_CLOSE        "<|close|>"
#define KIMI_3_SEP          "<|sep|>"
#define KIMI_3_BEGINS(name) KIMI_3_OPEN name KIMI_3_SEP
#define KIMI_3_ENDS(name)   KIMI_3_CLOSE name KIMI_3_SEP

static const struct calls_tags calls_xml_tags = {.name_open = "<function=",
                                                 .name_close = ">",
                                                 .key_open = "<parameter=",
                                                 .key_close = ">",
                                                 .value_close = "</parameter>",
                                                 .end = "</function>",
                                                 .key_written = ">\n",
                                                 .value_written = "\n</parameter>\n"};
static const struct calls_tags calls_glm_tags = {.key_open = "<arg_key>",
                                                 .key_close = "</arg_key>",
                                                 .value_open = "<arg_value>",
                                                 .value_close = "</arg_value>",
                                                 .end = "</tool_call>",
                                                 .key_written = "</arg_key>\n<arg_value>",
                                                 .value_written = "</arg_value>\n",
                                                 .is_tight = true};

static const struct calls_tags calls_glm_tight_tags = {.key_open = "<arg_key>",
                                                       .key_close = "</arg_key>",
                                                       .value_open = "<arg_value>",
                                                       .value_close = "</arg_value>",
                                                       .end = "</tool_call>",
                                                       .key_written = "</arg_key><arg_value>",
                                                       .value_written = "</arg_value>",
                                                       .is_exact = true};

#define HY3_TAGS(end_mark)                                                                                   \
    {                                                                                                        \
        .name_open = "<tool_call" end_mark, .name_close = "<tool_sep" end_mark,                              \
        .key_open = "<arg_key" end_mark, .key_close = "</arg_key" end_mark,                                  \
        .value_open = "<arg_value" end_mark, .value_close = "</arg_value" end_mark,                          \
        .end = "</tool_call" end_mark, .key_written = "</arg_key" end_mark "\n<arg_value" end_mark,          \
        .value_written = "</arg_value" end_mark "\n", .is_tight = true, .has_block = true                    \
    }
static const struct calls_tags calls_hy3_tags = HY3_TAGS(">");
static const struct calls_tags calls_hy3_open_tags = HY3_TAGS(CALLS_HY3_OPEN_END);

static const struct calls_tags calls_minimax_tags = {.name_open = "<invoke name=\"",
                                                     .name_close = "\">",
                                                     .key_open = "<parameter name=\"",
                                                     .key_close = "\">",
                                                     .value_close = "</parameter>",
                                                     .end = "</invoke>",
                                                     .key_written = "\">",
                                                     .value_written = "</parameter>\n",
                                                     .is_tight = true,
                                                     .has_block = true};

static const struct calls_tags calls_seed_tags = {.name_open = "<function=",
                                                  .name_close = ">",
                                                  .key_open = "<parameter=",
                                                  .key_close = ">",
                                                  .value_close = "</parameter>",
                                                  .end = "</function>",
                                                  .key_written = ">",
                                                  .value_written = "</parameter>\n",
                                                  .is_tight = true};

static const struct calls_tags calls_dsml_tags = {.name_open = "<" CALLS_DSML_MARK "invoke name=\"",
                                                  .name_close = "\">",
                                                  .key_open = "<" CALLS_DSML_MARK "parameter name=\"",
                                                  .key_close = "\"",
                                                  .key_written = "\"",
                                                  .string_open = " string=\"true\">",
                                                  .json_open = " string=\"false\">",
                                                  .value_close = "</" CALLS_DSML_MARK "parameter>",
                                                  .value_written = "</" CALLS_DSML_MARK "parameter>\n",
                                                  .until = "DSML", /* as a pattern needs ASCII */
                                                  .end = "</" CALLS_DSML_MARK "invoke>",
                                                  .is_exact = true,
                                                  .has_block = true};

#define BRACES_TAGS(quote)                                                                                   \
    {                                                                                                        \
        .key_open = "", .key_close = ":", .key_written = ":", .string_open = (quote),                        \
        .string_close = (quote), .value_close = (quote), .value_written = ",", .end = "}",                   \
        .has_braces = true                                                                                   \
    }
static const struct calls_tags calls_gemma_tags = BRACES_TAGS(CALLS_GEMMA_QUOTE);
static const struct calls_tags calls_function_gemma_tags = BRACES_TAGS("<escape>");
static const struct calls_tags calls_minicpm_tags = {.name_open = "<function name=\"",
                                                     .name_close = "\">",
                                                     .key_open = "<param name=\"",
                                                     .key_close = "\">",
                                                     .key_written = "\">",
                                                     .value_close = "</param>",
                                                     .value_written = "</param>",
                                                     .quoted_open = "<![CDATA[",
                                                     .quoted_close = "]]></param>",
                                                     .end = "</function>",
                                                     .is_exact = true};
static const struct calls_tags calls_solar_2_tags = {.key_open = "<|tool_arg:start|>",
                                                     .key_close = "<|tool_arg:value|>",
                                                     .value_close = "<|tool_arg:end|>",
                                                     .end = "<|tool_call:end|>",
                                                     .key_written = "<|tool_arg:value|>",
                                                     .value_written = "<|tool_arg:end|>\n",
                                                     .is_exact = true};
static const struct calls_tags calls_kimi_3_tags = {.name_open = KIMI_3_OPEN "call tool=\"",
                                                    .name_close = "\"",
                                                    .name_end = KIMI_3_SEP,
                                                    .key_open = KIMI_3_OPEN "argument key=\"",
                                                    .key_close = "\"",
                                                    .key_written = "\"",
                                                    .string_open = " type=\"string\"" KIMI_3_SEP,
                                                    .json_open = " type=\"",
                                                    .type_close = "\"" KIMI_3_SEP,
                                                    .value_close = KIMI_3_ENDS("argument"),
                                                    .value_written = KIMI_3_ENDS("argument"),
                                                    .until = KIMI_3_CLOSE,
                                                    .object_open =
                                                        KIMI_3_OPEN "json type=\"object\"" KIMI_3_SEP,
                                                    .object_close = KIMI_3_ENDS("json"),
                                                    .end = KIMI_3_ENDS("call"),
                                                    .is_exact = true,
                                                    .has_block = true,
                                                    .has_entities = true};

/* The name of a key stands in its closing tag, too. */
static const struct calls_tags calls_minimax_3_tags = {.name_open = MINIMAX_3_MARK "<invoke name=\"",
                                                       .name_close = "\">",
                                                       .key_open = MINIMAX_3_MARK "<",
                                                       .key_close = ">",
                                                       .value_close = MINIMAX_3_MARK "</",
                                                       .until = "<]minimax[>[",
                                                       .end = MINIMAX_3_MARK "</invoke>",
                                                       .has_block = true,
                                                       .has_elements = true};

/* ---- rows ---- */

#define GLM_PARSER(its_tags)                                                                                 \
    PARSER(.opens = {"<tool_call>"}, .close = "</tool_call>", .header = calls_glm_header,                    \
           .tail = calls_tags_tail, .tags = its_tags,                                                        \
           .marks = MARKS("<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>",           \
                          "</arg_value>"))
#define HY3_PARSER(end_mark, its_tags)                                                                       \
    PARSER(.opens = {"<tool_calls" end_mark, "<tool_call" end_mark}, .close = "</tool_calls" end_mark,       \
           .header = calls_tags_header, .tail = calls_tags_tail, .tags = (its_tags),                         \
           .marks = MARKS("<tool_calls" end_mark, "</tool_calls" end_mark, "<tool_call" end_mark,            \
                          "</tool_call" end_mark, "<tool_sep" end_mark, "<arg_key" end_mark,                 \
                          "</arg_key" end_mark, "<arg_value" end_mark, "</arg_value" end_mark))
#define HY3_GRAMMAR(end_mark, its_tags)                                                                      \
    {                                                                                                        \
        .mark = "<tool_calls" end_mark, .open = {MARK("<tool_calls" end_mark), TEXT("\n")},                  \
        .call_open = {MARK("<tool_call" end_mark)}, .name_before = "", .name_after = "",                     \
        .name_end = {MARK("<tool_sep" end_mark), TEXT("\n")}, .tags = (its_tags),                            \
        .call_close = {MARK("</tool_call" end_mark), TEXT("\n")}, .between = "",                             \
        .close = {MARK("</tool_calls" end_mark)}, .has_list = true                                           \
    }
#define BRACES_PARSER(mark_open, mark_close, quote)                                                          \
    PARSER(.opens = {mark_open}, .close = (mark_close), .header = calls_braces_header,                       \
           .arguments = calls_braces_arguments, .tail = calls_mark_tail, .string_mark = (quote),             \
           .marks = MARKS(mark_open, mark_close, quote))
/* The block of calls is called function_calls or tool_calls. */
#define DSML_ROW(block)                                                                                      \
    {                                                                                                        \
        .name = "dsml", .detect = {{CALLS_DSML_MARK, block}},                                                \
        .parser = PARSER(.opens = {"<" CALLS_DSML_MARK block}, .close = "</" CALLS_DSML_MARK block,          \
                         .header = calls_tags_header, .tail = calls_tags_tail, .tags = &calls_dsml_tags,     \
                         .marks = MARKS(CALLS_DSML_MARK)),                                                   \
        .grammar = {                                                                                         \
            .mark = "<" CALLS_DSML_MARK block,                                                               \
            .open = {TEXT("<" CALLS_DSML_MARK block "\n")},                                                  \
            .name_before = "<" CALLS_DSML_MARK "invoke name=\"",                                             \
            .name_after = "\">\n",                                                                           \
            .tags = &calls_dsml_tags,                                                                        \
            .call_close = {TEXT("</" CALLS_DSML_MARK "invoke>\n")},                                          \
            .between = "",                                                                                   \
            .close = {TEXT("</" CALLS_DSML_MARK block)},                                                     \
            .has_list = true                                                                                 \
        }                                                                                                    \
    }

const struct calls_row calls_tagged_rows[CALLS_FORMAT_COUNT] = {
    /* <tool_call>\n<function=N>\n<parameter=K>\nV\n</parameter>\n</function>\n</tool_call>      Qwen 3 Coder */
    [CALLS_XML] = {.name = "xml",
                   .detect = {{"<tool_call>", "<function="}},
                   .parser = PARSER(.opens = {"<tool_call>", "<function="}, .close = "</tool_call>",
                                    .header = calls_tags_header, .tail = calls_tags_tail,
                                    .tags = &calls_xml_tags, .marks = MARKS("<tool_call>", "</tool_call>")),
                   .grammar = {.mark = "<tool_call>",
                               .call_open = {MARK("<tool_call>")},
                               .name_before = "\n<function=",
                               .name_after = ">\n",
                               .tags = &calls_xml_tags,
                               .call_close = {TEXT("</function>\n"), MARK("</tool_call>")},
                               .between = "\n"}},

    /* <tool_call>N\n<arg_key>K</arg_key>\n<arg_value>V</arg_value>\n</tool_call> */
    [CALLS_GLM] = {.name = "glm",
                   .detect = {{"<tool_call>", "<arg_key>"}},
                   .parser = GLM_PARSER(&calls_glm_tags),
                   .grammar = {.mark = "<tool_call>",
                               .call_open = {MARK("<tool_call>")},
                               .name_before = "",
                               .name_after = "\n",
                               .tags = &calls_glm_tags,
                               .call_close = {MARK("</tool_call>")},
                               .between = "\n"}},

    /* <minimax:tool_call>\n<invoke name="N">\n<parameter name="K">V</parameter>\n</invoke>\n</minimax:tool_call> */
    [CALLS_MINIMAX] = {.name = "minimax",
                       .detect = {{"<minimax:tool_call>"}},
                       .parser = PARSER(.opens = {"<minimax:tool_call>"}, .close = "</minimax:tool_call>",
                                        .header = calls_tags_header, .tail = calls_tags_tail,
                                        .tags = &calls_minimax_tags,
                                        .marks = MARKS("<minimax:tool_call>", "</minimax:tool_call>")),
                       .grammar = {.mark = "<minimax:tool_call>",
                                   .open = {MARK("<minimax:tool_call>"), TEXT("\n")},
                                   .name_before = "<invoke name=\"",
                                   .name_after = "\">\n",
                                   .tags = &calls_minimax_tags,
                                   .call_close = {TEXT("</invoke>\n")},
                                   .between = "",
                                   .close = {MARK("</minimax:tool_call>")},
                                   .has_list = true}},

    /* <seed:tool_call>\n<function=N>\n<parameter=K>V</parameter>\n</function>\n</seed:tool_call>      Seed-OSS */
    [CALLS_SEED] = {.name = "seed",
                    .detect = {{"<seed:tool_call>"}},
                    .parser =
                        PARSER(.opens = {"<seed:tool_call>", "<function="}, .close = "</seed:tool_call>",
                               .header = calls_tags_header, .tail = calls_tags_tail, .tags = &calls_seed_tags,
                               .marks = MARKS("<seed:tool_call>", "</seed:tool_call>")),
                    .grammar = {.mark = "<seed:tool_call>",
                                .call_open = {MARK("<seed:tool_call>")},
                                .name_before = "\n<function=",
                                .name_after = ">\n",
                                .tags = &calls_seed_tags,
                                .call_close = {TEXT("</function>\n"), MARK("</seed:tool_call>")},
                                .between = "\n"}},

    /* <|tool_call>call:N{K:<|"|>V<|"|>,K:{K:[1,2]}}<tool_call|>      Gemma 4 */
    [CALLS_GEMMA] = {.name = "gemma",
                     .detect = {{"<|tool_call>"}},
                     .parser = BRACES_PARSER("<|tool_call>", "<tool_call|>", CALLS_GEMMA_QUOTE),
                     .grammar = {.mark = "<|tool_call>",
                                 .call_open = {MARK("<|tool_call>")},
                                 .name_before = "call:",
                                 .name_after = "{",
                                 .tags = &calls_gemma_tags,
                                 .call_close = {TEXT("}"), MARK("<tool_call|>")},
                                 .between = ""}},

    /* <start_function_call>call:N{K:<escape>V<escape>}<end_function_call> */
    [CALLS_FUNCTION_GEMMA] = {.name = "function-gemma",
                              .detect = {{"<start_function_call>"}},
                              .parser =
                                  BRACES_PARSER("<start_function_call>", "<end_function_call>", "<escape>"),
                              .grammar = {.mark = "<start_function_call>",
                                          .call_open = {MARK("<start_function_call>")},
                                          .name_before = "call:",
                                          .name_after = "{",
                                          .tags = &calls_function_gemma_tags,
                                          .call_close = {TEXT("}"), MARK("<end_function_call>")},
                                          .between = ""}},

    /* As MiniMax, with marks in the tags and string="true|false" behind a key.  The template joins its tags from pieces. */
    [CALLS_DSML] = DSML_ROW("function_calls>"),

    /* The same with another name of the block      DeepSeek V4 */
    [CALLS_DSML_V4] = DSML_ROW("tool_calls>"),

    /* <tool_calls>\n<tool_call>N<tool_sep>\n<arg_key>K</arg_key>\n<arg_value>V</arg_value>\n</tool_call>\n</tool_calls>
     * Hunyuan 3 */
    [CALLS_HY3] = {.name = "hunyuan-3",
                   .detect = {{"<tool_sep>", "<arg_key>"}},
                   .is_tried_first = true,
                   .parser = HY3_PARSER(">", &calls_hy3_tags),
                   .grammar = HY3_GRAMMAR(">", &calls_hy3_tags)},

    /* The same, with :opensource in every mark, which the template may add: '<tool_sep{}>'.format(HYTK) */
    [CALLS_HY3_OPEN] = {.name = "hunyuan-3",
                        .detect = {{"<tool_sep{}>", ":opensource"}, {"<tool_sep" CALLS_HY3_OPEN_END}},
                        .is_tried_first = true,
                        .parser = HY3_PARSER(CALLS_HY3_OPEN_END, &calls_hy3_open_tags),
                        .grammar = HY3_GRAMMAR(CALLS_HY3_OPEN_END, &calls_hy3_open_tags)},

    /* <tool_call>N<arg_key>K</arg_key><arg_value>V</arg_value></tool_call>      GLM 4.7, 5 */
    [CALLS_GLM_TIGHT] = {.name = "glm",
                         .detect = {{"</arg_key><arg_value>"}},
                         .is_tried_first = true,
                         .parser = GLM_PARSER(&calls_glm_tight_tags),
                         .grammar = {.mark = "<tool_call>",
                                     .call_open = {MARK("<tool_call>")},
                                     .name_before = "",
                                     .name_after = "",
                                     .tags = &calls_glm_tight_tags,
                                     .call_close = {MARK("</tool_call>")},
                                     .between = ""}},

    /* <function name="N"><param name="K">V</param></function>      MiniCPM 5 */
    [CALLS_MINICPM] = {.name = "minicpm",
                       .detect = {{"<function name=\"", "<param name=\""}},
                       .is_tried_first = true,
                       .parser = PARSER(.opens = {"<function name=\""}, .close = "</function>",
                                        .header = calls_tags_header, .tail = calls_tags_tail,
                                        .tags = &calls_minicpm_tags, .marks = (const char *const[]){NULL}),
                       .grammar = {.mark = "<function name=\"",
                                   .name_before = "<function name=\"",
                                   .name_after = "\">",
                                   .tags = &calls_minicpm_tags,
                                   .call_close = {TEXT("</function>")},
                                   .between = "\n"}},

    /* <|tool_call:start|>N\n<|tool_arg:start|>K<|tool_arg:value|>V<|tool_arg:end|>\n<|tool_call:end|>      Solar Open 2 */
    [CALLS_SOLAR_2] = {.name = "solar-2",
                       .detect = {{"<|tool_call:start|>", "<|tool_arg:start|>"}},
                       .is_tried_first = true,
                       .parser = PARSER(.opens = {"<|tool_call:start|>"}, .close = "<|tool_call:end|>",
                                        .header = calls_glm_header, .tail = calls_tags_tail,
                                        .tags = &calls_solar_2_tags,
                                        .marks = MARKS("<|tool_call:start|>", "<|tool_call:end|>",
                                                       "<|tool_arg:start|>", "<|tool_arg:value|>",
                                                       "<|tool_arg:end|>")),
                       .grammar = {.mark = "<|tool_call:start|>",
                                   .call_open = {MARK("<|tool_call:start|>")},
                                   .name_before = "",
                                   .name_after = "\n",
                                   .tags = &calls_solar_2_tags,
                                   .call_close = {MARK("<|tool_call:end|>")},
                                   .between = "\n"}},

    /* <|open|>tools<|sep|><|open|>call tool="N" index="1"<|sep|><|open|>argument key="K" type="T"<|sep|>V
     * <|close|>argument<|sep|><|close|>call<|sep|><|close|>tools<|sep|>, and around text response for tools      Kimi K3 */
    [CALLS_KIMI_3] = {.name = "kimi-3",
                      .detect = {{KIMI_3_OPEN, KIMI_3_CLOSE}},
                      .is_tried_first = true,
                      .answer = {KIMI_3_BEGINS("response"), KIMI_3_ENDS("response"), KIMI_3_ENDS("message")},
                      .answer_mark = CALLS_ANSWER_AFTER,
                      .parser = PARSER(.opens = {KIMI_3_BEGINS("tools")}, .close = KIMI_3_ENDS("tools"),
                                       .header = calls_tags_header, .tail = calls_tags_tail,
                                       .tags = &calls_kimi_3_tags,
                                       .marks = MARKS(KIMI_3_OPEN, KIMI_3_CLOSE, KIMI_3_SEP)),
                      .grammar = {.mark = KIMI_3_BEGINS("tools"),
                                  .open = {TEXT(KIMI_3_BEGINS("tools"))},
                                  .name_before = KIMI_3_OPEN "call tool=\"",
                                  .name_after = "\" index=\"",
                                  .name_end = {NUMBER, TEXT("\"" KIMI_3_SEP)},
                                  .tags = &calls_kimi_3_tags,
                                  .call_close = {TEXT(KIMI_3_ENDS("call"))},
                                  .between = "",
                                  .close = {TEXT(KIMI_3_ENDS("tools"))},
                                  .has_list = true}},

    /* M<tool_call>\nM<invoke name="N">M<K>VM</K>M</invoke>\nM</tool_call>, with M for ]<]minimax[>[      MiniMax M3, which
     * closes thinking that it has not begun */
    [CALLS_MINIMAX_3] = {.name = "minimax-3",
                         .detect = {{MINIMAX_3_MARK}},
                         .is_certain = true,
                         .answer = {"</mm:think>"},
                         .parser =
                             PARSER(.opens = {MINIMAX_3_MARK "<tool_call>"},
                                    .close = MINIMAX_3_MARK "</tool_call>", .header = calls_elements_header,
                                    .arguments = calls_elements_arguments, .tail = calls_tags_tail,
                                    .tags = &calls_minimax_3_tags, .string_mark = MINIMAX_3_MARK,
                                    .marks = MARKS(MINIMAX_3_MARK)),
                         .grammar = {.mark = MINIMAX_3_MARK "<tool_call>",
                                     .open = {TEXT(MINIMAX_3_MARK "<tool_call>\n")},
                                     .name_before = MINIMAX_3_MARK "<invoke name=\"",
                                     .name_after = "\">",
                                     .tags = &calls_minimax_3_tags,
                                     .call_close = {TEXT(MINIMAX_3_MARK "</invoke>\n")},
                                     .between = "",
                                     .close = {TEXT(MINIMAX_3_MARK "</tool_call>")},
                                     .has_list = true}},
};
