/* SPDX-License-Identifier: Apache-2.0 */
/* The exporter's thread: an event loop with one HTTP client and at most one call under way.
 *
 *       IDLE --spans, by the tick--> SENDING --answered--> IDLE
 *                                      |  ^
 *           refused for now, no answer |  | the pause is over
 *                                      v  |
 *                                     WAITING --MAX_TRIES--> the batch is dropped: IDLE
 *
 * A batch is encoded once; a retry sends the same bytes.  After a dropped batch the pause stays long until the
 * collector answers, so a dead collector costs one connection attempt per PAUSE_MOST_NS. The thread polls the queue
 * once a tick, so a put costs no wake-up. */
#include "net/otlp/otlp_export.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/str.h"
#include "base/event/loop.h"
#include "base/thread.h"
#include "net/http/client.h"

#define TICK_NS        (500 * NS_PER_MS)
#define CALL_NS        (5 * NS_PER_S)
#define PAUSE_FIRST_NS NS_PER_S
#define PAUSE_MOST_NS  (30 * NS_PER_S)
#define OTLP_LAST_NS   NS_PER_S /* time to send the last spans when the daemon stops */
#define MAX_TRIES      4
#define BATCH_SPANS    512
#define ANSWER_BYTES   4096

enum otlp_state {
    OTLP_IDLE,    /* no batch */
    OTLP_SENDING, /* a call is under way */
    OTLP_WAITING  /* the batch waits to be sent again */
};

struct otlp_exporter {
    struct span_queue *queue;
    struct otlp_url url;
    char service[32], node[64], version[64];
    struct otlp_source source;
    pthread_t thread;
    struct ev_loop *loop;
    struct ev_timer *tick;
    struct http_client *client; /* NULL: the collector's name is not looked up yet */
    struct http_fields fields;
    enum otlp_state state;
    struct buf batch;
    size_t n_batch; /* spans in it */
    unsigned n_tries;
    uint64_t pause_ns, again_ns; /* WAITING: until again_ns */
    int status;                  /* of the answer; 0: no head yet */
    struct buf answer;
    bool is_down;          /* the log has reported that the collector takes no spans */
    atomic_bool is_ending; /* send the rest, then stop */
    uint64_t n_dropped_counted;
    struct metric *m_sent, *m_full, *m_failed, *m_rejected;
};

struct span_queue *otlp_exporter_queue(struct otlp_exporter *exporter)
{
    return exporter == NULL ? NULL : exporter->queue;
}

/* ---- a batch ---- */

static void otlp_make_batch(struct otlp_exporter *exporter)
{
    struct span *spans[BATCH_SPANS];
    uint64_t wall_ns = clock_unix_ns() - clock_now_ns();
    size_t n = 0;

    buf_clear(&exporter->batch);
    while (n < BATCH_SPANS && (spans[n] = span_queue_take(exporter->queue)) != NULL)
        n++;
    exporter->n_batch = n;
    exporter->n_tries = 0;
    if (n > 0 &&
        otlp_encode(&exporter->source, (const struct span *const *)spans, n, wall_ns, &exporter->batch) < 0) {
        metric_add(exporter->m_failed, (double)n);
        exporter->n_batch = 0;
    }
    for (size_t i = 0; i < n; i++)
        free(spans[i]);
}

/* Ends the batch. is_sent: the collector took it. */
static void otlp_end_batch(struct otlp_exporter *exporter, bool is_sent)
{
    uint64_t n_rejected = is_sent ? otlp_rejected(buf_view(&exporter->answer)) : 0;

    if (n_rejected > exporter->n_batch)
        n_rejected = exporter->n_batch;
    metric_add(is_sent ? exporter->m_sent : exporter->m_failed, (double)(exporter->n_batch - n_rejected));
    metric_add(exporter->m_rejected, (double)n_rejected);
    if (is_sent) {
        exporter->pause_ns = PAUSE_FIRST_NS;
        if (exporter->is_down)
            log_info("trace_collector_back", LOG_STR("address", exporter->url.address));
        exporter->is_down = false;
    }
    exporter->n_batch = 0;
    exporter->state = OTLP_IDLE;
}

static void otlp_failed(struct otlp_exporter *exporter, const char *why)
{
    if (!exporter->is_down)
        log_warn("trace_collector_down", LOG_STR("address", exporter->url.address), LOG_STR("reason", why));
    exporter->is_down = true;
    exporter->state = OTLP_WAITING;
    exporter->again_ns = clock_now_ns() + exporter->pause_ns;
    exporter->pause_ns = 2 * exporter->pause_ns < PAUSE_MOST_NS ? 2 * exporter->pause_ns : PAUSE_MOST_NS;
}

/* ---- the call ---- */

static void otlp_on_head(void *arg, const struct http_head *head, struct bytes text)
{
    struct otlp_exporter *exporter = arg;

    (void)text;
    exporter->status = head->status;
}

static void otlp_on_body(void *arg, struct bytes piece)
{
    struct otlp_exporter *exporter = arg;

    if (exporter->answer.len_bytes + piece.len_bytes <= ANSWER_BYTES)
        (void)buf_append(&exporter->answer, piece.data, piece.len_bytes);
}

static void otlp_go_on(struct otlp_exporter *exporter);

static bool otlp_may_repeat(int status)
{
    return status == 429 || status == 502 || status == 503 || status == 504;
}

static void otlp_on_end(void *arg, int result, const struct fault *fault)
{
    struct otlp_exporter *exporter = arg;
    char why[64];

    if (result == 0 && exporter->status >= 200 && exporter->status < 300) {
        otlp_end_batch(exporter, true);
    } else if (result == 0 && !otlp_may_repeat(exporter->status)) {
        snprintf(why, sizeof(why), "it answers with status %d", exporter->status);
        otlp_failed(exporter, why);
        otlp_end_batch(exporter, false); /* the same batch would be refused again */
    } else {
        snprintf(why, sizeof(why), "it is overloaded: status %d", exporter->status);
        otlp_failed(exporter, result < 0 && fault != NULL ? fault->text : why);
        if (exporter->n_tries >= MAX_TRIES)
            otlp_end_batch(exporter, false);
    }
    otlp_go_on(exporter);
}

static const struct http_call_events otlp_call_events = {
    .on_head = otlp_on_head, .on_body = otlp_on_body, .on_end = otlp_on_end};

/* Looks the name up on the exporter's own thread, because that may block. */
static int otlp_connect(struct otlp_exporter *exporter, struct fault *fault)
{
    struct http_client_opts opts = {.loop = exporter->loop,
                                    .address = exporter->url.address,
                                    .max_idle_conns = 1,
                                    .connect_ns = 2 * NS_PER_S};

    return exporter->client != NULL ? 0 : http_client_new(&opts, fault, &exporter->client);
}

static void otlp_send(struct otlp_exporter *exporter)
{
    struct http_call_opts opts = {.method = HTTP_POST,
                                  .path = exporter->url.path,
                                  .fields = &exporter->fields,
                                  .body = buf_view(&exporter->batch),
                                  .timeout_ns = CALL_NS,
                                  .may_repeat = true,
                                  .events = &otlp_call_events,
                                  .arg = exporter};
    struct http_call *call;
    struct fault fault = {0};

    exporter->n_tries++;
    exporter->status = 0;
    buf_clear(&exporter->answer);
    exporter->state = OTLP_SENDING;
    if (otlp_connect(exporter, &fault) < 0) {
        otlp_failed(exporter, fault.text);
    } else if (http_client_start(exporter->client, &opts, &call) < 0) {
        otlp_failed(exporter, "out of memory");
    } else {
        return;
    }
    if (exporter->n_tries >= MAX_TRIES)
        otlp_end_batch(exporter, false);
}

/* Begins the next step, if there is one now. */
static void otlp_go_on(struct otlp_exporter *exporter)
{
    bool is_ending = atomic_load(&exporter->is_ending);

    if (exporter->state == OTLP_SENDING)
        return;
    if (exporter->state == OTLP_WAITING && clock_now_ns() < exporter->again_ns) {
        if (is_ending)
            ev_loop_stop(exporter->loop);
        return;
    }
    /* After a dropped batch, the next one waits for the pause. */
    if (exporter->n_batch == 0 && exporter->is_down && clock_now_ns() < exporter->again_ns && !is_ending)
        return;
    if (exporter->n_batch == 0)
        otlp_make_batch(exporter);
    if (exporter->n_batch > 0)
        otlp_send(exporter);
    else if (is_ending)
        ev_loop_stop(exporter->loop);
}

static void otlp_on_tick(void *arg)
{
    struct otlp_exporter *exporter = arg;
    uint64_t n_dropped = span_queue_n_dropped(exporter->queue);

    metric_add(exporter->m_full, (double)(n_dropped - exporter->n_dropped_counted));
    exporter->n_dropped_counted = n_dropped;
    otlp_go_on(exporter);
}

/* ---- the thread ---- */

static void *otlp_run(void *arg)
{
    struct otlp_exporter *exporter = arg;

    (void)ev_loop_run(exporter->loop);
    return NULL;
}

static void otlp_on_last(void *arg)
{
    struct otlp_exporter *exporter = arg;

    ev_loop_stop(exporter->loop);
}

static void otlp_on_ending(void *arg)
{
    struct otlp_exporter *exporter = arg;

    ev_timer_stop(exporter->tick);
    ev_timer_free(exporter->tick);
    exporter->tick = NULL;
    if (ev_timer_new(exporter->loop, otlp_on_last, exporter, &exporter->tick) < 0) {
        ev_loop_stop(exporter->loop);
        return;
    }
    ev_timer_start(exporter->tick, OTLP_LAST_NS);
    otlp_go_on(exporter);
}

static void otlp_declare(struct otlp_exporter *exporter, struct metrics *metrics)
{
    struct metric_family *dropped = metric_family(
        metrics, METRIC_COUNTER, "baton_trace_spans_dropped_total",
        "Spans that did not reach the collector: queue_full, failed (no answer, or a refusal), rejected "
        "(by the collector, one by one).",
        "reason");

    exporter->m_sent = metric_single(metrics, METRIC_COUNTER, "baton_trace_spans_sent_total",
                                     "Spans that the collector took.");
    exporter->m_full = metric_series(dropped, (const char *const[]){"queue_full"});
    exporter->m_failed = metric_series(dropped, (const char *const[]){"failed"});
    exporter->m_rejected = metric_series(dropped, (const char *const[]){"rejected"});
}

static void otlp_exporter_destroy(struct otlp_exporter *exporter)
{
    http_client_free(exporter->client);
    ev_timer_free(exporter->tick);
    ev_loop_free(exporter->loop);
    http_fields_fini(&exporter->fields);
    buf_fini(&exporter->batch);
    buf_fini(&exporter->answer);
    span_queue_free(exporter->queue);
    free(exporter);
}

static int otlp_exporter_open(struct otlp_exporter *exporter, const struct otlp_opts *opts)
{
    str_copy(exporter->service, sizeof(exporter->service), opts->source.service);
    str_copy(exporter->node, sizeof(exporter->node), opts->source.node);
    str_copy(exporter->version, sizeof(exporter->version), opts->source.version);
    exporter->source = (struct otlp_source){
        .service = exporter->service, .node = exporter->node, .version = exporter->version};
    exporter->pause_ns = PAUSE_FIRST_NS;
    otlp_declare(exporter, opts->metrics);
    if (span_queue_new(&exporter->queue) < 0 || ev_loop_new(&exporter->loop) < 0 ||
        ev_timer_new(exporter->loop, otlp_on_tick, exporter, &exporter->tick) < 0 ||
        http_fields_add_str(&exporter->fields, "content-type", "application/x-protobuf") < 0)
        return E_NOMEM;
    ev_timer_repeat(exporter->tick, TICK_NS);
    return thread_start(&exporter->thread, otlp_run, exporter);
}

int otlp_exporter_new(const struct otlp_opts *opts, struct fault *fault, struct otlp_exporter **out)
{
    struct otlp_exporter *exporter;
    struct otlp_url url;
    int rc;

    *out = NULL;
    if (opts->url[0] == '\0')
        return 0;
    rc = otlp_url_read(opts->url, fault, &url);
    if (rc < 0)
        return rc;
    exporter = calloc(1, sizeof(*exporter));
    if (exporter == NULL)
        return fault_set(fault, E_NOMEM, "out of memory");
    exporter->url = url;
    if (otlp_exporter_open(exporter, opts) < 0) {
        otlp_exporter_destroy(exporter);
        return fault_set(fault, E_NOMEM, "cannot start the thread that sends spans");
    }
    *out = exporter;
    return 0;
}

void otlp_exporter_free(struct otlp_exporter *exporter)
{
    if (exporter == NULL)
        return;
    atomic_store(&exporter->is_ending, true);
    if (ev_post(exporter->loop, otlp_on_ending, exporter) < 0)
        ev_loop_stop(exporter->loop);
    pthread_join(exporter->thread, NULL);
    otlp_exporter_destroy(exporter);
}
