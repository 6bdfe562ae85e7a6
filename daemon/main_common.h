/* SPDX-License-Identifier: Apache-2.0 */
/* What the three mains share: options, configuration, logging. */
#ifndef DAEMON_MAIN_COMMON_H
#define DAEMON_MAIN_COMMON_H

#include "base/fault.h"
#include "config/config.h"

struct main_options {
    const struct config_table *table;
    const char *config_path; /* NULL: the standard place, if there is a file */
    const char *overrides[64];
    size_t n_overrides;
    /* Set by the caller: what else --check-config looks at, and what --version names. */
    int (*check)(const void *conf, struct fault *fault);
    const char *(*libraries)(void);
};

/* *options holds check and libraries, or is zeroed.  Reads the command line and loads the configuration.  1:
 * go on, *conf_out is loaded; otherwise the process is to exit with *status_out (--help, --version,
 * --check-config, --dump-config, --sample-config,
 * --manual-keys, or an error, which was printed). */
int main_begin(int argc, char **argv, const struct config_table *table, struct main_options *options,
               void **conf_out, int *status_out);

/* A fresh snapshot for a reload, or NULL (errors go to the log). */
void *main_load_again(const struct main_options *options);

/* Gives fresh the running values of all keys that want a restart, and says which were changed in vain. */
void main_keep_fixed(const struct main_options *options, void *running, void *fresh);

/* The cluster key's path: conf value, else $CREDENTIALS_DIRECTORY/cluster.key, else sysconfdir; replaced in
 * place (heap). */
void main_find_cluster_key(char **path);
/* An empty node.name becomes HOST-ROLE-PORT, of http.admin's port: another worker of this host has another.
 */
void main_name_node(char **name, const char *role, const char *admin_listen);

/* Prints "baton-x: text" and returns 1, the exit status of a daemon that could not start. */
int main_failed(const struct main_options *options, const struct fault *fault);

#endif
