/* SPDX-License-Identifier: Apache-2.0 */
/* How a choice ends: its answer goes to the answer cache and its serving stats are added to the request's.
 * The last choice answers the request.
 *
 *     a stop in its text --> choice_finish_early --> withdrawn from the backend --> choice_finish
 *     the backend's on_end -----------------------> choice_remember ---------------> choice_finish
 *
 * The end of a choice does not affect the others.  Choices that wait for room are submitted again. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "serve/endpoint/handle.h"
#include "serve/endpoint/output_priv.h"

/* ---- serving stats ---- */

static uint64_t later_of(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static void add_serving(const struct gen_serving *one, struct gen_serving *sum)
{
#define ADD(type, member, field)   sum->member += one->member;
#define LATER(type, member, field) sum->member = later_of(sum->member, one->member);
    GEN_SERVING_COUNTS(ADD)
    GEN_SERVING_TIMES(LATER)
#undef ADD
#undef LATER
    sum->n_redispatched += one->n_redispatched;
    if (sum->prefill_worker[0] == '\0')
        memcpy(sum->prefill_worker, one->prefill_worker, sizeof(sum->prefill_worker));
    if (sum->decode_worker[0] == '\0')
        memcpy(sum->decode_worker, one->decode_worker, sizeof(sum->decode_worker));
    if (sum->transport[0] == '\0')
        memcpy(sum->transport, one->transport, sizeof(sum->transport));
    if (sum->class_name[0] == '\0')
        memcpy(sum->class_name, one->class_name, sizeof(sum->class_name));
}

void choices_sum_serving(struct request *request)
{
    struct gen_serving sum = {0};

    for (uint32_t i = 0; i < request->n_choices; i++) {
        const struct choice *choice = &request->choices[i];

        add_serving(&choice->serving, &sum);
        if (choice->state != CHOICE_WAITING)
            sum.prompt_tokens += (uint32_t)choice->prompt->ids.n;
    }
    sum.drawn_tokens = request->n_output;
    sum.ttft_ns = request->first_ns > 0 ? request->first_ns - request->received_ns : 0;
    sum.total_ns = clock_now_ns() - request->received_ns;
    request->serving = sum;
}

/* ---- answer cache and conversations ---- */

/* Keeps the conversation for a request that continues it.
 * An answer that a limit cut cannot be continued. */
static void keep_conversation(struct request *request, const struct cached_answer *answer, enum gen_stop why)
{
    struct buf *text = &request->gen.history;
    struct gen_block *blocks;
    size_t n = 0;

    if (text->len_bytes == 0 || request->front->conversations == NULL || why == GEN_STOP_MAX_TOKENS ||
        why == GEN_STOP_CONTEXT)
        return;
    blocks = calloc(answer->n_blocks + 1, sizeof(*blocks));
    if (blocks == NULL)
        return;
    if (answer->thinking.len_bytes > 0)
        blocks[n++] = (struct gen_block){.kind = GEN_THINKING, .text = answer->thinking};
    memcpy(blocks + n, answer->blocks, answer->n_blocks * sizeof(*blocks));
    api_put_thread(text, blocks, n + answer->n_blocks);
    free(blocks);
    if (text->is_bad || text->len_bytes > API_MAX_KEPT_BYTES)
        return;
    shared_keep_thread(request, buf_view(text));
    conversations_put(request->front->conversations, request->message_id, request->owner, text,
                      clock_now_ns());
}

void choice_remember(struct choice *choice, enum gen_stop why, bool is_early)
{
    struct request *request = choice->request;
    const struct transcript_end end = {.model = request->model,
                                       .prompt = choice->prompt,
                                       .prefill = request->gen.prefill,
                                       .answer = choice->answer,
                                       .stop = why,
                                       .is_early = is_early,
                                       .has_other_prompt = request->resume.has_other_prompt};
    struct cached_answer *answer;
    struct gen_message message;
    struct answer_key key;

    if (choice->transcript == NULL || transcript_finish(choice->transcript, &end, &answer) < 0)
        return;
    keep_conversation(request, answer, why);
    message =
        (struct gen_message){.role = GEN_ASSISTANT, .blocks = answer->blocks, .n_blocks = answer->n_blocks};
    if (answer->is_keyless || replay_key_of(&request->replay, &message, &key) < 0) {
        cached_answer_unref(answer);
        return;
    }
    replay_key_for(&key, request->owner, request->model->fingerprint, &key);
    shared_keep_answer(request, &key, answer);
    answer_cache_put(request->front->answer_cache, &key, answer);
}

/* ---- the end ---- */

/* When the answer ended.  The worker keeps the time with the tail, so a stream that is resumed has it too. */
static uint64_t choice_ended_unix_s(const struct choice *choice)
{
    uint64_t ended_s = choice->serving.ended_unix_s, began_s = choice->request->created_unix_s;

    if (ended_s == 0)
        return clock_unix_ns() / NS_PER_S;
    return ended_s > began_s ? ended_s : began_s; /* two clocks */
}

void choice_finish(struct choice *choice, enum gen_stop why, struct bytes stop_sequence)
{
    struct request *request = choice->request;

    if (choice->has_logprobs)
        logprobs_end_text(choice->logprobs);
    if (choice->has_stop_score) /* without memory the answer lacks this logprob */
        (void)logprobs_push_prompt(choice->logprobs, &choice->stop_score, false);
    choice->state = CHOICE_OVER;
    choice->stop = why;
    choice->stop_sequence = stop_sequence;
    request->n_over++;
    request->usage.thinking_tokens += answer_thinking_tokens(choice->answer);
    if (request->n_over == request->n_choices) {
        request->completed_unix_s = choice_ended_unix_s(choice);
        request->usage.output_tokens = request->n_output;
        choices_sum_serving(request);
        output_end_choice(choice);
        if (request->dialect->finish != NULL)
            request->dialect->finish(request);
        else
            request_finish(request);
        return;
    }
    output_end_choice(choice);
    if (request->n_waiting > 0)
        ev_timer_start(request->later, 0);
}

void choice_finish_early(struct choice *choice)
{
    enum gen_stop why = answer_stop(choice->answer);
    const struct gen_request *gen = &choice->request->gen;

    choice_remember(choice, why, true);
    if (choice->handle != NULL) {
        choice->handle->is_complete = true;
        if (choice->handle->ended_unix_s == 0)
            choice->handle->ended_unix_s = clock_unix_ns() / NS_PER_S;
    }
    choice_withdraw(choice);
    choice_finish(choice, why,
                  why == GEN_STOP_SEQUENCE ? gen->stop_sequences[answer_stop_index(choice->answer)]
                                           : bytes_of(NULL, 0));
}
