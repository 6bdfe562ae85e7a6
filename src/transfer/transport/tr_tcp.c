/* SPDX-License-Identifier: Apache-2.0 */
/* KV over TCP: DATA frames whose payload goes from arena to arena. Hot path: no malloc, no log.
 *
 *     frame     [ header 40 ][ piece ][ piece ] ... [ trailer 16 ]
 *     sender     SENDING ------------------------->  ENDING  --> FLUSHING (until the kernel has it all)
 *     receiver   HEAD         BODY                   TAIL
 *
 * The trailer says whether the payload is valid. Because it follows the payload, the sender can stop in
 * mid-frame: it then sends zeros, ends with "void", and reads no more bytes of the blocks. The digest is
 * computed while the bytes pass, when they are in the cache anyway.
 *
 * Sending copies. vmsplice or splice could pass pages to the socket instead, but the kernel reads passed
 * pages until the far end has read the last byte (on another host: acknowledged it). STOPPED would then
 * have to wait for the network. And the receiver is the bottleneck: with lent pages the bytes that it
 * copies are no longer in a cache (docs/lab/2026-11-22-moving-kv.md has the figures).
 *
 * The receiver checks a header against the ticket before it reads a byte of payload. From then on it knows
 * the destination of each byte. Payload of an unknown or failed ticket goes to scratch memory: the framing
 * stays intact, and other transfers on the connection continue. */
#include "transfer/transport/tr_digest_priv.h"
#include "transfer/transport/tr_priv.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/err.h"

#define HEADER_BYTES (KV_FRAME_PREFIX_BYTES + KV_FRAME_DATA_BYTES)

/* Payload per system call: the digest reads it right after, while it is still in the L2 cache. */
#define CALL_BYTES ((size_t)256 << 10)

enum sending { SEND_IDLE, SEND_SENDING, SEND_ENDING, SEND_FLUSHING };
enum receiving { RECV_HEAD, RECV_BODY, RECV_TAIL };

struct moving {
    /* Bytes done: of header and payload (sender), of payload or trailer (receiver). */
    uint64_t at_bytes;
    uint64_t payload_bytes; /* payload of the current frame */
    XXH3_state_t *digest;   /* NULL under TLS, which has its own integrity check */
    uint8_t trailer[KV_FRAME_TRAILER_BYTES];

    /* sender */
    enum sending sending;
    struct tr_batch batch; /* its push is NULL once forgotten */
    bool is_void;
    uint8_t header[KV_FRAME_MAX_BYTES];

    /* receiver */
    enum receiving receiving;
    struct kv_frame_data run;
    struct tr_ticket *ticket; /* NULL: discard the payload */
};

static int tcp_ready(struct tr_conn *conn, struct fault *fault)
{
    struct moving *moving = calloc(1, sizeof(*moving));

    if (moving == NULL)
        return fault_set(fault, E_NOMEM, "no memory for a connection");
    conn->moving = moving;
    if (conn->stream.ssl == NULL) {
        moving->digest = XXH3_createState();
        if (moving->digest == NULL)
            return fault_set(fault, E_NOMEM, "no memory for a connection");
    }
    return 1;
}

static void tcp_fini(struct tr_conn *conn)
{
    struct moving *moving = conn->moving;

    if (moving == NULL)
        return;
    XXH3_freeState(moving->digest);
    free(moving);
    conn->moving = NULL;
}

static bool tcp_is_busy(const struct tr_conn *conn)
{
    const struct moving *moving = conn->moving;

    if (moving == NULL)
        return false;
    return conn->peer != NULL ? moving->sending != SEND_IDLE
                              : moving->receiving != RECV_HEAD || conn->head_bytes > 0;
}

/* ---- sender ---- */

static uint64_t tcp_end_of_call(const struct moving *moving, uint64_t at)
{
    return moving->payload_bytes - at < CALL_BYTES ? moving->payload_bytes : at + CALL_BYTES;
}

static void tcp_begin_frame(struct tr_conn *conn, struct moving *moving)
{
    const struct tr_batch *batch = &moving->batch;
    struct kv_frame frame = {.type = KV_FRAME_DATA,
                             .flags = moving->digest != NULL ? KV_FRAME_FLAG_DIGEST : 0};

    moving->payload_bytes = (uint64_t)batch->n * conn->owner->opts.geometry.piece_bytes;
    frame.as.data = (struct kv_frame_data){.ticket = batch->push->ticket,
                                           .layer = batch->layer,
                                           .first = batch->first,
                                           .n_pieces = batch->n,
                                           .payload_bytes = moving->payload_bytes};
    kv_frame_pack(&frame, moving->header);
    moving->at_bytes = 0;
    moving->is_void = false;
    moving->sending = SEND_SENDING;
    conn->progress_ns = clock_now_ns();
    if (moving->digest != NULL)
        tr_digest_reset(moving->digest);
}

static uint8_t *tcp_source_piece(const struct tr_conn *conn, const struct tr_batch *batch, uint32_t i)
{
    const struct tr_opts *opts = &conn->owner->opts;

    return (uint8_t *)opts->arena.base + tr_node_offset(opts->geometry.n_blocks, opts->geometry.piece_bytes,
                                                        batch->layer, batch->blocks[i]);
}

/* Gathers the payload from offset at, up to the number of entries and CALL_BYTES. */
static int tcp_gather_payload(const struct tr_conn *conn, uint64_t at, struct iovec *iov, int n_iov)
{
    static const uint8_t zeros[TR_SCRATCH_BYTES];
    const struct moving *moving = conn->moving;
    size_t piece_bytes = conn->owner->opts.geometry.piece_bytes;
    uint64_t end = tcp_end_of_call(moving, at);
    int n = 0;

    while (n < n_iov && at < end) {
        size_t within = (size_t)(at % piece_bytes), len_bytes;

        if (moving->is_void) {
            len_bytes = end - at < sizeof(zeros) ? (size_t)(end - at) : sizeof(zeros);
            iov[n].iov_base = (void *)(uintptr_t)zeros;
        } else {
            len_bytes = end - at < piece_bytes - within ? (size_t)(end - at) : piece_bytes - within;
            iov[n].iov_base = tcp_source_piece(conn, &moving->batch, (uint32_t)(at / piece_bytes)) + within;
        }
        iov[n++].iov_len = len_bytes;
        at += len_bytes;
    }
    return n;
}

static void tcp_update_digest(struct moving *moving, const struct iovec *iov, size_t len_bytes)
{
    if (moving->digest == NULL || moving->is_void)
        return;
    for (; len_bytes > 0; iov++) {
        size_t n = iov->iov_len < len_bytes ? iov->iov_len : len_bytes;

        tr_digest_update(moving->digest, iov->iov_base, n);
        len_bytes -= n;
    }
}

static ssize_t tcp_send_some(struct tr_conn *conn, struct moving *moving)
{
    struct iovec iov[TR_MAX_IOV];
    uint64_t at = moving->at_bytes;
    size_t head_bytes = at < HEADER_BYTES ? HEADER_BYTES - (size_t)at : 0;
    int n_iov = 0;
    ssize_t n;

    if (head_bytes > 0)
        iov[n_iov++] = (struct iovec){.iov_base = moving->header + at, .iov_len = head_bytes};
    n_iov += tcp_gather_payload(conn, at + head_bytes - HEADER_BYTES, iov + n_iov, TR_MAX_IOV - n_iov);
    n = tr_stream_write(&conn->stream, iov, n_iov);
    if (n <= 0)
        return n;
    moving->at_bytes += (uint64_t)n;
    if ((size_t)n > head_bytes)
        tcp_update_digest(moving, iov + (head_bytes > 0), (size_t)n - head_bytes);
    return n;
}

static void tcp_begin_trailer(struct moving *moving)
{
    struct kv_frame_trailer trailer = {.status = moving->is_void ? KV_FRAME_VOID : KV_FRAME_GOOD};

    if (moving->digest != NULL && !moving->is_void)
        trailer.digest = XXH3_64bits_digest(moving->digest);
    kv_frame_trailer_pack(&trailer, moving->trailer);
    moving->at_bytes = 0;
    moving->sending = SEND_ENDING;
}

static ssize_t tcp_send_trailer(struct tr_conn *conn, struct moving *moving)
{
    struct iovec iov = {.iov_base = moving->trailer + moving->at_bytes,
                        .iov_len = sizeof(moving->trailer) - (size_t)moving->at_bytes};
    ssize_t n = tr_stream_write(&conn->stream, &iov, 1);

    if (n > 0)
        moving->at_bytes += (uint64_t)n;
    return n;
}

/* One send. Returns bytes; 0: wait for room; negative: the connection is lost. */
static ssize_t tcp_send_move(struct tr_conn *conn, struct moving *moving)
{
    ssize_t n = 0;

    switch (moving->sending) {
    case SEND_IDLE:
        break;
    case SEND_SENDING:
        n = tcp_send_some(conn, moving);
        if (n > 0 && moving->at_bytes == HEADER_BYTES + moving->payload_bytes)
            tcp_begin_trailer(moving);
        break;
    case SEND_ENDING:
        n = tcp_send_trailer(conn, moving);
        if (n > 0 && moving->at_bytes == sizeof(moving->trailer))
            moving->sending = SEND_FLUSHING;
        break;
    case SEND_FLUSHING:
        n = tr_stream_flush(&conn->stream);
        if (n > 0) {
            if (moving->batch.push != NULL)
                tr_push_sent(conn->owner, &moving->batch);
            moving->batch.push = NULL;
            moving->sending = SEND_IDLE;
        }
        break;
    }
    return n;
}

static int tcp_send(struct tr_conn *conn, struct fault *fault)
{
    struct moving *moving = conn->moving;
    size_t total_bytes = 0;

    while (total_bytes < TR_TURN_BYTES) {
        ssize_t n;

        if (moving->sending == SEND_IDLE) {
            if (!tr_push_take(conn->owner, conn, &moving->batch))
                return 0;
            tcp_begin_frame(conn, moving);
        }
        n = tcp_send_move(conn, moving);
        if (n < 0)
            return fault_set(fault, (int)n, "%s: connection lost while sending", tr_conn_name(conn));
        if (n == 0)
            return 0;
        total_bytes += (size_t)n;
    }
    return 1;
}

static void tcp_forget_push(struct tr_conn *conn, const struct tr_push *push)
{
    struct moving *moving = conn->moving;

    if (moving->sending == SEND_IDLE || moving->batch.push != push)
        return;
    moving->batch.push = NULL;
    if (moving->sending != SEND_SENDING)
        return; /* the payload is sent: no block is read any more */
    if (moving->at_bytes == 0)
        moving->sending = SEND_IDLE;
    else
        moving->is_void = true;
}

/* ---- receiver ---- */

static int tcp_receive_head(struct tr_conn *conn, struct moving *moving, struct fault *fault)
{
    struct kv_frame frame;
    int rc = tr_conn_read_frame(conn, fault, &frame);

    if (rc <= 0)
        return rc;
    if (frame.type != KV_FRAME_DATA)
        return fault_set(fault, E_PROTO, "frame type %d from a sender", frame.type);
    if (conn->stream.ssl == NULL && (frame.flags & KV_FRAME_FLAG_DIGEST) == 0)
        return fault_set(fault, E_PROTO, "DATA without a digest on a connection without TLS");
    moving->run = frame.as.data;
    moving->payload_bytes = frame.as.data.payload_bytes;
    moving->at_bytes = 0;
    moving->ticket = NULL;
    rc = tr_ticket_claim(conn->owner, conn, &moving->run, fault, &moving->ticket);
    if (rc == E_PROTO)
        return rc;
    if (rc != 0)
        tr_conn_reject(conn, moving->run.ticket, rc);
    if (moving->digest != NULL)
        tr_digest_reset(moving->digest);
    moving->receiving = RECV_BODY;
    conn->progress_ns = clock_now_ns();
    return 1;
}

static int tcp_scatter_payload(const struct tr_conn *conn, const struct moving *moving, struct iovec *iov)
{
    size_t piece_bytes = conn->owner->opts.geometry.piece_bytes;
    uint64_t at = moving->at_bytes, end = tcp_end_of_call(moving, at);
    int n = 0;

    if (moving->ticket == NULL) {
        uint64_t left_bytes = moving->payload_bytes - at;

        iov[0].iov_base = conn->owner->scratch;
        iov[0].iov_len = left_bytes < TR_SCRATCH_BYTES ? (size_t)left_bytes : TR_SCRATCH_BYTES;
        return 1;
    }
    for (; n < TR_MAX_IOV && at < end; n++) {
        size_t within = (size_t)(at % piece_bytes);

        iov[n].iov_base = tr_ticket_piece(conn->owner, moving->ticket, moving->run.layer,
                                          moving->run.first + (uint32_t)(at / piece_bytes)) +
                          within;
        iov[n].iov_len = end - at < piece_bytes - within ? (size_t)(end - at) : piece_bytes - within;
        at += iov[n].iov_len;
    }
    return n;
}

static ssize_t tcp_receive_body(struct tr_conn *conn, struct moving *moving)
{
    struct iovec iov[TR_MAX_IOV];
    ssize_t n = tr_stream_read(&conn->stream, iov, tcp_scatter_payload(conn, moving, iov));

    if (n <= 0)
        return n;
    if (moving->ticket != NULL)
        tcp_update_digest(moving, iov, (size_t)n);
    moving->at_bytes += (uint64_t)n;
    if (moving->at_bytes == moving->payload_bytes) {
        moving->receiving = RECV_TAIL;
        moving->at_bytes = 0;
    }
    return n;
}

static int tcp_end_frame(struct tr_conn *conn, struct moving *moving, struct fault *fault)
{
    struct kv_frame_trailer trailer;
    int err = kv_frame_trailer_unpack(moving->trailer, fault, &trailer);

    if (err != 0)
        return err;
    moving->receiving = RECV_HEAD;
    if (moving->ticket == NULL)
        return 0;
    if (trailer.status == KV_FRAME_GOOD && moving->digest != NULL &&
        trailer.digest != XXH3_64bits_digest(moving->digest))
        return fault_set(fault, E_PROTO, "%s: the digest of layer %u from %u does not match",
                         tr_conn_name(conn), moving->run.layer, moving->run.first);
    tr_ticket_end_claim(conn->owner, moving->ticket, &moving->run, trailer.status == KV_FRAME_GOOD);
    moving->ticket = NULL;
    return 0;
}

static ssize_t tcp_receive_tail(struct tr_conn *conn, struct moving *moving, struct fault *fault)
{
    struct iovec iov = {.iov_base = moving->trailer + moving->at_bytes,
                        .iov_len = sizeof(moving->trailer) - (size_t)moving->at_bytes};
    ssize_t n = tr_stream_read(&conn->stream, &iov, 1);
    int err;

    if (n <= 0)
        return n;
    moving->at_bytes += (uint64_t)n;
    if (moving->at_bytes < sizeof(moving->trailer))
        return n;
    err = tcp_end_frame(conn, moving, fault);
    return err != 0 ? err : n;
}

static ssize_t tcp_receive_move(struct tr_conn *conn, struct moving *moving, struct fault *fault)
{
    switch (moving->receiving) {
    case RECV_HEAD:
        return tcp_receive_head(conn, moving, fault);
    case RECV_BODY:
        return tcp_receive_body(conn, moving);
    case RECV_TAIL:
        return tcp_receive_tail(conn, moving, fault);
    }
    return 0;
}

static int tcp_receive(struct tr_conn *conn, struct fault *fault)
{
    return tr_conn_receive_runs(conn, tcp_receive_move, fault);
}

static void tcp_forget_ticket(struct tr_conn *conn, const struct tr_ticket *ticket)
{
    struct moving *moving = conn->moving;

    if (moving->ticket == ticket)
        moving->ticket = NULL;
}

const struct tr_conn_ops tr_tcp_ops = {
    .frame_bytes = TR_FRAME_BYTES,
    .has_many = true,
    .ready = tcp_ready,
    .receive = tcp_receive,
    .send = tcp_send,
    .forget_push = tcp_forget_push,
    .forget_ticket = tcp_forget_ticket,
    .is_busy = tcp_is_busy,
    .fini = tcp_fini,
};
