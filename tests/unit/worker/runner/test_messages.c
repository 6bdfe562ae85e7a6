/* SPDX-License-Identifier: Apache-2.0 */
/* Hand-off messages: packed messages unpack unchanged, and invalid messages of peers are refused. */
#include "tests/unit/check.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "base/err.h"
#include "worker/runner/messages.h"

static struct kvxfer_message heard;
static int taken_rc;

static int take_message(void *arg, enum frame_type type, const ProtobufCMessage *wire)
{
    taken_rc = peer_message_from_wire(type, wire, &heard);
    return taken_rc;
}

static void assert_round_trip(const struct kvxfer_message *said)
{
    memset(&heard, 0, sizeof(heard));
    assert_int_equal(peer_message_send(said, take_message, NULL), 0);
    assert_int_equal(heard.kind, said->kind);
    assert_int_equal(heard.transfer, said->transfer);
    assert_int_equal(heard.n_blocks, said->n_blocks);
    for (uint32_t i = 0; said->blocks != NULL && i < said->n_blocks; i++)
        assert_int_equal(heard.blocks[i], said->blocks[i]);
    assert_int_equal(heard.skip_blocks, said->skip_blocks);
    assert_int_equal(heard.ticket, said->ticket);
    assert_int_equal(heard.transport, said->transport);
    assert_int_equal(heard.router_epoch, said->router_epoch);
    assert_int_equal(heard.request, said->request);
    assert_int_equal(heard.n_tokens, said->n_tokens);
    assert_int_equal(heard.fetch, said->fetch);
    assert_int_equal(heard.n_hashes, said->n_hashes);
    assert_int_equal(heard.tenant, said->tenant);
    for (uint32_t i = 0; i < said->n_hashes; i++)
        assert_true(block_hash_equal(&heard.hashes[i], &said->hashes[i]));
    assert_int_equal(heard.code, said->code);
    assert_int_equal(heard.retry_after_ms, said->retry_after_ms);
    assert_int_equal(heard.from_sender, said->from_sender);
    assert_int_equal(heard.head_tokens, said->head_tokens);
    assert_true(heard.head_layout == said->head_layout);
    assert_int_equal(heard.head_worth_us, said->head_worth_us);
    assert_int_equal(heard.first.id, said->first.id);
    assert_int_equal(heard.first.n_top, said->first.n_top);
    assert_memory_equal(heard.first.top_ids, said->first.top_ids, sizeof(heard.first.top_ids));
    assert_memory_equal(heard.first.top_logprobs, said->first.top_logprobs, sizeof(heard.first.top_logprobs));
    assert_int_equal(heard.is_finished, said->is_finished);
    peer_message_fini(&heard);
}

static void every_message_comes_back(void **state)
{
    static const kv_block_id blocks[] = {7, 8, 9, 3, 100, 101, 2};
    static const struct block_hash hashes[] = {{{1, 2, 3}}, {{4, 5, 6}}};
    const struct kvxfer_message messages[] = {
        {.kind = KVXFER_OFFER, .transfer = 1, .router_epoch = 2, .request = 3, .n_tokens = 65, .n_blocks = 3},
        {.kind = KVXFER_GRANT,
         .transfer = UINT64_MAX,
         .blocks = blocks,
         .n_blocks = 7,
         .skip_blocks = 2,
         .ticket = 99,
         .transport = TR_RDMA},
        {.kind = KVXFER_GRANT, .transfer = 4, .blocks = blocks, .n_blocks = 1, .ticket = 5},
        {.kind = KVXFER_REFUSED, .transfer = 5, .code = E_FULL, .retry_after_ms = 20},
        {.kind = KVXFER_PREFILL_DONE, .transfer = 6, .first = {.id = 12}, .is_finished = true},
        {.kind = KVXFER_PREFILL_DONE,
         .transfer = 6,
         .first = {.id = 12,
                   .logprob = -0.5f,
                   .n_top = 3,
                   .top_ids = {12, 7, 900},
                   .top_logprobs = {-0.5f, -2, -30}}},
        {.kind = KVXFER_DONE, .transfer = 7, .n_tokens = 64},
        {.kind = KVXFER_CANCEL, .transfer = 8, .code = E_PEER, .from_sender = true},
        {.kind = KVXFER_STOPPED, .transfer = 9},
        {.kind = KVXFER_FETCH, .fetch = 10, .hashes = hashes, .n_hashes = 2, .tenant = 77},
        {.kind = KVXFER_FETCH_REFUSED, .fetch = 11, .code = E_NOT_FOUND},
        {.kind = KVXFER_OFFER, .transfer = 12, .fetch = 10, .n_tokens = 64, .n_blocks = 2},
        {.kind = KVXFER_OFFER,
         .n_tokens = 65,
         .n_blocks = 3,
         .head_tokens = 64,
         .head_layout = UINT64_MAX - 1},
        {.kind = KVXFER_GRANT, .blocks = blocks, .n_blocks = 1, .ticket = 5, .head_worth_us = UINT32_MAX},
    };

    for (size_t i = 0; i < sizeof(messages) / sizeof(messages[0]); i++)
        assert_round_trip(&messages[i]);
}

static void absurd_grants_are_refused(void **state)
{
    Baton__Grant grant = BATON__GRANT__INIT;
    Baton__BlockRun runs[2] = {BATON__BLOCK_RUN__INIT, BATON__BLOCK_RUN__INIT};
    Baton__BlockRun *list[2] = {&runs[0], &runs[1]};

    grant.runs = list;
    grant.n_runs = 2;
    runs[0].count = runs[1].count = UINT32_MAX;
    assert_int_equal(take_message(NULL, FRAME_GRANT, &grant.base), E_PROTO);
    runs[0].count = runs[1].count = 0;
    assert_int_equal(take_message(NULL, FRAME_GRANT, &grant.base), 0);
    assert_int_equal(heard.n_blocks, 0);
    peer_message_fini(&heard);
    runs[0].first = UINT32_MAX - 1; /* ids wrap: the receiver chose them, and this end does not use them */
    runs[0].count = 4;
    assert_int_equal(take_message(NULL, FRAME_GRANT, &grant.base), 0);
    assert_int_equal(heard.n_blocks, 4);
    peer_message_fini(&heard);
    assert_int_equal(take_message(NULL, FRAME_SUBMIT, &grant.base), E_PROTO);
}

static void a_report_holds_many_answers(void **state)
{
    struct report *report = report_new(REPORT_ANSWERS, 0);
    token_id ids[5] = {1, 2, 3, 4, 5};

    for (uint32_t i = 0; i < 1000; i++)
        report_answer(report, ids, i % 6)->request = i;
    for (uint32_t i = 0; i < 1000; i++) {
        assert_int_equal(report->answers[i].request, i);
        assert_int_equal(report->answers[i].n_ids, i % 6);
        assert_memory_equal(report->ids + report->answers[i].ids_at, ids, i % 6 * sizeof(ids[0]));
    }
    report_free(report);
    report_free(NULL);
    command_free(NULL);
}

static void a_report_holds_how_tokens_were_drawn(void **state)
{
    struct report *report = report_new(REPORT_ANSWERS, 0);
    struct sample_result draw = {.id = 4,
                                 .logprob = -INFINITY,
                                 .n_top = 2,
                                 .top = {{.id = 4, .logprob = -1}, {.id = 5, .logprob = NAN}}};
    token_id id = 4;

    for (uint32_t i = 0; i < 100; i++) {
        struct task_answer *answer = report_answer(report, &id, 1);

        assert_non_null(answer);
        if (i % 2)
            assert_int_equal(report_draws(report, &draw), 0);
        assert_int_equal(report->answers[i].n_draws, i % 2);
    }
    assert_int_equal(report->n_draws, 50);
    for (uint32_t i = 0; i < 50; i++) { /* values that the wire cannot carry became the nearest that it can */
        assert_true(report->draws[i].logprob == -FLT_MAX);
        assert_true(report->draws[i].top[0].logprob == -1);
        assert_true(report->draws[i].top[1].logprob == -FLT_MAX);
    }
    report_free(report);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_message_comes_back),
        cmocka_unit_test(absurd_grants_are_refused),
        cmocka_unit_test(a_report_holds_many_answers),
        cmocka_unit_test(a_report_holds_how_tokens_were_drawn),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
