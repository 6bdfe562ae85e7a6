/* SPDX-License-Identifier: Apache-2.0 */
/* Configuration files: every type, every error, drop-ins, overrides, and reading back written ones. */
#include "tests/unit/check.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/config/config.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct settings {
    char *listen;
    uint64_t n_loops;
    bool has_tls;
    int level;
    uint64_t kv_bytes, slo_ns;
    double headroom, weight;
    char *model, *cpus;
    struct config_list routers;
};

#define MEMBER(name) offsetof(struct settings, name)

static const struct config_key keys[] = {
    {.section = "server",
     .name = "listen",
     .type = CONFIG_ADDRESS,
     .offset = MEMBER(listen),
     .default_text = "127.0.0.1:8080",
     .help = "Where clients connect."},
    {.section = "server",
     .name = "loops",
     .type = CONFIG_U64,
     .offset = MEMBER(n_loops),
     .default_text = "2",
     .min = 1,
     .max = 64,
     .help = "Event loops."},
    {.section = "server",
     .name = "tls",
     .type = CONFIG_BOOL,
     .offset = MEMBER(has_tls),
     .default_text = "no",
     .help = "Speak TLS."},
    {.section = "log",
     .name = "level",
     .type = CONFIG_ENUM,
     .offset = MEMBER(level),
     .default_text = "info",
     .choices = "debug|info|warn|error",
     .is_reloadable = true,
     .help = "Least level."},
    {.section = "kv",
     .name = "memory",
     .type = CONFIG_SIZE,
     .offset = MEMBER(kv_bytes),
     .default_text = "1GiB",
     .min = 1 << 20,
     .help = "KV memory."},
    {.section = "kv",
     .name = "slo",
     .type = CONFIG_DURATION,
     .offset = MEMBER(slo_ns),
     .default_text = "500ms",
     .min = 1e6,
     .max = 60e9,
     .is_reloadable = true,
     .help = "Objective.\nSecond line."},
    {.section = "kv",
     .name = "headroom",
     .type = CONFIG_RATIO,
     .offset = MEMBER(headroom),
     .default_text = "10%",
     .help = "Share kept free."},
    {.section = "kv",
     .name = "weight",
     .type = CONFIG_F64,
     .offset = MEMBER(weight),
     .default_text = "-1",
     .help = "Any number."},
    {.section = "model",
     .name = "file",
     .type = CONFIG_PATH,
     .offset = MEMBER(model),
     .default_text = "",
     .help = ".Leading dot and back\\slash."},
    {.section = "model",
     .name = "cpus",
     .type = CONFIG_CPUS,
     .offset = MEMBER(cpus),
     .default_text = "",
     .help = "CPUs of the team."},
    {.section = "model",
     .name = "router",
     .type = CONFIG_LIST,
     .offset = MEMBER(routers),
     .default_text = "127.0.0.1:7000 [::1]:7000",
     .is_reloadable = true,
     .help = "Routers to register with."},
};

static const struct config_table table = {
    .daemon = "baton-test",
    .file_name = "test.conf",
    .intro =
        "A file for tests. It has a first comment that is long enough to be wrapped into more than one line.",
    .keys = keys,
    .n_keys = ARRAY_LEN(keys),
    .struct_bytes = sizeof(struct settings),
};

/* Loads text, which must succeed. */
static struct settings *load_good(const char *text)
{
    struct buf errors = {0};
    void *config = NULL;
    int rc = config_load_text(&table, "test.conf", bytes_str(text), &errors, &config);

    if (rc != 0)
        fail_msg("%s", (char *)errors.data);
    buf_fini(&errors);
    return config;
}

/* Loads text, which must fail with exactly these error lines. */
static void check_errors(const char *text, const char *expected)
{
    struct buf errors = {0};
    void *config = (void *)1;

    assert_int_equal(config_load_text(&table, "f", bytes_str(text), &errors, &config), E_FORMAT);
    assert_string_equal((char *)errors.data, expected);
    assert_ptr_equal(config, (void *)1);
    buf_fini(&errors);
}

static void defaults_fill_everything(void **state)
{
    struct settings *config = load_good("");

    assert_string_equal(config->listen, "127.0.0.1:8080");
    assert_int_equal(config->n_loops, 2);
    assert_false(config->has_tls);
    assert_int_equal(config->level, 1);
    assert_int_equal(config->kv_bytes, 1 << 30);
    assert_int_equal(config->slo_ns, 500 * NS_PER_MS);
    assert_true(config->headroom == 0.1 && config->weight == -1);
    assert_string_equal(config->model, "");
    assert_int_equal(config->routers.n, 2);
    assert_string_equal(config->routers.items[1], "[::1]:7000");
    for (size_t i = 0; i < table.n_keys; i++)
        assert_string_equal(config_origin(&table, config, i), "default");
    config_free(&table, config);
    config_free(&table, NULL);
}

static void values_have_their_types(void **state)
{
    struct settings *config = load_good("\xef\xbb\xbf# comment\r\n"
                                        "; comment\r\n"
                                        "  [ server ]  \r\n"
                                        "listen=[fe80::1%eth0]:443\n"
                                        "\tloops\t=\t64\t\n"
                                        "tls = ON\n"
                                        "[kv]\n"
                                        "memory = 1.5GiB\n"
                                        "slo = 2s\n"
                                        "headroom = 0.25\n"
                                        "weight = 1e-3\n"
                                        "[log]\n"
                                        "level = error\n"
                                        "[kv]\n"
                                        "[model]\n"
                                        "file = /a = b # c\n"
                                        "cpus = 0-3,8\n"
                                        "router = one\n"
                                        "router = two");

    assert_string_equal(config->listen, "[fe80::1%eth0]:443");
    assert_int_equal(config->n_loops, 64);
    assert_true(config->has_tls);
    assert_int_equal(config->level, 3);
    assert_int_equal(config->kv_bytes, 3ull << 29);
    assert_int_equal(config->slo_ns, 2 * NS_PER_S);
    assert_true(config->headroom == 0.25 && config->weight == 1e-3);
    assert_string_equal(config->model, "/a = b # c"); /* the value is the rest of the line */
    assert_string_equal(config->cpus, "0-3,8");
    assert_int_equal(config->routers.n, 2); /* replaces the items of the default */
    assert_string_equal(config->routers.items[0], "one");
    assert_string_equal(config_origin(&table, config, 1), "test.conf:5");
    assert_string_equal(config_origin(&table, config, 10), "test.conf:19");
    config_free(&table, config);
}

static void addresses(void **state)
{
    const char *const good[] = {"",           "host:1", "127.0.0.1:0",     "[::1]:65535",
                                "a-b.c_d:80", "*:80",   "unix:/run/x.sock"};
    const char *const bad[] = {"host",    "host:",       ":80",      "host:65536", "host:-1", "[::1]",
                               "[::g]:1", "::1:80",      "[]:80",    "a b:80",     "unix:",   "unix:x",
                               "unix:/",  "http://h:80", "host:8 0", "**:80",      "*.a:80"};
    char text[256];

    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        snprintf(text, sizeof(text), "[server]\nlisten = %s\n", good[i]);
        config_free(&table, load_good(text));
    }
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct buf errors = {0};
        void *config;

        snprintf(text, sizeof(text), "[server]\nlisten = %s\n", bad[i]);
        if (config_load_text(&table, "f", bytes_str(text), &errors, &config) != E_FORMAT)
            fail_msg("accepted %s", bad[i]);
        buf_fini(&errors);
    }
    memset(text, 'x', sizeof(text));
    memcpy(text, "[server]\nlisten=unix:/", 22);
    text[200] = '\0';
    struct buf errors = {0};
    void *config;
    assert_int_equal(config_load_text(&table, "f", bytes_str(text), &errors, &config), E_FORMAT);
    buf_fini(&errors);
}

static void every_error_is_collected(void **state)
{
    check_errors(
        "loops = 1\n"
        "[server\n"
        "[]\n"
        "[servr]\n"
        "ignored = 1\n"
        "[server] # behind\n"
        "[server]\n"
        "what\n"
        " = 1\n"
        "lops = 2\n"
        "memory = 1GiB\n"
        "quite_other = 1\n"
        "loops = 65\n"
        "loops = 3\n"
        "tls = maybe\n"
        "listen = here\n"
        "[log]\n"
        "level = warning\n"
        "[kv]\n"
        "memory = 1KiB\n"
        "slo = 5\n"
        "headroom = 101%\n"
        "weight = nan\n"
        "[model]\n"
        "cpus = 3-1\n",
        "f:1: the key stands before the first [section]\n"
        "f:2: the section's name has no closing ]\n"
        "f:3: the section has no name\n"
        "f:4: unknown section [servr]; did you mean [server]?\n"
        "f:6: there is something after the ] (comments stand on lines of their own)\n"
        "f:8: neither [section] nor key = value\n"
        "f:9: there is no key before the =\n"
        "f:10: server.lops: unknown key; did you mean 'loops'?\n"
        "f:11: server.memory: unknown key; it belongs to [kv]\n"
        "f:12: server.quite_other: unknown key\n"
        "f:13: server.loops: '65' is out of range: it must be between 1 and 64\n"
        "f:14: server.loops: given twice in this file (first on line 13)\n"
        "f:15: server.tls: 'maybe' is not yes or no\n"
        "f:16: server.listen: 'here' is not an address with a port (host:port, [v6]:port, unix:/path)\n"
        "f:18: log.level: 'warning' is not one of debug|info|warn|error; did you mean 'warn'?\n"
        "f:20: kv.memory: '1KiB' is out of range: it must be at least 1MiB\n"
        "f:21: kv.slo: '5' is not a duration (like 500ms, 30s, 5min, 1h)\n"
        "f:22: kv.headroom: '101%' is out of range: it must be between 0 and 1\n"
        "f:23: kv.weight: 'nan' is not a number\n"
        "f:25: model.cpus: '3-1' is not a list of CPUs (like 0-3,8)\n");
}

static void slips_are_named(void **state)
{
    check_errors("[kv]\nmemory = 4GiB # plenty\n",
                 "f:2: kv.memory: '4GiB # plenty' is not a size (like 512, 64KiB, 1.5GiB) "
                 "(comments stand on lines of their own)\n");
    check_errors("[kv]\nslo = 99999999999999999999s\n", "f:2: kv.slo: the number is too large\n");
    check_errors("[kv]\nslo = 61s\n",
                 "f:2: kv.slo: '61s' is out of range: it must be between 1ms and 1min\n");
    check_errors("[server]\nloops =\n", "f:2: server.loops: '' is not a whole number\n");
}

static void hostile_bytes_are_refused_not_shown(void **state)
{
    struct buf text = {0}, errors = {0};
    void *config;

    check_errors("[server]\nlisten = \033[2J\n", "f:2: the line holds a control character\n");
    check_errors("[server]\nlisten = \xff\n", "f:2: the line is not valid UTF-8\n");

    buf_append_str(&text, "[server]\nloops = ");
    for (int i = 0; i < 9000; i++)
        buf_append_byte(&text, '1');
    check_errors((char *)text.data, "f:2: the line is too long (more than 8192 bytes)\n");

    buf_clear(&text);
    buf_append_str(&text, "[server]\n");
    for (int i = 0; i < 500; i++)
        buf_append_str(&text, "x = é\n");
    assert_int_equal(config_load_text(&table, "f", buf_view(&text), &errors, &config), E_FORMAT);
    assert_true(errors.len_bytes < 101 * 60);
    assert_non_null(strstr((char *)errors.data, "more than a hundred errors"));
    buf_fini(&text);
    buf_fini(&errors);
}

static char folder[] = "/tmp/baton-config-XXXXXX";
static char path[64];

static void write_file(const char *name, const char *text)
{
    char file_name[128];

    snprintf(file_name, sizeof(file_name), "%s/%s", folder, name);
    FILE *file = fopen(file_name, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static int make_folder(void **state)
{
    char name[64];

    memcpy(folder + strlen(folder) - 6, "XXXXXX", 6);
    if (mkdtemp(folder) == NULL)
        return -1;
    snprintf(path, sizeof(path), "%s/test.conf", folder);
    snprintf(name, sizeof(name), "%s/test.conf.d", folder);
    return mkdir(name, 0700);
}

static int remove_folder(void **state)
{
    const char *const names[] = {"test.conf.d/10-a.conf", "test.conf.d/9-b.conf", "test.conf.d/.hidden.conf",
                                 "test.conf.d/notes.txt", "test.conf"};
    char name[128];

    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        snprintf(name, sizeof(name), "%s/%s", folder, names[i]);
        unlink(name);
    }
    snprintf(name, sizeof(name), "%s/test.conf.d", folder);
    rmdir(name);
    return rmdir(folder);
}

static int load_from(const char *from, const char *const *overrides, size_t n, struct buf *errors, void **out)
{
    buf_clear(errors);
    return config_load(&table, &(struct config_source){from, overrides, n}, errors, out);
}

static void later_files_win(void **state)
{
    const char *const overrides[] = {"log.level=debug", "model.router=c", "model.router=d", "kv.weight=1=2"};
    struct buf errors = {0};
    struct settings *config;
    char origin[128];
    void *loaded;

    write_file("test.conf", "[server]\nloops = 3\n[log]\nlevel = warn\n[model]\nrouter = a\n");
    write_file("test.conf.d/10-a.conf", "[server]\nloops = 4\n[model]\nrouter = b\n");
    write_file("test.conf.d/9-b.conf", "[server]\nloops = 5\ntls = yes\n"); /* sorted by bytes: after 10 */
    write_file("test.conf.d/.hidden.conf", "nonsense\n");
    write_file("test.conf.d/notes.txt", "nonsense\n");
    assert_int_equal(load_from(path, NULL, 0, &errors, &loaded), 0);
    config = loaded;
    assert_int_equal(config->n_loops, 5);
    assert_true(config->has_tls);
    assert_int_equal(config->level, 2);
    assert_int_equal(config->routers.n, 2);
    assert_string_equal(config->routers.items[1], "b");
    snprintf(origin, sizeof(origin), "%s.d/9-b.conf:2", path);
    assert_string_equal(config_origin(&table, config, 1), origin);
    config_free(&table, config);

    assert_int_equal(load_from(path, overrides, 3, &errors, &loaded), 0);
    config = loaded;
    assert_int_equal(config->level, 0);
    assert_int_equal(config->routers.n, 2);
    assert_string_equal(config->routers.items[0], "c");
    assert_string_equal(config_origin(&table, config, 3), "command line");
    config_free(&table, config);
    assert_int_equal(load_from(path, overrides, 4, &errors, &loaded), E_FORMAT);
    assert_string_equal((char *)errors.data, "command line: kv.weight: '1=2' is not a number\n");
    write_file("test.conf.d/10-a.conf", "[model]\nrouter =\n");
    assert_int_equal(load_from(path, NULL, 0, &errors, &loaded), 0);
    assert_int_equal(((struct settings *)loaded)->routers.n, 0); /* an empty value makes an empty list */
    config_free(&table, loaded);
    buf_fini(&errors);
}

static void findings_name_the_place(void **state)
{
    const char *const overrides[] = {"log.level=debug"};
    struct buf errors = {0}, findings = {0}, expected = {0};
    struct config_check check = {.table = &table, .findings = &findings};
    void *loaded;

    write_file("test.conf", "[server]\nloops = 3\n[model]\nrouter = a\n");
    write_file("test.conf.d/10-a.conf", "[model]\n\nrouter = b\n");
    assert_int_equal(load_from(path, overrides, 1, &errors, &loaded), 0);
    check.config = loaded;
    config_refuse(&check, "server.loops", "%d is odd", 3);
    config_refuse_item(&check, "model.router", 0, "a");
    config_refuse_item(&check, "model.router", 1, "b");
    config_refuse_item(&check, "model.router", 9, "the last of them");
    config_refuse(&check, "log.level", "loud");
    config_warn(&check, "server.tls", "off");
    assert_int_equal(check.n_refused, 5);
    assert_int_equal(check.n_warned, 1);
    buf_printf(&expected,
               "%s:2: server.loops: 3 is odd\n%s:4: model.router: a\n%s.d/10-a.conf:3: model.router: b\n"
               "%s.d/10-a.conf:3: model.router: the last of them\ncommand line (--set): log.level: loud\n"
               "%s: server.tls: warning: off\n",
               path, path, path, path, path);
    assert_string_equal((char *)findings.data, (char *)expected.data);
    config_free(&table, loaded);

    buf_clear(&findings); /* a list that begins anew drops its origins; without a file the default is left */
    write_file("test.conf.d/10-a.conf", "[model]\nrouter =\nrouter = c\n");
    assert_int_equal(load_from(path, NULL, 0, &errors, &loaded), 0);
    check.config = loaded;
    config_refuse_item(&check, "model.router", 0, "c");
    config_free(&table, loaded);
    assert_int_equal(load_from(NULL, NULL, 0, &errors, &loaded), 0);
    check.config = loaded;
    config_refuse_item(&check, "model.router", 0, "d");
    config_free(&table, loaded);
    buf_clear(&expected);
    buf_printf(&expected, "%s.d/10-a.conf:3: model.router: c\ndefault: model.router: d\n", path);
    assert_string_equal((char *)findings.data, (char *)expected.data);
    buf_fini(&expected);
    buf_fini(&findings);
    buf_fini(&errors);
}

static void missing_files_and_bad_overrides(void **state)
{
    const char *const overrides[] = {"nonsense", "server.loop=2", "serve.loops=2", "=", "a=b.c"};
    struct buf errors = {0};
    void *config;

    assert_int_equal(load_from("/nonexistent/x.conf", NULL, 0, &errors, &config), E_FORMAT);
    assert_string_equal((char *)errors.data, "/nonexistent/x.conf: No such file or directory\n");
    assert_int_equal(load_from("/tmp", NULL, 0, &errors, &config), E_FORMAT);
    assert_string_equal((char *)errors.data, "/tmp: not a regular file\n");
    assert_int_equal(load_from(NULL, overrides, 5, &errors, &config), E_FORMAT);
    assert_string_equal((char *)errors.data, "command line: 'nonsense' is not section.key=value\n"
                                             "command line: server.loop: unknown key; did you mean 'loops'?\n"
                                             "command line: unknown section [serve]; did you mean [server]?\n"
                                             "command line: '=' is not section.key=value\n"
                                             "command line: 'a=b.c' is not section.key=value\n");
    buf_fini(&errors);
}

static void mark_changed(void *arg, const struct config_key *key)
{
    ((bool *)arg)[key - keys] = true;
}

static void diff_names_what_changed(void **state)
{
    struct settings *a = load_good("[model]\nrouter = x\nfile = /m\n");
    struct settings *b = load_good("[model]\nrouter = y\nfile = /m\n[kv]\nslo = 1s\n[server]\nloops = 2\n");
    bool changed[ARRAY_LEN(keys)] = {0};

    config_diff(&table, a, b, mark_changed, changed);
    for (size_t i = 0; i < table.n_keys; i++)
        assert_int_equal(changed[i], i == 5 || i == 10);
    config_diff(&table, a, a, mark_changed, NULL);
    config_free(&table, a);
    config_free(&table, b);
}

static void a_reload_keeps_what_wants_a_restart(void **state)
{
    struct settings *running = load_good("[model]\nrouter = x\nrouter = z\nfile = /m\n[kv]\nmemory = 2GiB\n");
    struct settings *fresh = load_good("[model]\nrouter = y\nfile = /n\n[kv]\nslo = 1s\nmemory = 3GiB\n");
    bool changed[ARRAY_LEN(keys)] = {0};
    const struct settings before = *running;

    config_keep_fixed(&table, running, fresh);
    assert_int_equal(fresh->kv_bytes, before.kv_bytes);
    assert_int_equal(fresh->slo_ns, 1000000000);
    config_diff(&table, running, fresh, mark_changed, changed);
    for (size_t i = 0; i < table.n_keys; i++) /* only reloadable keys changed */
        assert_true(keys[i].is_reloadable || memcmp((const char *)fresh + keys[i].offset,
                                                    (const char *)&before + keys[i].offset, 1) == 0);
    config_free(&table, running);
    config_free(&table, fresh);
}

static char *written(void (*write)(const struct config_table *, FILE *))
{
    char *text = NULL;
    size_t len_bytes;
    FILE *out = open_memstream(&text, &len_bytes);

    write(&table, out);
    fclose(out);
    return text;
}

static void sample_is_complete_and_loads(void **state)
{
    char *sample = written(config_write_sample), *live = strdup(sample), name[64];
    struct settings *defaults = load_good(""), *config = load_good(sample);
    bool changed[ARRAY_LEN(keys)] = {0};

    config_diff(&table, defaults, config, mark_changed, changed);
    for (size_t i = 0; i < table.n_keys; i++) {
        assert_false(changed[i]);
        snprintf(name, sizeof(name), "\n#%s =", keys[i].name);
        assert_non_null(strstr(sample, name));
    }
    config_free(&table, config);
    assert_non_null(
        strstr(sample, "\n# (duration, between 1ms and 1min; a reload applies it)\n#slo = 500ms\n"));
    assert_non_null(strstr(sample, "\n# Objective.\n# Second line.\n"));
    for (char *line = strtok(sample, "\n"); line != NULL; line = strtok(NULL, "\n"))
        assert_true(strlen(line) <= 80);

    /* Uncommenting the defaults does not change the configuration. */
    for (char *at = live; (at = strstr(at, "\n#")) != NULL; at++)
        if (at[2] != ' ')
            memmove(at + 1, at + 2, strlen(at + 2) + 1);
    config = load_good(live);
    config_diff(&table, defaults, config, mark_changed, changed);
    for (size_t i = 0; i < table.n_keys; i++)
        assert_false(changed[i]);
    config_free(&table, config);
    config_free(&table, defaults);
    free(sample);
    free(live);
}

static void dump_reads_back(void **state)
{
    struct settings *config =
        load_good("[model]\nrouter =\nfile = /x y\n[kv]\nheadroom = 33.3%\nslo = 1.5s\n");
    bool changed[ARRAY_LEN(keys)] = {0};
    char *text = NULL;
    size_t len_bytes;
    FILE *out = open_memstream(&text, &len_bytes);

    config_write_dump(&table, config, out);
    fclose(out);
    assert_non_null(strstr(text, "\n[kv]\n# default\nmemory = 1GiB\n# test.conf:6\nslo = 1500ms\n"));
    assert_non_null(strstr(text, "\n# test.conf:2\nrouter =\n"));
    struct settings *again = load_good(text);
    config_diff(&table, config, again, mark_changed, changed);
    for (size_t i = 0; i < table.n_keys; i++)
        assert_false(changed[i]);
    config_free(&table, config);
    config_free(&table, again);
    free(text);
}

static void manual_is_safe_roff(void **state)
{
    char *manual = written(config_write_manual);

    assert_non_null(
        strstr(manual, ".Ss [model]\n.Bl -tag -width Ds\n.It Cm file\n\\&.Leading dot and back\\eslash.\n"));
    assert_non_null(strstr(manual, "Default: none\n"));
    assert_string_equal(manual + strlen(manual) - 4, ".El\n");
    free(manual);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_fill_everything),
        cmocka_unit_test(values_have_their_types),
        cmocka_unit_test(addresses),
        cmocka_unit_test(every_error_is_collected),
        cmocka_unit_test(slips_are_named),
        cmocka_unit_test(hostile_bytes_are_refused_not_shown),
        cmocka_unit_test_setup_teardown(later_files_win, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(findings_name_the_place, make_folder, remove_folder),
        cmocka_unit_test(missing_files_and_bad_overrides),
        cmocka_unit_test(diff_names_what_changed),
        cmocka_unit_test(a_reload_keeps_what_wants_a_restart),
        cmocka_unit_test(sample_is_complete_and_loads),
        cmocka_unit_test(dump_reads_back),
        cmocka_unit_test(manual_is_safe_roff),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
