/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: any bytes as a JSON Schema.  It compiles, or the fault names the error. */
#include "text/grammar/grammar.h"

#include <string.h>

#include "base/check.h"
#include "base/err.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fault fault = {0};
    int rc = grammar_check_schema(bytes_of(data, size), &fault);

    ASSERT(rc == 0 || rc == E_FORMAT || rc == E_UNSUPPORTED || rc == E_LIMIT);
    ASSERT(rc == 0 || (fault.code == rc && strlen(fault.text) > 0));
    return 0;
}
