/* SPDX-License-Identifier: Apache-2.0 */
/* If two workers have the same node name, the first one keeps it.
 *
 *      HELLO with a name whose link is up
 *        same epoch                          the same process dialled another address of this router: refused,
 *                                            without a warning at each attempt
 *        same host, instance and address     the worker was restarted: takes the place of its former life
 *        anything else                       another worker: refused; the log has both addresses
 *
 * A refused worker dials again, so it takes the name at the first attempt after the other worker's link is
 * down. A dead process closes its sockets; a dead host misses three heartbeats. The instance is an address
 * that only one process of a host can listen on at a time. The link's address is compared too, because a
 * machine that was cloned while it ran has the same host and instance. Workers older than these fields send
 * none: the new one takes the place. */
#include "fleet/router/router_priv.h"

#include <inttypes.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/str.h"

#define TOLD_NS (60 * NS_PER_S) /* how long the status shows a rival that no longer dials */

/* Compares the addresses without their ports. */
static bool is_same_address(const char *a, const char *b)
{
    const char *end_a = strrchr(a, ':'), *end_b = strrchr(b, ':');

    return end_a != NULL && end_b != NULL && end_a - a == end_b - b && memcmp(a, b, (size_t)(end_a - a)) == 0;
}

static bool is_started_again(const struct router_worker *current, const struct link *link,
                             const Baton__Hello *hello)
{
    uint64_t host = str_digest(hello->host_id);

    if (hello->host_id[0] != '\0' && current->host != str_digest("") && host != current->host)
        return false;
    if (hello->instance == 0 || current->instance == 0)
        return true;
    return hello->instance == current->instance &&
           is_same_address(link_peer_address(link), link_peer_address(current->link));
}

static struct router_rival *rival_for(struct router *router, const char *node, const char *address)
{
    struct router_rival *oldest = &router->rivals[0];

    for (size_t i = 0; i < ROUTER_MAX_RIVALS; i++) {
        struct router_rival *rival = &router->rivals[i];

        if (rival->n_refused > 0 && strcmp(rival->node, node) == 0 &&
            is_same_address(rival->address, address))
            return rival;
        if (rival->last_ns < oldest->last_ns)
            oldest = rival;
    }
    *oldest = (struct router_rival){.first_ns = clock_now_ns()};
    str_copy(oldest->node, sizeof(oldest->node), node);
    return oldest;
}

int router_names_check(struct router *router, const struct router_worker *current, const struct link *link,
                       const Baton__Hello *hello, struct fault *fault)
{
    const char *ours = link_peer_address(current->link), *theirs = link_peer_address(link);
    struct router_rival *rival;

    if (current->epoch == hello->epoch) /* the text stays the same, so the worker logs it once */
        return fault_set(fault, E_AGAIN, "worker %s is linked to this router already, from %s", hello->node,
                         ours);
    if (is_started_again(current, link, hello))
        return 0;
    rival = rival_for(router, hello->node, theirs);
    rival->n_refused++;
    rival->last_ns = clock_now_ns();
    str_copy(rival->address, sizeof(rival->address), theirs);
    str_copy(rival->current, sizeof(rival->current), ours);
    return fault_set(fault, E_EXISTS,
                     "node.name %s is taken by the worker at %s (link.listen %s); the one at %s (link.listen "
                     "%s) needs another name",
                     hello->node, ours, current->link_address, theirs, hello->kv->link_address);
}

void router_names_put(const struct router *router, struct buf *out)
{
    uint64_t now_ns = clock_now_ns();
    const char *comma = "";

    buf_append_str(out, "\"refused\": [");
    for (size_t i = 0; i < ROUTER_MAX_RIVALS; i++) {
        const struct router_rival *rival = &router->rivals[i];

        if (rival->n_refused == 0 || now_ns - rival->last_ns > TOLD_NS)
            continue;
        buf_printf(out, "%s{\"node\": ", comma);
        json_put_str(out, bytes_str(rival->node));
        buf_append_str(out, ", \"address\": ");
        json_put_str(out, bytes_str(rival->address));
        buf_append_str(out, ", \"current\": ");
        json_put_str(out, bytes_str(rival->current));
        buf_printf(out, ", \"times\": %" PRIu64 ", \"since_s\": %" PRIu64 ", \"last_s\": %" PRIu64 "}",
                   rival->n_refused, (now_ns - rival->first_ns) / NS_PER_S,
                   (now_ns - rival->last_ns) / NS_PER_S);
        comma = ", ";
    }
    buf_append_str(out, "]");
}
