/* SPDX-License-Identifier: Apache-2.0 */
/* A node is a folder nodeN with a file cpulist ("0-3,8", or an empty line for a node without CPUs). */
#include "base/numa.h"

#include <linux/mempolicy.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cpu.h"
#include "base/err.h"
#include "base/file.h"

enum { NUMA_MAX_CPUS = 8192, NUMA_MAX_LINE = 16384, NUMA_LONG_BITS = 8 * sizeof(unsigned long) };

struct numa_mask { /* for the kernel, which reads one bit less than the number that it gets */
    unsigned long bits[NUMA_MAX_IDS / NUMA_LONG_BITS + 1];
};

/* Adds a node if this process may use one of its CPUs. */
static int numa_add_node(int id, const char *cpulist, struct numa_topology *topology)
{
    int *cpus = malloc(NUMA_MAX_CPUS * sizeof(*cpus)), n, n_usable = 0;

    if (cpus == NULL)
        return E_NOMEM;
    n = cpu_list_parse(bytes_str(cpulist), cpus, NUMA_MAX_CPUS);
    for (int i = 0; i < n; i++)
        if (cpu_is_usable(cpus[i]))
            cpus[n_usable++] = cpus[i];
    if (n_usable > 0 && topology->n_nodes < NUMA_MAX_NODES) {
        topology->nodes[topology->n_nodes++] = (struct numa_node){.id = id, .cpus = cpus, .n_cpus = n_usable};
        return 0;
    }
    free(cpus);
    return n < 0 ? E_FORMAT : n_usable > 0 ? E_LIMIT : 0;
}

int numa_topology_read(const char *folder, struct numa_topology *out)
{
    struct numa_topology topology = {0};
    char path[4096], *line = malloc(NUMA_MAX_LINE);
    int rc = line == NULL ? E_NOMEM : 0;

    for (int id = 0; id < NUMA_MAX_IDS && rc == 0; id++) {
        if (snprintf(path, sizeof(path), "%s/node%d/cpulist", folder, id) >= (int)sizeof(path))
            break;
        if (file_read_line(path, line, NUMA_MAX_LINE) && line[0] != '\0')
            rc = numa_add_node(id, line, &topology);
    }
    free(line);
    if (rc == 0 && topology.n_nodes == 0)
        rc = E_NOT_FOUND;
    if (rc == 0)
        *out = topology;
    else
        numa_topology_fini(&topology);
    return rc;
}

void numa_topology_fini(struct numa_topology *topology)
{
    for (unsigned i = 0; i < topology->n_nodes; i++)
        free(topology->nodes[i].cpus);
    *topology = (struct numa_topology){0};
}

static int numa_mask_of(int id, struct numa_mask *out)
{
    if (id < 0 || id >= NUMA_MAX_IDS)
        return E_UNSUPPORTED;
    memset(out, 0, sizeof(*out));
    out->bits[id / NUMA_LONG_BITS] = 1UL << id % NUMA_LONG_BITS;
    return 0;
}

int numa_place(void *base, size_t len_bytes, int id)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), from = (uintptr_t)base, to = from + len_bytes;
    struct numa_mask mask;

    from = (from + page - 1) / page * page;
    to = (to + page - 1) / page * page;
    if (numa_mask_of(id, &mask) < 0)
        return E_UNSUPPORTED;
    if (from >= to)
        return 0;
    return syscall(SYS_mbind, from, to - from, MPOL_PREFERRED, mask.bits, NUMA_MAX_IDS + 1, 0) == 0
               ? 0
               : E_UNSUPPORTED;
}

int numa_prefer(int id)
{
    struct numa_mask mask;

    if (numa_mask_of(id, &mask) < 0)
        return E_UNSUPPORTED;
    return syscall(SYS_set_mempolicy, MPOL_PREFERRED, mask.bits, NUMA_MAX_IDS + 1) == 0 ? 0 : E_UNSUPPORTED;
}

int numa_node_of(const void *address)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    const void *pages[1] = {(const void *)((uintptr_t)address / page * page)};
    int status[1] = {-1};

    if (syscall(SYS_move_pages, 0, 1UL, pages, NULL, status, 0) != 0)
        return E_UNSUPPORTED;
    return status[0] >= 0 ? status[0] : E_NOT_FOUND;
}

int numa_try(int id)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *at = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int rc;

    if (at == MAP_FAILED)
        return E_NOMEM;
    rc = numa_place(at, page, id);
    if (rc == 0) {
        *(volatile char *)at = 1;
        rc = numa_node_of(at) == id ? 0 : E_UNSUPPORTED;
    }
    munmap(at, page);
    return rc;
}
