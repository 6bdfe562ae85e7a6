/* SPDX-License-Identifier: Apache-2.0 */
/* Recording answers.
 *
 *     tokens ─────────────────────────────────────> ids  ──┐
 *        └──> answer ──blocks──> record ──> the sink       ├──> memory_answer
 *                                   └─────────> blocks ────┘
 *
 * An answer that its model ended is complete: its ids stand for everything between the tokens that open
 * the turn and those that close it.  An answer that ended otherwise has too many ids, or lacks the tokens
 * that close its last block:
 *
 *     a limit cut its text      keep the ids up to the last whole character
 *     a stop string             keep the ids wholly inside the delivered text, and the text left over
 *     a limit cut a call        drop: the value that the client got cannot come back
 *     the one call allowed      drop: the marker that closes it was never sampled */
#include "serve/answer/record.h"

#include <stdlib.h>
#include <string.h>

#include "text/json/json.h"
#include "base/err.h"
#include "base/mem.h"

struct written { /* a block */
    enum gen_block_kind kind;
    char *id;        /* of a call */
    struct buf name; /* of a call */
    struct buf text; /* the text, or a call's arguments */
};

struct record {
    const struct answer_sink *sink;
    void *arg;
    struct token_ids ids;
    struct written *blocks;
    size_t n_blocks, cap_blocks;
    bool is_open; /* it is the last block */
    bool is_cut;  /* a call that was cut */
    bool is_bad;  /* a part is missing */
};

int record_new(const struct answer_sink *sink, void *arg, struct record **out)
{
    struct record *record = calloc(1, sizeof(*record));

    if (record == NULL)
        return E_NOMEM;
    record->sink = sink;
    record->arg = arg;
    *out = record;
    return 0;
}

static void drop_last(struct record *record)
{
    struct written *block = &record->blocks[--record->n_blocks];

    free(block->id);
    buf_fini(&block->name);
    buf_fini(&block->text);
}

void record_free(struct record *record)
{
    if (record == NULL)
        return;
    while (record->n_blocks > 0)
        drop_last(record);
    free(record->blocks);
    token_ids_fini(&record->ids);
    free(record);
}

void record_tokens(struct record *record, const token_id *ids, size_t n)
{
    record->is_bad |= token_ids_append(&record->ids, ids, n) < 0;
}

void record_fetch(const struct record *record, bool is_deep)
{
    if (record == NULL)
        return;
    if (!is_deep) {
        mem_prefetch(record, sizeof(*record));
        return;
    }
    mem_prefetch(record->ids.ids + record->ids.n, 1);
    mem_prefetch(record->blocks + record->n_blocks - (record->n_blocks > 0), sizeof(*record->blocks));
}

/* ---- the sink ---- */

static struct written *open_block(struct record *record, enum gen_block_kind kind)
{
    if (record->n_blocks == record->cap_blocks) {
        size_t cap = record->cap_blocks == 0 ? 2 : record->cap_blocks * 2;
        struct written *grown = realloc(record->blocks, cap * sizeof(*grown));

        if (grown == NULL) {
            record->is_bad = true;
            return NULL;
        }
        record->blocks = grown;
        record->cap_blocks = cap;
    }
    record->is_open = true;
    record->blocks[record->n_blocks] = (struct written){.kind = kind};
    return &record->blocks[record->n_blocks++];
}

static void add_text(struct record *record, struct bytes text)
{
    if (!record->is_bad)
        record->is_bad =
            buf_append(&record->blocks[record->n_blocks - 1].text, text.data, text.len_bytes) < 0;
}

static int on_open_text(void *arg)
{
    struct record *record = arg;

    open_block(record, GEN_TEXT);
    return record->sink->open_text(record->arg);
}

static int on_text(void *arg, struct bytes text)
{
    struct record *record = arg;

    add_text(record, text);
    return record->sink->text(record->arg, text);
}

static int on_open_thinking(void *arg)
{
    struct record *record = arg;

    open_block(record, GEN_THINKING);
    return record->sink->open_thinking(record->arg);
}

static int on_thinking(void *arg, struct bytes text)
{
    struct record *record = arg;

    add_text(record, text);
    return record->sink->thinking(record->arg, text);
}

static int on_signature(void *arg, struct bytes signature)
{
    struct record *record = arg;

    return record->sink->signature(record->arg, signature);
}

static int on_open_call(void *arg, const char *id, struct bytes name)
{
    struct record *record = arg;
    struct written *block = open_block(record, GEN_TOOL_USE);

    if (block != NULL) {
        block->id = strdup(id);
        record->is_bad |= block->id == NULL || buf_append(&block->name, name.data, name.len_bytes) < 0;
    }
    return record->sink->open_call(record->arg, id, name);
}

static int on_arguments(void *arg, struct bytes json)
{
    struct record *record = arg;

    add_text(record, json);
    return record->sink->arguments(record->arg, json);
}

static int on_close(void *arg, enum calls_end how)
{
    struct record *record = arg;

    record->is_open = false;
    record->is_cut |= how == CALLS_CUT;
    if (how == CALLS_BROKEN && record->n_blocks > 0) /* its text follows */
        drop_last(record);
    return record->sink->close(record->arg, how);
}

const struct answer_sink record_sink = {on_open_text, on_text,      on_open_thinking, on_thinking,
                                        on_signature, on_open_call, on_arguments,     on_close};

/* ---- which tokens ---- */

/* Writes the text of all ids and the end of each in it: [n + 1], ends[0] is 0.  An id that ends within a
 * character ends where the character begins. */
static int spell(const struct record *record, const struct tokenizer *tokenizer, bool is_continuation,
                 struct buf *text, size_t *ends)
{
    struct detok detok;
    int rc = 0;

    detok_init(&detok, tokenizer, is_continuation);
    ends[0] = 0;
    for (size_t i = 0; i < record->ids.n && rc == 0; i++) {
        rc = detok_push(&detok, record->ids.ids[i], text);
        ends[i + 1] = detok.n_held == 0 ? text->len_bytes : SIZE_MAX;
    }
    detok_finish(&detok);
    return rc;
}

/* Counts the ids that lie wholly before the end of the answer's last text, and finds the text left over. */
static int count_inside(const struct record *record, const struct record_end *end, size_t *n_out,
                        struct bytes *rest_out)
{
    struct bytes last = buf_view(&record->blocks[record->n_blocks - 1].text);
    size_t *ends = calloc(record->ids.n + 1, sizeof(*ends));
    struct buf text = {0};
    int rc = ends == NULL ? E_NOMEM
                          : spell(record, end->model->tokenizer, end->prefill.len_bytes > 0, &text, ends);
    size_t from = SIZE_MAX, n = record->ids.n;

    for (size_t at = 0; rc == 0 && (at = bytes_find(buf_view(&text), last, at)) != SIZE_MAX; at++)
        from = at;
    if (rc == 0 &&
        (from == SIZE_MAX || (end->stop != GEN_STOP_SEQUENCE && from + last.len_bytes != text.len_bytes)))
        rc = E_UNSUPPORTED;
    if (rc == 0) {
        while (ends[n] > from + last.len_bytes)
            n--;
        *n_out = n;
        *rest_out = bytes_of(last.data, 0);
        if (ends[n] >= from)
            *rest_out = bytes_of(last.data + (ends[n] - from), from + last.len_bytes - ends[n]);
        else
            rc = E_UNSUPPORTED;
    }
    free(ends);
    buf_fini(&text);
    return rc;
}

static int count_ids(const struct record *record, const struct record_end *end, size_t *n_out,
                     struct bytes *rest_out)
{
    *n_out = record->ids.n;
    *rest_out = (struct bytes){0};
    if (!end->is_early && (end->stop == GEN_STOP_END_TURN || end->stop == GEN_STOP_TOOL_USE))
        return 0;
    if (end->stop == GEN_STOP_TOOL_USE || record->n_blocks == 0 ||
        record->blocks[record->n_blocks - 1].kind != GEN_TEXT)
        return E_UNSUPPORTED;
    return count_inside(record, end, n_out, rest_out);
}

/* ---- the answer ---- */

static bool copy(struct memory_answer *answer, struct bytes before, struct bytes text, struct bytes *out)
{
    uint8_t *room = memory_answer_take(answer, before.len_bytes + text.len_bytes + 1);

    if (room == NULL)
        return false;
    if (before.len_bytes > 0)
        memcpy(room, before.data, before.len_bytes);
    if (text.len_bytes > 0)
        memcpy(room + before.len_bytes, text.data, text.len_bytes);
    *out = bytes_of(room, before.len_bytes + text.len_bytes);
    return true;
}

/* Writes a call's input in the parser's serialisation, and in sorted form. */
static int copy_input(struct memory_answer *answer, struct bytes arguments, struct gen_block *block,
                      struct bytes *sorted_out)
{
    const struct bytes nothing = {0};
    struct buf input = {0}, sorted = {0};
    json_t *value;
    int rc = api_json_load(arguments.len_bytes == 0 ? bytes_str("{}") : arguments, NULL, &value);

    if (rc < 0)
        return rc == E_NOMEM ? rc : E_UNSUPPORTED;
    if (api_json_put(&input, value) < 0 || api_json_put_sorted(&sorted, value) < 0 ||
        !copy(answer, nothing, buf_view(&input), &block->input) ||
        !copy(answer, nothing, buf_view(&sorted), sorted_out))
        rc = E_NOMEM;
    json_decref(value);
    buf_fini(&input);
    buf_fini(&sorted);
    return rc;
}

static int copy_block(struct memory_answer *answer, const struct written *from, struct bytes before)
{
    struct gen_block *block = &answer->blocks[answer->n_blocks];
    struct bytes *sorted = &answer->sorted[answer->n_blocks];
    const struct bytes nothing = {0};

    if (from->kind == GEN_THINKING) {
        answer->has_thinking = true;
        return copy(answer, answer->thinking, buf_view(&from->text), &answer->thinking) ? 0 : E_NOMEM;
    }
    block->kind = from->kind;
    answer->n_blocks++;
    if (from->kind == GEN_TEXT)
        return copy(answer, before, buf_view(&from->text), &block->text) ? 0 : E_NOMEM;
    if (!copy(answer, nothing, bytes_str(from->id), &block->id) ||
        !copy(answer, nothing, buf_view(&from->name), &block->name))
        return E_NOMEM;
    return copy_input(answer, buf_view(&from->text), block, sorted);
}

static int copy_blocks(const struct record *record, const struct record_end *end,
                       struct memory_answer *answer)
{
    const struct written opening = {.kind = GEN_TEXT};
    struct bytes before = end->prefill;
    size_t n = record->n_blocks + 1;
    int rc = 0;

    answer->blocks = memory_answer_take(answer, n * sizeof(*answer->blocks));
    answer->sorted = memory_answer_take(answer, n * sizeof(*answer->sorted));
    if (answer->blocks == NULL || answer->sorted == NULL)
        return E_NOMEM;
    /* The text that the client began is part of the message when it comes back. */
    if (before.len_bytes > 0 && (record->n_blocks == 0 || record->blocks[0].kind != GEN_TEXT)) {
        rc = copy_block(answer, &opening, before);
        before.len_bytes = 0;
    }
    for (size_t i = 0; i < record->n_blocks && rc == 0; i++) {
        rc = copy_block(answer, &record->blocks[i], before);
        before.len_bytes = 0;
    }
    return rc;
}

static int copy_ids(const struct record *record, const struct record_end *end, struct memory_answer *answer)
{
    const struct prompt *prompt = end->prompt;
    size_t n_opening = prompt->ids.n - prompt->base_tokens, n = 0;
    struct bytes rest;
    int rc = count_ids(record, end, &n, &rest);

    if (rc < 0)
        return rc;
    answer->ids = memory_answer_take(answer, (n_opening + n + 1) * sizeof(*answer->ids));
    if (answer->ids == NULL || !copy(answer, rest, bytes_of(NULL, 0), &answer->rest))
        return E_NOMEM;
    memcpy(answer->ids, prompt->ids.ids + prompt->base_tokens, n_opening * sizeof(*answer->ids));
    if (n > 0)
        memcpy(answer->ids + n_opening, record->ids.ids, n * sizeof(*answer->ids));
    answer->n_opening = (uint32_t)n_opening;
    answer->n_ids = (uint32_t)(n_opening + n);
    answer->base_tokens = prompt->base_tokens;
    answer->base_sum = prompt->base_sum;
    return 0;
}

/* In Mistral's format the model gives its calls ids of its own, and results must name these.  The text is
 * a list of objects, perhaps after other text.  Otherwise there are no ids. */
static int copy_drawn_ids(const struct record *record, const struct record_end *end,
                          struct memory_answer *answer)
{
    size_t *ends = calloc(record->ids.n + 1, sizeof(*ends)), n = 0;
    struct buf text = {0};
    json_t *list = NULL;
    int rc = ends == NULL ? E_NOMEM : spell(record, end->model->tokenizer, false, &text, ends);
    size_t marker = bytes_find(buf_view(&text), bytes_str("[TOOL_CALLS]"), 0); /* text, not a token */
    size_t from = bytes_find(buf_view(&text), bytes_str("["), marker == SIZE_MAX ? 0 : marker + 12);

    if (rc == 0 && from != SIZE_MAX &&
        api_json_load(bytes_of(text.data + from, text.len_bytes - from), NULL, &list) == 0) {
        answer->drawn_ids = memory_answer_take(answer, (answer->n_blocks + 1) * sizeof(*answer->drawn_ids));
        rc = answer->drawn_ids == NULL ? E_NOMEM : 0;
    }
    for (size_t i = 0; rc == 0 && list != NULL && i < answer->n_blocks; i++) {
        struct bytes id;

        if (answer->blocks[i].kind != GEN_TOOL_USE)
            continue;
        id = api_json_str(json_object_get(json_array_get(list, n++), "id"));
        if (!copy(answer, id, bytes_of(NULL, 0), &answer->drawn_ids[i]))
            rc = E_NOMEM;
    }
    json_decref(list);
    buf_fini(&text);
    free(ends);
    return rc;
}

int record_finish(struct record *record, const struct record_end *end, struct memory_answer **out)
{
    struct memory_answer *answer;
    int rc;

    if (record->is_bad || record->is_cut || record->is_open || end->prompt->base_tokens == 0)
        return E_UNSUPPORTED;
    rc = memory_answer_new(&answer);
    if (rc < 0)
        return rc;
    rc = copy_ids(record, end, answer);
    if (rc == 0)
        rc = copy_blocks(record, end, answer);
    if (rc == 0 && calls_row_of(chat_format_manner(end->model->chat)->calls)->writes_ids)
        rc = copy_drawn_ids(record, end, answer);
    if (rc == 0 && answer->n_blocks == 0) /* an answer without blocks cannot come back */
        rc = E_UNSUPPORTED;
    if (rc < 0)
        memory_answer_unref(answer);
    else
        *out = answer;
    return rc;
}
