/* SPDX-License-Identifier: Apache-2.0 */
/* The chunked decoder.
 *
 *     SIZE ──digits──> EXTENSION ──CR──> SIZE_LF ──LF──> DATA ──all──> DATA_CR ──> DATA_LF ──> SIZE
 *                                          └─size 0─> TRAILER ──CR at line begin──> END_LF ──> END
 *                                                        └─> TRAILER_NAME ─> _TEXT ─CR─> _LF ─> TRAILER
 *
 * As with heads, the decoder refuses everything that two readers could interpret differently. The size is
 * bare hexadecimal (no sign, no 0x, at most 15 digits). Every line ends in CR LF. Trailers have names and
 * do not fold. Extensions are ignored; they may hold anything but control characters. */
#include "net/http/chunked_priv.h"

#include "base/err.h"
#include "net/http/parse_priv.h"

#define MAX_SIZE_DIGITS     15
#define MAX_EXTENSION_BYTES 4096u
#define MAX_TRAILER_BYTES   8192u

enum chunked_state {
    CHUNK_SIZE,         /* hexadecimal digits of a chunk's size */
    CHUNK_EXTENSION,    /* the rest of the size's line */
    CHUNK_SIZE_LF,      /* its LF */
    CHUNK_DATA,         /* left_bytes of data are still to come */
    CHUNK_DATA_CR,      /* the CR after the data */
    CHUNK_DATA_LF,      /* the LF after the data */
    CHUNK_TRAILER,      /* start of a trailer line, or of the last, empty line */
    CHUNK_TRAILER_NAME, /* inside a trailer's name */
    CHUNK_TRAILER_TEXT, /* after its colon */
    CHUNK_TRAILER_LF,   /* its LF */
    CHUNK_END_LF,       /* the very last LF */
    CHUNK_END           /* done */
};

static int take_size(struct http_chunked *chunked, uint8_t c)
{
    int digit = -1;

    if (c >= '0' && c <= '9')
        digit = c - '0';
    else if (c >= 'a' && c <= 'f')
        digit = c - 'a' + 10;
    else if (c >= 'A' && c <= 'F')
        digit = c - 'A' + 10;
    if (digit >= 0) {
        if (chunked->n_digits == MAX_SIZE_DIGITS)
            return E_FORMAT;
        chunked->n_digits++;
        chunked->left_bytes = chunked->left_bytes * 16 + (uint64_t)digit;
        return 0;
    }
    if (chunked->n_digits == 0)
        return E_FORMAT;
    chunked->line_bytes = 0;
    if (c == '\r')
        chunked->state = CHUNK_SIZE_LF;
    else if (c == ';' || c == ' ' || c == '\t')
        chunked->state = CHUNK_EXTENSION;
    else
        return E_FORMAT;
    return 0;
}

static int http_chunked_take_text(struct http_chunked *chunked, uint8_t c, uint32_t max_bytes,
                                  enum chunked_state after_cr)
{
    if (c == '\r') {
        chunked->state = (uint8_t)after_cr;
        return 0;
    }
    if ((c < ' ' && c != '\t') || c == 0x7f)
        return E_FORMAT;
    return ++chunked->line_bytes > max_bytes ? E_LIMIT : 0;
}

static int take_lf(struct http_chunked *chunked, uint8_t c, enum chunked_state next)
{
    if (c != '\n')
        return E_FORMAT;
    chunked->state = (uint8_t)next;
    return 0;
}

static void begin_size(struct http_chunked *chunked)
{
    chunked->n_digits = 0;
    chunked->left_bytes = 0;
}

static int take_trailer_begin(struct http_chunked *chunked, uint8_t c)
{
    if (c == '\r') {
        chunked->state = CHUNK_END_LF;
        return 0;
    }
    chunked->state = CHUNK_TRAILER_NAME;
    chunked->line_bytes += 3; /* this byte, CR and LF */
    return http_is_token_char(c) ? 0 : E_FORMAT;
}

static int take_trailer_name(struct http_chunked *chunked, uint8_t c)
{
    if (c == ':')
        chunked->state = CHUNK_TRAILER_TEXT;
    else if (!http_is_token_char(c))
        return E_FORMAT;
    return ++chunked->line_bytes > MAX_TRAILER_BYTES ? E_LIMIT : 0;
}

/* Handles one byte that is not data. */
static int take_byte(struct http_chunked *chunked, uint8_t c)
{
    int rc;

    switch ((enum chunked_state)chunked->state) {
    case CHUNK_SIZE:
        return take_size(chunked, c);
    case CHUNK_EXTENSION:
        return http_chunked_take_text(chunked, c, MAX_EXTENSION_BYTES, CHUNK_SIZE_LF);
    case CHUNK_SIZE_LF:
        chunked->line_bytes = 0;
        return take_lf(chunked, c, chunked->left_bytes == 0 ? CHUNK_TRAILER : CHUNK_DATA);
    case CHUNK_DATA:
        break;
    case CHUNK_DATA_CR:
        chunked->state = CHUNK_DATA_LF;
        return c == '\r' ? 0 : E_FORMAT;
    case CHUNK_DATA_LF:
        rc = take_lf(chunked, c, CHUNK_SIZE);
        begin_size(chunked);
        return rc;
    case CHUNK_TRAILER:
        return take_trailer_begin(chunked, c);
    case CHUNK_TRAILER_NAME:
        return take_trailer_name(chunked, c);
    case CHUNK_TRAILER_TEXT:
        return http_chunked_take_text(chunked, c, MAX_TRAILER_BYTES, CHUNK_TRAILER_LF);
    case CHUNK_TRAILER_LF:
        return take_lf(chunked, c, CHUNK_TRAILER);
    case CHUNK_END_LF:
        return take_lf(chunked, c, CHUNK_END);
    case CHUNK_END:
        break;
    }
    return E_FORMAT;
}

int http_chunked_take(struct http_chunked *chunked, struct bytes text, size_t *used_out,
                      struct bytes *data_out)
{
    size_t at = 0;

    *data_out = bytes_of(NULL, 0);
    *used_out = 0;
    while (chunked->state != CHUNK_END && at < text.len_bytes) {
        int rc;

        if (chunked->state == CHUNK_DATA) {
            size_t n = text.len_bytes - at;

            if (n > chunked->left_bytes)
                n = (size_t)chunked->left_bytes;
            *data_out = bytes_of(text.data + at, n);
            chunked->left_bytes -= n;
            if (chunked->left_bytes == 0)
                chunked->state = CHUNK_DATA_CR;
            *used_out = at + n;
            return 0;
        }
        rc = take_byte(chunked, text.data[at]);
        if (rc < 0)
            return rc;
        at++;
    }
    *used_out = at;
    return chunked->state == CHUNK_END ? 1 : 0;
}
