/* SPDX-License-Identifier: Apache-2.0 */
/* A status has two rates: the mean time of a step that only decodes, and prompt tokens per second.  It does
 * not say how a step grows with its sequences; the picker's prior (5 percent each) stands in for it. */
#include "clients/sim/measured.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"

#define MAX_BYTES  (1u << 20)
#define ROW_GROWTH 0.05

int measured_parse(const char *name, struct bytes text, struct fault *fault, struct sim_times *out)
{
    json_error_t error;
    json_t *root = json_loadb((const char *)text.data, text.len_bytes, 0, &error);
    double rate = json_number_value(json_object_get(root, "prefill_tokens_per_s"));
    double step_s = json_number_value(json_object_get(root, "decode_step_ms")) / 1e3;
    bool is_json = root != NULL;

    json_decref(root);
    if (!is_json)
        return fault_set(fault, E_FORMAT, "%s:%d: %s", name, error.line, error.text);
    if (!(rate > 0 && rate < 1e12 && step_s > 0 && step_s < 1e3))
        return fault_set(
            fault, E_FORMAT,
            "%s: no prefill_tokens_per_s and decode_step_ms above 0; is it the status of a worker that "
            "has measured itself?",
            name);
    *out = (struct sim_times){
        .step_s = step_s * (1 - ROW_GROWTH), .row_s = step_s * ROW_GROWTH, .token_s = 1 / rate};
    return 0;
}

int measured_load(const char *path, struct fault *fault, struct sim_times *out)
{
    static char text[MAX_BYTES + 1];
    FILE *file = fopen(path, "re");
    size_t n;
    bool is_bad;

    if (file == NULL)
        return fault_set(fault, E_IO, "%s: %s", path, strerror(errno));
    n = fread(text, 1, sizeof(text), file);
    is_bad = ferror(file) != 0;
    fclose(file);
    if (is_bad)
        return fault_set(fault, E_IO, "%s: cannot be read", path);
    if (n > MAX_BYTES)
        return fault_set(fault, E_LIMIT, "%s: longer than a status", path);
    return measured_parse(path, bytes_of(text, n), fault, out);
}
