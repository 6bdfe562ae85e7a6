/* SPDX-License-Identifier: Apache-2.0 */
/* The CPUs that this process may use, and their name.
 *
 * The affinity mask is read once, from the main thread, before any thread pins itself: a pinned thread would
 * see a machine with one CPU.  A control group's quota (cpu_quota.c) limits how many of these CPUs get a
 * thread. cpu_x86.c, cpu_arm.c and cpu_other.c detect instruction sets. */
#include "base/cpu.h"
#include "base/cgroup.h"
#include "base/cpu_quota_priv.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/str.h"

enum { MAX_CPUS = 8192 };

struct cpu_mask {
    cpu_set_t bits[MAX_CPUS / CPU_SETSIZE];
};

static pthread_once_t mask_once = PTHREAD_ONCE_INIT;
static struct cpu_mask usable;
static unsigned quota; /* quota of our control group; 0: none */

static void read_mask(void)
{
    quota = cpu_quota(CGROUP_MEMBERSHIP, CGROUP_MOUNT);
    if (sched_getaffinity(getpid(), sizeof(usable), usable.bits) == 0)
        return;
    /* The machine has more CPUs than the mask holds, or a sandbox forbids the call.  Then assume CPUs 0, 1,
     * 2 and so on. */
    long n_online = sysconf(_SC_NPROCESSORS_ONLN);
    for (long cpu = 0; cpu < n_online && cpu < MAX_CPUS; cpu++)
        CPU_SET_S((size_t)cpu, sizeof(usable), usable.bits);
}

bool cpu_is_usable(int cpu)
{
    pthread_once(&mask_once, read_mask);
    return cpu >= 0 && cpu < MAX_CPUS && CPU_ISSET_S((size_t)cpu, sizeof(usable), usable.bits);
}

unsigned cpu_count_usable(void)
{
    pthread_once(&mask_once, read_mask);
    unsigned n = (unsigned)CPU_COUNT_S(sizeof(usable), usable.bits);
    if (quota > 0 && quota < n)
        n = quota;
    return n > 0 ? n : 1;
}

int cpu_pin_self(int cpu)
{
    struct cpu_mask one;

    if (!cpu_is_usable(cpu))
        return E_INVAL;
    memset(&one, 0, sizeof(one));
    CPU_SET_S((size_t)cpu, sizeof(one), one.bits);
    return sched_setaffinity(0, sizeof(one), one.bits) == 0 ? 0 : E_INVAL;
}

int cpu_confine(pthread_t thread, const int *cpus, size_t n)
{
    struct cpu_mask some;

    memset(&some, 0, sizeof(some));
    for (size_t i = 0; i < n; i++)
        if (cpu_is_usable(cpus[i]))
            CPU_SET_S((size_t)cpus[i], sizeof(some), some.bits);
    return pthread_setaffinity_np(thread, sizeof(some), some.bits) == 0 ? 0 : E_INVAL;
}

/* "3" or "0-3" */
static int parse_range(struct bytes text, uint64_t *first, uint64_t *last)
{
    size_t dash = bytes_find(text, bytes_str("-"), 0);
    size_t head_bytes = dash == SIZE_MAX ? text.len_bytes : dash;

    if (str_to_u64(bytes_of(text.data, head_bytes), first) != 0)
        return E_FORMAT;
    *last = *first;
    if (dash != SIZE_MAX && str_to_u64(bytes_of(text.data + dash + 1, text.len_bytes - dash - 1), last) != 0)
        return E_FORMAT;
    return *first <= *last && *last < MAX_CPUS ? 0 : E_FORMAT;
}

int cpu_list_parse(struct bytes text, int *cpus_out, size_t cap)
{
    size_t n = 0, at = 0;

    if (text.len_bytes == 0)
        return E_FORMAT;
    for (;;) {
        size_t comma = bytes_find(text, bytes_str(","), at);
        size_t end = comma == SIZE_MAX ? text.len_bytes : comma;
        uint64_t first, last;

        if (parse_range(bytes_of(text.data + at, end - at), &first, &last) != 0)
            return E_FORMAT;
        for (uint64_t cpu = first; cpu <= last; cpu++) {
            if (n == cap)
                return E_FORMAT;
            cpus_out[n++] = (int)cpu;
        }
        if (comma == SIZE_MAX)
            return (int)n;
        at = comma + 1;
    }
}

static pthread_once_t name_once = PTHREAD_ONCE_INIT;
static char model_name[128] = "unknown";

static void read_model_name(void)
{
    FILE *file = fopen("/proc/cpuinfo", "re");
    char line[512];

    if (file == NULL)
        return;
    while (fgets(line, sizeof(line), file) != NULL) {
        char *colon = strchr(line, ':');

        if (strncmp(line, "model name", 10) != 0 || colon == NULL)
            continue;
        colon += 1 + strspn(colon + 1, " \t");
        colon[strcspn(colon, "\n")] = '\0';
        if (*colon != '\0')
            str_copy(model_name, sizeof(model_name), colon);
        break;
    }
    fclose(file);
}

const char *cpu_model_name(void)
{
    pthread_once(&name_once, read_model_name);
    return model_name;
}
