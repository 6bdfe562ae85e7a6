/* SPDX-License-Identifier: Apache-2.0 */
/* The endpoint on its own thread, and a client that checks the grammar of every stream.
 * A failure here fails the test. */
#include "rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "net/http/sse_parse.h"
#include "sim_model.h"

static void begin(struct rig *rig, void (*change)(struct front_opts *opts, struct sim_opts *sim))
{
    struct sim_opts sim = {.model = &rig->model, .accept_ns = NS_PER_MS, .token_ns = 100 * NS_PER_US};
    struct front_opts opts;

    raw_loop_init(&rig->raw);
    assert_int_equal(metrics_new(&rig->metrics), 0);
    assert_int_equal(ev_jobs_new(1, 64, &rig->jobs), 0);
    front_opts_init(&opts);
    sim.loop = opts.loop = rig->raw.loop;
    opts.jobs = rig->jobs;
    opts.metrics = rig->metrics;
    opts.limits.linger_ns = 200 * NS_PER_MS;
    if (change != NULL)
        change(&opts, &sim);
    assert_int_equal(sim_new(&sim, &rig->sim), 0);
    rig->counts = sim_counts(rig->sim);
    opts.backend = sim_backend(rig->sim);
    assert_int_equal(front_new(&opts, NULL, &rig->front), 0);
    assert_int_equal(front_listen(rig->front, "127.0.0.1:0", NULL), 0);
    rig->port = front_port(rig->front);
    signal(SIGPIPE, SIG_IGN); /* as in the daemons: a client may be gone when the server writes to it */
    raw_loop_run(&rig->raw);
}

void rig_begin(struct rig *rig, void (*change)(struct front_opts *opts, struct sim_opts *sim))
{
    memset(rig, 0, sizeof(*rig));
    assert_int_equal(sim_model_open(CONTEXT, &rig->model), 0);
    begin(rig, change);
}

void rig_begin_with(struct rig *rig, const char *chat_template)
{
    memset(rig, 0, sizeof(*rig));
    assert_int_equal(sim_model_open_with(chat_template, CONTEXT, &rig->model), 0);
    begin(rig, NULL);
}

void rig_end(struct rig *rig)
{
    raw_loop_stop(&rig->raw);
    front_free(rig->front);
    ev_jobs_free(rig->jobs);
    assert_int_equal(rig->counts->n_running, 0);
    assert_int_equal(rig->counts->n_kept, 0);
    sim_free(rig->sim);
    metrics_free(rig->metrics);
    sim_model_close(&rig->model);
    ev_loop_free(rig->raw.loop);
}

bool reaches(atomic_uint *counter, unsigned value)
{
    for (int i = 0; i < 600 && *counter != value; i++)
        clock_sleep_ns(5 * NS_PER_MS);
    return *counter == value;
}

bool passes(atomic_uint *counter, unsigned value)
{
    for (int i = 0; i < 600 && *counter < value; i++)
        clock_sleep_ns(5 * NS_PER_MS);
    return *counter >= value;
}

/* ---- requests ---- */

void put_post(struct buf *out, const char *path, const char *fields, const char *body)
{
    buf_printf(out, "POST %s HTTP/1.1\r\nHost: a\r\n%sContent-Length: %zu\r\n\r\n%s", path, fields,
               strlen(body), body);
}

/* user: text without quotes; more: further members, beginning with a comma. */
void put_message(struct buf *out, const char *user, const char *more)
{
    struct buf body = {0};

    buf_printf(
        &body,
        "{\"model\":\"sim\",\"max_tokens\":100,\"messages\":[{\"role\":\"user\",\"content\":\"%s\"}]%s}",
        user, more);
    put_post(out, "/v1/messages?beta=true", "", (const char *)body.data);
    buf_fini(&body);
}

/* Sends and reads one answer; *head_out receives head and body unchanged.
 * Returns the body as JSON, or NULL. */
json_t *ask(struct rig *rig, const struct buf *request, int want_status, struct buf *head_out)
{
    struct buf text = {0};
    struct buf body = {0};
    int fd = raw_connect(rig->port);
    json_t *root;

    raw_send(fd, request->data, request->len_bytes);
    assert_int_equal(raw_read_answer(fd, &text, &body), want_status);
    assert_true(raw_holds(&text, "\r\nrequest-id: req_"));
    close(fd);
    root = json_loadb((const char *)body.data, body.len_bytes, 0, NULL);
    if (head_out != NULL)
        *head_out = text;
    else
        buf_fini(&text);
    buf_fini(&body);
    return root;
}

json_t *ask_message(struct rig *rig, const char *user, const char *more, int want_status)
{
    struct buf request = {0};
    json_t *root;

    put_message(&request, user, more);
    root = ask(rig, &request, want_status, NULL);
    buf_fini(&request);
    assert_non_null(root);
    return root;
}

const char *str_at(json_t *root, const char *a, const char *b)
{
    json_t *value = json_object_get(root, a);

    if (b != NULL)
        value = json_object_get(value, b);
    return json_is_string(value) ? json_string_value(value) : "";
}

int num_at(json_t *root, const char *a, const char *b)
{
    json_t *value = json_object_get(json_object_get(root, a), b);

    assert_true(json_is_integer(value));
    return (int)json_integer_value(value);
}

const char *text_of(json_t *message, size_t block)
{
    return str_at(json_array_get(json_object_get(message, "content"), block), "text", NULL);
}

/* ---- streams ---- */

static void take_block_event(struct story *story, const char *type, json_t *data)
{
    int index = (int)json_integer_value(json_object_get(data, "index"));

    if (strcmp(type, "content_block_start") == 0) {
        assert_int_equal(story->open, -1);
        assert_int_equal(index, story->n_blocks++);
        story->open = index;
        if (strcmp(str_at(data, "content_block", "type"), "tool_use") == 0) {
            assert_int_equal(strncmp(str_at(data, "content_block", "id"), "toolu_", 6), 0);
            buf_printf(&story->names, "%s;", str_at(data, "content_block", "name"));
        }
        return;
    }
    assert_int_equal(index, story->open);
    if (strcmp(type, "content_block_stop") == 0) {
        story->open = -1;
        buf_append_str(&story->arguments, "");
        return;
    }
    buf_append_str(&story->text, str_at(data, "delta", "text"));
    buf_append_str(&story->arguments, str_at(data, "delta", "partial_json"));
}

static int take_event(void *arg, struct bytes name, struct bytes text)
{
    struct story *story = arg;
    json_t *data = json_loadb((const char *)text.data, text.len_bytes, 0, NULL);
    const char *type = str_at(data, "type", NULL);

    assert_non_null(data);
    assert_true(bytes_is(name, type));
    assert_false(story->is_ended);
    if (strcmp(type, "message_start") == 0) {
        assert_false(story->is_begun);
        story->is_begun = true;
        story->open = -1;
        story->start_usage = json_incref(json_object_get(json_object_get(data, "message"), "usage"));
        assert_int_equal(strncmp(str_at(data, "message", "id"), "msg_", 4), 0);
        json_decref(data);
        return 0;
    }
    assert_true(story->is_begun);
    if (strcmp(type, "ping") == 0) {
        story->n_pings++;
    } else if (strncmp(type, "content_block", 13) == 0) {
        take_block_event(story, type, data);
    } else if (strcmp(type, "message_delta") == 0) {
        assert_int_equal(story->open, -1);
        snprintf(story->stop, sizeof(story->stop), "%s", str_at(data, "delta", "stop_reason"));
        story->end_usage = json_incref(json_object_get(data, "usage"));
    } else if (strcmp(type, "error") == 0) {
        snprintf(story->error, sizeof(story->error), "%s", str_at(data, "error", "type"));
        story->is_ended = true;
    } else {
        assert_string_equal(type, "message_stop");
        assert_string_not_equal(story->stop, "");
        story->is_ended = true;
    }
    json_decref(data);
    return 0;
}

static void read_story(struct buf *body, struct story *story)
{
    struct sse_parser *parser;

    assert_int_equal(sse_parser_new(1 << 20, take_event, story, &parser), 0);
    assert_int_equal(sse_parser_feed(parser, buf_view(body)), 0);
    sse_parser_free(parser);
    assert_true(story->is_ended);
}

void stream_message(struct rig *rig, const char *user, const char *more, const char *fields,
                    struct story *story)
{
    struct buf request = {0};
    struct buf body_text = {0};
    struct buf text = {0};
    struct buf body = {0};
    int fd = raw_connect(rig->port);

    memset(story, 0, sizeof(*story));
    buf_printf(&body_text,
               "{\"model\":\"sim\",\"stream\":true,\"max_tokens\":100,\"messages\":[{\"role\":\"user\","
               "\"content\":\"%s\"}]%s}",
               user, more);
    put_post(&request, "/v1/messages", fields, (const char *)body_text.data);
    raw_send(fd, request.data, request.len_bytes);
    assert_int_equal(raw_read_answer(fd, &text, &body), 200);
    assert_true(raw_holds(&text, "content-type: text/event-stream; charset=utf-8\r\n"));
    assert_true(raw_holds(&text, "request-id: req_"));
    read_story(&body, story);
    /* The connection continues. */
    buf_clear(&text);
    raw_send_str(fd, "GET /livez HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_int_equal(raw_read_answer(fd, &text, NULL), 200);
    close(fd);
    buf_fini(&request);
    buf_fini(&body_text);
    buf_fini(&text);
    buf_fini(&body);
}

void story_fini(struct story *story)
{
    buf_fini(&story->text);
    buf_fini(&story->arguments);
    buf_fini(&story->names);
    json_decref(story->start_usage);
    json_decref(story->end_usage);
}

int total_input(json_t *usage)
{
    return (int)(json_integer_value(json_object_get(usage, "input_tokens")) +
                 json_integer_value(json_object_get(usage, "cache_creation_input_tokens")) +
                 json_integer_value(json_object_get(usage, "cache_read_input_tokens")));
}
