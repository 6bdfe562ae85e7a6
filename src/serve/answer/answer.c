/* SPDX-License-Identifier: Apache-2.0 */
/* The path of a token to the client:
 *
 *     token ──detok──> characters ──calls──┬──> arguments ────────────> sink
 *                                          ├──> thinking ──signature──> sink
 *                                          └──> text ──stop strings───> sink
 *
 * Stop strings match in text only, never in thinking or a call's arguments.  A match that ends within the first
 * min_tokens tokens does not count.  A call ends the text before it, so the matcher then delivers the text it holds
 * back.  The text of one push is collected and delivered once. */
#include "serve/answer/answer.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "serve/api/ids.h"
#include "serve/access/sign.h"

#define MAX_MARKS 20

enum open_block { OPEN_NONE, OPEN_TEXT, OPEN_THINKING, OPEN_CALL };

struct answer { /* fields that every token needs come first */
    const struct answer_sink *sink;
    void *arg;
    struct calls *calls;
    struct answer_scratch *scratch;
    struct detok detok;
    struct stop *stop; /* NULL: no stop strings */
    enum open_block open;
    uint32_t n_thinking;     /* number of thinking tokens */
    uint32_t n_tokens;       /* the token that is being pushed included */
    uint32_t min_tokens;     /* no stop string ends in the text of tokens up to this one: */
    uint64_t n_fed, n_early; /* bytes that the splitter got, and those of them from such tokens */
    bool hides_thinking;
    bool is_over;
    bool is_matched;
    bool is_single_call;
    bool is_forced; /* the answer may hold only calls */
    uint8_t n_marks;
    token_id marks[MAX_MARKS]; /* control tokens that the splitter must see ... */

    const char *spellings[MAX_MARKS]; /* ... and their text */
    const char *call_prefix, *id_seed;
    uint32_t n_ids;     /* number of call ids made */
    struct buf thought; /* the text of the open thinking block, to be signed */
    unsigned n_calls;   /* complete calls */
    size_t stop_index;
    size_t cut_bytes; /* of the splitter's text, from the beginning of the match on */
    enum gen_stop why;
};

static int flush_text(struct answer *answer)
{
    int rc = 0;

    if (answer->scratch->text.is_bad)
        return E_NOMEM;
    if (answer->scratch->text.len_bytes == 0)
        return 0;
    if (answer->open == OPEN_NONE) {
        answer->open = OPEN_TEXT;
        rc = answer->sink->open_text(answer->arg);
    }
    if (rc == 0 && answer->open == OPEN_THINKING)
        rc = answer->sink->thinking(answer->arg, buf_view(&answer->scratch->text));
    else if (rc == 0)
        rc = answer->sink->text(answer->arg, buf_view(&answer->scratch->text));
    buf_clear(&answer->scratch->text);
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

static int answer_on_text(void *arg, struct bytes text)
{
    struct answer *answer = arg;
    uint64_t begin;
    size_t n_early;
    int match;

    if (answer->stop == NULL)
        return buf_append(&answer->scratch->text, text.data, text.len_bytes);
    /* The splitter may have held text of earlier tokens back. */
    begin = answer->n_fed - calls_n_behind(answer->calls, text) - text.len_bytes;
    n_early = answer->n_early > begin ? (size_t)(answer->n_early - begin) : 0;
    n_early = n_early < text.len_bytes ? n_early : text.len_bytes;
    match = stop_pass(answer->stop, bytes_of(text.data, n_early), &answer->scratch->text);
    if (match < 0)
        return match;
    match = stop_feed(answer->stop, bytes_of(text.data + n_early, text.len_bytes - n_early),
                      &answer->scratch->text);
    if (match < -1)
        return match;
    if (match < 0)
        return 0;
    answer->is_matched = true;
    answer->cut_bytes = stop_held_bytes(answer->stop) + calls_n_behind(answer->calls, text);
    answer->stop_index = (size_t)match;
    return E_CANCELLED;
}

/* Ends the current run of text. */
static int end_text(struct answer *answer)
{
    int rc =
        answer->stop == NULL || answer->is_matched ? 0 : stop_flush(answer->stop, &answer->scratch->text);

    if (rc == 0)
        rc = flush_text(answer);
    if (rc == 0 && answer->open == OPEN_TEXT)
        rc = close_block(answer, CALLS_WHOLE);
    return rc;
}

static int answer_on_thinking(void *arg, struct bytes text)
{
    struct answer *answer = arg;
    int rc = 0;

    if (answer->open != OPEN_THINKING) {
        rc = end_text(answer);
        if (rc < 0)
            return rc;
        answer->open = OPEN_THINKING;
        buf_clear(&answer->thought);
        rc = answer->sink->open_thinking(answer->arg);
    }
    if (rc == 0)
        rc = buf_append(&answer->thought, text.data, text.len_bytes);
    if (rc == 0 && !answer->hides_thinking)
        rc = buf_append(&answer->scratch->text, text.data, text.len_bytes);
    return rc;
}

static int on_thought(void *arg)
{
    struct answer *answer = arg;
    char signature[SIGN_CHARS + 1];
    int rc = flush_text(answer);

    if (rc == 0)
        rc = sign_thinking(buf_view(&answer->thought), signature);
    if (rc == 0)
        rc = answer->sink->signature(answer->arg, bytes_of(signature, SIGN_CHARS));
    return rc < 0 ? rc : close_block(answer, CALLS_WHOLE);
}

static int on_begin(void *arg, struct bytes name)
{
    struct answer *answer = arg;
    char id[IDS_BYTES];
    int rc = end_text(answer);

    if (rc < 0)
        return rc;
    if (answer->id_seed != NULL)
        ids_derive(answer->call_prefix, answer->id_seed, answer->n_ids++, id);
    else
        ids_make(answer->call_prefix, id);
    answer->open = OPEN_CALL;
    return answer->sink->open_call(answer->arg, id, name);
}

static int answer_on_arguments(void *arg, struct bytes piece)
{
    struct answer *answer = arg;

    return answer->sink->arguments(answer->arg, piece);
}

static int answer_on_end(void *arg, enum calls_end how)
{
    struct answer *answer = arg;
    int rc = close_block(answer, how);

    answer->n_calls += how == CALLS_WHOLE;
    if (rc == 0 && how == CALLS_WHOLE && answer->is_single_call)
        rc = E_CANCELLED;
    return rc;
}

static const struct calls_events events = {answer_on_text, answer_on_thinking,  on_thought,
                                           on_begin,       answer_on_arguments, answer_on_end};

/* ---- making ---- */

/* Detokenised text lacks marks that are control tokens; this adds one back for the splitter. */
static void add_mark(struct answer *answer, const char *spelling)
{
    const struct tokenizer *tokenizer = answer->detok.tokenizer;
    token_id id = spelling == NULL ? TOKEN_NONE : tokenizer_find(tokenizer, bytes_str(spelling));

    for (size_t i = 0; i < answer->n_marks; i++)
        if (answer->marks[i] == id)
            return;
    if (id != TOKEN_NONE && tokenizer_is_control(tokenizer, id) && answer->n_marks < MAX_MARKS) {
        answer->marks[answer->n_marks] = id;
        answer->spellings[answer->n_marks++] = spelling;
    }
}

/* The same for a mark that the format puts together from several tokens. */
static void add_parts(struct answer *answer, enum calls_format format, const char *spelling)
{
    add_mark(answer, spelling);
    for (const char *const *part = calls_marks(format); spelling != NULL && *part != NULL; part++)
        if (strstr(spelling, *part) != NULL)
            add_mark(answer, *part);
}

static int make_splitter(struct answer *answer, const struct answer_opts *opts)
{
    const struct chat_format_info *info = chat_format_info(opts->model->chat);
    const struct gen_request *request = opts->request;
    struct calls_opts calls = {.format = info->calls,
                               .answers = info->answers,
                               .ignores_calls =
                                   request->n_tools == 0 || request->tool_choice == GEN_TOOLS_NONE,
                               .think_open = info->think_open,
                               .think_close = info->think_close,
                               .think_name = info->think_name,
                               .think_is_words = info->think_is_words,
                               .think_open_also = info->think_open_also,
                               .think_close_also = info->think_close_also,
                               .begins_thinking = opts->begins_thinking,
                               .tools = calloc(request->n_tools + 1, sizeof(struct calls_tool)),
                               .n_tools = request->n_tools};

    if (calls.tools == NULL)
        return E_NOMEM;
    if (request->n_prompts > 0) { /* raw prompts have no conversation and no chat format */
        calls.format = calls.answers = CALLS_PLAIN;
        calls.think_open = calls.think_close = calls.think_name = NULL;
        calls.think_open_also = calls.think_close_also = NULL;
    }
    for (size_t i = 0; i < request->n_tools; i++)
        calls.tools[i] =
            (struct calls_tool){request->tools[i].name, request->tools[i].short_schema.len_bytes > 0
                                                            ? request->tools[i].short_schema
                                                            : request->tools[i].input_schema};
    add_parts(answer, calls.answers, calls.think_open);
    add_parts(answer, calls.answers, calls.think_close);
    for (size_t i = 0; i < CALLS_MAX_ANSWER_MARKS; i++)
        add_parts(answer, calls.answers, calls_row_of(calls.answers)->answer[i]);
    if (!calls.ignores_calls || calls.format == CALLS_HARMONY)
        for (const char *const *mark = calls_marks(calls.format); *mark != NULL; mark++)
            add_mark(answer, *mark);
    return calls_new(&calls, &events, answer, &answer->calls);
}

int answer_new(const struct answer_opts *opts, const struct answer_sink *sink, void *arg, struct answer **out)
{
    const struct gen_request *request = opts->request;
    struct answer *answer = calloc(1, sizeof(*answer));
    int rc;

    if (answer == NULL)
        return E_NOMEM;
    answer->sink = sink;
    answer->scratch = opts->scratch;
    answer->arg = arg;
    answer->id_seed = opts->id_seed;
    answer->call_prefix = request->call_prefix != NULL ? request->call_prefix : "toolu_";
    answer->is_single_call = request->is_single_call;
    answer->is_forced = request->tool_choice == GEN_TOOLS_ANY || request->tool_choice == GEN_TOOLS_ONE;
    answer->hides_thinking = request->hides_thinking;
    answer->min_tokens = request->work.sample.min_tokens;
    detok_init(&answer->detok, opts->model->tokenizer,
               request->prefill.len_bytes > 0 || request->n_prompts > 0);
    rc = make_splitter(answer, opts);
    if (rc == 0 && opts->stops != NULL)
        rc = stop_new(opts->stops, &answer->stop);
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
    buf_fini(&answer->thought);
    free(answer);
}

void answer_scratch_fini(struct answer_scratch *scratch)
{
    buf_fini(&scratch->piece);
    buf_fini(&scratch->text);
}

/* ---- feeding ---- */

int answer_spell(const struct answer *answer, struct detok *detok, token_id id, struct buf *text)
{
    size_t i = 0;

    while (i < answer->n_marks && answer->marks[i] != id)
        i++;
    if (i == answer->n_marks)
        return detok_push(detok, id, text);
    detok_break(detok, text);
    return buf_append_str(text, answer->spellings[i]);
}

static int push_one(struct answer *answer, token_id id)
{
    bool was_thinking = calls_is_thinking(answer->calls);
    struct bytes text;
    int rc;

    answer->n_tokens++;
    buf_clear(&answer->scratch->piece);
    rc = answer_spell(answer, &answer->detok, id, &answer->scratch->piece);
    text = buf_view(&answer->scratch->piece);
    answer->n_fed += text.len_bytes;
    if (answer->n_tokens <= answer->min_tokens)
        answer->n_early = answer->n_fed;
    if (rc == 0 && text.len_bytes > 0)
        rc = calls_feed(answer->calls, text);
    answer->n_thinking += was_thinking || calls_is_thinking(answer->calls);
    return rc;
}

void answer_fetch(const struct answer *answer, bool is_deep)
{
    if (is_deep)
        mem_prefetch(answer->calls, MEM_CACHE_LINE);
    else
        mem_prefetch(answer, offsetof(struct answer, spellings));
}

/* Ends the answer because of its text. */
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
    buf_clear(&answer->scratch->text); /* a failed answer may have left text */
    for (size_t i = 0; i < n && rc == 0; i++)
        rc = push_one(answer, ids[i]);
    if (rc == E_CANCELLED)
        return end_early(answer);
    return rc < 0 ? rc : flush_text(answer);
}

/* A forced call ends where the tokens end; such an answer is complete. */
static bool ends_in_call(const struct answer *answer, bool was_inside)
{
    return answer->n_calls > 0 && !was_inside && answer->is_forced;
}

int answer_finish(struct answer *answer, enum gen_stop limit)
{
    bool is_cut = limit != GEN_STOP_END_TURN;
    bool was_inside = calls_is_open(answer->calls);
    int rc;

    if (answer->is_over)
        return 0;
    buf_clear(&answer->scratch->text);
    detok_finish(&answer->detok);
    rc = calls_finish(answer->calls, is_cut);
    if (rc == E_CANCELLED) {
        rc = end_early(answer);
        return rc < 0 ? rc : 0;
    }
    if (rc == 0)
        rc = end_text(answer);
    answer->is_over = true;
    answer->why =
        (is_cut ? ends_in_call(answer, was_inside) : answer->n_calls > 0) ? GEN_STOP_TOOL_USE : limit;
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

size_t answer_cut_bytes(const struct answer *answer)
{
    return answer->cut_bytes;
}

uint32_t answer_tokens(const struct answer *answer)
{
    return answer->n_tokens;
}

uint32_t answer_thinking_tokens(const struct answer *answer)
{
    return answer->n_thinking;
}
