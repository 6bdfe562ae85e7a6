/* SPDX-License-Identifier: Apache-2.0 */
/* A loop on its own thread and a blocking client, for tests.  A failure here fails the test. */
#include "raw.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "net/http/chunked_priv.h"
#include "net/http/parse.h"

void raw_loop_init(struct raw_loop *raw)
{
    assert_int_equal(ev_loop_new(&raw->loop), 0);
}

static void *run(void *arg)
{
    ev_loop_run(arg);
    return NULL;
}

void raw_loop_run(struct raw_loop *raw)
{
    assert_int_equal(pthread_create(&raw->thread, NULL, run, raw->loop), 0);
}

void raw_loop_stop(struct raw_loop *raw)
{
    ev_loop_stop(raw->loop);
    pthread_join(raw->thread, NULL);
}

struct awaited {
    ev_call call;
    void *arg;
    sem_t done;
};

static void run_awaited(void *arg)
{
    struct awaited *awaited = arg;

    awaited->call(awaited->arg);
    sem_post(&awaited->done);
}

void raw_loop_call(struct raw_loop *raw, ev_call call, void *arg)
{
    struct awaited awaited = {.call = call, .arg = arg};

    sem_init(&awaited.done, 0, 0);
    assert_int_equal(ev_post(raw->loop, run_awaited, &awaited), 0);
    while (sem_wait(&awaited.done) < 0)
        ;
    sem_destroy(&awaited.done);
}

static int connect_with(uint16_t port, int receive_bytes)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_true(fd >= 0);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int)); /* sends at once */
    if (receive_bytes > 0)
        setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof(receive_bytes));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
    return fd;
}

int raw_connect(uint16_t port)
{
    return connect_with(port, 0);
}

int raw_connect_small(uint16_t port)
{
    return connect_with(port, 4096);
}

int raw_connect_middling(uint16_t port)
{
    return connect_with(port, 256 << 10);
}

bool raw_send(int fd, const void *data, size_t len_bytes)
{
    const uint8_t *at = data;

    while (len_bytes > 0) {
        ssize_t n = send(fd, at, len_bytes, MSG_NOSIGNAL);

        if (n < 0)
            return false;
        at += n;
        len_bytes -= (size_t)n;
    }
    return true;
}

bool raw_send_str(int fd, const char *text)
{
    return raw_send(fd, text, strlen(text));
}

/* 1: some bytes; 0: end of stream; -1: none until then. */
static int read_some(int fd, uint64_t until_ns, struct buf *out)
{
    uint64_t now = clock_now_ns();
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    char piece[16384];
    ssize_t n;

    if (poll(&ready, 1, until_ns > now ? (int)((until_ns - now) / NS_PER_MS) + 1 : 0) <= 0)
        return -1;
    n = recv(fd, piece, sizeof(piece), 0);
    if (n <= 0)
        return 0;
    assert_int_equal(buf_append(out, piece, (size_t)n), 0);
    return 1;
}

bool raw_holds(const struct buf *text, const char *needle)
{
    return text->len_bytes > 0 && bytes_find(buf_view(text), bytes_str(needle), 0) != SIZE_MAX;
}

bool raw_read_until(int fd, const char *needle, unsigned timeout_ms, struct buf *out)
{
    uint64_t until_ns = clock_now_ns() + timeout_ms * NS_PER_MS;
    size_t looked = 0; /* bytes of out already searched: searching all of it each time makes a slow reader */

    for (;;) {
        int rc;

        if (needle != NULL && bytes_find(buf_view(out), bytes_str(needle), looked) != SIZE_MAX)
            return true;
        if (needle != NULL && out->len_bytes > strlen(needle))
            looked = out->len_bytes - strlen(needle);
        if (looked > 0 && clock_now_ns() > until_ns)
            return false; /* many bytes came, and more may */
        rc = read_some(fd, until_ns, out);
        if (rc <= 0)
            return rc == 0 && needle == NULL;
    }
}

/* Returns the length of a whole answer at the start of text, else 0. */
static size_t whole_answer(struct bytes text, struct http_head *head, struct buf *body)
{
    struct http_chunked chunked = {0};
    size_t at;

    if (http_parse_response(text, false, head) != 1)
        return 0;
    at = head->len_bytes;
    buf_clear(body);
    if (head->framing == HTTP_BODY_NONE)
        return at;
    if (head->framing == HTTP_BODY_LENGTH) {
        if (text.len_bytes - at < head->content_length)
            return 0;
        buf_append(body, text.data + at, (size_t)head->content_length);
        return at + (size_t)head->content_length;
    }
    for (;;) {
        struct bytes data;
        size_t used;
        int rc = http_chunked_take(&chunked, bytes_of(text.data + at, text.len_bytes - at), &used, &data);

        assert_true(rc >= 0);
        buf_append(body, data.data, data.len_bytes);
        at += used;
        if (rc == 1)
            return at;
        if (used == 0)
            return 0;
    }
}

int raw_read_answer(int fd, struct buf *out, struct buf *body_out)
{
    uint64_t until_ns = clock_now_ns() + 5 * NS_PER_S;
    struct buf body = {0};
    struct http_head head = {0};
    size_t len = 0;

    for (;;) {
        len = out->len_bytes == 0 ? 0 : whole_answer(buf_view(out), &head, &body);
        if (len > 0 && head.status == 100) {
            buf_consume(out, len);
            continue;
        }
        if (len > 0 || read_some(fd, until_ns, out) <= 0)
            break;
    }
    if (len > 0 && body_out != NULL) {
        buf_clear(body_out);
        buf_append(body_out, body.data, body.len_bytes);
    }
    buf_fini(&body);
    if (len == 0)
        return 0;
    /* Leaves the head for the test, and drops nothing after it. */
    return head.status;
}

int raw_ask(uint16_t port, const char *request, struct buf *body_out)
{
    struct buf text = {0};
    int fd = raw_connect(port);
    int status;

    raw_send_str(fd, request);
    status = raw_read_answer(fd, &text, body_out);
    close(fd);
    buf_fini(&text);
    return status;
}

bool raw_is_closed(int fd, unsigned timeout_ms)
{
    struct buf rest = {0};
    int rc = read_some(fd, clock_now_ns() + timeout_ms * NS_PER_MS, &rest);

    buf_fini(&rest);
    return rc == 0;
}
