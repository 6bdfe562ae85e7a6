/* SPDX-License-Identifier: Apache-2.0 */
/* Decoder of the chunked transfer coding. It works piece by piece without copying: a pure state machine. */
#ifndef NET_HTTP_CHUNKED_PRIV_H
#define NET_HTTP_CHUNKED_PRIV_H

#include "base/bytes.h"

struct http_chunked { /* zeroed: at the start of a body */
    uint8_t state;
    uint8_t n_digits;
    uint32_t line_bytes; /* length of the current chunk's extensions, or of all trailers */
    uint64_t left_bytes; /* bytes left in the current chunk's data */
};

/* Consumes *used_out bytes of text. data_out is the body data among them: a view into text, possibly
 * empty. 1: the body is complete, and the rest of text is not part of it. 0: call again with the unused
 * bytes, or with more. E_FORMAT. E_LIMIT: extensions over 4 KiB or trailers over 8 KiB. Extensions are
 * ignored; trailers are checked and dropped. */
int http_chunked_take(struct http_chunked *chunked, struct bytes text, size_t *used_out,
                      struct bytes *data_out);

#endif
