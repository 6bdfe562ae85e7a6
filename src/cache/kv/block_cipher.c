/* SPDX-License-Identifier: Apache-2.0 */
/* See block_cipher.h. */
#include "cache/kv/block_cipher.h"

#include <gcrypt.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/err.h"

struct block_cipher {
    gcry_cipher_hd_t handle;
};

static pthread_once_t block_cipher_once = PTHREAD_ONCE_INIT;

/* Another library of the process may have done it. */
static void block_cipher_init_library(void)
{
    if (gcry_control(GCRYCTL_INITIALIZATION_FINISHED_P) != 0)
        return;
    gcry_check_version(NULL);
    gcry_control(GCRYCTL_DISABLE_SECMEM, 0); /* keys lie in plain memory, as those of OpenSSL do */
    gcry_control(GCRYCTL_INITIALIZATION_FINISHED, 0);
}

struct block_cipher *block_cipher_new(size_t piece_bytes)
{
    const int mode = piece_bytes % BLOCK_CIPHER_UNIT_BYTES == 0 ? GCRY_CIPHER_MODE_OCB : GCRY_CIPHER_MODE_GCM;
    struct block_cipher *cipher = calloc(1, sizeof(*cipher));

    pthread_once(&block_cipher_once, block_cipher_init_library);
    if (cipher == NULL || gcry_cipher_open(&cipher->handle, GCRY_CIPHER_AES256, mode, 0) != 0) {
        free(cipher);
        return NULL;
    }
    return cipher;
}

void block_cipher_free(struct block_cipher *cipher)
{
    if (cipher == NULL)
        return;
    gcry_cipher_close(cipher->handle); /* wipes the key */
    free(cipher);
}

int block_cipher_begin(struct block_cipher *cipher, const uint8_t key[BLOCK_CIPHER_KEY_BYTES],
                       const uint8_t nonce[BLOCK_CIPHER_NONCE_BYTES], struct bytes beside)
{
    return gcry_cipher_setkey(cipher->handle, key, BLOCK_CIPHER_KEY_BYTES) == 0 &&
                   gcry_cipher_setiv(cipher->handle, nonce, BLOCK_CIPHER_NONCE_BYTES) == 0 &&
                   gcry_cipher_authenticate(cipher->handle, beside.data, beside.len_bytes) == 0
               ? 0
               : E_INTERNAL;
}

int block_cipher_encrypt(struct block_cipher *cipher, uint8_t *to, struct bytes from, bool is_last)
{
    if (is_last && gcry_cipher_final(cipher->handle) != 0)
        return E_INTERNAL;
    return gcry_cipher_encrypt(cipher->handle, to, from.len_bytes, from.data, from.len_bytes) == 0
               ? 0
               : E_INTERNAL;
}

int block_cipher_decrypt(struct block_cipher *cipher, uint8_t *to, struct bytes from, bool is_last)
{
    if (is_last && gcry_cipher_final(cipher->handle) != 0)
        return E_INTERNAL;
    return gcry_cipher_decrypt(cipher->handle, to, from.len_bytes, from.data, from.len_bytes) == 0
               ? 0
               : E_INTERNAL;
}

int block_cipher_tag(struct block_cipher *cipher, uint8_t tag[BLOCK_CIPHER_TAG_BYTES])
{
    return gcry_cipher_gettag(cipher->handle, tag, BLOCK_CIPHER_TAG_BYTES) == 0 ? 0 : E_INTERNAL;
}

int block_cipher_check(struct block_cipher *cipher, const uint8_t tag[BLOCK_CIPHER_TAG_BYTES])
{
    return gcry_cipher_checktag(cipher->handle, tag, BLOCK_CIPHER_TAG_BYTES) == 0 ? 0 : E_AUTH;
}
