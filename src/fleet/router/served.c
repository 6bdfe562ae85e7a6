/* SPDX-License-Identifier: Apache-2.0 */
/* Counts the service that tenants got at other routers in their turns here.
 *
 *     row = digest of the model's fingerprint 8 | digest of the class 8 | number of the tenant 8 | service 8
 *
 * fleet/picker/served.h and service.h have the rules. */
#include "fleet/router/served_priv.h"

#include "base/clock.h"
#include "base/str.h"
#include "cache/prefix/tenant.h"
#include "fleet/router/admission_priv.h"

static struct picker_served_key served_key(const struct job *job)
{
    return (struct picker_served_key){.model = str_digest(job->model->gen.fingerprint),
                                      .class_of = str_digest(router_job_class(job).name),
                                      .tenant = tenant_number(job->order.work.tenant)};
}

void served_note(struct picker_served *served, struct picker_service *service, const struct job *job,
                 uint64_t n_tokens)
{
    const struct picker_served_key key = served_key(job);

    picker_served_note(served, &key, n_tokens, job->order.work.weight);
    picker_service_add(service, &key, picker_served_milli(n_tokens, job->order.work.weight), clock_now_ns());
}

struct picker_service_view served_view(struct picker_service *service, const struct job *job)
{
    const struct picker_served_key key = served_key(job);
    struct picker_service_view view;

    picker_service_view(service, &key, clock_now_ns(), &view);
    return view;
}

void served_pack(struct picker_served *served, struct buf *out)
{
    for (uint32_t i = 0; i < served->n; i++) {
        const struct picker_served_row *row = &served->rows[i];
        uint8_t image[SERVED_ROW_BYTES];

        put_u64(image, row->key.model);
        put_u64(image + 8, row->key.class_of);
        put_u64(image + 16, row->key.tenant);
        put_u64(image + 24, row->n_milli);
        buf_append(out, image, sizeof(image));
    }
    served->n = 0;
}

/* The turns of a model and a class; NULL: no job has waited there yet. */
static struct fair *served_turns(struct router *router, const struct picker_served_key *key)
{
    for (uint32_t i = 0; i < router->n_models; i++) {
        if (str_digest(router->models[i].gen.fingerprint) != key->model)
            continue;
        for (uint32_t at = 0; at < router->classes.n; at++)
            if (str_digest(router->classes.all[at].name) == key->class_of)
                return router->models[i].turns[at];
    }
    return NULL;
}

void served_receive(struct router *router, struct picker_service *service, struct bytes section)
{
    for (size_t i = 0; i + SERVED_ROW_BYTES <= section.len_bytes && i < PICKER_SERVED_ROWS * SERVED_ROW_BYTES;
         i += SERVED_ROW_BYTES) {
        const uint8_t *image = section.data + i;
        const struct picker_served_key key = {get_u64(image), get_u64(image + 8), get_u64(image + 16)};
        struct fair *turns = served_turns(router, &key);
        uint64_t n_milli = get_u64(image + 24);

        if (turns != NULL)
            picker_served_charge(turns, key.tenant, n_milli);
        picker_service_add(service, &key, n_milli, clock_now_ns());
    }
}
