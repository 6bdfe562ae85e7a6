/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the command line.  There are three kinds of load: --concurrency, --rate and --trace; they exclude each
 * other.  The default is four requests at a time.  A run must end, so it has a number of requests unless it
 * has a duration or a trace. */
#include "clients/bench/options.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/str.h"
#include "clients/common/cli.h"

enum { MAX_TOKENS = 16 << 20, MAX_CONCURRENCY = 100000 };

enum {
    OPT_API_KEY = 256,
    OPT_TRACE,
    OPT_SPEED,
    OPT_SHARED,
    OPT_SEED,
    OPT_WARMUP,
    OPT_TTFT,
    OPT_ITL,
    OPT_TIMEOUT,
    OPT_TEMPERATURE,
    OPT_JSON,
    OPT_DETAIL
};

static const struct option options_long[] = {{"url", required_argument, NULL, 'u'},
                                             {"model", required_argument, NULL, 'm'},
                                             {"api-key", required_argument, NULL, OPT_API_KEY},
                                             {"concurrency", required_argument, NULL, 'c'},
                                             {"rate", required_argument, NULL, 'r'},
                                             {"trace", required_argument, NULL, OPT_TRACE},
                                             {"speed", required_argument, NULL, OPT_SPEED},
                                             {"requests", required_argument, NULL, 'n'},
                                             {"duration", required_argument, NULL, 'd'},
                                             {"prompt-tokens", required_argument, NULL, 'p'},
                                             {"answer-tokens", required_argument, NULL, 'a'},
                                             {"shared-prefix-tokens", required_argument, NULL, OPT_SHARED},
                                             {"seed", required_argument, NULL, OPT_SEED},
                                             {"warmup", required_argument, NULL, OPT_WARMUP},
                                             {"ttft-slo", required_argument, NULL, OPT_TTFT},
                                             {"itl-slo", required_argument, NULL, OPT_ITL},
                                             {"timeout", required_argument, NULL, OPT_TIMEOUT},
                                             {"temperature", required_argument, NULL, OPT_TEMPERATURE},
                                             {"json", no_argument, NULL, OPT_JSON},
                                             {"save-detailed", required_argument, NULL, OPT_DETAIL},
                                             {"help", no_argument, NULL, 'h'},
                                             {"version", no_argument, NULL, 'V'},
                                             {NULL, 0, NULL, 0}};

static void bench_options_print_help(void)
{
    printf(
        "usage: baton-bench [OPTION]...\n"
        "       baton-bench kv [OPTION]...   how fast KV moves on this host; see kv --help\n\n"
        "Loads a Messages endpoint and measures the latency of its answers.\n\n"
        "  -u, --url URL               the server (http://127.0.0.1:8080)\n"
        "  -m, --model NAME            the model (the first that the server lists)\n"
        "      --api-key KEY           also from $BATON_API_KEY\n"
        "load, one of:\n"
        "  -c, --concurrency N         N requests under way at any time (4)\n"
        "  -r, --rate R                R arrivals per second, Poisson, at any speed of the server\n"
        "      --trace FILE            arrivals and lengths of a trace: Azure CSV or Mooncake JSON lines\n"
        "      --speed X               play the trace X times as fast (1)\n"
        "until:\n"
        "  -n, --requests N            number of requests (100, or all of a trace)\n"
        "  -d, --duration TIME         how long to send, as 30s or 5min; requests in flight are awaited\n");
    printf("requests:\n"
           "  -p, --prompt-tokens N[:M]   about N, or N to M (512); with a trace at most M\n"
           "  -a, --answer-tokens N[:M]   at most that many (128); with a trace at most M\n"
           "      --shared-prefix-tokens N  of each prompt, the same in all\n"
           "      --seed N                same seed, same requests at the same times (1)\n"
           "      --warmup N              the first N are not counted (0)\n"
           "      --timeout TIME          of one request (10min)\n"
           "      --temperature X         (0)\n"
           "objectives and results:\n"
           "      --ttft-slo TIME         time to first token (500ms)\n"
           "      --itl-slo TIME          mean time per further token (50ms)\n"
           "      --json                  results as JSON instead of a table\n"
           "      --save-detailed FILE    also the figures of each request, with each gap between tokens,\n"
           "                              a line of JSON each\n"
           "  -h, --help                  this text\n"
           "  -V, --version               the version\n");
}

static bool read_range(const char *option, const char *text, struct bench_range *out)
{
    struct bytes whole = bytes_str(text);
    size_t colon = bytes_find(whole, bytes_str(":"), 0);
    uint64_t low;
    uint64_t high;
    int rc;

    if (colon == SIZE_MAX)
        colon = whole.len_bytes;
    rc = str_to_u64(bytes_of(text, colon), &low);
    high = low;
    if (rc == 0 && colon < whole.len_bytes)
        rc = str_to_u64(bytes_str(text + colon + 1), &high);
    if (rc < 0 || low < 1 || high < low || high > MAX_TOKENS) {
        complain_usage(BENCH_NAME, "%s %s: give a number of tokens, or two as N:M with N <= M", option, text);
        return false;
    }
    *out = (struct bench_range){.low = (uint32_t)low, .high = (uint32_t)high};
    return true;
}

static bool bench_options_read_count(const char *option, const char *text, uint64_t max, uint64_t *out)
{
    if (!option_u64(BENCH_NAME, option, text, out))
        return false;
    if (*out <= max)
        return true;
    complain_usage(BENCH_NAME, "%s %s: at most %llu", option, text, (unsigned long long)max);
    return false;
}

static bool read_positive(const char *option, const char *text, double *out)
{
    if (!option_f64(BENCH_NAME, option, text, out))
        return false;
    if (*out > 0)
        return true;
    complain_usage(BENCH_NAME, "%s wants more than 0", option);
    return false;
}

/* Options of sizes and kinds of load.  1: accepted, 0: refused, -1: another option. */
static int read_load(int c, struct bench_opts *opts, unsigned *n_loads)
{
    uint64_t count = 0;
    bool is_good;

    switch (c) {
    case 'c':
        ++*n_loads;
        opts->load = BENCH_CLOSED;
        is_good = bench_options_read_count("--concurrency", optarg, MAX_CONCURRENCY, &count);
        opts->concurrency = (uint32_t)count;
        return is_good;
    case 'r':
        ++*n_loads;
        opts->load = BENCH_POISSON;
        return read_positive("--rate", optarg, &opts->rate_per_s);
    case OPT_TRACE:
        ++*n_loads;
        opts->load = BENCH_TRACE;
        opts->trace_path = optarg;
        return 1;
    case OPT_SPEED:
        return read_positive("--speed", optarg, &opts->speed);
    case 'n':
        return bench_options_read_count("--requests", optarg, UINT64_MAX, &opts->n_requests);
    case 'd':
        return option_duration(BENCH_NAME, "--duration", optarg, &opts->duration_ns);
    case 'p':
        return read_range("--prompt-tokens", optarg, &opts->prompt);
    case 'a':
        return read_range("--answer-tokens", optarg, &opts->answer);
    case OPT_SHARED:
        is_good = bench_options_read_count("--shared-prefix-tokens", optarg, MAX_TOKENS, &count);
        opts->shared_prefix_tokens = (uint32_t)count;
        return is_good;
    case OPT_SEED:
        return bench_options_read_count("--seed", optarg, UINT64_MAX, &opts->seed);
    case OPT_WARMUP:
        return bench_options_read_count("--warmup", optarg, UINT64_MAX, &opts->n_warmup);
    default:
        return -1;
    }
}

static int read_rest(int c, struct bench_opts *opts)
{
    switch (c) {
    case 'u':
        opts->url = optarg;
        return 1;
    case 'm':
        opts->model = optarg;
        return 1;
    case OPT_API_KEY:
        opts->api_key = optarg;
        return 1;
    case OPT_TTFT:
        return option_duration(BENCH_NAME, "--ttft-slo", optarg, &opts->ttft_slo_ns);
    case OPT_ITL:
        return option_duration(BENCH_NAME, "--itl-slo", optarg, &opts->itl_slo_ns);
    case OPT_TIMEOUT:
        return option_duration(BENCH_NAME, "--timeout", optarg, &opts->timeout_ns);
    case OPT_TEMPERATURE:
        return option_f64(BENCH_NAME, "--temperature", optarg, &opts->temperature);
    case OPT_JSON:
        opts->is_json = true;
        return 1;
    case OPT_DETAIL:
        opts->detail_path = optarg;
        return 1;
    default:
        return 0; /* getopt has complained */
    }
}

static int bench_options_complete(struct bench_opts *opts, unsigned n_loads)
{
    if (n_loads > 1)
        return complain_usage(BENCH_NAME, "--concurrency, --rate and --trace exclude each other");
    if (opts->load == BENCH_CLOSED && opts->concurrency == 0) {
        if (n_loads > 0)
            return complain_usage(BENCH_NAME, "--concurrency wants at least 1");
        opts->concurrency = 4;
    }
    if (opts->timeout_ns == 0)
        return complain_usage(BENCH_NAME, "--timeout wants more than 0");
    if (opts->temperature < 0)
        return complain_usage(BENCH_NAME, "--temperature wants at least 0");
    if (opts->load == BENCH_TRACE)
        return EXIT_DONE;
    if (opts->speed != 1)
        return complain_usage(BENCH_NAME, "--speed goes with --trace");
    if (opts->n_requests == 0 && opts->duration_ns == 0)
        opts->n_requests = 100;
    if (opts->prompt.high == 0)
        opts->prompt = (struct bench_range){512, 512};
    if (opts->answer.high == 0)
        opts->answer = (struct bench_range){128, 128};
    return EXIT_DONE;
}

int bench_options_read(int argc, char **argv, struct bench_opts *opts, int *status_out)
{
    unsigned n_loads = 0;
    int c;

    *opts = (struct bench_opts){.url = "http://127.0.0.1:8080",
                                .api_key = getenv("BATON_API_KEY"),
                                .speed = 1,
                                .seed = 1,
                                .ttft_slo_ns = 500 * NS_PER_MS,
                                .itl_slo_ns = 50 * NS_PER_MS,
                                .timeout_ns = 600 * NS_PER_S};
    *status_out = EXIT_DONE;
    optind = 0;
    while ((c = getopt_long(argc, argv, "u:m:c:r:n:d:p:a:hV", options_long, NULL)) != -1) {
        int rc;

        if (c == 'h' || c == 'V') {
            if (c == 'h')
                bench_options_print_help();
            else
                printf("%s %s\n", BENCH_NAME, PACKAGE_VERSION);
            *status_out = finish_output(BENCH_NAME);
            return 0;
        }
        rc = read_load(c, opts, &n_loads);
        if (rc < 0)
            rc = read_rest(c, opts);
        if (rc == 0) {
            *status_out = EXIT_USAGE;
            return 0;
        }
    }
    if (optind < argc)
        *status_out = complain_usage(BENCH_NAME, "unexpected argument: %s", argv[optind]);
    else
        *status_out = bench_options_complete(opts, n_loads);
    return *status_out == EXIT_DONE;
}
