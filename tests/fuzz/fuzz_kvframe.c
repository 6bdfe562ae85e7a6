/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: the frames of a data connection.  A frame that unpacks satisfies the receiver's assumptions and
 * packs into the same bytes. */
#include "proto/kv_frame.h"

#include "base/check.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_frame(const uint8_t *data, size_t size)
{
    uint8_t bytes[KV_FRAME_MAX_BYTES];
    struct kv_frame frame;
    struct fault fault;

    if (kv_frame_unpack(bytes_of(data, size), &fault, &frame) != 0)
        return;
    ASSERT(kv_frame_pack(&frame, bytes) == size);
    if (frame.type == KV_FRAME_HELLO) { /* bytes after the name's NUL are not kept */
        ASSERT(memcmp(bytes, data, KV_FRAME_PREFIX_BYTES + 64) == 0);
        ASSERT(strlen(frame.as.hello.node) < KV_FRAME_NODE_BYTES);
        return;
    }
    ASSERT(memcmp(bytes, data, size) == 0);
    if (frame.type == KV_FRAME_DATA) {
        ASSERT(frame.as.data.n_pieces >= 1 && frame.as.data.n_pieces <= KV_FRAME_MAX_PIECES);
        ASSERT(frame.as.data.payload_bytes % frame.as.data.n_pieces == 0);
        ASSERT(frame.as.data.payload_bytes / frame.as.data.n_pieces <= KV_FRAME_MAX_PIECE);
        ASSERT(frame.as.data.first + frame.as.data.n_pieces > frame.as.data.first);
    }
    if (frame.type == KV_FRAME_RAIL)
        ASSERT(frame.as.rail.index < frame.as.rail.n_rails && frame.as.rail.n_rails <= KV_RDMA_MAX_RAILS &&
               frame.as.rail.n_qps <= KV_RDMA_MAX_QPS && frame.as.rail.n_regions <= KV_RDMA_MAX_REGIONS);
    if (frame.type == KV_FRAME_REGION)
        ASSERT(frame.as.region.rail < KV_RDMA_MAX_RAILS && frame.as.region.len_bytes > 0);
    if (frame.type == KV_FRAME_SLOT)
        ASSERT(frame.as.slot.slot < KV_RDMA_MAX_SLOTS && frame.as.slot.n_blocks > 0 &&
               frame.as.slot.n_per_chunk > 0);
    if (frame.type == KV_FRAME_CREDIT)
        ASSERT(frame.as.credit.rail < KV_RDMA_MAX_RAILS && frame.as.credit.qp < KV_RDMA_MAX_QPS);
    if (frame.type == KV_FRAME_ANNOUNCE)
        ASSERT(frame.as.announce.first + frame.as.announce.n_pieces > frame.as.announce.first);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    while (size >= KV_FRAME_PREFIX_BYTES) {
        struct kv_frame_trailer trailer;
        int len_bytes = kv_frame_size(data, NULL);

        if (size >= KV_FRAME_TRAILER_BYTES && kv_frame_trailer_unpack(data, NULL, &trailer) == 0)
            ASSERT(trailer.status == KV_FRAME_GOOD || trailer.status == KV_FRAME_VOID);
        if (len_bytes < 0 || (size_t)len_bytes > size) {
            check_frame(data, size); /* must be refused, not read beyond */
            return 0;
        }
        check_frame(data, (size_t)len_bytes);
        data += len_bytes;
        size -= (size_t)len_bytes;
    }
    return 0;
}
