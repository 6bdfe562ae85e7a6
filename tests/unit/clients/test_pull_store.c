/* SPDX-License-Identifier: Apache-2.0 */
/* A page in place of a model is removed; a file that cannot be read stays.  Caches of the hub's libraries are read.  At no moment a
 * digest stands beside bytes that have another one: the program's own symlink() and rename() look, and fail where a test asks. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/err.h"
#include "clients/pull/pull.h"

static char folder[64], path[96], digest_path[112];
static char blob_path[224], blob_digest[65];

/* ---- the calls that give a file its name ---- */

static struct {
    int link_errno;       /* not 0: symlink() fails with it */
    void (*linked)(void); /* runs once, behind symlink() */
    unsigned n_renames;
    char at_rename[65]; /* the digest that stood beside path */
} calls;

int symlink(const char *target, const char *at)
{
    void (*linked)(void) = calls.linked;
    int rc;

    if (calls.link_errno != 0) {
        errno = calls.link_errno;
        return -1;
    }
    rc = symlinkat(target, AT_FDCWD, at);
    calls.linked = NULL;
    if (linked != NULL)
        linked();
    return rc;
}

int rename(const char *from, const char *to)
{
    calls.n_renames++;
    pull_store_digest(path, calls.at_rename);
    return renameat(AT_FDCWD, from, AT_FDCWD, to);
}

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
    memset(&calls, 0, sizeof(calls));
    unlink(path);
    rmdir(path);
    unlink(digest_path);
    if (blob_path[0] != '\0') {
        unlink(blob_path);
        *strrchr(blob_path, '/') = '\0';
        rmdir(blob_path);
        blob_path[0] = '\0';
    }
    return rmdir(folder); /* no temporary name is left */
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

/* ---- links ---- */

#define OLD_DIGEST "00000000000000000000000000000000000000000000000000000000000000aa"

static bool never(void)
{
    return false;
}

static void rewrite_blob(void)
{
    write_text(blob_path, "GGUF and other bytes");
}

static bool rewrite_meanwhile(void)
{
    rewrite_blob();
    return false;
}

static struct pull_opts quiet = {.is_quiet = true, .is_cancelled = never};

/* A file of a cache, under the name that its digest gives it; expected describes it. */
static void put_blob(struct pull_file *expected)
{
    char first[128];
    struct fault fault = {0};

    snprintf(first, sizeof(first), "%s/blob", folder);
    write_text(first, "GGUF and these bytes");
    assert_int_equal(pull_store_compute(&quiet, first, blob_digest, &fault), 0);
    snprintf(blob_path, sizeof(blob_path), "%s/blobs", folder);
    assert_int_equal(mkdir(blob_path, 0700), 0);
    snprintf(blob_path, sizeof(blob_path), "%s/blobs/%s", folder, blob_digest);
    assert_int_equal(renameat(AT_FDCWD, first, AT_FDCWD, blob_path), 0);
    *expected = (struct pull_file){.size_bytes = 20};
    memcpy(expected->sha256, blob_digest, sizeof(expected->sha256));
    usleep(50000); /* longer than a tick of the clock that files get their times from */
}

/* Other bytes than those of the blob, as long, and their digest. */
static void put_older(void)
{
    write_text(path, "GGUF and older bytes");
    write_text(digest_path, OLD_DIGEST "  m.gguf\n");
}

static int reuse(const struct pull_file *expected)
{
    const struct pull_reuse places = {.cache = folder};
    struct fault fault = {0};
    int rc = pull_reuse(&quiet, &places, path, expected, &fault);

    if (rc < 0)
        print_message("%s\n", fault.text);
    return rc;
}

/* A file system without links: the file is to be fetched, and the older one keeps its digest. */
static void a_link_that_cannot_be_made_changes_nothing(void **state)
{
    struct pull_file expected;
    char kept[65];

    (void)state;
    put_blob(&expected);
    put_older();
    calls.link_errno = EPERM;
    assert_int_equal(reuse(&expected), 0);
    pull_store_digest(path, kept);
    assert_string_equal(kept, OLD_DIGEST);
    assert_false(pull_store_has(path, &expected));
    calls.link_errno = 0;
    assert_int_equal(reuse(&expected), 1);
    assert_true(pull_store_has(path, &expected));
}

static char at_link[65];

static void look_at_link(void)
{
    pull_store_digest(path, at_link);
}

/* A command that is killed at any call leaves no digest beside bytes that have another one. */
static void a_digest_comes_after_its_bytes(void **state)
{
    struct pull_file expected;
    struct fault fault = {0};
    char part[112];

    (void)state;
    put_blob(&expected);
    put_older();
    calls.linked = look_at_link;
    assert_int_equal(reuse(&expected), 1);
    assert_string_equal(at_link, OLD_DIGEST);
    assert_int_equal(calls.n_renames, 1);
    assert_string_equal(calls.at_rename, "");
    unlink(path);
    put_older();
    snprintf(part, sizeof(part), "%s.part", path);
    write_text(part, "GGUF and these bytes");
    assert_int_equal(pull_store_finish(&quiet, path, blob_digest, &fault), 0);
    assert_int_equal(calls.n_renames, 2);
    assert_string_equal(calls.at_rename, "");
    assert_true(pull_store_has(path, &expected));
}

/* The digest is computed again where a command was killed before it wrote that. */
static void a_file_without_a_digest_is_read(void **state)
{
    struct pull_file expected;

    (void)state;
    put_blob(&expected);
    write_text(path, "GGUF and these bytes");
    assert_false(pull_store_has(path, &expected));
    assert_int_equal(reuse(&expected), 1);
    assert_int_equal(calls.n_renames, 0);
    assert_true(pull_store_has(path, &expected));
    write_text(path, "GGUF and older bytes");
    unlink(digest_path);
    assert_int_equal(reuse(&expected), 1);
    assert_int_equal(calls.n_renames, 1); /* a link took its place */
}

/* A file with older times over the target, as cp -p, rsync -t and tar leave them. */
static void a_changed_target_is_seen_whatever_its_times(void **state)
{
    const struct timespec older[2] = {{.tv_sec = 1000000000}, {.tv_sec = 1000000000}};
    struct pull_file expected, unknown = {0};
    char kept[65];

    (void)state;
    put_blob(&expected);
    assert_int_equal(reuse(&expected), 1);
    assert_true(pull_store_has(path, &expected) && pull_store_has(path, &unknown));
    assert_int_equal(utimensat(AT_FDCWD, blob_path, older, 0), 0);
    assert_false(pull_store_has(path, &expected) || pull_store_has(path, &unknown));
    usleep(50000);
    assert_int_equal(reuse(&unknown), 1); /* the bytes are the same */
    pull_store_digest(path, kept);
    assert_string_equal(kept, blob_digest);
    assert_true(pull_store_has(path, &expected) && pull_store_has(path, &unknown));
    rewrite_blob();
    assert_int_equal(utimensat(AT_FDCWD, blob_path, older, 0), 0);
    pull_store_digest(path, kept);
    assert_string_equal(kept, "");
    assert_false(pull_store_has(path, &expected) || pull_store_has(path, &unknown));
    assert_int_equal(reuse(&unknown), 0);
    assert_int_equal(reuse(&expected), 0);
    assert_false(pull_store_has(path, &expected) || pull_store_has(path, &unknown));
}

/* The bytes that were read are not those that the link would lead to. */
static void a_target_that_changes_while_it_is_read_is_not_used(void **state)
{
    struct pull_file expected;
    struct stat status;

    (void)state;
    put_blob(&expected);
    quiet.is_cancelled = rewrite_meanwhile;
    assert_int_equal(reuse(&expected), 0);
    quiet.is_cancelled = never;
    assert_int_not_equal(lstat(path, &status), 0);
}

static void link_in_another_process(void)
{
    struct pull_file expected = {.size_bytes = 20};
    pid_t child = fork();
    int status;

    assert_true(child >= 0);
    memcpy(expected.sha256, blob_digest, sizeof(expected.sha256));
    if (child == 0)
        _exit(reuse(&expected) == 1 ? 0 : 1);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static void two_commands_may_link_one_model(void **state)
{
    struct pull_file expected;

    (void)state;
    put_blob(&expected);
    calls.linked = link_in_another_process;
    assert_int_equal(reuse(&expected), 1);
    assert_null(calls.linked);
    assert_true(pull_store_has(path, &expected));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_page_is_removed, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(a_model_stays, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(a_file_that_cannot_be_opened_stays, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(a_file_that_cannot_be_read_stays, make_folder, remove_folder),
        cmocka_unit_test(a_caches_names_are_read),
        cmocka_unit_test_setup_teardown(a_link_that_cannot_be_made_changes_nothing, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(a_digest_comes_after_its_bytes, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(a_file_without_a_digest_is_read, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(a_changed_target_is_seen_whatever_its_times, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(a_target_that_changes_while_it_is_read_is_not_used, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(two_commands_may_link_one_model, make_folder, remove_folder),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
