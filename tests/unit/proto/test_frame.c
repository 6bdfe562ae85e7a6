/* SPDX-License-Identifier: Apache-2.0 */
/* Control frames: the header, messages of links, blocks and operation in both directions,
 * and their limits in frame_check.c from both sides. */
#include "frame_rig.h"

#include "base/check.h"
#include "proto/role.h"

#define FINGERPRINT "0123456789abcdef0123456789abcdef"

static void header_golden(void **state)
{
    static const uint8_t golden[FRAME_HEADER_BYTES] = {'B', 'T', 'N', '1', 1, 0, 20, 0, 0x78, 0x56, 0x34, 0};
    struct frame_header header = {.version = 1, .type = FRAME_SUBMIT, .len_bytes = 0x345678}, back;
    uint8_t bytes[FRAME_HEADER_BYTES];
    struct fault fault;

    frame_header_pack(&header, bytes);
    assert_memory_equal(bytes, golden, sizeof(golden));
    assert_int_equal(frame_header_unpack(bytes, &fault, &back), 0);
    assert_memory_equal(&header, &back, sizeof(header));

    bytes[4] = 2;
    assert_int_equal(frame_header_unpack(bytes, &fault, &back), E_VERSION);
    bytes[4] = 1;
    bytes[11] = 0x7f;
    assert_int_equal(frame_header_unpack(bytes, &fault, &back), E_PROTO);
    assert_non_null(strstr(fault.text, "SUBMIT"));
    bytes[0] = 'X';
    assert_int_equal(frame_header_unpack(bytes, &fault, &back), E_PROTO);
}

static void types_are_known_or_not(void **state)
{
    assert_true(frame_type_known(FRAME_HELLO));
    assert_string_equal(frame_type_name(FRAME_TRANSFER_STOPPED), "TRANSFER_STOPPED");
    assert_string_equal(frame_type_name(999), "?");
    assert_false(frame_type_known(0));
    assert_int_equal(frame_max_bytes(999), 1 << 20);
    assert_int_equal(frame_unpack(999, bytes_of("", 0), NULL, &(ProtobufCMessage *){NULL}), E_PROTO);
}

static Baton__Hello hello = BATON__HELLO__INIT;
static Baton__ModelInfo model = BATON__MODEL_INFO__INIT;
static Baton__KvInfo kv = BATON__KV_INFO__INIT;

static int set_up(void **state)
{
    model = (Baton__ModelInfo)BATON__MODEL_INFO__INIT;
    model.name = "tiny";
    model.fingerprint = FINGERPRINT;
    model.context_length = 2048;
    kv = (Baton__KvInfo)BATON__KV_INFO__INIT;
    kv.layout = 7;
    kv.block_tokens = 32;
    kv.n_blocks = 64;
    kv.block_bytes = 4096;
    hello = (Baton__Hello)BATON__HELLO__INIT;
    hello.protocol = 1;
    hello.role = BATON__ROLE__ROLE_PREFILL;
    hello.node = "prefill-1.example_x";
    hello.epoch = UINT64_C(0xfedcba9876543210);
    hello.model = &model;
    hello.kv = &kv;
    return 0;
}

static void hello_there_and_back(void **state)
{
    ProtobufCMessage *message;
    Baton__Hello *back;

    assert_int_equal(through(FRAME_HELLO, &hello, NULL, &message), 0);
    back = (Baton__Hello *)message;
    assert_string_equal(back->node, hello.node);
    assert_int_equal(back->epoch, hello.epoch);
    assert_string_equal(back->model->fingerprint, FINGERPRINT);
    assert_int_equal(back->kv->block_tokens, 32);
    frame_message_free(message);

    hello.protocol = 77; /* the link answers that with a reason; the frame is not malformed */
    assert_passes(FRAME_HELLO, &hello);
}

static void hello_limits(void **state)
{
    char name[65];

    memset(name, 'a', sizeof(name));
    name[63] = '\0';
    hello.node = name;
    assert_passes(FRAME_HELLO, &hello);
    name[63] = 'a';
    name[64] = '\0';
    assert_refused(FRAME_HELLO, &hello, "Hello.node");
    hello.node = "";
    assert_refused(FRAME_HELLO, &hello, "Hello.node");
    hello.node = "a/b";
    assert_refused(FRAME_HELLO, &hello, "Hello.node");
    hello.node = "a";
    hello.build = "1\n2";
    assert_refused(FRAME_HELLO, &hello, "Hello.build");
    hello.build = "";
    hello.role = (Baton__Role)9;
    assert_refused(FRAME_HELLO, &hello, "Hello.role");
    hello.role = BATON__ROLE__ROLE_ROUTER;
    model.fingerprint = "0123456789ABCDEF0123456789abcdef";
    assert_refused(FRAME_HELLO, &hello, "ModelInfo.fingerprint");
    model.fingerprint = "0123";
    assert_refused(FRAME_HELLO, &hello, "ModelInfo.fingerprint");
    hello.model = NULL;
    kv.block_tokens = 0;
    assert_refused(FRAME_HELLO, &hello, "KvInfo.block_tokens");
    hello.kv = NULL;
    assert_passes(FRAME_HELLO, &hello);
}

static void grant_limits(void **state)
{
    Baton__BlockRun run = BATON__BLOCK_RUN__INIT;
    Baton__BlockRun *runs[2] = {&run, &run};
    Baton__Grant grant = BATON__GRANT__INIT;

    run.count = 16;
    grant.n_runs = 2;
    grant.runs = runs;
    grant.transport = "shm";
    assert_passes(FRAME_GRANT, &grant);
    run.count = 1 << 24;
    assert_refused(FRAME_GRANT, &grant, "Grant.runs");
    run.count = 0;
    assert_refused(FRAME_GRANT, &grant, "BlockRun.count");
    run.count = 1;
    grant.transport = "";
    assert_refused(FRAME_GRANT, &grant, "Grant.transport");
}

static void blocks_come_as_whole_hashes(void **state)
{
    uint8_t hashes[64] = {1}, tiers[4] = {BATON__BLOCK_TIER__TIER_MEMORY, BATON__BLOCK_TIER__TIER_DISK};
    Baton__BlockEvents events = BATON__BLOCK_EVENTS__INIT;
    Baton__BlocksLast last = BATON__BLOCKS_LAST__INIT;
    Baton__StoreBlocks stored = BATON__STORE_BLOCKS__INIT;
    Baton__Ask ask = BATON__ASK__INIT;

    ask.ask = 5;
    ask.hashes = last.hashes = events.hashes = (ProtobufCBinaryData){.data = hashes, .len = 64};
    assert_passes(FRAME_ASK, &ask);
    ask.ask = 0;
    assert_refused(FRAME_ASK, &ask, "Ask.ask");
    ask.ask = 5;
    ask.hashes.len = 63;
    assert_refused(FRAME_ASK, &ask, "Ask.hashes");
    ask.hashes.len = 0;
    assert_refused(FRAME_ASK, &ask, "Ask.hashes");
    ask.hashes.len = 64;
    ask.tenant = (UINT64_C(1) << 48) - 1;
    assert_passes(FRAME_ASK, &ask);
    ask.tenant++;
    assert_refused(FRAME_ASK, &ask, "Ask.tenant");

    events.first_number = 1;
    events.tiers = (ProtobufCBinaryData){.data = tiers, .len = 4};
    assert_passes(FRAME_BLOCK_EVENTS, &events);
    events.tiers.len = 3;
    assert_refused(FRAME_BLOCK_EVENTS, &events, "BlockEvents.tiers");
    events.tiers.len = 4;
    tiers[3] = 3;
    assert_refused(FRAME_BLOCK_EVENTS, &events, "BlockEvents.tiers");
    tiers[3] = 0;
    events.first_number = 0;
    assert_refused(FRAME_BLOCK_EVENTS, &events, "BlockEvents.first_number");
    events.first_number = 1;
    events.hashes.len = events.tiers.len = 0; /* an empty snapshot */
    assert_passes(FRAME_BLOCK_EVENTS, &events);

    assert_passes(FRAME_BLOCKS_LAST, &last);
    last.hashes.len = 17;
    assert_refused(FRAME_BLOCKS_LAST, &last, "BlocksLast.hashes");

    stored.hashes = (ProtobufCBinaryData){.data = hashes, .len = 64};
    stored.there = (ProtobufCBinaryData){.data = tiers, .len = 4};
    assert_passes(FRAME_STORE_BLOCKS, &stored);
    stored.there.len = 3;
    assert_refused(FRAME_STORE_BLOCKS, &stored, "StoreBlocks.there");
}

static void a_resumed_stream_brings_its_submit(void **state)
{
    Baton__Resume resume = BATON__RESUME__INIT;
    Baton__Resumed resumed = BATON__RESUMED__INIT;
    uint8_t digest[33] = {0};

    assert_refused(FRAME_RESUME, &resume, "Resume.request_id");
    resume.request_id = (char *)"req_1";
    resume.body_digest = (ProtobufCBinaryData){.data = digest, .len = 32};
    assert_passes(FRAME_RESUME, &resume);
    resume.body_digest.len = 33;
    assert_refused(FRAME_RESUME, &resume, "Resume.body_digest");
    assert_passes(FRAME_RESUMED, &resumed);
    resumed.is_here = true;
    assert_refused(FRAME_RESUMED, &resumed, "Resumed.submit");
}

/* A worker cuts longer ones: two tenants with a long common beginning would be one. */
static void names_of_a_submit_are_bounded(void **state)
{
    Baton__Submit submit = BATON__SUBMIT__INIT;
    Baton__Sampling sampling = BATON__SAMPLING__INIT;
    char text[66];
    uint8_t tokens[4] = {1};

    memset(text, 'a', sizeof(text));
    submit.sampling = &sampling;
    submit.n_prompt = 1;
    submit.tokens = (ProtobufCBinaryData){.data = tokens, .len = sizeof(tokens)};
    text[FRAME_TENANT] = '\0';
    submit.tenant = text;
    assert_passes(FRAME_SUBMIT, &submit);
    submit.request_id = text + FRAME_TENANT - FRAME_REQUEST_ID;
    assert_passes(FRAME_SUBMIT, &submit);
    submit.request_id--;
    assert_refused(FRAME_SUBMIT, &submit, "Submit.request_id");
    text[FRAME_TENANT] = 'a';
    text[FRAME_TENANT + 1] = '\0';
    submit.request_id = text + FRAME_TENANT + 1;
    assert_refused(FRAME_SUBMIT, &submit, "Submit.tenant");
}

static void a_role_is_a_workers(void **state)
{
    Baton__SetRole wanted = BATON__SET_ROLE__INIT;
    Baton__Role role = BATON__ROLE__ROLE_ROUTER;

    for (int i = BATON__ROLE__ROLE_PREFILL; i <= BATON__ROLE__ROLE_BOTH; i++) {
        wanted.role = (Baton__Role)i;
        assert_passes(FRAME_SET_ROLE, &wanted);
        assert_true(role_read(bytes_str(role_text(wanted.role)), &role));
        assert_int_equal(role, i);
    }
    wanted.role = BATON__ROLE__ROLE_ROUTER;
    assert_refused(FRAME_SET_ROLE, &wanted, "SetRole.role");
    wanted.role = (Baton__Role)77;
    assert_refused(FRAME_SET_ROLE, &wanted, "SetRole.role");
    assert_string_equal(role_text(BATON__ROLE__ROLE_ROUTER), "");
    assert_string_equal(role_text((Baton__Role)-1), "");
    assert_false(role_read(bytes_str("router"), &role));
    assert_false(role_read(bytes_str(""), &role));
    assert_int_equal(role, BATON__ROLE__ROLE_BOTH);
}

static void probes_are_bounded(void **state)
{
    Baton__Probe probe = BATON__PROBE__INIT;
    Baton__Probed probed = BATON__PROBED__INIT;
    Baton__ProbeResult result = BATON__PROBE_RESULT__INIT, *results[FRAME_PROBE_ADDRESSES + 1];
    char *addresses[FRAME_PROBE_ADDRESSES + 1], text[257];

    (void)state;
    for (int i = 0; i <= FRAME_PROBE_ADDRESSES; i++) {
        addresses[i] = (char *)"10.0.0.1:8090";
        results[i] = &result;
    }
    probe.addresses = addresses;
    probed.results = results;
    assert_passes(FRAME_PROBE, &probe);
    assert_passes(FRAME_PROBED, &probed);
    probe.n_addresses = probed.n_results = FRAME_PROBE_ADDRESSES;
    result.outcome = BATON__PROBE_OUTCOME__PROBE_FAILED;
    result.rtt_us = result.mtu = UINT32_MAX;
    assert_passes(FRAME_PROBE, &probe);
    assert_passes(FRAME_PROBED, &probed);
    probe.n_addresses++;
    probed.n_results++;
    assert_refused(FRAME_PROBE, &probe, "Probe.addresses");
    assert_refused(FRAME_PROBED, &probed, "Probed.results");
    probe.n_addresses = probed.n_results = 1;
    memset(text, 'a', 256);
    text[256] = '\0';
    addresses[0] = text;
    assert_refused(FRAME_PROBE, &probe, "Probe.addresses");
    addresses[0] = (char *)"\x1b[2J";
    assert_refused(FRAME_PROBE, &probe, "Probe.addresses");
    result.outcome = (Baton__ProbeOutcome)7;
    assert_refused(FRAME_PROBED, &probed, "ProbeResult.outcome");
}

static void spending_is_bounded(void **state)
{
    Baton__Spending spending = BATON__SPENDING__INIT;
    Baton__SpendingRow row = BATON__SPENDING_ROW__INIT, *rows[FRAME_SPENDING_ROWS + 1];
    Baton__SpendingAck ack = BATON__SPENDING_ACK__INIT, *acks[FRAME_SPENDING_ACKS + 1];
    float parts[FRAME_SPENDING_KINDS + 1] = {0.25f, -1, 3e30f, 0};
    uint8_t account[FRAME_SPENDING_ID + 1] = {7};

    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        rows[i] = &row;
    for (size_t i = 0; i < ARRAY_LEN(acks); i++)
        acks[i] = &ack;
    spending.rows = rows;
    spending.acks = acks;
    assert_passes(FRAME_SPENDING, &spending);
    spending.n_acks = FRAME_SPENDING_ACKS;
    spending.n_rows = FRAME_SPENDING_ROWS;
    assert_refused(FRAME_SPENDING, &spending, "SpendingRow.account");
    row.account = (ProtobufCBinaryData){.data = account, .len = FRAME_SPENDING_ID};
    row.level = row.spent = row.before = parts;
    row.n_level = row.n_spent = row.n_before = FRAME_SPENDING_KINDS;
    assert_passes(FRAME_SPENDING, &spending);
    row.n_spent++;
    assert_refused(FRAME_SPENDING, &spending, "SpendingRow.spent");
    row.n_spent--;
    parts[0] = 0.0f / 0.0f;
    assert_refused(FRAME_SPENDING, &spending, "SpendingRow.level");
    parts[0] = 0;
    row.demand = -1;
    assert_refused(FRAME_SPENDING, &spending, "SpendingRow.demand");
    row.demand = 0;
    spending.n_rows++;
    assert_refused(FRAME_SPENDING, &spending, "Spending.rows");
    spending.n_rows = 1;
    spending.n_acks++;
    assert_refused(FRAME_SPENDING, &spending, "Spending.acks");
}

static void vocabulary_part_stays_inside(void **state)
{
    Baton__VocabularyPart part = BATON__VOCABULARY_PART__INIT;

    part.fingerprint = FINGERPRINT;
    part.total_bytes = 10;
    part.offset = 8;
    part.data = (ProtobufCBinaryData){.data = (uint8_t *)"ab", .len = 2};
    assert_passes(FRAME_VOCABULARY_PART, &part);
    part.offset = 9;
    assert_refused(FRAME_VOCABULARY_PART, &part, "VocabularyPart.data");
    part.offset = 11;
    assert_refused(FRAME_VOCABULARY_PART, &part, "VocabularyPart.data");
}

/* Two bytes per answer on the wire: a bounded allocator must stop them. */
static void empty_elements_do_not_explode(void **state)
{
    static uint8_t payload[1 << 20];
    ProtobufCMessage *message;

    for (size_t i = 0; i < sizeof(payload); i += 2)
        payload[i] = 1 << 3 | 2; /* answers, length 0 */
    assert_int_equal(frame_unpack(FRAME_TOKENS, bytes_of(payload, sizeof(payload)), NULL, &message), E_PROTO);
}

static void too_long_is_refused(void **state)
{
    static char text[8192];
    struct buf buf = {0};
    Baton__Refused refused = BATON__REFUSED__INIT;
    ProtobufCMessage *message;

    memset(text, 'x', sizeof(text) - 1);
    refused.text = text;
    assert_int_equal(frame_pack(FRAME_REFUSED, &refused.base, &buf), E_LIMIT);
    assert_int_equal(buf.len_bytes, 0);
    assert_int_equal(frame_unpack(FRAME_REFUSED, bytes_of(text, sizeof(text)), NULL, &message), E_PROTO);
    buf_fini(&buf);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(header_golden),
        cmocka_unit_test(types_are_known_or_not),
        cmocka_unit_test_setup(hello_there_and_back, set_up),
        cmocka_unit_test_setup(hello_limits, set_up),
        cmocka_unit_test(grant_limits),
        cmocka_unit_test(blocks_come_as_whole_hashes),
        cmocka_unit_test(a_resumed_stream_brings_its_submit),
        cmocka_unit_test(names_of_a_submit_are_bounded),
        cmocka_unit_test(a_role_is_a_workers),
        cmocka_unit_test(probes_are_bounded),
        cmocka_unit_test(spending_is_bounded),
        cmocka_unit_test(vocabulary_part_stays_inside),
        cmocka_unit_test(empty_elements_do_not_explode),
        cmocka_unit_test(too_long_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
