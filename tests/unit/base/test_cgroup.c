/* SPDX-License-Identifier: Apache-2.0 */
/* Limits of control groups on CPU time and memory, read from folders that imitate the kernel's. */
#include "tests/unit/check.h"

#include "base/cpu.h"
#include "base/cgroup.h"
#include "base/cpu_quota_priv.h"
#include "base/mem_machine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct fake {
    char dir[64], membership[128], mount[128];
};

static void put(const struct fake *fake, const char *path, const char *text)
{
    char whole[512];
    FILE *file;

    snprintf(whole, sizeof(whole), "%s/%s", fake->dir, path);
    for (char *slash = whole + strlen(fake->dir) + 1; (slash = strchr(slash, '/')) != NULL; slash++) {
        *slash = '\0';
        mkdir(whole, 0700);
        *slash = '/';
    }
    file = fopen(whole, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static int set_up(void **state)
{
    static struct fake fake;

    strcpy(fake.dir, "/tmp/test_cgroup.XXXXXX");
    if (mkdtemp(fake.dir) == NULL)
        return -1;
    snprintf(fake.membership, sizeof(fake.membership), "%s/self", fake.dir);
    snprintf(fake.mount, sizeof(fake.mount), "%s/mount", fake.dir);
    *state = &fake;
    return 0;
}

static int tear_down(void **state)
{
    struct fake *fake = *state;
    char command[128];

    snprintf(command, sizeof(command), "rm -r %s", fake->dir);
    return system(command);
}

static void version_2_is_read(void **state)
{
    struct fake *fake = *state;

    put(fake, "self", "0::/a.slice/b.service\n");
    assert_int_equal(cpu_quota(fake->membership, fake->mount), 0); /* no file system is mounted */
    put(fake, "mount/a.slice/b.service/cpu.max", "max 100000\n");
    assert_int_equal(cpu_quota(fake->membership, fake->mount), 0);
    put(fake, "mount/a.slice/b.service/cpu.max", "300000 100000\n");
    assert_int_equal(cpu_quota(fake->membership, fake->mount), 3);
    put(fake, "mount/a.slice/b.service/cpu.max", "150000 100000\n");
    assert_int_equal(cpu_quota(fake->membership, fake->mount), 2);
    put(fake, "mount/a.slice/b.service/cpu.max", "5000 100000\n");
    assert_int_equal(cpu_quota(fake->membership, fake->mount), 1);
}

static void groups_above_count_too(void **state)
{
    struct fake *fake = *state;

    put(fake, "self", "0::/a.slice/b.service\n");
    put(fake, "mount/a.slice/b.service/cpu.max", "800000 100000\n");
    put(fake, "mount/a.slice/cpu.max", "400000 100000\n");
    assert_int_equal(cpu_quota(fake->membership, fake->mount), 4);
    put(fake, "mount/cpu.max", "200000 100000\n"); /* a container's own group */
    assert_int_equal(cpu_quota(fake->membership, fake->mount), 2);
    put(fake, "cpu.max", "100000 100000\n"); /* above the mount point: must not be read */
    assert_int_equal(cpu_quota(fake->membership, fake->mount), 2);
}

static void version_1_is_read(void **state)
{
    struct fake *fake = *state;

    put(fake, "self", "5:memory:/x\n4:cpu,cpuacct:/docker/0a1b\n3:cpuset:/docker/0a1b\n");
    put(fake, "mount/cpu/docker/0a1b/cpu.cfs_quota_us", "-1\n");
    put(fake, "mount/cpu/docker/0a1b/cpu.cfs_period_us", "100000\n");
    assert_int_equal(cpu_quota(fake->membership, fake->mount), 0);
    put(fake, "mount/cpu/docker/0a1b/cpu.cfs_quota_us", "250000\n");
    assert_int_equal(cpu_quota(fake->membership, fake->mount), 3);
    put(fake, "mount/cpu/cpu.cfs_quota_us", "50000\n");
    put(fake, "mount/cpu/cpu.cfs_period_us", "50000\n");
    assert_int_equal(cpu_quota(fake->membership, fake->mount), 1);
}

static void nonsense_is_no_limit(void **state)
{
    static const char *const texts[] = {"",         "\n",      "max",   "100000",
                                        "100000 0", "0 10",    "-5 10", "99999999999999999999 1",
                                        "1e5 100",  " 100 100"};
    struct fake *fake = *state;

    put(fake, "self", "no colons\n0:/\n0::/g\n");
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        put(fake, "mount/g/cpu.max", texts[i]);
        assert_int_equal(cpu_quota(fake->membership, fake->mount), 0);
    }
    assert_int_equal(cpu_quota("/nonexistent/self", fake->mount), 0);
    put(fake, "mount/g/cpu.max", "200 100\n");
    put(fake, "self", "0::/../../g\n"); /* a group outside our namespace */
    assert_int_equal(cpu_quota(fake->membership, fake->mount), 0);
}

static uint64_t memory(const struct fake *fake, uint64_t swap_bytes)
{
    return mem_group_bytes(fake->membership, fake->mount, swap_bytes);
}

static void memory_of_version_2_is_read(void **state)
{
    struct fake *fake = *state;

    put(fake, "self", "0::/a.slice/b.service\n");
    assert_true(memory(fake, 0) == UINT64_MAX); /* no file system is mounted */
    put(fake, "mount/a.slice/b.service/memory.max", "max\n");
    assert_true(memory(fake, 0) == UINT64_MAX);
    put(fake, "mount/a.slice/b.service/memory.max", "3000\n");
    assert_int_equal(memory(fake, 0), 3000);
    assert_int_equal(memory(fake, 500), 3500); /* no limit on swap: the machine's */
    put(fake, "mount/a.slice/b.service/memory.swap.max", "max\n");
    assert_int_equal(memory(fake, 500), 3500);
    put(fake, "mount/a.slice/b.service/memory.swap.max", "200\n");
    assert_int_equal(memory(fake, 500), 3200);
    put(fake, "mount/a.slice/b.service/memory.swap.max", "0\n");
    assert_int_equal(memory(fake, 500), 3000);
    put(fake, "mount/a.slice/memory.max", "2000\n"); /* the group above, without a limit on swap */
    assert_int_equal(memory(fake, 500), 2500);
    put(fake, "mount/memory.max", "1000\n"); /* a container's own group */
    put(fake, "self", "0::/absent/here\n");
    assert_int_equal(memory(fake, 0), 1000);
    put(fake, "memory.max", "10\n"); /* above the mount point: must not be read */
    assert_int_equal(memory(fake, 0), 1000);
}

static void memory_of_version_1_is_read(void **state)
{
    struct fake *fake = *state;

    put(fake, "self", "5:memory:/docker/0a1b\n4:cpu,cpuacct:/x\n0::/\n");
    put(fake, "mount/cpu/x/memory.limit_in_bytes", "1\n"); /* another controller's folder */
    put(fake, "mount/memory/docker/0a1b/memory.limit_in_bytes", "9223372036854771712\n");
    assert_true(memory(fake, 1) >= 9223372036854771712U); /* no limit: more than any machine has */
    put(fake, "mount/memory/docker/0a1b/memory.limit_in_bytes", "3000\n");
    assert_int_equal(memory(fake, 500), 3500);
    put(fake, "mount/memory/docker/0a1b/memory.memsw.limit_in_bytes", "3100\n");
    assert_int_equal(memory(fake, 500), 3100);
    assert_int_equal(memory(fake, 0), 3000);
    put(fake, "mount/memory/memory.limit_in_bytes", "2000\n");
    assert_int_equal(memory(fake, 0), 2000);
}

/* Pages of files count as free. */
static void free_memory_is_what_is_not_taken(void **state)
{
    struct fake *fake = *state;

    put(fake, "self", "0::/g\n");
    assert_true(mem_group_free_bytes(fake->membership, fake->mount) == UINT64_MAX);
    put(fake, "mount/g/memory.max", "3000\n");
    assert_int_equal(mem_group_free_bytes(fake->membership, fake->mount), 3000);
    put(fake, "mount/g/memory.stat", "anon 700\nfile 900\nshmem 100\nanon_thp 600\n");
    assert_int_equal(mem_group_free_bytes(fake->membership, fake->mount), 2200);
    put(fake, "mount/g/memory.max", "600\n");
    assert_int_equal(mem_group_free_bytes(fake->membership, fake->mount), 0);
    put(fake, "self", "5:memory:/g\n");
    put(fake, "mount/memory/g/memory.limit_in_bytes", "3000\n");
    put(fake, "mount/memory/g/memory.stat", "cache 900\nrss 5\nshmem 6\ntotal_rss 700\ntotal_shmem 100\n");
    assert_int_equal(mem_group_free_bytes(fake->membership, fake->mount), 2200);
}

static void nonsense_is_no_limit_of_memory(void **state)
{
    static const char *const texts[] = {"", "\n", "max", "-1", "1e5", " 5", "99999999999999999999", "0x10"};
    struct fake *fake = *state;

    put(fake, "self", "no colons\n0:/\n0::/g\n");
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        put(fake, "mount/g/memory.max", texts[i]);
        assert_true(memory(fake, 0) == UINT64_MAX);
    }
    assert_true(mem_group_bytes("/nonexistent/self", fake->mount, 0) == UINT64_MAX);
}

/* This machine's own: not more than it has. */
static void the_machine_has_memory(void **state)
{
    struct mem_machine machine = mem_machine_get();

    (void)state;
    assert_true(machine.bytes > 1 << 20 && machine.name[0] != '\0');
    assert_true(machine.bytes <= mem_group_bytes(CGROUP_MEMBERSHIP, CGROUP_MOUNT, UINT64_MAX / 2));
}

static void at_least_one_is_usable(void **state)
{
    unsigned quota = cpu_quota("/proc/self/cgroup", "/sys/fs/cgroup");

    (void)state;
    assert_true(cpu_count_usable() >= 1);
    if (quota > 0)
        assert_true(cpu_count_usable() <= quota);
}

#define FAKE_TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        FAKE_TEST(version_2_is_read),
        FAKE_TEST(groups_above_count_too),
        FAKE_TEST(version_1_is_read),
        FAKE_TEST(nonsense_is_no_limit),
        FAKE_TEST(memory_of_version_2_is_read),
        FAKE_TEST(memory_of_version_1_is_read),
        FAKE_TEST(free_memory_is_what_is_not_taken),
        FAKE_TEST(nonsense_is_no_limit_of_memory),
        cmocka_unit_test(the_machine_has_memory),
        cmocka_unit_test(at_least_one_is_usable),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
