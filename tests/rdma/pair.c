/* SPDX-License-Identifier: Apache-2.0 */
/* The two ends exchange a number and a first packet number.  The transport sends these over a socket; here
 * both ends are in one process. */
#include "tests/rdma/pair.h"

#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include <cmocka.h>

struct ibv_device *device;
int gid_index;
enum ibv_mtu mtu;
static union ibv_gid gid;

void sleep_ms(unsigned ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L}, NULL);
}

/* ---- setting up ---- */

/* Finds the device that has this address among its RoCE v2 entries.  It is never guessed. */
bool find_device(const char *address)
{
    struct ibv_device **devices = ibv_get_device_list(NULL);
    uint8_t wanted[16] = {[10] = 0xff, [11] = 0xff};

    inet_pton(AF_INET, address, wanted + 12);
    for (unsigned i = 0; devices != NULL && devices[i] != NULL && device == NULL; i++) {
        struct ibv_context *context = ibv_open_device(devices[i]);
        struct ibv_port_attr port;
        struct ibv_gid_entry entry;

        if (context == NULL)
            continue;
        for (int k = 0; ibv_query_port(context, 1, &port) == 0 && k < port.gid_tbl_len && device == NULL; k++)
            if (ibv_query_gid_ex(context, 1, (uint32_t)k, &entry, 0) == 0 &&
                entry.gid_type == IBV_GID_TYPE_ROCE_V2 && memcmp(entry.gid.raw, wanted, 16) == 0) {
                device = devices[i]; /* the list lives as long as the process: its entries may be opened */
                gid = entry.gid;
                gid_index = k;
                mtu = port.active_mtu;
            }
        ibv_close_device(context);
    }
    return device != NULL;
}

void end_open(struct end *end, int access)
{
    struct ibv_qp_init_attr init = {
        .qp_type = IBV_QPT_RC,
        .cap = {.max_send_wr = 16, .max_recv_wr = N_RECEIVES, .max_send_sge = 1, .max_recv_sge = 1}};

    memset(end, 0, sizeof(*end));
    end->device = ibv_open_device(device);
    assert_non_null(end->device);
    end->pd = ibv_alloc_pd(end->device);
    end->channel = ibv_create_comp_channel(end->device);
    end->cq = ibv_create_cq(end->device, 64, NULL, end->channel, 0);
    end->buffer = mmap(NULL, BUFFER, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    end->mr = ibv_reg_mr(end->pd, end->buffer, BUFFER, access);
    assert_non_null(end->mr);
    init.send_cq = init.recv_cq = end->cq;
    end->qp = ibv_create_qp(end->pd, &init);
    assert_non_null(end->qp);
    end->psn = (uint32_t)random() & 0xffffff;
}

void end_close(struct end *end)
{
    if (end->qp != NULL)
        assert_int_equal(ibv_destroy_qp(end->qp), 0);
    if (end->mr != NULL)
        assert_int_equal(ibv_dereg_mr(end->mr), 0);
    assert_int_equal(ibv_destroy_cq(end->cq), 0);
    assert_int_equal(ibv_destroy_comp_channel(end->channel), 0);
    assert_int_equal(ibv_dealloc_pd(end->pd), 0);
    assert_int_equal(ibv_close_device(end->device), 0);
    munmap(end->buffer, BUFFER);
}

/* Takes a queue pair from RESET until it can send; the peer's numbers are all that the ends exchange. */
void qp_connect(struct end *end, uint32_t peer_qp, uint32_t peer_psn, int access)
{
    struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = (unsigned)access};
    struct ibv_qp_attr rtr = {
        .qp_state = IBV_QPS_RTR,
        .path_mtu = mtu,
        .dest_qp_num = peer_qp,
        .rq_psn = peer_psn,
        .max_dest_rd_atomic = 1,
        .min_rnr_timer = 12,
        .ah_attr = {.is_global = 1,
                    .port_num = 1,
                    .grh = {.dgid = gid, .sgid_index = (uint8_t)gid_index, .hop_limit = 64}}};
    struct ibv_qp_attr rts = {.qp_state = IBV_QPS_RTS,
                              .sq_psn = end->psn,
                              .timeout = 14,
                              .retry_cnt = 6,
                              .rnr_retry = 3,
                              .max_rd_atomic = 1};

    assert_int_equal(
        ibv_modify_qp(end->qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
        0);
    assert_int_equal(ibv_modify_qp(end->qp, &rtr,
                                   IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                       IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
                     0);
    assert_int_equal(ibv_modify_qp(end->qp, &rts,
                                   IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                       IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC),
                     0);
}

void qp_to(struct end *end, enum ibv_qp_state state)
{
    struct ibv_qp_attr attr = {.qp_state = state};

    assert_int_equal(ibv_modify_qp(end->qp, &attr, IBV_QP_STATE), 0);
}

void post_receives(struct end *end, unsigned n)
{
    struct ibv_recv_wr wr = {.wr_id = 1000}, *bad; /* an immediate needs no memory */

    for (unsigned i = 0; i < n; i++)
        assert_int_equal(ibv_post_recv(end->qp, &wr, &bad), 0);
}

/* ---- doing ---- */

void write_to(struct pair *pair, size_t at, size_t len_bytes, uint32_t key, unsigned flags)
{
    struct ibv_sge sge = {.addr = (uintptr_t)pair->writer.buffer + at,
                          .length = (uint32_t)len_bytes,
                          .lkey = pair->writer.mr->lkey};
    struct ibv_send_wr wr = {.wr_id = at,
                             .sg_list = &sge,
                             .num_sge = 1,
                             .opcode = IBV_WR_RDMA_WRITE,
                             .send_flags = flags & SIGNALLED ? IBV_SEND_SIGNALED : 0,
                             .wr.rdma = {.remote_addr = (uintptr_t)pair->target.buffer + at, .rkey = key}};
    struct ibv_send_wr *bad;

    assert_int_equal(ibv_post_send(pair->writer.qp, &wr, &bad), 0);
}

void write_imm(struct pair *pair, size_t at, size_t len_bytes, uint32_t number)
{
    struct ibv_sge sge = {.addr = (uintptr_t)pair->writer.buffer + at,
                          .length = (uint32_t)len_bytes,
                          .lkey = pair->writer.mr->lkey};
    struct ibv_send_wr wr = {
        .wr_id = at,
        .sg_list = &sge,
        .num_sge = len_bytes > 0,
        .imm_data = htonl(number),
        .opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
        .send_flags = IBV_SEND_SIGNALED,
        .wr.rdma = {.remote_addr = (uintptr_t)pair->target.buffer + at, .rkey = pair->window_key}};
    struct ibv_send_wr *bad;

    assert_int_equal(ibv_post_send(pair->writer.qp, &wr, &bad), 0);
}

/* Returns the next completion.  False: none came in time. */
bool completion(struct end *end, unsigned limit_ms, struct ibv_wc *out)
{
    for (unsigned waited_ms = 0;; waited_ms++) {
        int n = ibv_poll_cq(end->cq, 1, out);

        assert_true(n >= 0);
        if (n == 1 || waited_ms >= limit_ms)
            return n == 1;
        sleep_ms(1);
    }
}

void expect(struct end *end, enum ibv_wc_status status)
{
    struct ibv_wc wc = {0};

    assert_true(completion(end, LIMIT_MS, &wc));
    if (wc.status != status)
        fail_msg("%s instead of %s", ibv_wc_status_str(wc.status), ibv_wc_status_str(status));
}

/* Binds the window anew, under another key.  The owner chooses the key's last byte.  The provider reads the
 * window's present key from `struct ibv_mw`, but does not update it there for bindings through the send
 * queue, so the owner must. */
void window_bind(struct pair *pair)
{
    struct ibv_mw_bind_info info = {.mr = pair->target.mr,
                                    .addr = (uintptr_t)pair->target.buffer,
                                    .length = BUFFER,
                                    .mw_access_flags = IBV_ACCESS_REMOTE_WRITE};
    struct ibv_send_wr wr = {
        .wr_id = 1,
        .opcode = IBV_WR_BIND_MW,
        .send_flags = IBV_SEND_SIGNALED,
        .bind_mw = {.mw = pair->window, .rkey = ibv_inc_rkey(pair->window->rkey), .bind_info = info}};
    struct ibv_send_wr *bad;

    assert_int_equal(ibv_post_send(pair->target.qp, &wr, &bad), 0);
    expect(&pair->target, IBV_WC_SUCCESS);
    pair->window->rkey = pair->window_key = wr.bind_mw.rkey;
}

void window_revoke(struct pair *pair, uint32_t key)
{
    struct ibv_send_wr wr = {
        .wr_id = 2, .opcode = IBV_WR_LOCAL_INV, .send_flags = IBV_SEND_SIGNALED, .invalidate_rkey = key};
    struct ibv_send_wr *bad;

    assert_int_equal(ibv_post_send(pair->target.qp, &wr, &bad), 0);
    expect(&pair->target, IBV_WC_SUCCESS);
}

void fill(struct pair *pair, unsigned seed)
{
    for (size_t i = 0; i < BUFFER; i++)
        pair->writer.buffer[i] = (uint8_t)((i * 2654435761u >> 11) + seed);
    memset(pair->target.buffer, POISON, BUFFER);
}

bool arrived(const struct pair *pair, size_t at, size_t len_bytes)
{
    return memcmp(pair->writer.buffer + at, pair->target.buffer + at, len_bytes) == 0;
}

bool is_untouched(const struct pair *pair, size_t at, size_t len_bytes)
{
    const uint8_t *bytes = pair->target.buffer + at;

    return bytes[0] == POISON && memcmp(bytes, bytes + 1, len_bytes - 1) == 0;
}

void pair_connect(struct pair *pair)
{
    qp_connect(&pair->writer, pair->target.qp->qp_num, pair->target.psn, 0);
    qp_connect(&pair->target, pair->writer.qp->qp_num, pair->writer.psn, IBV_ACCESS_REMOTE_WRITE);
}
