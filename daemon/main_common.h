/* SPDX-License-Identifier: Apache-2.0 */
/* The part that the three mains share: options, configuration, logging. */
#ifndef DAEMON_MAIN_COMMON_H
#define DAEMON_MAIN_COMMON_H

#include "base/bytes.h"
#include "base/fault.h"
#include "base/config/config.h"

struct main_options {
    const struct config_table *table; /* the caller sets it */
    const char *config_path;          /* NULL: the default path, if that file exists */
    const char *overrides[64];
    size_t n_overrides;
    /* The caller sets these. check: the check of the whole configuration for start, reload and
     * --check-config. cluster_key: where the snapshot has the cluster key's path. libraries: the library
     * versions that --version prints. */
    void (*check)(struct config_check *check);
    char **(*cluster_key)(void *conf);
    /* Fills in defaults that depend on other keys, before the check.  NULL: there are none. */
    void (*complete)(const struct main_options *options, void *conf);
    const char *(*libraries)(void);
    int (*tune)(const void *conf, struct buf *out, struct fault *fault); /* --tune; NULL: not offered */
    struct buf warnings;                                                 /* warnings of the first check */
};

/* Reads the command line, loads the configuration and checks it.  The caller has set table, check, cluster_key
 * and libraries in *options. 1: go on with *conf_out.  Otherwise the process must exit with *status_out.  That
 * is the case for --help, --version, --check-config, --dump-config, --sample-config, --manual-keys and
 * --tune, and for errors, which it has printed. */
int main_begin(int argc, char **argv, struct main_options *options, void **conf_out, int *status_out);

/* Logs the warnings of the check at start.  Call it after the log is set up. */
void main_log_warnings(struct main_options *options);

/* Loads a new snapshot for a reload, checked as at start.  NULL: errors, which go to the log. */
void *main_load_again(const struct main_options *options);

/* Gives fresh the running values of all keys that need a restart, and logs which of them the file
 * changed. */
void main_keep_fixed(const struct main_options *options, void *running, void *fresh);

/* Appends the changes that a reload would make, as JSON, and changes nothing: {"hash": "...", "changes": [{"key":
 * "slo.ttft", "from": "500ms", "to": "1s", "reload": true, "where": "..."}]} E_FORMAT: the new configuration is
 * refused; the fault has the first reason, and the log all of them. */
int main_diff(const struct main_options *options, const void *running, struct buf *out, struct fault *fault);

/* Prints "baton-x: text" with the place of the key that the text begins with.  Returns 1, the exit status of
 * a daemon that could not start. */
int main_failed(const struct main_options *options, const void *conf, const struct fault *fault);

#endif
