/* SPDX-License-Identifier: Apache-2.0 */
/* baton-plan plan: the number of workers and their devices. */
#include "clients/plan/plan_job.h"

#include <stdio.h>
#include <stdlib.h>

static void plan_help(void)
{
    puts("Usage: baton-plan plan --model MODEL --device DEVICE... --rate R --ttft T --itl T [OPTIONS]\n"
         "How many prefill and decode workers meet the objectives; ranked by cost.\n"
         "\n"
         "  -m, --model MODEL      a name (baton-plan models), config.json, FILE.gguf, or "
         "layers=..,hidden=..\n"
         "  -d, --device DEVICE    a name (baton-plan devices), with changes: h100,memory=94GB; repeat;\n"
         "                         or what baton-model bench --json said: host.json,memory=64GB\n"
         "      --prefill-device D for the prefill pool only; repeat\n"
         "      --decode-device D  for the decode pool only; repeat\n"
         "  -w, --weights TYPE     bf16, fp8, int8, fp4, mxfp4, int4, q8_0, q4_k ... (bf16)\n"
         "      --kv TYPE          of the KV cache (bf16)\n"
         "      --engine NAME      vllm, sglang, trtllm: use what is known of it\n"
         "      --isl N[,P90]      prompt tokens: mean, 90 % point\n"
         "      --osl N[,P90]      output tokens\n"
         "      --hit PART         of the prompt tokens that the prefix cache holds (0)\n"
         "  -r, --rate R           requests a second\n"
         "      --growth F         plan for F times the rate (1)\n"
         "      --trace FILE       lengths, rate and reuse of a Mooncake trace instead\n"
         "      --ttft T           time to first token, such as 2s\n"
         "      --itl T            time between tokens, such as 40ms\n"
         "      --percentile P[,P] of requests that meet the first, and of tokens the second (0.9; both)\n"
         "      --link LINK        path of KV of a worker: a name (baton-plan links) or 400Gb/s; else the "
         "NICs\n"
         "      --whole-transfer   KV leaves when the prompt is done, not layer by layer\n"
         "      --reserve PART     of memory that stays free (0.1)\n"
         "      --load PART        highest load of a prefill worker (0.85)\n"
         "      --spare N          workers more in each pool\n"
         "      --price D=DOLLARS  per device and hour; --watts D=W the power; repeat\n"
         "      --tp N             devices of a worker, instead of all that are usual\n"
         "      --wide-ep          also experts over 8 to 144 devices with data-parallel attention\n"
         "  -c, --constants FILE   constants of baton-plan calibrate\n"
         "      --devices, --models FILE   more of them\n"
         "      --json, --csv      instead of the table; --top N rows (10)\n"
         "      --explain          the terms of the best plan with their numbers\n"
         "      --html FILE        a page with charts\n"
         "      --conf DIR         router.conf, prefill.conf and decode.conf of the best plan");
}

static int job_report(struct plan_job *job, const struct plan_opts *opts)
{
    if (opts->is_json)
        plan_report_json(job);
    else if (opts->is_csv)
        plan_report_csv(job);
    else
        plan_report_table(job);
    if (opts->is_explained)
        plan_explain(job);
    if ((opts->html != NULL && !plan_html(job, opts->html)) ||
        (opts->conf != NULL && !plan_conf(job, opts->conf)))
        return EXIT_FAILED;
    return finish_output(PLAN_NAME);
}

int cmd_plan(int argc, char **argv)
{
    struct plan_opts opts;
    struct plan_job *job = calloc(1, sizeof(*job));
    bool is_help;
    int status;

    if (job == NULL)
        return complain(PLAN_NAME, "out of memory");
    status = plan_options_read(argc, argv, job, &opts, &is_help);
    if (is_help) {
        plan_help();
        status = finish_output(PLAN_NAME);
    } else if (status == EXIT_DONE) {
        status = plan_job_open(job, &opts) ? job_report(job, &opts) : EXIT_FAILED;
        plan_job_close(job);
    }
    free(job);
    return status;
}
