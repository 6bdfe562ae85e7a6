/* SPDX-License-Identifier: Apache-2.0 */
/* Sets of slots (fleet/picker/picker.h). */
#include "fleet/picker/picker.h"

void picker_slots_add(struct picker_slots *slots, uint32_t slot)
{
    slots->words[slot / 64] |= UINT64_C(1) << slot % 64;
}

void picker_slots_remove(struct picker_slots *slots, uint32_t slot)
{
    slots->words[slot / 64] &= ~(UINT64_C(1) << slot % 64);
}

bool picker_slots_has(const struct picker_slots *slots, uint32_t slot)
{
    return slots->words[slot / 64] >> slot % 64 & 1;
}

bool picker_slots_is_empty(const struct picker_slots *slots)
{
    uint64_t any = 0;

    for (uint32_t i = 0; i < PICKER_MAX_WORKERS / 64; i++)
        any |= slots->words[i];
    return any == 0;
}
