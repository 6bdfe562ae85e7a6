/* SPDX-License-Identifier: Apache-2.0 */
/* Two SSL_CTX that share their secrets; they trust nothing else.
 *
 *     client                                   server
 *       ClientHello: identity, binder  ----->    find_session(): which key has this identity? binder proves it
 *       <----- ServerHello: PSK chosen, Finished
 *       Finished ----->
 *
 * OpenSSL represents an external PSK as an artificial session: master key, suite and version. The server
 * has no certificate, so it cannot complete a handshake without the PSK. The client demands a certificate
 * that it can never verify (its store is empty), so a server that ignores the PSK fails too. Hence both
 * sides of a finished handshake know the key. A wrong key fails at the binder, before any secret is sent.
 *
 * The identity of a cluster's first key, which is its data key, is "baton cluster 1", as daemons without rotation
 * expect. The identity of a later key ends with the key's id.
 *
 * With certificates both SSL_CTX hold the same certificate and CA, demand the peer's, and know no PSK.
 *
 * The PSK callbacks have no user argument, so the SSL_CTX's ex_data holds the keys. They live as long as the last
 * connection of that SSL_CTX. The SSL's ex_data holds the id of the key in use. */
#include "net/link/tls.h"

#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/hmac.h>
#include <openssl/x509v3.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "net/link/tls_ctx.h"
#include "net/link/tls_files.h"

#define IDENTITY       "baton cluster 1"
#define IDENTITY_ROOM  32
#define SUITE          "TLS_AES_256_GCM_SHA384"
#define GROUPS         "X25519:P-256"
#define EXPORTER_LABEL "EXPORTER-baton key proof"
#define MAX_DEPTH      4 /* intermediate certificates */

static const unsigned char suite_id[2] = {0x13, 0x02};

struct psk {
    char identity[IDENTITY_ROOM];
    uint32_t id;
    uint8_t key[CLUSTER_KEY_BYTES];
};

struct psks { /* immutable; owned by an SSL_CTX */
    unsigned n;
    struct psk all[TLS_MAX_KEYS]; /* the current one first */
};

struct tls_context {
    SSL_CTX *server;
    SSL_CTX *client;
    unsigned n_keys; /* 0: certificates */
    uint32_t ids[TLS_MAX_KEYS];
    uint8_t proof_keys[TLS_MAX_KEYS][CLUSTER_KEY_BYTES];
    uint64_t expiry_unix_s;
    uint64_t warned_day; /* day of the last warning about expiry */
};

static pthread_once_t slot_once = PTHREAD_ONCE_INIT;
static int ctx_slot = -1, ssl_slot = -1; /* indexes of ex_data; written once */

static void psks_free(struct psks *psks)
{
    if (psks != NULL)
        OPENSSL_cleanse(psks, sizeof(*psks));
    free(psks);
}

static void psks_on_ctx_free(void *parent, void *value, CRYPTO_EX_DATA *data, int index, long number,
                             void *arg)
{
    psks_free(value);
}

static void take_slots(void)
{
    ctx_slot = SSL_CTX_get_ex_new_index(0, NULL, NULL, NULL, psks_on_ctx_free);
    ssl_slot = SSL_get_ex_new_index(0, NULL, NULL, NULL, NULL);
}

/* ---- the cluster key ---- */

static SSL_SESSION *session_of_key(SSL *ssl, const struct psk *psk)
{
    const SSL_CIPHER *suite = SSL_CIPHER_find(ssl, suite_id);
    SSL_SESSION *session = SSL_SESSION_new();

    if (session != NULL && suite != NULL &&
        SSL_SESSION_set1_master_key(session, psk->key, sizeof(psk->key)) == 1 &&
        SSL_SESSION_set_cipher(session, suite) == 1 &&
        SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) == 1 &&
        SSL_set_ex_data(ssl, ssl_slot, (void *)(uintptr_t)psk->id) == 1)
        return session;
    SSL_SESSION_free(session);
    return NULL;
}

static int use_session(SSL *ssl, const EVP_MD *digest, const unsigned char **id, size_t *id_bytes,
                       SSL_SESSION **out)
{
    const struct psks *psks = SSL_CTX_get_ex_data(SSL_get_SSL_CTX(ssl), ctx_slot);

    *out = NULL;
    *id = (const unsigned char *)psks->all[0].identity;
    *id_bytes = strlen(psks->all[0].identity);
    /* The key does not fit this digest: continue without a PSK, and fail at the certificate. */
    if (digest != NULL && EVP_MD_get_type(digest) != NID_sha384)
        return 1;
    *out = session_of_key(ssl, &psks->all[0]);
    return *out != NULL;
}

static bool is_identity(const char *text, const unsigned char *id, size_t id_bytes)
{
    return id_bytes == strlen(text) && memcmp(id, text, id_bytes) == 0;
}

static int find_session(SSL *ssl, const unsigned char *id, size_t id_bytes, SSL_SESSION **out)
{
    const struct psks *psks = SSL_CTX_get_ex_data(SSL_get_SSL_CTX(ssl), ctx_slot);
    const struct psk *found = NULL;
    char text[IDENTITY_ROOM];

    *out = NULL;
    for (unsigned i = 0; found == NULL && i < psks->n; i++) {
        snprintf(text, sizeof(text), IDENTITY " %08x", psks->all[i].id);
        if (is_identity(psks->all[i].identity, id, id_bytes) || is_identity(text, id, id_bytes))
            found = &psks->all[i];
    }
    if (found == NULL && is_identity(IDENTITY, id, id_bytes))
        found = &psks->all[0];
    if (found == NULL)
        return 1; /* unknown identity: without a PSK the handshake cannot succeed */
    *out = session_of_key(ssl, found);
    return *out != NULL;
}

static int psk_derive(const uint8_t key[32], const uint8_t first_key[32], struct psk *out)
{
    out->id = cluster_key_id(key);
    if (memcmp(key, first_key, CLUSTER_KEY_BYTES) != 0)
        snprintf(out->identity, sizeof(out->identity), IDENTITY " %08x", out->id);
    else
        snprintf(out->identity, sizeof(out->identity), IDENTITY);
    return cluster_key_derive(key, "link", out->key);
}

static int psks_make(const struct cluster_keys *keys, struct psks **out)
{
    struct psks *psks = calloc(1, sizeof(*psks));
    int rc;

    if (psks == NULL)
        return E_NOMEM;
    psks->n = keys->step == CLUSTER_STEP_NONE ? 1 : 2;
    rc = psk_derive(keys->current, keys->data, &psks->all[0]);
    if (rc == 0 && psks->n > 1)
        rc = psk_derive(keys->second, keys->data, &psks->all[1]);
    if (rc == 0)
        *out = psks;
    else
        psks_free(psks);
    return rc;
}

/* ---- making a context ---- */

static SSL_CTX *tls_new_ctx(const SSL_METHOD *method)
{
    const struct tls_ctx_opts opts = {.min_version = TLS1_3_VERSION, .groups = GROUPS};
    SSL_CTX *ctx = tls_ctx_new(method, &opts);

    if (ctx == NULL)
        return NULL;
    if (SSL_CTX_set_max_proto_version(ctx, TLS1_3_VERSION) == 1 && SSL_CTX_set_ciphersuites(ctx, SUITE) == 1)
        return ctx;
    SSL_CTX_free(ctx);
    return NULL;
}

static int tls_give_keys(SSL_CTX *ctx, const struct cluster_keys *keys)
{
    struct psks *psks = NULL;
    int rc = psks_make(keys, &psks);

    if (rc < 0)
        return rc;
    if (SSL_CTX_set_ex_data(ctx, ctx_slot, psks) == 1)
        return 0;
    psks_free(psks);
    return E_NOMEM;
}

static int tls_use_keys(struct tls_context *tls, const struct cluster_keys *keys)
{
    int rc = tls_give_keys(tls->server, keys);

    if (rc == 0)
        rc = tls_give_keys(tls->client, keys);
    if (rc < 0)
        return rc;
    SSL_CTX_set_psk_find_session_callback(tls->server, find_session);
    SSL_CTX_set_psk_use_session_callback(tls->client, use_session);
    SSL_CTX_set_verify(tls->client, SSL_VERIFY_PEER, NULL);
    tls->n_keys = keys->step == CLUSTER_STEP_NONE ? 1 : 2;
    tls->ids[0] = cluster_key_id(keys->current);
    rc = cluster_key_derive(keys->current, "link proof", tls->proof_keys[0]);
    if (rc < 0 || tls->n_keys == 1)
        return rc;
    tls->ids[1] = cluster_key_id(keys->second);
    return cluster_key_derive(keys->second, "link proof", tls->proof_keys[1]);
}

static int tls_want_names(SSL_CTX *ctx, const struct tls_conf *conf)
{
    X509_VERIFY_PARAM *param = SSL_CTX_get0_param(ctx);

    X509_VERIFY_PARAM_set_hostflags(param, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS |
                                               X509_CHECK_FLAG_NEVER_CHECK_SUBJECT);
    for (size_t i = 0; i < conf->n_names; i++)
        if (X509_VERIFY_PARAM_add1_host(param, conf->names[i], 0) != 1)
            return E_INVAL;
    return 0;
}

static int tls_use_files(SSL_CTX *ctx, const struct tls_conf *conf, struct fault *fault, uint64_t *expiry_out)
{
    int rc = tls_files_load(ctx, conf->certificate, conf->key, fault, expiry_out);

    if (rc < 0)
        return rc;
    ERR_clear_error();
    if (SSL_CTX_load_verify_file(ctx, conf->ca) != 1)
        return tls_fault(fault, E_FORMAT, conf->ca, "no usable CA certificate (PEM) in it");
    SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
    SSL_CTX_set_verify_depth(ctx, MAX_DEPTH);
    SSL_CTX_set_mode(ctx, SSL_MODE_NO_AUTO_CHAIN); /* the peer has the CA, so send the file's chain only */
    if (tls_want_names(ctx, conf) < 0)
        return fault_set(fault, E_INVAL, "a name of a peer's certificate is unusable");
    return 0;
}

static bool tls_has_text(const char *text)
{
    return text != NULL && text[0] != '\0';
}

static int tls_fill(struct tls_context *tls, const struct cluster_keys *keys, const struct tls_conf *conf,
                    struct fault *fault)
{
    int rc;

    if (!tls_has_text(conf->certificate) && !tls_has_text(conf->key) && !tls_has_text(conf->ca)) {
        rc = tls_use_keys(tls, keys);
        return rc < 0 ? fault_set(fault, rc, "cannot set up TLS: %s", err_text(rc)) : 0;
    }
    if (!tls_has_text(conf->certificate) || !tls_has_text(conf->key) || !tls_has_text(conf->ca))
        return fault_set(fault, E_INVAL,
                         "certificates of links need all of link.ca, link.certificate and link.key");
    rc = tls_use_files(tls->server, conf, fault, &tls->expiry_unix_s);
    return rc < 0 ? rc : tls_use_files(tls->client, conf, fault, &tls->expiry_unix_s);
}

int tls_context_open(const struct cluster_keys *keys, const struct tls_conf *conf, struct fault *fault,
                     struct tls_context **out)
{
    struct tls_context *tls = calloc(1, sizeof(*tls));
    int rc = 0;

    if (tls == NULL)
        return fault_set(fault, E_NOMEM, "out of memory");
    pthread_once(&slot_once, take_slots);
    tls->server = tls_new_ctx(TLS_server_method());
    tls->client = tls_new_ctx(TLS_client_method());
    if (ctx_slot < 0 || ssl_slot < 0 || tls->server == NULL || tls->client == NULL)
        rc = tls_fault(fault, E_INTERNAL, "TLS", "cannot set it up");
    if (rc == 0)
        rc = tls_fill(tls, keys, conf, fault);
    if (rc < 0)
        tls_context_free(tls);
    else
        *out = tls;
    return rc;
}

int tls_context_new(const uint8_t key[32], struct fault *fault, struct tls_context **out)
{
    const struct tls_conf conf = {0};
    struct cluster_keys keys = {.step = CLUSTER_STEP_NONE};
    int rc;

    memcpy(keys.current, key, sizeof(keys.current));
    memcpy(keys.data, key, sizeof(keys.data));
    rc = tls_context_open(&keys, &conf, fault, out);
    cluster_keys_wipe(&keys);
    return rc;
}

static void tls_context_drop(struct tls_context *tls)
{
    SSL_CTX_free(tls->server);
    SSL_CTX_free(tls->client);
    OPENSSL_cleanse(tls->proof_keys, sizeof(tls->proof_keys));
}

void tls_context_free(struct tls_context *tls)
{
    if (tls == NULL)
        return;
    tls_context_drop(tls);
    free(tls);
}

void tls_context_take(struct tls_context *tls, struct tls_context *fresh)
{
    tls_context_drop(tls); /* open connections hold their own references */
    *tls = *fresh;
    OPENSSL_cleanse(fresh->proof_keys, sizeof(fresh->proof_keys));
    free(fresh);
}

bool tls_has_certificate(const struct tls_context *tls)
{
    return tls->n_keys == 0;
}

uint64_t tls_expiry_unix_s(const struct tls_context *tls)
{
    return tls->expiry_unix_s;
}

void tls_warn_expiry(struct tls_context *tls)
{
    uint64_t now = clock_unix_ns() / NS_PER_S;

    if (tls->expiry_unix_s == 0 || tls->expiry_unix_s > now + TLS_ENDS_SOON_S ||
        tls->warned_day == now / 86400)
        return;
    tls->warned_day = now / 86400;
    log_warn(tls->expiry_unix_s > now ? "link_certificate_ends_soon" : "link_certificate_expired",
             LOG_U64("days_left", tls->expiry_unix_s > now ? (tls->expiry_unix_s - now) / 86400 : 0));
}

SSL_CTX *tls_server(struct tls_context *tls)
{
    return tls->server;
}

SSL_CTX *tls_client(struct tls_context *tls)
{
    return tls->client;
}

const char *tls_hint(const struct tls_context *tls, const SSL *ssl)
{
    long result = ssl != NULL ? SSL_get_verify_result(ssl) : X509_V_OK;

    if (!tls_has_certificate(tls))
        return "is link.cluster_key the same on both sides, or does the peer use certificates?";
    if (result != X509_V_OK)
        return X509_verify_cert_error_string(result);
    return "does the peer have a link.certificate of the same link.ca?";
}

/* ---- proofs ---- */

uint32_t tls_key_used(const SSL *ssl)
{
    return (uint32_t)(uintptr_t)SSL_get_ex_data(ssl, ssl_slot);
}

unsigned tls_key_ids(const struct tls_context *tls, uint32_t ids_out[TLS_MAX_KEYS])
{
    memcpy(ids_out, tls->ids, sizeof(tls->ids));
    return tls->n_keys;
}

/* mac = HMAC(derived key, side || exported secret of the connection): good for one connection and one side. */
static int proof_mac(const uint8_t key[32], SSL *ssl, bool by_server, uint8_t out[TLS_PROOF_BYTES])
{
    uint8_t text[1 + 32];
    unsigned len_bytes = 0;

    text[0] = by_server ? 's' : 'c';
    if (SSL_export_keying_material(ssl, text + 1, sizeof(text) - 1, EXPORTER_LABEL,
                                   sizeof(EXPORTER_LABEL) - 1, NULL, 0, 0) != 1 ||
        HMAC(EVP_sha256(), key, CLUSTER_KEY_BYTES, text, sizeof(text), out, &len_bytes) == NULL ||
        len_bytes != TLS_PROOF_BYTES)
        return E_INTERNAL;
    OPENSSL_cleanse(text, sizeof(text));
    return 0;
}

unsigned tls_prove(const struct tls_context *tls, SSL *ssl, struct tls_proof out[TLS_MAX_KEYS])
{
    unsigned n = 0;

    if (tls->n_keys == 1 && tls->ids[0] == tls_key_used(ssl))
        return 0;
    for (unsigned i = 0; i < tls->n_keys; i++) {
        out[n].id = tls->ids[i];
        if (proof_mac(tls->proof_keys[i], ssl, SSL_is_server(ssl) == 1, out[n].mac) == 0)
            n++;
    }
    return n;
}

bool tls_proof_holds(const struct tls_context *tls, SSL *ssl, const struct tls_proof *proof)
{
    uint8_t mac[TLS_PROOF_BYTES];

    for (unsigned i = 0; i < tls->n_keys; i++)
        if (tls->ids[i] == proof->id)
            return proof_mac(tls->proof_keys[i], ssl, SSL_is_server(ssl) != 1, mac) == 0 &&
                   CRYPTO_memcmp(mac, proof->mac, sizeof(mac)) == 0;
    return false;
}
