/* SPDX-License-Identifier: Apache-2.0 */
/* A change of roles, judged by what follows.
 *
 *      change           a period later
 *        |  trial          |  more missed than before, under the same load?   Then it is taken back, and barred for
 *     ---+-----------------+----------------------------------->              BARRED_PERIODS under that load
 *
 * The rooms of roles.c know the time of prompts, decode steps and seats.  They do not know whether the network of few decode
 * workers can take the KV of many prefill workers, or what else limits a pool.  Refusals do. */
#include <math.h>

#include "fleet/picker/roles_priv.h"

#define WORSE  0.02 /* larger mean share of requests that were refused or missed an objective */
#define BETTER 0.75 /* times the mean share before, for a trial that must gain */
#define ALIKE  1.3  /* a load that differs by a larger factor is another one ... */
#define ANSWERS_ALIKE                                                                                        \
    2.0 /* ... and this is for the length of answers, which long answers of an earlier load still change */
#define BARRED_PERIODS 20 /* twice as long after each further failure */
#define MOST_AGAIN     2
#define MISSED_FADE    0.99 /* each second */
#define MISSED_LEAST   20.0 /* seconds in the mean */

static bool trial_is_near(double a, double b, double factor)
{
    return a <= factor * b && b <= factor * a;
}

/* True if both phases have about the same work as before. */
static bool trial_is_same_load(const struct picker_load *a, const struct picker_load *b)
{
    return trial_is_near(a->rate_per_s * a->prompt_s + a->short_share,
                         b->rate_per_s * b->prompt_s + b->short_share, ALIKE) &&
           trial_is_near(a->all_per_s, b->all_per_s, ALIKE) &&
           trial_is_near(a->answer_tokens, b->answer_tokens, ANSWERS_ALIKE);
}

void roles_trial_watch(struct picker_roles *roles, const struct picker_load *load, uint64_t now_ns)
{
    if (load->window_s > (double)(now_ns - roles->changed_ns) / 1e9)
        return;
    roles->missed = MISSED_FADE * roles->missed + load->missed_share;
    roles->n_missed_seen = MISSED_FADE * roles->n_missed_seen + 1;
}

static double trial_missed(const struct picker_roles *roles)
{
    return roles->n_missed_seen > 0 ? roles->missed / roles->n_missed_seen : 0;
}

bool roles_trial_is_missing(const struct picker_roles *roles)
{
    return roles->n_missed_seen >= MISSED_LEAST && trial_missed(roles) > WORSE;
}

bool roles_trial_failed(const struct picker_roles *roles, const struct picker_load *load, uint64_t now_ns,
                        uint64_t period_ns)
{
    const struct picker_roles_trial *trial = &roles->trial;
    double most = trial->must_gain ? BETTER * trial->before_missed : trial->before_missed + WORSE;

    return trial->began_ns != 0 && now_ns >= trial->began_ns + period_ns &&
           roles->n_missed_seen >= MISSED_LEAST && trial_missed(roles) > most &&
           trial_is_same_load(load, &trial->before);
}

static unsigned trial_side(enum picker_role to)
{
    return to == PICKER_PREFILL ? 0 : 1;
}

bool roles_trial_is_barred(const struct picker_roles *roles, const struct picker_roles_plan *plan,
                           uint64_t now_ns)
{
    const struct picker_roles_lesson *lesson = &roles->lessons[trial_side(plan->to)];
    uint32_t n = plan->to == PICKER_PREFILL ? plan->n_prefill : plan->n_decode;

    return now_ns < lesson->until_ns && n + 1 >= lesson->too_many &&
           trial_missed(roles) <= lesson->missed + WORSE && trial_is_same_load(&plan->load, &lesson->load);
}

/* The present trial has failed. */
static void trial_learn(struct picker_roles *roles, const struct picker_roles_plan *plan, uint64_t period_ns)
{
    struct picker_roles_lesson *lesson = &roles->lessons[trial_side(roles->trial.to)];
    bool is_again = lesson->until_ns > 0 && trial_is_same_load(&plan->load, &lesson->load);
    uint32_t n_again = !is_again ? 0 : lesson->n_again < MOST_AGAIN ? lesson->n_again + 1 : MOST_AGAIN;

    *lesson = (struct picker_roles_lesson){
        .until_ns = roles->changed_ns + (period_ns << n_again) * BARRED_PERIODS,
        .n_again = n_again,
        .missed = trial_missed(roles),
        .too_many = roles->trial.to == PICKER_PREFILL ? plan->n_prefill : plan->n_decode,
        .load = plan->load};
    roles->trial.began_ns = 0;
}

void roles_trial_next(struct picker_roles *roles, const struct picker_roles_plan *plan,
                      enum picker_roles_reason why, uint64_t period_ns)
{
    double missed = trial_missed(roles), latest = plan->load.missed_share;
    bool must_gain = why == PICKER_ROLES_MISSED;

    if (why == PICKER_ROLES_WORSE)
        trial_learn(roles, plan, period_ns);
    else
        roles->trial = (struct picker_roles_trial){.began_ns = roles->changed_ns,
                                                   .to = plan->to,
                                                   .before = plan->load,
                                                   .before_missed = must_gain ? missed : fmax(missed, latest),
                                                   .must_gain = must_gain};
    roles->missed = roles->n_missed_seen = 0;
}
