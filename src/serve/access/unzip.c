/* SPDX-License-Identifier: Apache-2.0 */
/* Decodes in small pieces, so that a decompression bomb costs no more memory than the bound and no more
 * time than it takes to reach the bound. */
#include "serve/access/unzip.h"

#include <string.h>
#include <zlib.h>

#include "base/err.h"

#define PIECE_BYTES 16384
#define GZIP_ONLY   (15 + 16) /* window bits, plus the flag that requires a gzip header */

static size_t unzip_bound(struct bytes in, size_t max_bytes)
{
    size_t by_ratio = in.len_bytes > SIZE_MAX / UNZIP_MAX_RATIO ? SIZE_MAX : in.len_bytes * UNZIP_MAX_RATIO;

    if (by_ratio < UNZIP_FREE_BYTES)
        by_ratio = UNZIP_FREE_BYTES;
    return by_ratio < max_bytes ? by_ratio : max_bytes;
}

/* Inflates one member.  1: the member is complete. */
static int inflate_more(z_stream *stream, size_t max_bytes, struct buf *out)
{
    uint8_t piece[PIECE_BYTES];
    size_t n;
    int rc;

    stream->next_out = piece;
    stream->avail_out = sizeof(piece);
    rc = inflate(stream, Z_NO_FLUSH);
    n = sizeof(piece) - stream->avail_out;
    if (rc == Z_MEM_ERROR)
        return E_NOMEM;
    if (rc != Z_OK && rc != Z_STREAM_END)
        return E_FORMAT; /* Z_BUF_ERROR: the input ends too early */
    if (n > max_bytes - out->len_bytes)
        return E_RANGE;
    if (buf_append(out, piece, n) < 0)
        return E_NOMEM;
    return rc == Z_STREAM_END;
}

int unzip_body(struct bytes in, size_t max_bytes, struct buf *out)
{
    z_stream stream;
    int rc = 0;

    max_bytes = unzip_bound(in, max_bytes);
    if (in.len_bytes == 0 || in.len_bytes > UINT32_MAX || out->len_bytes > max_bytes)
        return in.len_bytes == 0 ? E_FORMAT : E_RANGE;
    memset(&stream, 0, sizeof(stream));
    if (inflateInit2(&stream, GZIP_ONLY) != Z_OK)
        return E_NOMEM;
    stream.next_in = (uint8_t *)(uintptr_t)in.data; /* zlib only reads it */
    stream.avail_in = (unsigned)in.len_bytes;
    while (rc == 0) {
        rc = inflate_more(&stream, max_bytes, out);
        if (rc == 1 && stream.avail_in > 0)
            rc = inflateReset(&stream) == Z_OK ? 0 : E_FORMAT;
    }
    inflateEnd(&stream);
    return rc == 1 ? 0 : rc;
}
