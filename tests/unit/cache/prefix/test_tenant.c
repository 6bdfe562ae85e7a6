/* SPDX-License-Identifier: Apache-2.0 */
/* A tenant's number: the same for all its salts, different from every other tenant's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "cache/prefix/tenant.h"

static void salts_do_not_hide_a_tenant(void **state)
{
    uint8_t one[TENANT_DIGEST_BYTES] = {1}, two[TENANT_DIGEST_BYTES] = {2};
    char a[TENANT_NAME_BYTES], b[TENANT_NAME_BYTES], c[TENANT_NAME_BYTES];

    (void)state;
    tenant_salted_name("team-a", one, a);
    tenant_salted_name("team-a", two, b);
    tenant_salted_name("team-b", one, c);
    assert_int_equal(strlen(a), 62);
    assert_string_not_equal(a, b);
    assert_int_equal(tenant_number(a), tenant_number("team-a"));
    assert_int_equal(tenant_number(b), tenant_number("team-a"));
    assert_int_equal(tenant_number(c), tenant_number("team-b"));
    assert_int_not_equal(tenant_number("team-a"), tenant_number("team-b"));
}

static void any_text_names_a_tenant(void **state)
{
    char odd[TENANT_NAME_BYTES], zero[TENANT_NAME_BYTES];
    uint8_t digest[TENANT_DIGEST_BYTES] = {0};

    (void)state;
    assert_int_not_equal(tenant_number(""), 0);
    tenant_salted_name("team-a", digest, odd);
    odd[61] = 'g'; /* not a digit, so it is a plain name */
    assert_int_not_equal(tenant_number(odd), tenant_number("team-a"));
    tenant_salted_name("team-a", digest, zero);
    memset(zero + 50, '0', 12);
    assert_int_equal(tenant_number(zero), 1); /* never 0, the anonymous tenant */
    assert_true(tenant_number(odd) < UINT64_C(1) << 48);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(salts_do_not_hide_a_tenant),
                                       cmocka_unit_test(any_text_names_a_tenant)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
