/* SPDX-License-Identifier: Apache-2.0 */
/* Pieces of calls that more than one test writes. */
#ifndef TESTS_UNIT_TEXT_TOOLCALL_PIECES_H
#define TESTS_UNIT_TEXT_TOOLCALL_PIECES_H

/* Cohere */
#define ACTION(id, name) "{\"tool_call_id\": \"" id "\", \"tool_name\": \"" name "\", \"parameters\": "

/* DeepSeek */
#define BAR      "\xef\xbd\x9c"
#define LOW      "\xe2\x96\x81"
#define DS(a, b) "<" BAR "tool" LOW a LOW b BAR ">"
#define SEP      "<" BAR "tool" LOW "sep" BAR ">"
#define DSML     BAR "DSML" BAR

/* Gemma */
#define Q "<|\"|>"

#endif
