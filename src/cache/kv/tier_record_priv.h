/* SPDX-License-Identifier: Apache-2.0 */
/* The bytes of a segment, the file in which the disk tier keeps blocks.  No I/O: bytes in, structs out.
 *
 *     0        head, 128 bytes            what the payloads mean, how many slots there are
 *     4096     table, 64 bytes per slot   which block is in which slot
 *     payload  slot 0 | slot 1 | ...      each payload_bytes, from the next multiple of 4096 on
 *
 *   head   0  8  "batonkv1"                  entry   0  4  "slot"
 *          8  4  TIER_VERSION                        4  4  number of the slot
 *         12  4  slots                               8 16  hash of the block
 *         16  8  payload bytes of a slot            24  8  written, ns since 1970
 *         24 16  generation                         32  8  pinned until, ns since 1970; 0: not pinned
 *         40 32  salt of the segment's key          40 16  tag of the payload
 *         72  8  created, ns since 1970             56  8  XXH3 of bytes [0, 56), seeded with the salt's
 *         80  4  retention                          first 8 bytes
 *         84  4  0
 *         88  8  XXH3 of bytes [0, 88)
 *         96 16  tenant
 *        112  8  XXH3 of bytes [0, 112)
 *        120  8  0
 *
 * All numbers are little endian.  The first 96 bytes mean the same in every version.  So each version can
 * tell another version's segment, which it keeps, from a damaged one, which it deletes.  Version 1 had no
 * tenant, version 2 another cipher.
 *
 * A generation is a digest of all that decides what a payload's bytes mean: model, layout, numerics, version,
 * keys.  A segment of another generation is recognised by it and not read.  A tenant is a keyed digest of the
 * tenant that the segment's blocks count for (tier_quota_priv.h).
 *
 * A payload is a block's pieces, layer by layer, sealed (block_cipher.h).  The key is the segment's own, derived
 * from the store's with salt and tenant.  The nonce is the slot's number.  The first 40 bytes of the entry
 * are authenticated with it.  No nonce is used twice: a slot is written at most once in the life of its
 * segment, even when the write failed, and no process appends to a segment that an earlier process began.
 *
 * A payload is written before its entry.  An entry whose check fails is ignored.  An entry whose payload never
 * reached the disk fails at the tag.  Both cost only that block.
 * How to change it: docs/changes-worker.md, "A field of the files on disk, or another version of them". */
#ifndef CACHE_KV_TIER_RECORD_PRIV_H
#define CACHE_KV_TIER_RECORD_PRIV_H

#include <stdbool.h>
#include <stdint.h>

#include "base/bytes.h"
#include "cache/prefix/block_hash.h"

enum {
    TIER_VERSION = 3,
    TIER_HEAD_BYTES = 128,
    TIER_TABLE_AT = 4096,
    TIER_ENTRY_BYTES = 64,
    TIER_ENTRY_AAD_BYTES = 40, /* bytes of an entry that are authenticated with the payload */
    TIER_TAG_BYTES = 16,
    TIER_SALT_BYTES = 32,
    TIER_GENERATION_BYTES = 16,
    TIER_TENANT_BYTES = 16,
    TIER_MAX_SLOTS = 16384
};
#define TIER_MAX_PAYLOAD (UINT64_C(1) << 32)

enum tier_retention { TIER_PLAIN, TIER_PINNED, TIER_PINNED_LONG, TIER_N_RETENTIONS };

struct tier_head {
    uint32_t n_slots;
    uint64_t payload_bytes;
    uint8_t generation[TIER_GENERATION_BYTES];
    uint8_t salt[TIER_SALT_BYTES];
    uint8_t tenant[TIER_TENANT_BYTES];
    uint64_t made_unix_ns;
    enum tier_retention retention;
};

struct tier_entry {
    uint32_t slot;
    struct block_hash hash;
    uint64_t written_unix_ns, pin_end_unix_ns;
    uint8_t tag[TIER_TAG_BYTES];
};

void tier_head_pack(const struct tier_head *head, uint8_t out[TIER_HEAD_BYTES]);
/* E_TRUNCATED, E_FORMAT (not a segment, or damaged), E_VERSION, E_LIMIT. */
int tier_head_unpack(struct bytes image, struct tier_head *out);
/* salt: of the segment. */
void tier_entry_pack(const struct tier_entry *entry, const uint8_t salt[TIER_SALT_BYTES],
                     uint8_t out[TIER_ENTRY_BYTES]);
/* Reads the entry of this slot.  E_TRUNCATED, E_NOT_FOUND (never written), E_FORMAT (damaged, or of another
 * slot or segment). */
int tier_entry_unpack(struct bytes image, uint32_t slot, const uint8_t salt[TIER_SALT_BYTES],
                      struct tier_entry *out);

uint64_t tier_entry_at(uint32_t slot); /* offsets in the file */
uint64_t tier_payload_at(const struct tier_head *head, uint32_t slot);
/* Length of a file whose first n_used slots are written. */
uint64_t tier_segment_bytes(const struct tier_head *head, uint32_t n_used);

/* The file's name, "seg-0123456789abcdef".  Parse gives its number, or E_FORMAT. */
int tier_name_parse(const char *name, uint64_t *number_out);
void tier_name_print(uint64_t number, char out[24]);

#endif
