/* SPDX-License-Identifier: Apache-2.0 */
/* http.congestion_control: the algorithm of connections, and the error for one that the kernel lacks. */
#include "net/http/congestion.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/err.h"
#include "net/http/server.h"
#include "echo.h"
#include "raw.h"

#define GET(path) "GET " path " HTTP/1.1\r\nHost: a\r\n\r\n"

/* Returns the server's end of a client's connection: both are in this process. */
static int server_end(int client)
{
    struct sockaddr_in ours = {0};
    socklen_t len = sizeof(ours);

    assert_int_equal(getsockname(client, (struct sockaddr *)&ours, &len), 0);
    for (int fd = 0; fd < 1024; fd++) {
        struct sockaddr_in peer = {0};

        len = sizeof(peer);
        if (getpeername(fd, (struct sockaddr *)&peer, &len) == 0 && peer.sin_family == AF_INET &&
            peer.sin_port == ours.sin_port)
            return fd;
    }
    return -1;
}

static void congestion_of(int fd, char out[32])
{
    socklen_t len = 31;

    memset(out, 0, 32);
    assert_int_equal(getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, out, &len), 0);
}

static void set_congestion(struct http_server_opts *opts, void *arg)
{
    opts->congestion = arg;
}

static void connections_have_the_congestion_control_asked_for(void **state)
{
    char usual[32], theirs[32];
    struct rig rig;
    int fd;

    rig_begin(&rig, NULL);
    fd = raw_connect(rig.port);
    congestion_of(fd, usual);
    assert_int_equal(raw_ask(rig.port, GET("/echo"), NULL), 200);
    congestion_of(server_end(fd), theirs);
    assert_string_equal(theirs, usual);
    close(fd);
    rig_end(&rig);

    if (strcmp(usual, "reno") == 0) /* every kernel has this one, so it would not differ */
        skip();
    rig_begin_with(&rig, NULL, set_congestion, (char[]){"reno"});
    fd = raw_connect(rig.port);
    assert_int_equal(raw_ask(rig.port, GET("/echo"), NULL), 200);
    congestion_of(server_end(fd), theirs);
    assert_string_equal(theirs, "reno");
    close(fd);
    rig_end(&rig);
}

static void an_unknown_congestion_control_is_refused_with_the_known_ones(void **state)
{
    struct fault fault = {0};

    assert_int_equal(http_congestion_check("carrier-pigeon", &fault), E_UNSUPPORTED);
    assert_non_null(strstr(fault.text, "http.congestion_control = carrier-pigeon: "));
    assert_non_null(strstr(fault.text, "available: "));
    assert_non_null(strstr(strstr(fault.text, "available: "), "reno"));
    assert_int_equal(http_congestion_check("a name longer than the kernel's names are", &fault),
                     E_UNSUPPORTED);
    assert_int_equal(http_congestion_check("reno", &fault), 0);
    assert_int_equal(http_congestion_check("", &fault), 0);
    assert_int_equal(http_congestion_check(NULL, &fault), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(connections_have_the_congestion_control_asked_for),
        cmocka_unit_test(an_unknown_congestion_control_is_refused_with_the_known_ones),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
