/* SPDX-License-Identifier: Apache-2.0 */
/* Reports on requests: metrics while they run, one access line when they end, and serving stats in the
 * headers of whole answers.
 *
 * Labels are bounded (model, code, reason, stage).  Request ids appear only in the log.  Prompts, answers
 * and keys are never reported.
 * How to change it: docs/changes-api.md, "A column of the access log". */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "serve/endpoint/choice_priv.h"

static const char *const stage_names[] = {"received", "tokenised", "placed", "prefilling", "streaming"};
CHECK_ROWS(stage_names, REQUEST_N_STAGES);

static struct metric_family *report_counter(struct front *front, const char *name, const char *help,
                                            const char *labels)
{
    return metric_family(front->opts.metrics, METRIC_COUNTER, name, help, labels);
}

static struct metric_family *report_gauge(struct front *front, const char *name, const char *help,
                                          const char *labels)
{
    return metric_family(front->opts.metrics, METRIC_GAUGE, name, help, labels);
}

static struct metric_family *report_seconds(struct front *front, const char *name, const char *help,
                                            bool is_per_token)
{
    return metric_histogram_family(front->opts.metrics, name, help, "model",
                                   is_per_token ? metric_itl_bounds_s : metric_ttft_bounds_s);
}

static void init_lengths(struct front *front, struct front_metrics *m)
{
    static const double bounds[] = {1,    2,    5,    10,    20,    50,    100,    200,    500,
                                    1000, 2000, 5000, 10000, 20000, 50000, 100000, 200000, 500000};

    m->request_prompt_tokens =
        metric_histogram_family(front->opts.metrics, "baton_request_prompt_tokens",
                                "Prompt tokens of a finished request.", "model", METRIC_BOUNDS(bounds));
    m->request_generation_tokens =
        metric_histogram_family(front->opts.metrics, "baton_request_generation_tokens",
                                "Tokens answered to a finished request.", "model", METRIC_BOUNDS(bounds));
}

static void init_own(struct front *front, struct front_metrics *m)
{
    m->requests = report_counter(front, "baton_requests_total", "Requests ended, by status code and reason.",
                                 "model code reason");
    m->running = report_gauge(front, "baton_requests_running",
                              "Requests whose prompt or answer is being computed.", "model");
    m->waiting = report_gauge(front, "baton_requests_waiting",
                              "Requests accepted by the endpoint and not yet placed.", "model");
    m->ttft = report_seconds(front, "baton_time_to_first_token_seconds",
                             "From a request's first byte to its first token.", false);
    m->itl =
        report_seconds(front, "baton_inter_token_latency_seconds", "Between two tokens of an answer.", true);
    m->tpot = report_seconds(front, "baton_time_per_output_token_seconds",
                             "Mean time per token after the first.", true);
    m->e2e = report_seconds(front, "baton_e2e_request_latency_seconds",
                            "From a request's first byte to its end.", false);
    m->queue = report_seconds(front, "baton_request_queue_seconds", "Time in workers' queues.", false);
    m->prefill = report_seconds(front, "baton_request_prefill_seconds", "Time computing the prompt.", false);
    m->transfer = report_seconds(front, "baton_request_transfer_seconds",
                                 "From the first to the last byte of KV.", false);
    m->exposed = report_seconds(front, "baton_request_exposed_transfer_seconds",
                                "What answers waited for KV when their prefill was over.", true);
    m->decode =
        report_seconds(front, "baton_request_decode_seconds", "Time from first to last token.", false);
    m->prompt_tokens =
        report_counter(front, "baton_prompt_tokens_total", "Prompt tokens of finished requests.", "model");
    m->generation_tokens =
        report_counter(front, "baton_generation_tokens_total", "Tokens answered.", "model");
    m->cached_tokens = report_counter(front, "baton_prompt_tokens_cached_total",
                                      "Prompt tokens found in a prefix cache.", "model");
    m->computed_tokens =
        report_counter(front, "baton_prompt_tokens_computed_total", "Prompt tokens computed.", "model");
    m->transferred_tokens =
        report_counter(front, "baton_prompt_tokens_transferred_total",
                       "Prompt tokens whose KV went from one worker to another.", "model");
}

/* Metrics of the answer cache and conversations, for choosing their size limits. */
static void init_memory(struct front *front, struct front_metrics *m)
{
    static const char *const outcomes[] = {"yes", "no"};
    struct metric_family *answers = report_counter(
        front, "baton_prompt_answers_total",
        "Assistant's messages in prompts, by whether their own tokens stood in the prompt.", "replayed");

    m->answers_found = metric_series(answers, &outcomes[0]);
    m->answers_missed = metric_series(answers, &outcomes[1]);
    m->answer_bytes = metric_single(front->opts.metrics, METRIC_GAUGE, "baton_answers_remembered_bytes",
                                    "Memory for answers that may come back (cache.replay_memory).");
    m->conversation_bytes =
        metric_single(front->opts.metrics, METRIC_GAUGE, "baton_conversations_bytes",
                      "Memory for conversations and kept responses (cache.thread_memory).");
    m->conversations = report_counter(front, "baton_conversations_continued_total",
                                      "Requests to continue a conversation, by result.", "result");
}

/* Metrics under vLLM's names, which dashboards and gateways look for. */
static void init_compatible(struct front *front, struct front_metrics *m)
{
    const struct {
        struct metric_family *family;
        const char *name, *help;
    } aliases[] = {
        {m->running, "vllm:num_requests_running", "Same as baton_requests_running."},
        {m->waiting, "vllm:num_requests_waiting", "Same as baton_requests_waiting."},
        {m->ttft, "vllm:time_to_first_token_seconds", "Same as baton_time_to_first_token_seconds."},
        {m->itl, "vllm:inter_token_latency_seconds", "Same as baton_inter_token_latency_seconds."},
        {m->e2e, "vllm:e2e_request_latency_seconds", "Same as baton_e2e_request_latency_seconds."},
        {m->tpot, "vllm:request_time_per_output_token_seconds",
         "Same as baton_time_per_output_token_seconds."},
        {m->queue, "vllm:request_queue_time_seconds", "Same as baton_request_queue_seconds."},
        {m->prefill, "vllm:request_prefill_time_seconds", "Same as baton_request_prefill_seconds."},
        {m->decode, "vllm:request_decode_time_seconds", "Same as baton_request_decode_seconds."},
        {m->request_prompt_tokens, "vllm:request_prompt_tokens", "Same as baton_request_prompt_tokens."},
        {m->request_generation_tokens, "vllm:request_generation_tokens",
         "Same as baton_request_generation_tokens."},
        {m->prompt_tokens, "vllm:prompt_tokens_total", "Same as baton_prompt_tokens_total."},
        {m->generation_tokens, "vllm:generation_tokens_total", "Same as baton_generation_tokens_total."},
        {m->prompt_tokens, "vllm:prefix_cache_queries_total", "Prompt tokens looked up in prefix caches."},
        {m->cached_tokens, "vllm:prefix_cache_hits_total", "Same as baton_prompt_tokens_cached_total."},
    };

    for (size_t i = 0; i < ARRAY_LEN(aliases); i++)
        metric_family_alias(front->opts.metrics, aliases[i].family, aliases[i].name, aliases[i].help,
                            "model_name");
    m->v_success = report_counter(front, "vllm:request_success_total", "Requests finished, by reason.",
                                  "model_name finished_reason");
}

void report_init(struct front *front)
{
    struct front_metrics *m = &front->metrics;
    struct metric_family *stages =
        report_gauge(front, "baton_requests_in_flight", "Requests by the stage they are in.", "stage");

    for (unsigned i = 0; i < REQUEST_N_STAGES; i++)
        m->stages[i] = metric_series(stages, &stage_names[i]);
    m->auth_failures = metric_single(front->opts.metrics, METRIC_COUNTER, "baton_auth_failures_total",
                                     "Requests without a valid key.");
    m->aborts = metric_single(front->opts.metrics, METRIC_COUNTER, "baton_client_aborts_total",
                              "Requests whose client went away before the end.");
    m->limit_refusals = report_counter(front, "baton_limit_refusals_total",
                                       "Requests refused by a key's or tenant's rule, or for failed logins.",
                                       "tenant reason");
    init_own(front, m);
    init_lengths(front, m);
    init_memory(front, m);
    init_compatible(front, m);
}

/* ---- states ---- */

static void count_gauge(struct request *request, struct metric_family *family)
{
    const char *name = request->model == NULL ? NULL : request->model->name;

    if (request->gauge != NULL) {
        metric_add(request->gauge, -1);
        request->gauge = NULL;
    }
    if (family == NULL || name == NULL)
        return;
    request->gauge = metric_series(family, &name);
    metric_add(request->gauge, 1);
}

void report_state(struct request *request, enum request_state from)
{
    struct front_metrics *m = &request->front->metrics;

    if (from != request->state && from < REQUEST_N_STAGES)
        metric_add(m->stages[from], -1);
    if (request->state < REQUEST_N_STAGES)
        metric_add(m->stages[request->state], 1);
    if (request->state == REQUEST_PREFILLING || request->state == REQUEST_STREAMING) {
        if (from < REQUEST_PREFILLING)
            count_gauge(request, m->running);
    } else if (request->state >= REQUEST_DONE) {
        count_gauge(request, NULL);
    } else if (from == request->state || request->state == REQUEST_TOKENISED) {
        count_gauge(request, m->waiting);
    }
}

void report_model(struct request *request)
{
    struct front_metrics *m = &request->front->metrics;
    const char *name = request->model->name;

    request->series = (struct model_metrics){
        .ttft = metric_series(m->ttft, &name),
        .itl = metric_series(m->itl, &name),
        .tpot = metric_series(m->tpot, &name),
        .e2e = metric_series(m->e2e, &name),
        .queue = metric_series(m->queue, &name),
        .prefill = metric_series(m->prefill, &name),
        .transfer = metric_series(m->transfer, &name),
        .exposed = metric_series(m->exposed, &name),
        .decode = metric_series(m->decode, &name),
        .request_prompt_tokens = metric_series(m->request_prompt_tokens, &name),
        .request_generation_tokens = metric_series(m->request_generation_tokens, &name),
        .prompt_tokens = metric_series(m->prompt_tokens, &name),
        .generation_tokens = metric_series(m->generation_tokens, &name),
        .cached_tokens = metric_series(m->cached_tokens, &name),
        .computed_tokens = metric_series(m->computed_tokens, &name),
        .transferred_tokens = metric_series(m->transferred_tokens, &name),
    };
}

static double s_of(uint64_t ns)
{
    return (double)ns / 1e9;
}

/* Adds an exemplar only if the trace is sampled, so that the collector has it. */
static void report_observe(const struct request *request, struct metric *metric, double value)
{
    if (request->front->opts.spans != NULL && request->trace.is_sampled)
        metric_observe_traced(metric, value, request->trace.trace_id);
    else
        metric_observe(metric, value);
}

/* Counts n tokens that came together at now_ns. */
void report_tokens(struct choice *choice, uint64_t now_ns, size_t n)
{
    const struct request *request = choice->request;
    const struct model_metrics *s = &request->series;

    if (n == 0)
        return;
    metric_add(s->generation_tokens, (double)n);
    if (choice->last_ns == 0) {
        if (request->state == REQUEST_PREFILLING)
            report_observe(request, s->ttft, s_of(now_ns - request->received_ns));
        n--;
    }
    /* Tokens after the first of a group arrive with no delay after it. */
    for (size_t i = 0; i < n; i++)
        metric_observe(s->itl, i == 0 && choice->last_ns > 0 ? s_of(now_ns - choice->last_ns) : 0);
}

/* ---- the end ---- */

static void count_answers(const struct request *request)
{
    uint32_t n = 0, n_replayed = request->prompt.n_replayed;

    for (size_t i = 0; i < request->gen.n_messages; i++)
        n += request->gen.messages[i].role == GEN_ASSISTANT;
    metric_add(request->front->metrics.answers_found, n_replayed);
    metric_add(request->front->metrics.answers_missed, n > n_replayed ? n - n_replayed : 0);
}

static void report_answered(struct request *request)
{
    const char *name = request->model->name;
    const char *labels[2] = {name, strcmp(request->reason, "end_turn") == 0     ? "stop"
                                   : strcmp(request->reason, "max_tokens") == 0 ? "length"
                                                                                : request->reason};
    struct model_metrics *s = &request->series;
    const struct gen_serving *serving = &request->serving;

    metric_add(metric_series(request->front->metrics.v_success, labels), 1);
    metric_add(s->prompt_tokens, serving->prompt_tokens);
    metric_add(s->cached_tokens, request->usage.cache_read_tokens);
    metric_add(s->computed_tokens, serving->computed_tokens);
    metric_add(s->transferred_tokens, serving->transferred_tokens);
    report_observe(request, s->e2e, s_of(request->last_ns - request->received_ns));
    metric_observe(s->request_prompt_tokens, serving->prompt_tokens);
    metric_observe(s->request_generation_tokens, request->n_output);
    if (request->n_output > 1)
        metric_observe(s->tpot, s_of(request->last_ns - request->first_ns) / (request->n_output - 1));
    metric_observe(s->queue, s_of(serving->queue_ns));
    metric_observe(s->prefill, s_of(serving->prefill_ns));
    if (serving->transferred_tokens > 0) {
        metric_observe(s->transfer, s_of(serving->transfer_ns));
        metric_observe(s->exposed, s_of(serving->exposed_ns));
    }
    metric_observe(s->decode, s_of(serving->decode_ns));
    count_answers(request);
}

static uint64_t us_between(uint64_t from_ns, uint64_t to_ns)
{
    return from_ns > 0 && to_ns > from_ns ? (to_ns - from_ns) / NS_PER_US : 0;
}

static void log_access(const struct request *request)
{
    const struct gen_serving *serving = &request->serving;
    bool is_owned =
        request->is_in_fair_queue && request->tokenised_ns == 0; /* a running job owns the prompt */
    uint64_t n_prompt = is_owned ? 0 : request->prompt.ids.n;

    for (size_t i = 1; !is_owned && i < request_n_prompts(request); i++)
        n_prompt += request->more_prompts[i - 1].ids.n;

    log_info("access", LOG_STR("request_id", request->id), LOG_STR("trace_id", request->trace_id),
             LOG_STR("peer", request->peer), LOG_STR("tenant", request->who.tenant),
             LOG_STR("key", request->who.name), LOG_STR("call", api_call_info(request->call)->log_name),
             LOG_STR("model", request->model == NULL ? "" : request->model->name),
             LOG_STR("class", serving->class_name), LOG_U64("status", (uint64_t)request->status),
             LOG_STR("reason", request->reason), LOG_BOOL("stream", request->is_stream),
             LOG_U64("tokens_in", n_prompt), LOG_U64("tokens_out", request->n_output),
             LOG_U64("tokens_cached", request->usage.cache_read_tokens),
             LOG_U64("computed", serving->computed_tokens), LOG_U64("reused", serving->reused_tokens),
             LOG_U64("transferred", serving->transferred_tokens),
             LOG_U64("redispatched", serving->n_redispatched), LOG_U64("preempted", serving->n_preempted),
             LOG_U64("tokenise_us", us_between(request->received_ns, request->tokenised_ns)),
             LOG_U64("queue_us", serving->queue_ns / NS_PER_US),
             LOG_U64("prefill_us", serving->prefill_ns / NS_PER_US),
             LOG_U64("transfer_us", serving->transfer_ns / NS_PER_US),
             LOG_U64("exposed_us", serving->exposed_ns / NS_PER_US),
             LOG_U64("ttft_us", us_between(request->received_ns, request->first_ns)),
             LOG_U64("decode_us", serving->decode_ns / NS_PER_US),
             LOG_U64("total_us", us_between(request->received_ns, request->last_ns)),
             LOG_STR("prefill_worker", serving->prefill_worker),
             LOG_STR("decode_worker", serving->decode_worker), LOG_STR("transport", serving->transport));
}

void report_conversation(struct front *front, enum conversations_take result)
{
    static const char *const names[] = {[CONVERSATIONS_TAKEN] = "taken",
                                        [CONVERSATIONS_UNKNOWN] = "unknown",
                                        [CONVERSATIONS_CONTINUED] = "continued_already",
                                        [CONVERSATIONS_BUSY] = "busy"};

    metric_add(metric_series(front->metrics.conversations, &names[result]), 1);
}

static void measure_memory(const struct front *front)
{
    if (front->answer_cache != NULL)
        metric_set(front->metrics.answer_bytes, (double)answer_cache_bytes(front->answer_cache));
    if (front->conversations != NULL)
        metric_set(front->metrics.conversation_bytes, (double)(conversations_bytes(front->conversations) +
                                                               conversations_bytes(front->responses)));
}

void report_end(struct request *request)
{
    char code[8];
    const char *labels[3] = {request->model == NULL ? "" : request->model->name, code, request->reason};

    snprintf(code, sizeof(code), "%d", request->status);
    metric_add(metric_series(request->front->metrics.requests, labels), 1);
    if (request->state == REQUEST_CANCELLED)
        metric_add(request->front->metrics.aborts, 1);
    if (request->state == REQUEST_DONE && api_call_generates(request->call))
        report_answered(request);
    measure_memory(request->front);
    request_trace_end(request);
    log_access(request);
}

/* ---- headers ---- */

static double ms_of(uint64_t ns)
{
    return (double)ns / 1e6;
}

void report_serving_fields(const struct request *request, struct http_fields *fields)
{
    const struct gen_serving *serving = &request->serving;

    http_fields_addf(fields, "server-timing",
                     "tokenise;dur=%.3f, queue;dur=%.3f, prefill;dur=%.3f, transfer;dur=%.3f, "
                     "exposed;dur=%.3f, decode;dur=%.3f, "
                     "ttft;dur=%.3f, total;dur=%.3f",
                     request->tokenised_ns > 0 ? ms_of(request->tokenised_ns - request->received_ns) : 0,
                     ms_of(serving->queue_ns), ms_of(serving->prefill_ns), ms_of(serving->transfer_ns),
                     ms_of(serving->exposed_ns), ms_of(serving->decode_ns), ms_of(serving->ttft_ns),
                     ms_of(serving->total_ns));
    http_fields_addf(
        fields, "baton-proof",
        "prompt=%u; computed=%u; reused=%u; transferred=%u; drawn=%u; redispatched=%u; preempted=%u; "
        "drafted=%u; accepted=%u; prefill=%s; decode=%s; transport=%s",
        serving->prompt_tokens, serving->computed_tokens, serving->reused_tokens, serving->transferred_tokens,
        serving->drawn_tokens, serving->n_redispatched, serving->n_preempted, serving->drafted_tokens,
        serving->accepted_tokens, serving->prefill_worker, serving->decode_worker, serving->transport);
}
