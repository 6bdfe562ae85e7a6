/* SPDX-License-Identifier: Apache-2.0 */
/* Frees the memory of a finished request: its arena, its prompts' tokens, its body.  The kernel takes thirty
 * megabytes back page by page, which would block the loop for several milliseconds.  A job thread takes as
 * long, but delays no request.
 *
 * The job frees everything, itself included, so that nothing leaks if the loop stops before the job ends. */
#include "serve/endpoint/remains_priv.h"

#include <stdlib.h>

#include "serve/api/parse.h"

#define LARGE_BYTES (256u << 10) /* freeing this much takes about 0.1 ms */

static size_t prompt_bytes(const struct prompt *prompt)
{
    return prompt->ids.n * sizeof(token_id) + prompt->text.cap_bytes + prompt->constraint.cap_bytes;
}

static size_t remains_bytes(const struct remains *remains)
{
    size_t n = remains->gen.arena.used_bytes + remains->gen.history.cap_bytes + remains->body.cap_bytes +
               prompt_bytes(&remains->prompt) + remains->replay.n * sizeof(struct answer_key) +
               stop_set_bytes(remains->stops);

    for (size_t i = 0; i < remains->n_more; i++)
        n += prompt_bytes(&remains->more_prompts[i]);
    return n;
}

static void remains_fini(struct remains *remains)
{
    prompt_fini(&remains->prompt);
    for (size_t i = 0; i < remains->n_more; i++)
        prompt_fini(&remains->more_prompts[i]);
    free(remains->more_prompts);
    stop_set_free(remains->stops);
    replay_fini(&remains->replay); /* its arrays are in gen's arena */
    gen_request_fini(&remains->gen);
    buf_fini(&remains->body);
}

static void remains_work(void *arg)
{
    remains_fini(arg);
    free(arg);
}

static void remains_done(void *arg)
{
    (void)arg; /* freed already */
}

void remains_give_back(struct remains *remains, struct ev_jobs *jobs, struct ev_loop *loop)
{
    struct remains *copy =
        jobs == NULL || remains_bytes(remains) < LARGE_BYTES ? NULL : malloc(sizeof(*copy));

    if (copy != NULL) {
        *copy = *remains;
        if (ev_jobs_submit(jobs, loop, remains_work, remains_done, copy) == 0)
            return;
        free(copy);
    }
    remains_fini(remains);
}
