/* SPDX-License-Identifier: Apache-2.0 */
/* Keys and their limits as clients see them, encoded bodies, and the format of every refusal. */
#include "rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <zlib.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "serve/access/auth.h"

static char keys_path[] = "/tmp/baton-admit-keys-XXXXXX";

/* Writes lines in which "@name" stands for the hash of that key. */
static void write_keys(const char *text)
{
    FILE *file = fopen(keys_path, "w");
    char hash[65];

    assert_non_null(file);
    while (*text != '\0') {
        size_t n = strcspn(text, "@");

        fwrite(text, 1, n, file);
        text += n;
        if (*text == '\0')
            break;
        n = strcspn(++text, " ");
        auth_key_hash(bytes_of(text, n), hash);
        fputs(hash, file);
        text += n;
    }
    fclose(file);
}

static const char *const rules = "@free f\n"
                                 "@slow s laptop rpm=3\n"
                                 "@short t tpm_out=100\n"
                                 "@single u concurrent=1\n"
                                 "@other v models=gpt-*\n"
                                 "@some v models=si*\n"
                                 "@late w expires=2020-01-01\n"
                                 "@inputs x tpm_in=40\n";

static void with_rules(struct front_opts *opts, struct sim_opts *sim)
{
    strcpy(keys_path + strlen(keys_path) - 6, "XXXXXX");
    close(mkstemp(keys_path));
    write_keys(rules);
    opts->keys_path = keys_path;
}

static void put_keyed(struct buf *out, const char *key, const char *user, const char *more)
{
    struct buf body = {0};
    char fields[80];

    snprintf(fields, sizeof(fields), "x-api-key: %s\r\n", key);
    buf_printf(&body, "{\"model\":\"sim\",\"messages\":[{\"role\":\"user\",\"content\":\"%s\"}]%s}", user,
               more);
    put_post(out, "/v1/messages", fields, (const char *)body.data);
    buf_fini(&body);
}

/* Sends a request with a key.  Returns the answer's JSON; *head receives its head (to be finished). */
static json_t *ask_keyed(struct rig *rig, const char *key, const char *more, int want_status,
                         struct buf *head)
{
    struct buf request = {0};
    json_t *root;

    put_keyed(&request, key, "say ab", more);
    root = ask(rig, &request, want_status, head);
    buf_fini(&request);
    return root;
}

static void expect(struct rig *rig, const char *key, const char *more, int want_status,
                   const char *const *texts)
{
    struct buf head = {0};
    json_t *root = ask_keyed(rig, key, more, want_status, &head);

    for (; *texts != NULL; texts++)
        if (!raw_holds(&head, *texts))
            fail_msg("%s: no \"%s\" in %s", key, *texts, (const char *)head.data);
    json_decref(root);
    buf_fini(&head);
}

#define TEXTS(...) ((const char *const[]){__VA_ARGS__, NULL})

static void limits_are_kept_and_told(void **state)
{
    const char *few = ",\"max_tokens\":8";
    struct rig rig;
    struct buf in = {0};

    rig_begin(&rig, with_rules);
    for (int left = 2; left >= 0; left--) {
        char remaining[80];

        snprintf(remaining, sizeof(remaining), "\r\nanthropic-ratelimit-requests-remaining: %d\r\n", left);
        expect(&rig, "slow", few, 200, TEXTS(remaining, "\r\nanthropic-ratelimit-requests-limit: 3\r\n"));
    }
    expect(&rig, "slow", few, 429,
           TEXTS("\r\nretry-after: ", "\r\nanthropic-ratelimit-requests-remaining: 0\r\n", "rate_limit_error",
                 "this API key's limit of 3 requests per minute would be exceeded"));
    expect(&rig, "free", few, 200, TEXTS("\r\nserver-timing: "));
    /* The largest possible answer is reserved; the real one is counted ("ab" is two tokens and an end). */
    expect(&rig, "short", ",\"max_tokens\":100", 200, TEXTS("-output-tokens-remaining: 0\r\n"));
    expect(&rig, "short", ",\"max_tokens\":90,\"stream\":true", 200, TEXTS("-output-tokens-remaining: "));
    expect(&rig, "short", ",\"max_tokens\":100", 429, TEXTS("limit of 100 output tokens per minute"));
    /* A prompt that was partly cached costs only its computed part. */
    expect(&rig, "inputs", few, 200, TEXTS("-input-tokens-limit: 40\r\n"));
    expect(&rig, "other", few, 403, TEXTS("permission_error", "may not use the model sim"));
    expect(&rig, "some", few, 200, TEXTS("200 OK"));
    expect(&rig, "late", few, 401, TEXTS("authentication_error", "this API key has expired"));
    /* Lists only the models that the key may use. */
    assert_int_equal(raw_ask(rig.port, "GET /v1/models HTTP/1.1\r\nHost: a\r\nx-api-key: some\r\n\r\n", &in),
                     200);
    assert_true(raw_holds(&in, "\"id\":\"sim\""));
    buf_clear(&in);
    assert_int_equal(raw_ask(rig.port, "GET /v1/models HTTP/1.1\r\nHost: a\r\nx-api-key: other\r\n\r\n", &in),
                     200);
    assert_false(raw_holds(&in, "\"id\":\"sim\""));
    assert_int_equal(
        raw_ask(rig.port, "GET /v1/models/sim HTTP/1.1\r\nHost: a\r\nx-api-key: other\r\n\r\n", NULL), 404);
    buf_clear(&in);
    assert_int_equal(raw_ask(rig.port, "GET /metrics HTTP/1.1\r\nHost: a\r\nx-api-key: free\r\n\r\n", &in),
                     200);
    assert_true(raw_holds(&in, "baton_limit_refusals_total{tenant=\"s\",reason=\"requests\"} 1"));
    assert_true(raw_holds(&in, "baton_limit_refusals_total{tenant=\"v\",reason=\"model\"} 1"));
    assert_true(raw_holds(&in, "baton_limit_refusals_total{tenant=\"w\",reason=\"expired\"} 1"));
    buf_fini(&in);
    unlink(keys_path);
    rig_end(&rig);
}

static void one_at_once_means_one(void **state)
{
    struct buf request = {0};
    struct rig rig;
    int fd;

    rig_begin(&rig, with_rules);
    put_keyed(&request, "single", "hang", ",\"max_tokens\":8,\"stream\":true");
    fd = raw_connect(rig.port);
    raw_send(fd, request.data, request.len_bytes);
    assert_true(reaches(&rig.counts->n_running, 1));
    expect(&rig, "single", ",\"max_tokens\":8", 429,
           TEXTS("this API key's limit of 1 requests at once is reached", "\r\nretry-after: 1\r\n"));
    close(fd); /* a disconnect gives it back */
    assert_true(reaches(&rig.counts->n_running, 0));
    expect(&rig, "single", ",\"max_tokens\":8", 200, TEXTS("200 OK"));
    /* So does each kind of failure. */
    expect(&rig, "single", ",\"max_tokens\":\"x\"", 400, TEXTS("max_tokens"));
    expect(&rig, "single", ",\"max_tokens\":8", 200, TEXTS("200 OK"));
    buf_fini(&request);
    unlink(keys_path);
    rig_end(&rig);
}

struct reload {
    struct rig *rig;
    int rc;
};

static void reload(void *arg)
{
    struct reload *reload = arg;

    reload->rc = front_load_keys(reload->rig->front, keys_path, NULL);
}

static void a_reload_keeps_counts(void **state)
{
    const char *few = ",\"max_tokens\":8";
    struct reload call;
    struct rig rig;

    rig_begin(&rig, with_rules);
    call.rig = &rig;
    for (int i = 0; i < 3; i++)
        expect(&rig, "slow", few, 200, TEXTS("200 OK"));
    write_keys("@new n\n@slow s laptop rpm=4\n");
    raw_loop_call(&rig.raw, reload, &call);
    assert_int_equal(call.rc, 0);
    expect(&rig, "slow", few, 200, TEXTS("-requests-remaining: 0\r\n"));
    expect(&rig, "slow", few, 429, TEXTS("limit of 4 requests"));
    expect(&rig, "free", few, 401, TEXTS("authentication_error"));
    write_keys("@slow s laptop rpm=often\n");
    raw_loop_call(&rig.raw, reload, &call);
    assert_int_equal(call.rc, E_FORMAT);
    expect(&rig, "new", few, 200, TEXTS("200 OK"));
    unlink(keys_path);
    rig_end(&rig);
}

static void failed_logins_get_429(void **state)
{
    struct rig rig;
    char key[20];

    rig_begin(&rig, with_rules);
    for (int i = 0; i < 100; i++) /* one outdated key, repeatedly */
        expect(&rig, "lost", "", 401, TEXTS("authentication_error"));
    for (int i = 0; i < 29; i++) {
        snprintf(key, sizeof(key), "guess-%d", i);
        expect(&rig, key, "", 401, TEXTS("authentication_error"));
    }
    expect(&rig, "guess-29", "", 429,
           TEXTS("too many wrong API keys from this address", "\r\nretry-after: "));
    unlink(keys_path);
    rig_end(&rig);
}

/* ---- slow readers ---- */

static void quick_tokens(struct front_opts *opts, struct sim_opts *sim)
{
    sim->token_ns = NS_PER_US;
    opts->limits.max_queue_bytes = 1 << 20;
}

/* Data that does not fit into the socket takes another path than data that does.  The client receives one
 * text in order. */
static void a_late_reader_gets_every_token_in_order(void **state)
{
    static const char mark[] = "\"text_delta\",\"text\":\"";
    struct buf request = {0};
    struct buf answer = {0};
    struct buf body = {0};
    struct buf want = {0};
    struct buf got = {0};
    struct rig rig;
    int fd;

    rig_begin(&rig, quick_tokens);
    for (int i = 1; i <= 800; i++)
        buf_printf(&want, i == 1 ? "%d" : " %d", i);
    put_post(&request, "/v1/messages", "",
             "{\"model\":\"sim\",\"max_tokens\":4000,\"stream\":true,"
             "\"messages\":[{\"role\":\"user\",\"content\":\"count 800\"}]}");
    fd = raw_connect(rig.port);
    raw_send(fd, request.data, request.len_bytes);
    assert_true(reaches(&rig.counts->n_ended, 1)); /* no data was read until here */
    assert_int_equal(raw_read_answer(fd, &answer, &body), 200);
    close(fd);
    for (const char *at = (const char *)body.data; (at = strstr(at, mark)) != NULL;) {
        at += sizeof(mark) - 1;
        buf_append(&got, at, strcspn(at, "\""));
    }
    assert_true(bytes_equal(buf_view(&got), buf_view(&want)));
    buf_fini(&request);
    buf_fini(&answer);
    buf_fini(&body);
    buf_fini(&want);
    buf_fini(&got);
    rig_end(&rig);
}

/* ---- coded bodies ---- */

static void put_gzip(struct buf *out, const char *fields, const void *data, size_t n)
{
    size_t cap = compressBound(n) + 64;
    uint8_t *packed = malloc(cap);
    z_stream stream;

    assert_non_null(packed);
    memset(&stream, 0, sizeof(stream));
    assert_int_equal(deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
    stream.next_in = (uint8_t *)(uintptr_t)data;
    stream.avail_in = (unsigned)n;
    stream.next_out = packed;
    stream.avail_out = (unsigned)cap;
    assert_int_equal(deflate(&stream, Z_FINISH), Z_STREAM_END);
    buf_printf(
        out,
        "POST /v1/messages HTTP/1.1\r\nHost: a\r\nContent-Encoding: GZip\r\n%sContent-Length: %lu\r\n\r\n",
        fields, stream.total_out);
    buf_append(out, packed, stream.total_out);
    deflateEnd(&stream);
    free(packed);
}

static void expect_code(struct rig *rig, const struct buf *request, int want_status, const char *code)
{
    json_t *root = ask(rig, request, want_status, NULL);

    assert_non_null(root);
    assert_string_equal(str_at(json_object_get(root, "error"), "details", "error_code"), code);
    json_decref(root);
}

static void small_bodies(struct front_opts *opts, struct sim_opts *sim)
{
    opts->limits.max_body_bytes = 200000;
}

static void gzip_is_decoded_within_bounds(void **state)
{
    static const char body[] =
        "{\"model\":\"sim\",\"max_tokens\":9,\"messages\":[{\"role\":\"user\",\"content\":\"say zip\"}]}";
    struct buf request = {0};
    struct buf text = {0};
    struct rig rig;
    json_t *root;

    rig_begin(&rig, small_bodies);
    put_gzip(&request, "", body, sizeof(body) - 1);
    root = ask(&rig, &request, 200, NULL);
    assert_string_equal(text_of(root, 0), "zip");
    json_decref(root);
    /* Long bodies are parsed in the pool. */
    buf_append_str(&text, body);
    for (int i = 0; i < 150000; i++)
        buf_append_byte(&text, ' ');
    buf_clear(&request);
    put_gzip(&request, "", text.data, text.len_bytes);
    json_decref(ask(&rig, &request, 200, NULL));
    for (int i = 0; i < 50000; i++)
        buf_append_byte(&text, ' ');
    buf_clear(&request);
    put_gzip(&request, "", text.data, text.len_bytes);
    expect_code(&rig, &request, 413, "request_body_too_large_after_decoding");
    buf_clear(&request);
    put_post(&request, "/v1/messages", "Content-Encoding: gzip\r\n", body);
    expect_code(&rig, &request, 400, "request_body_encoding_invalid");
    buf_clear(&request);
    put_post(&request, "/v1/messages", "Content-Encoding: gzip, gzip\r\n", body);
    expect_code(&rig, &request, 400, "request_body_encoding_unsupported");
    buf_fini(&request);
    buf_fini(&text);
    rig_end(&rig);
}

/* ---- the shape of refusals ---- */

static void has_shape(const struct buf *answer, const struct buf *body, int status)
{
    static const struct {
        int status;
        const char *type;
    } types[] = {{400, "invalid_request_error"}, {401, "authentication_error"},
                 {403, "permission_error"},      {404, "not_found_error"},
                 {405, "invalid_request_error"}, {408, "timeout_error"},
                 {411, "invalid_request_error"}, {413, "request_too_large"},
                 {414, "invalid_request_error"}, {417, "invalid_request_error"},
                 {429, "rate_limit_error"},      {431, "invalid_request_error"},
                 {501, "invalid_request_error"}, {503, "api_error"},
                 {505, "invalid_request_error"}, {529, "overloaded_error"}};
    json_t *root = json_loadb((const char *)body->data, body->len_bytes, 0, NULL);
    char field[80];

    if (root == NULL)
        fail_msg("%d is no JSON: %s", status, (const char *)answer->data);
    assert_string_equal(str_at(root, "type", NULL), "error");
    assert_true(str_at(root, "error", "message")[0] != '\0');
    for (size_t i = 0; i < ARRAY_LEN(types); i++)
        if (types[i].status == status)
            assert_string_equal(str_at(root, "error", "type"), types[i].type);
    snprintf(field, sizeof(field), "\r\nrequest-id: %s\r\n", str_at(root, "request_id", NULL));
    assert_true(raw_holds(answer, field));
    assert_true(raw_holds(answer, "\r\ncontent-type: application/json\r\n"));
    if (status == 429 || status == 503 || status == 529)
        assert_true(raw_holds(answer, "\r\nretry-after: "));
    json_decref(root);
}

/* Checks the other dialect's format. */
static void has_openai_shape(const struct buf *answer, const struct buf *body, int status)
{
    const char *type = status == 429                                     ? "rate_limit_error"
                       : status >= 500 && status != 501 && status != 505 ? "server_error"
                                                                         : "invalid_request_error";
    const char *code = status == 401   ? "invalid_api_key"
                       : status == 429 ? "rate_limit_exceeded"
                       : status == 529 ? "overloaded"
                                       : NULL;
    json_t *root = json_loadb((const char *)body->data, body->len_bytes, 0, NULL);
    const json_t *error = json_object_get(root, "error");

    if (root == NULL || json_object_size(root) != 1 || json_object_size(error) != 4)
        fail_msg("%d has another shape: %s", status, (const char *)answer->data);
    assert_true(str_at(root, "error", "message")[0] != '\0');
    assert_string_equal(str_at(root, "error", "type"), type);
    assert_non_null(json_object_get(error, "param"));
    if (code != NULL)
        assert_string_equal(str_at(root, "error", "code"), code);
    json_decref(root);
    assert_true(raw_holds(answer, "\r\nx-request-id: req_"));
    assert_true(raw_holds(answer, "\r\nrequest-id: req_"));
    assert_true(raw_holds(answer, "\r\ncontent-type: application/json\r\n"));
    if (status == 429 || status == 503 || status == 529)
        assert_true(raw_holds(answer, "\r\nretry-after: "));
}

/* A head that cannot be parsed has no path. */
static bool is_openai(const char *text)
{
    static const char *const broken[] = {"Encoding: gzip\r\n\r\n", "Expect: nothing", "Length: x\r\n"};
    static const char *const paths[] = {" /v1/chat/",     " /v1/completions ", " /v1/embeddings ",
                                        " /v1/responses", " /tokenize ",       " /detokenize "};

    for (size_t i = 0; i < ARRAY_LEN(broken); i++)
        if (strstr(text, broken[i]) != NULL)
            return false;
    for (size_t i = 0; i < ARRAY_LEN(paths); i++)
        if (strstr(text, paths[i]) != NULL)
            return true;
    return false;
}

/* Sends text as it is.  Returns the status, which must be one of those above or a success. */
static int refusal(struct rig *rig, const char *text, size_t n)
{
    struct buf answer = {0};
    struct buf body = {0};
    int fd = raw_connect(rig->port);
    int status;

    raw_send(fd, text, n);
    status = raw_read_answer(fd, &answer, &body);
    close(fd);
    if (status >= 400 && is_openai(text))
        has_openai_shape(&answer, &body, status);
    else if (status >= 400)
        has_shape(&answer, &body, status);
    buf_fini(&answer);
    buf_fini(&body);
    return status;
}

static void sweep_opts(struct front_opts *opts, struct sim_opts *sim)
{
    with_rules(opts, sim);
    opts->limits.max_body_bytes = 1000;
    opts->limits.head_ns = 100 * NS_PER_MS;
    opts->limits.body_ns = 100 * NS_PER_MS;
    opts->failed_logins_per_min = 0;
}

struct sweep {
    struct rig rig;
    struct buf text; /* of the request */
    int seen[600];   /* by status */
};

static void send_text(struct sweep *sweep)
{
    sweep->seen[refusal(&sweep->rig, (const char *)sweep->text.data, sweep->text.len_bytes)]++;
    buf_clear(&sweep->text);
}

static void send_str(struct sweep *sweep, const char *text)
{
    buf_append_str(&sweep->text, text);
    send_text(sweep);
}

/* Sends every route with every method and every kind of key. */
static void sweep_routes(struct sweep *sweep)
{
    static const char *const paths[] = {"/v1/messages",
                                        "/v1/messages/count_tokens",
                                        "/v1/models",
                                        "/v1/models/sim",
                                        "/v1/chat/completions",
                                        "/v1/completions",
                                        "/v1/embeddings",
                                        "/v1/responses",
                                        "/v1/responses/resp_1",
                                        "/v1/responses/resp_1/cancel",
                                        "/tokenize",
                                        "/detokenize",
                                        "/v1/messages/batches",
                                        "/v1/nothing",
                                        "/",
                                        "/health",
                                        "/metrics",
                                        "/livez",
                                        "/readyz",
                                        "/api/hello"};
    static const char *const methods[] = {"GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "BREW"};
    static const char *const keys[] = {"nobody", "late", "free", "other", "slow"};

    for (size_t p = 0; p < ARRAY_LEN(paths); p++)
        for (size_t m = 0; m < ARRAY_LEN(methods); m++) {
            buf_printf(&sweep->text, "%s %s HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n", methods[m],
                       paths[p]);
            send_text(sweep);
            for (size_t k = 0; k < ARRAY_LEN(keys); k++) {
                buf_printf(&sweep->text,
                           "%s %s HTTP/1.1\r\nHost: a\r\nx-api-key: %s\r\nContent-Length: 0\r\n\r\n",
                           methods[m], paths[p], keys[k]);
                send_text(sweep);
            }
        }
}

static void sweep_bodies(struct sweep *sweep)
{
    static const char *const paths[] = {"/v1/messages",    "/v1/messages/count_tokens",
                                        "/v1/completions", "/v1/chat/completions",
                                        "/tokenize",       "/detokenize"};
    static const char *const bodies[] = {"Content-Length: 2\r\n\r\n{}",
                                         "Content-Length: 1\r\n\r\nx",
                                         "Content-Length: 100000\r\n\r\n",
                                         "Content-Length: 3\r\n\r\nx",
                                         "Transfer-Encoding: gzip\r\n\r\n",
                                         "Content-Length: x\r\n\r\n",
                                         "Transfer-Encoding: chunked\r\n\r\nzz\r\n",
                                         "Expect: nothing\r\nContent-Length: 2\r\n\r\n{}",
                                         "Content-Encoding: br\r\nContent-Length: 1\r\n\r\nx",
                                         "Content-Encoding: gzip\r\nContent-Length: 1\r\n\r\nx"};

    for (size_t p = 0; p < ARRAY_LEN(paths); p++)
        for (size_t b = 0; b < ARRAY_LEN(bodies); b++) {
            buf_printf(&sweep->text, "POST %s HTTP/1.1\r\nHost: a\r\nx-api-key: free\r\n%s", paths[p],
                       bodies[b]);
            send_text(sweep);
        }
    put_keyed(&sweep->text, "other", "x", ",\"max_tokens\":1");
    send_text(sweep);
    put_keyed(&sweep->text, "free", "overload", ",\"max_tokens\":1");
    send_text(sweep);
    for (int i = 0; i < 4; i++) {
        put_keyed(&sweep->text, "slow", "x", ",\"max_tokens\":1");
        send_text(sweep);
    }
}

static void sweep_heads(struct sweep *sweep)
{
    send_str(sweep, "GET / HTTP/1.1\r\n"); /* and no more */
    send_str(sweep, "GET / HTTP/2.0\r\nHost: a\r\n\r\n");
    send_str(sweep, "nonsense\r\n\r\n");
    buf_append_str(&sweep->text, "GET /");
    for (int i = 0; i < 9000; i++)
        buf_append_byte(&sweep->text, 'x');
    send_text(sweep);
    buf_append_str(&sweep->text, "GET / HTTP/1.1\r\nHost: a\r\n");
    for (int i = 0; i < 200; i++)
        buf_printf(&sweep->text, "x-%d: y\r\n", i);
    send_str(sweep, "\r\n");
}

static void every_refusal_has_shape_and_id(void **state)
{
    static const int wanted[] = {400, 401, 403, 404, 405, 408, 413, 414, 429, 431, 501, 503, 505, 529};
    struct sweep sweep = {0};

    log_set_level(LOG_LEVEL_ERROR);
    rig_begin(&sweep.rig, sweep_opts);
    sweep_routes(&sweep);
    sweep_bodies(&sweep);
    sweep_heads(&sweep);
    sweep.rig.counts->is_unready = true;
    send_str(&sweep, "GET /health HTTP/1.1\r\nHost: a\r\n\r\n");
    for (size_t i = 0; i < ARRAY_LEN(wanted); i++)
        if (sweep.seen[wanted[i]] == 0)
            fail_msg("no %d among the refusals", wanted[i]);
    assert_int_equal(sweep.seen[0], 0); /* every request was answered */
    assert_int_equal(sweep.seen[500], 0);
    buf_fini(&sweep.text);
    unlink(keys_path);
    rig_end(&sweep.rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(limits_are_kept_and_told),
        cmocka_unit_test(one_at_once_means_one),
        cmocka_unit_test(a_reload_keeps_counts),
        cmocka_unit_test(failed_logins_get_429),
        cmocka_unit_test(a_late_reader_gets_every_token_in_order),
        cmocka_unit_test(gzip_is_decoded_within_bounds),
        cmocka_unit_test(every_refusal_has_shape_and_id),
    };

    log_set_level(LOG_LEVEL_WARN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
