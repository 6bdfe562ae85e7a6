/* SPDX-License-Identifier: Apache-2.0 */
/* A fingerprint of a model file that costs a few reads for each tensor instead of a read of the whole file.
 *
 * It hashes the header, keys and tensor declarations of all parts, then the first and last 4 KiB of each
 * tensor.  Workers compare fingerprints before they hand KV to each other.  So another model, another
 * quantisation or another fine-tune must get another fingerprint.  A forger could make a file that collides.
 * But a forger who can replace the model file needs no collision. */
#include "gguf/gguf_priv.h"

#include "base/str.h"

#include <xxhash.h>

#define SAMPLE_BYTES 4096

/* running = hash(running, hash of data) */
static void gguf_fingerprint_fold(XXH128_canonical_t *running, const void *data, size_t len_bytes)
{
    XXH128_canonical_t both[2] = {*running};

    XXH128_canonicalFromHash(&both[1], XXH3_128bits(data, len_bytes));
    XXH128_canonicalFromHash(running, XXH3_128bits(both, sizeof(both)));
}

void gguf_fingerprint(const struct gguf *gguf, char out[33])
{
    XXH128_canonical_t running = {0};

    gguf_fingerprint_fold(&running, gguf->image.data, gguf->directory_len_bytes);
    for (uint32_t i = 1; i < gguf->n_parts; i++)
        gguf_fingerprint_fold(&running, gguf->parts[i]->image.data, gguf->parts[i]->directory_len_bytes);
    for (uint32_t i = 0; i < gguf->n_tensors; i++) {
        const struct gguf_tensor *tensor = &gguf->tensors[i];
        const uint8_t *data = tensor->data;
        size_t sample_bytes = tensor->len_bytes < SAMPLE_BYTES ? tensor->len_bytes : SAMPLE_BYTES;

        gguf_fingerprint_fold(&running, data, sample_bytes);
        gguf_fingerprint_fold(&running, data + tensor->len_bytes - sample_bytes, sample_bytes);
    }
    _Static_assert(sizeof(running.digest) == 16, "32 hexadecimal digits");
    hex_encode(running.digest, sizeof(running.digest), out);
}
