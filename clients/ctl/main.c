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
    const char *arguments;
    const char *text;
    const char *options; /* lines of its --help, or NULL */
    int (*run)(const struct ctl *ctl, int argc, char **argv);
    bool is_local; /* asks no daemon, so it needs no address of one */
};

static const struct command commands[] = {
    {"status", "[--json | --line]", "status of a router or worker",
     "  -j, --json   the whole status as JSON\n"
     "  -l, --line   one line\n",
     cmd_status, false},
    {"daemons", "[--json]", "the daemons that registered in etcd (--cluster)", "  -j, --json   as JSON\n",
     cmd_daemons, true},
    {"top", "[--interval TIME]", "the status, refreshed; q quits",
     "  -i, --interval TIME   between two looks (1s)\n", cmd_top, false},
    {"why", "[--json] REQUEST-ID", "the placement of a request: candidates and estimates",
     "  -j, --json   the router's answer as JSON\n", cmd_why, false},
    {"trace", "[--json] REQUEST-ID", "the times of a request on all daemons",
     "  -j, --json   the router's answer as JSON\n", cmd_trace, false},
    {"report", "[HOST:PORT]...",
     "a report for the analysis of a fault: status and metrics, without tenants' names", NULL, cmd_report,
     false},
    {"metrics", "", "the daemon's metrics as Prometheus text", NULL, cmd_metrics, false},
    {"drain", "[--move] [--wait [--timeout TIME]]",
     "leave service, finish what runs (a router: be not ready)",
     "  -m, --move           a worker: hand running answers to other workers, too\n"
     "  -w, --wait           return when nothing runs any more, or when the daemon has exited\n"
     "  -t, --timeout TIME   wait no longer than this (5min)\n",
     cmd_drain, false},
    {"undrain", "", "take requests again", NULL, cmd_verb, false},
    {"role", "WORKER prefill|decode|both", "give a worker another role while it runs", NULL, cmd_role, false},
    {"reload", "[--diff [--json]]", "read the configuration again, as SIGHUP does",
     "  -d, --diff   print what would change and what needs a restart; change nothing\n"
     "  -j, --json   with --diff: as JSON\n",
     cmd_reload, false},
    {"new-key", "[--tenant NAME] [--id NAME] [LIMIT=VALUE]...", "make an API key",
     "  -t, --tenant NAME   owner of the key\n"
     "  -i, --id NAME       its name in logs and metrics\n",
     cmd_new_key, true},
    {"keys", "FILE", "the entries of a key file, without secrets", NULL, cmd_keys, true},
    {"metrics-token", "", "the bearer token that reads /metrics on http.admin, for Prometheus", NULL,
     cmd_metrics_token, true},
    {"admin-token", "", "the token that permits everything on http.admin, for the console", NULL,
     cmd_admin_token, true},
    {"token", "[--listen ADDRESS:PORT] [--lifetime TIME]", "let one new host have the cluster's key",
     "  -l, --listen ADDRESS:PORT   where the new host connects (the router's link address, port 8089)\n"
     "  -t, --lifetime TIME         how long the token is good (10min)\n",
     cmd_token, false},
    {"join", "[--replace] --token TOKEN HOST[:PORT]", "get the cluster's key, check this host",
     "  -t, --token TOKEN   from batonctl token on the router's host; - reads it from the input\n"
     "  -r, --replace       move a key that is there to FILE.old\n",
     cmd_join, true},
    {"check", "[--json]", "connections between the cluster's daemons, host by host, and the faults",
     "  -j, --json   the router's answers as JSON, one object a line\n", cmd_check, false},
    {"new-cluster-key", "FILE", "make the key that a cluster's daemons share", NULL, cmd_new_cluster_key,
     true},
    {"key", "[--json] status | rotate FILE | show FILE", "change the cluster's key without an interruption",
     "  status        a daemon's keys against the key file, and its links; exit status 1 while one is "
     "behind\n"
     "  rotate FILE   take the next step on a key file: add a next key, use it, drop the former\n"
     "  show FILE     the ids of a file's keys, which are no secret\n"
     "  -j, --json    with status: as JSON\n",
     cmd_key, false},
};

static void ctl_main_print_help(void)
{
    printf("usage: batonctl [OPTION]... COMMAND [ARGUMENT]...\n\n");
    for (size_t i = 0; i < ARRAY_LEN(commands); i++)
        printf("  %-16s %s%s%s\n", commands[i].name, commands[i].text, commands[i].arguments[0] ? ": " : "",
               commands[i].arguments);
    printf("\n"
           "  -a, --admin HOST:PORT   the daemon's http.admin address (127.0.0.1:8081)\n"
           "  -c, --cluster SOURCE    etcd://HOST/PREFIX, where daemons register ($BATON_CLUSTER): --admin\n"
           "                          may be a daemon's name then, or is the first router of this host\n"
           "      --discovery-ca FILE           for etcds://: authorities of its certificate\n"
           "      --discovery-certificate FILE  for etcds://: a certificate for etcd\n"
           "      --discovery-key FILE          its key\n"
           "  -k, --cluster-key FILE  the cluster's key ($BATON_CLUSTER_KEY, %s/cluster.key)\n"
           "  -h, --help              this text, or after a command that command's\n"
           "  -V, --version           the version\n",
           BATON_SYSCONFDIR);
}

static void ctl_main_print_command(const struct command *command)
{
    printf("usage: batonctl [OPTION]... %s %s\n\n%s.\n\n%s  -h, --help   this text\n", command->name,
           command->arguments, command->text, command->options != NULL ? command->options : "");
}

bool ctl_read_json(int argc, char **argv, bool *is_json_out)
{
    static const struct option options[] = {{"json", no_argument, NULL, 'j'}, {NULL, 0, NULL, 0}};
    int c;

    *is_json_out = false;
    while ((c = getopt_long(argc, argv, "j", options, NULL)) != -1) {
        if (c == '?')
            return false;
        *is_json_out = true;
    }
    return true;
}

struct admin_door *ctl_open(const struct ctl *ctl)
{
    struct admin_door *door = NULL;
    struct fault fault = {0};

    if (admin_door_open(&ctl->door, &fault, &door) < 0)
        complain(CTL_NAME, "%s", fault.text);
    return door;
}

static bool ctl_main_wants_help(int argc, char **argv)
{
    return argc == 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0);
}

static bool ctl_main_asks_daemon(const struct command *command, int argc, char **argv)
{
    bool is_status = false;

    for (int i = 1; i < argc; i++)
        is_status |= strcmp(argv[i], "status") == 0;
    return !command->is_local && (command->run != cmd_key || is_status); /* its other forms work on a file */
}

/* With --cluster: puts the address of a name, or of this host's router, in the place of --admin. */
static bool ctl_main_find_daemon(struct ctl *ctl)
{
    static char address[64];
    const char *given = ctl->door.address;

    if (ctl->cluster != NULL && (given == NULL || strchr(given, ':') == NULL)) {
        if (!ctl_find_admin(ctl, given, address))
            return false;
        ctl->door.address = address;
    }
    if (ctl->door.address == NULL)
        ctl->door.address = "127.0.0.1:8081";
    return true;
}

static int ctl_main_run_command(struct ctl *ctl, int argc, char **argv)
{
    for (size_t i = 0; i < ARRAY_LEN(commands); i++) {
        if (strcmp(argv[0], commands[i].name) != 0)
            continue;
        if (!ctl_main_wants_help(argc, argv))
            return !ctl_main_asks_daemon(&commands[i], argc, argv) || ctl_main_find_daemon(ctl)
                       ? commands[i].run(ctl, argc, argv)
                       : EXIT_FAILED;
        ctl_main_print_command(&commands[i]);
        return finish_output(CTL_NAME);
    }
    return complain_usage(CTL_NAME, "no such command: %s", argv[0]);
}

enum { OPTION_CA = 256, OPTION_CERTIFICATE, OPTION_KEY };

static bool ctl_main_take_option(struct ctl *ctl, int c)
{
    const char **const places[] = {&ctl->tls.ca, &ctl->tls.certificate, &ctl->tls.key};

    if (c == 'a')
        ctl->door.address = optarg;
    else if (c == 'k')
        ctl->door.key_path = optarg;
    else if (c == 'c')
        ctl->cluster = optarg;
    else if (c >= OPTION_CA && c <= OPTION_KEY)
        *places[c - OPTION_CA] = optarg;
    else
        return false;
    return true;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"admin", required_argument, NULL, 'a'},
        {"cluster", required_argument, NULL, 'c'},
        {"cluster-key", required_argument, NULL, 'k'},
        {"discovery-ca", required_argument, NULL, OPTION_CA},
        {"discovery-certificate", required_argument, NULL, OPTION_CERTIFICATE},
        {"discovery-key", required_argument, NULL, OPTION_KEY},
        {"help", no_argument, NULL, 'h'},
        {"version", no_argument, NULL, 'V'},
        {NULL, 0, NULL, 0}};
    const char *key = getenv("BATON_CLUSTER_KEY");
    const char *cluster = getenv("BATON_CLUSTER");
    struct ctl ctl = {.door = {.key_path = BATON_SYSCONFDIR "/cluster.key"}};
    int c;

    signal(SIGPIPE, SIG_IGN);
    if (key != NULL && *key != '\0')
        ctl.door.key_path = key;
    if (cluster != NULL && *cluster != '\0')
        ctl.cluster = cluster;
    while ((c = getopt_long(argc, argv, "+a:c:k:hV", options, NULL)) != -1) {
        switch (c) {
        case 'h':
            ctl_main_print_help();
            return finish_output(CTL_NAME);
        case 'V':
            printf("batonctl %s\n", PACKAGE_VERSION);
            return finish_output(CTL_NAME);
        default:
            if (!ctl_main_take_option(&ctl, c))
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
