/* SPDX-License-Identifier: Apache-2.0 */
/* A strict parser: digits without sign and leading zeros, four parts or one. */
#include "serve/api/event_id.h"

#include <stdio.h>
#include <string.h>

#include "base/err.h"

#define TAG_DIGITS 8

/* The text before the next dot, which is skipped; all of it if there is none. */
static struct bytes next_part(struct bytes *rest)
{
    size_t n = 0;
    struct bytes part;

    while (n < rest->len_bytes && rest->data[n] != '.')
        n++;
    part = bytes_of(rest->data, n);
    n += n < rest->len_bytes;
    *rest = bytes_of(rest->data + n, rest->len_bytes - n);
    return part;
}

static int read_decimal(struct bytes text, uint64_t most, uint64_t *out)
{
    uint64_t value = 0;

    if (text.len_bytes == 0 || text.len_bytes > 18 || (text.len_bytes > 1 && text.data[0] == '0'))
        return E_FORMAT;
    for (size_t i = 0; i < text.len_bytes; i++) {
        if (text.data[i] < '0' || text.data[i] > '9')
            return E_FORMAT;
        value = 10 * value + (text.data[i] - '0');
    }
    if (value > most)
        return E_FORMAT;
    *out = value;
    return 0;
}

static int read_tag(struct bytes text, uint32_t *out)
{
    uint32_t value = 0;

    if (text.len_bytes != TAG_DIGITS)
        return E_FORMAT;
    for (size_t i = 0; i < TAG_DIGITS; i++) {
        uint8_t c = text.data[i];

        if (!(c >= '0' && c <= '9') && !(c >= 'a' && c <= 'f'))
            return E_FORMAT;
        value = value << 4 | (uint32_t)(c <= '9' ? c - '0' : c - 'a' + 10);
    }
    *out = value;
    return 0;
}

static int read_request_id(struct bytes text, char out[IDS_BYTES])
{
    if (text.len_bytes >= IDS_BYTES || !bytes_starts_with(text, "req_") || text.len_bytes <= 4)
        return E_FORMAT;
    for (size_t i = 4; i < text.len_bytes; i++) {
        uint8_t c = text.data[i];

        if (!(c >= '0' && c <= '9') && !(c >= 'a' && c <= 'z') && !(c >= 'A' && c <= 'Z'))
            return E_FORMAT;
    }
    memcpy(out, text.data, text.len_bytes);
    out[text.len_bytes] = '\0';
    return 0;
}

int event_id_parse(struct bytes text, struct event_id *out)
{
    struct event_id id = {.has_event = memchr(text.data != NULL ? text.data : (const uint8_t *)"", '.',
                                              text.len_bytes) != NULL};
    struct bytes request = next_part(&text), cached = next_part(&text), tag = next_part(&text);
    uint64_t cached_tokens;

    if (read_request_id(request, id.request_id) < 0)
        return E_FORMAT;
    if (id.has_event) {
        if (read_decimal(cached, UINT32_MAX, &cached_tokens) < 0 || read_tag(tag, &id.tag) < 0 ||
            read_decimal(text, UINT64_MAX, &id.number) < 0)
            return E_FORMAT;
        id.cached_tokens = (uint32_t)cached_tokens;
    }
    *out = id;
    return 0;
}

void event_id_put_prefix(const struct event_id *id, char out[EVENT_ID_PREFIX_BYTES])
{
    snprintf(out, EVENT_ID_PREFIX_BYTES, "%s.%u.%08x", id->request_id, id->cached_tokens, id->tag);
}
