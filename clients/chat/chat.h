/* SPDX-License-Identifier: Apache-2.0 */
/* baton-chat: what its parts share. */
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

/* With tools also runs what the model calls and asks on with the results, until it answers without a call.
 *
 * Asks text (kept in the session with its answer, unless nothing came), shows the answer as it streams and
 * says on stderr what went wrong.  Whether the answer is whole. */
bool chat_ask(struct chat *chat, struct bytes text);

/* The conversation from a terminal with line editing and history, or line by line from whatever stdin is.
 * Returns the exit status. */
int chat_converse(struct chat *chat);

/* Text that a terminal may get: without control characters except newline and tab. */
void chat_put_safe(struct bytes text, struct buf *out);

#endif
