/* SPDX-License-Identifier: Apache-2.0 */
/* The remote tier on a real Redis server.  Blocks come back unchanged to every worker that has the key.  A
 * store that lies, is full, stops, hangs or wants another password costs results, and nothing else. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "cache/remote/store.h"
#include "remote_desk.h"

static void blocks_come_back(void **state)
{
    struct desk desk;
    struct block_hash hashes[3] = {desk_hash(1), desk_hash(9), desk_hash(2)};
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
    assert_true(event.user == &mark && event.n == 3 && event.ends[0] == 0 &&
                event.ends[1] == REMOTE_NOT_THERE && event.ends[2] == 2);
    /* Another worker, after the first one has ended. */
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
    desk_name(1, &desk, name);
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
        desk_fill(&desk, (kv_block_id)i, i);
        assert_int_equal(desk_send_write(&desk, (kv_block_id)i, i), 0);
    }
    for (unsigned i = 0; i < BLOCKS / 2; i++)
        assert_int_equal(desk_wait(&desk).result, 0);
    for (unsigned round = 0; round < ROUNDS; round++) {
        memset(desk.arena, 0, (size_t)LAYERS * BLOCKS * PIECE);
        for (uint64_t i = 0; i < BLOCKS / 2; i++)
            assert_int_equal(desk_send_read(&desk, (kv_block_id)(BLOCKS / 2 + i), i, UINT64_MAX), 0);
        for (unsigned i = 0; i < BLOCKS / 2; i++)
            assert_int_equal(desk_wait(&desk).result, 0);
        for (uint64_t i = 0; i < BLOCKS / 2; i++)
            n_good += desk_is(&desk, (kv_block_id)(BLOCKS / 2 + i), i);
    }
    assert_int_equal(n_good, ROUNDS * BLOCKS / 2);
    desk_fini(&desk);
}

/* A value that is cut, exchanged, foreign or random never becomes a block, and the next write replaces it. */
static void wrong_values_are_not_believed(void **state)
{
    char one[REMOTE_NAME_BYTES], two[REMOTE_NAME_BYTES];
    struct kv_remote_counts counts;
    struct resp_item item;
    struct desk desk;

    (void)state;
    desk_init(&desk, NULL);
    desk_name(1, &desk, one);
    desk_name(2, &desk, two);
    for (unsigned way = 0; way < 4; way++) {
        assert_int_equal(desk_write(&desk, 0, 1), 0);
        assert_int_equal(desk_write(&desk, 1, 2), way == 0 ? 0 : E_EXISTS);
        if (way == 0)
            desk_command(&desk, (const char *const[]){"COPY", two, one, "REPLACE", NULL}, &item);
        else if (way == 1)
            desk_command(&desk, (const char *const[]){"SETRANGE", one, "500", "x", NULL}, &item);
        else if (way == 2)
            desk_command(&desk, (const char *const[]){"SET", one, "x", NULL}, &item);
        else
            desk_command(&desk, (const char *const[]){"SET", one, "batonkr1 and nothing else", NULL}, &item);
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

/* The tier stops using a store whose values do not open. */
static void a_lying_store_is_given_up(void **state)
{
    char name[REMOTE_NAME_BYTES];
    struct resp_item item;
    struct desk desk;
    int rc = E_AUTH;

    (void)state;
    desk_init(&desk, NULL);
    for (uint64_t i = 0; i < 20 && rc == E_AUTH; i++) {
        desk_name(i, &desk, name);
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
    for (unsigned i = 0; i < 1000; i++) /* refused at once while the store is down */
        assert_int_equal(desk_read(&desk, 5, 1), E_CLOSED);
    redis_rig_start(&desk.redis, port, NULL);
    desk_await(&desk, true);
    assert_int_equal(desk_read(&desk, 5, 1), E_NOT_FOUND);
    assert_int_equal(desk_write(&desk, 0, 1), 0);
    desk_fini(&desk);
}

static void a_store_that_stands_still_is_given_up(void **state)
{
    struct block_hash hash = desk_hash(1);
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
    /* Callers give up before the thread does: three late calls in a row count as a failure of the store. */
    kv_remote_late(desk.remote);
    kv_remote_late(desk.remote);
    assert_true(kv_remote_is_up(desk.remote));
    kv_remote_late(desk.remote);
    assert_false(kv_remote_is_up(desk.remote));
    desk_fini(&desk);
}

static void a_read_that_is_too_late_is_not_sent(void **state)
{
    struct desk desk;

    (void)state;
    desk_init(&desk, NULL);
    assert_int_equal(desk_write(&desk, 0, 1), 0);
    assert_int_equal(desk_send_read(&desk, 5, 1, 1), 0);
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

    struct fault fault;

    (void)state;
    assert_int_equal(kv_remote_open(&opts, NULL, &remote), E_FORMAT);
    assert_int_equal(store_url_check(opts.url, &fault), E_FORMAT);
    assert_string_equal(fault.text, "not redis://, rediss://, redis+cluster://, rediss+cluster:// or s3://");
    opts.url = "rediss://store";
    opts.ca_path = "/does/not/exist";
    assert_int_equal(kv_remote_open(&opts, NULL, &remote), E_IO);
    opts.url = "redis://store";
    opts.n_readers = 0;
    assert_int_equal(kv_remote_open(&opts, NULL, &remote), E_INVAL);
}

/* Workers with the same public address count as readers of the same store. */
static void public_addresses_lack_the_login_alone(void **state)
{
    static const char *const pairs[][2] = {
        {"redis://u:p@ss@h:1/2", "redis://h:1/2"},
        {"redis+cluster://u:p@a/?replicas=yes", "redis+cluster://a"},
        {"redis://h", "redis://h"},
        {"s3://kv/of@home?endpoint=http://h:9000", "s3://kv/of@home?endpoint=http://h:9000"},
        {"unknown://u:p@h", "unknown://h"},
    };
    char text[128];

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(pairs); i++) {
        store_url_public(pairs[i][0], text, sizeof(text));
        assert_string_equal(text, pairs[i][1]);
    }
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
        cmocka_unit_test(public_addresses_lack_the_login_alone),
    };

    log_setup("test_remote", LOG_LEVEL_ERROR, LOG_FORMAT_TEXT);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
