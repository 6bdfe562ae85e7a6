/* SPDX-License-Identifier: Apache-2.0 */
/* The set-up of every command that computes: an open file, a team, packed weights, KV memory, an engine.
 *
 *     rig_load    file -> team -> model      once
 *     rig_start   arena -> engine            once per set of seats (bench changes them)
 *     rig_feed    tokens -> chunks -> steps
 *
 * Packing weights takes a while: it shows its progress. */
#include "clients/model/rig.h"

#include "base/err.h"
#include "base/progress.h"
#include "base/str.h"
#include "cache/kv/layout.h"
#include "clients/model/model_cli.h"
#include "compute/tensor/tune.h"

#include <signal.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static volatile sig_atomic_t interrupted_by; /* a signal's number */

static void rig_on_interrupt(int number)
{
    interrupted_by = number;
}

void rig_catch_interrupt(void)
{
    struct sigaction action = {.sa_handler = rig_on_interrupt, .sa_flags = (int)SA_RESETHAND};

    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGHUP, &action, NULL);
}

bool rig_is_interrupted(void)
{
    return interrupted_by != 0;
}

int rig_interrupt_status(void)
{
    return 128 + (interrupted_by != 0 ? interrupted_by : SIGINT);
}

/* ---- loading ---- */

static bool rig_on_progress(void *arg, uint64_t done_bytes, uint64_t total_bytes)
{
    struct progress *progress = arg;

    progress->total = total_bytes;
    progress_show(progress, done_bytes);
    return !rig_is_interrupted();
}

int rig_load(const struct rig_opts *opts, struct fault *fault, struct rig *out)
{
    struct rig rig = {.bf16 = opts->bf16, .converts_f16 = opts->converts_f16};
    struct progress progress = {0};
    struct model_opts model_opts = {.kernels = opts->kernels,
                                    .kv_type = opts->kv_type,
                                    .bf16 = opts->bf16,
                                    .converts_f16 = opts->converts_f16,
                                    .on_progress = rig_on_progress,
                                    .progress_arg = &progress};
    int rc = gguf_open(opts->path, fault, &rig.gguf);

    if (rc < 0)
        return rc;
    if (!opts->is_quiet)
        progress_begin(&progress, "packing weights", 0);
    rig.borrows_team = opts->team != NULL;
    rig.team = opts->team;
    if (rig.team == NULL)
        rc = team_new(&(struct team_opts){.n_threads = opts->n_threads}, &rig.team);
    if (rc < 0) {
        fault_set(fault, rc, "%s", err_text(rc));
    } else {
        struct tuned tuned;
        const struct kern_table *table = kern_table_get(opts->kernels ? opts->kernels : "auto");

        if (table != NULL)
            tensor_tune(rig.team, table, TUNE_AUTO, &tuned);
        rc = model_new(rig.gguf, rig.team, &model_opts, fault, &rig.model);
    }
    progress_end(&progress);
    if (rc < 0) {
        rig_close(&rig);
        return rc;
    }
    *out = rig;
    return 0;
}

int rig_tune(const struct rig_opts *opts, struct fault *fault, struct buf *table_out)
{
    const struct kern_table *table = kern_table_get(opts->kernels ? opts->kernels : "auto");
    struct team *team;
    struct tuned tuned;

    if (table == NULL)
        return fault_set(fault, E_UNSUPPORTED, "--kernels %s: not known, or not for this CPU", opts->kernels);
    int rc = team_new(&(struct team_opts){.n_threads = opts->n_threads}, &team);
    if (rc < 0)
        return fault_set(fault, rc, "%s", err_text(rc));
    tensor_tune(team, table, TUNE_WAIT, &tuned);
    team_free(team);
    tuned_table(&tuned, table_out);
    return 0;
}

static void rig_stop(struct rig *rig)
{
    engine_free(&rig->engine);
    free(rig->blocks);
    rig->blocks = NULL;
    if (rig->arena.base)
        mem_region_close(&rig->arena);
    rig->arena = (struct mem_region){0};
}

int rig_start(struct rig *rig, const struct rig_seats *seats, struct fault *fault)
{
    const struct kv_layout *layout = model_kv_layout(rig->model);
    uint32_t context = model_config(rig->model)->context_length;
    uint64_t n_blocks;
    int rc;

    rig_stop(rig);
    if (seats->n_tokens > context)
        return fault_set(fault, E_RANGE, "%u tokens are more than the model's context of %u", seats->n_tokens,
                         context);
    rig->per_sequence = (seats->n_tokens + layout->block_tokens - 1) / layout->block_tokens;
    rig->n_state = kv_layout_state_blocks(layout);
    n_blocks = (uint64_t)(rig->per_sequence + rig->n_state) * seats->n_sequences;
    if (n_blocks == 0 || n_blocks >= KV_BLOCK_NONE)
        return fault_set(fault, E_RANGE, "%u sequences of %u tokens", seats->n_sequences, seats->n_tokens);
    rig->batch_tokens = seats->batch_tokens;
    rc = mem_region_open(n_blocks * kv_layout_block_bytes(layout), false, false, "kv", &rig->arena);
    rig->blocks = calloc(n_blocks, sizeof(*rig->blocks));
    for (uint32_t i = 0; rig->blocks && i < n_blocks; i++)
        rig->blocks[i] = i;
    if (rc == 0 && rig->blocks == NULL)
        rc = E_NOMEM;
    rig->states = rig->blocks ? rig->blocks + (size_t)rig->per_sequence * seats->n_sequences : NULL;
    if (rc == 0)
        rc = engine_cpu_new(&(struct engine_cpu_opts){.model = rig->model,
                                                      .team = rig->team,
                                                      .kv_arena = rig->arena.base,
                                                      .n_blocks = (uint32_t)n_blocks,
                                                      .max_batch_tokens = seats->batch_tokens,
                                                      .max_items = seats->n_sequences,
                                                      .max_draws = seats->n_draws},
                            &rig->engine);
    if (rc < 0)
        return fault_set(fault, rc, "no room for %u sequences of %u tokens: %s", seats->n_sequences,
                         seats->n_tokens, err_text(rc));
    return 0;
}

void rig_close(struct rig *rig)
{
    rig_stop(rig);
    model_free(rig->model);
    if (rig->team && !rig->borrows_team)
        team_free(rig->team);
    if (rig->gguf)
        gguf_close(rig->gguf);
    memset(rig, 0, sizeof(*rig));
}

/* ---- running ---- */

void rig_put_state(const struct rig *rig, uint32_t sequence, struct engine_item *item,
                   struct kv_state_cut *cut)
{
    const kv_block_id *state = rig->states + (size_t)sequence * rig->n_state;

    if (rig->n_state == 0)
        return;
    *cut = (struct kv_state_cut){.n_tokens = item->n_tokens, .blocks = state};
    item->recurrent = item->position > 0 ? state : NULL;
    item->cuts = cut;
    item->n_cuts = 1;
}

int rig_feed(struct rig *rig, const struct rig_feed *feed, struct sample_result *result_out)
{
    struct sample_result result = {.id = TOKEN_NONE};

    for (uint32_t at = 0; at < feed->n_tokens;) {
        uint32_t left = feed->n_tokens - at;
        uint32_t n = left < rig->batch_tokens ? left : rig->batch_tokens;
        struct engine_item item = {.tokens = feed->tokens + at,
                                   .n_tokens = n,
                                   .position = feed->position + at,
                                   .blocks = rig->blocks + (size_t)feed->sequence * rig->per_sequence,
                                   .n_blocks = rig->per_sequence,
                                   .wants_token = n == left && feed->sample};
        struct kv_state_cut cut;
        int rc;

        rig_put_state(rig, feed->sequence, &item, &cut);
        if (rig_is_interrupted())
            return E_CANCELLED;
        if (feed->sample)
            item.sample = *feed->sample;
        rc = engine_step(&rig->engine, &(struct engine_batch){.items = &item, .n_items = 1}, &result);
        if (rc < 0)
            return rc;
        at += n;
    }
    *result_out = result;
    return 0;
}

/* ---- options ---- */

bool rig_parse_u32(const char *command, const char *option, const char *text, uint32_t max, uint32_t *out)
{
    uint64_t value;

    if (str_to_u64(bytes_str(text), &value) < 0 || value > max) {
        fprintf(stderr, "baton-model %s: --%s wants a number up to %u, not \"%s\"\n", command, option, max,
                text);
        return false;
    }
    *out = (uint32_t)value;
    return true;
}

bool rig_parse_f32(const char *command, const char *option, const char *text, float *out)
{
    double value;

    if (str_to_f64(bytes_str(text), &value) < 0 || value < 0 || value > 1e6) {
        fprintf(stderr, "baton-model %s: --%s wants a number, not \"%s\"\n", command, option, text);
        return false;
    }
    *out = (float)value;
    return true;
}

/* One of two words; true for the second. */
static bool parse_either(const char *command, const char *option, const char *text,
                         const char *const words[2], bool *out)
{
    for (int i = 0; i < 2; i++)
        if (strcmp(text, words[i]) == 0) {
            *out = i == 1;
            return true;
        }
    fprintf(stderr, "baton-model %s: --%s is %s or %s, not \"%s\"\n", command, option, words[0], words[1],
            text);
    return false;
}

bool rig_parse_kv(const char *command, const char *option, const char *text, enum kv_type *out)
{
    for (unsigned i = 0; i < KV_N_TYPES; i++)
        if (strcmp(text, kv_type_word((enum kv_type)i)) == 0) {
            *out = (enum kv_type)i;
            return true;
        }
    fprintf(stderr, "baton-model %s: --%s is %s, not \"%s\"\n", command, option, KV_TYPE_WORDS, text);
    return false;
}

static bool parse_math(const char *command, const char *text, enum bf16_math *out)
{
    static const char *const names[] = {
        [BF16_AUTO] = "auto", [BF16_TILES] = "tiles", [BF16_DOTS] = "dots", [BF16_EXACT] = "exact"};

    for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strcmp(text, names[i]) == 0) {
            *out = (enum bf16_math)i;
            return true;
        }
    fprintf(stderr, "baton-model %s: --bf16 is auto, tiles, dots or exact, not \"%s\"\n", command, text);
    return false;
}

bool rig_take_option(const char *command, int option, struct rig_opts *opts)
{
    static const char *const TYPES[] = {"no", "bf16"};

    switch (option) {
    case RIG_OPT_MODEL:
        opts->path = optarg;
        return true;
    case RIG_OPT_KV:
        return rig_parse_kv(command, "kv", optarg, &opts->kv_type);
    case RIG_OPT_THREADS:
        return rig_parse_u32(command, "threads", optarg, 1024, &opts->n_threads);
    case RIG_OPT_KERNELS:
        opts->kernels = optarg;
        return true;
    case RIG_OPT_BF16:
        return parse_math(command, optarg, &opts->bf16);
    case RIG_OPT_CONVERT:
        return parse_either(command, "convert-f16", optarg, TYPES, &opts->converts_f16);
    default:
        return false;
    }
}

bool rig_take_text_option(const char *command, int option, struct rig_text *text, struct rig_opts *opts)
{
    switch (option) {
    case RIG_OPT_TEXT:
        text->path = optarg;
        return true;
    case RIG_OPT_SPECIAL:
        text->is_special = true;
        return true;
    case RIG_OPT_CONTEXT:
        return rig_parse_u32(command, "context", optarg, 1u << 24, &text->context);
    case RIG_OPT_WINDOWS:
        return rig_parse_u32(command, "windows", optarg, UINT32_MAX, &text->max_windows);
    default:
        return rig_take_option(command, option, opts);
    }
}

bool rig_take_path(const char *command, int argc, char **argv, struct rig_opts *opts)
{
    if (opts->path != NULL && optind == argc)
        return true; /* --model */
    if (opts->path != NULL || optind != argc - 1) {
        fprintf(stderr, "baton-model %s: name one model file\n", command);
        return false;
    }
    opts->path = argv[optind];
    return true;
}
