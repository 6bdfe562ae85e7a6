/* SPDX-License-Identifier: Apache-2.0 */
/* engine.numa: from the setting and the machine's nodes to a team, and KV pages to their nodes.
 *
 *     split    node 0: rows 0..n/2 of each matrix, KV heads 0..h/2        node 1: the other rows and heads
 *     mirror   node 0: all rows,                   KV heads 0..h/2        node 1: all rows, the other heads
 *     node:N   threads, weights and KV on node N
 *
 * A node gets threads in proportion to its CPUs, and rows and heads in proportion to its threads
 * (team_node_split()). A KV page is touched first by a thread of the node that computes its heads. The heads of a
 * block lie side by side, so the arena has small pages then:
 *
 *     a block of a layer   | K: head 0 | head 1 | head 2 | head 3 | V: head 0 | head 1 | head 2 | head 3 |
 *                            node 0             node 1              node 0             node 1
 *
 * BATON_SYS_NODE names a folder to read the nodes from instead of /sys/devices/system/node. Tests use it. */
#include "worker/loop/numa_priv.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/config/config.h"
#include "base/cpu.h"
#include "base/err.h"
#include "base/log.h"
#include "base/numa.h"
#include "base/str.h"

_Static_assert((int)NUMA_MAX_NODES == (int)TEAM_MAX_NODES, "a team takes every topology");

enum { NUMA_PLAN_CPUS = 1024, NUMA_KV_SAMPLES = 4096 };

static const char *const numa_mode_names[] = {[WORKER_NUMA_OFF] = "off",
                                              [WORKER_NUMA_SPLIT] = "split",
                                              [WORKER_NUMA_MIRROR] = "mirror",
                                              [WORKER_NUMA_NODE] = "node"};

struct numa_plan {
    enum worker_numa_mode mode;
    int wanted_id;       /* of node:N */
    const char *why_off; /* static */
    int cpus[NUMA_PLAN_CPUS];
    unsigned n_cpus; /* grouped by node */
    unsigned n_threads;
    struct team_node nodes[TEAM_MAX_NODES]; /* their cpus point into cpus */
    unsigned n_nodes;
};

static int numa_plan_parse(const char *text, struct numa_plan *plan, struct fault *fault)
{
    uint64_t id;

    for (int mode = WORKER_NUMA_OFF; mode < WORKER_NUMA_NODE; mode++)
        if (strcmp(text, numa_mode_names[mode]) == 0) {
            plan->mode = (enum worker_numa_mode)mode;
            return 0;
        }
    if (strncmp(text, "node:", 5) != 0 || str_to_u64(bytes_str(text + 5), &id) < 0 || id >= NUMA_MAX_IDS)
        return fault_set(fault, E_INVAL, "'%.40s' is none of off, split, mirror and node:N (like node:0)",
                         text);
    plan->mode = WORKER_NUMA_NODE;
    plan->wanted_id = (int)id;
    return 0;
}

static bool numa_plan_has(const int *cpus, int n, int cpu)
{
    for (int i = 0; i < n; i++)
        if (cpus[i] == cpu)
            return true;
    return false;
}

/* Adds the nodes with CPUs of the list (n_listed 0: with any). */
static void numa_plan_add_nodes(struct numa_plan *plan, const struct numa_topology *topology,
                                const int *listed, int n_listed)
{
    for (unsigned i = 0; i < topology->n_nodes; i++) {
        const struct numa_node *from = &topology->nodes[i];
        struct team_node *to = &plan->nodes[plan->n_nodes];

        if (plan->mode == WORKER_NUMA_NODE && from->id != plan->wanted_id)
            continue;
        *to = (struct team_node){.id = from->id, .cpus = plan->cpus + plan->n_cpus};
        for (int c = 0; c < from->n_cpus && plan->n_cpus < NUMA_PLAN_CPUS; c++)
            if (n_listed == 0 || numa_plan_has(listed, n_listed, from->cpus[c])) {
                plan->cpus[plan->n_cpus++] = from->cpus[c];
                to->n_cpus++;
            }
        plan->n_nodes += to->n_cpus > 0;
    }
}

static int numa_plan_no_node(const struct numa_plan *plan, const struct numa_topology *topology, int n_listed,
                             struct fault *fault)
{
    char ids[128] = "";

    for (unsigned i = 0; i < topology->n_nodes; i++)
        snprintf(ids + strlen(ids), sizeof(ids) - strlen(ids), " %d", topology->nodes[i].id);
    return fault_set(fault, E_INVAL, "node %d has no CPU that %s; nodes with such CPUs:%s", plan->wanted_id,
                     n_listed > 0 ? "engine.cpus names" : "this process may run on", ids);
}

/* Threads for each node, in proportion to its CPUs, and one at least. */
static void numa_plan_share_threads(struct numa_plan *plan)
{
    unsigned before = 0;

    for (unsigned i = 0; i < plan->n_nodes; i++) {
        unsigned after = before + plan->nodes[i].n_cpus;

        plan->nodes[i].n_ranks =
            after * plan->n_threads / plan->n_cpus - before * plan->n_threads / plan->n_cpus;
        before = after;
    }
    for (unsigned i = 0; i < plan->n_nodes; i++) {
        unsigned most = 0;

        if (plan->nodes[i].n_ranks > 0)
            continue;
        for (unsigned j = 1; j < plan->n_nodes; j++)
            if (plan->nodes[j].n_ranks > plan->nodes[most].n_ranks)
                most = j;
        plan->nodes[most].n_ranks--;
        plan->nodes[i].n_ranks++;
    }
}

static int numa_plan_fill(const struct worker_conf *conf, const struct numa_topology *topology,
                          struct numa_plan *plan, struct fault *fault)
{
    int listed[NUMA_PLAN_CPUS];
    int n_listed = conf->cpus[0] ? cpu_list_parse(bytes_str(conf->cpus), listed, NUMA_PLAN_CPUS) : 0;
    unsigned n_usable = cpu_count_usable();

    if (n_listed < 0)
        return fault_set(fault, E_FORMAT, "engine.cpus is not a CPU list");
    numa_plan_add_nodes(plan, topology, listed, n_listed);
    if (plan->mode == WORKER_NUMA_NODE && plan->n_nodes == 0)
        return numa_plan_no_node(plan, topology, n_listed, fault);
    if (plan->mode == WORKER_NUMA_NODE && n_listed > 0 && plan->n_cpus != (unsigned)n_listed)
        return fault_set(fault, E_INVAL, "engine.cpus also names CPUs of other nodes than %d",
                         plan->wanted_id);
    if (plan->mode != WORKER_NUMA_NODE && plan->n_nodes < 2) {
        plan->why_off = "this worker has the CPUs of one memory node";
        return 0;
    }
    plan->n_threads = conf->threads > 0         ? (unsigned)conf->threads
                      : n_listed > 0            ? plan->n_cpus
                      : plan->n_cpus < n_usable ? plan->n_cpus
                                                : n_usable; /* a control group may give fewer */
    if (plan->n_threads < plan->n_nodes)
        return fault_set(fault, E_INVAL, "%u threads for %u memory nodes; each node needs one",
                         plan->n_threads, plan->n_nodes);
    if (n_listed > 0 && plan->n_threads > plan->n_cpus)
        return fault_set(fault, E_INVAL, "engine.cpus names fewer CPUs than engine.threads");
    numa_plan_share_threads(plan);
    return 0;
}

/* why_off is set if the value has no effect here. */
static int numa_plan_make(const struct worker_conf *conf, struct numa_plan *plan, struct fault *fault)
{
    const char *folder = getenv("BATON_SYS_NODE");
    struct numa_topology topology = {0};
    int rc;

    memset(plan, 0, sizeof(*plan));
    rc = numa_plan_parse(conf->numa, plan, fault);
    if (rc < 0 || plan->mode == WORKER_NUMA_OFF)
        return rc;
    rc = numa_topology_read(folder != NULL ? folder : NUMA_FOLDER, &topology);
    if (rc == E_NOT_FOUND && plan->mode != WORKER_NUMA_NODE) {
        plan->why_off = "the kernel shows no memory nodes";
        return 0;
    }
    if (rc < 0)
        return fault_set(fault, E_INVAL, "cannot read the memory nodes of this machine: %s",
                         rc == E_LIMIT ? "there are more than 16" : err_text(rc));
    rc = numa_plan_fill(conf, &topology, plan, fault);
    numa_topology_fini(&topology);
    return rc;
}

void worker_numa_check(struct config_check *check, const struct worker_conf *conf)
{
    struct fault fault = {0};
    struct numa_plan *plan = calloc(1, sizeof(*plan));
    int rc = plan == NULL ? fault_set(&fault, E_NOMEM, "out of memory") : numa_plan_make(conf, plan, &fault);

    if (rc < 0 && rc != E_FORMAT) /* the check of engine.cpus reports a bad list */
        config_refuse(check, "engine.numa", "%s", fault.text);
    else if (rc == 0 && plan->why_off != NULL)
        config_warn(check, "engine.numa", "%s, so %s works like off", plan->why_off, conf->numa);
    free(plan);
}

void worker_numa_prefer(const struct worker_conf *conf)
{
    struct numa_plan *plan = calloc(1, sizeof(*plan));
    struct fault fault = {0};

    if (plan != NULL && numa_plan_parse(conf->numa, plan, &fault) == 0 && plan->mode == WORKER_NUMA_NODE)
        (void)numa_prefer(plan->wanted_id);
    free(plan);
}

/* ---- the team ---- */

/* The team that engine.threads and engine.cpus alone describe. */
static int team_without_nodes(const struct worker_conf *conf, struct team **out, struct fault *fault)
{
    int cpus[NUMA_PLAN_CPUS];
    struct team_opts opts = {.n_threads = (unsigned)conf->threads};
    int n = conf->cpus[0] ? cpu_list_parse(bytes_str(conf->cpus), cpus, NUMA_PLAN_CPUS) : 0;

    if (n < 0)
        return fault_set(fault, E_FORMAT, "engine.cpus is not a CPU list");
    if (n > 0) {
        if (opts.n_threads == 0)
            opts.n_threads = (unsigned)n;
        if (opts.n_threads > (unsigned)n)
            return fault_set(fault, E_INVAL, "engine.cpus names fewer CPUs than engine.threads");
        opts.cpus = cpus;
    }
    if (team_new(&opts, out) < 0)
        return fault_set(fault, E_NOMEM, "cannot start compute threads");
    return 0;
}

static int team_on_nodes(const struct worker_conf *conf, const struct numa_plan *plan, struct team **out,
                         struct fault *fault)
{
    int cpus[NUMA_PLAN_CPUS];
    struct team_opts opts = {.n_threads = plan->n_threads,
                             .cpus = conf->cpus[0] ? cpus : NULL,
                             .nodes = plan->nodes,
                             .n_nodes = plan->n_nodes,
                             .is_mirrored = plan->mode == WORKER_NUMA_MIRROR};
    unsigned n = 0;

    for (unsigned node = 0; opts.cpus != NULL && node < plan->n_nodes; node++)
        for (unsigned i = 0; i < plan->nodes[node].n_ranks; i++)
            cpus[n++] = plan->nodes[node].cpus[i];
    if (team_new(&opts, out) < 0)
        return fault_set(fault, E_NOMEM, "cannot start compute threads");
    return 0;
}

int worker_numa_team(const struct worker_conf *conf, struct worker_numa *numa_out, struct team **out,
                     struct fault *fault)
{
    struct numa_plan *plan = calloc(1, sizeof(*plan));
    struct worker_numa numa = {0};
    int rc = plan == NULL ? fault_set(fault, E_NOMEM, "out of memory") : numa_plan_make(conf, plan, fault);

    if (rc == 0 && (plan->mode == WORKER_NUMA_OFF || plan->why_off != NULL)) {
        numa.why_off = plan->why_off;
        rc = team_without_nodes(conf, out, fault);
    } else if (rc == 0) {
        numa.mode = plan->mode;
        numa.n_nodes = plan->n_nodes;
        numa.is_placed = true;
        for (unsigned i = 0; i < plan->n_nodes; i++) {
            numa.ids[i] = plan->nodes[i].id;
            numa.is_placed = numa_try(numa.ids[i]) == 0 && numa.is_placed;
        }
        rc = team_on_nodes(conf, plan, out, fault);
    }
    free(plan);
    if (rc == 0)
        *numa_out = numa;
    return rc;
}

/* ---- KV ---- */

struct kv_placing {
    const struct kv_layout *layout;
    const struct team *team;
    const struct mem_region *arena;
    size_t page_bytes;
    atomic_bool has_failed;
};

/* The node of the page at this offset: of the head whose keys or values begin it. */
static unsigned kv_page_node(const struct kv_placing *placing, size_t offset)
{
    const struct kv_layout *layout = placing->layout;
    size_t piece = kv_layout_layer_block_bytes(layout), within = offset % piece;
    size_t k = kv_layout_k_bytes(layout), v = kv_layout_v_bytes(layout);
    unsigned n_nodes = team_n_nodes(placing->team), node = 0;
    uint64_t head;

    if (layout->n_kv_heads < n_nodes || within >= k + v)
        return (unsigned)(offset / placing->page_bytes % n_nodes);
    head = within < k ? within / (k / layout->n_kv_heads) : (within - k) / (v / layout->n_kv_heads);
    while (node + 1 < n_nodes && team_node_split(placing->team, layout->n_kv_heads, 1, node).to <= head)
        node++;
    return node;
}

static bool kv_touch(char *from, size_t len_bytes, size_t page_bytes)
{
    if (len_bytes == 0 || madvise(from, len_bytes, MADV_POPULATE_WRITE) == 0)
        return true;
    if (errno != EINVAL) /* EINVAL: a kernel before 5.14 */
        return false;
    for (size_t at = 0; at < len_bytes; at += page_bytes)
        ((volatile char *)from)[at] = 0;
    return true;
}

/* Each rank walks its part of the pages and touches runs of its node's. */
static void kv_place_job(void *arg, unsigned rank, unsigned n_ranks)
{
    struct kv_placing *placing = arg;
    const unsigned node = team_node_of(placing->team, rank);
    const struct team_ranks ranks = team_node_ranks(placing->team, node);
    const struct team_range range =
        team_split(placing->arena->len_bytes / placing->page_bytes, 1, rank - ranks.first, ranks.n);
    size_t run_from = range.from, page;
    char *base = placing->arena->base;

    (void)n_ranks;
    for (page = range.from; page <= range.to && !atomic_load(&placing->has_failed); page++) {
        if (page < range.to && kv_page_node(placing, page * placing->page_bytes) == node)
            continue;
        if (!kv_touch(base + run_from * placing->page_bytes, (page - run_from) * placing->page_bytes,
                      placing->page_bytes))
            atomic_store(&placing->has_failed, true);
        run_from = page + 1;
    }
}

int worker_numa_place_kv(struct worker_numa *numa, struct team *team, const struct kv_layout *layout,
                         const struct mem_region *arena)
{
    struct kv_placing placing = {
        .layout = layout, .team = team, .arena = arena, .page_bytes = (size_t)sysconf(_SC_PAGESIZE)};
    size_t n_pages = arena->len_bytes / placing.page_bytes, step = n_pages / NUMA_KV_SAMPLES + 1;

    if (team_n_nodes(team) < 2)
        return 0;
    mem_region_want_small_pages(arena);
    team_run(team, kv_place_job, &placing);
    if (placing.has_failed)
        return E_NOMEM;
    for (size_t page = 0; page < n_pages; page += step) {
        size_t at = page * placing.page_bytes;
        int is_on = numa_node_of((char *)arena->base + at);

        if (is_on < 0) /* the kernel does not say while its NUMA balancing watches the page */
            continue;
        numa->kv_checked++;
        numa->kv_right += is_on == team_node_id(team, kv_page_node(&placing, at));
    }
    return 0;
}

/* ---- reports ---- */

static void numa_put_ids(const struct worker_numa *numa, struct buf *out)
{
    for (unsigned i = 0; i < numa->n_nodes; i++)
        buf_printf(out, "%s%d", i > 0 ? "," : "", numa->ids[i]);
}

void worker_numa_log(const struct worker_numa *numa, const char *asked)
{
    struct buf ids = {0};

    if (numa->why_off != NULL)
        log_warn("numa_without_effect", LOG_STR("asked", asked), LOG_STR("reason", numa->why_off));
    if (numa->mode == WORKER_NUMA_OFF)
        return;
    numa_put_ids(numa, &ids);
    log_info("numa", LOG_STR("mode", numa_mode_names[numa->mode]),
             LOG_STR("nodes", ids.data != NULL ? (const char *)ids.data : ""),
             LOG_U64("kv_pages_checked", numa->kv_checked), LOG_U64("kv_pages_right", numa->kv_right));
    if (!numa->is_placed)
        log_warn("numa_not_placed", LOG_STR("nodes", ids.data != NULL ? (const char *)ids.data : ""),
                 LOG_STR("reason",
                         "the kernel does not place memory on these nodes when asked; pages lie where "
                         "they are touched first"));
    buf_fini(&ids);
}

void worker_numa_put(const struct worker_numa *numa, struct buf *out)
{
    buf_printf(out, "{\"mode\": \"%s\", \"nodes\": [", numa_mode_names[numa->mode]);
    numa_put_ids(numa, out);
    buf_printf(out, "], \"placed\": %s, \"kv_pages_checked\": %u, \"kv_pages_right\": %u}",
               numa->is_placed ? "true" : "false", numa->kv_checked, numa->kv_right);
}

void worker_numa_put_name(const struct worker_numa *numa, const struct team *team, struct buf *out)
{
    if (numa->mode == WORKER_NUMA_OFF)
        return;
    buf_printf(out, "/%s/", numa_mode_names[numa->mode]);
    numa_put_ids(numa, out);
    for (unsigned i = 0; i < team_n_nodes(team); i++) /* they decide which rows a node has */
        buf_printf(out, "/%u", team_node_ranks(team, i).n);
}
