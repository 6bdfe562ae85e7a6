/* SPDX-License-Identifier: Apache-2.0 */
/* Block events over a channel that loses, repeats and truncates messages.  A live reader has exactly the
 * writer's state at that number.  In the end every reader is live. */
#include "tests/unit/check.h"

#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "cache/prefix/block_events.h"

#define N_BLOCKS   40
#define N_HISTORY  4000
#define MAX_MAIL   64
#define MAX_PART   8
#define MS         UINT64_C(1000000)
#define REFRESH_NS (5000 * MS)

struct mail {
    struct block_part part;
    struct block_event events[N_BLOCKS * 2];
};

static struct rng rng;
static uint8_t tiers[N_BLOCKS];                  /* the writer's state */
static uint8_t history[N_HISTORY + 1][N_BLOCKS]; /* after event i */
static uint8_t known[N_BLOCKS];                  /* the reader's state */
static struct block_log block_log;
static struct block_follower follower;
static struct mail mail[MAX_MAIL];
static uint32_t n_mail, n_asked;
static uint64_t n_live, n_missed;

static struct block_hash hash_of(uint32_t block)
{
    struct block_hash hash = {{0}};

    memcpy(hash.bytes, &block, sizeof(block));
    return hash;
}

static uint32_t block_of(const struct block_hash *hash)
{
    uint32_t block;

    memcpy(&block, hash->bytes, sizeof(block));
    return block;
}

static void change_one(void)
{
    uint32_t block = (uint32_t)rng_below(&rng, N_BLOCKS);
    struct block_hash hash = hash_of(block);

    if (block_log_next(&block_log) > N_HISTORY)
        return;
    tiers[block] = (uint8_t)rng_below(&rng, BLOCK_ON_DISK + 1);
    block_log_add(&block_log, &hash, (enum block_tier)tiers[block]);
    memcpy(history[block_log_next(&block_log) - 1], tiers, sizeof(tiers));
}

static void post(const struct block_part *part, const struct block_event *events)
{
    if (n_mail == MAX_MAIL || part->n_events > N_BLOCKS * 2)
        return; /* lost */
    mail[n_mail].part = *part;
    if (part->n_events > 0)
        memcpy(mail[n_mail].events, events, part->n_events * sizeof(*events));
    n_mail++;
}

static void flush(bool is_lossy)
{
    struct block_part part = {0};
    struct block_event *events = block_log_take(&block_log, &part.n_events, &part.first_number);

    if (events != NULL && !(is_lossy && rng_below(&rng, 10) == 0))
        post(&part, events);
    if (events != NULL && is_lossy && rng_below(&rng, 10) == 0)
        post(&part, events); /* sent twice */
    free(events);
}

static void answer(bool is_lossy)
{
    struct block_event events[N_BLOCKS];
    struct block_part part = {.is_snapshot = true};
    uint32_t n = 0, from = 0;

    n_asked--;
    flush(is_lossy);
    part.first_number = block_log_next(&block_log);
    for (uint32_t block = 0; block < N_BLOCKS; block++)
        if (tiers[block] != BLOCK_GONE)
            events[n++] = (struct block_event){.hash = hash_of(block), .tier = tiers[block]};
    do {
        part.n_events = n - from < MAX_PART ? n - from : MAX_PART;
        part.is_last = from + part.n_events == n;
        if (!(is_lossy && rng_below(&rng, 12) == 0))
            post(&part, events + from);
        from += part.n_events;
        part.part++;
    } while (from < n);
}

static void read_one(uint64_t now_ns)
{
    struct mail it;

    if (n_mail == 0)
        return;
    it = mail[0];
    memmove(mail, mail + 1, --n_mail * sizeof(mail[0]));
    switch (block_follower_feed(&follower, &it.part, now_ns)) {
    case FOLLOW_DROP:
        return;
    case FOLLOW_ASK:
        n_asked++;
        n_missed++;
        return;
    case FOLLOW_REPLACE:
        memset(known, BLOCK_GONE, sizeof(known));
        break;
    case FOLLOW_APPLY:
        break;
    }
    for (uint32_t i = 0; i < it.part.n_events; i++)
        known[block_of(&it.events[i].hash)] = it.events[i].tier;
    if (follower.state == FOLLOWER_LIVE) {
        n_live++;
        assert_memory_equal(known, history[follower.next_number - 1], sizeof(known));
    }
}

static void run(uint64_t seed)
{
    uint64_t now_ns = 1000 * MS;

    rng_init(&rng, seed);
    block_log = (struct block_log){0};
    follower = (struct block_follower){0};
    memset(tiers, 0, sizeof(tiers));
    memset(known, 0, sizeof(known));
    memset(history[0], 0, sizeof(history[0]));
    n_mail = n_asked = 0;
    for (int turn = 0; turn < 3000; turn++) {
        bool is_lossy = turn < 2000;

        now_ns += 5 * MS;
        switch (rng_below(&rng, 6)) {
        case 0:
            change_one();
            break;
        case 1:
            flush(is_lossy);
            break;
        case 2:
            if (n_asked > 0)
                answer(is_lossy);
            break;
        default:
            read_one(now_ns);
        }
        n_asked += block_follower_is_due(&follower, REFRESH_NS, now_ns);
        if (turn == 0 || (is_lossy && rng_below(&rng, 300) == 0)) { /* another link */
            n_mail = n_asked = 0;
            memset(known, BLOCK_GONE, sizeof(known));
            block_follower_end(&follower);
            block_follower_begin(&follower, now_ns);
            n_asked += !(is_lossy && rng_below(&rng, 3) == 0);
        }
    }
    flush(false);
    while (n_asked > 0 || n_mail > 0) {
        read_one(now_ns);
        if (n_asked > 0)
            answer(false);
    }
    assert_int_equal(follower.state, FOLLOWER_LIVE);
    assert_memory_equal(known, tiers, sizeof(known));
    block_log_fini(&block_log);
}

static void a_live_reader_knows_what_the_writer_had(void **state)
{
    for (uint64_t seed = 1; seed <= 300; seed++)
        run(seed);
    assert_true(n_live > 10000);
    assert_true(n_missed > 1000);
}

static void a_log_without_a_reader_is_bounded_and_leaves_a_gap(void **state)
{
    struct block_log log = {0};
    struct block_hash hash = hash_of(1);
    struct block_event *events;
    uint64_t first;
    uint32_t n;

    for (uint32_t i = 0; i < (1u << 16) + 10; i++)
        block_log_add(&log, &hash, BLOCK_IN_MEMORY);
    assert_int_equal(block_log_next(&log), (1u << 16) + 11);
    events = block_log_take(&log, &n, &first);
    assert_int_equal(n, 10);
    assert_int_equal(first, (1u << 16) + 1);
    free(events);
    assert_null(block_log_take(&log, &n, &first));
    assert_int_equal(block_log_next(&log), (1u << 16) + 11);
    block_log_fini(&log);
}

static void silence_is_asked_again_and_age_too(void **state)
{
    struct block_follower it = {0};
    struct block_part all = {.first_number = 1, .is_snapshot = true, .is_last = true};

    assert_false(block_follower_is_due(&it, REFRESH_NS, 10000 * MS)); /* no link */
    block_follower_begin(&it, 10000 * MS);
    assert_false(block_follower_is_due(&it, REFRESH_NS, 11999 * MS));
    assert_true(block_follower_is_due(&it, REFRESH_NS, 12000 * MS));
    assert_false(block_follower_is_due(&it, REFRESH_NS, 13000 * MS));
    assert_int_equal(block_follower_feed(&it, &all, 13000 * MS), FOLLOW_REPLACE);
    assert_int_equal(it.state, FOLLOWER_LIVE);
    assert_false(block_follower_is_due(&it, REFRESH_NS, 16999 * MS));
    assert_true(block_follower_is_due(&it, REFRESH_NS, 17000 * MS));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_live_reader_knows_what_the_writer_had),
        cmocka_unit_test(a_log_without_a_reader_is_bounded_and_leaves_a_gap),
        cmocka_unit_test(silence_is_asked_again_and_age_too),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
