/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the hardware of a host from /proc and /sys.
 *
 * A NUMA node has only the CPUs that this process may use.  If a control group's quota is less than the CPUs of the
 * mask, pinning would conflict with the quota, so the nodes are left out. */
#include "clients/setup/setup.h"

#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cgroup.h"
#include "base/cpu.h"
#include "base/err.h"
#include "base/file.h"
#include "base/mem_machine.h"
#include "base/str.h"

enum { LOOK_MAX_CPUS = 4096, LOOK_PATH_BYTES = 512 };

/* The number behind a name of a file like /proc/meminfo, in bytes. 0: none. */
static uint64_t look_kib(const char *path, const char *name)
{
    FILE *file = fopen(path, "re");
    uint64_t found = 0;
    char line[256];

    if (file == NULL)
        return 0;
    while (fgets(line, sizeof(line), file) != NULL) {
        const char *at = strstr(line, name);

        if (at == NULL)
            continue;
        found = strtoull(at + strlen(name), NULL, 10) * 1024;
        break;
    }
    fclose(file);
    return found;
}

static void look_put_range(char *out, size_t cap, int first, int last)
{
    size_t at = strlen(out);
    const char *comma = at > 0 ? "," : "";

    if (first == last)
        snprintf(out + at, cap - at, "%s%d", comma, first);
    else
        snprintf(out + at, cap - at, "%s%d-%d", comma, first, last);
}

/* Writes sorted CPUs as ranges. */
static void look_put_cpus(const int *cpus, unsigned n, char out[SETUP_CPUS_BYTES])
{
    unsigned from = 0;

    out[0] = '\0';
    for (unsigned i = 1; i <= n; i++)
        if (i == n || cpus[i] != cpus[i - 1] + 1) {
            look_put_range(out, SETUP_CPUS_BYTES, cpus[from], cpus[i - 1]);
            from = i;
        }
}

int setup_cpus_keep(const char *cpus, unsigned n_kept, char out[SETUP_CPUS_BYTES])
{
    int *list = calloc(LOOK_MAX_CPUS, sizeof(*list));
    int n = list != NULL ? cpu_list_parse(bytes_str(cpus), list, LOOK_MAX_CPUS) : E_NOMEM;

    if (n > 0) {
        if ((unsigned)n > n_kept)
            n = (int)n_kept;
        look_put_cpus(list, (unsigned)n, out);
    }
    free(list);
    return n;
}

static void look_node(const char *folder, int number, struct setup_host *host)
{
    char path[LOOK_PATH_BYTES + 80], text[4096];
    struct setup_node *node = &host->nodes[host->n_nodes];
    int *cpus = calloc(LOOK_MAX_CPUS, sizeof(*cpus));
    int n = 0, n_usable = 0;

    snprintf(path, sizeof(path), "%s/node%d/cpulist", folder, number);
    (void)file_read_line(path, text, sizeof(text));
    if (cpus != NULL && text[0] != '\0')
        n = cpu_list_parse(bytes_str(text), cpus, LOOK_MAX_CPUS);
    for (int i = 0; i < n; i++)
        if (cpu_is_usable(cpus[i]))
            cpus[n_usable++] = cpus[i];
    if (n_usable > 0) {
        snprintf(path, sizeof(path), "%s/node%d/meminfo", folder, number);
        node->memory_bytes = look_kib(path, "MemTotal:");
        node->id = (unsigned)number;
        node->n_cpus = (unsigned)n_usable;
        look_put_cpus(cpus, node->n_cpus, node->cpus);
        host->n_nodes++;
    }
    free(cpus);
}

static void look_nodes(const char *root, struct setup_host *host)
{
    char folder[LOOK_PATH_BYTES];
    unsigned n_cpus = 0;

    snprintf(folder, sizeof(folder), "%s/sys/devices/system/node", root);
    for (int i = 0; i < 256 && host->n_nodes < SETUP_MAX_NODES; i++)
        look_node(folder, i, host);
    for (unsigned i = 0; i < host->n_nodes; i++)
        n_cpus += host->nodes[i].n_cpus;
    host->has_quota = n_cpus > host->n_cpus;
}

static void look_rail(const char *folder, const char *device, const char *port, struct setup_host *host)
{
    char path[LOOK_PATH_BYTES + 600], state[64], layer[64], rate[64];

    snprintf(path, sizeof(path), "%s/%s/ports/%s/state", folder, device, port);
    (void)file_read_line(path, state, sizeof(state));
    if (strstr(state, "ACTIVE") == NULL || host->n_rails == SETUP_MAX_RAILS)
        return;
    snprintf(path, sizeof(path), "%s/%s/ports/%s/link_layer", folder, device, port);
    (void)file_read_line(path, layer, sizeof(layer));
    snprintf(path, sizeof(path), "%s/%s/ports/%s/rate", folder, device, port);
    (void)file_read_line(path, rate, sizeof(rate));
    snprintf(host->rails[host->n_rails++], sizeof(host->rails[0]), "%.20s:%.4s (%.12s, %.20s)", device, port,
             layer[0] != '\0' ? layer : "?", rate[0] != '\0' ? rate : "?");
}

static void look_rails(const char *root, struct setup_host *host)
{
    char folder[LOOK_PATH_BYTES], ports[LOOK_PATH_BYTES + 300];
    DIR *devices;
    struct dirent *device, *port;

    snprintf(folder, sizeof(folder), "%s/sys/class/infiniband", root);
    devices = opendir(folder);
    while (devices != NULL && (device = readdir(devices)) != NULL) {
        DIR *list;

        if (device->d_name[0] == '.')
            continue;
        snprintf(ports, sizeof(ports), "%s/%.255s/ports", folder, device->d_name);
        list = opendir(ports);
        while (list != NULL && (port = readdir(list)) != NULL)
            if (isdigit((unsigned char)port->d_name[0]))
                look_rail(folder, device->d_name, port->d_name, host);
        if (list != NULL)
            closedir(list);
    }
    if (devices != NULL)
        closedir(devices);
}

static void look_kernels(char *out, size_t cap)
{
    const struct cpu_features *has = cpu_features_get();

    snprintf(out, cap, "%s%s%s%s%s%s",
             has->has_avx512    ? "AVX-512"
             : has->has_avx2    ? "AVX2"
             : has->has_arm_dot ? "NEON with dot products"
                                : "scalar",
             has->has_avx512_vnni || has->has_avx_vnni ? ", VNNI" : "", has->has_avx512_bf16 ? ", BF16" : "",
             has->has_amx_int8 ? ", AMX INT8" : "", has->has_amx_bf16 ? ", AMX BF16" : "",
             has->has_arm_i8mm ? ", I8MM" : "");
}

/* In a container or a service, what its groups allow counts. */
static void look_groups(const char *root, struct setup_host *host)
{
    char membership[LOOK_PATH_BYTES], mount[LOOK_PATH_BYTES];
    uint64_t bytes, free_bytes;

    snprintf(membership, sizeof(membership), "%s%s", root, CGROUP_MEMBERSHIP);
    snprintf(mount, sizeof(mount), "%s%s", root, CGROUP_MOUNT);
    bytes = mem_group_bytes(membership, mount, 0);
    free_bytes = mem_group_free_bytes(membership, mount);
    if (bytes < host->memory_bytes)
        host->memory_bytes = bytes;
    if (free_bytes < host->available_bytes)
        host->available_bytes = free_bytes;
}

void setup_look(const char *root, struct setup_host *out)
{
    char path[LOOK_PATH_BYTES];

    memset(out, 0, sizeof(*out));
    if (gethostname(out->name, sizeof(out->name) - 1) != 0)
        str_copy(out->name, sizeof(out->name), "this host");
    str_copy(out->cpu_model, sizeof(out->cpu_model), cpu_model_name());
    look_kernels(out->kernels, sizeof(out->kernels));
    out->n_cpus = cpu_count_usable();
    snprintf(path, sizeof(path), "%s/proc/meminfo", root);
    out->memory_bytes = look_kib(path, "MemTotal:");
    out->available_bytes = look_kib(path, "MemAvailable:");
    look_groups(root, out);
    look_nodes(root, out);
    look_rails(root, out);
}
