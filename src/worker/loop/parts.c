/* SPDX-License-Identifier: Apache-2.0 */
/* Assembles prompts that a router sends in pieces.
 *
 *     SUBMIT (n_tokens_later > 0) ──> part ──SUBMIT_TOKENS ...──> all tokens: the command goes to the engine thread
 *                                      └──CANCEL, the link is down──> freed
 *
 * The loop receives, unpacks and copies a frame in one go.  A prompt of a million tokens in one frame would
 * stop all streams for milliseconds, mostly in page faults.  A PROCEED that comes before the last piece waits
 * for it, because the engine thread does not know the request yet. */
#include "worker/loop/worker_priv.h"

#include <stdlib.h>

#include "base/err.h"
#include "compute/order/submit.h"

#define MAX_PARTS 64 /* for one router, which sends its prompts one after another */

struct submit_part {
    struct list node;
    struct command *command; /* owned */
    struct buf submit;       /* for the tail (tails.c) */
    uint32_t n_later;        /* tokens that were to come after SUBMIT ... */
    uint32_t n_missing;      /* ... and have not come yet */
    bool is_proceeding;
};

static struct submit_part *part_find(struct worker_router *router, uint64_t request)
{
    list_for_each (node, &router->parts) {
        struct submit_part *part = container_of(node, struct submit_part, node);

        if (part->command->as.submit.key.request == request)
            return part;
    }
    return NULL;
}

static void part_remove(struct worker_router *router, struct submit_part *part)
{
    list_remove(&part->node);
    router->n_parts--;
    command_free(part->command);
    buf_fini(&part->submit);
    free(part);
}

int worker_parts_add(struct worker_router *router, struct command *command, struct buf *submit,
                     uint32_t n_missing)
{
    struct submit_part *part;

    if (router->n_parts == MAX_PARTS || part_find(router, command->as.submit.key.request) != NULL) {
        command_free(command);
        return E_OVERLOADED;
    }
    part = calloc(1, sizeof(*part));
    if (part == NULL) {
        command_free(command);
        return E_NOMEM;
    }
    part->command = command;
    part->submit = *submit;
    *submit = (struct buf){0};
    part->n_later = part->n_missing = n_missing;
    list_push_back(&router->parts, &part->node);
    router->n_parts++;
    return 0;
}

int worker_parts_tokens(struct worker_router *router, const Baton__SubmitTokens *more,
                        struct command **command_out, bool *is_proceeding_out)
{
    struct submit_part *part = part_find(router, more->request);
    int n;

    if (part == NULL)
        return 0; /* its request was cancelled or refused */
    n = work_tokens_unpack(more, part->n_missing, &part->command->as.submit.order);
    if (n < 0) {
        part_remove(router, part);
        return n;
    }
    part->n_missing -= (uint32_t)n;
    if (part->n_missing > 0)
        return 0;
    part->command->as.submit.has_tail =
        worker_tails_add(router, &part->command->as.submit, &part->submit, part->n_later);
    *command_out = part->command;
    *is_proceeding_out = part->is_proceeding;
    part->command = NULL;
    part_remove(router, part);
    return 1;
}

bool worker_parts_cancel(struct worker_router *router, uint64_t request)
{
    struct submit_part *part = part_find(router, request);

    if (part != NULL)
        part_remove(router, part);
    return part != NULL;
}

bool worker_parts_proceed(struct worker_router *router, uint64_t request)
{
    struct submit_part *part = part_find(router, request);

    if (part != NULL)
        part->is_proceeding = true;
    return part != NULL;
}

void worker_parts_drop(struct worker_router *router)
{
    while (router->n_parts > 0)
        part_remove(router, container_of(router->parts.next, struct submit_part, node));
}
