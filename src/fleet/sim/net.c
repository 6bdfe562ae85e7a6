/* SPDX-License-Identifier: Apache-2.0 */
/* Each worker has a NIC with one lane out and one lane in.  Each lane is a queue of
 * bytes; a transfer ends when both its lanes have carried it.  A hand-off begins with the prompt's first layer, so it may end soon after its last. */
#include "fleet/sim/sim_priv.h"

uint64_t sim_net_send(struct sim *sim, struct sim_worker *from, struct sim_worker *to, double bytes,
                      uint64_t from_ns)
{
    uint64_t ns;

    if (sim->opts->nic_bytes_per_s <= 0 || from == to)
        return from_ns;
    ns = (uint64_t)(bytes / sim->opts->nic_bytes_per_s * 1e9);
    from->out_free_ns = (from->out_free_ns > from_ns ? from->out_free_ns : from_ns) + ns;
    to->in_free_ns = (to->in_free_ns > from_ns ? to->in_free_ns : from_ns) + ns;
    sim->result->nic_busy_s += (double)ns / 1e9;
    return from->out_free_ns > to->in_free_ns ? from->out_free_ns : to->in_free_ns;
}
