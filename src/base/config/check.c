/* SPDX-License-Identifier: Apache-2.0 */
/* Findings about a snapshot, in the format of the loader's errors.
 *
 * The loader sees one value at a time.  Only the daemon knows whether a file can be read or whether two keys
 * agree.  The daemon names the key, and this file adds the place that the loader recorded.  So the message
 * leads to the right line of the right file. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/config/config_priv.h"

enum { MAX_TEXT_BYTES = 1024 };

/* The index of the key with this name, or SIZE_MAX. */
static size_t key_find(const struct config_table *table, const char *text, size_t len_bytes)
{
    for (size_t i = 0; i < table->n_keys; i++) {
        const struct config_key *key = &table->keys[i];
        size_t section_bytes = strlen(key->section);

        if (section_bytes + 1 + strlen(key->name) == len_bytes &&
            strncmp(text, key->section, section_bytes) == 0 && text[section_bytes] == '.' &&
            strncmp(text + section_bytes + 1, key->name, strlen(key->name)) == 0)
            return i;
    }
    return SIZE_MAX;
}

static void put_finding(struct config_check *check, const char *place, const char *key, const char *text)
{
    buf_printf(check->findings, "%s: %s: %s\n", place, key, text);
}

static const char *place_at(const void *config, size_t index, size_t item)
{
    const char *place = config_place(config, index, item);

    if (place != NULL)
        return strcmp(place, "command line") == 0 ? "command line (--set)" : place;
    place = config_file(config);
    return place == NULL ? "default" : place;
}

static const char *config_check_place_of(const struct config_check *check, const char *key, size_t item)
{
    size_t index = key_find(check->table, key, strlen(key));

    ASSERT(index != SIZE_MAX); /* the name must be in the table */
    return place_at(check->config, index, item);
}

void config_put_placed(const struct config_table *table, const void *config, const char *text,
                       struct buf *out)
{
    const char *colon = strstr(text, ": ");
    size_t index = colon == NULL ? SIZE_MAX : key_find(table, text, (size_t)(colon - text));
    size_t item = SIZE_MAX;

    if (index != SIZE_MAX && table->keys[index].type == CONFIG_LIST) {
        const struct config_list *list = (const void *)((const char *)config + table->keys[index].offset);

        for (size_t i = 0; i < list->n && item == SIZE_MAX; i++)
            if (strstr(colon, list->items[i]) != NULL)
                item = i;
    }
    if (index != SIZE_MAX)
        buf_printf(out, "%s: ", place_at(config, index, item));
    buf_append_str(out, text);
}

/* item SIZE_MAX: the whole key. */
static void put_refusal(struct config_check *check, const char *key, size_t item, const char *format,
                        va_list args)
{
    char text[MAX_TEXT_BYTES];

    vsnprintf(text, sizeof(text), format, args);
    check->n_refused++;
    put_finding(check, config_check_place_of(check, key, item), key, text);
}

void config_refuse(struct config_check *check, const char *key, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    put_refusal(check, key, SIZE_MAX, format, args);
    va_end(args);
}

void config_refuse_item(struct config_check *check, const char *key, size_t item, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    put_refusal(check, key, item, format, args);
    va_end(args);
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
    put_finding(check, config_check_place_of(check, key, SIZE_MAX), key, text);
}
