/* SPDX-License-Identifier: Apache-2.0 */
/* See state_record.h. */
#include "net/state/state_record.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <stdio.h>
#include <strings.h>

#include "base/err.h"

enum { STATE_SALT_BYTES = 32, STATE_TAG_BYTES = 16, STATE_AAD_BYTES = 8 + STATE_SALT_BYTES };

static const uint8_t state_magic[8] = {'b', 'a', 't', 'o', 'n', 's', 't', '1'};

static int state_mac(const uint8_t key[STATE_KEY_BYTES], struct bytes text, uint8_t out[32])
{
    unsigned len = 0;

    if (HMAC(EVP_sha256(), key, STATE_KEY_BYTES, text.data, text.len_bytes, out, &len) == NULL || len != 32)
        return E_INTERNAL;
    return 0;
}

static void state_hex(char *out, const uint8_t *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        snprintf(out + 2 * i, 3, "%02x", bytes[i]);
}

static void state_put_text(struct buf *out, struct bytes text)
{
    uint8_t len[4];

    put_u32(len, (uint32_t)text.len_bytes);
    buf_append(out, len, sizeof(len));
    buf_append(out, text.data, text.len_bytes);
}

int state_name_make(const uint8_t key[STATE_KEY_BYTES], const char *kind, struct bytes owner, struct bytes id,
                    struct state_name *out)
{
    char cluster[17], digits[33];
    struct buf text = {0};
    uint8_t mac[32];
    int rc = state_mac(key, bytes_str("state of"), mac);

    if (rc < 0)
        return rc;
    state_hex(cluster, mac, 8);
    buf_append_str(&text, "state name");
    state_put_text(&text, bytes_str(kind));
    state_put_text(&text, owner);
    state_put_text(&text, id);
    rc = text.is_bad ? E_NOMEM : state_mac(key, buf_view(&text), mac);
    buf_fini(&text);
    if (rc < 0)
        return rc;
    state_hex(digits, mac, 16);
    snprintf(out->text, sizeof(out->text), "baton:{%s}:%.12s:%s", cluster, kind, digits);
    return 0;
}

/* Sets the record's key, and what is authenticated beside the sealed bytes.  head: magic and salt. */
static bool state_cipher_begin(EVP_CIPHER_CTX *ctx, const uint8_t key[STATE_KEY_BYTES], const uint8_t *head,
                               const struct state_name *name, int encrypts)
{
    uint8_t text[5 + STATE_SALT_BYTES] = {'s', 't', 'a', 't', 'e'}, record_key[32];
    const uint8_t nonce[12] = {0};
    int len = 0;
    bool is_good;

    memcpy(text + 5, head + 8, STATE_SALT_BYTES);
    is_good = state_mac(key, bytes_of(text, sizeof(text)), record_key) == 0 &&
              EVP_CipherInit_ex(ctx, EVP_aes_256_gcm(), NULL, record_key, nonce, encrypts) == 1 &&
              EVP_CipherUpdate(ctx, NULL, &len, head, STATE_AAD_BYTES) == 1 &&
              EVP_CipherUpdate(ctx, NULL, &len, (const uint8_t *)name->text, (int)strlen(name->text)) == 1;
    explicit_bzero(record_key, sizeof(record_key));
    return is_good;
}

int state_record_seal(const uint8_t key[STATE_KEY_BYTES], const struct state_name *name,
                      const uint64_t times_s[2], struct bytes value, struct buf *out)
{
    size_t n_sealed = STATE_TIMES_BYTES + value.len_bytes;
    uint8_t times[STATE_TIMES_BYTES], nothing[16], *head, *sealed;
    EVP_CIPHER_CTX *ctx = EVP_CIPHER_CTX_new();
    int len = 0;
    bool is_good;

    if (ctx == NULL || value.len_bytes > INT32_MAX / 2 || buf_reserve(out, STATE_HEAD_BYTES + n_sealed) < 0) {
        EVP_CIPHER_CTX_free(ctx);
        return E_NOMEM;
    }
    put_u64(times, times_s[0]);
    put_u64(times + 8, times_s[1]);
    head = out->data + out->len_bytes;
    sealed = head + STATE_HEAD_BYTES;
    memcpy(head, state_magic, sizeof(state_magic));
    is_good = RAND_bytes(head + 8, STATE_SALT_BYTES) == 1 && state_cipher_begin(ctx, key, head, name, 1) &&
              EVP_CipherUpdate(ctx, sealed, &len, times, sizeof(times)) == 1 &&
              (value.len_bytes == 0 || EVP_CipherUpdate(ctx, sealed + STATE_TIMES_BYTES, &len, value.data,
                                                        (int)value.len_bytes) == 1) &&
              EVP_CipherFinal_ex(ctx, nothing, &len) == 1 &&
              EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_GCM_GET_TAG, STATE_TAG_BYTES, head + STATE_AAD_BYTES) == 1;
    EVP_CIPHER_CTX_free(ctx);
    if (!is_good)
        return E_INTERNAL;
    out->len_bytes += STATE_HEAD_BYTES + n_sealed;
    out->data[out->len_bytes] = '\0';
    return 0;
}

/* Opens the sealed bytes to `plain`, which has room for them. */
static int state_record_decrypt(const uint8_t key[STATE_KEY_BYTES], const struct state_name *name,
                                struct bytes image, uint8_t *plain)
{
    EVP_CIPHER_CTX *ctx = EVP_CIPHER_CTX_new();
    uint8_t tag[STATE_TAG_BYTES], nothing[16];
    int len = 0;
    bool is_good;

    if (ctx == NULL)
        return E_NOMEM;
    memcpy(tag, image.data + STATE_AAD_BYTES, sizeof(tag));
    is_good = state_cipher_begin(ctx, key, image.data, name, 0) &&
              EVP_CipherUpdate(ctx, plain, &len, image.data + STATE_HEAD_BYTES,
                               (int)(image.len_bytes - STATE_HEAD_BYTES)) == 1 &&
              EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_GCM_SET_TAG, STATE_TAG_BYTES, tag) == 1 &&
              EVP_CipherFinal_ex(ctx, nothing, &len) == 1;
    EVP_CIPHER_CTX_free(ctx);
    return is_good ? 0 : E_AUTH;
}

int state_record_open(const uint8_t key[STATE_KEY_BYTES], const struct state_name *name, uint64_t now_s,
                      struct bytes image, struct buf *out)
{
    uint8_t *plain;
    size_t n;
    int rc;

    if (image.len_bytes < STATE_HEAD_BYTES + STATE_TIMES_BYTES)
        return E_TRUNCATED;
    if (memcmp(image.data, state_magic, sizeof(state_magic)) != 0 || image.len_bytes > INT32_MAX / 2)
        return E_FORMAT;
    n = image.len_bytes - STATE_HEAD_BYTES;
    if (buf_reserve(out, n) < 0)
        return E_NOMEM;
    plain = out->data + out->len_bytes;
    rc = state_record_decrypt(key, name, image, plain);
    if (rc < 0)
        return rc;
    if (now_s != STATE_NO_CLOCK && (get_u64(plain) > now_s + STATE_CLOCKS_S ||
                                    (now_s > STATE_CLOCKS_S && get_u64(plain + 8) < now_s - STATE_CLOCKS_S)))
        return E_RANGE;
    memmove(plain, plain + STATE_TIMES_BYTES, n - STATE_TIMES_BYTES);
    out->len_bytes += n - STATE_TIMES_BYTES;
    out->data[out->len_bytes] = '\0';
    return 0;
}
