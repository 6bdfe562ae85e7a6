/* SPDX-License-Identifier: Apache-2.0 */
/* The counter generator gives the published values.  The sequence is uniform enough.  CPU lists and facts. */
#include "tests/unit/check.h"

#include "base/check.h"
#include "base/cpu.h"
#include "base/err.h"
#include "base/rng.h"

#include <string.h>

/* Known answers of Philox-4x32-10 from the authors' test file (kat_vectors). */
static void counter_gives_the_known_answers(void **state)
{
    uint32_t out[4];

    rng_counter(0, 0, 0, out);
    assert_true(out[0] == 0x6627e8d5 && out[1] == 0xe169c58d && out[2] == 0xbc57ac4c && out[3] == 0x9b00dbd8);
    rng_counter(UINT64_MAX, UINT64_MAX, UINT64_MAX, out);
    assert_true(out[0] == 0x408f276d && out[1] == 0x41c83b0e && out[2] == 0xa20bc7c6 && out[3] == 0x6d5451fd);
    rng_counter(UINT64_C(0x299f31d0a4093822), UINT64_C(0x0370734413198a2e), UINT64_C(0x85a308d3243f6a88),
                out);
    assert_true(out[0] == 0xd16cfe09 && out[1] == 0x94fdcceb && out[2] == 0x5001e420 && out[3] == 0x24126ea1);
}

static void sequence_repeats_with_its_seed(void **state)
{
    struct rng a, b, c;

    rng_init(&a, 1);
    rng_init(&b, 1);
    rng_init(&c, 2);
    uint64_t first = rng_u64(&a);
    assert_true(first == rng_u64(&b));
    assert_true(first != rng_u64(&c));
    assert_true(first != rng_u64(&a));
}

static void values_below_are_even(void **state)
{
    struct rng rng;
    unsigned counts[7] = {0};
    double sum = 0;

    rng_init(&rng, 3);
    for (int i = 0; i < 70000; i++) {
        uint64_t value = rng_below(&rng, 7);
        double unit = rng_unit(&rng);

        assert_true(value < 7 && unit >= 0 && unit < 1);
        counts[value]++;
        sum += unit;
    }
    for (int i = 0; i < 7; i++)
        assert_true(counts[i] > 9600 && counts[i] < 10400);
    assert_true(sum > 34650 && sum < 35350);
    assert_true(rng_below(&rng, 1) == 0);
    for (int i = 0; i < 100; i++)
        assert_true(rng_below(&rng, UINT64_MAX) < UINT64_MAX);
}

static void system_fills_all_of_it(void **state)
{
    uint8_t data[1000] = {0};
    unsigned n_zero = 0;

    rng_system(data, sizeof(data));
    rng_system(data, 0);
    for (size_t i = 0; i < sizeof(data); i++)
        n_zero += data[i] == 0;
    assert_true(n_zero < 50);
}

static void cpu_lists(void **state)
{
    const char *const bad[] = {"",   ",",    "1,",  ",1",   "3-1", "a",  "1-",
                               "-1", "1--2", "1 2", "9999", "0-9", "1.5"};
    int cpus[6];

    assert_int_equal(cpu_list_parse(bytes_str("0-3,8"), cpus, 6), 5);
    assert_true(cpus[0] == 0 && cpus[3] == 3 && cpus[4] == 8);
    assert_int_equal(cpu_list_parse(bytes_str("7"), cpus, 6), 1);
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert_int_equal(cpu_list_parse(bytes_str(bad[i]), cpus, 6), E_FORMAT);
    assert_int_equal(cpu_list_parse(bytes_str(NULL), cpus, 6), E_FORMAT);
}

static void cpu_facts(void **state)
{
    const struct cpu_features *features = cpu_features_get();

    assert_true(cpu_count_usable() >= 1);
    assert_int_equal(cpu_pin_self(-1), E_INVAL);
    assert_int_equal(cpu_pin_self(1 << 20), E_INVAL);
    assert_true(strlen(cpu_model_name()) > 0);
#if defined(__x86_64__)
    assert_true(features->model != 0);
#endif
    assert_true(!features->has_avx512 || features->has_avx2);
    assert_true(!features->has_avx512_vnni || features->has_avx512);
    assert_true(!features->has_avx512_vbmi || features->has_avx512);
    assert_ptr_equal(features, cpu_features_get());
    cpu_relax();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counter_gives_the_known_answers),
        cmocka_unit_test(sequence_repeats_with_its_seed),
        cmocka_unit_test(values_below_are_even),
        cmocka_unit_test(system_fills_all_of_it),
        cmocka_unit_test(cpu_lists),
        cmocka_unit_test(cpu_facts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
