/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the table as text: the annotated sample file, the dump of a snapshot, the manual's list of keys.
 *
 * All three come only from the table, so they always agree with the parser.  In the sample every key is
 * commented out and shows its default.  The dump is a file that loads to the same values; a comment above
 * each value gives its origin. */
#include "base/config/config.h"

#include <string.h>

#include "base/config/config_priv.h"

enum { WRAP_COLUMNS = 78 };

/* Writes text as lines of at most WRAP_COLUMNS, each after prefix. */
static void write_wrapped(FILE *out, const char *prefix, const char *text)
{
    size_t column = 0;

    while (*text != '\0') {
        size_t word_bytes = strcspn(text, " \n");

        if (column > 0 && column + 1 + word_bytes > WRAP_COLUMNS) {
            fputc('\n', out);
            column = 0;
        }
        column += (size_t)(column == 0 ? fprintf(out, "%s ", prefix) : fprintf(out, " "));
        column += (size_t)fprintf(out, "%.*s", (int)word_bytes, text);
        text += word_bytes;
        if (*text == '\n') {
            fputc('\n', out);
            column = 0;
        }
        text += *text != '\0';
    }
    if (column > 0)
        fputc('\n', out);
}

/* Writes a heading wherever the section changes. */
static bool begins_section(const struct config_table *table, size_t i)
{
    return i == 0 || strcmp(table->keys[i].section, table->keys[i - 1].section) != 0;
}

/* Appends "size, between 1MiB and 4GiB; reload". */
static void config_show_describe(const struct config_key *key, struct buf *out)
{
    struct buf range = {0};

    config_describe(key, out);
    config_describe_range(key, &range);
    if (range.len_bytes > 0)
        buf_printf(out, ", %s", (char *)range.data);
    buf_append_str(out, key->is_reloadable ? "; a reload applies it" : "; needs a restart");
    buf_fini(&range);
}

/* A list gives one line for each word of the default. */
static void write_default(FILE *out, const struct config_key *key)
{
    const char *at = key->default_text;

    do {
        size_t len_bytes = key->type == CONFIG_LIST ? strcspn(at, " ") : strlen(at);

        fprintf(out, "#%s =%s%.*s\n", key->name, len_bytes > 0 ? " " : "", (int)len_bytes, at);
        at += len_bytes;
        at += strspn(at, " ");
    } while (*at != '\0');
}

void config_write_sample(const struct config_table *table, FILE *out)
{
    write_wrapped(out, "#", table->intro);
    for (size_t i = 0; i < table->n_keys; i++) {
        const struct config_key *key = &table->keys[i];
        struct buf kind = {0};

        fputc('\n', out);
        if (begins_section(table, i))
            fprintf(out, "[%s]\n", key->section);
        write_wrapped(out, "#", key->help);
        config_show_describe(key, &kind);
        if (!kind.is_bad)
            fprintf(out, "# (%s)\n", (char *)kind.data);
        write_default(out, key);
        buf_fini(&kind);
    }
}

static void write_value(FILE *out, const struct config_key *key, const void *config)
{
    struct buf value = {0};
    size_t item = 0;

    while (config_text(key, config, item, &value) == 0) {
        fprintf(out, "%s =%s%s\n", key->name, value.len_bytes > 0 ? " " : "",
                value.data == NULL ? "" : (char *)value.data);
        buf_clear(&value);
        item++;
        if (key->type != CONFIG_LIST)
            break;
    }
    if (item == 0)
        fprintf(out, "%s =\n", key->name); /* an explicit empty list: the default may have items */
    buf_fini(&value);
}

void config_write_dump(const struct config_table *table, const void *config, FILE *out)
{
    for (size_t i = 0; i < table->n_keys; i++) {
        const struct config_key *key = &table->keys[i];

        if (begins_section(table, i))
            fprintf(out, "%s[%s]\n", i == 0 ? "" : "\n", key->section);
        fprintf(out, "# %s\n", config_origin(table, config, i));
        write_value(out, key, config);
    }
}

/* Writes text for roff without escapes and control lines.  Each sentence gets its own line, as the manual
 * style requires. */
static void write_roff(FILE *out, const char *text)
{
    bool is_line_start = true;

    for (; *text != '\0'; text++) {
        if (is_line_start && (*text == '.' || *text == '\''))
            fputs("\\&", out);
        bool ends_sentence = *text == '.' && text[1] == ' ';

        if (*text == '\\')
            fputs("\\e", out);
        else
            fputc(*text, out);
        if (ends_sentence) {
            fputc('\n', out);
            text++;
        }
        is_line_start = ends_sentence || *text == '\n';
    }
    if (!is_line_start)
        fputc('\n', out);
}

void config_write_manual(const struct config_table *table, FILE *out)
{
    for (size_t i = 0; i < table->n_keys; i++) {
        const struct config_key *key = &table->keys[i];
        struct buf kind = {0};

        if (begins_section(table, i))
            fprintf(out, "%s.Ss [%s]\n.Bl -tag -width Ds\n", i == 0 ? "" : ".El\n", key->section);
        fprintf(out, ".It Cm %s\n", key->name);
        write_roff(out, key->help);
        config_show_describe(key, &kind);
        fputs(".Pp\nValue: ", out);
        write_roff(out, kind.is_bad ? "" : (char *)kind.data);
        fputs(".Pp\nDefault: ", out);
        write_roff(out, key->default_text[0] == '\0' ? "none" : key->default_text);
        buf_fini(&kind);
    }
    if (table->n_keys > 0)
        fputs(".El\n", out);
}
