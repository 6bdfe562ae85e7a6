/* SPDX-License-Identifier: Apache-2.0 */
/* CPU quotas of control groups.  A container of two CPUs on a machine with 64 has an affinity mask of 64.
 * If threads span all of them, the kernel stops them all for most of each period.
 *
 *     /proc/self/cgroup     0::/system.slice/baton.service          version 2
 *                           4:cpu,cpuacct:/docker/0a1b              version 1
 *
 *     version 2   MOUNT/GROUP/cpu.max                   "150000 100000" or "max 100000"
 *     version 1   MOUNT/cpu/GROUP/cpu.cfs_quota_us      150000, or -1
 *                 MOUNT/cpu/GROUP/cpu.cfs_period_us     100000
 *
 * The quotas of parent groups bind a group too, so the tightest one up to the mount counts.  In a container
 * the path may name a group that is not mounted there.  Then the quota of the mount itself counts, which is
 * the container's own group.  A quota of one and a half CPUs gets two threads: the second is stopped half of
 * the time, and its work in the other half is a gain. */
#include "base/cpu_quota_priv.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/str.h"

enum { MAX_PATH = 4096, MAX_LINE = MAX_PATH + 256 };

/* Reads the first line of DIR/NAME without its newline.  False when there is none. */
static bool read_line(const char *dir, const char *name, char line[128])
{
    char path[MAX_LINE];

    if (snprintf(path, sizeof(path), "%s/%s", dir, name) >= (int)sizeof(path))
        return false;
    return file_read_line(path, line, 128);
}

/* quota / period, rounded up. 0: not a number, such as "max", or "-1". */
static unsigned cpus_of(const char *quota_text, const char *period_text)
{
    uint64_t quota, period;

    if (str_to_u64(bytes_str(quota_text), &quota) < 0 || str_to_u64(bytes_str(period_text), &period) < 0 ||
        quota == 0 || period == 0)
        return 0;
    uint64_t n = quota / period + (quota % period != 0);
    return n > INT_MAX ? 0 : (unsigned)n;
}

static unsigned group_quota(const char *dir)
{
    char quota[128], period[128];

    if (read_line(dir, "cpu.max", quota)) {
        char *space = strchr(quota, ' ');

        if (space == NULL)
            return 0;
        *space = '\0';
        return cpus_of(quota, space + 1);
    }
    if (!read_line(dir, "cpu.cfs_quota_us", quota) || !read_line(dir, "cpu.cfs_period_us", period))
        return 0;
    return cpus_of(quota, period);
}

/* The smallest quota of a group and its parents; does not go above root. */
static unsigned least_quota(const char *root, const char *group)
{
    char dir[MAX_LINE];
    size_t root_bytes = strlen(root);
    unsigned least = 0;

    if (snprintf(dir, sizeof(dir), "%s%s", root, group) >= (int)sizeof(dir))
        return 0;
    for (;;) {
        unsigned n = group_quota(dir);
        char *slash = strrchr(dir, '/');

        if (n > 0 && (least == 0 || n < least))
            least = n;
        if (slash == NULL || (size_t)(slash - dir) < root_bytes)
            return least;
        *slash = '\0';
    }
}

/* True if a list of controllers ("cpu,cpuacct") contains the one for CPU time. */
static bool has_cpu(const char *controllers)
{
    for (const char *at = controllers; at != NULL; at = strchr(at, ',')) {
        at += *at == ',';
        if (strncmp(at, "cpu", 3) == 0 && (at[3] == ',' || at[3] == '\0'))
            return true;
    }
    return false;
}

unsigned cpu_quota(const char *membership, const char *mount)
{
    FILE *file = fopen(membership, "re");
    char line[MAX_LINE], root[MAX_PATH];
    unsigned least = 0;

    if (file == NULL)
        return 0;
    while (fgets(line, sizeof(line), file) != NULL) {
        char *controllers = strchr(line, ':'), *group = controllers ? strchr(controllers + 1, ':') : NULL;

        if (group == NULL)
            continue;
        *controllers++ = '\0';
        *group++ = '\0';
        group[strcspn(group, "\n")] = '\0';
        if (*controllers != '\0' && !has_cpu(controllers))
            continue;
        snprintf(root, sizeof(root), "%s%s", mount, *controllers == '\0' ? "" : "/cpu");
        unsigned n = least_quota(root, strcmp(group, "/") == 0 || strstr(group, "/..") ? "" : group);
        if (n > 0 && (least == 0 || n < least))
            least = n;
    }
    fclose(file);
    return least;
}
