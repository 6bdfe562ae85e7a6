/* SPDX-License-Identifier: Apache-2.0 */
/* Limits are small, so that inputs of a few hundred bytes reach them.  Deadlines are long, so that a machine
 * that stops for a while changes nothing. */
#include "conn_drive.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/err.h"
#include "net/http/response.h"

#define N_TURNS 4

static struct ev_loop *loop; /* one for all inputs */

/* Answers mark replies to HEAD, because a reader of the output cannot know. */
static void reply(struct http_exchange *x, int status, struct bytes body)
{
    struct http_fields fields = {0};

    if (http_exchange_method(x) == HTTP_HEAD)
        http_fields_add_str(&fields, "x-head", "yes");
    http_reply(x, status, &fields, body);
    http_fields_fini(&fields);
}

static void on_head(void *arg, struct http_exchange *x)
{
    struct drive *drive = arg;
    struct bytes path = http_exchange_path(x);

    drive->n_heads++;
    ASSERT(path.len_bytes > 0);
    if (path.len_bytes > 1 && path.data[1] == 'n') {
        drive->n_done++;
        reply(x, 401, bytes_str("no"));
    }
}

static void stream(struct drive *drive, struct http_exchange *x, size_t n_pieces)
{
    static uint8_t piece[700];
    struct http_fields fields = {0};

    memset(piece, 's', sizeof(piece));
    if (http_exchange_method(x) == HTTP_HEAD)
        http_fields_add_str(&fields, "x-head", "yes");
    if (http_reply_begin(x, 200, &fields) < 0)
        n_pieces = 0;
    http_fields_fini(&fields);
    while (n_pieces-- > 0)
        if (http_reply_write(x, bytes_of(piece, sizeof(piece))) < 0)
            return; /* on_abort follows */
    http_reply_end(x);
    drive->n_done++;
}

static void on_request(void *arg, struct http_exchange *x)
{
    struct drive *drive = arg;
    struct bytes path = http_exchange_path(x);
    uint8_t kind = path.len_bytes > 1 ? path.data[1] : 'e';

    drive->n_requests++;
    if (kind == 'h')
        return;
    if (kind == 'l' && drive->n_late < 8) {
        drive->late[drive->n_late++] = x;
    } else if (kind == 's' || kind == 'f') {
        stream(drive, x, kind == 's' ? 3 : 15);
    } else {
        drive->n_done++;
        reply(x, 200, http_exchange_body(x));
    }
}

static void on_refused(void *arg, struct http_exchange *x, int status, const char *why)
{
    struct drive *drive = arg;

    ASSERT(status >= 400 && status < 600 && why != NULL);
    drive->n_refused++;
    reply(x, status, bytes_str(why));
}

static void on_abort(void *arg, struct http_exchange *x, enum http_abort why)
{
    struct drive *drive = arg;

    drive->n_aborts++;
    for (unsigned i = 0; i < drive->n_late; i++)
        if (drive->late[i] == x)
            drive->late[i] = drive->late[--drive->n_late];
}

static void on_pause(void *arg, struct http_exchange *x, bool is_paused)
{
}

static const struct http_handler handler = {on_head, on_request, on_refused, on_abort, on_pause};

void drive_begin(struct drive *drive, bool has_h2c)
{
    struct http_server_opts opts = {.handler = &handler, .handler_arg = drive, .has_h2c = has_h2c};
    int pair[2];

    memset(drive, 0, sizeof(*drive));
    if (loop == NULL && ev_loop_new(&loop) < 0)
        abort();
    opts.loop = loop;
    opts.limits = (struct http_limits){.max_line_bytes = 256,
                                       .max_head_bytes = 1024,
                                       .max_fields = 16,
                                       .max_body_bytes = 2048,
                                       .max_bodies_bytes = 8192,
                                       .max_requests_per_conn = 12,
                                       .max_streams = 6,
                                       .max_queue_bytes = 4096,
                                       .head_ns = 3600 * NS_PER_S,
                                       .body_ns = 3600 * NS_PER_S,
                                       .idle_ns = 3600 * NS_PER_S,
                                       .stall_ns = 3600 * NS_PER_S};
    if (http_server_new(&opts, &drive->server) < 0 ||
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0 ||
        http_server_adopt(drive->server, pair[0]) < 0)
        abort();
    drive->fd = pair[1];
}

static bool read_answer(struct drive *drive)
{
    uint8_t piece[16384];
    ssize_t n = recv(drive->fd, piece, sizeof(piece), 0);

    if (n > 0)
        buf_append(&drive->answer, piece, (size_t)n);
    else if (n == 0 || errno != EAGAIN)
        drive->is_closed = true;
    return n > 0;
}

static void turn(struct drive *drive)
{
    for (int still = 0; still < N_TURNS; still++) {
        event_base_loop(ev_loop_base(loop), EVLOOP_NONBLOCK);
        while (drive->n_late > 0) {
            struct http_exchange *x = drive->late[--drive->n_late];

            drive->n_done++;
            reply(x, 200, http_exchange_body(x));
            still = 0;
        }
        while (!drive->is_closed && read_answer(drive))
            still = 0;
    }
}

void drive_send(struct drive *drive, struct bytes text)
{
    while (text.len_bytes > 0 && !drive->is_closed) {
        ssize_t n = send(drive->fd, text.data, text.len_bytes, MSG_NOSIGNAL);

        if (n > 0)
            text = bytes_of(text.data + n, text.len_bytes - (size_t)n);
        else if (errno != EAGAIN)
            break;
        turn(drive);
        if (n < 0)
            break; /* it does not read on: full on purpose */
    }
    turn(drive);
}

void drive_end(struct drive *drive)
{
    shutdown(drive->fd, SHUT_WR);
    turn(drive);
    close(drive->fd);
    http_server_free(drive->server);
    ASSERT(drive->n_aborts <= drive->n_heads);
    ASSERT(drive->n_requests <= drive->n_heads);
    ASSERT(drive->n_heads <= drive->n_done + drive->n_aborts + drive->n_refused);
    ASSERT(drive->n_done + drive->n_aborts <= drive->n_heads);
    buf_fini(&drive->answer);
}
