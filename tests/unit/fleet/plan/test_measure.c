/* SPDX-License-Identifier: Apache-2.0 */
/* Measurements, constants files, and fits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include <math.h>

#include "base/err.h"
#include "fleet/plan/builtin.h"

#define HEADER "model\tgpu\tengine\tweights\tisl\tosl\tconcurrency\ttp\tmoe_tp\tmoe_ep\tttft_ms\ttpot_ms\n"

static struct plan_books books;
static struct plan_constants constants;

static int rows_of(const char *lines, struct fault *fault, struct plan_rows *out)
{
    struct buf text = {0};

    buf_printf(&text, HEADER "%s", lines);
    int rc = plan_rows_parse(buf_view(&text), &books, fault, out);
    buf_fini(&text);
    return rc;
}

static void rows_are_read_or_refused(void **state)
{
    struct plan_rows rows;
    struct fault fault = {0};

    (void)state;
    assert_int_equal(rows_of("Qwen/Qwen3-32B\th100_sxm\tvllm\tbf16\t1024\t128\t8\t2\t1\t1\t80\t12\n"
                             "no/such\th100_sxm\tvllm\tbf16\t1024\t128\t8\t2\t1\t1\t80\t12\n",
                             &fault, &rows),
                     0);
    assert_int_equal(rows.n, 1);
    assert_int_equal(rows.n_refused, 1);
    assert_non_null(strstr(rows.refusal.text, "line 3"));
    assert_string_equal(rows.list[0].device->id, "h100-sxm-80g");
    plan_rows_fini(&rows);
    assert_int_equal(
        rows_of("Qwen/Qwen3-32B\th100\tvllm\tbf16\tmany\t128\t8\t2\t1\t1\t80\t12\n", &fault, &rows),
        E_FORMAT);
    assert_non_null(strstr(fault.text, "line 2"));
    assert_int_equal(
        rows_of("Qwen/Qwen3-32B\th100\tvllm\tbf16\t-5\t128\t8\t2\t1\t1\t80\t12\n", &fault, &rows), E_RANGE);
    assert_int_equal(rows_of("no/such\th100\tvllm\tbf16\t5\t128\t8\t2\t1\t1\t80\t12\n", &fault, &rows),
                     E_NOT_FOUND);
    assert_int_equal(rows_of("", &fault, &rows), E_FORMAT);
}

static void constants_survive_a_file(void **state)
{
    struct plan_constants again;
    struct buf text = {0}, twice = {0};
    struct fault fault = {0};

    (void)state;
    assert_int_equal(plan_constants_write(&constants, &text), 0);
    assert_int_equal(plan_constants_parse(buf_view(&text), &fault, &again), 0);
    assert_int_equal(again.n_factors, constants.n_factors);
    assert_int_equal(plan_constants_write(&again, &twice), 0);
    assert_true(bytes_equal(buf_view(&text), buf_view(&twice)));
    plan_constants_fini(&again);
    buf_fini(&text);
    buf_fini(&twice);
    assert_int_equal(plan_constants_parse(bytes_str("eta_c 0.7\nspeed 3\n"), &fault, &again), E_NOT_FOUND);
    assert_non_null(strstr(fault.text, "line 2"));
    assert_int_equal(plan_constants_parse(bytes_str("eta_c 7\n"), &fault, &again), E_RANGE);
    assert_int_equal(plan_constants_parse(bytes_str("factor vllm\n"), &fault, &again), E_FORMAT);
}

static void factors_say_how_much_is_known(void **state)
{
    enum plan_known known;

    (void)state;
    plan_constants_factor(&constants, &(struct plan_kind){"vllm", "Llama-3-70B", "h200-sxm"}, PLAN_TPOT,
                          &known);
    assert_int_equal(known, KNOWN_ALL);
    plan_constants_factor(&constants, &(struct plan_kind){"sglang", "Llama-3-70B", "b300-sxm"}, PLAN_TPOT,
                          &known);
    assert_int_equal(known, KNOWN_PARTS);
    double none = plan_constants_factor(&constants, &(struct plan_kind){NULL, "Llama-3-8B", "mi300x"},
                                        PLAN_TPOT, &known);
    assert_int_equal(known, KNOWN_LITTLE);
    assert_true(none == 1);
}

/* Measurements are made from other constants than the initial ones.
 * A fit predicts held-out ones within a few percent. */
static void fits_find_what_made_the_data(void **state)
{
    static const char *const MODELS[] = {"Llama-3-8B", "Qwen3-32B"}, *const DEVICES[] = {"h100", "a100",
                                                                                         "b200"};
    struct buf text = {0};
    struct plan_rows rows;
    struct plan_constants truth = constants, fitted;
    struct fault fault = {0};

    (void)state;
    buf_printf(&text, HEADER);
    for (int i = 0; i < 120; i++)
        buf_printf(&text, "%s\t%s\tbaton\tbf16\t%d\t%d\t%d\t%d\t1\t1\t50\t10\n", MODELS[i % 2],
                   DEVICES[i % 3], 128 << (i % 7), 64 << (i % 5), 1 << (i % 6), 1 << (i / 7 % 3));
    assert_int_equal(plan_rows_parse(buf_view(&text), &books, &fault, &rows), 0);
    truth.factors = NULL;
    truth.n_factors = 0;
    truth.at[PC_TAU_LAYER] = 4e-4;
    truth.at[PC_ETA_B] = 0.5;
    truth.at[PC_TTFT_X] = 4;
    struct plan_prediction *p = calloc(rows.n, sizeof(*p));
    assert_non_null(p);
    for (size_t i = 0; i < rows.n; i++) {
        plan_predict(&rows.list[i], &truth, &p[i]);
        memcpy(rows.list[i].ms, p[i].ms, sizeof(p[i].ms));
    }
    assert_int_equal(plan_constants_copy(&constants, &fitted), 0);
    assert_int_equal(plan_fit(&rows, NULL, SIZE_MAX, &fitted), 0);
    assert_int_equal(plan_cross(&rows, SPLIT_CONFIG, &constants, p), 0);
    assert_true(plan_error_of(&rows, p, PLAN_TPOT, NULL, NULL).mape < 0.05);
    assert_true(plan_error_of(&rows, p, PLAN_TTFT, NULL, NULL).mape < 0.05);
    plan_constants_fini(&fitted);
    plan_rows_fini(&rows);
    free(p);
    buf_fini(&text);
}

/* Requests that alternate between a prefill and a decode worker obey Little's law,
 * and a single one never waits. */
static void split_workers_share_their_requests(void **state)
{
    static const char *const LINES =
        "Llama-3-8B\th100\tbaton\tbf16\t4000\t100\t1\t1\t1\t1\t80\t12\tbf16\t0\tsplit\n"
        "Llama-3-8B\th100\tbaton\tbf16\t4000\t100\t64\t1\t1\t1\t80\t12\tbf16\t0\tsplit\n"
        "Llama-3-8B\th100\tbaton\tbf16\t4000\t100\t64\t1\t1\t1\t80\t12\tbf16\t0.9\tsplit\n";
    struct buf text = {0};
    struct plan_rows rows;
    struct plan_prediction one, many, cached;
    struct fault fault = {0};

    (void)state;
    buf_printf(&text, "%.*s\tkv\thit\tmode\n%s", (int)strlen(HEADER) - 1, HEADER, LINES);
    assert_int_equal(plan_rows_parse(buf_view(&text), &books, &fault, &rows), 0);
    plan_predict(&rows.list[0], &constants, &one);
    plan_predict(&rows.list[1], &constants, &many);
    plan_predict(&rows.list[2], &constants, &cached);
    double alone_s = one.ms[PLAN_TTFT] / 1e3 - constants.at[PC_T0];
    /* The queue is always busy: the loop turns once per prompt. */
    double turn_s = (many.ms[PLAN_TTFT] + 100 * many.ms[PLAN_TPOT]) / 1e3;
    assert_true(fabs(turn_s / (64 * alone_s) - 1) < 0.02);
    assert_true(many.ms[PLAN_TPOT] < 2 * one.ms[PLAN_TPOT]); /* few decode at a time */
    assert_true(cached.ms[PLAN_TTFT] < many.ms[PLAN_TTFT] / 4);
    plan_rows_fini(&rows);
    buf_fini(&text);
}

static int open_tables(void **state)
{
    struct fault fault = {0};

    (void)state;
    assert_int_equal(plan_books_open(&fault, &books), 0);
    return plan_constants_parse(plan_builtin_constants(), &fault, &constants);
}

static int close_tables(void **state)
{
    (void)state;
    plan_constants_fini(&constants);
    plan_books_fini(&books);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_read_or_refused),           cmocka_unit_test(constants_survive_a_file),
        cmocka_unit_test(factors_say_how_much_is_known),      cmocka_unit_test(fits_find_what_made_the_data),
        cmocka_unit_test(split_workers_share_their_requests),
    };

    return cmocka_run_group_tests(tests, open_tables, close_tables);
}
