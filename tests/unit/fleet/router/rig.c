/* SPDX-License-Identifier: Apache-2.0 */
/* Defines the functions of net/ that the router calls, so that the linker takes these.  A link remembers what
 * was sent, and the test supplies the replies. */
#include "fleet/router/admission_priv.h"
#include "fleet/router/stores_priv.h"
#include "rig.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/str.h"
#include "proto/token_list.h"
#include "tests/unit/serve/endpoint/sim_model.h"

struct link {
    struct link_opts opts;
    void *user;
    bool is_up, fails;
    size_t queued_bytes;
    struct rig_submit sent[RIG_MAX_SENT];
    uint32_t n_sent;
    uint32_t n_wanted, n_last_replicas, max_on_disk;
};

void (*rig_on_send)(struct link *link, enum frame_type type, const ProtobufCMessage *message);

/* ---- net/, scripted ---- */

int link_accept(const struct link_opts *opts, int fd, struct link **out)
{
    struct link *link = calloc(1, sizeof(*link));

    if (link == NULL)
        return E_NOMEM;
    link->opts = *opts;
    *out = link;
    return 0;
}

void link_close(struct link *link)
{
    free(link);
}

bool link_is_up(const struct link *link)
{
    return link->is_up;
}

void link_set_user(struct link *link, void *user)
{
    link->user = user;
}

bool link_peer_has_ended(const struct link *link)
{
    (void)link;
    return false;
}

void *link_user(const struct link *link)
{
    return link->user;
}

const char *link_peer_address(const struct link *link)
{
    return "test";
}

size_t link_queued_bytes(const struct link *link)
{
    return link->queued_bytes;
}

uint64_t link_rtt_ns(const struct link *link)
{
    return 0;
}

void listener_release(struct listener *listener)
{
}

static uint64_t digest_of(uint64_t digest, const void *data, size_t len_bytes)
{
    for (size_t i = 0; i < len_bytes; i++)
        digest = (digest ^ ((const uint8_t *)data)[i]) * UINT64_C(0x100000001b3);
    return digest;
}

static uint64_t digest_submit(const Baton__Submit *submit)
{
    const Baton__Sampling *sampling = submit->sampling;
    uint64_t digest = digest_of(7, submit->constraint.data, submit->constraint.len);

    if (sampling->n_bias != sampling->n_bias_ids)
        abort();
    digest = digest_of(digest, sampling->bias_ids, sampling->n_bias * sizeof(uint32_t));
    return digest_of(digest, sampling->bias, sampling->n_bias * sizeof(float));
}

static void note_tokens(struct rig_submit *sent, const Baton__Submit *submit)
{
    struct bytes packed = bytes_of(submit->tokens.data, submit->tokens.len);
    uint32_t *ids;
    size_t n;

    if (token_list_count(packed, frame_token_bytes(submit), &n) < 0)
        abort();
    ids = calloc(n, sizeof(*ids));
    token_list_unpack(packed, frame_token_bytes(submit), n, ids);
    sent->n_tokens = (uint32_t)n;
    sent->token_bytes = submit->token_bytes;
    sent->tokens_digest = digest_of(7, ids, n * sizeof(*ids));
    free(ids);
}

static void note_submit(struct link *link, const Baton__Submit *submit)
{
    if (link->n_sent == RIG_MAX_SENT)
        abort();
    link->sent[link->n_sent++] =
        (struct rig_submit){.request = submit->request,
                            .seed = submit->sampling->seed,
                            .mode = submit->mode,
                            .n_prompt = submit->n_prompt,
                            .max_new_tokens = submit->max_new_tokens,
                            .digest = digest_submit(submit),
                            .pin_tokens = {submit->pin_5m_tokens, submit->pin_1h_tokens},
                            .score_from = submit->score_from,
                            .owner_tokens = submit->owner_tokens};
    note_tokens(&link->sent[link->n_sent - 1], submit);
    if (submit->owner != NULL)
        str_copy(link->sent[link->n_sent - 1].owner, sizeof(link->sent->owner), submit->owner->node);
    link->sent[link->n_sent - 1].sample =
        (struct sample_opts){.wants_logprob = submit->sampling->wants_logprob,
                             .n_top = submit->sampling->n_top,
                             .n_bias = (uint32_t)submit->sampling->n_bias,
                             .frequency_penalty = submit->sampling->frequency_penalty,
                             .presence_penalty = submit->sampling->presence_penalty,
                             .repetition_penalty = submit->sampling->repetition_penalty,
                             .min_tokens = submit->sampling->min_tokens};
}

static void note_more_tokens(struct rig_submit *sent, const Baton__SubmitTokens *more)
{
    struct bytes packed = bytes_of(more->tokens.data, more->tokens.len);
    uint32_t *ids;
    size_t n;

    if (token_list_count(packed, more->token_bytes, &n) < 0 || n > FRAME_PIECE_TOKENS)
        abort();
    ids = calloc(n, sizeof(*ids));
    token_list_unpack(packed, more->token_bytes, n, ids);
    sent->n_tokens += (uint32_t)n;
    sent->n_pieces++;
    sent->tokens_digest = digest_of(sent->tokens_digest, ids, n * sizeof(*ids));
    free(ids);
}

static struct rig_submit *find_sent(struct link *link, uint64_t request)
{
    for (uint32_t i = link->n_sent; i > 0; i--)
        if (link->sent[i - 1].request == request)
            return &link->sent[i - 1];
    return NULL;
}

int link_send(struct link *link, enum frame_type type, const ProtobufCMessage *message)
{
    struct rig_submit *sent;

    if (!link->is_up || link->fails)
        return E_CLOSED;
    if (rig_on_send != NULL)
        rig_on_send(link, type, message);
    if (type == FRAME_SUBMIT)
        note_submit(link, (const Baton__Submit *)message);
    if (type == FRAME_SUBMIT_TOKENS &&
        (sent = find_sent(link, ((const Baton__SubmitTokens *)message)->request)) != NULL)
        note_more_tokens(sent, (const Baton__SubmitTokens *)message);
    if (type == FRAME_BLOCKS_WANTED) {
        link->n_wanted++;
        link->max_on_disk = ((const Baton__BlocksWanted *)message)->max_on_disk;
    }
    if (type == FRAME_BLOCKS_LAST)
        link->n_last_replicas += (uint32_t)(((const Baton__BlocksLast *)message)->hashes.len / 16);
    if (type == FRAME_CANCEL && (sent = find_sent(link, ((const Baton__Cancel *)message)->request)) != NULL)
        sent->is_over = true;
    if (type == FRAME_PROCEED && (sent = find_sent(link, ((const Baton__Proceed *)message)->request)) != NULL)
        sent->may_proceed = true;
    return 0;
}

uint32_t rig_n_wanted(const struct link *link)
{
    return link->n_wanted;
}

uint32_t rig_max_on_disk(const struct link *link)
{
    return link->max_on_disk;
}

uint32_t rig_n_last_replicas(const struct link *link)
{
    return link->n_last_replicas;
}

void rig_fail_sends(struct link *link, bool fails)
{
    link->fails = fails;
}

void rig_queue_bytes(struct link *link, size_t queued_bytes)
{
    link->queued_bytes = queued_bytes;
}

struct rig_submit *rig_sent(struct link *link, uint32_t index)
{
    return index < link->n_sent ? &link->sent[index] : NULL;
}

struct rig_submit *rig_last(struct link *link)
{
    return link->n_sent > 0 ? &link->sent[link->n_sent - 1] : NULL;
}

/* ---- the router ---- */

static void add_model(struct rig *rig, const char *name, char digit)
{
    struct router_model *model = &rig->router.models[rig->router.n_models++];

    model->gen = rig->sim;
    str_copy(model->gen.name, sizeof(model->gen.name), name);
    memset(model->gen.fingerprint, digit, 32);
    model->gen.fingerprint[32] = '\0';
    model->is_ready = true;
}

int rig_open(struct rig *rig)
{
    struct router *router = &rig->router;

    log_set_level(LOG_LEVEL_ERROR);
    memset(rig, 0, sizeof(*rig));
    rig->clients = calloc(RIG_MAX_CLIENTS, sizeof(*rig->clients));
    rig->conf = (struct router_conf){.queue_max = 16,
                                     .queue_timeout_ns = 10 * NS_PER_S,
                                     .ttft_slo_ns = 100 * NS_PER_S,
                                     .itl_slo_ns = 100 * NS_PER_S,
                                     .local_prefill_tokens = 16,
                                     .index_entries = 1000};
    router->conf = &rig->conf;
    router->next_number = 1;
    ASSERT(router_jobs_open(router) == 0);
    list_init(&router->unhashed);
    list_init(&router->unsent);
    router_blocks_init(router);
    if (rig->clients == NULL || metrics_new(&router->metrics) < 0 || sim_model_open(4096, &rig->sim) < 0 ||
        hashmap_new(sizeof(uint64_t), &router->by_number) < 0 || router_queue_open(router) < 0 ||
        picker_index_new(1000, NS_PER_S, &router->index) < 0 || picker_fleet_new(0, &router->fleet) < 0)
        return E_NOMEM;
    picker_classes_init(&router->classes, rig->conf.ttft_slo_ns, rig->conf.itl_slo_ns);
    router_declare_metrics(router);
    add_model(rig, "sim", '1');
    add_model(rig, "other", '2');
    return 0;
}

void rig_close(struct rig *rig)
{
    struct router *router = &rig->router;

    router_workers_close(router);
    block_queue_fini(&router->pending);
    while (!list_is_empty(&router->jobs))
        router_job_free(container_of(router->jobs.next, struct job, all));
    for (uint32_t i = 0; i < router->n_models; i++)
        for (uint32_t class_at = 0; class_at < PICKER_MAX_CLASSES; class_at++)
            fair_free(router->models[i].turns[class_at]);
    router_queue_close(router);
    router_stores_free(router);
    picker_index_free(router->index);
    picker_fleet_free(router->fleet);
    hashmap_free(router->by_number);
    metrics_free(router->metrics);
    sim_model_close(&rig->sim);
    free(rig->clients);
}

/* ---- workers ---- */

int rig_hello(struct rig *rig, struct link *link, Baton__Hello *hello)
{
    struct fault fault = {0};

    return link->opts.events->on_hello(&rig->router, link, &hello->base, &fault);
}

void rig_beat(struct rig *rig, struct link *link, Baton__LoadReport *load)
{
    Baton__Heartbeat beat = BATON__HEARTBEAT__INIT;

    beat.load = load;
    link->opts.events->on_message(&rig->router, link, FRAME_HEARTBEAT, &beat.base);
}

static struct link *accept_link(struct rig *rig)
{
    if (router_workers_accept(&rig->router, -1, NULL) < 0)
        return NULL;
    for (uint32_t i = 0; i < ROUTER_MAX_LINKS; i++)
        if (rig->router.greeting[i] != NULL)
            return rig->router.greeting[i];
    return NULL;
}

struct link *rig_worker(struct rig *rig, const char *node, enum picker_role role, uint64_t epoch,
                        uint32_t n_blocks)
{
    struct link *link = accept_link(rig);
    Baton__Hello hello = BATON__HELLO__INIT;
    Baton__ModelInfo model = BATON__MODEL_INFO__INIT;
    Baton__KvInfo kv = BATON__KV_INFO__INIT;
    Baton__LoadReport load = BATON__LOAD_REPORT__INIT;

    hello.role = role == PICKER_PREFILL ? BATON__ROLE__ROLE_PREFILL : BATON__ROLE__ROLE_DECODE;
    hello.node = (char *)node;
    hello.epoch = epoch;
    hello.capabilities = rig->capabilities;
    hello.model = &model;
    hello.kv = &kv;
    model.fingerprint =
        rig->fingerprint != NULL ? (char *)rig->fingerprint : rig->router.models[0].gen.fingerprint;
    model.name = "sim";
    model.vocabulary_bytes = 1000;
    model.context_length = 4096;
    kv.block_tokens = rig->block_tokens > 0 ? rig->block_tokens : 32;
    kv.n_blocks = n_blocks;
    kv.max_seqs = 8;
    load.blocks_free = load.blocks_total = n_blocks;
    if (link == NULL || rig_hello(rig, link, &hello) < 0)
        return NULL;
    link->is_up = true;
    link->opts.events->on_up(&rig->router, link);
    rig_beat(rig, link, &load);
    rig_flush(rig);
    return link;
}

void rig_events(struct rig *rig, struct link *link, Baton__BlockEvents *events)
{
    link->opts.events->on_message(&rig->router, link, FRAME_BLOCK_EVENTS, &events->base);
}

void rig_store(struct rig *rig, struct link *link, Baton__StoreBlocks *blocks)
{
    link->opts.events->on_message(&rig->router, link, FRAME_STORE_BLOCKS, &blocks->base);
}

void rig_lose(struct rig *rig, struct link *link)
{
    struct fault why = {.code = E_CLOSED};

    link->is_up = false;
    link->opts.events->on_down(&rig->router, link, &why);
    free(link);
    rig_flush(rig);
}

/* ---- answers ---- */

/* True if a worker would send it as a record. */
static bool is_single(const Baton__Answer *answer)
{
    return answer->n_ids == 1 && !answer->is_accepted && !answer->is_prompt_logprobs &&
           answer->n_logprobs == 0 && answer->serving == NULL && answer->finish == BATON__FINISH__FINISH_NONE;
}

void rig_answer(struct rig *rig, struct link *link, Baton__Answer *answer)
{
    Baton__Tokens tokens = BATON__TOKENS__INIT;
    uint8_t bytes[FRAME_SINGLE_BYTES];

    if (is_single(answer)) {
        frame_single_pack(&(struct frame_single){.request = answer->request,
                                                 .index = answer->first_index,
                                                 .id = answer->ids[0]},
                          bytes);
        tokens.singles = (ProtobufCBinaryData){.data = bytes, .len = sizeof(bytes)};
    } else {
        tokens.n_answers = 1;
        tokens.answers = &answer;
    }
    link->opts.events->on_message(&rig->router, link, FRAME_TOKENS, &tokens.base);
}

void rig_accept(struct rig *rig, struct link *link, uint32_t cached_tokens)
{
    Baton__Answer answer = BATON__ANSWER__INIT;

    answer.request = rig_last(link)->request;
    answer.is_accepted = true;
    answer.cached_tokens = cached_tokens;
    rig_answer(rig, link, &answer);
}

struct sample_result rig_draw(uint32_t index)
{
    struct sample_result draw = {.id = 'a' + index % 16, .logprob = -0.5f - (float)index};

    for (; draw.n_top < index % 3; draw.n_top++)
        draw.top[draw.n_top] =
            (struct sample_top){.id = 'b' + draw.n_top, .logprob = -0.25f * (float)(index + draw.n_top)};
    return draw;
}

void rig_put_draws(Baton__Answer *answer)
{
    static float logprobs[RIG_MAX_TOKENS], top_logprobs[2 * RIG_MAX_TOKENS];
    static uint32_t n_tops[RIG_MAX_TOKENS], top_ids[2 * RIG_MAX_TOKENS];

    answer->logprobs = logprobs;
    answer->n_tops = n_tops;
    answer->top_ids = top_ids;
    answer->top_logprobs = top_logprobs;
    answer->n_logprobs = answer->n_n_tops = answer->n_ids;
    answer->n_top_ids = 0;
    for (size_t i = 0; i < answer->n_ids; i++) {
        struct sample_result draw = rig_draw(answer->first_index + (uint32_t)i);

        logprobs[i] = draw.logprob;
        n_tops[i] = draw.n_top;
        for (uint32_t k = 0; k < draw.n_top; k++) {
            top_ids[answer->n_top_ids] = draw.top[k].id;
            top_logprobs[answer->n_top_ids++] = draw.top[k].logprob;
        }
    }
    answer->n_top_logprobs = answer->n_top_ids;
}

void rig_tokens(struct rig *rig, struct link *link, uint32_t index, uint32_t n)
{
    Baton__Answer answer = BATON__ANSWER__INIT;
    uint32_t ids[RIG_MAX_TOKENS];

    for (uint32_t i = 0; i < n; i++)
        ids[i] = 'a' + (index + i) % 16;
    answer.request = rig_last(link)->request;
    answer.first_index = index;
    answer.ids = ids;
    answer.n_ids = n;
    if (rig_last(link)->sample.wants_logprob)
        rig_put_draws(&answer);
    rig_answer(rig, link, &answer);
}

void rig_scores(struct rig *rig, struct link *link, uint32_t index, uint32_t n)
{
    Baton__Answer answer = BATON__ANSWER__INIT;
    uint32_t ids[RIG_MAX_TOKENS];

    for (uint32_t i = 0; i < n; i++)
        ids[i] = (index + i + (rig->has_same_prompts ? 0 : rig->n_clients)) % 100;
    answer.request = rig_last(link)->request;
    answer.first_index = index;
    answer.ids = ids;
    answer.n_ids = n;
    answer.is_prompt_logprobs = true;
    rig_put_draws(&answer);
    rig_answer(rig, link, &answer);
}

void rig_finish(struct rig *rig, struct link *link, Baton__Finish finish, int error)
{
    Baton__Answer answer = BATON__ANSWER__INIT;

    answer.request = rig_last(link)->request;
    answer.finish = finish;
    answer.error = error;
    rig_answer(rig, link, &answer);
}

bool rig_ledgers_are_empty(const struct rig *rig)
{
    for (uint32_t slot = 0; slot < PICKER_MAX_WORKERS; slot++) {
        const struct picker_ledger *ledger = picker_fleet_ledger(rig->router.fleet, slot);

        if (ledger->prefill_tokens != 0 || ledger->n_seqs != 0 || ledger->context_tokens != 0 ||
            ledger->growth_tokens != 0 || ledger->n_overdue != 0 || ledger->overdue_pace != 0)
            return false;
    }
    return true;
}
