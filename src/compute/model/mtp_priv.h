/* SPDX-License-Identifier: Apache-2.0 */
/* MTP heads: mtp.c. */
#ifndef COMPUTE_MODEL_MTP_PRIV_H
#define COMPUTE_MODEL_MTP_PRIV_H

#include "compute/model/slots_priv.h"

struct model;
struct forward;

extern const slot_set MTP_SLOTS; /* that a head has besides those of its layer */
extern const slot_set MTP_MAY;   /* that a head may have; without its own last norm it uses the model's */
/* Turns a model, whose keys were read, into its MTP head. */
void mtp_keep(struct model *model);
/* The gain of a head's last norm: its own, or the model's. */
const float *mtp_last_norm(const struct model *model);
/* The head's first product: x = [norm(x) | norm(hidden)] . W^T. */
void forward_mtp(struct forward *f);

#endif
