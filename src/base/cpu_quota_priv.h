/* SPDX-License-Identifier: Apache-2.0 */
/* The CPU time that control groups leave to this process. */
#ifndef BASE_CPU_QUOTA_PRIV_H
#define BASE_CPU_QUOTA_PRIV_H

/* CPUs, rounded up, that the process named in membership (a /proc/PID/cgroup) may use, by its own group and
 * all above it, with the hierarchies mounted under mount ("/sys/fs/cgroup").  0: no limit, or none that can
 * be read. */
unsigned cpu_quota(const char *membership, const char *mount);

#endif
