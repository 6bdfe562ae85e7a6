/* SPDX-License-Identifier: Apache-2.0 */
/* baton-model bench: the speed of a model on this machine, beside the machine's limit.
 *
 *   pp512        a prompt of 512 tokens, with no context
 *   tg128        128 tokens sampled one at a time, with no context
 *   tg128@4096   the same after a context of 4096
 *   b32          32 sequences sampling together, over a context of 128
 *   b32@4096     the same over a context of 4096 (--depth)
 *
 * Each test runs once unmeasured and --repeat times by the clock.  The machine's limits are measured in the
 * same run, before and after the tests, because other load on a shared machine changes.  The better figure
 * counts, since other load can only lower it. */
#include "clients/model/bench_priv.h"

#include "base/err.h"
#include "base/str.h"
#include "clients/model/model_cli.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char NAME[] = "bench";

static const char HELP[] =
    "Usage: baton-model bench [OPTIONS] MODEL.gguf\n"
    "       baton-model bench --tune [--threads N] [--kernels NAME]\n"
    "Time prefill, decode and batches beside the machine's limits.\n"
    "\n"
    "      --pp LIST        prompt lengths (default 512; 0: none)\n"
    "      --tg LIST        tokens to draw, one sequence (default 128; 0: none)\n"
    "      --batch LIST     sequences that draw together (default: none)\n"
    "      --depth LIST     repeat --tg and --batch after contexts this long\n"
    "      --chunk N        most tokens of a prompt per step (default 512)\n"
    "      --repeat N       measured runs of each test (default 3)\n"
    "      --kv TYPE        keys and values: " RIG_KV_TYPES "\n"
    "  -t, --threads N      compute threads (default: all CPUs)\n"
    "      --kernels NAME   " RIG_KERNELS "\n"
    "      --bf16 MATH      BF16 weights times BF16 activations: tiles or dots, or F32: exact\n"
    "                       (default: auto, tiles with AMX, else dots)\n"
    "      --convert-f16 T  bf16: F16 weights are rounded to BF16 (default: no)\n"
    "      --tune           measure anew which variants of kernels and copies are fastest here, and\n"
    "                       print them; without a MODEL this is all\n"
    "      --json           one JSON object instead of a table\n"
    "  -h, --help           this text\n";

enum { MAX_LIST = 12, MAX_REPEAT = 100, MAX_CHUNK = 65536 };

struct list {
    uint32_t values[MAX_LIST];
    uint32_t n;
};

struct bench_args {
    struct rig_opts rig;
    struct list pp, tg, batch, depth;
    uint32_t chunk, repeat;
    bool is_json;
    bool is_tuned;
    bool is_help;
};

struct bench_result {
    char name[32];
    double median, min, max; /* tokens per second */
    double limit_fraction;
};

struct benching {
    const struct bench_args *args;
    struct rig *rig;
    const struct kern_table *table; /* that the model uses */
    struct tensor_limits limits;
    struct bench_work work;
    struct bench_test tests[BENCH_MAX_TESTS];
    struct bench_result results[BENCH_MAX_TESTS];
    uint32_t n_tests;
};

/* ---- the command line ---- */

enum option_id { OPT_PP = 256, OPT_TG, OPT_BATCH, OPT_DEPTH, OPT_CHUNK, OPT_REPEAT, OPT_JSON, OPT_TUNE };

static const struct option OPTIONS[] = {{"pp", required_argument, NULL, OPT_PP},
                                        {"tg", required_argument, NULL, OPT_TG},
                                        {"batch", required_argument, NULL, OPT_BATCH},
                                        {"depth", required_argument, NULL, OPT_DEPTH},
                                        {"chunk", required_argument, NULL, OPT_CHUNK},
                                        {"repeat", required_argument, NULL, OPT_REPEAT},
                                        RIG_OPTIONS,
                                        RIG_WEIGHT_OPTIONS,
                                        {"json", no_argument, NULL, OPT_JSON},
                                        {"tune", no_argument, NULL, OPT_TUNE},
                                        {"help", no_argument, NULL, 'h'},
                                        {NULL, 0, NULL, 0}};

/* "512,1024"; zeros are left out. */
static bool cmd_bench_parse_list(const char *option, const char *text, struct list *out)
{
    const char *at = text;

    out->n = 0;
    for (;;) {
        size_t len_bytes = strcspn(at, ",");
        uint64_t value;

        if (str_to_u64(bytes_of(at, len_bytes), &value) < 0 || value > 1u << 24 || out->n == MAX_LIST) {
            fprintf(stderr, "baton-model %s: --%s wants up to %d numbers like 128,512, not \"%s\"\n", NAME,
                    option, MAX_LIST, text);
            return false;
        }
        if (value > 0)
            out->values[out->n++] = (uint32_t)value;
        if (at[len_bytes] == '\0')
            return true;
        at += len_bytes + 1;
    }
}

static bool cmd_bench_take_option(int option, struct bench_args *args)
{
    switch (option) {
    case OPT_PP:
        return cmd_bench_parse_list("pp", optarg, &args->pp);
    case OPT_TG:
        return cmd_bench_parse_list("tg", optarg, &args->tg);
    case OPT_BATCH:
        return cmd_bench_parse_list("batch", optarg, &args->batch);
    case OPT_DEPTH:
        return cmd_bench_parse_list("depth", optarg, &args->depth);
    case OPT_CHUNK:
        return rig_parse_u32(NAME, "chunk", optarg, MAX_CHUNK, &args->chunk);
    case OPT_REPEAT:
        return rig_parse_u32(NAME, "repeat", optarg, MAX_REPEAT, &args->repeat);
    case OPT_JSON:
        args->is_json = true;
        return true;
    case OPT_TUNE:
        args->is_tuned = true;
        return true;
    case 'h':
        args->is_help = true;
        return true;
    default:
        return rig_take_option(NAME, option, &args->rig);
    }
}

static bool cmd_bench_parse(int argc, char **argv, struct bench_args *args)
{
    int option;

    *args = (struct bench_args){
        .rig.kv_type = KV_F16, .pp = {{512}, 1}, .tg = {{128}, 1}, .chunk = 512, .repeat = 3};
    while ((option = getopt_long(argc, argv, RIG_SHORT_OPTIONS, OPTIONS, NULL)) != -1)
        if (!cmd_bench_take_option(option, args))
            return false;
    if (args->is_help)
        return true;
    if (args->repeat == 0 || args->chunk == 0) {
        fprintf(stderr, "baton-model %s: --%s is at least 1\n", NAME, args->repeat == 0 ? "repeat" : "chunk");
        return false;
    }
    if (args->pp.n + (args->tg.n + args->batch.n) * (1 + args->depth.n) > BENCH_MAX_TESTS) {
        fprintf(stderr, "baton-model %s: more than %d tests\n", NAME, BENCH_MAX_TESTS);
        return false;
    }
    return (args->is_tuned && optind == argc) || rig_take_path(NAME, argc, argv, &args->rig);
}

/* ---- the runs ---- */

static void add_tests(struct benching *b, enum bench_kind kind, const struct list *list, uint32_t depth)
{
    for (uint32_t i = 0; i < list->n && b->n_tests < BENCH_MAX_TESTS; i++)
        b->tests[b->n_tests++] =
            (struct bench_test){.kind = kind, .n = list->values[i], .depth = depth, .chunk = b->args->chunk};
}

static void list_tests(struct benching *b)
{
    add_tests(b, BENCH_PREFILL, &b->args->pp, 0);
    add_tests(b, BENCH_DECODE, &b->args->tg, 0);
    add_tests(b, BENCH_BATCH, &b->args->batch, 0);
    for (uint32_t i = 0; i < b->args->depth.n; i++) {
        add_tests(b, BENCH_DECODE, &b->args->tg, b->args->depth.values[i]);
        add_tests(b, BENCH_BATCH, &b->args->batch, b->args->depth.values[i]);
    }
}

static int cmd_bench_by_value(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;

    return left < right ? -1 : left > right;
}

/* What the test would take at the limits seen before and after it. */
static double limit_s_between(const struct benching *b, const struct bench_test *test,
                              const struct tensor_limits *before, const struct tensor_limits *after)
{
    return (bench_limit_s(&b->work, before, test) + bench_limit_s(&b->work, after, test)) / 2;
}

static int run_test(struct benching *b, uint32_t index, struct fault *fault)
{
    const struct bench_test *test = &b->tests[index];
    struct bench_result *result = &b->results[index];
    uint32_t repeat = b->args->repeat;
    double rates[MAX_REPEAT], fractions[MAX_REPEAT], seconds;
    struct tensor_limits before, after;
    int rc = bench_prepare(b->rig, test, fault);

    bench_test_name(test, result->name);
    tensor_limits_glance(b->rig->team, b->table, &before);
    for (uint32_t i = 0; i < repeat && rc == 0; i++) {
        rc = bench_once(b->rig, test, &seconds);
        if (rc < 0)
            return fault_set(fault, rc, "%s: %s", result->name, err_text(rc));
        rates[i] = bench_tokens(test) / seconds;
        tensor_limits_glance(b->rig->team, b->table, &after);
        fractions[i] = limit_s_between(b, test, &before, &after) / seconds;
        before = after;
        fprintf(stderr, "%s %u/%u: %.2f tokens/s\n", result->name, i + 1, repeat, rates[i]);
    }
    if (rc < 0)
        return rc;
    qsort(rates, repeat, sizeof(rates[0]), cmd_bench_by_value);
    qsort(fractions, repeat, sizeof(fractions[0]), cmd_bench_by_value);
    result->limit_fraction = (fractions[(repeat - 1) / 2] + fractions[repeat / 2]) / 2;
    result->min = rates[0];
    result->max = rates[repeat - 1];
    result->median = (rates[(repeat - 1) / 2] + rates[repeat / 2]) / 2;
    return 0;
}

static void raise_to(double *limit, double seen)
{
    if (seen > *limit)
        *limit = seen;
}

static void measure_machine(struct benching *b)
{
    struct tensor_limits seen;

    fprintf(stderr, "measuring the machine\n");
    tensor_limits_measure(b->rig->team, b->table, &seen);
    raise_to(&b->limits.read_gbs, seen.read_gbs);
    raise_to(&b->limits.fp32_tflops, seen.fp32_tflops);
    raise_to(&b->limits.bf16_tflops, seen.bf16_tflops);
    raise_to(&b->limits.tiles_tflops, seen.tiles_tflops);
    raise_to(&b->limits.int8_tops, seen.int8_tops);
    raise_to(&b->limits.narrow_tops, seen.narrow_tops);
    b->limits.int8_by = seen.int8_by;
}

static int run_all(struct benching *b, struct fault *fault)
{
    int rc = 0;

    list_tests(b);
    for (uint32_t i = 0; i < b->n_tests && rc == 0; i++) /* before anything is measured */
        rc = bench_check(b->rig, &b->tests[i], fault);
    if (rc < 0)
        return rc;
    b->table = kern_table_get(model_kernels_name(b->rig->model));
    bench_work_of(b->rig, &b->work);
    measure_machine(b);
    for (uint32_t i = 0; i < b->n_tests && rc == 0; i++)
        rc = rig_is_interrupted() ? E_CANCELLED : run_test(b, i, fault);
    if (rc < 0)
        return rc;
    measure_machine(b);
    return 0;
}

/* ---- the report ---- */

static struct bytes model_name(const struct benching *b)
{
    const char *slash = strrchr(b->args->rig.path, '/');
    struct bytes name;

    if (gguf_get_str(b->rig->gguf, "general.name", NULL, &name) == 0 && name.len_bytes > 0)
        return name;
    return bytes_str(slash ? slash + 1 : b->args->rig.path);
}

static int cmd_bench_print_json(const struct benching *b)
{
    struct buf out = {0};
    int rc;

    buf_append_str(&out, "{\"model\":");
    json_put_str(&out, model_name(b));
    buf_append_str(&out, ",\"type\":");
    json_put_str(&out, bytes_str(model_config(b->rig->model)->weight_type));
    buf_printf(&out,
               ",\"threads\":%u,\"limits\":{\"read_gbs\":%.3f,\"fp32_tflops\":%.4f,\"bf16_tflops\":%.4f,",
               team_size(b->rig->team), b->limits.read_gbs, b->limits.fp32_tflops, b->limits.bf16_tflops);
    buf_printf(&out, "\"bf16_tiles_tflops\":%.4f,", b->limits.tiles_tflops);
    buf_printf(&out, "\"int8_tops\":%.4f,\"narrow_tops\":%.4f,\"int8_by\":\"%s\"},\"runs\":[",
               b->limits.int8_tops, b->limits.narrow_tops, b->limits.int8_by);
    for (uint32_t i = 0; i < b->n_tests; i++) {
        const struct bench_result *r = &b->results[i];

        buf_printf(&out, "%s{\"test\":\"%s\",\"median_tok_s\":%.3f,\"min_tok_s\":%.3f,\"max_tok_s\":%.3f,",
                   i ? "," : "", r->name, r->median, r->min, r->max);
        buf_printf(&out, "\"limit_fraction\":%.4f}", r->limit_fraction);
    }
    buf_append_str(&out, "]}\n");
    rc = out.is_bad ? E_NOMEM : 0;
    if (rc == 0)
        fwrite(out.data, 1, out.len_bytes, stdout);
    buf_fini(&out);
    return rc;
}

static int print_table(const struct benching *b)
{
    static const char *const math[] = {
        [BF16_TILES] = " by BF16 tiles", [BF16_DOTS] = " by BF16 dots", [BF16_EXACT] = ""};
    bool is_tiled = model_bf16_math(b->rig->model) == BF16_TILES;
    struct buf name = {0};

    json_put_str(&name, model_name(b)); /* a file may call itself anything, terminal escapes too */
    printf("%s, %s%s, %u threads, %s kernels\n", name.data ? (char *)name.data : "",
           model_config(b->rig->model)->weight_type, math[model_bf16_math(b->rig->model)],
           team_size(b->rig->team), model_kernels_name(b->rig->model));
    buf_fini(&name);
    printf("limits: read %.1f GB/s, fp32 %.3f TFLOPS, bf16 %.3f TFLOPS (%s), int8 %.3f TOPS (%s)",
           b->limits.read_gbs, b->limits.fp32_tflops,
           is_tiled ? b->limits.tiles_tflops : b->limits.bf16_tflops, is_tiled ? "tiles" : "dots",
           b->limits.int8_tops, b->limits.int8_by);
    if (b->limits.narrow_tops != b->limits.int8_tops)
        printf(", %.3f with weights of up to six bits", b->limits.narrow_tops);
    printf("\n\n");
    printf("%-14s %12s %12s %12s %9s\n", "test", "median t/s", "min", "max", "of limit");
    for (uint32_t i = 0; i < b->n_tests; i++) {
        const struct bench_result *r = &b->results[i];

        printf("%-14s %12.2f %12.2f %12.2f %8.1f%%\n", r->name, r->median, r->min, r->max,
               100 * r->limit_fraction);
    }
    return 0;
}

/* Where a JSON object is to come, stdout is its. */
static int cmd_bench_tune(const struct bench_args *args, struct fault *fault)
{
    struct buf table = {0};
    int rc = rig_tune(&args->rig, fault, &table);

    if (rc == 0)
        fprintf(args->is_json ? stderr : stdout, "%s\n", table.data != NULL ? (const char *)table.data : "");
    buf_fini(&table);
    return rc;
}

int cmd_bench(int argc, char **argv)
{
    struct bench_args args;
    struct rig rig = {0};
    struct benching benching = {.args = &args, .rig = &rig};
    struct fault fault = {0};
    int rc = 0;

    if (!cmd_bench_parse(argc, argv, &args))
        return cli_usage(NAME, NULL);
    if (args.is_help) {
        fputs(HELP, stdout);
        return cli_done(NAME);
    }
    rig_catch_interrupt();
    if (args.is_tuned)
        rc = cmd_bench_tune(&args, &fault);
    if (args.rig.path == NULL)
        return rc < 0 ? cli_failed(NAME, NULL, &fault) : cli_done(NAME);
    if (rc == 0)
        rc = rig_load(&args.rig, &fault, &rig);
    if (rc == 0)
        rc = run_all(&benching, &fault);
    if (rc == 0)
        rc = args.is_json ? cmd_bench_print_json(&benching) : print_table(&benching);
    rig_close(&rig);
    if (rc == E_CANCELLED)
        return rig_interrupt_status();
    return rc < 0 ? cli_failed(NAME, args.rig.path, &fault) : cli_done(NAME);
}
