/* SPDX-License-Identifier: Apache-2.0 */
/* Links to routers, with a scripted link layer and engine thread: messages that pass, and messages that must not. */
#include "tests/unit/check.h"

#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/err.h"
#include "base/log.h"
#include "worker/loop/worker_priv.h"
#include "worker/loop/spending_priv.h"

struct link {
    const struct link_events *events;
    void *arg, *user;
};

static struct worker worker;
static struct worker_conf conf;
static struct link *dialled;
static struct command *last_command;
static uint32_t n_frames, n_answers, n_all_answers; /* n_answers: of the last frame, singles included */
static uint32_t n_singles;
static struct frame_single first_single;
static size_t most_bytes;
static uint64_t n_vocabulary_bytes, n_vocabulary_turns, last_vocabulary_turn;
static uint64_t first_request;
static int32_t first_error;

/* ---- the scripted peers ---- */

int link_dial(const struct link_opts *opts, const char *address, struct fault *fault, struct link **out)
{
    dialled = calloc(1, sizeof(*dialled));
    dialled->events = opts->events;
    dialled->arg = opts->events_arg;
    *out = dialled;
    return 0;
}

size_t link_queued_bytes(const struct link *link)
{
    return 7;
}

void link_beat(struct link *link)
{
}

static void note_part(const Baton__VocabularyPart *part)
{
    uint64_t turn = ev_loop_turns(worker.loop);

    assert_int_equal(part->offset, n_vocabulary_bytes);
    n_vocabulary_bytes += part->data.len;
    n_vocabulary_turns += turn != last_vocabulary_turn;
    last_vocabulary_turn = turn;
    if (n_vocabulary_bytes == part->total_bytes)
        ev_loop_stop(worker.loop);
}

int link_send(struct link *link, enum frame_type type, const ProtobufCMessage *message)
{
    const Baton__Tokens *tokens = (const Baton__Tokens *)message;

    if (type == FRAME_VOCABULARY_PART)
        note_part((const Baton__VocabularyPart *)message);
    if (type != FRAME_TOKENS)
        return 0;
    size_t n_bytes = protobuf_c_message_get_packed_size(message);
    struct fault fault = {0};
    ProtobufCMessage *back;
    struct buf frame = {0};

    if (frame_pack(type, message, &frame) < 0 ||
        frame_unpack(type, bytes_of(frame.data + FRAME_HEADER_BYTES, frame.len_bytes - FRAME_HEADER_BYTES),
                     &fault, &back) < 0)
        fail_msg("%zu bytes: %s", n_bytes, fault.text);
    frame_message_free(back);
    buf_fini(&frame);
    most_bytes = n_bytes > most_bytes ? n_bytes : most_bytes;
    n_frames++;
    n_singles = (uint32_t)(tokens->singles.len / FRAME_SINGLE_BYTES);
    n_answers = (uint32_t)tokens->n_answers + n_singles;
    n_all_answers += n_answers;
    if (n_singles > 0)
        first_single = frame_single_unpack(tokens->singles.data);
    first_request = tokens->n_answers > 0 ? tokens->answers[0]->request : first_single.request;
    first_error = tokens->n_answers > 0 ? tokens->answers[0]->error : 0;
    return 0;
}

int worker_engine_send(struct worker_engine *engine, struct command *command)
{
    command_free(last_command);
    last_command = command;
    return 0;
}

uint32_t worker_peer_for(struct worker *self, const Baton__Peer *peer)
{
    return PEER_NONE;
}

bool worker_peers_have_room(const struct worker *self)
{
    return true;
}

/* ---- the tests ---- */

static int hello(uint64_t epoch)
{
    Baton__Hello message = BATON__HELLO__INIT;
    struct fault fault = {0};

    message.role = BATON__ROLE__ROLE_ROUTER;
    message.node = (char *)"r";
    message.epoch = epoch;
    return dialled->events->on_hello(dialled->arg, dialled, &message.base, &fault);
}

static int submit(const uint32_t *tokens, size_t len_bytes, uint32_t n_prompt)
{
    Baton__Submit message = BATON__SUBMIT__INIT;
    uint32_t before = n_frames;

    message.request = 9;
    message.tokens.data = (uint8_t *)tokens;
    message.tokens.len = len_bytes;
    message.n_prompt = n_prompt;
    assert_int_equal(dialled->events->on_message(dialled->arg, dialled, FRAME_SUBMIT, &message.base), 0);
    return n_frames > before ? first_error : 0;
}

static int open_worker(void **state)
{
    static char *addresses[1];
    struct fault fault = {0};

    log_set_level(LOG_LEVEL_ERROR);
    memset(&worker, 0, sizeof(worker));
    addresses[0] = strdup("127.0.0.1:1");
    conf.routers = (struct config_list){.items = addresses, .n = 1};
    worker.conf = &conf;
    if (ev_loop_new(&worker.loop) < 0 || metrics_new(&worker.metrics) < 0 || worker_tails_open(&worker) < 0 ||
        worker_notices_open(&worker) < 0)
        return -1;
    worker.router_link_opts.events_arg = &worker;
    n_frames = n_all_answers = 0;
    most_bytes = 0;
    last_command = NULL;
    if (worker_routers_open(&worker, &fault) < 0)
        return -1;
    memset(addresses[0], 'x', strlen(addresses[0])); /* a reload frees the configured text */
    free(addresses[0]);
    return hello(5);
}

static int close_worker(void **state)
{
    worker_routers_close(&worker);
    worker_tails_close(&worker);
    worker_notices_close(&worker);
    metrics_free(worker.metrics);
    ev_loop_free(worker.loop);
    command_free(last_command);
    return 0;
}

static void addresses_outlive_the_configuration(void **state)
{
    assert_string_equal(worker.routers[0].address, "127.0.0.1:1");
    assert_int_equal(worker_routers_queued_bytes(&worker), 7);
}

static void answers_for_a_former_life_stay_here(void **state)
{
    struct report *report = report_new(REPORT_ANSWERS, 0);
    token_id id = 1;

    report_answer(report, &id, 1)->request = 1;
    report_answer(report, &id, 1)->request = 2;
    report->answers[0].router_epoch = 4; /* submitted before the router restarted */
    report->answers[1].router_epoch = 5;
    worker_routers_answers(&worker, report);
    assert_int_equal(n_answers, 1);
    assert_int_equal(first_request, 2);
    report->answers[1].router_epoch = 4;
    worker_routers_answers(&worker, report);
    assert_int_equal(n_frames, 1);
    report_free(report);
}

static struct task_answer *add_answer(struct report *report, uint64_t request, uint32_t index, token_id id)
{
    struct task_answer *answer = report_answer(report, &id, 1);

    answer->router_epoch = 5;
    answer->request = request;
    answer->first_index = index;
    return answer;
}

/* Sent as a record it would, because the router reads records first. */
static void a_single_token_does_not_overtake_its_own_request(void **state)
{
    struct report *report = report_new(REPORT_ANSWERS, 0);

    add_answer(report, 1, 0, 7)->is_accepted = true;
    add_answer(report, 2, 41, 8);
    add_answer(report, 1, 1, 9);
    add_answer(report, 3, 5, 10)->finish = BATON__FINISH__FINISH_STOP;
    worker_routers_answers(&worker, report);
    assert_int_equal(n_frames, 1);
    assert_int_equal(n_answers, 4);
    assert_int_equal(n_singles, 1);
    assert_int_equal(first_single.request, 2);
    assert_int_equal(first_single.index, 41);
    assert_int_equal(first_single.id, 8);
    report_free(report);
}

static void many_single_tokens_go_in_several_frames(void **state)
{
    struct report *report = report_new(REPORT_ANSWERS, 0);

    for (uint32_t i = 0; i < 100000; i++)
        add_answer(report, i % 1000, i / 1000, i);
    worker_routers_answers(&worker, report);
    assert_int_equal(n_all_answers, 100000);
    assert_int_equal(n_frames, 13);
    assert_int_equal(n_singles, 100000 - 12 * 8192);
    assert_int_equal(first_single.id, 12 * 8192);
    report_free(report);
}

/* A report of many steps with all options is more than fits a frame. */
static void many_events_go_in_several_frames(void **state)
{
    struct report *report = report_new(REPORT_ANSWERS, 0);
    struct sample_result draw = {.id = 70000, .logprob = -3.25f, .n_top = SAMPLE_MAX_TOP};

    for (uint32_t k = 0; k < SAMPLE_MAX_TOP; k++)
        draw.top[k] = (struct sample_top){.id = 4000000000u - k, .logprob = -1.5f * (float)k};
    for (uint32_t i = 0; i < 10000; i++) {
        struct task_answer *answer = report_answer(report, &draw.id, 1);

        answer->router_epoch = i % 100 == 7 ? 4 : 5;
        answer->request = UINT64_MAX - i;
        answer->has_serving = i % 10 == 0;
        assert_int_equal(report_draws(report, &draw), 0);
    }
    worker_routers_answers(&worker, report);
    assert_int_equal(n_all_answers, 9900);
    assert_in_range(n_frames, 16, 48);
    assert_true(most_bytes < (192 << 10));
    report_free(report);
}

/* As many tokens as the bytes hold, in any width; excess bytes are refused. */
static void tokens_of_any_width_arrive(void **state)
{
    static const uint8_t packed[12] = {1, 0, 2, 0, 3, 0, 0, 1, 5, 0, 255, 255};
    static const struct {
        uint32_t token_bytes, n, ids[6];
    } good[] = {{0, 3, {0x20001, 0x01000003, 0xffff0005}},
                {2, 6, {1, 2, 3, 256, 5, 65535}},
                {3, 4, {0x20001, 0x000300, 0x050100, 0xffff00}},
                {4, 3, {0x20001, 0x01000003, 0xffff0005}}};
    Baton__Submit message = BATON__SUBMIT__INIT;

    message.tokens = (ProtobufCBinaryData){.data = (uint8_t *)packed, .len = sizeof(packed)};
    message.n_prompt = 2;
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        message.token_bytes = good[i].token_bytes;
        assert_int_equal(dialled->events->on_message(dialled->arg, dialled, FRAME_SUBMIT, &message.base), 0);
        assert_int_equal(last_command->as.submit.order.n_tokens, good[i].n);
        assert_memory_equal(last_command->as.submit.order.tokens, good[i].ids, 4 * good[i].n);
    }
    assert_int_equal(n_frames, 0); /* nothing was refused */
    message.token_bytes = 5;
    assert_int_equal(dialled->events->on_message(dialled->arg, dialled, FRAME_SUBMIT, &message.base), 0);
    message.token_bytes = 3;
    message.tokens.len = 11;
    assert_int_equal(dialled->events->on_message(dialled->arg, dialled, FRAME_SUBMIT, &message.base), 0);
    assert_int_equal(n_frames, 2);
}

/* ---- prompts in pieces ---- */

static void submit_begun(uint64_t request, uint32_t n_later)
{
    static const uint32_t tokens[2] = {70000, 70001};
    Baton__Submit message = BATON__SUBMIT__INIT;

    message.request = request;
    message.tokens = (ProtobufCBinaryData){.data = (uint8_t *)tokens, .len = sizeof(tokens)};
    message.n_prompt = 2 + n_later;
    message.n_tokens_later = n_later;
    assert_int_equal(dialled->events->on_message(dialled->arg, dialled, FRAME_SUBMIT, &message.base), 0);
}

static void submit_more(uint64_t request, uint32_t n)
{
    static const uint16_t tokens[4] = {1, 2, 3, 4};
    Baton__SubmitTokens message = BATON__SUBMIT_TOKENS__INIT;

    message.request = request;
    message.tokens = (ProtobufCBinaryData){.data = (uint8_t *)tokens, .len = 2 * n};
    message.token_bytes = 2;
    assert_int_equal(dialled->events->on_message(dialled->arg, dialled, FRAME_SUBMIT_TOKENS, &message.base),
                     0);
}

static void send_word(enum frame_type type, uint64_t request)
{
    Baton__Cancel cancel = BATON__CANCEL__INIT;
    Baton__Proceed proceed = BATON__PROCEED__INIT;

    cancel.request = proceed.request = request;
    assert_int_equal(dialled->events->on_message(dialled->arg, dialled, type,
                                                 type == FRAME_CANCEL ? &cancel.base : &proceed.base),
                     0);
}

static void a_prompt_in_pieces_is_one_command(void **state)
{
    static const uint32_t all[7] = {70000, 70001, 1, 2, 3, 4, 1};

    submit_begun(9, 5);
    submit_begun(10, 4);
    submit_more(9, 4);
    assert_null(last_command);
    submit_more(9, 1);
    assert_int_equal(last_command->kind, COMMAND_SUBMIT);
    assert_int_equal(last_command->as.submit.key.request, 9);
    assert_int_equal(last_command->as.submit.order.n_tokens, 7);
    assert_memory_equal(last_command->as.submit.order.tokens, all, sizeof(all));
    submit_more(10, 4);
    assert_int_equal(last_command->as.submit.key.request, 10);
    assert_int_equal(n_frames, 0); /* nothing was refused */
}

/* The engine thread does not know the request before its last piece. */
static void messages_before_the_last_piece_are_not_lost(void **state)
{
    submit_begun(9, 4);
    send_word(FRAME_PROCEED, 9);
    assert_null(last_command);
    submit_more(9, 4);
    assert_int_equal(last_command->kind, COMMAND_PROCEED); /* after the SUBMIT */
    assert_int_equal(last_command->key.request, 9);

    command_free(last_command);
    last_command = NULL;
    submit_begun(11, 4);
    send_word(FRAME_CANCEL, 11);
    submit_more(11, 4);
    assert_null(last_command);
    send_word(FRAME_CANCEL, 11); /* of another request */
    assert_int_equal(last_command->kind, COMMAND_CANCEL);
    assert_int_equal(n_frames, 0);
}

static void bad_pieces_end_their_request(void **state)
{
    submit_begun(9, 3);
    submit_more(9, 4); /* more than announced */
    assert_int_equal(first_error, E_PROTO);
    assert_int_equal(first_request, 9);
    submit_more(9, 1); /* no longer known */
    submit_more(77, 1);
    assert_int_equal(n_frames, 1);
    for (uint64_t i = 0; i < 64; i++)
        submit_begun(100 + i, 3);
    assert_int_equal(n_frames, 1);
    submit_begun(200, 3); /* one too many */
    assert_int_equal(first_error, E_OVERLOADED);
    assert_int_equal(first_request, 200);
    assert_null(last_command);
}

static void pieces_of_a_router_that_went_are_freed(void **state)
{
    struct fault why = {.code = E_CLOSED};

    submit_begun(9, 4);
    dialled->events->on_down(dialled->arg, dialled, &why);
    assert_int_equal(worker.routers[0].n_parts, 0);
    assert_int_equal(hello(6), 0);
    command_free(last_command);
    last_command = NULL;
    submit_more(9, 4);
    assert_null(last_command);
}

static void sampling_fields_arrive(void **state)
{
    Baton__Submit message = BATON__SUBMIT__INIT;
    Baton__Sampling sampling = BATON__SAMPLING__INIT;
    const struct sample_opts *sample;
    const struct work_order *order;
    uint32_t tokens[3] = {1, 2, 3}, ids[2] = {4, 9};
    float bias[2] = {-100, 0.5f};

    message.tokens = (ProtobufCBinaryData){.data = (uint8_t *)tokens, .len = 12};
    message.n_prompt = 3;
    message.sampling = &sampling;
    message.constraint = (ProtobufCBinaryData){.data = (uint8_t *)"{}", .len = 2};
    message.pin_5m_tokens = 2;
    message.pin_1h_tokens = 1;
    sampling.wants_logprob = true;
    sampling.n_top = 7;
    sampling.frequency_penalty = 0.25f;
    sampling.presence_penalty = -0.5f;
    sampling.repetition_penalty = 1.5f;
    sampling.bias_ids = ids;
    sampling.bias = bias;
    sampling.n_bias = sampling.n_bias_ids = 2;
    assert_int_equal(dialled->events->on_message(dialled->arg, dialled, FRAME_SUBMIT, &message.base), 0);
    order = &last_command->as.submit.order;
    sample = &order->work.sample;
    assert_true(sample->wants_logprob && sample->n_top == 7 && sample->n_bias == 2);
    assert_true(sample->frequency_penalty == 0.25f && sample->presence_penalty == -0.5f);
    assert_true(sample->repetition_penalty == 1.5f);
    assert_int_equal(sample->bias[1].id, 9);
    assert_true(sample->bias[1].bias == 0.5f);
    assert_true(bytes_is(buf_view(&order->constraint), "{}"));
    assert_int_equal(order->work.pin_tokens[WORK_PIN_5M], 2);
    assert_int_equal(order->work.pin_tokens[WORK_PIN_1H], 1);
}

static void a_new_life_ends_what_the_old_one_asked_for(void **state)
{
    dialled->events->on_up(dialled->arg, dialled);
    assert_non_null(last_command);
    assert_int_equal(last_command->kind, COMMAND_ROUTER_DOWN);
    assert_int_equal(last_command->key.router_epoch, 5);
}

static void a_router_has_an_epoch(void **state)
{
    assert_int_equal(hello(0), E_PROTO); /* 0 names the worker's own requests */
}

static void absurd_submits_are_refused(void **state)
{
    static const uint32_t tokens[3] = {1, 2, 3};

    assert_int_equal(submit(tokens, 0, 0), E_PROTO);
    assert_int_equal(submit(tokens, 11, 2), E_PROTO);
    assert_int_equal(submit(tokens, 12, 4), E_PROTO);
    assert_int_equal(submit(tokens, 12, 3), 0);
    assert_int_equal(last_command->as.submit.order.n_tokens, 3);
    assert_int_equal(submit(tokens, 12, 2), 0);
}

static void a_vocabulary_goes_in_parts_one_a_turn(void **state)
{
    static uint8_t vocabulary[(1 << 20) + 1];
    Baton__VocabularyWanted wanted = BATON__VOCABULARY_WANTED__INIT;

    n_vocabulary_bytes = n_vocabulary_turns = 0;
    last_vocabulary_turn = UINT64_MAX;
    worker.vocabulary = (struct buf){.data = vocabulary, .len_bytes = sizeof(vocabulary)};
    assert_int_equal(
        dialled->events->on_message(dialled->arg, dialled, FRAME_VOCABULARY_WANTED, &wanted.base), 0);
    assert_int_equal(n_vocabulary_bytes, 0);
    assert_int_equal(ev_loop_run(worker.loop), 0);
    assert_int_equal(n_vocabulary_bytes, sizeof(vocabulary));
    assert_int_equal(n_vocabulary_turns, 5);
}

static void a_message_of_no_use_here_is_ignored(void **state)
{
    Baton__Offer offer = BATON__OFFER__INIT;
    const struct command *before = last_command;

    assert_int_equal(dialled->events->on_message(dialled->arg, dialled, FRAME_OFFER, &offer.base), 0);
    assert_ptr_equal(last_command, before);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, open_worker, close_worker)
    static const struct CMUnitTest tests[] = {
        T(addresses_outlive_the_configuration),
        T(answers_for_a_former_life_stay_here),
        T(a_single_token_does_not_overtake_its_own_request),
        T(many_single_tokens_go_in_several_frames),
        T(many_events_go_in_several_frames),
        T(tokens_of_any_width_arrive),
        T(a_prompt_in_pieces_is_one_command),
        T(messages_before_the_last_piece_are_not_lost),
        T(bad_pieces_end_their_request),
        T(pieces_of_a_router_that_went_are_freed),
        T(sampling_fields_arrive),
        T(a_new_life_ends_what_the_old_one_asked_for),
        T(a_router_has_an_epoch),
        T(absurd_submits_are_refused),
        T(a_vocabulary_goes_in_parts_one_a_turn),
        T(a_message_of_no_use_here_is_ignored),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
