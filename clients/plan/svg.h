/* SPDX-License-Identifier: Apache-2.0 */
/* Charts as inline SVG: axes from 0, a line with a band, dots with bars. */
#ifndef PLAN_SVG_H
#define PLAN_SVG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct svg_chart {
    const char *title, *x_name, *y_name; /* plain text without markup */
    double x_low, x_high, y_high;        /* y begins at 0 */
};

struct svg_point {
    double x, y, low, high;
    bool is_best;
};

void svg_open(FILE *file, const struct svg_chart *chart);
void svg_band(FILE *file, const struct svg_chart *chart, const struct svg_point *points, size_t n);
void svg_dot(FILE *file, const struct svg_chart *chart, const struct svg_point *point, const char *kind);
void svg_close(FILE *file);

#endif
