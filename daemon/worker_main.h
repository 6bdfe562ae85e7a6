/* SPDX-License-Identifier: Apache-2.0 */
/* The common main of both worker roles, which differ in the name and defaults. */
#ifndef DAEMON_WORKER_MAIN_H
#define DAEMON_WORKER_MAIN_H

#include "worker/loop/worker.h"

int worker_main(int argc, char **argv, const struct config_table *table);

#endif
