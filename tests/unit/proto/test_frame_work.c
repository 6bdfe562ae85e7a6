/* SPDX-License-Identifier: Apache-2.0 */
/* Control frames that carry a request to a worker and its tokens back: both directions,
 * and their limits in frame_check.c from both sides. */
#include "frame_rig.h"

#include <math.h>

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

/* An embedding travels with one token, and its numbers are finite. */
static void embeddings_are_checked(void **state)
{
    Baton__Submit submit = BATON__SUBMIT__INIT;
    Baton__Sampling sampling = BATON__SAMPLING__INIT;
    Baton__Peer peer = BATON__PEER__INIT;
    Baton__Tokens tokens = BATON__TOKENS__INIT;
    Baton__Answer answer = BATON__ANSWER__INIT, *answers[] = {&answer};
    uint8_t prompt[4] = {0};
    uint32_t ids[2] = {1, 2};
    float numbers[2] = {1, -3};

    submit.sampling = &sampling;
    submit.peer = &peer;
    peer.node = peer.link_address = (char *)"d1";
    submit.tokens = (ProtobufCBinaryData){.data = prompt, .len = 4};
    submit.n_prompt = 1;
    submit.wants_embedding = true;
    assert_refused(FRAME_SUBMIT, &submit, "Submit.wants_embedding");
    submit.max_new_tokens = 1;
    assert_passes(FRAME_SUBMIT, &submit);
    submit.mode = BATON__SUBMIT_MODE__SUBMIT_PREFILL;
    assert_refused(FRAME_SUBMIT, &submit, "Submit.wants_embedding");

    tokens.answers = answers;
    tokens.n_answers = 1;
    answer.embedding = numbers;
    answer.n_embedding = 2;
    assert_refused(FRAME_TOKENS, &tokens, "Answer.embedding");
    answer.ids = ids;
    answer.n_ids = 2;
    assert_refused(FRAME_TOKENS, &tokens, "Answer.embedding");
    answer.n_ids = 1;
    assert_passes(FRAME_TOKENS, &tokens);
    numbers[1] = NAN;
    assert_refused(FRAME_TOKENS, &tokens, "Answer.embedding");
    numbers[1] = INFINITY;
    assert_refused(FRAME_TOKENS, &tokens, "Answer.embedding");
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

static void constraint_and_pin_limits(void **state)
{
    static uint8_t constraint[(1 << 20) + 1];
    Baton__Submit submit = BATON__SUBMIT__INIT;
    Baton__Sampling sampling = BATON__SAMPLING__INIT;
    uint8_t tokens[4] = {0};

    submit.tokens = (ProtobufCBinaryData){.data = tokens, .len = 4};
    submit.n_prompt = 1;
    submit.sampling = &sampling;
    submit.constraint = (ProtobufCBinaryData){.data = constraint, .len = 1 << 20};
    submit.pin_5m_tokens = submit.pin_1h_tokens = 4 << 20;
    assert_passes(FRAME_SUBMIT, &submit);
    submit.constraint.len++;
    assert_refused(FRAME_SUBMIT, &submit, "Submit.constraint");
    submit.constraint.len = 0;
    submit.pin_1h_tokens++;
    assert_refused(FRAME_SUBMIT, &submit, "Submit.pin_1h_tokens");
    submit.pin_1h_tokens = 0;
    submit.pin_5m_tokens++;
    assert_refused(FRAME_SUBMIT, &submit, "Submit.pin_5m_tokens");
}

static void sampling_bias_limits(void **state)
{
    static uint32_t ids[1025];
    static float bias[1025];
    Baton__Submit submit = BATON__SUBMIT__INIT;
    Baton__Sampling sampling = BATON__SAMPLING__INIT;
    uint8_t tokens[4] = {0};

    for (uint32_t i = 0; i < 1025; i++)
        ids[i] = 3 * i;
    submit.tokens = (ProtobufCBinaryData){.data = tokens, .len = 4};
    submit.n_prompt = 1;
    submit.sampling = &sampling;
    sampling.bias_ids = ids;
    sampling.bias = bias;
    sampling.n_bias = sampling.n_bias_ids = 1024;
    assert_passes(FRAME_SUBMIT, &submit);
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
}

static void sampling_limits(void **state)
{
    Baton__Submit submit = BATON__SUBMIT__INIT;
    Baton__Sampling sampling = BATON__SAMPLING__INIT;
    uint8_t tokens[4] = {0};

    submit.tokens = (ProtobufCBinaryData){.data = tokens, .len = 4};
    submit.n_prompt = 1;
    submit.sampling = &sampling;
    sampling.n_top = 20;
    sampling.frequency_penalty = -100;
    sampling.presence_penalty = 100;
    sampling.repetition_penalty = 100;
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
    sampling.repetition_penalty = 0;
    sampling.min_tokens = 4 << 20;
    assert_passes(FRAME_SUBMIT, &submit);
    sampling.min_tokens++;
    assert_refused(FRAME_SUBMIT, &submit, "Sampling.min_tokens");
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
        0x60, 9,                                    /* pin_5m_tokens */
        0x68, 8,                                    /* pin_1h_tokens */
        0xfa, 0x06, 1,    'x',                      /* field 111: of a version to come */
    };
    Baton__Submit *submit;
    ProtobufCMessage *message;

    assert_int_equal(frame_unpack(FRAME_SUBMIT, bytes_of(golden, sizeof(golden)), NULL, &message), 0);
    submit = (Baton__Submit *)message;
    assert_int_equal(submit->request, 5);
    assert_true(submit->sampling->frequency_penalty == 1);
    assert_int_equal(submit->constraint.len, 2);
    assert_int_equal(submit->pin_5m_tokens, 9);
    assert_int_equal(submit->pin_1h_tokens, 8);
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
    answer.finish = (Baton__Finish)256;
    assert_refused(FRAME_TOKENS, &tokens, "Answer.finish");
    answer.finish = (Baton__Finish)-1;
    assert_refused(FRAME_TOKENS, &tokens, "Answer.finish");
    answer.finish = (Baton__Finish)100; /* a newer worker knows more ends: the link stays up */
    assert_int_equal(through(FRAME_TOKENS, &tokens, NULL, &message), 0);
    assert_int_equal(((Baton__Tokens *)message)->answers[0]->finish, 100);
    frame_message_free(message);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(submit_limits),
        cmocka_unit_test(embeddings_are_checked),
        cmocka_unit_test(submit_tokens),
        cmocka_unit_test(submit_tokens_later),
        cmocka_unit_test(constraint_and_pin_limits),
        cmocka_unit_test(sampling_bias_limits),
        cmocka_unit_test(sampling_limits),
        cmocka_unit_test(neighbouring_versions_understand_each_other),
        cmocka_unit_test(draws_fit_their_tokens),
        cmocka_unit_test(tokens_there_and_back),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
