/* SPDX-License-Identifier: Apache-2.0 */
/* A status has the worker's predictions for four steps (steps_ms): with few and with many decoding sequences, and
 * with few and with many prompt tokens.  Two of a kind give the fixed cost of a step and the cost that grows.  The
 * rates in a status do not suffice: prompt tokens per second include the fixed cost, which a simulated step adds
 * itself.
 *
 * An older worker's status has only the mean time of a decoding step, and prompt tokens per second.  Then the
 * picker's prior (5 percent for each sequence) is used.  Once a worker has seen long prompts, both kinds of status
 * have the cost of each token that a prompt token attends to. */
#include "clients/sim/measured.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/file.h"

#define MAX_BYTES  (1u << 20)
#define ROW_GROWTH 0.05

/* The line through two sizes: the time of a step at size 0, and the time for each further one.  False: there is no
 * such line. */
static bool line_through(const double size[2], const double seconds[2], double *fixed_out, double *each_out)
{
    double each = (seconds[1] - seconds[0]) / (size[1] - size[0]), fixed = seconds[0] - each * size[0];

    if (!(seconds[0] > 0 && seconds[1] < 1e3 && each > 0))
        return false;
    *each_out = each;
    *fixed_out = fixed > 0 ? fixed : 0;
    return true;
}

/* Two steps of n prompt tokens take fixed + token n + pair n^2 / 2.  pair_s is given if the worker has seen long
 * prompts, else it follows from the two steps.  False: no such curve. */
static bool curve_through(const double seconds[2], double fixed_s, double *token_out, double *pair_inout)
{
    static const double n[2] = {64, 512};
    double each_s[2] = {(seconds[0] - fixed_s) / n[0], (seconds[1] - fixed_s) / n[1]};
    double pair_s = *pair_inout > 0 ? *pair_inout : 2 * (each_s[1] - each_s[0]) / (n[1] - n[0]);
    double token_s;

    pair_s = pair_s > 0 ? pair_s : 0;
    token_s = each_s[1] - pair_s * n[1] / 2;
    if (!(seconds[0] > 0 && seconds[1] < 1e3 && token_s > 0))
        return false;
    *token_out = token_s;
    *pair_inout = pair_s;
    return true;
}

/* A simulated step has one fixed cost; take it from the decoding steps, which show it best. */
static bool take_steps(const json_t *steps, struct sim_times *times)
{
    static const double rows[2] = {1, 8};
    double rows_s[2] = {json_number_value(json_object_get(steps, "rows_1")) / 1e3,
                        json_number_value(json_object_get(steps, "rows_8")) / 1e3};
    double tokens_s[2] = {json_number_value(json_object_get(steps, "tokens_64")) / 1e3,
                          json_number_value(json_object_get(steps, "tokens_512")) / 1e3};
    double fixed_s, row_s;

    if (!line_through(rows, rows_s, &fixed_s, &row_s) ||
        !curve_through(tokens_s, fixed_s, &times->token_s, &times->pair_s))
        return false;
    times->step_s = fixed_s;
    times->row_s = row_s;
    return true;
}

int measured_parse(const char *name, struct bytes text, struct fault *fault, struct sim_times *out)
{
    json_error_t error;
    const char *data = text.len_bytes > 0 ? (const char *)text.data : "";
    json_t *root = json_loadb(data, text.len_bytes, 0, &error);
    double rate = json_number_value(json_object_get(root, "prefill_tokens_per_s"));
    double step_s = json_number_value(json_object_get(root, "decode_step_ms")) / 1e3;
    double token_s = json_number_value(json_object_get(root, "prompt_token_us")) / 1e6;
    double pair_s = json_number_value(json_object_get(root, "prompt_pair_ns")) / 1e9;
    bool is_json = root != NULL;
    struct sim_times times = {.step_s = step_s * (1 - ROW_GROWTH), .row_s = step_s * ROW_GROWTH};

    times.token_s = rate > 0 ? 1 / rate : 0;
    if (token_s > 0 && token_s < 1e3 && pair_s > 0 && pair_s < 1e3) /* long prompts were seen */
        times.pair_s = pair_s;
    if (!take_steps(json_object_get(root, "steps_ms"), &times) && times.pair_s > 0)
        times.token_s = token_s;
    json_decref(root);
    if (!is_json)
        return fault_set(fault, E_FORMAT, "%s:%d: %s", name, error.line, error.text);
    if (!(rate > 0 && rate < 1e12 && step_s > 0 && step_s < 1e3))
        return fault_set(
            fault, E_FORMAT,
            "%s: no prefill_tokens_per_s and decode_step_ms above 0; is it the status of a worker that "
            "has measured itself?",
            name);
    *out = times;
    return 0;
}

int measured_load(const char *path, struct fault *fault, struct sim_times *out)
{
    FILE *file = fopen(path, "re");
    struct buf text = {0};
    int rc;

    if (file == NULL)
        return fault_set(fault, E_IO, "%s: %s", path, strerror(errno));
    rc = file_read_rest(file, MAX_BYTES, &text);
    fclose(file);
    if (rc == 0)
        rc = measured_parse(path, buf_view(&text), fault, out);
    else
        fault_set(fault, rc, "%s: %s", path, rc == E_LIMIT ? "longer than a status" : "cannot be read");
    buf_fini(&text);
    return rc;
}
