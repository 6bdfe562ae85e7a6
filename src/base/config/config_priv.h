/* SPDX-License-Identifier: Apache-2.0 */
/* Between the files of config: parse.c reads lines, bind.c knows types, load.c makes snapshots, show.c
 * writes. */
#ifndef BASE_CONFIG_CONFIG_PRIV_H
#define BASE_CONFIG_CONFIG_PRIV_H

#include "base/config/config.h"

/* What a file says, line by line; views are valid during the call. */
struct config_reader {
    void *arg;
    void (*section)(void *arg, unsigned line, struct bytes name);
    void (*value)(void *arg, unsigned line, struct bytes name, struct bytes value);
    void (*error)(void *arg, unsigned line, const char *message);
};

void config_parse(struct bytes text, const struct config_reader *reader);

/* Reads value into the key's member of config.  Strings replace, lists grow.  On failure (E_FORMAT, E_RANGE,
 * E_NOMEM) the member is as before and why tells the reason in words. */
int config_bind(const struct config_key *key, struct bytes value, void *config, struct buf *why);
/* Frees the member's memory and zeroes it. */
void config_unbind(const struct config_key *key, void *config);
size_t config_member_bytes(enum config_type type); /* in the daemon's struct */
bool config_same(const struct config_key *key, const void *a, const void *b);
/* The member as text that config_bind() takes; for a list, its item at index (E_NOT_FOUND beyond the last).
 */
int config_text(const struct config_key *key, const void *config, size_t item, struct buf *out);
/* "size", "duration", "fast|safe" */
void config_describe(const struct config_key *key, struct buf *out);
/* "between 1KiB and 2MiB"; nothing when any value goes. */
void config_describe_range(const struct config_key *key, struct buf *out);

/* Where the value, or this item of a list, came from: "file:line"; NULL: default.  The file that was loaded;
 * NULL: none. */
const char *config_place(const void *config, size_t key_index, size_t item);
const char *config_file(const void *config);

/* Text from outside for a message: cut to 60 bytes at a character's end.  out holds it until its next use. */
const char *config_shown(struct bytes text, char out[64]);
/* The word nearest to text among n, or NULL when none is near enough to be meant. */
const char *config_nearest(const char *text, const char *const *words, size_t n);

#endif
