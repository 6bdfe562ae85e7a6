/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps the order of each stream in the store that routers share, while the stream runs and for a minute
 * afterwards.
 *
 *     value = digest of the client's body 32 | the payload of SUBMIT: prompt, seed and all that decides the answer
 *
 * It is for a client that returns to a router whose workers have no tail of its stream (resume.c): the first router
 * had other workers, or its worker is gone too.  The answer is then computed again from the order, with the same
 * bits, and the endpoint sends the part that the client lacks.  Orders of prompts beyond FRAME_PIECE_TOKENS are not
 * kept, because packing them would block the loop. */
#include "fleet/router/streams_priv.h"

#include "base/err.h"
#include "base/log.h"
#include "compute/order/submit.h"
#include "fleet/router/state_priv.h"
#include "proto/token_list.h"

#define STREAM_LIFE_S  3600u
#define STREAM_GRACE_S 60u
#define DIGEST_BYTES   sizeof(((struct work_resume *)0)->body_digest)

static int streams_name(const struct job *job, struct state_name *out)
{
    return state_name(router_state_store(job->router), "stream", bytes_str(job->order.work.tenant),
                      bytes_str(job->order.work.request_id), out);
}

void router_streams_keep(struct job *job)
{
    struct state *store = router_state_store(job->router);
    struct work_submit packed;
    struct state_name name;
    struct buf value = {0};
    size_t n;

    if (job->is_stored || !job->order.work.resume.is_kept || !state_is_up(store) ||
        job->order.n_tokens != job->order.n_prompt || job->order.n_tokens > FRAME_PIECE_TOKENS ||
        streams_name(job, &name) < 0)
        return;
    if (work_submit_pack(&job->order, token_list_width(job->order.tokens, job->order.n_tokens), &packed) ==
        0) {
        packed.submit.request = 1; /* the number of a job, which a checked SUBMIT must have */
        n = baton__submit__get_packed_size(&packed.submit);
        buf_append(&value, job->order.work.resume.body_digest, DIGEST_BYTES);
        if (buf_reserve(&value, n + 1) == 0)
            value.len_bytes += baton__submit__pack(&packed.submit, value.data + value.len_bytes);
        job->is_stored = state_put(store, &name, STREAM_LIFE_S, &value) == 0;
    }
    work_submit_fini(&packed);
    buf_fini(&value);
}

void router_streams_unask(struct job *job)
{
    state_ask_cancel(job->store_ask);
    job->store_ask = NULL;
}

void router_streams_moved(struct job *job)
{
    job->is_stored = false;
}

void router_streams_over(struct job *job)
{
    struct state *store = router_state_store(job->router);
    struct state_name name;

    router_streams_unask(job);
    if (!job->is_stored || !state_is_up(store) || streams_name(job, &name) < 0)
        return;
    if (job->handle.is_left)
        return; /* this router is stopping, and the client will use another one */
    if (job->handle.outcome == GEN_ENDED)
        (void)state_expire(store, &name, STREAM_GRACE_S);
    else
        (void)state_remove(store, &name);
}

/* ---- continuing ---- */

static int streams_adopt(struct job *job, struct bytes value)
{
    Baton__Resumed resumed = BATON__RESUMED__INIT;
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
    rc = resumed.submit->n_tokens_later > 0 ? E_PROTO : router_resume_take(job, &resumed);
    frame_message_free(message);
    return rc;
}

static void streams_on_value(void *arg, struct buf *values, enum state_claim claim)
{
    struct job *job = arg;
    int rc;

    (void)claim;
    job->store_ask = NULL; /* the question has ended and needs no cancel */
    rc = values[0].len_bytes > 0 ? streams_adopt(job, buf_view(&values[0])) : E_NOT_FOUND;
    if (rc == 0 && job->router->life == DAEMON_DRAINING)
        rc = E_CLOSED;
    if (rc < 0) {
        if (rc != E_NOT_FOUND)
            log_warn("resume_failed", LOG_STR("request_id", job->order.work.request_id),
                     LOG_STR("worker", ""), LOG_ERR(rc));
        router_resume_not_kept(job);
        return;
    }
    log_info("stream_restarted", LOG_STR("request_id", job->order.work.request_id));
    metric_add(job->router->m_resumed, 1);
    job->is_stored = true; /* by the router that began it */
    gen_handle_resume(&job->handle);
    if (router_job_place(job) < 0)
        router_queue_add(job, false);
}

bool router_streams_ask(struct job *job)
{
    struct state *store = router_state_store(job->router);
    struct state_name name;
    const struct state_question question = {.names = &name, .n = 1, .done = streams_on_value, .arg = job};

    if (job->store_ask != NULL)
        return true;
    if (job->has_asked_store || !state_is_up(store) || streams_name(job, &name) < 0)
        return false;
    job->has_asked_store = true;
    return state_ask(store, &question, &job->store_ask) == 0;
}
