/* SPDX-License-Identifier: Apache-2.0 */
/* Names for requests, messages and calls, and the one name we take over from clients. */
#ifndef SERVE_API_IDS_H
#define SERVE_API_IDS_H

#include "base/bytes.h"

#define IDS_BYTES 40 /* room for any of ours with its NUL */

/* prefix and 24 of [A-Za-z0-9], 142 random bits. */
void ids_make(const char *prefix, char out[IDS_BYTES]);

/* The trace id of a W3C traceparent (version 00, strictly): 32 lower-case hex digits and NUL; an empty string
 * when the header is absent or malformed. */
void ids_trace(struct bytes traceparent, char out[33]);

#endif
