/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: any bytes as a JSON Schema, in search of the most expensive ones.
 *
 * The fitness is the number of steps.  Each reached 64th of the limit, and each rise of a schema's steps per
 * byte, counts as new coverage for libFuzzer.  So it keeps slower schemas and mutates them further.  The
 * corpus holds the results of tests/bench/bench_grammar_cost.  No input may exceed the limit, and none may
 * take longer than its steps explain.  The bound here is some hundred times the measured time, so it finds
 * only work that is not counted at all. */
#include <string.h>
#include <time.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/err.h"
#include "text/grammar/grammar.h"

#define N_LEVELS          64u
#define MAX_NS_PER_STEP   1000u
#define NS_THAT_ARE_SPARE (100 * NS_PER_MS)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

__attribute__((section("__libfuzzer_extra_counters"), used)) static uint8_t levels[N_LEVELS], rates[N_LEVELS];

static uint64_t cpu_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

/* The logarithm of steps for each byte, in quarters of a power of two. */
static uint32_t rate_of(uint64_t steps, size_t len_bytes)
{
    uint64_t rate = steps / (len_bytes + 1);
    uint32_t log = 0;

    for (; rate >> log > 1; log++)
        ;
    uint32_t level = 4 * log + (log < 2 ? 0 : (uint32_t)(rate >> (log - 2) & 3));
    return level < N_LEVELS ? level : N_LEVELS - 1;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct grammar_schema schema = {.text = bytes_of(data, size), .path = "tools.0.input_schema"};
    struct fault fault = {0};
    uint64_t steps = 0, began_ns = cpu_ns();
    int rc = grammar_check_schemas(&schema, 1, &fault, &steps);

    ASSERT(rc == 0 || rc == E_FORMAT || rc == E_UNSUPPORTED || rc == E_LIMIT);
    ASSERT(rc == 0 || strncmp(fault.text, schema.path, strlen(schema.path)) == 0);
    ASSERT(steps <= GRAMMAR_MAX_STEPS);
    ASSERT(cpu_ns() - began_ns < steps * MAX_NS_PER_STEP + NS_THAT_ARE_SPARE);
    levels[steps * (N_LEVELS - 1) / GRAMMAR_MAX_STEPS] = 1;
    rates[rate_of(steps, size)] = 1;
    return 0;
}
