/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses from DNS, by c-ares: all A and AAAA records of a name, or all SRV records. The source asks again when the
 * records' time to live ends. */
#include <ares.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "net/discover/discover_priv.h"
#include "net/link/addr.h"

enum { DNS_TTL_MIN_S = 1, DNS_TTL_MAX_S = 60, DNS_TTL_DEFAULT_S = 5, DNS_QUERY_MS = 2000, DNS_TRIES = 3 };

struct dns_query {
    struct source *source;
    struct endpoints *list; /* NULL: failed */
    uint32_t ttl_s;
    bool is_done;
    int status;
};

static void dns_on_addresses(void *arg, int status, int n_timeouts, struct ares_addrinfo *found)
{
    struct dns_query *query = arg;
    int ttl = INT32_MAX;

    (void)n_timeouts;
    query->is_done = true;
    query->status = status;
    if (status != ARES_SUCCESS)
        return;
    query->list = calloc(1, sizeof(*query->list));
    for (struct ares_addrinfo_node *node = found->nodes; node != NULL && query->list != NULL;
         node = node->ai_next) {
        char text[ADDR_TEXT_BYTES];

        addr_format(node->ai_addr, text);
        endpoints_add(query->list, bytes_str(text));
        if (node->ai_ttl < ttl)
            ttl = node->ai_ttl;
    }
    query->ttl_s = ttl == INT32_MAX ? DNS_TTL_DEFAULT_S : (uint32_t)ttl;
    ares_freeaddrinfo(found);
}

static void dns_on_services(void *arg, int status, int n_timeouts, unsigned char *message, int n_bytes)
{
    struct dns_query *query = arg;
    struct ares_srv_reply *services = NULL;

    (void)n_timeouts;
    query->is_done = true;
    if (status == ARES_SUCCESS)
        status = ares_parse_srv_reply(message, n_bytes, &services);
    query->status = status;
    if (status != ARES_SUCCESS)
        return;
    query->list = calloc(1, sizeof(*query->list));
    for (struct ares_srv_reply *one = services; one != NULL && query->list != NULL; one = one->next) {
        char text[ENDPOINT_BYTES];
        int n = snprintf(text, sizeof(text), "%s:%u", one->host, one->port);

        if (one->host[0] != '\0') /* the host "." means that the service does not exist */
            endpoints_add(query->list, bytes_of(text, (size_t)n));
    }
    query->ttl_s = dns_reply_ttl(bytes_of(message, (size_t)n_bytes), DNS_TTL_DEFAULT_S);
    ares_free_data(services);
}

static void dns_start(ares_channel channel, struct dns_query *query)
{
    const struct discover_url *url = &query->source->url;
    const struct ares_addrinfo_hints hints = {
        .ai_flags = ARES_AI_NUMERICSERV | ARES_AI_NOSORT, .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    char port[8];

    if (url->kind == DISCOVER_DNS_SRV) {
        ares_query(channel, url->name, 1 /* IN */, 33 /* SRV */, dns_on_services, query);
        return;
    }
    snprintf(port, sizeof(port), "%u", url->port);
    ares_getaddrinfo(channel, url->name, port, &hints, dns_on_addresses, query);
}

/* Waits for the sockets of one query, or for the end of the thread. */
static void dns_step(ares_channel channel, struct source *source)
{
    ares_socket_t sockets[ARES_GETSOCK_MAXNUM];
    struct pollfd fds[ARES_GETSOCK_MAXNUM + 1] = {{.fd = source->thread.stop_fd, .events = POLLIN}};
    int mask = ares_getsock(channel, sockets, ARES_GETSOCK_MAXNUM), n = 0;
    struct timeval limit = {.tv_sec = 1}, room, *left;

    for (int i = 0; i < ARES_GETSOCK_MAXNUM; i++) {
        short events = (short)((ARES_GETSOCK_READABLE(mask, i) ? POLLIN : 0) |
                               (ARES_GETSOCK_WRITABLE(mask, i) ? POLLOUT : 0));
        if (events != 0)
            fds[++n] = (struct pollfd){.fd = sockets[i], .events = events};
    }
    left = ares_timeout(channel, &limit, &room);
    if (poll(fds, (nfds_t)n + 1, (int)(left->tv_sec * 1000 + left->tv_usec / 1000 + 1)) <= 0) {
        ares_process_fd(channel, ARES_SOCKET_BAD, ARES_SOCKET_BAD);
        return;
    }
    for (int i = 1; i <= n; i++)
        if (fds[i].revents != 0)
            ares_process_fd(channel, (fds[i].revents & ~POLLOUT) != 0 ? fds[i].fd : ARES_SOCKET_BAD,
                            (fds[i].revents & POLLOUT) != 0 ? fds[i].fd : ARES_SOCKET_BAD);
}

static int dns_ask(struct source *source, struct dns_query *query)
{
    struct ares_options options = {.timeout = DNS_QUERY_MS, .tries = DNS_TRIES};
    ares_channel channel;
    int status = ares_init_options(&channel, &options, ARES_OPT_TIMEOUTMS | ARES_OPT_TRIES);

    if (status != ARES_SUCCESS)
        return status;
    if (source->url.server[0] != '\0')
        status = ares_set_servers_ports_csv(channel, source->url.server);
    if (status == ARES_SUCCESS) {
        dns_start(channel, query);
        while (!query->is_done && !atomic_load(&source->thread.is_stopping))
            dns_step(channel, source);
        ares_cancel(channel);
        status = query->status;
    }
    ares_destroy(channel);
    return status;
}

static uint64_t dns_pause_ns(uint32_t ttl_s)
{
    uint32_t s = ttl_s < DNS_TTL_MIN_S ? DNS_TTL_MIN_S : ttl_s > DNS_TTL_MAX_S ? DNS_TTL_MAX_S : ttl_s;

    return s * NS_PER_S;
}

void *dns_source_run(void *arg)
{
    struct source *source = arg;
    unsigned n_failures = 0;
    uint64_t pause_ns;

    do {
        struct dns_query query = {.source = source};
        struct fault why = {0};
        int status = dns_ask(source, &query);
        bool is_known = status == ARES_SUCCESS && query.list != NULL;

        fault_set(&why, E_IO, "%s", ares_strerror(status));
        n_failures = is_known ? 0 : n_failures + 1;
        pause_ns = is_known ? dns_pause_ns(query.ttl_s) : discover_pause_ns(n_failures);
        source_report(source, query.list, &why);
    } while (discover_thread_wait(&source->thread, pause_ns));
    return NULL;
}
