/* SPDX-License-Identifier: Apache-2.0 */
/* The CPU quota that control groups set for this process. */
#ifndef BASE_CPU_QUOTA_PRIV_H
#define BASE_CPU_QUOTA_PRIV_H

/* Returns the CPU quota of a process, rounded up.  The file membership (/proc/PID/cgroup) lists its groups.
 * The tightest quota of its group and all parent groups counts.  The hierarchies are mounted under mount
 * ("/sys/fs/cgroup").  0: no limit, or no readable limit. */
unsigned cpu_quota(const char *membership, const char *mount);

#endif
