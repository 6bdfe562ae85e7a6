/* SPDX-License-Identifier: Apache-2.0 */
/* A bounded queue of pointers between threads, with an eventfd for the reader's loop.
 *
 * Any thread sends, one thread receives.  A sent message changes owner; a refused send is back-pressure and
 * leaves it with the sender.  Messages of one sender arrive in their order. */
#ifndef BASE_MAILBOX_H
#define BASE_MAILBOX_H

#include <stdbool.h>
#include <stdint.h>

struct mailbox;

int mailbox_new(uint32_t capacity, struct mailbox **out); /* capacity rounded up to a power of two */
void mailbox_free(struct mailbox *box);                   /* must be empty of owned messages */

int mailbox_send(struct mailbox *box, void *message); /* E_FULL, E_CLOSED */
void mailbox_close(struct mailbox *box);              /* sends fail from now on; what is inside can be read */

bool mailbox_is_closed(const struct mailbox *box); /* any thread */
void mailbox_wake(struct mailbox *box);            /* any thread: fd readable, a wait ends */

/* Receiver only.  NULL: empty. */
void *mailbox_receive(struct mailbox *box);
int mailbox_fd(const struct mailbox *box);  /* readable when a message may be waiting */
void mailbox_drain_fd(struct mailbox *box); /* clear the fd before receiving until empty */
/* Sleeps until a message may be waiting or timeout_ns went by (UINT64_MAX: for ever).  May also return
 * early, and does at once when the box is closed: receive until NULL, then look again. */
void mailbox_wait(struct mailbox *box, uint64_t timeout_ns);

#endif
