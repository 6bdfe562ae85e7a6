/* SPDX-License-Identifier: Apache-2.0 */
/* Keyed BLAKE2s (RFC 7693), for chains of short messages under one key: a keyed state is made once and copied
 * for each message, which saves the compression of the key that a library's reset repeats. */
#ifndef PREFIX_BLAKE2S_PRIV_H
#define PREFIX_BLAKE2S_PRIV_H

#include <stddef.h>
#include <stdint.h>

#define BLAKE2S_KEY_BYTES   32
#define BLAKE2S_BLOCK_BYTES 64

struct blake2s {
    uint32_t h[8];
    uint64_t n_bytes; /* compressed so far */
    uint32_t n_held;
    uint8_t held[BLAKE2S_BLOCK_BYTES];
};

/* out_bytes: 1 to 32, part of what is hashed.  The message that follows must not be empty. */
void blake2s_init(struct blake2s *state, const uint8_t key[BLAKE2S_KEY_BYTES], size_t out_bytes);
void blake2s_update(struct blake2s *state, const void *data, size_t len_bytes);
void blake2s_final(struct blake2s *state, uint8_t *out, size_t out_bytes);

#endif
