/* SPDX-License-Identifier: Apache-2.0 */
/* Values of several blocks on a real Redis server: read whole, in part or cut, and beside values of other
 * workers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "remote_desk.h"

/* A run is one value.  It is found by its last block, and read whole or in part. */
static void runs_are_single_values(void **state)
{
    static const uint32_t none[] = {REMOTE_NOT_THERE, REMOTE_NOT_THERE},
                          ends[] = {4, 4, 4, 4, 4, 6, 6, REMOTE_NOT_THERE};
    struct kv_remote_counts counts;
    struct resp_item item;
    struct desk desk;

    (void)state;
    desk_init(&desk, NULL);
    desk_write_run(&desk, 0, 5, 0);
    desk_write_run(&desk, 5, 7, 0);
    desk_command(&desk, (const char *const[]){"DBSIZE", NULL}, &item);
    assert_int_equal(item.number, 2);
    desk_expect_ends(&desk, ends, 8);
    desk_expect_ends(&desk, none, 2); /* a prompt that shares two blocks does not find them */
    desk_read_run(&desk, 0, 5, 4, 0);
    desk_read_run(&desk, 2, 4, 4, 0);
    desk_read_run(&desk, 4, 5, 4, 0);
    desk_read_run(&desk, 0, 1, 4, 0);
    desk_read_run(&desk, 5, 7, 6, 0);
    desk_read_run(&desk, 0, 5, 9, E_NOT_FOUND);
    kv_remote_counts(desk.remote, &counts);
    assert_true(counts.n_written == 7 && counts.n_read == 11 && counts.n_missing == 5 &&
                counts.n_damaged == 0);
    desk_command(&desk, NULL, NULL);
    desk_fini(&desk);
}

/* A writer leaves out the blocks at both ends of its run that another worker wrote. */
static void only_new_blocks_are_written(void **state)
{
    static const uint32_t ends[] = {1, 1, 4, 4, 4, 6, 6};
    struct block_hash hashes[7];
    kv_block_id ids[7];
    struct kv_remote_counts counts;
    struct resp_item item;
    struct desk desk;

    (void)state;
    desk_init(&desk, NULL);
    desk_write_run(&desk, 0, 2, 0);
    desk_write_run(&desk, 5, 7, 0);
    desk_write_run(&desk, 0, 2, E_EXISTS);
    desk_write_run(&desk, 5, 7, E_EXISTS);
    for (kv_block_id id = 0; id < 7; id++) {
        ids[id] = id;
        hashes[id] = desk_hash(id);
        desk_fill(&desk, id, id);
    }
    assert_int_equal(
        kv_remote_write(desk.remote, &(struct kv_remote_part){.n = 7, .ids = ids, .hashes = hashes}), 0);
    for (kv_block_id id = 7; id-- > 0;)
        assert_int_equal(desk_wait(&desk).result, id < 2 || id >= 5 ? E_EXISTS : 0);
    desk_command(&desk, (const char *const[]){"DBSIZE", NULL}, &item);
    assert_int_equal(item.number, 3);
    desk_expect_ends(&desk, ends, 7);
    desk_read_run(&desk, 2, 5, 4, 0);
    kv_remote_counts(desk.remote, &counts);
    assert_true(counts.n_written == 7 && counts.n_existed == 8);
    desk_command(&desk, NULL, NULL);
    desk_fini(&desk);
}

/* The last blocks of a cut value open.  Reading a block that is not whole fails, and removes the value. */
static void a_cut_run_has_its_last_blocks(void **state)
{
    static const uint32_t ends[] = {REMOTE_NOT_THERE, REMOTE_NOT_THERE, 4, 4, 4};
    char name[REMOTE_NAME_BYTES];
    struct kv_remote_counts counts;
    struct resp_item item;
    struct desk desk;
    int record_bytes;

    (void)state;
    desk_init(&desk, NULL);
    desk_name(4, &desk, name);
    desk_write_run(&desk, 0, 5, 0);
    desk_command(&desk, (const char *const[]){"STRLEN", name, NULL}, &item);
    record_bytes = (int)item.number / 5;
    for (unsigned way = 0; way < 2; way++) {
        char script[200];

        snprintf(script, sizeof(script),
                 "return redis.call('set', KEYS[1], redis.call('getrange', KEYS[1], 0, %d))",
                 3 * record_bytes - 1 - (int)way);
        desk_command(&desk, (const char *const[]){"EVAL", script, "1", name, NULL}, &item);
        assert_int_not_equal(item.kind, RESP_ERROR);
        if (way == 0) {
            desk_expect_ends(&desk, ends, 5);
            desk_read_run(&desk, 2, 5, 4, 0);
        }
    }
    desk_read_run(&desk, 2, 3, 4, E_AUTH); /* one byte is missing */
    desk_command(&desk, (const char *const[]){"EXISTS", name, NULL}, &item);
    assert_int_equal(item.number, 0);
    kv_remote_counts(desk.remote, &counts);
    assert_true(counts.n_read == 3 && counts.n_damaged == 1 && counts.is_up);
    desk_command(&desk, NULL, NULL);
    desk_fini(&desk);
}

/* A write replaces values that no lookup finds. */
static void what_is_in_the_way_is_removed(void **state)
{
    char name[REMOTE_NAME_BYTES];
    struct resp_item item;
    struct desk desk;

    (void)state;
    desk_init(&desk, NULL);
    desk_name(1, &desk, name);
    for (unsigned way = 0; way < 2; way++) {
        static const uint32_t none[] = {REMOTE_NOT_THERE, REMOTE_NOT_THERE};

        desk_command(&desk, (const char *const[]){"DEL", name, NULL}, &item);
        desk_command(
            &desk, (const char *const[]){way == 0 ? "SET" : "LPUSH", name, way == 0 ? "" : "x", NULL}, &item);
        desk_expect_ends(&desk, none, 2);
        assert_int_equal(desk_read(&desk, 5, 1), E_NOT_FOUND);
        assert_int_equal(desk_write(&desk, 0, 1), E_AGAIN);
        assert_int_equal(desk_write(&desk, 0, 1), 0);
        assert_int_equal(desk_read(&desk, 5, 1), 0);
        assert_true(kv_remote_is_up(desk.remote));
    }
    desk_command(&desk, NULL, NULL);
    desk_fini(&desk);
}

static void long_parts_are_refused(void **state)
{
    struct block_hash hashes[REMOTE_RUN_BLOCKS + 1] = {{{0}}};
    kv_block_id ids[REMOTE_RUN_BLOCKS + 1] = {0};
    struct kv_remote_part part = {.n = REMOTE_RUN_BLOCKS + 1, .ids = ids, .hashes = hashes};
    struct desk desk;

    (void)state;
    desk_init(&desk, NULL);
    assert_int_equal(kv_remote_run_blocks(desk.remote), REMOTE_RUN_BLOCKS);
    assert_int_equal(kv_remote_write(desk.remote, &part), E_LIMIT);
    assert_int_equal(kv_remote_read(desk.remote, &part, UINT64_MAX, NULL), E_LIMIT);
    part.n = 2;
    part.n_after = REMOTE_RUN_BLOCKS - 1;
    assert_int_equal(kv_remote_read(desk.remote, &part, UINT64_MAX, NULL), E_LIMIT);
    part.n = 0;
    assert_int_equal(kv_remote_write(desk.remote, &part), E_LIMIT);
    desk_fini(&desk);
}

/* The tier never reads bytes after the last record. */
static void more_bytes_do_no_harm(void **state)
{
    static const uint32_t ends[] = {2, 2, 2};
    char name[REMOTE_NAME_BYTES];
    struct resp_item item;
    struct desk desk;

    (void)state;
    desk_init(&desk, NULL);
    desk_write_run(&desk, 0, 3, 0);
    desk_name(2, &desk, name);
    desk_command(&desk, (const char *const[]){"APPEND", name, "x", NULL}, &item);
    desk_expect_ends(&desk, ends, 3);
    desk_read_run(&desk, 0, 3, 2, 0);
    desk_command(&desk, NULL, NULL);
    desk_fini(&desk);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_are_single_values),        cmocka_unit_test(only_new_blocks_are_written),
        cmocka_unit_test(a_cut_run_has_its_last_blocks), cmocka_unit_test(what_is_in_the_way_is_removed),
        cmocka_unit_test(long_parts_are_refused),        cmocka_unit_test(more_bytes_do_no_harm),
    };

    log_setup("test_remote_run", LOG_LEVEL_ERROR, LOG_FORMAT_TEXT);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
