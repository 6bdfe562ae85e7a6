/* SPDX-License-Identifier: Apache-2.0 */
/* Turns a model file into a running engine: map, check, tokeniser, chat format, KV memory, weights, engine
 * thread.
 *
 * Loading runs on the loop thread before the daemon reports that it is ready. It reports progress to the log
 * and to the service manager, and each report asks the service manager for more time. Between tensors the
 * loader checks for a stop signal. */
#include "worker/loop/access_priv.h"
#include "worker/loop/worker_priv.h"
#include "worker/loop/draft_model_priv.h"
#include "worker/loop/load_progress_priv.h"
#include "worker/loop/numa_priv.h"
#include "worker/loop/weights_priv.h"

#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/str.h"
#include "cache/kv/state.h"
#include "cache/kv/window.h"
#include "compute/engine/engine_load.h"
#include "compute/engine/engine_sim.h"
#include "serve/prompt/verdicts.h"
#include "net/link/tls.h"

#define DRAFT_ROWS 64 /* draft tokens of a step, over all sequences */

static const char *const kernel_names[] = {
#define X(word) word,
    ENGINE_KERNELS(X)
#undef X
};
static const enum bf16_math bf16_maths[] = {[WORKER_BF16_AUTO] = BF16_AUTO,
                                            [WORKER_BF16_TILES] = BF16_TILES,
                                            [WORKER_BF16_DOTS] = BF16_DOTS,
                                            [WORKER_BF16_EXACT] = BF16_EXACT};

static void name_model(struct worker *worker)
{
    if (worker->conf->model_name[0])
        str_copy(worker->model.name, sizeof(worker->model.name), worker->conf->model_name);
    else
        gguf_model_name(worker->conf->model_path, worker->model.name, sizeof(worker->model.name));
}

int worker_model_open(struct worker *worker, struct fault *fault)
{
    struct gen_model *model = &worker->model;
    int rc;

    rc = gguf_open(worker->conf->model_path, fault, &worker->gguf);
    if (rc < 0)
        return fault_set(fault, rc, "model.path: %.200s: %s", worker->conf->model_path, fault->text);
    name_model(worker);
    gguf_fingerprint(worker->gguf, model->fingerprint);
    rc = tokenizer_new(worker->gguf, fault, &model->tokenizer);
    if (rc == 0)
        rc = chat_format_new(model->tokenizer, fault, &model->chat);
    if (rc == 0 && chat_format_warning(model->chat) != NULL)
        log_warn("chat_template", LOG_STR("file", worker->conf->model_path),
                 LOG_STR("reason", chat_format_warning(model->chat)));
    if (rc == 0 && gguf_vocabulary_image(worker->gguf, &worker->vocabulary) < 0)
        rc = fault_set(fault, E_NOMEM, "out of memory");
    if (rc == 0 && verdicts_new(VERDICTS_KEPT, &model->verdicts) < 0)
        rc = fault_set(fault, E_NOMEM, "out of memory");
    if (rc == 0 && grammar_vocab_new(model->tokenizer, &worker->grammar_vocab) < 0)
        rc = fault_set(fault, E_NOMEM, "out of memory");
    model->block_tokens = (uint32_t)worker->conf->kv_block_tokens;
    model->created_unix_s = clock_unix_ns() / NS_PER_S;
    return rc < 0 ? fault_set(fault, rc, "model.path: %.200s: %s", worker->conf->model_path, fault->text) : 0;
}

void worker_model_close(struct worker *worker)
{
    grammar_vocab_unref(worker->grammar_vocab);
    verdicts_free(worker->model.verdicts);
    chat_format_free(worker->model.chat);
    tokenizer_unref(worker->model.tokenizer);
    gguf_close(worker->gguf);
    gguf_close(worker->draft_gguf);
    buf_fini(&worker->vocabulary);
}

/* ---- engines ---- */

bool worker_load_on_progress(void *arg, uint64_t done_bytes, uint64_t total_bytes)
{
    struct worker_progress *progress = arg;
    uint64_t now_ns = clock_now_ns();
    unsigned percent = total_bytes ? (unsigned)(100 * done_bytes / total_bytes) : 100;

    if (service_is_asked_to_stop(progress->worker->service))
        return false;
    if (now_ns - progress->logged_ns < NS_PER_S)
        return true;
    progress->logged_ns = now_ns;
    service_status(progress->worker->service, "loading weights %u%%", percent);
    service_extend(progress->worker->service, 30 * NS_PER_S);
    log_info("loading", LOG_U64("percent", percent));
    return true;
}

int worker_arena_blocks(const struct worker_conf *conf, const struct kv_layout *layout, struct fault *fault,
                        uint32_t *out)
{
    size_t block_bytes = kv_layout_block_bytes(layout);
    uint64_t n_blocks = conf->kv_memory / block_bytes;
    /* Four blocks with their windowed ones; one state, and one snapshot of it. */
    uint64_t n_least =
        4 * (1 + (uint64_t)kv_window_groups(layout)) + 2 * (uint64_t)kv_layout_state_blocks(layout);

    if (n_blocks < n_least)
        return fault_set(fault, E_INVAL, "kv.memory holds %u blocks of %zu bytes; give it at least %zu bytes",
                         (unsigned)n_blocks, block_bytes, (size_t)n_least * block_bytes);
    *out = n_blocks > UINT32_MAX / 2 ? UINT32_MAX / 2 : (uint32_t)n_blocks;
    return 0;
}

static int open_arena(struct worker *worker, const struct kv_layout *layout, struct worker_engine_opts *opts,
                      struct fault *fault)
{
    size_t block_bytes = kv_layout_block_bytes(layout);
    bool is_by_node = opts->team != NULL && team_n_nodes(opts->team) > 1;
    uint32_t n_blocks = 0;
    int rc = worker_arena_blocks(worker->conf, layout, fault, &n_blocks);

    if (rc < 0)
        return rc;
    opts->n_blocks = n_blocks;
    if (mem_region_open(n_blocks * block_bytes, true, worker->conf->kv_populate && !is_by_node, "baton-kv",
                        &opts->arena) < 0 ||
        (is_by_node && worker_numa_place_kv(&worker->numa, opts->team, layout, &opts->arena) < 0))
        return fault_set(fault, E_NOMEM, "kv.memory: cannot get %zu bytes", (size_t)n_blocks * block_bytes);
    return 0;
}

/* Logs that the pool limits the length of a sequence to less than the model allows, and names the setting. */
static void log_engine_capacity(const struct worker_engine_opts *opts)
{
    const struct engine_info *info = &opts->engine.info;
    uint64_t n_state = kv_layout_state_blocks(&info->layout);
    uint64_t holds_blocks = kv_window_capacity(&info->layout, (uint32_t)(opts->n_blocks - n_state));
    uint64_t holds = holds_blocks * info->layout.block_tokens;
    uint64_t wants_blocks =
        (info->context_length + info->layout.block_tokens - 1) / info->layout.block_tokens + n_state;

    wants_blocks += opts->n_blocks - n_state - holds_blocks; /* windowed ones */

    if (holds < info->context_length)
        log_warn("kv_memory_below_context", LOG_STR("raise", "kv.memory"), LOG_U64("holds_tokens", holds),
                 LOG_U64("context", info->context_length),
                 LOG_U64("needed_bytes", wants_blocks * kv_layout_block_bytes(&info->layout)));
}

static uint32_t batch_tokens(const struct worker_conf *conf)
{
    uint64_t least = conf->chunk_tokens + conf->max_seqs;

    return (uint32_t)(conf->batch_tokens > least ? conf->batch_tokens : least);
}

/* Returns the rows for draft tokens in a step.
 * Draft tokens do not pay beside many sequences, so few rows are enough. */
static uint32_t draft_rows(const struct worker_conf *conf)
{
    return conf->speculate == SPECULATE_OFF ? 0 : DRAFT_ROWS;
}

struct kv_layout worker_sim_layout(const struct worker_conf *conf)
{
    return (struct kv_layout){.n_layers = 2,
                              .n_kv_heads = 1,
                              .k_dim = 32,
                              .v_dim = 32,
                              .block_tokens = (uint32_t)conf->kv_block_tokens,
                              .type = (enum kv_type)conf->kv_type};
}

/* Returns the configured context, or the model's own,
 * limited to the most tokens that a link can carry in a request. */
static uint32_t context_of(const struct worker *worker)
{
    uint64_t own = tokenizer_context_length(worker->model.tokenizer);

    if (worker->conf->context != 0)
        return (uint32_t)worker->conf->context;
    if (own <= FRAME_MAX_TOKENS)
        return (uint32_t)own;
    log_warn("context_limited", LOG_U64("of_the_model", own), LOG_U64("served", FRAME_MAX_TOKENS),
             LOG_STR("reason", "no request is longer; model.context sets a shorter one"));
    return (uint32_t)FRAME_MAX_TOKENS;
}

static int build_sim(struct worker *worker, struct worker_engine_opts *opts, struct fault *fault)
{
    const struct worker_conf *conf = worker->conf;
    size_t n_stop = 0;
    const token_id *stop_ids = tokenizer_stop_ids(worker->model.tokenizer, &n_stop);
    struct engine_sim_opts sim = {.vocab_size = tokenizer_vocab_size(worker->model.tokenizer),
                                  .stop_id = n_stop > 0 ? stop_ids[0] : TOKEN_NONE,
                                  .other_stop_ids = n_stop > 1 ? stop_ids + 1 : NULL,
                                  .n_other_stop_ids = n_stop > 1 ? (uint32_t)n_stop - 1 : 0,
                                  .mean_answer_tokens = (uint32_t)conf->sim_answer_tokens,
                                  .max_batch_tokens = batch_tokens(conf),
                                  .step_ns = conf->sim_step_ns,
                                  .prefill_token_ns = conf->sim_prefill_token_ns,
                                  .decode_seq_ns = conf->sim_decode_seq_ns};
    int rc;

    sim.layout = worker_sim_layout(conf);
    sim.context_length = context_of(worker);
    while (sim.first_text_id < sim.vocab_size &&
           tokenizer_is_control(worker->model.tokenizer, sim.first_text_id))
        sim.first_text_id++;
    rc = open_arena(worker, &sim.layout, opts, fault);
    if (rc < 0)
        return rc;
    sim.kv_arena = opts->arena.base;
    sim.n_blocks = opts->n_blocks;
    if (engine_sim_new(&sim, &opts->engine) < 0)
        return fault_set(fault, E_INVAL, "engine.kind = sim does not work with this vocabulary");
    return 0;
}

struct engine_load_opts worker_load_opts(const struct worker_conf *conf, struct gguf *gguf)
{
    return (struct engine_load_opts){.gguf = gguf,
                                     .kernels = kernel_names[conf->kernels],
                                     .kv_type = (enum kv_type)conf->kv_type,
                                     .block_tokens = (uint32_t)conf->kv_block_tokens,
                                     .context_length = (uint32_t)conf->context,
                                     .bf16 = bf16_maths[conf->bf16],
                                     .splits_windows = true,
                                     .beside_bytes = conf->kv_memory,
                                     .converts_f16 = conf->convert_f16 == WORKER_CONVERT_BF16};
}

static void worker_model_tune(const struct worker_conf *conf, struct team *team)
{
    static const enum tune_mode modes[] = {
        [WORKER_TUNE_AUTO] = TUNE_AUTO, [WORKER_TUNE_OFF] = TUNE_OFF, [WORKER_TUNE_REDO] = TUNE_REDO};
    struct tuned tuned;
    struct buf line = {0};

    if (engine_tune(team, kernel_names[conf->kernels], modes[conf->tune], &tuned) < 0)
        return; /* the load that follows reports the kernels' error */
    engine_tuned_line(&tuned, &line);
    log_info("tuned", LOG_STR("choices", line.data != NULL ? (const char *)line.data : ""),
             LOG_F64("ms", (double)tuned.took_ns / (double)NS_PER_MS),
             LOG_STR("from", conf->tune == WORKER_TUNE_OFF ? "defaults"
                             : tuned.is_from_cache         ? "cache"
                                                           : "measurement"),
             LOG_STR("cache", tuned.is_from_cache || tuned.is_saved ? tuned.path : ""));
    buf_fini(&line);
}

int worker_tune(const void *of, struct buf *out, struct fault *fault)
{
    const struct worker_conf *conf = of;
    struct team *team;
    struct tuned tuned;
    struct worker_numa numa;
    int rc = worker_numa_team(conf, &numa, &team, fault);

    if (rc < 0)
        return rc;
    rc = engine_tune(team, kernel_names[conf->kernels], TUNE_WAIT, &tuned);
    team_free(team);
    if (rc < 0)
        return fault_set(fault, E_UNSUPPORTED, "engine.kernels = %s does not run on this CPU",
                         kernel_names[conf->kernels]);
    engine_tuned_table(&tuned, out);
    return 0;
}

/* Packs the weights, the MTP head's too, or maps those that another worker of this host has packed. */
static int worker_model_pack(struct worker *worker, struct engine_load_opts *load, struct fault *fault,
                             struct engine_model **out, struct engine_model **mtp_out)
{
    int rc;

    load->arena = worker_weights_arena(worker, gguf_file_bytes(worker->gguf), load->team);
    rc = engine_model_load(load, fault, out);
    if (load->arena != NULL && (rc == E_MISMATCH || rc == E_FULL)) {
        log_warn("weights_refused", LOG_STR("reason", fault->text));
        worker_weights_refused(worker, rc == E_FULL ? "they need more room than the arena has"
                                                    : "those of the other worker are packed in another way");
        load->arena = NULL;
        rc = engine_model_load(load, fault, out);
    }
    if (rc < 0)
        return fault_set(fault, rc, "model.path: %.200s: %s", worker->conf->model_path, fault->text);
    rc = worker_mtp_load(worker, load, *out, fault, mtp_out);
    if (rc == 0)
        worker_weights_loaded(worker);
    return rc;
}

static int build_cpu(struct worker *worker, struct worker_engine_opts *opts, struct fault *fault,
                     struct engine_model **mtp_out)
{
    const struct worker_conf *conf = worker->conf;
    struct worker_progress progress = {.worker = worker, .logged_ns = clock_now_ns()};
    struct engine_load_opts load = worker_load_opts(conf, worker->gguf);
    struct engine_start_opts start = {.max_batch_tokens = batch_tokens(conf),
                                      .max_items = (uint32_t)conf->max_seqs,
                                      .max_draws = (uint32_t)conf->max_seqs + draft_rows(conf)};
    struct engine_model *model = NULL;
    int rc = worker_numa_team(conf, &worker->numa, &opts->team, fault);

    load.context_length = context_of(worker);
    load.team = opts->team;
    load.on_progress = worker_load_on_progress;
    load.progress_arg = &progress;
    if (rc == 0) {
        worker_model_tune(conf, opts->team);
        rc = worker_model_pack(worker, &load, fault, &model, mtp_out);
    }
    if (rc == 0)
        rc = open_arena(worker, engine_model_layout(model), opts, fault);
    if (rc < 0) {
        engine_model_free(model);
        return rc;
    }
    start.kv_arena = opts->arena.base;
    start.n_blocks = opts->n_blocks;
    if (engine_model_start(model, &start, &opts->engine) < 0)
        return fault_set(fault, E_NOMEM, "cannot get the engine's scratch memory");
    return 0;
}

/* ---- the engine thread around it ---- */

struct transport_use { /* of a value of kv.transport */
    enum tr_kind kind;
    bool has_unix, has_rdma; /* it listens at kv.unix_path; it opens kv.rdma_devices */
};

static struct transport_use transport_use_of(enum worker_transport transport)
{
    struct transport_use use = {.kind = TR_SHM, .has_unix = true};

    switch (transport) {
    case WORKER_TRANSPORT_AUTO:
        use.has_rdma = true;
        break;
    case WORKER_TRANSPORT_SHM:
        break;
    case WORKER_TRANSPORT_TCP:
        use = (struct transport_use){.kind = TR_TCP};
        break;
    case WORKER_TRANSPORT_RDMA:
        use = (struct transport_use){.kind = TR_RDMA, .has_rdma = true};
        break;
    }
    return use;
}

static int fill_transport(struct worker *worker, struct worker_engine_opts *opts, struct fault *fault)
{
    const struct worker_conf *conf = worker->conf;
    const uint8_t *data = worker->access->keys.data;
    struct tr_opts *tr = &opts->transport;
    struct transport_use use = transport_use_of((enum worker_transport)conf->transport);

    if (worker_kv_keys(worker, &tr->keys) < 0 || cluster_key_derive(data, "kv disk", opts->disk.key) < 0 ||
        cluster_key_derive(data, "kv remote", opts->remote.key) < 0)
        return fault_set(fault, E_INTERNAL, "key derivation failed");
    if (worker_remote_login(conf, fault, opts->remote.login) < 0)
        return fault->code;
    tr->node = conf->node;
    tr->tcp_listen = conf->tcp_listen[0] ? conf->tcp_listen : NULL;
    tr->unix_listen = conf->unix_path[0] && use.has_unix ? conf->unix_path : NULL;
    if (conf->tcp_encrypt) {
        tr->tls_server = tls_server(worker->access->tls);
        tr->tls_client = tls_client(worker->access->tls);
    }
    tr->tcp_connections = (unsigned)conf->tcp_connections;
    opts->is_auto = conf->transport == WORKER_TRANSPORT_AUTO;
    opts->preferred = use.kind;
    if (use.has_rdma)
        tr->rdma_devices = conf->rdma_devices;
    tr->rdma_rest_ns = conf->rdma_rest_ns;
    return 0;
}

int worker_engine_build(struct worker *worker, struct fault *fault)
{
    const struct worker_conf *conf = worker->conf;
    struct worker_engine_opts opts = {.arena = {.fd = -1},
                                      .kv_lifetime_ns = conf->kv_lifetime_ns,
                                      .prefix_fetch = (enum picker_fetch)conf->prefix_fetch,
                                      .peer_blocks = (uint32_t)conf->peer_blocks,
                                      .disk = {.path = conf->disk_path,
                                               .size_bytes = conf->disk_size,
                                               .lifetime_ns = conf->disk_lifetime_ns,
                                               .n_threads = (unsigned)conf->disk_threads},
                                      .remote = {.url = conf->remote,
                                                 .ca_path = conf->remote_ca,
                                                 .lifetime_ns = conf->remote_lifetime_ns,
                                                 .flush_ns = conf->remote_flush_ns,
                                                 .n_threads = (unsigned)conf->remote_threads},
                                      .max_seqs = (uint32_t)conf->max_seqs,
                                      .max_queue = (uint32_t)conf->max_queue,
                                      .chunk_tokens = (uint32_t)conf->chunk_tokens,
                                      .draft_tokens = (uint32_t)conf->draft_tokens,
                                      .itl_ns = conf->itl_ns,
                                      .speculate = (enum sched_speculate)conf->speculate,
                                      .grant_timeout_ns = conf->grant_timeout_ns,
                                      .metrics = worker->metrics,
                                      .spans = otlp_exporter_queue(worker->exporter)};
    struct engine_model *mtp = NULL;
    uint64_t began_ns = clock_now_ns();
    int rc = conf->engine_kind == WORKER_ENGINE_SIM ? build_sim(worker, &opts, fault)
                                                    : build_cpu(worker, &opts, fault, &mtp);

    if (rc == 0)
        rc = fill_transport(worker, &opts, fault);
    if (rc < 0) {
        engine_model_free(mtp);
        worker_engine_opts_free(&opts);
        return rc;
    }
    log_engine_capacity(&opts);
    worker->model.context_length = opts.engine.info.context_length;
    memcpy(opts.prefix_key, worker->prefix_key, sizeof(opts.prefix_key));
    memcpy(opts.model_fingerprint, worker->model.fingerprint, sizeof(opts.model_fingerprint));
    opts.stop_ids = tokenizer_stop_ids(worker->model.tokenizer, &opts.n_stop_ids);
    rc = worker_draft_model_open(worker, mtp, &opts, fault);
    if (rc < 0) {
        worker_engine_opts_free(&opts);
        return rc;
    }
    worker_numa_log(&worker->numa, conf->numa);
    rc = worker_engine_new(&opts, fault, &worker->engine);
    if (rc < 0) { /* only its sockets can fail here, so name their key */
        const char *key = conf->unix_path[0] && strstr(fault->text, conf->unix_path) ? "kv.unix_path: "
                          : strstr(fault->text, "cannot listen on")                  ? "kv.tcp_listen: "
                                                                                     : "";
        fault_set(fault, rc, "%s%s", key, fault->text);
    }
    if (rc == 0)
        log_info("engine_ready", LOG_STR("model", worker->model.name),
                 LOG_STR("engine", opts.engine.info.name), LOG_U64("kv_blocks", opts.n_blocks),
                 LOG_U64("context", worker->model.context_length),
                 LOG_U64("load_ms", (clock_now_ns() - began_ns) / NS_PER_MS));
    return rc;
}
