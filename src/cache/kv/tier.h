/* SPDX-License-Identifier: Apache-2.0 */
/* The disk tier: blocks in a log of files below the pool.
 *
 *     pool --(cached, not saved yet)--> kv_tier_write --> writer thread --> segment files
 *       ^                                                                        |
 *       +--(FILLING, leased)<-- reader threads <-- kv_tier_read <----------------+
 *
 * It knows hashes, block ids and an arena.  Which blocks are saved and what is read back is for whoever owns
 * the pool to say.  One thread (the engine thread) calls everything here, and no call waits for I/O but open
 * and close: work is handed to threads, results come out of kv_tier_poll().  The arena's bytes of a block are
 * read by a write, and written by a read, until its event was polled: lease the block until then.
 *
 * A log: records are only appended, to the newest segment of their tenant and retention.  When
 * kv_tier_opts.size_bytes is reached, whole segments leave: those of other generations (of another model,
 * layout, version or key) first.  The disk is divided into equal shares among the tenants that have segments
 * on it; who needs room takes it from tenants that have more than their share, the one with most first, then
 * from his own (tier_share.c has the rule in full).  Of a tenant's segments plain ones and those whose marks
 * have all run out leave first, then those marked for five minutes, then those marked for an hour; among
 * equals the one not used for longest.  Nothing of one's own leaves for what is wanted less, nor anything of
 * others for one who has his share.
 *
 * Nothing that a disk does is an error of the caller's: what cannot be written is not saved, what cannot be
 * read (or does not bear its seal) is forgotten, and both are counted.  After failed I/O the tier rests for
 * half a minute and says so in the log (kv_disk_failing), then tries again.
 *
 * Durability: nothing waits for fsync, and nothing needs it to be right: a record is believed only when its
 * entry's check and its payload's tag hold.  A process that is killed loses what had not been handed to the
 * kernel; a host that loses power may also lose what the kernel had not yet written (full segments are
 * synced, all together each time that a sixteenth of size_bytes was filled). */
#ifndef CACHE_KV_TIER_H
#define CACHE_KV_TIER_H

#include "base/fault.h"
#include "cache/kv/layout.h"
#include "cache/kv/pool.h"
#include "cache/prefix/block_hash.h"

struct kv_tier;

enum { KV_TIER_WRITES = 16 }; /* under way at once, at most */

struct kv_tier_opts {
    const char *path;     /* a folder of this worker's own; made (0700) when missing */
    uint64_t size_bytes;  /* all files together, at most */
    uint64_t lifetime_ns; /* segments not used for so long are deleted; 0: never */
    unsigned n_readers;   /* threads that read; one more writes */
    void *arena;          /* borrowed */
    uint32_t n_blocks;    /* of the arena */
    uint32_t n_layers;
    size_t piece_bytes;     /* of one layer of one block */
    uint8_t key[32];        /* the store's own, from which segments' keys are derived */
    const char *generation; /* whatever decides what a block's bytes mean, as text; borrowed for the call */
    /* A block can be read from now on, or can no longer.  From inside any call below but open and close; it
     * may only look.  NULL: nobody wants to know. */
    void (*on_block)(void *arg, const struct block_hash *hash, bool is_here);
    void *on_block_arg;
    void (*wake)(void *arg); /* any thread: there is something to poll.  NULL: who polls knows when */
    void *wake_arg;
};

enum kv_tier_kind { KV_TIER_WRITTEN, KV_TIER_READ };

struct kv_tier_event {
    enum kv_tier_kind kind;
    kv_block_id id;
    struct block_hash hash;
    int result; /* 0, or why not: E_IO, E_FULL (the disk is), E_AUTH (the seal is broken), E_NOT_FOUND */
    uint64_t elapsed_ns; /* from the call to the end */
    void *user;          /* of the read */
};

struct kv_tier_counts {
    uint64_t n_written, n_read;                /* blocks */
    uint64_t written_bytes, read_bytes;        /* payloads */
    uint64_t n_write_failed, n_read_failed;    /* I/O */
    uint64_t n_damaged;                        /* seals that did not hold */
    uint64_t n_dropped;                        /* blocks of segments that left */
    uint64_t n_refused;                        /* not saved since nothing may go for them */
    uint64_t n_blocks, used_bytes;             /* there now; bytes with those of other generations */
    uint32_t n_segments, n_writing, n_reading; /* now */
    uint32_t n_tenants;                        /* the disk is shared among, now */
    bool is_resting;                           /* after failed I/O */
    double read_bytes_per_s;                   /* of all readers together, as seen lately; before the first
                                                  read, and long after the last if it was slow, a guess */
};

/* Makes or opens the folder, locks it, reads which blocks are there, starts the threads.  E_NOMEM, E_IO,
 * E_EXISTS (another worker has the folder), E_AUTH (others may enter it), E_INVAL (no room for a few blocks);
 * damage is never an error, but is left out.  On failure nothing is left behind. */
int kv_tier_open(const struct kv_tier_opts *opts, struct fault *fault, struct kv_tier **out);
/* Ends the threads after the operation each is at; events that were not polled are lost, no byte of the arena
 * is touched after. */
void kv_tier_close(struct kv_tier *tier);

bool kv_tier_has(const struct kv_tier *tier, const struct block_hash *hash);
uint32_t kv_tier_peek(const struct kv_tier *tier, const struct block_hash *hashes,
                      uint32_t n); /* leading ones */

/* What can be read, at most so many, least recently used first: where there are more, those used last.  The
 * visit may only look. */
void kv_tier_each(const struct kv_tier *tier, uint32_t most,
                  void (*visit)(void *arg, const struct block_hash *hash), void *arg);

/* Saves a block, which counts for this tenant, wanted until then (ns since 1970; 0: not marked).  E_EXISTS
 * (it is there, or on its way; whose it is and its mark stay), E_AGAIN (as many are under way as may, or what
 * makes room is being read), E_FULL (there is only what others have within their shares, and what he wants
 * more), E_CLOSED (the tier rests), E_NOMEM. */
int kv_tier_write(struct kv_tier *tier, kv_tenant tenant, kv_block_id id, const struct block_hash *hash,
                  uint64_t wanted_unix_ns);
/* Reads one into block id.  E_NOT_FOUND, E_AGAIN, E_NOMEM. */
int kv_tier_read(struct kv_tier *tier, kv_block_id id, const struct block_hash *hash, void *user);
/* The next result; false: none for now. */
bool kv_tier_poll(struct kv_tier *tier, struct kv_tier_event *out);

/* Lets segments go whose lifetime has ended; call now and then. */
void kv_tier_expire(struct kv_tier *tier);

void kv_tier_counts(const struct kv_tier *tier, struct kv_tier_counts *out);
/* What reading so many blocks now would take: what is queued, at the speed seen lately. */
uint64_t kv_tier_read_ns(const struct kv_tier *tier, uint32_t n_blocks);

#endif
