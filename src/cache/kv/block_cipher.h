/* SPDX-License-Identifier: Apache-2.0 */
/* The cipher that seals blocks outside memory, on disk and in a shared store.
 *
 *     begin(key, nonce, data beside the pieces) --> encrypt(piece).. --> tag
 *                                               `-> decrypt(piece).. --> check(tag)
 *
 * AES-256-OCB (RFC 7253) encrypts and authenticates in one pass.  libgcrypt has code for it that takes two or four units
 * at once (VAES), with which it is 4 times as fast as OpenSSL's AES-256-GCM on a Zen 3 (docs/lab/2026-11-28-sealing.md).  It
 * takes whole units of 16 bytes.  Pieces of another size are sealed with AES-256-GCM: only simulated workers have such
 * pieces, since the blocks of engines have 16 tokens or a multiple of that.
 *
 * A cipher belongs to one thread and seals or opens one block at a time. */
#ifndef CACHE_KV_BLOCK_CIPHER_H
#define CACHE_KV_BLOCK_CIPHER_H

#include <stdbool.h>

#include "base/bytes.h"

enum {
    BLOCK_CIPHER_KEY_BYTES = 32,
    BLOCK_CIPHER_NONCE_BYTES = 12,
    BLOCK_CIPHER_TAG_BYTES = 16,
    BLOCK_CIPHER_UNIT_BYTES = 16
};

struct block_cipher;

/* piece_bytes: K and V of one layer of one block.  NULL: no memory, or libgcrypt is in its FIPS mode, which has no
 * OCB. */
struct block_cipher *block_cipher_new(size_t piece_bytes);
void block_cipher_free(struct block_cipher *cipher); /* accepts NULL */

/* Begins a block.  beside: authenticated, not encrypted.  No nonce may be used twice with a key.  E_INTERNAL. */
int block_cipher_begin(struct block_cipher *cipher, const uint8_t key[BLOCK_CIPHER_KEY_BYTES],
                       const uint8_t nonce[BLOCK_CIPHER_NONCE_BYTES], struct bytes beside);
/* Writes from.len_bytes to `to`: a piece, or whole units of one.  is_last: of the block.  E_INTERNAL. */
int block_cipher_encrypt(struct block_cipher *cipher, uint8_t *to, struct bytes from, bool is_last);
int block_cipher_decrypt(struct block_cipher *cipher, uint8_t *to, struct bytes from, bool is_last);
/* After the last piece. */
int block_cipher_tag(struct block_cipher *cipher, uint8_t tag[BLOCK_CIPHER_TAG_BYTES]);
/* E_AUTH: the block or the data beside it is not what was sealed; what was decrypted is useless. */
int block_cipher_check(struct block_cipher *cipher, const uint8_t tag[BLOCK_CIPHER_TAG_BYTES]);

#endif
