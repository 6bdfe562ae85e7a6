/* SPDX-License-Identifier: Apache-2.0 */
/* baton-model render: a conversation as the model would get it.
 *
 * The conversation is a JSON object as the chat APIs and the models' templates have it,
 *
 *     {"messages": [{"role": "user", "content": "..."}, ...], "tools": [{"function": {...}}, ...]}
 *
 * or a question (and a system text) on the command line.  What comes out is the prompt as text with its
 * control tokens spelled out, or its token ids.  With --template the file's own chat template is replaced, to
 * see what another one would make of the conversation.
 */
#include "clients/model/model_cli.h"

#include "base/arena.h"
#include "base/err.h"
#include "gguf/write.h"
#include "token/chat.h"

#include <getopt.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_INPUT_BYTES ((size_t)64 << 20)

static const char NAME[] = "render";

static const char HELP[] =
    "Usage: baton-model render [OPTIONS] MODEL.gguf\n"
    "Print a conversation in the model's chat format.\n"
    "\n"
    "  --file FILE.json   the conversation: {\"messages\": [...], \"tools\": [...]} (-: stdin)\n"
    "  --user TEXT        or: a user's question\n"
    "  --system TEXT      with --user: a system text before it\n"
    "  --template FILE    use this chat template instead of the model's\n"
    "  --ids              print token ids instead of text\n"
    "  --no-generation    do not open the assistant's turn at the end\n"
    "  --continue         leave the last turn open if it is the assistant's\n"
    "  --thinking on|off  set what the template knows as enable_thinking\n"
    "  --help             this text\n";

struct render_args {
    const char *model, *conversation_path, *template_path, *user, *system;
    bool shows_ids, ends_closed, continues_last;
    enum chat_thinking thinking;
};

struct conversation { /* everything it points to lives in the arena or in json */
    struct arena arena;
    json_t *json;
    struct chat_prompt prompt;
};

/* ---- JSON -> conversation ---- */

static struct bytes text_of(const json_t *value)
{
    return bytes_of(json_string_value(value), json_string_length(value));
}

/* JSON text of a value; a string is taken to be that text already (as some APIs send arguments). */
static struct bytes json_of(struct arena *arena, const json_t *value)
{
    if (value == NULL || json_is_string(value))
        return text_of(value);
    char *text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(15));
    struct bytes copy = bytes_str(text == NULL ? NULL : arena_str(arena, bytes_str(text)));
    free(text);
    return copy;
}

static int role_of(const json_t *value, enum chat_role *out)
{
    static const char *const names[] = {
        [CHAT_SYSTEM] = "system", [CHAT_USER] = "user", [CHAT_ASSISTANT] = "assistant", [CHAT_TOOL] = "tool"};

    for (int role = CHAT_SYSTEM; role <= CHAT_TOOL; role++) {
        if (json_is_string(value) && strcmp(json_string_value(value), names[role]) == 0) {
            *out = (enum chat_role)role;
            return 0;
        }
    }
    return E_FORMAT;
}

/* "function" inside, where it is wrapped. */
static const json_t *unwrapped(const json_t *value)
{
    const json_t *inner = json_object_get(value, "function");

    return json_is_object(inner) ? inner : value;
}

static int read_calls(struct arena *arena, const json_t *list, struct chat_message *message)
{
    struct chat_call *calls = arena_take(arena, (json_array_size(list) + 1) * sizeof(*calls));

    if (calls == NULL)
        return E_NOMEM;
    message->calls = calls;
    message->n_calls = json_array_size(list);
    for (size_t i = 0; i < message->n_calls; i++) {
        const json_t *call = unwrapped(json_array_get(list, i));

        if (!json_is_string(json_object_get(call, "name")))
            return E_FORMAT;
        calls[i].name = text_of(json_object_get(call, "name"));
        calls[i].arguments = json_of(arena, json_object_get(call, "arguments"));
        calls[i].id = text_of(json_object_get(json_array_get(list, i), "id"));
        if (calls[i].arguments.len_bytes == 0)
            calls[i].arguments = bytes_str("{}");
    }
    return 0;
}

static int read_messages(struct conversation *conversation, const json_t *list, struct fault *fault)
{
    size_t n = json_array_size(list);
    struct chat_message *messages = arena_take(&conversation->arena, (n + 1) * sizeof(*messages));

    if (messages == NULL)
        return fault_set(fault, E_NOMEM, "out of memory");
    for (size_t i = 0; i < n; i++) {
        const json_t *one = json_array_get(list, i);
        const json_t *content = json_object_get(one, "content");

        if (role_of(json_object_get(one, "role"), &messages[i].role) != 0)
            return fault_set(fault, E_FORMAT, "messages[%zu]: role is not system, user, assistant or tool",
                             i);
        if (content != NULL && !json_is_string(content) && !json_is_null(content))
            return fault_set(fault, E_FORMAT, "messages[%zu]: content is not a string", i);
        messages[i].text = text_of(content);
        messages[i].call_id = text_of(json_object_get(one, "tool_call_id"));
        if (read_calls(&conversation->arena, json_object_get(one, "tool_calls"), &messages[i]) != 0)
            return fault_set(fault, E_FORMAT, "messages[%zu]: tool_calls are not calls with a name", i);
    }
    conversation->prompt.messages = messages;
    conversation->prompt.n_messages = n;
    return 0;
}

static int read_tools(struct conversation *conversation, const json_t *list, struct fault *fault)
{
    size_t n = json_array_size(list);
    struct chat_tool *tools = arena_take(&conversation->arena, (n + 1) * sizeof(*tools));

    if (tools == NULL)
        return fault_set(fault, E_NOMEM, "out of memory");
    for (size_t i = 0; i < n; i++) {
        const json_t *tool = unwrapped(json_array_get(list, i));
        const json_t *schema = json_object_get(tool, "parameters");

        if (!json_is_string(json_object_get(tool, "name")))
            return fault_set(fault, E_FORMAT, "tools[%zu]: no name", i);
        tools[i].name = text_of(json_object_get(tool, "name"));
        tools[i].description = text_of(json_object_get(tool, "description"));
        tools[i].parameters =
            json_of(&conversation->arena, schema != NULL ? schema : json_object_get(tool, "input_schema"));
    }
    conversation->prompt.tools = tools;
    conversation->prompt.n_tools = n;
    return 0;
}

static int read_conversation(const char *path, struct conversation *conversation, struct fault *fault)
{
    struct buf text = {0};
    json_error_t error;
    int rc = cli_read(path, MAX_INPUT_BYTES, fault, &text);

    if (rc == 0) {
        conversation->json =
            json_loadb(text.data == NULL ? "" : (char *)text.data, text.len_bytes, JSON_ALLOW_NUL, &error);
        if (conversation->json == NULL)
            rc = fault_set(fault, E_FORMAT, "line %d: %s", error.line, error.text);
        else if (!json_is_array(json_object_get(conversation->json, "messages")))
            rc = fault_set(fault, E_FORMAT, "not an object with a list of messages");
    }
    buf_fini(&text);
    if (rc == 0)
        rc = read_messages(conversation, json_object_get(conversation->json, "messages"), fault);
    if (rc == 0)
        rc = read_tools(conversation, json_object_get(conversation->json, "tools"), fault);
    return rc;
}

static int ask(const struct render_args *args, struct conversation *conversation, struct fault *fault)
{
    struct chat_message *messages = arena_take(&conversation->arena, 2 * sizeof(*messages));
    size_t n = 0;

    if (messages == NULL)
        return fault_set(fault, E_NOMEM, "out of memory");
    if (args->system != NULL)
        messages[n++] = (struct chat_message){.role = CHAT_SYSTEM, .text = bytes_str(args->system)};
    messages[n++] = (struct chat_message){.role = CHAT_USER, .text = bytes_str(args->user)};
    conversation->prompt.messages = messages;
    conversation->prompt.n_messages = n;
    return 0;
}

/* ---- the model ---- */

/* The model's vocabulary with another template. */
static int replace_template(const struct gguf *gguf, const char *path, struct fault *fault,
                            struct tokenizer **out)
{
    struct gguf_writer *writer = NULL;
    struct buf text = {0}, image = {0};
    int rc = cli_read(path, MAX_INPUT_BYTES, fault, &text);

    if (rc != 0)
        return rc;
    rc = gguf_writer_new(&writer);
    if (rc == 0)
        rc = gguf_put_str(writer, "tokenizer.chat_template", buf_view(&text));
    if (rc == 0)
        rc = gguf_put_keys_of(writer, gguf, "tokenizer.");
    if (rc == 0)
        rc = gguf_writer_header(writer, &image);
    if (rc == 0)
        rc = tokenizer_new_from_image(buf_view(&image), fault, out);
    else
        fault_set(fault, rc, "%s", err_text(rc));
    gguf_writer_free(writer);
    buf_fini(&image);
    buf_fini(&text);
    return rc;
}

static int open_format(const struct render_args *args, struct fault *fault, struct chat_format **out)
{
    struct tokenizer *tokenizer = NULL;
    struct gguf *gguf;
    int rc = gguf_open(args->model, fault, &gguf);

    if (rc != 0)
        return rc;
    rc = args->template_path == NULL ? tokenizer_new(gguf, fault, &tokenizer)
                                     : replace_template(gguf, args->template_path, fault, &tokenizer);
    if (rc == 0)
        rc = chat_format_new(tokenizer, fault, out);
    tokenizer_unref(tokenizer);
    gguf_close(gguf);
    return rc;
}

/* ---- the command ---- */

static int print_rendered(const struct render_args *args, const struct chat_format *format,
                          const struct chat_prompt *prompt)
{
    struct token_ids ids = {0};
    struct buf text = {0};
    struct fault fault = {0};
    int rc = args->shows_ids ? chat_render(format, prompt, SIZE_MAX, &fault, &ids)
                             : chat_render_text(format, prompt, &fault, &text);

    if (rc == 0) {
        for (size_t i = 0; i < ids.n; i++)
            printf("%s%u", i == 0 ? "" : " ", ids.ids[i]);
        if (args->shows_ids)
            printf("\n");
        fwrite(text.data, 1, text.len_bytes, stdout);
    }
    token_ids_fini(&ids);
    buf_fini(&text);
    if (rc != 0)
        return cli_failed(NAME, NULL, &fault);
    return cli_done(NAME);
}

static int render(const struct render_args *args)
{
    struct conversation conversation = {0};
    struct chat_format *format = NULL;
    struct fault fault = {0};
    int status;

    arena_init(&conversation.arena, 0);
    if (open_format(args, &fault, &format) != 0)
        status = cli_failed(NAME, args->model, &fault);
    else if (args->user != NULL && ask(args, &conversation, &fault) != 0)
        status = cli_failed(NAME, NULL, &fault);
    else if (args->user == NULL && read_conversation(args->conversation_path, &conversation, &fault) != 0)
        status = cli_failed(NAME, args->conversation_path, &fault);
    else {
        conversation.prompt.adds_generation = !args->ends_closed;
        conversation.prompt.continues_last = args->continues_last;
        conversation.prompt.thinking = args->thinking;
        status = print_rendered(args, format, &conversation.prompt);
    }
    chat_format_free(format);
    json_decref(conversation.json);
    arena_fini(&conversation.arena);
    return status;
}

static const struct option OPTIONS[] = {
    {"file", required_argument, NULL, 'f'},   {"user", required_argument, NULL, 'u'},
    {"system", required_argument, NULL, 's'}, {"template", required_argument, NULL, 't'},
    {"ids", no_argument, NULL, 'i'},          {"no-generation", no_argument, NULL, 'n'},
    {"continue", no_argument, NULL, 'c'},     {"thinking", required_argument, NULL, 'k'},
    {"help", no_argument, NULL, 'h'},         {NULL, 0, NULL, 0}};

static void take_option(int option, struct render_args *args)
{
    if (option == 'f')
        args->conversation_path = optarg;
    else if (option == 'u')
        args->user = optarg;
    else if (option == 's')
        args->system = optarg;
    else if (option == 't')
        args->template_path = optarg;
    else if (option == 'k')
        args->thinking = strcmp(optarg, "off") == 0 ? CHAT_THINKING_OFF : CHAT_THINKING_ON;
    args->shows_ids |= option == 'i';
    args->ends_closed |= option == 'n';
    args->continues_last |= option == 'c';
}

int cmd_render(int argc, char **argv)
{
    struct render_args args = {0};
    int option;

    while ((option = getopt_long(argc, argv, "h", OPTIONS, NULL)) != -1) {
        if (option == 'h') {
            fputs(HELP, stdout);
            return cli_done(NAME);
        }
        if (option == '?')
            return cli_usage(NAME, NULL);
        take_option(option, &args);
    }
    if (optind + 1 != argc)
        return cli_usage(NAME, "name one model file");
    args.model = argv[optind];
    if ((args.user != NULL) == (args.conversation_path != NULL))
        return cli_usage(NAME, "give a conversation (--file) or a question (--user)");
    if (args.system != NULL && args.user == NULL)
        return cli_usage(NAME, "--system goes with --user");
    return render(&args);
}
