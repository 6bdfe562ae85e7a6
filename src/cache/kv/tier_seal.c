/* SPDX-License-Identifier: Apache-2.0 */
/* Keys of the disk tier, sealing and opening of payloads.
 *
 *     generation   = first 16 bytes of HMAC-SHA-256(store's key, "generation" | text)
 *     tenant       = first 16 bytes of HMAC-SHA-256(store's key, "tenant" | its number, little endian)
 *     segment key  = HMAC-SHA-256(store's key, "segment" | generation | salt | tenant)
 *     payload, tag = AES-256-GCM(segment key, nonce = slot number, aad = first 40 bytes of the entry, pieces)
 *
 * Prompts can be recovered from their KV.  So disk data is sealed with a key that is not on the disk.  The
 * tag alone makes a payload valid, so a crash or a bad disk cannot.  A tenant's number follows from its
 * name.  So the disk has only a digest of it, which needs the key to make.
 *
 * The cipher reads the arena's pieces one by one: the sealed copy is the only copy between arena and file. */
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <string.h>

#include "base/err.h"
#include "cache/kv/pool_quota.h"
#include "cache/kv/tier_priv.h"

enum { NONCE_BYTES = 12 };

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

void *tier_cipher_new(void)
{
    return EVP_CIPHER_CTX_new();
}

void tier_cipher_free(void *cipher)
{
    EVP_CIPHER_CTX_free(cipher);
}

/* Sets key, nonce, and the data that is authenticated beside the payload. */
static bool tier_seal_begin(EVP_CIPHER_CTX *ctx, const struct tier_segment *segment,
                            const struct tier_entry *entry, int encrypts)
{
    uint8_t nonce[NONCE_BYTES] = {0}, image[TIER_ENTRY_BYTES];
    int len = 0;

    put_u32(nonce, entry->slot);
    tier_entry_pack(entry, segment->head.salt, image);
    return EVP_CipherInit_ex(ctx, EVP_aes_256_gcm(), NULL, segment->key, nonce, encrypts) == 1 &&
           EVP_CipherUpdate(ctx, NULL, &len, image, TIER_ENTRY_AAD_BYTES) == 1;
}

static uint8_t *tier_piece_at(const struct kv_tier *tier, uint32_t layer, kv_block_id id)
{
    return (uint8_t *)tier->opts.arena + ((size_t)layer * tier->opts.n_blocks + id) * tier->opts.piece_bytes;
}

int tier_seal(const struct tier_thread *self, const struct tier_segment *segment, kv_block_id id,
              struct tier_entry *entry)
{
    const struct kv_tier *tier = self->tier;
    uint8_t *payload = self->payload;
    EVP_CIPHER_CTX *ctx = self->cipher;
    int len_piece = (int)tier->opts.piece_bytes, len = 0;
    bool is_good = tier_seal_begin(ctx, segment, entry, 1);

    for (uint32_t layer = 0; is_good && layer < tier->opts.n_layers; layer++)
        is_good = EVP_CipherUpdate(ctx, payload + layer * tier->opts.piece_bytes, &len,
                                   tier_piece_at(tier, layer, id), len_piece) == 1 &&
                  len == len_piece;
    is_good = is_good && EVP_CipherFinal_ex(ctx, payload + tier->payload_bytes, &len) == 1 &&
              EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_GCM_GET_TAG, TIER_TAG_BYTES, entry->tag) == 1;
    return is_good ? 0 : E_INTERNAL;
}

int tier_unseal(const struct tier_thread *self, const struct tier_segment *segment, kv_block_id id,
                const struct tier_entry *entry)
{
    const struct kv_tier *tier = self->tier;
    const uint8_t *payload = self->payload;
    EVP_CIPHER_CTX *ctx = self->cipher;
    uint8_t tag[TIER_TAG_BYTES], nothing[16];
    int len_piece = (int)tier->opts.piece_bytes, len = 0;
    bool is_good = tier_seal_begin(ctx, segment, entry, 0);

    for (uint32_t layer = 0; is_good && layer < tier->opts.n_layers; layer++)
        is_good = EVP_CipherUpdate(ctx, tier_piece_at(tier, layer, id), &len,
                                   payload + layer * tier->opts.piece_bytes, len_piece) == 1 &&
                  len == len_piece;
    memcpy(tag, entry->tag, sizeof(tag));
    is_good = is_good && EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_GCM_SET_TAG, TIER_TAG_BYTES, tag) == 1 &&
              EVP_CipherFinal_ex(ctx, nothing, &len) == 1;
    return is_good ? 0 : E_AUTH;
}
