/* SPDX-License-Identifier: Apache-2.0 */
/* The memory that a process can have here, for checks before memory is taken. The kernel gives a process more than there is,
 * and ends it when it uses that.  In a control group it does so at the group's limit:
 *
 *     version 2   memory.max and memory.swap.max                         memory, and swap beside it
 *     version 1   memory.limit_in_bytes, memory.memsw.limit_in_bytes     memory, and both together
 *
 * A group has at most the machine's swap.  The kernel may be built, or the group be set up, without a limit on swap. */
#include "base/mem_machine.h"

#include <stdio.h>
#include <sys/sysinfo.h>

#include "base/cgroup.h"
#include "base/file.h"

struct mem_group {
    uint64_t swap_bytes;
    uint64_t least_bytes; /* UINT64_MAX: no limit so far */
};

static uint64_t group_limit(const char *dir, const char *name)
{
    char path[4096 + 256 + 64], line[64];

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    return file_read_line(path, line, sizeof(line)) ? cgroup_limit_parse(bytes_str(line)) : UINT64_MAX;
}

static uint64_t mem_lesser(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t mem_sum(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

static void group_visit(void *arg, int version, const char *dir)
{
    struct mem_group *group = arg;
    uint64_t bytes;

    if (version == 2)
        bytes = mem_sum(group_limit(dir, "memory.max"),
                        mem_lesser(group_limit(dir, "memory.swap.max"), group->swap_bytes));
    else
        bytes = mem_lesser(mem_sum(group_limit(dir, "memory.limit_in_bytes"), group->swap_bytes),
                           group_limit(dir, "memory.memsw.limit_in_bytes"));
    group->least_bytes = mem_lesser(group->least_bytes, bytes);
}

uint64_t mem_group_bytes(const char *membership, const char *mount, uint64_t swap_bytes)
{
    struct mem_group group = {.swap_bytes = swap_bytes, .least_bytes = UINT64_MAX};

    cgroup_walk(membership, mount, "memory", group_visit, &group);
    return group.least_bytes;
}

static void free_visit(void *arg, int version, const char *dir)
{
    uint64_t *free_bytes = arg, taken_bytes = 0;
    uint64_t limit = group_limit(dir, version == 2 ? "memory.max" : "memory.limit_in_bytes");
    char path[4096 + 256 + 64], stat[8192];
    FILE *file;

    if (limit == UINT64_MAX)
        return;
    snprintf(path, sizeof(path), "%s/memory.stat", dir);
    file = fopen(path, "re");
    if (file != NULL) {
        taken_bytes = cgroup_stat_parse(bytes_of(stat, fread(stat, 1, sizeof(stat), file)), version);
        fclose(file);
    }
    *free_bytes = mem_lesser(*free_bytes, limit > taken_bytes ? limit - taken_bytes : 0);
}

uint64_t mem_group_free_bytes(const char *membership, const char *mount)
{
    uint64_t free_bytes = UINT64_MAX;

    cgroup_walk(membership, mount, "memory", free_visit, &free_bytes);
    return free_bytes;
}

struct mem_machine mem_machine_get(void)
{
    struct mem_machine machine = {UINT64_MAX, "this machine's memory and swap", ""};
    uint64_t swap_bytes = 0, group_bytes;
    struct sysinfo info;

    if (sysinfo(&info) == 0) {
        swap_bytes = (uint64_t)info.totalswap * info.mem_unit;
        machine.bytes = (uint64_t)info.totalram * info.mem_unit + swap_bytes;
    }
    group_bytes = mem_group_bytes(CGROUP_MEMBERSHIP, CGROUP_MOUNT, swap_bytes);
    if (group_bytes < machine.bytes)
        machine = (struct mem_machine){group_bytes, "the memory and swap of its container or service",
                                       " (raise its limit: docker run --memory, resources.limits.memory of a "
                                       "pod, MemoryMax= of a unit)"};
    return machine;
}
