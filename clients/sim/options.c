/* SPDX-License-Identifier: Apache-2.0 */
/* Every option is a row of one table, which also prints --help. */
#include "clients/sim/options.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/str.h"
#include "clients/common/cli.h"
#include "clients/sim/measured.h"
#include "fleet/picker/defaults.h"
#include "fleet/picker/picker.h"

enum kind { OPT_U32, OPT_U64, OPT_REAL, OPT_TIME, OPT_SECONDS, OPT_TEXT, OPT_FLAG };

struct option_row {
    const char *name, *value, *help; /* value NULL: a flag */
    enum kind kind;
    size_t at;
    double least, most;
};

#define AT(field) offsetof(struct sim_cli, field)

/* clang-format off */
static const struct option_row rows[] = {
    {NULL, NULL, "Load", OPT_FLAG, 0, 0, 0},
    {"--trace", "FILE", "a recorded trace: Mooncake's JSON lines or Azure's CSV; -: standard input", OPT_TEXT, AT(trace_path), 0, 0},
    {"--speed", "X", "play it X times as fast (default 1)", OPT_REAL, AT(replay.speed), 1e-3, 1e6},
    {"--replicas", "N", "play it N times at once, each with prefixes of its own (default 1)", OPT_U32, AT(replay.n_replicas), 1, 100000},
    {"--requests", "N", "end after N requests", OPT_U64, AT(replay.n_requests), 1, 1e12},
    {"--generate", "KIND", "instead of a trace: poisson, bursts, diurnal, steps, tides, mix or sessions (agents with tool waits)", OPT_TEXT, AT(generate_name), 0, 0},
    {"--rate", "N", "requests per second, the mean (default 1)", OPT_REAL, AT(generate.rate_per_s), 1e-6, 1e7},
    {"--duration", "SECONDS", "of the arrivals (default 600)", OPT_REAL, AT(generate.duration_s), 0.001, 1e8},
    {"--prompt", "TOKENS", "mean; of what is new in a turn (default 1000)", OPT_U32, AT(generate.prompt_tokens), 1, 1 << 20},
    {"--answer", "TOKENS", "mean (default 200)", OPT_U32, AT(generate.answer_tokens), 1, 1 << 20},
    {"--equal-lengths", NULL, "all prompts and answers have the mean length (default: exponential lengths)", OPT_FLAG, AT(generate.has_equal_lengths), 0, 0},
    {"--shared", "TOKENS", "at the beginning of every prompt (default 0)", OPT_U32, AT(generate.shared_tokens), 0, 1 << 20},
    {"--tenants", "N", "whose requests these are (default 1)", OPT_U32, AT(generate.n_tenants), 1, 1e6},
    {"--turns", "N", "of a session, the mean (default 8)", OPT_REAL, AT(generate.turns), 1, 1e4},
    {"--wait", "SECONDS", "from an answer to the next turn, the mean (default 5)", OPT_REAL, AT(generate.wait_s), 0, 1e6},
    {"--period", "SECONDS", "of steps and tides (default 3600)", OPT_REAL, AT(generate.period_s), 1, 1e8},
    {"--rate2", "N", "steps, tides and mix: requests per second of the second kind (default: --rate)", OPT_REAL, AT(generate.other_rate_per_s), 1e-6, 1e7},
    {"--prompt2", "TOKENS", "and its means (default 300)", OPT_U32, AT(generate.other_prompt_tokens), 1, 1 << 20},
    {"--answer2", "TOKENS", "(default 1000)", OPT_U32, AT(generate.other_answer_tokens), 1, 1 << 20},
    {"--two-tenants", NULL, "steps, tides and mix: the two kinds are requests of two tenants, and the report has a part for each and Jain's index of their tokens", OPT_FLAG, AT(generate.are_two_tenants), 0, 0},
    {"--via", "ROUTERS", "that requests of the first kind come to, in turn: 1 or 1,3 (default: all)", OPT_TEXT, AT(via), 0, 0},
    {"--via2", "ROUTERS", "and those of the second kind", OPT_TEXT, AT(via2), 0, 0},
    {"--cancel", "P", "this part of the clients may leave early, at a time drawn up to what the objectives allow", OPT_REAL, AT(sim.cancel_share), 0, 1},
    {"--seed", "N", "of everything drawn (default 1)", OPT_U64, AT(sim.seed), 0, 1.8e19},

    {NULL, NULL, "Fleet", OPT_FLAG, 0, 0, 0},
    {"--preset", "NAME", "70b (Llama-3 70B on 8 x H100, the default), mooncake (the settings of docs/simulator.md) or demo", OPT_TEXT, AT(preset), 0, 0},
    {"--prefill", "N", "prefill workers", OPT_U32, AT(sim.n_prefill), 0, PICKER_MAX_WORKERS},
    {"--decode", "N", "decode workers", OPT_U32, AT(sim.n_decode), 0, PICKER_MAX_WORKERS},
    {"--both", "N", "workers of the role both (default 0), with the step times of decode workers", OPT_U32, AT(sim.n_both), 0, PICKER_MAX_WORKERS},
    {"--seats", "N", "sequences that a worker runs at once, if it decodes", OPT_U32, AT(sim.max_seqs), 1, 1000000},
    {"--kv-tokens", "N", "KV memory of a worker", OPT_U64, AT(sim.kv_tokens), 1, 1e12},
    {"--disk-tokens", "N", "disk tier of a worker (default 0: none)", OPT_U64, AT(sim.disk_tokens), 0, 1e13},
    {"--disk-rate", "BYTES", "per second that a disk reads", OPT_REAL, AT(sim.disk_bytes_per_s), 0, 1e15},
    {"--nic", "BYTES", "per second and direction of a worker's NIC; 0: without limit", OPT_REAL, AT(sim.nic_bytes_per_s), 0, 1e15},
    {"--kv-bytes", "N", "of one token", OPT_REAL, AT(sim.kv_bytes_per_token), 0, 1e9},
    {"--layers", "N", "of the model: a hand-off ends one layer after the prompt", OPT_REAL, AT(sim.n_layers), 1, 10000},
    {"--latency", "TIME", "of a message", OPT_TIME, AT(sim.latency_ns), 0, 3600},
    {"--block", "TOKENS", "in a block (as in the trace: 512)", OPT_U32, AT(sim.block_tokens), 1, 1 << 20},
    {"--chunk", "TOKENS", "most prompt tokens of a step beside decoding sequences", OPT_U32, AT(sim.chunk_tokens), 16, 1 << 20},
    {"--batch", "TOKENS", "most prompt tokens of a step without them; 0: whole prompts", OPT_U32, AT(sim.batch_tokens), 0, 1 << 24},
    {"--sched-itl", "TIME", "the workers' own objective for a step with both", OPT_TIME, AT(sim.sched_itl_ns), 0, 3600},
    {"--prefill-times", "S,ROW,CTX,TOKEN,PAIR", "seconds of a prefill worker's step, and for each decoding row, context token, prompt token, attended pair", OPT_SECONDS, AT(sim.prefill_times), 0, 0},
    {"--decode-times", "S,ROW,CTX,TOKEN,PAIR", "the same of a decode worker", OPT_SECONDS, AT(sim.decode_times), 0, 0},
    {"--costs", "learned|exact", "what workers know of their speed: what the scheduler's cost model learns from their steps, or their true times (default learned; preset mooncake: exact)", OPT_TEXT, AT(costs), 0, 0},
    {"--in-order", NULL, "a prompt that waits for pushed blocks is not passed by later ones", OPT_FLAG, AT(sim.in_order), 0, 0},
    {"--measured", "FILE", "step times of both roles as a worker learned them: `batonctl status --json` of it", OPT_TEXT, AT(measured_path), 0, 0},
    {"--rigid", NULL, "decode workers compute no prompts", OPT_FLAG, AT(sim.decodes_only), 0, 0},
    {"--slow", "X", "the first worker of each role takes X times as long for its steps (default 1)", OPT_REAL, AT(sim.slow_factor), 0.01, 1000},
    {"--host-cores", "N", "workers of a host share N cores (default 0: each worker has all that it needs)", OPT_U32, AT(sim.host_cores), 0, 1 << 20},
    {"--host-workers", "N", "with --host-cores: workers on a host (default: all on one)", OPT_U32, AT(sim.host_workers), 1, PICKER_MAX_WORKERS},
    {"--host-slice", "TIME", "with --host-cores: time after which a worker gives its core to others that wait (default 4ms); 0: each gets an even part of the time", OPT_TIME, AT(sim.slice_ns), 0, 60},
    {"--core-drag", "X", "with --host-cores: the part by which each core is slower while all of them compute, as they share caches and memory (default 0)", OPT_REAL, AT(sim.core_drag), 0, 10},
    {"--token-cpu", "TIME", "with --host-cores: processor time of an answer's token outside of the step, for messages, router, client (default 0)", OPT_TIME, AT(sim.token_cpu_ns), 0, 60},
    {"--request-cpu", "TIME", "with --host-cores: processor time of a request when it arrives, before its prompt is computed (default 0)", OPT_TIME, AT(sim.request_cpu_ns), 0, 60},
    {"--noise", "X", "relative standard deviation of the time of a step; workers learn their speed from such steps (default 0)", OPT_REAL, AT(sim.step_noise), 0, 10},
    {"--start", "TIME", "from a worker's start to its first request", OPT_TIME, AT(sim.start_ns), 0, 86400},
    {"--crash-every", "SECONDS", "mean time between crashes of any worker (default 0: none); an error if they come too fast for any answer", OPT_REAL, AT(sim.crash_every_s), 0, 1e9},

    {NULL, NULL, "Router", OPT_FLAG, 0, 0, 0},
    {"--routers", "N", "over the same workers, each with every N-th request (default 1)", OPT_U32, AT(sim.n_routers), 1, SIM_MAX_ROUTERS},
    {"--policy", "NAME", "ours (the router's), random, round-robin, load, cache-aware or global", OPT_TEXT, AT(policy), 0, 0},
    {"--prefix-fetch", "WHICH", "prefix fetches between workers: off, auto or always (default " DEFAULT_ROUTER_PREFIX_FETCH ")", OPT_TEXT, AT(prefix_fetch), 0, 0},
    {"--ttft", "TIME", "objective for the time to first token", OPT_TIME, AT(sim.ttft_slo_ns), 0.001, 86400},
    {"--itl", "TIME", "objective for the time between tokens", OPT_TIME, AT(sim.itl_slo_ns), 0.0001, 86400},
    {"--class", "WORDS", "the class of the first kind of requests, in the words of router.conf: 'ttft=300ms priority=10'", OPT_TEXT, AT(class), 0, 0},
    {"--class2", "WORDS", "that of the second kind: 'priority=0 itl=200ms may-be-paused=1min'; without it both kinds have one class.  In a trace, requests with a class but \"default\" are of the second kind", OPT_TEXT, AT(class2), 0, 0},
    {"--refuse", "WHEN", "predicted: at once, when a first token is expected too late; timeout: after --queue-timeout", OPT_TEXT, AT(refuse), 0, 0},
    {"--queue", "N", "requests that may wait", OPT_U32, AT(sim.queue_max), 0, 4e9},
    {"--queue-timeout", "TIME", "how long", OPT_TIME, AT(sim.queue_timeout_ns), 0, 86400},
    {"--local-tokens", "N", "prompts that the decode worker computes itself", OPT_U32, AT(sim.local_prefill_tokens), 0, 1e7},
    {"--local-time", "TIME", "and those that take it no longer", OPT_TIME, AT(sim.local_prefill_ns), 0, 3600},
    {"--index", "N", "blocks that the router remembers", OPT_U32, AT(sim.index_entries), 1000, 1e8},
    {"--roles", "WHICH", "fixed, or auto: the policy of placement.roles (default " DEFAULT_ROUTER_ROLES ")", OPT_TEXT, AT(roles), 0, 0},
    {"--roles-min", "N", "auto: workers of each role (default " DEFAULT_TEXT(DEFAULT_ROUTER_ROLES_MIN) ")", OPT_U32, AT(sim.roles_least), 1, 1024},
    {"--roles-period", "TIME", "auto: between two changes (default " DEFAULT_TEXT(DEFAULT_ROUTER_ROLES_PERIOD_MIN) "min)", OPT_TIME, AT(sim.roles_period_ns), 1, 86400},
    {"--heartbeat", "TIME", "between two reports of a worker", OPT_TIME, AT(sim.heartbeat_ns), 0.001, 60},
    {"--report-delay", "TIME", "until a report is there", OPT_TIME, AT(sim.report_delay_ns), 0, 60},

    {NULL, NULL, "Output", OPT_FLAG, 0, 0, 0},
    {"--json", NULL, "the report as JSON", OPT_FLAG, AT(is_json), 0, 0},
    {"--columns", "N", "of the chart over time (default 60)", OPT_U32, AT(sim.n_columns), 1, 100000},
};
/* clang-format on */

static const char *const policies[] = {
#define X(policy, word) word,
    SIM_POLICY_TABLE(X)
#undef X
};
static const char *const loads[] = {
#define X(name, text, most) text,
    GENERATE_KIND_TABLE(X)
#undef X
};
#define LOAD_NAME(name, text, most) " " text
#define LOAD_NAMES                  GENERATE_KIND_TABLE(LOAD_NAME)
static const char *const refusals[] = {"predicted", "timeout"};
static const char *const FETCHES[] = {"off", "auto", "always"};

const char *sim_policy_name(enum sim_policy policy)
{
    return policies[policy];
}

/* ---- presets ---- */

static void preset_router(struct sim_opts *sim)
{
    *sim = (struct sim_opts){.costs = SIM_COSTS_LEARNED,
                             .n_prefill = 4,
                             .n_decode = 4,
                             .block_tokens = 512,
                             .max_seqs = 256,
                             .chunk_tokens = 512,
                             .sched_itl_ns = 50 * NS_PER_MS,
                             .n_layers = 80,
                             .latency_ns = 100 * NS_PER_US,
                             .slice_ns = 4 * NS_PER_MS,
                             .heartbeat_ns = NS_PER_S,
                             .ttft_slo_ns = DEFAULT_ROUTER_TTFT_MS * NS_PER_MS,
                             .itl_slo_ns = DEFAULT_ROUTER_ITL_MS * NS_PER_MS,
                             .queue_timeout_ns = DEFAULT_ROUTER_QUEUE_TIMEOUT_S * NS_PER_S,
                             .local_prefill_ns = DEFAULT_ROUTER_LOCAL_PREFILL_MS * NS_PER_MS,
                             .refuses_early = strcmp(DEFAULT_ROUTER_REFUSE, refusals[0]) == 0,
                             .queue_max = DEFAULT_ROUTER_QUEUE_MAX,
                             .local_prefill_tokens = DEFAULT_ROUTER_LOCAL_PREFILL_TOKENS,
                             .index_entries = DEFAULT_ROUTER_INDEX_ENTRIES,
                             .roles_least = DEFAULT_ROUTER_ROLES_MIN,
                             .roles_period_ns = DEFAULT_ROUTER_ROLES_PERIOD_MIN * 60 * NS_PER_S,
                             .seed = 1,
                             .n_columns = 60};
}

static void preset_70b(struct sim_opts *sim)
{
    static const struct sim_roofline h100x8 = {.parameters = 70.6e9,
                                               .layers = 80,
                                               .hidden = 8192,
                                               .kv_bytes_per_token = 327680,
                                               .weight_bytes = 2,
                                               .flops = 8 * 989e12,
                                               .bandwidth = 8 * 3.35e12,
                                               .compute_share = 0.75,
                                               .bandwidth_share = 0.75,
                                               .layer_s = 60e-6};

    sim->prefill_times = sim->decode_times = sim_times_roofline(&h100x8);
    sim->kv_bytes_per_token = h100x8.kv_bytes_per_token;
    sim->kv_tokens = 1200000; /* 640 GB less the weights and a tenth */
    sim->nic_bytes_per_s = 50e9;
    sim->batch_tokens = 8192;
}

/* Only prefill limits, as in the paper's comparison of policies: FLOP(n) = l (a n^2 d + b n d^2) with a = 4, b
 * = 22, l = 80, d = 8192 at 1,240 TFLOP/s, and 20 ms. */
static void preset_mooncake(struct sim_opts *sim)
{
    const double flops = 1240e12, layers = 80, d = 8192;

    sim->costs = SIM_COSTS_EXACT;
    sim->n_prefill = sim->n_decode = 8;
    sim->prefill_times = (struct sim_times){
        .step_s = 0.02, .token_s = layers * 22 * d * d / flops, .pair_s = 2 * layers * 4 * d / flops};
    sim->decode_times = (struct sim_times){.step_s = 0.01, .token_s = 1};
    sim->decodes_only = sim->in_order = true;
    sim->kv_tokens = 3000000;
    sim->max_seqs = 100000;
    sim->kv_bytes_per_token = 327680;
    sim->nic_bytes_per_s = 80e9;
    sim->ttft_slo_ns = 30 * NS_PER_S;
    sim->itl_slo_ns = 200 * NS_PER_MS;
    sim->refuses_early = false;
    sim->queue_max = 1000000;
    sim->queue_timeout_ns = 600 * NS_PER_S;
    sim->local_prefill_tokens = 0;
    sim->local_prefill_ns = 0;
    sim->latency_ns = 0;
}

static void preset_demo(struct sim_opts *sim)
{
    sim->prefill_times = sim->decode_times =
        (struct sim_times){.step_s = 2e-3, .row_s = 5e-4, .token_s = 2e-4, .context_s = 1e-7, .pair_s = 1e-8};
    sim->kv_bytes_per_token = 12288;
    sim->kv_tokens = 100000;
    sim->block_tokens = 32;
    sim->max_seqs = 32;
    sim->n_layers = 8;
    sim->batch_tokens = 544;
}

static bool set_preset(struct sim_cli *cli)
{
    preset_router(&cli->sim);
    if (strcmp(cli->preset, "70b") == 0)
        preset_70b(&cli->sim);
    else if (strcmp(cli->preset, "mooncake") == 0)
        preset_mooncake(&cli->sim);
    else if (strcmp(cli->preset, "demo") == 0)
        preset_demo(&cli->sim);
    else
        return false;
    return true;
}

/* ---- reading ---- */

static void sim_options_print_help(void)
{
    printf("usage: %s [OPTION]... --trace FILE | --generate KIND\n"
           "Replays a load against a simulated fleet, placed by the router's own code, and reports.\n",
           SIM_NAME);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char left[64];

        if (rows[i].name == NULL) {
            printf("\n%s\n", rows[i].help);
            continue;
        }
        snprintf(left, sizeof(left), "%s%s%s", rows[i].name, rows[i].value ? " " : "",
                 rows[i].value ? rows[i].value : "");
        printf("  %-26s %s\n", left, rows[i].help);
    }
    printf("\nThe same options, load and seed give the same report, byte for byte.  See %s(1).\n", SIM_NAME);
}

static bool read_times(const char *text, struct sim_times *out)
{
    double *fields[] = {&out->step_s, &out->row_s, &out->context_s, &out->token_s, &out->pair_s};
    struct bytes all = bytes_str(text);
    size_t at = 0;

    for (size_t i = 0; i < 5; i++) {
        size_t comma = bytes_find(all, bytes_str(","), at), end = comma == SIZE_MAX ? all.len_bytes : comma;

        if (at > all.len_bytes || (i < 4) != (comma != SIZE_MAX) ||
            str_to_f64(bytes_of(all.data + at, end - at), fields[i]) < 0 || *fields[i] < 0 ||
            *fields[i] > 1e3)
            return false;
        at = end + 1;
    }
    return true;
}

static bool read_row(const struct option_row *row, const char *text, struct sim_cli *cli)
{
    void *at = (char *)cli + row->at;
    uint64_t number = 0;
    double real = 0;

    switch (row->kind) {
    case OPT_FLAG:
        *(bool *)at = true;
        return true;
    case OPT_TEXT:
        *(const char **)at = text;
        return true;
    case OPT_SECONDS:
        if (!read_times(text, at))
            return complain_usage(SIM_NAME, "%s: five numbers of seconds, separated by commas", row->name) ==
                   0;
        return true;
    case OPT_REAL:
        if (!option_f64(SIM_NAME, row->name, text, &real))
            return false;
        *(double *)at = real;
        break;
    case OPT_TIME:
        if (!option_duration(SIM_NAME, row->name, text, at))
            return false;
        real = (double)*(uint64_t *)at / 1e9;
        break;
    case OPT_U32:
    case OPT_U64:
        if (!option_u64(SIM_NAME, row->name, text, &number))
            return false;
        real = (double)number;
        if (row->kind == OPT_U64)
            *(uint64_t *)at = number;
        else
            *(uint32_t *)at = number < UINT32_MAX ? (uint32_t)number : UINT32_MAX;
        break;
    }
    if (real < row->least || real > row->most) {
        complain_usage(SIM_NAME, "%s: %s is not between %g and %g", row->name, text, row->least, row->most);
        return false;
    }
    return true;
}

static const struct option_row *find_row(const char *name)
{
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (rows[i].name != NULL && strcmp(rows[i].name, name) == 0)
            return &rows[i];
    return NULL;
}

static int index_of(const char *text, const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(text, names[i]) == 0)
            return (int)i;
    return -1;
}

/* Two passes: the preset first, so that the other options change it at any position. */
static bool sim_options_read_all(int argc, char **argv, struct sim_cli *cli, bool is_preset)
{
    for (int i = 1; i < argc; i++) {
        const struct option_row *row = find_row(argv[i]);
        bool wants_value;

        if (row == NULL)
            return complain_usage(SIM_NAME, "%s: unknown option", argv[i]) == 0;
        wants_value = row->kind != OPT_FLAG;
        if (wants_value && i + 1 == argc)
            return complain_usage(SIM_NAME, "%s: wants a value", argv[i]) == 0;
        i += wants_value;
        if ((row->at == AT(preset)) == is_preset && !read_row(row, argv[i], cli))
            return false;
    }
    return true;
}

/* An option of the load that was not chosen would do nothing.  False after an error message. */
static bool check_load_options(int argc, char **argv, const struct sim_cli *cli)
{
    for (int i = 1; i < argc; i++) {
        const struct option_row *row = find_row(argv[i]);
        bool is_of_trace = row->at == AT(replay.speed) || row->at == AT(replay.n_replicas);
        bool is_of_generate = (row->at >= AT(generate) && row->at < AT(generate) + sizeof(cli->generate)) ||
                              row->at == AT(via) || row->at == AT(via2);

        if (cli->trace_path != NULL ? is_of_generate : is_of_trace) {
            complain_usage(SIM_NAME, "%s: it is an option of %s", argv[i],
                           is_of_trace ? "--trace" : "--generate");
            return false;
        }
        i += row->kind != OPT_FLAG;
    }
    return true;
}

static bool check_load(struct sim_cli *cli)
{
    int kind = cli->generate_name != NULL ? index_of(cli->generate_name, loads, ARRAY_LEN(loads)) : 0;

    if ((cli->trace_path == NULL) == (cli->generate_name == NULL)) {
        complain_usage(SIM_NAME, "one load is needed: --trace FILE or --generate KIND");
        return false;
    }
    if (kind < 0) {
        complain_usage(SIM_NAME, "--generate: %s is none of" LOAD_NAMES, cli->generate_name);
        return false;
    }
    cli->generate.kind = (enum generate_kind)kind;
    cli->generate.block_tokens = cli->sim.block_tokens;
    cli->generate.seed = cli->sim.seed;
    cli->generate.n_requests = cli->replay.n_requests;
    if (cli->generate.other_rate_per_s <= 0)
        cli->generate.other_rate_per_s = cli->generate.rate_per_s;
    return true;
}

/* The options whose values are words. False after an error message. */
static bool sim_options_choose(struct sim_cli *cli)
{
    int policy = index_of(cli->policy, policies, ARRAY_LEN(policies)),
        prefix_fetch = index_of(cli->prefix_fetch, FETCHES, ARRAY_LEN(FETCHES));

    if (policy < 0 || prefix_fetch < 0) {
        complain_usage(SIM_NAME, policy < 0 ? "--policy: %s is unknown" : "--prefix-fetch: %s is unknown",
                       policy < 0 ? cli->policy : cli->prefix_fetch);
        return false;
    }
    if (cli->refuse != NULL && index_of(cli->refuse, refusals, ARRAY_LEN(refusals)) < 0) {
        complain_usage(SIM_NAME, "--refuse: %s is neither predicted nor timeout", cli->refuse);
        return false;
    }
    if (cli->refuse != NULL)
        cli->sim.refuses_early = index_of(cli->refuse, refusals, ARRAY_LEN(refusals)) == 0;
    if (cli->costs != NULL && strcmp(cli->costs, "learned") != 0 && strcmp(cli->costs, "exact") != 0) {
        complain_usage(SIM_NAME, "--costs: %s is neither learned nor exact", cli->costs);
        return false;
    }
    if (cli->costs != NULL)
        cli->sim.costs = strcmp(cli->costs, "exact") == 0 ? SIM_COSTS_EXACT : SIM_COSTS_LEARNED;
    if (strcmp(cli->roles, "auto") != 0 && strcmp(cli->roles, "fixed") != 0) {
        complain_usage(SIM_NAME, "--roles: %s is none of fixed, auto", cli->roles);
        return false;
    }
    cli->sim.has_auto_roles = strcmp(cli->roles, "auto") == 0;
    cli->sim.policy = (enum sim_policy)policy;
    cli->sim.prefix_fetch = (enum picker_fetch)prefix_fetch;
    return true;
}

static bool define_class(struct sim_cli *cli, const char *option, const char *name, const char *words)
{
    struct buf text = {0};
    struct fault fault = {0};
    bool is_good;

    buf_printf(&text, "%s %s", name, words);
    is_good = !text.is_bad && picker_classes_add(&cli->sim.classes, buf_view(&text), &fault) == 0;
    buf_fini(&text);
    if (!is_good)
        complain_usage(SIM_NAME, "%s: %s", option, fault.text);
    return is_good;
}

/* Numbers from 1, separated by commas, as bits. */
static bool read_routers(const char *option, const char *text, uint32_t n_routers, uint32_t *out)
{
    struct bytes all = bytes_str(text);

    for (size_t at = 0; at <= all.len_bytes;) {
        size_t comma = bytes_find(all, bytes_str(","), at), end = comma == SIZE_MAX ? all.len_bytes : comma;
        uint64_t number;

        if (str_to_u64(bytes_of(all.data + at, end - at), &number) < 0 || number < 1 || number > n_routers)
            return complain_usage(SIM_NAME, "%s: %s: routers have numbers from 1 to %u (--routers)", option,
                                  text, n_routers) == 0;
        *out |= 1u << (number - 1);
        at = end + 1;
    }
    return true;
}

/* The tenants and routers of the two kinds.  False after an error message. */
static bool sim_options_route(struct sim_cli *cli)
{
    uint32_t n_routers = cli->sim.n_routers > 0 ? cli->sim.n_routers : 1;

    if (cli->generate.are_two_tenants) {
        cli->generate.marks_kinds = true;
        cli->sim.n_kinds = 2;
    }
    return (cli->via == NULL || read_routers("--via", cli->via, n_routers, &cli->generate.routers[0])) &&
           (cli->via2 == NULL || read_routers("--via2", cli->via2, n_routers, &cli->generate.routers[1]));
}

/* The classes of the two kinds.  False after an error message. */
static bool sim_options_define(struct sim_cli *cli)
{
    picker_classes_init(&cli->sim.classes, cli->sim.ttft_slo_ns, cli->sim.itl_slo_ns);
    if (cli->class != NULL && !define_class(cli, "--class", "default", cli->class))
        return false;
    if (cli->class2 != NULL && !define_class(cli, "--class2", "second", cli->class2))
        return false;
    cli->generate.marks_kinds = cli->replay.marks_kinds = cli->class2 != NULL;
    return true;
}

int sim_options_read(int argc, char **argv, struct sim_cli *cli, int *status_out)
{
    struct fault fault = {0};

    *cli = (struct sim_cli){.replay = {.speed = 1, .n_replicas = 1},
                            .generate = {.rate_per_s = 1,
                                         .duration_s = 600,
                                         .prompt_tokens = 1000,
                                         .answer_tokens = 200,
                                         .period_s = 3600,
                                         .other_prompt_tokens = 300,
                                         .other_answer_tokens = 1000,
                                         .turns = 8,
                                         .wait_s = 5},
                            .policy = "ours",
                            .preset = "70b",
                            .prefix_fetch = DEFAULT_ROUTER_PREFIX_FETCH,
                            .roles = DEFAULT_ROUTER_ROLES};
    *status_out = EXIT_USAGE;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") != 0 && strcmp(argv[i], "-h") != 0 && strcmp(argv[i], "--version") != 0)
            continue;
        if (strcmp(argv[i], "--version") == 0)
            printf("%s %s\n", SIM_NAME, PACKAGE_VERSION);
        else
            sim_options_print_help();
        *status_out = finish_output(SIM_NAME);
        return 0;
    }
    if (!sim_options_read_all(argc, argv, cli, true))
        return 0;
    if (!set_preset(cli)) {
        complain_usage(SIM_NAME, "--preset: %s is none of 70b, mooncake, demo", cli->preset);
        return 0;
    }
    if (!sim_options_read_all(argc, argv, cli, false))
        return 0;
    if (!sim_options_choose(cli))
        return 0;
    if (cli->measured_path != NULL && measured_load(cli->measured_path, &fault, &cli->sim.decode_times) < 0) {
        *status_out = complain(SIM_NAME, "%s", fault.text);
        return 0;
    }
    if (cli->measured_path != NULL)
        cli->sim.prefill_times = cli->sim.decode_times;
    return sim_options_define(cli) && sim_options_route(cli) && check_load(cli) &&
           check_load_options(argc, argv, cli);
}
