/* SPDX-License-Identifier: Apache-2.0 */
/* Quantises: finds the scales, mins and quants that represent given weights with the least error.
 *
 * The error of a weight counts (rms + |w|) times, with the rms of its qblk: large weights matter more in a product,
 * but every weight counts.  With an importance matrix, the mean square of the weight's inputs takes its place: this
 * gives the error of the product.  Types of four quants use both factors: their errors are as large as the weights, and
 * the product's mean error alone lets large weights shrink, which harms the model (Q2_K in test_imatrix).  For fixed quants the best scale (and min) is a linear least squares problem with a
 * closed solution.  The search tries some twenty assignments of quants, from rounding w / scale for scales around the
 * one that just spans the weights:
 *
 *     sub-block      candidates -> sums of w, x, q -> scale (and min) with the least residue
 *     qblk           scale and min of the qblk, so that the values of its sub-blocks fit their few bits
 *     sub-block      integer scale and min, those and their neighbours tried; quants by rounding
 *     qblk           scale and min once more by least squares, all quants fixed; kept when better
 *
 * Sums run in a fixed order, so the same weights give the same bytes with any number of threads. */
#include "gguf/qblk_write.h"

#include "base/err.h"

#include <math.h>
#include <string.h>

#define TINY 1e-20F /* smaller weights become zero: no 16-bit scale is that small */

struct fit {
    const struct qblk_form *form;
    const float *x;     /* [form->weights] */
    const float *given; /* [form->weights] importance from outside, or NULL */
    float importance[QBLK_MAX_WEIGHTS];
    int max_sub_scale, max_sub_min; /* largest integers of a sub-block; 0: the type has none */
    struct qblk_parts parts;
};

struct line { /* x is about scale * quant - min */
    float scale;
    float min;
};

static float qblk_fit_clamp(float value, float low, float high)
{
    return value < low ? low : value > high ? high : value;
}

/* To the nearest whole number, ties to even; |value| below 2^22. */
static float qblk_fit_whole(float value)
{
    return value + 0x1.8p23F - 0x1.8p23F;
}

static float half_of(float value)
{
    return f16_to_f32(f32_to_f16(value));
}

/* ---- one sub-block, scale (and min) free ---- */

enum { LANES = 8 }; /* number of partial sums, so that the compiler can use vectors; divides a sub-block */

struct sums {
    double w, x, xx, q, qq, xq; /* all sums are weighted */
};

static double lanes_sum(const float lanes[LANES])
{
    float half[LANES / 2];

    for (int k = 0; k < LANES / 2; k++)
        half[k] = lanes[k] + lanes[k + LANES / 2];
    return (double)((half[0] + half[2]) + (half[1] + half[3]));
}

/* The sums with q over n weights, with quants grid.scale * (x + grid.min), rounded. */
static void sum_quants(const struct fit *fit, uint32_t from, uint32_t n, struct line grid, struct sums *out)
{
    const float *x = fit->x + from, *importance = fit->importance + from;
    float low = fit->form->quant_low, high = fit->form->quant_high;
    float q1[LANES] = {0}, qq[LANES] = {0}, xq[LANES] = {0};

    for (const float *end = x + n; x < end; x += LANES, importance += LANES) {
        for (int k = 0; k < LANES; k++) {
            float q = qblk_fit_whole(qblk_fit_clamp(grid.scale * (x[k] + grid.min), low, high));
            float wq = importance[k] * q;

            q1[k] += wq;
            qq[k] += wq * q;
            xq[k] += wq * x[k];
        }
    }
    out->q = lanes_sum(q1);
    out->qq = lanes_sum(qq);
    out->xq = lanes_sum(xq);
}

/* The scale of the best symmetric fit of n weights. */
static float fit_symmetric(const struct fit *fit, uint32_t from, uint32_t n)
{
    const float *x = fit->x + from;
    float low = fit->form->quant_low, extreme = 0;
    double best = 0, scale = 0;

    for (uint32_t i = 0; i < n; i++)
        extreme = fabsf(x[i]) > fabsf(extreme) ? x[i] : extreme;
    if (fabsf(extreme) < TINY)
        return 0;
    for (int step = -9; step <= 9; step++) {
        /* Give the side of zero that has one quant more to the weight of the largest magnitude. */
        float inverse = (low + 0.1F * (float)step) / extreme;
        struct sums sums = {0};

        sum_quants(fit, from, n, (struct line){inverse, 0}, &sums);
        /* The residue is sum(w x x) - xq^2 / qq. */
        if (sums.qq > 0 && sums.xq * sums.xq > best * sums.qq) {
            best = sums.xq * sums.xq / sums.qq;
            scale = sums.xq / sums.qq;
        }
    }
    return (float)scale;
}

/* Finds the scale and min with the least residue and returns the residue.  If bounded, the min must not be
 * negative. */
static double qblk_fit_solve(const struct sums *s, bool is_bounded, struct line *out)
{
    double det = s->w * s->qq - s->q * s->q;

    if (det > 0) {
        double scale = (s->w * s->xq - s->x * s->q) / det;
        double base = (s->qq * s->x - s->q * s->xq) / det;

        if (!is_bounded || base <= 0) {
            *out = (struct line){(float)scale, (float)-base};
            return s->xx - scale * s->xq - base * s->x;
        }
    }
    *out = (struct line){s->qq > 0 ? (float)(s->xq / s->qq) : 0, 0};
    return s->xx - (double)out->scale * s->xq;
}

static struct line fit_affine(const struct fit *fit, uint32_t from, uint32_t n)
{
    const float *x = fit->x + from, *importance = fit->importance + from;
    bool is_bounded = fit->max_sub_min > 0;
    float high = fit->form->quant_high, least = x[0], most = x[0];
    struct line best, line;
    struct sums fixed = {0};
    double residue = INFINITY;

    for (uint32_t i = 0; i < n; i++) {
        double w = (double)importance[i], value = (double)x[i];

        least = x[i] < least ? x[i] : least;
        most = x[i] > most ? x[i] : most;
        fixed.w += w;
        fixed.x += w * value;
        fixed.xx += w * value * value;
    }
    if (is_bounded && least > 0)
        least = 0;
    best = (struct line){0, -least};
    if (most - least < TINY)
        return best;
    for (int step = -10; step <= 10; step++) {
        float inverse = (high + 0.1F * (float)step) / (most - least);
        struct sums sums = fixed;

        sum_quants(fit, from, n, (struct line){inverse, -least}, &sums);
        double here = qblk_fit_solve(&sums, is_bounded, &line);
        if (here < residue && line.scale > 0) {
            residue = here;
            best = line;
        }
    }
    return best;
}

/* ---- quants for a given line ---- */

/* Rounds n weights to a line.  Returns their error and writes the quants, unless that is NULL. */
static double round_to(const struct fit *fit, uint32_t from, uint32_t n, struct line line, int8_t *quants)
{
    const float *x = fit->x + from, *importance = fit->importance + from;
    float low = fit->form->quant_low, high = fit->form->quant_high;
    float inverse = fabsf(line.scale) < TINY ? 0 : 1 / line.scale;
    float error[LANES] = {0};

    for (uint32_t i = 0; i < n && quants != NULL; i++)
        quants[i] = (int8_t)qblk_fit_whole(qblk_fit_clamp(inverse * (x[i] + line.min), low, high));
    for (const float *end = x + n; x < end; x += LANES, importance += LANES) {
        for (int k = 0; k < LANES; k++) {
            float q = qblk_fit_whole(qblk_fit_clamp(inverse * (x[k] + line.min), low, high));
            float off = line.scale * q - line.min - x[k];

            error[k] += importance[k] * off * off;
        }
    }
    return lanes_sum(error);
}

/* Types with a 16-bit scale for each sub-block are never written. */
static struct line line_of(const struct qblk_parts *parts, uint32_t sub)
{
    return (struct line){parts->scale * (float)parts->sub_scales[sub], qblk_sub_min(parts, sub)};
}

/* Searches the integer scale and min of a sub-block near the wanted line.  Returns their error. */
static double choose_sub(struct fit *fit, uint32_t sub, struct line wanted)
{
    struct qblk_parts *parts = &fit->parts;
    uint32_t n = fit->form->sub_weights, from = sub * n;
    float low = fit->form->has_min ? 0 : (float)-fit->max_sub_scale - 1;
    int scale = parts->scale == 0 ? 0
                                  : (int)qblk_fit_whole(qblk_fit_clamp(wanted.scale / parts->scale, low,
                                                                       (float)fit->max_sub_scale));
    int min = parts->min == 0
                  ? 0
                  : (int)qblk_fit_whole(qblk_fit_clamp(wanted.min / parts->min, 0, (float)fit->max_sub_min));
    int best_scale = scale, best_min = min;
    double least = INFINITY;

    for (int s = scale - 1; s <= scale + 1; s++) {
        for (int m = min - 1; m <= min + 1; m++) {
            if (s < (int)low || s > fit->max_sub_scale || m < 0 || m > fit->max_sub_min)
                continue;
            double error =
                round_to(fit, from, n, (struct line){parts->scale * (float)s, parts->min * (float)m}, NULL);
            if (error < least) {
                least = error;
                best_scale = s;
                best_min = m;
            }
        }
    }
    parts->sub_scales[sub] = (int8_t)best_scale;
    parts->sub_mins[sub] = (uint8_t)best_min;
    return round_to(fit, from, n, line_of(parts, sub), parts->quants + from);
}

static double choose_subs(struct fit *fit, const struct line *wanted)
{
    double error = 0;

    for (uint32_t s = 0; s < fit->form->n_subs; s++)
        error += choose_sub(fit, s, wanted[s]);
    return error;
}

/* ---- a whole qblk ---- */

/* Computes scale and min of the qblk by least squares, with all integers fixed. */
static struct line qblk_fit_polish(const struct fit *fit)
{
    const struct qblk_parts *parts = &fit->parts;
    double uu = 0, uv = 0, vv = 0, xu = 0, xv = 0; /* u = scale * quant, v = min of the sub-block */

    for (uint32_t i = 0; i < fit->form->weights; i++) {
        uint32_t s = i / fit->form->sub_weights;
        double w = (double)fit->importance[i], x = (double)fit->x[i];
        double u = parts->sub_scales[s] * parts->quants[i], v = parts->sub_mins[s];

        uu += w * u * u;
        uv += w * u * v;
        vv += w * v * v;
        xu += w * x * u;
        xv += w * x * v;
    }
    /* x is about a u - b v. */
    double det = uu * vv - uv * uv;
    if (det > 1e-9 * uu * vv)
        return (struct line){half_of((float)((xu * vv - xv * uv) / det)),
                             half_of((float)((xu * uv - xv * uu) / det))};
    return (struct line){uu > 0 ? half_of((float)((xu + (double)parts->min * uv) / uu)) : 0, parts->min};
}

static void fit_super(struct fit *fit)
{
    struct line wanted[QBLK_MAX_SUBS];
    float scale = 0, min = 0;
    uint32_t n = fit->form->sub_weights;

    for (uint32_t s = 0; s < fit->form->n_subs; s++) {
        wanted[s] =
            fit->form->has_min ? fit_affine(fit, s * n, n) : (struct line){fit_symmetric(fit, s * n, n), 0};
        scale = fabsf(wanted[s].scale) > fabsf(scale) ? wanted[s].scale : scale;
        min = wanted[s].min > min ? wanted[s].min : min;
    }
    /* Signed integers reach one further down than up, so the largest scale goes there. */
    fit->parts.scale =
        half_of(scale / (float)(fit->form->has_min ? fit->max_sub_scale : -fit->max_sub_scale - 1));
    fit->parts.min = fit->max_sub_min > 0 ? half_of(min / (float)fit->max_sub_min) : 0;

    double error = choose_subs(fit, wanted);
    struct qblk_parts before = fit->parts;
    struct line line = qblk_fit_polish(fit);
    if (!isfinite(line.scale) || !isfinite(line.min) || line.min < 0)
        return;
    fit->parts.scale = line.scale;
    fit->parts.min = line.min;
    if (!(choose_subs(fit, wanted) < error))
        fit->parts = before;
}

/* When a 16-bit scale or min has too few bits left, all-zero weights may have a smaller error.  Then use
 * zeros. */
static void prefer_zero(struct fit *fit)
{
    const struct qblk_form *form = fit->form;
    double error = 0, zero = 0;

    for (uint32_t i = 0; i < form->weights; i++) {
        struct line line = line_of(&fit->parts, i / form->sub_weights);
        float off = line.scale * (float)fit->parts.quants[i] - line.min - fit->x[i];

        error += (double)(fit->importance[i] * off * off);
        zero += (double)(fit->importance[i] * fit->x[i] * fit->x[i]);
    }
    if (zero <= error)
        fit->parts = (struct qblk_parts){.scale = 0};
}

static void fit_plain(struct fit *fit, enum dtype type)
{
    uint32_t n = fit->form->weights;
    struct line line;

    if (type == DTYPE_Q8_0) { /* finer than a search can improve: the largest weight is 127 steps */
        float most = 0;

        for (uint32_t i = 0; i < n; i++)
            most = fabsf(fit->x[i]) > most ? fabsf(fit->x[i]) : most;
        line = (struct line){most / 127, 0};
    } else {
        line = fit->form->has_min ? fit_affine(fit, 0, n) : (struct line){fit_symmetric(fit, 0, n), 0};
    }
    fit->parts.scale = half_of(line.scale);
    fit->parts.min = half_of(line.min);
    fit->parts.sub_scales[0] = 1;
    fit->parts.sub_mins[0] = fit->form->has_min;
    round_to(fit, 0, n, line_of(&fit->parts, 0), fit->parts.quants);
}

static int fit_qblk(enum dtype type, struct fit *fit)
{
    double squares = 0;

    for (uint32_t i = 0; i < fit->form->weights; i++) {
        if (!isfinite(fit->x[i]))
            return E_RANGE;
        squares += (double)fit->x[i] * (double)fit->x[i];
    }
    float rms = (float)sqrt(squares / fit->form->weights);
    bool is_sized = fit->given == NULL || fit->form->quant_high - fit->form->quant_low <= 3;
    for (uint32_t i = 0; i < fit->form->weights; i++)
        fit->importance[i] = (fit->given ? fit->given[i] : 1) * (is_sized ? rms + fabsf(fit->x[i]) : 1);
    if (fit->form->weights == QBLK_MAX_WEIGHTS)
        fit_super(fit);
    else
        fit_plain(fit, type);
    prefer_zero(fit);
    return isfinite(fit->parts.scale) && isfinite(fit->parts.min) ? 0 : E_RANGE;
}

static void sub_limits(enum dtype type, int *scale_out, int *min_out)
{
    *scale_out = type == DTYPE_Q2_K ? 15 : type == DTYPE_Q3_K ? 31 : type == DTYPE_Q6_K ? 127 : 63;
    *min_out = type == DTYPE_Q2_K ? 15 : type == DTYPE_Q4_K || type == DTYPE_Q5_K ? 63 : 0;
}

/* ---- rows ---- */

static int plain_from_f32(enum dtype type, const float *weights, size_t n, void *out)
{
    if (type == DTYPE_F32) {
        memcpy(out, weights, n * sizeof(*weights));
        return 0;
    }
    for (size_t i = 0; i < n; i++) {
        uint16_t half = type == DTYPE_F16 ? f32_to_f16(weights[i]) : f32_to_bf16(weights[i]);

        if (!isfinite(type == DTYPE_F16 ? f16_to_f32(half) : bf16_to_f32(half)))
            return E_RANGE;
        memcpy((char *)out + i * 2, &half, 2);
    }
    return 0;
}

int qblk_from_f32(enum dtype type, const float *weights, size_t n, void *out)
{
    return qblk_from_f32_important(type, weights, NULL, n, out);
}

int qblk_from_f32_important(enum dtype type, const float *weights, const float *importance, size_t n,
                            void *out)
{
    if (type == DTYPE_F32 || type == DTYPE_F16 || type == DTYPE_BF16)
        return plain_from_f32(type, weights, n, out);
    if (!qblk_can_write(type))
        return E_UNSUPPORTED;

    struct fit fit = {.form = qblk_form(type)};
    uint32_t step = fit.form->weights;
    if (n % step != 0)
        return E_INVAL;
    sub_limits(type, &fit.max_sub_scale, &fit.max_sub_min);
    for (size_t b = 0; b < n / step; b++) {
        fit.x = weights + b * step;
        fit.given = importance ? importance + b * step : NULL;
        int rc = fit_qblk(type, &fit);
        if (rc != 0)
            return rc;
        qblk_pack(type, &fit.parts, (char *)out + b * dtype_info(type)->qblk_bytes);
    }
    return 0;
}
