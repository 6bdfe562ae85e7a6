/* SPDX-License-Identifier: Apache-2.0 */
/* Views, buffers, readers. */
#include "tests/unit/check.h"

#include "base/bytes.h"
#include "base/check.h"
#include "base/err.h"
#include "base/list.h"
#include "base/rng.h"

#include <stdlib.h>
#include <string.h>

static void views_compare(void **state)
{
    assert_true(bytes_is(bytes_str("abc"), "abc"));
    assert_false(bytes_is(bytes_of("abc", 2), "abc"));
    assert_true(bytes_equal(bytes_str(NULL), bytes_str("")));
    assert_true(bytes_starts_with(bytes_str("abc"), "ab"));
    assert_true(bytes_starts_with(bytes_str("abc"), ""));
    assert_false(bytes_starts_with(bytes_str("a"), "ab"));
    assert_true(bytes_ends_with(bytes_str("abc"), "bc"));
    assert_true(bytes_ends_with(bytes_str("abc"), "abc"));
    assert_true(bytes_ends_with(bytes_str("abc"), ""));
    assert_false(bytes_ends_with(bytes_str("abc"), "ab"));
    assert_false(bytes_ends_with(bytes_str("c"), "bc"));
}

static void find_stays_inside(void **state)
{
    struct bytes hay = bytes_of("a\0bab", 5);

    assert_int_equal(bytes_find(hay, bytes_str("b"), 0), 2);
    assert_int_equal(bytes_find(hay, bytes_str("b"), 3), 4);
    assert_int_equal(bytes_find(hay, bytes_str("b"), 5), SIZE_MAX);
    assert_int_equal(bytes_find(hay, bytes_str("b"), 6), SIZE_MAX);
    assert_int_equal(bytes_find(hay, bytes_of("\0b", 2), 0), 1);
    assert_int_equal(bytes_find(hay, bytes_str(""), 5), 5);
    assert_int_equal(bytes_find(hay, bytes_str("abcdefgh"), 0), SIZE_MAX);
    assert_int_equal(bytes_find(bytes_str(NULL), bytes_str("a"), 0), SIZE_MAX);
}

static void buffer_grows_and_stays_terminated(void **state)
{
    struct buf buf = {0};

    for (int i = 0; i < 1000; i++)
        assert_int_equal(buf_printf(&buf, "%d,", i), 0);
    assert_int_equal(buf.len_bytes, 10 * 2 + 90 * 3 + 900 * 4);
    assert_int_equal(strlen((char *)buf.data), buf.len_bytes);
    buf_consume(&buf, 4);
    assert_true(bytes_starts_with(buf_view(&buf), "2,3,"));
    buf_consume(&buf, buf.len_bytes);
    assert_int_equal(buf.len_bytes, 0);
    assert_string_equal((char *)buf.data, "");
    buf_append_str(&buf, "x");
    buf_append_byte(&buf, 0);
    buf_append(&buf, NULL, 0);
    assert_int_equal(buf.len_bytes, 2);
    buf_clear(&buf);
    assert_string_equal((char *)buf.data, "");
    buf_fini(&buf);
    buf_fini(&buf);
}

static void printf_longer_than_its_guess(void **state)
{
    struct buf buf = {0};

    assert_int_equal(buf_printf(&buf, "%0500d", 7), 0);
    assert_int_equal(buf.len_bytes, 500);
    assert_int_equal(buf.data[499], '7');
    assert_int_equal(buf.data[500], 0);
    buf_fini(&buf);
}

static void want_of_memory_sticks(void **state)
{
    struct buf buf = {0};

    buf_append_str(&buf, "kept");
    assert_int_equal(buf_reserve(&buf, SIZE_MAX / 2), E_NOMEM);
    assert_true(buf.is_bad);
    assert_int_equal(buf_append_str(&buf, "!"), E_NOMEM);
    assert_string_equal((char *)buf.data, "kept");
    assert_null(buf_take_str(&buf));

    buf_append_str(&buf, "fresh");
    char *text = buf_take_str(&buf);
    assert_string_equal(text, "fresh");
    free(text);
    text = buf_take_str(&buf); /* of an empty buffer: an empty string */
    assert_string_equal(text, "");
    free(text);
}

static void integers_are_little_endian(void **state)
{
    uint8_t at[8];

    put_u64(at, UINT64_C(0x8807060504030201));
    for (uint8_t i = 0; i < 7; i++)
        assert_int_equal(at[i], i + 1);
    assert_int_equal(get_u64(at), UINT64_C(0x8807060504030201));
    assert_int_equal(get_u32(at + 4), 0x88070605);
    assert_int_equal(get_u16(at + 6), 0x8807);
}

static void reader_says_once_that_it_ran_out(void **state)
{
    const uint8_t data[] = {1, 2, 0, 3, 0, 0, 0, 9};
    struct reader reader = reader_of(bytes_of(data, sizeof(data)));

    assert_int_equal(read_u8(&reader), 1);
    assert_int_equal(read_u16(&reader), 2);
    assert_int_equal(read_u32(&reader), 3);
    assert_int_equal(read_bytes(&reader, 1).data[0], 9);
    assert_false(reader.is_bad);
    assert_int_equal(read_bytes(&reader, 0).len_bytes, 0);
    assert_false(reader.is_bad);
    assert_int_equal(read_u64(&reader), 0);
    assert_true(reader.is_bad);

    reader = reader_of(bytes_of(data, sizeof(data)));
    assert_null(read_bytes(&reader, SIZE_MAX).data);
    assert_int_equal(read_u8(&reader), 0); /* stays failed, although bytes are left */
    assert_true(reader.is_bad);
    reader = reader_of(bytes_str(NULL));
    assert_int_equal(read_u8(&reader), 0);
}

/* Bytes near the one searched for, and near the highest bit. */
static const uint8_t likely[] = {0x00, 0x01, 0x1f, 0x20, 0x21, 0x5c, 0x7f, 0x80, 0x81, 0xa0, 0xff};

static void eight_bytes_are_marked_as_one_by_one(void **state)
{
    struct rng rng;

    (void)state;
    rng_init(&rng, 8);
    for (unsigned round = 0; round < 200000; round++) {
        uint8_t limit = likely[1 + rng_below(&rng, 7)], text[9];
        const uint8_t *eight = text + 1; /* an unaligned address */
        uint64_t zeros = 0;
        size_t first = 8, first_zero = 8;

        for (unsigned i = 0; i < sizeof(text); i++)
            text[i] = likely[rng_below(&rng, ARRAY_LEN(likely))];
        for (size_t i = 8; i-- > 0;) {
            first = eight[i] < limit ? i : first;
            first_zero = eight[i] == 0 ? i : first_zero;
            zeros |= eight[i] == 0 ? UINT64_C(0x80) << 8 * i : 0;
        }
        assert_int_equal(bytes_first_mark(bytes_mark_below(bytes_load8(eight), limit)), first);
        assert_int_equal(bytes_mark_zero(bytes_load8(eight)), zeros);
        assert_int_equal(bytes_first_mark(zeros), first_zero);
    }
    assert_int_equal(bytes_each(0x5c), UINT64_C(0x5c5c5c5c5c5c5c5c));
    assert_int_equal(bytes_load8((const uint8_t *)"\x01\x02\x03\x04\x05\x06\x07\x08"), 0x0807060504030201);
}

struct item {
    int number;
    struct list node;
};

static void list_keeps_order(void **state)
{
    struct list head;
    struct item items[4];
    int expected = 0;

    list_init(&head);
    assert_true(list_is_empty(&head));
    assert_null(list_pop_front(&head));
    for (int i = 0; i < 4; i++) {
        items[i].number = i;
        list_init(&items[i].node);
    }
    list_push_back(&head, &items[1].node);
    list_push_front(&head, &items[0].node);
    list_push_back(&head, &items[3].node);
    list_insert_before(&items[3].node, &items[2].node);
    list_for_each (node, &head)
        assert_int_equal(container_of(node, struct item, node)->number, expected++);
    assert_int_equal(expected, 4);
    list_for_each_safe (node, spare, &head)
        if (container_of(node, struct item, node)->number % 2 == 0)
            list_remove(node);
    assert_ptr_equal(list_pop_front(&head), &items[1].node);
    assert_ptr_equal(list_pop_front(&head), &items[3].node);
    assert_true(list_is_empty(&head));
    list_remove(&items[3].node); /* already unlinked */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(views_compare),
        cmocka_unit_test(find_stays_inside),
        cmocka_unit_test(buffer_grows_and_stays_terminated),
        cmocka_unit_test(printf_longer_than_its_guess),
        cmocka_unit_test(want_of_memory_sticks),
        cmocka_unit_test(integers_are_little_endian),
        cmocka_unit_test(reader_says_once_that_it_ran_out),
        cmocka_unit_test(eight_bytes_are_marked_as_one_by_one),
        cmocka_unit_test(list_keeps_order),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
