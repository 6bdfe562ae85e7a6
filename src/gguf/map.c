/* SPDX-License-Identifier: Apache-2.0 */
/* Opens a file: maps it read-only, then turns the map into a checked directory.
 *
 *     "GGUF"  version  n_tensors  n_keys | keys ... | tensor declarations ... | pad | tensor data ...
 *     4       u32      u64        u64
 *
 * Everything after the magic is checked before it is used.  A count must fit into the remaining bytes even
 * if every item had the smallest possible size, so the file's size limits our memory.  A length must fit
 * into the remaining bytes, and a tensor must end inside the file.  Versions 2 and 3 have the same layout.
 * Version 3 added big-endian files: their version number has its bytes swapped, and the error says so.
 *
 * The map lasts as long as the object.  If another process truncates the file meanwhile, the kernel raises
 * SIGBUS, which no check here can prevent.  So replace model files by renaming; never rewrite them in
 * place. */
#include "gguf/gguf_priv.h"

#include "base/err.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static int read_align(struct gguf *gguf, struct fault *fault)
{
    const struct gguf_key *key = gguf_find_key(gguf, bytes_str("general.alignment"));
    uint64_t align_bytes = GGUF_ALIGN_DEFAULT;

    if (key != NULL) {
        int rc = gguf_get_u64(gguf, "general.alignment", fault, &align_bytes);
        if (rc != 0)
            return rc;
        if (align_bytes < 8 || align_bytes > GGUF_ALIGN_MAX || (align_bytes & (align_bytes - 1)) != 0) {
            return fault_set(
                fault, E_FORMAT,
                "key 'general.alignment' at byte %zu: %llu is not a power of two between 8 and %u",
                (size_t)(key->entry.data - gguf->image.data), (unsigned long long)align_bytes,
                GGUF_ALIGN_MAX);
        }
    }
    gguf->align_bytes = (uint32_t)align_bytes;
    return 0;
}

static int check_count(const char *what, uint64_t count, uint64_t max, size_t fits, struct fault *fault)
{
    if (count > max)
        return fault_set(fault, E_LIMIT, "header at byte 0: %llu %s, the limit is %llu",
                         (unsigned long long)count, what, (unsigned long long)max);
    if (count > fits)
        return fault_set(fault, E_TRUNCATED, "header at byte 0: %llu %s cannot fit into the file",
                         (unsigned long long)count, what);
    return 0;
}

static int read_version(struct gguf *gguf, struct reader *reader, struct fault *fault)
{
    struct bytes magic = read_bytes(reader, 4);

    gguf->version = read_u32(reader);
    if (reader->is_bad)
        return fault_set(fault, E_TRUNCATED, "header at byte 0: the file has only %zu bytes",
                         reader->len_bytes);
    if (!bytes_is(magic, "GGUF"))
        return fault_set(fault, E_FORMAT, "header at byte 0: not a GGUF file%s", gguf_foreign(gguf->image));
    if ((gguf->version & 0xffff) == 0 && gguf->version != 0)
        return fault_set(fault, E_UNSUPPORTED,
                         "header at byte 4: a big-endian GGUF file; only little-endian ones can be read");
    if (gguf->version < GGUF_VERSION_OLDEST || gguf->version > GGUF_VERSION)
        return fault_set(fault, E_UNSUPPORTED,
                         "header at byte 4: GGUF version %u; versions %d and %d can be read", gguf->version,
                         GGUF_VERSION_OLDEST, GGUF_VERSION);
    return 0;
}

static int read_directory(struct gguf *gguf, struct fault *fault)
{
    struct reader reader = reader_of(gguf->image);

    int rc = read_version(gguf, &reader, fault);
    if (rc != 0)
        return rc;

    uint64_t n_tensors = read_u64(&reader);
    uint64_t n_keys = read_u64(&reader);
    if (reader.is_bad)
        return fault_set(fault, E_TRUNCATED, "header at byte 8: the file ends inside it");
    size_t left_bytes = reader.len_bytes - reader.at_bytes;
    rc = check_count("keys", n_keys, GGUF_MAX_KEYS, left_bytes / GGUF_KEY_MIN_BYTES, fault);
    if (rc == 0)
        rc = check_count("tensors", n_tensors, GGUF_MAX_TENSORS, left_bytes / GGUF_TENSOR_MIN_BYTES, fault);
    if (rc == 0)
        rc = gguf_read_keys(gguf, &reader, n_keys, fault);
    if (rc == 0)
        rc = read_align(gguf, fault);
    if (rc == 0)
        rc = gguf_read_tensors(gguf, &reader, n_tensors, fault);
    return rc;
}

int gguf_open_memory(struct bytes image, struct fault *fault, struct gguf **out)
{
    struct gguf *gguf = calloc(1, sizeof(*gguf));
    if (gguf == NULL)
        return fault_set(fault, E_NOMEM, "out of memory");
    gguf->image = image;

    int rc = read_directory(gguf, fault);
    if (rc != 0) {
        gguf_close(gguf);
        return rc;
    }
    *out = gguf;
    return 0;
}

static int map_file(int fd, struct fault *fault, struct bytes *out)
{
    struct stat status;

    if (fstat(fd, &status) != 0)
        return fault_set(fault, E_IO, "cannot look at the file: %s", strerror(errno));
    if (!S_ISREG(status.st_mode))
        return fault_set(fault, E_IO, "not a regular file");
    if (status.st_size == 0)
        return fault_set(fault, E_TRUNCATED, "header at byte 0: the file is empty");

    void *map = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (map == MAP_FAILED)
        return fault_set(fault, E_IO, "cannot map the file: %s", strerror(errno));
    *out = bytes_of(map, (size_t)status.st_size);
    return 0;
}

int gguf_open_file(const char *path, struct fault *fault, struct gguf **out)
{
    struct bytes image;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* opening a named pipe must not block */

    if (fd < 0)
        return fault_set(fault, errno == ENOENT ? E_NOT_FOUND : E_IO, "cannot open: %s", strerror(errno));
    int rc = map_file(fd, fault, &image);
    close(fd);
    if (rc != 0)
        return rc;

    rc = gguf_open_memory(image, fault, out);
    if (rc != 0) {
        munmap((void *)image.data, image.len_bytes);
        return rc;
    }
    (*out)->map = (void *)image.data;
    return 0;
}

void gguf_close(struct gguf *gguf)
{
    if (gguf == NULL)
        return;
    for (uint32_t i = 1; i < gguf->n_parts; i++)
        gguf_close(gguf->parts[i]);
    free(gguf->parts);
    for (uint32_t i = 0; gguf->keys != NULL && i < gguf->n_keys; i++)
        free(gguf->keys[i].item_at);
    free(gguf->keys);
    free(gguf->tensors);
    gguf_index_fini(&gguf->key_index);
    gguf_index_fini(&gguf->tensor_index);
    if (gguf->map != NULL)
        munmap(gguf->map, gguf->image.len_bytes);
    free(gguf);
}

void gguf_forget(const struct gguf *gguf, const struct gguf_tensor *tensor)
{
    uintptr_t page_bytes = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t from = ((uintptr_t)tensor->data + page_bytes - 1) / page_bytes * page_bytes;
    uintptr_t to = ((uintptr_t)tensor->data + tensor->len_bytes) / page_bytes * page_bytes;

    if (gguf->map != NULL && from < to)
        madvise((void *)from, to - from, MADV_DONTNEED);
}

uint64_t gguf_file_bytes(const struct gguf *gguf)
{
    uint64_t len_bytes = gguf->image.len_bytes;

    for (uint32_t i = 1; i < gguf->n_parts; i++)
        len_bytes += gguf->parts[i]->image.len_bytes;
    return len_bytes;
}

uint32_t gguf_part_count(const struct gguf *gguf)
{
    return gguf->n_parts > 1 ? gguf->n_parts : 1;
}
