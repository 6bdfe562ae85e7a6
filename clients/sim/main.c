/* SPDX-License-Identifier: Apache-2.0 */
/* baton-sim: replays a load against a simulated fleet. */
#include <signal.h>
#include <stdio.h>

#include "base/err.h"
#include "base/progress.h"
#include "clients/common/cli.h"
#include "clients/sim/report.h"

static atomic_bool is_stopped;
static volatile sig_atomic_t stopped_by; /* a signal's number */

static void sim_main_on_signal(int number)
{
    stopped_by = number;
    atomic_store(&is_stopped, true);
}

/* The first Ctrl-C ends the simulation with a report of what has been simulated; the second kills as usual. */
static void sim_main_catch_signals(void)
{
    struct sigaction action = {.sa_handler = sim_main_on_signal, .sa_flags = (int)SA_RESETHAND};

    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

static int sim_main_print_report(const struct sim_cli *cli, const struct sim_result *result)
{
    struct buf out = {0};
    int rc = cli->is_json ? sim_report_json(cli, result, &out) : sim_report_text(cli, result, &out);

    if (rc == 0)
        fwrite(out.data, 1, out.len_bytes, stdout);
    buf_fini(&out);
    return rc < 0 ? complain(SIM_NAME, "%s", err_text(rc)) : finish_output(SIM_NAME);
}

static int sim_main_simulate(const struct sim_cli *cli, struct sim_load *load)
{
    struct progress progress;
    struct sim_result result;
    struct fault fault = {0};
    int status, rc;

    progress_begin(&progress, "simulating", load->span_ns);
    load->progress = &progress;
    load->is_stopped = &is_stopped;
    sim_main_catch_signals();
    rc = sim_run(&cli->sim, load, &fault, &result);
    progress_end(&progress);
    if (rc < 0)
        status = complain(SIM_NAME, "%s", fault.text);
    else
        status = sim_main_print_report(cli, &result);
    if (status == 0 && result.is_partial)
        status = 128 + stopped_by; /* as a shell reports the signal */
    sim_result_fini(&result);
    return status;
}

static int simulate_trace(const struct sim_cli *cli)
{
    struct replay *replay = NULL;
    struct trace trace = {0};
    struct fault fault = {0};
    struct sim_load load;
    int status, rc;

    if (trace_load(cli->trace_path, &fault, &trace) < 0)
        return complain(SIM_NAME, "%s", fault.text);
    rc = replay_new(&trace, &cli->replay, &replay);
    if (rc < 0) {
        status = complain(SIM_NAME, "%s: %s", cli->trace_path,
                          rc == E_RANGE ? "lasts more than a hundred years" : err_text(rc));
    } else {
        load = replay_load(replay);
        status = sim_main_simulate(cli, &load);
    }
    replay_free(replay);
    trace_fini(&trace);
    return status;
}

static int simulate_generated(const struct sim_cli *cli)
{
    struct generate *generate = NULL;
    struct sim_load load;
    int status;

    if (generate_new(&cli->generate, &generate) < 0)
        return complain(SIM_NAME, "%s", err_text(E_NOMEM));
    load = generate_load(generate);
    status = sim_main_simulate(cli, &load);
    generate_free(generate);
    return status;
}

int main(int argc, char **argv)
{
    struct sim_cli cli;
    int status;

    if (sim_options_read(argc, argv, &cli, &status) == 0)
        return status;
    return cli.trace_path != NULL ? simulate_trace(&cli) : simulate_generated(&cli);
}
