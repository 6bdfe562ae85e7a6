/* SPDX-License-Identifier: Apache-2.0 */
/* Signatures of thinking blocks.  They are opaque to clients; the server uses them to recognise its own
 * text when a client sends it back.
 *
 * A signature is a keyed hash of the text.  The key is drawn when the process first signs, so this
 * process cannot verify signatures of another process.  It accepts them anyway, as it accepts any
 * signature.  Any thread. */
#ifndef SERVE_ACCESS_SIGN_H
#define SERVE_ACCESS_SIGN_H

#include "base/bytes.h"

#define SIGN_CHARS 48

/* Writes SIGN_CHARS letters.  E_NOMEM: libcrypto ran out of memory. */
int sign_thinking(struct bytes text, char out[SIGN_CHARS + 1]);
/* True if this process signed exactly this text. */
bool sign_is_ours(struct bytes text, struct bytes signature);

#endif
