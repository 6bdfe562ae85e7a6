/* SPDX-License-Identifier: Apache-2.0 */
/* Strangers on real sockets: the deadline for silent ones, eviction, and the ClientHello that makes an owner. */
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

/* The loop was busy.
 * A peer's first bytes wait in the kernel while the loop accepts a burst of silent sockets. */
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

static void bytes_that_are_no_hello_end_the_wait(void **state)
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

static void an_authenticated_peer_is_no_stranger(void **state)
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
        cmocka_unit_test(silent_ones_are_closed_in_time),
        cmocka_unit_test(too_many_evict_the_oldest),
        cmocka_unit_test(a_hello_is_known_when_it_is_whole),
        cmocka_unit_test(bytes_that_are_no_hello_end_the_wait),
        cmocka_unit_test(an_owner_is_made_for_a_whole_hello),
        cmocka_unit_test(bytes_in_the_kernel_count),
        cmocka_unit_test(an_authenticated_peer_is_no_stranger),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
