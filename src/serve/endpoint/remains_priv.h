/* SPDX-License-Identifier: Apache-2.0 */
/* Frees the memory of finished requests.  Large frees take milliseconds, so job threads do them. */
#ifndef SERVE_ENDPOINT_REMAINS_PRIV_H
#define SERVE_ENDPOINT_REMAINS_PRIV_H

#include "base/event/jobs.h"
#include "compute/sample/stop.h"
#include "serve/prompt/prompt.h"

struct remains { /* moved here from a request; a zeroed member holds nothing */
    struct gen_request gen;
    struct replay replay;
    struct buf body;
    struct prompt prompt;
    struct prompt *more_prompts; /* [n_more] */
    size_t n_more;
    struct stop_set *stops;
};

/* Takes the contents of remains and frees them on a job thread.  Frees them at once if jobs is NULL, if they
 * are small, or if the queue of jobs is full. */
void remains_give_back(struct remains *remains, struct ev_jobs *jobs, struct ev_loop *loop);

#endif
