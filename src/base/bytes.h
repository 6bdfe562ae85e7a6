/* SPDX-License-Identifier: Apache-2.0 */
/* Byte views, a growable buffer, bounds-checked little-endian reads and writes, and tests of eight bytes at
 * once.
 *
 * A reader that runs past its end sets is_bad and returns zeros from then on.  So a parser checks is_bad
 * once, at the end.
 *
 * More than 15 functions: one reader and one writer for each width of a wire field. */
#ifndef BASE_BYTES_H
#define BASE_BYTES_H

#include <endian.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct bytes {
    const uint8_t *data; /* borrowed; may contain NUL bytes and need not end in one */
    size_t len_bytes;
};

struct buf {
    uint8_t *data; /* owned; NUL-terminated beyond len_bytes once non-empty */
    size_t len_bytes;
    size_t cap_bytes;
    bool is_bad; /* an append ran out of memory; later appends do nothing */
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
bool bytes_ends_with(struct bytes a, const char *text);
/* Offset of needle in hay at or after from, or SIZE_MAX. */
size_t bytes_find(struct bytes hay, struct bytes needle, size_t from);

void buf_fini(struct buf *buf); /* a zeroed struct buf is an empty one */
void buf_clear(struct buf *buf);
int buf_reserve(struct buf *buf, size_t more_bytes);
int buf_append(struct buf *buf, const void *data, size_t len_bytes);
int buf_append_byte(struct buf *buf, uint8_t byte);
int buf_append_u64(struct buf *buf, uint64_t value); /* as decimal digits */
__attribute__((format(printf, 2, 3))) int buf_printf(struct buf *buf, const char *format, ...);
void buf_consume(struct buf *buf, size_t len_bytes); /* drops bytes from the front */
struct bytes buf_view(const struct buf *buf);        /* valid until the next append */
char *buf_take_str(struct buf *buf); /* heap string for the caller; empties buf; NULL if is_bad */

/* Inline, so that the compiler knows the length of a literal and copies it in place. */
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

/* ---- eight bytes at once ----
 *
 * A loop that tests every byte of a text loads eight bytes as one number; the first byte is the lowest.  A
 * test returns a mark, the highest bit, in each byte that matches.  A loop over single bytes mispredicts
 * about one branch for each short run of unpredictable length.  These tests cost one such branch for eight
 * bytes. */

static inline uint64_t bytes_load8(const uint8_t *at) /* any alignment */
{
    uint64_t eight;

    memcpy(&eight, at, sizeof(eight));
    return le64toh(eight);
}

static inline uint64_t bytes_each(uint8_t byte) /* eight copies of byte */
{
    return UINT64_C(0x0101010101010101) * byte;
}

static inline uint32_t bytes_each4(uint8_t byte) /* four copies of byte */
{
    return UINT32_C(0x01010101) * byte;
}

/* Marks exactly the bytes that are 0: the sum carries into no other byte. */
static inline uint64_t bytes_mark_zero(uint64_t eight)
{
    return ~(((eight & bytes_each(0x7f)) + bytes_each(0x7f)) | eight) & bytes_each(0x80);
}

/* Marks the bytes below limit (1 to 0x80).  Cheaper than an exact test.  It is right about whether there is
 * a match and where the first one is.  A borrow may set false marks in bytes after the first match. */
static inline uint64_t bytes_mark_below(uint64_t eight, uint8_t limit)
{
    return (eight - bytes_each(limit)) & ~eight & bytes_each(0x80);
}

static inline size_t bytes_first_mark(uint64_t marks) /* index of the first marked byte; 8: none */
{
    return marks == 0 ? 8 : (size_t)__builtin_ctzll(marks) / 8;
}

#endif
