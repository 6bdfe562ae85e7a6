/* SPDX-License-Identifier: Apache-2.0 */
/* A report has numbers instead of tenants' names. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "clients/ctl/report_text.h"

static void check_report(struct report_tenants *tenants, const char *from, const char *to)
{
    struct buf out = {0};

    assert_int_equal(report_put_metrics(bytes_str(from), tenants, &out), 0);
    assert_string_equal(out.len_bytes > 0 ? (const char *)out.data : "", to);
    buf_fini(&out);
}

static void tenants_become_numbers(void **state)
{
    struct report_tenants tenants = {.n = 0};

    (void)state;
    check_report(&tenants, "a{tenant=\"acme\",reason=\"rpm\"} 1\nb{x=\"y\",tenant=\"b\\\"c\"} 2\n",
                 "a{tenant=\"tenant-1\",reason=\"rpm\"} 1\nb{x=\"y\",tenant=\"tenant-2\"} 2\n");
    check_report(&tenants, "c{tenant=\"b\\\"c\"} 3\nd{tenant=\"acme\"} 4\n",
                 "c{tenant=\"tenant-2\"} 3\nd{tenant=\"tenant-1\"} 4\n");
    check_report(&tenants, "e{tenant=\"\"} 1\n", "e{tenant=\"\"} 1\n"); /* the anonymous one */
    report_tenants_fini(&tenants);
}

static void cut_text_is_survived(void **state)
{
    struct report_tenants tenants = {.n = 0};

    (void)state;
    check_report(&tenants, "a{tenant=\"acme", "a{tenant=\"tenant-1");
    check_report(&tenants, "a{tenant=\"acme\\", "a{tenant=\"tenant-2");
    check_report(&tenants, "a{tenant=\"", "a{tenant=\"");
    check_report(&tenants, "", "");
    report_tenants_fini(&tenants);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tenants_become_numbers),
        cmocka_unit_test(cut_text_is_survived),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
