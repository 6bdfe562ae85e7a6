/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses in the form "host:port": "10.0.0.7:9100", "[::1]:9100"; "*:9100" listens on all addresses. */
#ifndef NET_LINK_ADDR_H
#define NET_LINK_ADDR_H

#include <netinet/in.h>
#include <stdbool.h>
#include <sys/socket.h>

#include "base/fault.h"

#define ADDR_TEXT_BYTES 64 /* "[ffff:...:ffff%if]:65535" with its NUL */

struct addr {
    char host[256]; /* without brackets */
    uint16_t port;
    bool is_numeric; /* if true, sa and sa_bytes are set */
    struct sockaddr_storage sa;
    socklen_t sa_bytes;
};

/* Parses text without a name lookup; pure. E_FORMAT. */
int addr_parse(const char *text, struct fault *fault, struct addr *out);
/* Writes "127.0.0.1:80" or "[::1]:80"; for a UNIX socket "unix". */
void addr_format(const struct sockaddr *sa, char out[ADDR_TEXT_BYTES]);
/* True for 127.0.0.0/8, ::1 and IPv6 addresses that map 127.0.0.0/8. False for a name. */
bool addr_is_loopback(const struct addr *addr);
/* True for "*", 0.0.0.0 and ::, also mapped.  Such an address listens everywhere and cannot be dialled. */
bool addr_is_any(const struct addr *addr);
/* Returns 0 for a loopback address; E_FORMAT; else E_AUTH with the text "KEY TEXT is not loopback:
 * REMEDY". */
int addr_want_loopback(const char *text, const char *key, const char *remedy, struct fault *fault);

#endif
