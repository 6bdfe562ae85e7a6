/* SPDX-License-Identifier: Apache-2.0 */
/* The owner of an address in use is this process; a free address has none. */
#include "base/socket_owner.h"

#include <errno.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/err.h"

static void assert_is_mine(const struct sockaddr *sa)
{
    char text[SOCKET_OWNER_BYTES], pid[32];

    socket_owner_text(sa, text);
    snprintf(pid, sizeof(pid), "(process %d", (int)getpid());
    assert_non_null(strstr(text, " is there already "));
    assert_non_null(strstr(text, pid));
}

static void ports(void **state)
{
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof(in);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0),
        other = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    char text[SOCKET_OWNER_BYTES];
    struct fault fault = {0};

    (void)state;
    assert_int_equal(bind(fd, (struct sockaddr *)&in, n), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&in, &n), 0);
    socket_owner_text((struct sockaddr *)&in, text); /* bound, and nothing listens */
    assert_string_equal(text, "");
    assert_int_equal(listen(fd, 1), 0);
    assert_is_mine((struct sockaddr *)&in);
    assert_true(bind(other, (struct sockaddr *)&in, n) < 0);
    assert_int_equal(socket_owner_fault(&fault, "127.0.0.1:1", (struct sockaddr *)&in), E_IO);
    assert_non_null(strstr(fault.text, "cannot listen on 127.0.0.1:1: Address already in use: "));
    errno = EACCES;
    assert_int_equal(socket_owner_fault(&fault, "127.0.0.1:1", (struct sockaddr *)&in), E_IO);
    assert_null(strstr(fault.text, "already"));
    close(fd);
    close(other);
}

static void paths(void **state)
{
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    char text[SOCKET_OWNER_BYTES];

    (void)state;
    snprintf(un.sun_path, sizeof(un.sun_path), "/tmp/baton-test-owner.%d", (int)getpid());
    assert_int_equal(bind(fd, (struct sockaddr *)&un, sizeof(un)), 0);
    socket_owner_text((struct sockaddr *)&un,
                      text); /* has the path, as an accepted connection, and does not listen */
    assert_string_equal(text, "");
    assert_int_equal(listen(fd, 1), 0);
    assert_is_mine((struct sockaddr *)&un);
    close(fd);
    unlink(un.sun_path);
    socket_owner_text((struct sockaddr *)&un, text);
    assert_string_equal(text, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(ports), cmocka_unit_test(paths)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
