/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps the order of each stream in the store that routers share, or else with workers, while the stream runs.
 *
 *     value = digest of the client's body 32 | the payload of SUBMIT: prompt, seed and all that decides the answer
 *
 * It is for a client that returns to a router whose workers have no tail of its stream (resume.c): the first router
 * had other workers, its worker is gone too, or the stream was paused.  The answer is then computed again from the
 * order, with the same bits, and the endpoint sends the part that the client lacks.
 *
 * A store keeps an order for a minute more after the end.  Two workers keep it otherwise (kept.c).  They also keep
 * conversations, so the orders of a router's streams are bounded in bytes, each and together.  Without another
 * router and another worker only streams that may be paused need one.  Orders of prompts beyond FRAME_PIECE_TOKENS are not
 * kept, because packing them would block the loop. */
#include "fleet/router/streams_priv.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "compute/order/submit.h"
#include "fleet/router/admission_priv.h"
#include "fleet/router/kept_types_priv.h"
#include "fleet/router/relay_priv.h"
#include "fleet/router/state_priv.h"
#include "proto/token_list.h"

#define STREAM_LIFE_S  3600u
#define STREAM_GRACE_S 60u
#define OTHERS_NS      (600 * NS_PER_S)
#define DIGEST_BYTES   sizeof(((struct work_resume *)0)->body_digest)

#define KEPT_ORDER_BYTES  ((size_t)64 << 10) /* of one order at workers */
#define KEPT_ORDERS_BYTES ((size_t)8 << 20)  /* of all orders of this router */

static struct state_values streams_values(const struct job *job)
{
    struct state *store = router_state_store(job->router);

    return store != NULL ? state_values_of(store) : router_kept_values(job->router);
}

static int streams_name(const struct job *job, const struct state_values *values, struct state_name *out)
{
    return state_values_name(values, "stream", bytes_str(job->order.work.tenant),
                             bytes_str(job->order.work.request_id), out);
}

/* True if workers had another router lately, or this one has just started and does not know yet. */
static bool streams_has_others(const struct router *router)
{
    struct router_kept *kept = router->kept;
    uint64_t now_ns = clock_now_ns();

    if (router_relay_has_others(router))
        kept->others_until_ns = now_ns + OTHERS_NS;
    return now_ns < kept->others_until_ns;
}

/* True if an order would be of use: another router and another worker could go on with the stream, or it may be paused. */
static bool streams_is_useful(const struct job *job)
{
    const struct router *router = job->router;

    return router_state_store(router) != NULL || router_job_class(job).pause_ns > 0 ||
           (router_kept_n_workers(router) > 1 && streams_has_others(router));
}

/* Counts bytes at workers.  False: no room. */
static bool streams_count(struct job *job, size_t n_bytes)
{
    struct router_kept *kept = job->router->kept;

    if (router_state_store(job->router) != NULL || kept == NULL)
        return true;
    if (n_bytes > KEPT_ORDER_BYTES || kept->stream_bytes + n_bytes > KEPT_ORDERS_BYTES)
        return false;
    kept->stream_bytes += n_bytes;
    job->stored_bytes = (uint32_t)n_bytes;
    return true;
}

static void streams_uncount(struct job *job)
{
    if (job->router->kept != NULL)
        job->router->kept->stream_bytes -= job->stored_bytes;
    job->stored_bytes = 0;
}

void router_streams_keep(struct job *job)
{
    struct state_values values = streams_values(job);
    struct work_submit packed;
    struct state_name name;
    struct buf value = {0};
    size_t n;

    if (job->is_stored || !job->order.work.resume.is_kept || !state_values_are_up(&values) ||
        !streams_is_useful(job) || job->order.n_tokens != job->order.n_prompt ||
        job->order.n_tokens > FRAME_PIECE_TOKENS || streams_name(job, &values, &name) < 0)
        return;
    if (work_submit_pack(&job->order, token_list_width(job->order.tokens, job->order.n_tokens), &packed) ==
        0) {
        packed.submit.request = 1; /* the number of a job, which a checked SUBMIT must have */
        packed.resume.fingerprint = job->model->gen.fingerprint;
        n = baton__submit__get_packed_size(&packed.submit);
        buf_append(&value, job->order.work.resume.body_digest, DIGEST_BYTES);
        if (streams_count(job, DIGEST_BYTES + n) && buf_reserve(&value, n + 1) == 0) {
            value.len_bytes += baton__submit__pack(&packed.submit, value.data + value.len_bytes);
            job->is_stored = state_values_put(&values, &name, STREAM_LIFE_S, &value) == 0;
        }
        if (!job->is_stored)
            streams_uncount(job);
    }
    work_submit_fini(&packed);
    buf_fini(&value);
}

void router_streams_unask(struct job *job)
{
    struct state_values values = streams_values(job);

    state_values_cancel(&values, job->store_ask);
    job->store_ask = NULL;
}

void router_streams_moved(struct job *job)
{
    streams_uncount(job);
    job->is_stored = false;
}

void router_streams_over(struct job *job)
{
    struct state_values values = streams_values(job);
    struct state_name name;
    bool has_store = router_state_store(job->router) != NULL;
    bool may_return = job->handle.outcome == GEN_FAILED && job->handle.failure.retry_after_s > 0;

    router_streams_unask(job);
    streams_uncount(job);
    if (!job->is_stored || !state_values_are_up(&values) || streams_name(job, &values, &name) < 0)
        return;
    if (job->handle.is_left || job->handle.keeps_order || (may_return && !has_store))
        return; /* this router is stopping, and the client will use another one; or the client will come back */
    if (job->handle.outcome == GEN_ENDED || may_return || !has_store)
        (void)state_values_expire(&values, &name, STREAM_GRACE_S);
    else
        (void)state_values_remove(&values, &name);
}

/* ---- continuing ---- */

/* The model that began the stream.  Another file of that name would go on with other tokens.  NULL: it is not here. */
static struct router_model *streams_model(const struct job *job, const Baton__Submit *submit)
{
    const char *fingerprint = submit->resume != NULL ? submit->resume->fingerprint : "";
    struct router_model *model;

    if (fingerprint[0] == '\0') /* of an older router */
        return job->model;
    model = router_model_find(job->router, fingerprint);
    return model != NULL && model->is_ready ? model : NULL;
}

int router_streams_adopt(struct job *job, struct bytes value)
{
    Baton__Resumed resumed = BATON__RESUMED__INIT;
    struct router_model *model;
    ProtobufCMessage *message;
    int rc;

    if (value.len_bytes <= DIGEST_BYTES ||
        memcmp(value.data, job->order.work.resume.body_digest, DIGEST_BYTES) != 0)
        return E_MISMATCH;
    rc = frame_unpack(FRAME_SUBMIT, bytes_of(value.data + DIGEST_BYTES, value.len_bytes - DIGEST_BYTES), NULL,
                      &message);
    if (rc < 0)
        return rc;
    resumed.submit = (Baton__Submit *)message;
    model = streams_model(job, resumed.submit);
    if (resumed.submit->n_tokens_later > 0)
        rc = E_PROTO;
    else
        rc = router_resume_concerns(job, model) ? router_resume_take(job, &resumed, model) : E_NOT_FOUND;
    /* With the prompt and the vocabulary of that file it may fit. */
    job->is_order_unknown |= rc < 0 && model != NULL && model != job->model;
    frame_message_free(message);
    return rc;
}

static void streams_on_value(void *arg, struct buf *values, enum state_claim claim)
{
    struct job *job = arg;
    int rc;

    job->store_ask = NULL; /* the question has ended and needs no cancel */
    rc = values[0].len_bytes > 0 ? router_streams_adopt(job, buf_view(&values[0])) : E_NOT_FOUND;
    if (rc == 0 && job->router->life == DAEMON_DRAINING)
        rc = E_CLOSED;
    if (rc < 0) {
        if (rc != E_NOT_FOUND)
            log_warn("resume_failed", LOG_STR("request_id", job->order.work.request_id),
                     LOG_STR("worker", ""), LOG_ERR(rc));
        else
            job->is_order_unknown |= claim == STATE_CLAIM_UNKNOWN || router_kept_is_late(job->router);
        router_resume_fail(job, rc);
        return;
    }
    job->is_stored = true; /* by the router that began it */
    router_job_enter(job, JOB_READMITTING);
    gen_handle_resume(&job->handle, true);
}

void router_streams_restart(void *self, struct gen_handle *handle)
{
    struct router *router = self;
    struct job *job = container_of(handle, struct job, handle);

    if (job->state != JOB_READMITTING)
        return;
    log_info("stream_restarted", LOG_STR("request_id", job->order.work.request_id));
    metric_add(router->m_resumed, 1);
    if (router_job_place(job) < 0)
        router_queue_add(job, true);
}

bool router_streams_ask(struct job *job)
{
    struct state_values values = streams_values(job);
    struct state_name name;
    const struct state_question question = {.names = &name, .n = 1, .done = streams_on_value, .arg = job};
    int rc;

    if (job->store_ask != NULL)
        return true;
    job->is_order_unknown |= router_state_store(job->router) != NULL && !state_values_are_up(&values);
    if (job->has_asked_store || !state_values_are_up(&values) || streams_name(job, &values, &name) < 0)
        return false;
    rc = state_values_ask(&values, &question, &job->store_ask);
    if (rc == E_AGAIN) /* many streams come back together: router_resume_tick() asks again */
        return true;
    job->has_asked_store = true;
    job->is_order_unknown = rc < 0 && router_kept_is_late(job->router);
    return rc == 0;
}
