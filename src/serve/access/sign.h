/* SPDX-License-Identifier: Apache-2.0 */
/* Signatures of thinking blocks.  They are opaque to clients; the server uses them to recognise its own
 * text when a client sends it back.
 *
 * A signature is a keyed hash of the text.  Routers derive the key from the cluster's key.  Without a given key,
 * the first signature draws a random one, and the process cannot verify signatures of other processes.  It accepts
 * them anyway, as it accepts any signature.  Any thread. */
#ifndef SERVE_ACCESS_SIGN_H
#define SERVE_ACCESS_SIGN_H

#include "base/bytes.h"

#define SIGN_CHARS 48

/* Signs with this key from now on, so that several processes recognise each other's signatures. Call it before any
 * thread signs. */
void sign_use_key(const uint8_t key[32]);
/* A keyed hash of a request's id and a number: part of the ids of its events (serve/api/event_id.h). */
uint32_t sign_event(const char *request_id, uint32_t number);

/* Writes SIGN_CHARS letters.  E_NOMEM: libcrypto ran out of memory. */
int sign_thinking(struct bytes text, char out[SIGN_CHARS + 1]);
/* True if this process signed exactly this text. */
bool sign_is_ours(struct bytes text, struct bytes signature);

#endif
