/* SPDX-License-Identifier: Apache-2.0 */
/* Deferred events of a backend's jobs: their order, their slices, the tokens held by a pause, and a front that cancels any
 * job, its own or another, inside any event. */
#include "tests/unit/check.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/event/work.h"
#include "base/rng.h"
#include "serve/endpoint/handle.h"

#define T16 "tttttttttttttttt"

enum { N_JOBS = 8, MAX_ANSWER = 200 };

struct job {
    struct gen_handle handle;
    struct work_order order;
    struct client *client;
};

struct client { /* the front's side of a job */
    struct job *job;
    struct buf log; /* one letter for each event */
    uint32_t n_tokens, n_scores;
    struct gen_serving serving;
    char message[64];
    char cancels_at;        /* at this letter ... */
    struct client *cancels; /* ... this client's job */
    char pauses_at;
};

static struct gen_outbox outbox;
static struct client clients[N_JOBS];
static bool calls_are_allowed; /* events come from flushes only */
static uint32_t n_jobs;

static void job_free(struct job *job)
{
    gen_handle_fini(&job->handle);
    work_order_fini(&job->order);
    free(job);
    n_jobs--;
}

static void close_job(struct gen_handle *handle, struct gen_serving *serving_out)
{
    if (serving_out != NULL)
        gen_handle_serving(handle, serving_out);
    job_free(container_of(handle, struct job, handle));
}

static void cancel(struct client *client)
{
    struct job *job = client->job;

    client->job = NULL;
    if (job != NULL)
        job_free(job);
}

static void note(struct client *client, char letter)
{
    assert_true(calls_are_allowed);
    buf_append_byte(&client->log, (uint8_t)letter);
    if (letter == client->pauses_at && client->job != NULL)
        gen_handle_pause(&client->job->handle, true);
    if (letter == client->cancels_at)
        cancel(client->cancels);
}

static void on_accepted(void *arg, uint32_t cached_tokens)
{
    assert_int_equal(cached_tokens, 7);
    note(arg, 'a');
}

static void on_tokens(void *arg, const struct gen_tokens *tokens)
{
    struct client *client = arg;

    if (tokens->is_prompt_logprobs) {
        assert_null(tokens->ids);
        client->n_scores += (uint32_t)tokens->n;
        note(client, client->n_tokens > 0 ? 'S' : 's');
        return;
    }
    for (size_t i = 0; i < tokens->n; i++) {
        assert_int_equal(tokens->ids[i], 1000 + client->n_tokens);
        if (tokens->draws != NULL)
            assert_int_equal(tokens->draws[i].id, 1000 + client->n_tokens);
        client->n_tokens++;
    }
    note(client, 't');
}

static void on_end(void *arg, enum work_end end, const struct gen_serving *serving)
{
    struct client *client = arg;

    client->job = NULL;
    client->serving = *serving;
    note(client, 'e');
}

static void on_failure(void *arg, const struct gen_failure *failure, const struct gen_serving *serving)
{
    struct client *client = arg;

    client->job = NULL;
    client->serving = *serving;
    strncpy(client->message, failure->message, sizeof(client->message) - 1);
    note(client, 'f');
}

static const struct gen_events events = {
    .on_accepted = on_accepted, .on_tokens = on_tokens, .on_end = on_end, .on_failure = on_failure};

static struct client *begin(uint32_t at)
{
    struct client *client = &clients[at];
    struct job *job = calloc(1, sizeof(*job));

    buf_fini(&client->log);
    *client = (struct client){.job = job};
    job->client = client;
    job->order.tokens = calloc(3, sizeof(token_id));
    job->order.n_tokens = job->order.n_prompt = 3;
    gen_handle_init(&job->handle, &outbox, &job->order, &events, client);
    n_jobs++;
    return client;
}

static void add_tokens(struct client *client, uint32_t n, bool has_draws)
{
    struct gen_handle *handle = &client->job->handle;

    for (uint32_t i = 0; i < n; i++) {
        token_id id = 1000 + gen_handle_answered(handle);

        if (has_draws)
            *gen_handle_draw(handle) = (struct sample_result){.id = id};
        assert_int_equal(gen_handle_token(handle, id), 0);
    }
}

static void flush(void)
{
    calls_are_allowed = true;
    gen_outbox_flush(&outbox);
    calls_are_allowed = false;
    assert_true(list_is_empty(&outbox.due));
}

static void assert_log(struct client *client, const char *log)
{
    assert_true(bytes_is(buf_view(&client->log), log));
}

static int open_outbox(void **state)
{
    n_jobs = 0;
    return gen_outbox_open(&outbox, NULL, close_job);
}

static int close_outbox(void **state)
{
    for (uint32_t i = 0; i < N_JOBS; i++) {
        cancel(&clients[i]);
        buf_fini(&clients[i].log);
        clients[i] = (struct client){0};
    }
    assert_true(list_is_empty(&outbox.due));
    assert_int_equal(n_jobs, 0);
    gen_outbox_close(&outbox);
    return 0;
}

/* ---- tests ---- */

static void events_come_in_order(void **state)
{
    struct client *client = begin(0);
    struct gen_handle *handle = &client->job->handle;
    struct sample_result scores[2] = {{.id = 1}, {.id = 2}};

    gen_handle_accept(handle, 7);
    add_tokens(client, 600, true); /* grows */
    assert_int_equal(gen_handle_scores(handle, scores, 2), 0);
    gen_handle_stop_score(handle, scores);
    gen_handle_end(handle, WORK_END_LENGTH);
    assert_log(client, "");
    flush();
    assert_log(client, "as" T16 T16 "ttttttSe"); /* 16 tokens each */
    assert_int_equal(client->n_tokens, 600);
    assert_int_equal(client->n_scores, 3);
    assert_int_equal(client->serving.drawn_tokens, 600);
    assert_int_equal(n_jobs, 0);
}

static void a_pause_holds_tokens_and_end_back(void **state)
{
    struct client *client = begin(0);
    struct gen_handle *handle = &client->job->handle;

    gen_handle_accept(handle, 7);
    flush();
    gen_handle_pause(handle, true);
    add_tokens(client, 2, true);
    flush();
    assert_log(client, "a");
    gen_handle_end(handle, WORK_END_LENGTH);
    flush();
    gen_handle_pause(handle, false);
    assert_log(client, "a");
    flush();
    assert_log(client, "ate");
}

static void a_pause_inside_an_event(void **state)
{
    struct client *client = begin(0);
    struct gen_handle *handle = &client->job->handle;

    client->pauses_at = 't';
    add_tokens(client, 1, false);
    gen_handle_end(handle, WORK_END_LENGTH);
    flush();
    assert_log(client, "t");
    gen_handle_pause(handle, false);
    flush();
    assert_log(client, "te");
}

/* A paused stream has sent its head already, so another choice of it may begin later. */
static void a_pause_holds_acceptance_back(void **state)
{
    struct client *client = begin(0);
    struct gen_handle *handle = &client->job->handle;

    gen_handle_pause(handle, true);
    gen_handle_accept(handle, 7);
    flush();
    assert_log(client, "");
    gen_handle_pause(handle, false);
    flush();
    assert_log(client, "a");
}

/* Tokens that come while others wait keep their order and their sampling results. */
static void an_answer_is_delivered_in_parts(void **state)
{
    struct client *client = begin(0);
    struct gen_handle *handle = &client->job->handle;

    client->pauses_at = 't';
    add_tokens(client, 500, true);
    for (uint32_t n = 16; client->n_tokens < 1300; n += 16) {
        gen_handle_pause(handle, false);
        flush();
        assert_int_equal(client->n_tokens, n < 1300 ? n : 1300);
        if (gen_handle_answered(handle) < 1300)
            add_tokens(client, 10, true);
    }
    assert_true(handle->cap_draws < 1100); /* room of delivered ones was used again */
}

static void a_long_prompt_is_delivered_in_parts(void **state)
{
    struct client *client = begin(0);
    struct sample_result scores[100] = {{.id = 1}};

    client->pauses_at = 's';
    assert_int_equal(gen_handle_scores(&client->job->handle, scores, 100), 0);
    for (uint32_t n = 16; client->n_scores < 200; n += 16) {
        gen_handle_pause(&client->job->handle, false);
        flush();
        assert_int_equal(client->n_scores, n < 200 ? n : 200);
        if (n == 64)
            assert_int_equal(gen_handle_scores(&client->job->handle, scores, 100), 0);
    }
    assert_int_equal(client->job->handle.scores.n, 0);
}

/* ---- slices of a loop ---- */

static struct {
    struct ev_loop *loop;
    uint64_t turn, n_turns;
    uint32_t n_in_turn, most_in_turn, n_tokens;
} slices;

static void on_slow_tokens(void *arg, const struct gen_tokens *tokens)
{
    uint64_t turn = ev_loop_turns(slices.loop);

    if (turn != slices.turn) {
        slices.n_turns++;
        slices.n_in_turn = 0;
    }
    slices.turn = turn;
    slices.n_in_turn += (uint32_t)tokens->n;
    slices.n_tokens += (uint32_t)tokens->n;
    if (slices.n_in_turn > slices.most_in_turn)
        slices.most_in_turn = slices.n_in_turn;
    clock_sleep_ns(GEN_PIECE_NS / 2);
}

static void on_slow_end(void *arg, enum work_end end, const struct gen_serving *serving)
{
    ev_loop_stop(slices.loop);
}

static void watch_nothing(void *arg, const char *what, uint64_t cpu_ns, uint64_t wall_ns)
{
}

static struct client *begin_sliced(void)
{
    static const struct gen_events slow = {.on_accepted = on_accepted,
                                           .on_tokens = on_slow_tokens,
                                           .on_end = on_slow_end,
                                           .on_failure = on_failure};
    struct client *client = begin(0);

    memset(&slices, 0, sizeof(slices));
    slices.turn = UINT64_MAX;
    gen_outbox_close(&outbox);
    assert_int_equal(ev_loop_new(&slices.loop), 0);
    ev_work_watch(slices.loop, watch_nothing, NULL);
    assert_int_equal(gen_outbox_open(&outbox, slices.loop, close_job), 0);
    client->job->handle.events = &slow;
    return client;
}

static void end_sliced(struct client *client, uint32_t n_tokens)
{
    client->job = NULL;
    assert_int_equal(slices.n_tokens, n_tokens);
    gen_outbox_close(&outbox);
    ev_loop_free(slices.loop);
}

static void long_answers_leave_the_loop_to_others(void **state)
{
    struct client *client = begin_sliced();

    add_tokens(client, 320, true); /* 20 events */
    gen_handle_end(&client->job->handle, WORK_END_LENGTH);
    ev_loop_run(slices.loop);
    end_sliced(client, 320);
    assert_true(slices.n_turns >= 5);
    assert_true(slices.most_in_turn <= 4 * 16);
}

static struct client *singles;

static void add_singles(void *arg)
{
    for (int i = 0; i < 60; i++) { /* as the answers of one frame */
        gen_outbox_begin(&outbox);
        add_tokens(singles, 1, false);
        gen_outbox_flush(&outbox);
    }
    gen_handle_end(&singles->job->handle, WORK_END_LENGTH);
}

static void many_short_events_leave_the_loop_to_others(void **state)
{
    struct ev_timer *timer;

    singles = begin_sliced();
    assert_int_equal(ev_timer_new(slices.loop, add_singles, NULL, &timer), 0);
    ev_timer_start(timer, 0);
    ev_loop_run(slices.loop);
    ev_timer_free(timer);
    end_sliced(singles, 60);
    assert_true(slices.n_turns >= 2);
    assert_true(slices.most_in_turn < 60);
}

static void held_tokens_wait_for_the_backend(void **state)
{
    struct client *client = begin(0);
    struct gen_handle *handle = &client->job->handle;

    gen_handle_hold(handle, true);
    add_tokens(client, 3, false);
    gen_handle_end(handle, WORK_END_LENGTH);
    flush();
    assert_log(client, "");
    gen_handle_accept(handle, 7);
    gen_handle_hold(handle, false);
    flush();
    assert_log(client, "ate");
}

static void a_failure_waits_for_no_pause(void **state)
{
    struct client *client = begin(0), *other = begin(1);
    char text[] = "the worker's own words";
    struct gen_failure failure = {.status = 500, .type = "api_error", .message = text};

    gen_handle_pause(&client->job->handle, true);
    add_tokens(client, 3, false);
    add_tokens(other, 3, false);
    gen_handle_fail(&client->job->handle, &failure);
    gen_handle_fail(&other->job->handle, &failure);
    memset(text, 'x', sizeof(text) - 1); /* it was borrowed */
    flush();
    assert_log(client, "f");
    assert_log(other, "tf"); /* events for a client that is not paused come first */
    assert_string_equal(client->message, "the worker's own words");
}

static void the_front_cancels_inside_any_event(void **state)
{
    const char *all = "astSe";

    for (size_t at = 0; at < strlen(all); at++) {
        struct client *client = begin(0), *other = begin(1);
        struct sample_result score = {.id = 1};
        struct client *both[] = {client, other};

        for (int i = 0; i < 2; i++) {
            struct gen_handle *handle = &both[i]->job->handle;

            gen_handle_accept(handle, 7);
            add_tokens(both[i], 2, true);
            gen_handle_scores(handle, &score, 1);
            gen_handle_stop_score(handle, &score);
            gen_handle_end(handle, WORK_END_LENGTH);
        }
        client->cancels_at = other->cancels_at = all[at];
        client->cancels = client;
        other->cancels = other;
        flush();
        assert_int_equal(client->log.len_bytes, at + 1);
        assert_int_equal(n_jobs, 0);
        client = begin(0);
        other = begin(1);
        gen_handle_accept(&client->job->handle, 7);
        gen_handle_accept(&other->job->handle, 7);
        client->cancels_at = 'a';
        client->cancels = other;
        flush();
        assert_log(client, "a");
        assert_log(other, "");
        cancel(client);
    }
}

static void random_jobs_end_once(void **state)
{
    static const char letters[] = "astSef?";
    struct gen_failure failure = {.status = 500, .type = "api_error", .message = "text"};
    struct rng rng;

    rng_init(&rng, 11);
    for (int i = 0; i < 100000; i++) {
        struct client *client = &clients[rng_below(&rng, N_JOBS)];
        struct gen_handle *handle = client->job != NULL ? &client->job->handle : NULL;

        if (handle == NULL) {
            client = begin((uint32_t)(client - clients));
            client->cancels_at = letters[rng_below(&rng, 7)];
            client->cancels = &clients[rng_below(&rng, N_JOBS)];
            client->pauses_at = letters[rng_below(&rng, 7)];
            continue;
        }
        switch (rng_below(&rng, 8)) {
        case 0:
            flush();
            break;
        case 1:
            gen_handle_pause(handle, rng_below(&rng, 2) == 0);
            break;
        case 2:
            gen_handle_hold(handle, rng_below(&rng, 2) == 0);
            break;
        case 3:
            cancel(client);
            break;
        case 4:
            if (handle->outcome == GEN_RUNNING && rng_below(&rng, 2) == 0)
                gen_handle_fail(handle, &failure);
            else if (handle->outcome == GEN_RUNNING)
                gen_handle_end(handle, WORK_END_LENGTH);
            break;
        default:
            if (handle->outcome == GEN_RUNNING && gen_handle_answered(handle) < MAX_ANSWER)
                add_tokens(client, (uint32_t)rng_below(&rng, 4), true);
        }
    }
}

#define HANDLE_TEST(name) cmocka_unit_test_setup_teardown(name, open_outbox, close_outbox)

int main(void)
{
    const struct CMUnitTest tests[] = {
        HANDLE_TEST(events_come_in_order),
        HANDLE_TEST(a_pause_holds_tokens_and_end_back),
        HANDLE_TEST(a_pause_inside_an_event),
        HANDLE_TEST(held_tokens_wait_for_the_backend),
        HANDLE_TEST(a_failure_waits_for_no_pause),
        HANDLE_TEST(the_front_cancels_inside_any_event),
        HANDLE_TEST(random_jobs_end_once),
        HANDLE_TEST(a_pause_holds_acceptance_back),
        HANDLE_TEST(an_answer_is_delivered_in_parts),
        HANDLE_TEST(a_long_prompt_is_delivered_in_parts),
        HANDLE_TEST(long_answers_leave_the_loop_to_others),
        HANDLE_TEST(many_short_events_leave_the_loop_to_others),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
