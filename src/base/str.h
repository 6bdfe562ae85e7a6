/* SPDX-License-Identifier: Apache-2.0 */
/* Text: numbers with units, UTF-8, hexadecimal, JSON strings.  All functions are pure and take bounded
 * input.
 *
 * More than 15 functions: one parser and one printer for each unit. */
#ifndef BASE_STR_H
#define BASE_STR_H

#include "base/bytes.h"

/* The whole text must be the value.  E_FORMAT; E_RANGE when the value does not fit. */
int str_to_u64(struct bytes text, uint64_t *out);
int str_to_i64(struct bytes text, int64_t *out);
int str_to_f64(struct bytes text, double *out);           /* finite values only */
int str_to_size(struct bytes text, uint64_t *bytes_out);  /* 512, 64k, 64KiB, 1.5GiB, 2M: powers of two */
int str_to_duration(struct bytes text, uint64_t *ns_out); /* 500ms, 30s, 5min, 1h, 10us, 0 */
void str_from_size(uint64_t size_bytes, char out[24]);    /* "1.5GiB"; reads back exactly */
void str_from_duration(uint64_t ns, char out[24]);

/* Length in bytes of the longest prefix of whole, valid UTF-8 characters. */
size_t utf8_valid_prefix(struct bytes text);
/* Decodes the code point at text[at] and sets *len_out to its length, 1 to 4.  An invalid byte gives U+FFFD
 * and length 1. */
uint32_t utf8_next(struct bytes text, size_t at, size_t *len_out);
size_t utf8_put(uint32_t code_point, uint8_t out[4]); /* returns the bytes written */
/* How many more bytes the unfinished character at the end of text needs. 0: the last character is
 * complete. */
size_t utf8_missing(struct bytes text);

void hex_encode(const void *data, size_t len_bytes, char *out);    /* 2 * len + 1 bytes */
int hex_decode(struct bytes text, uint8_t *out, size_t len_bytes); /* E_FORMAT unless exactly len_bytes */

/* Appends text as a quoted JSON string.  Replaces invalid UTF-8 by U+FFFD and escapes every control byte. */
int json_put_str(struct buf *buf, struct bytes text);
int json_put_chars(struct buf *buf, struct bytes text); /* the same without the quotes */

/* True if the text has no control character (below 0x20, or 0x7f): it fits one line of a log, and a text of a message
 * (proto/frame_check.c). */
bool str_is_printable(struct bytes text);

/* Levenshtein distance over at most the first 64 bytes of each. */
unsigned str_distance(const char *a, const char *b);

/* The nearest of some names, for "did you mean" messages.  Begin with text, and most: a name at a larger distance is no
 * help.  The first of equally near names counts. */
struct str_nearest {
    const char *text;
    unsigned most;
    const char *name; /* NULL: none is near enough; borrowed */
};
void str_nearest_try(struct str_nearest *nearest, const char *name);

/* FNV-1a, for names: fast, not secret.  Never 0. */
uint64_t str_digest(const char *text);

/* Copies at most cap-1 bytes and adds a NUL.  Returns whether the whole text fitted. */
bool str_copy(char *out, size_t cap, const char *text);

#endif
