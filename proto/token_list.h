/* SPDX-License-Identifier: Apache-2.0 */
/* Token ids as SUBMIT carries them: one after another, little endian, each in the same number of bytes, which
 * is the smallest that the largest of them fits.  Most vocabularies need two or three. Pure; any thread. */
#ifndef PROTO_TOKEN_LIST_H
#define PROTO_TOKEN_LIST_H

#include "base/bytes.h"

#define TOKEN_LIST_MIN_BYTES 2 /* of an id */
#define TOKEN_LIST_MAX_BYTES 4

/* Bytes for each of these n ids. */
unsigned token_list_width(const uint32_t *ids, size_t n);
/* out has room for n * width bytes; width is what token_list_width() gives, or more. */
void token_list_pack(const uint32_t *ids, size_t n, unsigned width, uint8_t *out);
/* How many ids these bytes are.  E_PROTO: there is no such width, or the last id is cut off. */
int token_list_count(struct bytes packed, uint32_t width, size_t *n_out);
/* n as token_list_count() gives it; ids_out has room for so many. */
void token_list_unpack(struct bytes packed, uint32_t width, size_t n, uint32_t *ids_out);

#endif
