/* SPDX-License-Identifier: Apache-2.0 */
/* What the three mains share: options, configuration, logging. */
#ifndef DAEMON_MAIN_COMMON_H
#define DAEMON_MAIN_COMMON_H

#include "base/bytes.h"
#include "base/fault.h"
#include "base/config/config.h"

struct main_options {
    const struct config_table *table;
    const char *config_path; /* NULL: the standard place, if there is a file */
    const char *overrides[64];
    size_t n_overrides;
    /* Set by the caller: the look at the whole configuration that start, reload and --check-config take,
     * where the snapshot keeps the cluster key's path, and what --version names. */
    void (*check)(struct config_check *check);
    char **(*cluster_key)(void *conf);
    /* Fills in defaults that depend on other keys, before the check; NULL: there are none. */
    void (*complete)(const struct main_options *options, void *conf);
    const char *(*libraries)(void);
    int (*tune)(const void *conf, struct buf *out, struct fault *fault); /* --tune; NULL: no such option */
    struct buf warnings;                                                 /* of the look at the start */
};

/* *options holds check, cluster_key and libraries.  Reads the command line, loads the configuration and
 * checks it. 1: go on, *conf_out is loaded; otherwise the process is to exit with *status_out (--help,
 * --version,
 * --check-config, --dump-config, --sample-config, --manual-keys, --tune, or errors, which were printed). */
int main_begin(int argc, char **argv, const struct config_table *table, struct main_options *options,
               void **conf_out, int *status_out);

/* Logs what the check at the start found worth a warning; the log is set up. */
void main_log_warnings(struct main_options *options);

/* A fresh snapshot for a reload, checked as at the start, or NULL (errors go to the log). */
void *main_load_again(const struct main_options *options);

/* Gives fresh the running values of all keys that want a restart, and says which were changed in vain. */
void main_keep_fixed(const struct main_options *options, void *running, void *fresh);

/* Prints "baton-x: text", with the place of the key that the text begins with, and returns 1, the exit status
 * of a daemon that could not start. */
int main_failed(const struct main_options *options, const void *conf, const struct fault *fault);

#endif
