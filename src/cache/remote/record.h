/* SPDX-License-Identifier: Apache-2.0 */
/* A block in a shared store, sealed: a value has one or more such records (run.h), and the key of its last block.
 *
 *      0  8  "batonkr2"                key    "baton:" generation ":" hash of the block, in hexadecimal digits
 *      8  8  payload bytes
 *     16 16  generation                payload, tag = cipher(record key, nonce 0,
 *     32 32  salt                                            aad = bytes [0, 64) | hash of the block, pieces)
 *     64 16  tag                       record key   = HMAC-SHA-256(store's key, "remote" | generation | salt)
 *     80     payload                   generation   = first 16 bytes of HMAC-SHA-256(store's key, "OCB runs" | text)
 *
 * All numbers are little endian.  The cipher: cache/kv/block_cipher.h.  The generation's text is all that decides the meaning of a block's bytes.  The
 * salt is random and each record has its own, so no key is used twice.  The hash is not in the record, it comes
 * from the reader: a right record under a wrong key does not open.  Without the key nobody can read a record or
 * make one that opens.  The blocks of a recurrent state have hashes of their own (cache/kv/state.h), so the hash
 * tells kinds of state apart too.  The words "OCB runs" keep these values apart from those of earlier versions, which
 * had other words ("runs of", "remote of") and another cipher: none reads another's.
 *
 * Pure functions but for the salt; any thread. */
#ifndef CACHE_REMOTE_RECORD_H
#define CACHE_REMOTE_RECORD_H

#include "base/bytes.h"
#include "cache/kv/block_cipher.h"
#include "cache/kv/layout.h"
#include "cache/prefix/block_hash.h"

enum {
    REMOTE_KEY_BYTES = 32,
    REMOTE_GENERATION_BYTES = 16,
    REMOTE_SALT_BYTES = 32,
    REMOTE_TAG_BYTES = 16,
    REMOTE_HEAD_BYTES = 80,
    REMOTE_NAME_BYTES = 6 + 32 + 1 + 32 + 1 /* of a key's text, with its NUL */
};

struct remote_arena { /* where the pieces of blocks are */
    void *base;
    uint32_t n_blocks, n_layers;
    size_t piece_bytes; /* of one layer of one block */
};

struct remote_seal { /* what all records of a worker have in common */
    struct remote_arena arena;
    uint8_t key[REMOTE_KEY_BYTES];
    uint8_t generation[REMOTE_GENERATION_BYTES];
};

struct remote_head {
    uint64_t payload_bytes;
    uint8_t generation[REMOTE_GENERATION_BYTES], salt[REMOTE_SALT_BYTES], tag[REMOTE_TAG_BYTES];
};

/* text: of the generation.  E_NOMEM, E_INTERNAL. */
int remote_seal_init(struct remote_seal *seal, const struct remote_arena *arena,
                     const uint8_t key[REMOTE_KEY_BYTES], const char *text);
size_t remote_record_bytes(const struct remote_seal *seal);
void remote_name(const struct remote_seal *seal, const struct block_hash *hash, char out[REMOTE_NAME_BYTES]);

void remote_head_pack(const struct remote_head *head, uint8_t out[REMOTE_HEAD_BYTES]);
/* E_TRUNCATED, E_FORMAT. */
int remote_head_unpack(struct bytes image, struct remote_head *out);

/* Writes the record of a block to out, which has room for remote_record_bytes().  cipher: for the
 * arena's pieces, one a thread.  E_INTERNAL. */
int remote_record_seal(const struct remote_seal *seal, struct block_cipher *cipher, kv_block_id id,
                       const struct block_hash *hash, uint8_t *out);
/* Opens a record into a block.  E_TRUNCATED, E_FORMAT, E_MISMATCH (of another layout), E_AUTH: not a record of
 * this block; its bytes in the arena are useless then. */
int remote_record_open(const struct remote_seal *seal, struct block_cipher *cipher, struct bytes image,
                       const struct block_hash *hash, kv_block_id id);

struct remote_opening { /* of a record that arrives in parts; begin with {0} */
    size_t at_bytes;    /* of the record, opened; 0: nothing yet */
    struct remote_head head;
};

/* Opens what has arrived of a record.  beginning: all that is there from the record's first byte on, longer with each
 * call and with the same bytes.  E_AGAIN until all is there; else as remote_record_open().  The block's bytes are
 * useless until it returned 0.  A cipher opens one record at a time. */
int remote_record_open_part(const struct remote_seal *seal, struct block_cipher *cipher,
                            struct bytes beginning, const struct block_hash *hash, kv_block_id id,
                            struct remote_opening *opening);

#endif
