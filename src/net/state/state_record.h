/* SPDX-License-Identifier: Apache-2.0 */
/* A sealed value in the shared store, and its name.
 *
 *      0  8  "batonst1"                name   "baton:{" cluster "}:" kind ":" 32 digits
 *      8 32  salt                      cluster  16 digits of HMAC-SHA-256(key, "state of")
 *     40 16  tag                       digits   of HMAC-SHA-256(key, "state name" | kind | owner | id)
 *     56     sealed:  written 8 | expires 8 | value
 *
 * sealed, tag = AES-256-GCM(HMAC-SHA-256(key, "state" | salt), nonce 0, aad = bytes [0, 40) | name).
 *
 * Numbers are little endian, times are seconds of the Unix clock.  The salt is random, so no key is used twice.
 * The operator of the store can neither read nor forge a value, nor return it under another name or after its
 * lifetime.  The braces put all names of a cluster into one hash slot.
 *
 * Pure functions but for the salt; any thread. */
#ifndef NET_STATE_STATE_RECORD_H
#define NET_STATE_STATE_RECORD_H

#include "base/bytes.h"

enum {
    STATE_KEY_BYTES = 32,
    STATE_HEAD_BYTES = 56,
    STATE_TIMES_BYTES = 16,
    STATE_NAME_BYTES = 80,
    STATE_CLOCKS_S = 60 /* largest accepted difference between the clocks of two hosts */
};

#define STATE_NO_CLOCK UINT64_MAX

struct state_name {
    char text[STATE_NAME_BYTES];
};

/* kind: one short word.  owner and id may be any bytes.  E_INTERNAL. */
int state_name_make(const uint8_t key[STATE_KEY_BYTES], const char *kind, struct bytes owner, struct bytes id,
                    struct state_name *out);
/* Appends the sealed value.  E_NOMEM, E_INTERNAL. */
int state_record_seal(const uint8_t key[STATE_KEY_BYTES], const struct state_name *name,
                      const uint64_t times_s[2], struct bytes value, struct buf *out);
/* Appends the value. now_s is the reader's clock; STATE_NO_CLOCK: the lifetime does not matter.  E_FORMAT, E_TRUNCATED, E_AUTH (it was not sealed under this
 * name), E_RANGE (its lifetime is over), E_NOMEM. */
int state_record_open(const uint8_t key[STATE_KEY_BYTES], const struct state_name *name, uint64_t now_s,
                      struct bytes image, struct buf *out);

#endif
