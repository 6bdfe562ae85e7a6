/* SPDX-License-Identifier: Apache-2.0 */
/* See fleet/picker/served.h. */
#include "fleet/picker/served.h"

#include <string.h>

#include "fleet/picker/turn.h"

#define SERVED_MOST (PICKER_TURN_CREDIT * (uint64_t)FAIR_MAX_WEIGHT)

uint64_t picker_served_milli(uint64_t n_tokens, uint32_t weight)
{
    return n_tokens < UINT32_MAX ? n_tokens * FAIR_MAX_WEIGHT / (weight > 0 ? weight : 1) : SERVED_MOST;
}

void picker_served_note(struct picker_served *served, const struct picker_served_key *key, uint64_t n_tokens,
                        uint32_t weight)
{
    uint32_t i = 0;

    while (i < served->n && memcmp(&served->rows[i].key, key, sizeof(*key)) != 0)
        i++;
    if (i == PICKER_SERVED_ROWS)
        return;
    if (i == served->n)
        served->rows[served->n++] = (struct picker_served_row){.key = *key};
    served->rows[i].n_milli += picker_served_milli(n_tokens, weight);
}

void picker_served_charge(struct fair *turns, uint64_t tenant, uint64_t n_milli)
{
    struct fair_flow *flow = fair_hold(turns, tenant);
    uint64_t ahead, most;

    if (flow == NULL)
        return;
    ahead = fair_debt(turns, flow);
    most = ahead < PICKER_TURN_CREDIT ? (PICKER_TURN_CREDIT - ahead) * FAIR_MAX_WEIGHT : 0;
    if (n_milli > most)
        n_milli = most;
    if (n_milli > 0)
        fair_charge(turns, flow, n_milli, FAIR_MAX_WEIGHT);
    fair_drop(turns, flow);
}
