/* SPDX-License-Identifier: Apache-2.0 */
/* HMAC-SHA-256 in base64, after three bytes that give the kind of signature. */
#include "serve/access/sign.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/rng.h"

static const uint8_t kind[3] = {'b', 't', 1};
static uint8_t key[32];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static bool has_key;

static void draw_key(void)
{
    if (!has_key)
        rng_system(key, sizeof(key));
}

void sign_use_key(const uint8_t given[32])
{
    memcpy(key, given, sizeof(key));
    has_key = true;
}

uint32_t sign_event(const char *request_id, uint32_t number)
{
    char text[128];
    uint8_t hash[32];
    unsigned len = sizeof(hash);
    int n = snprintf(text, sizeof(text), "event %.63s %u", request_id, number);

    pthread_once(&once, draw_key);
    if (HMAC(EVP_sha256(), key, sizeof(key), (const uint8_t *)text, (size_t)n, hash, &len) == NULL)
        return 0;
    return (uint32_t)hash[0] << 24 | (uint32_t)hash[1] << 16 | (uint32_t)hash[2] << 8 | hash[3];
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
