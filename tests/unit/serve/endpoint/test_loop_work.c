/* SPDX-License-Identifier: Apache-2.0 */
/* Which work the loop leaves to job threads, without looking at a clock.
 *
 * All job threads hang.  So a request whose work grows with its content gets no answer, and a small request
 * sent after it does.  If such work moves back to the loop, the first request is answered, and the test
 * fails. */
#include "rig.h"

#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/check.h"
#include "base/clock.h"

static struct {
    struct rig rig;
    sem_t may_go;
    atomic_uint n_hanging;
} held;

static void hang(void *arg)
{
    (void)arg;
    held.n_hanging++;
    while (sem_wait(&held.may_go) != 0)
        continue;
}

static void nothing(void *arg)
{
    (void)arg;
}

static void hold_all(void)
{
    unsigned n = ev_jobs_n_threads(held.rig.jobs);

    sem_init(&held.may_go, 0, 0);
    held.n_hanging = 0;
    for (unsigned i = 0; i < n; i++)
        assert_int_equal(ev_jobs_submit(held.rig.jobs, held.rig.raw.loop, hang, nothing, NULL), 0);
    assert_true(reaches(&held.n_hanging, n));
}

static void release_all(void)
{
    for (unsigned i = 0; i < ev_jobs_n_threads(held.rig.jobs); i++)
        sem_post(&held.may_go);
}

static bool has_answer(int fd)
{
    char byte;

    return recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
}

static void ask_hello(void)
{
    json_t *root = ask_message(&held.rig, "hello", "", 200);

    json_decref(root);
}

/* Builds bodies that are as small as possible and yet too large for the loop. */
static void put_text(struct buf *out, const char *head, const char *tail)
{
    buf_append_str(out, head);
    for (size_t i = 0; i < 8500; i++)
        buf_append_byte(out, (uint8_t) "words of a text "[i % 16]);
    buf_append_str(out, tail);
}

struct listing { /* head, then n numbers, each between two texts, then tail */
    const char *head, *before, *after, *tail;
};

static void put_many(struct buf *out, const struct listing *listing, unsigned n)
{
    buf_append_str(out, listing->head);
    for (unsigned i = 0; i < n; i++)
        buf_printf(out, "%s%s%u%s", i > 0 ? "," : "", listing->before, i, listing->after);
    buf_append_str(out, listing->tail);
}

#define MODEL "\"model\":\"sim\",\"max_tokens\":4"
#define HELLO "\"messages\":[{\"role\":\"user\",\"content\":\"hello\"}]"
#define SLOW                                                                                                 \
    "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\",\"pattern\":\"^(x{1,30}){1,30}$\"}}}"

static void long_text(struct buf *out)
{
    put_text(out, "{" MODEL ",\"messages\":[{\"role\":\"user\",\"content\":\"", "\"}]}");
}

static void long_count(struct buf *out)
{
    put_text(out, "{\"model\":\"sim\",\"messages\":[{\"role\":\"user\",\"content\":\"", "\"}]}");
}

static void long_prompt(struct buf *out)
{
    put_text(out, "{" MODEL ",\"prompt\":\"", "\"}");
}

static void long_tokenize(struct buf *out)
{
    put_text(out, "{\"model\":\"sim\",\"prompt\":\"", "\"}");
}

static void many_ids(struct buf *out)
{
    put_many(out, &(struct listing){"{" MODEL ",\"prompt\":[", "", "", "]}"}, 3000);
}

static void many_ids_detokenize(struct buf *out)
{
    put_many(out, &(struct listing){"{\"model\":\"sim\",\"tokens\":[", "", "", "]}"}, 3000);
}

static void many_turns(struct buf *out)
{
    put_many(out,
             &(struct listing){"{" MODEL ",\"messages\":[", "{\"role\":\"user\",\"content\":\"", "\"}", "]}"},
             400);
}

static void many_tools(struct buf *out)
{
    put_many(out,
             &(struct listing){"{" MODEL "," HELLO ",\"tools\":[", "{\"name\":\"t",
                               "\",\"input_schema\":{\"type\":\"object\"}}", "]}"},
             300);
}

static void much_nesting(struct buf *out)
{
    put_many(out,
             &(struct listing){"{" MODEL "," HELLO ",\"metadata\":[", "{\"a\":{\"a\":{\"a\":", "}}}", "]}"},
             500);
}

static void one_slow_tool(struct buf *out)
{
    buf_append_str(out, "{" MODEL "," HELLO
                        ",\"tools\":[{\"name\":\"t\",\"strict\":true,\"input_schema\":" SLOW "}]}");
}

static void one_slow_schema(struct buf *out)
{
    buf_append_str(out, "{" MODEL "," HELLO ",\"response_format\":{\"type\":\"json_schema\",\"json_schema\":"
                        "{\"name\":\"s\",\"strict\":true,\"schema\":" SLOW "}}}");
}

static void one_slow_function(struct buf *out)
{
    buf_append_str(out, "{" MODEL "," HELLO ",\"tools\":[{\"type\":\"function\",\"function\":"
                        "{\"name\":\"t\",\"strict\":true,\"parameters\":" SLOW "}}]}");
}

static void one_slow_format(struct buf *out)
{
    buf_append_str(out, "{" MODEL "," HELLO
                        ",\"output_config\":{\"format\":{\"type\":\"json_schema\",\"schema\":" SLOW "}}}");
}

static void many_logprobs(struct buf *out)
{
    buf_append_str(out, "{\"model\":\"sim\",\"max_tokens\":300,\"logprobs\":true,\"top_logprobs\":20,"
                        "\"messages\":[{\"role\":\"user\",\"content\":\"count 300\"}]}");
}

static void many_completion_logprobs(struct buf *out)
{
    buf_append_str(out, "{\"model\":\"sim\",\"max_tokens\":300,\"logprobs\":5,\"prompt\":\"count 300\"}");
}

static void many_choices(struct buf *out)
{
    buf_append_str(out, "{\"model\":\"sim\",\"max_tokens\":100,\"n\":128,"
                        "\"messages\":[{\"role\":\"user\",\"content\":\"count 100\"}]}");
}

static void response_with_logprobs(struct buf *out)
{
    buf_append_str(out,
                   "{\"model\":\"sim\",\"max_output_tokens\":300,\"input\":\"count 300\",\"top_logprobs\":20,"
                   "\"include\":[\"message.output_text.logprobs\"]}");
}

static const struct kind {
    const char *path;
    void (*put)(struct buf *out);
} kinds[] = {
    {"/v1/messages", long_text},
    {"/v1/messages/count_tokens", long_count},
    {"/v1/chat/completions", long_text},
    {"/v1/completions", long_prompt},
    {"/tokenize", long_tokenize},
    {"/v1/completions", many_ids},
    {"/detokenize", many_ids_detokenize},
    {"/v1/messages", many_turns},
    {"/v1/messages", many_tools},
    {"/v1/messages", one_slow_tool},
    {"/v1/messages", one_slow_format},
    {"/v1/chat/completions", one_slow_schema},
    {"/v1/chat/completions", one_slow_function},
    {"/v1/messages", much_nesting},
    {"/v1/chat/completions", many_logprobs},
    {"/v1/completions", many_completion_logprobs},
    {"/v1/chat/completions", many_choices},
    {"/v1/responses", response_with_logprobs},
};

static void work_that_grows_with_content_runs_on_job_threads(void **state)
{
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        struct buf request = {0}, body = {0}, answer = {0};
        uint64_t n_taken;
        int fd;

        (void)state;
        rig_begin(&held.rig, NULL);
        hold_all();
        kinds[i].put(&body);
        put_post(&request, kinds[i].path, "", (const char *)body.data);
        fd = raw_connect(held.rig.port);
        n_taken = ev_jobs_n_taken(held.rig.jobs);
        assert_true(raw_send(fd, request.data, request.len_bytes));
        for (unsigned k = 0; k < 600 && ev_jobs_n_taken(held.rig.jobs) == n_taken && !has_answer(fd); k++)
            clock_sleep_ns(5 * NS_PER_MS);
        ask_hello(); /* it came later, and is answered first */
        if (has_answer(fd) || ev_jobs_n_taken(held.rig.jobs) == n_taken)
            fail_msg("kind %zu, %s: the loop did it", i, kinds[i].path);
        release_all();
        assert_in_range(raw_read_answer(fd, &answer, NULL), 200, 499);
        close(fd);
        buf_fini(&request);
        buf_fini(&body);
        buf_fini(&answer);
        rig_end(&held.rig);
    }
}

/* A stored response whose input has more than the loop copies. */
static void long_input(struct buf *out, const char *more)
{
    buf_printf(out,
               "{\"model\":\"sim\",\"max_output_tokens\":9%s,\"input\":[{\"role\":\"user\",\"content\":\"say "
               "Three.\","
               "\"unknown\":\"",
               more);
    for (size_t i = 0; i < (size_t)300 << 10; i++)
        buf_append_byte(out, 'x');
    buf_append_str(out, "\"}]}");
}

/* The request is taken while all job threads hang, and has its end when they go on. */
static void sends_later(const struct buf *request, const char *last, struct buf *answer)
{
    int fd = raw_connect(held.rig.port);
    uint64_t n_taken;

    hold_all();
    n_taken = ev_jobs_n_taken(held.rig.jobs);
    assert_true(raw_send(fd, request->data, request->len_bytes));
    for (unsigned k = 0; k < 600 && ev_jobs_n_taken(held.rig.jobs) == n_taken; k++)
        clock_sleep_ns(5 * NS_PER_MS);
    ask_hello();
    assert_int_not_equal(ev_jobs_n_taken(held.rig.jobs), n_taken);
    release_all();
    assert_int_equal(raw_read_answer(fd, answer, NULL), 200);
    assert_true(raw_holds(answer, last));
    close(fd);
}

static void parses_on_the_loop(struct front_opts *opts, struct sim_opts *sim)
{
    opts->inline_bytes = 1 << 20;
}

static void a_long_response_is_gathered_on_a_job_thread(void **state)
{
    struct buf request = {0}, body = {0}, answer = {0};

    rig_begin(&held.rig, parses_on_the_loop);
    long_input(&body, ",\"stream\":true");
    put_post(&request, "/v1/responses", "", (const char *)body.data);
    sends_later(&request, "response.completed", &answer);
    buf_fini(&request);
    buf_fini(&body);
    buf_fini(&answer);
    rig_end(&held.rig);
}

static void a_page_of_long_items_is_rendered_on_a_job_thread(void **state)
{
    struct buf request = {0}, body = {0}, answer = {0};
    json_t *root;

    rig_begin(&held.rig, NULL);
    long_input(&body, "");
    put_post(&request, "/v1/responses", "", (const char *)body.data);
    root = ask(&held.rig, &request, 200, NULL);
    buf_clear(&request);
    buf_printf(&request, "GET /v1/responses/%s/input_items HTTP/1.1\r\nHost: a\r\n\r\n",
               str_at(root, "id", NULL));
    json_decref(root);
    sends_later(&request, "\"has_more\":false", &answer);
    assert_true(answer.len_bytes > (size_t)300 << 10);
    buf_fini(&request);
    buf_fini(&body);
    buf_fini(&answer);
    rig_end(&held.rig);
}

static char beginning[] = "/tmp/baton-public-XXXXXX";

static void declares_a_beginning(struct front_opts *opts, struct sim_opts *sim)
{
    opts->public_prefix = beginning;
}

/* The first request to a model renders the declared beginnings there; a later one stays on the loop. */
static void public_beginnings_are_rendered_on_a_job_thread(void **state)
{
    struct buf request = {0}, answer = {0};
    static const char text[] = "{\"system\": \"You answer.\"}";
    int file = mkstemp(beginning);

    assert_true(file >= 0 && write(file, text, sizeof(text) - 1) == (ssize_t)sizeof(text) - 1);
    close(file);
    rig_begin(&held.rig, declares_a_beginning);
    put_message(&request, "hello", "");
    hold_all();
    uint64_t n_taken = ev_jobs_n_taken(held.rig.jobs);
    int fd = raw_connect(held.rig.port);
    assert_true(raw_send(fd, request.data, request.len_bytes));
    for (unsigned k = 0; k < 600 && ev_jobs_n_taken(held.rig.jobs) == n_taken && !has_answer(fd); k++)
        clock_sleep_ns(5 * NS_PER_MS);
    assert_false(has_answer(fd));
    assert_int_not_equal(ev_jobs_n_taken(held.rig.jobs), n_taken);
    release_all();
    assert_int_equal(raw_read_answer(fd, &answer, NULL), 200);
    close(fd);
    hold_all();
    ask_hello();
    release_all();
    buf_fini(&request);
    buf_fini(&answer);
    rig_end(&held.rig);
    unlink(beginning);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(work_that_grows_with_content_runs_on_job_threads),
        cmocka_unit_test(a_long_response_is_gathered_on_a_job_thread),
        cmocka_unit_test(a_page_of_long_items_is_rendered_on_a_job_thread),
        cmocka_unit_test(public_beginnings_are_rendered_on_a_job_thread)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
