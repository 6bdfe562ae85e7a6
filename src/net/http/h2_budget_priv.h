/* SPDX-License-Identifier: Apache-2.0 */
/* What a peer may ask of us for nothing: a bucket that fills with time and with honest work, and from which
 * every frame that moves nothing forward takes.  Pure. */
#ifndef NET_HTTP_H2_BUDGET_PRIV_H
#define NET_HTTP_H2_BUDGET_PRIV_H

#include <stdbool.h>
#include <stdint.h>

/* Costs, in tokens. */
#define H2_COST_FRAME 1  /* SETTINGS, PING, PRIORITY, CONTINUATION, an empty DATA */
#define H2_COST_RESET 5  /* a stream ended by the peer, or by its fault, before its answer */
#define H2_COST_BAD   25 /* a frame that breaks a rule but not the connection */

#define H2_BUDGET_TOKENS       1000 /* full: 200 cancelled streams at once */
#define H2_BUDGET_TOKENS_PER_S 100
#define H2_BUDGET_PER_ANSWER   5 /* an answer that was waited for */

struct h2_budget {
    uint32_t tokens;
    uint32_t window_updates; /* that may come for free: two for each DATA frame sent */
    uint64_t filled_ns;
};

void h2_budget_init(struct h2_budget *budget, uint64_t now_ns);
/* False: spent; the peer is to be sent away. */
bool h2_budget_take(struct h2_budget *budget, uint64_t now_ns, uint32_t cost);
bool h2_budget_take_window_update(struct h2_budget *budget, uint64_t now_ns);
void h2_budget_give(struct h2_budget *budget, uint32_t tokens);
void h2_budget_sent_data(struct h2_budget *budget);

#endif
