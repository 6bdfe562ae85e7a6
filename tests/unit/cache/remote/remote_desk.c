/* SPDX-License-Identifier: Apache-2.0 */
/* See remote_desk.h. */
#include "remote_desk.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/err.h"
#include "net/redis/redis_conn.h"

struct block_hash desk_hash(uint64_t number)
{
    struct block_hash hash = {{0}};

    memcpy(hash.bytes, &number, sizeof(number));
    return hash;
}

static uint8_t desk_byte_of(uint64_t number, unsigned layer, unsigned at)
{
    return (uint8_t)(number * 31 + layer * 7 + at);
}

void desk_fill(struct desk *desk, kv_block_id id, uint64_t number)
{
    for (unsigned layer = 0; layer < LAYERS; layer++)
        for (unsigned at = 0; at < PIECE; at++)
            desk->arena[((size_t)layer * BLOCKS + id) * PIECE + at] = desk_byte_of(number, layer, at);
}

bool desk_is(const struct desk *desk, kv_block_id id, uint64_t number)
{
    for (unsigned layer = 0; layer < LAYERS; layer++)
        for (unsigned at = 0; at < PIECE; at++)
            if (desk->arena[((size_t)layer * BLOCKS + id) * PIECE + at] != desk_byte_of(number, layer, at))
                return false;
    return true;
}

void desk_open(struct desk *desk)
{
    desk->opts.url = desk->opts.url != NULL ? desk->opts.url : desk->redis.url;
    assert_int_equal(kv_remote_open(&desk->opts, NULL, &desk->remote), 0);
}

/* Ticks until the store has this state. */
void desk_await(struct desk *desk, bool is_up)
{
    uint64_t until_ns = clock_now_ns() + 60 * NS_PER_S;
    struct kv_remote_event event;

    while (kv_remote_is_up(desk->remote) != is_up) {
        assert_true(clock_now_ns() < until_ns);
        kv_remote_tick(desk->remote, clock_now_ns());
        assert_false(kv_remote_poll(desk->remote, &event));
        clock_sleep_ns(NS_PER_MS);
    }
}

void desk_init(struct desk *desk, const char *const *more)
{
    *desk = (struct desk){.arena = calloc(LAYERS * BLOCKS, PIECE)};
    if (redis_rig_can())
        redis_rig_start(&desk->redis, 0, more);
    else
        skip();
    desk->opts = (struct kv_remote_opts){.lifetime_ns = 60 * NS_PER_S,
                                         .n_readers = 2,
                                         .arena = {desk->arena, BLOCKS, LAYERS, PIECE},
                                         .key = {42},
                                         .generation = "model layout 1"};
    desk_open(desk);
    desk_await(desk, true);
}

void desk_fini(struct desk *desk)
{
    kv_remote_close(desk->remote);
    redis_rig_stop(&desk->redis);
    free(desk->arena);
}

struct kv_remote_event desk_wait(struct desk *desk)
{
    uint64_t until_ns = clock_now_ns() + 60 * NS_PER_S;
    struct kv_remote_event event;

    while (!kv_remote_poll(desk->remote, &event)) {
        assert_true(clock_now_ns() < until_ns);
        clock_sleep_ns(NS_PER_MS / 10);
    }
    return event;
}

int desk_send_write(struct desk *desk, kv_block_id id, uint64_t number)
{
    struct block_hash hash = desk_hash(number);

    return kv_remote_write(desk->remote, &(struct kv_remote_part){.n = 1, .ids = &id, .hashes = &hash});
}

int desk_send_read(struct desk *desk, kv_block_id id, uint64_t number, uint64_t until_ns)
{
    struct block_hash hash = desk_hash(number);

    return kv_remote_read(desk->remote,
                          &(struct kv_remote_part){.n = 1, .ids = &id, .hashes = &hash, .name = hash},
                          until_ns, NULL);
}

int desk_write(struct desk *desk, kv_block_id id, uint64_t number)
{
    int rc;

    desk_fill(desk, id, number);
    rc = desk_send_write(desk, id, number);
    return rc < 0 ? rc : desk_wait(desk).result;
}

int desk_read(struct desk *desk, kv_block_id id, uint64_t number)
{
    int rc = desk_send_read(desk, id, number, UINT64_MAX);

    return rc < 0 ? rc : desk_wait(desk).result;
}

/* Writes blocks `from` to `to` of a chain, each from the id of the same number.  Every write must have this
 * result. */
void desk_write_run(struct desk *desk, uint64_t from, uint64_t to, int result)
{
    struct block_hash hashes[REMOTE_RUN_BLOCKS] = {{{0}}};
    kv_block_id ids[REMOTE_RUN_BLOCKS];
    const struct kv_remote_part part = {.n = (uint32_t)(to - from), .ids = ids, .hashes = hashes};

    for (uint64_t at = from; at < to; at++) {
        ids[at - from] = (kv_block_id)at;
        hashes[at - from] = desk_hash(at);
        desk_fill(desk, (kv_block_id)at, at);
    }
    assert_int_equal(kv_remote_write(desk->remote, &part), 0);
    for (uint32_t i = part.n; i-- > 0;) {
        struct kv_remote_event event = desk_wait(desk);

        assert_true(event.kind == KV_REMOTE_WRITTEN && event.at == i && event.id == ids[i]);
        assert_int_equal(event.result, result);
    }
}

/* Reads these blocks from the value that ends with block `end`, into ids from BLOCKS / 2 on. */
void desk_read_run(struct desk *desk, uint64_t from, uint64_t to, uint64_t end, int result)
{
    struct block_hash hashes[REMOTE_RUN_BLOCKS] = {{{0}}};
    kv_block_id ids[REMOTE_RUN_BLOCKS];
    const struct kv_remote_part part = {.n = (uint32_t)(to - from),
                                        .ids = ids,
                                        .hashes = hashes,
                                        .name = desk_hash(end),
                                        .n_after = (uint32_t)(end + 1 - to)};
    int mark;

    for (uint64_t at = from; at < to; at++) {
        ids[at - from] = (kv_block_id)(BLOCKS / 2 + at);
        hashes[at - from] = desk_hash(at);
        desk_fill(desk, (kv_block_id)(BLOCKS / 2 + at), at + 1000);
    }
    assert_int_equal(kv_remote_read(desk->remote, &part, UINT64_MAX, &mark), 0);
    for (uint32_t i = part.n; i-- > 0;) {
        struct kv_remote_event event = desk_wait(desk);

        assert_true(event.kind == KV_REMOTE_READ && event.at == i && event.user == &mark);
        assert_int_equal(event.result, result);
        assert_int_equal(desk_is(desk, event.id, from + i), result == 0);
    }
}

/* Looks up the first n blocks of the chain.  ends[i]: the last block of the value that must have block i. */
void desk_expect_ends(struct desk *desk, const uint32_t *ends, uint32_t n)
{
    struct block_hash hashes[BLOCKS] = {{{0}}};
    struct kv_remote_event event;

    for (uint32_t i = 0; i < n; i++)
        hashes[i] = desk_hash(i);
    assert_int_equal(kv_remote_ask(desk->remote, hashes, n, NULL), 0);
    event = desk_wait(desk);
    assert_true(event.kind == KV_REMOTE_ASKED && event.result == 0 && event.n == n);
    for (uint32_t i = 0; i < n; i++)
        assert_int_equal(event.ends[i], ends[i]);
}

/* Sends a command of the test itself.  words NULL: only closes the connection. */
void desk_command(struct desk *desk, const char *const *words, struct resp_item *item)
{
    struct redis_url url;
    struct redis_conn_opts opts = {.url = &url, .stall_ns = 10 * NS_PER_S, .max_reply_bytes = 1 << 20};
    static struct redis_conn *conn;

    redis_conn_close(conn); /* of the previous call, whose reply is no longer used */
    conn = NULL;
    if (words == NULL)
        return;
    assert_int_equal(redis_url_parse(desk->redis.url, NULL, &url), 0);
    assert_int_equal(redis_conn_open(&opts, &url.seeds[0], NULL, &conn), 0);
    assert_int_equal(redis_conn_ask(conn, words, item, NULL), 0);
}

void desk_name(uint64_t number, const struct desk *desk, char out[REMOTE_NAME_BYTES])
{
    struct block_hash hash = desk_hash(number);
    struct remote_seal seal;

    assert_int_equal(remote_seal_init(&seal, &desk->opts.arena, desk->opts.key, desk->opts.generation), 0);
    remote_name(&seal, &hash, out);
}
