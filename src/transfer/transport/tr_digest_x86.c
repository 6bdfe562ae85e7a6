/* SPDX-License-Identifier: Apache-2.0 */
/* XXH3 with the widest vector registers of this processor. The library's ordinary entry points use SSE2,
 * the registers of its build: 4 GB/s, which cost plain TCP a third of its speed. The dispatching entry
 * points detect AVX2 and AVX-512 at run time: 16 GB/s.
 *
 * They detect at the first call and store the result without a lock, so a pthread_once makes the first
 * call. */
#include <pthread.h>

#include "transfer/transport/tr_digest_priv.h"

#include <xxh_x86dispatch.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;

static void tr_digest_look(void)
{
    XXH3_state_t *state = XXH3_createState();

    if (state == NULL)
        return; /* the first frame will detect the failure */
    XXH3_64bits_reset(state);
    XXH3_64bits_update_dispatch(state, "", 1);
    XXH3_freeState(state);
}

void tr_digest_reset(XXH3_state_t *state)
{
    pthread_once(&once, tr_digest_look);
    XXH3_64bits_reset(state);
}

void tr_digest_update(XXH3_state_t *state, const void *data, size_t len_bytes)
{
    XXH3_64bits_update_dispatch(state, data, len_bytes);
}
