/* SPDX-License-Identifier: Apache-2.0 */
/* The worker's HELLO to routers and peers, and the load report in each heartbeat. */
#include "worker/loop/worker_priv.h"
#include "worker/loop/spending_priv.h"

#include "base/clock.h"
#include "cache/kv/window.h"
#include "proto/capabilities.h"

static void fill_model(struct worker *worker)
{
    Baton__ModelInfo *model = &worker->hello_model;

    baton__model_info__init(model);
    model->name = worker->model.name;
    model->fingerprint = worker->model.fingerprint;
    model->context_length = worker->model.context_length;
    model->vocabulary_bytes = worker->vocabulary.len_bytes;
    model->created_unix_s = worker->model.created_unix_s;
}

const char *worker_link_address(const struct worker *worker)
{
    return worker->conf->link_advertise[0] ? worker->conf->link_advertise
                                           : listener_address(worker->peer_listener);
}

/* Placement counts in blocks of tokens: returns how many of them n blocks of the pool hold, with the windowed
 * blocks of one sequence beside them. */
static uint32_t token_blocks(const struct worker *worker, uint32_t n)
{
    return kv_window_capacity(&worker_engine_info(worker->engine)->layout, n);
}

static void fill_kv(struct worker *worker)
{
    const struct engine_info *info = worker_engine_info(worker->engine);
    Baton__KvInfo *kv = &worker->hello_kv;

    baton__kv_info__init(kv);
    kv->layout = kv_layout_fingerprint(&info->layout, info->numerics_id);
    kv->block_tokens = info->layout.block_tokens;
    kv->n_blocks = token_blocks(worker, worker_engine_n_blocks(worker->engine));
    kv->block_bytes = kv_layout_block_bytes(&info->layout);
    kv->link_address = (char *)worker_link_address(worker);
    kv->tcp_address = (char *)worker_engine_tcp_address(worker->engine);
    kv->unix_path = (char *)worker_engine_unix_path(worker->engine);
    kv->rdma_rails = worker_engine_rdma_opened(worker->engine); /* counts rails that are down too, because a
                                                                 * link outlives them */
    kv->max_seqs = (uint32_t)worker->conf->max_seqs;
    kv->chunk_tokens = (uint32_t)worker->conf->chunk_tokens;
}

const ProtobufCMessage *worker_make_hello(void *arg)
{
    struct worker *worker = arg;
    Baton__Hello *hello = &worker->hello;

    fill_model(worker);
    fill_kv(worker);
    baton__hello__init(hello);
    hello->protocol = LINK_PROTOCOL;
    /* a router without capability ROLE_BOTH would refuse the role; the load report has it in any case */
    hello->role =
        worker->role == BATON__ROLE__ROLE_PREFILL ? BATON__ROLE__ROLE_PREFILL : BATON__ROLE__ROLE_DECODE;
    hello->node = worker->conf->node;
    hello->epoch = worker->epoch;
    hello->build = PACKAGE_VERSION;
    hello->model = &worker->hello_model;
    hello->kv = &worker->hello_kv;
    hello->host_id = worker->host_id;
    hello->instance = worker->instance;
    hello->is_draining = worker->life != DAEMON_SERVING;
    hello->was_registered = worker_lost_router(worker);
    hello->capabilities = capabilities_own();
    if (worker->conf_prefix_fetch == PICKER_FETCH_OFF)
        hello->capabilities &= ~(uint64_t)CAPABILITY_TELLS;
    if (worker->conf->tails_grace_ns == 0)
        hello->capabilities &= ~(uint64_t)CAPABILITY_RESUMES;
    if (worker->conf->kept_bytes == 0)
        hello->capabilities &= ~(uint64_t)CAPABILITY_KEEPS;
    return &hello->base;
}

const ProtobufCMessage *worker_make_heartbeat(void *arg)
{
    struct worker *worker = arg;
    Baton__LoadReport *load = &worker->beat_load;

    if (!worker->has_load)
        return NULL; /* a report of zeros would say that no block is free */
    baton__load_report__init(load);
    load->waiting = worker->load.sched.n_waiting;
    load->running = worker->load.sched.n_running;
    load->queued_prefill_tokens = worker->load.sched.queued_prefill_tokens;
    load->decode_context_tokens = worker->load.sched.decode_tokens_context;
    load->decode_seqs = worker->load.sched.n_decode;
#define X(name) load->name = worker->load.sched.name;
    LOAD_RATES_SCHED(X)
#undef X
#define X(name) load->name = worker->load.name;
    LOAD_RATES_WORKER(X)
#undef X
    load->blocks_free = token_blocks(worker, worker->load.blocks_available);
    load->blocks_total = token_blocks(worker, worker->load.blocks_total);
    load->blocks_on_disk = worker->load.disk.n_blocks;
    if (worker->load.has_remote && worker->load.remote.is_up) {
        load->store = worker->load.store;
        load->store_bytes_per_s = worker->load.remote.read_bytes_per_s;
        load->store_ask_ns = worker->load.remote.ask_ns;
    }
    load->is_draining = worker->life != DAEMON_SERVING;
    load->is_unfit = worker->load.is_unfit;
    load->role = worker->role;
    load->n_routers = worker_routers_n_up(worker);
    load->role_age_ms = worker_role_age_ms(worker);
    worker_notices_correct(worker, load);
    load->age_us = (clock_now_ns() - worker->load.taken_ns) / NS_PER_US + 1;
    return &load->base;
}
