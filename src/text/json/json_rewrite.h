/* SPDX-License-Identifier: Apache-2.0 */
/* Checks JSON and writes it again as it arrives, in the form of api_json_put().  No tree is built, so the work for
 * each piece of text depends only on that piece.
 *
 * The output equals that of api_json_load() and api_json_put(), with three exceptions: it keeps members with equal
 * keys; an integer beyond 64 bits keeps its digits, where a tree makes reals of all integers; and the number of values
 * has no limit. */
#ifndef TEXT_JSON_JSON_REWRITE_H
#define TEXT_JSON_JSON_REWRITE_H

#include "text/json/json_walk.h"

struct json_rewrite { /* zeroed: before the value */
    struct json_walk walk;
    struct buf held; /* a number or an escape that is not complete */
    /* The text has a part that api_json_load() refuses: half a surrogate pair, a NUL in a key, a number out of
     * range or over JSON_REWRITE_NUMBER_BYTES.  The output has that part as it is spelled. */
    bool is_odd;
};

#define JSON_REWRITE_NUMBER_BYTES ((size_t)512)

void json_rewrite_fini(struct json_rewrite *rewrite);
/* Takes more of the text, in whole characters, and appends its new form to out.  The result of the last byte, or of the
 * first one that is BAD or DEEP; out is_bad: no memory. */
enum json_walk_result json_rewrite_feed(struct json_rewrite *rewrite, struct bytes text, struct buf *out);
/* The text ends.  False: the value is incomplete. */
bool json_rewrite_end(struct json_rewrite *rewrite, struct buf *out);

#endif
