/* SPDX-License-Identifier: Apache-2.0 */
/* Heads of the disk tier's files: packed heads unpack, changed ones are refused, and a head of another
 * version is distinguished from a damaged one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>
#include <xxhash.h>

#include "base/err.h"
#include "cache/kv/tier_record_priv.h"

enum { CHECKED = 120 }; /* bytes that have a meaning */

static struct tier_head sample(void)
{
    struct tier_head head = {.n_slots = 3,
                             .payload_bytes = 3000,
                             .made_unix_ns = UINT64_C(1) << 60,
                             .retention = TIER_PINNED_LONG};

    memset(head.generation, 9, sizeof(head.generation));
    memset(head.salt, 7, sizeof(head.salt));
    memset(head.tenant, 5, sizeof(head.tenant));
    return head;
}

static int unpack(const uint8_t image[TIER_HEAD_BYTES], struct tier_head *out)
{
    return tier_head_unpack(bytes_of(image, TIER_HEAD_BYTES), out);
}

/* Corrects the checksums, as a skilled attacker would. */
static void forge(uint8_t image[TIER_HEAD_BYTES])
{
    put_u64(image + 88, XXH3_64bits(image, 88));
    put_u64(image + 112, XXH3_64bits(image, 112));
}

static void packed_records_unpack(void **state)
{
    struct tier_head head = sample(), again = {0};
    uint8_t image[TIER_HEAD_BYTES];

    (void)state;
    tier_head_pack(&head, image);
    assert_int_equal(unpack(image, &again), 0);
    assert_int_equal(again.n_slots, head.n_slots);
    assert_true(again.payload_bytes == head.payload_bytes && again.made_unix_ns == head.made_unix_ns);
    assert_int_equal(again.retention, head.retention);
    assert_memory_equal(again.generation, head.generation, sizeof(head.generation));
    assert_memory_equal(again.salt, head.salt, sizeof(head.salt));
    assert_memory_equal(again.tenant, head.tenant, sizeof(head.tenant));
}

static void every_bit_counts(void **state)
{
    struct tier_head head = sample(), untouched = {.n_slots = 77};
    uint8_t image[TIER_HEAD_BYTES];

    (void)state;
    tier_head_pack(&head, image);
    for (unsigned bit = 0; bit < 8 * CHECKED; bit++) {
        image[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_int_equal(unpack(image, &untouched), E_FORMAT);
        image[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    for (size_t len = 0; len < TIER_HEAD_BYTES; len++)
        assert_int_equal(tier_head_unpack(bytes_of(image, len), &untouched), E_TRUNCATED);
    assert_int_equal(untouched.n_slots, 77);
}

/* A head with right checksums is within bounds, or refused. */
static void bounds_hold_for_forged_ones_too(void **state)
{
    static const struct {
        unsigned at, len;
        uint64_t value;
        int result;
    } cases[] = {
        {12, 4, 0, E_LIMIT},
        {12, 4, TIER_MAX_SLOTS, 0},
        {12, 4, TIER_MAX_SLOTS + 1, E_LIMIT},
        {12, 4, UINT32_MAX, E_LIMIT},
        {16, 8, 0, E_LIMIT},
        {16, 8, TIER_MAX_PAYLOAD, 0},
        {16, 8, TIER_MAX_PAYLOAD + 1, E_LIMIT},
        {16, 8, UINT64_MAX, E_LIMIT},
        {80, 4, TIER_N_RETENTIONS - 1, 0},
        {80, 4, TIER_N_RETENTIONS, E_LIMIT},
        {80, 4, UINT32_MAX, E_LIMIT},
        {84, 4, 1, E_FORMAT},
        {0, 8, 0, E_FORMAT},
        {72, 8, UINT64_MAX, 0},
        {96, 8, UINT64_MAX, 0},
    };
    struct tier_head head = sample();

    (void)state;
    for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct tier_head out;
        uint8_t image[TIER_HEAD_BYTES];

        tier_head_pack(&head, image);
        if (cases[i].len == 4)
            put_u32(image + cases[i].at, (uint32_t)cases[i].value);
        else
            put_u64(image + cases[i].at, cases[i].value);
        forge(image);
        assert_int_equal(unpack(image, &out), cases[i].result);
        if (cases[i].result == 0)
            assert_true(tier_segment_bytes(&out, out.n_slots) > tier_payload_at(&out, out.n_slots - 1));
    }
}

/* Accepts one with other fields than ours after its first 96 bytes. */
static void other_versions_are_no_damage(void **state)
{
    static const uint32_t versions[] = {0, 1, TIER_VERSION + 1, UINT32_MAX};
    struct tier_head head = sample(), out;
    uint8_t image[TIER_HEAD_BYTES];

    (void)state;
    for (unsigned i = 0; i < sizeof(versions) / sizeof(versions[0]); i++) {
        tier_head_pack(&head, image);
        put_u32(image + 8, versions[i]);
        put_u64(image + 88, XXH3_64bits(image, 88));
        memset(image + 96, (int)i, TIER_HEAD_BYTES - 96);
        assert_int_equal(unpack(image, &out), E_VERSION);
        image[20] ^= 1;
        assert_int_equal(unpack(image, &out), E_FORMAT);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(packed_records_unpack), cmocka_unit_test(every_bit_counts),
        cmocka_unit_test(bounds_hold_for_forged_ones_too), cmocka_unit_test(other_versions_are_no_damage)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
