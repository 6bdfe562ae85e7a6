/* SPDX-License-Identifier: Apache-2.0 */
/* Step times that a real worker measured. */
#ifndef CLIENTS_SIM_MEASURED_H
#define CLIENTS_SIM_MEASURED_H

#include "base/bytes.h"
#include "base/fault.h"
#include "fleet/sim/times.h"

/* Reads a worker's `batonctl status --json`: prefill_tokens_per_s and decode_step_ms, at the top level.
 * E_FORMAT: other JSON, or a rate that the worker has not learned yet. */
int measured_parse(const char *name, struct bytes text, struct fault *fault, struct sim_times *out);
int measured_load(const char *path, struct fault *fault, struct sim_times *out); /* also E_IO, E_LIMIT */

#endif
