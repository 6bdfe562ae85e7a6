/* SPDX-License-Identifier: Apache-2.0 */
/* Receivers that lie, stay silent or do not read, seen from the node that pushes to them.  It must reveal
 * nothing, report the error, and stop in time.  Run over each kind, like test_transport.c. */
#include "tests/conformance/tr_raw.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#define LIMIT_MS 20000
#define PIECE    4096
#define TICKET   5

static const struct worker_opts opts = {.geometry = {.n_layers = 2, .n_blocks = 8, .piece_bytes = PIECE},
                                        .io_timeout_ns = 300 * NS_PER_MS};
static const struct raw_lies honest;

static int listen_raw(const char *folder, char address[128])
{
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len_bytes = sizeof(in);
    int fd = socket(kind_now->kind == TR_SHM ? AF_UNIX : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (kind_now->kind == TR_SHM) {
        snprintf(un.sun_path, sizeof(un.sun_path), "%s/raw", folder);
        assert_int_equal(bind(fd, (struct sockaddr *)&un, sizeof(un)), 0);
        strcpy(address, un.sun_path);
    } else {
        assert_int_equal(bind(fd, (struct sockaddr *)&in, sizeof(in)), 0);
        assert_int_equal(getsockname(fd, (struct sockaddr *)&in, &len_bytes), 0);
        snprintf(address, 128, "127.0.0.1:%u", ntohs(in.sin_port));
    }
    assert_int_equal(listen(fd, 8), 0);
    return fd;
}

/* A worker that pushes to our receiver, over one connection. */
struct victim {
    struct worker *worker;
    int listen_fd;
    char address[128];
};

static void start_victim(struct victim *victim, size_t piece_bytes)
{
    struct worker_opts one = opts;
    struct tr_target target = {.kind = kind_now->kind, .address = victim->address, .ticket = TICKET};
    uint32_t blocks[8] = {0, 1, 2, 3, 4, 5, 6, 7};

    one.tcp_connections = 1;
    one.geometry.piece_bytes = piece_bytes;
    victim->worker = worker_new(&one);
    victim->listen_fd = listen_raw(victim->worker->folder, victim->address);
    assert_int_equal(tr_start_push(victim->worker->node, 1, &target, 16), 0);
    assert_int_equal(tr_push(victim->worker->node, 1, &(struct tr_pieces){0, 0, blocks, 8}), 0);
    assert_int_equal(tr_push(victim->worker->node, 1, &(struct tr_pieces){1, 0, blocks, 8}), 0);
}

static void end_victim(struct victim *victim)
{
    close(victim->listen_fd);
    if (kind_now->kind == TR_SHM)
        unlink(victim->address);
    worker_free(victim->worker);
}

static void assert_failed(struct victim *victim, int code)
{
    struct tr_event event;

    assert_true(worker_wait(victim->worker, TR_PUSH_FAILED, 1, LIMIT_MS, &event));
    if (code != 0)
        assert_int_equal(event.fault.code, code);
    assert_int_equal(tr_stop_push(victim->worker->node, 1), 0);
    assert_true(worker_wait(victim->worker, TR_PUSH_STOPPED, 1, LIMIT_MS, NULL));
}

static void a_receiver_without_the_key_gets_nothing(void **state)
{
    struct victim victim;
    struct raw raw;

    start_victim(&victim, PIECE);
    raw_take(&raw, accept(victim.listen_fd, NULL, NULL), &opts.geometry);
    raw_greet(&raw, &(struct raw_lies){.key = 1});
    assert_true(raw_is_closed(&raw));
    assert_failed(&victim, E_AUTH);
    raw_close(&raw);
    end_victim(&victim);
}

static void a_mute_receiver_meets_a_deadline(void **state)
{
    struct victim victim;
    int fd;

    start_victim(&victim, PIECE);
    fd = accept(victim.listen_fd, NULL, NULL);
    assert_failed(&victim, E_TIMEOUT);
    close(fd);
    end_victim(&victim);
}

static void a_receiver_that_does_not_read_meets_a_deadline(void **state)
{
    struct tr_geometry geometry = {2, 8, 4 << 20};
    struct victim victim;
    struct raw raw;

    if (kind_now->kind == TR_SHM)
        return; /* announcements fit the socket's buffer */
    start_victim(&victim, geometry.piece_bytes);
    raw_take(&raw, accept(victim.listen_fd, NULL, NULL), &geometry);
    assert_true(raw_greet(&raw, &honest));
    assert_failed(&victim, E_TIMEOUT);
    raw_close(&raw);
    end_victim(&victim);
}

static void a_receiver_may_reject(void **state)
{
    struct kv_frame frame = {.type = KV_FRAME_REJECT, .as.reject = {.ticket = TICKET, .code = E_NOT_FOUND}};
    uint8_t bytes[KV_FRAME_MAX_BYTES];
    size_t len_bytes = kv_frame_pack(&frame, bytes);
    struct victim victim;
    struct raw raw;

    start_victim(&victim, PIECE);
    raw_take(&raw, accept(victim.listen_fd, NULL, NULL), &opts.geometry);
    assert_true(raw_greet(&raw, &honest));
    assert_true(raw_send(&raw, bytes, len_bytes));
    assert_failed(&victim, E_NOT_FOUND);
    raw_close(&raw);
    end_victim(&victim);
}

static void a_receiver_that_talks_nonsense_is_left(void **state)
{
    struct victim victim;
    struct raw raw;

    start_victim(&victim, PIECE);
    raw_take(&raw, accept(victim.listen_fd, NULL, NULL), &opts.geometry);
    assert_true(raw_greet(&raw, &honest));
    raw_send(&raw, "BKV1\4\0\0\0aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", 40);
    assert_failed(&victim, E_PROTO);
    raw_close(&raw);
    end_victim(&victim);
}

static int run_all(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_receiver_without_the_key_gets_nothing),
        cmocka_unit_test(a_mute_receiver_meets_a_deadline),
        cmocka_unit_test(a_receiver_that_does_not_read_meets_a_deadline),
        cmocka_unit_test(a_receiver_may_reject),
        cmocka_unit_test(a_receiver_that_talks_nonsense_is_left),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Arguments: a pattern of tests to run (all). */
int main(int argc, char **argv)
{
    log_setup("test_transport_receivers", LOG_LEVEL_ERROR, LOG_FORMAT_TEXT);
    signal(SIGPIPE, SIG_IGN); /* OpenSSL writes to the raw side's sockets by itself */
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return world_run(kind_cases, n_kind_cases, run_all);
}
