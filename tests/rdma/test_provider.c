/* SPDX-License-Identifier: Apache-2.0 */
/* The transport's assumptions about a verbs provider, tested on a real one: the software device of the test
 * machine (tests/rdma/vm).  When a transport test fails there and this one passes, the transport is wrong.
 * When this one fails, the kernel differs from the one that the transport was written for.
 *
 *      writer.qp  -- RC -->  target.qp        both on one device, each with a protection domain of its own
 *      writer.mr  no rights    target.mr  LOCAL_WRITE | MW_BIND, no remote rights; windows bound the writes
 *
 * The device is the one with the address BATON_RDMA_ADDRESS, 10.9.0.1 by default; 77 when there is none. */
#include "tests/rdma/pair.h"

#include <arpa/inet.h>
#include <errno.h>
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

static int set_up(void **state)
{
    static struct pair pair;

    end_open(&pair.writer, 0); /* memory that is only a source needs no right */
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

/* ---- the checks ---- */

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

/* Unsignalled writes, then one with an immediate:
 * when that arrives at the receiver, all earlier ones have. */
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

/* The transport's hard stop: both queue pairs are lost, and no byte lands. */
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

/* A key is never used twice: each binding has a new one, and the previous one is dead. */
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

/* The receiver's other hard stop, in the middle of writes: its queue pair to ERR, the window closed, the
 * queue pair destroyed.  Once the last of these has returned, no byte lands.  ERR alone promises less: on a
 * busy machine rdma_rxe still copies the packet in progress. */
static void nothing_lands_after_the_target_is_gone(void **state)
{
    struct endless endless = {.pair = *state};
    struct pair *pair = endless.pair;
    pthread_t thread;

    assert_int_equal(pthread_create(&thread, NULL, write_until_refused, &endless), 0);
    while (atomic_load(&endless.n_written) < 20)
        sleep_ms(1);
    qp_to(&pair->target, IBV_QPS_ERR);
    assert_int_equal(ibv_dealloc_mw(pair->window), 0);
    pair->window = NULL;
    assert_int_equal(ibv_destroy_qp(pair->target.qp), 0);
    pair->target.qp = NULL;
    memset(pair->target.buffer, POISON, BUFFER);
    pthread_join(thread, NULL);
    assert_int_equal(endless.status, IBV_WC_RETRY_EXC_ERR);
    assert_true(is_untouched(pair, 0, BUFFER));
}

/* A finite number of retries, and their time when no peer answers.  The window must close before its queue
 * pair: in the other order rdma_rxe of Linux 6.1 waits for ever. */
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
    /* The receiver's side notices nothing by itself: the control link reports a peer's death. */
    assert_false(completion(&pair->target, 0, &wc));
    post_receives(&pair->target, 1); /* it is still ready */
}

/* The link goes down: an event on the device's own descriptor, and writes end in an error. */
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
        CASE(no_receive_posted_is_an_error_soon),     CASE(nothing_lands_after_the_target_is_gone),
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
