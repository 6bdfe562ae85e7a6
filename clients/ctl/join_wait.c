/* SPDX-License-Identifier: Apache-2.0 */
/* The port of a token.  It accepts one connection.
 *
 * All handshakes run at the same time, so that a silent connection does not delay others.  Bounds: 32 connections
 * (a new one replaces the oldest), five seconds for each, and 64 new ones a second.  A host with the token is
 * accepted after one round trip; a guess is right once in 2^256. */
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "clients/ctl/join.h"
#include "net/link/addr.h"

enum { WAIT_MAX = 32, WAIT_PER_S = 64 };

#define WAIT_EACH_NS (5 * NS_PER_S)

struct wait_guest {
    struct wire wire;
    short events;
    uint64_t until_ns;
    char peer[ADDR_TEXT_BYTES];
};

struct wait_room {
    struct wait_guest guests[WAIT_MAX]; /* oldest first */
    unsigned n;
    uint64_t second_ns; /* when the present second of the rate began */
    unsigned n_in_second;
};

int join_listen(const char *address, struct fault *fault)
{
    struct addr addr;
    int one = 1, fd, rc = addr_parse(address, fault, &addr);

    if (rc != 0)
        return rc;
    if (!addr.is_numeric)
        return fault_set(fault, E_FORMAT, "%s: give a numeric address of this host", address);
    fd = socket(addr.sa.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0)
        (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (fd >= 0 && bind(fd, (struct sockaddr *)&addr.sa, addr.sa_bytes) == 0 && listen(fd, 16) == 0)
        return fd;
    rc = fault_set(fault, E_IO, "cannot listen on %s: %m", address);
    if (fd >= 0)
        close(fd);
    return rc;
}

static void wait_drop(struct wait_room *room, unsigned i, struct join_waits *waits)
{
    wire_close(&room->guests[i].wire);
    room->n--;
    memmove(&room->guests[i], &room->guests[i + 1], (room->n - i) * sizeof(room->guests[0]));
    waits->n_refused++;
}

static void wait_accept(int listen_fd, SSL_CTX *ctx, struct wait_room *room, struct join_waits *waits)
{
    struct sockaddr_storage from;
    socklen_t from_bytes = sizeof(from);
    int fd = accept4(listen_fd, (struct sockaddr *)&from, &from_bytes, SOCK_NONBLOCK | SOCK_CLOEXEC);
    struct wait_guest *guest;

    if (fd < 0)
        return;
    room->n_in_second++;
    if (room->n == WAIT_MAX)
        wait_drop(room, 0, waits);
    guest = &room->guests[room->n];
    *guest = (struct wait_guest){.events = POLLIN, .until_ns = clock_now_ns() + WAIT_EACH_NS};
    addr_format((const struct sockaddr *)&from, guest->peer);
    if (wire_wrap(fd, ctx, true, &guest->wire) == 0)
        room->n++;
}

/* True if another connection may begin in this second. */
static bool wait_may_accept(struct wait_room *room)
{
    uint64_t now_ns = clock_now_ns();

    if (now_ns - room->second_ns >= NS_PER_S) {
        room->second_ns = now_ns;
        room->n_in_second = 0;
    }
    return room->n_in_second < WAIT_PER_S;
}

/* Continues the handshakes. Returns the index of a guest whose handshake is complete, or -1. */
static int wait_step(struct wait_room *room, const struct pollfd *polled, struct join_waits *waits)
{
    for (unsigned i = room->n; i-- > 0;) {
        struct wait_guest *guest = &room->guests[i];
        int rc = E_AGAIN;

        if (polled[i].revents != 0)
            rc = wire_step(&guest->wire, &guest->events);
        if (rc == 0)
            return (int)i;
        if (rc != E_AGAIN || clock_now_ns() >= guest->until_ns)
            wait_drop(room, i, waits);
    }
    return -1;
}

int join_wait(int listen_fd, SSL_CTX *ctx, uint64_t until_ns, struct join_waits *waits, struct wire *out)
{
    struct wait_room room = {.n = 0};
    struct pollfd polled[WAIT_MAX + 1];
    int inside = -1;

    memset(waits, 0, sizeof(*waits));
    while (inside < 0 && clock_now_ns() < until_ns) {
        unsigned n = room.n;
        bool accepts = wait_may_accept(&room);

        for (unsigned i = 0; i < n; i++)
            polled[i] = (struct pollfd){.fd = room.guests[i].wire.fd, .events = room.guests[i].events};
        polled[n] = (struct pollfd){.fd = accepts ? listen_fd : -1, .events = POLLIN};
        if (poll(polled, n + 1, 100) < 0)
            continue;
        inside = wait_step(&room, polled, waits);
        if (inside < 0 && accepts && polled[n].revents != 0)
            wait_accept(listen_fd, ctx, &room, waits);
    }
    if (inside >= 0) {
        *out = room.guests[inside].wire;
        snprintf(waits->peer, sizeof(waits->peer), "%s", room.guests[inside].peer);
        room.guests[inside].wire = (struct wire){.fd = -1};
        waits->n_refused--; /* the guest itself, which the loop below counts */
    }
    while (room.n > 0)
        wait_drop(&room, room.n - 1, waits);
    return inside >= 0 ? 0 : E_TIMEOUT;
}
