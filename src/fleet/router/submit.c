/* SPDX-License-Identifier: Apache-2.0 */
/* Sends a placed job to its worker or its pair: the SUBMIT message, with all of the job's sampling
 * options. A job that is placed again in mid-answer brings the tokens answered so far. Workers derive all
 * state from these tokens: penalties, the position in the answer's grammar. */
#include "fleet/router/router_priv.h"

#include "compute/order/submit.h"
#include "proto/token_list.h"

static Baton__Peer *fill_peer(const struct job *job, uint32_t slot, Baton__Peer *peer)
{
    struct router_worker *worker = &job->router->workers[slot];

    peer->node = worker->node;
    peer->epoch = worker->epoch;
    peer->link_address = worker->link_address;
    return peer;
}

static int submit_to(struct job *job, uint32_t slot, Baton__SubmitMode mode, uint32_t peer_slot,
                     Baton__Submit *submit)
{
    Baton__Peer peer = BATON__PEER__INIT, owner = BATON__PEER__INIT;
    bool may_ask = mode != BATON__SUBMIT_MODE__SUBMIT_DECODE && job->owner.slot != PICKER_NONE;

    submit->mode = mode;
    submit->peer = peer_slot != PICKER_NONE ? fill_peer(job, peer_slot, &peer) : NULL;
    submit->owner = may_ask ? fill_peer(job, job->owner.slot, &owner) : NULL;
    submit->owner_tokens = may_ask ? job->owner.tokens : 0;
    submit->ask_limit_ms = may_ask ? job->ask_limit_ms : 0;
    job->router->workers[slot].n_dispatched++;
    return router_send(job->router, slot, FRAME_SUBMIT, &submit->base);
}

/* The token width that both workers can read. */
static unsigned token_bytes_for(const struct job *job, const struct picker_choice *choice)
{
    const struct router_worker *workers = job->router->workers;
    uint64_t capabilities = workers[choice->decode].capabilities;

    if (choice->prefill != PICKER_NONE)
        capabilities &= workers[choice->prefill].capabilities;
    return capabilities & CAPABILITY_NARROW ? token_list_width(job->order.tokens, job->order.n_tokens)
                                            : TOKEN_LIST_MAX_BYTES;
}

int router_job_send(struct job *job, const struct picker_choice *choice)
{
    struct work_order rest = job->order; /* borrows the order's heap members */
    struct work_submit packed;
    bool is_pair = choice->prefill != PICKER_NONE;
    int rc;

    rest.work.max_new_tokens -= router_job_answered(job);
    rest.work.score_from = job->score_next;
    rc = work_submit_pack(&rest, token_bytes_for(job, choice), &packed);
    if (rc == 0) {
        packed.submit.request = job->number;
        rc = submit_to(job, choice->decode,
                       is_pair ? BATON__SUBMIT_MODE__SUBMIT_DECODE : BATON__SUBMIT_MODE__SUBMIT_LOCAL,
                       choice->prefill, &packed.submit);
        if (rc == 0 && is_pair) /* on failure the prefill worker's link is about to be lost; the loss
                                 * handles it */
            (void)submit_to(job, choice->prefill, BATON__SUBMIT_MODE__SUBMIT_PREFILL, choice->decode,
                            &packed.submit);
    }
    work_submit_fini(&packed);
    return rc;
}
