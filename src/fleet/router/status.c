/* SPDX-License-Identifier: Apache-2.0 */
/* The router's status for batonctl: its workers, queue and jobs, as one JSON object. Parts of WORKERS_PER_PART
 * slots are written in different turns of the loop. A worker keeps its slot while it is registered, so it appears
 * once. */
#include "fleet/router/router_priv.h"
#include "fleet/router/state_priv.h"

#include <inttypes.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/str.h"

#define WORKERS_PER_PART 128u /* 0.3 ms */

static void put_worker(const struct router_worker *worker, const struct picker_ledger *ledger,
                       struct buf *out)
{
    const Baton__LoadReport *load = &worker->report;
    bool is_up = worker->link != NULL && link_is_up(worker->link);

    buf_append_str(out, "{\"node\": ");
    json_put_str(out, bytes_str(worker->node));
    buf_append_str(out, ", \"version\": ");
    json_put_str(out, bytes_str(worker->version));
    buf_printf(out,
               ", \"role\": \"%s\", \"up\": %s, \"usable\": %s, \"draining\": %s, \"unfit\": %s, \"model\": ",
               router_role_text(worker->role), is_up ? "true" : "false",
               router_worker_usable(worker) ? "true" : "false", worker->is_draining ? "true" : "false",
               worker->is_unfit ? "true" : "false");
    json_put_str(out, bytes_str(worker->model ? worker->model->gen.name : ""));
    buf_printf(out,
               ", \"fingerprint\": \"%s\", \"link\": ", worker->model ? worker->model->gen.fingerprint : "");
    json_put_str(out, bytes_str(worker->link_address));
    buf_append_str(out, ", \"kv\": ");
    json_put_str(out, bytes_str(worker->kv_address));
    buf_printf(out,
               ", \"running\": %u, \"waiting\": %u, \"queued_prefill_tokens\": %" PRIu64
               ", \"prefill_tokens_per_s\": %.1f, \"decode_step_ms\": %.3f, \"blocks_free\": %u, "
               "\"blocks_total\": %u, \"blocks_on_disk\": %" PRIu64
               ", \"read_bytes_per_s\": %.0f, \"store_bytes_per_s\": %.0f",
               load->running, load->waiting, load->queued_prefill_tokens, load->prefill_tokens_per_s,
               load->decode_step_s * 1e3, load->blocks_free, load->blocks_total, load->blocks_on_disk,
               load->read_bytes_per_s, load->store != 0 ? load->store_bytes_per_s : 0);
    buf_printf(out,
               ", \"inflight\": %u, \"inflight_prefill_tokens\": %" PRIu64 ", \"dispatched\": %" PRIu64
               ", \"lost\": %" PRIu64 ", \"failed\": %" PRIu64
               ", \"last_error\": \"%s\", \"rtt_us\": %" PRIu64 ", \"blocks_known\": %s, \"capabilities\": [",
               ledger->n_seqs, ledger->prefill_tokens, worker->n_dispatched, worker->n_lost, worker->n_failed,
               worker->n_failed > 0 ? err_text(worker->last_error) : "",
               is_up ? link_rtt_ns(worker->link) / NS_PER_US : 0,
               worker->follower.state == FOLLOWER_LIVE ? "true" : "false");
    for (uint64_t bit = 2, n = 0; bit < 1u << CAPABILITY_N; bit <<= 1)
        if (worker->capabilities & bit)
            buf_printf(out, "%s\"%s\"", n++ == 0 ? "" : ", ", capability_text(bit));
    buf_append_str(out, "]");
    if (is_up) {
        struct link_keys keys = link_peer_keys(worker->link);

        link_access_put_peer(keys.used, keys.current, keys.second, out);
    }
    buf_append_str(out, "}");
}

static void put_head(const struct router *router, struct buf *out)
{
    buf_append_str(out, "{\"daemon\": \"baton-router\", \"node\": ");
    json_put_str(out, bytes_str(router->conf->node));
    buf_append_str(out, ", \"version\": \"" PACKAGE_VERSION "\", \"link\": ");
    json_put_str(out, bytes_str(router->conf->link_advertise[0] != '\0' ? router->conf->link_advertise
                                                                        : router->link_address));
    buf_printf(out,
               ", \"draining\": %s, \"queued\": %u, \"paused\": %u, \"handed_off\": %.0f, \"local\": %.0f, "
               "\"redispatched\": %.0f",
               router->life != DAEMON_SERVING ? "true" : "false", router->n_queued, router->pauses.n_paused,
               metric_value(router->m_handed_off), metric_value(router->m_local),
               metric_value(router->m_redispatched));
    router_state_put(router, out);
    buf_append_str(out, ", ");
    link_access_put(router->access, out);
    buf_printf(out, "\"indexed_blocks\": %zu, \"indexed_on_disk_only\": %zu, \"workers\": [",
               picker_index_count(router->index), picker_index_on_disk(router->index));
}

int router_status_json(struct router *router, uint32_t part, struct buf *out)
{
    uint32_t slot = part * WORKERS_PER_PART, end = slot + WORKERS_PER_PART;

    if (part == 0)
        put_head(router, out);
    for (; slot < end && slot < PICKER_MAX_WORKERS; slot++) {
        if (!router->workers[slot].is_taken)
            continue;
        if (out->len_bytes > 0 && out->data[out->len_bytes - 1] == '}')
            buf_append_str(out, ", ");
        put_worker(&router->workers[slot], picker_fleet_ledger(router->fleet, slot), out);
    }
    if (end < PICKER_MAX_WORKERS)
        return out->is_bad ? E_NOMEM : 1;
    buf_append_str(out, "], ");
    router_roles_put(router, out);
    router_names_put(router, out);
    buf_append_str(out, "}\n");
    return out->is_bad ? E_NOMEM : 0;
}
