/* SPDX-License-Identifier: Apache-2.0 */
/* Frames beside RDMA: golden bytes, every type in both directions, and frames that must be refused. */
#include "proto/kv_frame.h"

#include "base/err.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static struct kv_frame rail_frame(void)
{
    struct kv_frame frame = {.type = KV_FRAME_RAIL,
                             .as.rail = {.index = 1,
                                         .n_rails = 2,
                                         .n_qps = 2,
                                         .mtu = 3,
                                         .link = KV_RDMA_ETHERNET,
                                         .lid = 0x0102,
                                         .n_receives = 512,
                                         .n_regions = 1,
                                         .qpn = {0x11, 0xffffff},
                                         .psn = {0xabcdef, 0}}};

    for (unsigned i = 0; i < 16; i++)
        frame.as.rail.gid[i] = (uint8_t)(0xe0 + i);
    return frame;
}

static const struct kv_frame region = {
    .type = KV_FRAME_REGION,
    .as.region = {.rail = 1, .index = 2, .len_bytes = 0x3000, .address = 0x1122334455667788, .rkey = {9, 8}}};
static const struct kv_frame slot = {.type = KV_FRAME_SLOT,
                                     .as.slot = {.ticket = 5, .slot = 4095, .n_blocks = 7, .n_per_chunk = 2}};
static const struct kv_frame credit = {.type = KV_FRAME_CREDIT,
                                       .as.credit = {.rail = 1, .qp = 3, .n_total = 0xfffffffe}};
static const struct kv_frame have = {.type = KV_FRAME_HAVE, .as.have = {.ticket = 5, .n_bits = 14}};

static void golden(void **state)
{
    static const uint8_t rail_head[] = {'B', 'K', 'V', '1', 7, 0, 0, 0, 1, 2, 2, 3, 2, 0, 2, 1, 0xe0, 0xe1};
    static const uint8_t rail_tail[] = {0, 2, 0,    0, 1, 0, 0,    0,    0,    0, 0,    0,    0,    0,
                                        0, 0, 0x11, 0, 0, 0, 0xef, 0xcd, 0xab, 0, 0xff, 0xff, 0xff, 0};
    static const uint8_t region_bytes[] = {
        'B',  'K',  'V',  '1',  8,    0,    0,    0,    1, 0, 0, 0, 2, 0, 0, 0, 0, 0x30, 0, 0, 0, 0, 0, 0,
        0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 0, 0, 0, 0, 0, 0, 0, 0, 9, 0,    0, 0, 8, 0, 0, 0};
    static const uint8_t slot_bytes[] = {'B',  'K',  'V', '1', 10, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0,
                                         0xff, 0x0f, 0,   0,   7,  0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0};
    static const uint8_t credit_bytes[] = {'B', 'K', 'V', '1', 11,   0,    0,    0,
                                           1,   3,   0,   0,   0xfe, 0xff, 0xff, 0xff};
    struct kv_frame rail = rail_frame();
    uint8_t out[KV_FRAME_MAX_BYTES];

    assert_int_equal(kv_frame_pack(&rail, out), 80);
    assert_memory_equal(out, rail_head, sizeof(rail_head));
    assert_memory_equal(out + 8 + 24, rail_tail, sizeof(rail_tail));
    assert_int_equal(kv_frame_pack(&region, out), 56);
    assert_memory_equal(out, region_bytes, sizeof(region_bytes));
    assert_int_equal(kv_frame_pack(&slot, out), sizeof(slot_bytes));
    assert_memory_equal(out, slot_bytes, sizeof(slot_bytes));
    assert_int_equal(kv_frame_pack(&credit, out), sizeof(credit_bytes));
    assert_memory_equal(out, credit_bytes, sizeof(credit_bytes));
    assert_int_equal(kv_rdma_immediate(3, 5), 0x300005);
}

static void there_and_back(void **state)
{
    struct kv_frame frames[] = {rail_frame(),
                                region,
                                slot,
                                credit,
                                have,
                                {.type = KV_FRAME_ASK, .as.ticket = {77}},
                                {.type = KV_FRAME_STOP, .as.ticket = {78}},
                                {.type = KV_FRAME_STOPPED, .as.ticket = {79}},
                                {.type = KV_FRAME_WHICH, .as.ticket = {80}},
                                {.type = KV_FRAME_END, .as.end = {E_IO, 2}}};

    for (size_t i = 0; i < sizeof(frames) / sizeof(frames[0]); i++) {
        uint8_t first[KV_FRAME_MAX_BYTES], second[KV_FRAME_MAX_BYTES];
        struct kv_frame back;
        size_t len_bytes = kv_frame_pack(&frames[i], first);

        assert_int_equal(kv_frame_size(first, NULL), len_bytes);
        assert_int_equal(kv_frame_unpack(bytes_of(first, len_bytes), NULL, &back), 0);
        assert_int_equal(back.type, frames[i].type);
        assert_int_equal(kv_frame_pack(&back, second), len_bytes);
        assert_memory_equal(first, second, len_bytes);
        first[6] = 1; /* reserved, in each prefix */
        assert_int_equal(kv_frame_unpack(bytes_of(first, len_bytes), NULL, &back), E_PROTO);
    }
}

static int unpack(const struct kv_frame *frame, size_t at, uint8_t value)
{
    uint8_t bytes[KV_FRAME_MAX_BYTES];
    size_t len_bytes = kv_frame_pack(frame, bytes);
    struct fault fault = {0};
    struct kv_frame out;

    bytes[8 + at] = value;
    return kv_frame_unpack(bytes_of(bytes, len_bytes), &fault, &out);
}

static void bad_bytes_are_refused(void **state)
{
    struct kv_frame rail = rail_frame(), end = {.type = KV_FRAME_END};
    static const struct {
        uint8_t at, value;
    } bad_rail[] = {
        {0, 2},  {1, 0},  {1, 9},  {2, 5},  {3, 0},  {3, 6},  {4, 0}, {4, 3}, {5, 1},
        {29, 2}, {32, 1}, {39, 1}, {43, 1}, {47, 1}, {56, 1}, {2, 1} /* describes a queue pair too many */};

    assert_int_equal(unpack(&rail, 0, 1), 0);
    for (size_t i = 0; i < sizeof(bad_rail) / sizeof(bad_rail[0]); i++)
        assert_int_equal(unpack(&rail, bad_rail[i].at, bad_rail[i].value), E_PROTO);
    assert_int_equal(unpack(&region, 0, KV_RDMA_MAX_RAILS), E_PROTO);
    assert_int_equal(unpack(&region, 1, 1), E_PROTO);
    assert_int_equal(unpack(&region, 5, 1), E_PROTO);     /* region 258 */
    assert_int_equal(unpack(&region, 9, 0), E_PROTO);     /* empty */
    assert_int_equal(unpack(&region, 15, 0xff), E_PROTO); /* beyond the end of all addresses */
    assert_int_equal(unpack(&region, 24, 1), E_PROTO);
    assert_int_equal(unpack(&slot, 9, 0x10), E_PROTO); /* slot 4351 */
    assert_int_equal(unpack(&slot, 12, 0), E_PROTO);
    assert_int_equal(unpack(&slot, 16, 0), E_PROTO);
    assert_int_equal(unpack(&slot, 16, KV_RDMA_CHUNK_PIECES + 1), E_PROTO);
    assert_int_equal(unpack(&slot, 20, 1), E_PROTO);
    assert_int_equal(unpack(&credit, 0, KV_RDMA_MAX_RAILS), E_PROTO);
    assert_int_equal(unpack(&credit, 1, KV_RDMA_MAX_QPS), E_PROTO);
    assert_int_equal(unpack(&credit, 2, 1), E_PROTO);
    assert_int_equal(unpack(&have, 8, 0), E_PROTO);
    assert_int_equal(unpack(&have, 12, 1), E_PROTO);
    assert_int_equal(unpack(&end, 4, KV_RDMA_MAX_RAILS), 0);
    assert_int_equal(unpack(&end, 4, KV_RDMA_MAX_RAILS + 1), E_PROTO);
    assert_int_equal(unpack(&end, 5, 1), E_PROTO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden),
        cmocka_unit_test(there_and_back),
        cmocka_unit_test(bad_bytes_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
