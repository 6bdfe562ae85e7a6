/* SPDX-License-Identifier: Apache-2.0 */
/* See redis_slots.h. */
#include "net/redis/redis_slots.h"

#include <stdio.h>

#include "base/err.h"
#include "net/redis/resp.h"

/* CRC-16 XMODEM: polynomial 0x1021, no reflection, from 0. */
static uint16_t redis_crc16(struct bytes text)
{
    uint16_t crc = 0;

    for (size_t i = 0; i < text.len_bytes; i++) {
        crc ^= (uint16_t)(text.data[i] << 8);
        for (unsigned bit = 0; bit < 8; bit++)
            crc = (uint16_t)(crc & 0x8000 ? crc << 1 ^ 0x1021 : crc << 1);
    }
    return crc;
}

unsigned redis_slot(struct bytes key)
{
    size_t open = bytes_find(key, bytes_str("{"), 0);
    size_t close = open != SIZE_MAX ? bytes_find(key, bytes_str("}"), open + 1) : SIZE_MAX;

    if (close != SIZE_MAX && close > open + 1)
        key = bytes_of(key.data + open + 1, close - open - 1);
    return redis_crc16(key) % REDIS_N_SLOTS;
}

/* The digits up to a blank; returns the bytes used, the blank included, or 0. */
static size_t redis_slot_parse(struct bytes text, unsigned *out)
{
    unsigned value = 0;
    size_t at = 0;

    for (; at < text.len_bytes && at < 6 && text.data[at] >= '0' && text.data[at] <= '9'; at++)
        value = value * 10 + (unsigned)(text.data[at] - '0');
    if (at == 0 || at >= text.len_bytes || text.data[at] != ' ' || value >= REDIS_N_SLOTS)
        return 0;
    *out = value;
    return at + 1;
}

/* Parses "host:port".  An IPv6 address may lack brackets, and the host may be empty. */
static int redis_peer_parse(struct bytes text, struct redis_node *out)
{
    char bracketed[REDIS_HOST_BYTES + 16];
    size_t colon = text.len_bytes;

    while (colon > 0 && text.data[colon - 1] != ':')
        colon--;
    if (colon == 0 || text.len_bytes >= REDIS_HOST_BYTES)
        return E_FORMAT;
    if (colon == 1) {
        snprintf(bracketed, sizeof(bracketed), "none%.*s", (int)text.len_bytes, (const char *)text.data);
        if (redis_node_parse(bytes_str(bracketed), out) < 0)
            return E_FORMAT;
        out->host[0] = '\0';
        return 0;
    }
    if (text.data[0] == '[' || bytes_find(text, bytes_str(":"), 0) == colon - 1)
        return redis_node_parse(text, out);
    snprintf(bracketed, sizeof(bracketed), "[%.*s]%.*s", (int)(colon - 1), (const char *)text.data,
             (int)(text.len_bytes - colon + 1), (const char *)text.data + colon - 1);
    return redis_node_parse(bytes_str(bracketed), out);
}

int redis_redirect_parse(struct bytes error, struct redis_redirect *out)
{
    bool is_ask = bytes_starts_with(error, "ASK ");
    size_t at = is_ask ? 4 : 6, used;

    if (!is_ask && !bytes_starts_with(error, "MOVED "))
        return E_FORMAT;
    used = redis_slot_parse(bytes_of(error.data + at, error.len_bytes - at), &out->slot);
    if (used == 0)
        return E_FORMAT;
    out->is_ask = is_ask;
    return redis_peer_parse(bytes_of(error.data + at + used, error.len_bytes - at - used), &out->node);
}

/* ---- CLUSTER SLOTS: a list of [first, last, [host, port, ...], replicas ...] ---- */

static int redis_slots_item(struct reader *reply, enum resp_kind kind, struct resp_item *out)
{
    size_t used;

    if (resp_item_parse(bytes_of(reply->data + reply->at_bytes, reply->len_bytes - reply->at_bytes), out,
                        &used) < 0 ||
        (out->kind != kind && !(kind == RESP_TEXT && out->kind == RESP_NULL)))
        return E_FORMAT;
    reply->at_bytes += used;
    return 0;
}

static int redis_slots_skip(struct reader *reply, int64_t n)
{
    for (; n > 0; n--) {
        size_t used;

        if (resp_reply_bytes(bytes_of(reply->data + reply->at_bytes, reply->len_bytes - reply->at_bytes),
                             &used) < 0)
            return E_FORMAT;
        reply->at_bytes += used;
    }
    return n == 0 ? 0 : E_FORMAT;
}

/* A server of the list: [host, port, ...].  A host that is null or empty leaves out->host empty. */
static int redis_slots_node(struct reader *reply, struct redis_node *out)
{
    struct resp_item list, host, port;

    if (redis_slots_item(reply, RESP_LIST, &list) < 0 || list.number < 2 ||
        redis_slots_item(reply, RESP_TEXT, &host) < 0 || redis_slots_item(reply, RESP_INTEGER, &port) < 0 ||
        port.number < 1 || port.number > UINT16_MAX || host.text.len_bytes >= sizeof(out->host))
        return E_FORMAT;
    if (host.text.len_bytes > 0)
        memcpy(out->host, host.text.data, host.text.len_bytes);
    out->host[host.text.len_bytes] = '\0';
    if (strlen(out->host) != host.text.len_bytes)
        return E_FORMAT;
    out->port = (uint16_t)port.number;
    return redis_slots_skip(reply, list.number - 2);
}

int redis_slots_parse(struct bytes bytes,
                      void (*on_range)(void *arg, unsigned first, unsigned last,
                                       const struct redis_node *nodes, unsigned n),
                      void *arg)
{
    struct reader reply = reader_of(bytes);
    struct resp_item list;

    if (redis_slots_item(&reply, RESP_LIST, &list) < 0 || list.number > REDIS_MAX_RANGES)
        return E_FORMAT;
    for (int64_t i = 0; i < list.number; i++) {
        struct resp_item range, first, last;
        struct redis_node nodes[REDIS_MAX_COPIES];
        unsigned n = 0;

        if (redis_slots_item(&reply, RESP_LIST, &range) < 0 || range.number < 3 ||
            redis_slots_item(&reply, RESP_INTEGER, &first) < 0 ||
            redis_slots_item(&reply, RESP_INTEGER, &last) < 0 || first.number < 0 ||
            last.number >= REDIS_N_SLOTS || first.number > last.number)
            return E_FORMAT;
        for (; n < REDIS_MAX_COPIES && n < range.number - 2; n++)
            if (redis_slots_node(&reply, &nodes[n]) < 0)
                return E_FORMAT;
        if (redis_slots_skip(&reply, range.number - 2 - n) < 0)
            return E_FORMAT;
        on_range(arg, (unsigned)first.number, (unsigned)last.number, nodes, n);
    }
    return 0;
}
