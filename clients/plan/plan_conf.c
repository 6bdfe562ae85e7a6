/* SPDX-License-Identifier: Apache-2.0 */
/* baton-plan plan --conf DIR: configuration files of the best plan with two pools.
 *
 * The files set the results of the plan: objectives, memory of the caches, sequences of a step.  The operator
 * sets addresses, the cluster's key and the model's path (a planned GGUF file is filled in). */
#include "clients/plan/plan_job.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "cache/kv/layout.h"

static const char *conf_kv_type(const char *kv)
{
    static const char *const known[] = {
#define X(type, number, word, run, run_bytes) word,
        KV_TYPE_TABLE(X)
#undef X
    };

    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (strcmp(known[i], kv) == 0)
            return known[i];
    return plan_type_bytes(kv) <= 1.1 ? "q8_0" : "f16";
}

static FILE *conf_open(const char *folder, const char *name)
{
    char path[1024];
    FILE *file = NULL;

    if ((size_t)snprintf(path, sizeof(path), "%s/%s", folder, name) >= sizeof(path))
        errno = ENAMETOOLONG;
    else
        file = fopen(path, "we");
    if (file == NULL)
        complain(PLAN_NAME, "%s/%s: %s", folder, name, strerror(errno));
    return file;
}

static bool conf_router(const struct plan_job *job, const struct plan_candidate *c, const char *folder)
{
    FILE *file = conf_open(folder, "router.conf");

    if (file == NULL)
        return false;
    fprintf(file,
            "# Planned for %g requests/s of %g tokens in, %g out: %g prefill and %g decode workers.\n"
            "[slo]\nttft = %.0fms\nitl = %.0fus\n",
            job->work.rate_per_s, job->work.isl, job->work.osl, c->n_prefill, c->n_decode,
            job->work.ttft_s * 1e3, job->work.itl_s * 1e6);
    return fclose(file) == 0;
}

/* Bytes of KV memory for n sequences and the blocks of the cache. */
static double conf_kv_memory(const struct plan_job *job, const struct plan_pool *pool, double n)
{
    double most =
        (pool->cost.memory_bytes * (1 - job->work.reserve) - pool->cost.weight_bytes) * pool->devices;

    return fmin(most, fmax(1, n) * plan_cost_kv_bytes(&pool->cost, job->work.isl_p90 + job->work.osl_p90));
}

static bool conf_worker(const struct plan_job *job, const struct plan_candidate *c, const char *folder,
                        bool is_prefill)
{
    const struct plan_pool *pool = &job->pools.list[is_prefill ? c->prefill : c->decode];
    double sequences = is_prefill ? ceil(2 + c->p.wait_s / c->p.time_s) : ceil(c->d.slots / 0.9);
    double mib = ceil(conf_kv_memory(job, pool, sequences / (is_prefill ? 1 : 0.9)) / 1048576);
    FILE *file = conf_open(folder, is_prefill ? "prefill.conf" : "decode.conf");

    if (file == NULL)
        return false;
    fprintf(file, "# One of %g %s workers, each %g x %s.\n", is_prefill ? c->n_prefill : c->n_decode,
            is_prefill ? "prefill" : "decode", pool->devices, pool->cost.setup.device->id);
    fprintf(file, "[model]\n%spath = %s\n", job->model_file == NULL ? "#" : "",
            job->model_file == NULL ? "MODEL.gguf" : job->model_file);
    fprintf(file, "[kv]\nmemory = %.0fMiB\ntype = %s\n", fmax(1, mib), conf_kv_type(job->kv));
    fprintf(file, "[sched]\nmax_seqs = %.0f\nitl = %.0fus\n", fmin(4096, fmax(1, sequences)),
            job->work.itl_s * 1e6);
    return fclose(file) == 0;
}

bool plan_conf(const struct plan_job *job, const char *folder)
{
    const struct plan_candidate *c = plan_best(job, false);

    if (c == NULL) {
        complain(PLAN_NAME, "--conf: no plan with two pools meets the objectives");
        return false;
    }
    if (mkdir(folder, 0777) != 0 && errno != EEXIST) {
        complain(PLAN_NAME, "%s: %s", folder, strerror(errno));
        return false;
    }
    return conf_router(job, c, folder) && conf_worker(job, c, folder, true) &&
           conf_worker(job, c, folder, false);
}
