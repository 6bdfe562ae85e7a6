/* SPDX-License-Identifier: Apache-2.0 */
/* The capability bits and their names. */
#include "proto/capabilities.h"

uint64_t capabilities_own(void)
{
#define X(name, number, text) | CAPABILITY_##name
    return CAPABILITY_STATED CAPABILITY_LIST(X);
#undef X
}

uint64_t capabilities_read(uint64_t stated)
{
    return stated & CAPABILITY_STATED ? stated : CAPABILITY_GRAMMARS | CAPABILITY_LOGPROBS | CAPABILITY_ASKED;
}

const char *capability_text(uint64_t bits)
{
#define X(name, number, text)                                                                                \
    if (bits & CAPABILITY_##name)                                                                            \
        return text;
    CAPABILITY_LIST(X)
#undef X
    return "";
}
