/* SPDX-License-Identifier: Apache-2.0 */
/* For tests of the splitter: its output as text, with thinking as "~...~" and calls as "[name:arguments]"
 * ('!' for cut and '?' for broken before the bracket). */
#ifndef TESTS_UNIT_API_CALLS_SINK_H
#define TESTS_UNIT_API_CALLS_SINK_H

#include "text/toolcall/calls.h"
#include "text/json/json_walk.h"

struct calls_sink {
    struct buf out;
    struct json_walk walk;
    bool is_in_call, is_thinking;
    unsigned n_argument_pieces;
    int stop_at_end; /* result of on_end */
};

extern const struct calls_events calls_sink_events;
extern const char calls_sink_schema[]; /* of a tool: s is a string, n an integer, b a boolean, ... */

/* Feeds text in pieces of about so many bytes (0: of random sizes), cut between characters as the detokeniser
 * does, then finishes. */
void calls_sink_run(struct calls_sink *sink, const struct calls_opts *opts, struct bytes text, size_t piece,
                    bool is_cut);

#endif
