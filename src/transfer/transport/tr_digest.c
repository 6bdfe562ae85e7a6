/* SPDX-License-Identifier: Apache-2.0 */
/* Used where the XXH3 library offers only one implementation: the one of its build. */
#include "transfer/transport/tr_digest_priv.h"

void tr_digest_reset(XXH3_state_t *state)
{
    XXH3_64bits_reset(state);
}

void tr_digest_update(XXH3_state_t *state, const void *data, size_t len_bytes)
{
    XXH3_64bits_update(state, data, len_bytes);
}
