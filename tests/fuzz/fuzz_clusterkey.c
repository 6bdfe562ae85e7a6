/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: the text of a cluster key file.  An accepted file has at most two different keys, and goes through a
 * rotation. */
#include <string.h>

#include "base/check.h"
#include "net/link/cluster_key.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct cluster_keys keys;
    struct fault fault = {0};

    if (cluster_keys_parse("key", bytes_of(data, size), &fault, &keys) < 0) {
        ASSERT(strncmp(fault.text, "key: ", 5) == 0);
        return 0;
    }
    ASSERT(size <= CLUSTER_KEY_FILE_BYTES);
    ASSERT(keys.step == CLUSTER_STEP_NONE || memcmp(keys.current, keys.second, sizeof(keys.current)) != 0);
    for (int i = 0; i < 3; i++)
        cluster_keys_rotate(&keys);
    ASSERT(keys.step <= CLUSTER_STEP_FORMER);
    cluster_keys_wipe(&keys);
    return 0;
}
