/* SPDX-License-Identifier: Apache-2.0 */
/* Reading GGUF: the reader returns the whole content of a good file. */
#include "tests/unit/gguf/image.h"

#include "base/err.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

static struct gguf *open_sample(struct buf *image)
{
    struct fault fault = {0};
    struct gguf *gguf = NULL;

    image_sample(image);
    assert_int_equal(gguf_open_memory(buf_view(image), &fault, &gguf), 0);
    return gguf;
}

static void integers_of_every_width_convert(void **state)
{
    struct buf image = {0};
    struct gguf *gguf = open_sample(&image);
    struct fault fault = {0};
    uint64_t natural = 77;
    int64_t whole = 77;

    assert_int_equal(gguf_get_u64(gguf, "n.u8", NULL, &natural), 0);
    assert_int_equal(natural, 0xfe);
    assert_int_equal(gguf_get_i64(gguf, "n.i8", NULL, &whole), 0);
    assert_int_equal(whole, -2);
    assert_int_equal(gguf_get_u64(gguf, "n.u16", NULL, &natural), 0);
    assert_int_equal(natural, 0xfffe);
    assert_int_equal(gguf_get_i64(gguf, "n.i16", NULL, &whole), 0);
    assert_int_equal(whole, -2);
    assert_int_equal(gguf_get_i64(gguf, "n.u32", NULL, &whole), 0);
    assert_int_equal(whole, 0xfffffffe);
    assert_int_equal(gguf_get_i64(gguf, "n.i32", NULL, &whole), 0);
    assert_int_equal(whole, -2);
    assert_int_equal(gguf_get_u64(gguf, "n.u64", NULL, &natural), 0);
    assert_true(natural == UINT64_MAX - 1);
    assert_int_equal(gguf_get_i64(gguf, "n.i64", NULL, &whole), 0);
    assert_int_equal(whole, -2);

    natural = 77;
    whole = 77;
    assert_int_equal(gguf_get_i64(gguf, "n.u64", &fault, &whole), E_FORMAT);
    assert_non_null(strstr(fault.text, "n.u64"));
    assert_int_equal(gguf_get_u64(gguf, "n.i32", &fault, &natural), E_FORMAT);
    assert_non_null(strstr(fault.text, "n.i32"));
    assert_int_equal(gguf_get_u64(gguf, "n.f32", &fault, &natural), E_FORMAT);
    assert_int_equal(gguf_get_u64(gguf, "n.bool", &fault, &natural), E_FORMAT);
    assert_int_equal(gguf_get_u64(gguf, "nothing", &fault, &natural), E_NOT_FOUND);
    assert_non_null(strstr(fault.text, "nothing"));
    assert_int_equal(natural, 77);
    assert_int_equal(whole, 77);
    gguf_close(gguf);
    buf_fini(&image);
}

static void other_kinds_are_read(void **state)
{
    struct buf image = {0};
    struct gguf *gguf = open_sample(&image);
    double value = 0;
    bool flag = false;
    struct bytes text;

    assert_int_equal(gguf_get_f64(gguf, "n.f32", NULL, &value), 0);
    assert_true(value == 1.5);
    assert_int_equal(gguf_get_f64(gguf, "n.f64", NULL, &value), 0);
    assert_true(value == -1.5);
    assert_int_equal(gguf_get_f64(gguf, "n.i16", NULL, &value), 0);
    assert_true(value == -2);
    assert_int_equal(gguf_get_f64(gguf, "n.u64", NULL, &value), 0);
    assert_true(value == 18446744073709551614.0);
    assert_int_equal(gguf_get_f64(gguf, "n.bool", NULL, &value), E_FORMAT);
    assert_int_equal(gguf_get_bool(gguf, "n.bool", NULL, &flag), 0);
    assert_true(flag);
    assert_int_equal(gguf_get_bool(gguf, "n.u8", NULL, &flag), E_FORMAT);
    assert_int_equal(gguf_get_str(gguf, "general.architecture", NULL, &text), 0);
    assert_true(bytes_is(text, "llama"));
    assert_int_equal(gguf_get_str(gguf, "n.u8", NULL, &text), E_FORMAT);
    gguf_close(gguf);
    buf_fini(&image);
}

static void arrays_are_indexed(void **state)
{
    struct buf image = {0};
    struct gguf *gguf = open_sample(&image);
    enum gguf_kind kind;
    uint64_t n;
    struct bytes text;
    int64_t whole;
    double value;

    assert_int_equal(gguf_array_len(gguf, "tokenizer.ggml.tokens", &kind, &n), 0);
    assert_int_equal(kind, GGUF_STRING);
    assert_int_equal(n, 3);
    assert_int_equal(gguf_array_str(gguf, "tokenizer.ggml.tokens", 0, &text), 0);
    assert_true(bytes_is(text, "a"));
    assert_int_equal(gguf_array_str(gguf, "tokenizer.ggml.tokens", 1, &text), 0);
    assert_int_equal(text.len_bytes, 0);
    assert_int_equal(gguf_array_str(gguf, "tokenizer.ggml.tokens", 2, &text), 0);
    assert_true(bytes_is(text, "long\ntext"));
    assert_int_equal(gguf_array_str(gguf, "tokenizer.ggml.tokens", 3, &text), E_RANGE);
    assert_int_equal(gguf_array_i64(gguf, "tokenizer.ggml.tokens", 0, &whole), E_FORMAT);
    assert_int_equal(gguf_array_i64(gguf, "tokenizer.ggml.token_type", 1, &whole), 0);
    assert_int_equal(whole, -3);
    assert_int_equal(gguf_array_f64(gguf, "tokenizer.ggml.token_type", 2, &value), 0);
    assert_true(value == 7);
    assert_int_equal(gguf_array_f64(gguf, "empty", 0, &value), E_RANGE);
    assert_int_equal(gguf_array_len(gguf, "n.u8", &kind, &n), E_FORMAT);
    assert_int_equal(gguf_array_len(gguf, "nothing", &kind, &n), E_NOT_FOUND);
    gguf_close(gguf);
    buf_fini(&image);
}

static void flags_of_an_array_are_numbers(void **state)
{
    static const uint8_t FLAGS[] = {GGUF_BOOL, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 1, 0};
    struct buf image = {0};
    struct fault fault = {0};
    struct gguf *gguf;
    uint8_t *copy;
    int64_t flag;

    (void)state;
    image_header(&image, 3, 0, 1);
    image_key_raw(&image, "x.flags", GGUF_ARRAY, FLAGS, sizeof(FLAGS));
    assert_int_equal(image_open(buf_view(&image), &fault, &copy, &gguf), 0);
    assert_int_equal(gguf_array_i64(gguf, "x.flags", 0, &flag), 0);
    assert_int_equal(flag, 1);
    assert_int_equal(gguf_array_i64(gguf, "x.flags", 1, &flag), 0);
    assert_int_equal(flag, 0);
    assert_int_equal(gguf_array_i64(gguf, "x.flags", 2, &flag), E_RANGE);
    gguf_close(gguf);
    free(copy);
    buf_fini(&image);
}

static void tensors_are_found(void **state)
{
    struct buf image = {0};
    struct gguf *gguf = open_sample(&image);
    const struct gguf_tensor *second = gguf_tensor_find(gguf, "second");

    assert_int_equal(gguf_tensor_count(gguf), 2);
    assert_null(gguf_tensor_find(gguf, "third"));
    assert_null(gguf_tensor_at(gguf, 2));
    assert_ptr_equal(gguf_tensor_at(gguf, 1), second);
    assert_int_equal(second->type, DTYPE_Q8_0);
    assert_int_equal(second->len_bytes, 34);
    assert_int_equal(second->dims[0], 32);
    assert_int_equal(second->dims[3], 1);
    assert_int_equal(*(const uint8_t *)second->data, 32);
    assert_int_equal(gguf_file_bytes(gguf), image.len_bytes);
    gguf_close(gguf);
    buf_fini(&image);
}

static void keys_are_listed(void **state)
{
    struct buf image = {0}, text = {0};
    struct gguf *gguf = open_sample(&image);
    struct bytes name;
    enum gguf_kind kind;

    for (uint64_t i = 0; i < gguf_key_count(gguf); i++) {
        assert_int_equal(gguf_key_at(gguf, i, &name, &kind), 0);
        buf_append(&text, name.data, name.len_bytes);
        buf_append_byte(&text, '=');
        assert_int_equal(gguf_key_text(gguf, i, &text), 0);
        buf_append_byte(&text, ';');
    }
    assert_string_equal(
        (char *)text.data,
        "general.architecture=\"llama\";llama.context_length=512;n.u8=254;n.i8=-2;n.u16=65534;"
        "n.i16=-2;n.u32=4294967294;n.i32=-2;n.u64=18446744073709551614;n.i64=-2;n.f32=1.5;"
        "n.f64=-1.5;n.bool=true;tokenizer.ggml.tokens=[3 strings];"
        "tokenizer.ggml.token_type=[1, -3, 7];empty=[];");
    assert_int_equal(gguf_key_at(gguf, 16, &name, &kind), E_RANGE);
    assert_int_equal(gguf_key_text(gguf, 16, &text), E_RANGE);
    gguf_close(gguf);
    buf_fini(&text);
    buf_fini(&image);
}

static void the_vocabulary_image_is_a_file(void **state)
{
    struct buf image = {0}, small = {0}, smaller = {0};
    struct gguf *gguf = open_sample(&image), *vocabulary = NULL;
    struct bytes text;
    uint64_t n;
    double value;

    assert_int_equal(gguf_vocabulary_image(gguf, &small), 0);
    assert_int_equal(gguf_open_memory(buf_view(&small), NULL, &vocabulary), 0);
    assert_int_equal(gguf_tensor_count(vocabulary), 0);
    assert_int_equal(gguf_key_count(vocabulary), 4);
    assert_int_equal(gguf_get_u64(vocabulary, "llama.context_length", NULL, &n), 0);
    assert_int_equal(n, 512);
    assert_int_equal(gguf_array_str(vocabulary, "tokenizer.ggml.tokens", 2, &text), 0);
    assert_true(bytes_is(text, "long\ntext"));
    assert_int_equal(gguf_get_f64(vocabulary, "n.f32", NULL, &value), E_NOT_FOUND);
    assert_int_equal(gguf_vocabulary_image(vocabulary, &smaller), 0);
    assert_true(bytes_equal(buf_view(&small), buf_view(&smaller)));
    gguf_close(vocabulary);
    gguf_close(gguf);
    buf_fini(&smaller);
    buf_fini(&small);
    buf_fini(&image);
}

static void the_fingerprint_sees_changes(void **state)
{
    struct buf image = {0};
    struct gguf *gguf = open_sample(&image), *other = NULL;
    char before[33], after[33];

    gguf_fingerprint(gguf, before);
    assert_int_equal(strlen(before), 32);
    image.data[image.len_bytes - 1] ^= 1; /* last weight */
    assert_int_equal(gguf_open_memory(buf_view(&image), NULL, &other), 0);
    gguf_fingerprint(other, after);
    assert_string_not_equal(before, after);
    gguf_close(other);
    image.data[image.len_bytes - 1] ^= 1;
    assert_int_equal(gguf_open_memory(buf_view(&image), NULL, &other), 0);
    gguf_fingerprint(other, after);
    assert_string_equal(before, after);
    gguf_close(other);
    gguf_close(gguf);
    buf_fini(&image);
}

static void version_2_is_read(void **state)
{
    struct buf image = {0};
    struct gguf *gguf = NULL;

    image_sample(&image);
    image.data[4] = 2;
    assert_int_equal(gguf_open_memory(buf_view(&image), NULL, &gguf), 0);
    gguf_close(gguf);
    buf_fini(&image);
}

static void the_files_own_alignment_counts(void **state)
{
    struct buf image = {0};
    struct gguf *gguf = NULL;

    image_header(&image, 3, 1, 1);
    image_key_u32(&image, "general.alignment", 256);
    image_tensor(&image, "w", 4, DTYPE_F32, 0);
    image_pad(&image, 256);
    for (int i = 0; i < 16; i++)
        buf_append_byte(&image, 7);
    assert_int_equal(gguf_open_memory(buf_view(&image), NULL, &gguf), 0);
    assert_ptr_equal(gguf_tensor_at(gguf, 0)->data, image.data + 256);
    gguf_close(gguf);
    buf_fini(&image);
}

/* ---- files ---- */

static void files_open_and_explain(void **state)
{
    char path[] = "/tmp/baton-gguf-XXXXXX";
    struct fault fault = {0};
    struct gguf *gguf = NULL;
    struct buf image = {0};
    int fd = mkstemp(path);

    assert_true(fd >= 0);
    assert_int_equal(gguf_open(path, &fault, &gguf), E_TRUNCATED);
    image_sample(&image);
    assert_int_equal(write(fd, image.data, image.len_bytes), image.len_bytes);
    assert_int_equal(gguf_open(path, &fault, &gguf), 0);
    image_walk(gguf);
    gguf_close(gguf);
    close(fd);
    unlink(path);

    gguf = NULL;
    assert_int_equal(gguf_open(path, &fault, &gguf), E_NOT_FOUND);
    assert_non_null(strstr(fault.text, "No such file"));
    assert_int_equal(gguf_open("/tmp", &fault, &gguf), E_IO);
    assert_non_null(strstr(fault.text, "not a regular file"));
    assert_null(gguf);
    gguf_close(NULL);
    buf_fini(&image);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(integers_of_every_width_convert),
        cmocka_unit_test(other_kinds_are_read),
        cmocka_unit_test(arrays_are_indexed),
        cmocka_unit_test(flags_of_an_array_are_numbers),
        cmocka_unit_test(tensors_are_found),
        cmocka_unit_test(keys_are_listed),
        cmocka_unit_test(the_vocabulary_image_is_a_file),
        cmocka_unit_test(the_fingerprint_sees_changes),
        cmocka_unit_test(version_2_is_read),
        cmocka_unit_test(the_files_own_alignment_counts),
        cmocka_unit_test(files_open_and_explain),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
