/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes in and out of a socket. Hot path: no malloc once warm, no log.
 *
 *     plain   read:  kernel --readv--> where the caller says           no copy of ours
 *             write: where the caller says --sendmsg--> kernel
 *     TLS     read:  kernel --> OpenSSL's buffer (two records) --decrypt--> where the caller says
 *             write: caller --encrypt, BATCH at a time--> out --send--> kernel
 *
 * Under TLS OpenSSL writes its records into `out` instead of into the socket. So sixteen records cost one
 * system call, and a write never has to be repeated with the same arguments. write() copies the bytes that
 * it accepts: the caller may change the source at once.
 *
 * AES-GCM may protect only about 2^24.5 records with one key (RFC 8446 section 5.5). At several GB/s that
 * is minutes, so the sender changes its key every REKEY_BYTES. */
#include "transfer/transport/tr_stream_priv.h"

#include <errno.h>
#include <openssl/err.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/check.h"
#include "base/err.h"

#define BATCH_BYTES   ((size_t)256 << 10)
#define RECORD_BYTES  ((size_t)16 << 10)
#define READ_AHEAD    ((size_t)32 << 10)
#define REKEY_BYTES   (UINT64_C(64) << 30)
#define MAX_PUT_BYTES ((size_t)64 << 10)
#define MAX_DESCRIPTORS                                                                                      \
    16 /* per message: more than any correct peer sends, so that each extra descriptor is counted */

static pthread_once_t method_once = PTHREAD_ONCE_INIT;
static BIO_METHOD *method;

static int tr_stream_out_write(BIO *bio, const char *data, int len_bytes)
{
    struct tr_stream *stream = BIO_get_data(bio);

    return buf_append(&stream->out, data, (size_t)len_bytes) == 0 ? len_bytes : -1;
}

static long tr_stream_out_ctrl(BIO *bio, int command, long number, void *pointer)
{
    return command == BIO_CTRL_FLUSH;
}

static int tr_stream_out_create(BIO *bio)
{
    BIO_set_init(bio, 1);
    return 1;
}

static void tr_stream_make_method(void)
{
    method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "baton out");
    if (method != NULL) {
        BIO_meth_set_write(method, tr_stream_out_write);
        BIO_meth_set_ctrl(method, tr_stream_out_ctrl);
        BIO_meth_set_create(method, tr_stream_out_create);
    }
}

static int tr_stream_init_tls(struct tr_stream *stream, SSL_CTX *tls, bool is_server)
{
    BIO *in, *out;

    pthread_once(&method_once, tr_stream_make_method);
    if (method == NULL)
        return E_NOMEM;
    stream->ssl = SSL_new(tls);
    in = BIO_new_socket(stream->fd, BIO_NOCLOSE);
    out = BIO_new(method);
    if (stream->ssl == NULL || in == NULL || out == NULL) {
        BIO_free(in);
        BIO_free(out);
        return E_NOMEM;
    }
    BIO_set_data(out, stream);
    SSL_set_bio(stream->ssl, in, out);
    SSL_clear_mode(stream->ssl, SSL_MODE_RELEASE_BUFFERS);
    SSL_set_read_ahead(stream->ssl, 1);
    SSL_set_default_read_buffer_len(stream->ssl, READ_AHEAD);
    if (is_server)
        SSL_set_accept_state(stream->ssl);
    else
        SSL_set_connect_state(stream->ssl);
    stream->until_rekey_bytes = REKEY_BYTES;
    return 0;
}

int tr_stream_init(struct tr_stream *stream, int fd, bool is_unix, SSL_CTX *tls, bool is_server)
{
    *stream = (struct tr_stream){.fd = fd, .is_unix = is_unix, .fds = {-1, -1}};
    return tls != NULL ? tr_stream_init_tls(stream, tls, is_server) : 0;
}

void tr_stream_fini(struct tr_stream *stream)
{
    SSL_free(stream->ssl);
    stream->ssl = NULL;
    for (unsigned i = 0; i < stream->n_fds; i++)
        close(stream->fds[i]);
    stream->n_fds = 0;
    if (stream->fd >= 0)
        close(stream->fd);
    stream->fd = -1;
    buf_fini(&stream->out);
    stream->out = (struct buf){0};
}

/* Translates the result rc of an SSL_ call; 0: not now. */
static int tr_stream_tls_result(struct tr_stream *stream, int rc)
{
    switch (SSL_get_error(stream->ssl, rc)) {
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE:
        return 0;
    case SSL_ERROR_ZERO_RETURN:
        return E_CLOSED;
    default:
        return E_IO;
    }
}

int tr_stream_shake(struct tr_stream *stream, struct fault *fault)
{
    unsigned long reason;
    int rc, err;

    if (stream->ssl == NULL)
        return 1;
    ERR_clear_error();
    rc = SSL_do_handshake(stream->ssl);
    err = rc == 1 ? 1 : tr_stream_tls_result(stream, rc);
    if (err < 0) {
        reason = ERR_peek_error();
        fault_set(fault, reason != 0 ? E_AUTH : E_CLOSED, "TLS: %s",
                  reason != 0 && ERR_reason_error_string(reason) != NULL ? ERR_reason_error_string(reason)
                                                                         : "closed during the handshake");
    }
    ERR_clear_error();
    if (tr_stream_flush(stream) < 0 && err >= 0)
        return fault_set(fault, E_CLOSED, "closed during the handshake");
    return err;
}

/* ---- reading ---- */

static void tr_stream_keep_descriptors(struct tr_stream *stream, struct msghdr *message)
{
    for (struct cmsghdr *part = CMSG_FIRSTHDR(message); part != NULL; part = CMSG_NXTHDR(message, part)) {
        size_t n;

        if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS)
            continue;
        n = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < n; i++) {
            int fd;

            memcpy(&fd, CMSG_DATA(part) + i * sizeof(int), sizeof(fd));
            if (stream->n_fds < ARRAY_LEN(stream->fds))
                stream->fds[stream->n_fds++] = fd;
            else
                close(fd);
        }
    }
}

static ssize_t tr_stream_read_plain(struct tr_stream *stream, const struct iovec *iov, int n_iov)
{
    union {
        struct cmsghdr align;
        char room[CMSG_SPACE(sizeof(int) * MAX_DESCRIPTORS)];
    } control;
    struct msghdr message = {.msg_iov = (struct iovec *)(uintptr_t)iov, .msg_iovlen = (size_t)n_iov};
    ssize_t n;

    if (stream->is_unix) {
        message.msg_control = &control;
        message.msg_controllen = sizeof(control);
    }
    do
        n = recvmsg(stream->fd, &message, MSG_CMSG_CLOEXEC);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return errno == EAGAIN ? 0 : E_IO;
    if (stream->is_unix)
        tr_stream_keep_descriptors(stream, &message);
    return n > 0 ? n : E_CLOSED;
}

static ssize_t tr_stream_read_tls(struct tr_stream *stream, const struct iovec *iov, int n_iov)
{
    ssize_t total = 0;

    for (int i = 0; i < n_iov; i++)
        for (size_t at = 0; at < iov[i].iov_len;) {
            size_t n = 0;
            int rc;

            ERR_clear_error();
            rc = SSL_read_ex(stream->ssl, (uint8_t *)iov[i].iov_base + at, iov[i].iov_len - at, &n);
            if (rc != 1) {
                int err = tr_stream_tls_result(stream, rc);

                /* A persistent error comes again at the next call. */
                return total > 0 || err == 0 ? total : err;
            }
            at += n;
            total += (ssize_t)n;
        }
    return total;
}

ssize_t tr_stream_read(struct tr_stream *stream, const struct iovec *iov, int n_iov)
{
    ssize_t n = stream->ssl != NULL ? tr_stream_read_tls(stream, iov, n_iov)
                                    : tr_stream_read_plain(stream, iov, n_iov);

    if (n > 0)
        stream->has_moved = true;
    return n;
}

/* ---- writing ---- */

static ssize_t tr_stream_send_message(struct tr_stream *stream, struct msghdr *message)
{
    ssize_t n;

    do
        n = sendmsg(stream->fd, message, MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR);
    if (n < 0 && errno != EAGAIN && errno != ENOBUFS)
        return errno == EPIPE || errno == ECONNRESET ? E_CLOSED : E_IO;
    if (n < 0) {
        stream->is_blocked = true;
        return 0;
    }
    stream->has_moved = true;
    return n;
}

int tr_stream_flush(struct tr_stream *stream)
{
    stream->is_blocked = false;
    while (stream->out_at < stream->out.len_bytes) {
        struct iovec iov = {.iov_base = stream->out.data + stream->out_at,
                            .iov_len = stream->out.len_bytes - stream->out_at};
        struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};
        ssize_t n = tr_stream_send_message(stream, &message);

        if (n <= 0)
            return (int)n;
        stream->out_at += (size_t)n;
    }
    buf_clear(&stream->out);
    stream->out_at = 0;
    return stream->out.is_bad ? E_NOMEM : 1;
}

static ssize_t tr_stream_write_tls(struct tr_stream *stream, const struct iovec *iov, int n_iov)
{
    size_t total = 0;

    for (int i = 0; i < n_iov && total < BATCH_BYTES; i++)
        for (size_t at = 0; at < iov[i].iov_len && total < BATCH_BYTES;) {
            size_t want = iov[i].iov_len - at < RECORD_BYTES ? iov[i].iov_len - at : RECORD_BYTES, n = 0;

            ERR_clear_error();
            if (SSL_write_ex(stream->ssl, (const uint8_t *)iov[i].iov_base + at, want, &n) != 1)
                return E_IO; /* `out` accepts all bytes, so there is nothing to wait for */
            at += n;
            total += n;
        }
    if (total >= stream->until_rekey_bytes) {
        SSL_key_update(stream->ssl, SSL_KEY_UPDATE_NOT_REQUESTED);
        stream->until_rekey_bytes = REKEY_BYTES + total;
    }
    stream->until_rekey_bytes -= total;
    return (ssize_t)total;
}

ssize_t tr_stream_write(struct tr_stream *stream, const struct iovec *iov, int n_iov)
{
    struct msghdr message = {.msg_iov = (struct iovec *)(uintptr_t)iov, .msg_iovlen = (size_t)n_iov};
    ssize_t n = tr_stream_flush(stream);

    if (n <= 0)
        return n;
    if (stream->ssl == NULL)
        return tr_stream_send_message(stream, &message);
    n = tr_stream_write_tls(stream, iov, n_iov);
    if (n > 0) {
        int err = tr_stream_flush(stream);

        if (err < 0)
            return err;
    }
    return n;
}

int tr_stream_put(struct tr_stream *stream, const void *data, size_t len_bytes)
{
    size_t n = 0;

    if (stream->out.len_bytes - stream->out_at > MAX_PUT_BYTES)
        return E_FULL;
    if (stream->ssl == NULL)
        return buf_append(&stream->out, data, len_bytes);
    ERR_clear_error();
    return SSL_write_ex(stream->ssl, data, len_bytes, &n) == 1 && n == len_bytes ? 0 : E_IO;
}

bool tr_stream_has_output(const struct tr_stream *stream)
{
    return stream->out_at < stream->out.len_bytes;
}

int tr_stream_send_fds(struct tr_stream *stream, struct bytes with, const int fds[2])
{
    union {
        struct cmsghdr align;
        char room[CMSG_SPACE(sizeof(int) * 2)];
    } control;
    struct iovec iov = {.iov_base = (void *)(uintptr_t)with.data, .iov_len = with.len_bytes};
    struct msghdr message = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};
    struct cmsghdr *part;
    ssize_t n = tr_stream_flush(stream);

    if (n <= 0)
        return (int)n;
    memset(&control, 0, sizeof(control));
    part = CMSG_FIRSTHDR(&message);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(sizeof(int) * 2);
    memcpy(CMSG_DATA(part), fds, sizeof(int) * 2);
    n = tr_stream_send_message(stream, &message);
    if (n <= 0)
        return (int)n;
    /* The kernel takes so few bytes whole or not at all. If it takes a part, the rest goes through `out`. */
    if ((size_t)n < with.len_bytes && tr_stream_put(stream, with.data + n, with.len_bytes - (size_t)n) != 0)
        return E_NOMEM;
    return 1;
}
