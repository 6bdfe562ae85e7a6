/* SPDX-License-Identifier: Apache-2.0 */
/* Up to 64 sockets at a time connect without blocking; poll() tells how each went. */
#include "net/link/probe.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "net/link/addr.h"

enum { PROBE_AT_ONCE = 64 };

static enum link_outcome probe_outcome(int error)
{
    switch (error) {
    case 0:
        return LINK_PROBE_REACHED;
    case ECONNREFUSED:
        return LINK_PROBE_REFUSED;
    case ETIMEDOUT:
        return LINK_PROBE_SILENT;
    case ENETUNREACH:
    case EHOSTUNREACH:
        return LINK_PROBE_NO_ROUTE;
    default:
        return LINK_PROBE_FAILED;
    }
}

static uint32_t probe_mtu(int fd)
{
    int mtu = 0;
    socklen_t mtu_bytes = sizeof(mtu);

    if (getsockopt(fd, IPPROTO_IP, IP_MTU, &mtu, &mtu_bytes) != 0) {
        mtu_bytes = sizeof(mtu);
        if (getsockopt(fd, IPPROTO_IPV6, IPV6_MTU, &mtu, &mtu_bytes) != 0)
            return 0;
    }
    return mtu > 0 ? (uint32_t)mtu : 0;
}

/* Begins a connection. Returns its descriptor, or -1 with the outcome. */
static int probe_begin(struct link_probe *probe)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *info = NULL;
    struct addr addr;
    char port[8];
    int fd;

    if (addr_parse(probe->address, NULL, &addr) != 0 || addr.port == 0) {
        probe->outcome = LINK_PROBE_FAILED;
        return -1;
    }
    snprintf(port, sizeof(port), "%u", addr.port);
    if (getaddrinfo(addr.host, port, &hints, &info) != 0) {
        probe->outcome = LINK_PROBE_NO_NAME;
        return -1;
    }
    fd = socket(info->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, info->ai_addr, info->ai_addrlen) != 0 && errno != EINPROGRESS) {
        probe->outcome = probe_outcome(errno);
        close(fd);
        fd = -1;
    } else if (fd < 0) {
        probe->outcome = LINK_PROBE_FAILED;
    }
    freeaddrinfo(info);
    return fd;
}

static void probe_end(struct link_probe *probe, int fd, uint64_t began_ns)
{
    int error = 0;
    socklen_t error_bytes = sizeof(error);

    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &error_bytes) != 0)
        error = errno;
    probe->outcome = probe_outcome(error);
    if (error != 0)
        return;
    probe->rtt_us = (uint32_t)((clock_now_ns() - began_ns) / NS_PER_US);
    probe->mtu = probe_mtu(fd);
}

static void probe_some(struct link_probe *probes, unsigned n, uint64_t until_ns)
{
    struct pollfd polled[PROBE_AT_ONCE];
    uint64_t began_ns[PROBE_AT_ONCE], now_ns;
    unsigned n_open = 0;

    for (unsigned i = 0; i < n; i++) {
        began_ns[i] = clock_now_ns();
        polled[i] = (struct pollfd){.fd = probe_begin(&probes[i]), .events = POLLOUT};
        n_open += polled[i].fd >= 0;
    }
    while (n_open > 0 && (now_ns = clock_now_ns()) < until_ns) {
        if (poll(polled, n, (int)((until_ns - now_ns) / NS_PER_MS + 1)) < 0)
            continue;
        for (unsigned i = 0; i < n; i++) {
            if (polled[i].fd < 0 || polled[i].revents == 0)
                continue;
            probe_end(&probes[i], polled[i].fd, began_ns[i]);
            close(polled[i].fd);
            polled[i].fd = -1;
            n_open--;
        }
    }
    for (unsigned i = 0; i < n; i++)
        if (polled[i].fd >= 0) {
            probes[i].outcome = LINK_PROBE_SILENT;
            close(polled[i].fd);
        }
}

void link_probe_all(struct link_probe *probes, unsigned n, uint64_t wait_ns)
{
    unsigned n_rounds = (n + PROBE_AT_ONCE - 1) / PROBE_AT_ONCE;

    for (unsigned i = 0; i < n; i += PROBE_AT_ONCE)
        probe_some(probes + i, n - i < PROBE_AT_ONCE ? n - i : PROBE_AT_ONCE,
                   clock_now_ns() + wait_ns / n_rounds);
}
