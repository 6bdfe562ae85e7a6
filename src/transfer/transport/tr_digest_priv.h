/* SPDX-License-Identifier: Apache-2.0 */
/* The digest of a frame's payload: XXH3-64, computed with the widest vector instructions of this
 * processor. */
#ifndef TRANSFER_TRANSPORT_TR_DIGEST_PRIV_H
#define TRANSFER_TRANSPORT_TR_DIGEST_PRIV_H

#include <stddef.h>
#include <xxhash.h>

/* Resets the state for a new digest. Any thread, but only one thread per state. */
void tr_digest_reset(XXH3_state_t *state);
/* Adds data; gives the same digest as XXH3_64bits_update(). */
void tr_digest_update(XXH3_state_t *state, const void *data, size_t len_bytes);

#endif
