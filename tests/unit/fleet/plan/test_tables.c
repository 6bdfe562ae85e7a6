/* SPDX-License-Identifier: Apache-2.0 */
/* Tables, numbers with units, devices and links. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <math.h>

#include "base/err.h"
#include "fleet/plan/builtin.h"

static struct plan_books books;

static double number(const char *text)
{
    struct fault fault = {0};
    double value = -1;

    return plan_number(text, &fault, &value) == 0 ? value : -1;
}

static void numbers_have_units(void **state)
{
    (void)state;
    assert_true(number("80 GB") == 80e9);
    assert_true(fabs(number("3.35TB/s") - 3.35e12) < 1);
    assert_true(number("989 TFLOPS") == 989e12);
    assert_true(number("64 GiB") == 64.0 * (1 << 30));
    assert_true(number("400 Gb/s") == 50e9); /* bits */
    assert_true(number("1e9") == 1e9);
    assert_true(isnan(number("null")));
    assert_true(number("3 parsecs") == -1);
    assert_true(number("-5") == -1);
    assert_true(number("1e308 T") == -1);
    assert_true(number("nan") == -1);
}

static int parse(const char *text, struct fault *fault)
{
    struct plan_table table;
    int rc = plan_table_parse(bytes_str(text), fault, &table);

    if (rc == 0)
        plan_table_fini(&table);
    return rc;
}

static void tables_are_rectangles(void **state)
{
    struct plan_table table;
    struct fault fault = {0};
    size_t column;

    (void)state;
    assert_int_equal(plan_table_parse(bytes_str("# x\na,b\r\n\n\"1,\"\"2\"\"\",3\n"), &fault, &table), 0);
    assert_int_equal(table.n_rows, 2);
    assert_string_equal(plan_table_cell(&table, 1, 0), "1,\"2\"");
    assert_int_equal(plan_table_column(&table, "b", &fault, &column), 0);
    assert_string_equal(plan_table_cell(&table, 1, column), "3");
    assert_int_equal(plan_table_column(&table, "c", &fault, &column), E_NOT_FOUND);
    assert_non_null(strstr(fault.text, "\"c\""));
    plan_table_fini(&table);
    assert_int_equal(parse("a\tb\n1\n", &fault), E_FORMAT);
    assert_non_null(strstr(fault.text, "line 2"));
    assert_int_equal(parse("a\tb\n1\t2\t3\n", &fault), E_FORMAT);
    assert_int_equal(parse("", &fault), E_FORMAT);
}

static const struct plan_device *device(const char *name)
{
    const struct plan_device *found = NULL;
    struct fault fault = {0};

    if (plan_devices_find(&books.devices, name, &fault, &found) != 0)
        fail_msg("%s", fault.text);
    return found;
}

static void every_number_has_a_source(void **state)
{
    (void)state;
    assert_int_equal(books.devices.n, 53);
    assert_int_equal(books.links.n, 22);
    for (size_t i = 0; i < books.devices.n; i++)
        for (int f = 0; f < DEV_N_FIELDS; f++) {
            const struct plan_device *d = &books.devices.list[i];
            if (!isnan(d->at[f]) && (d->sources[f] == NULL || d->sources[f][0] == '\0'))
                fail_msg("%s of %s has no source", plan_device_field_name((enum plan_device_field)f), d->id);
        }
}

/* Wrong figures that are often repeated. */
static void known_errors_stay_out(void **state)
{
    (void)state;
    assert_true(device("h100_sxm")->at[DEV_SCALEUP_RATE] == 450e9); /* not 900, both directions */
    assert_true(device("b200")->at[DEV_FP8] == 4.5e15);
    assert_true(device("b200")->at[DEV_FP4] == 9e15); /* not 4.5 (FP8), not 18 (sparse) */
    assert_true(device("b200")->at[DEV_MEMORY] == 180e9);
    assert_true(device("b200")->at[DEV_MEMORY_RATE] == 7.7e12);
    assert_true(device("gb200")->at[DEV_FP4] == 1e16);         /* one of two chips on a board, not the rack */
    assert_true(device("groq3")->at[DEV_SRAM_RATE] == 150e12); /* the chip, not the rack */
    assert_true(device("wse3")->at[DEV_SRAM_RATE] == 21e15);
    assert_true(isnan(device("wse3")->at[DEV_FP16])); /* 125 P "AI" is no dense rate */
    assert_true(device("grace")->at[DEV_MEMORY] == 480e9);
    assert_true(device("grace")->at[DEV_MEMORY_RATE] == 512e9);
    assert_true(device("trn2")->at[DEV_MEMORY_RATE] == 2.9e12);
    for (size_t i = 0; i < books.devices.n; i++) /* PCIe: 128 is both directions of Gen5 */
        assert_false(books.devices.list[i].at[DEV_HOST_RATE] == 128e9);
}

static void names_are_forgiving(void **state)
{
    const struct plan_device *found;
    struct fault fault = {0};

    (void)state;
    assert_string_equal(device("H100")->id, "h100-sxm-80g");
    assert_string_equal(device("b300_sxm")->id, "b300-sxm");
    assert_int_equal(plan_devices_find(&books.devices, "b20", &fault, &found), 0);
    assert_int_equal(plan_devices_find(&books.devices, "tt-", &fault, &found), E_INVAL);
    assert_int_equal(plan_devices_find(&books.devices, "mi300z", &fault, &found), E_NOT_FOUND);
    assert_non_null(strstr(fault.text, "mi300x"));
    assert_int_equal(plan_devices_find(&books.devices, "", &fault, &found), E_NOT_FOUND);
}

static void doubled_figures_are_refused(void **state)
{
    struct plan_device d;
    struct fault fault = {0};

    (void)state;
    assert_int_equal(plan_device_inline(&books.devices, "h100,flops_fp8=3958TFLOPS", &fault, &d), E_RANGE);
    assert_non_null(strstr(fault.text, "sparsity"));
    assert_int_equal(plan_device_inline(&books.devices, "h100,scaleup_rate=900GB/s", &fault, &d), E_RANGE);
    assert_int_equal(plan_device_inline(&books.devices, "h100,memory=94GB,watts=500", &fault, &d), 0);
    assert_true(d.at[DEV_MEMORY] == 94e9 && d.at[DEV_WATTS] == 500);
    assert_int_equal(plan_device_inline(&books.devices, "h100,speed=3", &fault, &d), E_NOT_FOUND);
    assert_int_equal(plan_device_inline(&books.devices, "new,memory=24GB,memory_rate=45GB/s", &fault, &d), 0);
}

static void rows_without_sources_are_refused(void **state)
{
    struct plan_devices devices = {0};
    struct fault fault = {0};

    (void)state;
    assert_int_equal(
        plan_devices_add(&devices, bytes_str("device\tfield\tvalue\tsource\nx\twatts\t5\t-\n"), &fault),
        E_FORMAT);
    assert_non_null(strstr(fault.text, "source"));
    assert_int_equal(
        plan_devices_add(&devices, bytes_str("device\tfield\tvalue\tsource\nx\twatts\t0\ty\n"), &fault),
        E_RANGE);
    plan_devices_fini(&devices);
}

static void links_are_names_or_rates(void **state)
{
    struct plan_link link;
    struct fault fault = {0};

    (void)state;
    assert_int_equal(plan_links_find(&books.links, "8x-ndr-400", &fault, &link), 0);
    assert_true(fabs(link.rate * link.measured_part - 190e9) < 1e6); /* Mooncake: 40 GB at 190 GB/s */
    assert_int_equal(plan_links_find(&books.links, "4x-hdr-200", &fault, &link), 0);
    assert_true(fabs(link.rate * link.measured_part - 87e9) < 1e6);
    assert_int_equal(plan_links_find(&books.links, "400Gb/s", &fault, &link), 0);
    assert_true(link.rate == 50e9);
    assert_int_equal(plan_links_find(&books.links, "string", &fault, &link), E_NOT_FOUND);
}

static int open_books(void **state)
{
    struct fault fault = {0};

    (void)state;
    return plan_books_open(&fault, &books);
}

static int close_books(void **state)
{
    (void)state;
    plan_books_fini(&books);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_have_units),
        cmocka_unit_test(tables_are_rectangles),
        cmocka_unit_test(every_number_has_a_source),
        cmocka_unit_test(known_errors_stay_out),
        cmocka_unit_test(names_are_forgiving),
        cmocka_unit_test(doubled_figures_are_refused),
        cmocka_unit_test(rows_without_sources_are_refused),
        cmocka_unit_test(links_are_names_or_rates),
    };

    return cmocka_run_group_tests(tests, open_books, close_books);
}
