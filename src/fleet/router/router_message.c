/* SPDX-License-Identifier: Apache-2.0 */
/* See router_message_priv.h. */
#include "fleet/router/router_message_priv.h"

#include "base/err.h"

void router_message_begin(struct buf *out, uint64_t epoch, const char *node)
{
    size_t n = strnlen(node, ROUTER_MESSAGE_NODE_BYTES - 1);
    uint8_t number[8];

    buf_clear(out);
    put_u64(number, epoch);
    buf_append_byte(out, ROUTER_MESSAGE_VERSION);
    buf_append(out, number, sizeof(number));
    buf_append_byte(out, (uint8_t)n);
    buf_append(out, node, n);
}

void router_message_put(struct buf *out, enum router_message_kind kind, struct bytes section)
{
    uint8_t len[4];

    put_u32(len, (uint32_t)section.len_bytes);
    buf_append_byte(out, (uint8_t)kind);
    buf_append(out, len, sizeof(len));
    buf_append(out, section.data, section.len_bytes);
}

int router_message_parse(struct bytes message, struct router_message *out)
{
    struct reader reader = reader_of(message);
    uint8_t version = read_u8(&reader);
    struct router_message parsed = {.epoch = read_u64(&reader)};
    struct bytes node = read_bytes(&reader, read_u8(&reader));

    if (reader.is_bad)
        return E_TRUNCATED;
    if (version != ROUTER_MESSAGE_VERSION)
        return E_VERSION;
    if (node.len_bytes >= sizeof(parsed.node) || parsed.epoch == 0)
        return E_FORMAT;
    for (size_t i = 0; i < node.len_bytes; i++)
        if (node.data[i] <= ' ' || node.data[i] >= 127)
            return E_FORMAT;
    if (node.len_bytes > 0)
        memcpy(parsed.node, node.data, node.len_bytes);
    parsed.sections = bytes_of(message.data + reader.at_bytes, message.len_bytes - reader.at_bytes);
    *out = parsed;
    return 0;
}

bool router_message_next(struct bytes *sections, unsigned *kind_out, struct bytes *section_out)
{
    struct reader reader = reader_of(*sections);
    unsigned kind = read_u8(&reader);
    struct bytes section = read_bytes(&reader, read_u32(&reader));

    if (reader.is_bad)
        return false;
    *kind_out = kind;
    *section_out = section;
    *sections = bytes_of(sections->data + reader.at_bytes, sections->len_bytes - reader.at_bytes);
    return true;
}
