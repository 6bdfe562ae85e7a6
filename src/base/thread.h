/* SPDX-License-Identifier: Apache-2.0 */
/* Starts threads that take no signals. Signals belong to the thread of the daemon's loop. */
#ifndef BASE_THREAD_H
#define BASE_THREAD_H

#include <pthread.h>

/* Starts a thread with every signal blocked; the caller's mask stays as it is. Join it. E_NOMEM. */
int thread_start(pthread_t *thread, void *(*run)(void *arg), void *arg);

#endif
