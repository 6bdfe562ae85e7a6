/* SPDX-License-Identifier: Apache-2.0 */
/* A connection to a server that sends a long reply slowly: the reply arrives whole, and its beginning is shown. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "net/redis/redis_conn.h"

enum { PIECE = 30000, PIECES = 20, VALUE = PIECE * PIECES };

struct slow_server {
    int listener;
    uint64_t pause_ns; /* before each piece */
    pthread_t thread;
};

/* Answers the login, then one command. */
static void *slow_server_run(void *arg)
{
    const struct slow_server *self = arg;
    static char piece[PIECE];
    char command[256];
    int fd = accept(self->listener, NULL, NULL), n;

    memset(piece, 'v', sizeof(piece));
    if (fd < 0 || read(fd, command, sizeof(command)) <= 0 || write(fd, "+OK\r\n", 5) != 5 ||
        read(fd, command, sizeof(command)) <= 0)
        return NULL;
    n = snprintf(command, sizeof(command), "$%d\r\n", VALUE);
    if (write(fd, command, (size_t)n) == n)
        for (unsigned i = 0; i < PIECES; i++) {
            clock_sleep_ns(self->pause_ns);
            if (write(fd, piece, PIECE) != PIECE)
                break;
        }
    (void)!write(fd, "\r\n", 2);
    (void)!read(fd, command, sizeof(command)); /* until the client leaves */
    close(fd);
    return NULL;
}

static uint16_t slow_server_start(struct slow_server *server)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(at);

    server->listener = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(server->listener, (struct sockaddr *)&at, sizeof(at)), 0);
    assert_int_equal(listen(server->listener, 1), 0);
    assert_int_equal(getsockname(server->listener, (struct sockaddr *)&at, &len), 0);
    assert_int_equal(pthread_create(&server->thread, NULL, slow_server_run, server), 0);
    return ntohs(at.sin_port);
}

static void count_beginnings(void *arg, struct bytes beginning)
{
    size_t *longest_bytes = arg;

    assert_true(beginning.len_bytes >= *longest_bytes && beginning.len_bytes <= VALUE);
    *longest_bytes = beginning.len_bytes;
}

/* Every pause is shorter than the stall limit, and all of them together are longer. */
static void a_slow_reply_arrives(void **state)
{
    struct slow_server server = {.pause_ns = 60 * NS_PER_MS};
    struct redis_node node = {.port = slow_server_start(&server)};
    struct redis_conn_opts opts = {.stall_ns = 400 * NS_PER_MS, .max_reply_bytes = 2 * VALUE};
    struct redis_conn *conn;
    struct resp_item item;
    struct redis_url url;
    size_t longest_bytes = 0;

    (void)state;
    assert_int_equal(redis_url_parse("redis://127.0.0.1", NULL, &url), 0);
    strcpy(node.host, "127.0.0.1");
    opts.url = &url;
    assert_int_equal(redis_conn_open(&opts, &node, NULL, &conn), 0);
    redis_conn_watch(conn, count_beginnings, &longest_bytes);
    assert_int_equal(redis_conn_ask(conn, (const char *const[]){"GET", "a", NULL}, &item, NULL), 0);
    assert_true(item.kind == RESP_TEXT && item.text.len_bytes == VALUE);
    assert_true(longest_bytes >= PIECE && item.text.data[VALUE - 1] == 'v');
    redis_conn_close(conn);
    pthread_join(server.thread, NULL);
    close(server.listener);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_slow_reply_arrives)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
