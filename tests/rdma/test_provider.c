/* SPDX-License-Identifier: Apache-2.0 */
/* What the RDMA transport takes for granted about a verbs provider, asked of a real one: the software device
 * of the test machine (tests/rdma/vm).  When a transport test fails there and this one passes, the transport
 * is wrong; when this one fails, the kernel is another than the transport was written for.
 *
 *      writer.qp  -- RC -->  target.qp        both on one device, each with a protection domain of its own
 *      writer.mr  no rights    target.mr  LOCAL_WRITE | MW_BIND, no remote rights; windows say what may be
 * written
 *
 * The device is the one whose address is in BATON_RDMA_ADDRESS, 10.9.0.1 otherwise; 77 when there is none. */
#include <arpa/inet.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

enum {
    BUFFER = 1 << 20,
    PIECE = 65536,
    LIMIT_MS = 30000, /* an emulated machine on a busy host */
    N_RECEIVES = 16,
    SIGNALLED = 1,
    POISON = 0xa5
};

struct end {
    struct ibv_context *device;
    struct ibv_pd *pd;
    struct ibv_comp_channel *channel;
    struct ibv_cq *cq;
    struct ibv_qp *qp;
    struct ibv_mr *mr;
    uint8_t *buffer; /* [BUFFER] */
    uint32_t psn;
};

struct pair {
    struct end writer, target;
    struct ibv_mw *window; /* over the target's whole buffer, bound to its qp */
    uint32_t window_key;
};

static struct ibv_device *device;
static union ibv_gid gid;
static int gid_index;
static enum ibv_mtu mtu;

static void sleep_ms(unsigned ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L}, NULL);
}

/* ---- setting up ---- */

/* The device that has this address among its RoCE v2 entries: chosen, never guessed. */
static bool find_device(const char *address)
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

static void end_open(struct end *end, int access)
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

static void end_close(struct end *end)
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

/* From RESET to where it can send; what the peer is called is all that travels between two ends. */
static void qp_connect(struct end *end, uint32_t peer_qp, uint32_t peer_psn, int access)
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

static void qp_to(struct end *end, enum ibv_qp_state state)
{
    struct ibv_qp_attr attr = {.qp_state = state};

    assert_int_equal(ibv_modify_qp(end->qp, &attr, IBV_QP_STATE), 0);
}

static void post_receives(struct end *end, unsigned n)
{
    struct ibv_recv_wr wr = {.wr_id = 1000}, *bad; /* an immediate needs no memory */

    for (unsigned i = 0; i < n; i++)
        assert_int_equal(ibv_post_recv(end->qp, &wr, &bad), 0);
}

/* ---- doing ---- */

static void write_to(struct pair *pair, size_t at, size_t len_bytes, uint32_t key, unsigned flags)
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

static void write_imm(struct pair *pair, size_t at, size_t len_bytes, uint32_t number)
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

/* The next completion; false when none came in time. */
static bool completion(struct end *end, unsigned limit_ms, struct ibv_wc *out)
{
    for (unsigned waited_ms = 0;; waited_ms++) {
        int n = ibv_poll_cq(end->cq, 1, out);

        assert_true(n >= 0);
        if (n == 1 || waited_ms >= limit_ms)
            return n == 1;
        sleep_ms(1);
    }
}

static void expect(struct end *end, enum ibv_wc_status status)
{
    struct ibv_wc wc = {0};

    assert_true(completion(end, LIMIT_MS, &wc));
    if (wc.status != status)
        fail_msg("%s instead of %s", ibv_wc_status_str(wc.status), ibv_wc_status_str(status));
}

/* Binds the window anew, under another key.  The key's last byte is the owner's to choose; the provider takes
 * the window's present key from `struct ibv_mw` but does not keep it up to date there when the binding goes
 * through the send queue, so the owner has to. */
static void window_bind(struct pair *pair)
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

static void window_revoke(struct pair *pair, uint32_t key)
{
    struct ibv_send_wr wr = {
        .wr_id = 2, .opcode = IBV_WR_LOCAL_INV, .send_flags = IBV_SEND_SIGNALED, .invalidate_rkey = key};
    struct ibv_send_wr *bad;

    assert_int_equal(ibv_post_send(pair->target.qp, &wr, &bad), 0);
    expect(&pair->target, IBV_WC_SUCCESS);
}

static void fill(struct pair *pair, unsigned seed)
{
    for (size_t i = 0; i < BUFFER; i++)
        pair->writer.buffer[i] = (uint8_t)((i * 2654435761u >> 11) + seed);
    memset(pair->target.buffer, POISON, BUFFER);
}

static bool arrived(const struct pair *pair, size_t at, size_t len_bytes)
{
    return memcmp(pair->writer.buffer + at, pair->target.buffer + at, len_bytes) == 0;
}

static bool is_untouched(const struct pair *pair, size_t at, size_t len_bytes)
{
    const uint8_t *bytes = pair->target.buffer + at;

    return bytes[0] == POISON && memcmp(bytes, bytes + 1, len_bytes - 1) == 0;
}

static void pair_connect(struct pair *pair)
{
    qp_connect(&pair->writer, pair->target.qp->qp_num, pair->target.psn, 0);
    qp_connect(&pair->target, pair->writer.qp->qp_num, pair->writer.psn, IBV_ACCESS_REMOTE_WRITE);
}

static int set_up(void **state)
{
    static struct pair pair;

    end_open(&pair.writer, 0); /* what is only read from needs no right at all */
    end_open(&pair.target, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
    pair_connect(&pair);
    pair.window = ibv_alloc_mw(pair.target.pd, IBV_MW_TYPE_2);
    assert_non_null(pair.window);
    window_bind(&pair);
    fill(&pair, 0);
    *state = &pair;
    return 0;
}

static int tear_down(void **state)
{
    struct pair *pair = *state;

    if (pair->window != NULL) /* before the queue pair */
        assert_int_equal(ibv_dealloc_mw(pair->window), 0);
    end_close(&pair->writer);
    end_close(&pair->target);
    return 0;
}

/* ---- what is asked ---- */

static void the_device_is_what_the_transport_needs(void **state)
{
    struct pair *pair = *state;
    struct ibv_device_attr attr;

    assert_int_equal(ibv_query_device(pair->writer.device, &attr), 0);
    assert_true(attr.device_cap_flags & (IBV_DEVICE_MEM_WINDOW_TYPE_2A | IBV_DEVICE_MEM_WINDOW_TYPE_2B));
    assert_int_equal(mtu, IBV_MTU_4096); /* the link's own MTU of 4500 leaves room for it */
    printf("  %s, GID index %d, at most %d QPs, %d windows, regions of %llu MiB\n",
           ibv_get_device_name(device), gid_index, attr.max_qp, attr.max_mw,
           (unsigned long long)attr.max_mr_size >> 20);
}

/* Unsignalled writes, then one with an immediate: when the receiver has that, it has all before it. */
static void an_immediate_closes_all_writes_before_it(void **state)
{
    struct pair *pair = *state;
    struct ibv_wc wc;

    for (unsigned round = 0; round < 20; round++) {
        fill(pair, round);
        post_receives(&pair->target, 1);
        for (size_t i = 0; i < 7; i++)
            write_to(pair, i * PIECE, PIECE, pair->window_key, 0);
        write_imm(pair, 7 * PIECE, PIECE, 0xb0000000 + round);
        assert_true(completion(&pair->target, LIMIT_MS, &wc));
        assert_int_equal(wc.status, IBV_WC_SUCCESS);
        assert_int_equal(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
        assert_int_equal(ntohl(wc.imm_data), 0xb0000000 + round);
        assert_true(arrived(pair, 0, 8 * PIECE));
        assert_true(is_untouched(pair, 8 * PIECE, BUFFER - 8 * PIECE));
        expect(&pair->writer, IBV_WC_SUCCESS); /* one of eight is signalled */
        assert_false(completion(&pair->writer, 0, &wc));
    }
}

static void an_immediate_may_carry_nothing(void **state)
{
    struct pair *pair = *state;
    struct ibv_wc wc;

    post_receives(&pair->target, 1);
    write_imm(pair, 0, 0, 42);
    assert_true(completion(&pair->target, LIMIT_MS, &wc));
    assert_int_equal(ntohl(wc.imm_data), 42);
    assert_true(is_untouched(pair, 0, BUFFER));
}

/* Arm, look once more, sleep, wake. */
static void the_completion_channel_wakes(void **state)
{
    struct pair *pair = *state;
    struct pollfd waiter = {.fd = pair->target.channel->fd, .events = POLLIN};
    struct ibv_cq *cq;
    struct ibv_wc wc;
    void *context;

    post_receives(&pair->target, 1);
    assert_int_equal(ibv_req_notify_cq(pair->target.cq, 0), 0);
    assert_int_equal(ibv_poll_cq(pair->target.cq, 1, &wc), 0);
    assert_int_equal(poll(&waiter, 1, 0), 0);
    write_imm(pair, 0, PIECE, 1);
    assert_int_equal(poll(&waiter, 1, LIMIT_MS), 1);
    assert_int_equal(ibv_get_cq_event(pair->target.channel, &cq, &context), 0);
    assert_ptr_equal(cq, pair->target.cq);
    ibv_ack_cq_events(cq, 1);
    assert_int_equal(ibv_poll_cq(cq, 1, &wc), 1);
}

static void the_base_region_has_no_remote_rights(void **state)
{
    struct pair *pair = *state;

    write_to(pair, 0, PIECE, pair->target.mr->rkey, SIGNALLED);
    expect(&pair->writer, IBV_WC_REM_ACCESS_ERR);
    assert_true(is_untouched(pair, 0, BUFFER));
}

/* What the transport calls the hard stop: both queue pairs are lost, and nothing lands. */
static void a_revoked_window_lets_nothing_in(void **state)
{
    struct pair *pair = *state;

    write_to(pair, 0, PIECE, pair->window_key, SIGNALLED);
    expect(&pair->writer, IBV_WC_SUCCESS);
    assert_true(arrived(pair, 0, PIECE));
    window_revoke(pair, pair->window_key);
    memset(pair->target.buffer, POISON, BUFFER);
    write_to(pair, 0, PIECE, pair->window_key, SIGNALLED);
    expect(&pair->writer, IBV_WC_REM_ACCESS_ERR);
    assert_true(is_untouched(pair, 0, BUFFER));
    write_to(pair, 0, PIECE, pair->window_key,
             SIGNALLED); /* the queue pair is in error: nothing is even tried */
    expect(&pair->writer, IBV_WC_WR_FLUSH_ERR);
}

static void a_window_is_of_its_queue_pair_only(void **state)
{
    struct pair *pair = *state;
    struct end other;
    struct ibv_qp_init_attr init = {
        .qp_type = IBV_QPT_RC,
        .send_cq = pair->target.cq,
        .recv_cq = pair->target.cq,
        .cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1}};
    struct end second = {.qp = ibv_create_qp(pair->target.pd, &init), .psn = 77};

    end_open(&other, 0);
    qp_connect(&other, second.qp->qp_num, second.psn, 0);
    qp_connect(&second, other.qp->qp_num, other.psn, IBV_ACCESS_REMOTE_WRITE);
    struct pair through = {.writer = other, .target = pair->target, .window_key = pair->window_key};
    write_to(&through, 0, PIECE, pair->window_key, SIGNALLED);
    expect(&through.writer, IBV_WC_REM_ACCESS_ERR);
    assert_true(is_untouched(pair, 0, BUFFER));
    assert_int_equal(ibv_destroy_qp(second.qp), 0);
    end_close(&other);
}

/* A key is never used again: each binding has another one, and the one before is dead. */
static void binding_again_changes_the_key(void **state)
{
    struct pair *pair = *state;
    uint32_t before = pair->window_key;

    window_revoke(pair, before);
    window_bind(pair);
    assert_int_not_equal(pair->window_key, before);
    write_to(pair, 0, PIECE, pair->window_key, SIGNALLED);
    expect(&pair->writer, IBV_WC_SUCCESS);
    write_to(pair, PIECE, PIECE, before, SIGNALLED);
    expect(&pair->writer, IBV_WC_REM_ACCESS_ERR);
    assert_true(is_untouched(pair, PIECE, PIECE));
}

static void no_receive_posted_is_an_error_soon(void **state)
{
    struct pair *pair = *state;

    write_imm(pair, 0, PIECE, 1);
    expect(&pair->writer, IBV_WC_RNR_RETRY_EXC_ERR);
}

struct endless {
    struct pair *pair;
    atomic_uint n_written;
    enum ibv_wc_status status; /* of the one that failed */
};

static void *write_until_refused(void *arg)
{
    struct endless *endless = arg;
    struct ibv_wc wc = {.status = IBV_WC_SUCCESS};

    while (wc.status == IBV_WC_SUCCESS) {
        unsigned i = atomic_fetch_add(&endless->n_written, 1);

        write_to(endless->pair, i % 16 * PIECE, PIECE, endless->pair->window_key, SIGNALLED);
        if (!completion(&endless->pair->writer, LIMIT_MS, &wc))
            break;
    }
    endless->status = wc.status;
    return NULL;
}

/* The receiver's other hard stop: its queue pair to ERR, in the middle of writes.  From the moment that call
 * has returned nothing lands. */
static void nothing_lands_after_the_target_went_to_error(void **state)
{
    struct endless endless = {.pair = *state};
    pthread_t thread;

    assert_int_equal(pthread_create(&thread, NULL, write_until_refused, &endless), 0);
    while (atomic_load(&endless.n_written) < 20)
        sleep_ms(1);
    qp_to(&endless.pair->target, IBV_QPS_ERR);
    memset(endless.pair->target.buffer, POISON, BUFFER);
    pthread_join(thread, NULL);
    assert_int_equal(endless.status, IBV_WC_RETRY_EXC_ERR);
    assert_true(is_untouched(endless.pair, 0, BUFFER));
}

/* A finite number of retries, and how long it takes where nobody answers.  The window goes before the queue
 * pair that it is bound to: the other way round rdma_rxe of Linux 6.1 waits for ever. */
static void a_peer_that_is_gone_ends_in_an_error(void **state)
{
    struct pair *pair = *state;
    struct timespec from, to;

    assert_int_equal(ibv_dealloc_mw(pair->window), 0);
    pair->window = NULL;
    assert_int_equal(ibv_destroy_qp(pair->target.qp), 0);
    pair->target.qp = NULL;
    clock_gettime(CLOCK_MONOTONIC, &from);
    write_to(pair, 0, PIECE, pair->window_key, SIGNALLED);
    write_to(pair, PIECE, PIECE, pair->window_key, SIGNALLED);
    expect(&pair->writer, IBV_WC_RETRY_EXC_ERR);
    expect(&pair->writer, IBV_WC_WR_FLUSH_ERR);
    clock_gettime(CLOCK_MONOTONIC, &to);
    printf("  after %.2f s\n",
           (double)(to.tv_sec - from.tv_sec) + 1e-9 * (double)(to.tv_nsec - from.tv_nsec));
    assert_true(is_untouched(pair, 0, BUFFER));
}

static void a_reset_pair_serves_again(void **state)
{
    struct pair *pair = *state;
    struct ibv_wc wc;

    window_revoke(pair, pair->window_key);
    write_to(pair, 0, PIECE, pair->window_key, SIGNALLED);
    expect(&pair->writer, IBV_WC_REM_ACCESS_ERR);
    qp_to(&pair->writer, IBV_QPS_RESET);
    qp_to(&pair->target, IBV_QPS_RESET);
    while (ibv_poll_cq(pair->writer.cq, 1, &wc) > 0 || ibv_poll_cq(pair->target.cq, 1, &wc) > 0)
        ;
    pair->writer.psn = (pair->writer.psn + 12345) & 0xffffff;
    pair->target.psn = (pair->target.psn + 54321) & 0xffffff;
    pair_connect(pair);
    window_bind(pair);
    post_receives(&pair->target, 1);
    write_imm(pair, 0, PIECE, 9);
    assert_true(completion(&pair->target, LIMIT_MS, &wc));
    assert_int_equal(wc.status, IBV_WC_SUCCESS);
    assert_int_equal(ntohl(wc.imm_data), 9);
    assert_true(arrived(pair, 0, PIECE));
}

/* A killed process takes its queue pair and its rights with it. */
static void a_killed_writer_writes_no_more(void **state)
{
    struct pair *pair = *state;
    struct {
        uint32_t qp, psn;
    } peer;
    struct {
        uint64_t address;
        uint32_t qp, psn, key;
    } us;
    int to_child[2], to_us[2];
    struct ibv_wc wc;
    pid_t child;

    window_revoke(pair, pair->window_key);
    qp_to(&pair->target, IBV_QPS_RESET);
    assert_int_equal(pipe(to_child), 0);
    assert_int_equal(pipe(to_us), 0);
    child = fork();
    if (child == 0) { /* opens a device of its own: nothing of the parent's is used */
        struct pair own = {0};

        end_open(&own.writer, 0);
        peer.qp = own.writer.qp->qp_num;
        peer.psn = own.writer.psn;
        if (write(to_us[1], &peer, sizeof(peer)) < 0 || read(to_child[0], &us, sizeof(us)) < 0)
            _exit(1);
        qp_connect(&own.writer, us.qp, us.psn, 0);
        own.target.buffer = (uint8_t *)(uintptr_t)us.address;
        for (unsigned i = 0;; i++) {
            own.window_key = us.key;
            if (i == 0)
                write_imm(&own, 0, PIECE, 5);
            else
                write_to(&own, i % 16 * PIECE, PIECE, us.key, SIGNALLED);
            expect(&own.writer, IBV_WC_SUCCESS);
        }
    }
    assert_true(read(to_us[0], &peer, sizeof(peer)) == sizeof(peer));
    qp_connect(&pair->target, peer.qp, peer.psn, IBV_ACCESS_REMOTE_WRITE);
    window_bind(pair);
    us.key = pair->window_key;
    post_receives(&pair->target, 1);
    us.address = (uintptr_t)pair->target.buffer;
    us.qp = pair->target.qp->qp_num;
    us.psn = pair->target.psn;
    assert_true(write(to_child[1], &us, sizeof(us)) == sizeof(us));
    assert_true(completion(&pair->target, LIMIT_MS, &wc));
    assert_int_equal(wc.status, IBV_WC_SUCCESS);
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, NULL, 0), child);
    for (unsigned i = 0; i < 2; i++) {
        close(to_child[i]);
        close(to_us[i]);
    }
    memset(pair->target.buffer, POISON, BUFFER);
    sleep_ms(50);
    assert_true(is_untouched(pair, 0, BUFFER));
    /* The receiver's side notices nothing by itself: telling that a peer died is the control link's work. */
    assert_false(completion(&pair->target, 0, &wc));
    post_receives(&pair->target, 1); /* it still stands ready */
}

/* The link goes: an event on the device's own descriptor, and writes that end in an error. */
static void a_lost_link_is_told(void **state)
{
    struct pair *pair = *state;
    struct pollfd waiter = {.fd = pair->writer.device->async_fd, .events = POLLIN};
    struct ibv_async_event event;
    struct ibv_wc wc;

    assert_int_equal(system("/usr/bin/ip link set d0 down"), 0);
    write_to(pair, 0, PIECE, pair->window_key, SIGNALLED);
    assert_int_equal(poll(&waiter, 1, LIMIT_MS), 1);
    assert_int_equal(ibv_get_async_event(pair->writer.device, &event), 0);
    printf("  the device told: %s\n", ibv_event_type_str(event.event_type));
    assert_true(event.event_type == IBV_EVENT_PORT_ERR || event.event_type == IBV_EVENT_GID_CHANGE);
    ibv_ack_async_event(&event);
    if (completion(&pair->writer, 5000, &wc))
        printf("  the writer saw: %s\n", ibv_wc_status_str(wc.status));
    else
        printf("  the writer saw nothing in 5 s\n");
    assert_int_equal(system("/usr/bin/ip link set d0 up"), 0);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(the_device_is_what_the_transport_needs), CASE(an_immediate_closes_all_writes_before_it),
        CASE(an_immediate_may_carry_nothing),         CASE(the_completion_channel_wakes),
        CASE(the_base_region_has_no_remote_rights),   CASE(a_revoked_window_lets_nothing_in),
        CASE(a_window_is_of_its_queue_pair_only),     CASE(binding_again_changes_the_key),
        CASE(no_receive_posted_is_an_error_soon),     CASE(nothing_lands_after_the_target_went_to_error),
        CASE(a_peer_that_is_gone_ends_in_an_error),   CASE(a_reset_pair_serves_again),
        CASE(a_killed_writer_writes_no_more),         CASE(a_lost_link_is_told),
    };
    const char *address = getenv("BATON_RDMA_ADDRESS");

    setvbuf(stdout, NULL, _IOLBF, 0);
    if (!find_device(address != NULL ? address : "10.9.0.1")) {
        printf("SKIP: no RDMA device has the address\n");
        return 77;
    }
    srandom((unsigned)time(NULL));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
