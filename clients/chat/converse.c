/* SPDX-License-Identifier: Apache-2.0 */
/* The conversation, from a terminal or from any other stdin.
 *
 * On a terminal libedit edits lines and keeps a history in the user's state folder.  It reads characters
 * through chat_converse_read_char() below: Ctrl-C must drop the current line and nothing else, but libedit's own reader
 * tries again after the first interrupt.  While an answer streams, Ctrl-C belongs to turn.c.
 *
 * The terminal is configured before the prompt is shown, because a user who sees the prompt may type at once;
 * libedit would configure it later.  A Ctrl-D typed earlier, such as while an answer streams, arrives as a NUL.
 * chat_converse_read_char() turns it back.
 *
 * A line that ends in a backslash continues in the next one.  Lines that begin with '/' are commands. */
#include "clients/chat/chat.h"

#include <errno.h>
#include <histedit.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <wchar.h>

#include "base/check.h"
#include "base/err.h"
#include "base/str.h"

enum { CTRL_D = 4 };

struct talk {
    struct chat *chat;
    EditLine *editor; /* NULL: not a terminal */
    History *history;
    char history_path[512]; /* "": not kept */
    const char *prompt;
    bool is_over;
    int status;
};

static volatile sig_atomic_t was_interrupted; /* set by the handler, read by chat_converse_read_char() */
static int n_typed_ahead; /* bytes that came before the terminal was made ready, not read yet */

static void on_sigint(int number)
{
    was_interrupted = 1;
}

/* ---- commands ---- */

static void do_help(struct talk *talk, const char *rest);

static void do_system(struct talk *talk, const char *rest)
{
    const char *now = talk->chat->session.system;

    if (*rest == '\0')
        fprintf(stderr, "[system prompt: %s]\n", now != NULL ? now : "none");
    else if (session_set_system(&talk->chat->session, strcmp(rest, "none") == 0 ? NULL : rest) == 0)
        fprintf(stderr, "[system prompt set; /clear also forgets what was said]\n");
}

static void do_clear(struct talk *talk, const char *rest)
{
    session_clear(&talk->chat->session);
    fprintf(stderr, "[a new conversation]\n");
}

static void do_timings(struct talk *talk, const char *rest)
{
    talk->chat->shows_timings = !talk->chat->shows_timings;
    fprintf(stderr, "[timings %s]\n", talk->chat->shows_timings ? "on" : "off");
}

static void do_save(struct talk *talk, const char *rest)
{
    struct buf text = {0};
    FILE *file;
    bool is_saved;

    if (*rest == '\0') {
        fprintf(stderr, "[/save wants a file]\n");
        return;
    }
    file = fopen(rest, "wx");
    if (file == NULL) {
        fprintf(stderr, "[%s: %s]\n", rest, strerror(errno));
        return;
    }
    is_saved = session_put_transcript(&talk->chat->session, &text) == 0 &&
               fwrite(text.data, 1, text.len_bytes, file) == text.len_bytes;
    is_saved = fclose(file) == 0 && is_saved;
    fprintf(stderr, "[%s: %s]\n", rest, is_saved ? "saved" : "cannot write");
    buf_fini(&text);
}

static void do_quit(struct talk *talk, const char *rest)
{
    talk->is_over = true;
}

static const struct {
    const char *name;
    const char *text;
    void (*run)(struct talk *talk, const char *rest);
} commands[] = {
    {"/help", "this list", do_help},
    {"/system", "shows the system prompt; /system TEXT sets it, /system none drops it", do_system},
    {"/clear", "begins a new conversation", do_clear},
    {"/timings", "shows or no longer shows how each answer was served", do_timings},
    {"/save", "/save FILE writes the conversation to a new file", do_save},
    {"/quit", "ends; so does Ctrl-D", do_quit},
};

static void do_help(struct talk *talk, const char *rest)
{
    for (size_t i = 0; i < ARRAY_LEN(commands); i++)
        fprintf(stderr, "  %-9s %s\n", commands[i].name, commands[i].text);
    fprintf(stderr, "  A backslash at the end of a line continues it.  Ctrl-C stops an answer.\n");
}

static void chat_converse_run_command(struct talk *talk, const char *line)
{
    size_t len = strcspn(line, " \t");
    const char *rest = line + len + strspn(line + len, " \t");

    for (size_t i = 0; i < ARRAY_LEN(commands); i++) {
        if (strlen(commands[i].name) == len && memcmp(line, commands[i].name, len) == 0) {
            commands[i].run(talk, rest);
            return;
        }
    }
    fprintf(stderr, "[no such command: %.*s; /help lists them]\n", (int)len, line);
}

/* ---- lines ---- */

/* For libedit: reads the next character; -1 ends the line with an error, 0 is the end of input.  poll() comes
 * first: a signal interrupts it with any flags of the handler; libedit makes read() restart. */
static int chat_converse_read_char(EditLine *editor, wchar_t *out)
{
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    mbstate_t state = {0};

    for (;;) {
        unsigned char byte;
        ssize_t n = was_interrupted ? -1 : poll(&input, 1, -1);
        size_t taken;

        if (n > 0)
            n = read(STDIN_FILENO, &byte, 1);
        if (n < 0 && errno == EINTR && !was_interrupted)
            continue;
        if (n <= 0)
            return (int)n;
        if (n_typed_ahead > 0 && n_typed_ahead-- && byte == '\0')
            byte = CTRL_D;
        taken = mbrtowc(out, (const char *)&byte, 1, &state);
        if (taken == (size_t)-2)
            continue;
        if (taken == (size_t)-1) { /* not UTF-8: drop it */
            state = (mbstate_t){0};
            continue;
        }
        return 1;
    }
}

static char *prompt_of(EditLine *editor)
{
    struct talk *talk;

    el_get(editor, EL_CLIENTDATA, &talk);
    return (char *)(uintptr_t)talk->prompt;
}

/* Appends one line without its newline.  Returns 1; 0: end of input; E_CANCELLED: Ctrl-C. */
static int chat_converse_next_line(struct talk *talk, struct buf *out)
{
    static char *line; /* getline's */
    static size_t cap;
    const char *text;
    int n = 0;

    if (talk->editor != NULL) {
        was_interrupted = 0;
        n_typed_ahead = 0;
        el_set(talk->editor, EL_PREP_TERM, 1);
        ioctl(STDIN_FILENO, FIONREAD, &n_typed_ahead);
        text = el_gets(talk->editor, &n);
        if (was_interrupted)
            return E_CANCELLED;
    } else {
        n = (int)getline(&line, &cap, stdin);
        text = n > 0 ? line : NULL;
    }
    if (text == NULL || n <= 0)
        return 0;
    while (n > 0 && (text[n - 1] == '\n' || text[n - 1] == '\r'))
        n--;
    buf_append(out, text, (size_t)n);
    return 1;
}

/* A line with its continuations. */
static int next_input(struct talk *talk, struct buf *out)
{
    int rc;

    talk->prompt = "> ";
    buf_clear(out);
    for (;;) {
        rc = chat_converse_next_line(talk, out);
        if (rc <= 0 || out->len_bytes == 0 || out->data[out->len_bytes - 1] != '\\')
            break;
        out->data[out->len_bytes - 1] = '\n';
        talk->prompt = ". ";
    }
    return rc == 0 && out->len_bytes > 0 ? 1 : rc;
}

/* ---- history ---- */

/* Makes every folder on the way to path; whether it can be used. */
static bool chat_converse_make_folders(char *path)
{
    for (char *slash = strchr(path + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (mkdir(path, 0700) < 0 && errno != EEXIST) {
            *slash = '/';
            return false;
        }
        *slash = '/';
    }
    return true;
}

static void find_history(struct talk *talk)
{
    const char *state = getenv("XDG_STATE_HOME");
    const char *home = getenv("HOME");
    int n = -1;

    if (state != NULL && *state == '/')
        n = snprintf(talk->history_path, sizeof(talk->history_path), "%s/baton/chat_history", state);
    else if (home != NULL && *home == '/')
        n = snprintf(talk->history_path, sizeof(talk->history_path), "%s/.local/state/baton/chat_history",
                     home);
    if (n < 0 || (size_t)n >= sizeof(talk->history_path) || !chat_converse_make_folders(talk->history_path))
        talk->history_path[0] = '\0';
}

static void chat_converse_remember(struct talk *talk, const struct buf *input)
{
    HistEvent event;

    if (talk->history == NULL || memchr(input->data, '\n', input->len_bytes) != NULL)
        return;
    history(talk->history, &event, H_ENTER, (const char *)input->data);
    if (talk->history_path[0] != '\0')
        history(talk->history, &event, H_SAVE, talk->history_path);
}

static int open_editor(struct talk *talk)
{
    HistEvent event;

    talk->editor = el_init(CHAT_NAME, stdin, stdout, stderr);
    talk->history = history_init();
    if (talk->editor == NULL || talk->history == NULL)
        return E_NOMEM;
    find_history(talk);
    history(talk->history, &event, H_SETSIZE, 1000);
    history(talk->history, &event, H_SETUNIQUE, 1);
    if (talk->history_path[0] != '\0')
        history(talk->history, &event, H_LOAD, talk->history_path);
    el_set(talk->editor, EL_CLIENTDATA, talk);
    el_set(talk->editor, EL_PROMPT, prompt_of);
    el_set(talk->editor, EL_EDITOR, "emacs");
    el_set(talk->editor, EL_SIGNAL, 1);
    el_set(talk->editor, EL_GETCFN, chat_converse_read_char);
    el_set(talk->editor, EL_HIST, history, talk->history);
    el_set(talk->editor, EL_BIND, "^R", "em-inc-search-prev", NULL);
    el_source(talk->editor, NULL);
    return 0;
}

static void close_editor(struct talk *talk)
{
    if (talk->editor != NULL)
        el_end(talk->editor);
    if (talk->history != NULL)
        history_end(talk->history);
}

/* ---- the conversation ---- */

static void chat_converse_take_input(struct talk *talk, struct buf *input)
{
    const char *text = (const char *)input->data;

    if (input->len_bytes == 0 || strspn(text, " \t\n") == input->len_bytes)
        return;
    chat_converse_remember(talk, input);
    if (text[0] == '/')
        chat_converse_run_command(talk, text);
    else if (!chat_ask(talk->chat, buf_view(input)))
        talk->status = EXIT_FAILED;
}

int chat_converse(struct chat *chat)
{
    struct sigaction interrupt = {.sa_handler = on_sigint}; /* no SA_RESTART: read() is to return */
    struct talk talk = {.chat = chat};
    struct buf input = {0};

    if (isatty(STDIN_FILENO) && isatty(STDOUT_FILENO)) {
        sigaction(SIGINT, &interrupt, NULL);
        if (open_editor(&talk) < 0) {
            close_editor(&talk);
            return complain(CHAT_NAME, "cannot set up line editing");
        }
        fprintf(stderr, "%s at %s; /help lists commands, Ctrl-D quits\n", chat->session.model,
                chat->server.url.address);
    }
    while (!talk.is_over) {
        int rc = next_input(&talk, &input);

        if (rc == 0)
            break;
        if (rc == E_CANCELLED)
            putchar('\n');
        else
            chat_converse_take_input(&talk, &input);
    }
    if (talk.editor != NULL && !talk.is_over)
        putchar('\n');
    close_editor(&talk);
    buf_fini(&input);
    /* A terminal's user saw each failure; a script sees the status. */
    return talk.editor != NULL        ? finish_output(CHAT_NAME)
           : talk.status == EXIT_DONE ? finish_output(CHAT_NAME)
                                      : talk.status;
}
