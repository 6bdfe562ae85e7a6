/* SPDX-License-Identifier: Apache-2.0 */
/* batonctl: operates running daemons, and makes the keys that daemons and clients share.
 *
 * Options that choose the daemon come before the command, the command's own after it.  The cluster's key is
 * the operator's password: a process that can read it may operate every daemon of the cluster. */
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "clients/ctl/commands.h"

struct command {
    const char *name;
    const char *text;
    int (*run)(const struct ctl *ctl, int argc, char **argv);
};

static const struct command commands[] = {
    {"status", "how a router or worker is: status [--json | --line]", cmd_status},
    {"top", "the same, again and again; q quits: top [--interval 1s]", cmd_top},
    {"metrics", "the daemon's metrics as Prometheus text", cmd_metrics},
    {"drain", "leave service, finish what runs (a router: be not ready): drain [--wait [--timeout 5min]]",
     cmd_drain},
    {"undrain", "take requests again", cmd_verb},
    {"role", "give a worker another role while it runs: role WORKER prefill|decode|both", cmd_role},
    {"reload", "read the configuration again, as SIGHUP does", cmd_verb},
    {"new-key", "make an API key: new-key [--tenant NAME] [--id NAME] [LIMIT=VALUE]...", cmd_new_key},
    {"keys", "what a key file allows, without its secrets: keys FILE", cmd_keys},
    {"metrics-token", "the bearer token that reads /metrics on http.admin, for Prometheus",
     cmd_metrics_token},
    {"new-cluster-key", "make the key that a cluster's daemons share: new-cluster-key FILE",
     cmd_new_cluster_key},
};

static void ctl_main_print_help(void)
{
    printf("usage: batonctl [OPTION]... COMMAND [ARGUMENT]...\n\n");
    for (size_t i = 0; i < ARRAY_LEN(commands); i++)
        printf("  %-16s %s\n", commands[i].name, commands[i].text);
    printf("\n"
           "  -a, --admin HOST:PORT   the daemon's http.admin address (127.0.0.1:8081)\n"
           "  -k, --cluster-key FILE  the cluster's key ($BATON_CLUSTER_KEY, %s/cluster.key)\n"
           "  -h, --help              this text\n"
           "  -V, --version           the version\n",
           BATON_SYSCONFDIR);
}

struct admin_door *ctl_open(const struct ctl *ctl)
{
    struct admin_door *door = NULL;
    struct fault fault = {0};

    if (admin_door_open(&ctl->door, &fault, &door) < 0)
        complain(CTL_NAME, "%s", fault.text);
    return door;
}

static int ctl_main_run_command(const struct ctl *ctl, int argc, char **argv)
{
    for (size_t i = 0; i < ARRAY_LEN(commands); i++)
        if (strcmp(argv[0], commands[i].name) == 0)
            return commands[i].run(ctl, argc, argv);
    return complain_usage(CTL_NAME, "no such command: %s", argv[0]);
}

int main(int argc, char **argv)
{
    static const struct option options[] = {{"admin", required_argument, NULL, 'a'},
                                            {"cluster-key", required_argument, NULL, 'k'},
                                            {"help", no_argument, NULL, 'h'},
                                            {"version", no_argument, NULL, 'V'},
                                            {NULL, 0, NULL, 0}};
    const char *key = getenv("BATON_CLUSTER_KEY");
    struct ctl ctl = {.door = {.address = "127.0.0.1:8081", .key_path = BATON_SYSCONFDIR "/cluster.key"}};
    int c;

    signal(SIGPIPE, SIG_IGN);
    if (key != NULL && *key != '\0')
        ctl.door.key_path = key;
    while ((c = getopt_long(argc, argv, "+a:k:hV", options, NULL)) != -1) {
        switch (c) {
        case 'a':
            ctl.door.address = optarg;
            break;
        case 'k':
            ctl.door.key_path = optarg;
            break;
        case 'h':
            ctl_main_print_help();
            return finish_output(CTL_NAME);
        case 'V':
            printf("batonctl %s\n", PACKAGE_VERSION);
            return finish_output(CTL_NAME);
        default:
            return EXIT_USAGE;
        }
    }
    if (optind == argc)
        return complain_usage(CTL_NAME, "no command given");
    argc -= optind;
    argv += optind;
    optind = 0; /* the command reads its own options */
    return ctl_main_run_command(&ctl, argc, argv);
}
