/* SPDX-License-Identifier: Apache-2.0 */
/* Failed logins: wrong keys, counted by the address they come from.
 *
 * Each address may present a limited number of wrong keys per minute.  Beyond that limit the server
 * refuses the address before it looks at the key.  Repeating the same wrong key does not count again: a
 * client that lost its key does not lock out other clients behind the same address.  The table is
 * bounded.  When it is full, it drops the address that was idle longest.  Loop thread only. */
#ifndef SERVE_ACCESS_FAILED_LOGINS_H
#define SERVE_ACCESS_FAILED_LOGINS_H

#include "base/bytes.h"

struct failed_logins;

enum { FAILED_LOGINS_ADDRESS = 16, FAILED_LOGINS_UNSENT = 256 };

struct failed_login { /* one wrong key, in messages between routers */
    uint8_t address[FAILED_LOGINS_ADDRESS];
    uint64_t key_hash;
};

/* per_min 0: no limit.  max_addresses: the table's size. */
int failed_logins_new(uint32_t per_min, uint32_t max_addresses, struct failed_logins **out);
void failed_logins_free(struct failed_logins *logins); /* accepts NULL */
/* Returns the seconds until the peer may present a key again; 0: now.  peer is "192.0.2.1:1234" or
 * "[2001:db8::1]:1234".  An IPv6 peer is counted by its /64. */
uint32_t failed_logins_wait_s(const struct failed_logins *logins, const char *peer, uint64_t now_ns);
/* Records that the peer presented this wrong key.  Only a few bytes of the key's keyed hash are stored. */
void failed_logins_note(struct failed_logins *logins, const char *peer, struct bytes key, uint64_t now_ns);

/* ---- shared by several routers ---- */

/* Call it before the first wrong key.  salt: the same on all routers, so that a wrong key counts once for all. */
void failed_logins_share(struct failed_logins *logins, const uint8_t salt[16]);
/* Takes at most n wrong keys that were counted since the last call.  At most 256 wait for it; further ones count at
 * this router only. */
uint32_t failed_logins_take(struct failed_logins *logins, struct failed_login *out, uint32_t n);
/* Counts a wrong key that a client presented to another router age_ns ago. */
void failed_logins_receive(struct failed_logins *logins, const struct failed_login *login, uint64_t age_ns,
                           uint64_t now_ns);

#endif
