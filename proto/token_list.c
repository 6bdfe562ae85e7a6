/* SPDX-License-Identifier: Apache-2.0 */
/* Why ids are narrow: at four bytes for each id a prompt of 132,000 tokens took half a megabyte, of which a
 * quarter was information.  All of it was encrypted, passed through two sockets and was decrypted before the
 * worker could begin.
 *
 * One width for all ids, not one for each, keeps packing and unpacking free of branches.  The inner loops
 * have a fixed number of rounds, so the compiler vectorises them. */
#include "proto/token_list.h"

#include <endian.h>
#include <string.h>

#include "base/check.h"
#include "base/err.h"

#define AT_ONCE 32 /* ids in one round of a loop below */

unsigned token_list_width(const uint32_t *ids, size_t n)
{
    uint32_t all = 0;
    size_t i = 0;

    for (; n - i >= AT_ONCE; i += AT_ONCE)
        for (size_t k = 0; k < AT_ONCE; k++)
            all |= ids[i + k];
    for (; i < n; i++)
        all |= ids[i];
    return all >> 16 == 0 ? 2 : all >> 24 == 0 ? 3 : 4;
}

/* Four bytes, inline, because the loops below must be tight. */
static inline void token_list_put_id(uint8_t *at, uint32_t id)
{
    id = htole32(id);
    memcpy(at, &id, sizeof(id));
}

static inline uint32_t get_id(const uint8_t *at)
{
    uint32_t id;

    memcpy(&id, at, sizeof(id));
    return le32toh(id);
}

/* ---- two bytes ---- */

static void pack_two(const uint32_t *ids, size_t n, uint8_t *out)
{
    uint16_t some[AT_ONCE];

    for (; n >= AT_ONCE; n -= AT_ONCE, ids += AT_ONCE, out += sizeof(some)) {
        for (size_t k = 0; k < AT_ONCE; k++)
            some[k] = htole16((uint16_t)ids[k]);
        memcpy(out, some, sizeof(some));
    }
    for (size_t i = 0; i < n; i++)
        put_u16(out + 2 * i, (uint16_t)ids[i]);
}

static void unpack_two(const uint8_t *packed, size_t n, uint32_t *ids)
{
    uint16_t some[AT_ONCE];

    for (; n >= AT_ONCE; n -= AT_ONCE, ids += AT_ONCE, packed += sizeof(some)) {
        memcpy(some, packed, sizeof(some));
        for (size_t k = 0; k < AT_ONCE; k++)
            ids[k] = le16toh(some[k]);
    }
    for (size_t i = 0; i < n; i++)
        ids[i] = get_u16(packed + 2 * i);
}

/* ---- three ---- */

/* All ids except the last are written as four bytes; the next id overwrites the fourth byte. */
static void pack_three(const uint32_t *ids, size_t n, uint8_t *out)
{
    for (size_t i = 0; i + 1 < n; i++)
        token_list_put_id(out + 3 * i, ids[i]);
    if (n > 0)
        for (unsigned k = 0; k < 3; k++)
            out[3 * (n - 1) + k] = (uint8_t)(ids[n - 1] >> 8 * k);
}

static void unpack_three(const uint8_t *packed, size_t n, uint32_t *ids)
{
    for (size_t i = 0; i + 1 < n; i++)
        ids[i] = get_id(packed + 3 * i) & UINT32_C(0xffffff);
    if (n > 0) {
        const uint8_t *last = packed + 3 * (n - 1);

        ids[n - 1] = last[0] | (uint32_t)last[1] << 8 | (uint32_t)last[2] << 16;
    }
}

/* ---- all ---- */

void token_list_pack(const uint32_t *ids, size_t n, unsigned width, uint8_t *out)
{
    ASSERT(width >= TOKEN_LIST_MIN_BYTES && width <= TOKEN_LIST_MAX_BYTES);
    if (width == 2)
        pack_two(ids, n, out);
    else if (width == 3)
        pack_three(ids, n, out);
    else
        for (size_t i = 0; i < n; i++)
            token_list_put_id(out + 4 * i, ids[i]);
}

int token_list_count(struct bytes packed, uint32_t width, size_t *n_out)
{
    if (width < TOKEN_LIST_MIN_BYTES || width > TOKEN_LIST_MAX_BYTES || packed.len_bytes % width != 0)
        return E_PROTO;
    *n_out = packed.len_bytes / width;
    return 0;
}

void token_list_unpack(struct bytes packed, uint32_t width, size_t n, uint32_t *ids_out)
{
    ASSERT(width >= TOKEN_LIST_MIN_BYTES && width <= TOKEN_LIST_MAX_BYTES && n <= packed.len_bytes / width);
    if (width == 2)
        unpack_two(packed.data, n, ids_out);
    else if (width == 3)
        unpack_three(packed.data, n, ids_out);
    else
        for (size_t i = 0; i < n; i++)
            ids_out[i] = get_id(packed.data + 4 * i);
}
