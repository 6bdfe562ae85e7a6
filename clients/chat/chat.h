/* SPDX-License-Identifier: Apache-2.0 */
/* baton-chat: the interface between its parts. */
#ifndef CLIENTS_CHAT_CHAT_H
#define CLIENTS_CHAT_CHAT_H

#include "clients/chat/session.h"
#include "clients/chat/tools.h"
#include "clients/common/server.h"

#define CHAT_NAME "baton-chat"

struct chat {
    struct server server;
    struct session session;
    struct tools tools; /* with has_tools */
    bool has_tools;
    uint64_t max_rounds; /* of calls and results within one question */
    bool shows_timings;
    bool is_to_terminal; /* stdout: control characters of the answer are left out */
    bool ends_line;      /* the last thing shown was a newline */
};

/* Asks text and shows the answer as it streams.  With tools it runs the calls of the model and sends the
 * results, until an answer has no call.  The session keeps question and answer, unless no answer came.  Prints
 * errors on stderr.  Returns whether the answer is whole. */
bool chat_ask(struct chat *chat, struct bytes text);

/* Runs the conversation: on a terminal with line editing and history, else line by line from stdin.  Returns
 * the exit status. */
int chat_converse(struct chat *chat);

/* Returns the text that a terminal may get: without control characters except newline and tab. */
void chat_put_safe(struct bytes text, struct buf *out);

#endif
