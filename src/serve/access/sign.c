/* SPDX-License-Identifier: Apache-2.0 */
/* HMAC-SHA-256 in base64, after three bytes that give the kind of signature. */
#include "serve/access/sign.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <pthread.h>
#include <string.h>

#include "base/err.h"
#include "base/rng.h"

static const uint8_t kind[3] = {'b', 't', 1};
static uint8_t key[32];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void draw_key(void)
{
    rng_system(key, sizeof(key));
}

int sign_thinking(struct bytes text, char out[SIGN_CHARS + 1])
{
    uint8_t signature[sizeof(kind) + 33] = {0}; /* 36 bytes: 48 letters, no padding */
    unsigned len = 32;

    pthread_once(&once, draw_key);
    memcpy(signature, kind, sizeof(kind));
    if (HMAC(EVP_sha256(), key, sizeof(key), text.data == NULL ? (const uint8_t *)"" : text.data,
             text.len_bytes, signature + sizeof(kind), &len) == NULL)
        return E_NOMEM;
    EVP_EncodeBlock((uint8_t *)out, signature, sizeof(signature));
    return 0;
}

bool sign_is_ours(struct bytes text, struct bytes signature)
{
    char ours[SIGN_CHARS + 1];

    return signature.len_bytes == SIGN_CHARS && sign_thinking(text, ours) == 0 &&
           CRYPTO_memcmp(ours, signature.data, SIGN_CHARS) == 0;
}
