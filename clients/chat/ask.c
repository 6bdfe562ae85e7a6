/* SPDX-License-Identifier: Apache-2.0 */
/* One question: the session becomes a request, the answer goes to stdout piece by piece and into the session.
 *
 * What a model writes is not to be trusted with a terminal: escape sequences could move the cursor, set the
 * title or worse.  So when stdout is a terminal, control characters (C0, DEL and C1) are left out; into a
 * file or pipe the answer goes as it is.
 *
 * A question without an answer leaves the session again, so that it can be asked anew; one that was broken
 * off stays with what was said so far. */
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

static void show(void *arg, enum answer_part part, struct bytes text)
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

static void report(struct chat *chat, const struct turn *turn)
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

/* Keeps question and answer together: both or none. */
static void keep(struct chat *chat, const struct turn *turn)
{
    if (turn->text.len_bytes == 0 || session_add(&chat->session, true, buf_view(&turn->text)) < 0)
        session_drop_last(&chat->session);
}

bool chat_ask(struct chat *chat, struct bytes text)
{
    struct stream_opts opts = {.loop = chat->server.loop,
                               .client = chat->server.client,
                               .fields = &chat->server.fields,
                               .silence_ns = SILENCE_NS,
                               .on_piece = show,
                               .arg = chat};
    struct buf body = {0};
    struct turn turn;
    char path[SERVER_PATH_BYTES];
    bool is_whole;

    if (session_add(&chat->session, false, text) < 0 || session_put_request(&chat->session, &body) < 0) {
        buf_fini(&body);
        complain(CHAT_NAME, "out of memory");
        return false;
    }
    server_path(&chat->server, "/v1/messages", path);
    opts.path = path;
    opts.body = buf_view(&body);
    chat->ends_line = true;
    turn_run(&opts, &turn);
    report(chat, &turn);
    keep(chat, &turn);
    is_whole = turn.answer.is_whole && !turn.is_aborted;
    turn_fini(&turn);
    buf_fini(&body);
    return is_whole;
}
