/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the address of a source: one row for each scheme, then one function for each kind. */
#include "net/discover/url.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/str.h"
#include "net/link/addr.h"

static const struct {
    const char *scheme;
    enum discover_kind kind;
    bool is_tls;
} url_schemes[] = {{"file://", DISCOVER_FILE, false},
                   {"dns://", DISCOVER_DNS, false},
                   {"dns+srv://", DISCOVER_DNS_SRV, false},
                   {"etcd://", DISCOVER_ETCD, false},
                   {"etcds://", DISCOVER_ETCD, true}};

bool discover_is_url(const char *text)
{
    return strstr(text, "://") != NULL;
}

void discover_url_show(const char *text, char *out, size_t cap)
{
    const char *start = strstr(text, "://"), *at = start ? strrchr(start, '@') : NULL;

    if (at == NULL)
        str_copy(out, cap, text);
    else
        snprintf(out, cap, "%.*s%s", (int)(start + 3 - text), text, at + 1);
}

/* A host name as DNS and etcd take it: letters, digits, '-', '_', '.'. */
static bool url_is_name(const char *name)
{
    return name[0] != '\0' &&
           strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.") == strlen(name);
}

/* A name server: "10.0.0.2", "10.0.0.2:8600", "::1", "[::1]:8600". A name would need a name server itself. */
static bool url_is_server(const char *text)
{
    unsigned char binary[sizeof(struct in6_addr)];
    struct addr addr;

    if (inet_pton(AF_INET, text, binary) == 1 || inet_pton(AF_INET6, text, binary) == 1)
        return true;
    return addr_parse(text, NULL, &addr) == 0 && addr.is_numeric && addr.port != 0 && !addr_is_any(&addr);
}

static int url_read_dns(const char *rest, struct fault *fault, struct discover_url *url)
{
    const char *query = strchr(rest, '?');
    size_t n = query ? (size_t)(query - rest) : strlen(rest);
    char name[DISCOVER_NAME_BYTES + 8];
    struct addr addr;

    if (query != NULL && (strncmp(query, "?server=", 8) != 0 || query[8] == '\0' ||
                          !str_copy(url->server, sizeof(url->server), query + 8)))
        return fault_set(fault, E_FORMAT, "'%.60s': only ?server=ADDRESS may follow the name", rest);
    if (query != NULL && !url_is_server(url->server))
        return fault_set(fault, E_FORMAT,
                         "'%.60s': the name server is a numeric address, with or without a port",
                         url->server);
    if (n >= sizeof(name))
        return fault_set(fault, E_FORMAT, "'%.60s...': the name is too long", rest);
    memcpy(name, rest, n);
    name[n] = '\0';
    if (url->kind == DISCOVER_DNS_SRV) {
        str_copy(url->name, sizeof(url->name), name);
    } else {
        if (addr_parse(name, fault, &addr) < 0)
            return E_FORMAT;
        str_copy(url->name, sizeof(url->name), addr.host);
        url->port = addr.port;
        if (addr.port == 0)
            return fault_set(fault, E_FORMAT, "'%.60s': give a port from 1 to 65535", rest);
    }
    if (!url_is_name(url->name))
        return fault_set(fault, E_FORMAT, "'%.60s' is not a name that DNS can have", url->name);
    return 0;
}

static int url_read_user(const char **rest, size_t *n_authority, struct fault *fault,
                         struct discover_url *url)
{
    const char *at = memchr(*rest, '@', *n_authority), *colon;
    size_t n_user, n_password;

    if (at == NULL)
        return 0;
    colon = memchr(*rest, ':', (size_t)(at - *rest));
    if (colon == NULL)
        return fault_set(fault, E_FORMAT, "expected user:password before '@'");
    n_user = (size_t)(colon - *rest);
    n_password = (size_t)(at - colon) - 1;
    if (n_user == 0 || n_user >= sizeof(url->user) || n_password == 0 || n_password >= sizeof(url->password))
        return fault_set(fault, E_FORMAT, "user or password are empty or too long");
    memcpy(url->user, *rest, n_user);
    memcpy(url->password, colon + 1, n_password);
    *n_authority -= (size_t)(at + 1 - *rest);
    *rest = at + 1;
    return 0;
}

static int url_add_host(const char *text, size_t n, struct fault *fault, struct discover_url *url)
{
    char host[DISCOVER_NAME_BYTES];
    struct addr addr;

    if (url->n_hosts == DISCOVER_MAX_HOSTS)
        return fault_set(fault, E_FORMAT, "more than %d hosts", DISCOVER_MAX_HOSTS);
    if (n == 0 || n + sizeof(":2379") > sizeof(host))
        return fault_set(fault, E_FORMAT, "a host is empty or too long");
    memcpy(host, text, n);
    host[n] = '\0';
    if (host[n - 1] == ']' || strchr(host, ':') == NULL)
        memcpy(host + n, ":2379", sizeof(":2379"));
    if (addr_parse(host, fault, &addr) < 0)
        return E_FORMAT;
    if (addr.port == 0 || (!addr.is_numeric && !url_is_name(addr.host)))
        return fault_set(fault, E_FORMAT, "'%.60s' is not a host with a port", host);
    str_copy(url->hosts[url->n_hosts++], sizeof(url->hosts[0]), host);
    return 0;
}

static int url_read_etcd(const char *rest, struct fault *fault, struct discover_url *url)
{
    const bool has_user = strchr(rest, '@') != NULL;
    size_t n = strcspn(rest, "/"), n_path;
    const char *path = rest + n;
    int rc = url_read_user(&rest, &n, fault, url);

    while (rc == 0) {
        const char *comma = memchr(rest, ',', n);
        size_t n_host = comma ? (size_t)(comma - rest) : n;

        rc = url_add_host(rest, n_host, fault, url);
        if (comma == NULL)
            break;
        rest += n_host + 1;
        n -= n_host + 1;
    }
    if (rc < 0 && has_user) /* the text could quote a part of the password */
        return fault_set(
            fault, rc,
            "expected user:password@host:port,... (neither user nor password can have '@' or '/')");
    if (rc < 0)
        return rc;
    n_path = strlen(path);
    while (n_path > 1 && path[n_path - 1] == '/')
        n_path--;
    if (n_path < 2 || n_path >= 256)
        return fault_set(fault, E_FORMAT, "no prefix: expected etcd://host:2379/prefix");
    for (size_t i = 0; i < n_path; i++)
        if (path[i] <= ' ' || path[i] >= 0x7f || path[i] == '?' || path[i] == '#')
            return fault_set(fault, E_FORMAT, "the prefix has a character other than visible ASCII");
    memcpy(url->path, path, n_path);
    url->path[n_path] = '\0';
    return 0;
}

static int url_read_file(const char *rest, struct fault *fault, struct discover_url *url)
{
    if (rest[0] != '/' || rest[1] == '\0' || rest[strlen(rest) - 1] == '/')
        return fault_set(fault, E_FORMAT, "'file://%.60s': expected file:///absolute/path", rest);
    if (!str_copy(url->path, sizeof(url->path), rest))
        return fault_set(fault, E_FORMAT, "'file://%.60s...': the path is too long", rest);
    return 0;
}

int discover_url_parse(const char *text, struct fault *fault, struct discover_url *out)
{
    for (size_t i = 0; i < sizeof(url_schemes) / sizeof(url_schemes[0]); i++) {
        size_t n = strlen(url_schemes[i].scheme);

        if (strncmp(text, url_schemes[i].scheme, n) != 0)
            continue;
        *out = (struct discover_url){.kind = url_schemes[i].kind, .is_tls = url_schemes[i].is_tls};
        switch (out->kind) {
        case DISCOVER_FILE:
            return url_read_file(text + n, fault, out);
        case DISCOVER_DNS:
        case DISCOVER_DNS_SRV:
            return url_read_dns(text + n, fault, out);
        case DISCOVER_ETCD:
            return url_read_etcd(text + n, fault, out);
        }
    }
    return fault_set(fault, E_FORMAT,
                     "'%.*s' is no source; there are file://, dns://, dns+srv://, etcd:// and etcds://",
                     (int)(strcspn(text, ":") < 20 ? strcspn(text, ":") : 20), text);
}
