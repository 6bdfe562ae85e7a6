/* SPDX-License-Identifier: Apache-2.0 */
/* Interfaces between the files of config: parse.c reads lines, bind.c converts types, load.c makes
 * snapshots, show.c writes text. */
#ifndef BASE_CONFIG_CONFIG_PRIV_H
#define BASE_CONFIG_CONFIG_PRIV_H

#include "base/config/config.h"

/* Callbacks for the lines of a file; views are valid during the call. */
struct config_reader {
    void *arg;
    void (*section)(void *arg, unsigned line, struct bytes name);
    void (*value)(void *arg, unsigned line, struct bytes name, struct bytes value);
    void (*error)(void *arg, unsigned line, const char *message);
};

void config_parse(struct bytes text, const struct config_reader *reader);

/* Parses value into the key's member of config.  Replaces a string, adds to a list.  On failure (E_FORMAT,
 * E_RANGE, E_NOMEM) the member is unchanged and why says the reason in words. */
int config_bind(const struct config_key *key, struct bytes value, void *config, struct buf *why);
/* Frees the member's memory and zeroes it. */
void config_unbind(const struct config_key *key, void *config);
size_t config_member_bytes(enum config_type type); /* size of the member in the daemon's struct */
bool config_same(const struct config_key *key, const void *a, const void *b);
/* Writes the member as text that config_bind() accepts; for a list, the item number `item` (E_NOT_FOUND
 * beyond the last). */
int config_text(const struct config_key *key, const void *config, size_t item, struct buf *out);
/* Appends the type for people: "size", "duration", "fast|safe". */
void config_describe(const struct config_key *key, struct buf *out);
/* Appends "between 1KiB and 2MiB"; nothing when there is no limit. */
void config_describe_range(const struct config_key *key, struct buf *out);

/* config_place: where the value, or this item of a list, comes from, "file:line"; NULL: default.
 * config_file: the main file that was loaded; NULL: none. */
const char *config_place(const void *config, size_t key_index, size_t item);
const char *config_file(const void *config);

/* Outside text for a message, cut to 60 bytes at a character boundary.  Returns a string that may lie in
 * out. */
const char *config_shown(struct bytes text, char out[64]);
/* The word among n that is nearest to text.  NULL: none is close enough. */
const char *config_nearest(const char *text, const char *const *words, size_t n);

#endif
