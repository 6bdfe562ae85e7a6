/* SPDX-License-Identifier: Apache-2.0 */
#include "clients/plan/plan_job.h"
bool plan_html(const struct plan_job *job, const char *path)
{
    complain(PLAN_NAME, "later %s %s", path, job->model.name);
    return false;
}
bool plan_conf(const struct plan_job *job, const char *path)
{
    complain(PLAN_NAME, "later %s %s", path, job->model.name);
    return false;
}
