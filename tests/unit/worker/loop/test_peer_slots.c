/* SPDX-License-Identifier: Apache-2.0 */
/* Which link to a worker is closed when there is no slot for another one. */
#include "tests/unit/check.h"

#include <string.h>

#include "worker/loop/peer_slots_priv.h"
#include "worker/runner/engine_thread_priv.h"

enum { N_SLOTS = 4, NOW_NS = 1000, IDLE_FROM_NS = 500 };

static struct worker_engine engine;
static struct worker_peer slots[N_SLOTS];

/* All slots are taken by dialled links that are up and idle, the last one for the longest time. */
static int setup(void **state)
{
    memset(&engine, 0, sizeof(engine));
    memset(slots, 0, sizeof(slots));
    for (uint32_t i = 0; i < N_SLOTS; i++)
        slots[i] = (struct worker_peer){
            .link = (struct link *)&slots[i], .is_dialled = true, .is_up = true, .used_ns = 100 - i};
    return 0;
}

static uint32_t spare(void)
{
    return peer_slots_spare(slots, N_SLOTS, &engine, IDLE_FROM_NS);
}

static void free_slots_come_first(void **state)
{
    assert_int_equal(peer_slots_free(slots, N_SLOTS), PEER_NONE);
    slots[2].link = NULL;
    assert_int_equal(peer_slots_free(slots, N_SLOTS), 2);
}

static void the_least_recently_used_idle_link_is_closed(void **state)
{
    assert_int_equal(spare(), 3);
    slots[3].used_ns = NOW_NS;
    assert_int_equal(spare(), 2);
}

static void links_in_use_stay(void **state)
{
    worker_peer_use(&engine, 3);
    worker_peer_use(&engine, 3);
    assert_int_equal(spare(), 2);
    worker_peer_leave(&engine, 3);
    assert_int_equal(spare(), 2);
    worker_peer_leave(&engine, 3);
    assert_int_equal(spare(), 3);
    worker_peer_use(&engine, PEER_NONE); /* a task without a peer */
}

static void configured_and_accepted_links_stay(void **state)
{
    slots[3].is_configured = true;
    slots[2].is_dialled = false;
    assert_int_equal(spare(), 1);
    slots[1].is_configured = true;
    slots[0].is_dialled = false;
    assert_int_equal(spare(), PEER_NONE);
}

static void idle_links_that_are_down_are_closed_first(void **state)
{
    slots[0].is_up = false;
    assert_int_equal(spare(), 0);
    slots[1].is_up = false;
    assert_int_equal(spare(), 1);
}

/* It was dialled a moment ago, or a task waits for it. */
static void links_that_come_up_are_closed_last(void **state)
{
    slots[1].is_up = slots[2].is_up = false;
    slots[1].used_ns = NOW_NS;
    worker_peer_use(&engine, 2);
    assert_int_equal(spare(), 3);
    slots[3].used_ns = NOW_NS;
    assert_int_equal(spare(), 0);
    slots[0].used_ns = NOW_NS;
    assert_int_equal(spare(), 2); /* no other is left */
    slots[2].is_up = true;
    assert_int_equal(spare(), 1);
    slots[1].is_up = true;
    assert_int_equal(spare(), PEER_NONE);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup(name, setup)
    static const struct CMUnitTest tests[] = {
        T(free_slots_come_first),
        T(the_least_recently_used_idle_link_is_closed),
        T(links_in_use_stay),
        T(configured_and_accepted_links_stay),
        T(idle_links_that_are_down_are_closed_first),
        T(links_that_come_up_are_closed_last),
    };
#undef T

    return cmocka_run_group_tests(tests, NULL, NULL);
}
