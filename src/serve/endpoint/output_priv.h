/* SPDX-License-Identifier: Apache-2.0 */
/* Writes output to the client, in the format of each API. */
#ifndef SERVE_ENDPOINT_OUTPUT_PRIV_H
#define SERVE_ENDPOINT_OUTPUT_PRIV_H

#include "serve/endpoint/choice_priv.h"

/* output.c: output in any API's format */
void output_begin_stream(struct request *request);
void output_begin_choice(struct choice *choice); /* after acceptance */
void output_ping(struct request *request);
void output_flush(struct request *request);    /* sends the gathered events */
void output_drop(struct request *request);     /* drops the gathered events */
void output_end_choice(struct choice *choice); /* the choice is over */
void output_end(struct request *request);      /* all choices are over: sends the whole answer */
/* About how long the whole answer is, or what is kept of a stream, by the time that it takes to render. */
size_t output_whole_bytes(const struct request *request);
/* Renders the whole answer, and what is kept, on a job thread or on the loop.  output_end does it if it was not done. */
void output_render_work(void *arg);
void output_error(struct request *request, const struct api_error *error); /* as an answer or as an event */
void output_count(struct request *request);
void output_body(struct request *request); /* sends request.body as the answer */
void output_fini_choice(struct choice *choice);
/* For dialects.  output_begin_event returns the buffer for the event's JSON; it is the send buffer itself.
 * output_end_event ends the event.  E_NOMEM. */
struct buf *output_text(struct request *request); /* the send buffer, for output that is not an event */
struct buf *output_begin_event(struct request *request, const char *name);
int output_end_event(struct request *request);
void output_put_event(struct request *request, const char *name, struct bytes data);
/* Writes an error.  It has no event id, because it is not part of the answer.  name NULL: OpenAI's format. */
void output_put_error(struct request *request, const char *name, const struct api_error *error);
void output_text_logprobs(struct choice *choice, struct bytes text); /* the text is delivered */
extern const struct answer_sink output_whole_sink;                   /* collects blocks in the choice */

/* The format of one API's answers.  The functions write into request.out; the caller sends. */
struct output_dialect {
    const char *id_prefix;                       /* of answer ids */
    const struct answer_sink *stream_sink;       /* its arg is the choice, as for output_whole_sink */
    void (*begin)(struct request *request);      /* called after the status 200 */
    void (*begin_choice)(struct choice *choice); /* may be NULL, like the next */
    void (*end_choice)(struct choice *choice);
    void (*scores)(struct choice *choice); /* prompt logprobs have come; NULL: the API has none */
    void (*end)(struct request *request);  /* writes the end of the stream */
    void (*ping)(struct request *request);
    void (*error)(struct request *request, const struct api_error *error); /* an error after the 200 */
    /* Renders an answer that is not streamed; E_NOMEM.  On any thread: it touches nothing but the request. */
    int (*whole)(struct request *request, struct buf *body);
    /* Gathers what is kept of a stream's answer, which has about so many bytes.  On any thread, as whole; NULL: nothing
     * is kept. */
    void (*gather)(struct request *request);
    size_t (*gathered_bytes)(const struct request *request);
    void (*rendered)(struct request *request); /* on the loop, after whole; may be NULL */
    /* Of answers that are values in place of text, such as embeddings; else all three are NULL. take keeps a
     * value in the choice; a failure ends the request. finish: all choices are over; it starts request.later.
     * render_part: the timer request.later fired; renders some values, and the last call ends the request. */
    void (*take)(struct choice *choice, const struct gen_tokens *tokens);
    void (*finish)(struct request *request);
    void (*render_part)(struct request *request);
};
extern const struct output_dialect output_messages;                 /* output_messages.c */
extern const struct output_dialect output_chat, output_completions; /* output_openai.c */
extern const struct output_dialect output_responses;                /* output_responses.c */
extern const struct output_dialect output_embeddings;               /* embeddings.c */

#endif
