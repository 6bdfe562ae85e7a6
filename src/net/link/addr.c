/* SPDX-License-Identifier: Apache-2.0 */
/* Parses "host:port". The last colon separates them; a host that contains colons stands in brackets, as in
 * a URL. */
#include "net/link/addr.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/str.h"

static int addr_split(const char *text, struct fault *fault, struct bytes *host_out, struct bytes *port_out)
{
    const char *colon = strrchr(text, ':');
    size_t host_bytes;

    if (colon == NULL || colon[1] == '\0')
        return fault_set(fault, E_FORMAT, "'%s': expected host:port", text);
    host_bytes = (size_t)(colon - text);
    *port_out = bytes_str(colon + 1);
    if (text[0] == '[') {
        if (host_bytes < 3 || text[host_bytes - 1] != ']')
            return fault_set(fault, E_FORMAT, "'%s': expected [address]:port", text);
        *host_out = bytes_of(text + 1, host_bytes - 2);
        return 0;
    }
    *host_out = bytes_of(text, host_bytes);
    if (host_bytes == 0 || memchr(text, ':', host_bytes) != NULL)
        return fault_set(fault, E_FORMAT, "'%s': expected host:port (an IPv6 address in brackets)", text);
    return 0;
}

static void resolve_numeric(struct addr *addr)
{
    struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV, .ai_socktype = SOCK_STREAM};
    struct addrinfo *info = NULL;
    char port[6];

    snprintf(port, sizeof(port), "%u", addr->port);
    if (getaddrinfo(strcmp(addr->host, "*") == 0 ? "::" : addr->host, port, &hints, &info) != 0)
        return;
    addr->is_numeric = true;
    addr->sa_bytes = info->ai_addrlen;
    memcpy(&addr->sa, info->ai_addr, info->ai_addrlen);
    freeaddrinfo(info);
}

int addr_parse(const char *text, struct fault *fault, struct addr *out)
{
    struct addr addr = {.port = 0};
    struct bytes host = {0}, port = {0};
    uint64_t number;
    int err = addr_split(text, fault, &host, &port);

    if (err != 0)
        return err;
    if (str_to_u64(port, &number) != 0 || number > UINT16_MAX)
        return fault_set(fault, E_FORMAT, "'%s': the port is not a number up to 65535", text);
    if (host.len_bytes >= sizeof(addr.host))
        return fault_set(fault, E_FORMAT, "'%.40s...': the host name is too long", text);
    for (size_t i = 0; i < host.len_bytes; i++)
        if (host.data[i] <= ' ' || host.data[i] >= 0x7f || strchr("/@[]?#", host.data[i]) != NULL)
            return fault_set(fault, E_FORMAT, "'%s': '%c' cannot be in a host name", text, host.data[i]);
    memcpy(addr.host, host.data, host.len_bytes);
    addr.port = (uint16_t)number;
    resolve_numeric(&addr);
    *out = addr;
    return 0;
}

void addr_format(const struct sockaddr *sa, char out[ADDR_TEXT_BYTES])
{
    char host[INET6_ADDRSTRLEN];

    if (sa->sa_family == AF_INET) {
        const struct sockaddr_in *in = (const struct sockaddr_in *)(const void *)sa;

        inet_ntop(AF_INET, &in->sin_addr, host, sizeof(host));
        snprintf(out, ADDR_TEXT_BYTES, "%s:%u", host, ntohs(in->sin_port));
    } else if (sa->sa_family == AF_INET6) {
        const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)(const void *)sa;

        inet_ntop(AF_INET6, &in6->sin6_addr, host, sizeof(host));
        snprintf(out, ADDR_TEXT_BYTES, "[%s]:%u", host, ntohs(in6->sin6_port));
    } else {
        snprintf(out, ADDR_TEXT_BYTES, "%s", sa->sa_family == AF_UNIX ? "unix" : "?");
    }
}

bool addr_is_loopback(const struct addr *addr)
{
    if (!addr->is_numeric)
        return false;
    if (addr->sa.ss_family == AF_INET) {
        const struct sockaddr_in *in = (const struct sockaddr_in *)(const void *)&addr->sa;

        return ntohl(in->sin_addr.s_addr) >> 24 == 127;
    }

    const struct in6_addr *in6 = &((const struct sockaddr_in6 *)(const void *)&addr->sa)->sin6_addr;
    return IN6_IS_ADDR_LOOPBACK(in6) || (IN6_IS_ADDR_V4MAPPED(in6) && in6->s6_addr[12] == 127);
}

bool addr_is_any(const struct addr *addr)
{
    if (!addr->is_numeric)
        return false;
    if (addr->sa.ss_family == AF_INET)
        return ((const struct sockaddr_in *)(const void *)&addr->sa)->sin_addr.s_addr == htonl(INADDR_ANY);

    const struct in6_addr *in6 = &((const struct sockaddr_in6 *)(const void *)&addr->sa)->sin6_addr;
    return IN6_IS_ADDR_UNSPECIFIED(in6) ||
           (IN6_IS_ADDR_V4MAPPED(in6) && memcmp(in6->s6_addr + 12, "\0\0\0", 4) == 0);
}

int addr_want_loopback(const char *text, const char *key, const char *remedy, struct fault *fault)
{
    struct addr addr;
    int rc = addr_parse(text, fault, &addr);

    if (rc == 0 && !addr_is_loopback(&addr))
        rc = fault_set(fault, E_AUTH, "%s %s is not loopback: %s", key, text, remedy);
    return rc;
}
