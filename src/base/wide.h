/* SPDX-License-Identifier: Apache-2.0 */
/* Load and store 16, 8 or 4 bytes at any address as one integer.  So one operation applies to the same field
 * of each byte.  Bytes must stay independent: mask after a shift, and let no sum carry.  For masks use
 * bytes_each() (16 and 8 bytes) and bytes_each4() of base/bytes.h.
 *
 * A load that is wider than the store before it waits for that store (failed store forwarding).  So data
 * stored 16 bytes at a time may be loaded by any of these; data stored in smaller parts must not be loaded
 * wider. */
#ifndef BASE_WIDE_H
#define BASE_WIDE_H

#include <stdint.h>
#include <string.h>

typedef uint64_t wide __attribute__((vector_size(16)));

static inline wide wide_load16(const uint8_t *from)
{
    wide bytes;

    memcpy(&bytes, from, 16);
    return bytes;
}

static inline void wide_store16(wide bytes, uint8_t *to)
{
    memcpy(to, &bytes, 16);
}

static inline void wide_store8(uint64_t bytes, uint8_t *to)
{
    memcpy(to, &bytes, 8);
}

static inline uint32_t wide_load4(const uint8_t *from)
{
    uint32_t bytes;

    memcpy(&bytes, from, 4);
    return bytes;
}

static inline void wide_store4(uint32_t bytes, uint8_t *to)
{
    memcpy(to, &bytes, 4);
}

#endif
