/* SPDX-License-Identifier: Apache-2.0 */
/* The clients of the rig: they submit, pause and cancel as the front does, and record the events. */
#include "rig.h"

#include "tests/unit/check.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/str.h"

void rig_flush(struct rig *rig)
{
    if (!rig->router.outbox.is_open) /* not inside an event */
        gen_outbox_flush(&rig->router.outbox);
}

void rig_cancel(struct rig_client *client)
{
    struct backend backend = router_backend(&client->rig->router);
    struct gen_handle *handle = client->handle;

    client->handle = NULL;
    backend.ops->cancel(backend.self, handle, &client->serving);
    rig_flush(client->rig);
}

void rig_pause(struct rig_client *client, bool is_paused)
{
    struct backend backend = router_backend(&client->rig->router);

    backend.ops->pause(backend.self, client->handle, is_paused);
    rig_flush(client->rig);
}

static void on_accepted(void *arg, uint32_t cached_tokens)
{
    struct rig_client *client = arg;

    client->n_accepted++;
    client->cached_tokens = cached_tokens;
    if (client->cancels_on_accepted)
        rig_cancel(client);
}

static void on_tokens(void *arg, const struct gen_tokens *tokens)
{
    struct rig_client *client = arg;

    if ((tokens->draws != NULL) != client->wants_logprob)
        abort();
    for (size_t i = 0; tokens->is_prompt_logprobs && i < tokens->n && client->n_scores < RIG_MAX_TOKENS; i++)
        client->scores[client->n_scores++] = tokens->draws[i];
    for (size_t i = 0; !tokens->is_prompt_logprobs && i < tokens->n && client->n_tokens < RIG_MAX_TOKENS;
         i++) {
        if (tokens->draws != NULL)
            client->draws[client->n_tokens] = tokens->draws[i];
        client->tokens[client->n_tokens++] = tokens->ids[i];
    }
    if (client->pauses_on_tokens)
        rig_pause(client, true);
    if (client->cancels_other_on_tokens != NULL && client->cancels_other_on_tokens->handle != NULL)
        rig_cancel(client->cancels_other_on_tokens);
    if (client->cancels_on_tokens)
        rig_cancel(client);
}

/* Called only for existing jobs. */
static void on_soon(const void *arg, unsigned step)
{
    const struct rig_client *client = arg;

    if (client->handle == NULL || step >= GEN_SOON_STEPS)
        abort();
    client->rig->n_soon[step]++;
}

static void on_end(void *arg, enum work_end end, const struct gen_serving *serving)
{
    struct rig_client *client = arg;

    client->handle = NULL;
    client->has_ended = true;
    client->end = end;
    client->serving = *serving;
}

static void on_failure(void *arg, const struct gen_failure *failure, const struct gen_serving *serving)
{
    struct rig_client *client = arg;
    struct rig_client *other = client->cancels_on_failure;

    client->handle = NULL;
    client->has_failed = true;
    client->serving = *serving;
    client->status = failure->status;
    client->retry_after_s = failure->retry_after_s;
    str_copy(client->message, sizeof(client->message), failure->message);
    if (other != NULL && other->handle != NULL)
        rig_cancel(other);
}

static const struct gen_events events = {.on_accepted = on_accepted,
                                         .on_tokens = on_tokens,
                                         .on_soon = on_soon,
                                         .on_end = on_end,
                                         .on_failure = on_failure};

struct rig_client *rig_submit_model(struct rig *rig, uint32_t model, uint32_t n_tokens,
                                    uint32_t max_new_tokens)
{
    struct rig_client *client = &rig->clients[rig->n_clients++];
    struct backend backend = router_backend(&rig->router);
    struct work_order order = {.n_tokens = n_tokens,
                               .n_prompt = n_tokens,
                               .work = {.max_new_tokens = max_new_tokens,
                                        .sample = rig->sample,
                                        .score_from = rig->scores_prompt,
                                        .pin_tokens = {rig->pin_tokens[0], rig->pin_tokens[1]}}};
    struct gen_failure failure = {0};

    client->rig = rig;
    client->wants_logprob = rig->sample.wants_logprob;
    order.work.sample.seed = 77;
    ASSERT(work_order_copy_bias(&order, rig->sample.bias, rig->sample.n_bias) == 0);
    order.work.weight = rig->weight;
    if (rig->class_allowed != NULL)
        str_copy(order.work.class_allowed, sizeof(order.work.class_allowed), rig->class_allowed);
    if (rig->class_wanted != NULL)
        str_copy(order.work.class_wanted, sizeof(order.work.class_wanted), rig->class_wanted);
    if (rig->tenant != NULL)
        str_copy(order.work.tenant, sizeof(order.work.tenant), rig->tenant);
    if (rig->constraint != NULL)
        buf_append_str(&order.constraint, rig->constraint);
    order.tokens = calloc(n_tokens, sizeof(*order.tokens));
    for (uint32_t i = 0; i < n_tokens; i++)
        order.tokens[i] = rig->tokens_from + (i + (rig->has_same_prompts ? 0 : rig->n_clients)) % 100;
    if (backend.ops->submit(
            backend.self,
            &(struct gen_start){&rig->router.models[model].gen, &order, &events, client, &client->serving},
            &client->handle, &failure) < 0) {
        client->handle = NULL;
        client->has_failed = true;
        client->status = failure.status;
        client->retry_after_s = failure.retry_after_s;
        str_copy(client->message, sizeof(client->message), failure.message);
    }
    rig_flush(rig);
    return client;
}

struct rig_client *rig_submit(struct rig *rig, uint32_t n_tokens, uint32_t max_new_tokens)
{
    return rig_submit_model(rig, 0, n_tokens, max_new_tokens);
}

void rig_assert_answer(const struct rig_client *client, uint32_t n)
{
    assert_int_equal(client->n_tokens, n);
    for (uint32_t i = 0; i < n; i++)
        assert_int_equal(client->tokens[i], 'a' + i % 16);
}
