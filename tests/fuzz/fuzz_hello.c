/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: the first bytes of a connection.  The number of requested bytes grows with them and is bounded.
 */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/event/stranger_hello_priv.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t before = 1;

    if (size > HELLO_MAX_BYTES)
        return 0;
    for (size_t n = 1; n <= size; n += 1 + n / 16) {
        uint8_t *exact = malloc(n); /* so that a sanitizer detects each byte read past it */
        size_t wanted;

        ASSERT(exact != NULL);
        memcpy(exact, data, n);
        wanted = hello_bytes(exact, n);
        free(exact);
        ASSERT(wanted <= HELLO_MAX_BYTES);
        if (wanted == 0)
            break; /* and it stays no ClientHello */
        ASSERT(wanted >= before);
        before = wanted;
    }
    return 0;
}
