/* SPDX-License-Identifier: Apache-2.0 */
/* Checks settings of workers that the tables of keys cannot express: keys that depend on each other, files,
 * and limits of this machine. */
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "base/cpu.h"
#include "base/err.h"
#include "base/str.h"
#include "serve/setup/setup.h"
#include "worker/loop/access_priv.h"
#include "worker/loop/numa_priv.h"
#include "worker/loop/worker_priv.h"

#define MAX_CPUS 1024

static struct setup_common common_of(const struct worker_conf *conf)
{
    return (struct setup_common){.node = conf->node,
                                 .http = &conf->http,
                                 .link_listen = conf->link_listen,
                                 .link = conf->link,
                                 .public_prefix = conf->public_prefix};
}

/* ---- [engine] ---- */

static void worker_check_cpus(struct config_check *check, const struct worker_conf *conf)
{
    int cpus[MAX_CPUS];
    int n = conf->cpus[0] ? cpu_list_parse(bytes_str(conf->cpus), cpus, MAX_CPUS) : 0;
    unsigned n_usable = cpu_count_usable();

    if (n < 0)
        config_refuse(check, "engine.cpus", "'%.60s' is not a list of at most %d CPUs (like 0-3,8)",
                      conf->cpus, MAX_CPUS);
    for (int i = 0; i < n; i++)
        if (!cpu_is_usable(cpus[i])) {
            config_refuse(check, "engine.cpus", "CPU %d is not one that this process may run on", cpus[i]);
            break;
        }
    if (n > 0 && conf->threads > (uint64_t)n)
        config_refuse(check, "engine.threads",
                      "%llu threads, and engine.cpus names %d CPUs; each thread wants one",
                      (unsigned long long)conf->threads, n);
    else if (conf->threads > n_usable)
        config_warn(check, "engine.threads", "%llu threads on %u usable CPUs take turns; 0 is one for each",
                    (unsigned long long)conf->threads, n_usable);
}

static void check_engine(struct config_check *check, const struct worker_conf *conf)
{
    struct engine_load_opts opts = worker_load_opts(conf, NULL);

    if (conf->engine_kind == WORKER_ENGINE_CPU && !engine_has_kernels(opts.kernels))
        config_refuse(check, "engine.kernels", "this CPU does not run %s; auto takes the best that it runs",
                      opts.kernels);
    worker_check_cpus(check, conf);
    worker_numa_check(check, conf);
}

/* ---- [kv] ---- */

static int unix_path_check(const char *path, struct fault *fault)
{
    const struct sockaddr_un *un;
    struct stat info;

    if (strlen(path) >= sizeof(un->sun_path))
        return fault_set(fault, E_LIMIT, "'%.60s...': a socket's path has at most %zu bytes", path,
                         sizeof(un->sun_path) - 1);
    if (lstat(path, &info) == 0 && !S_ISSOCK(info.st_mode))
        return fault_set(fault, E_EXISTS,
                         "%s is there already and no socket; remove it or choose another path", path);
    return setup_folder(path, true, fault);
}

static void check_transport(struct config_check *check, const struct worker_conf *conf)
{
    bool is_rdma = conf->transport == WORKER_TRANSPORT_RDMA;
    struct fault fault = {0};

    if (conf->transport == WORKER_TRANSPORT_SHM && conf->unix_path[0] == '\0')
        config_refuse(check, "kv.transport", "shm wants a socket; set kv.unix_path");
    if ((is_rdma || conf->transport == WORKER_TRANSPORT_TCP) && conf->tcp_listen[0] == '\0')
        config_refuse(check, "kv.transport", "%s wants an address; set kv.tcp_listen",
                      is_rdma ? "rdma" : "tcp");
    if (is_rdma && conf->rdma_devices[0] == '\0')
        config_refuse(check, "kv.transport", "rdma wants rails; set kv.rdma_devices");
    else if ((is_rdma || conf->transport == WORKER_TRANSPORT_AUTO) &&
             tr_rails_check(conf->rdma_devices, is_rdma, &fault) < 0)
        config_refuse(check, fault.code == E_FORMAT ? "kv.rdma_devices" : "kv.transport", "%s", fault.text);
    if ((conf->transport == WORKER_TRANSPORT_SHM || conf->transport == WORKER_TRANSPORT_AUTO) &&
        conf->unix_path[0] != '\0' && unix_path_check(conf->unix_path, &fault) < 0)
        config_refuse(check, "kv.unix_path", "%s", fault.text);
}

/* Checks the disk tier.  Its errors do not prevent a start, because a worker runs without the tier too. */
static void check_disk(struct config_check *check, const struct worker_conf *conf)
{
    struct fault fault = {0};
    struct stat info;

    if (conf->disk_path[0] == '\0')
        return;
    if (stat(conf->disk_path, &info) != 0) {
        if (setup_folder(conf->disk_path, true, &fault) < 0)
            config_warn(check, "kv.disk_path", "%s", fault.text);
    } else if (setup_folder(conf->disk_path, false, &fault) < 0) {
        config_warn(check, "kv.disk_path", "%s", fault.text);
    } else if ((info.st_mode & 077) != 0) {
        config_warn(check, "kv.disk_path", "%s is open to others; chmod 0700 it", conf->disk_path);
    }
}

static void check_kv(struct config_check *check, const struct worker_conf *conf)
{
    int step = conf->engine_kind == WORKER_ENGINE_SIM ? WORKER_SIM_BLOCK_STEP : ENGINE_BLOCK_STEP;

    if (conf->kv_block_tokens % (unsigned)step != 0)
        config_refuse(check, "kv.block_tokens", "%llu is not a multiple of %d (%d to %d)",
                      (unsigned long long)conf->kv_block_tokens, step, step, ENGINE_BLOCK_MAX);
    setup_check_memory(check, "kv.memory", conf->kv_memory);
    check_transport(check, conf);
    check_disk(check, conf);
    worker_check_remote(check, conf);
}

/* ---- addresses ---- */

static void check_links(struct config_check *check, const struct worker_conf *conf)
{
    const struct setup_discovery discovery = {.registers = conf->link_register,
                                              .advertise = conf->link_advertise,
                                              .link_listen = conf->link_listen,
                                              .ca = conf->discovery_ca,
                                              .certificate = conf->discovery_certificate,
                                              .key = conf->discovery_key};

    setup_check_dials(check, "link.routers", &conf->routers, WORKER_MAX_ROUTERS);
    setup_check_dials(check, "link.peers", &conf->peers, WORKER_MAX_CONFIGURED);
    setup_check_discovery(check, &discovery);
}

static void check_addresses(struct config_check *check, const struct worker_conf *conf)
{
    const struct setup_common common = common_of(conf);
    struct setup_listens listens = {0};

    setup_check_listens(check, &common, &listens);
    if (conf->tcp_listen[0] == '*')
        config_refuse(check, "kv.tcp_listen", "'%.60s': all addresses are 0.0.0.0 or [::] here",
                      conf->tcp_listen);
    else if (conf->tcp_listen[0] != '\0')
        setup_check_listen(check, &listens, "kv.tcp_listen", conf->tcp_listen);
    check_links(check, conf);
}

static void worker_check_trace(struct config_check *check, const struct worker_conf *conf)
{
    struct otlp_url collector;
    struct fault fault = {0};

    if (conf->trace_url[0] != '\0' && otlp_url_read(conf->trace_url, &fault, &collector) < 0)
        config_refuse(check, "trace.url", "%s", fault.text);
}

void worker_check(struct config_check *check)
{
    const struct worker_conf *conf = check->config;
    const struct setup_common common = common_of(conf);

    setup_check_common(check, &common);
    if (!check->is_reload) /* a reload does not read the model again */
        worker_check_model(check, conf);
    check_engine(check, conf);
    setup_check_memory(check, "cache.replay_memory", conf->replay_bytes);
    setup_check_memory(check, "cache.thread_memory", conf->conversation_bytes);
    check_kv(check, conf);
    check_addresses(check, conf);
    worker_check_trace(check, conf);
}
