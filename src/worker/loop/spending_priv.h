/* SPDX-License-Identifier: Apache-2.0 */
/* What a worker relays between routers: spending of limits (spending.c), and load that no report has yet
 * (notices.c). Loop thread. */
#ifndef WORKER_LOOP_SPENDING_PRIV_H
#define WORKER_LOOP_SPENDING_PRIV_H

#include "worker/loop/worker_priv.h"

/* spending.c: what routers spent of their accounts' limits, for the other routers */
int worker_spending_open(struct worker *worker); /* E_NOMEM; closed also after a failure */
void worker_spending_close(struct worker *worker);
void worker_spending_receive(struct worker_router *router, const Baton__Spending *spending);
void worker_spending_router_down(struct worker_router *router);

/* notices.c: load that the engine thread has not reported yet */
int worker_notices_open(struct worker *worker); /* E_NOMEM; closed also after a failure */
void worker_notices_close(struct worker *worker);
/* Numbers a router's job on its way to the engine thread, and soon reports it to the other routers. */
void worker_notices_add(struct worker_router *router, struct task_spec *spec, uint32_t compute_tokens);
void worker_notices_reported(struct worker *worker); /* call it when the engine has reported new figures */
void worker_notices_answers(struct worker *worker, const struct report *report); /* before they are sent */
/* Adds later jobs to a report, and subtracts the time that has passed. */
void worker_notices_correct(struct worker *worker, Baton__LoadReport *load);

#endif
