/* SPDX-License-Identifier: Apache-2.0 */
/* TLS rules that all daemons share.
 *
 * The distribution supplies and patches the libraries under HTTP. A version number shows that a library is
 * too old. It cannot show that a distribution's patch is missing, because patches do not change it. Debian
 * 12 needs libevent 2.1.12-stable-8+deb12u1 and nghttp2 1.52.0-1+deb12u3. The second patch added
 * functions, so this program does not link without it. */
#include "net/http/https.h"

#include <event2/event.h>
#include <nghttp2/nghttp2.h>
#include <openssl/crypto.h>
#include <stdio.h>

#include "base/err.h"
#include "base/log.h"
#include "net/http/congestion.h"
#include "net/link/addr.h"

#define OLDEST_LIBEVENT 0x02010c00u
#define OLDEST_NGHTTP2  0x013400
#define OLDEST_OPENSSL  0x30000000ul

static bool has_text(const char *text)
{
    return text != NULL && text[0] != '\0';
}

static struct http_tls_files files_of(const struct https_conf *conf)
{
    return (struct http_tls_files){conf->certificate, conf->key, (enum http_tls_min)conf->min};
}

static int check_pair(const struct https_conf *conf, struct fault *fault)
{
    if (has_text(conf->certificate) != has_text(conf->key))
        return fault_set(fault, E_INVAL, "http.%s is set and http.%s is not: TLS needs both",
                         has_text(conf->key) ? "tls_key" : "tls_certificate",
                         has_text(conf->key) ? "tls_certificate" : "tls_key");
    return 0;
}

int https_open(const struct https_conf *conf, struct ev_loop *loop, struct metrics *metrics,
               struct fault *fault, struct http_tls **out)
{
    const struct http_tls_opts opts = {
        .files = files_of(conf), .has_http2 = conf->has_http2, .loop = loop, .metrics = metrics};
    int rc = check_pair(conf, fault);

    return rc < 0 || !has_text(conf->certificate) ? rc : http_tls_new(&opts, fault, out);
}

int https_read(const struct https_conf *conf, bool has_tls, struct fault *fault, struct http_tls_fresh **out)
{
    struct http_tls_files files = files_of(conf);
    int rc = check_pair(conf, fault);

    if (rc < 0)
        return rc;
    if (has_tls != has_text(conf->certificate))
        return fault_set(fault, E_UNSUPPORTED, "TLS can be neither begun nor ended by a reload; restart");
    return has_tls ? http_tls_read(&files, conf->has_http2, fault, out) : 0;
}

int https_may_listen(const char *address, bool has_keys, bool has_tls, struct fault *fault)
{
    struct addr addr;
    int rc = 0;

    if (!has_keys)
        rc = addr_want_loopback(address, "http.listen", "give http.api_keys a key file first", fault);
    if (rc == 0 && !has_tls && addr_parse(address, NULL, &addr) == 0 && !addr_is_loopback(&addr))
        log_warn("listening_without_tls", LOG_STR("http", address),
                 LOG_STR("hint", "set http.tls_certificate and http.tls_key, or let a proxy do TLS"));
    return rc;
}

const char *https_libraries(void)
{
    static char text[128];

    snprintf(text, sizeof(text), "libevent %s, OpenSSL %s, nghttp2 %s", event_get_version(),
             OpenSSL_version(OPENSSL_VERSION_STRING), nghttp2_version(0)->version_str);
    return text;
}

void https_warn_outdated(void)
{
    if (event_get_version_number() >= OLDEST_LIBEVENT && nghttp2_version(OLDEST_NGHTTP2) != NULL &&
        OpenSSL_version_num() >= OLDEST_OPENSSL)
        return;
    log_warn("libraries_outdated", LOG_STR("have", https_libraries()),
             LOG_STR("want", "libevent 2.1.12, OpenSSL 3.0, nghttp2 1.52"));
}
