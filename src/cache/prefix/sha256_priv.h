/* SPDX-License-Identifier: Apache-2.0 */
/* SHA-256 (FIPS 180-4) for chains of short messages under one key.  The state after the key's block is
 * computed once and copied for each message.  Pure; any thread. */
#ifndef CACHE_PREFIX_SHA256_PRIV_H
#define CACHE_PREFIX_SHA256_PRIV_H

#include <stddef.h>
#include <stdint.h>

#define SHA256_BLOCK_BYTES 64
#define SHA256_BYTES       32

/* Absorbs n_blocks blocks into the state. */
typedef void (*sha256_compress)(uint32_t state[8], const uint8_t *blocks, size_t n_blocks);

/* plain: C, for any machine.  cpu: the CPU's SHA instructions, NULL where it has none.  Both give equal
 * results. */
void sha256_compress_plain(uint32_t state[8], const uint8_t *blocks, size_t n_blocks);
sha256_compress sha256_compress_cpu(void);

extern const uint32_t sha256_constants[64]; /* of the 64 rounds */

struct sha256 {
    sha256_compress compress;
    uint32_t state[8];
    uint64_t n_bytes; /* bytes absorbed, held ones included */
    uint32_t n_held;
    uint8_t held[SHA256_BLOCK_BYTES];
};

void sha256_init(struct sha256 *hash);
void sha256_update(struct sha256 *hash, const void *data, size_t len_bytes);
void sha256_final(struct sha256 *hash, uint8_t out[SHA256_BYTES]);

#endif
