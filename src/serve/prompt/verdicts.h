/* SPDX-License-Identifier: Apache-2.0 */
/* Whether schemas can be held to, kept by what was asked: finding out is work of some tens of milliseconds,
 * and clients send the same tools with each request.
 *
 * A verdict is found by the SHA-256 of the question, so nobody can make one that answers somebody else's.
 * Bounded in number; the one that was not asked for longest goes first.  Any thread. */
#ifndef SERVE_PROMPT_VERDICTS_H
#define SERVE_PROMPT_VERDICTS_H

#include "base/bytes.h"
#include "base/fault.h"

#define VERDICTS_KEPT 4096u /* of a model: up to some 2 MiB */

struct verdicts;

struct verdict_key {
    uint8_t bytes[32];
};

int verdicts_new(uint32_t max, struct verdicts **out);
void verdicts_free(struct verdicts *verdicts);
/* E_NOMEM. */
int verdicts_key(struct bytes question, struct verdict_key *out);
/* False: not known.  0 or the code in rc_out, and its fault.  verdicts may be NULL, here and below. */
bool verdicts_find(struct verdicts *verdicts, const struct verdict_key *key, int *rc_out,
                   struct fault *fault_out);
/* Without memory nothing is kept. */
void verdicts_keep(struct verdicts *verdicts, const struct verdict_key *key, int rc,
                   const struct fault *fault);

#endif
