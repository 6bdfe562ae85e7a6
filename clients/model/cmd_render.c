/* SPDX-License-Identifier: Apache-2.0 */
/* baton-model render: the prompt that a model would get for a conversation.
 *
 * The conversation is a request's body of either chat API (render_body.c), or a question (and a system text)
 * on the command line.  It goes through the server's own parser and prompt code.  So the prompt is the
 * server's, and a body that a server refuses is refused here.  The output is the prompt's text with its
 * control tokens spelled out, or its token ids.  --template replaces the file's own chat template, to try
 * another one. */
#include "clients/model/model_cli.h"

#include "base/err.h"
#include "clients/model/render_body.h"
#include "serve/prompt/prompt.h"
#include "gguf/write.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_INPUT_BYTES ((size_t)64 << 20)

static const char NAME[] = "render";

static const char HELP[] =
    "Usage: baton-model render [OPTIONS] MODEL.gguf\n"
    "Print a conversation in the model's chat format.\n"
    "\n"
    "  --file FILE.json   the conversation: the body of a request to /v1/chat/completions or\n"
    "                     /v1/messages, its model left out or not (-: stdin)\n"
    "  --user TEXT        or: a user's question\n"
    "  --system TEXT      with --user: a system text before it\n"
    "  --template FILE    use this chat template instead of the model's\n"
    "  --ids              print token ids instead of text\n"
    "  --no-generation    do not open the assistant's turn at the end\n"
    "  --continue         leave the last turn open if it is the assistant's\n"
    "  --thinking on|off  value of the template's enable_thinking\n"
    "  --help             this text\n";

struct render_args {
    const char *model, *conversation_path, *template_path, *user, *system;
    bool shows_ids, ends_closed, continues_last;
    enum gen_thinking thinking;
};

/* ---- the model ---- */

/* The model's vocabulary with another template, for prompts with tools too. */
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
        rc = gguf_put_str(writer, "tokenizer.chat_template.tool_use", bytes_str(""));
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

static int open_model(const struct render_args *args, struct fault *fault, struct gen_model *out)
{
    struct gguf *gguf;
    int rc = gguf_open(args->model, fault, &gguf);

    if (rc != 0)
        return rc;
    rc = args->template_path == NULL ? tokenizer_new(gguf, fault, &out->tokenizer)
                                     : replace_template(gguf, args->template_path, fault, &out->tokenizer);
    if (rc == 0)
        rc = chat_format_new(out->tokenizer, fault, &out->chat);
    if (rc == 0 && chat_format_warning(out->chat) != NULL)
        fprintf(stderr, "baton-model %s: the chat template: %s\n", NAME, chat_format_warning(out->chat));
    gguf_close(gguf);
    return rc;
}

/* ---- the command ---- */

static int read_request(const struct render_args *args, struct gen_request *out, struct fault *fault)
{
    struct render_body body = {
        .user = args->user, .system = args->system, .continues_last = args->continues_last};
    struct buf text = {0};
    int rc = 0;

    if (args->conversation_path != NULL)
        rc = cli_read(args->conversation_path, MAX_INPUT_BYTES, fault, &text);
    body.text = buf_view(&text);
    if (rc == 0)
        rc = render_body_read(&body, out, fault);
    buf_fini(&text);
    return rc;
}

static int print_rendered(const struct render_args *args, const struct gen_model *model,
                          struct gen_request *request)
{
    unsigned how = (args->shows_ids ? PROMPT_SHOW_IDS : 0u) | (args->ends_closed ? PROMPT_SHOW_CLOSED : 0u);
    struct api_error error = {0};
    struct fault fault = {0};
    struct buf text = {0};
    int rc;

    if (args->thinking != GEN_THINKING_UNSAID)
        request->thinking = args->thinking;
    rc = prompt_show(model, request, how, &text, &error);
    if (rc == 0) {
        fwrite(text.data, 1, text.len_bytes, stdout);
        if (args->shows_ids)
            printf("\n");
    }
    buf_fini(&text);
    if (rc < 0) {
        fault_set(&fault, rc, "%s", error.message);
        return cli_failed(NAME, NULL, &fault);
    }
    return cli_done(NAME);
}

static int model_cmd_render(const struct render_args *args)
{
    struct gen_request request = {0};
    struct gen_model model = {0};
    struct fault fault = {0};
    int status;

    if (open_model(args, &fault, &model) != 0) {
        status = cli_failed(NAME, args->model, &fault);
    } else if (read_request(args, &request, &fault) != 0) {
        status = cli_failed(NAME, args->conversation_path, &fault);
    } else {
        status = print_rendered(args, &model, &request);
        gen_request_fini(&request);
    }
    chat_format_free(model.chat);
    tokenizer_unref(model.tokenizer);
    return status;
}

static const struct option OPTIONS[] = {
    {"file", required_argument, NULL, 'f'},   {"user", required_argument, NULL, 'u'},
    {"system", required_argument, NULL, 's'}, {"template", required_argument, NULL, 't'},
    {"ids", no_argument, NULL, 'i'},          {"no-generation", no_argument, NULL, 'n'},
    {"continue", no_argument, NULL, 'c'},     {"thinking", required_argument, NULL, 'k'},
    {"help", no_argument, NULL, 'h'},         {NULL, 0, NULL, 0}};

static void cmd_render_take_option(int option, struct render_args *args)
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
        args->thinking = strcmp(optarg, "off") == 0 ? GEN_THINKING_OFF : GEN_THINKING_ON;
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
        cmd_render_take_option(option, &args);
    }
    if (optind + 1 != argc)
        return cli_usage(NAME, "name one model file");
    args.model = argv[optind];
    if ((args.user != NULL) == (args.conversation_path != NULL))
        return cli_usage(NAME, "give a conversation (--file) or a question (--user)");
    if (args.system != NULL && args.user == NULL)
        return cli_usage(NAME, "--system goes with --user");
    return model_cmd_render(&args);
}
