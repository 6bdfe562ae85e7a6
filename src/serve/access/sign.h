/* SPDX-License-Identifier: Apache-2.0 */
/* Signatures of thinking: opaque to clients, and a way to know our own text when it comes back.
 *
 * A signature is a keyed hash of the text.  The key is drawn when the process first signs, so what another
 * process signed is not known here: it is accepted all the same, as any signature is.  Any thread. */
#ifndef SERVE_ACCESS_SIGN_H
#define SERVE_ACCESS_SIGN_H

#include "base/bytes.h"

#define SIGN_CHARS 48

/* Writes SIGN_CHARS letters.  E_NOMEM: libcrypto had none. */
int sign_thinking(struct bytes text, char out[SIGN_CHARS + 1]);
/* Did this process sign this text so? */
bool sign_is_ours(struct bytes text, struct bytes signature);

#endif
