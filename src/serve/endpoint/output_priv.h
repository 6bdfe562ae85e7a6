/* SPDX-License-Identifier: Apache-2.0 */
/* What goes to the client, and how each API writes it. */
#ifndef SERVE_ENDPOINT_OUTPUT_PRIV_H
#define SERVE_ENDPOINT_OUTPUT_PRIV_H

#include "serve/endpoint/choice_priv.h"

/* output.c: what goes to the client, in any dialect */
void output_begin_stream(struct request *request);
void output_begin_choice(struct choice *choice); /* accepted */
void output_ping(struct request *request);
void output_flush(struct request *request);                                /* sends the events gathered */
void output_drop(struct request *request);                                 /* forgets them */
void output_end_choice(struct choice *choice);                             /* is over */
void output_end(struct request *request);                                  /* all are: the whole answer */
void output_error(struct request *request, const struct api_error *error); /* as an answer or as an event */
void output_count(struct request *request);
void output_body(struct request *request); /* request.body is the answer */
void output_fini_choice(struct choice *choice);
/* For dialects: an event's JSON is appended to what is returned, once, straight into what will be sent; then
 * the event is ended.  E_NOMEM. */
struct buf *output_text(struct request *request); /* what is to be sent, for what is no event */
struct buf *output_begin_event(struct request *request, const char *name);
int output_end_event(struct request *request);
extern const struct answer_sink output_whole_sink; /* collects blocks in the choice */

/* How answers are written: one table for each API.  What is written goes into request.out and is sent by the
 * caller. */
struct output_dialect {
    const char *id_prefix;                       /* of answers */
    const struct answer_sink *stream_sink;       /* its arg is the choice, as that of output_whole_sink */
    void (*begin)(struct request *request);      /* the 200 is out */
    void (*begin_choice)(struct choice *choice); /* may be NULL, as the next */
    void (*end_choice)(struct choice *choice);
    void (*scores)(struct choice *choice); /* how likely the prompt's tokens were; NULL: nobody can ask */
    void (*end)(struct request *request);  /* the stream's last words */
    void (*ping)(struct request *request);
    void (*error)(struct request *request, const struct api_error *error); /* after the 200 */
    int (*whole)(struct request *request, struct buf *body); /* an answer that is not streamed; E_NOMEM */
};
extern const struct output_dialect output_messages;                 /* output_messages.c */
extern const struct output_dialect output_chat, output_completions; /* output_openai.c */

#endif
