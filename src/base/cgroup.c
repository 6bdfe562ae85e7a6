/* SPDX-License-Identifier: Apache-2.0 */
/* Control groups, as the kernel shows them to a process.
 *
 *     /proc/self/cgroup     0::/system.slice/baton.service          version 2
 *                           4:cpu,cpuacct:/docker/0a1b              version 1
 *
 *     version 2   MOUNT/GROUP/cpu.max, memory.max ...
 *     version 1   MOUNT/cpu/GROUP/cpu.cfs_quota_us, MOUNT/memory/GROUP/memory.limit_in_bytes ...
 *
 * The limits of groups above bind a group too, so a walk goes up to the mount.  In a container the path may name a group that
 * is not mounted there.  Then the mount itself is the container's own group, and the walk ends there. */
#include "base/cgroup.h"

#include <stdio.h>
#include <string.h>

#include "base/str.h"

enum { CGROUP_PATH_BYTES = 4096, CGROUP_LINE_BYTES = CGROUP_PATH_BYTES + 256 };

/* True if a list of controllers ("cpu,cpuacct") contains one. */
static bool has_controller(struct bytes list, const char *controller)
{
    for (size_t at = 0; at <= list.len_bytes;) {
        size_t comma = bytes_find(list, bytes_str(","), at);
        size_t end = comma < list.len_bytes ? comma : list.len_bytes;

        if (bytes_is(bytes_of(list.data + at, end - at), controller))
            return true;
        at = end + 1;
    }
    return false;
}

int cgroup_line_parse(struct bytes line, const char *controller, struct bytes *group_out)
{
    size_t first = bytes_find(line, bytes_str(":"), 0), second;
    struct bytes list, group;

    if (first == SIZE_MAX)
        return 0;
    second = bytes_find(line, bytes_str(":"), first + 1);
    if (second == SIZE_MAX || memchr(line.data, '\0', line.len_bytes) != NULL)
        return 0;
    list = bytes_of(line.data + first + 1, second - first - 1);
    if (list.len_bytes > 0 && !has_controller(list, controller))
        return 0;
    group = bytes_of(line.data + second + 1, line.len_bytes - second - 1);
    /* A group outside our namespace of groups ("/../x") is not below the mount. */
    if (!bytes_starts_with(group, "/") || group.len_bytes == 1 ||
        bytes_find(group, bytes_str("/.."), 0) != SIZE_MAX)
        group.len_bytes = 0;
    *group_out = group;
    return list.len_bytes > 0 ? 1 : 2;
}

uint64_t cgroup_limit_parse(struct bytes text)
{
    uint64_t limit;

    while (text.len_bytes > 0 && strchr(" \n", text.data[text.len_bytes - 1]) != NULL)
        text.len_bytes--;
    return str_to_u64(text, &limit) == 0 ? limit : UINT64_MAX;
}

uint64_t cgroup_stat_parse(struct bytes text, int version)
{
    static const char *const names[][2] = {{"total_rss ", "total_shmem "}, {"anon ", "shmem "}};
    uint64_t sum = 0, value;

    for (size_t at = 0; at < text.len_bytes;) {
        size_t lf = bytes_find(text, bytes_str("\n"), at);
        size_t end = lf < text.len_bytes ? lf : text.len_bytes;
        struct bytes line = bytes_of(text.data + at, end - at);

        for (unsigned i = 0; i < 2; i++) {
            const char *name = names[version - 1][i];
            size_t n = strlen(name);

            if (bytes_starts_with(line, name) &&
                str_to_u64(bytes_of(line.data + n, line.len_bytes - n), &value) == 0)
                sum = value > UINT64_MAX - sum ? UINT64_MAX : sum + value;
        }
        at = end + 1;
    }
    return sum;
}

/* Visits the group and those above it; does not go above root. */
static void walk_up(const char *root, struct bytes group, int version, cgroup_visit_fn *visit, void *arg)
{
    char dir[CGROUP_LINE_BYTES];
    size_t root_bytes = strlen(root);

    if (snprintf(dir, sizeof(dir), "%s%.*s", root, (int)group.len_bytes, (const char *)group.data) >=
        (int)sizeof(dir))
        return;
    for (;;) {
        char *slash = strrchr(dir, '/');

        visit(arg, version, dir);
        if (slash == NULL || (size_t)(slash - dir) < root_bytes)
            return;
        *slash = '\0';
    }
}

void cgroup_walk(const char *membership, const char *mount, const char *controller, cgroup_visit_fn *visit,
                 void *arg)
{
    FILE *file = fopen(membership, "re");
    char line[CGROUP_LINE_BYTES], root[CGROUP_PATH_BYTES];

    if (file == NULL)
        return;
    while (fgets(line, sizeof(line), file) != NULL) {
        struct bytes group;
        int version = cgroup_line_parse(bytes_of(line, strcspn(line, "\n")), controller, &group);

        if (version == 0)
            continue;
        snprintf(root, sizeof(root), "%s%s%s", mount, version == 1 ? "/" : "",
                 version == 1 ? controller : "");
        walk_up(root, group, version, visit, arg);
    }
    fclose(file);
}
