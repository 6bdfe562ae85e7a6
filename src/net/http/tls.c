/* SPDX-License-Identifier: Apache-2.0 */
/* Loading builds a complete new SSL_CTX and only then swaps it in, so a half-written pair of files costs
 * only a log line. Operators replace two files one after the other: a pair that does not match is refused,
 * and the watch tries again when either file changes.
 *
 *     timer ──files changed, or the ticket keys are old──> load ──good──> swap, metric
 *                                                             └──bad───> warn once, keep
 */
#include "net/http/tls.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "net/link/tls_ctx.h"
#include "net/link/tls_files.h"

#define DEFAULT_POLL_NS   (10 * NS_PER_S)
#define TICKET_KEYS_NS    (12 * 3600 * NS_PER_S)
#define TICKET_LIFETIME_S (2L * 3600)
#define GROUPS            "X25519:P-256:P-384"
#define CIPHERS_1_2       "ECDHE+AESGCM:ECDHE+CHACHA20"

struct file_mark { /* identifies one state of a file */
    dev_t device;
    ino_t inode;
    off_t size;
    struct timespec changed, modified;
};

struct http_tls {
    SSL_CTX *ctx;
    struct http_tls_files files; /* owned copies */
    bool has_http2;
    struct ev_timer *watch;
    struct file_mark marks[2]; /* state at the last attempt to load */
    uint64_t loaded_ns;
    uint64_t expiry_unix_s;
    uint64_t warned_day; /* day of the last warning about expiry */
    struct metric *expiry_gauge;
};

struct http_tls_fresh {
    SSL_CTX *ctx;
    struct http_tls_files files; /* owned copies */
    struct file_mark marks[2];
    uint64_t expiry_unix_s;
};

/* ---- the context ---- */

static int choose_alpn(SSL *ssl, const unsigned char **out, unsigned char *out_len, const unsigned char *in,
                       unsigned in_len, void *arg)
{
    static const unsigned char both[] = "\x02h2\x08http/1.1";
    bool has_http2 = arg != NULL;
    unsigned skip = has_http2 ? 0 : 3;
    unsigned char *chosen;

    if (SSL_select_next_proto(&chosen, out_len, both + skip, (unsigned)sizeof(both) - 1 - skip, in, in_len) !=
        OPENSSL_NPN_NEGOTIATED)
        return SSL_TLSEXT_ERR_ALERT_FATAL;
    *out = chosen;
    return SSL_TLSEXT_ERR_OK;
}

static SSL_CTX *http_tls_new_ctx(enum http_tls_min min, bool has_http2)
{
    const struct tls_ctx_opts opts = {.min_version = min == HTTP_TLS_1_3 ? TLS1_3_VERSION : TLS1_2_VERSION,
                                      .groups = GROUPS,
                                      .n_tickets = 1,
                                      .more_options = SSL_OP_PRIORITIZE_CHACHA};
    SSL_CTX *ctx = tls_ctx_new(TLS_server_method(), &opts);

    if (ctx == NULL)
        return NULL;
    SSL_CTX_set_timeout(ctx, TICKET_LIFETIME_S);
    SSL_CTX_set_alpn_select_cb(ctx, choose_alpn, has_http2 ? ctx : NULL);
    if (SSL_CTX_set_cipher_list(ctx, CIPHERS_1_2) == 1)
        return ctx;
    SSL_CTX_free(ctx);
    return NULL;
}

/* ---- the files ---- */

static int http_tls_load(const struct http_tls_files *files, bool has_http2, struct fault *fault,
                         SSL_CTX **out, uint64_t *expiry_out)
{
    SSL_CTX *ctx = http_tls_new_ctx(files->min, has_http2);
    int rc;

    if (ctx == NULL)
        return fault_set(fault, E_NOMEM, "out of memory");
    rc = tls_files_load(ctx, files->certificate, files->key, fault, expiry_out);
    if (rc < 0)
        SSL_CTX_free(ctx);
    else
        *out = ctx;
    return rc;
}

int http_tls_check(const struct http_tls_files *files, struct fault *fault)
{
    uint64_t expiry;
    SSL_CTX *ctx;
    int rc = http_tls_load(files, true, fault, &ctx, &expiry);

    if (rc == 0)
        SSL_CTX_free(ctx);
    return rc;
}

/* ---- the watch ---- */

static void mark_files(const struct http_tls_files *files, struct file_mark marks[2])
{
    const char *const paths[2] = {files->certificate, files->key};

    memset(marks, 0, 2 * sizeof(marks[0]));
    for (int i = 0; i < 2; i++) {
        struct stat st;

        if (stat(paths[i], &st) != 0)
            continue;
        marks[i].device = st.st_dev;
        marks[i].inode = st.st_ino;
        marks[i].size = st.st_size;
        marks[i].changed = st.st_ctim;
        marks[i].modified = st.st_mtim;
    }
}

static void tls_report_expiry(struct http_tls *tls)
{
    uint64_t now = clock_unix_ns() / NS_PER_S;
    double left_s = (double)tls->expiry_unix_s - (double)now;

    if (tls->expiry_gauge != NULL)
        metric_set(tls->expiry_gauge, left_s);
    if (left_s > TLS_ENDS_SOON_S || tls->warned_day == now / 86400)
        return;
    tls->warned_day = now / 86400;
    log_warn(left_s > 0 ? "tls_certificate_ends_soon" : "tls_certificate_expired",
             LOG_STR("file", tls->files.certificate),
             LOG_U64("days_left", left_s > 0 ? (uint64_t)(left_s / 86400) : 0));
}

void http_tls_fresh_free(struct http_tls_fresh *fresh)
{
    if (fresh == NULL)
        return;
    SSL_CTX_free(fresh->ctx);
    free((char *)fresh->files.certificate);
    free((char *)fresh->files.key);
    free(fresh);
}

int http_tls_read(const struct http_tls_files *files, bool has_http2, struct fault *fault,
                  struct http_tls_fresh **out)
{
    struct http_tls_fresh *fresh = calloc(1, sizeof(*fresh));
    int rc;

    if (fresh == NULL)
        return fault_set(fault, E_NOMEM, "out of memory");
    mark_files(files, fresh->marks);
    fresh->files = (struct http_tls_files){strdup(files->certificate), strdup(files->key), files->min};
    rc = fresh->files.certificate == NULL || fresh->files.key == NULL
             ? fault_set(fault, E_NOMEM, "out of memory")
             : http_tls_load(files, has_http2, fault, &fresh->ctx, &fresh->expiry_unix_s);
    if (rc < 0)
        http_tls_fresh_free(fresh);
    else
        *out = fresh;
    return rc;
}

void http_tls_take(struct http_tls *tls, struct http_tls_fresh *fresh)
{
    SSL_CTX_free(tls->ctx); /* open connections hold their own reference */
    free((char *)tls->files.certificate);
    free((char *)tls->files.key);
    tls->ctx = fresh->ctx;
    tls->files = fresh->files;
    tls->expiry_unix_s = fresh->expiry_unix_s;
    memcpy(tls->marks, fresh->marks, sizeof(tls->marks));
    tls->loaded_ns = clock_now_ns();
    free(fresh);
    tls_report_expiry(tls);
}

int http_tls_reload(struct http_tls *tls, const struct http_tls_files *files, struct fault *fault)
{
    struct http_tls_fresh *fresh;
    int rc;

    mark_files(files, tls->marks); /* a refused file is read again once it changes */
    rc = http_tls_read(files, tls->has_http2, fault, &fresh);
    if (rc == 0)
        http_tls_take(tls, fresh);
    return rc;
}

static void on_watch(void *arg)
{
    struct http_tls *tls = arg;
    struct file_mark marks[2];
    struct fault fault = {0};

    tls_report_expiry(tls);
    mark_files(&tls->files, marks);
    if (memcmp(marks, tls->marks, sizeof(marks)) == 0 && clock_now_ns() - tls->loaded_ns < TICKET_KEYS_NS)
        return;
    if (http_tls_reload(tls, &tls->files, &fault) < 0) {
        tls->loaded_ns = clock_now_ns(); /* keep the old ticket keys for another period */
        log_warn("tls_certificate_refused", LOG_STR("reason", fault.text));
    } else {
        log_info("tls_certificate_loaded", LOG_STR("file", tls->files.certificate),
                 LOG_U64("expires_unix_s", tls->expiry_unix_s));
    }
}

int http_tls_new(const struct http_tls_opts *opts, struct fault *fault, struct http_tls **out)
{
    struct http_tls *tls = calloc(1, sizeof(*tls));
    int rc;

    if (tls == NULL)
        return fault_set(fault, E_NOMEM, "out of memory");
    tls->has_http2 = opts->has_http2;
    if (opts->metrics != NULL)
        tls->expiry_gauge = metric_single(opts->metrics, METRIC_GAUGE, "baton_tls_certificate_expiry_seconds",
                                          "Seconds until the HTTP certificate expires; negative: since.");
    rc = http_tls_reload(tls, &opts->files, fault);
    if (rc == 0 && ev_timer_new(opts->loop, on_watch, tls, &tls->watch) < 0)
        rc = fault_set(fault, E_NOMEM, "out of memory");
    if (rc < 0) {
        http_tls_free(tls);
        return rc;
    }
    ev_timer_repeat(tls->watch, opts->poll_ns > 0 ? opts->poll_ns : DEFAULT_POLL_NS);
    *out = tls;
    return 0;
}

void http_tls_free(struct http_tls *tls)
{
    if (tls == NULL)
        return;
    ev_timer_free(tls->watch);
    SSL_CTX_free(tls->ctx);
    free((char *)tls->files.certificate);
    free((char *)tls->files.key);
    free(tls);
}

SSL *http_tls_accept(struct http_tls *tls)
{
    return SSL_new(tls->ctx);
}

uint64_t http_tls_expiry_unix_s(const struct http_tls *tls)
{
    return tls->expiry_unix_s;
}
