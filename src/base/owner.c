/* SPDX-License-Identifier: Apache-2.0 */
/* The address of a thread-local variable names the thread. */
#include "base/owner.h"

#include <stddef.h>

#include "base/check.h"

static _Thread_local char owner_self;

void thread_owner_claim(struct thread_owner *owner)
{
    thread_owner_check(owner);
    atomic_store_explicit(&owner->thread, &owner_self, memory_order_relaxed);
}

void thread_owner_release(struct thread_owner *owner)
{
    atomic_store_explicit(&owner->thread, NULL, memory_order_relaxed);
}

void thread_owner_check(const struct thread_owner *owner)
{
    const void *thread = atomic_load_explicit(&((struct thread_owner *)owner)->thread, memory_order_relaxed);

    ASSERT(thread == NULL || thread == &owner_self);
}
