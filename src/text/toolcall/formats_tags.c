/* SPDX-License-Identifier: Apache-2.0 */
/* The tags of formats whose arguments stand between tags.  The rows of formats.c name them; calls_tags.c and
 * calls_braces.c read them, spell.c and serve/prompt write them. */
#include "text/toolcall/formats_priv.h"

const struct calls_tags calls_xml_tags = {.name_open = "<function=",
                                          .name_close = ">",
                                          .key_open = "<parameter=",
                                          .key_close = ">",
                                          .value_close = "</parameter>",
                                          .end = "</function>",
                                          .key_written = ">\n",
                                          .value_written = "\n</parameter>\n"};
const struct calls_tags calls_glm_tags = {.key_open = "<arg_key>",
                                          .key_close = "</arg_key>",
                                          .value_open = "<arg_value>",
                                          .value_close = "</arg_value>",
                                          .end = "</tool_call>",
                                          .key_written = "</arg_key>\n<arg_value>",
                                          .value_written = "</arg_value>\n",
                                          .is_tight = true};

const struct calls_tags calls_glm_tight_tags = {.key_open = "<arg_key>",
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
const struct calls_tags calls_hy3_tags = HY3_TAGS(">");
const struct calls_tags calls_hy3_open_tags = HY3_TAGS(CALLS_HY3_OPEN_END);

const struct calls_tags calls_minimax_tags = {.name_open = "<invoke name=\"",
                                              .name_close = "\">",
                                              .key_open = "<parameter name=\"",
                                              .key_close = "\">",
                                              .value_close = "</parameter>",
                                              .end = "</invoke>",
                                              .key_written = "\">",
                                              .value_written = "</parameter>\n",
                                              .is_tight = true,
                                              .has_block = true};

const struct calls_tags calls_seed_tags = {.name_open = "<function=",
                                           .name_close = ">",
                                           .key_open = "<parameter=",
                                           .key_close = ">",
                                           .value_close = "</parameter>",
                                           .end = "</function>",
                                           .key_written = ">",
                                           .value_written = "</parameter>\n",
                                           .is_tight = true};

const struct calls_tags calls_dsml_tags = {.name_open = "<" CALLS_DSML_MARK "invoke name=\"",
                                           .name_close = "\">",
                                           .key_open = "<" CALLS_DSML_MARK "parameter name=\"",
                                           .key_close = "\"",
                                           .key_written = "\"",
                                           .string_open = " string=\"true\">",
                                           .json_open = " string=\"false\">",
                                           .value_close = "</" CALLS_DSML_MARK "parameter>",
                                           .value_written = "</" CALLS_DSML_MARK "parameter>\n",
                                           .end = "</" CALLS_DSML_MARK "invoke>",
                                           .is_exact = true,
                                           .has_block = true};

#define BRACES_TAGS(quote)                                                                                   \
    {                                                                                                        \
        .key_open = "", .key_close = ":", .key_written = ":", .string_open = (quote),                        \
        .string_close = (quote), .value_close = (quote), .value_written = ",", .end = "}",                   \
        .has_braces = true                                                                                   \
    }
const struct calls_tags calls_gemma_tags = BRACES_TAGS(CALLS_GEMMA_QUOTE);
const struct calls_tags calls_function_gemma_tags = BRACES_TAGS("<escape>");
