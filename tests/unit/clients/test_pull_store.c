/* SPDX-License-Identifier: Apache-2.0 */
/* A page in place of a model is removed; a file that cannot be read stays.  Caches of the hub's libraries are read. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/err.h"
#include "clients/pull/pull.h"

static char folder[64], path[96], digest_path[112];

static void write_text(const char *to, const char *text)
{
    FILE *file = fopen(to, "we");

    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static int make_folder(void **state)
{
    const char *above = getenv("TMPDIR");

    (void)state;
    snprintf(folder, sizeof(folder), "%.40s/pullXXXXXX",
             above != NULL && strlen(above) <= 40 ? above : "/tmp");
    if (mkdtemp(folder) == NULL)
        return -1;
    snprintf(path, sizeof(path), "%s/m.gguf", folder);
    snprintf(digest_path, sizeof(digest_path), "%s.sha256", path);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    unlink(path);
    rmdir(path);
    unlink(digest_path);
    return rmdir(folder);
}

static void a_page_is_removed(void **state)
{
    struct fault fault = {0};

    (void)state;
    for (int i = 0; i < 2; i++) {
        write_text(path, i == 0 ? "<!DOCTYPE html><html>Please log in</html>" : "GG");
        write_text(digest_path, "0");
        assert_true(pull_store_drop_page(path, &fault) < 0);
        assert_true(fault.text[0] != '\0');
        assert_int_not_equal(access(path, F_OK), 0);
        assert_int_not_equal(access(digest_path, F_OK), 0);
    }
}

static void a_model_stays(void **state)
{
    struct fault fault = {0};

    (void)state;
    write_text(path, "GGUF and more");
    write_text(digest_path, "0");
    assert_int_equal(pull_store_drop_page(path, &fault), 0);
    assert_int_equal(access(path, F_OK), 0);
    assert_int_equal(access(digest_path, F_OK), 0);
}

static void a_file_that_cannot_be_opened_stays(void **state)
{
    struct rlimit all, none;
    struct fault fault = {0};
    int rc;

    (void)state;
    write_text(path, "GGUF and more");
    write_text(digest_path, "0");
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &all), 0);
    none = (struct rlimit){.rlim_cur = 0, .rlim_max = all.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    rc = pull_store_drop_page(path, &fault);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &all), 0);
    assert_int_equal(access(path, F_OK), 0);
    assert_int_equal(access(digest_path, F_OK), 0);
    assert_int_equal(rc, E_IO);
    assert_non_null(strstr(fault.text, "cannot read"));
}

/* A folder opens as a file does; its bytes cannot be read. */
static void a_file_that_cannot_be_read_stays(void **state)
{
    struct fault fault = {0};

    (void)state;
    assert_int_equal(mkdir(path, 0700), 0);
    write_text(digest_path, "0");
    assert_int_equal(pull_store_drop_page(path, &fault), E_IO);
    assert_int_equal(access(digest_path, F_OK), 0);
    assert_non_null(strstr(fault.text, "cannot read"));
}

static void a_caches_names_are_read(void **state)
{
    static const struct {
        const char *text, *revision;
    } revisions[] = {{"0123456789abcdef0123456789abcdef01234567", "0123456789abcdef0123456789abcdef01234567"},
                     {"ABCDEF0\r\n", "ABCDEF0"},
                     {"abc", NULL},
                     {"", NULL},
                     {"abcdefg", NULL},
                     {"../abcdef0", NULL},
                     {"abcdef0/x", NULL},
                     {"abcdef0\nabcdef0", NULL}};
    char long_one[80], out[65];

    (void)state;
    for (size_t i = 0; i < sizeof(revisions) / sizeof(revisions[0]); i++) {
        bool is_one = pull_reuse_revision(bytes_str(revisions[i].text), out);

        assert_int_equal(is_one, revisions[i].revision != NULL);
        if (is_one)
            assert_string_equal(out, revisions[i].revision);
    }
    memset(long_one, 'a', sizeof(long_one));
    assert_true(pull_reuse_revision(bytes_of(long_one, 64), out));
    assert_false(pull_reuse_revision(bytes_of(long_one, 65), out));
    memcpy(long_one, "../../blobs/", 12);
    assert_true(pull_reuse_digest(bytes_of(long_one, 12 + 64), out));
    assert_int_equal(strlen(out), 64);
    assert_false(pull_reuse_digest(bytes_of(long_one, 12 + 40), out)); /* a small file: Git's name */
    assert_false(pull_reuse_digest(bytes_of(long_one, 12 + 65), out));
    assert_false(pull_reuse_digest(bytes_of(long_one + 12, 64), out));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_page_is_removed, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(a_model_stays, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(a_file_that_cannot_be_opened_stays, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(a_file_that_cannot_be_read_stays, make_folder, remove_folder),
        cmocka_unit_test(a_caches_names_are_read),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
