/* SPDX-License-Identifier: Apache-2.0 */
/* Loads a certificate with its chain and private key into an SSL_CTX, for HTTP and for links. */
#ifndef NET_LINK_TLS_FILES_H
#define NET_LINK_TLS_FILES_H

#include <openssl/ssl.h>
#include <stdint.h>

#include "base/fault.h"

#define TLS_ENDS_SOON_S (14 * 86400) /* a certificate that expires within this time is worth a warning */

/* certificate: PEM, the own certificate first, then the chain. key: PEM, not encrypted, not readable by other
 * users. Returns 0, or E_NOT_FOUND, E_IO, E_FORMAT (not PEM, encrypted, or too weak), E_AUTH (other users may
 * read the key), E_INVAL (key and certificate do not match; expired or not yet valid). Any thread. */
int tls_files_load(SSL_CTX *ctx, const char *certificate, const char *key, struct fault *fault,
                   uint64_t *expiry_out);

/* Sets a fault with OpenSSL's reason, and clears OpenSSL's errors. Returns code. */
int tls_fault(struct fault *fault, int code, const char *path, const char *what);

#endif
