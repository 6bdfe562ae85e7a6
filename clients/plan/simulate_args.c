/* SPDX-License-Identifier: Apache-2.0 */
/* Own options of simulate and sweep.  They are removed from argv before the options of plan are read. */
#include "clients/plan/simulate_args.h"

#include <stdlib.h>
#include <string.h>

/* True if the first of these arguments (NULL ends them) is the option; its value is in the same or in the next one. */
static bool args_is(char **argv, const char *name, const char **value_out, int *n_used_out)
{
    size_t len = strlen(name);

    *n_used_out = 1;
    if (strncmp(argv[0], name, len) != 0)
        return false;
    if (argv[0][len] == '=') {
        *value_out = argv[0] + len + 1;
        return true;
    }
    *n_used_out = 2;
    *value_out = argv[1];
    return argv[0][len] == '\0';
}

int simulate_args_take(int *argc, char **argv, const struct simulate_arg *args, size_t n)
{
    int n_kept = 1;

    for (int i = 1; i < *argc;) {
        const char *value = NULL;
        size_t at = 0;
        int n_used = 1;

        while (at < n && !args_is(argv + i, args[at].name, &value, &n_used))
            at++;
        if (at == n) {
            argv[n_kept++] = argv[i++];
            continue;
        }
        if (value == NULL)
            return complain_usage(PLAN_NAME, "%s: %s wants a value", argv[0], args[at].name);
        *args[at].text_out = value;
        i += n_used;
    }
    argv[n_kept] = NULL;
    *argc = n_kept;
    return EXIT_DONE;
}

bool simulate_args_count(const char *name, const char *text, double *out)
{
    uint64_t n;

    if (text == NULL)
        return true;
    if (!option_u64(PLAN_NAME, name, text, &n) || n == 0 || n > 1000000) {
        complain(PLAN_NAME, "--%s: a number from 1 to 1000000 is wanted", name);
        return false;
    }
    *out = (double)n;
    return true;
}

bool simulate_trace_of(const struct plan_job *job, const struct trace **out)
{
    const struct trace *trace = &job->trace;

    *out = trace->n_entries > 0 ? trace : NULL;
    if (trace->n_entries == 0 || trace->entries[trace->n_entries - 1].at_ns > 0)
        return true;
    complain(PLAN_NAME, "a trace that lasts no time cannot be simulated");
    return false;
}

const struct plan_candidate *simulate_candidate(const struct plan_job *job, size_t rank)
{
    for (size_t i = 0; i < job->answer.n; i++)
        if (job->answer.list[i].decode != SIZE_MAX && rank-- == 0)
            return &job->answer.list[i];
    return NULL;
}
