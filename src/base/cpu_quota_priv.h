/* SPDX-License-Identifier: Apache-2.0 */
/* The CPU quota that control groups set for this process. */
#ifndef BASE_CPU_QUOTA_PRIV_H
#define BASE_CPU_QUOTA_PRIV_H

/* Returns the quota in CPUs, rounded up, of the process whose group list is the file membership
 * (/proc/PID/cgroup).  The tightest quota of its group and all parent groups counts.  The hierarchies are
 * mounted under mount ("/sys/fs/cgroup"). 0: no limit, or no readable limit. */
unsigned cpu_quota(const char *membership, const char *mount);

#endif
