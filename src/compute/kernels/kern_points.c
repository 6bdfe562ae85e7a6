/* SPDX-License-Identifier: Apache-2.0 */
/* The functions of one instruction set that read lattice points and digits (POINT_TYPES), in one struct. */
#include "compute/kernels/kern_quant_priv.h"

extern const struct kern_points Q8(kern_points);

const struct kern_points Q8(kern_points) = {
    .expand = Q8(expand_q8),
    .direct = Q8_DIRECT,
};
