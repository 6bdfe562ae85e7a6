/* SPDX-License-Identifier: Apache-2.0 */
/* Two public formats:
 *
 *   TIMESTAMP,ContextTokens,GeneratedTokens          Azure LLM inference traces
 *   2023-11-16 18:17:03.9799600,4808,10
 *
 *   {"timestamp": 0, "input_length": 6758, "output_length": 500, "hash_ids": [0, 1, 2]}      Mooncake
 *
 * A bad line ends the reading with an error that names it.  Only empty lines are skipped: a trace with gaps
 * would measure another load.  Entries are sorted by time, because recorders write a request when it ends. */
#include "clients/bench/trace.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/file.h"
#include "base/str.h"

#define MAX_FILE_BYTES (UINT64_C(1) << 30)
#define MAX_TOKENS     (16u << 20)

struct builder {
    struct trace trace;
    size_t cap_entries;
    size_t cap_block_ids;
};

void trace_fini(struct trace *trace)
{
    free(trace->entries);
    free(trace->block_ids);
    *trace = (struct trace){0};
}

static int trace_add_entry(struct builder *builder, struct trace_entry entry)
{
    struct trace *trace = &builder->trace;

    if (trace->n_entries == builder->cap_entries) {
        size_t cap = builder->cap_entries > 0 ? 2 * builder->cap_entries : 1024;
        struct trace_entry *grown = reallocarray(trace->entries, cap, sizeof(*grown));

        if (grown == NULL)
            return E_NOMEM;
        trace->entries = grown;
        builder->cap_entries = cap;
    }
    trace->entries[trace->n_entries++] = entry;
    return 0;
}

static int add_block_id(struct builder *builder, uint64_t id)
{
    struct trace *trace = &builder->trace;

    if (trace->n_block_ids == UINT32_MAX)
        return E_LIMIT;
    if (trace->n_block_ids == builder->cap_block_ids) {
        size_t cap = builder->cap_block_ids > 0 ? 2 * builder->cap_block_ids : 4096;
        uint64_t *grown = reallocarray(trace->block_ids, cap, sizeof(*grown));

        if (grown == NULL)
            return E_NOMEM;
        trace->block_ids = grown;
        builder->cap_block_ids = cap;
    }
    trace->block_ids[trace->n_block_ids++] = id;
    return 0;
}

/* ---- Azure ---- */

/* Days since 1970-01-01 of a date in the Gregorian calendar. */
static int64_t days_of(int64_t year, unsigned month, unsigned day)
{
    int64_t y = month <= 2 ? year - 1 : year; /* years begin in March, so the leap day is the last */
    int64_t era = y / 400;
    int64_t year_of_era = y - era * 400;
    int64_t day_of_year = (153 * ((int64_t)month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;

    return era * 146097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719468;
}

static bool is_date(unsigned year, unsigned month, unsigned day)
{
    unsigned next_year = month == 12 ? year + 1 : year, next_month = month == 12 ? 1 : month + 1;

    return year >= 1970 && month >= 1 && month <= 12 && day >= 1 &&
           days_of(year, month, day) < days_of(next_year, next_month, 1);
}

static bool trace_take_number(struct bytes text, size_t *at, size_t n_digits, unsigned *out)
{
    unsigned value = 0;

    if (text.len_bytes - *at < n_digits)
        return false;
    for (size_t i = 0; i < n_digits; i++) {
        uint8_t c = text.data[*at + i];

        if (c < '0' || c > '9')
            return false;
        value = value * 10 + (c - '0');
    }
    *at += n_digits;
    *out = value;
    return true;
}

static bool trace_take_char(struct bytes text, size_t *at, const char *any_of)
{
    if (*at >= text.len_bytes || text.data[*at] == '\0' || strchr(any_of, text.data[*at]) == NULL)
        return false;
    ++*at;
    return true;
}

bool trace_time_parse(struct bytes text, uint64_t *ns_out)
{
    unsigned year, month, day, hour, minute, second, digit;
    uint64_t fraction_ns = 0;
    size_t at = 0;

    if (!trace_take_number(text, &at, 4, &year) || !trace_take_char(text, &at, "-") ||
        !trace_take_number(text, &at, 2, &month) || !trace_take_char(text, &at, "-") ||
        !trace_take_number(text, &at, 2, &day) || !trace_take_char(text, &at, " T") ||
        !trace_take_number(text, &at, 2, &hour) || !trace_take_char(text, &at, ":") ||
        !trace_take_number(text, &at, 2, &minute) || !trace_take_char(text, &at, ":") ||
        !trace_take_number(text, &at, 2, &second))
        return false;
    if (!is_date(year, month, day) || hour > 23 || minute > 59 || second > 60)
        return false;
    if (trace_take_char(text, &at, "."))
        for (uint64_t unit = NS_PER_S / 10; trace_take_number(text, &at, 1, &digit); unit /= 10)
            fraction_ns += unit * digit;
    if (!trace_take_char(text, &at, "Z") && text.len_bytes - at == 6)
        at += bytes_equal(bytes_of(text.data + at, 6), bytes_str("+00:00")) ? 6 : 0;
    *ns_out = (((uint64_t)days_of(year, month, day) * 24 + hour) * 60 + minute) * 60 * NS_PER_S +
              second * NS_PER_S + fraction_ns;
    return at == text.len_bytes;
}

static struct bytes next_cell(struct bytes line, size_t *at)
{
    size_t comma = bytes_find(line, bytes_str(","), *at);
    size_t end = comma == SIZE_MAX ? line.len_bytes : comma;
    struct bytes cell = bytes_of(line.data + *at, end - *at);

    *at = comma == SIZE_MAX ? line.len_bytes : comma + 1;
    return cell;
}

static int take_azure_line(struct builder *builder, struct bytes line, const char **why)
{
    struct trace_entry entry = {0};
    uint64_t prompt = 0;
    uint64_t answer = 0;
    size_t at = 0;

    *why = "wants a time and two numbers of tokens";
    if (!trace_time_parse(next_cell(line, &at), &entry.at_ns) ||
        str_to_u64(next_cell(line, &at), &prompt) < 0 || str_to_u64(next_cell(line, &at), &answer) < 0 ||
        at != line.len_bytes || prompt > MAX_TOKENS || answer > MAX_TOKENS)
        return E_FORMAT;
    entry.prompt_tokens = (uint32_t)prompt;
    entry.answer_tokens = (uint32_t)answer;
    return trace_add_entry(builder, entry);
}

/* ---- Mooncake ---- */

static bool take_count(const json_t *object, const char *name, uint64_t max, uint64_t *out)
{
    const json_t *value = json_object_get(object, name);

    if (!json_is_integer(value) || json_integer_value(value) < 0 || (uint64_t)json_integer_value(value) > max)
        return false;
    *out = (uint64_t)json_integer_value(value);
    return true;
}

static int take_object(struct builder *builder, const json_t *object, const char **why)
{
    const json_t *ids = json_object_get(object, "hash_ids");
    const char *class = json_string_value(json_object_get(object, "class"));
    struct trace_entry entry = {.first_block = (uint32_t)builder->trace.n_block_ids};
    uint64_t at_ms = 0;
    uint64_t prompt = 0;
    uint64_t answer = 0;
    size_t i;
    json_t *id;

    *why = "wants timestamp, input_length and output_length as numbers";
    if (!take_count(object, "timestamp", UINT64_MAX / NS_PER_MS, &at_ms) ||
        !take_count(object, "input_length", MAX_TOKENS, &prompt) ||
        !take_count(object, "output_length", MAX_TOKENS, &answer))
        return E_FORMAT;
    *why = "hash_ids wants to be a list of numbers";
    if (ids != NULL && !json_is_array(ids) && !json_is_null(ids))
        return E_FORMAT;
    json_array_foreach(ids, i, id)
    {
        int rc = json_is_integer(id) ? add_block_id(builder, (uint64_t)json_integer_value(id)) : E_FORMAT;

        if (rc < 0)
            return rc;
    }
    entry.n_blocks = (uint32_t)json_array_size(ids);
    entry.has_other_class = class != NULL && class[0] != '\0' && strcmp(class, "default") != 0;
    entry.at_ns = at_ms * NS_PER_MS;
    entry.prompt_tokens = (uint32_t)prompt;
    entry.answer_tokens = (uint32_t)answer;
    return trace_add_entry(builder, entry);
}

static int take_mooncake_line(struct builder *builder, struct bytes line, const char **why)
{
    json_t *object = json_loadb((const char *)line.data, line.len_bytes, 0, NULL);
    int rc = E_FORMAT;

    *why = "not a JSON object";
    if (json_is_object(object))
        rc = take_object(builder, object, why);
    json_decref(object);
    return rc;
}

/* ---- files ---- */

static int trace_by_time(const void *a, const void *b)
{
    const struct trace_entry *x = a;
    const struct trace_entry *y = b;

    return x->at_ns < y->at_ns ? -1 : x->at_ns > y->at_ns;
}

static int trace_finish(const char *name, struct trace *trace, struct fault *fault)
{
    uint64_t first_ns;

    if (trace->n_entries == 0)
        return fault_set(fault, E_FORMAT, "%s: no requests in it", name);
    qsort(trace->entries, trace->n_entries, sizeof(trace->entries[0]), trace_by_time);
    first_ns = trace->entries[0].at_ns;
    for (size_t i = 0; i < trace->n_entries; i++)
        trace->entries[i].at_ns -= first_ns;
    return 0;
}

static struct bytes trace_next_line(struct bytes text, size_t *at)
{
    const uint8_t *lf = memchr(text.data + *at, '\n', text.len_bytes - *at);
    size_t end = lf == NULL ? text.len_bytes : (size_t)(lf - text.data);
    struct bytes line = bytes_of(text.data + *at, end - *at);

    *at = lf == NULL ? end : end + 1;
    if (line.len_bytes > 0 && line.data[line.len_bytes - 1] == '\r')
        line.len_bytes--;
    return line;
}

static bool is_azure_head(struct bytes line)
{
    return bytes_starts_with(line, "TIMESTAMP,ContextTokens,GeneratedTokens");
}

/* Moves behind a byte order mark, which some programs write, and behind empty lines. */
static unsigned trace_skip_head(struct bytes text, size_t *at)
{
    unsigned n_lines = 0;
    size_t next;

    *at = bytes_starts_with(text, "\xef\xbb\xbf") ? 3 : 0;
    for (next = *at; next < text.len_bytes && trace_next_line(text, &next).len_bytes == 0; n_lines++)
        *at = next;
    return n_lines;
}

int trace_parse(const char *name, struct bytes text, struct fault *fault, struct trace *out)
{
    struct builder builder = {0};
    size_t at = 0;
    unsigned n_line = trace_skip_head(text, &at);
    bool is_json = at < text.len_bytes && text.data[at] == '{';
    int rc = 0;

    if (!is_json && !is_azure_head(bytes_of(text.data + at, text.len_bytes - at)))
        return fault_set(fault, E_FORMAT,
                         "%s: neither Azure's CSV (its first line is "
                         "TIMESTAMP,ContextTokens,GeneratedTokens) nor Mooncake's JSON lines",
                         name);
    if (!is_json) {
        (void)trace_next_line(text, &at);
        n_line++;
    }
    while (rc == 0 && at < text.len_bytes) {
        struct bytes line = trace_next_line(text, &at);
        const char *why = "";

        n_line++;
        if (line.len_bytes == 0)
            continue;
        rc = is_json ? take_mooncake_line(&builder, line, &why) : take_azure_line(&builder, line, &why);
        if (rc < 0)
            fault_set(fault, rc, "%s:%u: %s", name, n_line, rc == E_FORMAT ? why : err_text(rc));
    }
    if (rc == 0)
        rc = trace_finish(name, &builder.trace, fault);
    if (rc < 0) {
        trace_fini(&builder.trace);
        return rc;
    }
    *out = builder.trace;
    return 0;
}

int trace_load(const char *path, struct fault *fault, struct trace *out)
{
    bool is_stdin = strcmp(path, "-") == 0;
    FILE *file = is_stdin ? stdin : fopen(path, "re");
    const char *name = is_stdin ? "standard input" : path;
    struct buf text = {0};
    int rc;

    if (file == NULL)
        return fault_set(fault, E_IO, "%s: %s", path, strerror(errno));
    rc = file_read_rest(file, MAX_FILE_BYTES, &text);
    if (rc != 0)
        fault_set(fault, rc, "%s: %s", name, rc == E_IO ? strerror(errno) : err_text(rc));
    if (!is_stdin)
        fclose(file);
    if (rc == 0)
        rc = trace_parse(name, buf_view(&text), fault, out);
    buf_fini(&text);
    return rc;
}
