/* SPDX-License-Identifier: Apache-2.0 */
/* Splits a configuration file into lines.
 *
 * This file handles text only; the caller gives sections and keys their meaning.  It reports and skips a bad
 * line, so that one run shows every mistake of a file.  It also accepts a byte order mark, CR LF line ends,
 * and a last line without an end.  It refuses lines that are too long.  It also refuses control characters
 * and bytes that are not UTF-8, because they would end up in logs and file names. */
#include "base/config/config_priv.h"

#include <string.h>

#include "base/str.h"

enum { MAX_LINE_BYTES = 8192 };

static bool config_parse_is_blank(uint8_t byte)
{
    return byte == ' ' || byte == '\t';
}

static struct bytes config_parse_trim(struct bytes text)
{
    while (text.len_bytes > 0 && config_parse_is_blank(text.data[0]))
        text = bytes_of(text.data + 1, text.len_bytes - 1);
    while (text.len_bytes > 0 && config_parse_is_blank(text.data[text.len_bytes - 1]))
        text.len_bytes--;
    return text;
}

/* The reason why the line cannot be read at all, or NULL. */
static const char *find_fault(struct bytes line)
{
    if (line.len_bytes > MAX_LINE_BYTES)
        return "the line is too long (more than 8192 bytes)";
    for (size_t i = 0; i < line.len_bytes; i++)
        if ((line.data[i] < 0x20 && line.data[i] != '\t') || line.data[i] == 0x7f)
            return "the line holds a control character";
    if (utf8_valid_prefix(line) != line.len_bytes)
        return "the line is not valid UTF-8";
    return NULL;
}

static void parse_section(struct bytes line, unsigned number, const struct config_reader *reader)
{
    size_t close = bytes_find(line, bytes_str("]"), 0);

    if (close == SIZE_MAX) {
        reader->error(reader->arg, number, "the section's name has no closing ]");
        return;
    }
    if (close + 1 != line.len_bytes) {
        reader->error(reader->arg, number,
                      "there is something after the ] (comments stand on lines of their own)");
        return;
    }
    struct bytes name = config_parse_trim(bytes_of(line.data + 1, close - 1));
    if (name.len_bytes == 0)
        reader->error(reader->arg, number, "the section has no name");
    else
        reader->section(reader->arg, number, name);
}

static void parse_line(struct bytes line, unsigned number, const struct config_reader *reader)
{
    const char *fault = find_fault(line);

    if (fault != NULL) {
        reader->error(reader->arg, number, fault);
        return;
    }
    line = config_parse_trim(line);
    if (line.len_bytes == 0 || line.data[0] == '#' || line.data[0] == ';')
        return;
    if (line.data[0] == '[') {
        parse_section(line, number, reader);
        return;
    }

    size_t equals = bytes_find(line, bytes_str("="), 0);
    if (equals == SIZE_MAX) {
        reader->error(reader->arg, number, "neither [section] nor key = value");
        return;
    }
    struct bytes name = config_parse_trim(bytes_of(line.data, equals));
    struct bytes value = config_parse_trim(bytes_of(line.data + equals + 1, line.len_bytes - equals - 1));
    if (name.len_bytes == 0)
        reader->error(reader->arg, number, "there is no key before the =");
    else
        reader->value(reader->arg, number, name, value);
}

void config_parse(struct bytes text, const struct config_reader *reader)
{
    size_t at = bytes_starts_with(text, "\xef\xbb\xbf") ? 3 : 0;

    for (unsigned number = 1; at < text.len_bytes; number++) {
        const uint8_t *end = memchr(text.data + at, '\n', text.len_bytes - at);
        size_t len_bytes = end == NULL ? text.len_bytes - at : (size_t)(end - text.data) - at;
        struct bytes line = bytes_of(text.data + at, len_bytes);

        at += len_bytes + 1;
        if (line.len_bytes > 0 && line.data[line.len_bytes - 1] == '\r')
            line.len_bytes--;
        parse_line(line, number, reader);
    }
}
