/* SPDX-License-Identifier: Apache-2.0 */
/* Admission by prediction: the time of a first token, the limit that counts as in time, the lateness of
 * predictions, the time of retries, and the length of answers. */
#include "tests/unit/check.h"

#include <math.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/rng.h"
#include "fleet/picker/admit.h"
#include "fleet/picker/answers.h"
#include "fleet/picker/place.h"
#include "fleet/picker/turn.h"

static struct picker_worker worker(enum picker_role role)
{
    return (struct picker_worker){
        .is_usable = true,
        .role = role,
        .layout = 7,
        .block_tokens = 32,
        .blocks_free = 1000,
        .blocks_total = 1000,
        .max_seqs = 10,
        .prefill_tokens_per_s = 1000,
        .decode_step_s = 0.02,
    };
}

static struct picker_local_prefill local_prefill; /* who computed prompts of late */

static struct picker_outlook outlook_of(const struct picker_worker *workers, uint32_t n,
                                        uint32_t context_tokens)
{
    struct picker_outlook_opts opts = {.local_prefill = &local_prefill,
                                       .itl_slo_s = 0.05,
                                       .answer_tokens = 100,
                                       .context_tokens = context_tokens};
    struct picker_outlook outlook;
    struct picker_fleet *fleet;

    assert_int_equal(picker_fleet_new(0, &fleet), 0);
    for (uint32_t i = 0; i < n; i++)
        assert_int_equal(picker_fleet_set(fleet, i, &workers[i]), 0);
    picker_outlook(fleet, &opts, &outlook);
    picker_fleet_free(fleet);
    return outlook;
}

/* A router's queue gets the part of the fleet that its sequences have, or its even part if that is more. */
static void routers_share_the_speed(void **state)
{
    struct picker_worker one = worker(PICKER_PREFILL);
    struct picker_outlook_opts opts = {.itl_slo_s = 0.05, .n_routers = 4};
    struct picker_outlook outlook;
    struct picker_fleet *fleet;

    one.n_running = 10;
    assert_int_equal(picker_fleet_new(0, &fleet), 0);
    assert_int_equal(picker_fleet_set(fleet, 0, &one), 0);
    picker_outlook(fleet, &opts, &outlook);
    assert_float_equal(outlook.prompt_tokens_per_s, 250, 1);
    for (unsigned i = 0; i < 5; i++)
        picker_fleet_charge(fleet, 0, &(struct picker_charge){0}, 0);
    picker_outlook(fleet, &opts, &outlook);
    assert_float_equal(outlook.prompt_tokens_per_s, 500, 1);
    opts.n_routers = 1;
    picker_outlook(fleet, &opts, &outlook);
    assert_float_equal(outlook.prompt_tokens_per_s, 1000, 1);
    picker_fleet_free(fleet);
}

static void prompt_speeds_add_up(void **state)
{
    struct picker_worker workers[] = {worker(PICKER_PREFILL), worker(PICKER_PREFILL), worker(PICKER_DECODE)};

    workers[0].prefill_tokens_per_s = 3000;
    assert_float_equal(outlook_of(workers, 3, 100).prompt_tokens_per_s, 4000, 1);
    assert_float_equal(outlook_of(&workers[2], 1, 100).prompt_tokens_per_s, 1000, 1);
}

/* A decode worker computes a part of the prompts that waited beside its sequences. */
static void decode_workers_add_their_part(void **state)
{
    struct picker_worker workers[] = {worker(PICKER_PREFILL), worker(PICKER_DECODE)};

    for (uint32_t i = 0; i < 1000; i++)
        picker_local_prefill_learn(&local_prefill, i % 5 < 2 ? 300 : 200, i % 5 < 2);
    assert_float_equal(outlook_of(workers, 2, 100).prompt_tokens_per_s, 2000, 50);
    assert_float_equal(outlook_of(&workers[1], 1, 100).prompt_tokens_per_s, 1000, 1);
    for (uint32_t i = 0; i < 1000; i++) /* prefill workers still count */
        picker_local_prefill_learn(&local_prefill, 100, true);
    assert_float_equal(outlook_of(workers, 2, 100).prompt_tokens_per_s, 4000, 1);
    for (uint32_t i = 0; i < 1000; i++)
        picker_local_prefill_learn(&local_prefill, 100, false);
    assert_float_equal(outlook_of(workers, 2, 100).prompt_tokens_per_s, 1000, 1);
    local_prefill = (struct picker_local_prefill){0};
}

static void a_seat_comes_when_sequences_end(void **state)
{
    struct picker_worker workers[] = {worker(PICKER_PREFILL), worker(PICKER_DECODE)};
    struct picker_outlook outlook;

    workers[1].n_running = 5;
    outlook = outlook_of(workers, 2, 100);
    assert_float_equal(outlook.seat_s, 0, 1e-9);
    workers[1].n_running = 10; /* all seats are taken: the first sequence ends after a tenth of an answer */
    outlook = outlook_of(workers, 2, 100);
    assert_float_equal(outlook.seats_per_s, 10 / (100 * picker_itl_s(&workers[1])), 1e-3);
    assert_float_equal(outlook.seat_s, 1 / outlook.seats_per_s, 1e-3);
    workers[1].n_running = 5;
    workers[1].blocks_free = 2; /* 5 sequences have 998 blocks, and 10 more are needed */
    outlook = outlook_of(workers, 2, 320);
    assert_float_equal(outlook.seat_s, 1 / outlook.seats_per_s, 1e-3);
    workers[1].blocks_free = 1000;
    workers[1].max_seqs = 64;
    workers[1].n_running = 40; /* 0.02 x (1 + 0.05 n) <= 0.05: at most 30 */
    outlook = outlook_of(workers, 2, 100);
    assert_float_equal(outlook.seat_s, 10 / outlook.seats_per_s, 1e-2);
}

struct seats { /* of one decode worker, all taken by this router's sequences unless n_own says otherwise */
    uint32_t n, n_own;
    struct picker_written written[10];
};

static struct picker_outlook outlook_of_seats(const struct seats *seats, bool has_ended)
{
    struct picker_worker decode = worker(PICKER_DECODE);
    struct picker_outlook_opts opts = {.itl_slo_s = 0.05, .answer_tokens = 100, .context_tokens = 100};
    struct picker_outlook outlook;
    struct picker_fleet *fleet;

    decode.n_running = decode.max_seqs = seats->n;
    assert_int_equal(picker_fleet_new(0, &fleet), 0);
    assert_int_equal(picker_fleet_set(fleet, 0, &decode), 0);
    for (uint32_t i = 0; i < seats->n_own; i++) {
        struct picker_booking booking = {.slot = 0};

        picker_fleet_charge(fleet, 0, &booking.charge, 0);
        picker_booking_wrote(fleet, &booking, &seats->written[i]);
        picker_booking_wrote(fleet, &booking, &seats->written[i]); /* a second call changes nothing */
        if (has_ended)
            picker_booking_over(fleet, &booking, 0);
    }
    picker_outlook(fleet, &opts, &outlook);
    picker_fleet_free(fleet);
    return outlook;
}

/* Answers that have written far more than was expected of them go on for as long again: a seat does not come after
 * the expected length. */
static void overdue_answers_hold_their_seats(void **state)
{
    struct seats seats = {.n = 4, .n_own = 4};
    struct picker_worker decode = worker(PICKER_DECODE);
    double itl_s;

    decode.n_running = decode.max_seqs = 4;
    itl_s = picker_itl_s(&decode);
    for (uint32_t i = 0; i < 4; i++)
        seats.written[i] = (struct picker_written){.n_tokens = 150, .expected = 100, .most = 100000};
    assert_float_equal(outlook_of_seats(&seats, false).seat_s, 25 * itl_s, 1e-3); /* not twice as long yet */
    for (uint32_t i = 0; i < 4; i++)
        seats.written[i].n_tokens = 2000;
    assert_float_equal(outlook_of_seats(&seats, false).seat_s, 2000 * itl_s, 0.1);
    assert_float_equal(outlook_of_seats(&seats, false).seats_per_s, 1 / (2000 * itl_s), 1e-3);
    seats.n_own = 2; /* the others are another router's, and like these */
    assert_float_equal(outlook_of_seats(&seats, false).seat_s, 1000 * itl_s, 0.1);
    seats.n_own = 4;
    seats.written[3].n_tokens = 10; /* one of them may end soon */
    assert_float_equal(outlook_of_seats(&seats, false).seat_s, 100 * itl_s, 0.3);
    seats.written[3].n_tokens = 2000;
    for (uint32_t i = 0; i < 4; i++)
        seats.written[i].most = 2040; /* no answer exceeds its limit */
    assert_float_equal(outlook_of_seats(&seats, false).seat_s, 40 * itl_s, 0.1);
    assert_float_equal(outlook_of_seats(&seats, true).seat_s, 25 * itl_s, 1e-3); /* others took their seats */
}

static void the_verdict_is_the_later_of_prompt_and_seat(void **state)
{
    struct picker_outlook outlook = {.prompt_tokens_per_s = 1000};
    struct picker_wait wait = {.queue_s = 0.2, .alone_s = 0.1, .ttft_slo_s = 0.5};
    struct picker_verdict verdict;

    picker_admit(&wait, &outlook, &verdict);
    assert_true(verdict.is_in_time);
    assert_float_equal(verdict.ttft_s, 0.3, 1e-9);
    wait.ahead_tokens = 300;
    picker_admit(&wait, &outlook, &verdict);
    assert_false(verdict.is_in_time);
    assert_float_equal(verdict.late_s, 0.1, 1e-9);
    wait.ahead_tokens = 0;
    wait.n_ahead = 2;
    outlook.seat_s = 0.1;
    outlook.seats_per_s = 10;
    picker_admit(&wait, &outlook, &verdict);
    assert_float_equal(verdict.ttft_s, 0.4, 1e-9);
    wait.waited_s = 0.2;
    picker_admit(&wait, &outlook, &verdict);
    assert_false(verdict.is_in_time);
}

/* An answer well within its objective asks for no margin, with any error of the prediction.  It ends a negative one. */
static void answers_well_within_their_objective_ask_for_no_margin(void **state)
{
    struct picker_lateness late = {.least = -0.5};

    for (unsigned n = 0; n < 100; n++)
        picker_lateness_learn_itl(&late, 0.01, 0.034, 0.05);
    assert_true(picker_lateness_margin(&late) <= 0);
    for (unsigned n = 0; n < 400; n++)
        picker_lateness_learn_itl(&late, 0.05, 0.03, 0.05); /* predictions that are too late on average */
    assert_true(picker_lateness_margin(&late) < -0.2);
    for (unsigned n = 0; n < 10; n++)
        picker_lateness_learn_itl(&late, 0.01, 0.034, 0.05);
    assert_float_equal(picker_lateness_margin(&late), 0, 0.002);
    for (unsigned n = 0; n < 10; n++)
        picker_lateness_learn_itl(&late, 0.04, 0.06, 0.05);
    assert_true(picker_lateness_margin(&late) > 0.3);
}

/* The limit of a long prompt is twice its own time.  An idle worker is always in time, with any margin. */
static void a_long_prompt_alone_is_in_time(void **state)
{
    struct picker_outlook outlook = {.prompt_tokens_per_s = 1000};
    struct picker_wait wait = {.alone_s = 60, .ttft_slo_s = 0.5, .margin = 0.75};
    struct picker_verdict verdict;

    picker_admit(&wait, &outlook, &verdict);
    assert_true(verdict.is_in_time);
    assert_float_equal(verdict.limit_s, 120, 1e-9);
    wait.queue_s = 1;
    picker_admit(&wait, &outlook, &verdict);
    assert_false(verdict.is_in_time);
}

/* For any ratio of real to predicted time, nine of ten admitted requests are in time. */
static void the_margin_makes_up_for_wrong_predictions(void **state)
{
    static const double factors[] = {0.33, 1, 1.5, 3};

    for (size_t i = 0; i < sizeof(factors) / sizeof(factors[0]); i++) {
        struct picker_lateness late = {0};
        unsigned n_late = 0;
        struct rng rng;

        rng_init(&rng, 7 + i);
        for (unsigned n = 0; n < 2000; n++) {
            double predicted_s = 0.5 * (1 - picker_lateness_margin(&late)); /* at the limit: an overload */
            double actual_s = predicted_s * factors[i] * (0.9 + 0.2 * rng_unit(&rng));

            picker_lateness_learn(&late, predicted_s, actual_s, 0.5);
            n_late += n >= 1000 && actual_s > 0.5;
        }
        assert_true(n_late <= 200);
        assert_true(picker_lateness_margin(&late) <= 0.75);
    }
}

/* First tokens that come later than predicted, and in time, cost no more than 0.4 of the limit; those that miss it do. */
static void only_missed_limits_raise_the_margin_further(void **state)
{
    struct picker_lateness late = {0};

    (void)state;
    for (unsigned n = 0; n < 100; n++)
        picker_lateness_learn(&late, 0.1, 0.45, 0.5);
    assert_float_equal(picker_lateness_margin(&late), 0.4, 0.01);
    for (unsigned n = 0; n < 5; n++)
        picker_lateness_learn(&late, 0.1, 0.55, 0.5);
    assert_true(picker_lateness_margin(&late) > 0.5);
    picker_lateness_learn(&late, 0.1, 0.45, 0.5); /* it falls again, and not at once */
    assert_true(picker_lateness_margin(&late) > 0.5);
}

static void one_late_sample_moves_the_margin_little(void **state)
{
    struct picker_lateness late = {0};

    for (unsigned n = 0; n < 100; n++)
        picker_lateness_learn(&late, 0.3, 0.3, 0.5);
    picker_lateness_learn(&late, 0.3, 300, 0.5);
    assert_true(picker_lateness_margin(&late) <= 0.05);
    for (unsigned n = 0; n < 50; n++)
        picker_lateness_learn(&late, 0.3, 0.3, 0.5);
    assert_true(picker_lateness_margin(&late) <= 0.005);
    picker_lateness_learn(&late, 0.3, (double)INFINITY, 0.5);
    picker_lateness_learn(&late, 0.3, 0.3, 0);
    assert_true(picker_lateness_margin(&late) <= 0.005);
}

static int choose(const struct picker_worker workers[2], const struct picker_request *request,
                  struct picker_choice *out)
{
    struct picker_goals goals = {.ttft_slo_s = 0.5, .itl_slo_s = 0.05, .local_prefill_tokens = 64};
    struct picker_fleet *fleet;
    int rc;

    assert_int_equal(picker_fleet_new(0, &fleet), 0);
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(picker_fleet_set(fleet, i, &workers[i]), 0);
    rc = picker_pick(fleet, &goals, request, out);
    picker_fleet_free(fleet);
    return rc;
}

/* A longer prompt would delay the others more,
 * so the learned speeds of equal workers may differ by a third. */
static void a_very_long_prompt_is_the_prefill_pools(void **state)
{
    struct picker_worker workers[] = {worker(PICKER_PREFILL), worker(PICKER_DECODE)};
    struct picker_request request = {.max_new_tokens = 100};
    struct picker_choice choice;

    workers[1].prefill_tokens_per_s = 1333;
    workers[0].blocks_free = workers[1].blocks_free = 100000;
    workers[0].blocks_total = workers[1].blocks_total = 100000;
    for (request.n_tokens = 1000; request.n_tokens <= 128000; request.n_tokens *= 2) {
        assert_int_equal(choose(workers, &request, &choice), 0);
        assert_int_equal(choice.prefill, 0);
    }
    request.n_tokens = 60000;
    workers[0].queued_prefill_tokens = 60000; /* truly backed up */
    assert_int_equal(choose(workers, &request, &choice), 0);
    assert_int_equal(choice.prefill, PICKER_NONE);
}

/* The room includes blocks for the expected answer, but not for max_tokens. */
static void the_expected_answer_needs_room(void **state)
{
    struct picker_worker workers[] = {worker(PICKER_PREFILL), worker(PICKER_DECODE)};
    struct picker_request request = {.n_tokens = 320, .max_new_tokens = 100000, .answer_tokens = 320};
    struct picker_choice choice;

    workers[1].n_running = 1;
    workers[1].blocks_free = 21;
    assert_int_equal(choose(workers, &request, &choice), 0);
    workers[1].blocks_free = 20;
    assert_int_equal(choose(workers, &request, &choice), E_OVERLOADED);
    request.answer_tokens = 64;
    assert_int_equal(choose(workers, &request, &choice), 0);
}

/* Full decode workers serve no faster than their answers end, however fast prompts are read. */
static void refused_clients_wait_for_seats(void **state)
{
    struct picker_outlook outlook = {.prompt_tokens_per_s = 10000, .seats_per_s = 2};

    assert_float_equal(picker_outlook_each_s(&outlook, 1000), 0.1, 1e-9); /* a seat is free */
    outlook.seat_s = 0.2;
    assert_float_equal(picker_outlook_each_s(&outlook, 1000), 0.5, 1e-9);
    assert_float_equal(picker_outlook_each_s(&outlook, 10000), 1, 1e-9);
    outlook = (struct picker_outlook){.seat_s = 1};
    assert_float_equal(picker_outlook_each_s(&outlook, 10000), 0, 1e-9); /* nothing is known */
}

static void refused_clients_come_back_one_after_another(void **state)
{
    struct picker_returns returns = {0};
    uint64_t now_ns = 5 * NS_PER_S;
    uint32_t last = 0;

    for (unsigned n = 0; n < 1000; n++) { /* ten fit in a second */
        uint32_t wait_s = picker_returns_take(&returns, 0.2, 0.1, now_ns);

        assert_true(wait_s >= 1 && wait_s <= 60 && wait_s >= last);
        if (n < 500)
            assert_in_range(wait_s, n / 10, n / 10 + 2);
        last = wait_s;
    }
    assert_int_equal(last, 60);
    assert_int_equal(picker_returns_take(&returns, 0.2, 0.1, now_ns + 200 * NS_PER_S), 1);
    assert_int_equal(picker_returns_take(&returns, 1e300, 1e300, now_ns + 300 * NS_PER_S), 60);
}

static void a_turn_waits_for_one_of_each_tenant(void **state)
{
    assert_int_equal(picker_turn_ahead(100, 100, 1, 0), 100);
    assert_int_equal(picker_turn_ahead(100, 10000, 2, 0), 200);
    assert_int_equal(picker_turn_ahead(100, 150, 3, 0), 150);
    assert_int_equal(picker_turn_ahead(0, 10000, 2, 0), 0);
    assert_int_equal(picker_turn_ahead(100, 10000, 2, 70),
                     130); /* the tenant got less than its share, so it comes before most others */
    assert_int_equal(picker_turn_ahead(100, 10000, 2, 200), 100);
    assert_int_equal(picker_turn_ahead(UINT64_MAX, 10, 2, 0), UINT64_MAX);
}

/* A short prompt passes long ones, but no aged one.
 * A continuation passes a cold start with the same deadline. */
static void turns_are_by_deadline(void **state)
{
    uint64_t s = NS_PER_S, aged = picker_turn_order(0, 20, false);

    assert_true(picker_turn_order(5 * s, 0.5, false) < aged);
    assert_true(picker_turn_order(19 * s, 0.5, false) < aged);
    assert_true(picker_turn_order(20 * s, 0.5, false) > aged);
    assert_true(picker_turn_order(5 * s + 1, 0.5, true) < picker_turn_order(5 * s, 0.5, false));
    assert_true(picker_turn_order(6 * s, 0.5, true) > picker_turn_order(5 * s, 0.5, false));
    assert_true(picker_turn_order(5 * s, 1e300, false) > aged);
}

static void answers_are_learned_from_answers(void **state)
{
    struct picker_answers answers = {0};
    uint32_t before;
    struct rng rng;

    assert_int_equal(picker_answers_expect(&answers, 1000000), 64);
    assert_int_equal(picker_answers_expect(&answers, 5), 5);
    rng_init(&rng, 3);
    /* Three of four are longer, up to 400. */
    for (unsigned n = 0; n < 500; n++)
        picker_answers_learn(&answers, 100 + (uint32_t)rng_below(&rng, 400));
    before = picker_answers_expect(&answers, 1000000);
    assert_in_range(before, 320, 480);
    picker_answers_learn(&answers, 500000);
    assert_true(picker_answers_expect(&answers, 1000000) <= before + before / 10 + 1);
    for (unsigned n = 0; n < 200; n++)
        picker_answers_learn(&answers, 20);
    assert_in_range(picker_answers_expect(&answers, 1000000), 10, 40);
    picker_answers_learn(&answers, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prompt_speeds_add_up),
        cmocka_unit_test(routers_share_the_speed),
        cmocka_unit_test(decode_workers_add_their_part),
        cmocka_unit_test(a_seat_comes_when_sequences_end),
        cmocka_unit_test(overdue_answers_hold_their_seats),
        cmocka_unit_test(the_verdict_is_the_later_of_prompt_and_seat),
        cmocka_unit_test(a_long_prompt_alone_is_in_time),
        cmocka_unit_test(the_margin_makes_up_for_wrong_predictions),
        cmocka_unit_test(only_missed_limits_raise_the_margin_further),
        cmocka_unit_test(one_late_sample_moves_the_margin_little),
        cmocka_unit_test(answers_well_within_their_objective_ask_for_no_margin),
        cmocka_unit_test(a_very_long_prompt_is_the_prefill_pools),
        cmocka_unit_test(the_expected_answer_needs_room),
        cmocka_unit_test(refused_clients_wait_for_seats),
        cmocka_unit_test(refused_clients_come_back_one_after_another),
        cmocka_unit_test(a_turn_waits_for_one_of_each_tenant),
        cmocka_unit_test(turns_are_by_deadline),
        cmocka_unit_test(answers_are_learned_from_answers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
