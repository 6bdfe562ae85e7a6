/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses, name lookup and listening sockets. */
#include "net/link/addr.h"
#include "net/link/listen_check.h"
#include "net/link/listener.h"
#include "net/link/resolve_priv.h"

#include "base/clock.h"
#include "base/err.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static void good_addresses(void **state)
{
    struct addr addr;
    char text[ADDR_TEXT_BYTES];

    assert_int_equal(addr_parse("127.0.0.1:8080", NULL, &addr), 0);
    assert_true(addr.is_numeric && addr_is_loopback(&addr));
    addr_format((struct sockaddr *)&addr.sa, text);
    assert_string_equal(text, "127.0.0.1:8080");
    assert_int_equal(addr_parse("[::1]:9", NULL, &addr), 0);
    assert_true(addr.is_numeric && addr_is_loopback(&addr));
    assert_string_equal(addr.host, "::1");
    addr_format((struct sockaddr *)&addr.sa, text);
    assert_string_equal(text, "[::1]:9");
    assert_int_equal(addr_parse("[::ffff:127.0.0.1]:9", NULL, &addr), 0);
    assert_true(addr_is_loopback(&addr));
    assert_int_equal(addr_parse("10.0.0.1:0", NULL, &addr), 0);
    assert_false(addr_is_loopback(&addr));
    assert_int_equal(addr_parse("*:1", NULL, &addr), 0);
    assert_true(addr.is_numeric && addr.sa.ss_family == AF_INET6 && !addr_is_loopback(&addr));
    assert_int_equal(addr_parse("worker-1.example:65535", NULL, &addr), 0);
    assert_false(addr.is_numeric);
    assert_int_equal(addr.port, 65535);
}

static void addresses_of_all_hosts_are_recognised(void **state)
{
    static const char *const any[] = {"*:1", "0.0.0.0:1", "[::]:1", "[::ffff:0.0.0.0]:1"};
    static const char *const one[] = {"10.0.0.0:1", "[::1]:1", "[::ffff:10.0.0.1]:1", "host:1",
                                      "127.0.0.1:1"};
    struct addr addr;

    (void)state;
    for (unsigned i = 0; i < 4; i++) {
        assert_int_equal(addr_parse(any[i], NULL, &addr), 0);
        assert_true(addr_is_any(&addr));
    }
    for (unsigned i = 0; i < 5; i++) {
        assert_int_equal(addr_parse(one[i], NULL, &addr), 0);
        assert_false(addr_is_any(&addr));
    }
}

static void bad_addresses(void **state)
{
    static const char *const bad[] = {"",       "host",  "host:",     ":80",       "host:65536", "host:-1",
                                      "host:x", "::1:9", "[::1]",     "[::1:9",    "[]:9",       "a b:1",
                                      "a/b:1",  "a@b:1", "host:1\n2", "ho\nst:12", "[::1]x:1"};
    struct addr addr;
    struct fault fault;
    char longer[300];

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        fault.text[0] = '\0';
        assert_int_equal(addr_parse(bad[i], &fault, &addr), E_FORMAT);
        assert_true(fault.text[0] != '\0');
    }
    memset(longer, 'a', sizeof(longer));
    memcpy(longer + 290, ":1", 3);
    assert_int_equal(addr_parse(longer, &fault, &addr), E_FORMAT);
}

struct fixture {
    struct ev_loop *loop;
    struct ev_timer *limit;
    struct listener *listener;
    int fds[16];
    unsigned n_accepted;
    unsigned stop_at;
    bool closes;
    unsigned n_found;
    struct resolve *resolve;
};

static void stop(void *arg)
{
    ev_loop_stop(((struct fixture *)arg)->loop);
}

static void on_accept(void *arg, int fd, const char *peer, struct stranger *stranger)
{
    struct fixture *f = arg;

    assert_non_null(strstr(peer, "127.0.0.1"));
    f->fds[f->n_accepted++] = fd;
    if (f->closes) {
        listener_close(f->listener);
        f->listener = NULL;
    }
    if (f->n_accepted == f->stop_at)
        ev_loop_stop(f->loop);
}

static void open_fixture(struct fixture *f, uint32_t max_connections)
{
    struct listener_opts opts = {
        .address = "127.0.0.1:0", .max_connections = max_connections, .on_accept = on_accept, .arg = f};

    assert_int_equal(ev_loop_new(&f->loop), 0);
    opts.loop = f->loop;
    assert_int_equal(listener_open(&opts, NULL, &f->listener), 0);
    assert_int_equal(ev_timer_new(f->loop, stop, f, &f->limit), 0);
}

static void close_fixture(struct fixture *f)
{
    for (unsigned i = 0; i < f->n_accepted; i++)
        close(f->fds[i]);
    listener_close(f->listener);
    ev_timer_free(f->limit);
    ev_loop_free(f->loop);
}

static int dial(const char *address)
{
    struct addr addr;
    int fd;

    assert_int_equal(addr_parse(address, NULL, &addr), 0);
    fd = socket(addr.sa.ss_family, SOCK_STREAM, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&addr.sa, addr.sa_bytes), 0);
    return fd;
}

static void run(struct fixture *f, unsigned stop_at, unsigned limit_ms)
{
    f->stop_at = stop_at;
    ev_timer_start(f->limit, limit_ms * NS_PER_MS);
    ev_loop_run(f->loop);
    ev_timer_stop(f->limit);
}

static void accepts_up_to_the_bound(void **state)
{
    struct fixture f = {0};
    int clients[4];

    open_fixture(&f, 2);
    for (unsigned i = 0; i < 4; i++)
        clients[i] = dial(listener_address(f.listener));
    run(&f, 3, 50);
    assert_int_equal(f.n_accepted, 2);
    assert_int_equal(listener_connections(f.listener), 2);
    listener_release(f.listener);
    run(&f, 3, 1000);
    assert_int_equal(f.n_accepted, 3);
    listener_pause(f.listener);
    listener_release(f.listener);
    run(&f, 4, 50);
    assert_int_equal(f.n_accepted, 3);
    for (unsigned i = 0; i < 4; i++)
        close(clients[i]);
    close_fixture(&f);
}

static void closes_inside_its_call(void **state)
{
    struct fixture f = {.closes = true};
    int clients[2];

    open_fixture(&f, 0);
    for (unsigned i = 0; i < 2; i++)
        clients[i] = dial(listener_address(f.listener));
    run(&f, 1, 1000);
    assert_int_equal(f.n_accepted, 1);
    for (unsigned i = 0; i < 2; i++)
        close(clients[i]);
    close_fixture(&f);
}

static void says_why_it_cannot(void **state)
{
    struct fixture f = {0};
    struct listener *second;
    struct fault fault;

    open_fixture(&f, 0);
    struct listener_opts opts = {
        .loop = f.loop, .address = listener_address(f.listener), .on_accept = on_accept};
    assert_int_equal(listener_open(&opts, &fault, &second), E_IO);
    assert_non_null(strstr(fault.text, opts.address));
    opts.address = "localhost:0";
    assert_int_equal(listener_open(&opts, &fault, &second), E_FORMAT);
    close_fixture(&f);
}

static void adopts_a_socket(void **state)
{
    struct fixture f = {0};
    struct listener *second;
    char address[ADDR_TEXT_BYTES + 16];
    int fd, client;

    open_fixture(&f, 0);
    fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    assert_int_equal(listen(fd, 4), 0);
    struct listener_opts opts = {.loop = f.loop, .fd = fd, .on_accept = on_accept, .arg = &f};
    assert_int_equal(listener_open(&opts, NULL, &second), 0);
    snprintf(address, sizeof(address), "127.0.0.1%s", strchr(listener_address(second), ':'));
    client = dial(address);
    run(&f, 1, 1000);
    assert_int_equal(f.n_accepted, 1);
    close(client);
    listener_close(second);
    close_fixture(&f);
}

static void on_found(void *arg, const struct addr *list, unsigned n, const struct fault *fault)
{
    struct fixture *f = arg;

    f->n_found = n;
    if (n > 0)
        assert_true(list[0].is_numeric && addr_is_loopback(&list[0]) && list[0].port == 7);
    else
        assert_true(fault->code != 0 && fault->text[0] != '\0');
    resolve_free(f->resolve);
    ev_loop_stop(f->loop);
}

static void names_are_looked_up(void **state)
{
    struct fixture f = {0};
    struct addr addr;

    open_fixture(&f, 0);
    assert_int_equal(addr_parse("localhost:7", NULL, &addr), 0);
    assert_int_equal(resolve_new(f.loop, &addr, on_found, &f, &f.resolve), 0);
    run(&f, 0, 2000);
    assert_true(f.n_found > 0);
    /* Cancelled: no callback, and the thread that still runs touches no memory. */
    assert_int_equal(resolve_new(f.loop, &addr, on_found, &f, &f.resolve), 0);
    resolve_free(f.resolve);
    close_fixture(&f);
}

static bool clash(const char *a, const char *b)
{
    struct addr one, two;

    assert_int_equal(addr_parse(a, NULL, &one), 0);
    assert_int_equal(addr_parse(b, NULL, &two), 0);
    assert_int_equal(listen_same(&one, &two), listen_same(&two, &one));
    return listen_same(&one, &two);
}

static void addresses_to_listen_on(void **state)
{
    static const char *const bad[] = {":80", "127.0.0.1:65536", "localhost:80", "unix:/tmp/x",
                                      "203.0.113.7:80"};
    struct fault fault;
    struct addr addr;

    assert_int_equal(listen_check("127.0.0.1:0", &fault, &addr), 0);
    assert_int_equal(listen_check("0.0.0.0:0", &fault, &addr), 0);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        fault.text[0] = '\0';
        assert_true(listen_check(bad[i], &fault, &addr) < 0);
        assert_true(fault.text[0] != '\0');
    }
    assert_true(clash("127.0.0.1:80", "127.0.0.1:80"));
    assert_true(clash("127.0.0.1:80", "0.0.0.0:80"));
    assert_true(clash("127.0.0.1:80", "*:80"));
    assert_true(clash("[::1]:80", "[::]:80"));
    assert_true(clash("a.example:80", "a.example:80"));
    assert_false(clash("127.0.0.1:80", "127.0.0.1:81"));
    assert_false(clash("127.0.0.1:80", "127.0.0.2:80"));
    assert_false(clash("127.0.0.1:80", "[::1]:80"));
    assert_false(clash("0.0.0.0:80", "[::]:80")); /* each has its own family */
    assert_false(clash("127.0.0.1:0", "127.0.0.1:0"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_addresses),          cmocka_unit_test(addresses_of_all_hosts_are_recognised),
        cmocka_unit_test(bad_addresses),           cmocka_unit_test(addresses_to_listen_on),
        cmocka_unit_test(accepts_up_to_the_bound), cmocka_unit_test(closes_inside_its_call),
        cmocka_unit_test(says_why_it_cannot),      cmocka_unit_test(adopts_a_socket),
        cmocka_unit_test(names_are_looked_up),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
