/* SPDX-License-Identifier: Apache-2.0 */
/* Reading bad GGUF.  Each field is made wrong separately, and must be refused with its name and place.  Then
 * one good image is cut at every byte and damaged at every byte.  The reader may never read
 * a byte outside the image, which is in memory of exactly its size. */
#include "tests/unit/gguf/image.h"

#include "base/check.h"
#include "base/err.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static void expect_refusal(struct buf *image, int code, const char *words)
{
    struct fault fault = {0};
    struct gguf *gguf = NULL;
    uint8_t *copy;

    int rc = image_open(buf_view(image), &fault, &copy, &gguf);
    if (rc != code || strstr(fault.text, words) == NULL)
        print_error("%s: %s\n", err_name(rc), fault.text);
    assert_int_equal(rc, code);
    assert_non_null(strstr(fault.text, words));
    assert_non_null(strstr(fault.text, "byte "));
    assert_int_equal(fault.code, code);
    assert_null(gguf);
    buf_fini(image);
}

static void other_files_are_refused(void **state)
{
    struct buf image = {0};

    expect_refusal(&image, E_TRUNCATED, "only 0 bytes");
    buf_append_str(&image, "PK\3\4 something else");
    expect_refusal(&image, E_FORMAT, "not a GGUF file, but a zip archive");
    buf_append_str(&image, "<!DOCTYPE html><html>");
    expect_refusal(&image, E_FORMAT, "not a GGUF file, but a web page");
    buf_append_str(&image, "version https://git-lfs.github.com/spec/v1\n");
    expect_refusal(&image, E_FORMAT, "not a GGUF file, but a pointer of Git LFS");
    buf_append(&image, "\x20\0\0\0\0\0\0\0{\"__metadata__\":{}}", 28);
    expect_refusal(&image, E_FORMAT, "not a GGUF file, but perhaps safetensors");
    buf_append(&image, "\0\0\0\0\0\0\0\0\0", 9);
    expect_refusal(&image, E_FORMAT, "header at byte 0: not a GGUF file");
    image_header(&image, 1, 0, 0);
    expect_refusal(&image, E_UNSUPPORTED, "version 1;");
    image_header(&image, 4, 0, 0);
    expect_refusal(&image, E_UNSUPPORTED, "version 4;");
    image_header(&image, 0x03000000, 0, 0);
    expect_refusal(&image, E_UNSUPPORTED, "big-endian");
}

/* Opens an image with one or two text keys. */
static int kind_of(const char *const keys[4], struct fault *fault)
{
    struct buf image = {0};
    struct gguf *gguf = NULL;
    uint8_t *copy;
    int rc;

    image_header(&image, 3, 0, keys[2] != NULL ? 2 : 1);
    for (int i = 0; i < 4 && keys[i] != NULL; i += 2) {
        image_str(&image, keys[i]);
        image_u32(&image, GGUF_STRING);
        image_str(&image, keys[i + 1]);
    }
    assert_int_equal(image_open(buf_view(&image), fault, &copy, &gguf), 0);
    rc = gguf_check_model(gguf, fault);
    gguf_close(gguf);
    free(copy);
    buf_fini(&image);
    return rc;
}

static void files_beside_models_are_named(void **state)
{
    static const struct {
        const char *keys[4], *text;
    } cases[] = {
        {{"general.architecture", "llama", "general.type", "adapter"}, "adapter (LoRA)"},
        {{"general.architecture", "clip"}, "projector of images"},
        {{"general.architecture", "gemma3", "general.type", "mmproj"}, "projector of images"},
        {{"general.type", "imatrix"}, "importance matrix"},
        {{"general.architecture", "llama", "general.type", "model"}, NULL},
        {{"general.architecture", "llama"}, NULL},
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct fault fault = {0};

        assert_int_equal(kind_of(cases[i].keys, &fault), cases[i].text != NULL ? E_UNSUPPORTED : 0);
        assert_true(cases[i].text == NULL || strstr(fault.text, cases[i].text) != NULL);
    }
}

static void counts_are_not_believed(void **state)
{
    struct buf image = {0};

    image_header(&image, 3, 0, UINT64_MAX);
    expect_refusal(&image, E_LIMIT, "keys, the limit");
    image_header(&image, 3, UINT64_MAX / 2, 0);
    expect_refusal(&image, E_LIMIT, "tensors, the limit");
    image_header(&image, 3, 0, 60000);
    expect_refusal(&image, E_TRUNCATED, "60000 keys cannot fit");
    image_header(&image, 3, 60000, 0);
    expect_refusal(&image, E_TRUNCATED, "60000 tensors cannot fit");

    static const uint64_t counts[] = {5, UINT64_C(1) << 61, UINT64_MAX};
    for (size_t i = 0; i < 3; i++) {
        for (uint32_t kind = GGUF_I32; kind <= GGUF_STRING; kind += 3) {
            image_header(&image, 3, 0, 1);
            image_str(&image, "a.b");
            image_u32(&image, GGUF_ARRAY);
            image_u32(&image, kind);
            image_u64(&image, counts[i]);
            image_u64(&image, 0);
            expect_refusal(&image, E_TRUNCATED, "key 'a.b' at byte 24");
        }
    }
}

static void bad_keys_are_named(void **state)
{
    struct buf image = {0};

    image_header(&image, 3, 0, 1);
    image_u64(&image, 0);
    image_u64(&image, 0);
    expect_refusal(&image, E_FORMAT, "key 0 at byte 24: its name is 0 bytes");
    image_header(&image, 3, 0, 1);
    image_u64(&image, UINT64_MAX);
    image_u64(&image, 0);
    expect_refusal(&image, E_FORMAT, "key 0 at byte 24");
    image_header(&image, 3, 0, 1);
    image_u64(&image, 100);
    image_u64(&image, 0);
    expect_refusal(&image, E_TRUNCATED, "key 0 at byte 24");
    image_header(&image, 3, 0, 1);
    image_u64(&image, 3);
    buf_append(&image, "a\0b\0\0\0\0\0", 8);
    expect_refusal(&image, E_FORMAT, "NUL");
    image_header(&image, 3, 0, 1);
    image_key_raw(&image, "k", 13, "\0\0\0\0\0\0\0\0", 8);
    expect_refusal(&image, E_FORMAT, "key 'k' at byte 24: unknown kind 13");
    image_header(&image, 3, 0, 1);
    image_key_raw(&image, "k", GGUF_BOOL, "\2", 1);
    expect_refusal(&image, E_FORMAT, "key 'k' at byte 24: a truth value of 2");
    image_header(&image, 3, 0, 1);
    image_key_raw(&image, "k", GGUF_ARRAY, "\11\0\0\0\1\0\0\0\0\0\0\0", 12);
    expect_refusal(&image, E_UNSUPPORTED, "array of arrays");
    image_header(&image, 3, 0, 1);
    image_key_raw(&image, "k", GGUF_ARRAY, "\15\0\0\0\1\0\0\0\0\0\0\0", 12);
    expect_refusal(&image, E_FORMAT, "array of unknown kind 13");
    image_header(&image, 3, 0, 2);
    image_key_u32(&image, "twin", 1);
    image_key_u32(&image, "twin", 1);
    expect_refusal(&image, E_FORMAT, "key 'twin' at byte 44: the key appears twice");
    image_header(&image, 3, 0, 1);
    image_key_u32(&image, "general.alignment", 24);
    expect_refusal(&image, E_FORMAT, "general.alignment");
    image_header(&image, 3, 0, 1);
    image_key_u32(&image, "general.alignment", 0);
    expect_refusal(&image, E_FORMAT, "general.alignment");
}

static void bad_tensor(const char *words, int code, uint64_t width, uint32_t type, uint64_t offset)
{
    struct buf image = {0};

    image_header(&image, 3, 1, 0);
    image_tensor(&image, "blk.0.w", width, type, offset);
    image_pad(&image, 32);
    for (int i = 0; i < 128; i++)
        buf_append_byte(&image, 0);
    expect_refusal(&image, code, words);
}

static void bad_tensors_are_named(void **state)
{
    struct buf image = {0};

    bad_tensor("tensor 'blk.0.w' at byte 24: dimension 0 is 0", E_FORMAT, 0, DTYPE_F32, 0);
    bad_tensor("type 31 (Q4_0_4_4) is not supported", E_UNSUPPORTED, 32, 31, 0);
    bad_tensor("type 99 (unknown) is not supported", E_UNSUPPORTED, 32, 99, 0);
    bad_tensor("a row of 33 weights is not whole Q8_0 blocks of 32", E_FORMAT, 33, DTYPE_Q8_0, 0);
    bad_tensor("overflows", E_RANGE, UINT64_MAX, DTYPE_F32, 0);
    bad_tensor("the data section has 128", E_TRUNCATED, 33, DTYPE_F32, 0);
    bad_tensor("the data section has 128", E_TRUNCATED, 1, DTYPE_F32, 128);
    bad_tensor("the data section has 128", E_TRUNCATED, 1, DTYPE_F32, UINT64_MAX - 31);
    bad_tensor("not a multiple of 32", E_FORMAT, 1, DTYPE_F32, 16);

    image_header(&image, 3, 2, 0);
    image_tensor(&image, "w", 1, DTYPE_F32, 0);
    image_tensor(&image, "w", 1, DTYPE_F32, 32);
    expect_refusal(&image, E_FORMAT, "tensor 'w' at byte 57: the name appears twice");
    image_header(&image, 3, 2, 0);
    image_tensor(&image, "v", 9, DTYPE_F32, 0);
    image_tensor(&image, "w", 1, DTYPE_F32, 32);
    image_pad(&image, 32);
    image_u64(&image, 0);
    for (int i = 0; i < 128; i++)
        buf_append_byte(&image, 0);
    expect_refusal(&image, E_FORMAT, "tensor 'w' at byte 57: its data offset 32 lies inside");
    image_header(&image, 3, 1, 0);
    image_str(&image, "w");
    image_u32(&image, 5);
    for (int i = 0; i < 20; i++)
        image_u64(&image, 1);
    expect_refusal(&image, E_FORMAT, "5 dimensions");
}

static void every_prefix_is_refused(void **state)
{
    struct buf image = {0};

    image_sample(&image);
    for (size_t len_bytes = 0; len_bytes < image.len_bytes; len_bytes++) {
        struct fault fault = {0};
        struct gguf *gguf = NULL;
        uint8_t *copy;

        int rc = image_open(bytes_of(image.data, len_bytes), &fault, &copy, &gguf);
        assert_int_equal(rc, E_TRUNCATED);
        assert_non_null(strstr(fault.text, "byte "));
    }
    buf_fini(&image);
}

static void damage_anywhere_is_survived(void **state)
{
    static const uint8_t values[] = {0x00, 0x01, 0x7f, 0x80, 0xff};
    struct buf image = {0};
    unsigned n_opened = 0;

    image_sample(&image);
    for (size_t at = 0; at < image.len_bytes - 66; at++) {
        uint8_t before = image.data[at];

        for (size_t i = 0; i < sizeof(values); i++) {
            struct gguf *gguf = NULL;
            struct fault fault = {0};
            uint8_t *copy;

            image.data[at] = values[i];
            if (image_open(buf_view(&image), &fault, &copy, &gguf) != 0) {
                assert_true(fault.code < 0 && fault.text[0] != '\0');
                continue;
            }
            n_opened++;
            image_walk(gguf);
            gguf_close(gguf);
            free(copy);
        }
        image.data[at] = before;
    }
    assert_true(n_opened > 100); /* damage inside names and values leaves a file readable */
    buf_fini(&image);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(other_files_are_refused),     cmocka_unit_test(files_beside_models_are_named),
        cmocka_unit_test(counts_are_not_believed),     cmocka_unit_test(bad_keys_are_named),
        cmocka_unit_test(bad_tensors_are_named),       cmocka_unit_test(every_prefix_is_refused),
        cmocka_unit_test(damage_anywhere_is_survived),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
