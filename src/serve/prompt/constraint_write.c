/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the elements of constraints (text/grammar/grammar.h) one after another, with the commas between them. */
#include <string.h>

#include "base/str.h"
#include "serve/prompt/constraint_priv.h"
#include "text/toolcall/calls.h"

static void begin_item(struct constraint *constraint)
{
    uint8_t last =
        constraint->out->len_bytes == 0 ? '[' : constraint->out->data[constraint->out->len_bytes - 1];

    if (last != '[' && last != ':')
        buf_append_byte(constraint->out, ',');
}

static void put_one(struct constraint *constraint, const char *kind, struct bytes text)
{
    begin_item(constraint);
    buf_printf(constraint->out, "{\"%s\":", kind);
    json_put_str(constraint->out, text);
    buf_append_byte(constraint->out, '}');
}

void constraint_text(struct constraint *constraint, const char *text)
{
    put_one(constraint, "text", bytes_str(text));
}

void constraint_bytes(struct constraint *constraint, struct bytes before, struct bytes text,
                      struct bytes after)
{
    struct buf all = {0};

    buf_append(&all, before.data, before.len_bytes);
    buf_append(&all, text.data, text.len_bytes);
    buf_append(&all, after.data, after.len_bytes);
    put_one(constraint, "text", buf_view(&all));
    constraint->out->is_bad |= all.is_bad;
    buf_fini(&all);
}

void constraint_mark(struct constraint *constraint, const char *mark)
{
    put_one(constraint, "mark", bytes_str(mark));
}

/* Text with marks, each of which may be a control token. */
static void put_split(struct constraint *constraint, const char *text, const char *const *marks)
{
    struct bytes rest = bytes_str(text == NULL ? "" : text);

    while (rest.len_bytes > 0) {
        size_t at = rest.len_bytes, n = 0;

        for (size_t i = 0; marks[i] != NULL; i++) {
            size_t found = bytes_find(rest, bytes_str(marks[i]), 0);

            if (found < at) {
                at = found;
                n = strlen(marks[i]);
            }
        }
        if (at > 0)
            put_one(constraint, "text", bytes_of(rest.data, at));
        if (n > 0)
            put_one(constraint, "mark", bytes_of(rest.data + at, n));
        rest = bytes_of(rest.data + at + n, rest.len_bytes - at - n);
    }
}

void constraint_written(struct constraint *constraint, const char *text)
{
    put_split(constraint, text, calls_marks(constraint->format->calls));
}

void constraint_outer_mark(struct constraint *constraint, const char *mark)
{
    const char *const *parts = calls_marks(constraint->format->answers);

    for (size_t i = 0; parts[i] != NULL; i++)
        if (strcmp(mark, parts[i]) != 0 && strstr(mark, parts[i]) != NULL) {
            put_split(constraint, mark, parts);
            return;
        }
    constraint_mark(constraint, mark);
}

void constraint_one_mark(struct constraint *constraint, const char *mark)
{
    const char *const *parts = calls_marks(constraint->format->answers);
    bool has_parts = false;

    for (size_t i = 0; parts[i] != NULL; i++)
        has_parts |= strcmp(mark, parts[i]) != 0 && strstr(mark, parts[i]) != NULL;
    if (has_parts)
        constraint_open_seq(constraint);
    constraint_outer_mark(constraint, mark);
    if (has_parts)
        constraint_close(constraint);
}

/* Ends an item whose errors may need a path. */
static void end_named(struct constraint *constraint)
{
    if (constraint->path[0] != '\0') {
        buf_append_str(constraint->out, ",\"path\":");
        json_put_str(constraint->out, bytes_str(constraint->path));
    }
    buf_append_byte(constraint->out, '}');
}

void constraint_json(struct constraint *constraint, struct bytes schema)
{
    begin_item(constraint);
    buf_append_str(constraint->out, "{\"json\":");
    buf_append(constraint->out, schema.data, schema.len_bytes);
    end_named(constraint);
}

void constraint_arguments(struct constraint *constraint, struct bytes schema)
{
    begin_item(constraint);
    buf_append_str(constraint->out, "{\"json\":");
    buf_append(constraint->out, schema.data, schema.len_bytes);
    buf_append_str(constraint->out, ",\"closed\":true}");
}

void constraint_tagged(struct constraint *constraint, const struct calls_tags *tags, struct bytes schema,
                       const char *banned)
{
    begin_item(constraint);
    buf_append_str(constraint->out, "{\"tagged\":");
    buf_append(constraint->out, schema.data, schema.len_bytes);
    buf_append_str(constraint->out, ",\"until\":");
    json_put_str(constraint->out, bytes_str(tags->until != NULL ? tags->until : tags->value_close));
    if (tags->is_tight)
        buf_append_str(constraint->out, ",\"inner\":true");
    if (banned != NULL) {
        buf_append_str(constraint->out, ",\"not\":");
        json_put_str(constraint->out, bytes_str(banned));
    }
    end_named(constraint);
}

/* A "tagged" text needs an "until" of two characters; the pattern allows none of them. */
void constraint_keyword(struct constraint *constraint)
{
    begin_item(constraint);
    buf_append_str(constraint->out,
                   "{\"tagged\":{\"pattern\":\"^[A-Za-z_][A-Za-z0-9_]{0,63}$\"},\"until\":\"=(\"}");
}

/* The first character is no blank, since the splitter skips those.  The others are no control characters. */
void constraint_bare_key(struct constraint *constraint)
{
    begin_item(constraint);
    buf_append_str(constraint->out,
                   "{\"seq\":[{\"tagged\":{\"pattern\":\"^[^\\\\s\\\":,<\\\\[\\\\]{}]$\"},\"until\":\"=(\"},"
                   "{\"free\":{\"until\":[\":\",\",\",\"{\",\"}\",\"[\",\"]\",\"<\",\"\\\"\"");
    for (unsigned c = 0; c < ' '; c++)
        buf_printf(constraint->out, ",\"\\u%04x\"", c);
    buf_printf(constraint->out, "],\"max_tokens\":%u}}]}", MAX_KEY_TOKENS);
}

void constraint_free(struct constraint *constraint, const char *const *until, uint32_t max_tokens)
{
    begin_item(constraint);
    buf_append_str(constraint->out, "{\"free\":{");
    if (until[0] != NULL) {
        buf_append_str(constraint->out, "\"until\":[");
        for (size_t i = 0; until[i] != NULL; i++) {
            begin_item(constraint);
            json_put_str(constraint->out, bytes_str(until[i]));
        }
        buf_append_byte(constraint->out, ']');
    }
    if (max_tokens > 0)
        buf_printf(constraint->out, "%s\"max_tokens\":%u", until[0] != NULL ? "," : "", max_tokens);
    buf_append_str(constraint->out, "}}");
}

void constraint_open_seq(struct constraint *constraint)
{
    begin_item(constraint);
    buf_append_str(constraint->out, "{\"seq\":[");
}

void constraint_open_any(struct constraint *constraint)
{
    begin_item(constraint);
    buf_append_str(constraint->out, "{\"any\":[");
}

void constraint_close(struct constraint *constraint)
{
    buf_append_str(constraint->out, "]}");
}

void constraint_close_rooted(struct constraint *constraint, struct bytes root)
{
    buf_append_str(constraint->out, "],\"root\":");
    buf_append(constraint->out, root.data, root.len_bytes);
    end_named(constraint);
}

void constraint_open_rep(struct constraint *constraint)
{
    begin_item(constraint);
    buf_append_str(constraint->out, "{\"rep\":");
}

void constraint_close_rep(struct constraint *constraint, int min, int max)
{
    buf_printf(constraint->out, ",\"min\":%d", min);
    if (max >= 0)
        buf_printf(constraint->out, ",\"max\":%d", max);
    buf_append_byte(constraint->out, '}');
}
