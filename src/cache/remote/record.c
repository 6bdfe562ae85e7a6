/* SPDX-License-Identifier: Apache-2.0 */
/* See record.h.  The cipher reads and writes the arena's pieces one by one: the sealed copy is the only copy
 * between arena and socket. */
#include "cache/remote/record.h"

#include <openssl/hmac.h>
#include <openssl/rand.h>

#include "base/err.h"

enum { REMOTE_AAD_BYTES = 64 };
/* A part is opened in steps of so many bytes: the cipher is slow at small ones. */
enum { REMOTE_STEP_BYTES = 4096 };

static const uint8_t remote_magic[8] = {'b', 'a', 't', 'o', 'n', 'k', 'r', '2'};

static int remote_mac(const uint8_t key[REMOTE_KEY_BYTES], struct bytes text, uint8_t out[32])
{
    unsigned len = 0;

    if (HMAC(EVP_sha256(), key, REMOTE_KEY_BYTES, text.data, text.len_bytes, out, &len) == NULL || len != 32)
        return E_INTERNAL;
    return 0;
}

int remote_seal_init(struct remote_seal *seal, const struct remote_arena *arena,
                     const uint8_t key[REMOTE_KEY_BYTES], const char *text)
{
    struct buf image = {0};
    uint8_t digest[32];
    int rc = E_NOMEM;

    *seal = (struct remote_seal){.arena = *arena};
    memcpy(seal->key, key, REMOTE_KEY_BYTES);
    if (buf_append_str(&image, "OCB runs") == 0 && buf_append_str(&image, text) == 0)
        rc = remote_mac(key, buf_view(&image), digest);
    buf_fini(&image);
    if (rc == 0)
        memcpy(seal->generation, digest, sizeof(seal->generation));
    return rc;
}

size_t remote_record_bytes(const struct remote_seal *seal)
{
    return REMOTE_HEAD_BYTES + seal->arena.n_layers * seal->arena.piece_bytes;
}

static char *remote_hex(char *out, const uint8_t *bytes, size_t n)
{
    static const char digits[] = "0123456789abcdef";

    for (size_t i = 0; i < n; i++) {
        *out++ = digits[bytes[i] >> 4];
        *out++ = digits[bytes[i] & 15];
    }
    return out;
}

void remote_name(const struct remote_seal *seal, const struct block_hash *hash, char out[REMOTE_NAME_BYTES])
{
    char *at;

    memcpy(out, "baton:", 6);
    at = remote_hex(out + 6, seal->generation, sizeof(seal->generation));
    *at++ = ':';
    at = remote_hex(at, hash->bytes, sizeof(hash->bytes));
    *at = '\0';
}

void remote_head_pack(const struct remote_head *head, uint8_t out[REMOTE_HEAD_BYTES])
{
    memcpy(out, remote_magic, 8);
    put_u64(out + 8, head->payload_bytes);
    memcpy(out + 16, head->generation, REMOTE_GENERATION_BYTES);
    memcpy(out + 32, head->salt, REMOTE_SALT_BYTES);
    memcpy(out + 64, head->tag, REMOTE_TAG_BYTES);
}

int remote_head_unpack(struct bytes image, struct remote_head *out)
{
    if (image.len_bytes < REMOTE_HEAD_BYTES)
        return E_TRUNCATED;
    if (memcmp(image.data, remote_magic, 8) != 0)
        return E_FORMAT;
    out->payload_bytes = get_u64(image.data + 8);
    memcpy(out->generation, image.data + 16, REMOTE_GENERATION_BYTES);
    memcpy(out->salt, image.data + 32, REMOTE_SALT_BYTES);
    memcpy(out->tag, image.data + 64, REMOTE_TAG_BYTES);
    return 0;
}

/* ---- sealing ---- */

/* Sets the record's key, and the data that is authenticated beside the payload. */
static int remote_cipher_begin(struct block_cipher *cipher, const struct remote_seal *seal,
                               const struct remote_head *head, const struct block_hash *hash)
{
    uint8_t text[6 + REMOTE_GENERATION_BYTES + REMOTE_SALT_BYTES] = "remote", key[BLOCK_CIPHER_KEY_BYTES];
    uint8_t image[REMOTE_HEAD_BYTES], beside[REMOTE_AAD_BYTES + sizeof(hash->bytes)];
    const uint8_t nonce[BLOCK_CIPHER_NONCE_BYTES] = {0};
    int rc;

    memcpy(text + 6, head->generation, REMOTE_GENERATION_BYTES);
    memcpy(text + 6 + REMOTE_GENERATION_BYTES, head->salt, REMOTE_SALT_BYTES);
    remote_head_pack(head, image);
    memcpy(beside, image, REMOTE_AAD_BYTES);
    memcpy(beside + REMOTE_AAD_BYTES, hash->bytes, sizeof(hash->bytes));
    rc = remote_mac(seal->key, bytes_of(text, sizeof(text)), key);
    if (rc == 0)
        rc = block_cipher_begin(cipher, key, nonce, bytes_of(beside, sizeof(beside)));
    explicit_bzero(key, sizeof(key));
    return rc;
}

static uint8_t *remote_piece_at(const struct remote_arena *arena, uint32_t layer, kv_block_id id)
{
    return (uint8_t *)arena->base + ((size_t)layer * arena->n_blocks + id) * arena->piece_bytes;
}

int remote_record_seal(const struct remote_seal *seal, struct block_cipher *cipher, kv_block_id id,
                       const struct block_hash *hash, uint8_t *out)
{
    const struct remote_arena *arena = &seal->arena;
    struct remote_head head = {.payload_bytes = arena->n_layers * (uint64_t)arena->piece_bytes};
    uint8_t *payload = out + REMOTE_HEAD_BYTES;
    int rc = E_INTERNAL;

    memcpy(head.generation, seal->generation, sizeof(head.generation));
    if (RAND_bytes(head.salt, sizeof(head.salt)) == 1)
        rc = remote_cipher_begin(cipher, seal, &head, hash);
    for (uint32_t layer = 0; rc == 0 && layer < arena->n_layers; layer++)
        rc = block_cipher_encrypt(cipher, payload + layer * arena->piece_bytes,
                                  bytes_of(remote_piece_at(arena, layer, id), arena->piece_bytes),
                                  layer + 1 == arena->n_layers);
    if (rc == 0)
        rc = block_cipher_tag(cipher, head.tag);
    remote_head_pack(&head, out);
    return rc;
}

/* Reads the head, and sets the record's key. */
static int remote_opening_begin(const struct remote_seal *seal, struct block_cipher *cipher,
                                struct bytes beginning, const struct block_hash *hash,
                                struct remote_opening *opening)
{
    const struct remote_arena *arena = &seal->arena;
    int rc = remote_head_unpack(beginning, &opening->head);

    if (rc < 0)
        return rc;
    if (memcmp(opening->head.generation, seal->generation, sizeof(seal->generation)) != 0 ||
        opening->head.payload_bytes != arena->n_layers * (uint64_t)arena->piece_bytes)
        return E_MISMATCH;
    opening->at_bytes = REMOTE_HEAD_BYTES;
    return remote_cipher_begin(cipher, seal, &opening->head, hash);
}

/* Opens the payload up to end_bytes of the record. */
static int remote_opening_go_on(const struct remote_seal *seal, struct block_cipher *cipher,
                                const uint8_t *record, size_t end_bytes, kv_block_id id,
                                struct remote_opening *opening)
{
    const struct remote_arena *arena = &seal->arena;
    int rc = 0;

    while (rc == 0 && opening->at_bytes < end_bytes) {
        size_t at = opening->at_bytes - REMOTE_HEAD_BYTES, in_piece = at % arena->piece_bytes;
        size_t left = end_bytes - opening->at_bytes, in_one = arena->piece_bytes - in_piece;
        struct bytes part = bytes_of(record + opening->at_bytes, in_one < left ? in_one : left);
        uint8_t *to = remote_piece_at(arena, (uint32_t)(at / arena->piece_bytes), id) + in_piece;

        opening->at_bytes += part.len_bytes;
        rc = block_cipher_decrypt(cipher, to, part, opening->at_bytes == remote_record_bytes(seal));
    }
    return rc;
}

int remote_record_open_part(const struct remote_seal *seal, struct block_cipher *cipher,
                            struct bytes beginning, const struct block_hash *hash, kv_block_id id,
                            struct remote_opening *opening)
{
    size_t record_bytes = remote_record_bytes(seal), end_bytes = beginning.len_bytes;
    int rc = 0;

    if (beginning.len_bytes < opening->at_bytes)
        return E_AGAIN;
    if (opening->at_bytes == 0)
        rc = remote_opening_begin(seal, cipher, beginning, hash, opening);
    if (rc < 0)
        return rc == E_TRUNCATED ? E_AGAIN : rc;
    if (end_bytes < record_bytes)
        end_bytes -= (end_bytes - REMOTE_HEAD_BYTES) % REMOTE_STEP_BYTES;
    else
        end_bytes = record_bytes;
    rc = remote_opening_go_on(seal, cipher, beginning.data, end_bytes, id, opening);
    if (rc == 0)
        rc = end_bytes < record_bytes ? E_AGAIN : block_cipher_check(cipher, opening->head.tag);
    return rc;
}

int remote_record_open(const struct remote_seal *seal, struct block_cipher *cipher, struct bytes image,
                       const struct block_hash *hash, kv_block_id id)
{
    struct remote_opening opening = {0};
    int rc = remote_record_open_part(seal, cipher, image, hash, id, &opening);

    return rc == E_AGAIN || (rc == 0 && image.len_bytes > remote_record_bytes(seal)) ? E_TRUNCATED : rc;
}
