/* SPDX-License-Identifier: Apache-2.0 */
/* Written from proto/README.md and not from the transport's code, so that the two check each other. */
#include "tests/conformance/tr_raw.h"

#include "base/rng.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <openssl/hmac.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>
#include <xxhash.h>

#include <cmocka.h>

#define SLOTS 4096

static void set_limits(int fd)
{
    struct timeval limit = {.tv_sec = 10};

    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
}

static void begin(struct raw *raw, int fd, bool is_dialler, const struct tr_geometry *geometry)
{
    *raw = (struct raw){.fd = fd, .is_dialler = is_dialler, .geometry = *geometry};
    set_limits(fd);
    if (kind_now->kind == TR_SHM && is_dialler) {
        uint64_t generation = 1;

        assert_int_equal(mem_region_open(geometry->n_layers * geometry->n_blocks * geometry->piece_bytes,
                                         true, false, "raw-arena", &raw->arena),
                         0);
        assert_int_equal(mem_region_open(SLOTS * 64, true, false, "raw-control", &raw->control), 0);
        memcpy(raw->control.base, &generation, sizeof(generation));
    }
    if (kind_now->is_encrypted) {
        raw->ssl = SSL_new(is_dialler ? tls_client(world_tls()) : tls_server(world_tls()));
        SSL_set_fd(raw->ssl, fd);
        assert_int_equal(is_dialler ? SSL_connect(raw->ssl) : SSL_accept(raw->ssl), 1);
    }
}

void raw_dial(struct raw *raw, const struct worker *to)
{
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(kind_now->kind == TR_SHM ? AF_UNIX : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    set_limits(fd);
    if (kind_now->kind == TR_SHM) {
        strcpy(un.sun_path, worker_address(to));
        assert_int_equal(connect(fd, (struct sockaddr *)&un, sizeof(un)), 0);
    } else {
        in.sin_port = htons((uint16_t)atoi(strrchr(worker_address(to), ':') + 1));
        assert_int_equal(connect(fd, (struct sockaddr *)&in, sizeof(in)), 0);
    }
    begin(raw, fd, true, &to->geometry);
}

void raw_take(struct raw *raw, int fd, const struct tr_geometry *geometry)
{
    begin(raw, fd, false, geometry);
}

void raw_close(struct raw *raw)
{
    SSL_free(raw->ssl);
    close(raw->fd);
    if (raw->arena.base != NULL)
        mem_region_close(&raw->arena);
    if (raw->control.base != NULL)
        mem_region_close(&raw->control);
}

bool raw_send(struct raw *raw, const void *data, size_t len_bytes)
{
    for (size_t at = 0; at < len_bytes;) {
        ssize_t n = raw->ssl != NULL
                        ? SSL_write(raw->ssl, (const uint8_t *)data + at, (int)(len_bytes - at))
                        : send(raw->fd, (const uint8_t *)data + at, len_bytes - at, MSG_NOSIGNAL);

        if (n <= 0)
            return false;
        at += (size_t)n;
    }
    return true;
}

bool raw_receive(struct raw *raw, void *data, size_t len_bytes)
{
    for (size_t at = 0; at < len_bytes;) {
        ssize_t n = raw->ssl != NULL ? SSL_read(raw->ssl, (uint8_t *)data + at, (int)(len_bytes - at))
                                     : recv(raw->fd, (uint8_t *)data + at, len_bytes - at, 0);

        if (n <= 0)
            return false;
        at += (size_t)n;
    }
    return true;
}

bool raw_is_closed(struct raw *raw)
{
    struct timeval start, end;
    uint8_t byte;

    gettimeofday(&start, NULL);
    while (raw_receive(raw, &byte, 1))
        ;
    gettimeofday(&end, NULL);
    return end.tv_sec - start.tv_sec < 9;
}

static size_t make_hello(const struct raw *raw, const struct raw_lies *lies, uint8_t out[KV_FRAME_MAX_BYTES])
{
    struct kv_frame frame = {.type = KV_FRAME_HELLO};
    struct kv_frame_hello *hello = &frame.as.hello;

    *hello = (struct kv_frame_hello){.version = lies->version != 0 ? lies->version : KV_FRAME_VERSION,
                                     .kind = lies->kind != 0            ? lies->kind
                                             : kind_now->kind == TR_SHM ? KV_FRAME_SHM
                                                                        : KV_FRAME_TCP,
                                     .side = raw->is_dialler ? KV_FRAME_DIALER : KV_FRAME_ACCEPTOR,
                                     .n_layers = raw->geometry.n_layers,
                                     .piece_bytes = raw->geometry.piece_bytes,
                                     .layout = lies->layout != 0 ? lies->layout : world_layout,
                                     .n_blocks = raw->geometry.n_blocks,
                                     .n_slots = kind_now->kind == TR_SHM && raw->is_dialler ? SLOTS : 0,
                                     .node = "raw"};
    rng_system(hello->nonce, sizeof(hello->nonce));
    return kv_frame_pack(&frame, out);
}

static void make_proof(const struct raw *raw, const struct raw_lies *lies, uint8_t out[KV_FRAME_MAX_BYTES])
{
    struct kv_frame frame = {.type = KV_FRAME_PROOF};
    uint8_t key[32], text[15 + 2 * KV_FRAME_MAX_BYTES];

    memcpy(key, world_key, sizeof(key));
    if (lies->key != 0)
        key[0] = lies->key;
    memcpy(text, "baton kv proof", 14);
    text[14] = raw->is_dialler ? 1 : 2;
    memcpy(text + 15, raw->own_hello, KV_FRAME_MAX_BYTES);
    memcpy(text + 15 + KV_FRAME_MAX_BYTES, raw->peer_hello, KV_FRAME_MAX_BYTES);
    HMAC(EVP_sha256(), key, sizeof(key), text, sizeof(text), frame.as.proof.mac, NULL);
    kv_frame_pack(&frame, out);
}

bool raw_share(struct raw *raw, const int *fds, unsigned n_fds)
{
    struct kv_frame frame = {.type = KV_FRAME_MEMORY};
    uint8_t bytes[KV_FRAME_MAX_BYTES];
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(16 * sizeof(int))] = {0};
    struct iovec iov = {.iov_base = bytes, .iov_len = kv_frame_pack(&frame, bytes)};
    struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};

    if (n_fds > 0) {
        struct cmsghdr *part;

        message.msg_control = control;
        message.msg_controllen = CMSG_SPACE(n_fds * sizeof(int));
        part = CMSG_FIRSTHDR(&message);
        part->cmsg_level = SOL_SOCKET;
        part->cmsg_type = SCM_RIGHTS;
        part->cmsg_len = CMSG_LEN(n_fds * sizeof(int));
        memcpy(CMSG_DATA(part), fds, n_fds * sizeof(int));
    }
    return sendmsg(raw->fd, &message, MSG_NOSIGNAL) == (ssize_t)iov.iov_len;
}

bool raw_greet(struct raw *raw, const struct raw_lies *lies)
{
    const size_t proof_bytes = KV_FRAME_PREFIX_BYTES + KV_FRAME_PROOF_BYTES;
    uint8_t proof[KV_FRAME_MAX_BYTES], theirs[KV_FRAME_MAX_BYTES];
    const int fds[2] = {raw->arena.fd, raw->control.fd};

    make_hello(raw, lies, raw->own_hello);
    if (!raw_send(raw, raw->own_hello, sizeof(raw->own_hello)) ||
        !raw_receive(raw, raw->peer_hello, sizeof(raw->peer_hello)))
        return false;
    if (lies->reflects_proof)
        return raw_receive(raw, theirs, proof_bytes) && raw_send(raw, theirs, proof_bytes);
    make_proof(raw, lies, proof);
    if (!raw_send(raw, proof, proof_bytes) || !raw_receive(raw, theirs, proof_bytes))
        return false;
    return kind_now->kind != TR_SHM || !raw->is_dialler || lies->skips_share || raw_share(raw, fds, 2);
}

bool raw_expect_reject(struct raw *raw, uint64_t ticket, int code)
{
    uint8_t bytes[KV_FRAME_PREFIX_BYTES + KV_FRAME_REJECT_BYTES];
    struct kv_frame frame;

    return raw_receive(raw, bytes, sizeof(bytes)) &&
           kv_frame_unpack(bytes_of(bytes, sizeof(bytes)), NULL, &frame) == 0 &&
           frame.type == KV_FRAME_REJECT && frame.as.reject.ticket == ticket && frame.as.reject.code == code;
}

bool raw_send_head(struct raw *raw, const struct kv_frame_data *run, uint8_t flags)
{
    struct kv_frame frame = {.type = KV_FRAME_DATA, .flags = flags, .as.data = *run};
    uint8_t bytes[KV_FRAME_MAX_BYTES];
    size_t len_bytes = kv_frame_pack(&frame, bytes);

    return raw_send(raw, bytes, len_bytes);
}

bool raw_send_trailer(struct raw *raw, uint64_t digest, unsigned status)
{
    struct kv_frame_trailer trailer = {.digest = digest, .status = (enum kv_frame_status)status};
    uint8_t bytes[KV_FRAME_TRAILER_BYTES];

    kv_frame_trailer_pack(&trailer, bytes);
    return raw_send(raw, bytes, sizeof(bytes));
}

bool raw_send_announce(struct raw *raw, const struct kv_frame_announce *announce, const uint32_t *blocks)
{
    struct kv_frame frame = {.type = KV_FRAME_ANNOUNCE, .as.announce = *announce};
    uint8_t bytes[KV_FRAME_MAX_BYTES + 64 * 4];
    size_t len_bytes = kv_frame_pack(&frame, bytes);

    for (uint32_t i = 0; i < announce->n_pieces; i++, len_bytes += 4)
        put_u32(bytes + len_bytes, blocks[i]);
    return raw_send(raw, bytes, len_bytes);
}

bool raw_send_pieces(struct raw *raw, uint64_t ticket, const struct raw_pieces *pieces)
{
    size_t piece_bytes = raw->geometry.piece_bytes, len_bytes = pieces->n * piece_bytes;
    uint8_t *payload = malloc(len_bytes);
    bool sent;

    for (uint32_t i = 0; i < pieces->n; i++)
        piece_fill(payload + i * piece_bytes, piece_bytes, pieces->seed + i);
    if (kind_now->kind == TR_SHM) {
        uint32_t blocks[64];

        memcpy((uint8_t *)raw->arena.base + (size_t)pieces->layer * raw->geometry.n_blocks * piece_bytes,
               payload, len_bytes);
        for (uint32_t i = 0; i < pieces->n; i++)
            blocks[i] = i;
        sent = raw_send_announce(raw,
                                 &(struct kv_frame_announce){.ticket = ticket,
                                                             .layer = pieces->layer,
                                                             .first = pieces->first,
                                                             .n_pieces = pieces->n,
                                                             .generation = 1},
                                 blocks);
    } else {
        struct kv_frame_data run = {.ticket = ticket,
                                    .layer = pieces->layer,
                                    .first = pieces->first,
                                    .n_pieces = pieces->n,
                                    .payload_bytes = len_bytes};

        sent = raw_send_head(raw, &run, raw->ssl == NULL ? KV_FRAME_FLAG_DIGEST : 0) &&
               raw_send(raw, payload, len_bytes) &&
               raw_send_trailer(raw, raw->ssl == NULL ? XXH3_64bits(payload, len_bytes) : 0, KV_FRAME_GOOD);
    }
    free(payload);
    return sent;
}
