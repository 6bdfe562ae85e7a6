/* SPDX-License-Identifier: Apache-2.0 */
/* Admission by prediction in the router.  Requests are refused at once, before any work, with a time for the
 * retry, and never while a worker idles.  Answer lengths are learned from answers. */
#include "fleet/router/admission_priv.h"
#include "tests/unit/check.h"

#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "rig.h"

static struct rig rig;

static int open_rig(void **state)
{
    int rc = rig_open(&rig);

    rig.conf.refuse = ROUTER_REFUSE_PREDICTED;
    rig.conf.ttft_slo_ns = 500 * NS_PER_MS;
    rig.conf.itl_slo_ns = 50 * NS_PER_MS;
    return rc;
}

static int close_rig(void **state)
{
    rig_close(&rig);
    return 0;
}

struct load {
    double queued_s, step_s;
    uint32_t running;
    bool is_full; /* without a free block */
};

static void report(struct link *link, struct load load)
{
    Baton__LoadReport report = BATON__LOAD_REPORT__INIT;

    report.blocks_total = 10000;
    report.blocks_free = load.is_full ? 0 : report.blocks_total;
    report.prefill_tokens_per_s = 10000;
    report.queued_prefill_s = load.queued_s;
    report.queued_prefill_tokens = (uint64_t)(load.queued_s * 10000);
    report.decode_step_s = report.decode_now_s = load.step_s;
    report.decode_row_s = load.step_s / 10;
    report.running = report.decode_seqs = load.running;
    rig_beat(&rig, link, &report);
}

static uint32_t n_sent(struct link *link)
{
    uint32_t n = 0;

    while (rig_sent(link, n) != NULL)
        n++;
    return n;
}

static double n_refused(enum refusal_reason reason)
{
    return metric_value(rig.router.admission.m_refusals[0][reason]);
}

static void a_backlog_refuses_at_once(void **state)
{
    struct link *p = rig_worker(&rig, "p", PICKER_PREFILL, 1, 10000);
    struct link *d = rig_worker(&rig, "d", PICKER_DECODE, 2, 10000);
    struct rig_client *client;

    report(p, (struct load){.queued_s = 2, .step_s = 0.01, .running = 4});
    report(d, (struct load){.queued_s = 2, .step_s = 0.04, .running = 4});
    rig.router.models[0].ahead =
        (struct picker_ahead){1, 1}; /* other tenants' work is there, so no turn is owed before it */
    client = rig_submit(&rig, 1000, 20);
    rig.router.models[0].ahead = (struct picker_ahead){0};
    assert_true(client->has_failed);
    assert_int_equal(client->status, 529);
    assert_true(n_refused(REFUSED_PREDICTED) == 1);
    assert_int_equal(rig.router.n_queued, 0);
    assert_int_equal(n_sent(p) + n_sent(d), 0);
}

/* With decode full, a refused request costs no prefill; but an idle worker accepts it. */
static void a_full_decode_pool_costs_no_prefill(void **state)
{
    struct link *p = rig_worker(&rig, "p", PICKER_PREFILL, 1, 10000);
    struct link *d = rig_worker(&rig, "d", PICKER_DECODE, 2, 10000);
    struct rig_client *client;

    report(p, (struct load){.step_s = 0.01});
    report(d, (struct load){.step_s = 0.5, .running = 8}); /* all seats are taken, for half a minute */
    assert_false(rig_submit(&rig, 1000, 200)->has_failed);
    assert_int_equal(n_sent(p), 1);
    assert_int_equal(n_sent(d), 0);
    for (unsigned i = 0; i < 5; i++) {
        client = rig_submit(&rig, 1000, 200);
        assert_true(client->has_failed);
        assert_int_equal(client->status, 529);
    }
    assert_int_equal(n_sent(p), 1);
    assert_int_equal(n_sent(d), 0);
    rig_cancel(&rig.clients[0]);
}

static void a_seat_that_comes_soon_is_waited_for(void **state)
{
    struct link *p = rig_worker(&rig, "p", PICKER_PREFILL, 1, 10000);
    struct link *d = rig_worker(&rig, "d", PICKER_DECODE, 2, 10000);

    report(p, (struct load){.step_s = 0.01, .running = 1});
    report(d, (struct load){.step_s = 0.02,
                            .running = 8}); /* 64 tokens of 20 ms, 8 of them: one ends each 160 ms */
    assert_false(rig_submit(&rig, 1000, 200)->has_failed);
    assert_int_equal(rig.router.n_queued, 1);
    report(d, (struct load){.step_s = 0.02, .running = 7});
    assert_int_equal(rig.router.n_queued, 0);
    assert_int_equal(n_sent(d), 1);
    rig_cancel(&rig.clients[0]);
}

/* Running answers have written far more than recent answers: their seats do not come soon. */
static void seats_of_overdue_answers_refuse_at_once(void **state)
{
    struct link *d = rig_worker(&rig, "d", PICKER_DECODE, 2, 10000);
    struct rig_client *client;

    report(d, (struct load){.step_s = 0.01});
    for (unsigned i = 0; i < 100; i++)
        picker_answers_learn(&rig.router.models[0].answers[0], 4);
    for (uint32_t i = 0; i < 8; i++) {
        assert_false(rig_submit(&rig, 10, 1000)->has_failed);
        rig_accept(&rig, d, 0);
        rig_tokens(&rig, d, 0, 200);
    }
    report(d, (struct load){.step_s = 0.01, .running = 8});
    client = rig_submit(&rig, 10, 20);
    assert_true(client->has_failed);
    assert_int_equal(client->status, 529);
    assert_true(n_refused(REFUSED_PREDICTED) == 1);
    for (uint32_t i = 0; i < 8; i++)
        rig_cancel(&rig.clients[i]);
}

static void a_request_that_waited_in_vain_is_refused(void **state)
{
    struct link *p = rig_worker(&rig, "p", PICKER_PREFILL, 1, 10000);
    struct link *d = rig_worker(&rig, "d", PICKER_DECODE, 2, 10000);
    struct rig_client *client;

    report(p, (struct load){.step_s = 0.01, .running = 1});
    report(d, (struct load){.step_s = 0.02, .running = 8});
    client = rig_submit(&rig, 1000, 200);
    assert_false(client->has_failed);
    router_expire_queued(&rig.router);
    rig_flush(&rig);
    assert_false(client->has_failed);
    job_of(client->handle)->submitted_ns -= NS_PER_S; /* a second later */
    router_expire_queued(&rig.router);
    rig_flush(&rig);
    assert_true(client->has_failed);
    assert_int_equal(client->status, 529);
    assert_true(n_refused(REFUSED_LATE) == 1);
}

static void expire(void)
{
    router_expire_queued(&rig.router);
    rig_flush(&rig);
}

/* Whoever waited in vain comes back after those refused before, and not all at once. */
static void late_requests_come_back_in_turn(void **state)
{
    struct link *d = rig_worker(&rig, "d", PICKER_DECODE, 2, 10000);
    uint32_t n_waiting = 0, before;

    report(d, (struct load){.step_s = 0.02, .running = 8}); /* one of eight seats is free each 160 ms */
    while (!rig_submit(&rig, 900, 200)->has_failed)
        n_waiting++;
    assert_in_range(n_waiting, 2, 5);
    for (unsigned i = 0; i < 20; i++)
        before = rig_submit(&rig, 900, 200)->retry_after_s;
    assert_in_range(before, 3, 5);
    for (uint32_t i = 0; i < n_waiting; i++)
        job_of(rig.clients[i].handle)->submitted_ns -= NS_PER_S;
    expire();
    assert_true(n_refused(REFUSED_LATE) == n_waiting);
    for (uint32_t i = 0; i < n_waiting; i++)
        assert_in_range(rig.clients[i].retry_after_s, before, before + 1);
}

/* The limit of a request bounds its wait for its turn, queue.timeout the wait for a worker to come back. */
static void a_limit_outlives_the_timeout(void **state)
{
    struct link *d = rig_worker(&rig, "d", PICKER_DECODE, 2, 10000);
    struct rig_client *client;

    rig.conf.ttft_slo_ns = 60 * NS_PER_S;
    report(d, (struct load){.step_s = 0.05, .running = 8}); /* one of eight seats is free each 400 ms */
    client = rig_submit(&rig, 1000, 200);
    assert_int_equal(rig.router.n_queued, 1);
    job_of(client->handle)->queued_ns -= 20 * NS_PER_S;
    job_of(client->handle)->submitted_ns -= 20 * NS_PER_S;
    expire();
    assert_false(client->has_failed);
    rig_lose(&rig, d);
    expire();
    assert_false(client->has_failed); /* the worker has just left */
    rig.conf.queue_timeout_ns = 0;
    expire();
    assert_true(client->has_failed);
    assert_int_equal(client->status, 503);
    assert_true(n_refused(REFUSED_DESERTED) == 1);
}

/* With any reported speed, an idle fleet accepts a request. */
static void an_idle_fleet_refuses_nothing(void **state)
{
    static const double speeds[] = {0.001, 1, 1000};

    for (size_t i = 0; i < sizeof(speeds) / sizeof(speeds[0]); i++) {
        struct link *p = rig_worker(&rig, "p", PICKER_PREFILL, 1 + i, 10000);
        struct link *d = rig_worker(&rig, "d", PICKER_DECODE, 10 + i, 10000);
        struct rig_client *client;

        report(p, (struct load){.step_s = speeds[i]});
        report(d, (struct load){.step_s = speeds[i]});
        rig.router.models[0].late.share = 0.75;
        rig.router.models[0].itl_late.share = 0.75;
        client = rig_submit(&rig, 3000, 200);
        assert_false(client->has_failed);
        assert_int_equal(rig.router.n_queued, 0);
        rig_cancel(client);
        rig_lose(&rig, p);
        rig_lose(&rig, d);
        clock_sleep_ns(10 * NS_PER_MS); /* so that the next reports are later than this dispatch */
    }
}

/* The first prompt was predicted to take 3 s and is done at once.  The worker then idles, although its last report and
 * the prediction of that prompt still have a queue.  The next request has an objective of 500 ms. */
static void a_prompt_done_early_leaves_no_queue(void **state)
{
    struct link *d = rig_worker(&rig, "d", PICKER_DECODE, 2, 10000);
    struct rig_client *client;

    report(d, (struct load){.step_s = 0.001});
    for (unsigned i = 0; i < 3; i++) {
        client = rig_submit(&rig, 30000, 1);
        assert_false(client->has_failed);
        if (i == 1)
            report(d, (struct load){.queued_s = 2.9, .step_s = 0.001, .running = 1});
        rig_tokens(&rig, d, 0, 1);
        rig_finish(&rig, d, BATON__FINISH__FINISH_LENGTH, 0);
        assert_true(client->has_ended);
        client = rig_submit(&rig, 100, 1);
        assert_false(client->has_failed);
        assert_int_equal(rig.router.n_queued, 0);
        rig_tokens(&rig, d, 0, 1);
        rig_finish(&rig, d, BATON__FINISH__FINISH_LENGTH, 0);
    }
    assert_true(n_refused(REFUSED_PREDICTED) == 0);
}

static void answers_teach_their_length(void **state)
{
    struct link *d = rig_worker(&rig, "d", PICKER_DECODE, 2, 10000);
    struct rig_client *client;

    report(d, (struct load){.step_s = 0.01});
    client = rig_submit(&rig, 10, 4000);
    assert_int_equal(router_admission_answer(job_of(client->handle)), 64);
    rig_cancel(client);
    for (unsigned i = 0; i < 20; i++) {
        client = rig_submit(&rig, 10, 4000);
        rig_tokens(&rig, d, 0, 8);
        rig_finish(&rig, d, BATON__FINISH__FINISH_STOP, 0);
        assert_true(client->has_ended);
    }
    client = rig_submit(&rig, 10, 4000);
    assert_in_range(router_admission_answer(job_of(client->handle)), 4, 20); /* from 64 to 8 */
    rig_cancel(client);
}

static void first_tokens_teach_the_margin(void **state)
{
    struct link *d = rig_worker(&rig, "d", PICKER_DECODE, 2, 10000);

    report(d, (struct load){.step_s = 0.001});
    for (unsigned i = 0; i < 5; i++) {
        struct rig_client *client = rig_submit(&rig, 10, 1);

        job_of(client->handle)->submitted_ns -= NS_PER_S; /* the token comes a second late */
        rig_tokens(&rig, d, 0, 1);
        rig_finish(&rig, d, BATON__FINISH__FINISH_LENGTH, 0);
    }
    assert_true(picker_lateness_margin(&rig.router.models[0].late) > 0.2);
    assert_int_equal(metric_count(rig.router.admission.m_late), 5);
}

static double itl_share(void)
{
    return rig.router.models[0].itl_late.share;
}

/* An answer of so many milliseconds a token; the worker's step takes from_s when it is placed, and to_s when it ends. */
static void answer_at(struct link *d, double from_s, double to_s, uint32_t token_ms)
{
    struct rig_client *client;

    report(d, (struct load){.step_s = from_s, .running = 1});
    client = rig_submit(&rig, 10, 20);
    rig_tokens(&rig, d, 0, 1);
    rig_tokens(&rig, d, 1, 19);
    job_of(client->handle)->first_ns -= 19 * token_ms * NS_PER_MS;
    report(d, (struct load){.step_s = to_s, .running = 1});
    rig_finish(&rig, d, BATON__FINISH__FINISH_LENGTH, 0);
    assert_true(client->has_ended);
}

/* Other sequences end during an answer, and the step takes less in the end than it did on average.  That is no error of
 * the estimate. */
static void a_falling_load_is_no_error(void **state)
{
    struct link *d = rig_worker(&rig, "d", PICKER_DECODE, 2, 10000);

    for (unsigned i = 0; i < 5; i++)
        answer_at(d, 0.036, 0.004, 14);
    assert_true(itl_share() <= 0);
    for (unsigned i = 0; i < 5; i++)
        answer_at(d, 0.004, 0.036, 14);
    assert_true(itl_share() <= 0);
    for (unsigned i = 0; i < 5; i++)
        answer_at(d, 0.004, 0.004, 44); /* steps that take longer than estimated, nearly the objective */
    assert_true(itl_share() > 0.1);
}

/* In the first seconds of a load the steps grow during an answer, and prompts lengthen them.  Answers that kept well
 * within the objective ask for no margin. */
static void a_rising_load_is_no_error(void **state)
{
    struct link *d = rig_worker(&rig, "d", PICKER_DECODE, 2, 10000);

    for (unsigned i = 0; i < 10; i++)
        answer_at(d, 0.005, 0.03, 34);
    assert_true(itl_share() <= 0);
    for (unsigned i = 0; i < 10; i++)
        answer_at(d, 0.005, 0.03, 60);
    assert_true(itl_share() > 0.1);
}

/* ---- classes ---- */

static void define(const char *text)
{
    struct fault fault = {0};

    assert_int_equal(picker_classes_add(&rig.router.classes, bytes_of(text, strlen(text)), &fault), 0);
}

static struct rig_client *ask(const char *allowed, const char *wanted, uint32_t n_tokens)
{
    rig.class_allowed = allowed;
    rig.class_wanted = wanted;
    return rig_submit(&rig, n_tokens, 64);
}

static void open_classes(void)
{
    rig.conf.refuse = ROUTER_REFUSE_TIMEOUT;
    rig.conf.queue_max = 8;
    define("high priority=10 weight=4 ttft=10s");
    define("low share=25%");
    router_admission_declare(&rig.router);
}

/* First there is no worker; then one comes, and the order of its requests shows the priorities. */
static void higher_classes_are_placed_first(void **state)
{
    static const uint32_t order[] = {300, 301, 200, 100};
    struct link *d;

    open_classes();
    ask("high", "low", 100);
    ask(NULL, "high", 200); /* the key's class limits it: default */
    ask("high", NULL, 300);
    ask("high", "no such class", 301);
    d = rig_worker(&rig, "d0", PICKER_DECODE, 1, 10000);
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(rig_sent(d, i)->n_tokens, order[i]);
    assert_int_equal(n_sent(d), 4);
    assert_true(metric_value(rig.router.admission.m_placed[1]) == 2);
    assert_true(metric_value(rig.router.admission.m_placed[2]) == 1);
}

/* The backlog of a lower class does not count: it is placed after the request. */
static void a_higher_class_is_not_refused_for_a_lower_one(void **state)
{
    struct link *p, *d;
    uint32_t n_waiting = 0;

    rig.conf.classes.n = 1;
    define("default ttft=500ms itl=50ms");
    define("high priority=10");
    router_admission_declare(&rig.router);
    p = rig_worker(&rig, "p", PICKER_PREFILL, 1, 10000);
    d = rig_worker(&rig, "d", PICKER_DECODE, 2, 10000);
    report(p, (struct load){.step_s = 0.01, .running = 1});
    report(d, (struct load){.step_s = 0.02, .running = 8}); /* one of eight seats is free each 160 ms */
    while (!rig_submit(&rig, 900, 200)->has_failed && n_waiting < 100)
        n_waiting++;
    assert_in_range(n_waiting, 1, 5); /* one more would be late */
    rig.class_allowed = "high";
    assert_false(rig_submit(&rig, 900, 200)->has_failed);
    rig.class_allowed = NULL;
    assert_true(rig_submit(&rig, 900, 200)->has_failed);
    rig.conf.classes.n = 0;
}

/* A quarter of eight places:
 * the class's third request is refused by its own limit; others still have room. */
static void a_class_has_its_share_of_the_queue(void **state)
{
    struct rig_client *third;

    open_classes();
    assert_false(ask("low", NULL, 100)->has_failed);
    assert_false(ask("low", NULL, 101)->has_failed);
    third = ask("low", NULL, 102);
    assert_true(third->has_failed);
    assert_int_equal(third->status, 429);
    assert_true(metric_value(rig.router.admission.m_refusals[2][REFUSED_SHARE]) == 1);
    assert_false(ask("high", NULL, 200)->has_failed);
}

/* All blocks are taken, and a sequence of the worker ends each 1.3 s.  At this pace those come back that a full queue refused,
 * that another tenant pushed out or that waited in vain. */
static void refused_clients_come_back_in_turn(void **state)
{
    struct rig_client *client = NULL;
    uint32_t before = 0;

    rig.conf.refuse = ROUTER_REFUSE_TIMEOUT;
    rig.conf.queue_max = 3;
    rig.tenant = "a";
    report(rig_worker(&rig, "d", PICKER_DECODE, 1, 10000),
           (struct load){.step_s = 0.1, .running = 8, .is_full = true});
    for (unsigned i = 0; i < 3; i++)
        assert_false(rig_submit(&rig, 100, 64)->has_failed);
    for (unsigned i = 0; i < 5; i++) {
        client = rig_submit(&rig, 100, 64);
        assert_true(client->has_failed);
        assert_in_range(client->retry_after_s, before + (i == 0), before + 2);
        before = client->retry_after_s;
    }
    assert_true(before >= 5 && n_refused(REFUSED_FULL) == 5);
    rig.tenant = "b";
    assert_false(rig_submit(&rig, 100, 64)->has_failed);
    router_queue_fail_pushed(&rig.router);
    rig_flush(&rig);
    assert_true(n_refused(REFUSED_PUSHED) == 1);
    assert_in_range(rig.clients[2].retry_after_s, before, before + 2);
    rig.conf.queue_timeout_ns = 0;
    expire();
    assert_true(n_refused(REFUSED_TIMEOUT) == 3);
    assert_in_range(rig.clients[0].retry_after_s, before + 1, before + 3);
    assert_in_range(rig.clients[1].retry_after_s, before + 2, before + 4);
}

/* A class beyond its share has a schedule of its own: its clients delay no others. */
static void a_share_has_its_own_schedule(void **state)
{
    struct rig_client *client = NULL;

    open_classes();
    report(rig_worker(&rig, "d", PICKER_DECODE, 1, 10000),
           (struct load){.step_s = 0.1, .running = 8, .is_full = true});
    for (unsigned i = 0; i < 8; i++)
        client = ask("low", NULL, 100);
    assert_true(client->has_failed && client->status == 429);
    assert_in_range(client->retry_after_s, 6, 8);
    for (unsigned i = 0; i < 7; i++)
        client = ask("high", NULL, 100);
    assert_true(client->has_failed && client->status == 529);
    assert_in_range(client->retry_after_s, 1, 2);
}

/* The access log names the class of a request that was refused at once, and of one that waited in vain. */
static void refused_requests_have_their_class(void **state)
{
    struct rig_client *first, *third;

    open_classes();
    first = ask("low", NULL, 100);
    assert_false(ask("low", NULL, 101)->has_failed);
    third = ask("low", NULL, 102);
    assert_true(third->has_failed);
    assert_string_equal(third->serving.class_name, "low");
    assert_false(first->has_failed);
    rig.conf.queue_timeout_ns = 0;
    router_expire_queued(&rig.router);
    rig_flush(&rig);
    assert_true(first->has_failed);
    assert_string_equal(first->serving.class_name, "low");
}

/* The same backlog is too late for the default's objective, and in time for a class with ten seconds. */
static void a_class_has_its_own_limit(void **state)
{
    struct link *d;

    open_classes();
    rig.conf.refuse = ROUTER_REFUSE_PREDICTED;
    rig.conf.classes.n = 1; /* as configured: classes do not follow slo */
    rig.router.classes.all[0].ttft_slo_ns = 500 * NS_PER_MS;
    rig.router.classes.all[0].itl_slo_ns = rig.router.classes.all[1].itl_slo_ns = NS_PER_S;
    d = rig_worker(&rig, "d", PICKER_DECODE, 1, 10000);
    report(d, (struct load){.queued_s = 2, .step_s = 0.01, .running = 2});
    assert_true(ask(NULL, NULL, 1000)->has_failed);
    assert_false(ask("high", NULL, 1000)->has_failed);
    assert_int_equal(n_sent(d), 1);
    rig.conf.classes.n = 0;
}

/* Blocks for prompt and expected answer count from the placement on: with room for two of three prompts the third waits,
 * and costs no prefill, also if the worker's last report shows free blocks. */
static void blocks_of_what_is_on_its_way_are_taken(void **state)
{
    struct link *p = rig_worker(&rig, "p", PICKER_PREFILL, 1, 10000);
    struct link *d = rig_worker(&rig, "d", PICKER_DECODE, 2, 10000);
    Baton__LoadReport load = BATON__LOAD_REPORT__INIT;
    struct picker_worker row;

    report(p, (struct load){.step_s = 0.001, .running = 1});
    load.blocks_free = 75; /* 2,400 tokens: two of 1,000 and their answers of 64 */
    load.blocks_total = 10000;
    load.prefill_tokens_per_s = 10000;
    load.decode_step_s = load.decode_now_s = 0.001;
    load.running = load.decode_seqs = 1;
    rig_beat(&rig, d, &load);
    for (unsigned i = 0; i < 3; i++)
        rig_submit(&rig, 1000, 200);
    assert_int_equal(n_sent(d), 2);
    assert_int_equal(n_sent(p), 2);
    rig_tokens(&rig, d, 0, 1); /* it has begun: the report is older than its blocks */
    picker_fleet_row(rig.router.fleet, (uint32_t)job_of(rig.clients[1].handle)->decode.slot, &row);
    assert_in_range(row.blocks_free, 7, 9); /* 75 less 66 */
    assert_int_equal(n_sent(d), 2);
    load.blocks_free = 44;
    rig_beat(&rig, d, &load);
    assert_int_equal(n_sent(d), 2); /* the other is still on its way */
    for (unsigned i = 0; i < 3; i++)
        if (rig.clients[i].handle != NULL)
            rig_cancel(&rig.clients[i]);
    assert_true(rig_ledgers_are_empty(&rig));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_backlog_refuses_at_once, open_rig, close_rig),
        cmocka_unit_test_setup_teardown(a_full_decode_pool_costs_no_prefill, open_rig, close_rig),
        cmocka_unit_test_setup_teardown(blocks_of_what_is_on_its_way_are_taken, open_rig, close_rig),
        cmocka_unit_test_setup_teardown(a_seat_that_comes_soon_is_waited_for, open_rig, close_rig),
        cmocka_unit_test_setup_teardown(seats_of_overdue_answers_refuse_at_once, open_rig, close_rig),
        cmocka_unit_test_setup_teardown(a_request_that_waited_in_vain_is_refused, open_rig, close_rig),
        cmocka_unit_test_setup_teardown(late_requests_come_back_in_turn, open_rig, close_rig),
        cmocka_unit_test_setup_teardown(a_limit_outlives_the_timeout, open_rig, close_rig),
        cmocka_unit_test_setup_teardown(an_idle_fleet_refuses_nothing, open_rig, close_rig),
        cmocka_unit_test_setup_teardown(a_prompt_done_early_leaves_no_queue, open_rig, close_rig),
        cmocka_unit_test_setup_teardown(answers_teach_their_length, open_rig, close_rig),
        cmocka_unit_test_setup_teardown(higher_classes_are_placed_first, open_rig, close_rig),
        cmocka_unit_test_setup_teardown(refused_requests_have_their_class, open_rig, close_rig),
        cmocka_unit_test_setup_teardown(a_higher_class_is_not_refused_for_a_lower_one, open_rig, close_rig),
        cmocka_unit_test_setup_teardown(a_class_has_its_share_of_the_queue, open_rig, close_rig),
        cmocka_unit_test_setup_teardown(refused_clients_come_back_in_turn, open_rig, close_rig),
        cmocka_unit_test_setup_teardown(a_share_has_its_own_schedule, open_rig, close_rig),
        cmocka_unit_test_setup_teardown(a_class_has_its_own_limit, open_rig, close_rig),
        cmocka_unit_test_setup_teardown(first_tokens_teach_the_margin, open_rig, close_rig),
        cmocka_unit_test_setup_teardown(a_falling_load_is_no_error, open_rig, close_rig),
        cmocka_unit_test_setup_teardown(a_rising_load_is_no_error, open_rig, close_rig),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
