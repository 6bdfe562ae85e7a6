/* SPDX-License-Identifier: Apache-2.0 */
/* Reading a folder when it is opened.
 *
 *     name not seg-*          left alone
 *     no head, or a bad one   deleted: no block in it can be found
 *     of another version      kept unread and evicted first: an operator who goes back to the version or
 *     or generation           model that wrote it finds its blocks again
 *     ours                    its table is read: a few KiB for many MiB of blocks
 *
 * Nothing is appended to a found segment (tier_record_priv.h says why).  If a block is in two segments, the
 * younger one counts.  The head has the tenant as a digest; the tenant's number becomes known at its next
 * request. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "cache/kv/tier_priv.h"

int tier_folder_open(const char *path, struct fault *fault)
{
    struct stat stat;
    int dir;

    if (mkdir(path, 0700) < 0 && errno != EEXIST)
        return fault_set(fault, E_IO, "cannot make %s: %s", path, strerror(errno));
    dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0)
        return fault_set(fault, E_IO, "cannot open %s: %s", path, strerror(errno));
    /* We do not change its mode: the operator may have named it by mistake. */
    if (fstat(dir, &stat) < 0 || (stat.st_mode & 077) != 0 || stat.st_uid != geteuid()) {
        close(dir);
        return fault_set(fault, E_AUTH, "%s must be this user's own, with mode 0700", path);
    }
    if (flock(dir, LOCK_EX | LOCK_NB) < 0) {
        close(dir);
        return fault_set(fault, E_EXISTS, "%s is in use by another worker", path);
    }
    return dir;
}

/* Reads n bytes from an offset; false: it cannot. */
static bool tier_scan_load(int fd, uint8_t *out, size_t n, uint64_t at)
{
    while (n > 0) {
        ssize_t got = pread(fd, out, n, (off_t)at);

        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return false;
        out += got;
        at += (uint64_t)got;
        n -= (size_t)got;
    }
    return true;
}

static int tier_scan_index_slot(struct kv_tier *tier, struct tier_segment *segment,
                                const struct tier_entry *entry)
{
    struct tier_slot *slot = &segment->slots[entry->slot];
    void *old = NULL;
    int rc;

    *slot = (struct tier_slot){.segment = segment, .entry = *entry};
    rc = hashmap_put(tier->index, &slot->entry.hash, slot, &old);
    if (rc < 0)
        return rc;
    if (old != NULL) {
        ((struct tier_slot *)old)->segment->n_there--;
        ((struct tier_slot *)old)->segment = NULL;
    }
    segment->n_there++;
    if (entry->written_unix_ns > segment->used_unix_ns)
        segment->used_unix_ns = entry->written_unix_ns;
    if (entry->pin_end_unix_ns > segment->pin_end_unix_ns)
        segment->pin_end_unix_ns = entry->pin_end_unix_ns;
    return 0;
}

/* Returns how many slots have their payloads within the file, which also bounds the memory for them. */
static uint32_t tier_scan_slots_in(const struct tier_head *head, uint64_t file_bytes)
{
    uint64_t n = file_bytes < tier_payload_at(head, 0)
                     ? 0
                     : (file_bytes - tier_payload_at(head, 0)) / head->payload_bytes;

    return n < head->n_slots ? (uint32_t)n : head->n_slots;
}

static int tier_scan_table(struct kv_tier *tier, struct tier_segment *segment, uint64_t file_bytes)
{
    uint32_t n_slots = tier_scan_slots_in(&segment->head, file_bytes);
    size_t table_bytes = (size_t)n_slots * TIER_ENTRY_BYTES;
    uint8_t *table = malloc(table_bytes > 0 ? table_bytes : 1);
    int rc = 0;

    segment->slots = calloc(n_slots > 0 ? n_slots : 1, sizeof(*segment->slots));
    if (table == NULL || segment->slots == NULL) {
        free(table);
        return E_NOMEM;
    }
    if (tier_scan_load(segment->fd, table, table_bytes, TIER_TABLE_AT)) {
        for (uint32_t i = 0; rc == 0 && i < n_slots; i++) {
            struct tier_entry entry;
            struct bytes image = bytes_of(table + (size_t)i * TIER_ENTRY_BYTES, TIER_ENTRY_BYTES);

            if (tier_entry_unpack(image, i, segment->head.salt, &entry) == 0)
                rc = tier_scan_index_slot(tier, segment, &entry);
        }
    }
    segment->n_used = n_slots;
    free(table);
    return rc;
}

/* Reads one segment.  *out NULL: the file cannot be used. */
static int tier_scan_segment(struct kv_tier *tier, int fd, uint64_t number, struct tier_segment **out)
{
    uint8_t image[TIER_HEAD_BYTES] = {0};
    struct tier_segment *segment;
    struct stat stat;
    int rc;

    *out = NULL;
    if (fstat(fd, &stat) < 0 || !S_ISREG(stat.st_mode) || !tier_scan_load(fd, image, sizeof(image), 0))
        return 0;
    segment = calloc(1, sizeof(*segment));
    if (segment == NULL)
        return E_NOMEM;
    *segment = (struct tier_segment){.number = number, .fd = -1, .file_bytes = (uint64_t)stat.st_size};
    list_init(&segment->all);
    list_init(&segment->queue);
    rc = tier_head_unpack(bytes_of(image, sizeof(image)), &segment->head);
    if (rc == E_VERSION ||
        (rc == 0 && (segment->head.payload_bytes != tier->payload_bytes ||
                     memcmp(segment->head.generation, tier->generation, TIER_GENERATION_BYTES) != 0))) {
        segment->used_unix_ns = (uint64_t)stat.st_mtim.tv_sec * UINT64_C(1000000000);
        *out = segment;
        return 0;
    }
    rc = rc < 0 ? E_FORMAT : tier_segment_key(tier->opts.key, &segment->head, segment->key);
    if (rc == 0) {
        segment->fd = dup(fd);
        rc = segment->fd < 0 ? E_FORMAT : tier_scan_table(tier, segment, (uint64_t)stat.st_size);
    }
    if (rc == 0 && segment->n_there > 0) {
        *out = segment;
        return 0;
    }
    tier_segment_free(segment);
    return rc == E_NOMEM ? rc : 0;
}

static int tier_scan_file(struct kv_tier *tier, uint64_t number, const char *name)
{
    struct tier_segment *segment = NULL;
    int fd = openat(tier->dir, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK), rc;

    if (fd < 0)
        return 0; /* cannot be opened: left alone */
    rc = tier_scan_segment(tier, fd, number, &segment);
    close(fd);
    if (rc < 0)
        return rc;
    if (segment != NULL) {
        if (segment->slots != NULL)
            segment->quota = tier_quotas_place(&tier->quotas, segment->head.tenant);
        tier_segment_add(tier, segment);
    } else if (unlinkat(tier->dir, name, 0) == 0) {
        log_info("kv_disk_deleted", LOG_STR("file", name), LOG_STR("reason", "no block of use"));
    }
    return 0;
}

static int tier_scan_by_number(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

/* Lists the segments' numbers, in order.  Returns how many. */
static int tier_scan_list(const struct kv_tier *tier, uint64_t **out)
{
    int dir_fd = openat(tier->dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), rc = 0;
    DIR *dir = dir_fd >= 0 ? fdopendir(dir_fd) : NULL;
    struct buf numbers = {0};
    struct dirent *item;

    if (dir == NULL) {
        if (dir_fd >= 0)
            close(dir_fd);
        return E_IO;
    }
    while (rc == 0 && (item = readdir(dir)) != NULL) {
        uint64_t number;

        if (tier_name_parse(item->d_name, &number) == 0)
            rc = buf_append(&numbers, &number, sizeof(number));
    }
    closedir(dir);
    if (rc < 0) {
        buf_fini(&numbers);
        return rc;
    }
    *out = (uint64_t *)(void *)numbers.data;
    rc = (int)(numbers.len_bytes / sizeof(uint64_t));
    if (rc > 0)
        qsort(*out, (size_t)rc, sizeof(uint64_t), tier_scan_by_number);
    return rc;
}

int tier_scan(struct kv_tier *tier)
{
    uint64_t *numbers = NULL, now_unix_ns = clock_unix_ns();
    int n = tier_scan_list(tier, &numbers), rc = n < 0 ? n : 0;

    for (int i = 0; rc == 0 && i < n; i++) {
        char name[24];

        tier_name_print(numbers[i], name);
        rc = tier_scan_file(tier, numbers[i], name);
        tier->next_number = numbers[i] + 1;
    }
    free(numbers);
    list_for_each (node, &tier->segments) {
        struct tier_segment *segment = container_of(node, struct tier_segment, all);

        segment->n_use = ++tier->n_uses;
        tier_queue_add(tier, segment, now_unix_ns);
    }
    return rc;
}
