/* SPDX-License-Identifier: Apache-2.0 */
/* Calls written as tags: Qwen 3 Coder and Seed-OSS (whose values are on the lines of their tags), GLM, Hunyuan 3 (as GLM,
 * with <tool_sep> behind the name), MiniMax, DeepSeek V3.2 and V4 (as MiniMax, with string="true" or "false" behind a key),
 * MiniCPM 5, whose values may stand in <![CDATA[ and ]]>, Solar Open 2, and Kimi K3, whose tags name the type of a value.
 *
 *     <tool_call>              <tool_call>N                        <minimax:tool_call>
 *     <function=N>             <arg_key>K</arg_key>                <invoke name="N">
 *     <parameter=K>            <arg_value>V</arg_value>            <parameter name="K">V</parameter>
 *     V                        </tool_call>                        </invoke>
 *     </parameter>                                                 <invoke name="N2">
 *     </function>                                                  </invoke>
 *     </tool_call>                                                 </minimax:tool_call>
 *
 * The splitter rewrites the arguments as JSON; calls_value.c has the values. */
#include <string.h>

#include "text/toolcall/calls_priv.h"
#include "text/toolcall/calls_types.h"
#include "text/json/json.h"
#include "base/err.h"
#include "base/str.h"

/* ---- the schema of the called tool ---- */

static void learn_schema(struct calls *calls, struct bytes name)
{
    json_decref(calls->schema);
    calls->schema = NULL;
    for (size_t i = 0; i < calls->opts.n_tools; i++)
        if (bytes_equal(calls->opts.tools[i].name, name) &&
            calls->opts.tools[i].schema.len_bytes <= CALLS_MAX_SCHEMA_BYTES &&
            api_json_load(calls->opts.tools[i].schema, NULL, &calls->schema) < 0)
            calls->schema = NULL;
}

/* ---- beginnings ---- */

static int calls_tags_begin(struct calls *calls, struct bytes name, size_t n)
{
    int rc;

    if (!calls_is_name(name))
        return -1;
    learn_schema(calls, name);
    calls->n_values = 0;
    rc = calls_begin_call(calls, name, CALLS_VALUES);
    if (rc == 0)
        rc = calls->events->on_arguments(calls->arg, bytes_str("{"));
    if (rc == 0)
        rc = calls_take(calls, n);
    return rc < 0 ? rc : 1;
}

/* Compares word with the next text.  1: equal; 0: not known yet; -1: different. */
static int is_next(struct bytes text, size_t at, const char *word)
{
    size_t n = strlen(word);
    size_t left = text.len_bytes - at;

    if (memcmp(text.data + at, word, left < n ? left : n) != 0)
        return -1;
    return left >= n;
}

int calls_tags_header(struct calls *calls)
{
    const struct calls_tags *tags = calls->parser->tags;
    struct bytes text = buf_view(&calls->held);
    size_t at = 0, end, close;
    int rc;

    if (strcmp(calls->opened, tags->name_open) != 0) {
        at = calls_skip_blanks(text, 0);
        rc = at == text.len_bytes ? 0 : is_next(text, at, tags->name_open);
        if (rc != 1)
            return rc;
        at += strlen(tags->name_open);
    }
    end = bytes_find(text, bytes_str(tags->name_close), at);
    close =
        end == SIZE_MAX || tags->name_end == NULL ? end : bytes_find(text, bytes_str(tags->name_end), end);
    if (close == SIZE_MAX)
        return 0;
    if (tags->name_end != NULL && close > CALLS_MAX_HEADER_BYTES)
        return -1;
    return calls_tags_begin(calls, bytes_of(text.data + at, end - at),
                            close + strlen(tags->name_end != NULL ? tags->name_end : tags->name_close));
}

int calls_glm_header(struct calls *calls)
{
    struct bytes text = buf_view(&calls->held);
    size_t from = calls_skip_blanks(text, 0);
    size_t at = from;

    while (at < text.len_bytes && calls_is_name(bytes_of(text.data + at, 1)))
        at++;
    if (at == text.len_bytes)
        return 0;
    if (at == from || (text.data[at] != '<' && !calls_is_blank(text.data[at])))
        return -1;
    return calls_tags_begin(calls, bytes_of(text.data + from, at - from), at);
}

/* ---- between values ---- */

static int calls_tags_put_key(struct calls *calls)
{
    buf_clear(&calls->good);
    if (calls->n_values++ > 0)
        buf_append_str(&calls->good, ", ");
    json_put_str(&calls->good, buf_view(&calls->key));
    buf_append_str(&calls->good, ": ");
    if (calls->value_kind == CALLS_VALUE_STRING)
        buf_append_byte(&calls->good, '"');
    return calls->good.is_bad ? E_NOMEM : calls->events->on_arguments(calls->arg, buf_view(&calls->good));
}

/* Skips the type of a value that is no string. */
static int skip_type(const struct calls_tags *tags, struct bytes text, size_t *at)
{
    size_t end = bytes_find(text, bytes_str(tags->type_close), *at);

    if (end == SIZE_MAX)
        return 0;
    *at = end + strlen(tags->type_close);
    return 1;
}

/* Replaces the entities of the key by their characters. */
static int read_entities(struct buf *key)
{
    static const char *const entities[][2] = {{"&quot;", "\""}, {"&amp;", "&"}};
    struct bytes text = buf_view(key);
    struct buf plain = {0};

    if (bytes_find(text, bytes_str("&"), 0) == SIZE_MAX)
        return 0;
    for (size_t at = 0; at < text.len_bytes;) {
        size_t n = 1, k = 0;

        while (k < 2 && !bytes_starts_with(bytes_of(text.data + at, text.len_bytes - at), entities[k][0]))
            k++;
        if (k < 2)
            n = strlen(entities[k][0]);
        buf_append(&plain, k < 2 ? (const uint8_t *)entities[k][1] : text.data + at, 1);
        at += n;
    }
    buf_fini(key);
    *key = plain;
    return plain.is_bad ? E_NOMEM : 0;
}

/* Finds the text that opens the value, from *at on, and moves *at behind it.  *is_string_out stays if the text does not
 * tell.  1: found; 0: more text is needed; -1: other text. */
static int take_opening(const struct calls_tags *tags, struct bytes text, size_t *at, bool *is_string_out)
{
    const char *open = tags->json_open != NULL ? tags->string_open : tags->value_open;
    int rc;

    if (open == NULL)
        return 1;
    if (tags->json_open == NULL)
        *at = calls_skip_blanks(text, *at);
    rc = *at == text.len_bytes ? 0 : is_next(text, *at, open);
    if (rc == 1 && tags->json_open != NULL)
        *is_string_out = true;
    if (rc == -1 && tags->json_open != NULL) {
        open = tags->json_open;
        rc = is_next(text, *at, open);
        *is_string_out = false;
    }
    *at += rc == 1 ? strlen(open) : 0;
    if (rc == 1 && open == tags->json_open && tags->type_close != NULL)
        rc = skip_type(tags, text, at);
    return rc;
}

/* Takes a key's tags, and the tag that opens the value.  1: taken; 0: more text is needed; -1: other form. */
static int take_key(struct calls *calls, size_t at)
{
    const struct calls_tags *tags = calls->parser->tags;
    struct bytes text = buf_view(&calls->held);
    size_t from = at + strlen(tags->key_open);
    size_t end = bytes_find(text, bytes_str(tags->key_close), from);
    bool is_string;
    unsigned types;
    int rc;

    if (end == SIZE_MAX)
        return text.len_bytes - at > CALLS_MAX_HEADER_BYTES ? -1 : 0;
    buf_clear(&calls->key);
    if (buf_append(&calls->key, text.data + from, end - from) < 0 ||
        (tags->has_entities && read_entities(&calls->key) < 0))
        return E_NOMEM;
    types = calls_types_of_key(calls->schema, buf_view(&calls->key));
    is_string = types == CALLS_AS_STRING;
    from = at = end + strlen(tags->key_close);
    rc = take_opening(tags, text, &at, &is_string);
    if (rc == 0 && text.len_bytes - from > CALLS_MAX_HEADER_BYTES)
        return -1;
    if (rc != 1)
        return rc;
    if (tags->type_close != NULL && !is_string)
        types = CALLS_AS_ANY; /* the tag knows better than the schema */
    calls_begin_value(calls, types, is_string);
    calls->state = CALLS_VALUE;
    rc = calls_take(calls, at);
    if (rc == 0)
        rc = calls_tags_put_key(calls);
    return rc < 0 ? rc : 1;
}

/* Begins arguments that are one JSON object, whose brace was passed on.  Returns as take_key(). */
static int take_whole_object(struct calls *calls, size_t at)
{
    struct bytes text = buf_view(&calls->held);

    at = calls_skip_blanks(text, at);
    if (at == text.len_bytes)
        return 0;
    if (text.data[at] != '{')
        return -1;
    memset(&calls->walk, 0, sizeof(calls->walk));
    json_walk_byte(&calls->walk, '{');
    calls->is_braced = false;
    calls->state = CALLS_ARGUMENTS;
    return calls_take(calls, at + 1) < 0 ? E_NOMEM : 1;
}

/* Takes the beginning of arguments that are one object.  Returns as take_key(). */
static int take_object_open(struct calls *calls, size_t at)
{
    const char *open = calls->parser->tags->object_open;
    int rc = open == NULL || calls->n_values > 0 ? -1 : is_next(buf_view(&calls->held), at, open);

    return rc == 1 ? take_whole_object(calls, at + strlen(open)) : rc;
}

int calls_run_values(struct calls *calls)
{
    const struct calls_tags *tags = calls->parser->tags;
    struct bytes text = buf_view(&calls->held);
    size_t at = calls_skip_blanks(text, 0);
    const char *close = calls->parser->close;
    const char *const ends[] = {tags->end, close};
    int rc = at == text.len_bytes ? 0 : is_next(text, at, tags->key_open);

    if (at == text.len_bytes)
        return calls_take(calls, at) < 0 ? E_NOMEM : 0;
    if (rc == 1)
        rc = take_key(calls, at);
    else if (rc == -1)
        rc = take_object_open(calls, at);
    if (rc != -1)
        return rc;
    for (size_t i = 0; i < 2 && rc == -1; i++) {
        rc = is_next(text, at, ends[i]);
        if (rc != 1)
            continue;
        rc = calls->events->on_arguments(calls->arg, bytes_str("}"));
        if (rc < 0)
            return rc;
        /* The tail expects the mark that closes the call, so do not consume it. */
        buf_consume(&calls->held, strcmp(ends[i], close) == 0 ? at : at + strlen(ends[i]));
        return calls_end_whole(calls);
    }
    return rc == 0 ? 0 : calls_end_broken(calls);
}

/* ---- ends ---- */

/* Moves *at behind the tags that end arguments which are one object.  False: more text is needed. */
static bool skip_object_end(const struct calls_tags *tags, struct bytes text, size_t *at)
{
    const char *const ends[] = {tags->object_close, tags->end};

    for (size_t i = 0; i < 2 && tags->object_close != NULL; i++) {
        int rc = is_next(text, *at, ends[i]);

        if (rc == 1)
            *at = calls_skip_blanks(text, *at + strlen(ends[i]));
        if (rc == 0 || *at == text.len_bytes)
            return false;
    }
    return true;
}

/* Another call may follow within the same marks. */
static int take_next_call(struct calls *calls, size_t at)
{
    int rc = is_next(buf_view(&calls->held), at, calls->parser->tags->name_open);

    if (rc != 1)
        return rc;
    buf_consume(&calls->held, at);
    calls->opened = "";
    calls->state = CALLS_HEADER;
    return 1;
}

int calls_tags_tail(struct calls *calls)
{
    const char *close = calls->parser->close;
    struct bytes text = buf_view(&calls->held);
    size_t at = calls_skip_blanks(text, 0);
    int rc;

    if (at == text.len_bytes || !skip_object_end(calls->parser->tags, text, &at))
        return 0;
    rc = is_next(text, at, close);
    if (rc == -1 && calls->parser->tags->has_block) {
        rc = take_next_call(calls, at);
        if (rc == 1)
            return 1;
    } else if (rc == 1) {
        at += strlen(close);
    }
    if (rc == 0)
        return 0;
    buf_consume(&calls->held, at);
    calls_begin_text(calls);
    return 1;
}
