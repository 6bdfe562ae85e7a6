/* SPDX-License-Identifier: Apache-2.0 */
/* Kept responses, and the routes under /v1/responses/ID.
 *
 *     GET ID                the response                POST ID/cancel    ends a stream that is being sent
 *     GET ID/input_items    its input                   DELETE ID         forgets it
 *
 * A response that is not here may be kept or sent by another router (shared.c, cancels.c).
 *
 * A response is stored as one text under its id, for the tenant of its request:
 *
 *     lengths (12 bytes) | the response as JSON, with the output items in it | the input items, ",\n" between
 *
 * A request that continues a response receives its input and output items.  A request that refers to an item
 * receives the output items of its response.  Both become JSON lists, in the job that parses.  A kept text has 4 MiB
 * and more, so the loop hands out references and copies none. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/str.h"
#include "serve/api/render_responses.h"
#include "serve/endpoint/admit_priv.h"
#include "serve/endpoint/cancels_priv.h"
#include "serve/endpoint/front_shared.h"
#include "serve/endpoint/output_priv.h"
#include "serve/endpoint/responses_priv.h"

#define ROUTE              "/v1/responses/"
#define HEAD_BYTES         12
#define MAX_RECALLED_BYTES ((size_t)4 << 20)
#define MAX_RECALLED       4096        /* largest number of responses that one request refers to */
#define MAX_COPIED_BYTES   (64u << 10) /* longer bodies are sent without a copy */

/* ---- keeping ---- */

struct kept { /* views into a kept text */
    struct bytes response, output, items;
};

void responses_gather(struct request *request, struct bytes text, const struct api_range *output)
{
    struct bytes items = request->gen.response->items;
    struct buf *kept = &request->kept;
    uint8_t head[HEAD_BYTES];

    if (!request->gen.response->is_stored || text.len_bytes > API_MAX_KEPT_BYTES)
        return;
    put_u32(head, (uint32_t)text.len_bytes);
    put_u32(head + 4, (uint32_t)output->at);
    put_u32(head + 8, (uint32_t)output->len_bytes);
    buf_reserve(kept, sizeof(head) + text.len_bytes + items.len_bytes);
    buf_append(kept, head, sizeof(head));
    buf_append(kept, text.data, text.len_bytes);
    buf_append(kept, items.data, items.len_bytes);
}

void responses_keep(struct request *request)
{
    struct front *front = request->front;

    if (front->responses == NULL || request->kept.len_bytes == 0 || request->kept.is_bad)
        return;
    shared_keep_response(request, buf_view(&request->kept));
    conversations_put(front->responses, request->message_id, request->who.tenant, &request->kept,
                      clock_now_ns());
}

void responses_take_kept(struct front *front, struct bytes id, const char *owner, struct buf *text)
{
    char name[IDS_BYTES] = {0};
    uint64_t n, at, len;

    if (text->len_bytes < HEAD_BYTES || id.len_bytes >= sizeof(name) || front->responses == NULL)
        return;
    n = get_u32(text->data);
    at = get_u32(text->data + 4);
    len = get_u32(text->data + 8);
    if (n > text->len_bytes - HEAD_BYTES || at + len > n)
        return;
    memcpy(name, id.data, id.len_bytes);
    conversations_put(front->responses, name, owner, text, clock_now_ns());
}

static void responses_view(const struct kept_text *kept_text, struct kept *out)
{
    struct bytes text = kept_text_view(kept_text);
    size_t n, at, len;

    ASSERT(text.len_bytes >= HEAD_BYTES);
    n = get_u32(text.data);
    at = get_u32(text.data + 4);
    len = get_u32(text.data + 8);
    out->response = bytes_of(text.data + HEAD_BYTES, n);
    out->output = bytes_of(text.data + HEAD_BYTES + at, len);
    out->items = bytes_of(text.data + HEAD_BYTES + n, text.len_bytes - HEAD_BYTES - n);
}

/* A reference to a kept response.  NULL: it is not kept. */
static struct kept_text *responses_find_kept(struct front *front, struct bytes id, const char *owner,
                                             struct kept *out)
{
    struct kept_text *text =
        front->responses == NULL ? NULL : conversations_read(front->responses, id, owner, clock_now_ns());

    if (text != NULL)
        responses_view(text, out);
    return text;
}

/* ---- recalling ---- */

static int responses_refuse_previous(struct request *request, struct api_error *error)
{
    struct bytes id = request->gen.response->previous;

    api_fail(error, 400, "previous_response_id: Previous response with id '%.*s' not found.",
             (int)(id.len_bytes > 100 ? 100 : id.len_bytes), (const char *)id.data);
    error->code = "previous_response_not_found";
    return E_FORMAT;
}

static void responses_append_list(struct buf *out, struct bytes items)
{
    if (items.len_bytes == 0)
        return;
    if (out->len_bytes > 0 && out->data[out->len_bytes - 1] != '[')
        buf_append_byte(out, ',');
    buf_append(out, items.data, items.len_bytes);
}

static int responses_refuse_size(struct api_error *error)
{
    return api_fail(error, 400,
                    "input: the kept items that it refers to are longer than %zu bytes or of more "
                    "than %d responses; send them",
                    MAX_RECALLED_BYTES, MAX_RECALLED);
}

/* Takes a reference to the response with this index in the list of those that the request names. */
static int responses_recall_one(struct request *request, size_t i, struct api_error *error)
{
    const struct gen_response *asked = request->gen.response;
    struct recalled *recalled = &request->recalled;
    struct bytes id = asked->wanted[i];
    bool is_previous = i == 0 && recalled->has_previous;
    struct kept kept;

    recalled->texts[i] = responses_find_kept(request->front, id, request->who.tenant, &kept);
    if (recalled->texts[i] == NULL && is_previous)
        return responses_refuse_previous(request, error);
    if (recalled->texts[i] == NULL)
        return api_fail(error, 400, "input: it refers to an item of '%.*s', which is not kept",
                        (int)(id.len_bytes > 100 ? 100 : id.len_bytes), (const char *)id.data);
    recalled->n_bytes += kept.output.len_bytes + (is_previous ? kept.items.len_bytes : 0);
    return is_previous || recalled->n_bytes <= MAX_RECALLED_BYTES ? 0 : responses_refuse_size(error);
}

int responses_recall(struct request *request, struct api_error *error)
{
    const struct gen_response *asked = request->gen.response;
    struct recalled *recalled = &request->recalled;
    int rc = 0;

    if (asked->n_wanted > MAX_RECALLED)
        return responses_refuse_size(error);
    recalled->texts = calloc(asked->n_wanted, sizeof(struct kept_text *));
    if (recalled->texts == NULL) {
        api_fail(error, 503, "out of memory");
        return E_NOMEM;
    }
    recalled->n = asked->n_wanted;
    recalled->has_previous = asked->previous.len_bytes > 0;
    for (size_t i = 0; i < recalled->n && rc == 0; i++)
        rc = responses_recall_one(request, i, error);
    return rc;
}

int responses_put_recalled(const struct recalled *recalled, struct buf *out)
{
    struct kept kept;
    size_t first = recalled->has_previous ? 1 : 0;

    buf_reserve(out, recalled->n_bytes + recalled->n + 64);
    buf_append_str(out, "{\"previous\":[");
    if (first > 0) {
        responses_view(recalled->texts[0], &kept);
        responses_append_list(out, kept.items);
        responses_append_list(out, kept.output);
    }
    buf_append_str(out, "],\"items\":[");
    for (size_t i = first; i < recalled->n; i++) {
        responses_view(recalled->texts[i], &kept);
        responses_append_list(out, kept.output);
    }
    buf_append_str(out, "]}");
    return out->is_bad ? E_NOMEM : 0;
}

void responses_forget_recalled(struct recalled *recalled)
{
    for (size_t i = 0; i < recalled->n; i++)
        kept_text_unref(recalled->texts[i]);
    free(recalled->texts);
    *recalled = (struct recalled){0};
}

void responses_report(const struct request *request)
{
    const struct gen_response *asked = request->gen.response;
    char text[256];

    if (asked == NULL || asked->left_out.len_bytes == 0)
        return;
    snprintf(text, sizeof(text), "%.*s", (int)asked->left_out.len_bytes, (const char *)asked->left_out.data);
    log_info("tools_left_out", LOG_STR("request_id", request->id), LOG_STR("types", text));
}

/* ---- the routes ---- */

enum verb { VERB_RESPONSE, VERB_ITEMS, VERB_CANCEL, VERB_NONE };

/* Splits the part of the path after the route. */
static enum verb responses_read_path(struct bytes path, struct bytes *id_out)
{
    static const char *const verbs[] = {
        [VERB_RESPONSE] = "", [VERB_ITEMS] = "/input_items", [VERB_CANCEL] = "/cancel"};
    struct bytes rest = bytes_of(path.data + strlen(ROUTE), path.len_bytes - strlen(ROUTE));
    const uint8_t *slash = memchr(rest.data, '/', rest.len_bytes);
    size_t n = slash == NULL ? rest.len_bytes : (size_t)(slash - rest.data);

    *id_out = bytes_of(rest.data, n);
    rest = bytes_of(rest.data + n, rest.len_bytes - n);
    for (size_t i = 0; i < ARRAY_LEN(verbs); i++)
        if (bytes_is(rest, verbs[i]))
            return (enum verb)i;
    return VERB_NONE;
}

bool responses_allow(enum http_method method, struct bytes path)
{
    struct bytes id;

    switch (responses_read_path(path, &id)) {
    case VERB_RESPONSE:
        return method == HTTP_GET || method == HTTP_HEAD || method == HTTP_DELETE;
    case VERB_ITEMS:
        return method == HTTP_GET || method == HTTP_HEAD;
    case VERB_CANCEL:
        return method == HTTP_POST;
    case VERB_NONE:
        return true; /* the path names no response */
    }
    return true;
}

static void responses_reply_missing(struct http_exchange *exchange, struct bytes id)
{
    struct api_error error;

    api_fail(&error, 404, "Response with id '%.*s' not found.",
             (int)(id.len_bytes > 100 ? 100 : id.len_bytes), id.data == NULL ? "" : (const char *)id.data);
    reply_error(exchange, &error, NULL, NULL);
}

/* Sends JSON with the rate-limit fields of the key. */
static void responses_reply_text(struct http_exchange *exchange, const struct auth_key *who,
                                 struct bytes body)
{
    struct http_fields fields = {0};
    char id[IDS_BYTES];

    ids_make("req_", id);
    admit_put_fields_of(exchange, who, &fields);
    reply_json(exchange, id, &fields, body);
    http_fields_fini(&fields);
}

void responses_reply_held(struct http_exchange *exchange, const struct auth_key *who,
                          const struct http_held *held)
{
    struct http_fields fields = {0};
    char id[IDS_BYTES];

    if (held->body.len_bytes < MAX_COPIED_BYTES) {
        responses_reply_text(exchange, who, held->body);
        held->release(held->arg);
        return;
    }
    ids_make("req_", id);
    http_fields_add_str(&fields, "content-type", "application/json");
    reply_add_id(&fields, exchange, id);
    admit_put_fields_of(exchange, who, &fields);
    admit_put_fields(exchange, &fields);
    http_reply_held(exchange, 200, &fields, held);
    http_fields_fini(&fields);
}

static void responses_release_kept(void *arg)
{
    kept_text_unref(arg);
}

/* Takes the reference to the text. */
static void responses_show_response(struct http_exchange *exchange, const struct auth_key *who,
                                    struct kept_text *kept_text, struct bytes response)
{
    const struct http_held held = {response, responses_release_kept, kept_text};
    struct api_error error;
    char text[8];

    if (!http_query_get(http_exchange_query(exchange), "stream", text, sizeof(text)) ||
        strcmp(text, "true") != 0) {
        responses_reply_held(exchange, who, &held);
        return;
    }
    api_fail(&error, 400, "stream: events are not kept by this server; ask for the response as a whole");
    reply_error(exchange, &error, NULL, NULL);
    kept_text_unref(kept_text);
}

static void responses_delete_response(struct front *front, struct http_exchange *exchange,
                                      const struct auth_key *who, struct bytes id)
{
    struct buf body = {0};
    struct api_error error;
    char name[IDS_BYTES];

    if (shared_forget_response(front, who->tenant, id) < 0) {
        api_fail(&error, 503, "The store that routers share is away, and too many deletions wait for it");
        reply_error(exchange, &error, NULL, NULL);
        return;
    }
    memcpy(name, id.data, id.len_bytes);
    name[id.len_bytes] = '\0';
    conversations_remove(front->responses, id, who->tenant);
    api_put_response_deleted(&body, name);
    responses_reply_text(exchange, who, buf_view(&body));
    buf_fini(&body);
}

/* ---- cancelling ---- */

/* Finds the running stream of this response, if it belongs to the same tenant.  NULL: none. */
static struct request *responses_find_stream(struct front *front, struct bytes id, const char *tenant)
{
    list_for_each (node, &front->requests) {
        struct request *request = container_of(node, struct request, node);

        if (request->call == API_RESPONSES && request->is_stream && request->exchange != NULL &&
            request->state < REQUEST_DONE && request->n_over < request->n_choices &&
            bytes_is(id, request->message_id) && strcmp(request->who.tenant, tenant) == 0)
            return request;
    }
    return NULL;
}

static void responses_cancel(struct request *request, struct buf *body)
{
    struct choice *choice = &request->choices[0];
    struct api_response response = {.id = request->message_id,
                                    .created_unix_s = request->created_unix_s,
                                    .model = request->gen.model,
                                    .asked = request->gen.response,
                                    .status = API_RESPONSE_CANCELLED};

    api_put_response(body, &response, NULL);
    choice_withdraw(choice);
    choice->stop = GEN_STOP_CANCELLED;
    /* Closes the open item.  Without memory the client receives no event for it. */
    (void)answer_finish(choice->answer, GEN_STOP_MAX_TOKENS);
    output_flush(request);
    choice_finish(choice, GEN_STOP_CANCELLED, bytes_of(NULL, 0));
}

static void responses_cancel_response(struct front *front, struct http_exchange *exchange,
                                      const struct auth_key *who, struct bytes id)
{
    struct request *request = responses_find_stream(front, id, who->tenant);
    struct api_error error;
    struct buf body = {0};

    if (request != NULL) {
        responses_cancel(request, &body);
        responses_reply_text(exchange, who, buf_view(&body));
    } else if (front->responses != NULL &&
               conversations_look(front->responses, id, who->tenant, clock_now_ns()) == CONVERSATIONS_TAKEN) {
        api_fail(&error, 400, "Cannot cancel a completed response.");
        reply_error(exchange, &error, NULL, NULL);
    } else if (!cancels_ask(front, exchange, who->tenant, id)) {
        responses_reply_missing(exchange, id);
    }
    buf_fini(&body);
}

void responses_answer_cancel(struct front *front, struct http_exchange *exchange, struct bytes answer)
{
    struct bytes id;
    struct auth_key who;
    struct api_error error;

    (void)responses_read_path(http_exchange_path(exchange), &id);
    if (admit_key(front, exchange, &who, &error) < 0)
        reply_error(exchange, &error, NULL, NULL);
    else if (answer.len_bytes == 0)
        responses_reply_missing(exchange, id);
    else
        responses_reply_text(exchange, &who, answer);
}

bool front_cancel_response(struct front *front, const char *tenant, struct bytes id, struct buf *answer)
{
    struct request *request = responses_find_stream(front, id, tenant);

    if (request == NULL)
        return false;
    log_info("cancelled_elsewhere", LOG_STR("request_id", request->id));
    responses_cancel(request, answer);
    return true;
}

/* Answers with what this router keeps. */
static void responses_answer(struct front *front, struct http_exchange *exchange)
{
    struct bytes id;
    enum verb verb = responses_read_path(http_exchange_path(exchange), &id);
    struct auth_key who;
    struct api_error error;
    struct kept_text *text;
    struct kept kept;

    if (admit_key(front, exchange, &who, &error) < 0) {
        reply_error(exchange, &error, NULL, NULL);
    } else if (verb == VERB_NONE) {
        api_fail(&error, 404, "there is nothing at this path");
        reply_error(exchange, &error, NULL, NULL);
    } else if (verb == VERB_CANCEL) {
        responses_cancel_response(front, exchange, &who, id);
    } else if ((text = responses_find_kept(front, id, who.tenant, &kept)) == NULL) {
        responses_reply_missing(exchange, id);
    } else if (http_exchange_method(exchange) == HTTP_DELETE) {
        kept_text_unref(text);
        responses_delete_response(front, exchange, &who, id);
    } else if (verb == VERB_ITEMS) {
        responses_show_items(front, exchange, &(struct kept_items){&who, id, kept.items, text});
    } else {
        responses_show_response(exchange, &who, text, kept.response);
    }
}

void responses_serve(struct front *front, struct http_exchange *exchange)
{
    struct bytes id;
    enum verb verb = responses_read_path(http_exchange_path(exchange), &id);
    struct auth_key who;
    struct api_error error;

    if (verb != VERB_NONE && admit_key(front, exchange, &who, &error) == 0 &&
        !(verb == VERB_CANCEL && responses_find_stream(front, id, who.tenant) != NULL) &&
        shared_fetch_response(front, exchange, &who, id, responses_answer))
        return; /* another router may keep it */
    responses_answer(front, exchange);
}
