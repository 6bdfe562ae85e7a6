/* SPDX-License-Identifier: Apache-2.0 */
/* The disk tier: blocks in a log of files below the pool.
 *
 *      pool --(cached, not saved yet)--> kv_tier_write --> writer thread --> segment files
 *        ^                                                                        |
 *        +--(FILLING, leased)<-- reader threads <-- kv_tier_read <----------------+
 *
 * The tier knows hashes, block ids and an arena.  The pool's owner decides which blocks are saved and read back.
 * One thread (the engine thread) makes all calls.  Only open and close wait for I/O: threads do the work, and
 * kv_tier_poll() returns the results.  A write reads the block's bytes in the arena, and a read writes them.  So
 * lease the block until the job's event was polled.
 *
 * A log: records are only appended, to the newest segment of their tenant and retention.  When
 * kv_tier_opts.size_bytes is reached, whole segments are evicted.  Segments of other generations (another
 * model, layout, version or key) are evicted first.  The disk is divided into equal quotas among the tenants
 * that have segments on it.  A tenant that needs room takes it from tenants above their quota, the one with
 * most first, then from its own segments (tier_quota.c has the full rule).  Order among a tenant's segments:
 * plain ones and those whose pins have all expired, pins for five minutes, pins for an hour; LRU among
 * equals.  A tenant's own segment is never evicted for content of lower retention.  Nor is another tenant's,
 * once the taker has its quota.
 *
 * Disk faults are never errors of the caller.  A block that cannot be written is not saved.  A block that
 * cannot be read, or whose seal does not hold, is forgotten.  Both are counted.  After failed I/O the tier
 * rests for half a minute, logs kv_disk_failing, then tries again.
 *
 * Durability: nothing waits for fsync, and correctness does not need it.  A record is valid only when its
 * entry's check and its payload's tag hold.  A killed process loses the data it had not yet handed to the
 * kernel.  A host that loses power may also lose the data that the kernel had not yet written.  Full segments
 * are synced together each time a sixteenth of size_bytes was filled. */
#ifndef CACHE_KV_TIER_H
#define CACHE_KV_TIER_H

#include "base/fault.h"
#include "cache/kv/layout.h"
#include "cache/kv/pool_quota.h"
#include "cache/prefix/block_hash.h"

struct kv_tier;

enum { KV_TIER_WRITES = 16 }; /* in flight at once, at most */

struct kv_tier_opts {
    const char *path;     /* this worker's own folder; created (0700) when missing */
    uint64_t size_bytes;  /* all files together, at most */
    uint64_t lifetime_ns; /* segments unused for this long are deleted; 0: never */
    unsigned n_readers;   /* reader threads; there is one writer thread besides */
    void *arena;          /* borrowed */
    uint32_t n_blocks;    /* of the arena */
    uint32_t n_layers;
    size_t piece_bytes;     /* of one layer of one block */
    uint8_t key[32];        /* the store's key; the segments' keys are derived from it */
    const char *generation; /* text of all that decides what a block's bytes mean; borrowed for the call */
    /* A block becomes readable, or stops being so.  Called from inside any call below but open and close; it
     * must not change the tier.  NULL: no callback. */
    void (*on_block)(void *arg, const struct block_hash *hash, bool is_here);
    void *on_block_arg;
    void (*wake)(void *arg); /* any thread: an event is ready to poll.  NULL: the caller polls unasked */
    void *wake_arg;
};

enum kv_tier_kind { KV_TIER_WRITTEN, KV_TIER_READ };

struct kv_tier_event {
    enum kv_tier_kind kind;
    kv_block_id id;
    struct block_hash hash;
    int result; /* 0, E_IO, E_FULL (the disk is full), E_AUTH (the seal does not match), E_NOT_FOUND */
    uint64_t elapsed_ns; /* from the call to the end */
    void *user;          /* as given to kv_tier_read() */
};

struct kv_tier_counts {
    uint64_t n_written, n_read;                /* blocks */
    uint64_t written_bytes, read_bytes;        /* payloads */
    uint64_t n_write_failed, n_read_failed;    /* of I/O */
    uint64_t n_damaged;                        /* seals that did not match */
    uint64_t n_dropped;                        /* blocks of evicted segments */
    uint64_t n_refused;                        /* not saved: no segment may be evicted for them */
    uint64_t n_blocks, used_bytes;             /* now; bytes include other generations */
    uint32_t n_segments, n_writing, n_reading; /* now */
    uint32_t n_tenants;                        /* that the disk is divided among, now */
    bool is_resting;                           /* after failed I/O */
    double read_bytes_per_s; /* all readers together, measured lately; an estimate before the first read, and
                                long after a slow one */
};

/* Creates or opens the folder, locks it, reads which blocks it has, starts the threads.  E_NOMEM, E_IO,
 * E_EXISTS (another worker has the folder), E_AUTH (other users may enter it), E_INVAL (no room for a few
 * blocks).  Damaged data is no error: it is left out.  After a failure nothing is left behind. */
int kv_tier_open(const struct kv_tier_opts *opts, struct fault *fault, struct kv_tier **out);
/* Ends each thread after its current operation.  Events that were not polled are lost.  The threads do not
 * touch the arena afterwards. */
void kv_tier_close(struct kv_tier *tier);

bool kv_tier_has(const struct kv_tier *tier, const struct block_hash *hash);
uint32_t kv_tier_peek(const struct kv_tier *tier, const struct block_hash *hashes,
                      uint32_t n); /* how many leading hashes are on disk */

/* Visits the readable blocks, least recently used first.  If there are more than `most`, only the `most` last
 * used.  The visit must not change the tier. */
void kv_tier_each(const struct kv_tier *tier, uint32_t most,
                  void (*visit)(void *arg, const struct block_hash *hash), void *arg);

/* Saves a block in the tenant's quota, pinned until pin_end_unix_ns (ns since 1970; 0: not pinned).  E_EXISTS
 * (it is on disk or on its way; its tenant and pin stay), E_AGAIN (too many writes in flight, or the segment
 * to evict is being read), E_FULL (all that is left is within other tenants' quotas, or pinned longer by this
 * tenant), E_CLOSED (the tier rests), E_NOMEM. */
int kv_tier_write(struct kv_tier *tier, kv_tenant tenant, kv_block_id id, const struct block_hash *hash,
                  uint64_t pin_end_unix_ns);
bool kv_tier_rests(const struct kv_tier *tier, uint64_t now_ns); /* writes are refused, after failed I/O */
/* Starts to read a block into block id.  E_NOT_FOUND, E_AGAIN, E_NOMEM. */
int kv_tier_read(struct kv_tier *tier, kv_block_id id, const struct block_hash *hash, void *user);
/* The next event; false: none for now. */
bool kv_tier_poll(struct kv_tier *tier, struct kv_tier_event *out);

/* Deletes segments whose lifetime ended; call it periodically. */
void kv_tier_expire(struct kv_tier *tier);

void kv_tier_counts(const struct kv_tier *tier, struct kv_tier_counts *out);
/* Estimated time to read n_blocks now: the queued reads included, at the speed measured lately. */
uint64_t kv_tier_read_ns(const struct kv_tier *tier, uint32_t n_blocks);

#endif
