/* SPDX-License-Identifier: Apache-2.0 */
/* A token stream sends small packets, which no congestion control ever delays; only the processor cost
 * differs. BBR paces each packet with a timer and updates a path model with every acknowledgement. CUBIC
 * does almost nothing for such a stream. */
#include "net/http/congestion.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/err.h"
#include "base/file.h"

#define AVAILABLE "/proc/sys/net/ipv4/tcp_available_congestion_control"

int http_congestion_set(int fd, const char *name)
{
    if (name == NULL || name[0] == '\0')
        return 0;
    return setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, (socklen_t)strlen(name));
}

/* Reads one line; "unknown" if it cannot be read. */
static void read_available(char *out, size_t out_bytes)
{
    if (!file_read_line(AVAILABLE, out, out_bytes))
        snprintf(out, out_bytes, "unknown");
}

int http_congestion_check(const char *name, struct fault *fault)
{
    char available[128];
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int rc = 0;

    if (fd < 0)
        fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return fault_set(fault, E_IO, "cannot make a socket: %s", strerror(errno));
    if (http_congestion_set(fd, name) < 0) {
        const char *why = errno == ENOENT  ? "the kernel knows no such one"
                          : errno == EPERM ? "only root may use this one"
                                           : strerror(errno);

        read_available(available, sizeof(available));
        rc = fault_set(fault, E_UNSUPPORTED, "http.congestion_control = %s: %s; available: %s", name, why,
                       available);
    }
    close(fd);
    return rc;
}
