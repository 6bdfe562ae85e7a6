/* SPDX-License-Identifier: Apache-2.0 */
/* Worker layouts.
 *
 *   TPn        n devices share each layer (powers of two, within the scale-up network)
 *   TPn EPn    the same, with whole experts on each device
 *   EPn        experts spread over n devices, each with sequences of its own (DeepSeek's way)
 *   PPn        machines that keep the weights on the chip: n chips one behind another, as many as the weights
 *              and caches need, and multiples of that */
#include "fleet/plan/pools.h"

#include "base/err.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define POOLS_MAX_TP    16
#define NODE_DEVICES    8
#define POOLS_MAX_CHIPS 100000

struct layout {
    double tp, moe_tp, ep, pp, nodes;
    bool is_wide;
};

static bool device_is_sram(const struct plan_device *device)
{
    return strcmp(device->kind, "sram-decode") == 0 || strcmp(device->kind, "wafer") == 0;
}

static int pools_push(struct plan_pools *pools, const struct plan_pool *pool, struct fault *fault)
{
    if (pools->n == PLAN_MAX_POOLS)
        return fault_set(fault, E_LIMIT, "more than %d worker types", PLAN_MAX_POOLS);
    struct plan_pool *list = realloc(pools->list, (pools->n + 1) * sizeof(*list));
    if (list == NULL)
        return fault_set(fault, E_NOMEM, "out of memory");
    pools->list = list;
    list[pools->n++] = *pool;
    return 0;
}

static int plan_pools_pool_init(const struct plan_pools_ask *ask, const struct plan_device *device,
                                const struct layout *layout, struct fault *fault, struct plan_pool *out)
{
    struct plan_pool pool = {
        .price = device->at[DEV_PRICE],
        .watts = device->at[DEV_WATTS],
        .devices = layout->is_wide ? layout->ep : layout->tp * layout->pp,
        .lanes = layout->is_wide ? layout->ep : 1,
        .kind = {ask->engine, ask->model->name, device->id},
    };
    struct plan_setup setup = {
        .model = ask->model,
        .device = device,
        .constants = ask->constants,
        .weights = ask->weights,
        .kv = ask->kv,
        .tp = layout->tp,
        .moe_tp = layout->moe_tp,
        .ep = layout->ep,
        .pp = layout->pp,
        .nodes = layout->nodes,
        .attention_dp = layout->is_wide,
        .overlap = layout->is_wide ? PLAN_OVERLAP_HALF : PLAN_OVERLAP_NONE,
        .factor = plan_constants_factor(ask->constants, &pool.kind, PLAN_TPOT, NULL),
    };
    int rc = plan_cost_init(&setup, fault, &pool.cost);

    if (rc == 0)
        *out = pool;
    return rc;
}

/* Tries one layout. Drops it if its worker cannot hold one sequence. */
static int pools_try(struct plan_pools *pools, const struct plan_pools_ask *ask, const struct plan_pool *like,
                     const struct layout *layout, struct fault *fault)
{
    struct plan_pool pool;
    const struct plan_work *work = ask->work;
    int rc = plan_pools_pool_init(ask, like->cost.setup.device, layout, fault, &pool);

    if (rc != 0)
        return rc;
    pool.can_prefill = like->can_prefill;
    pool.can_decode = like->can_decode;
    if (plan_cost_room(&pool.cost, work->isl + work->osl, work->reserve) < 1)
        return fault_set(
            fault, E_FULL,
            "%s: %.4g GB of weights a device and one sequence do not fit %.4g GB (reserve %.0f %%), even "
            "with %g devices%s",
            like->cost.setup.device->id, pool.cost.weight_bytes / 1e9, pool.cost.memory_bytes / 1e9,
            work->reserve * 100, pool.devices,
            isnan(like->cost.setup.device->at[DEV_SCALEUP_DEVICES]) ? " (scaleup_devices is not known)" : "");
    return pools_push(pools, &pool, fault);
}

static bool is_fatal(int rc)
{
    return rc == E_NOMEM || rc == E_LIMIT;
}

static int pools_add_shared(struct plan_pools *pools, const struct plan_pools_ask *ask,
                            const struct plan_pool *like, struct fault *fault)
{
    const struct plan_device *device = like->cost.setup.device;
    double most = ask->tp > 0 ? ask->tp : fmin(POOLS_MAX_TP, fmax(1, device->at[DEV_SCALEUP_DEVICES]));
    int rc = 0;

    if (isnan(device->at[DEV_SCALEUP_DEVICES]) && ask->tp == 0)
        most = 1;
    for (double tp = ask->tp > 0 ? ask->tp : 1; tp <= most && !is_fatal(rc); tp *= 2) {
        rc = pools_try(pools, ask, like, &(struct layout){tp, tp, 1, 1, 1, false}, fault);
        if (!is_fatal(rc) && ask->model->experts > 0 && tp > 1)
            rc = pools_try(pools, ask, like, &(struct layout){tp, 1, tp, 1, 1, false}, fault);
    }
    return rc;
}

static int pools_add_wide(struct plan_pools *pools, const struct plan_pools_ask *ask,
                          const struct plan_pool *like, struct fault *fault)
{
    static const double WAYS[] = {8, 16, 32, 64, 72, 128, 144};
    double domain = like->cost.setup.device->at[DEV_SCALEUP_DEVICES], node = fmin(domain, 72);
    int rc = 0;

    if (!(domain >= NODE_DEVICES) || ask->model->experts == 0)
        return 0;
    for (size_t i = 0; i < sizeof(WAYS) / sizeof(WAYS[0]) && !is_fatal(rc); i++) {
        double nodes = ceil(WAYS[i] / node);

        if (fmod(WAYS[i], nodes) == 0 && WAYS[i] <= ask->model->experts)
            rc = pools_try(pools, ask, like, &(struct layout){1, 1, WAYS[i], 1, nodes, true}, fault);
    }
    return is_fatal(rc) ? rc : 0;
}

/* The numbers of chips to try: 1, 1.5 and 2 times the least number that holds the weights and the sequences
 * in flight. */
static int pools_add_chips(struct plan_pools *pools, const struct plan_pools_ask *ask,
                           const struct plan_pool *like, struct fault *fault)
{
    const struct plan_work *work = ask->work;
    struct plan_pool one;
    int rc = plan_pools_pool_init(ask, like->cost.setup.device, &(struct layout){1, 1, 1, 2, 1, false}, fault,
                                  &one);

    if (rc != 0)
        return rc;
    double weights = one.cost.weight_bytes * 2,
           sequence = plan_cost_kv_bytes(&one.cost, work->isl + work->osl);
    double usable = one.cost.memory_bytes * (1 - work->reserve);
    double last = 0;
    for (double more = 1; more <= 4 && !is_fatal(rc); more *= 2) {
        double chips = ceil((weights * 1.02 + sequence * 8 * more) / usable);

        if (chips > POOLS_MAX_CHIPS)
            return fault_set(fault, E_FULL, "%s: %.4g GB of weights need %.0f chips",
                             like->cost.setup.device->id, weights / 1e9, chips);
        if (chips != last)
            rc = pools_try(pools, ask, like, &(struct layout){1, 1, 1, fmax(1, chips), 1, false}, fault);
        last = chips;
    }
    return rc;
}

int plan_pools_add(struct plan_pools *pools, const struct plan_pools_ask *ask,
                   const struct plan_device *device, enum plan_role role, struct fault *fault)
{
    struct plan_pool like = {.can_prefill = role != ROLE_DECODE, .can_decode = role != ROLE_PREFILL};
    size_t before = pools->n;
    int rc;

    like.cost.setup.device = device;
    if (device_is_sram(device))
        rc = pools_add_chips(pools, ask, &like, fault);
    else
        rc = pools_add_shared(pools, ask, &like, fault);
    if (!is_fatal(rc) && ask->is_wide && !device_is_sram(device)) {
        int wide = pools_add_wide(pools, ask, &like, fault);
        rc = wide != 0 ? wide : rc;
    }
    if (is_fatal(rc))
        return rc;
    return pools->n > before ? 0 : rc;
}

void plan_pools_fini(struct plan_pools *pools)
{
    free(pools->list);
    *pools = (struct plan_pools){0};
}

void plan_pool_layout(const struct plan_pool *pool, char *out, size_t cap)
{
    const struct plan_setup *s = &pool->cost.setup;

    if (s->attention_dp != 0)
        snprintf(out, cap, "EP%g", s->ep);
    else if (s->pp > 1)
        snprintf(out, cap, "PP%g", s->pp);
    else if (s->ep > 1)
        snprintf(out, cap, "TP%g+EP", s->tp);
    else
        snprintf(out, cap, "TP%g", s->tp);
}
