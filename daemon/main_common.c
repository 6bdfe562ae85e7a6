/* SPDX-License-Identifier: Apache-2.0 */
/* Options are few, because a daemon is configured by its file: where that file is, single keys set from the
 * command line (--set section.key=value), and questions about the configuration. */
#include "daemon/main_common.h"

#include <ctype.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/log.h"
#include "base/str.h"

enum { OPT_CHECK = 256, OPT_DUMP, OPT_SAMPLE, OPT_MANUAL };

static const struct option options_long[] = {{"config", required_argument, NULL, 'c'},
                                             {"set", required_argument, NULL, 's'},
                                             {"check-config", no_argument, NULL, OPT_CHECK},
                                             {"dump-config", no_argument, NULL, OPT_DUMP},
                                             {"sample-config", no_argument, NULL, OPT_SAMPLE},
                                             {"manual-keys", no_argument, NULL, OPT_MANUAL},
                                             {"help", no_argument, NULL, 'h'},
                                             {"version", no_argument, NULL, 'V'},
                                             {NULL, 0, NULL, 0}};

static void print_help(const struct config_table *table)
{
    printf("usage: %s [--config FILE] [--set SECTION.KEY=VALUE]...\n\n"
           "  -c, --config FILE     read FILE and FILE.d/*.conf (standard: %s/%s if it is there)\n"
           "  -s, --set S.KEY=VAL   set one key; may be repeated; wins over the file\n"
           "      --check-config    check the configuration and exit\n"
           "      --dump-config     print every key with its value and where that came from\n"
           "      --sample-config   print an annotated sample file\n"
           "      --manual-keys     print the key list as manual source\n"
           "  -h, --help            this text\n"
           "  -V, --version         the version\n\n"
           "SIGHUP reloads, SIGTERM drains and stops, a second SIGTERM stops at once.\n",
           table->daemon, BATON_SYSCONFDIR, table->file_name);
}

static int load(const struct main_options *options, struct buf *errors, void **out)
{
    return config_load(options->table, options->config_path, options->overrides, options->n_overrides, errors,
                       out);
}

static int check(const struct main_options *options, const void *conf)
{
    struct fault fault = {0};

    return options->check == NULL || options->check(conf, &fault) == 0 ? 0 : main_failed(options, &fault);
}

static int answer(int question, const struct main_options *options, void *conf)
{
    switch (question) {
    case OPT_CHECK:
        if (check(options, conf) != 0)
            return 1;
        printf("%s: the configuration is fine\n", options->table->daemon);
        return 0;
    case OPT_DUMP:
        config_write_dump(options->table, conf, stdout);
        return 0;
    default:
        return 0;
    }
}

static int parse(int argc, char **argv, struct main_options *options, int *question, int *status_out)
{
    int c;

    while ((c = getopt_long(argc, argv, "c:s:hV", options_long, NULL)) != -1) {
        switch (c) {
        case 'c':
            options->config_path = optarg;
            break;
        case 's':
            if (options->n_overrides == sizeof(options->overrides) / sizeof(options->overrides[0])) {
                fprintf(stderr, "%s: too many --set\n", options->table->daemon);
                *status_out = 2;
                return 0;
            }
            options->overrides[options->n_overrides++] = optarg;
            break;
        case OPT_CHECK:
        case OPT_DUMP:
            *question = c;
            break;
        case OPT_SAMPLE:
            config_write_sample(options->table, stdout);
            return 0;
        case OPT_MANUAL:
            config_write_manual(options->table, stdout);
            return 0;
        case 'h':
            print_help(options->table);
            return 0;
        case 'V':
            printf("%s %s\n", options->table->daemon, PACKAGE_VERSION);
            if (options->libraries != NULL)
                printf("%s\n", options->libraries());
            return 0;
        default:
            *status_out = 2;
            return 0;
        }
    }
    if (optind < argc) {
        fprintf(stderr, "%s: unexpected argument: %s (see --help)\n", options->table->daemon, argv[optind]);
        *status_out = 2;
        return 0;
    }
    return 1;
}

int main_begin(int argc, char **argv, const struct config_table *table, struct main_options *options,
               void **conf_out, int *status_out)
{
    static char standard[512];
    struct buf errors = {0};
    int question = 0;

    options->table = table;
    *status_out = 0;
    signal(SIGPIPE, SIG_IGN);
    if (parse(argc, argv, options, &question, status_out) == 0)
        return 0;
    if (options->config_path == NULL) {
        snprintf(standard, sizeof(standard), "%s/%s", BATON_SYSCONFDIR, table->file_name);
        if (access(standard, R_OK) == 0)
            options->config_path = standard;
    }
    if (load(options, &errors, conf_out) < 0) {
        fwrite(errors.data, 1, errors.len_bytes, stderr);
        buf_fini(&errors);
        *status_out = 1;
        return 0;
    }
    buf_fini(&errors);
    if (question != 0) {
        *status_out = answer(question, options, *conf_out);
        config_free(table, *conf_out);
        return 0;
    }
    return 1;
}

void *main_load_again(const struct main_options *options)
{
    struct buf errors = {0};
    void *conf = NULL;

    if (load(options, &errors, &conf) < 0) {
        log_error("config_refused",
                  LOG_STR("errors", errors.data ? (const char *)errors.data : "out of memory"));
        conf = NULL;
    }
    buf_fini(&errors);
    return conf;
}

static void say_ignored(void *arg, const struct config_key *key)
{
    if (!key->is_reloadable)
        log_warn("reload_wants_restart", LOG_STR("section", key->section), LOG_STR("key", key->name));
}

void main_keep_fixed(const struct main_options *options, void *running, void *fresh)
{
    config_diff(options->table, running, fresh, say_ignored, NULL);
    config_keep_fixed(options->table, running, fresh);
}

void main_find_cluster_key(char **path)
{
    const char *credentials = getenv("CREDENTIALS_DIRECTORY");
    char found[512];

    if ((*path)[0] != '\0')
        return;
    snprintf(found, sizeof(found), "%s/cluster.key", credentials ? credentials : BATON_SYSCONFDIR);
    free(*path);
    *path = strdup(found);
    if (*path == NULL)
        abort();
}

#define MAX_NODE_BYTES 63 /* of a node's name, as routers take it */

/* What is no letter of a node's name becomes '-'; too long a name keeps its beginning and a digest of all. */
static void fit_host(char *host, size_t max_bytes)
{
    for (char *c = host; *c != '\0'; c++)
        if (!isalnum((unsigned char)*c) && strchr("._-", *c) == NULL)
            *c = '-';
    if (strlen(host) <= max_bytes)
        return;
    snprintf(host + max_bytes - 9, 10, "-%08x", (unsigned)str_digest(host));
}

void main_name_node(char **name, const char *role, const char *admin_listen)
{
    const char *colon = strrchr(admin_listen, ':');
    const char *port = colon != NULL ? colon + 1 : "";
    char host[256] = "", own[32], text[MAX_NODE_BYTES + 1];

    if ((*name)[0] != '\0')
        return;
    snprintf(own, sizeof(own), "pid%ld", (long)getpid()); /* where the port is not known before it is bound */
    if (port[0] == '\0' || strspn(port, "0") == strlen(port) || strlen(port) > 5)
        port = own;
    if (gethostname(host, sizeof(host) - 1) < 0 || host[0] == '\0')
        str_copy(host, sizeof(host), "host");
    fit_host(host, MAX_NODE_BYTES - strlen(role) - strlen(port) - 2);
    snprintf(text, sizeof(text), "%s-%s-%s", host, role, port);
    free(*name);
    *name = strdup(text);
    if (*name == NULL)
        abort();
}

int main_failed(const struct main_options *options, const struct fault *fault)
{
    fprintf(stderr, "%s: %s\n", options->table->daemon, fault->text[0] ? fault->text : err_text(fault->code));
    return 1;
}
