/* SPDX-License-Identifier: Apache-2.0 */
/* Control frames: the header, every message in both directions,
 * and every limit of frame_check.c from both sides. */
#include "proto/frame.h"
#include "proto/role.h"

#include "base/check.h"
#include "base/err.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define FINGERPRINT "0123456789abcdef0123456789abcdef"

/* Packs and unpacks a message.
 * Returns the result of unpacking; text_out (may be NULL) receives the fault. */
static int through(enum frame_type type, const void *message, char text_out[512], ProtobufCMessage **out)
{
    struct buf buf = {0};
    struct frame_header header;
    struct fault fault = {0};
    ProtobufCMessage *back = NULL;
    int err;

    assert_int_equal(frame_pack(type, message, &buf), 0);
    assert_int_equal(frame_header_unpack(buf.data, NULL, &header), 0);
    assert_int_equal(header.type, type);
    assert_int_equal(header.len_bytes + FRAME_HEADER_BYTES, buf.len_bytes);
    err = frame_unpack(type, bytes_of(buf.data + FRAME_HEADER_BYTES, header.len_bytes), &fault, &back);
    buf_fini(&buf);
    if (text_out != NULL)
        memcpy(text_out, fault.text, sizeof(fault.text));
    if (out != NULL)
        *out = back;
    else
        frame_message_free(back);
    return err;
}

#define assert_refused(type, message, named)                                                                 \
    do {                                                                                                     \
        char text_[512];                                                                                     \
        assert_int_equal(through(type, message, text_, NULL), E_PROTO);                                      \
        if (strstr(text_, named) == NULL)                                                                    \
            fail_msg("'%s' does not name %s", text_, named);                                                 \
    } while (0)
#define assert_passes(type, message) assert_int_equal(through(type, message, NULL, NULL), 0)

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

static void submit_tokens(void **state)
{
    static uint8_t many[((size_t)8 << 20) + 2]; /* 4 Mi tokens of two bytes, and one more */
    Baton__Submit submit = BATON__SUBMIT__INIT;
    Baton__Sampling sampling = BATON__SAMPLING__INIT;

    submit.sampling = &sampling;
    submit.n_prompt = 2;
    submit.tokens = (ProtobufCBinaryData){.data = many, .len = 6};
    assert_refused(FRAME_SUBMIT, &submit, "Submit.tokens");
    submit.token_bytes = 3;
    assert_passes(FRAME_SUBMIT, &submit);
    submit.n_prompt = 3;
    assert_refused(FRAME_SUBMIT, &submit, "Submit.n_prompt");
    submit.token_bytes = 2;
    submit.weight = 1000;
    assert_passes(FRAME_SUBMIT, &submit);
    submit.weight = 1001;
    assert_refused(FRAME_SUBMIT, &submit, "Submit.weight");
    submit.weight = 0;
    assert_passes(FRAME_SUBMIT, &submit);
    submit.tokens.len = 7;
    assert_refused(FRAME_SUBMIT, &submit, "Submit.tokens");
    submit.token_bytes = 1;
    assert_refused(FRAME_SUBMIT, &submit, "Submit.tokens");
    submit.token_bytes = 5;
    assert_refused(FRAME_SUBMIT, &submit, "Submit.token_bytes");
    submit.token_bytes = 4;
    submit.tokens.len = 12;
    assert_passes(FRAME_SUBMIT, &submit);
    submit.token_bytes = 2;
    submit.tokens.len = sizeof(many);
    assert_refused(FRAME_SUBMIT, &submit, "Submit.tokens");
    submit.tokens.len = sizeof(many) - 2;
    assert_passes(FRAME_SUBMIT, &submit);
}

/* Later tokens count as tokens of the prompt, and all together have the same limit. */
static void submit_tokens_later(void **state)
{
    static uint8_t many[4 * FRAME_PIECE_TOKENS + 4];
    Baton__Submit submit = BATON__SUBMIT__INIT;
    Baton__Sampling sampling = BATON__SAMPLING__INIT;
    Baton__SubmitTokens more = BATON__SUBMIT_TOKENS__INIT;

    submit.sampling = &sampling;
    submit.tokens = (ProtobufCBinaryData){.data = many, .len = 8};
    submit.n_prompt = 5;
    assert_refused(FRAME_SUBMIT, &submit, "Submit.n_prompt");
    submit.n_tokens_later = 3;
    assert_passes(FRAME_SUBMIT, &submit);
    submit.n_tokens_later = FRAME_MAX_TOKENS - 2;
    assert_passes(FRAME_SUBMIT, &submit);
    submit.n_tokens_later++;
    assert_refused(FRAME_SUBMIT, &submit, "Submit.n_tokens_later");
    submit.n_tokens_later = UINT32_MAX;
    assert_refused(FRAME_SUBMIT, &submit, "Submit.n_tokens_later");

    more.tokens = (ProtobufCBinaryData){.data = many, .len = 6};
    assert_refused(FRAME_SUBMIT_TOKENS, &more, "SubmitTokens.token_bytes");
    more.token_bytes = 3;
    assert_passes(FRAME_SUBMIT_TOKENS, &more);
    more.token_bytes = 4;
    assert_refused(FRAME_SUBMIT_TOKENS, &more, "SubmitTokens.tokens");
    more.tokens.len = sizeof(many) - 4;
    assert_passes(FRAME_SUBMIT_TOKENS, &more);
    more.tokens.len = sizeof(many);
    assert_refused(FRAME_SUBMIT_TOKENS, &more, "SubmitTokens.tokens");
    more.tokens.len = 0;
    assert_refused(FRAME_SUBMIT_TOKENS, &more, "SubmitTokens.tokens");
}

static void submit_limits(void **state)
{
    Baton__Submit submit = BATON__SUBMIT__INIT;
    Baton__Sampling sampling = BATON__SAMPLING__INIT;
    Baton__Peer peer = BATON__PEER__INIT;
    uint8_t tokens[12] = {0};

    submit.tokens = (ProtobufCBinaryData){.data = tokens, .len = 12};
    submit.n_prompt = 3;
    assert_refused(FRAME_SUBMIT, &submit, "Submit.sampling");
    submit.sampling = &sampling;
    assert_passes(FRAME_SUBMIT, &submit);
    submit.n_prompt = 4;
    assert_refused(FRAME_SUBMIT, &submit, "Submit.n_prompt");
    submit.n_prompt = 0;
    assert_refused(FRAME_SUBMIT, &submit, "Submit.n_prompt");
    submit.n_prompt = 2;
    submit.tokens.len = 11;
    assert_refused(FRAME_SUBMIT, &submit, "Submit.tokens");
    submit.tokens.len = 0;
    assert_refused(FRAME_SUBMIT, &submit, "Submit.tokens");
    submit.tokens.len = 12;
    submit.mode = BATON__SUBMIT_MODE__SUBMIT_PREFILL;
    assert_refused(FRAME_SUBMIT, &submit, "Submit.peer");
    submit.peer = &peer;
    assert_refused(FRAME_SUBMIT, &submit, "Peer.node");
    peer.node = "d1";
    peer.link_address = "127.0.0.1:1";
    assert_passes(FRAME_SUBMIT, &submit);
    sampling.temperature = NAN;
    assert_refused(FRAME_SUBMIT, &submit, "Sampling.temperature");
    sampling.temperature = 1;
    sampling.top_p = 1.5f;
    assert_refused(FRAME_SUBMIT, &submit, "Sampling.top_p");
}

static void sampling_limits(void **state)
{
    static uint32_t ids[1025];
    static float bias[1025];
    static uint8_t constraint[(1 << 20) + 1];
    Baton__Submit submit = BATON__SUBMIT__INIT;
    Baton__Sampling sampling = BATON__SAMPLING__INIT;
    uint8_t tokens[4] = {0};

    for (uint32_t i = 0; i < 1025; i++)
        ids[i] = 3 * i;
    submit.tokens = (ProtobufCBinaryData){.data = tokens, .len = 4};
    submit.n_prompt = 1;
    submit.sampling = &sampling;
    submit.constraint = (ProtobufCBinaryData){.data = constraint, .len = 1 << 20};
    submit.keep_tokens = submit.keep_1h_tokens = 4 << 20;
    sampling.bias_ids = ids;
    sampling.bias = bias;
    sampling.n_bias = sampling.n_bias_ids = 1024;
    sampling.n_top = 20;
    sampling.frequency_penalty = -100;
    sampling.presence_penalty = 100;
    sampling.repetition_penalty = 100;
    assert_passes(FRAME_SUBMIT, &submit);
    submit.constraint.len++;
    assert_refused(FRAME_SUBMIT, &submit, "Submit.constraint");
    submit.constraint.len = 0;
    submit.keep_1h_tokens++;
    assert_refused(FRAME_SUBMIT, &submit, "Submit.keep_1h_tokens");
    submit.keep_1h_tokens = 0;
    submit.keep_tokens++;
    assert_refused(FRAME_SUBMIT, &submit, "Submit.keep_tokens");
    submit.keep_tokens = 0;
    sampling.n_bias = sampling.n_bias_ids = 1025;
    assert_refused(FRAME_SUBMIT, &submit, "Sampling.bias_ids");
    sampling.n_bias = sampling.n_bias_ids = 2;
    sampling.n_bias--;
    assert_refused(FRAME_SUBMIT, &submit, "Sampling.bias");
    sampling.n_bias++;
    ids[0] = ids[1];
    assert_refused(FRAME_SUBMIT, &submit, "Sampling.bias_ids");
    ids[0] = 0;
    bias[1] = INFINITY;
    assert_refused(FRAME_SUBMIT, &submit, "Sampling.bias");
    bias[1] = -100;
    assert_passes(FRAME_SUBMIT, &submit);
    sampling.n_top = 21;
    assert_refused(FRAME_SUBMIT, &submit, "Sampling.n_top");
    sampling.n_top = 0;
    sampling.frequency_penalty = -101;
    assert_refused(FRAME_SUBMIT, &submit, "Sampling.frequency_penalty");
    sampling.frequency_penalty = 0;
    sampling.presence_penalty = NAN;
    assert_refused(FRAME_SUBMIT, &submit, "Sampling.presence_penalty");
    sampling.presence_penalty = 0;
    sampling.repetition_penalty = -1;
    assert_refused(FRAME_SUBMIT, &submit, "Sampling.repetition_penalty");
}

/* A sender older than these fields, and a newer one, as bytes on the wire. */
static void neighbouring_versions_understand_each_other(void **state)
{
    static const uint8_t golden[] = {
        0x09, 5,    0,    0,   0, 0,    0,    0, 0, /* request */
        0x32, 4,    7,    0,   0, 0,                /* tokens */
        0x38, 1,                                    /* n_prompt */
        0x4a, 5,    0x45, 0,   0, 0x80, 0x3f,       /* sampling: frequency_penalty 1 */
        0x5a, 2,    '{',  '}',                      /* constraint */
        0x60, 9,                                    /* keep_tokens */
        0x68, 8,                                    /* keep_1h_tokens */
        0xfa, 0x06, 1,    'x',                      /* field 111: of a version to come */
    };
    Baton__Submit *submit;
    ProtobufCMessage *message;

    assert_int_equal(frame_unpack(FRAME_SUBMIT, bytes_of(golden, sizeof(golden)), NULL, &message), 0);
    submit = (Baton__Submit *)message;
    assert_int_equal(submit->request, 5);
    assert_true(submit->sampling->frequency_penalty == 1);
    assert_int_equal(submit->constraint.len, 2);
    assert_int_equal(submit->keep_tokens, 9);
    assert_int_equal(submit->keep_1h_tokens, 8);
    frame_message_free(message);
    /* Up to n_prompt, with an empty sampling: all newer options are off. */
    assert_int_equal(frame_unpack(FRAME_SUBMIT, bytes_of("\x32\4\7\0\0\0\x38\1\x4a\0", 10), NULL, &message),
                     0);
    submit = (Baton__Submit *)message;
    assert_false(submit->sampling->wants_logprob);
    assert_int_equal(submit->constraint.len, 0);
    assert_int_equal(submit->sampling->n_bias, 0);
    frame_message_free(message);
}

static void draws_fit_their_tokens(void **state)
{
    uint32_t ids[2] = {5, 6}, n_tops[2] = {1, 2}, top_ids[3] = {5, 6, 7};
    float logprobs[2] = {-1, -2}, top_logprobs[3] = {-1, -2, -3};
    Baton__Answer answer = BATON__ANSWER__INIT, *answers[1] = {&answer};
    Baton__Tokens tokens = BATON__TOKENS__INIT;
    Baton__PrefillDone done = BATON__PREFILL_DONE__INIT;
    uint32_t many_ids[21] = {0};
    float many[21] = {0};
    char text[513];

    answer.ids = ids;
    answer.logprobs = logprobs;
    answer.n_tops = n_tops;
    answer.top_ids = top_ids;
    answer.top_logprobs = top_logprobs;
    answer.n_ids = answer.n_logprobs = answer.n_n_tops = 2;
    answer.n_top_ids = answer.n_top_logprobs = 3;
    tokens.n_answers = 1;
    tokens.answers = answers;
    assert_passes(FRAME_TOKENS, &tokens);
    answer.n_logprobs = 1;
    assert_refused(FRAME_TOKENS, &tokens, "Answer.logprobs");
    answer.n_logprobs = 2;
    answer.n_n_tops = 0;
    assert_refused(FRAME_TOKENS, &tokens, "Answer.logprobs");
    answer.n_n_tops = 2;
    answer.n_top_logprobs = 2;
    assert_refused(FRAME_TOKENS, &tokens, "Answer.top_ids");
    answer.n_top_logprobs = 3;
    n_tops[1] = 1;
    assert_refused(FRAME_TOKENS, &tokens, "Answer.top_ids");
    n_tops[1] = UINT32_MAX;
    assert_refused(FRAME_TOKENS, &tokens, "Answer.n_tops");
    n_tops[1] = 2;
    logprobs[1] = -INFINITY;
    assert_refused(FRAME_TOKENS, &tokens, "Answer.logprobs");
    logprobs[1] = -2;
    memset(text, 'x', sizeof(text) - 1);
    text[512] = '\0';
    answer.error_text = text;
    assert_refused(FRAME_TOKENS, &tokens, "Answer.error_text");

    done.top_ids = many_ids;
    done.top_logprobs = many;
    done.n_top_ids = done.n_top_logprobs = 20;
    assert_passes(FRAME_PREFILL_DONE, &done);
    done.n_top_ids = 19;
    assert_refused(FRAME_PREFILL_DONE, &done, "PrefillDone.top_ids");
    done.n_top_ids = done.n_top_logprobs = 21;
    assert_refused(FRAME_PREFILL_DONE, &done, "PrefillDone.top_ids");
}

static void tokens_there_and_back(void **state)
{
    uint32_t ids[3] = {5, 6, UINT32_MAX};
    Baton__Answer answer = BATON__ANSWER__INIT;
    Baton__Serving serving = BATON__SERVING__INIT;
    Baton__Answer *answers[1] = {&answer};
    Baton__Tokens tokens = BATON__TOKENS__INIT, singles = BATON__TOKENS__INIT;
    uint8_t bytes[2 * FRAME_SINGLE_BYTES];
    struct frame_single single;
    ProtobufCMessage *message;

    answer.request = 9;
    answer.n_ids = 3;
    answer.ids = ids;
    answer.finish = BATON__FINISH__FINISH_HANDED_OFF;
    answer.serving = &serving;
    tokens.n_answers = 1;
    tokens.answers = answers;
    assert_int_equal(through(FRAME_TOKENS, &tokens, NULL, &message), 0);
    assert_int_equal(((Baton__Tokens *)message)->answers[0]->ids[2], UINT32_MAX);
    frame_message_free(message);

    singles.singles = (ProtobufCBinaryData){.data = bytes, .len = sizeof(bytes)};
    frame_single_pack(&(struct frame_single){.request = 1, .index = 2, .id = 3}, bytes);
    frame_single_pack(&(struct frame_single){.request = UINT64_MAX, .index = 70000, .id = UINT32_MAX - 1},
                      bytes + FRAME_SINGLE_BYTES);
    assert_int_equal(bytes[8], 2);
    assert_int_equal(bytes[12], 3);
    assert_int_equal(through(FRAME_TOKENS, &singles, NULL, &message), 0);
    single = frame_single_unpack(((Baton__Tokens *)message)->singles.data + FRAME_SINGLE_BYTES);
    assert_true(single.request == UINT64_MAX && single.index == 70000 && single.id == UINT32_MAX - 1);
    frame_message_free(message);
    singles.singles.len--;
    assert_refused(FRAME_TOKENS, &singles, "Tokens.singles");

    serving.transport = "a transport of many letters";
    assert_refused(FRAME_TOKENS, &tokens, "Serving.transport");
    answer.serving = NULL;
    answer.finish = (Baton__Finish)100;
    assert_refused(FRAME_TOKENS, &tokens, "Answer.finish");
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
        cmocka_unit_test(submit_limits),
        cmocka_unit_test(submit_tokens),
        cmocka_unit_test(submit_tokens_later),
        cmocka_unit_test(sampling_limits),
        cmocka_unit_test(neighbouring_versions_understand_each_other),
        cmocka_unit_test(draws_fit_their_tokens),
        cmocka_unit_test(tokens_there_and_back),
        cmocka_unit_test(grant_limits),
        cmocka_unit_test(blocks_come_as_whole_hashes),
        cmocka_unit_test(a_resumed_stream_brings_its_submit),
        cmocka_unit_test(a_role_is_a_workers),
        cmocka_unit_test(probes_are_bounded),
        cmocka_unit_test(spending_is_bounded),
        cmocka_unit_test(vocabulary_part_stays_inside),
        cmocka_unit_test(empty_elements_do_not_explode),
        cmocka_unit_test(too_long_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
