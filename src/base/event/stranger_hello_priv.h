/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the end of the ClientHello in the first bytes of a TLS connection.  Pure. */
#ifndef BASE_EVENT_STRANGER_HELLO_PRIV_H
#define BASE_EVENT_STRANGER_HELLO_PRIV_H

#include <stddef.h>
#include <stdint.h>

#define HELLO_MAX_BYTES (17u << 10) /* a longer one is not waited for */

/* Number of bytes to wait for before the next call: the whole ClientHello, or the next header inside it.  At most
 * n: the ClientHello is whole. 0: these bytes are no ClientHello, or it is too long; TLS will refuse it. */
size_t hello_bytes(const uint8_t *data, size_t n);

#endif
