/* SPDX-License-Identifier: Apache-2.0 */
/* Runs getaddrinfo() in one detached thread per lookup, because it would block the loop.
 *
 *     loop thread                              lookup thread
 *       resolve_new   --- struct lookup --->     getaddrinfo()
 *       watches eventfd <------------------      writes result, then eventfd; drops its reference
 *
 * Neither thread waits for the other: getaddrinfo() cannot be interrupted and may take half a minute. They
 * share one counted object. The lookup thread writes the result before the eventfd; the loop thread reads
 * it after. The lookup thread knows no loop, so a loop may be freed while a lookup still runs.
 *
 * libevent's resolver does not fit: cancelling a lookup and freeing its base touches freed memory, and it
 * ignores nsswitch.conf. */
#include "net/link/resolve_priv.h"

#include <netdb.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/err.h"

#define MAX_ADDRESSES 16

struct lookup {
    atomic_uint refs;
    int fd; /* eventfd: readable when done */
    struct addr name;
    int result; /* of getaddrinfo */
    unsigned n;
    struct addr list[MAX_ADDRESSES];
};

struct resolve {
    struct lookup *lookup;
    struct ev_fd *watch;
    resolve_call call;
    void *arg;
};

static void lookup_unref(struct lookup *lookup)
{
    if (lookup == NULL || atomic_fetch_sub(&lookup->refs, 1) > 1)
        return;
    if (lookup->fd >= 0)
        close(lookup->fd);
    free(lookup);
}

static void *resolve_look_up(void *arg)
{
    struct lookup *lookup = arg;
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV | AI_ADDRCONFIG};
    struct addrinfo *list = NULL;
    const uint64_t one = 1;
    char port[6];

    snprintf(port, sizeof(port), "%u", lookup->name.port);
    lookup->result = getaddrinfo(lookup->name.host, port, &hints, &list);
    if (lookup->result == 0) {
        for (struct addrinfo *at = list; at != NULL && lookup->n < MAX_ADDRESSES; at = at->ai_next) {
            struct addr *to = &lookup->list[lookup->n++];

            *to = lookup->name;
            to->is_numeric = true;
            to->sa_bytes = at->ai_addrlen;
            memcpy(&to->sa, at->ai_addr, at->ai_addrlen);
        }
        freeaddrinfo(list);
    }
    /* Cannot fail: the counter is zero, and the descriptor stays open until the reference is dropped. */
    if (write(lookup->fd, &one, sizeof(one)) != (ssize_t)sizeof(one))
        abort();
    lookup_unref(lookup);
    return NULL;
}

static void resolve_on_done(void *arg, int fd, unsigned ready)
{
    struct resolve *resolve = arg;
    struct lookup *lookup = resolve->lookup;
    struct fault fault = {0};
    uint64_t count;

    if (read(fd, &count, sizeof(count)) != (ssize_t)sizeof(count))
        return;
    if (lookup->n == 0)
        fault_set(&fault, E_NOT_FOUND, "%s: %s", lookup->name.host,
                  lookup->result != 0 ? gai_strerror(lookup->result) : "no address");
    atomic_fetch_add(&lookup->refs, 1); /* resolve may be freed inside the call */
    resolve->call(resolve->arg, lookup->list, lookup->n, &fault);
    lookup_unref(lookup);
}

static int start_thread(struct lookup *lookup)
{
    pthread_attr_t attr;
    pthread_t thread;
    int rc;

    if (pthread_attr_init(&attr) != 0)
        return E_NOMEM;
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    atomic_fetch_add(&lookup->refs, 1);
    rc = pthread_create(&thread, &attr, resolve_look_up, lookup);
    pthread_attr_destroy(&attr);
    if (rc == 0)
        return 0;
    atomic_fetch_sub(&lookup->refs, 1);
    return E_IO;
}

int resolve_new(struct ev_loop *loop, const struct addr *name, resolve_call call, void *arg,
                struct resolve **out)
{
    struct resolve *resolve = calloc(1, sizeof(*resolve));
    int err = E_NOMEM;

    if (resolve == NULL)
        return E_NOMEM;
    resolve->call = call;
    resolve->arg = arg;
    resolve->lookup = calloc(1, sizeof(*resolve->lookup));
    if (resolve->lookup == NULL)
        goto fail;
    atomic_init(&resolve->lookup->refs, 1);
    resolve->lookup->name = *name;
    resolve->lookup->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    err = E_IO;
    if (resolve->lookup->fd < 0)
        goto fail;
    err = ev_fd_new(loop, resolve->lookup->fd, resolve_on_done, resolve, &resolve->watch);
    if (err == 0)
        err = start_thread(resolve->lookup);
    if (err != 0)
        goto fail;
    *out = resolve;
    return 0;

fail:
    resolve_free(resolve);
    return err;
}

void resolve_free(struct resolve *resolve)
{
    if (resolve == NULL)
        return;
    ev_fd_free(resolve->watch);
    lookup_unref(resolve->lookup);
    free(resolve);
}
