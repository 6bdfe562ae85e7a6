/* SPDX-License-Identifier: Apache-2.0 */
/* The endpoint under stress: refusals, keys, clients that disconnect or do not read, draining, limits. */
#include "rig.h"

#include "tests/unit/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "serve/access/auth.h"

static void small_limits(struct front_opts *opts, struct sim_opts *sim)
{
    opts->limits.max_body_bytes = 100000;
}

static void errors_have_status_and_shape(void **state)
{
    static const struct {
        const char *path, *fields, *body;
        int status;
        const char *type, *message;
    } table[] = {
        {"/v1/messages", "", "{\"max_tokens\":1}", 400, "invalid_request_error", "model: Field required"},
        {"/v1/messages", "", "nonsense", 400, "invalid_request_error",
         "The request body is not valid JSON at byte 1"},
        {"/v1/messages", "",
         "{\"model\":\"gpt\",\"max_tokens\":1,\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}", 404,
         "not_found_error", "model: gpt"},
        {"/v1/messages", "", "{\"thread\":{\"type\":\"join\"}}", 400, "invalid_request_error",
         "thread.type: Input should be 'create' or 'continue'"},
        {"/v1/messages", "Content-Encoding: br\r\n", "x", 400, "invalid_request_error",
         "content-encoding: only gzip and identity are decoded by this server"},
        {"/v1/messages", "Content-Encoding: gzip\r\n", "x", 400, "invalid_request_error",
         "the request body is not valid gzip"},
        {"/v1/messages/batches", "", "{}", 404, "not_found_error", "there is nothing at this path"},
        {"/v1/complete", "", "{}", 404, "not_found_error", "there is nothing at this path"},
        {"/v1/models", "", "{}", 405, "invalid_request_error", "the method is not allowed here"},
        {"/v1/models/x", "", "{}", 405, "invalid_request_error", "the method is not allowed here"},
    };
    struct buf request = {0};
    struct rig rig;
    json_t *root;

    rig_begin(&rig, small_limits);
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        buf_clear(&request);
        put_post(&request, table[i].path, table[i].fields, table[i].body);
        root = ask(&rig, &request, table[i].status, NULL);
        assert_string_equal(str_at(root, "type", NULL), "error");
        assert_int_equal(strncmp(str_at(root, "request_id", NULL), "req_", 4), 0);
        assert_string_equal(str_at(root, "error", "type"), table[i].type);
        assert_string_equal(str_at(root, "error", "message"), table[i].message);
        json_decref(root);
    }
    buf_clear(&request);
    buf_append_str(&request, "GET /v1/messages HTTP/1.1\r\nHost: a\r\n\r\n");
    root = ask(&rig, &request, 405, NULL);
    json_decref(root);
    /* Refusals by the parser have the same format. */
    buf_clear(&request);
    buf_append_str(&request,
                   "POST /v1/messages HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\n");
    root = ask(&rig, &request, 400, NULL);
    assert_string_equal(str_at(root, "error", "message"), "more than one Content-Length");
    json_decref(root);
    buf_clear(&request);
    buf_append_str(&request, "POST /v1/messages HTTP/1.1\r\nHost: a\r\nContent-Length: 100001\r\n\r\n");
    root = ask(&rig, &request, 413, NULL);
    assert_string_equal(str_at(root, "error", "type"), "request_too_large");
    json_decref(root);
    buf_fini(&request);
    rig_end(&rig);
}

static void a_long_prompt_is_refused_with_exact_numbers(void **state)
{
    struct buf request = {0};
    struct buf text = {0};
    struct rig rig;
    json_t *root;
    char want[80];

    rig_begin(&rig, NULL);
    for (int i = 0; i < 600; i++)
        buf_append_str(&text, "say long");
    put_message(&request, (const char *)text.data, "");
    root = ask(&rig, &request, 400, NULL);
    /* 4800 characters, and the turns around them. */
    snprintf(want, sizeof(want), "prompt is too long: %d tokens > %d maximum", 4800 + 1 + 5 + 1 + 1 + 10 + 1,
             CONTEXT);
    if (strcmp(str_at(root, "error", "message"), want) != 0)
        assert_non_null(strstr(str_at(root, "error", "message"), " tokens > 4096 maximum"));
    json_decref(root);
    buf_fini(&request);
    buf_fini(&text);
    rig_end(&rig);
}

static void overload_says_when_to_come_back(void **state)
{
    struct buf request = {0};
    struct buf head;
    struct rig rig;
    json_t *root;

    rig_begin(&rig, NULL);
    put_message(&request, "overload", ",\"stream\":true");
    root = ask(&rig, &request, 529, &head);
    assert_string_equal(str_at(root, "error", "type"), "overloaded_error");
    assert_true(raw_holds(&head, "\r\nretry-after: 1\r\n"));
    json_decref(root);
    buf_fini(&head);
    buf_fini(&request);
    rig_end(&rig);
}

static void probes_need_nothing(void **state)
{
    static const char *const gets[] = {
        "/",        "/api/hello", "/health",        "/livez",          "/readyz", "/readyz?verbose",
        "/metrics", "/v1/models", "/v1/models/sim", "/v1/models/s%69m"};
    struct buf in = {0};
    struct rig rig;
    char request[120];

    rig_begin(&rig, NULL);
    for (size_t i = 0; i < ARRAY_LEN(gets); i++) {
        int fd = raw_connect(rig.port);

        /* HEAD first: its answer has no body, so the next answer follows the head at once. */
        snprintf(request, sizeof(request),
                 "HEAD %s HTTP/1.1\r\nHost: a\r\n\r\nGET %s HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
                 gets[i], gets[i]);
        raw_send_str(fd, request);
        buf_clear(&in);
        assert_true(raw_read_until(fd, NULL, 2000, &in));
        assert_non_null(memmem(in.data + 20, in.len_bytes - 20, "\r\n\r\nHTTP/1.1 200 OK\r\n", 21));
        close(fd);
    }
    rig.counts->is_unready = true;
    assert_int_equal(raw_ask(rig.port, "GET /readyz HTTP/1.1\r\nHost: a\r\n\r\n", NULL), 503);
    assert_int_equal(raw_ask(rig.port, "GET /health HTTP/1.1\r\nHost: a\r\n\r\n", NULL), 503);
    assert_int_equal(raw_ask(rig.port, "GET /livez HTTP/1.1\r\nHost: a\r\n\r\n", NULL), 200);
    assert_int_equal(raw_ask(rig.port, "GET /readyz?verbose HTTP/1.1\r\nHost: a\r\n\r\n", &in), 503);
    assert_true(raw_holds(&in, "sim: told not to be"));
    assert_int_equal(raw_ask(rig.port, "GET /v1/models/gpt HTTP/1.1\r\nHost: a\r\n\r\n", NULL), 404);
    assert_int_equal(raw_ask(rig.port, "GET /v1/models?limit=0 HTTP/1.1\r\nHost: a\r\n\r\n", NULL), 400);
    assert_int_equal(
        raw_ask(rig.port, "GET /v1/models?limit=1000&beta=true HTTP/1.1\r\nHost: a\r\n\r\n", &in), 200);
    assert_true(raw_holds(&in, "\"id\":\"sim\""));
    buf_fini(&in);
    rig_end(&rig);
}

/* Until models are known, clients get a retry-after, in their dialect, on every route that names a model. */
static void what_is_not_known_yet_is_no_404(void **state)
{
    static const struct {
        const char *path, *body, *type;
    } table[] = {{"/v1/messages",
                  "{\"model\":\"sim\",\"max_tokens\":9,\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}",
                  "api_error"},
                 {"/v1/messages/count_tokens",
                  "{\"model\":\"sim\",\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}", "api_error"},
                 {"/v1/chat/completions",
                  "{\"model\":\"sim\",\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}", "server_error"},
                 {"/v1/completions", "{\"model\":\"sim\",\"prompt\":\"x\"}", "server_error"},
                 {"/tokenize", "{\"prompt\":\"x\"}", "server_error"},
                 {"/detokenize", "{\"tokens\":[1]}", "server_error"},
                 {"/v1/models", NULL, "api_error"},
                 {"/v1/models/sim", NULL, "api_error"}};
    struct rig rig;

    rig_begin(&rig, NULL);
    for (int is_known = 0; is_known < 2; is_known++) {
        rig.counts->knows_nothing = !is_known;
        for (size_t i = 0; i < ARRAY_LEN(table); i++) {
            struct buf request = {0}, head = {0};
            json_t *root;

            if (table[i].body != NULL)
                put_post(&request, table[i].path, "", table[i].body);
            else
                buf_printf(&request, "GET %s HTTP/1.1\r\nHost: a\r\n\r\n", table[i].path);
            root = ask(&rig, &request, is_known ? 200 : 503, &head);
            if (!is_known) {
                assert_string_equal(str_at(root, "error", "type"), table[i].type);
                assert_non_null(strstr(str_at(root, "error", "message"), "nothing is known yet"));
                assert_true(raw_holds(&head, "\r\nretry-after: 1\r\n"));
            }
            json_decref(root);
            buf_fini(&request);
            buf_fini(&head);
        }
    }
    rig_end(&rig);
}

static void without_metrics(struct front_opts *opts, struct sim_opts *sim)
{
    opts->has_metrics = false;
}

static void metrics_can_be_kept_from_clients(void **state)
{
    struct buf in = {0};
    struct rig rig;

    rig_begin(&rig, without_metrics);
    assert_int_equal(raw_ask(rig.port, "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n", &in), 404);
    assert_true(raw_holds(&in, "there is nothing at this path"));
    assert_int_equal(raw_ask(rig.port, "GET /readyz HTTP/1.1\r\nHost: a\r\n\r\n", NULL), 200);
    buf_fini(&in);
    rig_end(&rig);
}

static char keys_path[] = "/tmp/baton-front-keys-XXXXXX";

static void with_keys(struct front_opts *opts, struct sim_opts *sim)
{
    char hash[65];
    FILE *file;

    strcpy(keys_path + strlen(keys_path) - 6, "XXXXXX");
    file = fdopen(mkstemp(keys_path), "w");
    assert_non_null(file);
    auth_key_hash(bytes_str("secret"), hash);
    fprintf(file, "%s team-a laptop\n", hash);
    fclose(file);
    opts->keys_path = keys_path;
}

static void keys_are_asked_for(void **state)
{
    static const struct {
        const char *fields;
        int status;
    } table[] = {{"", 401},
                 {"x-api-key: secret\r\n", 200},
                 {"X-API-KEY:  secret \r\n", 200},
                 {"authorization: Bearer secret\r\n", 200},
                 {"authorization: bearer  secret\r\n", 200},
                 {"x-api-key: wrong\r\nauthorization: Bearer secret\r\n", 200},
                 {"x-api-key: secret\r\nauthorization: Bearer wrong\r\n", 200},
                 {"x-api-key: wrong\r\n", 401},
                 {"authorization: Basic secret\r\n", 401},
                 {"authorization: secret\r\n", 401},
                 {"authorization: Bearer\r\n", 401}};
    struct buf request = {0};
    struct buf in = {0};
    struct rig rig;
    int fd;

    rig_begin(&rig, with_keys);
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        buf_clear(&request);
        put_post(
            &request, "/v1/messages", table[i].fields,
            "{\"model\":\"sim\",\"max_tokens\":9,\"messages\":[{\"role\":\"user\",\"content\":\"say x\"}]}");
        json_decref(ask(&rig, &request, table[i].status, NULL));
    }
    assert_int_equal(raw_ask(rig.port, "GET /v1/models HTTP/1.1\r\nHost: a\r\n\r\n", NULL), 401);
    assert_int_equal(raw_ask(rig.port, "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n", NULL), 401);
    assert_int_equal(
        raw_ask(rig.port, "GET /metrics HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer secret\r\n\r\n", &in),
        200);
    assert_true(raw_holds(&in, "baton_auth_failures_total 7"));
    assert_int_equal(raw_ask(rig.port, "GET /health HTTP/1.1\r\nHost: a\r\n\r\n", NULL), 200);
    /* Verbose readiness needs a key. */
    assert_int_equal(raw_ask(rig.port, "GET /readyz?verbose HTTP/1.1\r\nHost: a\r\n\r\n", &in), 200);
    assert_false(raw_holds(&in, "sim:"));
    /* Refused before the body is read. */
    fd = raw_connect(rig.port);
    raw_send_str(fd, "POST /v1/messages HTTP/1.1\r\nHost: a\r\nContent-Length: 30000000\r\n\r\n");
    buf_clear(&in);
    assert_int_equal(raw_read_answer(fd, &in, NULL), 401);
    close(fd);
    unlink(keys_path);
    buf_fini(&request);
    buf_fini(&in);
    rig_end(&rig);
}

static void leaving_cancels_in_every_phase(void **state)
{
    static const char *const users[] = {"wait", "hang", "flood"};
    struct rig rig;
    unsigned n = 0;

    rig_begin(&rig, NULL);
    for (int is_stream = 0; is_stream < 2; is_stream++) {
        for (size_t i = 0; i < ARRAY_LEN(users); i++) {
            struct buf request = {0};
            uint64_t began;
            int fd = raw_connect(rig.port);

            put_message(&request, users[i], is_stream ? ",\"stream\":true" : "");
            raw_send(fd, request.data, request.len_bytes);
            assert_true(reaches(&rig.counts->n_running, 1));
            clock_sleep_ns(5 * NS_PER_MS);
            began = clock_now_ns();
            close(fd);
            assert_true(reaches(&rig.counts->n_cancelled, ++n));
            assert_true(reaches(&rig.counts->n_running, 0));
            assert_true(clock_now_ns() - began < 5 * NS_PER_S);
            buf_fini(&request);
        }
    }
    assert_true(reaches(&rig.counts->n_kept, 0));
    rig_end(&rig);
}

/* A body beyond inline_bytes goes through the pool. */
static void put_big_message(struct buf *request, const char *user)
{
    struct buf text = {0};

    buf_append_str(&text, ",\"ignored\":\"");
    for (int i = 0; i < 200000; i++)
        buf_append_byte(&text, 'x');
    buf_append_str(&text, "\"");
    put_message(request, user, (const char *)text.data);
    buf_fini(&text);
}

/* Returns how many jobs a request needed until it was freed. */
static unsigned jobs_of(struct rig *rig, const char *path, const char *body, int want_status)
{
    uint64_t before = ev_jobs_n_taken(rig->jobs);
    struct buf request = {0};

    put_post(&request, path, "", body);
    json_decref(ask(rig, &request, want_status, NULL));
    buf_fini(&request);
    assert_true(reaches(&rig->counts->n_kept, 0));
    return (unsigned)(ev_jobs_n_taken(rig->jobs) - before);
}

/* Returns before, n times `what` with commas between, after. */
static char *repeated(const char *before, const char *what, unsigned n, const char *after)
{
    struct buf text = {0};

    buf_append_str(&text, before);
    for (unsigned i = 0; i < n; i++) {
        buf_append_str(&text, i == 0 ? "" : ",");
        buf_append_str(&text, what);
    }
    buf_append_str(&text, after);
    return (char *)text.data;
}

/* The loop works on a request for two milliseconds at most.  Longer work is counted as a job: parsing,
 * tokenising, or freeing memory (tests/bench/bench_loop.py has the times). */
static void work_that_grows_is_no_work_of_the_loop(void **state)
{
    static const char begin[] = "{\"model\":\"sim\",\"max_tokens\":1,\"messages\":[";
    static const char said[] = "{\"role\":\"user\",\"content\":\"a\"}";
    struct rig rig;
    char *body;

    rig_begin(&rig, NULL);
    /* Small requests are done at once. */
    body = repeated(begin, said, 10, "]}");
    assert_int_equal(jobs_of(&rig, "/v1/messages", body, 200), 0);
    free(body);
    /* Parses many messages, and tokenises them. */
    body = repeated(begin, said, 300, "]}");
    assert_int_equal(jobs_of(&rig, "/v1/messages", body, 200), 2);
    free(body);
    /* Few bytes may be many values: their number decides the next step. */
    body = repeated("{\"model\":\"sim\",\"messages\":[{\"role\":\"user\",\"content\":[",
                    "{\"type\":\"text\",\"text\":\"a\"}", 250, "]}]}");
    assert_true(strlen(body) < 8192);
    assert_int_equal(jobs_of(&rig, "/v1/messages/count_tokens", body, 200), 1);
    free(body);
    /* A job frees a long answer's memory, in addition to the two jobs. */
    body = repeated("{\"model\":\"sim\",\"prompt\":\"", "word after word", 20000, "\"}");
    assert_int_equal(jobs_of(&rig, "/tokenize", body, 200) >= 3, true);
    free(body);
    rig_end(&rig);
    (void)state;
}

static void long_bodies_go_through_the_pool(void **state)
{
    struct buf request = {0};
    struct buf other = {0};
    struct rig rig;
    json_t *root;

    rig_begin(&rig, NULL);
    put_big_message(&request, "say pooled");
    root = ask(&rig, &request, 200, NULL);
    assert_string_equal(text_of(root, 0), "pooled");
    json_decref(root);
    /* Disconnects while the work is under way, many times. */
    for (int i = 0; i < 20; i++) {
        int fd = raw_connect(rig.port);

        raw_send(fd, request.data, request.len_bytes);
        if (i % 2 == 0)
            clock_sleep_ns((uint64_t)i * 200 * NS_PER_US);
        close(fd);
    }
    assert_true(reaches(&rig.counts->n_kept, 0));
    /* And frees the front at that moment. */
    for (int i = 0; i < 5; i++) {
        int fd = raw_connect(rig.port);

        raw_send(fd, request.data, request.len_bytes);
        buf_append(&other, &fd, sizeof(fd));
    }
    rig_end(&rig);
    for (int i = 0; i < 5; i++)
        close(((int *)(void *)other.data)[i]);
    buf_fini(&request);
    buf_fini(&other);
}

static void quick_pings(struct front_opts *opts, struct sim_opts *sim)
{
    opts->ping_ns = 20 * NS_PER_MS;
}

static void silence_is_broken_by_pings(void **state)
{
    struct buf request = {0};
    struct buf in = {0};
    struct rig rig;
    int fd;

    rig_begin(&rig, quick_pings);
    put_message(&request, "hang", ",\"stream\":true");
    fd = raw_connect(rig.port);
    raw_send(fd, request.data, request.len_bytes);
    assert_true(raw_read_until(fd, "event: message_start", 1000, &in));
    buf_clear(&in);
    assert_true(raw_read_until(fd, "event: ping\ndata: {\"type\":\"ping\"}\n\n", 1000, &in));
    buf_clear(&in);
    assert_true(raw_read_until(fd, "event: ping\n", 1000, &in));
    close(fd);
    assert_true(reaches(&rig.counts->n_running, 0));
    buf_fini(&request);
    buf_fini(&in);
    rig_end(&rig);
}

static void small_queues(struct front_opts *opts, struct sim_opts *sim)
{
    opts->limits.max_queue_bytes = 64 << 10;
    opts->limits.stall_ns = NS_PER_S;
}

static void slow_readers_hold_the_backend_up(void **state)
{
    struct buf request = {0};
    struct buf in = {0};
    struct rig rig;
    int fd;

    rig_begin(&rig, small_queues);
    put_message(&request, "flood", ",\"stream\":true");
    fd = raw_connect_middling(rig.port);
    raw_send(fd, request.data, request.len_bytes);
    /* Reads only until the backend continues: a client that reads on may be as fast as the backend. */
    for (unsigned i = 1; i <= 2; i++) {
        assert_true(passes(&rig.counts->n_pauses, i)); /* one read may be long enough for several */
        while (rig.counts->n_resumes < i && rig.counts->n_cancelled == 0) {
            buf_clear(&in);
            raw_read_until(fd, "never", 1, &in);
        }
        assert_true(rig.counts->n_resumes >= i);
    }
    buf_clear(&in);
    assert_int_equal(rig.counts->n_cancelled, 0);
    /* Now it stops reading. */
    assert_true(reaches(&rig.counts->n_cancelled, 1));
    assert_int_equal(rig.counts->n_running, 0);
    close(fd);
    assert_int_equal(raw_ask(rig.port, "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n", &in), 200);
    assert_true(raw_holds(&in, "reason=\"slow_reader\""));
    buf_fini(&request);
    buf_fini(&in);
    rig_end(&rig);
}

static void on_drained(void *arg)
{
    ((struct rig *)arg)->n_drained++;
}

static void drain(void *arg)
{
    struct rig *rig = arg;

    front_set_draining(rig->front);
    front_drain(rig->front, on_drained, rig);
}

static void abandon(void *arg)
{
    front_abandon(((struct rig *)arg)->front);
}

static void draining_ends_in_an_error_event(void **state)
{
    struct buf request = {0};
    struct buf in = {0};
    struct rig rig;
    int stream, whole;

    rig_begin(&rig, NULL);
    put_message(&request, "hang", ",\"stream\":true");
    stream = raw_connect(rig.port);
    raw_send(stream, request.data, request.len_bytes);
    assert_true(raw_read_until(stream, "message_start", 1000, &in));
    buf_clear(&request);
    put_message(&request, "wait", "");
    whole = raw_connect(rig.port);
    raw_send(whole, request.data, request.len_bytes);
    assert_true(reaches(&rig.counts->n_running, 2));
    assert_int_equal(raw_ask(rig.port, "GET /readyz HTTP/1.1\r\nHost: a\r\n\r\n", NULL), 200);
    raw_loop_call(&rig.raw, drain, &rig);
    assert_int_equal(rig.n_drained, 0);
    raw_loop_call(&rig.raw, abandon, &rig);
    assert_true(raw_read_until(stream, NULL, 2000, &in));
    assert_true(raw_holds(&in, "event: error\n"));
    buf_clear(&in);
    assert_int_equal(raw_read_answer(whole, &in, NULL), 503);
    close(stream);
    close(whole);
    for (int i = 0; i < 300 && rig.n_drained == 0; i++)
        clock_sleep_ns(5 * NS_PER_MS);
    assert_int_equal(rig.n_drained, 1);
    buf_fini(&request);
    buf_fini(&in);
    rig_end(&rig);
}

static void few_requests(struct front_opts *opts, struct sim_opts *sim)
{
    opts->max_requests = 2;
}

static void requests_in_flight_are_bounded(void **state)
{
    struct buf request = {0};
    struct rig rig;
    int fds[2];

    rig_begin(&rig, few_requests);
    put_message(&request, "hang", "");
    for (int i = 0; i < 2; i++) {
        fds[i] = raw_connect(rig.port);
        raw_send(fds[i], request.data, request.len_bytes);
    }
    assert_true(reaches(&rig.counts->n_running, 2));
    json_decref(ask_message(&rig, "say x", "", 529));
    close(fds[0]);
    assert_true(reaches(&rig.counts->n_running, 1));
    json_decref(ask_message(&rig, "say x", "", 200));
    close(fds[1]);
    assert_true(reaches(&rig.counts->n_running, 0));
    buf_fini(&request);
    rig_end(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(errors_have_status_and_shape),
        cmocka_unit_test(a_long_prompt_is_refused_with_exact_numbers),
        cmocka_unit_test(overload_says_when_to_come_back),
        cmocka_unit_test(probes_need_nothing),
        cmocka_unit_test(what_is_not_known_yet_is_no_404),
        cmocka_unit_test(metrics_can_be_kept_from_clients),
        cmocka_unit_test(keys_are_asked_for),
        cmocka_unit_test(leaving_cancels_in_every_phase),
        cmocka_unit_test(long_bodies_go_through_the_pool),
        cmocka_unit_test(work_that_grows_is_no_work_of_the_loop),
        cmocka_unit_test(silence_is_broken_by_pings),
        cmocka_unit_test(slow_readers_hold_the_backend_up),
        cmocka_unit_test(draining_ends_in_an_error_event),
        cmocka_unit_test(requests_in_flight_are_bounded),
    };

    log_setup("test", LOG_LEVEL_ERROR, LOG_FORMAT_TEXT);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
