/* SPDX-License-Identifier: Apache-2.0 */
/* Sends a placed job to its worker or its pair: the SUBMIT message, with all of the job's sampling options.
 * For a job that is placed again in mid-answer, SUBMIT includes the tokens answered so far. Workers derive
 * all state from these tokens: penalties, the position in the answer's grammar.
 *
 * A prompt of more than FRAME_PIECE_TOKENS is sent in pieces, one in a turn of the loop.  In one piece it
 * would stop all streams for milliseconds, here and at the workers.  Jobs with such prompts take turns.
 *
 * A link that holds SUBMIT_MAX_QUEUED bytes gets no more of them: large prompts and constraints of a few clients would
 * fill its queue, and the link would go down for everybody.  Jobs wait in router.unsent until their workers have read. */
#include "fleet/router/router_priv.h"

#include <stdlib.h>

#include "base/err.h"
#include "compute/order/submit.h"
#include "fleet/router/job_spans_priv.h"
#include "proto/token_list.h"

enum {
    SUBMIT_MAX_QUEUED = 8 << 20, /* bytes; a link's queue may have eight times as many */
    SUBMIT_LOOKS = 64            /* jobs that one turn looks at */
};

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

static uint64_t capabilities_of(const struct job *job, const struct picker_choice *choice)
{
    const struct router_worker *workers = job->router->workers;
    uint64_t capabilities = workers[choice->decode].capabilities;

    if (choice->prefill != PICKER_NONE)
        capabilities &= workers[choice->prefill].capabilities;
    return capabilities;
}

static bool submit_has_room(const struct router *router, uint32_t slot)
{
    const struct link *link = slot != PICKER_NONE ? router->workers[slot].link : NULL;

    return link == NULL || link_queued_bytes(link) <= SUBMIT_MAX_QUEUED;
}

static bool submit_may_go(const struct job *job)
{
    return submit_has_room(job->router, job->estimate.decode) &&
           submit_has_room(job->router, job->estimate.prefill);
}

static int submit_begin(struct job *job)
{
    const struct picker_choice *choice = &job->estimate;
    struct work_order rest = job->order; /* borrows the order's heap members */
    struct work_submit packed;
    uint64_t capabilities = capabilities_of(job, choice);
    bool is_pair = choice->prefill != PICKER_NONE && job->prefill.state == PART_RUNNING &&
                   !router_part_is_lost(job, &job->prefill); /* else the decode worker computes the prompt */
    int rc;

    rest.work.max_new_tokens -= router_job_answered(job);
    rest.work.score_from = job->score_next;
    router_spans_context(job, &rest.work.trace);
    if (rest.n_tokens > FRAME_PIECE_TOKENS && (capabilities & CAPABILITY_PIECES) != 0)
        rest.n_tokens = FRAME_PIECE_TOKENS;
    rc = work_submit_pack(&rest,
                          (capabilities & CAPABILITY_NARROW) != 0
                              ? token_list_width(rest.tokens, rest.n_tokens)
                              : TOKEN_LIST_MAX_BYTES,
                          &packed);
    if (rc == 0) {
        packed.submit.request = job->number;
        packed.submit.compute_tokens = choice->uncached_tokens;
        packed.submit.n_tokens_later = job->order.n_tokens - rest.n_tokens;
        rc = submit_to(job, choice->decode,
                       is_pair ? BATON__SUBMIT_MODE__SUBMIT_DECODE : BATON__SUBMIT_MODE__SUBMIT_LOCAL,
                       is_pair ? choice->prefill : PICKER_NONE, &packed.submit);
        if (rc == 0 && is_pair) /* on failure the prefill worker's link is about to be lost; the loss
                                 * handles it */
            (void)submit_to(job, choice->prefill, BATON__SUBMIT_MODE__SUBMIT_PREFILL, choice->decode,
                            &packed.submit);
    }
    work_submit_fini(&packed);
    job->n_sent = rest.n_tokens;
    return rc;
}

int router_job_send(struct job *job)
{
    int rc = 0;

    list_remove(&job->unsent);
    job->n_sent = 0;
    job->n_to_send = job->order.n_tokens;
    if (submit_may_go(job))
        rc = submit_begin(job);
    if (rc == 0 && job->n_sent < job->n_to_send) {
        list_push_back(&job->router->unsent, &job->unsent);
        router_turn_soon(job->router);
    }
    return rc;
}

/* ---- the rest of a long prompt ---- */

static void tokens_to(const struct job *job, const struct job_part *part, const Baton__SubmitTokens *more)
{
    if (part->state == PART_RUNNING &&
        !router_part_is_lost(job, part)) /* a failure brings the link down; the loss handles it */
        (void)router_send(job->router, part->slot, FRAME_SUBMIT_TOKENS, &more->base);
}

/* Sends a job's next piece.  E_NOMEM. */
static int submit_more(struct job *job)
{
    Baton__SubmitTokens more = BATON__SUBMIT_TOKENS__INIT;
    uint32_t n = job->n_to_send - job->n_sent;

    if (n > FRAME_PIECE_TOKENS)
        n = FRAME_PIECE_TOKENS;
    more.request = job->number;
    more.token_bytes = token_list_width(job->order.tokens + job->n_sent, n);
    more.tokens.len = (size_t)n * more.token_bytes;
    more.tokens.data = malloc(more.tokens.len);
    if (more.tokens.data == NULL)
        return E_NOMEM;
    token_list_pack(job->order.tokens + job->n_sent, n, more.token_bytes, more.tokens.data);
    tokens_to(job, &job->decode, &more);
    tokens_to(job, &job->prefill, &more);
    free(more.tokens.data);
    job->n_sent += n;
    return 0;
}

/* Takes the first job whose workers have room; NULL: none of those looked at. */
static struct job *submit_next(struct router *router)
{
    struct job *job, *first = NULL;

    for (unsigned i = 0; i < SUBMIT_LOOKS && !list_is_empty(&router->unsent); i++) {
        job = container_of(router->unsent.next, struct job, unsent);
        if (job == first)
            break;
        first = first == NULL ? job : first;
        list_remove(&job->unsent);
        if (submit_may_go(job))
            return job;
        list_push_back(&router->unsent, &job->unsent);
    }
    return NULL;
}

bool router_jobs_send(struct router *router)
{
    struct job *job = submit_next(router);
    int rc;

    if (job == NULL) /* the tick asks again */
        return false;
    if (job->n_sent == 0 && router_part_is_lost(job, &job->decode)) /* the loss places it again */
        return !list_is_empty(&router->unsent);
    rc = job->n_sent == 0 ? submit_begin(job) : submit_more(job);
    if (rc == E_NOMEM) /* without them its workers would wait for ever */
        router_job_fail(job, 500, "api_error", "Out of memory", 0);
    else if (rc == 0 && job->n_sent < job->n_to_send) /* else its worker's link is about to be lost */
        list_push_back(&router->unsent, &job->unsent);
    return !list_is_empty(&router->unsent);
}
