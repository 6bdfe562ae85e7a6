/* SPDX-License-Identifier: Apache-2.0 */
/* What the disk tier's files share.
 *
 *   tier.c       the caller's side: the index, and what is under way
 *   tier_room.c  segments: how they come, what they count with, which leave
 *   tier_queue.c which of a tenant's segments leaves next
 *   tier_share.c tenants, and from whom room is taken
 *   tier_scan.c  what a folder holds when it is opened
 *   tier_io.c    the threads, and each job's system calls
 *   tier_seal.c  keys, sealing and opening of payloads
 *
 * Segments and slots belong to the caller's thread.  A thread that works on a job reads the segment's fields
 * above the line only, which do not change while a job on the segment is under way. */
#ifndef CACHE_KV_TIER_PRIV_H
#define CACHE_KV_TIER_PRIV_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/hashmap.h"
#include "base/list.h"
#include "base/mailbox.h"
#include "base/rate.h"
#include "cache/kv/tier.h"
#include "cache/kv/tier_record_priv.h"
#include "cache/kv/tier_share_priv.h"

enum {
    TIER_MAX_READERS = 32,
    TIER_MAX_READING = 4096,
    TIER_MAX_WRITING = KV_TIER_WRITES,
    TIER_MAX_FILES = 1024, /* each holds a descriptor */
    TIER_KEY_BYTES = 32
};

struct tier_segment {
    struct tier_head head;
    uint64_t number;
    int fd; /* set by the job that makes the file, before any other on it; -1: none */
    uint8_t key[TIER_KEY_BYTES];
    /* ---- */
    struct list all;         /* in kv_tier.segments, least recently used first */
    struct list queue;       /* in kv_tier.queues or .unread; in none while it is open or leaves */
    unsigned rank;           /* of its queue */
    uint64_t n_use;          /* greater than of those used before */
    struct tier_slot *slots; /* [head.n_slots]; NULL: of another generation */
    uint32_t n_used;         /* slots given out */
    uint32_t n_there;        /* slots that the index leads to */
    uint32_t n_jobs;         /* under way */
    unsigned share;          /* a place in kv_tier.shares; not while it leaves, nor of another generation */
    uint64_t file_bytes;     /* what it takes with the slots given out, or what was found */
    uint64_t charged_bytes;  /* what it counts with */
    uint64_t wanted_unix_ns; /* the latest mark in it */
    uint64_t used_unix_ns;
    bool is_begun;    /* the job that makes its file was sent */
    bool is_unsynced; /* full, and FINISH was not sent */
    bool is_open;     /* takes more slots */
    bool is_leaving;  /* not in the index any more; dropped when no job is left */
};

struct tier_slot {
    struct tier_segment *segment; /* NULL: the index does not lead to it */
    struct tier_entry entry;      /* its tag is set when the write is done */
    bool is_writing;              /* in the index so that nobody writes it twice, but not to be read */
};

enum tier_job_kind { TIER_JOB_WRITE, TIER_JOB_READ, TIER_JOB_FINISH, TIER_JOB_DROP };

/* FINISH: a full segment is synced.  DROP: the file goes, and the segment with it. */
struct tier_job {
    enum tier_job_kind kind;
    struct tier_segment *segment;
    bool makes_file; /* the first write of a segment */
    struct tier_entry entry;
    kv_block_id id;
    void *user;
    uint64_t began_ns;
    uint64_t busy_ns; /* of the thread */
    int result;
};

struct tier_thread {
    struct kv_tier *tier;
    struct mailbox *jobs;
    pthread_t thread;
    bool is_started;
    uint8_t *payload; /* [payload_bytes] */
    void *cipher;     /* EVP_CIPHER_CTX */
};

struct kv_tier {
    struct kv_tier_opts opts;
    uint64_t payload_bytes;
    uint32_t slots_per_segment;
    uint8_t generation[TIER_GENERATION_BYTES];
    int dir;
    struct hashmap *index; /* block_hash -> tier_slot */
    struct list segments;
    struct list unread;                                 /* of these, those that nobody can read */
    struct list queues[TIER_PLACES][TIER_N_RETENTIONS]; /* tier_queue.c */
    uint64_t marks_end_unix_ns;                         /* the first time a mark in them runs out */
    uint64_t n_uses;
    struct tier_segment *open[TIER_PLACES][TIER_N_RETENTIONS];
    struct tier_shares shares;
    uint64_t next_number;
    uint64_t least_bytes;                             /* a segment counts with so many, however few it has */
    uint64_t total_bytes;                             /* what all count with whose deletion was not begun */
    uint64_t leaving_bytes;                           /* of these, what leaves */
    uint64_t file_bytes;                              /* what all files take */
    uint64_t unsynced_bytes;                          /* of full segments */
    struct tier_thread threads[1 + TIER_MAX_READERS]; /* the first writes */
    uint32_t next_reader;
    struct mailbox *done;
    atomic_bool is_ending;
    uint64_t rests_until_ns;
    struct rate read_rate; /* bytes per second of one thread */
    struct kv_tier_counts counts;
};

/* ---- tier.c ---- */
void tier_segment_free(struct tier_segment *segment); /* closes its file */
/* Sends a job like this one.  E_NOMEM, E_AGAIN. */
int tier_post(struct kv_tier *tier, struct tier_segment *segment, const struct tier_job *what);
void tier_forget(struct kv_tier *tier, struct tier_slot *slot); /* the index leads to it no more */
void tier_note_read(struct kv_tier *tier, double bytes_per_s);  /* a block was read so fast */

/* ---- tier_room.c ---- */
void tier_segment_add(struct kv_tier *tier, struct tier_segment *segment);
void tier_segment_close(struct kv_tier *tier, struct tier_segment *segment); /* it takes no more slots */
void tier_segment_leave(struct kv_tier *tier, struct tier_segment *segment);
void tier_segment_drop(struct kv_tier *tier, struct tier_segment *segment); /* if it leaves and is quiet */
void tier_segment_dropped(struct kv_tier *tier, struct tier_segment *segment, int result);
/* Whether so many bytes may be begun.  What is in their way and may go leaves.  E_AGAIN: it is being read and
 * has not gone yet.  E_FULL: nothing of what is there may go for it. */
int tier_make_room(struct kv_tier *tier, const struct tier_wish *wish);
/* A slot in a segment of this place.  E_AGAIN, E_FULL, E_NOMEM. */
int tier_slot_take(struct kv_tier *tier, unsigned at, enum tier_retention retention, struct tier_slot **out);

/* ---- tier_queue.c ---- */
void tier_queue_init(struct kv_tier *tier);
/* It takes no more slots, or was found. */
void tier_queue_add(struct kv_tier *tier, struct tier_segment *segment, uint64_t now_unix_ns);
void tier_queue_use(struct kv_tier *tier, struct tier_segment *segment); /* open ones, too */
/* What a tenant wants least, and how much it is wanted: of equals the one not used for longest, an open one
 * last.  NULL: he has none. */
struct tier_segment *tier_queue_first(struct kv_tier *tier, unsigned at, uint64_t now_unix_ns,
                                      unsigned *rank_out);

/* ---- tier_scan.c ---- */
int tier_folder_open(const char *path, struct fault *fault); /* a locked descriptor */
int tier_scan(struct kv_tier *tier); /* E_NOMEM; what is damaged or nobody's is deleted or left out */

/* ---- tier_io.c ---- */
int tier_threads_start(struct kv_tier *tier); /* E_NOMEM */
void tier_threads_stop(struct kv_tier *tier);
int tier_send(struct kv_tier *tier, struct tier_job *job); /* takes it; E_AGAIN: it was freed */

/* ---- tier_seal.c ---- */
int tier_generation(const uint8_t key[TIER_KEY_BYTES], const char *text, uint8_t out[TIER_GENERATION_BYTES]);
int tier_tenant(const uint8_t key[TIER_KEY_BYTES], kv_tenant tenant, uint8_t out[TIER_TENANT_BYTES]);
int tier_segment_key(const uint8_t key[TIER_KEY_BYTES], const struct tier_head *head,
                     uint8_t out[TIER_KEY_BYTES]);
void *tier_cipher_new(void);
void tier_cipher_free(void *cipher);
/* Gathers the block's pieces into payload, sealed; sets entry->tag.  E_INTERNAL. */
int tier_seal(const struct kv_tier *tier, void *cipher, const struct tier_segment *segment, kv_block_id id,
              struct tier_entry *entry, uint8_t *payload);
/* The reverse.  E_AUTH: the payload is not what was written; the block holds nothing of use. */
int tier_unseal(const struct kv_tier *tier, void *cipher, const struct tier_segment *segment, kv_block_id id,
                const struct tier_entry *entry, const uint8_t *payload);

#endif
