/* SPDX-License-Identifier: Apache-2.0 */
/* Stop strings, matched on text across token boundaries.  Holds back only what may still become a match.
 *
 * Feed the text of one token at a time: the first feed that completes a match decides, and of the matches
 * that complete within the same feed the one that begins earliest (then the one that completes first) wins.
 */
#ifndef COMPUTE_SAMPLE_STOP_H
#define COMPUTE_SAMPLE_STOP_H

#include "base/bytes.h"

#define STOP_BYTES_MAX 65536 /* all strings together */

struct stop; /* opaque; one thread */

/* strings are copied; n may be 0.  E_INVAL: an empty string.  E_LIMIT: more than STOP_BYTES_MAX.  E_NOMEM. */
int stop_new(const struct bytes *strings, size_t n, struct stop **out);
void stop_free(struct stop *stop);

/* Feeds text; appends to out what may be delivered (whole characters, if the strings and each feed are).
 * Returns the index of the string that matched (of equal strings the first), or -1; after a match nothing
 * more is fed.  E_NOMEM is below -1; the stream is broken then. */
int stop_feed(struct stop *stop, struct bytes text, struct buf *out);
/* The answer ended without a match: appends what was held back.  E_NOMEM. */
int stop_flush(struct stop *stop, struct buf *out);

#endif
