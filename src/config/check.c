/* SPDX-License-Identifier: Apache-2.0 */
/* Findings about a snapshot, in the form in which the loader reports errors.
 *
 * The loader sees one value at a time; whether a file can be read or two keys agree is for the daemon to say.
 * It names the key, and the place comes from what the loader kept: whoever reads the message goes to that
 * line, whichever of the files it stands in. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "config/config_priv.h"

enum { MAX_TEXT_BYTES = 1024 };

/* The key's index; the table has it. */
static size_t key_index(const struct config_table *table, const char *key)
{
    const char *dot = strchr(key, '.');

    ASSERT(dot != NULL);
    for (size_t i = 0; i < table->n_keys; i++)
        if (strlen(table->keys[i].section) == (size_t)(dot - key) &&
            strncmp(table->keys[i].section, key, (size_t)(dot - key)) == 0 &&
            strcmp(table->keys[i].name, dot + 1) == 0)
            return i;
    ASSERT(!"a key of the table");
    return 0;
}

static void put_finding(struct config_check *check, const char *place, const char *key, const char *text)
{
    buf_printf(check->findings, "%s: %s: %s\n", place, key, text);
}

static const char *place_of(const struct config_check *check, const char *key, size_t item)
{
    const char *place = config_place(check->config, key_index(check->table, key), item);

    if (place != NULL)
        return strcmp(place, "command line") == 0 ? "command line (--set)" : place;
    place = config_file(check->config);
    return place == NULL ? "default" : place;
}

void config_refuse(struct config_check *check, const char *key, const char *format, ...)
{
    char text[MAX_TEXT_BYTES];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    check->n_refused++;
    put_finding(check, place_of(check, key, SIZE_MAX), key, text);
}

void config_refuse_item(struct config_check *check, const char *key, size_t item, const char *format, ...)
{
    char text[MAX_TEXT_BYTES];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    check->n_refused++;
    put_finding(check, place_of(check, key, item), key, text);
}

void config_warn(struct config_check *check, const char *key, const char *format, ...)
{
    char text[MAX_TEXT_BYTES] = "warning: ";
    size_t used = strlen(text);
    va_list args;

    va_start(args, format);
    vsnprintf(text + used, sizeof(text) - used, format, args);
    va_end(args);
    check->n_warned++;
    put_finding(check, place_of(check, key, SIZE_MAX), key, text);
}
