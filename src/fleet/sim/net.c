/* SPDX-License-Identifier: Apache-2.0 */
/* Each worker has a NIC with one lane out and one lane in, and a disk.  Each lane is a queue of bytes; a transfer ends when
 * both its lanes have carried it.  A hand-off begins with the prompt's first layer, so it may end soon after its last.
 *
 * The transfer of a request that is cancelled or loses a worker ends at once.  The rest of its time in the lanes is free
 * for transfers that begin later; those that were planned behind it keep their times. */
#include "fleet/sim/sim_priv.h"

uint64_t sim_net_send(struct sim *sim, struct sim_job *job, const struct sim_transfer *transfer)
{
    struct sim_worker *from = transfer->from, *to = transfer->to;
    uint64_t from_ns = transfer->from_ns, ns;

    *transfer->sum_bytes += transfer->bytes;
    if (sim->opts->nic_bytes_per_s <= 0 || from == to)
        return from_ns;
    ns = (uint64_t)(transfer->bytes / sim->opts->nic_bytes_per_s * 1e9);
    from->out_free_ns = (from->out_free_ns > from_ns ? from->out_free_ns : from_ns) + ns;
    to->in_free_ns = (to->in_free_ns > from_ns ? to->in_free_ns : from_ns) + ns;
    sim->nic_busy_ns += ns;
    job->sent = (struct sim_sent){.lanes_ns = {&from->out_free_ns, &to->in_free_ns},
                                  .end_ns = {from->out_free_ns, to->in_free_ns},
                                  .ns = ns,
                                  .bytes = transfer->bytes,
                                  .sum_bytes = transfer->sum_bytes};
    return from->out_free_ns > to->in_free_ns ? from->out_free_ns : to->in_free_ns;
}

uint64_t sim_net_read(struct sim *sim, struct sim_job *job, struct sim_worker *worker, double bytes)
{
    uint64_t begin_ns = worker->disk_free_ns > job->ready_ns ? worker->disk_free_ns : job->ready_ns;
    uint64_t ns = (uint64_t)(bytes / sim->opts->disk_bytes_per_s * 1e9);

    worker->disk_free_ns = begin_ns + ns;
    sim->disk_busy_ns += ns;
    sim->result->read_bytes += bytes;
    job->sent = (struct sim_sent){.lanes_ns = {&worker->disk_free_ns},
                                  .end_ns = {worker->disk_free_ns},
                                  .ns = ns,
                                  .bytes = bytes,
                                  .sum_bytes = &sim->result->read_bytes};
    return worker->disk_free_ns;
}

void sim_net_stop(struct sim *sim, struct sim_job *job)
{
    struct sim_sent *sent = &job->sent;
    uint64_t left_ns[2] = {0};

    for (unsigned i = 0; i < 2 && sent->lanes_ns[i] != NULL; i++) {
        if (sent->end_ns[i] > sim->now_ns)
            left_ns[i] = sent->end_ns[i] - sim->now_ns < sent->ns ? sent->end_ns[i] - sim->now_ns : sent->ns;
        *sent->lanes_ns[i] -= left_ns[i];
    }
    if (left_ns[0] > 0)
        *sent->sum_bytes -= sent->bytes * ((double)left_ns[0] / (double)sent->ns);
    *(sent->lanes_ns[1] != NULL ? &sim->nic_busy_ns : &sim->disk_busy_ns) -= left_ns[0];
    *sent = (struct sim_sent){0};
}
