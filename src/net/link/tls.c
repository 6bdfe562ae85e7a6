/* SPDX-License-Identifier: Apache-2.0 */
/* Two SSL_CTX that share one secret; they trust nothing else.
 *
 *     client                                   server
 *       ClientHello: identity, binder  ----->    find_session(): identity is ours?  binder proves key
 *       <----- ServerHello: PSK chosen, Finished
 *       Finished ----->
 *
 * OpenSSL represents an external PSK as an artificial session: master key, suite and version. The server
 * has no certificate, so it cannot complete a handshake without the PSK. The client demands a certificate
 * that it can never verify (its store is empty), so a server that ignores the PSK fails too. Hence both
 * sides of a finished handshake know the key. A wrong key fails at the binder, before any secret is sent.
 *
 * The PSK callbacks have no user argument; the SSL_CTX's ex_data carries the context. */
#include "net/link/tls.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/hmac.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "base/file.h"
#include "base/rng.h"
#include "base/str.h"
#include "net/link/tls_ctx.h"

#define IDENTITY  "baton cluster 1"
#define SUITE     "TLS_AES_256_GCM_SHA384"
#define GROUPS    "X25519:P-256"
#define KEY_BYTES 32

static const unsigned char suite_id[2] = {0x13, 0x02};

struct tls_context {
    uint8_t psk[KEY_BYTES];
    SSL_CTX *server;
    SSL_CTX *client;
};

static pthread_once_t slot_once = PTHREAD_ONCE_INIT;
static int slot = -1; /* index of ex_data; written once */

static void take_slot(void)
{
    slot = SSL_CTX_get_ex_new_index(0, NULL, NULL, NULL, NULL);
}

static SSL_SESSION *session_of_key(SSL *ssl)
{
    const struct tls_context *tls = SSL_CTX_get_ex_data(SSL_get_SSL_CTX(ssl), slot);
    const SSL_CIPHER *suite = SSL_CIPHER_find(ssl, suite_id);
    SSL_SESSION *session = SSL_SESSION_new();

    if (session != NULL && suite != NULL &&
        SSL_SESSION_set1_master_key(session, tls->psk, sizeof(tls->psk)) == 1 &&
        SSL_SESSION_set_cipher(session, suite) == 1 &&
        SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) == 1)
        return session;
    SSL_SESSION_free(session);
    return NULL;
}

static int use_session(SSL *ssl, const EVP_MD *digest, const unsigned char **id, size_t *id_bytes,
                       SSL_SESSION **out)
{
    *out = NULL;
    *id = (const unsigned char *)IDENTITY;
    *id_bytes = sizeof(IDENTITY) - 1;
    /* The key does not fit this digest: continue without a PSK, and fail at the certificate. */
    if (digest != NULL && EVP_MD_get_type(digest) != NID_sha384)
        return 1;
    *out = session_of_key(ssl);
    return *out != NULL;
}

static int find_session(SSL *ssl, const unsigned char *id, size_t id_bytes, SSL_SESSION **out)
{
    *out = NULL;
    if (id_bytes != sizeof(IDENTITY) - 1 || memcmp(id, IDENTITY, id_bytes) != 0)
        return 1; /* unknown identity: without a PSK the handshake cannot succeed */
    *out = session_of_key(ssl);
    return *out != NULL;
}

static SSL_CTX *tls_new_ctx(const SSL_METHOD *method, struct tls_context *tls)
{
    const struct tls_ctx_opts opts = {.min_version = TLS1_3_VERSION, .groups = GROUPS};
    SSL_CTX *ctx = tls_ctx_new(method, &opts);

    if (ctx == NULL)
        return NULL;
    if (SSL_CTX_set_max_proto_version(ctx, TLS1_3_VERSION) == 1 &&
        SSL_CTX_set_ciphersuites(ctx, SUITE) == 1 && SSL_CTX_set_ex_data(ctx, slot, tls) == 1)
        return ctx;
    SSL_CTX_free(ctx);
    return NULL;
}

int tls_context_new(const uint8_t key[32], struct fault *fault, struct tls_context **out)
{
    struct tls_context *tls = calloc(1, sizeof(*tls));

    if (tls == NULL)
        return E_NOMEM;
    pthread_once(&slot_once, take_slot);
    if (slot < 0 || cluster_key_derive(key, "link", tls->psk) != 0)
        goto fail;
    tls->server = tls_new_ctx(TLS_server_method(), tls);
    tls->client = tls_new_ctx(TLS_client_method(), tls);
    if (tls->server == NULL || tls->client == NULL)
        goto fail;
    SSL_CTX_set_psk_find_session_callback(tls->server, find_session);
    SSL_CTX_set_psk_use_session_callback(tls->client, use_session);
    SSL_CTX_set_verify(tls->client, SSL_VERIFY_PEER, NULL);
    *out = tls;
    return 0;

fail:
    tls_context_free(tls);
    return fault_set(fault, E_INTERNAL, "cannot set up TLS: %s", ERR_reason_error_string(ERR_get_error()));
}

void tls_context_free(struct tls_context *tls)
{
    if (tls == NULL)
        return;
    SSL_CTX_free(tls->server);
    SSL_CTX_free(tls->client);
    OPENSSL_cleanse(tls->psk, sizeof(tls->psk));
    free(tls);
}

SSL_CTX *tls_server(struct tls_context *tls)
{
    return tls->server;
}

SSL_CTX *tls_client(struct tls_context *tls)
{
    return tls->client;
}

int cluster_key_load(const char *path, struct fault *fault, uint8_t key_out[32])
{
    char text[2 * KEY_BYTES + 2]; /* one byte longer than a key file, to detect a longer one */
    uint8_t key[KEY_BYTES];
    int fd = file_open_secret(path, "cluster key", fault);
    ssize_t n;
    int err = 0;

    if (fd < 0)
        return fd;
    n = read(fd, text, sizeof(text));
    close(fd);
    if (n == 2 * KEY_BYTES + 1 && text[2 * KEY_BYTES] == '\n')
        n--;
    if (n != 2 * KEY_BYTES || hex_decode(bytes_of(text, 2 * KEY_BYTES), key, KEY_BYTES) != 0)
        err = fault_set(fault, E_FORMAT, "%s: not a cluster key (64 hex digits and a newline)", path);
    else
        memcpy(key_out, key, KEY_BYTES);
    OPENSSL_cleanse(text, sizeof(text));
    OPENSSL_cleanse(key, sizeof(key));
    return err;
}

int cluster_key_store(const char *path, const uint8_t key[32], struct fault *fault)
{
    char text[2 * KEY_BYTES + 1];
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOCTTY, 0600);
    int err = 0;

    if (fd < 0)
        return fault_set(fault, errno == EEXIST ? E_EXISTS : E_IO, "%s: %s", path, strerror(errno));
    hex_encode(key, KEY_BYTES, text);
    text[2 * KEY_BYTES] = '\n';
    if (write(fd, text, sizeof(text)) != (ssize_t)sizeof(text) || fsync(fd) != 0) {
        err = fault_set(fault, E_IO, "%s: %s", path, strerror(errno));
        unlink(path);
    }
    close(fd);
    OPENSSL_cleanse(text, sizeof(text));
    return err;
}

int cluster_key_create(const char *path, struct fault *fault)
{
    uint8_t key[KEY_BYTES];
    int err;

    rng_system(key, sizeof(key));
    err = cluster_key_store(path, key, fault);
    OPENSSL_cleanse(key, sizeof(key));
    return err;
}

int cluster_key_derive(const uint8_t key[32], const char *label, uint8_t out[32])
{
    unsigned len_bytes = 0;
    uint8_t mac[KEY_BYTES];

    if (HMAC(EVP_sha256(), key, KEY_BYTES, (const unsigned char *)label, strlen(label), mac, &len_bytes) ==
            NULL ||
        len_bytes != KEY_BYTES)
        return E_INTERNAL;
    memcpy(out, mac, KEY_BYTES);
    OPENSSL_cleanse(mac, sizeof(mac));
    return 0;
}
