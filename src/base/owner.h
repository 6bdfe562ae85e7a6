/* SPDX-License-Identifier: Apache-2.0 */
/* Which thread owns an object. Entry points of an object that one thread owns call thread_owner_check(), so
 * that a call from another thread aborts at once instead of corrupting state later. */
#ifndef BASE_OWNER_H
#define BASE_OWNER_H

#include <stdatomic.h>

struct thread_owner { /* zeroed: no owner, any thread may call */
    _Atomic(const void *) thread;
};

void thread_owner_claim(struct thread_owner *owner);       /* the calling thread owns it from now on */
void thread_owner_release(struct thread_owner *owner);     /* any thread, after the owner has ended */
void thread_owner_check(const struct thread_owner *owner); /* ASSERTs that the caller is the owner */

#endif
