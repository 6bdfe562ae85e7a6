/* SPDX-License-Identifier: Apache-2.0 */
/* The client that reads the tokens: all streams of one process over epoll, with as little work as possible
 * per event.
 *
 * It looks at its sockets every LOOK_NS and not at each event.  Distant clients do not interrupt the front's
 * core to be woken.  A process on the next core that sleeps between any two events would do so, at a cost
 * larger than the front's own.  The figures include the delay of these looks.
 *
 * Every event of text is one token.  Counting them identifies the token, and the shared table has the time at
 * which it left.  So the latency includes everything from the upstream's decision to send until this process
 * has read the token: the upstream's writing, two passages through the kernel, the front, and this process's
 * wait for the core that it shares with the upstream.  It is the same for every front.
 *
 * remote.c has clients that are not sockets of this machine, and cost that core less. */
#include <arpa/inet.h>
#include <errno.h>
#include <glob.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/str.h"
#include "tests/bench/streams/load_priv.h"

#define MARK          "k_delta\ndata" /* once in each event with text, and 'k' once in it */
#define MAX_OPENING   64              /* streams asked for that have not begun */
#define HISTOGRAM_US  200000
#define LONG_BYTES    220000
#define MAX_LONG      100
#define LOOK_NS       (250 * NS_PER_US)
#define SETTLE_NS     (2 * NS_PER_S)
#define OPEN_LIMIT_NS (60 * NS_PER_S)

/* ---- asking ---- */

int load_dial(uint16_t port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    int one = 1;

    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0) {
        if (fd >= 0)
            close(fd);
        return -1;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    return fd;
}

static void put_request(struct buf *out, const char *model, uint64_t seed, const char *text)
{
    struct buf body = {0};

    buf_printf(&body,
               "{\"model\":\"%s\",\"seed\":%llu,\"max_tokens\":100000,\"stream\":true,\"messages\":[{"
               "\"role\":\"user\","
               "\"content\":\"%s\"}]}",
               model, (unsigned long long)seed, text);
    buf_printf(out,
               "POST /v1/messages HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\n"
               "content-length: %zu\r\n\r\n",
               body.len_bytes);
    buf_append(out, body.data, body.len_bytes);
    buf_fini(&body);
}

static bool send_all(int fd, const struct buf *request)
{
    return send(fd, request->data, request->len_bytes, MSG_NOSIGNAL) == (ssize_t)request->len_bytes;
}

void load_put_request(const struct load *load, uint32_t i, struct buf *out)
{
    put_request(out, load->opts->model, i, "Count the ships that pass.");
}

static bool ask(int fd, const char *model, uint64_t seed, const char *text)
{
    struct buf request = {0};
    bool is_sent;

    put_request(&request, model, seed, text);
    is_sent = send_all(fd, &request);
    buf_fini(&request);
    return is_sent;
}

static bool ask_over_socket(struct load *load, uint32_t i)
{
    struct client *client = &load->clients[i];
    struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.u32 = i};
    struct buf request = {0};
    bool is_asked;

    load_put_request(load, i, &request);
    client->fd = load_dial(load->opts->port);
    is_asked = client->fd >= 0 && send_all(client->fd, &request) &&
               epoll_ctl(load->epoll, EPOLL_CTL_ADD, client->fd, &event) == 0;
    buf_fini(&request);
    return is_asked;
}

static int open_next(struct load *load)
{
    uint32_t i = load->n_open++;

    if (load->remote != NULL) {
        remote_ask(load, i);
        return 0;
    }
    if (ask_over_socket(load, i))
        return 0;
    fprintf(stderr, "stream %u: %s\n", i, strerror(errno));
    return -1;
}

/* ---- reading ---- */

static void take_event(struct load *load, uint32_t number, uint64_t now_ns)
{
    struct client *client = &load->clients[number];
    uint64_t sent_ns =
        atomic_load_explicit(&load->opts->shared->streams[number].sent_ns[client->n_events++ % STREAMS_RING],
                             memory_order_relaxed);
    uint64_t us = now_ns > sent_ns ? (now_ns - sent_ns) / NS_PER_US : 0;

    if (!load->is_measuring)
        return;
    load->n_events++;
    load->histogram[us < HISTOGRAM_US ? us : HISTOGRAM_US]++;
    if (now_ns > sent_ns && now_ns - sent_ns > load->worst_ns)
        load->worst_ns = now_ns - sent_ns;
}

static void begin(struct load *load, uint32_t number, const char *data, size_t n)
{
    load->clients[number].has_begun = true;
    load->n_begun++;
    if (n < 12 || memcmp(data + 9, "200", 3) != 0) {
        fprintf(stderr, "stream %u: %.*s\n", number, (int)n, data);
        load->n_lost++;
    }
}

void load_take(struct load *load, uint32_t number, const char *data, size_t n, uint64_t now_ns)
{
    static const char mark[] = MARK;
    struct client *client = &load->clients[number];
    const char *end = data + n;
    uint8_t at = client->n_matched;

    if (!client->has_begun)
        begin(load, number, data, n);
    while (data < end) {
        if (at == 0) {
            data = memchr(data, mark[0], (size_t)(end - data));
            if (data == NULL)
                break;
        }
        at = *data == mark[at] ? at + 1 : *data == mark[0];
        data++;
        if (at == sizeof(mark) - 1) {
            take_event(load, number, now_ns);
            at = 0;
        }
    }
    client->n_matched = at;
}

void load_lose(struct load *load, uint32_t number)
{
    if (load->clients[number].fd >= 0)
        close(load->clients[number].fd);
    load->clients[number].fd = -1;
    load->n_lost++;
}

/* Reads all input, because the watch is edge-triggered. */
static void read_client(struct load *load, uint32_t number)
{
    char data[16384];
    ssize_t n;

    do {
        n = recv(load->clients[number].fd, data, sizeof(data), MSG_DONTWAIT);
        if (n < 0 && errno == EAGAIN)
            return;
        if (n <= 0) {
            load_lose(load, number);
            return;
        }
        load_take(load, number, data, (size_t)n, clock_now_ns());
    } while (n == sizeof(data));
}

static void turn(struct load *load)
{
    struct epoll_event events[128];
    int n;

    clock_sleep_ns(LOOK_NS);
    if (load->remote != NULL)
        remote_turn(load);
    do {
        n = epoll_wait(load->epoll, events, 128, 0);
        for (int i = 0; i < n; i++)
            if (load->clients[events[i].data.u32].fd >= 0)
                read_client(load, events[i].data.u32);
    } while (n == 128);
}

static void turn_for(struct load *load, uint64_t ns)
{
    uint64_t until_ns = clock_now_ns() + ns;

    while (clock_now_ns() < until_ns)
        turn(load);
}

/* ---- bad neighbours ---- */

static void open_bad_neighbours(struct load *load)
{
    const struct load_opts *opts = load->opts;
    int small = 4096;

    for (uint32_t i = 0; i < opts->n_slow; i++) {
        int fd = load_dial(opts->port);

        if (fd >= 0 && send(fd, "POST /v1/mess", 13, MSG_NOSIGNAL) < 0)
            close(fd);
    }
    for (uint32_t i = 0; i < opts->n_deaf; i++) {
        int fd = load_dial(opts->port);

        if (fd < 0)
            continue;
        setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
        (void)ask(fd, opts->model, STREAMS_DEAF + i, "Speak to the deaf.");
    }
}

/* ---- long prompts ---- */

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Makes a piece of this project's sources, a new one each time, as a JSON string without quotes. */
static int make_text(const struct load_opts *opts, uint64_t seed, struct buf *out)
{
    struct buf all = {0};
    struct buf quoted = {0};
    char pattern[400];
    glob_t found;
    size_t from;

    snprintf(pattern, sizeof(pattern), "%s/src/*/*.c", opts->source);
    if (glob(pattern, 0, NULL, &found) != 0)
        return -1;
    for (size_t i = 0; i < found.gl_pathc; i++) {
        FILE *file = fopen(found.gl_pathv[i], "r");
        char piece[4096];
        size_t n;

        while (file != NULL && (n = fread(piece, 1, sizeof(piece), file)) > 0)
            buf_append(&all, piece, n);
        if (file != NULL)
            fclose(file);
    }
    globfree(&found);
    from = all.len_bytes > LONG_BYTES ? seed * 104729 % (all.len_bytes - LONG_BYTES) : 0;
    json_put_str(&quoted, bytes_of(all.data + from, all.len_bytes < LONG_BYTES ? all.len_bytes : LONG_BYTES));
    buf_append(out, quoted.data + 1, quoted.len_bytes - 2);
    buf_fini(&all);
    buf_fini(&quoted);
    return out->len_bytes >= LONG_BYTES ? 0 : -1;
}

/* Returns the sum of two times: from the last byte sent until the request has reached a worker, and from the
 * worker's token until the first byte here.  Meanwhile it waits in the kernel for the answer, and does not
 * read the other streams, so that the time to the next look does not count. */
static double one_long(struct load *load, uint64_t seed)
{
    const struct load_opts *opts = load->opts;
    const struct timeval limit = {.tv_sec = 2};
    struct buf text = {0};
    int fd = load_dial(opts->port);
    uint64_t sent_ns, first_ns;
    char data[4096] = "";
    size_t kept = 0;

    if (make_text(opts, seed, &text) < 0 || fd < 0 ||
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)) < 0 ||
        !ask(fd, opts->model, STREAMS_LONG + seed, (const char *)text.data))
        return -1;
    sent_ns = clock_now_ns();
    while (strstr(data, "_delta") == NULL) {
        ssize_t n = recv(fd, data + kept, sizeof(data) - 1 - kept, 0);

        if (n <= 0)
            return -1;
        kept += (size_t)n;
        data[kept] = '\0';
    }
    first_ns = clock_now_ns();
    close(fd);
    buf_fini(&text);
    /* All of it except the time at the worker. */
    return (double)(int64_t)(first_ns - sent_ns -
                             (atomic_load(&opts->shared->long_arrived_ns) -
                              atomic_load(&opts->shared->long_left_ns))) /
           1e6;
}

static void try_long(struct load *load, double out[3])
{
    uint32_t n = load->opts->n_prompts < MAX_LONG ? load->opts->n_prompts : MAX_LONG;
    double ms[MAX_LONG];

    for (uint32_t i = 0; i < n; i++) {
        ms[i] = one_long(load, i);
        turn_for(load, 50 * NS_PER_MS);
    }
    qsort(ms, n, sizeof(ms[0]), by_value);
    out[0] = ms[0];
    out[1] = ms[n / 2];
    out[2] = ms[n - 1];
}

/* ---- all together ---- */

static double quantile_us(const struct load *load, double q)
{
    uint64_t rank = (uint64_t)(q * (double)load->n_events);
    uint64_t seen = 0;

    for (uint32_t us = 0; us <= HISTOGRAM_US; us++) {
        seen += load->histogram[us];
        if (seen > rank)
            return us;
    }
    return 0;
}

static int open_all(struct load *load)
{
    uint64_t until_ns = clock_now_ns() + OPEN_LIMIT_NS;

    while (load->n_open < load->opts->n_streams || load->n_begun < load->n_open) {
        while (load->n_open < load->opts->n_streams && load->n_open - load->n_begun < MAX_OPENING)
            if (open_next(load) < 0)
                return -1;
        turn(load);
        if (clock_now_ns() > until_ns) {
            fprintf(stderr, "only %u of %u streams began\n", load->n_begun, load->n_open);
            return -1;
        }
    }
    return 0;
}

int load_run(const struct load_opts *opts, struct load_result *out)
{
    struct load load = {.opts = opts, .epoll = epoll_create1(0)};
    double idle_rss = machine_rss_bytes(opts->front);
    uint64_t began_ns = clock_now_ns();
    struct machine_times before, after;
    double measured_s;

    memset(out, 0, sizeof(*out));
    load.clients = calloc(opts->n_streams, sizeof(*load.clients));
    load.histogram = calloc(HISTOGRAM_US + 1, sizeof(*load.histogram));
    if (load.clients == NULL || load.histogram == NULL || load.epoll < 0)
        return -1;
    for (uint32_t i = 0; i < opts->n_streams; i++)
        load.clients[i].fd = -1;
    if ((opts->is_remote && remote_new(&load) < 0) || open_all(&load) < 0)
        return -1;
    out->open_s = (double)(clock_now_ns() - began_ns) / 1e9;
    out->n_streams = opts->n_streams;
    turn_for(&load, SETTLE_NS);
    out->rss_per_stream_bytes = (machine_rss_bytes(opts->front) - idle_rss) / opts->n_streams;
    open_bad_neighbours(&load);
    turn_for(&load, SETTLE_NS);
    atomic_store(&opts->shared->late_ns, 0);
    before = machine_times(opts->front, opts->cpu);
    began_ns = clock_now_ns();
    atomic_store(&opts->shared->began_ns, began_ns);
    load.is_measuring = true;
    turn_for(&load, opts->measure_ns);
    load.is_measuring = false;
    measured_s = (double)(clock_now_ns() - began_ns) / 1e9;
    after = machine_times(opts->front, opts->cpu);
    out->user = (after.user_s - before.user_s) / measured_s;
    out->kernel = (after.kernel_s - before.kernel_s) / measured_s;
    out->waited = (after.waited_s - before.waited_s) / measured_s;
    out->other_core = (after.core_s - before.core_s) / measured_s;
    out->upstream_ms = (double)atomic_load(&opts->shared->late_ns) / 1e6;
    out->n_events = load.n_events;
    out->n_lost = load.n_lost;
    out->us[0] = quantile_us(&load, 0.5);
    out->us[1] = quantile_us(&load, 0.99);
    out->us[2] = quantile_us(&load, 0.999);
    out->us[3] = (double)load.worst_ns / 1e3;
    if (strcmp(opts->model, "sim") == 0 && opts->n_prompts > 0)
        try_long(&load, out->long_ms);
    remote_free(&load);
    free(load.clients);
    free(load.histogram);
    close(load.epoll);
    return 0; /* the sockets go with the process */
}
