/* SPDX-License-Identifier: Apache-2.0 */
/* Certificates made during the test, and a blocking TLS client. */
#ifndef TESTS_HTTP_PKI_H
#define TESTS_HTTP_PKI_H

#include <openssl/ssl.h>

#include "base/bytes.h"

#define PKI_PATH_BYTES 256

/* Makes a folder for one test's files; pki_end removes both. */
void pki_begin(char folder[PKI_PATH_BYTES]);
void pki_end(const char *folder);
/* Writes FOLDER/NAME.pem (self-signed for localhost, valid between these times from now, in seconds) and
 * FOLDER/NAME.key (mode 0600). */
void pki_make(const char *folder, const char *name, long from_s, long to_s);
/* "FOLDER/NAME", in one of four static buffers. */
const char *pki_path(const char *folder, const char *name);

struct tls_client {
    SSL_CTX *ctx;
    SSL *ssl;
    int fd;
};

struct tls_client_opts {
    int min, max;     /* versions; 0: any */
    const char *alpn; /* in the wire's format; NULL: none */
    const char *ca;   /* verifies the server with it; NULL: no verification */
};

/* Connects and shakes hands; false: the handshake failed (close the client nevertheless). */
bool tls_client_open(struct tls_client *client, uint16_t port, const struct tls_client_opts *opts);
void tls_client_close(struct tls_client *client);
bool tls_client_send(struct tls_client *client, const void *data, size_t len_bytes);
/* Appends input until the text contains needle; NULL: until the end.  True: it came within 5 s. */
bool tls_client_read(struct tls_client *client, const char *needle, struct buf *out);

#endif
