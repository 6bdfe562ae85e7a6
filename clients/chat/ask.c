/* SPDX-License-Identifier: Apache-2.0 */
/* One question: the session becomes a request.  The answer goes to stdout piece by piece, and into the
 * session.
 *
 * A model's output is not safe for a terminal: escape sequences could move the cursor or set the title.  So a
 * terminal gets no control characters (C0, DEL and C1).  A file or pipe gets the answer unchanged.
 *
 * A question without an answer leaves the session again, so the user can repeat it.  A cancelled question
 * stays with the answer so far.  The session never ends with calls, because the server refuses calls without
 * results.
 *
 * With tools a question may take several rounds.  This program runs the calls of an answer, shows each call
 * and its result on stderr, and sends the results as the next message.  The session keeps every round, so the
 * server finds its earlier work in the prefix cache.  Finished rounds stay when the user or the limit ends the
 * question, because the model has to know what it has done to the files; the next question follows the last
 * results.  A failure drops them with the question: it may come again for any request that has them. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/str.h"
#include "clients/chat/chat.h"
#include "clients/chat/turn.h"

#define SILENCE_NS (120 * NS_PER_S)

void chat_put_safe(struct bytes text, struct buf *out)
{
    for (size_t at = 0, len; at < text.len_bytes; at += len) {
        uint32_t c = utf8_next(text, at, &len);

        if ((c < ' ' && c != '\n' && c != '\t') || (c >= 0x7f && c < 0xa0))
            continue;
        buf_append(out, text.data + at, len);
    }
}

static void chat_ask_show(void *arg, enum answer_part part, struct bytes text)
{
    struct chat *chat = arg;
    struct buf safe = {0};

    if (part != ANSWER_TEXT)
        return;
    if (chat->is_to_terminal) {
        chat_put_safe(text, &safe);
        text = buf_view(&safe);
    }
    if (text.len_bytes > 0) {
        fwrite(text.data, 1, text.len_bytes, stdout);
        fflush(stdout);
        chat->ends_line = text.data[text.len_bytes - 1] == '\n';
    }
    buf_fini(&safe);
}

static void chat_ask_report(struct chat *chat, const struct turn *turn)
{
    struct buf line = {0};

    if (!chat->ends_line) {
        putchar('\n');
        fflush(stdout);
        chat->ends_line = true;
    }
    if (turn->is_aborted)
        fprintf(stderr, "[stopped]\n");
    else if (!turn->answer.is_whole)
        complain(CHAT_NAME, "%s: %s", turn->answer.error_type, turn->answer.error_text);
    else if (strcmp(turn->answer.stop_reason, "max_tokens") == 0)
        fprintf(stderr, "[cut at %llu tokens; --max-tokens allows more]\n",
                (unsigned long long)turn->answer.output_tokens);
    if (turn->answer.is_whole && chat->shows_timings) {
        turn_put_timings(turn, &line);
        if (line.len_bytes > 0)
            fwrite(line.data, 1, line.len_bytes, stderr);
    }
    buf_fini(&line);
}

/* ---- rounds ---- */

static struct bytes input_of(const struct turn_call *call)
{
    return call->input.len_bytes > 0 ? buf_view(&call->input) : bytes_str("{}");
}

/* Renders the text and the calls of an answer as the blocks of an assistant's message. */
static void chat_ask_put_answer(const struct turn *turn, struct buf *out)
{
    buf_append_str(out, "[");
    if (turn->text.len_bytes > 0) {
        buf_append_str(out, "{\"type\": \"text\", \"text\": ");
        json_put_str(out, buf_view(&turn->text));
        buf_append_str(out, "}");
    }
    for (size_t i = 0; i < turn->n_calls; i++) {
        struct bytes input = input_of(&turn->calls[i]);

        buf_printf(out, "%s{\"type\": \"tool_use\", \"id\": ", out->len_bytes > 1 ? ", " : "");
        json_put_str(out, bytes_str(turn->calls[i].id));
        buf_append_str(out, ", \"name\": ");
        json_put_str(out, buf_view(&turn->calls[i].name));
        buf_append_str(out, ", \"input\": ");
        buf_append(out, input.data, input.len_bytes);
        buf_append_str(out, "}");
    }
    buf_append_str(out, "]");
}

/* Prints one short line on stderr that is safe for a terminal. */
static void show_line(const char *mark, struct bytes text)
{
    struct buf safe = {0};
    size_t n;

    chat_put_safe(text, &safe);
    for (n = 0; n < safe.len_bytes && n < 160 && safe.data[n] != '\n';)
        n++;
    n = utf8_valid_prefix(bytes_of(safe.data, n));
    fprintf(stderr, "  %s %.*s%s\n", mark, (int)n, n > 0 ? (const char *)safe.data : "",
            n < safe.len_bytes ? " ..." : "");
    buf_fini(&safe);
}

static void run_call(struct chat *chat, const struct turn_call *call, struct buf *out)
{
    struct buf line = {0};
    struct buf result = {0};
    bool is_good;

    buf_printf(&line, "%.*s ", (int)call->name.len_bytes, (const char *)call->name.data);
    buf_append(&line, input_of(call).data, input_of(call).len_bytes);
    show_line(">", buf_view(&line));
    is_good = tools_run(&chat->tools, buf_view(&call->name), input_of(call), &result);
    show_line("<", buf_view(&result));
    buf_printf(out, "%s{\"type\": \"tool_result\", \"tool_use_id\": ", out->len_bytes > 1 ? ", " : "");
    json_put_str(out, bytes_str(call->id));
    buf_append_str(out, ", \"content\": ");
    json_put_str(out, buf_view(&result));
    buf_append_str(out, is_good ? "}" : ", \"is_error\": true}");
    buf_fini(&line);
    buf_fini(&result);
}

static bool chat_ask_wants_tools(const struct chat *chat, const struct turn *turn)
{
    return chat->has_tools && turn->answer.is_whole && !turn->is_aborted && turn->n_calls > 0 &&
           strcmp(turn->answer.stop_reason, "tool_use") == 0;
}

/* Adds the calls of a round and their results to the session.  False: the session lacks one of them. */
static bool answer_calls(struct chat *chat, const struct turn *turn)
{
    struct buf said = {0};
    struct buf results = {0};
    bool is_kept;

    chat_ask_put_answer(turn, &said);
    buf_append_str(&results, "[");
    for (size_t i = 0; i < turn->n_calls; i++)
        run_call(chat, &turn->calls[i], &results);
    buf_append_str(&results, "]");
    is_kept = !said.is_bad && !results.is_bad &&
              session_add_blocks(&chat->session, true, buf_view(&said)) == 0 &&
              session_add_blocks(&chat->session, false, buf_view(&results)) == 0;
    buf_fini(&said);
    buf_fini(&results);
    if (!is_kept)
        complain(CHAT_NAME, "out of memory");
    return is_kept;
}

/* Keeps the last answer of a question.  False: no answer came, and the question is to leave the session.
 * has_rounds: the session has rounds of this question. */
static bool chat_ask_keep(struct chat *chat, const struct turn *turn, bool has_rounds)
{
    if (turn->text.len_bytes > 0)
        return session_add(&chat->session, true, buf_view(&turn->text)) == 0;
    return has_rounds && (turn->answer.is_whole || turn->is_aborted);
}

/* One request with the session as it is. */
static bool ask_once(struct chat *chat, struct turn *turn)
{
    struct stream_opts opts = {.loop = chat->server.loop,
                               .client = chat->server.client,
                               .fields = &chat->server.fields,
                               .others = chat->server.others,
                               .n_others = chat->server.n_others,
                               .max_resumes = 10,
                               .silence_ns = SILENCE_NS,
                               .on_piece = chat_ask_show,
                               .arg = chat};
    struct buf body = {0};
    char path[SERVER_PATH_BYTES];

    if (session_put_request(&chat->session, &body) < 0) {
        buf_fini(&body);
        complain(CHAT_NAME, "out of memory");
        return false;
    }
    server_path(&chat->server, "/v1/messages", path);
    opts.path = path;
    opts.body = buf_view(&body);
    chat->ends_line = true;
    turn_run(&opts, turn);
    chat_ask_report(chat, turn);
    buf_fini(&body);
    return true;
}

bool chat_ask(struct chat *chat, struct bytes text)
{
    size_t n_before = chat->session.n_messages;
    struct turn turn;
    bool is_whole = false, is_kept = true, goes_on = true;

    if (session_add(&chat->session, false, text) < 0) {
        complain(CHAT_NAME, "out of memory");
        return false;
    }
    for (uint64_t round = 0; goes_on; round++) {
        if (!ask_once(chat, &turn)) {
            is_whole = is_kept = false;
            break;
        }
        goes_on = chat_ask_wants_tools(chat, &turn) && round < chat->max_rounds;
        if (chat_ask_wants_tools(chat, &turn) && !goes_on)
            fprintf(stderr, "[stopped after %llu rounds of tools; --max-rounds allows more]\n",
                    (unsigned long long)round);
        is_kept = goes_on ? answer_calls(chat, &turn) : chat_ask_keep(chat, &turn, round > 0);
        is_whole = turn.answer.is_whole && !turn.is_aborted && !chat_ask_wants_tools(chat, &turn);
        goes_on = goes_on && is_kept;
        turn_fini(&turn);
    }
    if (!is_kept)
        session_cut(&chat->session, n_before);
    return is_whole;
}
