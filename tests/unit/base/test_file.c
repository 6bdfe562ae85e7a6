/* SPDX-License-Identifier: Apache-2.0 */
/* file_read_rest: the whole file, its bound, and a file that cannot be read.  file_read_line: one line, or none. */
#include "tests/unit/check.h"

#include "base/err.h"
#include "base/file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static FILE *file_of(size_t n_bytes)
{
    FILE *file = tmpfile();

    assert_non_null(file);
    for (size_t i = 0; i < n_bytes; i++)
        fputc((int)(i % 251), file);
    rewind(file);
    return file;
}

static void the_rest_up_to_the_bound(void **state)
{
    static const size_t SIZES[] = {0, 1, 16383, 16384, 16385, 50000};

    (void)state;
    for (size_t k = 0; k < sizeof(SIZES) / sizeof(SIZES[0]); k++) {
        FILE *file = file_of(SIZES[k]);
        struct buf out = {0};

        assert_int_equal(buf_append(&out, "head", 4), 0);
        assert_int_equal(file_read_rest(file, SIZES[k], &out), 0);
        assert_int_equal(out.len_bytes, 4 + SIZES[k]);
        assert_memory_equal(out.data, "head", 4);
        for (size_t i = 0; i < SIZES[k]; i++)
            assert_int_equal(out.data[4 + i], i % 251);
        buf_fini(&out);
        fclose(file);
    }
}

static void a_longer_file_is_refused(void **state)
{
    (void)state;
    for (size_t n = 1; n < 40000; n += 9973) {
        FILE *file = file_of(n);
        struct buf out = {0};

        assert_int_equal(file_read_rest(file, n - 1, &out), E_LIMIT);
        assert_true(out.len_bytes < n);
        buf_fini(&out);
        fclose(file);
    }
}

static void a_directory_cannot_be_read(void **state)
{
    FILE *file = fopen("/", "re");
    struct buf out = {0};

    (void)state;
    assert_non_null(file);
    assert_int_equal(file_read_rest(file, 10, &out), E_IO);
    assert_int_equal(errno, EISDIR);
    buf_fini(&out);
    fclose(file);
}

static void the_first_line(void **state)
{
    static const struct {
        const char *text, *line;
        bool is_read;
    } CASES[] = {{"one\ntwo\n", "one", true},
                 {"no end", "no end", true},
                 {"\nsecond", "", true},
                 {"", "", false},
                 {"too long a line", "too lon", true}};
    char path[] = "/tmp/baton-test-file-XXXXXX", line[8];
    int fd = mkstemp(path);

    (void)state;
    assert_true(fd >= 0);
    for (size_t k = 0; k < sizeof(CASES) / sizeof(CASES[0]); k++) {
        size_t n = strlen(CASES[k].text);

        assert_int_equal(ftruncate(fd, 0), 0);
        assert_int_equal(pwrite(fd, CASES[k].text, n, 0), n);
        assert_int_equal(file_read_line(path, line, sizeof(line)), CASES[k].is_read);
        assert_string_equal(line, CASES[k].line);
    }
    close(fd);
    unlink(path);
    assert_false(file_read_line(path, line, sizeof(line)));
    assert_string_equal(line, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_rest_up_to_the_bound),
        cmocka_unit_test(the_first_line),
        cmocka_unit_test(a_longer_file_is_refused),
        cmocka_unit_test(a_directory_cannot_be_read),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
