/* SPDX-License-Identifier: Apache-2.0 */
/* The part of frame_check.c that frame.c calls. */
#ifndef PROTO_FRAME_PRIV_H
#define PROTO_FRAME_PRIV_H

#include "proto/frame.h"

/* Checks every field of message against its limits, and the relations between fields.  E_PROTO; the fault
 * names the field. */
int frame_check(const ProtobufCMessage *message, struct fault *fault);

#endif
