/* SPDX-License-Identifier: Apache-2.0 */
/* Commands and reports, and the conversion between a hand-off's wire messages and structs. */
#include "worker/runner/messages.h"

#include <float.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/str.h"

#define GRANT_MAX_BLOCKS (1u << 20)

struct command *command_new(enum command_kind kind, uint32_t number)
{
    struct command *command = calloc(1, sizeof(*command));

    if (command != NULL) {
        command->kind = kind;
        command->number = number;
    }
    return command;
}

void command_free(struct command *command)
{
    if (command == NULL)
        return;
    if (command->kind == COMMAND_SUBMIT)
        work_order_fini(&command->as.submit.order);
    if (command->kind == COMMAND_GRAMMAR)
        grammar_unref(command->as.compiled.grammar);
    if (command->kind == COMMAND_BLOCKS_LAST)
        free(command->as.last.hashes);
    if (command->kind == COMMAND_PEER_MESSAGE)
        peer_message_fini(&command->as.peer);
    if (command->kind == COMMAND_PEER_BLOCKS)
        free(command->as.blocks);
    free(command);
}

struct report *report_new(enum report_kind kind, uint32_t number)
{
    struct report *report = calloc(1, sizeof(*report));

    if (report != NULL) {
        report->kind = kind;
        report->number = number;
    }
    return report;
}

void report_free(struct report *report)
{
    if (report == NULL)
        return;
    for (uint32_t i = 0; i < report->n_answers; i++) {
        free(report->answers[i].error_text);
        free(report->answers[i].times);
    }
    free(report->answers);
    free(report->ids);
    free(report->draws);
    free(report->embeddings);
    peer_message_fini(&report->peer);
    buf_fini(&report->constraint);
    free(report->events);
    free(report);
}

static bool messages_grow(void **items, uint32_t *cap, uint32_t want, size_t item_bytes)
{
    uint32_t bigger = *cap ? *cap * 2 : 16;
    void *grown;

    if (want <= *cap)
        return true;
    while (bigger < want)
        bigger *= 2;
    grown = realloc(*items, bigger * item_bytes);
    if (grown == NULL)
        return false;
    *items = grown;
    *cap = bigger;
    return true;
}

struct task_answer *report_answer(struct report *report, const token_id *ids, uint32_t n_ids)
{
    struct task_answer *answer;

    if (!messages_grow((void **)&report->answers, &report->cap_answers, report->n_answers + 1,
                       sizeof(*report->answers)) ||
        !messages_grow((void **)&report->ids, &report->cap_ids, report->n_ids + n_ids, sizeof(*report->ids)))
        return NULL;
    answer = &report->answers[report->n_answers++];
    memset(answer, 0, sizeof(*answer));
    answer->ids_at = report->n_ids;
    answer->n_ids = n_ids;
    if (n_ids > 0)
        memcpy(report->ids + report->n_ids, ids, n_ids * sizeof(*ids));
    report->n_ids += n_ids;
    return answer;
}

static float messages_sayable(float logprob)
{
    return logprob >= -FLT_MAX && logprob <= FLT_MAX ? logprob : -FLT_MAX;
}

int report_draws(struct report *report, const struct sample_result *draws)
{
    struct task_answer *answer = &report->answers[report->n_answers - 1];

    if (!messages_grow((void **)&report->draws, &report->cap_draws, report->n_draws + answer->n_ids,
                       sizeof(*report->draws)))
        return E_NOMEM;
    answer->draws_at = report->n_draws;
    answer->n_draws = answer->n_ids;
    for (uint32_t i = 0; i < answer->n_ids; i++) {
        struct sample_result *draw = &report->draws[report->n_draws++];

        *draw = draws[i];
        draw->logprob = messages_sayable(draw->logprob);
        for (uint32_t k = 0; k < draw->n_top; k++)
            draw->top[k].logprob = messages_sayable(draw->top[k].logprob);
    }
    return 0;
}

int report_embedding(struct report *report, const float *embedding, uint32_t n_dims)
{
    struct task_answer *answer = &report->answers[report->n_answers - 1];

    if (!messages_grow((void **)&report->embeddings, &report->cap_embeddings, report->n_embeddings + n_dims,
                       sizeof(*report->embeddings)))
        return E_NOMEM;
    answer->embedding_at = report->n_embeddings;
    answer->n_embedding = n_dims;
    memcpy(report->embeddings + report->n_embeddings, embedding, n_dims * sizeof(*embedding));
    report->n_embeddings += n_dims;
    return 0;
}

void peer_message_fini(struct kvxfer_message *message)
{
    free((kv_block_id *)message->blocks);
    free((struct block_hash *)message->hashes);
    message->blocks = NULL;
    message->hashes = NULL;
}

/* ---- from the wire ---- */

/* An unknown name counts as TCP, which every worker has: a newer worker may know more transports. */
static enum tr_kind transport_of(const char *name)
{
#define X(kind, text, socket)                                                                                \
    if (strcmp(name, #text) == 0)                                                                            \
        return TR_##kind;
    TR_KINDS(X)
#undef X
    return TR_TCP;
}

static int read_grant(const Baton__Grant *grant, struct kvxfer_message *out)
{
    kv_block_id *blocks;
    uint64_t n = 0;
    uint32_t at = 0;

    for (size_t i = 0; i < grant->n_runs; i++)
        n += grant->runs[i]->count;
    if (n > GRANT_MAX_BLOCKS)
        return E_PROTO;
    blocks = calloc(n ? n : 1, sizeof(*blocks));
    if (blocks == NULL)
        return E_NOMEM;
    for (size_t i = 0; i < grant->n_runs; i++)
        for (uint32_t k = 0; k < grant->runs[i]->count; k++)
            blocks[at++] = grant->runs[i]->first + k;
    *out = (struct kvxfer_message){.kind = KVXFER_GRANT,
                                   .transfer = grant->transfer,
                                   .blocks = blocks,
                                   .n_blocks = at,
                                   .skip_blocks = grant->skip_blocks,
                                   .ticket = grant->ticket,
                                   .transport = transport_of(grant->transport),
                                   .head_worth_us = grant->head_worth_us};
    return 0;
}

/* Copies the hashes, because those of the wire message are unaligned and freed with the frame. */
static int read_fetch(const Baton__Ask *ask, struct kvxfer_message *out)
{
    struct block_hash *hashes = malloc(ask->hashes.len ? ask->hashes.len : 1);

    if (hashes == NULL)
        return E_NOMEM;
    memcpy(hashes, ask->hashes.data, ask->hashes.len);
    *out = (struct kvxfer_message){.kind = KVXFER_FETCH,
                                   .fetch = ask->ask,
                                   .tenant = ask->tenant,
                                   .hashes = hashes,
                                   .n_hashes = (uint32_t)(ask->hashes.len / sizeof(*hashes))};
    return 0;
}

static struct kvxfer_message read_offer(const Baton__Offer *offer)
{
    return (struct kvxfer_message){.kind = KVXFER_OFFER,
                                   .transfer = offer->transfer,
                                   .router_epoch = offer->router_epoch,
                                   .request = offer->request,
                                   .fetch = offer->ask,
                                   .n_tokens = offer->n_tokens,
                                   .n_blocks = offer->n_blocks,
                                   .head_tokens = offer->head_tokens,
                                   .head_layout = offer->head_layout};
}

static struct kvxfer_message read_refused(const Baton__GrantRefused *refused)
{
    return (struct kvxfer_message){.kind = KVXFER_REFUSED,
                                   .transfer = refused->transfer,
                                   .code = refused->code,
                                   .retry_after_ms = refused->retry_after_ms};
}

static struct kvxfer_message read_prefill_done(const Baton__PrefillDone *done)
{
    struct kvxfer_message message = {.kind = KVXFER_PREFILL_DONE,
                                     .transfer = done->transfer,
                                     .first = {.id = done->first_token, .logprob = done->logprob},
                                     .is_finished = done->is_finished};
    size_t n_top = done->n_top_ids < done->n_top_logprobs ? done->n_top_ids : done->n_top_logprobs;

    for (size_t i = 0; i < n_top && i < KVXFER_MAX_TOP; i++) {
        message.first.top_ids[i] = done->top_ids[i];
        message.first.top_logprobs[i] = done->top_logprobs[i];
        message.first.n_top++;
    }
    return message;
}

int peer_message_from_wire(enum frame_type type, const ProtobufCMessage *message, struct kvxfer_message *out)
{
    const Baton__TransferDone *done = (const Baton__TransferDone *)message;
    const Baton__TransferCancel *cancel = (const Baton__TransferCancel *)message;
    const Baton__TransferStopped *stopped = (const Baton__TransferStopped *)message;

    switch (type) {
    case FRAME_OFFER:
        *out = read_offer((const Baton__Offer *)message);
        return 0;
    case FRAME_GRANT:
        return read_grant((const Baton__Grant *)message, out);
    case FRAME_GRANT_REFUSED:
        *out = read_refused((const Baton__GrantRefused *)message);
        return 0;
    case FRAME_PREFILL_DONE:
        *out = read_prefill_done((const Baton__PrefillDone *)message);
        return 0;
    case FRAME_TRANSFER_DONE:
        *out = (struct kvxfer_message){
            .kind = KVXFER_DONE, .transfer = done->transfer, .n_tokens = done->n_tokens};
        return 0;
    case FRAME_TRANSFER_CANCEL:
        *out = (struct kvxfer_message){.kind = KVXFER_CANCEL,
                                       .transfer = cancel->transfer,
                                       .code = cancel->code,
                                       .from_sender = cancel->from_sender};
        return 0;
    case FRAME_TRANSFER_STOPPED:
        *out = (struct kvxfer_message){
            .kind = KVXFER_STOPPED, .transfer = stopped->transfer, .from_sender = stopped->from_sender};
        return 0;
    case FRAME_ASK:
        return read_fetch((const Baton__Ask *)message, out);
    case FRAME_ASK_REFUSED:
        *out = (struct kvxfer_message){.kind = KVXFER_FETCH_REFUSED,
                                       .fetch = ((const Baton__AskRefused *)message)->ask,
                                       .code = ((const Baton__AskRefused *)message)->code};
        return 0;
    default:
        return E_PROTO;
    }
}

/* ---- to the wire ---- */

typedef int (*wire_send)(void *arg, enum frame_type type, const ProtobufCMessage *wire);

/* Adjacent block ids travel as runs. */
static size_t make_runs(const struct kvxfer_message *message, Baton__BlockRun *runs,
                        Baton__BlockRun **pointers)
{
    size_t n = 0;

    for (uint32_t i = 0; i < message->n_blocks; i++) {
        if (n > 0 && runs[n - 1].first + runs[n - 1].count == message->blocks[i]) {
            runs[n - 1].count++;
            continue;
        }
        baton__block_run__init(&runs[n]);
        runs[n].first = message->blocks[i];
        runs[n].count = 1;
        pointers[n] = &runs[n];
        n++;
    }
    return n;
}

static int send_grant(const struct kvxfer_message *message, wire_send send, void *arg)
{
    Baton__Grant grant = BATON__GRANT__INIT;
    Baton__BlockRun *runs = calloc(message->n_blocks + 1, sizeof(*runs));
    Baton__BlockRun **pointers = calloc(message->n_blocks + 1, sizeof(*pointers));
    int rc = E_NOMEM;

    if (runs != NULL && pointers != NULL) {
        grant.n_runs = make_runs(message, runs, pointers);
        grant.runs = pointers;
        grant.transfer = message->transfer;
        grant.skip_blocks = message->skip_blocks;
        grant.ticket = message->ticket;
        grant.head_worth_us = message->head_worth_us;
        grant.transport = (char *)(uintptr_t)worker_transport_name(message->transport);
        rc = send(arg, FRAME_GRANT, &grant.base);
    }
    free(runs);
    free(pointers);
    return rc;
}

static int messages_send_offer(const struct kvxfer_message *message, wire_send send, void *arg)
{
    Baton__Offer offer = BATON__OFFER__INIT;

    offer.transfer = message->transfer;
    offer.router_epoch = message->router_epoch;
    offer.request = message->request;
    offer.n_tokens = message->n_tokens;
    offer.n_blocks = message->n_blocks;
    offer.ask = message->fetch;
    offer.head_tokens = message->head_tokens;
    offer.head_layout = message->head_layout;
    return send(arg, FRAME_OFFER, &offer.base);
}

static int send_refused(const struct kvxfer_message *message, wire_send send, void *arg)
{
    Baton__GrantRefused refused = BATON__GRANT_REFUSED__INIT;

    refused.transfer = message->transfer;
    refused.code = message->code;
    refused.retry_after_ms = message->retry_after_ms;
    return send(arg, FRAME_GRANT_REFUSED, &refused.base);
}

static int send_prefill_done(const struct kvxfer_message *message, wire_send send, void *arg)
{
    Baton__PrefillDone done = BATON__PREFILL_DONE__INIT;
    struct kvxfer_first first = message->first;

    for (uint32_t i = 0; i < first.n_top; i++)
        first.top_logprobs[i] = messages_sayable(first.top_logprobs[i]);
    done.transfer = message->transfer;
    done.first_token = first.id;
    done.logprob = messages_sayable(first.logprob);
    done.top_ids = first.top_ids;
    done.top_logprobs = first.top_logprobs;
    done.n_top_ids = done.n_top_logprobs = first.n_top;
    done.is_finished = message->is_finished;
    return send(arg, FRAME_PREFILL_DONE, &done.base);
}

static int send_done(const struct kvxfer_message *message, wire_send send, void *arg)
{
    Baton__TransferDone done = BATON__TRANSFER_DONE__INIT;

    done.transfer = message->transfer;
    done.n_tokens = message->n_tokens;
    return send(arg, FRAME_TRANSFER_DONE, &done.base);
}

static int send_cancel(const struct kvxfer_message *message, wire_send send, void *arg)
{
    Baton__TransferCancel cancel = BATON__TRANSFER_CANCEL__INIT;
    Baton__TransferStopped stopped = BATON__TRANSFER_STOPPED__INIT;

    cancel.transfer = stopped.transfer = message->transfer;
    cancel.from_sender = stopped.from_sender = message->from_sender;
    cancel.code = message->code;
    if (message->kind == KVXFER_CANCEL)
        return send(arg, FRAME_TRANSFER_CANCEL, &cancel.base);
    return send(arg, FRAME_TRANSFER_STOPPED, &stopped.base);
}

static int send_fetch(const struct kvxfer_message *message, wire_send send, void *arg)
{
    Baton__Ask ask = BATON__ASK__INIT;

    ask.ask = message->fetch;
    ask.hashes.data = (uint8_t *)message->hashes;
    ask.hashes.len = message->n_hashes * sizeof(*message->hashes);
    ask.tenant = message->tenant;
    return send(arg, FRAME_ASK, &ask.base);
}

static int send_fetch_refused(const struct kvxfer_message *message, wire_send send, void *arg)
{
    Baton__AskRefused refused = BATON__ASK_REFUSED__INIT;

    refused.ask = message->fetch;
    refused.code = message->code;
    return send(arg, FRAME_ASK_REFUSED, &refused.base);
}

int peer_message_send(const struct kvxfer_message *message, wire_send send, void *arg)
{
    switch (message->kind) {
    case KVXFER_OFFER:
        return messages_send_offer(message, send, arg);
    case KVXFER_GRANT:
        return send_grant(message, send, arg);
    case KVXFER_REFUSED:
        return send_refused(message, send, arg);
    case KVXFER_PREFILL_DONE:
        return send_prefill_done(message, send, arg);
    case KVXFER_DONE:
        return send_done(message, send, arg);
    case KVXFER_CANCEL:
    case KVXFER_STOPPED:
        return send_cancel(message, send, arg);
    case KVXFER_FETCH:
        return send_fetch(message, send, arg);
    case KVXFER_FETCH_REFUSED:
        return send_fetch_refused(message, send, arg);
    }
    return E_INVAL;
}
