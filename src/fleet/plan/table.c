/* SPDX-License-Identifier: Apache-2.0 */
/* Reads tables of tab- or comma-separated cells, and numbers with units.
 *
 * The text is copied once and cut in place: each separator becomes a NUL, and a cell is a pointer into the
 * copy.  A NUL byte in the input would hide the rest of its cell, so the parser refuses it. */
#include "fleet/plan/table.h"

#include "base/err.h"
#include "base/str.h"

#include <math.h>
#include <stdlib.h>

static bool table_line_is_empty(const char *line)
{
    return *line == '#' || line[strspn(line, " \t\r")] == '\0';
}

/* Cuts the cell at line off and returns the rest, or NULL after the last cell of the line. */
static char *table_cut(char *line, char separator)
{
    char *at = line;

    if (separator == ',' && *line == '"') { /* the quotes go, doubled ones stay single */
        char *to = line;

        for (at = line + 1; *at != '\0' && !(at[0] == '"' && at[1] != '"'); at++) {
            at += at[0] == '"';
            *to++ = *at;
        }
        at += *at == '"';
        bool is_last = *at != separator;
        *to = '\0';
        return is_last ? NULL : at + 1;
    }
    at = strchr(line, separator);
    if (at == NULL)
        return NULL;
    *at = '\0';
    return at + 1;
}

static int table_row(struct plan_table *table, char *line, char separator, size_t n_line, struct fault *fault)
{
    char **cells = table->cells + table->n_rows * table->n_cols;
    size_t n = 0, limit = table->n_rows == 0 ? PLAN_TABLE_COLS : table->n_cols;

    for (char *rest = line; rest != NULL; n++) {
        char *cell = rest;

        if (n == limit)
            return fault_set(fault, E_FORMAT, "line %zu: more than %zu cells", n_line, limit);
        rest = table_cut(cell, separator);
        cells[n] = cell;
    }
    if (table->n_rows > 0 && n != table->n_cols)
        return fault_set(fault, E_FORMAT, "line %zu: %zu cells where the header has %zu", n_line, n,
                         table->n_cols);
    table->n_cols = n;
    table->lines[table->n_rows++] = n_line;
    return 0;
}

static int table_reserve(struct plan_table *table, size_t *cap, struct fault *fault)
{
    if (table->n_rows < *cap)
        return 0;
    if (table->n_rows >= PLAN_TABLE_ROWS)
        return fault_set(fault, E_LIMIT, "more than %d rows", PLAN_TABLE_ROWS);

    size_t more = *cap == 0 ? 64 : *cap * 2, width = table->n_cols == 0 ? PLAN_TABLE_COLS : table->n_cols;
    char **cells = realloc(table->cells, more * width * sizeof(*cells));
    if (cells != NULL)
        table->cells = cells;
    size_t *lines = realloc(table->lines, more * sizeof(*lines));
    if (lines != NULL)
        table->lines = lines;
    if (cells == NULL || lines == NULL)
        return fault_set(fault, E_NOMEM, "out of memory");
    *cap = more;
    return 0;
}

static int table_cut_lines(struct plan_table *table, struct fault *fault)
{
    size_t cap = 0, n_line = 1;
    char separator = '\t';

    for (char *line = table->text, *next; line != NULL; line = next, n_line++) {
        next = strchr(line, '\n');
        if (next != NULL)
            *next++ = '\0';
        size_t len = strlen(line);
        if (len > 0 && line[len - 1] == '\r')
            line[len - 1] = '\0';
        if (table_line_is_empty(line))
            continue;
        if (table->n_rows == 0 && strchr(line, '\t') == NULL)
            separator = ',';
        int rc = table_reserve(table, &cap, fault);
        if (rc == 0)
            rc = table_row(table, line, separator, n_line, fault);
        if (rc != 0)
            return rc;
    }
    return table->n_rows == 0 ? fault_set(fault, E_FORMAT, "no header line") : 0;
}

int plan_table_parse(struct bytes text, struct fault *fault, struct plan_table *out)
{
    struct plan_table table = {0};

    if (text.len_bytes > PLAN_TABLE_BYTES)
        return fault_set(fault, E_LIMIT, "more than %zu bytes", PLAN_TABLE_BYTES);
    if (text.len_bytes > 0 && memchr(text.data, 0, text.len_bytes) != NULL)
        return fault_set(fault, E_FORMAT, "a NUL byte: not a text table");
    table.text = malloc(text.len_bytes + 1);
    if (table.text == NULL)
        return fault_set(fault, E_NOMEM, "out of memory");
    if (text.len_bytes > 0)
        memcpy(table.text, text.data, text.len_bytes);
    table.text[text.len_bytes] = '\0';

    int rc = table_cut_lines(&table, fault);
    if (rc != 0) {
        plan_table_fini(&table);
        return rc;
    }
    *out = table;
    return 0;
}

void plan_table_fini(struct plan_table *table)
{
    free(table->text);
    free(table->cells);
    free(table->lines);
    *table = (struct plan_table){0};
}

const char *plan_table_cell(const struct plan_table *table, size_t row, size_t column)
{
    return table->cells[row * table->n_cols + column];
}

int plan_table_column(const struct plan_table *table, const char *name, struct fault *fault,
                      size_t *column_out)
{
    for (size_t i = 0; i < table->n_cols; i++)
        if (strcmp(plan_table_cell(table, 0, i), name) == 0) {
            *column_out = i;
            return 0;
        }
    return fault_set(fault, E_NOT_FOUND, "no column \"%s\" in the header", name);
}

/* The factor of the unit after a number; NAN: unknown unit. */
static double number_unit(const char *unit)
{
    static const char PREFIXES[] = "kMGTPE";
    double factor = 1, base = 1000;
    const char *prefix = *unit == '\0' ? NULL : strchr(PREFIXES, *unit);

    if (prefix != NULL) {
        unit++;
        if (*unit == 'i') {
            base = 1024;
            unit++;
        }
        factor = pow(base, (double)(prefix - PREFIXES + 1));
    }
    if (*unit == 'b') /* bits; byte is written B */
        factor /= 8;
    static const char *const UNITS[] = {"",      "B",      "B/s", "b", "b/s", "bit/s", "bps",
                                        "FLOPS", "FLOP/s", "OPS", "F", "W",   "s"};
    for (size_t i = 0; i < sizeof(UNITS) / sizeof(UNITS[0]); i++)
        if (strcmp(unit, UNITS[i]) == 0)
            return factor;
    return NAN;
}

int plan_number(const char *text, struct fault *fault, double *out)
{
    if (strcmp(text, "null") == 0 || strcmp(text, "-") == 0 || *text == '\0') {
        *out = NAN;
        return 0;
    }
    size_t len = strspn(text, "0123456789.eE+-"), skip;
    /* "1e9" has an exponent, "5E" a prefix: an E without a digit behind it belongs to the unit. */
    while (len > 0 && (text[len - 1] == 'e' || text[len - 1] == 'E'))
        len--;
    double value;
    if (str_to_f64(bytes_of(text, len), &value) != 0)
        return fault_set(fault, E_FORMAT, "\"%.40s\" is not a number", text);
    skip = strspn(text + len, " ");
    double factor = number_unit(text + len + skip);
    if (isnan(factor))
        return fault_set(fault, E_FORMAT, "\"%.40s\": unknown unit \"%.20s\"", text, text + len + skip);
    value *= factor;
    if (!isfinite(value) || value < 0)
        return fault_set(fault, E_RANGE, "\"%.40s\" is negative or too large", text);
    *out = value;
    return 0;
}
