/* SPDX-License-Identifier: Apache-2.0 */
/* The roles of workers in words, as operators write and read them. */
#ifndef PROTO_ROLE_H
#define PROTO_ROLE_H

#include "base/bytes.h"
#include "proto/control.pb-c.h"

const char *role_text(Baton__Role role);             /* "prefill", "decode", "both"; "" for others */
bool role_read(struct bytes text, Baton__Role *out); /* false: not a worker's role; *out is unchanged */
bool role_is_worker(Baton__Role role);               /* prefill, decode or both */

#endif
