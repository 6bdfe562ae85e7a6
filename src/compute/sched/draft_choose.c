/* SPDX-License-Identifier: Apache-2.0 */
/* How many draft tokens each sequence gets.
 *
 * Extra rows cost little while a step is bound by reading weights, and much when it is bound by arithmetic.
 * With acceptance rate p, the k-th draft token of a sequence is used with probability p^k. The draft tokens
 * of all sequences are ordered by this probability. The number is taken that maximises expected tokens per
 * predicted second. A draft model's tokens also cost its own steps: its k-th step has one row for each
 * sequence that gets at least k of its tokens.
 *
 * Hot path: no allocation, no log, no system call. */
#include <math.h>

#include "compute/sched/sched_priv.h"

#define CHANCE_MIN 0.01

static struct draft_choice *draft_likeliest(struct draft_choice *choices, uint32_t n_choices)
{
    struct draft_choice *best = NULL;

    for (uint32_t i = 0; i < n_choices; i++) {
        if (choices[i].n < choices[i].n_most && (best == NULL || choices[i].next > best->next))
            best = &choices[i];
    }
    return best;
}

/* Seconds that one more row adds to the draft model's step of this depth. */
static double row_more_s(const struct sched *sched, const struct draft_choice *choice, uint16_t *rows)
{
    uint32_t n_rows = ++rows[choice->n], n_tokens = choice->seq->spec.n_tokens;
    double before_s = n_rows > 1 ? draft_model_row_s(sched, n_rows - 1, n_tokens) : 0;

    return fmax(draft_model_row_s(sched, n_rows, n_tokens) - before_s, 0);
}

void draft_choose(const struct sched *sched, struct draft_choice *choices, uint32_t n_choices, uint32_t room)
{
    struct cost_step step = plan_decode_cost(sched);
    uint16_t rows[DRAFT_MAX + 1] = {0};
    double plain_s = cost_predict(&sched->speed.cost, &step), verify_s = plain_s, draft_s = 0;
    double tokens = step.n_rows, best = plain_s > 0 ? DRAFT_GAIN_MIN * tokens / plain_s : 0;

    for (uint32_t i = 0; i < room && best > 0; i++) {
        struct draft_choice *next = draft_likeliest(choices, n_choices);

        if (next == NULL || next->next < CHANCE_MIN)
            return;
        tokens += next->next;
        next->next *= next->chance;
        next->n++;
        step.n_rows++;
        step.n_pairs += cost_pairs(next->seq->n_computed + next->n, 1);

        verify_s = fmax(verify_s, cost_predict(&sched->speed.cost, &step)); /* less for more rows is noise */
        draft_s += next->is_model ? row_more_s(sched, next, rows) : 0;
        if (verify_s + draft_s - plain_s <= sched->speculation_budget_s &&
            tokens / (verify_s + draft_s) > best) {
            best = tokens / (verify_s + draft_s);
            for (uint32_t j = 0; j < n_choices; j++)
                choices[j].n_best = choices[j].n;
        }
    }
}

double draft_rate(const struct sched *sched, const struct cost_step *decode, double chance, uint32_t n_most,
                  bool is_model)
{
    uint32_t n_rows = decode->n_rows, n_tokens = n_rows > 0 ? (uint32_t)(decode->n_pairs / n_rows) : 0;
    double row_s = is_model ? draft_model_row_s(sched, n_rows, n_tokens) : 0;
    double verify_s = cost_predict(&sched->speed.cost, decode), tokens = n_rows, next = chance, best;

    best = verify_s > 0 ? tokens / verify_s : 0;
    for (uint32_t n = 1; n <= n_most && next >= CHANCE_MIN && best > 0; n++, next *= chance) {
        struct cost_step step = {.n_rows = n_rows * (1 + n), .n_pairs = decode->n_pairs * (1 + n)};

        tokens += n_rows * next;
        verify_s = fmax(verify_s, cost_predict(&sched->speed.cost, &step));
        best = fmax(best, tokens / (verify_s + n * row_s));
    }
    return best;
}
