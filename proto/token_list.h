/* SPDX-License-Identifier: Apache-2.0 */
/* Token ids as SUBMIT carries them: one after another, little endian.  All ids of a list have the same
 * width, the smallest one that fits the largest id.  Most vocabularies need two or three bytes.  Pure; any
 * thread. */
#ifndef PROTO_TOKEN_LIST_H
#define PROTO_TOKEN_LIST_H

#include "base/bytes.h"

#define TOKEN_LIST_MIN_BYTES 2 /* bytes of an id */
#define TOKEN_LIST_MAX_BYTES 4

/* Returns the width in bytes for these n ids. */
unsigned token_list_width(const uint32_t *ids, size_t n);
/* Packs n ids. out has room for n * width bytes; width is at least token_list_width(). */
void token_list_pack(const uint32_t *ids, size_t n, unsigned width, uint8_t *out);
/* Counts the ids in packed.  E_PROTO: no valid width, or the last id is incomplete. */
int token_list_count(struct bytes packed, uint32_t width, size_t *n_out);
/* Unpacks n ids, the n of token_list_count(). ids_out has room for n ids. */
void token_list_unpack(struct bytes packed, uint32_t width, size_t n, uint32_t *ids_out);

#endif
