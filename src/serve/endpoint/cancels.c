/* SPDX-License-Identifier: Apache-2.0 */
/* A client cancels a response at a router that does not run it.
 *
 *      POST ID/cancel ──on_cancel──> all other routers ──front_cancelled──> the answer of the one that ran it
 *                           '── none answers within CANCEL_WAIT_NS ──> 404
 *
 * The router that runs the response checks its tenant (front_cancel_response()). */
#include "serve/endpoint/cancels_priv.h"

#include <stdlib.h>

#include "base/clock.h"
#include "serve/endpoint/front_priv.h"
#include "serve/endpoint/front_shared.h"
#include "serve/endpoint/responses_priv.h"

#define CANCEL_WAIT_NS NS_PER_S
#define MAX_CANCELS    64u /* clients that wait; the next one gets 404 at once */

struct cancel_visit {
    struct list node; /* front.cancels */
    struct front *front;
    struct http_exchange *exchange;
    struct ev_timer *deadline;
    uint64_t number;
};

static void cancel_visit_free(struct cancel_visit *visit)
{
    list_remove(&visit->node);
    visit->front->n_cancels--;
    ev_timer_free(visit->deadline);
    free(visit);
}

static void cancel_visit_end(struct cancel_visit *visit, struct bytes answer)
{
    struct http_exchange *exchange = visit->exchange;
    struct front *front = visit->front;

    cancel_visit_free(visit);
    responses_answer_cancel(front, exchange, answer);
}

static void cancel_on_deadline(void *arg)
{
    cancel_visit_end(arg, (struct bytes){0});
}

bool cancels_ask(struct front *front, struct http_exchange *exchange, const char *tenant, struct bytes id)
{
    struct cancel_visit *visit;

    if (front->opts.on_cancel == NULL || front->n_cancels >= MAX_CANCELS || id.len_bytes == 0 ||
        id.len_bytes >= IDS_BYTES)
        return false;
    visit = calloc(1, sizeof(*visit));
    if (visit == NULL)
        return false;
    *visit = (struct cancel_visit){.front = front, .exchange = exchange, .number = ++front->last_cancel};
    list_push_back(&front->cancels, &visit->node);
    front->n_cancels++;
    if (ev_timer_new(front->opts.loop, cancel_on_deadline, visit, &visit->deadline) < 0 ||
        !front->opts.on_cancel(front->opts.on_shared_arg, tenant, id, visit->number)) {
        cancel_visit_free(visit);
        return false;
    }
    ev_timer_start(visit->deadline, CANCEL_WAIT_NS);
    return true;
}

void front_cancelled(struct front *front, uint64_t number, struct bytes answer)
{
    list_for_each_safe (node, spare, &front->cancels) {
        struct cancel_visit *visit = container_of(node, struct cancel_visit, node);

        if (visit->number != number)
            continue;
        cancel_visit_end(visit, answer);
        return;
    }
}

void cancels_abort(struct front *front, const struct http_exchange *exchange)
{
    list_for_each_safe (node, spare, &front->cancels) {
        struct cancel_visit *visit = container_of(node, struct cancel_visit, node);

        if (visit->exchange == exchange)
            cancel_visit_free(visit);
    }
}

void cancels_close(struct front *front)
{
    list_for_each_safe (node, spare, &front->cancels)
        cancel_visit_free(container_of(node, struct cancel_visit, node));
}
