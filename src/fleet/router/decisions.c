/* SPDX-License-Identifier: Apache-2.0 */
/* The ring of placements.
 *
 *    placed, refused --> an entry with the candidates' estimates      (the oldest entry is overwritten)
 *    TASK TIMES      --> the entry of that attempt: what its workers did when
 *    over            --> its end
 *
 * Estimates come from the functions that the choice uses.  They cover the chosen workers and up to MOST_LOOKED_AT
 * others, which bounds the cost of an entry: in most clusters these are all workers, in larger ones a sample.  An
 * entry keeps the best of each phase. */
#include "fleet/router/decisions_priv.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/str.h"
#include "fleet/router/decisions_json_priv.h"
#include "fleet/router/router_priv.h"
#include "fleet/router/admission_priv.h"

#define MOST_LOOKED_AT 32
#define MOST_LISTED    64 /* 0.1 ms */

struct decisions {
    struct decision ring[DECISIONS];
    uint64_t numbers[DECISIONS];        /* of their attempts; 0: refused */
    uint64_t n_total;                   /* entries ever written */
    uint32_t next, n;                   /* the entry to write next; entries written, DECISIONS at most */
    uint16_t slots[PICKER_MAX_WORKERS]; /* workers that the router knows */
    uint32_t n_slots, turn;             /* where the next sample begins */
};

int router_decisions_open(struct router *router)
{
    router->decisions = calloc(1, sizeof(*router->decisions));
    return router->decisions != NULL ? 0 : E_NOMEM;
}

void router_decisions_close(struct router *router)
{
    free(router->decisions);
    router->decisions = NULL;
}

void router_decisions_tick(struct router *router)
{
    struct decisions *decisions = router->decisions;

    decisions->n_slots = 0;
    for (uint32_t slot = 0; slot < PICKER_MAX_WORKERS; slot++)
        if (router->workers[slot].is_taken)
            decisions->slots[decisions->n_slots++] = (uint16_t)slot;
}

/* ---- candidates ---- */

static const char *decision_why_not(const struct job *job, const struct router_worker *worker, uint32_t slot)
{
    if (worker->link == NULL || !link_is_up(worker->link))
        return "its link is down";
    if (worker->is_draining)
        return "it is draining";
    if (worker->is_unfit)
        return "it is unfit: its logits are not finite";
    if (picker_slots_has(&job->excluded, slot))
        return "it failed this request before";
    if (picker_slots_has(&job->barred, slot))
        return "it lacks a capability that the request needs";
    return router_worker_usable(worker) ? "" : "it is not usable";
}

static uint32_t decision_cached(const struct picker_place *place, uint32_t slot, uint32_t block_tokens)
{
    uint32_t n_blocks =
        place != NULL && place->request.cached_blocks != NULL ? place->found.in_memory[slot] : 0;

    return n_blocks * block_tokens;
}

/* What the choice compared.  Of a refused request nothing was chosen: as halves of pairs, without an answer. */
static double decision_cost_s(const struct job *job, const struct picker_place *place, uint32_t slot)
{
    static const struct picker_choice pair = {.prefill = PICKER_MAX_WORKERS, .decode = PICKER_NONE};
    const struct picker_request refused = {.n_tokens = job->order.n_tokens, .now_ns = clock_now_ns()};
    const struct picker_goals none = {.ttft_slo_s = 0};

    if (place == NULL)
        return picker_cost_s(job->router->fleet, &none, &refused, &pair, slot);
    return picker_cost_s(place->fleet, &place->goals, &place->request, &place->choice, slot);
}

static void decision_estimate(const struct job *job, const struct picker_place *place, uint32_t slot,
                              struct decision_candidate *out)
{
    const struct router_worker *worker = &job->router->workers[slot];
    uint32_t n_tokens = job->order.n_tokens;
    struct picker_worker row;
    uint32_t cached;

    *out = (struct decision_candidate){.role = worker->role, .why_not = decision_why_not(job, worker, slot)};
    str_copy(out->node, sizeof(out->node), worker->node);
    if (out->why_not[0] != '\0')
        return;
    picker_fleet_row(job->router->fleet, slot, &row);
    cached = decision_cached(place, slot, row.block_tokens);
    out->cached_tokens = cached < n_tokens ? cached : n_tokens;
    cached = cached < n_tokens ? cached : n_tokens - 1; /* the last token is always computed */
    out->n_running = row.n_running;
    out->blocks_free = row.blocks_free;
    out->queue_s = picker_queue_s(&row);
    out->prompt_s = picker_prompt_s(&row, cached, n_tokens - cached);
    out->itl_s = picker_itl_s(&row);
    out->transfer_s = picker_transfer_s(&row, n_tokens - cached);
    out->cost_s = decision_cost_s(job, place, slot);
}

/* Keeps the candidate if it is chosen, or if it is among the best of its role; those that cannot take the request come
 * last. */
static void decision_keep(struct decision *decision, const struct decision_candidate *candidate)
{
    struct decision_candidate *worst = NULL;

    if (decision->n_candidates < DECISION_CANDIDATES) {
        decision->candidates[decision->n_candidates++] = *candidate;
        return;
    }
    for (uint32_t i = 0; i < decision->n_candidates; i++) {
        struct decision_candidate *at = &decision->candidates[i];

        if (at->is_chosen || (at->role == PICKER_PREFILL) != (candidate->role == PICKER_PREFILL))
            continue;
        if (worst == NULL || (worst->why_not[0] == '\0' && at->why_not[0] != '\0') ||
            ((worst->why_not[0] != '\0') == (at->why_not[0] != '\0') && at->cost_s > worst->cost_s))
            worst = at;
    }
    if (worst != NULL && candidate->why_not[0] == '\0' &&
        (worst->why_not[0] != '\0' || candidate->cost_s < worst->cost_s))
        *worst = *candidate;
}

static void decision_look(const struct job *job, const struct picker_place *place, struct decision *decision)
{
    struct decisions *decisions = job->router->decisions;
    uint32_t n = decisions->n_slots < MOST_LOOKED_AT ? decisions->n_slots : MOST_LOOKED_AT;
    struct decision_candidate candidate;
    const uint32_t chosen[] = {job->prefill.slot, job->decode.slot};

    for (unsigned i = 0; i < 2; i++) {
        if (chosen[i] == PICKER_NONE)
            continue;
        decision_estimate(job, place, chosen[i], &candidate);
        candidate.is_chosen = true;
        candidate.why_not = "";
        decision_keep(decision, &candidate);
    }
    for (uint32_t i = 0; i < n; i++) {
        uint32_t slot = decisions->slots[(decisions->turn + i) % decisions->n_slots];

        if (slot == chosen[0] || slot == chosen[1] || job->router->workers[slot].model != job->model)
            continue;
        decision_estimate(job, place, slot, &candidate);
        decision_keep(decision, &candidate);
    }
    decision->n_workers = decisions->n_slots;
    decision->n_looked_at = n;
    decisions->turn = decisions->n_slots > n ? (decisions->turn + n) % decisions->n_slots : 0;
}

/* ---- entries ---- */

static struct decision *decision_new(const struct job *job, uint64_t number)
{
    struct decisions *decisions = job->router->decisions;
    struct decision *decision = &decisions->ring[decisions->next];
    struct picker_class objectives = router_job_class(job);

    decisions->numbers[decisions->next] = number;
    decisions->next = (decisions->next + 1) % DECISIONS;
    decisions->n += decisions->n < DECISIONS;
    decisions->n_total++;
    *decision = (struct decision){.attempt = job->sum.n_redispatched + job->n_pauses + 1,
                                  .received_ns = job->order.work.received_ns,
                                  .submitted_ns = job->submitted_ns,
                                  .decided_ns = clock_now_ns(),
                                  .decided_unix_ns = clock_unix_ns(),
                                  .n_tokens = job->order.n_tokens,
                                  .ttft_slo_ns = objectives.ttft_slo_ns,
                                  .itl_slo_ns = objectives.itl_slo_ns};
    if (job->n_hashes > 0)
        memcpy(&decision->prefix, job->hashes[0].bytes, sizeof(decision->prefix));
    decision->waited_ns =
        decision->decided_ns - (job->attempt_ended_ns > 0 ? job->attempt_ended_ns : job->submitted_ns);
    str_copy(decision->request_id, sizeof(decision->request_id), job->order.work.request_id);
    str_copy(decision->model, sizeof(decision->model), job->model->gen.name);
    str_copy(decision->class_name, sizeof(decision->class_name), objectives.name);
    return decision;
}

void router_decisions_placed(const struct job *job, const struct picker_place *place)
{
    struct decision *decision;

    if (job->router->decisions == NULL)
        return;
    decision = decision_new(job, job->number);
    decision->choice = place->choice;
    decision->owner_tokens = job->owner.slot != PICKER_NONE ? job->owner.tokens : 0;
    decision_look(job, place, decision);
}

void router_decisions_refused(const struct job *job, const char *reason)
{
    struct decision *decision;

    if (job->router->decisions == NULL)
        return;
    decision = decision_new(job, 0);
    decision->refused = reason;
    decision->ended_ns = decision->decided_ns;
    decision_look(job, NULL, decision);
}

/* The entry of an attempt; NULL: overwritten. */
static struct decision *decision_of(struct decisions *decisions, uint64_t number)
{
    for (uint32_t i = 0; decisions != NULL && number != 0 && i < DECISIONS; i++)
        if (decisions->numbers[i] == number)
            return &decisions->ring[i];
    return NULL;
}

void router_decisions_times(const struct router *router, uint32_t slot, const Baton__Answer *answer)
{
    struct decision *decision;
    struct decision_part *to;

    if (answer->serving == NULL || answer->serving->times == NULL)
        return;
    decision = decision_of(router->decisions, answer->request);
    if (decision == NULL || (slot != decision->choice.prefill && slot != decision->choice.decode))
        return;
    to = &decision->parts[slot == decision->choice.prefill ? 0 : 1];
    *to = (struct decision_part){.is_known = true, .times = *answer->serving->times};
    str_copy(to->node, sizeof(to->node), router->workers[slot].node);
}

void router_decisions_over(const struct job *job, int error)
{
    struct decision *decision = decision_of(job->router->decisions, job->number);

    if (decision == NULL)
        return;
    decision->ended_ns = clock_now_ns();
    decision->first_ns = job->first_ns;
    decision->error = error;
    decision->n_answered = router_job_answered(job);
}

int router_decisions_json(const struct router *router, const char *request_id, struct buf *out)
{
    const struct decisions *decisions = router->decisions;
    bool is_first = true;

    buf_append_str(out, "{\"request\": ");
    json_put_str(out, bytes_str(request_id));
    buf_append_str(out, ", \"decisions\": [");
    for (uint32_t i = 0; decisions != NULL && i < decisions->n; i++) {
        const struct decision *decision =
            &decisions->ring[(decisions->next + DECISIONS - decisions->n + i) % DECISIONS];

        if (strcmp(decision->request_id, request_id) != 0)
            continue;
        buf_append_str(out, is_first ? "" : ", ");
        decision_put(decision, out);
        is_first = false;
    }
    buf_append_str(out, "]}\n");
    return is_first ? E_NOT_FOUND : out->is_bad ? E_NOMEM : 0;
}

int router_decisions_list(const struct router *router, struct buf *out)
{
    const struct decisions *decisions = router->decisions;
    uint32_t n = decisions == NULL ? 0 : decisions->n < MOST_LISTED ? decisions->n : MOST_LISTED;

    buf_printf(out, "{\"total\": %" PRIu64 ", \"placements\": [", n == 0 ? 0 : decisions->n_total);
    for (uint32_t i = 0; i < n; i++) {
        buf_append_str(out, i == 0 ? "" : ", ");
        decision_put_brief(&decisions->ring[(decisions->next + DECISIONS - 1 - i) % DECISIONS],
                           decisions->n_total - i, out);
    }
    buf_append_str(out, "]}\n");
    return out->is_bad ? E_NOMEM : 0;
}
