/* SPDX-License-Identifier: Apache-2.0 */
/* The three formats of a log line.
 *
 *   JSON {"ts":"2026-11-20T22:26:00.000123Z","level":"info","program":"baton-decode","event":"x","blocks":12}
 *
 *    text     22:26:00.123 info  x blocks=12 model="a b"
 *    journal  MESSAGE=x blocks=12 / PRIORITY=6 / SYSLOG_IDENTIFIER=baton-decode / EVENT=x / BLOCKS=12
 *
 * Values may come from outside.  In JSON and text they pass json_put_str(), which lets no control byte,
 * broken UTF-8 or terminal escape through; text leaves plain words unquoted.  The journal's protocol is
 * binary-safe (a value with a newline is sent with its length), but its readers are not, so values are
 * escaped there too. */
#include "base/log_priv.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/str.h"

enum { MAX_VALUE_BYTES = 1024 };

static const char *level_name(enum log_level level)
{
    switch (level) {
    case LOG_LEVEL_DEBUG:
        return "debug";
    case LOG_LEVEL_INFO:
        return "info";
    case LOG_LEVEL_WARN:
        return "warn";
    case LOG_LEVEL_ERROR:
        return "error";
    }
    return "?";
}

int log_priority(enum log_level level)
{
    switch (level) {
    case LOG_LEVEL_DEBUG:
        return 7;
    case LOG_LEVEL_INFO:
        return 6;
    case LOG_LEVEL_WARN:
        return 4;
    case LOG_LEVEL_ERROR:
        return 3;
    }
    return 5;
}

static bool log_format_is_plain(struct bytes text)
{
    for (size_t i = 0; i < text.len_bytes; i++)
        if (!isalnum(text.data[i]) && strchr("-_.:/+@%,[]", text.data[i]) == NULL)
            return false;
    return text.len_bytes > 0 && memchr(text.data, '\0', text.len_bytes) == NULL;
}

static void put_str(struct buf *out, const char *value, bool may_be_bare)
{
    struct bytes text = bytes_str(value == NULL ? "" : value);

    if (text.len_bytes > MAX_VALUE_BYTES) {
        struct buf cut = {0};

        text.len_bytes = MAX_VALUE_BYTES;
        text.len_bytes -= utf8_missing(text) > 0 ? 3 : 0; /* losing half a character does no harm */
        buf_append(&cut, text.data, text.len_bytes);
        buf_append_str(&cut, "...");
        json_put_str(out, buf_view(&cut));
        buf_fini(&cut);
        return;
    }
    if (may_be_bare && log_format_is_plain(text))
        buf_append(out, text.data, text.len_bytes);
    else
        json_put_str(out, text);
}

static void log_format_put_value(struct buf *out, const struct log_field *field, bool may_be_bare)
{
    switch (field->kind) {
    case LOG_KIND_STR:
        put_str(out, field->as.str, may_be_bare);
        return;
    case LOG_KIND_U64:
        buf_printf(out, "%" PRIu64, field->as.u64);
        return;
    case LOG_KIND_I64:
        buf_printf(out, "%" PRId64, field->as.i64);
        return;
    case LOG_KIND_F64:
        if (isfinite(field->as.f64))
            buf_printf(out, "%.9g", field->as.f64);
        else
            buf_append_str(out, "null"); /* JSON has no NaN and no infinity */
        return;
    case LOG_KIND_BOOL:
        buf_append_str(out, field->as.flag ? "true" : "false");
        return;
    }
}

/* "event key=value key=value" */
static void put_sentence(const struct log_line *line, struct buf *out)
{
    put_str(out, line->event, true);
    for (const struct log_field *field = line->fields; field->key != NULL; field++) {
        buf_append_byte(out, ' ');
        put_str(out, field->key, true);
        buf_append_byte(out, '=');
        log_format_put_value(out, field, true);
    }
}

void log_format_json(const struct log_line *line, struct buf *out)
{
    char when[21];

    clock_rfc3339(line->unix_ns / NS_PER_S, when);
    buf_printf(out, "{\"ts\":\"%.19s.%06uZ\",\"level\":\"%s\",\"program\":", when,
               (unsigned)(line->unix_ns % NS_PER_S / NS_PER_US), level_name(line->level));
    put_str(out, line->program, false);
    buf_append_str(out, ",\"event\":");
    put_str(out, line->event, false);
    for (const struct log_field *field = line->fields; field->key != NULL; field++) {
        buf_append_byte(out, ',');
        put_str(out, field->key, false);
        buf_append_byte(out, ':');
        log_format_put_value(out, field, false);
    }
    buf_append_str(out, "}\n");
}

void log_format_text(const struct log_line *line, struct buf *out)
{
    static const char *const colours[] = {"\033[2m", "", "\033[33m", "\033[31m"};
    bool is_coloured = line->has_colour && colours[line->level][0] != '\0';
    char when[21];

    clock_rfc3339(line->unix_ns / NS_PER_S, when);
    buf_printf(out, "%.8s.%03u ", when + 11, (unsigned)(line->unix_ns % NS_PER_S / NS_PER_MS));
    if (is_coloured)
        buf_append_str(out, colours[line->level]);
    buf_printf(out, "%-5s", level_name(line->level));
    if (is_coloured)
        buf_append_str(out, "\033[0m");
    buf_append_byte(out, ' ');
    put_sentence(line, out);
    buf_append_byte(out, '\n');
}

/* Journal field names are A-Z, 0-9 and _, and do not begin with _ or a digit. */
static void put_journal_name(struct buf *out, const char *key)
{
    if (!isalpha((unsigned char)key[0]))
        buf_append_str(out, "X_");
    for (size_t i = 0; key[i] != '\0' && i < 60; i++)
        buf_append_byte(out, isalnum((unsigned char)key[i]) ? (uint8_t)toupper((unsigned char)key[i]) : '_');
}

void log_format_journal(const struct log_line *line, struct buf *out)
{
    buf_append_str(out, "MESSAGE=");
    put_sentence(line, out);
    buf_printf(out, "\nPRIORITY=%d\nSYSLOG_IDENTIFIER=", log_priority(line->level));
    put_str(out, line->program, true);
    buf_append_str(out, "\nEVENT=");
    put_str(out, line->event, true);
    buf_append_byte(out, '\n');
    for (const struct log_field *field = line->fields; field->key != NULL; field++) {
        put_journal_name(out, field->key);
        buf_append_byte(out, '=');
        log_format_put_value(out, field, true);
        buf_append_byte(out, '\n');
    }
}
