/* SPDX-License-Identifier: Apache-2.0 */
/* Sends one question to the server and waits for its streamed answer; Ctrl-C ends it early. */
#ifndef CLIENTS_CHAT_TURN_H
#define CLIENTS_CHAT_TURN_H

#include "clients/common/stream.h"

#define TURN_MAX_CALLS 32

struct turn_call { /* of a tool */
    char id[80];
    struct buf name;
    struct buf input; /* the JSON as received; empty means {} */
    bool is_whole;
};

struct turn {
    struct answer answer;                   /* its end: usage, serving stats, error */
    struct buf text;                        /* of the answer, without thinking */
    struct turn_call calls[TURN_MAX_CALLS]; /* in order; calls beyond the bound are dropped */
    size_t n_calls;
    bool is_aborted;   /* by Ctrl-C */
    uint64_t first_ns; /* from sending to the first piece; 0: none came */
    uint64_t total_ns;
    uint32_t n_pieces;
};

/* Runs the stream's loop.  It calls on_piece and arg of stream; on_over belongs to the turn.  turn is filled
 * also on failure (answer.is_whole tells); end it with turn_fini(). */
void turn_run(const struct stream_opts *stream, struct turn *turn);
void turn_fini(struct turn *turn);

/* Appends one line for people about serving and speed, with its newline. */
void turn_put_timings(const struct turn *turn, struct buf *out);

#endif
