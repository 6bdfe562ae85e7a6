/* SPDX-License-Identifier: Apache-2.0 */
/* baton-chat: talks to a Messages endpoint from a terminal or a script.  This file reads the command line and
 * finds the model.  ask.c asks one question, converse.c runs the conversation. */
#include <getopt.h>
#include <locale.h>
#include <langinfo.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "clients/chat/chat.h"

enum { OPT_TOP_P = 256, OPT_API_KEY, OPT_ASK, OPT_TOOLS, OPT_TEST, OPT_ROUNDS };

struct options {
    const char *url;
    bool has_url;
    const char *model;
    const char *more_urls[SERVER_MAX_OTHERS];
    size_t n_more;
    const char *system;
    const char *api_key;
    const char *question;
    bool has_tools;
    const char *folder; /* NULL with tools: a new one */
    const char *test_command;
};

static void chat_main_print_help(void)
{
    printf("usage: baton-chat [OPTION]...\n\n"
           "Talks to a Messages endpoint; without --ask, a conversation (/help lists its commands).\n\n"
           "  -u, --url URL          the server (http://127.0.0.1:8080); again: another router of the same\n"
           "                         cluster, where an answer goes on if the first is lost\n"
           "  -m, --model NAME       the model (the first that the server lists)\n"
           "  -s, --system TEXT      the system prompt\n"
           "  -n, --max-tokens N     at most N tokens per answer (1024)\n"
           "  -T, --temperature X    0 always takes the likeliest token (the model's default)\n"
           "      --top-p X          only the likeliest tokens that add up to X\n"
           "      --seed N           same seed, same question, same answer\n"
           "      --api-key KEY      also from $BATON_API_KEY, which other users cannot see\n"
           "      --ask TEXT         one question; status 0 only for a whole answer\n"
           "      --tools[=FOLDER]   let the model list, search, read and edit files in FOLDER, and\n"
           "                         nowhere else; without FOLDER in a new one with a small project\n"
           "      --test COMMAND     command of its run_tests tool, run in FOLDER\n"
           "      --max-rounds N     at most N rounds of tools per question (40)\n"
           "  -t, --timings          after each answer, how it was served and how fast\n"
           "  -h, --help             this text\n"
           "  -V, --version          the version\n");
}

static const struct option options_long[] = {
    {"url", required_argument, NULL, 'u'},         {"model", required_argument, NULL, 'm'},
    {"system", required_argument, NULL, 's'},      {"max-tokens", required_argument, NULL, 'n'},
    {"temperature", required_argument, NULL, 'T'}, {"top-p", required_argument, NULL, OPT_TOP_P},
    {"seed", required_argument, NULL, 'S'},        {"api-key", required_argument, NULL, OPT_API_KEY},
    {"ask", required_argument, NULL, OPT_ASK},     {"tools", optional_argument, NULL, OPT_TOOLS},
    {"test", required_argument, NULL, OPT_TEST},   {"max-rounds", required_argument, NULL, OPT_ROUNDS},
    {"timings", no_argument, NULL, 't'},           {"help", no_argument, NULL, 'h'},
    {"version", no_argument, NULL, 'V'},           {NULL, 0, NULL, 0}};

/* Options that set how answers are drawn; false with a complaint. */
static bool set_sampling(struct session *session, int c, const char *text)
{
    switch (c) {
    case 'n':
        if (!option_u64(CHAT_NAME, "--max-tokens", text, &session->max_tokens))
            return false;
        if (session->max_tokens == 0)
            complain_usage(CHAT_NAME, "--max-tokens wants at least 1");
        return session->max_tokens > 0;
    case 'T':
        session->has_temperature = true;
        return option_f64(CHAT_NAME, "--temperature", text, &session->temperature);
    case OPT_TOP_P:
        session->has_top_p = true;
        return option_f64(CHAT_NAME, "--top-p", text, &session->top_p);
    default:
        session->has_seed = true;
        return option_u64(CHAT_NAME, "--seed", text, &session->seed);
    }
}

static bool set_url(struct options *options, const char *url)
{
    if (!options->has_url) {
        options->has_url = true;
        options->url = url;
        return true;
    }
    if (options->n_more == SERVER_MAX_OTHERS) {
        complain_usage(CHAT_NAME, "--url: at most %d", SERVER_MAX_OTHERS + 1);
        return false;
    }
    options->more_urls[options->n_more++] = url;
    return true;
}

static bool set_tools(struct options *options, struct chat *chat, int c)
{
    if (c == OPT_ROUNDS)
        return option_u64(CHAT_NAME, "--max-rounds", optarg, &chat->max_rounds);
    if (c == OPT_TEST)
        options->test_command = optarg;
    else
        options->folder = optarg;
    options->has_tools = options->has_tools || c == OPT_TOOLS;
    return true;
}

/* Returns EXIT_DONE to continue, unless *is_over_out says that --help or --version has ended the program. */
static int read_options(int argc, char **argv, struct options *options, struct chat *chat, bool *is_over_out)
{
    int c;

    while ((c = getopt_long(argc, argv, "u:m:s:n:T:thV", options_long, NULL)) != -1) {
        switch (c) {
        case 'u':
            if (!set_url(options, optarg))
                return EXIT_USAGE;
            break;
        case 'm':
            options->model = optarg;
            break;
        case 's':
            options->system = optarg;
            break;
        case 'n':
        case 'T':
        case OPT_TOP_P:
        case 'S':
            if (!set_sampling(&chat->session, c, optarg))
                return EXIT_USAGE;
            break;
        case OPT_API_KEY:
            options->api_key = optarg;
            break;
        case OPT_ASK:
            options->question = optarg;
            break;
        case OPT_TOOLS:
        case OPT_TEST:
        case OPT_ROUNDS:
            if (!set_tools(options, chat, c))
                return EXIT_USAGE;
            break;
        case 't':
            chat->shows_timings = true;
            break;
        case 'h':
        case 'V':
            if (c == 'h')
                chat_main_print_help();
            else
                printf("%s %s\n", CHAT_NAME, PACKAGE_VERSION);
            *is_over_out = true;
            return finish_output(CHAT_NAME);
        default:
            return EXIT_USAGE;
        }
    }
    if (optind < argc)
        return complain_usage(CHAT_NAME, "unexpected argument: %s (a question goes to --ask)", argv[optind]);
    if (options->test_command != NULL && options->folder == NULL)
        return complain_usage(CHAT_NAME, "--test belongs to --tools=FOLDER");
    return EXIT_DONE;
}

static int prepare_tools(struct chat *chat, const struct options *options)
{
    struct fault fault = {0};
    struct buf definitions = {0};
    int rc = options->folder != NULL
                 ? tools_open(options->folder, options->test_command, &fault, &chat->tools)
                 : tools_open_scratch(&fault, &chat->tools);

    if (rc == 0)
        rc = tools_put_definitions(&chat->tools, &definitions);
    if (rc == 0)
        chat->session.tools = buf_take_str(&definitions);
    if (rc < 0 || chat->session.tools == NULL)
        return complain(CHAT_NAME, "--tools: %s", fault.text[0] != '\0' ? fault.text : "out of memory");
    chat->has_tools = true;
    fprintf(stderr, "[tools work in %s]\n", chat->tools.folder.path);
    return EXIT_DONE;
}

static int chat_main_prepare(struct chat *chat, const struct options *options)
{
    const struct server_opts server = {.program = CHAT_NAME,
                                       .url = options->url,
                                       .more_urls = options->more_urls,
                                       .n_more = options->n_more,
                                       .api_key = options->api_key};
    int rc = server_open(&server, &chat->server);

    if (rc == EXIT_DONE)
        rc = server_model(&chat->server, options->model, &chat->session.model);
    if (rc == EXIT_DONE && session_set_system(&chat->session, options->system) < 0)
        rc = complain(CHAT_NAME, "out of memory");
    if (rc == EXIT_DONE && options->has_tools)
        rc = prepare_tools(chat, options);
    return rc;
}

static void set_locale(void)
{
    setlocale(LC_ALL, "");
    if (strcmp(nl_langinfo(CODESET), "UTF-8") != 0)
        setlocale(LC_CTYPE, "C.UTF-8");
    setlocale(LC_NUMERIC, "C"); /* numbers go into JSON */
}

int main(int argc, char **argv)
{
    struct options options = {.url = "http://127.0.0.1:8080", .api_key = getenv("BATON_API_KEY")};
    struct chat chat = {.session = {.max_tokens = 1024},
                        .tools = {.folder = {.fd = -1}},
                        .max_rounds = 40,
                        .is_to_terminal = isatty(STDOUT_FILENO)};
    bool is_over = false;
    int status;

    set_locale();
    signal(SIGPIPE, SIG_IGN);
    status = read_options(argc, argv, &options, &chat, &is_over);
    if (status != EXIT_DONE || is_over)
        return status;
    status = chat_main_prepare(&chat, &options);
    if (status == EXIT_DONE && options.question != NULL)
        status = chat_ask(&chat, bytes_str(options.question)) ? finish_output(CHAT_NAME) : EXIT_FAILED;
    else if (status == EXIT_DONE)
        status = chat_converse(&chat);
    server_close(&chat.server);
    tools_close(&chat.tools);
    session_fini(&chat.session);
    return status;
}
