/* SPDX-License-Identifier: Apache-2.0 */
/* A new thread inherits the mask of its maker, so the maker blocks all signals for a moment. */
#include "base/thread.h"

#include <signal.h>

#include "base/err.h"

int thread_start(pthread_t *thread, void *(*run)(void *arg), void *arg)
{
    sigset_t all, before;
    int rc;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    rc = pthread_create(thread, NULL, run, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc == 0 ? 0 : E_NOMEM;
}
