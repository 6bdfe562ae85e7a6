/* SPDX-License-Identifier: Apache-2.0 */
/* A scripted server on a thread.  A failure here fails the test. */
#include "script.h"

#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/check.h"
#include "tests/unit/check.h"

/* Reads a whole request (head and content-length body).  False: the client closed. */
static bool read_request(struct script *script, int fd)
{
    size_t n = 0;

    for (;;) {
        ssize_t got = recv(fd, script->request + n, sizeof(script->request) - 1 - n, 0);
        char *end;
        char *length;

        if (got <= 0)
            return false;
        n += (size_t)got;
        script->request[n] = '\0';
        end = strstr(script->request, "\r\n\r\n");
        if (end == NULL)
            continue;
        length = strstr(script->request, "content-length: ");
        if (n >= (size_t)(end + 4 - script->request) + (length ? strtoul(length + 16, NULL, 10) : 0))
            return true;
    }
}

static void send_answer(const struct script *script, int fd, const char *text)
{
    size_t len = strlen(text);
    size_t step = script->piece_bytes > 0 ? script->piece_bytes : len;

    for (size_t at = 0; at < len; at += step) {
        size_t n = len - at < step ? len - at : step;

        if (send(fd, text + at, n, MSG_NOSIGNAL) != (ssize_t)n)
            return;
        if (script->piece_bytes > 0)
            usleep(200);
    }
}

static void serve_connection(struct script *script, int fd)
{
    char rest[64];

    while (read_request(script, fd)) {
        const struct line *line = &script->lines[script->at++ % ARRAY_LEN(script->lines)];

        if (line->answer != NULL)
            send_answer(script, fd, line->answer);
        if (line->after == CLOSE)
            return;
        if (line->after == HANG)
            while (recv(fd, rest, sizeof(rest), 0) > 0)
                ;
    }
    script->n_closed_by_client++;
}

static void *serve(void *arg)
{
    struct script *script = arg;

    for (;;) {
        int fd = accept(script->listener, NULL, NULL);

        if (fd < 0 || script->is_over) {
            close(fd);
            return NULL;
        }
        script->n_conns++;
        serve_connection(script, fd);
        close(fd);
    }
}

void script_listen(struct script *script)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(at);

    script->listener = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(script->listener, (struct sockaddr *)&at, sizeof(at)), 0);
    assert_int_equal(listen(script->listener, 16), 0);
    assert_int_equal(getsockname(script->listener, (struct sockaddr *)&at, &len), 0);
    script->port = ntohs(at.sin_port);
}

void script_serve(struct script *script)
{
    assert_int_equal(pthread_create(&script->thread, NULL, serve, script), 0);
}

void script_end(struct script *script)
{
    script->is_over = true;
    if (script->thread != 0) {
        shutdown(script->listener, SHUT_RDWR);
        pthread_join(script->thread, NULL);
    }
    if (script->listener >= 0)
        close(script->listener);
}
