/* SPDX-License-Identifier: Apache-2.0 */
/* Streams that survive the loss of their router.  Events have ids; a client presents the last id to another
 * router.
 *
 *      events of an answer ──number──> "id: REQUEST.CACHED.TAG.NUMBER" ──> client
 *      client ──last-event-id, the same body──> any router ──> the worker's tail ──> all events again,
 *                                                              those up to NUMBER are written and dropped
 *
 * An event depends only on the answer's tokens, the request, and a few notes in the work order (struct
 * work_resume).  So the second router writes the same bytes as the first, one token after another, and sends
 * the events that the client lacks.  Pings and errors have no id, because they are not part of the answer.
 * Only streams with one choice have ids: the events of several choices interleave in no fixed order. */
#include "serve/endpoint/resume_priv.h"

#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "serve/access/sign.h"
#include "serve/endpoint/admit_priv.h"
#include "serve/endpoint/output_priv.h"

void resume_read_head(struct request *request)
{
    struct resume *resume = &request->resume;
    struct bytes last = http_exchange_field(request->exchange, "last-event-id");
    struct bytes plain = http_exchange_field(request->exchange, "request-id");
    struct event_id id;

    if (last.len_bytes > 0 && event_id_parse(last, &id) < 0) {
        resume->is_malformed = true;
        return;
    }
    if (last.len_bytes == 0 && (event_id_parse(plain, &id) < 0 || id.has_event))
        return; /* the id comes from a proxy, not from us */
    if (id.has_event && id.tag != sign_event(id.request_id, id.cached_tokens)) {
        resume->is_malformed = true;
        return;
    }
    resume->is_again = true;
    resume->id = id;
    memcpy(request->id, id.request_id, sizeof(request->id));
}

int resume_digest_body(struct request *request)
{
    unsigned n = sizeof(request->resume.body_digest);

    if (!request->front->opts.keeps_streams)
        return 0;
    if (EVP_Digest(request->body.data != NULL ? request->body.data : (const uint8_t *)"",
                   request->body.len_bytes, request->resume.body_digest, &n, EVP_sha256(), NULL) == 1)
        return 0;
    api_fail(&request->error, 503, "out of memory");
    return E_NOMEM;
}

static bool resume_can(const struct request *request)
{
    const struct gen_request *gen = &request->gen;

    return request->front->opts.keeps_streams && request_backend(request)->ops->resume != NULL &&
           gen->is_stream && gen->n_choices <= 1 && request_n_prompts(request) == 1 &&
           gen->work.max_new_tokens > 0 && !(gen->echoes && gen->work.sample.wants_logprob);
}

int resume_begin(struct request *request, struct api_error *error)
{
    struct resume *resume = &request->resume;

    if (resume->is_malformed)
        return api_fail(error, 400, "last-event-id: not the id of an event of this service");
    resume->is_kept = resume_can(request);
    if (resume->is_again && !resume->is_kept)
        return api_fail(error, 400, "last-event-id: only a stream with one answer can be resumed");
    return 0;
}

void resume_fill_work(const struct request *request, struct work_resume *out)
{
    const struct resume *resume = &request->resume;

    *out = (struct work_resume){.is_kept = resume->is_kept, .created_unix_s = request->created_unix_s};
    if (!resume->is_kept)
        return;
    memcpy(out->message_id, request->message_id, sizeof(request->message_id));
    memcpy(out->body_digest, resume->body_digest, sizeof(out->body_digest));
}

uint32_t resume_accept(struct request *request, uint32_t cached_tokens)
{
    struct resume *resume = &request->resume;

    if (!resume->is_kept)
        return cached_tokens;
    if (resume->is_again && resume->id.has_event)
        cached_tokens = resume->id.cached_tokens;
    memcpy(resume->id.request_id, request->id, sizeof(request->id));
    resume->id.cached_tokens = cached_tokens;
    resume->id.tag = sign_event(request->id, cached_tokens);
    event_id_put_prefix(&resume->id, resume->prefix);
    shared_keep_history(request);
    return cached_tokens;
}

/* The first router may have found other cached answers in the messages.
 * Usage and stats refer to its prompt. */
static int resume_take_prompt(struct request *request, const struct work_order *order)
{
    struct prompt *prompt = request_prompt(request, 0);
    size_t n_bytes = order->n_prompt * sizeof(*order->tokens);
    token_id *ids;

    if (prompt->ids.n == order->n_prompt && memcmp(prompt->ids.ids, order->tokens, n_bytes) == 0)
        return 0;
    ids = malloc(n_bytes);
    if (ids == NULL)
        return E_NOMEM;
    memcpy(ids, order->tokens, n_bytes);
    free(prompt->ids.ids);
    prompt->ids.ids = ids;
    prompt->ids.n = prompt->ids.cap = order->n_prompt;
    prompt->public_tokens = public_prefix_tokens(request->front->public_prefix, request->model, &prompt->ids);
    request->resume.has_other_prompt = true;
    return 0;
}

int resume_on_found(struct request *request, const struct work_order *order)
{
    const struct work_resume *note = &order->work.resume;

    admit_found(request);
    if (resume_take_prompt(request, order) < 0)
        return E_NOMEM;
    memcpy(request->message_id, note->message_id, sizeof(request->message_id));
    request->created_unix_s = note->created_unix_s;
    return 0;
}

/* ---- events ---- */

static void resume_put_number(struct buf *out, uint64_t value)
{
    char digits[20];
    size_t at = sizeof(digits);

    do
        digits[--at] = (char)('0' + value % 10);
    while ((value /= 10) > 0);
    buf_append(out, digits + at, sizeof(digits) - at);
}

void resume_begin_event(struct request *request, struct buf *out)
{
    struct resume *resume = &request->resume;

    resume->event_at = out->len_bytes;
    if (!resume->is_kept)
        return;
    buf_append_str(out, "id: ");
    buf_append_str(out, resume->prefix);
    buf_append_str(out, ".");
    resume_put_number(out, ++resume->n_events);
    buf_append_str(out, "\n");
}

void resume_end_event(struct request *request, struct buf *out, bool is_whole)
{
    struct resume *resume = &request->resume;

    if (out->is_bad || (is_whole && !(resume->is_again && resume->n_events <= resume->id.number)))
        return;
    out->len_bytes = resume->event_at; /* the client has this event */
    out->data[out->len_bytes] = '\0';
}
