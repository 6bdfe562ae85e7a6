/* SPDX-License-Identifier: Apache-2.0 */
/* The digest of a frame's payload: XXH3-64, by whatever this processor does it best with. */
#ifndef TRANSFER_TRANSPORT_TR_DIGEST_PRIV_H
#define TRANSFER_TRANSPORT_TR_DIGEST_PRIV_H

#include <stddef.h>
#include <xxhash.h>

/* Begins anew.  Any thread; one state is one thread's. */
void tr_digest_reset(XXH3_state_t *state);
/* The same value as XXH3_64bits_update() gives. */
void tr_digest_update(XXH3_state_t *state, const void *data, size_t len_bytes);

#endif
