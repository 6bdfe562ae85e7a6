/* SPDX-License-Identifier: Apache-2.0 */
/* See news_priv.h. */
#include "fleet/router/news_priv.h"

#include "base/err.h"

void news_begin(struct buf *out, uint64_t epoch, const char *node)
{
    size_t n = strnlen(node, NEWS_NODE_BYTES - 1);
    uint8_t number[8];

    buf_clear(out);
    put_u64(number, epoch);
    buf_append_byte(out, NEWS_VERSION);
    buf_append(out, number, sizeof(number));
    buf_append_byte(out, (uint8_t)n);
    buf_append(out, node, n);
}

void news_put(struct buf *out, enum news_kind kind, struct bytes section)
{
    uint8_t len[4];

    put_u32(len, (uint32_t)section.len_bytes);
    buf_append_byte(out, (uint8_t)kind);
    buf_append(out, len, sizeof(len));
    buf_append(out, section.data, section.len_bytes);
}

int news_parse(struct bytes message, struct news *out)
{
    struct reader reader = reader_of(message);
    uint8_t version = read_u8(&reader);
    struct news news = {.epoch = read_u64(&reader)};
    struct bytes node = read_bytes(&reader, read_u8(&reader));

    if (reader.is_bad)
        return E_TRUNCATED;
    if (version != NEWS_VERSION)
        return E_VERSION;
    if (node.len_bytes >= sizeof(news.node) || news.epoch == 0)
        return E_FORMAT;
    for (size_t i = 0; i < node.len_bytes; i++)
        if (node.data[i] <= ' ' || node.data[i] >= 127)
            return E_FORMAT;
    if (node.len_bytes > 0)
        memcpy(news.node, node.data, node.len_bytes);
    news.sections = bytes_of(message.data + reader.at_bytes, message.len_bytes - reader.at_bytes);
    *out = news;
    return 0;
}

bool news_next(struct bytes *sections, unsigned *kind_out, struct bytes *section_out)
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
