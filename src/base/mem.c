/* SPDX-License-Identifier: Apache-2.0 */
/* Large memory from the kernel: KV arenas, weight buffers, shared-memory slabs.
 *
 * Lengths are rounded up to whole pages.  A region of 2 MiB or more starts at a huge-page boundary, and the
 * kernel is asked for huge pages; it is no error if it gives none.  The last huge page is whole if the
 * region is shareable or uses more than half of it.  Else the rest lies in small pages, because a huge one
 * would waste memory: a model has a hundred regions of a few MiB.  No region appears in a core dump, because
 * regions hold client data.
 *
 * To get the alignment, the code reserves more address space than needed, without access.  It maps the
 * region at the first boundary inside and returns the rest:
 *
 *     reserve   |----x=================x---|     x: 2 MiB boundaries
 *     keep           [     region      ]
 *
 * A shareable region is a memfd with a sealed size.  So a peer that maps it knows that it never shrinks,
 * which would raise SIGBUS, and that no process can grow it. */
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/check.h"
#include "base/err.h"

#define HUGE_BYTES ((size_t)2 << 20)

static size_t round_up(size_t len_bytes, size_t unit_bytes)
{
    return (len_bytes + unit_bytes - 1) / unit_bytes * unit_bytes;
}

static size_t region_bytes(size_t len_bytes, bool is_shareable)
{
    size_t over_bytes = len_bytes % HUGE_BYTES;

    if (len_bytes >= HUGE_BYTES && (is_shareable || over_bytes > HUGE_BYTES / 2))
        return round_up(len_bytes, HUGE_BYTES);
    return round_up(len_bytes, (size_t)sysconf(_SC_PAGESIZE));
}

static int open_sealed(const char *name, size_t len_bytes)
{
    int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return -1;
    if (ftruncate(fd, (off_t)len_bytes) == 0 &&
        fcntl(fd, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) == 0)
        return fd;

    int why = errno;
    close(fd);
    errno = why;
    return -1;
}

/* Maps len_bytes at a multiple of align_bytes; NULL with errno on failure. */
static void *map_aligned(size_t len_bytes, size_t align_bytes, int fd)
{
    size_t spare_bytes = align_bytes - 1;
    char *reserved =
        mmap(NULL, len_bytes + spare_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (reserved == MAP_FAILED)
        return NULL;

    char *start = (char *)round_up((uintptr_t)reserved, align_bytes);
    int flags = MAP_FIXED | (fd >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS);
    void *base = mmap(start, len_bytes, PROT_READ | PROT_WRITE, flags, fd, 0);
    if (base == MAP_FAILED) {
        int why = errno;
        munmap(reserved, len_bytes + spare_bytes);
        errno = why;
        return NULL;
    }

    size_t page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    char *end = start + len_bytes;
    char *reserved_end = reserved + round_up(len_bytes + spare_bytes, page_bytes);
    if (start > reserved)
        munmap(reserved, (size_t)(start - reserved));
    if (reserved_end > end)
        munmap(end, (size_t)(reserved_end - end));
    return base;
}

/* Touches every page now.  The kernel reports missing memory as an error; a plain store would get the
 * process killed. */
static int mem_populate(void *base, size_t len_bytes)
{
    if (madvise(base, len_bytes, MADV_POPULATE_WRITE) == 0)
        return 0;
    if (errno != EINVAL)
        return E_NOMEM;

    /* For kernels before 5.14. */
    size_t page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    for (size_t at = 0; at < len_bytes; at += page_bytes)
        ((volatile char *)base)[at] = 0;
    return 0;
}

int mem_region_open(size_t len_bytes, bool is_shareable, bool is_populated, const char *name,
                    struct mem_region *out)
{
    size_t align_bytes = len_bytes >= HUGE_BYTES ? HUGE_BYTES : (size_t)sysconf(_SC_PAGESIZE);

    if (len_bytes == 0 || len_bytes > SIZE_MAX / 4)
        return E_INVAL;
    struct mem_region region = {.len_bytes = region_bytes(len_bytes, is_shareable), .fd = -1};

    if (is_shareable) {
        region.fd = open_sealed(name, region.len_bytes);
        if (region.fd < 0)
            return E_NOMEM;
    }
    region.base = map_aligned(region.len_bytes, align_bytes, region.fd);
    if (region.base == NULL)
        goto fail;
    madvise(region.base, region.len_bytes, MADV_DONTDUMP);
    if (align_bytes == HUGE_BYTES)
        madvise(region.base, region.len_bytes, MADV_HUGEPAGE);
    if (is_populated && mem_populate(region.base, region.len_bytes) != 0)
        goto fail;
    *out = region;
    return 0;

fail:;
    int why = errno;
    mem_region_close(&region);
    errno = why;
    return E_NOMEM;
}

void mem_region_want_small_pages(const struct mem_region *region)
{
    madvise(region->base, region->len_bytes,
            MADV_NOHUGEPAGE); /* a wish: a kernel without huge pages refuses */
}

void mem_region_close(struct mem_region *region)
{
    if (region->base != NULL) {
        munmap(region->base, region->len_bytes);
        if (region->fd >= 0)
            close(region->fd);
    } else if (region->fd > 0) {
        close(region->fd); /* half-built: a zeroed struct has no descriptor */
    }
    *region = (struct mem_region){.fd = -1};
}

void *mem_aligned(size_t align, size_t len_bytes)
{
    ASSERT(align >= sizeof(void *) && (align & (align - 1)) == 0);
    if (len_bytes > SIZE_MAX / 2)
        return NULL;

    size_t whole_bytes = round_up(len_bytes == 0 ? 1 : len_bytes, align);
    void *memory = aligned_alloc(align, whole_bytes);
    if (memory != NULL)
        memset(memory, 0, whole_bytes);
    return memory;
}
