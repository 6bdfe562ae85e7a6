/* SPDX-License-Identifier: Apache-2.0 */
/* The key is read through the same descriptor whose mode was checked. */
#include "net/link/tls_files.h"

#include <errno.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/file.h"

int tls_fault(struct fault *fault, int code, const char *path, const char *what)
{
    unsigned long error = ERR_peek_last_error();
    const char *reason = error == 0 ? NULL : ERR_reason_error_string(error);

    ERR_clear_error();
    return fault_set(fault, code, "%s: %s%s%s", path, what, reason == NULL ? "" : ": ",
                     reason == NULL ? "" : reason);
}

static int tls_no_password(char *out, int cap, int is_writing, void *arg)
{
    *(bool *)arg = true;
    return -1;
}

static int tls_load_key(const char *path, struct fault *fault, EVP_PKEY **out)
{
    int fd = file_open_secret(path, "private key", fault);
    bool is_encrypted = false;
    FILE *file;

    if (fd < 0)
        return fd;
    file = fdopen(fd, "r");
    if (file == NULL) {
        close(fd);
        return fault_set(fault, E_IO, "%s: %s", path, strerror(errno));
    }
    *out = PEM_read_PrivateKey(file, NULL, tls_no_password, &is_encrypted);
    fclose(file);
    if (*out != NULL)
        return 0;
    return tls_fault(fault, E_FORMAT, path,
                     is_encrypted ? "the private key is encrypted; give one that is not"
                                  : "no private key (PEM) in it");
}

static uint64_t tls_unix_of(const ASN1_TIME *time)
{
    struct tm tm;

    if (ASN1_TIME_to_tm(time, &tm) != 1)
        return 0;
    time_t at = timegm(&tm);

    return at < 0 ? 0 : (uint64_t)at;
}

static int tls_check_dates(const char *path, const X509 *certificate, struct fault *fault,
                           uint64_t *expiry_out)
{
    uint64_t from = tls_unix_of(X509_get0_notBefore(certificate));
    uint64_t to = tls_unix_of(X509_get0_notAfter(certificate));
    uint64_t now = clock_unix_ns() / NS_PER_S;

    if (now >= to)
        return fault_set(fault, E_INVAL, "%s: the certificate expired %llu hours ago", path,
                         (unsigned long long)((now - to) / 3600));
    if (now < from)
        return fault_set(fault, E_INVAL, "%s: the certificate is valid only in %llu hours", path,
                         (unsigned long long)((from - now) / 3600 + 1));
    *expiry_out = to;
    return 0;
}

int tls_files_load(SSL_CTX *ctx, const char *certificate, const char *key_path, struct fault *fault,
                   uint64_t *expiry_out)
{
    EVP_PKEY *key = NULL;
    const char *why;
    /* OpenSSL opens the file again, and would block on a pipe. */
    FILE *file = file_open(certificate, &why);
    int rc;

    if (file == NULL)
        return fault_set(fault, errno == ENOENT ? E_NOT_FOUND : E_IO, "%s: %s", certificate, why);
    fclose(file);
    ERR_clear_error();
    if (SSL_CTX_use_certificate_chain_file(ctx, certificate) != 1)
        return tls_fault(fault, E_FORMAT, certificate, "no usable certificate (PEM) in it");
    rc = tls_load_key(key_path, fault, &key);
    if (rc < 0)
        return rc;
    rc = X509_check_private_key(SSL_CTX_get0_certificate(ctx), key) == 1 ? 0 : E_INVAL;
    if (rc < 0)
        rc = tls_fault(fault, E_INVAL, key_path, "not the key of the certificate");
    else if (SSL_CTX_use_PrivateKey(ctx, key) != 1)
        rc = tls_fault(fault, E_FORMAT, key_path, "unusable private key");
    EVP_PKEY_free(key);
    return rc < 0 ? rc : tls_check_dates(certificate, SSL_CTX_get0_certificate(ctx), fault, expiry_out);
}
