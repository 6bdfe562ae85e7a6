/* SPDX-License-Identifier: Apache-2.0 */
/* The shipped units run as different users: a key authenticates a transfer, not a uid.
 *
 * The sender is a new process of this program, since a fork of a process with threads cannot safely start
 * others.  It becomes the user nobody, reads the destination from a pipe, sends, and waits for the pipe's end.
 */
#include "tests/conformance/tr_world.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { LIMIT_MS = 20000, NOBODY = 65534, N_LAYERS = 2, N_BLOCKS = 8, PIECE_BYTES = 4096, TICKET = 12 };

static const struct worker_opts opts = {.geometry = {N_LAYERS, N_BLOCKS, PIECE_BYTES}};

static uint64_t seed_of(uint32_t layer, uint32_t block)
{
    return layer * 100 + block;
}

/* In the other process. */
static int send_as_user_nobody(int from_parent)
{
    char address[128] = "";
    struct tr_target target = {.kind = kind_now->kind, .address = address, .ticket = TICKET};
    uint32_t blocks[N_BLOCKS];
    struct worker *sender;

    if (read(from_parent, address, sizeof(address) - 1) <= 0 || setgid(NOBODY) != 0 || setuid(NOBODY) != 0)
        return 1;
    sender = worker_new(&opts);
    for (uint32_t i = 0; i < N_BLOCKS; i++) {
        blocks[i] = N_BLOCKS - 1 - i;
        for (uint32_t layer = 0; layer < N_LAYERS; layer++)
            piece_fill(worker_piece(sender, layer, i), PIECE_BYTES, seed_of(layer, i));
    }
    tr_start_push(sender->node, 1, &target, N_LAYERS * N_BLOCKS);
    for (uint32_t layer = 0; layer < N_LAYERS; layer++)
        while (tr_push(sender->node, 1, &(struct tr_pieces){layer, 0, blocks, N_BLOCKS}) == E_FULL)
            clock_sleep_ns(NS_PER_MS);
    if (read(from_parent, address, 1) < 0) /* until the parent has everything */
        return 1;
    worker_free(sender);
    tls_context_free(world_tls());
    return 0;
}

static pid_t start_sender(int from_parent, int other_end)
{
    char kind[12], fd[12];
    pid_t child;

    snprintf(kind, sizeof(kind), "%u", (unsigned)(kind_now - kind_cases));
    snprintf(fd, sizeof(fd), "%d", from_parent);
    fflush(NULL);
    child = fork();
    if (child == 0) {
        close(other_end);
        execl("/proc/self/exe", "test_transport_users", "--send", kind, fd, (char *)NULL);
        _exit(1);
    }
    return child;
}

static void other_users_may_send(void **state)
{
    uint32_t blocks[N_BLOCKS] = {0, 1, 2, 3, 4, 5, 6, 7};
    int to_child[2], status;
    struct worker *receiver;
    pid_t child;

    if (geteuid() != 0) {
        print_message("  skipped: only root can become another user\n");
        skip();
    }
    assert_int_equal(pipe(to_child), 0);
    child = start_sender(to_child[0], to_child[1]);
    assert_true(child > 0);
    receiver = worker_new(&opts);
    assert_int_equal(tr_open_ticket(receiver->node, TICKET, blocks, N_BLOCKS), 0);
    assert_true(write(to_child[1], worker_address(receiver), strlen(worker_address(receiver)) + 1) > 0);
    assert_true(worker_wait(receiver, TR_TICKET_COMPLETE, TICKET, LIMIT_MS, NULL));
    for (uint32_t i = 0; i < N_BLOCKS; i++)
        assert_true(piece_is(worker_piece(receiver, 1, i), PIECE_BYTES, seed_of(1, N_BLOCKS - 1 - i)));
    close(to_child[1]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    close(to_child[0]);
    worker_free(receiver);
}

static int run_all(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(other_users_may_send)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(int argc, char **argv)
{
    log_setup("test_transport_users", LOG_LEVEL_ERROR, LOG_FORMAT_TEXT);
    if (argc == 4 && strcmp(argv[1], "--send") == 0) {
        kind_now = &kind_cases[atoi(argv[2])];
        return send_as_user_nobody(atoi(argv[3]));
    }
    return world_run(kind_cases, n_kind_cases, run_all);
}
