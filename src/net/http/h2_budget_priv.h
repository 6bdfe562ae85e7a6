/* SPDX-License-Identifier: Apache-2.0 */
/* Limits frames that are free for the peer but cost us work. A token bucket fills with time and with
 * answered requests; each such frame takes tokens. Pure. */
#ifndef NET_HTTP_H2_BUDGET_PRIV_H
#define NET_HTTP_H2_BUDGET_PRIV_H

#include <stdbool.h>
#include <stdint.h>

/* Costs, in tokens. */
#define H2_COST_FRAME 1  /* SETTINGS, PING, PRIORITY, CONTINUATION, empty DATA */
#define H2_COST_RESET 5  /* a stream that ended before its answer because of the peer */
#define H2_COST_BAD   25 /* a frame that breaks a rule but does not end the connection */

#define H2_BUDGET_TOKENS       1000 /* bucket size: 200 streams cancelled in a burst */
#define H2_BUDGET_TOKENS_PER_S 100
#define H2_BUDGET_PER_ANSWER   5 /* for an answer that the client waited for */

struct h2_budget {
    uint32_t tokens;
    uint32_t window_updates; /* free WINDOW_UPDATE frames: two for each DATA frame sent */
    uint64_t filled_ns;
};

void h2_budget_init(struct h2_budget *budget, uint64_t now_ns);
/* False: not enough tokens; end the connection. */
bool h2_budget_take(struct h2_budget *budget, uint64_t now_ns, uint32_t cost);
bool h2_budget_take_window_update(struct h2_budget *budget, uint64_t now_ns);
void h2_budget_give(struct h2_budget *budget, uint32_t tokens);
void h2_budget_sent_data(struct h2_budget *budget);

#endif
