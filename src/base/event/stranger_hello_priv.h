/* SPDX-License-Identifier: Apache-2.0 */
/* Whether the first bytes of a TLS connection hold a whole ClientHello.  Pure. */
#ifndef BASE_EVENT_STRANGER_HELLO_PRIV_H
#define BASE_EVENT_STRANGER_HELLO_PRIV_H

#include <stddef.h>
#include <stdint.h>

#define HELLO_MAX_BYTES (17u << 10) /* a longer one is not waited for */

/* How many bytes must have come before the ClientHello is whole, or more of it is known; at most n when it is
 * whole.  0: it is no ClientHello, or too long: TLS itself will say so. */
size_t hello_bytes(const uint8_t *data, size_t n);

#endif
