/* SPDX-License-Identifier: Apache-2.0 */
/* The daemons of a cluster as they registered in etcd (link.register).
 *
 *     batonctl --cluster etcd://host/prefix daemons            all of them
 *     batonctl --cluster etcd://host/prefix -a NAME COMMAND    the command, for that daemon of this host
 *
 * An entry's http.admin is on the loopback of the daemon's host.  So a name of another host is refused: the same address
 * here belongs to another daemon, or to none. */
#include <getopt.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/str.h"
#include "clients/ctl/commands.h"

/* NULL: the error has been printed. */
static struct discover_members *cmd_daemons_read(const struct ctl *ctl)
{
    struct discover_members *members = calloc(1, sizeof(*members));
    struct fault fault = {0};
    int rc = members == NULL ? fault_set(&fault, E_NOMEM, "out of memory")
                             : discover_members_read(ctl->cluster, &ctl->tls, &fault, members);

    if (rc == 0)
        return members;
    complain(CTL_NAME, "--cluster: %s", fault.text);
    free(members);
    return NULL;
}

static void cmd_daemons_print_json(const struct discover_members *members)
{
    json_t *list = json_array();

    for (uint32_t i = 0; i < members->n; i++) {
        const struct discover_member *one = &members->all[i];

        json_array_append_new(list, json_pack("{ss ss ss ss ss ss ss}", "node", one->node, "role", one->phase,
                                              "host", one->host, "link", one->link, "admin", one->admin,
                                              "model", one->model, "fingerprint", one->fingerprint));
    }
    json_dumpf(list, stdout, JSON_INDENT(1));
    putchar('\n');
    json_decref(list);
}

static void cmd_daemons_print(const struct discover_members *members)
{
    printf("%-20s %-8s %-16s %-22s %-22s %s\n", "NAME", "ROLE", "HOST", "LINK", "ADMIN THERE", "MODEL");
    for (uint32_t i = 0; i < members->n; i++) {
        const struct discover_member *one = &members->all[i];

        printf("%-20s %-8s %-16s %-22s %-22s %s%s%.8s\n", one->node, one->phase,
               one->host[0] ? one->host : "-", one->link, one->admin[0] ? one->admin : "-",
               one->model[0] ? one->model : "-", one->fingerprint[0] ? " " : "", one->fingerprint);
    }
    if (members->n_refused > 0)
        printf("%u more entries cannot be read\n", members->n_refused);
}

int cmd_daemons(const struct ctl *ctl, int argc, char **argv)
{
    struct discover_members *members;
    bool is_json;

    if (!ctl_read_json(argc, argv, &is_json))
        return EXIT_USAGE;
    if (optind < argc)
        return complain_usage(CTL_NAME, "daemons: unexpected argument: %s", argv[optind]);
    if (ctl->cluster == NULL)
        return complain_usage(CTL_NAME, "daemons: give --cluster etcd://HOST/PREFIX before the command");
    members = cmd_daemons_read(ctl);
    if (members == NULL)
        return EXIT_FAILED;
    if (is_json)
        cmd_daemons_print_json(members);
    else
        cmd_daemons_print(members);
    free(members);
    return finish_output(CTL_NAME);
}

static const struct discover_member *cmd_daemons_find(const struct discover_members *members,
                                                      const char *node, const char *host)
{
    for (uint32_t i = 0; i < members->n; i++) {
        const struct discover_member *one = &members->all[i];

        if (node != NULL ? strcmp(one->node, node) == 0
                         : strcmp(one->phase, "router") == 0 && strcmp(one->host, host) == 0)
            return one;
    }
    return NULL;
}

bool ctl_find_admin(const struct ctl *ctl, const char *node, char out[64])
{
    struct discover_members *members = cmd_daemons_read(ctl);
    const struct discover_member *found;
    bool is_found = false;
    char host[65];

    if (members == NULL)
        return false;
    discover_host(host);
    found = cmd_daemons_find(members, node, host);
    if (found == NULL && node != NULL)
        complain(CTL_NAME,
                 "no daemon with the name %s is registered; 'batonctl --cluster ... daemons' lists all",
                 node);
    else if (found == NULL)
        complain(CTL_NAME, "no router of this host (%s) is registered; name a daemon with --admin NAME",
                 host);
    else if (found->admin[0] == '\0')
        complain(CTL_NAME, "%s has no http.admin", found->node);
    else if (strcmp(found->host, host) != 0)
        complain(CTL_NAME, "%s runs on host %s, and its http.admin is %s there: run batonctl on that host",
                 found->node, found->host, found->admin);
    else
        is_found = str_copy(out, 64, found->admin);
    free(members);
    return is_found;
}
