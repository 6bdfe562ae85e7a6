/* SPDX-License-Identifier: Apache-2.0 */
/* Text tables: a header line, then one row a line; tabs or commas between the cells.  Pure. */
#ifndef FLEET_PLAN_TABLE_H
#define FLEET_PLAN_TABLE_H

#include "base/bytes.h"
#include "base/fault.h"

#define PLAN_TABLE_BYTES ((size_t)64 << 20) /* limit of a file */
#define PLAN_TABLE_ROWS  1000000
#define PLAN_TABLE_COLS  128

struct plan_table {
    char *text; /* owned; the cells point into it */
    char **cells;
    size_t *lines; /* line number of each row in the file; row 0 is the header */
    size_t n_rows; /* with the header */
    size_t n_cols;
};

/* Lines that begin with '#' and empty lines are skipped.  The separator is a tab if the header has one, else a
 * comma; a quoted cell may contain commas.  Every row has the header's number of cells.  E_FORMAT, E_LIMIT and
 * E_NOMEM, with the line in the fault. */
int plan_table_parse(struct bytes text, struct fault *fault, struct plan_table *out);
void plan_table_fini(struct plan_table *table); /* a zeroed table is empty */
/* A header's position.  E_NOT_FOUND, with the name in the fault. */
int plan_table_column(const struct plan_table *table, const char *name, struct fault *fault,
                      size_t *column_out);
const char *plan_table_cell(const struct plan_table *table, size_t row, size_t column);

/* A number with an optional SI prefix and unit: "80 GB", "3.35TB/s", "989 TFLOPS", "0.73", "64 GiB", "400 Gb/s"
 * (bits, divided by eight).  "null" and "-" give NAN.  E_FORMAT, E_RANGE (negative or not finite). */
int plan_number(const char *text, struct fault *fault, double *out);

#endif
