/* SPDX-License-Identifier: Apache-2.0 */
/* Storage types.  Float conversions are compared with plain arithmetic in double precision: exhaustively for
 * the 16-bit types, and when rounding to them, at every value on a rounding boundary or one bit beside it. */
#include "gguf/dtype.h"

#include "base/err.h"
#include "base/rng.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

static float float_of(uint32_t bits)
{
    float value;

    memcpy(&value, &bits, sizeof(value));
    return value;
}

static uint32_t bits_of(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static double half_value(uint16_t half)
{
    int exponent = half >> 10 & 31;
    double mantissa = half & 0x3ff;
    double value = exponent == 0 ? ldexp(mantissa, -24) : ldexp(1024 + mantissa, exponent - 25);

    return half & 0x8000 ? -value : value;
}

static void halves_are_read_exactly(void **state)
{
    for (uint32_t half = 0; half < 0x10000; half++) {
        float value = f16_to_f32((uint16_t)half);

        if ((half & 0x7c00) != 0x7c00)
            assert_true((double)value == half_value((uint16_t)half));
        else if ((half & 0x3ff) == 0)
            assert_true(isinf(value) && (signbit(value) != 0) == (half >> 15 != 0));
        else
            assert_true(isnan(value));
        assert_true((signbit(value) != 0) == (half >> 15 != 0));
    }
}

static void halves_survive_the_round_trip(void **state)
{
    for (uint32_t half = 0; half < 0x10000; half++) {
        uint16_t again = f32_to_f16(f16_to_f32((uint16_t)half));

        if ((half & 0x7c00) == 0x7c00 && (half & 0x3ff) != 0)
            assert_int_equal(again, half | 0x200); /* NaN, made quiet */
        else
            assert_int_equal(again, half);
    }
}

/* Finds the nearest half by trying both neighbours; ties go to the even one. */
static uint16_t nearest_half(float value)
{
    double magnitude = fabs((double)value);
    uint16_t sign = signbit(value) ? 0x8000 : 0;

    if (magnitude >= 65520) /* half way to what would be 65536 */
        return sign | 0x7c00;
    uint16_t low = 0, high = 0x7bff;
    while (low < high) { /* the largest half <= magnitude */
        uint16_t middle = (uint16_t)((low + high + 1) / 2);
        if (half_value(middle) <= magnitude)
            low = middle;
        else
            high = (uint16_t)(middle - 1);
    }
    double below = magnitude - half_value(low);
    double above = (low == 0x7bff ? 65536 : half_value((uint16_t)(low + 1))) - magnitude;
    return (uint16_t)(sign | (below < above || (below == above && (low & 1) == 0) ? low : low + 1));
}

static void halves_are_rounded_to_nearest_even(void **state)
{
    struct rng rng;

    rng_init(&rng, 1);
    for (uint32_t half = 0; half < 0x7c00; half++) {
        uint32_t middle =
            bits_of((float)((half_value((uint16_t)half) + half_value((uint16_t)(half + 1))) / 2));
        if (half == 0x7bff)
            middle = bits_of(65520.0f);
        for (uint32_t bits = middle - 1; bits <= middle + 1; bits++)
            assert_int_equal(f32_to_f16(float_of(bits)), nearest_half(float_of(bits)));
    }
    for (int i = 0; i < 100000; i++) {
        uint32_t bits = (uint32_t)rng_u64(&rng);
        if (!isnan(float_of(bits)))
            assert_int_equal(f32_to_f16(float_of(bits)), nearest_half(float_of(bits)));
    }
}

static void brains_round_and_return(void **state)
{
    for (uint32_t brain = 0; brain < 0x10000; brain++) {
        bool is_nan = (brain & 0x7f80) == 0x7f80 && (brain & 0x7f) != 0;
        uint16_t again = f32_to_bf16(bf16_to_f32((uint16_t)brain));

        assert_int_equal(again, is_nan ? brain | 0x40 : brain);
        assert_true(bits_of(bf16_to_f32((uint16_t)brain)) == brain << 16);
    }
    assert_int_equal(f32_to_bf16(float_of(0x3f808000)), 0x3f80); /* tie to even, down */
    assert_int_equal(f32_to_bf16(float_of(0x3f818000)), 0x3f82); /* tie to even, up */
    assert_int_equal(f32_to_bf16(float_of(0x3f808001)), 0x3f81);
    assert_int_equal(f32_to_bf16(float_of(0x7f7fffff)), 0x7f80); /* to infinity */
    assert_int_equal(f32_to_bf16(float_of(0x7f800001)),
                     0x7fc0); /* a NaN whose payload is cut remains a NaN */
}

static void types_have_names_and_geometry(void **state)
{
    assert_int_equal(dtype_from_name("q8_0"), DTYPE_Q8_0);
    assert_int_equal(dtype_from_name("BF16"), DTYPE_BF16);
    assert_int_equal(dtype_from_name("q9_9"), E_NOT_FOUND);
    assert_null(dtype_info(4));
    assert_null(dtype_info(31));
    assert_null(dtype_info(UINT32_MAX));
    for (uint32_t type = 0; type < 64; type++) {
        const struct dtype_info *info = dtype_info(type);
        if (info == NULL)
            continue;
        assert_int_equal(dtype_from_name(info->name), type);
        assert_true(info->qblk_weights > 0 && info->qblk_bytes > 0);
    }
    assert_int_equal(dtype_info(DTYPE_Q4_K)->qblk_weights, 256);
    assert_int_equal(dtype_info(DTYPE_Q4_K)->qblk_bytes, 144);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(halves_are_read_exactly),
        cmocka_unit_test(halves_survive_the_round_trip),
        cmocka_unit_test(halves_are_rounded_to_nearest_even),
        cmocka_unit_test(brains_round_and_return),
        cmocka_unit_test(types_have_names_and_geometry),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
