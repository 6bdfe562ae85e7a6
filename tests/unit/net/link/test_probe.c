/* SPDX-License-Identifier: Apache-2.0 */
/* Connecting to many addresses at once: each outcome on loopback. */
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "net/link/probe.h"

/* Binds a port of loopback; listens on it unless backlog is negative. */
static int bound_socket(int backlog, unsigned *port_out)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t at_bytes = sizeof(at);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof(at)), 0);
    if (backlog >= 0)
        assert_int_equal(listen(fd, backlog), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &at_bytes), 0);
    *port_out = ntohs(at.sin_port);
    return fd;
}

static void each_address_has_its_outcome(void **state)
{
    static struct link_probe probes[130];
    unsigned open_port, closed_port, i;
    int open_fd = bound_socket(256, &open_port), closed_fd = bound_socket(-1, &closed_port);

    (void)state;
    for (i = 0; i < 130; i++)
        snprintf(probes[i].address, sizeof(probes[i].address), "127.0.0.1:%u",
                 i % 2 == 0 ? open_port : closed_port);
    strcpy(probes[128].address, "no-such-name.invalid:80");
    strcpy(probes[129].address, "127.0.0.1");
    link_probe_all(probes, 130, 10 * NS_PER_S, NULL);
    for (i = 0; i < 128; i++) {
        assert_int_equal(probes[i].outcome, i % 2 == 0 ? LINK_PROBE_REACHED : LINK_PROBE_REFUSED);
        if (i % 2 == 0)
            assert_true(probes[i].mtu >= 1280);
    }
    assert_int_equal(probes[128].outcome, LINK_PROBE_NO_NAME);
    assert_int_equal(probes[129].outcome, LINK_PROBE_FAILED);
    close(open_fd);
    close(closed_fd);
}

/* A listener whose queue is full drops further connections: they get no answer. */
static void silence_ends_at_the_limit(void **state)
{
    static struct link_probe probe;
    unsigned port;
    int fd = bound_socket(0, &port), fill[8];
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};

    (void)state;
    at.sin_port = htons((uint16_t)port);
    for (int i = 0; i < 8; i++) {
        fill[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        (void)connect(fill[i], (struct sockaddr *)&at, sizeof(at));
    }
    snprintf(probe.address, sizeof(probe.address), "127.0.0.1:%u", port);
    link_probe_all(&probe, 1, 200 * NS_PER_MS, NULL);
    assert_int_equal(probe.outcome, LINK_PROBE_SILENT);
    link_probe_all(&probe, 0, 200 * NS_PER_MS, NULL);
    for (int i = 0; i < 8; i++)
        close(fill[i]);
    close(fd);
}

/* A probe without time still finds a daemon that answers at once. */
static void no_time_is_one_look(void **state)
{
    static struct link_probe probe;
    unsigned port;
    int fd = bound_socket(8, &port);

    (void)state;
    snprintf(probe.address, sizeof(probe.address), "127.0.0.1:%u", port);
    link_probe_all(&probe, 1, 0, NULL);
    assert_int_equal(probe.outcome, LINK_PROBE_REACHED);
    close(fd);
}

static void a_cancelled_probe_tries_nothing(void **state)
{
    static struct link_probe probes[70];
    atomic_bool cancel = true;

    (void)state;
    for (unsigned i = 0; i < 70; i++)
        strcpy(probes[i].address, "127.0.0.1:1");
    link_probe_all(probes, 70, NS_PER_S, &cancel);
    for (unsigned i = 0; i < 70; i++)
        assert_int_equal(probes[i].outcome, LINK_PROBE_UNKNOWN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_address_has_its_outcome),
        cmocka_unit_test(silence_ends_at_the_limit),
        cmocka_unit_test(no_time_is_one_look),
        cmocka_unit_test(a_cancelled_probe_tries_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
