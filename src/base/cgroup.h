/* SPDX-License-Identifier: Apache-2.0 */
/* The control groups of a process: a container or a service of systemd is one.  Parsers of their files, and a walk from a
 * process' group up to the mount. */
#ifndef BASE_CGROUP_H
#define BASE_CGROUP_H

#include <stdint.h>

#include "base/bytes.h"

/* Where the kernel shows the groups of this process, and where it mounts their files. */
#define CGROUP_MEMBERSHIP "/proc/self/cgroup"
#define CGROUP_MOUNT      "/sys/fs/cgroup"

/* Reads a line of CGROUP_MEMBERSHIP, "4:cpu,cpuacct:/docker/0a1b".  Returns the version of its hierarchy if that may have the
 * controller ("cpu"): 2 or 1, and *group_out is a part of the line: the path, or empty for the mount itself.  Returns 0 for
 * another line. */
int cgroup_line_parse(struct bytes line, const char *controller, struct bytes *group_out);

/* Reads a limit in bytes; blanks and a line end may follow.  UINT64_MAX: "max", or not a number: no limit. */
uint64_t cgroup_limit_parse(struct bytes text);

/* Sums up the memory that memory.stat counts as taken for good: of no file (swap and the kernel's own are left out). */
uint64_t cgroup_stat_parse(struct bytes text, int version);

/* Visits a group of a process and all groups above it, up to the mount: dir is the group's folder. */
typedef void cgroup_visit_fn(void *arg, int version, const char *dir);
void cgroup_walk(const char *membership, const char *mount, const char *controller, cgroup_visit_fn *visit,
                 void *arg);

#endif
