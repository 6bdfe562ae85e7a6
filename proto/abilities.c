/* SPDX-License-Identifier: Apache-2.0 */
/* The capability bits and their names. */
#include "proto/abilities.h"

uint64_t abilities_own(void)
{
#define X(name, number, text) | ABILITY_##name
    return ABILITY_STATED ABILITY_LIST(X);
#undef X
}

uint64_t abilities_read(uint64_t stated)
{
    return stated & ABILITY_STATED ? stated : ABILITY_GRAMMARS | ABILITY_LOGPROBS | ABILITY_ASKED;
}

const char *ability_text(uint64_t bits)
{
#define X(name, number, text)                                                                                \
    if (bits & ABILITY_##name)                                                                               \
        return text;
    ABILITY_LIST(X)
#undef X
    return "";
}
