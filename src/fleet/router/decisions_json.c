/* SPDX-License-Identifier: Apache-2.0 */
/* A placement as JSON, for batonctl why and trace.  Times are microseconds after the request's first byte. */
#include "fleet/router/decisions_json_priv.h"

#include <inttypes.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/str.h"

static const char *decision_role_text(enum picker_role role)
{
    switch (role) {
    case PICKER_PREFILL:
        return "prefill";
    case PICKER_DECODE:
        return "decode";
    case PICKER_BOTH:
        return "both";
    }
    return "";
}

static void decision_put_text(struct buf *out, const char *key, const char *text)
{
    buf_printf(out, "\"%s\": ", key);
    json_put_str(out, bytes_str(text));
}

static void decision_put_candidate(const struct decision_candidate *candidate, struct buf *out)
{
    buf_append_str(out, "{");
    decision_put_text(out, "node", candidate->node);
    buf_printf(out, ", \"role\": \"%s\", \"chosen\": %s, ", decision_role_text(candidate->role),
               candidate->is_chosen ? "true" : "false");
    decision_put_text(out, "why_not", candidate->why_not);
    if (candidate->why_not[0] == '\0')
        buf_printf(out,
                   ", \"cached_tokens\": %u, \"running\": %u, \"blocks_free\": %u, \"queue_ms\": %.3f, "
                   "\"prompt_ms\": %.3f, \"transfer_ms\": %.3f, \"itl_ms\": %.3f, \"cost_ms\": %.3f",
                   candidate->cached_tokens, candidate->n_running, candidate->blocks_free,
                   candidate->queue_s * 1e3, candidate->prompt_s * 1e3, candidate->transfer_s * 1e3,
                   candidate->itl_s * 1e3, candidate->cost_s * 1e3);
    buf_append_str(out, "}");
}

static uint64_t decision_began_ns(const struct decision *decision)
{
    return decision->received_ns != 0 ? decision->received_ns : decision->submitted_ns;
}

/* Microseconds after the request's first byte. */
static uint64_t decision_us(const struct decision *decision, uint64_t at_ns)
{
    uint64_t began_ns = decision_began_ns(decision);

    return at_ns > began_ns ? (at_ns - began_ns) / NS_PER_US : 0;
}

/* Times in a worker's report count from its SUBMIT, by its own clock.  The wall clocks of both hosts give the time
 * of the SUBMIT, but never before the router sent it. */
static void decision_put_part(const struct decision *decision, const struct decision_part *part,
                              const char *role, struct buf *out)
{
    const Baton__TaskTimes *times = &part->times;
    uint64_t decided_us = decision_us(decision, decision->decided_ns), submit_us = decided_us;

    if (times->submitted_unix_ns > decision->decided_unix_ns)
        submit_us += (times->submitted_unix_ns - decision->decided_unix_ns) / NS_PER_US;
    if (decision->ended_ns != 0 &&
        submit_us + times->ended_ns / NS_PER_US > decision_us(decision, decision->ended_ns))
        submit_us = decided_us; /* the clocks of the two hosts differ by more than the request took */
    buf_append_str(out, "{");
    decision_put_text(out, "node", part->node);
    buf_printf(out,
               ", \"role\": \"%s\", \"submit_us\": %" PRIu64 ", \"fetched_us\": %" PRIu64
               ", \"admitted_us\": %" PRIu64 ", \"first_us\": %" PRIu64 ", \"transfer_began_us\": %" PRIu64
               ", \"transfer_ended_us\": %" PRIu64 ", \"ended_us\": %" PRIu64 ", \"transfer_bytes\": %" PRIu64
               "}",
               role, submit_us, times->fetched_ns / NS_PER_US, times->admitted_ns / NS_PER_US,
               times->first_ns / NS_PER_US, times->transfer_began_ns / NS_PER_US,
               times->transfer_ended_ns / NS_PER_US, times->ended_ns / NS_PER_US, times->transfer_bytes);
}

static void decision_put_times(const struct decision *decision, struct buf *out)
{
    bool has_first = decision->parts[0].is_known;

    buf_printf(out,
               ", \"received_us\": 0, \"submitted_us\": %" PRIu64 ", \"decided_us\": %" PRIu64
               ", \"first_us\": %" PRIu64 ", \"ended_us\": %" PRIu64 ", \"answered\": %u, \"workers\": [",
               decision_us(decision, decision->submitted_ns), decision_us(decision, decision->decided_ns),
               decision_us(decision, decision->first_ns), decision_us(decision, decision->ended_ns),
               decision->n_answered);
    if (has_first)
        decision_put_part(decision, &decision->parts[0], "prefill", out);
    if (decision->parts[1].is_known) {
        buf_append_str(out, has_first ? ", " : "");
        decision_put_part(decision, &decision->parts[1],
                          decision->choice.prefill == PICKER_NONE ? "local" : "decode", out);
    }
    buf_append_str(out, "]");
}

void decision_put(const struct decision *decision, struct buf *out)
{
    char when[21];

    clock_rfc3339(decision->decided_unix_ns / NS_PER_S, when);
    buf_printf(out, "{\"attempt\": %u, \"when\": \"%s\", ", decision->attempt, when);
    decision_put_text(out, "model", decision->model);
    buf_append_str(out, ", ");
    decision_put_text(out, "class", decision->class_name);
    buf_append_str(out, ", ");
    decision_put_text(out, "refused", decision->refused != NULL ? decision->refused : "");
    buf_append_str(out, ", ");
    decision_put_text(out, "error", decision->error < 0 ? err_text(decision->error) : "");
    buf_printf(out,
               ", \"over\": %s, \"prompt_tokens\": %u, \"waited_ms\": %.3f, \"ttft_slo_ms\": %.3f, "
               "\"itl_slo_ms\": %.3f",
               decision->ended_ns != 0 ? "true" : "false", decision->n_tokens,
               (double)decision->waited_ns / 1e6, (double)decision->ttft_slo_ns / 1e6,
               (double)decision->itl_slo_ns / 1e6);
    if (decision->refused == NULL)
        buf_printf(out,
                   ", \"ttft_ms\": %.3f, \"itl_ms\": %.3f, \"uncached_tokens\": %u, \"read_tokens\": %u, "
                   "\"reads_store\": %s, \"read_ms\": %.3f, \"fetch_tokens\": %u, \"cost_ms\": %.3f",
                   decision->choice.ttft_s * 1e3, decision->choice.itl_s * 1e3,
                   decision->choice.uncached_tokens, decision->choice.read_tokens,
                   decision->choice.reads_store ? "true" : "false", decision->choice.read_s * 1e3,
                   decision->owner_tokens, decision->choice.cost_s * 1e3);
    decision_put_times(decision, out);
    buf_printf(out, ", \"known_workers\": %u, \"looked_at\": %u, \"candidates\": [", decision->n_workers,
               decision->n_looked_at);
    for (uint32_t i = 0; i < decision->n_candidates; i++) {
        buf_append_str(out, i > 0 ? ", " : "");
        decision_put_candidate(&decision->candidates[i], out);
    }
    buf_append_str(out, "]}");
}

static const char *decision_node(const struct decision *decision, bool is_prefill)
{
    if (is_prefill && decision->parts[0].is_known)
        return decision->parts[0].node;
    for (uint32_t i = 0; i < decision->n_candidates; i++) {
        const struct decision_candidate *candidate = &decision->candidates[i];

        if (candidate->is_chosen && (candidate->role == PICKER_PREFILL) == is_prefill)
            return candidate->node;
    }
    return "";
}

void decision_put_brief(const struct decision *decision, uint64_t number, struct buf *out)
{
    char when[21];

    clock_rfc3339(decision->decided_unix_ns / NS_PER_S, when);
    buf_printf(out, "{\"number\": %" PRIu64 ", \"when\": \"%s\", ", number, when);
    decision_put_text(out, "request", decision->request_id);
    buf_append_str(out, ", ");
    decision_put_text(out, "model", decision->model);
    buf_append_str(out, ", ");
    decision_put_text(out, "class", decision->class_name);
    buf_append_str(out, ", ");
    decision_put_text(out, "refused", decision->refused != NULL ? decision->refused : "");
    buf_append_str(out, ", ");
    decision_put_text(out, "prefill", decision_node(decision, true));
    buf_append_str(out, ", ");
    decision_put_text(out, "decode", decision_node(decision, false));
    if (decision->prefix != 0)
        buf_printf(out, ", \"prefix\": \"%08x\"", decision->prefix);
    buf_printf(
        out,
        ", \"over\": %s, \"failed\": %s, \"attempt\": %u, \"prompt_tokens\": %u, \"uncached_tokens\": %u, "
        "\"expected_ttft_ms\": %.3f, \"ttft_slo_ms\": %.3f, \"first_ms\": %.3f, \"total_ms\": %.3f, "
        "\"answered\": %u, \"transfer_bytes\": %" PRIu64 "}",
        decision->ended_ns != 0 ? "true" : "false", decision->error < 0 ? "true" : "false", decision->attempt,
        decision->n_tokens, decision->refused != NULL ? decision->n_tokens : decision->choice.uncached_tokens,
        decision->refused != NULL ? 0 : decision->choice.ttft_s * 1e3, (double)decision->ttft_slo_ns / 1e6,
        (double)decision_us(decision, decision->first_ns) / 1e3,
        (double)decision_us(decision, decision->ended_ns) / 1e3, decision->n_answered,
        decision->parts[1].is_known ? decision->parts[1].times.transfer_bytes : 0);
}
