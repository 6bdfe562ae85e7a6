/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of requests that are over.  Much of it takes milliseconds to give back, so job threads do that. */
#ifndef SERVE_ENDPOINT_REMAINS_PRIV_H
#define SERVE_ENDPOINT_REMAINS_PRIV_H

#include "base/event/jobs.h"
#include "serve/prompt/prompt.h"

struct remains { /* moved here from a request; what is zeroed holds nothing */
    struct gen_request gen;
    struct replay replay;
    struct buf body;
    struct prompt prompt;
    struct prompt *more_prompts; /* [n_more] */
    size_t n_more;
};

/* Takes what is in remains.  jobs may be NULL: then it is given back at once, as is what is small, or finds
 * no place among the jobs. */
void remains_give_back(struct remains *remains, struct ev_jobs *jobs, struct ev_loop *loop);

#endif
