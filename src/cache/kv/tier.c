/* SPDX-License-Identifier: Apache-2.0 */
/* The disk tier's calling side: the index, the segments, and the jobs in flight.
 *
 *     index      hash -> slot of a segment
 *     segments   least recently used first; tier_segment.c creates and evicts them
 *     quotas     the tenants' quotas (tier_quota.c)
 *
 * The log needs no compaction.  When a segment is evicted, its hot blocks are in the pool, which hears of it and saves
 * them again at their next use.  The others are rarely used.
 *
 * A slot is in the index from the call that writes it, which prevents a second write.  It is readable only
 * when the write is done.
 *
 * Jobs are bounded (TIER_MAX_READING, TIER_MAX_WRITING).  Each is a heap object that goes to a thread and
 * returns through the mailbox `done`. */
#include "cache/kv/tier.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/load_rates.h"
#include "base/log.h"
#include "cache/kv/pool_quota.h"
#include "cache/kv/tier_priv.h"

/* An evicted segment is removed from the index slot by slot.  TIER_MAX_SLOTS bounds the time this takes on
 * the caller's thread to some milliseconds. */
#define SEGMENTS_AIM     256 /* segments of a full folder: a quota of 1/64 is still a few of them */
#define SEGMENT_LEAST    (UINT64_C(1) << 16) /* smaller only for a folder of one block */
#define BLOCKS_LEAST     8                   /* minimum room: so many blocks, each in a segment of its own */
#define FILES_LEAST      64
#define FILES_PART       4 /* files may use this fraction of the process's descriptors */
#define REST_NS          (30 * NS_PER_S)
#define PINNED_NS        (300 * NS_PER_S) /* a pin longer than this has the long retention */
#define READ_BYTES_PER_S (500.0 * 1e6)    /* assumed speed of a thread without a recent measurement */

/* ---- open and close ---- */

/* Returns the limit on files, because connections need most of the descriptors. */
static uint64_t tier_max_files(void)
{
    struct rlimit limit;
    uint64_t n = TIER_MAX_FILES;

    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur / FILES_PART < n)
        n = limit.rlim_cur / FILES_PART;
    return n > FILES_LEAST ? n : FILES_LEAST;
}

static uint64_t u64_max(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static int tier_check(const struct kv_tier_opts *opts, struct kv_tier *tier, struct fault *fault)
{
    struct tier_head one = {.n_slots = 1, .payload_bytes = tier->payload_bytes};
    uint64_t slot_bytes = tier->payload_bytes + TIER_ENTRY_BYTES, aim_bytes, n;

    if (opts->n_readers == 0 || opts->n_readers > TIER_MAX_READERS || tier->payload_bytes == 0 ||
        tier->payload_bytes > TIER_MAX_PAYLOAD)
        return fault_set(fault, E_INVAL, "a tier cannot have such blocks or threads");
    if (opts->size_bytes < BLOCKS_LEAST * tier_segment_bytes(&one, 1))
        return fault_set(fault, E_INVAL, "the disk tier wants %llu bytes at least for blocks of %llu",
                         (unsigned long long)(BLOCKS_LEAST * tier_segment_bytes(&one, 1)),
                         (unsigned long long)tier->payload_bytes);
    tier->least_bytes = opts->size_bytes / tier_max_files();
    aim_bytes = u64_max(u64_max(opts->size_bytes / SEGMENTS_AIM, SEGMENT_LEAST), tier->least_bytes);
    n = (aim_bytes - 2 * TIER_TABLE_AT + slot_bytes / 2) / slot_bytes;
    n = n > 0 ? n : 1;
    tier->slots_per_segment = n < TIER_MAX_SLOTS ? (uint32_t)n : TIER_MAX_SLOTS;
    return 0;
}

static int tier_open_parts(struct kv_tier *tier, struct fault *fault)
{
    uint8_t nobody[TIER_TENANT_BYTES];
    int rc = tier_check(&tier->opts, tier, fault);

    if (rc < 0)
        return rc;
    if (tier_tenant(tier->opts.key, KV_TENANT_NONE, nobody) < 0 ||
        tier_generation(tier->opts.key, tier->opts.generation, tier->generation) < 0 ||
        hashmap_new(sizeof(struct block_hash), &tier->index) < 0 ||
        mailbox_new(2 * (TIER_MAX_READING + TIER_MAX_WRITING + TIER_MAX_FILES), &tier->done) < 0)
        return fault_set(fault, E_NOMEM, "out of memory");
    tier_quotas_init(&tier->quotas, nobody);
    tier->dir = tier_folder_open(tier->opts.path, fault);
    if (tier->dir < 0)
        return tier->dir;
    rc = tier_scan(tier);
    if (rc < 0)
        return fault_set(fault, rc, "cannot read %s: %s", tier->opts.path, err_text(rc));
    if (tier_threads_start(tier) < 0)
        return fault_set(fault, E_NOMEM, "cannot start the disk tier's threads");
    return 0;
}

int kv_tier_open(const struct kv_tier_opts *opts, struct fault *fault, struct kv_tier **out)
{
    struct kv_tier *tier = calloc(1, sizeof(*tier));
    int rc;

    if (tier == NULL)
        return fault_set(fault, E_NOMEM, "out of memory");
    tier->opts = *opts;
    tier->opts.on_block = NULL; /* no callbacks while it opens */
    tier->payload_bytes = opts->n_layers * (uint64_t)opts->piece_bytes;
    tier->dir = -1;
    list_init(&tier->segments);
    tier_queue_init(tier);
    rc = tier_open_parts(tier, fault);
    tier->opts.path = tier->opts.generation = NULL;
    if (rc < 0) {
        kv_tier_close(tier);
        return rc;
    }
    kv_tier_expire(tier);
    tier->opts.on_block = opts->on_block;
    *out = tier;
    return 0;
}

void tier_segment_free(struct tier_segment *segment)
{
    if (segment->fd >= 0)
        close(segment->fd);
    free(segment->slots);
    memset(segment->key, 0, sizeof(segment->key));
    free(segment);
}

void kv_tier_close(struct kv_tier *tier)
{
    if (tier == NULL)
        return;
    tier_threads_stop(tier);
    list_for_each_safe (node, spare, &tier->segments)
        tier_segment_free(container_of(node, struct tier_segment, all));
    hashmap_free(tier->index);
    if (tier->dir >= 0)
        close(tier->dir); /* and unlocks */
    memset(tier->opts.key, 0, sizeof(tier->opts.key));
    free(tier);
}

/* ---- used by the tier's other files ---- */

int tier_post(struct kv_tier *tier, struct tier_segment *segment, const struct tier_job *what)
{
    struct tier_job *job = malloc(sizeof(*job));
    int rc;

    if (job == NULL)
        return E_NOMEM;
    *job = *what;
    job->segment = segment;
    job->began_ns = clock_now_ns();
    rc = tier_send(tier, job);
    if (rc == 0)
        segment->n_jobs++;
    return rc;
}

static void tier_report(const struct kv_tier *tier, const struct tier_slot *slot, bool is_here)
{
    if (tier->opts.on_block != NULL)
        tier->opts.on_block(tier->opts.on_block_arg, &slot->entry.hash, is_here);
}

void tier_forget(struct kv_tier *tier, struct tier_slot *slot)
{
    if (slot->segment == NULL)
        return;
    hashmap_remove(tier->index, &slot->entry.hash);
    slot->segment->n_there--;
    slot->segment = NULL;
    if (!slot->is_writing)
        tier_report(tier, slot, false);
}

/* ---- reading and writing ---- */

static void tier_use(struct kv_tier *tier, struct tier_segment *segment)
{
    segment->used_unix_ns = clock_unix_ns();
    list_remove(&segment->all);
    list_push_back(&tier->segments, &segment->all);
    tier_queue_use(tier, segment);
}

static enum tier_retention tier_retention_of(uint64_t pin_end_unix_ns, uint64_t now_unix_ns)
{
    if (pin_end_unix_ns <= now_unix_ns)
        return TIER_PLAIN;
    return pin_end_unix_ns - now_unix_ns <= PINNED_NS ? TIER_PINNED : TIER_PINNED_LONG;
}

/* Finds the tenant's index in tier_quotas. */
static int tier_place_of(struct kv_tier *tier, kv_tenant tenant, unsigned *at_out)
{
    uint8_t digest[TIER_TENANT_BYTES];
    int rc;

    *at_out = tier_quotas_find(&tier->quotas, tenant);
    if (*at_out != TIER_NO_PLACE)
        return 0;
    rc = tier_tenant(tier->opts.key, tenant, digest);
    if (rc < 0)
        return rc;
    *at_out = tier_quotas_place(&tier->quotas, digest);
    tier_quotas_name(&tier->quotas, *at_out, tenant);
    return 0;
}

/* Puts the slot into the index and sends the write. */
static int tier_send_write(struct kv_tier *tier, struct tier_slot *slot, kv_block_id id)
{
    struct tier_segment *segment = slot->segment;
    struct tier_job job = {
        .kind = TIER_JOB_WRITE, .id = id, .entry = slot->entry, .makes_file = !segment->is_begun};
    int rc = hashmap_put(tier->index, &slot->entry.hash, slot, NULL);

    if (rc < 0) {
        slot->segment = NULL;
        return rc;
    }
    segment->n_there++;
    rc = tier_post(tier, segment, &job);
    if (rc < 0)
        tier_forget(tier, slot); /* only the slot is lost */
    else
        segment->is_begun = true;
    return rc;
}

bool kv_tier_rests(const struct kv_tier *tier, uint64_t now_ns)
{
    return now_ns < tier->rests_until_ns;
}

int kv_tier_write(struct kv_tier *tier, kv_tenant tenant, kv_block_id id, const struct block_hash *hash,
                  uint64_t pin_end_unix_ns)
{
    uint64_t now_unix_ns = clock_unix_ns();
    struct tier_segment *segment;
    struct tier_slot *slot;
    unsigned at = 0;
    int rc;

    if (hashmap_get(tier->index, hash) != NULL)
        return E_EXISTS;
    if (kv_tier_rests(tier, clock_now_ns()))
        return E_CLOSED;
    if (tier->counts.n_writing >= TIER_MAX_WRITING)
        return E_AGAIN;
    rc = tier_place_of(tier, tenant, &at);
    if (rc == 0)
        rc = tier_slot_take(tier, at, tier_retention_of(pin_end_unix_ns, now_unix_ns), &slot);
    if (rc < 0) {
        tier->counts.n_refused += rc == E_FULL;
        return rc;
    }
    segment = slot->segment;
    slot->entry = (struct tier_entry){.slot = segment->n_used - 1,
                                      .hash = *hash,
                                      .written_unix_ns = now_unix_ns,
                                      .pin_end_unix_ns = pin_end_unix_ns};
    rc = tier_send_write(tier, slot, id);
    if (rc == 0) {
        tier->counts.n_writing++;
        if (pin_end_unix_ns > segment->pin_end_unix_ns)
            segment->pin_end_unix_ns = pin_end_unix_ns;
        tier_use(tier, segment);
    }
    if (segment->n_used == segment->head.n_slots)
        tier_segment_close(tier, segment);
    return rc;
}

static struct tier_slot *tier_find(const struct kv_tier *tier, const struct block_hash *hash)
{
    struct tier_slot *slot = hashmap_get(tier->index, hash);

    return slot != NULL && !slot->is_writing ? slot : NULL;
}

bool kv_tier_has(const struct kv_tier *tier, const struct block_hash *hash)
{
    return tier_find(tier, hash) != NULL;
}

uint32_t kv_tier_peek(const struct kv_tier *tier, const struct block_hash *hashes, uint32_t n)
{
    uint32_t n_found = 0;

    while (n_found < n && kv_tier_has(tier, &hashes[n_found]))
        n_found++;
    return n_found;
}

void kv_tier_each(const struct kv_tier *tier, uint32_t most,
                  void (*visit)(void *arg, const struct block_hash *hash), void *arg)
{
    size_t n = hashmap_count(tier->index), n_left_out = n > most ? n - most : 0;

    list_for_each (node, &tier->segments) {
        const struct tier_segment *segment = container_of(node, struct tier_segment, all);

        for (uint32_t i = 0; segment->slots != NULL && i < segment->n_used; i++) {
            const struct tier_slot *slot = &segment->slots[i];

            if (slot->segment == NULL || slot->is_writing)
                continue;
            if (n_left_out > 0)
                n_left_out--;
            else
                visit(arg, &slot->entry.hash);
        }
    }
}

int kv_tier_read(struct kv_tier *tier, kv_block_id id, const struct block_hash *hash, void *user)
{
    struct tier_slot *slot = tier_find(tier, hash);
    struct tier_job job = {.kind = TIER_JOB_READ, .id = id, .user = user};
    int rc;

    if (slot == NULL)
        return E_NOT_FOUND;
    if (tier->counts.n_reading >= TIER_MAX_READING)
        return E_AGAIN;
    job.entry = slot->entry;
    rc = tier_post(tier, slot->segment, &job);
    if (rc < 0)
        return rc;
    tier->counts.n_reading++;
    tier_use(tier, slot->segment);
    return 0;
}

/* ---- finished jobs ---- */

static void tier_rest(struct kv_tier *tier, const char *what, int error)
{
    if (clock_now_ns() >= tier->rests_until_ns)
        log_warn("kv_disk_failing", LOG_STR("what", what), LOG_ERR(error),
                 LOG_STR("effect", "blocks are not saved"), LOG_U64("rest_s", REST_NS / NS_PER_S));
    tier->rests_until_ns = clock_now_ns() + REST_NS;
}

static void tier_on_written(struct kv_tier *tier, const struct tier_job *job)
{
    struct tier_slot *slot = &job->segment->slots[job->entry.slot];

    tier->counts.n_writing--;
    if (job->result == 0) {
        slot->entry = job->entry;
        slot->is_writing = false;
        if (slot->segment != NULL)
            tier_report(tier, slot, true);
        tier->counts.n_written++;
        tier->counts.written_bytes += tier->payload_bytes;
        return;
    }
    tier->counts.n_write_failed++;
    tier_rest(tier, "write", job->result);
    tier_forget(tier, slot);
    if (job->segment->is_open)
        tier_segment_close(tier, job->segment);
    if (job->segment->n_there == 0 && !job->segment->is_leaving)
        tier_segment_leave(tier, job->segment);
}

void tier_note_read(struct kv_tier *tier, double bytes_per_s)
{
    rate_learn(&tier->read_rate, bytes_per_s, LOAD_RATE_READ_ALPHA, 1, clock_now_ns());
}

static void tier_on_read(struct kv_tier *tier, const struct tier_job *job)
{
    double rate = (double)tier->payload_bytes * 1e9 / (double)(job->busy_ns ? job->busy_ns : 1);

    tier->counts.n_reading--;
    if (job->result == 0) {
        tier->counts.n_read++;
        tier->counts.read_bytes += tier->payload_bytes;
        tier_note_read(tier, rate);
        return;
    }
    if (job->result == E_AUTH)
        tier->counts.n_damaged++;
    else
        tier->counts.n_read_failed++;
    log_warn("kv_disk_block_lost", LOG_ERR(job->result), LOG_U64("segment", job->segment->number),
             LOG_U64("slot", job->entry.slot));
    tier_forget(tier, &job->segment->slots[job->entry.slot]);
}

static void tier_on_dropped(struct kv_tier *tier, struct tier_segment *segment, int result)
{
    if (result < 0)
        tier_rest(tier, "delete", result);
    tier_segment_dropped(tier, segment, result);
}

bool kv_tier_poll(struct kv_tier *tier, struct kv_tier_event *out)
{
    struct tier_job *job;
    bool is_event = false;

    while (!is_event && (job = mailbox_receive(tier->done)) != NULL) {
        struct tier_segment *segment = job->segment;

        segment->n_jobs--;
        is_event = job->kind == TIER_JOB_WRITE || job->kind == TIER_JOB_READ;
        *out = (struct kv_tier_event){.kind = job->kind == TIER_JOB_READ ? KV_TIER_READ : KV_TIER_WRITTEN,
                                      .id = job->id,
                                      .hash = job->entry.hash,
                                      .result = job->result,
                                      .elapsed_ns = clock_now_ns() - job->began_ns,
                                      .user = job->user};
        if (job->kind == TIER_JOB_WRITE)
            tier_on_written(tier, job);
        else if (job->kind == TIER_JOB_READ)
            tier_on_read(tier, job);
        if (job->kind == TIER_JOB_DROP)
            tier_on_dropped(tier, segment, job->result);
        else
            tier_segment_drop(tier, segment);
        free(job);
    }
    return is_event;
}

void kv_tier_expire(struct kv_tier *tier)
{
    const struct tier_wish made_smaller = {.at = TIER_NO_PLACE, .size_bytes = tier->opts.size_bytes};
    uint64_t now_unix_ns = clock_unix_ns(), lifetime_ns = tier->opts.lifetime_ns;

    list_for_each_safe (node, spare, &tier->segments) {
        struct tier_segment *segment = container_of(node, struct tier_segment, all);

        if (segment->is_leaving)
            tier_segment_drop(tier, segment);
        else if (lifetime_ns > 0 && now_unix_ns > segment->used_unix_ns &&
                 now_unix_ns - segment->used_unix_ns > lifetime_ns && segment->pin_end_unix_ns <= now_unix_ns)
            tier_segment_leave(tier, segment);
    }
    (void)tier_make_room(tier, &made_smaller);
}

/* ---- looking ---- */

static double tier_reader_bytes_per_s(const struct kv_tier *tier)
{
    return rate_hope(&tier->read_rate, READ_BYTES_PER_S, clock_now_ns());
}

void kv_tier_counts(const struct kv_tier *tier, struct kv_tier_counts *out)
{
    *out = tier->counts;
    out->n_blocks = hashmap_count(tier->index);
    out->n_tenants = tier_quotas_tenants(&tier->quotas);
    out->used_bytes = tier->file_bytes;
    out->is_resting = kv_tier_rests(tier, clock_now_ns());
    out->read_bytes_per_s = tier_reader_bytes_per_s(tier) * tier->opts.n_readers;
}

uint64_t kv_tier_read_ns(const struct kv_tier *tier, uint32_t n_blocks)
{
    double rate = tier_reader_bytes_per_s(tier);
    double bytes = (double)(tier->counts.n_reading + n_blocks) * (double)tier->payload_bytes;
    unsigned n_threads = tier->opts.n_readers < n_blocks ? tier->opts.n_readers : n_blocks;

    return n_blocks == 0 ? 0 : (uint64_t)(bytes / (rate * n_threads) * 1e9);
}
