/* SPDX-License-Identifier: Apache-2.0 */
/* A change of roles, judged by what follows.
 *
 *      change           a period later
 *        |  trial          |  more refused than before, under the same load?  Then it is taken back, and barred for
 *     ---+-----------------+----------------------------------->              BARRED_PERIODS under that load
 *
 * The rooms of roles.c know the time of prompts, decode steps and seats.  They do not know whether the network of few decode
 * workers can take the KV of many prefill workers, or what else limits a pool.  Refusals do. */
#include <math.h>

#include "fleet/picker/roles_priv.h"

#define WORSE 0.02 /* larger mean share of refused requests */
#define ALIKE 1.3  /* a load that differs by a larger factor is another one ... */
#define ANSWERS_ALIKE                                                                                        \
    2.0 /* ... and this is for the length of answers, which long answers of an earlier load still change */
#define BARRED_PERIODS 20
#define REFUSED_FADE   0.99 /* each second */
#define REFUSED_LEAST  20.0 /* seconds in the mean */

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
    roles->refused = REFUSED_FADE * roles->refused + load->refused_share;
    roles->n_refused_seen = REFUSED_FADE * roles->n_refused_seen + 1;
}

static double trial_refused(const struct picker_roles *roles)
{
    return roles->n_refused_seen > 0 ? roles->refused / roles->n_refused_seen : 0;
}

bool roles_trial_failed(const struct picker_roles *roles, const struct picker_load *load, uint64_t now_ns,
                        uint64_t period_ns)
{
    const struct picker_roles_trial *trial = &roles->trial;

    return trial->began_ns != 0 && now_ns >= trial->began_ns + period_ns &&
           roles->n_refused_seen >= REFUSED_LEAST && trial_refused(roles) > trial->before_refused + WORSE &&
           trial_is_same_load(load, &trial->before);
}

bool roles_trial_is_barred(const struct picker_roles *roles, const struct picker_roles_plan *plan,
                           uint64_t now_ns)
{
    const struct picker_roles_lesson *lesson = &roles->lesson;
    uint32_t n = plan->to == PICKER_PREFILL ? plan->n_prefill : plan->n_decode;

    return now_ns < lesson->until_ns && plan->to == lesson->to && n + 1 >= lesson->too_many &&
           trial_is_same_load(&plan->load, &lesson->load);
}

void roles_trial_next(struct picker_roles *roles, const struct picker_roles_plan *plan,
                      enum picker_roles_reason why, uint64_t period_ns)
{
    struct picker_roles_trial *trial = &roles->trial;

    if (why == PICKER_ROLES_WORSE) {
        roles->lesson = (struct picker_roles_lesson){
            .until_ns = roles->changed_ns + BARRED_PERIODS * period_ns,
            .to = trial->to,
            .too_many = trial->to == PICKER_PREFILL ? plan->n_prefill : plan->n_decode,
            .load = plan->load};
        trial->began_ns = 0;
    } else {
        *trial = (struct picker_roles_trial){.began_ns = roles->changed_ns,
                                             .to = plan->to,
                                             .before = plan->load,
                                             .before_refused =
                                                 fmax(trial_refused(roles), plan->load.refused_share)};
    }
    roles->refused = roles->n_refused_seen = 0;
}
