/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes sixteen, eight or four at a time, at any address, as whole numbers in which every byte keeps to
 * itself: shifts must be masked, sums may not carry.  Meant for the same field of many bytes; masks are
 * bytes_each() and bytes_each4() of base/bytes.h, the former for sixteen too.
 *
 * Who reads more at once than was stored at once waits for the stores, so what is stored by sixteen may be
 * read by any of them, and nothing else. */
#ifndef BASE_WIDE_H
#define BASE_WIDE_H

#include <stdint.h>
#include <string.h>

typedef uint64_t wide __attribute__((vector_size(16)));

static inline wide load16(const uint8_t *from)
{
    wide bytes;

    memcpy(&bytes, from, 16);
    return bytes;
}

static inline void store16(wide bytes, uint8_t *to)
{
    memcpy(to, &bytes, 16);
}

static inline void store8(uint64_t bytes, uint8_t *to)
{
    memcpy(to, &bytes, 8);
}

static inline uint32_t load4(const uint8_t *from)
{
    uint32_t bytes;

    memcpy(&bytes, from, 4);
    return bytes;
}

static inline void store4(uint32_t bytes, uint8_t *to)
{
    memcpy(to, &bytes, 4);
}

#endif
