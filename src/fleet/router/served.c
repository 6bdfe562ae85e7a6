/* SPDX-License-Identifier: Apache-2.0 */
/* Counts the service that tenants got at other routers in their turns here.
 *
 *     row = digest of the model's fingerprint 8 | digest of the class 8 | number of the tenant 8 | service 8
 *
 * Service is in thousandths of a token of weight 1: base/fair.h divides it by its largest weight.  A tenant gets ahead
 * of the others by a bounded amount only, so one that is served elsewhere for hours is not locked out here. */
#include "fleet/router/served_priv.h"

#include "base/str.h"
#include "cache/prefix/tenant.h"
#include "fleet/picker/turn.h"
#include "fleet/router/admission_priv.h"

#define SERVED_MOST (PICKER_TURN_CREDIT * (uint64_t)FAIR_MAX_WEIGHT)

static struct served_key served_key_of(const struct job *job)
{
    return (struct served_key){.model = str_digest(job->model->gen.fingerprint),
                               .class_of = str_digest(router_job_class(job).name),
                               .tenant = tenant_number(job->order.work.tenant)};
}

void served_note(struct served *served, const struct job *job, uint64_t n_tokens)
{
    struct served_key key = served_key_of(job);
    uint64_t weight = job->order.work.weight > 0 ? job->order.work.weight : 1;
    uint64_t n_milli = n_tokens < UINT32_MAX ? n_tokens * FAIR_MAX_WEIGHT / weight : SERVED_MOST;
    uint32_t i = 0;

    while (i < served->n && memcmp(&served->rows[i].key, &key, sizeof(key)) != 0)
        i++;
    if (i == SERVED_MAX_ROWS)
        return;
    if (i == served->n)
        served->rows[served->n++] = (struct served_row){.key = key};
    served->rows[i].n_milli += n_milli;
}

void served_pack(struct served *served, struct buf *out)
{
    for (uint32_t i = 0; i < served->n; i++) {
        const struct served_row *row = &served->rows[i];
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
static struct fair *served_turns(struct router *router, const struct served_key *key)
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

static void served_charge(struct router *router, const struct served_key *key, uint64_t n_milli)
{
    struct fair *turns = served_turns(router, key);
    struct fair_flow *flow = turns != NULL ? fair_hold(turns, key->tenant) : NULL;
    uint64_t ahead, most;

    if (flow == NULL)
        return;
    ahead = fair_debt(turns, flow);
    most = ahead < PICKER_TURN_CREDIT ? (PICKER_TURN_CREDIT - ahead) * FAIR_MAX_WEIGHT : 0;
    if (n_milli > most)
        n_milli = most;
    if (n_milli > 0)
        fair_charge(turns, flow, n_milli, FAIR_MAX_WEIGHT);
    fair_drop(turns, flow);
}

void served_receive(struct router *router, struct bytes section)
{
    for (size_t i = 0; i + SERVED_ROW_BYTES <= section.len_bytes && i < SERVED_MAX_ROWS * SERVED_ROW_BYTES;
         i += SERVED_ROW_BYTES) {
        const uint8_t *image = section.data + i;
        const struct served_key key = {get_u64(image), get_u64(image + 8), get_u64(image + 16)};

        served_charge(router, &key, get_u64(image + 24));
    }
}
