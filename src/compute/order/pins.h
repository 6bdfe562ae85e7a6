/* SPDX-License-Identifier: Apache-2.0 */
/* Pins: how long the leading tokens of a prompt stay in the cache when a client asks for it (cache_control).
 *
 * One row for each time to live, the shortest first.  Every stage keeps one entry for each row, in the same order:
 *
 *    serve/api      gen_request.marks[]      the last breakpoint with this ttl or a longer one
 *    serve/prompt   prompt.mark_tokens[]     the tokens before it
 *    compute/order  work.pin_tokens[]        the same number; travels in a field of SUBMIT
 *    compute/sched  seq_pin()                pins blocks of the prompt (kv_pin) for the longest time that covers them
 *    serve/api      usage.created_tokens[]   the pinned tokens that were not cached yet, in the answer's usage
 * How to change it: docs/changes-api.md, "A longer pin of cached blocks". */
#ifndef COMPUTE_ORDER_PINS_H
#define COMPUTE_ORDER_PINS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* X(name, ttl as clients write it, seconds from the submission, field of Submit in proto/control.proto) */
#define WORK_PINS(X)                                                                                         \
    X(5M, "5m", 300, pin_5m_tokens)                                                                          \
    X(1H, "1h", 3600, pin_1h_tokens)

#define WORK_PIN_NUMBER(name, ttl, s, field) WORK_PIN_##name,
enum work_pin { WORK_PINS(WORK_PIN_NUMBER) WORK_N_PINS };
#undef WORK_PIN_NUMBER

struct work;

const char *work_pin_ttl(enum work_pin pin);
uint64_t work_pin_ns(enum work_pin pin);
/* True if the tokens of some pin end in the block that follows the first n_blocks blocks, or just before it. */
bool work_pin_ends_at(const struct work *work, uint32_t n_blocks, uint32_t block_tokens);

#endif
