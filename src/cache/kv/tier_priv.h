/* SPDX-License-Identifier: Apache-2.0 */
/* Types and functions that the disk tier's files share.
 *
 *     tier.c         the caller's side: the index, and the jobs in flight
 *     tier_segment.c segments: creation, charged bytes, eviction
 *     tier_queue.c   which of a tenant's segments is evicted next
 *     tier_quota.c   tenants' quotas, and which tenant gives room
 *     tier_scan.c    reading a folder when it is opened
 *     tier_io.c      the threads, and each job's system calls
 *     tier_seal.c    keys, sealing and opening of payloads
 *
 * Segments and slots belong to the caller's thread.  A thread that works on a job reads only the segment's
 * fields above the line.  They do not change while a job on the segment is in flight. */
#ifndef CACHE_KV_TIER_PRIV_H
#define CACHE_KV_TIER_PRIV_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/hashmap.h"
#include "base/list.h"
#include "base/mailbox.h"
#include "base/rate.h"
#include "cache/kv/block_cipher.h"
#include "cache/kv/pool_quota.h"
#include "cache/kv/tier.h"
#include "cache/kv/tier_record_priv.h"
#include "cache/kv/tier_quota_priv.h"

enum {
    TIER_MAX_READERS = 32,
    TIER_MAX_READING = 4096,
    TIER_MAX_WRITING = KV_TIER_WRITES,
    TIER_MAX_FILES = 1024, /* each has an open descriptor */
    TIER_KEY_BYTES = 32
};

struct tier_segment {
    struct tier_head head;
    uint64_t number;
    int fd; /* set by the job that makes the file, before any other on it; -1: none */
    uint8_t key[TIER_KEY_BYTES];
    /* ---- */
    struct list all;         /* in kv_tier.segments, least recently used first */
    struct list queue;       /* in kv_tier.queues or .unread; in none while the segment is open or leaves */
    unsigned rank;           /* of its queue */
    uint64_t n_use;          /* a counter value: greater than that of segments used before */
    struct tier_slot *slots; /* [head.n_slots]; NULL: of another generation */
    uint32_t n_used;         /* slots given out */
    uint32_t n_there;        /* slots that the index refers to */
    uint32_t n_jobs;         /* jobs in flight */
    unsigned quota;         /* a place in kv_tier.quotas; unset while it leaves, and for another generation */
    uint64_t file_bytes;    /* size with the slots given out, or as found */
    uint64_t charged_bytes; /* bytes charged to the folder and the tenant */
    uint64_t pin_end_unix_ns; /* the latest pin in it */
    uint64_t used_unix_ns;
    bool is_begun;    /* the job that makes its file was sent */
    bool is_unsynced; /* full, but FINISH was not sent yet */
    bool is_open;     /* takes more slots */
    bool is_leaving;  /* out of the index; dropped when no job is left */
};

struct tier_slot {
    struct tier_segment *segment; /* NULL: the index does not refer to it */
    struct tier_entry entry;      /* the tag is set when the write is done */
    bool is_writing;              /* in the index to prevent a second write, but not readable yet */
};

enum tier_job_kind { TIER_JOB_WRITE, TIER_JOB_READ, TIER_JOB_FINISH, TIER_JOB_DROP };

/* FINISH: syncs a full segment.  DROP: deletes the file and frees the segment. */
struct tier_job {
    enum tier_job_kind kind;
    struct tier_segment *segment;
    bool makes_file; /* the first write of a segment */
    struct tier_entry entry;
    kv_block_id id;
    void *user;
    uint64_t began_ns;
    uint64_t busy_ns; /* time of the thread */
    int result;
};

struct tier_thread {
    struct kv_tier *tier;
    struct mailbox *jobs;
    pthread_t thread;
    bool is_started;
    uint8_t *payload; /* [payload_bytes] */
    struct block_cipher *cipher;
};

struct kv_tier {
    struct kv_tier_opts opts;
    uint64_t payload_bytes;
    uint32_t slots_per_segment;
    uint8_t generation[TIER_GENERATION_BYTES];
    int dir;
    struct hashmap *index; /* block_hash -> tier_slot */
    struct list segments;
    struct list unread; /* of these, the unreadable ones: of another generation */
    struct list queues[TIER_PLACES][TIER_N_RETENTIONS]; /* tier_queue.c */
    uint64_t first_pin_end_unix_ns;                     /* the earliest end of a pin in the queues */
    uint64_t n_uses;
    struct tier_segment *open[TIER_PLACES][TIER_N_RETENTIONS];
    struct tier_quotas quotas;
    uint64_t next_number;
    uint64_t least_bytes;    /* a segment is charged at least this, however few slots it has */
    uint64_t total_bytes;    /* charged by all segments whose deletion was not begun */
    uint64_t leaving_bytes;  /* of total_bytes, the part that leaves */
    uint64_t file_bytes;     /* sizes of all files */
    uint64_t unsynced_bytes; /* of full segments, not synced yet */
    struct tier_thread threads[1 + TIER_MAX_READERS]; /* threads[0] writes */
    uint32_t next_reader;
    struct mailbox *done;
    atomic_bool is_ending;
    uint64_t rests_until_ns;
    struct rate read_rate; /* bytes per second of one thread */
    struct kv_tier_counts counts;
};

/* ---- tier.c ---- */
void tier_segment_free(struct tier_segment *segment); /* closes its file */
/* Sends a copy of the job.  E_NOMEM, E_AGAIN. */
int tier_post(struct kv_tier *tier, struct tier_segment *segment, const struct tier_job *what);
void tier_forget(struct kv_tier *tier, struct tier_slot *slot); /* removes the slot from the index */
void tier_note_read(struct kv_tier *tier, double bytes_per_s);  /* records the speed of a block's read */

/* ---- tier_segment.c ---- */
void tier_segment_add(struct kv_tier *tier, struct tier_segment *segment);
void tier_segment_close(struct kv_tier *tier, struct tier_segment *segment); /* it accepts no more slots */
void tier_segment_leave(struct kv_tier *tier, struct tier_segment *segment);
void tier_segment_drop(struct kv_tier *tier, struct tier_segment *segment); /* if it leaves without jobs */
void tier_segment_dropped(struct kv_tier *tier, struct tier_segment *segment, int result);
/* Makes room for the wish: segments that may be evicted leave.  0: there is room.  E_AGAIN: a segment leaves
 * but is still being read.  E_FULL: no segment may be evicted for it. */
int tier_make_room(struct kv_tier *tier, const struct tier_wish *wish);
/* Takes a slot in a segment of this place.  E_AGAIN, E_FULL, E_NOMEM. */
int tier_slot_take(struct kv_tier *tier, unsigned at, enum tier_retention retention, struct tier_slot **out);

/* ---- tier_queue.c ---- */
void tier_queue_init(struct kv_tier *tier);
/* Queues a segment that is full or was found in the folder. */
void tier_queue_add(struct kv_tier *tier, struct tier_segment *segment, uint64_t now_unix_ns);
void tier_queue_use(struct kv_tier *tier, struct tier_segment *segment); /* also for open segments */
/* A tenant's segment that is evicted next, and its retention rank.  Among equals: the least recently used,
 * open ones last.  NULL: the tenant has no segment. */
struct tier_segment *tier_queue_first(struct kv_tier *tier, unsigned at, uint64_t now_unix_ns,
                                      unsigned *rank_out);

/* ---- tier_scan.c ---- */
int tier_folder_open(const char *path, struct fault *fault); /* returns a locked descriptor */
int tier_scan(struct kv_tier *tier); /* E_NOMEM; damaged and unusable files are deleted or left out */

/* ---- tier_io.c ---- */
int tier_threads_start(struct kv_tier *tier); /* E_NOMEM */
void tier_threads_stop(struct kv_tier *tier);
int tier_send(struct kv_tier *tier, struct tier_job *job); /* takes it; E_AGAIN: the job was freed */

/* ---- tier_seal.c ---- */
int tier_generation(const uint8_t key[TIER_KEY_BYTES], const char *text, uint8_t out[TIER_GENERATION_BYTES]);
int tier_tenant(const uint8_t key[TIER_KEY_BYTES], kv_tenant tenant, uint8_t out[TIER_TENANT_BYTES]);
int tier_segment_key(const uint8_t key[TIER_KEY_BYTES], const struct tier_head *head,
                     uint8_t out[TIER_KEY_BYTES]);
/* Gathers the block's pieces into the thread's payload and seals them; sets entry->tag.  E_INTERNAL. */
int tier_seal(const struct tier_thread *self, const struct tier_segment *segment, kv_block_id id,
              struct tier_entry *entry);
/* The reverse.  E_AUTH: the payload is not the one that was written; the block's content is useless. */
int tier_unseal(const struct tier_thread *self, const struct tier_segment *segment, kv_block_id id,
                const struct tier_entry *entry);

#endif
