/* SPDX-License-Identifier: Apache-2.0 */
/* The table of `baton-bench kv`.
 *
 *     tcp        two nodes, plain, N connections       iperf3 -P N (without it: as the next)
 *     tcp_arena  the same                              sockets, N connections, between the same arenas
 *     tls        two nodes, encrypted, N connections   AES-256-GCM records sealed by one core
 *     shm        two nodes, shared memory              memcpy, one thread
 *     rdma       where the address has an RDMA port    as tcp_arena
 *
 * iperf3 sends one buffer that stays in the cache, and discards what it receives.  KV lies in memory at both
 * ends.  So tcp has both references.  The reference of tls is sealing alone.  Beside it stands the bound for
 * cores that also open, send and receive (kv_bound.c).
 *
 * The table also shows the processor time of both transport threads: the cost of a byte at each end, and the
 * share of the transfer that the busier thread ran.  Other load hardly changes the cost.  Near 100 % the two
 * threads overlap, and only a cheaper byte makes the transfer faster.  Below that, a thread waits.
 *
 * A round measures the reference right before the transport, so other load on the machine affects both alike.
 * The table shows medians, of the speeds and of the rounds' ratios. */
#include <getopt.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem_copy.h"
#include "clients/bench/kv.h"
#include "clients/bench/options.h"
#include "clients/bench/stats.h"
#include "clients/common/cli.h"

struct ends {                     /* cost of a transfer in processor time */
    struct series from_ns, to_ns; /* processor time of the transport threads for a byte */
    struct series busy;           /* share of the transfer that the busier thread ran */
};

struct row {
    const char *name;
    const char *reference;
    double gbs, reference_gbs, fraction;
    double bound_gbs;            /* 0: the row has none */
    double from_ns, to_ns, busy; /* see struct ends */
};

void kv_die(const char *format, ...)
{
    va_list args;

    fprintf(stderr, "%s: ", BENCH_NAME);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    exit(EXIT_FAILED);
}

static double kv_main_median(struct series *series)
{
    double value = series_percentile(series, 0.5);

    if (series->is_bad)
        kv_die("out of memory");
    series_fini(series);
    return value;
}

static void add_ends(struct ends *ends, const struct kv_move *move, size_t total_bytes)
{
    uint64_t most_ns = move->used_ns[0] > move->used_ns[1] ? move->used_ns[0] : move->used_ns[1];

    series_add(&ends->from_ns, (double)move->used_ns[0] / (double)total_bytes);
    series_add(&ends->to_ns, (double)move->used_ns[1] / (double)total_bytes);
    series_add(&ends->busy, (double)most_ns / (double)move->took_ns);
}

struct line { /* of the table */
    const char *name;
    enum kv_kind kind;
    const char *reference;
    uint64_t (*reference_ns)(const struct kv_bench *bench);
    bool is_of_iperf3;
};

/* False: this kind is not available here. */
static bool kv_main_measure(const struct kv_bench *bench, const struct line *line, struct row *out)
{
    struct series gbs = {0}, reference_gbs = {0}, fractions = {0}, bounds = {0};
    struct row row = {.name = line->name, .reference = line->reference};
    struct ends ends = {0};
    struct kv_pair *pair = kv_pair_open(bench, line->kind);

    if (pair == NULL)
        return false;
    kv_pair_move(pair, bench); /* connects, and touches all pages for the first time */
    for (unsigned i = 0; i < bench->n_rounds; i++) {
        uint64_t limit_ns = line->reference_ns(bench);

        if (limit_ns == 0)
            kv_die("%s could not be measured", line->reference);
        struct kv_move move = kv_pair_move(pair, bench);
        series_add(&reference_gbs, (double)bench->total_bytes / (double)limit_ns);
        series_add(&gbs, (double)bench->total_bytes / (double)move.took_ns);
        series_add(&fractions, (double)limit_ns / (double)move.took_ns);
        add_ends(&ends, &move, bench->total_bytes);
        if (line->kind == KV_TLS)
            series_add(&bounds, kv_bound_tls(bench));
    }
    kv_pair_close(pair);
    row.gbs = kv_main_median(&gbs);
    row.reference_gbs = kv_main_median(&reference_gbs);
    row.fraction = kv_main_median(&fractions);
    row.bound_gbs = kv_main_median(&bounds);
    row.from_ns = kv_main_median(&ends.from_ns);
    row.to_ns = kv_main_median(&ends.to_ns);
    row.busy = kv_main_median(&ends.busy);
    *out = row;
    return true;
}

static void kv_main_print_row(const struct row *row)
{
    printf("%-9s %6.2f GB/s   %5.1f %% of %6.2f GB/s   %s", row->name, row->gbs, 100 * row->fraction,
           row->reference_gbs, row->reference);
    if (row->bound_gbs > 0)
        printf(" (bound: %.2f GB/s)", row->bound_gbs);
    printf("; from %.3f, to %.3f ns a byte, busy %.0f %%\n", row->from_ns, row->to_ns, 100 * row->busy);
    fflush(stdout);
}

static void add_json(json_t *root, const struct row *row)
{
    json_t *object = json_pack("{s:f, s:f, s:f, s:s}", "gbs", row->gbs, "reference_gbs", row->reference_gbs,
                               "fraction", row->fraction, "reference", row->reference);

    json_object_set_new(object, "from_ns_per_byte", json_real(row->from_ns));
    json_object_set_new(object, "to_ns_per_byte", json_real(row->to_ns));
    json_object_set_new(object, "busy", json_real(row->busy));
    if (row->bound_gbs > 0)
        json_object_set_new(object, "bound_gbs", json_real(row->bound_gbs));
    json_object_set_new(root, row->name, object);
}

static void open_arenas(struct kv_bench *bench)
{
    for (unsigned i = 0; i < 2; i++)
        if (mem_region_open(bench->total_bytes, true, true, "baton-bench", &bench->arenas[i]) != 0)
            kv_die("no memory for two arenas of %zu MiB", bench->total_bytes >> 20);
    for (size_t at = 0; at < bench->total_bytes; at += sizeof(uint64_t)) {
        uint64_t word = at * UINT64_C(0x9e3779b97f4a7c15);

        memcpy((uint8_t *)bench->arenas[0].base + at, &word, sizeof(word));
    }
    memset(bench->arenas[1].base, 0, bench->total_bytes);
}

static const struct line lines[] = {
    {"tcp", KV_TCP, "iperf3", kv_reference_iperf3, true},
    {"tcp_arena", KV_TCP, "sockets between the same arenas", kv_reference_sockets, false},
    {"tls", KV_TLS, "AES-256-GCM records, one core", kv_reference_seal, false},
    {"shm", KV_SHM, "memcpy, one core", kv_reference_memcpy, false},
    {"rdma", KV_RDMA, "sockets between the same arenas", kv_reference_sockets, false}};

static int kv_main_run(struct kv_bench *bench)
{
    bool has_iperf3;
    json_t *root = json_object();
    int status;

    open_arenas(bench);
    has_iperf3 = kv_reference_iperf3(bench) > 0;
    if (!bench->is_json)
        printf("%zu MiB a transfer, %d layers, pieces of %zu KiB, %u connections, medians of %u\n",
               bench->total_bytes >> 20, KV_LAYERS, KV_PIECE_BYTES >> 10, bench->n_connections,
               bench->n_rounds);
    for (size_t i = 0; i < ARRAY_LEN(lines); i++) {
        struct line line = lines[i];
        struct row row;

        if (line.is_of_iperf3 && !has_iperf3) {
            line.reference = "sockets (no iperf3 here)";
            line.reference_ns = kv_reference_sockets;
        }
        if (!kv_main_measure(bench, &line, &row)) {
            json_object_set_new(root, line.name, json_null());
            continue;
        }
        if (!bench->is_json)
            kv_main_print_row(&row);
        add_json(root, &row);
    }
    if (bench->is_json) {
        json_dumpf(root, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(4));
        putchar('\n');
    }
    status = finish_output(BENCH_NAME);
    json_decref(root);
    for (unsigned i = 0; i < 2; i++)
        mem_region_close(&bench->arenas[i]);
    return status;
}

static void kv_main_print_help(void)
{
    printf("usage: baton-bench kv [OPTION]...\n\n"
           "Moves KV between two transport nodes of this process, each with a thread of its own, and sets "
           "the speed\n"
           "beside what the host does with the same bytes, measured in the same run.\n\n"
           "      --mib N           moved in each transfer (256)\n"
           "  -c, --connections N   of tcp and tls, at most 8 (2)\n"
           "      --address IP      of this host (127.0.0.1); rdma is measured where it is an RDMA port's\n"
           "      --rounds N        medians of N rounds (5)\n"
           "      --copy METHOD     of shm: memcpy, stream16, stream16x4, stream32, stream64, movsb (the "
           "fastest here)\n"
           "      --json            {\"tcp\": {\"gbs\", \"reference_gbs\", \"fraction\", ...}, ...}\n"
           "  -h, --help            this\n\n"
           "tls also has \"bound_gbs\", what all cores of this host could do: cores / (seal + open + "
           "sockets),\n"
           "where each is the processor time of that step for a byte, measured in the same run.\n\n"
           "from and to are the processor time of the sender's and the receiver's thread for a byte, busy "
           "is the\n"
           "share of the transfer in which the busier of them ran.\n");
}

static bool kv_main_read_number(const char *option, const char *text, uint64_t min, uint64_t max,
                                uint64_t *out)
{
    if (!option_u64(BENCH_NAME, option, text, out))
        return false;
    if (*out >= min && *out <= max)
        return true;
    complain_usage(BENCH_NAME, "%s %s: %llu to %llu are possible", option, text, (unsigned long long)min,
                   (unsigned long long)max);
    return false;
}

/* The kernels that a worker would choose at start, or those of the option. */
static bool choose_copy(const char *name)
{
    double gbs[MEM_COPY_MAX_METHODS];
    const struct mem_copy_method *method =
        name != NULL ? mem_copy_method_find(name) : mem_copy_measure(20 * NS_PER_MS, gbs);

    if (method != NULL)
        mem_copy_choose(method);
    return method != NULL || name == NULL;
}

int kv_main(int argc, char **argv)
{
    static const struct option longs[] = {
        {"mib", required_argument, NULL, 'm'},    {"connections", required_argument, NULL, 'c'},
        {"rounds", required_argument, NULL, 'r'}, {"address", required_argument, NULL, 'a'},
        {"copy", required_argument, NULL, 'w'},   {"json", no_argument, NULL, 'j'},
        {"help", no_argument, NULL, 'h'},         {NULL, 0, NULL, 0}};
    struct kv_bench bench = {.address = "127.0.0.1"};
    uint64_t mib = 256, n_connections = 2, n_rounds = 5;
    const char *copy = NULL;
    bool is_good = true;
    int c;

    while (is_good && (c = getopt_long(argc, argv, "c:h", longs, NULL)) != -1) {
        switch (c) {
        case 'm':
            is_good = kv_main_read_number("--mib", optarg, 2, 1 << 20, &mib);
            break;
        case 'c':
            is_good = kv_main_read_number("--connections", optarg, 1, 8, &n_connections);
            break;
        case 'r':
            is_good = kv_main_read_number("--rounds", optarg, 1, KV_MAX_ROUNDS, &n_rounds);
            break;
        case 'a':
            bench.address = optarg;
            break;
        case 'w':
            copy = optarg;
            break;
        case 'j':
            bench.is_json = true;
            break;
        case 'h':
            kv_main_print_help();
            return finish_output(BENCH_NAME);
        default:
            is_good = false;
        }
    }
    if (!is_good)
        return EXIT_USAGE;
    if (optind < argc)
        return complain_usage(BENCH_NAME, "kv: '%s' is not an option", argv[optind]);
    if (!choose_copy(copy))
        return complain_usage(BENCH_NAME, "kv: --copy %s: this processor has no such method", copy);
    bench.n_connections = (unsigned)n_connections;
    bench.n_rounds = (unsigned)n_rounds;
    bench.total_bytes = (size_t)mib << 20;
    log_setup(BENCH_NAME, LOG_LEVEL_WARN, LOG_FORMAT_TEXT);
    return kv_main_run(&bench);
}
