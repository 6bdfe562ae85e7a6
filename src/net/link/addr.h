/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses as people write them: "host:port", "10.0.0.7:9100", "[::1]:9100", "*:9100" (all, for listening).
 */
#ifndef NET_LINK_ADDR_H
#define NET_LINK_ADDR_H

#include <netinet/in.h>
#include <stdbool.h>
#include <sys/socket.h>

#include "base/fault.h"

#define ADDR_TEXT_BYTES 64 /* "[ffff:...:ffff%if]:65535" and its NUL */

struct addr {
    char host[256]; /* without brackets */
    uint16_t port;
    bool is_numeric; /* then sa and sa_bytes are filled */
    struct sockaddr_storage sa;
    socklen_t sa_bytes;
};

/* Pure: looks nothing up.  E_FORMAT. */
int addr_parse(const char *text, struct fault *fault, struct addr *out);
/* "127.0.0.1:80", "[::1]:80"; a UNIX socket is "unix". */
void addr_format(const struct sockaddr *sa, char out[ADDR_TEXT_BYTES]);
/* 127.0.0.0/8, ::1, and what is mapped onto them; false for a name. */
bool addr_is_loopback(const struct addr *addr);
/* 0 for a loopback address; E_FORMAT, or E_AUTH with "KEY TEXT is not loopback: REMEDY". */
int addr_want_loopback(const char *text, const char *key, const char *remedy, struct fault *fault);

#endif
