/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses from DNS, by c-ares: all A and AAAA records of a name, or all SRV records. The source asks again when the
 * records' time to live ends.
 *
 *     ares_query(SRV) --> targets --with ?server=: ares_getaddrinfo() for each, at once--> addresses
 *                                 --else: names, which the link looks up when it dials
 *
 * With a name server of its own (Consul's, for example) the system's resolver may not know the targets. A target that
 * server does not know either stays in the list by its name. */
#include <ares.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/str.h"
#include "net/discover/discover_priv.h"
#include "net/link/addr.h"

enum { DNS_TTL_MIN_S = 1, DNS_TTL_MAX_S = 60, DNS_TTL_DEFAULT_S = 5, DNS_QUERY_MS = 2000, DNS_TRIES = 3 };

struct dns_target { /* of an SRV record */
    struct dns_query *query;
    char host[DISCOVER_NAME_BYTES];
    unsigned port;
};

struct dns_query {
    struct source *source;
    ares_channel channel;
    struct endpoints *list; /* NULL: failed */
    struct dns_target *targets;
    unsigned n_open; /* lookups that have no answer yet */
    uint32_t ttl_s;
    int status;
};

static void dns_take_addresses(struct dns_query *query, struct ares_addrinfo *found)
{
    for (struct ares_addrinfo_node *node = found->nodes; node != NULL && query->list != NULL;
         node = node->ai_next) {
        char text[ADDR_TEXT_BYTES];

        addr_format(node->ai_addr, text);
        endpoints_add(query->list, bytes_str(text));
        if (node->ai_ttl >= 0 && (uint32_t)node->ai_ttl < query->ttl_s)
            query->ttl_s = (uint32_t)node->ai_ttl;
    }
    ares_freeaddrinfo(found);
}

static void dns_on_addresses(void *arg, int status, int n_timeouts, struct ares_addrinfo *found)
{
    struct dns_query *query = arg;

    (void)n_timeouts;
    query->n_open--;
    query->status = status;
    if (status != ARES_SUCCESS)
        return;
    query->list = calloc(1, sizeof(*query->list));
    query->ttl_s = UINT32_MAX;
    dns_take_addresses(query, found);
    if (query->ttl_s == UINT32_MAX)
        query->ttl_s = DNS_TTL_DEFAULT_S;
}

static void dns_add_name(struct dns_query *query, const char *host, unsigned port)
{
    char text[ENDPOINT_BYTES];
    int n = snprintf(text, sizeof(text), "%s:%u", host, port);

    endpoints_add(query->list, bytes_of(text, (size_t)n < sizeof(text) ? (size_t)n : sizeof(text) - 1));
}

static void dns_on_target(void *arg, int status, int n_timeouts, struct ares_addrinfo *found)
{
    struct dns_target *target = arg;

    (void)n_timeouts;
    target->query->n_open--;
    if (status == ARES_SUCCESS)
        dns_take_addresses(target->query, found);
    else
        dns_add_name(target->query, target->host, target->port);
}

static void dns_look_up(struct dns_query *query, const char *host, unsigned port,
                        ares_addrinfo_callback on_answer, void *arg)
{
    const struct ares_addrinfo_hints hints = {
        .ai_flags = ARES_AI_NUMERICSERV | ARES_AI_NOSORT, .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    char port_text[8];

    snprintf(port_text, sizeof(port_text), "%u", port & UINT16_MAX);
    query->n_open++;
    ares_getaddrinfo(query->channel, host, port_text, &hints, on_answer, arg);
}

/* Looks the targets up at the source's name server. The SRV query itself is still open, so no answer ends the source's
 * wait before all have begun. */
static void dns_take_targets(struct dns_query *query, const struct ares_srv_reply *services)
{
    unsigned n = 0;

    query->targets = calloc(ENDPOINTS_MAX, sizeof(*query->targets));
    for (const struct ares_srv_reply *one = services; one != NULL; one = one->next) {
        struct dns_target *target = query->targets != NULL ? &query->targets[n] : NULL;

        if (one->host[0] == '\0') /* the host "." means that the service does not exist */
            continue;
        if (target == NULL || n == ENDPOINTS_MAX ||
            !str_copy(target->host, sizeof(target->host), one->host)) {
            query->list->n_refused++;
            continue;
        }
        target->query = query;
        target->port = one->port;
        n++;
        dns_look_up(query, target->host, target->port, dns_on_target, target);
    }
}

static void dns_take_names(struct dns_query *query, const struct ares_srv_reply *services)
{
    for (const struct ares_srv_reply *one = services; one != NULL; one = one->next)
        if (one->host[0] != '\0')
            dns_add_name(query, one->host, one->port);
}

static void dns_on_services(void *arg, int status, int n_timeouts, unsigned char *message, int n_bytes)
{
    struct dns_query *query = arg;
    struct ares_srv_reply *services = NULL;

    (void)n_timeouts;
    if (status == ARES_SUCCESS)
        status = ares_parse_srv_reply(message, n_bytes, &services);
    query->status = status;
    if (status == ARES_SUCCESS && (query->list = calloc(1, sizeof(*query->list))) != NULL) {
        query->ttl_s = dns_reply_ttl(bytes_of(message, (size_t)n_bytes), DNS_TTL_DEFAULT_S);
        if (query->source->url.server[0] != '\0')
            dns_take_targets(query, services);
        else
            dns_take_names(query, services);
    }
    ares_free_data(services);
    query->n_open--;
}

static void dns_start(struct dns_query *query)
{
    const struct discover_url *url = &query->source->url;

    if (url->kind == DISCOVER_DNS_SRV) {
        query->n_open++;
        ares_query(query->channel, url->name, 1 /* IN */, 33 /* SRV */, dns_on_services, query);
        return;
    }
    dns_look_up(query, url->name, url->port, dns_on_addresses, query);
}

/* Waits for the sockets of the lookups, or for the end of the thread. */
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
    int status = ares_init_options(&query->channel, &options, ARES_OPT_TIMEOUTMS | ARES_OPT_TRIES);

    if (status != ARES_SUCCESS)
        return status;
    if (source->url.server[0] != '\0')
        status = ares_set_servers_ports_csv(query->channel, source->url.server);
    if (status == ARES_SUCCESS) {
        dns_start(query);
        while (query->n_open > 0 && !atomic_load(&source->thread.is_stopping))
            dns_step(query->channel, source);
        ares_cancel(query->channel);
        status = query->status;
    }
    ares_destroy(query->channel);
    free(query->targets);
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
