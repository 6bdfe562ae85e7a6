/* SPDX-License-Identifier: Apache-2.0 */
/* See sigv4.h. */
#include "net/s3/sigv4.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <time.h>

#include "base/err.h"

enum { DIGEST_BYTES = 32 };

void sigv4_time(uint64_t unix_s, char out[SIGV4_TIME_BYTES])
{
    time_t seconds = (time_t)unix_s;
    struct tm at = {0};

    gmtime_r(&seconds, &at);
    if (strftime(out, SIGV4_TIME_BYTES, "%Y%m%dT%H%M%SZ", &at) == 0)
        out[0] = '\0';
}

static void sigv4_append_hex(struct buf *out, const uint8_t *bytes, size_t n)
{
    static const char digits[] = "0123456789abcdef";

    for (size_t i = 0; i < n; i++) {
        buf_append_byte(out, (uint8_t)digits[bytes[i] >> 4]);
        buf_append_byte(out, (uint8_t)digits[bytes[i] & 15]);
    }
}

static int sigv4_mac(struct bytes key, struct bytes text, uint8_t out[DIGEST_BYTES])
{
    unsigned len = 0;

    if (HMAC(EVP_sha256(), key.data, (int)key.len_bytes, text.data, text.len_bytes, out, &len) == NULL ||
        len != DIGEST_BYTES)
        return E_INTERNAL;
    return 0;
}

static void sigv4_append_names(const struct sigv4_request *request, struct buf *out)
{
    for (unsigned i = 0; i < request->n_headers; i++)
        buf_printf(out, "%s%s", i > 0 ? ";" : "", request->headers[i].name);
}

static void sigv4_append_scope(const struct sigv4_request *request, struct buf *out)
{
    buf_printf(out, "%.8s/%s/s3/aws4_request", request->time, request->region);
}

/* Appends the text to sign. */
static int sigv4_text(const struct sigv4_request *request, struct buf *out)
{
    struct buf canonical = {0};
    uint8_t digest[DIGEST_BYTES];
    int rc = E_NOMEM;

    buf_printf(&canonical, "%s\n%s\n%s\n", request->method, request->path, request->query);
    for (unsigned i = 0; i < request->n_headers; i++)
        buf_printf(&canonical, "%s:%s\n", request->headers[i].name, request->headers[i].value);
    buf_append_str(&canonical, "\n");
    sigv4_append_names(request, &canonical);
    buf_printf(&canonical, "\n%s", request->payload_hash);
    if (!canonical.is_bad)
        rc = EVP_Digest(canonical.data, canonical.len_bytes, digest, NULL, EVP_sha256(), NULL) == 1
                 ? 0
                 : E_INTERNAL;
    buf_fini(&canonical);
    if (rc < 0)
        return rc;
    buf_printf(out, "AWS4-HMAC-SHA256\n%s\n", request->time);
    sigv4_append_scope(request, out);
    buf_append_str(out, "\n");
    sigv4_append_hex(out, digest, sizeof(digest));
    return out->is_bad ? E_NOMEM : 0;
}

static int sigv4_key(const struct sigv4_request *request, uint8_t key[DIGEST_BYTES])
{
    struct buf secret = {0};
    int rc = E_NOMEM;

    if (buf_append_str(&secret, "AWS4") == 0 && buf_append_str(&secret, request->secret_key) == 0)
        rc = sigv4_mac(buf_view(&secret), bytes_of(request->time, 8), key);
    if (secret.data != NULL)
        explicit_bzero(secret.data, secret.len_bytes);
    buf_fini(&secret);
    for (unsigned i = 0; i < 3 && rc == 0; i++) {
        const char *const words[] = {request->region, "s3", "aws4_request"};

        rc = sigv4_mac(bytes_of(key, DIGEST_BYTES), bytes_str(words[i]), key);
    }
    return rc;
}

int sigv4_sign(const struct sigv4_request *request, struct buf *out)
{
    uint8_t key[DIGEST_BYTES], signature[DIGEST_BYTES];
    struct buf text = {0};
    int rc = strlen(request->time) == SIGV4_TIME_BYTES - 1 ? sigv4_text(request, &text) : E_INTERNAL;

    if (rc == 0)
        rc = sigv4_key(request, key);
    if (rc == 0)
        rc = sigv4_mac(bytes_of(key, sizeof(key)), buf_view(&text), signature);
    explicit_bzero(key, sizeof(key));
    buf_fini(&text);
    if (rc < 0)
        return rc;
    buf_printf(out, "AWS4-HMAC-SHA256 Credential=%s/", request->access_key);
    sigv4_append_scope(request, out);
    buf_append_str(out, ",SignedHeaders=");
    sigv4_append_names(request, out);
    buf_append_str(out, ",Signature=");
    sigv4_append_hex(out, signature, sizeof(signature));
    return out->is_bad ? E_NOMEM : 0;
}

int sigv4_encode_path(struct bytes path, struct buf *out)
{
    for (size_t i = 0; i < path.len_bytes; i++) {
        uint8_t c = path.data[i];

        if ((c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') ||
            (c != '\0' && strchr("-._~/", c)))
            buf_append_byte(out, c);
        else
            buf_printf(out, "%%%02X", c);
    }
    return out->is_bad ? E_NOMEM : 0;
}
