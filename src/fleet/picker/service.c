/* SPDX-License-Identifier: Apache-2.0 */
/* See fleet/picker/service.h. */
#include "fleet/picker/service.h"

#include <math.h>

#define FADE_S       20.0 /* after that a third is left */
#define FADE_EACH_NS UINT64_C(10000000)
#define FADED_TOKENS 1.0
#define MOST_MILLI   (UINT64_C(1) << 32) /* of one report: four million tokens, in a tenth of a second */

static bool service_is_key(const struct picker_served_key *a, const struct picker_served_key *b)
{
    return a->tenant == b->tenant && a->model == b->model && a->class_of == b->class_of;
}

static void service_fade(struct picker_service *service, uint64_t now_ns)
{
    double part;
    uint32_t n = 0;

    if (now_ns < service->faded_ns + FADE_EACH_NS)
        return;
    part = exp(-(double)(now_ns - service->faded_ns) / 1e9 / FADE_S);
    service->faded_ns = now_ns;
    for (uint32_t i = 0; i < service->n; i++) {
        service->rows[n] = service->rows[i];
        service->rows[n].n_tokens *= part;
        n += service->rows[n].n_tokens >= FADED_TOKENS;
    }
    service->n = n;
}

/* The tenant's row, or an empty one. */
static struct picker_service_row *service_row(struct picker_service *service,
                                              const struct picker_served_key *key)
{
    uint32_t least = 0;

    for (uint32_t i = 0; i < service->n; i++) {
        if (service_is_key(&service->rows[i].key, key))
            return &service->rows[i];
        if (service->rows[i].n_tokens < service->rows[least].n_tokens)
            least = i;
    }
    if (service->n < PICKER_SERVICE_ROWS)
        least = service->n++;
    service->rows[least] = (struct picker_service_row){.key = *key};
    return &service->rows[least];
}

void picker_service_add(struct picker_service *service, const struct picker_served_key *key, uint64_t n_milli,
                        uint64_t now_ns)
{
    if (n_milli == 0)
        return;
    service_fade(service, now_ns);
    service_row(service, key)->n_tokens +=
        (double)(n_milli < MOST_MILLI ? n_milli : MOST_MILLI) / FAIR_MAX_WEIGHT;
}

void picker_service_view(struct picker_service *service, const struct picker_served_key *key, uint64_t now_ns,
                         struct picker_service_view *out)
{
    double own = 0, most = 0, all = 0;

    service_fade(service, now_ns);
    for (uint32_t i = 0; i < service->n; i++) {
        const struct picker_service_row *row = &service->rows[i];

        if (row->key.model != key->model || row->key.class_of != key->class_of)
            continue;
        all += row->n_tokens;
        most = fmax(most, row->n_tokens);
        own = row->key.tenant == key->tenant ? row->n_tokens : own;
    }
    *out = (struct picker_service_view){
        .own = (uint64_t)own, .most = (uint64_t)most, .others = (uint64_t)(all - own)};
}
