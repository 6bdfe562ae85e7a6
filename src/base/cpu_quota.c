/* SPDX-License-Identifier: Apache-2.0 */
/* CPU quotas of control groups.  A container of two CPUs on a machine with 64 has an affinity mask of 64.
 * If threads span all of them, the kernel stops them all for most of each period.
 *
 *     version 2   cpu.max               "150000 100000" or "max 100000"
 *     version 1   cpu.cfs_quota_us      150000, or -1
 *                 cpu.cfs_period_us     100000
 *
 * The tightest quota up to the mount counts.  A quota of one and a half CPUs gets two threads: the second is stopped half of
 * the time, and its work in the other half is a gain. */
#include "base/cpu_quota_priv.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/cgroup.h"
#include "base/file.h"
#include "base/str.h"

/* Reads the first line of DIR/NAME without its newline.  False when there is none. */
static bool read_line(const char *dir, const char *name, char line[128])
{
    char path[4096 + 256 + 32];

    snprintf(path, sizeof(path), "%s/%s", dir, name);
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

static unsigned group_quota(const char *dir, int version)
{
    char quota[128], period[128];

    if (version == 2) {
        char *space = read_line(dir, "cpu.max", quota) ? strchr(quota, ' ') : NULL;

        if (space == NULL)
            return 0;
        *space = '\0';
        return cpus_of(quota, space + 1);
    }
    if (!read_line(dir, "cpu.cfs_quota_us", quota) || !read_line(dir, "cpu.cfs_period_us", period))
        return 0;
    return cpus_of(quota, period);
}

static void quota_visit(void *arg, int version, const char *dir)
{
    unsigned *least = arg, n = group_quota(dir, version);

    if (n > 0 && (*least == 0 || n < *least))
        *least = n;
}

unsigned cpu_quota(const char *membership, const char *mount)
{
    unsigned least = 0;

    cgroup_walk(membership, mount, "cpu", quota_visit, &least);
    return least;
}
