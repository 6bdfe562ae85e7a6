/* SPDX-License-Identifier: Apache-2.0 */
/* Keys are on P-256, because they take only a millisecond. */
#include "pki.h"

#include <dirent.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include <cmocka.h>

#include "raw.h"

void pki_begin(char folder[PKI_PATH_BYTES])
{
    const char *tmp = getenv("TMPDIR");

    snprintf(folder, PKI_PATH_BYTES, "%s/baton-pki-XXXXXX", tmp != NULL ? tmp : "/tmp");
    assert_non_null(mkdtemp(folder));
}

const char *pki_path(const char *folder, const char *name)
{
    static char paths[4][PKI_PATH_BYTES + 64];
    static unsigned next;
    char *path = paths[next++ % 4];

    snprintf(path, sizeof(paths[0]), "%s/%s", folder, name);
    return path;
}

void pki_end(const char *folder)
{
    DIR *dir = opendir(folder);
    struct dirent *entry;

    while (dir != NULL && (entry = readdir(dir)) != NULL)
        if (entry->d_name[0] != '.')
            unlink(pki_path(folder, entry->d_name));
    if (dir != NULL)
        closedir(dir);
    rmdir(folder);
}

static X509 *make_certificate(EVP_PKEY *key, long from_s, long to_s)
{
    X509 *x = X509_new();
    X509_NAME *name = X509_get_subject_name(x);
    X509_EXTENSION *names =
        X509V3_EXT_conf_nid(NULL, NULL, NID_subject_alt_name, "DNS:localhost,IP:127.0.0.1");

    assert_non_null(names);
    X509_set_version(x, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(x), 1);
    X509_gmtime_adj(X509_getm_notBefore(x), from_s);
    X509_gmtime_adj(X509_getm_notAfter(x), to_s);
    X509_set_pubkey(x, key);
    X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, (const unsigned char *)"localhost", -1, -1, 0);
    X509_set_issuer_name(x, name);
    assert_int_equal(X509_add_ext(x, names, -1), 1);
    X509_EXTENSION_free(names);
    assert_true(X509_sign(x, key, EVP_sha256()) > 0);
    return x;
}

void pki_make(const char *folder, const char *name, long from_s, long to_s)
{
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *x = make_certificate(key, from_s, to_s);
    char file_name[64];
    FILE *file;

    snprintf(file_name, sizeof(file_name), "%s.pem", name);
    file = fopen(pki_path(folder, file_name), "w");
    assert_non_null(file);
    assert_int_equal(PEM_write_X509(file, x), 1);
    fclose(file);
    snprintf(file_name, sizeof(file_name), "%s.key", name);
    file = fopen(pki_path(folder, file_name), "w");
    assert_non_null(file);
    fchmod(fileno(file), 0600);
    assert_int_equal(PEM_write_PrivateKey(file, key, NULL, NULL, 0, NULL, NULL), 1);
    fclose(file);
    X509_free(x);
    EVP_PKEY_free(key);
}

bool tls_client_open(struct tls_client *client, uint16_t port, const struct tls_client_opts *opts)
{
    struct timeval patience = {.tv_sec = 5};

    client->ctx = SSL_CTX_new(TLS_client_method());
    assert_non_null(client->ctx);
    SSL_CTX_set_min_proto_version(client->ctx, opts->min);
    SSL_CTX_set_max_proto_version(client->ctx, opts->max);
    SSL_CTX_set_options(client->ctx, SSL_OP_IGNORE_UNEXPECTED_EOF);
    if (opts->ca != NULL) {
        SSL_CTX_set_verify(client->ctx, SSL_VERIFY_PEER, NULL);
        assert_int_equal(SSL_CTX_load_verify_locations(client->ctx, opts->ca, NULL), 1);
    }
    client->ssl = SSL_new(client->ctx);
    if (opts->alpn != NULL)
        SSL_set_alpn_protos(client->ssl, (const unsigned char *)opts->alpn, (unsigned)strlen(opts->alpn));
    SSL_set1_host(client->ssl, "localhost");
    client->fd = raw_connect(port);
    setsockopt(client->fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    SSL_set_fd(client->ssl, client->fd);
    return SSL_connect(client->ssl) == 1;
}

void tls_client_close(struct tls_client *client)
{
    SSL_free(client->ssl);
    SSL_CTX_free(client->ctx);
    close(client->fd);
}

bool tls_client_send(struct tls_client *client, const void *data, size_t len_bytes)
{
    return SSL_write(client->ssl, data, (int)len_bytes) == (int)len_bytes;
}

bool tls_client_read(struct tls_client *client, const char *needle, struct buf *out)
{
    for (;;) {
        char piece[16384];
        int n;

        if (needle != NULL && raw_holds(out, needle))
            return true;
        n = SSL_read(client->ssl, piece, sizeof(piece));
        if (n <= 0)
            return needle == NULL && SSL_get_error(client->ssl, n) == SSL_ERROR_ZERO_RETURN;
        buf_append(out, piece, (size_t)n);
    }
}
