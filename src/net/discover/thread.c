/* SPDX-License-Identifier: Apache-2.0 */
/* A thread that another thread can stop while it waits for a descriptor, a name server or etcd. */
#include <curl/curl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/thread.h"
#include "net/discover/discover_priv.h"

int discover_thread_start(struct discover_thread *thread, void *(*run)(void *), void *arg)
{
    int rc;

    thread->stop_fd = eventfd(0, EFD_CLOEXEC);
    if (thread->stop_fd < 0)
        return E_NOMEM;
    pthread_mutex_init(&thread->lock, NULL);
    rc = thread_start(&thread->thread, run, arg);
    if (rc == 0)
        return 0;
    pthread_mutex_destroy(&thread->lock);
    close(thread->stop_fd);
    thread->stop_fd = -1;
    return rc;
}

void discover_thread_stop(struct discover_thread *thread)
{
    if (thread->stop_fd < 0)
        return;
    atomic_store(&thread->is_stopping, true);
    (void)eventfd_write(thread->stop_fd, 1);
    pthread_mutex_lock(&thread->lock);
    if (thread->multi != NULL)
        curl_multi_wakeup(thread->multi);
    pthread_mutex_unlock(&thread->lock);
    pthread_join(thread->thread, NULL);
    pthread_mutex_destroy(&thread->lock);
    close(thread->stop_fd);
    thread->stop_fd = -1;
}

void discover_thread_set_multi(struct discover_thread *thread, void *multi)
{
    pthread_mutex_lock(&thread->lock);
    thread->multi = multi;
    pthread_mutex_unlock(&thread->lock);
}

bool discover_thread_wait(struct discover_thread *thread, uint64_t ns)
{
    struct pollfd stop = {.fd = thread->stop_fd, .events = POLLIN};

    (void)poll(&stop, 1, (int)(ns / NS_PER_MS));
    return !atomic_load(&thread->is_stopping);
}

uint64_t discover_pause_ns(unsigned n_failures)
{
    return n_failures >= 6 ? 30 * NS_PER_S : NS_PER_S << (n_failures == 0 ? 0 : n_failures - 1);
}
