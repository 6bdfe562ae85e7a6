/* SPDX-License-Identifier: Apache-2.0 */
/* See redis_rig.h. */
#include "redis_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <arpa/inet.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"

static const char *const redis_programs[] = {"/usr/bin/redis-server", "/usr/bin/valkey-server",
                                             "/usr/local/bin/redis-server"};

static const char *redis_rig_program(void)
{
    for (size_t i = 0; i < sizeof(redis_programs) / sizeof(redis_programs[0]); i++)
        if (access(redis_programs[i], X_OK) == 0)
            return redis_programs[i];
    return NULL;
}

bool redis_rig_can(void)
{
    return redis_rig_program() != NULL;
}

static int redis_rig_socket(uint16_t *port, bool connects)
{
    struct sockaddr_in at = {
        .sin_family = AF_INET, .sin_port = htons(*port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(at);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_true(fd >= 0);
    if (connects ? connect(fd, (struct sockaddr *)&at, len) == 0
                 : bind(fd, (struct sockaddr *)&at, len) == 0 &&
                       getsockname(fd, (struct sockaddr *)&at, &len) == 0) {
        *port = ntohs(at.sin_port);
        return fd;
    }
    close(fd);
    return -1;
}

static void redis_rig_child(uint16_t port, const char *const *more)
{
    char port_text[8];
    const char *args[32] = {redis_rig_program(), "--port", port_text,    "--bind", "127.0.0.1", "--save", "",
                            "--appendonly",      "no",     "--loglevel", "warning"};
    size_t n = 11;
    int null = open("/dev/null", O_RDWR);

    snprintf(port_text, sizeof(port_text), "%u", port);
    for (; more != NULL && *more != NULL && n < 31; more++)
        args[n++] = *more;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(null, 0);
    dup2(null, 1);
    dup2(null, 2);
    execv(args[0], (char *const *)(uintptr_t)args);
    _exit(127);
}

void redis_rig_start(struct redis_rig *rig, uint16_t port, const char *const *more)
{
    uint64_t until_ns = clock_now_ns() + 60 * NS_PER_S;
    int fd;

    if (port == 0) {
        fd = redis_rig_socket(&port, false);
        assert_true(fd >= 0);
        close(fd);
    }
    *rig = (struct redis_rig){.port = port};
    snprintf(rig->url, sizeof(rig->url), "redis://127.0.0.1:%u", port);
    rig->pid = fork();
    assert_true(rig->pid >= 0);
    if (rig->pid == 0)
        redis_rig_child(port, more);
    while ((fd = redis_rig_socket(&port, true)) < 0) {
        assert_true(clock_now_ns() < until_ns);
        clock_sleep_ns(5 * NS_PER_MS);
    }
    close(fd);
}

void redis_rig_stop(struct redis_rig *rig)
{
    if (rig->pid == 0)
        return;
    kill(rig->pid, SIGKILL);
    waitpid(rig->pid, NULL, 0);
    rig->pid = 0;
}
