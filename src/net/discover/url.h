/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses of sources, which give the lists of daemons. Pure.
 *
 *     file:///etc/baton/routers             one host:port on each line
 *     dns://routers.example:8090            every A and AAAA record of the name, with this port
 *     dns+srv://_baton._tcp.example         every SRV record
 *     etcd://host[:port][,host...]/prefix   keys under prefix (etcds:// with TLS)
 *
 * Both forms of DNS accept ?server=address[:port], a name server that replaces the system's.
 * How to change it: docs/changes-fleet.md, "A source of addresses". */
#ifndef NET_DISCOVER_URL_H
#define NET_DISCOVER_URL_H

#include <stdbool.h>
#include <stddef.h>

#include "base/fault.h"

enum discover_kind { DISCOVER_FILE, DISCOVER_DNS, DISCOVER_DNS_SRV, DISCOVER_ETCD };

enum { DISCOVER_MAX_HOSTS = 8, DISCOVER_NAME_BYTES = 256, DISCOVER_PATH_BYTES = 1024 };

struct discover_url {
    enum discover_kind kind;
    char path[DISCOVER_PATH_BYTES]; /* file: the path; etcd: the prefix, begins with '/', no '/' at its end */
    char name[DISCOVER_NAME_BYTES]; /* DNS */
    char server[DISCOVER_NAME_BYTES];                    /* DNS; empty: the system's */
    unsigned port;                                       /* dns:// */
    unsigned n_hosts;                                    /* etcd */
    char hosts[DISCOVER_MAX_HOSTS][DISCOVER_NAME_BYTES]; /* "host:port" */
    bool is_tls;
    char user[64], password[128]; /* etcd; empty: none */
};

/* True if text has the form of a source and not of an address. */
bool discover_is_url(const char *text);
/* E_FORMAT; the fault's text never has the password. */
int discover_url_parse(const char *text, struct fault *fault, struct discover_url *out);
/* Writes the address without user and password, for logs. */
void discover_url_show(const char *text, char *out, size_t cap);

#endif
