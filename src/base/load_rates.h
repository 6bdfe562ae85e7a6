/* SPDX-License-Identifier: Apache-2.0 */
/* The rates that a worker reports and placement uses, in one list.
 *
 *    sched_load, load_report --hello.c--> LoadReport --workers.c--> router_worker --view.c--> picker_worker
 *         (they measure)                                (bounds)                     (estimate.c uses them)
 *
 * Every struct on the way takes its members from the list, and every copy runs over it.  So a new rate needs a row here, a
 * field of the same name in LoadReport (proto/control.proto), the code that measures it, and the code that uses it.
 * All are doubles; 0 means unknown.
 * How to change it: docs/changes-fleet.md, "A rate or a time that placement uses". */
#ifndef BASE_LOAD_RATES_H
#define BASE_LOAD_RATES_H

/* The scheduler learns or predicts these (sched_load()).  X(name) */
#define LOAD_RATES_SCHED(X)                                                                                  \
    X(prefill_tokens_per_s) /* learned from whole prompts */                                                 \
    X(prompt_token_s)       /* learned: seconds of a prompt token without its attention */                   \
    X(prompt_pair_s)        /* learned: and of each token that it attends to */                              \
    X(queued_prefill_s)     /* predicted for queued_prefill_tokens */                                        \
    X(decode_step_s)        /* learned mean time between two tokens of a sequence */                         \
    X(decode_now_s)         /* learned: a step of the decoding sequences alone */                            \
    X(decode_row_s)         /* learned: the time that one more of them adds */

/* The worker measures these itself (struct load_report). */
#define LOAD_RATES_WORKER(X)                                                                                 \
    X(transfer_bytes_per_s) /* of KV receives */                                                             \
    X(push_bytes_per_s)     /* of pushes that it asked for (prefix fetch) */                                 \
    X(read_bytes_per_s)     /* of its disk, all reads together; 0: it reads nothing back */

#define LOAD_RATES(X)                                                                                        \
    LOAD_RATES_SCHED(X)                                                                                      \
    LOAD_RATES_WORKER(X)

#define LOAD_RATE_MEMBER(name) double name;

/* How far one measurement moves a rate of the worker (rate_learn()); baton-sim learns as a worker does. */
#define LOAD_RATE_TRANSFER_ALPHA 0.2
#define LOAD_RATE_PUSH_ALPHA     0.3
#define LOAD_RATE_READ_ALPHA     0.1
#define LOAD_RATE_LINK_PRIOR     1e9 /* bytes per second of transfers and pushes while nothing is measured */

/* A worker that takes a prompt from one router reports to the others so soon (worker/loop/notices.c); also in baton-sim. */
#define LOAD_NOTICE_NS (2 * NS_PER_MS) /* needs base/clock.h */

#endif
