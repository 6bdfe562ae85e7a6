/* SPDX-License-Identifier: Apache-2.0 */
/* Non-blocking sockets and poll(), so that a silent peer delays a call at most to its deadline. */
#include "clients/ctl/wire.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "net/link/addr.h"

/* Waits for events. E_TIMEOUT. */
static int wire_wait(int fd, short events, uint64_t until_ns)
{
    struct pollfd poller = {.fd = fd, .events = events};

    for (;;) {
        uint64_t now_ns = clock_now_ns();
        int n;

        if (now_ns >= until_ns)
            return E_TIMEOUT;
        n = poll(&poller, 1, (int)((until_ns - now_ns) / NS_PER_MS + 1));
        if (n > 0)
            return 0;
        if (n < 0 && errno != EINTR)
            return E_IO;
    }
}

static int wire_explain(const char *address, int error, struct fault *fault)
{
    switch (error) {
    case ECONNREFUSED:
        return fault_set(fault, E_IO, "refused: nothing listens there, or a firewall rejects it");
    case ETIMEDOUT:
        return fault_set(fault, E_TIMEOUT, "no answer: a firewall drops it, or the host is down");
    case ENETUNREACH:
    case EHOSTUNREACH:
        return fault_set(fault, E_IO, "no route to %s", address);
    default:
        return fault_set(fault, E_IO, "%s", strerror(error));
    }
}

static int wire_connect(const struct addrinfo *info, const char *address, uint64_t until_ns,
                        struct fault *fault)
{
    int fd = socket(info->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int error = 0, one = 1;
    socklen_t error_bytes = sizeof(error);

    if (fd < 0)
        return wire_explain(address, errno, fault);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    if (connect(fd, info->ai_addr, info->ai_addrlen) == 0)
        return fd;
    error = errno;
    if (error == EINPROGRESS) {
        if (wire_wait(fd, POLLOUT, until_ns) != 0)
            error = ETIMEDOUT;
        else if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &error_bytes) != 0)
            error = errno;
    }
    if (error == 0)
        return fd;
    close(fd);
    return wire_explain(address, error, fault);
}

int wire_dial(const char *address, uint64_t until_ns, struct fault *fault, struct wire *out)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *info = NULL;
    struct addr addr;
    char port[8];
    int fd, rc = addr_parse(address, fault, &addr);

    if (rc != 0)
        return rc;
    snprintf(port, sizeof(port), "%u", addr.port);
    if (getaddrinfo(addr.host, port, &hints, &info) != 0)
        return fault_set(fault, E_NOT_FOUND, "no address of the name %s is known", addr.host);
    fd = wire_connect(info, address, until_ns, fault);
    freeaddrinfo(info);
    if (fd < 0)
        return fd;
    *out = (struct wire){.fd = fd};
    return 0;
}

int wire_wrap(int fd, SSL_CTX *ctx, bool is_server, struct wire *out)
{
    *out = (struct wire){.fd = fd, .ssl = SSL_new(ctx)};
    if (out->ssl == NULL || SSL_set_fd(out->ssl, fd) != 1) {
        wire_close(out);
        return E_NOMEM;
    }
    if (is_server)
        SSL_set_accept_state(out->ssl);
    else
        SSL_set_connect_state(out->ssl);
    return 0;
}

/* Turns OpenSSL's result of a failed call into E_AGAIN with events, or another code. */
static int wire_result(const struct wire *wire, int result, short *events_out)
{
    switch (SSL_get_error(wire->ssl, result)) {
    case SSL_ERROR_WANT_READ:
        *events_out = POLLIN;
        return E_AGAIN;
    case SSL_ERROR_WANT_WRITE:
        *events_out = POLLOUT;
        return E_AGAIN;
    case SSL_ERROR_SSL:
        return E_AUTH;
    default:
        return E_CLOSED;
    }
}

int wire_step(struct wire *wire, short *events_out)
{
    int result;

    ERR_clear_error();
    result = SSL_do_handshake(wire->ssl);
    return result == 1 ? 0 : wire_result(wire, result, events_out);
}

int wire_shake(struct wire *wire, SSL_CTX *ctx, uint64_t until_ns, struct fault *fault)
{
    short events = 0;
    int rc = wire_wrap(wire->fd, ctx, false, wire);

    if (rc != 0)
        return fault_set(fault, rc, "%s", err_text(rc));
    while ((rc = wire_step(wire, &events)) == E_AGAIN)
        if (wire_wait(wire->fd, events, until_ns) != 0) {
            rc = E_TIMEOUT;
            break;
        }
    if (rc == E_TIMEOUT)
        return fault_set(
            fault, rc, "connects, and says nothing: another program listens there, or its packets are lost");
    if (rc == E_AUTH)
        return fault_set(fault, rc, "the other side does not have this key");
    return rc != 0 ? fault_set(fault, rc, "the other side closed the connection") : 0;
}

static int wire_fail(int rc, struct fault *fault)
{
    if (rc == E_TIMEOUT)
        return fault_set(fault, rc, "no data for too long");
    return fault_set(fault, rc, "the other side closed the connection");
}

/* Waits after a read or write that did not end; the fault says what ended the connection instead. */
static int wire_again(const struct wire *wire, uint64_t until_ns, struct fault *fault)
{
    short events = 0;
    int rc = wire_result(wire, 0, &events);

    if (rc == E_AGAIN)
        rc = wire_wait(wire->fd, events, until_ns);
    return rc != 0 ? wire_fail(rc, fault) : 0;
}

int wire_write(struct wire *wire, struct bytes data, uint64_t until_ns, struct fault *fault)
{
    size_t at = 0, n = 0;

    while (at < data.len_bytes) {
        int rc;

        ERR_clear_error();
        if (SSL_write_ex(wire->ssl, data.data + at, data.len_bytes - at, &n) == 1) {
            at += n;
            continue;
        }
        rc = wire_again(wire, until_ns, fault);
        if (rc != 0)
            return rc;
    }
    return 0;
}

int wire_read(struct wire *wire, size_t len_bytes, uint64_t until_ns, struct fault *fault, struct buf *out)
{
    size_t wanted = len_bytes > 0 ? len_bytes : out->len_bytes + 1, n = 0;

    while (out->len_bytes < wanted) {
        uint8_t piece[4096];
        int rc;

        ERR_clear_error();
        if (SSL_read_ex(wire->ssl, piece, sizeof(piece), &n) == 1) {
            rc = buf_append(out, piece, n);
            OPENSSL_cleanse(piece, n); /* it may hold a key */
            if (rc != 0)
                return fault_set(fault, E_NOMEM, "%s", err_text(E_NOMEM));
            continue;
        }
        rc = wire_again(wire, until_ns, fault);
        if (rc != 0)
            return rc;
    }
    return 0;
}

unsigned wire_mtu(const struct wire *wire)
{
    int mtu = 0;
    socklen_t mtu_bytes = sizeof(mtu);

    if (getsockopt(wire->fd, IPPROTO_IP, IP_MTU, &mtu, &mtu_bytes) == 0 && mtu > 0)
        return (unsigned)mtu;
    mtu_bytes = sizeof(mtu);
    if (getsockopt(wire->fd, IPPROTO_IPV6, IPV6_MTU, &mtu, &mtu_bytes) == 0 && mtu > 0)
        return (unsigned)mtu;
    return 0;
}

void wire_close(struct wire *wire)
{
    SSL_free(wire->ssl);
    if (wire->fd >= 0)
        close(wire->fd);
    *wire = (struct wire){.fd = -1};
}
