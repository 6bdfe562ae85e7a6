/* SPDX-License-Identifier: Apache-2.0 */
/* Caches whether schemas can be enforced.  Finding out takes some tens of milliseconds, and clients send
 * the same tools with each request.
 *
 * The key of a verdict is the SHA-256 of the question, so no client can forge a verdict for another
 * client's question.  The number is bounded; the least recently used verdict goes first.  Any thread. */
#ifndef SERVE_PROMPT_VERDICTS_H
#define SERVE_PROMPT_VERDICTS_H

#include "base/bytes.h"
#include "base/fault.h"

#define VERDICTS_KEPT 4096u /* per model: up to about 2 MiB */

struct verdicts;

struct verdict_key {
    uint8_t bytes[32];
};

int verdicts_new(uint32_t max, struct verdicts **out);
void verdicts_free(struct verdicts *verdicts);
/* E_NOMEM. */
int verdicts_key(struct bytes question, struct verdict_key *out);
/* False: not cached.  True: rc_out is 0 or the error code, with its fault.  verdicts may be NULL, here
 * and below. */
bool verdicts_find(struct verdicts *verdicts, const struct verdict_key *key, int *rc_out,
                   struct fault *fault_out);
/* Stores nothing when out of memory. */
void verdicts_keep(struct verdicts *verdicts, const struct verdict_key *key, int rc,
                   const struct fault *fault);

#endif
