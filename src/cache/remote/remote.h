/* SPDX-License-Identifier: Apache-2.0 */
/* The remote tier: blocks in a store that all workers of a model share (Redis, Valkey, S3).
 *
 *      pool --(used twice, not saved yet)--> kv_remote_write --> writer thread ---> store
 *        ^                                                                           | |
 *        |           "which of these does it have?" <-- kv_remote_ask <-- asker thread |
 *        +--(FILLING, leased)<-- reader threads <-- kv_remote_read <-------------------+
 *
 * A value holds a run: some consecutive blocks of one chain, up to about 4 MB (run.h).  The tier is told which blocks
 * are a run when it writes, and tells which value has a block when it is asked.
 *
 * The tier knows hashes, block ids and an arena.  Each kind of thread has connections of its own, so a write never
 * delays a read, and neither delays a question.  One thread (the engine thread) makes all calls.  None waits:
 * kv_remote_poll() returns the results.  A write reads the block's bytes in the arena and a read writes them,
 * until its event was polled: lease the block until then.
 *
 * The tier has no index.  Whoever wants blocks asks first, which costs one round trip, and reads what is there.
 *
 * Faults of the store are never errors of the caller.  A value that does not open under the cluster's key and the
 * block's hash counts as not there, and is removed.  A store that fails, or is late three times in a row, is left
 * alone (base/breaker.h): calls return E_CLOSED at once, and only a test of the tier's own asks whether it is back.  A
 * store that is full is read and not written for half a minute.  Each change is one line in the log. */
#ifndef CACHE_REMOTE_REMOTE_H
#define CACHE_REMOTE_REMOTE_H

#include "base/fault.h"
#include "cache/remote/record.h"
#include "cache/remote/run.h"

struct kv_remote;

enum {
    KV_REMOTE_WRITES = 64, /* blocks in flight at once, at most */
    KV_REMOTE_READS = 4096,
    KV_REMOTE_ASKS = 256,
    KV_REMOTE_ASK_KEYS = 4096 /* of one question, at most */
};

struct kv_remote_opts {
    const char *url, *login, *ca_path; /* as struct store_opts has them; borrowed for the call */
    uint64_t lifetime_ns;              /* of a value after its last use; 0: for ever */
    unsigned n_readers;                /* reader threads; there is a writer and an asker besides */
    struct remote_arena arena;
    uint8_t key[REMOTE_KEY_BYTES]; /* the store's key; each record's is derived from it */
    const char *generation;  /* text of all that decides what a block's bytes mean; borrowed for the call */
    void (*wake)(void *arg); /* any thread: an event is ready to poll.  NULL: the caller polls unasked */
    void *wake_arg;
};

enum kv_remote_kind { KV_REMOTE_ASKED, KV_REMOTE_READ, KV_REMOTE_WRITTEN };

/* Blocks of one value, in the order of their chain. */
struct kv_remote_part {
    uint32_t n;
    const kv_block_id *ids;          /* [n] */
    const struct block_hash *hashes; /* [n] */
    struct block_hash name;          /* READ: of the value's last block */
    uint32_t n_after;                /* READ: blocks of the value after hashes[n - 1] */
};

struct kv_remote_event { /* a question, or one block of a read or a write */
    enum kv_remote_kind kind;
    int result; /* 0, E_EXISTS (written before), E_NOT_FOUND, E_FULL, E_AUTH (not opened), E_TIMEOUT, ... */
    kv_block_id id; /* READ, WRITTEN */
    struct block_hash hash;
    uint32_t at; /* READ, WRITTEN: which block of the call; the last one is told first */
    /* ASKED: [n] the last block of the value that has each block, see remote_run_cover(); until the next poll. */
    const uint32_t *ends;
    uint32_t n;
    uint64_t elapsed_ns; /* from the call to the end */
    void *user;
};

struct kv_remote_counts {
    uint64_t n_written, n_read, n_asked, n_found; /* blocks */
    uint64_t written_bytes, read_bytes;
    uint64_t n_existed; /* written by another worker before */
    uint64_t n_write_failed, n_read_failed;
    uint64_t n_missing;                      /* gone between question and read */
    uint64_t n_damaged;                      /* did not open */
    uint64_t n_late;                         /* answers that came after their deadline */
    uint64_t n_trips;                        /* times that the store was given up */
    uint32_t n_asking, n_reading, n_writing; /* now */
    bool is_up, is_full;
    double read_bytes_per_s; /* all readers together, measured lately; an estimate before the first read */
    uint64_t ask_ns;         /* of a key of a question, measured lately */
};

/* Starts the threads, and waits for nothing: the store may be away.  E_FORMAT (URL), E_IO (certificates), E_NOMEM. */
int kv_remote_open(const struct kv_remote_opts *opts, struct fault *fault, struct kv_remote **out);
/* Ends each thread after its current operation.  The threads do not touch the arena afterwards. */
void kv_remote_close(struct kv_remote *remote);

/* Whether the store is used now.  False: the three calls below return E_CLOSED. */
bool kv_remote_is_up(const struct kv_remote *remote);
bool kv_remote_takes_writes(const struct kv_remote *remote); /* up, and not full */

/* Blocks of the longest run that is written as one value. */
uint32_t kv_remote_run_blocks(const struct kv_remote *remote);

/* Asks which blocks are there; the hashes are copied.  E_CLOSED, E_AGAIN, E_LIMIT, E_NOMEM. */
int kv_remote_ask(struct kv_remote *remote, const struct block_hash *hashes, uint32_t n, void *user);
/* Starts to read a part of a value; there is an event for each block.  The part is copied.  A read that has not begun
 * at until_ns ends with E_TIMEOUT.  E_CLOSED, E_AGAIN, E_LIMIT (of blocks), E_NOMEM. */
int kv_remote_read(struct kv_remote *remote, const struct kv_remote_part *part, uint64_t until_ns,
                   void *user);
/* Saves a run as one value; blocks that the store has are left out where that is possible.  There is an event for each
 * block.  The part is copied.  E_CLOSED, E_AGAIN, E_FULL (the store takes none now), E_LIMIT, E_NOMEM. */
int kv_remote_write(struct kv_remote *remote, const struct kv_remote_part *part);
/* The next event; false: none for now. */
bool kv_remote_poll(struct kv_remote *remote, struct kv_remote_event *out);

/* Something waited for an answer until its deadline and went on without it.  Several in a row open the breaker. */
void kv_remote_late(struct kv_remote *remote);
void kv_remote_tick(struct kv_remote *remote, uint64_t now_ns); /* call it periodically */

void kv_remote_counts(const struct kv_remote *remote, struct kv_remote_counts *out);
/* Estimated time of a question of n_keys, and to read n_blocks now, the queued reads included. */
uint64_t kv_remote_ask_ns(const struct kv_remote *remote, uint32_t n_keys);
uint64_t kv_remote_read_ns(const struct kv_remote *remote, uint32_t n_blocks);
const char *kv_remote_url(const struct kv_remote *remote); /* without the password */

#endif
