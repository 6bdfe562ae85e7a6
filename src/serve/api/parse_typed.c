/* SPDX-License-Identifier: Apache-2.0 */
/* Tools that a client runs but does not describe: their type tells their purpose.
 *
 * A model that was not trained on these tools needs a description and a schema; this file provides them. */
#include <string.h>

#include "serve/api/parse_priv.h"

#define STRING(name)  "\"" name "\": {\"type\": \"string\"}"
#define INTEGER(name) "\"" name "\": {\"type\": \"integer\"}"
#define OBJECT(properties, required)                                                                         \
    "{\"type\": \"object\", \"properties\": {" properties "}, \"required\": [" required "]}"
#define COMMAND(list) "\"command\": {\"type\": \"string\", \"enum\": [" list "]}"
#define RANGE(name)   "\"" name "\": {\"type\": \"array\", \"items\": {\"type\": \"integer\"}}"

static const struct {
    const char *prefix; /* the type without its date */
    const char *name;
    const char *description;
    const char *schema;
} typed[] = {
    {"bash_2025", "bash",
     "Runs a command in a shell that keeps its state between calls, and gives what it printed. With restart "
     "the shell is begun anew instead.",
     OBJECT(STRING("command") ", \"restart\": {\"type\": \"boolean\"}", "")},
    {"text_editor_2025", "str_replace_based_edit_tool",
     "Looks at and changes files. view shows a file (view_range: first and last line) or a folder; create "
     "writes file_text; str_replace puts new_str in the place of old_str, which must occur once; insert puts "
     "insert_text behind line insert_line; undo_edit takes back the last change.",
     OBJECT(COMMAND("\"view\", \"create\", \"str_replace\", \"insert\", \"undo_edit\"") ", " STRING("path") ", " RANGE("view_range") ", " STRING(
                "file_text") ", " STRING("old_str") ", " STRING("new_str") ", " INTEGER("insert_line") ","
                                                                                                       " " STRING(
                                                                                                           "i"
                                                                                                           "n"
                                                                                                           "s"
                                                                                                           "e"
                                                                                                           "r"
                                                                                                           "t"
                                                                                                           "_"
                                                                                                           "t"
                                                                                                           "e"
                                                                                                           "x"
                                                                                                           "t"),
            "\"command\", \"path\"")},
    {"memory_2025", "memory",
     "Keeps notes in files under /memories, over conversations. view, create, str_replace and insert are as "
     "of "
     "an editor; delete removes a file or folder; rename moves it from old_path to new_path.",
     OBJECT(
         COMMAND("\"view\", \"create\", \"str_replace\", \"insert\", \"delete\", \"rename\"") ", " STRING(
             "pa"
             "t"
             "h") ", " RANGE("view_range") ", " STRING("file_text") ", " STRING("old_str") ", " STRING("new_"
                                                                                                       "str") ", " INTEGER("insert_line") ", " STRING("insert_text") ","
                                                                                                                                                                     " " STRING("old_path") ", " STRING(
                                                                                                                                                                         "new_path"),
         "\"command\"")},
};

bool parse_typed_tool(struct bytes type, struct gen_tool *tool)
{
    for (size_t i = 0; i < sizeof(typed) / sizeof(typed[0]); i++) {
        if (!bytes_starts_with(type, typed[i].prefix))
            continue;
        if (tool->name.len_bytes == 0)
            tool->name = bytes_str(typed[i].name);
        tool->description = bytes_str(typed[i].description);
        tool->input_schema = bytes_str(typed[i].schema);
        return true;
    }
    return false;
}
