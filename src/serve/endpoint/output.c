/* SPDX-License-Identifier: Apache-2.0 */
/* The output to a request's client: a stream of events, or one answer at the end.
 *
 *     answer ──sink──┬── a stream: the dialect's events ──> front.out ──> one write per turn
 *                    └── a whole answer: blocks collected here ──> the dialect's JSON
 *
 * The dialect (output_messages.c, output_openai.c) formats events and answers; this file decides when they
 * are sent.  A stream gathers the events of one turn of the loop and sends them in one write.  All streams of
 * the front share the buffer, so that it stays in the CPU cache.  A function that writes an event therefore
 * flushes before it calls other code.  An answer that is not streamed is collected choice by choice.  If a
 * limit cuts a tool call, its arguments are closed as valid JSON.  A broken call is left out, and its text
 * becomes answer text. */
#include <stdlib.h>
#include <string.h>

#include "text/json/json_walk.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/err.h"
#include "serve/api/render_responses.h"
#include "serve/endpoint/admit_priv.h"
#include "serve/endpoint/output_priv.h"

/* ---- events ---- */

struct buf *output_text(struct request *request)
{
    struct front *front = request->front;

    ASSERT(front->writer == NULL || front->writer == request);
    front->writer = request;
    return &front->out;
}

struct buf *output_begin_event(struct request *request, const char *name)
{
    struct buf *out = output_text(request);

    resume_begin_event(request, out);
    request->front->event = sse_begin_event(out, name);
    return out;
}

int output_end_event(struct request *request)
{
    struct buf *out = output_text(request);
    int rc = sse_end_event(out, request->front->event);

    resume_end_event(request, out, rc == 0);
    return rc;
}

void output_put_event(struct request *request, const char *name, struct bytes data)
{
    struct buf *out = output_begin_event(request, name);

    buf_append(out, data.data, data.len_bytes);
    (void)output_end_event(request);
}

void output_put_error(struct request *request, const char *name, const struct api_error *error)
{
    struct buf json = {0};

    if (name != NULL)
        api_put_error(&json, error, NULL);
    else
        api_put_openai_error(&json, error);
    sse_put_event(output_text(request), name, buf_view(&json));
    buf_fini(&json);
}

void output_flush(struct request *request)
{
    struct front *front = request->front;
    int rc = 0;

    if (front->writer == NULL)
        return;
    ASSERT(front->writer == request);
    request->event_ns = clock_now_ns();
    /* A failure here means that the connection is broken.  on_abort reports it in a later turn. */
    if (request->exchange != NULL && !request->is_mute && front->out.len_bytes > 0) {
        rc = front->out.is_bad ? E_NOMEM : http_reply_write(request->exchange, buf_view(&front->out));
        request->is_mute = rc < 0;
    }
    output_drop(request);
    if (rc == 1) /* at once: this turn may have much more for a client that reads as fast as it can */
        choices_pause(request, true);
}

void output_drop(struct request *request)
{
    struct front *front = request->front;

    if (front->writer != request)
        return;
    front->writer = NULL;
    buf_clear(&front->out);
}

void output_begin_stream(struct request *request)
{
    struct http_fields fields = {0};

    http_fields_add_str(&fields, "content-type", "text/event-stream; charset=utf-8");
    http_fields_add_str(&fields, "cache-control", "no-cache");
    http_fields_add_str(&fields, "x-accel-buffering", "no");
    reply_add_id(&fields, request->exchange, request->id);
    admit_put_fields(request->exchange, &fields);
    request->is_stream = true;
    request->is_mute = http_reply_begin(request->exchange, 200, &fields) < 0;
    http_fields_fini(&fields);
    request->dialect->begin(request);
    output_flush(request);
}

void output_begin_choice(struct choice *choice)
{
    struct request *request = choice->request;

    if (!request->is_stream || request->dialect->begin_choice == NULL)
        return;
    request->dialect->begin_choice(choice);
    output_flush(request);
}

void output_ping(struct request *request)
{
    request->dialect->ping(request);
    output_flush(request);
}

void output_end_choice(struct choice *choice)
{
    struct request *request = choice->request;

    if (!request->is_stream || request->dialect->end_choice == NULL)
        return;
    request->dialect->end_choice(choice);
    output_flush(request);
}

/* ---- collecting ---- */

#define HELD_BODY_BYTES (64u << 10) /* longer bodies are sent without a copy */
#define LOGPROB_BYTES   64u         /* of a token and its logprob in an answer */
#define CHOICE_BYTES    256u        /* of a choice beside its text */
/* Bytes that are copied in the time in which one is rendered. */
#define COPIES_PER_RENDERED 8u

static struct collected *output_add_block(struct choice *choice, enum gen_block_kind kind)
{
    struct collected *grown = realloc(choice->blocks, (choice->n_blocks + 1) * sizeof(*grown));

    if (grown == NULL)
        return NULL;
    choice->blocks = grown;
    memset(&grown[choice->n_blocks], 0, sizeof(*grown));
    grown[choice->n_blocks].kind = kind;
    return &grown[choice->n_blocks++];
}

static int whole_open_text(void *arg)
{
    return output_add_block(arg, GEN_TEXT) == NULL ? E_NOMEM : 0;
}

static void skip_logprobs(struct choice *choice)
{
    if (choice->has_logprobs)
        logprobs_skip(choice->logprobs);
}

void output_text_logprobs(struct choice *choice, struct bytes text)
{
    if (choice->has_logprobs)
        logprobs_text(choice->logprobs, text);
}

static int whole_append(void *arg, struct bytes text)
{
    struct choice *choice = arg;

    return buf_append(&choice->blocks[choice->n_blocks - 1].text, text.data, text.len_bytes);
}

static int whole_text(void *arg, struct bytes text)
{
    output_text_logprobs(arg, text);
    return whole_append(arg, text);
}

static int whole_open_thinking(void *arg)
{
    return output_add_block(arg, GEN_THINKING) == NULL ? E_NOMEM : 0;
}

static int whole_signature(void *arg, struct bytes signature)
{
    struct choice *choice = arg;

    return buf_append(&choice->blocks[choice->n_blocks - 1].name, signature.data, signature.len_bytes);
}

static int whole_open_call(void *arg, const char *id, struct bytes name)
{
    struct collected *block = output_add_block(arg, GEN_TOOL_USE);

    skip_logprobs(arg);
    if (block == NULL)
        return E_NOMEM;
    memcpy(block->id, id, strlen(id) + 1);
    return buf_append(&block->name, name.data, name.len_bytes);
}

static void drop_block(struct choice *choice)
{
    struct collected *block = &choice->blocks[--choice->n_blocks];

    buf_fini(&block->name);
    buf_fini(&block->text);
    buf_fini(&block->logprobs);
}

/* Closes the largest JSON object that the arguments so far can begin. */
static int close_cut_call(struct collected *block)
{
    struct json_walk walk = {0};
    struct buf closed = {0};
    int rc;

    for (size_t i = 0; i < block->text.len_bytes; i++)
        json_walk_byte(&walk, block->text.data[i]);
    rc = json_walk_close(&walk, buf_view(&block->text), &closed);
    if (rc == E_FORMAT)
        rc = buf_append_str(&closed, "{}");
    buf_fini(&block->text);
    block->text = closed;
    return rc;
}

static int whole_close(void *arg, enum calls_end how)
{
    struct choice *choice = arg;

    if (choice->has_logprobs && choice->blocks[choice->n_blocks - 1].kind == GEN_TEXT)
        logprobs_end_text(choice->logprobs);
    else
        skip_logprobs(choice);
    if (how == CALLS_BROKEN)
        drop_block(choice);
    if (how == CALLS_CUT)
        choice->blocks[choice->n_blocks - 1].is_cut = true;
    if (how == CALLS_CUT)
        return close_cut_call(&choice->blocks[choice->n_blocks - 1]);
    return 0;
}

const struct answer_sink output_whole_sink = {whole_open_text, whole_text,      whole_open_thinking,
                                              whole_append,    whole_signature, whole_open_call,
                                              whole_append,    whole_close};

void output_fini_choice(struct choice *choice)
{
    while (choice->blocks != NULL && choice->n_blocks > 0)
        drop_block(choice);
    free(choice->blocks);
    choice->blocks = NULL;
}

/* ---- ends ---- */

struct sent_body { /* body of a request that is over */
    struct buf text;
    struct ev_jobs *jobs;
    struct ev_loop *loop;
};

static void release_body(void *arg)
{
    struct sent_body *sent = arg;
    struct remains remains = {.body = sent->text};

    remains_give_back(&remains, sent->jobs, sent->loop);
    free(sent);
}

/* Sends the body itself, not a copy. */
static void output_held_body(struct request *request, struct http_fields *fields, struct sent_body *sent)
{
    *sent = (struct sent_body){request->body, request->front->opts.jobs, request->front->opts.loop};
    request->body = (struct buf){0};
    http_fields_add_str(fields, "content-type", "application/json");
    reply_add_id(fields, request->exchange, request->id);
    admit_put_fields(request->exchange, fields);
    http_reply_held(request->exchange, 200, fields,
                    &(struct http_held){buf_view(&sent->text), release_body, sent});
}

/* Sends request.body as the answer, with these fields. */
static void output_send_body(struct request *request, struct http_fields *fields)
{
    bool is_long = request->body.len_bytes >= HELD_BODY_BYTES;
    struct sent_body *sent = is_long ? malloc(sizeof(*sent)) : NULL;

    if (sent != NULL)
        output_held_body(request, fields, sent);
    else
        reply_json(request->exchange, request->id, fields, buf_view(&request->body));
}

void output_body(struct request *request)
{
    struct http_fields fields = {0};

    output_send_body(request, &fields);
    http_fields_fini(&fields);
    request->exchange = NULL;
}

size_t output_whole_bytes(const struct request *request)
{
    size_t n = request->dialect->gathered_bytes == NULL
                   ? 0
                   : request->dialect->gathered_bytes(request) / COPIES_PER_RENDERED;

    if (request->dialect->take != NULL || request->is_stream)
        return n; /* it was rendered piece by piece */
    n += request->n_logprobs * LOGPROB_BYTES;
    for (uint32_t i = 0; i < request->n_choices; i++) {
        const struct choice *choice = &request->choices[i];

        n += CHOICE_BYTES + choice->prompt->text.len_bytes;
        for (size_t k = 0; k < choice->n_blocks; k++)
            n += choice->blocks[k].text.len_bytes;
    }
    return n;
}

/* Frees the logprobs here, because freeing megabytes takes a while too. */
static void release_logprobs(struct choice *choice)
{
    logprobs_free(choice->logprobs);
    choice->logprobs = NULL;
    choice->has_logprobs = false;
}

static void output_render_whole(struct request *request)
{
    if (!atomic_load(&request->is_abandoned)) {
        request->work_rc = request->dialect->whole(request, &request->rendered);
        request->is_rendered = true;
    }
    for (uint32_t i = 0; i < request->n_choices; i++)
        release_logprobs(&request->choices[i]);
}

void output_render_work(void *arg)
{
    struct request *request = arg;

    if (!request->is_stream) {
        output_render_whole(request);
    } else if (request->dialect->gather != NULL && !atomic_load(&request->is_abandoned)) {
        request->dialect->gather(request);
        request->is_rendered = true;
    }
    atomic_store(&request->is_working, false);
}

static void end_whole(struct request *request)
{
    struct http_fields fields = {0};

    if (!request->is_rendered)
        output_render_work(request);
    if (request->work_rc < 0) {
        api_fail(&request->error, 503, "out of memory");
        reply_error(request->exchange, &request->error, request->id, NULL);
    } else {
        if (request->dialect->rendered != NULL)
            request->dialect->rendered(request);
        remains_give_back(&(struct remains){.body = request->body}, request->front->opts.jobs,
                          request->front->opts.loop);
        request->body = request->rendered;
        request->rendered = (struct buf){0};
        report_serving_fields(request, &fields);
        output_send_body(request, &fields);
    }
    http_fields_fini(&fields);
}

void output_end(struct request *request)
{
    if (request->is_stream) {
        if (!request->is_rendered)
            output_render_work(request);
        request->dialect->end(request);
        output_flush(request);
        http_reply_end(request->exchange);
    } else {
        end_whole(request);
    }
    request->exchange = NULL;
}

void output_error(struct request *request, const struct api_error *error)
{
    if (request->exchange == NULL)
        return;
    if (!request->is_stream) {
        reply_error(request->exchange, error, request->id, NULL);
    } else {
        request->dialect->error(request, error);
        output_flush(request);
        http_reply_end(request->exchange);
    }
    request->exchange = NULL;
}

void output_count(struct request *request)
{
    struct http_fields fields = {0};
    struct buf body = {0};

    if (request->call == API_INPUT_TOKENS)
        api_put_input_tokens(&body, (uint32_t)request->prompt.ids.n);
    else
        api_put_count(&body, (uint32_t)request->prompt.ids.n);
    reply_json(request->exchange, request->id, &fields, buf_view(&body));
    http_fields_fini(&fields);
    buf_fini(&body);
    request->exchange = NULL;
}
