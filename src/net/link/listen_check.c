/* SPDX-License-Identifier: Apache-2.0 */
/* Binds a socket and closes it again, without listening, so a running daemon is not disturbed. If a daemon
 * already has the port, that is no fault of the configuration. */
#include "net/link/listen_check.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"

static int try_bind(const struct addr *addr, const char *text, struct fault *fault)
{
    const int on = 1;
    int fd = socket(addr->sa.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int rc = 0;

    if (fd < 0 && errno == EAFNOSUPPORT)
        return fault_set(fault, E_IO, "'%s': this host has no IPv%d", text,
                         addr->sa.ss_family == AF_INET6 ? 6 : 4);
    if (fd < 0)
        return 0; /* out of descriptors: temporary, no fault */
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (bind(fd, (const struct sockaddr *)&addr->sa, addr->sa_bytes) != 0) {
        if (errno == EADDRNOTAVAIL)
            rc = fault_set(fault, E_IO, "'%s' is not an address of this host", text);
        else if (errno == EACCES)
            rc = fault_set(fault, E_IO, "'%s': this user may not listen on port %u", text, addr->port);
    }
    close(fd);
    return rc;
}

int listen_check(const char *text, struct fault *fault, struct addr *out)
{
    int rc;

    if (strncmp(text, "unix:", 5) == 0)
        return fault_set(fault, E_FORMAT, "'%s': no UNIX socket is possible here; give address:port", text);
    rc = addr_parse(text, fault, out);
    if (rc < 0)
        return rc;
    if (!out->is_numeric)
        return fault_set(fault, E_FORMAT,
                         "'%s': an address to listen on is numeric, like 127.0.0.1:8080 or [::1]:8080", text);
    return try_bind(out, text, fault);
}

static bool listen_check_is_any(const struct addr *addr)
{
    if (addr->sa.ss_family == AF_INET6)
        return IN6_IS_ADDR_UNSPECIFIED(&((const struct sockaddr_in6 *)(const void *)&addr->sa)->sin6_addr);
    return ((const struct sockaddr_in *)(const void *)&addr->sa)->sin_addr.s_addr == htonl(INADDR_ANY);
}

static bool is_same_host(const struct addr *a, const struct addr *b)
{
    const struct sockaddr_in6 *a6 = (const struct sockaddr_in6 *)(const void *)&a->sa;
    const struct sockaddr_in6 *b6 = (const struct sockaddr_in6 *)(const void *)&b->sa;
    const struct sockaddr_in *a4 = (const struct sockaddr_in *)(const void *)&a->sa;
    const struct sockaddr_in *b4 = (const struct sockaddr_in *)(const void *)&b->sa;

    if (a->sa.ss_family == AF_INET6)
        return IN6_ARE_ADDR_EQUAL(&a6->sin6_addr, &b6->sin6_addr) && a6->sin6_scope_id == b6->sin6_scope_id;
    return a4->sin_addr.s_addr == b4->sin_addr.s_addr;
}

bool listen_same(const struct addr *a, const struct addr *b)
{
    if (a->port == 0 || a->port != b->port)
        return false;
    if (!a->is_numeric || !b->is_numeric)
        return strcmp(a->host, b->host) == 0;
    if (strcmp(a->host, "*") == 0 || strcmp(b->host, "*") == 0)
        return true; /* one socket for both families */
    if (a->sa.ss_family != b->sa.ss_family)
        return false;
    return listen_check_is_any(a) || listen_check_is_any(b) || is_same_host(a, b);
}
