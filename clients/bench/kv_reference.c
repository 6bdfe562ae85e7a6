/* SPDX-License-Identifier: Apache-2.0 */
/* The references: the same bytes over the same host without a transport.  The sockets, those of iperf3 too,
 * use the congestion control that the transport sets for its own (tr_listen.c), independent of the host's default
 * is.  With BBR only the reference would be slower. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <jansson.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/evp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/str.h"
#include "clients/bench/kv.h"

#define CONGESTION       "cubic"
#define CHUNK_BYTES      ((size_t)128 << 10) /* iperf3's */
#define MAX_CONNECTIONS  8
#define RECORD_BYTES     ((size_t)16 << 10)
#define IPERF3_MAX_BYTES ((size_t)1 << 20) /* of its report */

extern char **environ;

uint64_t kv_reference_memcpy(const struct kv_bench *bench)
{
    uint64_t begin_ns = clock_now_ns();

    memcpy(bench->arenas[1].base, bench->arenas[0].base, bench->total_bytes);
    return clock_now_ns() - begin_ns;
}

/* ---- sockets ---- */

struct sending {
    const struct kv_bench *bench;
    int fds[MAX_CONNECTIONS];
};

static void connect_pair(int listener, int *out, int *in)
{
    struct sockaddr_in address;
    socklen_t len_bytes = sizeof(address);

    *out = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(*out, IPPROTO_TCP, TCP_CONGESTION, CONGESTION,
               sizeof(CONGESTION) - 1); /* the sender decides */
    if (*out < 0 || getsockname(listener, (struct sockaddr *)&address, &len_bytes) != 0 ||
        connect(*out, (struct sockaddr *)&address, sizeof(address)) != 0)
        kv_die("no connection over loopback: %m");
    *in = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (*in < 0)
        kv_die("no connection over loopback: %m");
}

static int listen_on_loopback(uint16_t *port_out)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len_bytes = sizeof(address);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof(address)) != 0 ||
        listen(fd, MAX_CONNECTIONS) != 0 || getsockname(fd, (struct sockaddr *)&address, &len_bytes) != 0)
        kv_die("no socket on loopback: %m");
    *port_out = ntohs(address.sin_port);
    return fd;
}

/* Waits until a connection can continue, and returns which. */
static void wait_for_any(const int *fds, unsigned n, short events, bool ready[MAX_CONNECTIONS])
{
    struct pollfd polled[MAX_CONNECTIONS];

    for (unsigned i = 0; i < n; i++)
        polled[i] = (struct pollfd){.fd = fds[i], .events = events};
    poll(polled, n, -1);
    for (unsigned i = 0; i < n; i++)
        ready[i] = polled[i].revents != 0;
}

static void *send_all(void *arg)
{
    const struct sending *sending = arg;
    const struct kv_bench *bench = sending->bench;
    bool ready[MAX_CONNECTIONS];

    for (size_t at = 0; at < bench->total_bytes;) {
        wait_for_any(sending->fds, bench->n_connections, POLLOUT, ready);
        for (unsigned i = 0; i < bench->n_connections && at < bench->total_bytes; i++) {
            size_t left = bench->total_bytes - at;
            ssize_t n = ready[i] ? send(sending->fds[i], (uint8_t *)bench->arenas[0].base + at,
                                        left < CHUNK_BYTES ? left : CHUNK_BYTES, MSG_NOSIGNAL | MSG_DONTWAIT)
                                 : 0;

            at += n > 0 ? (size_t)n : 0;
        }
    }
    return NULL;
}

static void receive_all(const struct kv_bench *bench, const int *fds)
{
    bool ready[MAX_CONNECTIONS];

    for (size_t at = 0; at < bench->total_bytes;) {
        wait_for_any(fds, bench->n_connections, POLLIN, ready);
        for (unsigned i = 0; i < bench->n_connections && at < bench->total_bytes; i++) {
            size_t left = bench->total_bytes - at;
            ssize_t n = ready[i] ? recv(fds[i], (uint8_t *)bench->arenas[1].base + at,
                                        left < CHUNK_BYTES ? left : CHUNK_BYTES, MSG_DONTWAIT)
                                 : 0;

            at += n > 0 ? (size_t)n : 0;
        }
    }
}

uint64_t kv_reference_sockets(const struct kv_bench *bench)
{
    struct sending sending = {.bench = bench};
    int fds[MAX_CONNECTIONS];
    uint16_t port;
    int listener = listen_on_loopback(&port);
    uint64_t begin_ns;
    pthread_t thread;

    for (unsigned i = 0; i < bench->n_connections; i++)
        connect_pair(listener, &sending.fds[i], &fds[i]);
    begin_ns = clock_now_ns();
    if (pthread_create(&thread, NULL, send_all, &sending) != 0)
        kv_die("no thread");
    receive_all(bench, fds);
    begin_ns = clock_now_ns() - begin_ns;
    pthread_join(thread, NULL);
    for (unsigned i = 0; i < bench->n_connections; i++) {
        close(fds[i]);
        close(sending.fds[i]);
    }
    close(listener);
    return begin_ns;
}

/* ---- iperf3 ---- */

static pid_t kv_reference_start(char *const argv[], int out)
{
    posix_spawn_file_actions_t actions;
    pid_t pid = -1;
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);

    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, null, 0);
    posix_spawn_file_actions_adddup2(&actions, out < 0 ? null : out, 1);
    posix_spawn_file_actions_adddup2(&actions, null, 2);
    if (posix_spawnp(&pid, argv[0], &actions, NULL, argv, environ) != 0)
        pid = -1;
    posix_spawn_file_actions_destroy(&actions);
    close(null);
    return pid;
}

static double read_rate(int fd)
{
    static char report[IPERF3_MAX_BYTES];
    size_t len = 0;
    ssize_t n;
    json_t *root;
    double bits_per_s;

    while (len < sizeof(report) && (n = read(fd, report + len, sizeof(report) - len)) > 0)
        len += (size_t)n;
    root = json_loadb(report, len, 0, NULL);
    bits_per_s = json_number_value(
        json_object_get(json_object_get(json_object_get(root, "end"), "sum_received"), "bits_per_second"));
    json_decref(root);
    return bits_per_s / 8;
}

uint64_t kv_reference_iperf3(const struct kv_bench *bench)
{
    char port[8], n[8];
    char *const server[] = {"iperf3", "-s", "-1", "-B", "127.0.0.1", "-p", port, NULL};
    char *const client[] = {"iperf3", "-c", "127.0.0.1", "-p",       port, "-P", n,
                            "-t",     "1",  "-C",        CONGESTION, "-J", NULL};
    uint16_t number;
    pid_t server_pid, client_pid = -1;
    double bytes_per_s = 0;
    int fds[2];

    close(listen_on_loopback(&number)); /* the port is free now; another process is unlikely to take it */
    snprintf(port, sizeof(port), "%u", (unsigned)number);
    snprintf(n, sizeof(n), "%u", bench->n_connections);
    server_pid = kv_reference_start(server, -1);
    if (server_pid < 0)
        return 0;
    for (unsigned tries = 0; tries < 20 && bytes_per_s <= 0; tries++) { /* until the server listens */
        if (pipe2(fds, O_CLOEXEC) != 0)
            break;
        client_pid = kv_reference_start(client, fds[1]);
        close(fds[1]);
        bytes_per_s = client_pid < 0 ? 0 : read_rate(fds[0]);
        close(fds[0]);
        if (client_pid >= 0)
            waitpid(client_pid, NULL, 0);
        if (bytes_per_s <= 0)
            usleep(50000);
    }
    kill(server_pid, SIGTERM);
    waitpid(server_pid, NULL, 0);
    return bytes_per_s > 0 ? (uint64_t)((double)bench->total_bytes / bytes_per_s * 1e9) : 0;
}

/* ---- cipher ---- */

uint64_t kv_reference_seal(const struct kv_bench *bench)
{
    static const uint8_t key[32] = {1};
    static uint8_t record[RECORD_BYTES + 16];
    const uint8_t head[5] = {23, 3, 3, 0x40, 0x11}; /* of a TLS 1.3 record, its additional data */
    uint8_t nonce[12] = {0};
    EVP_CIPHER_CTX *cipher = EVP_CIPHER_CTX_new();
    uint64_t begin_ns = clock_now_ns();
    bool is_good = cipher != NULL && EVP_EncryptInit_ex(cipher, EVP_aes_256_gcm(), NULL, key, NULL) == 1;
    int n;

    for (size_t at = 0; is_good && at < bench->total_bytes; at += RECORD_BYTES) {
        memcpy(nonce + 4, &at, sizeof(at));
        is_good = EVP_EncryptInit_ex(cipher, NULL, NULL, NULL, nonce) == 1 &&
                  EVP_EncryptUpdate(cipher, NULL, &n, head, sizeof(head)) == 1 &&
                  EVP_EncryptUpdate(cipher, record, &n, (const uint8_t *)bench->arenas[0].base + at,
                                    RECORD_BYTES) == 1 &&
                  EVP_EncryptFinal_ex(cipher, record + RECORD_BYTES, &n) == 1 &&
                  EVP_CIPHER_CTX_ctrl(cipher, EVP_CTRL_AEAD_GET_TAG, 16, record + RECORD_BYTES) == 1;
    }
    begin_ns = clock_now_ns() - begin_ns;
    EVP_CIPHER_CTX_free(cipher);
    return is_good ? begin_ns : 0;
}
