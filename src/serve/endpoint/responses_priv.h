/* SPDX-License-Identifier: Apache-2.0 */
/* Kept responses, and the routes under /v1/responses/ID. */
#ifndef SERVE_ENDPOINT_RESPONSES_PRIV_H
#define SERVE_ENDPOINT_RESPONSES_PRIV_H

#include "serve/endpoint/front_priv.h"

/* Takes references to the kept responses that the request needs into request->recalled.  E_FORMAT: one is not kept. */
int responses_recall(struct request *request, struct api_error *error);
/* Appends their items as api_parse_continued() takes them.  Any thread.  E_NOMEM. */
int responses_put_recalled(const struct recalled *recalled, struct buf *out);
void responses_forget_recalled(struct recalled *recalled); /* also an empty one */
/* Gathers what is kept of the request's response, if the request asked for that.  output: its output items in the text.  Any
 * thread, as output_dialect.whole. */
void responses_gather(struct request *request, struct bytes text, const struct api_range *output);
void responses_keep(struct request *request); /* keeps what was gathered, for later requests */
/* Keeps a copy of another router's kept response, if text is one; empties text. */
void responses_take_kept(struct front *front, struct bytes id, const char *owner, struct buf *text);
bool responses_allow(enum http_method method, struct bytes path); /* true if a path under the route allows the
                                                                   * method */
void responses_serve(struct front *front, struct http_exchange *exchange);
/* Answers a client that cancels, with the answer of the router that ran the response; empty: none ran it. */
void responses_answer_cancel(struct front *front, struct http_exchange *exchange, struct bytes answer);
/* Shortens a tokenised conversation that exceeds the context, if the request asks for truncation
 * (truncate.c). Removes the oldest turns and tokenises again.  Runs in the job that tokenises.  E_NOMEM,
 * E_FORMAT, with error. */
int responses_truncate(struct request *request);
/* Sends a JSON body with the rate-limit fields of the key, a long one without a copy. */
void responses_reply_held(struct http_exchange *exchange, const struct auth_key *who,
                          const struct http_held *held);

/* responses_items.c: a page of a kept response's input */
struct kept_items {
    const struct auth_key *who;
    struct bytes id;
    struct bytes items; /* as gen_response.items, in the text */
    struct kept_text *text;
};
/* Renders the page that the query asks for, on a job thread if the items are long, and sends it.  Takes the reference to
 * the text. */
void responses_show_items(struct front *front, struct http_exchange *exchange,
                          const struct kept_items *items);
void responses_abort(struct front *front, const struct http_exchange *exchange); /* the client went away */
void responses_close(struct front *front);                                       /* the front ends */

void responses_report(const struct request *request); /* logs the tools that were left out */

#endif
