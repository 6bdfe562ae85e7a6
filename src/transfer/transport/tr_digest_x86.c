/* SPDX-License-Identifier: Apache-2.0 */
/* XXH3 with the widest registers there are.  The library's ordinary entry points use those of its build,
 * SSE2, which was 4 GB/s and cost plain TCP a third of its speed; these look for AVX2 and AVX-512 at run
 * time: 16.
 *
 * They look when first called, and store what they found without a lock, so the first call is made once. */
#include <pthread.h>

#include "transfer/transport/tr_digest_priv.h"

#include <xxh_x86dispatch.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;

static void look(void)
{
    XXH3_state_t *state = XXH3_createState();

    if (state == NULL)
        return; /* the first frame will find out */
    XXH3_64bits_reset(state);
    XXH3_64bits_update_dispatch(state, "", 1);
    XXH3_freeState(state);
}

void tr_digest_reset(XXH3_state_t *state)
{
    pthread_once(&once, look);
    XXH3_64bits_reset(state);
}

void tr_digest_update(XXH3_state_t *state, const void *data, size_t len_bytes)
{
    XXH3_64bits_update_dispatch(state, data, len_bytes);
}
