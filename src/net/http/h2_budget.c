/* SPDX-License-Identifier: Apache-2.0 */
/* With HTTP/2 a peer can cause work with frames that cost it nothing. Examples are streams opened and reset
 * at once (CVE-2023-44487), pings, settings, empty DATA, priorities, and window updates of one byte. Each of
 * these is legal, so the server counts them instead of refusing them. A correct client that cancels every
 * request of a full connection stays far below the limit; a flood ends in milliseconds. */
#include "net/http/h2_budget_priv.h"

#include "base/clock.h"

#define MAX_WINDOW_UPDATES 4096

void h2_budget_init(struct h2_budget *budget, uint64_t now_ns)
{
    *budget = (struct h2_budget){.tokens = H2_BUDGET_TOKENS, .window_updates = 16, .filled_ns = now_ns};
}

void h2_budget_give(struct h2_budget *budget, uint32_t tokens)
{
    budget->tokens = tokens > H2_BUDGET_TOKENS - budget->tokens ? H2_BUDGET_TOKENS : budget->tokens + tokens;
}

static void h2_budget_fill(struct h2_budget *budget, uint64_t now_ns)
{
    const uint64_t period_ns = NS_PER_S / H2_BUDGET_TOKENS_PER_S;
    uint64_t n = (now_ns - budget->filled_ns) / period_ns;

    budget->filled_ns += n * period_ns;
    h2_budget_give(budget, n > H2_BUDGET_TOKENS ? H2_BUDGET_TOKENS : (uint32_t)n);
}

bool h2_budget_take(struct h2_budget *budget, uint64_t now_ns, uint32_t cost)
{
    h2_budget_fill(budget, now_ns);
    if (budget->tokens < cost)
        return false;
    budget->tokens -= cost;
    return true;
}

bool h2_budget_take_window_update(struct h2_budget *budget, uint64_t now_ns)
{
    if (budget->window_updates == 0)
        return h2_budget_take(budget, now_ns, H2_COST_FRAME);
    budget->window_updates--;
    return true;
}

void h2_budget_sent_data(struct h2_budget *budget)
{
    if (budget->window_updates < MAX_WINDOW_UPDATES)
        budget->window_updates += 2;
}
