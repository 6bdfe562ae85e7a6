/* SPDX-License-Identifier: Apache-2.0 */
/* A bounded queue of pointers between threads, with an eventfd for the receiver's loop.
 *
 * Any thread sends, one thread receives.  A successful send passes ownership of the message to the receiver.
 * A refused send (E_FULL: back-pressure) leaves the message with the sender.  Messages of one sender arrive
 * in order. */
#ifndef BASE_MAILBOX_H
#define BASE_MAILBOX_H

#include <stdbool.h>
#include <stdint.h>

struct mailbox;

int mailbox_new(uint32_t capacity, struct mailbox **out); /* rounds capacity up to a power of two */
void mailbox_free(struct mailbox *box);                   /* the caller has received every message before */

int mailbox_send(struct mailbox *box, void *message); /* E_FULL, E_CLOSED */
void mailbox_close(struct mailbox *box); /* later sends fail; queued messages can still be received */

bool mailbox_is_closed(const struct mailbox *box); /* any thread */
void mailbox_wake(struct mailbox *box);            /* any thread: makes the fd readable and ends a wait */

/* Receiver thread only, as all functions below.  NULL: empty. */
void *mailbox_receive(struct mailbox *box);
int mailbox_fd(const struct mailbox *box);  /* readable when a message may be waiting */
void mailbox_drain_fd(struct mailbox *box); /* call it before receiving until empty */
/* Sleeps until a message may be waiting or timeout_ns has passed (UINT64_MAX: no timeout).  May return
 * early, and returns at once when the box is closed.  So receive until NULL, then check again. */
void mailbox_wait(struct mailbox *box, uint64_t timeout_ns);

#endif
