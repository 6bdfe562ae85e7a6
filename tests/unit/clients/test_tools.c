/* SPDX-License-Identifier: Apache-2.0 */
/* The tools of baton-chat: their results, and that they cannot reach anything outside the folder. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jansson.h>

#include "base/err.h"
#include "clients/chat/tools.h"
#include "tests/unit/check.h"

struct world { /* outer has a secret, and the folder that the tools work in */
    char outer[64];
    char path[96];
    struct tools tools;
};

static void put(const char *folder, const char *name, const char *text)
{
    char path[256];
    FILE *file;

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static int set_up(void **state)
{
    struct world *world = calloc(1, sizeof(*world));
    struct fault fault;
    char way[128];

    assert_non_null(world);
    strcpy(world->outer, "/tmp/baton-test-tools-XXXXXX");
    assert_non_null(mkdtemp(world->outer));
    snprintf(world->path, sizeof(world->path), "%s/work", world->outer);
    assert_int_equal(mkdir(world->path, 0700), 0);
    snprintf(way, sizeof(way), "%s/src", world->path);
    assert_int_equal(mkdir(way, 0700), 0);
    put(world->outer, "secret", "hidden\n");
    put(world->path, "a.conf", "limit = 5\nlimit_high = 5\n");
    put(world->path, "src/b.c", "int limit;\n");
    put(world->path, ".hidden", "limit\n");
    assert_int_equal(tools_open(world->path, "cat a.conf; echo failed >&2; exit 3", &fault, &world->tools),
                     0);
    *state = world;
    return 0;
}

static int tear_down(void **state)
{
    struct world *world = *state;
    char command[128];

    tools_close(&world->tools);
    snprintf(command, sizeof(command), "rm -rf %s", world->outer);
    assert_int_equal(system(command), 0);
    free(world);
    return 0;
}

/* Calls a tool.  The caller frees the result. */
static char *call(const struct world *world, const char *name, const char *input, bool is_good)
{
    struct buf out = {0};

    assert_int_equal(tools_run(&world->tools, bytes_str(name), bytes_str(input), &out), is_good);
    return out.len_bytes > 0 ? buf_take_str(&out) : strdup("");
}

static void expect(const struct world *world, const char *name, const char *input, const char *result)
{
    char *got = call(world, name, input, strncmp(result, "error: ", 7) != 0);

    assert_string_equal(got, result);
    free(got);
}

static void each_does_its_work(void **state)
{
    const struct world *world = *state;

    expect(world, "list_files", "{}", "a.conf\nsrc/b.c");
    expect(world, "list_files", "{\"path\": \"src/\"}", "src/b.c");
    expect(world, "read_file", "{\"path\": \"./src//b.c\"}", "int limit;");
    expect(world, "grep", "{\"pattern\": \"limit\"}",
           "a.conf:1: limit = 5\na.conf:2: limit_high = 5\nsrc/b.c:1: int limit;");
    expect(world, "grep", "{\"pattern\": \"limit\", \"path\": \"src\"}", "src/b.c:1: int limit;");
    expect(world, "grep", "{\"pattern\": \"nowhere\"}", "no matches");
    expect(world, "edit_file", "{\"path\": \"a.conf\", \"old_text\": \"= 5\", \"new_text\": \"= 77\"}", "ok");
    expect(world, "read_file", "{\"path\": \"a.conf\"}", "limit = 77\nlimit_high = 77");
    expect(world, "edit_file", "{\"path\": \"a.conf\", \"old_text\": \"= 5\", \"new_text\": \"x\"}",
           "error: old text not found");
    expect(world, "write_file", "{\"path\": \"new/deep/c.txt\", \"content\": \"gr\\u00fcn\\n\"}", "ok");
    expect(world, "read_file", "{\"path\": \"new/deep/c.txt\"}", "gr\xc3\xbcn");
    expect(world, "run_tests", "{}", "limit = 77\nlimit_high = 77\nfailed\nstatus 3");
}

static void expect_mode(const struct world *world, const char *name, mode_t mode)
{
    char path[256];
    struct stat facts;

    snprintf(path, sizeof(path), "%s/%s", world->path, name);
    assert_int_equal(stat(path, &facts), 0);
    assert_int_equal(facts.st_mode & 07777, mode);
}

static void files_keep_their_permissions(void **state)
{
    const struct world *world = *state;
    mode_t mask = umask(022);
    char path[256];

    snprintf(path, sizeof(path), "%s/a.conf", world->path);
    assert_int_equal(chmod(path, 0755), 0);
    expect(world, "edit_file", "{\"path\": \"a.conf\", \"old_text\": \"5\", \"new_text\": \"6\"}", "ok");
    expect_mode(world, "a.conf", 0755);
    assert_int_equal(chmod(path, 04600), 0);
    expect(world, "write_file", "{\"path\": \"a.conf\", \"content\": \"x\"}", "ok");
    expect_mode(world, "a.conf", 0600);
    assert_int_equal(chmod(path, 0666), 0); /* more than the umask gives */
    expect(world, "write_file", "{\"path\": \"a.conf\", \"content\": \"y\"}", "ok");
    expect_mode(world, "a.conf", 0666);
    expect(world, "write_file", "{\"path\": \"fresh\", \"content\": \"x\"}", "ok");
    expect_mode(world, "fresh", 0644);
    umask(mask);
}

static void nothing_leads_out(void **state)
{
    static const char *const ways[] = {
        "../secret", "/etc/passwd", "src/../../secret", "link", "way/secret", "..", "src/..", "", "."};
    const struct world *world = *state;
    char path[256];
    char input[256];

    snprintf(path, sizeof(path), "%s/link", world->path);
    assert_int_equal(symlink("../secret", path), 0);
    snprintf(path, sizeof(path), "%s/way", world->path);
    assert_int_equal(symlink("..", path), 0);
    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        snprintf(input, sizeof(input), "{\"path\": \"%s\", \"content\": \"x\"}", ways[i]);
        free(call(world, "read_file", input, false));
        snprintf(input, sizeof(input), "{\"path\": \"%s\", \"old_text\": \"h\", \"new_text\": \"x\"}",
                 ways[i]);
        free(call(world, "edit_file", input, false));
        /* A link may be replaced by a file; its target stays unchanged. */
        if (strcmp(ways[i], "link") == 0)
            continue;
        snprintf(input, sizeof(input), "{\"path\": \"%s\", \"content\": \"x\"}", ways[i]);
        free(call(world, "write_file", input, false));
    }
    expect(world, "grep", "{\"pattern\": \"hidden\"}", "no matches");
    free(call(world, "list_files", "{\"path\": \"way\"}", false));
    free(call(world, "list_files", "{\"path\": \"..\"}", false));
    expect(world, "write_file", "{\"path\": \"link\", \"content\": \"mine\"}", "ok");
    snprintf(path, sizeof(path), "%s/secret", world->outer);
    assert_int_equal(access(path, R_OK), 0);
    struct stat facts;
    assert_int_equal(stat(path, &facts), 0);
    assert_int_equal(facts.st_size, strlen("hidden\n"));
}

static void wrong_calls_are_refused(void **state)
{
    const struct world *world = *state;

    expect(world, "rm", "{}", "error: no such tool");
    expect(world, "read_file", "{\"path\": 5}", "error: path: a string is wanted");
    expect(world, "read_file", "{}", "error: path: a string is wanted");
    expect(world, "read_file", "not json", "error: the input is no JSON object");
    expect(world, "read_file", "{\"path\": \"missing\"}", "error: missing: No such file or directory");
    expect(world, "read_file", "{\"path\": \"src\"}", "error: src: not a file");
    expect(world, "grep", "{\"pattern\": \"\"}", "error: pattern is empty");
    free(call(world, "read_file", "{\"path\": \"a/b/c/d/e/f/g/h/i\"}", false));
}

static void results_are_bounded(void **state)
{
    const struct world *world = *state;
    char *got;

    put(world->path, "odd",
        "a\xff"
        "b");
    expect(world, "read_file", "{\"path\": \"odd\"}",
           "a\xef\xbf\xbd"
           "b");
    FILE *file;
    char path[256];
    snprintf(path, sizeof(path), "%s/long", world->path);
    file = fopen(path, "w");
    assert_non_null(file);
    for (int i = 0; i < 20000; i++)
        fputc('x', file);
    fclose(file);
    got = call(world, "read_file", "{\"path\": \"long\"}", true);
    assert_int_equal(strlen(got), TOOLS_MAX_RESULT_BYTES + strlen("\n(cut; 20000 bytes in all)"));
    free(got);
    assert_int_equal(truncate(path, FOLDER_MAX_FILE_BYTES + 1), 0);
    got = call(world, "read_file", "{\"path\": \"long\"}", false);
    assert_non_null(strstr(got, "larger than"));
    free(got);
}

static void definitions_are_json(void **state)
{
    const struct world *world = *state;
    struct tools bare = world->tools;
    struct buf out = {0};
    json_t *list;

    assert_int_equal(tools_put_definitions(&world->tools, &out), 0);
    list = json_loadb((const char *)out.data, out.len_bytes, 0, NULL);
    assert_int_equal(json_array_size(list), 6);
    assert_string_equal(json_string_value(json_object_get(json_array_get(list, 5), "name")), "run_tests");
    json_decref(list);
    buf_clear(&out);
    bare.test_command = NULL;
    assert_int_equal(tools_put_definitions(&bare, &out), 0);
    list = json_loadb((const char *)out.data, out.len_bytes, 0, NULL);
    assert_int_equal(json_array_size(list), 5);
    json_decref(list);
    buf_fini(&out);
}

static void a_scratch_project_passes_its_tests(void **state)
{
    struct world world = {0};
    struct fault fault;
    char command[600];

    assert_int_equal(tools_open_scratch(&fault, &world.tools), 0);
    assert_true(world.tools.is_scratch);
    expect(&world, "run_tests", "{}", "7 passed, 0 failed");
    expect(&world, "edit_file",
           "{\"path\": \"src/queue.c\", \"old_text\": \"= 128\", \"new_text\": \"is 9\"}", "ok");
    expect(&world, "run_tests", "{}", "6 passed, 1 failed\nFAIL src/queue.c: queue_depth is 9");
    snprintf(command, sizeof(command), "rm -rf %s", world.tools.folder.path);
    tools_close(&world.tools);
    assert_int_equal(system(command), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(each_does_its_work, set_up, tear_down),
        cmocka_unit_test_setup_teardown(files_keep_their_permissions, set_up, tear_down),
        cmocka_unit_test_setup_teardown(nothing_leads_out, set_up, tear_down),
        cmocka_unit_test_setup_teardown(wrong_calls_are_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(results_are_bounded, set_up, tear_down),
        cmocka_unit_test_setup_teardown(definitions_are_json, set_up, tear_down),
        cmocka_unit_test(a_scratch_project_passes_its_tests),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
