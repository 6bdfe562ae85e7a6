/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/err.h"
#include "gguf/scales.h"
#include "tests/unit/gguf/image.h"

static struct gguf *gguf;
static uint8_t *copy;

/* A file with these tensors of F32 [1], and NVFP4 weights of the names that begin with w. */
static void open_file(const char *const *names, uint32_t n, float value)
{
    static const uint8_t zeros[256];
    struct buf image = {0};
    struct fault fault = {0};

    image_header(&image, 3, n, 0);
    for (uint32_t i = 0; i < n; i++)
        image_tensor(&image, names[i], names[i][0] == 'w' && strstr(names[i], "scale") == NULL ? 64 : 1,
                     names[i][0] == 'w' && strstr(names[i], "scale") == NULL ? DTYPE_NVFP4 : DTYPE_F32,
                     64 * i);
    image_pad(&image, 32);
    for (uint32_t i = 0; i < n; i++) {
        assert_int_equal(buf_append(&image, &value, sizeof(value)), 0);
        assert_int_equal(buf_append(&image, zeros, 60), 0);
    }
    assert_int_equal(image_open(buf_view(&image), &fault, &copy, &gguf), 0);
    buf_fini(&image);
}

static void close_file(void)
{
    gguf_close(gguf);
    free(copy);
}

static const struct gguf_tensor *at(const char *name)
{
    return gguf_tensor_find(gguf, name);
}

static void scales_are_found_by_both_names(void **state)
{
    static const char *const names[] = {"w1.weight", "w1.scale",       "w2.weight", "w2.weight.scale",
                                        "w3",        "w3.scale",       "f.weight",  "f.scale",
                                        "w4.weight", "w4.input_scale", "scale"};

    open_file(names, sizeof(names) / sizeof(names[0]), 2.5f);
    for (unsigned i = 0; i < 3; i++) {
        assert_ptr_equal(gguf_scale_find(gguf, at(names[2 * i]), GGUF_SCALE), at(names[2 * i + 1]));
        assert_ptr_equal(gguf_scale_owner(gguf, at(names[2 * i + 1])->name), at(names[2 * i]));
        assert_null(gguf_scale_find(gguf, at(names[2 * i]), GGUF_INPUT_SCALE));
        assert_int_equal(gguf_scale_check(at(names[2 * i]), at(names[2 * i + 1]), NULL), 0);
        assert_true(gguf_scale_value(at(names[2 * i + 1]), 7) == 2.5f);
    }
    assert_null(gguf_scale_find(gguf, at("f.weight"), GGUF_SCALE)); /* not NVFP4 */
    assert_null(gguf_scale_owner(gguf, at("f.scale")->name));
    assert_null(gguf_scale_find(gguf, at("w4.weight"), GGUF_SCALE));
    assert_ptr_equal(gguf_scale_find(gguf, at("w4.weight"), GGUF_INPUT_SCALE), at("w4.input_scale"));
    assert_ptr_equal(gguf_scale_owner(gguf, at("w4.input_scale")->name), at("w4.weight"));
    assert_null(gguf_scale_owner(gguf, at("scale")->name));
    assert_null(gguf_scale_owner(gguf, bytes_str("")));
    close_file();
}

static void a_scale_that_is_not_finite_is_refused(void **state)
{
    static const char *const names[] = {"w.weight", "w.scale"};
    struct fault fault = {0};

    open_file(names, 2, NAN);
    assert_int_equal(gguf_scale_check(at("w.weight"), at("w.scale"), &fault), E_FORMAT);
    assert_non_null(strstr(fault.text, "w.scale"));
    assert_int_equal(gguf_scale_check(at("w.scale"), at("w.weight"), NULL), E_FORMAT);
    close_file();
}

/* A name that is longer than any buffer is no scale. */
static void long_names_end_somewhere(void **state)
{
    static const char *const names[] = {"w.weight", "w.scale"};
    char name[4000];

    open_file(names, 2, 1);
    memset(name, 'x', sizeof(name));
    memcpy(name + sizeof(name) - 6, ".scale", 6);
    for (size_t n = 0; n < sizeof(name); n += 7)
        assert_null(gguf_scale_owner(
            gguf, (struct bytes){.data = (uint8_t *)name + n, .len_bytes = sizeof(name) - n}));
    close_file();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scales_are_found_by_both_names),
        cmocka_unit_test(a_scale_that_is_not_finite_is_refused),
        cmocka_unit_test(long_names_end_somewhere),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
