/* SPDX-License-Identifier: Apache-2.0 */
/* Views, a growable buffer, and bounds-checked little-endian reading and writing.
 *
 * A reader that runs out sets is_bad and gives zeros from then on, so a parser checks once at the end. */
#ifndef BASE_BYTES_H
#define BASE_BYTES_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct bytes {
    const uint8_t *data; /* borrowed; may hold NUL, need not end in one */
    size_t len_bytes;
};

struct buf {
    uint8_t *data; /* owned; always NUL-terminated beyond len_bytes once non-empty */
    size_t len_bytes;
    size_t cap_bytes;
    bool is_bad; /* an append failed for want of memory; nothing was appended since */
};

struct reader {
    const uint8_t *data;
    size_t len_bytes;
    size_t at_bytes;
    bool is_bad;
};

struct bytes bytes_of(const void *data, size_t len_bytes);
struct bytes bytes_str(const char *text); /* NULL gives an empty view */
bool bytes_equal(struct bytes a, struct bytes b);
bool bytes_is(struct bytes a, const char *text);
bool bytes_starts_with(struct bytes a, const char *text);
/* Offset of needle in hay at or after from, or SIZE_MAX. */
size_t bytes_find(struct bytes hay, struct bytes needle, size_t from);

void buf_fini(struct buf *buf); /* a zeroed struct buf is an empty one */
void buf_clear(struct buf *buf);
int buf_reserve(struct buf *buf, size_t more_bytes);
int buf_append(struct buf *buf, const void *data, size_t len_bytes);
int buf_append_byte(struct buf *buf, uint8_t byte);
int buf_append_u64(struct buf *buf, uint64_t value); /* in decimal */
__attribute__((format(printf, 2, 3))) int buf_printf(struct buf *buf, const char *format, ...);
void buf_consume(struct buf *buf, size_t len_bytes); /* drops from the front */
struct bytes buf_view(const struct buf *buf);        /* valid until the next append */
char *buf_take_str(struct buf *buf); /* the caller's heap string; buf is empty after; NULL if bad */

/* Here, so that the compiler counts a literal's characters and copies them in place. */
static inline int buf_append_str(struct buf *buf, const char *text)
{
    size_t len_bytes = strlen(text);

    if (buf->is_bad || buf->cap_bytes - buf->len_bytes <= len_bytes)
        return buf_append(buf, text, len_bytes);
    memcpy(buf->data + buf->len_bytes, text, len_bytes + 1);
    buf->len_bytes += len_bytes;
    return 0;
}

struct reader reader_of(struct bytes view);
uint8_t read_u8(struct reader *reader);
uint16_t read_u16(struct reader *reader);
uint32_t read_u32(struct reader *reader);
uint64_t read_u64(struct reader *reader);
struct bytes read_bytes(struct reader *reader, size_t len_bytes);

void put_u16(uint8_t *at, uint16_t value); /* little endian, any alignment */
void put_u32(uint8_t *at, uint32_t value);
void put_u64(uint8_t *at, uint64_t value);
uint16_t get_u16(const uint8_t *at);
uint32_t get_u32(const uint8_t *at);
uint64_t get_u64(const uint8_t *at);

#endif
