/* SPDX-License-Identifier: Apache-2.0 */
/* Writing GGUF: a written file reads back, and an incomplete file never has the final name. */
#include "gguf/write.h"

#include "base/err.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

static char folder[] = "/tmp/baton-write-XXXXXX";
static char path[64];

static int enter_folder(void **state)
{
    if (mkdtemp(folder) == NULL)
        return -1;
    snprintf(path, sizeof(path), "%s/model.gguf", folder);
    return 0;
}

static int leave_folder(void **state)
{
    unlink(path);
    return rmdir(folder); /* fails if a temporary file is left */
}

static struct gguf_writer *new_writer(void)
{
    struct gguf_writer *writer = NULL;

    assert_int_equal(gguf_writer_new(&writer), 0);
    return writer;
}

/* Fills tensor number index with the byte index + 1, in two pieces. */
static int fill_with_number(void *arg, uint64_t index, struct gguf_writer *writer)
{
    const size_t *len_bytes = arg;
    uint8_t raw[256];

    memset(raw, (int)index + 1, sizeof(raw));
    int rc = gguf_writer_data(writer, raw, 1);
    return rc != 0 ? rc : gguf_writer_data(writer, raw, len_bytes[index] - 1);
}

static void put_everything(struct gguf_writer *writer)
{
    static const float floats[] = {1, -2.5f};
    static const int32_t numbers[] = {-1, 70000};
    struct bytes texts[] = {bytes_str("a"), bytes_str(""), bytes_str("\xff")};

    assert_int_equal(gguf_put_str(writer, "general.name", bytes_str("small")), 0);
    assert_int_equal(gguf_put_u32(writer, "x.count", 3000000000u), 0);
    assert_int_equal(gguf_put_f32(writer, "x.ratio", 0.25f), 0);
    assert_int_equal(gguf_put_bool(writer, "x.flag", true), 0);
    assert_int_equal(gguf_put_str_array(writer, "x.texts", texts, 3), 0);
    assert_int_equal(gguf_put_i32_array(writer, "x.numbers", numbers, 2), 0);
    assert_int_equal(gguf_put_f32_array(writer, "x.floats", floats, 2), 0);
}

static void check_everything(const struct gguf *gguf)
{
    struct bytes text;
    uint64_t count;
    int64_t number;
    double value;
    bool flag = false;

    assert_int_equal(gguf_get_str(gguf, "general.name", NULL, &text), 0);
    assert_true(bytes_is(text, "small"));
    assert_int_equal(gguf_get_u64(gguf, "x.count", NULL, &count), 0);
    assert_int_equal(count, 3000000000u);
    assert_int_equal(gguf_get_f64(gguf, "x.ratio", NULL, &value), 0);
    assert_true(value == 0.25);
    assert_int_equal(gguf_get_bool(gguf, "x.flag", NULL, &flag), 0);
    assert_true(flag);
    assert_int_equal(gguf_array_str(gguf, "x.texts", 2, &text), 0);
    assert_true(bytes_is(text, "\xff"));
    assert_int_equal(gguf_array_i64(gguf, "x.numbers", 1, &number), 0);
    assert_int_equal(number, 70000);
    assert_int_equal(gguf_array_f64(gguf, "x.floats", 1, &value), 0);
    assert_true(value == -2.5);
}

static void saved_values_are_read_back(void **state)
{
    struct gguf_writer *writer = new_writer();
    uint64_t matrix[] = {64, 3}, vector[] = {5};
    size_t len_bytes[] = {204, 20};
    struct fault fault = {0};
    struct gguf *gguf = NULL;
    struct stat status;

    put_everything(writer);
    assert_int_equal(gguf_declare_tensor(writer, "matrix", DTYPE_Q8_0, 2, matrix), 0);
    assert_int_equal(gguf_declare_tensor(writer, "vector", DTYPE_F32, 1, vector), 0);
    mode_t mask = umask(027);
    assert_int_equal(gguf_writer_save(writer, path, fill_with_number, len_bytes, &fault), 0);
    umask(mask);
    gguf_writer_free(writer);

    assert_int_equal(stat(path, &status), 0);
    assert_int_equal(status.st_mode & 0777, 0640);
    assert_int_equal(status.st_size % 32, 0);
    assert_int_equal(gguf_open(path, &fault, &gguf), 0);
    check_everything(gguf);
    const struct gguf_tensor *second = gguf_tensor_find(gguf, "vector");
    assert_non_null(second);
    assert_int_equal(second->len_bytes, 20);
    assert_int_equal((uintptr_t)second->data % 32, 0);
    for (int i = 0; i < 20; i++)
        assert_int_equal(((const uint8_t *)second->data)[i], 2);
    assert_int_equal(gguf_tensor_find(gguf, "matrix")->dims[1], 3);
    gguf_close(gguf);
}

static void keys_are_copied_unless_put_before(void **state)
{
    struct gguf_writer *first = new_writer(), *second = new_writer();
    struct buf image = {0}, copy = {0};
    struct gguf *from = NULL, *to = NULL;
    struct bytes text;
    uint64_t count;

    put_everything(first);
    assert_int_equal(gguf_writer_header(first, &image), 0);
    assert_int_equal(gguf_open_memory(buf_view(&image), NULL, &from), 0);
    assert_int_equal(gguf_put_u32(second, "x.count", 5), 0);
    assert_int_equal(gguf_put_keys_of(second, from, "x."), 0);
    assert_int_equal(gguf_put_u32(second, "x.flag", 5), E_EXISTS);
    assert_int_equal(gguf_writer_header(second, &copy), 0);
    assert_int_equal(gguf_open_memory(buf_view(&copy), NULL, &to), 0);
    assert_int_equal(gguf_key_count(to), 6);
    assert_int_equal(gguf_get_u64(to, "x.count", NULL, &count), 0);
    assert_int_equal(count, 5);
    assert_int_equal(gguf_array_str(to, "x.texts", 0, &text), 0);
    assert_true(bytes_is(text, "a"));
    assert_int_equal(gguf_get_str(to, "general.name", NULL, &text), E_NOT_FOUND);
    gguf_close(to);
    gguf_close(from);
    buf_fini(&copy);
    buf_fini(&image);
    gguf_writer_free(second);
    gguf_writer_free(first);
}

static void wrong_declarations_are_refused(void **state)
{
    struct gguf_writer *writer = new_writer();
    uint64_t dims[] = {32, 2, 1, 1}, odd[] = {33}, none[] = {0}, huge[] = {UINT64_MAX / 2, 3};

    assert_int_equal(gguf_declare_tensor(writer, "w", DTYPE_F32, 4, dims), 0);
    assert_int_equal(gguf_declare_tensor(writer, "w", DTYPE_F32, 1, dims), E_EXISTS);
    assert_int_equal(gguf_declare_tensor(writer, "", DTYPE_F32, 1, dims), E_INVAL);
    assert_int_equal(gguf_declare_tensor(writer, "v", DTYPE_F32, 0, dims), E_INVAL);
    assert_int_equal(gguf_declare_tensor(writer, "v", DTYPE_F32, 5, dims), E_INVAL);
    assert_int_equal(gguf_declare_tensor(writer, "v", DTYPE_Q8_0, 1, odd), E_INVAL);
    assert_int_equal(gguf_declare_tensor(writer, "v", DTYPE_F32, 1, none), E_INVAL);
    assert_int_equal(gguf_declare_tensor(writer, "v", DTYPE_F32, 2, huge), E_RANGE);
    assert_int_equal(gguf_declare_tensor(writer, "v", (enum dtype)77, 1, dims), E_INVAL);
    assert_int_equal(gguf_put_u32(writer, "", 1), E_INVAL);
    assert_int_equal(gguf_writer_data(writer, "x", 1), E_INVAL);
    gguf_writer_free(writer);
    gguf_writer_free(NULL);
}

static int fill_too_little(void *arg, uint64_t index, struct gguf_writer *writer)
{
    return gguf_writer_data(writer, "1234567", 7);
}

static int fill_too_much(void *arg, uint64_t index, struct gguf_writer *writer)
{
    return gguf_writer_data(writer, "123456789", 9);
}

static int fill_refused(void *arg, uint64_t index, struct gguf_writer *writer)
{
    return E_CANCELLED;
}

static void a_failed_save_leaves_the_old_file(void **state)
{
    static const struct {
        gguf_fill fill;
        int code;
    } cases[] = {{fill_too_little, E_INVAL}, {fill_too_much, E_RANGE}, {fill_refused, E_CANCELLED}};
    struct gguf_writer *writer = new_writer();
    uint64_t dims[] = {2};
    size_t eight[] = {8};
    struct fault fault = {0};
    struct gguf *gguf = NULL;
    uint64_t count;

    assert_int_equal(gguf_put_u32(writer, "mark", 11), 0);
    assert_int_equal(gguf_declare_tensor(writer, "w", DTYPE_F32, 1, dims), 0);
    assert_int_equal(gguf_writer_save(writer, path, fill_with_number, eight, &fault), 0);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(gguf_writer_save(writer, path, cases[i].fill, NULL, &fault), cases[i].code);
        assert_non_null(strstr(fault.text, "tensor 'w'"));
        assert_int_equal(gguf_open(path, &fault, &gguf), 0);
        assert_int_equal(gguf_get_u64(gguf, "mark", NULL, &count), 0);
        gguf_close(gguf);
    }
    assert_int_equal(gguf_writer_save(writer, "/nowhere/at/all", fill_with_number, eight, &fault), E_IO);
    assert_int_equal(gguf_writer_save(writer, folder, fill_with_number, eight, &fault), E_IO);
    gguf_writer_free(writer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(saved_values_are_read_back),
        cmocka_unit_test(keys_are_copied_unless_put_before),
        cmocka_unit_test(wrong_declarations_are_refused),
        cmocka_unit_test(a_failed_save_leaves_the_old_file),
    };

    return cmocka_run_group_tests(tests, enter_folder, leave_folder);
}
