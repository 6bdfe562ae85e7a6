/* SPDX-License-Identifier: Apache-2.0 */
/* The client has one server and looks it up once. If the name has several addresses, it tries one after
 * the other, the last good one first. A call owns the text of its request until it ends, so that a fresh
 * connection can send it again when a reused one proves dead (see client_conn.c). */
#include "net/http/client_priv.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/str.h"

/* ---- the client ---- */

static int http_client_look_up(struct http_client *client, const struct addr *addr, struct fault *fault)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_ADDRCONFIG};
    struct addrinfo *list;
    char port[8];
    int rc;

    if (addr->is_numeric) {
        client->addresses[0] = (struct server_address){.sa = addr->sa, .sa_bytes = addr->sa_bytes};
        client->n_addresses = 1;
        return 0;
    }
    snprintf(port, sizeof(port), "%u", addr->port);
    rc = getaddrinfo(addr->host, port, &hints, &list);
    if (rc != 0)
        return fault_set(fault, E_NOT_FOUND, "cannot look up %s: %s", addr->host,
                         rc == EAI_SYSTEM ? strerror(errno) : gai_strerror(rc));
    for (struct addrinfo *at = list; at != NULL && client->n_addresses < CLIENT_MAX_ADDRESSES;
         at = at->ai_next) {
        struct server_address *address = &client->addresses[client->n_addresses];

        if (at->ai_addrlen > sizeof(address->sa))
            continue;
        memcpy(&address->sa, at->ai_addr, at->ai_addrlen);
        address->sa_bytes = at->ai_addrlen;
        client->n_addresses++;
    }
    freeaddrinfo(list);
    return client->n_addresses > 0 ? 0 : fault_set(fault, E_NOT_FOUND, "%s has no address", addr->host);
}

int http_client_new(const struct http_client_opts *opts, struct fault *fault, struct http_client **out)
{
    struct addr addr;
    struct http_client *client;
    int rc = addr_parse(opts->address, fault, &addr);

    if (rc == 0 && addr.port == 0)
        rc = fault_set(fault, E_FORMAT, "'%s': a port to connect to is a number from 1 to 65535",
                       opts->address);
    if (rc < 0)
        return rc;
    client = calloc(1, sizeof(*client));
    if (client == NULL)
        return fault_set(fault, E_NOMEM, "out of memory");
    client->opts = *opts;
    client->opts.address = NULL;
    if (client->opts.max_idle_conns == 0)
        client->opts.max_idle_conns = 64;
    if (client->opts.idle_ns == 0)
        client->opts.idle_ns = 30 * NS_PER_S;
    if (client->opts.connect_ns == 0)
        client->opts.connect_ns = 10 * NS_PER_S;
    str_copy(client->host, sizeof(client->host), opts->address);
    list_init(&client->conns);
    list_init(&client->idle);
    rc = http_client_look_up(client, &addr, fault);
    if (rc < 0) {
        free(client);
        return rc;
    }
    *out = client;
    return 0;
}

uint32_t http_client_n_calls(const struct http_client *client)
{
    return client->n_calls;
}

uint32_t http_client_n_idle(const struct http_client *client)
{
    return client->n_idle;
}

/* ---- calls ---- */

static void call_free(struct http_call *call)
{
    if (call == NULL)
        return;
    ev_timer_free(call->deadline);
    buf_fini(&call->request);
    call->client->n_calls--;
    free(call);
}

void http_client_call_end(struct http_call *call, int result, const struct fault *fault)
{
    const struct http_call_events *events = call->events;
    void *arg = call->arg;

    if (call->conn != NULL)
        call->conn->call = NULL;
    call_free(call);
    events->on_end(arg, result, fault);
}

/* ---- starting and stopping ---- */

static const char *method_name(enum http_method method)
{
    static const char *const names[] = {
        [HTTP_GET] = "GET",       [HTTP_HEAD] = "HEAD",       [HTTP_POST] = "POST", [HTTP_PUT] = "PUT",
        [HTTP_DELETE] = "DELETE", [HTTP_OPTIONS] = "OPTIONS", [HTTP_OTHER] = NULL};

    return names[method];
}

static bool is_path(const char *path)
{
    for (const char *c = path; *c != '\0'; c++)
        if (*c <= ' ' || *c == 0x7f)
            return false;
    return *path == '/';
}

static void put_request(const struct http_client *client, const struct http_call_opts *opts, struct buf *out)
{
    buf_printf(out, "%s %s HTTP/1.1\r\nhost: %s\r\n", method_name(opts->method), opts->path, client->host);
    if (opts->fields != NULL && opts->fields->text.len_bytes > 0)
        buf_append(out, opts->fields->text.data, opts->fields->text.len_bytes);
    if (opts->body.len_bytes > 0 || opts->method == HTTP_POST || opts->method == HTTP_PUT)
        buf_printf(out, "content-length: %zu\r\n", opts->body.len_bytes);
    buf_append_str(out, "\r\n");
    buf_append(out, opts->body.data, opts->body.len_bytes);
}

static void on_deadline(void *arg)
{
    struct http_call *call = arg;
    struct client_conn *conn = call->conn;

    http_client_conn_fail(conn, E_TIMEOUT,
                          call->has_head ? "the answer did not end in time" : "no answer in time");
}

static int call_new(struct http_client *client, const struct http_call_opts *opts, struct http_call **out)
{
    struct http_call *call = calloc(1, sizeof(*call));

    if (call == NULL)
        return E_NOMEM;
    client->n_calls++;
    call->client = client;
    call->events = opts->events;
    call->arg = opts->arg;
    call->is_for_head = opts->method == HTTP_HEAD;
    call->may_repeat = opts->may_repeat;
    put_request(client, opts, &call->request);
    if (call->request.is_bad ||
        (opts->timeout_ns > 0 && ev_timer_new(client->opts.loop, on_deadline, call, &call->deadline) < 0)) {
        call_free(call);
        return E_NOMEM;
    }
    *out = call;
    return 0;
}

int http_client_start(struct http_client *client, const struct http_call_opts *opts, struct http_call **out)
{
    struct list *idle = client->idle.next;
    struct client_conn *conn;
    struct http_call *call;
    int rc;

    if (!is_path(opts->path) || method_name(opts->method) == NULL)
        return E_INVAL;
    rc = call_new(client, opts, &call);
    if (rc < 0)
        return rc;
    if (idle != &client->idle) {
        conn = container_of(idle, struct client_conn, in_idle);
        http_client_conn_leave_idle(conn);
        http_client_conn_attach(conn, call);
        ev_timer_stop(conn->timer);
        rc = bufferevent_write(conn->bev, call->request.data, call->request.len_bytes) < 0 ? E_NOMEM : 0;
    } else {
        conn = http_client_conn_new(client);
        rc = conn == NULL ? E_NOMEM : 0;
        if (rc == 0) {
            http_client_conn_attach(conn, call);
            http_client_conn_open(conn);
        }
    }
    if (rc < 0) {
        if (conn != NULL) {
            conn->call = NULL;
            http_client_conn_close(conn);
        }
        call_free(call);
        return rc;
    }
    if (call->deadline != NULL)
        ev_timer_start(call->deadline, opts->timeout_ns);
    *out = call;
    return 0;
}

void http_call_cancel(struct http_call *call)
{
    struct client_conn *conn = call->conn;

    conn->call = NULL;
    call_free(call);
    http_client_conn_close(conn);
}

void http_client_free(struct http_client *client)
{
    if (client == NULL)
        return;
    list_for_each_safe (node, spare, &client->conns) {
        struct client_conn *conn = container_of(node, struct client_conn, in_conns);

        if (conn->call != NULL)
            http_call_cancel(conn->call);
        else
            http_client_conn_close(conn);
    }
    free(client);
}
