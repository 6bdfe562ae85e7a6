/* SPDX-License-Identifier: Apache-2.0 */
/* A request's part of a distributed trace.
 *
 *    client's traceparent --> request's span --> tokenise
 *                                            --> the backend's spans: they get the request's span as parent
 *
 * A request follows its client's decision to sample.  A request without a traceparent begins a trace with the
 * configured ratio.  Without an exporter the client's context is passed on unchanged.
 *
 * Attributes follow OpenTelemetry's conventions for generative AI and HTTP.  They never hold prompts, answers, keys
 * or tenants' names. */
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/str.h"
#include "serve/endpoint/choice_priv.h"

static bool request_is_traced(const struct request *request)
{
    return request->front->opts.spans != NULL && request->trace.is_sampled;
}

void request_trace_begin(struct request *request, struct bytes traceparent)
{
    struct front_opts *opts = &request->front->opts;

    if (!trace_context_read(traceparent, &request->trace) && opts->spans != NULL)
        trace_context_begin(opts->trace_ratio, &request->trace);
    if (request->trace.is_known)
        hex_encode(request->trace.trace_id, TRACE_ID_BYTES, request->trace_id);
    if (request_is_traced(request))
        trace_span_id_make(request->span_id);
}

void request_trace_children(const struct request *request, struct trace_context *out)
{
    *out = request->trace;
    if (request_is_traced(request))
        memcpy(out->parent_id, request->span_id, SPAN_ID_BYTES);
}

static void request_put_tokenise(const struct request *request)
{
    struct trace_context context;
    struct span span;

    if (request->tokenised_ns == 0)
        return;
    request_trace_children(request, &context);
    span_begin(&span, &context, "tokenise", request->received_ns);
    span.end_ns = request->tokenised_ns;
    span_add_count(&span, "gen_ai.usage.input_tokens", request->serving.prompt_tokens);
    span_queue_put(request->front->opts.spans, &span);
}

static void request_add_generation(const struct request *request, struct span *span)
{
    const struct work *work = &request->gen.work;
    const struct gen_serving *serving = &request->serving;

    span_add_text(span, "gen_ai.response.model", request->model->name);
    span_add_text(span, "gen_ai.response.id", request->message_id);
    span_add_list(span, "gen_ai.response.finish_reasons", request->reason);
    span_add_count(span, "gen_ai.request.max_tokens", work->max_new_tokens);
    if (!isnan(work->sample.temperature))
        span_add_real(span, "gen_ai.request.temperature", (double)work->sample.temperature);
    if (request->gen.has_seed)
        span_add_count(span, "gen_ai.request.seed", work->sample.seed);
    if (request->n_choices > 1)
        span_add_count(span, "gen_ai.request.choice.count", request->n_choices);
    span_add_count(span, "gen_ai.usage.input_tokens", serving->prompt_tokens);
    span_add_count(span, "gen_ai.usage.output_tokens", request->n_output);
    span_add_count(span, "gen_ai.usage.cache_read.input_tokens", request->usage.cache_read_tokens);
    span_add_count(span, "baton.tokens.computed", serving->computed_tokens);
    span_add_count(span, "baton.tokens.transferred", serving->transferred_tokens);
    span_add_count(span, "baton.redispatched", serving->n_redispatched);
    span_add_text(span, "baton.prefill.worker", serving->prefill_worker);
    span_add_text(span, "baton.decode.worker", serving->decode_worker);
    span_add_text(span, "baton.transport", serving->transport);
    if (request->first_ns > request->received_ns)
        span_add_real(span, "baton.time_to_first_token_s",
                      (double)(request->first_ns - request->received_ns) / 1e9);
}

void request_trace_end(const struct request *request)
{
    const struct api_call_info *info = api_call_info(request->call);
    char name[SPAN_TEXT_BYTES];
    struct span span;

    if (!request_is_traced(request))
        return;
    str_copy(name, sizeof(name), info->operation);
    if (request->model != NULL) { /* "chat MODEL", as the conventions have it */
        size_t len = strlen(name);

        name[len] = ' ';
        (void)str_copy(name + len + 1, sizeof(name) - len - 1, request->model->name);
    }
    span_begin(&span, &request->trace, name, request->received_ns);
    memcpy(span.id, request->span_id, SPAN_ID_BYTES);
    span.kind = SPAN_SERVER;
    span.end_ns = request->last_ns;
    span_add_text(&span, "gen_ai.operation.name", info->operation);
    span_add_text(&span, "gen_ai.provider.name", "baton");
    if (request->model != NULL)
        span_add_text(&span, "gen_ai.request.model", request->model->name);
    span_add_text(&span, "http.route", info->route);
    span_add_text(&span, "http.request.method", "POST");
    span_add_count(&span, "http.response.status_code", (uint64_t)request->status);
    span_add_text(&span, "baton.request.id", request->id);
    if (request->state == REQUEST_DONE && api_call_generates(request->call))
        request_add_generation(request, &span);
    if (request->status >= 500 || request->state == REQUEST_CANCELLED) {
        span_add_text(&span, "error.type", request->reason);
        span_fail(&span, request->reason);
    }
    span_queue_put(request->front->opts.spans, &span);
    request_put_tokenise(request);
}
