/* SPDX-License-Identifier: Apache-2.0 */
/* Why a request is refused, by the router and by its simulation. router_refused() counts a refusal and keeps it for
 * `batonctl why`; sim_front_refuse() counts it for the report.
 * How to change it: docs/changes-fleet.md, "A reason of refusals". */
#ifndef FLEET_PICKER_REFUSAL_H
#define FLEET_PICKER_REFUSAL_H

/* Reasons of refusals: X(reason, its name in metrics, in `batonctl why` and in reports of baton-sim).
 *
 *     PREDICTED  its first token would come too late
 *     LATE       it waited, and its first token would come too late now
 *     FULL       the queue has no place left
 *     SHARE      its class has used up its share of the queue
 *     TIMEOUT    it waited for queue.timeout
 *     PUSHED     another tenant's request took its place in the queue
 *     DESERTED   no worker of its model is there
 *     SIZE       no worker can ever hold it: it is too long
 *     OTHER      no worker has what it needs, such as a newer version */
#define REFUSAL_TABLE(X)                                                                                     \
    X(PREDICTED, "predicted")                                                                                \
    X(LATE, "late")                                                                                          \
    X(FULL, "queue_full")                                                                                    \
    X(SHARE, "share")                                                                                        \
    X(TIMEOUT, "timeout")                                                                                    \
    X(PUSHED, "pushed_out")                                                                                  \
    X(DESERTED, "no_worker")                                                                                 \
    X(SIZE, "prompt_too_large")                                                                              \
    X(OTHER, "other")

enum refusal_reason {
#define X(reason, name) REFUSED_##reason,
    REFUSAL_TABLE(X)
#undef X
        REFUSAL_REASONS
};

#endif
