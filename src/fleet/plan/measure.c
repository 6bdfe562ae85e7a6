/* SPDX-License-Identifier: Apache-2.0 */
/* Measurements and their predictions.
 *
 * Most measurements are of aggregated serving at a fixed number of requests in flight.  Each step decodes all
 * running sequences, and now and then a new prompt joins.  During the OSL steps of a sequence, each of the
 * other B - 1 is replaced once.  So the step time rises by (B - 1) / OSL of a prompt's prefill:
 *
 *   TPOT = t_decode(B, ISL + OSL / 2) + (B - 1) / OSL x mix x (t_mixed(ISL) - t_decode)
 *   TTFT = start + x t_prefill(ISL) (1 + y (B - 1) / 2)
 *
 * The others are of a prefill and a decode worker, between which the requests in flight circulate
 * (predict_split). */
#include "fleet/plan/measure.h"

#include "base/err.h"
#include "base/str.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define ROW_MAX      1e9
#define SPLIT_MAX    4096
#define SPLIT_ROUNDS 12

const char *plan_row_kv(const char *engine, const char *weights)
{
    bool is_narrow = strcmp(weights, "bf16") != 0 && strcmp(weights, "fp16") != 0;

    return is_narrow && strcmp(engine, "trtllm") == 0 ? "fp8" : "bf16";
}

static int row_setup(struct plan_row *row, struct fault *fault)
{
    /* Constants come with each prediction. */
    struct plan_setup setup = {
        .model = &row->model,
        .device = row->device,
        .weights = row->weights,
        .kv = row->kv,
        .tp = row->tp,
        .moe_tp = row->model.experts > 0 ? row->moe_tp : row->tp,
        .ep = row->model.experts > 0 ? row->moe_ep : 1,
        .pp = 1,
        .nodes = 1,
    };

    return plan_cost_init(&setup, fault, &row->cost);
}

static const char *const COLUMNS[] = {"model",       "gpu", "engine", "weights", "isl",     "osl",
                                      "concurrency", "tp",  "moe_tp", "moe_ep",  "ttft_ms", "tpot_ms"};
#define N_COLUMNS (sizeof(COLUMNS) / sizeof(COLUMNS[0]))

static int row_numbers(const struct plan_table *table, size_t r, const size_t *column, struct fault *fault,
                       struct plan_row *row)
{
    double *const numbers[] = {&row->isl,    &row->osl,    &row->concurrency,   &row->tp,
                               &row->moe_tp, &row->moe_ep, &row->ms[PLAN_TTFT], &row->ms[PLAN_TPOT]};

    for (size_t i = 0; i < 8; i++) {
        int rc = plan_number(plan_table_cell(table, r, column[4 + i]), fault, numbers[i]);
        if (rc != 0)
            return rc;
        bool is_result = i >= 6;
        if (isnan(*numbers[i]) && !is_result)
            return fault_set(fault, E_FORMAT, "%s is missing", COLUMNS[4 + i]);
        if (*numbers[i] <= 0 || *numbers[i] > ROW_MAX || (!is_result && *numbers[i] < 1))
            return fault_set(fault, E_RANGE, "%s is %g", COLUMNS[4 + i], *numbers[i]);
    }
    return 0;
}

struct reading {
    const struct plan_table *table;
    const struct plan_books *books;
    size_t column[N_COLUMNS];
    size_t kv, hit, mode; /* SIZE_MAX: no such column */
};

static int row_options(const struct reading *reading, size_t r, struct fault *fault, struct plan_row *row)
{
    const char *kv = reading->kv == SIZE_MAX ? "" : plan_table_cell(reading->table, r, reading->kv);

    if (*kv == '\0' || strcmp(kv, "-") == 0)
        kv = plan_row_kv(row->engine, row->weights);
    if (!str_copy(row->kv, sizeof(row->kv), kv))
        return fault_set(fault, E_LIMIT, "kv is too long");
    const char *mode =
        reading->mode == SIZE_MAX ? "aggregated" : plan_table_cell(reading->table, r, reading->mode);
    row->is_split = strcmp(mode, "split") == 0;
    if (!row->is_split && strcmp(mode, "aggregated") != 0)
        return fault_set(fault, E_FORMAT, "mode is \"%.20s\", not aggregated or split", mode);
    if (reading->hit == SIZE_MAX)
        return 0;
    int rc = plan_number(plan_table_cell(reading->table, r, reading->hit), fault, &row->hit);
    if (rc == 0 && isnan(row->hit))
        row->hit = 0;
    return rc != 0 || row->hit < 1 ? rc : fault_set(fault, E_RANGE, "hit is not below 1");
}

static int row_read(const struct reading *reading, size_t r, struct fault *fault, struct plan_row *row)
{
    const struct plan_table *table = reading->table;
    const size_t *column = reading->column;
    const char *model = plan_table_cell(table, r, column[0]), *device = plan_table_cell(table, r, column[1]);
    char all[512] = "";

    *row = (struct plan_row){.line = table->lines[r]};
    int rc = plan_models_find(&reading->books->models, model, fault, &row->model);
    if (rc == 0)
        rc = plan_devices_find(&reading->books->devices, device, fault, &row->device);
    if (rc == 0 && (!str_copy(row->engine, sizeof(row->engine), plan_table_cell(table, r, column[2])) ||
                    !str_copy(row->weights, sizeof(row->weights), plan_table_cell(table, r, column[3])) ||
                    !str_copy(row->model_name, sizeof(row->model_name), model)))
        rc = fault_set(fault, E_LIMIT, "a name is too long");
    if (rc == 0)
        rc = row_numbers(table, r, column, fault, row);
    if (rc == 0)
        rc = row_options(reading, r, fault, row);
    if (rc == 0)
        rc = row_setup(row, fault);
    for (size_t i = 0; i < 10; i++)
        snprintf(all + strlen(all), sizeof(all) - strlen(all), "%.48s ",
                 plan_table_cell(table, r, column[i]));
    row->config = str_digest(all);
    return rc;
}

int plan_rows_parse(struct bytes text, const struct plan_books *books, struct fault *fault,
                    struct plan_rows *out)
{
    struct plan_table table;
    struct reading reading = {
        .table = &table, .books = books, .kv = SIZE_MAX, .hit = SIZE_MAX, .mode = SIZE_MAX};
    struct plan_rows rows = {0};
    int rc = plan_table_parse(text, fault, &table);

    if (rc != 0)
        return rc;
    for (size_t i = 0; i < N_COLUMNS && rc == 0; i++)
        rc = plan_table_column(&table, COLUMNS[i], fault, &reading.column[i]);
    plan_table_column(&table, "kv", NULL, &reading.kv);
    plan_table_column(&table, "hit", NULL, &reading.hit);
    plan_table_column(&table, "mode", NULL, &reading.mode);
    if (rc == 0 && table.n_rows == 1)
        rc = fault_set(fault, E_FORMAT, "no rows behind the header");
    if (rc == 0) {
        rows.list = calloc(table.n_rows, sizeof(*rows.list));
        rc = rows.list == NULL ? fault_set(fault, E_NOMEM, "out of memory") : 0;
    }
    for (size_t r = 1; r < table.n_rows && rc == 0; r++) {
        struct fault why = {0};

        rc = row_read(&reading, r, &why, &rows.list[rows.n]);
        rows.n += rc == 0;
        if (rc == 0)
            continue;
        fault_set(fault, rc, "line %zu: %s", table.lines[r], why.text);
        if (rc == E_FORMAT || rc == E_RANGE || rc == E_LIMIT)
            continue;
        if (rows.n_refused++ == 0)
            fault_set(&rows.refusal, rc, "line %zu: %s", table.lines[r], why.text);
        rc = rows.n_refused + 1 == table.n_rows ? rc : 0;
    }
    for (size_t i = 0; i < rows.n; i++) { /* the list has its place now */
        rows.list[i].cost.setup.model = &rows.list[i].model;
        rows.list[i].cost.setup.weights = rows.list[i].weights;
        rows.list[i].cost.setup.kv = rows.list[i].kv;
    }
    plan_table_fini(&table);
    if (rc != 0) {
        free(rows.list);
        return rc;
    }
    *out = rows;
    return 0;
}

void plan_rows_fini(struct plan_rows *rows)
{
    free(rows->list);
    *rows = (struct plan_rows){0};
}

/* One engine for both phases. */
static void predict_aggregated(const struct plan_row *row, const struct plan_cost *cost,
                               double ms[PLAN_N_TARGETS])
{
    const double *k = cost->setup.constants->at;
    struct plan_terms terms;
    double context = row->isl + row->osl / 2, others = row->concurrency - 1;
    double new_tokens = fmax(1, row->isl * (1 - row->hit));
    double decode = plan_cost_decode(cost, row->concurrency, context);
    double mixed = plan_cost_step(cost,
                                  &(struct plan_load){.new_tokens = new_tokens,
                                                      .attention = new_tokens * (row->isl - new_tokens / 2),
                                                      .n_finished = 1,
                                                      .batch = row->concurrency,
                                                      .context = context},
                                  &terms);
    double prefill = plan_cost_prefill(cost, new_tokens, row->isl - new_tokens);

    ms[PLAN_TPOT] = (decode + others / row->osl * k[PC_MIX] * (mixed - decode)) * 1e3;
    ms[PLAN_TTFT] = (k[PC_T0] + k[PC_TTFT_X] * prefill * (1 + k[PC_TTFT_Y] * others / 2)) * 1e3;
}

/* Predicts a prefill and a decode worker: requests in flight circulate between a queue and a delay.  Mean value
 * analysis gives the queue's wait exactly for each number of requests.  The delay depends on the number of
 * decoding requests, so both are solved together. */
static void predict_split(const struct plan_row *row, const struct plan_cost *cost, double ms[PLAN_N_TARGETS])
{
    const double *k = cost->setup.constants->at;
    double context = row->isl + row->osl / 2, new_tokens = fmax(1, row->isl * (1 - row->hit));
    double service = k[PC_TTFT_X] * plan_cost_prefill(cost, new_tokens, row->isl - new_tokens);
    double batch = 1, step = 0, wait = service, busy = 0;
    int n = (int)fmin(row->concurrency, SPLIT_MAX);

    for (int round = 0; round < SPLIT_ROUNDS; round++) {
        double queue = 0, rate = 0;

        step = plan_cost_decode(cost, fmax(1, batch), context) * (1 + k[PC_SAME_HOST] * busy);
        for (int i = 1; i <= n; i++) {
            wait = service * (1 + queue);
            rate = i / (k[PC_T0] + wait + step * row->osl);
            queue = rate * wait;
        }
        busy = fmin(1, rate * service);
        batch = (batch + rate * step * row->osl) / 2;
    }
    ms[PLAN_TPOT] = step * 1e3;
    ms[PLAN_TTFT] = (k[PC_T0] + wait) * 1e3;
}

void plan_predict(const struct plan_row *row, const struct plan_constants *constants,
                  struct plan_prediction *out)
{
    struct plan_cost cost = row->cost;
    struct plan_kind kind = {row->engine, row->model.name, row->device->id};

    cost.setup.constants = constants;
    if (row->is_split)
        predict_split(row, &cost, out->ms);
    else
        predict_aggregated(row, &cost, out->ms);
    for (int t = 0; t < PLAN_N_TARGETS; t++) {
        out->ms[t] *= plan_constants_factor(constants, &kind, (enum plan_target)t, &out->known);
        out->low_ms[t] = out->ms[t] * exp(constants->band[t][out->known][0]);
        out->high_ms[t] = out->ms[t] * exp(constants->band[t][out->known][1]);
    }
}
