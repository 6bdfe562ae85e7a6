/* SPDX-License-Identifier: Apache-2.0 */
/* The path of an order to change a role: a closed alphabet, bounded lengths, and only these two words. */
#include "tests/unit/check.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/err.h"

#include "serve/endpoint/admin.h"

static bool reads(const char *path)
{
    struct admin_role unused;

    return admin_role_read(bytes_str(path), &unused);
}

static void two_words_are_read(void **state)
{
    struct admin_role wanted;

    assert_true(admin_role_read(bytes_str("/admin/role/both/node-1.example_A"), &wanted));
    assert_true(bytes_is(wanted.role, "both"));
    assert_true(bytes_is(wanted.worker, "node-1.example_A"));
}

static void other_paths_are_not(void **state)
{
    static const char *const others[] = {"",
                                         "/admin/role",
                                         "/admin/role/",
                                         "/admin/role//",
                                         "/admin/role/decode",
                                         "/admin/role/decode/",
                                         "/admin/role//node",
                                         "/admin/role/Decode/node",
                                         "/admin/role/decode/a/b",
                                         "/admin/role/decode/a b",
                                         "/admin/role/decode/a%20b",
                                         "/admin/roles/decode/a"};
    char longest[64 + 32], hidden[] = "/admin/role/decode/a\0b";
    struct admin_role unused;

    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        assert_false(reads(others[i]));
    assert_false(admin_role_read(bytes_of(hidden, sizeof(hidden) - 1), &unused));
    snprintf(longest, sizeof(longest), "/admin/role/decode/%063d", 0);
    assert_true(reads(longest));
    snprintf(longest, sizeof(longest), "/admin/role/decode/%064d", 0);
    assert_false(reads(longest));
    for (size_t i = 0; i <= strlen("/admin/role/decode/"); i++) /* cut anywhere: never read past the end */
        assert_false(admin_role_read(bytes_of("/admin/role/decode/", i), &unused));
}

static void rows_of_a_check_are_read(void **state)
{
    assert_int_equal(admin_check_row(bytes_str("/admin/check")), -1);
    assert_int_equal(admin_check_row(bytes_str("/admin/check/0")), 0);
    assert_int_equal(admin_check_row(bytes_str("/admin/check/63")), 63);
    assert_int_equal(admin_check_row(bytes_str("/admin/check/")), -2);
    assert_int_equal(admin_check_row(bytes_str("/admin/check/-1")), -2);
    assert_int_equal(admin_check_row(bytes_str("/admin/check/4294967295")), -2);
    assert_int_equal(admin_check_row(bytes_str("/admin/checks")), -2);
    assert_int_equal(admin_check_row(bytes_str("")), -2);
}

/* ---- the status ---- */

enum { N_PARTS = 20, N_ASKERS = 3 };

static struct {
    struct ev_loop *loop;
    struct metrics *metrics;
    struct admin *admin;
    struct ev_timer *clock;
    uint32_t n_turns, n_asked, n_most; /* parts since the clock's latest turn, and the most of any turn */
    bool fails;
    int fds[N_ASKERS];
    char answers[N_ASKERS][4096];
    size_t n_read[N_ASKERS];
} port;

static int play_status(void *arg, uint32_t part, struct buf *out)
{
    assert_true(part < N_PARTS);
    if (++port.n_asked > port.n_most)
        port.n_most = port.n_asked;
    if (port.fails && part == 2)
        return E_NOMEM;
    buf_printf(out, "part %u;", part);
    return part + 1 < N_PARTS;
}

static void on_clock(void *arg)
{
    port.n_asked = 0;
    for (int i = 0; i < N_ASKERS; i++) {
        ssize_t n = port.fds[i] >= 0 ? recv(port.fds[i], port.answers[i] + port.n_read[i],
                                            sizeof(port.answers[i]) - 1 - port.n_read[i], MSG_DONTWAIT)
                                     : -1;

        port.n_read[i] += n > 0 ? (size_t)n : 0;
    }
    if (++port.n_turns > 100000 ||
        (port.fds[0] >= 0 && strstr(port.answers[0], port.fails ? "}\n" : "part 19;") &&
         strstr(port.answers[1], port.fails ? "}\n" : "part 19;")))
        ev_loop_stop(port.loop);
    else
        ev_timer_start(port.clock, 0);
}

static int open_port(void **state)
{
    static const struct admin_calls calls = {.status = play_status};
    static const uint8_t key[32] = {7};
    static char token[ADMIN_TOKEN_BYTES];
    struct admin_tokens tokens;
    char request[256];
    struct fault fault = {0};

    memset(&port, 0, sizeof(port));
    admin_token(key, token);
    admin_tokens_make(&key, &key, 1, &tokens);
    assert_int_equal(ev_loop_new(&port.loop), 0);
    assert_int_equal(metrics_new(&port.metrics), 0);
    struct admin_opts opts = {.loop = port.loop,
                              .metrics = port.metrics,
                              .calls = &calls,
                              .listen = "127.0.0.1:0",
                              .tokens = &tokens};
    assert_int_equal(admin_new(&opts, &fault, &port.admin), 0);
    assert_int_equal(ev_timer_new(port.loop, on_clock, NULL, &port.clock), 0);
    snprintf(request, sizeof(request),
             "GET /admin/status HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer %s\r\n\r\n", token);
    for (int i = 0; i < N_ASKERS; i++) {
        struct sockaddr_in to = {.sin_family = AF_INET,
                                 .sin_port = htons(admin_port(port.admin)),
                                 .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};

        port.fds[i] = socket(AF_INET, SOCK_STREAM, 0);
        assert_int_equal(connect(port.fds[i], (struct sockaddr *)&to, sizeof(to)), 0);
        assert_int_equal(send(port.fds[i], request, strlen(request), 0), (ssize_t)strlen(request));
    }
    return 0;
}

static int close_port(void **state)
{
    for (int i = 0; i < N_ASKERS; i++)
        if (port.fds[i] >= 0)
            close(port.fds[i]);
    admin_free(port.admin);
    ev_timer_free(port.clock);
    ev_loop_free(port.loop);
    metrics_free(port.metrics);
    return 0;
}

static void run_port(void)
{
    ev_timer_start(port.clock, 0);
    assert_int_equal(ev_loop_run(port.loop), 0);
    assert_true(port.n_turns < 100000);
}

static void a_status_is_written_a_part_a_turn(void **state)
{
    char whole[512] = "";

    run_port();
    for (int part = 0; part < N_PARTS; part++)
        snprintf(whole + strlen(whole), sizeof(whole) - strlen(whole), "part %d;", part);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(strncmp(port.answers[i], "HTTP/1.1 200", 12), 0);
        assert_string_equal(strstr(port.answers[i], "\r\n\r\n") + 4, whole);
    }
    assert_true(port.n_most <= 2); /* the clock and the status may change places in a turn */
    assert_true(port.n_turns >= 2 * N_PARTS);
}

static void a_client_that_leaves_is_forgotten(void **state)
{
    close(port.fds[2]);
    port.fds[2] = -1;
    run_port();
    assert_non_null(strstr(port.answers[1], "part 19;"));
}

static void a_status_that_fails_is_500(void **state)
{
    port.fails = true;
    run_port();
    assert_int_equal(strncmp(port.answers[0], "HTTP/1.1 500", 12), 0);
}

static void a_port_is_closed_in_the_middle_of_a_status(void **state)
{
    for (int i = 0; i < N_ASKERS; i++)
        close(port.fds[i]), port.fds[i] = -1;
    port.n_turns = 99990; /* ends after ten turns */
    ev_timer_start(port.clock, 0);
    assert_int_equal(ev_loop_run(port.loop), 0);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_words_are_read),
        cmocka_unit_test(other_paths_are_not),
        cmocka_unit_test(rows_of_a_check_are_read),
        cmocka_unit_test_setup_teardown(a_status_is_written_a_part_a_turn, open_port, close_port),
        cmocka_unit_test_setup_teardown(a_client_that_leaves_is_forgotten, open_port, close_port),
        cmocka_unit_test_setup_teardown(a_status_that_fails_is_500, open_port, close_port),
        cmocka_unit_test_setup_teardown(a_port_is_closed_in_the_middle_of_a_status, open_port, close_port)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
