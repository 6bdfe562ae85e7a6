/* SPDX-License-Identifier: Apache-2.0 */
/* The remote tier on a real Redis server: blocks come back as they were, to whoever has the key; a store that lies,
 * is full, is gone, stands still or wants another password costs a result and no more. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "cache/remote/remote.h"
#include "net/redis/redis_conn.h"
#include "redis_rig.h"

enum { BLOCKS = 64, LAYERS = 3, PIECE = 4000 };

struct desk {
    struct redis_rig redis;
    uint8_t *arena;
    struct kv_remote_opts opts;
    struct kv_remote *remote;
};

static struct block_hash hash_of(uint64_t number)
{
    struct block_hash hash = {{0}};

    memcpy(hash.bytes, &number, sizeof(number));
    return hash;
}

static uint8_t byte_of(uint64_t number, unsigned layer, unsigned at)
{
    return (uint8_t)(number * 31 + layer * 7 + at);
}

static void desk_fill(struct desk *desk, kv_block_id id, uint64_t number)
{
    for (unsigned layer = 0; layer < LAYERS; layer++)
        for (unsigned at = 0; at < PIECE; at++)
            desk->arena[((size_t)layer * BLOCKS + id) * PIECE + at] = byte_of(number, layer, at);
}

static bool desk_is(const struct desk *desk, kv_block_id id, uint64_t number)
{
    for (unsigned layer = 0; layer < LAYERS; layer++)
        for (unsigned at = 0; at < PIECE; at++)
            if (desk->arena[((size_t)layer * BLOCKS + id) * PIECE + at] != byte_of(number, layer, at))
                return false;
    return true;
}

static void desk_open(struct desk *desk)
{
    desk->opts.url = desk->opts.url != NULL ? desk->opts.url : desk->redis.url;
    assert_int_equal(kv_remote_open(&desk->opts, NULL, &desk->remote), 0);
}

/* Ticks until the store's state is this. */
static void desk_await(struct desk *desk, bool is_up)
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

static void desk_init(struct desk *desk, const char *const *more)
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

static void desk_fini(struct desk *desk)
{
    kv_remote_close(desk->remote);
    redis_rig_stop(&desk->redis);
    free(desk->arena);
}

static struct kv_remote_event desk_wait(struct desk *desk)
{
    uint64_t until_ns = clock_now_ns() + 60 * NS_PER_S;
    struct kv_remote_event event;

    while (!kv_remote_poll(desk->remote, &event)) {
        assert_true(clock_now_ns() < until_ns);
        clock_sleep_ns(NS_PER_MS / 10);
    }
    return event;
}

static int desk_write(struct desk *desk, kv_block_id id, uint64_t number)
{
    struct block_hash hash = hash_of(number);
    int rc;

    desk_fill(desk, id, number);
    rc = kv_remote_write(desk->remote, id, &hash);
    return rc < 0 ? rc : desk_wait(desk).result;
}

static int desk_read(struct desk *desk, kv_block_id id, uint64_t number)
{
    struct block_hash hash = hash_of(number);
    int rc = kv_remote_read(desk->remote, id, &hash, UINT64_MAX, NULL);

    return rc < 0 ? rc : desk_wait(desk).result;
}

/* A command of the test's own. */
static void desk_command(struct desk *desk, const char *const *words, struct resp_item *item)
{
    struct redis_url url;
    struct redis_conn_opts opts = {.url = &url, .stall_ns = 10 * NS_PER_S, .max_reply_bytes = 1 << 20};
    static struct redis_conn *conn;

    redis_conn_close(conn); /* of the call before: its reply is not used any more */
    conn = NULL;
    if (words == NULL)
        return;
    assert_int_equal(redis_url_parse(desk->redis.url, NULL, &url), 0);
    assert_int_equal(redis_conn_open(&opts, &url.seeds[0], NULL, &conn), 0);
    assert_int_equal(redis_conn_ask(conn, words, item, NULL), 0);
}

static void name_of(uint64_t number, const struct desk *desk, char out[REMOTE_NAME_BYTES])
{
    struct block_hash hash = hash_of(number);
    struct remote_seal seal;

    assert_int_equal(remote_seal_init(&seal, &desk->opts.arena, desk->opts.key, desk->opts.generation), 0);
    remote_name(&seal, &hash, out);
}

static void blocks_come_back(void **state)
{
    struct desk desk;
    struct block_hash hashes[3] = {hash_of(1), hash_of(9), hash_of(2)};
    struct kv_remote_event event;
    struct kv_remote_counts counts;
    int mark;

    (void)state;
    desk_init(&desk, NULL);
    assert_int_equal(desk_write(&desk, 0, 1), 0);
    assert_int_equal(desk_write(&desk, 1, 2), 0);
    assert_int_equal(desk_write(&desk, 0, 1), E_EXISTS);
    assert_int_equal(kv_remote_ask(desk.remote, hashes, 3, &mark), 0);
    event = desk_wait(&desk);
    assert_int_equal(event.kind, KV_REMOTE_ASKED);
    assert_true(event.user == &mark && event.n == 3 && event.found[0] && !event.found[1] && event.found[2]);
    /* Another worker, after this one is gone. */
    kv_remote_close(desk.remote);
    desk_open(&desk);
    desk_await(&desk, true);
    assert_int_equal(desk_read(&desk, 5, 2), 0);
    assert_true(desk_is(&desk, 5, 2));
    assert_int_equal(desk_read(&desk, 6, 3), E_NOT_FOUND);
    kv_remote_counts(desk.remote, &counts);
    assert_true(counts.n_read == 1 && counts.n_missing == 1 && counts.n_damaged == 0 && counts.is_up);
    desk_fini(&desk);
}

static void values_live_after_their_last_use(void **state)
{
    char name[REMOTE_NAME_BYTES];
    struct resp_item item;
    struct desk desk;

    (void)state;
    desk_init(&desk, NULL);
    assert_int_equal(desk_write(&desk, 0, 1), 0);
    name_of(1, &desk, name);
    desk_command(&desk, (const char *const[]){"TTL", name, NULL}, &item);
    assert_true(item.kind == RESP_INTEGER && item.number > 0 && item.number <= 60);
    desk_command(&desk, (const char *const[]){"EXPIRE", name, "30", NULL}, &item);
    assert_int_equal(desk_read(&desk, 1, 1), 0);
    desk_command(&desk, (const char *const[]){"TTL", name, NULL}, &item);
    assert_true(item.number > 30);
    desk_command(&desk, NULL, NULL);
    desk_fini(&desk);
}

static void many_at_once(void **state)
{
    enum { ROUNDS = 20 };
    struct desk desk;
    unsigned n_good = 0;

    (void)state;
    desk_init(&desk, NULL);
    for (uint64_t i = 0; i < BLOCKS / 2; i++) {
        struct block_hash hash = hash_of(i);

        desk_fill(&desk, (kv_block_id)i, i);
        assert_int_equal(kv_remote_write(desk.remote, (kv_block_id)i, &hash), 0);
    }
    for (unsigned i = 0; i < BLOCKS / 2; i++)
        assert_int_equal(desk_wait(&desk).result, 0);
    for (unsigned round = 0; round < ROUNDS; round++) {
        memset(desk.arena, 0, (size_t)LAYERS * BLOCKS * PIECE);
        for (uint64_t i = 0; i < BLOCKS / 2; i++) {
            struct block_hash hash = hash_of(i);

            assert_int_equal(
                kv_remote_read(desk.remote, (kv_block_id)(BLOCKS / 2 + i), &hash, UINT64_MAX, NULL), 0);
        }
        for (unsigned i = 0; i < BLOCKS / 2; i++)
            assert_int_equal(desk_wait(&desk).result, 0);
        for (uint64_t i = 0; i < BLOCKS / 2; i++)
            n_good += desk_is(&desk, (kv_block_id)(BLOCKS / 2 + i), i);
    }
    assert_int_equal(n_good, ROUNDS * BLOCKS / 2);
    desk_fini(&desk);
}

/* A value that is cut, exchanged, foreign or rubbish is never a block, and makes room for a right one. */
static void wrong_values_are_not_believed(void **state)
{
    char one[REMOTE_NAME_BYTES], two[REMOTE_NAME_BYTES];
    struct kv_remote_counts counts;
    struct resp_item item;
    struct desk desk;

    (void)state;
    desk_init(&desk, NULL);
    name_of(1, &desk, one);
    name_of(2, &desk, two);
    for (unsigned way = 0; way < 4; way++) {
        assert_int_equal(desk_write(&desk, 0, 1), 0);
        assert_int_equal(desk_write(&desk, 1, 2), way == 0 ? 0 : E_EXISTS);
        if (way == 0)
            desk_command(&desk, (const char *const[]){"COPY", two, one, "REPLACE", NULL}, &item);
        else if (way == 1)
            desk_command(&desk, (const char *const[]){"SETRANGE", one, "500", "x", NULL}, &item);
        else if (way == 2)
            desk_command(&desk, (const char *const[]){"APPEND", one, "x", NULL}, &item);
        else
            desk_command(&desk, (const char *const[]){"SET", one, "", NULL}, &item);
        assert_int_not_equal(item.kind, RESP_ERROR);
        assert_int_equal(desk_read(&desk, 5, 1), E_AUTH);
        desk_command(&desk, (const char *const[]){"EXISTS", one, NULL}, &item);
        assert_int_equal(item.number, 0);
        assert_int_equal(desk_read(&desk, 5, 2), 0);
    }
    kv_remote_counts(desk.remote, &counts);
    assert_true(counts.n_damaged == 4 && counts.is_up);
    desk_command(&desk, NULL, NULL);
    desk_fini(&desk);
}

/* A store whose values do not open is left alone. */
static void a_lying_store_is_given_up(void **state)
{
    char name[REMOTE_NAME_BYTES];
    struct resp_item item;
    struct desk desk;
    int rc = E_AUTH;

    (void)state;
    desk_init(&desk, NULL);
    for (uint64_t i = 0; i < 20 && rc == E_AUTH; i++) {
        name_of(i, &desk, name);
        desk_command(&desk, (const char *const[]){"SET", name, "batonkr1 and nothing else", NULL}, &item);
        rc = desk_read(&desk, 5, i);
    }
    assert_int_equal(rc, E_CLOSED);
    desk_command(&desk, NULL, NULL);
    desk_fini(&desk);
}

static void a_full_store_is_still_read(void **state)
{
    struct kv_remote_counts counts;
    struct resp_item item;
    struct desk desk;

    (void)state;
    desk_init(&desk, (const char *const[]){"--maxmemory-policy", "noeviction", NULL});
    assert_int_equal(desk_write(&desk, 0, 1), 0);
    desk_command(&desk, (const char *const[]){"CONFIG", "SET", "maxmemory", "1", NULL}, &item);
    assert_int_equal(desk_write(&desk, 1, 2), E_FULL);
    assert_int_equal(desk_write(&desk, 1, 2), E_FULL); /* the second is not sent */
    assert_false(kv_remote_takes_writes(desk.remote));
    assert_int_equal(desk_read(&desk, 5, 1), 0);
    assert_true(desk_is(&desk, 5, 1));
    kv_remote_counts(desk.remote, &counts);
    assert_true(counts.is_full && counts.is_up && counts.n_write_failed == 1);
    desk_command(&desk, NULL, NULL);
    desk_fini(&desk);
}

static void a_killed_store_comes_back(void **state)
{
    uint16_t port;
    struct desk desk;

    (void)state;
    desk_init(&desk, NULL);
    assert_int_equal(desk_write(&desk, 0, 1), 0);
    port = desk.redis.port;
    redis_rig_stop(&desk.redis);
    assert_true(desk_read(&desk, 5, 1) < 0);
    assert_false(kv_remote_is_up(desk.remote));
    for (unsigned i = 0; i < 1000; i++) /* costs nothing while it is away */
        assert_int_equal(desk_read(&desk, 5, 1), E_CLOSED);
    redis_rig_start(&desk.redis, port, NULL);
    desk_await(&desk, true);
    assert_int_equal(desk_read(&desk, 5, 1), E_NOT_FOUND);
    assert_int_equal(desk_write(&desk, 0, 1), 0);
    desk_fini(&desk);
}

static void a_store_that_stands_still_is_given_up(void **state)
{
    struct block_hash hash = hash_of(1);
    struct desk desk;

    (void)state;
    desk_init(&desk, NULL);
    kill(desk.redis.pid, SIGSTOP);
    assert_int_equal(kv_remote_ask(desk.remote, &hash, 1, NULL), 0);
    assert_int_equal(desk_wait(&desk).result, E_TIMEOUT);
    assert_int_equal(kv_remote_ask(desk.remote, &hash, 1, NULL), E_CLOSED);
    kill(desk.redis.pid, SIGCONT);
    desk_await(&desk, true);
    assert_int_equal(desk_write(&desk, 0, 1), 0);
    /* Who waits gives up earlier than the thread: three in a row are enough. */
    kv_remote_late(desk.remote);
    kv_remote_late(desk.remote);
    assert_true(kv_remote_is_up(desk.remote));
    kv_remote_late(desk.remote);
    assert_false(kv_remote_is_up(desk.remote));
    desk_fini(&desk);
}

static void a_read_that_is_too_late_is_not_sent(void **state)
{
    struct block_hash hash = hash_of(1);
    struct desk desk;

    (void)state;
    desk_init(&desk, NULL);
    assert_int_equal(desk_write(&desk, 0, 1), 0);
    assert_int_equal(kv_remote_read(desk.remote, 5, &hash, 1, NULL), 0);
    assert_int_equal(desk_wait(&desk).result, E_TIMEOUT);
    assert_true(kv_remote_is_up(desk.remote));
    desk_fini(&desk);
}

static void passwords_are_asked_for(void **state)
{
    struct kv_remote_event event;
    struct desk desk;

    (void)state;
    desk_init(&desk, NULL);
    kv_remote_close(desk.remote);
    redis_rig_stop(&desk.redis);
    redis_rig_start(
        &desk.redis, 0,
        (const char *const[]){"--user default off", "--user baton on >right ~baton:* +@all -@admin", NULL});
    desk.opts.url = desk.redis.url;
    for (unsigned i = 0; i < 3; i++) {
        desk.opts.login = (const char *const[]){"", "baton:wrong", "baton:right"}[i];
        desk_open(&desk);
        kv_remote_tick(desk.remote, clock_now_ns());
        for (unsigned n = 0; n < 200 && !kv_remote_is_up(desk.remote); n++) {
            assert_false(kv_remote_poll(desk.remote, &event));
            clock_sleep_ns(i < 2 ? NS_PER_MS : 10 * NS_PER_MS);
        }
        assert_int_equal(kv_remote_is_up(desk.remote), i == 2);
        assert_int_equal(desk_write(&desk, 0, 1), i == 2 ? 0 : E_CLOSED);
        kv_remote_close(desk.remote);
    }
    desk.remote = NULL;
    desk_fini(&desk);
}

static void bad_addresses_are_refused(void **state)
{
    struct kv_remote *remote;
    struct kv_remote_opts opts = {.url = "http://store", .n_readers = 1, .generation = ""};

    (void)state;
    assert_int_equal(kv_remote_open(&opts, NULL, &remote), E_FORMAT);
    opts.url = "rediss://store";
    opts.ca_path = "/does/not/exist";
    assert_int_equal(kv_remote_open(&opts, NULL, &remote), E_IO);
    opts.url = "redis://store";
    opts.n_readers = 0;
    assert_int_equal(kv_remote_open(&opts, NULL, &remote), E_INVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_come_back),
        cmocka_unit_test(values_live_after_their_last_use),
        cmocka_unit_test(many_at_once),
        cmocka_unit_test(wrong_values_are_not_believed),
        cmocka_unit_test(a_lying_store_is_given_up),
        cmocka_unit_test(a_full_store_is_still_read),
        cmocka_unit_test(a_killed_store_comes_back),
        cmocka_unit_test(a_store_that_stands_still_is_given_up),
        cmocka_unit_test(a_read_that_is_too_late_is_not_sent),
        cmocka_unit_test(passwords_are_asked_for),
        cmocka_unit_test(bad_addresses_are_refused),
    };

    log_setup("test_remote", LOG_LEVEL_ERROR, LOG_FORMAT_TEXT);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
