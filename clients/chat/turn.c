/* SPDX-License-Identifier: Apache-2.0 */
/* A turn runs the loop until the stream ends or the user presses Ctrl-C.  SIGINT belongs to the turn only
 * while it runs; otherwise to the line editor.
 *
 * The timing line shows the server's own figures (its serving stats) where it sends them.  Otherwise it shows
 * figures measured here, which include the network. */
#include "clients/chat/turn.h"

#include <inttypes.h>
#include <signal.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/str.h"
#include "base/event/signals.h"

struct running {
    const struct stream_opts *opts; /* owned by the caller */
    struct turn *turn;
    struct stream *stream; /* NULL: over */
    uint64_t began_ns;
};

static void turn_on_interrupt(void *arg)
{
    struct running *run = arg;

    if (run->stream == NULL)
        return;
    stream_cancel(run->stream);
    run->stream = NULL;
    run->turn->is_aborted = true;
    ev_loop_stop(run->opts->loop);
}

static void keep_call(struct running *run, enum answer_part part, struct bytes text)
{
    struct turn *turn = run->turn;
    struct turn_call *call = &turn->calls[turn->n_calls > 0 ? turn->n_calls - 1 : 0];

    if (part == ANSWER_TOOL && turn->n_calls < TURN_MAX_CALLS) {
        call = &turn->calls[turn->n_calls++];
        str_copy(call->id, sizeof(call->id), stream_answer(run->stream)->tool_id);
        buf_append(&call->name, text.data, text.len_bytes);
    } else if (part == ANSWER_TOOL_INPUT && turn->n_calls > 0 && !call->is_whole) {
        buf_append(&call->input, text.data, text.len_bytes);
    } else if (part == ANSWER_BLOCK_END && turn->n_calls > 0) {
        call->is_whole = true;
    }
}

static void turn_on_piece(void *arg, enum answer_part part, struct bytes text)
{
    struct running *run = arg;
    struct turn *turn = run->turn;

    if (part != ANSWER_BLOCK_END && turn->n_pieces++ == 0)
        turn->first_ns = clock_now_ns() - run->began_ns;
    if (part == ANSWER_TEXT)
        buf_append(&turn->text, text.data, text.len_bytes);
    else
        keep_call(run, part, text);
    run->opts->on_piece(run->opts->arg, part, text);
}

static void turn_on_over(void *arg, const struct answer *answer)
{
    struct running *run = arg;

    run->turn->answer = *answer;
    run->turn->answer.sse = NULL; /* owned by the stream */
    run->stream = NULL;
    ev_loop_stop(run->opts->loop);
}

void turn_run(const struct stream_opts *opts, struct turn *turn)
{
    struct running run = {.opts = opts, .turn = turn};
    struct stream_opts own = *opts;
    struct ev_signal *interrupt = NULL;
    int rc;

    *turn = (struct turn){0};
    own.on_piece = turn_on_piece;
    own.on_over = turn_on_over;
    own.arg = &run;
    run.began_ns = clock_now_ns();
    rc = ev_signal_new(opts->loop, SIGINT, turn_on_interrupt, &run, &interrupt);
    if (rc == 0)
        rc = stream_start(&own, &run.stream);
    if (rc == 0)
        rc = ev_loop_run(opts->loop);
    if (rc < 0) {
        if (run.stream != NULL)
            stream_cancel(run.stream);
        turn->answer.is_failed = true;
        str_copy(turn->answer.error_type, sizeof(turn->answer.error_type), "client_error");
        str_copy(turn->answer.error_text, sizeof(turn->answer.error_text), err_text(rc));
    }
    turn->total_ns = clock_now_ns() - run.began_ns;
    ev_signal_free(interrupt);
}

void turn_fini(struct turn *turn)
{
    for (size_t i = 0; i < turn->n_calls; i++) {
        buf_fini(&turn->calls[i].name);
        buf_fini(&turn->calls[i].input);
    }
    buf_fini(&turn->text);
}

static double per_token(double first_ms, double total_ms, uint64_t tokens)
{
    return tokens > 1 && total_ms > first_ms ? (total_ms - first_ms) / (double)(tokens - 1) : 0;
}

void turn_put_timings(const struct turn *turn, struct buf *out)
{
    const struct answer_serving *serving = &turn->answer.serving;
    uint64_t tokens = serving->is_there ? serving->drawn : turn->answer.output_tokens;
    double first_ms = serving->is_there ? serving->ttft_ms : (double)turn->first_ns / 1e6;
    double total_ms = serving->is_there ? serving->total_ms : (double)turn->total_ns / 1e6;
    double gap_ms = per_token(first_ms, total_ms, tokens);

    buf_printf(out, "[TTFT %.0f ms, ITL %.1f ms", first_ms, gap_ms);
    if (gap_ms > 0)
        buf_printf(out, " (%.0f tokens/s)", 1000 / gap_ms);
    buf_printf(out, ", %" PRIu64 " tokens in %.0f ms", tokens, total_ms);
    if (!serving->is_there) {
        buf_append_str(out, "; measured here, the server gave no serving stats]\n");
        return;
    }
    buf_printf(out, "; prompt %" PRIu64 ": computed %" PRIu64 ", reused %" PRIu64 ", transferred %" PRIu64,
               serving->prompt, serving->computed, serving->reused, serving->transferred);
    if (serving->transport[0] != '\0')
        buf_printf(out, " over %s", serving->transport);
    if (serving->prefill[0] != '\0')
        buf_printf(out, "; %s -> %s", serving->prefill, serving->decode);
    else if (serving->decode[0] != '\0')
        buf_printf(out, "; %s alone", serving->decode);
    buf_printf(out, "; queue %.1f, prefill %.1f, transfer %.1f, decode %.1f ms", serving->queue_ms,
               serving->prefill_ms, serving->transfer_ms, serving->decode_ms);
    if (serving->redispatched > 0 || serving->preempted > 0)
        buf_printf(out, "; redispatched %" PRIu64 ", preempted %" PRIu64, serving->redispatched,
                   serving->preempted);
    buf_append_str(out, "]\n");
}
