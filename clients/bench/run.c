/* SPDX-License-Identifier: Apache-2.0 */
/* All requests share one loop.  Each is a stream with three times: sent, first piece, last piece.
 *
 *   closed loop      a request ends ──> the next is sent
 *   Poisson, trace   a timer fires  ──> every due request is sent, however many run
 *
 * In the open kinds a slow server must not slow the arrivals down; else the figures would be better than the
 * clients' experience.  The report also shows how late this program sent (lag), so that readers do not mistake an
 * overloaded client for a slow server.
 *
 * A piece of text is one token in nearly all cases, so the gap between two pieces is an inter-token latency.
 * The mean time per token uses the server's count of tokens instead; the objective refers to it. */
#include "clients/bench/run.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/list.h"
#include "base/rate.h"
#include "base/str.h"
#include "clients/bench/detail.h"
#include "clients/common/stream.h"
#include "base/event/signals.h"

struct run {
    const struct run_opts *opts;
    struct tally *tally;
    struct list live; /* asks */
    uint32_t n_live;
    uint64_t n_sent; /* warm-up included */
    uint64_t n_ended;
    uint64_t n_failed;
    struct planned next;
    bool has_next;
    bool is_over;
    int result;
    uint64_t began_ns;
    struct ev_timer *arrivals;
    struct ev_timer *progress;
    struct ev_signal *interrupt;
    bool is_terminal;
    struct rate_mean ttft_ms, gap_ms; /* for the progress line */
    uint64_t n_pieces, n_pieces_shown, n_ended_shown, shown_ns;
};

struct ask {
    struct run *run;
    struct list in_live;
    struct stream *stream;
    bool is_counted;
    uint64_t sent_ns;
    uint64_t first_ns; /* 0: nothing came yet */
    uint64_t last_ns;
    struct series itl; /* ms; only with run_opts.detail */
};

static void send_due(void *arg);

/* ---- one request ---- */

static double run_ms(uint64_t ns)
{
    return (double)ns / 1e6;
}

static void run_on_piece(void *arg, enum answer_part part, struct bytes text)
{
    struct ask *ask = arg;
    struct run *run = ask->run;
    uint64_t now_ns = clock_now_ns();

    if (part == ANSWER_TOOL || part == ANSWER_BLOCK_END)
        return; /* arrive with a counted token */
    run->n_pieces++;
    if (ask->first_ns == 0) {
        ask->first_ns = now_ns;
        rate_observe(&run->ttft_ms, run_ms(now_ns - ask->sent_ns), 0.1);
    } else {
        rate_observe(&run->gap_ms, run_ms(now_ns - ask->last_ns), 0.02);
        if (ask->is_counted)
            series_add(&run->tally->itl, run_ms(now_ns - ask->last_ns));
        if (ask->is_counted && run->opts->detail != NULL)
            series_add(&ask->itl, run_ms(now_ns - ask->last_ns));
    }
    ask->last_ns = now_ns;
}

static void count_serving(struct tally *tally, const struct answer *answer)
{
    const struct answer_serving *serving = &answer->serving;

    tally->answer_tokens += answer->output_tokens;
    if (!serving->is_there) {
        tally->prompt_tokens += answer_prompt_tokens(answer);
        tally->reused_tokens += answer->cache_read_tokens;
        return;
    }
    tally->n_served++;
    tally->n_handed_off += serving->transferred > 0;
    tally->n_redispatched += serving->redispatched;
    tally->n_preempted += serving->preempted;
    tally->prompt_tokens += serving->prompt;
    tally->computed_tokens += serving->computed;
    tally->reused_tokens += serving->reused;
    tally->transferred_tokens += serving->transferred;
    series_add(&tally->queue, serving->queue_ms);
    series_add(&tally->prefill, serving->prefill_ms);
    series_add(&tally->transfer, serving->transfer_ms);
    series_add(&tally->decode, serving->decode_ms);
}

static void count_whole(struct run *run, const struct ask *ask, const struct answer *answer, uint64_t now_ns)
{
    struct tally *tally = run->tally;
    uint64_t first_ns = ask->first_ns > 0 ? ask->first_ns : now_ns; /* an empty answer */
    double per_token_ms = 0;
    bool keeps_ttft = first_ns - ask->sent_ns <= run->opts->bench->ttft_slo_ns;
    bool keeps_itl;

    if (answer->output_tokens > 1 && ask->first_ns > 0) {
        per_token_ms = run_ms(ask->last_ns - first_ns) / (double)(answer->output_tokens - 1);
        series_add(&tally->per_token, per_token_ms);
    }
    keeps_itl = per_token_ms <= run_ms(run->opts->bench->itl_slo_ns);
    series_add(&tally->ttft, run_ms(first_ns - ask->sent_ns));
    series_add(&tally->e2e, run_ms(now_ns - ask->sent_ns));
    tally->n_whole++;
    tally->n_ttft_kept += keeps_ttft;
    tally->n_itl_kept += keeps_itl;
    tally->n_both_kept += keeps_ttft && keeps_itl;
    count_serving(tally, answer);
}

/* answer NULL: the run ended before it. */
static void run_save_detail(const struct ask *ask, const struct answer *answer, uint64_t now_ns)
{
    const struct run *run = ask->run;

    if (run->opts->detail != NULL && ask->is_counted)
        detail_write(&(struct detail){.began_ns = run->began_ns,
                                      .sent_ns = ask->sent_ns,
                                      .first_ns = ask->first_ns,
                                      .ended_ns = now_ns,
                                      .itl = &ask->itl,
                                      .answer = answer},
                     run->opts->detail);
}

static void run_ask_free(struct ask *ask)
{
    list_remove(&ask->in_live);
    series_fini(&ask->itl);
    ask->run->n_live--;
    free(ask);
}

static void run_finish(struct run *run, int result)
{
    run->is_over = true;
    run->result = result;
    ev_loop_stop(run->opts->loop);
}

static void run_on_over(void *arg, const struct answer *answer)
{
    struct ask *ask = arg;
    struct run *run = ask->run;
    uint64_t now_ns = clock_now_ns();

    run->n_ended++;
    run->n_failed += !answer->is_whole;
    run_save_detail(ask, answer, now_ns);
    if (ask->is_counted) {
        run->tally->ended_ns = now_ns;
        if (answer->is_whole) {
            count_whole(run, ask, answer, now_ns);
        } else {
            run->tally->n_failed++;
            tally_error(run->tally, answer->error_type, answer->error_text);
        }
    }
    run_ask_free(ask);
    if (run->is_over)
        return;
    if (run->opts->bench->load == BENCH_CLOSED)
        send_due(run);
    if (!run->has_next && run->n_live == 0 && !run->is_over)
        run_finish(run, 0);
}

/* ---- sending ---- */

static int put_body(const struct run *run, const struct planned *planned, struct buf *out)
{
    struct buf prompt = {0};
    int rc = prompt_put(run->opts->maker, planned, &prompt);

    if (rc == 0) {
        buf_append_str(out, "{\"model\": ");
        json_put_str(out, bytes_str(run->opts->model));
        buf_printf(out, ", \"max_tokens\": %u, \"stream\": true, \"temperature\": %.9g, \"seed\": %" PRIu64,
                   planned->answer_tokens, run->opts->bench->temperature,
                   (run->opts->bench->seed + planned->index) & INT64_MAX);
        buf_append_str(out, ", \"messages\": [{\"role\": \"user\", \"content\": ");
        json_put_str(out, buf_view(&prompt));
        rc = buf_append_str(out, "}]}");
    }
    buf_fini(&prompt);
    return rc;
}

static int send_one(struct run *run, const struct planned *planned)
{
    const struct run_opts *opts = run->opts;
    struct stream_opts stream = {.loop = opts->loop,
                                 .client = opts->client,
                                 .path = opts->path,
                                 .fields = opts->fields,
                                 .timeout_ns = opts->bench->timeout_ns,
                                 .on_piece = run_on_piece,
                                 .on_over = run_on_over};
    struct ask *ask = calloc(1, sizeof(*ask));
    struct buf body = {0};
    int rc = ask == NULL ? E_NOMEM : put_body(run, planned, &body);

    if (rc == 0) {
        ask->run = run;
        ask->is_counted = run->n_sent >= opts->bench->n_warmup;
        ask->sent_ns = clock_now_ns();
        stream.arg = ask;
        stream.body = buf_view(&body);
        rc = stream_start(&stream, &ask->stream);
    }
    buf_fini(&body);
    if (rc < 0) {
        free(ask);
        return rc;
    }
    list_push_back(&run->live, &ask->in_live);
    run->n_live++;
    run->n_sent++;
    if (!ask->is_counted) {
        run->tally->n_warmup++;
        return 0;
    }
    if (run->tally->n_sent++ == 0)
        run->tally->began_ns = ask->sent_ns;
    if (opts->bench->load != BENCH_CLOSED)
        series_add(&run->tally->lag, run_ms(ask->sent_ns - run->began_ns) - run_ms(planned->at_ns));
    return 0;
}

/* Returns whether the next request is due; else *wait_ns_out is the time until then (0: when a request ends).
 */
static bool is_due(const struct run *run, uint64_t *wait_ns_out)
{
    uint64_t since_ns = clock_now_ns() - run->began_ns;

    *wait_ns_out = 0;
    if (run->opts->bench->load == BENCH_CLOSED)
        return run->n_live < run->opts->bench->concurrency;
    if (run->next.at_ns <= since_ns)
        return true;
    *wait_ns_out = run->next.at_ns - since_ns;
    return false;
}

static void send_due(void *arg)
{
    struct run *run = arg;
    const struct bench_opts *bench = run->opts->bench;
    uint64_t wait_ns;

    while (run->has_next && !run->is_over) {
        int rc;

        if (bench->load == BENCH_CLOSED && bench->duration_ns > 0 &&
            clock_now_ns() - run->began_ns >= bench->duration_ns) {
            run->has_next = false;
            break;
        }
        if (!is_due(run, &wait_ns)) {
            if (wait_ns > 0)
                ev_timer_start(run->arrivals, wait_ns);
            break;
        }
        rc = send_one(run, &run->next);
        if (rc < 0) {
            run_finish(run, rc);
            return;
        }
        run->has_next = plan_next(run->opts->plan, &run->next);
    }
    if (!run->has_next && run->n_live == 0)
        run_finish(run, run->result);
}

/* ---- progress ---- */

static void run_on_progress(void *arg)
{
    struct run *run = arg;
    uint64_t now_ns = clock_now_ns();
    double since_s = (double)(now_ns - run->shown_ns) / 1e9;

    fprintf(stderr,
            "%s[%5.1f s] sent %" PRIu64 ", under way %u, ended %" PRIu64 ", failed %" PRIu64
            " | %.1f requests/s, %.0f tokens/s | TTFT %.0f ms, ITL %.1f ms%s",
            run->is_terminal ? "\r" : "", (double)(now_ns - run->began_ns) / 1e9, run->n_sent, run->n_live,
            run->n_ended, run->n_failed, (double)(run->n_ended - run->n_ended_shown) / since_s,
            (double)(run->n_pieces - run->n_pieces_shown) / since_s, rate_get(&run->ttft_ms, 0),
            rate_get(&run->gap_ms, 0), run->is_terminal ? "\033[K" : "\n");
    run->shown_ns = now_ns;
    run->n_ended_shown = run->n_ended;
    run->n_pieces_shown = run->n_pieces;
}

static void run_on_interrupt(void *arg)
{
    struct run *run = arg;

    run_finish(run, E_CANCELLED);
}

/* Requests that still run at the end are cancelled, and counted as such. */
static void cut_live(struct run *run)
{
    struct list *node;

    while ((node = run->live.next) != &run->live) {
        struct ask *ask = container_of(node, struct ask, in_live);

        stream_cancel(ask->stream);
        run_save_detail(ask, NULL, clock_now_ns());
        if (ask->is_counted) {
            run->tally->n_cut++;
            run->tally->ended_ns = clock_now_ns();
        }
        run_ask_free(ask);
    }
}

int run_bench(const struct run_opts *opts, struct tally *tally)
{
    struct run run = {.opts = opts, .tally = tally, .is_terminal = isatty(STDERR_FILENO)};
    int rc = ev_timer_new(opts->loop, send_due, &run, &run.arrivals);

    list_init(&run.live);
    if (rc == 0)
        rc = ev_timer_new(opts->loop, run_on_progress, &run, &run.progress);
    if (rc == 0)
        rc = ev_signal_new(opts->loop, SIGINT, run_on_interrupt, &run, &run.interrupt);
    if (rc == 0) {
        run.began_ns = run.shown_ns = clock_now_ns();
        ev_timer_repeat(run.progress, run.is_terminal ? NS_PER_S / 2 : 10 * NS_PER_S);
        run.has_next = plan_next(opts->plan, &run.next);
        send_due(&run);
        ev_loop_run(opts->loop);
        rc = run.result;
        cut_live(&run);
    }
    if (run.is_terminal)
        fprintf(stderr, "\r\033[K");
    ev_signal_free(run.interrupt);
    ev_timer_free(run.progress);
    ev_timer_free(run.arrivals);
    return rc;
}
