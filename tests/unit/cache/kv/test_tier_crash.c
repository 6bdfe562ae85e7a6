/* SPDX-License-Identifier: Apache-2.0 */
/* kill -9 in the middle of writing, many times.
 *
 * A child opens the store that its predecessors left.  It writes blocks as fast as it can, for several
 * tenants in turn.  A block's bytes follow from its number.  The child reports to the parent which writes
 * were done. The parent kills it after a random time, opens the store itself and reads every block in the
 * index.
 *
 *   - the store always opens;
 *   - no block has other bytes than those written under its hash;
 *   - a write reported as done is there, unless its segment was evicted for younger ones.
 *
 * BATON_KILLS sets the number of kills (20): BATON_KILLS=200 tests/unit/cache/kv/test_tier_crash */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/rng.h"
#include "tier_help.h"

enum { KILLS = 20, WRITTEN_MAX = 1 << 16, TENANTS = 3 };

struct shared {               /* shared by child and parent */
    volatile uint64_t next;   /* number of the next block */
    volatile uint64_t n_done; /* done[]: numbers of the writes reported as done */
    volatile uint64_t done[WRITTEN_MAX];
    volatile bool is_open;
};

/* Of each tenant, segments pinned for an hour leave last, the oldest first. */
static bool is_wanted(uint64_t number)
{
    return number % 4 == 0;
}

static void write_for_ever(struct rig *rig, struct shared *shared)
{
    uint64_t n_begun = 0; /* writes end in order, so a block is free again when its write has ended */

    if (rig_open(rig) != 0)
        _exit(3);
    shared->is_open = true;
    for (;;) {
        uint64_t number = shared->next;
        kv_block_id id = (kv_block_id)(n_begun % (RIG_BLOCKS / 2));
        struct block_hash hash = rig_hash(number);
        uint64_t wanted_ns = is_wanted(number) ? clock_unix_ns() + 3600 * NS_PER_S : 0;
        struct kv_tier_event event;

        rig_fill(rig, id, number);
        int rc = kv_tier_write(rig->tier, 1 + number % TENANTS, id, &hash, wanted_ns);
        n_begun += rc == 0;
        if (rc == 0 || rc == E_FULL) /* full of blocks of higher rank */
            shared->next = number + 1;
        else
            clock_sleep_ns(20 * NS_PER_US); /* lets the writer use this core */
        while (kv_tier_poll(rig->tier, &event))
            if (event.result == 0 && shared->n_done < WRITTEN_MAX) {
                memcpy((void *)&shared->done[shared->n_done], event.hash.bytes + 8, 8);
                shared->n_done++;
            }
    }
}

/* Reads every block in the index.  Returns how many. */
static uint64_t read_all(struct rig *rig, uint64_t n_numbers)
{
    uint64_t n_read = 0;

    for (uint64_t number = 0; number < n_numbers; number++) {
        struct block_hash hash = rig_hash(number);

        if (!kv_tier_has(rig->tier, &hash) || rig_read(rig, 0, number) < 0)
            continue;
        assert_true(rig_is(rig, 0, number)); /* never a wrong block */
        n_read++;
    }
    return n_read;
}

static void killed_writers_leave_no_wrong_block(void **state)
{
    unsigned n_kills = getenv("BATON_KILLS") ? (unsigned)atoi(getenv("BATON_KILLS")) : KILLS;
    struct shared *shared =
        mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    uint64_t n_read = 0, n_missing = 0, n_damaged = 0;
    struct rng rng;
    struct rig rig;

    (void)state;
    assert_true(shared != MAP_FAILED);
    rig_init(&rig, "crash");
    rng_init(&rng, 7);
    for (unsigned kill_no = 0; kill_no < n_kills; kill_no++) {
        struct kv_tier_counts counts;
        int status;
        pid_t child;

        shared->is_open = false;
        shared->n_done = 0;
        child = fork();
        assert_true(child >= 0);
        if (child == 0)
            write_for_ever(&rig, shared);
        while (!shared->is_open && waitpid(child, &status, WNOHANG) == 0)
            clock_sleep_ns(NS_PER_US * 100);
        assert_true(shared->is_open); /* the store never refuses to open */
        clock_sleep_ns(rng_below(&rng, 20 * NS_PER_MS));
        kill(child, SIGKILL);
        waitpid(child, &status, 0);
        assert_true(WIFSIGNALED(status));

        assert_int_equal(rig_open(&rig), 0);
        n_read += read_all(&rig, shared->next);
        kv_tier_counts(rig.tier, &counts);
        n_damaged += counts.n_damaged;
        /* The latest pinned blocks cannot have been evicted yet. */
        for (uint64_t i = shared->n_done > 16 ? shared->n_done - 16 : 0; i < shared->n_done; i++) {
            struct block_hash hash = rig_hash(shared->done[i]);

            n_missing += is_wanted(shared->done[i]) && !kv_tier_has(rig.tier, &hash);
        }
        assert_true(rig_bytes(&rig) <= rig.opts.size_bytes);
        rig_close(&rig);
    }
    print_message("%u kills, %llu blocks written, %llu read back right, %llu seals broken, %llu reported "
                  "ones missing\n",
                  n_kills, (unsigned long long)shared->next, (unsigned long long)n_read,
                  (unsigned long long)n_damaged, (unsigned long long)n_missing);
    assert_true(n_read > 0);
    assert_int_equal(n_missing, 0);
    assert_int_equal(n_damaged, 0); /* the kernel kept the bytes that it had taken: no torn block is
                                     * accepted */
    rig_fini(&rig);
    munmap(shared, sizeof(*shared));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(killed_writers_leave_no_wrong_block)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
