/* SPDX-License-Identifier: Apache-2.0 */
/* Memory nodes, read from folders that imitate the kernel's; and placement on the nodes that this machine has. */
#include "tests/unit/check.h"

#include "base/cpu.h"
#include "base/err.h"
#include "base/numa.h"
#include "base/team.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

static char folder[64];

static int set_up(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/test_numa.XXXXXX");
    return mkdtemp(folder) == NULL ? -1 : 0;
}

static int tear_down(void **state)
{
    char command[128];

    (void)state;
    snprintf(command, sizeof(command), "rm -r %s", folder);
    return system(command);
}

static void put_node(int id, const char *cpulist)
{
    char path[128];
    FILE *file;

    snprintf(path, sizeof(path), "%s/node%d", folder, id);
    mkdir(path, 0700);
    snprintf(path, sizeof(path), "%s/node%d/cpulist", folder, id);
    file = fopen(path, "w");
    assert_non_null(file);
    fprintf(file, "%s\n", cpulist);
    fclose(file);
}

static int usable_cpu(int after)
{
    int cpu = after + 1;

    while (cpu < 8192 && !cpu_is_usable(cpu))
        cpu++;
    return cpu;
}

/* Only usable CPUs count, and nodes without any are left out: memory without CPUs, and nodes of other processes. */
static void usable_nodes_are_read(void **state)
{
    struct numa_topology topology;
    int first = usable_cpu(-1), second = usable_cpu(first);
    char text[64];

    (void)state;
    put_node(0, "");
    snprintf(text, sizeof(text), "%d,8190-8191", first);
    put_node(3, text);
    put_node(7, "8189");
    snprintf(text, sizeof(text), "%d", second);
    if (second < 8192)
        put_node(200, text);
    assert_int_equal(numa_topology_read(folder, &topology), 0);
    assert_int_equal(topology.n_nodes, second < 8192 ? 2 : 1);
    assert_int_equal(topology.nodes[0].id, 3);
    assert_int_equal(topology.nodes[0].n_cpus, 1);
    assert_int_equal(topology.nodes[0].cpus[0], first);
    if (second < 8192) {
        assert_int_equal(topology.nodes[1].id, 200);
        assert_int_equal(topology.nodes[1].cpus[0], second);
    }
    numa_topology_fini(&topology);
    assert_int_equal(topology.n_nodes, 0);
}

static void bad_folders_are_named(void **state)
{
    struct numa_topology topology = {0};
    char text[64];

    (void)state;
    assert_int_equal(numa_topology_read("/nonexistent", &topology), E_NOT_FOUND);
    put_node(0, "8191");
    assert_int_equal(numa_topology_read(folder, &topology), E_NOT_FOUND);
    put_node(1, "0-");
    assert_int_equal(numa_topology_read(folder, &topology), E_FORMAT);
    snprintf(text, sizeof(text), "%d", usable_cpu(-1));
    for (int id = 0; id < NUMA_MAX_NODES; id++)
        put_node(id, text);
    assert_int_equal(numa_topology_read(folder, &topology), 0);
    assert_int_equal(topology.n_nodes, NUMA_MAX_NODES);
    numa_topology_fini(&topology);
    put_node(NUMA_MAX_NODES, text);
    assert_int_equal(numa_topology_read(folder, &topology), E_LIMIT);
    assert_int_equal(topology.n_nodes, 0);
}

static void missing_nodes_are_refused(void **state)
{
    static char memory[3 * 4096];

    (void)state;
    assert_int_equal(numa_place(memory, sizeof(memory), -1), E_UNSUPPORTED);
    assert_int_equal(numa_place(memory, sizeof(memory), NUMA_MAX_IDS), E_UNSUPPORTED);
    assert_int_equal(numa_place(memory, sizeof(memory), NUMA_MAX_IDS - 1), E_UNSUPPORTED);
    assert_int_equal(numa_prefer(NUMA_MAX_IDS - 1), E_UNSUPPORTED);
    assert_int_equal(numa_try(NUMA_MAX_IDS - 1), E_UNSUPPORTED);
}

/* On each node of this machine: pages come from the node that was asked for, and a thread's pages from its own. */
static void pages_are_placed(void **state)
{
    struct numa_topology topology;
    enum { PAGE = 4096, PAGES = 64 };

    (void)state;
    if (numa_topology_read(NUMA_FOLDER, &topology) < 0 || numa_try(topology.nodes[0].id) < 0) {
        print_message("this kernel places no memory\n");
        skip();
    }
    for (unsigned i = 0; i < topology.n_nodes; i++) {
        int id = topology.nodes[i].id;
        char *at = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

        assert_true(at != MAP_FAILED);
        assert_int_equal(numa_node_of(at), E_NOT_FOUND); /* never touched */
        assert_int_equal(numa_place(at, PAGES * PAGE / 2, id), 0);
        assert_int_equal(numa_prefer(topology.nodes[topology.n_nodes - 1].id), 0);
        memset(at, 1, PAGES * PAGE);
        for (int page = 0; page < PAGES; page++)
            assert_int_equal(numa_node_of(at + page * PAGE + 5),
                             page < PAGES / 2 ? id : topology.nodes[topology.n_nodes - 1].id);
        munmap(at, PAGES * PAGE);
    }
    print_message("%u node(s)\n", topology.n_nodes);
    numa_topology_fini(&topology);
}

static void note_rank(void *arg, unsigned rank, unsigned n_ranks)
{
    (void)n_ranks;
    ((int *)arg)[rank]++;
}

static void teams_have_nodes(void **state)
{
    int cpus[1] = {usable_cpu(-1)}, runs[5] = {0};
    struct team_node nodes[3] = {{.id = 4, .n_ranks = 2, .cpus = cpus, .n_cpus = 1}, {.id = 9, .n_ranks = 3}};
    struct team_opts opts = {.n_threads = 5, .nodes = nodes, .n_nodes = 2};
    struct team *team;

    (void)state;
    assert_int_equal(team_new(&opts, &team), 0);
    team_run(team, note_rank, runs);
    for (unsigned rank = 0; rank < 5; rank++) {
        assert_int_equal(runs[rank], 1);
        assert_int_equal(team_node_of(team, rank), rank >= 2);
    }
    assert_int_equal(team_n_nodes(team), 2);
    assert_int_equal(team_node_id(team, 1), 9);
    assert_int_equal(team_node_ranks(team, 1).first, 2);
    assert_int_equal(team_node_ranks(team, 1).n, 3);
    assert_false(team_is_mirrored(team));
    for (uint64_t n = 0; n < 40; n++)
        for (uint64_t grain = 1; grain <= 4; grain *= 2) {
            const struct team_range a = team_node_split(team, n, grain, 0),
                                    b = team_node_split(team, n, grain, 1);

            assert_true(a.from == 0 && a.to == b.from && b.to == n && (a.to % grain == 0 || a.to == n));
            assert_true(a.to <= n * 2 / 5 + grain);
        }
    team_free(team);
    nodes[1].n_ranks = 4; /* more than there are */
    assert_int_equal(team_new(&opts, &team), E_INVAL);
    nodes[1].n_ranks = 0;
    assert_int_equal(team_new(&opts, &team), E_INVAL);
    opts.n_nodes = TEAM_MAX_NODES + 1;
    assert_int_equal(team_new(&opts, &team), E_INVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(usable_nodes_are_read, set_up, tear_down),
        cmocka_unit_test_setup_teardown(bad_folders_are_named, set_up, tear_down),
        cmocka_unit_test(missing_nodes_are_refused),
        cmocka_unit_test(pages_are_placed),
        cmocka_unit_test(teams_have_nodes), /* last, because it confines this thread */
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
