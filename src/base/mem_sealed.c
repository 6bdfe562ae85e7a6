/* SPDX-License-Identifier: Apache-2.0 */
/* The memory is a memfd. Its first page holds a mark and the number of bytes, so that other descriptors are refused. A
 * memfd with a writable mapping cannot be sealed. So the seal replaces the maker's writable mapping by a private, read-only
 * one at the same address. A private mapping that is only read shares its pages. */
#include "base/mem_sealed.h"

#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "base/file.h"

enum { SEALED_HEAD_BYTES = 4096, SEALED_ALIGN_BYTES = 4096 };
#define SEALED_MARK   UINT64_C(0x6465736c65736142)
#define SEALED_HUGE   ((size_t)2 << 20)
#define SEALED_SEALS  (F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE)
#define SEALED_SYSTEM "/sys/kernel/mm/transparent_hugepage/shmem_enabled"

struct sealed_head {
    uint64_t mark, n_bytes; /* n_bytes includes the head */
};

struct mem_sealed {
    int fd;
    bool is_sealed, is_attached;
    char *base;
    size_t cap_bytes; /* mapped */
    size_t at_bytes;  /* where the next piece begins */
};

static size_t sealed_round(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}

int mem_sealed_new(size_t max_bytes, const char *name, struct mem_sealed **out)
{
    struct mem_sealed *arena = calloc(1, sizeof(*arena));

    if (arena == NULL || max_bytes > SIZE_MAX / 4)
        goto fail;
    *arena = (struct mem_sealed){.cap_bytes = sealed_round(max_bytes + SEALED_HEAD_BYTES, SEALED_HUGE),
                                 .at_bytes = SEALED_HEAD_BYTES};
    arena->fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (arena->fd < 0)
        goto fail;
    if (ftruncate(arena->fd, (off_t)arena->cap_bytes) == 0)
        arena->base =
            mmap(NULL, arena->cap_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, arena->fd, 0);
    if (arena->base == NULL || arena->base == MAP_FAILED) {
        close(arena->fd);
        goto fail;
    }
    madvise(arena->base, arena->cap_bytes, MADV_HUGEPAGE);
    madvise(arena->base, arena->cap_bytes, MADV_DONTDUMP);
    *out = arena;
    return 0;

fail:
    free(arena);
    return E_NOMEM;
}

int mem_sealed_attach(int fd, struct mem_sealed **out)
{
    struct mem_sealed *arena = calloc(1, sizeof(*arena));
    struct sealed_head head = {0};
    struct stat info;
    int rc = arena == NULL ? E_NOMEM : E_MISMATCH, seals = fcntl(fd, F_GET_SEALS);

    if (arena == NULL || seals < 0 || (seals & SEALED_SEALS) != SEALED_SEALS || fstat(fd, &info) != 0 ||
        pread(fd, &head, sizeof(head), 0) != (ssize_t)sizeof(head) || head.mark != SEALED_MARK ||
        head.n_bytes < SEALED_HEAD_BYTES || (uint64_t)info.st_size != head.n_bytes)
        goto fail;
    *arena = (struct mem_sealed){.fd = fd,
                                 .is_sealed = true,
                                 .is_attached = true,
                                 .cap_bytes = (size_t)head.n_bytes,
                                 .at_bytes = SEALED_HEAD_BYTES};
    arena->base = mmap(NULL, arena->cap_bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    if (arena->base == MAP_FAILED) {
        rc = E_NOMEM;
        goto fail;
    }
    madvise(arena->base, arena->cap_bytes, MADV_HUGEPAGE);
    madvise(arena->base, arena->cap_bytes, MADV_DONTDUMP);
    *out = arena;
    return 0;

fail:
    close(fd);
    free(arena);
    return rc;
}

int mem_sealed_take(struct mem_sealed *arena, size_t len_bytes, void **out)
{
    size_t at = sealed_round(arena->at_bytes, len_bytes >= SEALED_HUGE ? SEALED_HUGE : SEALED_ALIGN_BYTES);

    if (at > arena->cap_bytes || len_bytes > arena->cap_bytes - at)
        return E_FULL;
    *out = arena->base + at;
    arena->at_bytes = at + len_bytes;
    return 0;
}

bool mem_sealed_is_filled(const struct mem_sealed *arena)
{
    return arena->is_attached;
}

int mem_sealed_seal(struct mem_sealed *arena)
{
    size_t used_bytes = sealed_round(arena->at_bytes, (size_t)sysconf(_SC_PAGESIZE));
    struct sealed_head head = {.mark = SEALED_MARK, .n_bytes = used_bytes};

    if (arena->is_sealed)
        return 0;
    memcpy(arena->base, &head, sizeof(head));
    if (mmap(arena->base, used_bytes, PROT_READ, MAP_PRIVATE | MAP_FIXED, arena->fd, 0) == MAP_FAILED)
        return E_NOMEM;
    madvise(arena->base, used_bytes, MADV_HUGEPAGE);
    madvise(arena->base, used_bytes, MADV_DONTDUMP);
    if (arena->cap_bytes > used_bytes)
        munmap(arena->base + used_bytes, arena->cap_bytes - used_bytes);
    arena->cap_bytes = used_bytes;
    if (ftruncate(arena->fd, (off_t)used_bytes) != 0 || fcntl(arena->fd, F_ADD_SEALS, SEALED_SEALS) != 0)
        return E_IO;
    arena->is_sealed = true;
    return 0;
}

int mem_sealed_fd(const struct mem_sealed *arena)
{
    return arena->is_sealed ? arena->fd : -1;
}

size_t mem_sealed_bytes(const struct mem_sealed *arena)
{
    return arena->at_bytes - SEALED_HEAD_BYTES;
}

void mem_sealed_free(struct mem_sealed *arena)
{
    if (arena == NULL)
        return;
    munmap(arena->base, arena->cap_bytes);
    close(arena->fd);
    free(arena);
}

bool mem_sealed_gets_huge_pages(void)
{
    const char *why = NULL;
    FILE *file = file_open(SEALED_SYSTEM, &why);
    char line[128] = "";

    if (file == NULL)
        return false;
    if (fgets(line, sizeof(line), file) == NULL)
        line[0] = '\0';
    fclose(file);
    return strstr(line, "[always]") != NULL || strstr(line, "[advise]") != NULL ||
           strstr(line, "[within_size]") != NULL || strstr(line, "[force]") != NULL;
}
