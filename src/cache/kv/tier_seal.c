/* SPDX-License-Identifier: Apache-2.0 */
/* Keys of the disk tier, sealing and opening of payloads.
 *
 *     generation   = first 16 bytes of HMAC-SHA-256(store's key, "generation" | text)
 *     tenant       = first 16 bytes of HMAC-SHA-256(store's key, "tenant" | its number, little endian)
 *     segment key  = HMAC-SHA-256(store's key, "segment" | generation | salt | tenant)
 *     payload, tag = cipher(segment key, nonce = slot number, aad = first 40 bytes of the entry, pieces)
 *                    (block_cipher.h)
 *
 * Prompts can be recovered from their KV.  So disk data is sealed with a key that is not on the disk.  The
 * tag alone makes a payload valid, so a crash or a bad disk cannot.  A tenant's number follows from its
 * name.  So the disk has only a digest of it, which needs the key to make.
 *
 * The cipher reads the arena's pieces one by one: the sealed copy is the only copy between arena and file. */
#include <openssl/hmac.h>
#include <string.h>

#include "base/err.h"
#include "cache/kv/block_cipher.h"
#include "cache/kv/pool_quota.h"
#include "cache/kv/tier_priv.h"

static int tier_mac(const uint8_t key[TIER_KEY_BYTES], struct bytes text, uint8_t out[32])
{
    unsigned len = 0;

    if (HMAC(EVP_sha256(), key, TIER_KEY_BYTES, text.data, text.len_bytes, out, &len) == NULL || len != 32)
        return E_INTERNAL;
    return 0;
}

int tier_generation(const uint8_t key[TIER_KEY_BYTES], const char *text, uint8_t out[TIER_GENERATION_BYTES])
{
    struct buf image = {0};
    uint8_t digest[32];
    int rc = E_NOMEM;

    if (buf_append_str(&image, "generation") == 0 && buf_append_str(&image, text) == 0)
        rc = tier_mac(key, buf_view(&image), digest);
    buf_fini(&image);
    if (rc == 0)
        memcpy(out, digest, TIER_GENERATION_BYTES);
    return rc;
}

int tier_tenant(const uint8_t key[TIER_KEY_BYTES], kv_tenant tenant, uint8_t out[TIER_TENANT_BYTES])
{
    uint8_t image[6 + 8] = "tenant", digest[32];
    int rc;

    put_u64(image + 6, tenant);
    rc = tier_mac(key, bytes_of(image, sizeof(image)), digest);
    if (rc == 0)
        memcpy(out, digest, TIER_TENANT_BYTES);
    return rc;
}

int tier_segment_key(const uint8_t key[TIER_KEY_BYTES], const struct tier_head *head,
                     uint8_t out[TIER_KEY_BYTES])
{
    uint8_t image[7 + TIER_GENERATION_BYTES + TIER_SALT_BYTES + TIER_TENANT_BYTES] = "segment";

    memcpy(image + 7, head->generation, TIER_GENERATION_BYTES);
    memcpy(image + 7 + TIER_GENERATION_BYTES, head->salt, TIER_SALT_BYTES);
    memcpy(image + 7 + TIER_GENERATION_BYTES + TIER_SALT_BYTES, head->tenant, TIER_TENANT_BYTES);
    return tier_mac(key, bytes_of(image, sizeof(image)), out);
}

/* Sets key, nonce, and the data that is authenticated beside the payload. */
static int tier_seal_begin(const struct tier_thread *self, const struct tier_segment *segment,
                           const struct tier_entry *entry)
{
    uint8_t nonce[BLOCK_CIPHER_NONCE_BYTES] = {0}, image[TIER_ENTRY_BYTES];

    put_u32(nonce, entry->slot);
    tier_entry_pack(entry, segment->head.salt, image);
    return block_cipher_begin(self->cipher, segment->key, nonce, bytes_of(image, TIER_ENTRY_AAD_BYTES));
}

static uint8_t *tier_piece_at(const struct kv_tier *tier, uint32_t layer, kv_block_id id)
{
    return (uint8_t *)tier->opts.arena + ((size_t)layer * tier->opts.n_blocks + id) * tier->opts.piece_bytes;
}

int tier_seal(const struct tier_thread *self, const struct tier_segment *segment, kv_block_id id,
              struct tier_entry *entry)
{
    const struct kv_tier *tier = self->tier;
    const size_t piece_bytes = tier->opts.piece_bytes;
    int rc = tier_seal_begin(self, segment, entry);

    for (uint32_t layer = 0; rc == 0 && layer < tier->opts.n_layers; layer++)
        rc = block_cipher_encrypt(self->cipher, self->payload + layer * piece_bytes,
                                  bytes_of(tier_piece_at(tier, layer, id), piece_bytes),
                                  layer + 1 == tier->opts.n_layers);
    return rc == 0 ? block_cipher_tag(self->cipher, entry->tag) : rc;
}

int tier_unseal(const struct tier_thread *self, const struct tier_segment *segment, kv_block_id id,
                const struct tier_entry *entry)
{
    const struct kv_tier *tier = self->tier;
    const size_t piece_bytes = tier->opts.piece_bytes;
    int rc = tier_seal_begin(self, segment, entry);

    for (uint32_t layer = 0; rc == 0 && layer < tier->opts.n_layers; layer++)
        rc = block_cipher_decrypt(self->cipher, tier_piece_at(tier, layer, id),
                                  bytes_of(self->payload + layer * piece_bytes, piece_bytes),
                                  layer + 1 == tier->opts.n_layers);
    return rc == 0 && block_cipher_check(self->cipher, entry->tag) == 0 ? 0 : E_AUTH;
}
