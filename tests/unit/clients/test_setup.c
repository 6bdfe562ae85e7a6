/* SPDX-License-Identifier: Apache-2.0 */
/* What baton-setup decides for hosts of many kinds, and how it writes it down. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/check.h"
#include "base/err.h"
#include "base/str.h"
#include "clients/setup/steps.h"

#define GIB ((uint64_t)1 << 30)

static struct setup_plan plan;

static struct setup_host small_host(unsigned n_cpus)
{
    struct setup_host host = {
        .n_cpus = n_cpus, .memory_bytes = 64 * GIB, .available_bytes = 60 * GIB, .n_nodes = 1};

    host.nodes[0].n_cpus = n_cpus;
    snprintf(host.nodes[0].cpus, sizeof(host.nodes[0].cpus), "0-%u", n_cpus - 1);
    return host;
}

static struct setup_host large_host(unsigned n_nodes)
{
    struct setup_host host = {
        .n_cpus = 32 * n_nodes, .available_bytes = 250 * GIB * n_nodes, .n_nodes = n_nodes};

    host.memory_bytes = 256 * GIB * n_nodes;
    for (unsigned i = 0; i < n_nodes; i++) {
        host.nodes[i] = (struct setup_node){.id = i, .n_cpus = 32, .memory_bytes = 256 * GIB};
        snprintf(host.nodes[i].cpus, sizeof(host.nodes[i].cpus), "%u-%u", 32 * i, 32 * i + 31);
    }
    return host;
}

static struct setup_wish wish_for(enum setup_role role)
{
    struct setup_wish wish = {.role = role, .folder = "/etc/baton"};

    if (role != SETUP_ROUTER) {
        str_copy(wish.model.path, sizeof(wish.model.path), "/srv/model.gguf");
        wish.model.file_bytes = 8 * GIB;
        wish.model.kv_token_bytes = 131072;
    }
    if (role == SETUP_PREFILL || role == SETUP_DECODE) {
        wish.routers[wish.n_routers++] = "10.0.0.1:8090";
        wish.address = "10.0.0.7";
    }
    return wish;
}

static const char *value_of(unsigned file, const char *section, const char *key)
{
    for (unsigned i = 0; i < plan.files[file].n_lines; i++)
        if (strcmp(plan.files[file].lines[i].section, section) == 0 &&
            strcmp(plan.files[file].lines[i].key, key) == 0)
            return plan.files[file].lines[i].value;
    return "(none)";
}

static void few_cores_get_one_worker(void **state)
{
    struct setup_host host = small_host(2);
    struct setup_wish wish = wish_for(SETUP_ALL);

    (void)state;
    assert_int_equal(setup_decide(&host, &wish, NULL, &plan), 0);
    assert_int_equal(plan.n_files, 2);
    assert_string_equal(plan.files[0].name, "router.conf");
    assert_string_equal(plan.files[1].unit, "baton-decode@0");
    assert_string_equal(value_of(1, "node", "role"), "both");
    assert_string_equal(value_of(1, "engine", "threads"), "2");
    assert_string_equal(value_of(1, "link", "routers"), "127.0.0.1:8090");
}

static void more_cores_get_a_pair(void **state)
{
    struct setup_host host = small_host(16);
    struct setup_wish wish = wish_for(SETUP_ALL);

    (void)state;
    assert_int_equal(setup_decide(&host, &wish, NULL, &plan), 0);
    assert_int_equal(plan.n_files, 3);
    assert_string_equal(plan.files[1].name, "prefill-0.conf");
    assert_string_equal(plan.files[2].name, "decode-0.conf");
    assert_string_equal(value_of(1, "engine", "threads"), "8"); /* 15 together: one is left to the rest */
    assert_string_equal(value_of(2, "engine", "threads"), "7");
    assert_string_equal(value_of(2, "engine", "cpus"), "(none)");
    assert_string_equal(value_of(2, "engine", "numa"), "(none)");
    assert_string_equal(value_of(0, "placement", "roles"), "(none)");
    /* (60 - 2 * 8 - 6) * 3 / 4 / 2 = 14.25 GiB */
    assert_string_equal(value_of(1, "kv", "memory"), "14.25GiB");
}

static void each_node_gets_a_worker(void **state)
{
    struct setup_host host = large_host(4);
    struct setup_wish wish = wish_for(SETUP_ALL);

    (void)state;
    wish.n_prefill = 3;
    assert_int_equal(setup_decide(&host, &wish, NULL, &plan), 0);
    assert_int_equal(plan.n_files, 5);
    assert_string_equal(plan.files[3].name, "prefill-2.conf");
    assert_string_equal(plan.files[4].name, "decode-0.conf");
    assert_string_equal(value_of(2, "engine", "cpus"), "32-62");
    assert_string_equal(value_of(1, "engine", "numa"), "node:0");
    assert_string_equal(value_of(2, "engine", "numa"), "node:1");
    assert_string_equal(value_of(2, "engine", "threads"), "31");
    assert_string_equal(value_of(0, "placement", "roles"), "auto");
    assert_string_not_equal(value_of(1, "http", "listen"), value_of(2, "http", "listen"));
    wish.n_prefill = 4;
    assert_int_equal(setup_decide(&host, &wish, NULL, &plan), E_INVAL);
    host.has_quota = true; /* pinning would fight with the quota */
    wish.n_prefill = 0;
    assert_int_equal(setup_decide(&host, &wish, NULL, &plan), 0);
    assert_string_equal(value_of(1, "engine", "cpus"), "(none)");
}

static void workers_of_a_second_host_are_reachable(void **state)
{
    struct setup_host host = small_host(16);
    struct setup_wish wish = wish_for(SETUP_DECODE);

    (void)state;
    wish.name = "gpu";
    assert_int_equal(setup_decide(&host, &wish, NULL, &plan), 0);
    assert_int_equal(plan.n_files, 1);
    assert_string_equal(plan.files[0].name, "decode-gpu.conf");
    assert_string_equal(value_of(0, "link", "routers"), "10.0.0.1:8090");
    assert_string_equal(value_of(0, "link", "listen"), "10.0.0.7:8094");
    assert_string_equal(value_of(0, "kv", "tcp_listen"), "10.0.0.7:8104");
    assert_string_equal(value_of(0, "http", "admin"), "127.0.0.1:8085");
    wish.address = "fd00::7";
    assert_int_equal(setup_decide(&host, &wish, NULL, &plan), 0);
    assert_string_equal(value_of(0, "link", "listen"), "[fd00::7]:8094");
}

static bool is_above_9000(void *arg, unsigned port)
{
    (void)arg;
    return port > 9000;
}

static void taken_ports_are_passed_over(void **state)
{
    struct setup_host host = small_host(8);
    struct setup_wish wish = wish_for(SETUP_ALL);
    char seen[16][32];
    unsigned n = 0;

    (void)state;
    wish.is_free = is_above_9000;
    assert_int_equal(setup_decide(&host, &wish, NULL, &plan), 0);
    for (unsigned file = 0; file < plan.n_files; file++)
        for (unsigned i = 0; i < plan.files[file].n_lines; i++) {
            const struct setup_line *line = &plan.files[file].lines[i];

            if (strcmp(line->key, "listen") != 0 && strcmp(line->key, "admin") != 0)
                continue;
            for (unsigned j = 0; j < n; j++)
                assert_string_not_equal(seen[j], line->value);
            snprintf(seen[n++], sizeof(seen[0]), "%.31s", line->value);
            assert_true(atoi(strchr(line->value, ':') + 1) > 9000);
            assert_non_null(strstr(line->why, "is taken"));
        }
    assert_int_equal(n, 9);
    assert_string_equal(value_of(1, "link", "routers"), value_of(0, "link", "listen"));
}

static void a_chosen_port_is_no_other_daemons(void **state)
{
    static const char *const chosen[] = {"127.0.0.1:8081", "0.0.0.0:8090", "[::1]:8082", "*:8095"};
    struct setup_host host = small_host(8);
    struct setup_wish wish = wish_for(SETUP_ALL);

    (void)state;
    wish.address = "10.0.0.7";
    for (size_t i = 0; i < ARRAY_LEN(chosen); i++) {
        unsigned n = 0;

        wish.http = chosen[i];
        assert_int_equal(setup_decide(&host, &wish, NULL, &plan), 0);
        assert_string_equal(value_of(0, "http", "listen"), chosen[i]);
        for (unsigned file = 0; file < plan.n_files; file++)
            for (unsigned j = 0; j < plan.files[file].n_lines; j++) {
                const char *port = strrchr(plan.files[file].lines[j].value, ':');

                n += port != NULL && strcmp(port, strrchr(chosen[i], ':')) == 0;
            }
        assert_int_equal(n, 1);
    }
}

static void a_model_that_does_not_fit_is_refused(void **state)
{
    struct setup_host host = small_host(4);
    struct setup_wish wish = wish_for(SETUP_ALL);
    struct fault fault;

    (void)state;
    host.available_bytes = 16 * GIB;
    assert_int_equal(setup_decide(&host, &wish, &fault, &plan), E_FULL);
    assert_non_null(strstr(fault.text, "16GiB"));
    wish.kv_memory_bytes = GIB;
    assert_int_equal(setup_decide(&host, &wish, NULL, &plan), 0);
    assert_string_equal(value_of(1, "kv", "memory"), "1GiB");
    wish.model.path[0] = '\0';
    assert_int_equal(setup_decide(&host, &wish, &fault, &plan), E_INVAL);
    wish = wish_for(SETUP_DECODE);
    wish.n_routers = 0;
    assert_int_equal(setup_decide(&host, &wish, &fault, &plan), E_INVAL);
    assert_non_null(strstr(fault.text, "--router"));
}

static void text_has_each_reason_above_its_setting(void **state)
{
    struct setup_file file = {.daemon = "baton-decode", .title = "A test.", .n_lines = 3};
    struct buf text = {0};

    (void)state;
    file.lines[0] = (struct setup_line){.section = "kv", .key = "memory", .value = "1GiB", .why = "First."};
    file.lines[1] = (struct setup_line){.section = "link", .key = "routers", .value = "a:1", .why = ""};
    file.lines[2] = (struct setup_line){.section = "kv", .key = "type", .value = "f16", .why = "Second."};
    assert_int_equal(setup_render(&file, &text), 0);
    assert_non_null(
        strstr((const char *)text.data,
               "\n[kv]\n# First.\nmemory = 1GiB\n# Second.\ntype = f16\n\n[link]\nrouters = a:1\n"));
    buf_clear(&text);
    setup_wrap("one two three fourteenletters", "# ", 10, &text);
    assert_string_equal((const char *)text.data, "# one two\n# three\n# fourteenletters\n");
    buf_fini(&text);
}

static void put_file(const char *root, const char *path, const char *text)
{
    char all[512];
    FILE *file;

    snprintf(all, sizeof(all), "%s/%s", root, path);
    for (char *at = all + strlen(root) + 1; *at != '\0'; at++)
        if (*at == '/') {
            *at = '\0';
            mkdir(all, 0700);
            *at = '/';
        }
    file = fopen(all, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void a_host_is_read_from_its_files(void **state)
{
    char root[] = "/tmp/baton-setup.XXXXXX", command[64], kept[SETUP_CPUS_BYTES];
    struct setup_host host;

    (void)state;
    assert_non_null(mkdtemp(root));
    put_file(root, "proc/meminfo", "MemTotal:       2048 kB\nMemAvailable:   1024 kB\n");
    put_file(root, "sys/devices/system/node/node0/cpulist", "0-4095\n");
    put_file(root, "sys/devices/system/node/node0/meminfo", "Node 0 MemTotal:        512 kB\n");
    put_file(root, "sys/devices/system/node/node1/cpulist", "\n"); /* memory without CPUs */
    put_file(root, "sys/class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE\n");
    put_file(root, "sys/class/infiniband/mlx5_0/ports/1/link_layer", "Ethernet\n");
    put_file(root, "sys/class/infiniband/mlx5_0/ports/1/rate", "100 Gb/sec (4X EDR)\n");
    put_file(root, "sys/class/infiniband/mlx5_1/ports/1/state", "1: DOWN\n");
    setup_look(root, &host);
    assert_int_equal(host.memory_bytes, 2048 * 1024);
    assert_int_equal(host.available_bytes, 1024 * 1024);
    assert_int_equal(host.n_nodes, 1);
    assert_int_equal(host.nodes[0].memory_bytes, 512 * 1024);
    assert_true(host.nodes[0].n_cpus >= host.n_cpus);
    assert_int_equal(host.n_rails, 1);
    assert_non_null(strstr(host.rails[0], "mlx5_0:1 (Ethernet, 100 Gb"));
    put_file(root, "proc/self/cgroup", "0::/\n");
    put_file(root, "sys/fs/cgroup/memory.max", "1572864\n"); /* in a container its limit counts */
    put_file(root, "sys/fs/cgroup/memory.stat", "anon 1048576\nfile 400000\n");
    setup_look(root, &host);
    assert_int_equal(host.memory_bytes, 1536 * 1024);
    assert_int_equal(host.available_bytes, 512 * 1024);
    setup_look("/nowhere", &host);
    assert_int_equal(host.n_nodes, 0);
    assert_int_equal(setup_cpus_keep("0-3,8,10-12", 5, kept), 5);
    assert_string_equal(kept, "0-3,8");
    assert_true(setup_cpus_keep("x", 5, kept) < 0);
    snprintf(command, sizeof(command), "rm -r %s", root);
    assert_int_equal(system(command), 0);
}

/* A systemctl on the PATH that keeps its arguments, and fails for one unit. */
static void units_are_started_in_order(void **state)
{
    char root[] = "/tmp/baton-setup.XXXXXX", path[64], said[512] = "", command[64];
    char *before = strdup(getenv("PATH"));
    struct setup_host host = small_host(8);
    struct setup_wish wish = wish_for(SETUP_ALL);
    struct fault fault = {0};
    FILE *file;

    (void)state;
    assert_int_equal(setup_decide(&host, &wish, NULL, &plan), 0);
    assert_non_null(mkdtemp(root));
    put_file(root, "systemctl",
             "#!/bin/sh\necho \"$*\" >>\"${0%/*}/log\"\ncase $3 in *fails) exit 1 ;; esac\n");
    snprintf(path, sizeof(path), "%s/systemctl", root);
    assert_int_equal(chmod(path, 0700), 0);
    setenv("PATH", "/nowhere", 1);
    assert_int_equal(setup_start(&plan, &fault), E_PEER);
    assert_non_null(strstr(fault.text, "no systemd"));
    setenv("PATH", root, 1);
    assert_int_equal(setup_start(&plan, &fault), 0);
    str_copy(plan.files[1].unit, sizeof(plan.files[1].unit), "baton-prefill@fails");
    assert_int_equal(setup_start(&plan, &fault), E_PEER);
    assert_non_null(strstr(fault.text, "journalctl -u baton-prefill@fails"));
    setenv("PATH", before, 1);
    free(before);
    snprintf(path, sizeof(path), "%s/log", root);
    file = fopen(path, "r");
    assert_non_null(file);
    said[fread(said, 1, sizeof(said) - 1, file)] = '\0';
    fclose(file);
    assert_string_equal(
        said, "enable --quiet baton.target\nenable --now baton-router\nenable --now baton-prefill@0\nenable "
              "--now baton-decode@0\n"
              "enable --quiet baton.target\nenable --now baton-router\nenable --now baton-prefill@fails\n");
    snprintf(command, sizeof(command), "rm -r %s", root);
    assert_int_equal(system(command), 0);
}

static void a_model_that_units_cannot_see_is_named(void **state)
{
    struct setup_model model = {.path = "/home/me/model.gguf"};
    char why[700] = "", root[] = "/var/baton-setup.XXXXXX";

    (void)state;
    assert_true(setup_model_is_hidden(&model, why, sizeof(why)));
    assert_non_null(strstr(why, "cannot see /home"));
    str_copy(model.path, sizeof(model.path), "/srv/missing.gguf");
    assert_false(setup_model_is_hidden(&model, why, sizeof(why)));
    if (mkdtemp(root) == NULL)
        skip(); /* no right to write there */
    snprintf(model.path, sizeof(model.path), "%s/model.gguf", root);
    put_file(root, "model.gguf", "x");
    chmod(model.path, 0640);
    assert_true(setup_model_is_hidden(&model, why, sizeof(why)));
    assert_non_null(strstr(why, "chmod o+r"));
    chmod(model.path, 0644);
    assert_false(setup_model_is_hidden(&model, why, sizeof(why)));
    unlink(model.path);
    rmdir(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(few_cores_get_one_worker),
        cmocka_unit_test(more_cores_get_a_pair),
        cmocka_unit_test(each_node_gets_a_worker),
        cmocka_unit_test(workers_of_a_second_host_are_reachable),
        cmocka_unit_test(taken_ports_are_passed_over),
        cmocka_unit_test(a_chosen_port_is_no_other_daemons),
        cmocka_unit_test(a_model_that_does_not_fit_is_refused),
        cmocka_unit_test(text_has_each_reason_above_its_setting),
        cmocka_unit_test(a_host_is_read_from_its_files),
        cmocka_unit_test(units_are_started_in_order),
        cmocka_unit_test(a_model_that_units_cannot_see_is_named),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
