/* SPDX-License-Identifier: Apache-2.0 */
/* A closed loop of chat completions on one event loop.
 *
 *   load_measure ──> n requests run; when one ends, the next starts
 *   a request    ──> sent, first piece of text, last piece, usage of the last chunk
 *
 * Prompts are random words, so no cache has them.  With a hit share, all prompts of a point begin with the
 * same words.  Token counts are the server's own, and so is the learned number of tokens per word. */
#include "clients/plan/load.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/check.h"
#include "base/event/loop.h"
#include "base/list.h"
#include "base/rng.h"
#include "base/str.h"
#include "net/http/client.h"
#include "net/http/sse_parse.h"
#include "text/json/json.h"

#define LOAD_PROBE_WORDS 256
#define LOAD_EVENT_BYTES ((size_t)1 << 20)
#define LOAD_ERROR_BYTES 200

struct load {
    struct load_opts opts;
    struct ev_loop *loop;
    struct http_client *client;
    struct server_url url;
    char path[320];
    struct http_fields fields;
    struct rng rng;
    double tokens_per_word, extra_tokens;
    /* of the point that runs */
    struct load_point *point;
    struct fault *fault;
    struct list live; /* asks */
    int result;
    unsigned n_sent, n_ended;
    uint64_t shared_seed;
    double sum_prompt, sum_answer, sum_ttft_ms, sum_tpot_ms;
    unsigned n_counted, n_tpot;
};

struct load_ask {
    struct load *load;
    struct list in_live;
    uint64_t sent_ns, first_ns, last_ns;
    double n_pieces, prompt_tokens, answer_tokens;
    struct sse_parser *events;
    struct buf error; /* the beginning of the body of a refusal */
    int status;
};

static void load_ask_free(struct load_ask *ask)
{
    list_remove(&ask->in_live);
    sse_parser_free(ask->events);
    buf_fini(&ask->error);
    free(ask);
}

static void load_stop(struct load *load, int result)
{
    load->result = result;
    ev_loop_stop(load->loop);
}

static int ask_on_event(void *arg, struct bytes name, struct bytes data)
{
    struct load_ask *ask = arg;
    json_t *root;

    (void)name;
    if (api_json_load(data, NULL, &root) != 0) /* the last event is "[DONE]" */
        return 0;
    const json_t *choice = json_array_get(json_object_get(root, "choices"), 0);
    const json_t *delta = json_object_get(choice, "delta"), *usage = json_object_get(root, "usage");
    bool has_text = json_string_length(json_object_get(delta, "content")) > 0 ||
                    json_string_length(json_object_get(delta, "reasoning_content")) > 0;
    if (has_text) {
        ask->last_ns = clock_now_ns();
        if (ask->n_pieces++ == 0)
            ask->first_ns = ask->last_ns;
    }
    if (json_is_object(usage)) {
        ask->prompt_tokens = json_number_value(json_object_get(usage, "prompt_tokens"));
        ask->answer_tokens = json_number_value(json_object_get(usage, "completion_tokens"));
    }
    json_decref(root);
    return 0;
}

static void ask_on_head(void *arg, const struct http_head *head, struct bytes text)
{
    struct load_ask *ask = arg;

    (void)text;
    ask->status = head->status;
}

static void ask_on_body(void *arg, struct bytes piece)
{
    struct load_ask *ask = arg;

    if (ask->status == 200)
        sse_parser_feed(ask->events, piece);
    else if (ask->error.len_bytes < LOAD_ERROR_BYTES)
        buf_append(&ask->error, piece.data, piece.len_bytes);
}

static int load_send(struct load *load);

static void ask_count(const struct load_ask *ask)
{
    struct load *load = ask->load;
    double answer = ask->answer_tokens > 0 ? ask->answer_tokens : ask->n_pieces;

    load->n_counted++;
    load->sum_prompt += ask->prompt_tokens;
    load->sum_answer += answer;
    load->sum_ttft_ms += (double)(ask->first_ns - ask->sent_ns) / 1e6;
    if (answer > 1) {
        load->sum_tpot_ms += (double)(ask->last_ns - ask->first_ns) / 1e6 / (answer - 1);
        load->n_tpot++;
    }
}

static void ask_on_end(void *arg, int result, const struct fault *fault)
{
    struct load_ask *ask = arg;
    struct load *load = ask->load;
    bool is_good = result == 0 && ask->status == 200;

    if (is_good && ask->first_ns > 0) /* a model may end its answer at once */
        ask_count(ask);
    if (!is_good && load->result == 0 && result != 0)
        fault_set(load->fault, E_PEER, "a request failed: %s", fault->text);
    else if (!is_good && load->result == 0)
        fault_set(load->fault, E_PEER, "the server said %d: %.*s", ask->status,
                  (int)(ask->error.len_bytes < LOAD_ERROR_BYTES ? ask->error.len_bytes : LOAD_ERROR_BYTES),
                  ask->error.len_bytes == 0 ? "" : (const char *)ask->error.data);
    load_ask_free(ask);
    load->n_ended++;
    if (!is_good)
        load_stop(load, E_PEER);
    else if (load->n_sent < load->point->n_requests) {
        int rc = load_send(load);
        if (rc != 0)
            load_stop(load, rc);
    } else if (load->n_ended == load->n_sent)
        load_stop(load, 0);
}

/* Appends n random words; the first part comes from the seed that the prompts of a point share. */
static void load_put_words(struct load *load, double n_words, double hit, struct buf *out)
{
    static const char *const WORDS[] = {"river", "stone", "light", "green", "paper", "table",
                                        "water", "seven", "house", "north", "black", "sound",
                                        "train", "white", "grass", "north"};
    struct rng shared;

    rng_init(&shared, load->shared_seed);
    for (double i = 0; i < n_words; i++) {
        struct rng *rng = i < n_words * hit ? &shared : &load->rng;
        buf_append_str(out, WORDS[rng_below(rng, 16)]);
        buf_append_byte(out, ' ');
    }
}

static int load_body(struct load *load, struct buf *out)
{
    const struct load_point *point = load->point;
    double words = (point->prompt_tokens - load->extra_tokens) / load->tokens_per_word;
    struct buf prompt = {0};

    load_put_words(load, words < 1 ? 1 : words, point->hit, &prompt);
    buf_append_str(out, "{\"model\": ");
    json_put_str(out, bytes_str(load->opts.model));
    buf_printf(
        out,
        ", \"max_tokens\": %.0f, \"ignore_eos\": true, \"temperature\": 1, \"stream\": true, "
        "\"stream_options\": {\"include_usage\": true}, \"messages\": [{\"role\": \"user\", \"content\": ",
        point->answer_tokens);
    json_put_str(out, buf_view(&prompt));
    int rc = buf_append_str(out, "}]}");
    buf_fini(&prompt);
    return rc;
}

static struct load_ask *ask_new(struct load *load)
{
    struct load_ask *ask = calloc(1, sizeof(*ask));

    if (ask == NULL)
        return NULL;
    ask->load = load;
    list_init(&ask->in_live);
    if (sse_parser_new(LOAD_EVENT_BYTES, ask_on_event, ask, &ask->events) == 0)
        return ask;
    free(ask);
    return NULL;
}

static int load_send(struct load *load)
{
    static const struct http_call_events EVENTS = {
        .on_head = ask_on_head, .on_body = ask_on_body, .on_end = ask_on_end};
    struct load_ask *ask = ask_new(load);
    struct buf body = {0};
    struct http_call *call;
    int rc = ask == NULL ? E_NOMEM : load_body(load, &body);

    if (rc == 0) {
        ask->sent_ns = clock_now_ns();
        rc = http_client_start(load->client,
                               &(struct http_call_opts){.method = HTTP_POST,
                                                        .path = load->path,
                                                        .fields = &load->fields,
                                                        .body = buf_view(&body),
                                                        .timeout_ns = load->opts.timeout_ns,
                                                        .events = &EVENTS,
                                                        .arg = ask},
                               &call);
    }
    buf_fini(&body);
    if (rc != 0) {
        if (ask != NULL)
            load_ask_free(ask);
        return rc;
    }
    list_push_back(&load->live, &ask->in_live);
    load->n_sent++;
    return 0;
}

static int load_run(struct load *load, struct load_point *point, struct fault *fault)
{
    int rc = 0;

    load->point = point;
    load->fault = fault;
    load->result = 0;
    load->n_sent = load->n_ended = load->n_counted = load->n_tpot = 0;
    load->sum_prompt = load->sum_answer = load->sum_ttft_ms = load->sum_tpot_ms = 0;
    while (rc == 0 && load->n_sent < point->concurrency && load->n_sent < point->n_requests)
        rc = load_send(load);
    if (rc == 0)
        rc = ev_loop_run(load->loop);
    if (rc < 0)
        return fault_set(fault, rc, "%s", err_text(rc));
    if (load->result != 0)
        return load->result;
    if (load->n_ended < load->n_sent)
        return fault_set(fault, E_CANCELLED, "interrupted");
    if (load->n_counted == 0)
        return fault_set(fault, E_PEER, "no answer had text");
    double n = (double)load->n_counted;
    point->prompt_tokens = load->sum_prompt / n;
    point->answer_tokens = load->sum_answer / n;
    point->ttft_ms = load->sum_ttft_ms / n;
    point->tpot_ms = load->n_tpot == 0 ? 0 : load->sum_tpot_ms / load->n_tpot;
    return 0;
}

int load_measure(struct load *load, struct load_point *point, struct fault *fault)
{
    load->shared_seed = rng_u64(&load->rng);
    if (point->hit > 0) { /* the first prompt of a point brings the beginning into the cache */
        struct load_point first = *point;
        int rc;

        first.concurrency = first.n_requests = 1;
        rc = load_run(load, &first, fault);
        if (rc != 0)
            return rc;
    }
    return load_run(load, point, fault);
}

/* A prompt of one word and one of many words give the tokens of a word and of the chat format. */
static int load_probe(struct load *load, struct fault *fault)
{
    double tokens[2];

    load->tokens_per_word = 1;
    for (int i = 0; i < 2; i++) {
        struct load_point point = {.prompt_tokens = i == 0 ? 1 : LOAD_PROBE_WORDS,
                                   .answer_tokens = 2,
                                   .concurrency = 1,
                                   .n_requests = 1};
        int rc = load_measure(load, &point, fault);
        if (rc != 0)
            return rc;
        tokens[i] = point.prompt_tokens;
    }
    if (!(tokens[1] > tokens[0]))
        return fault_set(fault, E_FORMAT, "the endpoint does not count tokens (no usage in its stream)");
    load->tokens_per_word = (tokens[1] - tokens[0]) / (LOAD_PROBE_WORDS - 1);
    load->extra_tokens = tokens[0] - load->tokens_per_word;
    return 0;
}

static int load_connect(struct load *load, struct fault *fault)
{
    char bearer[600];
    int rc = server_url_parse(load->opts.url, fault, &load->url);

    if (rc != 0)
        return rc;
    snprintf(load->path, sizeof(load->path), "%s/v1/chat/completions", load->url.base);
    rc = ev_loop_new(&load->loop);
    if (rc != 0)
        return fault_set(fault, rc, "%s", err_text(rc));
    rc = http_fields_add_str(&load->fields, "content-type", "application/json");
    if (rc == 0 && load->opts.key != NULL) {
        snprintf(bearer, sizeof(bearer), "Bearer %s", load->opts.key);
        rc = http_fields_add_str(&load->fields, "authorization", bearer);
    }
    if (rc != 0)
        return fault_set(fault, rc, "%s", err_text(rc));
    return http_client_new(&(struct http_client_opts){.loop = load->loop, .address = load->url.address},
                           fault, &load->client);
}

int load_open(const struct load_opts *opts, struct fault *fault, struct load **out)
{
    struct load *load = calloc(1, sizeof(*load));

    if (load == NULL)
        return fault_set(fault, E_NOMEM, "out of memory");
    load->opts = *opts;
    list_init(&load->live);
    rng_init(&load->rng, clock_now_ns());
    int rc = load_connect(load, fault);
    if (rc == 0)
        rc = load_probe(load, fault);
    if (rc != 0) {
        load_close(load);
        return rc;
    }
    *out = load;
    return 0;
}

void load_close(struct load *load)
{
    if (load == NULL)
        return;
    if (load->client != NULL)
        http_client_free(load->client); /* cancels what is under way */
    while (load->live.next != &load->live)
        load_ask_free(container_of(load->live.next, struct load_ask, in_live));
    if (load->loop != NULL) {
        ev_loop_drain(load->loop);
        ev_loop_free(load->loop);
    }
    http_fields_fini(&load->fields);
    free(load);
}
