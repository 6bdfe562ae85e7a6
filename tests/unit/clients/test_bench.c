/* SPDX-License-Identifier: Apache-2.0 */
/* The arithmetic of baton-bench: percentiles, traces, arrivals, prompts, options. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/err.h"
#include "clients/bench/plan.h"
#include "clients/bench/stats.h"
#include "clients/common/cli.h"
#include "tests/unit/check.h"

static void about(double a, double b, double within)
{
    if (fabs(a - b) > within)
        fail_msg("%g is not about %g", a, b);
}

/* ---- stats ---- */

static void percentiles_lie_between_samples(void **state)
{
    struct series series = {0};

    about(series_percentile(&series, 0.5), 0, 0);
    for (int i = 100; i >= 1; i--)
        series_add(&series, i);
    about(series_percentile(&series, 0), 1, 0);
    about(series_percentile(&series, 0.5), 50.5, 1e-4);
    about(series_percentile(&series, 0.9), 90.1, 1e-4);
    about(series_percentile(&series, 0.99), 99.01, 1e-4);
    about(series_percentile(&series, 1), 100, 0);
    about(series_mean(&series), 50.5, 1e-9);
    about(series.max, 100, 0);
    series_add(&series, 1000); /* also after sorting */
    about(series_percentile(&series, 1), 1000, 0);
    series_fini(&series);
    series_add(&series, -3);
    about(series.max, -3, 0);
    about(series_percentile(&series, 0.7), -3, 0);
    series_fini(&series);
}

static void errors_are_counted_by_kind(void **state)
{
    static struct tally tally;
    char type[32];

    tally_error(&tally, "a", "first");
    tally_error(&tally, "b", "");
    tally_error(&tally, "a", "second");
    assert_int_equal(tally.n_errors, 2);
    assert_int_equal(tally.errors[0].n, 2);
    assert_string_equal(tally.errors[0].example, "first");
    for (int i = 0; i < 100; i++) {
        snprintf(type, sizeof(type), "kind %d", i);
        tally_error(&tally, type, "");
    }
    assert_int_equal(tally.n_errors, MAX_ERROR_KINDS);
    assert_int_equal(tally.errors[MAX_ERROR_KINDS - 1].n, 100 - (MAX_ERROR_KINDS - 2) + 1);
}

/* ---- traces ---- */

#define AZURE "TIMESTAMP,ContextTokens,GeneratedTokens\n"

static void azure_traces(void **state)
{
    struct trace trace;
    struct fault fault;

    assert_int_equal(trace_parse("t",
                                 bytes_str(AZURE "2024-02-29 23:59:59.5,30,3\r\n"
                                                 "2024-03-01T00:00:01.25+00:00,40,4\n\n"
                                                 "2024-02-29 23:59:59,20,2"),
                                 &fault, &trace),
                     0);
    assert_int_equal(trace.n_entries, 3);
    assert_int_equal(trace.entries[0].prompt_tokens, 20);
    assert_int_equal(trace.entries[0].at_ns, 0);
    assert_int_equal(trace.entries[1].at_ns, NS_PER_S / 2);
    assert_int_equal(trace.entries[1].answer_tokens, 3);
    assert_int_equal(trace.entries[2].at_ns, 2250 * NS_PER_MS);
    assert_int_equal(trace.entries[2].n_blocks, 0);
    trace_fini(&trace);
}

static void mooncake_traces(void **state)
{
    struct trace trace;
    struct fault fault;

    assert_int_equal(
        trace_parse(
            "t",
            bytes_str(
                "{\"timestamp\": 5000, \"input_length\": 1000, \"output_length\": 10, \"hash_ids\": [7, 8]}\n"
                "{\"timestamp\": 5125, \"input_length\": 90, \"output_length\": 1}\n"
                "{\"timestamp\": 6000, \"input_length\": 513, \"output_length\": 2, \"hash_ids\": [7, 9], "
                "\"x\": 1}\n"),
            &fault, &trace),
        0);
    assert_int_equal(trace.n_entries, 3);
    assert_int_equal(trace.entries[1].at_ns, 125 * NS_PER_MS);
    assert_int_equal(trace.entries[1].n_blocks, 0);
    assert_int_equal(trace.entries[2].n_blocks, 2);
    assert_int_equal(trace.block_ids[trace.entries[2].first_block + 1], 9);
    trace_fini(&trace);
}

static void bad_traces_name_the_line(void **state)
{
    static const struct {
        const char *text, *where;
    } bad[] = {
        {"", "neither"},
        {"a,b,c\n", "neither"},
        {AZURE, "no requests"},
        {AZURE "2023-11-16 18:17:03,1,2\n2023-11-16 18:17:03,1\n", "t:3: "},
        {AZURE "2023-11-16 18:17:03,1,2,3\n", "t:2: "},
        {AZURE "2023-13-16 18:17:03,1,2\n", "t:2: "},
        {AZURE "2024-02-29 18:17:03,1,2\n2023-12-31 18:17:03,1,2\n2023-02-29 18:17:03,1,2\n", "t:4: "},
        {AZURE "2023-04-31 18:17:03,1,2\n", "t:2: "},
        {AZURE "2023-12-32 18:17:03,1,2\n", "t:2: "},
        {AZURE "2023-11-16 18:17:03 CET,1,2\n", "t:2: "},
        {AZURE "2023-11-16 18:17:03,-1,2\n", "t:2: "},
        {AZURE "2023-11-16 18:17:03,99999999999,2\n", "t:2: "},
        {"{}\n", "t:1: "},
        {"{\"timestamp\": -1, \"input_length\": 1, \"output_length\": 1}", "t:1: "},
        {"{\"timestamp\": 1, \"input_length\": 1.5, \"output_length\": 1}", "t:1: "},
        {"{\"timestamp\": 1, \"input_length\": 1, \"output_length\": 1, \"hash_ids\": [\"x\"]}",
         "t:1: hash_ids"},
        {"{\"timestamp\": 1, \"input_length\": 1, \"output_length\": 1, \"hash_ids\": null}\n"
         "{\"timestamp\": 1, \"input_length\": 1, \"output_length\": 1, \"hash_ids\": {}}",
         "t:2: hash_ids"},
        {"{\"timestamp\": 1, \"input_length\": 1, \"output_length\": 1}\n[1]\n", "t:2: not a JSON object"},
    };

    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct trace trace;
        struct fault fault;

        assert_int_equal(trace_parse("t", bytes_str(bad[i].text), &fault, &trace), E_FORMAT);
        if (strstr(fault.text, bad[i].where) == NULL)
            fail_msg("%zu: %s", i, fault.text);
    }
}

static void the_public_traces(void **state)
{
    const char *data = getenv("BATON_DATA");
    char beside[512];
    static const struct {
        const char *file;
        size_t n;
    } files[] = {{"azure-2023-code.csv", 8819}, {"mooncake-conversation.jsonl", 12031}};

    if (data == NULL) {
        snprintf(beside, sizeof(beside), "%s/../shared/data", getenv("srcdir") ? getenv("srcdir") : ".");
        data = beside;
    }
    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        char path[1024];
        struct trace trace;
        struct fault fault = {0};

        snprintf(path, sizeof(path), "%s/traces/%s", data, files[i].file);
        if (access(path, R_OK) != 0) {
            print_message("%s is not there (BATON_DATA names the folder of test data)\n", path);
            skip();
        }
        assert_int_equal(trace_load(path, &fault, &trace), 0);
        assert_in_range(trace.n_entries, files[i].n - 1,
                        files[i].n + 1); /* with or without a header line and a final newline */
        trace_fini(&trace);
    }
}

/* ---- plans ---- */

static void poisson_arrivals_have_their_rate(void **state)
{
    struct bench_opts opts = {.load = BENCH_POISSON,
                              .rate_per_s = 50,
                              .n_requests = 20000,
                              .seed = 3,
                              .prompt = {10, 20},
                              .answer = {1, 1}};
    struct plan plan;
    struct planned planned;
    uint64_t last_ns = 0;
    double squares = 0;
    double prompt = 0;
    unsigned n = 0;

    plan_init(&plan, &opts, NULL);
    while (plan_next(&plan, &planned)) {
        double gap = (double)(planned.at_ns - last_ns) / 1e9 * opts.rate_per_s;

        assert_true(planned.at_ns >= last_ns);
        assert_in_range(planned.prompt_tokens, 10, 20);
        assert_int_equal(planned.index, n);
        squares += gap * gap;
        prompt += planned.prompt_tokens;
        last_ns = planned.at_ns;
        n++;
    }
    assert_int_equal(n, 20000);
    about((double)n / ((double)last_ns / 1e9), 50, 1.5);
    about(squares / n, 2, 0.1); /* of an exponential distribution with mean 1 */
    about(prompt / n, 15, 0.1);
}

static void plans_end(void **state)
{
    struct bench_opts opts = {.load = BENCH_POISSON,
                              .rate_per_s = 10,
                              .duration_ns = 5 * NS_PER_S,
                              .seed = 1,
                              .prompt = {1, 1},
                              .answer = {1, 1}};
    struct trace_entry entries[] = {{.prompt_tokens = 100, .answer_tokens = 50},
                                    {.at_ns = NS_PER_S, .prompt_tokens = 0, .answer_tokens = 0}};
    const struct trace trace = {.entries = entries, .n_entries = 2};
    struct plan plan;
    struct planned planned;
    unsigned n = 0;

    plan_init(&plan, &opts, NULL);
    while (plan_next(&plan, &planned))
        n++;
    assert_in_range(n, 25, 80);
    opts = (struct bench_opts){.load = BENCH_TRACE, .speed = 4, .prompt = {1, 60}};
    plan_init(&plan, &opts, &trace);
    assert_true(plan_next(&plan, &planned));
    assert_int_equal(planned.prompt_tokens, 60);
    assert_int_equal(planned.answer_tokens, 50);
    assert_true(plan_next(&plan, &planned));
    assert_int_equal(planned.at_ns, NS_PER_S / 4);
    assert_int_equal(planned.prompt_tokens, 1); /* a prompt has at least one token */
    assert_false(plan_next(&plan, &planned));
}

static size_t count_words(const struct buf *text)
{
    size_t n = text->len_bytes > 0;

    for (size_t i = 0; i < text->len_bytes; i++)
        n += text->data[i] == ' ';
    return n;
}

static void prompts_come_out_near(void **state)
{
    const struct prompt_maker maker = {
        .tokens_per_word = 1.37, .overhead_tokens = 12, .shared_prefix_tokens = 100, .seed = 5};

    for (uint32_t tokens = 1; tokens < 4000; tokens += 97) {
        const struct planned planned = {.index = tokens, .prompt_tokens = tokens};
        struct buf text = {0};
        double got;

        assert_int_equal(prompt_put(&maker, &planned, &text), 0);
        got = 12 + 1.37 * (double)count_words(&text);
        if (tokens > 20)
            about(got, tokens, 1);
        assert_true(count_words(&text) >= 1);
        buf_fini(&text);
    }
}

static size_t common(const struct buf *a, const struct buf *b)
{
    size_t n = 0;

    while (n < a->len_bytes && n < b->len_bytes && a->data[n] == b->data[n])
        n++;
    return n;
}

static void equal_blocks_are_equal_text(void **state)
{
    const struct prompt_maker maker = {.tokens_per_word = 1, .seed = 5};
    static const uint64_t ids[][3] = {{1, 2, 3}, {1, 2, 4}, {1, 2, 3}};
    struct buf text[3] = {{0}};
    struct buf block = {0};

    for (uint64_t i = 0; i < 3; i++) {
        const struct planned planned = {
            .index = i, .prompt_tokens = 3 * TRACE_BLOCK_TOKENS + 40, .block_ids = ids[i], .n_blocks = 3};

        assert_int_equal(prompt_put(&maker, &planned, &text[i]), 0);
        assert_int_equal(count_words(&text[i]), 3 * TRACE_BLOCK_TOKENS + 40);
    }
    block.len_bytes = common(&text[0], &text[1]);
    block.data = text[0].data;
    assert_in_range(count_words(&block), 2 * TRACE_BLOCK_TOKENS, 2 * TRACE_BLOCK_TOKENS + 8);
    block.len_bytes = common(&text[0], &text[2]);
    assert_in_range(count_words(&block), 3 * TRACE_BLOCK_TOKENS, 3 * TRACE_BLOCK_TOKENS + 8);
    for (int i = 0; i < 3; i++)
        buf_fini(&text[i]);
}

/* ---- options ---- */

static int read_options(struct bench_opts *opts, int *status_out, const char *line)
{
    static char copy[512];
    char *argv[32] = {(char[]){"baton-bench"}};
    char *save;
    int argc = 1;

    snprintf(copy, sizeof(copy), "%s", line);
    for (char *word = strtok_r(copy, " ", &save); word != NULL && argc < 31;
         word = strtok_r(NULL, " ", &save))
        argv[argc++] = word;
    return bench_options_read(argc, argv, opts, status_out);
}

static void options_have_defaults(void **state)
{
    struct bench_opts opts;
    int status;

    assert_int_equal(read_options(&opts, &status, ""), 1);
    assert_true(opts.load == BENCH_CLOSED && opts.concurrency == 4 && opts.n_requests == 100);
    assert_true(opts.prompt.low == 512 && opts.answer.high == 128 && opts.ttft_slo_ns == 500 * NS_PER_MS);
    assert_int_equal(
        read_options(&opts, &status, "--rate 2.5 --duration 30s --prompt-tokens 10:20 --itl-slo 10ms"), 1);
    assert_true(opts.load == BENCH_POISSON && opts.n_requests == 0 && opts.duration_ns == 30 * NS_PER_S);
    assert_true(opts.prompt.low == 10 && opts.prompt.high == 20 && opts.itl_slo_ns == 10 * NS_PER_MS);
    assert_int_equal(read_options(&opts, &status, "--trace x --speed 10"), 1);
    assert_true(opts.load == BENCH_TRACE && opts.n_requests == 0 && opts.prompt.high == 0);
}

static void wrong_options_are_refused(void **state)
{
    static const char *const lines[] = {
        "-c 0",  "-c 100001", "-c 4 -r 2",           "-r 0",      "-r nan", "-p 3:2", "-p 0",
        "-p 1:", "-d soon",   "--speed 0 --trace x", "--speed 2", "stray"};

    for (size_t i = 0; i < ARRAY_LEN(lines); i++) {
        struct bench_opts opts;
        int status = EXIT_DONE;

        assert_int_equal(read_options(&opts, &status, lines[i]), 0);
        assert_int_equal(status, EXIT_USAGE);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(percentiles_lie_between_samples),
        cmocka_unit_test(errors_are_counted_by_kind),
        cmocka_unit_test(azure_traces),
        cmocka_unit_test(mooncake_traces),
        cmocka_unit_test(bad_traces_name_the_line),
        cmocka_unit_test(the_public_traces),
        cmocka_unit_test(poisson_arrivals_have_their_rate),
        cmocka_unit_test(plans_end),
        cmocka_unit_test(prompts_come_out_near),
        cmocka_unit_test(equal_blocks_are_equal_text),
        cmocka_unit_test(options_have_defaults),
        cmocka_unit_test(wrong_options_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
