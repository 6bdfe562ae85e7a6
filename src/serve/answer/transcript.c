/* SPDX-License-Identifier: Apache-2.0 */
/* Recording answers.
 *
 *     tokens ─────────────────────────────────────> ids  ──┐
 *        └──> answer ──blocks──> transcript ──> the sink   ├──> cached_answer
 *                                   └─────────────> blocks ┘
 *
 * If the model ended the answer, its ids are complete: they cover everything between the tokens that open the turn
 * and those that close it.  Otherwise there are too many ids, or the tokens that close the last block are missing:
 *
 *     a limit cut its text      keep the ids up to the last whole character
 *     a stop string             keep the ids wholly inside the delivered text, and the text left over
 *     a very long stop string   no ids: to spell them would hold up the loop
 *     the one call allowed      no ids: the marker that closes it was never sampled
 *     a limit cut a call        drop: the value that the client got cannot come back
 *
 * An answer without ids has no key in the answer cache.  A conversation keeps its blocks. */
#include "serve/answer/transcript_priv.h"

#include <stdlib.h>
#include <string.h>

#include "text/json/json.h"
#include "text/json/json_rewrite.h"
#include "text/json/json_walk.h"
#include "base/err.h"
#include "base/mem.h"

struct written { /* a block */
    enum gen_block_kind kind;
    char *id;                    /* of a call */
    struct buf name;             /* of a call */
    struct buf text;             /* the text, or a call's arguments */
    struct json_rewrite rewrite; /* of a call: makes input of text, as it arrives */
    struct buf input;
};

struct transcript {
    const struct answer_sink *sink;
    void *arg;
    struct token_ids ids;
    struct written *blocks;
    size_t n_blocks, cap_blocks;
    bool is_open; /* it is the last block */
    bool is_cut;  /* a call that was cut */
    bool is_bad;  /* a part is missing */
};

int transcript_new(const struct answer_sink *sink, void *arg, struct transcript **out)
{
    struct transcript *transcript = calloc(1, sizeof(*transcript));

    if (transcript == NULL)
        return E_NOMEM;
    transcript->sink = sink;
    transcript->arg = arg;
    *out = transcript;
    return 0;
}

static void drop_last(struct transcript *transcript)
{
    struct written *block = &transcript->blocks[--transcript->n_blocks];

    free(block->id);
    buf_fini(&block->name);
    buf_fini(&block->text);
    buf_fini(&block->input);
    json_rewrite_fini(&block->rewrite);
}

void transcript_free(struct transcript *transcript)
{
    if (transcript == NULL)
        return;
    while (transcript->n_blocks > 0)
        drop_last(transcript);
    free(transcript->blocks);
    token_ids_fini(&transcript->ids);
    free(transcript);
}

void transcript_tokens(struct transcript *transcript, const token_id *ids, size_t n)
{
    transcript->is_bad |= token_ids_append(&transcript->ids, ids, n) < 0;
}

void transcript_fetch(const struct transcript *transcript, bool is_deep)
{
    if (transcript == NULL)
        return;
    if (!is_deep) {
        mem_prefetch(transcript, sizeof(*transcript));
        return;
    }
    mem_prefetch(transcript->ids.ids + transcript->ids.n, 1);
    mem_prefetch(transcript->blocks + transcript->n_blocks - (transcript->n_blocks > 0),
                 sizeof(*transcript->blocks));
}

/* ---- the sink ---- */

static struct written *open_block(struct transcript *transcript, enum gen_block_kind kind)
{
    if (transcript->n_blocks == transcript->cap_blocks) {
        size_t cap = transcript->cap_blocks == 0 ? 2 : transcript->cap_blocks * 2;
        struct written *grown = realloc(transcript->blocks, cap * sizeof(*grown));

        if (grown == NULL) {
            transcript->is_bad = true;
            return NULL;
        }
        transcript->blocks = grown;
        transcript->cap_blocks = cap;
    }
    transcript->is_open = true;
    transcript->blocks[transcript->n_blocks] = (struct written){.kind = kind};
    return &transcript->blocks[transcript->n_blocks++];
}

static void transcript_add_text(struct transcript *transcript, struct bytes text)
{
    if (!transcript->is_bad)
        transcript->is_bad =
            buf_append(&transcript->blocks[transcript->n_blocks - 1].text, text.data, text.len_bytes) < 0;
}

static int on_open_text(void *arg)
{
    struct transcript *transcript = arg;

    open_block(transcript, GEN_TEXT);
    return transcript->sink->open_text(transcript->arg);
}

static int transcript_on_text(void *arg, struct bytes text)
{
    struct transcript *transcript = arg;

    transcript_add_text(transcript, text);
    return transcript->sink->text(transcript->arg, text);
}

static int on_open_thinking(void *arg)
{
    struct transcript *transcript = arg;

    open_block(transcript, GEN_THINKING);
    return transcript->sink->open_thinking(transcript->arg);
}

static int transcript_on_thinking(void *arg, struct bytes text)
{
    struct transcript *transcript = arg;

    transcript_add_text(transcript, text);
    return transcript->sink->thinking(transcript->arg, text);
}

static int on_signature(void *arg, struct bytes signature)
{
    struct transcript *transcript = arg;

    return transcript->sink->signature(transcript->arg, signature);
}

static int on_open_call(void *arg, const char *id, struct bytes name)
{
    struct transcript *transcript = arg;
    struct written *block = open_block(transcript, GEN_TOOL_USE);

    if (block != NULL) {
        block->id = strdup(id);
        transcript->is_bad |= block->id == NULL || buf_append(&block->name, name.data, name.len_bytes) < 0;
    }
    return transcript->sink->open_call(transcript->arg, id, name);
}

static int transcript_on_arguments(void *arg, struct bytes json)
{
    struct transcript *transcript = arg;
    struct written *block;

    transcript_add_text(transcript, json);
    if (!transcript->is_bad) {
        block = &transcript->blocks[transcript->n_blocks - 1];
        transcript->is_bad =
            json_rewrite_feed(&block->rewrite, json, &block->input) > JSON_WALK_DONE || block->input.is_bad;
    }
    return transcript->sink->arguments(transcript->arg, json);
}

static int on_close(void *arg, enum calls_end how)
{
    struct transcript *transcript = arg;

    transcript->is_open = false;
    transcript->is_cut |= how == CALLS_CUT;
    if (how == CALLS_BROKEN && transcript->n_blocks > 0) /* its text follows */
        drop_last(transcript);
    return transcript->sink->close(transcript->arg, how);
}

const struct answer_sink transcript_sink = {
    on_open_text, transcript_on_text, on_open_thinking,        transcript_on_thinking,
    on_signature, on_open_call,       transcript_on_arguments, on_close};

/* ---- which tokens ---- */

#define FIRST_TAIL_IDS 64
#define MAX_TAIL_IDS   2048 /* a millisecond of the loop's time, with the shorter tails before */
#define UNSURE_BYTES   16   /* at the beginning of a tail: a character of the id before may reach so far */

/* Spells the last n ids as the answer did.  ends: [n + 1], where the text of each begins or ends; SIZE_MAX: within a
 * character. */
static int spell_tail(const struct transcript *transcript, const struct transcript_end *end, size_t n,
                      struct buf *text, size_t *ends)
{
    const token_id *ids = transcript->ids.ids + (transcript->ids.n - n);
    struct detok detok;
    int rc = 0;

    detok_init(&detok, end->model->tokenizer, n < transcript->ids.n || end->prefill.len_bytes > 0);
    ends[0] = 0;
    for (size_t i = 0; i < n && rc == 0; i++) {
        rc = answer_spell(end->answer, &detok, ids[i], text);
        ends[i + 1] = detok_is_half(&detok) ? SIZE_MAX : text->len_bytes;
    }
    return rc;
}

/* True if the first n bytes of the tail's text end as the delivered text does.  Only bytes from `from` on count. */
static bool tail_agrees(struct bytes text, size_t from, size_t n, struct bytes last)
{
    size_t n_same = last.len_bytes < n - from ? last.len_bytes : n - from;

    return n_same == 0 || memcmp(text.data + n - n_same, last.data + last.len_bytes - n_same, n_same) == 0;
}

/* Counts, among the last n ids, those that lie wholly before the end of the answer's last text, and finds the text left
 * over.  1: more ids are needed. */
static int count_in_tail(const struct transcript *transcript, const struct transcript_end *end, size_t n,
                         size_t *n_out, struct bytes *rest_out)
{
    struct bytes last = buf_view(&transcript->blocks[transcript->n_blocks - 1].text);
    size_t cut_bytes = answer_cut_bytes(end->answer), from = n < transcript->ids.n ? UNSURE_BYTES : 0;
    size_t *ends = calloc(n + 1, sizeof(*ends)), n_inside = n, to, n_rest;
    struct buf text = {0};
    int rc = ends == NULL ? E_NOMEM : spell_tail(transcript, end, n, &text, ends);

    if (rc == 0 && text.len_bytes < cut_bytes + from)
        rc = from > 0 ? 1 : E_UNSUPPORTED;
    if (rc == 0) {
        to = text.len_bytes - cut_bytes;
        while (ends[n_inside] > to)
            n_inside--;
        n_rest = to - ends[n_inside];
        if (ends[n_inside] < from)
            rc = 1;
        else if (n_rest > last.len_bytes || (from == 0 && last.len_bytes > to) ||
                 !tail_agrees(buf_view(&text), from, to, last))
            rc = E_UNSUPPORTED;
    }
    if (rc == 0) {
        *n_out = transcript->ids.n - n + n_inside;
        *rest_out = bytes_of(last.data + (last.len_bytes - n_rest), n_rest);
    }
    free(ends);
    buf_fini(&text);
    return rc;
}

/* The same among all ids.  The answer knows how much text lies behind the delivered text, so only the last ids are
 * spelled: the loop waits. */
static int count_inside(const struct transcript *transcript, const struct transcript_end *end, size_t *n_out,
                        struct bytes *rest_out)
{
    int rc = 1;

    for (size_t n = FIRST_TAIL_IDS; rc == 1 && n <= MAX_TAIL_IDS; n *= 2)
        rc = count_in_tail(transcript, end, n < transcript->ids.n ? n : transcript->ids.n, n_out, rest_out);
    return rc == 1 ? E_UNSUPPORTED : rc;
}

static int count_ids(const struct transcript *transcript, const struct transcript_end *end, size_t *n_out,
                     struct bytes *rest_out)
{
    *n_out = transcript->ids.n;
    *rest_out = (struct bytes){0};
    if (end->prompt->base_tokens == 0 || end->has_other_prompt)
        return E_UNSUPPORTED;
    if (!end->is_early && (end->stop == GEN_STOP_END_TURN || end->stop == GEN_STOP_TOOL_USE))
        return 0;
    if (end->stop == GEN_STOP_TOOL_USE || transcript->n_blocks == 0 ||
        transcript->blocks[transcript->n_blocks - 1].kind != GEN_TEXT)
        return E_UNSUPPORTED;
    return count_inside(transcript, end, n_out, rest_out);
}

/* ---- the answer ---- */

bool transcript_copy(struct cached_answer *answer, struct bytes before, struct bytes text, struct bytes *out)
{
    uint8_t *room = cached_answer_take(answer, before.len_bytes + text.len_bytes + 1);

    if (room == NULL)
        return false;
    if (before.len_bytes > 0)
        memcpy(room, before.data, before.len_bytes);
    if (text.len_bytes > 0)
        memcpy(room + before.len_bytes, text.data, text.len_bytes);
    *out = bytes_of(room, before.len_bytes + text.len_bytes);
    return true;
}

/* True if the answer's calls are too large for the JSON library. */
static bool has_large_calls(const struct transcript *transcript)
{
    size_t n_bytes = 0, n_values = 0;

    for (size_t i = 0; i < transcript->n_blocks; i++) {
        n_bytes += transcript->blocks[i].input.len_bytes;
        n_values += transcript->blocks[i].rewrite.walk.n_values;
    }
    return n_bytes > MAX_TREE_BYTES || n_values > MAX_TREE_VALUES;
}

/* Writes a call's input in the parser's serialisation, and in sorted form if the answer has a key. */
static int copy_input(struct cached_answer *answer, const struct written *from, struct gen_block *block,
                      struct bytes *sorted_out)
{
    const struct bytes nothing = {0}, arguments = buf_view(&from->text);
    struct buf input = {0}, sorted = {0};
    json_t *value;
    int rc;

    if (answer->is_keyless && from->rewrite.is_odd)
        return E_UNSUPPORTED;
    if (answer->is_keyless && from->input.len_bytes > 0)
        return transcript_copy(answer, nothing, buf_view(&from->input), &block->input) ? 0 : E_NOMEM;
    rc = api_json_load(arguments.len_bytes == 0 ? bytes_str("{}") : arguments, NULL, &value);

    if (rc < 0)
        return rc == E_NOMEM ? rc : E_UNSUPPORTED;
    if (api_json_put(&input, value) < 0 || api_json_put_sorted(&sorted, value) < 0 ||
        !transcript_copy(answer, nothing, buf_view(&input), &block->input) ||
        !transcript_copy(answer, nothing, buf_view(&sorted), sorted_out))
        rc = E_NOMEM;
    json_decref(value);
    buf_fini(&input);
    buf_fini(&sorted);
    return rc;
}

static int copy_block(struct cached_answer *answer, const struct written *from, struct bytes before)
{
    struct gen_block *block = &answer->blocks[answer->n_blocks];
    struct bytes *sorted = &answer->sorted[answer->n_blocks];
    const struct bytes nothing = {0};

    if (from->kind == GEN_THINKING) {
        answer->has_thinking = true;
        return transcript_copy(answer, answer->thinking, buf_view(&from->text), &answer->thinking) ? 0
                                                                                                   : E_NOMEM;
    }
    block->kind = from->kind;
    answer->n_blocks++;
    if (from->kind == GEN_TEXT)
        return transcript_copy(answer, before, buf_view(&from->text), &block->text) ? 0 : E_NOMEM;
    if (!transcript_copy(answer, nothing, bytes_str(from->id), &block->id) ||
        !transcript_copy(answer, nothing, buf_view(&from->name), &block->name))
        return E_NOMEM;
    return copy_input(answer, from, block, sorted);
}

static int copy_blocks(const struct transcript *transcript, const struct transcript_end *end,
                       struct cached_answer *answer)
{
    const struct written opening = {.kind = GEN_TEXT};
    struct bytes before = end->prefill;
    size_t n = transcript->n_blocks + 1;
    int rc = 0;

    answer->blocks = cached_answer_take(answer, n * sizeof(*answer->blocks));
    answer->sorted = cached_answer_take(answer, n * sizeof(*answer->sorted));
    if (answer->blocks == NULL || answer->sorted == NULL)
        return E_NOMEM;
    /* The text that the client began is part of the message when it comes back. */
    if (before.len_bytes > 0 && (transcript->n_blocks == 0 || transcript->blocks[0].kind != GEN_TEXT)) {
        rc = copy_block(answer, &opening, before);
        before.len_bytes = 0;
    }
    for (size_t i = 0; i < transcript->n_blocks && rc == 0; i++) {
        rc = copy_block(answer, &transcript->blocks[i], before);
        before.len_bytes = 0;
    }
    return rc;
}

static int copy_ids(const struct transcript *transcript, const struct transcript_end *end,
                    struct cached_answer *answer)
{
    const struct prompt *prompt = end->prompt;
    size_t n_opening, n = 0;
    struct bytes rest;
    int rc = count_ids(transcript, end, &n, &rest);

    if (rc < 0)
        return rc;
    n_opening = prompt->ids.n - prompt->base_tokens;
    answer->ids = cached_answer_take(answer, (n_opening + n + 1) * sizeof(*answer->ids));
    if (answer->ids == NULL || !transcript_copy(answer, rest, bytes_of(NULL, 0), &answer->rest))
        return E_NOMEM;
    memcpy(answer->ids, prompt->ids.ids + prompt->base_tokens, n_opening * sizeof(*answer->ids));
    if (n > 0)
        memcpy(answer->ids + n_opening, transcript->ids.ids, n * sizeof(*answer->ids));
    answer->n_opening = (uint32_t)n_opening;
    answer->n_ids = (uint32_t)(n_opening + n);
    answer->base_tokens = prompt->base_tokens;
    answer->base_sum = prompt->base_sum;
    return 0;
}

int transcript_finish(struct transcript *transcript, const struct transcript_end *end,
                      struct cached_answer **out)
{
    struct cached_answer *answer;
    int rc;

    if (transcript->is_bad || transcript->is_cut || transcript->is_open)
        return E_UNSUPPORTED;
    rc = cached_answer_new(&answer);
    if (rc < 0)
        return rc;
    rc = copy_ids(transcript, end, answer);
    answer->is_keyless = rc == E_UNSUPPORTED || has_large_calls(transcript);
    if (rc == 0 || rc == E_UNSUPPORTED)
        rc = copy_blocks(transcript, end, answer);
    answer->is_keyless |= answer->n_blocks == 0; /* without blocks it cannot come back */
    if (rc == 0 && !answer->is_keyless)          /* without a key no prompt reads them */
        rc = transcript_copy_drawn_ids(end->model, &transcript->ids, answer);
    if (rc < 0)
        cached_answer_unref(answer);
    else
        *out = answer;
    return rc;
}
