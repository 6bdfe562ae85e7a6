/* SPDX-License-Identifier: Apache-2.0 */
/* Sends a placed job to its worker or its pair: the SUBMIT message, with all of the job's sampling
 * options. A job that is placed again in mid-answer brings the tokens answered so far. Workers derive all
 * state from these tokens: penalties, the position in the answer's grammar. */
#include "fleet/router/router_priv.h"

#include <stdlib.h>

#include "base/err.h"
#include "proto/token_list.h"

struct lists {       /* arrays that the message points into */
    uint8_t *tokens; /* [token_bytes n_tokens] */
    unsigned token_bytes;
    uint32_t *bias_ids; /* [n_bias] */
    float *bias;        /* [n_bias] */
};

static int lists_init(struct lists *lists, const struct gen_job *spec, unsigned token_bytes)
{
    const struct sample_opts *sample = &spec->sample;

    *lists = (struct lists){.tokens = malloc((size_t)token_bytes * spec->n_tokens),
                            .token_bytes = token_bytes,
                            .bias_ids = calloc(sample->n_bias + (size_t)1, sizeof(uint32_t)),
                            .bias = calloc(sample->n_bias + (size_t)1, sizeof(float))};
    if (lists->tokens == NULL || lists->bias_ids == NULL || lists->bias == NULL)
        return E_NOMEM;
    token_list_pack(spec->tokens, spec->n_tokens, token_bytes, lists->tokens);
    for (uint32_t i = 0; i < sample->n_bias; i++) {
        lists->bias_ids[i] = sample->bias[i].id;
        lists->bias[i] = sample->bias[i].bias;
    }
    return 0;
}

static void lists_fini(struct lists *lists)
{
    free(lists->tokens);
    free(lists->bias_ids);
    free(lists->bias);
}

static void fill_sampling(const struct sample_opts *sample, const struct lists *lists,
                          Baton__Sampling *sampling)
{
    sampling->temperature = sample->temperature;
    sampling->top_p = sample->top_p;
    sampling->min_p = sample->min_p;
    sampling->top_k = sample->top_k;
    sampling->seed = sample->seed;
    sampling->wants_logprob = sample->wants_logprob;
    sampling->n_top = sample->n_top;
    sampling->frequency_penalty = sample->frequency_penalty;
    sampling->presence_penalty = sample->presence_penalty;
    sampling->repetition_penalty = sample->repetition_penalty;
    sampling->n_bias = sampling->n_bias_ids = sample->n_bias;
    sampling->bias_ids = lists->bias_ids;
    sampling->bias = lists->bias;
}

static void fill_submit(const struct gen_handle *job, const struct lists *lists, Baton__Submit *submit)
{
    const struct gen_job *spec = &job->job;

    submit->request = job->number;
    submit->request_id = (char *)spec->request_id;
    submit->tenant = (char *)spec->tenant;
    submit->weight = spec->weight;
    submit->tokens.data = lists->tokens;
    submit->tokens.len = (size_t)lists->token_bytes * spec->n_tokens;
    submit->token_bytes = lists->token_bytes == TOKEN_LIST_MAX_BYTES ? 0 : lists->token_bytes;
    submit->n_prompt = job->n_prompt;
    submit->max_new_tokens = spec->max_new_tokens - router_job_answered(job);
    submit->constraint.data = spec->constraint.data;
    submit->constraint.len = spec->constraint.len_bytes;
    submit->keep_tokens = spec->keep_tokens;
    submit->keep_1h_tokens = spec->keep_1h_tokens;
    submit->public_tokens = spec->public_tokens;
    submit->score_from = job->score_next;
}

static Baton__Peer *fill_peer(const struct gen_handle *job, uint32_t slot, Baton__Peer *peer)
{
    struct router_worker *worker = &job->router->workers[slot];

    peer->node = worker->node;
    peer->epoch = worker->epoch;
    peer->link_address = worker->link_address;
    return peer;
}

static int submit_to(struct gen_handle *job, uint32_t slot, Baton__SubmitMode mode, uint32_t peer_slot,
                     Baton__Submit *submit)
{
    Baton__Peer peer = BATON__PEER__INIT, holder = BATON__PEER__INIT;
    bool may_ask = mode != BATON__SUBMIT_MODE__SUBMIT_DECODE && job->holder.slot != PICKER_NONE;

    submit->mode = mode;
    submit->peer = peer_slot != PICKER_NONE ? fill_peer(job, peer_slot, &peer) : NULL;
    submit->holder = may_ask ? fill_peer(job, job->holder.slot, &holder) : NULL;
    submit->holder_tokens = may_ask ? job->holder.tokens : 0;
    submit->ask_limit_ms = may_ask ? job->ask_limit_ms : 0;
    job->router->workers[slot].n_dispatched++;
    return router_send(job->router, slot, FRAME_SUBMIT, &submit->base);
}

/* The token width that both workers can read. */
static unsigned token_bytes_for(const struct gen_handle *job, const struct picker_choice *choice)
{
    const struct router_worker *workers = job->router->workers;
    uint64_t abilities = workers[choice->decode].abilities;

    if (choice->prefill != PICKER_NONE)
        abilities &= workers[choice->prefill].abilities;
    return abilities & ABILITY_NARROW ? token_list_width(job->job.tokens, job->job.n_tokens)
                                      : TOKEN_LIST_MAX_BYTES;
}

int router_job_send(struct gen_handle *job, const struct picker_choice *choice)
{
    Baton__Submit submit = BATON__SUBMIT__INIT;
    Baton__Sampling sampling = BATON__SAMPLING__INIT;
    struct lists lists;
    bool is_pair = choice->prefill != PICKER_NONE;
    int rc = lists_init(&lists, &job->job, token_bytes_for(job, choice));

    if (rc == 0) {
        fill_submit(job, &lists, &submit);
        fill_sampling(&job->job.sample, &lists, &sampling);
        submit.sampling = &sampling;
        rc = submit_to(job, choice->decode,
                       is_pair ? BATON__SUBMIT_MODE__SUBMIT_DECODE : BATON__SUBMIT_MODE__SUBMIT_LOCAL,
                       choice->prefill, &submit);
        if (rc == 0 && is_pair) /* on failure the prefill worker's link is about to be lost; the loss
                                 * handles it */
            (void)submit_to(job, choice->prefill, BATON__SUBMIT_MODE__SUBMIT_PREFILL, choice->decode,
                            &submit);
    }
    lists_fini(&lists);
    return rc;
}
