/* SPDX-License-Identifier: Apache-2.0 */
/* Why the router refuses a request. router_refused() counts a refusal and keeps it for `batonctl why`.
 * How to change it: docs/changes-fleet.md, "A reason of refusals". */
#ifndef FLEET_ROUTER_REFUSAL_PRIV_H
#define FLEET_ROUTER_REFUSAL_PRIV_H

/* Reasons of refusals: X(reason, its name in metrics and in `batonctl why`).
 *
 *     PREDICTED  its first token would come too late
 *     LATE       it waited, and its first token would come too late now
 *     FULL       the queue has no place left
 *     SHARE      its class has used up its share of the queue
 *     TIMEOUT    it waited for queue.timeout
 *     PUSHED     another tenant's request took its place in the queue
 *     DESERTED   no worker of its model is there
 *     OTHER      no worker can ever serve it: it is too long, or no worker has what it needs */
#define REFUSAL_TABLE(X)                                                                                     \
    X(PREDICTED, "predicted")                                                                                \
    X(LATE, "late")                                                                                          \
    X(FULL, "queue_full")                                                                                    \
    X(SHARE, "share")                                                                                        \
    X(TIMEOUT, "timeout")                                                                                    \
    X(PUSHED, "pushed_out")                                                                                  \
    X(DESERTED, "no_worker")                                                                                 \
    X(OTHER, "other")

enum refusal_reason {
#define X(reason, name) REFUSED_##reason,
    REFUSAL_TABLE(X)
#undef X
        REFUSAL_REASONS
};

#endif
