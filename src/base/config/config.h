/* SPDX-License-Identifier: Apache-2.0 */
/* Configuration files: INI with units and drop-ins, bound to a struct by one table for each daemon.
 *
 *     main.conf, then main.conf.d/<anything>.conf in byte order; later values win.
 *     [section]
 *     key = value
 *     # comments, also with ;, on lines of their own
 *
 * The value is the rest of the line, without leading and trailing blanks.  A list grows when its key is
 * repeated, across files too; an empty value empties the list.  Any other key may appear only once in a
 * file.
 *
 * The same table checks values, gives defaults, and writes the annotated sample, --dump-config and the
 * manual's key list.  The loader collects every error as "file:line: section.key: message".  For an unknown
 * key it names the nearest known one. */
#ifndef BASE_CONFIG_CONFIG_H
#define BASE_CONFIG_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/bytes.h"

enum config_type {
    CONFIG_STR,      /* char *      */
    CONFIG_BOOL,     /* bool        yes/no/true/false/on/off/1/0 */
    CONFIG_U64,      /* uint64_t    */
    CONFIG_F64,      /* double      */
    CONFIG_RATIO,    /* double      0.25 or 25%; 0 to 1 unless min or max say otherwise */
    CONFIG_SIZE,     /* uint64_t    bytes, with units */
    CONFIG_DURATION, /* uint64_t    ns, with units */
    CONFIG_ENUM,     /* int         one of `choices`, by index */
    CONFIG_ADDRESS,  /* char *      host:port, [v6]:port, unix:/path; "" for none; port 0: any free one */
    CONFIG_PATH,     /* char *      "" for none */
    CONFIG_CPUS,     /* char *      "0-3,8", "" for none; checked */
    CONFIG_LIST      /* struct config_list  repeated strings */
};

struct config_list {
    char **items;
    size_t n;
};

struct config_key {
    const char *section;
    const char *name;
    enum config_type type;
    size_t offset;            /* offset in the bound struct */
    const char *default_text; /* LIST: words separated by blanks */
    double min, max;          /* numbers, sizes (bytes), durations (ns); max <= min: no upper limit */
    const char *choices;      /* ENUM: words separated by '|' */
    bool is_reloadable;       /* SIGHUP may change the value */
    const char *help;         /* one or more sentences for the sample's comments and the manual */
};

struct config_table {
    const char *daemon;            /* "baton-router" */
    const char *file_name;         /* "router.conf" */
    const char *intro;             /* comment at the top of the sample file */
    const struct config_key *keys; /* keys of one section are adjacent */
    size_t n_keys;
    size_t struct_bytes;
};

struct config_source {            /* what follows the defaults; all borrowed */
    const char *path;             /* NULL: no files */
    const char *const *overrides; /* [n_overrides] "section.key=value" from the command line; may be NULL */
    size_t n_overrides;
};

/* Loads a snapshot into a new struct *out; release it with config_free().  The struct is filled with
 * defaults, then from files, then from overrides.  The first override of a list replaces the list of the files.
 * On errors returns E_FORMAT (or E_NOMEM), appends one line for each error to *errors, and leaves *out unchanged. */
int config_load(const struct config_table *table, const struct config_source *source, struct buf *errors,
                void **out);
/* The same from text, for tests and fuzzing; messages use name as the file name. */
int config_load_text(const struct config_table *table, const char *name, struct bytes text,
                     struct buf *errors, void **out);
void config_free(const struct config_table *table, void *config);

/* Where the value comes from: "default", "file:line" or "command line".  Borrowed from config. */
const char *config_origin(const struct config_table *table, const void *config, size_t key_index);

/* A daemon's check of a whole snapshot.  It covers facts that the table cannot express: files, addresses,
 * keys that depend on each other.  Start, reload and --check-config run the same check. */
struct config_check {
    const struct config_table *table;
    const void *config;
    struct buf *findings; /* one line for each finding, "place: section.key: text" */
    bool is_reload;       /* a reload does not reopen the model and the ports */
    unsigned n_refused, n_warned;
};

/* Adds an error. key is "section.name" of the table; the text says the fault and how to mend it.  The
 * place is the value's file and line, or the file that leaves the key at its default.  It is "command line
 * (--set)" for an override, and "default" when there is no file. */
__attribute__((format(printf, 3, 4))) void config_refuse(struct config_check *check, const char *key,
                                                         const char *format, ...);
/* The same for one item of a list. */
__attribute__((format(printf, 4, 5))) void config_refuse_item(struct config_check *check, const char *key,
                                                              size_t item, const char *format, ...);
/* Adds a warning, for a value that works but is probably a mistake: "place: section.key: warning: text". */
__attribute__((format(printf, 3, 4))) void config_warn(struct config_check *check, const char *key,
                                                       const char *format, ...);

void config_write_sample(const struct config_table *table, FILE *out);
void config_write_dump(const struct config_table *table, const void *config, FILE *out);
void config_write_manual(const struct config_table *table, FILE *out); /* mdoc list of keys */

/* For a start that fails after the check.  Appends text to out.  If text begins with "section.key: ", it first
 * appends the place of that key, or of the list item that the text quotes. */
void config_put_placed(const struct config_table *table, const void *config, const char *text,
                       struct buf *out);

/* Compares two snapshots and calls changed for each key that differs.  A reload applies the reloadable
 * ones. */
void config_diff(const struct config_table *table, const void *from, const void *to,
                 void (*changed)(void *arg, const struct config_key *key), void *arg);
/* Digest of all values in effect.  Equal configurations of a table have equal digests, for any origins of the
 * values.  It has 48 bits, so that a double holds it. */
uint64_t config_digest(const struct config_table *table, const void *config);
/* Appends a key's value as text; the items of a list separated by ", ". */
void config_put_value(const struct config_key *key, const void *config, struct buf *out);

/* First step of a reload: swaps all keys that are not reloadable between running and fresh.  So fresh has
 * the values that the daemon runs with, and pointers into running's text stay valid. */
void config_keep_fixed(const struct config_table *table, void *running, void *fresh);

#endif
