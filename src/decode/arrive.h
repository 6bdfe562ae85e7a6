/* SPDX-License-Identifier: Apache-2.0 */
/* The arriving end of a hand-off on a worker: see worker/engine_thread.h for what a side is. */
#ifndef DECODE_ARRIVE_H
#define DECODE_ARRIVE_H

#include "worker/engine_thread.h"

const struct handoff_side *arrive_side(void);

#endif
