/* SPDX-License-Identifier: Apache-2.0 */
/* The ids that a model itself gave its calls, in the text of its answer.
 *
 *     Mistral       [{"name": "f", "arguments": {}, "id": "call00001"}]
 *     Kimi          functions.f:0 before the arguments
 *     Solar Open    between the marks of a call, before its name
 *
 * The loop waits, so only the last tokens are spelled, and the search ends with the first call whose id is not found.  If
 * that id may stand before the spelled tokens, the answer gets no key. */
#include "serve/answer/transcript_priv.h"

#include <string.h>

#include "base/err.h"
#include "text/json/json.h"
#include "text/json/json_walk.h"

#define MAX_SPELLED_IDS ((size_t)4096) /* a millisecond of the loop's time */

static int make_drawn_ids(struct cached_answer *answer)
{
    answer->drawn_ids = cached_answer_take(answer, (answer->n_blocks + 1) * sizeof(*answer->drawn_ids));
    return answer->drawn_ids == NULL ? E_NOMEM : 0;
}

/* The first byte behind blanks; 0: there is none. */
static uint8_t byte_behind_blanks(struct bytes text)
{
    size_t at = 0;

    while (at < text.len_bytes && memchr(" \t\r\n", text.data[at], 4) != NULL)
        at++;
    return at < text.len_bytes ? text.data[at] : 0;
}

static bool begins_mistral_list(struct bytes text)
{
    return text.data[0] == '[' && byte_behind_blanks(bytes_of(text.data + 1, text.len_bytes - 1)) == '{';
}

/* True if the JSON around a value goes on behind it: the value is no list of calls, but stands in a call's arguments. */
static bool is_within_json(struct bytes after)
{
    return memchr(",]}", byte_behind_blanks(after), 3) != NULL;
}

/* Finds the list of calls, perhaps behind other text.  Empty: there is none, or the search passed the limits of
 * what the JSON library may load.  is_tail: the list may have begun before the text. */
static struct bytes mistral_list(struct bytes text, bool is_tail)
{
    size_t marker = bytes_find(text, bytes_str("[TOOL_CALLS]"), 0); /* text, not a token */
    size_t at = marker == SIZE_MAX ? 0 : marker + 12, left = MAX_TREE_BYTES;

    for (; left > 0 && (at = bytes_find(text, bytes_str("["), at)) != SIZE_MAX; at++) {
        struct bytes rest = bytes_of(text.data + at, text.len_bytes - at);
        enum json_walk_result result = JSON_WALK_MORE;
        struct json_walk walk = {0};

        if (!begins_mistral_list(rest))
            continue;
        for (; result == JSON_WALK_MORE && left > 0 && walk.n_bytes < rest.len_bytes; left--)
            result = json_walk_byte(&walk, rest.data[walk.n_bytes]);
        if (result != JSON_WALK_DONE || walk.n_values > MAX_TREE_VALUES)
            continue;
        if (!is_tail || !is_within_json(bytes_of(rest.data + walk.n_bytes, rest.len_bytes - walk.n_bytes)))
            return bytes_of(rest.data, walk.n_bytes);
        at += walk.n_bytes - 1;
    }
    return (struct bytes){0};
}

/* is_tail: the text lacks a beginning, which may have ids.  Then E_UNSUPPORTED: not all are in the text. */
static int copy_mistral_ids(struct bytes text, bool is_tail, struct cached_answer *answer)
{
    struct bytes calls = mistral_list(text, is_tail);
    json_t *list = NULL;
    size_t n = 0;
    int rc = 0;

    if (calls.len_bytes > 0 && api_json_load(calls, NULL, &list) == 0)
        rc = make_drawn_ids(answer);
    else if (is_tail)
        rc = E_UNSUPPORTED;
    for (size_t i = 0; rc == 0 && list != NULL && i < answer->n_blocks; i++) {
        struct bytes id;

        if (answer->blocks[i].kind != GEN_TOOL_USE)
            continue;
        id = api_json_str(json_object_get(json_array_get(list, n++), "id"));
        if (is_tail && id.len_bytes == 0)
            rc = E_UNSUPPORTED;
        else if (!transcript_copy(answer, (struct bytes){0}, id, &answer->drawn_ids[i]))
            rc = E_NOMEM;
    }
    json_decref(list);
    return rc;
}

/* The place behind the object that begins at the next brace: no text within a call's arguments is an id. */
static size_t drawn_ids_skip_arguments(struct bytes text, size_t at)
{
    enum json_walk_result result = JSON_WALK_MORE;
    struct json_walk walk = {0};

    while (at < text.len_bytes && text.data[at] != '{')
        at++;
    for (; at < text.len_bytes && result == JSON_WALK_MORE; at++)
        if (text.data[at] >= ' ' || !json_walk_is_in_string(&walk)) /* the splitter escapes raw line ends */
            result = json_walk_byte(&walk, text.data[at]);
    return at;
}

/* Finds functions.NAME:INDEX before a brace, from *at on, and moves *at behind the arguments; empty: there is none, and
 * *at is the text's end. */
static struct bytes next_kimi_id(struct bytes text, struct bytes name, size_t *at)
{
    static const char prefix[] = "functions.";

    for (size_t from = *at; (from = bytes_find(text, bytes_str(prefix), from)) != SIZE_MAX; from++) {
        size_t colon = from + sizeof(prefix) - 1 + name.len_bytes, end = colon + 1;

        if (colon >= text.len_bytes || text.data[colon] != ':' ||
            !bytes_equal(bytes_of(text.data + colon - name.len_bytes, name.len_bytes), name))
            continue;
        while (end < text.len_bytes && text.data[end] >= '0' && text.data[end] <= '9')
            end++;
        if (end == colon + 1 || end == text.len_bytes || (text.data[end] != '{' && text.data[end] != '<'))
            continue;
        *at = drawn_ids_skip_arguments(text, end);
        return bytes_of(text.data + from, end - from);
    }
    *at = text.len_bytes;
    return (struct bytes){0};
}

#define MAX_SOLAR_ID ((size_t)512) /* bytes of an id and the mark behind it */

/* True if a call of Solar Open with this name stands behind the mark of names. */
static bool is_solar_call(struct bytes text, struct bytes name)
{
    static const char mark[] = CALLS_SOLAR_ARGUMENTS;
    size_t at = name.len_bytes + sizeof(mark) - 1;

    if (text.len_bytes < at || !bytes_equal(bytes_of(text.data, name.len_bytes), name) ||
        memcmp(text.data + name.len_bytes, mark, sizeof(mark) - 1) != 0)
        return false;
    while (at < text.len_bytes && (text.data[at] == ' ' || text.data[at] == '\n'))
        at++;
    return at < text.len_bytes && text.data[at] == '{';
}

/* The same for an id between the marks of a call of Solar Open, before its name. */
static struct bytes next_solar_id(struct bytes text, struct bytes name, size_t *at)
{
    static const char begin[] = CALLS_SOLAR_BEGIN, mark[] = CALLS_SOLAR_NAME;
    size_t from = *at;

    while ((from = bytes_find(text, bytes_str(begin), from)) != SIZE_MAX) {
        size_t left = text.len_bytes - (from += sizeof(begin) - 1), to, behind;

        to = bytes_find(bytes_of(text.data, from + (left < MAX_SOLAR_ID ? left : MAX_SOLAR_ID)),
                        bytes_str(mark), from);
        behind = to + sizeof(mark) - 1;
        if (to == SIZE_MAX || !is_solar_call(bytes_of(text.data + behind, text.len_bytes - behind), name))
            continue; /* text */
        *at = drawn_ids_skip_arguments(text, behind);
        return bytes_of(text.data + from, to - from);
    }
    *at = text.len_bytes;
    return (struct bytes){0};
}

typedef struct bytes next_id_fn(struct bytes text, struct bytes name, size_t *at);

/* is_tail: as for copy_mistral_ids(). */
static int copy_written_ids(struct bytes text, bool is_tail, next_id_fn *next, struct cached_answer *answer)
{
    int rc = make_drawn_ids(answer);
    size_t at = 0;

    for (size_t i = 0; rc == 0 && i < answer->n_blocks; i++) {
        struct bytes id;

        if (answer->blocks[i].kind != GEN_TOOL_USE)
            continue;
        id = next(text, answer->blocks[i].name, &at);
        if (is_tail && id.len_bytes == 0)
            rc = E_UNSUPPORTED;
        else if (!transcript_copy(answer, (struct bytes){0}, id, &answer->drawn_ids[i]))
            rc = E_NOMEM;
    }
    return rc;
}

static bool has_calls(const struct cached_answer *answer)
{
    for (size_t i = 0; i < answer->n_blocks; i++)
        if (answer->blocks[i].kind == GEN_TOOL_USE)
            return true;
    return false;
}

static int drawn_ids_spell(const struct tokenizer *tokenizer, const struct token_ids *ids, size_t first,
                           struct buf *text)
{
    struct detok detok;
    int rc = 0;

    detok_init(&detok, tokenizer, first > 0);
    for (size_t i = first; i < ids->n && rc == 0; i++)
        rc = detok_push(&detok, ids->ids[i], text);
    return rc;
}

int transcript_copy_drawn_ids(const struct gen_model *model, const struct token_ids *ids,
                              struct cached_answer *answer)
{
    size_t first = ids->n > MAX_SPELLED_IDS ? ids->n - MAX_SPELLED_IDS : 0;
    next_id_fn *next = NULL;
    struct buf text = {0};
    int rc;

    if (!has_calls(answer))
        return 0;
    switch (calls_row_of(chat_format_info(model->chat)->calls)->ids) {
    case CALLS_IDS_GIVEN:
    case CALLS_IDS_MISTRAL:
        return 0;
    case CALLS_IDS_MISTRAL_DRAWN:
        break;
    case CALLS_IDS_KIMI:
        next = next_kimi_id;
        break;
    case CALLS_IDS_SOLAR:
        next = next_solar_id;
        break;
    }
    rc = drawn_ids_spell(model->tokenizer, ids, first, &text);
    if (rc == 0)
        rc = next != NULL ? copy_written_ids(buf_view(&text), first > 0, next, answer)
                          : copy_mistral_ids(buf_view(&text), first > 0, answer);
    if (rc == E_UNSUPPORTED) {
        answer->is_keyless = true;
        answer->drawn_ids = NULL;
        rc = 0;
    }
    buf_fini(&text);
    return rc;
}
