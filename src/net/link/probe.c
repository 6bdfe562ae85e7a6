/* SPDX-License-Identifier: Apache-2.0 */
/* Up to 64 sockets connect at the same time without blocking; poll() reports the result of each.
 *
 *     look all names up  ->  begin all connections  ->  the time runs: poll
 *
 * The time limit starts after the look-ups, so a slow name server takes no time from the connections. */
#include "net/link/probe.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
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

struct probe_target {
    struct sockaddr_storage sa;
    socklen_t sa_bytes; /* 0: no address to connect to */
    uint64_t began_ns;
};

/* Blocks while the name is looked up. Sets the outcome if there is no address. */
static void probe_resolve(struct link_probe *probe, struct probe_target *out)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *info = NULL;
    struct addr addr;
    char port[8];

    out->sa_bytes = 0;
    if (addr_parse(probe->address, NULL, &addr) != 0 || addr.port == 0) {
        probe->outcome = LINK_PROBE_FAILED;
        return;
    }
    snprintf(port, sizeof(port), "%u", addr.port);
    if (getaddrinfo(addr.host, port, &hints, &info) != 0) {
        probe->outcome = LINK_PROBE_NO_NAME;
        return;
    }
    memcpy(&out->sa, info->ai_addr, info->ai_addrlen);
    out->sa_bytes = info->ai_addrlen;
    freeaddrinfo(info);
}

/* Begins a connection. Returns its descriptor, or -1 with the outcome. */
static int probe_begin(struct link_probe *probe, struct probe_target *target)
{
    int fd = socket(target->sa.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    if (fd < 0) {
        probe->outcome = LINK_PROBE_FAILED;
        return -1;
    }
    target->began_ns = clock_now_ns();
    if (connect(fd, (const struct sockaddr *)&target->sa, target->sa_bytes) == 0 || errno == EINPROGRESS)
        return fd;
    probe->outcome = probe_outcome(errno);
    close(fd);
    return -1;
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

/* Polls until all have ended or the time is over, at least once. */
static void probe_wait(struct link_probe *probes, const struct probe_target *targets, struct pollfd *polled,
                       unsigned n, uint64_t until_ns)
{
    unsigned n_open = 0;
    uint64_t now_ns;

    for (unsigned i = 0; i < n; i++)
        n_open += polled[i].fd >= 0;
    while (n_open > 0) {
        now_ns = clock_now_ns();
        if (poll(polled, n, now_ns < until_ns ? (int)((until_ns - now_ns) / NS_PER_MS + 1) : 0) > 0)
            for (unsigned i = 0; i < n; i++) {
                if (polled[i].fd < 0 || polled[i].revents == 0)
                    continue;
                probe_end(&probes[i], polled[i].fd, targets[i].began_ns);
                close(polled[i].fd);
                polled[i].fd = -1;
                n_open--;
            }
        if (now_ns >= until_ns)
            break;
    }
}

static bool probe_is_cancelled(const atomic_bool *cancel)
{
    return cancel != NULL && atomic_load_explicit(cancel, memory_order_relaxed);
}

static void probe_some(struct link_probe *probes, unsigned n, uint64_t wait_ns, const atomic_bool *cancel)
{
    struct probe_target targets[PROBE_AT_ONCE];
    struct pollfd polled[PROBE_AT_ONCE];

    for (unsigned i = 0; i < n; i++) {
        if (probe_is_cancelled(cancel))
            return;
        probe_resolve(&probes[i], &targets[i]);
    }
    for (unsigned i = 0; i < n; i++)
        polled[i] = (struct pollfd){.fd = targets[i].sa_bytes > 0 ? probe_begin(&probes[i], &targets[i]) : -1,
                                    .events = POLLOUT};
    probe_wait(probes, targets, polled, n, clock_now_ns() + wait_ns);
    for (unsigned i = 0; i < n; i++)
        if (polled[i].fd >= 0) {
            probes[i].outcome = LINK_PROBE_SILENT;
            close(polled[i].fd);
        }
}

void link_probe_all(struct link_probe *probes, unsigned n, uint64_t wait_ns, const atomic_bool *cancel)
{
    unsigned n_rounds = (n + PROBE_AT_ONCE - 1) / PROBE_AT_ONCE;

    for (unsigned i = 0; i < n && !probe_is_cancelled(cancel); i += PROBE_AT_ONCE)
        probe_some(probes + i, n - i < PROBE_AT_ONCE ? n - i : PROBE_AT_ONCE, wait_ns / n_rounds, cancel);
}
