/* SPDX-License-Identifier: Apache-2.0 */
/* batonctl's commands.  argv[0] is the command's own name.  Each returns the exit status and prints errors on
 * stderr. */
#ifndef CLIENTS_CTL_COMMANDS_H
#define CLIENTS_CTL_COMMANDS_H

#include "clients/common/cli.h"
#include "clients/ctl/admin_call.h"
#include "net/discover/discover.h"

#define CTL_NAME "batonctl"

struct ctl { /* options that stand before the command */
    struct admin_door_opts door;
    const char *cluster; /* the source where the daemons are registered; NULL: none */
    struct discover_tls tls;
};

/* Reads the options of a command that has --json alone.  False: another one, which is printed. */
bool ctl_read_json(int argc, char **argv, bool *is_json_out);
/* Opens the admin connection, or prints an error and returns NULL. */
struct admin_door *ctl_open(const struct ctl *ctl);

int cmd_status(const struct ctl *ctl, int argc, char **argv);
int cmd_daemons(const struct ctl *ctl, int argc, char **argv); /* lists the registered daemons */
/* Finds the http.admin of a registered daemon of this host by its name; NULL: of the first router.  False: says why not. */
bool ctl_find_admin(const struct ctl *ctl, const char *node, char out[64]);
int cmd_top(const struct ctl *ctl, int argc, char **argv);
int cmd_why(const struct ctl *ctl, int argc, char **argv);
int cmd_trace(const struct ctl *ctl, int argc, char **argv);
int cmd_report(const struct ctl *ctl, int argc, char **argv);
int cmd_metrics(const struct ctl *ctl, int argc, char **argv);
int cmd_drain(const struct ctl *ctl, int argc, char **argv);
int cmd_role(const struct ctl *ctl, int argc, char **argv);
int cmd_verb(const struct ctl *ctl, int argc, char **argv); /* undrain */
int cmd_reload(const struct ctl *ctl, int argc, char **argv);
int cmd_new_key(const struct ctl *ctl, int argc, char **argv);
int cmd_keys(const struct ctl *ctl, int argc, char **argv); /* lists a key file */
int cmd_metrics_token(const struct ctl *ctl, int argc, char **argv);
int cmd_admin_token(const struct ctl *ctl, int argc, char **argv);
int cmd_token(const struct ctl *ctl, int argc, char **argv); /* waits for a host that joins */
int cmd_check(const struct ctl *ctl, int argc, char **argv); /* connections between workers */
int cmd_join(const struct ctl *ctl, int argc, char **argv);
int cmd_key(const struct ctl *ctl, int argc, char **argv); /* rotation of the cluster key */
int cmd_new_cluster_key(const struct ctl *ctl, int argc, char **argv);

#endif
