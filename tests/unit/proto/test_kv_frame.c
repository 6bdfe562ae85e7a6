/* SPDX-License-Identifier: Apache-2.0 */
/* Frames of data connections: golden bytes,
 * every type in both directions, and frames that must be refused. */
#include "proto/kv_frame.h"

#include "base/err.h"
#include "base/rng.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static struct kv_frame data_frame(void)
{
    return (struct kv_frame){.type = KV_FRAME_DATA,
                             .flags = KV_FRAME_FLAG_DIGEST,
                             .as.data = {.ticket = UINT64_C(0x1122334455667788),
                                         .layer = 3,
                                         .first = 0x01020304,
                                         .n_pieces = 2,
                                         .payload_bytes = 0x2000}};
}

static struct kv_frame hello_frame(void)
{
    struct kv_frame frame = {.type = KV_FRAME_HELLO,
                             .as.hello = {.version = KV_FRAME_VERSION,
                                          .kind = KV_FRAME_SHM,
                                          .side = KV_FRAME_DIALER,
                                          .n_layers = 32,
                                          .piece_bytes = 65536,
                                          .layout = UINT64_C(0xa1a2a3a4a5a6a7a8),
                                          .n_blocks = 4096,
                                          .n_slots = 1024,
                                          .node = "prefill-1"}};

    for (unsigned i = 0; i < 32; i++)
        frame.as.hello.nonce[i] = (uint8_t)(0xc0 + i);
    return frame;
}

static void golden_data(void **state)
{
    static const uint8_t golden[] = {
        'B',  'K',  'V',  '1',  4,    1,    0,    0,                /* prefix */
        0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11,             /* ticket */
        3,    0,    0,    0,    4,    3,    2,    1,    2, 0, 0, 0, /* layer, first, n_pieces */
        0,    0,    0,    0,    0,    0x20, 0,    0,    0, 0, 0, 0, /* reserved, payload_bytes */
    };
    struct kv_frame frame = data_frame();
    uint8_t out[KV_FRAME_MAX_BYTES];

    assert_int_equal(kv_frame_pack(&frame, out), sizeof(golden));
    assert_memory_equal(out, golden, sizeof(golden));
}

static void golden_hello(void **state)
{
    static const uint8_t head[] = {
        'B', 'K', 'V', '1',  1,    0,    0,    0,    1,    0,    2,    1, 32,   0, 0, 0, 0, 0, 1, 0,    0,
        0,   0,   0,   0xa8, 0xa7, 0xa6, 0xa5, 0xa4, 0xa3, 0xa2, 0xa1, 0, 0x10, 0, 0, 0, 4, 0, 0, 0xc0, 0xc1,
    };
    struct kv_frame frame = hello_frame();
    uint8_t out[KV_FRAME_MAX_BYTES];

    assert_int_equal(kv_frame_pack(&frame, out), 136);
    assert_memory_equal(out, head, sizeof(head));
    assert_string_equal((char *)out + 8 + 64, "prefill-1");
    for (unsigned i = 8 + 64 + 9; i < 136; i++)
        assert_int_equal(out[i], 0);
}

static void golden_announce_reject_trailer(void **state)
{
    static const uint8_t announce[] = {'B', 'K', 'V', '1', 5, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0,
                                       2,   0,   0,   0,   3, 0, 0, 0, 4, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0x80};
    static const uint8_t reject[] = {'B', 'K', 'V', '1', 6,    0,    0,    0,    9, 0, 0, 0,
                                     0,   0,   0,   0,   0x07, 0xfc, 0xff, 0xff, 0, 0, 0, 0};
    static const uint8_t trailer[] = {1, 2, 3, 4, 5, 6, 7, 8, 2, 0, 0, 0, 0, 0, 0, 0};
    struct kv_frame frame = {.type = KV_FRAME_ANNOUNCE,
                             .as.announce = {9, 1, 2, 3, 4, UINT64_C(0x8000000000000005)}};
    struct kv_frame_trailer end = {.digest = UINT64_C(0x0807060504030201), .status = KV_FRAME_VOID};
    uint8_t out[KV_FRAME_MAX_BYTES];

    assert_int_equal(kv_frame_pack(&frame, out), sizeof(announce));
    assert_memory_equal(out, announce, sizeof(announce));
    frame = (struct kv_frame){.type = KV_FRAME_REJECT, .as.reject = {.ticket = 9, .code = E_NOT_FOUND}};
    assert_int_equal(kv_frame_pack(&frame, out), sizeof(reject));
    assert_memory_equal(out, reject, sizeof(reject));
    kv_frame_trailer_pack(&end, out);
    assert_memory_equal(out, trailer, sizeof(trailer));
}

static void there_and_back(void **state)
{
    struct kv_frame frames[] = {
        hello_frame(),
        data_frame(),
        {.type = KV_FRAME_PROOF, .as.proof.mac = {1, 2, 3}},
        {.type = KV_FRAME_MEMORY},
        {.type = KV_FRAME_ANNOUNCE, .as.announce = {7, 1, 2, 1024, 5, 6}},
        {.type = KV_FRAME_REJECT, .as.reject = {.ticket = 8, .code = -1}},
    };

    for (size_t i = 0; i < sizeof(frames) / sizeof(frames[0]); i++) {
        uint8_t first[KV_FRAME_MAX_BYTES], second[KV_FRAME_MAX_BYTES];
        struct kv_frame back;
        size_t len_bytes = kv_frame_pack(&frames[i], first);

        assert_int_equal(kv_frame_size(first, NULL), len_bytes);
        assert_int_equal(kv_frame_unpack(bytes_of(first, len_bytes), NULL, &back), 0);
        assert_int_equal(back.type, frames[i].type);
        assert_int_equal(kv_frame_pack(&back, second), len_bytes);
        assert_memory_equal(first, second, len_bytes);
        assert_int_equal(kv_frame_unpack(bytes_of(first, len_bytes - 1), NULL, &back), E_PROTO);
    }
}

static int unpack(const struct kv_frame *frame, size_t at, uint8_t value)
{
    uint8_t bytes[KV_FRAME_MAX_BYTES];
    size_t len_bytes = kv_frame_pack(frame, bytes);
    struct kv_frame out;
    struct fault fault = {0};
    int err;

    if (at < len_bytes)
        bytes[at] = value;
    err = kv_frame_unpack(bytes_of(bytes, len_bytes), &fault, &out);
    if (err != 0)
        assert_true(fault.text[0] != '\0');
    return err;
}

static void bad_bytes_are_refused(void **state)
{
    struct kv_frame data = data_frame(), hello = hello_frame();
    struct kv_frame announce = {.type = KV_FRAME_ANNOUNCE, .as.announce = {7, 1, 2, 1024, 5, 6}};
    struct kv_frame reject = {.type = KV_FRAME_REJECT};

    assert_int_equal(unpack(&data, 0, 'X'), E_PROTO); /* magic */
    assert_int_equal(unpack(&data, 4, 0), E_PROTO);   /* type */
    assert_int_equal(unpack(&data, 4, 17), E_PROTO);
    assert_int_equal(unpack(&data, 5, 3), E_PROTO); /* flags */
    assert_int_equal(unpack(&hello, 5, 1), E_PROTO);
    assert_int_equal(unpack(&data, 7, 1), E_PROTO); /* reserved */
    assert_int_equal(unpack(&data, 8 + 20, 1), E_PROTO);
    assert_int_equal(unpack(&data, 8 + 16, 0), E_PROTO);     /* no pieces */
    assert_int_equal(unpack(&data, 8 + 16, 3), E_PROTO);     /* 8192 bytes in three */
    assert_int_equal(unpack(&data, 8 + 24 + 5, 1), E_PROTO); /* a terabyte in two */
    assert_int_equal(unpack(&announce, 8 + 16, 1), E_PROTO); /* 1025 pieces */
    assert_int_equal(unpack(&reject, 8 + 12, 1), E_PROTO);
    assert_int_equal(unpack(&hello, 8, 2), E_VERSION);
    assert_int_equal(unpack(&hello, 8 + 2, 0), E_PROTO); /* kind */
    assert_int_equal(unpack(&hello, 8 + 2, 4), E_PROTO);
    assert_int_equal(unpack(&hello, 8 + 3, 3), E_PROTO);  /* side */
    assert_int_equal(unpack(&hello, 8 + 64, 0), E_PROTO); /* node */
    assert_int_equal(unpack(&hello, 8 + 64, ' '), E_PROTO);
    assert_int_equal(unpack(&hello, 8 + 127, 'x'), E_PROTO);
    assert_int_equal(unpack(&hello, 8 + 4, 0), E_PROTO);     /* layers */
    assert_int_equal(unpack(&hello, 8 + 8 + 4, 1), E_PROTO); /* piece of 4 GiB */
    data.as.data.first = UINT32_MAX;
    assert_int_equal(unpack(&data, SIZE_MAX, 0), E_PROTO);
}

static void bad_trailers_are_refused(void **state)
{
    struct kv_frame_trailer end = {.digest = 1, .status = KV_FRAME_GOOD};
    uint8_t bytes[KV_FRAME_TRAILER_BYTES];

    kv_frame_trailer_pack(&end, bytes);
    assert_int_equal(kv_frame_trailer_unpack(bytes, NULL, &end), 0);
    bytes[8] = 0;
    assert_int_equal(kv_frame_trailer_unpack(bytes, NULL, &end), E_PROTO);
    bytes[8] = 3;
    assert_int_equal(kv_frame_trailer_unpack(bytes, NULL, &end), E_PROTO);
    bytes[8] = 1;
    bytes[15] = 1;
    assert_int_equal(kv_frame_trailer_unpack(bytes, NULL, &end), E_PROTO);
}

static void noise_never_unpacks_to_nonsense(void **state)
{
    struct rng rng;

    rng_init(&rng, 5);
    for (unsigned i = 0; i < 20000; i++) {
        struct kv_frame frame = i % 2 ? data_frame() : hello_frame();
        uint8_t bytes[KV_FRAME_MAX_BYTES];
        size_t len_bytes = kv_frame_pack(&frame, bytes);

        for (unsigned k = 0; k < 1 + i % 4; k++)
            bytes[rng_below(&rng, len_bytes)] = (uint8_t)rng_u64(&rng);
        if (kv_frame_unpack(bytes_of(bytes, len_bytes), NULL, &frame) == 0 && frame.type == KV_FRAME_DATA) {
            assert_in_range(frame.as.data.n_pieces, 1, KV_FRAME_MAX_PIECES);
            assert_true(frame.as.data.payload_bytes <= KV_FRAME_MAX_PIECES * KV_FRAME_MAX_PIECE);
            assert_int_equal(frame.as.data.payload_bytes % frame.as.data.n_pieces, 0);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_data),
        cmocka_unit_test(golden_hello),
        cmocka_unit_test(golden_announce_reject_trailer),
        cmocka_unit_test(there_and_back),
        cmocka_unit_test(bad_bytes_are_refused),
        cmocka_unit_test(bad_trailers_are_refused),
        cmocka_unit_test(noise_never_unpacks_to_nonsense),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
