/* SPDX-License-Identifier: Apache-2.0 */
/* Charts: a picture of 640 by 360 with a margin for the axes. */
#include "clients/plan/svg.h"

#include <math.h>

#define WIDTH  640
#define HEIGHT 360
#define LEFT   64
#define BOTTOM 48
#define TOP    16
#define RIGHT  16

static double svg_x(const struct svg_chart *chart, double x)
{
    double span = chart->x_high - chart->x_low;

    return LEFT + (span > 0 ? (x - chart->x_low) / span : 0.5) * (WIDTH - LEFT - RIGHT);
}

static double svg_y(const struct svg_chart *chart, double y)
{
    double part = chart->y_high > 0 ? y / chart->y_high : 0;

    return HEIGHT - BOTTOM - fmin(fmax(part, 0), 1) * (HEIGHT - BOTTOM - TOP);
}

/* 1, 2 or 5 times a power of ten that divides span in about five. */
static double svg_step(double span)
{
    double power = pow(10, floor(log10(span / 5))), part = span / 5 / power;

    return power * (part < 1.5 ? 1 : part < 3.5 ? 2 : part < 7.5 ? 5 : 10);
}

void svg_open(FILE *file, const struct svg_chart *chart)
{
    double step = svg_step(fmax(chart->y_high, 1e-9)), span = chart->x_high - chart->x_low;

    fprintf(file, "<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"%s\"><title>%s</title>\n", WIDTH,
            HEIGHT, chart->title, chart->title);
    for (double y = 0; y <= chart->y_high * 1.0001; y += step)
        fprintf(file,
                "<line class=\"grid\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/>"
                "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%.4g</text>\n",
                LEFT, WIDTH - RIGHT, svg_y(chart, y), svg_y(chart, y), LEFT - 6, svg_y(chart, y) + 4, y);
    step = svg_step(fmax(span, 1e-9));
    for (double x = ceil(chart->x_low / step) * step; x <= chart->x_high * 1.0001; x += step)
        fprintf(file, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%.4g</text>\n", svg_x(chart, x),
                HEIGHT - BOTTOM + 16, x);
    fprintf(file,
            "<path class=\"axis\" d=\"M%d %dV%dH%d\"/><text x=\"%d\" y=\"%d\" text-anchor=\"end\">%s</text>"
            "<text x=\"%d\" y=\"12\">%s</text>\n",
            LEFT, TOP, HEIGHT - BOTTOM, WIDTH - RIGHT, WIDTH - RIGHT, HEIGHT - 8, chart->x_name, LEFT + 6,
            chart->y_name);
}

void svg_band(FILE *file, const struct svg_chart *chart, const struct svg_point *points, size_t n)
{
    fputs("<polygon class=\"band\" points=\"", file);
    for (size_t i = 0; i < n; i++)
        fprintf(file, "%.1f,%.1f ", svg_x(chart, points[i].x), svg_y(chart, points[i].high));
    for (size_t i = n; i-- > 0;)
        fprintf(file, "%.1f,%.1f ", svg_x(chart, points[i].x), svg_y(chart, points[i].low));
    fputs("\"/>\n<polyline class=\"line\" points=\"", file);
    for (size_t i = 0; i < n; i++)
        fprintf(file, "%.1f,%.1f ", svg_x(chart, points[i].x), svg_y(chart, points[i].y));
    fputs("\"/>\n", file);
}

void svg_dot(FILE *file, const struct svg_chart *chart, const struct svg_point *point, const char *kind)
{
    double x = svg_x(chart, point->x);

    if (point->high > point->low)
        fprintf(file, "<line class=\"bar\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/>", x, x,
                svg_y(chart, point->low), svg_y(chart, point->high));
    fprintf(file, "<circle class=\"%s%s\" cx=\"%.1f\" cy=\"%.1f\" r=\"%d\"/>\n", kind,
            point->is_best ? " best" : "", x, svg_y(chart, point->y), point->is_best ? 6 : 3);
}

void svg_close(FILE *file)
{
    fputs("</svg>\n", file);
}
