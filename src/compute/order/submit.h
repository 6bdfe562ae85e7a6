/* SPDX-License-Identifier: Apache-2.0 */
/* The work order on the wire: the one place that packs SUBMIT, and the one that unpacks it. */
#ifndef COMPUTE_ORDER_SUBMIT_H
#define COMPUTE_ORDER_SUBMIT_H

#include "compute/order/work.h"
#include "proto/frame.h"

struct work_submit { /* a SUBMIT message and the arrays that it points into */
    Baton__Submit submit;
    Baton__Sampling sampling;
    Baton__ResumeNote resume;
    Baton__TraceContext trace;
    uint8_t *tokens;    /* [submit.token_bytes * n_tokens] */
    uint32_t *bias_ids; /* [n_bias] */
    float *bias;        /* [n_bias] */
};

/* Packs the order with token_bytes for each token (proto/token_list.h). The message borrows the order. The caller
 * fills in request, mode, peer and owner. *packed must not move until work_submit_fini(). E_NOMEM. */
int work_submit_pack(const struct work_order *order, unsigned token_bytes, struct work_submit *out);
void work_submit_fini(struct work_submit *packed); /* also after a failure */

/* Unpacks a checked message into an empty order, which owns its copies. After E_PROTO (bad token list) or E_NOMEM
 * call work_order_fini(). With submit.n_tokens_later the order has room for the tokens that follow; n_tokens counts
 * those it has. */
int work_submit_unpack(const Baton__Submit *submit, struct work_order *out);
/* Appends the tokens of a checked message to an order with room for n_most more. Returns their number. E_PROTO:
 * there are more than n_most. */
int work_tokens_unpack(const Baton__SubmitTokens *more, uint32_t n_most, struct work_order *order);
/* True if the model ended the answer, and how; an unknown value is an ordinary end. False, with *out untouched: more
 * comes, another worker or router has the rest, or the answer failed. */
bool work_end_of(Baton__Finish finish, enum work_end *out);

#endif
