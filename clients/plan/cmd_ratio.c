/* SPDX-License-Identifier: Apache-2.0 */
/* baton-plan ratio: the ratio of workers from measured rates, without a model of the engine. */
#include "clients/plan/plan_cli.h"

#include "fleet/plan/search.h"

#include <getopt.h>
#include <math.h>
#include <stdio.h>

static bool ratio_number(const char *option, const char *text, double *out)
{
    struct fault fault = {0};

    if (plan_number(text, &fault, out) != 0 || !(*out > 0)) {
        complain_usage(PLAN_NAME, "--%s %s: %s", option, text,
                       fault.code == 0 ? "must be above 0" : fault.text);
        return false;
    }
    return true;
}

int cmd_ratio(int argc, char **argv)
{
    static const struct option OPTIONS[] = {
        {"in", required_argument, NULL, 0},
        {"out", required_argument, NULL, 1},
        {"prefill", required_argument, NULL, 2},
        {"decode", required_argument, NULL, 3},
        {"per", required_argument, NULL, 4},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    static const double SECONDS[] = {1, 60, 3600, 86400};
    static const char *const UNITS[] = {"second", "minute", "hour", "day"};
    double numbers[4] = {NAN, NAN, NAN, NAN}, per = 1;

    for (int c; (c = getopt_long(argc, argv, "h", OPTIONS, NULL)) != -1;) {
        if (c == 'h') {
            puts(
                "Usage: baton-plan ratio --in TOKENS --out TOKENS --prefill RATE --decode RATE [--per day]\n"
                "Workers (or nodes) for tokens in and out, from measured tokens/s of a worker in each role.\n"
                "  --per UNIT   the tokens are of a second, minute, hour or day\n"
                "DeepSeek's day: --in 608G --out 168G --per day --prefill 73.7k --decode 14.8k");
            return finish_output(PLAN_NAME);
        }
        if (c >= 0 && c < 4) {
            if (!ratio_number(OPTIONS[c].name, optarg, &numbers[c]))
                return EXIT_USAGE;
            continue;
        }
        int unit = 0;
        while (c == 4 && unit < 4 && strcmp(UNITS[unit], optarg) != 0)
            unit++;
        if (c != 4 || unit == 4)
            return complain_usage(PLAN_NAME, "ratio: wrong option");
        per = SECONDS[unit];
    }
    for (int i = 0; i < 4; i++)
        if (isnan(numbers[i]))
            return complain_usage(PLAN_NAME, "ratio: --%s is missing", OPTIONS[i].name);
    struct plan_ratio r = plan_ratio_of(numbers[0] / per, numbers[1] / per, numbers[2], numbers[3]);
    printf("prefill %.1f, decode %.1f, together %.1f; prefill : decode = 1 : %.2f\n", r.prefill, r.decode,
           r.total, r.decode_per_prefill);
    return finish_output(PLAN_NAME);
}
