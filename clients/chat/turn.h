/* SPDX-License-Identifier: Apache-2.0 */
/* One question to the server and its streamed answer, waited for; Ctrl-C ends it early. */
#ifndef CLIENTS_CHAT_TURN_H
#define CLIENTS_CHAT_TURN_H

#include "clients/common/stream.h"

#define TURN_MAX_CALLS 32

struct turn_call { /* of a tool */
    char id[80];
    struct buf name;
    struct buf input; /* JSON as it came; empty means {} */
    bool is_whole;
};

struct turn {
    struct answer answer;                   /* its end: usage, proof, error */
    struct buf text;                        /* of the answer, without thinking */
    struct turn_call calls[TURN_MAX_CALLS]; /* in their order; those beyond are dropped */
    size_t n_calls;
    bool is_aborted;   /* by Ctrl-C */
    uint64_t first_ns; /* from sending to the first piece; 0: none came */
    uint64_t total_ns;
    uint32_t n_pieces;
};

/* Runs the stream's loop; on_piece and arg of stream are called, its on_over is the turn's own.  turn is
 * filled also on failure (answer.is_whole tells) and ended with turn_fini(). */
void turn_run(const struct stream_opts *stream, struct turn *turn);
void turn_fini(struct turn *turn);

/* One line for people about how the answer was served and how fast, with its newline. */
void turn_put_timings(const struct turn *turn, struct buf *out);

#endif
