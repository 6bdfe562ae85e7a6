/* SPDX-License-Identifier: Apache-2.0 */
/* The way of a token to the client:
 *
 *     token ──detok──> characters ──calls (if the request has tools)──┬──> arguments ────────────> sink
 *                                                                     └──> text ──stop strings──> sink
 *
 * Stop strings are matched in text only, never in a call's arguments; a call ends the run of text before it,
 * so what the matcher holds back then is delivered.  Text of one push is gathered and given on once. */
#include "front/answer.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "front/ids.h"
#include "sample/stop.h"

enum open_block { OPEN_NONE, OPEN_TEXT, OPEN_CALL };

struct answer {
    const struct answer_sink *sink;
    void *arg;
    struct detok detok;
    token_id open_id; /* a control token that is the marker of calls, or TOKEN_NONE */
    token_id close_id;
    struct calls *calls; /* NULL: no tools */
    struct stop *stop;   /* NULL: no stop strings */
    bool is_single_call;
    enum open_block open;
    struct buf piece;    /* detokenised text of one token */
    struct buf text;     /* to be delivered at the end of the push */
    unsigned n_calls;    /* whole ones */
    uint32_t n_thinking; /* tokens */
    bool is_matched;
    bool is_over;
    size_t stop_index;
    enum gen_stop why;
};

static int flush_text(struct answer *answer)
{
    int rc = 0;

    if (answer->text.is_bad)
        return E_NOMEM;
    if (answer->text.len_bytes == 0)
        return 0;
    if (answer->open == OPEN_NONE) {
        answer->open = OPEN_TEXT;
        rc = answer->sink->open_text(answer->arg);
    }
    if (rc == 0)
        rc = answer->sink->text(answer->arg, buf_view(&answer->text));
    buf_clear(&answer->text);
    return rc;
}

static int close_block(struct answer *answer, enum calls_end how)
{
    if (answer->open == OPEN_NONE)
        return 0;
    answer->open = OPEN_NONE;
    return answer->sink->close(answer->arg, how);
}

/* ---- from the splitter ---- */

static int on_text(void *arg, struct bytes text)
{
    struct answer *answer = arg;
    int match;

    if (answer->stop == NULL)
        return buf_append(&answer->text, text.data, text.len_bytes);
    match = stop_feed(answer->stop, text, &answer->text);
    if (match < -1)
        return match;
    if (match < 0)
        return 0;
    answer->is_matched = true;
    answer->stop_index = (size_t)match;
    return E_CANCELLED;
}

/* The run of text is over. */
static int end_text(struct answer *answer)
{
    int rc = answer->stop == NULL || answer->is_matched ? 0 : stop_flush(answer->stop, &answer->text);

    if (rc == 0)
        rc = flush_text(answer);
    if (rc == 0 && answer->open == OPEN_TEXT)
        rc = close_block(answer, CALLS_WHOLE);
    return rc;
}

static int on_begin(void *arg, struct bytes name)
{
    struct answer *answer = arg;
    char id[IDS_BYTES];
    int rc = end_text(answer);

    if (rc < 0)
        return rc;
    ids_make("toolu_", id);
    answer->open = OPEN_CALL;
    return answer->sink->open_call(answer->arg, id, name);
}

static int on_arguments(void *arg, struct bytes piece)
{
    struct answer *answer = arg;

    return answer->sink->arguments(answer->arg, piece);
}

static int on_end(void *arg, enum calls_end how)
{
    struct answer *answer = arg;
    int rc = close_block(answer, how);

    answer->n_calls += how == CALLS_WHOLE;
    if (rc == 0 && how == CALLS_WHOLE && answer->is_single_call)
        rc = E_CANCELLED;
    return rc;
}

static const struct calls_events events = {on_text, on_begin, on_arguments, on_end};

/* ---- making ---- */

/* A marker that is a control token is not in the detokenised text; it is put back for the splitter. */
static token_id control_marker(const struct tokenizer *tokenizer, const char *marker)
{
    token_id id = tokenizer_find(tokenizer, bytes_str(marker));

    return id != TOKEN_NONE && tokenizer_is_control(tokenizer, id) ? id : TOKEN_NONE;
}

int answer_new(const struct answer_opts *opts, const struct answer_sink *sink, void *arg, struct answer **out)
{
    const struct tokenizer *tokenizer = opts->model->tokenizer;
    const struct gen_request *request = opts->request;
    struct answer *answer = calloc(1, sizeof(*answer));
    int rc = 0;

    if (answer == NULL)
        return E_NOMEM;
    answer->sink = sink;
    answer->arg = arg;
    answer->is_single_call = request->is_single_call;
    answer->open_id = answer->close_id = TOKEN_NONE;
    detok_init(&answer->detok, tokenizer, request->prefill.len_bytes > 0);
    if (request->n_tools > 0 && request->tool_choice != GEN_TOOLS_NONE) {
        rc = calls_new(&events, answer, &answer->calls);
        answer->open_id = control_marker(tokenizer, "<tool_call>");
        answer->close_id = control_marker(tokenizer, "</tool_call>");
    }
    if (rc == 0 && request->n_stop_sequences > 0)
        rc = stop_new(request->stop_sequences, request->n_stop_sequences, &answer->stop);
    if (rc < 0)
        answer_free(answer);
    else
        *out = answer;
    return rc;
}

void answer_free(struct answer *answer)
{
    if (answer == NULL)
        return;
    calls_free(answer->calls);
    stop_free(answer->stop);
    buf_fini(&answer->piece);
    buf_fini(&answer->text);
    free(answer);
}

/* ---- feeding ---- */

static int push_one(struct answer *answer, token_id id)
{
    struct bytes text;
    int rc = 0;

    buf_clear(&answer->piece);
    if (id == answer->open_id)
        rc = buf_append_str(&answer->piece, "<tool_call>");
    else if (id == answer->close_id)
        rc = buf_append_str(&answer->piece, "</tool_call>");
    else
        rc = detok_push(&answer->detok, id, &answer->piece);
    text = buf_view(&answer->piece);
    if (rc < 0 || text.len_bytes == 0)
        return rc < 0 ? rc : 0;
    return answer->calls != NULL ? calls_feed(answer->calls, text) : on_text(answer, text);
}

/* Ends the answer for a reason that lies in its text. */
static int end_early(struct answer *answer)
{
    int rc = end_text(answer);

    answer->is_over = true;
    answer->why = answer->is_matched ? GEN_STOP_SEQUENCE : GEN_STOP_TOOL_USE;
    return rc < 0 ? rc : 1;
}

int answer_push(struct answer *answer, const token_id *ids, size_t n)
{
    int rc = 0;

    if (answer->is_over)
        return 1;
    for (size_t i = 0; i < n && rc == 0; i++)
        rc = push_one(answer, ids[i]);
    if (rc == E_CANCELLED)
        return end_early(answer);
    return rc < 0 ? rc : flush_text(answer);
}

int answer_finish(struct answer *answer, enum gen_stop limit)
{
    bool is_cut = limit != GEN_STOP_END_TURN;
    int rc = 0;

    if (answer->is_over)
        return 0;
    detok_finish(&answer->detok);
    if (answer->calls != NULL)
        rc = calls_finish(answer->calls, is_cut);
    if (rc == E_CANCELLED) {
        rc = end_early(answer);
        return rc < 0 ? rc : 0;
    }
    if (rc == 0)
        rc = end_text(answer);
    answer->is_over = true;
    answer->why = !is_cut && answer->n_calls > 0 ? GEN_STOP_TOOL_USE : limit;
    return rc;
}

enum gen_stop answer_stop(const struct answer *answer)
{
    return answer->why;
}

size_t answer_stop_index(const struct answer *answer)
{
    return answer->stop_index;
}

uint32_t answer_thinking_tokens(const struct answer *answer)
{
    return answer->n_thinking;
}
