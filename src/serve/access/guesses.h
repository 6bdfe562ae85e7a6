/* SPDX-License-Identifier: Apache-2.0 */
/* Wrong keys, counted by the address they come from.
 *
 * An address has so many guesses a minute; beyond, it is refused before its key is looked at.  The same wrong
 * key again is no new guess: a client that lost its key does not shut out its neighbours behind one address.
 * The table is bounded; when it is full the address that was quiet longest is forgotten.  Loop thread only.
 */
#ifndef SERVE_ACCESS_GUESSES_H
#define SERVE_ACCESS_GUESSES_H

#include "base/bytes.h"

struct guesses;

/* per_min 0: nothing is bounded.  max_addresses: of the table. */
int guesses_new(uint32_t per_min, uint32_t max_addresses, struct guesses **out);
void guesses_free(struct guesses *guesses); /* NULL is fine */
/* Seconds until the peer ("192.0.2.1:1234", "[2001:db8::1]:1234", of which the /64 counts) may present a key
 * again; 0: now. */
uint32_t guesses_wait_s(const struct guesses *guesses, const char *peer, uint64_t now_ns);
/* The peer presented this wrong key.  Only a few bytes of its keyed hash are kept. */
void guesses_note(struct guesses *guesses, const char *peer, struct bytes key, uint64_t now_ns);

#endif
