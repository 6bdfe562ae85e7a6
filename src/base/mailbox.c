/* SPDX-License-Identifier: Apache-2.0 */
/* A bounded ring with many senders and one receiver.  It writes an eventfd only when needed.
 *
 *     slots   [ 8:- ][ 5:msg ][ 6:msg ][ 7:- ]     turn:message, capacity 4
 *                      ^ head (next to read, 4)     ^ tail (next to write, 6)
 *
 * Each slot has a turn counter (Dmitry Vyukov's bounded queue).  Slot i starts at turn i.  A sender that
 * finds turn == tail may claim the slot by advancing tail; then it stores the message and publishes it with
 * turn = tail + 1.  A receiver that finds turn == head + 1 takes the message and frees the slot for the next
 * lap with turn = head + capacity.  No thread waits for a lock.  A sender that is stopped half-way delays
 * only the messages behind its own.
 *
 * Waking: before it sleeps, the receiver sets is_asleep and then checks the ring once more.  A sender
 * publishes and then checks is_asleep.  All four accesses are sequentially consistent, so at least one side
 * sees the other.  So no message waits while the receiver sleeps.  The thread that clears the flag writes
 * the eventfd.  So a burst costs one system call, and a busy receiver costs its senders none. */
#include "base/mailbox.h"

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"

struct slot {
    _Atomic uint64_t turn;
    void *message;
};

struct mailbox {
    struct slot *slots;
    uint64_t mask;
    int fd;
    atomic_bool is_closed;
    _Alignas(MEM_CACHE_LINE) _Atomic uint64_t tail; /* senders */
    _Alignas(MEM_CACHE_LINE) uint64_t head;         /* used by the receiver only */
    atomic_bool is_asleep;                          /* written rarely: when the ring becomes empty */
};

int mailbox_new(uint32_t capacity, struct mailbox **out)
{
    uint64_t n_slots = 2; /* with one slot, "full" and "empty one lap later" have the same turn */

    if (capacity == 0 || capacity > UINT32_C(1) << 30)
        return E_INVAL;
    while (n_slots < capacity)
        n_slots *= 2;

    struct mailbox *box = mem_aligned(MEM_CACHE_LINE, sizeof(*box));
    if (box == NULL)
        return E_NOMEM;
    box->fd = -1;
    box->mask = n_slots - 1;
    box->slots = calloc(n_slots, sizeof(*box->slots));
    if (box->slots == NULL) {
        mailbox_free(box);
        return E_NOMEM;
    }
    for (uint64_t i = 0; i < n_slots; i++)
        atomic_init(&box->slots[i].turn, i);
    atomic_init(&box->tail, 0);
    atomic_init(&box->is_closed, false);
    atomic_init(&box->is_asleep, true); /* set, so that the first message wakes the receiver */

    box->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (box->fd < 0) {
        mailbox_free(box);
        return E_IO;
    }
    *out = box;
    return 0;
}

void mailbox_free(struct mailbox *box)
{
    if (box == NULL)
        return;
    if (box->fd >= 0)
        close(box->fd);
    free(box->slots);
    free(box);
}

void mailbox_wake(struct mailbox *box)
{
    const uint64_t one = 1;

    /* EAGAIN: the counter is at its limit, so the descriptor is readable anyway. */
    while (write(box->fd, &one, sizeof(one)) < 0 && errno == EINTR)
        ;
}

static void wake_if_asleep(struct mailbox *box)
{
    if (atomic_load(&box->is_asleep) && atomic_exchange(&box->is_asleep, false))
        mailbox_wake(box);
}

int mailbox_send(struct mailbox *box, void *message)
{
    ASSERT(message != NULL);
    if (atomic_load_explicit(&box->is_closed, memory_order_relaxed))
        return E_CLOSED;

    uint64_t tail = atomic_load_explicit(&box->tail, memory_order_relaxed);
    struct slot *slot;
    for (;;) {
        slot = &box->slots[tail & box->mask];
        int64_t ahead = (int64_t)(atomic_load_explicit(&slot->turn, memory_order_acquire) - tail);

        if (ahead < 0)
            return E_FULL; /* the receiver has not freed this slot since the last lap */
        if (ahead > 0)
            tail = atomic_load_explicit(&box->tail, memory_order_relaxed); /* another sender was first */
        else if (atomic_compare_exchange_weak_explicit(&box->tail, &tail, tail + 1, memory_order_relaxed,
                                                       memory_order_relaxed))
            break;
    }
    slot->message = message;
    atomic_store(&slot->turn, tail + 1);
    wake_if_asleep(box);
    return 0;
}

void mailbox_close(struct mailbox *box)
{
    atomic_store(&box->is_closed, true);
    mailbox_wake(box);
}

bool mailbox_is_closed(const struct mailbox *box)
{
    return atomic_load(&box->is_closed);
}

static bool has_message(const struct mailbox *box)
{
    return atomic_load(&box->slots[box->head & box->mask].turn) == box->head + 1;
}

void *mailbox_receive(struct mailbox *box)
{
    if (!has_message(box)) {
        atomic_store(&box->is_asleep, true);
        if (!has_message(box))
            return NULL;
        atomic_store(&box->is_asleep, false);
    }

    struct slot *slot = &box->slots[box->head & box->mask];
    void *message = slot->message;
    atomic_store_explicit(&slot->turn, box->head + box->mask + 1, memory_order_release);
    box->head++;
    return message;
}

int mailbox_fd(const struct mailbox *box)
{
    return box->fd;
}

void mailbox_drain_fd(struct mailbox *box)
{
    uint64_t count;

    while (read(box->fd, &count, sizeof(count)) < 0 && errno == EINTR)
        ;
}

void mailbox_wait(struct mailbox *box, uint64_t timeout_ns)
{
    if (has_message(box) || timeout_ns == 0)
        return;
    atomic_store(&box->is_asleep, true);
    if (has_message(box) || mailbox_is_closed(box))
        return;

    struct pollfd watch = {.fd = box->fd, .events = POLLIN};
    struct timespec limit = {.tv_sec = (time_t)(timeout_ns / NS_PER_S),
                             .tv_nsec = (long)(timeout_ns % NS_PER_S)};
    if (ppoll(&watch, 1, timeout_ns == UINT64_MAX ? NULL : &limit, NULL) > 0)
        mailbox_drain_fd(box);
}
