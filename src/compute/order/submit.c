/* SPDX-License-Identifier: Apache-2.0 */
/* Each pack function stands beside its unpack function.  A field that only one of them has is lost between router
 * and worker. */
#include "compute/order/submit.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/err.h"
#include "base/str.h"
#include "proto/token_list.h"

_Static_assert(SAMPLE_MAX_TOP == FRAME_MAX_TOP && SAMPLE_MAX_BIAS == FRAME_MAX_BIAS,
               "a frame holds all that is sampled");

/* ---- plain values: work.h in the order of its fields ---- */

static void work_pack(const struct work *work, Baton__Submit *submit)
{
    submit->request_id = (char *)work->request_id;
    submit->tenant = (char *)work->tenant;
    submit->weight = work->weight;
    submit->max_new_tokens = work->max_new_tokens;
#define PIN_PACK(name, ttl, s, field) submit->field = work->pin_tokens[WORK_PIN_##name];
    WORK_PINS(PIN_PACK)
#undef PIN_PACK
    submit->public_tokens = work->public_tokens;
    submit->score_from = work->score_from;
    submit->ignores_end = work->ignores_end;
    submit->wants_embedding = work->wants_embedding;
}

static void work_unpack(const Baton__Submit *submit, struct work *work)
{
    str_copy(work->request_id, sizeof(work->request_id), submit->request_id);
    str_copy(work->tenant, sizeof(work->tenant), submit->tenant);
    work->weight = submit->weight;
    work->max_new_tokens = submit->max_new_tokens;
#define PIN_UNPACK(name, ttl, s, field) work->pin_tokens[WORK_PIN_##name] = submit->field;
    WORK_PINS(PIN_UNPACK)
#undef PIN_UNPACK
    work->public_tokens = submit->public_tokens;
    work->score_from = submit->score_from;
    work->ignores_end = submit->ignores_end;
    work->wants_embedding = submit->wants_embedding;
}

static void resume_pack(const struct work_resume *resume, Baton__ResumeNote *note)
{
    note->message_id = (char *)resume->message_id;
    note->created_unix_s = resume->created_unix_s;
    note->body_digest.data = (uint8_t *)resume->body_digest;
    note->body_digest.len = sizeof(resume->body_digest);
}

static void resume_unpack(const Baton__ResumeNote *note, struct work_resume *resume)
{
    resume->is_kept = true;
    str_copy(resume->message_id, sizeof(resume->message_id), note->message_id);
    resume->created_unix_s = note->created_unix_s;
    if (note->body_digest.len == sizeof(resume->body_digest))
        memcpy(resume->body_digest, note->body_digest.data, sizeof(resume->body_digest));
}

static void trace_pack(const struct trace_context *trace, Baton__TraceContext *out)
{
    out->trace_id.data = (uint8_t *)trace->trace_id;
    out->trace_id.len = TRACE_ID_BYTES;
    out->parent_id.data = (uint8_t *)trace->parent_id;
    out->parent_id.len = SPAN_ID_BYTES;
    out->is_sampled = trace->is_sampled;
}

static void trace_unpack(const Baton__TraceContext *from, struct trace_context *trace)
{
    if (from->trace_id.len != TRACE_ID_BYTES || from->parent_id.len != SPAN_ID_BYTES)
        return;
    memcpy(trace->trace_id, from->trace_id.data, TRACE_ID_BYTES);
    memcpy(trace->parent_id, from->parent_id.data, SPAN_ID_BYTES);
    trace->is_sampled = from->is_sampled;
    trace->is_known = true;
}

/* Plain members of sample_opts that Sampling has under the same name. */
#define SAMPLE_FIELDS(X)                                                                                     \
    X(temperature)                                                                                           \
    X(top_p)                                                                                                 \
    X(min_p)                                                                                                 \
    X(top_k)                                                                                                 \
    X(seed)                                                                                                  \
    X(wants_logprob)                                                                                         \
    X(n_top)                                                                                                 \
    X(frequency_penalty)                                                                                     \
    X(presence_penalty)                                                                                      \
    X(repetition_penalty)                                                                                    \
    X(min_tokens)

static void sample_pack(const struct sample_opts *sample, Baton__Sampling *sampling)
{
#define X(field) sampling->field = sample->field;
    SAMPLE_FIELDS(X)
#undef X
}

static void sample_unpack(const Baton__Sampling *sampling, struct sample_opts *sample)
{
#define X(field) sample->field = sampling->field;
    SAMPLE_FIELDS(X)
#undef X
}

/* ---- arrays ---- */

static int arrays_pack(const struct work_order *order, unsigned token_bytes, struct work_submit *out)
{
    const struct sample_opts *sample = &order->work.sample;

    out->tokens = malloc((size_t)token_bytes * order->n_tokens);
    out->bias_ids = calloc(sample->n_bias + (size_t)1, sizeof(uint32_t));
    out->bias = calloc(sample->n_bias + (size_t)1, sizeof(float));
    if (out->tokens == NULL || out->bias_ids == NULL || out->bias == NULL)
        return E_NOMEM;
    token_list_pack(order->tokens, order->n_tokens, token_bytes, out->tokens);
    for (uint32_t i = 0; i < sample->n_bias; i++) {
        out->bias_ids[i] = sample->bias[i].id;
        out->bias[i] = sample->bias[i].bias;
    }
    return 0;
}

static int bias_unpack(const Baton__Sampling *sampling, struct sample_opts *sample)
{
    size_t n = sampling->n_bias < sampling->n_bias_ids ? sampling->n_bias : sampling->n_bias_ids;
    struct sample_bias *bias = n > 0 ? calloc(n, sizeof(*bias)) : NULL;

    if (n > 0 && bias == NULL)
        return E_NOMEM;
    for (size_t i = 0; i < n; i++)
        bias[i] = (struct sample_bias){.id = sampling->bias_ids[i], .bias = sampling->bias[i]};
    sample->bias = bias;
    sample->n_bias = (uint32_t)n;
    return 0;
}

static int tokens_unpack(const Baton__Submit *submit, struct work_order *order)
{
    struct bytes packed = bytes_of(submit->tokens.data, submit->tokens.len);
    size_t n = 0;

    if (token_list_count(packed, frame_token_bytes(submit), &n) < 0 || n == 0 ||
        submit->n_prompt > n + submit->n_tokens_later)
        return E_PROTO;
    order->tokens = malloc((n + submit->n_tokens_later) * sizeof(*order->tokens));
    if (order->tokens == NULL)
        return E_NOMEM;
    token_list_unpack(packed, frame_token_bytes(submit), n, order->tokens);
    order->n_tokens = (uint32_t)n;
    order->n_prompt = submit->n_prompt;
    return 0;
}

/* ---- the whole ---- */

int work_submit_pack(const struct work_order *order, unsigned token_bytes, struct work_submit *out)
{
    *out = (struct work_submit){.submit = BATON__SUBMIT__INIT,
                                .sampling = BATON__SAMPLING__INIT,
                                .resume = BATON__RESUME_NOTE__INIT,
                                .trace = BATON__TRACE_CONTEXT__INIT};
    if (arrays_pack(order, token_bytes, out) < 0)
        return E_NOMEM;
    work_pack(&order->work, &out->submit);
    sample_pack(&order->work.sample, &out->sampling);
    out->sampling.bias_ids = out->bias_ids;
    out->sampling.bias = out->bias;
    out->sampling.n_bias = out->sampling.n_bias_ids = order->work.sample.n_bias;
    out->submit.sampling = &out->sampling;
    out->submit.tokens.data = out->tokens;
    out->submit.tokens.len = (size_t)token_bytes * order->n_tokens;
    out->submit.token_bytes = token_bytes == TOKEN_LIST_MAX_BYTES ? 0 : token_bytes;
    out->submit.n_prompt = order->n_prompt;
    resume_pack(&order->work.resume, &out->resume);
    out->submit.resume = order->work.resume.is_kept ? &out->resume : NULL;
    trace_pack(&order->work.trace, &out->trace);
    out->submit.trace = order->work.trace.is_known ? &out->trace : NULL;
    out->submit.constraint.data = order->constraint.data;
    out->submit.constraint.len = order->constraint.len_bytes;
    return 0;
}

void work_submit_fini(struct work_submit *packed)
{
    free(packed->tokens);
    free(packed->bias_ids);
    free(packed->bias);
}

int work_submit_unpack(const Baton__Submit *submit, struct work_order *out)
{
    work_unpack(submit, &out->work);
    if (submit->resume != NULL)
        resume_unpack(submit->resume, &out->work.resume);
    if (submit->trace != NULL)
        trace_unpack(submit->trace, &out->work.trace);
    if (submit->sampling != NULL) {
        sample_unpack(submit->sampling, &out->work.sample);
        if (bias_unpack(submit->sampling, &out->work.sample) < 0)
            return E_NOMEM;
    }
    if (submit->constraint.len > 0 &&
        buf_append(&out->constraint, submit->constraint.data, submit->constraint.len) < 0)
        return E_NOMEM;
    return tokens_unpack(submit, out);
}

int work_tokens_unpack(const Baton__SubmitTokens *more, uint32_t n_most, struct work_order *order)
{
    struct bytes packed = bytes_of(more->tokens.data, more->tokens.len);
    size_t n = 0;

    if (token_list_count(packed, more->token_bytes, &n) < 0 || n > n_most)
        return E_PROTO;
    token_list_unpack(packed, more->token_bytes, n, order->tokens + order->n_tokens);
    order->n_tokens += (uint32_t)n;
    return (int)n;
}

bool work_end_of(Baton__Finish finish, enum work_end *out)
{
    static const struct {
        Baton__Finish finish;
        enum work_end end;
    } rows[] = {
#define X(end, finish) {BATON__FINISH__FINISH_##finish, WORK_END_##end},
        WORK_END_TABLE(X)
#undef X
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        if (rows[i].finish == finish) {
            *out = rows[i].end;
            return true;
        }
    }
    if (protobuf_c_enum_descriptor_get_value(&baton__finish__descriptor, finish) != NULL)
        return false;
    *out = WORK_END_STOP_TOKEN; /* an end that a newer worker knows */
    return true;
}
