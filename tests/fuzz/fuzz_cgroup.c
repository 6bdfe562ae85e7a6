/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: what the kernel says about control groups.  The input is a list of groups, a limit and a memory.stat. */
#include "base/cgroup.h"

#include "base/check.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A group is part of its line, and never leads above the mount. */
static void check_line(struct bytes line)
{
    static const char *const controllers[] = {"cpu", "memory"};

    for (unsigned i = 0; i < 2; i++) {
        struct bytes group = {0};
        int version = cgroup_line_parse(line, controllers[i], &group);

        ASSERT(version >= 0 && version <= 2);
        if (version == 0 || group.len_bytes == 0)
            continue;
        ASSERT(group.data > line.data && group.data + group.len_bytes == line.data + line.len_bytes);
        ASSERT(group.data[0] == '/' && bytes_find(group, bytes_str("/.."), 0) == SIZE_MAX);
        ASSERT(version == 2 || bytes_find(line, bytes_str(controllers[i]), 0) != SIZE_MAX);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct bytes all = bytes_of(data, size);

    for (size_t at = 0; at < size;) {
        size_t lf = bytes_find(all, bytes_str("\n"), at), end = lf < size ? lf : size;

        check_line(bytes_of(data + at, end - at));
        at = end + 1;
    }
    if (cgroup_limit_parse(all) != UINT64_MAX)
        ASSERT(size > 0 && data[0] >= '0' && data[0] <= '9');
    for (int version = 1; version <= 2; version++)
        if (cgroup_stat_parse(all, version) > 0)
            ASSERT(bytes_find(all, bytes_str(version == 1 ? "total_" : " "), 0) != SIZE_MAX);
    return 0;
}
