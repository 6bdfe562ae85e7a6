/* SPDX-License-Identifier: Apache-2.0 */
/* Replaces tr_rdma*.c when the build lacks libibverbs: there is no rail, so no RDMA connection is dialled
 * or accepted. */
#include "transfer/transport/tr_priv.h"

#include "base/err.h"
#include "base/str.h"

int tr_rdma_open(struct tr_node *node, struct fault *fault)
{
    str_copy(node->rdma_text, sizeof(node->rdma_text), "none: built without libibverbs");
    return 0;
}

int tr_rails_check(const char *devices, bool is_needed, struct fault *fault)
{
    return is_needed ? fault_set(fault, E_UNSUPPORTED, "rdma is not possible: built without libibverbs") : 0;
}

void tr_rdma_close(struct tr_node *node)
{
}

void tr_rdma_check(struct tr_node *node)
{
}

static bool rdma_none_is_offered(const struct tr_node *node)
{
    return false;
}

static bool rdma_none_may_reach(const struct tr_node *node, const char *peer)
{
    return false;
}

/* No connection of this kind is ever made. */
const struct tr_conn_ops tr_rdma_ops = {.is_offered = rdma_none_is_offered, .may_reach = rdma_none_may_reach};
