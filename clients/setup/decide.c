/* SPDX-License-Identifier: Apache-2.0 */
/* Which daemons a host gets, and the settings of each with their reasons.
 *
 *   workers     one for each NUMA node with usable CPUs, so that weights and KV stay in the node's memory; on one
 *               node two (prefill and decode) from four CPUs on, else one for both phases
 *   threads     the node's CPUs; from eight on one less, for the router, the links and the system
 *   KV memory   three quarters of the memory that weights and a reserve leave, in equal parts
 *   ports       the defaults of the daemons, or the next free ones
 *
 * decide_files.c turns these numbers into files. */
#include "clients/setup/decide_priv.h"

#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/str.h"

#define SETUP_MIB ((uint64_t)1 << 20)
#define SETUP_GIB ((uint64_t)1 << 30)

static unsigned decide_threads(unsigned n_cpus)
{
    return n_cpus >= 8 ? n_cpus - 1 : n_cpus > 0 ? n_cpus : 1;
}

/* Workers of a host whose NUMA nodes count. */
static void decide_on_nodes(const struct setup_host *host, struct decision *d)
{
    d->n_workers = host->n_nodes;
    d->is_pinned = true;
    for (unsigned i = 0; i < host->n_nodes; i++) {
        d->seats[i].n_threads = decide_threads(host->nodes[i].n_cpus);
        d->seats[i].node = &host->nodes[i];
    }
}

static void decide_without_nodes(const struct setup_host *host, const struct setup_wish *wish,
                                 struct decision *d)
{
    unsigned n = wish->n_threads > 0 ? wish->n_threads : decide_threads(host->n_cpus);
    bool is_pair = wish->role == SETUP_ALL && n >= 4;

    d->n_workers = is_pair || wish->n_prefill > 0 ? 2 : 1;
    for (unsigned i = 0; i < d->n_workers; i++) {
        d->seats[i].n_threads = n / d->n_workers + (i < n % d->n_workers ? 1 : 0);
        if (d->seats[i].n_threads == 0)
            d->seats[i].n_threads = 1;
    }
}

static int decide_workers(const struct setup_host *host, const struct setup_wish *wish, struct fault *fault,
                          struct decision *d)
{
    if (wish->role == SETUP_ROUTER)
        return 0;
    if (host->n_nodes > 1 && !host->has_quota && wish->n_threads == 0)
        decide_on_nodes(host, d);
    else
        decide_without_nodes(host, wish, d);
    if (wish->role == SETUP_PREFILL)
        d->n_prefill = d->n_workers;
    else if (wish->role == SETUP_ALL)
        d->n_prefill = wish->n_prefill > 0 ? wish->n_prefill : d->n_workers / 2;
    if (wish->role == SETUP_ALL && d->n_workers > 1 && d->n_prefill >= d->n_workers)
        return fault_set(fault, E_INVAL,
                         "--prefill-workers %u: this host has %u workers, and one must decode", d->n_prefill,
                         d->n_workers);
    return 0;
}

static uint64_t decide_lesser(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Rounds down so that the setting is short: to 64 MiB, from 16 GiB on to 1 GiB. */
static uint64_t decide_round(uint64_t bytes)
{
    uint64_t step = bytes >= 16 * SETUP_GIB ? SETUP_GIB : 64 * SETUP_MIB;

    return bytes / step * step;
}

static int decide_memory(const struct setup_host *host, const struct setup_wish *wish, struct fault *fault,
                         struct decision *d)
{
    uint64_t weights = wish->model.file_bytes * d->n_workers, each;

    if (d->n_workers == 0)
        return 0;
    d->kv_bytes = wish->kv_memory_bytes;
    if (d->kv_bytes > 0)
        return 0;
    d->reserve_bytes = host->available_bytes / 10;
    if (d->reserve_bytes < 256 * SETUP_MIB)
        d->reserve_bytes = 256 * SETUP_MIB;
    if (host->available_bytes < weights + d->reserve_bytes)
        each = 0;
    else
        each = (host->available_bytes - weights - d->reserve_bytes) / 4 * 3 / d->n_workers;
    for (unsigned i = 0; d->is_pinned && i < d->n_workers; i++) {
        uint64_t node = d->seats[i].node->memory_bytes;
        uint64_t used = wish->model.file_bytes + d->reserve_bytes / d->n_workers;

        if (node > 0)
            each = decide_lesser(each, node > used ? (node - used) / 4 * 3 : 0);
    }
    d->kv_bytes = decide_round(each);
    if (d->kv_bytes >= 64 * SETUP_MIB)
        return 0;
    char has[24], needs[24];
    str_from_size(host->available_bytes / SETUP_MIB * SETUP_MIB, has);
    str_from_size(weights / SETUP_MIB * SETUP_MIB, needs);
    return fault_set(fault, E_FULL,
                     "%s of memory are available, and the weights of %u workers need %s: take a smaller or "
                     "quantised model, another host, or set --kv-memory by yourself",
                     has, d->n_workers, needs);
}

unsigned decide_port(const struct setup_wish *wish, struct decision *d, unsigned wanted)
{
    for (unsigned port = wanted; port < 65536; port++) {
        bool is_taken = false;

        for (unsigned i = 0; i < d->n_ports; i++)
            is_taken = is_taken || d->ports[i] == port;
        if (is_taken || (wish->is_free != NULL && !wish->is_free(wish->is_free_arg, port)))
            continue;
        if (d->n_ports < DECIDE_MAX_PORTS)
            d->ports[d->n_ports++] = port;
        return port;
    }
    return wanted;
}

static void decide_split_text(const struct setup_wish *wish, const struct decision *d, char out[static 400])
{
    unsigned n_decode = d->n_workers - d->n_prefill;

    if (d->n_workers == 0)
        out[0] = '\0';
    else if (wish->role != SETUP_ALL)
        snprintf(out, 400, "%u %s %s: %s", d->n_workers, wish->role == SETUP_PREFILL ? "prefill" : "decode",
                 d->n_workers == 1 ? "worker" : "workers",
                 d->is_pinned ? "one for each NUMA node, so that weights and KV stay in its memory."
                              : "one NUMA node, so one worker has all its CPUs.");
    else if (d->n_workers == 1)
        snprintf(
            out, 400,
            "one worker for both phases: with fewer than four threads it reads prompts faster than a pair "
            "that shares the cores.");
    else
        snprintf(
            out, 400,
            "%u prefill and %u decode: %s. Prompts are bound by arithmetic and answers by memory, so the "
            "best split depends on the load: measure, then baton-plan ratio%s.",
            d->n_prefill, n_decode,
            d->is_pinned ? "one worker for each NUMA node, so that weights and KV stay in its memory"
                         : "a worker for each phase, with half of the threads each",
            d->n_workers > 2 ? "; placement.roles = auto moves workers meanwhile" : ", or --prefill-workers");
}

static int decide_check(const struct setup_wish *wish, struct fault *fault)
{
    bool is_remote = wish->role == SETUP_PREFILL || wish->role == SETUP_DECODE;

    if (is_remote && wish->n_routers == 0)
        return fault_set(fault, E_INVAL, "a worker registers with a router: give --router HOST:PORT");
    if (!is_remote && wish->n_routers > 0)
        return fault_set(fault, E_INVAL, "--router is for --role prefill and --role decode");
    if (wish->role != SETUP_ROUTER && wish->model.path[0] == '\0')
        return fault_set(
            fault, E_INVAL,
            "a worker needs a model file: give --model FILE.gguf (baton-model pull fetches one)");
    if (wish->n_prefill > 0 && wish->role != SETUP_ALL)
        return fault_set(fault, E_INVAL, "--prefill-workers is for --role all");
    return 0;
}

int setup_decide(const struct setup_host *host, const struct setup_wish *wish, struct fault *fault,
                 struct setup_plan *out)
{
    struct decision d = {0};
    int rc = decide_check(wish, fault);

    if (rc == 0)
        rc = decide_workers(host, wish, fault, &d);
    if (rc == 0)
        rc = decide_memory(host, wish, fault, &d);
    if (rc != 0)
        return rc;
    memset(out, 0, sizeof(*out));
    decide_split_text(wish, &d, out->split);
    decide_files(host, wish, &d, out);
    return 0;
}
