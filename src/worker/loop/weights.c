/* SPDX-License-Identifier: Apache-2.0 */
/* One copy of the packed weights for all workers of a host.
 *
 *      look for a server --found--> attach: compare some panels with the file --equal--> SHARED
 *          | none                                       '--unequal--> PRIVATE
 *          '--> lock --> look again --> pack into a sealed arena --> seal --> SHARED: serve it, then unlock
 *
 * Every worker that has the arena serves it at a socket beside kv.unix_path, so it lives while one of them runs.
 * The socket's name contains a digest of the model file and of the kernel settings. Client and server prove the
 * cluster's key to each other before the descriptor is passed, so no other process can read or replace the weights.
 * The comparison of panels also detects a build that packs in another way. */
#include "worker/loop/access_priv.h"
#include "worker/loop/worker_priv.h"
#include "worker/loop/weights_priv.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/mem_sealed.h"
#include "base/rng.h"
#include "base/str.h"
#include "base/thread.h"
#include "net/link/tls.h"

#define WEIGHTS_MARK    "BATONWT1"
#define WEIGHTS_STEP_NS (20 * NS_PER_MS)
#define WEIGHTS_LOCK_NS (600 * NS_PER_S)
enum {
    WEIGHTS_NONCE = 32,
    WEIGHTS_MAC = 32,
    WEIGHTS_SERVE_S = 1,
    WEIGHTS_ASK_S = 5,
    WEIGHTS_ROOM = 4 /* the arena's limit, as a multiple of the file */
};

struct weights_hello {
    char mark[8];
    uint8_t nonce[WEIGHTS_NONCE];
};

struct weights_challenge { /* the server's */
    uint8_t nonce[WEIGHTS_NONCE];
    uint8_t mac[WEIGHTS_MAC];
};

struct worker_weights {
    struct mem_sealed *arena; /* NULL: private weights */
    const char *why_private;  /* static; NULL: they are shared */
    char folder[108];
    char name[40]; /* of sockets and of the lock, without their suffix */
    char path[160];
    uint8_t key[32];
    int lock_fd, listen_fd, stop_fd;
    pthread_t thread;
};

/* ---- proving the cluster key ---- */

static void weights_mac(const struct worker_weights *weights, const char *side,
                        const struct weights_hello *hello, const uint8_t server_nonce[WEIGHTS_NONCE],
                        uint8_t out[WEIGHTS_MAC])
{
    uint8_t text[8 + sizeof(weights->name) + 2 * WEIGHTS_NONCE] = {0};
    unsigned n = 0;

    memcpy(text, side, strlen(side)); /* "client" or "server" */
    memcpy(text + 8, weights->name, sizeof(weights->name));
    memcpy(text + 8 + sizeof(weights->name), hello->nonce, WEIGHTS_NONCE);
    memcpy(text + 8 + sizeof(weights->name) + WEIGHTS_NONCE, server_nonce, WEIGHTS_NONCE);
    HMAC(EVP_sha256(), weights->key, sizeof(weights->key), text, sizeof(text), out, &n);
}

static bool weights_get(int fd, void *out, size_t n)
{
    return recv(fd, out, n, 0) == (ssize_t)n;
}

static bool weights_put(int fd, const void *data, size_t n)
{
    return send(fd, data, n, MSG_NOSIGNAL) == (ssize_t)n;
}

static void weights_limit(int fd, int seconds)
{
    const struct timeval limit = {.tv_sec = seconds};

    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
}

/* ---- server ---- */

static void weights_pass(int fd, int arena_fd)
{
    char control[CMSG_SPACE(sizeof(int))] = {0}, byte = 1;
    struct iovec piece = {.iov_base = &byte, .iov_len = 1};
    struct msghdr message = {
        .msg_iov = &piece, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);

    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(header), &arena_fd, sizeof(int));
    (void)sendmsg(fd, &message, MSG_NOSIGNAL);
}

static void weights_answer(const struct worker_weights *weights, int fd)
{
    uint8_t wanted[WEIGHTS_MAC], got[WEIGHTS_MAC];
    struct weights_hello hello;
    struct weights_challenge challenge;

    weights_limit(fd, WEIGHTS_SERVE_S);
    if (!weights_get(fd, &hello, sizeof(hello)) || memcmp(hello.mark, WEIGHTS_MARK, sizeof(hello.mark)) != 0)
        return;
    rng_system(challenge.nonce, sizeof(challenge.nonce));
    weights_mac(weights, "server", &hello, challenge.nonce, challenge.mac);
    weights_mac(weights, "client", &hello, challenge.nonce, wanted);
    if (weights_put(fd, &challenge, sizeof(challenge)) && weights_get(fd, got, sizeof(got)) &&
        CRYPTO_memcmp(got, wanted, sizeof(got)) == 0)
        weights_pass(fd, mem_sealed_fd(weights->arena));
}

static void *weights_serve(void *arg)
{
    struct worker_weights *weights = arg;
    struct pollfd fds[2] = {{.fd = weights->stop_fd, .events = POLLIN},
                            {.fd = weights->listen_fd, .events = POLLIN}};

    while (fds[0].revents == 0) {
        int fd = -1;

        if (poll(fds, 2, -1) > 0 && fds[0].revents == 0)
            fd = accept4(weights->listen_fd, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0) {
            if (fds[0].revents == 0)
                (void)poll(fds, 1, 100); /* no free descriptor: try again later */
            continue;
        }
        weights_answer(weights, fd);
        close(fd);
    }
    return NULL;
}

static int weights_listen(struct worker_weights *weights)
{
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    char path[sizeof(un.sun_path)];
    uint64_t number;
    int rc;

    /* The socket gets its final name once it listens.  Before that, other workers would remove it as a left-over. */
    rng_system(&number, sizeof(number));
    if ((size_t)snprintf(path, sizeof(path), "%s/%s-%016llx", weights->folder, weights->name,
                         (unsigned long long)number) >= sizeof(path) ||
        (size_t)snprintf(un.sun_path, sizeof(un.sun_path), "%s/.%s-%016llx", weights->folder, weights->name,
                         (unsigned long long)number) >= sizeof(un.sun_path))
        return E_LIMIT;
    weights->listen_fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    weights->stop_fd = eventfd(0, EFD_CLOEXEC);
    if (weights->listen_fd < 0 || weights->stop_fd < 0 ||
        bind(weights->listen_fd, (struct sockaddr *)&un, sizeof(un)) != 0 || chmod(un.sun_path, 0666) != 0 ||
        listen(weights->listen_fd, 16) != 0 || rename(un.sun_path, path) != 0)
        return E_IO;
    str_copy(weights->path, sizeof(weights->path), path);
    rc = thread_start(&weights->thread, weights_serve, weights);
    if (rc == 0)
        return 0;
    unlink(weights->path);
    weights->path[0] = '\0';
    return rc;
}

/* ---- client ---- */

static int weights_take(int fd)
{
    char control[CMSG_SPACE(sizeof(int))], byte;
    struct iovec piece = {.iov_base = &byte, .iov_len = 1};
    struct msghdr message = {
        .msg_iov = &piece, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
    struct cmsghdr *header;
    int got = -1;

    if (recvmsg(fd, &message, MSG_CMSG_CLOEXEC) != 1)
        return -1;
    header = CMSG_FIRSTHDR(&message);
    if (header != NULL && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS &&
        header->cmsg_len == CMSG_LEN(sizeof(int)))
        memcpy(&got, CMSG_DATA(header), sizeof(int));
    return got;
}

/* Gets the arena of the worker behind this socket, or -1. Removes a socket that no process serves. */
static int weights_ask(const struct worker_weights *weights, const char *path)
{
    struct weights_hello hello = {.mark = WEIGHTS_MARK};
    struct weights_challenge challenge;
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    uint8_t wanted[WEIGHTS_MAC], mac[WEIGHTS_MAC];
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), got = -1;

    if (fd < 0 || !str_copy(un.sun_path, sizeof(un.sun_path), path))
        goto end;
    weights_limit(fd, WEIGHTS_ASK_S); /* other clients may be first */
    if (connect(fd, (struct sockaddr *)&un, sizeof(un)) != 0) {
        if (errno == ECONNREFUSED)
            unlink(path);
        goto end;
    }
    rng_system(hello.nonce, sizeof(hello.nonce));
    if (!weights_put(fd, &hello, sizeof(hello)) || !weights_get(fd, &challenge, sizeof(challenge)))
        goto end;
    weights_mac(weights, "server", &hello, challenge.nonce, wanted);
    weights_mac(weights, "client", &hello, challenge.nonce, mac);
    if (CRYPTO_memcmp(challenge.mac, wanted, sizeof(wanted)) == 0 && weights_put(fd, mac, sizeof(mac)))
        got = weights_take(fd);
end:
    if (fd >= 0)
        close(fd);
    return got;
}

static bool weights_find(struct worker_weights *weights)
{
    DIR *folder = opendir(weights->folder);
    size_t n_name = strlen(weights->name);
    struct dirent *entry;

    while (folder != NULL && weights->arena == NULL && (entry = readdir(folder)) != NULL) {
        char path[sizeof(weights->folder) + sizeof(entry->d_name) + 2];
        int fd;

        if (strncmp(entry->d_name, weights->name, n_name) != 0 || entry->d_name[n_name] != '-')
            continue;
        snprintf(path, sizeof(path), "%s/%s", weights->folder, entry->d_name);
        fd = weights_ask(weights, path);
        if (fd >= 0)
            (void)mem_sealed_attach(fd, &weights->arena);
    }
    if (folder != NULL)
        closedir(folder);
    return weights->arena != NULL;
}

/* ---- the worker's part ---- */

/* The model file and the settings that decide how it is packed, and on which memory nodes. */
static void weights_name(struct worker *worker, const struct team *team, struct worker_weights *weights)
{
    const struct worker_conf *conf = worker->conf;
    struct buf text = {0};
    uint8_t digest[EVP_MAX_MD_SIZE];
    char hex[33];

    buf_printf(&text, "%s/%s/%d/%d/%d", PACKAGE_VERSION, worker->model.fingerprint, conf->kernels, conf->bf16,
               conf->convert_f16);
    worker_numa_put_name(&worker->numa, team, &text);
    EVP_Digest(text.data, text.len_bytes, digest, NULL, EVP_sha256(), NULL);
    hex_encode(digest, 8, hex);
    snprintf(weights->name, sizeof(weights->name), "weights-%.16s", hex);
    buf_fini(&text);
}

/* Waits for a worker that packs the same weights. False: a stop signal came, or the lock failed. */
static bool weights_lock(struct worker *worker, struct worker_weights *weights)
{
    uint64_t until_ns = clock_now_ns() + WEIGHTS_LOCK_NS;
    char path[sizeof(weights->folder) + sizeof(weights->name) + 16];

    snprintf(path, sizeof(path), "%s/%s.lock", weights->folder, weights->name);
    weights->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (weights->lock_fd < 0)
        return false;
    while (flock(weights->lock_fd, LOCK_EX | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK || clock_now_ns() > until_ns || service_is_asked_to_stop(worker->service))
            return false;
        service_extend(worker->service, 30 * NS_PER_S);
        clock_sleep_ns(WEIGHTS_STEP_NS);
    }
    return true;
}

static void weights_unlock(struct worker_weights *weights)
{
    if (weights->lock_fd >= 0)
        close(weights->lock_fd); /* the file stays: removing it would let two workers hold two locks */
    weights->lock_fd = -1;
}

static const char *weights_why_not(const struct worker_conf *conf)
{
    if (conf->share_weights == WORKER_SHARE_NO)
        return "engine.share_weights = no";
    if (conf->unix_path[0] == '\0')
        return "kv.unix_path is empty, and the workers of a host meet beside it";
    if (conf->share_weights == WORKER_SHARE_AUTO && !mem_sealed_gets_huge_pages())
        return "the system gives shared memory no huge pages "
               "(/sys/kernel/mm/transparent_hugepage/shmem_enabled); yes shares all the same";
    return NULL;
}

struct mem_sealed *worker_weights_arena(struct worker *worker, uint64_t file_bytes, const struct team *team)
{
    struct worker_weights *weights = calloc(1, sizeof(*weights));
    const char *slash;

    if (weights == NULL)
        return NULL;
    worker->weights = weights;
    weights->lock_fd = weights->listen_fd = weights->stop_fd = -1;
    weights->why_private = weights_why_not(worker->conf);
    if (weights->why_private != NULL)
        return NULL;
    slash = strrchr(worker->conf->unix_path, '/');
    snprintf(weights->folder, sizeof(weights->folder), "%.*s",
             slash != NULL ? (int)(slash - worker->conf->unix_path) : 1,
             slash != NULL ? worker->conf->unix_path : ".");
    weights_name(worker, team, weights);
    if (cluster_key_derive(worker->access->keys.data, "weights", weights->key) < 0)
        weights->why_private = "key derivation failed";
    else if (!weights_find(weights) && !weights_lock(worker, weights))
        weights->why_private = "another worker keeps the lock";
    else if (weights->arena == NULL && !weights_find(weights) &&
             mem_sealed_new(WEIGHTS_ROOM * file_bytes * (team_is_mirrored(team) ? team_n_nodes(team) : 1),
                            "baton-weights", &weights->arena) < 0)
        weights->why_private = "no memory";
    return weights->arena;
}

void worker_weights_refused(struct worker *worker, const char *why)
{
    mem_sealed_free(worker->weights->arena);
    worker->weights->arena = NULL;
    worker->weights->why_private = why;
    weights_unlock(worker->weights);
}

void worker_weights_loaded(struct worker *worker)
{
    struct worker_weights *weights = worker->weights;
    bool was_filled = weights != NULL && weights->arena != NULL && mem_sealed_is_filled(weights->arena);
    int rc = 0;

    if (weights == NULL)
        return;
    if (weights->arena != NULL)
        rc = mem_sealed_seal(weights->arena);
    if (weights->arena != NULL && rc == 0)
        rc = weights_listen(weights);
    weights_unlock(weights);
    if (rc < 0)
        weights->why_private = "the socket for the other workers cannot be made";
    if (weights->why_private != NULL)
        log_info("weights", LOG_STR("memory", "private"), LOG_STR("reason", weights->why_private));
    else
        log_info("weights", LOG_STR("memory", was_filled ? "shared: mapped" : "shared: packed"),
                 LOG_U64("bytes", mem_sealed_bytes(weights->arena)), LOG_STR("name", weights->name));
}

bool worker_weights_are_shared(const struct worker *worker)
{
    return worker->weights != NULL && worker->weights->why_private == NULL;
}

void worker_weights_close(struct worker *worker)
{
    struct worker_weights *weights = worker->weights;

    if (weights == NULL)
        return;
    if (weights->path[0] != '\0') {
        (void)eventfd_write(weights->stop_fd, 1);
        pthread_join(weights->thread, NULL);
        unlink(weights->path);
    }
    weights_unlock(weights);
    if (weights->listen_fd >= 0)
        close(weights->listen_fd);
    if (weights->stop_fd >= 0)
        close(weights->stop_fd);
    mem_sealed_free(weights->arena);
    OPENSSL_cleanse(weights->key, sizeof(weights->key));
    free(weights);
    worker->weights = NULL;
}
