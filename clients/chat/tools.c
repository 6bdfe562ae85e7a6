/* SPDX-License-Identifier: Apache-2.0 */
/* One row for each tool: its name, its description for the model, its parameters and its function.
 *
 * Names and results are those that models see most (the bundled one was trained on them): a search gives
 * "path:line: text", an edit needs the old text to occur, a refusal begins with "error: ".  A result is cut at
 * TOOLS_MAX_RESULT_BYTES and says so. */
#include "clients/chat/tools.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/err.h"
#include "base/str.h"
#include "clients/chat/run_tests.h"

struct call {
    const struct tools *tools;
    struct bytes args[3]; /* in the order of the row's parameters; data NULL: left out */
    struct buf *out;
    struct fault fault;
};

/* ---- the tools; 0, or a failure with the fault filled ---- */

static int tools_put_name(void *arg, struct bytes path)
{
    struct buf *out = arg;

    buf_append(out, path.data, path.len_bytes);
    return buf_append_str(out, "\n");
}

static int list_files(struct call *call)
{
    size_t before = call->out->len_bytes;
    int rc = folder_walk(&call->tools->folder, call->args[0], &call->fault, tools_put_name, call->out);

    if (rc == 0 && call->out->len_bytes == before)
        buf_append_str(call->out, "(empty)\n");
    return rc;
}

static int grep_file(void *arg, struct bytes path)
{
    struct call *call = arg;
    struct fault ignored = {0};
    struct buf text = {0};
    struct bytes all;
    unsigned line = 1;

    if (call->out->len_bytes > TOOLS_MAX_RESULT_BYTES ||
        folder_read(&call->tools->folder, path, &ignored, &text) < 0) {
        buf_fini(&text);
        return 0; /* enough matches, or an unreadable file, which has none */
    }
    all = buf_view(&text);
    for (size_t at = 0, end; at < all.len_bytes; at = end + 1, line++) {
        const uint8_t *newline = memchr(all.data + at, '\n', all.len_bytes - at);

        end = newline == NULL ? all.len_bytes : (size_t)(newline - all.data);
        if (bytes_find(bytes_of(all.data + at, end - at), call->args[0], 0) == SIZE_MAX)
            continue;
        buf_append(call->out, path.data, path.len_bytes);
        buf_printf(call->out, ":%u: %.*s\n", line, (int)(end - at), (const char *)all.data + at);
    }
    buf_fini(&text);
    return 0;
}

static int tools_grep(struct call *call)
{
    int rc;

    if (call->args[0].len_bytes == 0)
        return fault_set(&call->fault, E_FORMAT, "pattern is empty");
    rc = folder_walk(&call->tools->folder, call->args[1], &call->fault, grep_file, call);
    if (rc == 0 && call->out->len_bytes == 0)
        buf_append_str(call->out, "no matches");
    return rc;
}

static int tools_read_file(struct call *call)
{
    return folder_read(&call->tools->folder, call->args[0], &call->fault, call->out);
}

static int tools_write_file(struct call *call)
{
    int rc = folder_write(&call->tools->folder, call->args[0], call->args[1], &call->fault);

    return rc < 0 ? rc : buf_append_str(call->out, "ok");
}

/* Replaces every occurrence, as a model expects of a rename.  No occurrence is an error, so that the model
 * reads again. */
static int edit_file(struct call *call)
{
    struct bytes old = call->args[1], new = call->args[2];
    struct buf text = {0};
    struct buf edited = {0};
    size_t from = 0;
    int rc = folder_read(&call->tools->folder, call->args[0], &call->fault, &text);

    for (size_t at; rc == 0 && old.len_bytes > 0; from = at + old.len_bytes) {
        at = bytes_find(buf_view(&text), old, from);
        if (at == SIZE_MAX)
            break;
        buf_append(&edited, text.data + from, at - from);
        buf_append(&edited, new.data, new.len_bytes);
    }
    if (rc == 0 && from == 0)
        rc = fault_set(&call->fault, E_NOT_FOUND, "old text not found");
    if (rc == 0)
        rc = buf_append(&edited, text.data + from, text.len_bytes - from);
    if (rc == 0)
        rc = folder_write(&call->tools->folder, call->args[0], buf_view(&edited), &call->fault);
    if (rc == 0)
        rc = buf_append_str(call->out, "ok");
    buf_fini(&edited);
    buf_fini(&text);
    return rc;
}

static int run_tests(struct call *call)
{
    return run_tests_in(call->tools->folder.fd, call->tools->test_command, &call->fault, call->out);
}

/* ---- the table ---- */

struct param {
    const char *name;
    const char *text;
    bool is_wanted;
};

static const struct tool {
    const char *name;
    const char *text;
    struct param params[3];
    int (*run)(struct call *call);
} rows[] = {
    {"grep",
     "Search the code",
     {{"pattern", "What to look for", true}, {"path", "Folder to search", false}},
     tools_grep},
    {"read_file", "Read a file", {{"path", "Path of the file", true}}, tools_read_file},
    {"edit_file",
     "Replace text in a file",
     {{"path", "Path of the file", true},
      {"old_text", "Text to replace", true},
      {"new_text", "New text", true}},
     edit_file},
    {"write_file",
     "Write text to a file",
     {{"path", "Path of the file", true}, {"content", "Text to write", true}},
     tools_write_file},
    {"list_files", "List the files in a folder", {{"path", "The folder", false}}, list_files},
    {"run_tests", "Run the tests", {{NULL, NULL, false}}, run_tests},
};

static bool is_offered(const struct tools *tools, const struct tool *tool)
{
    return tool->run != run_tests || tools->test_command != NULL;
}

static void put_schema(const struct tool *tool, struct buf *out)
{
    const char *comma = "";

    buf_append_str(out, "{\"type\": \"object\", \"properties\": {");
    for (size_t i = 0; i < ARRAY_LEN(tool->params) && tool->params[i].name != NULL; i++)
        buf_printf(out, "%s\"%s\": {\"type\": \"string\", \"description\": \"%s\"}", i > 0 ? ", " : "",
                   tool->params[i].name, tool->params[i].text);
    buf_append_str(out, "}, \"required\": [");
    for (size_t i = 0; i < ARRAY_LEN(tool->params) && tool->params[i].name != NULL; i++) {
        if (!tool->params[i].is_wanted)
            continue;
        buf_printf(out, "%s\"%s\"", comma, tool->params[i].name);
        comma = ", ";
    }
    buf_append_str(out, "]}");
}

int tools_put_definitions(const struct tools *tools, struct buf *out)
{
    const char *comma = "";

    buf_append_str(out, "[");
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        if (!is_offered(tools, &rows[i]))
            continue;
        buf_printf(out, "%s{\"name\": \"%s\", \"description\": \"%s\", \"input_schema\": ", comma,
                   rows[i].name, rows[i].text);
        put_schema(&rows[i], out);
        buf_append_str(out, "}");
        comma = ", ";
    }
    return buf_append_str(out, "]");
}

/* ---- calls ---- */

static int take_args(const struct tool *tool, const json_t *input, struct call *call)
{
    for (size_t i = 0; i < ARRAY_LEN(tool->params) && tool->params[i].name != NULL; i++) {
        const json_t *value = json_object_get(input, tool->params[i].name);

        if (json_is_string(value))
            call->args[i] = bytes_of(json_string_value(value), json_string_length(value));
        else if (tool->params[i].is_wanted || value != NULL)
            return fault_set(&call->fault, E_FORMAT, "%s: a string is wanted", tool->params[i].name);
    }
    return 0;
}

static const struct tool *find_tool(const struct tools *tools, struct bytes name)
{
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (bytes_is(name, rows[i].name) && is_offered(tools, &rows[i]))
            return &rows[i];
    return NULL;
}

/* Appends the result as the model gets it: valid UTF-8, bounded, without the last newline. */
static void tools_deliver(const struct buf *from, struct buf *out)
{
    struct bytes text = buf_view(from);
    bool is_cut = text.len_bytes > TOOLS_MAX_RESULT_BYTES;

    if (is_cut)
        text.len_bytes = TOOLS_MAX_RESULT_BYTES;
    for (size_t at = 0, len; at < text.len_bytes; at += len) {
        uint8_t utf8[4];
        uint32_t c = utf8_next(text, at, &len);

        buf_append(out, utf8, utf8_put(c == 0 ? 0xfffd : c, utf8));
    }
    while (out->len_bytes > 0 && out->data[out->len_bytes - 1] == '\n')
        out->data[--out->len_bytes] = '\0';
    if (is_cut)
        buf_printf(out, "\n(cut; %zu bytes in all)", from->len_bytes);
}

bool tools_run(const struct tools *tools, struct bytes name, struct bytes input, struct buf *out)
{
    const struct tool *tool = find_tool(tools, name);
    json_t *args = json_loadb((const char *)input.data, input.len_bytes, JSON_REJECT_DUPLICATES, NULL);
    struct buf result = {0};
    struct call call = {.tools = tools, .out = &result};
    int rc;

    if (tool == NULL)
        rc = fault_set(&call.fault, E_NOT_FOUND, "no such tool");
    else if (!json_is_object(args))
        rc = fault_set(&call.fault, E_FORMAT, "the input is no JSON object");
    else
        rc = take_args(tool, args, &call);
    if (rc == 0)
        rc = tool->run(&call);
    if (rc == 0)
        tools_deliver(&result, out);
    else
        buf_printf(out, "error: %s", call.fault.text[0] != '\0' ? call.fault.text : err_text(rc));
    buf_fini(&result);
    json_decref(args);
    return rc == 0;
}
