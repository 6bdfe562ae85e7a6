/* SPDX-License-Identifier: Apache-2.0 */
/* A model without weights:
 * a byte-level vocabulary with ChatML turns and Hermes tool calls, made in the test. */
#ifndef TESTS_FRONT_SIM_MODEL_H
#define TESTS_FRONT_SIM_MODEL_H

#include "serve/endpoint/backend.h"

/* name "sim", context_length tokens of context, blocks of 32 tokens.  0 or an error. */
int sim_model_open(uint32_t context_length, struct gen_model *out);
/* The same with another chat template. */
int sim_model_open_with(const char *chat_template, uint32_t context_length, struct gen_model *out);
void sim_model_close(struct gen_model *model);

#endif
