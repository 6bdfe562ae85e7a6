/* SPDX-License-Identifier: Apache-2.0 */
/* A simulation's report: a table and a chart for people, JSON for programs. */
#ifndef CLIENTS_SIM_REPORT_H
#define CLIENTS_SIM_REPORT_H

#include "base/bytes.h"
#include "clients/sim/options.h"

/* E_NOMEM. */
int sim_report_text(const struct sim_cli *cli, const struct sim_result *result, struct buf *out);
int sim_report_json(const struct sim_cli *cli, const struct sim_result *result, struct buf *out);

#endif
