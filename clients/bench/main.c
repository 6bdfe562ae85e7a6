/* SPDX-License-Identifier: Apache-2.0 */
/* baton-bench: loads a Messages endpoint and reports the latency and throughput that its clients see.
 *
 *   options ──> model, tokens per word (asked of the server) ──> plan ──> run ──> report
 *
 * Prompts need a given number of tokens, but only the server knows its tokeniser.  So the server counts two
 * prompts of known numbers of words.  The difference gives the tokens per word; the rest is the chat format's
 * own. */
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/str.h"
#include "clients/bench/kv.h"
#include "clients/bench/report.h"
#include "clients/bench/run.h"
#include "clients/common/fetch.h"
#include "clients/common/server.h"

struct bench {
    struct bench_opts opts;
    struct server server;
    char *model;
    struct trace trace;
    struct prompt_maker maker;
    struct plan plan;
    struct tally tally;
    FILE *detail;
};

/* Each running request has a connection, so the limit on descriptors bounds the requests. */
static void raise_descriptor_limit(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur == limit.rlim_max)
        return;
    limit.rlim_cur = limit.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
}

/* Returns the tokens that the server counts in n_times copies of the sample; negative: the server does not
 * count. */
static int64_t count_tokens(struct bench *bench, unsigned n_times, uint64_t *n_words_out)
{
    char path[SERVER_PATH_BYTES];
    struct fetch_opts opts = {.loop = bench->server.loop,
                              .client = bench->server.client,
                              .method = HTTP_POST,
                              .path = path,
                              .fields = &bench->server.fields,
                              .timeout_ns = 30 * NS_PER_S,
                              .max_bytes = 1 << 20};
    struct buf words = {0};
    struct buf request = {0};
    struct buf body = {0};
    int64_t tokens = -1;

    *n_words_out = prompt_put_sample(n_times, &words);
    buf_append_str(&request, "{\"model\": ");
    json_put_str(&request, bytes_str(bench->model));
    buf_append_str(&request, ", \"messages\": [{\"role\": \"user\", \"content\": ");
    json_put_str(&request, buf_view(&words));
    if (buf_append_str(&request, "}]}") == 0) {
        server_path(&bench->server, "/v1/messages/count_tokens", path);
        opts.body = buf_view(&request);
        if (fetch(&opts, NULL, &body) == 200) {
            json_t *root = json_loadb((const char *)body.data, body.len_bytes, 0, NULL);
            const json_t *count = json_object_get(root, "input_tokens");

            if (json_is_integer(count))
                tokens = json_integer_value(count);
            json_decref(root);
        }
    }
    buf_fini(&words);
    buf_fini(&request);
    buf_fini(&body);
    return tokens;
}

static void bench_main_calibrate(struct bench *bench)
{
    uint64_t n_few;
    uint64_t n_many;
    int64_t few = count_tokens(bench, 1, &n_few);
    int64_t many = few > 0 ? count_tokens(bench, 4, &n_many) : -1;

    bench->maker = (struct prompt_maker){.tokens_per_word = 1,
                                         .shared_prefix_tokens = bench->opts.shared_prefix_tokens,
                                         .seed = bench->opts.seed};
    if (few <= 0 || many <= few) {
        complain(BENCH_NAME, "the server does not count tokens; a token per word is assumed");
        return;
    }
    bench->maker.tokens_per_word = (double)(many - few) / (double)(n_many - n_few);
    bench->maker.overhead_tokens = (double)few - (double)n_few * bench->maker.tokens_per_word;
    if (bench->maker.overhead_tokens < 0)
        bench->maker.overhead_tokens = 0;
}

static int bench_main_prepare(struct bench *bench)
{
    const struct bench_opts *opts = &bench->opts;
    const struct server_opts server = {
        .program = BENCH_NAME, .url = opts->url, .api_key = opts->api_key, .max_idle_conns = 65536};
    struct fault fault = {0};
    int rc = EXIT_DONE;

    if (opts->load == BENCH_TRACE && trace_load(opts->trace_path, &fault, &bench->trace) < 0)
        rc = complain(BENCH_NAME, "%s", fault.text);
    if (rc == EXIT_DONE && opts->detail_path != NULL &&
        (bench->detail = fopen(opts->detail_path, "we")) == NULL)
        rc = complain(BENCH_NAME, "%s: %s", opts->detail_path, strerror(errno));
    if (rc == EXIT_DONE)
        rc = server_open(&server, &bench->server);
    if (rc == EXIT_DONE)
        rc = server_model(&bench->server, opts->model, &bench->model);
    if (rc == EXIT_DONE) {
        bench_main_calibrate(bench);
        plan_init(&bench->plan, opts, &bench->trace);
    }
    return rc;
}

static int bench_main_print_report(struct bench *bench, bool is_interrupted)
{
    const struct report report = {.opts = &bench->opts,
                                  .model = bench->model,
                                  .tally = &bench->tally,
                                  .is_interrupted = is_interrupted};
    struct buf out = {0};
    int rc = bench->opts.is_json ? report_put_json(&report, &out) : report_put_table(&report, &out);
    int status = EXIT_DONE;

    if (rc == 0)
        fwrite(out.data, 1, out.len_bytes, stdout);
    else
        status = complain(BENCH_NAME, "out of memory");
    buf_fini(&out);
    return status == EXIT_DONE ? finish_output(BENCH_NAME) : status;
}

/* Closes the file of --save-detailed. */
static int bench_main_end_detail(struct bench *bench)
{
    bool is_bad;

    if (bench->detail == NULL)
        return EXIT_DONE;
    is_bad = ferror(bench->detail) != 0;
    is_bad |= fclose(bench->detail) != 0;
    bench->detail = NULL;
    return is_bad ? complain(BENCH_NAME, "%s: cannot write all of it", bench->opts.detail_path) : EXIT_DONE;
}

static int bench_main_measure(struct bench *bench)
{
    char path[SERVER_PATH_BYTES];
    const struct run_opts run = {.bench = &bench->opts,
                                 .loop = bench->server.loop,
                                 .client = bench->server.client,
                                 .fields = &bench->server.fields,
                                 .path = path,
                                 .model = bench->model,
                                 .maker = &bench->maker,
                                 .plan = &bench->plan,
                                 .detail = bench->detail};
    int status;
    int rc;

    server_path(&bench->server, "/v1/messages", path);
    rc = run_bench(&run, &bench->tally);
    if (rc < 0 && rc != E_CANCELLED)
        complain(BENCH_NAME, "the run broke off: %s", err_text(rc));
    status = bench_main_end_detail(bench);
    if (bench_main_print_report(bench, rc == E_CANCELLED) != EXIT_DONE || status != EXIT_DONE)
        return EXIT_FAILED;
    return (rc == 0 || rc == E_CANCELLED) && bench->tally.n_whole > 0 ? EXIT_DONE : EXIT_FAILED;
}

int main(int argc, char **argv)
{
    struct bench bench = {0};
    int status;

    signal(SIGPIPE, SIG_IGN);
    if (argc > 1 && strcmp(argv[1], "kv") == 0)
        return kv_main(argc - 1, argv + 1);
    if (bench_options_read(argc, argv, &bench.opts, &status) == 0)
        return status;
    raise_descriptor_limit();
    status = bench_main_prepare(&bench);
    if (status == EXIT_DONE)
        status = bench_main_measure(&bench);
    (void)bench_main_end_detail(&bench);
    server_close(&bench.server);
    trace_fini(&bench.trace);
    tally_fini(&bench.tally);
    free(bench.model);
    return status;
}
