/* SPDX-License-Identifier: Apache-2.0 */
/* From options to an answer: tables, devices and work are read, pools are built and searched. */
#include "clients/plan/plan_job.h"

#include "base/err.h"
#include "base/str.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* "h100=2.95", or "2.95" for all. */
static bool job_set_number(struct plan_job *job, const char *text, enum plan_device_field field)
{
    const char *equals = strchr(text, '=');
    double value;
    bool is_used = equals == NULL;

    if (!option_f64(PLAN_NAME, plan_device_field_name(field), equals == NULL ? text : equals + 1, &value))
        return false;
    for (size_t i = 0; i < job->n_devices; i++) {
        struct plan_device *device = &job->devices[i];
        char name[48];

        snprintf(name, sizeof(name), "%.*s", equals == NULL ? 0 : (int)(equals - text), text);
        bool is_named = plan_name_begins(device->id, name) || plan_name_in_list(device->aliases, name);
        if (equals == NULL || is_named) {
            device->at[field] = value;
            is_used = true;
        }
    }
    if (!is_used)
        complain(PLAN_NAME, "%s: no such device in this plan", text);
    return is_used;
}

/* "bench.json,memory=64GB": adds the measured host, and returns its name with the changes. */
static bool job_add_host(struct plan_job *job, size_t i, const char *text, char *out, size_t cap)
{
    char path[512], id[48];
    struct buf bench = {0};
    struct fault fault = {0};
    size_t len = strcspn(text, ",");

    str_copy(out, cap, text);
    if (len < 6 || len >= sizeof(path) || !bytes_ends_with(bytes_of(text, len), ".json"))
        return true;
    snprintf(path, sizeof(path), "%.*s", (int)len, text);
    const char *base = strrchr(path, '/') == NULL ? path : strrchr(path, '/') + 1;
    snprintf(id, sizeof(id), "%.*s", (int)(strlen(base) - 5), base);
    snprintf(out, cap, "%s%s", id, text + len);
    if (!plan_cli_read(path, &bench))
        return false;
    int rc = plan_host_add(buf_view(&bench), id, &job->books.devices, &job->hosts[i], &fault);
    buf_fini(&bench);
    if (rc != 0)
        complain(PLAN_NAME, "%s: %s", path, fault.text);
    return rc == 0;
}

static bool job_find_devices(struct plan_job *job, const struct plan_opts *opts)
{
    for (size_t i = 0; i < job->n_devices; i++) {
        struct fault fault = {0};
        char name[600];

        if (!job_add_host(job, i, opts->devices[i], name, sizeof(name)))
            return false;
        if (plan_device_inline(&job->books.devices, name, &fault, &job->devices[i]) != 0) {
            complain(PLAN_NAME, "--device %s: %s", opts->devices[i], fault.text);
            return false;
        }
    }
    for (size_t i = 0; i < opts->prices.n; i++)
        if (!job_set_number(job, opts->prices.texts[i], DEV_PRICE))
            return false;
    for (size_t i = 0; i < opts->watts.n; i++)
        if (!job_set_number(job, opts->watts.texts[i], DEV_WATTS))
            return false;
    return true;
}

static bool job_read(struct plan_job *job, const struct plan_opts *opts)
{
    struct fault fault = {0};

    if (bytes_ends_with(bytes_str(opts->model), ".gguf"))
        job->model_file = opts->model;
    if (!plan_cli_model(opts->model, &job->books, &job->model) || !job_find_devices(job, opts))
        return false;
    if (opts->trace != NULL && !plan_trace_read(opts->trace, &job->trace, &job->work))
        return false;
    if (opts->link != NULL && plan_links_find(&job->books.links, opts->link, &fault, &job->work.link) != 0) {
        complain(PLAN_NAME, "--link %s: %s", opts->link, fault.text);
        return false;
    }
    job->work.rate_per_s *= opts->growth;
    if (plan_work_check(&job->work, &fault) != 0) {
        complain_usage(PLAN_NAME, "plan: %s", fault.text);
        return false;
    }
    return true;
}

static bool job_search(struct plan_job *job)
{
    struct plan_pools_ask ask = {
        .model = &job->model,
        .constants = &job->constants,
        .engine = job->engine,
        .weights = job->weights,
        .kv = job->kv,
        .work = &job->work,
        .tp = job->tp,
        .is_wide = job->is_wide,
    };

    for (size_t i = 0; i < job->n_devices; i++) {
        ask.constants = job->hosts[i].name[0] != '\0' ? &job->hosts[i] : &job->constants;
        int rc = plan_pools_add(&job->pools, &ask, &job->devices[i], job->roles[i], &job->refusals[i]);
        if (rc == 0)
            job->refusals[i].code = 0;
        else
            complain(PLAN_NAME, "refused: %s", job->refusals[i].text);
    }
    if (job->pools.n == 0) {
        complain(PLAN_NAME, "no device of this plan can serve %s", job->model.name);
        return false;
    }
    for (size_t i = 0; i < job->n_devices; i++) {
        const struct plan_device *d = &job->devices[i];
        if (job->refusals[i].code == 0 && isnan(job->work.link.rate) && isnan(d->at[DEV_NIC_RATE]))
            complain(PLAN_NAME,
                     "%s: nic_rate is not known, so its KV cannot be sent: give --link to split phases",
                     d->id);
        if (job->refusals[i].code == 0 && strcmp(d->kind, "cpu") == 0 && job->hosts[i].name[0] == '\0' &&
            strncmp(job->constants.name, "public", 6) == 0)
            complain(PLAN_NAME, "%s: the constants come from GPUs; calibrate on such a host first", d->id);
    }
    int rc = plan_search(job->pools.list, job->pools.n, &job->work, job->n_shown, &job->answer);
    if (rc == E_NOT_FOUND)
        complain(PLAN_NAME,
                 "no number of workers meets TTFT %g s and ITL %g ms: relax one, or take faster devices",
                 job->work.ttft_s, job->work.itl_s * 1e3);
    else if (rc != 0)
        complain(PLAN_NAME, "%s", err_text(rc));
    return rc == 0;
}

bool plan_job_open(struct plan_job *job, const struct plan_opts *opts)
{
    if (!plan_cli_books(opts->more_devices, opts->more_models, &job->books) ||
        !plan_cli_constants(opts->constants, &job->constants))
        return false;
    job->has_constants = true;
    return job_read(job, opts) && job_search(job);
}

void plan_job_close(struct plan_job *job)
{
    if (job->has_constants)
        plan_constants_fini(&job->constants);
    plan_answer_fini(&job->answer);
    plan_pools_fini(&job->pools);
    plan_books_fini(&job->books);
    trace_fini(&job->trace);
}
