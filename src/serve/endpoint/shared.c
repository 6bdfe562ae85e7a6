/* SPDX-License-Identifier: Apache-2.0 */
/* The endpoint's use of the values that several routers have in common (net/state/state_values.h).
 *
 *     value                         kept when                  looked for when
 *     a conversation                its answer ended           a request continues it and this router lacks it
 *     a response                    its answer ended           a request or a route names it, likewise
 *     a remembered answer           its answer ended           a request's messages have it, likewise
 *     the claim of a conversation   a request continues it     always: one request of all routers gets it, but a
 *                                                              resumed stream goes on without it
 *
 * A value that is found goes into this router's own stores, and the request continues as if the value had been
 * there before.  If none is found in time, the request continues without it. */
#include "serve/endpoint/shared_priv.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "serve/conversation/answer_image.h"
#include "serve/endpoint/front_priv.h"
#include "serve/endpoint/front_shared.h"
#include "serve/endpoint/responses_priv.h"

#define CONVERSATION_LIFE_S (CONVERSATION_LIFE_NS / NS_PER_S)

#define ANSWER_LIFE_S 3600u
#define LATER_NS      (60 * NS_PER_S) /* how long a stream can be resumed, as of its order */
#define STREAM_LIFE_S 3600u           /* of the text that a stream continues, as of its order */
#define MAX_FORGOTTEN 8u              /* names in one turn: each goes to several workers */
#define MAX_LOOKED_AT 256u            /* messages of a request, the last ones */
#define MAX_VISITS    256u            /* of /v1/responses/ID that wait for their value */

struct shared_visit { /* of /v1/responses/ID */
    struct list node; /* front.visits */
    struct front *front;
    struct http_exchange *exchange;
    void *ask;
    char tenant[64], id[IDS_BYTES];
    void (*go_on)(struct front *front, struct http_exchange *exchange);
};

static const struct state_values *shared_values_of(const struct front *front)
{
    return state_values_are_up(&front->opts.values) ? &front->opts.values : NULL;
}

/* ---- keeping ---- */

struct shared_kept { /* of a request's owner */
    const char *kind, *id;
    uint64_t life_s;
    struct bytes value;
};

/* False: this router alone has it. */
static bool shared_put(struct request *request, const struct shared_kept *kept)
{
    const struct state_values *values = shared_values_of(request->front);
    struct state_name name;

    return values != NULL && kept->value.len_bytes <= state_values_max_bytes(values) &&
           state_values_name(values, kept->kind, bytes_str(request->owner), bytes_str(kept->id), &name) ==
               0 &&
           state_values_put_copy(values, &name, kept->life_s, kept->value) == 0;
}

void shared_keep_thread(struct request *request, struct bytes text)
{
    (void)shared_put(request,
                     &(struct shared_kept){"thread", request->message_id, CONVERSATION_LIFE_S, text});
}

/* The claim of a stream outlives the text, which could be continued again without it. */
static bool shared_put_claim(struct request *request)
{
    return shared_put(request, &(struct shared_kept){.kind = "claim",
                                                     .id = request->shared.thread_id,
                                                     .life_s = STREAM_LIFE_S + CONVERSATION_LIFE_S});
}

void shared_keep_history(struct request *request)
{
    struct shared_part *part = &request->shared;

    if (part->claim == STATE_CLAIM_SET && request->history != NULL && shared_put_claim(request))
        part->has_text = shared_put(request, &(struct shared_kept){"thread", part->thread_id, STREAM_LIFE_S,
                                                                   kept_text_view(request->history)});
}

void shared_keep_response(struct request *request, struct bytes text)
{
    const struct state_values *values = shared_values_of(request->front);
    struct state_name name;

    if (values != NULL && text.len_bytes <= state_values_max_bytes(values) &&
        state_values_name(values, "response", bytes_str(request->who.tenant), bytes_str(request->message_id),
                          &name) == 0)
        (void)state_values_put_copy(values, &name, RESPONSE_LIFE_NS / NS_PER_S, text);
}

void shared_keep_answer(struct request *request, const struct answer_key *key,
                        const struct cached_answer *answer)
{
    const struct state_values *values = shared_values_of(request->front);
    struct state_name name;
    struct buf image = {0};

    if (values == NULL || answer->bytes > state_values_max_bytes(values) ||
        state_values_name(values, "answer", bytes_str(""), bytes_of(key->bytes, sizeof(key->bytes)), &name) <
            0)
        return;
    if (answer_image_pack(answer, &image) == 0)
        (void)state_values_put(values, &name, ANSWER_LIFE_S, &image);
    buf_fini(&image);
}

/* ---- a request's conversation ---- */

static void shared_go_on(struct request *request)
{
    void (*go_on)(struct request * request) = request->shared.go_on;

    request->shared.ask = NULL;
    free(request->shared.ids);
    request->shared.ids = NULL;
    go_on(request);
}

static bool shared_ask(struct request *request, const struct state_question *question)
{
    struct state_question whole = *question;

    whole.arg = request;
    return state_values_ask(&request->front->opts.values, &whole, &request->shared.ask) == 0;
}

static void shared_on_thread(void *arg, struct buf *values, enum state_claim claim)
{
    struct request *request = arg;
    bool has_text = request->shared.n > 0 && values[0].len_bytes > 0;

    request->shared.claim = claim;
    if (has_text && request->resume.is_again)
        request->history = kept_text_new(&values[0]);
    else if (has_text && claim != STATE_CLAIM_TAKEN)
        conversations_put(request->front->conversations, request->shared.thread_id, request->owner,
                          &values[0], clock_now_ns());
    shared_go_on(request);
}

static bool shared_claim_name(const struct request *request, struct state_name *out)
{
    return state_values_name(&request->front->opts.values, "claim", bytes_str(request->owner),
                             request->gen.thread_id, out) == 0;
}

/* A stream that is resumed needs the text, also where the conversation is continued here.  It takes the claim only if
 * its first request gave it up: TAKEN is the normal case. */
static bool shared_fetch_thread(struct request *request)
{
    struct front *front = request->front;
    struct bytes id = request->gen.thread_id;
    enum conversations_take here =
        conversations_look(front->conversations, id, request->owner, clock_now_ns());
    struct state_name name, claim;
    struct state_question question = {.names = &name,
                                      .n = here == CONVERSATIONS_UNKNOWN,
                                      .claim = &claim,
                                      .claim_life_s = CONVERSATION_LIFE_S,
                                      .done = shared_on_thread};

    if (id.len_bytes == 0 || id.len_bytes >= IDS_BYTES || !shared_claim_name(request, &claim) ||
        state_values_name(&front->opts.values, "thread", bytes_str(request->owner), id, &name) < 0)
        return false;
    if (request->resume.is_again) {
        request->history = conversations_read(front->conversations, id, request->owner, clock_now_ns());
        question.n = request->history == NULL;
    } else if (here == CONVERSATIONS_CONTINUED || here == CONVERSATIONS_BUSY) {
        return false;
    }
    request->shared.n = question.n;
    memcpy(request->shared.thread_id, id.data, id.len_bytes);
    return shared_ask(request, &question);
}

static void shared_on_responses(void *arg, struct buf *values, enum state_claim claim)
{
    struct request *request = arg;

    (void)claim;
    for (uint32_t i = 0; i < request->shared.n; i++)
        responses_take_kept(request->front, request->shared.ids[i], request->who.tenant, &values[i]);
    shared_go_on(request);
}

/* The responses that the request names and this router lacks, 64 at most. */
static bool shared_fetch_responses(struct request *request)
{
    struct front *front = request->front;
    const struct gen_response *asked = request->gen.response;
    struct state_name names[STATE_MAX_NAMES];
    struct state_question question = {.names = names, .done = shared_on_responses};

    if (front->responses == NULL)
        return false;
    request->shared.ids = calloc(STATE_MAX_NAMES, sizeof(*request->shared.ids));
    for (size_t i = 0; request->shared.ids != NULL && i < asked->n_wanted && question.n < STATE_MAX_NAMES;
         i++) {
        struct bytes id = asked->wanted[i];

        if (id.len_bytes == 0 || id.len_bytes >= IDS_BYTES ||
            conversations_look(front->responses, id, request->who.tenant, clock_now_ns()) !=
                CONVERSATIONS_UNKNOWN ||
            state_values_name(&front->opts.values, "response", bytes_str(request->who.tenant), id,
                              &names[question.n]) < 0)
            continue;
        request->shared.ids[question.n++] = id;
    }
    request->shared.n = question.n;
    if (question.n > 0 && shared_ask(request, &question))
        return true;
    free(request->shared.ids);
    request->shared.ids = NULL;
    return false;
}

bool shared_fetch_conversation(struct request *request, void (*go_on)(struct request *request))
{
    if (shared_values_of(request->front) == NULL)
        return false;
    request->shared.go_on = go_on;
    return request->gen.response != NULL ? shared_fetch_responses(request) : shared_fetch_thread(request);
}

/* ---- a request's answers ---- */

static void shared_on_answers(void *arg, struct buf *values, enum state_claim claim)
{
    struct request *request = arg;
    struct shared_part *part = &request->shared;

    (void)claim;
    part->fetched = calloc(part->n, sizeof(*part->fetched));
    for (uint32_t i = 0; i < part->n && part->fetched != NULL; i++) {
        if (values[i].len_bytes == 0)
            continue;
        part->fetched[part->n_fetched] = values[i];
        part->keys[part->n_fetched++] = part->keys[i];
        values[i] = (struct buf){0};
    }
    shared_go_on(request);
}

bool shared_fetch_answers(struct request *request, void (*go_on)(struct request *request))
{
    static const struct answer_key none;
    struct front *front = request->front;
    const struct replay *replay = &request->replay;
    struct state_name names[STATE_MAX_NAMES];
    struct state_question question = {.names = names, .done = shared_on_answers};
    size_t end = replay->keys != NULL ? replay->n : 0;
    size_t first = end > MAX_LOOKED_AT ? end - MAX_LOOKED_AT : 0;

    if (shared_values_of(front) == NULL || front->answer_cache == NULL || end == 0 ||
        !api_call_generates(request->call))
        return false;
    request->shared.go_on = go_on;
    request->shared.keys = calloc(STATE_MAX_NAMES, sizeof(*request->shared.keys));
    for (size_t i = end; request->shared.keys != NULL && i > first && question.n < STATE_MAX_NAMES; i--) {
        struct answer_key *key = &request->shared.keys[question.n];

        if (memcmp(&replay->keys[i - 1], &none, sizeof(none)) == 0)
            continue;
        replay_key_for(&replay->keys[i - 1], request->owner, request->model->fingerprint, key);
        question.n += !answer_cache_has(front->answer_cache, key) &&
                      state_values_name(&front->opts.values, "answer", bytes_str(""),
                                        bytes_of(key->bytes, sizeof(key->bytes)), &names[question.n]) == 0;
    }
    request->shared.n = question.n;
    return question.n > 0 && shared_ask(request, &question);
}

void shared_take_answers(struct request *request)
{
    struct shared_part *part = &request->shared;
    uint32_t vocab_size = tokenizer_vocab_size(request->model->tokenizer);

    for (uint32_t i = 0; i < part->n_fetched; i++) {
        struct cached_answer *answer;

        if (answer_image_parse(buf_view(&part->fetched[i]), vocab_size, &answer) == 0)
            answer_cache_put(request->front->answer_cache, &part->keys[i], answer);
        buf_fini(&part->fetched[i]);
    }
    part->n_fetched = 0;
}

/* ---- the end ---- */

/* Forgets the first names whose time has come, and the oldest one if all places are taken. */
static void shared_forget_due(struct front *front, uint64_t now_ns)
{
    struct shared_later *later = &front->later;

    for (unsigned i = 0; i < MAX_FORGOTTEN && later->n > 0; i++) {
        if (later->names[later->first].due_ns > now_ns && later->n < ARRAY_LEN(later->names))
            return;
        (void)state_values_forget(&front->opts.values, &later->names[later->first].name);
        later->first = (later->first + 1) % ARRAY_LEN(later->names);
        later->n--;
    }
}

/* Forgets a name when its stream cannot be resumed any more, with the end of a later request.  If there is none, the
 * value's life ends it. */
static void shared_forget_later(struct front *front, const struct state_name *name)
{
    struct shared_later *later = &front->later;
    uint32_t at = (later->first + later->n++) % ARRAY_LEN(later->names);

    later->names[at].name = *name;
    later->names[at].due_ns = clock_now_ns() + LATER_NS;
}

/* The first request of a resumed stream may have given the claim up meanwhile. */
static bool shared_is_claimed(struct request *request)
{
    return request->resume.is_again ? shared_put_claim(request) : request->shared.claim == STATE_CLAIM_SET;
}

/* The common copy of a conversation that was continued.  The claim is what keeps other requests from continuing it
 * again, so without a claim the copy goes at once.  A stream that moved leaves the copy to the request that resumed
 * it. */
static void shared_end_thread(struct request *request, enum conversations_end how)
{
    const struct shared_part *part = &request->shared;
    struct front *front = request->front;
    struct state_name name;

    if (part->thread_id[0] == '\0' || (part->claim == STATE_CLAIM_TAKEN && !request->resume.is_again) ||
        state_values_name(&front->opts.values, "thread", bytes_str(request->owner),
                          bytes_str(part->thread_id), &name) < 0)
        return;
    if (how != CONVERSATIONS_READABLE || !shared_is_claimed(request))
        (void)state_values_forget(&front->opts.values, &name);
    else if (!request->resume.has_moved)
        shared_forget_later(front, &name);
}

void shared_end(struct request *request, enum conversations_end how)
{
    struct shared_part *part = &request->shared;
    const struct state_values *values = &request->front->opts.values; /* also while they are away */
    struct state_name name;

    state_values_cancel(values, part->ask);
    shared_forget_due(request->front, clock_now_ns());
    if (how == CONVERSATIONS_RELEASED && part->has_text && request->history != NULL)
        (void)shared_put(request, &(struct shared_kept){"thread", part->thread_id, CONVERSATION_LIFE_S,
                                                        kept_text_view(request->history)});
    if (how != CONVERSATIONS_RELEASED)
        shared_end_thread(request, how);
    /* No second try after one that may have succeeded: the claim may be another router's by then. */
    else if (part->claim == STATE_CLAIM_SET &&
             state_values_name(values, "claim", bytes_str(request->owner), bytes_str(part->thread_id),
                               &name) == 0 &&
             state_values_remove(values, &name) == E_CLOSED)
        (void)state_values_forget(values, &name);
    for (uint32_t i = 0; i < part->n_fetched; i++)
        buf_fini(&part->fetched[i]);
    free(part->fetched);
    free(part->keys);
    free(part->ids);
    *part = (struct shared_part){0};
}

/* ---- /v1/responses/ID ---- */

static void shared_visit_free(struct shared_visit *visit)
{
    state_values_cancel(&visit->front->opts.values, visit->ask);
    list_remove(&visit->node);
    visit->front->n_visits--;
    free(visit);
}

static void shared_on_visit(void *arg, struct buf *values, enum state_claim claim)
{
    struct shared_visit *visit = arg;
    struct http_exchange *exchange = visit->exchange;
    void (*go_on)(struct front * front, struct http_exchange * exchange) = visit->go_on;
    struct front *front = visit->front;

    (void)claim;
    responses_take_kept(front, bytes_str(visit->id), visit->tenant, &values[0]);
    visit->ask = NULL;
    shared_visit_free(visit);
    go_on(front, exchange);
}

bool shared_fetch_response(struct front *front, struct http_exchange *exchange, const struct auth_key *who,
                           struct bytes id,
                           void (*go_on)(struct front *front, struct http_exchange *exchange))
{
    const struct state_values *values = shared_values_of(front);
    struct shared_visit *visit;
    struct state_name name;
    struct state_question question = {.names = &name, .n = 1, .done = shared_on_visit};

    if (values == NULL || front->responses == NULL || id.len_bytes == 0 || id.len_bytes >= IDS_BYTES ||
        front->n_visits >= MAX_VISITS ||
        conversations_look(front->responses, id, who->tenant, clock_now_ns()) != CONVERSATIONS_UNKNOWN ||
        state_values_name(values, "response", bytes_str(who->tenant), id, &name) < 0)
        return false;
    visit = calloc(1, sizeof(*visit));
    if (visit == NULL)
        return false;
    *visit = (struct shared_visit){.front = front, .exchange = exchange, .go_on = go_on};
    memcpy(visit->id, id.data, id.len_bytes);
    memcpy(visit->tenant, who->tenant, strlen(who->tenant) + 1);
    list_push_back(&front->visits, &visit->node);
    front->n_visits++;
    question.arg = visit;
    if (state_values_ask(values, &question, &visit->ask) == 0)
        return true;
    shared_visit_free(visit);
    return false;
}

int shared_forget_response(struct front *front, const char *tenant, struct bytes id)
{
    const struct state_values *values = &front->opts.values;
    struct state_name name;
    int rc;

    if (!state_values_exist(values))
        return 0;
    rc = state_values_name(values, "response", bytes_str(tenant), id, &name);
    if (rc == 0)
        rc = state_values_forget(values, &name);
    if (rc == 0 && front->opts.on_forget != NULL)
        front->opts.on_forget(front->opts.on_shared_arg, tenant, id);
    return rc;
}

struct failed_logins *front_failed_logins(const struct front *front)
{
    return front->failed_logins;
}

void front_forget_response(struct front *front, const char *tenant, struct bytes id)
{
    if (front->responses != NULL)
        (void)conversations_remove(front->responses, id, tenant);
}

void shared_abort(struct front *front, const struct http_exchange *exchange)
{
    list_for_each_safe (node, spare, &front->visits) {
        struct shared_visit *visit = container_of(node, struct shared_visit, node);

        if (visit->exchange == exchange)
            shared_visit_free(visit);
    }
}

void shared_close(struct front *front)
{
    list_for_each_safe (node, spare, &front->visits)
        shared_visit_free(container_of(node, struct shared_visit, node));
}
