/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs whose worker leaves, whose client pauses, or whose callbacks cancel other jobs;
 * and the worker that continues an answer. */
#include "tests/unit/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "compute/order/submit.h"
#include "fleet/router/state_priv.h"
#include "fleet/router/streams_priv.h"
#include "net/state/state_priv.h"
#include "proto/token_list.h"
#include "rig_fixture.h"

static void a_paused_stream_is_resumed_at_its_length(void **state)
{
    struct link *d0 = rig_worker(&rig, "d0", PICKER_DECODE, 1, 100);
    struct link *d1 = rig_worker(&rig, "d1", PICKER_DECODE, 2, 100);
    struct rig_client *client = rig_submit(&rig, 10, 20);

    client->pauses_on_tokens = true;
    rig_tokens(&rig, d0, 0, 2);
    rig_tokens(&rig, d0, 2, 6); /* held back */
    rig_lose(&rig, d0);
    assert_int_equal(rig_last(d1)->n_tokens, 18);
    assert_int_equal(rig_last(d1)->max_new_tokens, 12);
    client->pauses_on_tokens = false;
    rig_tokens(&rig, d1, 8, 12);
    rig_finish(&rig, d1, BATON__FINISH__FINISH_LENGTH, 0);
    assert_false(client->has_ended);
    assert_true(rig_ledgers_are_empty(&rig)); /* the worker has ended, the client has not received all */
    rig_lose(&rig, d1);
    rig_pause(client, false);
    assert_true(client->has_ended);
    rig_assert_answer(client, 20);
}

static void a_whole_answer_needs_no_worker_for_its_end(void **state)
{
    struct link *d0 = rig_worker(&rig, "d0", PICKER_DECODE, 1, 100);
    struct link *d1 = rig_worker(&rig, "d1", PICKER_DECODE, 2, 100);
    struct rig_client *client = rig_submit(&rig, 10, 3);

    rig_tokens(&rig, d0, 0, 3);
    rig_lose(&rig, d0);
    assert_true(client->has_ended);
    assert_int_equal(client->end, WORK_END_LENGTH);
    assert_null(rig_last(d1));
}

static void work_is_counted_once(void **state)
{
    struct link *d = rig_worker(&rig, "d0", PICKER_DECODE, 1, 100);
    struct rig_client *client = rig_submit(&rig, 10, 20);
    Baton__Answer answer = BATON__ANSWER__INIT;
    Baton__Serving serving = BATON__SERVING__INIT;
    uint32_t id = 'a';

    answer.request = rig_last(d)->request;
    answer.ids = &id;
    answer.n_ids = 1;
    answer.serving = &serving;
    serving.computed = 10;
    rig_answer(&rig, d, &answer);
    rig_lose(&rig, d); /* no other worker: it waits */
    assert_int_equal(rig.router.n_queued, 1);
    rig_cancel(client);
    assert_int_equal(client->serving.computed_tokens, 10);
}

static void callbacks_may_cancel(void **state)
{
    struct link *d = rig_worker(&rig, "d0", PICKER_DECODE, 1, 100);
    struct rig_client *a = rig_submit(&rig, 10, 20), *b;

    a->cancels_on_accepted = true;
    rig_accept(&rig, d, 0);
    assert_null(a->handle);
    b = rig_submit(&rig, 10, 20);
    b->cancels_on_tokens = true;
    rig_tokens(&rig, d, 0, 3);
    assert_null(b->handle);
    assert_true(list_is_empty(&rig.router.jobs));
    assert_true(rig_ledgers_are_empty(&rig));
}

/* A frame with a token of each job.  Prefetched jobs may be gone when their turn comes. */
static void jobs_of_a_frame_may_go_while_it_is_read(void **state)
{
    enum { N = 8, N_STRANGE = 8, N_RECORDS = N_STRANGE + N, N_FRAMES = 3 };
    struct link *d = rig_worker(&rig, "d0", PICKER_DECODE, 1, 100);
    uint8_t singles[N_RECORDS * FRAME_SINGLE_BYTES];

    for (uint32_t i = 0; i < N; i++) {
        assert_non_null(rig_submit(&rig, 10, 20)->handle);
        assert_non_null(rig_sent(d, i));
        rig_accept(&rig, d, 0);
    }
    rig.clients[0].cancels_other_on_tokens = &rig.clients[1]; /* the next client, */
    rig.clients[2].cancels_other_on_tokens = &rig.clients[6];
    rig.clients[4].cancels_other_on_tokens = &rig.clients[3]; /* a client that has its token already, */
    rig.clients[5].cancels_on_tokens = true;                  /* itself */
    for (uint32_t frame = 0; frame < N_FRAMES; frame++) {
        Baton__Tokens tokens = BATON__TOKENS__INIT;

        for (uint32_t i = 0; i < N_RECORDS; i++) /* the first records belong to no job */
            frame_single_pack(&(struct frame_single){.request = i < N_STRANGE
                                                                    ? UINT64_MAX
                                                                    : rig_sent(d, i - N_STRANGE)->request,
                                                     .index = frame,
                                                     .id = 'a' + frame},
                              singles + (size_t)i * FRAME_SINGLE_BYTES);
        tokens.singles = (ProtobufCBinaryData){.data = singles, .len = sizeof(singles)};
        assert_int_equal(router_stream_tokens(&rig.router, 0, &tokens), 0);
    }
    for (unsigned step = 0; step < GEN_SOON_STEPS; step++)
        assert_true(rig.n_soon[step] > 0);
    for (uint32_t i = 0; i < N; i++) {
        bool is_unheard = i == 1 || i == 6;

        rig_assert_answer(&rig.clients[i], is_unheard ? 0 : i == 3 || i == 5 ? 1 : N_FRAMES);
        assert_int_equal(rig.clients[i].handle == NULL, is_unheard || i == 3 || i == 5);
        if (rig.clients[i].handle != NULL)
            rig_cancel(&rig.clients[i]);
    }
    assert_true(rig_ledgers_are_empty(&rig));
}

static void a_failure_may_cancel_the_next_job(void **state)
{
    struct link *d;
    struct rig_client *a, *b, *c;

    d = rig_worker(&rig, "d0", PICKER_DECODE, 1, 100);
    a = rig_submit(&rig, 10, 20);
    b = rig_submit(&rig, 10, 20);
    c = rig_submit(&rig, 10, 20);
    job_of(a->handle)->n_futile = 100; /* after one more it fails */
    a->cancels_on_failure = b;
    rig_lose(&rig, d);
    assert_true(a->has_failed);
    assert_null(b->handle);
    assert_int_equal(rig.router.n_queued, 1);
    rig_cancel(c);
    assert_true(rig_ledgers_are_empty(&rig));
}

static void a_restarted_worker_is_new(void **state)
{
    struct link *d = rig_worker(&rig, "d0", PICKER_DECODE, 1, 100), *again;
    struct rig_client *client = rig_submit(&rig, 10, 20);

    rig_lose(&rig, d);
    assert_int_equal(rig.router.n_queued, 1);
    again = rig_worker(&rig, "d0", PICKER_DECODE, 2, 100);
    assert_non_null(rig_last(again)); /* failures of its former life do not count */
    assert_null(rig_worker(&rig, "d0", PICKER_DECODE, 2, 100));
    rig_cancel(client);
    assert_true(rig_ledgers_are_empty(&rig));
}

static void set_layout(const char *node, uint64_t layout)
{
    for (uint32_t i = 0; i < PICKER_MAX_WORKERS; i++)
        if (strcmp(rig.router.workers[i].node, node) == 0) {
            rig.router.workers[i].layout = layout;
            router_worker_refresh(&rig.router, &rig.router.workers[i]);
        }
}

/* The layout includes the numerics id: any worker that continues an answer gives the same bits. */
static void an_answer_keeps_its_arithmetic(void **state)
{
    struct link *d0 = rig_worker(&rig, "d0", PICKER_DECODE, 1, 100), *d2;
    struct link *d1 = rig_worker(&rig, "d1", PICKER_DECODE, 2, 100);
    struct rig_client *client, *next;
    Baton__LoadReport load = BATON__LOAD_REPORT__INIT;

    set_layout("d0", 7);
    set_layout("d1", 8);
    client = rig_submit(&rig, 10, 20);
    rig_tokens(&rig, d0, 0, 2);
    rig_lose(&rig, d0);
    assert_int_equal(rig.router.n_queued, 1);
    assert_null(rig_last(d1)); /* it could continue, but with other bits */
    next = rig_submit(&rig, 10, 20);
    assert_non_null(rig_last(d1)); /* jobs without an answer do not wait for that */
    rig_cancel(next);
    d2 = rig_worker(&rig, "d2", PICKER_DECODE, 3, 100);
    set_layout("d2", 7);
    load.blocks_free = load.blocks_total = 100;
    rig_beat(&rig, d2, &load);
    assert_int_equal(rig_last(d2)->n_tokens, 12);
    rig_tokens(&rig, d2, 2, 3);
    rig_finish(&rig, d2, BATON__FINISH__FINISH_STOP, 0);
    assert_true(client->has_ended);
    rig_assert_answer(client, 5);
    assert_true(rig_ledgers_are_empty(&rig));
}

/* Before its first token a request has no bits to keep. */
static void a_request_without_a_word_may_change_arithmetic(void **state)
{
    struct link *d0 = rig_worker(&rig, "d0", PICKER_DECODE, 1, 100);
    struct link *d1 = rig_worker(&rig, "d1", PICKER_DECODE, 2, 100);
    struct rig_client *client;

    set_layout("d0", 7);
    set_layout("d1", 8);
    client = rig_submit(&rig, 10, 20);
    assert_non_null(rig_last(d0));
    rig_lose(&rig, d0);
    assert_int_equal(rig_last(d1)->n_tokens, 10);
    rig_cancel(client);
    assert_true(rig_ledgers_are_empty(&rig));
}

static const struct gen_events no_events_at_all;

static void order_to_resume(struct work_order *out)
{
    *out = (struct work_order){.n_tokens = 10,
                               .n_prompt = 10,
                               .tokens = calloc(10, sizeof(token_id)),
                               .work = {.max_new_tokens = 20, .resume = {.is_kept = true}}};
    strcpy(out->work.request_id, "msg_1");
}

/* Asks for the stream with the first model, and answers as a worker of the second one, which has the same name; first_id:
 * of the worker's prompt.  Returns the job. */
static struct job *resume_from_the_other(token_id first_id)
{
    struct router *router = &rig.router;
    struct work_order order, worker_order;
    struct gen_handle *handle;
    struct gen_failure failure;
    struct work_submit packed;
    Baton__Resumed resumed = BATON__RESUMED__INIT;

    order_to_resume(&order);
    order_to_resume(&worker_order);
    worker_order.tokens[0] = first_id;
    assert_int_equal(
        router_resume(router,
                      &(struct gen_start){&router->models[0].gen, &order, &no_events_at_all, NULL, NULL},
                      &handle, &failure),
        0);
    assert_int_equal(job_of(handle)->n_asked, 1);
    assert_int_equal(work_submit_pack(&worker_order, TOKEN_LIST_MAX_BYTES, &packed), 0);
    resumed.request = job_of(handle)->number;
    resumed.is_here = true;
    resumed.submit = &packed.submit;
    router_resume_answer(router, 0, &resumed);
    work_submit_fini(&packed);
    work_order_fini(&worker_order);
    return job_of(handle);
}

static void a_stream_of_another_file_is_resumed_there(void **state)
{
    struct router_model *first = &rig.router.models[0], *second = &rig.router.models[1];
    struct job *job;

    strcpy(second->gen.name, first->gen.name);
    rig.capabilities = CAPABILITY_STATED | CAPABILITY_RESUMES;
    rig.fingerprint = second->gen.fingerprint;
    assert_non_null(rig_worker(&rig, "d0", PICKER_DECODE, 1, 100));
    job = resume_from_the_other(0);
    assert_int_equal(job->state, JOB_PLACED);
    assert_ptr_equal(job->model, second);
    assert_int_equal(first->n_jobs + first->n_seated[0], 0);
    assert_int_equal(second->n_jobs, 1);
    assert_int_equal(second->n_seated[0], 1);
    router_job_enter(job, JOB_OVER);
    router_job_free(job);
    assert_int_equal(second->n_jobs + second->n_seated[0], 0);

    job = resume_from_the_other(5); /* another prompt: with that file the next attempt may go on */
    assert_int_equal(job->state, JOB_FAILED);
    assert_int_equal(job->handle.failure.status, 503);
    assert_ptr_equal(job->model, first);
    router_job_free(job);
}

/* A client gives up at 404, so only a reply that will stay the same causes it. */
static void what_may_change_is_no_404(void **state)
{
    static const struct {
        int rc, status;
        uint32_t n_asked; /* workers that have not replied */
    } cases[] = {{E_NOT_FOUND, 404, 0}, {E_MISMATCH, 404, 0}, {E_PROTO, 404, 0}, {E_UNSUPPORTED, 404, 0},
                 {E_NOT_FOUND, 503, 1}, {E_CLOSED, 503, 0},   {E_IO, 503, 0},    {E_NOMEM, 500, 0}};

    rig.capabilities = CAPABILITY_STATED | CAPABILITY_RESUMES;
    assert_non_null(rig_worker(&rig, "d0", PICKER_DECODE, 1, 100));
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct work_order order;
        struct gen_handle *handle;
        struct gen_failure failure;
        struct job *job;

        order_to_resume(&order);
        assert_int_equal(router_resume(&rig.router,
                                       &(struct gen_start){&rig.router.models[0].gen, &order,
                                                           &no_events_at_all, NULL, NULL},
                                       &handle, &failure),
                         0);
        job = job_of(handle);
        job->n_asked = cases[i].n_asked;
        router_resume_fail(job, cases[i].rc);
        assert_int_equal(job->handle.failure.status, cases[i].status);
        assert_int_equal(job->handle.failure.retry_after_s, cases[i].status == 503);
        router_job_free(job);
    }
}

/* A router kept the order with this fingerprint; another one, asked with the first model, takes it.  first_id: of the
 * kept prompt.  Returns the job. */
static struct job *adopt_order(const char *fingerprint, token_id first_id, int rc)
{
    struct work_order order, kept;
    struct gen_handle *handle;
    struct gen_failure failure;
    struct work_submit packed;
    struct buf value = {0};

    order_to_resume(&order);
    order_to_resume(&kept);
    kept.tokens[0] = first_id;
    assert_int_equal(
        router_resume(&rig.router,
                      &(struct gen_start){&rig.router.models[0].gen, &order, &no_events_at_all, NULL, NULL},
                      &handle, &failure),
        0);
    assert_int_equal(work_submit_pack(&kept, TOKEN_LIST_MAX_BYTES, &packed), 0);
    packed.submit.request = 1;
    packed.resume.fingerprint = (char *)fingerprint;
    buf_append(&value, kept.work.resume.body_digest, sizeof(kept.work.resume.body_digest));
    assert_int_equal(buf_reserve(&value, baton__submit__get_packed_size(&packed.submit)), 0);
    value.len_bytes += baton__submit__pack(&packed.submit, value.data + value.len_bytes);
    assert_int_equal(router_streams_adopt(job_of(handle), buf_view(&value)), rc);
    buf_fini(&value);
    work_submit_fini(&packed);
    work_order_fini(&kept);
    return job_of(handle);
}

/* Two files have one name.  Only the one that began a stream has its next tokens. */
static void an_order_goes_to_its_file(void **state)
{
    struct router_model *first = &rig.router.models[0], *second = &rig.router.models[1];
    const struct {
        const char *fingerprint;
        token_id first_id;
        const struct router_model *model;
        int rc;
        bool may_come;                     /* the next attempt may find it */
    } cases[] = {{"", 0, first, 0, false}, /* of an older router */
                 {first->gen.fingerprint, 0, first, 0, false},
                 {second->gen.fingerprint, 0, second, 0, false},
                 {second->gen.fingerprint, 5, first, E_NOT_FOUND, true}, /* another prompt than that file's */
                 {"00000000000000000000000000000000", 0, first, E_NOT_FOUND, false}};

    strcpy(second->gen.name, first->gen.name);
    rig.capabilities = CAPABILITY_STATED | CAPABILITY_RESUMES;
    assert_non_null(rig_worker(&rig, "d0", PICKER_DECODE, 1, 100));
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct job *job = adopt_order(cases[i].fingerprint, cases[i].first_id, cases[i].rc);

        assert_ptr_equal(job->model, cases[i].model);
        assert_int_equal(job->is_order_unknown, cases[i].may_come);
        router_job_enter(job, JOB_OVER);
        router_job_free(job);
    }
}

/* No worker had the stream in time, so the shared store is asked; then a worker has it after all. */
static void a_worker_answers_before_the_store(void **state)
{
    struct router *router = &rig.router;
    struct gen_handle *handle;
    struct gen_failure failure;
    struct work_order order, worker_order;
    struct work_submit packed;
    struct fault fault = {0};
    struct state *store;
    struct job *job;
    Baton__Resumed resumed = BATON__RESUMED__INIT;
    static const uint8_t key[32];

    rig.capabilities = CAPABILITY_STATED | CAPABILITY_RESUMES;
    rig.conf.state_url = (char *)"redis://127.0.0.1:1";
    rig.conf.state_login = rig.conf.state_ca = (char *)"";
    rig.conf.node = (char *)"r0";
    rig.conf.state_wait_ns = 600 * NS_PER_S;
    assert_int_equal(ev_loop_new(&router->loop), 0);
    assert_int_equal(router_state_open(router, key, &fault), 0);
    store = router_state_store(router);
    store->breaker.state = BREAKER_UP;
    assert_non_null(rig_worker(&rig, "d0", PICKER_DECODE, 1, 100));
    order_to_resume(&order);
    order_to_resume(&worker_order);
    assert_int_equal(
        router_resume(router,
                      &(struct gen_start){&router->models[0].gen, &order, &no_events_at_all, NULL, NULL},
                      &handle, &failure),
        0);
    job = job_of(handle);
    assert_int_equal(job->n_asked, 1);
    router_resume_tick(job, clock_now_ns() + 10 * NS_PER_S);
    assert_non_null(job->store_ask);
    assert_int_equal(work_submit_pack(&worker_order, TOKEN_LIST_MAX_BYTES, &packed), 0);
    resumed.request = job->number;
    resumed.is_here = true;
    resumed.submit = &packed.submit;
    router_resume_answer(router, 0, &resumed);
    assert_int_equal(job->state, JOB_PLACED);
    assert_null(job->store_ask); /* else its answer would place the job a second time */
    assert_true(list_is_empty(&store->asks));
    assert_true(job->is_stored); /* the router that had it may have removed it */
    assert_int_equal(store->counts.n_puts, 1);
    work_submit_fini(&packed);
    work_order_fini(&worker_order);
    router_job_enter(job, JOB_OVER);
    router_job_free(job);
    router_state_close(router);
    ev_loop_free(router->loop);
    router->loop = NULL;
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, open_rig, close_rig)
    static const struct CMUnitTest tests[] = {
        T(a_stream_of_another_file_is_resumed_there),
        T(a_paused_stream_is_resumed_at_its_length),
        T(a_whole_answer_needs_no_worker_for_its_end),
        T(work_is_counted_once),
        T(callbacks_may_cancel),
        T(jobs_of_a_frame_may_go_while_it_is_read),
        T(a_failure_may_cancel_the_next_job),
        T(a_restarted_worker_is_new),
        T(what_may_change_is_no_404),
        T(a_worker_answers_before_the_store),
        T(an_order_goes_to_its_file),
        T(an_answer_keeps_its_arithmetic),
        T(a_request_without_a_word_may_change_arithmetic),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
