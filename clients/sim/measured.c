/* SPDX-License-Identifier: Apache-2.0 */
/* A status has the mean time of a step that only decodes, and prompt tokens per second.  Once the worker has
 * seen long prompts, it also has the cost of a prompt token without its attention, and of each token that it
 * attends to.  It does not say how a step grows with its sequences; the picker's prior (5 percent each)
 * stands in for it. */
#include "clients/sim/measured.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/file.h"

#define MAX_BYTES  (1u << 20)
#define ROW_GROWTH 0.05

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
    if (token_s > 0 && token_s < 1e3 && pair_s > 0 && pair_s < 1e3) { /* long prompts were seen */
        out->token_s = token_s;
        out->pair_s = pair_s;
    }
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
