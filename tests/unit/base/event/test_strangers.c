/* SPDX-License-Identifier: Apache-2.0 */
/* Which stranger is closed when there are too many, and the deadline for silent strangers. */
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

/* ---- the table ---- */

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

/* The classes hold unknown addresses only: known ones neither count nor leave. */
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

/* ---- sockets ---- */

struct world {
    struct ev_loop *loop;
    struct ev_timer *limit;
    struct strangers *strangers;
    int begun_fd[16];
    struct stranger *begun[16];
    unsigned n_begun, n_evicted, n_ends[STRANGER_N_ENDS];
    bool awaits_hello;
};

static void world_evict(void *owner)
{
    ((struct world *)owner)->n_evicted++;
}

static void world_on_begun(void *arg, int fd, const struct sockaddr *from, struct stranger *stranger)
{
    struct world *world = arg;

    world->begun_fd[world->n_begun] = fd;
    world->begun[world->n_begun++] = stranger;
    stranger_bind(stranger, world_evict, world);
}

static void world_on_end(void *arg, enum stranger_end why)
{
    ((struct world *)arg)->n_ends[why]++;
}

static void on_limit(void *arg)
{
    ev_loop_stop(((struct world *)arg)->loop);
}

static void world_open(struct world *world, uint32_t max, uint64_t begin_ns)
{
    struct strangers_opts opts = {.port = "test",
                                  .max = max,
                                  .max_per_address = 3,
                                  .begin_ns = begin_ns,
                                  .awaits_hello = world->awaits_hello,
                                  .on_begun = world_on_begun,
                                  .on_end = world_on_end,
                                  .arg = world};

    assert_int_equal(ev_loop_new(&world->loop), 0);
    opts.loop = world->loop;
    assert_int_equal(strangers_new(&opts, &world->strangers), 0);
    assert_int_equal(ev_timer_new(world->loop, on_limit, world, &world->limit), 0);
}

static void world_run(struct world *world, unsigned ms)
{
    ev_timer_start(world->limit, ms * NS_PER_MS);
    ev_loop_run(world->loop);
}

static void world_close(struct world *world)
{
    strangers_free(world->strangers);
    ev_timer_free(world->limit);
    ev_loop_free(world->loop);
}

/* Returns our end of a socket whose other end is that host. */
static int come(struct world *world, uint8_t host)
{
    struct sockaddr_in from = {.sin_family = AF_INET, .sin_addr = {htonl(0x0a000000u + host)}};
    int pair[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair), 0);
    strangers_take(world->strangers, pair[1], (struct sockaddr *)&from);
    return pair[0];
}

static bool is_closed(int fd)
{
    char byte;

    return recv(fd, &byte, 1, MSG_DONTWAIT) == 0;
}

static void silent_ones_are_closed_in_time(void **state)
{
    struct world world = {0};
    int silent, early, gone;

    world_open(&world, 8, 60 * NS_PER_MS);
    silent = come(&world, 1);
    early = come(&world, 2);
    gone = come(&world, 3);
    close(gone); /* a port scan: it is not reported */
    assert_int_equal(send(early, "x", 1, 0), 1);
    world_run(&world, 30);
    assert_int_equal(world.n_begun, 1);
    assert_int_equal(strangers_count(world.strangers), 2);
    assert_false(is_closed(silent));
    world_run(&world, 60);
    assert_true(is_closed(silent));
    assert_false(is_closed(early)); /* one that has begun has its owner's deadlines */
    assert_int_equal(world.n_ends[STRANGER_END_SILENT], 1);
    assert_int_equal(world.n_evicted, 0);
    stranger_leave(world.begun[0]);
    assert_int_equal(strangers_count(world.strangers), 0);
    close(world.begun_fd[0]);
    close(silent);
    close(early);
    world_close(&world);
}

static void too_many_evict_the_oldest(void **state)
{
    struct world world = {0};
    int fds[6];

    world_open(&world, 4, NS_PER_S);
    fds[0] = come(&world, 1);
    assert_int_equal(send(fds[0], "x", 1, 0), 1);
    world_run(&world, 10); /* it has begun, but is still the oldest */
    for (unsigned i = 1; i < 4; i++)
        fds[i] = come(&world, 2);
    fds[4] = come(&world, 2); /* the fourth from its address */
    assert_true(is_closed(fds[1]));
    assert_int_equal(world.n_ends[STRANGER_END_ADDRESS], 1);
    assert_int_equal(world.n_evicted, 0);
    fds[5] = come(&world, 3); /* the fifth in all */
    assert_int_equal(world.n_ends[STRANGER_END_FULL], 1);
    assert_true(is_closed(fds[2]));
    assert_int_equal(world.n_evicted, 0); /* three are silent, one has begun */
    assert_int_equal(strangers_count(world.strangers), 4);
    assert_true(strangers_make_room(world.strangers, NULL));
    assert_int_equal(world.n_evicted, 1);
    assert_false(strangers_make_room(world.strangers, NULL)); /* silent ones do not use an owner's room */
    strangers_close_silent(world.strangers);
    assert_int_equal(strangers_count(world.strangers), 0);
    close(world.begun_fd[0]);
    for (unsigned i = 0; i < 6; i++)
        close(fds[i]);
    world_close(&world);
}

/* The loop was busy.  A peer's first bytes wait in the kernel while the loop accepts a burst of silent
 * sockets. */
static void bytes_in_the_kernel_count(void **state)
{
    struct world world = {0};
    int peer, fds[8];

    world_open(&world, 8, NS_PER_S);
    peer = come(&world, 1);
    assert_int_equal(send(peer, "x", 1, 0), 1);
    for (unsigned i = 0; i < 8; i++)
        fds[i] = come(&world, 1);
    assert_int_equal(world.n_begun, 0);
    assert_int_equal(strangers_count(world.strangers), 3);
    world_run(&world, 10);
    assert_int_equal(world.n_begun, 1);
    assert_int_equal(strangers_count(world.strangers), 3);
    assert_false(is_closed(peer));
    assert_int_equal(world.n_ends[STRANGER_END_ADDRESS], 6);
    stranger_leave(world.begun[0]);
    close(world.begun_fd[0]);
    close(peer);
    strangers_close_silent(world.strangers);
    /* A stranger whose bytes were seen, but not passed on yet, is closed with the silent ones. */
    peer = come(&world, 1);
    assert_int_equal(send(peer, "x", 1, 0), 1);
    for (unsigned i = 0; i < 3; i++) {
        close(fds[i]);
        fds[i] = come(&world, 1);
    }
    assert_true(is_closed(fds[0]));
    assert_int_equal(strangers_count(world.strangers), 3);
    strangers_close_silent(world.strangers);
    assert_int_equal(strangers_count(world.strangers), 0);
    assert_int_equal(world.n_begun, 1);
    close(peer);
    for (unsigned i = 0; i < 8; i++)
        close(fds[i]);
    world_close(&world);
}

/* ---- ClientHello ---- */

/* Builds a message of so many bytes with its head, in records of `fragment` bytes.  Returns its size. */
static size_t make_hello(uint8_t *out, size_t message, size_t fragment)
{
    size_t at = 0;

    for (size_t done = 0; done < message; done += fragment) {
        size_t n = message - done < fragment ? message - done : fragment;

        memcpy(out + at, (uint8_t[]){22, 3, 1, (uint8_t)(n >> 8), (uint8_t)n}, 5);
        for (size_t i = 0; i < n; i++) {
            const uint8_t head[4] = {1, 0, (uint8_t)((message - 4) >> 8), (uint8_t)(message - 4)};

            out[at + 5 + i] = done + i < 4 ? head[done + i] : 0x5a;
        }
        at += 5 + n;
    }
    return at;
}

/* For each beginning, the answer asks for more bytes, but never for more than exist.  For the whole message
 * it asks for none. */
static void a_hello_is_known_when_it_is_whole(void **state)
{
    static const size_t cuts[][2] = {{200, 300}, {200, 200}, {517, 3}, {40, 1}, {16000, 16384}, {9000, 4096}};
    static uint8_t data[32 << 10];

    for (size_t i = 0; i < sizeof(cuts) / sizeof(cuts[0]); i++) {
        size_t len = make_hello(data, cuts[i][0], cuts[i][1]);

        for (size_t n = 0; n < len; n++) {
            size_t wanted = hello_bytes(data, n);

            assert_true(wanted > n);
            assert_true(wanted <= len);
        }
        assert_int_equal(hello_bytes(data, len), len);
        data[len] = 22; /* bytes after it do not matter */
        assert_int_equal(hello_bytes(data, len + 1), len);
    }
}

static void what_is_no_hello_is_not_waited_for(void **state)
{
    static const uint8_t alert[] = {21, 3, 1, 0, 2, 1, 0}, empty[] = {22, 3, 1, 0, 0},
                         other[] = {22, 3, 1, 0, 4, 2, 0, 0, 9}, huge[] = {22, 3, 1, 0, 4, 1, 0xff, 0, 0},
                         record[] = {22, 3, 1, 0xff, 0xff};
    static uint8_t data[HELLO_MAX_BYTES];

    assert_int_equal(hello_bytes((const uint8_t *)"GET / HTTP/1.1", 14), 0);
    assert_int_equal(hello_bytes((const uint8_t *)"G", 1), 0);
    assert_int_equal(hello_bytes(alert, sizeof(alert)), 0);
    assert_int_equal(hello_bytes(empty, sizeof(empty)), 0);
    assert_int_equal(hello_bytes(other, sizeof(other)), 0);
    assert_int_equal(hello_bytes(huge, sizeof(huge)), 0);
    assert_int_equal(hello_bytes(record, sizeof(record)), 0);
    /* With records of one byte, the limit on all records applies. */
    for (size_t at = 0; at + 6 <= sizeof(data); at += 6)
        memcpy(data + at, (uint8_t[]){22, 3, 1, 0, 1, at == 0 ? 1 : at == 12 ? 0x20 : 0}, 6);
    assert_int_equal(hello_bytes(data, sizeof(data)), 0);
}

/* Connects over TCP; the accepted end becomes a stranger. */
static int come_by_tcp(struct world *world)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}}, from;
    socklen_t at_bytes = sizeof(at), from_bytes = sizeof(from);
    int listener = socket(AF_INET, SOCK_STREAM, 0), ours = socket(AF_INET, SOCK_STREAM, 0), theirs;

    assert_int_equal(bind(listener, (struct sockaddr *)&at, sizeof(at)), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&at, &at_bytes), 0);
    assert_int_equal(connect(ours, (struct sockaddr *)&at, sizeof(at)), 0);
    theirs = accept4(listener, (struct sockaddr *)&from, &from_bytes, SOCK_NONBLOCK);
    assert_true(theirs >= 0);
    close(listener);
    strangers_take(world->strangers, theirs, (struct sockaddr *)&from);
    return ours;
}

/* The owner is made when the whole ClientHello has arrived, and reads it from its first byte.  A stranger
 * that never completes it, or whose peer closes, is closed in time. */
static void an_owner_is_made_for_a_whole_hello(void **state)
{
    struct world world = {.awaits_hello = true};
    static uint8_t data[4096], got[4096];
    size_t len = make_hello(data, 1500, 700);
    int whole, part, gone;

    world_open(&world, 8, 300 * NS_PER_MS);
    whole = come_by_tcp(&world);
    part = come_by_tcp(&world);
    gone = come_by_tcp(&world);
    for (size_t at = 0; at < len; at += 400) {
        assert_int_equal(world.n_begun, 0);
        assert_true(send(whole, data + at, len - at < 400 ? len - at : 400, 0) > 0);
        world_run(&world, 10);
    }
    assert_int_equal(world.n_begun, 1);
    assert_int_equal(recv(world.begun_fd[0], got, sizeof(got), 0), len);
    assert_memory_equal(got, data, len);
    assert_int_equal(send(whole, "y", 1, 0), 1); /* its owner sees each later byte */
    clock_sleep_ns(NS_PER_MS);
    assert_int_equal(recv(world.begun_fd[0], got, sizeof(got), MSG_DONTWAIT), 1);
    stranger_leave(world.begun[0]);

    assert_int_equal(send(part, data, 100, 0), 100);
    assert_int_equal(send(gone, data, 100, 0), 100);
    world_run(&world, 10);
    assert_int_equal(strangers_count(world.strangers), 2);
    close(gone);
    world_run(&world, 10);
    assert_int_equal(strangers_count(world.strangers), 1);
    world_run(&world, 400);
    assert_int_equal(strangers_count(world.strangers), 0);
    assert_int_equal(world.n_begun, 1);
    assert_int_equal(world.n_ends[STRANGER_END_SILENT], 1);
    close(world.begun_fd[0]);
    close(whole);
    close(part);
    world_close(&world);
}

static void who_proved_itself_is_known(void **state)
{
    struct world world = {0};
    int fds[5];

    world_open(&world, 2, 0); /* at once */
    fds[0] = come(&world, 1);
    stranger_prove(world.begun[0]);
    assert_int_equal(strangers_count(world.strangers), 0);
    fds[1] = come(&world, 1);
    fds[2] = come(&world, 2);
    fds[3] = come(&world, 3); /* evicts the second host's stranger, not the older one of the first host */
    assert_int_equal(world.n_evicted, 1);
    assert_int_equal(strangers_count(world.strangers), 2);
    assert_true(strangers_make_room(world.strangers, NULL)); /* evicts the third host's stranger */
    stranger_prove(world.begun[1]);                          /* it is still there to be proved */
    assert_int_equal(strangers_count(world.strangers), 0);
    for (unsigned i = 0; i < 4; i++) {
        close(fds[i]);
        close(world.begun_fd[i]);
    }
    world_close(&world);
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
        cmocka_unit_test(silent_ones_are_closed_in_time),
        cmocka_unit_test(too_many_evict_the_oldest),
        cmocka_unit_test(a_hello_is_known_when_it_is_whole),
        cmocka_unit_test(what_is_no_hello_is_not_waited_for),
        cmocka_unit_test(an_owner_is_made_for_a_whole_hello),
        cmocka_unit_test(bytes_in_the_kernel_count),
        cmocka_unit_test(who_proved_itself_is_known),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
