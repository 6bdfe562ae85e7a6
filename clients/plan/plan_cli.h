/* SPDX-License-Identifier: Apache-2.0 */
/* The commands of baton-plan.  Each gets its own name as argv[0], knows --help, and returns the exit status. */
#ifndef PLAN_PLAN_CLI_H
#define PLAN_PLAN_CLI_H

#include "clients/common/cli.h"
#include "fleet/plan/builtin.h"

#define PLAN_NAME "baton-plan"

int cmd_plan(int argc, char **argv);
int cmd_simulate(int argc, char **argv);
int cmd_sweep(int argc, char **argv);
int cmd_ratio(int argc, char **argv);
int cmd_devices(int argc, char **argv);
int cmd_links(int argc, char **argv);
int cmd_models(int argc, char **argv);
int cmd_validate(int argc, char **argv);
int cmd_calibrate(int argc, char **argv);

/* Appends a whole file ("-": stdin).  False after an error message. */
bool plan_cli_read(const char *path, struct buf *out);
/* The constants of a file, or those compiled in for NULL. */
bool plan_cli_constants(const char *path, struct plan_constants *out);
/* The books, with the devices and models of more files. */
bool plan_cli_books(const char *more_devices, const char *more_models, struct plan_books *out);
/* A table's rows; says how many are refused. */
bool plan_cli_rows(const char *path, const struct plan_books *books, struct plan_rows *out);
/* A name, a config.json, a GGUF file or an inline shape. */
bool plan_cli_model(const char *text, const struct plan_books *books, struct plan_model *out);
/* The same model, also added to the books, with a name that fits into a cell of a table. */
bool plan_cli_add_model(const char *text, struct plan_books *books, struct plan_model *out);
/* A number as 45.7 G; for texts. */
void plan_cli_si(double value, const char *unit, char *out, size_t cap);

#endif
