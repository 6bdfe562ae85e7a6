/* SPDX-License-Identifier: Apache-2.0 */
/* Views, the growable buffer, and little-endian access.
 *
 * Errors of the buffer are sticky: once memory runs out, is_bad stays set and appends do nothing.  So a
 * writer of many small pieces checks once at the end and never sends text with a hole in it.  One byte
 * beyond the content is always a NUL, so the content can be passed to a function that wants a C string.
 *
 * Errors of the reader are sticky too: past the end it returns zeros and sets is_bad.
 *
 * Integers are composed byte by byte.  The compiler turns that into one load or store where the machine
 * allows it, and it is correct on all others. */
#include "base/bytes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/err.h"

struct bytes bytes_of(const void *data, size_t len_bytes)
{
    return (struct bytes){.data = data, .len_bytes = len_bytes};
}

struct bytes bytes_str(const char *text)
{
    return bytes_of(text, text == NULL ? 0 : strlen(text));
}

bool bytes_equal(struct bytes a, struct bytes b)
{
    return a.len_bytes == b.len_bytes && (a.len_bytes == 0 || memcmp(a.data, b.data, a.len_bytes) == 0);
}

bool bytes_is(struct bytes a, const char *text)
{
    return bytes_equal(a, bytes_str(text));
}

bool bytes_starts_with(struct bytes a, const char *text)
{
    size_t len_bytes = strlen(text);

    return a.len_bytes >= len_bytes && bytes_equal(bytes_of(a.data, len_bytes), bytes_of(text, len_bytes));
}

bool bytes_ends_with(struct bytes a, const char *text)
{
    size_t len_bytes = strlen(text);

    return a.len_bytes >= len_bytes &&
           bytes_equal(bytes_of(a.data + a.len_bytes - len_bytes, len_bytes), bytes_of(text, len_bytes));
}

size_t bytes_find(struct bytes hay, struct bytes needle, size_t from)
{
    if (from > hay.len_bytes || needle.len_bytes > hay.len_bytes - from)
        return SIZE_MAX;
    if (needle.len_bytes == 0)
        return from;

    const uint8_t *hit = memmem(hay.data + from, hay.len_bytes - from, needle.data, needle.len_bytes);
    return hit == NULL ? SIZE_MAX : (size_t)(hit - hay.data);
}

void buf_fini(struct buf *buf)
{
    free(buf->data);
    *buf = (struct buf){0};
}

void buf_clear(struct buf *buf)
{
    buf->len_bytes = 0;
    buf->is_bad = false;
    if (buf->data != NULL)
        buf->data[0] = '\0';
}

static bool bytes_has_room(const struct buf *buf, size_t more_bytes)
{
    return !buf->is_bad && buf->data != NULL && more_bytes < buf->cap_bytes - buf->len_bytes;
}

static int bytes_grow(struct buf *buf, size_t more_bytes)
{
    if (buf->is_bad)
        return E_NOMEM;
    if (more_bytes > SIZE_MAX / 4 || buf->len_bytes > SIZE_MAX / 4)
        goto bad;

    size_t cap_bytes = buf->cap_bytes < 64 ? 64 : buf->cap_bytes * 2;
    if (cap_bytes < buf->len_bytes + more_bytes + 1)
        cap_bytes = buf->len_bytes + more_bytes + 1;

    uint8_t *data = realloc(buf->data, cap_bytes);
    if (data == NULL)
        goto bad;
    data[buf->len_bytes] = '\0';
    buf->data = data;
    buf->cap_bytes = cap_bytes;
    return 0;

bad:
    buf->is_bad = true;
    return E_NOMEM;
}

int buf_reserve(struct buf *buf, size_t more_bytes)
{
    return bytes_has_room(buf, more_bytes) ? 0 : bytes_grow(buf, more_bytes);
}

int buf_append(struct buf *buf, const void *data, size_t len_bytes)
{
    if (!bytes_has_room(buf, len_bytes) && bytes_grow(buf, len_bytes) < 0)
        return E_NOMEM;
    if (len_bytes > 0)
        memcpy(buf->data + buf->len_bytes, data, len_bytes);
    buf->len_bytes += len_bytes;
    buf->data[buf->len_bytes] = '\0';
    return 0;
}

int buf_append_byte(struct buf *buf, uint8_t byte)
{
    if (!bytes_has_room(buf, 1) && bytes_grow(buf, 1) < 0)
        return E_NOMEM;
    buf->data[buf->len_bytes++] = byte;
    buf->data[buf->len_bytes] = '\0';
    return 0;
}

int buf_append_u64(struct buf *buf, uint64_t value)
{
    char digits[20];
    size_t at = sizeof(digits);

    do
        digits[--at] = (char)('0' + value % 10);
    while ((value /= 10) > 0);
    return buf_append(buf, digits + at, sizeof(digits) - at);
}

int buf_printf(struct buf *buf, const char *format, ...)
{
    int rc = buf_reserve(buf, 64);
    if (rc != 0)
        return rc;

    size_t room_bytes = buf->cap_bytes - buf->len_bytes;
    va_list args;
    va_start(args, format);
    int n = vsnprintf((char *)buf->data + buf->len_bytes, room_bytes, format, args);
    va_end(args);
    ASSERT(n >= 0);

    if ((size_t)n >= room_bytes) {
        buf->data[buf->len_bytes] = '\0';
        rc = buf_reserve(buf, (size_t)n);
        if (rc != 0)
            return rc;
        va_start(args, format);
        vsnprintf((char *)buf->data + buf->len_bytes, (size_t)n + 1, format, args);
        va_end(args);
    }
    buf->len_bytes += (size_t)n;
    return 0;
}

void buf_consume(struct buf *buf, size_t len_bytes)
{
    ASSERT(len_bytes <= buf->len_bytes);
    if (len_bytes == 0)
        return;
    buf->len_bytes -= len_bytes;
    memmove(buf->data, buf->data + len_bytes, buf->len_bytes + 1);
}

struct bytes buf_view(const struct buf *buf)
{
    return bytes_of(buf->data, buf->len_bytes);
}

char *buf_take_str(struct buf *buf)
{
    char *text = NULL;

    if (buf_reserve(buf, 0) == 0) {
        text = (char *)buf->data;
        buf->data = NULL;
    }
    buf_fini(buf);
    return text;
}

struct reader reader_of(struct bytes view)
{
    return (struct reader){.data = view.data, .len_bytes = view.len_bytes};
}

struct bytes read_bytes(struct reader *reader, size_t len_bytes)
{
    if (reader->is_bad || len_bytes > reader->len_bytes - reader->at_bytes) {
        reader->is_bad = true;
        return (struct bytes){0};
    }

    struct bytes view = bytes_of(reader->data == NULL ? NULL : reader->data + reader->at_bytes, len_bytes);
    reader->at_bytes += len_bytes;
    return view;
}

uint8_t read_u8(struct reader *reader)
{
    struct bytes view = read_bytes(reader, 1);

    return reader->is_bad ? 0 : view.data[0];
}

uint16_t read_u16(struct reader *reader)
{
    struct bytes view = read_bytes(reader, 2);

    return reader->is_bad ? 0 : get_u16(view.data);
}

uint32_t read_u32(struct reader *reader)
{
    struct bytes view = read_bytes(reader, 4);

    return reader->is_bad ? 0 : get_u32(view.data);
}

uint64_t read_u64(struct reader *reader)
{
    struct bytes view = read_bytes(reader, 8);

    return reader->is_bad ? 0 : get_u64(view.data);
}

void put_u16(uint8_t *at, uint16_t value)
{
    at[0] = (uint8_t)value;
    at[1] = (uint8_t)(value >> 8);
}

void put_u32(uint8_t *at, uint32_t value)
{
    put_u16(at, (uint16_t)value);
    put_u16(at + 2, (uint16_t)(value >> 16));
}

void put_u64(uint8_t *at, uint64_t value)
{
    put_u32(at, (uint32_t)value);
    put_u32(at + 4, (uint32_t)(value >> 32));
}

uint16_t get_u16(const uint8_t *at)
{
    return (uint16_t)(at[0] | at[1] << 8);
}

uint32_t get_u32(const uint8_t *at)
{
    return (uint32_t)get_u16(at) | (uint32_t)get_u16(at + 2) << 16;
}

uint64_t get_u64(const uint8_t *at)
{
    return (uint64_t)get_u32(at) | (uint64_t)get_u32(at + 4) << 32;
}
