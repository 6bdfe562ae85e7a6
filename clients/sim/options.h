/* SPDX-License-Identifier: Apache-2.0 */
/* baton-sim's command line. */
#ifndef CLIENTS_SIM_OPTIONS_H
#define CLIENTS_SIM_OPTIONS_H

#include "clients/sim/replay.h"
#include "fleet/sim/generate.h"

#define SIM_NAME "baton-sim"

struct sim_cli {
    struct sim_opts sim;
    struct replay_opts replay;
    struct generate_opts generate;
    const char *trace_path, *generate_name, *measured_path;
    bool is_json;
    const char *policy, *preset, *prefix_fetch, *refuse, *roles, *costs, *class, *class2, *via, *via2;
};

/* 1: go on; 0: exit with *status_out. */
int sim_options_read(int argc, char **argv, struct sim_cli *cli, int *status_out);
const char *sim_policy_name(enum sim_policy policy);

#endif
