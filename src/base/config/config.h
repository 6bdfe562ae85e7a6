/* SPDX-License-Identifier: Apache-2.0 */
/* Configuration files: INI with units and drop-ins, bound to a struct by one table per daemon.
 *
 *     main.conf, then main.conf.d/<anything>.conf in byte order; later values win.
 *     [section]
 *     key = value
 *     # comments, also with ;, on lines of their own
 *
 * The value is the rest of the line, without the blanks around it.  A list grows by repeating its key, across
 * files too; an empty value empties it.  Any other key may stand only once in a file.
 *
 * The same table checks values, gives defaults, writes the annotated sample, --dump-config and the manual's
 * key list.  Every error is collected as "file:line: section.key: message"; unknown keys name the nearest
 * known one. */
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
    size_t offset;        /* into the bound struct */
    const char *standard; /* default, as text (LIST: words separated by blanks) */
    double min, max;      /* numbers, sizes (bytes), durations (ns); max not above min: no upper limit */
    const char *choices;  /* ENUM: words separated by '|' */
    bool is_reloadable;   /* SIGHUP may change it */
    const char *help;     /* one or more sentences: sample comments and manual text */
};

struct config_table {
    const char *daemon;            /* "baton-router" */
    const char *file_name;         /* "router.conf" */
    const char *intro;             /* comment at the top of the sample */
    const struct config_key *keys; /* those of a section stand together */
    size_t n_keys;
    size_t struct_bytes;
};

/* A loaded snapshot: the struct (release with config_free) filled with defaults, then files, then overrides
 * ("section.key=value", from the command line; may be NULL; for a list the first one replaces what files
 * said). path NULL: defaults only.  On errors returns E_FORMAT (or E_NOMEM), one line each is appended to
 * *errors, and *out is untouched. */
int config_load(const struct config_table *table, const char *path, const char *const *overrides,
                size_t n_overrides, struct buf *errors, void **out);
/* The same from text, for tests and fuzzing; name stands for the file in messages. */
int config_load_text(const struct config_table *table, const char *name, struct bytes text,
                     struct buf *errors, void **out);
void config_free(const struct config_table *table, void *config);

/* Where the value came from: "default", "file:line" or "command line"; borrowed from config. */
const char *config_origin(const struct config_table *table, const void *config, size_t key_index);

/* A look at a whole snapshot by the daemon that it is for: at what the table cannot say, such as files,
 * addresses and keys that depend on each other.  Start, reload and --check-config take the same look. */
struct config_check {
    const struct config_table *table;
    const void *config;
    struct buf *findings; /* a line for each, "place: section.key: text" */
    bool is_reload;       /* the model and the ports are not opened anew */
    unsigned n_refused, n_warned;
};

/* A finding: key is "section.name" of the table, the text says what is wrong and what to do.  The place is
 * the value's file and line, the file where a default stands for a key that it leaves out, "command line
 * (--set)", or "default" where there is no file. */
__attribute__((format(printf, 3, 4))) void config_refuse(struct config_check *check, const char *key,
                                                         const char *format, ...);
/* The same of one item of a list. */
__attribute__((format(printf, 4, 5))) void config_refuse_item(struct config_check *check, const char *key,
                                                              size_t item, const char *format, ...);
/* What works, but hardly as it was meant: "place: section.key: warning: text". */
__attribute__((format(printf, 3, 4))) void config_warn(struct config_check *check, const char *key,
                                                       const char *format, ...);

void config_write_sample(const struct config_table *table, FILE *out);
void config_write_dump(const struct config_table *table, const void *config, FILE *out);
void config_write_manual(const struct config_table *table, FILE *out); /* mdoc list of keys */

/* For a start that fails after the look: a text that begins with "section.key: " gets the place before it,
 * that of the list's item that it quotes.  Other text is appended as it is. */
void config_put_placed(const struct config_table *table, const void *config, const char *text,
                       struct buf *out);

/* Compares two snapshots: calls changed for each key that differs.  A reload applies the reloadable ones. */
void config_diff(const struct config_table *table, const void *from, const void *to,
                 void (*changed)(void *arg, const struct config_key *key), void *arg);
/* A reload's first half: the keys that only a restart may change are exchanged between running and fresh, so
 * that fresh has the values the daemon runs with, and whoever points at running's text may go on. */
void config_keep_fixed(const struct config_table *table, void *running, void *fresh);

#endif
