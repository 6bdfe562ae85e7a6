/* SPDX-License-Identifier: Apache-2.0 */
/* Stop strings, matched on text across token boundaries. Holds back only text that may still become a
 * match.
 *
 * Feed the text of one token at a time. The first feed that completes a match decides. Of several matches
 * in one feed the one that begins earliest wins; of these, the one that completes first. */
#ifndef COMPUTE_SAMPLE_STOP_H
#define COMPUTE_SAMPLE_STOP_H

#include "base/bytes.h"

struct stop_set; /* the strings; opaque; only read once it is made, by any thread */
struct stop;     /* the place in one text; opaque; one thread */

/* Copies the strings; n may be 0. 64 KiB of strings take milliseconds, so no loop makes them, and about 1.3 MiB.
 * E_INVAL: an empty string. E_LIMIT: more than SAMPLE_MAX_STOP_BYTES. E_NOMEM. */
int stop_set_new(const struct bytes *strings, size_t n, struct stop_set **out);
size_t stop_set_bytes(const struct stop_set *set); /* of memory, about; accepts NULL */
void stop_set_free(struct stop_set *set);          /* accepts NULL */

/* Begins a text. The set outlives it. E_NOMEM. */
int stop_new(const struct stop_set *set, struct stop **out);
void stop_free(struct stop *stop); /* accepts NULL */

/* Feeds text; appends to out the text that may be delivered (whole characters, if the strings and each
 * feed are). Returns the index of the string that matched (of equal strings the first), or -1. After a
 * match, feed nothing more. E_NOMEM is below -1; the stream is broken then. */
int stop_feed(struct stop *stop, struct bytes text, struct buf *out);
/* Feeds text in which no match may end: one that would end in it counts for nothing. A later match may begin in
 * it. E_NOMEM. */
int stop_pass(struct stop *stop, struct bytes text, struct buf *out);
/* Number of bytes held back; after a match, those from its beginning to the end of the text fed. */
size_t stop_held_bytes(const struct stop *stop);
/* The answer ended without a match: appends the text that was held back. E_NOMEM. */
int stop_flush(struct stop *stop, struct buf *out);

#endif
