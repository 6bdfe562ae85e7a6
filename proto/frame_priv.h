/* SPDX-License-Identifier: Apache-2.0 */
/* What frame.c asks of frame_check.c. */
#ifndef PROTO_FRAME_PRIV_H
#define PROTO_FRAME_PRIV_H

#include "proto/frame.h"

/* Every field of message against its limits, and what must hold between fields.  E_PROTO with the field
 * named. */
int frame_check(const ProtobufCMessage *message, struct fault *fault);

#endif
