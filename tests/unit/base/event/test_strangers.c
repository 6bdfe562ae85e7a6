/* SPDX-License-Identifier: Apache-2.0 */
/* Which stranger is closed when there are too many: the table alone.  test_stranger_sockets.c has the sockets. */
#include "tests/unit/check.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/event/loop.h"
#include "base/event/stranger_hello_priv.h"
#include "base/event/stranger_table_priv.h"
#include "base/event/strangers.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static struct stranger_key key_of(const char *text)
{
    struct sockaddr_in in = {.sin_family = AF_INET};
    struct sockaddr_in6 in6 = {.sin6_family = AF_INET6};

    if (inet_pton(AF_INET, text, &in.sin_addr) == 1)
        return stranger_key_of((struct sockaddr *)&in);
    assert_int_equal(inet_pton(AF_INET6, text, &in6.sin6_addr), 1);
    return stranger_key_of((struct sockaddr *)&in6);
}

static bool are_one(const char *a, const char *b)
{
    struct stranger_key x = key_of(a), y = key_of(b);

    return memcmp(&x, &y, sizeof(x)) == 0;
}

static struct stranger_table *make_table(uint32_t max, uint32_t max_per_address, uint32_t max_known)
{
    const struct stranger_bounds bounds = {max, max_per_address, max_known};
    struct stranger_table *table;

    assert_int_equal(stranger_table_new(&bounds, &table), 0);
    return table;
}

static void add(struct stranger_table *table, const char *from, struct stranger_entry *entry)
{
    struct stranger_key key = key_of(from);

    assert_int_equal(stranger_table_add(table, &key, entry), 0);
}

static enum stranger_verdict ask(struct stranger_table *table, const char *from, struct stranger_entry **out)
{
    struct stranger_key key = key_of(from);

    return stranger_table_ask(table, &key, out);
}

static void know(struct stranger_table *table, const char *from)
{
    struct stranger_key key = key_of(from);

    stranger_table_know(table, &key);
}

static void a_network_of_64_bits_is_one_address(void **state)
{
    struct stranger_key user = stranger_key_of_user(7), other = stranger_key_of_user(8);

    assert_true(are_one("2001:db8::1", "2001:db8::ffff:1:2"));
    assert_false(are_one("2001:db8::1", "2001:db8:0:1::1"));
    assert_true(are_one("::ffff:10.0.0.7", "10.0.0.7"));
    assert_false(are_one("10.0.0.7", "10.0.0.8"));
    assert_false(are_one("::ffff:10.0.0.7", "::ffff:10.0.0.8"));
    assert_int_not_equal(memcmp(&user, &other, sizeof(user)), 0);
}

static void the_oldest_of_its_address_leaves(void **state)
{
    struct stranger_table *table = make_table(8, 2, 4);
    struct stranger_entry a[2], b, *leaving;

    add(table, "10.0.0.1", &b);
    add(table, "10.0.0.2", &a[0]);
    assert_int_equal(ask(table, "10.0.0.2", &leaving), STRANGER_HAS_ROOM);
    assert_null(leaving);
    add(table, "10.0.0.2", &a[1]);
    assert_int_equal(ask(table, "10.0.0.2", &leaving), STRANGER_OVER_PER_ADDRESS);
    assert_ptr_equal(leaving, &a[0]);
    assert_int_equal(ask(table, "10.0.0.1", &leaving), STRANGER_HAS_ROOM);
    stranger_table_remove(table, &a[0]);
    assert_int_equal(ask(table, "10.0.0.2", &leaving), STRANGER_HAS_ROOM);
    stranger_table_remove(table, &a[1]);
    stranger_table_remove(table, &b);
    assert_int_equal(stranger_table_count(table), 0);
    stranger_table_free(table);
}

static void known_addresses_stay(void **state)
{
    struct stranger_table *table = make_table(3, 3, 4);
    struct stranger_entry known[3], other[2], *leaving;

    know(table, "10.0.0.1");
    add(table, "10.0.0.1", &known[0]); /* the oldest of all */
    add(table, "10.0.0.2", &other[0]);
    add(table, "10.0.0.3", &other[1]);
    assert_int_equal(ask(table, "10.0.0.9", &leaving), STRANGER_OVER_MAX);
    assert_ptr_equal(leaving, &other[0]);
    stranger_table_remove(table, &other[0]);
    add(table, "10.0.0.1", &known[1]);
    assert_int_equal(ask(table, "10.0.0.1", &leaving), STRANGER_OVER_MAX);
    assert_ptr_equal(leaving, &other[1]);
    assert_ptr_equal(stranger_table_next(table, leaving, false), &known[0]);
    assert_ptr_equal(stranger_table_next(table, &known[0], false), &known[1]);
    assert_null(stranger_table_next(table, &known[1], false));
    stranger_table_remove(table, &other[1]);
    know(table, "10.0.0.4");
    add(table, "10.0.0.4", &known[2]);
    /* Only known strangers are left: an unknown one gets no room, a known one replaces the oldest. */
    assert_int_equal(ask(table, "10.0.0.9", &leaving), STRANGER_NO_ROOM);
    assert_null(leaving);
    assert_int_equal(ask(table, "10.0.0.4", &leaving), STRANGER_OVER_MAX);
    assert_ptr_equal(leaving, &known[0]);
    for (unsigned i = 0; i < 3; i++)
        stranger_table_remove(table, &known[i]);
    stranger_table_free(table);
}

static void known_addresses_are_bounded(void **state)
{
    struct stranger_table *table = make_table(8, 8, 2);
    struct stranger_entry first, *leaving;

    know(table, "10.0.0.1");
    add(table, "10.0.0.1", &first); /* moves 10.0.0.1 to the end: it came last */
    know(table, "10.0.0.2");
    know(table, "10.0.0.1");
    know(table, "10.0.0.3"); /* 10.0.0.2 came least recently */
    assert_int_equal(stranger_table_known(table), 2);
    know(table, "10.0.0.4"); /* now 10.0.0.1 leaves, although it has a stranger here */
    assert_int_equal(stranger_table_known(table), 2);
    assert_int_equal(ask(table, "10.0.0.1", &leaving), STRANGER_HAS_ROOM);
    stranger_table_remove(table, &first);
    stranger_table_free(table);
}

/* A flood from many addresses never evicts a peer that needs a while. */
static void a_flood_does_not_evict_a_known_peer(void **state)
{
    enum { N = 5000 };
    static struct stranger_entry entries[N];
    struct stranger_table *table = make_table(256, 64, 16);
    struct stranger_entry peer, *leaving;

    know(table, "192.0.2.1");
    add(table, "192.0.2.1", &peer);
    for (unsigned i = 0; i < N; i++) {
        char from[32];

        snprintf(from, sizeof(from), "10.%u.%u.%u", i % 3, i % 7, i % 250);
        if (ask(table, from, &leaving) != STRANGER_HAS_ROOM) {
            assert_non_null(leaving);
            assert_ptr_not_equal(leaving, &peer);
            stranger_table_remove(table, leaving);
        }
        add(table, from, &entries[i]);
        assert_true(stranger_table_count(table) <= 256);
    }
    while ((leaving = stranger_table_oldest(table, STRANGER_CLASS_SILENT, NULL)) != NULL)
        stranger_table_remove(table, leaving);
    stranger_table_free(table);
}

/* One more comes from this address.  Returns the one that leaves for it, or NULL. */
static struct stranger_entry *arrive(struct stranger_table *table, const char *from,
                                     struct stranger_entry *entry)
{
    struct stranger_entry *leaving;

    assert_int_not_equal(ask(table, from, &leaving), STRANGER_NO_ROOM);
    if (leaving != NULL)
        stranger_table_remove(table, leaving);
    add(table, from, entry);
    return leaving;
}

static void remove_all(struct stranger_table *table)
{
    for (enum stranger_class class = 0; class < STRANGER_N_CLASSES; class ++) {
        struct stranger_entry *entry;

        while ((entry = stranger_table_oldest(table, class, NULL)) != NULL)
            stranger_table_remove(table, entry);
    }
    assert_int_equal(stranger_table_count(table), 0);
    stranger_table_free(table);
}

/* A peer in mid-handshake, and many silent sockets: first from its address, then from all others. */
static void silent_ones_do_not_evict_a_begun_one(void **state)
{
    for (unsigned is_spread = 0; is_spread < 2; is_spread++) {
        enum { N = 500 };
        static struct stranger_entry flood[N];
        struct stranger_table *table = is_spread ? make_table(8, 4, 4) : make_table(64, 8, 4);
        struct stranger_entry peer;

        add(table, "10.0.0.1", &peer);
        stranger_table_begin(table, &peer);
        stranger_table_begin(table, &peer);
        for (unsigned i = 0; i < N; i++) {
            char from[32];

            snprintf(from, sizeof(from), "10.0.%u.1", is_spread ? i % 100 : 0);
            assert_ptr_not_equal(arrive(table, from, &flood[i]), &peer);
        }
        assert_ptr_equal(stranger_table_oldest(table, STRANGER_CLASS_BEGUN, NULL), &peer);
        remove_all(table);
    }
}

/* A peer that has not sent anything yet, and many sockets that stop in mid-handshake. */
static void begun_ones_do_not_evict_a_silent_one(void **state)
{
    for (unsigned is_spread = 0; is_spread < 2; is_spread++) {
        enum { N = 500 };
        static struct stranger_entry flood[N];
        struct stranger_table *table = is_spread ? make_table(8, 4, 4) : make_table(64, 8, 4);
        struct stranger_entry peer, *left;

        add(table, "10.0.0.1", &peer);
        for (unsigned i = 0; i < N; i++) {
            char from[32];

            snprintf(from, sizeof(from), "10.0.%u.1", is_spread ? i % 100 : 0);
            left = arrive(table, from, &flood[i]);
            assert_ptr_not_equal(left, &peer);
            assert_true(left == NULL || left->class == STRANGER_CLASS_BEGUN);
            stranger_table_begin(table, &flood[i]);
        }
        assert_ptr_equal(stranger_table_oldest(table, STRANGER_CLASS_SILENT, NULL), &peer);
        remove_all(table);
    }
}

/* The larger class loses its oldest member.  With equal classes the silent one does, because the new one
 * makes it larger. */
static void the_larger_class_loses_its_oldest(void **state)
{
    struct stranger_table *table = make_table(8, 4, 4);
    struct stranger_entry a[4], *leaving;

    for (unsigned i = 0; i < 4; i++)
        add(table, "10.0.0.1", &a[i]);
    stranger_table_begin(table, &a[2]);
    stranger_table_begin(table, &a[0]);
    assert_int_equal(ask(table, "10.0.0.1", &leaving), STRANGER_OVER_PER_ADDRESS);
    assert_ptr_equal(leaving, &a[1]);
    stranger_table_begin(table, &a[3]);
    assert_int_equal(ask(table, "10.0.0.1", &leaving), STRANGER_OVER_PER_ADDRESS);
    assert_ptr_equal(leaving, &a[2]); /* the first that began its handshake */
    assert_ptr_equal(stranger_table_next(table, &a[2], true), &a[0]);
    assert_ptr_equal(stranger_table_next(table, &a[2], false), &a[0]);
    assert_ptr_equal(stranger_table_next(table, &a[0], false), &a[3]);
    assert_null(stranger_table_next(table, &a[3], true));
    assert_null(stranger_table_next(table, &a[3], false));
    remove_all(table);
}

/* The classes hold unknown addresses only. A known address does not count, and does not leave. */
static void classes_are_of_unknown_addresses(void **state)
{
    struct stranger_table *table = make_table(6, 6, 4);
    struct stranger_entry known[4], other[2], *leaving;

    know(table, "10.0.0.1");
    for (unsigned i = 0; i < 4; i++)
        add(table, "10.0.0.1", &known[i]);
    add(table, "10.0.0.2", &other[0]);
    add(table, "10.0.0.3", &other[1]);
    stranger_table_begin(table, &other[0]);
    assert_int_equal(ask(table, "10.0.0.9", &leaving), STRANGER_OVER_MAX);
    assert_ptr_equal(leaving, &other[1]);
    stranger_table_begin(table, &other[1]);
    assert_int_equal(ask(table, "10.0.0.9", &leaving), STRANGER_OVER_MAX);
    assert_ptr_equal(leaving, &other[0]);
    assert_ptr_equal(stranger_table_next(table, stranger_table_next(table, leaving, false), false), NULL);
    remove_all(table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_network_of_64_bits_is_one_address),
        cmocka_unit_test(the_oldest_of_its_address_leaves),
        cmocka_unit_test(known_addresses_stay),
        cmocka_unit_test(known_addresses_are_bounded),
        cmocka_unit_test(a_flood_does_not_evict_a_known_peer),
        cmocka_unit_test(silent_ones_do_not_evict_a_begun_one),
        cmocka_unit_test(begun_ones_do_not_evict_a_silent_one),
        cmocka_unit_test(the_larger_class_loses_its_oldest),
        cmocka_unit_test(classes_are_of_unknown_addresses),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
