/* SPDX-License-Identifier: Apache-2.0 */
/* A conversation and its settings: the content of a request's body.  No input or output. */
#ifndef CLIENTS_CHAT_SESSION_H
#define CLIENTS_CHAT_SESSION_H

#include "base/bytes.h"

struct session_message {
    bool is_answer; /* else the user's */
    bool is_blocks; /* text is a JSON array of content blocks; else plain text */
    char *text;     /* owned, NUL-terminated UTF-8 */
};

struct session {
    char *model;  /* owned */
    char *system; /* owned; NULL: none */
    char *tools;  /* owned; JSON array of tool definitions; NULL: none */
    uint64_t max_tokens;
    bool has_temperature, has_top_p, has_seed;
    double temperature, top_p;
    uint64_t seed;
    struct session_message *messages;
    size_t n_messages;
    size_t cap_messages;
};

void session_fini(struct session *session);                          /* a zeroed one is empty */
int session_set_system(struct session *session, const char *system); /* NULL or "": none */
/* Copies the text; NUL and broken UTF-8 become U+FFFD.  E_NOMEM. */
int session_add(struct session *session, bool is_answer, struct bytes text);
/* The same with a JSON array of content blocks, which is valid UTF-8. */
int session_add_blocks(struct session *session, bool is_answer, struct bytes json);
void session_cut(struct session *session, size_t n_messages); /* drops the messages behind the first n */
void session_clear(struct session *session);                  /* all messages; settings stay */
/* Appends the JSON body of POST /v1/messages. */
int session_put_request(const struct session *session, struct buf *out);
/* Appends the conversation as Markdown, for /save. */
int session_put_transcript(const struct session *session, struct buf *out);

#endif
