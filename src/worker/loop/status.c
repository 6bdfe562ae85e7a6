/* SPDX-License-Identifier: Apache-2.0 */
/* The worker's status for batonctl, and the gauges that follow its load reports. */
#include "worker/loop/access_priv.h"
#include "worker/loop/worker_priv.h"
#include "worker/loop/weights_priv.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/check.h"
#include "base/err.h"
#include "base/str.h"
#include "net/link/stranger_counts.h"
#include "proto/role.h"

static void worker_status_put_drafts(const struct sched_load *load, struct buf *out)
{
    static const char *const sources[SCHED_DRAFTS] = {SCHED_DRAFT_TABLE(SCHED_DRAFT_NAME)};
    uint64_t n_drafted = 0, n_accepted = 0;

    for (unsigned i = 0; i < SCHED_DRAFTS; i++) {
        buf_printf(out, "%s\"%s\": {\"drafted\": %" PRIu64 ", \"accepted\": %" PRIu64 "}", i ? ", " : "",
                   sources[i], load->n_drafted[i], load->n_accepted[i]);
        n_drafted += load->n_drafted[i];
        n_accepted += load->n_accepted[i];
    }
    buf_printf(out, "}, \"drafted_tokens\": %" PRIu64 ", \"accepted_tokens\": %" PRIu64, n_drafted,
               n_accepted);
}

static void worker_status_put_load(const struct load_report *load, struct buf *out)
{
    const struct kv_pool_counts *blocks = &load->blocks;

    buf_printf(out,
               "\"running\": %u, \"waiting\": %u, \"queued_prefill_tokens\": %" PRIu64
               ", \"prefill_tokens_per_s\": %.1f, \"decode_step_ms\": %.3f, \"transfer_bytes_per_s\": %.0f",
               load->sched.n_running, load->sched.n_waiting, load->sched.queued_prefill_tokens,
               load->sched.prefill_tokens_per_s, load->sched.decode_step_s * 1e3, load->transfer_bytes_per_s);
    buf_printf(out, ", \"prompt_token_us\": %.3f, \"prompt_pair_ns\": %.4f", load->sched.prompt_token_s * 1e6,
               load->sched.prompt_pair_s * 1e9);
    buf_printf(
        out,
        ", \"steps_ms\": {\"rows_%d\": %.4f, \"rows_%d\": %.4f, \"tokens_%d\": %.4f, \"tokens_%d\": %.4f}", 1,
        load->sched.rows_s[0] * 1e3, SCHED_MANY_ROWS, load->sched.rows_s[1] * 1e3, SCHED_FEW_TOKENS,
        load->sched.prompt_s[0] * 1e3, SCHED_MANY_TOKENS, load->sched.prompt_s[1] * 1e3);
    buf_printf(out,
               ", \"chunk_tokens\": %u, \"steps\": %" PRIu64 ", \"draft_steps\": %" PRIu64 ", \"drafts\": {",
               load->sched.chunk_tokens, load->sched.n_steps, load->sched.n_draft_steps);
    worker_status_put_drafts(&load->sched, out);
    buf_printf(out,
               ", \"blocks\": {\"total\": %u, \"free\": %u, \"filling\": %u, \"sealed\": %u, \"cached\": %u, "
               "\"pinned\": %u, \"zombie\": %u, \"leased\": %u, \"tenants\": %u, \"evicted\": %" PRIu64
               ", \"expired\": %" PRIu64 ", \"hits\": %" PRIu64 ", \"misses\": %" PRIu64 "}",
               load->blocks_total, blocks->n_free, blocks->n_filling, blocks->n_sealed, blocks->n_cached,
               blocks->n_pinned, blocks->n_zombie, blocks->n_leased, blocks->n_tenants, blocks->n_evicted,
               blocks->n_expired, blocks->n_hits, blocks->n_misses);
}

static void worker_status_put_disk(const struct load_report *load, struct buf *out)
{
    const struct kv_tier_counts *disk = &load->disk;

    if (!load->has_disk)
        return;
    buf_printf(out,
               ", \"disk\": {\"blocks\": %" PRIu64 ", \"bytes\": %" PRIu64
               ", \"read_bytes_per_s\": %.0f, \"files\": %u, \"writing\": %u, "
               "\"reading\": %u, \"tenants\": %u, \"resting\": %s, \"writeback\": %u, \"written\": %" PRIu64
               ", \"read\": %" PRIu64 ", \"dropped\": %" PRIu64 ", \"refused\": %" PRIu64
               ", \"failed\": %" PRIu64 ", \"damaged\": %" PRIu64 "}",
               disk->n_blocks, disk->used_bytes, disk->read_bytes_per_s, disk->n_segments, disk->n_writing,
               disk->n_reading, disk->n_tenants, disk->is_resting ? "true" : "false",
               load->blocks.n_writeback, disk->n_written, disk->n_read, disk->n_dropped, disk->n_refused,
               disk->n_write_failed + disk->n_read_failed, disk->n_damaged);
}

static void worker_status_put_remote(const struct load_report *load, struct buf *out)
{
    const struct kv_remote_counts *remote = &load->remote;

    if (!load->has_remote)
        return;
    buf_printf(out,
               ", \"remote\": {\"up\": %s, \"full\": %s, \"read_bytes_per_s\": %.0f, \"ask_key_us\": %.1f, "
               "\"writing\": %u, \"reading\": %u, \"writeback\": %u, \"written\": %" PRIu64
               ", \"existed\": %" PRIu64 ", \"asked\": %" PRIu64 ", \"found\": %" PRIu64
               ", \"read\": %" PRIu64 ", \"missing\": %" PRIu64 ", \"damaged\": %" PRIu64
               ", \"failed\": %" PRIu64 ", \"late\": %" PRIu64 ", \"trips\": %" PRIu64 "}",
               remote->is_up ? "true" : "false", remote->is_full ? "true" : "false", remote->read_bytes_per_s,
               (double)remote->ask_ns / 1e3, remote->n_writing, remote->n_reading,
               load->blocks.n_writeback_remote, remote->n_written, remote->n_existed, remote->n_asked,
               remote->n_found, remote->n_read, remote->n_missing, remote->n_damaged,
               remote->n_write_failed + remote->n_read_failed, remote->n_late, remote->n_trips);
}

static void worker_status_put_peer_blocks(const struct worker *worker, struct buf *out)
{
    if (worker->conf_prefix_fetch == PICKER_FETCH_OFF)
        return;
    buf_printf(out,
               ", \"peer_blocks\": {\"followed\": %u, \"in_memory\": %" PRIu64 ", \"on_disk_only\": %" PRIu64
               ", \"most\": %" PRIu64 ", \"fetches\": %" PRIu64 ", \"resyncs\": %.0f}",
               worker_follow_count(worker), worker->load.peers_in_memory, worker->load.peers_on_disk,
               worker->conf->peer_blocks, worker->load.n_own_fetches, metric_value(worker->m_peer_resyncs));
}

static void worker_status_put_keys(const struct link *link, struct buf *out)
{
    struct link_keys keys = link_peer_keys(link);

    link_access_put_peer(keys.used, keys.current, keys.second, out);
}

static void worker_status_put_links(const struct worker *worker, struct buf *out)
{
    const char *comma = "";

    buf_append_str(out, ", \"routers\": [");
    for (uint32_t i = 0; i < worker->n_routers; i++) {
        if (worker->routers[i].link == NULL)
            continue;
        buf_printf(out, "%s{\"address\": ", comma);
        json_put_str(out, bytes_str(worker->routers[i].address));
        buf_printf(out, ", \"up\": %s", worker_router_is_up(&worker->routers[i]) ? "true" : "false");
        if (!worker_router_is_up(&worker->routers[i])) {
            buf_append_str(out, ", \"reason\": ");
            json_put_str(out, bytes_str(worker_router_why(&worker->routers[i])));
        }
        worker_status_put_keys(worker->routers[i].link, out);
        buf_append_str(out, "}");
        comma = ", ";
    }
    buf_append_str(out, "], \"peers\": [");
    comma = "";
    for (uint32_t i = 0; i < worker->n_peers; i++) {
        const struct worker_peer *peer = &worker->peers[i];

        if (peer->link == NULL)
            continue;
        buf_printf(out, "%s{\"node\": ", comma);
        json_put_str(out, bytes_str(peer->node));
        buf_printf(out, ", \"up\": %s, \"dialled\": %s", peer->is_up ? "true" : "false",
                   peer->is_dialled ? "true" : "false");
        if (role_is_worker(peer->role))
            buf_printf(out, ", \"role\": \"%s\"", role_text(peer->role));
        if (peer->is_up)
            buf_printf(out, ", \"transport\": \"%s\", \"transport_why\": \"%s\"",
                       worker_transport_name(peer->transport), peer->transport_why);
        worker_status_put_keys(peer->link, out);
        buf_append_str(out, "}");
        comma = ", ";
    }
    buf_append_str(out, "]");
}

int worker_status_json(struct worker *worker, struct buf *out)
{
    buf_printf(out, "{\"daemon\": \"%s\", \"role\": \"%s\", \"node\": ", worker->daemon,
               role_text(worker->role));
    json_put_str(out, bytes_str(worker->conf->node));
    buf_append_str(out, ", \"version\": \"" PACKAGE_VERSION "\", ");
    link_access_put(worker->access, out);
    buf_append_str(out, "\"model\": ");
    json_put_str(out, bytes_str(worker->model.name));
    buf_printf(
        out,
        ", \"fingerprint\": \"%s\", \"engine\": \"%s\", \"draining\": %s, \"unfit\": %s, \"tasks\": %u, ",
        worker->model.fingerprint, worker_engine_info(worker->engine)->name,
        worker->life != DAEMON_SERVING ? "true" : "false", worker->load.is_unfit ? "true" : "false",
        worker->load.n_tasks);
    if (chat_format_warning(worker->model.chat) != NULL) {
        buf_append_str(out, "\"chat_warning\": ");
        json_put_str(out, bytes_str(chat_format_warning(worker->model.chat)));
        buf_append_str(out, ", ");
    }
    buf_printf(out, "\"weights_shared\": %s, ", worker_weights_are_shared(worker) ? "true" : "false");
    buf_append_str(out, "\"numa\": ");
    worker_numa_put(&worker->numa, out);
    buf_append_str(out, ", ");
    worker_status_put_load(&worker->load, out);
    worker_status_put_disk(&worker->load, out);
    worker_status_put_remote(&worker->load, out);
    buf_printf(out, ", \"kv_tcp\": \"%s\", \"kv_unix\": \"%s\"", worker_engine_tcp_address(worker->engine),
               worker_engine_unix_path(worker->engine));
    buf_append_str(out, ", \"kv_rdma\": ");
    json_put_str(out, bytes_str(worker_engine_rdma_text(worker->engine)));
    buf_printf(out, ", \"kv_rdma_rails_up\": %u", worker_engine_rdma_rails(worker->engine));
    worker_status_put_peer_blocks(worker, out);
    worker_status_put_links(worker, out);
    buf_append_str(out, "}\n");
    return out->is_bad ? E_NOMEM : 0;
}

static void worker_status_set_gauge(struct worker *worker, const char *name, const char *help, double value)
{
    metric_set(metric_single(worker->metrics, METRIC_GAUGE, name, help), value);
}

static void note_peer_blocks(struct worker *worker, const struct load_report *load)
{
    struct metric_family *known;

    if (worker->conf_prefix_fetch == PICKER_FETCH_OFF)
        return;
    known = metric_family(worker->metrics, METRIC_GAUGE, "baton_peer_blocks_known",
                          "Blocks that peers are known to have, by the best tier of any.", "tier");
    metric_set(metric_series(known, (const char *const[]){"memory"}), (double)load->peers_in_memory);
    metric_set(metric_series(known, (const char *const[]){"disk"}), (double)load->peers_on_disk);
}

static void note_rdma(struct worker *worker)
{
    struct metric *failures =
        metric_single(worker->metrics, METRIC_COUNTER, "baton_kv_rdma_failures_total",
                      "Connections whose RDMA failed or could not be had; TCP took over.");
    struct tr_counts counts;

    tr_node_counts(worker_engine_transport(worker->engine), &counts);
    metric_add(failures, (double)(counts.rdma_failures - worker->rdma_failures_counted));
    worker->rdma_failures_counted = counts.rdma_failures;
    worker_status_set_gauge(worker, "baton_kv_rdma_rails", "RDMA rails that are up.",
                            worker_engine_rdma_rails(worker->engine));
}

static void note_evicted_at(struct worker *worker, const char *port, const uint64_t n[STRANGER_N_ENDS])
{
    struct stranger_counts counts;

    stranger_counts_init(&counts, worker->metrics, port);
    for (unsigned why = 0; why < STRANGER_N_ENDS; why++)
        stranger_counts_add(&counts, why, (double)n[why] - metric_value(counts.by_end[why]));
}

static void note_evicted(struct worker *worker)
{
    struct tr_counts counts;

    tr_node_counts(worker_engine_transport(worker->engine), &counts);
    note_evicted_at(worker, "kv.tcp", counts.tcp_evicted);
    note_evicted_at(worker, "kv.unix", counts.unix_evicted);
}

/* Names that vLLM's dashboards and the endpoint pickers of inference gateways read on each worker. */
static void note_vllm(struct worker *worker, const struct load_report *load)
{
    static const char *const names[] = {"vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"};
    const char *model = worker->model.name;
    char block_tokens[16], n_blocks[16];
    const char *const labels[] = {block_tokens, n_blocks};
    struct metric_family *info =
        metric_family(worker->metrics, METRIC_GAUGE, "vllm:cache_config_info",
                      "Sizes of the KV cache; always 1.", "block_size num_gpu_blocks");

    snprintf(block_tokens, sizeof(block_tokens), "%u",
             worker_engine_info(worker->engine)->layout.block_tokens);
    snprintf(n_blocks, sizeof(n_blocks), "%u", load->blocks_total);
    if (load->blocks_total > 0)
        metric_set(metric_series(info, labels), 1);
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        metric_set(metric_series(metric_family(worker->metrics, METRIC_GAUGE, names[i],
                                               "Share of KV blocks that running sequences hold, 0 to 1.",
                                               "model_name"),
                                 &model),
                   load->blocks_total ? 1.0 - (double)load->blocks_available / load->blocks_total : 0);
}

void worker_metrics_load(struct worker *worker, const struct load_report *load)
{
    struct metric_family *blocks =
        metric_family(worker->metrics, METRIC_GAUGE, "baton_kv_blocks", "KV blocks by state.", "state");
    const struct kv_pool_counts *n = &load->blocks;

    metric_set(metric_series(blocks, (const char *const[]){"free"}), n->n_free);
    metric_set(metric_series(blocks, (const char *const[]){"filling"}), n->n_filling);
    metric_set(metric_series(blocks, (const char *const[]){"sealed"}), n->n_sealed);
    metric_set(metric_series(blocks, (const char *const[]){"cached"}), n->n_cached);
    metric_set(metric_series(blocks, (const char *const[]){"leased"}), n->n_leased);
    worker_status_set_gauge(worker, "baton_kv_blocks_pinned",
                            "Cached KV blocks that a pin (cache_control, a long session) protects.",
                            n->n_pinned);
    worker_status_set_gauge(
        worker, "baton_kv_cache_usage_ratio", "Share of KV blocks that running sequences hold.",
        load->blocks_total ? 1.0 - (double)load->blocks_available / load->blocks_total : 0);
    worker_status_set_gauge(worker, "baton_worker_running", "Sequences running.", load->sched.n_running);
    worker_status_set_gauge(worker, "baton_worker_waiting", "Sequences waiting.", load->sched.n_waiting);
    worker_status_set_gauge(worker, "baton_worker_waiting_tenants",
                            "Tenants with prompts to compute, waiting or begun.", load->sched.n_tenants);
    worker_status_set_gauge(worker, "baton_worker_prefill_tokens_per_second", "Learned prefill speed.",
                            load->sched.prefill_tokens_per_s);
    worker_status_set_gauge(worker, "baton_worker_decode_step_seconds", "Learned time of a decode step.",
                            load->sched.decode_step_s);
    worker_status_set_gauge(worker, "baton_transfer_bytes_per_second",
                            "Learned speed of KV transfers that arrived here.", load->transfer_bytes_per_s);
    note_vllm(worker, load);
    note_rdma(worker);
    note_evicted(worker);
    note_peer_blocks(worker, load);
}
